"""Memtable: the versions of one table's rows since the last checkpoint, in memory.

A chain is `(position, row, older)`, newest first; row None is a deletion. The last `older` is None
when nothing was dropped behind it (go on in the pages) or TRIMMED when versions were.

Threads: put() under the tablespace's monitor; everything else by any thread without a lock. A
chain is an immutable tuple and changes by one dict store, so a reader sees the old or the new one.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count, islice, repeat
from operator import eq
from typing import Any, Final

from herdpy.errors import InvariantViolation
from herdpy.model.types import Key, Row

Version = tuple[int, Row | None, Any]
"""(position of the commit, row or None, older Version | None | TRIMMED)."""

TRIMMED: Final = (-1, None, None)
"""Stands for versions given up; no registered snapshot may come this far."""

Span = tuple[list[Key], int, int]
"""(sorted keys, start, stop): a part of a list that is not changed any more."""

_TAIL_KEYS_MAX = 2048
_TAIL_SHIFT = 5  # or this part of all keys, whichever is more
_INSORT_KEYS_MAX = 8


def visible(newest: Version | None, position: int) -> Version | None:
    """Return the newest version of a chain that is at or before a position.

    None: the chain has none, and what is older decides: another memtable, then the pages. TRIMMED:
    it was given up.
    """
    version = newest
    while version is not None and version[0] > position:
        version = version[2]
    return version


def visible_in(memtables: "Iterable[Memtable]", key: Key, position: int) -> Version | None:
    """Return what a position sees of a key in memtables, the newest first; as visible()."""
    for memtable in memtables:
        version = visible(memtable.chains.get(key), position)
        if version is not None:
            return version
    return None


def visible_rows(memtables: "Sequence[Memtable]", position: int) -> list[tuple[Key, Row | None]]:
    """Return what a position sees in memtables, the newest first, by key; None: deleted.

    Nothing that it sees may be given up meanwhile.
    """
    newest: dict[Key, Row | None] = {}
    for memtable in reversed(memtables):  # newer ones replace older ones
        for key, chain in memtable.chains.copy().items():
            version = chain if chain[0] <= position else visible(chain, position)
            if version is TRIMMED:
                raise InvariantViolation("I9: a version that is being read was given up")
            if version is not None:
                newest[key] = version[1]
    return sorted(newest.items(), key=lambda pair: pair[0])


class SnapshotGoneError(Exception):
    """The memtable was given up: only snapshots that were given up themselves still have it."""


class _GivenUp(dict[Key, Version]):
    """The chains of a memtable that was given up: nothing can be read any more."""

    def get(self, key: Key, default: Any = None) -> Any:
        return TRIMMED

    def copy(self) -> dict[Key, Version]:
        raise SnapshotGoneError

    def __bool__(self) -> bool:
        return True


class Memtable:
    """Versions by key; sorted lazily, because most tables are written more than range-scanned."""

    __slots__ = (
        "__weakref__",
        "_added",
        "_ordered",
        "_superseded_count",
        "byte_count",
        "chains",
        "changed_before",
        "is_given_up",
        "overlay",
        "superseded_bytes",
        "touched",
    )

    def __init__(self, changed_before: int = 0) -> None:
        self.chains: dict[Key, Version] = {}
        self.changed_before = changed_before
        """The position of the table's last change that is in no chain here: of what memtables
        before this one have, and of pages that it adopted."""
        self.is_given_up = False
        self.byte_count = 0
        self.superseded_bytes = 0  # of versions that only older snapshots need
        self.overlay: Any = None  # of engine/state/overlay.py, one assignment
        self.touched: list[Key] = []  # the key of every change, once its chain has it
        self._superseded_count = 0
        self._added: list[Key] = []  # every key in order of arrival; may repeat after an interrupt
        # Two sorted lists and how many of _added they hold; replaced as one.
        self._ordered: tuple[list[Key], list[Key], int] = ([], [], 0)

    def put(
        self, key: Key, row: Row | None, position: int, byte_count: int, horizon: list[int] | None
    ) -> None:
        """Make `row` the newest version; repeating the call has no further effect.

        byte_count: what the version takes in memory.
        horizon: ascending positions at which snapshots may read, the last one being the newest
        position when it was taken; None keeps every version.
        """
        chains = self.chains
        older = chains.get(key)
        if older is None:
            self._added.append(key)
            self.byte_count += byte_count
            chains[key] = (position, row, None)
            self.touched.append(key)
            return
        if older[0] == position:
            if older[1] is not row:  # two changes of one key in one commit: the later one wins
                chains[key] = (position, row, older[2])
            self.touched.append(key)  # perhaps for the second time, after an interrupt
            return
        dropped = 0
        if horizon is not None:
            older, dropped = trim(older, horizon)
        growth = (1 - dropped) * byte_count
        self.byte_count += growth
        self.superseded_bytes += growth
        self._superseded_count += 1 - dropped
        chains[key] = (position, row, older)
        self.touched.append(key)

    def put_one(
        self,
        key: Key,
        row: Row | None,
        position: int,
        byte_count: int,
        horizon: Callable[[], list[int] | None],
    ) -> None:
        if key in self.chains:
            self.put(key, row, position, byte_count, horizon())
            return
        self._added.append(key)
        self.byte_count += byte_count
        self.chains[key] = (position, row, None)
        self.touched.append(key)

    def put_all(
        self,
        changes: Iterable[tuple[Key, Row | None]],
        position: int,
        byte_count: int,
        horizon: Callable[[], list[int] | None],
    ) -> None:
        """Put changes of so many bytes each; horizon() is asked when the first key is there."""
        chains, add, touch = self.chains, self._added.append, self.touched.append
        positions: list[int] | None = None
        is_asked = False
        for key, row in changes:
            if key in chains:
                if not is_asked:
                    positions, is_asked = horizon(), True
                self.put(key, row, position, byte_count, positions)
            else:  # as put() does
                add(key)
                self.byte_count += byte_count
                chains[key] = (position, row, None)
                touch(key)

    def put_new(
        self, keys: Collection[Key], rows: Sequence[Row | None], position: int, byte_count: int
    ) -> bool:
        """Put many changes at once, if none of the keys is there; False: nothing happened.

        The keys are distinct; of two views the shorter one is looked up in the other. After an
        interrupt put_all() of the same rows ends the work.
        """
        chains = self.chains
        if not chains.keys().isdisjoint(keys):
            return False
        self._put_new(keys, rows, repeat(position), byte_count * len(keys))
        return True

    def put_run(
        self, keys: Sequence[Key], rows: Sequence[Row], position: int, byte_count: int
    ) -> bool:
        """Put a row of each of many commits, the first at `position`; False: nothing happened.

        byte_count: what all of them take in memory.

        As put_new(), but that keys may be alike: then nothing happens.
        """
        new = set(keys)
        if len(new) < len(keys) or not self.chains.keys().isdisjoint(new):
            return False
        self._put_new(keys, rows, count(position), byte_count)
        return True

    def _put_new(
        self,
        keys: Collection[Key],
        rows: Sequence[Row | None],
        positions: Iterable[int],
        byte_count: int,
    ) -> None:
        """Put rows under new keys, that take so many bytes together."""
        self._added += keys
        self.byte_count += byte_count
        self.chains.update(zip(keys, zip(positions, rows, repeat(None)), strict=False))
        self.touched += keys

    def trim_all(self, keys: Iterable[Key], horizon: list[int]) -> None:
        """Drop what no snapshot of horizon can see from the chains of these keys; monitor held."""
        chains = self.chains
        dropped = 0
        for key in keys:
            version, count = trim(chains[key], horizon)
            if count:
                chains[key] = version
                dropped += count
        if dropped:
            # What a superseded version takes, on the average.
            share = self.superseded_bytes * dropped // max(self._superseded_count, dropped)
            self.byte_count -= share
            self.superseded_bytes -= share
            self._superseded_count -= dropped

    def superseded_keys(self) -> list[Key]:
        """Return the keys with more than one version."""
        return [
            key
            for key, version in self.chains.copy().items()
            if version[2] is not None and version[2] is not TRIMMED
        ]

    def touched_since(self, count: int) -> list[Key]:
        """Return the keys of all changes but the first `count`, in order.

        A reader of a State after a commit was published finds the keys of that commit here;
        a key found here has its change in its chain.
        """
        keys = self.touched[count:]
        if self.is_given_up:  # looked at last, because it is set first
            raise SnapshotGoneError
        return keys

    def give_up(self) -> None:
        """Let go of everything; who reads it from now on gets TRIMMED or SnapshotGoneError."""
        self.is_given_up = True  # first: readers look at it last
        self.chains = _GivenUp()
        self._added = []
        self._ordered = ([], [], 0)
        self.touched = []
        self.overlay = None
        self.byte_count = self.superseded_bytes = 0

    def spans(
        self, low: Key | None, high: Key | None, *, low_open: bool, high_open: bool
    ) -> list[Span]:
        """Return where the keys between bounds stand, those without a visible version too.

        Bounds may be prefixes: an inclusive one takes in all that begin with it.
        """
        found: list[Span] = []
        for keys in self._sorted():
            start, stop = 0, len(keys)
            if low is not None:
                start = _after_prefix(keys, low) if low_open else bisect_left(keys, low)
            if high is not None:
                stop = bisect_left(keys, high) if high_open else _after_prefix(keys, high)
            if start < stop:
                found.append((keys, start, stop))
        if self.is_given_up:  # looked at last, because it is set first
            raise SnapshotGoneError
        return found

    def _sorted(self) -> tuple[list[Key], list[Key]]:
        """Return all keys as two sorted lists, which are not changed any more.

        A key stands in each of them once at the most.
        """
        main, tail, count = self._ordered
        total = len(self._added)
        if total == count:
            return main, tail
        new = self._added[count:total]
        if len(tail) + len(new) > max(_TAIL_KEYS_MAX, len(main) >> _TAIL_SHIFT):
            main, tail = [*main, *tail, *new], []
            main.sort()  # of two or three sorted runs, so about as fast as a merge
            main = _distinct(main)
        elif len(new) <= _INSORT_KEYS_MAX:
            tail = tail.copy()
            for key in new:
                insort(tail, key)
            tail = _distinct(tail)
        else:
            tail = _distinct(sorted([*tail, *new]))
        self._ordered = (main, tail, total)
        return main, tail

    def sample(self, count: int) -> list[Row | None]:
        """Return the newest rows of about so many keys, or all, from all over their arrival."""
        keys, chains = self._added, self.chains
        step = max(len(keys) // count, 1)
        found = (chains.get(key) for key in keys[::step])
        return [version[1] for version in found if version is not None]

    def __len__(self) -> int:
        return len(self.chains)

    @property
    def changed_at(self) -> int:
        """The position of the table's last change, as long as this is its newest memtable."""
        if not self.touched:
            return self.changed_before
        return max(self.changed_before, self.chains[self.touched[-1]][0])

    def note_change(self, position: int) -> None:
        """Note a change of the table that is in no chain; monitor held, repeatable."""
        self.changed_before = max(self.changed_before, position)

    @classmethod
    def merged(cls, memtables: "Sequence[Memtable]") -> "Memtable":
        """Return one that reads like all of these, the newest first; they are put to no more."""
        made = Memtable(memtables[-1].changed_before)
        chains = made.chains
        for memtable in memtables:
            for key, older in memtable.chains.copy().items():
                newer = chains.get(key)
                chains[key] = older if newer is None else _on_top(newer, older)
        made._added = list(chains)
        made.touched = list(chains)
        made.byte_count = sum(memtable.byte_count for memtable in memtables)
        count = sum(map(_version_count, chains.values()))
        made._superseded_count = count - len(chains)
        made.superseded_bytes = made.byte_count * made._superseded_count // max(count, 1)
        return made


