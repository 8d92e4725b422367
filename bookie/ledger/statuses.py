"""What a bookie's answer means to a caller: the error for each Status, and which one to report.

The numbers are those of BKException.Code (bookie/errors.py). Of several replicas' answers the one
that says most is reported: "no such entry" only when there is nothing else, since a reader that is
told so takes it for a fact; unknown is never reported as absent.
"""

from bookie.errors import (
    BookieError,
    BookieUnavailableError,
    ClientClosedError,
    IllegalOperationError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    ProtocolVersionError,
    ReadError,
    ReadOnlyBookieError,
    RequestTimeoutError,
    TooManyRequestsError,
    UnauthorizedAccessError,
    UnknownLedgerStateError,
)
from bookie.ledger.types import Status

NEGATIVES = (Status.NO_ENTRY, Status.NO_LEDGER)
"""The bookie has not got it, and says so."""

_ERRORS: dict[Status, type[BookieError]] = {
    Status.NO_LEDGER: NoSuchLedgerError,
    Status.NO_ENTRY: NoSuchEntryError,
    Status.BAD_REQUEST: IllegalOperationError,
    Status.IO_ERROR: ReadError,
    Status.UNAUTHORIZED: UnauthorizedAccessError,
    Status.BAD_VERSION: ProtocolVersionError,
    Status.FENCED: LedgerFencedError,
    Status.READ_ONLY: ReadOnlyBookieError,
    Status.TOO_MANY_REQUESTS: TooManyRequestsError,
    Status.UNKNOWN_LEDGER_STATE: UnknownLedgerStateError,
    Status.TIMED_OUT: RequestTimeoutError,
    Status.UNAVAILABLE: BookieUnavailableError,
    Status.CLIENT_CLOSED: ClientClosedError,
}


def unauthorized(where: str) -> UnauthorizedAccessError:
    """Return what an answer UNAUTHORIZED means; `where` names ledger and bookie."""
    return UnauthorizedAccessError(
        f"{where}: the bookie refuses access (EUA): the password is not the ledger's, it requires "
        "TLS and was asked in clear, or the client's certificate does not give the right"
    )


def read_error(status: Status, message: str) -> BookieError:
    """Return the error of a request that changes nothing; status is not OK."""
    return _ERRORS[status](message)
