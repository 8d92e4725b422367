"""A sample of simulated drains, equal traces, and the planted faults that are found fast."""

import pytest

from tests.fixtures.plants import planted
from tests.sim.lifecycle.plants import PLANTS
from tests.sim.lifecycle.world import World

SITUATIONS = (
    "drain", "drained", "removed", "reinstalled", "cancel", "down", "up", "cookie deleted",
    "auditor died", "cleared", "replicated", "left open",
)  # fmt: skip


def test_nothing_acknowledged_is_lost_and_every_drain_ends() -> None:
    counts: dict[str, int] = {}
    for seed in range(40):
        world = World(seed)
        world.run()
        for what in world.counts:
            counts[what] = counts.get(what, 0) + 1
    assert {what: counts.get(what, 0) for what in SITUATIONS if counts.get(what, 0) < 2} == {}


def test_the_same_seed_is_the_same_history() -> None:
    def story() -> list[str]:
        world = World(5)
        world.run()
        return world.trace

    assert story() == story()


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    for seed in range(200):
        with planted(PLANTS, name):
            try:
                World(seed).run()
            except Exception:
                return
    pytest.fail(f"{name}: not found in 200 seeds")
