"""coerce: every type with its edges, in, across and out."""

import datetime
import decimal
import enum
import sys
from decimal import Decimal

import pytest

from herdpy.errors import DataError, Error, ProgrammingError
from herdpy.exec.coerce import (
    cast_physical,
    compile_output,
    compile_row_converter,
    slot_values,
    to_assigned,
    to_physical,
)
from herdpy.model.schema import Column, Table
from herdpy.model.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    SqlType,
    decimal_type,
    varchar_type,
)
from herdpy.sql.plan import Slot

D = Decimal
MONEY = decimal_type(10, 2)
WIDE = decimal_type(38, 10)
UTC = datetime.timezone.utc  # noqa: UP017 - as 3.11 has it
EAST = datetime.timezone(datetime.timedelta(hours=2))
WEST = datetime.timezone(-datetime.timedelta(hours=2))


class Colour(str, enum.Enum):  # noqa: UP042 - whose str() is not its text
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


GOOD = [
    (True, BOOLEAN, True),
    ("yes", BOOLEAN, True),
    (" OFF ", BOOLEAN, False),
    (-(2**31), INTEGER, -(2**31)),
    (2**31 - 1, INTEGER, 2**31 - 1),
    (" +42 ", INTEGER, 42),
    (Level.HIGH, INTEGER, 3),
    (-(2**63), BIGINT, -(2**63)),
    (2**63 - 1, BIGINT, 2**63 - 1),
    (1.5, DOUBLE, 1.5),
    (2**53 + 1, DOUBLE, 9007199254740992.0),  # the nearest
    (D("0.1"), DOUBLE, 0.1),
    ("-1e308", DOUBLE, -1e308),
    ("Infinity", DOUBLE, float("inf")),
    (D("1.005"), MONEY, 101),  # half away from zero
    (D("-1.005"), MONEY, -101),
    (D("1.00499999999999999999999999999999999999999999"), MONEY, 100),
    (0.1, MONEY, 10),
    (2.675, MONEY, 268),  # by its shortest text, not by its 53 bits
    (12, MONEY, 1200),
    ("99999999.99", MONEY, 9_999_999_999),
    (D("1E-999999"), MONEY, 0),
    (D("1234567890123456789012345678.0123456789"), WIDE, 12345678901234567890123456780123456789),
    ("é\U0001f600", TEXT, "é\U0001f600"),
    (Colour.RED, TEXT, "red"),
    ("ééé", varchar_type(3), "ééé"),
    (b"a\0", BYTEA, b"a\0"),
    (bytearray(b"ab"), BYTEA, b"ab"),
    (memoryview(b"ab"), BYTEA, b"ab"),
    ("\\x00fF", BYTEA, b"\0\xff"),
    (datetime.date(1970, 1, 2), DATE, 1),
    (datetime.date.min, DATE, -719162),
    ("2024-02-29", DATE, 19782),
    (datetime.datetime(1970, 1, 1, 0, 0, 0, 1), TIMESTAMP, 1),
    (datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), TIMESTAMP, -1),
    (datetime.datetime.max, TIMESTAMP, 253402300799999999),
    (datetime.date(1970, 1, 2), TIMESTAMP, 86_400_000_000),
    ("1970-01-01 00:00:01.5", TIMESTAMP, 1_500_000),
    (datetime.datetime(1970, 1, 1, 0, 0, 0, 1), TIMESTAMPTZ, 1),
    (datetime.datetime(1970, 1, 1, 2, tzinfo=EAST), TIMESTAMPTZ, 0),
    (datetime.datetime(1970, 1, 1, 2, tzinfo=EAST), TIMESTAMP, 0),
    (datetime.datetime(1969, 12, 31, 22, tzinfo=WEST), TIMESTAMPTZ, 0),
    (datetime.datetime.max.replace(tzinfo=UTC), TIMESTAMPTZ, 253402300799999999),
    (datetime.date(1970, 1, 2), TIMESTAMPTZ, 86_400_000_000),
    ("1970-01-01 02:00:01.5+02", TIMESTAMPTZ, 1_500_000),
    ("1970-01-01 00:00:01.5 utc", TIMESTAMPTZ, 1_500_000),
    ("x", UNKNOWN, "x"),
]


