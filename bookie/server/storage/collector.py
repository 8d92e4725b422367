"""Collector: ledgers that metadata no longer knows go, then the logs that hold nothing else.

The order is what makes it safe: the ledgers here are listed FIRST, then those of the metadata, so a
ledger made meanwhile is never taken for a deleted one; before each removal the metadata is asked
once more. When metadata cannot be asked nothing is removed. Logs of which little lives are
compacted: hourly below one share, daily below a larger one; those that the scrub found damaged,
whatever lives in them, once their entries are mended. Source: Apache BookKeeper's garbage
collection and its gotchas G17, G18.

Copies that are not needed any more go, too: those of CLOSED ledgers of which metadata gives this
bookie no part, after a day, and when metadata still says so while no worker can be copying the
ledger. Ledgers in limbo leave it when they are CLOSED and metadata gives this bookie no part.

A metadata store that knows of no ledger as new as those seen here was put back to an older state:
then nothing is removed until an operator says so, whatever the store knows later.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeVar

from bookie.config import BookieConfig
from bookie.errors import (
    BookieError,
    CorruptFileError,
    MetadataFormatError,
    NoSuchLedgerMetadataError,
)
from bookie.server.storage.compaction import Compaction, Switch, live_share
from bookie.server.storage.entry_log import SOURCES_MAX
from bookie.server.storage.entry_reads import raise_of_process
from bookie.server.storage.ledger_storage import LedgerStorage

_log = logging.getLogger(__name__)
T = TypeVar("T")
_STEP_BYTES = 1024 * 1024


class Holding(NamedTuple):
    """What metadata says of one ledger and this bookie."""

    is_closed: bool
    is_member: bool
    """A segment names this bookie."""


CompactionKind = Literal["major", "minor"]


class Compactions:
    """Those of one kind, by time."""

    __slots__ = (
        "count",
        "due_s",
        "interval_s",
        "is_running",
        "is_suspended",
        "last_s",
        "threshold",
    )

    def __init__(self, threshold: float, interval_s: float, now_s: float) -> None:
        self.threshold = threshold
        self.interval_s = interval_s
        self.due_s = now_s + interval_s
        """By the loop's clock."""
        self.is_suspended = False
        """None is begun by time, by an operator's wish."""
        self.is_running = False
        self.count = 0
        """That ended since the start."""
        self.last_s: float | None = None
        """When the last one ended."""


