"""Queries: SELECT, VALUES, set operations, WITH; their ORDER BY, LIMIT and OFFSET.

A query is bound with the scope around it, whose columns and WITH items it may name. An "open" query
leaves untyped literals of its columns untyped, so that what stands around decides (retarget).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeGuard

from msgspec.structs import replace

from herdpy.errors import DataError, Error, not_a
from herdpy.limits import (
    columns_max,
    decimal_precision_max,
    grouping_sets_max,
    join_tables_max,
)
from herdpy.model.schema import Table
from herdpy.model.types import BIGINT, BOOLEAN, TEXT, UNKNOWN, Kind, SqlType, decimal_type
from herdpy.sql import conversions, tree
from herdpy.sql.bind_expression import (
    BINDERS,
    QUERY_BINDERS,
    bind_condition,
    bind_expression,
    bind_open,
    compare,
    convert,
    met_by,
    no_operator,
    sort_keys,
    type_label,
    unify,
)
from herdpy.sql.bind_function import TRIMS, bind_table_function, calls_of_sets, coalesce
from herdpy.sql.functions import GROUPING
from herdpy.sql.reading import syntax
from herdpy.sql.reading.grouping_sets import sets_of
from herdpy.sql.reading.reader import read
from herdpy.sql.reading.recursion import check_recursive, in_order, references
from herdpy.sql.reading.tokens import scan
from herdpy.sql.scope import Named, Scope, StatementContext, Visible

_NO_NAME = "?column?"


def bind_query(
    node: syntax.Query,
    context: StatementContext,
    outer: Scope | None = None,
    *,
    is_open: bool = False,
) -> tree.Query:
    ctes: tuple[tree.Cte, ...] = ()
    if node.with_ is not None:
        outer, ctes = bind_with(node.with_, context, outer)
    if isinstance(node, syntax.Subquery):
        query = bind_query(node.query, context, outer, is_open=is_open)
    elif isinstance(node, syntax.Select):
        query = _bind_select(node, context, outer, is_open)
    elif isinstance(node, syntax.Values):
        query = _bind_values(node, context, outer, is_open)
    elif isinstance(node, syntax.SetOperation):
        query = _bind_set_operation(node, context, outer)
    else:
        raise TypeError(f"no query: {type(node)}")
    return replace(query, ctes=ctes + query.ctes) if ctes else query


def bind_with(
    node: syntax.With, context: StatementContext, outer: Scope | None
) -> tuple[Scope, tuple[tree.Cte, ...]]:
    """Bind WITH; return the scope in which its items are in reach, and the items."""
    scope, names = Scope(context, outer=outer), set[str]()
    for item in node.items:
        if item.name in names:
            raise context.error("42712", f'WITH query name "{item.name}" is used twice', item)
        names.add(item.name)
    found: list[tree.Cte] = []
    for item in in_order(node, context.error) if node.is_recursive else node.items:
        if node.is_recursive and any(references(item.query, {item.name})):
            found += _bind_recursive(item, context, scope)
        else:
            query = bind_query(item.query, context, scope)
            found.append(tree.Cte(context.next_cte(), item.name, _renamed(item, query, scope)))
        scope.ctes[item.name] = found[-1]
    return scope, tuple(found)


def _renamed(item: syntax.WithItem, query: tree.Query, scope: Scope) -> tree.Query:
    renamed = scope.renamed(item.columns, len(query.columns), item)
    columns = (
        *((new, kind) for new, (_, kind) in zip(renamed, query.columns, strict=False)),
        *query.columns[len(renamed) :],
    )
    return replace(query, columns=columns)


def _bind_recursive(
    item: syntax.WithItem, context: StatementContext, scope: Scope
) -> Sequence[tree.Cte]:
    """Bind an item that names itself; return it behind the items of a WITH of its own.

    Its columns have the types of its first term (42804).
    """
    query, inner, ctes = item.query, scope, tuple[tree.Cte, ...]()
    while isinstance(query, syntax.Subquery) and query.with_ is None:
        query = query.query
    union = check_recursive(item, query, context.error)
    if union.with_ is not None:
        if any(references(union.with_, {item.name})):
            message = "a WITH in a recursive query that names this query is not supported"
            raise context.error("0A000", message, item)
        inner, ctes = bind_with(union.with_, context, scope)
    first = bind_query(union.left, context, inner)
    types = [_recursive_type(kind) for _, kind in first.columns]
    first = retarget(first, types, union, context)
    cte = tree.Cte(context.next_cte(), item.name, _renamed(item, first, scope), True)
    own = Scope(context, outer=inner, ctes={item.name: cte})
    context.recursive.add(cte.id)
    rest = bind_query(union.right, context, own, is_open=True)
    context.recursive.discard(cte.id)
    if len(rest.columns) != len(types):
        raise _unequal_width("UNION", first, rest, union, context)
    for number, ((_, found), kind) in enumerate(zip(rest.columns, types, strict=True), 1):
        overall = _recursive_type(_meet(kind, found, "UNION", union, context))
        if overall != kind:
            raise context.error(
                "42804",
                f'recursive query "{item.name}" column {number} has type {kind} in non-recursive '
                f"term but type {overall} overall".lower(),
                item,
                "Cast the output of the non-recursive term to the correct type.",
            )
    body = tree.SetOperation("UNION", union.is_all, first, retarget(rest, types, union, context))
    return *ctes, replace(cte, query=replace(cte.query, body=body, ctes=()))


def _recursive_type(kind: SqlType) -> SqlType:
    """Return the type of a column of a recursive query, which has room for what is to come."""
    if kind.kind is Kind.DECIMAL:
        return decimal_type(decimal_precision_max, kind.scale or 0)
    return TEXT if kind.kind is Kind.TEXT else kind


# --- SELECT --------------------------------------------------------------------------------------


def _bind_select(
    node: syntax.Select, context: StatementContext, outer: Scope | None, is_open: bool
) -> tree.Query:
    if not node.outputs:
        raise context.error(
            "0A000", "a SELECT without columns is not supported", node, "It may stand in EXISTS."
        )
    scope = Scope(context, outer=outer)
    source = bind_from(node.sources, node, scope)
    calls = calls_of_sets(node.outputs) if context.names_sets else []
    if calls:
        source = _bind_set(calls, source, scope)
    _collect_windows(node, scope)
    where = None
    if node.where is not None:
        scope.clause = "WHERE"
        where = bind_condition(node.where, scope, "argument of WHERE")
        scope.clause = None
    if node.group_by:
        scope.subqueries = {}
    scope.allows_windows = True
    outputs = bind_outputs(node.outputs, scope, is_open=is_open)
    scope.allows_windows = False
    group_by, grouping_sets = _bind_group_by(node, outputs, scope)
    having = None
    if node.having is not None:
        having = bind_condition(node.having, scope, "argument of HAVING")
    scope.allows_windows = True
    order_by = sort_keys(node.order, lambda item: _bind_sort_item(item, outputs, scope, "ORDER BY"))
    distinct_on = _bind_distinct(node, outputs, order_by, scope)
    scope.allows_windows = False
    if calls:
        _check_set(calls[0], node, outputs, scope)
    if scope.has_aggregates and context.recursive:
        _check_not_recursive(source, node, scope)
    if scope.has_aggregates or node.group_by or having is not None:
        keys = [key.expression for key in order_by]
        checked = [*(output.expression for output in outputs), *keys, *distinct_on]
        if having is not None:
            checked.append(having)
        _check_groupings(checked, group_by, scope, node)
        fixed = () if grouping_sets else scope.relations
        group_by = _check_grouping(checked, group_by, scope, node, fixed)
        group_by = tuple(_by_output(key, outputs) for key in group_by)
    is_distinct = node.is_distinct and not distinct_on
    body = tree.Select(
        tuple(outputs), source, where, group_by, having, is_distinct, distinct_on, grouping_sets
    )
    columns = tuple((output.name, output.expression.type) for output in outputs)
    limit, offset = _bind_limits(node, context)
    return tree.Query(body, columns, (), order_by, limit, offset)


def _check_not_recursive(source: tree.Relation | None, node: syntax.Select, scope: Scope) -> None:
    """Refuse aggregates over the rows that a recursive query has found before (42P19)."""
    pending = [source]
    while pending:
        relation = pending.pop()
        if isinstance(relation, tree.Join):
            pending += (relation.left, relation.right)
        elif isinstance(relation, tree.CteRef) and relation.cte in scope.context.recursive:
            message = "aggregate functions are not allowed in a recursive query's recursive term"
            raise scope.error("42P19", message, node)


def _collect_windows(node: syntax.Select, scope: Scope) -> None:
    for name, window in node.windows:
        if name in scope.windows:
            raise scope.error("42P20", f'window "{name}" is defined twice', window)
        scope.windows[name] = window


def _bind_distinct(
    node: syntax.Select,
    outputs: Sequence[tree.Output],
    order_by: Sequence[tree.SortKey],
    scope: Scope,
) -> tuple[tree.Expression, ...]:
    """Return the expressions of DISTINCT ON; check that ORDER BY fits DISTINCT (42P10)."""
    context = scope.context
    if not node.is_distinct:
        return ()
    if not node.distinct_on:
        shown = {item.expression for item in outputs if isinstance(item.expression, tree.Atom)}
        keys = [key.expression for key in order_by]
        if any(tree.output_ordinal(key) is None and key not in shown for key in keys):
            raise context.error(
                "42P10", "for SELECT DISTINCT, ORDER BY may only name selected columns", node
            )
        return ()
    found = tuple(_bind_sort_item(item, outputs, scope, "DISTINCT ON") for item in node.distinct_on)
    for key in order_by[: len(dict.fromkeys(found))]:
        if key.expression not in found:
            raise context.error(
                "42P10", "DISTINCT ON expressions must match the first ORDER BY expressions", node
            )
    return found


def _bind_set(
    calls: Sequence[syntax.Call], source: tree.Relation | None, scope: Scope
) -> tree.Relation:
    """Join the rows of a function that stands in the select list to those of FROM."""
    if len(calls) > 1:
        raise scope.error(
            "0A000",
            "a select list with several set-returning functions is not supported",
            calls[1],
            "Put them into FROM.",
        )
    call, own = calls[0], Scope(scope.context)
    reached = scope.relations.copy()
    around = Scope(
        scope.context, reached, outer=scope.outer, ctes=scope.ctes, visible=scope.visible.copy()
    )
    query = bind_table_function(call, call.name, around, has_ordinality=False)
    relation = tree.Derived(scope.context.next_relation(), query, call.name, is_lateral=True)
    _add_derived(own, relation.id, "", query.columns, (), call)
    scope.sets[call.start] = own.visible[0].expression
    if source is None:
        return relation
    return tree.Join(tree.JoinKind.CROSS, source, relation, None)


def _check_set(
    call: syntax.Call, node: syntax.Select, outputs: Sequence[tree.Output], scope: Scope
) -> None:
    """Refuse a function that gives rows where these come behind what rows are put together for."""
    shown = tuple(output.expression for output in outputs)
    has_windows = any(isinstance(part, tree.Window) for part in tree.walk(shown, is_deep=False))
    if scope.has_aggregates or node.group_by or node.having is not None or has_windows:
        raise scope.error(
            "0A000",
            f"{call.name} in a select list beside aggregates or window functions",
            call,
            "Put it into FROM.",
        )


# --- FROM ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Item:
    """One FROM item: the relation, what it names, and the columns that * shows."""

    relation: tree.Relation
    named: list[tuple[Named, syntax.Node]]
    visible: list[Visible]


def bind_from(
    sources: Sequence[syntax.FromItem], node: syntax.Node, scope: Scope
) -> tree.Relation | None:
    """Bring the items of FROM in reach, of which none sees what was there; None: there are none."""
    if not sources:
        return None
    count = sum(
        1 + sum(isinstance(part, syntax.Join) for part in _left_spine(item)) for item in sources
    )
    if count > join_tables_max:
        raise _too_many_tables(node, scope)
    items: list[_Item] = []
    for item in sources:
        items.append(_bind_item(item, scope, items))
    source = items[0].relation
    for item in items[1:]:
        source = tree.Join(tree.JoinKind.CROSS, source, item.relation, None)
    before = scope.visible.copy()
    for item in items:
        for named, place in item.named:
            scope.add(named, place)
    scope.visible = before + [visible for item in items for visible in item.visible]
    if len(scope.relations) > join_tables_max:
        raise _too_many_tables(node, scope)
    return source


def _too_many_tables(node: syntax.Node, scope: Scope) -> Error:
    return scope.error("54000", f"more than {join_tables_max} tables in one query", node)


def _left_spine(node: syntax.FromItem) -> list[syntax.FromItem]:
    """Return the joins of a chain, and what it begins with, from the last to the first."""
    found = [node]
    while isinstance(node, syntax.Join):
        node = node.left
        found.append(node)
    return found


def _bind_item(node: syntax.FromItem, scope: Scope, before: Sequence[_Item]) -> _Item:
    """Bind an item, and what is joined to it; functions and LATERAL see the items before it."""
    first, *joins = reversed(_left_spine(node))
    item = _bind_single(first, scope, before)
    for join in joins:
        if isinstance(join, syntax.Join):
            item = _bind_join(item, join, scope, before)
    return item


def _around(scope: Scope, before: Sequence[_Item]) -> Scope:
    """Return the scope of what may name columns of the items before it."""
    return Scope(
        scope.context,
        [named for item in before for named, _ in item.named],
        "FROM clause of their own query level",
        outer=scope.outer,
        visible=[visible for item in before for visible in item.visible],
    )


def _bind_single(node: syntax.FromItem, scope: Scope, before: Sequence[_Item]) -> _Item:
    own = Scope(scope.context, outer=scope.outer)
    if isinstance(node, syntax.TableName):
        cte = scope.cte(node.name)
        relation = _stored(node, own) if cte is None else _cte_ref(node, cte, own)
    elif isinstance(node, syntax.Derived | syntax.FunctionItem):
        if isinstance(node, syntax.Derived):
            outer = _around(scope, before) if node.is_lateral else scope.outer
            query = bind_query(node.query, scope.context, outer)
            alias, is_lateral = node.alias, node.is_lateral
        else:
            call = node.call
            alias, is_lateral = node.alias or call.name, True
            query = bind_table_function(
                call, alias, _around(scope, before), has_ordinality=node.has_ordinality
            )
        renamed = own.renamed(node.columns, len(query.columns), node)
        id_ = scope.context.next_relation()
        relation = tree.Derived(id_, query, alias, is_lateral=is_lateral)
        _add_derived(own, id_, alias, query.columns, renamed, node)
    else:
        raise TypeError("a chain of joins begins with none")
    return _Item(relation, [(named, node) for named in own.relations], own.visible)


def _stored(node: syntax.TableName, own: Scope) -> tree.Relation:
    """Bring a table in reach, or a view as the query that it stands for."""
    context = own.context
    table = context.table(node)
    if table.sequence is not None:
        hint = "SELECT … FROM syssequences shows how far it is; nextval() takes its next value."
        raise not_a("table", table.name, context.position(node), hint)
    if table.view is None:
        return own.add_table(node)
    columns = [(column.name, column.type) for _, column in context.columns(table)]
    query = _view_query(table, table.view.text, node, context)
    alias, id_ = node.alias or table.name, context.next_relation()
    renamed = own.renamed(node.columns, len(columns), node)
    _add_derived(own, id_, alias, columns, renamed, node)
    return tree.Derived(id_, query, alias, table, context.view)


def _view_query(
    table: Table, text: str, node: syntax.TableName, context: StatementContext
) -> tree.Query:
    """Bind a view's text; its columns have the types that they had when the view was made."""
    check = context.budget.check_interrupt
    inner = context.inside(table, scan(text, check), node.start)
    found = read(inner.scanned, check)
    assert isinstance(found, syntax.Query)
    query = bind_query(found, inner)
    return retarget(query, [column.type for column in table.visible_columns], node, inner)


