"""Pages and rows as Arrow tables; the one module of storage that imports pyarrow.

Columns of pages are zero-copy over the mapped, verified buffers and cached with the page; the
table's columns are c<ordinal> and, last, `__live` (exec/interfaces.py: RowSource.arrow). A TEXT
column is dictionary<int32, string> in all chunks as soon as one page has it so.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute

from herdpy.limits import page_rows_max
from herdpy.model.schema import Column, Table
from herdpy.model.types import Kind, Physical, Row, SqlType
from herdpy.storage.column import ColumnBuffers, Layout, layout_of
from herdpy.storage.table_pages import PageEntry

pc: Any = pyarrow.compute  # whose stubs know not all that its functions take
Array = Any  # pa.Array: likewise
LIVE = "__live"
LEAST_BITS = -(2**63)
"""The bits of -0.0 as an integer, which is the least one of all."""

_TYPES = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.SMALLINT: pa.int16(),
    Kind.INTEGER: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.REAL: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.BYTEA: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.TIMESTAMPTZ: pa.timestamp("us"),  # UTC; the zone is put on where results are made
}
INTEGERS: dict[Layout, pa.DataType] = {
    Layout.INT16: pa.int16(),
    Layout.INT32: pa.int32(),
    Layout.INT64: pa.int64(),
}
"""The types whose bits stand in pages for these layouts, whatever the column's own type."""
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
_COUNTING = pa.array(range(page_rows_max), pa.int32())
ALL_LIVE = pa.array([True] * page_rows_max)


def arrow_type(sql_type: SqlType) -> pa.DataType:
    """Return the Arrow type of a column that is not dictionary-coded."""
    if sql_type.kind is Kind.DECIMAL:
        precision, scale = sql_type.precision or 38, sql_type.scale or 0
        if layout_of(sql_type) is Layout.INT64:
            return pa.decimal64(precision, scale)
        return pa.decimal128(precision, scale)
    return _TYPES[sql_type.kind]


def column_array(entry: PageEntry, ordinal: int, *, as_dictionary: bool = False) -> pa.Array:
    """Return one column of a page, every row of it; as_dictionary wraps plain text."""
    page = entry.page
    key = (ordinal, as_dictionary)
    array = page.arrow_cache.get(key)
    if array is None:
        column = page.table.columns[ordinal]
        buffers = page.buffers(ordinal)
        if buffers is None:
            array = _array_of(column.type, [column.default] * page.row_count)
        else:
            array = _page_array(column, buffers, page.row_count)
        if as_dictionary and not pa.types.is_dictionary(array.type):
            array = _as_dictionary(array)
        page.arrow_cache[key] = array
    return array


def has_negative_zero(
    entries: Iterable[PageEntry], overlays: Iterable[pa.RecordBatch], ordinal: int
) -> bool:
    """Tell whether -0.0 stands in a column of DOUBLEs of what scan_table() was given."""
    for entry in entries:
        found = entry.page.arrow_cache.get((ordinal, LEAST_BITS))
        if found is None:
            found = _has_negative_zero(column_array(entry, ordinal))
            entry.page.arrow_cache[ordinal, LEAST_BITS] = found
        if found:
            return True
    return any(_has_negative_zero(overlay.column(f"c{ordinal}")) for overlay in overlays)


def _has_negative_zero(array: Array) -> bool:
    return pc.min(array.view(pa.int64())).as_py() == LEAST_BITS


