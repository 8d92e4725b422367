"""What the ledgers would lose if bookies went: copies, ack quorums, full replication.

Pure arithmetic over metadata, nothing is asked of a bookie: a copy counts as there when its bookie
is neither going nor lost. Counted by write set, because the entries of one write set share their
bookies; a segment has as many as its ensemble, fewer when it has fewer entries.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from bookie.ledger.distribution import write_set
from bookie.ledger.types import BookieId, LedgerMetadata

Ensemble = tuple[BookieId, ...]
LEDGERS_NAMED_MAX = 100
"""Ledgers that a report names of each kind; the others are only counted."""


class Risk(Enum):
    """What becomes of a write set, the worst first; each names its own kind only."""

    LAST_COPY = "last_copy"
    """No copy is left."""
    ACK_QUORUM = "below_ack_quorum"
    """Copies are left, fewer than the ack quorum."""
    UNDER_REPLICATED = "under_replicated"
    """An ack quorum is left, fewer copies than the write quorum."""


@dataclass(slots=True)
class Tally:
    """How much has one kind of risk."""

    ledgers: int = 0
    segments: int = 0
    write_sets: int = 0
    entries: int = 0
    """Of segments whose end is known; those of an open last segment are not counted."""
    ledger_ids: list[int] = field(default_factory=list[int])
    """The first LEDGERS_NAMED_MAX."""


def risk_of(left: int, write_quorum_size: int, ack_quorum_size: int) -> Risk | None:
    """Judge a write set of which so many bookies are left; None: all are."""
    if left == 0:
        return Risk.LAST_COPY
    if left < ack_quorum_size:
        return Risk.ACK_QUORUM
    return Risk.UNDER_REPLICATED if left < write_quorum_size else None


class RiskReport:
    """Fed with metadata by add(): what `going` would do, given what is `lost` already."""

    def __init__(
        self,
        going: Iterable[BookieId],
        registered: Iterable[BookieId],
        writable: Iterable[BookieId],
    ) -> None:
        """Count what `going` would do.

        registered: all that answer now; a member that is neither one of them nor going is lost
        already. writable: those of them that can take copies.
        """
        self.going = frozenset(going)
        # One that is only stopped still has its copies: to let it go may lose them.
        self._registered = frozenset(registered) | self.going
        self._staying = self._registered - self.going
        self._destinations = frozenset(writable) - self.going
        self.lost: set[BookieId] = set()
        """Members of segments that are not registered."""
        self.tallies = {risk: Tally() for risk in Risk}
        """With all of them gone."""
        self.before = {risk: Tally() for risk in Risk}
        """With the lost ones alone."""
        self.copies_going = 0
        """Copies of write sets that `going` have, or may get: safe is that there are none."""
        self.segments_without_destination = 0
        """Segments that name more bookies of `going` than others are writable outside of them."""
        self.ledgers = 0

    def add(self, metadata: LedgerMetadata) -> None:
        """Count one ledger."""
        self.ledgers += 1
        worst: dict[int, set[Risk]] = {0: set(), 1: set()}
        for number, segment in enumerate(metadata.segments):
            if self._staying.issuperset(segment.ensemble):
                continue
            self.lost.update(self._lost_of(segment.ensemble))
            if is_short(segment.ensemble, self._staying, self._destinations):
                self.segments_without_destination += 1
            end = metadata.segment_end(number)
            sets = list(_write_sets(metadata, number, end))
            self.copies_going += sum(bookie in self.going for _, of in sets for bookie in of)
            for which, (there, tallies) in enumerate(
                ((self._staying, self.tallies), (self._registered, self.before))
            ):
                risks = _count_sets(metadata, sets, end, there, tallies)
                for risk in risks:
                    tallies[risk].segments += 1
                worst[which] |= risks
        for which, tallies in enumerate((self.tallies, self.before)):
            for risk in worst[which]:
                tally = tallies[risk]
                tally.ledgers += 1
                if len(tally.ledger_ids) < LEDGERS_NAMED_MAX:
                    tally.ledger_ids.append(metadata.ledger_id)

    def _lost_of(self, ensemble: Ensemble) -> Iterable[BookieId]:
        return (bookie for bookie in ensemble if bookie not in self._registered)


def _write_sets(
    metadata: LedgerMetadata, number: int, end: int | None
) -> Iterator[tuple[int, Ensemble]]:
    """Yield the first entry of each write set of a segment, and its bookies."""
    segment, size = metadata.segments[number], metadata.ensemble_size
    for entry_id in range(segment.first_entry_id, segment.first_entry_id + size):
        if end is not None and entry_id > end:
            return  # the others have no entry
        members = write_set(entry_id, size, metadata.write_quorum_size)
        yield entry_id, tuple(segment.ensemble[i] for i in members)


def _count_sets(
    metadata: LedgerMetadata,
    sets: Iterable[tuple[int, Ensemble]],
    end: int | None,
    there: frozenset[BookieId],
    tallies: dict[Risk, Tally],
) -> set[Risk]:
    risks: set[Risk] = set()
    for entry_id, bookies in sets:
        left = sum(bookie in there for bookie in bookies)
        risk = risk_of(left, metadata.write_quorum_size, metadata.ack_quorum_size)
        if risk is None:
            continue
        risks.add(risk)
        tallies[risk].write_sets += 1
        if end is not None:
            tallies[risk].entries += (end - entry_id) // metadata.ensemble_size + 1
    return risks


class DrainCheck:
    """Fed with metadata by add(): whether one more drain may begin beside what goes or is lost.

    A drain alone is always let in where others can take its copies: what it holds can be read
    until it ends. Beside others it must not leave a write set with fewer than an ack quorum.
    """

    def __init__(
        self,
        bookie_id: BookieId,
        staying: Iterable[BookieId],
        writable: Iterable[BookieId],
    ) -> None:
        """staying: what neither drains nor is lost. writable: all that take adds now."""
        self._bookie_id = bookie_id
        self._staying = frozenset(staying) - {bookie_id}
        self._destinations = frozenset(writable) & self._staying
        self.broken_sets = 0
        """Write sets that it shares with others, and that all together leave below the quorum."""
        self.short_segments = 0
        """Segments that name it and find too few bookies to take its place and the others'."""
        self.ensemble_size = 0
        """The largest of an open ledger: whose writer needs as many writable bookies."""
        self.shared_with: set[BookieId] = set()

    def add(self, metadata: LedgerMetadata) -> None:
        """Count one ledger."""
        if not metadata.is_closed:
            self.ensemble_size = max(self.ensemble_size, metadata.ensemble_size)
        for segment in metadata.segments:
            if self._bookie_id not in segment.ensemble:
                continue
            self.short_segments += is_short(segment.ensemble, self._staying, self._destinations)
            for slot in range(metadata.ensemble_size):
                members = write_set(slot, metadata.ensemble_size, metadata.write_quorum_size)
                bookies = [segment.ensemble[i] for i in members]
                gone = {bookie for bookie in bookies if bookie not in self._staying}
                left = len(bookies) - len(gone)
                is_shared = self._bookie_id in gone and len(gone) > 1
                if is_shared and left < metadata.ack_quorum_size:
                    self.broken_sets += 1
                    self.shared_with |= gone - {self._bookie_id}

    def reason(self) -> str:
        """Say why the drain has to wait; empty: it need not."""
        if self.broken_sets:
            names = ", ".join(sorted(self.shared_with))
            return (
                f"{self.broken_sets} write sets would fall below their ack quorum together with "
                f"{names}, which drain or are lost: waits until no ledger names both"
            )
        if self.short_segments:
            return (
                f"{self.short_segments} segments find too few other bookies: "
                f"{len(self._destinations)} would be writable; start more bookies"
            )
        if len(self._destinations) < self.ensemble_size:
            return (
                f"{len(self._destinations)} bookies would be writable, open ledgers need "
                f"{self.ensemble_size}: start more bookies"
            )
        return ""


def is_short(
    ensemble: Ensemble, staying: frozenset[BookieId], destinations: frozenset[BookieId]
) -> bool:
    """Tell whether a segment finds too few bookies to take the place of those that do not stay."""
    wanted = sum(bookie not in staying for bookie in ensemble)
    return len(destinations.difference(ensemble)) < wanted
