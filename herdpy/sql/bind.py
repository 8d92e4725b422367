"""Statements: INSERT, UPSERT, UPDATE, DELETE, of tables and views; the rest is bind_query's."""

import dataclasses
from collections.abc import Callable, Container, Sequence
from itertools import count
from typing import Any

from msgspec.structs import replace

from herdpy.errors import not_a
from herdpy.limits import check_bytes_max, checks_max, columns_max, identifier_bytes_max
from herdpy.model.names import generated_name
from herdpy.model.schema import ROW_ID_NAME, Check, Column, FillKind, Index, Table, View
from herdpy.model.sequences import SequenceDefinition
from herdpy.model.types import (
    BIGINT,
    DATE,
    INTERVAL,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Kind,
    Physical,
    SqlType,
)
from herdpy.sql import tree
from herdpy.sql.bind_aggregate import bind_call
from herdpy.sql.bind_expression import BINDERS as EXPRESSION_BINDERS
from herdpy.sql.bind_expression import (
    assign,
    bind_condition,
    bind_open,
    bind_type,
    check_assignable,
)
from herdpy.sql.bind_query import bind_from, bind_outputs, bind_query, bind_with, retarget
from herdpy.sql.reading import syntax
from herdpy.sql.scope import Named, Scope, StatementContext, suggestion
from herdpy.sql.sequences.binding import (
    bind_alter_sequence,
    bind_create_sequence,
    bind_default_of_sequence,
    bind_filling,
    bind_next,
    serial_type,
)

EXPRESSION_BINDERS[syntax.Call] = bind_call


def bind_statement(node: syntax.Node, context: StatementContext) -> tree.Statement:
    if isinstance(node, syntax.Query):
        if (call := _set_config_call(node)) is not None:
            return _bind_set_config(call, context)
        return tree.SelectStatement(bind_query(node, context))
    return BINDERS[type(node)](node, context)


def _set_config_call(node: syntax.Query) -> syntax.Call | None:
    """Return the call of SELECT set_config(…), without anything beside it."""
    if not isinstance(node, syntax.Select) or len(node.outputs) != 1 or node.sources:
        return None
    call = node.outputs[0].expression
    if not isinstance(call, syntax.Call) or call.name != "set_config" or node.where is not None:
        return None
    return call


def _bind_set_config(node: syntax.Call, context: StatementContext) -> tree.SetConfig:
    match node.arguments:
        case [syntax.String(name), syntax.String(value), syntax.Constant(False)]:
            return tree.SetConfig(name.lower(), value)
        case [_, _, syntax.Constant(True)]:
            raise context.error("0A000", "set_config() for one transaction is not supported", node)
        case _:
            what = "set_config() takes two constant texts and FALSE"
            raise context.error("0A000", what, node, "SET name = value does the same.")


def _written(node: syntax.TableName, context: StatementContext) -> Table:
    """Return the table of that name, whose rows are to change."""
    table = context.table(node)
    if table.is_system:
        raise context.error("42501", f'"{table.name}" is a system table: it is only read')
    if table.sequence is not None:
        raise not_a("table", table.name, context.position(node))
    if table.view is not None:
        raise context.error(
            "0A000",
            f'"{table.name}" is a view: its rows cannot be changed',
            node,
            "Write to the tables that it reads.",
        )
    return table


# --- rows ----------------------------------------------------------------------------------------


def _bind_insert(node: syntax.Insert, context: StatementContext) -> tree.Insert:
    scope = Scope(context)
    _written(node.table, context)
    insert = _bind_rows(node, scope.add_table(node.table), context)
    if node.conflict is not None:
        is_by_key, arbiters = _bind_arbiters(node.conflict, insert.table, context)
        insert = replace(
            insert,
            on_conflict=tree.OnConflict(node.conflict.action),
            update=_bind_conflict_update(node, insert.target, context),
            is_by_key=is_by_key,
            arbiters=arbiters,
        )
    return replace(insert, returning=_bind_returning(node.returning, scope))


