"""ALTER TABLE, VIEW and INDEX: a table as it was found becomes one as it is to be.

Each action changes the definition that those before it have made, in PostgreSQL's order: what goes
comes first, then types, new columns, and constraints. What rows have to fulfil, and whether they
are written anew, follows from the two definitions.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from herdpy.errors import Error, not_a
from herdpy.limits import alterations_max, checks_max, columns_max, indexes_max
from herdpy.model.schema import Check, Column, Filling, FillKind, Index, Table
from herdpy.model.sequences import SequenceDefinition
from herdpy.model.types import Kind, Physical
from herdpy.sql import tree
from herdpy.sql.bind import (
    bind_check,
    bind_column,
    bind_default,
    bind_unique,
    check_stored,
    new_name,
)
from herdpy.sql.bind_expression import bind_open, bind_type, check_assignable, convert
from herdpy.sql.definitions.checks import (
    columns_in,
    plan_checks,
    with_column_name,
    with_table_name,
)
from herdpy.sql.reading import syntax
from herdpy.sql.reading.reader import read_condition
from herdpy.sql.reading.tokens import scan
from herdpy.sql.scope import Named, Scope, StatementContext, suggestion
from herdpy.sql.sequences.binding import bind_default_of_sequence, bind_identity
from herdpy.sql.text import literal_text


def bind_alter(node: syntax.Alter, context: StatementContext) -> tree.AlterTable | tree.RenameIndex:
    if node.kind == "INDEX":
        (action,) = node.actions
        assert isinstance(action, syntax.RenameTo)
        name = new_name(action.name, action, context)
        return tree.RenameIndex(node.table.name, name, node.if_exists)
    if node.if_exists and context.catalog.table(node.table.name) is None:
        return tree.AlterTable(node.kind)
    table = context.table(node.table)
    if table.is_system:
        what = f'"{table.name}" is a system table: it cannot be altered'
        raise context.error("42501", what, node.table)
    if table.sequence is not None:
        raise not_a("table", table.name, context.position(node.table))
    is_rename = isinstance(node.actions[0], syntax.RenameTo)
    if node.kind == "VIEW" and table.view is None:
        raise not_a("view", table.name, context.position(node.table))
    if table.view is not None and not is_rename:
        raise not_a("table", table.name, context.position(node.table))
    if len(node.actions) > alterations_max:
        what = f"ALTER TABLE takes at most {alterations_max} changes, found {len(node.actions)}"
        raise context.error("54000", what, node.actions[alterations_max])
    change = _Change(table, context)
    for action in sorted(node.actions, key=_pass):
        context.budget.check_interrupt()
        _ACTIONS[type(action)](change, action)
    return change.statement(node.kind)


def _pass(action: syntax.Alteration) -> int:
    """Return when PostgreSQL does an action, of those of a statement."""
    match action:
        case syntax.DropPart():
            return 0
        case syntax.AlterColumn(type=None, is_not_null=True):
            return 4
        case syntax.AlterColumn(type=None, has_default=True, default=default):
            return 0 if default is None else 5
        case syntax.AlterColumn(type=None):
            return 0
        case syntax.AlterColumn():
            return 1
        case syntax.AddColumn():
            return 2
        case syntax.AddConstraint(constraint=syntax.Check()):
            return 3
        case syntax.ValidateConstraint():
            return 6
        case _:
            return 5


class _Change:
    """A definition on its way; one statement's."""

    def __init__(self, table: Table, context: StatementContext) -> None:
        self.table = table
        """As it is so far."""
        self.context = context
        self.is_cascade = False
        self._found = table
        self._ref = tree.TableRef(context.next_relation(), table, table.name)
        self._sources: list[tree.Expression | None] = [
            tree.ColumnRef(column.type, self._ref.id, ordinal, column.name)
            for ordinal, column in enumerate(table.columns)
        ]
        """By column what it has of a row that is there; None: its default."""
        self._lost: set[int] = set()
        self._retyped: dict[str, int] = {}
        """Places before the statement of columns with another type, by their names."""
        self._is_rewritten = False
        self.tested: list[str] = []
        """CHECKs that rows which are there have to fulfil."""
        self.sequences: dict[str, SequenceDefinition] = {}
        """Of new identities, by the names of their columns."""

    def statement(self, kind: str) -> tree.AlterTable:
        found, made = self._found, self.table
        if self._retyped and made.checks:
            plan_checks(made)  # they may have no meaning over the new types
        sequences = tuple(
            (ordinal, self.sequences[column.name])
            for ordinal, column in enumerate(made.columns)
            if column.name in self.sequences
        )
        if not (self._is_rewritten or self._changes_entries()):
            return tree.AlterTable(
                kind, found, made, tested=tuple(self.tested), sequences=sequences
            )
        sources = [
            (ordinal, source)
            for ordinal, source in enumerate(self._sources)
            if source is not None and not made.columns[ordinal].hidden
        ]
        outputs = tuple(tree.Output(made.columns[n].name, source) for n, source in sources)
        columns = tuple((output.name, output.expression.type) for output in outputs)
        numbered = (replace(column, id=n) for n, column in enumerate(made.columns, 1))
        indexes = tuple(replace(index, id=0) for index in made.indexes)
        return tree.AlterTable(
            kind,
            found,
            replace(made, columns=tuple(numbered), indexes=indexes),
            tree.Query(tree.Select(outputs, self._ref), columns),
            tuple(ordinal for ordinal, _ in sources),
            tuple(sorted(self._lost)),
            tuple(sorted(self._retyped.values())),
            self.is_cascade,
            sequences=sequences,
        )

    def _changes_entries(self) -> bool:
        """Tell whether entries of an index have another form: it shows which columns are NULL."""
        found, made = self._found.columns, self.table.columns
        return any(
            found[ordinal].not_null != made[ordinal].not_null
            for index in self._found.indexes
            for ordinal in index.columns
        )

    def error(
        self, sqlstate: str, message: str, node: syntax.Node, hint: str | None = None
    ) -> Error:
        return self.context.error(sqlstate, message, node, hint)

    # --- columns ---------------------------------------------------------------------------------

    def ordinal(self, name: str, node: syntax.Node) -> int:
        """Return the place of a column; 42703."""
        ordinal = self.table.ordinal(name)
        if ordinal is None:
            raise self.error(
                "42703",
                f'column "{name}" of relation "{self.table.name}" does not exist',
                node,
                suggestion(name, [column.name for column in self.table.visible_columns]),
            )
        return ordinal

    def put(self, ordinal: int, column: Column) -> None:
        """Have another column at a place."""
        columns = list(self.table.columns)
        columns[ordinal] = column
        self.table = replace(self.table, columns=tuple(columns))

    def add(self, column: Column) -> None:
        """Add a column behind those that are seen."""
        place = len(self.table.visible_columns)
        columns = list(self.table.columns)
        columns.insert(place, column)
        self._sources.insert(place, None)
        self._is_rewritten = True
        self._set_columns(columns, lambda ordinal: ordinal + (ordinal >= place))

    def remove(self, place: int) -> None:
        """Take a column away, with the indexes and checks that it is in."""
        table, name = self.table, self.table.columns[place].name
        self.table = replace(
            table,
            indexes=tuple(each for each in table.indexes if place not in each.columns),
            checks=tuple(each for each in table.checks if name not in columns_in(each)),
        )
        columns = list(table.columns)
        del columns[place]
        source = self._sources.pop(place)
        if isinstance(source, tree.ColumnRef):
            self._lost.add(source.ordinal)
        self._is_rewritten = True
        self._set_columns(columns, lambda ordinal: ordinal - (ordinal > place))

    def set_key(self, node: syntax.PrimaryKey) -> None:
        """Give a table that has no key one, in the place of its hidden column."""
        table = self.table
        if not table.is_heap:
            what = f'multiple primary keys for table "{table.name}" are not allowed'
            raise self.error("42P16", what, node)
        columns, key = list(table.columns), list[int]()
        for name, start in node.columns:
            ordinal = self.ordinal(name, syntax.Column(name, None, start))
            if ordinal in key:
                raise self.error("42701", "the primary key names a column twice", node)
            columns[ordinal] = replace(columns[ordinal], not_null=True)
            key.append(ordinal)
        (hidden,) = table.key
        del columns[hidden], self._sources[hidden]
        self.table = replace(table, key=tuple(key))
        self._is_rewritten = True
        self._set_columns(columns, lambda ordinal: ordinal - (ordinal > hidden))

    def _set_columns(self, columns: Sequence[Column], place_of: Callable[[int], int]) -> None:
        self.table = replace(
            self.table,
            columns=tuple(columns),
            key=tuple(map(place_of, self.table.key)),
            indexes=tuple(
                replace(each, columns=tuple(map(place_of, each.columns)))
                for each in self.table.indexes
            ),
        )

    def retype(self, ordinal: int, column: Column, source: tree.Expression) -> None:
        """Give a column another type, and what it has of a row that is there."""
        before = self._sources[ordinal]
        assert isinstance(before, tree.ColumnRef)
        self.put(ordinal, column)
        self._sources[ordinal] = source
        self._retyped[column.name] = before.ordinal
        self._is_rewritten = True

    def old_scope(self) -> Scope:
        """Return what USING can name: a row as it is before the statement."""
        scope = Scope(self.context, clause="USING")
        columns = tuple(
            (column.name, column.type, ordinal)
            for ordinal, column in enumerate(self._found.columns)
            if not column.hidden
        )
        scope.add(Named(self._ref.id, self._ref.alias, columns, self._found), syntax.Node())
        return scope

    def source(self, ordinal: int) -> tree.Expression:
        """Return what a column that was there has of a row."""
        source = self._sources[ordinal]
        assert source is not None
        return source

    def is_retyped(self, ordinal: int) -> bool:
        """Tell whether the statement has given a column another type already."""
        return self.table.columns[ordinal].name in self._retyped

    def is_new(self, ordinal: int) -> bool:
        """Tell whether the statement itself adds a column."""
        return self._sources[ordinal] is None

    # --- constraints -----------------------------------------------------------------------------

    @property
    def constraint_names(self) -> set[str]:
        return {each.name for each in (*self.table.indexes, *self.table.checks)}

    def constraint(self, name: str, node: syntax.Node) -> Check | Index | None:
        """Return a constraint; None: there is none. 0A000: it is the primary key."""
        for each in (*self.table.checks, *self.table.indexes):
            if each.name == name and (isinstance(each, Check) or each.is_constraint):
                return each
        if not self.table.is_heap and name == f"{self.table.name}_pkey":
            what = f'"{name}" is the primary key, which stays'
            hint = "CREATE TABLE without it, INSERT INTO it … SELECT, and DROP the other table."
            raise self.error("0A000", what, node, hint)
        return None

    def no_constraint(self, name: str, node: syntax.Node) -> Error:
        what = f'constraint "{name}" of relation "{self.table.name}" does not exist'
        return self.error("42704", what, node)

    def add_index(self, node: syntax.Unique) -> None:
        if node.name is not None and any(each.name == node.name for each in self.table.indexes):
            raise self.error("42P07", f'index "{node.name}" exists already', node)
        if len(self.table.indexes) >= indexes_max:
            what = f'table "{self.table.name}" has {indexes_max} indexes, more are not allowed'
            raise self.error("54000", what, node)
        index = bind_unique(node, self.table.columns, self.context)
        self._check_free(index.name, node)
        self.table = replace(self.table, indexes=(*self.table.indexes, index))

    def add_check(self, node: syntax.Check, *, is_valid: bool = True) -> None:
        if len(self.table.checks) >= checks_max:
            what = f'table "{self.table.name}" has {checks_max} CHECKs, more are not allowed'
            raise self.error("54000", what, node)
        check = bind_check(node, self.table, self.constraint_names, self.context)
        self._check_free(check.name, node)
        self.table = replace(
            self.table, checks=(*self.table.checks, replace(check, is_valid=is_valid))
        )
        if is_valid:
            self.tested.append(check.name)

    def _check_free(self, name: str, node: syntax.Node) -> None:
        if name and name in self.constraint_names:
            what = f'constraint "{name}" for relation "{self.table.name}" already exists'
            raise self.error("42710", what, node)

    def put_constraint(self, old: Check | Index, new: Check | Index | None) -> None:
        """Have another constraint in the place of one, or none."""
        checks, indexes = list[Check](), list[Index]()
        for each in (*self.table.checks, *self.table.indexes):
            kept = new if each is old else each
            if isinstance(kept, Check):
                checks.append(kept)
            elif kept is not None:
                indexes.append(kept)
        self.table = replace(self.table, checks=tuple(checks), indexes=tuple(indexes))


