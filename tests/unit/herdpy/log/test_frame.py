"""The frame codec: golden bytes, and every byte matters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdpy.log.frame import Frame, Invalid, decode_frame, encode_frame
from tests.fixtures.logs import LOG_ID

GOLDEN = bytes.fromhex(
    "89484552444c4f47 0200 4800 02000000 101112131415161718191a1b1c1d1e1f"
    "0700000000000000 0000100000000000 2a00000000000000 2900000000000000 10000000 fdc0dc74"
    "02000000 6162 01000000 63 0000000000".replace(" ", "")
)


FILE_ID = bytes(range(16, 32))
FORMAT_1 = bytes.fromhex(
    "89484552444c4f47 0100 4800 02000000 000102030405060708090a0b0c0d0e0f"
    "0700000000000000 0000100000000000 2a00000000000000 2900000000000000 10000000 b76149f5"
    "02000000 6162 01000000 63 0000000000".replace(" ", "")
)


def encoded(offset: int = 0, file_id: bytes = FILE_ID) -> bytes:
    return encode_frame(
        [b"ab", b"c"],
        log_id=LOG_ID,
        file_id=file_id,
        file_number=7,
        file_bytes=1 << 20,
        offset=offset,
        sequence=42,
        durable_sequence=41,
    )


def decoded(buffer: bytes, offset: int = 0, **changes: object) -> Frame | Invalid:
    wanted = {"log_id": LOG_ID, "file_id": FILE_ID, "file_number": 7, "sequence": 42} | changes
    return decode_frame(buffer, offset, **wanted)  # type: ignore[arg-type]


def test_golden_bytes() -> None:
    assert encoded().hex() == GOLDEN.hex()
    assert decoded(GOLDEN) == Frame(42, 41, 1 << 20, (b"ab", b"c"), 88)
    assert encoded(file_id=b"").hex() == FORMAT_1.hex()
    assert decoded(FORMAT_1, file_id=b"") == decoded(GOLDEN)


def test_a_frame_is_believed_at_its_offset_alone() -> None:
    data = encoded(4096)
    assert isinstance(decoded(bytes(96) + data, 96, base=4000), Frame)
    found = decoded(data, base=4104)
    assert isinstance(found, Invalid)
    assert found.reason == "a frame with a wrong CRC"


def test_a_listed_file_has_frames_of_its_own_format_only() -> None:
    for data, file_id in ((GOLDEN, b""), (FORMAT_1, FILE_ID)):
        found = decoded(data, file_id=file_id)
        assert isinstance(found, Invalid)
        assert found.reason.startswith("version")
        assert isinstance(decoded(data, file_id=None), Frame)


def test_any_offset_and_any_sequence() -> None:
    frame = decoded(b"x" * 5 + encoded(5) + b"y", 5, sequence=None)
    assert isinstance(frame, Frame)
    assert frame.end == 5 + 88


def test_every_bit_flip_shows() -> None:
    for position in range(len(GOLDEN)):
        for bit in range(8):
            damaged = bytearray(GOLDEN)
            damaged[position] ^= 1 << bit
            assert isinstance(decoded(bytes(damaged) + bytes(256), sequence=None), Invalid)


def test_every_cut_shows() -> None:
    for length in range(len(GOLDEN)):
        cut = decoded(GOLDEN[:length])
        assert isinstance(cut, Invalid)
        assert cut.bytes_needed == (72 if length < 72 else 88)
        assert isinstance(decoded(GOLDEN[:length] + b"\xaa" * 100), Invalid)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"log_id": bytes(16)}, "wrong CRC"),
        ({"file_id": bytes(16)}, "with id 101112"),
        ({"file_number": 8}, "file number 7"),
        ({"sequence": 43}, "sequence 42"),
    ],
)
def test_a_frame_of_something_else_is_invalid(changes: dict[str, object], reason: str) -> None:
    found = decoded(GOLDEN, **changes)
    assert isinstance(found, Invalid)
    assert reason in found.reason


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=8), st.binary(max_size=20))
def test_what_is_encoded_decodes(records: list[bytes], rest: bytes) -> None:
    data = encode_frame(
        records,
        log_id=LOG_ID,
        file_id=FILE_ID,
        file_number=7,
        file_bytes=0,
        offset=0,
        sequence=42,
        durable_sequence=0,
    )
    assert len(data) % 8 == 0
    assert decoded(data + rest) == Frame(42, 0, 0, tuple(records), len(data))


@given(st.binary(max_size=200))
def test_garbage_is_invalid(data: bytes) -> None:
    assert isinstance(decoded(data), Invalid)
    assert isinstance(decoded(GOLDEN[:8] + data), Invalid)
