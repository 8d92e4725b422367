"""Values come back as what they were, and nothing else gets through."""

import datetime
import enum
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdpy.errors import DataError, ProtocolError
from herdpy.model.types import Kind
from herdpy.proto.messages import Execute, ExecuteMany, decode_to_server, encode_frame
from herdpy.proto.parameters import decode_items, decode_parameters
from herdpy.proto.values import RowsEncoder, encode_rows, many_to_wire, rows_decoder, to_wire

VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOLEAN: st.booleans(),
    Kind.BIGINT: st.integers(-(2**63), 2**63 - 1),
    Kind.DOUBLE: st.floats(allow_nan=False),
    Kind.DECIMAL: st.decimals(allow_nan=False, allow_infinity=False),
    Kind.TEXT: st.text(),
    Kind.BYTEA: st.binary(),
    Kind.DATE: st.dates(),
    Kind.TIMESTAMP: st.datetimes(),
    Kind.TIMESTAMPTZ: st.datetimes(timezones=st.just(datetime.UTC)),
}


class NumberedName(enum.IntEnum):
    """An int that is more than one."""

    ONE = 1


class Word(str):
    """A text that is more than one."""

    __slots__ = ()


def sent(parameters: Any) -> Any:
    message = decode_to_server(encode_frame(Execute(1, "x", to_wire(parameters)))[4:])
    assert isinstance(message, Execute)
    return decode_parameters(message.parameters, free)


def sent_together(rows: list[Any]) -> Any:
    message = decode_to_server(encode_frame(ExecuteMany(1, "x", many_to_wire(rows)))[4:])
    assert isinstance(message, ExecuteMany)
    return decode_items(message.items, free)


def free(_byte_count: int) -> None:
    """Charge for nothing."""


@given(st.lists(st.one_of(st.none(), *VALUES.values(), st.integers())))
def test_parameters_keep_value_and_class(parameters: list[Any]) -> None:
    found = sent(parameters)
    assert found == parameters
    assert [type(value) for value in found] == [type(value) for value in parameters]
    assert [str(value) for value in found] == [str(value) for value in parameters]


@given(st.lists(st.lists(st.one_of(st.none(), *VALUES.values(), st.integers())), max_size=30))
def test_rows_of_parameters_are_each_what_they_are_alone(rows: list[Any]) -> None:
    found = sent_together([tuple(row) for row in rows])
    assert [list(row) for row in found] == rows
    alone = [sent(row) for row in rows]
    assert [[(type(v), str(v)) for v in row] for row in found] == [
        [(type(v), str(v)) for v in row] for row in alone
    ]


@pytest.mark.parametrize(
    "odd",
    [
        2**63,
        2**64,
        -(2**63) - 1,
        "\ud800",
        NumberedName.ONE,
        Word("w"),
        True,
        [1],
        {"a": 1},
        (),
        "ä",
    ],
    ids=repr,
)
@pytest.mark.parametrize("count", [1, 2_000])
def test_one_odd_value_among_many_is_what_it_is_alone(odd: Any, count: int) -> None:
    rows = [(number, "text", 0.5, None) for number in range(count)]
    rows[count // 2] = (1, odd, 0.5, None)

    def told(send: Callable[[], Any]) -> object:
        try:
            row = send()
            return [(type(value).__name__, str(value)) for value in row]
        except DataError as error:
            return error.message

    assert told(lambda: sent_together(rows)[count // 2]) == told(lambda: sent(rows[count // 2]))


def test_rows_of_names_and_mixed_rows() -> None:
    rows = [{"a": 1, "b": Decimal("1.10")}, (1, 2), [3], {"a": None}]
    assert sent_together(rows) == [{"a": 1, "b": Decimal("1.10")}, [1, 2], [3], {"a": None}]


def test_parameters_by_name() -> None:
    assert sent({"a": 1, "b": Decimal("1.10")}) == {"a": 1, "b": Decimal("1.10")}
    assert sent(None) is None


@given(st.data())
def test_rows_keep_value_and_class(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=5))
    row = st.tuples(*[st.none() | VALUES[kind] for kind in kinds])
    rows = data.draw(st.lists(row, max_size=40))
    found = rows_decoder(tuple(kinds))(encode_rows(rows))
    assert found == rows
    assert [[type(v) for v in row] for row in found] == [[type(v) for v in row] for row in rows]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 79, 80, 5000])
def test_rows_in_pieces(count: int) -> None:
    rows = [(number, "x" * (number % 50)) for number in range(count)]
    waiting = iter(rows)
    decode = rows_decoder((Kind.BIGINT, Kind.TEXT))
    found: list[Any] = []
    is_last = False
    while not is_last:
        encoder = RowsEncoder(2000, 100)
        is_last = encoder.take(waiting)
        piece = encoder.finish()
        assert encoder.count <= 100
        assert len(piece) < 8000
        found += decode(piece)
    assert found == rows


def test_a_large_row_goes_alone() -> None:
    rows = [("x" * 100_000,) for _ in range(40)]
    encoder = RowsEncoder(100_000, 1000)
    assert not encoder.take(iter(rows))
    assert encoder.count <= 16


def test_what_is_no_sql_value_is_named() -> None:
    class Thing:
        def __repr__(self) -> str:
            return "<a thing>"

    (found,) = sent([Thing()])
    assert type(found).__name__ == "Thing"
    assert str(found) == "<a thing>"


def test_lone_surrogates_are_refused_here() -> None:
    with pytest.raises(DataError, match="parameter 2: lone surrogate at character 1"):
        to_wire([1, "\ud800"])


@pytest.mark.parametrize(
    ("code", "data"),
    [(1, b"abc"), (1, b"\xff"), (2, b"2020-13-01"), (3, b""), (4, b"1" * 5000), (9, b"")],
)
def test_extensions_that_are_none(code: int, data: bytes) -> None:
    body = msgspec.msgpack.encode([2, 1, "x", [msgspec.msgpack.Ext(code, data)]])
    message = decode_to_server(body)
    assert isinstance(message, Execute)
    with pytest.raises(ProtocolError):
        decode_parameters(message.parameters, free)
