"""A sample of what `make crash` does at length, so that `make check` would notice."""

import gc
import weakref

import pytest

from tests.crash.__main__ import run_chunk
from tests.crash.plants import PLANTS
from tests.crash.run_seed import FindingError, run_seed
from tests.fixtures.plants import Plant, planted

_SEEDS = 100
_PLANT_RUNS = 600
_PLANT_SEEDS = {
    "statement cut ignored": 160,
    "full disk refuses nothing": 760,
    "no estimate of pages": 320,
    "list of tablespaces believed before sync": 340,
    "tablespace in doubt served": 230,
}
"""Where to begin with what is rare; make crash PLANT=… looks from its SEED on."""


@pytest.mark.sample
@pytest.mark.parametrize("part", range(4))
def test_crashes_lose_nothing(seed: int, part: int) -> None:
    count = _SEEDS // 4
    for number in range(seed + part * count, seed + (part + 1) * count):
        run_seed(number)


def test_a_seed_repeats_itself() -> None:
    first: list[str] = []
    second: list[str] = []
    for number in range(7, 14):
        assert run_seed(number, first.append) == run_seed(number, second.append)
    assert first == second
    assert len(first) > 200


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    first = _PLANT_SEEDS.get(name, 1)
    with planted(PLANTS, name):
        assert any(_is_found(number) for number in range(first, first + _PLANT_RUNS))


def _is_found(number: int) -> bool:
    try:
        run_seed(number)
    except FindingError:
        return True
    return False


def test_a_plant_without_its_target_fails() -> None:
    plants = {"lost": Plant(object, "not_there", lambda right: right)}
    with pytest.raises(LookupError, match="not_there"), planted(plants, "lost"):
        pass


def test_a_chunk_keeps_no_garbage_of_the_one_before() -> None:
    class Ring:
        def __init__(self) -> None:
            self.itself = self

    gc.disable()
    try:
        left = weakref.ref(Ring())
        run_chunk(1, 0)
    finally:
        gc.enable()
        gc.collect()
        gc.unfreeze()
    assert left() is None
