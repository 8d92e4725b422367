"""Staged rows as the log carries them: an Arrow IPC stream of columns c<ordinal>, as in pages.

Columns that are not given are NULL: a delete gives its key alone. Any thread.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from herdpy.errors import CorruptionError
from herdpy.model.schema import Column, Table
from herdpy.model.types import Physical, Row
from herdpy.storage.arrow import INTEGERS, arrow_type
from herdpy.storage.column import Layout, int128, layout_of


def staged_bytes(batch: pa.RecordBatch) -> bytes:
    """Return a batch of columns c<ordinal> as a record has it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def staged_batches(table: Table, data: bytes) -> list[pa.RecordBatch]:
    """Return the batches of a record; CorruptionError for bytes that are no rows of the table."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            batches = list(reader)
            schema = reader.schema
        columns = {f"c{i}": column for i, column in enumerate(table.columns)}
        fits = all(
            field.name in columns and field.type == arrow_type(columns[field.name].type)
            for field in schema
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptionError(f"staged rows of table {table.id}: {error}") from error
    if not fits:
        raise CorruptionError(f"staged rows of table {table.id}: expected its columns, {schema}")
    return batches


def staged_rows(table: Table, data: bytes, first_row_id: int) -> list[Row]:
    """Return the whole rows of a record; those of a table without key with their row ids."""
    rows: list[Row] = []
    for batch in staged_batches(table, data):
        rows += _rows(table, batch, first_row_id + len(rows))
    return rows


def _rows(table: Table, batch: pa.RecordBatch, first_row_id: int) -> list[Row]:
    count = batch.num_rows
    places = {name: place for place, name in enumerate(batch.schema.names)}
    columns: list[Iterable[Physical]] = []
    for ordinal, column in enumerate(table.columns):
        place = places.get(f"c{ordinal}")
        if place is not None:
            columns.append(physical_values(batch.column(place), column))
        elif column.hidden:
            columns.append(range(first_row_id, first_row_id + count))
        else:
            columns.append(repeat(None, count))
    return list(zip(*columns, strict=True)) if count else []


def physical_values(array: pa.Array, column: Column) -> Sequence[Physical]:
    """Return the physical values of an array of a column's type in pages."""
    layout = layout_of(column.type)
    view = INTEGERS.get(layout)
    if view is not None:
        return viewed(array, view).to_pylist()
    if layout is Layout.INT128:
        values: list[Any] = viewed(array, pa.binary(16)).to_pylist()
        return [None if value is None else int128(value) for value in values]
    return array.to_pylist()


def stored_batch(table: Table, ordinals: Sequence[int], arrays: Sequence[Any]) -> pa.RecordBatch:
    """Return columns c<ordinal> of arrays, which are given for all columns of the table."""
    return pa.RecordBatch.from_arrays(
        [_stored(arrays[ordinal], table.columns[ordinal]) for ordinal in ordinals],
        names=[f"c{ordinal}" for ordinal in ordinals],
    )


def _stored(array: Any, column: Column) -> Any:
    """Return an array of the type that pages have for a column; integers are its bits."""
    kind: Any = arrow_type(column.type)
    if array.type == kind:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_integer(array.type):
        return viewed(array, kind)
    return array.cast(kind)


def viewed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same bits as another type of the same width."""
    if array.type == kind:
        return array
    return pa.Array.from_buffers(kind, len(array), array.buffers(), array.null_count, array.offset)
