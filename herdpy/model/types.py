"""SQL types and the physical form of their values.

Inside (memtable, log, pages, write sets) a value is *physical*, None is NULL:
BOOLEAN bool · SMALLINT, INTEGER, BIGINT int · DOUBLE float · REAL a float that 32 bits hold ·
DECIMAL(p,s) int scaled by 10**s · TEXT str · BYTEA bytes · DATE int days since 1970-01-01 ·
TIMESTAMP int microseconds since 1970-01-01 · TIMESTAMPTZ the same, in UTC. At the edge it is
*logical*: Decimal, datetime.date, naive datetime.datetime, and for TIMESTAMPTZ one whose tzinfo is
datetime.UTC. An INTERVAL, which no row has, is (months, days, microseconds) as a constant or
parameter, and datetime.timedelta at the edge. exec/coerce.py alone converts between the two.
"""

from dataclasses import dataclass
from datetime import date
from enum import Enum

Physical = bool | int | float | str | bytes | None | tuple[int, int, int]
Row = tuple[Physical, ...]
"""One row, physical, in the order of Table.columns (hidden ones included)."""
Key = tuple[bool | int | str | bytes, ...]
"""A primary key in memory: canonical, totally ordered and hashable; see keys.py."""


class Kind(Enum):
    """The kinds of type. The values are written to disk and never reused."""

    BOOLEAN = 1
    INTEGER = 2
    BIGINT = 3
    DOUBLE = 4
    DECIMAL = 5
    TEXT = 6
    BYTEA = 7
    DATE = 8
    TIMESTAMP = 9
    TIMESTAMPTZ = 10
    REAL = 11
    SMALLINT = 12
    # Of expressions only, never of a column:
    INTERVAL = 100
    UNKNOWN = 101  # an untyped literal, NULL, or a text parameter before its context is known


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type: kind, DECIMAL's precision and scale, TEXT's limit in characters, VARCHAR(n)."""

    kind: Kind
    precision: int | None = None
    scale: int | None = None
    length: int | None = None

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL and self.precision is not None:
            return f"DECIMAL({self.precision},{self.scale})"
        if self.kind is Kind.TEXT and self.length is not None:
            return f"VARCHAR({self.length})"
        return self.kind.name

    @property
    def is_numeric(self) -> bool:
        return self.kind in NUMERIC_KINDS

    @property
    def is_integer(self) -> bool:
        return self.kind in INTEGER_KINDS

    @property
    def is_float(self) -> bool:
        return self.kind in FLOAT_KINDS

    @property
    def is_moment(self) -> bool:
        return self.kind in MOMENT_KINDS


MOMENT_KINDS = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)
INTEGER_KINDS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)
"""Each holds those before it."""
FLOAT_KINDS = (Kind.REAL, Kind.DOUBLE)
NUMERIC_KINDS = (*INTEGER_KINDS, *FLOAT_KINDS, Kind.DECIMAL)

KINDS_OF_FORMAT_3 = frozenset((Kind.REAL, Kind.SMALLINT))
"""Kinds of columns that no herdpy knows which reads up to FORMAT 2."""

BOOLEAN = SqlType(Kind.BOOLEAN)
SMALLINT = SqlType(Kind.SMALLINT)
INTEGER = SqlType(Kind.INTEGER)
BIGINT = SqlType(Kind.BIGINT)
REAL = SqlType(Kind.REAL)
DOUBLE = SqlType(Kind.DOUBLE)
TEXT = SqlType(Kind.TEXT)
BYTEA = SqlType(Kind.BYTEA)
DATE = SqlType(Kind.DATE)
TIMESTAMP = SqlType(Kind.TIMESTAMP)
TIMESTAMPTZ = SqlType(Kind.TIMESTAMPTZ)
INTERVAL = SqlType(Kind.INTERVAL)
UNKNOWN = SqlType(Kind.UNKNOWN)

INTEGER_MIN, INTEGER_MAX = -(2**31), 2**31 - 1
BIGINT_MIN, BIGINT_MAX = -(2**63), 2**63 - 1
INTEGER_BOUNDS = {
    Kind.SMALLINT: (-(2**15), 2**15 - 1),
    Kind.INTEGER: (INTEGER_MIN, INTEGER_MAX),
    Kind.BIGINT: (BIGINT_MIN, BIGINT_MAX),
}
DAY_US = 86_400_000_000
EPOCH_DAY = date(1970, 1, 1).toordinal()
DAY_MIN, DAY_MAX = (day.toordinal() - EPOCH_DAY for day in (date.min, date.max))
"""Of a DATE, from 1970."""
MOMENT_MIN, MOMENT_MAX = DAY_MIN * DAY_US, (DAY_MAX + 1) * DAY_US - 1
"""Of a TIMESTAMP, in microseconds from 1970."""


def zero(kind: Kind) -> Physical:
    """Return the physical value of a column's kind that stands in for NULL in an index."""
    if kind is Kind.BOOLEAN:
        return False
    if kind in FLOAT_KINDS:
        return 0.0
    return {Kind.TEXT: "", Kind.BYTEA: b""}.get(kind, 0)


def decimal_type(precision: int, scale: int) -> SqlType:
    return SqlType(Kind.DECIMAL, precision=precision, scale=scale)


def varchar_type(length: int) -> SqlType:
    return SqlType(Kind.TEXT, length=length)
