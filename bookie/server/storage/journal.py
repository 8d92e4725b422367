"""Journal: group commit: many adds, one write, one fsync.

What one loop turn appends, and what arrives while the disk is busy, is one batch: written and
fsynced by one executor job, then answered.

Nothing is answered OK before its fsync (deferred: before its write). A record is in the batch of
its append or of a later one, in order. A failed write or fsync is final: what the disk holds is
unknown, a second fsync would deny it, so everything waiting gets IO_ERROR and the journal takes
nothing more (`failure`). Running out of space while room is made for a batch changes nothing that
counts: the batch gets IO_ERROR and the journal goes on when there is space again.

The loop side is Journal; what runs on the journal's executor, one job at a time, is JournalWriter.
Where syncs are fast and few others wait, the loop runs the job itself (ADR 44).
"""

import asyncio
from collections.abc import Callable, Sequence
from errno import EDQUOT, ENOSPC
from functools import partial
from struct import Struct
from typing import NamedTuple

from google_crc32c import value

from bookie.errors import CorruptFileError
from bookie.ledger.types import Status
from bookie.runtime.files import replace_file
from bookie.runtime.interfaces import Clock, Disk, File
from bookie.runtime.os_executors import Executor
from bookie.runtime.short_waits import MEAN_OF, SyncSpeed
from bookie.server.interfaces import OnStatus
from bookie.server.storage.journal_format import (
    BLOCK_BYTES,
    DIRECTORY,
    Kind,
    Position,
    Record,
    batch_pieces,
    encode_batch,
    encode_file_header,
    number_of,
    path_of,
)

_BATCH_BYTES_MAX = 4 * 1024 * 1024
_BATCH_RECORDS_MAX = 16 * 1024
# Zeros ahead spare a sync the commit of metadata. From here on they cost more than they spare:
# every byte is written twice (64 KB entries: 1.4 times as many a second without).
_ALLOCATED_BATCH_BYTES = 64 * 1024
_CACHED_BYTES_MAX = 256 * 1024
_PAGE_BYTES = 4096
_RECORD_OVERHEAD_BYTES = 200
_STREAK = 16  # batches of a bookie before its loop writes one
_ON_LOOP_BYTES_MAX = 64 * 1024
# What others may wait, all together, for the sync of one batch that the loop does.
_OTHERS_WAIT_S = 0.0005
_ZEROS = bytes(1024 * 1024)
_MARK = Struct(">8sIQQIQ")
_MARK_MAGIC = b"bookieM1"
_CRC = Struct(">I")
MARK_PATH = f"{DIRECTORY}/MARK"
_END = (Record(Kind.END, 0, b""),)


class NoRoomError(Exception):
    """The disk is full; nothing of the batch was written."""


