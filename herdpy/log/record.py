"""Log records: what a tablespace's log says happened, and their msgpack bytes.

A record is a msgpack array [kind, field, ...]; docs/formats/record.md has the table. Kinds and
the order of fields are never reused. Kind 9 (digest) is reserved.

Rows are physical and whole, in the order of the table's columns. An UPDATE carries the row before
and after, a DELETE the row before, so that a change stream can rebuild both. DECIMAL values of
Table.wide_ordinals are 16 bytes, little-endian, two's complement.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from herdpy.errors import InvariantViolation
from herdpy.limits import record_bytes_max
from herdpy.model.schema import Table
from herdpy.model.types import Row

TransactionId = tuple[int, int]
"""(epoch, counter); never reused."""
CommitToken = tuple[str, int]
"""(session, counter): by it a client asks later what became of its commit."""
many_rows = 20_000
"""With more rows an INSERT is cut into records by an estimate, and never tried as one."""

Change = tuple[Row | None, Row | None]
"""(before, after): an update has both, a delete no after, an upsert that inserted no before."""


class Noop(msgspec.Struct, array_like=True, tag=0, frozen=True, gc=False):
    """Nothing; carries a frame that says how much before it is durable."""


class Begin(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    """A transaction wrote for the first time, at microseconds since 1970 (wall clock)."""

    tx: TransactionId
    at_us: int


class Rows(msgspec.Struct, array_like=True, tag=2, frozen=True, gc=False):
    """Part of one statement's rows in one table; visible at COMMIT, or at once when tx is None.

    Parts count from 0. Cells are as on disk: rows_of() turns wide decimals back. With a token it is
    a commit, too, and tx is None.
    """

    tx: TransactionId | None
    statement: int
    part: int
    is_last: bool
    table_id: int
    table_version: int
    inserts: list[tuple[Any, ...]]
    changes: list[tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]]
    token: CommitToken | None = None
    acknowledged: int = 0
    """As COMMIT has them."""


class Commit(msgspec.Struct, array_like=True, tag=3, frozen=True, gc=False):
    """The transaction's changes take effect, all of them, here."""

    tx: TransactionId
    token: CommitToken | None = None
    acknowledged: int = 0
    """The client needs no outcome of its session's tokens up to here any more."""


class Rollback(msgspec.Struct, array_like=True, tag=4, frozen=True, gc=False):
    """The transaction's changes are void; stands after every record of the transaction."""

    tx: TransactionId


class RollbackTo(msgspec.Struct, array_like=True, tag=5, frozen=True, gc=False):
    """The rows that the transaction's statements from this one on changed are void; it goes on."""

    tx: TransactionId
    statement: int


class CreateTable(msgspec.Struct, array_like=True, tag=6, frozen=True, gc=False):
    """A table as of table_to_plain; also a new version of one that exists."""

    tx: TransactionId | None
    statement: int
    table: list[Any]
    owner: str | None = None
    """The role whose table a new one is; None: the superusers'."""


class DropTable(msgspec.Struct, array_like=True, tag=7, frozen=True, gc=False):
    """The table and its rows are gone; its id stays used."""

    tx: TransactionId | None
    statement: int
    table_id: int


class Reserve(msgspec.Struct, array_like=True, tag=8, frozen=True, gc=False):
    """Row ids of the table, or steps of the sequence, below `upto` are given away, used or not."""

    table_id: int
    upto: int


class SetSequence(msgspec.Struct, array_like=True, tag=12, frozen=True, gc=False):
    """From this step on a sequence goes on from this value; no step before is given away later."""

    table_id: int
    step: int
    value: int


class ChangeAccess(msgspec.Struct, array_like=True, tag=10, frozen=True, gc=False):
    """One statement's changes of roles, memberships, grants, owners, as of changes_to_plain."""

    tx: TransactionId | None
    statement: int
    changes: list[Any]

    def __repr__(self) -> str:  # never shows a verifier
        return f"ChangeAccess(tx={self.tx}, statement={self.statement}, …)"


class BeginSpill(msgspec.Struct, array_like=True, tag=11, frozen=True, gc=False):
    """A transaction's changes of a table go on in a stage, and are not held in memory."""

    tx: TransactionId
    statement: int
    """Whose changes they are, to which ROLLBACK TO may go back."""
    table_id: int
    table_version: int
    stage: int
    """From the counter of table ids."""
    operation: str
    """append, upsert or delete."""
    replaces: bool
    """All that the transaction changed of the table before is in earlier stages, too."""


class Refuse(msgspec.Struct, array_like=True, tag=20, frozen=True, gc=False):
    """No commit with this token ever happens, unless one stands before this record."""

    token: CommitToken


class Expire(msgspec.Struct, array_like=True, tag=21, frozen=True, gc=False):
    """The outcomes of these sessions' tokens are forgotten: they read UNKNOWN from now on."""

    sessions: list[str]


