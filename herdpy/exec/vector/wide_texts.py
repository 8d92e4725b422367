"""Tables whose texts may be long, as DuckDB is given them: a few rows at a time, texts as lists.

DuckDB computes 2,048 rows at a time and counts none of the texts that it makes of them. It makes as
many as it is given at once; but where a filter or a join leaves fewer than 64, it gathers copies of
them until it has 2,048, unless there is a list among their columns.
"""

from array import array
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from herdpy.exec.vector.arrow_columns import pc
from herdpy.limits import value_bytes_max

LIVE = "__live"
"""The column of exec/interfaces.py: RowSource.arrow."""
_VECTOR_ROWS = 2_048
_BATCHES_MAX = 16_384
"""Of one table: each takes 1.3 kB, and 10 µs to be made and read."""
_BATCH_BYTES = value_bytes_max // 4  # so that twice as many rows as expected are not too many


def longest_text(tables: Iterable[pa.Table]) -> int:
    """Return the bytes of the longest text or bytea of tables, by half a nanosecond for each."""
    longest = 0
    for column in (column for table in tables for column in table.columns):
        texts: Any = column
        if pa.types.is_dictionary(column.type):  # of each page one; one call for all takes a third
            texts = pa.chunked_array(
                [page.dictionary for page in column.iterchunks()], column.type.value_type
            )
        if _is_text(texts.type):
            longest = max(longest, pc.max(pc.binary_length(texts)).as_py() or 0)
    return longest


def longest_of(values: Iterable[Any]) -> int:
    """Return the same of parameters, also in lists; of a text, the most that it may have."""
    longest = 0
    for value in values:
        if isinstance(value, list):
            longest = max(longest, longest_of(value))  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, str | bytes):
            width = 1 if isinstance(value, bytes) or value.isascii() else 4
            longest = max(longest, len(value) * width)
    return longest


def in_short_batches(table: pa.Table, made_bytes: int) -> pa.Table:
    """Return a table in batches for texts of so many bytes that are made for each row.

    Each text is a list of it alone, and so is each value of LIVE, which all filters see.
    """
    least = -(-table.num_rows // _BATCHES_MAX)
    rows = min(max(_BATCH_BYTES // max(made_bytes, 1), least, 1), _VECTOR_ROWS)
    longest = max((len(chunk) for column in table.columns for chunk in column.chunks), default=0)
    numbers = pa.py_buffer(array("i", range(longest + 1)))
    offsets = pa.Array.from_buffers(pa.int32(), longest + 1, [None, numbers])
    columns = [
        pa.chunked_array(
            [_listed(chunk, offsets) for chunk in column.chunks], pa.list_(column.type)
        )
        if name == LIVE or _is_text(column.type) or pa.types.is_dictionary(column.type)
        else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    listed = pa.Table.from_arrays(columns, names=table.column_names)
    return pa.Table.from_batches(listed.to_batches(max_chunksize=rows), listed.schema)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def _listed(values: Any, offsets: Any) -> pa.Array:
    """Return each value as a list of it; `offsets` are 0, 1, 2 … of at least as many."""
    return pa.ListArray.from_arrays(offsets.slice(0, len(values) + 1), values)
