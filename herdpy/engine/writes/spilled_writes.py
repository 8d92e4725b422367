"""A write whose changes are too much for memory: it spills them into stages, piece by piece.

The statement has locked the whole table, and what was in memory of the table is in pages, or in
stages as well. So what it reads does not change, and its changes go to the log and into stages
(staged.py) as it works them out. Before it has ended well nothing else sees them; if it does not
end well a ROLLBACK TO takes them away. Source: ADR 0057.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Protocol, TypeVar

from bookie.runtime.ticket import Ticket
from herdpy.engine.state.locks import Mode
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.page_adoption import SpilledView, spilled_view
from herdpy.engine.state.staged import Operation
from herdpy.engine.state.state import new_table
from herdpy.engine.state.tablespace import Entry, Tablespace
from herdpy.engine.state.transaction_snapshot import TransactionSnapshot
from herdpy.engine.state.transactions import Transaction, own_visible
from herdpy.engine.writes.row_writes import RESTART, Change, TooLargeError, Write, change_parts
from herdpy.engine.writes.staged_input import numbered_rows, row_records
from herdpy.errors import InvariantViolation, OperationalError, Retry
from herdpy.exec.row.row_check import check_absent
from herdpy.limits import page_rows_max
from herdpy.log.record import BeginSpill, Record, StageRows, encode
from herdpy.model.schema import Table
from herdpy.model.types import Row

T = TypeVar("T")
_CHECKPOINTS_MAX = 10
_PIECE_ROWS = page_rows_max
_PIECE_BYTES = 4 * 1024 * 1024
"""Of a piece, and of its texts, about the most: some milliseconds of work between two looks at the
interrupt, and little memory."""


class SpillServices(Protocol):
    """What spilling needs of the database, where each method says what it does."""

    def run_checkpoint(self, check: Callable[[], object] | None = None) -> bool: ...
    def after_staging(self) -> None: ...


def _bounds(transaction: Transaction) -> list[int]:
    """Return the statements before which there is a savepoint, and the next one; ascending."""
    found, savepoint = {transaction.statement}, transaction.savepoint
    while savepoint is not None:
        found.add(savepoint.statement)
        savepoint = savepoint.parent
    return sorted(found)


class SpilledWrite:
    """One write in execution, on one snapshot; the thread of its session."""

    def __init__(
        self,
        services: SpillServices,
        tablespace: Tablespace,
        transaction: Transaction,
        write: Write,
        check: Callable[[], object],
        *,
        frees_space: bool,
    ) -> None:
        """check() raises when the statement is cancelled."""
        self._services = services
        self._tablespace = tablespace
        self._transaction = transaction
        self._write = write
        self._check = check
        self._frees_space = frees_space
        self._tables = (write.table, *(store.table for store in write.table.stores))
        """The table, and what its indexes are kept in."""
        self._stages: dict[tuple[int, Operation], int] = {}
        """By table and operation."""

    def attempt(self) -> "int | Ticket[None] | object":
        """Do the write; return as Write.attempt() does. Any error: nothing of it has happened.

        TooLargeError: what a resolved INSERT is depends on the rows before it, and so do the
        entries of indexes: it has to fit in memory.
        """
        is_resolved = self._write.resolve is not None or bool(self._write.arbiters)
        if is_resolved and len(self._tables) > 1:
            raise TooLargeError
        wait = self._lock()
        if wait is not None:
            return wait
        for table in self._tables:
            self._empty_memtable(table)
        transaction = self._transaction
        try:
            for table in self._tables:
                self._flush(table)
            self._stages = {}
            count = self._spill()
            for table in self._tables:
                self._check_repeats(table)
        except BaseException:
            self._tablespace.undo_cut(self._transaction)
            raise
        # In this order: a statement that is to be undone is not seen (Snapshot.source).
        transaction.statement += 1
        transaction.cut = None
        return count

    def _lock(self) -> "Ticket[None] | object | None":
        """Keep all other writers from the table, and undo what an interrupt has left."""
        tablespace, transaction, table = self._tablespace, self._transaction, self._write.table

        def step() -> "Ticket[None] | object | None":
            wait = tablespace.locks.acquire(transaction, (table.id,), Mode.EXCLUSIVE)
            if wait is None and not (self._write.is_current() and self._is_as_before()):
                return RESTART
            if wait is None and not self._write.is_part:
                tablespace.log_cut(transaction)
            return wait

        return self._log(step)

    def _is_as_before(self) -> bool:
        """Return whether no other has changed the table since what the transaction reads."""
        reads_at = self._transaction.reads_at
        if not isinstance(reads_at, TransactionSnapshot):
            return True
        return reads_at.is_unchanged(self._write.table.id, self._tablespace.state)

    def _log(self, step: Callable[[], T]) -> T:
        return with_log_space(
            self._tablespace,
            partial(self._tablespace.run_writing, step),
            frees_space=self._frees_space,
        )

    def _empty_memtable(self, table: Table) -> None:
        """Have the rows of a table that are in memory made pages; there come no more."""
        tablespace = self._tablespace
        for _ in range(_CHECKPOINTS_MAX):
            tablespace.apply_log()
            found = tablespace.state.tables.get(table.id)
            if found is None or not any(map(len, found.memtables)):
                return
            self._services.run_checkpoint(self._check)
        raise OperationalError(
            f"{_CHECKPOINTS_MAX} checkpoints have not written what is in memory of table "
            f'"{table.name}"',
            sqlstate="40001",
            retry=Retry.SAFE,
        )

    def _flush(self, table: Table) -> None:
        """Spill what earlier statements of the transaction hold in memory of a table.

        It stays there until the statement begins to spill, so that nothing is lost half way. What
        came before a savepoint goes into other stages than what came behind it: a ROLLBACK TO goes
        by the statements of stages.
        """
        transaction = self._transaction
        own = transaction.writes.get(table.id)
        if not own:
            return
        low = 0
        for high in _bounds(transaction):
            found = ((key, own_visible(newest, high)) for key, newest in own.items())
            changed = {key: each[1] for key, each in found if each is not None and each[0] >= low}
            pages, self._stages = self._view(table).pages, {}
            gone = (pages.get(key) for key, row in changed.items() if row is None)
            for operation, rows in ((Operation.DELETE, gone), (Operation.UPSERT, changed.values())):
                for piece in _pieces(table, ((None, row) for row in rows if row is not None)):
                    self._check()
                    found_rows = [row for _, row in piece if row is not None]
                    self._add(table, operation, found_rows, high - 1)
            low = high

    def _spill(self) -> int:
        """Work out the changes and spill them; return the number of rows to report."""
        tablespace, transaction, write = self._tablespace, self._transaction, self._write
        snapshot = tablespace.snapshot(transaction)
        try:
            snapshot.check_interrupt = self._check
            changes, reported = write.changes(snapshot.source(write.table))
            resolved_as = write.resolved_as if reported is None else None
            count = 0
            for piece in _pieces(write.table, changes):
                self._check()
                if resolved_as is None:
                    self._add_entries(piece)
                    self._add_changes(write.table, piece)
                else:
                    rows = [new for _, new in piece if new is not None]
                    self._add(write.table, resolved_as, rows, transaction.statement)
                count += len(piece)
        finally:
            snapshot.close()
        if resolved_as is Operation.IGNORE:
            return self._added_count()
        return count if reported is None else reported

    def _added_count(self) -> int:
        """Return how many rows the statement's stages have put under keys that were not there."""
        view = self._view(self._write.table)
        return sum(
            step.after.live_count - step.before.live_count
            for stage, step in zip(view.stages, view.steps, strict=True)
            if stage.statement == self._transaction.statement
        )

    def _add_entries(self, changes: Sequence[Change]) -> None:
        """Spill what changes of the table's rows, which are added next, are in its indexes."""
        table = self._write.table
        if not table.stores:
            return
        if table.is_heap:  # new rows get the next ids, since no other may write to the table
            numbers = count(self._tablespace.applier.next_row_id.get(table.id, 1))
            changes = [
                (None, (*new[:-1], next(numbers)))
                if old is None and new is not None
                else (old, new)
                for old, new in changes
            ]
        for store in table.stores:
            entry_of = store.entry_of
            entries = [
                (None if old is None else entry_of(old), None if new is None else entry_of(new))
                for old, new in changes
            ]
            self._add_changes(store.table, [each for each in entries if each[0] != each[1]])

    def _add_changes(self, table: Table, changes: Sequence[Change]) -> None:
        statement = self._transaction.statement
        inserted = [new for old, new in changes if old is None and new is not None]
        deleted = [old for old, new in changes if old is not None and new is None]
        before = [old for old, new in changes if old is not None and new is not None]
        after = [new for old, new in changes if old is not None and new is not None]
        if after and table.keys_of(before) != table.keys_of(after):
            moved = list(map(table.key_of, before)), list(map(table.key_of, after))
            is_moved = [old != new for old, new in zip(*moved, strict=True)]
            deleted += [row for row, moves in zip(before, is_moved, strict=True) if moves]
            inserted += [row for row, moves in zip(after, is_moved, strict=True) if moves]
            after = [row for row, moves in zip(after, is_moved, strict=True) if not moves]
        self._add(table, Operation.UPSERT, after, statement)
        # Old keys go before new ones come, in whatever piece: their stage is the earlier one.
        self._add(table, Operation.DELETE, deleted, statement)
        self._add(table, Operation.APPEND, inserted, statement)

    def _add(self, table: Table, operation: Operation, rows: Sequence[Row], statement: int) -> None:
        """Log rows and stage them; wait until that is applied."""
        if not rows:
            return
        tablespace = self._tablespace
        number = self._stages.get((table.id, operation))
        if number is None:
            number = self._begin(table, operation, statement)
        stage = tablespace.state.staged.stages.get(number)
        tx = self._transaction.id
        # Gone, or another's by now, where the log was opened anew: the runner raises 40001.
        if stage is None or stage.tx != tx:
            raise InvariantViolation(
                f"I4: transaction {tx} has no stage {number}, table {table.id}"
            )
        has_hidden = operation is not Operation.APPEND
        for piece in row_records(number, stage, rows, has_hidden=has_hidden):
            self._log(partial(self._submit_rows, table, piece, statement, is_new=not has_hidden))
            tablespace.apply_log()
        self._services.after_staging()

    def _begin(self, table: Table, operation: Operation, statement: int) -> int:
        """Begin a stage; the first one of the statement itself takes the place of memory."""
        tablespace, transaction = self._tablespace, self._transaction

        def step() -> int:
            number = tablespace.applier.next_table_id
            is_own = statement == transaction.statement
            tx = tablespace.id_of(transaction)
            record = BeginSpill(
                tx, statement, table.id, table.version, number, operation.value, is_own
            )
            if is_own:
                transaction.cut = statement
            self._submit([record], statement)
            return number

        number = self._stages[table.id, operation] = self._log(step)
        tablespace.apply_log()
        return number

    def _submit_rows(self, table: Table, rows: StageRows, statement: int, *, is_new: bool) -> None:
        records: Sequence[Record] = [rows]
        if table.is_heap and is_new:
            records = numbered_rows(self._tablespace.applier, table, rows)
        self._submit(records, statement)

    def _submit(self, records: Sequence[Record], statement: int) -> None:
        tablespace, encoded = self._tablespace, list(map(encode, records))
        if tablespace.check_limit is not None and not self._frees_space:
            tablespace.check_limit(sum(map(len, encoded)))
        entry = Entry(records, encoded, self._transaction, ends=False)
        entry.spilling = statement
        tablespace.submit(entry)

    def _check_repeats(self, table: Table) -> None:
        """Raise 23505 when a new row has the key of another one."""
        if table.is_heap or (table.id, Operation.APPEND) not in self._stages:
            return
        view = self._view(table)
        for stage, step in zip(view.stages, view.steps, strict=True):
            is_own = stage.statement == self._transaction.statement
            if is_own and stage.operation is Operation.APPEND and step.repeated is not None:
                check_absent(table, step.repeated, step)

    def _view(self, table: Table) -> SpilledView:
        """Return a table's pages with all that the transaction has spilled."""
        transaction, state = self._transaction, self._tablespace.state
        found = state.tables.get(table.id) or new_table(table)
        stages = state.staged.spilled(transaction.id, table.id)
        view = spilled_view(found, stages, transaction.views.get(table.id))
        transaction.views[table.id] = view
        return view


def _pieces(table: Table, changes: Iterable[Change]) -> Iterator[list[Change]]:
    return change_parts(table, changes, _PIECE_ROWS, _PIECE_BYTES)
