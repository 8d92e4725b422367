"""Cutting a stream into frames: every way to chop it up, limits, and what is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.errors import FrameTooLargeError
from bookie.runtime.frames import FrameSplitter


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@given(st.lists(st.binary(max_size=40), max_size=10), st.data())
def test_any_chopping_gives_the_same_frames(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(framed, payloads))
    splitter = FrameSplitter(100)
    found: list[bytes] = []
    position = 0
    while position < len(stream):
        size = data.draw(st.integers(1, len(stream) - position))
        found += map(bytes, splitter.feed(stream[position : position + size]))
        position += size
    assert found == payloads
    assert splitter.buffered_byte_count == 0


@given(st.binary(min_size=1, max_size=60))
def test_what_is_kept_never_exceeds_what_came(stream: bytes) -> None:
    splitter = FrameSplitter(40)
    fed = 0
    try:
        for byte in stream:
            splitter.feed(bytes([byte]))
            fed += 1
            assert splitter.buffered_byte_count <= min(fed, 40)
    except FrameTooLargeError:
        assert splitter.buffered_byte_count <= 4


def test_frames_stay_valid_after_more_is_fed() -> None:
    splitter = FrameSplitter(100)
    splitter.feed(framed(b"first")[:7])
    (first,) = splitter.feed(framed(b"first")[7:])
    (second,) = splitter.feed(framed(b"second"))
    assert (bytes(first), bytes(second)) == (b"first", b"second")


def test_the_limit_counts_the_length_field() -> None:
    assert [len(f) for f in FrameSplitter(100).feed(framed(bytes(96)))] == [96]
    with pytest.raises(FrameTooLargeError, match="97 bytes was announced; expected 0 to 96"):
        FrameSplitter(100).feed(framed(bytes(97)))


@pytest.mark.parametrize("length", ["80000000", "ffffffff", "7fffffff", "00500001"])
def test_a_length_is_refused_before_its_bytes_come(length: str) -> None:
    for cut in range(4):
        splitter = FrameSplitter(5 * 1024 * 1024)
        field = bytes.fromhex(length)
        splitter.feed(field[:cut])
        with pytest.raises(FrameTooLargeError):
            splitter.feed(field[cut:])
        assert splitter.buffered_byte_count <= 4


def test_a_negative_length_is_called_by_its_name() -> None:
    with pytest.raises(FrameTooLargeError, match="-1 bytes"):
        FrameSplitter(100).feed(b"\xff\xff\xff\xff")


def test_the_limit_may_grow_after_authentication() -> None:
    splitter = FrameSplitter(16)
    splitter.feed(framed(b"small")[:3])
    splitter.frame_bytes_max = 100
    assert [bytes(f) for f in splitter.feed(framed(b"small")[3:] + framed(bytes(50)))] == [
        b"small",
        bytes(50),
    ]


def test_an_empty_frame_is_a_frame() -> None:
    assert [bytes(f) for f in FrameSplitter(16).feed(framed(b"") + framed(b"x"))] == [b"", b"x"]


def test_bytes_in_single_steps_are_linear_work() -> None:
    """A megabyte byte by byte: each byte is moved a bounded number of times."""
    splitter = FrameSplitter(1 << 20)
    stream = framed(bytes((1 << 20) - 4))
    frames: list[memoryview] = []
    for start in range(0, len(stream), 16):
        frames += splitter.feed(stream[start : start + 16])
    assert [len(frame) for frame in frames] == [(1 << 20) - 4]
