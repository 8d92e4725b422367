"""Backoff: growing pauses with chance in them, until a budget of seconds is used up."""

import time
from collections.abc import Callable

from bookie.runtime.interfaces import Rng
from bookie.runtime.os_rng import OsRng

_FIRST_S = 0.01
_MAX_S = 0.5


class Backoff:
    """One row of attempts. One thread; an interrupt ends a pause."""

    __slots__ = ("_end_s", "_monotonic", "_pause_s", "_rng")

    def __init__(
        self,
        budget_s: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        rng: Rng | None = None,
    ) -> None:
        """monotonic() gives seconds; rng: None: the system's."""
        self._monotonic = monotonic
        self._rng: Rng = rng or OsRng()
        self._end_s = monotonic() + budget_s
        self._pause_s = _FIRST_S

    @property
    def left_s(self) -> float:
        """How much of the budget is left; 0: nothing."""
        return max(0.0, self._end_s - self._monotonic())

    def wait(self) -> bool:
        """Pause before the next attempt; False, at once, when the budget is used up."""
        pause_s = self.next_pause_s()
        if pause_s is None:
            return False
        time.sleep(pause_s)
        return True

    def next_pause_s(self) -> float | None:
        """Return how long the caller is to pause; None when the budget is used up."""
        left_s = self.left_s
        if not left_s:
            return None
        pause_s = min(left_s, self._pause_s * (0.5 + self._rng.random() / 2))
        self._pause_s = min(2 * self._pause_s, _MAX_S)
        return pause_s
