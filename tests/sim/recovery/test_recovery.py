"""Bookies lost and ledgers made whole, simulated: a few new seeds, and the plants' targets."""

from pathlib import Path

import pytest

from tests.fixtures.executed_modules import executed_modules
from tests.fixtures.plants import planted
from tests.fixtures.simulated_seeds import check_same_trace
from tests.sim.recovery.plants import PLANTS
from tests.sim.recovery.run_seed import run_seed

_ROOT = Path(__file__).parents[3]
_FEW = 12


@pytest.mark.sample
@pytest.mark.parametrize("number", range(_FEW))
def test_a_few_losses(seed: int, number: int) -> None:
    run_seed(1_000_000 + seed % 1_000_000 * _FEW + number)


def test_same_seed_same_trace_also_with_another_hash_seed() -> None:
    check_same_trace("recovery", (3, 4))


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
