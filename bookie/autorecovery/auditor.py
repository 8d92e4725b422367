"""Auditor: looks for ledgers with missing copies and publishes them as tasks.

lead() is what the elected one does: it follows the list of bookies, looks for the ledgers of lost
ones when LossWatch says so, and checks all ledgers at intervals: their first and last entries, all
their entries, their placement. It only reads and publishes; workers repair. A bookie is lost when
some ledger names it and it is not registered; one that must be left (`leaving`) is published by
the same look, and is no cause for one.
Every write carries the checks of the vote.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass

from bookie.autorecovery.checking import Fault, LedgerCheck
from bookie.autorecovery.loss_watch import LossWatch
from bookie.autorecovery.repair import Leaving, no_leaving
from bookie.autorecovery.spans import members_of, missing_members
from bookie.autorecovery.tasks import CheckKind, Guard, TaskStore
from bookie.client.client import LedgerClient
from bookie.config import AutoRecoveryConfig
from bookie.errors import (
    CorruptFileError,
    IllegalOperationError,
    MetadataFormatError,
    NoSuchLedgerMetadataError,
)
from bookie.ledger.placement import Adherence, RackAwarePlacement
from bookie.ledger.types import BookieId, LedgerMetadata
from bookie.runtime.interfaces import Clock

_log = logging.getLogger(__name__)
_CLOCK_READ_S = 1.0
"""Between readings of the clock while nothing happens; a change of the bookies wakes it at once."""

FindMissing = Callable[[LedgerMetadata], Awaitable[tuple[BookieId, ...]]]
NextFind = Callable[[], Awaitable[FindMissing]]
"""Asked for once a batch of ledgers."""


@dataclass(slots=True)
class AuditorFigures:
    """Since the start, and as the last check found it."""

    published_count: int = 0
    audit_count: int = 0
    ledger_count: int = 0
    """Of the last audit."""
    unreadable_count: int = 0
    """Ledgers of which the metadata or task cannot be read, or what verifies entries is missing."""
    misplaced_count: int = 0
    """Segments of which some write set lies in one rack."""
    worker_count: int = 0
    """Replication workers that were registered at the last look."""


class Auditor:
    """See the module. Used on one loop."""

    def __init__(
        self,
        client: LedgerClient,
        tasks: TaskStore,
        clock: Clock,
        config: AutoRecoveryConfig,
        leaving: Leaving = no_leaving,
        spared: Leaving = no_leaving,
    ) -> None:
        """spared: those of `leaving` for which no open ledger is fenced."""
        self._client = client
        self._services = client.services
        self._tasks = tasks
        self._clock = clock
        self._config = config
        self._leaving = leaving
        self._spared = spared
        self._news = asyncio.Event()
        self._is_delay_new = False
        self.figures = AuditorFigures()

    async def lead(self, guard: Guard) -> None:
        """Audit until cancelled. Errors: DeposedAuditorError, MetadataStoreError."""
        bookies = self._client.bookies
        now_s = self._clock.monotonic()
        delay_s = await self._tasks.lost_bookie_delay_s()
        watch = LossWatch(self._config.bookie_check_interval_s, delay_s, now_s)
        watches = [
            bookies.on_change(self._news.set),
            self._tasks.watch_delay(self._on_delay),
            self._tasks.watch_switch(self._news.set),
        ]
        # Beside the loop: it may wait for a silent bookie for hours, and another one be lost.
        checks = asyncio.get_running_loop().create_task(self._check_periodically(guard))
        checks.add_done_callback(lambda _: self._news.set())
        try:
            while True:
                self._news.clear()
                if checks.done():
                    checks.result()
                await self._do_due(watch, guard)
                try:
                    async with asyncio.timeout(_CLOCK_READ_S):
                        await self._news.wait()
                except TimeoutError:
                    pass
        finally:
            for one in watches:
                one.close()
            checks.cancel()
            await asyncio.gather(checks, return_exceptions=True)

    def _on_delay(self) -> None:
        self._is_delay_new = True
        self._news.set()

    async def _do_due(self, watch: LossWatch, guard: Guard) -> None:
        """Look for ledgers of lost bookies, if that is due now."""
        if not await self._tasks.is_enabled():
            return
        if self._is_delay_new:
            self._is_delay_new = False
            watch.on_delay(await self._tasks.lost_bookie_delay_s(), self._clock.monotonic())
        watch.on_bookies(await self._lost_bookies(), self._clock.monotonic())
        if self._clock.monotonic() >= watch.due_s:
            watch.looked(await self.audit_bookies(guard), self._clock.monotonic())

    async def _check_periodically(self, guard: Guard) -> None:
        """Check all ledgers at intervals; the errors of lead()."""
        while True:
            if await self._tasks.is_enabled():
                await self._check_what_is_due(guard)
            await asyncio.sleep(_CLOCK_READ_S)

    async def _check_what_is_due(self, guard: Guard) -> None:
        config = self._config
        for kind, interval_s, check in (
            (CheckKind.ALL_LEDGERS, config.ledger_check_interval_s, self.check_ledgers),
            (CheckKind.ENTRIES, config.entry_check_interval_s, self.check_entries),
            (CheckKind.PLACEMENT, config.placement_check_interval_s, self.check_placement),
        ):
            if interval_s and await self._is_due(kind, interval_s):
                await check(guard)
                await self._tasks.set_check_time(kind, self._now_ms(), guard)

    async def _is_due(self, kind: CheckKind, interval_s: float) -> bool:
        # A time further ahead was noted by a clock that went wrong.
        return abs(self._now_ms() - await self._tasks.check_time_ms(kind)) >= interval_s * 1000

    def _now_ms(self) -> int:
        return self._clock.wall_us() // 1000

    async def _lost_bookies(self) -> frozenset[BookieId]:
        """Return the known bookies that are not registered.

        One that must be left and is registered still serves: it is no loss, and the ledgers of
        those that drain are published by their coordinator.
        """
        known = await self._client.bookies.all_known()
        return frozenset(known) - self._client.bookies.registered

    # --- the checks -------------------------------------------------------------------------------

    async def audit_bookies(self, guard: Guard) -> frozenset[BookieId]:
        """Publish every ledger that names a bookie which is not registered, or must be left.

        Return the former: one that was back for a moment is not among them, and stays to do.
        """
        await self._client.bookies.refresh()
        leaving, spared = await self._leaving(), await self._spared()
        known = await self._client.bookies.all_known()
        registered = self._client.bookies.registered

        async def missing(metadata: LedgerMetadata) -> tuple[BookieId, ...]:
            return missing_members(metadata, registered, leaving, spared)

        async def find() -> FindMissing:
            return missing

        count = await self._publish_all(find, guard)
        self.figures.audit_count += 1
        _log.info("audit of bookies: %d ledgers, %d published", self.figures.ledger_count, count)
        return frozenset(known) - registered

    async def check_ledgers(self, guard: Guard) -> None:
        """Publish every ledger of which a bookie lacks the first or last entry of a segment."""
        await self._check(guard, is_every_entry=False)

    async def check_entries(self, guard: Guard) -> None:
        """Publish every ledger of which a bookie does not list an entry that it must have."""
        await self._check(guard, is_every_entry=True)

    async def _check(self, guard: Guard, *, is_every_entry: bool) -> None:
        await self._client.bookies.refresh()

        async def find() -> FindMissing:
            leaving = await self._leaving()

            async def missing(metadata: LedgerMetadata) -> tuple[BookieId, ...]:
                suspects = members_of(metadata) if is_every_entry else ()
                check = LedgerCheck(self._services, metadata, leaving=leaving, suspects=suspects)
                result = await check.run()
                found = [f.bookie for f in result.findings if f.fault is not Fault.LOST]
                return tuple(dict.fromkeys(found))

            return missing

        count = await self._publish_all(find, guard)
        _log.info("check of entries: %d ledgers, %d published", self.figures.ledger_count, count)

    async def check_placement(self, guard: Guard) -> None:
        """Count segments of which a write set lies in one rack; nothing is moved for it."""
        placement = self._services.placement
        if not isinstance(placement, RackAwarePlacement):
            return  # no racks are known
        count = 0
        unreadable: set[int] = set()
        async for metadata in self._metadata_of_all(unreadable):
            for segment in metadata.segments:
                kind = placement.adherence(segment.ensemble, metadata.write_quorum_size)
                count += kind is Adherence.FAIL
        self.figures.misplaced_count = count
        self.figures.unreadable_count = len(unreadable)
        if count:
            _log.warning("placement: %d segments have a write set in one rack", count)

    async def _publish_all(self, find: NextFind, guard: Guard) -> int:
        """Publish each ledger for which some bookies are found; return how many."""
        total = published = 0
        batch: list[LedgerMetadata] = []
        unreadable: set[int] = set()
        async for metadata in self._metadata_of_all(unreadable):
            total += 1
            batch.append(metadata)
            if len(batch) == self._config.ledgers_at_once:
                published += await self._publish(batch, find, guard, unreadable)
                batch = []
        published += await self._publish(batch, find, guard, unreadable)
        self.figures.ledger_count = total
        self.figures.unreadable_count = len(unreadable)
        self.figures.published_count += published
        return published

    async def _publish(
        self,
        batch: Collection[LedgerMetadata],
        find: NextFind,
        guard: Guard,
        unreadable: set[int],
    ) -> int:
        if not batch:
            return 0
        missing_of = await find()

        async def one(metadata: LedgerMetadata) -> bool:
            try:
                missing = await missing_of(metadata)
                if missing:
                    await self._tasks.publish(metadata.ledger_id, missing, self._now_ms(), guard)
            except (IllegalOperationError, CorruptFileError) as error:
                _note_unreadable(metadata.ledger_id, error, unreadable)
                return False
            return bool(missing)

        try:
            async with asyncio.TaskGroup() as group:
                started = [group.create_task(one(metadata)) for metadata in batch]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return sum(task.result() for task in started)

    async def _metadata_of_all(self, unreadable: set[int]) -> AsyncIterator[LedgerMetadata]:
        """Yield the metadata of every ledger, read a few at a time; the others are put aside."""
        batch: list[int] = []
        async for ledger_id in self._services.ledgers.ledger_ids():
            batch.append(ledger_id)
            if len(batch) == self._config.ledgers_at_once:
                for metadata in await self._read(batch, unreadable):
                    yield metadata
                batch = []
        for metadata in await self._read(batch, unreadable):
            yield metadata

    async def _read(
        self, ledger_ids: Collection[int], unreadable: set[int]
    ) -> list[LedgerMetadata]:
        async def one(ledger_id: int) -> LedgerMetadata | None:
            try:
                return (await self._services.ledgers.read(ledger_id))[0]
            except NoSuchLedgerMetadataError:
                return None  # deleted since it was listed
            except MetadataFormatError as error:
                _note_unreadable(ledger_id, error, unreadable)
                return None

        found = await asyncio.gather(*(one(ledger_id) for ledger_id in ledger_ids))
        return [metadata for metadata in found if metadata is not None]


def _note_unreadable(ledger_id: int, error: Exception, unreadable: set[int]) -> None:
    unreadable.add(ledger_id)
    _log.warning("the auditor cannot judge a ledger: %s", error)
