"""Requests of protocol v3: frames of them and back.

parse_request takes anything: a malformed message raises MalformedFrameError and
nothing else; one that cannot be served becomes a RefusedRequest. Source: docs/formats/wire_v3.md.
"""

from collections.abc import Callable

from bookie.errors import IncorrectParameterError
from bookie.ledger.types import Status
from bookie.proto import wire_v3_pb2 as wire
from bookie.proto.v3_add import add_request_frame, parse_add_request
from bookie.proto.v3_messages import (
    ADD_FLAG_RECOVERY,
    INFO_FREE,
    INFO_TOTAL,
    MASTER_KEY_BYTES,
    READ_FLAG_FENCE,
    READ_FLAG_PIGGYBACK,
    VERSION,
    WRITE_FLAG_DEFERRED_SYNC,
    AddRequest,
    AuthRequest,
    BytesLike,
    ForceRequest,
    InfoRequest,
    ListEntriesRequest,
    Operation,
    ReadLacRequest,
    ReadRequest,
    RefusedRequest,
    Request,
    StartTlsRequest,
    WriteLacRequest,
)
from bookie.proto.v3_wire import checked_key, frame_of, parse


def parse_request(frame: BytesLike) -> Request:
    """Read a frame (without its length) as a request; MalformedFrameError."""
    add = parse_add_request(frame)
    if add is not None:
        return add
    message = parse(wire.Request, frame)
    header = message.header
    operation = header.operation
    is_other_version = header.version != VERSION
    field_and_reader = _REQUESTS.get(operation)
    if field_and_reader is None or not message.HasField(field_and_reader[0]):
        status = Status.BAD_VERSION if is_other_version else Status.BAD_REQUEST
        return RefusedRequest(header.txnId, operation, status)
    request = field_and_reader[1](message, header.txnId, header.priority)
    if is_other_version:
        ledger_id: int = getattr(request, "ledger_id", -1)
        entry_id: int = getattr(request, "entry_id", -1)
        return RefusedRequest(header.txnId, operation, Status.BAD_VERSION, ledger_id, entry_id)
    return request


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
    if not (is_recovery or is_deferred_sync or priority):
        return add_request_frame(txn_id, ledger_id, entry_id, checked_key(master_key), packet)
    message = _request(txn_id, Operation.ADD_ENTRY, priority)
    m = message.addRequest
    m.ledgerId = ledger_id
    m.entryId = entry_id
    m.masterKey = checked_key(master_key)
    m.body = bytes(packet)
    if is_recovery:
        m.flag = ADD_FLAG_RECOVERY
    if is_deferred_sync:
        m.writeFlags = WRITE_FLAG_DEFERRED_SYNC
    return frame_of(message)


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
        m.masterKey = checked_key(fence_key)
        m.flag = READ_FLAG_FENCE
    elif is_piggyback:
        m.flag = READ_FLAG_PIGGYBACK
    if previous_lac is not None:
        m.previousLAC = previous_lac
    if wait_ms is not None:
        m.timeOut = wait_ms
    return frame_of(message)


def encode_read_lac_request(txn_id: int, ledger_id: int) -> bytes:
    message = _request(txn_id, Operation.READ_LAC)
    message.readLacRequest.ledgerId = ledger_id
    return frame_of(message)


def encode_write_lac_request(
    txn_id: int, ledger_id: int, master_key: bytes, lac: int, packet: BytesLike
) -> bytes:
    message = _request(txn_id, Operation.WRITE_LAC)
    m = message.writeLacRequest
    m.ledgerId = ledger_id
    m.lac = lac
    m.masterKey = checked_key(master_key)
    m.body = bytes(packet)
    return frame_of(message)


def encode_force_request(txn_id: int, ledger_id: int) -> bytes:
    message = _request(txn_id, Operation.FORCE_LEDGER)
    message.forceLedgerRequest.ledgerId = ledger_id
    return frame_of(message)


def encode_info_request(txn_id: int, requested: int = INFO_TOTAL | INFO_FREE) -> bytes:
    message = _request(txn_id, Operation.GET_BOOKIE_INFO)
    message.getBookieInfoRequest.requested = requested
    return frame_of(message)


def encode_list_entries_request(txn_id: int, ledger_id: int) -> bytes:
    message = _request(txn_id, Operation.GET_LIST_OF_ENTRIES_OF_LEDGER)
    message.getListOfEntriesOfLedgerRequest.ledgerId = ledger_id
    return frame_of(message)


def encode_auth_request(txn_id: int, plugin_name: str, payload: bytes) -> bytes:
    message = _request(txn_id, Operation.AUTH)
    message.authRequest.authPluginName = plugin_name.encode()
    message.authRequest.payload = payload
    return frame_of(message)


def encode_start_tls_request(txn_id: int) -> bytes:
    message = _request(txn_id, Operation.START_TLS)
    message.startTLSRequest.SetInParent()
    return frame_of(message)
