"""Session: one user's statements, one at a time, with its transaction and settings.

Any thread may call; statements of one session run one after the other. An exception of any kind,
KeyboardInterrupt included, at any line leaves the session usable: an autocommit statement has
happened wholly or not at all and holds no lock; a transaction goes on without the statement, but
for one that an interrupt (KeyboardInterrupt) hit after the log had taken it: that one has happened.
So a program that catches the interrupt and repeats what is not idempotent rolls back first.

A session is its core (core.py: state and transaction) and the parts composed in __init__, each of
which gets the core and the parts that it needs; those that few sessions use are made, and loaded,
when they are used. What is here ends a session, and stops what it runs: its owner, KILL, the
maintenance thread for time. cancel() and kill() never wait for what runs.
"""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from herdpy.engine.access.rights import check_superuser
from herdpy.engine.access.tablespaces import check_all
from herdpy.engine.session.activity import Client, Running
from herdpy.engine.session.commit_outcomes import CommitOutcomes
from herdpy.engine.session.core import SessionCore
from herdpy.engine.session.fast_path import FastPath
from herdpy.engine.session.planner import Planner
from herdpy.engine.session.runner import StatementRunner
from herdpy.engine.session.statements import Statements
from herdpy.engine.state.error_messages import dropped_error, idle_error
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.errors import (
    Error,
    InternalError,
    ProgrammingError,
    QueryCanceledError,
    Retry,
    loading,
)
from herdpy.model.access import User
from herdpy.model.lsn import START_LSN, Lsn
from herdpy.model.role_settings import capped
from herdpy.model.settings import Settings

if TYPE_CHECKING:
    from herdpy.engine.maintenance.backup import Backup, Listing
    from herdpy.engine.maintenance.dump import Dump
    from herdpy.engine.session.ingest import Ingest
    from herdpy.engine.session.leasing import Leasing
    from herdpy.engine.session.staging import Staging
    from herdpy.engine.statements.interfaces import DatabaseServices
    from herdpy.features import Feature

    Export = Backup | Dump | Listing

T = TypeVar("T")
_ID = re.compile("[0-9a-f]{32}")


