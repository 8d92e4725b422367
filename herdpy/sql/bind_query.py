"""Queries: SELECT, VALUES, set operations, WITH; their ORDER BY, LIMIT and OFFSET.

A query is bound with the scope around it, whose columns and WITH items it may name. An "open" query
leaves untyped literals of its columns untyped, so that what stands around decides (retarget).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType  # pyright: ignore[reportPrivateImportUsage]

from herdpy.errors import DataError, Error
from herdpy.limits import columns_max, join_tables_max
from herdpy.model.types import BIGINT, BOOLEAN, TEXT, UNKNOWN, Kind, SqlType
from herdpy.sql import conversions, tree
from herdpy.sql.bind_expression import (
    BINDERS,
    COMPARISONS,
    QUERY_BINDERS,
    bind_condition,
    bind_expression,
    bind_open,
    compare,
    convert,
    no_operator,
    unify,
)
from herdpy.sql.bind_function import coalesce
from herdpy.sql.parse import fold_name
from herdpy.sql.scope import Named, Scope, StatementContext, Visible

_SELECT_CLAUSES = (
    "expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset",
    "distinct", "kind", "windows", "with_",
)  # fmt: skip
_TAIL_CLAUSES = ("order", "limit", "offset")
_JOIN_CLAUSES = ("this", "on", "side", "kind", "using", "method")
# sqlglot's word for a type: PostgreSQL's own name of it.
_TYPE_NAMES = {
    "BOOLEAN": "bool", "INT": "int4", "BIGINT": "int8", "DOUBLE": "float8", "DECIMAL": "numeric",
    "VARBINARY": "bytea", "TIMESTAMPNTZ": "timestamp",
}  # fmt: skip
# Functions that are called without parentheses, or by an operator of words.
_WORD_NAMES: dict[type[exp.Expr], str] = {
    exp.CurrentTimestamp: "current_timestamp", exp.CurrentDate: "current_date",
    exp.Localtimestamp: "localtimestamp", exp.AtTimeZone: "timezone", exp.Exists: "exists",
}  # fmt: skip
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}
_NO_NAME = "?column?"


def bind_query(
    node: Any, context: StatementContext, outer: Scope | None = None, *, is_open: bool = False
) -> tree.Query:
    """Bind a query (exp.Select, exp.Values, exp.SetOperation, exp.Subquery)."""
    ctes: tuple[tree.Cte, ...] = ()
    if node.args.get("with_"):
        outer, ctes = bind_with(node.args["with_"], context, outer)
    if isinstance(node, exp.Subquery):
        query = _bind_parenthesized(node, context, outer, is_open)
    elif isinstance(node, exp.Select):
        query = _bind_select(node, context, outer, is_open)
    elif isinstance(node, exp.Values):
        query = _bind_values(node, context, outer, is_open)
    elif isinstance(node, exp.SetOperation):
        query = _bind_set_operation(node, context, outer)
    else:
        raise context.error("0A000", "a query of this kind is not supported", node)
    return replace(query, ctes=ctes + query.ctes) if ctes else query


def bind_with(
    node: Any, context: StatementContext, outer: Scope | None
) -> tuple[Scope, tuple[tree.Cte, ...]]:
    """Bind WITH; return the scope in which its items are in reach, and the items."""
    if node.args.get("recursive"):
        raise context.error("0A000", "WITH RECURSIVE is not supported", node)
    scope = Scope(context, outer=outer)
    for item in node.expressions:
        context.only(item, ("this", "alias", "materialized"), "WITH")
        if not isinstance(item.this, exp.Query):
            raise context.error("0A000", "WITH takes queries, not changes of rows", item)
        name, names = scope.alias(item, "")
        if name in scope.ctes:
            raise context.error("42712", f'WITH query name "{name}" is used twice', item)
        query = bind_query(item.this, context, scope)
        renamed = scope.renamed(names, len(query.columns), item)
        columns = (
            *((new, kind) for new, (_, kind) in zip(renamed, query.columns, strict=False)),
            *query.columns[len(renamed) :],
        )
        scope.ctes[name] = tree.Cte(context.next_cte(), name, replace(query, columns=columns))
    return scope, tuple(scope.ctes.values())


def _bind_parenthesized(
    node: exp.Subquery, context: StatementContext, outer: Scope | None, is_open: bool
) -> tree.Query:
    context.only(node, ("this", "with_", *_TAIL_CLAUSES), "a query in parentheses")
    has_tail = any(node.args.get(clause) for clause in _TAIL_CLAUSES)
    query = bind_query(node.this, context, outer, is_open=is_open and not has_tail)
    if not has_tail:
        return query
    wrapped = _wrap(query, [kind for _, kind in query.columns], context)
    body = wrapped.body
    if not isinstance(body, tree.Select):
        raise TypeError("a wrapped query is a SELECT")
    keys = [
        replace(key, expression=body.outputs[key.expression.ordinal].expression)
        for key in _output_keys(node.args.get("order"), query.columns, context)
        if isinstance(key.expression, tree.ColumnRef)
    ]
    limit, offset = _bind_limits(node, context)
    return replace(wrapped, order_by=tuple(keys), limit=limit, offset=offset)


# --- SELECT --------------------------------------------------------------------------------------


def _bind_select(
    node: exp.Select, context: StatementContext, outer: Scope | None, is_open: bool
) -> tree.Query:
    context.only(node, _SELECT_CLAUSES, "SELECT")
    scope = Scope(context, outer=outer)
    source = _bind_from(node, scope)
    _collect_windows(node, scope)
    where = None
    if node.args.get("where"):
        scope.clause = "WHERE"
        where = bind_condition(node.args["where"].this, scope, "argument of WHERE")
        scope.clause = None
    scope.allows_windows = True
    outputs = _bind_outputs(node.expressions, scope, is_open)
    scope.allows_windows = False
    group_by = _bind_group_by(node.args.get("group"), outputs, scope)
    having = None
    if node.args.get("having"):
        having = bind_condition(node.args["having"].this, scope, "argument of HAVING")
    scope.allows_windows = True
    order_by = _bind_order_by(node.args.get("order"), outputs, scope)
    distinct_on = _bind_distinct(node, outputs, order_by, scope)
    scope.allows_windows = False
    if scope.has_aggregates or group_by or having is not None:
        keys = [key.expression for key in order_by]
        checked = [*(output.expression for output in outputs), *keys, *distinct_on]
        if having is not None:
            checked.append(having)
        group_by = _check_grouping(checked, group_by, scope, node)
        group_by = tuple(_by_output(key, outputs) for key in group_by)
    is_distinct = bool(node.args.get("distinct")) and not distinct_on
    body = tree.Select(tuple(outputs), source, where, group_by, having, is_distinct, distinct_on)
    columns = tuple((output.name, output.expression.type) for output in outputs)
    limit, offset = _bind_limits(node, context)
    return tree.Query(body, columns, (), tuple(order_by), limit, offset)


def _collect_windows(node: exp.Select, scope: Scope) -> None:
    for window in node.args.get("windows") or ():
        name = fold_name(window.this)
        if name in scope.windows:
            raise scope.context.error("42P20", f'window "{name}" is defined twice', window)
        scope.windows[name] = window


def _bind_distinct(
    node: exp.Select, outputs: Sequence[tree.Output], order_by: list[tree.SortKey], scope: Scope
) -> tuple[tree.Expression, ...]:
    """Return the expressions of DISTINCT ON; check that ORDER BY fits DISTINCT (42P10)."""
    distinct = node.args.get("distinct")
    if distinct is None:
        return ()
    context = scope.context
    context.only(distinct, ("on",), "DISTINCT")
    if distinct.args.get("on") is None:
        shown = {item.expression for item in outputs if isinstance(item.expression, tree.Atom)}
        keys = [key.expression for key in order_by]
        if any(tree.output_ordinal(key) is None and key not in shown for key in keys):
            raise context.error(
                "42P10", "for SELECT DISTINCT, ORDER BY may only name selected columns", node
            )
        return ()
    items = row_items(distinct.args["on"])
    found = tuple(_bind_sort_item(item, outputs, scope, "DISTINCT ON") for item in items)
    for key in order_by[: len(dict.fromkeys(found))]:
        if key.expression not in found:
            raise context.error(
                "42P10", "DISTINCT ON expressions must match the first ORDER BY expressions", node
            )
    return found


# --- FROM ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Item:
    """One FROM item: the relation, what it names, and the columns that * shows."""

    relation: tree.Relation
    named: list[tuple[Named, exp.Expr]]
    visible: list[Visible]


def _bind_from(node: exp.Select, scope: Scope) -> tree.Relation | None:
    from_ = node.args.get("from_")
    if from_ is None:
        return None
    joins = node.args.get("joins") or ()
    if len(joins) >= join_tables_max:
        raise _too_many_tables(node, scope)
    # A comma binds weaker than JOIN, but sqlglot gives one flat list.
    items = [_bind_item(from_.this, scope)]
    for join in joins:
        if _is_comma(join, scope):
            items.append(_bind_item(join.this, scope))
        else:
            items[-1] = _bind_join(items[-1], join, scope)
    source = items[0].relation
    for item in items[1:]:
        source = tree.Join(tree.JoinKind.CROSS, source, item.relation, None)
    for item in items:
        for named, place in item.named:
            scope.add(named, place)
    scope.visible = [visible for item in items for visible in item.visible]
    if len(scope.relations) > join_tables_max:
        raise _too_many_tables(node, scope)
    return source


def _too_many_tables(node: exp.Select, scope: Scope) -> Error:
    return scope.context.error("54000", f"more than {join_tables_max} tables in one query", node)


def _is_comma(node: exp.Join, scope: Scope) -> bool:
    """Tell whether the item follows a comma; 42601 for JOIN without ON, which looks the same."""
    if any(node.args.get(clause) for clause in _JOIN_CLAUSES[1:]):
        return False
    start = scope.context.position(node.this)
    tokens = scope.context.scanned.tokens
    last = bisect_left(tokens, (start or 1) - 1, key=lambda token: token.start) - 1
    while last >= 0 and tokens[last].token_type in (TokenType.L_PAREN, TokenType.LATERAL):
        last -= 1
    while last >= 0 and tokens[last].token_type not in (TokenType.COMMA, TokenType.JOIN):
        last -= 1
    if last >= 0 and tokens[last].token_type is TokenType.JOIN:
        raise scope.context.error("42601", "JOIN without ON or USING", node.this)
    return True


def _bind_item(node: Any, scope: Scope) -> _Item:
    context = scope.context
    own = Scope(context, outer=scope.outer)
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        joins = node.args.get("joins") or ()
        context.only(node, ("this", "alias", "joins"), "a table name")
        cte = scope.cte(fold_name(node.this))
        relation = own.add_table(node) if cte is None else _cte_ref(node, cte, own)
        item = _Item(relation, [(named, node) for named in own.relations], own.visible)
        for join in joins:
            item = _bind_join(item, join, scope)
        return item
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        context.only(node, ("this", "joins"), "a join in parentheses")
        item = _bind_item(node.this, scope)
        for join in node.args.get("joins") or ():
            item = _bind_join(item, join, scope)
        return item
    if isinstance(node, (exp.Subquery, exp.Values)):
        alias, names = own.alias(node, "")
        inner = node.copy()
        inner.set("alias", None)
        joins = inner.args.pop("joins", None) or ()
        query = bind_query(inner, context, scope.outer)
        renamed = own.renamed(names, len(query.columns), node)
        relation = tree.Derived(context.next_relation(), query, alias)
        _add_derived(own, relation.id, alias, query.columns, renamed, node)
        item = _Item(relation, [(named, node) for named in own.relations], own.visible)
        for join in joins:
            item = _bind_join(item, join, scope)
        return item
    what = "LATERAL" if isinstance(node, exp.Lateral) else "a function in FROM"
    raise context.error("0A000", f"{what} is not supported", node)


def _cte_ref(node: exp.Expr, cte: tree.Cte, own: Scope) -> tree.CteRef:
    alias, names = own.alias(node, cte.name)
    ref = tree.CteRef(own.context.next_relation(), cte.id, alias)
    renamed = own.renamed(names, len(cte.query.columns), node)
    _add_derived(own, ref.id, alias, cte.query.columns, renamed, node)
    return ref


def _add_derived(
    own: Scope,
    relation: int,
    alias: str,
    columns: Sequence[tuple[str, SqlType]],
    names: Sequence[str],
    node: exp.Expr,
) -> None:
    shown = [*names, *(name for name, _ in columns[len(names) :])]
    own.add(
        Named(
            relation,
            alias,
            tuple(
                (name, kind, ordinal)
                for ordinal, (name, (_, kind)) in enumerate(zip(shown, columns, strict=True))
            ),
        ),
        node,
    )


def _bind_join(left: _Item, node: exp.Join, scope: Scope) -> _Item:
    context = scope.context
    context.only(node, _JOIN_CLAUSES, "JOIN")
    right = _bind_item(node.this, scope)
    using, condition = node.args.get("using"), node.args.get("on")
    is_natural = str(node.args.get("method") or "").upper() == "NATURAL"
    if node.args.get("method") and not is_natural:
        raise context.error("0A000", f"{node.args['method']} JOIN is not supported", node)
    if node.side and node.kind not in ("", "OUTER"):  # of other dialects, as LEFT ANTI
        words = f"{node.side} {node.kind} JOIN"
        raise context.error("0A000", f"{words} is not supported", node)
    word = node.side or node.kind or ""
    if word not in ("", "OUTER", *(item.value for item in tree.JoinKind)):
        raise context.error("0A000", f"{word} JOIN is not supported", node)
    kind = tree.JoinKind.INNER if word in ("", "INNER", "OUTER") else tree.JoinKind(word)
    has_condition = condition is not None or bool(using) or is_natural
    if has_condition == (kind is tree.JoinKind.CROSS):
        raise context.error("42601", f"{kind.value} JOIN: ON missing or too much", node)
    named, visible = left.named + right.named, left.visible + right.visible
    if kind is tree.JoinKind.CROSS:
        return _Item(tree.Join(kind, left.relation, right.relation, None), named, visible)
    if using or is_natural:
        return _bind_using(left, right, kind, using, node, scope)
    reached = [relation for relation, _ in named]
    own = Scope(context, reached, "JOIN conditions", outer=scope.outer, visible=visible)
    bound = bind_condition(node.args["on"], own, "argument of JOIN/ON")
    return _Item(tree.Join(kind, left.relation, right.relation, bound), named, visible)


def _bind_using(
    left: _Item,
    right: _Item,
    kind: tree.JoinKind,
    using: Sequence[exp.Expr] | None,
    node: exp.Join,
    scope: Scope,
) -> _Item:
    """Join on equal names; these columns are shown once, first, and a bare name means the one."""
    names = [fold_name(item) for item in using or ()]
    if using is None:
        others = {item.name for item in right.visible}
        names = list(dict.fromkeys(v.name for v in left.visible if v.name in others))
    tests: list[tree.Expression] = []
    merged: list[Visible] = []
    for name in names:
        a, b = (_only_one(name, item, node, scope) for item in (left, right))
        tests.append(compare("=", a, b, node, scope))
        if kind is tree.JoinKind.FULL:
            parts = unify([a, b], node, scope, "JOIN/USING")
            shown: tree.Expression = coalesce("coalesce", parts)
        else:
            shown = b if kind is tree.JoinKind.RIGHT else a
            if a.type != b.type:
                shown = unify([shown, a, b], node, scope, "JOIN/USING")[0]
        merged.append(Visible(name, shown))
    condition: tree.Expression = tree.Literal(BOOLEAN, True)
    if tests:
        condition = tests[0] if len(tests) == 1 else tree.Call(BOOLEAN, "and", tuple(tests))
    rest = [item for item in left.visible + right.visible if item.name not in names]
    relation = tree.Join(kind, left.relation, right.relation, condition)
    return _Item(relation, left.named + right.named, merged + rest)


def _only_one(name: str, item: _Item, node: exp.Join, scope: Scope) -> tree.Expression:
    found = [visible.expression for visible in item.visible if visible.name == name]
    if len(found) == 1:
        return found[0]
    if not found:
        message = f'column "{name}" of USING is not on both sides'
        raise scope.context.error("42703", message, node)
    raise scope.context.error("42702", f'column "{name}" of USING is ambiguous', node)


# --- select list ---------------------------------------------------------------------------------


def _bind_outputs(nodes: Sequence[exp.Expr], scope: Scope, is_open: bool) -> list[tree.Output]:
    outputs: list[tree.Output] = []
    bind = _bind_open_output if is_open else bind_expression
    for node in nodes:
        if isinstance(node, exp.Star) or (
            isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
        ):
            outputs += _expand_star(node, scope)
        elif isinstance(node, exp.Alias):
            outputs.append(tree.Output(fold_name(node.args["alias"]), bind(node.this, scope)))
        else:
            bound = bind(node, scope)
            outputs.append(tree.Output(_name_of(node, bound, scope), bound))
    if len(outputs) > columns_max:
        raise scope.context.error("54011", f"more than {columns_max} columns in a select list")
    return outputs


def _bind_open_output(node: exp.Expr, scope: Scope) -> tree.Expression:
    """Bind an output whose type, where it has none of its own, is decided by what is around."""
    bound = bind_open(node, scope)
    is_constant = isinstance(bound, tree.Literal) and bound.type.kind is not Kind.UNKNOWN
    return scope.context.settle(bound) if is_constant else bound


def _expand_star(node: exp.Expr, scope: Scope) -> list[tree.Output]:
    star = node if isinstance(node, exp.Star) else node.this
    scope.context.only(star, (), "*")
    if isinstance(node, exp.Column):
        scope.context.only(node, ("this", "table"), "*")
        named = scope.relation(node.args["table"])
        return [
            tree.Output(name, tree.ColumnRef(kind, named.id, ordinal, name))
            for name, kind, ordinal in named.columns
        ]
    if not scope.relations:
        raise scope.context.error("42601", "SELECT * needs a FROM", node)
    return [tree.Output(visible.name, visible.expression) for visible in scope.visible]


def _name_of(node: Any, expression: tree.Expression, scope: Scope) -> str:
    """Return the name of an output without AS, by the rules of PostgreSQL's FigureColname."""
    return _named(node, expression, scope)[0]


