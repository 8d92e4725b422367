"""WITH RECURSIVE before it is bound: which items name which, and where one may name itself.

The rules, and their SQLSTATEs, are PostgreSQL's (parse_cte.c).
"""

from collections.abc import Callable, Iterator, Sequence, Set
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from herdpy.errors import Error
from herdpy.sql.reading import syntax

_OUTER = {"LEFT": ("right",), "RIGHT": ("left",), "FULL": ("left", "right")}
"""By kind of join the sides whose rows it may fill with NULLs."""


ErrorOf = Callable[..., Error]
"""StatementContext.error(), which gives the error of a SQLSTATE, a message, a node and a hint."""


class Reference(NamedTuple):
    """Where a query names an item; `within` is what it may not stand in, or None."""

    node: syntax.TableName
    within: str | None


def in_order(node: syntax.With, error: ErrorOf) -> list[syntax.WithItem]:
    """Return the items, each behind those that it names; 0A000 where two name each other."""
    items = {item.name: item for item in node.items}
    names = frozenset(items)
    needed = {
        name: {ref.node.name for ref in references(item.query, names)} - {name}
        for name, item in items.items()
    }
    try:
        return [items[name] for name in TopologicalSorter(needed).static_order()]
    except CycleError as cycle:
        message = "mutual recursion between WITH items is not supported"
        raise error("0A000", message, items[cycle.args[1][0]]) from cycle


def references(query: syntax.Node, names: Set[str]) -> Iterator[Reference]:
    """Yield where a query names items that no WITH in it hides."""
    pending: list[tuple[Any, str | None, frozenset[str]]] = [(query, None, frozenset(names))]
    while pending:
        node, within, known = pending.pop()
        if isinstance(node, (list, tuple)):
            pending += ((part, within, known) for part in node)  # pyright: ignore[reportUnknownVariableType]
        elif isinstance(node, syntax.TableName):
            if node.name in known:
                yield Reference(node, within)
        elif isinstance(node, syntax.Node):
            if isinstance(node, syntax.Query) and node.with_ is not None:
                known -= {item.name for item in node.with_.items}
            pending += ((part, place, known) for part, place in _parts(node, within))


def _parts(node: syntax.Node, within: str | None) -> Iterator[tuple[Any, str | None]]:
    """Yield the parts of a node, and what each stands in."""
    names = type(node).__struct_fields__
    if isinstance(node, syntax.SetOperation):
        left, right = within, within
        if node.operator == "EXCEPT":
            left, right = "EXCEPT" if node.is_all else within, "EXCEPT"
        elif node.operator == "INTERSECT" and node.is_all:
            left = right = "INTERSECT"
        sides = {"left": left, "right": right}
        yield from ((getattr(node, name), sides.get(name, within)) for name in names)
        return
    is_query_in_query = isinstance(
        node, syntax.Derived | syntax.WithItem | syntax.With | syntax.Subquery
    )
    filled = _OUTER.get(node.kind, ()) if isinstance(node, syntax.Join) else ()
    for name in names:
        part = getattr(node, name)
        place = within
        if name in filled:
            place = "an outer join"
        elif isinstance(part, syntax.Query) and not is_query_in_query:
            place = "a subquery"
        elif isinstance(part, (list, tuple)) and not isinstance(node, syntax.With):
            parts: Sequence[Any] = part  # pyright: ignore[reportUnknownVariableType]
            for item in parts:
                yield item, "a subquery" if isinstance(item, syntax.Query) else within
            continue
        yield part, place


def check_recursive(
    item: syntax.WithItem, query: syntax.Query, error: ErrorOf
) -> syntax.SetOperation:
    """Return the UNION that an item which names itself has to be (42P19)."""
    name = item.name
    if not isinstance(query, syntax.SetOperation) or query.operator != "UNION":
        raise _wrong(
            name, "does not have the form non-recursive-term UNION [ALL] recursive-term", item,
            error,
        )  # fmt: skip
    for clause, value in (
        ("ORDER BY", query.order), ("OFFSET", query.offset), ("LIMIT", query.limit),
    ):  # fmt: skip
        if value:
            message = f"{clause} in a recursive query is not supported"
            raise error("0A000", message, item, "Write it behind the WITH.")
    if any(references(query.left, {name})):
        raise _not_within(name, "its non-recursive term", item, error)
    found = list(references(query.right, {name}))
    for reference in found:
        if reference.within is not None:
            raise _not_within(name, reference.within, reference.node, error)
    if len(found) > 1:
        message = f'recursive reference to query "{name}" must not appear more than once'
        raise error("42P19", message, found[0].node)
    return query


def _wrong(name: str, what: str, node: syntax.Node, error: ErrorOf) -> Exception:
    return error("42P19", f'recursive query "{name}" {what}', node)


def _not_within(name: str, where: str, node: syntax.Node, error: ErrorOf) -> Exception:
    message = f'recursive reference to query "{name}" must not appear within {where}'
    return error("42P19", message, node)
