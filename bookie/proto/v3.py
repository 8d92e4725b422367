"""Protocol v3: one light object for each message, frames of them and back.

A frame is int32 length and one protobuf message, Request or Response (bookie/proto/wire_v3.proto;
docs/formats/wire_v3.md). Answers are matched by (txn_id, operation). Parsing takes anything: what
is no message of the protocol raises MalformedFrameError and nothing else; a message that cannot
be served becomes a RefusedRequest. Encoding never leaves out a required field, since a peer that
misses one takes the connection for a v2 one (G22).
"""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from bookie.errors import IncorrectParameterError, MalformedFrameError
from bookie.ledger.types import Status
from bookie.proto import wire_v3_pb2 as wire

BytesLike = bytes | bytearray | memoryview

VERSION = 3
PRIORITY_HIGH = 100
"""What Apache's client sends with recovery reads and adds; a bookie asks only whether it is > 0."""
READ_FLAG_FENCE = 1
READ_FLAG_PIGGYBACK = 2
ADD_FLAG_RECOVERY = 1
WRITE_FLAG_DEFERRED_SYNC = 1
INFO_TOTAL = 1
INFO_FREE = 2
LAST_ENTRY = -1
"""As entry id of a read: the entry with the highest id that the bookie holds."""
MASTER_KEY_BYTES = 20
AUTH_DISABLED_PLUGIN = "AuthDisabledPlugin"
"""What a bookie without authentication calls itself when a client sends AUTH all the same."""


class Operation(IntEnum):
    """The numbers of the protocol; two range operations exist in it but nowhere else."""

    READ_ENTRY = 1
    ADD_ENTRY = 2
    RANGE_READ_ENTRY = 3
    RANGE_ADD_ENTRY = 4
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8
    START_TLS = 9
    FORCE_LEDGER = 10
    GET_LIST_OF_ENTRIES_OF_LEDGER = 11
    BATCH_READ_ENTRY = 12


# --- requests -------------------------------------------------------------------------------------


class AddRequest(NamedTuple):
    """Store an entry. The ids count only for the answer: what is stored says its own in packet."""

    txn_id: int
    ledger_id: int
    entry_id: int
    master_key: bytes
    packet: BytesLike
    is_recovery: bool = False
    is_deferred_sync: bool = False
    priority: int = 0
    operation = Operation.ADD_ENTRY


class ReadRequest(NamedTuple):
    """Read an entry; fence first if is_fence; wait for news if previous_lac is given."""

    txn_id: int
    ledger_id: int
    entry_id: int
    is_fence: bool = False
    master_key: bytes | None = None
    """None: the request has none, which a fencing read must (UNAUTHORIZED)."""
    previous_lac: int | None = None
    wait_ms: int | None = None
    is_piggyback: bool = False
    priority: int = 0
    operation = Operation.READ_ENTRY


class ReadLacRequest(NamedTuple):
    """Read the explicit LAC and the last entry."""

    txn_id: int
    ledger_id: int
    priority: int = 0
    operation = Operation.READ_LAC


class WriteLacRequest(NamedTuple):
    """Store an explicit LAC packet as it is."""

    txn_id: int
    ledger_id: int
    lac: int
    master_key: bytes
    packet: BytesLike
    priority: int = 0
    operation = Operation.WRITE_LAC


class ForceRequest(NamedTuple):
    """Make durable what was acknowledged before."""

    txn_id: int
    ledger_id: int
    priority: int = 0
    operation = Operation.FORCE_LEDGER


class InfoRequest(NamedTuple):
    """Ask for disk space; requested is a sum of INFO_TOTAL and INFO_FREE."""

    txn_id: int
    requested: int
    priority: int = 0
    operation = Operation.GET_BOOKIE_INFO


class ListEntriesRequest(NamedTuple):
    """Ask which entries of the ledger the bookie holds."""

    txn_id: int
    ledger_id: int
    priority: int = 0
    operation = Operation.GET_LIST_OF_ENTRIES_OF_LEDGER


