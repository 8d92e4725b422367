"""RangeSnapshot: the rows of one table with keys from low up to high, as one snapshot sees them.

A partition of a table is read so. What lies in memory for other keys is neither looked at nor
converted, and pages wholly outside are not touched. Threads: as TableSnapshot.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from herdpy.engine.state.snapshots import KeyRange, Snapshot, TableSnapshot
from herdpy.engine.state.state import TableState
from herdpy.engine.state.transactions import OwnVersion
from herdpy.limits import page_rows_max
from herdpy.model.schema import Table
from herdpy.model.types import Key, Row
from herdpy.storage.arrow import masked_live, rows_batch
from herdpy.storage.page import Columns
from herdpy.storage.table_pages import PageEntry

if TYPE_CHECKING:
    import pyarrow as pa


class RangeSnapshot(TableSnapshot):
    """Implements exec.interfaces.RowSource."""

    __slots__ = ("_high", "_low")

    def __init__(
        self,
        table: Table,
        state: TableState | None,
        position: int,
        own: dict[Key, OwnVersion] | None,
        statement: int,
        snapshot: Snapshot,
        bounds: KeyRange,
    ) -> None:
        super().__init__(table, state, position, own, statement, snapshot)
        self._low, self._high = bounds

    def _is_within(self, key: Key) -> bool:
        low, high = self._low, self._high
        return (low is None or low <= key) and (high is None or key < high)

    @property
    def row_count_guess(self) -> int:
        entries = sum(entry.row_count - entry.dead_count for entry in self.entries())
        return entries + sum(map(len, self.memtables)) + len(self._own or ())

    def get(self, key: Key) -> Row | None:
        return super().get(key) if self._is_within(key) else None

    def range(
        self,
        low: Key | None,
        high: Key | None,
        *,
        low_inclusive: bool = True,
        high_inclusive: bool = True,
        is_reverse: bool = False,
        columns: Columns | None = None,
    ) -> Iterator[Row]:
        found = super().range(
            low,
            high,
            low_inclusive=low_inclusive,
            high_inclusive=high_inclusive,
            is_reverse=is_reverse,
            columns=columns,
        )
        key_of = self.table.key_of
        return (row for row in found if self._is_within(key_of(row)))

    def count(self) -> int:
        return sum(1 for _ in self.rows())

    def rows(self, columns: Columns | None = None) -> Iterator[Row]:
        """Yield the rows in the order of their keys."""
        return super().range(self._low, self._high, high_inclusive=False, columns=columns)

    def entries(self) -> Iterator[PageEntry]:
        low, high = self._low, self._high
        for entry in super().entries():
            if (low is None or low <= entry.high) and (high is None or entry.low < high):
                yield entry

    def above_pages(
        self, ordinals: Sequence[int], entries: Sequence[PageEntry]
    ) -> "tuple[Mapping[PageEntry, pa.Array], list[pa.RecordBatch]]":
        hidden = {entry: bits for entry in entries if (bits := self._outside(entry))}
        rows = self._rows_above(hidden)
        live = {entry: masked_live(entry, bits) for entry, bits in hidden.items()}
        return live, [
            rows_batch(self.table, ordinals, rows[start : start + page_rows_max])
            for start in range(0, len(rows), page_rows_max)
        ]

    def _outside(self, entry: PageEntry) -> int:
        """Return the rows of a page that are outside of the range, as bits."""
        start, stop, count = 0, entry.row_count, entry.row_count
        if self._low is not None and entry.low < self._low:
            start = entry.page.lower_bound(self._low, True)
        if self._high is not None and entry.high >= self._high:
            stop = entry.page.lower_bound(self._high, True)
        every, before = (1 << count) - 1, (1 << start) - 1
        return before | (every ^ ((1 << stop) - 1))

    def _rows_above(self, hidden: dict[PageEntry, int]) -> list[Row]:
        """Return the rows that do not stand in pages; hide in pages what something decides about.

        `hidden` are bits by page, of all pages that are read.
        """
        rows: list[Row] = []
        pages = self.pages
        keys = self._overlay_keys(
            self._low, self._high, low_open=False, high_open=True, reverse=False
        )
        for key in keys:
            version = self.version(key)
            if version is None:
                continue
            found = pages.locate(key) if pages is not None else None
            if found is not None:
                hidden[found[0]] = hidden.get(found[0], 0) | 1 << found[1]
            row = version[1]
            if row is not None:
                rows.append(row)
        return rows
