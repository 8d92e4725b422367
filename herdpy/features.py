"""Features: what a session is asked for beside statements: one table for every way to it.

A feature is a request and its reply of the frame protocol, and what the engine does for it. From
this table the database in process, a server's requests, the driver's connection and the one that
outlives it (herdpy/driver/remote/) dispatch: a new one is a row here, a method of the engine's
session and one of the API. Every request here may run again when its answer was lost, and none
commits the session's transaction. Any thread.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from herdpy.errors import ProgrammingError, ProtocolError, loading
from herdpy.exec.result import Result
from herdpy.model.schema import Table, table_from_plain, table_to_plain
from herdpy.proto import messages
from herdpy.proto.values import check_statement, to_wire
from herdpy.sql.plan import Parameters

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
PlainPart = tuple[bytes | None, bytes | None, int, int]


class HeldLease(Protocol):
    """A snapshot lease, as the database knows it."""

    @property
    def id(self) -> str: ...

    @property
    def position(self) -> str:
        """Which state it keeps: the Lsn as text."""
        ...

    @property
    def seconds(self) -> float:
        """So long it lives unused."""
        ...


Session = Any
"""That of engine/session/session.py, which has the contracts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature(Generic[T]):
    """A row of the table. Its arguments are those of `run`, behind the session."""

    request: Any
    """Its type, made of a number and the fields."""
    run: Callable[..., T]
    """Does it in the engine."""
    fields: Callable[..., Sequence[Any]] = lambda *arguments: arguments
    """The arguments as fields of the request; of the driver."""
    reply: Any = messages.Done
    """Its type, made of a number and the fields. Done has the result, or a number of rows."""
    answer: Callable[[Any], Sequence[Any]] = lambda found: (found,)
    """What `run` returned as fields of the reply, but for Done; of the server."""
    value: Callable[[Any], T] | None = None
    """The reply as `run` would return it, ProtocolError; None: it is a statement's result."""


# --- leases, and tables in parts -----------------------------------------------------------------


class _Held(NamedTuple):
    id: str
    position: str
    seconds: float


def _held(answer: messages.Leased) -> HeldLease:
    if not answer.lease.isascii() or not answer.lease.isalnum():
        # Programs put ids into statements, and the connector into names of files.
        raise ProtocolError(f"expected the id of a lease, found {answer.lease!r:.100}")
    return _Held(answer.lease, answer.position, answer.seconds)


def _lease_fields(lease: HeldLease) -> Sequence[Any]:
    return lease.id, lease.position, lease.seconds


def _read_fields(
    table: str,
    lower: bytes | None,
    upper: bytes | None,
    columns: Sequence[str] | None,
    where: str | None,
    parameters: Parameters,
    lease: str | None,
) -> Sequence[Any]:
    names = None if columns is None else list(columns)
    text = None if where is None else check_statement(where)
    return table, lower, upper, names, text, to_wire(parameters), lease


TAKE_LEASE: Feature[HeldLease] = Feature(
    request=messages.TakeLease,
    run=lambda session, *given: session.leasing.take(*given),
    reply=messages.Leased,
    answer=_lease_fields,
    value=_held,
)
USE_LEASE: Feature[HeldLease] = Feature(
    request=messages.UseLease,
    run=lambda session, lease: session.leasing.use(lease),
    reply=messages.Leased,
    answer=_lease_fields,
    value=_held,
)
END_LEASE: Feature[bool] = Feature(
    request=messages.EndLease,
    run=lambda session, lease: session.leasing.end(lease),
    value=lambda done: done.row_count == 1,
)
PARTITIONS: Feature[list[PlainPart]] = Feature(
    request=messages.ListPartitions,
    run=lambda session, *given: session.leasing.partitions(*given),
    reply=messages.Partitions,
    value=lambda answer: answer.parts,
)
READ_PARTITION: Feature[Result] = Feature(
    request=messages.ReadPartition,
    run=lambda session, *given: session.leasing.read_partition(*given),
    fields=_read_fields,
)


# --- stagings ------------------------------------------------------------------------------------


