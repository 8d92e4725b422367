"""Ingest: Arrow batches into one table, as one statement: all of them, or none.

add() converts and checks, and has no effect beside; finish() writes. A few rows are kept in memory
until then. More are staged (staging.py), so that they need none, but not in a transaction: there
they are kept as well, and an ingest is bounded (53200). One thread at a time.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bookie.runtime.ticket import Ticket
from herdpy.engine.session.core import SessionCore
from herdpy.engine.session.numbers import SessionNumbers
from herdpy.engine.session.parts import SessionPart, statement
from herdpy.engine.session.planner import Planner
from herdpy.engine.session.runner import StatementRunner
from herdpy.engine.session.staging import RIGHTS, Staging, StatementJob, is_possible
from herdpy.engine.state.locks import Mode
from herdpy.engine.state.log_space import prepare_log
from herdpy.engine.state.page_adoption import FEW_ROWS
from herdpy.engine.state.snapshots import TableSnapshot
from herdpy.engine.state.staged import Operation
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.state.transaction_snapshot import TransactionSnapshot
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.statements.lock_wait import MustWaitError
from herdpy.engine.statements.query_checks import QueryChecks
from herdpy.engine.writes.inserts import FreshInsert
from herdpy.engine.writes.row_writes import RESTART, Change, Write
from herdpy.errors import InterfaceError, MemoryLimitError, ProgrammingError
from herdpy.exec.row.row_check import rows_by_key
from herdpy.model.schema import Table
from herdpy.model.types import Row

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.exec.vector.arrow_columns import RowMaker

_ROW_BYTES = 300
_DATA_COPIES = 3
"""What a row takes in memory: so much, and its data so many times, about."""
_TABLE_LOCK_ROWS = 20_000
"""From here on the lock of the table, where it is free, costs less than those of the rows."""
_LOG_BYTES_AHEAD = 1024 * 1024
_MODES = {each.value: each for each in (Operation.APPEND, Operation.UPSERT, Operation.REPLACE)}


class Ingests(SessionPart):
    """What a session ingests: each statement of an Ingest is one of its own."""

    def __init__(
        self, core: SessionCore, runner: StatementRunner, planner: Planner, staging: Staging
    ) -> None:
        super().__init__(core, runner, planner)
        self._staging = staging

    @statement("INGEST {0}")
    def begin(self, table: str, mode: str) -> "Ingest":
        """Return what takes Arrow batches for one table, to write them as one statement."""
        core = self._core
        if mode not in _MODES:
            raise ProgrammingError(
                f"ingest: mode: expected 'append', 'upsert' or 'replace', found {mode!r}",
                sqlstate="22023",
            )
        core.tablespace.check_running()
        core.check_not_lost()
        core.check_may_write("INGEST")  # before rows are sent
        found = self._table(table, _MODES[mode])
        is_alone = core.is_autocommit and not core.in_transaction
        return Ingest(
            found,
            _MODES[mode],
            staging=self._staging if is_alone and is_possible(found) else None,
            now_us=core.now_us(),
            memory_bytes_max=core.database.config.memory_bytes_max // 2,
            write=self._write,
            numbers=core.numbers,
        )

    def _table(self, name: str, mode: Operation) -> Table:
        table = self._planner.table(name, RIGHTS[mode])
        if table.is_heap and mode is Operation.UPSERT:
            raise ProgrammingError(
                f'ingest: mode "upsert" needs a primary key, and table "{table.name}" has none',
                sqlstate="42P10",
            )
        return table

    @statement("INGEST {0.table.name}")
    def _write(self, ingest: "Ingest") -> int:
        core = self._core
        core.check_not_lost()
        if not ingest.rows and ingest.mode is not Operation.REPLACE:
            return 0
        core.database.check_room()
        core.current_transaction()
        transaction = core.begin_write("INGEST")
        tablespace = core.tablespace
        with tablespace.monitor:  # the transaction's own values may be of the log of now
            tablespace.check_numbers(ingest.numbered_by)
        transaction.numbered_by = transaction.numbered_by or ingest.numbered_by
        if ingest.log_bytes > _LOG_BYTES_AHEAD:
            # Else the first attempt would do all its work to learn that there is no room.
            if tablespace.check_limit is not None:
                tablespace.check_limit(ingest.log_bytes)
            prepare_log(tablespace, ingest.log_bytes)

        def make() -> Write:
            if self._table(ingest.table.name, ingest.mode) != ingest.table:
                raise ProgrammingError(
                    f'table "{ingest.table.name}" was made anew during the ingest', sqlstate="42P01"
                )
            return _make_write(core.tablespace, transaction, ingest, self._planner.check_interrupt)

        execution = self._planner.execution(transaction)
        if ingest.table.checks:
            execution.check_rows(QueryChecks(ingest.table), ingest.rows)
        count = execution.run(make(), make)
        core.finish_write(transaction)
        return count


class Ingest:
    """One open ingest, made by Ingests.begin()."""

    def __init__(
        self,
        table: Table,
        mode: Operation,
        *,
        now_us: int,
        memory_bytes_max: int,
        write: "Callable[[Ingest], int]",
        numbers: SessionNumbers,
        staging: Staging | None = None,
    ) -> None:
        """write(ingest) runs the statement and returns the number of rows.

        staging: of the session, outside of a transaction.
        """
        self.table = table
        self.mode = mode
        self.rows: list[Row] = []
        self.memory_bytes_max = memory_bytes_max
        self._now_us = now_us
        self._data_bytes = 0
        self._maker: RowMaker | None = None
        self._write = write
        self._numbers = numbers
        self.numbered_by: object | None = None
        """Whose sequences gave its rows values, as a transaction's."""
        self._staging = staging
        self._staged: _Staged | None = None
        self._is_over = False

    @property
    def log_bytes(self) -> int:
        """About how much the log has to take."""
        rows, data_bytes = len(self.rows), self._data_bytes
        return data_bytes + rows * (len(self.table.columns) + 4)

    def add(self, batch: "pa.RecordBatch") -> None:
        """Take rows; the columns by name. What does not fit is an error as INSERT's."""
        from herdpy.exec.vector.arrow_columns import RowMaker

        self._check_going_on()
        if self._staging is not None and len(self.rows) + batch.num_rows > FEW_ROWS:
            self._begin_staging(self._staging)
        if self._staged is not None:
            self._staged.add(batch)
            return
        self._data_bytes += batch.nbytes
        row_count = len(self.rows) + batch.num_rows
        byte_count = _ROW_BYTES * row_count + _DATA_COPIES * self._data_bytes
        if byte_count > self.memory_bytes_max:
            raise MemoryLimitError(
                f"ingest: the rows would take about {byte_count:,} bytes of memory, more "
                f"than one ingest may ({self.memory_bytes_max:,})",
                hint="Ingest in pieces: the table has indexes, or a CHECK that takes a query."
                if not is_possible(self.table)
                else "Outside of a transaction an ingest needs no memory for its rows.",
            )
        maker = self._maker
        if maker is None or not maker.schema.equals(batch.schema):
            maker = self._maker = RowMaker(self.table, batch.schema, self._now_us, self._numbers)
        self._numbers.numbered_by = self.numbered_by
        self.rows += maker.rows(batch, len(self.rows) + 1)
        self.numbered_by = self._numbers.numbered_by

    def finish(self) -> int:
        """Write what was added; return how many rows were. Errors: nothing was written.

        MustWaitError: call again; see Session.leaves_waits.
        """
        self._check_going_on()
        self._is_over = True
        try:
            count = self._write(self) if self._staged is None else self._staged.finish()
        except MustWaitError:
            self._is_over = False
            raise
        except BaseException:
            self._let_go()
            raise
        self._let_go()
        return count

    def abort(self) -> None:
        """Give up; repeatable."""
        self._is_over = True
        self._let_go()

    def _let_go(self) -> None:
        self.rows = []
        staged, self._staged = self._staged, None
        if staged is not None:
            staged.drop()

    def _begin_staging(self, staging: Staging) -> None:
        """Stage the rows that there are, and those to come."""
        self._staging = None
        # First: an interrupt must not leave it behind.
        self._staged = staged = _Staged(staging, self._now_us)
        staged.begin(self.table, self.mode)
        if self.rows:
            self._numbers.numbered_by = self.numbered_by
            staged.add_rows(self.rows)
            self.rows = []

    def _check_going_on(self) -> None:
        if self._is_over:
            raise InterfaceError("the ingest is over", hint="begin another one")


