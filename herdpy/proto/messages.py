"""The messages between driver and server, and their bytes: docs/protocols/frames.md.

A frame is a length (u32, big-endian, of what follows) and one MessagePack array: the message's
number, then its fields in order. Fields may be added at the end: a reader ignores what it does not
know, and takes the default for what is missing. What is received is checked field by field.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import msgspec
from msgspec import Meta

from herdpy.errors import OperationalError, ProtocolError
from herdpy.limits import columns_max
from herdpy.model.lsn import START_LSN

VERSION: Final = 1
MAGIC: Final = "herdpy"
LENGTH_BYTES: Final = 4
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of either side, with its length. A statement with its parameters has to fit."""
HELLO_BYTES_MAX: Final = 16 * 1024
"""Of every frame before the server has said Welcome."""
KEPT_MAX: Final = 256
"""Statements that a server keeps for a connection, by the numbers from 1."""
KEPT_CHARACTERS_MAX: Final = 4096
"""Of the text of one."""
WAIT_FOR_S_MAX: Final = 3600.0
"""A WaitFor ends after so many seconds at the latest."""
STAGES_MAX: Final = 100_000
"""Of one commit."""
EXECUTE_ALL_MAX: Final = 500
"""Statements of one ExecuteAll: their answers, of about 64 KiB each, fit a frame."""
TEXT_BYTES_MAX: Final = 64 * 1024
RESULT_COLUMNS_MAX: Final = 65_536
PARTITIONS_MAX: Final = 1_000_000
MECHANISMS_MAX: Final = 100
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of an answer that is no rows and no bytes of something: most of these become objects."""


class Message(msgspec.Struct, array_like=True, gc=False):
    """Base of all."""


class Numbered(Message):
    """Of a request, or its answer: the driver chooses the number, and it comes back."""

    request: int


if TYPE_CHECKING:
    Undecoded = Any
else:
    Undecoded = msgspec.Raw
"""Values when they are sent; as received their bytes, which parameters.py and columns.py read."""


# --- driver to server ----------------------------------------------------------------------------


NO_LIMIT_S = -1.0


class Hello(Message, tag=1):
    """The first message. The server answers Welcome, or Failed and closes."""

    magic: str
    version_min: int
    version_max: int
    client: str
    """Name and version of the program, for sysclients."""
    tablespace: str
    autocommit: bool
    durability: str | None = None
    """What a commit waits for: sync, os, none; None: as the server."""
    lock_timeout_s: float = 0.0
    """Of this and the next two 0: as the role or the server; NO_LIMIT_S: no limit."""
    statement_timeout_s: float = 0.0
    idle_in_transaction_timeout_s: float = 0.0
    user: str = ""
    """The user that logs in; empty: none."""
    read: str = ""
    """Which part the node may have: leader, follower, nearest (any); empty: leader."""
    max_staleness_s: float = 0.0
    """How old what a node shows that follows may be; 0: as the server."""


class Execute(Numbered, tag=2):
    """Run one statement. Done or Failed."""

    text: str
    parameters: Undecoded
    """Of ? a list, of :name a dict, or None."""
    token: int = 0
    """The counter of the commit token, if this commits; larger than any before. 0: none."""
    acknowledged: int = 0
    """The driver needs no outcome of its tokens up to here."""
    keep: int = 0
    """Keep the text under this number for ExecuteKept, instead of another. 0: do not."""


class ExecuteMany(Numbered, tag=3):
    """Run one statement for each item, all or nothing. Done or Failed."""

    text: str
    items: Undecoded
    """A list of parameters."""
    token: int = 0
    acknowledged: int = 0


class Fetch(Numbered, tag=4):
    """Ask for more rows of the open result. Rows, Arrow or Failed."""

    result: int
    rows_max: int
    """At most so many come."""
    is_arrow: bool
    """Arrow instead of rows; from the first fetch of a result on."""


class CloseResult(Message, tag=5):
    """Give up an open result; no answer."""

    result: int


class Begin(Numbered, tag=6):
    """Begin a transaction. Done or Failed."""

    durability: str | None


class Commit(Numbered, tag=7):
    """Commit; nothing to do without a transaction. Done or Failed."""

    token: int = 0
    acknowledged: int = 0


class Rollback(Numbered, tag=8):
    """Roll back; nothing to do without a transaction. Done or Failed."""


class SetAutocommit(Numbered, tag=9):
    """Outside a transaction. Done or Failed."""

    autocommit: bool


class Checkpoint(Numbered, tag=10):
    """Write what changed to pages. Done or Failed."""


class Cancel(Numbered, tag=11):
    """Stop the statement of this request if it runs or waits; it fails with 57014. No answer."""


class Ping(Numbered, tag=12):
    """Pong comes at once, also while a statement runs."""


class ListTables(Numbered, tag=13):
    """The tables that the next statement can name. Tables or Failed."""


class Resolve(Numbered, tag=30):
    """What became of a commit whose answer was lost? Resolved or Failed."""

    token_session: str
    """As Welcome of the connection that was lost said."""
    counter: int


class WaitFor(Numbered, tag=31):
    """Wait until the copy has a position; "": ask how old it is. Reached or Failed."""

    position: str
    """An Lsn as text."""
    timeout_s: float


class BeginIngest(Numbered, tag=20):
    """Begin to take Arrow batches for one table. IngestBegun or Failed."""

    table: str
    mode: str
    """append, upsert or replace."""


class IngestRows(Numbered, tag=21):
    """Some rows. Done or Failed, which ends the ingest."""

    ingest: int
    data: bytes
    """An Arrow IPC stream of its own; columns by name."""


class FinishIngest(Numbered, tag=22):
    """Write all the rows as one statement. Done, with their number, or Failed."""

    ingest: int
    token: int = 0
    acknowledged: int = 0


class DropIngest(Message, tag=23):
    """Give up an ingest, if it is open; no answer."""

    ingest: int


class ScramStart(Message, tag=14):
    """The first message of a login; ScramChallenge, or Failed and the end."""

    mechanism: str
    data: str
    """client-first-message of RFC 5802."""


class ScramProof(Message, tag=15):
    """The second one; ScramVerified and Welcome, or Failed and the end."""

    data: str
    """client-final-message."""


class Export(Numbered, tag=40):
    """Begin a "backup", a "dump" or the list of "tablespaces", in the place of what is under way.

    Piece or Failed.
    """

    kind: str
    snapshot: str = ""
    """Go on with the backup that the first Piece called so; its connection has ended."""
    offset: int = 0
    """Of the first byte that is missing."""
    tablespace: str = ""
    """Of which one it is to be, by its id, 32 hexadecimal digits; "": the session's."""


