"""What the rounds share: a server, a Spark application, two tables, and what must be true of them.

`source` has ROWS rows, which change while jobs read them; `target` is filled by jobs. Jobs run in
the application, this side sees how far they are by the server's system tables and by files.
"""

import json
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import herdpy
from tests.crash.kill import BrokenPromiseError
from tests.fixtures.line_process import LineProcess
from tests.spark_faults.cluster import Process, environment, executors, family, wait_until
from tests.spark_faults.serving import Serving

ROWS = 200_000
PARTS = 8
BATCHES = 100
"""About so many a job has."""
LEASE_S = 600
DEAD_LEASE_S = 60
"""Of jobs whose driver is killed; long enough for a crowded machine, soon over at the end."""
_START_S = 400.0
_JOB_S = 400.0
_OLD_ROWS = 1_000
_SHIFT = 10_000_000


class Missed(Exception):  # noqa: N818 - no error: the round is played again
    """The job was over before its moment came."""


class JobError(Exception):
    """What Spark said of a job that failed."""


class Application:
    """A Spark driver with its executors, in processes of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        program = [sys.executable, "-m", "tests.spark_faults.application", url]
        folder.mkdir()
        self._folder = folder
        self._process = LineProcess(program, environment(folder))
        self._jvm = 0
        self.is_busy = False

    def await_start(self) -> None:
        self._jvm = self._process.until("jvm", _START_S)

    def order(self, **job: Any) -> None:
        self._process.tell(json.dumps(job))
        self.is_busy = True

    def is_over(self) -> bool:
        """Tell whether what was ordered is."""
        return self._process.has_more()

    def answer(self) -> list[Any]:
        """Wait for the end of what was ordered; JobError: it failed."""
        line = self._process.next(_JOB_S)
        self.is_busy = False
        if line is None or "found" not in line:
            raise JobError((line or {}).get("error", "no answer"))
        return line["found"]

    def do(self, name: str) -> list[Any]:
        self.order(do=name)
        return self.answer()

    def said(self) -> list[str]:
        """Return the last lines of Spark's log."""
        return self._process.errors[-40:]

    def executors(self) -> list[Process]:
        return executors(self._jvm)

    def kill(self) -> None:
        """Kill the Spark driver, JVM and program, at once; wait until its executors have ended."""
        heads = [item for item in self._family() if item.pid in (self._jvm, self._process.pid)]
        for process in heads:
            process.tell(signal.SIGSTOP)  # so that it starts nothing that is not seen below
        everyone = self._family()
        for process in heads:
            process.tell(signal.SIGKILL)
        self._await_end(everyone)

    def stop(self) -> None:
        """End everything of it."""
        everyone = self._family()
        for process in everyone:
            process.tell(signal.SIGKILL)
        self._await_end(everyone)

    def _family(self) -> list[Process]:
        return family(self._process.pid)

    def _await_end(self, everyone: list[Process]) -> None:
        try:
            wait_until(lambda: not any(item.is_there() for item in everyone), "their end")
        finally:
            for process in everyone:
                process.tell(signal.SIGKILL)
            self._process.close()
        # What came too late to be seen above may be writing its last.
        shutil.rmtree(self._folder, ignore_errors=True)


