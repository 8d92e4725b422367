"""Rows and Arrow batches, one into the other; the only module of exec that makes Arrow types."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from herdpy.errors import DataError, InternalError
from herdpy.exec.coerce import to_physical
from herdpy.model.types import Kind, SqlType, decimal_type

Columns = Sequence[tuple[str, SqlType]]

_ARROW_TYPES: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.BYTEA: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.UNKNOWN: pa.string(),  # an untyped NULL or literal is TEXT in a result
}


def arrow_schema(columns: Columns) -> pa.Schema:
    """Return the schema of results with these columns."""
    return pa.schema([(name, arrow_type(sql_type)) for name, sql_type in columns])


def arrow_type(sql_type: SqlType) -> pa.DataType:
    """Return the Arrow type of a result column."""
    if sql_type.kind is Kind.DECIMAL:
        return pa.decimal128(sql_type.precision or 38, sql_type.scale or 0)
    return _ARROW_TYPES[sql_type.kind]


def rows_reader(
    columns: Columns, rows: Iterator[tuple[Any, ...]], rows_per_batch: int
) -> pa.RecordBatchReader:
    """Return logical rows as Arrow batches of at most so many rows, read as they are asked for."""
    schema = arrow_schema(columns)

    def batches() -> Iterator[pa.RecordBatch]:
        while chunk := list(islice(rows, rows_per_batch)):
            arrays = [
                pa.array([row[index] for row in chunk], type=field.type)
                for index, field in enumerate(schema)
            ]
            yield pa.record_batch(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch under the names of schema; its types must be those already.

    A column of Arrow's null type becomes one of the wanted type. Anything else is an InternalError:
    the tree promised another type than the query gave.
    """
    arrays: list[pa.Array] = []
    for array, field in zip(batch.columns, schema, strict=True):
        if array.type != field.type and not pa.types.is_null(array.type):
            raise InternalError(
                f'column "{field.name}" of a vector query: expected {field.type}, found'
                f" {array.type}",
                hint="This is a bug in herdpy: the printed query lacks a cast.",
            )
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.record_batch(arrays, schema=schema)


def logical_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a batch as logical values."""
    try:
        return zip(*[column.to_pylist() for column in batch.columns], strict=True)
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"a date or timestamp of the result is outside the years 1 to 9999: {error}",
            sqlstate="22008",
        ) from None


def physical_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a batch as physical values."""
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


_VIEWS = {"date32[day]": pa.int32(), "timestamp[us]": pa.int64()}
