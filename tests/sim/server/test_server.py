"""The simulated lives of a server: a few new seeds, every seed that once failed, its own rules."""

import pytest

from tests.fixtures.plants import planted
from tests.fixtures.simulated_seeds import check_same_trace, mended_seeds
from tests.sim.server.plants import PLANTS
from tests.sim.server.run_seed import run_seed

_FEW = 12


@pytest.mark.parametrize("number", range(_FEW))
def test_a_few_lives(seed: int, number: int) -> None:
    run_seed(1_000_000 + seed % 1_000_000 * _FEW + number)


@pytest.mark.parametrize("number", mended_seeds("server"))
def test_seeds_that_once_failed(number: int) -> None:
    run_seed(number)


def test_same_seed_same_trace_also_with_another_hash_seed() -> None:
    check_same_trace("server", (12, 34, 72))


@pytest.mark.parametrize("name", PLANTS)
def test_every_plant_still_has_its_target(name: str) -> None:
    with planted(PLANTS, name):
        pass