class NextPiece(Numbered, tag=41):
    """Ask for more of what Export began. Piece or Failed, which ends it."""


class CloseExport(Message, tag=42):
    """Give up what Export began; no answer."""


class TakeLease(Numbered, tag=50):
    """Keep what is committed now, until it was not used for so long. Leased or Failed."""

    seconds: float
    reuse: str | None = None
    """A lease that will do instead, if it lives as long and nothing was committed since."""


class UseLease(Numbered, tag=51):
    """Let a lease's time begin anew. Leased or Failed."""

    lease: str


class EndLease(Numbered, tag=52):
    """Let a lease go. Done, with a row_count of 1, 0 when there was none, or Failed."""

    lease: str


class ListPartitions(Numbered, tag=53):
    """Cut a table into ranges of its key, at most `count`. Partitions or Failed."""

    table: str
    count: int
    lease: str | None = None
    """At whose snapshot; nil: now."""


class ReadPartition(Numbered, tag=54):
    """Read the rows of one table with lower <= key < upper. Done, as of a SELECT, or Failed."""

    table: str
    lower: bytes | None
    """As docs/formats/keys.md writes keys; nil: open."""
    upper: bytes | None
    columns: Annotated[list[str], Meta(max_length=columns_max)] | None
    """nil: all."""
    where: str | None
    """A condition on the table's own columns; nil: none."""
    parameters: Undecoded
    """Of the condition: of ? a list, of :name a dict, or None."""
    lease: str | None = None
    """At whose snapshot; nil: the session's, with what its transaction has written."""


