"""Type objects, constructors, descriptions."""

import datetime

import pytest

import herdpy
from herdpy.driver.types import describe
from herdpy.model import types

OBJECTS = [herdpy.STRING, herdpy.BINARY, herdpy.NUMBER, herdpy.DATETIME, herdpy.ROWID]


@pytest.mark.parametrize(
    ("sql_type", "expected"),
    [
        (types.TEXT, herdpy.STRING),
        (types.varchar_type(3), herdpy.STRING),
        (types.BYTEA, herdpy.BINARY),
        (types.BOOLEAN, herdpy.NUMBER),
        (types.INTEGER, herdpy.NUMBER),
        (types.BIGINT, herdpy.NUMBER),
        (types.DOUBLE, herdpy.NUMBER),
        (types.decimal_type(9, 2), herdpy.NUMBER),
        (types.DATE, herdpy.DATETIME),
        (types.TIMESTAMP, herdpy.DATETIME),
        (types.TIMESTAMPTZ, herdpy.DATETIME),
    ],
)
def test_each_type_code_equals_exactly_one_object(sql_type, expected) -> None:
    code = describe("c", sql_type)[1]
    assert [item for item in OBJECTS if item == code] == [expected]
    assert code == expected


def test_every_kind_has_an_object() -> None:
    codes = set().union(*(item.codes for item in OBJECTS))
    assert codes == {kind.name for kind in types.Kind}


def test_type_objects_differ_and_have_no_hash() -> None:
    assert herdpy.STRING == herdpy.STRING
    assert herdpy.STRING != herdpy.NUMBER
    assert herdpy.STRING != 5
    with pytest.raises(TypeError):
        hash(herdpy.STRING)
    assert repr(herdpy.STRING) == "herdpy.STRING"


def test_description_carries_length_precision_scale() -> None:
    assert describe("a", types.varchar_type(20)) == ("a", "TEXT", None, 20, None, None, None)
    assert describe("b", types.decimal_type(9, 2)) == ("b", "DECIMAL", None, None, 9, 2, None)


def test_constructors() -> None:
    assert herdpy.Date(2002, 12, 25) == datetime.date(2002, 12, 25)
    assert herdpy.Time(13, 45, 30) == datetime.time(13, 45, 30)
    assert herdpy.Timestamp(2002, 12, 25, 13, 45, 30) == datetime.datetime(2002, 12, 25, 13, 45, 30)
    ticks = datetime.datetime(2002, 12, 25, 13, 45, 30).timestamp()  # local, as PEP 249 has it
    assert herdpy.DateFromTicks(ticks) == datetime.date(2002, 12, 25)
    assert herdpy.TimeFromTicks(ticks) == datetime.time(13, 45, 30)
    assert herdpy.TimestampFromTicks(ticks) == datetime.datetime(2002, 12, 25, 13, 45, 30)
    assert herdpy.Binary(b"\0\xff") == b"\0\xff"
