"""LedgerWriter: writes one ledger; runs the machine of bookie/ledger/writer.py on asyncio.

One event loop, the one it was made on; no other thread may call. Callbacks come in the order of the
entries, never from within the call that began them. Entries are acknowledged once an ack quorum
has them durably (with deferred sync: has them). The owner awaits close(), or calls abandon().
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from bookie.client import ledger_store
from bookie.client.interfaces import BytesLike, Channels
from bookie.client.record_batch import RecordBatch
from bookie.config import ClientConfig
from bookie.errors import (
    BookieError,
    IllegalOperationError,
    IncorrectParameterError,
    MetadataStoreError,
)
from bookie.ledger.actions import (
    Action,
    Actions,
    Added,
    Done,
    Failed,
    ReadMetadata,
    SendAdd,
    SendForce,
    SendLac,
    StartTimer,
    Timer,
    WriteMetadata,
    WriterOptions,
)
from bookie.ledger.codec import master_key
from bookie.ledger.ensemble_change import Replacer
from bookie.ledger.record_frame import HEADER_BYTES, LENGTH_BYTES, RecordPositions, frames
from bookie.ledger.types import BookieId, LedgerId, LedgerMetadata, Status
from bookie.ledger.writer import QUORUM_TICKS, Sealer, WriterMachine

OnAdded = Callable[[int, BookieError | None], None]
"""Called with the entry id, or -1 and the error."""
_Question = Callable[[], Coroutine[Any, Any, ledger_store.Answer]]

FRAME_OVERHEAD_BYTES = 256
"""What an entry's frame has beside the payload, at most: ids, digest, master key, framing."""
FRAMES_PER_TURN = 8
"""Frames that append_many makes before it lets others run."""


class Watch(Protocol):
    """A standing interest; close() ends it."""

    def close(self) -> None: ...


class WritableBookies(Protocol):
    """What is needed of a BookieDirectory."""

    @property
    def writable(self) -> tuple[BookieId, ...]:
        """The registered bookies that take writes, sorted."""
        ...

    @property
    def read_only(self) -> tuple[BookieId, ...]:
        """The registered bookies that only answer reads, sorted."""
        ...

    def on_change(self, callback: Callable[[], None]) -> Watch: ...


