"""A scan of all ledger metadata: which ledgers name a bookie, and what else reads them all.

Begun after sync(): every ledger that was created before the scan began is in it. Metadata that
cannot be read counts as naming every bookie, so that nothing is promised because of it.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from bookie.errors import MetadataFormatError, NoSuchLedgerMetadataError
from bookie.ledger.types import BookieId, LedgerMetadata
from bookie.metadata.ledgers import LedgerManager

_READS_AT_ONCE = 64


class Counter(Protocol):
    """What is fed with each ledger of a scan."""

    def add(self, metadata: LedgerMetadata) -> None: ...


class Scan(NamedTuple):
    """What a scan found."""

    ledgers: dict[BookieId, tuple[int, ...]]
    """The ledgers that name each bookie asked for; ascending."""
    unreadable: dict[int, str]
    """Ledgers whose metadata could not be understood, and why."""
    total: int

    def naming(self, bookie_id: BookieId) -> tuple[int, ...]:
        """Return the ledgers that name the bookie, or may name it; ascending."""
        return tuple(sorted({*self.ledgers.get(bookie_id, ()), *self.unreadable}))


class OpenLedgers:
    """Collects the ledgers whose last segment is open and names a bookie."""

    def __init__(self, bookie_ids: Collection[BookieId]) -> None:
        self.found: dict[BookieId, set[int]] = {bookie_id: set() for bookie_id in bookie_ids}

    def add(self, metadata: LedgerMetadata) -> None:
        if metadata.is_closed:
            return
        for bookie_id in metadata.last_segment.ensemble:
            if bookie_id in self.found:
                self.found[bookie_id].add(metadata.ledger_id)


def names(metadata: LedgerMetadata, bookie_id: BookieId) -> bool:
    return any(bookie_id in segment.ensemble for segment in metadata.segments)


async def scan(
    ledgers: LedgerManager, bookie_ids: Iterable[BookieId], counters: Iterable[Counter] = ()
) -> Scan:
    """Read the metadata of every ledger once and return which ones name these bookies.

    Each ledger that can be read is fed to the counters. MetadataStoreError: nothing is known then.
    """
    wanted = tuple(bookie_ids)
    feeding = tuple(counters)
    found: dict[BookieId, list[int]] = {bookie_id: [] for bookie_id in wanted}
    unreadable: dict[int, str] = {}
    ids = [ledger_id async for ledger_id in ledgers.ledger_ids()]
    for first in range(0, len(ids), _READS_AT_ONCE):
        batch = ids[first : first + _READS_AT_ONCE]
        for outcome in await asyncio.gather(*(_read(ledgers, ledger_id) for ledger_id in batch)):
            if outcome is None:
                continue
            if isinstance(outcome, tuple):
                unreadable[outcome[0]] = outcome[1]
                continue
            for bookie_id in wanted:
                if names(outcome, bookie_id):
                    found[bookie_id].append(outcome.ledger_id)
            for counter in feeding:
                counter.add(outcome)
    return Scan({b: tuple(sorted(i)) for b, i in found.items()}, unreadable, len(ids))


async def _read(ledgers: LedgerManager, ledger_id: int) -> LedgerMetadata | tuple[int, str] | None:
    """Return the metadata, the id and why it cannot be read, or None: deleted since the list."""
    try:
        return (await ledgers.read(ledger_id))[0]
    except NoSuchLedgerMetadataError:
        return None
    except MetadataFormatError as error:
        return ledger_id, str(error)
