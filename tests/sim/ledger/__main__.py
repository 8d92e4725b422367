"""`python -m tests.sim.ledger --runs 10000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Runs simulated lives of a ledger, one seed each, and says what happened in how many of them. Exit
code 1 when a checker found something (with the command that repeats the seed alone), when one of
the things that have to happen was too rare to mean anything, or when a planted fault was not found
by the checker that it names.
"""

import os
import sys
from pathlib import Path

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
_ROOT = Path(__file__).parents[3]
_PACKAGES = ("client", "server", "ledger", "metadata")


class executed_modules:  # noqa: N801 - used like a function
    """Collects into `found` the product modules whose functions are called in the block."""

    def __init__(self, found: set[str]) -> None:
        self._found = found
        self._paths: dict[str, str | None] = {}

    def __enter__(self) -> None:
        prefix = str(_ROOT / "bookie") + os.sep
        paths, found = self._paths, self._found

        def profile(frame: object, event: str, _: object) -> None:
            if event == "call":
                code = frame.f_code  # type: ignore[attr-defined]
                path = code.co_filename
                if path not in paths:
                    paths[path] = None
                    if path.startswith(prefix) and code.co_name != "<module>":
                        found.add(path[len(prefix) :])
                        paths[path] = path

        sys.setprofile(profile)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def product_modules() -> list[str]:
    """Return the modules that the simulation is to run, relative to bookie/."""
    root = _ROOT / "bookie"
    return sorted(
        str(path.relative_to(root))
        for package in _PACKAGES
        for path in (root / package).rglob("*.py")
        if not path.name.endswith("_pb2.py") and path.name not in ("__init__.py", "interfaces.py")
    )


SIMULATION = Simulation(
    "tests.sim.ledger",
    __doc__,
    PLANTS,
    run_seed,
    WANTED,
    wanted_runs_min=500,
    cpu_s_max=0.4,
    watch=executed_modules,
    expected_modules=product_modules,
)


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    return SIMULATION.chunk(first, count, plant)


if __name__ == "__main__":
    sys.exit(SIMULATION.main(run_chunk))
