"""Floats of 32 bits, REAL, as Python's floats, which have 64: rounded to them, and their text."""

import math
import struct
from decimal import Decimal

_REAL = struct.Struct("<f")
_NORMAL_MIN = 2.0**-126
_SURE_DIGITS = 6
_DIGITS_MAX = 9
"""Of a normal REAL's shortest text; fewer than six are six with zeros at the end."""
UNEVEN = {2.0**-96: "1.2621775e-29", 2.0**87: "1.5474251e+26", 2.0**90: "1.2379401e+27"}
"""Those that read back from a text which is not the nearest of as many digits: above a power of two
there is more room than below it. Of all powers of two only these."""


MIDDLES = 2.0**25, 1e18
"""Between which texts of so few digits may be halfway between two REALs."""


def round_real(value: float) -> float:
    """Return the REAL that is nearest to a float, half to even; an infinity beyond all of them."""
    try:
        return _REAL.unpack(_REAL.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def nearest_real(value: int | Decimal) -> float:
    """Return the REAL that is nearest to an exact number; ValueError: it is a signalling NaN."""
    try:
        near = float(value)
    except OverflowError:
        near = math.inf if value > 0 else -math.inf
    real = round_real(near)
    if real != near and _is_middle(near, real):  # then it is rounded twice
        exact = value if isinstance(value, Decimal) else Decimal(value)
        middle = Decimal.from_float(near)
        if exact != middle:
            real = round_real(math.nextafter(near, math.inf if exact > middle else -math.inf))
    return real


def _is_middle(value: float, real: float) -> bool:
    """Tell whether a float that is no REAL lies halfway between two of them; `real` is one."""
    other = 2 * value - real
    return round_real(other) == other


def real_text(value: float) -> str:
    """Return the shortest text that reads back as a REAL, as PostgreSQL writes it.

    One that is halfway between two REALs is none. An exponent below 1e-4 and from 1e6 on.
    """
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if abs(value) in UNEVEN:
        return f"{'-' if value < 0 else ''}{UNEVEN[abs(value)]}"
    least = _SURE_DIGITS if abs(value) >= _NORMAL_MIN else 1
    texts = (f"{value:.{digits - 1}e}" for digits in range(least, _DIGITS_MAX))
    shortest = next((text for text in texts if _reads_as(text, value)), f"{value:.8e}")
    return written(Decimal(shortest), _SURE_DIGITS)


def _reads_as(text: str, value: float) -> bool:
    if nearest_real(Decimal(text)) != value:
        return False
    low, high = MIDDLES
    near = float(text)
    return near == value or not low <= abs(value) < high or not _is_middle(near, value)


def written(number: Decimal, fixed_digits: int) -> str:
    """Return a float's digits as PostgreSQL does: an exponent below 1e-4 and from 1e`digits` on."""
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0") or "0"
    exponent = number.adjusted() if number else 0
    sign = "-" if number.is_signed() else ""
    if -4 <= exponent < fixed_digits:
        fixed = format(number, "f")
        return fixed.rstrip("0").rstrip(".") if "." in fixed else fixed
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
