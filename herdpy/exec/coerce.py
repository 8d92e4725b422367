"""The one place that converts values: Python to physical, physical to physical, physical to Python.

Physical and logical forms are those of model/types.py; NULL is None and converts to None. A value
that does not fit is a DataError with PostgreSQL's SQLSTATE, a Python class that cannot stand for
the SQL type a ProgrammingError 42804; nothing is cut or rounded silently, except where PostgreSQL's
casts round: to a DECIMAL's scale and from DECIMAL to integers half away from zero, from DOUBLE to
integers half to even. `what` names the column or parameter for the message.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from herdpy.errors import DataError, ProgrammingError
from herdpy.model.intervals import interval_text, of_timedelta
from herdpy.model.python_values import (
    KIND_CLASSES,
    PYTHON_KINDS,
    kind_of,
    plain_value,
    shown,
    unicode_text,
)
from herdpy.model.reals import real_text, written
from herdpy.model.schema import Column, Table
from herdpy.model.types import (
    DAY_US,
    EPOCH_DAY,
    INTEGER_BOUNDS,
    INTEGER_KINDS,
    MOMENT_MAX,
    MOMENT_MIN,
    Kind,
    Physical,
    Row,
    SqlType,
)
from herdpy.sql.conversions import (
    DOUBLE_DIGITS,
    EXACT_DECIMALS,
    REAL_DIGITS,
    check_range,
    convert_moment,
    decimal_of,
    out_of_range,
    read_text,
    rescale,
    scaled_decimal,
    to_real,
)
from herdpy.sql.plan import NOW, Slot

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_NO_OFFSET = datetime.timedelta()
_INFINITIES = (float("inf"), float("-inf"))

# --- Python → physical ---------------------------------------------------------------------------


def to_physical(value: object, sql_type: SqlType, *, what: str) -> Physical:
    """Return a Python value as a physical one; text is read as PostgreSQL reads a literal."""
    if value is None:
        return None
    value = plain_value(value, what)
    kind = sql_type.kind
    if isinstance(value, str):
        if kind in (Kind.TEXT, Kind.UNKNOWN):
            return check_text(value, sql_type, what)
        return _from_text(unicode_text(value, what), sql_type, what)
    convert = _FROM_PYTHON.get((kind, value.__class__))
    if convert is None:
        raise ProgrammingError(
            f"{what}: expected a value for {sql_type},"
            f" found {value.__class__.__name__} {shown(value)}",
            sqlstate="42804",
            hint="CAST the parameter in SQL, or convert it in the program.",
        )
    return convert(value, sql_type, what)


def _from_text(text: str, sql_type: SqlType, what: str) -> Physical:
    try:
        return read_text(text, sql_type)
    except DataError as error:
        raise DataError(
            f"{what}: {error.message}", sqlstate=error.sqlstate, hint=error.hint
        ) from None


def to_assigned(value: object, sql_type: SqlType, *, what: str) -> Physical:
    """Return a Python value as assignment stores it: as to_physical, and 1.5 is 2 in an INTEGER."""
    if value is not None:
        value = plain_value(value, what)
        kind = sql_type.kind
        if sql_type.is_integer and isinstance(value, (float, Decimal)):
            rounded = round(value) if isinstance(value, float) and _is_finite(value) else value
            if not isinstance(rounded, int):
                rounded = _decimal(rounded, sql_type, what)
            return check_number(rounded, sql_type, what)
        if kind is Kind.DATE and isinstance(value, datetime.datetime):
            return _timestamp(value, sql_type, what) // DAY_US
        if kind is Kind.TEXT and not isinstance(value, str) and value.__class__ in PYTHON_KINDS:
            if isinstance(value, datetime.datetime) and value.tzinfo is not None:
                value = _to_aware(_timestamp(value, sql_type, what))
            return check_text(format_text(value, kind_of(value)), sql_type, what)
    return to_physical(value, sql_type, what=what)


def slot_values(
    slots: Sequence[Slot],
    parameters: Sequence[object] | Mapping[str, object] | None,
    now_us: Callable[[], int] = lambda: 0,
) -> list[Physical]:
    """Return the physical value of every slot, in order; now_us gives the transaction's time."""
    given: Any = () if parameters is None else parameters
    values: list[Physical] = []
    for slot in slots:
        source = slot.source
        if source == NOW:
            values.append(now_us())
            continue
        try:
            value = given[source]
        except (LookupError, TypeError):
            raise ProgrammingError(
                f"{slot.parameter}: expected a value, found none among {len(given)}",
                sqlstate="07001",
            ) from None
        values.append(to_physical(value, slot.type, what=slot.what))
    return values