def _bind_conflict_update(
    node: syntax.Insert, target: tree.TableRef, context: StatementContext
) -> tree.ConflictUpdate | None:
    conflict = node.conflict
    if conflict is None or not conflict.assignments:
        return None
    scope = Scope(context, clause="UPDATE")
    columns = tuple(
        (column.name, column.type, ordinal)
        for ordinal, column in enumerate(target.table.columns)
        if not column.hidden
    )
    scope.add(Named(target.id, target.alias, columns, target.table), node.table)
    excluded = context.next_relation()
    scope.add(Named(excluded, "excluded", columns), node.table)
    assignments = _bind_assignments(conflict.assignments, target.table, scope)
    return tree.ConflictUpdate(excluded, assignments, _bind_where(conflict.where, scope))


def _bind_returning(nodes: list[syntax.Output] | None, scope: Scope) -> tree.Returning:
    """Bind RETURNING over what a statement's scope can name."""
    if nodes is None:
        return None
    scope.clause = "RETURNING"
    outputs = tuple(bind_outputs(nodes, scope))
    relations = {named.id for named in scope.relations}
    for part in tree.walk(outputs):
        if isinstance(part, tree.ColumnRef) and part.relation in relations:
            _check_no_interval(part, scope)
    return outputs


def _check_no_interval(column: tree.ColumnRef, scope: Scope) -> None:
    """Refuse an interval of a joined row: what a change gives is computed of stored types."""
    if column.type == INTERVAL:
        raise scope.error(
            "0A000",
            f'RETURNING with the interval "{column.name}" of a joined row is not supported',
            None,
            "Give it as a text, or as seconds: CAST it in the subquery.",
        )


def _bind_arbiters(
    node: syntax.Conflict, table: Table, context: StatementContext
) -> tuple[bool, tuple[int, ...]]:
    """Return whether rows are in conflict by the primary key, and by which unique indexes.

    Of DO NOTHING without columns by all of them, of UPSERT by the key alone.
    """
    names = {table.columns[_ordinal(table, item, context)].name for item in node.columns}
    unique = {
        number: {table.columns[ordinal].name for ordinal in store.index.columns}
        for number, store in enumerate(table.stores)
        if store.index.is_unique
    }
    if not names:
        if not node.assignments:
            return True, tuple(unique) if node.action == "NOTHING" else ()
        raise context.error(
            "42601",
            "ON CONFLICT DO UPDATE requires the columns that are in conflict",
            syntax.Column("", None, node.start),
            "Write ON CONFLICT (the columns of the primary key, or of a unique index) DO UPDATE.",
        )
    if not table.is_heap and names == set(table.key_names):
        return True, ()
    arbiters = tuple(number for number, columns in unique.items() if columns == names)
    if arbiters:
        return False, arbiters
    keys = [] if table.is_heap else [f"the primary key ({', '.join(table.key_names)})"]
    keys += [f"({', '.join(store.column_names)})" for store in table.unique_stores]
    raise context.error(
        "42P10",
        "there is no unique constraint matching the ON CONFLICT specification",
        syntax.Column(node.columns[0][0], None, node.columns[0][1]),
        f'Unique in "{table.name}": {", ".join(keys[:8]) or "no columns"}.',
    )


