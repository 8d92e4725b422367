"""Arrow batches as the whole physical rows of one table: what an ingest does with its data.

A column whose Arrow type says that every value fits, or whose values were tested at once, costs no
test per value. All others go value by value through coerce.to_assigned, so what is taken and what
is refused, and how, is the same as for a parameter of INSERT. One thread at a time.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute

from herdpy.errors import DataError, ProgrammingError
from herdpy.exec.coerce import default_sources, to_assigned
from herdpy.exec.interfaces import Numbers
from herdpy.exec.row.row_check import compile_check_row, each_row, must_be_set, short_bytes
from herdpy.model.schema import Column, Table
from herdpy.model.types import DAY_MAX, DAY_MIN, MOMENT_MAX, MOMENT_MIN, Kind, Physical, Row
from herdpy.sql.conversions import REAL_DIGITS, decimal_of

pc: Any = pyarrow.compute  # whose stubs know not all that its functions take
Array = Any  # pa.Array: likewise

_INT64_DIGITS = 18
_INTEGERS = {Kind.SMALLINT: pa.int16(), Kind.INTEGER: pa.int32(), Kind.BIGINT: pa.int64()}


class RowMaker:
    """Makes rows of one table from batches of one schema; columns not named take their default."""

    def __init__(
        self, table: Table, schema: pa.Schema, now_us: int, numbers: Numbers | None = None
    ) -> None:
        """`numbers` gives the values of columns that sequences fill.

        ProgrammingError: a name is no column (42703), or comes twice (42701).
        """
        self.schema = schema
        self._numbers = numbers
        self._filled: dict[int, str] = {}
        """The sequences of columns that are not given."""
        self._table = table
        self._check = compile_check_row(table)
        self._sources: list[int | Physical] = []
        self._is_given: list[bool] = []
        given = _ordinals(table, schema.names)
        space: dict[str, Any] = {"now_us": now_us}
        for ordinal, default in enumerate(default_sources(table, space)):
            self._is_given.append(ordinal in given)
            filling = table.columns[ordinal].filling
            if filling is not None and table.columns[ordinal].takes_values and ordinal not in given:
                self._filled[ordinal] = filling.sequence
                self._sources.append(None)
                continue
            value = given[ordinal] if ordinal in given else eval(default, space)  # noqa: S307 - ours
            self._sources.append(value)

    def rows(self, batch: pa.RecordBatch, first_row: int) -> list[Row]:
        """Return the rows, checked; errors name the row, counted from first_row.

        DataError, ProgrammingError or IntegrityError, as INSERT raises them.
        """
        columns: list[Iterable[Physical]] = []
        is_checked = True
        for ordinal, column in enumerate(self._table.columns):
            source = self._sources[ordinal]
            if ordinal in self._filled:
                columns.append(self._values_of(self._filled[ordinal], batch.num_rows))
            elif not self._is_given[ordinal]:
                columns.append(repeat(source, batch.num_rows))
                is_checked = is_checked and not self._needs_check_of_default(ordinal)
            else:
                array = plain(batch.column(cast("int", source)))
                values = _fast(array, column)
                if values is None:
                    values = _slow(array, column, first_row)
                    is_checked = False
                elif self._needs_check(array, ordinal):
                    is_checked = False
                columns.append(values)
        rows: list[Row] = list(zip(*columns, strict=True))
        if self._table.checks or not is_checked:
            each_row(rows, self._check, first_row)
        return rows

    def _values_of(self, sequence: str, count: int) -> list[Physical]:
        numbers = self._numbers
        assert numbers is not None
        return [numbers.next_value(sequence) for _ in range(count)]

    def arrays(self, batch: pa.RecordBatch) -> list[Array] | None:
        """Return the columns of the rows, None for hidden ones, without a value of Python's.

        Their types are pa.bool_, int16, int32, int64 (also of dates and timestamps), float32,
        float64, decimal128, string and binary. None: the values have to be looked at one by one, by
        rows().
        """
        columns: list[Array] = []
        if self._table.checks:
            return None
        for ordinal, column in enumerate(self._table.columns):
            source = self._sources[ordinal]
            if column.hidden:
                columns.append(None)
            elif ordinal in self._filled:
                return None
            elif not self._is_given[ordinal]:
                if source is not None or must_be_set(self._table, ordinal):
                    return None
                columns.append(pa.nulls(batch.num_rows))
            else:
                array = plain(batch.column(cast("int", source)))
                found = _fast_array(array, column)
                if found is None or self._needs_check(array, ordinal):
                    return None
                columns.append(found)
        return columns

    def _needs_check_of_default(self, ordinal: int) -> bool:
        """Tell whether rows may be refused for what stands in a column that is not given."""
        if self._table.columns[ordinal].hidden:
            return False
        value = self._sources[ordinal]
        if isinstance(value, str | bytes):
            short = short_bytes(self._table, ordinal)
            return short is not None and len(value) > short
        return value is None and must_be_set(self._table, ordinal)

    def _needs_check(self, array: Array, ordinal: int) -> bool:
        """Tell whether a row may be refused for what one column has of the right type."""
        if array.null_count and must_be_set(self._table, ordinal):
            return True
        short = short_bytes(self._table, ordinal)
        if short is None or not _is_text(array.type):  # of NULLs only
            return False
        longest = pc.max(pc.binary_length(array)).as_py()
        return longest is not None and longest > short


def _ordinals(table: Table, names: Sequence[str]) -> dict[int, int]:
    """Return the place in a batch by the column's ordinal."""
    found: dict[int, int] = {}
    for place, name in enumerate(names):
        ordinal = table.ordinal(name)
        if ordinal is None:
            ordinal = table.ordinal(name.lower())
        if ordinal is None:
            known = ", ".join(column.name for column in table.visible_columns)
            raise ProgrammingError(
                f'column "{name}" of the data is not a column of table "{table.name}" ({known})',
                sqlstate="42703",
                hint="rename it, or leave it out of the data",
            )
        if ordinal in found:
            raise ProgrammingError(
                f'column "{table.columns[ordinal].name}" comes twice in the data', sqlstate="42701"
            )
        found[ordinal] = place
    return found


