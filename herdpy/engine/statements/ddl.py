"""CREATE TABLE, DROP TABLE, TRUNCATE: transactional, behind exclusive locks on tables' names."""

from dataclasses import replace

import msgspec

from bookie.runtime.ticket import Ticket
from herdpy.engine.access.rights import ACCESS_LOCK, check_needs, current_access, denied, rights_of
from herdpy.engine.state.locks import Mode
from herdpy.engine.state.tablespace import Definition, Tablespace
from herdpy.engine.state.transactions import Transaction
from herdpy.errors import ProgrammingError
from herdpy.log.record import ChangeAccess
from herdpy.log.record import CreateTable as CreateRecord
from herdpy.log.record import DropTable as DropRecord
from herdpy.model.access import DELETE, Access, User, facts_to_plain
from herdpy.model.schema import Table, table_to_plain
from herdpy.sql.tree import CreateTable, DropTable, TruncateTables


def create_table(
    tablespace: Tablespace, transaction: Transaction, statement: CreateTable, owner: User | None
) -> Ticket[None] | None:
    """Log the new table; or return the Ticket to wait for. LogSpaceError: nothing happened.

    The owner is the session's user.
    """
    with tablespace.monitor:
        tablespace.enter()
        tablespace.check_writable()
        wait = tablespace.locks.acquire(transaction, (statement.name,), Mode.EXCLUSIVE)
        if wait is not None:
            return wait
        if _find(tablespace, transaction, statement.name) is not None:
            if statement.if_not_exists:
                return None
            raise ProgrammingError(
                f'table "{statement.name}" exists already',
                sqlstate="42P07",
                hint="CREATE TABLE IF NOT EXISTS leaves it as it is.",
            )
        if owner is not None:  # who must not be dropped meanwhile
            wait = tablespace.locks.acquire(transaction, ACCESS_LOCK, Mode.SHARED)
            if wait is not None:
                return wait
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
        return None


def drop_table(
    tablespace: Tablespace, transaction: Transaction, statement: DropTable, user: User | None
) -> Ticket[None] | None:
    """Log the removal; or return the Ticket to wait for. LogSpaceError: nothing happened."""
    with tablespace.monitor:
        tablespace.enter()
        tablespace.check_writable()
        wait = tablespace.locks.acquire(transaction, (statement.name,), Mode.EXCLUSIVE)
        if wait is not None:
            return wait
        table = _find(tablespace, transaction, statement.name)
        if table is None:
            if statement.if_exists:
                return None
            raise ProgrammingError(f'table "{statement.name}" does not exist', sqlstate="42P01")
        if table.is_system:
            raise ProgrammingError(
                f'"{table.name}" is a system table: it cannot be dropped', sqlstate="42501"
            )
        rights = rights_of(current_access(tablespace, transaction), user)
        if rights is not None and not rights.owns(table.id):
            raise denied(f'drop table "{table.name}"', "It takes the owner or SUPERUSER.")
        wait = tablespace.locks.acquire(transaction, (table.id,), Mode.EXCLUSIVE)
        if wait is not None:
            return wait
        record = DropRecord(tx=None, statement=transaction.statement, table_id=table.id)
        tablespace.submit_definitions(transaction, record)
        return None


def truncate_tables(
    tablespace: Tablespace, transaction: Transaction, statement: TruncateTables, user: User | None
) -> Ticket[None] | None:
    """Log for each table its removal and an empty one in its place, of the same owner and grants.

    So it costs the same for every number of rows, and what reads goes on reading what it began
    with. Or return the Ticket to wait for. LogSpaceError: nothing happened.
    """
    with tablespace.monitor:
        tablespace.enter()
        tablespace.check_writable()
        wait = tablespace.locks.acquire(transaction, ACCESS_LOCK, Mode.SHARED)
        if wait is not None:  # who grants
            return wait
        tables: list[Table] = []
        for planned in statement.tables:
            wait = tablespace.locks.acquire(transaction, (planned.name,), Mode.EXCLUSIVE)
            if wait is not None:
                return wait
            table = _find(tablespace, transaction, planned.name)
            if table is None:
                raise ProgrammingError(f'table "{planned.name}" does not exist', sqlstate="42P01")
            wait = tablespace.locks.acquire(transaction, (table.id,), Mode.EXCLUSIVE)
            if wait is not None:
                return wait
            tables.append(table)
        access = current_access(tablespace, transaction)
        rights = rights_of(access, user)
        if rights is not None:  # of the tables that are there by now
            check_needs(rights, tuple((table, DELETE) for table in tables))
        records: list[Definition] = []
        for number, table in enumerate(tables, tablespace.applier.next_table_id):
            records += _replacing(table, number, access, transaction.statement)
        tablespace.submit_definitions(transaction, *records)
        return None


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


def _find(tablespace: Tablespace, transaction: Transaction, name: str) -> Table | None:
    if name in transaction.catalog_changes:
        return transaction.catalog_changes[name]
    return tablespace.state.catalog.table(name)