class BeginStaging(msgspec.Struct, array_like=True, tag=30, frozen=True, gc=False):
    """A job may stage rows for one commit to a table; again for the same job adds a run."""

    job: str
    table_id: int
    table_version: int
    operation: str
    """append, upsert, replace, ignore, update or delete."""
    at_us: int
    user: str | None = None
    """Who began it; None: the program itself."""
    is_statement: bool = False
    """One statement's own: its name is not kept, and it does not outlive the database's opening."""
    run: str | None = None
    """Which of the programs that share the job began it here; each has a record of its own."""
    user_id: int = 0
    """Of the user's role; 0: FORMAT 1 logged it."""


class BeginStage(msgspec.Struct, array_like=True, tag=31, frozen=True, gc=False):
    """One attempt of a task of a job begins to stage; rows of the same attempt before are void."""

    job: str
    stage: int
    """From the counter of table ids."""
    task: str
    attempt: str
    run: str | None = None
    """Whose stage it is, with whom it goes; None: the job's."""


class StageRows(msgspec.Struct, array_like=True, tag=32, frozen=True, gc=False):
    """Rows of a stage: an Arrow IPC stream with columns c<ordinal>, of the types of pages.

    Without effect when the stage is not there, is finished, or has another number of rows by now.
    """

    stage: int
    first_row: int
    """How many rows the stage has before these."""
    row_count: int
    ordinals: list[int]
    """The columns that are given; an update leaves the others, a delete takes the key's only."""
    data: bytes
    first_row_id: int = 0
    """Of a table without key: the row id of the first row; the others follow."""


class FinishStage(msgspec.Struct, array_like=True, tag=33, frozen=True, gc=False):
    """A stage is whole: it may be named by a commit, and takes no more rows."""

    stage: int


class DropStages(msgspec.Struct, array_like=True, tag=34, frozen=True, gc=False):
    """Attempts that do not count, with their rows."""

    stages: list[int]
    job: str | None = None
    """None: just these stages; else also the run of this job is given up, with all of its own."""
    run: str | None = None


class CommitStaging(msgspec.Struct, array_like=True, tag=35, frozen=True, gc=False):
    """The rows of these stages, in this order, change the job's table here; others are void."""

    job: str
    stages: list[int]
    token: CommitToken | None = None
    """Of the statement whose rows these are."""
    acknowledged: int = 0


class EndStaging(msgspec.Struct, array_like=True, tag=36, frozen=True, gc=False):
    """Jobs that are given up, with all that they staged."""

    jobs: list[str]
    run: str | None = None
    """The last run of the one job; where another has begun by here, only this run is given up."""


class BeginLease(msgspec.Struct, array_like=True, tag=40, frozen=True, gc=False):
    """The state at this record's Lsn is kept, until END LEASES."""

    id: str
    owner: str | None
    """Whose it is; None: the program's own."""
    seconds: float
    """The leader may end it when it was not used for so long."""
    at_us: int
    owner_id: int = 0
    """Of the owner's role; 0: FORMAT 1 logged it."""


class EndLeases(msgspec.Struct, array_like=True, tag=41, frozen=True, gc=False):
    """These leases are over."""

    ids: list[str]


class BeginLedger(msgspec.Struct, array_like=True, tag=50, frozen=True, gc=False):
    """A ledger of a replicated tablespace begins: its entry 0, and the only record there.

    The log knows it and no other reader: it changes no state.
    """

    epoch: int
    """Of the leader that writes it."""
    previous_ledger: int
    """Behind which ledger it goes on, and its last entry; -1: it is the first."""
    previous_entry: int


StagingRecord = (
    BeginStaging | BeginStage | StageRows | FinishStage | DropStages | CommitStaging | EndStaging
)
Record = (
    Noop
    | Begin
    | Rows
    | Commit
    | Rollback
    | RollbackTo
    | BeginSpill
    | CreateTable
    | DropTable
    | Reserve
    | SetSequence
    | ChangeAccess
    | Refuse
    | Expire
    | BeginLease
    | EndLeases
    | BeginLedger
    | StagingRecord
)

_encoder = msgspec.msgpack.Encoder()
encode: Callable[[Record], bytes] = _encoder.encode
"""Return a record's bytes; decode() inverts it."""
NOOP = encode(Noop())
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def decode(data: bytes) -> Record:
    """Invert encode; malformed bytes and unknown kinds are a ValueError."""
    try:
        return _decoder.decode(data)
    except RecursionError as error:  # thousands of nested arrays
        raise ValueError("record: nested too deep") from error