# --- actions -------------------------------------------------------------------------------------


def _rename_to(change: _Change, node: syntax.RenameTo) -> None:
    name = new_name(node.name, node, change.context)
    table = change.table
    if name == table.name:
        raise change.error("42P07", f'{table.kind} "{name}" exists already', node)
    checks = (with_table_name(check, name) for check in table.checks)
    change.table = replace(table, name=name, checks=tuple(checks))


def _rename_part(change: _Change, node: syntax.RenamePart) -> None:
    name, table = new_name(node.new_name, node, change.context), change.table
    if node.is_constraint:
        found = change.constraint(node.name, node)
        if found is None:
            raise change.no_constraint(node.name, node)
        if name in change.constraint_names:
            what = f'constraint "{name}" for relation "{table.name}" already exists'
            raise change.error("42710", what, node)
        change.put_constraint(found, replace(found, name=name))
        return
    ordinal = change.ordinal(node.name, node)
    if any(column.name == name for column in table.columns):
        what = f'column "{name}" of relation "{table.name}" already exists'
        raise change.error("42701", what, node)
    change.put(ordinal, replace(table.columns[ordinal], name=name))
    checks = (with_column_name(check, node.name, name) for check in table.checks)
    change.table = replace(change.table, checks=tuple(checks))


def _add_column(change: _Change, node: syntax.AddColumn) -> None:
    table, context = change.table, change.context
    column, _ = bind_column(node.column, context)
    if column.filling is not None:
        raise change.error(
            "0A000",
            "ALTER TABLE … ADD COLUMN of a column that a sequence fills is not supported",
            node.column,
            "CREATE another table with it, and INSERT INTO … SELECT.",
        )
    if any(each.name == column.name for each in table.columns):
        if node.if_not_exists:
            return
        what = f'column "{column.name}" of relation "{table.name}" already exists'
        raise change.error("42701", what, node.column)
    if len(table.visible_columns) >= columns_max:
        raise change.error("54011", f"a table has 1 to {columns_max} columns", node.column)
    change.add(column)
    for unique in node.uniques:
        change.add_index(unique)
    for check in node.checks:
        change.add_check(check)


