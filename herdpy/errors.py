"""The error tree of PEP 249, with SQLSTATE, retry class, hint and position on every leaf.

`retry` says what a program may do by itself: SAFE (the statement surely had no effect, try it
again), NEVER (the same words fail again), UNKNOWN (it may have happened: ask before repeating).
`position` is the 1-based character of the statement's text that the error is about, or None.
Every error is picklable. docs/reference/errors.md lists the SQLSTATEs and is checked by a test.
"""

import errno
from collections.abc import Generator, Iterable
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
        self.leader: str | None = None
        """Of an error that says that another node leads: that one's "host:port", if it is known."""

    def __init_subclass__(
        cls, *, sqlstate: str = "", retry: Retry | None = None, **others: Any
    ) -> None:
        """Take the class' own defaults; those of its base for what is not given."""
        super().__init_subclass__(**others)
        cls.default_sqlstate = sqlstate or cls.default_sqlstate
        cls.default_retry = retry or cls.default_retry

    def __str__(self) -> str:
        text = f"{self.message} (SQLSTATE {self.sqlstate})"
        return f"{text}\nHint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (type(self), self.message, self.__dict__.copy()))


def _restore(kind: type[Error], message: str, state: dict[str, Any]) -> Error:
    error = kind(message)
    error.__dict__.update(state)
    return error


class InterfaceError(Error, sqlstate="HY000"):
    """The driver was misused: closed connection or cursor, forked child, wrong thread."""


class DatabaseError(Error):
    """Base of what the database itself reports."""


class DataError(DatabaseError, sqlstate="22000"):
    """A value does not fit: range, length, precision, bad cast, division by zero."""


class OperationalError(DatabaseError, sqlstate="58000"):
    """Something beside the statement: locks, time-outs, limits, disk, damage."""


class IntegrityError(DatabaseError, sqlstate="23000"):
    """A constraint forbids it: duplicate key, NULL in a NOT NULL column."""

    table: str | None = None
    """Whose values the message shows, if it does: to who may read them."""
    plain: str | None = None
    """The message without them."""


class InternalError(DatabaseError):
    """herdpy found itself wrong, or a transaction's state does not allow the statement."""


class ProgrammingError(DatabaseError, sqlstate="42000"):
    """The statement is wrong: syntax, names, types, parameters."""


class NotSupportedError(DatabaseError, sqlstate="0A000"):
    """Understood and refused: the feature is not there (yet)."""


class InvariantViolation(InternalError):  # noqa: N818 - the name of the design
    """One of I1–I14 (docs/ARCHITECTURE.md) does not hold; the tablespace stops."""


class CorruptionError(OperationalError, sqlstate="XX001"):
    """Damaged bytes at rest; the message names file and offset. Nothing was guessed or skipped."""


class ProtocolError(OperationalError, sqlstate="08P01"):
    """The other side of a connection sent what is no message; the connection is closed."""


class ConnectionLostError(OperationalError, sqlstate="08006", retry=Retry.UNKNOWN):
    """The connection to the server ended; what ran may have happened, unless it only read."""


class LogFailedError(OperationalError, sqlstate="08007", retry=Retry.UNKNOWN):
    """The log could not be made durable; the fate of unanswered commits is unknown until reopen."""


class DiskFullError(OperationalError, sqlstate="53100", retry=Retry.SAFE):
    """No space left; the statement had no effect and the database goes on."""


class MemoryLimitError(OperationalError, sqlstate="53200"):
    """A budget of memory or of open results is used up; the statement had no effect."""


class SnapshotTooOldError(OperationalError, sqlstate="72000", retry=Retry.SAFE):
    """The versions this snapshot needs were given up (version budget); run the statement again."""


class SerializationError(OperationalError, sqlstate="40001", retry=Retry.SAFE):
    """Concurrent changes; the transaction was rolled back and can be run again."""


class DeadlockError(OperationalError, sqlstate="40P01", retry=Retry.SAFE):
    """The transaction was chosen as the victim of a deadlock and rolled back; run it again."""


class LockTimeoutError(OperationalError, sqlstate="55P03", retry=Retry.SAFE):
    """A lock was not granted in lock_timeout; the statement had no effect."""


class QueryCanceledError(OperationalError, sqlstate="57014", retry=Retry.SAFE):
    """Cancelled by conn.cancel() or statement_timeout; no effect, unless it is UNKNOWN."""


class IdleInTransactionError(OperationalError, sqlstate="25P03", retry=Retry.SAFE):
    """The transaction was idle past its limit and was rolled back."""


_NO_DESCRIPTORS_TEXT = "Too many open files"  # the system's words; ENFILE's go on behind them


def damaged(problem: str) -> CorruptionError:
    """Return the error of a file of a database that does not hold what was written to it."""
    hint = (
        "Restore a backup into a new directory: `herdpy restore`. What can still be read is saved "
        "by `herdpy dump --salvage`, while no process has the directory open."
    )
    return CorruptionError(problem, hint=hint)


def misplaced(what: str, error: OSError) -> CorruptionError | None:
    """Return the error of a file that is not there, or of a directory in its place; else None."""
    problem = _MISPLACED.get(error.errno or 0)
    return None if problem is None else damaged(f"{what} {problem}")


@contextmanager
def expecting_file(what: str) -> Generator[None]:
    """Guard looks at a file that has to be there: when it is none, that is damage."""
    try:
        yield
    except OSError as error:
        found = misplaced(what, error)
        if found is None:
            raise
        raise found from error


_MISPLACED = {
    errno.ENOENT: "is missing",
    errno.EISDIR: "is a directory, expected a file",
    errno.ENOTDIR: "is not there: a file has the name of a folder",
}


def did_you_mean(
    word: str, known: Iterable[str], otherwise: str | None = None, cutoff: float = 0.6
) -> str | None:
    """Return a hint at the known word that another one is most like."""
    close = closest(word, known, cutoff)
    return f"Did you mean {close}?" if close and close != word else otherwise


def no_table(
    name: str, known: Iterable[str], position: int | None = None, kind: str = "table"
) -> ProgrammingError:
    """Return the error of a table that is not there (42P01), with the known name most like it."""
    close = closest(name, known)
    return ProgrammingError(
        f'{kind} "{name}" does not exist',
        sqlstate="42P01",
        hint=f'Did you mean "{close}"?' if close else None,
        position=position,
    )


def not_a(
    kind: str, name: str, position: int | None = None, hint: str | None = None
) -> ProgrammingError:
    """Return the error of a view where a table is asked for, or the other way round (42809)."""
    return ProgrammingError(
        f'"{name}" is not a {kind}', sqlstate="42809", position=position, hint=hint
    )


def check_extra(extra: str, what: str, *modules: str) -> None:
    """InterfaceError when an extra that `what` needs is not installed; see bookie/extras.py."""
    from bookie.extras import find_missing  # not what every program imports

    missing = find_missing(extra, what, *modules)
    if missing is not None:
        raise InterfaceError(missing.problem, hint=missing.remedy)


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that another one is most like, None: none is like it."""
    with loading():
        import difflib

    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=cutoff)), None)


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
