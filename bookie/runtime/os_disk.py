"""OsDisk: a directory of the operating system as a Disk.

Real write() and no buffer of our own, so that a trace of system calls shows the order that the
log relies on. What it makes is its owner's only, whatever the umask: files 0600, directories 0700.
Durable means fdatasync on Linux (it flushes the length too, when that changed) and
F_FULLFSYNC on macOS, where fsync stops at the drive's cache. Windows is refused: it has no fsync
of directories. Handles are closed by their owners; a forgotten one gives a ResourceWarning.
"""

import errno
import io
import mmap
import os
import stat
import sys
import warnings
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from bookie.runtime.interfaces import DISK_FULL, BytesLike, DiskLockedError
from bookie.runtime.mapping import ViewMapping
from bookie.runtime.paths import check_path, os_error

if sys.platform != "win32":
    import fcntl

_OWNER_BYTES_MAX = 4096
_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_NOT_WRITABLE = (errno.ENOENT, errno.EROFS, errno.EACCES, errno.EPERM)
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ZEROS = memoryview(bytes(1024 * 1024))
_BLOCK_BYTES = 512
"""The unit of st_blocks, whatever the file system has."""
# Python 3.13 can map without keeping a descriptor open per mapping; older ones keep one.
_MAP_OPTIONS = {"trackfd": False} if sys.version_info >= (3, 13) else {}


def _size_of(found: os.stat_result, path: str) -> int:
    """Return a file's length; EISDIR for a directory, which has one of its own."""
    if stat.S_ISDIR(found.st_mode):
        raise os_error(errno.EISDIR, path)
    return found.st_size


def _sync_descriptor(descriptor: int) -> None:
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            # Network and some foreign file systems do not know the call; fsync is their strongest.
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(descriptor)
    elif sys.platform == "linux":
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


