"""`python -m tests.sim.ledger --runs 10000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Runs simulated lives of a ledger, one seed each, and says what happened in how many of them. Exit
code 1 when a checker found something (with the command that repeats the seed alone), when one of
the things that have to happen was too rare to mean anything, or when a planted fault was not found
by the checker that it names.
"""

import gc
import os
import sys
import time
from collections import Counter
from contextlib import closing, nullcontext
from pathlib import Path
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

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
from tests.sim.ledger.plants import PLANTS
from tests.sim.ledger.run_seed import FindingError, run_seed

_MODULE = "tests.sim.ledger"
WANTED = (
    "recovery",
    "ensemble change during recovery",
    "fencing of a live writer",
    "lost metadata answer",
    "restart in mid-fence",
)
WANTED_SHARE = 0.03
_WANTED_RUNS_MIN = 500
_CPU_S_MAX = 0.4
_ROOT = Path(__file__).parents[3]
_PACKAGES = ("client", "server", "ledger", "metadata")


class Chunk(NamedTuple):
    """What some seeds did: in how many each thing happened, and findings by seed."""

    runs: int
    happened: Counter[str]
    findings: dict[int, tuple[str, str]]
    """seed: (checker, message)."""
    cpu_s: float
    modules: frozenset[str]
    """Product modules of which some function was called."""


def run_chunk(first: int, count: int, plant: str | None = None) -> Chunk:
    """Run seeds first, first + 1, …; with a plant only until a checker that it names finds it."""
    gc.collect()
    gc.freeze()
    gc.disable()  # what a seed leaves behind is collected between seeds
    happened: Counter[str] = Counter()
    findings: dict[int, tuple[str, str]] = {}
    modules: set[str] = set()
    runs = 0
    began = time.process_time()
    for seed in range(first, first + count):
        runs += 1
        if runs % 5 == 0:
            gc.collect()
        try:
            with (
                planted(PLANTS, plant) if plant is not None else nullcontext(),
                executed_modules(modules) if runs == 1 else nullcontext(),
            ):
                outcome = run_seed(seed)
        except FindingError as finding:
            findings[seed] = (finding.checker, str(finding))
            if plant is not None and finding.checker in PLANTS[plant].checkers:
                break
            continue
        happened.update(outcome.happened.keys())
    return Chunk(runs, happened, findings, time.process_time() - began, frozenset(modules))


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


def run_all(options: Options) -> int:
    """Run the seeds, print the table and the findings; the exit code."""
    happened: Counter[str] = Counter()
    findings: dict[int, tuple[str, str]] = {}
    modules: set[str] = set()
    count = 0
    cpu_s = 0.0
    with closing(run_chunks(options, run_chunk)) as chunks:
        for chunk in chunks:
            count += chunk.runs
            cpu_s += chunk.cpu_s
            happened.update(chunk.happened)
            findings.update(chunk.findings)
            modules |= chunk.modules
            if len(findings) >= FINDINGS_MAX:
                break
    console = options.console
    console.print(_happened(happened, count))
    print_findings(console, _MODULE, {seed: text for seed, (_, text) in findings.items()})
    rare = [
        name
        for name in WANTED
        if count >= _WANTED_RUNS_MIN and happened[name] < count * WANTED_SHARE
    ]
    for name in rare:
        console.print(f"[red]in less than {WANTED_SHARE:.0%} of the seeds: {name}[/red]")
    idle = [name for name in product_modules() if name not in modules]
    console.print(f"never executed: {', '.join(idle) or 'none'}", highlight=False, soft_wrap=True)
    each_s = cpu_s / max(count, 1)
    console.print(
        f"{count} seeds from {options.seed}: {len(findings)} findings, {each_s:.3f} core-seconds"
        f" each (bar {_CPU_S_MAX})",
        highlight=False,
    )
    return 1 if findings or rare or each_s > _CPU_S_MAX else 0


def _happened(happened: Counter[str], runs: int) -> Table:
    others = [name for name, _ in happened.most_common() if name not in WANTED]
    rows = [
        (title, str(happened[name]), f"{happened[name] / max(runs, 1):.1%}")
        for title, name in [(f"[bold]{name}[/bold]", name) for name in WANTED]
        + [(name, name) for name in others]
    ]
    return table("what happened, in how many seeds", ("what", " seeds", " share"), rows)


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
