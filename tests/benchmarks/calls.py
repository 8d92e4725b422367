"""make bench-calls: product functions entered by one warm statement, which no machine changes.

Each count is taken ten times, in a process of its own each time (calls_child.py), and has to be the
same every time. Over the network client and server are threads of one process and both are counted;
neither looks for messages before it sleeps (spin_us=0). The bars are absolute. --old counts on an
older commit as well, into a document of its own. --list prints what is called, in order.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.harness import Bench
from tests.fixtures.old_commit import ROOT, NoOldCommitError, environment_of, old_commit

_CHILD = Path(__file__).with_name("calls_child.py")
_RUN_S_MAX = 120.0
PYTHON_MIN = (3, 12)
"""The first that can profile threads which run already."""


class Case(NamedTuple):
    name: str
    title: str
    calls_max: float | None = None
    changes_max: float | None = None


CASES = (
    Case("local select", "SELECT by key in process", 12),
    Case("local insert", "INSERT in process", 55),
    Case("local update", "UPDATE by key in process", 80),
    Case("local vector", "SELECT with GROUP BY in process"),
    Case("local executemany", "executemany of 3 rows in process"),
    Case("network select", "SELECT by key over the network", 50),
    Case("network insert", "INSERT over the network", 110, 3),
)


class Contender(NamedTuple):
    """A checkout and the Python that runs it."""

    name: str
    python: str
    tree: Path
    environment: dict[str, str]


class Trace(NamedTuple):
    """One run: (thread, file, function) in order, where a system call has no file."""

    events: list[tuple[str, str, str]]
    changes: int

    def figures(self) -> tuple[int, int, int]:
        """Return calls, changes of thread, files."""
        calls = [event for event in self.events if event[1]]
        return len(calls), self.changes, len({file for _, file, _ in calls})

    def functions(self) -> Counter[tuple[str, str]]:
        return Counter((file, name) for _, file, name in self.events if file)


def trace(contender: Contender, case: str) -> Trace:
    ran = subprocess.run(
        # -P: this folder's modules are not the checkout's.
        [contender.python, "-P", str(_CHILD), case],
        cwd=contender.tree, env=contender.environment, capture_output=True, text=True,
        timeout=_RUN_S_MAX, check=False,
    )  # fmt: skip
    if ran.returncode:
        raise SystemExit(f"bench-calls: {case} of {contender.name}:\n{ran.stderr[-3000:]}")
    document: dict[str, Any] = json.loads(ran.stdout)
    return Trace([tuple(event) for event in document["events"]], document["changes"])


def same_in_all(contender: Contender, case: str, runs: int) -> tuple[Trace, str | None]:
    """Return the first run, and how another one differed from it, if one did."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        traces = list(pool.map(lambda _: trace(contender, case), range(runs)))
    first = traces[0]
    for number, other in enumerate(traces[1:], 2):
        if other.figures() != first.figures():
            more, less = (
                other.functions() - first.functions(),
                first.functions() - other.functions(),
            )
            return first, (
                f"{case}: run {number} of {runs} has (calls, changes of thread, files) "
                f"{other.figures()} and the first {first.figures()}; more: {_names(more)}; "
                f"less: {_names(less)}"
            )
    return first, None


def _names(functions: Counter[tuple[str, str]]) -> str:
    named = [f"{count} {file} {name}" for (file, name), count in sorted(functions.items())]
    return ", ".join(named) or "nothing"


def measure(contender: Contender, bench: Bench, cases: list[Case], *, is_barred: bool) -> list[str]:
    """Add the figures of all cases; return how runs of one case differed."""
    differing: list[str] = []
    for case in cases:
        found, difference = same_in_all(contender, case.name, bench.rounds)
        differing += [] if difference is None else [difference]
        calls, changes, files = found.figures()
        bar, changes_bar = (case.calls_max, case.changes_max) if is_barred else (None, None)
        bench.add(f"{case.title}, calls", "", calls, None, None, bar)
        bench.add(f"{case.title}, files", "", files, None, None)
        if case.name.startswith("network"):
            name = f"{case.title}, changes of thread"
            bench.add(name, "", changes, None, None, changes_bar)
    return differing


def show(contender: Contender, cases: list[Case]) -> None:
    for case in cases:
        found = trace(contender, case.name)
        print(f"{case.title} ({contender.name})")
        last = ""
        for thread, file, name in found.events:
            if thread != last:
                print(f"  == {thread}")
                last = thread
            print(f"    {file or 'system call':44} {name}")
        calls, changes, files = found.figures()
        print(f"  {calls} calls in {files} files, {changes} changes of thread\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.calls", description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    names = [case.name for case in CASES]
    parser.add_argument("--only", choices=names, action="append", help="this case alone")
    parser.add_argument("--list", action="store_true", help="print the calls in order, once")
    parser.add_argument("--old", metavar="COMMIT", help="count on this commit as well")
    options = parser.parse_args()
    if sys.version_info < PYTHON_MIN:
        found = ".".join(map(str, sys.version_info[:3]))
        print(
            f"bench-calls needs Python 3.12 or newer, whose threading.setprofile_all_threads sees "
            f"threads that run already; this is {found}",
            file=sys.stderr,
        )
        return 1
    cases = [case for case in CASES if not options.only or case.name in options.only]
    contenders = [Contender("here", sys.executable, ROOT, environment_of(ROOT))]
    if options.old:
        try:
            old = old_commit(options.old)
        except NoOldCommitError as error:
            print(f"bench-calls: {error}", file=sys.stderr)
            return 1
        contenders.append(Contender(old.name, old.python, old.tree, old.environment()))
    differing: list[str] = []
    missed: list[str] = []
    for contender in contenders:
        if options.list:
            show(contender, cases)
            continue
        is_here = contender.tree == ROOT
        bench = Bench("calls" if is_here else f"calls-{contender.name}", options.runs)
        print(f"{contender.name}, {options.runs} runs of each")
        differing += measure(contender, bench, cases, is_barred=is_here)
        missed += [figure.name for figure in bench.figures if figure.ok is False]
        print(f"wrote {bench.write()}, {bench.write_markdown()}\n")
    if missed:
        print(f"*** bars missed: {', '.join(missed)}")
    for difference in differing:
        print(f"*** not the same in all runs: {difference}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
