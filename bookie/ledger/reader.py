"""Reads a range of entries: many at once, delivered in order, within a bound of memory.

Source: docs/protocols/reading.md. Replicas are asked in the order of the write set, so that
neighbouring entries go to different bookies (striping), sorted by a rank that puts available
bookies before read-only, slow and lost ones. The window opens as entries arrive: a short read asks
little. Damaged replicas are reported and passed over. A machine without I/O and clock.
"""

from collections.abc import Callable
from typing import NamedTuple

from bookie.errors import BookieError
from bookie.ledger.codec import BytesLike, Entry, EntryDigest
from bookie.ledger.distribution import write_set
from bookie.ledger.entry_read import EntryRead, Outcome
from bookie.ledger.types import BookieId, LedgerMetadata, Status

WINDOW_FIRST = 8
"""Entries asked for at the beginning; doubles with every window that was delivered."""


class AskEntry(NamedTuple):
    """Read one entry; answer by on_reply()."""

    bookie: BookieId
    entry_id: int


class DeliverEntry(NamedTuple):
    """The next entry in order; taken() once the caller has it."""

    entry: Entry


class ReportDamage(NamedTuple):
    """This replica of the entry is damaged."""

    bookie: BookieId
    entry_id: int


class ReportSlow(NamedTuple):
    """This bookie was silent for so long that another was asked, too."""

    bookie: BookieId


class ReadEnded(NamedTuple):
    """All was delivered; or what went wrong with the first entry that could not be."""

    error: BookieError | None


Action = AskEntry | DeliverEntry | ReportDamage | ReportSlow | ReadEnded


class RangeRead:
    """Entries first to last, both included. One entry is always asked for, whatever the bounds."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        digest: EntryDigest,
        first: int,
        last: int,
        *,
        entries_max: int = 64,
        bytes_max: int = 16 * 1024 * 1024,
        rank: Callable[[BookieId], int] | None = None,
        is_asking_all: bool = False,
    ) -> None:
        # Constant.
        self._metadata = metadata
        self._digest = digest
        self._last = last
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._rank = rank
        self._is_asking_all = is_asking_all
        # State.
        self._orders: dict[int, tuple[BookieId, ...]] = {}
        """By place in the ensemble, of one segment: entries _orders_first to _orders_end - 1."""
        self._orders_first = self._orders_end = 0
        self._reads: dict[int, EntryRead] = {}
        self._next_asked = first
        self._next_delivered = first
        self._taken_count = 0
        self._window = min(WINDOW_FIRST, entries_max)
        self._held_count = 0
        """Asked for or delivered, and not taken."""
        self._held_byte_count = 0
        """Arrived and not taken."""
        self._entry_byte_count = 0
        """Of the largest that arrived lately: what one that is asked for may bring."""
        self.max_lac = -1
        """The greatest LAC that a bookie told along with an entry."""
        self._is_over = False

    def start(self) -> list[Action]:
        if self._next_asked > self._last:
            self._is_over = True
            return [ReadEnded(None)]
        return self._ask_more()

    def _ask_more(self) -> list[Action]:
        actions: list[Action] = []
        while self._next_asked <= self._last and self._held_count < self._window:
            expected = self._entry_byte_count * (len(self._reads) + 1)
            if self._held_count and self._held_byte_count + expected > self._bytes_max:
                break
            entry_id = self._next_asked
            # Absent to a reader only when every replica denies it.
            read = EntryRead(entry_id, self._replicas(entry_id), self._metadata.write_quorum_size)
            self._reads[entry_id] = read
            self._next_asked += 1
            self._held_count += 1
            self._ask(read, actions)
            while self._is_asking_all and self._ask(read, actions):
                pass
        return actions

    def _replicas(self, entry_id: int) -> tuple[BookieId, ...]:
        """Return the bookies to ask for it, in order; sorted anew now and then."""
        metadata = self._metadata
        if not self._orders_first <= entry_id < self._orders_end:
            self._orders = {}
            firsts = [segment.first_entry_id for segment in metadata.segments]
            self._orders_first = metadata.segment_of(entry_id).first_entry_id
            self._orders_end = min((f for f in firsts if f > entry_id), default=1 << 63)
        place = entry_id % metadata.ensemble_size
        order = self._orders.get(place)
        if order is None:
            ensemble = metadata.segment_of(entry_id).ensemble
            indexes = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)
            replicas = [ensemble[index] for index in indexes]
            if self._rank is not None:
                replicas.sort(key=self._rank)
            order = self._orders[place] = tuple(replicas)
        return order

    def _ask(self, read: EntryRead, actions: list[Action]) -> bool:
        bookie = read.ask()
        if bookie is not None:
            actions.append(AskEntry(bookie, read.entry_id))
        return bookie is not None

    def on_reply(
        self,
        bookie: BookieId,
        entry_id: int,
        status: Status,
        packet: BytesLike,
        max_lac: int | None = None,
    ) -> list[Action]:
        read = self._reads.get(entry_id)
        if max_lac is not None and max_lac > self.max_lac:
            self.max_lac = max_lac
        if self._is_over or read is None or read.is_decided:
            return []
        actions: list[Action] = []
        if not read.on_reply(bookie, status, packet, self._digest, self._metadata.ledger_id):
            actions.append(ReportDamage(bookie, entry_id))
        if read.outcome is Outcome.ASK:
            self._ask(read, actions)
        elif read.is_decided:
            if read.entry is not None:
                self._held_byte_count += len(read.entry.payload)
                self._entry_byte_count = max(
                    len(read.entry.payload), self._entry_byte_count * 7 // 8
                )
            self._deliver(actions)
        return actions

    def _deliver(self, actions: list[Action]) -> None:
        while (read := self._reads.get(self._next_delivered)) is not None and read.is_decided:
            if read.entry is None:
                self._end(actions, read.error(self._metadata.ledger_id))
                return
            del self._reads[self._next_delivered]
            self._next_delivered += 1
            actions.append(DeliverEntry(read.entry))
        if self._next_delivered > self._last:
            self._end(actions, None)

    def _end(self, actions: list[Action], error: BookieError | None) -> None:
        self._is_over = True
        self._reads.clear()
        actions.append(ReadEnded(error))

    def taken(self, entry: Entry) -> list[Action]:
        """Go on: the caller took an entry that was delivered."""
        self._held_count -= 1
        self._held_byte_count -= len(entry.payload)
        self._taken_count += 1
        if self._taken_count >= self._window and self._window < self._entries_max:
            self._window = min(self._window * 2, self._entries_max)
            self._taken_count = 0
        return [] if self._is_over else self._ask_more()

    def on_tick(self) -> list[Action]:
        """Let time pass: the next replica is asked where one was silent (speculative)."""
        actions: list[Action] = []
        self._orders = {}
        for read in list(self._reads.values()):
            slow = read.on_tick()
            if slow is not None and ReportSlow(slow) not in actions:
                actions.append(ReportSlow(slow))
            if read.outcome is Outcome.ASK:
                self._ask(read, actions)
        return actions