def _named(node: Any, expression: tree.Expression, scope: Scope) -> tuple[str, bool]:
    """Return a name for the value of an expression, and whether it stays under a cast or a CASE."""
    while isinstance(node, (exp.Paren, exp.Window, exp.Filter, exp.RespectNulls)):
        node = node.this
    while isinstance(expression, (tree.Cast, tree.Let)):
        if isinstance(expression, tree.Let):
            expression = expression.body
        else:
            expression = expression.operand
    if isinstance(node, exp.Column):
        return fold_name(node.this), True
    if isinstance(node, (exp.Subquery, exp.Select)):
        is_query = isinstance(expression, tree.ScalarSubquery)
        return (expression.query.columns[0][0] if is_query else _NO_NAME), True
    if isinstance(node, exp.Cast):
        name, is_kept = _named(node.this, expression, scope)
        word = getattr(node.to.this, "name", "")
        return (name, True) if is_kept else (_TYPE_NAMES.get(word, word.lower()), False)
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        if default is None or not isinstance(expression, tree.Case):
            return "case", False
        name, is_kept = _named(default, expression.otherwise or expression, scope)
        return (name, True) if is_kept else ("case", False)
    called = scope.context.called(node) or _WORD_NAMES.get(type(node))
    if called == "trim":
        called = _TRIMS.get(str(node.args.get("position") or "").upper(), "btrim")
    return (_NO_NAME, False) if called is None else (called, True)


