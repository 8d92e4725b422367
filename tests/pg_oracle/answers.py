"""Answers of both servers in one form, whether two are the same, and what differs."""

import math
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from herdpy.model.types import Kind
from tests.pg_oracle.expressions import Node
from tests.pg_oracle.values import K

_DIGITS = 1e-12

Cell = str | None
Row = tuple[Cell, ...]


class Answer(NamedTuple):
    """What a statement gave: a SQLSTATE, or the kinds of its columns, its rows, their number."""

    sqlstate: str | None
    kinds: tuple[Kind | None, ...] = ()
    rows: tuple[Row, ...] = ()
    row_count: int = -1
    message: str = ""

    def __str__(self) -> str:
        if self.sqlstate is not None:
            return f"{self.sqlstate} {self.message}"
        names = ", ".join("?" if kind is None else kind.name for kind in self.kinds)
        return f"{names}: {list(self.rows)}" if self.kinds else f"{self.row_count} rows"

    def columns(self, *places: int) -> "Answer":
        """Return it with these columns of the rows alone."""
        rows = tuple(tuple(row[place] for place in places) for row in self.rows)
        return Answer(None, tuple(self.kinds[place] for place in places), rows, self.row_count)


class Difference(NamedTuple):
    """The smallest that differs: an expression whose parts do not, or a change of rows."""

    label: str
    """The rule of the expression; of a change its own."""
    node: Node
    statement: str
    ours: Answer
    theirs: Answer
    parts: tuple[Answer, ...] = ()
    """What the expression's parts, or those of the change, are alone: the same on both servers."""

    def __str__(self) -> str:
        return (
            f"{self.label}\n  {self.statement}\n  herdpy: {self.ours}\n  PostgreSQL: {self.theirs}"
        )


def is_same(ours: Answer, theirs: Answer, *, is_exact: bool = False) -> bool:
    """Tell whether both gave the same: values, their types, or an error of the same class.

    is_exact: numbers have the same text, too.
    """
    if ours.sqlstate is not None or theirs.sqlstate is not None:
        return (ours.sqlstate or "")[:2] == (theirs.sqlstate or "")[:2]
    if ours.kinds != theirs.kinds:
        return False
    if not ours.kinds and ours.row_count not in (-1, theirs.row_count):  # -1: of TRUNCATE, say
        return False
    if is_exact:
        return ours.rows == theirs.rows
    if len(ours.rows) != len(theirs.rows):
        return False
    return all(
        is_same_value(kind, left, right)
        for mine, yours in zip(ours.rows, theirs.rows, strict=True)
        for kind, left, right in zip(ours.kinds, mine, yours, strict=True)
    )


def is_same_value(kind: Kind | None, ours: Cell, theirs: Cell) -> bool:
    """Tell whether two texts are one value; DOUBLEs to 12 digits, as sums have an order."""
    if ours == theirs or ours is None or theirs is None:
        return ours == theirs
    if kind is K.DECIMAL:
        try:
            return Decimal(ours) == Decimal(theirs)
        except InvalidOperation:
            return False
    if kind is K.DOUBLE:
        try:
            left, right = float(ours), float(theirs)
        except ValueError:
            return False
        if left == right:
            return math.copysign(1, left) == math.copysign(1, right)
        return math.isclose(left, right, rel_tol=_DIGITS)
    return False
