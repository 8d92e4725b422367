"""Segments: written once, checked when mapped; damage names file and offset."""

import errno
import gc
from pathlib import Path

import pytest

from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_disk import OsDisk
from herdpy.errors import CorruptionError, InvariantViolation
from herdpy.model.types import BIGINT, TEXT, Row
from herdpy.storage.page import Page, build_page
from herdpy.storage.segment import Segment, SegmentWriter, segment_name
from tests.fixtures.storage_tables import table_of
from tests.sim.disk import SimulatedDisk

ID = bytes(range(16))
SINGLE = table_of(BIGINT, TEXT)


def page_of(*names: str) -> bytes:
    return build_page(SINGLE, [(number, name) for number, name in enumerate(names)]).data


def write(
    disk: MemoryDisk | OsDisk, *pages: bytes, number: int = 5, file_id: bytes = ID
) -> tuple[int, list[tuple[int, int]]]:
    writer = SegmentWriter(disk, "s", number, file_id)
    places = [writer.append_page(page) for page in pages]
    return writer.finish(), places


def opened(disk: MemoryDisk | OsDisk, byte_count: int, file_id: bytes = ID) -> Segment:
    return Segment.open(disk, "s", 5, byte_count, file_id)


def rows_of(segment: Segment, place: tuple[int, int]) -> list[Row]:
    offset, _ = place
    page = Page(
        segment.part(*place), SINGLE, where="s", base_offset=offset, seed=segment.seed(offset)
    )
    return page.rows(0, page.row_count)


@pytest.mark.parametrize("kind", ["memory", "os"])
def test_pages_come_back(kind: str, tmp_path: Path) -> None:
    disk = MemoryDisk() if kind == "memory" else OsDisk(str(tmp_path))
    pages = [page_of("a"), page_of("b" * 2_000_000), page_of("c" * 3_000_000), page_of("d")]
    byte_count, places = write(disk, *pages)
    assert places[0] == (64, len(pages[0]))
    assert all(offset % 64 == 0 for offset, _ in places)
    assert byte_count == disk.size("s")
    segment = opened(disk, byte_count)
    assert [rows_of(segment, place)[0][1] for place in places] == [
        "a", "b" * 2_000_000, "c" * 3_000_000, "d"
    ]  # fmt: skip
    view = segment.part(*places[1])
    disk.unlink("s")
    del segment
    gc.collect()
    assert bytes(view[24:]) == pages[1][24:]
    assert segment_name(5) == "00000005.segment"


def test_shorter_or_missing_or_another() -> None:
    disk = MemoryDisk()
    byte_count, _ = write(disk, page_of("a"))
    with pytest.raises(
        CorruptionError, match=f"shorter .* expected {byte_count + 1}, found {byte_count}"
    ):
        opened(disk, byte_count + 1)
    with pytest.raises(CorruptionError, match="segment gone is missing"):
        Segment.open(disk, "gone", 5, byte_count, ID)
    for number, file_id in ((6, ID), (5, bytes(16)), (5, b"")):
        with pytest.raises(
            CorruptionError, match=f"segment s, offset 0: expected the header of segment {number}"
        ) as caught:
            Segment.open(disk, "s", number, byte_count, file_id)
        assert f"id {ID.hex()}" in caught.value.message
        assert "restore" in (caught.value.hint or "")
    segment = opened(disk, byte_count)
    for place in ((0, 64), (65, 1), (128, 10_000)):
        with pytest.raises(CorruptionError, match=f"segment s, offset {place[0]}"):
            segment.part(*place)


@pytest.mark.parametrize("file_id", [ID, b""])
def test_every_flipped_bit_is_seen(file_id: bytes) -> None:
    disk = MemoryDisk()
    bits = bytes([0b101, 0b1])
    writer = SegmentWriter(disk, "s", 5, file_id)
    place = writer.append_bitmap(bits, 12, 3)
    byte_count = writer.finish()
    data = disk.read("s")
    file = disk.open("s")
    assert opened(disk, byte_count, file_id).bitmap(*place, 12, 3) == bits
    for position in range(byte_count):
        file.write_at(position, bytes([data[position] ^ (1 << position % 8)]))
        with pytest.raises(CorruptionError, match=r"s(,| at) offset \d+"):
            opened(disk, byte_count, file_id).bitmap(*place, 12, 3)
        file.write_at(position, data[position : position + 1])
    segment = opened(disk, byte_count, file_id)
    for row_count, dead_count in ((13, 3), (12, 2), (1000, 3)):
        with pytest.raises(CorruptionError, match="bitmap in s at offset 64"):
            segment.bitmap(*place, row_count, dead_count)
    with pytest.raises(InvariantViolation):
        SegmentWriter(disk, "other", 6, file_id).append_bitmap(bits, 12, 2)


def test_a_page_is_believed_in_its_place_alone() -> None:
    disk, page = MemoryDisk(), page_of("a")
    byte_count, [first, second] = write(disk, page, page)
    data = disk.read("s")
    assert data[first[0] :][: first[1]] != data[second[0] :][: second[1]]
    moved = data[: first[0]] + data[second[0] :] + data[first[0] :][: first[1]]
    disk.open("s").write_at(0, moved)
    segment = opened(disk, byte_count)
    for place in (first, second):
        with pytest.raises(CorruptionError, match=f"in s at offset {place[0] + 20}: header CRC"):
            rows_of(segment, place)


def test_a_bitmap_is_believed_in_its_place_alone() -> None:
    disk = MemoryDisk()
    writer = SegmentWriter(disk, "s", 5, ID)
    first, second = (writer.append_bitmap(bits, 12, 3) for bits in (b"\5\1", b"\6\1"))
    byte_count = writer.finish()
    data = disk.read("s")
    disk.open("s").write_at(64, data[second[0] :] + data[first[0] : second[0]])
    for place in (first, second):
        with pytest.raises(CorruptionError, match=f"bitmap in s at offset {place[0]}"):
            opened(disk, byte_count).bitmap(*place, 12, 3)


def test_leftover_of_a_crash_is_replaced_not_changed() -> None:
    disk = MemoryDisk()
    byte_count, [place] = write(disk, page_of("old"))
    old = opened(disk, byte_count)
    byte_count, [place] = write(disk, page_of("new"))
    assert rows_of(old, place) == [(0, "old")]
    assert rows_of(opened(disk, byte_count), place) == [(0, "new")]


def test_full_disk() -> None:
    disk = SimulatedDisk(1, capacity_bytes=100_000)
    writer = SegmentWriter(disk, "s", 5, ID)
    writer.append_page(page_of("x" * 200_000))
    with pytest.raises(OSError, match=r".") as error:
        writer.finish()
    assert error.value.errno == errno.ENOSPC
    writer.abandon()
    assert disk.list("") == []


@pytest.mark.parametrize(
    ("file_id", "head", "bitmap"),
    [
        (
            ID,
            "484552445053454702000000c619d5470201000000000000" + ID.hex(),
            "4844424d0300000002000000f390112105",
        ),
        (
            b"",
            "484552445053454701000000055c97e00201000000000000" + "00" * 16,
            "4844424d030000000200000069f36b4405",
        ),
    ],
)
def test_golden_bytes(file_id: bytes, head: str, bitmap: str) -> None:
    disk = MemoryDisk()
    writer = SegmentWriter(disk, "s", 258, file_id)
    writer.append_bitmap(b"\x05", 3, 2)
    writer.finish()
    data = disk.read("s")
    assert data[:40].hex() == head
    assert data[64:81].hex() == bitmap
    assert len(data) == 128
