"""Aggregates, FILTER, and window functions with OVER, PARTITION BY, ORDER BY, frames, WINDOW."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from herdpy.limits import decimal_precision_max
from herdpy.model.types import (
    BIGINT,
    DOUBLE,
    INTEGER,
    TEXT,
    Kind,
    SqlType,
    decimal_type,
)
from herdpy.sql import tree
from herdpy.sql.bind_expression import (
    bind_condition,
    bind_expression,
    bind_open,
    convert,
    unify,
)
from herdpy.sql.bind_function import unknown_function
from herdpy.sql.conversions import quotient_scale
from herdpy.sql.parse import fold_name
from herdpy.sql.scope import Scope

_AGGREGATES: dict[type[exp.Expr], str] = {
    exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max",
    exp.LogicalAnd: "bool_and", exp.LogicalOr: "bool_or", exp.GroupConcat: "string_agg",
    exp.Stddev: "stddev_samp", exp.StddevSamp: "stddev_samp", exp.StddevPop: "stddev_pop",
    exp.Variance: "var_samp", exp.VariancePop: "var_pop",
}  # fmt: skip
_INSIDE = "the argument of another"
_RANKS: dict[type[exp.Expr], tuple[str, SqlType]] = {
    exp.RowNumber: ("row_number", BIGINT), exp.Rank: ("rank", BIGINT),
    exp.DenseRank: ("dense_rank", BIGINT), exp.PercentRank: ("percent_rank", DOUBLE),
    exp.CumeDist: ("cume_dist", DOUBLE),
}  # fmt: skip
_VALUES: dict[type[exp.Expr], str] = {
    exp.Lag: "lag", exp.Lead: "lead", exp.FirstValue: "first_value", exp.LastValue: "last_value",
    exp.NthValue: "nth_value", exp.Ntile: "ntile",
}  # fmt: skip


def _bind_aggregate(node: Any, scope: Scope) -> tree.Expression:
    name = _AGGREGATES[type(node)]
    if scope.clause is not None:
        raise scope.context.error(
            "42803", f"aggregate {name} is not allowed in {scope.clause}", node
        )
    scope.has_aggregates = True
    return _aggregate(node, scope, _INSIDE)


def _aggregate(node: Any, scope: Scope, inside: str | None) -> tree.Expression:
    """Bind an aggregate's call; `inside` is the clause of its arguments, None allows more."""
    context, name = scope.context, _AGGREGATES[type(node)]
    context.only(node, ("this", "big_int", "separator", "expressions"), name)
    if node.args.get("expressions") or node.args.get("this") is None:
        raise unknown_function(name, node, scope)
    inner, is_distinct = node.this, False
    if isinstance(inner, exp.Star):
        if name != "count":
            raise context.error("42883", f"function {name}(*) does not exist", node)
        return tree.Aggregate(BIGINT, "count", ())
    items: Sequence[Any] = ()
    if isinstance(inner, exp.Order):
        items, inner = inner.expressions, inner.this
    if isinstance(inner, exp.Distinct):
        context.only(inner, ("expressions",), "DISTINCT")
        if len(inner.expressions) != 1:
            raise context.error("0A000", f"{name}(DISTINCT) takes one argument", node)
        inner, is_distinct = inner.expressions[0], True
        if isinstance(inner, exp.Order):
            items, inner = inner.expressions, inner.this
    clause, windows = scope.clause, scope.allows_windows
    scope.clause, scope.allows_windows = inside, False
    argument = bind_open(inner, scope)
    if name != "string_agg":
        argument = context.settle(argument)
    separator = node.args.get("separator")
    more = (bind_open(separator, scope),) if separator is not None else ()
    order = _sort_keys(items, scope)
    scope.clause, scope.allows_windows = clause, windows
    _check_own((argument, *more), name, node, scope)
    return _typed_aggregate(name, (argument, *more), is_distinct, order, node, scope)


