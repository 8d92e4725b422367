"""Statements: INSERT, UPSERT, UPDATE, DELETE, CREATE and DROP TABLE; the rest is bind_query's."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlglot import exp

from herdpy.limits import columns_max, identifier_bytes_max
from herdpy.model.schema import ROW_ID_NAME, Column, Table
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
from herdpy.sql.bind_aggregate import AGGREGATE_BINDERS
from herdpy.sql.bind_expression import BINDERS as EXPRESSION_BINDERS
from herdpy.sql.bind_expression import (
    assign,
    bind_condition,
    bind_open,
    bind_type,
    check_assignable,
)
from herdpy.sql.bind_query import bind_query, bind_with, retarget, row_items
from herdpy.sql.parse import INSTEAD_OF_REPLACING, fold_name
from herdpy.sql.scope import Scope, StatementContext, suggestion

EXPRESSION_BINDERS.update(AGGREGATE_BINDERS)

_NOT_YET = {
    exp.UniqueColumnConstraint: "UNIQUE beside the primary key",
    exp.CheckColumnConstraint: "CHECK",
    exp.Check: "CHECK",
    exp.Reference: "REFERENCES",
    exp.ForeignKey: "FOREIGN KEY",
    exp.GeneratedAsIdentityColumnConstraint: "GENERATED AS IDENTITY",
    exp.PrimaryKeyColumnConstraint: "PRIMARY KEY without its columns in ()",
    exp.CollateColumnConstraint: "COLLATE",
    exp.ComputedColumnConstraint: "GENERATED ALWAYS AS",
    exp.LikeProperty: "LIKE",
    exp.ExcludeColumnConstraint: "EXCLUDE",
}


def bind_statement(node: exp.Expr, context: StatementContext, *, is_upsert: bool) -> tree.Statement:
    """Bind one parsed statement; 0A000 for kinds that there are not."""
    if isinstance(node, (exp.Select, exp.Values, exp.SetOperation, exp.Subquery)):
        return tree.SelectStatement(bind_query(node, context))
    if isinstance(node, exp.Insert):
        insert = _bind_insert(node, context, is_upsert)
        _check_writable(insert.table, context)
        return insert
    binder = _BINDERS.get(type(node))
    if binder is None:
        words = " ".join(filter(None, map(context.scanned.word, range(2))))
        raise context.error("0A000", f"{words} is not supported")
    return binder(node, context)


def _check_writable(table: Table, context: StatementContext) -> None:
    if table.is_system:
        raise context.error("42501", f'"{table.name}" is a system table: it is only read')


# --- rows ----------------------------------------------------------------------------------------


def _bind_insert(node: Any, context: StatementContext, is_upsert: bool) -> tree.Insert:
    word = "UPSERT" if is_upsert else "INSERT"
    context.only(node, ("this", "expression", "default", "with_", "conflict"), word)
    conflict = node.args.get("conflict")
    if conflict is not None and is_upsert:
        raise context.error("0A000", "UPSERT with ON CONFLICT is not supported", node)
    insert = _bind_rows(node, context, is_upsert)
    if conflict is None:
        return insert
    _check_conflict(conflict, insert.table, context)
    return replace(insert, skips_conflicts=True)


def _check_conflict(node: Any, table: Table, context: StatementContext) -> None:
    """Refuse what is not ON CONFLICT [(the primary key's columns)] DO NOTHING."""
    if str(node.args.get("action")).upper() != "DO NOTHING":
        words = "ON DUPLICATE KEY" if node.args.get("duplicate") else "ON CONFLICT DO"
        message = f"{words} UPDATE is not supported"
        raise context.error("0A000", message, node, INSTEAD_OF_REPLACING)
    context.only(node, ("action", "conflict_keys"), "ON CONFLICT")
    items = node.args.get("conflict_keys") or ()
    names: list[str] = []
    for item in items:
        column = item.this if isinstance(item, exp.Ordered) else item
        if not isinstance(column, exp.Column) or column.args.get("table") is not None:
            raise context.error("0A000", "ON CONFLICT takes names of columns", node)
        names.append(table.columns[_ordinal(table, column.this, context)].name)
    if items and (table.is_heap or set(names) != set(table.key_names)):
        key = "it has none" if table.is_heap else ", ".join(table.key_names)
        raise context.error(
            "42P10",
            "there is no unique constraint matching the ON CONFLICT specification",
            node,
            f'The primary key of "{table.name}": {key}.',
        )


def _bind_rows(node: Any, context: StatementContext, is_upsert: bool) -> tree.Insert:
    target, names = node.this, None
    if isinstance(target, exp.Schema):
        target, names = target.this, target.expressions
    table = context.table(target)
    if names is None:
        ordinals = [o for o, column in enumerate(table.columns) if not column.hidden]
    else:
        ordinals = [_ordinal(table, name, context) for name in names]
    if len(set(ordinals)) != len(ordinals):
        raise context.error("42701", "a column is named twice", node)
    if node.args.get("default"):
        return tree.Insert(table, (), ((),), None, is_upsert)
    source = node.expression
    if source is None:
        raise context.error("42601", "INSERT needs VALUES or a query", node)
    tail = ("order", "limit", "offset", "with_")
    if (
        isinstance(source, exp.Values)
        and not node.args.get("with_")
        and not any(source.args.get(clause) for clause in tail)
    ):
        return _bind_insert_values(source, table, ordinals, names is None, context, is_upsert)
    outer, ctes = (
        bind_with(node.args["with_"], context, None) if node.args.get("with_") else (None, ())
    )
    query = bind_query(source, context, outer, is_open=True)
    query = replace(query, ctes=ctes + query.ctes)
    ordinals = _matching(ordinals, len(query.columns), names is None, source, context)
    columns = [table.columns[ordinal] for ordinal in ordinals]
    types: list[SqlType] = []
    for column, (_, kind) in zip(columns, query.columns, strict=True):
        check_assignable(kind, column.type, column.name, source, context)
        types.append(_wanted(kind, column.type))
    query = retarget(query, types, source, context, [column.name for column in columns])
    return tree.Insert(table, tuple(ordinals), None, query, is_upsert)


def _wanted(found: SqlType, column: SqlType) -> SqlType:
    """Return what the query makes of an output for its column; others are converted by the row."""
    if found.kind not in (Kind.UNKNOWN, Kind.INTERVAL):
        return found
    return TEXT if column.kind is Kind.TEXT else column


def _bind_insert_values(
    node: Any,
    table: Table,
    ordinals: list[int],
    is_implicit: bool,
    context: StatementContext,
    is_upsert: bool,
) -> tree.Insert:
    scope = Scope(context, clause="VALUES")
    rows = [row_items(row) for row in node.expressions]
    width = len(rows[0])
    for row, items in zip(node.expressions, rows, strict=True):
        if len(items) != width:
            raise context.error("42601", "VALUES rows must all have the same length", row)
    ordinals = _matching(ordinals, width, is_implicit, node, context)
    # A column that is DEFAULT in every row is one that was not named.
    kept = [i for i in range(width) if not all(_is_default(items[i]) for items in rows)]
    bound = tuple(
        tuple(_bind_value(items[i], table.columns[ordinals[i]], scope) for i in kept)
        for items in rows
    )
    return tree.Insert(table, tuple(ordinals[i] for i in kept), bound, None, is_upsert)


def _bind_value(node: Any, column: Column, scope: Scope) -> tree.Expression:
    if not _is_default(node):
        return assign(bind_open(node, scope), column.type, column.name, node, scope)
    if column.default_sql is not None:
        if column.type in (TIMESTAMP, TIMESTAMPTZ):
            return scope.context.now(column.type)
        return tree.Cast(column.type, scope.context.now(TIMESTAMP))
    return tree.Literal(column.type, column.default)


def _is_default(node: Any) -> bool:
    """Tell whether the item is the word DEFAULT, which sqlglot reads as a variable or a column."""
    if isinstance(node, exp.Column):
        return node.args.get("table") is None and _is_default(node.this)
    if isinstance(node, exp.Identifier) and node.args.get("quoted"):
        return False
    return isinstance(node, (exp.Var, exp.Identifier)) and node.name.upper() == "DEFAULT"


def _matching(
    ordinals: list[int], count: int, is_implicit: bool, node: Any, context: StatementContext
) -> list[int]:
    """Return the ordinals that count values go to; 42601 when they do not match."""
    if count < len(ordinals) and is_implicit:
        return ordinals[:count]
    if count != len(ordinals):
        raise context.error(
            "42601", f"INSERT has {count} expressions for {len(ordinals)} columns", node
        )
    return ordinals


def _bind_update(node: Any, context: StatementContext) -> tree.Update:
    _refuse_other_tables(node, context)
    context.only(node, ("this", "expressions", "where"), "UPDATE")
    scope = Scope(context, clause="UPDATE")
    target = scope.add_table(node.this)
    _check_writable(target.table, context)
    if not node.expressions:
        raise context.error("42601", "UPDATE needs SET", node)
    assignments: dict[int, tree.Expression] = {}
    for item in node.expressions:
        if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
            raise context.error("0A000", "SET takes column = expression", item)
        ordinal = _ordinal(target.table, item.this.this, context)
        column = target.table.columns[ordinal]
        if ordinal in assignments:
            raise context.error("42601", f'column "{column.name}" is set twice', item)
        value = item.expression
        assignments[ordinal] = (
            _bind_value(value, column, scope)
            if _is_default(value)
            else assign(bind_open(value, scope), column.type, column.name, value, scope)
        )
    return tree.Update(target, tuple(assignments.items()), _bind_where(node, scope))


def _bind_delete(node: Any, context: StatementContext) -> tree.Delete:
    _refuse_other_tables(node, context)
    context.only(node, ("this", "where"), "DELETE")
    scope = Scope(context, clause="DELETE")
    target = scope.add_table(node.this)
    _check_writable(target.table, context)
    return tree.Delete(target, _bind_where(node, scope))


def _refuse_other_tables(node: Any, context: StatementContext) -> None:
    for clause, words in (("from_", "UPDATE … FROM"), ("using", "DELETE … USING")):
        if node.args.get(clause):
            raise context.error(
                "0A000",
                f"{words} is not supported",
                node,
                "Use a subquery: WHERE EXISTS (SELECT 1 FROM other WHERE …).",
            )


def _bind_where(node: Any, scope: Scope) -> tree.Expression | None:
    where = node.args.get("where")
    return None if where is None else bind_condition(where.this, scope, "argument of WHERE")


def _ordinal(table: Table, node: exp.Expr, context: StatementContext) -> int:
    name = fold_name(node)
    ordinal = table.ordinal(name)
    if ordinal is None:
        raise context.error(
            "42703",
            f'column "{name}" of table "{table.name}" does not exist',
            node,
            suggestion(name, [column.name for column in table.visible_columns]),
        )
    return ordinal


# --- tables --------------------------------------------------------------------------------------


def _bind_create(node: Any, context: StatementContext) -> tree.CreateTable:
    if node.args.get("expression") is not None:
        raise context.error(
            "0A000",
            "CREATE TABLE AS is not supported",
            node,
            "CREATE TABLE with columns, then INSERT INTO … SELECT.",
        )
    context.only(node, ("this", "kind", "exists"), f"CREATE {node.args.get('kind', '')}")
    schema = node.this
    if not isinstance(schema, exp.Schema) or not isinstance(schema.this, exp.Table):
        raise context.error("42601", "CREATE TABLE needs columns in ()", schema)
    context.only(schema.this, ("this",), "a table name")
    columns: dict[str, Column] = {}
    key_names: list[str] = []
    for item in schema.expressions:
        if isinstance(item, exp.ColumnDef):
            column, is_key = _bind_column_definition(item, context)
            if column.name in columns:
                raise context.error("42701", f'column "{column.name}" is defined twice', item)
            columns[column.name] = column
            found = [column.name] if is_key else []
        else:
            found = _bind_table_constraint(item, context)
        if found and key_names:
            raise context.error("42P16", "a table has one primary key, found two", item)
        key_names += found
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
        columns[name] = _with_not_null(columns[name])
    if len(set(key_names)) != len(key_names):
        raise context.error("42701", "the primary key names a column twice", node)
    if not key_names:
        key_names = [ROW_ID_NAME]
        columns[ROW_ID_NAME] = Column(0, ROW_ID_NAME, BIGINT, not_null=True, hidden=True)
    names = list(columns)
    return tree.CreateTable(
        _new_name(schema.this.this, context),
        tuple(columns.values()),
        tuple(names.index(name) for name in key_names),
        bool(node.args.get("exists")),
    )


def _bind_table_constraint(item: Any, context: StatementContext) -> list[str]:
    """Return the columns of a PRIMARY KEY (…) clause; other constraints are 0A000."""
    if isinstance(item, exp.Constraint) and len(item.expressions) == 1:
        item = item.expressions[0]
    if isinstance(item, exp.PrimaryKey):
        return [
            fold_name(part.this if isinstance(part, exp.Ordered) else part)
            for part in item.expressions
        ]
    if isinstance(item, exp.Identifier):
        raise context.error("42601", f'column "{item.name}" needs a type', item)
    raise context.error("0A000", f"{_feature(item)} is not supported", item)


def _bind_column_definition(node: Any, context: StatementContext) -> tuple[Column, bool]:
    """Return the column, and whether it is marked PRIMARY KEY."""
    context.only(node, ("this", "kind", "constraints"), "a column definition")
    name = _new_name(node.this, context)
    if name == ROW_ID_NAME:
        raise context.error("42939", f'the column name "{name}" is reserved', node)
    if node.args.get("kind") is None:
        raise context.error("42601", f'column "{name}" needs a type', node)
    scope = Scope(context, clause="DEFAULT")
    kind = bind_type(node.args["kind"], scope)
    if kind == INTERVAL:
        raise context.error(
            "0A000",
            f'column "{name}": interval is a type of expressions, not of columns',
            node,
            "Store seconds as numeric(20,6), or two timestamps.",
        )
    is_not_null = is_key = False
    default: Physical = None
    default_sql = None
    for constraint in node.args.get("constraints") or ():
        what = constraint.args.get("kind")
        if isinstance(what, exp.NotNullColumnConstraint):
            is_not_null = not what.args.get("allow_null")
        elif isinstance(what, exp.PrimaryKeyColumnConstraint):
            if is_key:
                raise context.error("42P16", "a table has one primary key, found two", node)
            is_key = True
        elif isinstance(what, exp.DefaultColumnConstraint):
            default, default_sql = _bind_default(what.this, kind, name, scope)
        else:
            raise context.error("0A000", f"{_feature(what)} is not supported", node)
    return Column(0, name, kind, is_not_null, default, default_sql), is_key


def _bind_default(node: Any, kind: SqlType, name: str, scope: Scope) -> tuple[Physical, str | None]:
    is_timestamp = kind in (TIMESTAMP, TIMESTAMPTZ)
    if isinstance(node, exp.CurrentTimestamp) and is_timestamp and not node.this:
        return None, "CURRENT_TIMESTAMP"
    if isinstance(node, exp.CurrentDate) and kind == DATE and not node.this:
        return None, "CURRENT_DATE"
    bound = assign(bind_open(node, scope), kind, name, node, scope)
    if not isinstance(bound, tree.Literal) or isinstance(bound.value, tuple):
        raise scope.context.error(
            "0A000", f'DEFAULT of column "{name}" must be a constant of its type', node
        )
    value = bound.value
    if isinstance(value, str) and kind.length is not None and len(value) > kind.length:
        raise scope.context.error("22001", f'DEFAULT of column "{name}" is too long', node)
    return value, None


def _with_not_null(column: Column) -> Column:
    return Column(
        column.id, column.name, column.type, True, column.default, column.default_sql, column.hidden
    )


def _feature(node: Any) -> str:
    """Return the words of a constraint, not sqlglot's name of its class."""
    return _NOT_YET.get(type(node), "this constraint")


def _new_name(node: exp.Expr, context: StatementContext) -> str:
    name = fold_name(node)
    if not name or len(name.encode()) > identifier_bytes_max:
        raise context.error(
            "42622", f'name "{name}": expected 1 to {identifier_bytes_max} bytes', node
        )
    return name


def _bind_drop(node: Any, context: StatementContext) -> tree.DropTable:
    context.only(node, ("tables", "kind", "exists"), f"DROP {node.args.get('kind', '')}")
    if len(node.args["tables"]) != 1:
        raise context.error("0A000", "DROP TABLE takes one table", node)
    table = node.args["tables"][0]
    context.only(table, ("this",), "a table name")
    name, if_exists = fold_name(table.this), bool(node.args.get("exists"))
    if not if_exists:
        context.table(table)
    return tree.DropTable(name, if_exists)


def _bind_truncate(node: Any, context: StatementContext) -> tree.TruncateTables:
    # Neither inheritance nor foreign keys nor identities are there to take notice of.
    context.only(node, ("expressions", "identity", "option"), "TRUNCATE")
    tables: dict[str, Table] = {}
    for item in node.expressions:
        item.args.pop("only", None)
        table = context.table(item)
        _check_writable(table, context)
        tables[table.name] = table
    return tree.TruncateTables(tuple(tables.values()))


_BINDERS: dict[type[exp.Expr], Callable[[Any, StatementContext], tree.Statement]] = {
    exp.Update: _bind_update,
    exp.Delete: _bind_delete,
    exp.Create: _bind_create,
    exp.Drop: _bind_drop,
    exp.TruncateTable: _bind_truncate,
}
