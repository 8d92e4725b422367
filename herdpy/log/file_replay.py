"""LogReader: reads the listed files of a log, finds its end, and tells a torn tail from damage.

The log ends before the first frame n that is not valid. It is *damage*, a CorruptionError, when
anything says that n was durable: the manifest (the position to replay from, a known durable
sequence, a file that was listed when n was durable), a later frame of the same file, or a frame
in a later file, because a file is written to only after the one before it was synced. Otherwise
n and what follows is the unacknowledged tail: it is cut.

The search for a later frame ends one maximal frame behind n, or behind the last frame it found.
Files are listed only when their name and length are durable, so one that is missing, or shorter
than its frames say, is damage.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from bookie.runtime.interfaces import Disk, File
from herdpy.errors import CorruptionError, damaged, expecting_file
from herdpy.limits import frame_bytes_max
from herdpy.log.frame import (
    ALIGNMENT,
    HEADER_BYTES,
    MAGIC,
    Frame,
    Invalid,
    decode_frame,
    owner_of,
)
from herdpy.log.log_files import LogFile, numbered_files
from herdpy.model.lsn import FILE_LEDGER_ID, Lsn

_WINDOW_BYTES = 1024 * 1024
_new: Any = tuple.__new__  # a NamedTuple without the Python function around it


class Place(NamedTuple):
    """Where a frame begins; the bytes of a ReplayHint say it in msgpack."""

    file_number: int
    offset: int
    sequence: int
    file_bytes: int

    @property
    def behind(self) -> Lsn:
        """A checkpoint at this position or behind it has everything before the frame."""
        return Lsn(FILE_LEDGER_ID, self.sequence - 1, 0)

    def to_hint(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def of_hint(cls, data: bytes) -> "Place | None":
        """Invert to_hint(); None for b"". CorruptionError for other bytes."""
        try:
            return msgspec.msgpack.decode(data, type=cls) if data else None
        except msgspec.MsgspecError as error:
            raise damaged(
                f"the manifest's place to read the log from cannot be read: {error}"
            ) from error


class _FrameReader:
    """Frames at offsets of one file, through a window that moves over it."""

    def __init__(
        self, handle: File, log_id: bytes, file_number: int, file_id: bytes | None
    ) -> None:
        self._handle = handle
        self._log_id = log_id
        self._file_id = file_id
        self._file_number = file_number
        self.byte_count = handle.size()
        self._start = 0
        self._window = b""

    def frame(self, offset: int, sequence: int | None = None) -> Frame | Invalid:
        """Return the frame at offset, or why there is none."""
        needed = HEADER_BYTES
        while True:
            end = min(offset + needed, self.byte_count)
            if offset < self._start or end > self._start + len(self._window):
                self._window = self._handle.read_at(offset, max(needed, _WINDOW_BYTES))
                self._start = offset
            found = decode_frame(
                self._window,
                offset - self._start,
                log_id=self._log_id,
                file_id=self._file_id,
                file_number=self._file_number,
                sequence=sequence,
                base=self._start,
            )
            if isinstance(found, Frame):
                return found
            if found.bytes_needed <= needed:
                return found
            needed = found.bytes_needed

    def later_frames(self, offset: int) -> Iterator[tuple[int, Frame]]:
        """Yield (offset, frame) of valid frames behind an invalid one at offset."""
        position = offset + ALIGNMENT
        limit = offset + frame_bytes_max
        while position <= min(limit, self.byte_count - HEADER_BYTES):
            # A file that was used before is full of old frames: no reading again for each of them.
            if not 0 <= position - self._start <= len(self._window) - HEADER_BYTES:
                self._window = self._handle.read_at(position, _WINDOW_BYTES)
                self._start = position
            hit = self._window.find(MAGIC, position - self._start)
            if hit < 0:
                # Leave the last bytes for the next window: a magic may begin in them.
                end = self._start + len(self._window)
                position = max(end - ALIGNMENT & -ALIGNMENT, position + ALIGNMENT)
                continue
            candidate = self._start + hit
            found = self.frame(candidate) if candidate % ALIGNMENT == 0 else None
            if isinstance(found, Frame) and candidate <= limit:
                yield candidate, found
                position = found.end
                limit = position + frame_bytes_max
            else:
                position = (candidate + ALIGNMENT) & -ALIGNMENT


def find_unlisted_frame(
    disk: Disk, directory: str, newest_listed: int, log_id: bytes, checkpoint_sequence: int
) -> tuple[str, int, int] | None:
    """Return (path, offset, sequence) of a frame in a file numbered above the newest listed one.

    A file is listed, durably, before its first frame, and numbers are used once: so such a frame
    proves that the list is not the one that the log was written under. Spares count as what they
    were. A frame that the checkpoint has proves nothing: its file may be the newest that was
    dropped. None: there is no frame that proves it.
    """
    for number, path in numbered_files(disk, directory):
        if number <= newest_listed:
            continue
        handle = disk.open(path)
        try:
            reader = _FrameReader(handle, log_id, number, None)
            first, begin = reader.frame(0), 0
            if isinstance(first, Frame):
                if first.sequence > checkpoint_sequence:
                    return path, 0, first.sequence
                begin = first.end - ALIGNMENT
            for offset, frame in reader.later_frames(begin):
                if frame.sequence > checkpoint_sequence:
                    return path, offset, frame.sequence
        finally:
            handle.close()
    return None


class LogReader:
    """One pass over the files of a log; the attributes are right once records() is exhausted."""

    def __init__(
        self,
        disk: Disk,
        files: Sequence[LogFile],
        *,
        log_id: bytes,
        after: Lsn,
        known_durable_sequence: int,
        start: Place | None = None,
        may_be_cut: bool = False,
    ) -> None:
        """With may_be_cut the frames of a file that is too short are read as far as it goes."""
        self._disk = disk
        self._may_be_cut = may_be_cut
        self._files = files
        self._log_id = log_id
        self._after = after
        self._known = max(
            known_durable_sequence, after.entry_id, *(file.first_sequence - 1 for file in files)
        )
        self._expected: int | None = None  # the next sequence; None before the first frame
        self.last_lsn = after
        # What lies before it is in a checkpoint. The frame there, if it was ever written, is known
        # by its sequence, so that its absence is noticed as it would be on the way from the start.
        self._start = start
        if start is not None and (
            start.behind > after or not files or start.file_number != files[0].number
        ):
            self._start = None
        self.unproven: deque[tuple[int, LogFile, int, int]] = deque()
        """(sequence, file, offset, end) of the frames at the end that nothing says were durable."""

    @property
    def next_sequence(self) -> int:
        return self._after.entry_id + 1 if self._expected is None else self._expected

    def records(self) -> Iterator[tuple[Lsn, bytes]]:
        """Yield what lies behind `after`; CorruptionError for damage, at the latest at the end."""
        stops: list[tuple[LogFile, int, str]] = []  # where frames ended since the last good one
        for file in self._files:
            with expecting_file(f"log file {file.path}, which the manifest lists,"):
                handle = self._disk.open(file.path)
            try:
                self._check_owner(file, handle)
                reader = _FrameReader(handle, self._log_id, file.stamp, file.file_id)
                file.byte_count = reader.byte_count
                offset = 0
                if self._start is not None and file is self._files[0]:
                    _, offset, self._expected, file_bytes = self._start
                    self._check_length(file, reader.byte_count, file_bytes)
                    if self._expected > file.first_sequence:
                        file.last_lsn = Lsn(FILE_LEDGER_ID, self._expected - 1, 0)
                while isinstance(frame := self._next_frame(reader, offset), Frame):
                    if stops and frame.sequence != self._expected and self._goes_on(stops[0]):
                        return
                    self._check(file, offset, frame, reader.byte_count, stops)
                    stops.clear()
                    self._expected = frame.sequence + 1
                    yield from self._take(file, offset, frame)
                    offset = frame.end
                stops.append((file, offset, frame.reason))
            finally:
                handle.close()
        self._check_end(stops)

    def _next_frame(self, reader: _FrameReader, offset: int) -> Frame | Invalid:
        # At the start of a file a wrong sequence is no torn frame, it says that some are missing.
        return reader.frame(offset, self._expected if offset else None)

    def _check_owner(self, file: LogFile, handle: File) -> None:
        """Raise when a file begins with a frame that no earlier use of it explains.

        Numbers are used once and rise: what a spare brought along has a lower one.
        """
        header = handle.read_at(0, HEADER_BYTES)
        found = owner_of(header)
        wanted = file.file_id or self._log_id
        if found is None or found.id == wanted or found.file_number < file.stamp:
            return
        # A header of ours that a power failure tore may show another id, too. Two things it cannot
        # have: a right CRC with that id, and a frame behind it that shows the same one. Of a frame
        # of another log only the second can be looked for: its CRC begins with that log's id.
        whole = _FrameReader(handle, self._log_id, found.file_number, None).frame(0)
        behind = owner_of(handle.read_at(found.end, HEADER_BYTES))
        if isinstance(whole, Frame) or (behind is not None and behind.id == found.id):
            raise damaged(
                f"log file {file.path}: expected frames with id {wanted.hex()} at offset 0, found "
                f"one of file number {found.file_number} with id {found.id.hex()}: damaged, or "
                "this file or the manifest is of another database, or of a copy of this one"
            )

    def _check_length(self, file: LogFile, found: int, expected: int) -> None:
        if found < expected and not self._may_be_cut:
            raise damaged(
                f"log file {file.path}: expected {expected} bytes, found {found} (offset {found})"
            )

    def _check(
        self,
        file: LogFile,
        offset: int,
        frame: Frame,
        byte_count: int,
        stops: list[tuple[LogFile, int, str]],
    ) -> None:
        self._check_length(file, byte_count, frame.file_bytes)
        if self._expected is None:
            if frame.sequence > self._after.entry_id + 1:
                raise damaged(
                    f"log file {file.path}: expected a frame with sequence "
                    f"{self._after.entry_id + 1} or lower at offset {offset}, found sequence "
                    f"{frame.sequence}: a log file before it is not in the manifest"
                )
        elif frame.sequence != self._expected:
            raise self._damage(stops[0], f"file {file.path} goes on with sequence {frame.sequence}")

    def _take(self, file: LogFile, offset: int, frame: Frame) -> Iterator[tuple[Lsn, bytes]]:
        sequence = frame.sequence
        places = [
            _new(Lsn, (FILE_LEDGER_ID, sequence, index)) for index in range(len(frame.records))
        ]
        found = zip(places, frame.records, strict=True)
        after = self._after
        yield from found if sequence > after.entry_id else (x for x in found if x[0] > after)
        file.last_lsn = last = places[-1]
        self.last_lsn = max(self.last_lsn, last)
        unproven = self.unproven
        unproven.append((frame.sequence, file, offset, frame.end))
        proved = max(self._known, frame.durable_sequence)
        while unproven and (unproven[0][0] <= proved or unproven[0][1] is not file):
            unproven.popleft()

    def _goes_on(self, stop: tuple[LogFile, int, str]) -> bool:
        """Return whether the next frame is there by now: another handle appends meanwhile."""
        file, offset, _ = stop
        handle = self._disk.open(file.path)
        try:
            reader = _FrameReader(handle, self._log_id, file.stamp, file.file_id)
            return isinstance(reader.frame(offset, self.next_sequence), Frame)
        finally:
            handle.close()

    def _check_end(self, stops: list[tuple[LogFile, int, str]]) -> None:
        if stops and self._goes_on(stops[0]):
            return
        sequence = self.next_sequence
        if self._known >= sequence:
            evidence = f"the manifest says that sequence {self._known} was durable"
            if not stops:
                raise damaged(f"log: no file is listed, but {evidence}")
            raise self._damage(stops[0], evidence)
        for file, stop, _ in stops:
            handle = self._disk.open(file.path)
            try:
                reader = _FrameReader(handle, self._log_id, file.stamp, file.file_id)
                for offset, frame in reader.later_frames(stop):
                    # Copies of old frames may stand in the records of a torn one: they prove
                    # nothing. Before the first frame of a file there is nothing to copy.
                    is_proof = frame.sequence >= sequence and frame.durable_sequence >= sequence
                    if is_proof or (self._expected is None and frame.sequence <= self._known):
                        raise self._damage(
                            stops[0],
                            f"the frame with sequence {frame.sequence} at offset {offset} of "
                            f"{file.path} says that it was durable",
                        )
            finally:
                handle.close()

    def _damage(self, stop: tuple[LogFile, int, str], evidence: str) -> CorruptionError:
        file, offset, reason = stop
        return damaged(
            f"log file {file.path}: expected a frame with sequence {self.next_sequence} at offset "
            f"{offset}, found {reason}; {evidence}"
        )
