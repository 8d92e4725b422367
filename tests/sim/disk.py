"""SimulatedDisk: a Disk in memory that loses, at a crash, what POSIX allows it to lose.

The same seed and the same calls give the same disk. The model, on purpose harsher than most real
file systems:

- A file has a cached content (what reads see), a durable content, and the unsynced changes between
  them. sync() makes them durable. A crash keeps any of them: none, all, the first few with the
  last one torn, or each one by a throw of the dice, whole, torn at a byte or a sector, or with
  sectors missing in the middle. The length may be that after any of the writes, whatever became
  of their bytes (unwritten bytes read as zeros).
- Names are made durable by sync_directory() alone, so a file whose content was synced may vanish.
  A crash keeps a prefix or a subset of the unsynced name changes; changes of one name keep their
  order, and a rename happens wholly or not at all.
- After a failed sync the unsynced changes are partly lost for good, though reads still show them
  and a later sync reports success (what Linux does; hence "never retry an fsync").
- A write without room (capacity_bytes) or with a fault may have written a first part.

Every call that changes the disk is a *step*, numbered from 1: open of a missing file, write_at,
sync, truncate, allocate, make_directory, rename, unlink, remove_directory, sync_directory.
`crash_at = n` ends the world in step n: with even odds before or after its effect, SimulatedCrash
is raised by it and by every later call, until restart() (or crash(), at any moment) gives the disk
that the next process finds. Handles of the old one then raise EBADF. close() never raises.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from errno import EBADF, EEXIST, EINVAL, EIO, EISDIR, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY
from itertools import pairwise
from typing import NamedTuple, TypeVar

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import BytesLike, DiskLockedError
from bookie.runtime.mapping import ViewMapping
from bookie.runtime.paths import check_path, os_error, parent_of

T = TypeVar("T")

SECTOR_BYTES = 512

_FILE_STEPS = frozenset(["open", "write", "sync", "truncate", "allocate"])
STEPS = _FILE_STEPS | {
    "make_directory", "rename", "unlink", "remove_directory", "sync_directory",
}  # fmt: skip
KINDS = STEPS | {"read", "map"}


class SimulatedCrash(BaseException):
    """The power failed in this step, or earlier; not an Exception, so that no handler takes it."""


class _Change(NamedTuple):
    """A write of `byte_count` bytes (data None: zeros), or a truncation to offset (-1 bytes)."""

    offset: int
    byte_count: int
    data: bytes | None

    def size_after(self, size: int) -> int:
        if self.byte_count < 0:
            return self.offset
        return max(size, self.offset + self.byte_count)

    def part(self, start: int, stop: int) -> "_Change":
        data = None if self.data is None else self.data[start:stop]
        return _Change(self.offset + start, stop - start, data)


class _Content:
    """The bytes of a file: `data`, followed by zeros up to `size`, so that zero-fill is free."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytes | bytearray = b"", size: int = 0) -> None:
        self.data = bytearray(data)
        self.size = size

    def copy(self) -> "_Content":
        return _Content(self.data, self.size)

    def resize(self, size: int) -> None:
        del self.data[size:]
        self.size = size

    def apply(self, change: _Change) -> None:
        offset, byte_count, data = change
        if byte_count < 0:
            self.resize(offset)
            return
        end = offset + byte_count
        stored = len(self.data)
        if data is not None:
            if stored < offset:
                self.data.extend(bytes(offset - stored))
            self.data[offset:end] = data
        elif offset < stored:
            stop = min(end, stored)
            self.data[offset:stop] = bytes(stop - offset)
        if end > self.size:
            self.size = end

    def read(self, offset: int, byte_count: int) -> bytes:
        byte_count = min(byte_count, self.size - offset)
        if byte_count <= 0:
            return b""
        with memoryview(self.data) as view:
            found = bytes(view[offset : offset + byte_count])
        return found if len(found) == byte_count else found + bytes(byte_count - len(found))


