"""Recovery by an operator: which ledgers name a bookie, and copying them elsewhere without tasks.

Repeatable and resumable: a ledger that no longer names the bookie is passed over. Each ledger is
recovered under its lock, as by a worker: a bookie's collector, which removes copies that no
metadata names, might else remove those that the metadata names a moment later.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from bookie.autorecovery.operations import ReplicationOperations
from bookie.autorecovery.repair import Outcome, Repairer, Result
from bookie.autorecovery.spans import count_at, members_of, open_segment, spans_of
from bookie.autorecovery.tasks import TaskStore
from bookie.errors import (
    IllegalOperationError,
    LedgersLeftError,
    MetadataFormatError,
    NoSuchLedgerMetadataError,
)
from bookie.ledger.codec import HEADER_BYTES, EntryDigest
from bookie.ledger.types import BookieId, DigestType, LedgerMetadata
from bookie.lifecycle.operations import Operations
from bookie.metadata.cookies import CookieStore
from bookie.metadata.ledgers import LedgerManager
from bookie.runtime.interfaces import Clock

_POLL_S = 2.0

LOCKED_PAUSE_S = 3.0
LOCKED_TRIES = 5
"""Together longer than the session of a process that died with its locks."""


class Named(NamedTuple):
    """What a ledger has on some bookies."""

    metadata: LedgerMetadata
    entry_count: int
    """Copies of settled entries there."""
    byte_count: int | None
    """About that of their packets, by the average; None: the ledger is not CLOSED."""
    is_open_there: bool
    """Its last segment may still grow, and lies there, too: to be copied it has to be fenced."""


async def ledgers_naming(
    ledgers: LedgerManager,
    bookies: Collection[BookieId],
    only: Sequence[int] = (),
    *,
    unreadable: dict[int, str],
) -> AsyncIterator[LedgerMetadata]:
    """Yield each ledger that names one of these bookies; `only` these ledgers, if any are given.

    A full scan, begun after a sync. Ledgers whose metadata is damaged may name them, too: they are
    put into unreadable, with the reason. MetadataStoreError.
    """
    ids = _given(only) if only else ledgers.ledger_ids()
    async for ledger_id in ids:
        try:
            metadata, _ = await ledgers.read(ledger_id)
        except NoSuchLedgerMetadataError:
            if only:
                raise
            continue  # deleted since it was listed
        except MetadataFormatError as error:
            unreadable[ledger_id] = str(error)
            continue
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
                count += count_at(metadata, span, index)
    total = metadata.last_entry_id + 1
    byte_count = None
    if metadata.is_closed:
        digest = EntryDigest.of(metadata.digest_type or DigestType.CRC32, b"")
        payload = metadata.length * count // total if total else 0
        byte_count = payload + count * (HEADER_BYTES + digest.byte_count)
    segment = open_segment(metadata)
    is_open_there = segment is not None and any(b in bookies for b in segment.ensemble)
    return Named(metadata, count, byte_count, is_open_there)


async def recover_ledgers(
    tasks: TaskStore,
    repairer: Repairer,
    ledger_ids: Sequence[int],
    owner: str,
    *,
    will_fence: bool,
) -> AsyncIterator[tuple[int, Outcome | None]]:
    """Recover ledgers one by one; yield how each ended.

    One that is locked is tried again at the end, and in the end yielded with None: a worker, a
    collector or another operator has its lock. `owner` stands in our locks; those that an earlier
    call could not give back, in this session, go first. MetadataStoreError.
    """
    for ledger_id, holder in (await tasks.holders(await tasks.locked())).items():
        if holder == owner:
            await tasks.unlock(ledger_id, owner)
    left = list(ledger_ids)
    for number in range(LOCKED_TRIES):
        if number and left:
            await asyncio.sleep(LOCKED_PAUSE_S)
        locked: list[int] = []
        for ledger_id in left:
            outcome = await _recover_locked(
                tasks, repairer, ledger_id, owner, will_fence=will_fence
            )
            if outcome is None:
                locked.append(ledger_id)
            else:
                yield ledger_id, outcome
        left = locked
    for ledger_id in left:
        yield ledger_id, None


async def _recover_locked(
    tasks: TaskStore, repairer: Repairer, ledger_id: int, owner: str, *, will_fence: bool
) -> Outcome | None:
    """Recover a ledger under its lock; None: another has it."""
    entry_count = byte_count = 0
    try:
        while await tasks.lock(ledger_id, owner):
            outcome = await recover_ledger(repairer, ledger_id, will_fence=will_fence)
            entry_count += outcome.entry_count
            byte_count += outcome.byte_count
            # Where the lock was lost with its session a collector may have been at the copies.
            if await tasks.is_lock_held(ledger_id, owner):
                return replace(outcome, entry_count=entry_count, byte_count=byte_count)
        return None
    finally:
        await tasks.unlock(ledger_id, owner)


async def recover_ledger(repairer: Repairer, ledger_id: int, *, will_fence: bool) -> Outcome:
    """Repair a ledger now; an open last segment is fenced at once if will_fence, else left.

    The caller has the ledger's lock.
    """
    outcome = await repairer.repair(ledger_id)
    if outcome.result is Result.OPEN and will_fence:
        again = await repairer.repair(ledger_id, fence=outcome.segment)
        return replace(
            again,
            entry_count=outcome.entry_count + again.entry_count,
            byte_count=outcome.byte_count + again.byte_count,
        )
    return outcome


async def decommission(
    asked: Operations,
    replication: ReplicationOperations,
    cookies: CookieStore,
    bookie_id: BookieId,
    clock: Clock,
    timeout_s: float,
    on_left: Callable[[int], None],
    on_warning: Callable[[str], None],
) -> None:
    """Let AutoRecovery copy what a stopped bookie has, wait for it, and delete its cookie.

    on_left hears how many ledgers name it still, or may; on_warning, why none would be copied.
    IllegalOperationError: it is registered or has a lifecycle state, there is no auditor, ledgers
    name it after timeout_s, or none that is left can be read; it may be repeated.
    """
    await asked.expect_known([bookie_id])
    await asked.expect_forgettable(bookie_id)
    if await replication.auditor() is None or not await replication.tasks.is_enabled():
        raise IllegalOperationError(
            f"bookie {bookie_id}: expected an auditor at work, found none; start `bookie "
            f"autorecovery` (or `bookie replication enable`), or copy its ledgers with `bookie "
            f"bookies recover {bookie_id}` and delete its cookie"
        )
    if warning := await asked.copying_warning([bookie_id]):
        on_warning(warning)
    await replication.tasks.request_audit()
    deadline_s = clock.monotonic() + timeout_s
    while True:
        found = await asked.scanned(bookie_id)
        left = found.naming(bookie_id)
        on_left(len(left))
        if not left:
            break
        if not found.ledgers[bookie_id]:
            ledger_id, reason = next(iter(found.unreadable.items()))
            raise IllegalOperationError(
                f"bookie {bookie_id}: {len(left)} ledgers cannot be read and may name it, the "
                f"first is {ledger_id} ({reason}); mend or delete their metadata, and run it again"
            )
        if clock.monotonic() >= deadline_s:
            raise LedgersLeftError(
                f"bookie {bookie_id}: {len(left)} ledgers still name it after {timeout_s:g} "
                "s; `bookie replication under-replicated` says why. Run it again, or name each "
                f"that is lost: `bookie cookie delete {bookie_id} --accept-loss LEDGER`"
            )
        await asyncio.sleep(_POLL_S)
    cookie = await cookies.read(bookie_id)
    await asked.expect_forgettable(bookie_id)
    if cookie is not None:
        await cookies.delete(bookie_id, cookie[1])
