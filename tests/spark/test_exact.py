"""Which numbers and timestamps a column of another type holds exactly. Without Spark."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import herdpy
from pyspark_herdpy.exact import Target, check_exact

DOUBLE = Target("x", "DOUBLE", None, None)
REAL = Target("x", "REAL", None, None)
SMALLINT = Target("x", "SMALLINT", None, None)
INTEGER = Target("x", "INTEGER", None, None)
BIGINT = Target("x", "BIGINT", None, None)
DATE = Target("x", "DATE", None, None)
NUMERIC = Target("x", "DECIMAL", 10, 2)

DAY_US = 24 * 3600 * 1_000_000
MOMENTS = pa.timestamp("us")


def place(array: Any, target: Target) -> int | None:
    """Return the row that is refused, from 1; None: none is."""
    try:
        check_exact(pa.record_batch([array], names=["y"]), [target], 0)
    except herdpy.DataError as error:
        return int(error.message.split()[1].replace(",", ""))
    return None


@pytest.mark.parametrize(
    ("array", "target", "refused"),
    [
        (pa.array([1.0, None, 2.5]), INTEGER, 3),
        (pa.array([1.0, float("nan"), float("inf")]), BIGINT, None),  # out of range: the server's
        (pa.array([Decimal("1.00"), Decimal("2.50")]), INTEGER, 2),
        (pa.array([Decimal("1.10"), Decimal("2.555")]), NUMERIC, 2),
        (pa.array([Decimal("99.999")], pa.decimal128(5, 3)), NUMERIC, 1),  # rounds to more digits
        (pa.array([Decimal("1.100")]), NUMERIC, None),
        (pa.array([2**53, None, 2**53 + 1]), DOUBLE, 3),
        (pa.array([2**63 - 1]), DOUBLE, 1),
        (pa.array([-(2**63)]), DOUBLE, None),
        (pa.array([2**31 - 1], pa.int32()), DOUBLE, None),
        (pa.array([0.1, None, 1.005]), NUMERIC, 3),
        (pa.array([0.1, 0.25], pa.float32()), NUMERIC, None),
        (pa.array([1e300, float("nan")]), NUMERIC, None),
        # Of more digits than the server keeps: 6 of a FLOAT, 15 of a DOUBLE.
        (pa.array([99999.5, 123456.7], pa.float32()), Target("x", "DECIMAL", 10, 1), 2),
        (pa.array([1e7, 16777216], pa.float32()), Target("x", "DECIMAL", 10, 0), 2),
        (pa.array([16777216], pa.float32()), INTEGER, None),
        (pa.array([999999999999999.0, 9007199254740991.0]), Target("x", "DECIMAL", 16, 0), 2),
        (pa.array([0.3, 0.1 + 0.2]), Target("x", "DECIMAL", 20, 17), 2),
        (pa.array([0.3, 0.1 + 0.2]), Target("x", "DECIMAL", None, None), 2),
        (pa.array([Decimal("0.1"), Decimal("0.12345678901234567890")]), DOUBLE, 2),
        (pa.array([0.1]), DOUBLE, None),
        (pa.array([0.1], pa.float32()), DOUBLE, None),
        (pa.array([0.1], pa.float32()), REAL, None),
        (pa.array([0.5, None, float("nan"), 1e300, 0.1]), REAL, 5),
        (pa.array([2**24, 2**24 + 1]), REAL, 2),
        (pa.array([2**15 - 1], pa.int16()), REAL, None),
        (pa.array([Decimal("0.10"), Decimal("0.25"), Decimal("0.123456789")]), REAL, 3),
        (pa.array([1.0, 2.5]), SMALLINT, 2),
        (pa.array([7]), Target("x", "DECIMAL", None, None), None),
        (pa.array([0, None, -DAY_US, DAY_US - 1], MOMENTS), DATE, 4),
        (pa.array([None, -1], MOMENTS), DATE, 2),
        (pa.array([400_000_000_000_000_001], MOMENTS), DATE, 1),  # of the year 14645
        (pa.array([1], MOMENTS), Target("x", "TIMESTAMP", None, None), None),
        (pa.array(["a"]), Target("x", "TEXT", None, None), None),
        (pa.array([], pa.float64()), INTEGER, None),
    ],
)
def test_what_is_exact(array: Any, target: Target, refused: int | None) -> None:
    assert place(array, target) == refused


def test_the_error_names_row_column_type_and_value() -> None:
    batch = pa.record_batch([pa.array([1]), pa.array([1.005])], names=["a", "b"])
    with pytest.raises(herdpy.DataError) as caught:
        check_exact(batch, [BIGINT, NUMERIC], 1_000)
    assert caught.value.sqlstate == "22003"
    assert caught.value.message == (
        'row 1,001 of the data: column "x" of the table, DECIMAL(10,2), cannot hold 1.005 exactly'
    )
    assert "rounding" in str(caught.value)
    batch = pa.record_batch([pa.array([1]), pa.array([DAY_US + 1], MOMENTS)], names=["a", "b"])
    with pytest.raises(herdpy.DataError) as caught:
        check_exact(batch, [BIGINT, DATE], 0)
    assert caught.value.sqlstate == "22008"
    assert "DATE, cannot hold 1970-01-02 00:00:00.000001 exactly" in caught.value.message