# --- GROUP BY, ORDER BY, LIMIT -------------------------------------------------------------------


def _bind_group_by(
    node: Any, outputs: Sequence[tree.Output], scope: Scope
) -> tuple[tree.Expression, ...]:
    if node is None:
        return ()
    scope.context.only(node, ("expressions",), "GROUP BY")
    if not node.expressions:
        raise scope.context.error("42601", "GROUP BY needs an expression", node)
    scope.clause = "GROUP BY"
    keys: list[tree.Expression] = []
    for item in node.expressions:
        expression = _by_ordinal(item, outputs, scope, "GROUP BY")
        if expression is None and _is_bare(item) and not _is_column(item, scope):
            expression = _by_name(item, outputs, scope)
        if expression is None:
            expression = bind_expression(item, scope)
        if any(isinstance(part, tree.Aggregate) for part in tree.walk(expression, is_deep=False)):
            raise scope.context.error("42803", "aggregates are not allowed in GROUP BY", item)
        if any(isinstance(part, tree.Window) for part in tree.walk(expression, is_deep=False)):
            message = "window functions are not allowed in GROUP BY"
            raise scope.context.error("42P20", message, item)
        keys.append(expression)
    scope.clause = None
    return tuple(dict.fromkeys(keys))


def _bind_order_by(node: Any, outputs: Sequence[tree.Output], scope: Scope) -> list[tree.SortKey]:
    keys: list[tree.SortKey] = []
    for item in node.expressions if node is not None else ():
        scope.context.only(item, ("this", "desc", "nulls_first"), "ORDER BY")
        expression = _bind_sort_item(item.this, outputs, scope, "ORDER BY")
        # sqlglot's PostgreSQL fills in the default: NULLs last ascending, first descending.
        keys.append(
            tree.SortKey(expression, bool(item.args.get("desc")), bool(item.args["nulls_first"]))
        )
    return keys


