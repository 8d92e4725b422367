"""The bytes of the state node: golden ones, and everything that is no state."""

import json

import pytest

from bookie.errors import CorruptFileError, IncorrectParameterError
from bookie.lifecycle import codec
from bookie.lifecycle.states import DrainLedger, LifecycleRecord, LifecycleState
from bookie.metadata.paths import NODE_BYTES_MAX

RECORD = LifecycleRecord(
    state=LifecycleState.DRAINING,
    since_ms=1_700_000_000_000,
    by="operator",
    may_fence=False,
    is_admitted=True,
    reason="waits",
    ledgers_total=12,
    ledgers_left=7,
    accepted_loss=(3, 9),
)
GOLDEN = (
    b'{"format":1,"state":"Draining","since_ms":1700000000000,"by":"operator","may_fence":false,'
    b'"is_admitted":true,"reason":"waits","ledgers_total":12,"ledgers_left":7,"accepted_loss":[3,9]}'
)


def test_golden_bytes() -> None:
    assert codec.record_to_bytes(RECORD) == GOLDEN
    assert codec.record_from_bytes(GOLDEN, "x") == RECORD


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        GOLDEN.replace(b'"format":1', b'"format":2'),
        GOLDEN.replace(b"Draining", b"Dreaming"),
        GOLDEN.replace(b"Draining", b"Active"),
        GOLDEN.replace(b"1700000000000", b"-1"),
        GOLDEN.replace(b"1700000000000", b"true"),
        GOLDEN.replace(b'"operator"', b"5"),
        GOLDEN.replace(b"[3,9]", b"[-3]"),
        GOLDEN.replace(b"[3,9]", b"3"),
        GOLDEN.replace(b'"since_ms":1700000000000,', b""),
    ],
)
def test_what_is_no_state_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="/cookies/b/state"):
        codec.record_from_bytes(data, "/cookies/b/state")


def test_long_texts_are_cut_and_long_lists_refused() -> None:
    long = LifecycleRecord(state=LifecycleState.DRAINED, by="x" * 5000, reason="y" * 5000)
    read = codec.record_from_bytes(codec.record_to_bytes(long), "x")
    assert (len(read.by), len(read.reason)) == (1000, 1000)
    many = LifecycleRecord(
        state=LifecycleState.DRAINED, accepted_loss=tuple(range(codec.ACCEPTED_LOSS_MAX + 1))
    )
    with pytest.raises(IncorrectParameterError):
        codec.record_to_bytes(many)


def test_the_list_lies_in_pieces_below_the_limit_of_a_node() -> None:
    ledgers = [DrainLedger(i, i % 4, "host" * (i % 4), "p" * (i % 50)) for i in range(30_000)]
    pieces = codec.pieces_of(ledgers)
    assert len(pieces) > 1
    assert all(len(piece) < NODE_BYTES_MAX for piece in pieces)
    read = [one for piece in pieces for one in codec.ledgers_from_piece(piece, "x")]
    assert read == ledgers
    assert codec.pieces_of([]) == []


@pytest.mark.parametrize("rows", [[[1]], [["a", 0, "", ""]], 5, [[1, 0, 2, ""]], [None]])
def test_a_damaged_piece_is_refused(rows: object) -> None:
    data = json.dumps({"format": 1, "ledgers": rows}).encode()
    with pytest.raises(CorruptFileError, match="piece 1"):
        codec.ledgers_from_piece(data, "piece 1")
