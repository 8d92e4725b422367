"""Members: the ensemble that a handle writes to, worked out once for each change of it.

Which bookie answers for which bit of an entry's masks, which indexes an entry goes to, and which
bookies that makes when those that are missing or being replaced are left out.
"""

from collections.abc import Iterable

from bookie.ledger.distribution import write_set
from bookie.ledger.types import BookieId, LedgerMetadata

Ensemble = tuple[BookieId, ...]


class Members:
    """See the module. `slot` is an entry id modulo the ensemble's size."""

    __slots__ = ("_sets", "bits", "bookies", "missing", "size", "targets", "write_sets")

    def __init__(self, metadata: LedgerMetadata) -> None:
        self.size = metadata.ensemble_size
        self._sets = [
            write_set(slot, self.size, metadata.write_quorum_size) for slot in range(self.size)
        ]
        self.write_sets = [mask_of(indexes) for indexes in self._sets]
        """The indexes that an entry goes to, as bits, by slot."""
        self.bookies: Ensemble = ()
        self.missing = 0
        """Bits of the indexes whose bookie failed and found no replacement so far."""
        self.bits: dict[BookieId, int] = {}
        self.targets: list[Ensemble] = []
        """The bookies that an entry is sent to, by slot."""
        self.become(metadata.last_segment.ensemble, 0)

    def become(self, bookies: Ensemble, missing: int) -> None:
        self.bookies = bookies
        self.missing = missing
        self.bits = {bookie: 1 << i for i, bookie in enumerate(bookies)}
        self.leave_out(0)

    def leave_out(self, indexes: int) -> None:
        """Send nothing to these, nor to the missing ones, from now on."""
        left_out = indexes | self.missing
        self.targets = [
            tuple(self.bookies[i] for i in indexes if not left_out >> i & 1)
            for indexes in self._sets
        ]

    def write_set_of(self, entry_id: int) -> Ensemble:
        """Return the bookies of an entry's write set, missing or not."""
        return tuple(self.bookies[i] for i in self._sets[entry_id % self.size])

    def where(self, pairs: dict[int, BookieId]) -> int:
        """Return the bits of those pairs (index, bookie) that are still so."""
        return mask_of(i for i, bookie in pairs.items() if self.bookies[i] == bookie)

    def at(self, mask: int) -> dict[int, BookieId]:
        """Return (index, bookie) for each bit."""
        return {i: bookie for i, bookie in enumerate(self.bookies) if mask >> i & 1}


def mask_of(indexes: Iterable[int]) -> int:
    """Return the indexes as bits."""
    mask = 0
    for index in indexes:
        mask |= 1 << index
    return mask