def check_text(value: str, sql_type: SqlType, what: str) -> str:
    """Return value when it is valid UTF-8 without NUL, and not too long for VARCHAR(n)."""
    if "\0" in value:
        raise DataError(f"{what}: text cannot hold the character NUL", sqlstate="22021")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            where = f"character {error.start + 1}"
            raise DataError(f"{what}: lone surrogate at {where}", sqlstate="22021") from None
    if sql_type.length is not None and len(value) > sql_type.length:
        found = f"found {len(value)} characters"
        raise DataError(f"{what}: value too long for type {sql_type}, {found}", sqlstate="22001")
    return value


def check_number(value: int, sql_type: SqlType, what: str) -> int:
    """Return a physical INTEGER, BIGINT or DECIMAL when its type holds it, else 22003."""
    return check_range(value, sql_type, what=what)


def check_row_count(value: Any, word: str) -> None:
    """Raise 2201W for a negative LIMIT, 2201X for a negative OFFSET; NULL is none of them."""
    if value is not None and value < 0:
        sqlstate = "2201W" if word == "LIMIT" else "2201X"
        raise DataError(f"{word} must not be negative, found {value}", sqlstate=sqlstate)


def _double(value: int | Decimal, sql_type: SqlType, what: str) -> float:
    try:
        number = float(value)
    except (OverflowError, ValueError):  # ValueError: a signalling NaN
        raise out_of_range(value, sql_type, what) from None
    is_infinite = number in _INFINITIES and Decimal(value).is_finite()
    if is_infinite or (value and not number):
        raise out_of_range(value, sql_type, what)
    return number


def _real(value: int | float | Decimal, sql_type: SqlType, what: str) -> float:
    if isinstance(value, float):
        return to_real(value, sql_type, what)
    _double(value, sql_type, what)  # what is beyond it
    return to_real(Decimal(value), sql_type, what)


def _decimal(value: int | float | Decimal, sql_type: SqlType, what: str) -> int:
    number = decimal_of(value) if isinstance(value, float) else Decimal(value)
    try:
        return scaled_decimal(number, sql_type)
    except DataError:
        raise out_of_range(value, sql_type, what) from None


def _timestamp(value: datetime.datetime, sql_type: SqlType, what: str) -> int:
    """Return a moment; one without time zone is in the session's, which is always UTC."""
    if value.tzinfo is None:
        return (value - _EPOCH) // _MICROSECOND
    offset = value.utcoffset() or _NO_OFFSET
    moment = (value.replace(tzinfo=None) - _EPOCH - offset) // _MICROSECOND
    if not MOMENT_MIN <= moment <= MOMENT_MAX:
        raise DataError(
            f"{what}: {value} is outside the years 1 to 9999 in UTC, as {sql_type} counts",
            sqlstate="22008",
        )
    return moment


def _same(value: Any, _type: SqlType, _what: str) -> Any:
    return value


_FROM_PYTHON: dict[tuple[Kind, Any], Callable[[Any, SqlType, str], Any]] = {
    (Kind.BOOLEAN, bool): _same,
    (Kind.SMALLINT, int): check_number,
    (Kind.INTEGER, int): check_number,
    (Kind.BIGINT, int): check_number,
    (Kind.REAL, float): _real,
    (Kind.REAL, int): _real,
    (Kind.REAL, Decimal): _real,
    (Kind.DOUBLE, float): _same,
    (Kind.DOUBLE, int): _double,
    (Kind.DOUBLE, Decimal): _double,
    (Kind.DECIMAL, int): _decimal,
    (Kind.DECIMAL, float): _decimal,
    (Kind.DECIMAL, Decimal): _decimal,
    (Kind.BYTEA, bytes): _same,
    (Kind.INTERVAL, datetime.timedelta): lambda value, _type, _what: of_timedelta(value),
    (Kind.DATE, datetime.date): lambda value, _type, _what: value.toordinal() - EPOCH_DAY,
    (Kind.TIMESTAMP, datetime.datetime): _timestamp,
    (Kind.TIMESTAMP, datetime.date): lambda value, _type, _what: (
        (value.toordinal() - EPOCH_DAY) * DAY_US
    ),
}
_FROM_PYTHON.update(
    {
        (Kind.TIMESTAMPTZ, source): convert
        for (kind, source), convert in _FROM_PYTHON.items()
        if kind is Kind.TIMESTAMP
    }
)


# --- physical → physical -------------------------------------------------------------------------


