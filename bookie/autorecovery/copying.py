"""Copies settled entries of a ledger to one bookie: read anywhere, verify, add as a recovery does.

A machine without I/O and clock: every on_… takes one event and returns actions. At most
`window` entries and `bytes_max` bytes, or one entry, are under way; `throttle` says how many bytes
may be copied by now, where an entry is paid for when it is asked for, by the mean of those before.
The packets are added as they are, byte by byte, past the fence (G15). An entry that every replica
denies is lost (G23); one that cannot be asked for everywhere is unknown, which is not lost. The
first failure ends the copy: what was copied stays, and does no harm.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from bookie.errors import BookieError, NoSuchEntryError
from bookie.ledger.codec import BytesLike, EntryDigest
from bookie.ledger.distribution import write_set
from bookie.ledger.entry_read import EntryRead, Outcome
from bookie.ledger.statuses import read_error
from bookie.ledger.types import BookieId, LedgerMetadata, Status


class ReadEntry(NamedTuple):
    """Read one entry; answer by on_read()."""

    bookie: BookieId
    entry_id: int


class WriteEntry(NamedTuple):
    """Add the packet to the target as a recovery does; answer by on_write()."""

    entry_id: int
    packet: BytesLike


class Damaged(NamedTuple):
    """Report: this replica of the entry is damaged."""

    bookie: BookieId
    entry_id: int


class CopyEnded(NamedTuple):
    """All entries are on the target; or why not."""

    error: BookieError | None
    is_loss: bool = False
    """Every replica denies an entry."""


Action = ReadEntry | WriteEntry | Damaged | CopyEnded


_KEPT_S = 0.1
"""For so long an unused budget is kept: what is kept is spent at once."""


class Throttle:
    """A budget of bytes that grows with time; shared by the copies of one worker.

    bytes_per_s None: no bound. Time is the caller's, in seconds that never go back.
    """

    def __init__(self, bytes_per_s: int | None, now_s: float = 0.0) -> None:
        self._bytes_per_s = bytes_per_s
        self._free = 0.0
        self._now_s = now_s

    @property
    def is_bounded(self) -> bool:
        return self._bytes_per_s is not None

    def spend(self, byte_count: int) -> None:
        """Pay for bytes; what was paid too much comes back as a negative count."""
        if self._bytes_per_s is not None:
            self._free -= byte_count

    def is_open(self, now_s: float) -> bool:
        """Tell whether more may be read now."""
        if self._bytes_per_s is None:
            return True
        self._free += (now_s - self._now_s) * self._bytes_per_s
        self._free = min(self._free, self._bytes_per_s * _KEPT_S)
        self._now_s = now_s
        return self._free >= 0


class Copy:
    """See the module. `entry_ids` ascend; rank orders replicas, lower is asked first.

    The target may be a member that lacks some of them: it is not asked for them.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        digest: EntryDigest,
        entry_ids: Iterator[int],
        target: BookieId,
        *,
        window: int = 100,
        bytes_max: int = 16 * 1024 * 1024,
        throttle: Throttle,
        rank: Callable[[BookieId], int] = lambda _: 0,
    ) -> None:
        # Constant.
        self._metadata = metadata
        self._digest = digest
        self._target = target
        self._window = window
        self._bytes_max = bytes_max
        self._rank = rank
        # State.
        self._throttle = throttle
        self._entry_ids = entry_ids
        self._is_asked_all = False
        self._reads: dict[int, EntryRead] = {}
        self._paid: dict[int, int] = {}
        """Bytes by entry that is being read."""
        self._writes: dict[int, int] = {}
        """Bytes of the packet by entry."""
        self._seen_count = metadata.last_entry_id + 1
        self._seen_bytes = metadata.length
        """Of entries whose size is known; their mean is that of one that is being read."""
        self._is_over = False
        self.entry_count = 0
        self.byte_count = 0
        """Of what the target has acknowledged."""

    def start(self, now_s: float) -> list[Action]:
        return self._advance(now_s)

    def on_read(
        self, bookie: BookieId, entry_id: int, status: Status, packet: BytesLike, now_s: float
    ) -> list[Action]:
        read = self._reads.get(entry_id)
        if self._is_over or read is None:
            return []
        actions: list[Action] = []
        if not read.on_reply(bookie, status, packet, self._digest, self._metadata.ledger_id):
            actions.append(Damaged(bookie, entry_id))
        if read.outcome is Outcome.ASK:
            self._ask(read, actions)
        elif read.is_decided:
            del self._reads[entry_id]
            if read.entry is None:
                return [*actions, self._unread(read)]
            self._writes[entry_id] = len(read.packet)
            self._seen_count += 1
            self._seen_bytes += len(read.packet)
            self._throttle.spend(len(read.packet) - self._paid.pop(entry_id))
            actions.append(WriteEntry(entry_id, read.packet))
        return actions + self._advance(now_s)

    def on_write(self, entry_id: int, status: Status, now_s: float) -> list[Action]:
        if self._is_over or entry_id not in self._writes:
            return []
        byte_count = self._writes.pop(entry_id)
        if status is not Status.OK:
            where = f"ledger {self._metadata.ledger_id}, entry {entry_id}"
            text = f"{where}: {self._target} does not take the copy ({status.name})"
            return [self._end(read_error(status, text))]
        self.entry_count += 1
        self.byte_count += byte_count
        return self._advance(now_s)

    def on_tick(self, now_s: float) -> list[Action]:
        """Let time pass and return what is to be done now.

        The next replica is asked where one is silent, and the budget grows.
        """
        if self._is_over:
            return []
        actions: list[Action] = []
        for read in list(self._reads.values()):
            read.on_tick()
            if read.outcome is Outcome.ASK:
                self._ask(read, actions)
        return actions + self._advance(now_s)

    def on_budget(self, now_s: float) -> list[Action]:
        """Return what may be read since more time has passed."""
        return [] if self._is_over else self._advance(now_s)

    def _advance(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        while not self._is_asked_all and self._has_space and self._throttle.is_open(now_s):
            entry_id = next(self._entry_ids, None)
            if entry_id is None:
                self._is_asked_all = True
                break
            replicas = self._replicas(entry_id)
            if not replicas:
                return [*actions, self._alone(entry_id)]
            # Absent when every other replica denies it.
            read = EntryRead(entry_id, replicas, len(replicas))
            self._reads[entry_id] = read
            self._paid[entry_id] = self._mean_bytes
            self._throttle.spend(self._mean_bytes)
            self._ask(read, actions)
        if self._is_asked_all and not self._reads and not self._writes:
            actions.append(self._end(None))
        return actions

    @property
    def _has_space(self) -> bool:
        under_way = len(self._reads) + len(self._writes)
        reading = len(self._reads) * self._mean_bytes
        is_small = reading + sum(self._writes.values()) < self._bytes_max
        return not under_way or (under_way < self._window and is_small)

    @property
    def _mean_bytes(self) -> int:
        return self._seen_bytes // max(1, self._seen_count)

    def _replicas(self, entry_id: int) -> tuple[BookieId, ...]:
        metadata = self._metadata
        ensemble = metadata.segment_of(entry_id).ensemble
        indexes = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)
        replicas = [ensemble[i] for i in indexes if ensemble[i] != self._target]
        return tuple(sorted(replicas, key=self._rank))

    def _ask(self, read: EntryRead, actions: list[Action]) -> None:
        bookie = read.ask()
        if bookie is not None:
            actions.append(ReadEntry(bookie, read.entry_id))

    def _alone(self, entry_id: int) -> CopyEnded:
        """End: the target is the one bookie that should have the entry, and lacks it."""
        text = (
            f"ledger {self._metadata.ledger_id}: entry {entry_id} is lost: {self._target}, the "
            "one bookie of its write set, has not got it"
        )
        return self._end(NoSuchEntryError(text), is_loss=True)

    def _unread(self, read: EntryRead) -> CopyEnded:
        is_loss = read.outcome is Outcome.ABSENT
        error = read.error(self._metadata.ledger_id)
        if is_loss:
            text = f"{error}: no bookie of its write set has it, it is lost"
            error = NoSuchEntryError(text)
        return self._end(error, is_loss=is_loss)

    def _end(self, error: BookieError | None, *, is_loss: bool = False) -> CopyEnded:
        self._is_over = True
        self._reads.clear()
        self._writes.clear()
        return CopyEnded(error, is_loss)