def _add_constraint(change: _Change, node: syntax.AddConstraint) -> None:
    if isinstance(node.constraint, syntax.Check):
        change.add_check(node.constraint, is_valid=node.is_valid)
    elif isinstance(node.constraint, syntax.PrimaryKey):
        change.set_key(node.constraint)
    else:
        change.add_index(node.constraint)


def _alter_column(change: _Change, node: syntax.AlterColumn) -> None:
    ordinal, context = change.ordinal(node.name, node), change.context
    column = change.table.columns[ordinal]
    if node.type is not None:
        _alter_type(change, node, node.type, ordinal)
    elif node.has_default:
        default: Physical = None
        default_sql: str | None = None
        scope = Scope(context, clause="DEFAULT")
        filling = bind_default_of_sequence(node.default, column.type, column.name, scope)
        column = replace(column, filling=_filling(change, column, node, filling))
        if node.default is not None and filling is None:
            default, default_sql = bind_default(node.default, column.type, column.name, scope)
        change.put(ordinal, replace(column, default=default, default_sql=default_sql))
    elif node.is_not_null is not None:
        if ordinal in change.table.key and not node.is_not_null:
            raise change.error("42P16", f'column "{node.name}" is in a primary key', node)
        if column.filling is not None and column.filling.is_identity and not node.is_not_null:
            raise _is_identity(change, column, node)
        change.put(ordinal, replace(column, not_null=node.is_not_null))


