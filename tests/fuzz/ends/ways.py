"""The ways to end a statement of a server, each of which returns when it must end."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import herdpy


class Ended(NamedTuple):
    phase: str
    way: str
    took_ms: float
    how: str


def _cancel(_url: str, connection: herdpy.Connection) -> float:
    asked_s = time.monotonic()
    connection.cancel()
    return asked_s


def _kill(url: str, _connection: herdpy.Connection) -> float:
    """End it as an administrator does, who has logged in and looked: that has a bar of its own."""
    with herdpy.connect(url, autocommit=True) as other:
        found = other.execute("SELECT id, text FROM sysstatements").fetchall()
        asked_s = time.monotonic()
        for number, text in found:
            if "sysstatements" not in text:
                try:
                    other.execute(f"KILL STATEMENT {number}")
                except herdpy.ProgrammingError as error:
                    if error.sqlstate != "42704":  # it has ended since it was listed
                        raise
    return asked_s


def _close(_url: str, connection: herdpy.Connection) -> float:
    session: Any = connection
    session = session._session
    asked_s = time.monotonic()
    getattr(session, "_session", session)._stream._socket.shutdown(2)
    return asked_s


WAYS: dict[str, Callable[[str, herdpy.Connection], float]] = {
    "cancel": _cancel, "KILL": _kill, "closed socket": _close,
}  # fmt: skip
