"""SwitchingDriver: threads of a simulated process, each a greenlet on its node's part of the loop.

A function that production runs in a thread runs here in switched(): where it waits (for a ticket, a
bell, a mutex, a slow disk, a moment), the loop goes on with whatever else there is. The code of the
product is the same; who goes on when is the seed's choice. Nothing waits in the loop's own
callbacks, which have no thread to stop: a mutex that is taken there has to be free.

`preemption`: with this probability a thread that holds no mutex lets others go on before it takes
one, as a system would that stops it anywhere. Where a system really stops it anywhere, between any
two statements of the log and what applies it, mutexes held or not, is what LinePreemption is for:
with it the loop's callbacks stop, too, and wait for mutexes as any thread.
"""

import asyncio
import random
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from greenlet import getcurrent

from bookie.runtime.drivers import mutexes_of, run_by
from bookie.runtime.ticket import Ticket
from herdpy.aio.switching import can_wait, switched, wait_for, wait_for_ticket
from tests.fixtures.shared_plans import own_plans
from tests.sim.disk import SimulatedCrash
from tests.sim.lines import LINED, preempted
from tests.sim.loop import Node, SimulatedLoop

T = TypeVar("T")
_MOMENT_S = 0.0001
_STOPS_S = (0.0, 0.000_1, 0.002, 0.02)
_WHOLE_STOPS_SHARE_MAX = 0.1
"""Beyond this share of the statements stops are shorter: in all they take as long."""
STOP_S_MAX = max(_STOPS_S)
"""So long is a thread stopped between two statements, at the most."""


def in_thread(node: Node, function: Callable[[], T]) -> "asyncio.Task[T]":
    """Begin a thread of a node's process; a power failure in it is that of the whole node."""

    async def run() -> T:
        try:
            return await switched(function)
        except SimulatedCrash:
            node.loop.crash(node)
            raise

    task = node.create_task(run())
    task.is_thread = True  # type: ignore[attr-defined]  # for SimulatedLoop.stops_callbacks
    return task


class LinePreemption:
    """Stops threads, and callbacks of the loop, before statements that chance chooses.

    `share`: of the statements of `modules`, some of tests/sim/lines.py; 0: none is, and nothing is
    prepared for it.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: random.Random,
        share: float,
        modules: Sequence[str] = LINED,
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._share = share
        self._stop_scale = min(1.0, _WHOLE_STOPS_SHARE_MAX / share) if share else 1.0
        self._modules = modules
        self.count = 0
        """How often something was stopped."""
        self._left = 0
        """Statements until something is again."""
        loop.stops_callbacks = share > 0

    @contextmanager
    def placed(self) -> Generator[None]:
        """Do it in the block."""
        if not self._share:
            yield
            return
        self._draw()
        # A statement that is planned is stopped elsewhere than one that is known.
        with own_plans(), preempted(self._at_line, self._modules):
            yield

    def _draw(self) -> None:
        self._left = 1 + int(self._rng.expovariate(self._share))

    def _at_line(self) -> None:
        self._left -= 1
        if self._left > 0:
            return
        self._draw()
        loop = self._loop
        if loop.is_closed() or _is_in_finalizer():
            return
        pause_s = self._rng.choice(_STOPS_S) * self._rng.random() * self._stop_scale
        if can_wait():
            self.count += 1
            wait_for(asyncio.sleep(pause_s))
        elif loop.can_stop():
            self.count += 1
            loop.stop_until(loop.create_future(), pause_s)


def _is_in_finalizer() -> bool:
    """Return whether the statement runs within a __del__().

    Python drops what is raised there, and a world that ends raises in the threads that it stopped.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


