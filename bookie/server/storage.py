"""LedgerStorage: write caches, ledger states, entry logs, index and read cache behind one face.

On the loop, but for what it hands to the storage executor: flushes and reads of entry logs.
"""

import asyncio
from collections.abc import Callable, Sequence

from bookie.config import BookieConfig
from bookie.ledger.types import Status
from bookie.runtime.interfaces import Disk
from bookie.runtime.os_executors import Executor
from bookie.server import journal as journals
from bookie.server.interfaces import BytesLike, EntryIndex
from bookie.server.journal import Journal, JournalWriter
from bookie.server.journal_format import DIRECTORY, Kind, Record, read_records, split_record
from bookie.server.ledger_state import LedgerState
from bookie.server.write_cache import WriteCache


class LedgerStorage:
    """Everything a bookie holds; recover() first, then start()."""

    def __init__(
        self, disk: Disk, index: EntryIndex, config: BookieConfig, executor: Executor | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._disk = disk
        self._index = index
        self._config = config
        self._executor = executor
        self._active = WriteCache(config.write_cache_bytes_max)
        self._flushing = WriteCache(config.write_cache_bytes_max)
        self._states: dict[int, LedgerState] = {}
        self._dirty: dict[int, LedgerState] = {}
        self._fenced_and_deleted: dict[int, None] = {}
        self.is_out_of_space = False
        self._on_read_only: Callable[[], None] = lambda: None

    async def recover(self, journal_executor: Executor | None) -> Journal:
        """Replay the journal and begin a new file of it."""
        disk = self._disk
        if not disk.exists(DIRECTORY):
            disk.make_directory(DIRECTORY)
            disk.sync_directory("")
        for _, record in read_records(disk, journals.read_mark(disk)):
            self._replay(record)
        writer = JournalWriter(
            disk, self._config.journal_bytes_max, self._config.journal_preallocation_bytes
        )
        writer.begin(journals.next_number(disk))
        self._journal = Journal(
            writer,
            journal_executor,
            queue_bytes_max=self._config.journal_queue_bytes_max,
            on_failure=self._journal_failed,
        )
        return self._journal

    def _replay(self, record: Record) -> None:
        kind, crc, body = record
        if kind == Kind.ENTRY:
            ledger_id = int.from_bytes(body[:8], "big", signed=True)
            entry_id = int.from_bytes(body[8:16], "big", signed=True)
            lac = int.from_bytes(body[16:24], "big", signed=True)
            state = self.state(ledger_id)
            self.put(state, entry_id, body, crc)
            state.lac = max(state.lac, lac)
            self.mark_dirty(state)
            return
        ledger_id, rest = split_record(body)
        state = self.state(ledger_id)
        if kind == Kind.EXPLICIT_LAC:
            state.set_explicit_lac(rest)
        else:
            state.master_key = rest
            state.is_key_queued = True
            if kind == Kind.FENCE:
                state.is_fenced = state.is_fence_durable = True
        self.mark_dirty(state)

    def start(self, on_read_only: Callable[[], None]) -> None:
        self._on_read_only = on_read_only

    def _journal_failed(self, error: OSError | None) -> None:
        if error is None:
            self.is_out_of_space = True
        self._on_read_only()

    def space(self) -> tuple[int, int]:
        return (0, 0)

    # --- ledgers ---------------------------------------------------------------------------------

    def state_in_memory(self, ledger_id: int) -> LedgerState | None:
        return self._states.get(ledger_id)

    def state(self, ledger_id: int) -> LedgerState:
        """Return the one state of a ledger, loaded if need be; of an unknown one, too."""
        state = self._states.get(ledger_id)
        if state is None:
            last = self._index.last_entry_id(ledger_id)
            state = LedgerState(
                ledger_id, self._index.ledger(ledger_id), -1 if last is None else last
            )
            self._states[ledger_id] = state
        return state

    def known_state(self, ledger_id: int) -> LedgerState | None:
        """Return the state of a ledger that exists here."""
        state = self._states.get(ledger_id)
        if state is None:
            if self._index.ledger(ledger_id) is None:
                return None
            state = self.state(ledger_id)
        return state if state.exists else None

    def mark_dirty(self, state: LedgerState) -> None:
        if not state.is_dirty:
            state.is_dirty = True
            self._dirty[state.ledger_id] = state

    def was_fenced_and_deleted(self, ledger_id: int) -> bool:
        return ledger_id in self._fenced_and_deleted

    # --- entries ---------------------------------------------------------------------------------

    def make_room(self, byte_count: int) -> bool:
        """Tell whether the write cache takes a packet of this size."""
        return self._active.has_room(byte_count)

    def put(self, state: LedgerState, entry_id: int, packet: bytes, crc: int) -> None:
        self._active.put(state.ledger_id, entry_id, packet, crc)
        if entry_id > state.last_entry_id:
            state.last_entry_id = entry_id
        else:
            state.rewrite_count += 1

    def read(
        self, ledger_id: int, entry_id: int, on_done: Callable[[Status, BytesLike], None]
    ) -> None:
        state = self.known_state(ledger_id)
        if state is None:
            return on_done(Status.NO_LEDGER, b"")
        if entry_id < 0:
            entry_id = state.last_entry_id
        if not 0 <= entry_id <= state.last_entry_id:
            return on_done(Status.NO_ENTRY, b"")
        packet = self._active.get(ledger_id, entry_id)
        if packet is None:
            packet = self._flushing.get(ledger_id, entry_id)
        if packet is not None:
            return on_done(Status.OK, packet)
        return on_done(Status.NO_ENTRY, b"")

    def list_entries(
        self, ledger_id: int, on_done: Callable[[Status, Sequence[int]], None]
    ) -> None:
        if self.known_state(ledger_id) is None:
            return on_done(Status.NO_LEDGER, ())
        return on_done(Status.OK, sorted(self._active.entry_ids(ledger_id)))

    async def checkpoint(self) -> None:
        """Make what is in the caches durable in the entry logs, and move the mark."""

    async def close(self) -> None:
        await self._journal.close()
