"""Ingests: the open ingests of one connection. On a worker, one request at a time."""

from typing import TYPE_CHECKING

from herdpy.engine.statements.lock_wait import MustWaitError
from herdpy.errors import OperationalError, ProgrammingError
from herdpy.model.schema import table_to_plain
from herdpy.proto.messages import BeginIngest, FinishIngest, IngestBegun, IngestRows

if TYPE_CHECKING:
    from herdpy.engine.session.ingest import Ingest
    from herdpy.engine.session.session import Session

INGESTS_MAX = 4
"""Open ingests of one connection; each keeps its rows in memory."""


class Ingests:
    """An error of any step ends the ingest."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._open: dict[int, Ingest] = {}
        self._last = 0

    def begin(self, message: BeginIngest) -> IngestBegun:
        if len(self._open) >= INGESTS_MAX:
            raise OperationalError(
                f"{INGESTS_MAX} ingests of this connection are open",
                sqlstate="53400",
                hint="finish them first",
            )
        ingest = self._session.begin_ingest(message.table, message.mode)
        self._last += 1
        self._open[self._last] = ingest
        return IngestBegun(message.request, self._last, table_to_plain(ingest.table))

    def add(self, message: IngestRows) -> None:
        from herdpy.exec.vector.untrusted_arrow import batches_of

        ingest = self._get(message.ingest)
        try:
            for batch in batches_of(message.data):
                ingest.add(batch)
        except BaseException:
            self.drop(message.ingest)
            raise

    def finish(self, message: FinishIngest) -> int:
        """Write the rows; return how many. MustWaitError: call again."""
        try:
            count = self._get(message.ingest).finish()
        except MustWaitError:
            raise
        except BaseException:
            self._open.pop(message.ingest, None)
            raise
        self._open.pop(message.ingest, None)
        return count

    def drop(self, number: int) -> None:
        """Give up an ingest and its rows; nothing to do for another number."""
        ingest = self._open.pop(number, None)
        if ingest is not None:
            ingest.abort()

    def close(self) -> None:
        for number in list(self._open):
            self.drop(number)

    def _get(self, number: int) -> "Ingest":
        ingest = self._open.get(number)
        if ingest is None:
            raise ProgrammingError(
                "there is no such open ingest: it has ended, or an error has ended it",
                sqlstate="24000",
            )
        return ingest
