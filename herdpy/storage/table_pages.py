"""TablePages: the pages of one table at one checkpoint; immutable, read by any thread.

Base pages are disjoint and in key order; runs (L0) lie over them, the newest last, disjoint and in
order within. Every live key has exactly one live copy over base and runs: a deletion bitmap hides
the others. Page reads raise CorruptionError as page.py says.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from operator import gt, lt
from typing import Any, cast

import msgspec

from herdpy.errors import damaged
from herdpy.model.keys import decode_key
from herdpy.model.schema import Table
from herdpy.model.types import Key, Row
from herdpy.storage.column import unpack_bits
from herdpy.storage.manifest import BitmapRef, PageRef
from herdpy.storage.page import Columns, Page
from herdpy.storage.segment import Segment

_CHUNK_ROWS_FIRST = 128
_CHUNK_ROWS_MAX = 1024
NO_SEGMENT = -1
"""In a reference to what no segment holds yet; none such gets into a manifest."""


class PageEntry:
    """One page of a table with its deletion bitmap (dead: bits, 1 = dead, None = none).

    Constant after __init__, but for arrow_live, which storage/arrow.py fills, and is_settled.
    """

    __slots__ = ("arrow_live", "dead", "high", "is_settled", "low", "page", "ref")

    def __init__(self, page: Page, ref: PageRef, low: Key, high: Key, dead: bytes | None) -> None:
        self.page = page
        self.ref = ref
        self.low = low
        self.high = high
        self.dead = dead
        self.arrow_live: Any = None
        self.is_settled = False
        """Merging it with its neighbours has left as many pages; set by who has made it."""

    @property
    def place(self) -> tuple[int, int]:
        """(segment, offset), the name of the page in manifest edits."""
        return self.ref.segment, self.ref.offset

    @property
    def row_count(self) -> int:
        return self.ref.row_count

    @property
    def dead_count(self) -> int:
        return self.ref.bitmap.dead_count if self.ref.bitmap is not None else 0

    def is_dead(self, index: int) -> bool:
        dead = self.dead
        return dead is not None and bool(dead[index >> 3] >> (index & 7) & 1)

    def with_bitmap(self, bitmap: BitmapRef, dead: bytes) -> "PageEntry":
        """Return the entry of the same page, its decoded columns shared, with other dead rows."""
        ref = msgspec.structs.replace(self.ref, bitmap=bitmap)
        return PageEntry(self.page, ref, self.low, self.high, dead)

    def with_unlisted_bitmap(self, dead: bytes) -> "PageEntry":
        """Return the entry with other dead rows, which no segment says yet."""
        count = int.from_bytes(dead, "little").bit_count()
        return self.with_bitmap(BitmapRef(NO_SEGMENT, 0, 0, count), dead)

    def in_run(self, run: int) -> "PageEntry":
        """Return the entry as one of another run; 0 is the base."""
        ref = msgspec.structs.replace(self.ref, run=run)
        return PageEntry(self.page, ref, self.low, self.high, self.dead)

    @property
    def is_in_memory(self) -> bool:
        """No segment has the page yet."""
        return self.ref.segment == NO_SEGMENT

    @property
    def has_unlisted_bitmap(self) -> bool:
        """No segment says yet which rows are dead."""
        return self.ref.bitmap is not None and self.ref.bitmap.segment == NO_SEGMENT

    def for_table(self, table: Table) -> "PageEntry":
        """Return the entry read by another definition of its table (the key is the same)."""
        return PageEntry(self.page.for_table(table), self.ref, self.low, self.high, self.dead)

    def live_rows(self, start: int, stop: int, columns: Columns | None = None) -> list[Row]:
        """Return the live ones of rows start to stop (exclusive), of them `columns` (None: all)."""
        rows = self.page.rows(start, stop, columns)
        if self.dead is None:
            return rows
        flags = unpack_bits(self.dead, start, stop)
        return [row for row, is_dead in zip(rows, flags, strict=True) if not is_dead]


def open_entry(table: Table, ref: PageRef, segments: Mapping[int, Segment]) -> PageEntry:
    """Return the entry of a listed page; reads its bitmap, but nothing of the page."""
    kinds = table.key_kinds
    segment = segments[ref.segment]
    try:
        low, high = decode_key(ref.low_key, kinds), decode_key(ref.high_key, kinds)
    except ValueError as error:
        raise damaged(
            f"manifest: malformed key of the page at offset {ref.offset} of {segment.path}: {error}"
        ) from error
    page = Page(
        segment.part(ref.offset, ref.length),
        table,
        where=segment.path,
        base_offset=ref.offset,
        row_count=ref.row_count,
        seed=segment.seed(ref.offset),
        ends=None if segment.file_id else (low, high),
    )
    dead = None
    if (bitmap := ref.bitmap) is not None:
        holder = segments[bitmap.segment]
        dead = holder.bitmap(bitmap.offset, bitmap.length, ref.row_count, bitmap.dead_count)
    return PageEntry(page, ref, low, high, dead)


class _Level:
    """Disjoint entries in key order, with their bounds for bisect."""

    __slots__ = ("entries", "highs", "lows")

    def __init__(self, table: Table, entries: tuple[PageEntry, ...]) -> None:
        self.entries = entries
        self.lows = [entry.low for entry in entries]
        self.highs = [entry.high for entry in entries]
        for index, entry in enumerate(entries):
            if entry.low > entry.high or (index and entry.low <= self.highs[index - 1]):
                raise damaged(
                    f'pages of table "{table.name}" overlap: {entry.page.where} at offset '
                    f"{entry.ref.offset} begins at {entry.low}, expected behind "
                    f"{self.highs[index - 1]}"
                )


class TablePages:
    """The pages of one table. Constant after __init__."""

    __slots__ = ("_levels", "base", "live_count", "runs", "table")

    def __init__(
        self,
        table: Table,
        base: tuple[PageEntry, ...] = (),
        runs: tuple[tuple[PageEntry, ...], ...] = (),
    ) -> None:
        self.table = table
        self.base = base
        self.runs = runs
        self._levels = [_Level(table, level) for level in (base, *runs) if level]
        self.live_count = sum(entry.row_count - entry.dead_count for entry in self.entries())

    @classmethod
    def of_entries(cls, table: Table, entries: Sequence[PageEntry]) -> "TablePages":
        """Sort entries into base and runs by the run of their reference."""
        levels: dict[int, list[PageEntry]] = {}
        for entry in sorted(entries, key=lambda entry: (entry.ref.run, entry.low)):
            levels.setdefault(entry.ref.run, []).append(entry)
        base = tuple(levels.pop(0, ()))
        return cls(table, base, tuple(tuple(level) for level in levels.values()))

    @classmethod
    def open(
        cls, table: Table, refs: Sequence[PageRef], segments: Mapping[int, Segment]
    ) -> "TablePages":
        """Build from the manifest's references over mapped segments."""
        return cls.of_entries(table, [open_entry(table, ref, segments) for ref in refs])

    def are_those_of(self, other: "TablePages") -> bool:
        """Return whether these are the very pages of another one, perhaps by another definition."""
        if self is other:
            return True
        pairs = zip_longest(self.entries(), other.entries())
        return all(a and b and a.ref == b.ref and a.dead == b.dead for a, b in pairs)

    def for_table(self, table: Table) -> "TablePages":
        """Return the pages read by another definition of the table; self when it is the same."""
        if table == self.table:
            return self
        return self.of_entries(table, [entry.for_table(table) for entry in self.entries()])

    def entries(self) -> Iterator[PageEntry]:
        """Yield base, then the runs, the newest last."""
        for level in (self.base, *self.runs):
            yield from level

    def locate(self, key: Key) -> tuple[PageEntry, int] | None:
        """Return where the live copy of a whole canonical key is, None when there is none."""
        for level in self._levels:
            position = bisect_right(level.lows, key) - 1
            if position >= 0 and key <= level.highs[position]:
                entry = level.entries[position]
                index = entry.page.find(key)
                if index >= 0 and (entry.dead is None or not entry.is_dead(index)):
                    return entry, index
        return None

    def get(self, key: Key) -> Row | None:
        found = self.locate(key)
        return None if found is None else found[0].page.row(found[1])

    def range(
        self,
        low: Key | None,
        high: Key | None,
        *,
        low_inclusive: bool = True,
        high_inclusive: bool = True,
        is_reverse: bool = False,
        columns: Columns | None = None,
    ) -> Iterator[list[Row]]:
        """Yield rows in key order between canonical keys or prefixes (None = open), in chunks.

        An inclusive prefix takes in all keys that begin with it, an exclusive one none of them.
        Rows are decoded as they are asked for, in them only `columns` (None: all) and the key, the
        others are None; no chunk is empty.
        """
        low, high = low or (), high or ()
        low_inclusive, high_inclusive = low_inclusive or not low, high_inclusive or not high
        sources: list[Iterator[list[Row]]] = []
        for level in self._levels:
            first = _bound(level.highs, low, is_inclusive=low_inclusive)
            last = _bound(level.lows, high, is_inclusive=not high_inclusive)
            if first < last:
                bounds = (low, low_inclusive, high, high_inclusive)
                entries = level.entries[first:last]
                within: tuple[int, int] | None = None
                if last - first == 1:
                    within = _within(entries[0], bounds)
                    if within[0] >= within[1]:
                        continue  # so often of a run that spans much and holds little
                sources.append(
                    self._level_range(entries, bounds, within, columns, is_reverse=is_reverse)
                )
        if len(sources) == 1:
            return sources[0]
        return merge_chunks(sources, self.table.key_of, is_reverse=is_reverse)

    def count_range(self, low: Key | None, high: Key | None) -> int:
        """Return how many rows are between bounds, both included, as range(); with dead ones."""
        low, high = low or (), high or ()
        count = 0
        for level in self._levels:
            first = _bound(level.highs, low, is_inclusive=True)
            last = _bound(level.lows, high, is_inclusive=False)
            if first < last:
                entries = level.entries[first:last]
                count += sum(entry.row_count for entry in entries[:-1])
                count -= entries[0].page.lower_bound(low, True)
                count += entries[-1].page.lower_bound(high, False)
        return count

    @property
    def highest(self) -> Key:
        """What no key of a page is above; () without pages."""
        return max((level.highs[-1] for level in self._levels), default=())

    def may_hold(self, low: Key, high: Key) -> bool:
        """Return False if surely no page has a key from low to high."""
        for level in self._levels:  # noqa: SIM110 - once for each row that is written
            if low <= level.highs[-1] and level.lows[0] <= high:
                return True
        return False

    def overlaps(self, low: Key, high: Key) -> bool:
        """Return whether a base page spans keys between two whole keys, both included."""
        if not self.base:
            return False
        level = self._levels[0]
        return bisect_left(level.highs, low) < bisect_right(level.lows, high)

    def rows(self) -> Iterator[Row]:
        """Yield every live row in storage order."""
        for entry in self.entries():
            for start in range(0, entry.row_count, _CHUNK_ROWS_MAX):
                yield from entry.live_rows(start, min(start + _CHUNK_ROWS_MAX, entry.row_count))

    def _level_range(
        self,
        entries: Sequence[PageEntry],
        bounds: tuple[Key, bool, Key, bool],
        within: tuple[int, int] | None,
        columns: Columns | None,
        *,
        is_reverse: bool,
    ) -> Iterator[list[Row]]:
        """As range(), of one level; `within`: where in its only page, if that is known."""
        if columns is not None:
            columns = columns.union(self.table.key)
        low, low_inclusive, high, high_inclusive = bounds
        chunk = _CHUNK_ROWS_FIRST
        last = len(entries) - 1
        positions = range(last, -1, -1) if is_reverse else range(last + 1)
        for position in positions:
            entry = entries[position]
            # Only the pages at the ends can reach over the bounds.
            start, stop = within or (0, entry.row_count)
            if within is None and position == 0:
                start = entry.page.lower_bound(low, low_inclusive)
            if within is None and position == last:
                stop = entry.page.lower_bound(high, not high_inclusive)
            while start < stop:
                if is_reverse:
                    begin = max(start, stop - chunk)
                    rows = entry.live_rows(begin, stop, columns)
                    rows.reverse()
                    stop = begin
                else:
                    end = min(start + chunk, stop)
                    rows = entry.live_rows(start, end, columns)
                    start = end
                if rows:
                    yield rows
                chunk = min(chunk * 2, _CHUNK_ROWS_MAX)


