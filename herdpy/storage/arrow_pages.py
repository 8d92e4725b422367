"""Pages straight from Arrow columns, without a Python object for each value.

What build_page() makes of the same rows, but for what stands under NULLs. Any thread.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa

from herdpy.errors import InvariantViolation
from herdpy.limits import page_bytes_max, page_rows_max
from herdpy.model.keys import canonical_key
from herdpy.model.schema import Column, Table
from herdpy.model.types import FLOAT_KINDS, Key, Kind, Row
from herdpy.storage.arrow import INTEGERS, Array, pc
from herdpy.storage.arrow_staged import physical_values, viewed
from herdpy.storage.column import FLOATS, WIDTHS, Layout, layout_of, zone_of
from herdpy.storage.page import (
    BuiltPage,
    ColumnHeader,
    Heap,
    build_page,
    finish_page,
    integer_key,
    split_rows,
)

_PLAIN = INTEGERS | {Layout.FLOAT32: pa.float32(), Layout.FLOAT64: pa.float64()}
_ROWS_BYTES = 1024 * 1024
"""Of columns that become Python rows at a time."""


def build_pages(table: Table, columns: Sequence[Array]) -> Iterator[BuiltPage]:
    """Yield pages of whole rows, given by column, which ascend by key; each key once."""
    whole = [_whole(array) for array in columns]
    count = len(whole[0]) if whole else 0
    for start in range(0, count, page_rows_max):
        part = [array.slice(start, page_rows_max) for array in whole]
        byte_count = sum(array.nbytes for array in part)
        if byte_count < page_bytes_max // 2:
            yield _page(table, part)
        else:
            for piece in split_rows(table, _wide_rows(table, part, byte_count)):
                yield build_page(table, piece)


def _wide_rows(table: Table, columns: Sequence[Array], byte_count: int) -> Iterator[Row]:
    """Yield the rows of columns of byte_count bytes, not many bytes of them made at a time."""
    count = len(columns[0])
    step = max(1, count * _ROWS_BYTES // byte_count)
    for start in range(0, count, step):
        yield from column_rows(table, [array.slice(start, step) for array in columns])


def column_rows(table: Table, columns: Sequence[Array]) -> list[Row]:
    values = [
        physical_values(array, column) for array, column in zip(columns, table.columns, strict=True)
    ]
    return list(zip(*values, strict=True))


def _whole(array: Array) -> Array:
    """Return an array without offset, of one chunk."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def _page(table: Table, columns: Sequence[Array]) -> BuiltPage:
    heap = Heap()
    headers = [
        _column(column, array, heap) for column, array in zip(table.columns, columns, strict=True)
    ]
    count = len(columns[0])
    ordinal = integer_key(table)
    if ordinal is not None:
        numbers = _plain(columns[ordinal], layout_of(table.columns[ordinal].type))
        is_ascending = pc.all(pc.less(numbers.slice(0, count - 1), numbers.slice(1))).as_py()
        ends = ((numbers[0].as_py(),), (numbers[count - 1].as_py(),))
        if is_ascending is False:
            raise InvariantViolation(f'page: rows of table "{table.name}" do not ascend by key')
        return finish_page(table, heap, headers, count, None, cast("tuple[Key, Key]", ends))
    keys = column_keys(table, [columns[each] for each in table.key])
    if not all(map(lambda low, high: low < high, keys, keys[1:])):
        raise InvariantViolation(f'page: rows of table "{table.name}" do not ascend by key')
    return finish_page(table, heap, headers, count, keys, (keys[0], keys[-1]))


def column_keys(table: Table, columns: Sequence[Array]) -> list[Key]:
    kinds = table.key_kinds
    values = [
        physical_values(array, table.columns[ordinal])
        for array, ordinal in zip(columns, table.key, strict=True)
    ]
    rows: list[Any] = list(zip(*values, strict=True))
    return (
        [canonical_key(row, kinds) for row in rows]
        if not set(FLOAT_KINDS).isdisjoint(kinds)
        else rows
    )


def _plain(array: Array, layout: Layout) -> Array:
    return viewed(array, _PLAIN[layout])


def _column(column: Column, array: Array, heap: Heap) -> ColumnHeader:
    layout = layout_of(column.type)
    buffers: list[tuple[int, int, int]] = []
    if array.null_count:
        buffers.append(heap.add(_bits(array, 0)))
    is_dictionary = False
    if column.type.kind is Kind.TEXT:
        encoded = array.dictionary_encode()
        words = encoded.dictionary
        if 0 < len(words) <= len(array) // 4:
            is_dictionary = True
            indices = pc.fill_null(encoded.indices, 0) if array.null_count else encoded.indices
            buffers.append(heap.add(_bytes(indices, 4)))
            buffers += [heap.add(part) for part in _strings(words)]
    if layout is Layout.BITS:
        buffers.append(heap.add(_bits(array, 1)))
    elif layout is Layout.BYTES:
        if not is_dictionary:
            buffers += [heap.add(part) for part in _strings(array)]
    else:
        buffers.append(heap.add(_bytes(array, WIDTHS[layout])))
    has_nan, low, high = _zone(column, layout, array)
    return ColumnHeader(
        column.id,
        column.type.kind.value,
        layout,
        is_dictionary,
        array.null_count,
        has_nan,
        low,
        high,
        buffers,
    )


def _bytes(array: Array, width: int) -> bytes:
    view = memoryview(array.buffers()[1])
    return bytes(view[array.offset * width : (array.offset + len(array)) * width])


def _bits(array: Array, number: int) -> bytes:
    """Return a bitmap of an array; pages begin at whole bytes of it, as page_rows_max does."""
    if array.offset % 8:
        array = pa.concat_arrays([array, array.slice(0, 0)])
    start = array.offset // 8
    return bytes(memoryview(array.buffers()[number])[start : start + (len(array) + 7) // 8])


def _strings(array: Array) -> tuple[bytes, bytes]:
    _, places, data = array.buffers()
    offsets = pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, places], 0, array.offset)
    first, last = offsets[0].as_py(), offsets[len(array)].as_py()
    text = bytes(memoryview(data)[first:last]) if data is not None else b""
    if first:
        offsets = pc.subtract(offsets, pa.scalar(first, pa.int32()))
    return _bytes(offsets, 4), text


def _zone(column: Column, layout: Layout, array: Array) -> tuple[bool, Any, Any]:
    if array.null_count == len(array):
        return False, None, None
    if layout is Layout.INT128:
        found = pc.min_max(array)
        low, high = (_bytes(pa.array([found[end].as_py()], array.type), 16) for end in found)
        return False, low, high
    if layout in FLOATS:
        nan = pc.is_nan(array)
        has_nan = bool(pc.any(nan).as_py())
        if has_nan:
            array = array.filter(pc.invert(nan))
            if array.null_count == len(array):
                return True, None, None
        found = pc.min_max(array)
        return has_nan, found["min"].as_py(), None if has_nan else found["max"].as_py()
    values = _plain(array, layout) if layout in _PLAIN else array
    found = pc.min_max(values)
    return zone_of(layout, [found["min"].as_py(), found["max"].as_py()])