def _bind_rows(
    node: syntax.Insert, target: tree.TableRef, context: StatementContext
) -> tree.Insert:
    names, table = node.columns, target.table
    if names is None:
        ordinals = [o for o, column in enumerate(table.columns) if not column.hidden]
    else:
        ordinals = [_ordinal(table, name, context) for name in names]
    if len(set(ordinals)) != len(ordinals):
        raise context.error("42701", "a column is named twice", node)
    source = node.source
    if source is None:
        return _with_sequences(tree.Insert(target, (), ((),), None), context)
    ignored: set[int] = set()
    if node.overriding == "USER":
        ignored = {o for o in ordinals if _is_identity(table.columns[o])}
    if (
        isinstance(source, syntax.Values)
        and node.with_ is None
        and source.with_ is None
        and not source.has_tail
    ):
        return _bind_insert_values(node, source, target, ordinals, ignored, context)
    outer, ctes = (None, ()) if node.with_ is None else bind_with(node.with_, context, None)
    query = bind_query(source, context, outer, is_open=True)
    query = replace(query, ctes=ctes + query.ctes)
    ordinals = _matching(ordinals, len(query.columns), names is None, source, context)
    columns = [table.columns[ordinal] for ordinal in ordinals]
    for ordinal, column in zip(ordinals, columns, strict=True):
        if ordinal not in ignored and node.overriding is None:
            _check_may_be_given(column, source, context)
    types: list[SqlType] = []
    for column, (_, kind) in zip(columns, query.columns, strict=True):
        check_assignable(kind, column.type, column.name, source, context)
        types.append(_wanted(kind, column.type))
    query = retarget(query, types, source, context, [column.name for column in columns])
    if ignored & set(ordinals):
        raise context.error(
            "0A000",
            "OVERRIDING USER VALUE with a query that gives values of identity columns",
            source,
            "Leave these columns out.",
        )
    return _with_sequences(tree.Insert(target, tuple(ordinals), None, query), context)


def _is_identity(column: Column) -> bool:
    return column.filling is not None and column.filling.is_identity


def _check_may_be_given(column: Column, node: syntax.Node, context: StatementContext) -> None:
    """Refuse a value for a column that is GENERATED ALWAYS (428C9)."""
    if column.filling is not None and column.filling.kind is FillKind.ALWAYS:
        raise context.error(
            "428C9",
            f'cannot insert a non-DEFAULT value into column "{column.name}": it is an identity '
            "column defined as GENERATED ALWAYS",
            node,
            "Use OVERRIDING SYSTEM VALUE to override.",
        )


def _with_sequences(insert: tree.Insert, context: StatementContext) -> tree.Insert:
    """Note the sequences that an INSERT takes values of by DEFAULT nextval()."""
    used: list[Table] = []
    for ordinal, column in enumerate(insert.table.columns):
        filling = column.filling
        if filling is None or filling.kind is not FillKind.DEFAULT or ordinal in insert.ordinals:
            continue
        found = context.catalog.table(filling.sequence)
        if found is not None:  # else it is told when the value is taken
            used.append(found)
    return replace(insert, sequences=tuple(used)) if used else insert


def _wanted(found: SqlType, column: SqlType) -> SqlType:
    """Return what the query makes of an output for its column; others are converted by the row."""
    if found.kind not in (Kind.UNKNOWN, Kind.INTERVAL):
        return found
    return TEXT if column.kind is Kind.TEXT else column


def _bind_insert_values(
    insert: syntax.Insert,
    node: syntax.Values,
    target: tree.TableRef,
    ordinals: list[int],
    ignored: set[int],
    context: StatementContext,
) -> tree.Insert:
    """`ignored` are columns that take their default whatever is given."""
    scope = Scope(context, clause="VALUES")
    rows, is_implicit = node.rows, insert.columns is None
    width = len(rows[0])
    for items in rows:
        if len(items) != width:
            message = "VALUES rows must all have the same length"
            raise context.error("42601", message, syntax.Row(items))
    ordinals = _matching(ordinals, width, is_implicit, node, context)
    # A column that is DEFAULT in every row is one that was not named.
    kept = [
        i
        for i in range(width)
        if ordinals[i] not in ignored
        and not all(isinstance(items[i], syntax.Default) for items in rows)
    ]
    if insert.overriding is None:
        for i in kept:
            given = next(item[i] for item in rows if not isinstance(item[i], syntax.Default))
            _check_may_be_given(target.table.columns[ordinals[i]], given, context)
    bound = tuple(
        tuple(_bind_value(items[i], target.table.columns[ordinals[i]], scope) for i in kept)
        for items in rows
    )
    made = tree.Insert(target, tuple(ordinals[i] for i in kept), bound, None)
    return _with_sequences(made, context)