def _check_own(parts: tuple[tree.Expression, ...], name: str, node: Any, scope: Scope) -> None:
    """Refuse aggregates over an outer query's columns alone: they would be that query's."""
    refs = {part.relation for part in tree.walk(parts) if isinstance(part, tree.ColumnRef)}
    around, outer = set[int](), scope.outer
    while outer is not None:
        around.update(named.id for named in outer.relations)
        outer = outer.outer
    if refs & around and refs.isdisjoint(named.id for named in scope.relations):
        raise scope.context.error("0A000", f"{name} over columns of an outer query", node)


def _typed_aggregate(
    name: str,
    arguments: tuple[tree.Expression, ...],
    is_distinct: bool,
    order: tuple[tree.SortKey, ...],
    node: Any,
    scope: Scope,
) -> tree.Expression:
    argument, kind = arguments[0], arguments[0].type
    wrong = unknown_function(name, node, scope, str(kind).lower())
    if name == "string_agg":
        if len(arguments) != 2:
            raise wrong
        if not {part.type.kind for part in arguments} <= {Kind.TEXT, Kind.UNKNOWN}:
            raise wrong
        text, separator = (convert(part, TEXT, node, scope) for part in arguments)
        if not isinstance(separator, (tree.Literal, tree.Parameter)):
            raise scope.context.error("0A000", "string_agg: the separator must be constant", node)
        if is_distinct and any(key.expression != text for key in order):
            raise scope.context.error(
                "42P10", "string_agg(DISTINCT): ORDER BY must be the argument", node
            )
        return tree.Aggregate(TEXT, name, (text, separator), is_distinct, None, order)
    if len(arguments) != 1:
        raise wrong
    if order:
        order = ()  # without effect on the result
    if name == "count":
        return tree.Aggregate(BIGINT, name, arguments, is_distinct)
    if name in ("bool_and", "bool_or"):
        if kind.kind is not Kind.BOOLEAN:
            raise wrong
        return tree.Aggregate(kind, name, arguments, is_distinct)
    if name in ("min", "max"):
        if kind.kind is Kind.BOOLEAN:
            raise wrong
        return tree.Aggregate(
            TEXT if kind.kind is Kind.TEXT else kind, name, arguments, is_distinct
        )
    is_total = name in ("sum", "avg")
    if not (kind.is_numeric or (is_total and kind.kind is Kind.INTERVAL)):
        raise wrong
    if not is_total:
        double = (convert(argument, DOUBLE, node, scope),)
        return tree.Aggregate(DOUBLE, name, double, is_distinct)
    if kind.kind in (Kind.DOUBLE, Kind.INTERVAL):
        return tree.Aggregate(kind, name, arguments, is_distinct)
    scale = kind.scale or 0
    if name == "avg":
        result = decimal_type(decimal_precision_max, quotient_scale(scale, 0))
        return tree.Aggregate(result, name, arguments, is_distinct)
    if kind.kind is Kind.DECIMAL:
        result = decimal_type(decimal_precision_max, scale)
        return tree.Aggregate(result, name, arguments, is_distinct)
    # DuckDB sums integers in 128 bits; the cast makes it a BIGINT, or 22003.
    return tree.Cast(BIGINT, tree.Aggregate(BIGINT, name, arguments, is_distinct))


def _bind_filter(node: Any, scope: Scope) -> tree.Expression:
    if type(node.this) not in _AGGREGATES:
        raise scope.context.error("42809", "FILTER follows aggregates only", node)
    bound = _bind_aggregate(node.this, scope)
    return _with_filter(bound, _filter(node, scope, "FILTER"))


def _filter(node: Any, scope: Scope, clause: str) -> tree.Expression:
    outer, windows = scope.clause, scope.allows_windows
    scope.clause, scope.allows_windows = clause, False
    condition = bind_condition(node.expression.this, scope, "argument of FILTER")
    scope.clause, scope.allows_windows = outer, windows
    return condition


def _with_filter(bound: tree.Expression, condition: tree.Expression | None) -> tree.Expression:
    if isinstance(bound, tree.Cast):
        return replace(bound, operand=_with_filter(bound.operand, condition))
    if not isinstance(bound, tree.Aggregate):
        raise TypeError(f"no aggregate: {bound!r}")
    return replace(bound, filter=condition)


