"""Record frames: many small records in one entry.

    offset   width  type   meaning
    0        1      u8     version, 1
    1        4      u32    number of records n, at least 1
    5        4 n    u32    length of each record
    5 + 4 n         bytes  the records, one behind the other, to the end of the payload

Integers are big-endian. The entry's digest protects the whole, so a frame has none of its own.
Source: docs/formats/record_frame.md. No state; any thread may call.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from struct import Struct, pack, unpack_from
from typing import NamedTuple, overload

from bookie.errors import CorruptFileError, IncorrectParameterError

BytesLike = bytes | bytearray | memoryview

VERSION = 1
HEADER_BYTES = 5
LENGTH_BYTES = 4
RECORDS_MAX = 16_384
"""Records in a frame that frames() makes; split() takes any number."""
_HEADER = Struct(">BI")


class RecordPosition(NamedTuple):
    """Where a record lies: in which entry, and as which of its frame, from 0."""

    entry_id: int
    number: int


class RecordPositions(Sequence[RecordPosition]):
    """The positions of records that were appended together, in their order; made on demand."""

    def __init__(self, entry_ids: Sequence[int], starts: Sequence[int], count: int) -> None:
        self.entry_ids = tuple(entry_ids)
        """The entry of each frame, ascending."""
        self.starts = tuple(starts)
        """The number, among all records, of the first one of each frame."""
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> RecordPosition: ...
    @overload
    def __getitem__(self, number: slice) -> list[RecordPosition]: ...
    def __getitem__(self, number: int | slice) -> RecordPosition | list[RecordPosition]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(self._count))]
        if number < 0:
            number += self._count
        if not 0 <= number < self._count:
            raise IndexError(f"record {number} of {self._count}")
        frame = bisect_right(self.starts, number) - 1
        return RecordPosition(self.entry_ids[frame], number - self.starts[frame])


def join(records: Sequence[BytesLike]) -> bytes:
    """Return the frame of these records, of which there is at least one."""
    count = len(records)
    if not count:
        raise IncorrectParameterError("a record frame: expected at least one record, found none")
    lengths = pack(f">{count}I", *map(len, records))
    return b"".join((_HEADER.pack(VERSION, count), lengths, *records))


def frames(records: Sequence[BytesLike], frame_bytes_max: int) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first record, frame) for as few frames as the bounds allow.

    A record that does not fit into a frame of that size has one of its own.
    """
    room = frame_bytes_max - HEADER_BYTES
    first = 0
    while first < len(records):
        # A slice at a time, so that the work before the first frame is bounded, too.
        lengths = map(len, records[first : first + RECORDS_MAX])
        # With its length field, so that one search finds how many fit.
        costs = list(accumulate((length + LENGTH_BYTES for length in lengths), initial=0))
        last = len(costs) - 1
        start = 0
        while start < last:
            end = max(start + 1, bisect_right(costs, costs[start] + room) - 1)
            if end == last and start and first + last < len(records):
                break  # the next slice may have more for this frame
            yield first + start, join(records[first + start : first + end])
            start = end
        first += start


def split(payload: BytesLike) -> list[bytes]:
    """Return the records of a frame; CorruptFileError when it is malformed."""
    if len(payload) < HEADER_BYTES:
        raise _no_frame(f"{len(payload)} bytes")
    version, count = _HEADER.unpack_from(payload)
    if version != VERSION:
        raise _no_frame(f"version {version}, and this program knows {VERSION}")
    start = HEADER_BYTES + LENGTH_BYTES * count
    if not count or start > len(payload):
        raise _no_frame(f"{count} records in {len(payload)} bytes")
    ends = list(accumulate(unpack_from(f">{count}I", payload, HEADER_BYTES), initial=start))
    if ends[-1] != len(payload):
        raise _no_frame(f"records up to byte {ends[-1]} of {len(payload)}")
    data = bytes(payload)
    return [data[begin:end] for begin, end in pairwise(ends)]


def _no_frame(found: str) -> CorruptFileError:
    return CorruptFileError(
        f"expected a record frame, found {found}: was the entry written by append_many?"
    )
