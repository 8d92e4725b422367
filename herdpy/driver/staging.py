"""Staging as a program sees it: rows from many processes, committed by one as one transaction.

A job is a name; its tasks stage rows over connections of their own, and what finish() returns
travels to the process that commits (it can be pickled). All calls may be repeated, also on another
connection and after a restart of the server. docs/guides/staging.md.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from herdpy.driver.interfaces import DriverSession, features
from herdpy.driver.types import Description
from herdpy.errors import loading


class StagingJob(str):
    """The name of a job, and which run of it this program has begun; can be pickled.

    Several programs may begin a job of one name. stage() and abort_staging() with this value are
    about its own run, with the plain name about the job.
    """

    __slots__ = ("description", "run")

    def __new__(cls, name: str, run: str, description: tuple[Description, ...]) -> "StagingJob":
        made = super().__new__(cls, name)
        made.run = run
        made.description = description
        return made

    run: str
    """An id that no other run has."""
    description: tuple[Description, ...]
    """The table's columns, as Cursor.description has those of a result."""

    def __reduce__(self) -> tuple[type["StagingJob"], tuple[Any, ...]]:
        return StagingJob, (str(self), self.run, self.description)


def settle(session: DriverSession, job: str, action: str, stages: Sequence[int] = ()) -> str | None:
    """Commit a job, give it up ("abort"), or ask for its "position"; return that of its commit."""
    run = run_of(job) if action == "abort" else None
    return session.perform(features().SETTLE_STAGING, str(job), action, list(stages), run)


def run_of(job: str) -> str | None:
    """Return the run that a program means by a job; None: the job itself."""
    return job.run if isinstance(job, StagingJob) else None


class StageToken(NamedTuple):
    """What one attempt of a task has staged, whole and durable."""

    job: str
    stage: int
    row_count: int


class Stage:
    """The rows of one attempt of a task. One thread at a time; a context manager that gives up.

    Made by Connection.stage().
    """

    def __init__(
        self, session: DriverSession, job: str, task: str, attempt: str, run: str | None
    ) -> None:
        self._session = session
        self.job = job
        self.row_count = 0
        """Rows staged so far."""
        begun = session.perform(features().BEGIN_STAGE, job, task, attempt, run)
        self._number, self._table = begun
        self._is_over = False

    def add(self, data: Any) -> int:
        """Stage rows, of all kinds that Connection.ingest() takes; return how many there are now.

        Rows that do not fit their columns are errors here; rows with a key that is there already,
        when the job commits.
        """
        with loading():
            from herdpy.exec.vector.arrow_input import input_batches

        for batch in input_batches(data, self._table):
            if batch.num_rows:
                self.row_count = self._session.perform(
                    features().STAGE_ROWS, self._number, self.row_count, (batch,)
                )
        return self.row_count

    def finish(self) -> StageToken:
        """Make the rows durable and return what commit_staging() takes.

        OperationalError 40001, SAFE: a crash of the server came before they all were durable.
        """
        count = self._end(is_dropped=False)
        self._is_over = True
        return StageToken(self.job, self._number, count)

    def abort(self) -> None:
        """Give the rows up; nothing to do behind finish(). Repeatable."""
        if not self._is_over:
            self._end(is_dropped=True)
            self._is_over = True

    def _end(self, *, is_dropped: bool) -> int:
        row_count = -1 if is_dropped else self.row_count
        return self._session.perform(features().END_STAGE, self._number, is_dropped, row_count)

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()
