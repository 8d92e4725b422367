"""The type objects and constructors of PEP 249.

A type code is the name of the column's kind, a plain string ("BIGINT", "TEXT"); it compares equal
to the type object it belongs to: `cursor.description[0][1] == herdpy.NUMBER`.
"""

import datetime

from herdpy.model.types import NUMERIC_KINDS, Kind, SqlType


class TypeObject:
    """Equal to every type code it stands for, and to itself."""

    __slots__ = ("codes", "name")

    def __init__(self, name: str, *kinds: Kind) -> None:
        self.name = name
        self.codes = frozenset(kind.name for kind in kinds)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeObject):
            return self is other
        return other in self.codes if isinstance(other, str) else NotImplemented

    # One hash could not agree with all codes that are equal to it.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"herdpy.{self.name}"


STRING = TypeObject("STRING", Kind.TEXT, Kind.UNKNOWN)
BINARY = TypeObject("BINARY", Kind.BYTEA)
NUMBER = TypeObject("NUMBER", Kind.BOOLEAN, *NUMERIC_KINDS)
DATETIME = TypeObject("DATETIME", Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.INTERVAL)
ROWID = TypeObject("ROWID")  # no column has such a type; PEP 249 wants the name

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:  # noqa: N802 - the name PEP 249 prescribes
    """Return the local date of seconds since 1970."""
    return datetime.date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802 - the name PEP 249 prescribes
    """Return the local time of day of seconds since 1970."""
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime.datetime:  # noqa: N802 - as above
    """Return the local date and time, naive, of seconds since 1970."""
    return datetime.datetime.fromtimestamp(ticks)


Description = tuple[str, str, None, int | None, int | None, int | None, None]
"""One column: name, type code, None, length limit, precision, scale, None (maybe null)."""


def describe(name: str, sql_type: SqlType) -> Description:
    """Return the 7-tuple of one result column."""
    code = sql_type.kind.name
    return (name, code, None, sql_type.length, sql_type.precision, sql_type.scale, None)
