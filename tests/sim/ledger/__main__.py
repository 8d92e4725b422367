"""`python -m tests.sim.ledger --runs 10000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Runs simulated lives of a ledger, one seed each, and says what happened in how many of them. Exit
code 1 when a checker found something (with the command that repeats the seed alone), when one of
the things that have to happen was too rare to mean anything, or when a planted fault was not found
by the checker that it names.
"""

import sys

from tests.fixtures.executed_modules import executed_modules, product_modules
from tests.sim.ledger.plants import PLANTS
from tests.sim.ledger.run_seed import run_seed
from tests.sim.simulation import Chunk, Simulation

WANTED = (
    "recovery",
    "ensemble change during recovery",
    "fencing of a live writer",
    "lost metadata answer",
    "restart in mid-fence",
)
_PACKAGES = ("client", "server", "ledger", "metadata")


def expected_modules() -> list[str]:
    """Return the modules that the simulation is to run, relative to bookie/."""
    return product_modules("bookie", _PACKAGES)


SIMULATION = Simulation(
    "tests.sim.ledger",
    __doc__,
    PLANTS,
    run_seed,
    WANTED,
    wanted_runs_min=500,
    cpu_s_max=0.4,
    watch=executed_modules,
    expected_modules=expected_modules,
)


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    return SIMULATION.chunk(first, count, plant)


if __name__ == "__main__":
    sys.exit(SIMULATION.main(run_chunk))