def cast_physical(
    value: Any, from_type: SqlType, to_type: SqlType, *, is_assignment: bool, what: str
) -> Physical:
    """Return a physical value of from_type as one of to_type, as CAST or as assignment does.

    They differ in one thing: CAST to VARCHAR(n) cuts, assignment of longer text is 22001.
    """
    if value is None:
        return None
    source, target = from_type.kind, to_type.kind
    if source in (Kind.TEXT, Kind.UNKNOWN) and target is not Kind.TEXT:
        return to_physical(value, to_type, what=what)
    if target is Kind.TEXT:
        convert = output_converter(from_type)
        text: str = value
        if source not in (Kind.TEXT, Kind.UNKNOWN):
            text = format_text(convert(value) if convert else value, source)
        if not is_assignment and to_type.length is not None:
            text = text[: to_type.length]
        return check_text(text, to_type, what)
    if source is Kind.DECIMAL and (target is Kind.DECIMAL or to_type.is_integer):
        scale = from_type.scale or 0
        scaled = rescale(value, scale, to_type.scale or 0)
        return check_range(scaled, to_type, _to_decimal(value, scale), what)
    if source is Kind.DECIMAL and target is Kind.DOUBLE:
        return value / 10 ** (from_type.scale or 0)  # int / int is correctly rounded
    if source is Kind.DECIMAL and target is Kind.REAL:
        return to_real(_to_decimal(value, from_type.scale or 0), to_type, what)
    if source is Kind.REAL and target is Kind.DECIMAL:
        value = decimal_of(value, REAL_DIGITS)
    if to_type.is_integer and (from_type.is_numeric or source is Kind.BOOLEAN):
        if from_type.is_float and not _is_finite(value):
            raise out_of_range(value, to_type, what)
        return check_number(round(value), to_type, what)
    if to_type.is_numeric and from_type.is_numeric:
        return to_physical(value, to_type, what=what)
    if target is source:
        return value
    if target is Kind.BOOLEAN and from_type.is_integer:
        return value != 0
    if from_type.is_moment and to_type.is_moment:
        return convert_moment(value, from_type, to_type)
    raise ProgrammingError(f"{what}: cannot cast {from_type} to {to_type}", sqlstate="42846")


def _is_finite(value: float) -> bool:
    return value == value and value not in _INFINITIES


# --- many rows at once ---------------------------------------------------------------------------


def compile_row_converter(
    table: Table, ordinals: Sequence[int]
) -> Callable[[Sequence[object], int], Row]:
    """Return f(values in the order of ordinals, now_us) → whole row, for executemany's INSERT.

    Columns not named take their default; the hidden row id stays None. Generated, because it runs
    per row: a value of the exact Python class costs one test, all others go through to_assigned.
    The caller checks the number of values, and the row with compile_check_row.
    """
    space: dict[str, Any] = {}
    tests, row, _ = row_conversion(table, ordinals, space)
    lines = "".join(f"    {line}\n" for line in [*tests, f"return {row}"])
    exec(f"def convert(values, now_us):\n{lines}", space)  # noqa: S102 - our own text
    return space["convert"]


def row_conversion(
    table: Table, ordinals: Sequence[int], space: dict[str, Any]
) -> tuple[list[str], str, str]:
    """Return lines that convert `values`, and source of the row, over what a default needs.

    And of the test behind the first line that `values` are the row as they are, as a sequence; "":
    they never are.
    """
    tests: list[str] = []
    exact_tests: list[str] = []
    parts = default_sources(table, space)
    for position, ordinal in enumerate(ordinals):
        column = table.columns[ordinal]
        space[f"slow{position}"] = _assigner(column)
        name = parts[ordinal] = f"v{position}"
        exact = EXACT_TESTS.get(column.type.kind, "False").replace("$", name)
        if column.type.length is not None:
            exact += f" and len({name}) <= {column.type.length}"
        tests.append(f"if not ({name} is None or {exact}): {name} = slow{position}({name})")
        if column.type.kind in EXACT_TESTS:
            exact_tests.append(f"({name} is None or {exact})")
    names = "".join(f"v{position}, " for position in range(len(ordinals)))
    is_exact = len(exact_tests) == len(table.columns) and list(ordinals) == sorted(ordinals)
    lines = [f"{names}= values", *tests] if names else tests
    return lines, f"({', '.join(parts)},)", " and ".join(exact_tests) if is_exact else ""


def default_sources(table: Table, space: dict[str, Any]) -> list[str]:
    """Return Python source for every column's default, over `now_us`, `numbers` and the space."""
    parts: list[str] = []
    for ordinal, column in enumerate(table.columns):
        space[f"default{ordinal}"] = column.default
        computed = {
            Kind.TIMESTAMP: "now_us",
            Kind.TIMESTAMPTZ: "now_us",
            Kind.DATE: f"now_us // {DAY_US}",
        }
        is_static = column.default_sql is None
        if column.filling is not None and column.takes_values:
            space[f"sequence{ordinal}"] = column.filling.sequence
            parts.append(f"numbers.next_value(sequence{ordinal})")
        else:
            parts.append(f"default{ordinal}" if is_static else computed[column.type.kind])
    return parts