def encode_rows(record: Rows, table: Table) -> tuple[bytes, ...]:
    """Return the bytes of a statement's rows as records, none longer than record_bytes_max.

    `record` has them all, physical, as the one part. Inserts come before changes; what is too long,
    many rows by an estimate, is split by halves. Each has the token: a caller that gives one has no
    use for several. InvariantViolation when one row (or one change) does not fit in a record.
    """
    wide, inserts, changes = table.wide_ordinals, record.inserts, record.changes
    if not wide and len(inserts) <= many_rows:
        data = _encoder.encode(record)
        if len(data) <= record_bytes_max:
            return (data,)
    if wide:
        inserts = [_widen(row, wide) for row in inserts]
        changes = [
            (old and _widen(old, wide), new and _widen(new, wide))  # no row is empty
            for old, new in changes
        ]
    parts: list[bytes] = []
    pending: list[tuple[Sequence[Row], Sequence[Change]]] = [(inserts, changes)]
    # It is a stack: the rows that come first are on top.
    if len(inserts) > many_rows:
        pending = [((), changes)] if changes else []
        pending += [(piece, ()) for piece in reversed(_pieces(inserts))]
    while pending:
        rows, pairs = pending.pop()
        part = msgspec.structs.replace(
            record, part=len(parts), is_last=not pending, inserts=rows, changes=pairs
        )
        data = _encoder.encode(part)
        if len(data) <= record_bytes_max:
            parts.append(data)
        elif rows and pairs:
            pending += [((), pairs), (rows, ())]
        elif len(rows) > 1:
            middle = len(rows) // 2
            pending += [(rows[middle:], ()), (rows[:middle], ())]
        elif len(pairs) > 1:
            middle = len(pairs) // 2
            pending += [((), pairs[middle:]), ((), pairs[:middle])]
        else:
            raise InvariantViolation(
                f"log record: one row of table {table.name!r} takes {len(data)} bytes, expected at "
                f"most {record_bytes_max}; rows are to be checked before they are logged"
            )
    return tuple(parts)


class EncodedRows:
    """Inserts, or changes, of one table that are to be one Rows record, as their bytes."""

    __slots__ = ("_data", "_is_inserts", "_table", "count", "end")

    def __init__(self, table: Table, *, is_inserts: bool) -> None:
        """Begin with none. The table has no wide_ordinals."""
        self._table = table
        self._is_inserts = is_inserts
        self._data = bytearray()
        self.count = 0
        self.end = 0
        """Of the bytes of so many rows or changes; what lies behind does not count."""

    def put(self, item: Row | Change) -> int:
        """Encode one more behind `end`; return its own, from which on it counts."""
        _encoder.encode_into(item, self._data, self.end)
        return len(self._data)

    def record(self, tx: TransactionId | None, statement: int) -> bytes:
        """Return the bytes of the record, as encode() makes them but for the length of a length."""
        table, items = self._table, b"".join((b"\xdd", self.count.to_bytes(4), self._data))
        found: Any = msgspec.Raw(items[: 5 + self.end])
        parts = (found, []) if self._is_inserts else ([], found)
        return _encoder.encode(Rows(tx, statement, 0, True, table.id, table.version, *parts))


_SAMPLE_ROWS = 500


def _pieces(rows: Sequence[Row]) -> list[Sequence[Row]]:
    """Return rows in pieces that fit in a record each, as far as a few of them tell."""
    sample = rows[:: len(rows) // _SAMPLE_ROWS + 1]
    row_bytes = len(_encoder.encode(sample)) // len(sample) + 1
    count = max(record_bytes_max * 7 // 8 // row_bytes, 1)
    return [rows[start : start + count] for start in range(0, len(rows), count)]


def rows_of(record: Rows, table: Table) -> tuple[Sequence[Row], Sequence[Change]]:
    """Return (inserts, changes) with every cell physical again.

    InvariantViolation when `table` is not the definition that the rows were written under.
    """
    if (record.table_id, record.table_version) != (table.id, table.version):
        raise InvariantViolation(
            f"log record: rows of table {record.table_id} version {record.table_version}, "
            f"the catalog has table {table.id} version {table.version}"
        )
    inserts, changes = record.inserts, record.changes
    width = len(table.columns)
    if len(inserts) == 1 and not changes and len(inserts[0]) == width:
        lengths = None
    else:
        lengths = set(map(len, inserts))
        for pair in changes:
            lengths.update([len(row) for row in pair if row is not None])
    if lengths and lengths != {width}:
        raise InvariantViolation(
            f"log record: rows of {sorted(lengths)} values for table {table.name!r} of "
            f"{width} columns"
        )
    wide = table.wide_ordinals
    if wide:
        inserts = [_narrow(row, wide) for row in inserts]
        changes = [(old and _narrow(old, wide), new and _narrow(new, wide)) for old, new in changes]
    return inserts, changes


def _widen(row: Row, wide: tuple[int, ...]) -> Row:
    cells = list(row)
    for ordinal in wide:
        value = cells[ordinal]
        if value is not None:
            cells[ordinal] = cast("int", value).to_bytes(16, "little", signed=True)
    return tuple(cells)


def _narrow(row: Row, wide: tuple[int, ...]) -> Row:
    cells = list(row)
    for ordinal in wide:
        value = cells[ordinal]
        if isinstance(value, bytes):  # an int in a record that never left this process
            cells[ordinal] = int.from_bytes(value, "little", signed=True)
    return tuple(cells)
