"""Aggregates, FILTER, and window functions with OVER, PARTITION BY, ORDER BY, frames, WINDOW."""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from herdpy.errors import Error
from herdpy.limits import decimal_precision_max
from herdpy.model.types import BIGINT, DOUBLE, INTEGER, REAL, TEXT, Kind, decimal_type
from herdpy.sql import tree
from herdpy.sql.bind_expression import (
    bind_condition,
    bind_expression,
    bind_open,
    convert,
    sort_keys,
    unify,
)
from herdpy.sql.bind_function import bind_function, is_known, unknown_function
from herdpy.sql.conversions import quotient_scale
from herdpy.sql.functions import AGGREGATES, GROUPING, RANKINGS, ROW_VALUES
from herdpy.sql.reading import syntax
from herdpy.sql.scope import Scope

_INSIDE = "the argument of another"
_GROUPING_MAX = 31  # bits of an integer, as in PostgreSQL
_Over = tuple[tuple[tree.Expression, ...], tuple[tree.SortKey, ...], str | None]
"""Partition, order and frame of a window."""


def bind_call(node: syntax.Call, scope: Scope) -> tree.Expression:
    """Bind a call of any kind: of an aggregate, a window function, or another."""
    if node.over is not None:
        return _bind_window(node, node.over, scope)
    if node.name == GROUPING:
        return _bind_grouping(node, scope)
    if node.name in AGGREGATES:
        bound = _bind_aggregate(node, scope)
        if node.filter is None:
            return bound
        condition = _filter(node.filter, scope)

        def filtered(found: tree.Aggregate) -> tree.Expression:
            _check_own((*found.arguments, condition), found.function, node, scope)
            return replace(found, filter=condition)

        return _on_aggregate(bound, filtered)
    if node.name in RANKINGS or node.name in ROW_VALUES:
        raise scope.error("42809", "a window function needs OVER", node)
    if node.filter is not None:
        raise scope.error("42809", "FILTER follows aggregates only", node)
    return bind_function(node, scope)


def _bind_grouping(node: syntax.Call, scope: Scope) -> tree.Expression:
    """Bind GROUPING(key, …), a bit for each key that the row's set lacks."""
    if scope.clause is not None:
        raise scope.error("42803", f"grouping operations are not allowed in {scope.clause}", node)
    if not 1 <= len(node.arguments) <= _GROUPING_MAX or node.is_star or node.is_distinct:
        message = f"GROUPING must have 1 to {_GROUPING_MAX} arguments"
        raise scope.error("54023", message, node)
    scope.has_aggregates = True
    scope.clause, clause = _INSIDE, scope.clause
    parts = tuple(bind_expression(item, scope) for item in node.arguments)
    scope.clause = clause
    return tree.Aggregate(INTEGER, GROUPING, parts)


def _bind_aggregate(node: syntax.Call, scope: Scope) -> tree.Expression:
    name = AGGREGATES[node.name]
    if scope.clause is not None:
        if scope.outer is not None:
            _aggregate(node, scope, _INSIDE)  # refuses one of an outer query, which says why
        raise _not_allowed(name, scope.clause, node, scope)
    scope.has_aggregates = True
    return _aggregate(node, scope, _INSIDE)


def _aggregate(node: syntax.Call, scope: Scope, inside: str | None) -> tree.Expression:
    """Bind an aggregate's call; `inside` is the clause of its arguments, None allows more."""
    context, name = scope.context, AGGREGATES[node.name]
    if node.is_star:
        if name != "count":
            raise context.error("42883", f"function {name}(*) does not exist", node)
        return tree.Aggregate(BIGINT, "count", ())
    if len(node.arguments) != (2 if name == "string_agg" else 1):
        if node.is_distinct and len(node.arguments) > 1:
            raise context.error("0A000", f"{name}(DISTINCT) takes one argument", node)
        raise unknown_function(name, node, scope)
    clause, windows = scope.clause, scope.allows_windows
    scope.clause, scope.allows_windows = inside, False
    argument = bind_open(node.arguments[0], scope)
    if name != "string_agg":
        argument = context.settle(argument)
    more = tuple(bind_open(item, scope) for item in node.arguments[1:])
    order = sort_keys(node.order, partial(bind_expression, scope=scope))
    scope.clause, scope.allows_windows = clause, windows
    _check_own((argument, *more), name, node, scope)
    return _typed_aggregate(name, (argument, *more), node.is_distinct, order, node, scope)


