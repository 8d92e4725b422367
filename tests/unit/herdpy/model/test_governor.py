"""The governor: sums of the tree, refusals without effect, who holds what."""

import random

import pytest

from herdpy.errors import MemoryLimitError
from herdpy.model.governor import STEP_BYTES, Account, Governor, Reservation

MIB = 1024 * 1024


def figures(governor: Governor) -> dict[str, int]:
    return {item.path: item.bytes_used for item in governor.figures()}


def test_a_reservation_counts_in_its_account_and_all_above() -> None:
    governor = Governor()
    database = governor.open("db", 10 * MIB)
    transactions = database.child("transactions", 4 * MIB)
    one = transactions.reserve("one")
    assert one.grow_to(10)
    assert one.byte_count == STEP_BYTES  # in steps: the next rows ask for nothing
    assert one.grow_to(STEP_BYTES)
    assert transactions.bytes_used == database.bytes_used == STEP_BYTES
    one.close()
    one.close()
    assert transactions.bytes_used == governor.root.bytes_used == 0
    assert transactions.bytes_peak == STEP_BYTES


def test_a_refusal_changes_nothing_and_says_why() -> None:
    governor = Governor()
    database = governor.open("db", 3 * MIB)
    kind = database.child("transactions", 2 * MIB)
    one, other = kind.reserve("one"), kind.reserve("other", MIB)
    assert one.grow_to(MIB + 1)
    before = figures(governor)
    assert not one.grow_to(2 * MIB + 1)  # over the kind's
    assert not other.grow_to(MIB + 1)  # over its own
    assert figures(governor) == before
    assert "found no memory: transactions holds" in one.refusal("the statement", "").message
    assert "1,048,576" in other.refusal("the statement", "").message
    assert isinstance(other.refusal("", ""), MemoryLimitError)
    assert kind.refused == 2
    database.child("memtables").set(2 * MIB)  # over or not
    assert not one.grow_to(2 * MIB)  # over the database's
    assert one.refuser is database
    assert "found no memory: the database holds" in one.refusal("it", "").message
    database.child("memtables").set(0)
    assert one.grow_to(2 * MIB)  # exactly, though the next step would be over
    assert one.byte_count == 2 * MIB


def test_what_is_there_already_is_held_over_the_bound() -> None:
    kind = Governor().open("db", MIB).child("transactions", MIB)
    one = kind.reserve("one")
    one.hold(3 * MIB)
    assert kind.bytes_used == 3 * MIB
    assert not kind.has_room(1)
    one.shrink_to(MIB // 2)
    assert kind.has_room(MIB // 2)
    assert not kind.has_room(MIB // 2 + 1)


def test_a_view_bounds_and_is_counted_once() -> None:
    governor = Governor()
    database = governor.open("db", 10 * MIB)
    kind = database.child("transactions", 8 * MIB)
    ann = database.child("users", is_view=True).child("ann", MIB)
    one = kind.reserve("one", None, ann)
    assert one.grow_to(MIB)
    assert not one.grow_to(MIB + 1)
    assert one.refuser is ann
    assert database.bytes_used == MIB == ann.bytes_used == kind.bytes_used
    governor.settle()
    assert database.bytes_used == MIB


def test_what_the_collector_lets_go_is_given_back_by_the_next_who_comes() -> None:
    governor = Governor()
    kind = governor.root.child("caches", STEP_BYTES)
    one, other = kind.reserve("one"), kind.reserve("other")
    assert one.grow_to(STEP_BYTES)
    one.let_go()
    assert kind.bytes_used == STEP_BYTES
    assert other.grow_to(STEP_BYTES)
    assert kind.bytes_used == STEP_BYTES
    assert [held.holder for held in governor.held()] == ["other"]


def test_sums_that_an_interrupt_left_wrong_are_made_right() -> None:
    governor = Governor()
    kind = governor.root.child("transactions")
    one = kind.reserve("one")
    one.grow_to(MIB)
    kind.bytes_used += 77
    governor.root.bytes_used -= 5
    governor.settle()
    assert kind.bytes_used == governor.root.bytes_used == MIB


def test_a_database_takes_what_it_has_with_it() -> None:
    governor = Governor()
    first, second = governor.open("db", MIB), governor.open("db", MIB)
    assert first.path != second.path  # several databases in memory have one name
    held = first.child("transactions").reserve("one")
    held.grow_to(MIB)
    second.set(5)
    first.close()
    first.close()
    assert governor.root.bytes_used == 5
    held.close()
    assert governor.root.bytes_used == 5
    assert figures(governor) == {"process": 5, second.path: 5}


def test_what_is_measured_is_asked_for_with_the_figures() -> None:
    governor = Governor()
    versions = governor.root.child("versions")
    sizes = iter([3, 4])
    versions.measure = lambda: next(sizes)
    assert figures(governor)["process"] == 3
    assert figures(governor)["process/versions"] == 4


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_those_of_their_parts(seed: int) -> None:
    rng = random.Random(seed)
    governor = Governor(6 * MIB)
    databases = [governor.open("db", 4 * MIB) for _ in range(2)]
    kinds: list[Account] = [each.child(name, 3 * MIB) for each in databases for name in "ab"]
    users = [each.child("users", is_view=True) for each in databases]
    people = [each.child(name, 2 * MIB) for each in users for name in "xy"]
    held: list[Reservation] = []
    for _ in range(400):
        match rng.randrange(5):
            case 0:
                number = rng.randrange(4)
                held.append(kinds[number].reserve("r", None, people[number]))
            case 1 if held:
                held[rng.randrange(len(held))].grow_to(rng.randrange(2 * MIB))
            case 2 if held:
                held.pop(rng.randrange(len(held))).close()
            case 3 if held:
                held[rng.randrange(len(held))].shrink_to(rng.randrange(MIB))
            case _:
                rng.choice(kinds).note_wait(0.5)
        before = {account.path: account.bytes_used for account in governor.root.walk()}
        assert figures(governor) == before
        for account in governor.root.walk():
            assert 0 <= account.bytes_used <= (account.bytes_max or 8 * MIB)
        assert governor.root.bytes_used == sum(each.byte_count for each in held)
    for each in held:
        each.close()
    assert set(figures(governor).values()) == {0}