def _bind_value(node: syntax.Node, column: Column, scope: Scope) -> tree.Expression:
    if not isinstance(node, syntax.Default):
        return assign(bind_open(node, scope), column.type, column.name, node, scope)
    if column.takes_values:
        return assign(bind_next(column), column.type, column.name, node, scope)
    if column.default_sql is not None:
        if column.type in (TIMESTAMP, TIMESTAMPTZ):
            return scope.context.now(column.type)
        return tree.Cast(column.type, scope.context.now(TIMESTAMP))
    return tree.Literal(column.type, column.default)


def _matching(
    ordinals: list[int], count: int, is_implicit: bool, node: syntax.Node, context: StatementContext
) -> list[int]:
    """Return the ordinals that count values go to; 42601 when they do not match."""
    if count < len(ordinals) and is_implicit:
        return ordinals[:count]
    if count != len(ordinals):
        raise context.error(
            "42601", f"INSERT has {count} expressions for {len(ordinals)} columns", node
        )
    return ordinals


def _bind_update(node: syntax.Update, context: StatementContext) -> tree.Update:
    scope = Scope(context, clause="UPDATE")
    _written(node.table, context)
    target = scope.add_table(node.table)
    source = bind_from(node.sources, node, scope)
    assignments = _bind_assignments(node.assignments, target.table, scope)
    where = _bind_where(node.where, scope)
    returning = _bind_returning(node.returning, scope)
    return tree.Update(target, assignments, where, returning, source)


def _bind_assignments(
    nodes: list[tuple[str, int, syntax.Node]], table: Table, scope: Scope
) -> tuple[tuple[int, tree.Expression], ...]:
    """Bind SET: columns of the table, values over what the scope can name."""
    assignments: dict[int, tree.Expression] = {}
    for name, start, value in nodes:
        ordinal = _ordinal(table, (name, start), scope.context)
        column = table.columns[ordinal]
        if ordinal in assignments:
            place = syntax.Column(name, None, start)
            raise scope.error("42601", f'column "{column.name}" is set twice', place)
        is_always = column.filling is not None and column.filling.kind is FillKind.ALWAYS
        if is_always and not isinstance(value, syntax.Default):
            raise scope.error(
                "428C9",
                f'column "{column.name}" can only be updated to DEFAULT: it is an identity column '
                "defined as GENERATED ALWAYS",
                value,
            )
        assignments[ordinal] = _bind_value(value, column, scope)
    return tuple(assignments.items())


def _bind_delete(node: syntax.Delete, context: StatementContext) -> tree.Delete:
    scope = Scope(context, clause="DELETE")
    _written(node.table, context)
    target = scope.add_table(node.table)
    source = bind_from(node.sources, node, scope)
    where = _bind_where(node.where, scope)
    return tree.Delete(target, where, _bind_returning(node.returning, scope), source)


def _bind_where(where: syntax.Node | None, scope: Scope) -> tree.Expression | None:
    return None if where is None else bind_condition(where, scope, "argument of WHERE")


def _ordinal(table: Table, place: tuple[str, int], context: StatementContext) -> int:
    """Return the ordinal of a column that is named at a 0-based character; 42703."""
    name, start = place
    ordinal = table.ordinal(name)
    if ordinal is None:
        raise context.error(
            "42703",
            f'column "{name}" of table "{table.name}" does not exist',
            syntax.Column(name, None, start),
            suggestion(name, [column.name for column in table.visible_columns]),
        )
    return ordinal


# --- tables --------------------------------------------------------------------------------------


