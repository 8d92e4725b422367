"""Constants of each kind of type, as texts for both servers, and tables filled with them."""

import datetime
import random
from decimal import Decimal

from herdpy.model.types import FLOAT_KINDS, INTEGER_KINDS, Kind

K = Kind
KINDS = tuple(kind for kind in Kind if kind is not Kind.UNKNOWN)
NAMES = {
    K.BOOLEAN: "boolean", K.SMALLINT: "smallint", K.INTEGER: "integer", K.BIGINT: "bigint",
    K.REAL: "real", K.DOUBLE: "double precision", K.DECIMAL: "numeric", K.TEXT: "text",
    K.BYTEA: "bytea", K.DATE: "date", K.TIMESTAMP: "timestamp", K.TIMESTAMPTZ: "timestamptz",
    K.INTERVAL: "interval",
}  # fmt: skip
DECIMAL_TYPES = ("numeric(6,2)", "numeric(12,4)", "numeric(20,0)", "numeric(5,5)", "numeric(38,10)")
COMMON: dict[Kind, tuple[str, ...]] = {
    K.BOOLEAN: ("true", "false"),
    K.SMALLINT: ("0", "1", "2", "3", "5", "-1", "-7", "12", "100"),
    K.INTEGER: ("0", "1", "2", "3", "7", "-1", "-5", "10", "100"),
    K.BIGINT: ("0", "1", "2", "-1", "-7", "12", "3000000000", "-70000000000"),
    K.REAL: ("0", "1", "1.5", "-2.5", "0.1", "0.2", "3.3", "-3.7", "1e10", "100", "16777216"),
    K.DOUBLE: ("0", "1", "1.5", "-2.5", "0.1", "0.5", "2.5", "-3.7", "1e10", "100", "0.25"),
    K.DECIMAL: ("0", "1", "1.5", "-2.25", "0.01", "-0.5", "2.5", "12.345", "-7", "0.1"),
    K.TEXT: ("", "a", "A", "ab", "b", "Abc", "é", "a b", " x ", "12", "-3.5", "t", "a_b%", "éà"),
    K.BYTEA: (r"\x", r"\x00", r"\x61", r"\x6162", r"\x00ff"),
    K.DATE: ("2024-02-29", "1969-12-31", "2000-01-01", "2023-03-31", "1900-02-28", "2024-12-30"),
    K.TIMESTAMP: (
        "2024-02-29 12:34:56.789012", "1969-12-31 23:59:59.5", "2000-01-01 00:00:00",
        "2023-03-31 00:00:01", "2024-12-30 06:00:00.000001",
    ),
    K.TIMESTAMPTZ: (
        "2024-02-29 12:34:56.789012+00", "1969-12-31 23:59:59.5+00", "2000-01-01 00:00:00+02",
        "2023-03-31 00:00:01-05:30", "2024-12-30 06:00:00.000001+00",
    ),
    K.INTERVAL: (
        "1 day", "-2 days +03:04:05.678901", "1 mon", "1 year 2 mons", "00:00:00", "36:00:00",
        "-1 mons +1 day", "00:00:00.5", "1 mon -30 days",
    ),
}  # fmt: skip
EDGES: dict[Kind, tuple[str, ...]] = {
    K.SMALLINT: ("32767", "-32768", "256", "-182"),
    K.INTEGER: ("2147483647", "-2147483648", "65536", "-46341"),
    K.BIGINT: ("9223372036854775807", "-9223372036854775808", "9007199254740993", "4294967296"),
    K.REAL: (
        "-0", "NaN", "Infinity", "-Infinity", "3e38", "-1e-38", "1e-45", "1234567.9", "33554448",
        "1e6", "1e-5", "2147483647", "9.3e18", "7.038531e-26", "1.2379401e27", "1e-40",
    ),
    K.DOUBLE: (
        "-0", "NaN", "Infinity", "-Infinity", "1e300", "-1e-300", "5e-324", "123456789.123",
        "1.2345678901234567e16", "1e15", "2147483647.5", "9.3e18", "1e-5",
    ),
    K.DECIMAL: ("9999.99", "-9999.99", "0.00001", "99999999.9999", "1234567.891", "-0.005"),
    K.TEXT: (
        "ß", "😀", "12", "2147483648", "1e3", "true", "2024-02-29", r"\x6162", "NaN", "0.1", "Z",
        "1 day", "  ", "\\", "%", "_", "2024-02-29 12:34:56.789", "abcabcabc", "\t12\n", "e\u0301",
    ),
    K.BYTEA: (r"\xffffffff", r"\x5c", r"\x0a27"),
    K.DATE: ("0001-01-01", "9999-12-31", "1970-01-01", "2021-01-03", "2020-12-31"),
    K.TIMESTAMP: (
        "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1970-01-01 00:00:00",
        "2021-01-03 23:59:59.999999",
    ),
    K.TIMESTAMPTZ: ("0001-01-01 00:00:00+00", "1970-01-01 00:00:00+00", "1582-10-15 12:00:00+00"),
    K.INTERVAL: ("1000 years", "-1 days", "1 year -1 days", "-00:00:00.000001", "1000000:00:00"),
}  # fmt: skip
_EDGE_SHARE, _NULL_SHARE = 0.12, 0.12
COLUMNS: dict[str, tuple[Kind, str]] = {
    "h": (K.SMALLINT, "smallint"), "k": (K.SMALLINT, "smallint"), "i": (K.INTEGER, "integer"),
    "j": (K.INTEGER, "integer"), "l": (K.BIGINT, "bigint"),
    "f": (K.REAL, "real"), "g": (K.REAL, "real"), "d": (K.DOUBLE, "double precision"),
    "e": (K.DOUBLE, "double precision"),
    "n": (K.DECIMAL, "numeric(12,4)"), "m": (K.DECIMAL, "numeric(6,2)"), "s": (K.TEXT, "text"),
    "t": (K.TEXT, "text"), "c": (K.TEXT, "varchar(8)"), "b": (K.BOOLEAN, "boolean"),
    "y": (K.BYTEA, "bytea"), "a": (K.DATE, "date"), "p": (K.TIMESTAMP, "timestamp"),
    "z": (K.TIMESTAMPTZ, "timestamptz"),
}  # fmt: skip
"""Of every generated table, behind its key id."""
DEFINITION = ", ".join(
    ("id integer PRIMARY KEY", *(f"{name} {kind}" for name, (_, kind) in COLUMNS.items()))
)


