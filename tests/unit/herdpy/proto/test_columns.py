"""Columns on the wire: what comes again is found again, and what a peer sends stays small."""

from decimal import Decimal

import msgspec
import pytest

from herdpy.errors import ProtocolError
from herdpy.model.types import Kind, SqlType
from herdpy.proto.columns import ReceivedColumns, SentColumns, plain_columns
from herdpy.proto.messages import NO_COLUMNS, RESULT_COLUMNS_MAX

COLUMNS = (("a", SqlType(Kind.BIGINT)), ("d", SqlType(Kind.DECIMAL, 12, 2)))


def raw_columns(plain: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(plain))


def test_there_and_back() -> None:
    sent = SentColumns().of(COLUMNS)
    assert plain_columns(sent) == (
        ("a", Kind.BIGINT.value, None, None, None),
        ("d", Kind.DECIMAL.value, 12, 2, None),
    )
    columns, decode = ReceivedColumns().of(sent)
    assert columns == COLUMNS
    assert decode(b"\x91\x92\x01\xa31.5") == [(1, Decimal("1.5"))]


def test_what_comes_again_is_made_once() -> None:
    sending, receiving = SentColumns(), ReceivedColumns()
    sent = sending.of(COLUMNS)
    assert sending.of(COLUMNS) is sent
    found = receiving.of(sent)
    assert receiving.of(msgspec.Raw(bytes(sent))) is found


def test_other_columns_are_never_taken_for_those_of_before() -> None:
    sending, receiving = SentColumns(), ReceivedColumns()
    for number in range(1000):
        columns = ((f"c{number}", SqlType(Kind.TEXT)),)  # each of them gone before the next
        sent = sending.of(columns)
        assert plain_columns(sent)[0][0] == f"c{number}"
        assert receiving.of(sent)[0] == columns
        del columns


def test_a_kind_of_a_newer_server_is_unknown() -> None:
    sent = raw_columns([("a", 200, None, None, None)])
    assert ReceivedColumns().of(sent)[0][0][1].kind is Kind.UNKNOWN


def test_a_peer_cannot_have_much_kept() -> None:
    receiving = ReceivedColumns()
    large = raw_columns([("x" * 1_000_000, 1, None, None, None)])
    assert receiving.of(large) is not receiving.of(large)
    for number in range(1000):
        receiving.of(raw_columns([(f"c{number}", 1, None, None, None)]))
    assert len(receiving._kept) <= 64


def test_no_columns() -> None:
    assert plain_columns(NO_COLUMNS) == ()


def test_more_columns_than_a_result_has() -> None:
    column = ("a", 1, None, None, None)
    assert len(plain_columns(raw_columns([column] * RESULT_COLUMNS_MAX))) == RESULT_COLUMNS_MAX
    with pytest.raises(ProtocolError, match="length"):
        ReceivedColumns().of(raw_columns([column] * (RESULT_COLUMNS_MAX + 1)))


@pytest.mark.parametrize("plain", [7, [7], [["a"]], [[1, 1, None, None, None]]])
def test_what_is_no_columns(plain: object) -> None:
    with pytest.raises(ProtocolError, match="no columns"):
        ReceivedColumns().of(raw_columns(plain))