class ExecuteKept(Numbered, tag=24):
    """Run the statement that an Execute before said to keep. Done or Failed."""

    statement: int
    parameters: Undecoded
    """Of ? a list, of :name a dict, or None."""
    token: int = 0
    acknowledged: int = 0


class BeginStaging(Numbered, tag=55):
    """Begin a job that stages rows for one commit; the same again. StagingBegun or Failed."""

    table: str
    operation: str
    """append, upsert, replace, ignore, update or delete."""
    job: str
    key_columns: Annotated[list[str], Meta(max_length=columns_max)] | None = None
    """None: the primary key, whatever it is."""
    run: str | None = None
    """Which of the programs that share the job this is."""


class BeginStage(Numbered, tag=56):
    """Begin what an attempt of a task stages, instead of what it had. StageBegun or Failed."""

    job: str
    task: str
    attempt: str
    run: str | None = None
    """Whose it is, with whom it is given up; None: the job's."""


class StageRows(Numbered, tag=57):
    """Some rows. Done, with the number of rows that the stage has then, or Failed."""

    stage: int
    first_row: int
    """How many rows the stage had before: what it has already is not taken again."""
    data: bytes
    """An Arrow IPC stream of its own; columns by name."""


class EndStage(Numbered, tag=58):
    """Make a stage whole and durable, or (drop) give it up. Done, with its rows, or Failed."""

    stage: int
    is_dropped: bool = False
    row_count: int = -1
    """How many rows the stage has to have, all that were sent; -1: not said."""


class SettleStaging(Numbered, tag=59):
    """Commit a job, give it up ("abort"), or ask ("position"). StagingSettled or Failed."""

    job: str
    action: str
    stages: Annotated[list[int], Meta(max_length=STAGES_MAX)] = []
    """What a commit consists of, in order."""
    run: str | None = None
    """Give up this run only; None: the job."""


class ExecuteAll(Numbered, tag=35):
    """Run statements, in order, to the first that fails. Answers or Failed."""

    texts: Annotated[list[str], Meta(max_length=EXECUTE_ALL_MAX)]
    items: Annotated[list[tuple[int, Undecoded]], Meta(max_length=EXECUTE_ALL_MAX)]
    """The place of its text, and the parameters of each."""


# --- server to driver ----------------------------------------------------------------------------


class Welcome(Message, tag=64):
    """The session is there; `version` is the one that both use."""

    version: int
    server: str
    session: int
    frame_bytes_max: int
    token_session: str = ""
    """The session in this connection's commit tokens."""


Column = tuple[str, int, int | None, int | None, int | None]
"""Name, number of the kind (model/types.py), precision, scale, length."""
NO_COLUMNS: Final = msgspec.Raw(b"\xc0")


class Done(Numbered, tag=65):
    in_transaction: bool
    row_count: int = -1
    last_row_id: int | None = None
    columns: Undecoded = NO_COLUMNS
    """An array of Column; NO_COLUMNS: the statement has no rows."""
    rows: msgspec.Raw = msgspec.Raw(b"\x90")
    """All of them, when `result` is None."""
    result: int | None = None
    """The number of the open result: no row has come, Fetch asks for them."""
    lsn: tuple[int, int, int] = START_LSN
    """Of the server's log: what the answer shows, or has committed, is at or before it."""


class Rows(Numbered, tag=66):
    """Some rows, in order."""

    is_last: bool
    rows: msgspec.Raw


