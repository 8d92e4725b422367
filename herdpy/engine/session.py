"""Session: one user's statements, one at a time, with its transaction and settings.

Any thread may call; statements of one session run one after the other. An exception of any kind,
KeyboardInterrupt included, at any line leaves the session usable: an autocommit statement has
happened wholly or not at all and holds no lock; a transaction goes on without the statement, but
for one that an interrupt (KeyboardInterrupt) hit after the log had taken it: that one has happened.
So a program that catches the interrupt and repeats what is not idempotent rolls back first.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from bookie.runtime.drivers import new_mutex
from herdpy.engine.activity import Client, Running, killed_error
from herdpy.engine.at_once import Begun, WouldWaitError
from herdpy.engine.catalog import Catalog
from herdpy.engine.execution import Batch, Execution, with_log_space
from herdpy.engine.explain import Measured, check_explainable, explain
from herdpy.engine.faults import idle_error
from herdpy.engine.ingest import Ingest, IngestMode, ingest_mode
from herdpy.engine.interrupt import StatementInterrupt
from herdpy.engine.leases import Lease
from herdpy.engine.leasing import Leasing, LeasingPart, use_lease
from herdpy.engine.passwords import verifier_of
from herdpy.engine.prepared import Prepared, plan_key, prepare
from herdpy.engine.result import Columns, LogicalRow, Result
from herdpy.engine.rights import (
    Gate,
    check_needs,
    check_superuser,
    current_access,
    rights_of,
)
from herdpy.engine.roles import Actor
from herdpy.engine.settings import OPTIONS, Settings, change_option, show_option
from herdpy.engine.snapshots import PlanIsStaleError
from herdpy.engine.staging import SessionPart, Staging
from herdpy.engine.tokens import Outcome, UsedToken, expired_error
from herdpy.engine.transactions import Transaction, TransactionState
from herdpy.errors import (
    DeadlockError,
    Error,
    InterfaceError,
    InternalError,
    ProgrammingError,
    Retry,
    SerializationError,
)
from herdpy.limits import statement_restarts_max
from herdpy.log.interfaces import Durability
from herdpy.model.access import DELETE, INSERT, TABLE_RIGHTS, UPDATE, Rights
from herdpy.model.lsn import Lsn
from herdpy.model.schema import Table
from herdpy.model.types import TEXT, Physical
from herdpy.sql.plan import (
    ExplainPlan,
    InsertPlan,
    Parameters,
    RowSelect,
    UtilityPlan,
    VectorSelect,
)
from herdpy.sql.tree import (
    AccessStatement,
    AlterRole,
    Begin,
    Commit,
    CreateRole,
    CreateTable,
    DropTable,
    Kill,
    Rollback,
    SetOption,
    SetSnapshot,
    ShowOption,
    TruncateTables,
)

if TYPE_CHECKING:
    from herdpy.engine.backup import Backup
    from herdpy.engine.database import Database
    from herdpy.engine.dump import Dump

T = TypeVar("T")
PointRows = tuple[Columns, list[LogicalRow]]

_INGEST_RIGHTS = {
    IngestMode.APPEND: INSERT,
    IngestMode.UPSERT: INSERT | UPDATE,
    IngestMode.REPLACE: INSERT | DELETE,
}
_AUDITED = Kill | CreateTable | DropTable | TruncateTables | AccessStatement
_POINT_ATTEMPTS_MAX = 3  # each fails only when two commits changed the row during it
_PATIENCE_S = 0.001
"""For the monitor, which who applies a commit holds when its answer leaves already."""


class Session:
    """See the module. `settings` are the session's own; Database.session() makes one."""

    def __init__(
        self,
        database: "Database",
        settings: Settings,
        *,
        autocommit: bool,
        id: int = 0,  # noqa: A002 - the word of sysclients
        client: Client = Client(),  # noqa: B008 - immutable
        user: str | None = None,
    ) -> None:
        # Constant after __init__.
        self.id = id
        self.client = client
        self.user = user
        """Whose rights it has; None: all, as the program's own session."""
        self.connected_us = database.clock.wall_us()
        self._database = database
        self._tablespace = database.tablespace
        self._clock = database.clock
        self._driver = database.driver
        self._defaults = settings
        self._mutex = new_mutex()
        self.token_session = database.new_token_session()
        """The session in its commit tokens."""
        # Set by the owner between statements.
        self.token: UsedToken | None = None
        """What a commit of the next statement carries."""
        # Under the mutex.
        self._settings = settings
        self._autocommit = autocommit
        self._transaction: Transaction | None = None
        self.is_audited = False
        """execute() has changed tables, users or rights, or ended what others do."""
        self._statement: Transaction | None = None  # the autocommit statement that runs
        self._is_loss_told = False  # that _transaction was rolled back under the program
        self._is_closed = False  # set without it
        # Read by cancel() without it.
        self._interrupt: StatementInterrupt | None = None
        # Written under the mutex, read without it.
        self.running: Running | None = None
        self._is_killed = False  # set without it
        self._gate = Gate(user)
        self._used_s = self._clock.monotonic()

    # --- state -----------------------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        """True from BEGIN to its end; also while a lost transaction waits for its ROLLBACK."""
        transaction = self._transaction
        return transaction is not None and (
            transaction.state is not TransactionState.ENDED or transaction.abort_error is not None
        )

    @property
    def lsn(self) -> Lsn:
        """Where the log is: what the last statement showed or committed is at or before it."""
        return self._tablespace.state.lsn

    @property
    def application_name(self) -> str:
        return self._settings.application_name

    @property
    def autocommit(self) -> bool:
        return self._autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        with self._mutex:
            if self.in_transaction:
                raise ProgrammingError(
                    "autocommit cannot be changed inside a transaction",
                    sqlstate="25001",
                    hint="commit() or rollback() first.",
                )
            self._autocommit = value

    # --- statements ------------------------------------------------------------------------------

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

    def execute(self, text: str, parameters: Parameters = None) -> Result:
        """Run one statement."""
        return self._planned(lambda: self._execute(text, parameters), text)

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

    def execute_many(self, text: str, rows: Iterable[Parameters]) -> Result:
        """Run one statement for every set of parameters, all or nothing."""
        items = list(rows)
        return self._planned(lambda: self._execute_many(text, items), text)

    def execute_all(
        self, statements: Sequence[tuple[str, Parameters]]
    ) -> tuple[list[Result], Error | None]:
        """Run statements up to the first that fails; return the results, and its error."""
        results: list[Result] = []
        for text, parameters in statements:
            try:
                results.append(self.execute(text, parameters))
            except Error as error:
                return results, error
        return results, None

    def begin_ingest(self, table: str, mode: str) -> Ingest:
        """Return what takes Arrow batches for one table, to write them as one statement."""
        return self._guarded(
            lambda: self._begin_ingest(table, ingest_mode(mode)), f"INGEST {table}"
        )

    @property
    def staging(self) -> Staging:
        """Return the session's part in what several sessions stage for one commit."""
        return Staging(
            self._database,
            SessionPart(
                self._guarded,
                self._table_for,
                self._execution,
                self._begin_alone,
                self._finish_alone,
                self.user,
                lambda: (rights := self._rights()) is None or rights.is_superuser,
            ),
        )

    def begin(self, durability: str | None = None) -> None:
        self._guarded(lambda: self._begin(durability), "BEGIN")

    def commit(self) -> None:
        self._guarded(self._commit, "COMMIT")

    def rollback(self) -> None:
        self._guarded(self._rollback, "ROLLBACK")

    def reset(self) -> None:
        """Take back what SET changed."""
        with self._mutex:
            self._settings = self._defaults

    def resolve(self, token_session: str, counter: int) -> Outcome:
        """Return what became of a commit of any session; see resolving.py.

        Whoever knows a session's name may ask: nobody guesses one.
        """
        self._check_open()
        self._rights()  # 28000: the user was dropped
        return self._database.resolve(token_session, counter)

    def check_token(self) -> None:
        """Raise 57P05 when nothing can commit by this session's tokens any more."""
        if self._tablespace.applier.tokens.is_expired(self.token_session):
            raise expired_error()

    def checkpoint(self) -> None:
        """Write what changed since the last checkpoint to pages; superusers only."""

        def run() -> None:
            check_superuser(self._rights(), "checkpoint")
            self._database.run_checkpoint()

        self._guarded(run, "CHECKPOINT")

    def check_may_export(self) -> None:
        """Raise 42501 for who may not read everything: superusers only."""
        self._guarded(lambda: check_superuser(self._rights(), "export"), "EXPORT")

    def export(self, kind: str) -> "Backup | Dump":
        """Begin a "backup" or a "dump"; the caller closes it. Not part of a transaction.

        Who may not checkpoint may not have either.
        """
        self.checkpoint()
        if kind not in ("backup", "dump"):
            raise ProgrammingError(f"export: expected 'backup' or 'dump', found {kind!r}")
        if kind == "backup":
            return self._guarded(self._database.backup, "BACKUP")
        return self._guarded(self._database.dump, "DUMP")

    def cancel(self) -> None:
        """Stop the running statement, if any; any thread."""
        interrupt = self._interrupt
        if interrupt is not None:
            interrupt.cancel()

    def close(self) -> None:
        """Cancel the statement that runs in another thread, roll back and end; repeatable."""
        self._is_closed = True
        self.cancel()
        with self._mutex:
            try:
                self._settle()
            except Error:
                pass  # of an outcome that nobody asks for any more
            finally:
                self._end_transaction()
                self._database.forget_session(self)

    def kill(self) -> None:
        """End it for someone else: every later call fails with 57P01. Any thread; never waits."""
        self._is_killed = True
        running = self.running
        if running is not None:
            running.interrupt.cancel("KILL CONNECTION")
        if self.client.on_kill is not None:
            self.client.on_kill()
        self.end_if_killed()

    def end_if_killed(self) -> None:
        """Roll back what a killed session has left, unless a statement of it still runs."""
        if self._is_killed and self.in_transaction and self._mutex.acquire(False):
            try:
                self._end_transaction()
            finally:
                self._mutex.release()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InterfaceError("the session is closed")
        if self._is_killed:
            raise killed_error()

    def _planned(self, body: Callable[[], T], text: str) -> T:
        """Run a statement, again if its tables were dropped between planning and reading."""
        attempts = 0
        while True:
            try:
                return self._guarded(body, text)
            except PlanIsStaleError:  # it has had no effect
                attempts += 1
                if attempts >= statement_restarts_max:
                    raise

    def _guarded(self, body: Callable[[], T], text: str) -> T:
        with self._mutex:
            self._check_open()
            try:
                try:
                    self._database.check_usable()
                    self._settle()
                    self._interrupt = interrupt = StatementInterrupt(
                        self._clock, self._settings.statement_timeout_s
                    )
                    self.running = Running(
                        next(self._database.statement_ids), text, self._clock.monotonic(), interrupt
                    )
                    self._check_open()  # a close() or kill() could not cancel this one yet
                    return body()
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

    def _recover(self, error: BaseException) -> None:
        """Leave no lock of a failed autocommit statement; end a transaction that cannot go on."""
        statement, transaction = self._statement, self._transaction
        if statement is not None:
            self._give_up(statement)
            self._statement = None
        if transaction is not None:
            if isinstance(error, DeadlockError | SerializationError):
                self._tablespace.rollback(transaction, error)
                self._is_loss_told = True
            self._tablespace.leave_queues(transaction)
            self._hurry(transaction)

    def _give_up(self, statement: Transaction) -> None:
        self._tablespace.rollback(statement)
        self._hurry(statement)

    def _hurry(self, transaction: Transaction) -> None:
        """See that a logged COMMIT nobody waits for any more ends soon, and with it its locks."""
        if transaction.state is TransactionState.COMMITTING:
            self._request_sync(transaction.durability)

    def _settle(self) -> None:
        """Learn the outcome of a commit whose wait was interrupted."""
        statement = self._statement
        if statement is not None:
            self._give_up(statement)
            self._statement = None
        transaction = self._transaction
        if transaction is None:
            return
        if transaction.state is TransactionState.COMMITTING:
            self._await_commit(transaction)
        if transaction.state is TransactionState.ENDED:
            self._tablespace.leave_queues(transaction)
            if transaction.abort_error is None:
                self._transaction = None

    def _check_not_lost(self) -> None:
        """Refuse everything but the end of a transaction that was rolled back under the program.

        Going on in a new one, as if nothing had happened, would commit the rest without the
        beginning.
        """
        transaction = self._transaction
        if transaction is None or transaction.abort_error is None:
            return
        error = transaction.abort_error
        if not self._is_loss_told:
            self._is_loss_told = True
            raise error
        raise InternalError(
            f"the transaction was rolled back before: {getattr(error, 'message', error)}",
            sqlstate="25P02",
            retry=Retry.SAFE,
            hint="ROLLBACK ends it; then run the whole transaction again.",
        )

    def rollback_if_idle(self, now_s: float) -> None:
        """Roll back a transaction idle past its limit; run by the housekeeper."""
        limit_s = self._settings.idle_in_transaction_timeout_s
        if not limit_s or not self.in_transaction or now_s - self._used_s < limit_s:
            return
        if not self._mutex.acquire(False):  # busy, so not idle
            return
        try:
            transaction = self._transaction
            if transaction is not None and now_s - self._used_s >= limit_s:
                self._tablespace.rollback(transaction, idle_error(limit_s))
        finally:
            self._mutex.release()

    def stop_if_late(self, now_s: float) -> float | None:
        """Stop what runs past statement_timeout where it cannot look; run by the housekeeper.

        Returns the moment to come again, None without a limit.
        """
        interrupt = self._interrupt
        return None if interrupt is None else interrupt.stop_if_late(now_s)

    # --- transactions ----------------------------------------------------------------------------

    def _begin(self, durability: str | None) -> None:
        self._check_not_lost()
        if self._transaction is not None and (
            self._transaction.id is not None
            or self._transaction.statement > 1
            or self._transaction.lease is not None
        ):
            raise InternalError(
                "BEGIN: a transaction is in progress already",
                sqlstate="25001",
                hint="COMMIT or ROLLBACK it first.",
            )
        chosen = self._settings.durability if durability is None else _durability(durability)
        self._end_transaction()  # one that wrote nothing may hold locks
        self._open_transaction(chosen)

    def _open_transaction(self, durability: Durability) -> None:
        self._is_loss_told = False
        self._transaction = self._tablespace.begin(durability, is_autocommit=False)

    def _commit(self) -> None:
        transaction = self._transaction
        if transaction is None:
            return
        try:
            self._check_not_lost()
        except Error:
            self._transaction = None  # COMMIT ends it, too, but never as a success
            raise
        transaction.token = self.token
        try:
            with_log_space(self._tablespace, lambda: self._tablespace.commit(transaction))
        except SerializationError:
            self._end_transaction()  # it can never commit
            raise
        self._await_commit(transaction)
        self._transaction = None

    def _rollback(self) -> None:
        self._end_transaction()

    def _end_transaction(self) -> None:
        transaction = self._transaction
        if transaction is not None:
            self._tablespace.rollback(transaction)
            self._transaction = None

    def _await_commit(self, transaction: Transaction) -> None:
        """Wait for a logged COMMIT; its fate is no longer the statement's to time out."""
        outcome = transaction.outcome
        self._request_sync(transaction.durability)
        if not outcome.is_done:
            self._driver.wait(outcome)
        outcome.result()
        failure = self._tablespace.log.failure
        if transaction.durability is Durability.OS and failure is not None:
            raise failure  # visible since its append, but perhaps never handed over

    def _request_sync(self, durability: Durability) -> None:
        syncer = self._tablespace.syncer
        if syncer is not None:
            syncer.request(durability)

    # --- dispatch --------------------------------------------------------------------------------

    def _catalog(self) -> Catalog:
        catalog = self._tablespace.state.catalog
        transaction = self._transaction
        if transaction is not None and transaction.lease is not None:
            return transaction.lease.state.catalog
        if transaction is not None and transaction.catalog_changes:
            return catalog.with_changes(
                transaction.catalog_changes, transaction.access_changes, version=-1
            )
        return catalog

    def _rights(self) -> Rights | None:
        """Return what the session's user may do, None for all."""
        return rights_of(current_access(self._tablespace, self._transaction), self.user)

    def _let_pass(self, prepared: Prepared) -> Prepared:
        """Return the statement, unless the session's user may not run it (42501)."""
        if self.user is not None:
            self._gate.check(prepared, current_access(self._tablespace, self._transaction))
        return prepared

    def _visible_tables(self) -> list[Table]:
        """Return the tables that the session's user has any right on, by name."""
        tables, rights = self._catalog().tables(), self._rights()
        if rights is None or rights.is_superuser:
            return tables
        return [table for table in tables if rights.of(table.id) & TABLE_RIGHTS]

    def _check_interrupt(self) -> None:
        interrupt = self._interrupt
        if interrupt is not None:
            interrupt.check()

    def _prepare(
        self, text: str, parameters: Parameters, catalog: Catalog | None = None
    ) -> Prepared:
        catalog = self._catalog() if catalog is None else catalog
        if catalog.version < 0:
            return self._let_pass(prepare(text, catalog, parameters, self._check_interrupt))
        cache = self._database.plans
        key = plan_key(text, catalog, parameters)
        prepared = cache.get(key)
        if prepared is None:
            prepared = prepare(text, catalog, parameters, self._check_interrupt)
            if not prepared.is_secret:
                cache.put(key, prepared)
        return self._let_pass(prepared)

    def _bound(self, text: str, parameters: Parameters) -> tuple[Prepared, list[Physical]]:
        """Return the plan and its values; the plan used last for the text binds fast, or not."""
        latest = self._database.plans.latest.get(text)
        if latest is not None and latest.bind is not None:
            transaction = self._transaction
            is_changed = transaction is not None and (
                transaction.catalog_changes or transaction.lease
            )
            if latest.version == self._tablespace.applier.state.catalog.version and not is_changed:
                values = latest.bind(parameters)
                if values is not None:
                    return self._let_pass(latest), values
        prepared = self._prepare(text, parameters)
        return prepared, prepared.values(parameters, self._now_us)

    def _now_us(self) -> int:
        """Return the time of the transaction, which begins here if it is to."""
        if self._transaction is None and not self._autocommit:
            self._open_transaction(self._settings.durability)
        transaction = self._transaction
        return self._clock.wall_us() if transaction is None else transaction.begun_us

    def _execute(self, text: str, parameters: Parameters) -> Result:
        prepared, values = self._bound(text, parameters)
        plan = prepared.plan
        self.is_audited = isinstance(plan, UtilityPlan) and isinstance(plan.statement, _AUDITED)
        if not prepared.is_write and isinstance(plan, UtilityPlan):
            return self._utility(plan, values)
        self._tablespace.check_running()
        self._check_not_lost()
        if not self._autocommit and self._transaction is None:
            self._open_transaction(self._settings.durability)
        self._use_lease()
        if prepared.is_write:
            return self._write(prepared, [values], lambda: self._prepare(text, parameters))
        if isinstance(plan, RowSelect):
            return self._execution(self._transaction).select_rows(prepared, plan, values)
        if isinstance(plan, VectorSelect):
            return self._execution(self._transaction).select_vector(prepared, plan.query, values)
        if isinstance(plan, ExplainPlan):
            return self._explain(
                prepared.inner_plan(),
                values,
                lambda: self._prepare(text, parameters).inner_plan(),
                is_analyze=plan.is_analyze,
            )
        raise InternalError(f"no way to run {plan.__class__.__name__}")

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

    def _execute_many(self, text: str, items: list[Parameters]) -> Result:
        if not items:
            return Result(row_count=0)
        self._check_not_lost()
        prepared = self._prepare(text, items[0])
        plan = prepared.plan
        if isinstance(plan, RowSelect | VectorSelect | ExplainPlan | UtilityPlan):
            raise ProgrammingError("executemany() takes INSERT, UPSERT, UPDATE or DELETE only")
        if self._transaction is None and not self._autocommit:
            self._open_transaction(self._settings.durability)
        self._database.check_memory()
        convert = prepared.row_converter
        if convert is not None:
            transaction = self._own_or_statement()
            count = self._execution(transaction).insert_many(
                transaction, prepared, convert, items, lambda item: self._prepare(text, item)
            )
            return self._written(transaction, count)
        if isinstance(plan, InsertPlan) and plan.source is None:
            values = [prepared.values(item, self._now_us) for item in items]
            return self._write(prepared, values, lambda: self._prepare(text, items[0]))

        def prepare_all() -> Batch:
            # Item by item: what the parameters are decides about the plan.
            pairs = ((self._prepare(text, item), item) for item in items)
            return [(each, each.values(item, self._now_us)) for each, item in pairs]

        transaction = self._own_or_statement()
        count = self._execution(transaction).write_batch(transaction, prepare_all)
        return self._written(transaction, count)

    def _utility(self, plan: UtilityPlan, values: list[Physical]) -> Result:
        statement = plan.statement
        if isinstance(statement, Begin):
            self._begin(None)
        elif isinstance(statement, Commit):
            self._commit()
        elif isinstance(statement, Rollback):
            self._rollback()
        elif isinstance(statement, SetOption):
            self._settings = change_option(
                self._settings, self._defaults, statement.name, statement.value
            )
        elif isinstance(statement, SetSnapshot):
            self._set_snapshot(statement.lease)
        elif isinstance(statement, ShowOption):
            return self._show(statement.name)
        elif isinstance(statement, Kill):
            check_superuser(self._rights(), "end what others do")
            self._database.kill(self, statement.number, is_connection=statement.is_connection)
        elif isinstance(statement, CreateTable | DropTable | TruncateTables | AccessStatement):
            self._check_not_lost()
            self._define(statement, values)
        else:
            raise InternalError(f"no way to run {statement.__class__.__name__}")
        return Result()

    def _show(self, name: str) -> Result:
        if name == "tables":
            rows = [(table.name,) for table in self._visible_tables()]
            return Result((("table_name", TEXT),), iter(rows), row_count=len(rows))
        if name == "all":
            pairs = [(option, show_option(self._settings, option)) for option in OPTIONS]
            return Result((("name", TEXT), ("setting", TEXT)), iter(pairs), row_count=len(pairs))
        if name == "session_authorization":
            row = (self.user,)
        else:
            row = (show_option(self._settings, name),)
        return Result(((name, TEXT),), iter([row]), row_count=1)

    def _explain(
        self,
        inner: Prepared,
        values: list[Physical],
        prepare_again: Callable[[], Prepared],
        *,
        is_analyze: bool,
    ) -> Result:
        """Show a plan on the data as it was before ANALYZE ran the statement."""
        check_explainable(inner.plan)
        snapshot = self._tablespace.snapshot(self._transaction)
        try:
            measured = self._analyze(inner, values, prepare_again) if is_analyze else None
            rows_min = self._database.config.vector_rows_min
            return explain(inner, values, snapshot, measured, rows_min)
        finally:
            snapshot.close()

    def _analyze(
        self, inner: Prepared, values: list[Physical], prepare_again: Callable[[], Prepared]
    ) -> Measured:
        """Run EXPLAIN's statement, with its effects, and say how long it took."""
        monotonic, plan = self._clock.monotonic, inner.plan
        begun_s = monotonic()
        if isinstance(plan, RowSelect | VectorSelect):
            execution = self._execution(self._transaction)
            if isinstance(plan, RowSelect):
                result = execution.select_rows(inner, plan, values)
            else:
                result = execution.select_vector(inner, plan.query, values)
            try:
                row_count = sum(1 for _ in result.rows())
            finally:
                result.close()
            return Measured(row_count, monotonic() - begun_s, None)
        self._database.check_memory()
        transaction = self._own_or_statement()
        row_count = self._execution(transaction).write(transaction, inner, [values], prepare_again)
        logged_s = monotonic()
        self._written(transaction, row_count)
        ended_s = monotonic()
        is_waited = transaction.is_autocommit
        return Measured(row_count, ended_s - begun_s, ended_s - logged_s if is_waited else None)

    def _table_for(self, name: str, rights_needed: int) -> Table:
        """Return a table on which the session's user has these rights."""
        catalog = self._catalog()
        names = catalog.table_names()
        table = catalog.table(name if name in names else name.lower())
        if table is None or table.name not in names:
            raise ProgrammingError(f'table "{name}" does not exist', sqlstate="42P01")
        rights = self._rights()
        if rights is not None:
            check_needs(rights, ((table, rights_needed),))
        return table

    def _ingest_table(self, name: str, mode: IngestMode) -> Table:
        table = self._table_for(name, _INGEST_RIGHTS[mode])
        if table.is_heap and mode is IngestMode.UPSERT:
            raise ProgrammingError(
                f'ingest: mode "upsert" needs a primary key, and table "{table.name}" has none',
                sqlstate="42P10",
            )
        return table

    def _begin_alone(self) -> Transaction:
        """Begin the transaction of a statement that cannot be a part of another one."""
        self._check_not_lost()
        if self.in_transaction:
            raise ProgrammingError(
                "staging: a commit of staged rows is a transaction of its own",
                sqlstate="25001",
                hint="commit() or rollback() the open one first",
            )
        return self._own_or_statement()

    def _finish_alone(self, transaction: Transaction) -> None:
        self._finish_autocommit(transaction)
        self._database.after_write()

    def _begin_ingest(self, name: str, mode: IngestMode) -> Ingest:
        self._tablespace.check_running()
        self._check_not_lost()
        table = self._ingest_table(name, mode)

        def check_table() -> None:
            if self._ingest_table(table.name, mode) != table:
                raise ProgrammingError(
                    f'table "{table.name}" was made anew during the ingest', sqlstate="42P01"
                )

        def write(ingest: Ingest) -> int:
            self._check_not_lost()
            if not ingest.rows and mode is not IngestMode.REPLACE:
                return 0
            self._database.check_memory()
            self._now_us()
            transaction = self._own_or_statement()
            count = self._execution(transaction).ingest(transaction, ingest, check_table)
            self._written(transaction, count)
            return count

        is_alone = self._autocommit and not self.in_transaction
        return Ingest(
            table,
            mode,
            staging=self.staging if is_alone else None,
            now_us=self._now_us(),
            memory_bytes_max=self._database.config.memory_bytes_max // 2,
            write=lambda ingest: self._guarded(lambda: write(ingest), f"INGEST {table.name}"),
        )

    def tables(self) -> list[Table]:
        """Return the tables that the next statement can name, by name."""
        return self._guarded(self._visible_tables, "SHOW TABLES")

    def _execution(self, transaction: Transaction | None) -> Execution:
        if self._interrupt is None:
            raise InternalError("a statement without interrupt")
        return Execution(
            self._database, transaction, self._interrupt, self._settings.lock_timeout_s
        )

    def _write(
        self,
        prepared: Prepared,
        values: list[list[Physical]],
        prepare_again: Callable[[], Prepared],
    ) -> Result:
        """Run a write and, for autocommit, its commit."""
        self._database.check_memory()
        transaction = self._own_or_statement()
        count = self._execution(transaction).write(transaction, prepared, values, prepare_again)
        return self._written(transaction, count)

    def _written(self, transaction: Transaction, count: int) -> Result:
        if transaction.is_autocommit:
            self._finish_autocommit(transaction)
        self._database.after_write()
        return Result(row_count=count)

    def _define(
        self,
        statement: CreateTable | DropTable | TruncateTables | AccessStatement,
        values: list[Physical],
    ) -> None:
        verifier = None
        if isinstance(statement, CreateRole | AlterRole):
            verifier = verifier_of(statement.options, values, self._database.rng)
        if not self._autocommit and self._transaction is None:
            self._open_transaction(self._settings.durability)
        transaction = self._own_or_statement()
        secret = None if verifier is None else self._database.rng.randbytes(32).hex()
        actor = Actor(self.user, verifier, secret)
        self._execution(transaction).define(transaction, statement, actor)
        if transaction.is_autocommit:
            self._finish_autocommit(transaction)

    # --- leases ----------------------------------------------------------------------------------

    @property
    def leasing(self) -> Leasing:
        """What the session does with snapshot leases and parts of tables."""
        return Leasing(
            self._database,
            LeasingPart(
                self._guarded,
                self._reading,
                self._catalog_of,
                self._prepare,
                self._now_us,
                self._execution,
                self._rights,
                self.user,
            ),
        )

    def _leased(self, number: str) -> Lease:
        return use_lease(self._database, number, self.user, self._rights())

    def _use_lease(self) -> None:
        """Note that the transaction's lease is used, if it has one; SnapshotTooOldError."""
        transaction = self._transaction
        if transaction is not None and transaction.lease is not None:
            self._leased(transaction.lease.id)

    def _set_snapshot(self, number: str) -> None:
        self._check_not_lost()
        if not self._autocommit and self._transaction is None:
            self._open_transaction(self._settings.durability)
        transaction = self._transaction
        if transaction is None:
            raise InternalError(
                "SET TRANSACTION SNAPSHOT: there is no transaction", sqlstate="25P01", hint="BEGIN."
            )
        if transaction.id is not None or transaction.statement > 1 or transaction.lease:
            raise InternalError(
                "SET TRANSACTION SNAPSHOT comes first in a transaction",
                sqlstate="25001",
                hint="COMMIT or ROLLBACK, and begin another one.",
            )
        transaction.lease = self._leased(number)

    def _reading(self, lease: str | None) -> Transaction | None:
        """Return what a read by the driver's own call belongs to."""
        self._check_not_lost()
        if lease is None:
            self._use_lease()
            return self._transaction
        reading = self._tablespace.begin(self._settings.durability, is_autocommit=True)
        reading.lease = self._leased(lease)
        return reading

    def _catalog_of(self, transaction: Transaction | None) -> Catalog:
        if transaction is not None and transaction.lease is not None:
            return transaction.lease.state.catalog
        return self._catalog()

    def _own_or_statement(self) -> Transaction:
        """Return the open transaction, or begin the autocommit statement's own."""
        transaction = self._transaction
        if transaction is None:
            transaction = self._statement = self._tablespace.begin(
                self._settings.durability, is_autocommit=True
            )
            transaction.token = self.token
        elif transaction.lease is not None:
            raise InternalError(
                "cannot write in a read-only transaction: it reads at a snapshot lease",
                sqlstate="25006",
                hint="COMMIT or ROLLBACK ends it; write in another transaction.",
            )
        return transaction

    def _finish_autocommit(self, transaction: Transaction) -> None:
        if transaction.state is TransactionState.ACTIVE:  # nothing was logged
            self._tablespace.rollback(transaction)
        else:
            self._await_commit(transaction)
        self._statement = None


def _durability(text: str) -> Durability:
    try:
        return Durability(text)
    except ValueError:
        raise ProgrammingError(
            f"durability: expected 'sync', 'os' or 'none', found {text!r}", sqlstate="22023"
        ) from None
