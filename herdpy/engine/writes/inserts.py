"""INSERT of rows whose keys are not there, in one visit to the monitor: FreshInsert.

The usual INSERT needs no snapshot: what counts is whether the newest version of each key, seen
under its lock, is a row. That is looked up before, in one State, and again under the monitor only
if something was committed in between. Whatever is not plainly fresh (a key that is there, a page
that came meanwhile) goes the way of every other write, which finds the same and says why.
"""

from collections.abc import Callable, Sequence

from bookie.runtime.ticket import Ticket
from herdpy.engine.state.locks import Mode
from herdpy.engine.state.memtable import TRIMMED, Memtable
from herdpy.engine.state.snapshots import TableSnapshot
from herdpy.engine.state.state import State, TableState
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.state.transactions import OwnVersion, Transaction
from herdpy.engine.writes.row_writes import RESTART, SPILL, Change, Give, Update, Write, looking
from herdpy.exec.row.select import Resolve
from herdpy.model.schema import Table
from herdpy.model.types import Key, Row
from herdpy.storage.table_pages import TablePages


class FreshInsert(Write):
    """An INSERT … VALUES into a table with a primary key. `rows` are whole and checked."""

    __slots__ = ("_keys", "_rows")

    def __init__(
        self,
        tablespace: Tablespace,
        transaction: Transaction,
        table: Table,
        rows: Sequence[Row],
        *,
        memory_bytes_max: int,
        check_interrupt: Callable[[], object],
        resolve: Resolve | None = None,
        give: Give | None = None,
        update: Update | None = None,
    ) -> None:
        super().__init__(
            tablespace,
            transaction,
            table,
            self._changes,
            is_insert=True,
            memory_bytes_max=memory_bytes_max,
            check_interrupt=check_interrupt,
            resolve=resolve,
            give=give,
            update=update,
        )
        self._rows = rows
        self._keys: list[Key] = table.keys_of(rows)

    def _changes(self, _source: TableSnapshot | None = None) -> tuple[list[Change], int]:
        return [(None, row) for row in self._rows], len(self._rows)

    def attempt(self) -> "int | Ticket[None] | object":
        tablespace, table, transaction = self._tablespace, self.table, self._transaction
        keys = self._keys
        is_apart = transaction.has_spilled or transaction.cut is not None
        is_apart = is_apart or bool(table.unique_stores)
        is_apart = is_apart or self.give is not None  # which takes a snapshot
        if is_apart or transaction.reads_at is not None:  # then its snapshot counts
            return super().attempt()
        before = tablespace.applier.state
        seen = before.tables.get(table.id)
        own = transaction.writes.get(table.id)
        if len(keys) > 1 and len(set(keys)) < len(keys):
            return super().attempt()
        pages = seen.pages if seen is not None else None
        if not are_fresh(keys, seen, own, pages, self._check_interrupt):
            return super().attempt()
        if len(keys) > tablespace.rows_at_once:
            return self._attempt_by_parts(before, seen)
        with tablespace.monitor:
            tablespace.enter()
            tablespace.check_writable()
            wait = tablespace.locks.acquire(transaction, (table.id,), Mode.SHARED)
            if wait is not None:
                return wait
            if not self.is_current():
                return RESTART
            wait = self._lock(keys)
            if wait is not None:
                return wait
            if self._is_still_fresh(before, seen):
                return len(keys) if self._log_fresh(self._rows, keys) else SPILL
        return super().attempt()

    def _attempt_by_parts(
        self, before: State, seen: TableState | None
    ) -> "int | Ticket[None] | object":
        """As attempt(), for more rows than the monitor is held for."""
        if not self.has_room(len(self._rows)):
            return SPILL
        wait = self._lock_table() or self._lock_by_parts(self._keys)
        if wait is not None:
            return wait
        if not self._is_still_fresh(before, seen):
            return super().attempt()

        def log(places: Sequence[int], statement: int) -> bool:
            part = slice(places[0], places[-1] + 1)
            return self._log_fresh(self._rows[part], self._keys[part], statement)

        places = range(len(self._rows))
        is_logged = self._log_by_parts(places, log, lambda: self._estimate(self._changes()[0]))
        return len(places) if is_logged else SPILL

    def _log_fresh(
        self, rows: Sequence[Row], keys: Sequence[Key], spilling: int | None = None
    ) -> bool:
        """As _log(), of rows whose keys are at hand. Monitor held."""
        transaction = self._transaction
        transaction.fresh = (rows, keys)
        try:
            return self._log_rows(rows, [], [], spilling)
        finally:
            transaction.fresh = ((), ())

    def _is_still_fresh(self, before: State, seen: TableState | None) -> bool:
        """Return whether what was found before the locks still holds under them."""
        state = self._tablespace.applier.state
        if state.position == before.position:
            return True
        now = state.tables.get(self.table.id)
        if seen is None or now is None:
            return seen is now
        # What was committed since stands in a memtable, unless a checkpoint moved it on.
        return now.pages is seen.pages and are_fresh(self._keys, now, None, None)


def are_fresh(
    keys: Sequence[Key],
    table: TableState | None,
    own: dict[Key, OwnVersion] | None,
    pages: TablePages | None,
    check_interrupt: Callable[[], object] = lambda: None,
) -> bool:
    """Return whether no key's newest version is a row, in the transaction's writes or committed.

    Without pages only the memtables are asked. check_interrupt is called now and then.
    """
    memtables: tuple[Memtable, ...] = ()
    if table is not None:
        memtables = (table.memtable, *table.frozen)
    if pages is not None:
        low = min(keys)
        if low > pages.highest or not pages.may_hold(low, max(keys)):
            pages = None
    is_apart = not own or (len(keys) > _MANY_KEYS and own.keys().isdisjoint(keys))
    if len(keys) > _MANY_KEYS and is_apart and all(map(_is_apart(keys), memtables)):
        own, memtables = None, ()
        if pages is None:
            return True
    for key in keys if len(keys) <= _MANY_KEYS else looking(keys, check_interrupt):
        version = own.get(key) if own else None
        if version is None:
            for memtable in memtables:
                version = memtable.chains.get(key)
                if version is not None:
                    break
        if version is not None:
            # TRIMMED: the memtable went into pages meanwhile and was given up.
            if version[1] is not None or version is TRIMMED:
                return False
        elif pages is not None and pages.locate(key) is not None:
            return False
    return True


_MANY_KEYS = 1_000


def _is_apart(keys: Sequence[Key]) -> Callable[[Memtable], bool]:
    """Return whether a memtable has none of the keys, at once."""
    return lambda memtable: not memtable.is_given_up and memtable.chains.keys().isdisjoint(keys)
