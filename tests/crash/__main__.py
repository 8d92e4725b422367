"""`python -m tests.crash --runs 2000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Runs simulated crashes, one seed each, and says what was hit. Exit code 1 when a seed fails, with
the command that repeats it alone, or when some kind of crash was hit too rarely to mean anything.
"""

import sys
from collections import Counter
from contextlib import closing, nullcontext
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from tests.crash.plants import PLANTS
from tests.crash.run_seed import ACTIVITIES, KINDS, FindingError, run_seed
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

_MODULE = "tests.crash"
_VACUOUS_RUNS_MIN = 1000
_VACUOUS_SHARE = 0.005


class Chunk(NamedTuple):
    """What some seeds did: crash sites, what happened in them, and findings by seed."""

    runs: int
    crashes: Counter[tuple[str, str]]
    done: Counter[str]
    findings: dict[int, str]


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    """Run seeds first, first + 1, …; with a plant only up to the first finding."""
    collect_and_freeze()
    crashes: Counter[tuple[str, str]] = Counter()
    done: Counter[str] = Counter()
    findings: dict[int, str] = {}
    runs = 0
    for seed in range(first, first + count):
        runs += 1
        try:
            with planted(PLANTS, plant) if plant is not None else nullcontext():
                outcome = run_seed(seed)
        except FindingError as finding:
            findings[seed] = str(finding)
            if plant is not None:
                break
            continue
        crashes.update(outcome.crashes)
        done.update(outcome.done)
    return Chunk(runs, crashes, done, findings)


def run_all(options: Options) -> int:
    """Run the seeds, print the tables and the findings; the exit code."""
    crashes: Counter[tuple[str, str]] = Counter()
    done: Counter[str] = Counter()
    findings: dict[int, str] = {}
    count = 0
    with closing(run_chunks(options, run_chunk)) as chunks:
        for chunk in chunks:
            count += chunk.runs
            crashes.update(chunk.crashes)
            done.update(chunk.done)
            findings.update(chunk.findings)
            if len(findings) >= FINDINGS_MAX:
                break
    kinds: Counter[str] = Counter()
    activities: Counter[str] = Counter()
    for (kind, activity), number in crashes.items():
        kinds[kind] += number
        activities[activity] += number
    console = options.console
    console.print(_counts("crashes by kind of step", kinds, count))
    console.print(_counts("crashes by activity", activities, count))
    console.print(_counts("what happened", done, count))
    print_findings(console, _MODULE, findings)
    rare = _rare(kinds, KINDS, count) + _rare(activities, ACTIVITIES, count)
    for name in rare:
        console.print(f"[red]hit in less than {_VACUOUS_SHARE:.1%} of the runs: {name}[/red]")
    console.print(f"{count} runs from seed {options.seed}: {len(findings)} findings")
    return 1 if findings or rare else 0


def _rare(found: Counter[str], wanted: tuple[str, ...], runs: int) -> list[str]:
    if runs < _VACUOUS_RUNS_MIN:
        return []
    return [name for name in wanted if found[name] < runs * _VACUOUS_SHARE]


def _counts(title: str, counts: Counter[str], runs: int) -> Table:
    rows = [(name, str(n), f"{n / max(runs, 1):.3f}") for name, n in counts.most_common()]
    return table(title, ("what", " count", " per run"), rows)


def run_plants(options: Options) -> int:
    """Run every plant until it is found; exit code 1 when one is not."""
    found = search_plants(options, run_chunk)
    rows: list[tuple[str, str, str]] = []
    for name, chunk in found.items():
        if chunk.findings:
            how = next(iter(chunk.findings.values())).partition(": ")[2].splitlines()[0]
            rows.append((name, str(chunk.runs), escape(how[:100])))
        else:
            rows.append((name, f"[red]not in {chunk.runs}[/red]", ""))
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