class AuthRequest(NamedTuple):
    """One step of an authentication."""

    txn_id: int
    plugin_name: str
    payload: bytes
    priority: int = 0
    operation = Operation.AUTH


class StartTlsRequest(NamedTuple):
    """Ask for TLS on this connection from the next byte on."""

    txn_id: int
    priority: int = 0
    operation = Operation.START_TLS


class RefusedRequest(NamedTuple):
    """A request of the protocol that nobody can serve; encode_refusal() makes its answer."""

    txn_id: int
    operation: int
    """The number as it came: maybe no Operation."""
    status: Status
    ledger_id: int = -1
    entry_id: int = -1


Request = (
    AddRequest
    | ReadRequest
    | ReadLacRequest
    | WriteLacRequest
    | ForceRequest
    | InfoRequest
    | ListEntriesRequest
    | AuthRequest
    | StartTlsRequest
    | RefusedRequest
)


def parse_request(frame: BytesLike) -> Request:
    """Take a frame (without its length) for a request; MalformedFrameError when it is none."""
    message = _parse(wire.Request, frame)
    header = message.header
    operation = header.operation
    if header.version != VERSION:
        return RefusedRequest(header.txnId, operation, Status.BAD_VERSION)
    field_and_reader = _REQUESTS.get(operation)
    if field_and_reader is None:
        return RefusedRequest(header.txnId, operation, Status.BAD_REQUEST)
    field, reader = field_and_reader
    if not message.HasField(field):
        return RefusedRequest(header.txnId, operation, Status.BAD_REQUEST)
    return reader(message, header.txnId, header.priority)


def _read_add(message: wire.Request, txn_id: int, priority: int) -> Request:
    m = message.addRequest
    if len(m.masterKey) != MASTER_KEY_BYTES:
        return RefusedRequest(
            txn_id, Operation.ADD_ENTRY, Status.UNAUTHORIZED, m.ledgerId, m.entryId
        )
    return AddRequest(
        txn_id,
        m.ledgerId,
        m.entryId,
        m.masterKey,
        m.body,
        m.flag == ADD_FLAG_RECOVERY,
        bool(m.writeFlags & WRITE_FLAG_DEFERRED_SYNC),
        priority,
    )


def _read_read(message: wire.Request, txn_id: int, priority: int) -> Request:
    m = message.readRequest
    return ReadRequest(
        txn_id,
        m.ledgerId,
        m.entryId,
        m.flag == READ_FLAG_FENCE,
        m.masterKey if m.HasField("masterKey") else None,
        m.previousLAC if m.HasField("previousLAC") else None,
        m.timeOut if m.HasField("timeOut") else None,
        m.flag == READ_FLAG_PIGGYBACK,
        priority,
    )


def _read_write_lac(message: wire.Request, txn_id: int, priority: int) -> Request:
    m = message.writeLacRequest
    if len(m.masterKey) != MASTER_KEY_BYTES:
        return RefusedRequest(txn_id, Operation.WRITE_LAC, Status.UNAUTHORIZED, m.ledgerId)
    return WriteLacRequest(txn_id, m.ledgerId, m.lac, m.masterKey, m.body, priority)


def _read_auth(message: wire.Request, txn_id: int, priority: int) -> Request:
    m = message.authRequest
    return AuthRequest(txn_id, m.authPluginName.decode("utf-8", "replace"), m.payload, priority)


