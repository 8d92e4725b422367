"""Execution: one prepared statement on one transaction: reads, and writes.

Made by a session for one statement; the same thread uses it to its end.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from bookie.runtime.ticket import Ticket
from herdpy.engine.access.roles import Actor, change_access
from herdpy.engine.state.locks import Lock, Mode, Resource
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.snapshots import Snapshot, TableSnapshot
from herdpy.engine.state.staged import Operation
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.statements.ddl import Definitions
from herdpy.engine.statements.fast_paths import MakeRows
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.lock_wait import MustWaitError
from herdpy.engine.statements.plan_cache import Prepared
from herdpy.engine.statements.query_checks import QueryChecks
from herdpy.engine.statements.result_places import Holder, Place
from herdpy.engine.statements.returned_rows import check_count, collected
from herdpy.engine.writes.batch import BatchLayers
from herdpy.engine.writes.index_build import IndexBuild
from herdpy.engine.writes.inserts import FreshInsert
from herdpy.engine.writes.row_writes import (
    CHECK_ROWS,
    RESTART,
    SPILL,
    Change,
    Compute,
    Give,
    Stream,
    TooLargeError,
    Update,
    Write,
    looking,
)
from herdpy.errors import (
    Error,
    IntegrityError,
    InternalError,
    MemoryLimitError,
    SerializationError,
    loading,
)
from herdpy.exec.interfaces import Numbers
from herdpy.exec.result import Columns, LogicalRow, Result
from herdpy.exec.row.row_check import (
    compile_check_row,
    compile_checks,
    name_row,
    present_check,
    present_null,
    row_bytes,
)
from herdpy.exec.row.select import (
    compile_assignments,
    compile_conflict_changer,
    compile_find,
    compile_insert_rows,
    compile_over_rows,
    compile_row_changer,
    compile_row_filler,
    compile_row_select,
    compile_sequence_select,
    resolver,
)
from herdpy.limits import statement_restarts_max
from herdpy.model.isolation import Isolation
from herdpy.model.keys import canonical_key
from herdpy.model.schema import IndexStore, Table
from herdpy.model.types import Key, Physical, Row
from herdpy.sql.plan import (
    Compiled,
    DeletePlan,
    Find,
    FullAccess,
    InsertPlan,
    OverRows,
    RowFind,
    RowSelect,
    SelectPlan,
    SequenceSelect,
    UpdatePlan,
    VectorSelect,
)
from herdpy.sql.tree import (
    AccessStatement,
    AlterTable,
    ColumnRef,
    CreateIndex,
    Definition,
    Insert,
    OnConflict,
    Query,
    TableRef,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.engine.state.tablespace import Tablespace
    from herdpy.engine.statements.altering import Alterations
    from herdpy.engine.statements.interfaces import DatabaseServices
    from herdpy.exec.vector.duck import VectorResult
    from herdpy.model.access import User

T = TypeVar("T")
Batch = list[tuple[Prepared, list[Physical]]]
"""One statement with several sets of parameters: a plan and values for each."""
Part = tuple[Table, Key | None, Key | None]
"""Rows of a table with keys from the first up to, not with, the second (None: open)."""


_ARROW_ROWS_MIN = 1_000
_RESOLVED_AS = {OnConflict.SKIP: Operation.IGNORE, OnConflict.REPLACE: Operation.UPSERT}
"""What a stage does with rows as an INSERT does with those whose keys are there."""


class Execution:
    __slots__ = (
        "_clock",
        "_database",
        "_holder",
        "_interrupt",
        "_lock_timeout_s",
        "_look",
        "_numbers",
        "_tablespace",
        "_transaction",
        "returned",
    )

    def __init__(
        self,
        database: "DatabaseServices",
        transaction: Transaction | None,
        interrupt: StatementInterrupt,
        lock_timeout_s: float,
        look: Callable[[], object] | None = None,
        holder: Callable[[], Holder] | None = None,
        numbers: Numbers | None = None,
    ) -> None:
        """`look` is called while a query is printed; None: the interrupt's check().

        holder() says who has the results of queries; None: there will be none.
        """
        self._database = database
        self._holder = holder
        self._numbers = numbers
        self._tablespace = database.tablespace
        self._clock = database.clock
        self._transaction = transaction
        self._interrupt = interrupt
        self._lock_timeout_s = lock_timeout_s
        self._look = look or interrupt.check
        self.returned: tuple[Columns, list[LogicalRow]] | None = None
        """What a write gives of the rows that it writes (RETURNING), once it is logged."""

    # --- reading ---------------------------------------------------------------------------------

    def select(
        self, prepared: Prepared, values: Sequence[Physical], part: Part | None = None
    ) -> Result:
        """Run a query; with a part, one of a table's rows, on those of the part."""
        plan = prepared.plan
        if isinstance(plan, RowSelect):
            return self._select_rows(prepared, plan, values, part)
        if isinstance(plan, VectorSelect):
            return self._select_vector(prepared, plan.query, values, part)
        if isinstance(plan, SequenceSelect):
            return self._select_values(prepared, plan, values)
        raise InternalError(f"no way to run {plan.__class__.__name__}")

    def _select_values(
        self, prepared: Prepared, plan: SequenceSelect, values: Sequence[Physical]
    ) -> Result:
        """Take the values of all rows at once: what a program does not fetch is given away, too."""
        snapshot = self._snapshot(None)
        try:
            rows = self._query_rows(prepared, plan, values, snapshot)
            found = rows if prepared.convert is None else map(prepared.convert, rows)
            taken = collected(found, [sql_type for _, sql_type in plan.columns])
        finally:
            snapshot.close()
        return Result(plan.columns, iter(taken), is_whole=prepared.takes_values)

    def _snapshot(self, part: Part | None) -> Snapshot:
        snapshot = self._tablespace.snapshot(self._transaction)
        snapshot.check_interrupt = self._interrupt.check
        if part is not None:
            snapshot.restrict(*part)
        return snapshot

    def _select_rows(
        self, prepared: Prepared, plan: RowSelect, values: Sequence[Physical], part: Part | None
    ) -> Result:
        snapshot = self._snapshot(part)
        source = snapshot.source(plan.ref.table) if plan.ref is not None else None
        if plan.is_scan and source is not None and self._is_big(source):
            snapshot.close()
            return self._select_vector(prepared, plan.query, values, part)
        rows = prepared.once(compile_row_select, plan)(source, values, self._interrupt)
        if rows is None:
            snapshot.close()
            return self._select_vector(prepared, plan.query, values, part)
        if prepared.convert is not None:
            rows = map(prepared.convert, rows)
        make_reader = None
        if source is not None and _takes_all(plan) and self._is_arrow(source, part):
            make_reader = partial(self._whole_reader, prepared, plan, values, snapshot, source)
        return Result(
            prepared.columns,
            chain(rows, _closed(snapshot)),
            close=snapshot.close,
            make_reader=make_reader,
            check=_check_of(snapshot),
        )

    def _is_arrow(self, source: TableSnapshot, part: Part | None) -> bool:
        """Tell whether all rows of a source are better given as Arrow."""
        if part is None:
            return self._is_big(source)
        return source.row_count_guess >= _ARROW_ROWS_MIN  # who reads parts wants Arrow

    def _whole_reader(
        self,
        prepared: Prepared,
        plan: RowSelect,
        values: Sequence[Physical],
        snapshot: Snapshot,
        source: TableSnapshot,
        rows_per_batch: int,
    ) -> "pa.RecordBatchReader":
        """Return all rows of a table as Arrow: columns as they lie, anything else by DuckDB."""
        from herdpy.exec.vector.arrow_scan import scan_reader

        ordinals = [item.ordinal for item in plan.outputs if isinstance(item, ColumnRef)]
        is_plain = len(ordinals) == len(plan.outputs) and plan.access == FullAccess()
        if is_plain:
            columns = plan.query.columns
            return scan_reader(source, ordinals, columns, self._interrupt, rows_per_batch)
        place = self._place(may_wait=False)  # the statement has ended, its rows are fetched
        try:
            found = self._vector(prepared, plan.query, values, snapshot)
        except BaseException:
            place.close()
            raise
        found.on_close, found.on_read = place.close, place.read
        place.watch(found)
        return found.reader(rows_per_batch)

    def _select_vector(
        self, prepared: Prepared, query: Query, values: Sequence[Physical], part: Part | None
    ) -> Result:
        place = self._place(may_wait=True)
        try:
            snapshot = self._snapshot(part)
            try:
                found = self._vector(prepared, query, values, snapshot)
            except BaseException:
                snapshot.close()
                raise
        except BaseException:
            place.close()
            raise

        def close() -> None:
            try:
                snapshot.close()
            finally:
                place.close()

        found.on_close = close
        found.on_read = place.read
        place.watch(found)
        return Result(
            query.columns,
            found.rows(),
            close=found.close,
            make_reader=found.reader,
            check=_check_of(snapshot),
        )

    def _place(self, *, may_wait: bool) -> Place:
        """Return the place of a result; 53200, 53400; MustWaitError: there may be one soon."""
        if self._holder is None:
            raise InternalError("a result without a holder")
        return self._database.results.take(self._holder(), may_wait=may_wait)

    def _vector(
        self, prepared: Prepared, query: Query, values: Sequence[Physical], snapshot: Snapshot
    ) -> "VectorResult":
        self._database.watch(self._interrupt)
        user = None if self._holder is None else self._holder().user
        return self._database.vector_of(user).query(
            prepared.vector_text(query, self._look),
            snapshot,
            values,
            [slot.type for slot in prepared.slots],
            self._interrupt,
            columns=query.columns,
        )

    # --- writing ---------------------------------------------------------------------------------

    def write(
        self,
        transaction: Transaction,
        prepared: Prepared,
        values: list[list[Physical]],
        prepare_again: Callable[[], Prepared],
    ) -> int:
        """Run a write until it is logged, through restarts; return the rows affected.

        MustWaitError: it has had no effect, and has to be run again when a lock is granted.
        """
        first = self._make_write(prepared, values, transaction)
        return self.run(
            first,
            lambda: self._make_write(prepare_again(), values, transaction),
            frees_space=prepared.frees_space,
        )

    def attempt_write(
        self, transaction: Transaction, prepared: Prepared, values: list[Physical]
    ) -> int | None:
        """Run a write until it is logged, if that takes no wait; None: it has had no effect.

        PlanIsStaleError, LogSpaceError: nor has it.
        """
        outcome = self._make_write(prepared, [values], transaction).attempt()
        return outcome if isinstance(outcome, int) else None

    def write_batch(
        self, transaction: Transaction, prepare_all: Callable[[], Batch], *, frees_space: bool
    ) -> int:
        """Run one write for several sets of parameters, one after the other, as one statement."""

        def make() -> Write:
            while True:
                steps = [
                    self._make_write(prepared, [values], transaction)
                    for prepared, values in prepare_all()
                ]
                if len({step.table.id for step in steps}) == 1:  # else it was made anew meanwhile
                    return self._make_batch(steps, transaction)

        return self.run(make(), make, frees_space=frees_space)

    def run(self, write: Write, make: Callable[[], Write], *, frees_space: bool = False) -> int:
        """Run a write until it is logged; make() makes it anew for each restart."""
        restarts = 0
        while True:
            write.frees_space = frees_space
            outcome = with_log_space(self._tablespace, write.attempt, frees_space=frees_space)
            if outcome is SPILL:
                outcome = self._spilled(write, frees_space=frees_space)
            if isinstance(outcome, Ticket):
                raise MustWaitError(outcome, self._lock_timeout_s)
            if outcome is RESTART:
                self._check_restarts()
                restarts += 1
                if restarts > statement_restarts_max:
                    raise SerializationError(
                        f"the rows changed under the statement {restarts} times",
                        hint="Run the transaction again.",
                    )
                write = make()
            elif isinstance(outcome, int):
                return outcome
            self._interrupt.check()

    def _check_restarts(self) -> None:
        """Raise 40001 in a transaction whose snapshot another statement would have, too."""
        transaction = self._transaction
        if transaction is not None and transaction.isolation is Isolation.REPEATABLE_READ:
            raise SerializationError(
                "could not serialize access due to concurrent update: what the statement writes "
                "was changed by a transaction that committed after this one's snapshot was taken",
                hint="Run the transaction again.",
            )

    def _spilled(self, write: Write, *, frees_space: bool) -> "int | Ticket[None] | object":
        """Do a write whose changes are too much for memory."""
        transaction = self._transaction
        if transaction is None:
            raise InternalError("a write without transaction")
        with loading():
            from herdpy.engine.writes.spilled_writes import SpilledWrite

        database, check = self._database, self._interrupt.check
        spilled = SpilledWrite(
            database, self._tablespace, transaction, write, check, frees_space=frees_space
        )
        try:
            return spilled.attempt()
        except TooLargeError:
            raise MemoryLimitError(
                "the statement works out more changes than a transaction may hold in memory "
                f"({database.config.transaction_bytes_max} bytes), and needs all of them at once",
                hint="Write in smaller pieces, or give the database more memory_bytes_max.",
            ) from None

    def define(self, transaction: Transaction, statement: Definition, actor: Actor) -> None:
        """Run DDL until it is logged; MustWaitError: it has had no effect."""
        tablespace = self._tablespace

        def step() -> None:
            with tablespace.monitor:
                tablespace.enter()
                tablespace.check_writable()
                if isinstance(statement, AccessStatement):
                    change_access(tablespace, transaction, statement, actor, definitions.lock)
                else:
                    definitions.define(statement)

        lock = partial(self.lock, transaction)
        definitions = _alterations(tablespace, transaction, actor.user, lock)
        with_log_space(tablespace, step, frees_space=statement.frees_space)

    def begin_alter(
        self, transaction: Transaction, statement: AlterTable, actor: Actor
    ) -> Table | None:
        """Log the first part of an ALTER; finish_alter() does the rest, of what this returns.

        MustWaitError: it has had no effect. None: there is no rest.
        """
        tablespace = self._tablespace
        alter = _alterations(tablespace, transaction, actor.user, partial(self.lock, transaction))
        step = partial(tablespace.run_writing, partial(alter.begin, statement))
        return with_log_space(tablespace, step)

    def finish_alter(
        self,
        transaction: Transaction,
        statement: AlterTable,
        made: Table,
        prepared: Prepared,
        values: list[Physical],
        actor: Actor,
    ) -> None:
        """Test the rows that are there, and make entries of new indexes, or all rows anew."""
        tablespace, table = self._tablespace, statement.table
        if table is None:
            raise InternalError("an ALTER of nothing")
        if statement.rows is None:
            self._check_present(transaction, statement, table, made)
            known = {index.id for index in table.indexes}
            for store in made.stores:
                if store.index.id not in known:
                    build = partial(self._index_build, transaction, table, store)
                    self.run(build(), build)
            return
        target = TableRef(0, made, made.name)
        insert = Prepared(
            Compiled(Insert(target, statement.ordinals, None, statement.rows), prepared.slots)
        )
        try:
            self.write(transaction, insert, [values], lambda: insert)
        except Error as error:  # it knows the table under the name that it has for this time
            names = f'"{made.name}"', f'"{table.name}"'
            error.message = error.message.replace(*names)
            if isinstance(error, IntegrityError) and error.plain is not None:
                error.table, error.plain = table.name, error.plain.replace(*names)
            raise
        alter = _alterations(tablespace, transaction, actor.user, partial(self.lock, transaction))
        step = partial(tablespace.run_writing, partial(alter.finish, statement, made))
        with_log_space(tablespace, step)

    def _check_present(
        self, transaction: Transaction, statement: AlterTable, table: Table, made: Table
    ) -> None:
        """Raise 23502 or 23514 for a row that is there and does not fulfil what is new."""
        tested = tuple(each for each in made.checks if each.name in statement.tested)
        nulls = [
            ordinal
            for ordinal, column in enumerate(made.columns)
            if column.not_null and not table.columns[ordinal].not_null
        ]
        if not tested and not nulls:
            return
        checked = replace(made, checks=tested, indexes=())
        by_query = QueryChecks(checked, present_check) if tested else None
        by_row = None
        if by_query is not None and not by_query.is_by_query:
            by_row, by_query = compile_checks(checked, present_check), None
        latest = self._tablespace.latest(transaction)
        try:
            latest.check_interrupt = self._interrupt.check
            rows = iter(latest.source(table).rows())
            while part := list(islice(rows, CHECK_ROWS)):
                self._interrupt.check()
                for ordinal in nulls:
                    if any(row[ordinal] is None for row in part):
                        raise present_null(made, ordinal)
                if by_query is not None:
                    self.check_rows(by_query, part)
                elif by_row is not None:
                    for row in part:
                        by_row(row)
        finally:
            latest.close()

    def _index_build(self, transaction: Transaction, table: Table, store: IndexStore) -> IndexBuild:
        return IndexBuild(
            self._tablespace,
            transaction,
            table,
            store,
            memory_bytes_max=self._database.config.transaction_bytes_max,
            check_interrupt=self._interrupt.check,
        )

    def create_index(self, transaction: Transaction, statement: CreateIndex, actor: Actor) -> None:
        """Log an index's definition, and then its entries, as one statement.

        MustWaitError: it has had no effect. Any other error: nor has it, as soon as that is logged.
        """
        tablespace, number = self._tablespace, transaction.statement
        definitions = Definitions(
            tablespace, transaction, actor.user, partial(self.lock, transaction)
        )
        define = partial(tablespace.run_writing, partial(definitions.create_index, statement))
        store = with_log_space(tablespace, define)
        if store is None:
            return

        make = partial(self._index_build, transaction, statement.table, store)
        try:
            self.run(make(), make)
            tablespace.end_definition(transaction, number)
        except BaseException:
            tablespace.undo_cut(transaction)
            raise

    def lock(self, transaction: Transaction, resource: Resource, mode: Mode) -> None:
        """Acquire a lock, or raise MustWaitError. Monitor held."""
        wait = self._tablespace.locks.acquire(transaction, resource, mode)
        if wait is not None:
            raise MustWaitError(wait, self._lock_timeout_s)

    def _make_write(
        self, prepared: Prepared, values: list[list[Physical]], transaction: Transaction
    ) -> Write:
        plan = prepared.plan
        resolve = resolved_as = update = None
        joined: list[Row] = []
        give = self._give(prepared, values[0], joined)
        if isinstance(plan, InsertPlan):
            table = plan.statement.table
            if plan.source is None:
                rows = self._new_rows(prepared, plan, values)
                update = self._update_of(prepared, plan, values[0])
                return self._insert_of(prepared, plan, rows, transaction, give, update)
            inserted = partial(self._inserted, prepared, plan, plan.source, values[0])
            stream = self._checking(prepared, table, inserted)
            resolve = prepared.once(resolver, plan)
            update = self._update_of(prepared, plan, values[0])
            resolved_as = _RESOLVED_AS.get(plan.statement.on_conflict)
        elif isinstance(plan, UpdatePlan):
            table = plan.ref.table
            updated = partial(self._updated, prepared, plan, values[0], joined)
            stream = self._checking(prepared, table, updated)
        elif isinstance(plan, DeletePlan):
            table = plan.ref.table
            stream = partial(self._deleted, prepared, plan, values[0], joined)
        else:
            raise InternalError(f"no way to write with {plan.__class__.__name__}")
        self._interrupt.check()
        is_insert = isinstance(plan, InsertPlan)
        write = Write(
            self._tablespace,
            transaction,
            table,
            is_insert=is_insert,
            memory_bytes_max=self._database.config.transaction_bytes_max,
            check_interrupt=self._interrupt.check,
            resolve=resolve,
            resolved_as=resolved_as,
            stream=stream,
            give=give,
            update=update,
        )
        if isinstance(plan, InsertPlan):
            write.arbiters = plan.statement.arbiters
        return write

    def _give(
        self, prepared: Prepared, values: list[Physical], joined: Sequence[Row]
    ) -> Give | None:
        """Return what makes the rows that a write gives; None: it gives none.

        `joined` has what it takes of the rows that were joined to those that it has found, if any.
        """
        plan = prepared.plan
        if not isinstance(plan, InsertPlan | UpdatePlan | DeletePlan) or plan.returning is None:
            return None
        return partial(self._return, prepared, plan.returning, values, joined)

    def _return(
        self,
        prepared: Prepared,
        plan: OverRows,
        values: list[Physical],
        joined: Sequence[Row],
        source: TableSnapshot,
        rows: Sequence[Row],
    ) -> None:
        """Make the rows that a write gives of those that it writes."""
        check_count(len(rows))
        if joined:
            rows = [(*row, *more) for row, more in zip(rows, joined, strict=True)]
        types = [sql_type for _, sql_type in plan.columns]
        if plan.query is None:
            given = filter(None, self._computed(prepared, plan, values, rows))
            given = given if prepared.convert is None else map(prepared.convert, given)
            self.returned = plan.columns, collected(given, types)
            return
        found = self._found_over(prepared, plan, plan.query, values, source, rows)
        try:
            self.returned = plan.columns, collected(found.rows(), types)
        finally:
            found.close()

    def _computed(
        self, prepared: Prepared, plan: OverRows, values: list[Physical], rows: Sequence[Row]
    ) -> Iterator[tuple[Any, ...] | None]:
        """Yield what the row path computes of rows that a statement has at hand.

        None for one that does not meet the condition.
        """
        compute = prepared.once(compile_over_rows, plan)
        for start in range(0, len(rows), CHECK_ROWS):
            self._interrupt.check()
            yield from compute(rows[start : start + CHECK_ROWS], values)

    def _found_over(
        self,
        prepared: Prepared,
        plan: OverRows,
        query: Query,
        values: list[Physical],
        source: TableSnapshot,
        rows: Sequence[Row],
    ) -> "VectorResult":
        """Return what the vector path computes of rows that a statement has at hand."""
        snapshot = source.snapshot.with_rows(plan.ref.table, rows)
        return self._vector(prepared, query, values, snapshot)

    def _update_of(
        self, prepared: Prepared, plan: InsertPlan, values: list[Physical]
    ) -> Update | None:
        """Return what ON CONFLICT DO UPDATE makes of rows; None: it is another statement."""
        if plan.update is None:
            return None
        return partial(self._update_conflicts, prepared, plan, plan.update, values)

    def _update_conflicts(
        self,
        prepared: Prepared,
        plan: InsertPlan,
        over: OverRows,
        values: list[Physical],
        source: TableSnapshot,
        pairs: Sequence[tuple[Row, Row]],
    ) -> list[Row | None]:
        """Return the updated row of each (row that is there, new row), checked; None: it stays."""
        change = prepared.once(compile_conflict_changer, plan, over)
        check = prepared.once(compile_check_row, plan.statement.table)
        rows = [(*there, *new) for there, new in pairs]
        computed: Iterable[tuple[Any, ...] | None]
        if not rows:
            return []
        if over.query is None:
            computed = self._computed(prepared, over, values, rows)
        else:
            found = self._found_over(prepared, over, over.query, values, source, rows)
            values_found = list(found.physical_rows())
            computed = values_found
            if over.where is not None:
                met = {given[-1]: given[:-1] for given in values_found}
                computed = map(met.get, range(len(rows)))
        updated: list[Row | None] = []
        for row, given in zip(rows, looking(computed, self._interrupt.check), strict=True):
            new = None if given is None else change(given, row)
            if new is not None:
                check(new)
            updated.append(new)
        self._check_rows(prepared, plan.statement.table, list(filter(None, updated)))
        return updated

    def check_rows(self, checks: QueryChecks, rows: Iterable[Row]) -> None:
        """Raise 23514 for a row that violates a CHECK which takes a query."""
        if not checks.is_by_query:
            return
        left = iter(rows)
        self._database.watch(self._interrupt)
        user = None if self._holder is None else self._holder().user
        while part := list(islice(left, CHECK_ROWS)):
            snapshot = self._snapshot(None)
            try:
                checks.run(part, self._database.vector_of(user), snapshot, self._interrupt)
            finally:
                snapshot.close()

    def _check_rows(self, prepared: Prepared, table: Table, rows: Sequence[Row]) -> None:
        if table.checks:
            self.check_rows(prepared.once(QueryChecks, table), rows)

    def _checking(self, prepared: Prepared, table: Table, stream: Stream) -> Stream:
        """Return a stream of changes whose rows fulfil the CHECKs that take a query, too."""
        if not (table.checks and prepared.once(QueryChecks, table).is_by_query):
            return stream

        def checked(source: TableSnapshot) -> Iterator[Change]:
            changes = iter(stream(source))
            while part := list(islice(changes, CHECK_ROWS)):
                self._check_rows(prepared, table, [new for _, new in part if new is not None])
                yield from part

        return checked

    def _write_of(
        self,
        transaction: Transaction,
        table: Table,
        compute: Compute,
        *,
        is_insert: bool,
        give: Give | None = None,
        update: Update | None = None,
    ) -> Write:
        return Write(
            self._tablespace,
            transaction,
            table,
            compute,
            is_insert=is_insert,
            memory_bytes_max=self._database.config.transaction_bytes_max,
            check_interrupt=self._interrupt.check,
            give=give,
            update=update,
        )

    def _make_batch(self, steps: list[Write], transaction: Transaction) -> Write:
        """Return a write whose later steps see what the earlier ones do, of one net effect."""

        def compute(source: TableSnapshot) -> tuple[list[Change], int]:
            layers = BatchLayers(source)
            count = 0
            kept: set[Key] = set()
            seen: dict[Key, Row] = {}
            entries: dict[int, tuple[Table, dict[Key, None]]] = {}
            for step in steps:
                self._interrupt.check()
                changes, affected = step.find(layers.source)
                layers.add(changes, is_insert=step.is_insert)
                kept.update(step.kept)
                seen |= step.seen
                for table, keys in step.kept_entries:
                    entries.setdefault(table.id, (table, {}))[1].update(dict.fromkeys(keys))
                count += affected
            net = layers.net_changes()
            # What an earlier item has inserted is a change, and is locked as one.
            write.kept = [key for key in kept if not layers.has_changed(key)]
            write.seen = {key: row for key, row in seen.items() if not layers.has_changed(key)}
            write.kept_entries = []
            for table, found in entries.values():
                before = source.snapshot.source(table)
                write.kept_entries.append((table, [k for k in found if before.get(k) is not None]))
            return net, count

        write = self._write_of(transaction, steps[0].table, compute, is_insert=False)
        return write

    def _inserted(
        self,
        prepared: Prepared,
        plan: InsertPlan,
        query: SelectPlan,
        values: list[Physical],
        source: TableSnapshot,
    ) -> Iterator[Change]:
        """Yield the rows that a query gives, checked but for duplicate keys."""
        fill = prepared.once(compile_row_filler, plan)
        check = prepared.once(compile_check_row, plan.statement.table)
        now_us, numbers = self._now_us(), self._numbers
        found = self._query_rows(prepared, query, values, source.snapshot)
        row = None
        for given in looking(found, self._interrupt.check):
            row = fill(given, now_us, numbers)
            check(row)
            yield None, row
        self._note_identity(plan.statement.table, row)

    def insert_many(
        self,
        transaction: Transaction,
        prepared: Prepared,
        make_rows: MakeRows,
        items: Sequence[Any],
        prepare: Callable[[Any], Prepared],
    ) -> int:
        """Run INSERT … VALUES (?, …) for many rows of parameters as one write.

        make_rows is the plan's row_converter. prepare compiles the statement for one item; for an
        item of another kind or length it raises what is wrong.
        """

        def make() -> Write:
            plan = prepared.plan
            if not isinstance(plan, InsertPlan):
                raise InternalError(f"no way to insert with {plan.__class__.__name__}")
            now_us = self._now_us()
            rows: list[Row] = []
            for start in range(0, len(items), CHECK_ROWS):
                self._interrupt.check()
                try:
                    some = items[start : start + CHECK_ROWS]
                    make_rows(some, now_us, self._numbers, prepare, rows.append)
                except Error as error:
                    name_row(error, len(rows) + 1)
                    raise
            return self._insert_of(prepared, plan, rows, transaction)

        def make_again() -> Write:
            nonlocal prepared
            prepared = prepare(items[0])
            return make()

        return self.run(make(), make_again)

    def _insert_of(
        self,
        prepared: Prepared,
        plan: InsertPlan,
        rows: list[Row],
        transaction: Transaction,
        give: Give | None = None,
        update: Update | None = None,
    ) -> Write:
        """Return the write of rows that are whole and checked, but for what takes a query."""
        self._interrupt.check()
        table = plan.statement.table
        self._check_rows(prepared, table, rows)
        if table.is_heap:
            changes: list[Change] = [(None, row) for row in rows]
            write = self._write_of(
                transaction,
                table,
                lambda _: (changes, len(changes)),
                is_insert=True,
                give=give,
                update=update,
            )
        else:
            write = FreshInsert(
                self._tablespace,
                transaction,
                table,
                rows,
                memory_bytes_max=self._database.config.transaction_bytes_max,
                check_interrupt=self._interrupt.check,
                resolve=prepared.once(resolver, plan),
                give=give,
                update=update,
            )
        write.arbiters = plan.statement.arbiters
        return write

    def _is_big(self, source: TableSnapshot) -> bool:
        """Tell whether a scan of it is for the vector path."""
        return source.row_count_guess >= self._database.config.vector_rows_min

    def _new_rows(
        self, prepared: Prepared, plan: InsertPlan, values: list[list[Physical]]
    ) -> list[Row]:
        now_us = self._now_us()
        make_rows = prepared.once(compile_insert_rows, plan, self._interrupt.check)
        check = prepared.once(compile_check_row, plan.statement.table)
        rows: list[Row] = []
        for item in values:
            made = make_rows(item, now_us, self._numbers)
            is_long = len(made) > CHECK_ROWS
            for row in looking(made, self._interrupt.check) if is_long else made:
                check(row)
                rows.append(row)
        self._note_identity(plan.statement.table, rows[-1] if len(values) == 1 else None)
        return rows

    def _note_identity(self, table: Table, row: Row | None) -> None:
        """Note what the statement inserts last, of the column that a sequence fills."""
        if row is not None and table.identity is not None and self._transaction is not None:
            value = row[table.identity]
            self._transaction.last_identity = value if isinstance(value, int) else None

    def _query_rows(
        self,
        prepared: Prepared,
        plan: SelectPlan,
        values: Sequence[Physical],
        snapshot: Snapshot,
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the physical rows of a query on the statement's own snapshot."""
        interrupt = self._interrupt
        if isinstance(plan, SequenceSelect):
            take, numbers = prepared.once(compile_sequence_select, plan), self._numbers
            assert numbers is not None
            for row in self._query_rows(prepared, plan.source, values, snapshot):
                yield take(row, values, numbers)
            return
        if isinstance(plan, RowSelect):
            found = snapshot.source(plan.ref.table) if plan.ref is not None else None
            if found is None or not (plan.is_scan and self._is_big(found)):
                rows = prepared.once(compile_row_select, plan)(found, values, interrupt)
                if rows is not None:
                    yield from rows
                    return
        yield from self._vector_rows(prepared, plan.query, values, snapshot)

    def _vector_rows(
        self, prepared: Prepared, query: Query, values: Sequence[Physical], snapshot: Snapshot
    ) -> Iterator[tuple[Any, ...]]:
        found = self._vector(prepared, query, values, snapshot)
        try:
            yield from found.physical_rows()
        finally:
            found.close()

    def _find(
        self, prepared: Prepared, find: Find, values: Sequence[Physical], source: TableSnapshot
    ) -> Iterator[tuple[Row, tuple[Any, ...]]]:
        """Yield (row, what the query computed: new values, then columns of joined rows)."""
        if isinstance(find, RowFind) and find.is_scan and self._is_big(source):
            find = find.found_by_vector()
        if isinstance(find, RowFind):
            rows = prepared.once(compile_find, find)(source, values, self._interrupt)
            if rows is not None:
                for row in rows:
                    yield row, ()
                return
            find = find.found_by_vector()
        table = source.table
        width = len(table.key)
        kinds = [table.columns[ordinal].type.kind for ordinal in table.key]
        # Each row comes once: what was found need not be kept to know it again.
        for found in self._vector_rows(prepared, find.query, values, source.snapshot):
            row = source.get(canonical_key(found[:width], kinds))
            if row is not None:
                yield row, found[width:]

    def _found(
        self,
        prepared: Prepared,
        find: Find,
        values: Sequence[Physical],
        joined: list[Row],
        source: TableSnapshot,
    ) -> Iterator[tuple[Row, tuple[Any, ...]]]:
        """Yield what is found, and put what RETURNING takes of joined rows aside, in this order.

        TooLargeError: that is more than a transaction may hold in memory.
        """
        joined.clear()
        first = 0 if isinstance(find, RowFind) else find.value_count
        left = self._database.config.transaction_bytes_max
        for row, computed in self._find(prepared, find, values, source):
            more = computed[first:]
            if more:
                joined.append(more)
                check_count(len(joined))
                left -= row_bytes(more)
                if left < 0:
                    raise TooLargeError
            yield row, computed

    def _deleted(
        self,
        prepared: Prepared,
        plan: DeletePlan,
        values: Sequence[Physical],
        joined: list[Row],
        source: TableSnapshot,
    ) -> Iterator[Change]:
        found = self._found(prepared, plan.find, values, joined, source)
        return ((row, None) for row, _ in found)

    def _updated(
        self,
        prepared: Prepared,
        plan: UpdatePlan,
        values: Sequence[Physical],
        joined: list[Row],
        source: TableSnapshot,
    ) -> Iterator[Change]:
        find = plan.find
        check = prepared.once(compile_check_row, plan.ref.table)
        found = self._found(prepared, find, values, joined, source)
        if not isinstance(find, RowFind) and find.value_count:
            change = prepared.once(compile_row_changer, plan, find)
            changes = ((row, change(new_values, row)) for row, new_values in found)
        else:
            assign = prepared.once(compile_assignments, plan)
            changes = ((row, assign(row, values, self._numbers)) for row, _ in found)
        for old, new in looking(changes, self._interrupt.check):
            check(new)
            yield old, new

    def _now_us(self) -> int:
        if self._transaction is None:
            raise InternalError("a write without transaction")
        return self._transaction.begun_us


def _alterations(
    tablespace: "Tablespace", transaction: Transaction, user: "User | None", lock: Lock
) -> "Alterations":
    """Return what defines and alters; its module takes the binder, which no connection needs."""
    with loading():
        from herdpy.engine.statements.altering import Alterations

    return Alterations(tablespace, transaction, user, lock)


def _check_of(snapshot: Snapshot) -> Callable[[], object] | None:
    """Return what says that a result may not be shown any more; None: it always may.

    What a COMMIT has made of its transaction is as it was; so may a result be read behind it.
    """
    return snapshot.check_not_undone if snapshot.shows_own_writes else None


def _takes_all(plan: RowSelect) -> bool:
    """Tell whether a query gives every row of its table."""
    return (
        isinstance(plan.access, FullAccess)
        and plan.residual is None
        and plan.limit is None
        and plan.offset is None
    )


def _closed(snapshot: Snapshot) -> Iterator[Any]:
    """Yield nothing, and let the snapshot go."""
    snapshot.close()
    yield from ()
