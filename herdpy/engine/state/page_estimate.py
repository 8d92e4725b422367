"""How many bytes the next checkpoint is going to write, estimated from what is in memory.

Cheap where there is plenty of room: what the rows take in memory is more than their pages. Only
when that is not enough to know, some rows of each table are measured. Any thread; reads only, and
nothing of it has to hold still.
"""

from collections.abc import Iterable

from herdpy.engine.state.applier import Applier
from herdpy.engine.state.staged import Stage
from herdpy.engine.state.state import TableState
from herdpy.limits import key_bytes_max, page_bytes_max, page_rows_max
from herdpy.model.schema import Table
from herdpy.model.types import Row
from herdpy.storage.column import Layout, layout_of
from herdpy.storage.manifest import PageRef
from herdpy.storage.table_pages import TablePages

_SAMPLE_ROWS = 64
_ROW_BYTES = 16
"""Beside its values: its share of the key's index, of null bitmaps and of the page's header."""
_TABLE_BYTES = 2 * 1024
"""Of a table with any change: a page's header and alignment."""
_BITMAP_BYTES = 640
"""Of one page, at most, in which rows are deleted or replaced."""
_REF_BYTES = 64
"""Of the manifest's record for a page, beside its first and its last key."""
_KEY_VALUE_BYTES = 32
"""Of a key, for each value in it that is no text, at most."""
_PARTS = 2
"""Of a table's rows, that have pages of their own: those behind its last page, and the others."""
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
    fixed += sum(_stage_listing(stage) for stage in state.staged.stages.values())
    # Each lease that lives in memory has its rows written for itself, and all its pages listed.
    lease_count = sum(not lease.is_pages for lease in list(applier.leases))
    if lease_count:
        fixed += lease_count * sum(_listed(table.pages) for table in state.tables.values())
    copies = 1 + lease_count
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
    """Return what bitmaps take, what the manifest says, and pages that are in memory."""
    changes = sum(map(len, table.memtables))
    pages = sum(map(len, (table.pages.base, *table.pages.runs)))
    found = _TABLE_BYTES + _BITMAP_BYTES * min(changes, pages)
    for memtable in table.memtables:
        found += _listing(table.table, len(memtable), memtable.byte_count)
    if table.is_unlisted:
        found += _listed(table.pages)
        found += sum(e.ref.length for e in table.pages.entries() if e.is_in_memory)
    return found


def _stage_listing(stage: Stage) -> int:
    row_count = sum(piece.row_count for piece in stage.pieces)
    return _listing(stage.table, row_count, stage.piece_bytes)


def _listing(table: Table, row_count: int, byte_count: int) -> int:
    """Return what the manifest says at most of the pages that are made of so much."""
    cuts = row_count // page_rows_max + 2 * byte_count // page_bytes_max
    page_count = min(row_count, _PARTS + cuts)
    # A key is a part of its row, too.
    return page_count * _REF_BYTES + 2 * min(page_count * _longest_key(table), byte_count)


def _longest_key(table: Table) -> int:
    """Return how many bytes a key of the table may have."""
    types = [table.columns[ordinal].type for ordinal in table.key]
    if any(layout_of(each) is Layout.BYTES for each in types):
        return key_bytes_max
    return _KEY_VALUE_BYTES * len(types)


def _listed(pages: TablePages) -> int:
    """Return what the manifest says of pages when it lists them anew."""
    return sum(_ref_bytes(entry.ref) for entry in pages.entries())


def _ref_bytes(ref: PageRef) -> int:
    return _REF_BYTES + len(ref.low_key) + len(ref.high_key)


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
