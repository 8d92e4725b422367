"""What must be true of a ledger's life, told by what the world saw; each checker has a name.

durability  no acknowledged entry is lost or changed
agreement   every client that recovers or closes the ledger finds the same last entry and length
fence       nothing beyond the closed end is acknowledged after a recovery has ended
lac         the LAC that a handle knows never goes back, nor beyond what an ack quorum holds
quorum      what is acknowledged was taken by an ack quorum of the bookies that metadata names
reading     readers and tailers see what was written, in order, without gaps
metadata    segments ascend from 0, are of the right size; CLOSED never changes, nor does a segment
            below the last
liveness    every call ends; when the faults have ended, recovery and writing succeed in time
errors      nothing fails in a way that was not foreseen
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from bookie.ledger import metadata_codec
from bookie.ledger.distribution import write_set
from bookie.ledger.types import LedgerId, LedgerMetadata, LedgerState

CHECKERS = (
    "durability",
    "agreement",
    "fence",
    "lac",
    "quorum",
    "reading",
    "metadata",
    "liveness",
    "errors",
)


class CheckError(Exception):
    """A checker found something."""

    def __init__(self, checker: str, message: str) -> None:
        assert checker in CHECKERS
        super().__init__(f"[{checker}] {message}")
        self.checker = checker


class History:
    """What happened to one ledger, and what follows from it.

    The n-th payload that the writer submits is entry n: the payload names its number.
    """

    def __init__(
        self,
        say: Callable[[str], object],
        now_s: Callable[[], float],
        happen: Callable[[str], object],
    ) -> None:
        self._say = say
        self._now_s = now_s
        self.happen = happen
        """Counts something that is worth a line in the table."""
        self.ledger_id: int | None = None
        self.metadata: LedgerMetadata | None = None
        """The truth in the metadata store."""
        self.payloads: list[bytes] = []
        self.acknowledged: dict[int, float] = {}
        self.end: tuple[int, int] | None = None
        """Last entry id and length, as the first client that knew it said."""
        self.is_deferred = False
        self._takers: dict[int, dict[str, None]] = {}
        self._held_up_to = -1
        self._lacs: dict[str, int] = {}

    # What the world saw.

    def submitted(self, payload: bytes) -> int:
        """Take note of the next payload; return the entry id that it must get."""
        self.payloads.append(payload)
        return len(self.payloads) - 1

    def taken(self, bookie: str, ledger_id: int, entry_id: int) -> None:
        """A bookie answered an add with OK."""
        assert ledger_id == self.ledger_id
        self._takers.setdefault(entry_id, {})[bookie] = None

    def acked(self, expected_id: int, entry_id: int) -> None:
        """The writer's application was told that its entry is safe."""
        if entry_id != expected_id:
            raise CheckError("reading", f"payload {expected_id} was acknowledged as {entry_id}")
        self.acknowledged[entry_id] = self._now_s()
        if self.end is not None and entry_id > self.end[0]:
            raise CheckError(
                "fence",
                f"entry {entry_id} acknowledged after the ledger was closed at {self.end[0]}",
            )
        if not self._is_held(entry_id):
            raise CheckError("quorum", self._missing(entry_id))

    def closed(self, client: str, last_entry_id: int, length: int) -> None:
        """A client's recovery, close or open found this end."""
        self._say(f"{client}: {self.ledger_id} closed at {last_entry_id}, {length} bytes")
        if self.end is None:
            self.end = (last_entry_id, length)
            self._check_end(client)
        elif self.end != (last_entry_id, length):
            raise CheckError(
                "agreement",
                f"{client} found (last, length) ({last_entry_id}, {length}), others {self.end}",
            )

    def lac_seen(self, client: str, lac: int) -> None:
        """A handle says that this is its LAC."""
        before = self._lacs.get(client, -1)
        if lac < before:
            raise CheckError("lac", f"{client}: the LAC went back from {before} to {lac}")
        self._lacs[client] = lac
        while self._held_up_to < lac:
            entry_id = self._held_up_to + 1
            if not self._is_held(entry_id):
                raise CheckError("lac", f"{client} has LAC {lac}, but {self._missing(entry_id)}")
            self._held_up_to = entry_id

    def read(self, client: str, entry_id: int, payload: bytes) -> None:
        """A reader got an entry."""
        if entry_id >= len(self.payloads):
            raise CheckError("reading", f"{client} read entry {entry_id}, which was never written")
        if payload != self.payloads[entry_id]:
            kind = "durability" if entry_id in self.acknowledged else "reading"
            raise CheckError(
                kind,
                f"{client} read entry {entry_id}: expected {self.payloads[entry_id][:40]!r},"
                f" found {payload[:40]!r}",
            )

    def read_all(self, client: str, entries: Sequence[tuple[int, bytes]], last: int) -> None:
        """A reader got these when it asked for entries 0 to last."""
        found = [entry_id for entry_id, _ in entries]
        if found != list(range(last + 1)):
            raise CheckError("reading", f"{client}: expected entries 0 to {last}, found {found}")
        for entry_id, payload in entries:
            self.read(client, entry_id, payload)

    def stored(self, data: bytes) -> None:
        """The metadata store applied a write to the ledger's node."""
        assert self.ledger_id is not None
        after = metadata_codec.decode(LedgerId(self.ledger_id), data, 0)
        before, self.metadata = self.metadata, after
        self._say(
            f"metadata of {self.ledger_id}: {after.state.name}"
            f" last {after.last_entry_id} length {after.length} "
            + " ".join(f"{s.first_entry_id}:{','.join(s.ensemble)}" for s in after.segments)
        )
        self._check_shape(after)
        if before is not None:
            self._check_step(before, after)
        if after.is_closed:
            self.closed("metadata", after.last_entry_id, after.length)

    # What follows.

    def _check_end(self, client: str) -> None:
        assert self.end is not None
        last, length = self.end
        lost = [entry_id for entry_id in self.acknowledged if entry_id > last]
        if lost:
            raise CheckError(
                "durability", f"{client} closed at {last}, but {min(lost)} had been acknowledged"
            )
        if last >= len(self.payloads):
            raise CheckError("reading", f"{client} closed at {last}, which was never written")
        expected = sum(len(payload) for payload in self.payloads[: last + 1])
        if length != expected:
            raise CheckError(
                "agreement", f"{client} closed at {last} with length {length}, not {expected}"
            )

    def _is_held(self, entry_id: int) -> bool:
        metadata = self.metadata
        if metadata is None:
            return False
        takers = self._takers.get(entry_id, {})
        ensemble = metadata.segment_of(entry_id).ensemble
        indexes = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)
        count = sum(ensemble[index] in takers for index in indexes)
        return count >= metadata.ack_quorum_size

    def _missing(self, entry_id: int) -> str:
        metadata = self.metadata
        segment = None if metadata is None else metadata.segment_of(entry_id)
        return (
            f"entry {entry_id} was taken by {list(self._takers.get(entry_id, {}))} only;"
            f" its segment is {segment}"
        )

    def _check_shape(self, metadata: LedgerMetadata) -> None:
        firsts = [segment.first_entry_id for segment in metadata.segments]
        if not firsts or firsts[0] != 0 or any(a >= b for a, b in pairwise(firsts)):
            raise CheckError("metadata", f"segments begin at {firsts}")
        for segment in metadata.segments:
            if len(set(segment.ensemble)) != metadata.ensemble_size:
                raise CheckError("metadata", f"an ensemble of wrong size: {segment}")

    def _check_step(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        order = [LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED]
        if order.index(after.state) < order.index(before.state):
            raise CheckError("metadata", f"{before.state.name} became {after.state.name}")
        if before.is_closed and (before.segments, before.last_entry_id, before.length) != (
            after.segments,
            after.last_entry_id,
            after.length,
        ):
            raise CheckError("metadata", f"CLOSED metadata was changed: {before} to {after}")
        kept = before.segments[:-1]
        if (
            len(after.segments) <= len(kept)
            or after.segments[: len(kept)] != kept
            or (after.segments[len(kept)].first_entry_id != before.last_segment.first_entry_id)
        ):
            raise CheckError("metadata", f"an older segment was changed: {before} to {after}")
        if after.is_closed and not before.is_closed and after.segments != before.segments:
            self.happen("ensemble change during recovery")
        elif after.segments != before.segments:
            self.happen("ensemble change by the writer")
