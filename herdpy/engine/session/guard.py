"""A session's guard: one statement at a time, cancelled by any thread, cleaned up after.

Who ends a session, and who stops what it runs: its owner, KILL, the housekeeper for time. Any
thread; cancel(), kill() and stop_if_late() never wait for the statement that runs.

A statement that has to wait for a lock ends with MustWaitError, before it has had any effect, and
is run again behind the wait (lock_wait.py). Here the calling thread waits and runs it again; or,
with `leaves_waits`, the session keeps the statement (its number, time-outs and locks) and its
caller repeats the call.
"""

from collections.abc import Callable
from copy import copy
from typing import TypeVar

from herdpy.engine.session.activity import Running
from herdpy.engine.session.transaction import SessionTransaction
from herdpy.engine.state.error_messages import dropped_error, idle_error, system_error
from herdpy.engine.state.snapshots import PlanIsStaleError
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.lock_wait import LockWait, MustWaitError, lock_wait_of
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
                pass  # of an outcome that no caller asks for any more
            finally:
                self._wait = self.running = None
                self._end_transaction()
                self._database.forget_session(self.id)

    def kill(self, error: Error) -> None:
        """End it for another one: every later call fails with the error (57P01).

        Any thread; never waits.
        """
        self._end_error = error
        running = self.running
        if running is not None:
            running.interrupt.cancel(error.message)
        if self.client.on_kill is not None:
            self.client.on_kill(error)
        self.end_if_killed()

    def end_if_dropped(self) -> None:
        """End it when its user was dropped. Any thread; never waits."""
        user = self.identity
        if user is None or self._end_error is not None:
            return
        if not self._tablespace.state.catalog.access.has(user):
            self.kill(dropped_error(user.name))

    def look_after(self, now_s: float) -> None:
        """Do what is due without the session's owner; run by the housekeeper."""
        self.rollback_if_idle(now_s)
        self.end_if_killed()

    def fail(self, error: Exception) -> None:
        """End it after an error of its clean-up that should not be: no other session is touched."""
        failure = InternalError(
            f"the session was ended, because its clean-up failed: {error!r}",
            hint="This is a bug in herdpy. Connect again.",
        )
        self._end_error = failure
        if self._mutex.acquire(False):
            try:
                self._end_transaction()
            finally:
                self._mutex.release()
        if self.client.on_kill is not None:
            self.client.on_kill(failure)

    def end_if_killed(self) -> None:
        """Roll back what a killed session has left, unless a statement of it still runs."""
        if self._end_error is not None and self.in_transaction and self._mutex.acquire(False):
            try:
                self._end_transaction()
            finally:
                self._mutex.release()

    def rollback_if_idle(self, now_s: float) -> None:
        """Roll back a transaction idle past its limit; run by the housekeeper."""
        limit_s = self._settings.idle_in_transaction_timeout_s
        if not limit_s or not self.in_transaction or now_s - self._used_s < limit_s:
            return
        if self.running is not None:  # also when it waits, and the mutex is free
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
        if self._end_error is not None:
            raise copy(self._end_error)
        user = self.identity
        if user is not None and not self._tablespace.state.catalog.access.has(user):
            raise dropped_error(user.name)

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
            if self._wait is None:
                self._check_open()
                self._statement_us = None
            try:
                try:
                    self._database.check_usable()
                    has_waited = self._wait is not None and self._take_up(text)
                    if not has_waited:
                        self._settle()
                        self._interrupt = interrupt = StatementInterrupt(
                            self._clock, self._settings.statement_timeout_s
                        )
                        number = next(self._database.statement_ids)
                        self.running = Running(number, text, self._clock.monotonic(), interrupt)
                        self._check_open()  # a close() or kill() could not cancel this one yet
                    while True:
                        try:
                            result = body()
                            break
                        except MustWaitError as must_wait:
                            interrupt = self._interrupt
                            assert interrupt is not None
                            wait = lock_wait_of(must_wait, interrupt, self._clock.monotonic())
                            if self.leaves_waits:
                                self._wait = wait
                                raise
                        has_waited = True
                        self._driver.wait(wait.ticket, wait.deadline, wait.stop)
                        wait.check(interrupt)
                    if has_waited and self._statement is not None:
                        self._give_up(self._statement)  # behind the wait there was nothing to do
                        self._statement = None
                    return result
                except MustWaitError:
                    raise
                except BaseException as error:
                    self._recover(error)
                    raise
                finally:
                    if self._wait is None:
                        self.running = None
                    if self._settings.idle_in_transaction_timeout_s:
                        self._used_s = self._clock.monotonic()
            except MustWaitError:
                raise
            except BaseException as error:
                # Once more, because an interrupt may have hit the first clean-up; repeatable.
                self._recover(error)
                refused = system_error(error)
                if refused is not None:
                    raise refused from error
                raise

    # --- a statement that its caller runs again ---------------------------------------------------

    @property
    def lock_wait(self) -> LockWait | None:
        """What the statement waits for that the same call has to run again, if there is one."""
        return self._wait

    def end_wait(self) -> None:
        """Give up the statement that waits, if there is one: it is not run again; repeatable."""
        with self._mutex:
            if self._wait is not None:
                self._drop_waiting()

    def _take_up(self, text: str) -> bool:
        """Go on with the statement that waited; False: it is another one, and the first is no more.

        Raises why it must not go on.
        """
        wait, running = self._wait, self.running
        assert wait is not None
        assert running is not None
        if running.text != text:
            self._drop_waiting()
            return False
        self._wait = None
        self._check_open()
        wait.check(running.interrupt)
        return True

    def _drop_waiting(self) -> None:
        self._wait = self.running = None
        statement, transaction = self._statement, self._transaction
        if statement is not None:
            self._give_up(statement)
            self._statement = None
        if transaction is not None:
            self._tablespace.leave_queues(transaction)
