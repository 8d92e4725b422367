"""Room in the log for a step that must not wait for the disk while it holds a lock."""

from collections.abc import Callable
from typing import TypeVar

from herdpy.engine.state.error_messages import disk_error
from herdpy.engine.state.tablespace import Tablespace
from herdpy.log.interfaces import LogSpaceError

T = TypeVar("T")


def with_log_space(tablespace: Tablespace, step: Callable[[], T]) -> T:
    """Run a step that may need more log; make room outside every lock and repeat it.

    DiskFullError: the step had no effect.
    """
    while True:
        try:
            return step()
        except LogSpaceError as error:
            needed = error.byte_count
        prepare_log(tablespace, needed)


def prepare_log(tablespace: Tablespace, byte_count: int) -> None:
    """Make room for so many bytes of records; DiskFullError."""
    try:
        tablespace.log.prepare(byte_count)
    except OSError as error:
        raise disk_error(error) from error
