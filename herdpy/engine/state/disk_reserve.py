"""DiskReserve: a file of nothing, given up when the disk is full, so that space can be freed then.

What frees space, or ends what was begun, needs some first: DELETE, DROP TABLE, TRUNCATE, COMMIT and
ROLLBACK need room in the log, a checkpoint needs a segment. When such a step finds the disk full,
spare log files go first and then the reserve. Until there is room for the reserve again, everything
else that writes is refused with 53100, so that it is not used up by more rows.

Any thread may call.
"""

import errno
from contextlib import suppress
from typing import Protocol

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Disk
from herdpy.errors import DiskFullError, Error

_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error says that the disk, or the owner's share of it, is used up."""
    return isinstance(error, DiskFullError) or (isinstance(error, OSError) and error.errno in _FULL)


def no_room_error() -> Error:
    """Return what is told to a write that would use up the room that is left."""
    return DiskFullError(
        "no space left on the disk; the statement had no effect",
        hint="DELETE, TRUNCATE, DROP TABLE, COMMIT and checkpoints still work; writes go on as "
        "soon as there is room.",
    )


class SpareFiles(Protocol):
    """Files that are kept for later use; the log's."""

    def free_spares(self) -> bool:
        """Remove them; False: there were none."""
        ...


class DiskReserve:
    """The file `path` of byte_count bytes; with 0 bytes there is none, and nothing is refused.

    `is_given_up` is read without the mutex; the rest is under it.
    """

    def __init__(self, disk: Disk, path: str, byte_count: int, spares: SpareFiles) -> None:
        self._disk = disk
        self._path = path
        self._byte_count = byte_count
        self.spares = spares
        """The log's; replaced with the log."""
        self._mutex = new_mutex()
        self._is_held = byte_count == 0
        self.is_given_up = False
        """The disk was full when it was last tried to hold the reserve."""

    def hold(self) -> bool:
        """Make the file if it is missing, instead of spare log files if need be; repeatable.

        False: the disk has no room for it.
        """
        with self._mutex:
            if not self._is_held:
                is_full = not self._make() and not (self.spares.free_spares() and self._make())
                self.is_given_up = is_full
            return not self.is_given_up

    def give_up(self) -> bool:
        """Make room for a step that frees space; False: there is nothing left to give up."""
        if self.spares.free_spares():
            return True
        with self._mutex:
            if not self._is_held or self._byte_count == 0:
                return False
            self.is_given_up = True
            self._is_held = False
            with suppress(OSError):
                self._disk.unlink(self._path)
            return True

    def check_room(self) -> None:
        """Raise 53100 for a write that frees nothing, while the reserve is given up."""
        if self.is_given_up and not self.hold():
            raise no_room_error()

    def _make(self) -> bool:
        """Return False when the disk is full. What it refuses otherwise is no reason to stop."""
        disk, path = self._disk, self._path
        try:
            if disk.exists(path):
                if disk.is_file(path) and disk.size(path) >= self._byte_count:
                    self._is_held = True
                    return True
                disk.unlink(path)
            file = disk.open(path, create=True, exclusive=True)
            try:
                file.allocate(self._byte_count)
            finally:
                file.close()
        except OSError as error:
            with suppress(OSError):
                if disk.is_file(path):
                    disk.unlink(path)
            return not is_disk_full(error)
        self._is_held = True
        return True
