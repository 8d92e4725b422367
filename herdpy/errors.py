"""The error tree of PEP 249, with SQLSTATE, retry class, hint and position on every leaf.

`retry` says what a program may do by itself: SAFE (the statement surely had no effect, try it
again), NEVER (the same words fail again), UNKNOWN (it may have happened: ask before repeating).
`position` is the 1-based character of the statement's text that the error is about, or None.
Every error is picklable. docs/reference/errors.md lists the SQLSTATEs and is checked by a test.
"""

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from bookie.errors import Retry as Retry


class Warning(Exception):  # noqa: A001, N818 - the name PEP 249 prescribes
    """Important warnings; herdpy raises none today."""


class Error(Exception):
    """Base of all errors of herdpy; sqlstate is PostgreSQL's five characters."""

    default_sqlstate = "XX000"
    default_retry = Retry.NEVER

    def __init__(
        self,
        message: str,
        *,
        sqlstate: str | None = None,
        retry: Retry | None = None,
        hint: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.sqlstate = sqlstate or self.default_sqlstate
        self.retry = retry or self.default_retry
        self.hint = hint
        self.position = position

    def __str__(self) -> str:
        text = f"{self.message} (SQLSTATE {self.sqlstate})"
        return f"{text}\nHint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (type(self), self.message, self.__dict__.copy()))


def _restore(kind: type[Error], message: str, state: dict[str, Any]) -> Error:
    error = kind(message)
    error.__dict__.update(state)
    return error


class InterfaceError(Error):
    """The driver was misused: closed connection or cursor, forked child, wrong thread."""

    default_sqlstate = "HY000"


class DatabaseError(Error):
    """Base of what the database itself reports."""


class DataError(DatabaseError):
    """A value does not fit: range, length, precision, bad cast, division by zero."""

    default_sqlstate = "22000"


class OperationalError(DatabaseError):
    """Something beside the statement: locks, time-outs, limits, disk, damage."""

    default_sqlstate = "58000"


class IntegrityError(DatabaseError):
    """A constraint forbids it: duplicate key, NULL in a NOT NULL column."""

    default_sqlstate = "23000"


class InternalError(DatabaseError):
    """herdpy found itself wrong, or a transaction's state does not allow the statement."""


class ProgrammingError(DatabaseError):
    """The statement is wrong: syntax, names, types, parameters."""

    default_sqlstate = "42000"


class NotSupportedError(DatabaseError):
    """Understood and refused: the feature is not there (yet)."""

    default_sqlstate = "0A000"


class InvariantViolation(InternalError):  # noqa: N818 - the name of the design
    """One of I1–I14 (docs/ARCHITECTURE.md) does not hold; the tablespace stops."""


class CorruptionError(OperationalError):
    """Damaged bytes at rest; the message names file and offset. Nothing was guessed or skipped."""

    default_sqlstate = "XX001"


class ProtocolError(OperationalError):
    """The other side of a connection sent what is no message; the connection is closed."""

    default_sqlstate = "08P01"


class ConnectionLostError(OperationalError):
    """The connection to the server ended; what ran may have happened, unless it only read."""

    default_sqlstate = "08006"
    default_retry = Retry.UNKNOWN


class LogFailedError(OperationalError):
    """The log could not be made durable; the fate of unanswered commits is unknown until reopen."""

    default_sqlstate = "08007"
    default_retry = Retry.UNKNOWN


class DiskFullError(OperationalError):
    """No space left; the statement had no effect and the database goes on."""

    default_sqlstate = "53100"
    default_retry = Retry.SAFE


class MemoryLimitError(OperationalError):
    """A budget of memory or of open results is used up; the statement had no effect."""

    default_sqlstate = "53200"


class SnapshotTooOldError(OperationalError):
    """The versions this snapshot needs were given up (version budget); run the statement again."""

    default_sqlstate = "72000"
    default_retry = Retry.SAFE


class SerializationError(OperationalError):
    """Concurrent changes; the transaction was rolled back and can be run again."""

    default_sqlstate = "40001"
    default_retry = Retry.SAFE


class DeadlockError(OperationalError):
    """The transaction was chosen as the victim of a deadlock and rolled back; run it again."""

    default_sqlstate = "40P01"
    default_retry = Retry.SAFE


class LockTimeoutError(OperationalError):
    """A lock was not granted in lock_timeout; the statement had no effect."""

    default_sqlstate = "55P03"
    default_retry = Retry.SAFE


class QueryCanceledError(OperationalError):
    """Cancelled by conn.cancel() or statement_timeout; the statement had no effect."""

    default_sqlstate = "57014"
    default_retry = Retry.SAFE


class IdleInTransactionError(OperationalError):
    """The transaction was idle past its limit and was rolled back."""

    default_sqlstate = "25P03"
    default_retry = Retry.SAFE


_NO_DESCRIPTORS_TEXT = "Too many open files"  # the system's words; ENFILE's go on behind them


def descriptors_error(error: BaseException) -> OperationalError | None:
    """Return what a call says that found no file descriptor left, None for other errors.

    The loader of extension modules says it in the text of an ImportError, DuckDB in one of its own.
    """
    if isinstance(error, OSError) and error.errno is not None:
        is_meant = error.errno in (errno.EMFILE, errno.ENFILE)
    else:
        is_meant = _NO_DESCRIPTORS_TEXT in str(error)
    if not is_meant:
        return None
    return OperationalError(
        "the process has no file descriptor left; the statement had no effect",
        sqlstate="53000",
        retry=Retry.SAFE,
        hint="Raise its limit of open files (ulimit -n), or close what it has open.",
    )


@contextmanager
def loading() -> Generator[None]:
    """Guard imports that wait for their first use: without descriptors they are 53000."""
    try:
        yield
    except (OSError, ImportError) as error:
        found = descriptors_error(error)
        if found is None:
            raise
        raise found from error
