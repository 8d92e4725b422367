"""Protocol v2, for clients that ask: fixed headers around the same entry packets.

    request  header ADD:   master key [20], entry packet
             header READ:  ledger id i64, entry id i64, master key [20] with the FENCE flag only
             header BATCH: ledger id i64, entry id i64, request id i64, max count i32,
                           max size i64, master key [20] with the FENCE flag only
             header AUTH:  AuthMessage (protobuf)
    response header, error code i32, ledger id i64, entry id i64, then READ: entry packet;
             BATCH: request id i64 and (size i32, entry packet) repeated; header AUTH: AuthMessage
    header   int32 = version (2) << 24 | opcode << 16 | flags

Answers are matched by (ledger id, entry id, operation), those of BATCH by request id. Bytes that
are malformed raise MalformedFrameError and nothing else. Source: docs/formats/wire_v2.md.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

from bookie.errors import IncorrectParameterError, MalformedFrameError
from bookie.ledger.types import Status
from bookie.proto import wire_v3_pb2 as wire

BytesLike = bytes | bytearray | memoryview

VERSION = 2
FLAG_FENCE = 1
FLAG_RECOVERY = 2
FLAG_HIGH_PRIORITY = 4
MASTER_KEY_BYTES = 20

_HEADER = Struct(">BBH")
_IDS = Struct(">qq")
_BATCH = Struct(">qqqiq")
_RESPONSE = Struct(">BBHiqq")
_REQUEST_ID = Struct(">q")
_SIZE = Struct(">i")

_BATCH_FRAME_OVERHEAD = 4 + _RESPONSE.size + _REQUEST_ID.size


class Opcode(IntEnum):
    """What servers take; 4 to 6 are defined in the protocol and refused by every server."""

    ADD = 1
    READ = 2
    AUTH = 3
    BATCH_READ = 7


_CODES: dict[Status, int] = {
    Status.OK: 0,
    Status.NO_LEDGER: 1,
    Status.NO_ENTRY: 2,
    Status.BAD_REQUEST: 100,
    Status.IO_ERROR: 101,
    Status.UNAUTHORIZED: 102,
    Status.BAD_VERSION: 103,
    Status.FENCED: 104,
    Status.READ_ONLY: 105,
    Status.TOO_MANY_REQUESTS: 106,
    Status.UNKNOWN_LEDGER_STATE: 107,
}
_STATUSES = {code: status for status, code in _CODES.items()}


class AddRequest(NamedTuple):
    """Store an entry; its ids are those inside the packet."""

    ledger_id: int
    entry_id: int
    master_key: bytes
    packet: BytesLike
    is_recovery: bool = False
    is_high_priority: bool = False


class ReadRequest(NamedTuple):
    """Read an entry (-1: the last one held); fence first if is_fence."""

    ledger_id: int
    entry_id: int
    is_fence: bool = False
    master_key: bytes | None = None
    is_high_priority: bool = False


class BatchReadRequest(NamedTuple):
    """Read consecutive entries; see BatchBudget for how many."""

    ledger_id: int
    entry_id: int
    request_id: int
    max_count: int
    """0 or less: no limit."""
    max_size: int
    is_fence: bool = False
    master_key: bytes | None = None
    is_high_priority: bool = False


class AuthRequest(NamedTuple):
    """One step of an authentication."""

    plugin_name: str
    payload: bytes


class RefusedRequest(NamedTuple):
    """A request of another version than 2; encode_refusal() makes its answer."""

    opcode: int
    status: Status
    ledger_id: int
    entry_id: int
    request_id: int = 0


Request = AddRequest | ReadRequest | BatchReadRequest | AuthRequest | RefusedRequest


class AddResponse(NamedTuple):
    """Answer to ADD."""

    status: Status
    ledger_id: int
    entry_id: int


class ReadResponse(NamedTuple):
    """Answer to READ: the packet, not verified; empty when there is none."""

    status: Status
    ledger_id: int
    entry_id: int
    body: BytesLike = b""


class BatchReadResponse(NamedTuple):
    """Answer to BATCH_READ: packets of consecutive entries from entry_id on, not verified."""

    status: Status
    ledger_id: int
    entry_id: int
    request_id: int
    packets: tuple[BytesLike, ...] = ()


class AuthResponse(NamedTuple):
    """Answer to AUTH; it has no status."""

    plugin_name: str
    payload: bytes


Response = AddResponse | ReadResponse | BatchReadResponse | AuthResponse


def is_v2(frame: BytesLike) -> bool:
    """Tell by the first byte; no protobuf message, so no v3 request, begins with it."""
    return len(frame) > 0 and frame[0] == VERSION


class BatchBudget:
    """How much of a batch may be sent: take() each packet in turn until it says no.

    The answer's frame stays within the smaller of what the client asked and `frame_bytes_max`;
    the first packet always fits, as in BookKeeper, since one entry fits into a frame.
    """

    def __init__(self, request: BatchReadRequest, frame_bytes_max: int) -> None:
        self._left = min(request.max_size, frame_bytes_max) - _BATCH_FRAME_OVERHEAD
        self._count_left = request.max_count if request.max_count > 0 else -1
        self._is_first = True

    def take(self, packet_byte_count: int) -> bool:
        """Account for one more packet; False: it does not belong into this answer any more."""
        self._left -= _SIZE.size + packet_byte_count
        if self._count_left == 0 or (self._left < 0 and not self._is_first):
            return False
        self._count_left -= 1
        self._is_first = False
        return True


# --- requests -------------------------------------------------------------------------------------


def parse_request(frame: BytesLike) -> Request:
    """Read a frame (without its length) as a request; MalformedFrameError."""
    version, opcode, flags = _HEADER.unpack(_piece(frame, 0, _HEADER.size))
    at = _HEADER.size
    is_fence = bool(flags & FLAG_FENCE)
    is_high = bool(flags & FLAG_HIGH_PRIORITY)
    match opcode:
        case Opcode.ADD:
            key = bytes(_piece(frame, at, MASTER_KEY_BYTES))
            at += MASTER_KEY_BYTES
            ledger_id, entry_id = _IDS.unpack(_piece(frame, at, _IDS.size))
            if version != VERSION:
                return RefusedRequest(opcode, Status.BAD_VERSION, ledger_id, entry_id)
            is_recovery = bool(flags & FLAG_RECOVERY)
            return AddRequest(ledger_id, entry_id, key, frame[at:], is_recovery, is_high)
        case Opcode.READ:
            ledger_id, entry_id = _IDS.unpack(_piece(frame, at, _IDS.size))
            if version != VERSION:
                return RefusedRequest(opcode, Status.BAD_VERSION, ledger_id, entry_id)
            key = _fence_key(frame, at + _IDS.size, is_fence=is_fence)
            return ReadRequest(ledger_id, entry_id, is_fence, key, is_high)
        case Opcode.BATCH_READ:
            fields = _BATCH.unpack(_piece(frame, at, _BATCH.size))
            ledger_id, entry_id, request_id, max_count, max_size = fields
            if version != VERSION:
                status = Status.BAD_VERSION
                return RefusedRequest(opcode, status, ledger_id, entry_id, request_id)
            key = _fence_key(frame, at + _BATCH.size, is_fence=is_fence)
            return BatchReadRequest(
                ledger_id, entry_id, request_id, max_count, max_size, is_fence, key, is_high
            )
        case Opcode.AUTH:
            return AuthRequest(*_parse_auth(frame))
        case _:
            raise MalformedFrameError(
                f"a frame of {len(frame)} bytes with v2 opcode {opcode}; expected 1, 2, 3 or 7"
            )


def encode_add_request(
    master_key: bytes,
    packet: BytesLike,
    *,
    is_recovery: bool = False,
    is_high_priority: bool = False,
) -> bytes:
    flags = is_recovery * FLAG_RECOVERY | is_high_priority * FLAG_HIGH_PRIORITY
    return _frame(_HEADER.pack(VERSION, Opcode.ADD, flags), _key(master_key), packet)


def encode_read_request(
    ledger_id: int,
    entry_id: int,
    *,
    fence_key: bytes | None = None,
    is_high_priority: bool = False,
) -> bytes:
    flags = (fence_key is not None) * FLAG_FENCE | is_high_priority * FLAG_HIGH_PRIORITY
    header = _HEADER.pack(VERSION, Opcode.READ, flags)
    key = b"" if fence_key is None else _key(fence_key)
    return _frame(header, _IDS.pack(ledger_id, entry_id), key)


def encode_batch_read_request(
    ledger_id: int,
    entry_id: int,
    request_id: int,
    max_count: int,
    max_size: int,
    *,
    fence_key: bytes | None = None,
    is_high_priority: bool = False,
) -> bytes:
    flags = (fence_key is not None) * FLAG_FENCE | is_high_priority * FLAG_HIGH_PRIORITY
    header = _HEADER.pack(VERSION, Opcode.BATCH_READ, flags)
    key = b"" if fence_key is None else _key(fence_key)
    body = _BATCH.pack(ledger_id, entry_id, request_id, max_count, max_size)
    return _frame(header, body, key)


def encode_auth_request(plugin_name: str, payload: bytes) -> bytes:
    return _encode_auth(plugin_name, payload)


# --- responses ------------------------------------------------------------------------------------


def parse_response(frame: BytesLike) -> Response:
    """Read a frame (without its length) as a response; MalformedFrameError."""
    version, opcode, _ = _HEADER.unpack(_piece(frame, 0, _HEADER.size))
    if version != VERSION:
        raise MalformedFrameError(f"a response of protocol version {version}; expected {VERSION}")
    if opcode == Opcode.AUTH:
        return AuthResponse(*_parse_auth(frame))
    fields = _RESPONSE.unpack(_piece(frame, 0, _RESPONSE.size))
    # A code of a newer protocol counts as an I/O error.
    status, ledger_id, entry_id = _STATUSES.get(fields[3], Status.IO_ERROR), fields[4], fields[5]
    match opcode:
        case Opcode.ADD:
            return AddResponse(status, ledger_id, entry_id)
        case Opcode.READ:
            return ReadResponse(status, ledger_id, entry_id, frame[_RESPONSE.size :])
        case Opcode.BATCH_READ:
            at = _RESPONSE.size
            (request_id,) = _REQUEST_ID.unpack(_piece(frame, at, _REQUEST_ID.size))
            packets = _split_batch(frame, at + _REQUEST_ID.size)
            return BatchReadResponse(status, ledger_id, entry_id, request_id, packets)
        case _:
            raise MalformedFrameError(
                f"a frame of {len(frame)} bytes answers v2 opcode {opcode}; expected 1, 2, 3 or 7"
            )


def encode_add_response(status: Status, ledger_id: int, entry_id: int) -> bytes:
    return _frame(_response(Opcode.ADD, status, ledger_id, entry_id))


def encode_read_response(
    status: Status, ledger_id: int, entry_id: int, body: BytesLike = b""
) -> bytes:
    return _frame(_response(Opcode.READ, status, ledger_id, entry_id), body)


def encode_batch_read_response(
    status: Status,
    ledger_id: int,
    entry_id: int,
    request_id: int,
    packets: Sequence[BytesLike] = (),
) -> bytes:
    """Return the answer to a batch; with an error there are no packets."""
    parts: list[BytesLike] = [_response(Opcode.BATCH_READ, status, ledger_id, entry_id)]
    parts.append(_REQUEST_ID.pack(request_id))
    for packet in packets:
        parts += (_SIZE.pack(len(packet)), packet)
    return _frame(*parts)


def encode_auth_response(plugin_name: str, payload: bytes = b"") -> bytes:
    return _encode_auth(plugin_name, payload)


def encode_refusal(
    opcode: int, status: Status, ledger_id: int, entry_id: int, request_id: int = 0
) -> bytes:
    """Return the error answer of ADD, READ or BATCH_READ; AUTH has none: close instead."""
    if opcode == Opcode.BATCH_READ:
        return encode_batch_read_response(status, ledger_id, entry_id, request_id)
    return _frame(_response(opcode, status, ledger_id, entry_id))


# --- both -----------------------------------------------------------------------------------------


def _response(opcode: int, status: Status, ledger_id: int, entry_id: int) -> bytes:
    return _RESPONSE.pack(VERSION, opcode, 0, _CODES[status], ledger_id, entry_id)


def _piece(frame: BytesLike, start: int, byte_count: int) -> BytesLike:
    if len(frame) < start + byte_count:
        raise MalformedFrameError(
            f"a v2 message of {len(frame)} bytes; expected at least {start + byte_count}"
        )
    return frame[start : start + byte_count]


def _fence_key(frame: BytesLike, start: int, *, is_fence: bool) -> bytes | None:
    return bytes(_piece(frame, start, MASTER_KEY_BYTES)) if is_fence else None


def _split_batch(frame: BytesLike, start: int) -> tuple[BytesLike, ...]:
    packets: list[BytesLike] = []
    while start < len(frame):
        (size,) = _SIZE.unpack(_piece(frame, start, _SIZE.size))
        if size < 0:
            raise MalformedFrameError(f"a batch with an entry of {size} bytes")
        start += _SIZE.size
        packets.append(_piece(frame, start, size))
        start += size
    return tuple(packets)


def _parse_auth(frame: BytesLike) -> tuple[str, bytes]:
    try:
        message = wire.AuthMessage.FromString(bytes(frame[_HEADER.size :]))
    except DecodeError as error:
        raise MalformedFrameError(f"a v2 AUTH without its message: {error}") from None
    if not message.IsInitialized():
        raise MalformedFrameError("a v2 AUTH without plug-in name or payload")
    return message.authPluginName.decode("utf-8", "replace"), message.payload


def _encode_auth(plugin_name: str, payload: bytes) -> bytes:
    message = wire.AuthMessage(authPluginName=plugin_name.encode(), payload=payload)
    return _frame(_HEADER.pack(VERSION, Opcode.AUTH, 0), message.SerializeToString())


def _key(master_key: bytes) -> bytes:
    if len(master_key) != MASTER_KEY_BYTES:
        raise IncorrectParameterError(
            f"master key: expected {MASTER_KEY_BYTES} bytes, found {len(master_key)}"
        )
    return master_key


def _frame(*parts: BytesLike) -> bytes:
    length = sum(len(part) for part in parts)
    return b"".join((length.to_bytes(4, "big"), *parts))