_REQUESTS: dict[int, tuple[str, Callable[[wire.Request, int, int], Request]]] = {
    Operation.ADD_ENTRY: ("addRequest", _read_add),
    Operation.READ_ENTRY: ("readRequest", _read_read),
    Operation.READ_LAC: (
        "readLacRequest",
        lambda m, txn_id, priority: ReadLacRequest(txn_id, m.readLacRequest.ledgerId, priority),
    ),
    Operation.WRITE_LAC: ("writeLacRequest", _read_write_lac),
    Operation.FORCE_LEDGER: (
        "forceLedgerRequest",
        lambda m, txn_id, priority: ForceRequest(txn_id, m.forceLedgerRequest.ledgerId, priority),
    ),
    Operation.GET_BOOKIE_INFO: (
        "getBookieInfoRequest",
        lambda m, txn_id, priority: InfoRequest(txn_id, m.getBookieInfoRequest.requested, priority),
    ),
    Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: (
        "getListOfEntriesOfLedgerRequest",
        lambda m, txn_id, priority: ListEntriesRequest(
            txn_id, m.getListOfEntriesOfLedgerRequest.ledgerId, priority
        ),
    ),
    Operation.AUTH: ("authRequest", _read_auth),
    Operation.START_TLS: (
        "startTLSRequest",
        lambda m, txn_id, priority: StartTlsRequest(txn_id, priority),
    ),
}


def _request(txn_id: int, operation: Operation, priority: int = 0) -> wire.Request:
    message = wire.Request()
    header = message.header
    header.version = VERSION
    header.operation = operation
    header.txnId = txn_id
    if priority:
        header.priority = priority
    return message


def encode_add_request(
    txn_id: int,
    ledger_id: int,
    entry_id: int,
    master_key: bytes,
    packet: BytesLike,
    *,
    is_recovery: bool = False,
    is_deferred_sync: bool = False,
    priority: int = 0,
) -> bytes:
    """Return the frame of an add. The same bytes may go to every bookie of the write set."""
    message = _request(txn_id, Operation.ADD_ENTRY, priority)
    m = message.addRequest
    m.ledgerId = ledger_id
    m.entryId = entry_id
    m.masterKey = _key(master_key)
    m.body = bytes(packet)
    if is_recovery:
        m.flag = ADD_FLAG_RECOVERY
    if is_deferred_sync:
        m.writeFlags = WRITE_FLAG_DEFERRED_SYNC
    return _frame(message)


def encode_read_request(
    txn_id: int,
    ledger_id: int,
    entry_id: int,
    *,
    fence_key: bytes | None = None,
    previous_lac: int | None = None,
    wait_ms: int | None = None,
    is_piggyback: bool = False,
    priority: int = 0,
) -> bytes:
    """Return the frame of a read; fence_key makes it a fencing one, previous_lac a long poll.

    The protocol has room for one flag only: fence_key and is_piggyback exclude each other.
    """
    if fence_key is not None and is_piggyback:
        raise IncorrectParameterError("a read cannot fence and piggyback: v3 carries one flag")
    message = _request(txn_id, Operation.READ_ENTRY, priority)
    m = message.readRequest
    m.ledgerId = ledger_id
    m.entryId = entry_id
    if fence_key is not None:
        m.masterKey = _key(fence_key)
        m.flag = READ_FLAG_FENCE
    elif is_piggyback:
        m.flag = READ_FLAG_PIGGYBACK
    if previous_lac is not None:
        m.previousLAC = previous_lac
    if wait_ms is not None:
        m.timeOut = wait_ms
    return _frame(message)


def encode_read_lac_request(txn_id: int, ledger_id: int) -> bytes:
    message = _request(txn_id, Operation.READ_LAC)
    message.readLacRequest.ledgerId = ledger_id
    return _frame(message)


def encode_write_lac_request(
    txn_id: int, ledger_id: int, master_key: bytes, lac: int, packet: BytesLike
) -> bytes:
    message = _request(txn_id, Operation.WRITE_LAC)
    m = message.writeLacRequest
    m.ledgerId = ledger_id
    m.lac = lac
    m.masterKey = _key(master_key)
    m.body = bytes(packet)
    return _frame(message)


