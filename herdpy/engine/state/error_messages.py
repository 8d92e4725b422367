"""What the engine says when the disk fails, and when a session was left alone too long."""

import errno
from collections.abc import Sequence

from herdpy.engine.state.disk_reserve import is_disk_full
from herdpy.errors import (
    DiskFullError,
    Error,
    IdleInTransactionError,
    InterfaceError,
    InternalError,
    LogFailedError,
    MemoryLimitError,
    OperationalError,
    Retry,
    SerializationError,
    descriptors_error,
)
from herdpy.model.access import User


def disk_error(error: OSError) -> Error:
    """Return the error of a statement that the disk refused before anything happened."""
    where = f" ({error.filename})" if error.filename else ""
    no_descriptors = descriptors_error(error)
    if no_descriptors is not None:
        return no_descriptors
    if is_disk_full(error):
        return DiskFullError(
            f"no space left on the disk{where}; the statement had no effect",
            hint="Free some space and run the statement again; the database goes on.",
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return OperationalError(
            f"the database directory cannot be written{where}: {error.strerror}",
            sqlstate="25006",
            hint="Check the mount and the permissions of the directory.",
        )
    return OperationalError(
        f"the disk failed{where}: {error.strerror or error}; the statement had no effect",
        sqlstate="58030",
    )


def system_error(error: BaseException) -> Error | None:
    """Return what a statement says that the system refused something, None for other errors.

    Also modules that are imported on first use need descriptors.
    """
    if isinstance(error, OSError):
        return disk_error(error)
    return descriptors_error(error) if isinstance(error, ImportError) else None


def background_error(what: str, error: Exception) -> Error:
    """Return what is told of work that only reads what is immutable, and failed: no harm done."""
    if isinstance(error, Error):
        return error
    refused = system_error(error)
    if refused is not None:
        return refused
    if isinstance(error, MemoryError):
        return MemoryLimitError(
            f"{what} found no memory; nothing has changed, and it is tried again",
            hint="Give the process more memory, or set memory_bytes_max lower.",
        )
    return InternalError(f"{what} failed: {error!r}; nothing has changed, and it is tried again")


def no_memory_error(cause: Exception) -> Error:
    """Return what a write says when nothing leaves the memory because checkpoints fail."""
    return MemoryLimitError(
        "too many changes are held in memory, because no checkpoint can be written: "
        f"{getattr(cause, 'message', cause)}",
        hint="Look after the disk; writes go on after the next checkpoint, by conn.checkpoint() or "
        "in a few seconds.",
    )


def check_share(
    what: str,
    owners: Sequence[User | None],
    user: User | None,
    count_max: int,
    of_user_max: int,
    *,
    hint: str,
) -> None:
    """Raise 53400 when there are as many as may be, in all or of one user; `what` counts them."""
    own = 0 if user is None else owners.count(user)
    if len(owners) >= count_max or own >= of_user_max:
        whose = f", {own:,} of them user {user.name!r}'s" if own and user else ""
        raise OperationalError(
            f"{what.format(len(owners))}{whose}; more are not allowed",
            sqlstate="53400",
            retry=Retry.SAFE,
            hint=hint,
        )


def dropped_error(name: str) -> Error:
    """Return what a session says whose user is no more."""
    return OperationalError(
        f'the connection was ended: the user "{name}" was dropped',
        sqlstate="57P01",
        retry=Retry.NEVER,
        hint="Its transaction was rolled back. A new user of that name is another one.",
    )


def stopped_error(cause: Error) -> Error:
    """Return what every statement behind a failure of the log or of the engine says."""
    kind = LogFailedError if isinstance(cause, LogFailedError) else OperationalError
    return kind(
        f"the database stopped and the statement was not run: {cause.message}",
        sqlstate="58030" if kind is LogFailedError else cause.sqlstate,
        retry=Retry.NEVER,
        hint="Close all its connections and connect again: recovery decides by the log what "
        "became of the commits that were not answered.",
    )


def follows_error() -> Error:
    """Return what a write says at a copy that follows."""
    return OperationalError(
        "this node follows, and writes nothing; the statement was not run",
        sqlstate="25006",
        retry=Retry.SAFE,
        hint="Connect to the node that leads the tablespace.",
    )


def closing_error(name: str) -> Error:
    """Return what follows a log is told when its tablespace is being closed."""
    return OperationalError(
        f'tablespace "{name}" is being closed, and takes in no more of its log',
        sqlstate="57P03",
        retry=Retry.SAFE,
    )


def held_error() -> Error:
    """Return what a write says while the log of its tablespace is being replaced."""
    return OperationalError(
        "the log of the database is being opened anew; the statement had no effect",
        sqlstate="57P03",
        retry=Retry.SAFE,
        hint="Run it again in a moment; the connection goes on.",
    )


def forked_error() -> InterfaceError:
    return InterfaceError(
        "this database was opened by the parent process; a forked child cannot use it",
        hint="Open it after the fork, in one process only.",
    )


def absent_error() -> Error:
    """Return what a transaction says of which the log has no COMMIT, and never will."""
    return SerializationError(
        "the transaction was rolled back: the log stopped, or was opened anew, before its COMMIT "
        "was in it",
        hint="Run the whole transaction again.",
    )


def half_undone_error() -> Error:
    """Return what a transaction says whose ROLLBACK was interrupted after it had begun."""
    return InternalError(
        "the transaction was rolled back, by a ROLLBACK that was interrupted before its end; this "
        "statement had no effect",
        sqlstate="25P02",
        retry=Retry.SAFE,
        hint="ROLLBACK again ends it; then go on with another transaction.",
    )


def idle_error(limit_s: float) -> IdleInTransactionError:
    return IdleInTransactionError(
        "the transaction was idle longer than idle_in_transaction_session_timeout "
        f"({limit_s:g} s) and was rolled back",
        hint="Run the transaction again.",
    )