# --- windows -------------------------------------------------------------------------------------


def _bind_window(node: Any, scope: Scope) -> tree.Expression:
    context = scope.context
    context.only(
        node, ("this", "partition_by", "order", "spec", "alias", "over"), "a window function"
    )
    if not scope.allows_windows:
        raise context.error(
            "42803" if scope.clause == _INSIDE else "42P20",
            "window functions are not allowed here, only in SELECT and ORDER BY",
            node,
        )
    scope.allows_windows = False
    partition, order, frame = _window_parts(node, scope)
    inner, condition = node.this, None
    if isinstance(inner, exp.IgnoreNulls):
        raise context.error("0A000", "IGNORE NULLS is not supported", node)
    if isinstance(inner, exp.RespectNulls):
        inner = inner.this
    if isinstance(inner, exp.Filter):
        condition = _filter(inner, scope, "FILTER")
        inner = inner.this
    result = _window_call(inner, partition, order, frame, condition, scope)
    scope.allows_windows = True
    return result


def _window_call(
    node: Any,
    partition: tuple[tree.Expression, ...],
    order: tuple[tree.SortKey, ...],
    frame: str | None,
    condition: tree.Expression | None,
    scope: Scope,
) -> tree.Expression:
    context, kind = scope.context, type(node)
    if kind in _AGGREGATES:
        if isinstance(node.this, (exp.Distinct, exp.Order)):
            raise context.error("0A000", "DISTINCT or ORDER BY in a window aggregate", node)
        # The arguments may hold aggregates of the grouped query.
        bound = _aggregate(node, scope, scope.clause)
        return _as_window(bound, partition, order, frame, condition)
    if condition is not None:
        raise context.error("0A000", "FILTER is for aggregates only", node)
    if kind in _RANKS:
        name, result = _RANKS[kind]
        context.only(node, (), f"{name}()")
        return tree.Window(result, name, (), partition, order, None)
    name = _VALUES.get(kind)
    if name is None:
        what = f"{context.called(node) or 'this expression'}"
        raise context.error("42809", f"{what} is no window function", node)
    context.only(node, ("this", "offset", "default"), name)
    if name == "ntile":
        count = convert(bind_open(node.this, scope), BIGINT, node, scope)
        call = tree.Window(BIGINT, name, (count,), partition, order, None)
        return tree.Cast(INTEGER, call)
    parts = [bind_open(node.this, scope)]
    default = node.args.get("default")
    if default is not None:
        parts = unify([parts[0], bind_open(default, scope)], node, scope, name)
    shown = context.settle(parts[0])
    arguments = [shown]
    if node.args.get("offset") is not None:
        offset = bind_open(node.args["offset"], scope)
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


def _as_window(
    bound: tree.Expression,
    partition: tuple[tree.Expression, ...],
    order: tuple[tree.SortKey, ...],
    frame: str | None,
    condition: tree.Expression | None,
) -> tree.Expression:
    if isinstance(bound, tree.Cast):
        inner = _as_window(bound.operand, partition, order, frame, condition)
        return replace(bound, operand=inner)
    if not isinstance(bound, tree.Aggregate):
        raise TypeError(f"no aggregate: {bound!r}")
    return tree.Window(
        bound.type, bound.function, bound.arguments, partition, order, frame, condition
    )


