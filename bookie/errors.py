"""The error tree of the ledger store: BookKeeper's codes, a retry class on every leaf.

`code` is the number of BKException.Code in Apache BookKeeper, so that an operator can look it up.
`retry` says what a program may do by itself: SAFE (it surely had no effect, try again), NEVER (the
same call fails again), UNKNOWN (it may have happened: ask before repeating). Every error is
picklable. Messages say what, where, expected, found and what to do.
"""

from enum import Enum


class Retry(Enum):
    """What a program may do after an error."""

    SAFE = "safe"
    NEVER = "never"
    UNKNOWN = "unknown"


class BookieError(Exception):
    """Base of all errors of bookie."""

    code = -999
    retry = Retry.NEVER


def error_record(error: BookieError) -> dict[str, object]:
    """Return an error as JSON, for commands and HTTP alike."""
    return {
        "error": type(error).__name__,
        "code": error.code,
        "retry": error.retry.value,
        "message": str(error),
    }


class ReadError(BookieError):
    """No replica could be asked for the entry; nothing was changed."""

    code = -1
    retry = Retry.SAFE


class DigestMismatchError(BookieError):
    """An entry's bytes are not those that were written (or the password's digest differs)."""

    code = -5


class NotEnoughBookiesError(BookieError):
    """Fewer writable bookies are registered than the call needs; says how many of each."""

    code = -6
    retry = Retry.SAFE


class NoSuchLedgerError(BookieError):
    """The bookies hold nothing of this ledger."""

    code = -7


class BookieUnavailableError(BookieError):
    """A bookie is not registered, or does not accept connections."""

    code = -8
    retry = Retry.SAFE


class LedgerRecoveryError(BookieError):
    """Recovery could not decide where the ledger ends; it stays IN_RECOVERY. Run it again."""

    code = -10
    retry = Retry.SAFE


class LedgerClosedError(BookieError):
    """The ledger is closed, by this handle or another: nothing can be added."""

    code = -11


class AddInterruptedError(LedgerClosedError):
    """The ledger was closed while the entry was under way: beyond what was acknowledged.

    It is in the ledger only if another client recovered it; the CLOSED metadata tells.
    """

    retry = Retry.UNKNOWN


class WriteError(BookieError):
    """An entry could not be written to enough bookies; it may be there after a recovery."""

    code = -12
    retry = Retry.UNKNOWN


class NoSuchEntryError(BookieError):
    """The ledger has no such entry."""

    code = -13


class IncorrectParameterError(BookieError, ValueError):
    """An argument is out of range."""

    code = -14


class ProtocolVersionError(BookieError):
    """The peer does not speak this version of the protocol."""

    code = -16


class MetadataVersionError(BookieError):
    """The ledger's metadata was changed by another client meanwhile."""

    code = -17


class MetadataStoreError(BookieError):
    """The metadata store could not be asked, or its answer was lost."""

    code = -18
    retry = Retry.UNKNOWN


class ClientClosedError(BookieError):
    """The client was closed; what was under way may have happened."""

    code = -19
    retry = Retry.UNKNOWN


class LedgerExistsError(BookieError):
    """A ledger of this id exists."""

    code = -20


class AddEntryQuorumTimeoutError(WriteError):
    """The ack quorum did not answer in time."""

    code = -21


class DuplicateEntryIdError(BookieError):
    """The caller's entry id has been used."""

    code = -22


class RequestTimeoutError(BookieError):
    """A bookie did not answer in time."""

    code = -23
    retry = Retry.UNKNOWN


class SecurityError(BookieError):
    """TLS or authentication failed."""

    code = -24


class NoSuchLedgerMetadataError(NoSuchLedgerError):
    """The metadata store has no such ledger: it was never created, or deleted."""

    code = -25


class IllegalOperationError(BookieError):
    """The call does not fit this ledger or this handle."""

    code = -100


class TaskRunningError(IllegalOperationError):
    """One of this kind is under way in this process; nothing was begun."""

    retry = Retry.SAFE


class LedgersLeftError(IllegalOperationError):
    """Some ledgers still need a bookie. What was copied stays; the same call does the others."""

    retry = Retry.SAFE


class UnsupportedOperationError(IllegalOperationError):
    """This process does not do that; the message names what takes its place."""


class NoSuchBookieError(IllegalOperationError):
    """The cluster knows no bookie of this id."""


class LedgerFencedError(BookieError):
    """Another client recovers or recovered the ledger: this one can no longer write to it.

    Entries that were not acknowledged may or may not be in the closed ledger.
    """

    code = -101
    retry = Retry.UNKNOWN


class UnauthorizedAccessError(BookieError):
    """Wrong password or master key; or a bookie that requires TLS was asked in clear."""

    code = -102


class ReadOnlyBookieError(BookieError):
    """The bookie takes no writes now."""

    code = -104
    retry = Retry.SAFE


class TooManyRequestsError(BookieError):
    """The bookie, or this client, has as many requests queued as it may; nothing was done."""

    code = -105
    retry = Retry.SAFE


class LedgerIdOverflowError(BookieError):
    """There are no more ledger ids of the kind that was asked for."""

    code = -106


class MetadataFormatError(BookieError):
    """The bytes of a ledger's metadata are not what their format says; names the ledger."""

    code = -107


class UnknownLedgerStateError(BookieError):
    """The bookie cannot say whether it had the entry (limbo)."""

    code = -108
    retry = Retry.SAFE


class DeposedAuditorError(BookieError):
    """This auditor's vote is gone: another one acts, and what was to be written was not."""


# --- bytes from a peer ----------------------------------------------------------------------------


class MalformedFrameError(BookieError):
    """A peer sent what the protocol does not allow; the connection is of no more use."""


class FrameTooLargeError(MalformedFrameError):
    """A peer announced a frame that is longer than allowed; none of it was kept."""


# --- the metadata store ---------------------------------------------------------------------------


class StoreError(BookieError):
    """Base of what a VersionedStore raises; `path` names the node."""

    code = -9

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message, path)
        self.path = path

    def __str__(self) -> str:
        return str(self.args[0])


class NoNodeError(StoreError):
    """The node does not exist."""


class NodeExistsError(StoreError):
    """The node exists."""


class BadVersionError(StoreError):
    """The node's version is not the one that was named."""


class NotEmptyError(StoreError):
    """The node has children."""


class StoreConnectionError(StoreError):
    """The connection broke before the answer: a write may have been applied, or not."""

    retry = Retry.UNKNOWN


class StoreUnreachableError(StoreConnectionError):
    """No server of the store answered, so no session was opened and nothing was sent."""

    retry = Retry.SAFE


class StoreAccessError(StoreError, SecurityError):
    """The node's ACL does not allow this to this session, or the login was refused; as before."""

    retry = Retry.NEVER


class StoreTrustError(StoreUnreachableError, SecurityError):
    """No server of the store shows a certificate that is trusted; nothing was said to them."""

    retry = Retry.NEVER


class SessionExpiredError(StoreError):
    """The session ended; its ephemeral nodes are gone or will be. Open a new one."""

    retry = Retry.UNKNOWN


# --- the bookie's own start and files -------------------------------------------------------------


class BookieStartError(BookieError):
    """The bookie must not start: another owner, a foreign or wiped directory, a bad setting."""


class CorruptFileError(BookieError):
    """Stored bytes are damaged: a file of the bookie, a cookie, a frame of records; says where.

    Nothing was guessed.
    """