class _Node:
    """A file, independent of its names."""

    __slots__ = ("cached", "durable", "unsynced")

    def __init__(self, content: _Content | None = None) -> None:
        self.cached = content or _Content()
        self.durable = self.cached.copy()
        self.unsynced: list[_Change] = []

    def copy(self) -> "_Node":
        other = _Node(self.cached.copy())
        other.durable = self.durable.copy()
        other.unsynced = self.unsynced.copy()
        return other

    def apply(self, change: _Change) -> None:
        self.cached.apply(change)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            self.durable.apply(change)
        self.unsynced.clear()

    def fail_sync(self, rng: random.Random) -> None:
        self.durable = self.survivor(rng)
        self.unsynced.clear()

    def survivor(self, rng: random.Random) -> _Content:
        """Return what a power loss leaves of the content."""
        content = self.durable.copy()
        if not self.unsynced:
            return content
        sizes = [content.size]
        mode = rng.choice(("none", "all", "prefix", "prefix", "each", "each"))
        kept = rng.randrange(len(self.unsynced)) if mode == "prefix" else -1
        for index, change in enumerate(self.unsynced):
            sizes.append(change.size_after(sizes[-1]))
            if mode == "all" or index < kept:
                content.apply(change)
            elif mode == "each" or index == kept:
                for part in _tear(rng, change):
                    content.apply(part)
        # A truncation moves the length with the bytes; a write may leave only one of the two.
        has_truncation = any(change.byte_count < 0 for change in self.unsynced)
        if mode in ("prefix", "each") and not has_truncation and rng.random() < 0.5:
            content.resize(rng.choice(sizes))
        return content


_DIRECTORY = _Node()

# One atomic change of names: each name with its new node, None for removed.
_NameChange = tuple[tuple[str, _Node | None], ...]


