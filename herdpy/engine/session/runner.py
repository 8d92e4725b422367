"""StatementRunner: one statement of a session at a time, cancelled by any thread, cleaned up after.

A statement that has to wait for a lock ends with MustWaitError, before it has had any effect, and
is run again behind the wait (lock_wait.py). Here the calling thread waits and runs it again; or,
with `leaves_waits`, the session keeps the statement (its number, time-outs and locks) and its
caller repeats the call. Any thread.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from herdpy.engine.access.rights import hide_values
from herdpy.engine.session.activity import Running
from herdpy.engine.session.core import SessionCore
from herdpy.engine.state.error_messages import system_error
from herdpy.engine.state.memtable_room import WAIT_S_MAX, MemtableFullError
from herdpy.engine.state.snapshots import PlanIsStaleError
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.lock_wait import (
    LockWait,
    MustWaitError,
    lock_wait_of,
    room_wait_of,
)
from herdpy.errors import (
    IntegrityError,
    InvariantViolation,
    LockTimeoutError,
    SnapshotTooOldError,
)
from herdpy.limits import statement_restarts_max

T = TypeVar("T")


class StatementRunner:
    def __init__(self, core: SessionCore) -> None:
        self._core = core
        self._database = core.database
        self._clock = core.database.clock

    def run_planned(self, body: Callable[[], T], text: str) -> T:
        """Run a statement, again if its tables were dropped between planning and reading."""
        attempts = 0
        while True:
            try:
                return self.run(body, text)
            except PlanIsStaleError:  # it has had no effect
                attempts += 1
                if attempts >= statement_restarts_max:
                    raise

    def run(self, body: Callable[[], T], text: str) -> T:
        core = self._core
        with core.mutex:
            if core.lock_wait is None:
                core.check_open()
            try:
                try:
                    return self._run(body, text)
                except MustWaitError:
                    raise
                except BaseException as error:
                    core.recover(error)
                    if isinstance(error, LockTimeoutError):
                        self._count_timeout("lock_timeout")
                    elif isinstance(error, IntegrityError) and core.identity is not None:
                        hide_values(error, core.tablespace, core.transaction, core.identity)
                    raise
                finally:
                    if core.lock_wait is None:
                        core.running = core.waiting = None
                    if core.planning.looks:
                        core.planning.close()
                    if core.settings.idle_in_transaction_timeout_s:
                        core.used_s = self._clock.monotonic()
            except MustWaitError:
                raise
            except BaseException as error:
                # Once more, because an interrupt may have hit the first clean-up; repeatable.
                core.recover(error)
                refused = system_error(error)
                if refused is not None:
                    raise refused from error
                raise

    def _count_timeout(self, name: str) -> None:
        self._database.refusals.add(name, self._core.identity)

    def _run(self, body: Callable[[], T], text: str) -> T:
        core, clock = self._core, self._clock
        self._database.check_usable()
        has_waited = self._take_up(text)
        if not has_waited:
            core.settle()
            core.interrupt = StatementInterrupt(clock, core.settings.statement_timeout_s)
            if core.settings.statement_timeout_s:
                core.interrupt.on_late = partial(self._count_timeout, "statement_timeout")
            core.room_until_s = None
            number = next(self._database.statement_ids)
            running = Running(number, text, clock.monotonic(), core.interrupt)
            core.running = core.latest = running
            core.check_open()  # a close() or kill() could not cancel this one yet
        interrupt = core.interrupt
        assert interrupt is not None
        while True:
            try:
                result = body()
                break
            except (InvariantViolation, SnapshotTooOldError):
                # Of a transaction that was undone meanwhile: what it read is kept no more, either.
                core.check_not_undone(core.transaction or core.statement)
                raise
            except MustWaitError as must_wait:
                wait = core.waiting = lock_wait_of(must_wait, interrupt, clock.monotonic())
                if core.leaves_waits:
                    core.lock_wait = wait
                    raise
            except MemtableFullError as full:
                wait = core.waiting = self._wait_for_room(full, interrupt)
                if core.leaves_waits:
                    core.lock_wait = wait
                    raise MustWaitError(full.ticket, 0.0) from None
            has_waited = True
            self._database.driver.wait(wait.ticket, wait.deadline, wait.stop)
            core.waiting = None
            wait.check(interrupt)
        if has_waited:
            core.forget_statement()  # behind the wait there was nothing to do
        return result

    def _wait_for_room(self, full: MemtableFullError, interrupt: StatementInterrupt) -> LockWait:
        """Return what a write waits for that found no room in memory; 53200: none will come."""
        core = self._core
        begun_s = self._clock.monotonic()
        if core.room_until_s is None:
            core.room_until_s = begun_s + WAIT_S_MAX
        self._database.make_room()
        return room_wait_of(full, interrupt, core.room_until_s, begun_s)

    def end_wait(self) -> None:
        """Give up the statement that waits, if there is one: it is not run again; repeatable."""
        with self._core.mutex:
            if self._core.lock_wait is not None:
                self._drop_waiting()

    def _take_up(self, text: str) -> bool:
        """Go on with the statement that waited; False: there is none, or it is no more.

        Raises why it must not go on.
        """
        core = self._core
        wait, running = core.lock_wait, core.running
        if wait is None:
            return False
        assert running is not None
        if running.text != text:
            self._drop_waiting()
            return False
        core.lock_wait = core.waiting = None
        core.check_open()
        wait.check(running.interrupt)
        return True

    def _drop_waiting(self) -> None:
        core = self._core
        core.lock_wait = core.waiting = core.running = None
        core.forget_statement()
        if core.transaction is not None:
            core.tablespace.leave_queues(core.transaction)