def _cte_ref(node: syntax.TableName, cte: tree.Cte, own: Scope) -> tree.CteRef:
    alias = node.alias or cte.name
    ref = tree.CteRef(own.context.next_relation(), cte.id, alias)
    renamed = own.renamed(node.columns, len(cte.query.columns), node)
    _add_derived(own, ref.id, alias, cte.query.columns, renamed, node)
    return ref


def _add_derived(
    own: Scope,
    relation: int,
    alias: str,
    columns: Sequence[tuple[str, SqlType]],
    names: Sequence[str],
    node: syntax.Node,
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


def _bind_join(left: _Item, node: syntax.Join, scope: Scope, before: Sequence[_Item]) -> _Item:
    right = _bind_item(node.right, scope, [*before, left])
    kind = tree.JoinKind(node.kind)
    if kind in (tree.JoinKind.RIGHT, tree.JoinKind.FULL):
        _check_apart(left, right, node, scope)
    named, visible = left.named + right.named, left.visible + right.visible
    if kind is tree.JoinKind.CROSS:
        return _Item(tree.Join(kind, left.relation, right.relation, None), named, visible)
    if node.condition is None:
        return _bind_using(left, right, kind, node.using, node, scope)
    reached = [relation for relation, _ in named]
    own = Scope(scope.context, reached, "JOIN conditions", outer=scope.outer, visible=visible)
    bound = bind_condition(node.condition, own, "argument of JOIN/ON")
    return _Item(tree.Join(kind, left.relation, right.relation, bound), named, visible)


def _check_apart(left: _Item, right: _Item, node: syntax.Join, scope: Scope) -> None:
    """Refuse a LATERAL that names what its rows are there without (42P10)."""
    joined = {named.id: named.alias for named, _ in left.named}
    for part in tree.walk(right.relation):
        if isinstance(part, tree.ColumnRef) and part.relation in joined:
            raise scope.error(
                "42P10",
                f'invalid reference to FROM-clause entry for table "{joined[part.relation]}"',
                node.right,
                "The combining JOIN type must be INNER or LEFT for a LATERAL reference.",
            )


def _bind_using(
    left: _Item,
    right: _Item,
    kind: tree.JoinKind,
    using: Sequence[str] | None,
    node: syntax.Join,
    scope: Scope,
) -> _Item:
    """Join on equal names; these columns are shown once, first, and a bare name means the one."""
    names = using
    if names is None:
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


def _only_one(name: str, item: _Item, node: syntax.Join, scope: Scope) -> tree.Expression:
    found = [visible.expression for visible in item.visible if visible.name == name]
    if len(found) == 1:
        return found[0]
    if not found:
        message = f'column "{name}" of USING is not on both sides'
        raise scope.error("42703", message, node)
    raise scope.error("42702", f'column "{name}" of USING is ambiguous', node)


# --- select list ---------------------------------------------------------------------------------


def bind_outputs(
    nodes: Sequence[syntax.Output], scope: Scope, *, is_open: bool = False
) -> list[tree.Output]:
    """Bind a select list, or what is like one; open: see bind_query()."""
    outputs: list[tree.Output] = []
    bind = _bind_open_output if is_open else bind_expression
    for item in nodes:
        node = item.expression
        if isinstance(node, syntax.Star):
            outputs += _expand_star(node, scope)
        elif item.alias is not None:
            outputs.append(tree.Output(item.alias, bind(node, scope)))
        else:
            bound = bind(node, scope)
            outputs.append(tree.Output(_named(node, bound)[0], bound))
    if len(outputs) > columns_max:
        raise scope.error("54011", f"more than {columns_max} columns in a select list")
    return outputs


def _bind_open_output(node: syntax.Node, scope: Scope) -> tree.Expression:
    """Bind an output whose type, where it has none of its own, is decided by what is around."""
    bound = bind_open(node, scope)
    is_constant = isinstance(bound, tree.Literal) and bound.type.kind is not Kind.UNKNOWN
    return scope.settle(bound) if is_constant else bound


def _expand_star(node: syntax.Star, scope: Scope) -> list[tree.Output]:
    if node.table is not None:
        named = scope.relation(node.table, node)
        return [
            tree.Output(name, tree.ColumnRef(kind, named.id, ordinal, name))
            for name, kind, ordinal in named.columns
        ]
    if not scope.relations:
        raise scope.error("42601", "SELECT * needs a FROM", node)
    return [tree.Output(visible.name, visible.expression) for visible in scope.visible]


def _named(node: syntax.Node, expression: tree.Expression) -> tuple[str, bool]:
    """Return the name of a value, by PostgreSQL's FigureColname; and whether it stays under a cast.

    It is that of an output without AS.
    """
    while isinstance(node, syntax.Paren):
        node = node.operand
    while isinstance(expression, (tree.Cast, tree.Let)):
        if isinstance(expression, tree.Let):
            expression = expression.body
        else:
            expression = expression.operand
    if isinstance(node, syntax.Column):
        return node.name, True
    if isinstance(node, syntax.Subquery):
        is_query = isinstance(expression, tree.ScalarSubquery)
        return (expression.query.columns[0][0] if is_query else _NO_NAME), True
    if isinstance(node, syntax.Cast):
        name, is_kept = _named(node.operand, expression)
        return (name, True) if is_kept else (type_label(node.type), False)
    if isinstance(node, syntax.Case):
        if node.otherwise is None or not isinstance(expression, tree.Case):
            return "case", False
        name, is_kept = _named(node.otherwise, expression.otherwise or expression)
        return (name, True) if is_kept else ("case", False)
    if isinstance(node, syntax.Call):
        is_trim = node.name == "trim"
        return (TRIMS.get(node.side or "", "btrim") if is_trim else node.name), True
    if isinstance(node, syntax.Exists):
        return "exists", True
    if isinstance(node, syntax.Binary) and node.operator == "at time zone":
        return "timezone", True
    return _NO_NAME, False


# --- GROUP BY, ORDER BY, LIMIT -------------------------------------------------------------------


def _bind_group_by(
    node: syntax.Select, outputs: Sequence[tree.Output], scope: Scope
) -> tuple[tuple[tree.Expression, ...], tuple[tuple[int, ...], ...]]:
    """Return the keys, and the sets of them that rows are grouped by; none: by all of them."""
    if not any(isinstance(item, syntax.GroupingSets) for item in node.group_by):
        return tuple(dict.fromkeys(_bind_keys(node.group_by, outputs, scope))), ()
    places: dict[tree.Expression, int] = {}
    numbers: dict[int, int] = {}  # by id() of a node, which many sets have and is bound once
    sets: list[tuple[int, ...]] = [()]
    for item in node.group_by:
        found = sets_of(item if isinstance(item, syntax.GroupingSets) else [item])
        _check_set_count(len(sets) * len(found), item, scope)
        for key in {id(key): key for keys in found for key in keys}.values():
            (expression,) = _bind_keys([key], outputs, scope)
            numbers[id(key)] = places.setdefault(expression, len(places))
        bound = [[numbers[id(key)] for key in keys] for keys in found]
        sets = [tuple(dict.fromkeys((*first, *more))) for first in sets for more in bound]
    if node.is_group_distinct:
        sets = list({frozenset(each): each for each in reversed(sets)}.values())[::-1]
    return tuple(places), tuple(sets)


def _check_set_count(count: int, node: syntax.Node, scope: Scope) -> None:
    if count > grouping_sets_max:
        message = f"too many grouping sets present (maximum {grouping_sets_max})"
        raise scope.error("54001", message, node)


def _check_groupings(
    expressions: Sequence[tree.Expression],
    group_by: Sequence[tree.Expression],
    scope: Scope,
    node: syntax.Select,
) -> None:
    """Refuse GROUPING of what is no key (42803)."""
    for part in tree.walk(tuple(expressions), is_deep=False):
        if not isinstance(part, tree.Aggregate) or part.function != GROUPING:
            continue
        if not set(part.arguments).issubset(group_by):
            raise scope.error(
                "42803",
                "arguments to GROUPING must be grouping expressions of the associated query level",
                node,
            )


def _bind_keys(
    nodes: Sequence[syntax.Node], outputs: Sequence[tree.Output], scope: Scope
) -> list[tree.Expression]:
    scope.clause = "GROUP BY"
    keys: list[tree.Expression] = []
    for item in nodes:
        expression = _by_ordinal(item, outputs, scope, "GROUP BY")
        if expression is None and _is_bare(item) and not _is_column(item, scope):
            expression = _by_name(item, outputs, scope)
        if expression is None:
            expression = bind_expression(item, scope)
        if any(isinstance(part, tree.Aggregate) for part in tree.walk(expression, is_deep=False)):
            raise scope.error("42803", "aggregates are not allowed in GROUP BY", item)
        if any(isinstance(part, tree.Window) for part in tree.walk(expression, is_deep=False)):
            message = "window functions are not allowed in GROUP BY"
            raise scope.error("42P20", message, item)
        keys.append(expression)
    scope.clause = None
    return keys


def _bind_sort_item(
    node: syntax.Node, outputs: Sequence[tree.Output], scope: Scope, clause: str
) -> tree.Expression:
    """Bind an ordinal, the name of an output, or an expression."""
    expression = _by_ordinal(node, outputs, scope, clause)
    if expression is None and _is_bare(node):
        expression = _by_name(node, outputs, scope)
    if expression is None:
        expression = bind_expression(node, scope)
    return _by_output(expression, outputs)


def _by_output(key: tree.Expression, outputs: Sequence[tree.Output]) -> tree.Expression:
    """Return a key that is computed for the result anyway as a reference to that output.

    A constant that an open query leaves untyped is one, too: `retarget` gives the output its type.
    """
    if isinstance(key, tree.Atom) and not _is_untyped(key):
        return key
    for ordinal, output in enumerate(outputs):
        if output.expression == key:
            return tree.ColumnRef(key.type, tree.OUTPUT, ordinal, output.name)
    return key


def _output_keys(
    items: Sequence[syntax.SortKey],
    columns: Sequence[tuple[str, SqlType]],
    context: StatementContext,
) -> tuple[tree.SortKey, ...]:
    """Bind ORDER BY over what has output columns only: their names and numbers."""
    scope = Scope(context)
    outputs = [
        tree.Output(name, tree.ColumnRef(kind, tree.OUTPUT, ordinal, name))
        for ordinal, (name, kind) in enumerate(columns)
    ]

    def bind(node: syntax.Node) -> tree.Expression:
        expression = _by_ordinal(node, outputs, scope, "ORDER BY")
        if expression is None and _is_bare(node):
            expression = _by_name(node, outputs, scope) or bind_expression(node, scope)
        if expression is None:
            raise context.error(
                "0A000",
                "ORDER BY here takes names and numbers of result columns only",
                node,
                "Put the query into FROM: SELECT … FROM (…) AS q ORDER BY …",
            )
        return expression

    return sort_keys(items, bind)


def _by_ordinal(
    node: syntax.Node, outputs: Sequence[tree.Output], scope: Scope, clause: str
) -> tree.Expression | None:
    if not isinstance(node, (syntax.Number, syntax.String, syntax.Constant)):
        return None
    if not isinstance(node, syntax.Number) or not node.text.isdecimal():
        raise scope.error("42601", f"a constant in {clause} must be a whole number", node)
    if not 1 <= int(node.text[:10]) <= len(outputs):
        raise scope.error("42P10", f"{clause} position {node.text} is not in the select list", node)
    return outputs[int(node.text) - 1].expression


def _is_bare(node: syntax.Node) -> TypeGuard[syntax.Column]:
    return isinstance(node, syntax.Column) and node.table is None


def _is_column(node: syntax.Column, scope: Scope) -> bool:
    return any(visible.name == node.name for visible in scope.visible)


def _by_name(
    node: syntax.Column, outputs: Sequence[tree.Output], scope: Scope
) -> tree.Expression | None:
    found = list(dict.fromkeys(o.expression for o in outputs if o.name == node.name))
    if len(found) > 1:
        raise scope.error("42702", f'"{node.name}" is ambiguous', node)
    return found[0] if found else None


def _check_grouping(
    expressions: Sequence[tree.Expression],
    group_by: tuple[tree.Expression, ...],
    scope: Scope,
    node: syntax.Node,
    relations: Sequence[Named],
) -> tuple[tree.Expression, ...]:
    """Refuse columns that are not one per group (42803); return the keys, grown by what they fix.

    Where the whole key of one of the relations is grouped by, its other columns are fixed too. In a
    subquery a key is known only if it is a column: what is computed from others is computed for
    each row there.
    """
    grown = list(group_by)
    for named in relations:
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
        for found in tree.walk(expression, keys, is_deep=False):
            parts: Iterable[tree.Expression] = (found,)
            if isinstance(found, tree.Subquery) and found not in keys:
                parts = tree.walk(found.query)
            for part in parts:
                if isinstance(part, tree.ColumnRef) and part not in keys and part.relation in own:
                    raise scope.error(
                        "42803",
                        f'column "{part.name}" must be in GROUP BY or in an aggregate',
                        _first_column(node, part.name),
                    )
    return tuple(keys)


def _first_column(node: syntax.Node, name: str) -> syntax.Node | None:
    found = [
        part for part in syntax.walk(node) if isinstance(part, syntax.Column) and part.name == name
    ]
    return min(found, key=lambda column: column.start, default=None)


def _bind_limits(
    node: syntax.Query, context: StatementContext
) -> tuple[tree.Expression | None, tree.Expression | None]:
    bound: list[tree.Expression | None] = []
    for clause, value in (("limit", node.limit), ("offset", node.offset)):
        if value is None or (isinstance(value, syntax.Constant) and value.value is None):
            bound.append(None)
            continue
        if isinstance(value, syntax.Column):
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
    node: syntax.Values, context: StatementContext, outer: Scope | None, is_open: bool
) -> tree.Query:
    scope = Scope(context, clause="VALUES", outer=outer)
    rows = [[bind_open(item, scope) for item in row] for row in node.rows]
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
    keys = _output_keys(node.order, shown, context)
    limit, offset = _bind_limits(node, context)
    body = tree.Values(tuple(zip(*columns, strict=True)), names)
    return tree.Query(body, shown, (), tuple(keys), limit, offset)