class _Staged:
    def __init__(self, staging: Staging, now_us: int) -> None:
        self._staging = staging
        self._job = StatementJob(staging.new_job(), now_us)
        self._stage = 0
        self._count = 0
        self._is_settled = True  # nothing is in the log, or nothing is left to end

    def begin(self, table: Table, operation: Operation) -> None:
        self._is_settled = False
        self._stage = self._staging.begin_statement(self._job.name, table, operation)

    def add(self, batch: "pa.RecordBatch") -> None:
        self._count = self._staging.add(self._stage, self._count, batch, self._job)

    def add_rows(self, rows: Sequence[Row]) -> None:
        self._count = self._staging.add_rows(self._stage, rows, self._job)

    def finish(self) -> int:
        self._staging.commit_statement(self._stage, self._job)
        self._is_settled = True
        return self._count

    def drop(self) -> None:
        """Give up what is not committed; repeatable."""
        if not self._is_settled:
            self._staging.drop_statement(self._job.name)
            self._is_settled = True


def _make_write(
    tablespace: Tablespace,
    transaction: Transaction,
    ingest: Ingest,
    check_interrupt: Callable[[], object],
) -> Write:
    table, rows, mode = ingest.table, ingest.rows, ingest.mode
    if mode is Operation.APPEND and not table.is_heap:
        return _FreshRows(
            tablespace,
            transaction,
            table,
            rows,
            memory_bytes_max=ingest.memory_bytes_max,
            check_interrupt=check_interrupt,
        )

    def append(_source: TableSnapshot) -> tuple[list[Change], int]:
        return [(None, row) for row in rows], len(rows)

    def replace(source: TableSnapshot) -> tuple[list[Change], int]:
        if table.is_heap:
            return [*((old, None) for old in source.rows()), *append(source)[0]], len(rows)
        new = rows_by_key(table, rows)
        changes: list[Change] = [(old, new.pop(table.key_of(old), None)) for old in source.rows()]
        changes += [(None, row) for row in new.values()]
        return changes, len(rows)

    kind = _WholeTable if mode is Operation.REPLACE else Write
    return kind(
        tablespace,
        transaction,
        table,
        replace if mode is Operation.REPLACE else append,
        is_insert=mode is not Operation.REPLACE,
        memory_bytes_max=ingest.memory_bytes_max,
        check_interrupt=check_interrupt,
        resolve=(lambda _there, new: new) if mode is Operation.UPSERT else None,
    )


class _FreshRows(FreshInsert):
    """An append: one lock instead of many, when the table is free."""

    __slots__ = ()

    def _has_table(self, key_count: int) -> bool:
        if key_count < _TABLE_LOCK_ROWS:
            return False
        locks, table = self._tablespace.locks, (self.table.id,)
        return locks.acquire_if_free(self._transaction, table, Mode.EXCLUSIVE)


class _WholeTable(Write):
    """A replace: waits until no other transaction writes to the table, and keeps others out.

    RESTART, too, when the transaction's own snapshot does not have all rows that are there.
    """

    __slots__ = ()

    def attempt(self) -> "int | Ticket[None] | object":
        tablespace, reads_at = self._tablespace, self._transaction.reads_at
        with tablespace.monitor:
            tablespace.enter()
            tablespace.check_writable()
            wait = tablespace.locks.acquire(self._transaction, (self.table.id,), Mode.EXCLUSIVE)
            if wait is not None:
                return wait
            if isinstance(reads_at, TransactionSnapshot) and not reads_at.is_unchanged(
                self.table.id, tablespace.state
            ):
                return RESTART
        return super().attempt()
