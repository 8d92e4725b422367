"""The checker of linearizability: by hand, against all orders, and on porcupine's logs.

The last needs those logs, which are not kept here: `make unit CORPUS=dir`, where dir is test_data/
of a clone of github.com/anishathalye/porcupine. Without it they are skipped.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kill_cluster.linearizability import (
    NEVER,
    Operation,
    UndecidedError,
    first_misfit,
)
from tests.kill_cluster.porcupine_logs import (
    COUNT,
    KV,
    LINEARIZABLE,
    MISSING,
    etcd_operations,
    etcd_step,
    kv_operations,
    kv_step,
)

CORPUS = os.environ.get("CORPUS")
needs_corpus = pytest.mark.skipif(
    CORPUS is None,
    reason="no CORPUS: `make unit CORPUS=…/porcupine/test_data` judges porcupine's logs, too",
)
_TRIED_MAX = 100_000


def step(state: int, call: tuple[str, int]) -> int | None:
    """A register: a value is written, or what is there is read."""
    kind, value = call
    if kind == "write":
        return value
    return state if state == value else None


def write(value: int, begin: float, end: float = NEVER) -> Operation:
    return Operation(begin, end, ("write", value))


def read(value: int, begin: float, end: float) -> Operation:
    return Operation(begin, end, ("read", value))


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [write(1, 0, 1), read(1, 2, 3)],
        [write(1, 0, 9), read(0, 1, 2), read(1, 3, 4)],
        [write(1, 0, 9), write(2, 0, 9), read(2, 1, 8), read(1, 2, 9)],
        [write(1, 0), read(0, 1, 2), read(1, 3, 4)],
        [write(1, 0), read(0, 1, 2)],
        [write(1, 0, 1), read(0, 1, 2)],
    ],
)
def test_what_an_order_explains_is_linearizable(operations: list[Operation]) -> None:
    assert first_misfit(operations, step, 0) is None


@pytest.mark.parametrize(
    "operations",
    [
        [read(1, 0, 1)],
        [write(1, 0, 1), read(0, 2, 3)],
        [write(1, 0, 9), read(1, 1, 2), read(0, 3, 4)],
        [write(1, 0), read(1, 1, 2), read(0, 3, 4)],
        [read(1, 0, 1), write(1, 2)],
        [write(1, 0, 9), write(2, 0, 9), read(1, 10, 11), read(2, 12, 13)],
    ],
)
def test_what_no_order_explains_is_not(operations: list[Operation]) -> None:
    misfit = first_misfit(operations, step, 0)
    assert misfit is not None
    assert "read" in misfit


def all_orders(operations: Sequence[Operation]) -> Iterator[Sequence[Operation]]:
    """Yield the orders in which nothing comes behind what began when it was over."""
    for order in permutations(operations):
        if not any(
            later.end < earlier.begin
            for index, earlier in enumerate(order)
            for later in order[index + 1 :]
        ):
            yield order


def explains(order: Sequence[Operation]) -> bool:
    state: int | None = 0
    for operation in order:
        assert state is not None
        if (state := step(state, operation.call)) is None:
            return False
    return True


def drawn() -> st.SearchStrategy[Operation]:
    def make(kind: str, value: int, begin: int, length: int) -> Operation:
        is_endless = kind == "write" and length == 0
        return Operation(begin, NEVER if is_endless else begin + length, (kind, value))

    kinds, values = st.sampled_from(("read", "write")), st.integers(0, 2)
    return st.builds(make, kinds, values, st.integers(0, 6), st.integers(0, 3))


@pytest.mark.hypothesis
@given(st.lists(drawn(), max_size=6))
def test_it_says_what_the_search_through_all_orders_says(operations: list[Operation]) -> None:
    expected = any(map(explains, all_orders(operations)))
    assert (first_misfit(operations, step, 0) is None) is expected


def test_too_many_orders_are_not_taken_for_an_answer() -> None:
    operations = [write(value, 0, 9) for value in range(1, 9)]
    with pytest.raises(UndecidedError):
        first_misfit([*operations, read(9, 1, 2)], step, 0, tried_max=100)


@needs_corpus
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", sorted({*range(COUNT if CORPUS else 1)} - MISSING))
def test_a_log_of_etcd(number: int) -> None:
    assert CORPUS is not None
    with (Path(CORPUS) / "jepsen" / f"etcd_{number:03}.log").open() as lines:
        operations = etcd_operations(lines)
    assert len(operations) > 10
    misfit = first_misfit(operations, etcd_step, "nil")
    assert (misfit is None) is (number in LINEARIZABLE), misfit


@needs_corpus
@pytest.mark.parametrize("name", KV)
def test_a_log_of_texts_by_keys(name: str) -> None:
    assert CORPUS is not None
    with (Path(CORPUS) / "kv" / f"{name}.txt").open() as lines:
        by_key = kv_operations(lines)
    assert by_key
    misfits: list[str | None] = []
    undecided = 0
    for operations in by_key.values():
        try:
            misfits.append(first_misfit(operations, kv_step, "", _TRIED_MAX))
        except UndecidedError:
            undecided += 1  # which other keys may make up for: one that does not fit is enough
    if KV[name]:
        assert (set(misfits), undecided) == ({None}, 0)
    else:
        assert any(misfits)
