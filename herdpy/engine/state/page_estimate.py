"""How many bytes the next checkpoint is going to write, estimated from what is in memory.

Cheap where there is plenty of room: what the rows take in memory is more than their pages. Only
when that is not enough to know, some rows of each table are measured. Any thread; reads only, and
nothing of it has to hold still.
"""

from collections.abc import Iterable

from herdpy.engine.state.applier import Applier
from herdpy.engine.state.state import TableState
from herdpy.model.types import Row

_SAMPLE_ROWS = 64
_ROW_BYTES = 16
"""Beside its values: its share of the key's index, of null bitmaps and of the page's header."""
_TABLE_BYTES = 2 * 1024
"""Of a table with any change: a page's header and alignment."""
_BITMAP_BYTES = 640
"""Of one page, at most, in which rows are deleted or replaced."""
_FIXED_BYTES = 8 * 1024
"""Of a checkpoint: the segment's header, the manifest's record, and their last blocks."""


def checkpoint_bytes(applier: Applier, enough: int) -> int:
    """Return the estimate; where it is surely below `enough`, any number up to that."""
    state = applier.state
    changed = [table for table in state.tables.values() if _has_changes(table)]
    staged = state.staged.piece_bytes
    # Write sets are counted with 3 times the length of their records, and more.
    written = sum(each.byte_count for each in list(applier.transactions.values())) // 2
    if not (changed or staged or written):
        return 0
    fixed = _FIXED_BYTES + staged + staged // 8 + written
    # Each lease that lives in memory has its rows written for itself.
    copies = 1 + sum(not lease.is_pages for lease in list(applier.leases))
    most = fixed + copies * sum(_most(table) for table in changed)
    if most <= enough:
        return most
    return fixed + copies * sum(_likely(table) for table in changed)


def _has_changes(table: TableState) -> bool:
    return bool(len(table.memtable) or table.frozen or table.is_unlisted)


def _most(table: TableState) -> int:
    return _beside_rows(table) + sum(memtable.byte_count for memtable in table.memtables)


def _likely(table: TableState) -> int:
    found = _beside_rows(table)
    for memtable in table.memtables:
        rows = memtable.sample(_SAMPLE_ROWS)
        if rows:
            mean = sum(map(_row_bytes, rows)) / len(rows)
            found += min(int(mean * len(memtable) * 1.25), memtable.byte_count)
    return found


def _beside_rows(table: TableState) -> int:
    """Return what bitmaps take, and pages that are in memory."""
    changes = sum(map(len, table.memtables))
    pages = sum(map(len, (table.pages.base, *table.pages.runs)))
    found = _TABLE_BYTES + _BITMAP_BYTES * min(changes, pages)
    if table.is_unlisted:
        found += sum(e.ref.length for e in table.pages.entries() if e.is_in_memory)
    return found


def _row_bytes(row: Row | None) -> int:
    return 0 if row is None else _ROW_BYTES + _sizes(row)


def _sizes(values: Iterable[object]) -> int:
    found = 0
    for value in values:
        if isinstance(value, str | bytes):
            is_single = isinstance(value, bytes) or value.isascii()
            found += 4 + len(value) * (1 if is_single else 4)
        elif isinstance(value, int | float) and -(2**63) <= value < 2**63:
            found += 8
        else:
            found += 16
    return found
