"""`python -m tests.sim.storage --runs 2000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Power failures in the steps of a bookie's disk, one history for each seed. Exit code 1 when a seed
fails, with the command that repeats it alone, or when a planted fault was not found.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import NamedTuple

from rich.markup import escape

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
from tests.sim.storage.plants import PLANTS
from tests.sim.storage.world import World

_MODULE = "tests.sim.storage"


class Outcome(NamedTuple):
    """What one seed did: how often things happened, and the steps (name, path) of its crashes."""

    done: dict[str, int]
    crashes: list[tuple[str, str]]


class Chunk(NamedTuple):
    """What some seeds did: what happened, at which steps they crashed, and findings by seed."""

    runs: int
    counts: Counter[str]
    steps: Counter[str]
    findings: dict[int, str]


def run_seed(seed: int, say: Callable[[str], object] | None = None) -> Outcome:
    """Run one seed; what it finds is raised."""
    world = World(seed)
    try:
        world.run()
    finally:
        if say is not None:
            for step, path in world.crash_steps:
                say(f"crash at {step} {path}")
    return Outcome(world.facts.counts, world.crash_steps)


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    """Run seeds first, first + 1, …; with a plant only up to the first finding."""
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    findings: dict[int, str] = {}
    runs = 0
    for seed in range(first, first + count):
        runs += 1
        try:
            with planted(PLANTS, plant) if plant is not None else nullcontext():
                outcome = run_seed(seed)
        except Exception as error:
            findings[seed] = f"seed {seed}: {error.__cause__ or error}"
            if plant is not None:
                break
            continue
        counts.update(outcome.done)
        steps.update(
            f"{step} {''.join(c for c in path if not c.isdigit())}"
            for step, path in outcome.crashes
        )
    return Chunk(runs, counts, steps, findings)


def run_all(options: Options) -> int:
    """Run the seeds, print the tables and the findings; the exit code."""
    counts: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    findings: dict[int, str] = {}
    count = 0
    with closing(run_chunks(options, run_chunk)) as chunks:
        for chunk in chunks:
            count += chunk.runs
            counts.update(chunk.counts)
            steps.update(chunk.steps)
            findings.update(chunk.findings)
            if len(findings) >= FINDINGS_MAX:
                break
    console = options.console
    for title, found in (("what happened", counts), ("crashes by step", steps)):
        rows = [(name, str(number)) for name, number in sorted(found.items())]
        console.print(table(title, ("what", " count"), rows))
    print_findings(console, _MODULE, findings)
    console.print(
        f"{count} histories from seed {options.seed}, {counts['crashes']} crashes: "
        f"{len(findings)} findings",
        highlight=False,
    )
    return 1 if findings else 0


def run_plants(options: Options) -> int:
    """Run every plant until it is found; exit code 1 when one is not."""
    found = search_plants(options, run_chunk)
    rows: list[tuple[str, str, str]] = []
    for name, chunk in found.items():
        how = next(iter(chunk.findings.values()), "")
        runs = str(chunk.runs) if how else f"[red]not in {chunk.runs}[/red]"
        rows.append((name, runs, escape(how[:100])))
    options.console.print(table("planted faults", ("plant", " failed at run", "how"), rows))
    return 0 if all(chunk.findings for chunk in found.values()) else 1


def main() -> int:
    options = Options.of(_MODULE, __doc__, PLANTS)
    if options.is_trace:
        trace(options, PLANTS, run_seed)
        return 0
    return run_plants(options) if options.plants else run_all(options)


if __name__ == "__main__":
    sys.exit(main())