def _bind_sort_item(
    node: exp.Expr, outputs: Sequence[tree.Output], scope: Scope, clause: str
) -> tree.Expression:
    """Bind an ordinal, the name of an output, or an expression."""
    expression = _by_ordinal(node, outputs, scope, clause)
    if expression is None and _is_bare(node):
        expression = _by_name(node, outputs, scope)
    if expression is None:
        expression = bind_expression(node, scope)
    return _by_output(expression, outputs)


def _by_output(key: tree.Expression, outputs: Sequence[tree.Output]) -> tree.Expression:
    """Return a key that is computed for the result anyway as a reference to that output."""
    if isinstance(key, tree.Atom):
        return key
    for ordinal, output in enumerate(outputs):
        if output.expression == key:
            return tree.ColumnRef(key.type, tree.OUTPUT, ordinal, output.name)
    return key


def _output_keys(
    node: Any, columns: Sequence[tuple[str, SqlType]], context: StatementContext
) -> list[tree.SortKey]:
    """Bind ORDER BY over what has output columns only: their names and numbers."""
    scope = Scope(context)
    outputs = [
        tree.Output(name, tree.ColumnRef(kind, tree.OUTPUT, ordinal, name))
        for ordinal, (name, kind) in enumerate(columns)
    ]
    keys: list[tree.SortKey] = []
    for item in node.expressions if node is not None else ():
        context.only(item, ("this", "desc", "nulls_first"), "ORDER BY")
        expression = _by_ordinal(item.this, outputs, scope, "ORDER BY")
        if expression is None and _is_bare(item.this):
            expression = _by_name(item.this, outputs, scope)
        if expression is None and _is_bare(item.this):
            expression = bind_expression(item.this, scope)
        if expression is None:
            raise context.error(
                "0A000",
                "ORDER BY here takes names and numbers of result columns only",
                item.this,
                "Put the query into FROM: SELECT … FROM (…) AS q ORDER BY …",
            )
        keys.append(
            tree.SortKey(expression, bool(item.args.get("desc")), bool(item.args["nulls_first"]))
        )
    return keys


