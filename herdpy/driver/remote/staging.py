"""RemoteStaging: what sessions stage for one commit, on a server; each call a request.

Implements interfaces.StagingPort. Any thread; one request at a time.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from herdpy.errors import ProtocolError, loading
from herdpy.model.schema import Table, table_from_plain
from herdpy.proto import messages

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.driver.remote.session import RemoteSession

T = TypeVar("T")


class RemoteStaging:
    """See the module."""

    def __init__(self, session: "RemoteSession") -> None:
        self._session = session

    def begin(
        self,
        table: str,
        operation: str,
        job: str,
        key_columns: Sequence[str] | None = None,
        run: str | None = None,
    ) -> Table:
        """Begin a run of a job."""
        keys = None if key_columns is None else list(key_columns)
        answer = self._ask(
            messages.StagingBegun,
            lambda request: messages.BeginStaging(request, table, operation, job, keys, run),
        )
        return _table(answer.table)

    def begin_stage(
        self, job: str, task: str, attempt: str, run: str | None = None
    ) -> tuple[int, Table]:
        """Begin what an attempt of a task stages."""
        answer = self._ask(
            messages.StageBegun,
            lambda request: messages.BeginStage(request, job, task, attempt, run),
        )
        return answer.stage, _table(answer.table)

    def add(self, stage: int, first_row: int, batch: "pa.RecordBatch") -> int:
        """Stage rows behind `first_row` others; return how many the stage has then."""
        with loading():
            from herdpy.exec.vector.arrow_input import batch_bytes

        data = batch_bytes(batch)
        answer = self._ask(
            messages.Done, lambda request: messages.StageRows(request, stage, first_row, data)
        )
        return answer.row_count

    def finish_stage(self, stage: int, row_count: int) -> int:
        """Make a stage of so many rows whole and durable; return how many it has."""
        answer = self._ask(
            messages.Done,
            lambda request: messages.EndStage(request, stage, row_count=row_count),
        )
        return answer.row_count

    def drop_stage(self, stage: int) -> None:
        """Give a stage up."""
        self._ask(messages.Done, lambda request: messages.EndStage(request, stage, is_dropped=True))

    def commit(self, job: str, stages: Sequence[int]) -> str:
        """Commit a job; return the position."""
        position = self._settle(job, "commit", list(stages))
        if position is None:
            raise ProtocolError("a commit without position")
        return position

    def abort(self, job: str, run: str | None = None) -> None:
        """Give a run up, or the whole job."""
        self._settle(job, "abort", [], run)

    def position(self, job: str) -> str | None:
        """Return the position of a job's commit; None: it has not committed."""
        return self._settle(job, "position", [])

    def _settle(
        self, job: str, action: str, stages: list[int], run: str | None = None
    ) -> str | None:
        answer = self._ask(
            messages.StagingSettled,
            lambda request: messages.SettleStaging(request, job, action, stages, run),
        )
        return answer.position

    def _ask(self, expected: type[T], make: Any) -> T:
        answer = self._session.ask(make)
        if not isinstance(answer, expected):
            raise ProtocolError(f"expected {expected.__name__}, found {type(answer).__name__}")
        return answer


def _table(plain: list[Any]) -> Table:
    try:
        return table_from_plain(plain)
    except ValueError as error:
        raise ProtocolError(f"a malformed table: {error}") from None
