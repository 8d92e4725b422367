"""Short waits: whether a thread does at once what may be short, or lets another have the processor.

Spinning: a processor that sleeps takes 60 to 100 µs to wake on many virtual machines, more
than a small statement takes itself. A wait for a peer that answers fast looks again and again for a
bounded time, lets others have the processor in between, and sleeps only then. What does not pay is
tried again ever more rarely, so that it costs less than a microsecond a wait.

SyncSpeed: a loop that hands a sync to a thread changes threads twice, which costs more than a fast
sync itself; a loop that does it stands still meanwhile.

No I/O, no clock. One thread.
Source: docs/adr/0031-spinning-before-sleeping.md, docs/adr/0044-the-loop-syncs.md.
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


PAUSE_S = 10.0
"""For so long the syncs of a slow disk are done in their thread."""
MEAN_OF = 16
"""The newest sync has this share of what tells how fast the disk is, so one slow sync is none."""


class SyncSpeed:
    """See the module."""

    __slots__ = ("_sync_s_max", "mean_s", "slow_until_s")

    def __init__(self, sync_s_max: float) -> None:
        """sync_s_max: what syncs may take on the average; 0: no sync is fast."""
        self._sync_s_max = sync_s_max
        self.mean_s = 0.0
        """What one takes, in seconds."""
        self.slow_until_s = float("-inf") if sync_s_max else float("inf")
        """From this second of the caller's clock on the loop may do the next one.

        PAUSE_S behind the last sync by which the mean was too long.
        """

    def note(self, took_s: float, now_s: float) -> None:
        """Count a sync that has ended now, in whichever thread it was."""
        self.mean_s += (took_s - self.mean_s) / MEAN_OF
        if self.mean_s > self._sync_s_max:
            self.slow_until_s = max(self.slow_until_s, now_s + PAUSE_S)
