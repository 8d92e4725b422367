"""`python -m tests.sim.cluster --runs 4000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Runs simulated lives of tablespaces whose logs are ledgers, with nodes, bookies and clients, one
seed each, and says what happened in how many of them. Exit code 1 when a checker found something
(with the command that repeats the seed alone), when one of the things that have to happen was too
rare to mean anything, or when a planted fault was not found by the checker that it names.
"""

import sys
from functools import partial

from tests.fixtures.executed_modules import executed_modules, product_modules
from tests.sim.cluster.node_host import HAND_OVER_STEPS, STEPS
from tests.sim.cluster.plants import PLANTS
from tests.sim.cluster.run_seed import ACKNOWLEDGED, FAULTS, run_seed
from tests.sim.simulation import Chunk, Simulation

WANTED = (
    "another leader",
    "a leader that was deposed alive",
    "a leader that ends by itself, without a session",
    "a leader whose log or tenure was taken",
    "a leader that takes over from itself",
    "leader without the metadata store",
    "a leader without bookies",
    "a leader that is outrun",
    "a ledger that is listed without an answer",
    "entries that a ledger leaves out, in a tenure",
    "an answer that waited for a tenure",
    "pause in a take-over",
    "pause in a hand-over",
    "crash of the leader",
    "crash of a follower",
    *(f"crash behind step {step}" for step in (*STEPS, *HAND_OVER_STEPS)),
    "a part handed over",
    "a node without power",
    "a node that is killed",
    "power failure at a step",
    "leader and bookie together",
    "bookie crash",
    "partition",
    "one-way partition",
    "cut",
    "client cut",
    "request repeated",
    "slow link",
    "slow disk of a node",
    "slow disk of a bookie",
    "full disk of a node",
    "full disk of a bookie",
    "clock jump",
    "paused leader",
    "a leader that is silent",
    "a take-over from a silent leader",
    "a pause longer than a session",
    "a leader that hangs",
    "a session that ended",
    "expired session",
    "a session that was suspended and lives on",
    "roll",
    "roll in a take-over",
    "checkpoint",
    "a node that lost its disk",
    "a commit of pages on a follower",
    "checkpoint of a follower",
    "failed checkpoint of a follower",
    "compaction of a follower",
    "lost answer of a compare-and-set",
    "lagging session",
    "lagging metadata server",
    "a leader that the metadata store tells",
    "a leader that the metadata store does not tell",
    "registers of a follower",
    "an own write on a follower",
    "a follower that does not answer",
    "paused follower",
    "follower without the metadata store",
    "answers that are long on their way",
    "a token question",
    "a token that was committed",
    "a token that was refused",
    "unknown",
    "pre-emption",
    "pre-emption at lines",
    "two tablespaces",
    "a secured cluster, whose drivers have their own login",
    "a secured cluster, whose drivers have the login of nodes",
)


def expected_modules() -> list[str]:
    """Return the modules that the simulation is to run beside those of tests/sim/server."""
    found = product_modules("herdpy", ("cluster", "log"))
    others = ("driver/remote/leaders.py", "driver/remote/locators.py", "server/shared_port.py")
    return sorted([*found, *others])


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
    amounts_min={ACKNOWLEDGED: 300, FAULTS: 3},
)


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    return SIMULATION.chunk(first, count, plant)


if __name__ == "__main__":
    sys.exit(SIMULATION.main(run_chunk))
