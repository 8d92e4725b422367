"""The ways to end a statement, each of which returns when it must end."""

from collections.abc import Callable
from typing import Any, NamedTuple

import herdpy
from tests.fixtures.servers import RunningServer


class Ended(NamedTuple):
    phase: str
    way: str
    took_ms: float
    how: str


def _cancel(_server: RunningServer, connection: herdpy.Connection) -> None:
    connection.cancel()


def _kill(server: RunningServer, _connection: herdpy.Connection) -> None:
    with herdpy.connect(server.url, autocommit=True) as other:
        for number, text in other.execute("SELECT id, text FROM sysstatements").fetchall():
            if "sysstatements" not in text:
                try:
                    other.execute(f"KILL STATEMENT {number}")
                except herdpy.ProgrammingError as error:
                    if error.sqlstate != "42704":  # it has ended since it was listed
                        raise


def _close(server: RunningServer, connection: herdpy.Connection) -> None:
    session: Any = connection
    session = session._session
    getattr(session, "_session", session)._stream._socket.shutdown(2)


WAYS: dict[str, Callable[[RunningServer, herdpy.Connection], None]] = {
    "cancel": _cancel, "KILL": _kill, "closed socket": _close,
}  # fmt: skip
