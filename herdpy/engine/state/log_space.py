"""Room in the log for a step that must not wait for the disk while it holds a lock."""

from collections.abc import Callable
from typing import TypeVar

from herdpy.engine.state.disk_reserve import is_disk_full
from herdpy.engine.state.error_messages import disk_error
from herdpy.engine.state.tablespace import Tablespace
from herdpy.errors import DiskFullError, LogFailedError
from herdpy.log.interfaces import LogSpaceError

T = TypeVar("T")


def with_log_space(
    tablespace: Tablespace, step: Callable[[], T], *, frees_space: bool = False
) -> T:
    """Run a step that may need more log; make room outside every lock and repeat it.

    DiskFullError: the step had no effect. With frees_space it may use what is kept for a full disk.
    """
    while True:
        try:
            return step()
        except LogSpaceError as error:
            needed = error.byte_count
        prepare_log(tablespace, needed, frees_space=frees_space)


def prepare_log(tablespace: Tablespace, byte_count: int, *, frees_space: bool = False) -> None:
    """Make room for so many bytes of records; DiskFullError."""
    space = tablespace.space
    while True:
        log = tablespace.log
        try:
            if frees_space or space is None:
                return tablespace.prepare_log(byte_count)
            return log.prepare(byte_count, space.log_room(byte_count))
        except LogFailedError:
            if log is not tablespace.log:  # replaced meanwhile
                continue
            tablespace.check_writable()
            raise
        except (DiskFullError, OSError) as error:
            if space is not None and not frees_space and is_disk_full(error):
                raise space.refused() from error
            raise disk_error(error) if isinstance(error, OSError) else error from error
