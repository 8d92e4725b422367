"""MemtableRoom: keeps memtables below twice their share, by slowing writers and holding them.

A machine without I/O. Up to the share nothing is slowed. Behind it a checkpoint is due, and what
writers may add in a second falls from twice what checkpoints take away in a second down to nothing
at twice the share: each write says how long the next one of its session waits, one second at the
most, and a small one some milliseconds. A write for which there is no room below twice the share
has no effect and waits for a checkpoint (MemtableFullError), for WAIT_S_MAX at the most.

Threads: lets_in() and measured() under the tablespace's monitor; the rest any, and what two of them
do at the same instant may count once.
"""

from bookie.runtime.ticket import Ticket

MEMTABLES_MAX = 2
"""Times their share is the most that memtables have."""
PAUSE_S_MAX = 1.0
SMALL_BYTES = 16 * 1024
SMALL_PAUSE_S_MAX = 0.02
WAIT_S_MAX = 30.0
"""For room below twice the share; then 53200."""
_RATE_FIRST = 8 * 1024 * 1024  # bytes a second, until a checkpoint was measured
_RATE_WEIGHT = 0.5  # of the newest checkpoint
_RATE_PART_MIN = 1 / 64  # of the rate is left at twice the share
_FULL_PART = 1.25  # times what they have is as good as twice their share
_EMPTY_PART = 1 / 4  # of the share: memtables that have no more make room for anything


class MemtableFullError(Exception):
    """The write has had no effect; to be run again when `ticket` is done, or 53200 behind 30 s."""

    def __init__(self, ticket: Ticket[None]) -> None:
        super().__init__()
        self.ticket = ticket


class MemtableRoom:
    """Of the memtables of one tablespace."""

    def __init__(self, share_bytes: int) -> None:
        # Constant after __init__.
        self.share_bytes = share_bytes
        # Monitor.
        self.left = 0
        """So many bytes may come before they are measured again."""
        # Any thread.
        self.is_slow = False
        """The memtables have more than their share."""
        self.is_wanted = False
        """Someone waits for a checkpoint."""
        self.rate = float(_RATE_FIRST)
        """Bytes a second that checkpoints take away."""
        self._fill_bytes = 0
        self._next_s = 0.0  # when what was let in is paid off
        self._opening: Ticket[None] = Ticket()

    @property
    def is_full(self) -> bool:
        """They had twice their share, or nearly so, when they were measured last."""
        return self._fill_bytes * _FULL_PART >= MEMTABLES_MAX * self.share_bytes

    def measured(self, byte_count: int, others: int = 0, part: float = 1.0) -> None:
        """Take in how much memtables have, with what is on its way to them, and those of others.

        part: of the share, that these may have beside the others: at that they are as full as at
        all of it together.
        """
        bytes_max = MEMTABLES_MAX * self.share_bytes
        self._fill_bytes = max(int(byte_count / part), byte_count + others)
        self.is_slow = self._fill_bytes > self.share_bytes
        self.left = max(0, min(int(bytes_max * part), bytes_max - others) - byte_count)

    def lets_in(self, byte_count: int) -> bool:
        """Return whether a write may come now, whose caller takes its bytes off `left` then.

        False: it has to wait. What is more than all the room waits for memtables that are nearly
        empty.
        """
        return byte_count <= self.left or self._fill_bytes <= self.share_bytes * _EMPTY_PART

    def full(self) -> MemtableFullError:
        """Return what a write raises that was not let in."""
        self.is_wanted = True
        return MemtableFullError(self._opening)

    def checkpointed(self, byte_count: int, seconds: float) -> None:
        """Take in how long a checkpoint of memtables of so many bytes took."""
        if byte_count * 8 >= self.share_bytes:  # else it says little of a full one
            rate = byte_count / max(seconds, 1e-3)
            self.rate += (rate - self.rate) * _RATE_WEIGHT

    def opened(self) -> None:
        """Let those who wait try again, behind a checkpoint or its failure; repeatable."""
        self.is_wanted = False
        self._opening.complete(None)  # before it is replaced, so that all are surely told
        self._opening = Ticket()

    def until(self, byte_count: int, now_s: float) -> float:
        """Return when a session may write again that has just written so many bytes."""
        fill = self._fill_bytes / self.share_bytes
        if fill <= 1.0:
            self._next_s = 0.0
            return now_s
        rate = self.rate * max(MEMTABLES_MAX * (MEMTABLES_MAX - fill), _RATE_PART_MIN)
        begun_s = max(now_s, self._next_s)
        self._next_s = until_s = min(begun_s + byte_count / rate, now_s + PAUSE_S_MAX)
        return min(until_s, now_s + SMALL_PAUSE_S_MAX) if byte_count <= SMALL_BYTES else until_s
