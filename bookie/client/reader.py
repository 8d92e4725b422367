"""LedgerReader: reads and tails one ledger; runs the machines of reader.py, lac.py, tail.py.

One event loop; no other thread may call. A reader of an open ledger follows its metadata: new
ensembles, the end, the deletion. The owner awaits close().
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import NamedTuple

from bookie.client.interfaces import LacReply, ReadReply
from bookie.client.services import Services
from bookie.errors import (
    BookieError,
    ClientClosedError,
    IncorrectParameterError,
    MetadataStoreError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NoSuchLedgerMetadataError,
)
from bookie.ledger import reader as range_machine
from bookie.ledger import tail as tail_machine
from bookie.ledger.codec import Entry, EntryDigest
from bookie.ledger.entry_read import SPECULATION_TICKS
from bookie.ledger.lac import LacQuery
from bookie.ledger.types import BookieId, LedgerId, LedgerMetadata
from bookie.metadata.interfaces import Watch

SPECULATIVE_POLL_S = 1.5
"""Ask the next bookie for news, too, after this long without any."""
_QUIET_PAUSE_S = 0.05
"""Before the next poll when a poll ended at once with nothing."""
_METADATA_PAUSE_S = 1.0


class News(NamedTuple):
    """What a poll brought."""

    lac: int
    """The LAC as the reader knows it now."""
    entry: Entry | None
    """The entry that was asked for, if it is confirmed and came along."""


class LedgerReader:
    """See the module. `version` is the metadata's; follow() watches it."""

    def __init__(
        self,
        services: Services,
        metadata: LedgerMetadata,
        version: int,
        digest: EntryDigest,
        lac: int,
    ) -> None:
        self._services = services
        self._metadata = metadata
        self._version = version
        self._digest = digest
        self._lac = metadata.last_entry_id if metadata.is_closed else lac
        self._loop = asyncio.get_running_loop()
        self._watch: Watch | None = None
        self._refresh_task: asyncio.Task[None] | None = None
        self._is_stale = False
        self._is_deleted = False
        self._is_closed = False
        self._changed: dict[asyncio.Future[None], None] = {}
        """Those who wait for news of the metadata."""
        self._runs: dict[RangeRunner, None] = {}
        self.on_settled: Callable[[], object] = lambda: None
        """Called when there is nothing left to be ended by close()."""

    # --- what is known ----------------------------------------------------------------------------

    @property
    def ledger_id(self) -> LedgerId:
        return self._metadata.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        return self._metadata

    @property
    def lac(self) -> int:
        """The last entry known to be acknowledged; of a CLOSED ledger the last one."""
        return self._lac

    @property
    def is_closed(self) -> bool:
        """The ledger is CLOSED: it ends at `lac`."""
        return self._metadata.is_closed

    @property
    def length(self) -> int | None:
        """Payload bytes of a CLOSED ledger; None while it is not."""
        return self._metadata.length if self._metadata.is_closed else None

    def follow(self) -> None:
        """Watch the metadata until it is CLOSED."""
        if self._watch is None and not self._metadata.is_closed:
            self._watch = self._services.ledgers.watch(self.ledger_id, self._on_metadata_event)
            # It may have been CLOSED after we read it and before we watched.
            self._on_metadata_event()

    # --- reading ----------------------------------------------------------------------------------

    async def read(self, first: int, last: int) -> list[Entry]:
        """Return the entries first to last, both included, in order; all of them or an error.

        For ranges that do not fit into memory there is entries(). Errors: IncorrectParameterError
        beyond the LAC; NoSuchEntryError, NoSuchLedgerError; DigestMismatchError when no replica is
        intact; RequestTimeoutError, BookieUnavailableError (try again).
        """
        self._check_range(first, last)
        return [entry async for entry in self._entries(first, last)]

    def entries(self, first: int, last: int) -> AsyncIterator[Entry]:
        """Yield the same entries as they come, reading ahead within the configured bounds."""
        self._check_range(first, last)
        return self._entries(first, last)

    async def read_unconfirmed(self, first: int, last: int) -> list[Entry]:
        """Read without regard to the LAC: what is there may not be acknowledged, and may vanish."""
        if not 0 <= first <= last:
            raise IncorrectParameterError(f"expected 0 <= first <= last, found {first}, {last}")
        return [entry async for entry in self._entries(first, last)]

    def _check_range(self, first: int, last: int) -> None:
        if not 0 <= first <= last <= self._lac:
            raise IncorrectParameterError(
                f"ledger {self.ledger_id}: expected 0 <= first <= last <= {self._lac} (the last"
                f" entry known to be confirmed), found {first}, {last}"
            )

    async def _entries(self, first: int, last: int) -> AsyncIterator[Entry]:
        is_again = False
        while True:
            self._check_open()
            run = RangeRunner(self._services, self._metadata, self._digest, first, last)
            self._runs[run] = None
            try:
                async for entry in run.entries():
                    first = entry.entry_id + 1
                    yield entry
                return
            except (NoSuchLedgerError, NoSuchEntryError):
                # Deleted meanwhile, or copied elsewhere.
                if is_again or not await self._has_moved():
                    raise
                is_again = True
            finally:
                self._runs.pop(run, None)
                run.close()
                if not self._metadata.is_closed:
                    self._lac = max(self._lac, run.max_lac)

    async def _has_moved(self) -> bool:
        """Read the metadata again; True when it has changed."""
        before = self._version
        try:
            await self._refresh()
        except NoSuchLedgerMetadataError:
            raise
        except BookieError:
            return False
        return self._version != before

    # --- the LAC ----------------------------------------------------------------------------------

    async def read_last_confirmed(self) -> int:
        """Ask the last ensemble for the LAC and return it; of a CLOSED ledger without asking."""
        self._check_open()
        if self._metadata.is_closed:
            return self._lac
        lac = await query_lac(self._services, self._metadata, self._digest)
        if not self._metadata.is_closed:
            self._lac = max(self._lac, lac)
        return self._lac

    async def read_next(
        self, entry_id: int, wait_s: float | None = None, *, is_parallel: bool = False
    ) -> News:
        """Wait until entry_id is confirmed, or wait_s is over, or the ledger is CLOSED.

        Asks by long poll one bookie after another, or all at once. Errors as read().
        """
        if entry_id < 0:
            raise IncorrectParameterError(f"expected entry id >= 0, found {entry_id}")
        self._check_open()
        if entry_id <= self._lac:
            entry = (await self.read(entry_id, entry_id))[0]
            return News(self._lac, entry)
        if self._metadata.is_closed:
            return News(self._lac, None)
        self.follow()
        wait_ms = round((self._services.config.poll_wait_s if wait_s is None else wait_s) * 1000)
        machine = tail_machine.TailPoll(
            self._metadata, self._digest, entry_id, is_parallel=is_parallel
        )
        run = PollRunner(self._services, self._metadata, machine, wait_ms)
        changed: asyncio.Future[None] = self._loop.create_future()
        self._changed[changed] = None
        try:
            await asyncio.wait([run.outcome, changed], return_when=asyncio.FIRST_COMPLETED)
            self._check_open()
            if not run.outcome.done():
                return News(self._lac, None)
            ended = run.outcome.result()
        finally:
            del self._changed[changed]
            changed.cancel()
            run.close()
        if ended.error is not None:
            raise ended.error
        if not self._metadata.is_closed:
            self._lac = max(self._lac, ended.lac)
        return News(self._lac, ended.entry)

    async def tail(self, first: int = 0, *, is_parallel: bool = False) -> AsyncIterator[Entry]:
        """Yield entries from `first` on as they are confirmed, to the end of a CLOSED ledger.

        It waits as long as the ledger is open. Errors as read(); after one that may be tried
        again, tail from the entry after the last one yielded.
        """
        while True:
            if first <= self._lac:
                async for entry in self._entries(first, self._lac):
                    yield entry
                    first = entry.entry_id + 1
                continue
            if self._metadata.is_closed:
                return
            asked_at = self._loop.time()
            news = await self.read_next(first, is_parallel=is_parallel)
            if news.entry is not None:
                yield news.entry
                first += 1
            elif (
                news.lac < first
                and not self._metadata.is_closed
                and self._loop.time() - asked_at < _QUIET_PAUSE_S
            ):
                await asyncio.sleep(_QUIET_PAUSE_S)

    # --- metadata ---------------------------------------------------------------------------------

    def _on_metadata_event(self) -> None:
        self._is_stale = True
        if self._refresh_task is None and not self._is_closed:
            self._refresh_task = self._loop.create_task(self._keep_fresh())

    async def _keep_fresh(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                try:
                    await self._refresh()
                except NoSuchLedgerMetadataError:
                    return
                except MetadataStoreError:
                    self._is_stale = True
                    await asyncio.sleep(_METADATA_PAUSE_S)
        finally:
            self._refresh_task = None

    async def _refresh(self) -> None:
        """Read the metadata and wake those who wait for news of it."""
        try:
            metadata, version = await self._services.ledgers.read(self.ledger_id)
        except NoSuchLedgerMetadataError:
            self._is_deleted = True
            self._wake()
            raise
        if version <= self._version:
            return
        self._metadata, self._version = metadata, version
        if metadata.is_closed:
            self._lac = metadata.last_entry_id
            if self._watch is not None:
                self._watch.close()
                self._watch = None
            self.on_settled()
        self._wake()

    def _wake(self) -> None:
        for changed in list(self._changed):
            if not changed.done():
                changed.set_result(None)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError(f"ledger {self.ledger_id}: this reader was closed")
        if self._is_deleted:
            raise NoSuchLedgerMetadataError(f"ledger {self.ledger_id} was deleted")

    async def close(self) -> None:
        """End reads under way with ClientClosedError; idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        for run in list(self._runs):
            run.end(ClientClosedError(f"ledger {self.ledger_id}: this reader was closed"))
        self._wake()
        task = self._refresh_task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self.on_settled()


class RangeRunner:
    """One range being read. Iterate entries() once; close() in any case."""

    def __init__(
        self,
        services: Services,
        metadata: LedgerMetadata,
        digest: EntryDigest,
        first: int,
        last: int,
    ) -> None:
        config = services.config
        self._services = services
        self._ledger_id = metadata.ledger_id
        self._loop = asyncio.get_running_loop()
        self._machine = range_machine.RangeRead(
            metadata,
            digest,
            first,
            last,
            entries_max=config.read_ahead_max,
            bytes_max=config.read_ahead_bytes_max,
            rank=services.health.rank,
            is_asking_all=config.speculative_read_s == 0,
        )
        self._delivered: deque[Entry] = deque()
        self._ended: range_machine.ReadEnded | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tick_s = config.speculative_read_s / SPECULATION_TICKS

    @property
    def max_lac(self) -> int:
        return self._machine.max_lac

    async def entries(self) -> AsyncIterator[Entry]:
        self._run(self._machine.start())
        if self._tick_s > 0 and self._ended is None:
            self._timer = self._loop.call_later(self._tick_s, self._on_tick)
        while True:
            while self._delivered:
                entry = self._delivered.popleft()
                yield entry
                if self._ended is None:
                    self._run(self._machine.taken(entry))
            if self._ended is not None:
                if self._ended.error is not None:
                    raise self._ended.error
                return
            self._waiter = self._loop.create_future()
            await self._waiter

    def _run(self, actions: list[range_machine.Action]) -> None:
        for action in actions:
            if type(action) is range_machine.AskEntry:
                bookie, entry_id = action
                on_done = partial(self._on_read, bookie, entry_id)
                self._services.channels.read(bookie, self._ledger_id, entry_id, on_done)
            elif type(action) is range_machine.DeliverEntry:
                self._delivered.append(action.entry)
            elif type(action) is range_machine.ReadEnded:
                self._ended = action
            elif type(action) is range_machine.ReportDamage:
                self._services.report_damage(self._ledger_id, action.entry_id, action.bookie)
            elif type(action) is range_machine.ReportSlow:
                self._services.health.note_slow(action.bookie)
        if self._delivered or self._ended is not None:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _on_read(self, bookie: BookieId, entry_id: int, reply: ReadReply) -> None:
        self._run(self._machine.on_reply(bookie, entry_id, reply.status, reply.body, reply.max_lac))

    def _on_tick(self) -> None:
        self._timer = None
        if self._ended is None:
            self._run(self._machine.on_tick())
            self._timer = self._loop.call_later(self._tick_s, self._on_tick)

    def end(self, error: BookieError) -> None:
        """Let the caller get this error instead of more entries."""
        self._delivered.clear()
        self._ended = range_machine.ReadEnded(error)
        self._wake()

    def close(self) -> None:
        if self._ended is None:
            self._ended = range_machine.ReadEnded(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class PollRunner:
    """One long poll under way; `outcome` is done when it has ended. close() in any case."""

    def __init__(
        self,
        services: Services,
        metadata: LedgerMetadata,
        machine: tail_machine.TailPoll,
        wait_ms: int,
    ) -> None:
        self._services = services
        self._ledger_id = metadata.ledger_id
        self._machine = machine
        self._wait_ms = wait_ms
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[tail_machine.PollEnded] = self._loop.create_future()
        self._tick_s = SPECULATIVE_POLL_S / SPECULATION_TICKS
        self._timer = self._loop.call_later(self._tick_s, self._on_tick)
        self._run(machine.start())

    def _run(self, actions: list[tail_machine.Action]) -> None:
        for action in actions:
            match action:
                case tail_machine.Poll(bookie_index, bookie, previous_lac):
                    self._services.channels.read(
                        bookie,
                        self._ledger_id,
                        -1,
                        partial(self._on_reply, bookie_index),
                        previous_lac=previous_lac,
                        wait_ms=self._wait_ms,
                        is_piggyback=True,
                    )
                case tail_machine.PollEnded():
                    self.outcome.set_result(action)
                case range_machine.ReportDamage(bookie, entry_id):
                    self._services.report_damage(self._ledger_id, entry_id, bookie)

    def _on_reply(self, bookie_index: int, reply: ReadReply) -> None:
        if not self.outcome.done():
            self._run(
                self._machine.on_reply(
                    bookie_index, reply.status, reply.entry_id, reply.body, reply.max_lac
                )
            )

    def _on_tick(self) -> None:
        if not self.outcome.done():
            self._run(self._machine.on_tick())
            self._timer = self._loop.call_later(self._tick_s, self._on_tick)

    def close(self) -> None:
        self._timer.cancel()
        self.outcome.cancel()


async def query_lac(services: Services, metadata: LedgerMetadata, digest: EntryDigest) -> int:
    """Ask all of the last ensemble for the LAC, without fencing, until none can hide (G3).

    An open ledger's LAC may be behind its data (G21): -1 while only the first entry is there.
    """
    query = LacQuery(metadata, digest, is_fencing=False)
    decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_reply(index: int, reply: LacReply) -> None:
        is_deciding = query.on_reply(index, reply.status, reply.last_entry_body, reply.lac_body)
        if is_deciding and not decided.done():
            decided.set_result(None)

    for index, bookie in enumerate(query.bookies):
        services.channels.read_lac(bookie, metadata.ledger_id, partial(on_reply, index))
    await decided
    for bookie in query.damaged:
        services.report_damage(metadata.ledger_id, -1, bookie)
    if query.error is not None:
        raise query.error
    # The ensemble began after entries that are acknowledged (G2).
    return max(query.lac, metadata.last_segment.first_entry_id - 1)