class World:
    """See the module. `rng` is the round's."""

    def __init__(self, folder: Path, server: Serving) -> None:
        self.server = server
        self.rng = random.Random(0)
        self._folder = folder
        self._numbers = iter(range(10**9))
        self._old_leases: set[str] = set()
        self._old_jobs: set[str] = set()
        self.conn = herdpy.connect(server.url, autocommit=True)
        self.conn.execute("CREATE TABLE source (id BIGINT PRIMARY KEY, v BIGINT)")
        self.conn.execute("CREATE TABLE target (id BIGINT PRIMARY KEY, v BIGINT)")
        ids = range(ROWS)
        self.conn.ingest("source", pa.table({"id": ids, "v": [n * 7 % 1009 for n in ids]}))
        self._sum = sum(n * 7 % 1009 for n in ids)
        self._application: Application | None = None
        self._round = folder

    @property
    def application(self) -> Application:
        if self._application is None:
            made = Application(self._folder / f"spark-{next(self._numbers)}", self.server.url)
            self._application = made
            made.await_start()
        return self._application

    def state(self) -> str:
        """Return what there is to see of a round that failed."""
        found = [f"{self.batches()} batches read"]
        for name in ("sysleases", "sysstagings", "sysclients"):
            found += [name, *map(str, self.conn.execute(f"SELECT * FROM {name}").fetchall())]
        if self._application is not None:
            found += ["Spark says", *self._application.said()]
        return "\n".join(found)

    def close(self) -> None:
        if self._application is not None:
            self._application.stop()
        self.conn.close()

    # What jobs do.

    def prepare(self, **more: Any) -> dict[str, Any]:
        """Make a folder for a round, fill `target` anew; return what every job is told."""
        self._round = self._folder / f"round-{next(self._numbers)}"
        self._round.mkdir()
        self.conn.execute("TRUNCATE target")
        old = range(_OLD_ROWS)
        self.conn.ingest("target", pa.table({"id": old, "v": [1] * _OLD_ROWS}))
        self._expected_sum = self._sum
        told = {"folder": str(self._round), "shift": _SHIFT, "parts": PARTS, "stalled": -1}
        return {**told, "after": 0, "lease_s": LEASE_S, **more}

    def read_job(self) -> dict[str, Any]:
        return self.prepare(do="read")

    def write_job(self, **more: Any) -> dict[str, Any]:
        """Append or overwrite by a job of a name of its own."""
        mode = self.rng.choice(("append", "append", "overwrite"))
        job = f"job {next(self._numbers)}"
        return self.prepare(do="write", mode=mode, options={"jobId": job}, **more)

    def file(self, name: str) -> Path:
        return self._round / name

    def batches(self) -> int:
        """Return how many batches tasks have read, all attempts together; 0 before the lease."""
        path = self.file("batches")
        return path.stat().st_size if path.exists() else 0

    def is_leased(self) -> bool:
        """Tell whether the job has its snapshot; from then on `source` may change."""
        return bool(self._leases() - self._old_leases)

    def staged(self, job: dict[str, Any]) -> tuple[int, int, int] | None:
        """Return how many stages there are, ended ones, and rows; None: no such job is open."""
        text = "SELECT stages, finished_stages, row_count FROM sysstagings WHERE job = ?"
        found = self.conn.execute(text, (job["options"]["jobId"],)).fetchone()
        return None if found is None else (found[0], found[1], found[2])

    def position(self, job: dict[str, Any]) -> str | None:
        return self.conn.commit_position(job["options"]["jobId"])

    def finish(self) -> None:
        """End a round whose job was over too soon."""
        if self.application.is_busy:
            self.application.answer()
        self.check_nothing_left()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for an event of the job that runs; Missed: the job is over."""
        wait_until(lambda: self.application.is_over() or condition(), what)
        if self.application.is_over():
            raise Missed

    def change_source(self) -> None:
        """Change what the job that has its lease must not see."""
        number = self.rng.randrange(1000)
        self.conn.execute("UPDATE source SET v = v + 1 WHERE id % 1000 = ?", (number,))
        self._sum += ROWS // 1000

    # What is killed.

    def kill_executor(self) -> None:
        """Kill one of those that there are."""
        self.rng.choice(self.application.executors()).tell(signal.SIGKILL)

    def kill_server(self) -> None:
        self.server.kill()

    def kill_application(self, job: dict[str, Any]) -> None:
        """Kill the Spark driver; what it holds may stay for its time.

        Behind this call nothing of it runs any more, on the server neither.
        """
        self.application.kill()
        self._application = None
        text = "SELECT count(*) FROM sysclients"
        wait_until(lambda: self.conn.execute(text).fetchone() == (1,), "its connections are gone")
        self._old_leases |= self._leases()
        self._old_jobs.add(job["options"]["jobId"])

    def play_again(self, job: dict[str, Any]) -> None:
        """Run a dead driver's job by another one, as its user would; nothing of it is left."""
        self._expected_sum = self._sum
        self.application.order(**{**job, "lease_s": LEASE_S})
        self.application.answer()
        self._old_jobs.discard(job["options"]["jobId"])

    # What must be true.

    def check_committed(self, job: dict[str, Any], position: str | None) -> None:
        """A job's position stays, and the client that runs it again is told."""
        self._check("position", self.position(job), position)
        self.application.order(**job)
        try:
            self.application.answer()
        except JobError as error:
            if f"has committed at {position}" in str(error):
                return
            raise
        raise BrokenPromiseError(f"{job['options']} committed twice")

    def check_read(self, found: list[Any]) -> None:
        ids = sum(range(ROWS)) + ROWS * _SHIFT
        self._check("what Spark read", found, [ROWS, ids, self._expected_sum])

    def check_target(self, mode: str | None) -> None:
        """Compare `target` with what a job of a mode has left; None: no job has committed."""
        old = range(_OLD_ROWS) if mode in (None, "append") else range(0)
        expected = [len(old), sum(old), len(old)]
        if mode is not None:
            added = (ROWS, sum(range(ROWS)) + ROWS * _SHIFT, self._expected_sum)
            expected = [one + other for one, other in zip(expected, added, strict=True)]
        found = self.conn.execute("SELECT count(*), sum(id), sum(v) FROM target").fetchone()
        self._check("target", list(found or ()), expected)

    def check_nothing_left(self) -> None:
        """After release() neither lease nor staging is there, but for those of dead drivers."""
        self.application.do("release")
        wait_until(lambda: not self._leases() - self._old_leases, "no lease")
        wait_until(lambda: not self._jobs() - self._old_jobs, "no staging")
        self.application.do("settle")
        shutil.rmtree(self._round, ignore_errors=True)  # a task that was given up may write there

    def check_nothing_left_at_all(self) -> None:
        """What dead drivers held has ended by itself."""
        wait_until(lambda: not self._leases(), "no lease of a dead driver")
        wait_until(lambda: not self._jobs(), "no staging of a dead driver")

    def _leases(self) -> set[str]:
        return {row[0] for row in self.conn.execute("SELECT lease FROM sysleases").fetchall()}

    def _jobs(self) -> set[str]:
        return {row[0] for row in self.conn.execute("SELECT job FROM sysstagings").fetchall()}

    def _check(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise BrokenPromiseError(f"{what}: expected {expected}, found {found}")
