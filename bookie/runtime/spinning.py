"""Spinning: whether a wait that may be short is worth a busy loop before it.

A processor that sleeps takes 60 to 100 microseconds to wake on many virtual machines, more than a
small statement takes itself. A wait for a peer that answers fast looks again and again for a
bounded time, lets others have the processor in between, and sleeps only then. What does not pay is
tried again ever more rarely, so that it costs less than a microsecond a wait. No I/O, no clock. One
thread.
Source: docs/adr/0031-spinning-before-sleeping.md.
"""

_CREDIT_MAX = 8
_PRICE = 4
_PAUSE_MIN = 16
PAUSE_MAX = 256
"""At least one wait in so many is tried."""


class Spinning:
    """See the module. Most waits have to end in time, four of five, or there is a pause."""

    __slots__ = ("_credit", "_left", "_pause")

    def __init__(self) -> None:
        self._credit = _PRICE
        self._pause = _PAUSE_MIN  # the next one, in waits
        self._left = 0  # of this one

    def begin(self) -> bool:
        """Return whether to spin before this wait; it has paid unless fail() follows."""
        if self._left:
            self._left -= 1
            return False
        if self._credit < _CREDIT_MAX:
            self._credit += 1
            if self._credit == _CREDIT_MAX:
                self._pause = _PAUSE_MIN
        return True

    def fail(self) -> None:
        """Say of the last begin() that what was waited for did not come in time."""
        self._credit -= _PRICE + 1  # with what begin() gave
        if self._credit <= 0:
            self._credit = 1
            self._left = self._pause
            self._pause = min(2 * self._pause, PAUSE_MAX)