def _stage_rows(
    session: Session, stage: int, first_row: int, batches: "Iterable[pa.RecordBatch]"
) -> int:
    """Stage rows behind `first_row` others; return how many the stage has then."""
    count, staging = first_row, session.staging
    for batch in batches:
        count = staging.add(stage, first_row, batch)
        first_row += batch.num_rows
    return count


def _rows_fields(stage: int, first_row: int, batches: "Iterable[pa.RecordBatch]") -> Sequence[Any]:
    with loading():
        from herdpy.exec.vector.arrow_input import batch_bytes

    return stage, first_row, b"".join(map(batch_bytes, batches))


def _end_stage(session: Session, stage: int, is_dropped: bool, row_count: int) -> int:
    """Make a stage of so many rows whole and durable, and return how many; or give it up: -1."""
    if is_dropped:
        session.staging.drop_stage(stage)
        return -1
    return session.staging.finish_stage(stage, None if row_count < 0 else row_count)


def _settle(
    session: Session, job: str, action: str, stages: Sequence[int], run: str | None
) -> str | None:
    """Commit a job, give its run (None: all of it) up, or ask; return its commit's position."""
    match action:
        case "commit":
            return session.staging.commit(job, stages)
        case "abort":
            session.staging.abort(job, run)
            return None
        case "position":
            return session.staging.position(job)
        case other:
            raise ProgrammingError(
                f"staging: expected 'commit', 'abort' or 'position', found {other!r:.100}",
                sqlstate="22023",
            )


BEGIN_STAGING: Feature[Table] = Feature(
    request=messages.BeginStaging,
    run=lambda session, *given: session.staging.begin(*given),
    reply=messages.StagingBegun,
    answer=lambda table: (table_to_plain(table),),
    value=lambda answer: received_table(answer.table),
)
BEGIN_STAGE: Feature[tuple[int, Table]] = Feature(
    request=messages.BeginStage,
    run=lambda session, *given: session.staging.begin_stage(*given),
    reply=messages.StageBegun,
    answer=lambda begun: (begun[0], table_to_plain(begun[1])),
    value=lambda answer: (answer.stage, received_table(answer.table)),
)
STAGE_ROWS = Feature(
    request=messages.StageRows,
    run=_stage_rows,
    fields=_rows_fields,
    value=lambda done: done.row_count,
)
END_STAGE = Feature(request=messages.EndStage, run=_end_stage, value=lambda done: done.row_count)
SETTLE_STAGING = Feature(
    request=messages.SettleStaging,
    run=_settle,
    reply=messages.StagingSettled,
    value=lambda answer: answer.position,
)


# --- the database --------------------------------------------------------------------------------


def received_table(plain: list[Any]) -> Table:
    """Return a table that a server has sent; ProtocolError."""
    try:
        return table_from_plain(plain)
    except ValueError as error:
        raise ProtocolError(f"a malformed table: {error}") from None


TABLES: Feature[list[Table]] = Feature(
    request=messages.ListTables,
    run=lambda session: session.tables(),
    reply=messages.Tables,
    answer=lambda tables: ([table_to_plain(table) for table in tables],),
    value=lambda answer: [received_table(table) for table in answer.tables],
)
"""The tables that the next statement can name, by name."""
CHECKPOINT: Feature[None] = Feature(
    request=messages.Checkpoint, run=lambda session: session.checkpoint(), value=lambda _: None
)

WAIT_FOR: Feature[float] = Feature(
    request=messages.WaitFor,
    run=lambda session, *given: session.await_position(*given),
    reply=messages.Reached,
    value=lambda answer: answer.lag_s,
)
"""Wait, for so many seconds, until the copy has a position; how old what it shows may be.

A server waits (herdpy/server/connection.py): what a database in process has not, never comes.
"""

BY_REQUEST: dict[Any, Feature[Any]] = {
    feature.request: feature
    for feature in (
        TAKE_LEASE, USE_LEASE, END_LEASE, PARTITIONS, READ_PARTITION,
        BEGIN_STAGING, BEGIN_STAGE, STAGE_ROWS, END_STAGE, SETTLE_STAGING,
        TABLES, CHECKPOINT, WAIT_FOR,
    )
}  # fmt: skip
