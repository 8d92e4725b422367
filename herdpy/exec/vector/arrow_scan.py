"""Whole columns of one table as Arrow batches, without DuckDB: pages as they lie, decoded only.

What SELECT of plain columns without WHERE, ORDER BY and LIMIT gives. One thread at a time.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from herdpy.exec.interfaces import Interrupt, RowSource
from herdpy.exec.vector.arrow_columns import pc
from herdpy.exec.vector.arrow_rows import Columns, arrow_schema
from herdpy.exec.vector.arrow_stream import reader_of

_GROUP_MAX = 16
"""Pages."""
_GROUP_BYTES = 4 * 1024 * 1024
"""Of results, about: what texts take that lie in a page as a dictionary is known behind them."""


def scan_reader(
    source: RowSource,
    ordinals: Sequence[int],
    columns: Columns,
    interrupt: Interrupt,
    rows_per_batch: int,
) -> pa.RecordBatchReader:
    """Return every row of a source, in any order; `columns` are names and types of ordinals."""
    schema = arrow_schema(columns)
    places = {ordinal: place for place, ordinal in enumerate(dict.fromkeys(ordinals))}
    table = source.arrow(list(places), ())
    wanted = [places[ordinal] for ordinal in ordinals]

    def batches() -> Iterator[pa.RecordBatch]:
        pages = table.to_batches(max_chunksize=rows_per_batch)
        begin, count = 0, 1
        while begin < len(pages):
            interrupt.check()
            # Several pages at a time: each step on columns takes its time, whatever they have.
            group = pa.Table.from_batches(pages[begin : begin + count])
            begin += count
            live = group.column(group.num_columns - 1)
            if not pc.all(live).as_py():
                group = group.filter(live)
            columns = [
                _as_result(group.column(at), field.type)
                for at, field in zip(wanted, schema, strict=True)
            ]
            made = pa.Table.from_arrays(columns, schema=schema)
            yield from made.to_batches()
            count = _next_count(count, made.get_total_buffer_size())

    return reader_of(schema, batches())


def _next_count(count: int, byte_count: int) -> int:
    """Return how many pages to take next when so many gave so many bytes."""
    if byte_count > _GROUP_BYTES:
        return max(1, count // 2)
    return min(2 * count, _GROUP_MAX) if 2 * byte_count <= _GROUP_BYTES else count


def _as_result(array: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column of a page in the type of results: text not as a dictionary, wide decimals."""
    return array if array.type == kind else array.cast(kind)
