"""ExplicitLac: when the LAC has to be written by itself because no entry will carry it.

An entry carries the LAC of the moment when it was sealed, so readers learn of the last entry only
with the next one. When the LAC has moved, nothing is pending and the last packet carries an older
LAC, a timer is started; if that is still so when it fires, the LAC is written. Where that fails
the timer is started again, until an entry carries the LAC. Source: BookKeeper's explicit LAC, which
its writer flushes at an interval.
"""

from bookie.ledger.types import INVALID_ENTRY_ID


class ExplicitLac:
    """One handle's bookkeeping; entry ids in, decisions out."""

    __slots__ = ("_carried", "_is_armed", "is_enabled")

    def __init__(self, *, is_enabled: bool) -> None:
        self.is_enabled = is_enabled
        self._carried: int = INVALID_ENTRY_ID
        self._is_armed = False

    def carried(self, lac: int) -> None:
        """Take note that a packet with this LAC is on its way, or that it was written."""
        self._carried = max(self._carried, lac)

    def should_arm(self, lac: int, *, is_idle: bool) -> bool:
        """Say whether to start the timer now; it then counts as running."""
        if self._is_armed or not self.is_enabled or not is_idle or lac <= self._carried:
            return False
        self._is_armed = True
        return True

    def on_timer(self, lac: int, *, is_idle: bool) -> bool:
        """Say whether to write the LAC now. If entries are pending they carry it, or arm again."""
        self._is_armed = False
        return is_idle and lac > self._carried
