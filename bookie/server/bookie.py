"""Bookie: the rules of one bookie: keys, fences, LACs, limits; what is stored goes to the storage.

Everything here happens on one asyncio loop; the journal's and the storage's executors do what
blocks. The order in an add: rules, limits, write cache (readable from here on), journal, fsync,
answer. A fence is one journal record with the master key and is durable before any answer
(gotcha G6), also for a ledger that was never written to. Entry ids may come twice and in any order;
the last packet counts. Source of the rules: Apache BookKeeper's bookie (docs/formats/journal.md,
docs/protocols).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from struct import Struct
from typing import NamedTuple

from google_crc32c import value

from bookie.config import BookieConfig
from bookie.errors import BookieError
from bookie.ledger.types import Status
from bookie.runtime.interfaces import Clock, Disk, Rng
from bookie.runtime.os_executors import Executor
from bookie.server.interfaces import BytesLike, EntryIndex, OnStatus
from bookie.server.storage.collector import Collector, LedgerList
from bookie.server.storage.directories import LedgerDirectory
from bookie.server.storage.journal import Journal
from bookie.server.storage.journal_format import Kind, Record, record_of
from bookie.server.storage.ledger_state import LAC_PACKET_BYTES_MIN, LacWatch, LedgerState
from bookie.server.storage.ledger_storage import LedgerStorage
from bookie.server.storage.recovery import LostDirectories, recover
from bookie.server.storage.scrubber import Duties, Scrubber

_log = logging.getLogger(__name__)
_HEADER = Struct(">qqq")  # ledger id, entry id, LAC: the front of every entry packet
_PACKET_BYTES_MIN = 32
_LEDGER_ID = Struct(">q")
_MASTER_KEY_BYTES_MAX = 1024
_LAC_PACKET_BYTES_MAX = 256  # with the longest digest 36 are in use; each ledger's is in memory


class Admission(IntEnum):
    """Which adds a bookie takes; of several reasons for one the greatest counts."""

    ALL = 0
    PRIORITY = 1
    """Read-only: those of high priority, which a ledger's recovery sends."""
    PRIORITY_RECOVERY = 2
    """Draining: recovery adds of high priority, or a ledger with this member could not be closed;
    not those of a worker that copies a ledger."""
    NONE = 3
    """Drained, or its state is not known: an add taken now could be lost with the bookie."""


class _HeldAdd(NamedTuple):
    """An add that came while the write caches were full."""

    packet: bytes
    master_key: bytes
    on_done: OnStatus
    is_recovery: bool
    is_deferred_sync: bool
    is_high_priority: bool