def encode_force_request(txn_id: int, ledger_id: int) -> bytes:
    message = _request(txn_id, Operation.FORCE_LEDGER)
    message.forceLedgerRequest.ledgerId = ledger_id
    return _frame(message)


def encode_info_request(txn_id: int, requested: int = INFO_TOTAL | INFO_FREE) -> bytes:
    message = _request(txn_id, Operation.GET_BOOKIE_INFO)
    message.getBookieInfoRequest.requested = requested
    return _frame(message)


def encode_list_entries_request(txn_id: int, ledger_id: int) -> bytes:
    message = _request(txn_id, Operation.GET_LIST_OF_ENTRIES_OF_LEDGER)
    message.getListOfEntriesOfLedgerRequest.ledgerId = ledger_id
    return _frame(message)


def encode_auth_request(txn_id: int, plugin_name: str, payload: bytes) -> bytes:
    message = _request(txn_id, Operation.AUTH)
    message.authRequest.authPluginName = plugin_name.encode()
    message.authRequest.payload = payload
    return _frame(message)


def encode_start_tls_request(txn_id: int) -> bytes:
    message = _request(txn_id, Operation.START_TLS)
    message.startTLSRequest.SetInParent()
    return _frame(message)


# --- responses ------------------------------------------------------------------------------------


class AddResponse(NamedTuple):
    """Answer to ADD_ENTRY. The ids are -1 where the bookie sent no message of the operation."""

    txn_id: int
    status: Status
    ledger_id: int = -1
    entry_id: int = -1
    operation = Operation.ADD_ENTRY


class ReadResponse(NamedTuple):
    """Answer to READ_ENTRY: the packet, not verified; empty when there is none."""

    txn_id: int
    status: Status
    ledger_id: int = -1
    entry_id: int = -1
    body: BytesLike = b""
    max_lac: int | None = None
    lac_update_ms: int | None = None
    operation = Operation.READ_ENTRY


class ReadLacResponse(NamedTuple):
    """Answer to READ_LAC: two packets, not verified; empty where there is none."""

    txn_id: int
    status: Status
    ledger_id: int = -1
    lac_body: bytes = b""
    last_entry_body: bytes = b""
    operation = Operation.READ_LAC


class WriteLacResponse(NamedTuple):
    """Answer to WRITE_LAC."""

    txn_id: int
    status: Status
    ledger_id: int = -1
    operation = Operation.WRITE_LAC


class ForceResponse(NamedTuple):
    """Answer to FORCE_LEDGER."""

    txn_id: int
    status: Status
    ledger_id: int = -1
    operation = Operation.FORCE_LEDGER


class InfoResponse(NamedTuple):
    """Answer to GET_BOOKIE_INFO; None for what was not asked."""

    txn_id: int
    status: Status
    total_bytes: int | None = None
    free_bytes: int | None = None
    operation = Operation.GET_BOOKIE_INFO


class ListEntriesResponse(NamedTuple):
    """Answer to GET_LIST_OF_ENTRIES_OF_LEDGER; the bytes are availability.decode's."""

    txn_id: int
    status: Status
    ledger_id: int = -1
    availability: bytes = b""
    operation = Operation.GET_LIST_OF_ENTRIES_OF_LEDGER


class AuthResponse(NamedTuple):
    """Answer to AUTH."""

    txn_id: int
    status: Status
    plugin_name: str = ""
    payload: bytes = b""
    operation = Operation.AUTH


class StartTlsResponse(NamedTuple):
    """Answer to START_TLS; with OK the handshake is next."""

    txn_id: int
    status: Status
    operation = Operation.START_TLS


class UnknownResponse(NamedTuple):
    """An answer to an operation that this client never asks for."""

    txn_id: int
    status: Status
    operation: int


Response = (
    AddResponse
    | ReadResponse
    | ReadLacResponse
    | WriteLacResponse
    | ForceResponse
    | InfoResponse
    | ListEntriesResponse
    | AuthResponse
    | StartTlsResponse
    | UnknownResponse
)