def _by_ordinal(
    node: Any, outputs: Sequence[tree.Output], scope: Scope, clause: str
) -> tree.Expression | None:
    if isinstance(node, (exp.Boolean, exp.Null)):
        raise scope.context.error("42601", f"a constant in {clause} must be a whole number", node)
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
    return any(visible.name == name for visible in scope.visible)


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
            used = (part for item in expressions for part in tree.walk(item))
            grown += (
                part
                for part in used
                if isinstance(part, tree.ColumnRef) and part.relation == named.id
            )
    keys = dict.fromkeys(grown)
    own = {named.id for named in scope.relations}
    for expression in expressions:
        for part in tree.walk(expression, (*keys,)):
            if isinstance(part, tree.ColumnRef) and part not in keys and part.relation in own:
                raise scope.context.error(
                    "42803",
                    f'column "{part.name}" must be in GROUP BY or in an aggregate',
                    next(
                        (c for c in node.find_all(exp.Column) if fold_name(c.this) == part.name),
                        None,
                    ),
                )
    return tuple(keys)


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
        if isinstance(value, exp.Column):
            message = f"{clause.upper()} must not contain columns"
            raise context.error("42P10", message, value)
        # An empty scope: columns are unknown there.
        scope = Scope(context, clause=clause.upper())
        expression = bind_open(value, scope)
        if not (expression.type.is_numeric or expression.type.kind is Kind.UNKNOWN):
            raise context.error("42804", f"{clause.upper()} must be a whole number", value)
        count = convert(expression, BIGINT, value, scope)
        if isinstance(count, tree.Literal) and isinstance(count.value, int) and count.value < 0:
            sqlstate = "2201W" if clause == "limit" else "2201X"
            message = f"{clause.upper()} must not be negative, found {count.value}"
            raise DataError(message, sqlstate=sqlstate, position=context.position(value))
        bound.append(count)
    return bound[0], bound[1]


