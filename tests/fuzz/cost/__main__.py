"""`python -m tests.fuzz.cost --runs 20000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Statements of every family (families.py), each of some length and of twice that: what they cost is
counted, never timed, and may grow as their text does; some are mutated. All end in rows or in an
error of a class that a statement may have. Exit code 1 when a seed finds something else.
"""

import sys
from collections import Counter
from contextlib import closing, nullcontext
from typing import NamedTuple

from rich.markup import escape

from tests.fixtures.plants import planted
from tests.fixtures.seed_runner import (
    FINDINGS_MAX,
    Options,
    collect_and_freeze,
    print_findings,
    run_chunks,
    search_plants,
    table,
    trace,
)
from tests.fuzz.cost.families import FAMILIES
from tests.fuzz.cost.measured import FindingError, World, run_seed
from tests.fuzz.cost.plants import PLANTS

_MODULE = "tests.fuzz.cost"


class Chunk(NamedTuple):
    """What some seeds did: ends by family, the longest of each that gave rows, and findings."""

    runs: int
    ends: Counter[tuple[str, str]]
    longest: dict[str, int]
    findings: dict[int, str]


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    """Run seeds first, first + 1, …; with a plant only up to the first finding."""
    collect_and_freeze()
    ends: Counter[tuple[str, str]] = Counter()
    longest: dict[str, int] = {}
    findings: dict[int, str] = {}
    runs = 0
    with closing(World()) as world:
        for seed in range(first, first + count):
            runs += 1
            try:
                with planted(PLANTS, plant) if plant is not None else nullcontext():
                    name, size, costs = run_seed(world, seed)
            except FindingError as finding:
                findings[seed] = str(finding)
                if plant is not None:
                    break
                continue
            ends.update((name, cost.outcome) for cost in costs)
            if costs[0].outcome == "rows":
                longest[name] = max(longest.get(name, 0), size)
    return Chunk(runs, ends, longest, findings)


def run_all(options: Options) -> int:
    """Run the seeds, print how statements ended and the findings; the exit code."""
    ends: Counter[tuple[str, str]] = Counter()
    longest: dict[str, int] = {}
    findings: dict[int, str] = {}
    count = 0
    with closing(run_chunks(options, run_chunk)) as chunks:
        for chunk in chunks:
            count += chunk.runs
            ends.update(chunk.ends)
            findings.update(chunk.findings)
            for name, size in chunk.longest.items():
                longest[name] = max(longest.get(name, 0), size)
            if len(findings) >= FINDINGS_MAX:
                break
    rows: list[tuple[str, str, str]] = []
    for name in FAMILIES:
        found = {end: n for (family, end), n in sorted(ends.items()) if family == name}
        shown = ", ".join(f"{end} {n}" for end, n in found.items())
        rows.append((name, f"{longest.get(name, 0):,}", shown))
    columns = ("family", " longest with rows", "ends")
    options.console.print(table("statements", columns, rows))
    print_findings(options.console, _MODULE, findings)
    options.console.print(f"{count} runs from seed {options.seed}: {len(findings)} findings")
    return 1 if findings else 0


def run_plants(options: Options) -> int:
    """Run every plant until it is found; exit code 1 when one is not."""
    found = search_plants(options, run_chunk)
    rows: list[tuple[str, str, str]] = []
    for name, chunk in found.items():
        how = next(iter(chunk.findings.values()), "").partition(": ")[2]
        at = str(chunk.runs) if chunk.findings else f"[red]not in {chunk.runs}[/red]"
        rows.append((name, at, escape(how[:100])))
    options.console.print(table("planted faults", ("plant", " failed at run", "how"), rows))
    return 0 if all(chunk.findings for chunk in found.values()) else 1


def _run_traced(seed: int, write: object) -> str:
    with closing(World()) as world:
        name, size, costs = run_seed(world, seed)
    return f"{name} of {size:,} bytes: {'; '.join(cost.names() for cost in costs)}"


def main() -> int:
    options = Options.of(_MODULE, __doc__, PLANTS)
    if options.is_trace:
        trace(options, PLANTS, _run_traced)
        return 0
    return run_plants(options) if options.plants else run_all(options)


if __name__ == "__main__":
    sys.exit(main())
