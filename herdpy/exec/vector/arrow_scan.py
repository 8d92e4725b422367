"""Whole columns of one table as Arrow batches, without DuckDB: pages as they lie, decoded only.

What SELECT of plain columns without WHERE, ORDER BY and LIMIT gives. One thread at a time.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

from herdpy.exec.interfaces import Interrupt, RowSource
from herdpy.exec.vector.arrow_rows import Columns, arrow_schema
from herdpy.exec.vector.arrow_stream import reader_of

pc: Any = pyarrow.compute  # whose stubs know not all that its functions take


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
        for batch in table.to_batches(max_chunksize=rows_per_batch):
            interrupt.check()
            live = batch.column(batch.num_columns - 1)
            if not pc.all(live).as_py():
                batch = batch.filter(live)
            arrays = [
                _as_result(batch.column(at), field.type)
                for at, field in zip(wanted, schema, strict=True)
            ]
            if batch.num_rows:
                yield pa.record_batch(arrays, schema=schema)

    return reader_of(schema, batches())


def _as_result(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column of a page in the type of results: text not as a dictionary, wide decimals."""
    return array if array.type == kind else array.cast(kind)
