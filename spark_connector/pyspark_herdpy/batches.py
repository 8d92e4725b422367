"""Arrow batches on their way between herdpy and Spark, neither too small nor too large."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES_MAX = 4 * 1024 * 1024


def joined(batches: "Iterable[pa.RecordBatch]", rows_max: int) -> "Iterator[pa.RecordBatch]":
    """Yield the rows in fewer batches of at most so many rows, as each costs what thousands do.

    A batch that is larger stays as it is, and those without rows are left out.
    """
    waiting: list[pa.RecordBatch] = []
    row_count = byte_count = 0
    for batch in batches:
        more = batch.get_total_buffer_size()
        is_full = row_count + batch.num_rows > rows_max or byte_count + more > _BYTES_MAX
        if waiting and is_full:
            yield _one(waiting)
            waiting, row_count, byte_count = [], 0, 0
        if batch.num_rows:
            waiting.append(batch)
            row_count += batch.num_rows
            byte_count += more
    if waiting:
        yield _one(waiting)


def _one(batches: "list[pa.RecordBatch]") -> "pa.RecordBatch":
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole
