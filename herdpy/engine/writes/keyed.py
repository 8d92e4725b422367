"""The fast path of a write: one row by its key, in one visit to the monitor, without any wait.

Either does the whole write, or nothing but perhaps lock the key, and answers False: then the write
of the general path does it, or says what is wrong. What is written is found in one State before the
monitor, and looked at again under it, and under the key's lock, only if something was committed in
between. The table has a key and no values that are kept otherwise in the log; the transaction has
changed no table's definition. LogSpaceError: nothing was logged, prepare() and take the general
path. Any thread.
"""

from collections.abc import Callable
from typing import Any

from herdpy.engine.state.state import State, TableState
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.state.transactions import OwnVersion, Transaction
from herdpy.engine.writes.inserts import are_fresh
from herdpy.exec.interfaces import Numbers
from herdpy.model.schema import Table
from herdpy.model.types import Key, Row

MakeRow = Callable[[Any, int, Numbers | None], tuple[Key, Row] | None]
"""(parameters, now_us, numbers) → a key and its row, whole and checked, or None.

Made by compile_row().
"""
ChangeRow = Callable[[Any, State, Transaction], tuple[Key, Row, Row | None] | None]
"""(parameters, state, transaction) → (key, row before, row after), or None.

Made by compile_change(). The row after is None for a DELETE.
"""


def insert_row(
    table: Table,
    make: MakeRow,
    tablespace: Tablespace,
    transaction: Transaction,
    parameters: Any,
    memory_bytes_max: int,
) -> bool:
    """Insert the row that make() makes of the parameters, whole and checked, if its key is new."""
    made = make(parameters, transaction.begun_us, transaction.numbers)
    if made is None:
        return False
    key, row = made
    before = tablespace.applier.state
    seen = before.tables.get(table.id)
    if seen is None or seen.table.version != table.version:
        return False
    if not _is_fresh(key, seen, transaction.writes.get(table.id)):
        return False
    with tablespace.monitor:
        tablespace.enter()
        if not tablespace.locks.acquire_row_if_free(transaction, table.id, key):
            return False
        state = tablespace.applier.state
        if state.position != before.position:
            now = state.tables.get(table.id)
            if now is None or now.pages is not seen.pages or not _is_fresh(key, now, None):
                return False
            if now.table.version != table.version:
                return False
        if table.unique_stores and not _is_unique(table, None, row, tablespace, transaction):
            return False
        if not tablespace.log_change(transaction, table, key, None, row, memory_bytes_max):
            return False
    if table.identity is not None:
        transaction.last_identity = row[table.identity]
    return True


def change_row(
    table: Table,
    change: ChangeRow,
    tablespace: Tablespace,
    transaction: Transaction,
    parameters: Any,
    memory_bytes_max: int,
) -> bool:
    """Update or delete the row that change() finds, if no other transaction is about to."""
    before = tablespace.applier.state
    found = change(parameters, before, transaction)
    if found is None:
        return False
    key, old, new = found
    with tablespace.monitor:
        tablespace.enter()
        # False, too, for a row that the transaction itself has locked, perhaps changed, before.
        if not tablespace.locks.acquire_row_if_free(transaction, table.id, key):
            return False
        state = tablespace.applier.state
        if state.position != before.position:
            now, seen = state.tables.get(table.id), before.tables[table.id]
            if now is None or now.pages is not seen.pages or now.memtable is not seen.memtable:
                return False
            if now.table.version != table.version:
                return False
            version = now.memtable.chains.get(key)
            if version is not None and version[1] is not old:
                return False
        if table.unique_stores and not _is_unique(table, old, new, tablespace, transaction):
            return False
        return tablespace.log_change(transaction, table, key, old, new, memory_bytes_max)


def _is_unique(
    table: Table,
    old: Row | None,
    new: Row | None,
    tablespace: Tablespace,
    transaction: Transaction,
) -> bool:
    """Lock what a change of a row changes in unique indexes; False: a key may be there, or taken.

    Monitor held.
    """
    tables = tablespace.applier.state.tables
    for store in table.unique_stores:
        number = store.table.id
        before = None if old is None else store.unique_key_of(old)
        after = None if new is None else store.unique_key_of(new)
        if before == after:
            continue
        for key in (before, after):
            if key is not None and not tablespace.locks.acquire_row_if_free(
                transaction, number, key
            ):
                return False
        found = tables.get(number)
        if found is None:
            return False
        if after is not None and not _is_fresh(after, found, transaction.writes.get(number)):
            return False
    return True


def _is_fresh(key: Key, table: TableState, own: dict[Key, OwnVersion] | None) -> bool:
    """Return whether a key was never written, as far as the memtables and pages know."""
    memtable = table.memtable
    if key in memtable.chains or (own and key in own) or memtable.is_given_up:
        return False
    pages = table.pages
    if table.frozen:
        return are_fresh((key,), table, own, pages)
    return not pages.may_hold(key, key) or pages.locate(key) is None
