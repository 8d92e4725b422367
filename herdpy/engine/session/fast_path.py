"""The fast path: a row read or written by its key, by a plan that came before, behind one gate.

It waits for nothing, but for a moment at the monitor and, if the caller wants that, for its commit.
What would need more says None, has had no effect, and takes the general path (statements.py). Any
thread.
"""

from collections.abc import Callable
from typing import Any

from herdpy.engine.session.activity import Running
from herdpy.engine.session.core import SessionCore
from herdpy.engine.session.planner import Planner
from herdpy.engine.state.error_messages import system_error
from herdpy.engine.state.memtable_room import MemtableFullError
from herdpy.engine.state.snapshots import PlanIsStaleError
from herdpy.engine.state.transactions import Transaction, TransactionState
from herdpy.engine.statements.execution import Execution
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.lock_wait import MustWaitError
from herdpy.engine.statements.plan_cache import Prepared
from herdpy.engine.statements.shared_plans import is_shared
from herdpy.engine.writes.nonblocking import PendingWrite
from herdpy.errors import DataError
from herdpy.exec.result import Columns, LogicalRow, Result
from herdpy.log.interfaces import LogSpaceError
from herdpy.model.durability import Durability
from herdpy.sql.plan import Parameters

_new: Any = tuple.__new__  # a NamedTuple without the Python function around it, once per write
_ONE_ROW = Result(row_count=1)
"""What each write of a row gives that no sequence has filled: immutable, as it has no rows."""
PointRows = tuple[Columns, list[LogicalRow]]
_POINT_ATTEMPTS = range(3)  # each fails only when two commits changed the row during it
_PATIENCE_S = 0.001
"""For the monitor, which the thread that applies a commit holds when its answer leaves already."""


def _result_of(write: PendingWrite) -> Result:
    if write.last_row_id is None:
        return _ONE_ROW
    result = Result(row_count=1)
    result.last_row_id = write.last_row_id
    return result


