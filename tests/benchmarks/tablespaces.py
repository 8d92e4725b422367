"""Two hundred tablespaces in one process: threads, idle time, opening, memory, disk, commits.

`python -m tests.benchmarks.tablespaces [--count 200]`. Each figure is one of a process of its own:
threads and idle processor time with all of them open and used once; the seconds to open all after a
clean close, and after kill -9 with 1,000 rows in each log; memory and disk of an empty one; durable
commits a second of 32 threads over 50 of them, beside those of 32 threads on one, by turns.
"""

import argparse
import gc
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import herdpy
from tests.benchmarks.harness import Bench, busy_machine
from tests.fixtures.anonymous_memory import anonymous_bytes
from tests.fixtures.line_process import LineProcess

_KIB = 1024
_ROWS = 1_000
_IDLE_S = 20.0
_SETTLE_S = 6.0
_THREADS, _OVER = 32, 50
_COMMITS = 60  # of each thread and round
_ROUNDS = 5
_WAIT_S = 600.0


def names(count: int) -> list[str]:
    return [f"t{number:03d}" for number in range(count)]


def connect(path: Path, name: str = "default") -> Any:
    return herdpy.connect(path, tablespace=name, autocommit=True)


# --- what a process of its own does: it says its figures as lines of JSON -------------------------


def say(**figures: object) -> None:
    for name, value in figures.items():
        print(json.dumps({name: value}), flush=True)


def make(path: Path, count: int) -> None:
    """Make them, and say what an empty one takes."""
    with connect(path) as connection:
        connection.execute("CREATE TABLESPACE warm")  # what the first one loads
        gc.collect()
        before, begun_s = anonymous_bytes(), time.perf_counter()
        for name in names(count):
            connection.execute(f"CREATE TABLESPACE {name}")
        made_s = time.perf_counter() - begun_s
        gc.collect()
        memory = (anonymous_bytes() - before) / count
        rows = connection.execute("SELECT id FROM systablespaces WHERE tablespace = 't000'")
        folder = path / rows.fetchone()[0]
    disk = sum(each.lstat().st_blocks * 512 for each in (folder, *folder.rglob("*")))
    say(memory=memory, disk=disk, made_ms=1e3 * made_s / count)


def fill(path: Path, count: int) -> None:
    """Write rows into each log, one commit each, and wait to be killed."""
    connections = [connect(path, name) for name in names(count)]
    for connection in connections:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?)", [(row, "x" * 40) for row in range(_ROWS)]
        )
    say(filled=True)
    sys.stdin.readline()


def open_all(path: Path, count: int) -> None:
    """Say how long opening takes, all of them, to a first answer of each."""
    herdpy.connect(":memory:").close()  # the modules are another benchmark's
    begun_s = time.perf_counter()
    connections = [connect(path, name) for name in names(count)]
    took_s = time.perf_counter() - begun_s
    has_table = bool(connections[0].execute("SHOW TABLES").fetchall())
    if has_table:
        for connection in connections:
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (_ROWS,)
    say(opened_s=took_s)
    for connection in connections:
        connection.close()


def idle(path: Path, count: int) -> None:
    """Say how many threads there are, and what they take while nothing is asked of them."""
    herdpy.connect(":memory:").close()
    before = len(os.listdir("/proc/self/task"))
    connections = [connect(path, name) for name in names(count)]
    for connection in connections:
        connection.execute("CREATE TABLE IF NOT EXISTS u (id BIGINT PRIMARY KEY)")
        connection.execute("UPSERT INTO u VALUES (1)")
    connections[0].execute("SELECT id, count(*) FROM u GROUP BY id ORDER BY 2").fetchall()

    def commit(connection: Any) -> None:
        for _ in range(5):
            connection.execute("UPSERT INTO u VALUES (1)")

    committers = [
        threading.Thread(target=commit, args=(connect(path, name),))
        for name in names(count)[:8]
        for _ in range(4)
    ]
    for thread in committers:
        thread.start()
    for thread in committers:
        thread.join()
    time.sleep(_SETTLE_S)  # a thread that was joined may be in the system's list for a moment
    threads = len(os.listdir("/proc/self/task")) - before
    begun_s, used_s = time.perf_counter(), time.process_time()
    time.sleep(_IDLE_S)
    share = (time.process_time() - used_s) / (time.perf_counter() - begun_s)
    say(threads=threads, idle=100 * share)