# --- VALUES --------------------------------------------------------------------------------------


def _bind_values(
    node: Any, context: StatementContext, outer: Scope | None, is_open: bool
) -> tree.Query:
    context.only(node, ("expressions", "with_", *_TAIL_CLAUSES), "VALUES")
    scope = Scope(context, clause="VALUES", outer=outer)
    rows = [[bind_open(item, scope) for item in row_items(row)] for row in node.expressions]
    if any(len(row) != len(rows[0]) for row in rows):
        raise context.error("42601", "VALUES rows must all have the same length", node)
    columns = [
        list(column)
        if is_open and all(item.type.kind is Kind.UNKNOWN for item in column)
        else unify(column, node, scope, "VALUES")
        for column in zip(*rows, strict=True)
    ]
    names = tuple(f"column{number}" for number in range(1, len(columns) + 1))
    shown = tuple(
        (name, column[0].type if column else TEXT)
        for name, column in zip(names, columns, strict=True)
    )
    keys = _output_keys(node.args.get("order"), shown, context)
    limit, offset = _bind_limits(node, context)
    body = tree.Values(tuple(zip(*columns, strict=True)), names)
    return tree.Query(body, shown, (), tuple(keys), limit, offset)


def row_items(node: exp.Expr) -> list[exp.Expr]:
    """Return the items of one row of VALUES; (1) alone is no tuple to sqlglot."""
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this if isinstance(node, exp.Paren) else node]


