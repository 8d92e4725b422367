"""`python -m tests.sim.ledger --runs 10000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Runs simulated lives of a ledger, one seed each, and says what happened in how many of them. Exit
code 1 when a checker found something (with the command that repeats the seed alone), when one of
the things that have to happen was too rare to mean anything, or when a planted fault was not found
by the checker that it names.
"""

import argparse
import gc
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.sim.ledger.plants import PLANTS, planted
from tests.sim.ledger.run_seed import FindingError, run_seed

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
_CHUNK = 25
_FINDINGS_MAX = 10
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
            if plant is not None:
                with planted(plant):
                    outcome = run_seed(seed)
            elif runs == 1:
                with executed_modules(modules):
                    outcome = run_seed(seed)
            else:
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


def _chunks(seed: int, runs: int) -> Iterator[tuple[int, int]]:
    for first in range(seed, seed + runs, _CHUNK):
        yield first, min(_CHUNK, seed + runs - first)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def run_all(console: Console, seed: int, runs: int, jobs: int) -> int:
    """Run the seeds, print the table and the findings; the exit code."""
    happened: Counter[str] = Counter()
    findings: dict[int, tuple[str, str]] = {}
    modules: set[str] = set()
    count = 0
    cpu_s = 0.0
    with ProcessPoolExecutor(jobs) as pool, _progress(console) as progress:
        task = progress.add_task("ledger", total=runs)
        waiting = [pool.submit(run_chunk, *chunk) for chunk in _chunks(seed, runs)]
        for future in as_completed(waiting):
            chunk = future.result()
            count += chunk.runs
            cpu_s += chunk.cpu_s
            happened.update(chunk.happened)
            findings.update(chunk.findings)
            modules |= chunk.modules
            progress.update(task, completed=count)
            if len(findings) >= _FINDINGS_MAX:
                pool.shutdown(cancel_futures=True)
                break
    console.print(_table(happened, count))
    for bad, (_, text) in sorted(findings.items()):
        console.print(text, style="red", highlight=False, markup=False, soft_wrap=True)
        console.print(f"  repeat: {_command(bad)}", highlight=False, soft_wrap=True)
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
        f"{count} seeds from {seed}: {len(findings)} findings, {each_s:.3f} core-seconds each"
        f" (bar {_CPU_S_MAX})",
        highlight=False,
    )
    return 1 if findings or rare or each_s > _CPU_S_MAX else 0


def _table(happened: Counter[str], runs: int) -> Table:
    table = Table(title="what happened, in how many seeds", title_justify="left")
    table.add_column("what")
    table.add_column("seeds", justify="right")
    table.add_column("share", justify="right")
    for name in WANTED:
        table.add_row(f"[bold]{name}[/bold]", str(happened[name]), _share(happened[name], runs))
    for name, number in happened.most_common():
        if name not in WANTED:
            table.add_row(name, str(number), _share(number, runs))
    return table


def _share(number: int, runs: int) -> str:
    return f"{number / max(runs, 1):.1%}"


def _command(seed: int, plant: str | None = None) -> str:
    text = f"{sys.executable} -m tests.sim.ledger --seed {seed} --trace"
    return f'{text} --plant "{plant}"' if plant else text


def run_plants(console: Console, names: list[str], seed: int, runs: int, jobs: int) -> int:
    """Run every plant until it is found; exit code 1 when one is not, or by another checker."""
    found: dict[str, Chunk] = {}
    with ProcessPoolExecutor(jobs) as pool, _progress(console) as progress:
        task = progress.add_task("plants", total=len(names))
        waiting = {pool.submit(run_chunk, seed, runs, name): name for name in names}
        for future in as_completed(waiting):
            found[waiting[future]] = future.result()
            progress.update(task, advance=1)
    table = Table(title="planted faults", title_justify="left")
    for title in ("plant", "checker", "found at run", "how"):
        table.add_column(title)
    is_fine = True
    for name in names:
        chunk = found[name]
        last = list(chunk.findings.values())[-1] if chunk.findings else ("", "")
        if last[0] in PLANTS[name].checkers:
            table.add_row(name, last[0], str(chunk.runs), escape(last[1].splitlines()[0][:200]))
        else:
            is_fine = False
            wanted = " or ".join(PLANTS[name].checkers)
            table.add_row(name, wanted, f"[red]not in {chunk.runs}[/red]", escape(last[1][:200]))
    console.print(table)
    return 0 if is_fine else 1


def trace(seed: int, plant: str | None) -> int:
    """Run one seed and print all that happens."""
    try:
        if plant is None:
            outcome = run_seed(seed, print)
        else:
            with planted(plant):
                outcome = run_seed(seed, print)
    except FindingError as finding:
        traceback.print_exception(finding)
        return 1
    print(f"seed {seed}: no finding; {outcome}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.ledger", description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--plant", choices=[*PLANTS, "all"])
    parser.add_argument("--trace", action="store_true", help="print every message of one seed")
    options = parser.parse_args()
    if options.trace:
        return trace(options.seed, options.plant)
    console = Console()
    if options.plant is not None:
        names = list(PLANTS) if options.plant == "all" else [options.plant]
        return run_plants(console, names, options.seed, options.runs, options.jobs)
    return run_all(console, options.seed, options.runs, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
