"""What Python values may stand for SQL values: their exact classes, and how messages show them."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from herdpy.errors import DataError
from herdpy.model.types import Kind

INTEGER_BITS_MAX = 13_000
"""Python refuses to write more as digits, or to read them; no type holds a tenth of it."""

_SHOWN_MAX = 80


def shown(value: object) -> str:
    """Return a value for a message, cut to a length that a person reads."""
    if isinstance(value, int) and value.bit_length() > INTEGER_BITS_MAX:
        return f"of {value.bit_length():,} bits"
    return shortened(repr(value) if isinstance(value, (str, bytes)) else str(value))


def shortened(text: str) -> str:
    """Return a text for a message: its beginning, when it is long."""
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def kind_of(value: Any) -> Kind:
    """Return the kind that a plain value has by itself; KeyError for a class not known."""
    if value.__class__ is datetime.datetime and value.tzinfo is not None:
        return Kind.TIMESTAMPTZ
    return PYTHON_KINDS[value.__class__]


def unicode_text(text: str, what: str) -> str:
    """Return text as it is; DataError 22021 for what has no UTF-8: `what` names it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{what}: lone surrogate at character {error.start + 1}", sqlstate="22021"
        ) from None
    return text


def plain_value(value: Any, what: str) -> Any:
    """Return an instance of exactly a class we know, for subclasses of it and numpy's scalars."""
    if value.__class__ in PYTHON_KINDS:
        return value
    if value.__class__.__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    for base, convert in _PLAIN:
        if isinstance(value, base):
            if base is datetime.datetime and value != value:  # pandas.NaT calls itself one
                break
            # pandas.Timestamp, pandas.Timedelta
            if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
                raise DataError(f"{what}: {value} is finer than microseconds", sqlstate="22008")
            return convert(value)
    return value


PYTHON_KINDS: dict[Any, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.BIGINT,
    float: Kind.DOUBLE,
    Decimal: Kind.DECIMAL,
    str: Kind.TEXT,
    bytes: Kind.BYTEA,
    datetime.date: Kind.DATE,
    datetime.datetime: Kind.TIMESTAMP,
    datetime.timedelta: Kind.INTERVAL,
}
KIND_CLASSES: dict[Kind, Any] = {kind: found for found, kind in PYTHON_KINDS.items()} | {
    Kind.SMALLINT: int,
    Kind.INTEGER: int,
    Kind.REAL: float,
    Kind.TIMESTAMPTZ: datetime.datetime,
}
"""The class of a kind's values as programs see them."""
# The base's own method, as a subclass may answer str() or int() with anything.
_PLAIN: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (datetime.datetime, lambda value: datetime.datetime.combine(value.date(), value.timetz())),
    (datetime.date, lambda value: datetime.date(value.year, value.month, value.day)),
    (datetime.timedelta, lambda v: datetime.timedelta(v.days, v.seconds, v.microseconds)),
    ((bytes, bytearray, memoryview), bytes),
    (bool, bool),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (Decimal, Decimal),
)
