"""The simulated lives of a cluster: a few new seeds, every seed that once failed, its own rules."""

import pytest

from tests.fixtures.executed_modules import executed_modules
from tests.fixtures.plants import planted
from tests.fixtures.simulated_seeds import check_same_trace, mended_seeds
from tests.sim.cluster import world
from tests.sim.cluster.__main__ import expected_modules
from tests.sim.cluster.machine import CLOCKS_APART_S, Machine
from tests.sim.cluster.plants import PLANTS
from tests.sim.cluster.run_seed import run_seed

_FEW = 5
_SHORT = 60
"""Transactions that are acknowledged in a life, where many are to be lived."""


@pytest.mark.sample
@pytest.mark.parametrize("number", range(_FEW))
def test_a_few_lives(seed: int, number: int) -> None:
    run_seed(1_000_000 + seed % 1_000_000 * _FEW + number, acknowledged_min=_SHORT)


def test_herddb_d10_no_node_compares_its_clocks_with_those_of_another_one(seed: int) -> None:
    """HerdDB compares a time that the leader has written with its own; here each has its own."""
    apart: set[float] = set()

    class Apart(Machine):
        def start(self) -> None:
            self.clock_ahead_s = CLOCKS_APART_S * (-1) ** len(apart)
            apart.add(self.clock_ahead_s)
            super().start()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "Machine", Apart)
        run_seed(2_000_000 + seed % 1_000_000, acknowledged_min=_SHORT)
    assert apart == {CLOCKS_APART_S, -CLOCKS_APART_S}


@pytest.mark.parametrize("number", mended_seeds("cluster"))
def test_seeds_that_once_failed(number: int) -> None:
    run_seed(number, acknowledged_min=_SHORT)


def test_same_seed_same_trace_also_with_another_hash_seed() -> None:
    check_same_trace("cluster", (108,))  # two tablespaces, secured, stopped between statements


@pytest.mark.parametrize("name", PLANTS)
def test_every_plant_still_has_its_target(name: str) -> None:
    with planted(PLANTS, name):
        pass


NEVER_SIMULATED = {
    "cluster/cluster_record.py",  # of processes: what begins around the parts, as the four below
    "cluster/node.py",
    "cluster/node_identity.py",
    "cluster/status.py",
    "log/file_log.py",  # a node's log is ledgers, as the four below
    "log/file_replay.py",
    "log/frame.py",
    "log/log_files.py",
    "log/syncer.py",
    "cluster/observability/known_cluster.py",  # of processes
    "cluster/observability/log_reading.py",  # of commands, as the next two
    "cluster/observability/node_directory.py",
    "log/record_text.py",
}


def test_the_simulation_runs_every_other_module_of_the_cluster() -> None:
    wanted = set(expected_modules()) - NEVER_SIMULATED
    found: set[str] = set()
    for number in range(1, 50):
        with executed_modules(found, "herdpy"):
            run_seed(number, acknowledged_min=_SHORT)
        if found >= wanted:
            break
    assert sorted(wanted - found) == []
