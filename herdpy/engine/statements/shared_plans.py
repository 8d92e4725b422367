"""Texts that differ in their literals alone share a plan: that of the text with placeholders.

A literal means what a parameter does where it is stored in a column, or compared with one, whose
type takes parameters of that class as it takes such literals. Where one stands elsewhere, or its
value is not one of the column's, the text is planned as it stands; so errors are about that text.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from herdpy.engine.statements.plan_cache import Prepared
from herdpy.model.types import INTEGER_KINDS, Kind
from herdpy.sql import tree
from herdpy.sql.plan import Compiled
from herdpy.sql.planner import column_test, conjuncts
from herdpy.sql.reading.literals import Split, split_literals

_REALS: Final = (Kind.DECIMAL, Kind.REAL, Kind.DOUBLE)
_TARGETS: Final[dict[type, frozenset[Kind]]] = {
    int: frozenset((*INTEGER_KINDS, *_REALS)),
    Decimal: frozenset(_REALS),
    str: frozenset(Kind),
}
"""By the class of a parameter: the types that take it as they take the literal."""


class SharedPlans:
    """Which texts with placeholders stand for texts with literals. Any thread."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._is_tried: dict[str, bool] = {}
        """By text with placeholders; those that came once have True."""

    def find(self, text: str, *, is_first_noted: bool = True) -> Split | None:
        """Return a statement with its literals apart, if one like it came before.

        None, too, where one has been found to mean something else so.
        """
        split = split_literals(text)
        if split is None:
            return None
        is_tried = self._is_tried.get(split.text)
        if is_tried is None and is_first_noted and self._entries_max:
            if len(self._is_tried) >= self._entries_max:
                self._is_tried.clear()
            self._is_tried[split.text] = True
        return split if is_tried else None

    def give_up(self, split: Split) -> None:
        """Note that statements like this one are planned as they stand."""
        self._is_tried[split.text] = False


def is_shared(prepared: Prepared, values: Sequence[object]) -> bool:
    """Tell whether a plan's parameters, of the classes of `values`, mean what literals do."""
    return prepared.once(_is_shared, prepared.compiled, values)


def _is_shared(compiled: Compiled, values: Sequence[object]) -> bool:
    found = {
        parameter.index
        for parameter in _stored_or_compared(compiled.statement)
        if isinstance(parameter, tree.Parameter)
    }
    slots = compiled.slots
    sources = [slot.source for slot in slots]
    return (
        found == set(range(len(values)))
        and sources == list(range(len(values)))
        and all(
            slot.type.kind in _TARGETS[value.__class__]
            for slot, value in zip(slots, values, strict=True)
        )
    )


def _stored_or_compared(statement: tree.Statement) -> Iterator[tree.Expression]:
    """Yield what a statement stores in columns of its table as it is, or compares with them."""
    relation: tree.Relation | None = None
    where: tree.Expression | None = None
    match statement:
        case tree.Insert(rows=rows) if rows is not None:
            for row in rows:
                yield from row
        case tree.Update():
            yield from (value for _, value in statement.assignments)
            relation, where = statement.target, statement.where
        case tree.Delete():
            relation, where = statement.target, statement.where
        case tree.SelectStatement(query=tree.Query(body=tree.Select(source=source) as select)):
            relation, where = source, select.where
        case _:
            pass
    if isinstance(relation, tree.TableRef):
        for part in conjuncts(where):
            test = column_test(part, relation.id)
            if test is not None:
                yield test[2]
