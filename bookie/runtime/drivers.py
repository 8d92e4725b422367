"""ThreadDriver: threads, and waits in the thread that calls; the only maker of threads and locks.

Waiting is one bare lock acquired with a timeout: nothing polls, and an interrupt (Ctrl-C) or a
cancel ends it at once. Worker threads are daemons, so a forgotten close() cannot hold up the end
of the process; their owners join them in close().
"""

import _thread
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from bookie.runtime.interfaces import Clock, WaitEndedError
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_process import is_ending
from bookie.runtime.ticket import Ticket

T = TypeVar("T")
_LET_IN_S = 0.0001  # as long as the system takes to wake a thread

Mutex = (
    _thread.LockType
)  # a class, so that `Mutex | None` works; threading.Lock is none before 3.13


def _sleep_a_moment() -> None:
    time.sleep(_LET_IN_S)


_make_mutex: Callable[[], Any] = _thread.allocate_lock
_let_in: Callable[[], object] = _sleep_a_moment


def new_mutex() -> Mutex:
    """Return an unlocked lock: not reentrant, used by `with`."""
    return _make_mutex()


def let_others_in() -> None:
    """Let a thread have the mutex that this one has just given up, and is to take again soon.

    A mutex has no queue: who takes it again at once is always the first.
    """
    _let_in()


@contextmanager
def mutexes_of(make: Callable[[], Any], let_in: Callable[[], object]) -> Generator[None]:
    """Have new_mutex() and let_others_in() do this in the block: what runs there has no threads.

    One thread, which has the process for itself. Mutexes that were made before stay what they are.
    """
    global _make_mutex, _let_in
    before = _make_mutex, _let_in
    _make_mutex, _let_in = make, let_in
    try:
        yield
    finally:
        _make_mutex, _let_in = before


class Bell:
    """Wakes one waiter; many threads ring. A ring before the wait is kept, several count as one.

    After every wait the waiter looks at the state that the ring is about: it may be woken once
    too often.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()  # locked: silent; unlocked: rung
        self._lock.acquire()

    def ring(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:  # already rung
            pass

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a ring and take it; False when timeout_s passed first (None: no limit)."""
        if timeout_s is None:
            return self._lock.acquire()
        return self._lock.acquire(True, min(max(timeout_s, 0.0), threading.TIMEOUT_MAX))


class Worker:
    """One thread, as its owner sees it."""

    __slots__ = ("_thread",)

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    @property
    def name(self) -> str:
        return self._thread.name

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the function to end; False when timeout_s passed first."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


class ThreadDriver:
    """Driver over real threads and a clock that runs in seconds. Any thread may call.

    `on_death(name, error)` is called in the dying thread with whatever a spawned function raised;
    without one the error goes to threading.excepthook, which prints it.
    """

    __slots__ = ("_clock", "_on_death")

    def __init__(
        self,
        on_death: Callable[[str, BaseException], object] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._on_death = on_death
        self._clock: Clock = clock or OsClock()

    def new_bell(self) -> Bell:
        return Bell()

    @property
    def hears_signals(self) -> bool:
        return threading.current_thread() is threading.main_thread() and not is_ending()

    def spawn(self, name: str, function: Callable[[], object]) -> Worker:
        def work() -> None:
            try:
                function()
            except BaseException as error:  # nothing above could see it
                if self._on_death is None:
                    raise
                self._on_death(name, error)

        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return Worker(thread)

    def wait(
        self, ticket: Ticket[Any], deadline: float | None = None, stop: Ticket[Any] | None = None
    ) -> bool:
        if ticket.is_done:
            return True
        bell = Bell()
        ring = bell.ring
        try:
            ticket.on_done(ring)
            if stop is not None:
                stop.on_done(ring)
            while not ticket.is_done:
                if stop is not None and stop.is_done:
                    return False
                remaining_s = None if deadline is None else deadline - self._clock.monotonic()
                if remaining_s is not None and remaining_s <= 0:
                    return False
                bell.wait(remaining_s)
            return True
        finally:
            # A stop ticket may outlive many waits; what is left behind after an interrupt here
            # wakes no waiter.
            ticket.forget(ring)
            if stop is not None:
                stop.forget(ring)

    def run(
        self,
        coroutine: Coroutine[Any, None, T],
        deadline: float | None = None,
        stop: Ticket[Any] | None = None,
    ) -> T:
        return run_by(self.wait, coroutine, deadline, stop)


def run_by(
    wait: Callable[[Ticket[Any], float | None, Ticket[Any] | None], bool],
    coroutine: Coroutine[Any, None, T],
    deadline: float | None,
    stop: Ticket[Any] | None,
) -> T:
    """Run a coroutine that awaits Tickets by a driver's wait(): Driver.run()."""
    error: BaseException | None = None
    try:
        while True:
            ticket = coroutine.send(None) if error is None else coroutine.throw(error)
            error = None
            try:
                if not wait(ticket, deadline, stop):
                    error = WaitEndedError(is_stopped=stop is not None and stop.is_done)
            except BaseException as interrupt:  # noqa: BLE001 - the coroutine's to clean up
                error = interrupt
    except StopIteration as end:
        return end.value
    finally:
        error = None  # a frame and an error that hold each other live until the next gc
        coroutine.close()


def run_detached(function: Callable[[], object]) -> None:
    """Run function soon, in a short thread that is not joined; its errors go to sys.unraisablehook.

    For weakref callbacks, which may come while their own thread holds any lock, those of the
    threading module included: none is taken here. RuntimeError when no thread can start (end of
    the interpreter).
    """
    _thread.start_new_thread(function, ())
