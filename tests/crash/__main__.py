"""`python -m tests.crash --runs 2000 --seed 1 --jobs 2 [--plant NAME|all] [--trace]`.

Runs simulated crashes, one seed each, and says what was hit. Exit code 1 when a seed fails, with
the command that repeats it alone, or when some kind of crash was hit too rarely to mean anything.
"""

import argparse
import gc
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.crash.plants import PLANTS, planted
from tests.crash.run_seed import ACTIVITIES, KINDS, FindingError, run_seed

_CHUNK = 25
_VACUOUS_RUNS_MIN = 1000
_VACUOUS_SHARE = 0.005


class Chunk(NamedTuple):
    """What some seeds did: crash sites, what happened in them, and findings by seed."""

    runs: int
    crashes: Counter[tuple[str, str]]
    done: Counter[str]
    findings: dict[int, str]


def run_chunk(first: int, count: int, plant: str | None = None, *, stop: bool = False) -> Chunk:
    """Run seeds first, first + 1, …; with stop only up to the first finding."""
    gc.freeze()
    crashes: Counter[tuple[str, str]] = Counter()
    done: Counter[str] = Counter()
    findings: dict[int, str] = {}
    runs = 0
    for seed in range(first, first + count):
        runs += 1
        try:
            if plant is None:
                outcome = run_seed(seed)
            else:
                with planted(plant):
                    outcome = run_seed(seed)
        except FindingError as finding:
            findings[seed] = str(finding)
            if stop:
                break
            continue
        crashes.update(outcome.crashes)
        done.update(outcome.done)
    return Chunk(runs, crashes, done, findings)


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
    crashes: Counter[tuple[str, str]] = Counter()
    done: Counter[str] = Counter()
    findings: dict[int, str] = {}
    count = 0
    with ProcessPoolExecutor(jobs) as pool, _progress(console) as progress:
        task = progress.add_task("crash", total=runs)
        waiting = [pool.submit(run_chunk, *chunk) for chunk in _chunks(seed, runs)]
        for future in as_completed(waiting):
            chunk = future.result()
            count += chunk.runs
            crashes.update(chunk.crashes)
            done.update(chunk.done)
            findings.update(chunk.findings)
            progress.update(task, completed=count)
            if len(findings) >= 10:
                pool.shutdown(cancel_futures=True)
                break
    kinds: Counter[str] = Counter()
    activities: Counter[str] = Counter()
    for (kind, activity), number in crashes.items():
        kinds[kind] += number
        activities[activity] += number
    console.print(_table("crashes by kind of step", kinds, count))
    console.print(_table("crashes by activity", activities, count))
    console.print(_table("what happened", done, count))
    for bad, text in sorted(findings.items()):
        console.print(f"[red]{text}[/red]", highlight=False)
        console.print(f"  repeat: {_command(bad)}", highlight=False, soft_wrap=True)
    rare = _rare(kinds, KINDS, count) + _rare(activities, ACTIVITIES, count)
    for name in rare:
        console.print(f"[red]hit in less than {_VACUOUS_SHARE:.1%} of the runs: {name}[/red]")
    console.print(f"{count} runs from seed {seed}: {len(findings)} findings")
    return 1 if findings or rare else 0


def _rare(found: Counter[str], wanted: tuple[str, ...], runs: int) -> list[str]:
    if runs < _VACUOUS_RUNS_MIN:
        return []
    return [name for name in wanted if found[name] < runs * _VACUOUS_SHARE]


def _table(title: str, counts: Counter[str], runs: int) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_column("per run", justify="right")
    for name, number in counts.most_common():
        table.add_row(name, str(number), f"{number / max(runs, 1):.3f}")
    return table


def _command(seed: int, plant: str | None = None) -> str:
    text = f"{sys.executable} -m tests.crash --runs 1 --seed {seed} --trace"
    return f'{text} --plant "{plant}"' if plant else text


def run_plants(console: Console, names: list[str], seed: int, runs: int, jobs: int) -> int:
    """Run every plant until it is found; exit code 1 when one is not."""
    found: dict[str, Chunk] = {}
    with ProcessPoolExecutor(jobs) as pool, _progress(console) as progress:
        task = progress.add_task("plants", total=len(names))
        waiting = {pool.submit(run_chunk, seed, runs, name, stop=True): name for name in names}
        for future in as_completed(waiting):
            found[waiting[future]] = future.result()
            progress.update(task, advance=1)
    table = Table(title="planted faults", title_justify="left")
    for title in ("plant", "failed at run", "how"):
        table.add_column(title)
    for name in names:
        chunk = found[name]
        if chunk.findings:
            how = next(iter(chunk.findings.values())).partition(": ")[2].splitlines()[0]
            table.add_row(name, str(chunk.runs), how[:100])
        else:
            table.add_row(name, f"[red]not in {chunk.runs}[/red]", "")
    console.print(table)
    return 0 if all(chunk.findings for chunk in found.values()) else 1


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
    print(f"seed {seed}: no finding; crashes: {outcome.crashes}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--plant", choices=[*PLANTS, "all"])
    parser.add_argument("--trace", action="store_true", help="print every action of one seed")
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
