"""Simulation: many seeds of one simulated world, in processes, with tables of what they did.

Of the worlds that name their checkers. A seed is one life: its events and faults are drawn from it,
and FindingError says which checker found something.
"""

import gc
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, NamedTuple

from rich.markup import escape

from tests.fixtures.plants import Plant, planted
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
from tests.sim.ledger.checkers import CheckError
from tests.sim.loop import SimulationError

WANTED_SHARE = 0.03


class Outcome(NamedTuple):
    """What one seed did."""

    trace_hash: int
    happened: Mapping[str, int]
    callback_count: int
    virtual_s: float


class FindingError(Exception):
    """A checker found something; `checker` is its name."""

    def __init__(self, seed: int, checker: str, message: str) -> None:
        super().__init__(f"seed {seed}: {message}")
        self.seed = seed
        self.checker = checker


def run_life(
    seed: int, world: Any, live: Callable[[Any], Coroutine[Any, Any, None]], limit_s: float
) -> Outcome:
    """Run a world's life on its loop; FindingError (with its cause) when a checker found something.

    limit_s: of the simulated clock. The world is closed.
    """
    loop = world.loop
    try:
        try:
            loop.run_until_complete(live(world), time_limit_s=limit_s)
            loop.check_tasks()
        finally:
            world.close()
    except CheckError as error:
        raise FindingError(seed, error.checker, str(error)) from error
    except SimulationError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, CheckError):
                raise FindingError(seed, cause.checker, str(cause)) from error
            cause = cause.__cause__
        kind = "liveness" if "not done after" in str(error) else "errors"
        raise FindingError(seed, kind, f"[{kind}] {error}") from error
    except Exception as error:
        message = f"[errors] {type(error).__name__}: {error}"
        raise FindingError(seed, "errors", message) from error
    return Outcome(loop.trace_hash, world.happened, loop.callback_count, loop.time())


_COST_RUNS_MIN = 100


class Chunk(NamedTuple):
    """What some seeds did: in how many each thing happened, and findings by seed."""

    runs: int
    happened: Counter[str]
    findings: dict[int, tuple[str, str]]
    """seed: (checker, message)."""
    cpu_s: float
    modules: frozenset[str]
    """Product modules of which some function was called."""
    amounts: dict[str, list[int]]
    """By what is counted: how much of it each seed had."""


