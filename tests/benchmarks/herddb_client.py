"""herdpy's client of make bench-herddb: does what words on its input say, as java/HerdDb.java.

`python -m tests.benchmarks.herddb_client TARGET`, a directory or a URL. Each thread has a
connection of its own; every commit waits for the disk.
"""

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from random import Random
from time import perf_counter
from typing import Any

import herdpy

_COLUMNS = "(id BIGINT PRIMARY KEY, a BIGINT, b BIGINT, x DOUBLE, name TEXT, city TEXT)"
_INSERT = "INSERT INTO {} VALUES (?, ?, ?, ?, ?, ?)"
_LOADED_AT_ONCE = 5_000
_GROUPS = 100

Worker = Callable[..., int]
"""Called with a connection and `end`, until when it does it; returns how often."""


def make_row(number: int) -> tuple[Any, ...]:
    groups = number % _GROUPS
    return (number, number % 1000, groups, number * 0.25, f"name of {number}", f"city {groups}")


class Client:
    def __init__(self, target: str) -> None:
        self._target = target
        self._connections: list[Any] = []
        self._ids = count(1_000_000_000)
        self._random = Random(7)
        self._rows = 0

    def connection(self, number: int = 0) -> Any:
        while len(self._connections) <= number:
            self._connections.append(herdpy.connect(self._target, autocommit=True))
        return self._connections[number]

    def load(self, rows: str) -> float:
        for table in ("big", "written"):
            self.connection().execute(f"CREATE TABLE {table} {_COLUMNS}")
        for start in range(0, int(rows), _LOADED_AT_ONCE):
            self._insert_many("big", range(start, min(start + _LOADED_AT_ONCE, int(rows))))
        return self.rows(rows)

    def rows(self, rows: str) -> float:
        self._rows = int(rows)
        return self._rows

    def _insert_many(self, table: str, ids: range) -> None:
        connection = self.connection()
        connection.execute("BEGIN")
        connection.executemany(_INSERT.format(table), [make_row(number) for number in ids])
        connection.execute("COMMIT")

    def points(self, threads: str, seconds: str) -> float:
        def once(cursor: Any) -> None:
            key = self._random.randrange(self._rows)
            row = cursor.execute("SELECT * FROM big WHERE id = ?", (key,)).fetchone()
            assert row is not None, "a row is missing"

        return self._repeat(int(threads), float(seconds), once)

    def inserts(self, threads: str, seconds: str) -> float:
        text = _INSERT.format("written")
        return self._repeat(
            int(threads),
            float(seconds),
            lambda cursor: cursor.execute(text, make_row(next(self._ids))),
        )

    def updates(self, threads: str, seconds: str) -> float:
        def once(cursor: Any) -> None:
            key = self._random.randrange(self._rows)
            cursor.execute("UPDATE big SET a = a + 1 WHERE id = ?", (key,))
            assert cursor.rowcount == 1, "a row is missing"

        return self._repeat(int(threads), float(seconds), once)

    def singles(self, threads: str, number: str) -> float:
        """Insert so many rows, each by a statement that commits; return how many there are."""
        text, left = _INSERT.format("written"), count()

        def work(connection: Any, end: float) -> int:
            cursor = connection.cursor()
            while next(left) < int(number):
                cursor.execute(text, make_row(next(self._ids)))
            return 0

        self._together(int(threads), 0, work)
        return self.count()

    def batch(self, rows: str) -> float:
        first = next(self._ids)
        self._ids = count(first + int(rows))
        start = perf_counter()
        self._insert_many("written", range(first, first + int(rows)))
        return int(rows) / (perf_counter() - start)

    def group(self) -> float:
        start = perf_counter()
        found = self._read("SELECT b, count(*), sum(a) FROM big GROUP BY b")
        assert found == min(_GROUPS, self._rows), f"{found} groups"
        return 1 / (perf_counter() - start)

    def columns(self) -> float:
        start = perf_counter()
        found = self._read("SELECT id, name FROM big")
        assert found == self._rows, f"{found} rows"
        return found / (perf_counter() - start)

    def count(self) -> float:
        ((found,),) = self.connection().execute("SELECT count(*) FROM written").fetchall()
        return found

    def _read(self, text: str) -> int:
        found = 0
        for row in self.connection().execute(text):
            assert None not in row
            found += 1
        return found

    def _repeat(self, threads: int, seconds: float, once: Callable[[Any], object]) -> float:
        def work(connection: Any, end: float) -> int:
            cursor, done = connection.cursor(), 0
            while True:
                once(cursor)
                done += 1
                if perf_counter() >= end:
                    return done

        for number in range(threads):
            work(self.connection(number), 0)  # prepares
        start = perf_counter()
        done = self._together(threads, start + seconds, work)
        return done / (perf_counter() - start)

    def _together(self, threads: int, end: float, work: Worker) -> int:
        connections = [self.connection(number) for number in range(threads)]
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(partial(work, end=end), connections))


def main(target: str) -> None:
    start = perf_counter()
    client = Client(target)
    client.connection()
    print(json.dumps({"ready": perf_counter() - start}), flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        print(json.dumps({"answer": getattr(client, name)(*words)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
