"""LogFiles: the files of a file log: begun with zeros, listed, dropped, kept as spares.

A file is named by its number ("00000007.log"), a number is used once. Files are pre-zeroed so that
a write to the log changes no length and needs no space. Order of effects: content and name durable
→ listed → written to; and for the end: dropped from the list → renamed or removed. Names found in
the directory that the list does not have are therefore free to reuse, once replay has proved the
list whole (storage's manifest may be damaged: engine/maintenance/leftovers.py). A spare is reused
without zeroing: every frame carries its file's number and id, so old ones do not count.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from bookie.runtime.interfaces import DISK_FULL, Disk, File
from herdpy.model.lsn import Lsn

_BLOCK_BYTES = 4096
_ZEROS_BYTES = 1024 * 1024
_SPARES_MAX = 2  # each of max_file_bytes at the most
_NAME = re.compile(r"(spare-)?(\d{8,})\.log")


def numbered_files(disk: Disk, directory: str) -> list[tuple[int, str]]:
    """Return (number, path) of every log file and spare in a directory; other entries stay out."""
    found: list[tuple[int, str]] = []
    for name in disk.list(directory) if disk.exists(directory) else []:
        match = _NAME.fullmatch(name)
        path = f"{directory}/{name}"
        if match and disk.is_file(path):
            found.append((int(match[2]), path))
    return found


class LogFileListing(Protocol):
    """The durable list of log files; the manifest keeps it. Durable on return.

    Repeating a call has no further effect, and dropping a number that is not listed none at all:
    an interrupt or an OSError may hide whether a call came through.
    """

    def new_file_id(self) -> bytes:
        """Return an id for a new file: 16 random bytes, or none where files have none."""
        ...

    def log_file_begun(
        self, number: int, first_sequence: int, byte_count: int, file_id: bytes
    ) -> None:
        """Add a file of byte_count bytes; every frame before first_sequence is durable.

        None of those frames is in it. The file never becomes shorter.
        """
        ...

    def log_files_dropped(self, numbers: Sequence[int]) -> None: ...

    def log_ended(self, sequence: int) -> None:
        """Note that every frame up to here is durable, so that losing the end of the log shows."""
        ...

    def harden(self) -> None:
        """Make the list durable as it was read: replay has proved it, and now it is acted upon."""
        ...

    def take_over(self, stop: Callable[[], object]) -> None:
        """Stop the handle that took the list before, by the function that it gave then."""
        ...


class LogFile:
    """One listed file; byte_count is set once it was read or made, handle if it is written to.

    Every frame in it carries `stamp`, its number, so that those of an earlier use do not count.
    """

    __slots__ = (
        "byte_count",
        "file_id",
        "first_sequence",
        "handle",
        "last_lsn",
        "number",
        "path",
        "stamp",
    )

    def __init__(self, directory: str, number: int, first_sequence: int, file_id: bytes) -> None:
        self.number = self.stamp = number
        self.file_id = file_id
        self.path = f"{directory}/{number:08d}.log"
        self.first_sequence = first_sequence
        self.byte_count = 0
        self.handle: File | None = None
        self.last_lsn: Lsn | None = None  # of the last frame in it; None: no frame

    def close(self) -> None:
        if self.handle is not None:
            self.handle.close()


class LogFiles:
    """One thread at a time (FileLog's lock for files), reads of `files` by any."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        listing: LogFileListing,
        files: Iterable[tuple[int, int, bytes]],
        *,
        first_file_bytes: int,
        max_file_bytes: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.listing = listing
        self._file_bytes = first_file_bytes
        self._max_file_bytes = max_file_bytes
        self._spare_bytes_max = max_file_bytes + -max_file_bytes % _BLOCK_BYTES
        self.files = [LogFile(directory, *listed) for listed in sorted(files)]
        """All that may be listed, by number; replaced, never changed in place."""
        found = disk.list(directory) if disk.exists(directory) else []
        names = [_NAME.fullmatch(name) for name in found]
        numbers = [int(match[2]) for match in names if match] + [f.number for f in self.files]
        self._next_number = max(numbers, default=0) + 1
        self._spares: list[tuple[str, int]] = []  # path, bytes
        self._made: LogFile | None = None  # begun, but perhaps not listed or not handed out

    def adopt_leftovers(self) -> None:
        """Make spares of what is not listed; behind harden(), when the list has proved right."""
        self._spares = []
        listed = {file.path for file in self.files}
        for number, path in numbered_files(self._disk, self._directory):
            if path not in listed:
                self._retire(path, number)

    def begin(
        self, bytes_min: int, first_sequence: int, *, bytes_max: int | None = None
    ) -> LogFile:
        """Make, list and return a file of at least bytes_min; OSError: try again later.

        A new one has no more than bytes_max, or bytes_min. A file that was made but could not be
        listed is kept for the next try. When the disk is full the file is as small as it must be;
        the next ones grow again from there.
        """
        if self._made is None or self._made.byte_count < bytes_min:
            self._made = self._make(bytes_min, first_sequence, bytes_max)
            self._file_bytes = min(2 * self._made.byte_count, self._max_file_bytes)
        file = self._made
        if file not in self.files:
            self.files = [*self.files, file]
        self.listing.log_file_begun(file.number, file.first_sequence, file.byte_count, file.file_id)
        self._made = None
        return file

    def _make(self, bytes_min: int, first_sequence: int, bytes_max: int | None) -> LogFile:
        """Return a new file of the wanted length; on a full disk a spare or a smaller one."""
        least = bytes_min + -bytes_min % _BLOCK_BYTES
        wanted = max(self._file_bytes + -self._file_bytes % _BLOCK_BYTES, least)
        if bytes_max is not None:
            wanted = max(min(wanted, bytes_max & -_BLOCK_BYTES), least)
        while True:
            try:
                file = self._make_of(wanted, first_sequence)
                break
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                if any(spare_bytes >= least for _, spare_bytes in self._spares):
                    return self._make_of(least, first_sequence)
                if wanted == least:
                    self._file_bytes = least  # the next try asks for no more at once
                    raise
            wanted = max(wanted // 2 & -_BLOCK_BYTES, least)
        for spare, spare_bytes in list(self._spares):
            if spare_bytes < file.byte_count:  # the next file is not going to be smaller
                self._spares.remove((spare, spare_bytes))
                with suppress(OSError):  # a leftover goes at the next open
                    self._disk.unlink(spare)
        return file

    def _make_of(self, byte_count: int, first_sequence: int) -> LogFile:
        """Make a file out of the largest spare that is long enough, else a new one."""
        file_id = self.listing.new_file_id()
        file = LogFile(self._directory, self._next_number, first_sequence, file_id)
        self._next_number += 1
        try:
            spare, spare_bytes = max(self._spares, key=lambda item: item[1], default=("", 0))
            if spare and spare_bytes >= byte_count:
                self._spares.remove((spare, spare_bytes))
                self._disk.rename(spare, file.path)
                file.handle = self._disk.open(file.path)
                file.handle.allocate(spare_bytes)  # a copy of it may have holes
            else:
                file.handle = self._disk.open(file.path, create=True, exclusive=True)
                # First: a full disk says so here, before anything is written.
                file.handle.allocate(byte_count)
                for offset in range(0, byte_count, _ZEROS_BYTES):
                    file.handle.write_at(offset, bytes(min(_ZEROS_BYTES, byte_count - offset)))
            file.handle.sync()
            self._disk.sync_directory(self._directory)
            file.byte_count = file.handle.size()
        except BaseException:
            file.close()
            with suppress(OSError):  # a leftover goes at the next open
                self._disk.unlink(file.path)
            raise
        return file

    def free_spares(self) -> bool:
        """Remove the spares; False: there were none."""
        spares, self._spares = self._spares, []
        for path, _ in spares:
            with suppress(OSError):  # a leftover goes at the next open
                self._disk.unlink(path)
        return bool(spares)

    def drop(self, dropped: Sequence[LogFile]) -> None:
        """Take files off the list, then off the disk."""
        if not dropped:
            return
        self.listing.log_files_dropped([file.number for file in dropped])
        self.files = [file for file in self.files if file not in dropped]
        for file in dropped:
            file.close()
            with suppress(OSError):  # a leftover goes at the next open
                self._retire(file.path, file.number)

    def _retire(self, path: str, number: int) -> None:
        spare = f"{self._directory}/spare-{number:08d}.log"
        # One that a long statement has made is not kept: most never need it.
        byte_count = self._disk.size(path)
        if len(self._spares) >= _SPARES_MAX or byte_count > self._spare_bytes_max:
            self._disk.unlink(path)
            return
        if path != spare:
            self._disk.rename(path, spare)
        self._spares.append((spare, byte_count))

    def close(self) -> None:
        for file in self.files:
            file.close()
