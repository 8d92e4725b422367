"""One small round of each kind of `make kill-bookies`, and proof that its checks see."""

from pathlib import Path

import pytest

from bookie.client.interfaces import ReadReply
from bookie.ledger.types import Status
from tests.fixtures.zookeeper import skip_without_zookeeper
from tests.kill_bookies.__main__ import kind_of, line_of, play_round
from tests.kill_bookies.rounds import ROUNDS
from tests.kill_bookies.world import DIGEST, BrokenPromiseError, check_copy, payload

_LONG = ("drain",)
_KINDS = [pytest.param(kind, marks=pytest.mark.long if kind in _LONG else ()) for kind in ROUNDS]
"""A drain waits for ledgers that are open; test_bookie_management.py has one that is quicker."""


@pytest.mark.integration
@pytest.mark.exhaustive
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", _KINDS)
def test_nothing_acknowledged_is_lost(kind: str, seed: int, tmp_path: Path) -> None:
    skip_without_zookeeper()
    evidence = play_round(tmp_path, 0, seed, (kind,), ledgers=20)
    assert evidence["checked"]["entries"] >= evidence["acknowledged"] > 0
    assert [writer["failed"] for writer in evidence["writers"]] in ([0], [0, 0])
    assert "0 lost" in line_of(evidence)


def test_every_kind_is_in_every_block_of_rounds(seed: int) -> None:
    names = tuple(ROUNDS)
    for block in range(5):
        numbers = range(block * len(names), (block + 1) * len(names))
        assert {kind_of(number, seed, names) for number in numbers} == set(names)


def packet(ledger_id: int, number: int, text: bytes) -> bytes:
    return bytes(DIGEST.seal(ledger_id, number, -1, len(text), text))


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (ReadReply(Status.NO_ENTRY), "found NO_ENTRY"),
        (ReadReply(Status.IO_ERROR), "found IO_ERROR"),
        (ReadReply(Status.OK, 3, packet(7, 4, payload(7, 3))), "ledger 7, entry 3"),
        (ReadReply(Status.OK, 3, packet(7, 3, payload(7, 4))), "another payload"),
    ],
)
def test_the_check_of_a_copy_sees(reply: ReadReply, complaint: str) -> None:
    check_copy(7, 3, "b1:3181", ReadReply(Status.OK, 3, packet(7, 3, payload(7, 3))))
    with pytest.raises(BrokenPromiseError, match=complaint):
        check_copy(7, 3, "b1:3181", reply)
