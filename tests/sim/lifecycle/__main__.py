"""`python -m tests.sim.lifecycle --runs 200 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Drains of a small cluster, one history for each seed. Exit code 1 when a seed fails, with the
command that repeats it alone, or when a planted fault was not found.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import NamedTuple

from tests.fixtures.plants import planted
from tests.fixtures.seed_runner import (
    FINDINGS_MAX,
    Options,
    print_findings,
    run_chunks,
    search_plants,
    table,
    trace,
)
from tests.sim.lifecycle.plants import PLANTS
from tests.sim.lifecycle.world import World

_MODULE = "tests.sim.lifecycle"


class Chunk(NamedTuple):
    """What some seeds did: in how many of them what happened, and findings by seed."""

    runs: int
    counts: Counter[str]
    findings: dict[int, str]


def run_seed(seed: int, say: Callable[[str], object] | None = None) -> dict[str, int]:
    """Run one seed and return how often things happened; what it finds is raised."""
    world = World(seed, say)
    world.run()
    return world.counts


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    """Run seeds first, first + 1, …; with a plant only up to the first finding."""
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    findings: dict[int, str] = {}
    runs = 0
    for seed in range(first, first + count):
        runs += 1
        try:
            with planted(PLANTS, plant) if plant is not None else nullcontext():
                counts.update(dict.fromkeys(run_seed(seed), 1))
        except Exception as error:
            findings[seed] = f"seed {seed}: {error}"
            if plant is not None:
                break
    return Chunk(runs, counts, findings)


def main() -> int:
    """Run what the command line says; return the exit code."""
    options = Options.of(_MODULE, __doc__, PLANTS)
    console = options.console
    if options.is_trace:
        trace(options, PLANTS, run_seed)
        return 0
    if options.plants:
        found = search_plants(options, run_chunk)
        rows = [
            (name, str(chunk.runs), next(iter(chunk.findings.values()), "not found"))
            for name, chunk in found.items()
        ]
        console.print(table("planted faults", ("fault", " seeds", "finding"), rows))
        return 0 if all(chunk.findings for chunk in found.values()) else 1
    runs = 0
    counts: Counter[str] = Counter()
    findings: dict[int, str] = {}
    with closing(run_chunks(options, run_chunk)) as chunks:
        for chunk in chunks:
            runs += chunk.runs
            counts.update(chunk.counts)
            findings |= chunk.findings
            if len(findings) >= FINDINGS_MAX:
                break
    rows = [(what, str(number)) for what, number in sorted(counts.items())]
    console.print(table(f"{runs} seeds: in how many it happened", ("what", " seeds"), rows))
    print_findings(console, _MODULE, findings)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