def _filling(
    change: _Change, column: Column, node: syntax.AlterColumn, wanted: Filling | None
) -> Filling | None:
    """Return what fills a column that gets this default of a sequence, or another default.

    The sequence that goes with the column goes on doing so.
    """
    filling = column.filling
    if filling is not None and filling.is_identity:
        raise _is_identity(change, column, node)
    if filling is None or not filling.is_owner:
        return wanted
    if wanted is None:
        return replace(filling, kind=FillKind.NONE)
    if wanted.sequence != filling.sequence:
        raise change.error(
            "0A000",
            f'column "{column.name}" of table "{change.table.name}" has sequence '
            f'"{filling.sequence}": another one is not supported',
            node,
            "ALTER SEQUENCE … OWNED BY NONE first.",
        )
    return replace(wanted, is_owner=True)


def _add_identity(change: _Change, node: syntax.AddIdentity) -> None:
    ordinal = change.ordinal(node.name, node)
    table, column = change.table, change.table.columns[ordinal]
    of_table = f'column "{column.name}" of relation "{table.name}"'
    if column.filling is not None and column.filling.is_identity:
        raise change.error("55000", f"{of_table} is already an identity column", node)
    scope = Scope(change.context, clause="IDENTITY")
    filling, sequence = bind_identity(node.identity, column.type, scope)
    has_default = column.default is not None or column.default_sql is not None
    if has_default or column.filling is not None:
        raise change.error("55000", f"{of_table} already has a default value", node)
    if not column.not_null:
        what = f"{of_table} must be declared NOT NULL before identity can be added"
        raise change.error("55000", what, node)
    change.sequences[column.name] = sequence
    change.put(ordinal, replace(column, filling=filling))


