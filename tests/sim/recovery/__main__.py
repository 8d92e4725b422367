"""`python -m tests.sim.recovery --runs 3000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Runs simulated losses of bookies and their recovery, one seed each, and says what happened in how
many of them. Exit code 1 when a checker found something (with the command that repeats the seed
alone), when one of the situations that have to happen was too rare to mean anything, or when a
planted fault was not found by a checker that it names.
"""

import gc
import sys
import time
from collections import Counter
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
from tests.sim.ledger.run_seed import FindingError
from tests.sim.recovery.plants import PLANTS
from tests.sim.recovery.run_seed import run_seed

_MODULE = "tests.sim.recovery"
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
)
WANTED_SHARE = 0.03
_WANTED_RUNS_MIN = 300
_CPU_S_MAX = 1.0


class Chunk(NamedTuple):
    """What some seeds did: in how many each thing happened, and findings by seed."""

    runs: int
    happened: Counter[str]
    findings: dict[int, tuple[str, str]]
    """seed: (checker, message)."""
    cpu_s: float


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    """Run seeds first, first + 1, …; with a plant only until a checker that it names finds it."""
    gc.collect()
    gc.freeze()
    gc.disable()  # what a seed leaves behind is collected between seeds
    happened: Counter[str] = Counter()
    findings: dict[int, tuple[str, str]] = {}
    runs = 0
    began = time.process_time()
    for seed in range(first, first + count):
        runs += 1
        if runs % 5 == 0:
            gc.collect()
        try:
            with planted(PLANTS, plant) if plant is not None else nullcontext():
                outcome = run_seed(seed)
        except FindingError as finding:
            findings[seed] = (finding.checker, str(finding))
            if plant is not None and finding.checker in PLANTS[plant].checkers:
                break
            continue
        happened.update(outcome.happened.keys())
    return Chunk(runs, happened, findings, time.process_time() - began)


def run_all(options: Options) -> int:
    """Run the seeds, print the table and the findings; the exit code."""
    happened: Counter[str] = Counter()
    findings: dict[int, tuple[str, str]] = {}
    count = 0
    cpu_s = 0.0
    with closing(run_chunks(options, run_chunk)) as chunks:
        for chunk in chunks:
            count += chunk.runs
            cpu_s += chunk.cpu_s
            happened.update(chunk.happened)
            findings.update(chunk.findings)
            if len(findings) >= FINDINGS_MAX:
                break
    console = options.console
    others = [name for name, _ in happened.most_common() if name not in WANTED]
    rows = [
        (name, str(happened[name]), f"{happened[name] / max(count, 1):.1%}")
        for name in (*WANTED, *others)
    ]
    title = "what happened, in how many seeds"
    console.print(table(title, ("what", " seeds", " share"), rows))
    print_findings(console, _MODULE, {seed: text for seed, (_, text) in findings.items()})
    rare = [
        name
        for name in WANTED
        if count >= _WANTED_RUNS_MIN and happened[name] < count * WANTED_SHARE
    ]
    for name in rare:
        console.print(f"[red]in less than {WANTED_SHARE:.0%} of the seeds: {name}[/red]")
    each_s = cpu_s / max(count, 1)
    console.print(
        f"{count} seeds from {options.seed}: {len(findings)} findings, {each_s:.3f} core-seconds"
        f" each (bar {_CPU_S_MAX})",
        highlight=False,
    )
    return 1 if findings or rare or each_s > _CPU_S_MAX else 0


def run_plants(options: Options) -> int:
    """Run every plant until it is found; exit code 1 when one is not, or by another checker."""
    rows: list[tuple[str, str, str, str]] = []
    is_fine = True
    for name, chunk in search_plants(options, run_chunk).items():
        last = list(chunk.findings.values())[-1] if chunk.findings else ("", "")
        if last[0] in PLANTS[name].checkers:
            rows.append((name, last[0], str(chunk.runs), escape(last[1].splitlines()[0][:200])))
        else:
            is_fine = False
            wanted = " or ".join(PLANTS[name].checkers)
            rows.append((name, wanted, f"[red]not in {chunk.runs}[/red]", escape(last[1][:200])))
    columns = ("plant", "checker", "found at run", "how")
    options.console.print(table("planted faults", columns, rows))
    return 0 if is_fine else 1


def main() -> int:
    options = Options.of(_MODULE, __doc__, PLANTS)
    if options.is_trace:
        trace(options, PLANTS, run_seed)
        return 0
    return run_plants(options) if options.plants else run_all(options)


if __name__ == "__main__":
    sys.exit(main())
