"""The rules of types: which meet, which may be assigned, and constants converted at bind time.

Everything is physical (model/types.py). PostgreSQL's rules; a value that does not fit is 22003, a
text that does not read is 22P02 (dates and times: 22007, 22008).
"""

import decimal
import re
from datetime import date, datetime
from decimal import Decimal

from herdpy.errors import DataError
from herdpy.limits import decimal_precision_max
from herdpy.model.intervals import read_interval
from herdpy.model.python_values import shortened, shown
from herdpy.model.reals import nearest_real, round_real
from herdpy.model.types import (
    BIGINT,
    BIGINT_MAX,
    BIGINT_MIN,
    DAY_US,
    DOUBLE,
    EPOCH_DAY,
    INTEGER,
    INTEGER_BOUNDS,
    INTEGER_KINDS,
    INTEGER_MAX,
    INTEGER_MIN,
    MOMENT_MAX,
    MOMENT_MIN,
    REAL,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Kind,
    Physical,
    SqlType,
    decimal_type,
)

# At most 400 digits: int() refuses thousands, and no type holds them.
_INTEGER = re.compile(r"\s*[+-]?\d{1,400}\s*", re.ASCII)
_NUMBER = re.compile(r"\s*([+-]?)(\d{0,400})(?:\.(\d{0,400}))?(?:[eE]([+-]?\d{1,6}))?\s*", re.ASCII)
_ANY_NUMBER = re.compile(r"\s*[+-]?(?P<mantissa>\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
_SPECIAL = re.compile(r"\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)
_DATE = re.compile(r"\s*(\d{4})-(\d{1,2})-(\d{1,2})\s*", re.ASCII)
_TIMESTAMP = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?)?\s*",
    re.ASCII,
)
_TIMESTAMPTZ = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?"
    r"\s*(?:(?:Z|UTC|GMT)|([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?)?)?\s*",
    re.ASCII | re.IGNORECASE,
)
_MOMENTS = {Kind.DATE: _DATE, Kind.TIMESTAMP: _TIMESTAMP, Kind.TIMESTAMPTZ: _TIMESTAMPTZ}
# Of bytea: what PostgreSQL calls its escape format. (?!): see sql/reading/literals.py.
_ESCAPED = re.compile(r"(?:[^\\]++|\\\\|\\[0-3][0-7]{2}|(?!))*+")
_ESCAPE = re.compile(rb"\\\\|\\[0-3][0-7]{2}")
_TRUE = ("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1")
_FALSE = ("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0")
_ZONE_HOURS_MAX = 15
_INFINITY = float("inf")
# Never the thread's context: the host program may have changed its precision or its traps. With
# this precision scaleb and to_integral_value, the only operations used, are exact.
EXACT_DECIMALS = decimal.Context(
    prec=decimal.MAX_PREC,
    Emax=decimal.MAX_EMAX,
    Emin=decimal.MIN_EMIN,
    rounding=decimal.ROUND_HALF_UP,
    traps=[],
)
_QUOTIENT_SCALE = 16
_INTEGER_DIGITS = {Kind.SMALLINT: 5, Kind.INTEGER: 10, Kind.BIGINT: 19}
DOUBLE_DIGITS, REAL_DIGITS = 15, 6
"""Decimal digits that a float of 64 and of 32 bits surely has: C's DBL_DIG and FLT_DIG."""


# --- types ---------------------------------------------------------------------------------------


def is_comparable(left: SqlType, right: SqlType) -> bool:
    """Tell whether values of both compare as they are, without a Cast."""
    if left.is_integer and right.is_integer:
        return True
    return left.kind is right.kind and left.scale == right.scale


def common_type(left: SqlType, right: SqlType) -> SqlType | None:
    """Return the type that both convert to in CASE, VALUES and UNION, or None."""
    if left.kind is right.kind and left.kind is not Kind.DECIMAL:
        return TEXT if left.kind is Kind.TEXT else left
    if left.is_numeric and right.is_numeric:
        for kind in (DOUBLE, REAL):
            if kind in (left, right):
                return kind
        if is_wide(left) or is_wide(right):
            raise too_wide()
        if left.is_integer and right.is_integer:
            return max(left, right, key=lambda each: INTEGER_KINDS.index(each.kind))
        left, right = as_decimal(left), as_decimal(right)
        scale = max(digits(left)[1], digits(right)[1])
        whole = max(digits(left)[0], digits(right)[0])
        return decimal_type(min(whole + scale, decimal_precision_max), scale)
    if left.is_moment and right.is_moment:
        return TIMESTAMPTZ if TIMESTAMPTZ in (left, right) else TIMESTAMP
    return None


def operand_type(left: SqlType, right: SqlType) -> SqlType | None:
    """Return the type that operators convert both to, or None: REAL only where both are."""
    found = common_type(left, right)
    return DOUBLE if found is REAL and left != right else found


