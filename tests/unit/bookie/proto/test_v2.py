"""Protocol v2: golden headers, every message there and back, the batch rule, hostile bytes."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.errors import IncorrectParameterError, MalformedFrameError
from bookie.ledger.codec import EntryDigest, master_key
from bookie.ledger.types import DigestType, Status
from bookie.proto import v2

KEY = master_key(b"")
PACKET = EntryDigest.of(DigestType.CRC32C, b"").seal(7, 0, -1, 5, b"hello")
int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
statuses = st.sampled_from([s for s in Status if s >= 0])
keys = st.binary(min_size=20, max_size=20)


def body_of(frame: bytes) -> bytes:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def test_golden_requests() -> None:
    assert v2.encode_add_request(KEY, PACKET).hex() == (
        "00000041" "02010000" "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
        "0000000000000007" "0000000000000000" "ffffffffffffffff" "0000000000000005"
        "9e3e717b" "68656c6c6f"
    )  # fmt: skip
    assert v2.encode_add_request(KEY, PACKET, is_recovery=True, is_high_priority=True).hex()[
        8:16
    ] == ("02010006")
    assert v2.encode_read_request(7, 3).hex() == (
        "000000140202000000000000000000070000000000000003"
    )
    assert v2.encode_read_request(7, -1, fence_key=KEY).hex() == (
        "00000028" "02020001" "0000000000000007" "ffffffffffffffff"
        "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    )  # fmt: skip
    assert v2.encode_batch_read_request(7, 3, 9, 100, 4096).hex() == (
        "00000028" "02070000" "0000000000000007" "0000000000000003" "0000000000000009"
        "00000064" "0000000000001000"
    )  # fmt: skip
    assert v2.encode_auth_request("p", b"xy").hex() == "0000000b020300000a017012027879"


def test_golden_responses() -> None:
    assert v2.encode_add_response(Status.FENCED, 7, 3).hex() == (
        "00000018020100000000006800000000000000070000000000000003"
    )
    assert v2.encode_read_response(Status.OK, 7, 3, b"abc").hex() == (
        "0000001b020200000000000000000000000000070000000000000003616263"
    )
    assert v2.encode_batch_read_response(Status.OK, 7, 3, 9, [b"abc", b""]).hex() == (
        "0000002b" "02070000" "00000000" "0000000000000007" "0000000000000003" "0000000000000009"
        "00000003" "616263" "00000000"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.OK, 0),
        (Status.NO_LEDGER, 1),
        (Status.NO_ENTRY, 2),
        (Status.BAD_REQUEST, 100),
        (Status.IO_ERROR, 101),
        (Status.UNAUTHORIZED, 102),
        (Status.BAD_VERSION, 103),
        (Status.FENCED, 104),
        (Status.READ_ONLY, 105),
        (Status.TOO_MANY_REQUESTS, 106),
        (Status.UNKNOWN_LEDGER_STATE, 107),
    ],
)
def test_golden_error_codes(status: Status, code: int) -> None:
    frame = v2.encode_add_response(status, 1, 2)
    assert int.from_bytes(frame[8:12], "big") == code
    assert v2.parse_response(frame[4:]) == v2.AddResponse(status, 1, 2)


def test_g19_a_code_of_a_newer_protocol_is_an_error_not_a_silence() -> None:
    frame = bytearray(v2.encode_add_response(Status.OK, 1, 2))
    frame[11] = 108
    assert v2.parse_response(frame[4:]) == v2.AddResponse(Status.IO_ERROR, 1, 2)


@given(int64, int64, keys, st.binary(max_size=60), st.booleans(), st.booleans())
def test_add_requests(
    ledger_id: int, entry_id: int, key: bytes, payload: bytes, is_recovery: bool, is_high: bool
) -> None:
    packet = EntryDigest.of(DigestType.DUMMY, b"").seal(ledger_id, entry_id, 0, 0, payload)
    frame = body_of(
        v2.encode_add_request(key, packet, is_recovery=is_recovery, is_high_priority=is_high)
    )
    assert v2.is_v2(frame)
    expected = v2.AddRequest(ledger_id, entry_id, key, packet, is_recovery, is_high)
    assert v2.parse_request(frame) == expected
    assert v2.parse_request(memoryview(frame)) == expected


@given(int64, int64, st.none() | keys, st.booleans(), int64, int32, int64)
def test_read_requests(
    ledger_id: int,
    entry_id: int,
    key: bytes | None,
    is_high: bool,
    request_id: int,
    max_count: int,
    max_size: int,
) -> None:
    read = v2.encode_read_request(ledger_id, entry_id, fence_key=key, is_high_priority=is_high)
    tail = (key is not None, key, is_high)
    assert v2.parse_request(body_of(read)) == v2.ReadRequest(ledger_id, entry_id, *tail)
    batch = v2.encode_batch_read_request(
        ledger_id,
        entry_id,
        request_id,
        max_count,
        max_size,
        fence_key=key,
        is_high_priority=is_high,
    )
    assert v2.parse_request(body_of(batch)) == v2.BatchReadRequest(
        ledger_id, entry_id, request_id, max_count, max_size, *tail
    )


@given(statuses, int64, int64, int64, st.lists(st.binary(max_size=20), max_size=5))
def test_responses(
    status: Status, ledger_id: int, entry_id: int, request_id: int, packets: list[bytes]
) -> None:
    ids = (status, ledger_id, entry_id)
    assert v2.parse_response(body_of(v2.encode_add_response(*ids))) == v2.AddResponse(*ids)
    for body in packets:
        frame = body_of(v2.encode_read_response(*ids, memoryview(body)))
        assert v2.parse_response(frame) == v2.ReadResponse(*ids, body)
    frame = body_of(v2.encode_batch_read_response(*ids, request_id, packets))
    assert v2.parse_response(memoryview(frame)) == v2.BatchReadResponse(
        *ids, request_id, tuple(packets)
    )


@given(st.text(max_size=10), st.binary(max_size=10))
def test_auth(name: str, payload: bytes) -> None:
    request, response = (
        v2.encode_auth_request(name, payload),
        v2.encode_auth_response(name, payload),
    )
    assert v2.parse_request(body_of(request)) == v2.AuthRequest(name, payload)
    assert v2.parse_response(body_of(response)) == v2.AuthResponse(name, payload)


@pytest.mark.parametrize("version", [0, 1, 3, 10, 255])
def test_another_version_is_answered(version: int) -> None:
    cases = [
        (v2.encode_add_request(KEY, PACKET), (7, 0)),
        (v2.encode_read_request(7, 5, fence_key=KEY), (7, 5)),
        (v2.encode_batch_read_request(7, 5, 9, 1, 1), (7, 5, 9)),
    ]
    for encoded, ids in cases:
        frame = bytearray(encoded[4:])
        frame[0] = version
        assert not v2.is_v2(frame)
        refused = v2.parse_request(frame)
        assert refused == v2.RefusedRequest(frame[1], Status.BAD_VERSION, *ids)
        assert isinstance(refused, v2.RefusedRequest)
        answer = v2.parse_response(body_of(v2.encode_refusal(*refused)))
        assert answer[:3] == (Status.BAD_VERSION, *ids[:2])


PARSERS = (v2.parse_request, v2.parse_response)
FRAMES = [
    v2.encode_add_request(KEY, PACKET),
    v2.encode_read_request(7, 3),
    v2.encode_read_request(7, 3, fence_key=KEY),
    v2.encode_batch_read_request(7, 3, 9, 1, 1, fence_key=KEY),
    v2.encode_auth_request("plugin", b"payload"),
    v2.encode_add_response(Status.OK, 7, 3),
    v2.encode_read_response(Status.OK, 7, 3, PACKET),
    v2.encode_batch_read_response(Status.OK, 7, 3, 9, [PACKET, PACKET]),
]


def try_to_parse(frame: bytes) -> None:
    for parse in PARSERS:
        try:
            parse(frame)
        except MalformedFrameError:
            pass


@given(st.sampled_from([b"", *(bytes((2, opcode)) for opcode in range(9))]), st.binary(max_size=80))
def test_random_bytes_raise_only_our_error(start: bytes, data: bytes) -> None:
    try_to_parse(start + data)


@given(st.sampled_from(FRAMES), st.data())
def test_mutated_frames_raise_only_our_error(frame: bytes, data: st.DataObject) -> None:
    mutated = bytearray(frame[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(mutated)))
        stop = data.draw(st.integers(start, min(len(mutated), start + 4)))
        mutated[start:stop] = data.draw(st.binary(max_size=4))
    try_to_parse(bytes(mutated))


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.hex()[:40])
def test_every_shorter_frame_is_refused_or_shorter(frame: bytes) -> None:
    for end in range(len(frame) - 4):
        try_to_parse(frame[4 : 4 + end])


@pytest.mark.parametrize(
    ("frame", "parse"),
    [
        (b"", v2.parse_request),
        (bytes.fromhex("020400000000000000000007"), v2.parse_request),
        (bytes.fromhex("0201000011"), v2.parse_request),
        (bytes.fromhex("02030000"), v2.parse_request),
        (bytes.fromhex("02030000ff"), v2.parse_request),
        (bytes.fromhex("01010000") + bytes(20), v2.parse_response),
        (bytes.fromhex("02050000") + bytes(20), v2.parse_response),
        (bytes.fromhex("02070000") + bytes(28) + b"\xff\xff\xff\xff", v2.parse_response),
        (bytes.fromhex("02070000") + bytes(28) + b"\x7f\xff\xff\xffabc", v2.parse_response),
    ],
)
def test_what_is_no_message(frame: bytes, parse: Callable[[bytes], object]) -> None:
    with pytest.raises(MalformedFrameError):
        parse(frame)


@pytest.mark.parametrize("size", [-1, -4, -(2**31)])
def test_an_entry_of_negative_size_ends_the_batch_at_once(size: int) -> None:
    frame = bytes.fromhex("02070000") + bytes(28) + size.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedFrameError, match=f"an entry of {size} bytes"):
        v2.parse_response(frame)


def test_a_master_key_has_twenty_bytes() -> None:
    for call in (
        lambda: v2.encode_add_request(b"short", PACKET),
        lambda: v2.encode_read_request(7, 3, fence_key=bytes(21)),
        lambda: v2.encode_batch_read_request(7, 3, 9, 1, 1, fence_key=b""),
    ):
        with pytest.raises(IncorrectParameterError, match="20 bytes"):
            call()


@pytest.mark.parametrize(
    ("max_count", "max_size", "own_max", "sizes", "expected"),
    [
        (10, 1000, 1000, [100, 100], 2),
        (2, 1000, 1000, [100, 100, 100], 2),
        (0, 1000, 1000, [1] * 300, 192),  # (1000 - 36) // (1 + 4)
        (-5, 1000, 1000, [100] * 9, 9),
        (10, 10, 1000, [100, 100], 1),  # the first always goes
        (10, -1, 1000, [100, 100], 1),
        (10, 2**62, 36 + 208, [100, 100, 100], 2),
        (10, 2**62, 36 + 207, [100, 100, 100], 1),
        (10, 36 + 208, 2**30, [100, 100, 100], 2),
    ],
)
def test_batch_budget(
    max_count: int, max_size: int, own_max: int, sizes: list[int], expected: int
) -> None:
    budget = v2.BatchBudget(v2.BatchReadRequest(7, 0, 1, max_count, max_size), own_max)
    taken = 0
    for size in sizes:
        if not budget.take(size):
            break
        taken += 1
    assert taken == expected
    answer = v2.encode_batch_read_response(Status.OK, 7, 0, 1, [bytes(s) for s in sizes[:taken]])
    assert taken == 1 or len(answer) <= min(max_size, own_max)
