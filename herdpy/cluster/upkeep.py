"""Upkeep: what a leader does with the ledger that it writes, beside writing it. No I/O.

A ledger is rolled when it is old, when it lies on fewer bookies than there are, and when bookies of
it have failed for a while: else an open ledger would name a bookie that is lost for longer than
auto-recovery waits (CLUSTER: writing and rolling). A leader that has none, since too few bookies
answer it, tries to begin one; when that has failed for long it gives the part away: another node
may reach bookies that it does not. One thread or loop.
"""

from typing import NamedTuple

from herdpy.errors import Error


class Limits(NamedTuple):
    """Seconds."""

    look_s: float = 1.0
    """Between two looks."""
    age_s: float = 3600.0
    """Of a ledger with records in it."""
    missing_s: float = 10.0
    """For a bookie of the ledger to answer again."""
    without_s: float = 10.0
    """Without a ledger, until the part is given away."""


class Ledger(NamedTuple):
    """The ledger that is written, as it is now."""

    ledger_id: int
    byte_count: int
    """Of its records."""
    is_narrow: bool
    """It lies on fewer bookies than wanted, and than there are."""
    is_missing: bool
    """A bookie of it does not answer."""


class Upkeep:
    """See the module. now_s: of one and the same clock."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._ledger_id: int | None = None
        self._since_s = 0.0
        """When that ledger was seen first."""
        self._whole_s = 0.0
        """When all bookies of it answered last."""
        self._failing_s: float | None = None
        """Since when no ledger can be begun."""

    def is_due(self, ledger: Ledger | None, now_s: float) -> bool:
        """Return whether the next ledger is to be begun now; failed() tells that it cannot be."""
        if ledger is None:
            return True
        self._failing_s = None
        if ledger.ledger_id != self._ledger_id:
            self._ledger_id, self._since_s, self._whole_s = ledger.ledger_id, now_s, now_s
        if not ledger.is_missing:
            self._whole_s = now_s
        is_old = ledger.byte_count > 0 and now_s - self._since_s >= self._limits.age_s
        is_worn = now_s - self._whole_s >= self._limits.missing_s
        return is_old or is_worn or ledger.is_narrow

    def failed(self, error: Error, now_s: float) -> Error | None:
        """Take in that no ledger could be begun; an error: the part is to be given away for it."""
        self._ledger_id = None
        if self._failing_s is None:
            self._failing_s = now_s
        return error if now_s - self._failing_s >= self._limits.without_s else None