def _bind_create(node: syntax.CreateTable, context: StatementContext) -> tree.CreateTable:
    columns: dict[str, Column] = {}
    sequences: list[tuple[int, SequenceDefinition]] = []
    keys = [[name for name, _ in key] for key in node.keys]
    place: syntax.Node = node
    for item in node.columns:
        column, sequence = bind_column(item, context)
        if sequence is not None:
            sequences.append((len(columns), sequence))
        if column.name in columns:
            raise context.error("42701", f'column "{column.name}" is defined twice', item)
        columns[column.name] = column
        keys += [[column.name]] * item.key_count
        place = item if item.key_count else place
    if len(keys) > 1:
        raise context.error("42P16", "a table has one primary key, found two", place)
    key_names = [name for key in keys for name in key]
    if not columns or len(columns) > columns_max:
        raise context.error("54011", f"a table has 1 to {columns_max} columns", node)
    for name in key_names:
        if name not in columns:
            raise context.error(
                "42703",
                f'column "{name}" of the key does not exist',
                node,
                suggestion(name, [*columns]),
            )
        columns[name] = dataclasses.replace(columns[name], not_null=True)
    if len(set(key_names)) != len(key_names):
        raise context.error("42701", "the primary key names a column twice", node)
    if not key_names:
        key_names = [ROW_ID_NAME]
        columns[ROW_ID_NAME] = Column(0, ROW_ID_NAME, BIGINT, not_null=True, hidden=True)
    names = list(columns)
    found = tuple(columns.values())
    name = new_name(node.table.name, node.table, context)
    key = tuple(names.index(name) for name in key_names)
    return tree.CreateTable(
        name,
        found,
        key,
        tuple(bind_unique(item, found, context) for item in node.uniques),
        node.if_not_exists,
        _bind_checks(node.checks, Table(0, name, found, key), context) if node.checks else (),
        tuple(sequences),
    )


def _bind_checks(
    nodes: Sequence[syntax.Check], table: Table, context: StatementContext
) -> tuple[Check, ...]:
    """Return the checks that a table is to have, those without a name under PostgreSQL's."""
    if len(nodes) > checks_max:
        what = f"a table has at most {checks_max} CHECK constraints"
        raise context.error("54000", what, nodes[checks_max])
    taken = {node.name for node in nodes if node.name is not None}
    found: list[Check] = []
    for node in nodes:
        check = bind_check(node, table, taken, context)
        taken.add(check.name)
        found.append(check)
    return tuple(found)


def bind_check(
    node: syntax.Check, table: Table, taken: Container[str], context: StatementContext
) -> Check:
    """Return the check of a table, without a name under PostgreSQL's, which none of `taken` is."""
    if len(node.text.encode()) > check_bytes_max:
        what = f"a CHECK has at most {check_bytes_max} bytes of text"
        raise context.error("54000", what, node)
    condition = bind_row_condition(node.condition, table, context)
    if node.name is not None:
        return Check(new_name(node.name, node, context), node.text)
    ordinals = {part.ordinal for part in tree.walk(condition) if isinstance(part, tree.ColumnRef)}
    column = table.columns[ordinals.pop()].name if len(ordinals) == 1 else ""
    names = (generated_name(table.name, column, f"check{n or ''}") for n in count())
    return Check(next(name for name in names if name not in taken), node.text)


def bind_row_condition(
    node: syntax.Node, table: Table, context: StatementContext
) -> tree.Expression:
    """Bind the condition of a CHECK over a row of a table, which is relation 0."""
    for part in syntax.walk(node):
        if isinstance(part, syntax.Query):
            raise context.error("0A000", "cannot use subquery in check constraint", node)
    scope = Scope(context, clause="CHECK")
    columns = tuple(
        (column.name, column.type, ordinal)
        for ordinal, column in enumerate(table.columns)
        if not column.hidden
    )
    scope.add(Named(0, table.name, columns, table), node)
    condition = bind_condition(node, scope, "argument of CHECK")
    _refuse_sequences(condition, "a CHECK", node, context)
    parameters = [part for part in tree.walk(condition) if isinstance(part, tree.Parameter)]
    if any(map(context.is_now, parameters)):
        raise context.error(
            "0A000",
            "the condition of a CHECK is about the row alone, not about the time",
            node,
            "Give a column DEFAULT CURRENT_TIMESTAMP, and compare with that.",
        )
    if parameters:
        raise context.error("42P02", "a CHECK takes no parameters", node)
    return condition


def bind_unique(node: syntax.Unique, columns: Sequence[Column], context: StatementContext) -> Index:
    ordinals = _indexed(node.columns, columns, context)
    name = "" if node.name is None else new_name(node.name, node, context)
    return Index(
        0, name, ordinals, is_unique=True, nulls_distinct=node.nulls_distinct, is_constraint=True
    )


