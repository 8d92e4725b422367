"""A session's short ways: a row read or written by its key, by a plan that came before.

None waits, but for a moment at the monitor and for its commit: what would need more says None, has
had no effect, and goes the long way (session_statements.py). Any thread.
"""

from collections.abc import Callable

from herdpy.engine.session.activity import Running
from herdpy.engine.session.plans import SessionPlans
from herdpy.engine.state.snapshots import PlanIsStaleError
from herdpy.engine.state.transactions import Transaction, TransactionState
from herdpy.engine.statements.fast_paths import MakeRow
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.plan_cache import Prepared
from herdpy.engine.writes.inserts import insert_row
from herdpy.engine.writes.nonblocking import Begun, WouldWaitError
from herdpy.exec.result import Columns, LogicalRow, Result
from herdpy.log.interfaces import LogSpaceError
from herdpy.model.durability import Durability
from herdpy.sql.plan import InsertPlan, Parameters

PointRows = tuple[Columns, list[LogicalRow]]
_POINT_ATTEMPTS_MAX = 3  # each fails only when two commits changed the row during it
_PATIENCE_S = 0.001
"""For the monitor, which who applies a commit holds when its answer leaves already."""


class SessionShort(SessionPlans):
    """See the module."""

    def read_row(self, text: str, parameters: Parameters) -> PointRows | None:
        """Run a point read that came before in the short way; None: execute() has to.

        It takes no lock, registers no snapshot, begins no transaction and cannot wait, so there is
        nothing to clean up and nothing to cancel. The caller has checked for a fork.
        """
        prepared = self._database.plans.latest.get(text)
        if prepared is None or prepared.read_row is None:
            return None
        with self._mutex:
            if self._is_closed or self._statement is not None:
                return None
            transaction = self._transaction
            own, statement = None, 0
            if transaction is not None:
                if transaction.state is not TransactionState.ACTIVE or transaction.lease:
                    return None
                if transaction.catalog_changes or transaction.access_changes:
                    return None
                own, statement = transaction.writes, transaction.statement
                if self._settings.idle_in_transaction_timeout_s:
                    self._used_s = self._clock.monotonic()
            elif not self._autocommit:
                return None
            if self._tablespace.failure is not None:
                return None
            applier = self._tablespace.applier
            for _ in range(_POINT_ATTEMPTS_MAX):
                state = applier.state
                if prepared.version != state.catalog.version:
                    return None
                if self.user is not None and not self._gate.is_authorized(
                    prepared, state.catalog.access
                ):
                    return None
                rows = prepared.read_row(parameters, state, own, statement)
                # A commit after the next one may drop what this position sees from the middle of
                # a chain, because nobody registered it; so the rows count only without that.
                if rows is not None and applier.state.position == state.position:
                    return prepared.columns or (), rows
        return None

    def insert_row(self, text: str, parameters: Parameters) -> Result | None:
        """Run an INSERT of one row that came before in the short way; None: execute() has to.

        It waits for nothing but, in autocommit, for its commit, which nobody can cancel either.
        """
        if self._log_row(text, parameters, self._finish_row) is None:
            return None
        self.is_audited = False
        return Result(row_count=1)

    def _log_row(
        self, text: str, parameters: Parameters, finish: Callable[[Transaction, str], None]
    ) -> Transaction | None:
        """Log the row of an INSERT that came before; None: no effect, the long way knows why.

        finish(transaction, text) is for the commit of an autocommit statement.
        """
        prepared = self._database.plans.latest.get(text)
        if prepared is None or prepared.make_row is None:
            return None
        with self._mutex:
            self._check_open()
            try:
                try:
                    transaction = self._insert_row(prepared, prepared.make_row, parameters)
                    if transaction is None:
                        return None
                    if transaction.is_autocommit:
                        finish(transaction, text)
                except BaseException as error:
                    self._recover(error)
                    raise
                finally:
                    self.running = None
                    if self._settings.idle_in_transaction_timeout_s:
                        self._used_s = self._clock.monotonic()
            except BaseException as error:
                # Once more, because an interrupt may have hit the first clean-up; repeatable.
                self._recover(error)
                raise
        self._database.after_write()
        return transaction

    def _insert_row(
        self, prepared: Prepared, make_row: MakeRow, parameters: Parameters
    ) -> Transaction | None:
        """Log the row, under the mutex, if nothing is out of the ordinary."""
        transaction, tablespace = self._transaction, self._tablespace
        if self._statement is not None or (transaction is None and not self._autocommit):
            return None
        if transaction is not None and (
            transaction.state is not TransactionState.ACTIVE
            or transaction.catalog_changes
            or transaction.access_changes
            or transaction.lease
        ):
            return None
        self._database.check_usable()
        catalog = tablespace.applier.state.catalog
        plan = prepared.plan
        if prepared.version != catalog.version or not isinstance(plan, InsertPlan):
            return None
        if self.user is not None and not self._gate.is_authorized(prepared, catalog.access):
            return None
        if tablespace.failure is not None:
            return None
        self._database.check_room()
        transaction = self._own_or_statement()
        row = make_row(parameters, transaction.begun_us)
        try:
            is_done = row is not None and insert_row(
                tablespace,
                transaction,
                plan.statement.table,
                row,
                memory_bytes_max=self._database.config.transaction_bytes_max,
            )
        except LogSpaceError:
            is_done = False
        if is_done:
            return transaction
        if transaction.is_autocommit:
            self._give_up(transaction)
            self._statement = None
        return None

    def _finish_row(self, transaction: Transaction, text: str) -> None:
        """Wait for the commit of a row; that is in sysstatements."""
        if not transaction.outcome.is_done:
            database, clock = self._database, self._clock
            interrupt = StatementInterrupt(clock, 0.0)
            number = next(database.statement_ids)
            self.running = Running(number, text, clock.monotonic(), interrupt)
        self._finish_autocommit(transaction)

    def _ask_for_sync(self, transaction: Transaction, _: str) -> None:
        syncer = self._tablespace.syncer
        if syncer is not None:
            syncer.ask(transaction.durability)

    def write_at_once(self, text: str, parameters: Parameters) -> Begun | None:
        """Run a short write that came before, without any wait; None: execute() has to.

        For a thread that serves many sessions: what is busy is left alone. When an outcome is
        given, end_write() follows as soon as it is done, before any other call.
        """
        latest = self._database.plans.latest.get(text)
        if latest is None or latest.bind is None or not latest.is_short:
            return None
        transaction = self._transaction
        if transaction is not None and transaction.state is not TransactionState.ACTIVE:
            return None
        durability = self._settings.durability
        if self._mutex.locked() or self._statement is not None or durability is Durability.OS:
            return None
        monitor = self._tablespace.monitor
        if not monitor.acquire(True, _PATIENCE_S):
            return None
        monitor.release()
        try:
            done = self._log_row(text, parameters, self._ask_for_sync)
            if done is not None:
                return Begun(1, done, done.outcome if done.is_autocommit else None)
            return self._guarded(lambda: self._write_at_once(latest, parameters), text)
        except (WouldWaitError, PlanIsStaleError):  # it has had no effect
            return None

    def end_write(self, begun: Begun) -> None:
        """Take note of a write's outcome, which is done; its error is raised."""
        with self._mutex:
            if self._statement is begun.transaction:
                self._statement = None
        if begun.outcome is not None:
            begun.outcome.result()

    def _write_at_once(self, prepared: Prepared, parameters: Parameters) -> Begun:
        transaction = self._transaction
        if transaction is not None and (
            transaction.catalog_changes or transaction.access_changes or transaction.lease
        ):
            raise WouldWaitError
        if prepared.version != self._tablespace.applier.state.catalog.version:
            raise WouldWaitError
        values = prepared.bind(parameters) if prepared.bind is not None else None
        if values is None:
            raise WouldWaitError
        if not self._gate.is_authorized(prepared, self._tablespace.state.catalog.access):
            raise WouldWaitError  # what a user may do can take long to find out
        self._tablespace.check_running()
        self._check_not_lost()
        if transaction is None and not self._autocommit:
            self._open_transaction(self._settings.durability)
        self._database.check_room(frees_space=prepared.frees_space)
        transaction = self._own_or_statement()
        count = self._execution(transaction).write_at_once(transaction, prepared, values)
        if count is None:
            raise WouldWaitError
        outcome = None
        if transaction.is_autocommit:
            if transaction.state is TransactionState.ACTIVE:  # nothing was logged
                self._tablespace.rollback(transaction)
            else:
                outcome = transaction.outcome
                self._ask_for_sync(transaction, "")
        self._database.after_write()
        return Begun(count, transaction, outcome)
