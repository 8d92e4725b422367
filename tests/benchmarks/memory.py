"""Anonymous memory of a process whose budget is small and whose statements are large.

`python -m tests.benchmarks.memory [--rows 5000000]`: UPDATE and DELETE of all rows in one
transaction, committed and rolled back, under memory_bytes_max = 128 MiB: alone, while a lease, a
backup, an old snapshot, checkpoints and compactions are there, and over a kill -9 in the middle.
Memory is sampled every 20 ms. Beside it how long the monitor is held, in processor time of the
thread, and how long a commit of one row to another table takes meanwhile. Python's collector of
garbage, which stops every thread and visits the modules of the process above all, may come while
the monitor is held as at any other time: its longest run is a figure of its own.
Behind these a COMMIT STAGING of as many rows on a copy that follows: memory_follower.py.
"""

import argparse
import gc
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import herdpy
from herdpy.config import Config
from tests.benchmarks import memory_follower
from tests.benchmarks.harness import Bench
from tests.fixtures.anonymous_memory import Sampler

_MIB = 1024 * 1024
_BUDGET = 128 * _MIB
_ANONYMOUS_MB = 328.0
_HOLD_MS = 5.0
_COMMIT_MS = 50.0
_FILL_ROWS = 100_000
_TOTALS = "SELECT count(*), coalesce(sum(v), 0) FROM t"


class Collector:
    """How long Python's collector of garbage runs: in one thread while all others stand."""

    def __init__(self) -> None:
        self._begun_s = 0.0
        self.longest_s = 0.0
        self.spent_s: dict[int, float] = defaultdict(float)
        """By thread."""
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: object) -> None:
        if phase == "start":
            self._begun_s = time.thread_time()
            return
        took_s = time.thread_time() - self._begun_s
        self.spent_s[threading.get_ident()] += took_s
        self.longest_s = max(self.longest_s, took_s)


class TimedMonitor:
    """A monitor that notes the longest time it was held, in processor time of the thread.

    Without that of the collector: it holds the others up for as long wherever it comes.
    """

    def __init__(self, inner: Any, collector: Collector) -> None:
        self._inner = inner
        self._collector = collector
        self._begun_s = 0.0
        self.longest_s = 0.0

    def __enter__(self) -> None:
        self._inner.__enter__()
        self._begun_s = self._own_s()

    def __exit__(self, *error: object) -> None:
        self.longest_s = max(self.longest_s, self._own_s() - self._begun_s)
        self._inner.__exit__(*error)

    def _own_s(self) -> float:
        return time.thread_time() - self._collector.spent_s[threading.get_ident()]

    def acquire(self, *arguments: Any) -> bool:
        return self._inner.acquire(*arguments)

    def release(self) -> None:
        self._inner.release()