def _indexed(
    named: Sequence[tuple[str, int]], columns: Sequence[Column], context: StatementContext
) -> tuple[int, ...]:
    """Return the ordinals of an index's columns."""
    names = [column.name for column in columns if not column.hidden]
    ordinals: list[int] = []
    for name, start in named:
        place = syntax.Column(name, None, start)
        if name not in names:
            what = f'column "{name}" of an index does not exist'
            raise context.error("42703", what, place, suggestion(name, names))
        if names.index(name) in ordinals:
            raise context.error("42701", f'an index names column "{name}" twice', place)
        ordinals.append(names.index(name))
    return tuple(ordinals)


def _bind_create_index(node: syntax.CreateIndex, context: StatementContext) -> tree.CreateIndex:
    table = context.table(node.table)
    if table.is_system:
        what = f'"{table.name}" is a system table: it has no indexes'
        raise context.error("42501", what, node.table)
    if not table.has_rows:
        raise not_a("table", table.name, position=context.position(node.table))
    index = Index(
        0,
        "" if node.name is None else new_name(node.name, node, context),
        _indexed(node.columns, table.columns, context),
        is_unique=node.is_unique,
        nulls_distinct=node.nulls_distinct,
    )
    return tree.CreateIndex(table, index, node.if_not_exists)


def _bind_drop_index(node: syntax.DropIndex, _context: StatementContext) -> tree.DropIndexes:
    names = dict.fromkeys(name for name, _ in node.names)
    return tree.DropIndexes(tuple(names), node.if_exists)


def bind_column(
    node: syntax.ColumnDefinition, context: StatementContext
) -> tuple[Column, SequenceDefinition | None]:
    """Return a column, and the sequence that is made with it."""
    name = new_name(node.name, node, context)
    if name == ROW_ID_NAME:
        raise context.error("42939", f'the column name "{name}" is reserved', node)
    scope = Scope(context, clause="DEFAULT")
    kind = serial_type(node.type) or bind_type(node.type, scope)
    check_stored(kind, name, node, context)
    default: Physical = None
    default_sql = None
    filled = bind_filling(node, kind, scope)
    if filled is not None:
        filling, sequence = filled
        return Column(0, name, kind, not_null=True, filling=filling), sequence
    filling = bind_default_of_sequence(node.default, kind, name, scope)
    if node.default is not None and filling is None:
        default, default_sql = bind_default(node.default, kind, name, scope)
    column = Column(0, name, kind, node.is_not_null, default, default_sql, filling=filling)
    return column, None


def check_stored(kind: SqlType, name: str, node: syntax.Node, context: StatementContext) -> None:
    """Refuse a type that no column has."""
    if kind == INTERVAL:
        raise context.error(
            "0A000",
            f'column "{name}": interval is a type of expressions, not of columns',
            node,
            "Store seconds as numeric(20,6), or two timestamps.",
        )


def bind_default(
    node: syntax.Node, kind: SqlType, name: str, scope: Scope
) -> tuple[Physical, str | None]:
    if isinstance(node, syntax.Call):
        if node.name in ("current_timestamp", "now") and kind in (TIMESTAMP, TIMESTAMPTZ):
            return None, "CURRENT_TIMESTAMP"
        if node.name == "current_date" and kind == DATE:
            return None, "CURRENT_DATE"
    bound = assign(bind_open(node, scope), kind, name, node, scope)
    if not isinstance(bound, tree.Literal) or isinstance(bound.value, tuple):
        raise scope.error(
            "0A000", f'DEFAULT of column "{name}" must be a constant of its type', node
        )
    value = bound.value
    if isinstance(value, str) and kind.length is not None and len(value) > kind.length:
        raise scope.error("22001", f'DEFAULT of column "{name}" is too long', node)
    return value, None


def _bind_create_as(node: syntax.CreateTableAs, context: StatementContext) -> tree.CreateTableAs:
    name = new_name(node.table.name, node.table, context)
    query = bind_query(node.query, context)
    columns = _columns_of(query, node.columns or [], node, "CREATE TABLE AS", context)
    for column in columns:
        check_stored(column.type, column.name, node, context)
    key = Column(0, ROW_ID_NAME, BIGINT, not_null=True, hidden=True)
    table = tree.CreateTable(name, (*columns, key), (len(columns),), (), node.if_not_exists)
    return tree.CreateTableAs(table, query, node.has_data)