class LedgerWriter:
    """A handle on a ledger that this client created. See the module."""

    def __init__(
        self,
        channels: Channels,
        ledgers: ledger_store.LedgerStore,
        bookies: WritableBookies,
        placement: Replacer,
        metadata: LedgerMetadata,
        version: int,
        sealer: Sealer,
        config: ClientConfig,
        *,
        is_deferred_sync: bool = False,
        are_ids_given: bool = False,
    ) -> None:
        self._channels = channels
        self._ledgers = ledgers
        self._bookies = bookies
        self._config = config
        self._ledger_id = metadata.ledger_id
        self._master_key = master_key(metadata.password or b"")
        self._is_deferred_sync = is_deferred_sync
        self._are_ids_given = are_ids_given
        self._loop = asyncio.get_running_loop()
        self._machine = WriterMachine(
            metadata,
            version,
            sealer,
            placement,
            bookies.writable,
            WriterOptions(
                pending_adds_max=config.pending_adds_max,
                pending_bytes_max=config.pending_add_bytes_max,
                payload_bytes_max=config.frame_bytes_max - FRAME_OVERHEAD_BYTES,
                ensemble_changes_max=config.ensemble_changes_max,
                is_change_delayed=config.is_ensemble_change_delayed,
                is_deferred_sync=is_deferred_sync,
                are_ids_given=are_ids_given,
                quorum_ticks_max=None if config.add_quorum_timeout_s is None else QUORUM_TICKS,
                is_lac_explicit=config.explicit_lac_interval_s > 0,
            ),
        )
        self._delays = {
            Timer.QUORUM: (config.add_quorum_timeout_s or 0.0) / QUORUM_TICKS,
            Timer.RETRY: config.bookie_retry_s,
            Timer.EXPLICIT_LAC: config.explicit_lac_interval_s,
        }
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._queue: deque[Action] = deque()
        self._is_running = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_admitting = False  # the first waiter was told to go on, and has not run yet
        self._metadata_task: asyncio.Task[None] | None = None
        # Deferred sync: the bookies that acknowledged what no force covers yet, and the number of
        # its connection then. A bookie may lose that by a restart, and would not know when forced.
        self._unforced: dict[BookieId, int] = {}
        self._watch: Watch | None = bookies.on_change(self._on_bookies)

    # --- what is known ----------------------------------------------------------------------------

    @property
    def ledger_id(self) -> LedgerId:
        return self._ledger_id

    @property
    def lac(self) -> int:
        """The last entry that readers may rely on; -1 before the first."""
        return self._machine.lac

    @property
    def length(self) -> int:
        """Payload bytes up to the LAC."""
        return self._machine.length

    @property
    def last_pushed(self) -> int:
        """The greatest entry id given out so far."""
        return self._machine.last_pushed

    @property
    def pending_count(self) -> int:
        """Entries under way."""
        return self._machine.pending_count

    @property
    def metadata(self) -> LedgerMetadata:
        return self._machine.metadata

    @property
    def missing_bookies(self) -> tuple[BookieId, ...]:
        """Members of the ensemble that the ledger is written without, until others are found."""
        return self._machine.missing_bookies

    @property
    def error(self) -> BookieError | None:
        """Why nothing can be added any more; None while it can."""
        return self._machine.error

    # --- adding -----------------------------------------------------------------------------------

    async def add(self, payload: BytesLike, entry_id: int | None = None) -> int:
        """Add one entry and return its id once it is acknowledged. Waits while too much pends.

        Entries are numbered in the order of the calls. entry_id is for handles of given ids.
        Cancelled while it waits for room, it has had no effect; afterwards the entry may be there.
        Errors: LedgerFencedError, LedgerClosedError, WriteError; each says what may be repeated.
        """
        await self._room(entry_id)
        done: asyncio.Future[int] = self._loop.create_future()
        self._run(self._begin(payload, partial(_settle, done), entry_id))
        return await done

    def add_nowait(self, payload: BytesLike, on_done: OnAdded, entry_id: int | None = None) -> None:
        """Begin one entry; on_done is called once. The payload is copied before the return.

        Raises TooManyRequestsError (SAFE) when too much is under way, and what ended the handle.
        """
        self._run(self._machine.add(payload, on_done, entry_id))

    def _begin(self, payload: BytesLike, on_done: OnAdded, entry_id: int | None) -> Actions:
        try:
            return self._machine.add(payload, on_done, entry_id)
        except BookieError:
            self._admit()  # what had room for this one has room for the next that waits
            raise

    async def append_many(self, records: Sequence[BytesLike]) -> RecordPositions:
        """Add records packed into entries, each a record frame, and return their positions.

        In order, though entries of other calls may come between the frames. bookie.ledger's
        record_frame splits what readers get. After an error a first part of the records may be in
        the ledger. IncorrectParameterError, with none of them written, if one is too large.
        """
        if self._are_ids_given:
            raise IllegalOperationError(
                f"ledger {self._ledger_id}: append_many numbers entries, and this handle is given "
                "their ids"
            )
        largest = max(map(len, records), default=0)
        bound = self._config.frame_bytes_max - FRAME_OVERHEAD_BYTES
        if largest > bound - HEADER_BYTES - LENGTH_BYTES:
            raise IncorrectParameterError(
                f"ledger {self._ledger_id}: expected records of at most "
                f"{bound - HEADER_BYTES - LENGTH_BYTES} bytes, found {largest}"
            )
        batch = RecordBatch(self._loop.create_future())
        try:
            for start, frame in frames(records, min(self._config.record_frame_bytes_max, bound)):
                await self._room(None)
                actions = self._begin(frame, batch.on_added, None)
                batch.began(start)
                self._run(actions)
                if batch.done.done():
                    break
                if not len(batch.starts) % FRAMES_PER_TURN:
                    await asyncio.sleep(0)
            batch.end()
            await batch.done
        finally:
            batch.forget()
        return RecordPositions(batch.entry_ids, batch.starts, len(records))

    async def _room(self, entry_id: int | None) -> None:
        """Wait until the window has room, in the order of the calls unless ids are given."""
        machine = self._machine
        is_turn = entry_id is not None or not (self._waiting or self._is_admitting)
        if is_turn and machine.has_room_for(entry_id):
            return
        put = self._waiting.append
        while machine.error is None:
            room: asyncio.Future[None] = self._loop.create_future()
            put(room)
            try:
                await room
            except asyncio.CancelledError:
                if not room.cancelled():  # it was our turn: the next one's now
                    self._is_admitting = False
                    self._admit()
                raise
            self._is_admitting = False
            if machine.has_room_for(entry_id):
                return
            put = self._waiting.appendleft  # an add_nowait was faster

    def _admit(self) -> None:
        """Let the first waiter go on, whose add lets the next one; all, where ids are given."""
        while self._waiting and not self._is_admitting:
            is_free = self._machine.error is not None or self._are_ids_given
            if not is_free and self._machine.is_full:
                return
            room = self._waiting.popleft()
            if not room.done():
                room.set_result(None)
                self._is_admitting = not is_free

    # --- the rest of a handle's life --------------------------------------------------------------

    async def force(self) -> None:
        """Make durable on the whole ensemble what was acknowledged before; moves a deferred LAC.

        WriteError (UNKNOWN) when one of its bookies did not say so, or, with deferred sync, may
        have restarted since it acknowledged an entry.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        self._run(self._machine.force(done))
        await done
        if self.lac == self.last_pushed:
            self._unforced.clear()

    async def write_lac(self) -> None:
        """Tell the bookies the LAC now instead of with the next entry."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._run(self._machine.write_lac(done))
        await done

    async def close(self) -> None:
        """Close the ledger at the LAC; adds under way fail. Idempotent; may be tried again.

        MetadataVersionError: another client closed it elsewhere. LedgerFencedError: another client
        recovers it; open it with recovery to learn where it ends. The handle is over either way.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        self._run(self._machine.close(done))
        self._let_go()
        await done
        task = self._metadata_task
        if task is not None:
            await asyncio.wait([task])

    async def abandon(self) -> None:
        """End the handle and leave the ledger open, for another client to recover. Idempotent.

        Adds under way fail with ClientClosedError (UNKNOWN).
        """
        self._run(self._machine.abandon())
        self._let_go()
        task = self._metadata_task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _let_go(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        while self._waiting:
            room = self._waiting.popleft()
            if not room.done():
                room.set_result(None)

    # --- actions ----------------------------------------------------------------------------------

    def _run(self, actions: Actions) -> None:
        """Carry actions out in order; those of calls from within callbacks come after them."""
        if not actions:
            return
        if self._is_running:
            self._queue.extend(actions)
            return
        self._is_running = True
        try:
            for action in actions:
                self._do(action)
            while self._queue:
                self._do(self._queue.popleft())
        finally:
            self._is_running = False
        if self._watch is not None and self._machine.error is not None:
            self._let_go()  # what is left is close() or abandon()
        elif self._waiting:
            self._admit()

    def _do(self, action: Action) -> None:
        if type(action) is SendAdd:
            self._channels.add(
                action.bookies,
                self._ledger_id,
                action.entry_id,
                self._master_key,
                action.packet,
                partial(self._on_add_reply, action.entry_id),
                is_deferred_sync=self._is_deferred_sync,
            )
        elif type(action) is Added:
            self._tell(action.context, action.entry_id, None)
        elif type(action) is Failed:
            if isinstance(action.context, asyncio.Future):
                if not action.context.done():
                    action.context.set_exception(_copy(action.error))
            else:
                self._tell(action.context, -1, action.error)
        elif type(action) is Done:
            if not action.context.done():
                action.context.set_result(None)
        elif type(action) is WriteMetadata:
            self._ask_store(
                partial(ledger_store.write, self._ledgers, action.metadata, action.version)
            )
        elif type(action) is ReadMetadata:
            self._ask_store(partial(ledger_store.read, self._ledgers, self._ledger_id))
        elif type(action) is StartTimer:
            self._start_timer(action.timer)
        elif type(action) is SendForce:
            for bookie in action.bookies:
                on_done = partial(self._on_force_reply, action.request, bookie)
                self._channels.force(bookie, self._ledger_id, on_done)
        elif type(action) is SendLac:
            for bookie in action.bookies:
                self._channels.write_lac(
                    bookie,
                    self._ledger_id,
                    self._master_key,
                    action.lac,
                    action.packet,
                    partial(self._on_lac_reply, action.request, bookie),
                )

    def _tell(self, on_done: OnAdded, entry_id: int, error: BookieError | None) -> None:
        try:
            on_done(entry_id, error)
        except Exception as raised:  # noqa: BLE001 - a caller's callback must not stop the others
            self._loop.call_exception_handler(
                {"message": "a callback of LedgerWriter.add_nowait raised", "exception": raised}
            )

    def _on_add_reply(self, entry_id: int, bookie: BookieId, status: Status) -> None:
        if self._is_deferred_sync and status is Status.OK:
            self._unforced.setdefault(bookie, self._break_count(bookie))
            status = self._unless_restarted(bookie)
        actions = self._machine.on_add_reply(entry_id, bookie, status)
        if actions:
            self._run(actions)

    def _break_count(self, bookie: BookieId) -> int:
        return self._channels.break_count(bookie, self._ledger_id)

    def _unless_restarted(self, bookie: BookieId) -> Status:
        """Return OK, or UNAVAILABLE when the bookie may have lost what it acknowledged before."""
        count = self._break_count(bookie)
        is_same = self._unforced.get(bookie, count) == count
        return Status.OK if is_same else Status.UNAVAILABLE

    def _on_force_reply(self, request: int, bookie: BookieId, status: Status) -> None:
        if status is Status.OK:
            status = self._unless_restarted(bookie)
        self._run(self._machine.on_force_reply(request, bookie, status))

    def _on_lac_reply(self, request: int, bookie: BookieId, status: Status) -> None:
        self._run(self._machine.on_lac_reply(request, bookie, status))

    def _on_bookies(self) -> None:
        self._run(self._machine.on_bookies(self._bookies.writable, self._bookies.read_only))

    def _start_timer(self, timer: Timer) -> None:
        if self._watch is None:
            return  # the handle has let go
        self._timers[timer] = self._loop.call_later(self._delays[timer], self._on_timer, timer)

    def _on_timer(self, timer: Timer) -> None:
        self._timers.pop(timer, None)
        self._run(self._machine.on_timer(timer))

    # --- metadata ---------------------------------------------------------------------------------

    def _ask_store(self, question: _Question) -> None:
        self._metadata_task = self._loop.create_task(self._answer(question))

    async def _answer(self, question: _Question) -> None:
        try:
            answer = await question()  # made here: a task that is cancelled at once asks nothing
        except Exception as error:  # noqa: BLE001 - a defect: reported, and no caller is left waiting
            message = f"ledger {self._ledger_id}: asking for metadata failed: {error!r}"
            self._loop.call_exception_handler({"message": message, "exception": error})
            answer = MetadataStoreError(message)
        machine = self._machine
        match answer:
            case ledger_store.Written(version):
                self._run(machine.on_metadata_written(version))
            case ledger_store.Found(metadata, version):
                self._run(machine.on_metadata_found(metadata, version))
            case BookieError():
                self._run(machine.on_metadata_failed(answer))


def _settle(done: "asyncio.Future[int]", entry_id: int, error: BookieError | None) -> None:
    if done.done():
        return  # the caller went away
    if error is None:
        done.set_result(entry_id)
    else:
        done.set_exception(_copy(error))


def _copy(error: BookieError) -> BookieError:
    """Return an exception of its own for each waiter, so that tracebacks do not pile up."""
    return type(error)(*error.args)
