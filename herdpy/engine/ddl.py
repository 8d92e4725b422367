"""CREATE TABLE and DROP TABLE: transactional, each behind an exclusive lock on the table's name."""

from dataclasses import replace

from bookie.runtime.ticket import Ticket
from herdpy.engine.locks import Mode
from herdpy.engine.tablespace import Entry, Tablespace
from herdpy.engine.transactions import Transaction
from herdpy.errors import ProgrammingError
from herdpy.log.record import CreateTable as CreateRecord
from herdpy.log.record import DropTable as DropRecord
from herdpy.log.record import Record, encode
from herdpy.model.schema import Table, table_to_plain
from herdpy.sql.tree import CreateTable, DropTable


def create_table(
    tablespace: Tablespace, transaction: Transaction, statement: CreateTable
) -> Ticket[None] | None:
    """Log the new table; or return the Ticket to wait for. LogSpaceError: nothing happened."""
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
        table = Table(
            id=tablespace.applier.next_table_id,
            name=statement.name,
            columns=tuple(
                replace(column, id=number) for number, column in enumerate(statement.columns, 1)
            ),
            key=statement.key,
        )
        record = CreateRecord(tx=None, statement=transaction.statement, table=table_to_plain(table))
        _submit(tablespace, transaction, record)
        return None


def drop_table(
    tablespace: Tablespace, transaction: Transaction, statement: DropTable
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
        wait = tablespace.locks.acquire(transaction, (table.id,), Mode.EXCLUSIVE)
        if wait is not None:
            return wait
        record = DropRecord(tx=None, statement=transaction.statement, table_id=table.id)
        _submit(tablespace, transaction, record)
        return None


def _find(tablespace: Tablespace, transaction: Transaction, name: str) -> Table | None:
    if name in transaction.catalog_changes:
        return transaction.catalog_changes[name]
    return tablespace.state.catalog.table(name)


def _submit(
    tablespace: Tablespace, transaction: Transaction, record: CreateRecord | DropRecord
) -> None:
    records: list[Record] = [record]
    if not transaction.is_autocommit or transaction.token is not None:
        begin = tablespace.begin_records(transaction)
        if isinstance(record, CreateRecord):
            record = CreateRecord(transaction.id, record.statement, record.table)
        else:
            record = DropRecord(transaction.id, record.statement, record.table_id)
        records = [*begin, record]
    if transaction.is_autocommit and transaction.token is not None:
        records.append(tablespace.commit_record(transaction))
    tablespace.submit(
        Entry(
            records, [encode(item) for item in records], transaction, ends=transaction.is_autocommit
        )
    )
