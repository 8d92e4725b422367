"""Housekeeper: the one thread that looks after the directories of one owner.

Twice a second, and when wake() rings, it does what is due in each of them that is open, one after
the other.
"""

from typing import Protocol

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Driver, Worker
from herdpy.engine.maintenance.replica import TICK_S


class LookedAfter(Protocol):
    """A directory that is open."""

    def look_after(self) -> None:
        """Do what is due; by the housekeeper alone. What it raises ends the thread."""
        ...


class Housekeeper:
    """Any thread may call. The thread is there from the first add() to close()."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._bell = driver.new_bell()
        self.wake = self._bell.ring
        """Never waits."""
        # Own mutex.
        self._mutex = new_mutex()
        self._open: dict[LookedAfter, None] = {}
        self._worker: Worker | None = None
        self._is_closed = False

    def add(self, opened: LookedAfter) -> None:
        """Look after it from now on; a thread that has ended by an error is there again."""
        with self._mutex:
            self._open[opened] = None
            if not self._is_closed and (self._worker is None or not self._worker.is_alive):
                self._worker = self._driver.spawn("herdpy-maintenance", self._run)

    def remove(self, opened: LookedAfter) -> None:
        """Begin no round of it any more; one may be under way. Repeatable."""
        with self._mutex:
            self._open.pop(opened, None)

    def _run(self) -> None:
        while not self._is_closed:
            self._bell.wait(TICK_S)
            for opened in list(self._open):
                if not self._is_closed:
                    opened.look_after()

    def close(self) -> None:
        """End the thread, and wait for it; repeatable."""
        self._is_closed = True
        self._bell.ring()
        if self._worker is not None:
            self._worker.join()