def batch(entry: PageEntry, ordinals: Sequence[int]) -> pa.RecordBatch:
    """Return columns of one page, dead rows included, each in the page's own encoding."""
    arrays = [
        column_array(entry, ordinal, as_dictionary=entry.page.is_dictionary(ordinal))
        for ordinal in ordinals
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{ordinal}" for ordinal in ordinals])


def live_array(entry: PageEntry) -> pa.Array | None:
    """Return which rows of a page live, None when all do."""
    if entry.dead is not None and entry.arrow_live is None:
        entry.arrow_live = masked_live(entry, 0)
    return entry.arrow_live


def bits_array(bits: int, count: int) -> pa.Array:
    """Return `count` truth values from the bits of a number, the lowest first."""
    data = pa.py_buffer(bits.to_bytes((count + 7) // 8, "little"))
    return pa.Array.from_buffers(pa.bool_(), count, [None, data])


def masked_live(entry: PageEntry, hidden: int) -> pa.Array:
    """Return which rows of a page live when those whose bits are set in `hidden` do not."""
    dead = int.from_bytes(entry.dead or b"", "little") | hidden
    return bits_array(((1 << entry.row_count) - 1) ^ dead, entry.row_count)


def rows_batch(table: Table, ordinals: Sequence[int], rows: Sequence[Row]) -> pa.RecordBatch:
    """Return physical rows as columns c<ordinal>, for the overlay; text is plain."""
    arrays = [
        _array_of(table.columns[ordinal].type, [row[ordinal] for row in rows])
        for ordinal in ordinals
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{ordinal}" for ordinal in ordinals])


def marked_batch(
    arrays: Mapping[int, pa.Array], ordinals: Sequence[int], live: pa.Array
) -> pa.RecordBatch:
    """Return arrays kept by ordinal as columns c<ordinal>, and as `__live` which rows live."""
    return pa.RecordBatch.from_arrays(
        [*(arrays[ordinal] for ordinal in ordinals), live],
        names=[*(f"c{ordinal}" for ordinal in ordinals), LIVE],
    )


def scan_table(
    table: Table,
    entries: Sequence[PageEntry],
    overlays: Sequence[pa.RecordBatch],
    ordinals: Sequence[int],
    live: Mapping[PageEntry, pa.Array] | None = None,
) -> pa.Table:
    """Return pages, then overlays, as one table of c<ordinal> columns and `__live`.

    Overlays come from rows_batch with at least these ordinals; all their rows live unless they
    have a `__live` column. `live` says of pages under the overlay which of their rows it leaves
    (masked_live).
    """
    columns: list[pa.ChunkedArray] = []
    for ordinal in ordinals:
        sql_type = table.columns[ordinal].type
        is_dictionary = sql_type.kind is Kind.TEXT and any(
            entry.page.is_dictionary(ordinal) for entry in entries
        )
        chunks = [column_array(entry, ordinal, as_dictionary=is_dictionary) for entry in entries]
        for overlay in overlays:
            array = overlay.column(f"c{ordinal}")
            chunks.append(_as_dictionary(array) if is_dictionary else array)
        column_type = _DICTIONARY if is_dictionary else arrow_type(sql_type)
        columns.append(pa.chunked_array(chunks, type=cast(Any, column_type)))
    masks = live or {}
    marks = [
        masks.get(entry) or live_array(entry) or ALL_LIVE.slice(0, entry.row_count)
        for entry in entries
    ]
    for overlay in overlays:
        has_live = LIVE in overlay.schema.names
        marks.append(overlay.column(LIVE) if has_live else _all_live(overlay.num_rows))
    columns.append(pa.chunked_array(marks, type=pa.bool_()))
    return pa.Table.from_arrays(columns, names=[*(f"c{ordinal}" for ordinal in ordinals), LIVE])


def _all_live(count: int) -> pa.Array:
    return ALL_LIVE.slice(0, count) if count <= page_rows_max else pa.array([True] * count)


def _as_dictionary(array: pa.Array) -> pa.Array:
    """Wrap plain text without copying it: row i has index i."""
    count = len(array)
    counting = (
        _COUNTING.slice(0, count) if count <= page_rows_max else pa.array(range(count), pa.int32())
    )
    if array.null_count:
        # An Arrow bitmap starts at a bit of its own array, so offsets must be nil on both sides.
        if array.offset:
            array = pa.concat_arrays([array])
        buffers = [array.buffers()[0], counting.buffers()[1]]
        counting = pa.Array.from_buffers(pa.int32(), count, buffers, array.null_count)
    return pa.DictionaryArray.from_arrays(counting, array)


def _page_array(column: Column, buffers: ColumnBuffers, count: int) -> pa.Array:
    validity = None if buffers.validity is None else pa.py_buffer(buffers.validity)
    data = [pa.py_buffer(view) for view in buffers.data]
    nulls = buffers.null_count
    if not buffers.is_dictionary:
        return pa.Array.from_buffers(arrow_type(column.type), count, [validity, *data], nulls)
    indices = pa.Array.from_buffers(pa.int32(), count, [validity, data[0]], nulls)
    words = len(buffers.data[1]) // 4 - 1
    dictionary = pa.Array.from_buffers(pa.string(), words, [None, *data[1:]], 0)
    return pa.DictionaryArray.from_arrays(indices, dictionary)


def _array_of(sql_type: SqlType, values: Sequence[Physical]) -> pa.Array:
    """Return physical values as an array of the column's type."""
    layout = layout_of(sql_type)
    target = arrow_type(sql_type)
    storage: Any = INTEGERS.get(layout, target)
    if layout is Layout.INT128:
        storage = pa.binary(16)
        values = [None if value is None else _int128(value) for value in values]
    array = pa.array(values, storage)
    if storage == target:
        return array
    return pa.Array.from_buffers(target, len(array), array.buffers(), array.null_count)


def _int128(value: Physical) -> bytes:
    return int(value).to_bytes(16, "little", signed=True)  # type: ignore[arg-type]  # not NULL