class Bookie:
    """BookieService over a disk and an index; made by open()."""

    def __init__(
        self, storage: LedgerStorage, journal: Journal, clock: Clock, config: BookieConfig
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._storage = storage
        self._journal = journal
        self._clock = clock
        self._config = config
        self._admission = Admission.ALL
        self._held: list[_HeldAdd] = []
        self._held_bytes = 0
        self._is_closed = False
        self._on_read_only: list[Callable[[], None]] = []

    @classmethod
    async def open(
        cls,
        disk: Disk,
        index: EntryIndex,
        clock: Clock,
        rng: Rng,
        config: BookieConfig,
        *,
        journal_executor: Executor | None = None,
        storage_executor: Executor | None = None,
        ledgers: Sequence[LedgerDirectory] = (),
        lost: LostDirectories | None = None,
        owner: str = "",
    ) -> "Bookie":
        """Replay the journal and return a bookie that serves.

        `disk` has the journal; `ledgers` the entry logs, by default in the same place. `lost`: a
        ledger directory is gone for good. `owner`: whose index is expected; empty: any bookie's.
        CorruptFileError when something that was fsynced is missing, damaged or another bookie's;
        OSError. The index belongs to the caller, who closes it after close().
        """
        del rng  # nothing here is left to chance
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            storage_executor, partial(recover, disk, index, clock, config, ledgers, lost, owner)
        )
        _log.info("replayed %d journal records", found.replayed_records)
        if found.rebuilt is not None:
            _log.warning(
                "the index was lost, or is an older copy: made anew from %d entry logs, %d entries "
                "of %d ledgers",
                found.rebuilt.logs,
                found.rebuilt.entries,
                found.rebuilt.ledgers,
            )
        if found.limbo_count:
            _log.error(
                "%d ledgers may have had entries on a ledger directory that was lost: they are in "
                "limbo, this bookie denies none of their entries",
                found.limbo_count,
            )
        if found.unsealed_logs:
            _log.error(
                "entry logs %s are damaged, or were given up after a failed write: what can be "
                "read of them is served; they are compacted once all their entries can be read",
                ", ".join(map(str, found.unsealed_logs)),
            )
        storage = LedgerStorage(disk, index, found.logs, config, storage_executor)
        for number in found.unsealed_logs:
            storage.damaged_logs[number] = "found damaged, or without its map, by the start"
        journal = Journal(
            found.writer,
            journal_executor,
            clock,
            queue_bytes_max=config.journal_queue_bytes_max,
            on_failure=storage.journal_failed,
            loop_sync_s_max=config.journal_loop_sync_us / 1e6,
        )
        bookie = cls(storage, journal, clock, config)
        storage.start(journal, bookie._tell_read_only, bookie._let_go)
        return bookie

    async def close(self) -> None:
        """Answer what is under way, flush, and give all files back; idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._let_go(has_room=False)
        await self._storage.close()

    # --- read-only -------------------------------------------------------------------------------

    @property
    def is_read_only(self) -> bool:
        return self._admission is not Admission.ALL or self._storage.is_out_of_space

    @property
    def admission(self) -> Admission:
        """Which adds are taken while there is space."""
        return self._admission

    @property
    def takes_priority(self) -> bool:
        """Tell whether recovery adds of high priority are taken."""
        return self._admission is not Admission.NONE and not self._storage.is_out_of_space

    @property
    def failure(self) -> BaseException | None:
        """Why the journal stopped: no write is taken any more; None while it works."""
        return self._journal.failure

    def set_read_only(self, is_read_only: bool) -> None:
        """Refuse adds from now on, or take them again; high-priority ones pass while they can."""
        self.set_admission(Admission.PRIORITY if is_read_only else Admission.ALL)

    def set_admission(self, admission: Admission) -> None:
        """Take only these adds from now on. Those that were let in before go on."""
        if self._admission is not admission:
            self._admission = admission
            self._tell_read_only()

    def on_read_only_change(self, callback: Callable[[], None]) -> None:
        """Call back when is_read_only or failure may have changed."""
        self._on_read_only.append(callback)

    def _tell_read_only(self) -> None:
        for callback in list(self._on_read_only):
            callback()

    def space(self) -> tuple[int, int]:
        return self._storage.space()

    @property
    def ledger_directories(self) -> Sequence[LedgerDirectory]:
        """Where the entry logs lie."""
        return self._storage.logs.directories

    def figures(self) -> dict[str, float]:
        """Return what journal and storage hold and did, by the names of BookKeeper's metrics."""
        return self._storage.figures()

    # --- writes ----------------------------------------------------------------------------------

    def add(
        self,
        packet: BytesLike,
        master_key: bytes,
        on_done: OnStatus,
        *,
        is_recovery: bool = False,
        is_deferred_sync: bool = False,
        is_high_priority: bool = False,
    ) -> None:
        storage = self._storage
        byte_count = len(packet)
        if byte_count < _PACKET_BYTES_MIN:
            return on_done(Status.BAD_REQUEST)
        ledger_id, entry_id, lac = _HEADER.unpack_from(packet)
        if ledger_id < 0 or entry_id < 0 or byte_count > self._config.frame_bytes_max:
            return on_done(Status.BAD_REQUEST)
        if storage.is_out_of_space or (
            self._admission is not Admission.ALL
            and not self._admits(is_recovery=is_recovery, is_high_priority=is_high_priority)
        ):
            return on_done(Status.READ_ONLY)
        journal = self._journal
        if journal.failure is not None or self._is_closed:
            return on_done(Status.IO_ERROR)
        if not storage.make_room(byte_count):
            again = _HeldAdd(
                bytes(packet), master_key, on_done, is_recovery, is_deferred_sync, is_high_priority
            )
            return self._hold(again)
        if not journal.has_room(byte_count):
            return on_done(Status.TOO_MANY_REQUESTS)
        state = storage.state(ledger_id)
        if state.master_key != master_key and not self._may_bind(state, master_key):
            return on_done(Status.UNAUTHORIZED)
        if not is_recovery:
            if state.is_fenced or storage.was_fenced_and_deleted(ledger_id):
                return on_done(Status.FENCED)
            if state.is_in_limbo:  # it may be fenced: the writer has to take another bookie
                return on_done(Status.IO_ERROR)
        data = packet if type(packet) is bytes else bytes(packet)
        crc = value(data)
        is_synced = not is_deferred_sync and self._config.is_journal_synced
        storage.put(state, entry_id, data, crc)
        if not state.is_key_queued or state.master_key != master_key:
            self._bind(state, master_key, is_synced=is_synced)
        state.requests += 1
        journal.append(
            Record(1, crc, data),
            partial(self._added, state, on_done),
            is_synced=is_synced,
        )
        if lac > state.lac:
            self._advance_lac(state, lac)
        return None

    def _admits(self, *, is_recovery: bool, is_high_priority: bool) -> bool:
        """Tell whether an add of this kind is taken by a bookie that does not take all."""
        if not is_high_priority or self._admission is Admission.NONE:
            return False
        return is_recovery or self._admission is Admission.PRIORITY

    def _hold(self, add: "_HeldAdd") -> None:
        """Let an add wait for the flush that is under way, or refuse it when too much waits."""
        byte_count = len(add.packet)
        if self._held and self._held_bytes + byte_count > self._config.journal_queue_bytes_max:
            return add.on_done(Status.TOO_MANY_REQUESTS)
        self._held.append(add)
        self._held_bytes += byte_count
        return None

    def _let_go(self, *, has_room: bool) -> None:
        """Go on with the adds that waited for a flush; without room refuse them."""
        held, self._held = self._held, []
        self._held_bytes = 0
        for add in held:
            try:
                if has_room:
                    self._add_again(add)
                else:
                    add.on_done(Status.TOO_MANY_REQUESTS)
            except Exception as raised:  # noqa: BLE001 - the others wait for their answers
                self._loop.call_exception_handler(
                    {"message": "an add that waited for a flush raised", "exception": raised}
                )

    def _add_again(self, add: "_HeldAdd") -> None:
        try:
            self.add(
                add.packet,
                add.master_key,
                add.on_done,
                is_recovery=add.is_recovery,
                is_deferred_sync=add.is_deferred_sync,
                is_high_priority=add.is_high_priority,
            )
        except (OSError, BookieError) as error:  # of the index, before there was an answer
            _log.error("an add that waited for a flush failed: %s", error)
            add.on_done(Status.IO_ERROR)

    def _added(self, state: LedgerState, on_done: OnStatus, status: Status) -> None:
        state.requests -= 1
        on_done(status)

    def _may_bind(self, state: LedgerState, master_key: bytes) -> bool:
        return len(master_key) <= _MASTER_KEY_BYTES_MAX and state.accepts(master_key)

    def _bind(self, state: LedgerState, master_key: bytes, *, is_synced: bool) -> None:
        """Take the key of the first touch; it is in the journal before what came with it."""
        state.master_key = master_key
        state.is_key_queued = True
        self._storage.mark_dirty(state)
        record = record_of(Kind.MASTER_KEY, state.ledger_id, master_key)
        self._journal.append(record, None, is_synced=is_synced)
        if self._storage.was_fenced_and_deleted(state.ledger_id) and not state.is_fenced:
            # A recovery add brings it back; the fence comes back with it (G17).
            state.is_fenced = True
            self._journal.append(record_of(Kind.FENCE, state.ledger_id, master_key), None)

    def fence(self, ledger_id: int, master_key: bytes, on_done: OnStatus) -> None:
        if ledger_id < 0:
            return on_done(Status.BAD_REQUEST)
        if self._journal.failure is not None or self._is_closed:
            return on_done(Status.IO_ERROR)
        state = self._storage.state(ledger_id)
        if state.master_key != master_key and not self._may_bind(state, master_key):
            return on_done(Status.UNAUTHORIZED)
        if state.is_fence_durable and state.master_key == master_key:
            return on_done(Status.OK)
        if not self._storage.takes_record(state):
            return on_done(Status.TOO_MANY_REQUESTS)
        # A second fencer waits for a record of its own: the first one's may fail.
        state.master_key = master_key
        state.is_key_queued = True
        state.is_fenced = True
        self._storage.mark_dirty(state)
        state.requests += 1
        self._journal.append(
            record_of(Kind.FENCE, ledger_id, master_key), partial(self._fenced, state, on_done)
        )
        self._wake(state.take_watches(1 << 63))
        return None

    def _fenced(self, state: LedgerState, on_done: OnStatus, status: Status) -> None:
        state.requests -= 1
        if status is Status.OK:
            state.is_fence_durable = True
        on_done(status)

    def write_lac(
        self, ledger_id: int, master_key: bytes, packet: BytesLike, on_done: OnStatus
    ) -> None:
        if ledger_id < 0 or not LAC_PACKET_BYTES_MIN <= len(packet) <= _LAC_PACKET_BYTES_MAX:
            return on_done(Status.BAD_REQUEST)
        if self.is_read_only:
            return on_done(Status.READ_ONLY)
        journal = self._journal
        if journal.failure is not None or self._is_closed:
            return on_done(Status.IO_ERROR)
        state = self._storage.state(ledger_id)
        if not state.exists and self._storage.was_fenced_and_deleted(ledger_id):
            return on_done(Status.NO_LEDGER)
        if state.master_key != master_key and not self._may_bind(state, master_key):
            return on_done(Status.UNAUTHORIZED)
        if state.is_in_limbo:
            return on_done(Status.IO_ERROR)
        if not (journal.has_room(len(packet)) and self._storage.takes_record(state)):
            return on_done(Status.TOO_MANY_REQUESTS)
        if not state.is_key_queued or state.master_key != master_key:
            self._bind(state, master_key, is_synced=self._config.is_journal_synced)
        data = bytes(packet)
        before = state.lac
        state.set_explicit_lac(data)
        self._storage.mark_dirty(state)
        state.requests += 1
        journal.append(
            record_of(Kind.EXPLICIT_LAC, ledger_id, data),
            partial(self._added, state, on_done),
            is_synced=self._config.is_journal_synced,
        )
        if state.lac > before:
            self._wake(state.take_watches(state.lac))
        return None

    def force(self, ledger_id: int, on_done: OnStatus) -> None:
        del ledger_id  # an unknown one is no error, and the journal is one for all
        if self._is_closed:
            return on_done(Status.IO_ERROR)
        return self._journal.append(None, on_done)

    # --- reads -----------------------------------------------------------------------------------

    def read(
        self, ledger_id: int, entry_id: int, on_done: Callable[[Status, BytesLike], None]
    ) -> None:
        if ledger_id < 0 or entry_id < -1:
            return on_done(Status.BAD_REQUEST, b"")
        self._journal.other()
        return self._storage.read(ledger_id, entry_id, on_done)

    def read_lac(
        self, ledger_id: int, on_done: Callable[[Status, BytesLike, BytesLike], None]
    ) -> None:
        state = self._storage.known_state(ledger_id)
        explicit = b"" if state is None else state.explicit_lac

        def on_read(status: Status, packet: BytesLike) -> None:
            if status is Status.OK:
                on_done(Status.OK, explicit, packet)
            elif status in (Status.NO_ENTRY, Status.NO_LEDGER):
                on_done(Status.OK if explicit else Status.NO_ENTRY, explicit, b"")
            else:
                on_done(status, explicit, b"")

        self._storage.read(ledger_id, -1, on_read)

    def list_entries(
        self, ledger_id: int, on_done: Callable[[Status, Sequence[int]], None]
    ) -> None:
        self._storage.list_entries(ledger_id, on_done)

    # --- last add confirmed ----------------------------------------------------------------------

    def last_add_confirmed(self, ledger_id: int) -> int | None:
        state = self._storage.known_state(ledger_id)
        return None if state is None else state.lac

    def watch_lac(self, ledger_id: int, previous_lac: int, callback: Callable[[], None]) -> object:
        watch = LacWatch(ledger_id, previous_lac, callback)
        state = self._storage.known_state(ledger_id)
        if state is None or state.lac > previous_lac or state.is_fenced:
            callback()
            return watch
        if state.watches is None:
            state.watches = []
        state.watches.append(watch)
        return watch

    def forget_watch(self, token: object) -> None:
        if isinstance(token, LacWatch):
            state = self._storage.state_in_memory(token.ledger_id)
            if state is not None and state.watches and token in state.watches:
                state.watches.remove(token)

    def _advance_lac(self, state: LedgerState, lac: int) -> None:
        state.lac = lac
        self._storage.mark_dirty(state)
        if state.watches:
            self._wake(state.take_watches(lac))

    def _wake(self, watches: Sequence[LacWatch]) -> None:
        for watch in watches:
            self._loop.call_soon(watch.callback)

    # --- upkeep ----------------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Flush what is in the write cache and move the journal's mark; OSError, BookieError."""
        await self._storage.checkpoint()

    def collector(self, ledgers: LedgerList) -> Collector:
        """Return a collector of this bookie's deleted ledgers, not started; close it first."""
        return Collector(self._storage, ledgers, self._config)

    def scrubber(self, duties: Duties, disk: Disk, rng: Rng) -> Scrubber:
        """Return what checks and mends this bookie's entries, not started; close it first.

        disk: where it remembers how far it came.
        """
        return Scrubber(self._storage, duties, self.add, disk, self._clock, rng, self._config)

    async def collect(self, ledgers: LedgerList) -> list[int]:
        """Remove what `ledgers` no longer knows, once; return the ids."""
        return await self.collector(ledgers).collect()
