"""make bench-embedded: herdpy in process against sqlite3 with the same settings.

Both are files in one directory; durable means synchronous=FULL with a write-ahead log for sqlite3
and durability="sync" here. `--rows` sets the size of the big table (1,000,000).

--old COMMIT: three runs of that commit, in processes of its own environment that do the same on
databases of their own, take their turns in each round. The ratio to it is to the median of the
three, and its bar the greatest of them by the least: no worse than it differs from itself.
"""

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import herdpy
from tests.benchmarks import plots
from tests.benchmarks.harness import (
    Bench,
    Follower,
    FollowingBench,
    busy_machine,
    fdatasync_us,
    raw_commits,
)
from tests.fixtures.old_commit import NoOldCommitError, OldCommit, old_commit

_COLUMNS = "a BIGINT, b BIGINT, x DOUBLE, name TEXT, city TEXT"
_INSERT = "INSERT INTO big VALUES (?, ?, ?, ?, ?, ?)"
_POINTS = 2_000
_OLD_RUNS = 3
_CITIES = [f"city {number}" for number in range(100)]

_FIRST_USE = """
connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
connection.execute("INSERT INTO t VALUES (?, ?)", (1, "a name"))
connection.commit()
assert connection.execute("SELECT name FROM t WHERE id = ?", (1,)).fetchall() == [("a name",)]
"""

Row = tuple[Any, ...]


def rows_from(start: int, stop: int) -> list[Row]:
    return [
        (i, i % 100, i * 7 % 1000003, i * 0.25, f"name of {i}", _CITIES[i % 100])
        for i in range(start, stop)
    ]


class World:
    """One directory with a herdpy database and an sqlite3 one of the same content."""

    def __init__(self, directory: Path, row_count: int) -> None:
        self.directory = directory
        self.row_count = row_count
        self.rng = random.Random(7)
        self.ours = herdpy.connect(directory / "herdpy", autocommit=True)
        self.peer = self.connect_peer()
        self.next_id = count(row_count)
        for connection, key in ((self.ours, "BIGINT"), (self.peer, "INTEGER")):
            connection.execute(f"CREATE TABLE big (id {key} PRIMARY KEY, {_COLUMNS})")
            connection.execute("CREATE TABLE words (word TEXT PRIMARY KEY, id BIGINT)")

    def connect_peer(self) -> sqlite3.Connection:
        peer = sqlite3.connect(self.directory / "sqlite.db", isolation_level=None, timeout=60)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "mmap_size=1073741824"):
            peer.execute(f"PRAGMA {pragma}").fetchall()
        peer.execute("PRAGMA cache_size=-200000")
        return peer

    def sides(self, run: Callable[[Any], object]) -> tuple[Callable[[], object], Any]:
        """Return run over a cursor of each contender."""
        mine, theirs = self.ours.cursor(), self.peer.cursor()
        return (lambda: run(mine)), (lambda: run(theirs))

    def ids(self, number: int) -> list[int]:
        return [self.rng.randrange(self.row_count) for _ in range(number)]


def load(bench: Bench, world: World) -> None:
    """Fill the tables; the figure is executemany's, in transactions of 50,000 rows."""
    step = min(50_000, world.row_count)
    chunks = [
        rows_from(start, min(start + step, world.row_count))
        for start in range(0, world.row_count, step)
    ]
    for connection in (world.ours, world.peer):
        words = [(f"word {i}", i) for i in range(20_000)]
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO words VALUES (?, ?)", words)
        connection.execute("COMMIT")

    def loader(connection: Any) -> Callable[[], None]:
        remaining: Iterator[list[Row]] = iter(chunks)

        def run() -> None:
            connection.execute("BEGIN")
            connection.executemany(_INSERT, next(remaining))
            connection.execute("COMMIT")

        return run

    bench.compare(
        "executemany, per row",
        loader(world.ours),
        loader(world.peer),
        count=step,
        rounds=len(chunks),
        bar=2,
    )


