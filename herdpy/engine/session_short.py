"""A session's short ways: a row read or written by its key, by a plan that came before.

Neither waits, but for a moment at the monitor: what would need more says None, has had no effect,
and goes the long way (session_statements.py). Any thread.
"""

from herdpy.engine.at_once import Begun, WouldWaitError
from herdpy.engine.prepared import Prepared
from herdpy.engine.result import Columns, LogicalRow
from herdpy.engine.session_plans import SessionPlans
from herdpy.engine.snapshots import PlanIsStaleError
from herdpy.engine.transactions import TransactionState
from herdpy.log.interfaces import Durability
from herdpy.sql.plan import Parameters

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
                if self.user is not None and not self._gate.has_let_pass(
                    prepared, state.catalog.access
                ):
                    return None
                rows = prepared.read_row(parameters, state, own, statement)
                # A commit after the next one may drop what this position sees from the middle of
                # a chain, because nobody registered it; so the rows count only without that.
                if rows is not None and applier.state.position == state.position:
                    return prepared.columns or (), rows
        return None

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
        if not self._gate.has_let_pass(prepared, self._tablespace.state.catalog.access):
            raise WouldWaitError  # what a user may do can take long to find out
        self._tablespace.check_running()
        self._check_not_lost()
        if transaction is None and not self._autocommit:
            self._open_transaction(self._settings.durability)
        self._database.check_memory()
        transaction = self._own_or_statement()
        count = self._execution(transaction).write_at_once(transaction, prepared, values)
        if count is None:
            raise WouldWaitError
        outcome = None
        if transaction.is_autocommit:
            syncer = self._tablespace.syncer
            if transaction.state is TransactionState.ACTIVE:  # nothing was logged
                self._tablespace.rollback(transaction)
            else:
                outcome = transaction.outcome
                if syncer is not None:
                    syncer.ask(transaction.durability)
        self._database.after_write()
        return Begun(count, transaction, outcome)
