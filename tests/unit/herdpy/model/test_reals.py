"""REALs: rounded as IEEE 754 says, from numbers of any size, and written as PostgreSQL does."""

import math
import struct
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdpy.model.reals import MIDDLES, UNEVEN, nearest_real, real_text, round_real

LARGEST = 3.4028234663852886e38
REALS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def neighbours(real: float) -> tuple[float, float]:
    """Return the REALs below and above a positive one."""
    (bits,) = struct.unpack("<I", struct.pack("<f", real))
    below, above = (struct.unpack("<f", struct.pack("<I", bits + by))[0] for by in (-1, 1))
    return below, above


@given(st.floats(min_value=2.0**-140, max_value=2.0**120, width=32), st.integers(-3, 3))
def test_a_number_beside_the_middle_of_two_goes_to_the_nearer_one(real: float, by: int) -> None:
    _, above = neighbours(real)
    middle = (Fraction(real) + Fraction(above)) / 2
    number = Decimal(middle.numerator) / Decimal(middle.denominator)  # of 28 digits: near it
    digits = Decimal((0, (1,), number.adjusted() - 26)) * by
    exact = Fraction(number + digits)
    expected = {-1: real, 1: above}.get((exact > middle) - (exact < middle))
    if expected is not None:
        assert nearest_real(number + digits) == expected


@given(st.integers(-(2**80), 2**80))
def test_integers(value: int) -> None:
    found = Fraction(nearest_real(value))
    below, above = neighbours(abs(float(found))) if value else (0.0, 1e-45)
    off = abs(abs(Fraction(value)) - abs(found))
    assert off <= abs(Fraction(above) - abs(found)) / 2
    assert not value or off <= abs(abs(found) - Fraction(below)) / 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (16_777_217, 16_777_216.0), (16_777_219, 16_777_220.0),
        (9_007_199_791_611_905, 2.0**53 + 2**30),
        (Decimal("1.00000005960464477540"), 1 + 2.0**-23), (Decimal("1.0000000596046447753"), 1.0),
        (Decimal("3.4028235677973367e38"), math.inf), (Decimal("3.4028235677973366e38"), LARGEST),
        (10**400, math.inf), (-(10**400), -math.inf), (Decimal("1e-60"), 0.0),
        (Decimal("7.038531e-26"), 7.038530691851209e-26),
    ],
)  # fmt: skip
def test_what_is_rounded_once(value: int | Decimal, expected: float) -> None:
    assert nearest_real(value) == expected


def test_of_floats() -> None:
    assert round_real(0.1) == 0.10000000149011612
    assert round_real(1e39) == math.inf
    assert round_real(-1e39) == -math.inf
    assert math.isnan(round_real(math.nan))
    assert math.copysign(1, round_real(-1e-60)) == -1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"), (-0.0, "-0"), (100000.0, "100000"), (1e6, "1e+06"),
        (1234567.0, "1.234567e+06"), (0.0001, "0.0001"), (1e-5, "1e-05"), (1e-45, "1e-45"),
        (1.1754944e-38, "1.1754944e-38"),
        (LARGEST, "3.4028235e+38"), (33554448.0, "3.3554448e+07"), (75835296.0, "7.5835296e+07"),
        (452996416.0, "4.5299642e+08"), (378544.875, "378544.88"), (7.0385307e-26, "7.038531e-26"),
        (math.nan, "NaN"), (-math.inf, "-Infinity"), *((key, text) for key, text in UNEVEN.items()),
    ],
)  # fmt: skip
def test_texts(value: float, text: str) -> None:
    """PostgreSQL's."""
    assert real_text(round_real(value)) == text


@given(REALS)
def test_a_text_reads_back_as_the_same_and_none_is_shorter(value: float) -> None:
    text = real_text(value)
    assert nearest_real(Decimal(text)) == value
    assert math.copysign(1, float(text)) == math.copysign(1, value)
    digits = len(Decimal(text).normalize().as_tuple().digits)
    low, high = MIDDLES
    if digits > 1 and not low <= abs(value) < high:
        assert nearest_real(Decimal(f"{value:.{digits - 2}e}")) != value