class LedgerList(Protocol):
    """What the collector asks of the metadata (cluster_ledgers.py)."""

    def ledger_ids(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers, in any order."""
        ...

    async def read(self, ledger_id: int) -> Holding:
        """Return what is known.

        NoSuchLedgerMetadataError: there is no such ledger; MetadataFormatError: it cannot be read.
        """
        ...

    async def sync(self) -> None:
        """Make sure that what is read from here on is not older than this call."""
        ...

    async def fresh_id(self) -> int:
        """Return an id that no ledger has had, greater than all that were given out before."""
        ...

    def task_lock(self, ledger_id: int) -> AbstractAsyncContextManager[bool]:
        """Keep workers of AutoRecovery away from a ledger; False: one has it now."""
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
        self._tried: set[int] = set()
        """Damaged logs that compact_damaged() has tried since the last major compaction."""
        self.is_stopped = False
        """The metadata store is older than what is here: nothing is removed."""
        self._unneeded_since: dict[int, float] = {}
        """CLOSED ledgers without a part for us, by the time at which that was seen first."""
        now = self._loop.time()
        self._returned_at = now
        self.compactions: dict[CompactionKind, Compactions] = {
            "major": Compactions(
                config.major_compaction_threshold, config.major_compaction_interval_s, now
            ),
            "minor": Compactions(
                config.minor_compaction_threshold, config.minor_compaction_interval_s, now
            ),
        }

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
            await self.compact_damaged()
            await self._compact_if_due()
        except (BookieError, OSError) as error:
            _log.warning("collection of deleted ledgers ended early: %s", error)
        finally:
            self._task = None
            if not self._is_closed:
                self.start()

    async def _compact_if_due(self) -> None:
        major, minor = self.compactions["major"], self.compactions["minor"]
        now = self._loop.time()
        if now >= major.due_s and not major.is_suspended:
            await self.compact_by("major")
        elif now >= minor.due_s and not minor.is_suspended:
            await self.compact_by("minor")

    async def compact_by(self, kind: CompactionKind) -> None:
        """Compact by the threshold of a kind, due or not; what is major is minor as well."""
        found, now = self.compactions[kind], self._loop.time()
        for one in self.compactions.values() if kind == "major" else (found,):
            one.due_s = now + one.interval_s
        if kind == "major":
            self._kept.clear()  # what was damaged may be mended since
            self._tried.clear()
            await self.compact_damaged()
        found.is_running = True
        try:
            await self.compact(found.threshold)
        finally:
            found.is_running = False
        found.count += 1
        found.last_s = self._loop.time()

    async def collect(self) -> list[int]:
        """Remove deleted and unneeded ledgers, and empty logs; return the ledgers that went."""
        async with self._lock:
            local = await self._storage.local_ledger_ids()  # first
            missing = dict.fromkeys(local)  # the metadata may know many more
            last_id = -1
            async for ledger_id in self._ledgers.ledger_ids():
                missing.pop(ledger_id, None)
                last_id = max(last_id, ledger_id)
            if not await self._is_metadata_recent(last_id, local):
                return []
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
            await self._end_limbo()
            unneeded = await self._collect_unneeded([n for n in local if n not in missing])
            if unneeded:
                _log.info("removed the copies of %d ledgers that others hold", len(unneeded))
                await self._remove_empty_logs()
            return gone + unneeded

    async def _is_metadata_recent(self, last_id: int, local: list[int]) -> bool:
        """Tell whether the store knows of ledgers as new as those seen here; else alarm.

        An older store stays one, after a restart, too: each ledger made since, and each question
        here, takes its generator of ids nearer to those that it has forgotten.
        """
        index = self._storage.index
        is_accepted = self._config.is_older_metadata_accepted
        if not is_accepted and not index.is_metadata_older and not self.is_stopped:
            seen = max(index.highest_ledger_id, *local[-1:], -1)
            if last_id < seen:
                # The newest may have been deleted: the generator of ids never goes back.
                last_id = await self._ledgers.fresh_id()
            if last_id >= seen:
                return True
            _log.critical(
                "the metadata store knows no ledger above %d, and this bookie has seen "
                "ledger %d: it was put back to an older state, and nothing is collected. "
                "Restore the newer metadata; then, or if ledger %d had an id of its own choice and "
                "was deleted, start once with --set is_older_metadata_accepted=true",
                last_id, seen, seen,
            )  # fmt: skip
        elif not is_accepted and not self.is_stopped:
            _log.critical(
                "the metadata store was put back to an older state, as an earlier start saw, and "
                "nothing is collected. Restore the newer metadata, then start once with "
                "--set is_older_metadata_accepted=true"
            )
        self.is_stopped = not is_accepted
        if index.is_metadata_older is is_accepted:
            async with self._storage.write_lock:
                await self._run(partial(index.note_metadata, is_older=not is_accepted))
        return is_accepted

    async def _end_limbo(self) -> None:
        for ledger_id in await self._storage.limbo_ledger_ids():
            if _is_unneeded(await self._holding(ledger_id)):
                self._storage.end_limbo(ledger_id)

    async def _holding(self, ledger_id: int) -> Holding | None:
        try:
            return await self._ledgers.read(ledger_id)
        except NoSuchLedgerMetadataError:  # deleted meanwhile: the next pass takes it
            return None
        except MetadataFormatError as error:  # it may name this bookie; the others are looked at
            _log.warning("ledger %d: its copy is kept: %s", ledger_id, error)
            return None

    async def _collect_unneeded(self, local: list[int]) -> list[int]:
        """Remove copies that have been unneeded for a day; look four times a day."""
        now = self._loop.time()
        if now < self._returned_at:
            return []
        wait_s = self._config.returned_copy_wait_s
        self._returned_at = now + wait_s / 4
        before, self._unneeded_since = self._unneeded_since, {}
        gone: list[int] = []
        for ledger_id in local:
            if self._is_closed:
                break
            if not _is_unneeded(await self._holding(ledger_id)):
                continue
            since = self._unneeded_since[ledger_id] = before.get(ledger_id, now)
            if now - since >= wait_s and await self._remove_unneeded(ledger_id):
                del self._unneeded_since[ledger_id]
                gone.append(ledger_id)
        return gone

    async def _remove_unneeded(self, ledger_id: int) -> bool:
        """Remove a copy unless metadata says otherwise now, or a worker may be copying it here."""
        async with self._ledgers.task_lock(ledger_id) as is_ours:
            if not is_ours:
                return False
            await self._ledgers.sync()
            if not _is_unneeded(await self._holding(ledger_id)):
                return False
            await self._storage.delete_ledger(ledger_id)
            return True

    async def _remove_empty_logs(self) -> None:
        for number, share, _ in await self._shares():
            if share == 0.0:
                async with self._storage.write_lock:
                    await self._run(partial(self._storage.logs.remove_all, (number,)))

    async def _shares(self) -> list[tuple[int, float, int]]:
        """Return number, live share and bytes of each sealed log whose ledgers are surely known."""
        storage = self._storage
        index = storage.index
        numbers = await storage.closed_log_numbers()
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
            except FileNotFoundError:  # a flush that failed took it back
                continue
            except OSError as error:
                raise_of_process(error)
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

    async def compact_damaged(self) -> int:
        """Rewrite the damaged logs of which all that the index locates can be read.

        Whatever lives of them. Returns how many went; the others are tried again by the next major
        compaction.
        """
        async with self._lock:
            storage = self._storage
            numbers = {*await storage.closed_log_numbers(), *storage.logs.numbers("compacted")}
            removed = 0
            for number in list(storage.damaged_logs):
                if number in numbers:
                    if number in self._tried:
                        continue
                    self._tried.add(number)
                    if not await self._compact_safely([number]):
                        continue
                    removed += 1
                storage.damaged_logs.pop(number, None)
                self._kept.pop(number, None)
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
        try:
            await self._switch(compaction.log_number)
        except CorruptFileError as error:  # of the new log: the others stay
            self._keep(compaction.log_number, str(error))
            return 0
        except OSError as error:
            if len(storage.logs.directories) == 1:
                raise
            # The index points to either log of an entry, both are there; the next start goes on.
            _log.warning("entry logs %s could not be replaced yet: %s", sources, error)
            return 0
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


def _is_unneeded(holding: Holding | None) -> bool:
    """Tell whether a ledger is CLOSED, and this bookie no member.

    An open one, or one that is being recovered, may have entries here that count.
    """
    return holding is not None and holding.is_closed and not holding.is_member
