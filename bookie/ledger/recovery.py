"""Recovery: fences a ledger, finds its last entry, re-adds what may miss its quorum, closes it.

Source: BookKeeper's LedgerRecoveryOp and ReadOnlyLedgerHandle; docs/protocols/recovery.md. A
machine without I/O and clock: every on_… takes one event and returns actions to be carried out in
order. The rules it keeps:

- G1, every read of it fences; the bookie answers only when the fence is durable (G6).
- G2, it begins no earlier than at the last segment: entries before are acknowledged.
- G4, an entry is absent after Qw - Qa + 1 explicit denials; a hung bookie is not waited for. An
  entry that is neither found nor absent fails the recovery: unknown is never absent.
- G12, the length is that of the last entry recovered, or of the last one acknowledged.
- Entries are re-added as they are, byte by byte, in order, each to Qa of the write set, while the
  next ones are being read. The LAC in them stays the writer's, so that a client that recovers after
  a crash of this one begins where this one began, and finds them again in the ensemble of the
  metadata.
- A bookie that fails while entries are re-added is replaced in memory only; the new segments are
  written with CLOSED, in one compare-and-set. Without a replacement it goes on while each entry
  can reach Qa.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from bookie.errors import (
    BookieError,
    LedgerFencedError,
    LedgerRecoveryError,
    NotEnoughBookiesError,
)
from bookie.ledger.codec import BytesLike, EntryDigest
from bookie.ledger.distribution import absent_threshold, write_set
from bookie.ledger.entry_read import EntryRead, Outcome
from bookie.ledger.lac import LacQuery
from bookie.ledger.statuses import unauthorized
from bookie.ledger.types import BookieId, EntryId, LedgerMetadata, LedgerState, Segment, Status

Ensemble = tuple[BookieId, ...]

WRITES_MAX = 1024
"""Entries re-added at once."""
GRACE_TICKS = 2
"""For bookies that are slower to answer the fence than the others; at least one whole tick."""


# --- actions --------------------------------------------------------------------------------------


class FenceBookie(NamedTuple):
    """Read the last entry (-1), fencing; answer by on_fence_reply(bookie_index, …)."""

    bookie_index: int
    bookie: BookieId


class ReadEntry(NamedTuple):
    """Read one entry, fencing unless it lies before the last segment; on_read_reply()."""

    bookie: BookieId
    entry_id: int
    is_fencing: bool


class WriteEntry(NamedTuple):
    """Add the packet again, as a recovery does; on_write_reply() for each bookie."""

    bookies: tuple[BookieId, ...]
    entry_id: int
    packet: BytesLike


class Damaged(NamedTuple):
    """Report: this replica of the entry is damaged; entry -1: the bookie's last."""

    bookie: BookieId
    entry_id: int


class Progress(NamedTuple):
    """Report: entries up to this one are on their ack quorum."""

    recovered_count: int
    last_entry_id: int


class CloseLedger(NamedTuple):
    """Write CLOSED by closed_metadata(), adopting what another recoverer wrote before."""

    last_entry_id: int
    length: int
    segments: tuple[Segment, ...]
    """Ensembles that came about in recovery, ascending."""


class RecoveryFailed(NamedTuple):
    """It stays IN_RECOVERY; the next recovery starts anew."""

    error: BookieError


Action = FenceBookie | ReadEntry | WriteEntry | Damaged | Progress | CloseLedger | RecoveryFailed


# --- metadata -------------------------------------------------------------------------------------


def opening_metadata(found: LedgerMetadata) -> LedgerMetadata | None:
    """Return what to write before recovery; None: nothing, it is IN_RECOVERY or CLOSED."""
    return found.with_state(LedgerState.IN_RECOVERY) if found.state is LedgerState.OPEN else None


def closed_metadata(found: LedgerMetadata, close: CloseLedger) -> LedgerMetadata | None:
    """Return what to write at the end; None when another client closed it before: adopt that.

    Segments of before the last one are kept as found: re-replication may have changed them.
    """
    if found.is_closed:
        return None
    for segment in close.segments:
        found = found.with_ensemble(segment.first_entry_id, segment.ensemble)
    return found.closed(EntryId(close.last_entry_id), close.length)


# --- the machine ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Write:
    """An entry on its way back to its write set."""

    entry_id: int
    length: int
    packet: BytesLike
    acked: int = 0
    """Bits of ensemble indexes."""