# --- set operations ------------------------------------------------------------------------------


def _bind_set_operation(
    node: syntax.SetOperation, context: StatementContext, outer: Scope | None
) -> tree.Query:
    operator = node.operator
    left = bind_query(node.left, context, outer, is_open=True)
    right = bind_query(node.right, context, outer, is_open=True)
    if len(left.columns) != len(right.columns):
        raise _unequal_width(operator, left, right, node, context)
    types = [
        _meet(a, b, operator, node, context)
        for (_, a), (_, b) in zip(left.columns, right.columns, strict=True)
    ]
    for side in (left, right):
        types = [
            reduce(lambda found, part: met_by(found, part, context), parts, kind)
            for kind, parts in zip(types, _untyped_columns(side), strict=True)
        ]
    body = tree.SetOperation(
        operator,
        node.is_all,
        retarget(left, types, node, context),
        retarget(right, types, node, context),
    )
    columns = tuple((name, kind) for (name, _), kind in zip(left.columns, types, strict=True))
    keys = _output_keys(node.order, columns, context)
    limit, offset = _bind_limits(node, context)
    return tree.Query(body, columns, (), tuple(keys), limit, offset)


def _unequal_width(
    operator: str,
    left: tree.Query,
    right: tree.Query,
    node: syntax.SetOperation,
    context: StatementContext,
) -> Error:
    return context.error(
        "42601",
        f"each {operator} query must have the same number of columns, found "
        f"{len(left.columns)} and {len(right.columns)}",
        node,
    )


