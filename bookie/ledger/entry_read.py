"""One entry, asked of its replicas one after another until one has it or enough deny it.

Source: BookKeeper's PendingReadOp; docs/protocols/reading.md. The next replica is asked when one
fails, denies the entry, gives a damaged packet, or is silent for some ticks (speculative); the
first intact packet wins, and a bookie that was asked before may still win. A machine without clock:
the runner's ticks tell it that time passes.
"""

from enum import Enum

from bookie.errors import BookieError, DigestMismatchError
from bookie.ledger.codec import BytesLike, Entry, EntryDigest
from bookie.ledger.statuses import NEGATIVES, read_error
from bookie.ledger.types import BookieId, Status

SPECULATION_TICKS = 20
"""Ticks of silence before the next replica is asked, too; the runner ticks accordingly."""


class Outcome(Enum):
    """Where a read stands."""

    WAITING = "waiting"
    """For a replica that was asked."""
    ASK = "ask"
    """Ask the next replica."""
    FOUND = "found"
    ABSENT = "absent"
    """As many replicas as were needed said that they have not got it."""
    FAILED = "failed"
    """All were asked and none decided it: unknown, which is not absent."""


class EntryRead:
    """See the module. `negatives_needed` explicit denials mean ABSENT (G4)."""

    __slots__ = (
        "_age",
        "_answered",
        "_asked_count",
        "_damage",
        "_last_status",
        "_negative_count",
        "_negatives_needed",
        "_no_ledger_count",
        "_replicas",
        "entry",
        "entry_id",
        "is_decided",
        "outcome",
        "packet",
    )

    def __init__(
        self, entry_id: int, replicas: tuple[BookieId, ...], negatives_needed: int
    ) -> None:
        self.entry_id = entry_id
        self.outcome = Outcome.ASK
        self.is_decided = False
        """FOUND, ABSENT or FAILED."""
        self.entry: Entry | None = None
        self.packet: BytesLike = b""
        self._replicas = replicas
        self._negatives_needed = negatives_needed
        self._asked_count = 0
        self._answered: list[BookieId] = []
        self._negative_count = 0
        self._no_ledger_count = 0
        self._damage: DigestMismatchError | None = None
        self._last_status = Status.UNAVAILABLE
        """Of what was neither a packet nor a denial."""
        self._age = 0

    def ask(self) -> BookieId | None:
        """Return the next replica, which counts as asked from now on; None when all were."""
        if self._asked_count == len(self._replicas):
            return None
        bookie = self._replicas[self._asked_count]
        self._asked_count += 1
        self._age = 0
        self.outcome = Outcome.WAITING
        return bookie

    def on_tick(self) -> BookieId | None:
        """Let time pass; returns the bookie that is too slow when the next replica is due."""
        if self.is_decided:
            return None
        self._age += 1
        if self._age < SPECULATION_TICKS:
            return None
        slow = self._replicas[self._asked_count - 1]
        if self._asked_count < len(self._replicas):
            self.outcome = Outcome.ASK
        return None if slow in self._answered else slow

    def on_reply(
        self,
        bookie: BookieId,
        status: Status,
        packet: BytesLike,
        digest: EntryDigest,
        ledger_id: int,
    ) -> bool:
        """Take an answer and set the outcome; False when the packet was damaged."""
        if self.is_decided:
            return True
        self._answered.append(bookie)
        is_intact = True
        if status is Status.OK:
            try:
                self.entry = digest.open(packet, ledger_id, self.entry_id)
                self.packet = packet
                self._decide(Outcome.FOUND)
                return True
            except DigestMismatchError as error:
                self._damage = error
                is_intact = False
        elif status in NEGATIVES:
            self._negative_count += 1
            self._no_ledger_count += status is Status.NO_LEDGER
            if self._negative_count >= self._negatives_needed:
                self._decide(Outcome.ABSENT)
                return True
        else:
            self._last_status = status
        if self._asked_count < len(self._replicas):
            self.outcome = Outcome.ASK
        elif len(self._answered) == self._asked_count:
            self._decide(Outcome.FAILED)
        return is_intact

    def _decide(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.is_decided = True

    def error(self, ledger_id: int) -> BookieError:
        """Return the error of a read that is ABSENT or FAILED."""
        text = f"entry {self.entry_id} of ledger {ledger_id}"
        asked = ", ".join(self._replicas)
        if self.outcome is Outcome.ABSENT:
            if self._no_ledger_count == self._negative_count:
                return read_error(Status.NO_LEDGER, f"{text}: no such ledger on {asked}")
            return read_error(Status.NO_ENTRY, f"{text}: no such entry on {asked}")
        if self._damage is not None:
            return DigestMismatchError(f"{text}: no intact replica on {asked}; {self._damage}")
        return read_error(
            self._last_status, f"{text}: {self._last_status.name} from the last of {asked}"
        )
