"""One long poll for the next entry of a ledger that is being written.

Source: BookKeeper's ReadLastConfirmedAndEntryOp; docs/protocols/reading.md. The bookies of the last
ensemble are asked one after another (the next when one fails, or is silent beyond its time), or all
at once. The first that brings the entry, or a LAC at or beyond it, ends the poll; E - Qa + 1 that
have nothing end it without news, since an acknowledged entry is known to one of any such number.
Entries on bookies that answered with a damaged packet are reported and not delivered. A machine
without I/O and clock.
"""

from typing import NamedTuple

from bookie.errors import BookieError, DigestMismatchError
from bookie.ledger.codec import BytesLike, Entry, EntryDigest
from bookie.ledger.distribution import no_news_threshold
from bookie.ledger.entry_read import SPECULATION_TICKS
from bookie.ledger.reader import ReportDamage
from bookie.ledger.statuses import NEGATIVES, read_error
from bookie.ledger.types import BookieId, LedgerMetadata, Status


class Poll(NamedTuple):
    """Ask by a piggyback long poll for news after previous_lac; answer by on_reply()."""

    bookie_index: int
    bookie: BookieId
    previous_lac: int


class PollEnded(NamedTuple):
    """The outcome: the entry, or a LAC at or beyond it, or neither (no news), or the error."""

    lac: int
    """The greatest that any bookie told; -1 when none did."""
    entry: Entry | None
    error: BookieError | None


Action = Poll | PollEnded | ReportDamage


class TailPoll:
    """A poll for entry_id. The order begins where the entry after it does."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        digest: EntryDigest,
        entry_id: int,
        *,
        is_parallel: bool = False,
    ) -> None:
        self._metadata = metadata
        self._digest = digest
        self._entry_id = entry_id
        ensemble = metadata.last_segment.ensemble
        # The LAC reaches the bookies of entry_id with the entry after it.
        first = (entry_id + 1) % len(ensemble)
        self._order = [(first + i) % len(ensemble) for i in range(len(ensemble))]
        self._ensemble = ensemble
        self._asked_count = 0
        self._answered_count = 0
        self._empty_count = 0
        self._no_news_needed = no_news_threshold(len(ensemble), metadata.ack_quorum_size)
        self._is_parallel = is_parallel
        self._age = 0
        self._lac = -1
        self._error: BookieError | None = None
        self.is_over = False

    def start(self) -> list[Action]:
        count = len(self._order) if self._is_parallel else 1
        return [action for _ in range(count) for action in self._ask()]

    def _ask(self) -> list[Action]:
        if self._asked_count == len(self._order):
            return []
        index = self._order[self._asked_count]
        self._asked_count += 1
        self._age = 0
        return [Poll(index, self._ensemble[index], self._entry_id - 1)]

    def on_reply(
        self,
        bookie_index: int,
        status: Status,
        entry_id: int,
        packet: BytesLike,
        max_lac: int | None,
    ) -> list[Action]:
        if self.is_over:
            return []
        self._answered_count += 1
        actions: list[Action] = []
        if max_lac is not None and status is Status.OK:
            self._lac = max(self._lac, max_lac)
        if status is Status.OK and packet and entry_id == self._entry_id:
            try:
                entry = self._digest.open(packet, self._metadata.ledger_id, entry_id)
                self._lac = max(self._lac, entry.lac)
                # The bookie sends an entry only when its LAC has reached it.
                if self._lac >= entry_id:
                    return self._end(entry, None)
            except DigestMismatchError as error:
                bookie = self._ensemble[bookie_index]
                actions.append(ReportDamage(bookie, entry_id))
                self._error = error
        if self._lac >= self._entry_id:
            return actions + self._end(None, None)
        if status is Status.OK or status in NEGATIVES:
            self._empty_count += 1
            if self._empty_count >= self._no_news_needed:
                return actions + self._end(None, None)
        else:
            text = (
                f"ledger {self._metadata.ledger_id}: {self._ensemble[bookie_index]} was asked for"
                f" news after entry {self._entry_id - 1}: {status.name}"
            )
            self._error = read_error(status, text)
        actions += self._ask()
        if self._answered_count == self._asked_count == len(self._order):
            actions += self._end(None, self._error)
        return actions

    def on_tick(self) -> list[Action]:
        """Let time pass: the next bookie is asked where one is silent beyond its waiting time."""
        if self.is_over:
            return []
        self._age += 1
        return self._ask() if self._age >= SPECULATION_TICKS else []

    def _end(self, entry: Entry | None, error: BookieError | None) -> list[Action]:
        self.is_over = True
        return [PollEnded(self._lac, entry, error)]
