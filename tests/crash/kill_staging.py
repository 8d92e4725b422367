"""`python -m tests.crash.kill_staging --rounds 10 [--seed N]`: SIGKILL of a server under stagings.

Each job appends its rows by three tasks, each task a thread with a connection of its own; a task
runs twice now and then, and again when the server lost what it staged. The server is killed at a
random moment and started again on the same directory and port, while the job goes on. Whatever
happens, each job's rows are there once, its position stays the same, and nothing stays staged.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import pyarrow as pa
from rich.console import Console
from rich.progress import track

import herdpy
from herdpy.driver.staging import StageToken
from herdpy.errors import Retry
from tests.crash.kill import BrokenPromiseError
from tests.crash.kill_server import start
from tests.fixtures.ports import own_port

_TASKS = 3
_PATIENCE_S = 120.0
_SIZES = (10, 3_000, 40_000)
T = TypeVar("T")


def data(job: int, task: int, size: int) -> pa.Table:
    """Return a task's rows; their keys lie between those of the other tasks."""
    first = job * 1_000_000
    ids = [first + index * _TASKS + task for index in range(size)]
    return pa.table({"id": ids, "job": [job] * size})


def insist(body: Callable[[], T]) -> T:
    """Call until it succeeds; only errors that say so are repeated."""
    end_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return body()
        except herdpy.OperationalError as error:
            if error.retry is not Retry.SAFE or time.monotonic() > end_s:
                raise


class Job:
    """One job."""

    def __init__(self, url: str, number: int, size: int = 10, attempts: int = 2) -> None:
        """`attempts` of each task stage `size` rows, side by side; one of them counts."""
        self.name = f"job {number}"
        self.size = size
        self._url = url
        self._number = number
        self._attempts = attempts
        self._tokens: dict[int, StageToken] = {}
        self._errors: list[BaseException] = []
        self.position = ""

    def run(self) -> None:
        """Stage by all tasks at once, then commit."""
        try:
            # The kill may come before the login is over.
            with closing(insist(lambda: herdpy.connect(self._url, autocommit=True))) as conn:
                insist(lambda: conn.begin_staging("facts", job=self.name))
                threads = [
                    threading.Thread(target=self._task, args=(task, attempt))
                    for task in range(_TASKS)
                    for attempt in range(self._attempts)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                if not self._errors:
                    tokens = list(self._tokens.values())
                    self.position = insist(lambda: conn.commit_staging(self.name, tokens))
        except BaseException as error:
            self._errors.append(error)

    def _task(self, task: int, attempt: int) -> None:
        def stage() -> StageToken:
            with closing(herdpy.connect(self._url)) as conn:
                stage = conn.stage(self.name, task, attempt)
                stage.add(data(self._number, task, self.size))
                return stage.finish()

        try:
            self._tokens[task] = insist(stage)
        except BaseException as error:
            self._errors.append(error)

    def raise_errors(self) -> None:
        """Raise what a thread of the job raised."""
        if self._errors:
            raise self._errors[0]


def check(url: str, jobs: list[Job]) -> None:
    """Raise unless every job's rows are there once and nothing is staged."""
    with closing(herdpy.connect(url, autocommit=True)) as conn:
        found = dict(conn.execute("SELECT job, count(*) FROM facts GROUP BY job").fetchall())
        expected = {number: _TASKS * job.size for number, job in enumerate(jobs)}
        if found != expected:
            raise BrokenPromiseError(f"rows by job: expected {expected}, found {found}")
        for job in jobs:
            if conn.commit_position(job.name) != job.position:
                raise BrokenPromiseError(f"{job.name} is not where it was committed")
        if left := conn.execute("SELECT job FROM sysstagings").fetchall():
            raise BrokenPromiseError(f"still staged: {left}")


def _kill(server: "subprocess.Popen[bytes]") -> None:
    server.kill()
    server.wait()
    if server.stdout is not None:
        server.stdout.close()


def run(rounds: int, seed: int) -> int:
    """Run rounds, each a job and a kill; return how many rows there are."""
    rng = random.Random(seed)
    directory, port = tempfile.mkdtemp(prefix="herdpy-kill-"), own_port()
    url = f"herd://127.0.0.1:{port}?retry_timeout_s={_PATIENCE_S:g}"
    server = start(directory, port)
    jobs: list[Job] = []
    try:
        with closing(herdpy.connect(url, autocommit=True)) as conn:
            conn.execute("CREATE TABLE facts (id BIGINT PRIMARY KEY, job BIGINT NOT NULL)")
        for number in track(range(rounds), console=Console(stderr=True), disable=rounds < 5):
            job = Job(url, number, rng.choice(_SIZES), rng.choice((1, 1, 2)))
            thread = threading.Thread(target=job.run)
            thread.start()
            time.sleep(rng.random() * rng.choice((0.05, 0.3)))
            _kill(server)
            server = start(directory, port)
            thread.join()
            job.raise_errors()
            jobs.append(job)
            check(url, jobs)
        return sum(_TASKS * job.size for job in jobs)
    finally:
        _kill(server)
        shutil.rmtree(directory)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments = parser.parse_args()
    console = Console()
    console.print(f"seed {arguments.seed}")
    count = run(arguments.rounds, arguments.seed)
    console.print(f"{arguments.rounds} jobs, as many kills: {count:,} rows, each once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
