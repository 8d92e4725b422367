"""Which entries of a ledger a bookie holds, as GET_LIST_OF_ENTRIES_OF_LEDGER answers.

    offset  width  type  meaning
    0       4      i32   version, 0
    4       4      i32   number of groups
    8       56           zeros
    64      24 each      groups, ascending:
      0     8      i64   first entry of the first run
      8     8      i64   first entry of the last run
      16    4      i32   entries in each run, at least 1
      20    4      i32   distance between the first entries of two runs; 0 when there is one run

A run is consecutive ids; a group is runs of one size at one distance, which is how the striping of
a ledger (E > Qw) looks from one bookie. Source: docs/formats/availability.md.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from bookie.errors import IncorrectParameterError, MalformedFrameError

BytesLike = bytes | bytearray | memoryview

VERSION = 0
HEADER_BYTES = 64
_HEADER = Struct(">ii56x")
_GROUP = Struct(">qqii")
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


class Group(NamedTuple):
    """Runs of `size` entries that begin at first, first + period, … last."""

    first: int
    last: int
    size: int
    period: int

    @property
    def run_count(self) -> int:
        return 1 if self.period == 0 else (self.last - self.first) // self.period + 1


class Availability:
    """The entries that a bookie says it holds. Immutable; answers without listing them."""

    def __init__(self, groups: tuple[Group, ...]) -> None:
        self.groups = groups
        self._firsts = [group.first for group in groups]
        self.count = sum(group.run_count * group.size for group in groups)

    def __contains__(self, entry_id: int) -> bool:
        return self._held_until(entry_id) > entry_id

    def lacking(self, wanted: range) -> Iterator[int]:
        """Yield which of these consecutive ids it does not hold, passing over whole runs."""
        entry_id = wanted.start
        while entry_id < wanted.stop:
            end = self._held_until(entry_id)
            if end == entry_id:
                yield entry_id
                end += 1
            entry_id = end

    def _held_until(self, entry_id: int) -> int:
        """Return the end of the run that holds an entry; its own id where none does."""
        index = bisect_right(self._firsts, entry_id) - 1
        if index < 0:
            return entry_id
        first, last, size, period = self.groups[index]
        offset = entry_id - last if entry_id >= last else (entry_id - first) % period
        return entry_id + size - offset if offset < size else entry_id

    def ranges(self) -> Iterator[range]:
        """Yield the runs, ascending; a peer may have named very many."""
        for first, last, size, period in self.groups:
            for start in range(first, last + 1, period or 1):
                yield range(start, start + size)


def encode(entry_ids: Iterable[int]) -> bytes:
    """Return the bytes for ids that ascend strictly; IncorrectParameterError when they do not."""
    groups: list[Group] = []
    for start, size in _runs(entry_ids):
        if groups:
            first, last, group_size, period = groups[-1]
            distance = start - last
            if size == group_size and distance <= _INT32_MAX and period in (0, distance):
                groups[-1] = Group(first, start, size, distance)
                continue
        groups.append(Group(start, start, size, 0))
    return _HEADER.pack(VERSION, len(groups)) + b"".join(_GROUP.pack(*g) for g in groups)


def _runs(entry_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    start, size = -1, 0
    for entry_id in entry_ids:
        if size and entry_id == start + size and size < _INT32_MAX:
            size += 1
            continue
        if not start + size <= entry_id <= _INT64_MAX or entry_id < 0:
            raise IncorrectParameterError(
                f"entry ids: expected ascending int64 from 0, found {entry_id} after"
                f" {start + size - 1}"
            )
        if size:
            yield start, size
        start, size = entry_id, 1
    if size:
        yield start, size


def decode(data: BytesLike) -> Availability:
    """Read what a bookie answered; MalformedFrameError when it is not of this format."""
    if len(data) < HEADER_BYTES:
        raise MalformedFrameError(
            f"list of entries: {len(data)} bytes; expected at least {HEADER_BYTES}"
        )
    version, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise MalformedFrameError(f"list of entries: version {version}; expected {VERSION}")
    if count < 0 or len(data) < HEADER_BYTES + count * _GROUP.size:
        raise MalformedFrameError(f"list of entries: {count} groups in {len(data)} bytes")
    end = HEADER_BYTES + count * _GROUP.size
    groups = tuple(map(Group._make, _GROUP.iter_unpack(data[HEADER_BYTES:end])))
    free = 0
    for group in groups:
        first, last, size, period = group
        if period == 0:
            is_sound = first == last
        else:
            is_sound = period >= size and first < last and (last - first) % period == 0
        if not (is_sound and size >= 1 and first >= free and last + size - 1 <= _INT64_MAX):
            raise MalformedFrameError(f"list of entries: {group} behind entry {free - 1}")
        free = last + size
    return Availability(groups)