def _check_own(
    parts: tuple[tree.Expression, ...], name: str, node: syntax.Call, scope: Scope
) -> None:
    """Refuse an aggregate that is of an outer query: over columns of it, and none of its own."""
    refs = {part.relation for part in tree.walk(parts) if isinstance(part, tree.ColumnRef)}
    owner: Scope | None = scope
    while owner is not None and refs.isdisjoint(named.id for named in owner.relations):
        owner = owner.outer
    if owner is None or owner is scope:
        return
    if owner.clause is not None:
        raise _not_allowed(name, owner.clause, node, scope)
    raise scope.error(
        "0A000",
        f"{name} over columns of an outer query alone is an aggregate of that query, which is not "
        "supported inside a subquery",
        node,
        "Compute it in FROM, and name it there: … FROM (SELECT k, max(x) AS m FROM t GROUP BY k) "
        "AS q WHERE EXISTS (SELECT 1 FROM u WHERE u.v = q.m)",
    )


def _not_allowed(name: str, clause: str, node: syntax.Call, scope: Scope) -> Error:
    return scope.error("42803", f"aggregate {name} is not allowed in {clause}", node)


def _typed_aggregate(
    name: str,
    arguments: tuple[tree.Expression, ...],
    is_distinct: bool,
    order: tuple[tree.SortKey, ...],
    node: syntax.Call,
    scope: Scope,
) -> tree.Expression:
    argument, kind = arguments[0], arguments[0].type
    wrong = unknown_function(name, node, scope, str(kind).lower())
    if name == "string_agg":
        if not {part.type.kind for part in arguments} <= {Kind.TEXT, Kind.UNKNOWN}:
            raise wrong
        text, separator = (convert(part, TEXT, node, scope) for part in arguments)
        if not isinstance(separator, (tree.Literal, tree.Parameter)):
            raise scope.error("0A000", "string_agg: the separator must be constant", node)
        if is_distinct and any(key.expression != text for key in order):
            raise scope.error("42P10", "string_agg(DISTINCT): ORDER BY must be the argument", node)
        return tree.Aggregate(TEXT, name, (text, separator), is_distinct, None, order)
    is_total, scale = name in ("sum", "avg"), kind.scale or 0  # order has no effect from here on
    if name == "count":
        result = BIGINT
    elif name in ("bool_and", "bool_or"):
        if kind.kind is not Kind.BOOLEAN:
            raise wrong
        result = kind
    elif name in ("min", "max"):
        if kind.kind is Kind.BOOLEAN:
            raise wrong
        result = TEXT if kind.kind is Kind.TEXT else kind
    elif not (kind.is_numeric or (is_total and kind.kind is Kind.INTERVAL)):
        raise wrong
    elif not is_total:
        arguments, result = (convert(argument, DOUBLE, node, scope),), DOUBLE
    elif kind.kind is Kind.REAL:  # they are added up as DOUBLEs
        parts = (convert(argument, DOUBLE, node, scope),)
        total = tree.Aggregate(DOUBLE, name, parts, is_distinct)
        return tree.Cast(REAL, total) if name == "sum" else total
    elif kind.kind in (Kind.DOUBLE, Kind.INTERVAL):
        result = kind
    elif name == "avg":
        result = decimal_type(decimal_precision_max, quotient_scale(scale, 0))
    elif kind.kind is Kind.DECIMAL:
        result = decimal_type(decimal_precision_max, scale)
    else:  # DuckDB sums integers in 128 bits; the cast makes it a BIGINT, or 22003.
        return tree.Cast(BIGINT, tree.Aggregate(BIGINT, name, arguments, is_distinct))
    return tree.Aggregate(result, name, arguments, is_distinct)


def _filter(node: syntax.Node, scope: Scope) -> tree.Expression:
    outer, windows = scope.clause, scope.allows_windows
    scope.clause, scope.allows_windows = "FILTER", False
    condition = bind_condition(node, scope, "argument of FILTER")
    scope.clause, scope.allows_windows = outer, windows
    return condition


def _on_aggregate(
    bound: tree.Expression, change: Callable[[tree.Aggregate], tree.Expression]
) -> tree.Expression:
    """Return what _aggregate() gave with its aggregate, behind a cast or not, changed."""
    if isinstance(bound, tree.Cast):
        return replace(bound, operand=_on_aggregate(bound.operand, change))
    if not isinstance(bound, tree.Aggregate):
        raise TypeError(f"no aggregate: {bound!r}")
    return change(bound)


# --- windows -------------------------------------------------------------------------------------


def _bind_window(node: syntax.Call, over: syntax.Window, scope: Scope) -> tree.Expression:
    if not scope.allows_windows:
        raise scope.error(
            "42803" if scope.clause == _INSIDE else "42P20",
            "window functions are not allowed here, only in SELECT and ORDER BY",
            node,
        )
    scope.allows_windows = False
    parts = _window_parts(over, scope)
    condition = None if node.filter is None else _filter(node.filter, scope)
    result = _window_call(node, parts, condition, scope)
    scope.allows_windows = True
    return result


