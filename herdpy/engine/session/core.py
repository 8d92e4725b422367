"""SessionCore: the state of a session, and its transaction: begun, ended, given up.

What the parts of a session share (session.py shows how they are composed). All but the properties
runs under the mutex, which a part takes: runner.py for a statement, fast_path.py for a row.
"""

from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from bookie.runtime.drivers import new_mutex
from bookie.runtime.ticket import Ticket
from herdpy.engine.session.activity import Client, Running
from herdpy.engine.session.numbers import SessionNumbers
from herdpy.engine.state.commit_tokens import UsedToken
from herdpy.engine.state.error_messages import absent_error, dropped_error, half_undone_error
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.memtable_room import MemtableFullError
from herdpy.engine.state.transactions import Savepoint, Transaction, TransactionState
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.lock_wait import LockWait
from herdpy.engine.statements.planning_memory import PlanningMemory
from herdpy.errors import (
    DeadlockError,
    Error,
    InterfaceError,
    InternalError,
    InvariantViolation,
    OperationalError,
    ProgrammingError,
    Retry,
    SerializationError,
    loading,
)
from herdpy.limits import savepoints_max
from herdpy.model.access import Access, User
from herdpy.model.durability import Durability
from herdpy.model.isolation import Isolation
from herdpy.model.lsn import Lsn
from herdpy.model.role_settings import NO_MAXIMA, capped
from herdpy.model.settings import Settings
from herdpy.sql import tree

if TYPE_CHECKING:
    from herdpy.engine.statements.interfaces import DatabaseServices


