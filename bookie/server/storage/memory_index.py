"""MemoryIndex: an EntryIndex in memory that a crash takes back to what was sync()ed.

crash() is harsher than LMDB without its last meta page: of the writes since sync() it keeps the
first few, each one whole. For the simulator, tests, and bookies that keep nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bookie.runtime.drivers import new_mutex
from bookie.server.interfaces import LedgerRecord


class _Write(NamedTuple):
    locations: tuple[tuple[int, int, int], ...] = ()
    ledgers: tuple[tuple[int, LedgerRecord], ...] = ()
    journal: tuple[int, int] | None = None
    deleted: int | None = None


class MemoryIndex:
    """EntryIndex over dictionaries."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._locations: dict[int, dict[int, int]] = {}
        self._last: dict[int, int] = {}
        self._ledgers: dict[int, LedgerRecord] = {}
        self._durable: list[_Write] = []  # what makes the durable content, from nothing
        self._unsynced: list[_Write] = []
        self._is_whole = False
        self._highest = self._durable_highest = -1
        self._is_metadata_older = False
        self._owner: str | None = None
        self._journal_position: tuple[int, int] | None = None

    def get(self, ledger_id: int, entry_id: int) -> int | None:
        with self._mutex:
            entries = self._locations.get(ledger_id)
            return None if entries is None else entries.get(entry_id)

    def locations(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        with self._mutex:
            entries = self._locations.get(ledger_id, {})
            ids = range(first, first + count)
            if count > len(entries):  # ids are the writer's: there may be 2**63 between two of them
                ids = sorted(n for n in entries if n in ids)
            return [(n, entries[n]) for n in ids if n in entries]

    def last_entry_id(self, ledger_id: int) -> int | None:
        with self._mutex:
            return self._last.get(ledger_id)

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        with self._mutex:
            return iter(sorted(self._locations.get(ledger_id, ())))

    def put(
        self,
        locations: Sequence[tuple[int, int, int]],
        ledgers: Sequence[tuple[int, LedgerRecord]] = (),
        journal: tuple[int, int] | None = None,
    ) -> None:
        self._write(_Write(tuple(locations), tuple(ledgers), journal))

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        with self._mutex:
            return self._ledgers.get(ledger_id)

    def ledger_ids(self) -> Iterator[int]:
        with self._mutex:
            return iter(sorted(self._ledgers))

    @property
    def highest_ledger_id(self) -> int:
        return self._highest

    @property
    def is_metadata_older(self) -> bool:
        return self._is_metadata_older

    def note_metadata(self, *, is_older: bool) -> None:
        self._is_metadata_older = is_older
        if not is_older:
            self._highest = max(self._ledgers, default=-1)
        self.sync()

    @property
    def owner(self) -> str | None:
        return self._owner

    def set_owner(self, owner: str) -> None:
        self.sync()
        self._owner = owner

    @property
    def journal_position(self) -> tuple[int, int] | None:
        return self._journal_position

    def delete_ledger(self, ledger_id: int) -> None:
        self._write(_Write(deleted=ledger_id))

    @property
    def is_whole(self) -> bool:
        return self._is_whole

    def set_whole(self) -> None:
        self.sync()
        self._is_whole = True

    def sync(self) -> None:
        with self._mutex:
            self._durable += self._unsynced
            self._durable_highest = self._highest
            self._unsynced.clear()
            if len(self._durable) > 2 * len(self._ledgers) + 64:
                self._durable = [self._content()]

    def close(self) -> None:
        """Forget nothing: the next open in this process goes on with it."""

    def crash(self, choose: Callable[[int], int]) -> "MemoryIndex":
        """Return what the next process finds; choose(n) draws how many of n late writes stay."""
        with self._mutex:
            kept = choose(len(self._unsynced))
            fresh = MemoryIndex()
            for write in [*self._durable, *self._unsynced[:kept]]:
                fresh._apply(write)
            fresh._durable = [fresh._content()]
            fresh._is_whole = self._is_whole
            fresh._is_metadata_older = self._is_metadata_older
            fresh._owner = self._owner
            fresh._durable_highest = self._durable_highest
            fresh._highest = max(fresh._highest, self._durable_highest)
            return fresh

    def _content(self) -> _Write:
        locations = tuple(
            (ledger_id, entry_id, location)
            for ledger_id, entries in self._locations.items()
            for entry_id, location in entries.items()
        )
        return _Write(locations, tuple(self._ledgers.items()), self._journal_position)

    def _write(self, write: _Write) -> None:
        with self._mutex:
            self._apply(write)
            self._unsynced.append(write)

    def _apply(self, write: _Write) -> None:
        locations, ledgers, journal, deleted = write
        for ledger_id, entry_id, location in locations:
            self._locations.setdefault(ledger_id, {})[entry_id] = location
            self._last[ledger_id] = max(entry_id, self._last.get(ledger_id, entry_id))
        for ledger_id, record in ledgers:
            self._ledgers[ledger_id] = record
            self._highest = max(self._highest, ledger_id)
        if journal is not None:
            self._journal_position = journal
        if deleted is not None:
            self._locations.pop(deleted, None)
            self._last.pop(deleted, None)
            self._ledgers.pop(deleted, None)
