"""RetryingStaging: staging that outlives connections: every call of it may be repeated.

Implements interfaces.StagingPort over RetryingSession. Any thread; one request at a time.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from herdpy.driver.interfaces import StagingPort
from herdpy.model.schema import Table

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class RetryingStaging:
    """See the module."""

    def __init__(self, run: Callable[[Callable[[StagingPort], object]], object]) -> None:
        """run(body) calls body with the staging of a connection, again if that is lost."""
        self._repeat = run

    def begin(
        self,
        table: str,
        operation: str,
        job: str,
        key_columns: Sequence[str] | None = None,
        run: str | None = None,
    ) -> Table:
        """Begin a run of a job."""
        return self._run(lambda port: port.begin(table, operation, job, key_columns, run))

    def begin_stage(
        self, job: str, task: str, attempt: str, run: str | None = None
    ) -> tuple[int, Table]:
        """Begin what an attempt of a task stages."""
        return self._run(lambda port: port.begin_stage(job, task, attempt, run))

    def add(self, stage: int, first_row: int, batch: "pa.RecordBatch") -> int:
        """Stage rows behind `first_row` others; return how many the stage has then."""
        return self._run(lambda port: port.add(stage, first_row, batch))

    def finish_stage(self, stage: int, row_count: int) -> int:
        """Make a stage of so many rows whole and durable; return how many it has."""
        return self._run(lambda port: port.finish_stage(stage, row_count))

    def drop_stage(self, stage: int) -> None:
        """Give a stage up."""
        self._run(lambda port: port.drop_stage(stage))

    def commit(self, job: str, stages: Sequence[int]) -> str:
        """Commit a job; return the position."""
        return self._run(lambda port: port.commit(job, stages))

    def abort(self, job: str, run: str | None = None) -> None:
        """Give a run up, or the whole job."""
        self._run(lambda port: port.abort(job, run))

    def position(self, job: str) -> str | None:
        """Return the position of a job's commit; None: it has not committed."""
        return self._run(lambda port: port.position(job))

    def _run(self, body: Callable[[StagingPort], T]) -> T:
        found: list[T] = []
        self._repeat(lambda port: found.append(body(port)))
        return found[-1]
