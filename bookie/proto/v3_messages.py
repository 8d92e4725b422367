"""What protocol v3 says: its numbers, and one light object for each message.

Objects hold a message's fields in Python's terms; bookie/proto/v3.py makes frames of them and back.
`operation` is the class's own, so that (message.txn_id, message.operation) is the key of an answer.
Source: docs/formats/wire_v3.md.
"""

from enum import IntEnum
from typing import NamedTuple

from bookie.ledger.types import Status

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
    """A request of the protocol that a bookie cannot serve; encode_refusal() makes its answer."""

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
