"""Every error of the ledger store: picklable, explained, with a code and a retry class."""

import inspect
import pickle

import pytest

from bookie import errors
from bookie.errors import BookieError, Retry, StoreError

CLASSES = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, BookieError)
]
# BKException.Code of Apache BookKeeper 4.17, by our names.
CODES = {
    "BookieError": -999,
    "ReadError": -1,
    "DigestMismatchError": -5,
    "NotEnoughBookiesError": -6,
    "NoSuchLedgerError": -7,
    "BookieUnavailableError": -8,
    "StoreError": -9,
    "LedgerRecoveryError": -10,
    "LedgerClosedError": -11,
    "WriteError": -12,
    "NoSuchEntryError": -13,
    "IncorrectParameterError": -14,
    "ProtocolVersionError": -16,
    "MetadataVersionError": -17,
    "MetadataStoreError": -18,
    "ClientClosedError": -19,
    "LedgerExistsError": -20,
    "AddEntryQuorumTimeoutError": -21,
    "DuplicateEntryIdError": -22,
    "RequestTimeoutError": -23,
    "SecurityError": -24,
    "NoSuchLedgerMetadataError": -25,
    "IllegalOperationError": -100,
    "LedgerFencedError": -101,
    "UnauthorizedAccessError": -102,
    "ReadOnlyBookieError": -104,
    "TooManyRequestsError": -105,
    "LedgerIdOverflowError": -106,
    "MetadataFormatError": -107,
    "UnknownLedgerStateError": -108,
}
# What a program may repeat by itself: a mistake here writes an entry twice, or loses one.
SAFE = {
    "ReadError",
    "NotEnoughBookiesError",
    "BookieUnavailableError",
    "LedgerRecoveryError",
    "LedgersLeftError",
    "ReadOnlyBookieError",
    "TaskRunningError",
    "TooManyRequestsError",
    "UnknownLedgerStateError",
    "StoreUnreachableError",
}
UNKNOWN = {
    "WriteError",
    "AddEntryQuorumTimeoutError",
    "AddInterruptedError",
    "MetadataStoreError",
    "ClientClosedError",
    "RequestTimeoutError",
    "LedgerFencedError",
    "StoreConnectionError",
    "SessionExpiredError",
}


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_travels_whole(kind: type[BookieError]) -> None:
    error = kind("what, where", "/a/path") if issubclass(kind, StoreError) else kind("what, where")
    error.add_note("from the test")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.args == error.args
    assert str(copy) == str(error) == "what, where"
    assert copy.__dict__ == error.__dict__
    assert copy.__notes__ == ["from the test"]


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_says_what_it_is(kind: type[BookieError]) -> None:
    assert isinstance(kind.retry, Retry)
    assert vars(kind).get("__doc__"), "a sentence for the caller"
    # A class without a code of its own stands for its parent towards BookKeeper's tools.
    assert kind.code == next(CODES[c.__name__] for c in kind.__mro__ if c.__name__ in CODES)


def test_every_code_is_known_and_its_own() -> None:
    assert set(CODES) <= {kind.__name__ for kind in CLASSES}
    assert len(set(CODES.values())) == len(CODES)


def test_only_what_surely_had_no_effect_is_safe_to_repeat() -> None:
    by_retry = {
        retry: {kind.__name__ for kind in CLASSES if kind.retry is retry} for retry in Retry
    }
    assert by_retry[Retry.SAFE] == SAFE
    assert by_retry[Retry.UNKNOWN] == UNKNOWN
