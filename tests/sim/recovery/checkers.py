"""What must be true while copies are lost and made again; each checker has a name.

Those of tests/sim/ledger/checkers.py, and:

copy      a bookie takes the place of another in metadata only when it has taken every entry
task      a task is removed only when its ledger names no bookie that was gone before
auditor   only the auditor of which the vote leads publishes tasks
grace     a writer is fenced only when one of its bookies was away for the grace period
target    nothing is copied to a bookie that is registered as read-only
drained   when a bookie is Drained no ledger counts on what it has; it takes no entry then, and
          neither it nor one that was forgotten is named, by a copy or at the end of a recovery
rot       a bookie whose copy of an entry is damaged neither denies it nor answers something else
cookie    a bookie whose cookie was deleted does not run on
whole     in the end every entry is on every bookie of its write set, none of which is gone
liveness  as well: every drain ends, every ledger becomes whole, every task is done and every lock
          given back
"""

from itertools import zip_longest
from typing import TYPE_CHECKING

from bookie.ledger.distribution import entries_of
from bookie.ledger.types import BookieId, LedgerMetadata, LedgerState
from tests.sim.ledger import checkers
from tests.sim.ledger.checkers import CheckError, History

if TYPE_CHECKING:
    from tests.sim.recovery.world import RecoveryWorld

CHECKERS = ("copy", "task", "auditor", "grace", "target", "drained", "rot", "cookie", "whole")
checkers.CHECKERS = (*checkers.CHECKERS, *CHECKERS)
_ORDER = (LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED)


class RecoveryHistory(History):
    """History of a ledger whose segments workers may change: one member at a time."""

    def __init__(self, world: "RecoveryWorld") -> None:
        super().__init__(world.say, world.loop.time, world.happen)
        self._world = world
        self.last_ensembles: dict[tuple[BookieId, ...], float] = {}
        """Of the open last segment, by the time until which each was in the metadata."""

    def is_promised(self, entry_id: int, bookie: str) -> bool:
        """Whether a bookie has said that it has an entry."""
        return bookie in self._takers.get(entry_id, {})

    def entries_on(self, bookie: str) -> list[int]:
        """Return the entries that a bookie has said it has."""
        return [entry_id for entry_id, takers in self._takers.items() if bookie in takers]

    def forget(self, bookie: str) -> None:
        """A bookie's disk is gone."""
        for takers in self._takers.values():
            takers.pop(bookie, None)

    def acked(self, expected_id: int, entry_id: int) -> None:
        if not self._is_given_up:
            super().acked(expected_id, entry_id)

    def closed(self, client: str, last_entry_id: int, length: int) -> None:
        if not self._is_given_up:
            super().closed(client, last_entry_id, length)

    def lac_seen(self, client: str, lac: int) -> None:
        if not self._is_given_up:
            super().lac_seen(client, lac)

    @property
    def _is_given_up(self) -> bool:
        """Whether an operator accepted the loss of this ledger: nothing is promised of it."""
        return self.ledger_id in self._world.given_up

    def _check_step(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        is_worker = self._world.is_copying(self._world.actor)
        if _ORDER.index(after.state) < _ORDER.index(before.state):
            raise CheckError("metadata", f"{before.state.name} became {after.state.name}")
        if before.is_closed and (before.last_entry_id, before.length) != (
            after.last_entry_id,
            after.length,
        ):
            raise CheckError("metadata", f"CLOSED metadata was changed: {before} to {after}")
        settled = len(before.segments) - (not before.is_closed)
        pairs = list(zip_longest(before.segments, after.segments))
        for number, (old, new) in enumerate(pairs):
            is_settled = number < settled
            if old is None and not before.is_closed:
                continue
            if old is None or new is None or old.first_entry_id != new.first_entry_id:
                raise CheckError("metadata", f"segments were changed: {before} to {after}")
            if old.ensemble == new.ensemble:
                continue
            if is_settled:
                if not is_worker:
                    raise CheckError("metadata", f"an older segment was changed: {before}, {after}")
                self._check_copy(before, number, after)
            elif is_worker and not after.is_closed:
                raise CheckError("fence", f"a worker changed an open segment: {before}, {after}")
        if before.last_segment.first_entry_id != after.last_segment.first_entry_id:
            self.last_ensembles.clear()
        self.last_ensembles[before.last_segment.ensemble] = self._world.loop.time()
        if is_worker:
            self._world.judge_step(self, before, after)
        if after.is_closed and not before.is_closed:
            self._check_new_members(before, after)

    def _check_new_members(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """A recovery has ended: what it named is there."""
        named = {bookie for segment in before.segments for bookie in segment.ensemble}
        for segment in after.segments:
            for bookie in segment.ensemble:
                if bookie in named or not self._world.is_taken_out(bookie):
                    continue
                if segment.first_entry_id <= after.last_entry_id:
                    raise CheckError("drained", f"{bookie} is taken out, and named: {segment}")

    def _check_copy(self, before: LedgerMetadata, number: int, after: LedgerMetadata) -> None:
        old, new = before.segments[number], after.segments[number]
        changed = [i for i, b in enumerate(old.ensemble) if new.ensemble[i] != b]
        if len(changed) != 1:
            raise CheckError("metadata", f"several members were changed: {old} to {new}")
        (index,) = changed
        if self._world.is_taken_out(new.ensemble[index]):
            raise CheckError("drained", f"{new.ensemble[index]} is taken out, and named: {new}")
        last = before.last_entry_id
        if number + 1 < len(before.segments):
            following = before.segments[number + 1].first_entry_id - 1
            last = min(last, following) if before.is_closed else following
        self.happen("copy made" if before.is_closed else "copy beside a writer")
        sizes = before.ensemble_size, before.write_quorum_size
        for entry_id in entries_of(index, old.first_entry_id, last, *sizes):
            if new.ensemble[index] not in self._takers.get(entry_id, {}):
                raise CheckError(
                    "copy",
                    f"{new.ensemble[index]} replaces {old.ensemble[index]} in {old} of ledger"
                    f" {before.ledger_id} and has not taken entry {entry_id}",
                )
