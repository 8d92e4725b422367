"""One client of make bench-network: a process that does what lines of JSON on its input say.

`python -m tests.benchmarks.network_client herdpy|psycopg TARGET NUMBER`. Both kinds run the same
loops; they differ in how a batch goes in and how columns come out. A line names a method of
Client, its other fields are the arguments. Times of start and end are those of the machine's
monotonic clock, so that several clients begin together.
"""

import io
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random
from time import perf_counter, sleep
from typing import Any

COLUMNS = ("id", "a", "b", "x", "name", "city")
TYPES = "id BIGINT PRIMARY KEY, a BIGINT, b BIGINT, x DOUBLE PRECISION, name TEXT, city TEXT"
IDS_OF_A_CLIENT = 100_000_000
THREADS_FROM = 100
"""Numbers of clients that are threads of one."""

Row = tuple[Any, ...]


def make_row(number: int) -> Row:
    return (
        number,
        number % 100,
        number * 7 % 1000003,
        number * 0.25,
        f"name of {number}",
        f"city {number % 100}",
    )


def arrow_rows(rows: int) -> Any:
    """Return the rows 0 to rows - 1 as an Arrow table."""
    import pyarrow as pa

    columns = zip(*map(make_row, range(rows)), strict=True)
    types = [pa.int64(), pa.int64(), pa.int64(), pa.float64(), pa.string(), pa.string()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, COLUMNS)


class Herdpy:
    """herdpy's driver; the target is a URL or a directory."""

    parameter = "?"

    def __init__(self, target: str) -> None:
        self.target = target
        self.main = self.connect()

    def connect(self) -> Any:
        import herdpy

        return herdpy.connect(self.target, autocommit=True)

    def wait_for_disk(self, *, wanted: bool) -> None:
        import herdpy

        self.main.close()
        self.main = herdpy.connect(
            self.target, autocommit=True, durability="sync" if wanted else "none"
        )

    def execute_many(self, text: str, rows: list[Row]) -> None:
        self.main.executemany(text, rows)

    def pipelined(self, text: str, items: list[Row]) -> list[Any]:
        """Return the cursors."""
        with self.main.pipeline() as pipeline:
            return [pipeline.execute(text, item) for item in items]

    def arrow(self, text: str) -> int:
        return self.main.execute(text).fetch_arrow_table().num_rows

    def pandas(self, text: str) -> int:
        return len(self.main.execute(text).to_df())

    def ingest(self, table: str, rows: Any) -> None:
        self.main.ingest(table, rows)


class Psycopg:
    """psycopg 3 with its C library; every statement is prepared at its first use."""

    parameter = "%s"

    def __init__(self, target: str) -> None:
        self.target = target
        self.main = self.connect()

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(self.target, autocommit=True, prepare_threshold=0)

    def wait_for_disk(self, *, wanted: bool) -> None:
        self.main.execute(f"SET synchronous_commit = {'on' if wanted else 'off'}")

    def execute_many(self, text: str, rows: list[Row]) -> None:
        with self.main.transaction(), self.main.cursor() as cursor:
            cursor.executemany(text, rows)

    def pipelined(self, text: str, items: list[Row]) -> list[Any]:
        """Return the cursors."""
        with self.main.transaction(), self.main.pipeline():
            return [self.main.execute(text, item) for item in items]

    def arrow(self, text: str) -> int:
        import pyarrow as pa

        cursor = self.main.execute(text)
        names = [column.name for column in cursor.description]
        columns = zip(*cursor.fetchall(), strict=True)
        return pa.table([pa.array(column) for column in columns], names).num_rows

    def csv_arrow(self, text: str) -> int:
        """COPY as CSV, read by pyarrow: the fastest way we know."""
        from pyarrow import csv

        with self.main.cursor().copy(f"COPY ({text}) TO STDOUT (FORMAT csv, HEADER)") as copy:
            return csv.read_csv(io.BytesIO(b"".join(copy))).num_rows

    def pandas(self, text: str) -> int:
        import pandas as pd

        cursor = self.main.execute(text)
        names = [column.name for column in cursor.description]
        return len(pd.DataFrame(cursor.fetchall(), columns=names))

    def ingest(self, table: str, rows: Any) -> None:
        """Copy CSV that pyarrow writes, piece by piece: the fastest way we know."""
        from pyarrow import csv

        with self.main.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
            options = csv.WriteOptions(include_header=False)
            for batch in rows.to_batches(max_chunksize=65_536):
                text = io.BytesIO()
                csv.write_csv(batch, text, options)
                copy.write(text.getbuffer())

    def copy_rows(self, table: str, rows: Any) -> None:
        with self.main.cursor().copy(f"COPY {table} FROM STDIN") as copy:
            for batch in rows.to_batches(max_chunksize=65_536):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copy.write_row(row)