class Simulation(NamedTuple):
    """A world whose seeds are run by `python -m module`; see the page's own sentence in `doc`."""

    module: str
    doc: str | None
    plants: Mapping[str, Plant]
    run_seed: Callable[..., Outcome]
    wanted: tuple[str, ...]
    """What has to happen in WANTED_SHARE of the seeds, from wanted_runs_min of them on."""
    wanted_runs_min: int
    cpu_s_max: float
    """Of one core, for a seed."""
    watch: Callable[[set[str]], AbstractContextManager[object]] = lambda _: nullcontext()
    """Collects, in a block, the product modules whose functions are called."""
    expected_modules: Callable[[], list[str]] | None = None
    amounts_min: Mapping[str, int] = {}
    """By what happened: how often at the least, in every seed."""

    def chunk(self, first: int, count: int, plant: str | None = None) -> Chunk:
        """Run seeds first, first + 1, …; with a plant only until one of its checkers finds it."""
        logging.disable(logging.CRITICAL)
        collect_and_freeze()
        gc.disable()  # what a seed leaves behind is collected between seeds
        happened: Counter[str] = Counter()
        findings: dict[int, tuple[str, str]] = {}
        modules: set[str] = set()
        amounts: dict[str, list[int]] = {name: [] for name in self.amounts_min}
        runs = 0
        began = time.process_time()
        for seed in range(first, first + count):
            runs += 1
            if runs % 5 == 0:
                gc.collect()
            try:
                with (
                    planted(self.plants, plant) if plant is not None else nullcontext(),
                    self.watch(modules) if runs == 1 else nullcontext(),
                ):
                    outcome = self.run_seed(seed)
            except FindingError as finding:
                findings[seed] = (finding.checker, str(finding))
                if plant is not None and self._is_found(plant, finding.checker):
                    break
                continue
            happened.update(outcome.happened.keys())
            for name, found in amounts.items():
                found.append(outcome.happened.get(name, 0))
        cpu_s = time.process_time() - began
        return Chunk(runs, happened, findings, cpu_s, frozenset(modules), amounts)

    def main(self, run_chunk: Callable[..., Chunk]) -> int:
        """Do what the command line says; the exit code. run_chunk: chunk(), for other processes."""
        options = Options.of(self.module, self.doc, self.plants)
        if options.is_trace:
            trace(options, self.plants, self.run_seed)
            return 0
        run = self._run_plants if options.plants else self._run_all
        return run(options, run_chunk)

    def _is_found(self, plant: str, checker: str) -> bool:
        checkers = self.plants[plant].checkers
        return not checkers or checker in checkers

    def _run_all(self, options: Options, run_chunk: Callable[..., Chunk]) -> int:
        happened: Counter[str] = Counter()
        findings: dict[int, tuple[str, str]] = {}
        modules: set[str] = set()
        amounts: dict[str, list[int]] = {name: [] for name in self.amounts_min}
        count = 0
        cpu_s = 0.0
        with closing(run_chunks(options, run_chunk)) as chunks:
            for chunk in chunks:
                count += chunk.runs
                cpu_s += chunk.cpu_s
                happened.update(chunk.happened)
                findings.update(chunk.findings)
                modules |= chunk.modules
                for name, found in chunk.amounts.items():
                    amounts[name] += found
                if len(findings) >= FINDINGS_MAX:
                    break
        console = options.console
        others = [name for name, _ in happened.most_common() if name not in self.wanted]
        rows = [
            (title, str(happened[name]), f"{happened[name] / max(count, 1):.1%}")
            for title, name in [(f"[bold]{name}[/bold]", name) for name in self.wanted]
            + [(name, name) for name in others]
        ]
        title = "what happened, in how many seeds"
        console.print(table(title, ("what", " seeds", " share"), rows))
        print_findings(console, self.module, {seed: text for seed, (_, text) in findings.items()})
        is_many = count >= self.wanted_runs_min
        rare = [n for n in self.wanted if is_many and happened[n] < count * WANTED_SHARE]
        for name in rare:
            console.print(f"[red]in less than {WANTED_SHARE:.0%} of the seeds: {name}[/red]")
        is_thin = False
        for name, found in amounts.items():
            least, bar = min(found, default=0), self.amounts_min[name]
            is_thin = is_thin or (bool(found) and least < bar)
            mean = sum(found) / max(len(found), 1)
            text = f"{name}: {mean:.1f} a seed, {least} at the least (bar {bar})"
            console.print(text, highlight=False)
        if self.expected_modules is not None:
            idle = ", ".join(n for n in self.expected_modules() if n not in modules) or "none"
            console.print(f"never executed: {idle}", highlight=False, soft_wrap=True)
        each_s = cpu_s / max(count, 1)
        console.print(
            f"{count} seeds from {options.seed}: {len(findings)} findings, {each_s:.3f} "
            f"core-seconds each (bar {self.cpu_s_max})",
            highlight=False,
        )
        # A mean of few is that of those whose functions are watched, which takes its time.
        is_dear = count >= _COST_RUNS_MIN and each_s > self.cpu_s_max
        return 1 if findings or rare or is_thin or is_dear else 0

    def _run_plants(self, options: Options, run_chunk: Callable[..., Chunk]) -> int:
        """Run every plant until it is found; 1 when one is not, or by another checker."""
        rows: list[tuple[str, str, str, str]] = []
        is_fine = True
        for name, chunk in search_plants(options, run_chunk).items():
            checker, text = list(chunk.findings.values())[-1] if chunk.findings else ("", "")
            if chunk.findings and self._is_found(name, checker):
                how = escape(text.splitlines()[0][:200])
                rows.append((name, checker, str(chunk.runs), how))
            else:
                is_fine = False
                wanted = " or ".join(self.plants[name].checkers)
                rows.append((name, wanted, f"[red]not in {chunk.runs}[/red]", escape(text[:200])))
        columns = ("plant", "checker", "found at run", "how")
        options.console.print(table("planted faults", columns, rows))
        return 0 if is_fine else 1
