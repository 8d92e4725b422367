"""Every class of the error tree: picklable, with SQLSTATE and retry class, documented."""

import inspect
import pickle
import re
from pathlib import Path

import pytest

import herdpy
from herdpy import errors
from herdpy.errors import Error, Retry
from tests.style.generate_reference import errors_page

CLASSES = [
    kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, Error)
]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_travels_whole(kind: type[Error]) -> None:
    error = kind("what, where", sqlstate="12345", retry=Retry.SAFE, hint="do this", position=7)
    error.add_note("from the test")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.message, copy.sqlstate, copy.retry) == ("what, where", "12345", Retry.SAFE)
    assert (copy.hint, copy.position) == ("do this", 7)
    assert copy.args == error.args
    assert str(copy) == str(error)
    assert copy.__notes__ == ["from the test"]


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_says_what_and_whether_to_try_again(kind: type[Error]) -> None:
    error = kind("what")
    assert re.fullmatch(r"[0-9A-Z]{5}", error.sqlstate)
    assert isinstance(error.retry, Retry)
    assert (error.hint, error.position) == (None, None)
    assert error.sqlstate in str(error)
    assert inspect.getdoc(kind), "the docstring is its line in docs/reference/errors.md"


# What a program may repeat by itself: a mistake here repeats a payment.
SAFE = {
    "DiskFullError": "53100",
    "SnapshotTooOldError": "72000",
    "SerializationError": "40001",
    "DeadlockError": "40P01",
    "LockTimeoutError": "55P03",
    "QueryCanceledError": "57014",
    "IdleInTransactionError": "25P03",
}


def test_only_what_surely_had_no_effect_is_safe_to_repeat() -> None:
    safe = {c.__name__: c.default_sqlstate for c in CLASSES if c.default_retry is Retry.SAFE}
    assert safe == SAFE
    unknown = [c.__name__ for c in CLASSES if c.default_retry is Retry.UNKNOWN]
    assert sorted(unknown) == ["ConnectionLostError", "LogFailedError"]


def test_the_tree_is_that_of_pep_249() -> None:
    assert issubclass(herdpy.Warning, Exception)
    assert not issubclass(herdpy.Warning, herdpy.Error)
    parents = {
        "InterfaceError": "Error",
        "DatabaseError": "Error",
        "DataError": "DatabaseError",
        "OperationalError": "DatabaseError",
        "IntegrityError": "DatabaseError",
        "InternalError": "DatabaseError",
        "ProgrammingError": "DatabaseError",
        "NotSupportedError": "DatabaseError",
    }
    for name, parent in parents.items():
        assert getattr(herdpy, name).__bases__ == (getattr(herdpy, parent),)


def test_the_page_lists_every_class() -> None:
    page = PAGE.read_text()
    assert page == errors_page(), "run `make reference`"
    for kind in CLASSES:
        assert f"| `{kind.__name__}` |" in page