@pytest.mark.parametrize(("value", "sql_type", "expected"), GOOD)
def test_to_physical(value: object, sql_type: SqlType, expected: object) -> None:
    found = to_physical(value, sql_type, what="x")
    assert found == expected
    assert type(found) is type(expected)
    assert to_assigned(value, sql_type, what="x") == expected


BAD = [
    (1, BOOLEAN, "42804"),
    ("o", BOOLEAN, "22P02"),
    (True, INTEGER, "42804"),
    (1.0, INTEGER, "42804"),
    (2**31, INTEGER, "22003"),
    (-(2**31) - 1, INTEGER, "22003"),
    ("1.5", INTEGER, "22P02"),
    ("1_000", INTEGER, "22P02"),
    ("", INTEGER, "22P02"),
    ("9" * 30, BIGINT, "22003"),
    (2**63, BIGINT, "22003"),
    (10**400, DOUBLE, "22003"),
    (D("1e400"), DOUBLE, "22003"),
    ("1e400", DOUBLE, "22003"),
    (True, DOUBLE, "42804"),
    ("one", DOUBLE, "22P02"),
    (D("99999999.995"), MONEY, "22003"),
    (10**8, MONEY, "22003"),
    (D("NaN"), MONEY, "22003"),
    (D("sNaN"), DOUBLE, "22003"),
    (D("Infinity"), MONEY, "22003"),
    (float("nan"), MONEY, "22003"),
    (D("1E999999"), WIDE, "22003"),
    (5, TEXT, "42804"),
    (b"x", TEXT, "42804"),
    ("a\0b", TEXT, "22021"),
    ("a\ud800", TEXT, "22021"),
    ("abcd", varchar_type(3), "22001"),
    ("abc ", varchar_type(3), "22001"),  # not cut, although PostgreSQL would
    ("\\x0", BYTEA, "22023"),
    (datetime.datetime(2024, 1, 1), DATE, "42804"),
    ("2024-02-30", DATE, "22008"),
    ("yesterday", DATE, "22007"),
    (datetime.datetime.min.replace(tzinfo=EAST), TIMESTAMPTZ, "22008"),
    (datetime.datetime.max.replace(tzinfo=WEST), TIMESTAMP, "22008"),
    ("2024-01-01 12:00+16", TIMESTAMPTZ, "22009"),
    ("2024-01-01+02", TIMESTAMPTZ, "22007"),
    ("9999-12-31 23:00-02", TIMESTAMPTZ, "22008"),
    ("2024-01-01 12:00+02", TIMESTAMP, "22007"),
    ("2024-01-01 25:00:00", TIMESTAMP, "22008"),
    (object(), TEXT, "42804"),
    ([1], BIGINT, "42804"),
]


@pytest.mark.parametrize(("value", "sql_type", "sqlstate"), BAD)
def test_to_physical_refuses(value: object, sql_type: SqlType, sqlstate: str) -> None:
    with pytest.raises(Error, match=r"^column c: ") as caught:
        to_physical(value, sql_type, what="column c")
    assert caught.value.sqlstate == sqlstate
    assert len(str(caught.value)) < 400 or sqlstate == "22P02"


def test_null_is_none_in_every_type() -> None:
    for sql_type in (BOOLEAN, INTEGER, DOUBLE, MONEY, TEXT, BYTEA, DATE, TIMESTAMP, UNKNOWN):
        assert to_physical(None, sql_type, what="x") is None
        assert cast_physical(None, UNKNOWN, sql_type, is_assignment=False, what="x") is None


