"""The scalar functions: one table with signatures, result types, DuckDB's text, and a line of docs.

Only what is listed here reaches DuckDB. Where DuckDB's function means something else than
PostgreSQL's, the template calls a macro of macros.py.
Kinds of parameters: "int4" is INTEGER, "int8" BIGINT, "integer" also SMALLINT, "decimal" DECIMAL
only, "real" REAL only, "double" every number, "timestamp" also DATE, "interval" INTERVAL. The first
overload that fits is taken.
Every function is NULL when an argument is, but for coalesce, greatest, least, concat and concat_ws.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from herdpy.limits import decimal_precision_max
from herdpy.model.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    INTEGER_KINDS,
    INTERVAL,
    NUMERIC_KINDS,
    TEXT,
    TIMESTAMP,
    Kind,
    SqlType,
    decimal_type,
)

ResultRule = SqlType | Callable[[Sequence[SqlType]], SqlType]


@dataclass(frozen=True, slots=True)
class Function:
    """One overload; `template` has {0}, {1} … for the arguments."""

    name: str
    parameters: tuple[str, ...]
    result: ResultRule
    template: str
    doc: str

    def result_type(self, arguments: Sequence[SqlType]) -> SqlType:
        return self.result if isinstance(self.result, SqlType) else self.result(arguments)


def _same(arguments: Sequence[SqlType]) -> SqlType:
    return arguments[0]


def _whole(arguments: Sequence[SqlType]) -> SqlType:
    """Return the DECIMAL of scale 0 for a DECIMAL rounded to a whole number."""
    precision, scale = arguments[0].precision or decimal_precision_max, arguments[0].scale or 0
    return decimal_type(min(precision - scale + 1, decimal_precision_max), 0)


def _function(signature: str, result: ResultRule, template: str, doc: str) -> Function:
    name, _, rest = signature.partition("(")
    parameters = tuple(item.strip() for item in rest.rstrip(")").split(",") if item.strip())
    return Function(name, parameters, result, template, doc)


_DEGREE = "0.017453292519943295::DOUBLE"  # in radians; PostgreSQL divides by it, too

_TABLE = (
    # numbers
    _function("abs(integer)", _same, "abs({0})", "absolute value"),
    _function("abs(decimal)", _same, "abs({0})", "absolute value"),
    _function("abs(real)", _same, "abs({0})", "absolute value"),
    _function("abs(double)", DOUBLE, "abs({0})", "absolute value"),
    _function("ceil(decimal)", _whole, "ceil({0})", "smallest whole number not below"),
    _function("ceil(double)", DOUBLE, "ceil({0})", "smallest whole number not below"),
    _function("floor(decimal)", _whole, "floor({0})", "greatest whole number not above"),
    _function("floor(double)", DOUBLE, "floor({0})", "greatest whole number not above"),
    _function("round(decimal)", _whole, "round({0}, 0)", "nearest, half away from zero"),
    _function("round(double)", DOUBLE, "round_even({0}, 0)", "nearest, half to even"),
    _function("trunc(decimal)", _whole, "trunc({0})", "whole part"),
    _function("trunc(double)", DOUBLE, "trunc({0})", "whole part"),
    _function("sign(decimal)", decimal_type(1, 0), "sign({0})", "-1, 0 or 1"),
    _function("sign(double)", DOUBLE, "h_sign({0})", "-1, 0 or 1"),
    _function("sqrt(double)", DOUBLE, "h_sqrt({0})", "square root"),
    _function("cbrt(double)", DOUBLE, "cbrt({0})", "cube root"),
    _function("exp(double)", DOUBLE, "h_exp({0})", "e raised to it"),
    _function("ln(double)", DOUBLE, "ln(h_positive({0}))", "natural logarithm"),
    _function("log(double)", DOUBLE, "log10(h_positive({0}))", "logarithm to base 10"),
    _function("log10(double)", DOUBLE, "log10(h_positive({0}))", "logarithm to base 10"),
    _function("power(double, double)", DOUBLE, "h_power({0}, {1})", "also a ^ b"),
    _function("pi()", DOUBLE, "pi()", "3.141592653589793"),
    _function("degrees(double)", DOUBLE, f"({{0}} / {_DEGREE})", "radians to degrees"),
    _function("radians(double)", DOUBLE, f"({{0}} * {_DEGREE})", "degrees to radians"),
    _function("sin(double)", DOUBLE, "h_finite({0}, sin({0}))", "sine"),
    _function("cos(double)", DOUBLE, "h_finite({0}, cos({0}))", "cosine"),
    _function("tan(double)", DOUBLE, "h_finite({0}, tan({0}))", "tangent"),
    _function("asin(double)", DOUBLE, "h_unit({0}, asin({0}))", "inverse sine"),
    _function("acos(double)", DOUBLE, "h_unit({0}, acos({0}))", "inverse cosine"),
    _function("atan(double)", DOUBLE, "atan({0})", "inverse tangent"),
    _function("atan2(double, double)", DOUBLE, "atan2({0}, {1})", "inverse tangent of y/x"),
    _function("random()", DOUBLE, "random()", "0 <= number < 1; another for each row"),
    # text
    _function("lower(text)", TEXT, "lower({0})", "in lower case, Unicode"),
    _function("upper(text)", TEXT, "h_upper({0})", "in upper case, Unicode; ß stays"),
    _function("length(text)", INTEGER, "CAST(length({0}) AS INTEGER)", "number of characters"),
    _function("char_length(text)", INTEGER, "CAST(length({0}) AS INTEGER)", "as length"),
    _function("character_length(text)", INTEGER, "CAST(length({0}) AS INTEGER)", "as length"),
    _function("length(bytea)", INTEGER, "CAST(octet_length({0}) AS INTEGER)", "number of bytes"),
    _function("octet_length(text)", INTEGER, "CAST(strlen({0}) AS INTEGER)", "bytes of UTF-8"),
    _function(
        "octet_length(bytea)", INTEGER, "CAST(octet_length({0}) AS INTEGER)", "number of bytes"
    ),
    _function("substring(text, integer)", TEXT, "h_substr2({0}, {1})", "from position on, from 1"),
    _function(
        "substring(text, integer, integer)", TEXT, "h_substr3({0}, {1}, {2})", "from, and length"
    ),
    _function("left(text, integer)", TEXT, "left({0}, {1})", "first n; all but the last -n"),
    _function("right(text, integer)", TEXT, "right({0}, {1})", "last n; all but the first -n"),
    _function("btrim(text, text)", TEXT, "trim({0}, {1})", "without those characters at both ends"),
    _function("ltrim(text, text)", TEXT, "ltrim({0}, {1})", "without those at the beginning"),
    _function("rtrim(text, text)", TEXT, "rtrim({0}, {1})", "without those at the end"),
    _function("lpad(text, integer, text)", TEXT, "h_lpad({0}, {1}, {2})", "filled on the left"),
    _function("rpad(text, integer, text)", TEXT, "h_rpad({0}, {1}, {2})", "filled on the right"),
    _function("replace(text, text, text)", TEXT, "h_replace({0}, {1}, {2})", "every occurrence"),
    _function("reverse(text)", TEXT, "h_reverse({0})", "characters in reverse order"),
    _function("repeat(text, integer)", TEXT, "h_repeat({0}, {1})", "n times"),
    _function(
        "strpos(text, text)", INTEGER, "CAST(strpos({0}, {1}) AS INTEGER)",
        "position of the second in the first, from 1; 0 when it is not there",
    ),
    _function("starts_with(text, text)", BOOLEAN, "starts_with({0}, {1})", "true when it does"),
    _function(
        "split_part(text, text, integer)", TEXT, "h_split_part({0}, {1}, {2})",
        "n-th field, from 1; from the end when negative",
    ),
    _function("ascii(text)", INTEGER, "CAST(ascii({0}) AS INTEGER)", "code of the first character"),
    _function("chr(integer)", TEXT, "h_chr({0})", "character of a code"),
    _function("translate(text, text, text)", TEXT, "translate({0}, {1}, {2})", "by character"),
    _function("md5(text)", TEXT, "md5({0})", "digest of the UTF-8, in hexadecimal"),
    _function(
        "to_hex(int4)", TEXT, "lower(to_hex(CAST({0} AS BIGINT) & 4294967295))", "in hexadecimal"
    ),
    _function("to_hex(int8)", TEXT, "lower(to_hex({0}))", "in hexadecimal"),
    _function("encode(bytea, text)", TEXT, "h_encode({0}, {1})", "format 'hex'"),
    _function("decode(text, text)", BYTEA, "h_decode({0}, {1})", "format 'hex'"),
    # dates
    _function("make_date(integer, integer, integer)", DATE, "h_make_date({0}, {1}, {2})", ""),
    _function(
        "make_timestamp(integer, integer, integer, integer, integer, double)", TIMESTAMP,
        "h_make_timestamp({0}, {1}, {2}, {3}, {4}, {5})", "year … minute, seconds",
    ),
    # intervals
    _function(
        "justify_hours(interval)", INTERVAL, "h_justify_hours({0})", "24 hours become a day"
    ),
    _function(
        "justify_days(interval)", INTERVAL, "h_justify_days({0})", "30 days become a month"
    ),
    _function("justify_interval(interval)", INTERVAL, "h_justify_interval({0})", "both of these"),
)  # fmt: skip

FUNCTIONS: dict[str, tuple[Function, ...]] = {
    name: tuple(item for item in _TABLE if item.name == name)
    for name in dict.fromkeys(item.name for item in _TABLE)
}

_FITTING: dict[str, tuple[Kind, ...]] = {
    "int4": (Kind.INTEGER,),
    "int8": (Kind.BIGINT, Kind.UNKNOWN),
    "integer": (*INTEGER_KINDS, Kind.UNKNOWN),
    "decimal": (Kind.DECIMAL,),
    "real": (Kind.REAL,),
    "double": (*NUMERIC_KINDS, Kind.UNKNOWN),
    "text": (Kind.TEXT, Kind.UNKNOWN),
    "bytea": (Kind.BYTEA, Kind.UNKNOWN),
    "timestamp": (Kind.TIMESTAMP, Kind.DATE, Kind.UNKNOWN),
    "interval": (Kind.INTERVAL, Kind.UNKNOWN),
}
PARAMETER_TYPES: dict[str, SqlType] = {
    "double": DOUBLE, "text": TEXT, "bytea": BYTEA, "timestamp": TIMESTAMP,
    "interval": INTERVAL,
}  # fmt: skip
"""What arguments of a kind are converted to; those of other kinds stay as they are."""


def resolve(name: str, arguments: Sequence[SqlType]) -> Function | None:
    """Return the overload for arguments of these types, or None."""
    for function in FUNCTIONS.get(name, ()):
        if len(function.parameters) == len(arguments) and all(
            found.kind in _FITTING[kind]
            for kind, found in zip(function.parameters, arguments, strict=True)
        ):
            return function
    return None


BY_SPELLING: dict[str, str] = {
    "ceiling": "ceil", "substr": "substring", "pow": "power",
}  # fmt: skip
"""Other names of the same functions."""

SPECIAL: dict[str, str] = {
    "coalesce": "first argument that is not NULL",
    "nullif": "NULL when both are equal, else the first",
    "greatest": "greatest argument; NULLs do not count",
    "least": "least argument; NULLs do not count",
    "concat": "arguments as text, one after the other; NULLs do not count",
    "concat_ws": "as concat, with the first argument between the others",
    "position": "position(a IN b) is strpos(b, a)",
    "trim": "trim([BOTH | LEADING | TRAILING] [characters FROM] text)",
    "mod": "a % b",
    "now": "the transaction's time, a timestamptz; also current_timestamp",
    "localtimestamp": "the transaction's time in UTC, a timestamp",
    "current_date": "the transaction's date, UTC",
    "nextval": "next value of a sequence, for good: also when the transaction is rolled back",
    "currval": "value that nextval gave this session last, of a sequence",
    "lastval": "value that nextval gave this session last, of any",
    "setval": "setval(sequence, n): the next value is behind n; with false, it is n",
    "pg_get_serial_sequence": "name of the sequence of a table's column, without a schema",
    "date_trunc": "timestamp, timestamptz or interval cut to 'microsecond' … 'year'",
    "date_part": "as extract, DOUBLE",
    "to_char": "date, timestamp or timestamptz as text, by a constant template",
    "extract": "extract(field FROM date, timestamp, timestamptz or interval), DECIMAL",
    "pg_typeof": "name of the argument's type",
}
"""Functions with rules of their own, in bind_function.py."""

SETS: dict[str, str] = {
    "generate_series": "generate_series(start, stop[, step]): a row for each number or moment",
    "unnest": "unnest(ARRAY[…], …): a row for each item",
}
"""Functions that give rows, in FROM or as one of a select list: bind_function.py."""

AGGREGATES = {
    name: name
    for name in (
        "count", "sum", "avg", "min", "max", "bool_and", "bool_or", "string_agg", "stddev_samp",
        "stddev_pop", "var_samp", "var_pop",
    )
} | {"stddev": "stddev_samp", "variance": "var_samp"}  # fmt: skip
GROUPING = "grouping"
"""What tells of each key whether the row's set lacks it; its arguments are keys of GROUP BY."""
RANKINGS = {
    "row_number": BIGINT, "rank": BIGINT, "dense_rank": BIGINT, "percent_rank": DOUBLE,
    "cume_dist": DOUBLE,
}  # fmt: skip
ROW_VALUES = {  # and how many arguments they take
    "lag": (1, 3), "lead": (1, 3), "first_value": (1, 1), "last_value": (1, 1),
    "nth_value": (2, 2), "ntile": (1, 1),
}  # fmt: skip

