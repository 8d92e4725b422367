"""Queries: SELECT and VALUES with ORDER BY, LIMIT and OFFSET."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from sqlglot import exp

from herdpy.limits import columns_max, join_tables_max
from herdpy.model.types import BIGINT, TEXT, Kind
from herdpy.sql import tree
from herdpy.sql.bind_expression import (
    bind_condition,
    bind_expression,
    bind_open,
    convert,
    unify,
)
from herdpy.sql.parse import fold_name
from herdpy.sql.scope import Scope, StatementContext

_SELECT_CLAUSES = (
    "expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset",
    "distinct", "kind",
)  # fmt: skip
_TAIL_CLAUSES = ("order", "limit", "offset")
_FUNCTION_NAMES = {"count", "sum", "avg", "min", "max"}


def bind_query(node: Any, context: StatementContext) -> tree.Query:
    """Bind a query (exp.Select, exp.Values, exp.Subquery)."""
    while isinstance(node, exp.Subquery) and not node.args.get("alias"):
        context.only(node, ("this",), "a query in parentheses")
        node = node.this
    if isinstance(node, exp.Select):
        return _bind_select(node, context)
    if isinstance(node, exp.Values):
        return _bind_values(node, context)
    raise context.error("0A000", f"{type(node).__name__} is not supported yet", node)


# --- SELECT --------------------------------------------------------------------------------------


def _bind_select(node: exp.Select, context: StatementContext) -> tree.Query:
    context.only(node, _SELECT_CLAUSES, "SELECT")
    scope = Scope(context)
    source = _bind_from(node, scope)
    where = None
    if node.args.get("where"):
        scope.clause = "WHERE"
        where = bind_condition(node.args["where"].this, scope, "argument of WHERE")
        scope.clause = None
    outputs = _bind_outputs(node.expressions, scope)
    group_by = _bind_group_by(node.args.get("group"), outputs, scope)
    having = None
    if node.args.get("having"):
        having = bind_condition(node.args["having"].this, scope, "argument of HAVING")
    order_by = _bind_order_by(node.args.get("order"), outputs, scope)
    is_distinct = bool(node.args.get("distinct"))
    if is_distinct:
        context.only(node.args["distinct"], (), "DISTINCT")
        shown = [output.expression for output in outputs]
        if any(key.expression not in shown for key in order_by):
            raise context.error(
                "42P10", "for SELECT DISTINCT, ORDER BY may only name selected columns", node
            )
    if scope.has_aggregates or group_by or having is not None:
        keys = [key.expression for key in order_by]
        checked = [*(output.expression for output in outputs), *keys]
        if having is not None:
            checked.append(having)
        group_by = _check_grouping(checked, group_by, scope, node)
    body = tree.Select(tuple(outputs), source, where, group_by, having, is_distinct)
    columns = tuple((output.name, output.expression.type) for output in outputs)
    limit, offset = _bind_limits(node, context)
    return tree.Query(body, columns, (), tuple(order_by), limit, offset)


def _bind_from(node: exp.Select, scope: Scope) -> tree.Relation | None:
    from_ = node.args.get("from_")
    if from_ is None:
        return None
    source: tree.Relation = _bind_relation(from_.this, scope)
    for join in node.args.get("joins") or ():
        source = _bind_join(source, join, scope)
    if len(scope.relations) > join_tables_max:
        raise scope.context.error("54000", f"more than {join_tables_max} tables in one query", node)
    return source


def _bind_relation(node: exp.Expr, scope: Scope) -> tree.Relation:
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        return scope.add_table(node)
    raise scope.context.error("0A000", f"{type(node).__name__} in FROM is not supported yet", node)


def _bind_join(left: tree.Relation, node: exp.Join, scope: Scope) -> tree.Join:
    scope.context.only(node, ("this", "on", "side", "kind"), "JOIN")
    right = _bind_relation(node.this, scope)
    side, condition = node.side or node.kind or "", node.args.get("on")
    kind = tree.JoinKind.INNER if condition is not None else tree.JoinKind.CROSS
    if side not in ("INNER", "OUTER", ""):
        kind = tree.JoinKind(side)
    if (condition is None) != (kind is tree.JoinKind.CROSS):
        raise scope.context.error("42601", f"{kind.value} JOIN: ON missing or too much", node)
    if condition is None:
        return tree.Join(kind, left, right, None)
    scope.clause = "JOIN conditions"
    bound = bind_condition(condition, scope, "argument of JOIN/ON")
    scope.clause = None
    return tree.Join(kind, left, right, bound)


def _bind_outputs(nodes: Sequence[exp.Expr], scope: Scope) -> list[tree.Output]:
    outputs: list[tree.Output] = []
    for node in nodes:
        if isinstance(node, exp.Star) or (
            isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
        ):
            outputs += _expand_star(node, scope)
        elif isinstance(node, exp.Alias):
            outputs.append(
                tree.Output(fold_name(node.args["alias"]), bind_expression(node.this, scope))
            )
        else:
            outputs.append(tree.Output(_name_of(node), bind_expression(node, scope)))
    if len(outputs) > columns_max:
        raise scope.context.error("54011", f"more than {columns_max} columns in a select list")
    return outputs


def _expand_star(node: exp.Expr, scope: Scope) -> list[tree.Output]:
    star = node if isinstance(node, exp.Star) else node.this
    scope.context.only(star, (), "*")
    if not scope.relations:
        raise scope.context.error("42601", "SELECT * needs a FROM", node)
    relations = scope.relations
    if isinstance(node, exp.Column):
        relations = [scope.relation(node.args["table"])]
    return [
        tree.Output(name, tree.ColumnRef(kind, named.id, ordinal, name))
        for named in relations
        for name, kind, ordinal in named.columns
    ]


def _name_of(node: exp.Expr) -> str:
    """Return the name of an unnamed output, as PostgreSQL does."""
    while isinstance(node, (exp.Paren, exp.Cast)):
        node = node.this
    if isinstance(node, exp.Column):
        return fold_name(node.this)
    if isinstance(node, exp.Case):
        return "case"
    name = type(node).__name__.lower()
    return name if name in _FUNCTION_NAMES else "?column?"


# --- GROUP BY, ORDER BY, LIMIT -------------------------------------------------------------------


def _bind_group_by(
    node: Any, outputs: Sequence[tree.Output], scope: Scope
) -> tuple[tree.Expression, ...]:
    if node is None:
        return ()
    scope.context.only(node, ("expressions",), "GROUP BY")
    scope.clause = "GROUP BY"
    keys: list[tree.Expression] = []
    for item in node.expressions:
        expression = _by_ordinal(item, outputs, scope, "GROUP BY")
        if expression is None and _is_bare(item) and not _is_column(item, scope):
            expression = _by_name(item, outputs, scope)
        if expression is None:
            expression = bind_expression(item, scope)
        if any(isinstance(part, tree.Aggregate) for part in walk(expression)):
            raise scope.context.error("42803", "aggregates are not allowed in GROUP BY", item)
        keys.append(expression)
    scope.clause = None
    return tuple(dict.fromkeys(keys))


def _bind_order_by(node: Any, outputs: Sequence[tree.Output], scope: Scope) -> list[tree.SortKey]:
    keys: list[tree.SortKey] = []
    for item in node.expressions if node is not None else ():
        scope.context.only(item, ("this", "desc", "nulls_first"), "ORDER BY")
        expression = _by_ordinal(item.this, outputs, scope, "ORDER BY")
        if expression is None and _is_bare(item.this):
            expression = _by_name(item.this, outputs, scope)
        if expression is None:
            expression = bind_expression(item.this, scope)
        # sqlglot's PostgreSQL fills in the default: NULLs last ascending, first descending.
        keys.append(
            tree.SortKey(expression, bool(item.args.get("desc")), bool(item.args["nulls_first"]))
        )
    return keys


def _by_ordinal(
    node: Any, outputs: Sequence[tree.Output], scope: Scope, clause: str
) -> tree.Expression | None:
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string or not node.this.isdecimal():
        raise scope.context.error("42601", f"a constant in {clause} must be a whole number", node)
    if not 1 <= int(node.this[:10]) <= len(outputs):
        raise scope.context.error(
            "42P10", f"{clause} position {node.this} is not in the select list", node
        )
    return outputs[int(node.this) - 1].expression


def _is_bare(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.args.get("table") is None


def _is_column(node: exp.Expr, scope: Scope) -> bool:
    name = fold_name(node.this)
    return any(column == name for named in scope.relations for column, _, _ in named.columns)


def _by_name(
    node: exp.Expr, outputs: Sequence[tree.Output], scope: Scope
) -> tree.Expression | None:
    name = fold_name(node.this)
    found = list(dict.fromkeys(o.expression for o in outputs if o.name == name))
    if len(found) > 1:
        raise scope.context.error("42702", f'"{name}" is ambiguous', node)
    return found[0] if found else None


def _check_grouping(
    expressions: Sequence[tree.Expression],
    group_by: tuple[tree.Expression, ...],
    scope: Scope,
    node: exp.Expr,
) -> tuple[tree.Expression, ...]:
    """Refuse columns that are not one per group (42803); return the keys, grown by what they fix.

    Where a table's whole key is grouped by, its other columns are fixed too.
    """
    grown = list(group_by)
    for named in scope.relations:
        if named.table is None:
            continue
        grouped = {
            key.ordinal
            for key in group_by
            if isinstance(key, tree.ColumnRef) and key.relation == named.id
        }
        if grouped.issuperset(named.table.key):
            used = (part for item in expressions for part in walk(item))
            grown += (
                part
                for part in used
                if isinstance(part, tree.ColumnRef) and part.relation == named.id
            )
    keys = dict.fromkeys(grown)
    for expression in expressions:
        for part in walk(expression, (*keys,)):
            if isinstance(part, tree.ColumnRef) and part not in keys:
                raise scope.context.error(
                    "42803",
                    f'column "{part.name}" must be in GROUP BY or in an aggregate',
                    next(
                        (c for c in node.find_all(exp.Column) if fold_name(c.this) == part.name),
                        None,
                    ),
                )
    return tuple(keys)


def walk(
    expression: object, stops: Sequence[tree.Expression] | None = None
) -> Iterator[tree.Expression]:
    """Yield the expression and all in it; with `stops` not into them nor into aggregates."""
    if isinstance(expression, tuple):
        for item in expression:  # pyright: ignore[reportUnknownVariableType]
            yield from walk(item, stops)
        return
    if isinstance(expression, tree.Expression):
        yield expression
        if stops is not None and (isinstance(expression, tree.Aggregate) or expression in stops):
            return
    elif not isinstance(expression, tree.SortKey):
        return
    if is_dataclass(expression):
        for item in fields(expression):
            value = getattr(expression, item.name)
            if isinstance(value, (tuple, tree.Expression)):
                yield from walk(value, stops)


def _bind_limits(
    node: Any, context: StatementContext
) -> tuple[tree.Expression | None, tree.Expression | None]:
    bound: list[tree.Expression | None] = []
    for clause in ("limit", "offset"):
        item = node.args.get(clause)
        if item is None:
            bound.append(None)
            continue
        if isinstance(item, exp.Fetch):
            options = item.args.get("limit_options")
            if options is not None and (
                options.args.get("percent") or options.args.get("with_ties")
            ):
                raise context.error("0A000", "FETCH takes FIRST n ROWS ONLY", node)
            value: Any = item.args.get("count") or exp.Literal.number(1)
        else:
            context.only(item, ("expression",), clause.upper())
            value = item.expression
        if isinstance(value, (exp.Var, exp.Null)):  # LIMIT ALL
            bound.append(None)
            continue
        # An empty scope: columns are unknown there.
        scope = Scope(context, clause=clause.upper())
        expression = bind_open(value, scope)
        if not (expression.type.is_numeric or expression.type.kind is Kind.UNKNOWN):
            raise context.error("42804", f"{clause.upper()} must be a whole number", value)
        bound.append(convert(expression, BIGINT, value, scope))
    return bound[0], bound[1]


# --- VALUES --------------------------------------------------------------------------------------


def _bind_values(node: Any, context: StatementContext) -> tree.Query:
    context.only(node, ("expressions", *_TAIL_CLAUSES), "VALUES")
    if node.args.get("order"):
        raise context.error("0A000", "VALUES with ORDER BY is not supported yet", node)
    scope = Scope(context, clause="VALUES")
    rows = [[bind_open(item, scope) for item in row_items(row)] for row in node.expressions]
    if any(len(row) != len(rows[0]) for row in rows):
        raise context.error("42601", "VALUES rows must all have the same length", node)
    columns = [unify(column, node, scope, "VALUES") for column in zip(*rows, strict=True)]
    names = tuple(f"column{number}" for number in range(1, len(columns) + 1))
    types = [column[0].type if column else TEXT for column in columns]
    limit, offset = _bind_limits(node, context)
    return tree.Query(
        tree.Values(tuple(zip(*columns, strict=True)), names),
        tuple(zip(names, types, strict=True)),
        limit=limit,
        offset=offset,
    )


def row_items(node: exp.Expr) -> list[exp.Expr]:
    """Return the items of one row of VALUES; (1) alone is no tuple to sqlglot."""
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this if isinstance(node, exp.Paren) else node]
