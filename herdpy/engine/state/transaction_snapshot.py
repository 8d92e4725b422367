"""TransactionSnapshot: what all statements of a REPEATABLE READ transaction read; and what changed.

It is taken by the first statement that reads or writes, and kept, registered, until the transaction
ends. As every reader's it may be given up for memory: 72000 from the next read on, and the files of
its pages are kept no more.

A transaction may change what no other has changed since its snapshot. Versions tell that as long as
memtables reach back so far. A row that went into pages with its change has no version any more:
there it is the same only if it lies where the snapshot has it, so that behind two checkpoints of a
table a row that a compaction has moved counts as changed, too. Source: ADR 0067.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from bookie.runtime.interfaces import Clock
from herdpy.engine.state.memtable import Memtable, visible_in
from herdpy.engine.state.snapshots import SnapshotRegistry, snapshot_too_old
from herdpy.engine.state.state import State, TableState
from herdpy.model.types import Key

if TYPE_CHECKING:
    from herdpy.engine.state.applier import Applier


class TransactionSnapshot:
    """Implements FixedState, whose methods say what enter(), check() and leave() do; EvictedHolder.

    The transaction's session takes it; any thread may let it go.
    """

    def __init__(
        self, registry: SnapshotRegistry, read_applier: Callable[[], "Applier"], clock: Clock
    ) -> None:
        # Constant after __init__.
        self._registry = registry
        self._clock = clock
        self._read_applier = read_applier
        # By the session.
        self._token: int | None = None
        self._applier: Applier | None = None
        self._state: State | None = None
        self.taken_us: int | None = None
        """When it was taken, in microseconds since 1970; None: it was not yet, or is gone."""
        # By any thread.
        self._is_evicted = False
        self._segments: frozenset[int] | None = None  # of the state, once someone has asked

    @property
    def is_read_only(self) -> bool:
        return False

    @property
    def taken(self) -> State | None:
        return self._state

    @property
    def is_taken(self) -> bool:
        return self._state is not None or self._is_evicted

    @property
    def state(self) -> State:
        """What is read, which is taken here if it was not before."""
        found = self._state
        if self._is_evicted:  # behind the look at the state
            raise snapshot_too_old()
        return self._take() if found is None else found

    def _take(self) -> State:
        if self._token is None:
            self._token = self._registry.new_token()
        self._registry.tell(self._token, self)
        self._registry.enter(self._token)
        self._applier = self._read_applier()
        state = self._applier.state
        self._registry.narrow(self._token, state.position)
        # Without what is staged, which only grows old in memory: spills read the present's.
        self._state = state = State(state.position, state.lsn, state.catalog, state.tables)
        self.taken_us = self._clock.wall_us()
        if self._is_evicted:  # meanwhile
            self.evicted()
        return state

    def evicted(self) -> None:
        self._is_evicted = True  # before the state goes, which is taken where there is none
        self._state = self.taken_us = self._segments = None

    def segments(self) -> frozenset[int]:
        state, found = self._state, self._segments
        if state is None:
            return frozenset()
        if found is None:
            found = self._segments = _segments_of(state)
        return found

    def enter(self, token: int) -> None:
        pass

    def check(self) -> None:
        if self._token is None or not self._registry.is_registered(self._token):
            raise snapshot_too_old()

    def leave(self, token: int) -> None:
        pass

    def let_go(self) -> None:
        """Hold no versions any more: the transaction is over; repeatable."""
        if self._token is not None:
            self._registry.leave(self._token)

    def __del__(self) -> None:
        try:
            self.let_go()
        except AttributeError:  # interrupted before it was made
            pass

    def is_unchanged(self, table_id: int, now: State) -> bool:
        """Return whether nothing was committed to a table since, as of the present `now`."""
        seen, found = self.state.tables.get(table_id), now.tables.get(table_id)
        if seen is None or found is None:  # the transaction makes it, or it is another one by now
            return seen is found
        return self._is_same_log() and found.memtable.changed_at <= self.state.position

    def has_changed(self, table_id: int, now: State, keys: Iterable[Key]) -> bool:
        """Return whether a change of a row of these keys was committed since; also one and back.

        `now` is the present, registered. SnapshotTooOldError: what is needed to tell was given up.
        """
        seen, found = self.state.tables.get(table_id), now.tables.get(table_id)
        if seen is None or found is None:
            return seen is not found
        return not self._is_same_log() or _has_changed(seen, found, self.state.position, keys)

    def _is_same_log(self) -> bool:
        """Return whether positions are those of then: else the tablespace has got another log."""
        return self._applier is self._read_applier()


def _segments_of(state: State) -> frozenset[int]:
    found: set[int] = set()
    for table in state.tables.values():
        for entry in table.pages.entries():
            found.add(entry.ref.segment)
            if entry.ref.bitmap is not None:
                found.add(entry.ref.bitmap.segment)
    return frozenset(found)


def _has_changed(seen: TableState, now: TableState, position: int, keys: Iterable[Key]) -> bool:
    is_whole = now.memtables[-1].changed_before <= position
    former = seen.memtable
    has_gap = not is_whole and not _joins(former, now, position)
    for key in keys:
        newest = _newest(now.memtables, key)
        if newest is not None:
            if newest > position:
                return True
        elif not is_whole:
            newest = _newest((former,), key)
            if newest is not None and newest > position:
                return True
            if has_gap and _has_moved(seen, now, key, position):
                return True
    if former.is_given_up:  # looked at last, because it is set first
        raise snapshot_too_old()
    return False


def _newest(memtables: Iterable[Memtable], key: Key) -> int | None:
    """Return the position of a key's newest version; None: there is none in memory."""
    for memtable in memtables:
        version = memtable.chains.get(key)
        if version is not None:
            return version[0]
    return None


def _joins(former: Memtable, now: TableState, position: int) -> bool:
    """Return whether all that was changed behind a position is in these memtables together."""
    return former.changed_before <= position and (
        now.memtables[-1].changed_before <= former.changed_at
    )


def _has_moved(seen: TableState, now: TableState, key: Key, position: int) -> bool:
    """Return whether a row lies elsewhere than it did, or is no more, or is new.

    It is in no memtable now, so that one which the snapshot has in memory went into pages, or was
    deleted.
    """
    after = now.pages.locate(key)
    had = visible_in(seen.memtables, key, position)
    if had is not None:
        return had[1] is not None or after is not None
    before = seen.pages.locate(key)
    if before is None or after is None:
        return before is not after
    return before[0].page is not after[0].page or before[1] != after[1]