def test_numpy_scalars_and_pandas_moments_without_importing_either() -> None:
    numpy = pytest.importorskip("numpy")
    assert type(to_physical(numpy.int32(7), INTEGER, what="x")) is int
    assert type(to_physical(numpy.float64(0.5), DOUBLE, what="x")) is float
    assert to_physical(numpy.bool_(True), BOOLEAN, what="x") is True
    assert type(to_physical(numpy.str_("é"), TEXT, what="x")) is str
    day = to_physical(numpy.datetime64("1970-01-02T00:00:00", "us"), TIMESTAMP, what="x")
    assert day == 86_400_000_000
    with pytest.raises(ProgrammingError):  # nanoseconds become an int: never a TIMESTAMP
        to_physical(numpy.datetime64(1, "ns"), TIMESTAMP, what="x")
    assert "pandas" not in to_physical.__globals__
    pandas = pytest.importorskip("pandas")
    assert to_physical(pandas.Timestamp(1970, 1, 2), TIMESTAMP, what="x") == 86_400_000_000
    with pytest.raises(DataError, match="finer than microseconds"):
        to_physical(pandas.Timestamp(1), TIMESTAMP, what="x")
    with pytest.raises(ProgrammingError):
        to_physical(pandas.NaT, TIMESTAMP, what="x")


def test_the_programs_decimal_context_does_not_matter() -> None:
    with decimal.localcontext() as context:
        context.prec = 3
        context.traps[decimal.Inexact] = True
        value = to_physical(D("12345678.915"), MONEY, what="x")
        assert value == 1_234_567_892
        convert = compile_output([MONEY])
        assert convert is not None
        assert str(convert((value,))[0]) == "12345678.92"


ASSIGNED = [
    (1.5, INTEGER, 2),
    (2.5, INTEGER, 2),  # DOUBLE: half to even
    (D("2.5"), INTEGER, 3),  # DECIMAL: half away from zero
    (D("-2.5"), BIGINT, -3),
    (datetime.datetime(1970, 1, 1, 23), DATE, 0),
    (datetime.datetime(1969, 12, 31, 23), DATE, -1),
    (5, TEXT, "5"),
    (True, TEXT, "true"),
    (D("1.50"), TEXT, "1.50"),
]


@pytest.mark.parametrize(("value", "sql_type", "expected"), ASSIGNED)
def test_to_assigned_rounds_as_postgresql_does(
    value: object, sql_type: SqlType, expected: object
) -> None:
    assert to_assigned(value, sql_type, what="x") == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e9, D("2147483647.5")])
def test_to_assigned_checks_the_range(value: object) -> None:
    with pytest.raises(DataError, match="INTEGER") as caught:
        to_assigned(value, INTEGER, what="x")
    assert caught.value.sqlstate == "22003"


CASTS = [
    (7, INTEGER, BIGINT, 7),
    (7, BIGINT, INTEGER, 7),
    (7, INTEGER, DOUBLE, 7.0),
    (7, INTEGER, MONEY, 700),
    (True, BOOLEAN, INTEGER, 1),
    (0, INTEGER, BOOLEAN, False),
    (250, MONEY, INTEGER, 3),
    (-250, MONEY, INTEGER, -3),
    (249, MONEY, INTEGER, 2),
    (12345, decimal_type(10, 3), MONEY, 1235),
    (-12345, decimal_type(10, 3), MONEY, -1235),
    (10, MONEY, DOUBLE, 0.1),
    (0.125, DOUBLE, MONEY, 13),
    (2.5, DOUBLE, INTEGER, 2),
    (1, DATE, TIMESTAMP, 86_400_000_000),
    (1, DATE, TIMESTAMPTZ, 86_400_000_000),
    (1, TIMESTAMP, TIMESTAMPTZ, 1),
    (1, TIMESTAMPTZ, TIMESTAMP, 1),
    (-1, TIMESTAMPTZ, DATE, -1),
    (1_500_000, TIMESTAMPTZ, TEXT, "1970-01-01 00:00:01.5+00"),
    (-1, TIMESTAMP, DATE, -1),
    ("abcdef", TEXT, varchar_type(3), "abc"),
    ("12", TEXT, INTEGER, 12),
    (True, BOOLEAN, TEXT, "true"),
    (-150, MONEY, TEXT, "-1.50"),
    (b"\0\xff", BYTEA, TEXT, "\\x00ff"),
    (0, DATE, TEXT, "1970-01-01"),
    (1_500_000, TIMESTAMP, TEXT, "1970-01-01 00:00:01.5"),
    (1e15, DOUBLE, TEXT, "1e+15"),
    (123456.0, DOUBLE, TEXT, "123456"),
    (1e-5, DOUBLE, TEXT, "1e-05"),
    (-0.0, DOUBLE, TEXT, "-0"),
    (1.2345678901234568e17, DOUBLE, TEXT, "1.2345678901234568e+17"),
    (float("-inf"), DOUBLE, TEXT, "-Infinity"),
]


