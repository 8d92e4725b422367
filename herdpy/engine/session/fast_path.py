"""A session's fast paths: a row read or written by its key, by a plan that came before.

None waits, but for a moment at the monitor and for its commit: what would need more says None, has
had no effect, and takes the general path (dispatch.py). Any thread.
"""

from collections.abc import Mapping
from typing import Any

from herdpy.engine.session.activity import Running
from herdpy.engine.session.plans import SessionPlans
from herdpy.engine.state.snapshots import PlanIsStaleError
from herdpy.engine.state.transactions import Transaction, TransactionState
from herdpy.engine.statements.fast_paths import ReadRow
from herdpy.engine.statements.plan_cache import Prepared, WriteRow
from herdpy.engine.writes.nonblocking import PendingWrite, WouldWaitError
from herdpy.exec.result import Columns, LogicalRow, Result
from herdpy.log.interfaces import LogSpaceError
from herdpy.model.durability import Durability
from herdpy.sql.plan import Parameters

_new: Any = tuple.__new__  # a NamedTuple without the Python function around it, once per write
_ONE_ROW = Result(row_count=1)
"""What each of these writes gives: immutable, as it has no rows."""
PointRows = tuple[Columns, list[LogicalRow]]
_POINT_ATTEMPTS_MAX = 3  # each fails only when two commits changed the row during it
_PATIENCE_S = 0.001
"""For the monitor, which the thread that applies a commit holds when its answer leaves already."""


def _is_plain(transaction: Transaction) -> bool:
    """Return whether it goes on, with the catalog and the snapshots of every other one."""
    return transaction.state is TransactionState.ACTIVE and not (
        transaction.catalog_changes or transaction.access_changes or transaction.lease
    )