def _columns_of(
    query: tree.Query,
    names: Sequence[tuple[str, int]],
    node: syntax.Node,
    what: str,
    context: StatementContext,
) -> tuple[Column, ...]:
    """Return the columns that a query makes, the first of them under the names that are given."""
    if len(names) > len(query.columns):
        message = f"{what} names {len(names)} columns, its query has {len(query.columns)}"
        raise context.error("42601", message, node)
    columns: dict[str, Column] = {}
    for number, (own, kind) in enumerate(query.columns):
        name = names[number][0] if number < len(names) else own
        if name in columns:
            hint = "Name the columns by AS."
            raise context.error("42701", f'column "{name}" is there twice', node, hint)
        columns[name] = Column(0, name, kind)
    if ROW_ID_NAME in columns:
        raise context.error("42939", f'the column name "{ROW_ID_NAME}" is reserved', node)
    return tuple(columns.values())


def _bind_create_view(node: syntax.CreateView, context: StatementContext) -> tree.CreateView:
    if context.scanned.placeholders:
        raise context.error("42P02", "a view takes no parameters", node)
    name = new_name(node.name.name, node.name, context)
    context.depth = 1  # as it will stand where it is read
    query = bind_query(node.query, context)
    if node.or_replace and name in context.view_names:
        raise context.error("42P17", f'view "{name}" would be read by itself', node.name)
    _refuse_sequences(query, "a view", node, context)
    columns = _columns_of(query, node.columns or [], node, "CREATE VIEW", context)
    tables = {table.name: table for _, table in context.named.values()}
    relations = [(table.name, len(table.visible_columns)) for table in tables.values()]
    return tree.CreateView(
        name,
        columns,
        View(node.text, tuple(relations)),
        tuple(tables.values()),
        node.or_replace,
    )


def _refuse_sequences(
    bound: object, what: str, node: syntax.Node, context: StatementContext
) -> None:
    """Refuse values of sequences in what is bound again wherever it is read."""
    call = next((part for part in tree.walk(bound) if isinstance(part, tree.SequenceCall)), None)
    if call is not None:
        raise context.error("0A000", f"{call.function}() in {what} is not supported", node)


def new_name(name: str, node: syntax.Node, context: StatementContext) -> str:
    if not name or len(name.encode()) > identifier_bytes_max:
        raise context.error(
            "42622", f'name "{name}": expected 1 to {identifier_bytes_max} bytes', node
        )
    return name


def _bind_drop(node: syntax.DropTables, context: StatementContext) -> tree.DropTables:
    if not node.if_exists and node.kind == "table":
        for table in node.tables:
            context.table(table)
    names = dict.fromkeys(table.name for table in node.tables)
    return tree.DropTables(tuple(names), node.if_exists, node.is_cascade, node.kind)


def _bind_truncate(node: syntax.Truncate, context: StatementContext) -> tree.TruncateTables:
    tables: dict[str, Table] = {}
    for item in node.tables:
        if context.table(item).view is not None:
            raise not_a("table", item.name, context.position(item))
        table = _written(item, context)
        tables[table.name] = table
    return tree.TruncateTables(tuple(tables.values()), node.restarts)


BINDERS: dict[type[syntax.Node], Callable[[Any, StatementContext], tree.Statement]] = {
    syntax.Insert: _bind_insert,
    syntax.Update: _bind_update,
    syntax.Delete: _bind_delete,
    syntax.CreateTable: _bind_create,
    syntax.CreateSequence: bind_create_sequence,
    syntax.AlterSequence: bind_alter_sequence,
    syntax.CreateIndex: _bind_create_index,
    syntax.DropIndex: _bind_drop_index,
    syntax.CreateTableAs: _bind_create_as,
    syntax.CreateView: _bind_create_view,
    syntax.DropTables: _bind_drop,
    syntax.Truncate: _bind_truncate,
}
