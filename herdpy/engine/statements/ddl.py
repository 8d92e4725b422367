"""Tables and views made, dropped and emptied: transactional, behind exclusive locks on their names.

A view that is made holds the names of what it reads, shared, so that none of it is dropped
meanwhile. All with the monitor held. What lock() raises, and LogSpaceError: nothing happened, run
it again; so PlanIsStaleError, behind another look at the catalog.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import msgspec

from herdpy.engine.access.rights import ACCESS_LOCK, check_needs, current_access, denied, rights_of
from herdpy.engine.sequences.values import last_value, setting
from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.locks import Lock, Mode
from herdpy.engine.state.snapshots import PlanIsStaleError
from herdpy.engine.state.tablespace import Definition, Tablespace
from herdpy.engine.state.transaction_snapshot import TransactionSnapshot
from herdpy.engine.state.transactions import Transaction
from herdpy.errors import (
    Error,
    InternalError,
    NotSupportedError,
    ProgrammingError,
    SerializationError,
    no_table,
    not_a,
)
from herdpy.limits import indexes_max
from herdpy.log.record import ChangeAccess, Reserve, SetSequence
from herdpy.log.record import CreateTable as CreateRecord
from herdpy.log.record import DropTable as DropRecord
from herdpy.model.access import DELETE, Access, User, facts_to_plain
from herdpy.model.names import generated_name
from herdpy.model.schema import (
    ROW_ID_NAME,
    Column,
    Filling,
    FillKind,
    Index,
    IndexStore,
    Table,
    View,
    table_to_plain,
)
from herdpy.model.sequences import SequenceDefinition
from herdpy.model.types import BIGINT
from herdpy.sql import tree
from herdpy.sql.sequences.options import altered_sequence, check_restart

_LISTED_MAX = 10
_NO_KEY = Column(0, ROW_ID_NAME, BIGINT, not_null=True, hidden=True)
"""Every table has a key; that of a view or a sequence, which has no rows, is this one."""


class Definitions(NamedTuple):
    """What a transaction of a session's user defines."""

    tablespace: Tablespace
    transaction: Transaction
    user: User | None
    lock: Lock

    def define(self, statement: tree.Definition) -> None:
        match statement:
            case tree.CreateTable():
                self._create(statement)
            case tree.CreateTableAs(table):
                self._create(table)
            case tree.CreateView():
                self._create_view(statement)
            case tree.DropTables():
                self._drop(statement)
            case tree.TruncateTables():
                self._truncate(statement)
            case tree.CreateSequence():
                self._create_sequence(statement)
            case tree.AlterSequence():
                self._alter_sequence(statement)
            case tree.DropIndexes():
                self._drop_indexes(statement)
            case _:
                raise InternalError(f"no way to run {type(statement).__name__}")

    def _create(self, statement: tree.CreateTable) -> None:
        """Log the new table; its owner is the session's user."""
        self.lock((statement.name,), Mode.EXCLUSIVE)
        found = self._find(statement.name)
        if found is None:
            table = self._new(statement.name, statement.columns, statement.key, None)
            table = replace(table, checks=statement.checks)
            self._put(table, statement.indexes, statement.sequences)
        elif not statement.if_not_exists:
            hint = "CREATE TABLE IF NOT EXISTS leaves it as it is."
            raise exists(found, hint if found.has_rows else None)

    def _create_view(self, statement: tree.CreateView) -> None:
        """Log the new view, or one in the place of the view that is there."""
        name, lock = statement.name, self.lock
        lock((name,), Mode.EXCLUSIVE)
        for table in statement.tables:
            lock((table.name,), Mode.SHARED)
            if self._find(table.name) != table:
                raise self._stale(table.name)
        found = self._find(name)
        columns = (*statement.columns, _NO_KEY)
        if found is None:
            self._put(self._new(name, columns, (len(columns) - 1,), statement.view))
            return
        if not statement.or_replace:
            raise exists(found, "CREATE OR REPLACE VIEW changes a view.")
        if found.view is None:
            raise not_a("view", name)
        tablespace, transaction, user, _ = self
        lock(ACCESS_LOCK, Mode.SHARED)  # who grants
        access = current_access(tablespace, transaction)
        rights = rights_of(access, user)
        if found.is_system or not (rights is None or rights.owns(found.id)):
            raise denied(f'replace view "{name}"', "It takes the owner or SUPERUSER.")
        _check_columns(found, statement.columns)
        made = self._new(name, columns, (len(columns) - 1,), statement.view)
        records = replacing(found, made, access, transaction.statement)
        tablespace.submit_definitions(transaction, *records)

    def _put(
        self,
        table: Table,
        indexes: Sequence[Index] = (),
        sequences: Sequence[tuple[int, SequenceDefinition]] = (),
    ) -> None:
        """Log a new table, with these indexes, and sequences by the ordinals of their columns."""
        self._check_no_index(table.name)
        tablespace, transaction, owner, lock = self
        if owner is not None:  # who must not be dropped meanwhile
            lock(ACCESS_LOCK, Mode.SHARED)
            rights_of(current_access(tablespace, transaction), owner)
        owner_name = None if owner is None else owner.name
        table, records = self._with_sequences(table, sequences, table.id, owner_name)
        table = replace(table, id=table.id + len(records))
        for number, index in enumerate(indexes, table.id + 1):
            named = self._named(table, index)
            table = replace(table, indexes=(*table.indexes, replace(named, id=number)))
        check_constraints(table)
        record = CreateRecord(None, transaction.statement, table_to_plain(table), owner_name)
        tablespace.submit_definitions(transaction, *records, record)

    def _with_sequences(
        self,
        table: Table,
        sequences: Sequence[tuple[int, SequenceDefinition]],
        number: int,
        owner_name: str | None,
        before: Table | None = None,
    ) -> tuple[Table, list[Definition]]:
        """Return a table whose columns new sequences fill, and these; ids from number on.

        Others that its columns, unlike those of before, take values of are kept from going; 42P01.
        """
        records: list[Definition] = []
        made_here = {ordinal for ordinal, _ in sequences}
        known = {each.filling.sequence for each in before.columns if each.filling} if before else {}
        for ordinal, column in enumerate(table.columns):
            filling = column.filling
            if filling is None or ordinal in made_here or filling.sequence in known:
                continue
            self.lock((filling.sequence,), Mode.SHARED)
            found = self._find(filling.sequence)
            if found is None or found.sequence is None:
                raise no_table(filling.sequence, (), kind="sequence")
        columns, taken = list(table.columns), {table.name}
        for ordinal, definition in sequences:
            column = columns[ordinal]
            assert column.filling is not None
            name = column.filling.sequence
            if name:
                self._check_free_name(name)
            else:
                name = self._free_name(table.name, column.name, "seq", taken)
                self.lock((name,), Mode.EXCLUSIVE)
            taken.add(name)
            columns[ordinal] = replace(column, filling=replace(column.filling, sequence=name))
            made = _sequence_table(number + len(records), name, definition)
            statement = self.transaction.statement
            records.append(CreateRecord(None, statement, table_to_plain(made), owner_name))
        return replace(table, columns=tuple(columns)), records

    def _check_unchanged(self, table: Table) -> None:
        """Raise 40001 when rows, which are locked, are not those of the transaction's snapshot.

        What is made of all rows, as entries are, has the newest, and would contradict it.
        """
        reads_at = self.transaction.reads_at
        if isinstance(reads_at, TransactionSnapshot) and not reads_at.is_unchanged(
            table.id, self.tablespace.state
        ):
            raise _changed_since(table.name)

    def _stale(self, name: str) -> Error:
        """Return the error of a table that is not the one that the statement was planned with."""
        reads_at = self.transaction.reads_at
        if isinstance(reads_at, TransactionSnapshot) and reads_at.is_taken:
            return _changed_since(name)  # another plan would be of the same snapshot
        return PlanIsStaleError(
            f'table "{name}" was changed before the statement ran',
            sqlstate="40001",
            hint="Run the statement again.",
        )

    def _check_free_name(self, name: str) -> None:
        """Lock a name that a table is to have; 42P07 when it is one's."""
        self.lock((name,), Mode.EXCLUSIVE)
        found = self._find(name)
        if found is not None:
            raise exists(found, None)
        self._check_no_index(name)

    def _new(
        self,
        name: str,
        columns: Sequence[Column],
        key: tuple[int, ...],
        view: View | None,
        table_id: int | None = None,
    ) -> Table:
        """Return a table with an id, the next one if none is given, and its columns numbered."""
        numbered = (replace(column, id=number) for number, column in enumerate(columns, 1))
        if table_id is None:
            table_id = self.tablespace.applier.next_table_id
        return Table(table_id, name, tuple(numbered), key, view=view)

    def _create_sequence(self, statement: tree.CreateSequence) -> None:
        """Log the new sequence; its owner is the session's user."""
        tablespace, transaction, owner, lock = self
        name = statement.name
        lock((name,), Mode.EXCLUSIVE)
        found = self._find(name)
        if found is not None:
            if statement.if_not_exists:
                return
            raise exists(found, "CREATE SEQUENCE IF NOT EXISTS leaves it as it is.")
        self._check_no_index(name)
        if owner is not None:  # who must not be dropped meanwhile
            lock(ACCESS_LOCK, Mode.SHARED)
            rights_of(current_access(tablespace, transaction), owner)
        made = _sequence_table(tablespace.applier.next_table_id, name, statement.sequence)
        owner_name = None if owner is None else owner.name
        record = CreateRecord(None, transaction.statement, table_to_plain(made), owner_name)
        owning = self._with_owner(name, statement.owner) if statement.owner is not None else []
        tablespace.submit_definitions(transaction, record, *owning)

    def _alter_sequence(self, statement: tree.AlterSequence) -> None:
        """Log another definition of a sequence, or another column that it goes with.

        A definition is another sequence in its place, with its owner and grants: so a rollback
        leaves the former one, as far as it was given away.
        """
        tablespace, transaction, user, lock = self
        name = statement.name
        lock((name,), Mode.EXCLUSIVE)
        found = self._find(name)
        if found is None:
            if statement.if_exists:
                return
            raise no_table(name, (), kind="sequence")
        if found.sequence is None:
            raise not_a("sequence", name)
        lock(ACCESS_LOCK, Mode.SHARED)  # who grants
        access = current_access(tablespace, transaction)
        rights = rights_of(access, user)
        if rights is not None and not rights.owns(found.id):
            raise denied(f'alter sequence "{name}"', "It takes the owner or SUPERUSER.")
        records: list[Definition] = []
        if statement.changes_owner:
            records += self._with_owner(name, statement.owner)
        numbers: list[Reserve | SetSequence] = []
        if statement.options or statement.kind is not None or statement.restarts:
            definition = altered_sequence(found.sequence, statement.kind, dict(statement.options))
            made = _sequence_table(tablespace.applier.next_table_id, name, definition)
            value, is_called = last_value(tablespace.applier, found)
            if statement.restarts:
                value = definition.start if statement.restart is None else statement.restart
                is_called = False
            check_restart(definition, value)
            numbers = setting(made.id, 0, value, is_called=is_called)
            records += replacing(found, made, access, transaction.statement)
        if records:
            tablespace.submit_definitions(transaction, *records, numbers=numbers)

    def _with_owner(self, name: str, owner: tuple[str, str] | None) -> list[Definition]:
        """Return the definitions of the tables of whose columns a sequence is, and is to be."""
        changed: dict[str, Table] = {}
        for table in self._catalog().tables():
            for column in table.columns:
                filling = column.filling
                if filling is None or filling.sequence != name or not filling.is_owner:
                    continue
                if filling.is_identity:
                    raise NotSupportedError(
                        f'sequence "{name}" is of the identity column "{column.name}" of table '
                        f'"{table.name}", and goes with it'
                    )
                self._owned(table, f'alter table "{table.name}"')
                kept = None
                if filling.kind is FillKind.DEFAULT:
                    kept = replace(filling, is_owner=False)
                changed[table.name] = _with_filling(table, column, kept)
        if owner is not None:
            table_name, column_name = owner
            found = changed.get(table_name) or self._find(table_name)
            if found is None:
                raise no_table(table_name, ())
            ordinal = found.ordinal(column_name)
            if not found.has_rows or found.is_system:
                raise not_a("table", table_name)
            if ordinal is None:
                raise ProgrammingError(
                    f'column "{column_name}" of table "{table_name}" does not exist',
                    sqlstate="42703",
                )
            if table_name not in changed:
                found = self._owned(found, f'alter table "{table_name}"')
            column = found.columns[ordinal]
            filling = column.filling or Filling(FillKind.NONE, name)
            if filling.sequence != name:
                raise NotSupportedError(
                    f'column "{column_name}" of table "{table_name}" has sequence '
                    f'"{filling.sequence}": another one is not supported'
                )
            changed[table_name] = _with_filling(found, column, replace(filling, is_owner=True))
        return [
            CreateRecord(None, self.transaction.statement, table_to_plain(table))
            for table in changed.values()
        ]

    def _drop(self, statement: tree.DropTables) -> None:
        """Log that tables or views are gone, all of them or none."""
        tablespace, transaction, user, lock = self
        named: list[Table] = []
        for name in statement.names:
            lock((name,), Mode.EXCLUSIVE)
            table = self._find(name)
            if table is not None:
                named.append(table)
            elif not statement.if_exists:
                raise no_table(name, (), kind=statement.kind)
        rights = rights_of(current_access(tablespace, transaction), user)
        for table in named:
            if table.is_system:
                raise ProgrammingError(
                    f'"{table.name}" is a system table: it cannot be dropped', sqlstate="42501"
                )
            if table.kind != statement.kind:
                hint = f"DROP {table.kind.upper()} removes it."
                raise not_a(statement.kind, table.name, hint=hint)
            if rights is not None and not rights.owns(table.id):
                raise denied(
                    f'drop {table.kind} "{table.name}"', "It takes the owner or SUPERUSER."
                )
        dropped, changed = self._with_readers(named, is_cascade=statement.is_cascade)
        for table in (*dropped, *changed):
            lock((table.id,), Mode.EXCLUSIVE)
        if dropped:
            number = transaction.statement
            records: list[Definition] = [
                CreateRecord(None, number, table_to_plain(table)) for table in changed
            ]
            records += [DropRecord(None, number, table.id) for table in dropped]
            tablespace.submit_definitions(transaction, *records)

    def _with_readers(
        self, named: list[Table], *, is_cascade: bool
    ) -> tuple[list[Table], list[Table]]:
        """Return tables with their sequences, the views that read them, and those that read these.

        And, as they are to be, tables whose defaults take values of sequences among them. 2BP01.
        """
        own = self.transaction.catalog_changes
        catalog = self.tablespace.state.catalog.with_changes(own, {}, version=-1)
        readers: dict[str, list[Table]] = {}
        for table in catalog.tables():
            for name, _ in () if table.view is None else table.view.relations:
                readers.setdefault(name, []).append(table)
        found = {table.name: table for table in named}
        reasons: list[str] = []
        pending = [*named]
        while pending:
            table = pending.pop()
            for column in table.columns:
                filling = column.filling
                if filling is not None and filling.is_owner and filling.sequence not in found:
                    self.lock((filling.sequence,), Mode.EXCLUSIVE)
                    sequence = catalog.table(filling.sequence)
                    if sequence is not None:
                        found[sequence.name] = sequence
                        pending.append(sequence)
            for view in readers.get(table.name, ()):
                if view.name not in found:
                    self.lock((view.name,), Mode.EXCLUSIVE)
                    found[view.name] = view
                    pending.append(view)
                    reasons.append(f'view "{view.name}" reads {table.kind} "{table.name}"')
        changed: list[Table] = []
        for table in catalog.tables():
            left = table
            for column in () if table.name in found else table.columns:
                filling = column.filling
                if filling is None or filling.sequence not in found:
                    continue
                what = f'column "{column.name}" of table "{table.name}"'
                if filling.is_identity:
                    raise ProgrammingError(
                        f'cannot drop sequence "{filling.sequence}": {what} requires it',
                        sqlstate="2BP01",
                        hint="It goes with the table.",
                    )
                self.lock((table.name,), Mode.EXCLUSIVE)
                left = _with_filling(left, left.columns[table.columns.index(column)], None)
                if filling.kind is FillKind.DEFAULT:
                    reasons.append(f"the default of {what} takes its values")
            if left is not table:
                changed.append(replace(left, version=table.version + 1))
        if reasons and not is_cascade:
            what = " and ".join(f'{table.kind} "{table.name}"' for table in named[:2])
            more = f" and {len(reasons) - _LISTED_MAX} more" if len(reasons) > _LISTED_MAX else ""
            raise ProgrammingError(
                f"cannot drop {what if len(named) < 3 else 'these'}: "
                f"{', '.join(reasons[:_LISTED_MAX])}{more}",
                sqlstate="2BP01",
                hint="DROP … CASCADE drops the views, and the defaults of the columns, too.",
            )
        return list(found.values()), changed

    def create_index(self, statement: tree.CreateIndex) -> IndexStore | None:
        """Log a table's definition with one index more, whose entries are to be logged behind it.

        Until they are, transaction.cut says that the statement is undone if it goes no further.
        None: there is an index of that name, and IF NOT EXISTS. Repeatable by an autocommit
        statement, which has it then.
        """
        tablespace, transaction, _, lock = self
        planned = statement.table
        table = self._owned(planned, f'index table "{planned.name}"')
        number = transaction.statement
        if transaction.cut == number and len(table.indexes) > len(planned.indexes):
            return table.stores[-1]
        if table.version != planned.version:
            raise self._stale(table.name)
        self._check_unchanged(table)
        index = self._named(table, statement.index)
        lock((index.name,), Mode.EXCLUSIVE)
        if self._catalog().indexed_by(index.name) is not None:
            if statement.if_not_exists:
                return None
            raise ProgrammingError(
                f'index "{index.name}" exists already',
                sqlstate="42P07",
                hint="CREATE INDEX IF NOT EXISTS leaves it as it is.",
            )
        if self._find(index.name) is not None:
            raise ProgrammingError(f'"{index.name}" is a table already', sqlstate="42P07")
        if len(table.indexes) >= indexes_max:
            raise ProgrammingError(
                f'table "{table.name}" has {indexes_max} indexes, more are not allowed',
                sqlstate="54000",
            )
        new = replace(
            table,
            version=table.version + 1,
            indexes=(*table.indexes, replace(index, id=tablespace.applier.next_table_id)),
        )
        record = CreateRecord(tablespace.id_of(transaction), number, table_to_plain(new))
        tablespace.begin_definition(transaction, record)
        return new.stores[-1]

    def _owned(self, planned: Table, what: str) -> Table:
        """Lock a table by name and id and return it; 42501: another user's, who may not do it."""
        tablespace, transaction, user, lock = self
        lock((planned.name,), Mode.EXCLUSIVE)
        table = self._find(planned.name)
        if table is None:
            raise no_table(planned.name, ())
        if table.id != planned.id:  # made anew, by TRUNCATE or ALTER, while the lock was waited for
            raise self._stale(planned.name)
        rights = rights_of(current_access(tablespace, transaction), user)
        if rights is not None and not rights.owns(table.id):
            raise denied(what, "It takes the table's owner or SUPERUSER.")
        lock((table.id,), Mode.EXCLUSIVE)
        return table

    def _named(self, table: Table, index: Index) -> Index:
        """Return an index with a name: PostgreSQL's where it has none, with a number if taken."""
        if index.name:
            if index.is_constraint:
                self._check_no_index(index.name, table)
            return index
        columns = "_".join(table.columns[ordinal].name for ordinal in index.columns)
        end = "key" if index.is_constraint else "idx"
        taken = set(_constraint_names(table))
        return replace(index, name=self._free_name(table.name, columns, end, taken))

    def _free_name(self, first: str, second: str, end: str, taken: Container[str]) -> str:
        """Return first_second_end as PostgreSQL makes it, with a number if that is taken."""
        catalog = self._catalog()
        for number in count():
            name = generated_name(first, second, f"{end}{number or ''}")
            is_taken = catalog.indexed_by(name) is not None or catalog.table(name) is not None
            if name not in taken and not is_taken:
                return name
        raise InternalError("no name is left")

    def _check_no_index(self, name: str, table: Table | None = None) -> None:
        """Raise 42P07 when an index has a name, also one that `table` is to have."""
        taken = {each.name for each in table.indexes} if table is not None else set[str]()
        if name in taken or self._catalog().indexed_by(name) is not None:
            raise ProgrammingError(f'"{name}" is an index already', sqlstate="42P07")

    def _catalog(self) -> Catalog:
        """Return tables as the transaction has them."""
        catalog = self.tablespace.state.catalog
        return catalog.with_changes(self.transaction.catalog_changes, {}, version=-1)

    def _drop_indexes(self, statement: tree.DropIndexes) -> None:
        tablespace, transaction, _, _ = self
        tables: dict[str, Table] = {}
        for name in statement.names:
            found = self._catalog().indexed_by(name)
            if found is None:
                if statement.if_exists:
                    continue
                raise ProgrammingError(
                    f'index "{name}" does not exist',
                    sqlstate="42704",
                    hint="DROP INDEX IF EXISTS does nothing then.",
                )
            table = tables.get(found.name) or self._owned(found, f'drop index "{name}"')
            (index,) = (each for each in table.indexes if each.name == name)
            if index.is_constraint:
                raise ProgrammingError(
                    f'index "{name}" belongs to a UNIQUE constraint of table "{table.name}"',
                    sqlstate="2BP01",
                    hint="ALTER TABLE … DROP CONSTRAINT removes both.",
                )
            kept = tuple(each for each in table.indexes if each is not index)
            tables[table.name] = replace(table, version=table.version + 1, indexes=kept)
        records = [
            CreateRecord(None, transaction.statement, table_to_plain(table))
            for table in tables.values()
        ]
        if records:
            tablespace.submit_definitions(transaction, *records)

    def _truncate(self, statement: tree.TruncateTables) -> None:
        """Log for each table its removal and an empty one in its place.

        It has the same owner and grants. So it costs the same for every number of rows, and what
        reads goes on reading what it began with.
        """
        tablespace, transaction, user, lock = self
        lock(ACCESS_LOCK, Mode.SHARED)  # who grants
        tables: list[Table] = []
        for planned in statement.tables:
            lock((planned.name,), Mode.EXCLUSIVE)
            table = self._find(planned.name)
            if table is None:
                raise no_table(planned.name, ())
            lock((table.id,), Mode.EXCLUSIVE)
            tables.append(table)
        access = current_access(tablespace, transaction)
        rights = rights_of(access, user)
        if rights is not None:  # of the tables that are there by now
            check_needs(rights, tuple((table, DELETE, None) for table in tables), access)
        records: list[Definition] = []
        number = tablespace.applier.next_table_id
        for table in tables:
            indexes = (replace(each, id=n) for n, each in enumerate(table.indexes, number + 1))
            made = replace(table, id=number, indexes=tuple(indexes))
            records += replacing(table, made, access, transaction.statement)
            number += 1 + len(table.indexes)
        for sequence in self._sequences_of(tables) if statement.restarts else ():
            if rights is not None and not rights.owns(sequence.id):
                raise denied(
                    f'restart sequence "{sequence.name}"', "It takes the owner or SUPERUSER."
                )
            made = replace(sequence, id=number)
            records += replacing(sequence, made, access, transaction.statement)
            number += 1
        tablespace.submit_definitions(transaction, *records)

    def _sequences_of(self, tables: Sequence[Table]) -> Iterator[Table]:
        """Lock and yield the sequences that go with columns of tables."""
        for table in tables:
            for column in table.columns:
                if column.filling is not None and column.filling.is_owner:
                    self.lock((column.filling.sequence,), Mode.EXCLUSIVE)
                    found = self._find(column.filling.sequence)
                    if found is not None:
                        yield found

    def _find(self, name: str) -> Table | None:
        """Return the table of a name that is locked; 40001: it is not that of the snapshot."""
        changes, reads_at = self.transaction.catalog_changes, self.transaction.reads_at
        if name in changes:
            return changes[name]
        found = self.tablespace.state.catalog.table(name)
        if reads_at is not None and reads_at.taken is not None:
            seen = reads_at.taken.catalog.table(name)
            if (None if seen is None else seen.id) != (None if found is None else found.id):
                raise SerializationError(
                    f'could not serialize access: table "{name}" was made or dropped by a '
                    "transaction that committed after this one's snapshot was taken",
                    hint="Run the transaction again.",
                )
        return found