def _distinct(keys: list[Key]) -> list[Key]:
    """Return sorted keys, each once: an interrupt may have had one added twice."""
    is_repeating = any(map(eq, keys, islice(keys, 1, None)))
    return list(dict.fromkeys(keys)) if is_repeating else keys


def _version_count(version: Version) -> int:
    count = 0
    node: Any = version
    while node is not None and node is not TRIMMED:
        count += 1
        node = node[2]
    return count


def _on_top(newer: Version, older: Version) -> Version:
    nodes: list[Version] = []
    node: Any = newer
    while node is not None:
        if node is TRIMMED:
            return newer
        nodes.append(node)
        node = node[2]
    below = older
    for item in reversed(nodes):
        below = (item[0], item[1], below)
    return below


def trim(version: Version, horizon: list[int]) -> tuple[Version, int]:
    """Return the chain without what no snapshot of horizon can see, and how many were dropped.

    What is newer than the last position of horizon is kept whole.
    """
    if version[0] <= horizon[0]:  # nearly always: every snapshot sees the newest one
        dropped = _version_count(version) - 1
        return ((version[0], version[1], TRIMMED), dropped) if dropped else (version, 0)
    kept: list[Version] = []
    dropped = 0
    index = len(horizon) - 1
    newest = horizon[index]
    node: Any = version
    while node is not None and node is not TRIMMED and index >= 0:
        if node[0] > newest:
            kept.append(node)
        elif node[0] <= horizon[index]:
            kept.append(node)
            index = bisect_left(horizon, node[0]) - 1
        else:
            dropped += 1
        node = node[2]
    tail: Any = node
    if node is not None and node is not TRIMMED:
        tail = TRIMMED
        while node is not None and node is not TRIMMED:
            dropped += 1
            node = node[2]
    if not dropped:
        return version, 0
    for item in reversed(kept):
        tail = (item[0], item[1], tail)
    return tail, dropped


def _after_prefix(keys: list[Key], prefix: Key) -> int:
    width = len(prefix)
    return bisect_right(keys, prefix, key=lambda key: key[:width])
