"""Protocol v3: golden frames, every message there and back, and hostile bytes."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bookie.errors import IncorrectParameterError, MalformedFrameError
from bookie.ledger.codec import EntryDigest, master_key
from bookie.ledger.types import DigestType, Status
from bookie.proto import v3
from bookie.proto import wire_v3_pb2 as wire

KEY = master_key(b"")
PACKET = EntryDigest.of(DigestType.CRC32C, b"").seal(7, 0, -1, 5, b"hello")
int64 = st.integers(0, 300) | st.integers(-(2**63), 2**63 - 1)
uint64 = st.integers(0, 300) | st.integers(0, 2**64 - 1)
priorities = st.sampled_from([0, 1, v3.PRIORITY_HIGH, 2**32 - 1])
statuses = st.sampled_from([s for s in Status if s >= 0])
keys = st.binary(min_size=20, max_size=20)
packets = st.binary(max_size=200)


def body_of(frame: bytes) -> bytes:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


# --- golden ---------------------------------------------------------------------------------------


def test_golden_add_request() -> None:
    frame = v3.encode_add_request(1, 7, 0, KEY, PACKET)
    assert frame.hex() == (
        "000000500a06080310021801aa0645080710001a14850bf1071c5e3d8c24235676f8816ae0cbe2f14f2229"
        "00000000000000070000000000000000ffffffffffffffff00000000000000059e3e717b68656c6c6f"
    )
    assert v3.parse_request(frame[4:]) == v3.AddRequest(1, 7, 0, KEY, PACKET)


def test_golden_add_response() -> None:
    frame = v3.encode_add_response(1, Status.OK, 7, 0)
    assert frame.hex() == "000000130a060803100218011000aa0606080010071800"
    assert v3.parse_response(frame[4:]) == v3.AddResponse(1, Status.OK, 7, 0)


def test_golden_fence_read() -> None:
    frame = v3.encode_read_request(2, 7, v3.LAST_ENTRY, fence_key=KEY)
    assert frame.hex() == (
        "000000310a06080310011802a20626080710ffffffffffffffffff01"
        "1a14850bf1071c5e3d8c24235676f8816ae0cbe2f14fa00601"
    )
    assert v3.parse_request(frame[4:]) == v3.ReadRequest(2, 7, -1, True, KEY)


def test_golden_read_lac() -> None:
    frame = v3.encode_read_lac_request(3, 7)
    assert frame.hex() == "0000000d0a06080310071803c206020807"
    assert v3.parse_request(frame[4:]) == v3.ReadLacRequest(3, 7)


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        # Worked out by hand from the table of docs/formats/wire_v3.md.
        (v3.encode_read_request(1, 7, 5), "0000000f 0a060803100118 01 a20604 08071005"),
        (
            v3.encode_read_request(1, 7, -1, previous_lac=4, wait_ms=1000, is_piggyback=True),
            "00000020 0a060803100118 01 a20615 080710ffffffffffffffffff01 2004 28e807 a00602",
        ),
        (
            v3.encode_add_request(1, 7, 0, KEY, b"p", is_recovery=True, priority=100),
            "0000002d 0a0808031002180120 64 aa0620 08071000 1a14" + KEY.hex() + "220170 a00601",
        ),
        (
            v3.encode_add_request(1, 7, 0, KEY, b"p", is_deferred_sync=True),
            "0000002a 0a060803100218 01 aa061f 08071000 1a14" + KEY.hex() + "220170 2801",
        ),
        (
            v3.encode_write_lac_request(1, 7, KEY, 3, b"p"),
            "00000028 0a060803100618 01 ba061d 08071003 1a14" + KEY.hex() + "220170",
        ),
        (v3.encode_info_request(1), "0000000d 0a060803100818 01 ca0602 0803"),
        (v3.encode_start_tls_request(1), "0000000b 0a060803100918 01 d20600"),
        (v3.encode_force_request(1, 7), "0000000d 0a060803100a18 01 da0602 0807"),
        (v3.encode_list_entries_request(1, 7), "0000000d 0a060803100b18 01 e20602 0807"),
        (v3.encode_auth_request(1, "p", b"x"), "00000011 0a060803100518 01 b20606 0a0170 120178"),
        (
            v3.encode_read_response(1, Status.OK, 7, 5, b"b", 4, 9),
            "0000001a 0a060803100118 01 1000 a2060d 080010071805 220162 2804 3009",
        ),
        (
            v3.encode_read_response(1, Status.NO_ENTRY, 7, 5),
            "00000015 0a060803100118 01 109303 a20607 08930310071805",
        ),
        (
            v3.encode_read_lac_response(1, Status.OK, 7, b"l", b"e"),
            "00000017 0a060803100718 01 1000 c2060a 08001007 1a016c 220165",
        ),
        (v3.encode_auth_response(1), "00000023 0a060803100518 01 1000 b20616 0a12"
         + b"AuthDisabledPlugin".hex() + "1200"),
        (v3.encode_start_tls_response(1), "0000000d 0a060803100918 01 1000 d20600"),
        (v3.encode_bare_response(3, 1, Status.BAD_REQUEST), "0000000b 0a060803100318 01 109403"),
    ],
    ids=lambda value: value.hex()[:40] if isinstance(value, bytes) else "",
)  # fmt: skip
def test_golden_by_hand(frame: bytes, expected: str) -> None:
    assert frame.hex() == expected.replace(" ", "")


# --- there and back -------------------------------------------------------------------------------


@given(uint64, int64, int64, keys, packets, st.booleans(), st.booleans(), priorities)
def test_add_requests(
    txn_id: int,
    ledger_id: int,
    entry_id: int,
    key: bytes,
    packet: bytes,
    is_recovery: bool,
    is_deferred: bool,
    priority: int,
) -> None:
    frame = v3.encode_add_request(
        txn_id,
        ledger_id,
        entry_id,
        key,
        memoryview(packet),
        is_recovery=is_recovery,
        is_deferred_sync=is_deferred,
        priority=priority,
    )
    expected = v3.AddRequest(
        txn_id, ledger_id, entry_id, key, packet, is_recovery, is_deferred, priority
    )
    assert v3.parse_request(body_of(frame)) == expected
    assert v3.parse_request(memoryview(frame)[4:]) == expected


@given(uint64, int64, int64, st.none() | keys, st.none() | int64, st.none() | int64, priorities)
def test_read_requests(
    txn_id: int,
    ledger_id: int,
    entry_id: int,
    key: bytes | None,
    previous_lac: int | None,
    wait_ms: int | None,
    priority: int,
) -> None:
    for is_piggyback in (False, True) if key is None else (False,):
        frame = v3.encode_read_request(
            txn_id,
            ledger_id,
            entry_id,
            fence_key=key,
            previous_lac=previous_lac,
            wait_ms=wait_ms,
            is_piggyback=is_piggyback,
            priority=priority,
        )
        assert v3.parse_request(memoryview(frame)[4:]) == v3.ReadRequest(
            txn_id,
            ledger_id,
            entry_id,
            key is not None,
            key,
            previous_lac,
            wait_ms,
            is_piggyback,
            priority,
        )


@given(uint64, int64, int64, keys, packets, st.text(max_size=9))
def test_other_requests(
    txn_id: int, ledger_id: int, lac: int, key: bytes, packet: bytes, text: str
) -> None:
    for frame, expected in (
        (v3.encode_read_lac_request(txn_id, ledger_id), v3.ReadLacRequest(txn_id, ledger_id)),
        (
            v3.encode_write_lac_request(txn_id, ledger_id, key, lac, packet),
            v3.WriteLacRequest(txn_id, ledger_id, lac, key, packet),
        ),
        (v3.encode_force_request(txn_id, ledger_id), v3.ForceRequest(txn_id, ledger_id)),
        (v3.encode_info_request(txn_id, lac), v3.InfoRequest(txn_id, lac)),
        (
            v3.encode_list_entries_request(txn_id, ledger_id),
            v3.ListEntriesRequest(txn_id, ledger_id),
        ),
        (v3.encode_auth_request(txn_id, text, packet), v3.AuthRequest(txn_id, text, packet)),
        (v3.encode_start_tls_request(txn_id), v3.StartTlsRequest(txn_id)),
    ):
        assert v3.parse_request(body_of(frame)) == expected


@given(uint64, statuses, int64, int64, st.none() | packets, st.none() | int64, st.none() | int64)
def test_read_responses(
    txn_id: int,
    status: Status,
    ledger_id: int,
    entry_id: int,
    body: bytes | None,
    max_lac: int | None,
    update_ms: int | None,
) -> None:
    arguments = (txn_id, status, ledger_id, entry_id, body, max_lac, update_ms)
    frame = v3.encode_read_response(*arguments)
    message = wire.Response(
        header=wire.Header(version=3, operation=1, txnId=txn_id),
        status=status,
        readResponse=wire.ReadResponse(
            status=status,
            ledgerId=ledger_id,
            entryId=entry_id,
            body=body,
            maxLAC=max_lac,
            lacUpdateTimestamp=update_ms,
        ),
    )
    assert body_of(frame) == message.SerializeToString()
    assert b"".join(v3.encode_read_response_parts(*arguments)) == frame
    assert v3.parse_response(memoryview(frame)[4:]) == v3.ReadResponse(
        txn_id, status, ledger_id, entry_id, body or b"", max_lac, update_ms
    )


@given(uint64, statuses, int64, st.none() | int64, packets, packets, st.text(max_size=9))
def test_other_responses(
    txn_id: int,
    status: Status,
    ledger_id: int,
    number: int | None,
    body: bytes,
    other: bytes,
    text: str,
) -> None:
    ids = (txn_id, status, ledger_id)
    for frame, expected in (
        (v3.encode_read_lac_response(*ids, body, other), v3.ReadLacResponse(*ids, body, other)),
        (v3.encode_write_lac_response(*ids), v3.WriteLacResponse(*ids)),
        (v3.encode_force_response(*ids), v3.ForceResponse(*ids)),
        (
            v3.encode_info_response(txn_id, status, ledger_id, number),
            v3.InfoResponse(txn_id, status, ledger_id, number),
        ),
        (v3.encode_list_entries_response(*ids, body), v3.ListEntriesResponse(*ids, body)),
        (
            v3.encode_auth_response(txn_id, status, text, body),
            v3.AuthResponse(txn_id, status, text, body),
        ),
        (v3.encode_start_tls_response(txn_id, status), v3.StartTlsResponse(txn_id, status)),
    ):
        assert v3.parse_response(body_of(frame)) == expected


@pytest.mark.parametrize("operation", v3.Operation)
@pytest.mark.parametrize("status", [s for s in Status if s > 0])
def test_g22_every_refusal_is_a_whole_message(operation: v3.Operation, status: Status) -> None:
    """Outer status, inner status and ids are there: Java reads them from the inner message."""
    frame = v3.encode_refusal(operation, 9, status, 7, 5)
    message = wire.Response.FromString(body_of(frame))
    assert message.IsInitialized()
    assert message.status == status
    for field, inner in message.ListFields():
        if field.name not in ("header", "status", "authResponse", "startTLSResponse"):
            assert inner.status == status
            assert not inner.DESCRIPTOR.fields_by_name.get("ledgerId") or inner.ledgerId == 7
    answer = v3.parse_response(body_of(frame))
    assert (answer.txn_id, answer.operation, answer.status) == (9, operation, status)
    nobody_serves = (v3.Operation.RANGE_READ_ENTRY, v3.Operation.RANGE_ADD_ENTRY, 12)
    assert (len(message.ListFields()) == 2) == (operation in nobody_serves)


# --- what cannot be served ------------------------------------------------------------------------


def request(operation: int, version: int = 3, **fields: Any) -> bytes:
    header = wire.Header(version=version, operation=operation, txnId=9)
    return wire.Request(header=header, **fields).SerializeToString()


@pytest.mark.parametrize("version", [-1, 0, 1, 2, 4])
@pytest.mark.parametrize("operation", [1, 2, 5, 7, 77])
def test_another_version_is_refused(version: int, operation: int) -> None:
    refused = v3.parse_request(request(operation, version))
    assert refused == v3.RefusedRequest(9, operation, Status.BAD_VERSION)
    read = wire.ReadRequest(ledgerId=7, entryId=5)
    add = wire.AddRequest(ledgerId=7, entryId=5, masterKey=KEY, body=PACKET)
    refused = v3.parse_request(request(operation, version, readRequest=read, addRequest=add))
    ids = (7, 5) if operation in (1, 2) else ()  # what was asked for is echoed, as in any error
    assert refused == v3.RefusedRequest(9, operation, Status.BAD_VERSION, *ids)


@pytest.mark.parametrize("operation", [-1, 0, 3, 4, 12, 13, 2**31 - 1])
def test_unknown_operations_are_refused_without_a_message(operation: int) -> None:
    refused = v3.parse_request(request(operation))
    assert refused == v3.RefusedRequest(9, operation, Status.BAD_REQUEST)
    frame = v3.encode_refusal(operation, 9, Status.BAD_REQUEST)
    assert [f.name for f, _ in wire.Response.FromString(body_of(frame)).ListFields()] == [
        "header",
        "status",
    ]
    assert v3.parse_response(body_of(frame)) == v3.UnknownResponse(9, Status.BAD_REQUEST, operation)


@pytest.mark.parametrize("operation", [1, 2, 5, 6, 7, 8, 9, 10, 11])
def test_an_operation_without_its_message_is_refused(operation: int) -> None:
    refused = v3.parse_request(request(operation))
    assert refused == v3.RefusedRequest(9, operation, Status.BAD_REQUEST)
    # The message of another operation does not help.
    other = {"forceLedgerRequest": wire.LedgerRequest(ledgerId=1)}
    if operation != v3.Operation.FORCE_LEDGER:
        assert v3.parse_request(request(operation, **other)) == refused


@pytest.mark.parametrize("key", [b"", bytes(19), bytes(21)])
def test_a_master_key_of_another_length_is_unauthorized(key: bytes) -> None:
    add = wire.AddRequest(ledgerId=7, entryId=5, masterKey=key, body=PACKET)
    assert v3.parse_request(request(2, addRequest=add)) == v3.RefusedRequest(
        9, 2, Status.UNAUTHORIZED, 7, 5
    )
    lac = wire.WriteLacRequest(ledgerId=7, lac=5, masterKey=key, body=b"")
    assert v3.parse_request(request(6, writeLacRequest=lac)) == v3.RefusedRequest(
        9, 6, Status.UNAUTHORIZED, 7
    )
    for call in (
        lambda: v3.encode_add_request(1, 7, 5, key, PACKET),
        lambda: v3.encode_read_request(1, 7, 5, fence_key=key),
        lambda: v3.encode_write_lac_request(1, 7, key, 5, b""),
    ):
        with pytest.raises(IncorrectParameterError, match="20 bytes"):
            call()


def test_unknown_flags_are_ignored_as_bookkeeper_does() -> None:
    read = wire.ReadRequest(ledgerId=7, entryId=5, flag=3)
    assert v3.parse_request(request(1, readRequest=read)) == v3.ReadRequest(9, 7, 5)
    add = wire.AddRequest(ledgerId=7, entryId=5, masterKey=KEY, body=PACKET, flag=8, writeFlags=6)
    assert v3.parse_request(request(2, addRequest=add)) == v3.AddRequest(9, 7, 5, KEY, PACKET)


def test_a_read_has_room_for_one_flag() -> None:
    with pytest.raises(IncorrectParameterError, match="one flag"):
        v3.encode_read_request(1, 7, -1, fence_key=KEY, is_piggyback=True)


def test_a_context_does_no_harm() -> None:
    """Field 200, pairs of key and value, is skipped; and a million of them are not a million."""
    pair = bytes.fromhex("c20c060a016b120176")
    frame = request(7, readLacRequest=wire.LedgerRequest(ledgerId=7))
    assert v3.parse_request(frame + pair * 100_000) == v3.ReadLacRequest(9, 7)
    repeated = [f.name for f in wire.Request.DESCRIPTOR.fields if f.is_repeated]
    assert repeated == [], "each element of a repeated field costs ten times its bytes"


def test_a_plugin_name_that_is_no_text() -> None:
    auth = wire.AuthMessage(authPluginName=b"\xff", payload=b"")
    assert v3.parse_request(request(5, authRequest=auth)) == v3.AuthRequest(9, "\ufffd", b"")


# --- what an answer means -------------------------------------------------------------------------


def response(operation: int, status: int, **fields: Any) -> bytes:
    header = wire.Header(version=3, operation=operation, txnId=9)
    return wire.Response(header=header, status=status, **fields).SerializeToString()


def test_the_outer_status_counts_unless_it_is_ok() -> None:
    inner = wire.AddResponse(status=504, ledgerId=7, entryId=5)
    cases = ((0, Status.FENCED), (502, Status.UNAUTHORIZED))
    for outer, expected in cases:
        frame = response(2, outer, addResponse=inner)
        assert v3.parse_response(frame) == v3.AddResponse(9, expected, 7, 5)


@pytest.mark.parametrize("operation", [1, 2, 5, 6, 7, 8, 9, 10, 11])
def test_an_answer_without_the_operations_message(operation: int) -> None:
    """So bookies refuse what comes before authentication."""
    refused = v3.parse_response(response(operation, 502))
    assert (refused.txn_id, refused.operation, refused.status) == (
        9,
        operation,
        Status.UNAUTHORIZED,
    )
    empty = v3.parse_response(response(operation, 0))
    assert empty.status is Status.BAD_REQUEST
    frame = v3.encode_bare_response(operation, 9, Status.UNAUTHORIZED)
    assert v3.parse_response(body_of(frame)) == refused


def test_a_status_of_a_newer_protocol_is_an_error() -> None:
    inner = wire.AddResponse(status=600, ledgerId=7, entryId=5)
    frame = response(2, 0, addResponse=inner)
    assert v3.parse_response(frame) == v3.AddResponse(9, Status.IO_ERROR, 7, 5)
    assert v3.parse_response(response(77, -5)) == v3.UnknownResponse(9, Status.IO_ERROR, 77)


# --- hostile bytes --------------------------------------------------------------------------------

FRAMES = [
    v3.encode_add_request(1, 7, 0, KEY, PACKET),
    v3.encode_add_request(1, 7, 0, KEY, PACKET, is_recovery=True, priority=100),
    v3.encode_read_request(1, 7, -1, fence_key=KEY),
    v3.encode_read_request(1, 7, -1, previous_lac=4, wait_ms=9, is_piggyback=True),
    v3.encode_write_lac_request(1, 7, KEY, 3, bytes(20)),
    v3.encode_auth_request(1, "plugin", b"payload"),
    v3.encode_add_response(1, Status.OK, 7, 0),
    v3.encode_add_response(1, Status.FENCED, 7, 0),
    v3.encode_read_response(1, Status.OK, 7, 0, PACKET, 3, 4),
    v3.encode_read_lac_response(1, Status.OK, 7, bytes(20), PACKET),
    v3.encode_info_response(1, Status.OK, 1, 2),
]
PARSERS = (v3.parse_request, v3.parse_response)


def try_to_parse(frame: bytes) -> None:
    for parse in PARSERS:
        try:
            parse(memoryview(frame))
        except MalformedFrameError:
            pass


@given(st.binary(max_size=80))
@example(b"")
@example(b"\x0a")
@example(b"\x0a\xff\xff\xff\xff\x0f")
@example(b"\xa3\x06" * 200)  # groups in groups
def test_random_bytes_raise_only_our_error(data: bytes) -> None:
    try_to_parse(data)
    try_to_parse(b"\x0a\x06\x08\x03\x10\x02\x18\x01\xaa\x06" + data)


@given(st.sampled_from(FRAMES), st.data())
def test_mutated_frames_raise_only_our_error(frame: bytes, data: st.DataObject) -> None:
    mutated = bytearray(frame[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(mutated)))
        stop = data.draw(st.integers(start, min(len(mutated), start + 4)))
        mutated[start:stop] = data.draw(st.binary(max_size=4))
    try_to_parse(bytes(mutated))


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.hex()[:40])
def test_every_shorter_frame_is_refused(frame: bytes) -> None:
    for end in range(len(frame) - 4):
        for parse in PARSERS:
            try:
                answer = parse(frame[4 : 4 + end])
            except MalformedFrameError:
                continue
            # A cut between two fields leaves a message that says less, but nothing that serves.
            assert isinstance(answer, v3.RefusedRequest) or answer.status is not Status.OK


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"", "lacks a required field"),
        (b"\x02\x01\x00\x00", "no protobuf message"),  # v2
        (b"GET / HTTP/1.1\r\n\r\n", "no protobuf message"),
        (bytes.fromhex("0a0408031002"), "lacks a required field"),  # no txnId
        (bytes.fromhex("0a06080310021801") + b"\xaa\x06\x02\x08\x07", "lacks a required field"),
    ],
)
def test_g22_missing_required_fields_are_seen(
    parse: Callable[[bytes], object], frame: bytes, says: str
) -> None:
    with pytest.raises(MalformedFrameError, match=says):
        parse(frame)
