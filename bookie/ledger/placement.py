"""Which bookies a ledger's entries lie on: at random, or spread over racks.

Peers never see the rule: any distinct writable bookies will do, so all of this is advice. What is
wanted is that a write set (neighbours in the ensemble, around the end too) does not lie in one
rack. Chance is passed in; the same chance gives the same ensembles. Source of the rules:
BookKeeper's rack-aware policy (docs/protocols/ledger.md, Placement).
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Protocol

from bookie.errors import IncorrectParameterError, NotEnoughBookiesError
from bookie.ledger.distribution import write_set
from bookie.ledger.types import BookieId
from bookie.runtime.interfaces import Rng

Ensemble = tuple[BookieId, ...]

_ATTEMPTS = 8


class Placement(Protocol):
    """Chooses ensembles. Both calls raise NotEnoughBookiesError and have no other effect then."""

    def choose(
        self, count: int, writable: Sequence[BookieId], exclude: Iterable[BookieId] = ()
    ) -> Ensemble:
        """Return `count` different bookies of `writable`, none of `exclude`."""
        ...

    def replace(
        self, failed_indexes: Iterable[int], ensemble: Ensemble, writable: Sequence[BookieId]
    ) -> Ensemble:
        """Return `ensemble` with others at these indexes: of `writable`, and none of `ensemble`.

        Those that were replaced do not come back: they are members of `ensemble`, too.
        """
        ...


class Adherence(Enum):
    """How well an ensemble is spread."""

    FAIL = "fail"
    """Some write set lies in one rack."""
    SOFT = "soft"
    """Every write set spans two racks, but not as many as are wanted."""
    STRICT = "strict"


class _Filling:
    """Fills holes of an ensemble from candidates; subclasses choose among these."""

    def choose(
        self, count: int, writable: Sequence[BookieId], exclude: Iterable[BookieId] = ()
    ) -> Ensemble:
        return self._fill([None] * count, _without(writable, exclude))

    def replace(
        self, failed_indexes: Iterable[int], ensemble: Ensemble, writable: Sequence[BookieId]
    ) -> Ensemble:
        slots: list[BookieId | None] = list(ensemble)
        for index in failed_indexes:
            slots[index] = None
        return self._fill(slots, _without(writable, ensemble))

    def _fill(self, slots: list[BookieId | None], candidates: list[BookieId]) -> Ensemble:
        needed = slots.count(None)
        if len(candidates) < needed:
            raise NotEnoughBookiesError(
                f"{needed} bookies are needed for an ensemble of {len(slots)}; there are"
                f" {len(candidates)} writable ones to choose from"
            )
        return self._filled(slots, candidates)

    def _filled(self, slots: list[BookieId | None], candidates: list[BookieId]) -> Ensemble:
        raise NotImplementedError


class RandomPlacement(_Filling):
    """Any bookies, each as likely as the other."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def _filled(self, slots: list[BookieId | None], candidates: list[BookieId]) -> Ensemble:
        return tuple(b if b is not None else _draw(candidates, self._rng) for b in slots)


class RackAwarePlacement(_Filling):
    """Bookies of different racks next to each other, as far as there are any; else random.

    A rack is what `location_of` returns ("/rack", "/region/rack"), asked at each call. Neighbours
    nearer than min_racks_per_write_quorum are kept in different racks, so that every write set of
    that size or more spans as many.
    """

    def __init__(
        self,
        rng: Rng,
        location_of: Callable[[BookieId], str],
        min_racks_per_write_quorum: int = 2,
    ) -> None:
        if min_racks_per_write_quorum < 1:
            raise IncorrectParameterError(
                "min_racks_per_write_quorum: expected 1 or more, found"
                f" {min_racks_per_write_quorum}"
            )
        self._rng = rng
        self._location_of = location_of
        self._min_racks = min_racks_per_write_quorum

    def adherence(self, ensemble: Ensemble, write_quorum_size: int) -> Adherence:
        """Judge an ensemble; advisory."""
        racks = [self._location_of(bookie) for bookie in ensemble]
        size = len(ensemble)
        spans = [
            len({racks[i] for i in write_set(first, size, write_quorum_size)})
            for first in range(size)
        ]
        if min(spans) >= min(self._min_racks, write_quorum_size):
            return Adherence.STRICT
        return Adherence.SOFT if min(spans) >= 2 else Adherence.FAIL

    def _filled(self, slots: list[BookieId | None], candidates: list[BookieId]) -> Ensemble:
        rack_of = {b: self._location_of(b) for b in (*slots, *candidates) if b is not None}
        best: Ensemble = ()
        best_cost = -1
        # Filling from left to right may use up a rack that the last slots needed: a few draws,
        # the best of which is taken.
        for _ in range(_ATTEMPTS):
            drawn, cost = self._attempt(list(slots), list(candidates), rack_of)
            if best_cost < 0 or cost < best_cost:
                best, best_cost = drawn, cost
            if cost == 0:
                break
        return best

    def _attempt(
        self,
        slots: list[BookieId | None],
        candidates: list[BookieId],
        rack_of: dict[BookieId, str],
    ) -> tuple[Ensemble, int]:
        """Fill the holes one by one; return the ensemble and how many neighbours share a rack."""
        total = 0
        filled: list[BookieId] = []
        for index, member in enumerate(slots):
            if member is None:
                near = self._neighbour_racks(slots, index, rack_of)
                cost_of = {rack: near.count(rack) for rack in rack_of.values()}
                cost = min(cost_of[rack_of[b]] for b in candidates)
                member = _draw([b for b in candidates if cost_of[rack_of[b]] == cost], self._rng)
                candidates.remove(member)
                slots[index] = member
                total += cost
            filled.append(member)
        return tuple(filled), total

    def _neighbour_racks(
        self, slots: list[BookieId | None], index: int, rack_of: dict[BookieId, str]
    ) -> list[str]:
        size = len(slots)
        reach = min(self._min_racks - 1, size // 2)
        around = {(index + d) % size for d in range(-reach, reach + 1)} - {index}
        return [rack_of[b] for i in sorted(around) if (b := slots[i]) is not None]


def _without(writable: Sequence[BookieId], exclude: Iterable[BookieId]) -> list[BookieId]:
    excluded = frozenset(exclude)
    return [bookie for bookie in writable if bookie not in excluded]


def _draw(candidates: list[BookieId], rng: Rng) -> BookieId:
    """Take one out of the list."""
    return candidates.pop(int(rng.random() * len(candidates)))