class Recovery:
    """See the module. `replace_bookies(failed_indexes, ensemble)` returns an ensemble or None.

    rank orders replicas: lower is asked first, equal ones in the order of the write set.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        digest: EntryDigest,
        replace_bookies: Callable[[tuple[int, ...], Ensemble], Ensemble | None],
        *,
        read_ahead: int = 16,
        bytes_max: int = 16 * 1024 * 1024,
        rank: Callable[[BookieId], int] = lambda _: 0,
    ) -> None:
        # Constant.
        self._metadata = metadata
        self._digest = digest
        self._replace_bookies = replace_bookies
        self._read_ahead = read_ahead
        self._bytes_max = bytes_max
        self._rank = rank
        self._quorums = (metadata.ensemble_size, metadata.write_quorum_size)
        # Fencing.
        self._lac_query = LacQuery(metadata, digest, is_fencing=True)
        self._patience = GRACE_TICKS
        self._has_begun = False
        """Reading; before, fencing."""
        self._suspects: dict[BookieId, None] = {}
        """Silent for long, or failing: asked last."""
        # Reading, in the ensemble that the metadata names.
        self._reads: dict[int, EntryRead] = {}
        self._next_read = 0
        self._end: int | None = None
        """The last entry, once the one after it is absent."""
        self._length_read: EntryRead | None = None
        # Writing, in the ensemble of now.
        self._ensemble: Ensemble = metadata.last_segment.ensemble
        self._given_up = 0
        """Bits of indexes that failed and have no replacement."""
        self._writes: dict[int, _Write] = {}
        self._held_byte_count = 0
        self._new_segments: dict[int, Ensemble] = {}
        # What is sure.
        self._first = 0
        self._confirmed = -1
        self._length: int | None = None
        self._is_over = False

    @property
    def suspects(self) -> tuple[BookieId, ...]:
        """The bookies that are silent, or failed, as far as it has met them."""
        return tuple(self._suspects)

    def start(self) -> list[Action]:
        bookies = self._lac_query.bookies
        return [FenceBookie(index, bookie) for index, bookie in enumerate(bookies)]

    # --- fencing

    def on_fence_reply(self, index: int, status: Status, packet: BytesLike) -> list[Action]:
        bookie = self._lac_query.bookies[index]
        self._suspects.pop(bookie, None)
        if self._is_over:
            return []
        query = self._lac_query
        damaged_count = len(query.damaged)
        is_deciding = query.on_reply(index, status, packet)
        actions: list[Action] = [Damaged(b, -1) for b in query.damaged[damaged_count:]]
        if status in (Status.TIMED_OUT, Status.UNAVAILABLE):
            self._suspects[bookie] = None
        if query.error is not None:
            return [*actions, self._fail(query.error)] if is_deciding else actions
        return actions + self._begin() if self._can_begin else actions

    @property
    def _can_begin(self) -> bool:
        """Enough have answered; the others are given a moment, for what they have is worth it.

        An entry that was never acknowledged is kept if a bookie that has it is asked before
        enough that have not; so it pays to know which bookie has what.
        """
        query = self._lac_query
        is_enough = query.is_done and (not query.silent or self._patience <= 0)
        return is_enough and not self._has_begun

    def _begin(self) -> list[Action]:
        query = self._lac_query
        self._has_begun = True
        for silent in query.silent:
            self._suspects[silent] = None
        self._confirmed = self._confirmed_at_least(query.lac)
        self._first = self._next_read = self._confirmed + 1
        if self._confirmed == -1:
            self._length = 0
        return self._advance()

    def _confirmed_at_least(self, lac: int) -> int:
        """Return the last entry that is sure: a segment begins after acknowledged ones (G2)."""
        return max(lac, self._metadata.last_segment.first_entry_id - 1)

    # --- reading

    def on_read_reply(
        self, bookie: BookieId, entry_id: int, status: Status, packet: BytesLike
    ) -> list[Action]:
        if status in (Status.TIMED_OUT, Status.UNAVAILABLE):
            self._suspects[bookie] = None
        else:
            self._suspects.pop(bookie, None)
        if self._is_over:
            return []
        read = self._reads.get(entry_id)
        if read is None and self._length_read is not None:
            read = self._length_read if self._length_read.entry_id == entry_id else None
        if read is None:
            return []
        if status is Status.UNAUTHORIZED:
            where = f"ledger {self._metadata.ledger_id}, bookie {bookie}"
            return [self._fail(unauthorized(where))]
        actions: list[Action] = []
        ledger_id = self._metadata.ledger_id
        if not read.on_reply(bookie, status, packet, self._digest, ledger_id):
            actions.append(Damaged(bookie, entry_id))
        if read.outcome is Outcome.ASK:
            actions += self._ask(read)
        elif read.outcome is Outcome.FOUND:
            self._held_byte_count += len(read.packet)
        if read is self._length_read:
            return actions + self._on_length_read(read)
        return actions + self._advance() if read.is_decided else actions

    def on_tick(self) -> list[Action]:
        """Let time pass: replicas that were silent for long are passed over (G4)."""
        if self._is_over:
            return []
        if not self._has_begun:
            self._patience -= self._lac_query.is_done
            return self._begin() if self._can_begin else []
        actions: list[Action] = []
        reads = list(self._reads.values())
        if self._length_read is not None:
            reads.append(self._length_read)
        for read in reads:
            slow = read.on_tick()
            if slow is not None:
                self._suspects[slow] = None
            if read.outcome is Outcome.ASK:
                actions += self._ask(read)
        return actions

    def _read(self, entry_id: int) -> EntryRead:
        # Of a segment that the metadata names: bookies of new ones have nothing but what we add.
        ensemble = self._metadata.segment_of(entry_id).ensemble
        replicas = [ensemble[index] for index in write_set(entry_id, *self._quorums)]
        last_entry_ids = self._lac_query.last_entry_ids

        def order(bookie: BookieId) -> tuple[bool, bool, int]:
            has_it = last_entry_ids.get(bookie, -1) >= entry_id
            return bookie in self._suspects, not has_it, self._rank(bookie)

        replicas.sort(key=order)
        needed = absent_threshold(self._metadata.write_quorum_size, self._metadata.ack_quorum_size)
        return EntryRead(entry_id, tuple(replicas), needed)

    def _ask(self, read: EntryRead) -> list[Action]:
        bookie = read.ask()
        if bookie is None:
            return []
        is_fencing = read.entry_id >= self._metadata.last_segment.first_entry_id
        return [ReadEntry(bookie, read.entry_id, is_fencing)]

    def _advance(self) -> list[Action]:
        """Take the reads that are next in order, ask for more, and end when all is written."""
        actions: list[Action] = []
        while self._end is None and len(self._writes) < WRITES_MAX:
            entry_id = self._next_read - len(self._reads)
            read = self._reads.get(entry_id)
            if read is None or not read.is_decided:
                break
            if read.outcome is Outcome.FAILED:
                return [*actions, self._fail(self._undecided(read))]
            if read.outcome is Outcome.ABSENT:
                self._end = entry_id - 1
                self._reads.clear()
                break
            del self._reads[entry_id]
            actions += self._write(read)
            if self._is_over:
                return actions
        if self._end is None:
            actions += self._read_more()
        elif self._confirmed == self._end:
            actions += self._finish()
        return actions

    def _read_more(self) -> list[Action]:
        actions: list[Action] = []
        while len(self._reads) < self._read_ahead and (
            not self._reads or self._held_byte_count < self._bytes_max
        ):
            read = self._read(self._next_read)
            self._reads[self._next_read] = read
            self._next_read += 1
            actions += self._ask(read)
        return actions

    def _undecided(self, read: EntryRead) -> BookieError:
        return LedgerRecoveryError(
            f"ledger {self._metadata.ledger_id}: entry {read.entry_id} is neither found nor surely"
            f" absent ({read.error(self._metadata.ledger_id)}); the ledger stays IN_RECOVERY, run"
            " recovery again when its bookies are back"
        )

    # --- writing

    def _write(self, read: EntryRead) -> list[Action]:
        assert read.entry is not None
        write = _Write(read.entry_id, read.entry.length, read.packet)
        self._writes[write.entry_id] = write
        bookies = tuple(
            self._ensemble[index]
            for index in write_set(write.entry_id, *self._quorums)
            if not self._given_up >> index & 1
        )
        if len(bookies) < self._metadata.ack_quorum_size:
            return [self._fail(self._too_few(write))]
        return [WriteEntry(bookies, write.entry_id, write.packet)]

    def on_write_reply(self, entry_id: int, bookie: BookieId, status: Status) -> list[Action]:
        if self._is_over or bookie not in self._ensemble:
            return []
        index = self._ensemble.index(bookie)
        if status is Status.OK:
            write = self._writes.get(entry_id)
            if write is None:
                return []
            write.acked |= 1 << index
            return self._confirm()
        ledger_id = self._metadata.ledger_id
        if status is Status.UNAUTHORIZED:
            return [self._fail(unauthorized(f"ledger {ledger_id}, bookie {bookie}"))]
        if status is Status.FENCED:
            text = (
                f"ledger {ledger_id}: {bookie} refuses entry {entry_id} of a recovery; it holds"
                " the ledger for deleted"
            )
            return [self._fail(LedgerFencedError(text))]
        return self._on_failed_bookie(index)

    def _confirm(self) -> list[Action]:
        """Count the entries that have their quorum, in order."""
        before = self._confirmed
        while (write := self._writes.get(self._confirmed + 1)) is not None:
            if write.acked.bit_count() < self._metadata.ack_quorum_size:
                break
            del self._writes[write.entry_id]
            self._held_byte_count -= len(write.packet)
            self._confirmed = write.entry_id
            self._length = write.length
        if self._confirmed == before:
            return []
        progress = Progress(self._confirmed + 1 - self._first, self._confirmed)
        return [progress, *self._advance()]

    def _on_failed_bookie(self, index: int) -> list[Action]:
        """Replace a bookie in memory, beginning after the last entry that is sure; or do without.

        Every acknowledgement of the replaced index is taken back before any entry is sent or
        counted again (G8).
        """
        if self._given_up >> index & 1:
            return []
        old = self._ensemble
        self._suspects[old[index]] = None
        new = self._replace_bookies((index,), old)
        if new is None or new[index] == old[index]:
            self._given_up |= 1 << index
            for write in self._writes.values():
                indexes = write_set(write.entry_id, *self._quorums)
                reachable = sum(
                    1 for i in indexes if write.acked >> i & 1 or not self._given_up >> i & 1
                )
                if reachable < self._metadata.ack_quorum_size:
                    return [self._fail(self._too_few(write))]
            return []
        self._ensemble = new
        self._new_segments[self._confirmed + 1] = new
        lost = [
            write
            for write in self._writes.values()
            if index in write_set(write.entry_id, *self._quorums)
        ]
        for write in lost:
            write.acked &= ~(1 << index)
        return [WriteEntry((new[index],), write.entry_id, write.packet) for write in lost]

    def _too_few(self, write: _Write) -> BookieError:
        have = sum(
            1
            for index in write_set(write.entry_id, *self._quorums)
            if not self._given_up >> index & 1
        )
        return NotEnoughBookiesError(
            f"ledger {self._metadata.ledger_id}: entry {write.entry_id} must be added again to"
            f" {self._metadata.ack_quorum_size} bookies, {have} of its write set take it and there"
            " is no other; the ledger stays IN_RECOVERY, run recovery again with more bookies"
        )

    # --- the end

    def _finish(self) -> list[Action]:
        if self._length is None:
            # No packet of the last acknowledged entry was seen: it lies on other bookies than
            # the last ones that were asked, or before the last segment.
            self._length_read = self._read(self._confirmed)
            return self._ask(self._length_read)
        return self._close(self._length)

    def _on_length_read(self, read: EntryRead) -> list[Action]:
        if not read.is_decided:
            return []
        if read.entry is not None:
            return self._close(read.entry.length)
        if read.outcome is Outcome.FAILED:
            return [self._fail(self._undecided(read))]  # some replica may tell, later
        # The end of the ledger is known all the same. What is known of its length is a bound.
        entry = self._lac_query.last_entry
        return self._close(entry.length if entry is not None else 0)

    def _close(self, length: int) -> list[Action]:
        self._length_read = None
        self._is_over = True
        segments = tuple(
            Segment(EntryId(first), ensemble)
            for first, ensemble in self._new_segments.items()
            if first <= self._confirmed
        )
        return [CloseLedger(self._confirmed, length, segments)]

    def _fail(self, error: BookieError) -> RecoveryFailed:
        self._is_over = True
        self._reads.clear()
        self._length_read = None
        return RecoveryFailed(error)
