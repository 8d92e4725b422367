"""LockWait: what a statement waits for, and until when.

A statement is a plain function. Where another transaction has the lock it needs, it raises
MustWaitError before it has had any effect. Its caller waits for the Ticket and runs it again from
its beginning (session/runner.py); the locks and the place in the queue are its transaction's and
stay. Embedded the caller's thread waits; a server waits without a thread.
"""

from typing import NamedTuple

from bookie.runtime.ticket import Ticket
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.errors import LockTimeoutError


class MustWaitError(Exception):
    """The statement has had no effect. Seen outside the engine only with Session.leaves_waits."""

    def __init__(self, ticket: Ticket[None], timeout_s: float) -> None:
        """`ticket` is that of a place in a lock's queue; timeout_s is lock_timeout, 0: none."""
        super().__init__()
        self.ticket = ticket
        self.timeout_s = timeout_s


class LockWait(NamedTuple):
    """The wait ends when `ticket` or `stop` is done, or at the deadline (Clock.monotonic())."""

    ticket: Ticket[None]
    stop: Ticket[None]
    """Done when the statement is cancelled."""
    deadline: float | None
    timeout_s: float
    """lock_timeout, for the message."""

    def check(self, interrupt: StatementInterrupt) -> None:
        """Raise why the statement must not be run again: a time-out, or it was cancelled."""
        if self.ticket.is_done:
            self.ticket.result()
        interrupt.check()
        if not self.ticket.is_done:
            raise LockTimeoutError(
                f"a lock was not granted within lock_timeout ({self.timeout_s:g} s)",
                hint="Another transaction holds the row or table, or keeps leases waiting while it "
                "commits staged rows; try again when it has ended.",
            )


def lock_wait_of(must_wait: MustWaitError, interrupt: StatementInterrupt, now_s: float) -> LockWait:
    timeout_s = must_wait.timeout_s
    moments = [now_s + timeout_s] if timeout_s else []
    if interrupt.deadline is not None:
        moments.append(interrupt.deadline)
    return LockWait(must_wait.ticket, interrupt.stop, min(moments, default=None), timeout_s)