class Client:
    """See the module. Every method returns what is said."""

    def __init__(self, side: Herdpy | Psycopg, number: int) -> None:
        self._side = side
        self._random = Random(number)
        self._ids: Iterator[int] = count((number + 1) * IDS_OF_A_CLIENT)
        self._number = number
        self._idle: list[Any] = []
        self._threads: list[Client] = []
        self._arrow: Any = None
        marks = ", ".join([side.parameter] * len(COLUMNS))
        self._insert = f"INSERT INTO written VALUES ({marks})"
        self._point = f"SELECT * FROM big WHERE id = {side.parameter}"

    def load(self, rows: int) -> object:
        """Make the tables and the rows."""
        self._arrow = arrow_rows(rows)
        for table in ("big", "written"):
            self._side.main.execute(f"CREATE TABLE {table} ({TYPES})")
        self._side.ingest("big", self._arrow)
        maintain = "ANALYZE big" if isinstance(self._side, Psycopg) else None
        if maintain is not None:
            self._side.main.execute("CHECKPOINT")
            self._side.main.execute(maintain)
        else:
            self._side.main.checkpoint()
        return rows

    def points(self, rows: int, start: float, seconds: float) -> object:
        cursor, text, random = self._side.main.cursor(), self._point, self._random

        def once() -> None:
            row = cursor.execute(text, (random.randrange(rows),)).fetchone()
            assert row is not None

        return _repeat(once, start, seconds)

    def inserts(self, start: float, seconds: float, *, durable: bool = True) -> object:
        """Insert rows, each of them committed."""
        if not durable:
            self._side.wait_for_disk(wanted=False)
        cursor, text, ids = self._side.main.cursor(), self._insert, self._ids
        found = _repeat(lambda: cursor.execute(text, make_row(next(ids))), start, seconds)
        if not durable:
            self._side.wait_for_disk(wanted=True)
        return found

    def in_threads(self, what: str, threads: int, **arguments: Any) -> object:
        """Do it in so many threads of this process, each with a connection of its own."""
        while len(self._threads) < threads:
            number = THREADS_FROM + self._number * threads + len(self._threads)
            self._threads.append(Client(type(self._side)(self._side.target), number))
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(lambda each: getattr(each, what)(**arguments), self._threads))
        return {
            "count": sum(each["count"] for each in found),
            "rate": sum(each["rate"] for each in found),
            "p50_us": statistics.median(each["p50_us"] for each in found),
            "p99_us": max(each["p99_us"] for each in found),
        }

    def execute_many(self, rows: int) -> object:
        items = [make_row(next(self._ids)) for _ in range(rows)]
        return _time(lambda: self._side.execute_many(self._insert, items))

    def pipelined_points(self, rows: int, statements: int) -> object:
        items = [(self._random.randrange(rows),) for _ in range(statements)]

        def run() -> None:
            cursors = self._side.pipelined(self._point, items)
            _expect(statements, sum(len(cursor.fetchall()) for cursor in cursors))

        return _time(run)

    def pipelined_inserts(self, statements: int) -> object:
        """Insert rows by a statement each, in one transaction."""
        items = [make_row(next(self._ids)) for _ in range(statements)]

        def run() -> None:
            cursors = self._side.pipelined(self._insert, items)
            _expect(statements, sum(cursor.rowcount for cursor in cursors))

        return _time(run)

    def fetch(self, rows: int, form: str) -> object:
        text = f"SELECT {', '.join(COLUMNS)} FROM big"
        if form == "rows":
            return _median(lambda: _expect(rows, len(self._side.main.execute(text).fetchall())))
        return _median(lambda: _expect(rows, getattr(self._side, form)(text)))

    def ingest(self, form: str = "ingest") -> object:
        """Put what load() has made into a new table."""
        main = self._side.main
        main.execute(f"CREATE TABLE ingested ({TYPES})")
        found = _time(lambda: getattr(self._side, form)("ingested", self._arrow))
        ((number,),) = main.execute("SELECT count(*) FROM ingested").fetchall()
        _expect(self._arrow.num_rows, number)
        main.execute("DROP TABLE ingested")
        return found

    def open_idle(self, number: int) -> object:
        self._idle += [self._side.connect() for _ in range(number)]
        return len(self._idle)

    def close_idle(self) -> object:
        while self._idle:
            self._idle.pop().close()
        return 0


def repeated(once: Callable[[], object], start: float, seconds: float) -> tuple[list[float], float]:
    """Do it from `start` on for so long; how long each took, and all of it, in seconds."""
    once()  # prepares
    taken: list[float] = []
    sleep(max(0.0, start - perf_counter()))
    now = perf_counter()
    end = now + seconds
    while now < end:
        begun = now
        once()
        now = perf_counter()
        taken.append(now - begun)
    return taken, now - end + seconds


def _repeat(once: Callable[[], object], start: float, seconds: float) -> dict[str, Any]:
    """Do it from `start` on for so long; the number, and the median in µs."""
    taken, whole = repeated(once, start, seconds)
    taken.sort()
    return {
        "count": len(taken),
        "rate": len(taken) / whole,
        "p50_us": taken[len(taken) // 2] * 1e6,
        "p99_us": taken[len(taken) * 99 // 100] * 1e6,
    }


def _time(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def _median(run: Callable[[], object]) -> float:
    """Return the middle one of three times."""
    return sorted(_time(run) for _ in range(3))[1]


def _expect(wanted: int, found: int) -> None:
    if wanted != found:
        raise AssertionError(f"expected {wanted} rows, found {found}")


def new_side(kind: str, target: str) -> Herdpy | Psycopg:
    return Herdpy(target) if kind == "herdpy" else Psycopg(target)


def answer_lines(client: object) -> None:
    """Do what lines on the input say, until its end."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        arguments = json.loads(line)
        answer = getattr(client, arguments.pop("do"))(**arguments)
        print(json.dumps({"answer": answer}), flush=True)


if __name__ == "__main__":
    answer_lines(Client(new_side(sys.argv[1], sys.argv[2]), int(sys.argv[3])))
