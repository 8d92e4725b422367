"""One client of make bench-cluster: a process that does what lines of JSON on its input say.

`python -m tests.benchmarks.cluster_client herdpy|psycopg TARGET NUMBER`: network_client.py, and
beside it what only a cluster is asked. Times are those of the machine's monotonic clock, which all
processes share.
"""

import json
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from random import Random
from time import perf_counter
from typing import Any

import herdpy
from tests.benchmarks import network_client
from tests.benchmarks.network_client import (
    IDS_OF_A_CLIENT,
    TYPES,
    answer_lines,
    arrow_rows,
    make_row,
    new_side,
    repeated,
)

_GAP_S = 0.5
_JOB = "bench"
_TASKS = 4
_LOADED_AT_ONCE = 1_000


class Client(network_client.Client):
    """See the module. Every method returns what is said."""

    def __init__(self, side: Any, number: int) -> None:
        super().__init__(side, number)
        self._main = side.main
        self._many = side.execute_many
        self._parameter = side.parameter
        self._target = side.target
        self._keys = (number + 1) * IDS_OF_A_CLIENT + IDS_OF_A_CLIENT // 2
        self._chance = Random(number)
        self._tokens: list[Any] = []
        self._inserting: threading.Thread | None = None
        self._is_stopping = threading.Event()
        self._done = 0

    def load(self, rows: int) -> object:
        """Make the tables and the rows; by INSERTs, as HerdDB does, and no Arrow is loaded."""
        for table in ("big", "written"):
            self._main.execute(f"CREATE TABLE {table} ({TYPES})")
        marks = ", ".join([self._parameter] * len(make_row(0)))
        for first in range(0, rows, _LOADED_AT_ONCE):
            last = min(first + _LOADED_AT_ONCE, rows)
            self._many(f"INSERT INTO big VALUES ({marks})", list(map(make_row, range(first, last))))
        return rows

    def _insert_one(self, cursor: Any) -> int:
        self._keys += 1
        marks = ", ".join([self._parameter] * len(make_row(0)))
        cursor.execute(f"INSERT INTO written VALUES ({marks})", make_row(self._keys))
        return self._keys

    def commits(self, start: float, seconds: float) -> object:
        """Insert rows, each of them committed; how long each took, in µs."""
        cursor = self._main.cursor()
        return _answer(*repeated(lambda: self._insert_one(cursor), start, seconds))

    def reads(self, rows: int, start: float, seconds: float) -> object:
        """Read rows by their keys; how long each took, in µs."""
        cursor = self._main.cursor()
        text = f"SELECT * FROM big WHERE id = {self._parameter}"

        def once() -> None:
            assert cursor.execute(text, (self._chance.randrange(rows),)).fetchone() is not None

        return _answer(*repeated(once, start, seconds))

    # --- lag -------------------------------------------------------------------------------------

    def lag(self, follower: str, start: float, seconds: float) -> object:
        """Commit a row at the leader, wait until a follower shows it, and so on.

        When each was acknowledged, and when it was seen.
        """
        found: list[tuple[float, float]] = []
        cursor = self._main.cursor()
        with _connected(follower) as copy:

            def once() -> None:
                key = self._insert_one(cursor)
                acknowledged = perf_counter()
                _see(copy, self._main.position, key)
                found.append((acknowledged, perf_counter()))

            repeated(once, start, seconds)
        return found

    def stage(self, rows: int) -> object:
        """Stage rows by tasks, for a table of their own; a job that commit_staged() ends."""
        main = self._main
        main.execute(f"CREATE TABLE staged ({TYPES})")
        job = main.begin_staging("staged", job=_JOB)
        each = rows // _TASKS
        table = arrow_rows(rows)
        for task in range(_TASKS):
            with main.stage(job, task) as stage:
                for batch in table.slice(task * each, each).to_batches(max_chunksize=50_000):
                    stage.add(batch)
                self._tokens.append(stage.finish())
        return each * _TASKS

    def commit_staged(self, follower: str, rows: int) -> object:
        """Commit them: when that began, was acknowledged, and was seen at a follower."""
        with _connected(follower) as copy:
            begun = perf_counter()
            position = self._main.commit_staging(_JOB, self._tokens)
            acknowledged = perf_counter()
            _see(copy, position, rows - 1, "staged")
            return begun, acknowledged, perf_counter()

    # --- silence ---------------------------------------------------------------------------------

    def insert(self) -> object:
        """Insert one row behind the other until stop(), and say each silence: two successes."""
        first = perf_counter()
        self._insert_one(self._main.cursor())
        self._inserting = threading.Thread(target=self._insert_until_stopped, args=(first,))
        self._inserting.start()
        return True

    def _insert_until_stopped(self, last: float) -> None:
        cursor = self._main.cursor()
        while not self._is_stopping.is_set():
            try:
                self._insert_one(cursor)
            except herdpy.Error as error:
                print(json.dumps({"failed": str(error)}), flush=True)
                continue
            now = perf_counter()
            self._done += 1
            if now - last > _GAP_S:
                print(json.dumps({"gap": (last, now)}), flush=True)
            last = now

    def stop(self) -> object:
        self._is_stopping.set()
        assert self._inserting is not None
        self._inserting.join()
        return {"done": self._done}


@contextmanager
def _connected(follower: str) -> Generator[Any]:
    with herdpy.connect(follower, autocommit=True) as connection:
        yield connection


def _see(copy: Any, position: str, key: int, table: str = "written") -> None:
    """Wait until a copy has what is at a position, and read it."""
    copy.wait_for(position, timeout=120.0)
    row = copy.execute(f"SELECT id FROM {table} WHERE id = ?", (key,)).fetchone()
    assert row == (key,), f"the follower shows {row} at {position}"


def _answer(taken_s: list[float], seconds: float) -> dict[str, Any]:
    return {"seconds": seconds, "taken_us": [round(each * 1e6) for each in taken_s]}


if __name__ == "__main__":
    answer_lines(Client(new_side(sys.argv[1], sys.argv[2]), int(sys.argv[3])))
