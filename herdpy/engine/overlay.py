"""The vector path's view of a table: pages as they lie, masked rows, and the overlay as a batch.

Rows that a memtable or the write set decides about are hidden in their page, and their visible
versions follow as a last batch. What one position sees of a table is computed once and kept with
its memtable until something newer is asked for.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from herdpy.exec.interfaces import ColumnRange
from herdpy.model.types import Key, Row
from herdpy.storage.arrow import rows_batch, scan_table
from herdpy.storage.table_pages import PageEntry, TablePages

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.engine.snapshots import TableSnapshot


class Overlay(NamedTuple):
    """What lies over the pages: visible rows, and the page rows that they replace or delete."""

    rows: list[Row]
    hidden: dict[PageEntry, list[int]]


def arrow_table(
    source: "TableSnapshot", ordinals: Sequence[int], prune: Sequence[ColumnRange]
) -> "pa.Table":
    """Return the table for DuckDB; see exec.interfaces.RowSource.arrow."""
    ordinals = ordinals or source.table.key[:1]  # a batch without columns would have no rows
    overlay = source.overlay_of(make_overlay)
    pages = source.pages
    entries = [
        entry
        for entry in (pages.entries() if pages is not None else ())
        if entry.dead_count < entry.row_count
        and all(entry.page.may_hold(item.ordinal, item.low, item.high) for item in prune)
    ]
    batches = [rows_batch(source.table, ordinals, overlay.rows)] if overlay.rows else []
    return scan_table(source.table, entries, batches, ordinals, overlay.hidden)


def make_overlay(source: "TableSnapshot", keys: Sequence[Key], pages: TablePages | None) -> Overlay:
    """Look up what decides each key, and where the pages have it."""
    rows: list[Row] = []
    hidden: dict[PageEntry, list[int]] = {}
    for key in keys:
        is_decided, row = source.overlay_row(key)
        if not is_decided:
            continue
        if row is not None:
            rows.append(row)
        found = pages.locate(key) if pages is not None else None
        if found is not None:
            hidden.setdefault(found[0], []).append(found[1])
    return Overlay(rows, hidden)
