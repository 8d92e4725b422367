"""Bookies lost and ledgers made whole, simulated: a few new seeds, and the plants' targets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.plants import planted
from tests.sim.ledger.__main__ import executed_modules
from tests.sim.recovery.plants import PLANTS
from tests.sim.recovery.run_seed import run_seed

_ROOT = Path(__file__).parents[3]
_FEW = 12


@pytest.mark.parametrize("number", range(_FEW))
def test_a_few_losses(seed: int, number: int) -> None:
    run_seed(1_000_000 + seed % 1_000_000 * _FEW + number)


def test_same_seed_same_trace_also_with_another_hash_seed() -> None:
    code = (
        "from tests.sim.recovery.run_seed import run_seed\n"
        "print([run_seed(seed).trace_hash for seed in (3, 4)])"
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
    assert found == [str([run_seed(seed).trace_hash for seed in (3, 4)])] * 2


@pytest.mark.parametrize("name", PLANTS)
def test_every_plant_still_has_its_target(name: str) -> None:
    with planted(PLANTS, name):
        pass


WANTED = {
    *(
        f"{package}/{path.name}"
        for package in ("autorecovery", "lifecycle")
        for path in (_ROOT / "bookie" / package).glob("*.py")
        if path.name != "__init__.py" and not path.name.endswith("_pb2.py")
    ),
    "ledger/at_risk.py",
    "metadata/task_locks.py",
    "server/lifecycle_watch.py",
    "server/storage/collector.py",
    "server/storage/directories.py",
    "server/storage/scrubber.py",
}


def test_the_simulation_runs_every_module_of_recovery_and_lifecycle() -> None:
    found: set[str] = set()
    for number in range(1, 20):
        with executed_modules(found):
            run_seed(number)
        if found >= WANTED:
            break
    assert sorted(WANTED - found) == []