class Beside:
    """One-row durable commits to another table, while a statement runs; how long each took."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._over = threading.Event()
        self.taken_s: list[float] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with _connect(self._path, autocommit=True) as connection:
            number = 0
            while not self._over.wait(0.005):
                begun_s = time.perf_counter()
                connection.execute("UPSERT INTO s VALUES (?)", (number % 1000,))
                self.taken_s.append(time.perf_counter() - begun_s)
                number += 1

    def __enter__(self) -> "Beside":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _connect(path: Path, **settings: Any) -> herdpy.Connection:
    settings = {"durability": "sync", "autocommit": False, **settings}
    return herdpy.connect(str(path), memory_bytes_max=_BUDGET, **settings)


def _fill(path: Path, rows: int) -> None:
    with _connect(path, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, name TEXT)")
        connection.execute("CREATE TABLE s (id BIGINT PRIMARY KEY)")
        for low in range(0, rows, _FILL_ROWS):
            numbers = range(low, min(low + _FILL_ROWS, rows))
            columns = {
                "id": pa.array(numbers, pa.int64()),
                "v": pa.array([0] * len(numbers), pa.int64()),
                "name": [f"name {number % 1000}" for number in numbers],
            }
            connection.ingest("t", pa.table(columns))
        connection.checkpoint()


def _tell(name: str, unit: str, value: float, bar: float | None = None) -> None:
    print(json.dumps([name, unit, value, bar]), flush=True)


def _check(connection: herdpy.Connection, expected: tuple[int, int]) -> None:
    found = connection.execute(_TOTALS).fetchall()
    if found != [expected]:
        raise AssertionError(f"expected {expected}, found {found}")


def _measure(path: Path, rows: int, *, beside: bool) -> None:
    """Run in a process of its own: every case on one directory."""
    connection = _connect(path)
    monitor, collector = _watched(connection._claim._shared.database)  # type: ignore[attr-defined]
    sampler = Sampler()
    where = ", beside a lease, a backup, an old snapshot" if beside else ""
    total = 0

    def case(name: str, text: str, end: Callable[[], object], during: tuple[int, int]) -> None:
        sampler.take()
        monitor.longest_s = collector.longest_s = 0.0
        begun_s = time.perf_counter()
        with Beside(path) as others:
            connection.execute(text)
            _check(connection, during)
            connection.execute("SELECT * FROM t WHERE id = 77").fetchall()
            end()
        seconds = time.perf_counter() - begun_s
        _tell(f"{name}{where}", "MB", sampler.take() / 1e6, _ANONYMOUS_MB)
        _tell(f"{name}{where}: longest hold", "ms", monitor.longest_s * 1e3, _HOLD_MS)
        _tell(f"{name}{where}: longest run of the collector", "ms", collector.longest_s * 1e3)
        cuts = statistics.quantiles(others.taken_s, n=100)
        _tell(f"{name}{where}: p99 of a commit beside", "ms", cuts[98] * 1e3, _COMMIT_MS)
        _tell(f"{name}{where}: time", "s", seconds)

    stop = threading.Event()
    worker = threading.Thread(target=_disturb, args=(path, stop))
    if beside:
        worker.start()
    update, delete = "UPDATE t SET v = v + 1", "DELETE FROM t"
    try:
        case("UPDATE, ROLLBACK", update, connection.rollback, (rows, total + rows))
        _check(connection, (rows, total))
        connection.commit()
        case("UPDATE, COMMIT", update, connection.commit, (rows, total + rows))
        total += rows
        case("DELETE, ROLLBACK", delete, connection.rollback, (0, 0))
        _check(connection, (rows, total))
        connection.commit()
        case("DELETE, COMMIT", delete, connection.commit, (0, 0))
        _check(connection, (0, 0))
    finally:
        stop.set()
        if beside:
            worker.join()
        connection.close()


def _disturb(path: Path, stop: threading.Event) -> None:
    """Hold a lease and an unfinished result, and go on with backups, checkpoints, compactions."""
    with _connect(path, autocommit=True) as holder, _connect(path, autocommit=True) as reader:
        lease = holder.lease(3600)
        old = reader.execute("SELECT id, v FROM t WHERE id >= 0")
        old.fetchone()
        while not stop.wait(1.0):
            holder.backup(str(path.parent / "backup"), overwrite=True)
            holder.checkpoint()
        old.close()
        holder.release_lease(lease.id)


def _killed(path: Path) -> None:
    """Run in a process that is killed in the middle of the statement."""
    connection = _connect(path)
    print("begun", flush=True)
    connection.execute("UPDATE t SET v = v + 1")
    connection.execute("UPDATE t SET v = v + 1")
    print("too late", flush=True)


def _opened(path: Path, rows: int) -> None:
    sampler = Sampler()
    connection = _connect(path)
    _check(connection, (rows, 0))
    _tell("opening after kill -9", "MB", sampler.take() / 1e6, _ANONYMOUS_MB)
    connection.close()


def _watched(database: Any) -> tuple[TimedMonitor, Collector]:
    """Have a database's monitor be timed."""
    collector = Collector()
    monitor = TimedMonitor(database.tablespace.monitor, collector)
    database.tablespace.monitor = monitor
    return monitor, collector


def _child(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.benchmarks.memory", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _take_in(bench: Bench, *arguments: str) -> None:
    child = _child(*arguments)
    assert child.stdout is not None
    for line in child.stdout:
        name, unit, value, bar = json.loads(line)
        bench.add(name, unit, value, None, None, bar)
    if child.wait():
        raise RuntimeError(f"{arguments} ended with {child.returncode}")


def _run(rows: int) -> int:
    bench = Bench("memory", 1)
    with tempfile.TemporaryDirectory(prefix="herdpy-memory-", dir="build") as folder:
        for beside in (False, True):
            path = Path(folder) / f"db{beside:d}"
            _fill(path, rows)
            if not beside:
                child = _child("--killed", str(path))
                assert child.stdout is not None
                child.stdout.readline()
                time.sleep(max(rows / 1_000_000, 0.2))
                child.kill()
                if "too late" in child.communicate()[0]:
                    raise RuntimeError("the statements were done before the process was killed")
                _take_in(bench, "--opened", str(path), "--rows", str(rows))
            flags = ["--beside"] if beside else []
            _take_in(bench, "--measure", str(path), "--rows", str(rows), *flags)
            shutil.rmtree(path)
        followed = str(Path(folder) / "followed")
        _take_in(bench, "--lead", followed, "--rows", str(rows))
        for flags in ([], ["--beside"]):
            _take_in(bench, "--follow", followed, "--rows", str(rows), *flags)
    bench.write()
    return 0 if all(figure.ok is not False for figure in bench.figures) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--measure", type=Path)
    parser.add_argument("--killed", type=Path)
    parser.add_argument("--opened", type=Path)
    parser.add_argument("--lead", type=Path)
    parser.add_argument("--follow", type=Path)
    parser.add_argument("--beside", action="store_true")
    options = parser.parse_args()
    config = Config(memory_bytes_max=_BUDGET)
    if options.measure:
        _measure(options.measure, options.rows, beside=options.beside)
    elif options.killed:
        _killed(options.killed)
    elif options.opened:
        _opened(options.opened, options.rows)
    elif options.lead:
        memory_follower.lead(options.lead, options.rows, config)
    elif options.follow:
        memory_follower.follow(
            options.follow, options.rows, config, _watched, _tell, beside=options.beside
        )
    else:
        Path("build").mkdir(exist_ok=True)
        return _run(options.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
