"""ReadOnlyDisk: another Disk, of which nothing can be changed: every attempt is EROFS.

Files are read through mappings, so that a device that is mounted read-only will do. Any thread.
"""

from errno import EROFS
from typing import NoReturn

from bookie.runtime.interfaces import BytesLike, Disk, Mapping
from bookie.runtime.paths import os_error


class ReadOnlyFile:
    """File over a mapping of what the file was when it was opened."""

    def __init__(self, path: str, mapping: Mapping) -> None:
        self._path = path
        self._mapping = mapping

    @property
    def path(self) -> str:
        return self._path

    def read_at(self, offset: int, byte_count: int) -> bytes:
        return bytes(self._mapping.view[offset : offset + byte_count])

    def size(self) -> int:
        return len(self._mapping.view)

    def write_at(self, offset: int, data: BytesLike) -> NoReturn:
        raise os_error(EROFS, self._path)

    def sync(self) -> NoReturn:
        raise os_error(EROFS, self._path)

    def truncate(self, size: int) -> NoReturn:
        raise os_error(EROFS, self._path)

    def allocate(self, size: int) -> NoReturn:
        raise os_error(EROFS, self._path)

    def release_cache(self, offset: int, byte_count: int) -> None:
        """Nothing to do: the cache is the mapping's."""

    def close(self) -> None:
        self._mapping.close()


class ReadOnlyDisk:
    """See the module."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> ReadOnlyFile:
        if create or exclusive:
            raise os_error(EROFS, path)
        return ReadOnlyFile(path, self._disk.map(path, self._disk.size(path)))

    def map(self, path: str, byte_count: int) -> Mapping:
        return self._disk.map(path, byte_count)

    def read(self, path: str) -> bytes:
        return self._disk.read(path)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def is_file(self, path: str) -> bool:
        return self._disk.is_file(path)

    def size(self, path: str) -> int:
        return self._disk.size(path)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def space(self) -> tuple[int, int]:
        return self._disk.space()

    def make_directory(self, path: str) -> NoReturn:
        raise os_error(EROFS, path)

    def rename(self, source: str, target: str) -> NoReturn:
        raise os_error(EROFS, source)

    def unlink(self, path: str) -> NoReturn:
        raise os_error(EROFS, path)

    def sync_directory(self, path: str) -> NoReturn:
        raise os_error(EROFS, path)

    def lock(self, path: str, owner: str) -> NoReturn:
        raise os_error(EROFS, path)
