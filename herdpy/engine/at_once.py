"""Writes in a thread that must not wait, up to their COMMIT in the log: for a server's loop.

A worker for each statement costs two changes of thread, more than the statement itself. What
writes one row by its key, was planned before and finds its locks free, needs no wait but that for
the disk, and that is a Ticket.
"""

from typing import NamedTuple

from bookie.runtime.ticket import Ticket
from herdpy.engine.transactions import Transaction
from herdpy.sql.plan import DeletePlan, InsertPlan, Plan, PointAccess, RowFind, UpdatePlan


class Begun(NamedTuple):
    """A write that is logged; `outcome` is its commit's, None if it has none to wait for."""

    row_count: int
    transaction: Transaction
    outcome: Ticket[None] | None


class WouldWaitError(Exception):
    """It needs a wait, and has had no effect. Never leaves the engine."""


def is_short(plan: Plan) -> bool:
    """Return whether it writes one row at the most, found by its key."""
    if isinstance(plan, InsertPlan):
        rows = plan.statement.rows
        return plan.source is None and rows is not None and len(rows) == 1
    if isinstance(plan, UpdatePlan | DeletePlan):
        return isinstance(plan.find, RowFind) and isinstance(plan.find.access, PointAccess)
    return False
