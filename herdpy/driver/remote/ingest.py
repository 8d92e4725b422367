"""RemoteIngest: batches on their way to a server, a few of them under way at a time."""

from collections import deque
from typing import TYPE_CHECKING

from herdpy.errors import Error, ProtocolError, loading
from herdpy.features import received_table
from herdpy.model.schema import Table
from herdpy.proto import messages

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.driver.remote.session import RemoteSession

_UNDER_WAY_MAX = 3
"""Batches sent and not answered: the server converts one while the next ones travel."""


class RemoteIngest:
    """Implements interfaces.IngestTarget. One thread at a time."""

    def __init__(self, session: "RemoteSession", table: str, mode: str) -> None:
        self._session = session
        self._under_way: deque[int] = deque()
        target = session.ask(messages.BeginIngest, table, mode)
        if not isinstance(target, messages.IngestBegun):
            raise ProtocolError(f"expected IngestBegun, found {type(target).__name__}")
        self._number = target.ingest
        self._is_over = False
        self.table: Table = received_table(target.table)

    def add(self, batch: "pa.RecordBatch") -> None:
        """Send a batch; an error may be that of an earlier one."""
        with loading():
            from herdpy.exec.vector.arrow_input import batch_bytes

        while len(self._under_way) >= _UNDER_WAY_MAX:
            self._settle_one()
        data = batch_bytes(batch)
        self._under_way.append(self._session.start(messages.IngestRows, self._number, data))

    def finish(self) -> int:
        """Let the server write everything; return the number of rows."""
        while self._under_way:
            self._settle_one()
        done = self._session.ask(messages.FinishIngest, self._number, has_token=True)
        self._is_over = True
        if not isinstance(done, messages.Done):
            raise ProtocolError(f"expected Done, found {type(done).__name__}")
        return done.row_count

    def abort(self) -> None:
        """Give up what was sent; nothing to do behind finish(). Repeatable."""
        if self._is_over:
            return
        self._is_over = True
        try:
            self._session.give_up_ingest(list(self._under_way), self._number)
        except Error:
            pass  # the connection is gone, and with it the ingest
        self._under_way.clear()

    def _settle_one(self) -> None:
        self._session.finish(self._under_way.popleft())
