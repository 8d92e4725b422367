"""`python -m tests.damage --runs 5000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Damages directories of drawn lives, one damage a seed, and says what came of each kind. Exit code 1
when a seed fails, with the command that repeats it alone, or when a kind was not met.
"""

import sys
from collections import Counter
from contextlib import closing, nullcontext
from typing import NamedTuple

from rich.markup import escape

from tests.damage.life import life_of
from tests.damage.plants import PLANTS
from tests.damage.run_seed import ALL_KINDS, FindingError, Outcome, run_seed
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

_MODULE = "tests.damage"


class Chunk(NamedTuple):
    """What some seeds did."""

    runs: int
    outcomes: Counter[Outcome]
    findings: dict[int, str]


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    """Run seeds first, first + 1, …; with a plant only up to the first finding.

    A planted fault is at work while lives are lived, too: what writes leaves out what reads do.
    """
    collect_and_freeze()
    outcomes: Counter[Outcome] = Counter()
    findings: dict[int, str] = {}
    runs = 0
    if plant is not None:
        life_of.cache_clear()
    with planted(PLANTS, plant) if plant is not None else nullcontext():
        for seed in range(first, first + count):
            runs += 1
            try:
                outcomes[run_seed(seed)] += 1
            except FindingError as finding:
                findings[seed] = str(finding)
                if plant is not None:
                    break
    if plant is not None:
        life_of.cache_clear()
    return Chunk(runs, outcomes, findings)


def run_all(options: Options) -> int:
    """Run the seeds, print the table and the findings; the exit code."""
    outcomes: Counter[Outcome] = Counter()
    findings: dict[int, str] = {}
    count = 0
    with closing(run_chunks(options, run_chunk)) as chunks:
        for chunk in chunks:
            count += chunk.runs
            outcomes.update(chunk.outcomes)
            findings.update(chunk.findings)
            if len(findings) >= FINDINGS_MAX:
                break
    console = options.console
    answers = sorted({outcome.came_of_it for outcome in outcomes})
    rows = [
        (kind, *(str(outcomes[Outcome(kind, answer)] or "") for answer in answers))
        for kind in ALL_KINDS
    ]
    columns = ("damage", *(f" {answer}" for answer in answers))
    console.print(table("what came of each kind of damage", columns, rows))
    print_findings(console, _MODULE, findings)
    missed = [kind for kind in ALL_KINDS if not any(outcomes[kind, each] for each in answers)]
    for kind in missed:
        console.print(f"[red]not met: {kind}[/red]")
    console.print(f"{count} runs from seed {options.seed}: {len(findings)} findings")
    return 1 if findings or (missed and count >= len(ALL_KINDS)) else 0


def run_plants(options: Options) -> int:
    """Run every plant until it is found; exit code 1 when one is not."""
    found = search_plants(options, run_chunk)
    rows: list[tuple[str, str, str]] = []
    for name, chunk in found.items():
        if chunk.findings:
            seed, text = next(iter(chunk.findings.items()))
            how = text.partition(": ")[2].splitlines()[0]
            rows.append((name, str(seed), escape(how[:150])))
        else:
            rows.append((name, f"[red]not in {chunk.runs}[/red]", ""))
    options.console.print(table("planted faults", ("plant", " found by seed", "how"), rows))
    return 0 if all(chunk.findings for chunk in found.values()) else 1


def main() -> int:
    options = Options.of(_MODULE, __doc__, PLANTS)
    if options.is_trace:
        trace(options, PLANTS, run_seed)
        return 0
    return run_plants(options) if options.plants else run_all(options)


if __name__ == "__main__":
    sys.exit(main())
