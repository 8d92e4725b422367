"""Placement: distinct bookies always, racks apart where there are racks enough."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.errors import IncorrectParameterError, NotEnoughBookiesError
from bookie.ledger.placement import Adherence, Placement, RackAwarePlacement, RandomPlacement
from bookie.ledger.types import BookieId


def rack_of(bookie: BookieId) -> str:
    """Bookies are called rack-number."""
    return "/" + bookie.split("-")[0]


def bookies(*counts: int) -> tuple[BookieId, ...]:
    """Return counts[0] bookies of rack a, counts[1] of rack b, …"""
    return tuple(
        BookieId(f"{'abcdefgh'[rack]}-{n}")
        for rack, count in enumerate(counts)
        for n in range(count)
    )


def racks(ensemble: tuple[BookieId, ...]) -> str:
    return "".join(bookie[0] for bookie in ensemble)


def placements(seed: int) -> list[Placement]:
    rng = random.Random(seed)
    return [
        RandomPlacement(rng),
        RackAwarePlacement(rng, rack_of),
        RackAwarePlacement(rng, rack_of, 3),
        RackAwarePlacement(rng, rack_of, 1),
    ]


@given(
    st.integers(),
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.integers(0, 8),
    st.integers(0, 3),
)
def test_distinct_writable_and_not_excluded(
    seed: int, counts: list[int], count: int, excluded_count: int
) -> None:
    writable = bookies(*counts)
    excluded = writable[:excluded_count]
    for placement in placements(seed):
        if len(writable) - len(excluded) < count:
            with pytest.raises(NotEnoughBookiesError, match=f"{count} bookies are needed"):
                placement.choose(count, writable, excluded)
            continue
        ensemble = placement.choose(count, writable, excluded)
        assert len(ensemble) == len(set(ensemble)) == count
        assert set(ensemble) <= set(writable) - set(excluded)


@given(st.integers(), st.integers(1, 6), st.sets(st.integers(0, 5)), st.integers(0, 6))
def test_replacing_touches_only_what_failed(
    seed: int, size: int, failed: set[int], spare_count: int
) -> None:
    failed = {index for index in failed if index < size}
    ensemble, spare = bookies(3, 3)[:size], bookies(0, 0, 3, 3)[:spare_count]
    for placement in placements(seed):
        if spare_count < len(failed):
            with pytest.raises(NotEnoughBookiesError, match=f"there are {spare_count}"):
                placement.replace(failed, ensemble, (*ensemble, *spare))
            continue
        changed = placement.replace(failed, ensemble, (*ensemble, *spare))
        assert len(set(changed)) == size
        for index in range(size):
            if index in failed:
                assert changed[index] in spare
            else:
                assert changed[index] == ensemble[index]


def test_the_same_chance_gives_the_same_ensemble() -> None:
    writable = bookies(3, 3, 3)
    for one, other in zip(placements(7), placements(7), strict=True):
        assert one.choose(5, writable) == other.choose(5, writable)


def test_random_placement_is_fair() -> None:
    placement = RandomPlacement(random.Random(7))
    writable = bookies(6)
    firsts = Counter(placement.choose(3, writable)[0] for _ in range(6000))
    assert all(850 < firsts[bookie] < 1150 for bookie in writable)


@pytest.mark.parametrize(
    ("counts", "count", "min_racks"),
    [
        ((3, 3), 4, 2),
        ((2, 2), 4, 2),
        ((1, 1, 1), 3, 3),
        ((3, 2, 1), 6, 2),
        ((5, 1, 1), 3, 2),
        ((2, 2, 2), 6, 3),
        ((1, 5), 2, 2),
        ((4, 4, 4, 4), 7, 3),
    ],
)
def test_4_8_no_write_set_lies_in_one_rack(
    counts: tuple[int, ...], count: int, min_racks: int
) -> None:
    for seed in range(50):
        placement = RackAwarePlacement(random.Random(seed), rack_of, min_racks)
        ensemble = placement.choose(count, bookies(*counts))
        assert placement.adherence(ensemble, min(count, min_racks)) is Adherence.STRICT, ensemble


def test_replacement_keeps_racks_apart() -> None:
    for seed in range(50):
        placement = RackAwarePlacement(random.Random(seed), rack_of)
        ensemble = (BookieId("a-0"), BookieId("b-0"), BookieId("c-0"))
        spare = tuple(map(BookieId, ("a-1", "c-1", "b-1", "a-2")))
        assert racks(placement.replace([1], ensemble, (*ensemble, *spare))) == "abc"
        assert len(set(racks(placement.replace([0, 2], ensemble, (*ensemble, *spare))))) == 3


def test_with_one_rack_anything_goes() -> None:
    placement = RackAwarePlacement(random.Random(1), rack_of)
    ensemble = placement.choose(3, bookies(4))
    assert placement.adherence(ensemble, 3) is Adherence.FAIL
    assert placement.adherence(ensemble, 1) is Adherence.STRICT


def test_adherence_by_hand() -> None:
    placement = RackAwarePlacement(random.Random(1), rack_of, 3)

    def judge(text: str, write_quorum_size: int) -> Adherence:
        ensemble = tuple(BookieId(f"{rack}-{n}") for n, rack in enumerate(text))
        return placement.adherence(ensemble, write_quorum_size)

    assert judge("abc", 3) is Adherence.STRICT
    assert judge("aba", 3) is Adherence.SOFT
    assert judge("aab", 2) is Adherence.FAIL
    assert judge("abab", 2) is Adherence.STRICT
    assert judge("abca", 3) is Adherence.SOFT  # the write set of entry 3: a, a, b
    assert judge("aaa", 3) is Adherence.FAIL


def test_locations_are_asked_anew() -> None:
    moved: dict[BookieId, str] = {}
    placement = RackAwarePlacement(random.Random(1), lambda b: moved.get(b, "/default-rack"))
    writable = bookies(2, 2)
    for bookie in writable[:2]:
        moved[bookie] = "/other"
    for _ in range(20):
        assert placement.adherence(placement.choose(2, writable), 2) is Adherence.STRICT


def test_at_least_one_rack() -> None:
    with pytest.raises(IncorrectParameterError, match="found 0"):
        RackAwarePlacement(random.Random(1), rack_of, 0)