def untyped_number(text: Physical, target: SqlType) -> SqlType:
    """Return what an untyped constant beside a value of target is: beside a DECIMAL, its digits.

    Beside any other type, and where it is no number, it is of target's. 22003 for too many digits.
    """
    if target.kind is not Kind.DECIMAL or not isinstance(text, str):
        return target
    if not _ANY_NUMBER.fullmatch(text):
        return target
    value, kind = number_constant(text.strip())
    whole = len(str(abs(value))) if isinstance(value, int) else 0
    return kind if kind.kind is Kind.DECIMAL else decimal_type(whole, 0)


def text_number(value: object, target: SqlType) -> SqlType:
    """Return target, a DECIMAL, where it holds the digits of a text, else a type that does.

    22003 for too many digits.
    """
    own = untyped_number(value, target) if isinstance(value, str) else target
    whole, scale = digits(own)
    if whole <= digits(target)[0] and scale <= digits(target)[1]:
        return target
    return decimal_type(decimal_precision_max, scale)


def is_wide(kind: SqlType) -> bool:
    """Tell whether it is the type of a constant that no DECIMAL holds, until it is converted."""
    return kind.precision is not None and kind.precision > decimal_precision_max


def too_wide() -> DataError:
    return DataError(
        f"a numeric constant needs more than {decimal_precision_max} digits",
        sqlstate="22003",
        hint="CAST it to a numeric(precision, scale) or double precision that holds it.",
    )


def as_decimal(numeric: SqlType) -> SqlType:
    """Return the DECIMAL that holds every value of an integer type; a DECIMAL as it is."""
    if numeric.kind is Kind.DECIMAL:
        return numeric
    return decimal_type(_INTEGER_DIGITS[numeric.kind], 0)


def digits(decimal: SqlType) -> tuple[int, int]:
    """Return a DECIMAL's digits before and after the point."""
    if decimal.precision is None or decimal.scale is None:
        raise ValueError(f"a DECIMAL without precision: {decimal!r}")
    return decimal.precision - decimal.scale, decimal.scale


def quotient_scale(left_scale: int, right_scale: int) -> int:
    """Return the scale of a DECIMAL quotient: at least 16, and that of the operands."""
    return max(_QUOTIENT_SCALE, left_scale, right_scale)


def is_assignable(source: SqlType, target: SqlType) -> bool:
    """Tell whether INSERT and UPDATE convert source to target by themselves."""
    if source.kind in (target.kind, Kind.UNKNOWN) or target.kind is Kind.TEXT:
        return True
    if source.is_numeric and target.is_numeric:
        return True
    return source.is_moment and target.is_moment


def is_castable(source: SqlType, target: SqlType) -> bool:
    """Tell whether CAST converts source to target."""
    if is_assignable(source, target) or source.kind is Kind.TEXT:
        return True
    return {source.kind, target.kind} == {Kind.BOOLEAN, Kind.INTEGER}


# --- constants -----------------------------------------------------------------------------------


def convert_constant(value: Physical, source: SqlType, target: SqlType) -> Physical:
    """Convert a numeric constant to a numeric type, a moment to a moment, an UNKNOWN to any."""
    if value is None:
        return None
    if source.kind is Kind.UNKNOWN:
        return read_text(str(value), target)
    if target.kind is Kind.TEXT and source.is_integer:
        return str(value)
    if isinstance(value, int) and source.is_moment and target.is_moment:
        return convert_moment(value, source, target)
    if not isinstance(value, int) or not target.is_numeric:
        raise ValueError(f"no constant conversion from {source} to {target}")
    scale = source.scale or 0
    if target.kind is Kind.REAL:
        return to_real(Decimal(value).scaleb(-scale, EXACT_DECIMALS), target)
    if target.kind is Kind.DOUBLE:
        try:
            number = value / 10**scale  # of integers, so it is the nearest float
        except OverflowError:
            raise out_of_range(Decimal(value).scaleb(-scale, EXACT_DECIMALS), target) from None
        if value and not number:
            raise out_of_range(Decimal(value).scaleb(-scale, EXACT_DECIMALS), target)
        return number
    found = Decimal(value).scaleb(-scale, EXACT_DECIMALS)
    return check_range(rescale(value, scale, target.scale or 0), target, found)


def convert_moment(value: int, source: SqlType, target: SqlType) -> int:
    """Convert a date or timestamp to another kind of them; the session's time zone is UTC."""
    if source.kind is target.kind:
        return value
    if source.kind is Kind.DATE:
        return value * DAY_US
    return value // DAY_US if target.kind is Kind.DATE else value


def negate_constant(value: int | float, kind: SqlType) -> int | float:
    """Return -value, a number of that type; 22003 for the smallest integers."""
    return -value if isinstance(value, float) else check_range(-value, kind)