def parse_response(frame: BytesLike) -> Response:
    """Take a frame (without its length) for a response; MalformedFrameError when it is none.

    Status is the outer one unless that is OK; then the one of the operation's own message. An
    answer without that message is taken by the outer status (bookies refuse so before they
    authenticated the client), and as BAD_REQUEST when that says OK but something had to come.
    """
    message = _parse(wire.Response, frame)
    header = message.header
    txn_id = header.txnId
    field_and_reader = _RESPONSES.get(header.operation)
    if field_and_reader is None:
        return UnknownResponse(txn_id, _status(message.status), header.operation)
    field, reader, bare = field_and_reader
    if not message.HasField(field):
        return bare(txn_id, _status(message.status or Status.BAD_REQUEST))
    return reader(message, txn_id, message.status)


def _read_add_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.addResponse
    return AddResponse(txn_id, _status(status or m.status), m.ledgerId, m.entryId)


def _read_read_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.readResponse
    return ReadResponse(
        txn_id,
        _status(status or m.status),
        m.ledgerId,
        m.entryId,
        m.body,
        m.maxLAC if m.HasField("maxLAC") else None,
        m.lacUpdateTimestamp if m.HasField("lacUpdateTimestamp") else None,
    )


def _read_lac_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.readLacResponse
    return ReadLacResponse(
        txn_id, _status(status or m.status), m.ledgerId, m.lacBody, m.lastEntryBody
    )


def _read_write_lac_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.writeLacResponse
    return WriteLacResponse(txn_id, _status(status or m.status), m.ledgerId)


def _read_force_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.forceLedgerResponse
    return ForceResponse(txn_id, _status(status or m.status), m.ledgerId)


def _read_info_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.getBookieInfoResponse
    return InfoResponse(
        txn_id,
        _status(status or m.status),
        m.totalDiskCapacity if m.HasField("totalDiskCapacity") else None,
        m.freeDiskSpace if m.HasField("freeDiskSpace") else None,
    )


def _read_list_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.getListOfEntriesOfLedgerResponse
    return ListEntriesResponse(
        txn_id, _status(status or m.status), m.ledgerId, m.availabilityOfEntriesOfLedger
    )


def _read_auth_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.authResponse
    name = m.authPluginName.decode("utf-8", "replace")
    return AuthResponse(txn_id, _status(status), name, m.payload)


def _read_tls_response(message: wire.Response, txn_id: int, status: int) -> Response:
    return StartTlsResponse(txn_id, _status(status))


_ResponseReader = Callable[[wire.Response, int, int], Response]
_BareResponse = Callable[[int, Status], Response]

_RESPONSES: dict[int, tuple[str, _ResponseReader, _BareResponse]] = {
    Operation.ADD_ENTRY: ("addResponse", _read_add_response, AddResponse),
    Operation.READ_ENTRY: ("readResponse", _read_read_response, ReadResponse),
    Operation.READ_LAC: ("readLacResponse", _read_lac_response, ReadLacResponse),
    Operation.WRITE_LAC: ("writeLacResponse", _read_write_lac_response, WriteLacResponse),
    Operation.FORCE_LEDGER: ("forceLedgerResponse", _read_force_response, ForceResponse),
    Operation.GET_BOOKIE_INFO: ("getBookieInfoResponse", _read_info_response, InfoResponse),
    Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: (
        "getListOfEntriesOfLedgerResponse",
        _read_list_response,
        ListEntriesResponse,
    ),
    Operation.AUTH: ("authResponse", _read_auth_response, AuthResponse),
    Operation.START_TLS: ("startTLSResponse", _read_tls_response, StartTlsResponse),
}


def _response(txn_id: int, operation: int, status: int) -> wire.Response:
    message = wire.Response()
    header = message.header
    header.version = VERSION
    header.operation = operation
    header.txnId = txn_id
    message.status = status
    return message