def points(bench: Bench, world: World) -> None:
    """Reads of one row by key, from pages (after a checkpoint) and from the memtable."""
    world.ours.checkpoint()
    keys = world.ids(_POINTS)

    def point(text: str, values: list[Any]) -> Callable[[Any], None]:
        def run(cursor: Any) -> None:
            for value in values:
                cursor.execute(text, (value,)).fetchone()

        return run

    def both(name: str, text: str, values: list[Any], bar: float | None) -> None:
        ours, peer = world.sides(point(text, values))
        bench.compare(name, ours, peer, count=len(values), bar=bar)

    whole, narrow = "SELECT * FROM big WHERE id = ?", "SELECT name FROM big WHERE id = ?"
    both("point read, page, random", whole, keys, 1.5)
    both("point read, page, hot", whole, [keys[0]] * _POINTS, 1.5)
    both("point read, page, 1 column", narrow, keys, 1.5)
    both("point read, page, 3 columns", "SELECT a, x, name FROM big WHERE id = ?", keys, 1.5)
    words = [f"word {key % 20_000}" for key in keys]
    both("point read, page, string key", "SELECT * FROM words WHERE word = ?", words, 1.5)
    touched = sorted(set(keys))
    for connection in (world.ours, world.peer):
        connection.execute("BEGIN")
        for key in touched:
            connection.execute("UPDATE big SET a = a + 1 WHERE id = ?", (key,))
        connection.execute("COMMIT")
    both("point read, memtable", whole, keys, 1.0)
    both("point read, memtable, 1 column", narrow, keys, 1.0)


def ranges(bench: Bench, world: World) -> None:
    starts = world.ids(100)

    def run(cursor: Any) -> None:
        for start in starts:
            text = "SELECT * FROM big WHERE id BETWEEN ? AND ?"
            cursor.execute(text, (start, start + 99)).fetchall()

    ours, peer = world.sides(run)
    bench.compare("range of 100 rows", ours, peer, count=len(starts), bar=1.5)


def aggregates(bench: Bench, world: World) -> None:
    for name, text in (
        ("count and sum over the table", "SELECT count(*), sum(b), sum(x) FROM big"),
        ("group by over the table", "SELECT city, count(*), sum(x) FROM big GROUP BY city"),
        ("filter and group by", "SELECT a, avg(x) FROM big WHERE b < 500000 GROUP BY a"),
    ):
        ours, peer = world.sides(lambda cursor, text=text: cursor.execute(text).fetchall())
        bench.compare(name, ours, peer, unit="ms", rounds=5, bar=1.0)


def writes(bench: Bench, world: World) -> None:
    def insert(ids: Iterator[int]) -> Callable[[Any], None]:
        def run(cursor: Any) -> None:
            cursor.execute("BEGIN")
            for _ in range(_POINTS):
                i = next(ids)
                cursor.execute(_INSERT, (i, i, i, 0.5, "a name", "a city"))
            cursor.execute("COMMIT")

        return run

    ours, _ = world.sides(insert(count(world.row_count + 10_000_000)))
    _, peer = world.sides(insert(count(world.row_count + 10_000_000)))
    bench.compare("INSERT in a transaction", ours, peer, count=_POINTS, bar=5)
    keys = world.ids(_POINTS)

    def update(cursor: Any) -> None:
        cursor.execute("BEGIN")
        for key in keys:
            cursor.execute("UPDATE big SET x = x + 1 WHERE id = ?", (key,))
        cursor.execute("COMMIT")

    ours, peer = world.sides(update)
    bench.compare("UPDATE by key in a transaction", ours, peer, count=_POINTS, bar=1.2)