class OsFile:
    """File over a descriptor."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    def write_at(self, offset: int, data: BytesLike) -> None:
        rest = memoryview(data).cast("B")
        while True:
            written = os.pwrite(self._descriptor, rest, offset)
            if written == len(rest):
                return
            if written == 0:
                raise OSError(errno.EIO, "the system wrote no byte and gave no reason", self._path)
            offset += written
            rest = rest[written:]

    def read_at(self, offset: int, byte_count: int) -> bytes:
        data = os.pread(self._descriptor, byte_count, offset)
        if len(data) == byte_count or not data:
            return data
        chunks = [data]
        found = len(data)
        while found < byte_count:
            data = os.pread(self._descriptor, byte_count - found, offset + found)
            if not data:
                break
            chunks.append(data)
            found += len(data)
        return b"".join(chunks)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        if self._descriptor < 0:  # the other calls say so by themselves
            raise os_error(errno.EBADF, self._path)
        _sync_descriptor(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def allocate(self, size: int) -> None:
        start = self.size()
        if size < 0:
            raise os_error(errno.EINVAL, self._path)
        # What copied the file may have left holes where it had zeros.
        has_holes = size <= start and os.fstat(self._descriptor).st_blocks * _BLOCK_BYTES < size
        if size <= start and not has_holes:
            return
        if sys.platform == "linux":
            try:
                first = 0 if has_holes else start
                os.posix_fallocate(self._descriptor, first, size - first)
                return
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
        while start < size:
            count = min(size - start, len(_ZEROS))
            self.write_at(start, _ZEROS[:count])
            start += count

    def release_cache(self, offset: int, byte_count: int) -> None:
        if sys.platform == "linux":
            os.posix_fadvise(self._descriptor, offset, byte_count, os.POSIX_FADV_DONTNEED)
        elif self._descriptor < 0:
            raise os_error(errno.EBADF, self._path)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            warnings.warn(f"unclosed file {self._path!r}", ResourceWarning, stacklevel=2)
            self.close()


class _OsReadOnlyFile(OsFile):
    """A file of a file system that is, or has become, read-only; it can be read as before."""

    __slots__ = ()

    def write_at(self, offset: int, data: BytesLike) -> None:
        del offset, data
        raise os_error(errno.EROFS, self._path)

    def truncate(self, size: int) -> None:
        del size
        raise os_error(errno.EROFS, self._path)

    def allocate(self, size: int) -> None:
        del size
        raise os_error(errno.EROFS, self._path)


class OsDirectoryLock:
    """DirectoryLock over flock, which ends with the last descriptor of what was opened for it."""

    __slots__ = ("__weakref__", "_directory", "file")

    def __init__(self, directory: "_Closable | None") -> None:
        self._directory = directory
        self.file: io.FileIO | None = None
        """The file in it that says who has it, once that is open; set once."""
        _locks.add(self)

    def close(self) -> None:
        # No LOCK_UN: in a fork()ed child that would give away the parent's lock. Each closes in
        # one step and once, so an interrupt leaves it closed or open, and repeating does no harm.
        for each in (self.file, self._directory):
            if each is not None:
                each.close()


class _Closable(Protocol):
    def close(self) -> None: ...


_locks: weakref.WeakSet[OsDirectoryLock] = weakref.WeakSet()


def _close_inherited_locks() -> None:
    """In a fork()ed child: let go, so that the lock ends with the parent."""
    for lock in list(_locks):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited_locks)


class OsDisk:
    """Disk over the directory `root`, which make_directory("") creates if it is missing."""

    __slots__ = ("_root",)

    def __init__(self, root: str | os.PathLike[str]) -> None:
        if sys.platform == "win32":
            raise NotImplementedError(
                "herdpy does not run on Windows yet: directories cannot be made durable there; "
                "use Linux, macOS or WSL 2"
            )
        # Resolved once: the program may change its working directory later.
        self._root = Path(root).resolve()

    def _at(self, path: str) -> Path:
        return self._root / check_path(path)

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC
        if create or exclusive:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        try:
            return OsFile(os.open(self._at(path), flags, _FILE_MODE), path)
        except OSError as error:
            if error.errno != errno.EROFS or create or exclusive:
                raise
        return _OsReadOnlyFile(os.open(self._at(path), os.O_RDONLY | os.O_CLOEXEC), path)

    def map(self, path: str, byte_count: int) -> ViewMapping:
        descriptor = os.open(self._at(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Touching a mapped page behind the end of the file would kill the process (SIGBUS).
            size = _size_of(os.fstat(descriptor), path)
            if not 0 <= byte_count <= size:
                raise ValueError(f"map {path}: expected {byte_count} bytes, found {size}")
            if byte_count == 0:  # mmap takes 0 for "the whole file" and refuses an empty one
                return ViewMapping(memoryview(b""))
            mapped = mmap.mmap(descriptor, byte_count, access=mmap.ACCESS_READ, **_MAP_OPTIONS)
            return ViewMapping(memoryview(mapped))
        finally:
            os.close(descriptor)

    def read(self, path: str) -> bytes:
        return self._at(path).read_bytes()

    def exists(self, path: str) -> bool:
        try:
            self._at(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_file(self, path: str) -> bool:
        try:
            return stat.S_ISREG(self._at(path).lstat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def size(self, path: str) -> int:
        return _size_of(self._at(path).stat(), path)

    def list(self, path: str) -> list[str]:
        return sorted(entry.name for entry in self._at(path).iterdir())

    def make_directory(self, path: str) -> None:
        self._at(path).mkdir(mode=_DIRECTORY_MODE)
        if path == "":  # no path of this Disk names the root's parent
            self._sync_directory(self._root.parent)

    def rename(self, source: str, target: str) -> None:
        self._at(source).replace(self._at(target))

    def unlink(self, path: str) -> None:
        self._at(path).unlink()

    def remove_directory(self, path: str) -> None:
        self._at(path).rmdir()

    def sync_directory(self, path: str) -> None:
        self._sync_directory(self._at(path))

    @staticmethod
    def _sync_directory(directory: Path) -> None:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if sys.platform == "darwin":
                _sync_descriptor(descriptor)
            else:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def space(self) -> tuple[int, int]:
        found = os.statvfs(self._root)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def lock(self, path: str, owner: str) -> OsDirectoryLock:
        lock, descriptor = self._lock(path, os.O_CREAT)
        try:
            # Only now is the file ours to change: a loser must read which process holds it.
            data = owner.encode()[:_OWNER_BYTES_MAX]
            try:
                os.pwrite(descriptor, data, 0)
                os.ftruncate(descriptor, len(data))
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                with suppress(OSError):  # the lock counts, though it does not say whose it is
                    os.ftruncate(descriptor, 0)
        except BaseException:
            lock.close()
            raise
        return lock

    def hold(self, path: str) -> OsDirectoryLock:
        """Lock as lock() does, and change nothing; the file may be missing, or not ours to write.

        Where nothing can be written no other process could lock it either.
        """
        try:
            return self._lock(path, 0)[0]
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
        return OsDirectoryLock(self._lock_directory(path))

    def _lock(self, path: str, flags: int) -> tuple[OsDirectoryLock, int]:
        lock = OsDirectoryLock(self._lock_directory(path))
        flags |= os.O_RDWR | os.O_CLOEXEC
        try:
            lock.file = io.FileIO(os.open(self._at(path), flags, _FILE_MODE), "r+")
            descriptor = lock.file.fileno()
            self._take(descriptor, path)
            return lock, descriptor
        except BaseException:
            lock.close()
            raise

    def _lock_directory(self, path: str) -> "_Closable | None":
        """Lock the directory of a lock's file, which a user may take for stale and remove.

        None: this file system has no locks for directories (NFS); then the file's has to do.
        """
        descriptor = os.open(self._at(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._take(descriptor, path)
            return os.scandir(descriptor)  # keeps it open, and closes in one step: see close()
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int, path: str) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = b""
            with suppress(OSError), self._at(path).open("rb") as file:
                text = file.read(_OWNER_BYTES_MAX)
            raise DiskLockedError(path, text.decode(errors="replace")) from None

    def open_to_others(self, path: str = "") -> Iterator[tuple[str, int]]:
        """Yield the files below a directory that others than the owner reach, and their modes.

        Directories only when others may change them; nothing below one that they cannot enter.
        """
        for name in self.list(path):
            below = f"{path}/{name}" if path else name
            found = self._at(below).lstat().st_mode
            is_directory, mode = stat.S_ISDIR(found), stat.S_IMODE(found)
            if stat.S_ISLNK(found) or not mode & _OF_OTHERS:
                continue
            if not is_directory or mode & _WRITTEN_BY_OTHERS:
                yield below, mode
            if is_directory:
                yield from self.open_to_others(below)
