"""Numbers that go into a column of another type of number only as they are, unless told.

So do timestamps that go into a DATE. herdpy rounds as INSERT does, which a job of a million rows
would not show; Spark's own sinks refuse. What is out of range the server refuses. In tasks.
"""

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute

import herdpy

pc: Any = pyarrow.compute  # whose stubs know not all that its functions take
_WHOLE = ("SMALLINT", "INTEGER", "BIGINT")
_INT64_END = 2.0**63
_DAY_US = 24 * 3600 * 1_000_000
_FLOAT_DIGITS = {32: 6, 64: 15}
"""Significant digits of a float that the server keeps in a DECIMAL, by bits (sql.md, Types)."""


class Target(NamedTuple):
    """A column of the table: what of Cursor.description matters here."""

    name: str
    code: str
    precision: int | None
    scale: int | None


def check_exact(batch: pa.RecordBatch, targets: list[Target], first_row: int) -> None:
    """Raise 22003 for the first number that its column cannot hold as it is, 22008 for a timestamp.

    The columns of the batch are in the order of `targets`; `first_row`: rows staged before.
    """
    for array, target in zip(batch.columns, targets, strict=True):
        find = _finder(array.type, target)
        place = None if find is None else find(array)
        if place is not None:
            (value,) = array.slice(place, 1).cast(pa.string())  # Python has not all timestamps
            raise herdpy.DataError(
                f'row {first_row + place + 1:,} of the data: column "{target.name}" of the table,'
                f" {_type_text(target)}, cannot hold {value} exactly",
                sqlstate="22008" if target.code == "DATE" else "22003",
                hint='Round it in Spark, or say option("rounding", "true"): as INSERT rounds.',
            )


def _type_text(target: Target) -> str:
    if target.code != "DECIMAL" or target.precision is None:
        return target.code
    return f"DECIMAL({target.precision},{target.scale})"


def _finder(kind: pa.DataType, target: Target) -> Callable[[Any], int | None] | None:
    """Return what finds the first value that is not exact; None: all values of the type are."""
    is_double = target.code == "DOUBLE"
    if target.code == "REAL":
        return None if _are_reals(kind) else _broken_reals
    scale = 0 if target.code in _WHOLE else target.scale
    is_scaled = target.code in _WHOLE or (target.code == "DECIMAL" and scale is not None)
    if pa.types.is_floating(kind) and target.code in _WHOLE:
        return _broken_floats
    if pa.types.is_floating(kind) and target.code == "DECIMAL":
        return lambda array: _long_floats(array, scale)
    if pa.types.is_decimal(kind) and is_scaled and kind.scale > (scale or 0):
        return lambda array: _long_decimals(array, scale or 0)
    if pa.types.is_decimal(kind) and is_double:
        return _broken_decimals
    if pa.types.is_int64(kind) and is_double:
        return _large_integers
    if pa.types.is_timestamp(kind) and target.code == "DATE":
        return _times_of_day
    return None


def _first(marks: Any) -> int | None:
    """Return the place of the first true one."""
    place = pc.index(marks, value=True).as_py()
    return None if place < 0 else place


def _broken_floats(array: Any) -> int | None:
    is_broken = pc.not_equal(pc.trunc(array), array)
    return _first(pc.and_(is_broken, pc.is_finite(array)))  # the rest is out of range


def _are_reals(kind: pa.DataType) -> bool:
    """Tell whether 32 bits of a float hold all values of the type as they are."""
    narrow = (pa.float32(), pa.float16(), pa.int8(), pa.int16())
    is_number = pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    return kind in narrow or not is_number


def _broken_reals(array: Any) -> int | None:
    for place, value in enumerate(array.to_pylist()):
        if value is not None and value == value and not _is_real(value):
            return place
    return None


def _is_real(value: float | Decimal) -> bool:
    """Tell whether 32 bits hold a number: of a Decimal, whether their shortest text is its."""
    try:
        (real,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return True  # which the server refuses
    if isinstance(value, Decimal):
        return Decimal(pa.scalar(real, pa.float32()).cast(pa.string()).as_py()) == value
    return real == value


def _long_decimals(array: Any, scale: int) -> int | None:
    kept = pc.round(array, ndigits=scale, round_mode="towards_zero")
    return _first(pc.not_equal(kept, array))


def _large_integers(array: Any) -> int | None:
    near = array.cast(pa.float64(), safe=False)
    is_in_range = pc.less(near, _INT64_END)
    back = pc.if_else(is_in_range, near, 0.0).cast(pa.int64(), safe=False)
    return _first(pc.or_(pc.invert(is_in_range), pc.not_equal(back, array)))


def _times_of_day(array: Any) -> int | None:
    moments = array.cast(pa.timestamp("us")).cast(pa.int64())
    days = pc.multiply(pc.divide(moments, _DAY_US), _DAY_US)
    return _first(pc.not_equal(days, moments))


def _long_floats(array: Any, scale: int | None) -> int | None:
    """By the shortest text of a float, which is the number that it means.

    One of more digits than the server keeps is rounded there, whatever the column could hold.
    """
    digits_max = _FLOAT_DIGITS[array.type.bit_width]
    texts = pc.if_else(pc.is_finite(array), array, None).cast(pa.string()).to_pylist()
    for place, text in enumerate(texts):
        if text is None:
            continue
        _, digits, exponent = Decimal(text).normalize().as_tuple()
        if len(digits) > digits_max or (scale is not None and -int(exponent) > scale):
            return place
    return None


def _broken_decimals(array: Any) -> int | None:
    for place, value in enumerate(array.to_pylist()):
        if value is not None and Decimal(repr(float(value))) != value:
            return place
    return None
