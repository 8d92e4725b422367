"""Timed: how long background work took, added to by any thread; for metrics."""

from collections.abc import Callable
from typing import TypeVar

from bookie.runtime.interfaces import Clock
from bookie.runtime.metrics import Histogram

T = TypeVar("T")


class Timed:
    """How long one kind of work took. Any thread.

    No lock, so that an interrupt cannot leave one behind on the way of every commit: of two that
    end at the same instant in two threads one may go uncounted.
    """

    __slots__ = ("_clock", "ended_s", "histogram", "last_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.histogram = Histogram()
        self.ended_s: float | None = None
        """When the newest one ended, by the monotonic clock; None: none has."""
        self.last_s = 0.0
        """How long the newest one took."""

    def measure(self, step: Callable[[], T]) -> T:
        """Run a step and note how long it took, if it came to its end."""
        begun_s = self._clock.monotonic()
        result = step()
        self.ended_s = ended_s = self._clock.monotonic()
        self.last_s = ended_s - begun_s
        self.histogram.observe(self.last_s)
        return result

    @property
    def last_success_us(self) -> int | None:
        """When the last one ended well, by the wall clock as it is now; None: never."""
        if self.ended_s is None:
            return None
        ago_s = self._clock.monotonic() - self.ended_s
        return self._clock.wall_us() - int(ago_s * 1e6)
