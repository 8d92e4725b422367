"""A session's transaction: begun, ended, given up, and what an error or an interrupt leaves of it.

The base layer of a session (session.py has the contract): its state, and what begins or ends
a transaction. All but the properties runs under the mutex.
"""

from typing import TYPE_CHECKING

from bookie.runtime.drivers import new_mutex
from herdpy.engine.access.rights import Gate
from herdpy.engine.session.activity import Client, Running
from herdpy.engine.state.commit_tokens import UsedToken
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.transactions import Transaction, TransactionState
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.lock_wait import LockWait
from herdpy.errors import (
    DeadlockError,
    Error,
    InternalError,
    ProgrammingError,
    Retry,
    SerializationError,
)
from herdpy.model.access import User
from herdpy.model.durability import Durability
from herdpy.model.lsn import Lsn
from herdpy.model.settings import Settings

if TYPE_CHECKING:
    from herdpy.engine.statements.interfaces import DatabaseServices


class SessionTransaction:
    """See the module."""

    def __init__(
        self,
        database: "DatabaseServices",
        settings: Settings,
        *,
        autocommit: bool,
        id: int = 0,  # noqa: A002 - the word of sysclients
        client: Client = Client(),  # noqa: B008 - immutable
        user: User | None = None,
    ) -> None:
        # Constant after __init__.
        self.id = id
        self.client = client
        self.identity = user
        """Whose rights it has; None: all, as the program's own session."""
        self.user = None if user is None else user.name
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
        self.leaves_waits = False
        """A statement that has to wait for a lock raises MustWaitError, and its caller repeats the
        call when lock_wait has ended; else the calling thread waits. Set before the first one."""
        self._wait: LockWait | None = None
        self.is_audited = False
        """execute() has changed tables, users or rights, or ended what others do."""
        self._statement: Transaction | None = None  # the autocommit statement that runs
        self._statement_us: int | None = None  # its time, None until something asks for it
        self._is_loss_told = False  # that _transaction was rolled back under the program
        self._is_closed = False  # set without it
        # Read by cancel() without it.
        self._interrupt: StatementInterrupt | None = None
        # Written under the mutex, read without it.
        self.running: Running | None = None
        self._end_error: Error | None = None  # why it was ended, set without it
        self._gate = Gate(user)
        self._used_s = self._clock.monotonic()
        # Constant.
        self._write_bytes_max = database.config.transaction_bytes_max
        self._commit_interrupt = StatementInterrupt(self._clock, 0.0)
        """Of a write that waits for its commit, which cannot be cancelled: never looked at."""

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
        return self._tablespace.applier.state.lsn

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
            tablespace = self._tablespace
            with_log_space(tablespace, lambda: tablespace.commit(transaction), frees_space=True)
        except SerializationError:
            self._end_transaction()  # it can never commit
            raise
        self._await_commit(transaction)
        self._transaction = None
        if transaction.access_changes:
            self._database.end_dropped_users()

    def _rollback(self) -> None:
        self._end_transaction()

    def _open_transaction(self, durability: Durability) -> None:
        self._is_loss_told = False
        self._transaction = self._tablespace.begin(durability, is_autocommit=False)

    def _own_or_statement(self) -> Transaction:
        """Return the open transaction, or begin the autocommit statement's own.

        A statement that is run again behind a wait has its own already, with its locks.
        """
        transaction = self._transaction
        if transaction is None:
            transaction = self._statement
            if transaction is None:
                transaction = self._statement = self._tablespace.begin(
                    self._settings.durability, is_autocommit=True, begun_us=self._autocommit_us()
                )
            transaction.token = self.token
        elif transaction.lease is not None:
            raise InternalError(
                "cannot write in a read-only transaction: it reads at a snapshot lease",
                sqlstate="25006",
                hint="COMMIT or ROLLBACK ends it; write in another transaction.",
            )
        return transaction

    def _autocommit_us(self) -> int:
        """Return the time of the autocommit statement: one, however often it is asked for."""
        if self._statement_us is None:
            self._statement_us = self._clock.wall_us()
        return self._statement_us

    def _finish_autocommit(self, transaction: Transaction) -> None:
        if transaction.state is TransactionState.ACTIVE:  # nothing was logged
            self._tablespace.rollback(transaction)
        else:
            self._await_commit(transaction)
        self._statement = None

    def _end_transaction(self) -> None:
        transaction = self._transaction
        if transaction is not None:
            self._tablespace.rollback(transaction)
            self._transaction = None

    def _await_commit(self, transaction: Transaction) -> None:
        """Wait for a logged COMMIT; its fate is no longer the statement's to time out."""
        outcome = transaction.outcome
        syncer = self._tablespace.syncer
        if syncer is not None:
            syncer.request(transaction.durability)
        if not outcome.is_done:
            self._driver.wait(outcome)
        outcome.result()
        failure = self._tablespace.log.failure
        if failure is not None and transaction.durability is Durability.OS:
            raise failure  # visible since its append, but perhaps never handed over

    def _request_sync(self, durability: Durability) -> None:
        syncer = self._tablespace.syncer
        if syncer is not None:
            syncer.request(durability)

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
        """See that a logged COMMIT without a waiter ends soon, and with it its locks."""
        if transaction.state is TransactionState.COMMITTING:
            self._request_sync(transaction.durability)

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


def _durability(text: str) -> Durability:
    try:
        return Durability(text)
    except ValueError:
        raise ProgrammingError(
            f"durability: expected 'sync', 'os' or 'none', found {text!r}", sqlstate="22023"
        ) from None
