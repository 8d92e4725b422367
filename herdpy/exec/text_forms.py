"""How values are written as text, as PostgreSQL writes them; used by coerce.py alone.

The reading side is sql/conversions.read_text, the same for literals and for parameters.
"""

from decimal import Decimal
from typing import Any

from herdpy.model.intervals import interval_text, of_timedelta
from herdpy.model.types import Kind


def format_text(value: Any, kind: Kind) -> str:
    """Return the text of a logical value that is not NULL, as PostgreSQL casts it in UTC."""
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
    if kind is Kind.INTERVAL:
        return interval_text(of_timedelta(value))
    return str(value)


def _format_double(value: float) -> str:
    """Shortest digits that read back the same; an exponent below 1e-4 and from 1e15 on."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    number = Decimal(repr(value))
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0") or "0"
    exponent = number.adjusted() if number else 0
    sign = "-" if number.is_signed() else ""
    if -4 <= exponent < 15:
        fixed = format(number, "f")
        return fixed.rstrip("0").rstrip(".") if "." in fixed else fixed
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