def encode_add_response(txn_id: int, status: Status, ledger_id: int, entry_id: int) -> bytes:
    message = _response(txn_id, Operation.ADD_ENTRY, status)
    m = message.addResponse
    m.status = status
    m.ledgerId = ledger_id
    m.entryId = entry_id
    return _frame(message)


def encode_read_response(
    txn_id: int,
    status: Status,
    ledger_id: int,
    entry_id: int,
    body: BytesLike | None = None,
    max_lac: int | None = None,
    lac_update_ms: int | None = None,
) -> bytes:
    """Return the frame of an answer to a read; body None: no packet (an error, or no news)."""
    head, body, tail = encode_read_response_parts(
        txn_id, status, ledger_id, entry_id, body, max_lac, lac_update_ms
    )
    return b"".join((head, body, tail))


def encode_read_response_parts(
    txn_id: int,
    status: Status,
    ledger_id: int,
    entry_id: int,
    body: BytesLike | None = None,
    max_lac: int | None = None,
    lac_update_ms: int | None = None,
) -> tuple[bytes, BytesLike, bytes]:
    """Return the same frame as (head, body, tail), the body not copied; for writelines()."""
    tail = wire.ReadResponse()
    if max_lac is not None:
        tail.maxLAC = max_lac
    if lac_update_ms is not None:
        tail.lacUpdateTimestamp = lac_update_ms
    tail_bytes = tail.SerializePartialToString()
    answer = wire.ReadResponse(status=status, ledgerId=ledger_id, entryId=entry_id)
    inner = answer.SerializeToString()
    if body is None:
        body = b""
    else:
        inner += b"\x22" + _varint(len(body))
    inner_count = len(inner) + len(body) + len(tail_bytes)
    outer = _response(txn_id, Operation.READ_ENTRY, status).SerializeToString()
    outer += b"\xa2\x06" + _varint(inner_count)
    length = len(outer) + inner_count
    return length.to_bytes(4, "big") + outer + inner, body, tail_bytes


def encode_read_lac_response(
    txn_id: int,
    status: Status,
    ledger_id: int,
    lac_body: BytesLike = b"",
    last_entry_body: BytesLike = b"",
) -> bytes:
    """Return the frame of an answer to READ_LAC; an empty packet is left out."""
    message = _response(txn_id, Operation.READ_LAC, status)
    m = message.readLacResponse
    m.status = status
    m.ledgerId = ledger_id
    if lac_body:
        m.lacBody = bytes(lac_body)
    if last_entry_body:
        m.lastEntryBody = bytes(last_entry_body)
    return _frame(message)


def encode_write_lac_response(txn_id: int, status: Status, ledger_id: int) -> bytes:
    message = _response(txn_id, Operation.WRITE_LAC, status)
    message.writeLacResponse.status = status
    message.writeLacResponse.ledgerId = ledger_id
    return _frame(message)


def encode_force_response(txn_id: int, status: Status, ledger_id: int) -> bytes:
    message = _response(txn_id, Operation.FORCE_LEDGER, status)
    message.forceLedgerResponse.status = status
    message.forceLedgerResponse.ledgerId = ledger_id
    return _frame(message)


def encode_info_response(
    txn_id: int, status: Status, total_bytes: int | None = None, free_bytes: int | None = None
) -> bytes:
    """Return the frame of an answer to GET_BOOKIE_INFO; None: was not asked."""
    message = _response(txn_id, Operation.GET_BOOKIE_INFO, status)
    m = message.getBookieInfoResponse
    m.status = status
    if total_bytes is not None:
        m.totalDiskCapacity = total_bytes
    if free_bytes is not None:
        m.freeDiskSpace = free_bytes
    return _frame(message)


