"""Recovery by an operator: which ledgers name a bookie, and copying them elsewhere without tasks.

Repeatable and resumable: a ledger that no longer names the bookie is passed over, and every change
of metadata is a compare-and-set, so that workers and other operators may be at it as well.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from bookie.autorecovery.repair import Outcome, Repairer, Result
from bookie.autorecovery.spans import entries_at, members_of, open_segment, spans_of
from bookie.errors import NoSuchLedgerMetadataError
from bookie.ledger.types import BookieId, LedgerMetadata
from bookie.metadata.ledgers import LedgerManager


class Named(NamedTuple):
    """What a ledger has on some bookies."""

    metadata: LedgerMetadata
    entry_count: int
    """Copies of settled entries there."""
    byte_count: int | None
    """About the payload of these, by the average; None: the ledger is not CLOSED."""
    is_open_there: bool
    """Its last segment may still grow, and lies there, too: to be copied it has to be fenced."""


async def ledgers_naming(
    ledgers: LedgerManager, bookies: Collection[BookieId], only: Sequence[int] = ()
) -> AsyncIterator[LedgerMetadata]:
    """Yield each ledger that names one of these bookies; `only` these ledgers, if any are given.

    A full scan, begun after a sync. Errors: MetadataStoreError, and MetadataFormatError: a ledger
    that cannot be read may name them.
    """
    ids = _given(only) if only else ledgers.ledger_ids()
    async for ledger_id in ids:
        try:
            metadata, _ = await ledgers.read(ledger_id)
        except NoSuchLedgerMetadataError:
            if only:
                raise
            continue  # deleted since it was listed
        if any(bookie in bookies for bookie in members_of(metadata)):
            yield metadata


async def _given(ledger_ids: Sequence[int]) -> AsyncIterator[int]:
    for ledger_id in ledger_ids:
        yield ledger_id


def named(metadata: LedgerMetadata, bookies: Collection[BookieId]) -> Named:
    """Return how much of a ledger these bookies should have."""
    count = 0
    for span in spans_of(metadata):
        for index, bookie in enumerate(span.ensemble):
            if bookie in bookies:
                count += sum(1 for _ in entries_at(metadata, span, index))
    total = metadata.last_entry_id + 1
    byte_count = None
    if metadata.is_closed:
        byte_count = metadata.length * count // total if total else 0
    segment = open_segment(metadata)
    is_open_there = segment is not None and any(b in bookies for b in segment.ensemble)
    return Named(metadata, count, byte_count, is_open_there)


async def recover_ledger(repairer: Repairer, ledger_id: int, *, will_fence: bool) -> Outcome:
    """Repair a ledger now; an open last segment is fenced at once if will_fence, else left."""
    outcome = await repairer.repair(ledger_id)
    if outcome.result is Result.OPEN and will_fence:
        again = await repairer.repair(ledger_id, fence=outcome.segment)
        return replace(
            again,
            entry_count=outcome.entry_count + again.entry_count,
            byte_count=outcome.byte_count + again.byte_count,
        )
    return outcome
