"""CREATE TABLE, DROP TABLE, TRUNCATE: transactional, behind exclusive locks on tables' names.

All with the monitor held. What lock() raises, and LogSpaceError: nothing happened, run it again.
"""

from dataclasses import replace
from typing import NamedTuple

import msgspec

from herdpy.engine.access.rights import ACCESS_LOCK, check_needs, current_access, denied, rights_of
from herdpy.engine.state.locks import Lock, Mode
from herdpy.engine.state.tablespace import Definition, Tablespace
from herdpy.engine.state.transactions import Transaction
from herdpy.errors import InternalError, ProgrammingError, SerializationError, no_table
from herdpy.log.record import ChangeAccess
from herdpy.log.record import CreateTable as CreateRecord
from herdpy.log.record import DropTable as DropRecord
from herdpy.model.access import DELETE, Access, User, facts_to_plain
from herdpy.model.schema import Table, table_to_plain
from herdpy.sql import tree


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
            case tree.DropTable():
                self._drop(statement)
            case tree.TruncateTables():
                self._truncate(statement)
            case _:
                raise InternalError(f"no way to run {type(statement).__name__}")

    def _create(self, statement: tree.CreateTable) -> None:
        """Log the new table; its owner is the session's user."""
        tablespace, transaction, owner, lock = self
        lock((statement.name,), Mode.EXCLUSIVE)
        if self._find(statement.name) is not None:
            if statement.if_not_exists:
                return
            raise ProgrammingError(
                f'table "{statement.name}" exists already',
                sqlstate="42P07",
                hint="CREATE TABLE IF NOT EXISTS leaves it as it is.",
            )
        if owner is not None:  # who must not be dropped meanwhile
            lock(ACCESS_LOCK, Mode.SHARED)
            rights_of(current_access(tablespace, transaction), owner)
        table = Table(
            id=tablespace.applier.next_table_id,
            name=statement.name,
            columns=tuple(
                replace(column, id=number) for number, column in enumerate(statement.columns, 1)
            ),
            key=statement.key,
        )
        name = None if owner is None else owner.name
        record = CreateRecord(None, transaction.statement, table_to_plain(table), name)
        tablespace.submit_definitions(transaction, record)

    def _drop(self, statement: tree.DropTable) -> None:
        tablespace, transaction, user, lock = self
        lock((statement.name,), Mode.EXCLUSIVE)
        table = self._find(statement.name)
        if table is None:
            if statement.if_exists:
                return
            raise no_table(statement.name, ())
        if table.is_system:
            raise ProgrammingError(
                f'"{table.name}" is a system table: it cannot be dropped', sqlstate="42501"
            )
        rights = rights_of(current_access(tablespace, transaction), user)
        if rights is not None and not rights.owns(table.id):
            raise denied(f'drop table "{table.name}"', "It takes the owner or SUPERUSER.")
        lock((table.id,), Mode.EXCLUSIVE)
        record = DropRecord(tx=None, statement=transaction.statement, table_id=table.id)
        tablespace.submit_definitions(transaction, record)

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
            check_needs(rights, tuple((table, DELETE) for table in tables))
        records: list[Definition] = []
        for number, table in enumerate(tables, tablespace.applier.next_table_id):
            records += _replacing(table, number, access, transaction.statement)
        tablespace.submit_definitions(transaction, *records)

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


def _replacing(table: Table, number: int, access: Access, statement: int) -> list[Definition]:
    """Return the records that put an empty table with another id in a table's place."""
    plain = table_to_plain(replace(table, id=number))
    records: list[Definition] = [
        DropRecord(tx=None, statement=statement, table_id=table.id),
        CreateRecord(None, statement, plain, access.owner(table.id)),
    ]
    grants = access.grants_on(table.id)
    if grants:
        facts = [msgspec.structs.replace(grant, table_id=number) for grant in grants]
        records.append(ChangeAccess(None, statement, facts_to_plain(facts)))
    return records