class Mutexes:
    """Makes the mutexes of all simulated processes of a loop, one life after the other."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, preemption: float = 0.0) -> None:
        self.loop = loop
        self._rng = rng
        self.preemption = preemption
        self.held: dict[Any, int] = {}
        """How many mutexes a thread holds, by its greenlet."""
        self.preemption_count = 0

    def new(self) -> "SwitchingMutex":
        return SwitchingMutex(self)

    def let_in(self) -> None:
        """Let others go on, for a moment of the simulated clock."""
        if can_wait():
            wait_for(asyncio.sleep(_MOMENT_S))

    def before(self) -> None:
        """Let others go on before a mutex is taken, now and then."""
        is_outermost = can_wait() and not self.held.get(getcurrent())
        if is_outermost and self._rng.random() < self.preemption:
            self.preemption_count += 1
            wait_for(asyncio.sleep(0))

    @contextmanager
    def placed(self) -> Generator[None]:
        """Have the product make its mutexes here, in the block."""
        with mutexes_of(self.new, self.let_in):
            yield


class SwitchingMutex:
    """_thread.lock, as far as the product uses it. First come, first served."""

    __slots__ = ("_holder", "_is_held", "_made_by", "_waiting")

    def __init__(self, made_by: Mutexes) -> None:
        self._made_by = made_by
        self._is_held = False
        self._holder: Any = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        made_by = self._made_by
        if blocking and made_by.preemption:
            made_by.before()
        if self._is_held and not (blocking and self._wait(timeout)):
            return False
        self._is_held = True
        if made_by.preemption:
            self._holder = holder = getcurrent()
            made_by.held[holder] = made_by.held.get(holder, 0) + 1
        return True

    def _wait(self, timeout: float) -> bool:
        loop = self._made_by.loop
        end_s = None if timeout < 0 else loop.time() + timeout
        if not can_wait() and not loop.can_stop():
            raise AssertionError("a callback of the loop waits for a mutex")
        while self._is_held:
            if end_s is not None and loop.time() >= end_s:
                return False
            future = loop.create_future()
            self._waiting.append(future)
            if not can_wait():
                loop.stop_until(future, None if end_s is None else end_s - loop.time())
                _set(future)  # of one that has waited long enough release() wakes the next
                continue
            timer = None if end_s is None else loop.call_at(end_s, _set, future)
            try:
                wait_for(future)
            finally:
                if timer is not None:
                    timer.cancel()
        return True

    def release(self) -> None:
        if not self._is_held:
            raise RuntimeError("release unlocked lock")
        self._is_held = False
        if self._holder is not None:
            held = self._made_by.held
            held[self._holder] -= 1
            if not held[self._holder]:
                del held[self._holder]
            self._holder = None
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                break

    def locked(self) -> bool:
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class SwitchingBell:
    """Bell of a thread that is a greenlet."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._is_rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._is_rung = True
        if self._waiter is not None:
            _set(self._waiter)

    def wait(self, timeout_s: float | None = None) -> bool:
        if not self._is_rung:
            self._waiter = waiter = self._loop.create_future()
            timer = None
            if timeout_s is not None:
                timer = self._loop.call_later(timeout_s, _set, waiter)
            try:
                wait_for(waiter)
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        is_rung, self._is_rung = self._is_rung, False
        return is_rung


class SwitchingWorker:
    """A thread, as its owner sees it."""

    def __init__(self, name: str, task: "asyncio.Task[object]") -> None:
        self.name = name
        self._task = task

    @property
    def is_alive(self) -> bool:
        return not self._task.done()

    def join(self, timeout_s: float | None = None) -> bool:
        if not self._task.done():
            wait_for(asyncio.wait([self._task], timeout=timeout_s))
        return self._task.done()


class SwitchingDriver:
    """Driver of the product's threads in one life of a node; a clock beside it: LoopClock."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = node.loop

    def new_bell(self) -> SwitchingBell:
        return SwitchingBell(self._loop)

    @property
    def hears_signals(self) -> bool:
        return False

    def spawn(self, name: str, function: Callable[[], object]) -> SwitchingWorker:
        return SwitchingWorker(name, in_thread(self._node, function))

    def wait(
        self, ticket: Ticket[Any], deadline: float | None = None, stop: Ticket[Any] | None = None
    ) -> bool:
        return wait_for_ticket(ticket, deadline, stop)

    def run(
        self,
        coroutine: Coroutine[Any, None, T],
        deadline: float | None = None,
        stop: Ticket[Any] | None = None,
    ) -> T:
        return run_by(self.wait, coroutine, deadline, stop)


class SwitchingExecutor:
    """Some workers of a node: jobs begin in order, after a moment that the seed draws, and wait."""

    def __init__(self, node: Node, rng: random.Random, worker_count: int, pause_s: float) -> None:
        self._node = node
        self._rng = rng
        self._pause_s = pause_s
        self._free = worker_count
        self._jobs: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()

    def begin(self, function: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Return what is done when a worker has done the job (SimulatedLoop.run_in_executor)."""
        future: asyncio.Future[T] = self._node.loop.create_future()
        self._jobs.append((future, partial(function, *args)))
        self._node.loop.call_later(self._rng.random() * self._pause_s, self._next)
        return future

    def _next(self) -> None:
        while self._free and self._jobs:
            future, job = self._jobs.popleft()
            if future.cancelled():
                continue
            self._free -= 1
            task = in_thread(self._node, job)
            task.add_done_callback(partial(self._end, future))

    def _end(self, future: "asyncio.Future[Any]", task: "asyncio.Task[Any]") -> None:
        self._free += 1
        if not task.cancelled():
            error = task.exception()
            if not future.done():
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(task.result())
        self._next()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: workers that have no job are nothing."""


class LoopClock:
    """Clock of the simulated loop; `jump_us` is added to its wall time, which may go back."""

    _WALL_US = 1_700_000_000_000_000

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.jump_us = 0

    def monotonic(self) -> float:
        return self._loop.time()

    def wall_us(self) -> int:
        return self._WALL_US + round(self._loop.time() * 1e6) + self.jump_us


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