def commits(path: Path, count: int) -> None:
    """Say the rates of rounds: over several tablespaces, and on one."""

    def round_of(chosen: list[str]) -> float:
        connections = [connect(path, chosen[n % len(chosen)]) for n in range(_THREADS)]
        for connection in connections:
            connection.execute("CREATE TABLE IF NOT EXISTS c (id BIGINT PRIMARY KEY, v BIGINT)")
        start = threading.Barrier(_THREADS + 1)
        turn = iter(range(10**9))

        def work(number: int) -> None:
            own = connections[number]
            start.wait()
            for commit in range(_COMMITS):
                own.execute("UPSERT INTO c VALUES (?, ?)", (number * _COMMITS + commit, next(turn)))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(_THREADS)]
        for thread in threads:
            thread.start()
        start.wait()
        begun_s = time.perf_counter()
        for thread in threads:
            thread.join()
        took_s = time.perf_counter() - begun_s
        for connection in connections:
            connection.close()
        return _THREADS * _COMMITS / took_s

    keep = connect(path)
    several = names(min(_OVER, count))
    offset, rates = 0, ([], [])  # type: tuple[int, tuple[list[float], list[float]]]
    for _ in range(_ROUNDS):
        shifted = several[offset:] + several[:offset]  # all of them in turn: 32 threads at a time
        offset = (offset + _THREADS) % len(several)
        rates[0].append(round_of(shifted))
        rates[1].append(round_of(several[:1]))
    say(over=statistics.median(rates[0]), on_one=statistics.median(rates[1]))
    keep.close()


_PARTS: dict[str, Callable[[Path, int], None]] = {
    "make": make,
    "fill": fill,
    "open": open_all,
    "idle": idle,
    "commits": commits,
}


class Part(LineProcess):
    """A process that does one of them."""


def _part(name: str, path: Path, count: int) -> Part:
    command = ["-m", "tests.benchmarks.tablespaces", "--part", name, str(path)]
    return Part([sys.executable, *command, "--count", str(count)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--part", nargs=2, metavar=("NAME", "DIRECTORY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        name, directory = options.part
        _PARTS[name](Path(directory), options.count)
        return 0
    bench = Bench("tablespaces", _ROUNDS)
    build = Path.cwd() / "build"
    build.mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="herdpy-tablespaces-", dir=build))
    try:
        measure(bench, root, options.count)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    bench.write()
    return 0 if all(figure.ok is not False for figure in bench.figures) else 1


def measure(bench: Bench, root: Path, count: int) -> None:
    with busy_machine():
        with _part("make", root / "clean", count) as part:
            memory = part.until("memory", _WAIT_S)
            disk, made = part.until("disk", _WAIT_S), part.until("made_ms", _WAIT_S)
            part.finish()  # it closes
        bench.add("memory of an empty one", "KiB", memory / _KIB, None, None, 1_024)
        bench.add("disk of an empty one", "KiB", disk / _KIB, None, None, 128)
        bench.add("CREATE TABLESPACE", "ms", made, None, None)
        with _part("open", root / "clean", count) as part:
            took_s = part.until("opened_s", _WAIT_S)
            part.finish()
        bench.add(f"opening {count} after a clean close", "s", took_s, None, None, 3)
        with _part("fill", root / "clean", count) as part:
            part.until("filled", _WAIT_S)
            part.kill()
        with _part("open", root / "clean", count) as part:
            took_s = part.until("opened_s", _WAIT_S)
            part.finish()
        bench.add(f"opening {count} after kill -9, 1,000 rows each", "s", took_s, None, None, 8)
    with _part("idle", root / "clean", count) as part:  # nothing keeps the machine awake
        threads, share = part.until("threads", _WAIT_S), part.until("idle", _WAIT_S)
        part.finish()
    bench.add(f"threads of {count}", "", threads, None, None, 12)
    bench.add(f"idle processor time of {count}", "%", share, None, None, 1)
    with busy_machine(), _part("commits", root / "clean", count) as part:
        over, on_one = part.until("over", _WAIT_S), part.until("on_one", _WAIT_S)
        part.finish()
    bench.add(
        f"commits/s, {_THREADS} threads over {_OVER}", "", over, on_one, "on one", 0.3,
        better="higher",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