def _meet(
    left: SqlType, right: SqlType, operator: str, node: syntax.Node, context: StatementContext
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


def _untyped_columns(query: tree.Query) -> Sequence[Sequence[tree.Expression]]:
    """Return the expressions of each column that an open query may have left untyped."""
    if isinstance(query.body, tree.Values):
        return tuple(zip(*query.body.rows, strict=True))
    outputs = query.body.outputs if isinstance(query.body, tree.Select) else ()
    found = [(output.expression,) for output in outputs]
    return found or [()] * len(query.columns)


def retarget(
    query: tree.Query,
    types: Sequence[SqlType],
    node: syntax.Node,
    context: StatementContext,
    stored_in: Sequence[str] | None = None,
) -> tree.Query:
    """Return the query with its columns converted; untyped constants of it take the types.

    stored_in: the columns of a table that the query's are for.
    """
    names: Sequence[str | None] = [None] * len(types) if stored_in is None else stored_in
    found = [kind for _, kind in query.columns]
    body, scope = query.body, Scope(context)
    outputs = body.outputs if isinstance(body, tree.Select) else ()
    is_settled = not any(_is_untyped(output.expression) for output in outputs)
    if found == list(types) and UNKNOWN not in found and is_settled:
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
            if _is_untyped(output.expression)
            else output
            for output, kind, name in zip(body.outputs, types, names, strict=True)
        )
        shown = tuple((output.name, output.expression.type) for output in outputs)
        query = replace(query, body=replace(body, outputs=outputs), columns=shown)
    if [kind for _, kind in query.columns] == list(types):
        return query
    return _wrap(query, types, context)


