"""Workers: the threads that carry out requests, and the statements that wait without one.

Statements run on a bounded number of workers. Those inside a transaction have workers of their own,
so that a COMMIT never waits for a worker; so has a statement that goes on behind a wait, for it
holds locks. A statement that waits for a lock has no worker (park()). While all workers are taken,
what a superuser of `default` needs to see the server and to KILL runs on reserved ones. Keys of
passwords are derived on half of the processors at the most: that is all it takes. On the server's
loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from bookie.runtime.interfaces import Clock
from bookie.runtime.os_executors import Executor, new_executor
from bookie.runtime.os_process import processor_count
from bookie.runtime.ticket import Ticket
from herdpy.config import ServerConfig
from herdpy.engine.statements.lock_wait import LockWait

T = TypeVar("T")
NewExecutor = Callable[[str, int], Executor]
"""Makes an executor of so many workers."""
STARVED_S = 1.0
"""The server is not ready when statements wait and no worker came free for so long."""
RESERVED_S = 2.0
"""A query may have a reserved worker for so long: system tables are read in less."""


class WorkerPool:
    """The threads, of one server or of all behind a port, and how many jobs have or want one."""

    def __init__(
        self,
        clock: Clock,
        config: ServerConfig,
        executor: NewExecutor = new_executor,
    ) -> None:
        self._clock = clock
        self._count = config.workers
        self._usual = executor("statement", config.workers)
        self._urgent = executor("transaction", config.connections_max)
        self._proofs = executor("password", max(1, processor_count() // 2))
        self._pages = executor("page", 1)
        self._reserved_max = max(1, config.superuser_reserved_connections)
        self._reserved = executor("reserved", self._reserved_max)
        self._reserved_count = 0  # what runs on reserved workers or waits for one
        self._reserved_freed_s = clock.monotonic()
        self.waits = 0
        """How many statements have had to wait for a worker."""
        self.usual_count = 0
        """How many statements outside transactions run or wait for a worker."""
        self._freed_s = clock.monotonic()  # when a worker came free, or the first job had to wait

    def submit(self, job: Callable[[], T], *, is_urgent: bool) -> "asyncio.Future[T]":
        if is_urgent:
            return asyncio.get_running_loop().run_in_executor(self._urgent, job)
        if self.usual_count == self._count:
            self._freed_s = self._clock.monotonic()
        self.waits += self.usual_count >= self._count
        self.usual_count += 1
        future = asyncio.get_running_loop().run_in_executor(self._usual, job)
        future.add_done_callback(self._usual_done)
        return future

    def submit_reserved(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        if self._reserved_count == self._reserved_max:
            self._reserved_freed_s = self._clock.monotonic()
        self._reserved_count += 1
        future = asyncio.get_running_loop().run_in_executor(self._reserved, job)
        future.add_done_callback(self._reserved_done)
        return future

    def submit_page(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._pages, job)

    def submit_proof(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._proofs, job)

    def _usual_done(self, _: "asyncio.Future[Any]") -> None:
        self.usual_count -= 1
        self._freed_s = self._clock.monotonic()

    def _reserved_done(self, _: "asyncio.Future[Any]") -> None:
        self._reserved_count -= 1
        self._reserved_freed_s = self._clock.monotonic()

    @property
    def are_busy(self) -> bool:
        """A statement outside a transaction would have to wait."""
        return self.usual_count >= self._count

    @property
    def waiting_count(self) -> int:
        return max(0, self.usual_count - self._count)

    @property
    def starved_s(self) -> float:
        """For how long statements have waited without a worker coming free; 0: none waits."""
        return self._clock.monotonic() - self._freed_s if self.waiting_count else 0.0

    @property
    def reserved_starved_s(self) -> float:
        """The same of what waits for a reserved worker."""
        is_waiting = self._reserved_count > self._reserved_max
        return self._clock.monotonic() - self._reserved_freed_s if is_waiting else 0.0

    def shutdown(self) -> None:
        """End the threads; all jobs are done. Repeatable."""
        for executor in (self._usual, self._urgent, self._proofs, self._pages, self._reserved):
            executor.shutdown()


class Workers:
    """One server's jobs on the threads of a pool, and what of it waits without one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, pool: WorkerPool) -> None:
        self._loop = loop
        self._clock = clock
        self.pool = pool
        self.parked_count = 0
        """How many statements wait for locks."""
        self._last_promise = 0
        self.promises: dict[int, Callable[[], object]] = {}
        """Jobs of when_done() that have not run, by number."""
        self.jobs: dict[asyncio.Future[Any], None] = {}
        self._due: deque[int | Callable[[], object]] = deque()  # any thread appends
        self._is_told = False  # the loop has a call to run them
        self._idle = asyncio.Event()

    # --- jobs ------------------------------------------------------------------------------------

    def submit(self, job: Callable[[], T], *, is_urgent: bool) -> "asyncio.Future[T]":
        return self._noted(self.pool.submit(job, is_urgent=is_urgent))

    def submit_reserved(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a short job of an administrator's on a worker that nothing else may take."""
        return self._noted(self.pool.submit_reserved(job))

    def submit_page(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Make a page for an unauthenticated client: one at a time, beside all statements."""
        return self._noted(self.pool.submit_page(job))

    def submit_proof(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Run what derives the key of a password: some milliseconds of a processor."""
        return self._noted(self.pool.submit_proof(job))

    def _noted(self, future: "asyncio.Future[T]") -> "asyncio.Future[T]":
        self.jobs[future] = None
        future.add_done_callback(self._done)
        return future

    def _done(self, future: "asyncio.Future[Any]") -> None:
        del self.jobs[future]

    @property
    def usual_count(self) -> int:
        """How many statements outside transactions run or wait for a worker of the pool."""
        return self.pool.usual_count

    @property
    def are_busy(self) -> bool:
        """A statement outside a transaction would have to wait."""
        return self.pool.are_busy

    @property
    def waiting_count(self) -> int:
        return self.pool.waiting_count

    # --- waits -----------------------------------------------------------------------------------

    def park(self, wait: LockWait, go_on: Callable[[], object]) -> None:
        """Run go_on on the loop, once, when the wait of a statement has ended."""
        self.parked_count += 1
        timer: asyncio.TimerHandle | None = None
        has_ended = False

        def end() -> None:
            nonlocal has_ended
            if has_ended:
                return  # a ticket may tell it twice, and both may be done
            has_ended = True
            wait.ticket.forget(tell)
            wait.stop.forget(tell)
            if timer is not None:
                timer.cancel()
            self.parked_count -= 1
            go_on()

        tell = partial(self._tell, end)

        def look() -> None:
            nonlocal timer
            assert wait.deadline is not None
            left_s = wait.deadline - self._clock.monotonic()
            if left_s <= 0:
                end()
            else:
                timer = self._loop.call_later(left_s, look)

        wait.ticket.on_done(tell)
        wait.stop.on_done(tell)
        if wait.deadline is not None:
            look()

    def when_done(self, ticket: Ticket[None], job: Callable[[], object]) -> None:
        """Run a job on the loop, once, when a ticket is done.

        The loop is woken once for all tickets that are done before it runs.
        """
        number = self._last_promise = self._last_promise + 1
        self.promises[number] = job
        ticket.on_done(partial(self._tell, number))

    def _tell(self, due: "int | Callable[[], object] | None" = None) -> None:
        """Have the loop run what is due, a promise of this number or a job; any thread."""
        if due is not None:
            self._due.append(due)
        if not self._is_told:
            self._is_told = True
            self._loop.call_soon_threadsafe(self._run_due)

    def run_then_due(self, step: Callable[[], object]) -> None:
        """Run a step on the loop, and behind it what it has made due, without waking the loop."""
        was_told, self._is_told = self._is_told, True
        try:
            step()
        finally:
            self._is_told = was_told
            self._run_due()

    def _run_due(self) -> None:
        self._is_told = False  # before the look: what comes behind it tells again
        due = self._due
        try:
            for _ in range(len(due)):  # what comes meanwhile lets the sockets go first
                first = due.popleft()
                # A ticket may tell it twice.
                job = self.promises.pop(first, None) if isinstance(first, int) else first
                if job is not None:
                    job()
        finally:
            if due:  # or one raised: a bug, which is not the others'
                self._tell()
            if not self.promises and not self.parked_count:
                self._idle.set()

    # --- the end ---------------------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """Something has to run on the loop when a ticket is done."""
        return bool(self.promises or self.parked_count)

    async def wait_idle(self) -> None:
        """Wait until nothing runs and nothing waits."""
        while self.jobs or self.is_waiting:
            if self.jobs:
                await asyncio.wait(list(self.jobs))
            else:
                self._idle.clear()
                await self._idle.wait()
