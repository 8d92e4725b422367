"""Benchmarks: interleaved rounds of two contenders, medians, and the JSON document of DESIGN §14.

A round times ours, then the peer; the next one the peer, then ours. What is compared is the median
of each, so that a slow moment of the machine hits one round of both. Garbage collection stays as
Python starts with it.

An older commit takes its turns in processes that run the same benchmark (Follower), several of
them: what it differs from itself is what ours may differ from it.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.fixtures.line_process import LineProcess

OUTPUT = Path("build/bench")
_SPINNER = "import os\nos.nice(19)\nwhile True: pass"


@dataclass(frozen=True)
class Figure:
    """One result; `bar` is the greatest ratio allowed (the least, where more is better).

    Without a peer it is the greatest value, or the least.
    """

    name: str
    unit: str
    ours: float
    peer: float | None
    peer_name: str | None
    ratio: float | None
    better: str
    bar: float | None
    ok: bool | None


_TURN_S_MAX = 900.0
Setup = tuple[Callable[[], object], Callable[[], object]]


class Follower(LineProcess):
    """A process that runs the same benchmark with a FollowingBench, a turn at a time."""

    def begin(self, name: str) -> None:
        """Wait until it has come to this comparison."""
        self.until("ready", _TURN_S_MAX, name)

    def turn(self) -> float:
        """Let it run once; return the seconds."""
        self.tell("turn")
        return self.until("seconds", _TURN_S_MAX)

    def end(self) -> None:
        """Let it go on to the next comparison."""
        self.tell("next")


class Bench:
    """Collects figures and prints each as it comes."""

    def __init__(
        self,
        name: str,
        rounds: int,
        *,
        followers: Sequence[Follower] = (),
        followers_name: str | None = None,
    ) -> None:
        self.name = name
        self.rounds = rounds
        self.followers = followers
        self.followers_name = followers_name
        self.fdatasync_us: float | None = None
        self.figures: list[Figure] = []
        self.curves: dict[str, Any] = {}
        """What a plot needs beside them."""

    def compare(
        self,
        name: str,
        ours: Callable[[], object],
        peer: Callable[[], object] | None,
        *,
        count: int = 1,
        unit: str = "µs",
        peer_name: str = "sqlite3",
        bar: float | None = None,
        rounds: int | None = None,
        setup: Setup | None = None,
        old_bar: float | None = None,
    ) -> None:
        """Time all; each call does `count` operations, and the figure is the time of one.

        `setup` is called before each turn of ours, and of the peer, and not timed. `old_bar` is the
        greatest ratio to the followers; by default what they differ among themselves.
        """
        scale = {"s": 1.0, "ms": 1e3, "µs": 1e6}[unit] / count
        before = setup or (None, None)
        turns: list[Callable[[], float]] = [lambda: _timed(ours, before[0])]
        if peer is not None:
            turns.append(lambda: _timed(peer, before[1]))
        turns += [follower.turn for follower in self.followers]
        times: list[list[float]] = [[] for _ in turns]
        for follower in self.followers:
            follower.begin(name)
        for number in range(rounds or self.rounds):
            first = number % len(turns)
            for index in [*range(first, len(turns)), *range(first)]:
                times[index].append(turns[index]() * scale)
        for follower in self.followers:
            follower.end()
        medians = [statistics.median(taken) for taken in times]
        theirs = medians[1] if peer is not None else None
        if theirs is not None or bar is not None or not self.followers:
            self.add(name, unit, medians[0], theirs, peer_name if peer else None, bar)
        if self.followers:
            runs = medians[len(turns) - len(self.followers) :]
            limit = max(runs) / min(runs) if old_bar is None else old_bar
            title = f"{name} : {self.followers_name}"
            old = statistics.median(runs)
            self.add(title, unit, medians[0], old, self.followers_name, round(limit, 2))

    def busy(self) -> AbstractContextManager[None]:
        """Keep the machine awake for all contenders."""
        return busy_machine()

    def add(
        self,
        name: str,
        unit: str,
        ours: float,
        peer: float | None,
        peer_name: str | None,
        bar: float | None = None,
        *,
        better: str = "lower",
    ) -> None:
        ratio = ours / peer if peer else None
        measured = ours if ratio is None else ratio
        ok = None if bar is None else (measured >= bar if better == "higher" else measured <= bar)
        figure = Figure(name, unit, ours, peer, peer_name, ratio, better, bar, ok)
        self.figures.append(figure)
        beside = "" if peer is None else f"{peer_name} {peer:,.2f}, ratio {ratio:.2f}"
        verdict = "" if ok is None else f"bar {bar:g} {'ok' if ok else 'MISSED'}"
        print(f"{name:36} {ours:12,.2f} {unit:3} {beside:34} {verdict}", flush=True)

    def write(self) -> Path:
        """Write build/bench/<name>.json and return its path."""
        OUTPUT.mkdir(parents=True, exist_ok=True)
        host = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "fdatasync_us": self.fdatasync_us,
            "load": os.getloadavg()[0],
        }
        document: dict[str, Any] = {
            "bench": self.name,
            "host": host,
            "results": [asdict(figure) for figure in self.figures],
        }
        if self.curves:
            document["curves"] = self.curves
        path = OUTPUT / f"{self.name}.json"
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return path

    def write_markdown(self) -> Path:
        """Write the figures as a table for docs/BENCHMARKS.md; return its path."""
        lines = ["| Figure | ours | peer | Ratio | Bar |", "|---|---:|---:|---:|---:|"]
        for figure in self.figures:
            peer = "" if figure.peer is None else f"{_short(figure.peer)} {figure.unit}"
            ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
            sign = "≥" if figure.better == "higher" else "≤"
            bar = "" if figure.bar is None else f"{sign} {figure.bar:g}"
            missed = ", missed" if figure.ok is False else ""
            lines.append(
                f"| {figure.name} | {_short(figure.ours)} {figure.unit} | {peer} | {ratio} "
                f"| {bar}{missed} |"
            )
        path = OUTPUT / f"{self.name}.md"
        path.write_text("\n".join(lines) + "\n")
        return path


class FollowingBench(Bench):
    """In the process of a Follower: runs ours whenever it is told to, and adds no figures."""

    def compare(
        self,
        name: str,
        ours: Callable[[], object],
        peer: Callable[[], object] | None,
        *,
        setup: Setup | None = None,
        **_: Any,
    ) -> None:
        _say("ready", name)
        while sys.stdin.readline().strip() == "turn":
            _say("seconds", _timed(ours, None if setup is None else setup[0]))

    def busy(self) -> AbstractContextManager[None]:
        """Leave it to the process that this one follows."""
        return nullcontext()


def _timed(run: Callable[[], object], setup: Callable[[], object] | None) -> float:
    if setup is not None:
        setup()
    start = perf_counter()
    run()
    return perf_counter() - start


def _say(name: str, value: object) -> None:
    print(json.dumps({name: value}), flush=True)


def replace_table(document: Path, name: str, table: str) -> None:
    """Put a table between the lines <!-- bench-name --> and <!-- /bench-name --> of a document."""
    begin, end = f"<!-- bench-{name} -->\n", f"<!-- /bench-{name} -->"
    before, rest = document.read_text().split(begin)
    _, after = rest.split(end)
    document.write_text(f"{before}{begin}\n{table.strip()}\n\n{end}{after}")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


@contextmanager
def busy_machine() -> Iterator[None]:
    """Keep one process of the lowest priority spinning: idle virtual machines sync slowly."""
    spinner = subprocess.Popen([sys.executable, "-c", _SPINNER])
    try:
        yield
    finally:
        spinner.kill()
        spinner.wait()


def raw_commits(directory: Path, count: int, size: int = 128) -> Callable[[], None]:
    """Return a function that writes and fdatasyncs `count` times into a file of zeros."""
    path = directory / "raw"
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(handle, bytes(16 << 20), 0)
    os.fsync(handle)
    place = 0

    def run() -> None:
        nonlocal place
        for _ in range(count):
            os.pwrite(handle, b"x" * size, place)
            os.fdatasync(handle)
            place = (place + size) % (8 << 20)

    return run


def fdatasync_us(directory: Path) -> float:
    """Return the median of a write of 128 bytes with fdatasync, in µs."""
    once = raw_commits(directory, 1)
    times: list[float] = []
    for _ in range(200):
        start = perf_counter()
        once()
        times.append((perf_counter() - start) * 1e6)
    return statistics.median(times)
