"""Segments: written once, checked when mapped; damage names file and offset."""

import errno
import gc
from pathlib import Path

import pytest

from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_disk import OsDisk
from herdpy.errors import CorruptionError, InvariantViolation
from herdpy.storage.segment import Segment, SegmentWriter, build_bitmap, segment_name
from tests.sim.disk import SimulatedDisk


def write(
    disk: MemoryDisk | OsDisk, *parts: bytes, number: int = 5
) -> tuple[int, list[tuple[int, int]]]:
    writer = SegmentWriter(disk, "s", number)
    places = [writer.append(part) for part in parts]
    return writer.finish(), places


@pytest.mark.parametrize("kind", ["memory", "os"])
def test_parts_come_back(kind: str, tmp_path: Path) -> None:
    disk = MemoryDisk() if kind == "memory" else OsDisk(str(tmp_path))
    parts = [b"a" * 64, b"b" * 100, b"c" * 5_000_000, b"d"]
    byte_count, places = write(disk, *parts)
    assert places[0] == (64, 64)
    assert all(offset % 64 == 0 for offset, _ in places)
    assert byte_count == disk.size("s")
    segment = Segment.open(disk, "s", 5, byte_count)
    assert [bytes(segment.part(*place)) for place in places] == parts
    view = segment.part(*places[1])
    disk.unlink("s")
    del segment
    gc.collect()
    assert bytes(view) == parts[1]
    assert segment_name(5) == "00000005.segment"


def test_shorter_or_missing_or_another() -> None:
    disk = MemoryDisk()
    byte_count, _ = write(disk, b"a" * 100)
    with pytest.raises(
        CorruptionError, match=f"shorter .* expected {byte_count + 1}, found {byte_count}"
    ):
        Segment.open(disk, "s", 5, byte_count + 1)
    with pytest.raises(CorruptionError, match="segment gone is missing"):
        Segment.open(disk, "gone", 5, byte_count)
    with pytest.raises(
        CorruptionError, match="segment s, offset 0: expected the header of segment 6"
    ):
        Segment.open(disk, "s", 6, byte_count)
    segment = Segment.open(disk, "s", 5, byte_count)
    for place in ((0, 64), (65, 1), (128, 10_000)):
        with pytest.raises(CorruptionError, match=f"segment s, offset {place[0]}"):
            segment.part(*place)


def test_every_flipped_bit_is_seen() -> None:
    disk = MemoryDisk()
    bits = bytes([0b101, 0b1])
    byte_count, [place] = write(disk, build_bitmap(bits, 12, 3))
    data = disk.read("s")
    file = disk.open("s")
    assert Segment.open(disk, "s", 5, byte_count).bitmap(*place, 12, 3) == bits
    for position in range(byte_count):
        file.write_at(position, bytes([data[position] ^ (1 << position % 8)]))
        with pytest.raises(CorruptionError, match=r"s(,| at) offset \d+"):
            Segment.open(disk, "s", 5, byte_count).bitmap(*place, 12, 3)
        file.write_at(position, data[position : position + 1])
    segment = Segment.open(disk, "s", 5, byte_count)
    for row_count, dead_count in ((13, 3), (12, 2), (1000, 3)):
        with pytest.raises(CorruptionError, match="bitmap in s at offset 64"):
            segment.bitmap(*place, row_count, dead_count)
    with pytest.raises(InvariantViolation):
        build_bitmap(bits, 12, 2)


def test_leftover_of_a_crash_is_replaced_not_changed() -> None:
    disk = MemoryDisk()
    byte_count, [place] = write(disk, b"old")
    old = Segment.open(disk, "s", 5, byte_count)
    byte_count, [place] = write(disk, b"new")
    assert bytes(old.part(*place)) == b"old"
    assert bytes(Segment.open(disk, "s", 5, byte_count).part(*place)) == b"new"


def test_full_disk() -> None:
    disk = SimulatedDisk(1, capacity_bytes=100_000)
    writer = SegmentWriter(disk, "s", 5)
    writer.append(bytes(200_000))
    with pytest.raises(OSError, match=r".") as error:
        writer.finish()
    assert error.value.errno == errno.ENOSPC
    writer.abandon()
    assert disk.list("") == []


def test_golden_bytes() -> None:
    disk = MemoryDisk()
    write(disk, build_bitmap(b"\x05", 3, 2), number=258)
    data = disk.read("s")
    assert data[:24].hex() == "484552445053454701000000055c97e00201000000000000"
    assert data[64:81].hex() == "4844424d030000000200000069f36b4405"
    assert len(data) == 128
