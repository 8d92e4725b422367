"""ReserveFile: blocks of the disk that are kept for what must still run when it is full.

Its content means nothing, and no list has it: whoever opens the database looks at its length. It
is given up in pieces, so that what comes second on a full disk has some, too, though other programs
take what becomes free. One thread at a time.
"""

from contextlib import suppress

from bookie.runtime.interfaces import DISK_FULL, Disk
from herdpy.errors import DiskFullError

_PIECES = 4
_SMALL_DISK_SHARE = 16
_BYTES_MIN = 2 * 1024 * 1024


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error says that the disk, or the owner's share of it, is used up."""
    return isinstance(error, DiskFullError) or (
        isinstance(error, OSError) and error.errno in DISK_FULL
    )


def reserve_bytes_of(configured: int, total_bytes: int) -> int:
    """Return how much is reserved on a disk of total_bytes: of a small one, not too large a part.

    At least 2 MiB, which one record of the log may need, unless less is configured.
    """
    return min(configured, max(_BYTES_MIN, total_bytes // _SMALL_DISK_SHARE))


class ReserveFile:
    """The file `path` of byte_count bytes; with 0 bytes there is none."""

    def __init__(self, disk: Disk, path: str, byte_count: int) -> None:
        self._disk = disk
        self._path = path
        self.byte_count = byte_count
        self.held_bytes = 0
        """What it has now; may be read by any thread."""
        self.is_lacking = False
        """The disk had no room for all of it when it was last tried, or some was given up."""

    def load(self) -> None:
        """Take up what an earlier process has left; a larger file gives back what it has more.

        A copy of it may be of holes, which are filled, or it goes: it would give up nothing.
        """
        disk, path = self._disk, self._path
        with suppress(OSError):  # then it is made anew, or there is none
            if disk.is_file(path):
                held = min(disk.size(path), self.byte_count)
                if disk.size(path) > held:
                    self._cut(held)
                if held and not self._fill_holes(held):
                    held = 0
                    self._cut(held)
                self.held_bytes = held
        self.is_lacking = self.held_bytes < self.byte_count

    def fill(self) -> bool:
        """Make it whole; False: the disk is full. What it refuses otherwise is no reason to stop.

        Blocks are allocated and not written, where the file system can do that.
        """
        disk, path = self._disk, self._path
        if self.held_bytes >= self.byte_count:
            self.is_lacking = False
            return True
        try:
            file = disk.open(path, create=True)
            try:
                file.allocate(self.byte_count)
            finally:
                file.close()
        except OSError as error:
            with suppress(OSError):  # some file systems have taken a part of it
                self._cut(self.held_bytes)
            self.is_lacking = is_disk_full(error)
            return not self.is_lacking
        self.held_bytes = self.byte_count
        self.is_lacking = False
        return True

    def give_up(self) -> bool:
        """Let go of a piece; False: there is nothing left, or the disk does not take it back."""
        if not self.held_bytes:
            return False
        piece = max(self.byte_count // _PIECES, 1)
        left = max(self.held_bytes - piece, 0)
        self.is_lacking = True
        self.held_bytes = left  # first: an interrupt may come, and fill() looks at nothing else
        with suppress(OSError):
            self._cut(left)
        return True

    def _fill_holes(self, byte_count: int) -> bool:
        """See that the disk has so many bytes for it; False: it is full."""
        file = self._disk.open(self._path)
        try:
            file.allocate(byte_count)
        except OSError as error:
            return not is_disk_full(error)
        finally:
            file.close()
        return True

    def _cut(self, byte_count: int) -> None:
        if not byte_count:
            self._disk.unlink(self._path)
            return
        file = self._disk.open(self._path)
        try:
            file.truncate(byte_count)
        finally:
            file.close()