def plain(array: Array) -> Array:
    """Return the values without the wrapping of dictionaries, run ends and extensions."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        return pc.run_end_decode(array)
    return array


def _fast(array: Array, column: Column) -> list[Physical] | None:
    """Return the physical values when all surely fit; None: each has to be looked at."""
    found = _fast_array(array, column)
    if found is None:
        return None
    return _decimal_values(found) if pa.types.is_decimal(found.type) else found.to_pylist()


def _fast_array(array: Array, column: Column) -> Array | None:
    """Return the physical values as RowMaker.arrays() does; None: each has to be looked at."""
    if array.null_count == len(array):
        return pa.nulls(len(array))
    make = _FAST.get(column.type.kind)
    try:
        return make(array, column) if make is not None else None
    except pa.ArrowException:  # a value does not fit: which one?
        return None


def _boolean(array: Array, _column: Column) -> Array | None:
    return array if pa.types.is_boolean(array.type) else None


def _integer(array: Array, column: Column) -> Array | None:
    if not pa.types.is_integer(array.type):
        return None
    return array.cast(_INTEGERS[column.type.kind])


def _real(array: Array, _column: Column) -> Array | None:
    if not pa.types.is_floating(array.type):
        return None
    reals = array.cast(pa.float32(), safe=False)
    if array.type == pa.float64():
        is_beyond = pc.and_(pc.is_inf(reals), pc.invert(pc.is_inf(array)))
        is_lost = pc.and_(pc.equal(reals, 0.0), pc.not_equal(array, 0.0))
        if pc.any(pc.or_(is_beyond, is_lost)).as_py():
            return None
    return reals


def _double(array: Array, _column: Column) -> Array | None:
    return array.cast(pa.float64()) if pa.types.is_floating(array.type) else None


def _decimal(array: Array, column: Column) -> Array | None:
    scale, precision = column.type.scale or 0, column.type.precision or 38
    kind = array.type
    if not pa.types.is_decimal(kind) or (kind.scale, kind.precision <= precision) != (scale, True):
        return None
    if kind.precision > _INT64_DIGITS:
        return None
    return array.cast(pa.decimal128(kind.precision, scale))


def _decimal_values(wide: Array) -> list[Physical]:
    data = wide.buffers()[1]
    words = memoryview(data).cast("q")[2 * wide.offset : 2 * (wide.offset + len(wide))]
    values: Any = words[::2].tolist()  # little-endian: the low half, sign and all
    if wide.null_count:
        valid = wide.is_valid().to_pylist()
        return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]
    return values


def _text(array: Array, column: Column) -> Array | None:
    if not _is_string(array.type):
        return None
    texts = array if pa.types.is_string(array.type) else array.cast(pa.string())
    texts.validate(full=True)  # that all of it is UTF-8; what follows relies on it
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        return None
    limit = column.type.length
    if limit is not None and pc.max(pc.utf8_length(texts)).as_py() > limit:
        return None
    return texts


def _bytea(array: Array, _column: Column) -> Array | None:
    if not _is_text(array.type) or _is_string(array.type):
        return None
    return array.cast(pa.binary())


def _date(array: Array, _column: Column) -> Array | None:
    if not pa.types.is_date(array.type):
        return None
    days = array.cast(pa.date32()).view(pa.int32())
    return days if _is_within(days, (DAY_MIN, DAY_MAX)) else None


def _timestamp(array: Array, _column: Column) -> Array | None:
    if not pa.types.is_timestamp(array.type):
        return None
    # With a zone or without, the numbers are in UTC.
    microseconds = array.cast(pa.timestamp("us", array.type.tz)).view(pa.int64())
    return microseconds if _is_within(microseconds, (MOMENT_MIN, MOMENT_MAX)) else None


_FAST: dict[Kind, Callable[[Array, Column], Array | None]] = {
    Kind.BOOLEAN: _boolean,
    Kind.SMALLINT: _integer,
    Kind.INTEGER: _integer,
    Kind.BIGINT: _integer,
    Kind.REAL: _real,
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.TEXT: _text,
    Kind.BYTEA: _bytea,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMPTZ: _timestamp,
}


def _is_within(numbers: Array, bounds: tuple[int, int]) -> bool:
    found = pc.min_max(numbers).as_py()
    return bounds[0] <= found["min"] and found["max"] <= bounds[1]


def _is_string(kind: pa.DataType) -> bool:
    return (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return (
        _is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _slow(array: Array, column: Column, first_row: int) -> list[Physical]:
    """Convert value by value, with the errors of INSERT."""
    what, sql_type = f"column {column.name}", column.type
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        try:
            array = array.cast(pa.timestamp("us", array.type.tz))
        except pa.ArrowInvalid as error:
            raise DataError(
                f"{what}: timestamps of nanoseconds that are no whole microseconds",
                sqlstate="22008",
                hint='round them: df["x"].dt.round("us")',
            ) from error
    try:
        values: list[Any] = array.to_pylist()
    except (ValueError, OverflowError):
        each_row(array, lambda value: _held(value, what), first_row)  # which one?
        raise
    if sql_type.kind is Kind.DECIMAL and array.type in _REALS:  # which Python has no class of
        values = [None if value is None else decimal_of(value, REAL_DIGITS) for value in values]
    converted: list[Physical] = []
    each_row(values, lambda v: converted.append(to_assigned(v, sql_type, what=what)), first_row)
    return converted


_REALS = (pa.float32(), pa.float16())


def _held(value: Any, what: str) -> None:
    """Raise for what Python has no value: 22008 a date or timestamp, 22021 text without UTF-8."""
    try:
        value.as_py()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{what}: text that is not UTF-8, at byte {error.start + 1}", sqlstate="22021"
        ) from None
    except (ValueError, OverflowError) as error:
        raise DataError(f"{what}: {error}", sqlstate="22008") from error