class SessionShort(SessionPlans):
    """See the module."""

    def execute(self, text: str, parameters: Parameters = None) -> Result:
        """Run one statement on the general path."""
        raise NotImplementedError

    def run(self, text: str, parameters: Parameters) -> "Result | PointRows":
        """Run one statement: on the fast path of its plan, if it came before, else by execute().

        The caller has checked for a fork. `parameters` may be of any class.
        """
        prepared = self._database.plans.latest.get(text)
        if prepared is not None:
            if prepared.read_row is not None:
                rows = self._read_row(prepared, prepared.read_row, parameters)
                if rows is not None:
                    return prepared.columns or (), rows
            elif prepared.is_write:
                write = prepared.write_row or prepared.new_write_row()
                if write is not None and self._log_row(prepared, write, parameters, text):
                    self.is_audited = False
                    return _ONE_ROW
        return self.execute(text, parameters)

    @property
    def latest_plans(self) -> Mapping[str, Prepared]:
        """The plan used last for each text, of any session; any thread."""
        return self._database.plans.latest

    def read_row(self, text: str, parameters: Parameters) -> PointRows | None:
        """Run a point read that came before; None: execute() has to."""
        prepared = self._database.plans.latest.get(text)
        if prepared is None or prepared.read_row is None:
            return None
        rows = self._read_row(prepared, prepared.read_row, parameters)
        return None if rows is None else (prepared.columns or (), rows)

    def _read_row(
        self, prepared: Prepared, read: ReadRow, parameters: Parameters
    ) -> list[LogicalRow] | None:
        """Read the row of a plan; None: the general path has to.

        It takes no lock, registers no snapshot, begins no transaction and cannot wait, so there is
        nothing to clean up and nothing to cancel.
        """
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
                catalog = state.catalog
                if prepared.version != catalog.version and not prepared.is_current(catalog):
                    return None
                if self.user is not None and not self._gate.is_authorized(prepared, catalog.access):
                    return None
                rows = read(parameters, state, own, statement)
                # A commit after the next one may drop what this position sees from the middle of
                # a chain, because no snapshot registered it; so the rows count only without that.
                if rows is not None and applier.state.position == state.position:
                    return rows
        return None

    def write_row(self, text: str, parameters: Parameters) -> Result | None:
        """Run a write of one row by its key that came before; None: execute() has to.

        It waits for nothing but, in autocommit, for its commit, which cannot be cancelled either.
        """
        prepared = self._database.plans.latest.get(text)
        if prepared is None or not prepared.is_write or self._wait is not None:
            return None  # a statement that waited is run again by the general path
        write = prepared.write_row or prepared.new_write_row()
        if write is None or self._log_row(prepared, write, parameters, text) is None:
            return None
        self.is_audited = False
        return _ONE_ROW

    def _log_row(
        self, prepared: Prepared, write: WriteRow, parameters: Parameters, text: str | None
    ) -> Transaction | None:
        """Log the row of a write that came before; None: no effect, the general path knows why.

        With a text an autocommit statement waits for its commit, as that statement; without, the
        caller asks the syncer and takes the outcome.
        """
        tablespace, database = self._tablespace, self._database
        with self._mutex:
            if self._is_closed or self._end_error is not None:
                self._check_open()
            try:
                try:
                    transaction = self._transaction
                    if (
                        self._statement is not None
                        or (transaction is None and not self._autocommit)
                        or (transaction is not None and not _is_plain(transaction))
                    ):
                        return None
                    catalog = tablespace.applier.state.catalog
                    if tablespace.failure is not None or (
                        prepared.version != catalog.version and not prepared.is_current(catalog)
                    ):
                        return None
                    if self.user is not None and not self._gate.is_authorized(
                        prepared, catalog.access
                    ):
                        return None
                    reserve = tablespace.reserve
                    if database.is_full or (reserve is not None and reserve.is_given_up):
                        database.check_room(frees_space=prepared.frees_space)
                    if transaction is None:
                        transaction = self._statement = Transaction(
                            self._settings.durability,
                            begun_us=self._clock.wall_us(),
                            is_autocommit=True,
                        )
                        transaction.token = self.token
                    try:
                        is_done = write(tablespace, transaction, parameters, self._write_bytes_max)
                    except LogSpaceError:
                        is_done = False
                    if not is_done:
                        if transaction.is_autocommit:
                            self._give_up(transaction)
                            self._statement = None
                        return None
                    if transaction.is_autocommit and text is not None:
                        self._finish_row(transaction, text)
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
        database.after_write()
        return transaction

    def _finish_row(self, transaction: Transaction, text: str) -> None:
        """Wait for the commit of a row; that is in sysstatements."""
        number = next(self._database.statement_ids)
        begun_s = self._clock.monotonic()
        self.running = _new(Running, (number, text, begun_s, self._commit_interrupt))
        self._await_commit(transaction)
        self._statement = None

    def write_at_once(self, text: str, parameters: Parameters) -> PendingWrite | None:
        """Run a short write that came before, without any wait; None: execute() has to.

        For a thread that serves many sessions: what is busy is left alone. When an outcome is
        given, the caller has the log synced as the transaction's durability wants it, and
        end_write() follows as soon as the outcome is done, before any other call.
        """
        latest = self._database.plans.latest.get(text)
        if latest is None or latest.bind is None:
            return None
        write = latest.write_row or latest.new_write_row()
        if write is None and not latest.is_short:
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
            if write is not None:
                done = self._log_row(latest, write, parameters, None)
                if done is not None:
                    outcome = done.outcome if done.is_autocommit else None
                    return _new(PendingWrite, (1, done, outcome))
                if not latest.is_short:
                    return None
            return self._guarded(lambda: self._write_at_once(latest, parameters), text)
        except (WouldWaitError, PlanIsStaleError):  # it has had no effect
            return None

    def end_write(self, begun: PendingWrite) -> None:
        """Take note of a write's outcome, which is done; its error is raised."""
        with self._mutex:
            if self._statement is begun.transaction:
                self._statement = None
        if begun.outcome is not None:
            begun.outcome.result()

    def _write_at_once(self, prepared: Prepared, parameters: Parameters) -> PendingWrite:
        transaction = self._transaction
        if transaction is not None and (
            transaction.catalog_changes or transaction.access_changes or transaction.lease
        ):
            raise WouldWaitError
        if not prepared.is_current(self._tablespace.applier.state.catalog):
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
        self._database.after_write()
        return PendingWrite(count, transaction, outcome)
