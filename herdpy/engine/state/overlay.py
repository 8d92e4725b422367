"""The vector path's view of a table: pages as they lie, masked rows, and the overlay as batches.

Rows that a memtable or the write set decides about are hidden in their page, and their visible
versions follow as further batches. A table's Overlay is kept with its newest memtable and catches
up with what was written since it was last asked: rows are only ever added at its end and converted
to Arrow in whole chunks, once; what an added row replaces is masked. So a query after a small
commit costs about what was committed, not what the memtable holds.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from bookie.runtime.drivers import new_mutex
from herdpy.engine.state.memtable import TRIMMED, Memtable, SnapshotGoneError, Version, visible
from herdpy.errors import Error
from herdpy.limits import page_rows_max
from herdpy.model.types import Key, Row
from herdpy.storage.table_pages import PageEntry, TablePages

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.engine.state.snapshots import TableSnapshot
    from herdpy.model.governor import Reservation

T = TypeVar("T")
_CHUNK_ROWS = page_rows_max
_CHECK_KEYS = 1_024  # between two looks at the interrupt
_GONE = -1
_PLACE_BYTES = 120  # of a key in what is kept, beside its row, which is the memtable's
_REBUILD_ROWS_MIN = 4 * _CHUNK_ROWS

Hidden = dict[PageEntry, int]
"""Rows of pages, as bits, that something above them replaces or deletes."""


def above_pages(
    source: "TableSnapshot", ordinals: Sequence[int]
) -> "tuple[Mapping[PageEntry, pa.Array], list[pa.RecordBatch]]":
    """Return what lies over a table's pages; see TableSnapshot.above_pages()."""
    own = source.own_rows()
    if own or _has_versions(source):
        return find_overlay(source).view(source, ordinals, own)
    return {}, []


def count(source: "TableSnapshot") -> int:
    """Return how many rows a table has; SnapshotGoneError."""
    own = source.own_rows()
    if own or _has_versions(source):
        return find_overlay(source).count(source, own)
    return source.pages.live_count if source.pages is not None else 0


def _has_versions(source: "TableSnapshot") -> bool:
    return any(len(memtable.chains) or memtable.is_given_up for memtable in source.memtables)


def find_overlay(source: "TableSnapshot") -> "Overlay":
    """Return the kept overlay of these memtables, else one that grows out of it or a new one.

    It is kept for the memtables that new snapshots read, and for no others: one of a snapshot from
    before a checkpoint would hold the retired ones, and be of no use to any later query.
    """
    memtables = source.memtables
    if len(memtables) == 0:
        return Overlay(())  # a table that only the transaction knows
    newest = memtables[0]
    kept: Overlay | None = newest.overlay
    if kept is not None and kept.is_of(memtables):
        return kept
    snapshot, table_id = source.snapshot, source.table.id
    if not snapshot.has_present(table_id, memtables):
        return Overlay(memtables)
    older: Overlay | None = memtables[1].overlay if len(memtables) > 1 else None
    if older is not None and older.grow(memtables):
        kept = older
    else:
        kept = Overlay(memtables)
    newest.overlay = kept
    if not snapshot.has_present(table_id, memtables):  # a checkpoint was published meanwhile
        newest.overlay = None
    return kept


