"""SimulatedDriver: a Driver with one thread; waiting is doing whatever else there is to do.

wait() calls `pump`, which does one piece of other work and says whether there was any. When there
is none left, the clock jumps to the deadline; without a deadline the wait would last for ever, and
WouldBlockForeverError says so.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from bookie.runtime.drivers import run_by
from bookie.runtime.interfaces import Worker
from bookie.runtime.ticket import Ticket
from tests.sim.clock import SimulatedClock

T = TypeVar("T")


class WouldBlockForeverError(AssertionError):
    """A wait that nothing in the simulation can end."""


class SimulatedBell:
    """Bell without a thread behind it: it only remembers that it was rung."""

    def __init__(self) -> None:
        self._is_rung = False

    def ring(self) -> None:
        self._is_rung = True

    def wait(self, timeout_s: float | None = None) -> bool:
        if timeout_s is None and not self._is_rung:
            raise WouldBlockForeverError("a wait for a bell that is never rung")
        is_rung, self._is_rung = self._is_rung, False
        return is_rung


class SimulatedDriver:
    """See the module. `pump(ticket)` returns False when it has nothing to do."""

    def __init__(self, clock: SimulatedClock, pump: Callable[[Ticket[Any]], bool]) -> None:
        self._clock = clock
        self._pump = pump

    def new_bell(self) -> SimulatedBell:
        return SimulatedBell()

    @property
    def hears_signals(self) -> bool:
        return False

    def spawn(self, name: str, function: Callable[[], object]) -> Worker:
        raise AssertionError(f"nothing is to be spawned in this simulation, found {name!r}")

    def wait(
        self, ticket: Ticket[Any], deadline: float | None = None, stop: Ticket[Any] | None = None
    ) -> bool:
        while not ticket.is_done:
            if stop is not None and stop.is_done:
                return False
            if deadline is not None and self._clock.monotonic() >= deadline:
                return False
            if self._pump(ticket):
                continue
            if deadline is None:
                raise WouldBlockForeverError("nothing left to do, and no deadline")
            self._clock.advance(max(0.0, deadline - self._clock.monotonic()))
        return True

    def run(
        self,
        coroutine: Coroutine[Any, None, T],
        deadline: float | None = None,
        stop: Ticket[Any] | None = None,
    ) -> T:
        return run_by(self.wait, coroutine, deadline, stop)
