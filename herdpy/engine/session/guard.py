"""A session's guard: one statement at a time, that anybody may cancel and an error cleans up after.

Who ends a session, and who stops what it runs: its owner, KILL, the housekeeper for time. Any
thread; cancel(), kill() and stop_if_late() never wait for the statement that runs.
"""

from collections.abc import Callable
from typing import TypeVar

from herdpy.engine.session.activity import Running, killed_error
from herdpy.engine.session.transaction import SessionTransaction
from herdpy.engine.state.error_messages import idle_error, system_error
from herdpy.engine.state.snapshots import PlanIsStaleError
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.errors import Error, InterfaceError, InternalError
from herdpy.limits import statement_restarts_max

T = TypeVar("T")


class SessionGuard(SessionTransaction):
    """See the module."""

    @property
    def application_name(self) -> str:
        return self._settings.application_name

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
                self._database.forget_session(self.id)

    def kill(self) -> None:
        """End it for someone else: every later call fails with 57P01. Any thread; never waits."""
        self._is_killed = True
        running = self.running
        if running is not None:
            running.interrupt.cancel("KILL CONNECTION")
        if self.client.on_kill is not None:
            self.client.on_kill()
        self.end_if_killed()

    def look_after(self, now_s: float) -> None:
        """Do what is due without the session's owner; run by the housekeeper."""
        self.rollback_if_idle(now_s)
        self.end_if_killed()

    def fail(self, error: Exception) -> None:
        """End it after an error of its clean-up that should not be: no other session is touched."""
        self._failure = InternalError(
            f"the session was ended, because its clean-up failed: {error!r}",
            hint="This is a bug in herdpy. Connect again.",
        )
        if self._mutex.acquire(False):
            try:
                self._end_transaction()
            finally:
                self._mutex.release()
        if self.client.on_kill is not None:
            self.client.on_kill()

    def end_if_killed(self) -> None:
        """Roll back what a killed session has left, unless a statement of it still runs."""
        if self._is_killed and self.in_transaction and self._mutex.acquire(False):
            try:
                self._end_transaction()
            finally:
                self._mutex.release()

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

    def _check_open(self) -> None:
        if self._is_closed:
            raise InterfaceError("the session is closed")
        if self._is_killed:
            raise killed_error()
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _check_interrupt(self) -> None:
        interrupt = self._interrupt
        if interrupt is not None:
            interrupt.check()

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
                refused = system_error(error)
                if refused is not None:
                    raise refused from error
                raise