TRUNC_UNITS = (
    "microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter",
    "year",
)  # fmt: skip
EXTRACT_FIELDS: dict[str, tuple[str, int]] = {
    "year": ("extract(year FROM {0})", 0),
    "isoyear": ("extract(isoyear FROM {0})", 0),
    "quarter": ("extract(quarter FROM {0})", 0),
    "month": ("extract(month FROM {0})", 0),
    "week": ("extract(week FROM {0})", 0),
    "day": ("extract(day FROM {0})", 0),
    "doy": ("extract(doy FROM {0})", 0),
    "dow": ("extract(dow FROM {0})", 0),
    "isodow": ("extract(isodow FROM {0})", 0),
    "hour": ("extract(hour FROM {0})", 0),
    "minute": ("extract(minute FROM {0})", 0),
    "second": ("CAST(extract(microsecond FROM {0}) AS DECIMAL(18,0)) * 0.000001", 6),
    "milliseconds": ("CAST(extract(microsecond FROM {0}) AS DECIMAL(18,0)) * 0.001", 3),
    "microseconds": ("extract(microsecond FROM {0})", 0),
    "epoch": ("CAST(epoch_us(CAST({0} AS TIMESTAMP)) AS DECIMAL(20,0)) * 0.000001", 6),
}
"""Field of extract: DuckDB's text of it for a date or timestamp, and its scale."""

