"""`python -m tests.sim.server --runs 3000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Runs simulated lives of a server and its clients, one seed each, and says what happened in how many
of them. Exit code 1 when a checker found something (with the command that repeats the seed alone),
when one of the things that have to happen was too rare to mean anything, or when a planted fault
was not found by the checker that it names.
"""

import sys
from functools import partial

from tests.fixtures.executed_modules import executed_modules, product_modules
from tests.sim.server.plants import PLANTS
from tests.sim.server.run_seed import run_seed
from tests.sim.simulation import Chunk, Simulation

WANTED = (
    "power failure",
    "power failure at a step",
    "kill -9",
    "cut",
    "silent cut",
    "one-way partition",
    "partition",
    "slow link",
    "slow disk",
    "paused server",
    "failing disk",
    "full disk",
    "clock jump",
    "a client that went away",
    "cancel",
    "KILL CONNECTION",
    "KILL STATEMENT",
    "log opened anew",
    "log not opened anew",
    "pre-emption",
    "pre-emption at lines",
    "savepoint",
    "REPEATABLE READ",
    "a transaction that a pool repeats",
    "a transaction that goes on behind a cancelled statement",
    "a second tablespace",
    "small sizes",
    "indexes",
    "a table that was altered",
    "error 25P03",  # idle in a transaction for too long
    "error 40P01",  # a deadlock
    "error 53100",  # the disk is full
    "error 53300",  # too many connections
    "error 57014",  # cancelled, or a time-out
)

_PACKAGES = (
    "aio", "driver", "engine", "exec", "log", "model", "proto", "server", "sql", "storage",
)  # fmt: skip


def expected_modules() -> list[str]:
    """Return the modules that the simulation is to run, relative to herdpy/."""
    return product_modules("herdpy", _PACKAGES)


SIMULATION = Simulation(
    "tests.sim.server",
    __doc__,
    PLANTS,
    run_seed,
    WANTED,
    wanted_runs_min=500,
    cpu_s_max=1.0,
    watch=partial(executed_modules, package="herdpy"),
    expected_modules=expected_modules,
)


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    return SIMULATION.chunk(first, count, plant)


if __name__ == "__main__":
    sys.exit(SIMULATION.main(run_chunk))
