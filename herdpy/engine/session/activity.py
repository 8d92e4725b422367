"""Activity: who is connected, what runs, and how to stop it by number.

The rows of sysclients and sysstatements, and KILL. Sessions are listed without any lock: what
begins or ends meanwhile is shown or not. Any thread.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from herdpy.engine.state.transaction_snapshot import TransactionSnapshot
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.errors import Error, OperationalError, ProgrammingError, Retry
from herdpy.model.access import User
from herdpy.model.printable import masked
from herdpy.model.types import Row

if TYPE_CHECKING:
    from bookie.runtime.interfaces import Clock
    from herdpy.engine.session.session import Session

_TEXT_LENGTH_MAX = 2_000  # characters of a statement that are shown
_SECRET = re.compile(r"\bpassword\b", re.IGNORECASE)
_OF_ROLES = re.compile(r"\b(?:create|alter)\b[^'$\"]*?\b(?:user|role)\b", re.IGNORECASE)
_LITERAL = re.compile(r"['$\"]")
_KNOWN_OF_ROLE = re.compile(
    r"""\b(?:create|alter)(?:\s|/\*(?:[^*]|\*(?!/))*\*/|--[^\n]*\n)+(?:user|role)\b
    (?:\s+if\s+not\s+exists\b)?(?:\s+\w+)?
    (?:\s+(?:with|password|login|nologin|superuser|nosuperuser|createrole|nocreaterole)\b)*""",
    re.IGNORECASE | re.VERBOSE,
)
"""What is no secret of such a statement. No two alternatives match the same, so it is fast."""


class Client(NamedTuple):
    """Where a session comes from."""

    protocol: str = "local"
    address: str = ""
    on_kill: Callable[[Error], object] | None = None
    """Ends the connection soon, in any thread; None: there is only the session."""


class Running(NamedTuple):
    """The statement that a session is at."""

    id: int
    text: str
    begun_s: float
    """By Clock.monotonic()."""
    interrupt: StatementInterrupt


def shown_text(text: str) -> str:
    """Return a statement as lists and logs may show it: cut, and without what follows PASSWORD.

    What makes or changes roles is shown up to its first quote, or the first word that is not known:
    PASSWORD may be misspelled in it, and its quotes be missing.
    """
    if len(text) > _TEXT_LENGTH_MAX:  # first: a client does not choose what lists and logs cost
        text = f"{text[: _TEXT_LENGTH_MAX - 1]}…"
    text = masked(text, kept="\n\t")
    ends = [found.end() for found in [_SECRET.search(text)] if found is not None]
    of_roles = _OF_ROLES.search(text)
    if of_roles is not None:
        quote = _LITERAL.search(text, of_roles.end())
        ends += [quote.start()] if quote is not None else []
    known = _KNOWN_OF_ROLE.search(text)
    if known is not None and text[known.end() :].strip(" \t\r\n;"):
        ends.append(known.end())
    return f"{text[: min(ends)].rstrip()} ***" if ends else text


def client_rows(sessions: Iterable["Session"]) -> Iterator[Row]:
    for session in sessions:
        client = session.client
        yield (
            session.id,
            client.protocol,
            client.address,
            session.application_name,
            session.connected_us,
            session.in_transaction,
            session.user,
            session.database.name,
            _snapshot_us(session),
        )


def _snapshot_us(session: "Session") -> int | None:
    """Return since when its transaction has kept a snapshot; None: it keeps none."""
    transaction = session.transaction
    reads_at = None if transaction is None else transaction.reads_at
    return reads_at.taken_us if isinstance(reads_at, TransactionSnapshot) else None


def statement_rows(sessions: Iterable["Session"], clock: "Clock") -> Iterator[Row]:
    now_s, now_us = clock.monotonic(), clock.wall_us()
    for session in sessions:
        running = session.running
        if running is not None:
            running_s = max(0.0, now_s - running.begun_s)
            started_us = now_us - int(running_s * 1e6)
            text, tablespace = shown_text(running.text), session.database.name
            yield running.id, session.id, started_us, running_s, text, tablespace


def kill_statement(sessions: Iterable["Session"], number: int) -> None:
    """Cancel the statement of that number, and no other; 42704 when it does not run."""
    for session in sessions:
        running = session.running
        if running is not None and running.id == number:
            running.interrupt.cancel("KILL STATEMENT")
            return
    raise _unknown("statement", number, "sysstatements")


def kill_session(sessions: Iterable["Session"], number: int, own: int) -> None:
    """End the session of that number, which rolls back; 42704 when there is none."""
    if number == own:
        raise ProgrammingError(
            f"KILL CONNECTION {number}: this is the connection itself",
            sqlstate="22023",
            hint="close() it.",
        )
    for session in sessions:
        if session.id == number:
            session.kill(killed_error())
            return
    raise _unknown("connection", number, "sysclients")


def killed_error() -> OperationalError:
    """Return what a session says that KILL has ended."""
    return OperationalError(
        "the connection was ended: KILL CONNECTION",
        sqlstate="57P01",
        retry=Retry.NEVER,  # by itself: an administrator ended it
        hint="Its transaction was rolled back; connect again.",
    )


def dropped_tablespace_error(name: str) -> OperationalError:
    """Return what a session says whose tablespace is dropped with its sessions."""
    return OperationalError(
        f'the connection was ended: tablespace "{name}" is being dropped',
        sqlstate="57P01",
        retry=Retry.NEVER,
        hint="An administrator has dropped it: DROP TABLESPACE … WITH (FORCE).",
    )


def end_lost_session(
    sessions: Iterable["Session"], token_session: str, own: int, user: User | None
) -> None:
    """End the user's session of these tokens, asked after by one that its client has since.

    The server may not have noticed the loss, and the locks would keep out what the client repeats.
    One that is idle outside a transaction holds none and goes on.
    """
    for session in sessions:
        is_it = (session.token_session, session.identity) == (token_session, user)
        is_it = is_it and session.id != own
        if is_it and (session.in_transaction or session.running is not None):
            session.kill(
                OperationalError(
                    "the connection was ended: its client has lost it, and asked in another one",
                    sqlstate="57P01",
                    retry=Retry.UNKNOWN,
                    hint="The other connection knows what became of a commit.",
                )
            )


def _unknown(what: str, number: int, table: str) -> ProgrammingError:
    return ProgrammingError(
        f"there is no {what} {number}", sqlstate="42704", hint=f"{table} lists them."
    )