class Arrow(Numbered, tag=67):
    """Some rows, in order, as an Arrow IPC stream of its own."""

    is_last: bool
    data: memoryview
    """Of an answer that was received: a part of its frame."""


class Failed(Numbered, tag=68):
    """A request has failed, or (request 0) the connection ends."""

    in_transaction: bool
    kind: str
    """The name of the class in herdpy.errors."""
    message: str
    sqlstate: str
    retry: str
    hint: str | None
    position: int | None
    leader: str | None = None
    """Where the node is that leads, if it is another one: "host:port"."""


class Pong(Numbered, tag=69):
    """Answers a Ping."""


class Tables(Numbered, tag=70):
    """Tables by name, each as docs/formats/record.md writes one."""

    tables: list[list[Any]]


class Resolved(Numbered, tag=80):
    """What became of a commit."""

    outcome: str
    """committed, refused (it never happens), or unknown (the token has expired)."""
    lsn: tuple[int, int, int] = START_LSN
    """As of Done: what was committed is not behind it."""


class Reached(Numbered, tag=81):
    """The copy has the position that was waited for."""

    lag_s: float
    """So old is what it shows at most, as it knows; 0 of a leader, infinite where none is known."""
    lsn: tuple[int, int, int] = START_LSN
    """As of Done."""


class Answers(Numbered, tag=85):
    """What an ExecuteAll's statements gave."""

    in_transaction: bool
    answers: Annotated[list[msgspec.Raw], Meta(max_length=EXECUTE_ALL_MAX)]
    """A Done for each that ran; the last may be a Failed."""
    lsn: tuple[int, int, int] = START_LSN
    """As of Done."""


class IngestBegun(Numbered, tag=76):
    ingest: int
    table: list[Any]
    """The table, as docs/formats/record.md writes one."""


class LoginRequired(Message, tag=71):
    """Asks for a login, after Hello."""

    mechanisms: Annotated[list[str], Meta(max_length=MECHANISMS_MAX)]
    """The best first."""


class ScramChallenge(Message, tag=72):
    """Answers ScramStart."""

    data: str
    """server-first-message."""


class ScramVerified(Message, tag=73):
    """Answers ScramProof; Welcome follows."""

    data: str
    """server-final-message: the server's own proof."""


class Piece(Numbered, tag=90):
    """Some bytes of an export, in order; maybe none."""

    is_last: bool
    data: bytes
    byte_count: int = 0
    """How many there are about in all; 0: not known."""
    snapshot: str = ""
    """Of the first piece of a backup: what to call it when the connection was lost."""
    source: str = ""
    """Its database, by the id of the log."""
    position: tuple[int, int, int] = (0, 0, 0)
    """Its Lsn."""


class StagingBegun(Numbered, tag=94):
    table: list[Any]
    """The table, as docs/formats/record.md writes one."""


class StageBegun(Numbered, tag=95):
    stage: int
    table: list[Any]


class StagingSettled(Numbered, tag=96):
    """What became of a job."""

    position: str | None
    """Of its commit in the log; None: it has not committed."""


class Leased(Numbered, tag=91):
    lease: str
    position: str
    seconds: float


class Partitions(Numbered, tag=92):
    """Ranges of a table's key, in order; every row is in exactly one."""

    parts: Annotated[
        list[tuple[bytes | None, bytes | None, int, int]], Meta(max_length=PARTITIONS_MAX)
    ]
    """lower, upper, and about how many rows and bytes."""


