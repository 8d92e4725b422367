"""Which bookies stand in for those that failed, and what must hold while they are found.

Source of the rules: BookKeeper's ensemble change; going on with fewer bookies is ours
(docs/protocols/writer.md). Pure decisions; the writer's machine owns the state.

The metadata is written before anything is applied (G7). From the first failure until the new
ensemble is applied no entry completes and the LAC stands still (G8), so that LAC + 1, where the new
segment begins, is beyond every acknowledged entry: metadata never claims for a new bookie what
only an old one holds (G9).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bookie.errors import NotEnoughBookiesError
from bookie.ledger.members import mask_of
from bookie.ledger.types import BookieId, LedgerMetadata

Ensemble = tuple[BookieId, ...]


class Replacer(Protocol):
    """What is needed of a Placement."""

    def replace(
        self, failed_indexes: Iterable[int], ensemble: Ensemble, writable: Sequence[BookieId]
    ) -> Ensemble:
        """Put other bookies of `writable`, none of `ensemble`, at these indexes.

        NotEnoughBookiesError when there are too few; then nothing is replaced.
        """
        ...


@dataclass(slots=True)
class EnsembleChange:
    """One change under way: rounds of plan and write, until no failure is left over."""

    failed: dict[int, BookieId]
    """To be replaced by the present round: what stood at which index."""
    arrived: dict[int, BookieId] = field(default_factory=dict[int, BookieId])
    """Failures since the round began; the next one's."""
    rejoining: int = 0
    """Bits of indexes whose bookie, missing so far, is tried again in its own place."""
    missing: int = 0
    """Bits of indexes that no bookie was found for."""
    wanted: LedgerMetadata | None = None
    """What is being written, or was last."""
    is_write_adrift: bool = False
    """A write was neither found applied nor made impossible by a newer version: it may land yet."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one look for bookies. The two masks have a bit for each index."""

    ensemble: Ensemble
    missing: int
    rejoining: int
    last_chances: tuple[BookieId, ...] = ()
    """Those that failed lately and are tried all the same."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The bookies that may stand in."""

    writable: Sequence[BookieId]
    suspects: Iterable[BookieId]
    """Failed lately: passed over while there are others."""
    spent: Iterable[BookieId]
    """Suspects that had their last chance: not tried again before they are forgotten."""


def plan(
    ensemble: Ensemble,
    failed: int,
    missing: int,
    candidates: Candidates,
    replacer: Replacer,
    *,
    reachable: Sequence[int],
    ack_quorum_size: int,
) -> Plan | None:
    """Replace what stands at the bits of `failed` and `missing`; None: adds cannot go on.

    Where no other bookie is left, one that is writable and no suspect (any more) rejoins in its
    own place. Other indexes stay missing, which is borne as long as each of the write sets
    (`reachable`, one mask for each) keeps an ack quorum. Rather than give up, suspects get one last
    chance each: two that fail in turn would else take turns for ever.
    """
    wanting = [i for i in range(len(ensemble)) if (failed | missing) >> i & 1]
    gone = {ensemble[i] for i in wanting}
    doubtful = set(candidates.suspects)
    writable = candidates.writable
    others = [b for b in writable if b not in gone]
    result, unplaced = _replace_each(
        ensemble, wanting, [b for b in others if b not in doubtful], replacer
    )
    rejoining = [i for i in unplaced if ensemble[i] in writable and ensemble[i] not in doubtful]
    unplaced = [i for i in unplaced if i not in rejoining]
    chances: list[BookieId] = []
    if not _is_enough(unplaced, reachable, ack_quorum_size):
        hopeful = doubtful.difference(candidates.spent)
        returning = [
            i
            for i in unplaced
            if missing >> i & 1 and ensemble[i] in writable and ensemble[i] in hopeful
        ]
        rejoining += returning
        unplaced = [i for i in unplaced if i not in returning]
        before = result
        result, unplaced = _replace_each(
            result, unplaced, [b for b in others if b in hopeful], replacer
        )
        chances = [ensemble[i] for i in returning]
        chances += [b for i, b in enumerate(result) if before[i] != b]
        if not _is_enough(unplaced, reachable, ack_quorum_size):
            return None
    return Plan(result, mask_of(unplaced), mask_of(rejoining), tuple(chances))


def _replace_each(
    ensemble: Ensemble, indexes: list[int], candidates: list[BookieId], replacer: Replacer
) -> tuple[Ensemble, list[int]]:
    """Replace all at once if that can be done, else as many as there are candidates for."""
    if not indexes:
        return ensemble, []
    try:
        return replacer.replace(tuple(indexes), ensemble, tuple(candidates)), []
    except NotEnoughBookiesError:
        pass
    unplaced: list[int] = []
    for index in indexes:
        try:
            ensemble = replacer.replace((index,), ensemble, tuple(candidates))
        except NotEnoughBookiesError:
            unplaced.append(index)
    return ensemble, unplaced


def _is_enough(unplaced: list[int], reachable: Sequence[int], ack_quorum_size: int) -> bool:
    lost = mask_of(unplaced)
    return all((mask & ~lost).bit_count() >= ack_quorum_size for mask in reachable)
