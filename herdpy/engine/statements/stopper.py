"""Stopper: the thread that stops statements where they cannot look themselves, in DuckDB.

DuckDB forgets an interrupt when a step of a query begins (it is parsed, bound, planned, run), and
looks for one only now and then in between: it is repeated until the call has ended.
"""

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Clock, Driver, Worker
from herdpy.engine.statements.interrupt import StatementInterrupt


class Stopper:
    """Any thread calls watch(); the thread is there from the first statement on that needs it."""

    def __init__(self, driver: Driver, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock
        self._bell = driver.new_bell()
        # Guarded by _mutex.
        self._mutex = new_mutex()
        self._watched: set[StatementInterrupt] = set()
        self._worker: Worker | None = None
        self._is_closed = False

    def watch(self, interrupt: StatementInterrupt) -> None:
        """Stop what on_cancel() names when it is time, until it names nothing any more."""
        with self._mutex:
            if self._is_closed or interrupt in self._watched:
                return
            self._watched.add(interrupt)
            if self._worker is None:
                self._worker = self._driver.spawn("herdpy-stopper", self._run)
        self._bell.ring()

    def _run(self) -> None:
        wait_s: float | None = None
        while not self._is_closed:
            self._bell.wait(wait_s)
            wait_s = self.stop_late()

    def stop_late(self) -> float | None:
        """Stop what is late; return in how many seconds to come again, None: when watch() asks."""
        waits: list[float] = []
        with self._mutex:
            now_s = self._clock.monotonic()
            for interrupt in list(self._watched):
                moment = interrupt.stop_if_late(now_s)
                if moment is None:
                    self._watched.discard(interrupt)
                else:
                    waits.append(moment - now_s)
        return min(waits, default=None)

    def close(self) -> None:
        """End the thread; repeatable."""
        with self._mutex:
            self._is_closed = True
            worker = self._worker
        self._bell.ring()
        if worker is not None:
            worker.join()