def _assigner(column: Column) -> Callable[[object], Physical]:
    return lambda value: to_assigned(value, column.type, what=f"column {column.name}")


VALUE_TESTS = {
    **{kind: f"{low} <= $ <= {high}" for kind, (low, high) in INTEGER_BOUNDS.items()},
    Kind.TEXT: "$.isascii() and '\\0' not in $",
}
"""Which values `$` of the class of EXACT_TESTS are their own physical form; without one, all."""


def _exact_test(kind: Kind) -> str:
    test = f"$.__class__ is {KIND_CLASSES[kind].__name__}"
    return f"{test} and {VALUE_TESTS[kind]}" if kind in VALUE_TESTS else test


EXACT_TESTS = {
    kind: _exact_test(kind)
    for kind in (Kind.BOOLEAN, *INTEGER_KINDS, Kind.DOUBLE, Kind.TEXT, Kind.BYTEA)
}
"""Source of a test of `$`: surely a value of this kind as it is."""


# --- physical → logical --------------------------------------------------------------------------


def compile_output(types: Sequence[SqlType]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]] | None:
    """Return the function that makes a physical row logical; None when the two are the same."""
    converters = [output_converter(sql_type) for sql_type in types]
    if not any(converters):
        return None
    space = {f"f{index}": convert for index, convert in enumerate(converters)}
    parts = [
        f"r[{i}]" if convert is None else f"None if r[{i}] is None else f{i}(r[{i}])"
        for i, convert in enumerate(converters)
    ]
    return eval(f"lambda r: ({', '.join(parts)},)", space)  # noqa: S307 - our own text


def output_converter(sql_type: SqlType) -> Callable[[Any], Any] | None:
    """Return physical → logical for one value that is not NULL; None when they are the same."""
    if sql_type.kind is Kind.DECIMAL:
        scale = sql_type.scale or 0
        return lambda scaled: _to_decimal(scaled, scale)
    return _OUTPUTS.get(sql_type.kind)


def _to_decimal(scaled: int, scale: int) -> Decimal:
    return Decimal(scaled).scaleb(-scale, EXACT_DECIMALS)


def _to_date(days: int) -> datetime.date:
    try:
        return datetime.date.fromordinal(days + EPOCH_DAY)
    except (ValueError, OverflowError):
        message = f"date of day {days} from 1970-01-01 is outside the years 1 to 9999"
        raise DataError(message, sqlstate="22008") from None


def _since(epoch: datetime.datetime) -> Callable[[int], datetime.datetime]:
    def convert(microseconds: int) -> datetime.datetime:
        try:
            return epoch + datetime.timedelta(microseconds=microseconds)
        except OverflowError:
            message = f"timestamp {microseconds} µs from 1970-01-01 is outside the years 1 to 9999"
            raise DataError(message, sqlstate="22008") from None

    return convert


_to_aware = _since(_EPOCH.replace(tzinfo=datetime.UTC))
_OUTPUTS: dict[Kind, Callable[[Any], Any]] = {
    Kind.DATE: _to_date,
    Kind.TIMESTAMP: _since(_EPOCH),
    Kind.TIMESTAMPTZ: _to_aware,
}


def format_text(value: Any, kind: Kind) -> str:
    """Return the text of a logical value that is not NULL, as PostgreSQL casts it in UTC.

    The reading side is sql/conversions.read_text, the same for literals and for parameters.
    """
    if kind is Kind.BOOLEAN:
        return "true" if value else "false"
    if kind is Kind.DECIMAL:
        return format(value, "f")
    if kind is Kind.BYTEA:
        return "\\x" + value.hex()
    if kind is Kind.TIMESTAMP or kind is Kind.TIMESTAMPTZ:
        text = value.replace(tzinfo=None).isoformat(" ")
        text = text.rstrip("0") if value.microsecond else text
        return f"{text}+00" if kind is Kind.TIMESTAMPTZ else text
    if kind is Kind.DOUBLE:
        return _format_double(value)
    if kind is Kind.REAL:
        return real_text(value)
    if kind is Kind.INTERVAL:
        return interval_text(of_timedelta(value))
    return str(value)


def _format_double(value: float) -> str:
    """Shortest digits that read back the same; an exponent below 1e-4 and from 1e15 on."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return written(Decimal(repr(value)), DOUBLE_DIGITS)
