"""`python -m tests.fuzz.cost --runs 20000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Statements of every family (families.py), from 1 kB to the longest, each of some length and of twice
that: what they cost is counted, never timed, and may grow as their text does; some are mutated. All
end in rows or in an error of a class that a statement may have. Exit code 1 when a seed finds
something else.
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
from tests.fuzz.cost.measured import DECADES, FindingError, World, run_seed
from tests.fuzz.cost.plants import PLANTS

_MODULE = "tests.fuzz.cost"
_CHUNK = 50  # seeds of one database
_LIMITS_MET: dict[str, int] = {}  # of this process


class Chunk(NamedTuple):
    """What some seeds did: pairs by family and decade, ends by family, the longest, findings."""

    runs: int
    pairs: Counter[tuple[str, int]]
    """Seeds that compared two lengths, or are of one that a limit refuses."""
    ends: Counter[tuple[str, str]]
    longest: dict[str, int]
    """In bytes, of those that gave rows, or a text for DuckDB."""
    findings: dict[int, str]

    @staticmethod
    def empty() -> "Chunk":
        return Chunk(0, Counter(), Counter(), {}, {})

    def plus(self, other: "Chunk") -> "Chunk":
        longest = {
            name: max(self.longest.get(name, 0), other.longest.get(name, 0))
            for name in self.longest | other.longest
        }
        return Chunk(
            self.runs + other.runs, self.pairs + other.pairs, self.ends + other.ends, longest,
            self.findings | other.findings,
        )  # fmt: skip


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    """Run seeds first, first + 1, …; with a plant only up to the first finding."""
    pairs: Counter[tuple[str, int]] = Counter()
    ends: Counter[tuple[str, str]] = Counter()
    longest: dict[str, int] = {}
    findings: dict[int, str] = {}
    runs = 0
    with closing(World()) as world:
        collect_and_freeze()
        for seed in range(first, first + count):
            runs += 1
            try:
                with planted(PLANTS, plant) if plant is not None else nullcontext():
                    about, costs = run_seed(world, seed, _LIMITS_MET)
            except FindingError as finding:
                findings[seed] = str(finding)
                if plant is not None:
                    break
                continue
            name = about.family
            pairs[name, about.decade] += 1
            ends.update((name, cost.outcome) for cost in costs)
            if not costs:
                ends[name, "far beyond a limit"] += 1
            elif costs[0].outcome in ("rows", "printed"):
                longest[name] = max(longest.get(name, 0), about.size)
    return Chunk(runs, pairs, ends, longest, findings)


def run_all(options: Options) -> int:
    """Run the seeds, print what was covered, how statements ended, the findings; the exit code."""
    total = Chunk.empty()
    with closing(run_chunks(options, run_chunk, _CHUNK)) as chunks:
        for chunk in chunks:
            total = total.plus(chunk)
            if len(total.findings) >= FINDINGS_MAX:
                break
    decades = range(len(DECADES) - 1)
    rows: list[tuple[str, ...]] = []
    for name in FAMILIES:
        found = {end: n for (family, end), n in sorted(total.ends.items()) if family == name}
        shown = ", ".join(f"{end} {n}" for end, n in found.items())
        counts = (str(total.pairs[name, decade]) for decade in decades)
        rows.append((name, *counts, f"{total.longest.get(name, 0):,}", shown))
    columns = (
        "family", *(f" from {DECADES[decade]:,} bytes" for decade in decades),
        " longest with rows", "ends",
    )  # fmt: skip
    options.console.print(table("pairs of statements", columns, rows))
    print_findings(options.console, _MODULE, total.findings)
    least = (min(total.pairs[name, decade] for name in FAMILIES) for decade in decades)
    print(f"pairs of each family from {', '.join(f'{low:,}' for low in DECADES[:-1])} bytes on:"
          f" at least {', '.join(map(str, least))}")  # fmt: skip
    print(f"{total.runs} runs from seed {options.seed}: {len(total.findings)} findings")
    return 1 if total.findings else 0


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
        about, costs = run_seed(world, seed)
    return f"{about.family} of {about.size:,} bytes: {'; '.join(cost.names() for cost in costs)}"


def main() -> int:
    options = Options.of(_MODULE, __doc__, PLANTS)
    if options.is_trace:
        trace(options, PLANTS, _run_traced)
        return 0
    return run_plants(options) if options.plants else run_all(options)


if __name__ == "__main__":
    sys.exit(main())