# --- set operations ------------------------------------------------------------------------------


def _bind_set_operation(node: Any, context: StatementContext, outer: Scope | None) -> tree.Query:
    operator = node.key.upper()
    clauses = ("this", "expression", "distinct", "with_", *_TAIL_CLAUSES)
    context.only(node, clauses, operator)
    left = bind_query(node.this, context, outer, is_open=True)
    right = bind_query(node.expression, context, outer, is_open=True)
    if len(left.columns) != len(right.columns):
        raise context.error(
            "42601",
            f"each {operator} query must have the same number of columns, found "
            f"{len(left.columns)} and {len(right.columns)}",
            node,
        )
    types = [
        _meet(a, b, operator, node, context)
        for (_, a), (_, b) in zip(left.columns, right.columns, strict=True)
    ]
    body = tree.SetOperation(
        operator,
        not node.args.get("distinct"),
        retarget(left, types, node, context),
        retarget(right, types, node, context),
    )
    columns = tuple((name, kind) for (name, _), kind in zip(left.columns, types, strict=True))
    keys = _output_keys(node.args.get("order"), columns, context)
    limit, offset = _bind_limits(node, context)
    return tree.Query(body, columns, (), tuple(keys), limit, offset)


def _meet(
    left: SqlType, right: SqlType, operator: str, node: exp.Expr, context: StatementContext
) -> SqlType:
    if left.kind is Kind.UNKNOWN or right.kind is Kind.UNKNOWN:
        known = right if left.kind is Kind.UNKNOWN else left
        return TEXT if known.kind in (Kind.UNKNOWN, Kind.TEXT) else known
    common = left if left == right else conversions.common_type(left, right)
    if common is None:
        raise context.error(
            "42804", f"{operator} types {left} and {right} cannot be matched".lower(), node
        )
    return common


def retarget(
    query: tree.Query,
    types: Sequence[SqlType],
    node: exp.Expr,
    context: StatementContext,
    stored_in: Sequence[str] | None = None,
) -> tree.Query:
    """Return the query with its columns converted; untyped constants of it take the types.

    stored_in: the columns of a table that the query's are for.
    """
    names: Sequence[str | None] = [None] * len(types) if stored_in is None else stored_in
    found = [kind for _, kind in query.columns]
    body, scope = query.body, Scope(context)
    has_pending = isinstance(body, tree.Select) and any(map(_is_pending, body.outputs))
    if found == list(types) and UNKNOWN not in found and not has_pending:
        return query
    columns = tuple((name, kind) for (name, _), kind in zip(query.columns, types, strict=True))
    if isinstance(body, tree.Values):
        rows = tuple(
            tuple(
                convert(item, kind, node, scope, name)
                for item, kind, name in zip(row, types, names, strict=True)
            )
            for row in body.rows
        )
        return replace(query, body=replace(body, rows=rows), columns=columns)
    if isinstance(body, tree.Select):
        outputs = tuple(
            replace(output, expression=convert(output.expression, kind, node, scope, name))
            if output.expression.type.kind is Kind.UNKNOWN or _is_pending(output)
            else output
            for output, kind, name in zip(body.outputs, types, names, strict=True)
        )
        shown = tuple((output.name, output.expression.type) for output in outputs)
        query = replace(query, body=replace(body, outputs=outputs), columns=shown)
    if [kind for _, kind in query.columns] == list(types):
        return query
    return _wrap(query, types, context)


