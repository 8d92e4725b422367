"""Writes in a thread that must not wait, up to their COMMIT in the log: for a server's loop.

A worker for each statement costs two changes of thread, more than the statement itself. What
writes one row by its key, was planned before and finds its locks free, needs no wait but that for
the disk, and that is a Ticket.
"""

from itertools import islice
from typing import NamedTuple

from bookie.runtime.ticket import Ticket
from herdpy.engine.state.transactions import Transaction
from herdpy.exec.row.row_check import checks_by_query
from herdpy.model.types import NUMERIC_KINDS
from herdpy.sql.plan import DeletePlan, InsertPlan, Plan, PointAccess, RowFind, UpdatePlan
from herdpy.sql.tree import Call, Cast, ColumnRef, Expression, Literal, Parameter, walk


class PendingWrite(NamedTuple):
    """A write that is logged; `outcome` is its commit's, None if it has none to wait for."""

    row_count: int
    transaction: Transaction
    outcome: Ticket[None] | None
    last_row_id: int | None
    """Of the row that it inserts, what a sequence has filled."""


_CHEAP_CALLS = frozenset({"+", "-", "*"})
_CHEAP_KINDS = frozenset(NUMERIC_KINDS)
_PARTS_MAX = 800
"""Of a statement's expressions, about four for each column."""


def is_short(plan: Plan) -> bool:
    """Return whether it writes one row at the most, found by its key, and computes next to nothing.

    It cannot be cancelled, and all sessions wait for it: a function of text may take long.
    """
    if isinstance(plan, InsertPlan):
        rows = plan.statement.rows
        is_one_row = plan.source is None and rows is not None and len(rows) == 1
        if plan.update is not None and plan.update.query is not None:
            return False
    elif isinstance(plan, UpdatePlan | DeletePlan):
        find = plan.find
        if not isinstance(find, RowFind) or find.residual is not None:
            return False
        is_one_row = isinstance(find.access, PointAccess)
    else:
        return False
    if plan.returning is not None:  # what it gives is more than a count
        return False
    table = plan.statement.table if isinstance(plan, InsertPlan) else plan.ref.table
    if checks_by_query(table):
        return False
    parts = list(islice(walk(plan), _PARTS_MAX + 1))
    return is_one_row and len(parts) <= _PARTS_MAX and all(map(_is_cheap, parts))


def _is_cheap(expression: Expression) -> bool:
    """Return whether it is a value, or a sum or product of two numbers, cast or not."""
    if isinstance(expression, Cast) and isinstance(expression.operand, Call):
        return expression.type.kind in _CHEAP_KINDS
    if isinstance(expression, Call):
        if expression.function not in _CHEAP_CALLS or expression.type.kind not in _CHEAP_KINDS:
            return False
        return all(map(_is_value, expression.arguments))
    return _is_value(expression)


def _is_value(expression: Expression) -> bool:
    if isinstance(expression, Cast):
        kinds = {expression.type.kind, expression.operand.type.kind}
        if len(kinds) > 1 and not kinds <= _CHEAP_KINDS:
            return False
        expression = expression.operand
    return isinstance(expression, Parameter | Literal | ColumnRef)
