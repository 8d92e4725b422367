"""LockWait: what a statement waits for, and until when.

A statement is a plain function. Where another transaction has the lock it needs, or other results
all the places, it raises MustWaitError before it has had any effect; where the memtables have no
room, MemtableFullError. Its caller waits for the Ticket and runs it again from its beginning
(session/runner.py); the locks and the place in their queue are its transaction's and stay. Embedded
the caller's thread waits; a server waits without a thread.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bookie.runtime.ticket import Ticket
from herdpy.engine.state.memtable_room import WAIT_S_MAX, MemtableFullError
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.errors import Error, LockTimeoutError, MemoryLimitError


class MustWaitError(Exception):
    """The statement has had no effect. Seen outside the engine only with Session.leaves_waits."""

    def __init__(
        self,
        ticket: Ticket[None],
        timeout_s: float,
        late: Callable[[], Error] | None = None,
        what: str = "lock",
    ) -> None:
        """`ticket` is that of a place in a queue, by default a lock's, and timeout_s lock_timeout.

        0: no time-out. `late` makes the error of a wait that was too long.
        """
        super().__init__()
        self.ticket = ticket
        self.timeout_s = timeout_s
        self.late = late or partial(_lock_timeout_error, timeout_s)
        self.what = what
        """What is waited for, as syswaits says it."""


class LockWait(NamedTuple):
    """The wait ends when `ticket` or `stop` is done, or at the deadline (Clock.monotonic())."""

    ticket: Ticket[None]
    stop: Ticket[None]
    """Done when the statement is cancelled."""
    deadline: float | None
    late: Callable[[], Error]
    """Makes the error of a wait that came to its deadline."""
    what: str
    since_s: float

    def check(self, interrupt: StatementInterrupt) -> None:
        """Raise why the statement must not be run again: a time-out, or it was cancelled."""
        if self.ticket.is_done:
            self.ticket.result()
        interrupt.check()
        if not self.ticket.is_done:
            raise self.late()


def lock_wait_of(must_wait: MustWaitError, interrupt: StatementInterrupt, now_s: float) -> LockWait:
    timeout_s = must_wait.timeout_s
    deadline = _earlier(now_s + timeout_s if timeout_s else None, interrupt.deadline)
    return LockWait(
        must_wait.ticket, interrupt.stop, deadline, must_wait.late, must_wait.what, now_s
    )


def room_wait_of(
    full: MemtableFullError, interrupt: StatementInterrupt, until_s: float, now_s: float
) -> LockWait:
    """Return the wait for room in memory, until a moment at the latest."""
    deadline = _earlier(until_s, interrupt.deadline)
    return LockWait(full.ticket, interrupt.stop, deadline, _no_room_error, "memory", now_s)


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _lock_timeout_error(timeout_s: float) -> Error:
    return LockTimeoutError(
        f"a lock was not granted within lock_timeout ({timeout_s:g} s)",
        hint="Another transaction holds the row or table; try again when it has ended.",
    )


def _no_room_error() -> Error:
    return MemoryLimitError(
        "changes come faster than checkpoints write them to the disk: there was no room in memory "
        f"for these within {WAIT_S_MAX:g} s; the statement had no effect",
        hint="Run it again, or give the database more memory_bytes_max or a faster disk.",
    )
