"""`python -m tests.sim.cluster --runs 4000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Runs simulated lives of a tablespace whose log is ledgers, with its nodes, bookies and clients, one
seed each, and says what happened in how many of them. Exit code 1 when a checker found something
(with the command that repeats the seed alone), when one of the things that have to happen was too
rare to mean anything, or when a planted fault was not found by the checker that it names.
"""

import sys
from functools import partial

from tests.fixtures.executed_modules import executed_modules, product_modules
from tests.sim.cluster.plants import PLANTS
from tests.sim.cluster.run_seed import run_seed
from tests.sim.cluster.world import STEPS
from tests.sim.simulation import Chunk, Simulation

WANTED = (
    "another leader",
    "a leader that was deposed alive",
    "leader without the metadata store",
    "pause in a take-over",
    "crash of the leader",
    "crash of a follower",
    *(f"crash behind step {step}" for step in STEPS),
    "crash in a hand-over",
    "a part handed over",
    "leader and bookie together",
    "bookie crash",
    "partition",
    "one-way partition",
    "paused leader",
    "a leader that is silent",
    "a take-over from a silent leader",
    "roll",
    "roll in a take-over",
    "a node that lost its disk",
    "a commit of pages on a follower",
    "checkpoint of a follower",
    "failed checkpoint of a follower",
    "compaction of a follower",
    "lost answer of a compare-and-set",
    "lagging session",
    "a leader that the metadata store tells",
    "a leader that the metadata store does not tell",
    "registers of a follower",
    "an own write on a follower",
    "a follower that does not answer",
    "paused follower",
    "follower without the metadata store",
    "unknown",
)


def expected_modules() -> list[str]:
    """Return the modules that the simulation is to run beside those of tests/sim/server."""
    found = product_modules("herdpy", ("cluster", "log"))
    return sorted([*found, "driver/remote/leaders.py", "driver/remote/locators.py"])


SIMULATION = Simulation(
    "tests.sim.cluster",
    __doc__,
    PLANTS,
    run_seed,
    WANTED,
    wanted_runs_min=500,
    cpu_s_max=2.0,
    watch=partial(executed_modules, package="herdpy"),
    expected_modules=expected_modules,
)


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    return SIMULATION.chunk(first, count, plant)


if __name__ == "__main__":
    sys.exit(SIMULATION.main(run_chunk))
