"""Histories made by hand: the judgement of `make kill-cluster` sees what is wrong with them."""

import copy
from typing import Any

import pytest

from tests.kill_cluster.events import EVENTS, kind_of
from tests.kill_cluster.history import Record, check
from tests.kill_cluster.report import too_long
from tests.kill_cluster.silence import percentile, silences
from tests.sim.server.checkers import (
    ACCOUNTS,
    ELEMENTS,
    GROUP,
    OPENING_BALANCE,
    REGISTERS,
    CheckError,
)


def tx(number: int, begin: float, *, fate: str = "committed", **more: Any) -> Record:
    record: Record = {"op": "tx", "client": number // 100, "n": number, "begin": begin}
    return record | {"end": begin + 0.5, "fate": fate, "is_repeatable": False} | more


def insert(number: int, begin: float, fate: str = "committed") -> Record:
    record: Record = {"op": "insert", "client": number // 100, "n": number, "begin": begin}
    return record | {"end": begin + 0.5, "fate": fate}


def element(number: int, index: int = 0) -> int:
    return number * ELEMENTS + index


def life() -> list[Record]:
    """Return a history that is in order; two nodes have the same rows in the end."""
    balances = [[account, OPENING_BALANCE] for account in range(ACCOUNTS)]
    balances[0][1] -= 5
    balances[1][1] += 5
    end: Record = {
        "op": "end",
        "node": "n1",
        "journal": [101, 102, 201, 203],
        "slips": [104, 105],
        "bank": balances,
        "lists": [[0, [element(101), element(102)]], [1, [element(102, 1), element(101, 1)]]],
        "lengths": [[0, 2], [1, 2]],
        "group": [1] * GROUP,
        "registers": [[register, 2 if register == 1 else 0] for register in range(REGISTERS)],
    }
    return [
        {"op": "setup", "seed": 1, "session_timeout_s": 2.0},
        tx(101, 1.0, append=[[0, element(101)], [1, element(101, 1)]]),
        tx(102, 2.0, append=[[0, element(102)], [1, element(102, 1)]]),
        tx(103, 3.0, fate="refused", transfer=[0, 1, 7], sqlstate="40001"),
        insert(104, 4.0),
        insert(105, 5.0, "unknown"),
        insert(106, 6.0, "unknown"),
        tx(201, 1.0, transfer=[0, 1, 5], register=[1, 1]),
        {"op": "look", "client": 2, "begin": 1.2, "end": 1.4, "registers": [[1, 0]]},
        tx(203, 7.0, **{"raise": True}, register=[1, 2], is_repeatable=False),
        {"op": "look", "client": 2, "begin": 8.0, "end": 8.1, "registers": [[1, 2]]},
        {"op": "event", "kind": "kill leader", "names": ["n1"], "begin": 2.6, "end": 6.5},
        end,
        copy.deepcopy(end) | {"node": "n2"},
    ]


def ends(records: list[Record]) -> list[Record]:
    return [each for each in records if each["op"] == "end"]


def make_lists_in_order(records: list[Record]) -> None:
    for end in ends(records):
        end["lists"][1][1].sort()


def lose(records: list[Record]) -> None:
    for end in ends(records):
        end["slips"].remove(104)


def lose_a_transaction(records: list[Record]) -> None:
    for end in ends(records):
        end["journal"].remove(201)


def double(records: list[Record]) -> None:
    for end in ends(records):
        end["slips"].append(104)


def double_a_transfer(records: list[Record]) -> None:
    for end in ends(records):
        end["bank"][0][1] -= 5
        end["bank"][1][1] += 5


def find_what_was_refused(records: list[Record]) -> None:
    for end in ends(records):
        end["journal"].append(103)


def read_what_is_old(records: list[Record]) -> None:
    look = {"op": "look", "client": 1, "begin": 7.6, "end": 7.8, "registers": [[1, 1]]}
    records.insert(1, look)


def raise_from_what_is_old(records: list[Record]) -> None:
    next(each for each in records if each.get("n") == 203)["register"] = [1, 1]


def raise_twice(records: list[Record]) -> None:
    for end in ends(records):
        end["registers"][1][1] = 3


def read_a_cycle(records: list[Record]) -> None:
    """102 reads what 101 has put into one list, and 101 what 102 has put into another."""
    make_lists_in_order(records)
    for end in ends(records):
        end["lists"] = [[0, [element(101)]], [1, [element(102)]]]
        end["lengths"] = [[0, 1], [1, 1]]
    for number, (own, other) in {101: (0, 1), 102: (1, 0)}.items():
        record = next(each for each in records if each.get("n") == number)
        record["append"] = [[own, element(number)]]
        record["reads"] = [[other, [element(203 - number)]]]


def read_a_half(records: list[Record]) -> None:
    read = tx(205, 2.2, reads=[[0, [element(101)]]])
    records.insert(2, read)
    next(each for each in records if each.get("n") == 101)["append"].append([0, element(101, 2)])
    for end in ends(records):
        end["journal"].append(205)
        end["lists"][0][1].insert(1, element(101, 2))
        end["lengths"][0][1] = 3


def read_what_was_refused(records: list[Record]) -> None:
    next(each for each in records if each.get("n") == 103)["append"] = [[0, element(103)]]
    records.insert(5, tx(205, 4.2, reads=[[0, [element(101), element(102), element(103)]]]))
    for end in ends(records):
        end["journal"].append(205)


def read_past_a_snapshot(records: list[Record]) -> None:
    """205 sees what 102 has put into one list, and not what it has put into the other."""
    reads = [[1, [element(101, 1), element(102, 1)]], [0, [element(101)]]]
    records.insert(3, tx(205, 2.2, reads=reads, is_repeatable=True))
    for end in ends(records):
        end["journal"].append(205)


def leave_a_gap(records: list[Record]) -> None:
    records.insert(3, tx(205, 2.2, reads=[[0, [element(102)]]]))
    for end in ends(records):
        end["journal"].append(205)


def lose_an_element(records: list[Record]) -> None:
    for end in ends(records):
        del end["lists"][0][1][0]


def read_two_snapshots(records: list[Record]) -> None:
    reads = [[0, [element(101)]], [0, [element(101), element(102)]]]
    records.insert(2, tx(205, 2.2, reads=reads, is_repeatable=True))
    for end in ends(records):
        end["journal"].append(205)


def read_a_sum_between(records: list[Record]) -> None:
    balances = [[account, OPENING_BALANCE + (account == 1)] for account in range(ACCOUNTS)]
    records.insert(1, {"op": "look", "client": 1, "begin": 1.0, "end": 1.1, "bank": balances})


def lose_an_update(records: list[Record]) -> None:
    """A transfer is there, and the balance that another one has written over it."""
    records.insert(2, tx(205, 1.2, transfer=[0, 2, 3]))
    for end in ends(records):
        end["journal"].append(205)
        end["bank"][0][1], end["bank"][1][1] = OPENING_BALANCE - 3, OPENING_BALANCE
        end["bank"][2][1] += 3


def read_a_half_of_a_statement(records: list[Record]) -> None:
    values = [1, *[0] * (GROUP - 1)]
    records.insert(1, {"op": "look", "client": 1, "begin": 7.0, "end": 7.1, "group": values})


def read_what_was_not_there_yet(records: list[Record]) -> None:
    look = {"op": "look", "client": 1, "begin": 0.2, "end": 0.4, "registers": [[1, 1]]}
    records.insert(1, look)


def read_a_raise_and_then_none(records: list[Record]) -> None:
    """Both begin before the raise is answered; the second one begins when the first is over."""
    for begin, value in ((7.1, 2), (7.3, 1)):
        moments = {"begin": begin, "end": begin + 0.1}
        records.insert(1, {"op": "look", "client": 1, **moments, "registers": [[1, value]]})


def differ(records: list[Record]) -> None:
    records[-1]["slips"] = [105, 104]


def end_without_rows(records: list[Record]) -> None:
    del records[-2:]


# By plant: the checker that sees it, and a word of what it says.
PLANTS = {
    lose: ("durability", "104"),
    lose_a_transaction: ("durability", "201"),
    double: ("token", "104"),
    double_a_transfer: ("bank", "expected"),
    lose_an_update: ("bank", "expected"),
    find_what_was_refused: ("refusal", "103"),
    read_what_is_old: ("register", "linearizable"),
    read_what_was_not_there_yet: ("register", "linearizable"),
    read_a_raise_and_then_none: ("register", "linearizable"),
    raise_from_what_is_old: ("register", "linearizable"),
    raise_twice: ("content", "registers"),
    read_a_cycle: ("lists", "G1c"),
    read_a_half: ("lists", "G1b"),
    read_what_was_refused: ("lists", "G1a"),
    read_past_a_snapshot: ("lists", "G-single"),
    leave_a_gap: ("lists", "no prefix"),
    lose_an_element: ("content", "is gone from"),
    read_two_snapshots: ("snapshot", "of one snapshot"),
    read_a_sum_between: ("bank", "accounts have"),
    read_a_half_of_a_statement: ("atomicity", "group"),
    differ: ("digest", "n2"),
    end_without_rows: ("liveness", "no end"),
}


def test_a_history_in_order_passes() -> None:
    records = life()
    make_lists_in_order(records)
    verdict = check(records)
    assert (verdict.acknowledged, verdict.refused, verdict.looks) == (5, 1, 2)
    assert (verdict.unknown, verdict.unknown_there) == (2, 1)
    assert verdict.states == 2
    assert verdict.errors == {"40001": 1}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_what_is_wrong_is_seen(plant: Any) -> None:
    records = life()
    make_lists_in_order(records)
    plant(records)
    with pytest.raises(CheckError) as found:
        check(records)
    checker, word = PLANTS[plant]
    assert found.value.checker == checker, found.value
    assert word in str(found.value)


def test_writes_in_two_orders_are_seen() -> None:
    with pytest.raises(CheckError, match="G0"):
        check(life())


def test_silence_is_between_the_answers_around_an_event() -> None:
    records = life()
    # Client 1: answers at 1.5, 2.5, 4.5; its unknown inserts are none. Client 2: 1.5, 7.5, 8.1.
    assert silences(records) == {"kill leader": [pytest.approx(2.0), pytest.approx(6.1)]}
    (complaint,) = [each for each in too_long(records) if "99%" in each]
    assert "expected a silence of 5 s at most" in complaint
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0


def test_a_client_that_hears_nothing_any_more_is_seen() -> None:
    records = life()
    event = next(each for each in records if each["op"] == "event")
    event["begin"], event["end"] = 6.1, 9.0
    with pytest.raises(CheckError, match="client 1 has no answer"):
        silences(records)


def test_every_kind_of_event_is_in_every_block(seed: int) -> None:
    names = tuple(EVENTS)
    for block in range(3):
        numbers = range(block * len(names), (block + 1) * len(names))
        assert {kind_of(number, seed, names) for number in numbers} == set(names)
