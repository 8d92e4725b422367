"""Aside: long calls of another library, while the thread that asks for them hears signals.

Python runs a signal's handler in the main thread, between two of its own instructions: while DuckDB
plans or computes a query there, Ctrl-C would have to wait for it.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from weakref import finalize

from bookie.runtime.interfaces import Clock, Driver, Worker
from bookie.runtime.os_process import process_generation
from bookie.runtime.ticket import Ticket
from herdpy.engine.state.error_messages import forked_error

T = TypeVar("T")
_STOP_AGAIN_S = 0.01


class Aside:
    """Runs the main thread's calls in threads that wait for the next one; any thread may call.

    close() ends them, also from another thread, and so does the collector, of a database that was
    forgotten.
    """

    def __init__(self, driver: Driver, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock
        self._generation = process_generation()
        # The main thread's alone, which a signal's handler may interrupt anywhere to come here.
        self._threads: list[_Beside] = []
        finalize(self, _end, self._threads).atexit = False

    def __call__(self, call: Callable[[], T], stop: Callable[[], object]) -> T:
        """Return what call() returns, or raises; in another thread than the main one it runs here.

        InterfaceError: in a forked child.
        An interrupt is raised when the call has ended, which stop() asks it to, again and again.
        """
        if process_generation() != self._generation:  # its threads are the parent's
            raise forked_error()
        if not self._driver.hears_signals:
            return call()
        beside = next((each for each in self._threads if each.is_free), None)
        if beside is None:
            beside = _Beside(self._driver, self._clock)
            self._threads.append(beside)  # before it has a thread, which close() is to end
        return beside.run(call, stop)

    def close(self) -> None:
        """End the threads, and wait for those that run nothing; repeatable."""
        _end(self._threads)
        for each in self._threads:
            each.join()


def _end(threads: "list[_Beside]") -> None:
    for each in threads:
        each.end()


class _Beside:
    """A thread, and the call that it is to run."""

    __slots__ = ("_bell", "_calls", "_clock", "_driver", "_is_closed", "_worker", "is_free")

    def __init__(self, driver: Driver, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock
        self._bell = driver.new_bell()
        self._calls: deque[Callable[[], object]] = deque()
        """One at the most; who takes it away runs it."""
        self._is_closed = False
        self._worker: Worker | None = None
        self.is_free = True
        """It may get a call. After an interrupt between here and there it is left to close()."""

    def _work(self) -> None:
        while True:
            self._bell.wait()
            # In this order: one that comes behind the look at the end sees that it is closed.
            is_closed = self._is_closed
            self._run_next()
            if is_closed:
                return

    def _run_next(self) -> None:
        """Run the call, unless another thread has taken it; no frame that stays holds it."""
        with suppress(IndexError):
            call = self._calls.popleft()
            call()

    def run(self, call: Callable[[], T], stop: Callable[[], object]) -> T:
        done: Ticket[None] = Ticket()
        # Emptied: the thread may keep the frame of work() for a moment longer, and what hangs on
        # call and value, as a snapshot does, is to be gone when this thread lets go of them.
        calls, values = [call], list[T]()
        errors: list[BaseException] = []

        def work() -> None:
            try:
                values.append(calls.pop()())
            except BaseException as error:  # noqa: BLE001 - raised where it was asked for
                errors.append(error)
            finally:
                self.is_free = True
                done.complete(None)

        self.is_free = is_interrupted = False
        if self._worker is None:
            self._worker = self._driver.spawn("herdpy-aside", self._work)
        self._calls.append(work)
        while not done.is_done:
            try:
                self._bell.ring()  # an interrupt may have come before it
                if self._is_closed:  # its thread may be gone
                    self._run_next()
                if is_interrupted:
                    stop()
                    self._driver.wait(done, self._clock.monotonic() + _STOP_AGAIN_S)
                else:
                    self._driver.wait(done)
            except BaseException as interrupt:  # noqa: BLE001 - raised below
                is_interrupted = True
                errors.insert(0, interrupt)
        if errors:
            # No frame may keep an error whose traceback has that frame: they would live until the
            # next collection, and the call's tables with them.
            try:
                raise errors.pop(0)
            finally:
                errors.clear()
                values.clear()
        return values.pop()

    def end(self) -> None:
        """Have the thread end when it runs nothing; anywhere, a collector's callback included."""
        self._is_closed = True
        self._bell.ring()

    def join(self) -> None:
        """Wait for the thread's end, unless it runs a call."""
        if self.is_free and self._worker is not None:
            self._worker.join()