def durable(bench: Bench, world: World) -> None:
    """Autocommit INSERTs that wait for the disk, by 1, 8 and 32 threads."""
    number = 200
    raw = raw_commits(world.directory, number)

    def committers(connect: Callable[[], Any], threads: int) -> Callable[[], None]:
        connections = [connect() for _ in range(threads)]

        def run() -> None:
            def work(connection: Any) -> None:
                for _ in range(number // threads):
                    i = next(world.next_id) + 50_000_000
                    connection.execute(_INSERT, (i, i, i, 0.5, "a name", "a city"))

            workers = [threading.Thread(target=work, args=(each,)) for each in connections]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

        return run

    def connect_ours() -> Any:
        return herdpy.connect(world.directory / "herdpy", autocommit=True)

    def connect_peer() -> Any:
        peer = sqlite3.connect(
            world.directory / "sqlite.db",
            isolation_level=None,
            timeout=60,
            check_same_thread=False,
        )
        peer.execute("PRAGMA synchronous=FULL")
        return peer

    with bench.busy():
        ours = committers(connect_ours, 1)
        bench.compare("durable commit, 1 thread", ours, raw, count=number, peer_name="raw", bar=1.3)
        for threads in (1, 8, 32):
            total = number // threads * threads
            name = f"durable commit, {threads} thread{'s' * (threads > 1)}, per commit"
            ours, peer = committers(connect_ours, threads), committers(connect_peer, threads)
            bench.compare(name, ours, peer, count=total, bar=1.0)


def snapshots(bench: Bench, world: World) -> None:
    def run() -> None:
        cursors = [world.ours.cursor() for _ in range(10_000)]
        for cursor in cursors:
            cursor.execute("SELECT * FROM big WHERE id >= ?", (5,))
        for cursor in cursors:
            cursor.close()

    bench.compare("a snapshot, of 10,000 open", run, None, count=10_000, rounds=5, bar=20)


def maintenance(bench: Bench, world: World) -> None:
    number = min(10_000, world.row_count)

    def change(connection: Any) -> None:
        connection.execute("BEGIN")
        for key in world.rng.sample(range(world.row_count), number):
            connection.execute("UPDATE big SET x = x + 1 WHERE id = ?", (key,))
        connection.execute("COMMIT")

    world.peer.execute("PRAGMA wal_autocheckpoint=0").fetchall()  # else its commit does it
    bench.compare(
        "checkpoint of 10,000 updates",
        world.ours.checkpoint,
        lambda: world.peer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall(),
        unit="ms",
        rounds=3,
        setup=(lambda: change(world.ours), lambda: change(world.peer)),
    )


def statements(bench: Bench, world: World) -> None:
    """What a program pays before its first row: import, connect, a text not seen before."""
    numbers = iter(count())

    def first(cursor: Any) -> None:
        for _ in range(50):
            number = next(numbers)
            cursor.execute(f"SELECT name AS n{number} FROM big WHERE id = ?", (5,)).fetchone()

    ours, peer = world.sides(first)
    bench.compare("a text not seen before", ours, peer, count=50, rounds=5)

    def read(cursor: Any) -> None:
        for key in world.ids(500):
            cursor.execute(f"SELECT name, x FROM big WHERE id = {key}").fetchone()

    ours, peer = world.sides(read)
    bench.compare("a read with its key in the text", ours, peer, count=500, rounds=5, bar=10)

    def insert(cursor: Any) -> None:
        cursor.execute("BEGIN")
        for _ in range(500):
            i = next(numbers) + world.row_count + 90_000_000
            cursor.execute(f"INSERT INTO big VALUES ({i}, {i}, -5, {i}.5, 'name {i}', 'it''s')")
        cursor.execute("ROLLBACK")

    ours, peer = world.sides(insert)
    name = "an INSERT with its values in the text"
    bench.compare(name, ours, peer, count=500, rounds=5, bar=10)

    table = "CREATE TABLE made (id INTEGER PRIMARY KEY, a TEXT, b TEXT, x DOUBLE PRECISION);"
    rows = [f"INSERT INTO made VALUES ({i}, 'name {i}', NULL, {i}.25);" for i in range(2_000)]
    script = "\n".join(("BEGIN TRANSACTION;", table, *rows, "COMMIT;"))

    def load(connection: Any) -> None:
        if hasattr(connection, "executescript"):
            connection.executescript(script)
        else:  # of an older commit
            for statement in script.splitlines():
                connection.execute(statement)
        connection.execute("DROP TABLE made")

    bench.compare(
        "a row of a dump that is loaded",
        lambda: load(world.ours),
        lambda: load(world.peer),
        count=2_000,
        rounds=5,
    )
    bench.compare(
        "connect to an open database",
        lambda: herdpy.connect(world.directory / "herdpy").close(),
        lambda: sqlite3.connect(world.directory / "sqlite.db").close(),
    )

    def start(module: str, then: str = "") -> Callable[[], object]:
        code = f"import {module}; connection = {module}.connect(':memory:'){then}"
        # The same path for every commit; the current folder has no packages.
        env = {**os.environ, "PYTHONPATH": str(Path(herdpy.__file__).parent.parent)}
        command = [sys.executable, "-c", code]
        return lambda: subprocess.run(command, cwd=world.directory, env=env, check=True)

    bench.compare(
        "a process that imports and connects",
        start("herdpy"),
        start("sqlite3"),
        unit="ms",
        bar=8,
    )
    bench.compare(
        "a process that creates, inserts and selects",
        start("herdpy", _FIRST_USE),
        start("sqlite3", _FIRST_USE),
        unit="ms",
        old_bar=0.8,
    )


def reopen(bench: Bench, world: World) -> None:
    """Open and read one row, after a clean close with nothing behind the last checkpoint."""
    world.ours.checkpoint()
    world.ours.close()
    world.peer.close()

    def ours() -> None:
        with herdpy.connect(world.directory / "herdpy") as connection:
            connection.execute("SELECT name FROM big WHERE id = ?", (5,)).fetchone()

    def peer() -> None:
        connection = sqlite3.connect(world.directory / "sqlite.db")
        connection.execute("SELECT name FROM big WHERE id = ?", (5,)).fetchone()
        connection.close()

    bench.compare("reopen and read a row", ours, peer, unit="ms")


def measure(bench: Bench, directory: Path, row_count: int) -> None:
    world = World(directory, row_count)
    for part in (load, points, ranges, aggregates, writes, durable, snapshots):
        part(bench, world)
    for part in (maintenance, statements, reopen):
        part(bench, world)


def start_follower(old: OldCommit, options: argparse.Namespace) -> Follower:
    arguments = ["--rows", str(options.rows), "--rounds", str(options.rounds)]
    arguments += ["--directory", options.directory] if options.directory else []
    command = [old.python, "-m", "tests.benchmarks.embedded", "--follow", *arguments]
    return Follower(command, old.environment(old.stand()), old.stand())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", help="where the databases stand; default: a new one")
    parser.add_argument("--old", metavar="COMMIT", help="compare with this commit as well")
    parser.add_argument("--follow", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="herdpy-bench-", dir=options.directory))
    # Modules come compiled, as those of an installed package and of Python itself do.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory / "compiled")
    try:
        if options.follow:
            print(json.dumps({"herdpy": herdpy.__file__}), flush=True)
            measure(FollowingBench("embedded", options.rounds), directory, options.rows)
            return
        with ExitStack() as stack:
            followers: list[Follower] = []
            old = old_commit(options.old) if options.old else None
            if old is not None:
                for _ in range(_OLD_RUNS):
                    follower = stack.enter_context(start_follower(old, options))
                    where = Path(follower.until("herdpy"))
                    assert where.is_relative_to(old.tree), f"{where} is not of {old.name}"
                    followers.append(follower)
            name = None if old is None else old.name
            bench = Bench("embedded", options.rounds, followers=followers, followers_name=name)
            with busy_machine():
                bench.fdatasync_us = round(fdatasync_us(directory), 1)
            print(f"fdatasync of 128 bytes: {bench.fdatasync_us} µs; {options.rows:,} rows")
            measure(bench, directory, options.rows)
            for follower in followers:
                follower.finish()
    except NoOldCommitError as error:
        raise SystemExit(f"bench-embedded: {error}") from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    path = bench.write()
    print(f"written: {path}, {bench.write_markdown()}")
    for picture in plots.draw(path):
        print(f"drawn: {picture}")
    missed = [figure.name for figure in bench.figures if figure.ok is False]
    if missed:
        print(f"*** bars missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
