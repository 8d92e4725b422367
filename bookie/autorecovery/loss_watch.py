"""LossWatch: when the ledgers of lost bookies are to be looked for.

One bookie that is lost newly is waited for, for the delay that the cluster's operators set; several
at once are not, but those of which the ledgers were looked for do not count. When the delay is
written anew the look is due at once. One that returns is not lost. Between, a look is due at
intervals. Source: Apache BookKeeper's Auditor. A machine: it takes the times of its events, seconds
that never go back.
"""

from collections.abc import Collection

from bookie.ledger.types import BookieId


class LossWatch:
    """See the module. The caller looks when due_s has come, and then calls looked()."""

    def __init__(self, interval_s: float, delay_s: float, now_s: float) -> None:
        self._interval_s = interval_s
        self._delay_s = delay_s
        self._lost: frozenset[BookieId] = frozenset()
        self._awaited: frozenset[BookieId] = frozenset()
        """Those that were new when it was last told of the bookies."""
        self._seen: frozenset[BookieId] = frozenset()
        """Those of which the ledgers were published."""
        self._waits_until_s: float | None = None
        self._next_s = now_s

    @property
    def lost(self) -> frozenset[BookieId]:
        return self._lost

    @property
    def due_s(self) -> float:
        """When to look; not later than at the end of the interval."""
        if self._waits_until_s is None:
            return self._next_s
        return min(self._next_s, self._waits_until_s)

    def on_bookies(self, lost: Collection[BookieId], now_s: float) -> None:
        """Take the bookies that are lost now."""
        self._lost = frozenset(lost)
        self._seen &= self._lost
        new = self._lost - self._seen
        if not new:
            self._waits_until_s = None
        elif len(new) > 1:
            self._waits_until_s = now_s
        elif new != self._awaited:  # another one's wait is not this one's
            self._waits_until_s = now_s + self._delay_s
        self._awaited = new

    def on_delay(self, delay_s: float, now_s: float) -> None:
        """Take the delay, written anew: an operator wants a look."""
        self._delay_s = delay_s
        self._next_s = now_s

    def looked(self, lost: Collection[BookieId], now_s: float) -> None:
        """Take note that the ledgers of these were published; all others are new."""
        self._seen = frozenset(lost)
        self._next_s = now_s + self._interval_s
        self._awaited = frozenset()
        self.on_bookies(self._lost | self._seen, now_s)