def encode_list_entries_response(
    txn_id: int, status: Status, ledger_id: int, availability: bytes = b""
) -> bytes:
    message = _response(txn_id, Operation.GET_LIST_OF_ENTRIES_OF_LEDGER, status)
    m = message.getListOfEntriesOfLedgerResponse
    m.status = status
    m.ledgerId = ledger_id
    if availability:
        m.availabilityOfEntriesOfLedger = availability
    return _frame(message)


def encode_auth_response(
    txn_id: int,
    status: Status = Status.OK,
    plugin_name: str = AUTH_DISABLED_PLUGIN,
    payload: bytes = b"",
) -> bytes:
    message = _response(txn_id, Operation.AUTH, status)
    message.authResponse.authPluginName = plugin_name.encode()
    message.authResponse.payload = payload
    return _frame(message)


def encode_start_tls_response(txn_id: int, status: Status = Status.OK) -> bytes:
    message = _response(txn_id, Operation.START_TLS, status)
    message.startTLSResponse.SetInParent()
    return _frame(message)


def encode_bare_response(operation: int, txn_id: int, status: Status) -> bytes:
    """Return an answer without the operation's own message.

    For operations that nobody knows, and as UNAUTHORIZED for what comes before authentication.
    """
    return _frame(_response(txn_id, operation, status))


def encode_refusal(
    operation: int, txn_id: int, status: Status, ledger_id: int = -1, entry_id: int = -1
) -> bytes:
    """Return the error answer of any operation, with its own message where it has one.

    Clients up to 4.17 read the ids from that message even in errors.
    """
    match operation:
        case Operation.ADD_ENTRY:
            return encode_add_response(txn_id, status, ledger_id, entry_id)
        case Operation.READ_ENTRY:
            return encode_read_response(txn_id, status, ledger_id, entry_id)
        case Operation.READ_LAC:
            return encode_read_lac_response(txn_id, status, ledger_id)
        case Operation.WRITE_LAC:
            return encode_write_lac_response(txn_id, status, ledger_id)
        case Operation.FORCE_LEDGER:
            return encode_force_response(txn_id, status, ledger_id)
        case Operation.GET_BOOKIE_INFO:
            return encode_info_response(txn_id, status)
        case Operation.GET_LIST_OF_ENTRIES_OF_LEDGER:
            return encode_list_entries_response(txn_id, status, ledger_id)
        case Operation.START_TLS:
            return encode_start_tls_response(txn_id, status)
        case Operation.AUTH:
            return encode_auth_response(txn_id, status)
        case _:
            return encode_bare_response(operation, txn_id, status)


# --- both -----------------------------------------------------------------------------------------


_Message = TypeVar("_Message", wire.Request, wire.Response)


def _parse(kind: type[_Message], frame: BytesLike) -> _Message:
    try:
        message = kind.FromString(frame)  # pyright: ignore[reportArgumentType]  any buffer will do
    except DecodeError as error:
        raise MalformedFrameError(
            f"no protobuf message of v3 in a frame of {len(frame)} bytes: {error}"
        ) from None
    # The runtime checks required fields when it writes, not when it reads.
    if not message.IsInitialized():
        raise MalformedFrameError(
            f"a v3 {kind.__name__} of {len(frame)} bytes lacks a required field"
        )
    return message


_STATUSES: dict[int, Status] = {int(s): s for s in Status if s >= 0}


def _status(number: int) -> Status:
    """Take a number from the wire; one of a newer protocol counts as IO_ERROR."""
    return _STATUSES.get(number, Status.IO_ERROR)


def _key(master_key: bytes) -> bytes:
    if len(master_key) != MASTER_KEY_BYTES:
        raise IncorrectParameterError(
            f"master key: expected {MASTER_KEY_BYTES} bytes, found {len(master_key)}"
        )
    return master_key


def _frame(message: wire.Request | wire.Response) -> bytes:
    payload = message.SerializeToString()
    return len(payload).to_bytes(4, "big") + payload


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
