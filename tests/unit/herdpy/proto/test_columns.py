"""Columns on the wire: what comes again is found again, and what a peer sends stays small."""

from decimal import Decimal

from herdpy.model.types import Kind, SqlType
from herdpy.proto.columns import ReceivedColumns, SentColumns

COLUMNS = (("a", SqlType(Kind.BIGINT)), ("d", SqlType(Kind.DECIMAL, 12, 2)))


def test_there_and_back() -> None:
    sent = SentColumns().of(COLUMNS)
    assert sent == (
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
    assert receiving.of(tuple(map(tuple, sent))) is found


def test_other_columns_are_never_taken_for_those_of_before() -> None:
    sending, receiving = SentColumns(), ReceivedColumns()
    for number in range(1000):
        columns = ((f"c{number}", SqlType(Kind.TEXT)),)  # each of them gone before the next
        sent = sending.of(columns)
        assert sent[0][0] == f"c{number}"
        assert receiving.of(sent)[0] == columns
        del columns


def test_a_kind_of_a_newer_server_is_unknown() -> None:
    assert ReceivedColumns().of((("a", 200, None, None, None),))[0][0][1].kind is Kind.UNKNOWN


def test_a_peer_cannot_have_much_kept() -> None:
    receiving = ReceivedColumns()
    large = (("x" * 1_000_000, 1, None, None, None),)
    assert receiving.of(large) is not receiving.of(large)
    for number in range(1000):
        receiving.of(((f"c{number}", 1, None, None, None),))
    assert len(receiving._kept) <= 64
