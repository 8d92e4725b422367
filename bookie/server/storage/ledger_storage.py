"""LedgerStorage: write caches, ledger states, entry logs, index and read cache behind one API.

On the loop, but for what it hands to the storage executor: flushes, and reads of entry logs with
the index look-ups before them. Only the index's few records of ledgers are read on the loop, when
a ledger is first touched. One flush, collection or compaction at a time changes logs and index
(`write_lock`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from errno import EDQUOT, ENOSPC
from functools import partial
from typing import Any, Protocol, TypeVar

from bookie.config import BookieConfig
from bookie.errors import BookieError, CorruptFileError
from bookie.ledger.types import Status
from bookie.runtime.interfaces import Disk
from bookie.runtime.os_executors import Executor
from bookie.server.interfaces import BytesLike, EntryIndex, LedgerRecord
from bookie.server.storage.directories import space_of
from bookie.server.storage.entry_log import NOT_HERE
from bookie.server.storage.entry_logs import EntryLogs
from bookie.server.storage.entry_reads import locations_of, read_entries
from bookie.server.storage.flush import Flusher, FlushInput
from bookie.server.storage.journal import Journal
from bookie.server.storage.ledger_state import LedgerState
from bookie.server.storage.read_cache import ReadCache
from bookie.server.storage.write_cache import WriteCache

_log = logging.getLogger(__name__)
_STATES_MAX = 65_536
_DIRTY_MAX = 2 * _STATES_MAX
_FENCED_AND_DELETED_MAX = 1_000_000
_READ_AHEAD_MAX = 64
T = TypeVar("T")
OnPacket = Callable[[Status, BytesLike], None]


class OnFlush(Protocol):
    """Called when the write cache is full, and when it has room again."""

    def __call__(self, *, has_room: bool) -> None: ...


class LedgerStorage:
    """Everything a bookie holds; made by recovery.recover(), then start()."""

    def __init__(
        self,
        disk: Disk,
        index: EntryIndex,
        logs: EntryLogs,
        config: BookieConfig,
        executor: Executor | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.disk = disk
        self.index = index
        self.logs = logs
        self.executor = executor
        self.write_lock = asyncio.Lock()
        self.flusher = Flusher(disk, logs, index, config.entry_log_bytes_max)
        self.is_out_of_space = False
        """On a disk, or in memory, because what is there cannot be flushed."""
        self.damaged_reads = 0
        """Reads that found an entry's bytes wrong, since the start."""
        self._config = config
        self._active = WriteCache(config.write_cache_bytes_max)
        self._flushing: WriteCache | None = None
        self._flush_input: FlushInput | None = None
        self._read_cache = ReadCache(config.read_cache_bytes_max)
        self._states: dict[int, LedgerState] = {}
        self._evict_at = _STATES_MAX
        self._dirty: dict[int, LedgerState] = {}
        self._rewritten: dict[tuple[int, int], None] = {}  # in the active cache, and held before
        self._flushing_rewritten: dict[tuple[int, int], None] = {}
        self._flush_count = 0
        self._changes = 0  # of what entry logs hold: what was read before one is not cached
        self._fenced_and_deleted: dict[int, None] = {}
        self._limbo: dict[int, None] | None = None  # not looked for yet
        self._cold: dict[int, list[tuple[int, OnPacket]]] = {}  # reads behind one under way
        self._jobs: dict[asyncio.Future[Any], None] = {}
        self._flush_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._on_read_only: Callable[[], None] = lambda: None
        self._journal: Journal | None = None
        self._on_flush: OnFlush | None = None
        self.on_damaged_read: Callable[[int, int], None] = lambda ledger_id, entry_id: None
        """Called with the ids of an entry that a request could not get from the disk."""
        self.damaged_logs: dict[int, str] = {}
        """Logs that cannot be read from front to end, and why: they are to be compacted."""

    def start(self, journal: Journal, on_read_only: Callable[[], None], on_flush: OnFlush) -> None:
        """Serve: flush by time and size from now on; on_flush after each, with what came of it."""
        self._on_flush = on_flush
        self._journal = journal
        self._on_read_only = on_read_only
        self._set_timer()

    def _set_timer(self) -> None:
        self._timer = self._loop.call_later(self._config.flush_interval_s, self._tick)

    def _tick(self) -> None:
        self._set_timer()
        if self.is_out_of_space or not self._active.is_empty or self._dirty or self._flushing:
            self._flush_soon()

    @property
    def journal(self) -> Journal:
        if self._journal is None:
            raise RuntimeError("ledger storage: it was not started")
        return self._journal

    def space(self) -> tuple[int, int]:
        """Return (total, free) bytes of the ledger directories."""
        return space_of(self.logs.directories)

    def figures(self) -> dict[str, float]:
        """Return what is held and was done, by the names of BookKeeper's metrics."""
        flushing = self._flushing
        return {
            "bookie_journal_JOURNAL_QUEUE_SIZE": self.journal.queue_count,
            "bookie_journal_JOURNAL_QUEUE_BYTES": self.journal.queue_bytes,
            "bookie_journal_JOURNAL_SYNC": self.journal.synced_count,
            "bookie_write_cache_size": self._active.byte_count
            + (0 if flushing is None else flushing.byte_count),
            "bookie_read_cache_size": self._read_cache.byte_count,
            "bookie_flush": self._flush_count,
            "bookie_NUM_OPEN_LEDGERS": len(self._states),
            "bookie_damaged_reads": self.damaged_reads,
            "bookie_failed_ledger_directories": sum(
                directory.failure is not None for directory in self.logs.directories
            ),
        }

    def journal_failed(self, error: OSError | None) -> None:
        """Hear from the journal: it stopped for good, or (None) it finds no space."""
        if error is None:
            self.set_out_of_space(True)
        else:
            _log.critical("the journal failed, this bookie takes no more writes: %s", error)
            self._on_read_only()

    def set_out_of_space(self, is_out_of_space: bool) -> None:
        if self.is_out_of_space != is_out_of_space:
            self.is_out_of_space = is_out_of_space
            if is_out_of_space:
                _log.error(
                    "the disk is full, or cannot be written and the memory for entries is full: "
                    "this bookie takes no more writes until there is space"
                )
            else:
                _log.warning("there is space again: this bookie takes writes")
            self._on_read_only()

    # --- ledgers ---------------------------------------------------------------------------------

    def state_in_memory(self, ledger_id: int) -> LedgerState | None:
        return self._states.get(ledger_id)

    def state(self, ledger_id: int) -> LedgerState:
        """Return the one state of a ledger, loaded if need be; of an unknown one, too."""
        state = self._states.get(ledger_id)
        if state is None:
            last = self.index.last_entry_id(ledger_id)
            state = LedgerState(
                ledger_id, self.index.ledger(ledger_id), -1 if last is None else last
            )
            if len(self._states) >= self._evict_at:
                self._evict()
            self._states[ledger_id] = state
        return state

    def known_state(self, ledger_id: int) -> LedgerState | None:
        """Return the state of a ledger that exists here."""
        state = self._states.get(ledger_id)
        if state is None:
            if ledger_id < 0 or self.index.ledger(ledger_id) is None:
                return None
            state = self.state(ledger_id)
        return state if state.exists else None

    def takes_record(self, state: LedgerState) -> bool:
        """Tell whether a fence or a LAC of this ledger may wait in memory for the next flush.

        Entries are counted by the write cache; of these, the ledgers. Begins a flush if it is time.
        """
        if state.is_dirty:
            return True
        if len(self._dirty) >= _STATES_MAX and self._flushing is None:
            self._swap()
            self._flush_soon()
        return len(self._dirty) < _DIRTY_MAX

    def mark_dirty(self, state: LedgerState) -> None:
        if not state.is_dirty:
            state.is_dirty = True
            self._dirty[state.ledger_id] = state

    def was_fenced_and_deleted(self, ledger_id: int) -> bool:
        return ledger_id in self._fenced_and_deleted

    def _evict(self) -> None:
        """Forget states that the index can give back; nothing of them is under way or unflushed."""
        busy = self._active.ledgers
        flushing = self._flush_input
        in_flush = {ledger_id for ledger_id, _ in flushing.ledgers} if flushing else frozenset()
        in_flush_entries = flushing.entries if flushing else {}
        for ledger_id, state in list(self._states.items()):
            if len(self._states) <= _STATES_MAX // 2:
                break
            is_used = ledger_id in busy or ledger_id in in_flush or ledger_id in in_flush_entries
            if not is_used and not state.is_pinned:
                del self._states[ledger_id]
        self._evict_at = max(_STATES_MAX, 2 * len(self._states))

    # --- entries ---------------------------------------------------------------------------------

    def make_room(self, byte_count: int) -> bool:
        """Tell whether the write cache takes a packet of this size; begin a flush if it is time."""
        active = self._active
        if 2 * active.byte_count >= self._config.write_cache_bytes_max:
            if self._flushing is None:
                self._swap()
                self._flush_soon()
                return self._active.has_room(byte_count)
            return active.has_room(byte_count)
        return True

    def put(self, state: LedgerState, entry_id: int, packet: bytes, crc: int) -> None:
        """Keep an entry, readable at once."""
        ledger_id = state.ledger_id
        self._active.put(ledger_id, entry_id, packet, crc)
        if entry_id > state.last_entry_id:
            state.last_entry_id = entry_id
        else:
            self._rewritten[ledger_id, entry_id] = None

    def unflushed(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return the packet if it is in a write cache: newer than what the index locates."""
        packet = self._active.get(ledger_id, entry_id)
        if packet is None and self._flushing is not None:
            packet = self._flushing.get(ledger_id, entry_id)
        return packet

    def read(self, ledger_id: int, entry_id: int, on_done: OnPacket) -> None:
        """Hand out a packet from memory at once, or from an entry log later; -1: the last one."""
        try:
            state = self.known_state(ledger_id)
        except (OSError, BookieError) as error:
            _log.error("ledger %s cannot be looked up: %s", ledger_id, error)
            return on_done(Status.IO_ERROR, b"")
        if state is None:
            return on_done(Status.NO_LEDGER, b"")
        if entry_id < 0:
            if state.is_in_limbo:  # what is known as the last one may not be it
                return on_done(Status.IO_ERROR, b"")
            entry_id = state.last_entry_id
        if not 0 <= entry_id <= state.last_entry_id:
            return on_done(self._denial(ledger_id), b"")
        packet = self.unflushed(ledger_id, entry_id)
        if packet is None:
            packet = self._read_cache.get(ledger_id, entry_id)
        if packet is not None:
            return on_done(Status.OK, packet)
        if self._is_closed:
            return on_done(Status.IO_ERROR, b"")
        waiting = self._cold.get(ledger_id)
        if waiting is not None:
            waiting.append((entry_id, on_done))  # what is being read ahead may hold it
            return None
        self._cold[ledger_id] = []
        # Reads in order are read ahead for; a single read costs no more than itself.
        is_in_order = state.next_read <= entry_id < state.next_read + _READ_AHEAD_MAX
        state.read_ahead = min(4 * state.read_ahead, _READ_AHEAD_MAX) if is_in_order else 1
        state.next_read = entry_id + state.read_ahead
        job = partial(read_entries, self.index, self.logs, ledger_id, entry_id, state.read_ahead)
        future = self.submit(job)
        future.add_done_callback(
            partial(self._read_done, ledger_id, entry_id, self._changes, on_done)
        )
        return None

    def _denial(self, ledger_id: int) -> Status:
        """Return what is said of an entry that is not here: in limbo nothing is denied."""
        try:
            state = self.known_state(ledger_id)  # it may have been evicted while this was read
        except (OSError, BookieError) as error:
            _log.error("ledger %s cannot be looked up: %s", ledger_id, error)
            return Status.IO_ERROR
        is_in_limbo = state is not None and state.is_in_limbo
        return Status.IO_ERROR if is_in_limbo else Status.NO_ENTRY

    def submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run a job that reads index or logs in the executor; close() waits for it."""
        future = self._loop.run_in_executor(self.executor, job)
        self._jobs[future] = None
        future.add_done_callback(lambda done: self._jobs.pop(done, None))
        return future

    def _read_done(
        self,
        ledger_id: int,
        entry_id: int,
        changes: int,
        on_done: OnPacket,
        future: asyncio.Future[list[tuple[int, int, bytes]]],
    ) -> None:
        waiting = self._cold.pop(ledger_id, [])
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            if isinstance(error, CorruptFileError):
                self.damaged_reads += 1
            _log.error("ledger %s entry %s cannot be read: %s", ledger_id, entry_id, error)
            self._call(on_done, Status.IO_ERROR, b"")
            if isinstance(error, CorruptFileError | OSError):
                self._call(self.on_damaged_read, ledger_id, entry_id)
        else:
            packets = future.result()
            # Entries that were flushed meanwhile may be newer than what was read.
            if self._changes == changes:
                for found in reversed(packets):
                    self._read_cache.put(*found)
            if packets:
                self._call(on_done, Status.OK, packets[0][2])
            else:
                self._call(on_done, self._denial(ledger_id), b"")
        for count, (other_entry_id, other_done) in enumerate(waiting, 1):
            self._call(self.read, ledger_id, other_entry_id, other_done)
            behind = self._cold.get(ledger_id)
            if behind is not None:  # one of them is read from a log: the others wait for that
                behind += waiting[count:]
                break

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """Call; what it raises is reported, and those behind it get their answers."""
        try:
            function(*arguments)
        except Exception as raised:  # noqa: BLE001 - see above
            self._loop.call_exception_handler(
                {"message": "an answer after a read raised", "exception": raised}
            )

    def list_entries(
        self, ledger_id: int, on_done: Callable[[Status, Sequence[int]], None]
    ) -> None:
        """Hand out the ids of all entries held, ascending."""
        state = self.known_state(ledger_id)
        if state is None:
            return on_done(Status.NO_LEDGER, ())
        if state.is_in_limbo:
            return on_done(Status.IO_ERROR, ())
        cached = set(self._active.entry_ids(ledger_id))
        if self._flushing is not None:
            cached.update(self._flushing.entry_ids(ledger_id))

        def listed(future: asyncio.Future[list[int]]) -> None:
            if future.cancelled() or future.exception() is not None:
                _log.error("ledger %s cannot be listed: %s", ledger_id, future)
                on_done(Status.IO_ERROR, ())
            else:
                on_done(Status.OK, future.result())

        index = self.index
        job = self.submit(partial(_entry_ids, index, ledger_id, cached))
        job.add_done_callback(listed)
        return None

    # --- flush -----------------------------------------------------------------------------------

    def _swap(self) -> None:
        """Freeze the active cache with the ledgers that changed; adds go to a new one.

        The position is taken here, on the loop: an entry is in the cache before it is in the
        journal, so all records before the position are in this cache or were flushed.
        """
        active = self._active
        dirty = list(self._dirty.values())
        ledgers = tuple([(state.ledger_id, state.record()) for state in dirty])
        for state in dirty:
            state.is_dirty = False
        self._dirty.clear()
        self._flushing = active
        self._active = WriteCache(self._config.write_cache_bytes_max)
        self._flush_input = FlushInput(active.ledgers, ledgers, self.journal.durable)
        self._flushing_rewritten, self._rewritten = self._rewritten, {}

    def _flush_soon(self) -> None:
        if self._flush_task is None and not self._is_closed:
            self._flush_task = self._loop.create_task(self._flush_safely())

    async def _flush_safely(self) -> None:
        try:
            await self.checkpoint()
        except (OSError, BookieError) as error:
            _log.error("entries could not be flushed, and stay in memory for now: %s", error)
            return
        finally:
            self._flush_task = None
        if self._flushing is not None:
            # What waited for this flush filled the next cache at once: no other caller begins with
            # it.
            self._flush_soon()

    async def checkpoint(self) -> None:
        """Make what is in the caches durable in the entry logs, and move the mark.

        OSError, BookieError: nothing changed, and what was to be flushed is kept for the next time.
        """
        async with self.write_lock:
            if self._flush_input is not None:
                await self._flush()
            if self.journal.failure is None:
                await self.journal.force()  # what is written without fsync, too
            while self._flush_input is not None:  # the cache was full meanwhile, or is again
                await self._flush()
            self._swap()
            await self._flush()
            if self.is_out_of_space:
                _, free = await self._run(self.disk.space)
                needed = 2 * self._config.journal_preallocation_bytes
                if free >= needed:
                    self.set_out_of_space(False)

    async def _run(self, job: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        return await self._loop.run_in_executor(self.executor, job)

    async def _flush(self) -> None:
        work = self._flush_input
        if work is None:
            return
        try:
            await self._loop.run_in_executor(self.executor, partial(self.flusher.flush, work))
        except (OSError, BookieError) as error:
            is_full = isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT)
            # Else adds go on while what waits behind this flush leaves room for them.
            if is_full or 2 * self._active.byte_count >= self._config.write_cache_bytes_max:
                self.set_out_of_space(True)
            if self._on_flush is not None:
                self._on_flush(has_room=False)
            raise
        # An entry added again may be in the read cache as it was before.
        for ledger_id, entry_id in self._flushing_rewritten:
            self._read_cache.drop(ledger_id, entry_id)
        self._flushing_rewritten = {}
        self._flush_count += 1
        self._changes += 1
        self._flushing = None
        self._flush_input = None
        if len(self._states) >= _STATES_MAX:
            self._evict()
        if self._on_flush is not None:
            self._on_flush(has_room=True)

    # --- limbo -----------------------------------------------------------------------------------

    async def limbo_ledger_ids(self) -> list[int]:
        """Return the ids of the ledgers in limbo, ascending; looked for once, a start adds them."""
        if self._limbo is not None:
            return list(self._limbo)
        index = self.index

        def find() -> list[int]:
            found: list[int] = []
            for ledger_id in index.ledger_ids():
                record = index.ledger(ledger_id)
                if record is not None and record.is_in_limbo:
                    found.append(ledger_id)
            return found

        found = await self._loop.run_in_executor(self.executor, find)
        self._limbo = dict.fromkeys(found)
        return found

    async def note_missing(self, ledger_id: int, entry_ids: Sequence[int]) -> None:
        """Deny these entries no more: by metadata they are to be here, and the index has them not.

        Reads of them are I/O errors from now on, until they are put. Durable on return; OSError.
        """
        async with self.write_lock:
            missing = [n for n in entry_ids if self.unflushed(ledger_id, n) is None]
            if not missing:
                return
            state = self.state(ledger_id)
            state.requests += 1  # it stays the one state
            try:
                job = partial(_note_missing, self.index, ledger_id, missing, state.record())
                await self._loop.run_in_executor(self.executor, job)
            finally:
                state.requests -= 1
            state.last_entry_id = max(state.last_entry_id, missing[-1])

    def end_limbo(self, ledger_id: int) -> None:
        """Take a ledger out of limbo that is CLOSED and of which metadata gives us no part.

        It is fenced from now on: its fence may have been lost with the directory. Durable after the
        next flush; before that a crash brings the limbo back.
        """
        state = self.state(ledger_id)
        state.is_in_limbo = False
        state.is_fenced = True
        self.mark_dirty(state)
        if self._limbo is not None:
            self._limbo.pop(ledger_id, None)

    # --- logs ------------------------------------------------------------------------------------

    async def closed_log_numbers(self) -> list[int]:
        """Return the numbers of the logs that do not grow; the index has all that they hold.

        A flush that fills a log and goes on in the next points to both only in its end. Between
        two flushes the index has all that these logs hold, and what is new goes to others.
        """
        async with self.write_lock:
            open_log = self.flusher.open_log_number
            return [n for n in self.logs.numbers() if n != open_log]

    # --- removal of ledgers ----------------------------------------------------------------------

    async def local_ledger_ids(self) -> list[int]:
        """Return the ids of all ledgers held, ascending; those that nothing was flushed of, too."""
        index = self.index
        found = await self._loop.run_in_executor(self.executor, lambda: list(index.ledger_ids()))
        unflushed = [ledger_id for ledger_id, state in self._states.items() if state.exists]
        return sorted({*found, *unflushed})

    async def delete_ledger(self, ledger_id: int) -> None:
        """Forget a ledger that metadata no longer knows. A fence is remembered (G17).

        Needs no flush: a full disk is what collection is waited for.
        """
        async with self.write_lock:
            state = self.state(ledger_id)
            state.requests += 1  # it stays the one state, whatever comes meanwhile (G16)
            try:
                await self._loop.run_in_executor(
                    self.executor, partial(_delete_ledger, self.index, ledger_id)
                )
            finally:
                state.requests -= 1
            if state.is_fenced:
                self._fenced_and_deleted[ledger_id] = None
                if len(self._fenced_and_deleted) > _FENCED_AND_DELETED_MAX:
                    del self._fenced_and_deleted[next(iter(self._fenced_and_deleted))]
            self._states.pop(ledger_id, None)
            self._dirty.pop(ledger_id, None)
            if self._limbo is not None:
                self._limbo.pop(ledger_id, None)
            self._drop_entries(ledger_id)
            for watch in state.take_watches(1 << 63):
                self._loop.call_soon(watch.callback)

    def _drop_entries(self, ledger_id: int) -> None:
        """Take a ledger out of all caches; no flush is under way, but one may have to come."""
        self._active.drop_ledger(ledger_id)
        self._read_cache.drop_ledger(ledger_id)
        self._changes += 1
        work = self._flush_input
        if work is not None and self._flushing is not None:
            self._flushing.drop_ledger(ledger_id)
            ledgers = tuple([row for row in work.ledgers if row[0] != ledger_id])
            self._flush_input = work._replace(ledgers=ledgers)

    async def close(self) -> None:
        """Flush what can be flushed, seal the log, give all files back."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._flush_task is not None:
            await self._flush_task
        try:
            if self.journal.failure is None:
                await self.checkpoint()
                async with self.write_lock:
                    await self._loop.run_in_executor(self.executor, self.flusher.seal)
                    await self._loop.run_in_executor(
                        self.executor, partial(self.flusher.mark, self.journal.durable)
                    )
        except (OSError, BookieError) as error:
            _log.error("the last flush failed, the journal keeps what it did not write: %s", error)
        while self._jobs:
            await asyncio.wait(list(self._jobs))
        self.flusher.close()
        await self.journal.close()
        self.logs.close()


def _entry_ids(index: EntryIndex, ledger_id: int, cached: set[int]) -> list[int]:
    located = [n for n, location in locations_of(index, ledger_id) if location != NOT_HERE]
    return sorted(cached.union(located))


def _note_missing(
    index: EntryIndex, ledger_id: int, entry_ids: Sequence[int], record: LedgerRecord
) -> None:
    is_known = index.ledger(ledger_id) is not None
    locations = [
        (ledger_id, entry_id, NOT_HERE)
        for entry_id in entry_ids
        if index.get(ledger_id, entry_id) is None
    ]
    index.put(locations, () if is_known else [(ledger_id, record)])
    index.sync()


def _delete_ledger(index: EntryIndex, ledger_id: int) -> None:
    index.delete_ledger(ledger_id)
    index.sync()