def merge_chunks(
    sources: Iterable[Iterator[list[Row]]], key_of: Callable[[Row], Key], *, is_reverse: bool
) -> Iterator[list[Row]]:
    """Yield the rows of sources, each ascending (reverse: descending) by distinct keys, in order.

    In chunks: what is not above the chunk that ends first is cut off and sorted, which is cheap for
    few sorted pieces. So a chunk that nothing else lies in is passed on as it is.
    """
    is_beyond = lt if is_reverse else gt
    heads = [(chunk, source) for source in sources if (chunk := next(source, None))]
    while heads:
        ends = [key_of(chunk[-1]) for chunk, _ in heads]
        bound = max(ends) if is_reverse else min(ends)
        parts: list[list[Row]] = []
        rest: list[tuple[list[Row], Iterator[list[Row]]]] = []
        for (chunk, source), end in zip(heads, ends, strict=True):
            if not is_beyond(end, bound):
                parts.append(chunk)
                chunk = next(source, None)
            elif not is_beyond(key_of(chunk[0]), bound):
                cut = bisect_left(chunk, True, key=lambda row: is_beyond(key_of(row), bound))
                parts.append(chunk[:cut])
                chunk = chunk[cut:]
            if chunk:
                rest.append((chunk, source))
        if len(parts) == 1:
            yield parts[0]
        else:
            yield sorted(chain.from_iterable(parts), key=key_of, reverse=is_reverse)
        heads = rest


def _within(entry: PageEntry, bounds: tuple[Key, bool, Key, bool]) -> tuple[int, int]:
    """Return where in a page the rows within the bounds begin and end."""
    low, low_inclusive, high, high_inclusive = bounds
    start = entry.page.lower_bound(low, low_inclusive)
    return start, entry.page.lower_bound(high, not high_inclusive, start)


def _bound(keys: list[Key], bound: Key, *, is_inclusive: bool) -> int:
    """Return the first of ascending keys not before bound (exclusive: past all that begin so)."""
    width = len(bound)
    search = bisect_left if is_inclusive else bisect_right
    if keys and width == len(keys[0]):
        return search(keys, bound)
    return search(keys, cast("tuple[int, ...]", bound), key=lambda key: key[:width])