ToServer = (
    Hello | Execute | ExecuteMany | Fetch | CloseResult | Begin | Commit | Rollback | SetAutocommit
    | Checkpoint | Cancel | Ping | ListTables
    | BeginIngest | IngestRows | FinishIngest | DropIngest
    | ExecuteKept | ExecuteAll
    | ScramStart | ScramProof | Resolve | WaitFor
    | Export | NextPiece | CloseExport
    | TakeLease | UseLease | EndLease | ListPartitions | ReadPartition
    | BeginStaging | BeginStage | StageRows | EndStage | SettleStaging
)  # fmt: skip
ToDriver = (
    Welcome | Done | Answers | Rows | Arrow | Failed | Pong | Tables | IngestBegun
    | LoginRequired | ScramChallenge | ScramVerified | Resolved | Reached | Piece
    | Leased | Partitions
    | StagingBegun | StageBegun | StagingSettled
)  # fmt: skip

_BULKY = frozenset(
    kind.__struct_config__.tag for kind in (Done, Answers, Rows, Arrow, Piece)
)  # a number is one byte, behind that of the array
_SMALL = frozenset(kind.__struct_config__.tag for kind in get_args(ToDriver)).difference(_BULKY)

_ARROW_START = b"\x94\x43\xcf"
"""An array of four, Arrow's number, and what a number of eight bytes begins with."""
ARROW_HEAD_BYTES = LENGTH_BYTES + 17
"""What comes before the stream in a frame of arrow_frame()."""

_encode = msgspec.msgpack.Encoder(decimal_format="string").encode
_to_server = msgspec.msgpack.Decoder(ToServer)
_to_driver = msgspec.msgpack.Decoder(ToDriver)


def encode_frame(message: Message) -> bytes:
    """Return the frame of a message; OperationalError 54000 when it is too large to send."""
    body = _encode(message)
    limit = FRAME_BYTES_MAX - LENGTH_BYTES
    if len(body) > ANSWER_BYTES_MAX and body[1] in _SMALL:
        limit = ANSWER_BYTES_MAX
    if len(body) > limit:
        _check_length(len(body), limit)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def _check_length(byte_count: int, limit: int) -> None:
    if byte_count > limit:
        raise OperationalError(
            f"a message of {byte_count:,} bytes: expected at most {limit:,}",
            sqlstate="54000",
            hint="send, or ask for, fewer rows at a time; one row has to fit into a message",
        )


def arrow_frame(request: int, data: memoryview, lead_bytes: int, *, is_last: bool) -> memoryview:
    """Return the frame of an Arrow message whose stream lies in `data`, behind lead_bytes.

    Its head is written before the stream, which is not copied. The request's number always has
    eight bytes, so that a driver knows where the stream begins and can align it.
    """
    byte_count = len(data) - lead_bytes
    flag = b"\xc3" if is_last else b"\xc2"
    head = b"".join(
        (_ARROW_START, request.to_bytes(8, "big"), flag, b"\xc6", byte_count.to_bytes(4, "big"))
    )
    length = len(head) + byte_count
    _check_length(length, FRAME_BYTES_MAX - LENGTH_BYTES)
    start = lead_bytes - LENGTH_BYTES - len(head)
    data[start:lead_bytes] = length.to_bytes(LENGTH_BYTES, "big") + head
    return data[start:]


def decode_to_server(body: Any) -> ToServer:
    """Return a driver's message; ProtocolError."""
    try:
        return _to_server.decode(body)
    except _MALFORMED as error:
        raise _malformed(body, error) from None


def decode_to_driver(body: Any) -> ToDriver:
    """Return a server's message; ProtocolError."""
    if len(body) > ANSWER_BYTES_MAX and body[1] not in _BULKY:
        raise ProtocolError(
            f"a message of {len(body):,} bytes: expected at most {ANSWER_BYTES_MAX:,} of its kind"
        )
    try:
        return _to_driver.decode(body)
    except _MALFORMED as error:
        raise _malformed(body, error) from None


_MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, MemoryError)


def _malformed(body: Any, error: BaseException) -> ProtocolError:
    return ProtocolError(f"a malformed message of {len(body):,} bytes: {error}")


def raw(data: bytes) -> msgspec.Raw:
    """Return bytes that are MessagePack already as a field."""
    return msgspec.Raw(data)
