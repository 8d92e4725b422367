"""Collector: ledgers that metadata no longer knows go, then the logs that hold nothing else.

The order is what makes it safe: the ledgers here are listed FIRST, then those of the metadata, so a
ledger made meanwhile is never taken for a deleted one; before each removal the metadata is asked
once more. When metadata cannot be asked nothing is removed. Logs of which little lives are
compacted: hourly below one share, daily below a larger one. Source: Apache BookKeeper's garbage
collection and its gotchas G17, G18.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Protocol, TypeVar

from bookie.config import BookieConfig
from bookie.errors import BookieError, CorruptFileError, NoSuchLedgerMetadataError
from bookie.server.storage.compaction import Compaction, Switch, live_share
from bookie.server.storage.entry_log import SOURCES_MAX
from bookie.server.storage.ledger_storage import LedgerStorage

_log = logging.getLogger(__name__)
T = TypeVar("T")
_STEP_BYTES = 1024 * 1024


class LedgerList(Protocol):
    """What the collector asks of the metadata; LedgerManager is one."""

    def ledger_ids(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers, in any order."""
        ...

    async def read(self, ledger_id: int) -> object:
        """Return anything, or raise NoSuchLedgerMetadataError when the ledger does not exist."""
        ...


class Collector:
    """Removes ledgers and rewrites logs of one storage; one pass at a time."""

    def __init__(self, storage: LedgerStorage, ledgers: LedgerList, config: BookieConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._storage = storage
        self._ledgers = ledgers
        self._config = config
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._lock = asyncio.Lock()
        self._kept: dict[int, str] = {}
        now = self._loop.time()
        self._minor_at = now + config.minor_compaction_interval_s
        self._major_at = now + config.major_compaction_interval_s

    @property
    def kept_logs(self) -> dict[int, str]:
        """Logs that are damaged or cannot be read whole, and why: neither removed nor compacted."""
        return dict(self._kept)

    def start(self) -> None:
        """Collect every gc_interval_s from now on."""
        self._timer = self._loop.call_later(self._config.gc_interval_s, self._begin)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._pass())

    async def _pass(self) -> None:
        try:
            await self.collect()
            await self._compact_if_due()
        except (BookieError, OSError) as error:
            _log.warning("collection of deleted ledgers ended early: %s", error)
        finally:
            self._task = None
            if not self._is_closed:
                self.start()

    async def _compact_if_due(self) -> None:
        now = self._loop.time()
        config = self._config
        if now >= self._major_at:
            self._major_at = now + config.major_compaction_interval_s
            self._minor_at = now + config.minor_compaction_interval_s
            await self.compact(config.major_compaction_threshold)
        elif now >= self._minor_at:
            self._minor_at = now + config.minor_compaction_interval_s
            await self.compact(config.minor_compaction_threshold)

    async def collect(self) -> list[int]:
        """Remove deleted ledgers and empty logs; return the ids of the ledgers that went."""
        async with self._lock:
            local = await self._storage.local_ledger_ids()  # first
            missing = dict.fromkeys(local)  # the metadata may know many more
            async for ledger_id in self._ledgers.ledger_ids():
                missing.pop(ledger_id, None)
            gone: list[int] = []
            try:
                for ledger_id in missing:
                    if self._is_closed:
                        break
                    try:
                        await self._ledgers.read(ledger_id)
                    except NoSuchLedgerMetadataError:
                        await self._storage.delete_ledger(ledger_id)
                        gone.append(ledger_id)
            finally:  # on a full disk the first removals make the room for the others
                if gone:
                    _log.info("removed %d ledgers that metadata no longer knows", len(gone))
                await self._remove_empty_logs()
            return gone

    async def _remove_empty_logs(self) -> None:
        for number, share, _ in await self._shares():
            if share == 0.0:
                async with self._storage.write_lock:
                    await self._run(partial(self._storage.logs.remove_all, (number,)))

    async def _shares(self) -> list[tuple[int, float, int]]:
        """Return number, live share and bytes of each sealed log whose ledgers are surely known."""
        storage = self._storage
        index = storage.index
        # A flush that fills a log and goes on in the next points to both only in its end. Between
        # two flushes the index has all that these logs hold, and what is new goes to others.
        async with storage.write_lock:
            open_log = storage.flusher.open_log_number
            numbers = [n for n in storage.logs.numbers() if n != open_log]
            live = await self._run(lambda: frozenset(index.ledger_ids()))
        shares: list[tuple[int, float, int]] = []
        for number in numbers:
            if self._is_closed or number in self._kept:
                continue
            try:
                ledger_map = await self._run(partial(storage.logs.ledger_map, number))
            except CorruptFileError as error:
                self._keep(number, str(error))
                continue
            if ledger_map is None:
                if number != storage.flusher.open_log_number:
                    self._keep(number, f"entry log {number}: it has no map of its ledgers")
                continue
            shares.append((number, live_share(ledger_map, live), sum(ledger_map.values())))
        return shares

    def _keep(self, number: int, reason: str) -> None:
        self._kept[number] = reason
        _log.error("entry log %d is kept, whatever is deleted: %s", number, reason)

    async def compact(self, threshold: float) -> int:
        """Rewrite the logs of which less than this share lives; return how many went."""
        async with self._lock:
            removed = 0
            sources: list[int] = []
            live_bytes = 0.0
            for number, share, byte_count in await self._shares():
                if share >= threshold:
                    continue
                size = share * byte_count
                if sources and (
                    live_bytes + size > self._config.entry_log_bytes_max
                    or len(sources) == SOURCES_MAX
                ):
                    removed += await self._compact_safely(sources)
                    sources, live_bytes = [], 0.0
                sources.append(number)
                live_bytes += size
            if sources:
                removed += await self._compact_safely(sources)
            return removed

    async def _compact_safely(self, sources: list[int]) -> int:
        if self._is_closed:
            return 0
        storage = self._storage
        compaction = Compaction(storage.logs, storage.index, sources)
        try:
            while not await self._run(partial(compaction.step, _STEP_BYTES)):
                if self._is_closed:
                    await self._run(compaction.abandon)
                    return 0
                await asyncio.sleep(_STEP_BYTES / self._config.compaction_bytes_per_s)
            await self._run(compaction.seal)
        except CorruptFileError as error:
            await self._run(compaction.abandon)
            # Which of them it is stands in the message; the others are taken up by the next pass.
            for number in sources:
                if f"{number:08d}." in str(error):
                    self._keep(number, str(error))
            return 0
        except OSError as error:
            await self._run(compaction.abandon)
            if len(storage.logs.directories) == 1:
                raise
            # The others are compacted all the same; a directory that cannot be written is avoided.
            _log.warning("entry logs %s could not be compacted: %s", sources, error)
            return 0
        await self._switch(compaction.log_number)
        return len(sources)

    async def _switch(self, number: int) -> None:
        storage = self._storage
        switch = await self._run(partial(Switch, storage.logs, storage.index, number))
        try:
            is_done = False
            while not is_done:
                async with storage.write_lock:
                    is_done = await self._run(switch.step)
            async with storage.write_lock:
                await self._run(switch.finish)
        finally:
            switch.close()

    async def _run(self, job: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._storage.executor, job)

    async def close(self) -> None:
        """End the pass under way at its next step; idempotent."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await self._task