class JournalWriter:
    """The open file, in the journal's executor: one call at a time."""

    def __init__(
        self, disk: Disk, clock: Clock, file_bytes_max: int, preallocation_bytes: int
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._file_bytes_max = file_bytes_max
        self._preallocation_bytes = preallocation_bytes
        self._file: File | None = None
        self._next: tuple[int, File] | None = None  # begun, not written to
        self._number = 0
        self._offset = 0
        self._room = 0  # bytes of the file that are there
        self._durable_offset = 0
        self._cached_from = 0  # what is before it need not stay in the system's cache
        self.last_sync_s = 0.0
        """What the newest sync of a batch took."""

    @property
    def durable(self) -> Position:
        """Everything before it is fsynced."""
        return Position(self._number, self._durable_offset)

    def begin(self, number: int) -> Position:
        """Begin the first file of this process; nothing in the journal counts before it."""
        self._enter(number, self._make(number))
        return self.durable

    def _make(self, number: int) -> File:
        """Make a file whose header and name are durable, and fill it with zeros."""
        file = self._disk.open(path_of(number), create=True)
        try:
            file.truncate(0)  # it may be there, begun and not used
            file.write_at(0, encode_file_header(number))
            _fill(file, BLOCK_BYTES, self._preallocation_bytes)
            file.sync()
            self._disk.sync_directory(DIRECTORY)
        except BaseException:
            file.close()
            raise
        return file

    def _enter(self, number: int, file: File) -> None:
        if self._file is not None:
            self._file.close()
        self._file = file
        self._number = number
        self._offset = self._durable_offset = self._cached_from = BLOCK_BYTES
        self._room = max(BLOCK_BYTES, self._preallocation_bytes)

    def is_short(self, byte_count: int) -> bool:
        """Tell whether a batch of that many bytes needs no new file and no room.

        False where its padding might. Not while write() runs.
        """
        return self._offset + byte_count + 2 * BLOCK_BYTES <= min(self._room, self._file_bytes_max)

    def write(self, records: Sequence[Record], *, is_synced: bool) -> Position:
        """Write a batch, fsync it if asked, and return what is durable now.

        NoRoomError: nothing happened. Any other error: what the disk holds is unknown.
        """
        if records:
            pieces = batch_pieces(
                Position(self._number, self._offset), self._durable_offset, records
            )
            byte_count = sum(map(len, pieces))
            if self._offset + byte_count > self._file_bytes_max and self._offset > BLOCK_BYTES:
                self._roll()
                pieces = batch_pieces(Position(self._number, BLOCK_BYTES), BLOCK_BYTES, records)
            self._make_room(byte_count)
            file = self._open_file()
            for piece in pieces:
                file.write_at(self._offset, piece)
                self._offset += len(piece)
        if is_synced and self._durable_offset < self._offset:
            begun_s = self._clock.monotonic()
            self._open_file().sync()
            self.last_sync_s = self._clock.monotonic() - begun_s
            self._durable_offset = self._offset
            if self._offset - self._cached_from >= _CACHED_BYTES_MAX:
                # Only a start reads a journal: new batches may have the memory.
                start = self._cached_from // _PAGE_BYTES * _PAGE_BYTES
                self._open_file().release_cache(start, self._offset - start)
                self._cached_from = self._offset
        return self.durable

    def _make_room(self, byte_count: int) -> None:
        end = self._offset + byte_count + BLOCK_BYTES  # END has to fit, too
        if end <= self._room:
            return
        try:
            if byte_count >= _ALLOCATED_BATCH_BYTES:
                self._open_file().allocate(end)
            else:
                end = max(end, self._room + self._preallocation_bytes)
                _fill(self._open_file(), self._room, end)
        except OSError as error:
            if error.errno in (ENOSPC, EDQUOT):
                raise NoRoomError(str(error)) from error
            raise
        self._room = end  # the length is made durable by the sync of the batch

    def _roll(self) -> None:
        """Go on in the next file. END, and all before it, is durable before anything there."""
        if self._next is None:
            try:
                self._next = (self._number + 1, self._make(self._number + 1))
            except OSError as error:
                if error.errno in (ENOSPC, EDQUOT):
                    raise NoRoomError(str(error)) from error
                raise
        file = self._open_file()
        position = Position(self._number, self._offset)
        file.write_at(self._offset, encode_batch(position, self._durable_offset, _END))
        file.sync()
        number, following = self._next
        self._next = None
        self._enter(number, following)

    def _open_file(self) -> File:
        if self._file is None:
            raise RuntimeError("journal: it is closed")
        return self._file

    def close(self) -> None:
        for file in (self._file, self._next[1] if self._next else None):
            if file is not None:
                file.close()
        self._file = self._next = None


def _fill(file: File, start: int, end: int) -> None:
    while start < end:
        count = min(end - start, len(_ZEROS))
        file.write_at(start, _ZEROS if count == len(_ZEROS) else bytes(count))
        start += count


class Mark(NamedTuple):
    """Where replay starts, and up to where the open entry log is durable and pointed to."""

    position: Position
    log_number: int
    log_bytes: int


def read_mark(disk: Disk) -> Mark | None:
    """Return the mark; None: replay starts at the first file."""
    try:
        data = disk.read(MARK_PATH)
    except FileNotFoundError:
        return None
    if len(data) == _MARK.size + _CRC.size:
        magic, version, file_number, offset, log_number, log_bytes = _MARK.unpack_from(data)
        (crc,) = _CRC.unpack_from(data, _MARK.size)
        if magic == _MARK_MAGIC and version == 1 and crc == value(data[: _MARK.size]):
            return Mark(Position(file_number, offset), log_number, log_bytes)
    raise CorruptFileError(
        f"{MARK_PATH}: expected a mark of version 1, found {data[:64].hex()}; format this bookie "
        f"and let its ledgers be replicated again"
    )


def write_mark(disk: Disk, mark: Mark) -> None:
    """Make the mark durable, in place of the old one."""
    (file_number, offset), log_number, log_bytes = mark
    data = _MARK.pack(_MARK_MAGIC, 1, file_number, offset, log_number, log_bytes)
    replace_file(disk, MARK_PATH, data + _CRC.pack(value(data)))


def drop_before(disk: Disk, mark: Position) -> None:
    """Remove the files that the durable mark made superfluous, the oldest first."""
    for name in disk.list(DIRECTORY):
        number = number_of(name)
        if number is not None and number < mark.file_number:
            disk.unlink(f"{DIRECTORY}/{name}")


def next_number(disk: Disk, mark: Mark | None) -> int:
    """Return a number that no journal file has had."""
    numbers = [n for n in map(number_of, disk.list(DIRECTORY)) if n is not None]
    return max([*numbers, mark.position.file_number if mark else 0]) + 1


class _Waiting(NamedTuple):
    """What one append left in the queue."""

    record: Record | None
    on_done: OnStatus | None
    is_synced: bool


class Journal:
    """The loop side: a queue with a limit, one job in flight."""

    def __init__(
        self,
        writer: JournalWriter,
        executor: Executor | None,
        clock: Clock,
        *,
        queue_bytes_max: int,
        on_failure: Callable[[OSError | None], None],
        loop_sync_s_max: float = 0.0,
    ) -> None:
        """loop_sync_s_max: what syncs may take on the average for the loop to do them; 0: never."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._speed = SyncSpeed(loop_sync_s_max)
        self._batches = 0
        self._others = 0  # since the batch before
        self._others_mean = 0.0  # between two batches
        self._writer = writer
        self._executor = executor
        self._queue_bytes_max = queue_bytes_max
        self._on_failure = on_failure  # None: out of space, for now
        self._queue: list[_Waiting] = []
        self._queue_bytes = 0
        self._in_flight_bytes = 0
        self._in_flight: asyncio.Future[Position] | None = None
        self._is_scheduled = False
        self._idle: list[asyncio.Future[None]] = []
        self.durable = writer.durable
        """Every record before it is fsynced."""
        self.failure: BaseException | None = None
        self.synced_count = 0
        """Fsyncs so far, for the metrics."""

    def has_room(self, byte_count: int) -> bool:
        """Tell whether the queue takes that many bytes more."""
        waiting = self._queue_bytes + self._in_flight_bytes
        return waiting == 0 or waiting + byte_count <= self._queue_bytes_max

    @property
    def queue_bytes(self) -> int:
        return self._queue_bytes + self._in_flight_bytes

    @property
    def queue_count(self) -> int:
        """Appends that wait for the job in flight."""
        return len(self._queue)

    def other(self) -> None:
        """Note a request that waits for no batch, so that the loop's syncs do not delay many."""
        self._others += 1

    def append(
        self, record: Record | None, on_done: OnStatus | None, *, is_synced: bool = True
    ) -> None:
        """Queue a record; on_done comes when it is durable (not is_synced: when it is written).

        Without a record: when everything queued before is.
        """
        if self.failure is not None:
            if on_done is not None:
                on_done(Status.IO_ERROR)
            return
        self._queue.append(_Waiting(record, on_done, is_synced))
        if record is not None:
            self._queue_bytes += len(record.body) + _RECORD_OVERHEAD_BYTES
        if not self._is_scheduled and self._in_flight is None:
            self._start_soon()

    def _start_soon(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._start)

    def _start(self, *, is_in_thread: bool = False) -> None:
        self._is_scheduled = False
        if self._in_flight is not None or not self._queue or self.failure is not None:
            return
        batch, byte_count = self._take()
        self._in_flight_bytes = byte_count
        self._others_mean += (self._others - self._others_mean) / MEAN_OF
        self._others = 0
        records = tuple([w.record for w in batch if w.record is not None])
        is_synced = any(w.is_synced for w in batch)
        job = partial(self._writer.write, records, is_synced=is_synced)
        is_on_loop = not is_in_thread and self._is_for_loop(byte_count)
        self._batches += 1
        if is_on_loop:
            self._write_on_loop(batch, is_synced, job)
            return
        self._in_flight = future = self._loop.run_in_executor(self._executor, job)
        future.add_done_callback(partial(self._written, batch, is_synced))

    def _is_for_loop(self, byte_count: int) -> bool:
        """Tell whether the loop may write a batch: syncs are fast, and few others wait."""
        return (
            self._batches >= _STREAK
            and self._clock.monotonic() >= self._speed.slow_until_s
            and self._others_mean * self._speed.mean_s <= _OTHERS_WAIT_S
            and byte_count <= _ON_LOOP_BYTES_MAX
            and self._writer.is_short(byte_count)
        )

    def _write_on_loop(
        self, batch: list[_Waiting], is_synced: bool, job: Callable[[], Position]
    ) -> None:
        self._in_flight = self._loop.create_future()
        try:
            self.durable = job()
        except Exception as error:  # noqa: BLE001 - as from the executor
            self._ended(batch, error)
        else:
            self._ended(batch, None, is_synced=is_synced)

    def _take(self) -> tuple[list[_Waiting], int]:
        queue = self._queue
        byte_count = self._queue_bytes
        if byte_count <= _BATCH_BYTES_MAX and len(queue) <= _BATCH_RECORDS_MAX:
            self._queue = []
            self._queue_bytes = 0
            return queue, byte_count
        byte_count = count = 0
        for waiting in queue:
            if byte_count >= _BATCH_BYTES_MAX or count >= _BATCH_RECORDS_MAX:
                break
            if waiting.record is not None:
                byte_count += len(waiting.record.body) + _RECORD_OVERHEAD_BYTES
            count += 1
        self._queue = queue[count:]
        self._queue_bytes -= byte_count
        return queue[:count], byte_count

    def _written(
        self, batch: list[_Waiting], is_synced: bool, future: asyncio.Future[Position]
    ) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self.durable = future.result()
        self._ended(batch, error, is_synced=is_synced)

    def _ended(
        self, batch: list[_Waiting], error: BaseException | None, *, is_synced: bool = False
    ) -> None:
        self._in_flight = None
        self._in_flight_bytes = 0
        status = Status.OK
        if error is None:
            if is_synced:
                self.synced_count += 1
                self._speed.note(self._writer.last_sync_s, self._clock.monotonic())
            if self._queue and self._is_for_loop(self._queue_bytes):
                self._start_soon()  # behind the answers
            elif self._queue:
                self._start(is_in_thread=True)  # it works while the answers are sent
        elif isinstance(error, NoRoomError):
            status = Status.IO_ERROR
            self._keep_unanswered(batch)
            self._on_failure(None)
        else:
            status = Status.IO_ERROR
            self.failure = error
            batch = batch + self._queue
            self._queue = []
            self._queue_bytes = 0
            self._on_failure(error if isinstance(error, OSError) else OSError(str(error)))
        for waiting in batch:
            if waiting.on_done is not None:
                try:
                    waiting.on_done(status)
                except Exception as raised:  # noqa: BLE001 - the others wait for theirs
                    self._loop.call_exception_handler(
                        {"message": "an answer after the journal raised", "exception": raised}
                    )
        if self._in_flight is None and (not self._queue or status is not Status.OK):
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.done():
                    waiter.set_result(None)

    def _keep_unanswered(self, batch: list[_Waiting]) -> None:
        """Put back what no caller waits for: the master keys that later entries rely on."""
        kept = [w for w in batch if w.on_done is None]
        self._queue = kept + self._queue
        self._queue_bytes += sum(
            len(w.record.body) + _RECORD_OVERHEAD_BYTES for w in kept if w.record is not None
        )
        if len(self._queue) > len(kept):  # what waits is to be answered, too
            self._start(is_in_thread=True)

    async def force(self) -> Status:
        """Wait until everything appended so far is durable."""
        done: asyncio.Future[Status] = self._loop.create_future()

        def on_done(status: Status) -> None:
            if not done.done():
                done.set_result(status)

        self.append(None, on_done)
        return await done

    async def close(self) -> None:
        """Wait for what is under way, and give the file back."""
        while self._in_flight is not None or self._is_scheduled:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(waiter)
            await waiter
        self._writer.close()
