"""ReadOnlyDisk: another Disk, of which nothing can be changed: every attempt is EROFS.

Files are read through mappings, so that a device that is mounted read-only will do. Any thread.
"""

from errno import EROFS
from typing import Any, NoReturn

from bookie.runtime.interfaces import Disk, Mapping
from bookie.runtime.paths import os_error


def _refused(on: Any, *given: Any, **_: object) -> NoReturn:
    raise os_error(EROFS, on.path if isinstance(on, ReadOnlyFile) else given[0])


class ReadOnlyFile:
    """File over a mapping of what the file was when it was opened."""

    def __init__(self, path: str, mapping: Mapping) -> None:
        self.path = path
        self._mapping = mapping

    def read_at(self, offset: int, byte_count: int) -> bytes:
        return bytes(self._mapping.view[offset : offset + byte_count])

    def size(self) -> int:
        return len(self._mapping.view)

    write_at = sync = truncate = allocate = _refused

    def release_cache(self, offset: int, byte_count: int) -> None:
        """Nothing to do: the cache is the mapping's."""

    def close(self) -> None:
        self._mapping.close()


class ReadOnlyDisk:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.map = disk.map
        self.read = disk.read
        self.exists = disk.exists
        self.is_file = disk.is_file
        self.size = disk.size
        self.list = disk.list
        self.space = disk.space

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> ReadOnlyFile:
        if create or exclusive:
            raise os_error(EROFS, path)
        return ReadOnlyFile(path, self._disk.map(path, self._disk.size(path)))

    make_directory = rename = unlink = remove_directory = sync_directory = lock = _refused
