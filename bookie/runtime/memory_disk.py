"""MemoryDisk: a Disk in memory, for ":memory:" databases; what is written is durable at once.

Any thread may call; one mutex guards the names, and every change of a content is one assignment.
"""

import errno

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import BytesLike, DiskLockedError
from bookie.runtime.mapping import ViewMapping
from bookie.runtime.paths import check_path, os_error, parent_of

_CAPACITY_BYTES = 1 << 40  # what space() says; nothing enforces it


class _Node:
    """The content of one file: a bytearray, or bytes while it is mapped (copied on write)."""

    __slots__ = ("content",)

    def __init__(self) -> None:
        self.content: bytearray | bytes = bytearray()

    def writable(self) -> bytearray:
        content = self.content
        if isinstance(content, bytes):
            content = self.content = bytearray(content)
        return content


class MemoryFile:
    """File over a bytearray; it stays usable after unlink, as POSIX has it."""

    __slots__ = ("_node", "_path")

    def __init__(self, node: _Node, path: str) -> None:
        self._node: _Node | None = node
        self._path = path

    def _open_node(self) -> _Node:
        if self._node is None:
            raise os_error(errno.EBADF, self._path)
        return self._node

    @property
    def path(self) -> str:
        return self._path

    def write_at(self, offset: int, data: BytesLike) -> None:
        if offset < 0:
            raise os_error(errno.EINVAL, self._path)
        content = self._open_node().writable()
        data = memoryview(data).cast("B")
        if not data:
            return
        if len(content) < offset:
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data

    def read_at(self, offset: int, byte_count: int) -> bytes:
        content = self._open_node().content
        if offset < 0 or byte_count < 0:
            raise os_error(errno.EINVAL, self._path)
        with memoryview(content) as view:  # slicing the content itself would copy twice
            return bytes(view[offset : offset + byte_count])

    def size(self) -> int:
        return len(self._open_node().content)

    def sync(self) -> None:
        self._open_node()

    def truncate(self, size: int) -> None:
        if size < 0:
            raise os_error(errno.EINVAL, self._path)
        content = self._open_node().writable()
        if size < len(content):
            del content[size:]
        else:
            content.extend(bytes(size - len(content)))

    def allocate(self, size: int) -> None:
        if size < 0 or size > self.size():
            self.truncate(size)

    def release_cache(self, offset: int, byte_count: int) -> None:
        del offset, byte_count
        self._open_node()

    def close(self) -> None:
        self._node = None


class MemoryDirectoryLock:
    """DirectoryLock within one MemoryDisk."""

    __slots__ = ("_owners", "_path")

    def __init__(self, owners: dict[str, str], path: str) -> None:
        self._path = path
        self._owners: dict[str, str] | None = owners

    def close(self) -> None:
        owners = getattr(self, "_owners", None)  # an interrupted __init__ did not set it
        if owners is not None:
            owners.pop(self._path, None)
            self._owners = None  # last, so that an interrupted close() can be repeated

    def __del__(self) -> None:
        self.close()  # an interrupted lock() may have lost it


class MemoryDisk:
    """Disk over dictionaries; the root exists from the start."""

    __slots__ = ("_directories", "_files", "_mutex", "_owners")

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._files: dict[str, _Node] = {}
        self._directories: set[str] = {""}
        self._owners: dict[str, str] = {}

    def _check_parent(self, path: str) -> None:
        parent = parent_of(path)
        if parent not in self._directories:
            raise os_error(errno.ENOTDIR if parent in self._files else errno.ENOENT, path)

    def _node(self, path: str) -> _Node:
        node = self._files.get(check_path(path))
        if node is None:
            if path in self._directories:
                raise os_error(errno.EISDIR, path)
            self._check_parent(path)
            raise os_error(errno.ENOENT, path)
        return node

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> MemoryFile:
        with self._mutex:
            if check_path(path) in self._directories:
                raise os_error(errno.EEXIST if exclusive else errno.EISDIR, path)
            if path in self._files:
                if exclusive:
                    raise os_error(errno.EEXIST, path)
            elif create or exclusive:
                self._check_parent(path)
                self._files[path] = _Node()
            return MemoryFile(self._node(path), path)

    def map(self, path: str, byte_count: int) -> ViewMapping:
        with self._mutex:
            node = self._node(path)
            content = node.content
            if not 0 <= byte_count <= len(content):
                raise ValueError(f"map {path}: expected {byte_count} bytes, found {len(content)}")
            # A bytearray with views cannot grow; bytes are shared by all mappings of the file.
            frozen = node.content = bytes(content)
            return ViewMapping(memoryview(frozen)[:byte_count])

    def read(self, path: str) -> bytes:
        with self._mutex:
            return bytes(self._node(path).content)

    def exists(self, path: str) -> bool:
        return check_path(path) in self._files or path in self._directories

    def is_file(self, path: str) -> bool:
        return check_path(path) in self._files

    def size(self, path: str) -> int:
        with self._mutex:
            return len(self._node(path).content)

    def list(self, path: str) -> list[str]:
        with self._mutex:
            if check_path(path) not in self._directories:
                raise os_error(errno.ENOTDIR if path in self._files else errno.ENOENT, path)
            paths = [*self._files, *self._directories]
            return sorted(p.rpartition("/")[2] for p in paths if p and parent_of(p) == path)

    def make_directory(self, path: str) -> None:
        with self._mutex:
            if check_path(path) in self._directories or path in self._files:
                raise os_error(errno.EEXIST, path)
            self._check_parent(path)
            self._directories.add(path)

    def rename(self, source: str, target: str) -> None:
        with self._mutex:
            check_path(target)
            node = self._node(source)
            if target in self._directories:
                raise os_error(errno.EISDIR, target)
            self._check_parent(target)
            if source != target:
                self._files[target] = node
                del self._files[source]

    def unlink(self, path: str) -> None:
        with self._mutex:
            self._node(path)
            del self._files[path]

    def remove_directory(self, path: str) -> None:
        with self._mutex:
            if check_path(path) not in self._directories:
                raise os_error(errno.ENOTDIR if path in self._files else errno.ENOENT, path)
            if any(parent_of(name) == path for name in (*self._directories, *self._files) if name):
                raise os_error(errno.ENOTEMPTY, path)
            self._directories.discard(path)

    def sync_directory(self, path: str) -> None:
        if check_path(path) not in self._directories:
            raise os_error(errno.ENOTDIR if path in self._files else errno.ENOENT, path)

    def space(self) -> tuple[int, int]:
        with self._mutex:
            used = sum(len(node.content) for node in self._files.values())
        return _CAPACITY_BYTES, max(0, _CAPACITY_BYTES - used)

    def lock(self, path: str, owner: str) -> MemoryDirectoryLock:
        file = self.open(path, create=True)
        with self._mutex:
            folder = parent_of(path)
            if folder in self._owners:
                raise DiskLockedError(path, self._owners[folder])
            file.truncate(0)
            file.write_at(0, owner.encode())
            lock = MemoryDirectoryLock(self._owners, folder)
            try:
                self._owners[folder] = owner
                return lock
            except BaseException:  # an interrupt: the caller has nothing to close
                lock.close()
                raise