def constant(chance: random.Random, kind: Kind, edges: float = _EDGE_SHARE) -> str:
    """Return the text of a value of that kind, without quotes."""
    is_edge = kind in EDGES and chance.random() < edges
    return chance.choice(EDGES[kind] if is_edge else COMMON[kind])


def quoted(text: str) -> str:
    return f"""'{text.replace("'", "''")}'"""


def cast(text: str | None, type_name: str) -> str:
    """Return a constant that is of that type in every place."""
    return f"CAST({'NULL' if text is None else quoted(text)} AS {type_name})"


def as_python(kind: Kind, text: str) -> object:
    """Return what a program would hand over as a parameter."""
    if kind is K.BOOLEAN:
        return text == "true"
    if kind in INTEGER_KINDS:
        return int(text)
    if kind in FLOAT_KINDS:
        return float(text)
    if kind is K.DECIMAL:
        return Decimal(text)
    if kind is K.BYTEA:
        return bytes.fromhex(text[2:])
    if kind is K.DATE:
        return datetime.date.fromisoformat(text)
    if kind in (K.TIMESTAMP, K.TIMESTAMPTZ):
        return datetime.datetime.fromisoformat(text)
    return text


def rows(chance: random.Random, count: int, edges: float) -> list[str]:
    """Return VALUES of a generated table's rows; every value is in the range of its column."""
    made: list[str] = []
    for key in range(1, count + 1):
        cells = [str(key)]
        for kind, type_name in COLUMNS.values():
            text = None if chance.random() < _NULL_SHARE else constant(chance, kind, edges)
            if kind is K.DECIMAL and text in EDGES[kind][2:]:
                text = EDGES[kind][0]
            if type_name == "varchar(8)" and text is not None:
                text = text[:8]
            cells.append(cast(text, type_name))
        made.append(f"({', '.join(cells)})")
    return made
