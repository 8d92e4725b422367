"""LedgerReader: reads and tails one ledger; runs the machines of reader.py, lac.py, tail.py.

One event loop; no other thread may call. A reader of an open ledger follows its metadata: new
ensembles, the end, the deletion. The owner awaits close().
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from bookie.client.read_runners import PollRunner, RangeRunner, query_lac
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
from bookie.ledger import tail as tail_machine
from bookie.ledger.codec import Entry, EntryDigest
from bookie.ledger.types import BookieId, LedgerId, LedgerMetadata
from bookie.metadata.interfaces import Watch

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
        """The calls that wait for news of the metadata."""
        self._runs: dict[RangeRunner, None] = {}
        self._polls: Counter[BookieId] = Counter()
        """Unanswered long polls, those of rounds that are over included."""
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
        run = PollRunner(self._services, self._metadata, machine, wait_ms, self._polls)
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

    async def tail(
        self, first: int = 0, *, is_parallel: bool = False, pace_s: float = 0.0
    ) -> AsyncIterator[Entry]:
        """Yield entries from `first` on as they are confirmed, to the end of a CLOSED ledger.

        pace_s: at least so long between two long polls: entries that come one behind the other are
        read together, which takes less of all. It waits as long as the ledger is open. Errors as
        read(); after one that may be tried again, tail from the entry after the last one yielded.
        """
        next_s = 0.0
        while True:
            if first <= self._lac:
                async for entry in self._entries(first, self._lac):
                    yield entry
                    first = entry.entry_id + 1
                continue
            if self._metadata.is_closed:
                return
            if (pause_s := next_s - self._loop.time()) > 0:
                await asyncio.sleep(pause_s)
            asked_at = self._loop.time()
            next_s = asked_at + pace_s
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
            while self._is_stale and not self._metadata.is_closed:
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
            self._settle()

    def _settle(self) -> None:
        """Tell the owner once the ledger is CLOSED and no call is on the way to its metadata."""
        if self._metadata.is_closed and self._refresh_task is None:
            self.on_settled()

    async def _refresh(self) -> None:
        """Read the metadata and wake the calls that wait for news of it."""
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
            self._settle()
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
