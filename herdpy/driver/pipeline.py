"""Pipeline: statements that go to the server together, in one transaction.

They run in order. Behind one that fails none runs until the next sync(), which raises the error;
so does the end of the block. The transaction is the open one, or, in autocommit, the pipeline's
own, which commits at the end of the block. One thread.
"""

from typing import TYPE_CHECKING, Any

from herdpy.driver.arguments import checked_text
from herdpy.driver.cursor import Cursor, Parameters, checked_parameters
from herdpy.errors import NotSupportedError

if TYPE_CHECKING:
    from herdpy.driver.connection import Connection

STATEMENTS_MAX = 500
"""That wait for a sync; one more is a sync. The server takes no more at once, either."""
_BYTES_MAX = 1024 * 1024


class Pipeline:
    """`with conn.pipeline() as pipe:`; do not use the connection otherwise in the block."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._waiting: list[tuple[str, Parameters | None, Cursor]] = []
        self._waiting_bytes = 0
        self._checked: set[str] = set()  # texts that may be in a pipeline
        self._is_own = False  # the transaction

    def execute(self, text: str, parameters: Parameters | None = None) -> Cursor:
        """Take a statement; return a cursor that has its result behind the next sync().

        SELECT, INSERT, UPSERT, UPDATE, DELETE and TRUNCATE; no statement about the transaction
        or the session (0A000).
        """
        checked_text("the statement", text)
        if text not in self._checked:
            _check(text)
            if len(self._checked) >= STATEMENTS_MAX:
                self._checked.clear()
            self._checked.add(text)
        if parameters is not None:
            parameters = checked_parameters(parameters)
        if self.is_full:
            self.sync()
        cursor = self._connection.cursor()
        self._waiting.append((text, parameters, cursor))
        self._waiting_bytes += len(text) + sum(map(_size, parameters or ()))
        return cursor

    @property
    def is_full(self) -> bool:
        """The next execute() waits for the server."""
        return len(self._waiting) >= STATEMENTS_MAX or self._waiting_bytes >= _BYTES_MAX

    def sync(self) -> None:
        """Run what waits and hand out the results; raise the error of the first that failed."""
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        if not waiting:
            return
        session = self._connection.live_session()
        if session.autocommit and not session.in_transaction:
            self._is_own = True  # also if an interrupt comes behind BEGIN
            session.begin()
        results, error = session.execute_all([(text, each) for text, each, _ in waiting])
        for (_, _, cursor), result in zip(waiting, results, strict=False):
            cursor.take(result)
        if error is not None:
            raise error

    def __enter__(self) -> "Pipeline":
        self._connection.live_session()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        session = self._connection.live_session()
        try:
            if kind is None:
                self.sync()
                if self._is_own:
                    session.commit()
        finally:
            self._waiting = []
            if self._is_own:
                self._is_own = False
                session.rollback()  # nothing to do when the commit settled it, either way


def _check(text: str) -> None:
    from herdpy.driver.remote.statement_kinds import is_about_rows

    if not is_about_rows(text):
        raise NotSupportedError(
            "pipeline: expected SELECT, INSERT, UPSERT, UPDATE, DELETE or TRUNCATE, found "
            f"{' '.join(text.split()[:2])!r}",
            hint="execute it on the connection, before or behind the block",
        )


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes)) else 8