class Session(SessionCore):
    """`settings` are the session's own; Database.session() makes one."""

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
        super().__init__(database, settings, autocommit=autocommit, id=id, client=client, user=user)
        self.runner = runner = StatementRunner(self)
        self.planner = planner = Planner(self)
        statements = Statements(self, runner, planner)
        fast_path = FastPath(self, planner, statements.execute)
        outcomes = CommitOutcomes(self)
        # The calls of the parts that are the session's own.
        self.run = fast_path.run
        self.attempt = fast_path.attempt
        self.end_write = fast_path.end_write
        self.execute = statements.execute
        self.execute_many = statements.execute_many
        self.execute_all = statements.execute_all
        self.is_introspection = statements.is_introspection
        self.tables = statements.tables
        self.end_wait = runner.end_wait
        self.resolve = outcomes.resolve
        self.check_token = outcomes.check_token
        self.latest_plans = database.plans.latest
        """The plan used last for each text, of any session; any thread."""

    @property
    def leasing(self) -> "Leasing":
        """Return the calls about leases; without state, made anew each time."""
        with loading():
            from herdpy.engine.session.leasing import Leasing

        return Leasing(self, self.runner, self.planner)

    @property
    def staging(self) -> "Staging":
        """Return the calls about stages; without state, made anew each time."""
        with loading():
            from herdpy.engine.session.staging import Staging

        return Staging(self, self.runner, self.planner)

    def begin_ingest(self, table: str, mode: str) -> "Ingest":
        """Return what takes Arrow batches for one table, to write them as one statement."""
        with loading():
            from herdpy.engine.session.ingest import Ingests

        return Ingests(self, self.runner, self.planner, self.staging).begin(table, mode)

    @property
    def autocommit(self) -> bool:
        return self.is_autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        with self.mutex:
            if self.in_transaction:
                raise ProgrammingError(
                    "autocommit cannot be changed inside a transaction",
                    sqlstate="25001",
                    hint="commit() or rollback() first.",
                )
            self.is_autocommit = value

    @property
    def application_name(self) -> str:
        return self.settings.application_name

    @property
    def is_administrator(self) -> bool:
        """The session's user is a superuser of `default` now. Any thread."""
        return self.database.is_administrator(self.user)

    def end_lost(self, token_session: str) -> None:
        """End the session of these tokens, if it holds locks: its client has lost it, and asks."""
        self.database.end_lost(self.id, self.identity, token_session)

    def perform(self, feature: "Feature[T]", *arguments: Any) -> T:
        """Do what a request asks for that is no statement."""
        return feature.run(self, *arguments)

    def await_position(self, position: str, timeout_s: float = 0.0) -> float:
        """Return 0, the age of what a session in process sees, if it has a position; "": any.

        Nothing is waited for, as a database in process has what it will have:
        QueryCanceledError 57014, SAFE, at once where it has not. 22023 for what is no position.
        """
        try:
            wanted = Lsn.of_text(position) if position else START_LSN
        except ValueError:
            raise ProgrammingError(
                f"wait_for: expected a position, such as conn.position gives, found "
                f"{position!r:.100}",
                sqlstate="22023",
            ) from None
        found = self.lsn
        if found < wanted:
            raise QueryCanceledError(
                f"wait_for: the position {wanted} was not reached in time: the copy is at {found}",
                retry=Retry.SAFE,
                hint="wait for longer, or read from the leader; a position is of one tablespace, "
                "and of no other",
            )
        return 0.0

    def begin(self, durability: str | None = None) -> None:
        self.runner.run(lambda: self.begin_transaction(durability), "BEGIN")

    def commit(self) -> None:
        self.runner.run(self.commit_transaction, "COMMIT")

    def rollback(self) -> None:
        self.runner.run(self.end_transaction, "ROLLBACK")

    def reset(self) -> None:
        """Take back what SET changed."""
        with self.mutex:
            self.settings = capped(self.defaults, self.maxima)

    # --- for superusers --------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write what changed since the last checkpoint to pages; superusers only."""

        def run() -> None:
            check_superuser(self.planner.rights(), "checkpoint")
            self.database.run_checkpoint()

        self.runner.run(run, "CHECKPOINT")

    def check_may_export(self) -> None:
        """Raise 42501 for who may not read everything: superusers only."""
        self.runner.run(lambda: check_superuser(self.planner.rights(), "export"), "EXPORT")

    def export(self, kind: str, tablespace: str = "") -> "Export":
        """Begin a "backup", a "dump" or the list of "tablespaces"; the caller closes it.

        Not part of a transaction. Who may not checkpoint may have none. `tablespace` is the id, 32
        hexadecimal digits, of another one; that and the list are for superusers of `default`
        (42501).
        """
        self.checkpoint()
        if tablespace or kind == "tablespaces":
            return self._export_of_all(kind, tablespace)
        if kind == "backup":
            return self.runner.run(self.database.backup, "BACKUP")
        if kind == "dump":
            return self.runner.run(self.database.dump, "DUMP")
        raise ProgrammingError(
            f"export: expected 'backup', 'dump' or 'tablespaces', found {kind!r}", sqlstate="22023"
        )

    def _export_of_all(self, kind: str, tablespace: str) -> "Export":
        """Begin a backup or a dump of any tablespace, or the list of them."""
        with loading():
            from herdpy.engine.maintenance.backup import Listing

        database = self.database

        def run() -> "Export":
            check_all(database, self.planner.rights(), "export all tablespaces")
            tablespaces = database.tablespaces
            if kind == "tablespaces":
                return Listing(tablespaces.listing())
            if kind not in ("backup", "dump") or not _ID.fullmatch(tablespace):
                raise ProgrammingError(
                    "export: expected a 'backup' or 'dump' of a tablespace's id of 32 hexadecimal "
                    f"digits, found {kind[:20]!r} of {tablespace[:64]!r}",
                    sqlstate="22023",
                )
            begin = tablespaces.backup_of if kind == "backup" else tablespaces.dump_of
            return begin(bytes.fromhex(tablespace))

        return self.runner.run(run, kind.upper())

    # --- its end ---------------------------------------------------------------------------------

    def cancel(self, by: str = "conn.cancel() or close()") -> None:
        """Stop the running statement, if any; any thread. `by` is what its error names."""
        interrupt = self.interrupt
        if interrupt is not None:
            interrupt.cancel(by)

    @contextmanager
    def making_rows(self, statement: Running | None) -> Generator[None]:
        """Show a statement as running while rows of its result are made, so that it can be killed.

        The session's thread, with nothing else of it running.
        """
        self.running = statement
        try:
            yield
        finally:
            self.running = None

    def show_latest(self, begun_s: float, end: Callable[[], object]) -> None:
        """Show the last statement as running until hide_latest(), if it began at begun_s or later.

        What cancels it by its number calls end(), in any thread. With nothing of the session
        running.
        """
        latest = self.latest
        if latest is not None and latest.begun_s >= begun_s:
            self.running = latest
            latest.interrupt.on_cancel(end)

    def hide_latest(self) -> None:
        """Show it no more; repeatable."""
        running, self.running = self.running, None
        if running is not None:
            running.interrupt.on_cancel(None)

    def timeout_error(self) -> QueryCanceledError:
        """Return the error of a statement that statement_timeout ends, which is counted.

        Any thread.
        """
        self.database.refusals.add("statement_timeout", self.identity)
        interrupt = StatementInterrupt(self.database.clock, self.settings.statement_timeout_s)
        return interrupt.timeout_error()

    def close(self) -> None:
        """Cancel the statement that runs in another thread, roll back and end; repeatable."""
        self.is_closed = True
        try:
            self.cancel()
        finally:
            with self.mutex:
                try:
                    self.settle()
                except Error:
                    pass  # of an outcome that no caller asks for any more
                finally:
                    self.lock_wait = self.waiting = self.running = None
                    self.end_transaction()
                    self.database.forget_session(self.id)

    def kill(self, error: Error) -> None:
        """End it for another one: every later call fails with the error (57P01).

        Any thread; never waits.
        """
        self.ended[:] = (error,)
        running = self.running
        if running is not None:
            running.interrupt.cancel(error.message)
        if self.client.on_kill is not None:
            self.client.on_kill(error)
        self._end_if_killed()

    def end_if_dropped(self) -> None:
        """End it when its user was dropped. Any thread; never waits."""
        user = self.identity
        if user is None or self.ended:
            return
        if not self.tablespace.state.catalog.access.has(user):
            self.kill(dropped_error(user.name))

    def fail(self, error: Exception) -> None:
        """End it after an error of its clean-up that should not be: no other session is touched."""
        self.kill(
            InternalError(
                f"the session was ended, because its clean-up failed: {error!r}",
                hint="This is a bug in herdpy. Connect again.",
            )
        )

    # --- run by the maintenance thread -----------------------------------------------------------

    def look_after(self, now_s: float) -> None:
        """Do what is due without the session's owner."""
        self._rollback_if_idle(now_s)
        self._end_if_killed()

    def _end_if_killed(self) -> None:
        """Roll back what a killed session has left, unless a statement of it still runs."""
        if self.ended and self.in_transaction and self.mutex.acquire(False):
            try:
                self.end_transaction()
            finally:
                self.mutex.release()

    def times_s(self) -> Iterator[tuple[str, float]]:
        """Yield what time-outs are about, and how long it has lasted. Any thread, without a lock.

        How long a transaction is idle is known where there is a time-out for it.
        """
        now_s, running, wait = self.database.clock.monotonic(), self.running, self.waiting
        if running is not None:
            yield "statement_timeout", max(0.0, now_s - running.begun_s)
            if wait is not None and wait.what == "lock":
                yield "lock_timeout", max(0.0, now_s - wait.since_s)
            return
        limit_s, transaction = self.settings.idle_in_transaction_timeout_s, self.transaction
        if not limit_s or not self.in_transaction or transaction is None:
            return
        if transaction.abort_error is None:
            yield "idle_in_transaction_session_timeout", max(0.0, now_s - self.used_s)

    def _rollback_if_idle(self, now_s: float) -> None:
        """Roll back a transaction idle past its limit."""
        if self.in_transaction and self.mutex.acquire(False):  # the limit may be another one now
            try:
                with suppress(Error):  # of one that has ended
                    self.check_open()
            finally:
                self.mutex.release()
        limit_s = self.settings.idle_in_transaction_timeout_s
        if not limit_s or not self.in_transaction or now_s - self.used_s < limit_s:
            return
        if self.running is not None:  # also when it waits, and the mutex is free
            return
        if not self.mutex.acquire(False):  # busy, so not idle
            return
        try:
            transaction = self.transaction
            if transaction is not None and now_s - self.used_s >= limit_s:
                is_first = transaction.abort_error is None  # it is looked after until its end
                self.tablespace.rollback(transaction, idle_error(limit_s))
                if is_first:
                    self.database.refusals.add("idle_in_transaction_session_timeout", self.identity)
        finally:
            self.mutex.release()