def _sequence_table(table_id: int, name: str, sequence: SequenceDefinition) -> Table:
    return Table(table_id, name, (replace(_NO_KEY, id=1),), (0,), sequence=sequence)


def _with_filling(table: Table, column: Column, filling: Filling | None) -> Table:
    """Return the next version of a table, with another filling of one column."""
    columns = tuple(
        replace(each, filling=filling) if each is column else each for each in table.columns
    )
    return replace(table, version=table.version + 1, columns=columns)


def _changed_since(name: str) -> Error:
    return SerializationError(
        f'could not serialize access: table "{name}" was changed by a transaction '
        "that committed after this one's snapshot was taken",
        hint="Run the transaction again.",
    )


def _constraint_names(table: Table) -> list[str]:
    """Return the names of a table's indexes and constraints."""
    return [each.name for each in (*table.indexes, *table.checks)]


def check_constraints(table: Table) -> None:
    """Raise 42710 when a table has two constraints, or indexes, of a name."""
    names = _constraint_names(table)
    for name in names:
        if names.count(name) > 1:
            raise ProgrammingError(
                f'constraint "{name}" for relation "{table.name}" already exists', sqlstate="42710"
            )


def exists(found: Table, hint: str | None) -> Error:
    return ProgrammingError(
        f'{found.kind} "{found.name}" exists already', sqlstate="42P07", hint=hint
    )


