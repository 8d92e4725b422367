"""Writes in a thread that must not wait, up to their COMMIT in the log: for a server's loop.

A worker for each statement costs two changes of thread, more than the statement itself. What
writes one row by its key, was planned before and finds its locks free, needs no wait but that for
the disk, and that is a Ticket.
"""

from collections.abc import Sequence
from typing import NamedTuple

from bookie.runtime.ticket import Ticket
from herdpy.engine.state.transactions import Transaction
from herdpy.model.types import Kind
from herdpy.sql.plan import DeletePlan, InsertPlan, Plan, PointAccess, RowFind, UpdatePlan
from herdpy.sql.tree import Call, Cast, ColumnRef, Expression, Literal, Parameter


class PendingWrite(NamedTuple):
    """A write that is logged; `outcome` is its commit's, None if it has none to wait for."""

    row_count: int
    transaction: Transaction
    outcome: Ticket[None] | None


_CHEAP_CALLS = frozenset({"+", "-", "*"})
_CHEAP_KINDS = frozenset({Kind.INTEGER, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL})
_PARTS_MAX = 200
"""Expressions of a statement, a column of its own each."""


def is_short(plan: Plan) -> bool:
    """Return whether it writes one row at the most, found by its key, and computes next to nothing.

    It cannot be cancelled, and all sessions wait for it: a function of text may take long.
    """
    if isinstance(plan, InsertPlan):
        rows = plan.statement.rows
        return plan.source is None and rows is not None and len(rows) == 1 and _are_cheap(rows[0])
    if isinstance(plan, UpdatePlan | DeletePlan):
        find = plan.find
        if not isinstance(find, RowFind) or not isinstance(find.access, PointAccess):
            return False
        new = [value for _, value in plan.assignments] if isinstance(plan, UpdatePlan) else []
        return find.residual is None and _are_cheap([*find.access.key, *new])
    return False


def _are_cheap(expressions: Sequence[Expression]) -> bool:
    return len(expressions) <= _PARTS_MAX and all(map(_is_cheap, expressions))


def _is_cheap(expression: Expression) -> bool:
    """Return whether it is a value, or a sum or product of two numbers, cast or not."""
    if isinstance(expression, Cast) and isinstance(expression.operand, Call):
        if expression.type.kind not in _CHEAP_KINDS:
            return False
        expression = expression.operand
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