INTERVAL_FIELDS: dict[str, str] = {
    "year": "h_months({0}) // 12",
    "quarter": "h_months({0}) % 12 // 3 + 1",
    "month": "h_months({0}) % 12",
    "day": "h_days_of({0})",
    "hour": "h_micros({0}) // 3600000000",
    "minute": "h_micros({0}) // 60000000 % 60",
    "second": "CAST(h_micros({0}) % 60000000 AS DECIMAL(18,0)) * 0.000001",
    "milliseconds": "CAST(h_micros({0}) % 60000000 AS DECIMAL(18,0)) * 0.001",
    "microseconds": "h_micros({0}) % 60000000",
    "epoch": "h_epoch({0})",
}
"""Field of extract that an interval has: DuckDB's text of it."""
INTERVAL_TRUNCS: dict[str, str] = {
    "year": "h_interval(h_months({0}) // 12 * 12, 0, 0)",
    "quarter": "h_interval(h_months({0}) // 3 * 3, 0, 0)",
    "month": "h_interval(h_months({0}), 0, 0)",
    "day": "h_interval(h_months({0}), h_days_of({0}), 0)",
    **{
        unit: f"h_interval(h_months({{0}}), h_days_of({{0}}), h_micros({{0}}) // {size} * {size})"
        for unit, size in (
            ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000),
            ("milliseconds", 1_000), ("microseconds", 1),
        )
    },
}  # fmt: skip
"""Unit of date_trunc that an interval is cut to: DuckDB's text of it."""
