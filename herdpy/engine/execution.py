"""Execution: one prepared statement on one transaction: reads, and writes with their waits.

Made by a session for one statement; the same thread uses it to its end.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from bookie.runtime.ticket import Ticket
from herdpy.engine.ddl import create_table, drop_table
from herdpy.engine.faults import disk_error
from herdpy.engine.interrupt import StatementInterrupt
from herdpy.engine.prepared import Prepared
from herdpy.engine.result import Result
from herdpy.engine.snapshots import Snapshot, TableSnapshot
from herdpy.engine.tablespace import Tablespace
from herdpy.engine.transactions import Transaction
from herdpy.engine.writes import RESTART, Change, Write
from herdpy.errors import InternalError, LockTimeoutError, SerializationError
from herdpy.limits import statement_restarts_max
from herdpy.log.interfaces import LogSpaceError
from herdpy.model.keys import canonical_key
from herdpy.model.types import Physical, Row
from herdpy.sql.plan import (
    DeletePlan,
    Find,
    InsertPlan,
    RowFind,
    RowSelect,
    UpdatePlan,
    VectorSelect,
)
from herdpy.sql.tree import CreateTable, DropTable, Query

if TYPE_CHECKING:
    from herdpy.engine.database import Database

T = TypeVar("T")


def with_log_space(tablespace: Tablespace, step: Callable[[], T]) -> T:
    """Run a step that may need more log; make room outside every lock and repeat it.

    DiskFullError: the step had no effect.
    """
    while True:
        try:
            return step()
        except LogSpaceError as error:
            needed = error.byte_count
        try:
            tablespace.log.prepare(needed)
        except OSError as error:
            raise disk_error(error) from error


class Execution:
    """See the module."""

    __slots__ = (
        "_clock",
        "_database",
        "_interrupt",
        "_lock_timeout_s",
        "_tablespace",
        "_transaction",
    )

    def __init__(
        self,
        database: "Database",
        transaction: Transaction | None,
        interrupt: StatementInterrupt,
        lock_timeout_s: float,
    ) -> None:
        self._database = database
        self._tablespace = database.tablespace
        self._clock = database.clock
        self._transaction = transaction
        self._interrupt = interrupt
        self._lock_timeout_s = lock_timeout_s

    # --- reading ---------------------------------------------------------------------------------

    def select_rows(
        self, prepared: Prepared, plan: RowSelect, values: Sequence[Physical]
    ) -> Result:
        snapshot = self._tablespace.snapshot(self._transaction)
        source = snapshot.source(plan.ref.table)
        rows = prepared.select(plan)(source, values, self._interrupt)
        if prepared.convert is not None:
            rows = map(prepared.convert, rows)
        return Result(prepared.columns, _closing(rows, snapshot), close=snapshot.close)

    def select_vector(self, prepared: Prepared, query: Query, values: Sequence[Physical]) -> Result:
        snapshot = self._tablespace.snapshot(self._transaction)
        try:
            found = self._database.vector.query(
                prepared.vector_text(query),
                snapshot,
                values,
                [slot.type for slot in prepared.slots],
                self._interrupt,
                columns=query.columns,
            )
        except BaseException:
            snapshot.close()
            raise

        def close() -> None:
            found.close()
            snapshot.close()

        return Result(
            query.columns,
            found.rows(),
            close=close,
            make_reader=found.reader,
        )

    # --- writing ---------------------------------------------------------------------------------

    def write(
        self,
        transaction: Transaction,
        prepare_again: Callable[[], Prepared],
        values: list[list[Physical]],
    ) -> int:
        """Run a write until it is logged, through waits and restarts; return the rows affected."""
        write = self._make_write(prepare_again(), values, transaction)
        restarts = 0
        while True:
            outcome = with_log_space(self._tablespace, write.attempt)
            if isinstance(outcome, Ticket):
                self._wait_for_lock(outcome)
            elif outcome is RESTART:
                restarts += 1
                if restarts > statement_restarts_max:
                    raise SerializationError(
                        f"the rows changed under the statement {restarts} times",
                        hint="Run the transaction again.",
                    )
                write = self._make_write(prepare_again(), values, transaction)
            elif isinstance(outcome, int):
                return outcome
            self._interrupt.check()

    def define(self, transaction: Transaction, statement: CreateTable | DropTable) -> None:
        """Run DDL until it is logged, through its waits."""

        def step() -> Ticket[None] | None:
            if isinstance(statement, CreateTable):
                return create_table(self._tablespace, transaction, statement)
            return drop_table(self._tablespace, transaction, statement)

        while (wait := with_log_space(self._tablespace, step)) is not None:
            self._wait_for_lock(wait)
            self._interrupt.check()

    def _wait_for_lock(self, ticket: Ticket[None]) -> None:
        interrupt = self._interrupt
        timeout_s = self._lock_timeout_s
        deadline = self._clock.monotonic() + timeout_s if timeout_s else None
        if interrupt.deadline is not None:
            deadline = interrupt.deadline if deadline is None else min(deadline, interrupt.deadline)
        if self._database.driver.wait(ticket, deadline, interrupt.stop):
            ticket.result()
            return
        interrupt.check()
        raise LockTimeoutError(
            f"a lock was not granted within lock_timeout ({timeout_s:g} s)",
            hint="Another transaction holds the row or table; try again when it has ended.",
        )

    def _make_write(
        self, prepared: Prepared, values: list[list[Physical]], transaction: Transaction
    ) -> Write:
        plan = prepared.plan
        if isinstance(plan, InsertPlan):
            table = plan.statement.table

            def compute(source: TableSnapshot) -> tuple[list[Change], int]:
                return self._compute_insert(prepared, plan, values, source)

            is_insert = not plan.statement.is_upsert
        elif isinstance(plan, UpdatePlan):
            table = plan.ref.table

            def compute(source: TableSnapshot) -> tuple[list[Change], int]:
                return self._compute_update(prepared, plan, values[0], source)

            is_insert = False
        elif isinstance(plan, DeletePlan):
            table = plan.ref.table

            def compute(source: TableSnapshot) -> tuple[list[Change], int]:
                found = self._find(prepared, plan.find, values[0], source)
                changes: list[Change] = [(row, None) for row, _ in found]
                return changes, len(changes)

            is_insert = False
        else:
            raise InternalError(f"no way to write with {plan.__class__.__name__}")
        self._interrupt.check()
        return Write(
            self._tablespace,
            transaction,
            table,
            compute,
            is_insert=is_insert,
            memory_bytes_max=self._database.config.transaction_memory_bytes,
        )

    def _compute_insert(
        self,
        prepared: Prepared,
        plan: InsertPlan,
        values: list[list[Physical]],
        source: TableSnapshot,
    ) -> tuple[list[Change], int]:
        now_us = self._now_us()
        rows: list[Row] = []
        if plan.source is None:
            make_rows = prepared.insert_rows(plan)
            for item in values:
                rows.extend(make_rows(item, now_us))
        else:
            fill = prepared.row_filler(plan)
            for found in self._query_rows(prepared, plan.source, values[0], source):
                rows.append(fill(found, now_us))
        check = prepared.check(plan)
        for row in rows:
            check(row)
        if not plan.statement.is_upsert:
            return [(None, row) for row in rows], len(rows)
        key_of = source.table.key_of
        newest = {key_of(row): row for row in rows}  # the last row of a key wins
        return [(source.get(key), row) for key, row in newest.items()], len(rows)

    def _query_rows(
        self,
        prepared: Prepared,
        plan: RowSelect | VectorSelect,
        values: Sequence[Physical],
        source: TableSnapshot,
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the physical rows of a query on the statement's own snapshot."""
        snapshot = source.snapshot
        interrupt = self._interrupt
        if isinstance(plan, RowSelect):
            yield from prepared.select(plan)(snapshot.source(plan.ref.table), values, interrupt)
            return
        yield from self._vector_rows(prepared, plan.query, values, snapshot)

    def _vector_rows(
        self, prepared: Prepared, query: Query, values: Sequence[Physical], snapshot: Snapshot
    ) -> Iterator[tuple[Any, ...]]:
        found = self._database.vector.query(
            prepared.vector_text(query),
            snapshot,
            values,
            [slot.type for slot in prepared.slots],
            self._interrupt,
            columns=query.columns,
        )
        try:
            yield from found.physical_rows()
        finally:
            found.close()

    def _find(
        self, prepared: Prepared, find: Find, values: Sequence[Physical], source: TableSnapshot
    ) -> Iterator[tuple[Row, tuple[Any, ...]]]:
        """Yield (row, new values when the query computed them)."""
        if isinstance(find, RowFind):
            for row in prepared.find(find)(source, values, self._interrupt):
                yield row, ()
            return
        table = source.table
        width = len(table.key)
        kinds = [table.columns[ordinal].type.kind for ordinal in table.key]
        seen: set[Any] = set()
        for found in self._vector_rows(prepared, find.query, values, source.snapshot):
            key = canonical_key(found[:width], kinds)
            row = source.get(key)
            if row is not None and key not in seen:
                seen.add(key)
                yield row, found[width:]

    def _compute_update(
        self,
        prepared: Prepared,
        plan: UpdatePlan,
        values: Sequence[Physical],
        source: TableSnapshot,
    ) -> tuple[list[Change], int]:
        find = plan.find
        check = prepared.check(plan)
        changes: list[Change] = []
        if not isinstance(find, RowFind) and find.value_count:
            ordinals = [ordinal for ordinal, _ in plan.assignments]
            for row, new_values in self._find(prepared, find, values, source):
                cells = list(row)
                for ordinal, value in zip(ordinals, new_values, strict=True):
                    cells[ordinal] = value
                changes.append((row, tuple(cells)))
        else:
            assign = prepared.assign(plan)
            for row, _ in self._find(prepared, find, values, source):
                changes.append((row, assign(row, values)))
        for _, new in changes:
            if new is not None:
                check(new)
        return changes, len(changes)

    def _now_us(self) -> int:
        transaction = self._transaction
        return transaction.begun_us if transaction is not None else self._clock.wall_us()


def _closing(rows: Iterator[Any], snapshot: Snapshot) -> Iterator[Any]:
    """Yield rows and let the snapshot go with the last one."""
    try:
        yield from rows
    finally:
        snapshot.close()