class Overlay:
    """What lies over a table's pages, as of the newest position that was asked for.

    Any thread; all but the mutex is under the mutex. An interrupt leaves is_whole False, and then
    the next one to come begins anew.
    """

    def __init__(self, memtables: tuple[Memtable, ...]) -> None:
        self._mutex = new_mutex()
        self._memtables = memtables  # newest first
        self._held: Reservation | None = None  # of the tablespace's caches
        self._clear()

    def __del__(self) -> None:
        try:
            held = self._held
        except AttributeError:  # interrupted before it had one
            return
        if held is not None:
            held.let_go()

    def _clear(self) -> None:
        self._is_whole = False
        self._position = 0
        self._pages: TablePages | None = None
        self._counts = [0] * len(self._memtables)  # of touched keys taken in
        self._pending: set[Key] = set()  # touched by commits behind the position
        self._rows: list[Row] = []
        self._places: dict[Key, int] = {}  # of a key's row in rows, or _GONE
        self._dead: list[int] = []  # bits of each chunk of rows
        self._dead_count = 0
        self._arrays: list[dict[int, Any]] = []  # of each full chunk, by ordinal
        self._array_bytes = 0
        self._hidden: Hidden = {}
        self._live: dict[PageEntry, Any] = {}
        if self._held is not None:
            self._held.shrink_to(0)

    def is_of(self, memtables: tuple[Memtable, ...]) -> bool:
        return self._memtables == memtables

    def grow(self, memtables: tuple[Memtable, ...]) -> bool:
        """Put a newer memtable on top, if this is the overlay of the others."""
        with self._mutex:
            if self._memtables != memtables[1:]:
                return False
            self._is_whole, is_whole = False, self._is_whole
            self._memtables = memtables
            self._counts = [0, *self._counts]
            self._is_whole = is_whole
            return True

    def view(
        self, source: "TableSnapshot", ordinals: Sequence[int], own: Mapping[Key, Row | None]
    ) -> "tuple[dict[PageEntry, pa.Array], list[pa.RecordBatch]]":
        """Return (live rows of the pages not wholly as they lie, batches with a __live column).

        A snapshot older than what is kept, or over other memtables, gets a view made for it alone.
        """
        return self._caught_up(source, Overlay._view, source, ordinals, own)

    def count(self, source: "TableSnapshot", own: Mapping[Key, Row | None]) -> int:
        """Return how many rows there are, in pages and above them; as view()."""
        return self._caught_up(source, Overlay._count, source, own)

    def _caught_up(self, source: "TableSnapshot", read: Callable[..., T], *arguments: object) -> T:
        with self._mutex:
            is_ours = self._memtables == source.memtables
            if is_ours and not (self._is_whole and source.position < self._position):
                if not self._is_whole or (
                    self._dead_count * 2 > len(self._rows) > _REBUILD_ROWS_MIN
                ):
                    self._clear()
                self._catch_up(source)
                return read(self, *arguments)
        alone = Overlay(source.memtables)
        alone._catch_up(source)
        return read(alone, *arguments)

    def _hidden_for(
        self, source: "TableSnapshot", own: Mapping[Key, Row | None]
    ) -> tuple[Sequence[int], Hidden]:
        """Return the dead rows of each chunk, and what only the write set hides in pages."""
        dead, hidden = self._dead, {}
        if own:
            dead = dead.copy()
            for number, key in enumerate(own):
                if not number % _CHECK_KEYS:
                    source.snapshot.check_interrupt()
                self._hide_for_own(key, dead, hidden, source.pages)
        return dead, hidden

    def _count(self, source: "TableSnapshot", own: Mapping[Key, Row | None]) -> int:
        dead, hidden = self._hidden_for(source, own)
        bits = (*dead, *self._hidden.values(), *hidden.values())
        live_count = source.pages.live_count if source.pages is not None else 0
        own_count = sum(row is not None for row in own.values())
        return live_count + len(self._rows) + own_count - sum(map(int.bit_count, bits))

    def _view(
        self, source: "TableSnapshot", ordinals: Sequence[int], own: Mapping[Key, Row | None]
    ) -> "tuple[dict[PageEntry, pa.Array], list[pa.RecordBatch]]":
        from herdpy.storage.arrow import masked_live, rows_batch

        dead, hidden = self._hidden_for(source, own)
        live = {entry: self._live_of(entry, bits) for entry, bits in self._hidden.items()}
        for entry, bits in hidden.items():
            live[entry] = masked_live(entry, bits | self._hidden.get(entry, 0))
        batches = list(self._batches(source, ordinals, dead))
        rows = [row for row in own.values() if row is not None]
        if rows:
            batches.append(rows_batch(source.table, ordinals, rows))
        return live, batches

    def _catch_up(self, source: "TableSnapshot") -> None:
        self._is_whole = False
        pages, position = source.pages, source.position
        check_interrupt = source.snapshot.check_interrupt
        if pages is not self._pages:
            self._hidden, self._live = {}, {}
            for number, key in enumerate(self._places):
                if not number % _CHECK_KEYS:
                    check_interrupt()  # the next one to come begins anew
                self._hide(key, pages)
            self._pages = pages
        touched, self._pending = self._pending, set()
        new: list[list[Key]] = []
        for level, memtable in enumerate(self._memtables):
            new.append(memtable.touched_since(self._counts[level]))
            self._counts[level] += len(new[-1])
        self._position = position
        is_first = not touched and not self._places and (pages is None or not pages.live_count)
        if not (is_first and len(new) == 1 and self._take_first(new[0], position)):
            self._decide_all(touched.union(*new), position, pages, check_interrupt)
        caches = source.snapshot.caches
        if caches is not None:
            if self._held is None:
                self._held = caches.reserve("what lies over a table's pages")
            self._held.hold(self._array_bytes + _PLACE_BYTES * len(self._places))
        self._is_whole = True

    def _decide_all(
        self,
        keys: Collection[Key],
        position: int,
        pages: TablePages | None,
        check_interrupt: Callable[[], object],
    ) -> None:
        left = iter(keys)
        while some := list(islice(left, _CHECK_KEYS)):
            try:
                check_interrupt()
            except Error:
                self._pending.update(some, left)  # the next one to come goes on with them
                self._is_whole = True
                raise
            for key in some:
                self._decide(key, position, pages)

    def _take_first(self, keys: list[Key], position: int) -> bool:
        """Take in the first keys at once, over no rows in pages; False: nothing happened.

        That is when a key comes twice, or not with a row that the position sees as its newest.
        """
        rows: list[Row] = []
        for version in map(self._memtables[0].chains.get, keys):
            if version is None or version[0] > position or version[1] is None:
                return False
            rows.append(version[1])
        places = dict(zip(keys, range(len(keys)), strict=True))
        if len(places) < len(keys):
            return False
        self._rows, self._places = rows, places
        chunks = range(0, len(rows), _CHUNK_ROWS)
        self._dead = [0 for _ in chunks]
        self._arrays = [{} for _ in chunks]
        return True

    def _decide(self, key: Key, position: int, pages: TablePages | None) -> None:
        """Find the version of a key that the position sees, and make it the overlay's."""
        version: Version | None = None
        for memtable in self._memtables:
            version = memtable.chains.get(key)
            if version is not None and version[0] > position:
                self._pending.add(key)  # what the next one sees has to be looked up again
                version = visible(version, position)
            if version is not None:
                break
        if version is None:
            return
        if version is TRIMMED:
            raise SnapshotGoneError
        row = version[1]
        place = self._places.get(key)
        if place is None:
            self._hide(key, pages)
        elif place != _GONE:
            if self._rows[place] is row:
                return
            self._dead[place // _CHUNK_ROWS] |= 1 << place % _CHUNK_ROWS
            self._dead_count += 1
        if row is None:
            self._places[key] = _GONE
            return
        place = len(self._rows)
        if place % _CHUNK_ROWS == 0:
            self._dead.append(0)
            self._arrays.append({})
        self._rows.append(row)
        self._places[key] = place

    def _hide(self, key: Key, pages: TablePages | None) -> None:
        found = pages.locate(key) if pages is not None else None
        if found is not None:
            entry, index = found
            self._hidden[entry] = self._hidden.get(entry, 0) | 1 << index
            self._live.pop(entry, None)

    def _hide_for_own(
        self, key: Key, dead: list[int], hidden: Hidden, pages: TablePages | None
    ) -> None:
        place = self._places.get(key)
        if place is None:
            found = pages.locate(key) if pages is not None else None
            if found is not None:
                hidden[found[0]] = hidden.get(found[0], 0) | 1 << found[1]
        elif place != _GONE:
            dead[place // _CHUNK_ROWS] |= 1 << place % _CHUNK_ROWS

    def _live_of(self, entry: PageEntry, bits: int) -> "pa.Array":
        from herdpy.storage.arrow import masked_live

        array = self._live.get(entry)
        if array is None:
            array = self._live[entry] = masked_live(entry, bits)
        return array

    def _may_keep(self, byte_count: int) -> bool:
        kept = self._array_bytes + _PLACE_BYTES * len(self._places)
        return self._held is not None and self._held.grow_to(kept + byte_count)

    def _batches(
        self, source: "TableSnapshot", ordinals: Sequence[int], dead: Sequence[int]
    ) -> "Iterator[pa.RecordBatch]":
        from herdpy.storage.arrow import bits_array, marked_batch, rows_batch

        for chunk, bits in enumerate(dead):
            source.snapshot.check_interrupt()
            start = chunk * _CHUNK_ROWS
            rows = self._rows[start : start + _CHUNK_ROWS]
            count = len(rows)
            if bits.bit_count() == count:
                continue
            kept = self._arrays[chunk] if count == _CHUNK_ROWS else {}
            missing = [ordinal for ordinal in ordinals if ordinal not in kept]
            made = kept
            if missing:
                batch = rows_batch(source.table, missing, rows)
                arrays = dict(zip(missing, batch.columns, strict=True))
                made = {**kept, **arrays}
                if count == _CHUNK_ROWS and self._may_keep(batch.nbytes):
                    self._array_bytes += batch.nbytes
                    self._arrays[chunk] = made
            yield marked_batch(made, ordinals, bits_array(((1 << count) - 1) ^ bits, count))