def _is_identity(change: _Change, column: Column, node: syntax.AlterColumn) -> Error:
    what = f'column "{column.name}" of relation "{change.table.name}" is an identity column'
    return change.error("42601", what, node)


def _alter_type(
    change: _Change, node: syntax.AlterColumn, type_name: syntax.TypeName, ordinal: int
) -> None:
    context, column = change.context, change.table.columns[ordinal]
    kind = bind_type(type_name, Scope(context, clause="TYPE"))
    check_stored(kind, column.name, node, context)
    if column.filling is not None and not kind.is_integer:
        what = (
            f'column "{column.name}" has a sequence: its type must be smallint, integer, or bigint'
        )
        raise change.error("22023", what, node)
    if change.is_retyped(ordinal):
        what = f'cannot alter type of column "{column.name}" twice'
        raise change.error("0A000", what, node)
    source = change.source(ordinal)
    if node.using is not None:
        scope = change.old_scope()
        source = bind_open(node.using, scope)
        if source.type.kind is Kind.UNKNOWN:
            source = convert(source, kind, node.using, scope)
        source = context.settle(source)
    check_assignable(source.type, kind, column.name, node, context)
    default: Physical = None
    default_sql: str | None = None
    if column.default is not None or column.default_sql is not None:
        text = column.default_sql or literal_text(column.default, column.type)
        scope = Scope(context, clause="DEFAULT")
        try:
            expression = read_condition(scan(text))
            default, default_sql = bind_default(expression, kind, column.name, scope)
        except Error as error:
            to = f"cannot be cast automatically to type {kind}".lower()
            what = f'default for column "{column.name}" {to}'
            raise change.error("42804", what, node) from error
    changed = replace(column, type=kind, default=default, default_sql=default_sql)
    change.retype(ordinal, changed, source)


def _validate(change: _Change, node: syntax.ValidateConstraint) -> None:
    found = change.constraint(node.name, node)
    if found is None:
        raise change.no_constraint(node.name, node)
    if not isinstance(found, Check):
        what = f'constraint "{node.name}" of relation "{change.table.name}" is not a CHECK'
        raise change.error("42809", what, node)
    if not found.is_valid:
        change.put_constraint(found, replace(found, is_valid=True))
        change.tested.append(found.name)


def _drop_part(change: _Change, node: syntax.DropPart) -> None:
    change.is_cascade = change.is_cascade or (node.is_cascade and not node.is_constraint)
    if node.is_constraint:
        found = change.constraint(node.name, node)
        if found is not None:
            change.put_constraint(found, None)
        elif not node.if_exists:
            raise change.no_constraint(node.name, node)
        return
    if node.if_exists and change.table.ordinal(node.name) is None:
        return
    ordinal = change.ordinal(node.name, node)
    if ordinal in change.table.key:
        what = f'column "{node.name}" is a part of the primary key, which stays'
        raise change.error("0A000", what, node)
    if len(change.table.visible_columns) == 1:
        raise change.error("0A000", "a table has at least one column", node, "DROP TABLE.")
    change.remove(ordinal)


_ACTIONS: dict[type[syntax.Node], Callable[[_Change, Any], None]] = {
    syntax.RenameTo: _rename_to,
    syntax.RenamePart: _rename_part,
    syntax.AddColumn: _add_column,
    syntax.AddConstraint: _add_constraint,
    syntax.AddIdentity: _add_identity,
    syntax.AlterColumn: _alter_column,
    syntax.ValidateConstraint: _validate,
    syntax.DropPart: _drop_part,
}