def _tear(rng: random.Random, change: _Change) -> list[_Change]:
    """Return the pieces of a change that reached the disk, from nothing to all of it."""
    fate = rng.choice(("lost", "whole", "front", "back", "scattered"))
    if fate == "lost":
        return []
    if fate == "whole" or change.byte_count <= 0:
        return [change]
    if fate == "scattered":
        # At most about 64 pieces, so that a big write costs no more than a small one.
        step = SECTOR_BYTES * (1 + change.byte_count // (64 * SECTOR_BYTES))
        first = step - change.offset % step  # sectors lie at multiples of their size in the file
        cuts = [0, *range(first, change.byte_count, step), change.byte_count]
        return [change.part(a, b) for a, b in pairwise(cuts) if rng.random() < 0.5]
    cut = rng.randrange(change.byte_count + 1)
    if rng.random() < 0.5:
        cut = max(0, cut - (change.offset + cut) % SECTOR_BYTES)
    start, stop = (0, cut) if fate == "front" else (cut, change.byte_count)
    return [change.part(start, stop)]


def _select(
    journal: list[_NameChange], is_wanted: Callable[[int, _NameChange], bool]
) -> tuple[list[_NameChange], list[_NameChange]]:
    """Split into the wanted changes, with all earlier ones of the same names, and the others."""
    kept: list[_NameChange] = []
    others: list[_NameChange] = []
    needed: set[str] = set()
    for index in range(len(journal) - 1, -1, -1):
        change = journal[index]
        names = {name for name, _ in change}
        if is_wanted(index, change) or names & needed:
            needed |= names
            kept.append(change)
        else:
            others.append(change)
    return kept[::-1], others[::-1]


def _rename_all(names: dict[str, _Node], changes: list[_NameChange]) -> None:
    for change in changes:
        for name, node in change:
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


@dataclass(slots=True)
class _Fault:
    kind: str
    code: int
    after: int
    times: int
    path: str


class SimulatedFile:
    """File on a SimulatedDisk."""

    __slots__ = ("_disk", "_node", "_path")

    def __init__(self, disk: "SimulatedDisk", node: _Node, path: str) -> None:
        self._disk = disk
        self._node: _Node | None = node
        self._path = path

    def _open_node(self) -> _Node:
        if self._node is None:
            raise os_error(EBADF, self._path)
        return self._node

    @property
    def path(self) -> str:
        return self._path

    def write_at(self, offset: int, data: BytesLike) -> None:
        node = self._open_node()
        if offset < 0:
            raise os_error(EINVAL, self._path)
        payload = data if isinstance(data, bytes) else bytes(data)
        self._disk._write(node, self._path, offset, payload)

    def read_at(self, offset: int, byte_count: int) -> bytes:
        node = self._open_node()
        if offset < 0 or byte_count < 0:
            raise os_error(EINVAL, self._path)
        return self._disk._look("read", self._path, lambda: node.cached.read(offset, byte_count))

    def size(self) -> int:
        node = self._open_node()
        return self._disk._look("size", self._path, lambda: node.cached.size)

    def sync(self) -> None:
        node = self._open_node()
        disk = self._disk
        disk._step("sync", self._path, node.sync, half=lambda: node.fail_sync(disk._rng))

    def truncate(self, size: int) -> None:
        node = self._open_node()
        if size < 0:
            raise os_error(EINVAL, self._path)
        self._disk._resize("truncate", node, self._path, size)

    def allocate(self, size: int) -> None:
        node = self._open_node()
        if size < 0:
            raise os_error(EINVAL, self._path)
        self._disk._resize("allocate", node, self._path, size)

    def release_cache(self, offset: int, byte_count: int) -> None:
        del offset, byte_count
        self._open_node()

    def close(self) -> None:
        self._node = None
        self._disk._handles.pop(id(self), None)


class SimulatedLock:
    """DirectoryLock on a SimulatedDisk; a crash gives it back."""

    __slots__ = ("_owners", "_path")

    def __init__(self, owners: dict[str, str], path: str) -> None:
        self._owners: dict[str, str] | None = owners
        self._path = path

    def close(self) -> None:
        owners = self._owners
        if owners is not None:
            owners.pop(self._path, None)
            self._owners = None  # last, so that an interrupted close() can be repeated


class SimulatedDisk:
    """See the module. Any thread may call; only a single thread makes the step numbers repeat."""

    def __init__(self, rng_seed: int = 0, *, capacity_bytes: int | None = None) -> None:
        self.step_count = 0
        self.crash_at: int | None = None
        self.capacity_bytes = capacity_bytes  # of the linked files' lengths; None: no limit
        self.trace: list[tuple[str, str, int]] | None = None  # (op, path, bytes); set [] to record
        self.latency: Callable[[str, str], object] | None = None  # before each op, without lock
        self.on_end: Callable[[], object] | None = None  # once crash_at has come, without lock
        self._rng = random.Random(rng_seed)
        self._mutex = new_mutex()
        self._names: dict[str, _Node] = {"": _DIRECTORY}
        self._durable_names: dict[str, _Node] = {"": _DIRECTORY}
        self._journal: list[_NameChange] = []  # unsynced changes of names, in order
        self._owners: dict[str, str] = {}
        self._faults: list[_Fault] = []
        self._handles: dict[int, str] = {}
        self._end: Callable[[str], BaseException] | None = None  # what calls raise, once it is over

    # For tests: faults, crashes, looking inside.

    def fail(
        self, kind: str, errno: int = EIO, *, after: int = 0, times: int = 1, path: str = ""
    ) -> None:
        """Let ops of this kind on paths containing `path` fail: `times` of them, after `after`."""
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r}: expected one of {sorted(KINDS)}")
        self._faults.append(_Fault(kind, errno, after, times, path))

    @property
    def pending_faults(self) -> int:
        """How many of the faults that fail() announced have not come."""
        return sum(fault.times for fault in self._faults)

    def heal(self) -> None:
        """Take back all faults that fail() announced."""
        self._faults.clear()

    def crash(self, seed: int | None = None, *, is_power_lost: bool = True) -> "SimulatedDisk":
        """End the world now and return the disk that the next process finds."""
        return self.restart(seed, is_power_lost=is_power_lost)

    def restart(self, seed: int | None = None, *, is_power_lost: bool = True) -> "SimulatedDisk":
        """Return the disk after the crash; without power loss (kill -9) all writes are there.

        They are there for readers: what was not synced is not durable yet, and a power loss later
        may still take it. May be called again, with other seeds, for other outcomes.
        """
        with self._mutex:
            self._end = lambda path: os_error(EBADF, path)
            rng = random.Random(self._rng.getrandbits(64) if seed is None else seed)
            fresh = SimulatedDisk(rng.getrandbits(64), capacity_bytes=self.capacity_bytes)
            if not is_power_lost:
                self._hand_over(fresh)
                return fresh
            names = dict(self._durable_names)
            _rename_all(names, self._surviving_changes(rng))
            for path in sorted(names):  # a directory sorts before what is in it
                node = names[path]
                if path and parent_of(path) not in fresh._names:
                    continue
                if node is not _DIRECTORY:
                    node = _Node(node.survivor(rng))
                fresh._names[path] = fresh._durable_names[path] = node
            return fresh

    def _hand_over(self, fresh: "SimulatedDisk") -> None:
        """Give copies of everything, page cache and unsynced changes included, to another disk."""
        copies: dict[_Node, _Node] = {_DIRECTORY: _DIRECTORY}

        def copy(node: _Node) -> _Node:
            if node not in copies:
                copies[node] = node.copy()
            return copies[node]

        fresh._names = {path: copy(node) for path, node in self._names.items()}
        fresh._durable_names = {path: copy(node) for path, node in self._durable_names.items()}
        fresh._journal = [
            tuple((name, None if node is None else copy(node)) for name, node in change)
            for change in self._journal
        ]

    def contents(self) -> dict[str, bytes]:
        """Return every file's bytes as a reader sees them, by path."""
        with self._mutex:
            files = sorted(p for p, node in self._names.items() if node is not _DIRECTORY)
            return {p: self._names[p].cached.read(0, self._names[p].cached.size) for p in files}

    def flip(self, path: str, offset: int, mask: int = 0xFF) -> None:
        """Damage one byte at rest (a bit flip that no write caused); not a step."""
        with self._mutex:
            node = self._node(path)
            if not (0 <= offset < node.cached.size and 0 < mask < 256):
                raise ValueError(f"flip {path}: no byte at {offset}, or mask {mask} out of range")
            for content in (node.cached, node.durable):
                if offset < content.size:
                    byte = content.read(offset, 1)[0] ^ mask
                    content.apply(_Change(offset, 1, bytes([byte])))

    @property
    def used_bytes(self) -> int:
        """The lengths of all linked files, which is what counts towards capacity_bytes."""
        with self._mutex:
            return sum(node.cached.size for node in self._names.values())

    @property
    def open_paths(self) -> list[str]:
        """The paths of the handles not yet closed."""
        return sorted(self._handles.values())

    # Inside: one step, one look.

    def _check_alive(self, path: str) -> None:
        if self._end is not None:
            raise self._end(path)

    def _take_fault(self, op: str, path: str) -> OSError | None:
        for fault in self._faults:
            if fault.kind == op and fault.path in path:
                if fault.after > 0:
                    fault.after -= 1
                elif fault.times > 0:
                    fault.times -= 1
                    return os_error(fault.code, path)
        return None

    def _step(
        self,
        op: str,
        path: str,
        effect: Callable[[], T],
        *,
        byte_count: int = 0,
        half: Callable[[], object] | None = None,
    ) -> T:
        """Run effect as the next step; half is what an injected failure leaves."""
        if self.latency is not None:
            self.latency(op, path)
        with self._mutex:
            self._check_alive(path)
            self.step_count += 1
            if self.trace is not None:
                self.trace.append((op, path, byte_count))
            is_last = self.crash_at is not None and self.step_count >= self.crash_at
            if is_last:
                end = SimulatedCrash(f"the power failed in step {self.step_count} ({op} {path})")
                self._end = lambda _: end
                if self._rng.random() < 0.5:
                    try:
                        effect()
                    except OSError:
                        pass
            else:
                error = self._take_fault(op, path) if self._faults else None
                if error is None:
                    return effect()
                if half is not None:
                    half()
                raise error
        # Before it is raised: what waits on its way out would let a machine without power go on.
        if self.on_end is not None:
            self.on_end()
        raise end

    def _look(self, op: str, path: str, effect: Callable[[], T]) -> T:
        """Run effect, which changes nothing, if the disk is alive and no fault is due."""
        if self.latency is not None:
            self.latency(op, path)
        with self._mutex:
            self._check_alive(path)
            error = self._take_fault(op, path) if self._faults else None
            if error is not None:
                raise error
            return effect()

    def _write(self, node: _Node, path: str, offset: int, payload: bytes) -> None:
        byte_count = len(payload)
        # Log files are filled with zeros beforehand: keep the fact, not the bytes.
        is_zeros = byte_count >= SECTOR_BYTES and not payload[0] and payload == bytes(byte_count)
        change = _Change(offset, byte_count, None if is_zeros else payload)

        def effect() -> None:
            room = self._room(node)
            if room is None or offset + byte_count <= room:
                if byte_count:
                    node.apply(change)
                return
            if room > offset:
                node.apply(change.part(0, room - offset))
            raise os_error(ENOSPC, path)

        def half() -> None:
            count = self._rng.randrange(byte_count) if byte_count else 0
            if count:
                node.apply(change.part(0, count))

        self._step("write", path, effect, byte_count=byte_count, half=half)

    def _resize(self, op: str, node: _Node, path: str, size: int) -> None:
        def effect() -> None:
            room = self._room(node)
            if room is not None and size > room:
                raise os_error(ENOSPC, path)
            if op == "truncate" or size > node.cached.size:
                node.apply(_Change(size, -1, None))

        self._step(op, path, effect, byte_count=size)

    def _room(self, node: _Node) -> int | None:
        """Return the length that the file may have at most; None: no limit."""
        if self.capacity_bytes is None:
            return None
        used = sum(other.cached.size for other in self._names.values())
        return node.cached.size + max(0, self.capacity_bytes - used)

    def _surviving_changes(self, rng: random.Random) -> list[_NameChange]:
        if rng.random() < 0.5:
            return self._journal[: rng.randrange(len(self._journal) + 1)]
        dice = [rng.random() < 0.5 for _ in self._journal]
        return _select(self._journal, lambda index, _: dice[index])[0]

    def _commit_names(self, is_wanted: Callable[[int, _NameChange], bool]) -> None:
        kept, self._journal = _select(self._journal, is_wanted)
        _rename_all(self._durable_names, kept)

    def _change_names(self, *change: tuple[str, _Node | None]) -> None:
        self._journal.append(change)
        _rename_all(self._names, [change])

    def _check_parent(self, path: str) -> None:
        parent = self._names.get(parent_of(path))
        if parent is not _DIRECTORY:
            raise os_error(ENOENT if parent is None else ENOTDIR, path)

    def _node(self, path: str) -> _Node:
        node = self._names.get(path)
        if node is None:
            self._check_parent(path)
            raise os_error(ENOENT, path)
        if node is _DIRECTORY:
            raise os_error(EISDIR, path)
        return node

    # Disk.

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> SimulatedFile:
        def effect() -> SimulatedFile:
            if exclusive and path in self._names:
                raise os_error(EEXIST, path)
            if (create or exclusive) and path not in self._names:
                self._check_parent(path)
                self._change_names((path, _Node()))
            file = SimulatedFile(self, self._node(path), path)
            self._handles[id(file)] = path
            return file

        if (create or exclusive) and check_path(path) not in self._names:
            return self._step("open", path, effect)
        return self._look("open", check_path(path), effect)

    def map(self, path: str, byte_count: int) -> ViewMapping:
        def effect() -> ViewMapping:
            content = self._node(path).cached
            if not 0 <= byte_count <= content.size:
                raise ValueError(f"map {path}: expected {byte_count} bytes, found {content.size}")
            return ViewMapping(memoryview(content.read(0, byte_count)))

        return self._look("map", check_path(path), effect)

    def read(self, path: str) -> bytes:
        def effect() -> bytes:
            content = self._node(path).cached
            return content.read(0, content.size)

        return self._look("read", check_path(path), effect)

    def exists(self, path: str) -> bool:
        return self._look("exists", check_path(path), lambda: path in self._names)

    def is_file(self, path: str) -> bool:
        def effect() -> bool:
            return self._names.get(path, _DIRECTORY) is not _DIRECTORY

        return self._look("is_file", check_path(path), effect)

    def size(self, path: str) -> int:
        return self._look("size", check_path(path), lambda: self._node(path).cached.size)

    def list(self, path: str) -> list[str]:
        def effect() -> list[str]:
            self._check_parent(f"{path}/." if path else ".")
            names = (name for name in self._names if name and parent_of(name) == path)
            return sorted(name.rpartition("/")[2] for name in names)

        return self._look("list", check_path(path), effect)

    def make_directory(self, path: str) -> None:
        def effect() -> None:
            if path in self._names:
                raise os_error(EEXIST, path)
            self._check_parent(path)
            self._change_names((path, _DIRECTORY))

        self._step("make_directory", check_path(path), effect)

    def rename(self, source: str, target: str) -> None:
        def effect() -> None:
            node = self._node(source)
            self._check_parent(target)
            if self._names.get(target) is _DIRECTORY:
                raise os_error(EISDIR, target)
            if source != target:
                self._change_names((source, None), (target, node))

        self._step("rename", f"{check_path(source)} -> {check_path(target)}", effect)

    def unlink(self, path: str) -> None:
        def effect() -> None:
            self._node(path)
            self._change_names((path, None))

        self._step("unlink", check_path(path), effect)

    def remove_directory(self, path: str) -> None:
        def effect() -> None:
            node = self._names.get(path)
            if node is not _DIRECTORY:
                raise os_error(ENOENT if node is None else ENOTDIR, path)
            if any(parent_of(name) == path for name in self._names if name):
                raise os_error(ENOTEMPTY, path)
            self._change_names((path, None))

        self._step("remove_directory", check_path(path), effect)

    def sync_directory(self, path: str) -> None:
        def is_inside(_: int, change: _NameChange) -> bool:
            return any(parent_of(name) == path for name, _ in change)

        def effect() -> None:
            self._check_parent(f"{path}/." if path else ".")
            self._commit_names(is_inside)

        def half() -> None:
            self._commit_names(lambda i, c: is_inside(i, c) and self._rng.random() < 0.5)

        self._step("sync_directory", check_path(path), effect, half=half)

    def space(self) -> tuple[int, int]:
        def effect() -> tuple[int, int]:
            total = 1 << 40 if self.capacity_bytes is None else self.capacity_bytes
            used = sum(node.cached.size for node in self._names.values())
            return total, max(0, total - used)

        return self._look("space", "", effect)

    def lock(self, path: str, owner: str) -> SimulatedLock:
        with self._mutex:
            self._check_alive(path)
            folder = parent_of(check_path(path))
            if folder in self._owners:
                raise DiskLockedError(path, self._owners[folder])
            self._owners[folder] = owner
        try:
            file = self.open(path, create=True)
            try:
                file.write_at(0, owner.encode())
                file.truncate(len(owner.encode()))
            except OSError as error:
                if error.errno != ENOSPC:
                    raise
                file.truncate(0)
            finally:
                file.close()
        except BaseException:
            del self._owners[folder]
            raise
        return SimulatedLock(self._owners, folder)
