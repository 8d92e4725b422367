"""`python -m tests.sim.recovery --runs 3000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Runs simulated losses and drains of bookies, one history for each seed, and says how many had what.
Exit code 1 when a checker found something (with the command that repeats the seed
alone), when one of the situations that have to happen was too rare to mean anything, or when a
planted fault was not found by a checker that it names.
"""

import sys

from tests.sim.recovery.plants import PLANTS
from tests.sim.recovery.run_seed import run_seed
from tests.sim.simulation import Chunk, Simulation

WANTED = (
    "bookie lost for good",
    "several bookies lost",
    "bookie returns",
    "bookie read-only",
    "worker dies",
    "session of a worker lost",
    "auditor deposed",
    "fenced by a worker",
    "copy made",
    "copy beside a writer",
    "task published",
    "task done",
    "ledger deleted",
    "lost bookies are waited for",
    "AutoRecovery off for a while",
    "lost metadata answer",
    "lost answer to an auditor or worker",
    "lost answer to an operator",
    "auditor or worker dies at a write",
    "drain",
    "several drains at once",
    "two drains in one millisecond",
    "drain of a bookie that is down",
    "bookie that hears late of its drain",
    "drain that waits for others",
    "drain failed",
    "loss accepted",
    "drain cancelled",
    "drained",
    "drained bookie removed",
    "removed bookie installed anew",
    "stale creator",
    "task cleared by a foreign worker",
    "returned copy collected",
    "recovery by hand",
    "recovery by hand dies",
    "lost bookie decommissioned",
    "ledger taken away by hand and back",
    "directory lost",
    "entry rots",
    "rotten entry is whole again",
    "bookie answers a damaged entry",
    "cookie deleted",
    "slow recovery",
    "recovery",
)
SIMULATION = Simulation(
    "tests.sim.recovery", __doc__, PLANTS, run_seed, WANTED, wanted_runs_min=300, cpu_s_max=1.0
)


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    return SIMULATION.chunk(first, count, plant)


if __name__ == "__main__":
    sys.exit(SIMULATION.main(run_chunk))