def _check_columns(view: Table, columns: Sequence[Column]) -> None:
    """Refuse another query for a view that has not the columns of the view first (42P16)."""
    before = view.visible_columns
    problem = None
    if len(columns) < len(before):
        problem = f"it has {len(before)} columns, the query gives {len(columns)}"
    for old, new in zip(before, columns, strict=False):
        if problem is None and old.name != new.name:
            problem = f'column "{old.name}" cannot become "{new.name}"'
        if problem is None and old.type != new.type:
            problem = f'column "{old.name}" cannot become {new.type}, it is {old.type}'
    if problem is not None:
        raise ProgrammingError(
            f'view "{view.name}" cannot be replaced: {problem}',
            sqlstate="42P16",
            hint="Columns may be added at the end. To change others, DROP VIEW and CREATE VIEW.",
        )


def replacing(table: Table, made: Table, access: Access, statement: int) -> list[Definition]:
    """Return the records that put another table in a table's place, with its owner and grants."""
    number, plain = made.id, table_to_plain(made)
    records: list[Definition] = [
        DropRecord(tx=None, statement=statement, table_id=table.id),
        CreateRecord(None, statement, plain, access.owner(table.id)),
    ]
    grants = access.grants_on(table.id)
    if grants:
        facts = [msgspec.structs.replace(grant, table_id=number) for grant in grants]
        records.append(ChangeAccess(None, statement, facts_to_plain(facts)))
    return records