def _is_untyped(expression: tree.Expression) -> bool:
    """Tell whether an open query left it for what stands around to settle."""
    is_pending = isinstance(expression, tree.Parameter) and expression.index < 0
    return is_pending or expression.type.kind is Kind.UNKNOWN


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


def _shared(bound: tree.Expression, scope: Scope) -> tree.Expression:
    """Return the equal subquery that its SELECT has already: as keys of GROUP BY they are one."""
    if scope.subqueries is None:
        return bound
    return scope.subqueries.setdefault(tree.shape(bound), bound)


def _bind_scalar(node: syntax.Subquery, scope: Scope) -> tree.Expression:
    query = _bind_column_query(node, scope)
    return _shared(tree.ScalarSubquery(query.columns[0][1], query), scope)


def _bind_exists(node: syntax.Exists, scope: Scope) -> tree.Expression:
    query = node.query
    if isinstance(query, syntax.Select) and not query.outputs:  # which no rows are looked at for
        query.outputs = [syntax.Output(syntax.Constant(True, node.start), None)]
    return _shared(tree.Exists(BOOLEAN, bind_query(node.query, scope.context, scope)), scope)


def _bind_column_query(node: syntax.Query, scope: Scope) -> tree.Query:
    query = bind_query(node, scope.context, scope)
    if len(query.columns) != 1:
        raise scope.error(
            "42601", f"subquery must return one column, it has {len(query.columns)}", node
        )
    return query


