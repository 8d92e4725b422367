"""FileLog: the commit log of a directory: frames in pre-zeroed files, one fsync for many commits.

append() finds the exact place of every record (file, frame, index), so that positions are known
and room is certain before anything happens; write() and sync() carry the frames there. An
interrupt anywhere leaves either nothing done or something that the next call repeats with the same
bytes at the same offset. After an I/O error the log is `failure` for good: what an fsync lost
cannot be known, and a second fsync would deny it.

Locks, outermost first: _files_lock (make and drop files), _io_lock (write, sync), _mutex (the
queue; held for microseconds).
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Disk
from herdpy.errors import Error, InvariantViolation, LogFailedError
from herdpy.limits import frame_bytes_max, frame_overhead_bytes_max, record_bytes_max
from herdpy.log.file_replay import LogReader, Place
from herdpy.log.frame import (
    ALIGNMENT,
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    encode_frame,
    frame_bytes,
)
from herdpy.log.interfaces import (
    Append,
    LogSpaceError,
    OnDurable,
    OnFailure,
    ReplayHint,
    Syncer,
)
from herdpy.log.log_files import LogFile, LogFileListing, LogFiles
from herdpy.log.record import NOOP
from herdpy.log.syncer import GroupSyncer, InlineSyncer, Measure, SyncThreads, unmeasured
from herdpy.model.lsn import FILE_LEDGER_ID, START_LSN, Lsn

_new: Any = tuple.__new__  # a NamedTuple without the Python function around it, once per append
_MARK_BYTES = frame_bytes(RECORD_OVERHEAD_BYTES + len(NOOP))  # every append leaves room for it


class _Frame(NamedTuple):
    """A whole frame, to be written to _room[slot] at offset."""

    slot: int
    offset: int
    sequence: int
    records: Sequence[bytes]


class _Placed(NamedTuple):
    """The open frame, in _room[slot] at offset, and the log, behind records just appended to it.

    One for each frame that an append reaches: the last one says that the log has taken it.
    """

    slot: int  # -1: no file
    offset: int
    sequence: int
    records: Sequence[bytes]
    payload_bytes: int  # of the frame, as it is so far
    record_count: int
    end: int  # of the frame, as it is so far
    last_lsn: Lsn
    append: Append | None  # the last one that was not a mark of ours
    append_lsn: Lsn
    bytes_appended: int


class _Tail(NamedTuple):
    """What is appended and not taken for writing; adding to queue is the moment of effect."""

    queue: list[_Placed]
    base: _Placed

    @property
    def newest(self) -> _Placed:
        return self.queue[-1] if self.queue else self.base


def _base(slot: int, offset: int, sequence: int, last_lsn: Lsn) -> _Placed:
    """Return the state of a log that ends in an empty frame."""
    return _Placed(slot, offset, sequence, (), 0, 0, offset, last_lsn, None, START_LSN, 0)


_UNREAD = _Tail([], _base(-1, 0, 0, START_LSN))


class FileLog:
    """CommitLog over files of a Disk; made by open(), then replay() once."""

    def __init__(
        self,
        disk: Disk,
        files: LogFiles,
        log_id: bytes,
        known: int,
        slack: int,
        start: Place | None,
        threads: SyncThreads | None,
        measure: Measure,
    ) -> None:
        self._disk = disk
        self._log_id = log_id
        self._known_durable_sequence = known
        self._start = start
        self._slack_bytes = slack  # kept free for urgent appends
        self._threads = threads
        self._measure = measure
        self._syncer: GroupSyncer | None = None
        # Under _files_lock; _room only grows, at its end.
        self._files_lock = new_mutex()
        self._files = files
        self._room: list[LogFile] = []  # the files of this process, in the order of use
        self._bytes_wanted = 0  # by the last append refused
        # Under _mutex; replaced by one assignment, read without.
        self._mutex = new_mutex()
        self._tail = _UNREAD
        self.bytes_appended = 0  # as the newest append knows it; an interrupt may leave it behind
        # Under _io_lock; read without.
        self._io_lock = new_mutex()
        self._in_flight: _Tail | None = None  # taken, perhaps written, not yet known as written
        self._dirty: LogFile | None = None  # has writes that are not synced; one file at a time
        self._written_slot = -1
        self._recorded_sequence = 0  # the highest durable_sequence that stands in a written frame
        self.written_lsn = START_LSN
        self.durable_lsn = START_LSN
        self.failure: Error | None = None
        self._is_closed = False

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        *,
        log_id: bytes,
        files: Sequence[tuple[int, int, bytes]],
        known_durable_sequence: int,
        listing: LogFileListing,
        first_file_bytes: int,
        max_file_bytes: int,
        hint: bytes = b"",
        threads: SyncThreads | None = None,
        measure: Measure = unmeasured,
    ) -> "FileLog":
        """Return the log of an existing directory; files are those listed.

        Of each: its number, its first sequence and its id.

        `hint` is the data of a former replay_hint. Without threads commits sync in their own
        thread. Reads no file yet: replay() does. The handle that had `listing` before is stopped.
        """
        if len(log_id) != 16:
            raise InvariantViolation(f"log id: expected 16 bytes, found {len(log_id)}")
        log_files = LogFiles(
            disk,
            directory,
            listing,
            files,
            first_file_bytes=first_file_bytes,
            max_file_bytes=max_file_bytes,
        )
        slack = min(frame_overhead_bytes_max, first_file_bytes // 4)
        start = Place.of_hint(hint)
        self = cls(disk, log_files, log_id, known_durable_sequence, slack, start, threads, measure)
        listing.take_over(self._stop)
        return self

    def _stop(self) -> None:
        """Fail for good: another handle is about to read the files, and to write them then."""
        with self._files_lock, self._io_lock:
            if not self._is_closed and self.failure is None:
                self.failure = LogFailedError(
                    "the log was opened anew; the fate of unanswered commits is decided there"
                )

    @property
    def last_lsn(self) -> Lsn:
        return self._tail.newest.last_lsn

    @property
    def failed_after(self) -> Lsn | None:
        """What never was in flight: no byte of it was given to the system, or ever will be."""
        if self.failure is None:
            return None
        flight = self._in_flight
        return self.written_lsn if flight is None else flight.newest.last_lsn

    @property
    def entry_count(self) -> int:
        return self.last_lsn.entry_id

    @property
    def replay_hint(self) -> ReplayHint | None:
        newest = self._tail.newest
        if newest.slot < 0:
            return None
        file = self._room[newest.slot]
        place = Place(file.number, newest.offset, newest.sequence, file.byte_count)
        return ReplayHint(place.behind, place.to_hint())

    def start(self, on_durable: OnDurable, on_failure: OnFailure) -> Syncer:
        if self._threads is None:
            return InlineSyncer(self, on_durable, on_failure, self._measure)
        self._syncer = GroupSyncer(self, self._threads, on_durable, on_failure, self._measure)
        return self._syncer

    def replay(self, after: Lsn) -> Iterator[tuple[Lsn, bytes]]:
        if self._tail is not _UNREAD:
            raise InvariantViolation("file log: replay() comes once, before the first append")
        files = self._files.files
        reader = LogReader(
            self._disk,
            files,
            log_id=self._log_id,
            after=after,
            known_durable_sequence=self._known_durable_sequence,
            start=self._start,
        )
        yield from reader.records()
        self._files.listing.harden()  # from here on what was read is acted upon
        if reader.unproven:
            self._harden(reader)
        self._files.adopt_leftovers()
        self.written_lsn = self.durable_lsn = reader.last_lsn
        self._tail = _Tail([], _base(-1, 0, reader.next_sequence, reader.last_lsn))

    def _harden(self, reader: LogReader) -> None:
        """Make durable the tail that replay accepted: readers are going to see it.

        Written again before the sync: if an earlier process saw its fsync fail, the cache shows
        frames that the disk never got, and believes them clean.
        """
        path = reader.unproven[0][1].path  # all are in the last file that has frames
        try:
            handle = self._disk.open(path)
            try:
                for _, _, offset, end in reader.unproven:
                    handle.write_at(offset, handle.read_at(offset, end - offset))
                handle.sync()
            finally:
                handle.close()
        except OSError as error:
            self.failure = _failed(error, path)
            raise self.failure from error

    def append(self, append: Append, *, is_urgent: bool = False) -> None:
        records = append.records
        size = len(records[0]) if len(records) == 1 else max(map(len, records), default=-1)
        if not 0 <= size <= record_bytes_max:
            raise InvariantViolation(
                f"file log: expected records of at most {record_bytes_max} bytes, found "
                f"{max(map(len, records), default='none')}"
            )
        with self._mutex:
            queue, base = self._tail
            slot, offset, sequence, _, payload_bytes, count, _, _, known, lsn, total = placed = (
                queue[-1] if queue else base
            )
            if known is not append:
                if self.failure is not None or self._is_closed or base is _UNREAD.base:
                    self._check_usable()
                slack = _MARK_BYTES if is_urgent else self._slack_bytes
                room = self._room
                payload_bytes += RECORD_OVERHEAD_BYTES + size
                end = offset + HEADER_BYTES + ((payload_bytes + ALIGNMENT - 1) & -ALIGNMENT)
                if (
                    len(records) == 1  # nearly always: one more in the open frame, as _place() does
                    and slot >= 0
                    and end - offset <= frame_bytes_max
                    and end + (slack if slot + 1 == len(room) else 0) <= room[slot].byte_count
                ):
                    lsn = _new(Lsn, (FILE_LEDGER_ID, sequence, count))
                    total += size
                    frame = (slot, offset, sequence, records, payload_bytes, count + 1, end)
                    queue.append(_new(_Placed, (*frame, lsn, append, lsn, total)))
                else:
                    pieces = self._place(placed, records, append, slack)
                    lsn, total = pieces[-1].append_lsn, pieces[-1].bytes_appended
                    queue += pieces  # the moment of effect, as above
            append.lsn = lsn
            self.bytes_appended = total

    def has_taken(self, append: Append) -> bool:
        with self._mutex:
            return self._tail.newest.append is append

    def _place(
        self, before: _Placed, records: Sequence[bytes], append: Append | None, slack: int
    ) -> list[_Placed]:
        """Return the states after appending records; LogSpaceError when they do not fit.

        Without an append they are a mark of ours.
        """
        slot, offset, sequence, _, payload_bytes, count, end, lsn, *_ = before
        room = self._room
        file_bytes = room[slot].byte_count if slot >= 0 else 0
        placed: list[_Placed] = []
        piece: list[bytes] = []
        total = before.bytes_appended

        def put() -> None:
            nonlocal piece
            frame = (slot, offset, sequence, piece, payload_bytes, count, end)
            placed.append(_Placed(*frame, lsn, before.append, before.append_lsn, total))
            piece = []

        for record in records:
            grown = payload_bytes + RECORD_OVERHEAD_BYTES + len(record)
            while frame_bytes(grown) > min(frame_bytes_max, file_bytes - offset):
                if count:  # seal the frame
                    if piece:
                        put()
                    offset = end
                    sequence += 1
                    payload_bytes = count = 0
                else:
                    slot += 1
                    if slot >= len(room):
                        self._bytes_wanted = self._bytes_for(records)
                        raise LogSpaceError
                    file_bytes = room[slot].byte_count
                    offset = 0
                grown = RECORD_OVERHEAD_BYTES + len(record)
            piece.append(record)
            payload_bytes = grown
            end = offset + frame_bytes(payload_bytes)
            lsn = Lsn(FILE_LEDGER_ID, sequence, count)
            count += 1
            total += len(record)
        put()
        if file_bytes - end < slack and slot + 1 >= len(room):
            self._bytes_wanted = self._bytes_for(records)
            raise LogSpaceError
        if append is not None:
            placed[-1] = placed[-1]._replace(append=append, append_lsn=lsn)
        return placed

    def _bytes_for(self, records: Sequence[bytes]) -> int:
        """Return the length of a file that surely takes the records and leaves the slack."""
        payload_bytes = sum(map(len, records)) + RECORD_OVERHEAD_BYTES * len(records)
        # A frame is sealed only when it is at least this full, or at its end.
        frames = payload_bytes // (frame_bytes_max - record_bytes_max - 2 * HEADER_BYTES) + 2
        return payload_bytes + frames * frame_bytes(1) + self._slack_bytes

    def prepare(self, byte_count: int, file_bytes_max: int | None = None) -> None:
        with self._files_lock:
            self._check_usable()
            wanted = max(self._bytes_wanted, self._bytes_for((b"",)) + byte_count * 9 // 8)
            newest = self._tail.newest
            if any(file.byte_count >= wanted for file in self._room[newest.slot + 1 :]):
                return
            if newest.slot >= 0 and self._room[newest.slot].byte_count - newest.end >= wanted:
                return
            first_sequence = self.durable_lsn.entry_id + 1
            file = self._files.begin(wanted, first_sequence, bytes_max=file_bytes_max)
            self._room.append(file)  # the moment of effect
            self._bytes_wanted = 0

    def free_spares(self) -> bool:
        with self._files_lock:
            return self._files.free_spares()

    def write(self) -> None:
        self.sync(is_write_only=True)

    def sync(self, *, is_write_only: bool = False) -> None:
        """Write, and sync, what is appended; an OSError becomes `failure`.

        The outer handler is for an interrupt that comes between the OSError and the note of it.
        """
        with self._io_lock:
            if self.failure is not None or self._is_closed or self._tail is _UNREAD:
                self._check_usable()
            outer = sys.exception()
            try:
                try:
                    is_left = self._in_flight is not None  # by an interrupt
                    self._write_queue()
                    if is_left:
                        self._write_queue()
                    if not is_write_only:
                        if self._dirty is not None:
                            self._sync_dirty()
                        self.durable_lsn = self.written_lsn
                except OSError as error:
                    self.failure = _failed(error, self._dirty.path if self._dirty else "?")
                    raise self.failure from error
            except BaseException as error:
                context = error.__context__
                if self.failure is None and isinstance(context, OSError) and context is not outer:
                    self.failure = _failed(context, "?")
                raise

    def mark(self) -> None:
        """Say on disk, in a frame of its own, that all frames before it are durable."""
        placed = self._tail.newest
        said = placed.append_lsn.entry_id
        if self._recorded_sequence >= said or self.durable_lsn.entry_id < said:
            return
        with self._mutex, suppress(LogSpaceError):  # after an interrupted mark
            self._check_usable()
            newest = self._tail.newest
            if newest is not placed and newest.append is not placed.append:
                return  # not idle: the next frame will say it
            self._tail.queue.extend(self._place(newest, (NOOP,), None, 0))
        self.sync()

    def _write_queue(self) -> None:
        """Put the queue in flight, seal the open frame, and write what is in flight.

        Only what an interrupt left in flight, if there is such.
        """
        with self._mutex:
            tail = self._tail
            if self._in_flight is None and tail.queue:
                self._in_flight = tail
            if self._in_flight is tail:
                newest = tail.queue[-1] if tail.queue else tail.base
                slot, _, sequence, _, _, _, end, *log = newest
                base = _new(_Placed, (slot, end, sequence + 1, (), 0, 0, end, *log))
                self._tail = _new(_Tail, ([], base))
        flight = self._in_flight
        if flight is None:
            return
        frames: list[_Frame] = []
        records: list[bytes] = []  # of the last frame
        last = -1  # its sequence
        for placed in flight.queue:
            if placed.sequence == last:
                records += placed.records
            else:
                records, last = list(placed.records), placed.sequence
                frames.append(_new(_Frame, (placed.slot, placed.offset, last, records)))
        durable_sequence = self.durable_lsn.entry_id
        start, count = 0, len(frames)
        while start < count:
            slot = frames[start].slot
            file = self._room[slot]
            stop = start
            encoded: list[bytes] = []
            while stop < count and (frame := frames[stop]).slot == slot:
                encoded.append(
                    encode_frame(
                        frame.records,
                        log_id=self._log_id,
                        file_id=file.file_id,
                        file_number=file.stamp,
                        file_bytes=file.byte_count,
                        offset=frame.offset,
                        sequence=frame.sequence,
                        durable_sequence=durable_sequence,
                    )
                )
                stop += 1
            # A frame in this file proves the file before it whole.
            if self._dirty is not None and self._dirty is not file:
                self._sync_dirty()
            self._dirty = file
            if file.handle is None:
                raise InvariantViolation(f"log file {file.path}: it is not open for writing")
            data = encoded[0] if len(encoded) == 1 else b"".join(encoded)
            file.handle.write_at(frames[start].offset, data)
            frame = frames[stop - 1]
            place = (FILE_LEDGER_ID, frame.sequence, len(frame.records) - 1)
            file.last_lsn = _new(Lsn, place)
            self._written_slot = slot
            start = stop
        self._recorded_sequence = durable_sequence
        self.written_lsn = (flight.queue[-1] if flight.queue else flight.base).last_lsn
        self._in_flight = None

    def _sync_dirty(self) -> None:
        dirty = self._dirty
        if dirty is None:
            return
        if dirty.handle is None:
            raise InvariantViolation(f"log file {dirty.path}: it is not open for writing")
        dirty.handle.sync()
        self._dirty = None

    def drop_before(self, lsn: Lsn) -> None:
        with self._files_lock:
            self._check_usable()
            needed = self._room[max(self._written_slot, 0) :]
            # The newest stays listed: it keeps its number from being used again.
            self._files.drop(
                [
                    file
                    for file in self._files.files[:-1]
                    if file not in needed and (file.last_lsn is None or file.last_lsn <= lsn)
                ]
            )

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if self._tail is _UNREAD or self._is_closed:
            state = "closed" if self._is_closed else "not replayed"
            raise InvariantViolation(f"file log: it is {state}")

    def close(self) -> None:
        if self._is_closed:
            return
        if self._syncer is not None:
            self._syncer.close()
        try:
            if self.failure is None and self._tail is not _UNREAD:
                self.sync()
                self.mark()
                self._files.listing.log_ended(self.durable_lsn.entry_id)
        except Error:
            self._release()
            raise
        self._release()

    def _release(self) -> None:
        with self._files_lock:
            self._files.close()
            self._is_closed = True


def _failed(error: BaseException, path: str) -> LogFailedError:
    return LogFailedError(
        f"log file {path}: {error}; the log stopped, and the fate of unanswered commits is decided "
        f"by the next open"
    )
