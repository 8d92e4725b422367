"""What a program hands to ingest(), as Arrow batches of a bounded size; Arrow to and from bytes.

Arrow tables, batches and readers; whatever gives an Arrow stream (`__arrow_c_stream__`: pandas,
polars, DuckDB); and rows as dicts, whose values are converted as parameters of INSERT are. An
iterable is read as the batches are asked for. One thread at a time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from herdpy.errors import DataError, Error, ProgrammingError
from herdpy.exec.coerce import compile_row_converter, output_converter
from herdpy.exec.vector.arrow_columns import plain
from herdpy.exec.vector.arrow_rows import arrow_type
from herdpy.exec.vector.arrow_stream import halved
from herdpy.exec.vector.untrusted_arrow import is_shared, plain_bytes
from herdpy.model.schema import Table
from herdpy.model.types import Kind

BATCH_ROWS_MAX = 65_536
BATCH_BYTES_MAX = 4 * 1024 * 1024
_DICT_ROWS = 8_192
_INDEX_PREFIX = "__index_level_"
"""How pandas names an index that has no name."""


def input_batches(data: Any, table: Table) -> Iterator[pa.RecordBatch]:
    """Yield the data in batches of at most BATCH_ROWS_MAX rows and about BATCH_BYTES_MAX.

    ProgrammingError for what is no data; DataError for rows that do not fit their columns.
    """
    for batch in _batches(data, table):
        for start in range(0, batch.num_rows, BATCH_ROWS_MAX):
            yield from _parts(batch.slice(start, BATCH_ROWS_MAX))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of about BATCH_BYTES_MAX, without dictionaries and the like."""
    if not any(is_shared(kind) for kind in batch.schema.types):
        yield from halved(batch, BATCH_BYTES_MAX)
    elif batch.num_rows > 1 and plain_bytes(batch) > BATCH_BYTES_MAX:
        middle = batch.num_rows // 2
        yield from _parts(batch.slice(0, middle))
        yield from _parts(batch.slice(middle))
    else:
        # A slice would carry the whole dictionary.
        yield pa.record_batch(list(map(plain, batch.columns)), names=batch.schema.names)


def check_input(data: object) -> None:
    """Raise ProgrammingError for what can be no data, before anything else happens."""
    is_stream = isinstance(data, (pa.RecordBatch, pa.Table)) or hasattr(data, "__arrow_c_stream__")
    is_text = isinstance(data, (str, bytes, bytearray, Mapping))
    if not is_stream and (is_text or not isinstance(data, Iterable)):
        raise ProgrammingError(
            "ingest: data: expected Arrow, pandas, polars or an iterable of dicts, found "
            f"{type(data).__name__}",
            sqlstate="42804",
            hint="a dict of columns becomes a table by pyarrow.table(data)",
        )


def _batches(data: Any, table: Table) -> Iterator[pa.RecordBatch]:
    check_input(data)
    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
    elif isinstance(data, pa.RecordBatchReader):
        yield from data
    elif hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        names = [name for name in reader.schema.names if not name.startswith(_INDEX_PREFIX)]
        is_whole = len(names) == len(reader.schema.names)
        for batch in reader:
            yield batch if is_whole else batch.select(names)
    else:
        yield from _of_dicts(iter(data), table)


def _of_dicts(rows: Iterator[Any], table: Table) -> Iterator[pa.RecordBatch]:
    first = next(rows, None)
    if first is None:
        return
    names = list(first) if isinstance(first, Mapping) else []
    columns = {column.name: place for place, column in enumerate(table.columns)}
    ordinals = [columns.get(name, columns.get(str(name).lower())) for name in names]
    known = [ordinal for ordinal in ordinals if ordinal is not None]
    if len(known) < len(names) or len(set(known)) < len(known):
        # The caller that takes the batches knows how to say which one.
        yield pa.record_batch([pa.nulls(1)] * len(names), names=list(map(str, names)))
        return
    convert = compile_row_converter(_unfilled(table), known)
    schema = pa.schema(
        [(str(n), arrow_type(table.columns[o].type)) for n, o in zip(names, known, strict=True)]
    )
    at = 1
    for chunk in _chunks(chain((first,), rows)):
        whole = [_converted(row, names, convert, at + index) for index, row in enumerate(chunk)]
        at += len(chunk)
        arrays = [
            _array([row[o] for row in whole], table.columns[o].type, field.type)
            for o, field in zip(known, schema, strict=True)
        ]
        if arrays:
            yield pa.record_batch(arrays, schema=schema)
        else:  # of which the number of rows is all there is
            yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(chunk), pa.struct([])))


def _unfilled(table: Table) -> Table:
    """Return a table that takes no value of a sequence: only what is given goes on from here."""
    columns = tuple(replace(column, filling=None) for column in table.columns)
    return replace(table, columns=columns) if table.is_filled else table


def _chunks(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while chunk := list(islice(rows, _DICT_ROWS)):
        yield chunk


def _converted(row: Any, names: Sequence[str], convert: Any, at: int) -> tuple[Any, ...]:
    try:
        if len(row) != len(names) or not (names or isinstance(row, Mapping)):
            raise KeyError
        values = [row[name] for name in names]
    except (TypeError, LookupError):
        found = ", ".join(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
        wanted = f"a dict with {', '.join(map(str, names))}, as the first row has"
        if not names:
            wanted = "a dict" if at == 1 else "a dict without names, as the first row is"
        raise ProgrammingError(
            f"row {at:,} of the data: expected {wanted}; found {found[:200]}",
            sqlstate="07001",
            hint="None stands for NULL" if names else None,
        ) from None
    try:
        return convert(values, 0)
    except Error as error:
        error.message = f"row {at:,} of the data: {error.message}"
        raise


_STORAGE = {Kind.DATE: pa.int32(), Kind.TIMESTAMP: pa.int64(), Kind.TIMESTAMPTZ: pa.int64()}


def _array(values: list[Any], sql_type: Any, kind: pa.DataType) -> pa.Array:
    """Return physical values as an array of the column's type in results."""
    storage = _STORAGE.get(sql_type.kind)
    if storage is not None:
        return pa.array(values, storage).view(kind)
    convert = output_converter(sql_type)
    if convert is not None:
        values = [None if value is None else convert(value) for value in values]
    try:
        return pa.array(values, kind)
    except pa.ArrowException as error:  # a DECIMAL of no precision has at most 38 digits in Arrow
        raise DataError(f"ingest: {error}", sqlstate="22003") from error


# --- over the wire -------------------------------------------------------------------------------


def batch_bytes(batch: pa.RecordBatch) -> bytes:
    """Return a batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