def _bind_in_query(node: syntax.In, scope: Scope) -> tree.Expression:
    assert node.query is not None
    if isinstance(node.operand, syntax.Row):
        return _bind_row_in_query(node.operand, node.query, node, scope)
    operand, query = _meet_query("=", node.operand, node.query, node, scope)
    return _shared(tree.InQuery(BOOLEAN, operand, query, False), scope)


def _bind_row_in_query(
    row: syntax.Row, query_node: syntax.Query, node: syntax.In, scope: Scope
) -> tree.Expression:
    operands = [bind_open(item, scope) for item in row.items]
    query = bind_query(query_node, scope.context, scope)
    if len(query.columns) != len(operands):
        few = "few" if len(query.columns) < len(operands) else "many"
        raise scope.error("42601", f"subquery has too {few} columns", node)
    met = [
        _met("=", operand, kind, node, scope)
        for operand, (_, kind) in zip(operands, query.columns, strict=True)
    ]
    query = retarget(query, [operand.type for operand in met], node, scope.context)
    return _shared(tree.RowInQuery(BOOLEAN, tuple(met), query), scope)


def _meet_query(
    operator: str,
    operand_node: syntax.Node,
    query_node: syntax.Query,
    node: syntax.Node,
    scope: Scope,
) -> tuple[tree.Expression, tree.Query]:
    operand = bind_open(operand_node, scope)
    query = _bind_column_query(query_node, scope)
    ((_, found),) = query.columns
    met = _met(operator, operand, found, node, scope)
    return met, retarget(query, [met.type], node, scope.context)


