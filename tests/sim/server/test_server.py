"""The simulated lives of a server: a few new seeds, every seed that once failed, its own rules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.plants import planted
from tests.sim.server.plants import PLANTS
from tests.sim.server.run_seed import run_seed

_ROOT = Path(__file__).parents[3]
_SEEDS = _ROOT / "tests" / "sim" / "seeds.txt"
_FEW = 12


def mended_seeds() -> list[int]:
    """Return the seeds of tests/sim/seeds.txt that are of the server's world."""
    lines = [line.partition("#")[0].split() for line in _SEEDS.read_text().splitlines()]
    return [int(words[1]) for words in lines if words and words[0] == "server"]


@pytest.mark.parametrize("number", range(_FEW))
def test_a_few_lives(seed: int, number: int) -> None:
    run_seed(1_000_000 + seed % 1_000_000 * _FEW + number)


@pytest.mark.parametrize("number", mended_seeds())
def test_seeds_that_once_failed(number: int) -> None:
    run_seed(number)


def test_same_seed_same_trace_also_with_another_hash_seed() -> None:
    code = (
        "from tests.sim.server.run_seed import run_seed\n"
        "print([run_seed(seed).trace_hash for seed in (12, 34, 72)])"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    ]
    assert found == [str([run_seed(seed).trace_hash for seed in (12, 34, 72)])] * 2


@pytest.mark.parametrize("name", PLANTS)
def test_every_plant_still_has_its_target(name: str) -> None:
    with planted(PLANTS, name):
        pass