class FastPath:
    def __init__(
        self,
        core: SessionCore,
        planner: Planner,
        execute: Callable[[str, Parameters], Result],
    ) -> None:
        """execute() is the general path."""
        self._core = core
        self._database = core.database
        self._tablespace = core.tablespace
        self._clock = core.database.clock
        self._latest = core.database.plans.latest
        self._shared_plans = core.database.shared_plans
        self._gate = planner.gate
        self._execute = execute
        self._write_bytes_max = core.database.config.transaction_bytes_max
        self._no_interrupt = StatementInterrupt(self._clock, 0.0)
        """Of a write here, which cannot be cancelled."""

    def run(self, text: str, parameters: Parameters) -> "Result | PointRows":
        """Run one statement: here, if its text came before, else on the general path.

        The caller has checked for a fork. `parameters` may be of any class.
        """
        prepared = self._latest.get(text)
        if prepared is not None:
            found = self.attempt(prepared, parameters, text)
        else:
            found = None if parameters else self._attempt_shared(text)
        if found is not None:
            return _result_of(found) if isinstance(found, PendingWrite) else found
        return self._execute(text, parameters)

    def _attempt_shared(self, text: str) -> "PointRows | PendingWrite | None":
        """As attempt(), by the plan that a statement with literals shares."""
        transaction = self._core.transaction
        if transaction is not None and transaction.catalog_changes:
            return None
        split = self._shared_plans.find(text, is_first_noted=False)
        if split is None:
            return None
        prepared = self._latest.get(split.text)
        if prepared is None or not is_shared(prepared, split.values):
            return None
        try:
            return self.attempt(prepared, split.values, text)
        except DataError:  # nothing was logged: the general path says where in the text
            return None

    def attempt(
        self, prepared: Prepared, parameters: Parameters, text: str | None = None
    ) -> "PointRows | PendingWrite | None":
        """Read or write the row of a plan; None: no effect, the general path has to.

        With a text a write by autocommit waits for its commit, as that statement. Without, for a
        thread that serves many sessions, what is busy is left alone, and a write may be any short
        one. When an outcome is given, the caller has the log synced as the transaction's durability
        wants it, and end_write() follows as soon as the outcome is done, before any other call.
        """
        core, tablespace = self._core, self._tablespace
        if text is None and core.mutex.locked():
            return None  # the housekeeper may be rolling back what was idle for too long
        read = prepared.read_row
        if prepared.is_write:
            write = prepared.write_row or prepared.new_write_row()
            if write is None and (text is not None or not prepared.is_short):
                return None
            if text is None:
                if core.settings.durability is Durability.OS or not tablespace.monitor.acquire(
                    True, _PATIENCE_S
                ):
                    return None
                tablespace.monitor.release()
        elif read is None:
            return None
        with core.mutex:
            # The gate.
            if (
                core.statement is not None
                or core.unsettled is not None
                or core.lock_wait is not None
                or core.is_closed
                or core.ended
                or tablespace.failure is not None
            ):
                return None
            applier = tablespace.applier
            state = applier.state
            catalog = state.catalog
            if prepared.version != catalog.version and not prepared.is_current(catalog):
                return None
            if core.user is not None and not self._gate.is_authorized(prepared, catalog.access):
                return None
            transaction = core.transaction
            if transaction is None and not core.is_autocommit:
                transaction = core.current_transaction()
            if transaction is not None:
                if transaction.state is not TransactionState.ACTIVE or (
                    transaction.catalog_changes
                    or transaction.access_changes
                    or transaction.reads_at
                    or transaction.has_spilled
                    or transaction.cut is not None
                    or transaction.is_undone
                ):
                    return None
                transaction.has_read = True
            if read is None:
                return self._write(prepared, transaction, parameters, text)
            # It takes no lock, registers no snapshot and cannot wait, so there is nothing to clean
            # up and nothing to cancel.
            if transaction is not None and core.settings.idle_in_transaction_timeout_s:
                core.used_s = self._clock.monotonic()
            for _ in _POINT_ATTEMPTS:
                rows = read(parameters, state, transaction)
                # A commit after the next one may drop what this position sees from the middle of
                # a chain, because no snapshot registered it; so the rows count only without that.
                now = applier.state
                if now.position == state.position:
                    return None if rows is None else (prepared.columns or (), rows)
                if now.catalog is not catalog:
                    return None
                state = now
        return None

    def _write(
        self,
        prepared: Prepared,
        transaction: Transaction | None,
        parameters: Parameters,
        text: str | None,
    ) -> PendingWrite | None:
        """Log the row of a write that was let in; see attempt()."""
        core, database, tablespace = self._core, self._database, self._tablespace
        try:
            try:
                space = tablespace.space
                modes = core.settings if transaction is None else transaction
                if core.next_write_s or modes.is_read_only:
                    return None  # it waits, or is refused
                replica = database.replica
                if (
                    replica.is_full
                    or replica.is_over_limit
                    or (space is not None and space.is_full)
                ):
                    return None  # it may be refused, behind a look at the disk
                if transaction is None:
                    transaction = core.statement = Transaction(
                        core.settings.durability, begun_us=self._clock.wall_us(), is_autocommit=True
                    )
                    transaction.token = core.token
                transaction.numbers, transaction.last_identity = core.numbers, None
                core.numbers.is_at_once = text is None
                write, count = prepared.write_row, None
                try:
                    if write is not None and write(
                        tablespace, transaction, parameters, self._write_bytes_max
                    ):
                        count = 1
                    elif text is None and prepared.is_short:
                        count = self._log_short(prepared, transaction, parameters)
                except (LogSpaceError, MemtableFullError, MustWaitError, PlanIsStaleError):
                    pass
                if count is None:
                    if transaction.is_autocommit:
                        core.forget_statement()
                    elif text is None:
                        tablespace.leave_queues(transaction)
                    return None
                outcome = None
                if transaction.is_autocommit:
                    if transaction.state is TransactionState.ACTIVE:  # nothing was logged
                        core.forget_statement()
                    elif text is None:
                        outcome = transaction.outcome
                    else:
                        number, begun_s = next(database.statement_ids), self._clock.monotonic()
                        core.running = _new(Running, (number, text, begun_s, self._no_interrupt))
                        core.wait_for(transaction.outcome, transaction.durability)
                        core.statement = None
                core.is_audited = False
                if database.after_write() and transaction.is_autocommit:
                    core.next_write_s = database.next_write_s(transaction.byte_count)
                return _new(PendingWrite, (count, transaction, outcome, transaction.last_identity))
            except BaseException as error:
                core.recover(error)
                raise
            finally:
                core.running = None
                core.numbers.is_at_once = False
                if core.settings.idle_in_transaction_timeout_s:
                    core.used_s = self._clock.monotonic()
        except BaseException as error:
            # Once more, because an interrupt may have hit the first clean-up; repeatable.
            core.recover(error)
            refused = system_error(error)
            if refused is not None:
                raise refused from error
            raise

    def _log_short(
        self, prepared: Prepared, transaction: Transaction, parameters: Parameters
    ) -> int | None:
        """Log a short write that only the general path can do, if that takes no wait."""
        values = prepared.bind(parameters) if prepared.bind is not None else None
        if values is None:
            return None
        lock_timeout_s = self._core.settings.lock_timeout_s
        execution = Execution(
            self._database,
            transaction,
            self._no_interrupt,
            lock_timeout_s,
            numbers=self._core.numbers,
        )
        return execution.attempt_write(transaction, prepared, values)

    def end_write(self, begun: PendingWrite) -> None:
        """Take note of a write's outcome, which is done; its error is raised."""
        core = self._core
        with core.mutex:
            if core.statement is begun.transaction:
                core.statement = None
        if begun.outcome is not None:
            begun.outcome.result()
