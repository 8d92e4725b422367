"""FanOut: one question to several bookies, decided once enough of them said yes or no.

Used for FORCE_LEDGER (all of the ensemble must agree) and WRITE_LAC (an ack quorum).
"""

from typing import Any

from bookie.ledger.types import BookieId, Status


class FanOut:
    """Counts the replies; the first decision stands. Each bookie answers once."""

    __slots__ = ("_bookies", "_needed", "_no_count", "_yes_count", "context", "entry_id", "length")

    def __init__(
        self,
        bookies: tuple[BookieId, ...],
        needed: int,
        context: Any,
        entry_id: int = -1,
        length: int = 0,
    ) -> None:
        self._bookies = bookies
        self._needed = needed
        self._yes_count = 0
        self._no_count = 0
        self.context = context
        self.entry_id = entry_id
        """The last entry acknowledged when the question was put."""
        self.length = length
        """The length up to there."""

    def on_reply(self, status: Status) -> bool | None:
        """Count one reply; True or False when it decides, None otherwise."""
        if status is Status.OK:
            self._yes_count += 1
            return True if self._yes_count == self._needed else None
        self._no_count += 1
        spare = len(self._bookies) - self._needed
        return False if self._no_count == spare + 1 else None
