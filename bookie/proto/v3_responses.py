"""Responses of protocol v3: frames of them and back.

Every answer carries its status twice, outside and in the operation's own message, and that message
also with errors: clients up to 4.17 read the ids from it. Source: docs/formats/wire_v3.md.
"""

from collections.abc import Callable

from bookie.ledger.types import Status
from bookie.proto import wire_v3_pb2 as wire
from bookie.proto.v3_add import add_response_frame, parse_add_response
from bookie.proto.v3_messages import (
    AUTH_DISABLED_PLUGIN,
    VERSION,
    AddResponse,
    AuthResponse,
    BytesLike,
    ForceResponse,
    InfoResponse,
    ListEntriesResponse,
    Operation,
    ReadLacResponse,
    ReadResponse,
    Response,
    StartTlsResponse,
    UnknownResponse,
    WriteLacResponse,
)
from bookie.proto.v3_wire import frame_of, parse, status_of, varint


def parse_response(frame: BytesLike) -> Response:
    """Read a frame (without its length) as a response; MalformedFrameError.

    Status is the outer one unless that is OK; then the one of the operation's own message. An
    answer without that message is taken by the outer status (bookies refuse so before they
    authenticated the client), and as BAD_REQUEST when that says OK but something had to come.
    """
    add = parse_add_response(frame)
    if add is not None:
        return add
    message = parse(wire.Response, frame)
    header = message.header
    txn_id = header.txnId
    field_and_reader = _RESPONSES.get(header.operation)
    if field_and_reader is None:
        return UnknownResponse(txn_id, status_of(message.status), header.operation)
    field, reader, bare = field_and_reader
    if not message.HasField(field):
        return bare(txn_id, status_of(message.status or Status.BAD_REQUEST))
    return reader(message, txn_id, message.status)


def _read_add_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.addResponse
    return AddResponse(txn_id, status_of(status or m.status), m.ledgerId, m.entryId)


def _read_read_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.readResponse
    return ReadResponse(
        txn_id,
        status_of(status or m.status),
        m.ledgerId,
        m.entryId,
        m.body,
        m.maxLAC if m.HasField("maxLAC") else None,
        m.lacUpdateTimestamp if m.HasField("lacUpdateTimestamp") else None,
    )


def _read_lac_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.readLacResponse
    return ReadLacResponse(
        txn_id, status_of(status or m.status), m.ledgerId, m.lacBody, m.lastEntryBody
    )


def _read_write_lac_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.writeLacResponse
    return WriteLacResponse(txn_id, status_of(status or m.status), m.ledgerId)


def _read_force_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.forceLedgerResponse
    return ForceResponse(txn_id, status_of(status or m.status), m.ledgerId)


def _read_info_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.getBookieInfoResponse
    return InfoResponse(
        txn_id,
        status_of(status or m.status),
        m.totalDiskCapacity if m.HasField("totalDiskCapacity") else None,
        m.freeDiskSpace if m.HasField("freeDiskSpace") else None,
    )


def _read_list_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.getListOfEntriesOfLedgerResponse
    return ListEntriesResponse(
        txn_id, status_of(status or m.status), m.ledgerId, m.availabilityOfEntriesOfLedger
    )


def _read_auth_response(message: wire.Response, txn_id: int, status: int) -> Response:
    m = message.authResponse
    name = m.authPluginName.decode("utf-8", "replace")
    return AuthResponse(txn_id, status_of(status), name, m.payload)


def _read_tls_response(message: wire.Response, txn_id: int, status: int) -> Response:
    return StartTlsResponse(txn_id, status_of(status))


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
    return add_response_frame(txn_id, status, ledger_id, entry_id)


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
    # By hand: protobuf would copy the body twice, and cannot leave it out.
    code, txn = varint(status), varint(txn_id)
    inner = b"\x08%b\x10%b\x18%b" % (code, varint(ledger_id), varint(entry_id))
    tail = b"" if max_lac is None else b"\x28" + varint(max_lac)
    if lac_update_ms is not None:
        tail += b"\x30" + varint(lac_update_ms)
    if body is None:
        body = b""
    else:
        inner += b"\x22" + varint(len(body))
    inner_byte_count = len(inner) + len(body) + len(tail)
    outer = b"\x0a%c\x08\x03\x10\x01\x18%b\x10%b\xa2\x06%b%b" % (
        5 + len(txn),
        txn,
        code,
        varint(inner_byte_count),
        inner,
    )
    frame_byte_count = len(outer) + len(body) + len(tail)
    return frame_byte_count.to_bytes(4, "big") + outer, body, tail


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
    return frame_of(message)


def encode_write_lac_response(txn_id: int, status: Status, ledger_id: int) -> bytes:
    message = _response(txn_id, Operation.WRITE_LAC, status)
    message.writeLacResponse.status = status
    message.writeLacResponse.ledgerId = ledger_id
    return frame_of(message)


def encode_force_response(txn_id: int, status: Status, ledger_id: int) -> bytes:
    message = _response(txn_id, Operation.FORCE_LEDGER, status)
    message.forceLedgerResponse.status = status
    message.forceLedgerResponse.ledgerId = ledger_id
    return frame_of(message)


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
    return frame_of(message)


def encode_list_entries_response(
    txn_id: int, status: Status, ledger_id: int, availability: bytes = b""
) -> bytes:
    message = _response(txn_id, Operation.GET_LIST_OF_ENTRIES_OF_LEDGER, status)
    m = message.getListOfEntriesOfLedgerResponse
    m.status = status
    m.ledgerId = ledger_id
    if availability:
        m.availabilityOfEntriesOfLedger = availability
    return frame_of(message)


def encode_auth_response(
    txn_id: int,
    status: Status = Status.OK,
    plugin_name: str = AUTH_DISABLED_PLUGIN,
    payload: bytes = b"",
) -> bytes:
    message = _response(txn_id, Operation.AUTH, status)
    message.authResponse.authPluginName = plugin_name.encode()
    message.authResponse.payload = payload
    return frame_of(message)


def encode_start_tls_response(txn_id: int, status: Status = Status.OK) -> bytes:
    message = _response(txn_id, Operation.START_TLS, status)
    message.startTLSResponse.SetInParent()
    return frame_of(message)


def encode_bare_response(operation: int, txn_id: int, status: Status) -> bytes:
    """Return an answer without the operation's own message.

    For operations that are not known, and as UNAUTHORIZED for what comes before authentication.
    """
    return frame_of(_response(txn_id, operation, status))


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