def _window_call(
    node: syntax.Call, over: _Over, condition: tree.Expression | None, scope: Scope
) -> tree.Expression:
    context, name = scope.context, node.name
    partition, order, frame = over
    if name in AGGREGATES:
        if node.is_distinct or node.order:
            raise context.error("0A000", "DISTINCT or ORDER BY in a window aggregate", node)
        # The arguments may hold aggregates of the grouped query.
        bound = _aggregate(node, scope, scope.clause)
        return _on_aggregate(
            bound, lambda a: tree.Window(a.type, a.function, a.arguments, *over, condition)
        )
    if condition is not None:
        raise context.error("0A000", "FILTER is for aggregates only", node)
    least, most = (0, 0) if name in RANKINGS else ROW_VALUES.get(name, (0, 0))
    if name not in RANKINGS and not most:
        if not is_known(name):
            raise unknown_function(name, node, scope)
        raise context.error("42809", f"{name} is no window function", node)
    if not least <= len(node.arguments) <= most or node.is_star or node.is_distinct or node.order:
        raise unknown_function(name, node, scope)
    if name in RANKINGS:
        return tree.Window(RANKINGS[name], name, (), partition, order, None)
    first, *others = node.arguments
    if name == "ntile":
        count = convert(bind_open(first, scope), BIGINT, node, scope)
        call = tree.Window(BIGINT, name, (count,), partition, order, None)
        return tree.Cast(INTEGER, call)
    parts = [bind_open(first, scope)]
    if len(others) > 1:
        parts = unify([parts[0], bind_open(others[1], scope)], node, scope, name)
    shown = context.settle(parts[0])
    arguments = [shown]
    if others:
        offset = bind_open(others[0], scope)
        if not (offset.type.is_integer or offset.type.kind is Kind.UNKNOWN):
            raise unknown_function(name, node, scope, str(offset.type).lower())
        arguments.append(convert(offset, BIGINT, node, scope))
    arguments += parts[1:]
    return tree.Window(
        shown.type,
        name,
        tuple(arguments),
        partition,
        order,
        None if name in ("lag", "lead") else frame,
    )


def _window_parts(node: syntax.Window, scope: Scope) -> _Over:
    """Return what there is of OVER (…), OVER name, or a WINDOW item."""
    partition: tuple[tree.Expression, ...] = ()
    order: tuple[tree.SortKey, ...] = ()
    frame: str | None = None
    if node.base is not None:
        found = scope.windows.get(node.base)
        if found is None:
            raise scope.error("42704", f'window "{node.base}" does not exist', node)
        partition, order, frame = _window_parts(found, scope)
        if node.partition:
            raise scope.error("42P20", "a named window cannot be partitioned anew", node)
        if order and node.order:
            raise scope.error("42P20", "a named window cannot be ordered anew", node)
    if node.partition:
        partition = tuple(bind_expression(item, scope) for item in node.partition)
    if node.order:
        order = sort_keys(node.order, partial(bind_expression, scope=scope))
    if node.frame is not None:
        frame = _frame(node.frame, order, scope)
    return partition, order, frame


def _frame(node: syntax.Frame, order: tuple[tree.SortKey, ...], scope: Scope) -> str:
    context, kind = scope.context, node.kind
    if kind == "GROUPS":
        raise context.error("0A000", "GROUPS frames are not supported", node)
    start, start_rank = _bound(node.first, node, order, scope)
    if node.last is None:
        end, end_rank = "CURRENT ROW", 0
    else:
        end, end_rank = _bound(node.last, node, order, scope)
    if start_rank == 2 or end_rank == -2 or start_rank > end_rank:
        raise context.error("42P20", f"a frame cannot reach from {start} to {end}".lower(), node)
    return f"{kind} BETWEEN {start} AND {end}"


def _bound(
    bound_node: tuple[syntax.Node | str, str],
    node: syntax.Frame,
    order: tuple[tree.SortKey, ...],
    scope: Scope,
) -> tuple[str, int]:
    """Return a frame bound's text, and -2 … 2 from unbounded preceding to unbounded following."""
    value, side = bound_node
    direction = -1 if side == "PRECEDING" else 1
    if isinstance(value, str):
        return (value, 0) if value == "CURRENT ROW" else (f"UNBOUNDED {side}", 2 * direction)
    bound = bind_open(value, Scope(scope.context, clause="a frame"))
    if not isinstance(bound, tree.Literal) or bound.value is None:
        raise scope.error("0A000", "offsets of frames must be constants", node)
    if node.kind == "ROWS":
        if not isinstance(bound.value, int) or not bound.type.is_integer:
            raise scope.error("42804", "offsets of ROWS must be whole numbers", node)
        text = str(bound.value)
    else:
        if len(order) != 1:
            raise scope.error(
                "42P20", "RANGE with an offset needs exactly one ORDER BY column", node
            )
        key = order[0].expression.type
        if not key.is_integer or not bound.type.is_integer or not isinstance(bound.value, int):
            raise scope.error(
                "0A000", "RANGE with an offset is for ORDER BY of whole numbers only", node
            )
        text = str(bound.value)
    if text.startswith("-"):
        raise scope.error("22013", "a frame's offset must not be negative", node)
    return f"{text} {side}", direction
