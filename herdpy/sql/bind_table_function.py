"""Functions that give rows: generate_series() and unnest(), and any other function in FROM, of one.

Each is bound as a query of its own, which may name columns of what stands before it in FROM.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from herdpy.model.types import BIGINT, INTEGER, INTERVAL, TIMESTAMP, TIMESTAMPTZ, Kind, SqlType
from herdpy.sql import conversions, tree
from herdpy.sql.bind_expression import bind_expression, bind_open, convert, met_by, unify
from herdpy.sql.bind_function import unknown_function
from herdpy.sql.functions import AGGREGATES, SETS
from herdpy.sql.reading import syntax
from herdpy.sql.scope import Scope

_ORDINALITY = "ordinality"
_NO_SETS = (syntax.Query, syntax.Case)
_CHOOSING = frozenset(("coalesce", "greatest", "least", "nullif"))


def bind_table_function(
    node: syntax.Call, name: str, scope: Scope, *, has_ordinality: bool
) -> tree.Query:
    """Return the rows of a call in FROM; a function that gives one value calls its column `name`.

    The scope has what the arguments may name.
    """
    if node.name in AGGREGATES:
        message = "aggregate functions are not allowed in functions in FROM"
        raise scope.error("42803", message, node)
    scope.clause = "functions in FROM"
    if node.name == "generate_series":
        return _series(node, name, scope, has_ordinality=has_ordinality)
    if node.name == "unnest":
        return _unnested(node, name, scope, has_ordinality=has_ordinality)
    outputs = [tree.Output(name, bind_expression(node, scope))]
    if has_ordinality:
        outputs.append(tree.Output(_ORDINALITY, tree.Literal(BIGINT, 1)))
    columns = tuple((output.name, output.expression.type) for output in outputs)
    return tree.Query(tree.Select(tuple(outputs), None), columns)


def calls_of_sets(nodes: Sequence[syntax.Output]) -> list[syntax.Call]:
    """Return the calls in a select list that give rows, where they may stand."""
    return [call for output in nodes for call in _sets_in(output)]


def _sets_in(node: syntax.Node) -> Iterator[syntax.Call]:
    pending: list[Any] = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, syntax.Call) and item.name in SETS:
            yield item
        elif isinstance(item, syntax.Call) and (item.name in _CHOOSING or item.name in AGGREGATES):
            continue
        elif isinstance(item, syntax.Node) and not isinstance(item, _NO_SETS):
            pending += msgspec.structs.astuple(item)
        elif isinstance(item, (list, tuple)):
            pending += item


def _series(node: syntax.Call, name: str, scope: Scope, *, has_ordinality: bool) -> tree.Query:
    parts = [bind_open(item, scope) for item in node.arguments]
    types = ", ".join(str(part.type).lower() for part in parts)
    if not 2 <= len(parts) <= 3 or node.is_star or node.is_distinct or node.order:
        raise unknown_function(node.name, node, scope, types)
    if len(parts) == 2:
        parts.append(tree.Literal(INTEGER, 1))
    kinds = {part.type.kind for part in parts[: len(node.arguments)]} - {Kind.UNKNOWN}
    if kinds <= {Kind.SMALLINT}:
        message = f"function generate_series({types}) is not unique"
        raise scope.error("42725", message, node, "CAST an argument: generate_series(1::int, …).")
    moment = _moment(parts)
    if moment is not None:
        targets: list[SqlType] = [moment, moment, INTERVAL]
    elif Kind.DECIMAL in kinds:
        targets = [_decimal(parts, scope)] * 3
    else:
        targets = [BIGINT if Kind.BIGINT in kinds else INTEGER] * 3
    allowed = (
        all(
            part.type.is_integer or part.type.kind in (Kind.DECIMAL, Kind.UNKNOWN) for part in parts
        )
        if moment is None
        else len(node.arguments) == 3
    )
    if not allowed:
        raise unknown_function(node.name, node, scope, types)
    start, stop, step = (
        scope.settle(convert(part, target, node, scope))
        for part, target in zip(parts, targets, strict=True)
    )
    columns = ((name, start.type), *(((_ORDINALITY, BIGINT),) if has_ordinality else ()))
    return tree.Query(tree.Series(start, stop, step, has_ordinality), columns)


def _moment(parts: Sequence[tree.Expression]) -> SqlType | None:
    """Return of which type a series of moments is, as PostgreSQL chooses; None: of numbers."""
    start, stop, step = parts
    kinds = {start.type.kind, stop.type.kind}
    if step.type.kind not in (Kind.INTERVAL, Kind.UNKNOWN) or not any(
        part.type.is_moment for part in (start, stop)
    ):
        return None
    if not all(part.type.is_moment or part.type.kind is Kind.UNKNOWN for part in (start, stop)):
        return None
    is_plain = Kind.TIMESTAMP in kinds and Kind.TIMESTAMPTZ not in kinds
    return TIMESTAMP if is_plain else TIMESTAMPTZ


def _decimal(parts: Sequence[tree.Expression], scope: Scope) -> SqlType:
    """Return the DECIMAL that holds all of them, of whatever digits."""
    found: SqlType | None = None
    for part in parts:
        if part.type.is_numeric and not part.type.is_float:
            own = conversions.as_decimal(part.type)
            found = own if found is None else conversions.common_type(found, own) or found
    assert found is not None
    for part in parts:
        found = met_by(found, part, scope.context)
    return found


def _unnested(node: syntax.Call, name: str, scope: Scope, *, has_ordinality: bool) -> tree.Query:
    """Bind unnest(ARRAY[…], …), whose items are known, as VALUES."""
    arrays: list[list[tree.Expression]] = []
    for item in node.arguments:
        while isinstance(item, syntax.Paren):
            item = item.operand
        if not isinstance(item, syntax.Array):
            raise scope.error(
                "0A000", "unnest of what is no array constructor", node, "Write unnest(ARRAY[…])."
            )
        if not item.items:
            raise scope.error("42P18", "cannot determine type of empty array", item)
        parts = [bind_open(part, scope) for part in item.items]
        arrays.append(unify(parts, node, scope, "ARRAY"))
    if not arrays or node.is_star or node.is_distinct or node.order:
        raise unknown_function(node.name, node, scope)
    types = [array[0].type for array in arrays]
    rows: list[tuple[tree.Expression, ...]] = []
    for number, row in enumerate(zip_longest(*arrays), 1):
        rest = (tree.Literal(BIGINT, number),) if has_ordinality else ()
        shown = (
            tree.Literal(kind, None) if part is None else part
            for part, kind in zip(row, types, strict=True)
        )
        rows.append((*shown, *rest))
    names = [name if len(arrays) == 1 else node.name] * len(arrays)
    columns = tuple(zip(names, types, strict=True))
    if has_ordinality:
        columns = (*columns, (_ORDINALITY, BIGINT))
    shown_names = tuple(f"column{number}" for number in range(1, len(columns) + 1))
    return tree.Query(tree.Values(tuple(rows), shown_names), columns)