def is_exact(value: int, source: SqlType, target: SqlType) -> bool:
    """Tell whether a numeric constant means the same in target (an integer, DECIMAL or REAL)."""
    scale, target_scale = source.scale or 0, target.scale or 0
    if target.kind is Kind.REAL:
        number = Decimal(value).scaleb(-scale, EXACT_DECIMALS)
        return number == Decimal.from_float(nearest_real(number))
    if scale > target_scale and value % 10 ** (scale - target_scale):
        return False
    try:
        check_range(rescale(value, scale, target_scale), target)
    except DataError:
        return False
    return True


def rescale(value: int, scale: int, target_scale: int) -> int:
    """Return a scaled integer at another scale, rounded half away from zero."""
    if target_scale >= scale:
        return value * 10 ** (target_scale - scale)
    unit = 10 ** (scale - target_scale)
    quotient = (abs(value) + unit // 2) // unit
    return quotient if value >= 0 else -quotient


def decimal_of(value: float, digits: int = DOUBLE_DIGITS) -> Decimal:
    """Return what the cast of a float to numeric means, before its scale: PostgreSQL's digits.

    The vector path has the same by printf (sql/duckdb_text.py).
    """
    return Decimal(f"{value:.{digits}g}")


def to_real(value: float | Decimal, target: SqlType, what: str = "") -> float:
    """Return the REAL that is nearest to a number; 22003 beyond, or for 0 where a digit is not."""
    real = round_real(value) if isinstance(value, float) else nearest_real(value)
    if (real in (_INFINITY, -_INFINITY) and value != real) or (value and not real):
        raise out_of_range(value, target, what)
    return real


def scaled_decimal(number: Decimal, target: SqlType) -> int:
    """Return a number as a DECIMAL's scaled integer, rounded half away from zero; 22003."""
    # adjusted() first: the digits of 1E+999999 would fill the memory.
    if not number.is_finite() or (number and number.adjusted() > decimal_precision_max):
        raise out_of_range(number, target)
    shifted = number.scaleb(target.scale or 0, EXACT_DECIMALS)
    return check_range(int(shifted.to_integral_value(context=EXACT_DECIMALS)), target, number)


def number_constant(text: str) -> tuple[Physical, SqlType]:
    """Read a number in SQL text: INTEGER or BIGINT where it fits, else DECIMAL.

    Where is_wide(type), only a conversion can make a value of it. 22003 beyond that, too.
    """
    text = text.replace("_", "")
    if _INTEGER.fullmatch(text):
        value = int(text)
        if INTEGER_MIN <= value <= INTEGER_MAX:
            return value, INTEGER
        if BIGINT_MIN <= value <= BIGINT_MAX:
            return value, BIGINT
    parsed = _scaled(text)
    if parsed is not None:
        value, scale = parsed
        return value, decimal_type(max(len(str(abs(value))), scale, 1), scale)
    if not _ANY_NUMBER.fullmatch(text):
        raise DataError(
            f'invalid input syntax for type numeric: "{shortened(text)}"', sqlstate="22P02"
        )
    raise too_wide()


def read_text(text: str, target: SqlType) -> Physical:
    """Convert the text of an untyped literal to target, as PostgreSQL's input functions do."""
    kind = target.kind
    if kind is Kind.TEXT:
        if "\0" in text:
            raise DataError("text must not contain the character NUL", sqlstate="22021")
        return text
    if target.is_moment:
        return _read_moment(text, target)
    value: Physical = None
    if kind is Kind.BOOLEAN:
        word = text.strip().lower()
        value = True if word in _TRUE else False if word in _FALSE else None
    elif target.is_integer and _INTEGER.fullmatch(text):
        value = check_range(int(text), target, text)
    elif kind is Kind.DOUBLE:
        value = _read_double(text)
    elif kind is Kind.REAL:
        value = _read_real(text)
    elif kind is Kind.DECIMAL:
        value = _read_decimal(text, target)
    elif kind is Kind.BYTEA:
        value = _read_bytes(text)
    elif kind is Kind.INTERVAL:
        value = read_interval(text)
    if value is None:
        raise DataError(
            f'invalid input syntax for type {str(target).lower()}: "{shortened(text)}"',
            sqlstate="22007" if kind is Kind.INTERVAL else "22P02",
        )
    return value


def _read_double(text: str) -> float | None:
    if _SPECIAL.fullmatch(text):
        return float(text)
    match = _ANY_NUMBER.fullmatch(text)
    if match is None:
        return None
    value = float(text)
    if value in (_INFINITY, -_INFINITY) or (not value and match["mantissa"].strip("0.")):
        raise out_of_range(text, DOUBLE)  # infinite, or 0 where a digit is not
    return value


def _read_real(text: str) -> float | None:
    if _SPECIAL.fullmatch(text):
        return float(text)
    if not _ANY_NUMBER.fullmatch(text):
        return None
    try:
        _read_double(text)  # what is beyond it has, perhaps, too many digits for the next
        return to_real(EXACT_DECIMALS.create_decimal(text.strip()), REAL)
    except DataError:
        raise out_of_range(text, REAL) from None


def _read_decimal(text: str, target: SqlType) -> int | None:
    if not _ANY_NUMBER.fullmatch(text):
        return None
    try:
        return scaled_decimal(EXACT_DECIMALS.create_decimal(text.strip()), target)
    except DataError:
        raise out_of_range(text, target) from None


def _scaled(text: str) -> tuple[int, int] | None:
    """Return a number as (scaled integer, scale >= 0), None when it is none."""
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return None
    fraction, exponent = match[3] or "", int(match[4] or 0)
    value = int(match[1] + (match[2] or "") + fraction)
    scale = len(fraction) - exponent
    if abs(scale) > 400:  # beyond every type; do not build huge integers of short texts
        return None
    return (value, scale) if scale >= 0 else (value * 10**-scale, 0)


def _read_moment(text: str, target: SqlType) -> int:
    match = _MOMENTS[target.kind].fullmatch(text)
    if match is None:
        raise DataError(
            f'invalid input syntax for type {str(target).lower()}: "{shortened(text)}"',
            sqlstate="22007",
            hint="Write 2024-01-31, with a time 2024-01-31 23:59:58.123456"
            + (", with a zone …58.123456+02:00." if target.kind is Kind.TIMESTAMPTZ else "."),
        )
    year, month, day, *clock = match.groups()
    zone, clock = clock[4:], clock[:4]
    try:
        if target.kind is Kind.DATE:
            return date(int(year), int(month), int(day)).toordinal() - EPOCH_DAY
        hour, minute, second = (int(part or 0) for part in clock[:3])
        micro = int((clock[3] or "").ljust(6, "0"))
        moment = datetime(int(year), int(month), int(day), hour, minute, second, micro)
    except ValueError as error:
        raise DataError(
            f'date/time field value out of range: "{shortened(text)}" ({error})', sqlstate="22008"
        ) from error
    seconds = (hour * 60 + minute) * 60 + second
    found = (moment.toordinal() - EPOCH_DAY) * DAY_US + seconds * 1_000_000 + micro
    if not (zone and zone[0]):
        return found
    found -= _offset_us(zone, text)
    if not MOMENT_MIN <= found <= MOMENT_MAX:
        raise DataError(f'timestamp out of range: "{shortened(text)}"', sqlstate="22008")
    return found


def _offset_us(zone: list[str | None], text: str) -> int:
    """Return microseconds east of UTC of (sign, hours, minutes, seconds)."""
    hours, minutes, seconds = (int(part or 0) for part in zone[1:])
    if hours > _ZONE_HOURS_MAX or minutes > 59 or seconds > 59:
        raise DataError(
            f'time zone displacement out of range: "{shortened(text)}"',
            sqlstate="22009",
            hint=f"Expected at most {_ZONE_HOURS_MAX}:59:59.",
        )
    offset = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    return -offset if zone[0] == "-" else offset


def _read_bytes(text: str) -> bytes | None:
    if text.startswith("\\x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            message = f'invalid hexadecimal data: "{shortened(text)}"'
            raise DataError(message, sqlstate="22023") from None
    if "\\" not in text:
        return text.encode()
    if not _ESCAPED.fullmatch(text):
        return None
    return _ESCAPE.sub(_unescaped, text.encode())


def _unescaped(match: re.Match[bytes]) -> bytes:
    r"""Return the byte that \\ or \ooo, an octal number, stands for."""
    return b"\\" if match[0] == b"\\\\" else bytes((int(match[0][1:], 8),))


def check_range(value: int, target: SqlType, found: object = None, what: str = "") -> int:
    """Return the value when target, an integer or DECIMAL, holds it.

    22003 names what was found, by default the value, and `what` it is for.
    """
    low, high = INTEGER_BOUNDS.get(target.kind) or (None, None)
    if low is None or high is None:
        fits = abs(value) < 10 ** (target.precision or decimal_precision_max)
    else:
        fits = low <= value <= high
    if not fits:
        if found is None:
            found = Decimal(value).scaleb(-(target.scale or 0), EXACT_DECIMALS)
        raise out_of_range(found, target, what)
    return value


def out_of_range(found: object, target: SqlType, what: str = "") -> DataError:
    """Return the error 22003 of a number that a type does not hold."""
    place = f"{what}: " if what else ""
    message = f"{place}value {shown(found)} is out of range for type {target}"
    return DataError(message, sqlstate="22003")
