"""ADD by hand is ADD by protobuf: for all messages, and for every byte string."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bookie.errors import IncorrectParameterError, MalformedFrameError
from bookie.ledger.types import Status
from bookie.proto import v3, v3_wire
from bookie.proto import wire_v3_pb2 as wire
from bookie.proto.v3_add import parse_add_request, parse_add_response

# Both sides of each length of a varint.
edges = [0, 1, 0x7F, 0x80, 0x3FFF, 0x4000, 0x1F_FFFF, 0x20_0000, 2**56 - 1, 2**56, 2**63 - 1]
int64 = st.sampled_from([*edges, -1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1)
uint64 = st.sampled_from([*edges, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
KEY = bytes(range(20))


def request(
    txn_id: int, ledger_id: int, entry_id: int, packet: bytes, key: bytes = KEY, **more: Any
) -> bytes:
    return wire.Request(
        header=wire.Header(version=3, operation=2, txnId=txn_id),
        addRequest=wire.AddRequest(
            ledgerId=ledger_id, entryId=entry_id, masterKey=key, body=packet, **more
        ),
    ).SerializeToString()


def response(txn_id: int, status: int, ledger_id: int, entry_id: int) -> bytes:
    return wire.Response(
        header=wire.Header(version=3, operation=2, txnId=txn_id),
        status=status,
        addResponse=wire.AddResponse(status=status, ledgerId=ledger_id, entryId=entry_id),
    ).SerializeToString()


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


sizes = st.sampled_from([0, 1, 60, 90, 127, 128, 200, 16_300, 16_383, 16_384, 66_000])


@given(uint64, int64, int64, sizes)
def test_requests(txn_id: int, ledger_id: int, entry_id: int, size: int) -> None:
    packet = bytes(size)
    expected = request(txn_id, ledger_id, entry_id, packet)
    assert v3.encode_add_request(txn_id, ledger_id, entry_id, KEY, packet) == framed(expected)
    by_hand = parse_add_request(memoryview(expected))
    is_plain = txn_id < 2**63 and ledger_id >= 0 and entry_id >= 0
    assert (by_hand is not None) == is_plain
    message = v3.AddRequest(txn_id, ledger_id, entry_id, KEY, packet)
    assert by_hand in (None, message)
    assert v3.parse_request(expected) == message


@given(uint64, st.sampled_from([s for s in Status if s >= 0]), int64, int64)
def test_responses(txn_id: int, status: Status, ledger_id: int, entry_id: int) -> None:
    expected = response(txn_id, status, ledger_id, entry_id)
    assert v3.encode_add_response(txn_id, status, ledger_id, entry_id) == framed(expected)
    by_hand = parse_add_response(memoryview(expected))
    is_plain = txn_id < 2**63 and ledger_id >= 0 and entry_id >= 0 and status == 0
    assert (by_hand is not None) == is_plain
    message = v3.AddResponse(txn_id, status, ledger_id, entry_id)
    assert by_hand in (None, message)
    assert v3.parse_response(expected) == message


def check_like_protobuf(frame: bytes) -> None:
    """What is read by hand, protobuf reads the same way."""
    by_hand = parse_add_request(frame)
    if by_hand is not None:
        message = v3_wire.parse(wire.Request, frame)
        header, add = message.header, message.addRequest
        assert by_hand == (
            header.txnId,
            add.ledgerId,
            add.entryId,
            add.masterKey,
            add.body,
            add.flag == v3.ADD_FLAG_RECOVERY,
            bool(add.writeFlags & v3.WRITE_FLAG_DEFERRED_SYNC),
            header.priority,
        )
        assert (header.version, header.operation, len(add.masterKey)) == (3, 2, 20)
        assert [field.name for field, _ in message.ListFields()] == ["header", "addRequest"]
    by_hand = parse_add_response(frame)
    if by_hand is not None:
        message = v3_wire.parse(wire.Response, frame)
        header, add = message.header, message.addResponse
        assert by_hand == (header.txnId, 0, add.ledgerId, add.entryId)
        assert (header.operation, message.status, add.status) == (2, 0, 0)


bases = st.builds(request, uint64, int64, int64, st.binary(max_size=9)) | st.builds(
    response, uint64, st.sampled_from([0, 0, 504]), int64, int64
)


@settings(max_examples=600)
@given(bases, st.data())
def test_mutated_frames_mean_the_same_or_nothing(base: bytes, data: st.DataObject) -> None:
    frame = bytearray(base)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(frame)))
        stop = data.draw(st.integers(start, min(len(frame), start + 3)))
        # Small bytes and continuation bits make tags, lengths and long varints.
        frame[start:stop] = bytes(
            data.draw(st.lists(st.integers(0, 40) | st.integers(128, 136), max_size=4))
        )
    check_like_protobuf(bytes(frame))


@pytest.mark.parametrize(
    "frame",
    [request(1, 7, 5, b"p"), request(300, 2**40, 200, bytes(130)), response(300, 0, 7, 200)],
    ids=["small", "large", "response"],
)
def test_every_value_of_every_byte_but_the_packets(frame: bytes) -> None:
    for index in range(min(len(frame), 60)):
        for value in range(256):
            check_like_protobuf(frame[:index] + bytes((value,)) + frame[index + 1 :])


def overlong(number: int, byte_count: int) -> bytes:
    """Spell a number in more bytes than it needs, which protobuf allows."""
    groups = [number >> 7 * i & 0x7F for i in range(byte_count)]
    return bytes([g | 0x80 for g in groups[:-1]] + groups[-1:])


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 300),
    st.integers(1, 10),
    st.integers(1, 4),
)
@example(1, 1, 1, 10, 4)
def test_long_spellings(
    txn_id: int, ledger_id: int, packet_size: int, number_bytes: int, size_bytes: int
) -> None:
    number_bytes = max(number_bytes, 9)
    size_bytes = max(size_bytes, 2)
    packet = bytes(packet_size)
    inner = b"\x08" + overlong(ledger_id, number_bytes) + b"\x10\x05\x1a\x14" + KEY
    inner += b"\x22" + overlong(packet_size, size_bytes) + packet
    header = b"\x08\x03\x10\x02\x18" + overlong(txn_id, number_bytes)
    frame = b"\x0a" + bytes([len(header)]) + header
    frame += b"\xaa\x06" + overlong(len(inner), size_bytes) + inner
    check_like_protobuf(frame)
    assert v3.parse_request(frame) == v3.AddRequest(txn_id, ledger_id, 5, KEY, packet)


@pytest.mark.parametrize(
    "frame",
    [
        request(1, 7, 5, b"p") + b"\xaa\x06\x00",  # a second addRequest, merged into the first
        request(1, 7, 5, b"p", flag=1),
        request(1, 7, 5, b"p", writeFlags=1),
        request(1, 7, 5, b"p", key=b"short"),
        request(1, 7, 5, b"p") + b"\x0a\x02\x20\x64",  # a second header, merged: a priority
        request(1, 7, 5, b"p")[:-1],
        request(1, 7, 5, b"p") + b"x",
    ],
)
def test_what_is_left_to_protobuf(frame: bytes) -> None:
    assert parse_add_request(frame) is None
    try:
        v3.parse_request(frame)
    except MalformedFrameError:
        pass


@pytest.mark.parametrize("number", [-(2**63) - 1, 2**64])
def test_numbers_beyond_64_bits_are_the_callers_mistake(number: int) -> None:
    with pytest.raises(IncorrectParameterError, match=str(number)):
        v3.encode_add_request(1, number, 0, KEY, b"")
    with pytest.raises(IncorrectParameterError, match=str(number)):
        v3.encode_add_response(1, Status.OK, 7, number)


def test_a_large_packet_is_not_copied() -> None:
    frame = bytearray(v3.encode_add_request(1, 7, 5, KEY, bytes(70_000))[4:])
    add = v3.parse_request(memoryview(frame))
    assert isinstance(add, v3.AddRequest)
    frame[-1] = 9
    assert add.packet[-1] == 9
