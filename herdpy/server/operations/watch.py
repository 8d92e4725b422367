"""Watch: tells the server's log when the database stops, and when checkpoints fail or go on.

The engine tells the client of a statement, and no log: there may be none, at night, and the pages
of health.py are open to all, so that they do not repeat what a message may quote. On the loop.
"""

import asyncio
import logging

from herdpy.engine.database import Database
from herdpy.errors import Error

_log = logging.getLogger(__name__)

STEP_S = 1.0


class Watch:
    """Looks every STEP_S from start() to close()."""

    def __init__(self, loop: asyncio.AbstractEventLoop, database: Database) -> None:
        self._loop = loop
        self._database = database
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._failing: Error | None = None

    def start(self) -> None:
        """Begin to look; repeatable."""
        if self._timer is None:
            self._look()

    def close(self) -> None:
        """Look a last time; repeatable."""
        if self._timer is not None:
            self._look()
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(STEP_S, self._look)
        failure = stopped_by(self._database)
        if failure is not None and not self._is_stopped:
            self._is_stopped = True
            _log.error("the database stopped: %s", failure.message, extra=_fields(failure))
        failing, before = self._database.replica.checkpoint_error, self._failing
        self._failing = failing
        if failing is not None and (before is None or before.message != failing.message):
            _log.warning("checkpoints fail: %s", failing.message, extra=_fields(failing))
        elif failing is None and before is not None:
            _log.info("checkpoints succeed again")


def stopped_by(database: Database) -> Error | None:
    """Return why nothing can be written any more, None while all is well."""
    return database.tablespace.failure or database.tablespace.log.failure


def shown(error: Error | None) -> str | None:
    """Return what may be shown to all of an error: its kind, and where there is more."""
    if error is None:
        return None
    return f"{type(error).__name__} (SQLSTATE {error.sqlstate}); the server's log says more"


def _fields(error: Error) -> dict[str, object]:
    return {"fields": {"kind": type(error).__name__, "sqlstate": error.sqlstate}}
