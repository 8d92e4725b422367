"""A sample of the lives of a bookie's storage, a crash in each step, and every planted fault."""

import pytest

from tests.fixtures.plants import planted
from tests.sim.storage.plants import PLANTS
from tests.sim.storage.world import World

# These need a roll, or the end of a compaction, at the moment of the crash: one seed in some
# hundred. `--plant all` looks for them.
RARE = {"torn tail sealed", "damaged switch finished"}
# Where to begin for faults that few seeds meet; the search goes on from there.
FIRST_SEED = {
    "missing entry denied": 145,
    "copy of an open ledger removed": 105,
    "fence without key": 270,
    "fence answered at once": 40,
    "fence of an unknown ledger not replayed": 270,
}


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_nothing_acknowledged_is_lost(start: int) -> None:
    crashes = 0
    for seed in range(start, start + 20):
        world = World(seed)
        world.run()
        crashes += world.facts.counts.get("crashes", 0)
    assert crashes > 30


@pytest.mark.parametrize("seed", [1, 2])
def test_a_crash_in_each_step(seed: int) -> None:
    whole = World(seed, lives=2, operations=40)
    whole.run(crash_at=1 << 40)
    steps = whole.step_counts[0]
    assert steps > 60
    for step in range(1, steps + 1, 2):
        World(seed, lives=2, operations=40).run(crash_at=step)


@pytest.mark.parametrize("name", [name for name in PLANTS if name not in RARE])
def test_a_planted_fault_is_found(name: str) -> None:
    first = FIRST_SEED.get(name, 0)
    for seed in range(first, first + 400):
        with planted(PLANTS, name):
            try:
                World(seed).run()
            except Exception:
                return
    pytest.fail(f"{name}: not found in 400 seeds from {first}")


def test_the_same_seed_is_the_same_history() -> None:
    def story() -> list[object]:
        world = World(5)
        world.run()
        return [world.crash_steps, world.step_counts, world.facts.counts]

    assert story() == story()