def _window_parts(
    node: Any, scope: Scope
) -> tuple[tuple[tree.Expression, ...], tuple[tree.SortKey, ...], str | None]:
    """Return partition, order and frame of OVER (…), OVER name, or a WINDOW item."""
    partition: tuple[tree.Expression, ...] = ()
    order: tuple[tree.SortKey, ...] = ()
    frame: str | None = None
    name = node.args.get("alias")
    if name is not None:
        found = scope.windows.get(fold_name(name))
        if found is None:
            raise scope.context.error("42704", f'window "{fold_name(name)}" does not exist', node)
        partition, order, frame = _window_parts(found, scope)
        if node.args.get("partition_by"):
            raise scope.context.error("42P20", "a named window cannot be partitioned anew", node)
        if order and node.args.get("order"):
            raise scope.context.error("42P20", "a named window cannot be ordered anew", node)
    if node.args.get("partition_by"):
        partition = tuple(bind_expression(item, scope) for item in node.args["partition_by"])
    if node.args.get("order"):
        order = _sort_keys(node.args["order"].expressions, scope)
    spec = node.args.get("spec")
    if spec is not None:
        frame = _frame(spec, order, scope)
    return partition, order, frame


def _sort_keys(items: Sequence[Any], scope: Scope) -> tuple[tree.SortKey, ...]:
    keys: list[tree.SortKey] = []
    for item in items:
        scope.context.only(item, ("this", "desc", "nulls_first"), "ORDER BY")
        keys.append(
            tree.SortKey(
                bind_expression(item.this, scope),
                bool(item.args.get("desc")),
                bool(item.args["nulls_first"]),
            )
        )
    return tuple(keys)


def _frame(node: Any, order: tuple[tree.SortKey, ...], scope: Scope) -> str:
    context = scope.context
    context.only(node, ("kind", "start", "start_side", "end", "end_side"), "a window frame")
    kind = str(node.args["kind"]).upper()
    if kind == "GROUPS":
        raise context.error("0A000", "GROUPS frames are not supported", node)
    start, start_rank = _bound(node, "start", kind, order, scope)
    if node.args.get("end") is None:
        end, end_rank = "CURRENT ROW", 0
    else:
        end, end_rank = _bound(node, "end", kind, order, scope)
    if start_rank == 2 or end_rank == -2 or start_rank > end_rank:
        raise context.error("42P20", f"a frame cannot reach from {start} to {end}".lower(), node)
    return f"{kind} BETWEEN {start} AND {end}"


def _bound(
    node: Any, which: str, kind: str, order: tuple[tree.SortKey, ...], scope: Scope
) -> tuple[str, int]:
    """Return a frame bound's text, and -2 … 2 from unbounded preceding to unbounded following."""
    value, side = node.args[which], str(node.args.get(f"{which}_side") or "").upper()
    direction = -1 if side == "PRECEDING" else 1
    if value == "CURRENT ROW":
        return value, 0
    if value == "UNBOUNDED":
        return f"UNBOUNDED {side}", 2 * direction
    bound = bind_open(value, Scope(scope.context, clause="a frame"))
    if not isinstance(bound, tree.Literal) or bound.value is None:
        raise scope.context.error("0A000", "offsets of frames must be constants", node)
    if kind == "ROWS":
        if not isinstance(bound.value, int) or not bound.type.is_integer:
            raise scope.context.error("42804", "offsets of ROWS must be whole numbers", node)
        text = str(bound.value)
    else:
        if len(order) != 1:
            raise scope.context.error(
                "42P20", "RANGE with an offset needs exactly one ORDER BY column", node
            )
        key = order[0].expression.type
        if not key.is_integer or not bound.type.is_integer or not isinstance(bound.value, int):
            raise scope.context.error(
                "0A000", "RANGE with an offset is for ORDER BY of whole numbers only", node
            )
        text = str(bound.value)
    if text.startswith("-"):
        raise scope.context.error("22013", "a frame's offset must not be negative", node)
    return f"{text} {side}", direction


def _bind_windowless(node: Any, scope: Scope) -> tree.Expression:
    raise scope.context.error("42809", "a window function needs OVER", node)


AGGREGATE_BINDERS: dict[type[exp.Expr], Callable[[Any, Scope], tree.Expression]] = {
    **dict.fromkeys(_AGGREGATES, _bind_aggregate),
    **dict.fromkeys((*_RANKS, *_VALUES), _bind_windowless),
    exp.Filter: _bind_filter,
    exp.Window: _bind_window,
}
"""For bind_expression.BINDERS; bind.py, which is above, puts them there."""