def _met(
    operator: str, operand: tree.Expression, found: SqlType, node: syntax.Node, scope: Scope
) -> tree.Expression:
    """Return the operand of the type that it has in common with a column of a query (42883)."""
    if operand.type.kind is Kind.UNKNOWN:
        return convert(operand, met_by(found, operand, scope.context), node, scope)
    operand = scope.settle(operand)
    common = operand.type
    if operand.type != found:
        target = conversions.operand_type(operand.type, found)
        if target is None:
            other = tree.Literal(found, None)
            raise no_operator(operator, operand, other, node, scope)
        common = target
    return convert(operand, common, node, scope)


def _bind_quantified(node: syntax.Quantified, scope: Scope) -> tree.Expression:
    """Bind operand operator ANY | ALL (query)."""
    if not isinstance(node.right, syntax.Query):
        raise scope.error("0A000", "ANY and ALL take a query only", node)
    operand, query = _meet_query(node.operator, node.operand, node.right, node, scope)
    return _shared(tree.Quantified(BOOLEAN, operand, node.operator, query, node.is_all), scope)


BINDERS[syntax.Subquery] = _bind_scalar
BINDERS[syntax.Exists] = _bind_exists
QUERY_BINDERS["in"] = _bind_in_query
QUERY_BINDERS["quantified"] = _bind_quantified