@pytest.mark.parametrize(("value", "from_type", "to_type", "expected"), CASTS)
def test_cast_physical(
    value: object, from_type: SqlType, to_type: SqlType, expected: object
) -> None:
    found = cast_physical(value, from_type, to_type, is_assignment=False, what="x")
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("value", "from_type", "to_type", "sqlstate"),
    [
        (2**31, BIGINT, INTEGER, "22003"),
        (10**10, BIGINT, MONEY, "22003"),
        (10**9, MONEY, decimal_type(5, 2), "22003"),
        (float("nan"), DOUBLE, BIGINT, "22003"),
        (9.3e18, DOUBLE, BIGINT, "22003"),
        ("abcdef", TEXT, varchar_type(3), "22001"),
        ("x", TEXT, INTEGER, "22P02"),
        (1, DATE, INTEGER, "42846"),
        (b"", BYTEA, INTEGER, "42846"),
    ],
)
def test_cast_physical_refuses(
    value: object, from_type: SqlType, to_type: SqlType, sqlstate: str
) -> None:
    with pytest.raises(Error) as caught:
        cast_physical(value, from_type, to_type, is_assignment=True, what="x")
    assert caught.value.sqlstate == sqlstate


def test_slot_values_names_the_parameter() -> None:
    slots = [Slot(0, BIGINT), Slot(1, TEXT), Slot(0, DOUBLE)]
    assert slot_values(slots, [5, "a"]) == [5, "a", 5.0]
    assert slot_values([Slot("who", TEXT)], {"who": "me"}) == ["me"]
    assert slot_values([], None) == []
    with pytest.raises(ProgrammingError, match=r"parameter 2: .*among 1") as caught:
        slot_values(slots, [5])
    assert caught.value.sqlstate == "07001"
    with pytest.raises(ProgrammingError, match="parameter :who"):
        slot_values([Slot("who", TEXT)], {"who": 5})


TABLE = Table(
    1,
    "t",
    (
        Column(1, "id", BIGINT, not_null=True),
        Column(2, "name", varchar_type(5)),
        Column(3, "price", MONEY, default=100),
        Column(4, "born", TIMESTAMP, default_sql="CURRENT_TIMESTAMP"),
        Column(5, "x", DOUBLE),
        Column(6, "day", DATE, default_sql="CURRENT_DATE"),
    ),
    (0,),
)


def test_row_converter() -> None:
    convert = compile_row_converter(TABLE, (4, 0, 1))
    assert convert((1.5, 7, "abc"), 86_400_000_001) == (7, "abc", 100, 86_400_000_001, 1.5, 1)
    assert convert([3, "8", None], 0) == (8, None, 100, 0, 3.0, 0)
    assert convert((None, Level.HIGH, "ééééé"), 0)[:2] == (3, "ééééé")
    for bad, name in (((1.0, True, ""), "id"), ((1.0, 1, "123456"), "name"), (("x", 1, ""), "x")):
        with pytest.raises(Error, match=f"column {name}: "):
            convert(bad, 0)
    assert compile_row_converter(TABLE, ())((), 0) == (None, None, 100, 0, None, 0)


def test_output_conversion_is_left_out_where_nothing_changes() -> None:
    assert compile_output([BIGINT, TEXT, DOUBLE, BYTEA, BOOLEAN]) is None
    convert = compile_output([BIGINT, MONEY, DATE, TIMESTAMP, decimal_type(38, 0)])
    assert convert is not None
    row = convert((1, 150, 0, -1, 10**37))
    moment = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)
    assert row == (1, D("1.50"), datetime.date(1970, 1, 1), moment, D(10**37))
    assert convert((None,) * 5) == (None,) * 5
    for bad in ((1, 1, 10**7, 1, 1), (1, 1, sys.maxsize, 1, 1), (1, 1, 1, 2**63 - 1, 1)):
        with pytest.raises(DataError, match="years 1 to 9999"):
            convert(bad)
