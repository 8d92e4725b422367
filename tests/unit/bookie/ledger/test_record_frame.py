"""Record frames: golden bytes, bounds, damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.errors import CorruptFileError, IncorrectParameterError
from bookie.ledger.record_frame import (
    HEADER_BYTES,
    LENGTH_BYTES,
    RECORDS_MAX,
    RecordPosition,
    RecordPositions,
    frames,
    join,
    split,
)


def test_golden_bytes() -> None:
    frame = join([b"ab", b"", b"xyz"])
    assert frame.hex() == "01" + "00000003" + "00000002" + "00000000" + "00000003" + "616278797a"
    assert split(frame) == [b"ab", b"", b"xyz"]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=60), st.integers(16, 300))
def test_frames_hold_all_records_in_order_within_the_bound(records: list[bytes], room: int) -> None:
    found: list[bytes] = []
    for start, frame in frames(records, room):
        assert start == len(found)
        part = split(frame)
        assert len(frame) <= room or len(part) == 1
        found += part
    assert found == records


def test_frames_are_as_full_as_the_bound_allows() -> None:
    room = HEADER_BYTES + 3 * (LENGTH_BYTES + 10)
    assert [start for start, _ in frames([b"x" * 10] * 7, room)] == [0, 3, 6]
    assert [start for start, _ in frames([b"x" * 10] * 7, room - 1)] == [0, 2, 4, 6]


def test_a_frame_has_a_limited_number_of_records_and_the_next_slice_goes_on() -> None:
    records = [b""] * (RECORDS_MAX + 10)
    assert [start for start, _ in frames(records, 1 << 20)] == [0, RECORDS_MAX]
    room = HEADER_BYTES + 100 * (LENGTH_BYTES + 1)
    starts = [start for start, _ in frames([b"x"] * (RECORDS_MAX + 50), room)]
    assert starts == list(range(0, RECORDS_MAX + 50, 100))


def test_other_buffers_are_records_too() -> None:
    frame = join([bytearray(b"a"), memoryview(b"bc")])
    assert split(memoryview(frame)) == [b"a", b"bc"]


def test_a_frame_of_nothing_is_refused() -> None:
    with pytest.raises(IncorrectParameterError):
        join([])


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x01\x00\x00",
        b"\x02" + join([b"ab"])[1:],
        join([b"ab"])[:-1],
        join([b"ab"]) + b"x",
        b"\x01\x00\x00\x00\x00",
        b"\x01\xff\xff\xff\xff" + b"x" * 100,
    ],
)
def test_what_is_no_frame_is_said_to_be_none(damaged: bytes) -> None:
    with pytest.raises(CorruptFileError, match="expected a record frame, found"):
        split(damaged)


def test_positions_are_a_sequence() -> None:
    positions = RecordPositions([4, 6, 7], [0, 3, 5], 6)
    assert list(positions) == [(4, 0), (4, 1), (4, 2), (6, 0), (6, 1), (7, 0)]
    assert positions[-1] == RecordPosition(7, 0)
    assert positions[1:4] == [(4, 1), (4, 2), (6, 0)]
    with pytest.raises(IndexError):
        positions[6]
