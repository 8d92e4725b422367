"""Quorum arithmetic: which bookies hold an entry, and how many answers decide what.

Bookies are indexes into the ensemble of one segment. E >= Qw >= Qa >= 1. Source: BookKeeper's
round-robin schedule and coverage rule (docs/protocols/ledger.md).
"""

from collections.abc import Iterator
from functools import lru_cache

from bookie.errors import IncorrectParameterError
from bookie.ledger.types import Status

KNOWN_ANSWERS = (Status.OK, Status.NO_ENTRY, Status.NO_LEDGER)
"""What tells something about a replica: it has the entry, or it says that it has not (G3)."""


def check_quorums(ensemble_size: int, write_quorum_size: int, ack_quorum_size: int) -> None:
    """IncorrectParameterError unless E >= Qw >= Qa >= 1."""
    if not ensemble_size >= write_quorum_size >= ack_quorum_size >= 1:
        raise IncorrectParameterError(
            "expected ensemble size >= write quorum >= ack quorum >= 1, found"
            f" {ensemble_size}, {write_quorum_size}, {ack_quorum_size}"
        )


@lru_cache(maxsize=1024)
def _write_sets(ensemble_size: int, write_quorum_size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple((first + i) % ensemble_size for i in range(write_quorum_size))
        for first in range(ensemble_size)
    )


def write_set(entry_id: int, ensemble_size: int, write_quorum_size: int) -> tuple[int, ...]:
    """Return the indexes of the bookies that hold an entry, in the order in which to ask them."""
    return _write_sets(ensemble_size, write_quorum_size)[entry_id % ensemble_size]


def holds(index: int, entry_id: int, ensemble_size: int, write_quorum_size: int) -> bool:
    """Tell whether the bookie at index is in the write set of entry_id."""
    return (index - entry_id) % ensemble_size < write_quorum_size


def entries_of(
    index: int, first: int, last: int, ensemble_size: int, write_quorum_size: int
) -> Iterator[int]:
    """Yield which of the entries first to last the bookie at index holds, ascending."""
    for run in runs_of(index, first, last, ensemble_size, write_quorum_size):
        yield from run


def runs_of(
    index: int, first: int, last: int, ensemble_size: int, write_quorum_size: int
) -> Iterator[range]:
    """Yield these entries as runs of consecutive ids: one, where every bookie holds every entry."""
    if ensemble_size == write_quorum_size:
        step = max(1, last + 1 - first)
        begin, length = first, step
    else:
        step, length = ensemble_size, write_quorum_size
        begin = first - (first - (index - length + 1)) % step
    for start in range(begin, last + 1, step):
        run = range(max(start, first), min(start + length, last + 1))
        if run:
            yield run


def count_of(index: int, first: int, last: int, ensemble_size: int, write_quorum_size: int) -> int:
    """Return how many these entries are, without going through them."""
    cycles, rest = divmod(max(0, last + 1 - first), ensemble_size)
    return cycles * write_quorum_size + sum(
        holds(index, entry_id, ensemble_size, write_quorum_size)
        for entry_id in range(last + 1 - rest, last + 1)
    )


def absent_threshold(write_quorum_size: int, ack_quorum_size: int) -> int:
    """Return how many replicas must say "no such entry" before it was surely not acknowledged.

    Only explicit answers count, silence never; Qa - 1 others may still have it (G4).
    """
    return write_quorum_size - ack_quorum_size + 1


def failures_max(write_quorum_size: int, ack_quorum_size: int) -> int:
    """Return how many bookies of a write set may fail before its entry misses the ack quorum."""
    return write_quorum_size - ack_quorum_size


def no_news_threshold(ensemble_size: int, ack_quorum_size: int) -> int:
    """Return how many bookies must answer a long poll with nothing before there is none."""
    return ensemble_size - ack_quorum_size + 1


class Coverage:
    """Collects answers of an ensemble until no acknowledged entry can hide from them (G3).

    Covered: of every Qw neighbours, around the end too, fewer than Qa are unknown. An OK whose
    packet proved damaged is recorded as something else than OK by the caller. Mutable; one owner.
    """

    def __init__(self, ensemble_size: int, write_quorum_size: int, ack_quorum_size: int) -> None:
        check_quorums(ensemble_size, write_quorum_size, ack_quorum_size)
        self._ack_quorum_size = ack_quorum_size
        self._sets = _write_sets(ensemble_size, write_quorum_size)
        self._statuses: list[Status | None] = [None] * ensemble_size

    def record(self, index: int, status: Status) -> None:
        """Set the answer of the bookie at index; a later one takes its place."""
        self._statuses[index] = status

    @property
    def statuses(self) -> tuple[Status | None, ...]:
        """The answers by index; None where there is none yet."""
        return tuple(self._statuses)

    @property
    def is_complete(self) -> bool:
        """All have answered something: nothing more will come."""
        return None not in self._statuses

    @property
    def is_covered(self) -> bool:
        is_unknown = [status not in KNOWN_ANSWERS for status in self._statuses]
        return all(
            sum(is_unknown[index] for index in indexes) < self._ack_quorum_size
            for indexes in self._sets
        )
