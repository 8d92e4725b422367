"""Rows and Arrow batches, one into the other; the only module of exec that makes Arrow types."""

import datetime
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from herdpy.errors import DataError, InternalError
from herdpy.exec.coerce import to_physical
from herdpy.exec.vector.arrow_stream import reader_of
from herdpy.model.types import Kind, SqlType, decimal_type

Columns = Sequence[tuple[str, SqlType]]

_ARROW_TYPES: dict[Kind, pa.DataType] = {
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
    Kind.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    Kind.INTERVAL: pa.duration("us"),
    Kind.UNKNOWN: pa.string(),  # an untyped NULL or literal is TEXT in a result
}


def arrow_schema(columns: Columns) -> pa.Schema:
    return pa.schema([(name, arrow_type(sql_type)) for name, sql_type in columns])


def arrow_type(sql_type: SqlType) -> pa.DataType:
    if sql_type.kind is Kind.DECIMAL:
        return pa.decimal128(sql_type.precision or 38, sql_type.scale or 0)
    return _ARROW_TYPES[sql_type.kind]


def rows_reader(
    columns: Columns, rows: Iterator[tuple[Any, ...]], rows_per_batch: int
) -> pa.RecordBatchReader:
    """Return logical rows as Arrow batches of at most so many rows, read as they are asked for.

    A batch ends, too, when it has about _BATCH_BYTES.
    """
    schema = arrow_schema(columns)

    def batches() -> Iterator[pa.RecordBatch]:
        while parts := _parts(rows, schema, rows_per_batch):
            whole = pa.Table.from_batches(parts).combine_chunks()
            yield from whole.to_batches(max_chunksize=rows_per_batch)

    return reader_of(schema, batches())


_BATCH_BYTES = 4 * 1024 * 1024
_FIRST_ROWS = 256


def _parts(
    rows: Iterator[tuple[Any, ...]], schema: pa.Schema, rows_max: int
) -> list[pa.RecordBatch]:
    """Return the next rows, up to a number of them and, about, of bytes; [] behind the last."""
    parts: list[pa.RecordBatch] = []
    count = byte_count = 0
    wanted = min(_FIRST_ROWS, rows_max)
    while wanted and (chunk := list(islice(rows, wanted))):
        arrays = [
            pa.array([row[index] for row in chunk], type=field.type)
            for index, field in enumerate(schema)
        ]
        parts.append(pa.record_batch(arrays, schema=schema))
        count += len(chunk)
        byte_count += parts[-1].nbytes
        # As many as fit, by the rows so far, but never many more at once than before.
        room = (_BATCH_BYTES - byte_count) * count // max(byte_count, 1)
        wanted = max(0, min(4 * wanted, rows_max - count, room))
    return parts


def with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch under the names of schema; its types must be those already.

    A column of Arrow's null type becomes one of the wanted type, a TIMESTAMPTZ gets its zone, which
    inside is never written down, and an INTERVAL comes as microseconds. Anything else is an
    InternalError: the tree promised another type than the query gave.
    """
    arrays: list[pa.Array] = []
    for array, field in zip(batch.columns, schema, strict=True):
        is_alike = pa.types.is_null(array.type) or (array.type, field.type) in (_ZONED, _COUNTED)
        if array.type != field.type and not is_alike:
            raise InternalError(
                f'column "{field.name}" of a vector query: expected {field.type}, found'
                f" {array.type}",
                hint="This is a bug in herdpy: the printed query lacks a cast.",
            )
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.record_batch(arrays, schema=schema)


def logical_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    try:
        return zip(*map(_logical_values, batch.columns), strict=True)
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"a date or timestamp of the result is outside the years 1 to 9999: {error}",
            sqlstate="22008",
        ) from None


def _logical_values(array: pa.Array) -> list[Any]:
    if array.type != _ZONED[1]:
        return array.to_pylist()
    # Arrow would look the zone up, and give another class than the row path does.
    plain: list[Any] = array.view(_ZONED[0]).to_pylist()
    return [None if value is None else value.replace(tzinfo=datetime.UTC) for value in plain]


def physical_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*map(_physical_values, batch.columns), strict=True)


def _physical_values(array: pa.Array) -> list[Any]:
    view = _VIEWS.get(str(array.type))
    if view is not None:
        return array.view(view).to_pylist()
    if pa.types.is_decimal(array.type):
        sql_type = decimal_type(38, array.type.scale)
        convert: Callable[[Any], Any] = lambda value: to_physical(value, sql_type, what="result")  # noqa: E731 - used once
        return [convert(value) for value in array.to_pylist()]
    return array.to_pylist()


_VIEWS = {
    "date32[day]": pa.int32(),
    "timestamp[us]": pa.int64(),
    "timestamp[us, tz=UTC]": pa.int64(),
}
_COUNTED = (pa.int64(), pa.duration("us"))
_ZONED = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