def _is_pending(output: tree.Output) -> bool:
    """Tell whether an open query left a parameter for what stands around to settle."""
    expression = output.expression
    return isinstance(expression, tree.Parameter) and expression.index < 0


def _wrap(query: tree.Query, types: Sequence[SqlType], context: StatementContext) -> tree.Query:
    """Return SELECT casts FROM (query)."""
    derived = tree.Derived(context.next_relation(), query, "")
    outputs = tuple(
        tree.Output(name, ref if found == kind else tree.Cast(kind, ref))
        for ordinal, ((name, found), kind) in enumerate(zip(query.columns, types, strict=True))
        for ref in (tree.ColumnRef(found, derived.id, ordinal, name),)
    )
    columns = tuple((output.name, output.expression.type) for output in outputs)
    return tree.Query(tree.Select(outputs, derived), columns)


# --- subqueries in expressions -------------------------------------------------------------------


def _bind_scalar(node: Any, scope: Scope) -> tree.Expression:
    query = _bind_column_query(node, scope)
    return tree.ScalarSubquery(query.columns[0][1], query)


def _bind_column_query(node: Any, scope: Scope) -> tree.Query:
    query = bind_query(node, scope.context, scope)
    if len(query.columns) != 1:
        raise scope.context.error(
            "42601", f"subquery must return one column, it has {len(query.columns)}", node
        )
    return query


def _bind_exists(node: Any, scope: Scope) -> tree.Expression:
    return tree.Exists(BOOLEAN, bind_query(node.this, scope.context, scope))


def _bind_in_query(node: Any, scope: Scope) -> tree.Expression:
    """Bind operand IN (query)."""
    scope.context.only(node, ("this", "query"), "IN")
    if isinstance(node.this, exp.Tuple):
        raise scope.context.error("0A000", "a row IN (query) is not supported", node)
    operand, query = _meet_query("=", node.this, node.args["query"], node, scope)
    return tree.InQuery(BOOLEAN, operand, query, False)


def _meet_query(
    operator: str, operand_node: Any, query_node: Any, node: Any, scope: Scope
) -> tuple[tree.Expression, tree.Query]:
    operand = bind_open(operand_node, scope)
    query = _bind_column_query(query_node, scope)
    ((_, found),) = query.columns
    if operand.type.kind is Kind.UNKNOWN:
        return convert(operand, found, node, scope), query
    operand = scope.context.settle(operand)
    common = operand.type
    if operand.type != found:
        target = conversions.common_type(operand.type, found)
        if target is None:
            other = tree.Literal(found, None)
            raise no_operator(operator, operand, other, node, scope)
        common = target
    return convert(operand, common, node, scope), retarget(query, [common], node, scope.context)


def _bind_quantified(node: Any, scope: Scope) -> tree.Expression:
    """Bind operand operator ANY | ALL (query)."""
    operator, quantified = COMPARISONS[type(node)], node.expression
    query_node = quantified.this
    while isinstance(query_node, exp.Paren):
        query_node = query_node.this
    if not isinstance(query_node, exp.Query):
        raise scope.context.error("0A000", "ANY and ALL take a query only", node)
    operand, query = _meet_query(operator, node.this, query_node, node, scope)
    return tree.Quantified(BOOLEAN, operand, operator, query, isinstance(quantified, exp.All))


BINDERS[exp.Subquery] = _bind_scalar
BINDERS[exp.Select] = _bind_scalar
BINDERS[exp.Exists] = _bind_exists
QUERY_BINDERS["in"] = _bind_in_query
QUERY_BINDERS["quantified"] = _bind_quantified