class SessionCore:
    def __init__(
        self,
        database: "DatabaseServices",
        settings: Settings,
        *,
        autocommit: bool,
        id: int,  # noqa: A002 - the word of sysclients
        client: Client,
        user: User | None,
    ) -> None:
        # Constant after __init__.
        self.id = id
        self.client = client
        self.identity = user
        """Whose rights it has; None: all, as the program's own session."""
        self.user = None if user is None else user.name
        self.connected_us = database.clock.wall_us()
        self.database = database
        self.tablespace = database.tablespace
        self.defaults = settings
        self.mutex = new_mutex()
        self.planning = PlanningMemory(database.memory.statements, f"session {id}")
        self.token_session = database.new_token_session()
        """The session in its commit tokens."""
        self.leaves_waits = False
        """A statement that has to wait for a lock raises MustWaitError, and its caller repeats the
        call when lock_wait has ended; else the calling thread waits. Set before the first one."""
        # Set by the owner between statements.
        self.token: UsedToken | None = None
        """What a commit of the next statement carries."""
        # By the statement that runs.
        self.numbers = SessionNumbers(
            self.tablespace,
            lambda: self.transaction or self.statement,
            lambda: self.settings.lock_timeout_s,
        )
        # Under the mutex.
        self.settings = settings
        self.maxima = NO_MAXIMA
        """What the user may have at most, as the statement before found it."""
        self.is_autocommit = autocommit
        self.transaction: Transaction | None = None
        self.statement: Transaction | None = None
        """The transaction of the autocommit statement that runs, waits, or waits for its commit."""
        self.unsettled: Ticket[None] | None = None
        """The outcome of an autocommit statement whose wait for its commit was interrupted."""
        self.lock_wait: LockWait | None = None
        """What the statement waits for that the same call has to run again, if there is one."""
        self.room_until_s: float | None = None
        """Until when the statement waits for room in memory, once it does."""
        self.next_write_s = 0.0
        """When the next write may begin: what came before filled memory fast; 0: at once."""
        self.is_audited = False
        """execute() has changed tables, users or rights, or ended what others do."""
        self.undo_from: int | None = None
        """The number in its transaction of the statement that runs, if that logs by parts: should
        it fail, what it has done is undone."""
        self._statement_us: int | None = None  # its time, None until something asks for it
        self._known_access: Access | None = None  # that the user is in, and `maxima` are of
        # Written under the mutex, read without it.
        self.interrupt: StatementInterrupt | None = None
        self.running: Running | None = None
        self.latest: Running | None = None
        """The last one that the runner has run: the rows of its result may still be made."""
        self.waiting: LockWait | None = None
        """What the statement waits for, with a thread or without."""
        self.used_s = database.clock.monotonic()
        # Set by any thread.
        self.is_closed = False
        self.ended: list[Error] = []
        """Why it was ended, once it was; its open results look here, too."""

    @property
    def in_transaction(self) -> bool:
        """True from BEGIN to its end; also while a lost transaction waits for its ROLLBACK."""
        transaction = self.transaction
        return transaction is not None and (
            transaction.state is not TransactionState.ENDED or transaction.abort_error is not None
        )

    @property
    def lsn(self) -> Lsn:
        """How far the log is durable and applied: what was committed durably is at or before it.

        Records behind it may be lost, and their positions then mean something else: so it is not
        told where they are, though the state has them. What is committed with a durability of os
        or none is at or before it once it is durable.
        """
        tablespace = self.tablespace
        applied, durable = tablespace.applier.state.lsn, tablespace.durable_lsn
        return applied if applied < durable else durable

    def check_open(self) -> None:
        """Raise when it was closed or ended, or its user dropped; take up what that may have now.

        Under the mutex.
        """
        if self.ended:  # before the other: what was killed may be closed by the same caller
            raise copy(self.ended[0])
        if self.is_closed:
            raise InterfaceError("the session is closed")
        user = self.identity
        if user is None:
            return
        access = self.tablespace.state.catalog.access
        if access is not self._known_access:
            if not access.has(user):
                raise dropped_error(user.name)
            self._known_access = access
            self.maxima = access.maxima_of(user.name)
            self.settings = capped(self.settings, self.maxima)

    # --- the transaction -------------------------------------------------------------------------

    def control(self, statement: tree.TransactionStatement) -> None:
        """Run what begins or ends the transaction, or a part of it."""
        match statement:
            case tree.Begin(modes):
                self.begin_transaction(modes=modes)
            case tree.Commit():
                self.commit_transaction()
            case tree.Rollback():
                self.end_transaction()
            case tree.SetTransaction(modes):
                self.set_transaction(modes)
            case tree.MakeSavepoint(name):
                self._make_savepoint(name)
            case tree.RollbackTo(name):
                self._roll_back_to(name)
            case tree.Release(name):
                transaction, savepoint = self._savepoint("RELEASE SAVEPOINT", name)
                transaction.savepoint = savepoint.parent
                transaction.is_read_only = savepoint.is_read_only
            case _:
                raise InternalError(f"no way to run {type(statement).__name__}")

    def begin_transaction(
        self,
        durability: str | None = None,
        modes: tree.TransactionModes = tree.TransactionModes(),  # noqa: B008 - immutable
    ) -> None:
        """Run BEGIN; 25001: a transaction is in progress."""
        self.check_not_lost()
        if self.transaction is not None and self.transaction.is_used:
            raise InternalError(
                "BEGIN: a transaction is in progress already",
                sqlstate="25001",
                hint="COMMIT or ROLLBACK it first.",
            )
        chosen = self.settings.durability if durability is None else _durability(durability)
        self.end_transaction()  # one that wrote nothing may hold locks
        self._open_transaction(chosen, modes)

    def commit_transaction(self) -> None:
        """Run COMMIT, and wait for it."""
        transaction = self.transaction
        if transaction is None:
            return
        try:
            self.check_not_lost()
        except Error:
            self.transaction = None  # COMMIT ends it, too, but never as a success
            raise
        transaction.token = self.token
        try:
            self._commit(transaction)
        except SerializationError:
            self.end_transaction()  # it can never commit
            raise
        except Error:
            if transaction.state is TransactionState.ENDED:
                self.transaction = None  # told; else it is open, or settle() tells of it
            raise
        self.transaction = None
        self.slow_down(transaction)
        if transaction.access_changes:
            self.database.end_dropped_users()

    def _commit(self, transaction: Transaction) -> None:
        """Log the commit of an open transaction, and wait for it."""
        settle = partial(self.wait_for, transaction.outcome, transaction.durability)
        if transaction.has_spilled and transaction.state is TransactionState.ACTIVE:
            with loading():
                from herdpy.engine.session.spilled_commits import commit_spilled

            try:
                commit_spilled(self.database, transaction, settle)
            except InvariantViolation:
                self.check_not_undone(transaction)
                raise
            return
        tablespace = self.tablespace
        with_log_space(tablespace, lambda: tablespace.commit(transaction), frees_space=True)
        settle()

    def end_transaction(self) -> None:
        transaction = self.transaction
        if transaction is not None:
            self.tablespace.rollback(transaction)
            self.transaction = None

    def current_transaction(self) -> Transaction | None:
        """Return the transaction, which begins here if it is to; None: there is autocommit."""
        if self.transaction is None and not self.is_autocommit:
            self._open_transaction(self.settings.durability, tree.TransactionModes())
        return self.transaction

    def _open_transaction(self, durability: Durability, modes: tree.TransactionModes) -> None:
        transaction = self.tablespace.begin(durability, is_autocommit=False)
        is_read_only = modes.is_read_only
        if is_read_only is None:
            is_read_only = self.settings.is_read_only
        transaction.is_read_only = is_read_only
        level = modes.isolation or self.settings.isolation
        if level is not Isolation.READ_COMMITTED:
            self.tablespace.isolate(transaction, level)
        self.transaction = transaction

    @property
    def isolation(self) -> Isolation:
        """The level of transactions that begin from now on."""
        return self.settings.isolation

    @property
    def transaction_isolation(self) -> Isolation:
        """The level of the transaction, or of the next one."""
        transaction = self.transaction
        return self.isolation if transaction is None else transaction.isolation

    @property
    def is_read_only(self) -> bool:
        """Transactions that begin from now on write nothing."""
        return self.settings.is_read_only

    @property
    def transaction_is_read_only(self) -> bool:
        """The transaction, or the next one, writes nothing."""
        transaction = self.transaction
        if transaction is None:
            return self.is_read_only
        return transaction.is_read_only or transaction.reads_lease

    def set_transaction(self, modes: tree.TransactionModes) -> None:
        """Run SET TRANSACTION; what is refused (25001) has changed nothing."""
        self.check_not_lost()
        transaction = self.current_transaction()
        if transaction is None:
            raise _outside("SET TRANSACTION")
        isolation, is_read_only = modes.isolation, modes.is_read_only
        has_begun = transaction.is_used or transaction.has_read
        changes_level = isolation is not None and isolation is not transaction.isolation
        if changes_level and has_begun:
            raise _too_late("SET TRANSACTION ISOLATION LEVEL")
        is_to_write = is_read_only is False and transaction.is_read_only
        if is_to_write and has_begun:
            raise _too_late("SET TRANSACTION READ WRITE in a read-only transaction")
        if isolation is not None and changes_level:
            self.tablespace.isolate(transaction, isolation)
        if is_read_only is not None:
            transaction.is_read_only = is_read_only

    def check_may_write(self, what: tree.Statement | str) -> None:
        """Refuse what writes in a read-only transaction (25006), in words if it is no statement."""
        if self.tablespace.follows:
            raise self.tablespace.why_follows()
        transaction = self.transaction
        if transaction is None:
            if not self.settings.is_read_only:
                return
            hint = "SET default_transaction_read_only = off, or BEGIN READ WRITE."
        else:
            if not (transaction.is_read_only or transaction.reads_lease):
                return
            hint = "COMMIT or ROLLBACK ends it; write in another transaction."
        words = what if isinstance(what, str) else what.verb
        why = ", which reads at a snapshot lease" if transaction and transaction.reads_lease else ""
        raise InternalError(
            f"cannot execute {words} in a read-only transaction{why}", sqlstate="25006", hint=hint
        )

    # --- savepoints ------------------------------------------------------------------------------

    def _make_savepoint(self, name: str) -> None:
        self.check_not_lost()
        transaction = self.current_transaction()
        if transaction is None:
            raise _outside("SAVEPOINT")
        newest = transaction.savepoint
        if newest is not None and newest.depth >= savepoints_max:
            raise OperationalError(
                f"SAVEPOINT: the transaction has {savepoints_max:,} savepoints",
                sqlstate="53400",
                retry=Retry.NEVER,
                hint="RELEASE those that are not gone back to.",
            )
        tablespace = self.tablespace
        with_log_space(tablespace, partial(tablespace.make_savepoint, transaction, name))

    def _roll_back_to(self, name: str) -> None:
        transaction, savepoint = self._savepoint("ROLLBACK TO SAVEPOINT", name)
        tablespace = self.tablespace
        step = partial(tablespace.roll_back_to, transaction, savepoint)
        with_log_space(tablespace, step, frees_space=True)

    def _savepoint(self, what: str, name: str) -> tuple[Transaction, Savepoint]:
        """Return the transaction and its newest savepoint of a name; 25P01, 3B001."""
        self.check_not_lost()
        transaction = self.transaction
        if transaction is None:
            raise _outside(what)
        savepoint = transaction.find_savepoint(name)
        if savepoint is None:
            raise ProgrammingError(f'savepoint "{name}" does not exist', sqlstate="3B001")
        return transaction, savepoint

    def check_not_lost(self) -> None:
        """Refuse everything but the end of a transaction that was rolled back under the program.

        Going on in a new one, as if nothing had happened, would commit the rest without the
        beginning.
        """
        transaction = self.transaction
        if transaction is None or transaction.abort_error is None:
            return
        error = transaction.abort_error
        if not transaction.is_loss_told:
            transaction.is_loss_told = True
            raise error
        raise InternalError(
            f"the transaction was rolled back before: {getattr(error, 'message', error)}",
            sqlstate="25P02",
            retry=Retry.SAFE,
            hint="ROLLBACK ends it; then run the whole transaction again.",
        )

    def check_not_undone(self, transaction: Transaction | None) -> None:
        """Raise 40001 (SAFE) if the log was opened anew under a transaction.

        Its locks went with it, and others write: what its steps meet then is no bug of theirs.
        """
        tablespace = self.tablespace
        if transaction is None:
            return
        # Tablespace.resume() holds it until transactions are undone and no failure is left.
        with tablespace.monitor:
            if tablespace.failure is None and transaction.is_undone:
                raise transaction.abort_error or absent_error()

    # --- a statement's own, with autocommit ------------------------------------------------------

    def now_us(self) -> int:
        """Return the time of the transaction, which begins here if it is to.

        An autocommit statement is a transaction: its time is fixed by the first call.
        """
        transaction = self.current_transaction() or self.statement
        return self._autocommit_us() if transaction is None else transaction.begun_us

    def _autocommit_us(self) -> int:
        """Return the time of the autocommit statement: one, however often it is asked for."""
        if self._statement_us is None:
            self._statement_us = self.database.clock.wall_us()
        return self._statement_us

    def begin_write(self, what: tree.Statement | str, *, is_of_parts: bool = False) -> Transaction:
        """Return the open transaction, or begin the autocommit statement's own.

        25006: it is read-only; `what` is the statement, or its words. One that is run again
        behind a wait has its own already, with its locks. is_of_parts: the statement does several
        things one after the other, which finish_write() commits.
        """
        self.check_may_write(what)
        if self.next_write_s:
            self._await_turn()
        transaction = self.transaction
        if transaction is None:
            transaction = self.statement
            if transaction is None:
                transaction = self.statement = self.tablespace.begin(
                    self.settings.durability,
                    is_autocommit=not is_of_parts,
                    begun_us=self._autocommit_us(),
                )
            transaction.token = self.token
        transaction.numbers, transaction.last_identity = self.numbers, None
        return transaction

    def begin_alone(self) -> Transaction:
        """Begin the transaction of a statement that cannot be a part of another one."""
        self.check_not_lost()
        if self.in_transaction:
            raise ProgrammingError(
                "staging: a commit of staged rows is a transaction of its own",
                sqlstate="25001",
                hint="commit() or rollback() the open one first",
            )
        return self.begin_write("COMMIT STAGING")

    def finish_write(self, transaction: Transaction) -> None:
        """Wait for the commit of what begin_write() gave, if that is the statement's own."""
        if transaction is self.statement:
            is_made = transaction.state is TransactionState.ACTIVE and transaction.catalog_changes
            is_begun = bool(is_made) or not transaction.is_autocommit
            if transaction.has_spilled or transaction.writes or is_begun:
                self._commit_statement(transaction)
            elif transaction.state is TransactionState.ACTIVE:  # nothing was logged
                self.tablespace.rollback(transaction)
            else:
                self.wait_for(transaction.outcome, transaction.durability)
            self.statement = None
            self.slow_down(transaction)
        else:
            self.database.after_write()

    def _commit_statement(self, transaction: Transaction) -> None:
        """Commit what an autocommit statement has logged by parts.

        MemtableFullError: it is undone, and may be run again.
        """
        try:
            self._commit(transaction)
        except MemtableFullError:
            self.tablespace.rollback(transaction)
            self.statement = None
            raise

    def slow_down(self, transaction: Transaction) -> None:
        """Have maintenance begin what is due, and the next write wait if it is late; never waits.

        The transaction has ended.
        """
        database = self.database
        if database.after_write():
            self.next_write_s = database.next_write_s(transaction.byte_count)

    def _await_turn(self) -> None:
        """Wait until the next write may begin; 57014: cancelled, or its time is over."""
        until_s, interrupt = self.next_write_s, self.interrupt
        now_s = self.database.clock.monotonic()
        if interrupt is not None and now_s < until_s:
            deadlines = (until_s, interrupt.deadline or until_s)
            self.database.driver.wait(Ticket(), min(deadlines), interrupt.stop)
            room = self.database.memory.memtables
            room.note_wait(self.database.clock.monotonic() - now_s)
            interrupt.check()
        self.next_write_s = 0.0

    def forget_statement(self) -> None:
        """Roll back the autocommit statement, if there is one; repeatable."""
        statement = self.statement
        if statement is not None:
            self.tablespace.rollback(statement)
            self._hurry(statement)
            if statement.state is TransactionState.COMMITTING:
                self.unsettled = statement.outcome
            self.statement = None
        self._statement_us = None

    def settle_numbers(self, transaction: Transaction) -> None:
        """Wait until all that was given away of sequences is as durable as the session's commits.

        For values that are not in a commit: the program may use them elsewhere.
        """
        if self.settings.durability is Durability.SYNC:
            tablespace = self.tablespace
            settle = partial(tablespace.settle_numbers, transaction)
            outcome = with_log_space(tablespace, settle)
            if outcome is not None:
                self.wait_for(outcome, Durability.SYNC)

    # --- waiting for the log, and what a failure leaves ------------------------------------------

    def wait_for(self, outcome: Ticket[None], durability: Durability) -> None:
        """Wait for the outcome of what is in the log, uncancelled; its error is raised."""
        tablespace = self.tablespace
        if tablespace.syncer is not None:
            tablespace.syncer.request(durability)
        if not outcome.is_done:
            tablespace.apply_rest()
            self.database.driver.wait(outcome)
        outcome.result()
        if durability is Durability.OS and tablespace.log.failure is not None:
            raise tablespace.log.failure  # visible since its append, but perhaps never handed over

    def settle(self) -> None:
        """Learn the outcome of a commit whose wait was interrupted, and end such a ROLLBACK."""
        self.forget_statement()
        if self.unsettled is not None:  # so that the program sees whether it has happened
            self.tablespace.finish()
            self.database.driver.wait(self.unsettled)
            self.unsettled = None
        transaction = self.transaction
        if transaction is None:
            return
        if transaction.state is TransactionState.COMMITTING:
            self.wait_for(transaction.outcome, transaction.durability)
        is_lost = transaction.is_undone or transaction.abort_error is not None
        if is_lost and transaction.state is TransactionState.ACTIVE:  # its ROLLBACK was interrupted
            # What it wrote may be gone, so nothing goes on in it; check_not_lost() tells why.
            self.tablespace.rollback(transaction, transaction.abort_error or half_undone_error())
        if transaction.cut is not None:
            self.tablespace.undo_cut(transaction)  # what it has defined is seen otherwise
        if transaction.state is TransactionState.ENDED:
            self.tablespace.leave_queues(transaction)
            if transaction.abort_error is None:
                self.transaction = None
                if transaction.outcome.is_done:
                    transaction.outcome.result()  # of a COMMIT whose wait was interrupted

    def recover(self, error: BaseException) -> None:
        """Leave no lock of a failed autocommit statement; end a transaction that cannot go on."""
        transaction, undo_from = self.transaction, self.undo_from
        self.forget_statement()
        if transaction is not None:
            if undo_from is not None:
                self._undo(transaction, undo_from, error)
            if isinstance(error, DeadlockError | SerializationError):
                self.tablespace.rollback(transaction, error)
                transaction.is_loss_told = True
            self.tablespace.leave_queues(transaction)
            self._hurry(transaction)
        self.undo_from = None

    def _undo(self, transaction: Transaction, statement: int, error: BaseException) -> None:
        """Undo what a failed statement has logged by parts; repeatable.

        Where the log does not take that, the transaction ends: no half of it goes on.
        """
        tablespace = self.tablespace
        # Not by what is filled in: an interrupt may have come between the log and that.
        if transaction.id is not None and transaction.state is TransactionState.ACTIVE:
            transaction.cut = statement
            tablespace.undo_cut(transaction)
            if transaction.cut is not None:
                reason = error if isinstance(error, Error) else half_undone_error()
                tablespace.rollback(transaction, reason)

    def _hurry(self, transaction: Transaction) -> None:
        """See that a logged COMMIT without a waiter ends soon, and with it its locks."""
        syncer = self.tablespace.syncer
        if syncer is not None and transaction.state is TransactionState.COMMITTING:
            syncer.request(transaction.durability)


def _too_late(what: str) -> Error:
    return InternalError(
        f"{what} comes before the first statement of a transaction",
        sqlstate="25001",
        hint="COMMIT or ROLLBACK, and begin another one.",
    )


def _outside(what: str) -> Error:
    """Return the refusal of a statement that is about a transaction where there is none."""
    return InternalError(
        f"{what} can only be used in a transaction", sqlstate="25P01", hint="BEGIN."
    )


def _durability(text: str) -> Durability:
    try:
        return Durability(text)
    except ValueError:
        raise ProgrammingError(
            f"durability: expected 'sync', 'os' or 'none', found {text!r}", sqlstate="22023"
        ) from None
