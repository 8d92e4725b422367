"""GrpcService: the calls of herdpy.proto on a server's connections: docs/protocols/grpc.md.

Every call has a connection of its own (session.py), which counts among the server's. On the
server's loop.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from bookie.peer_shares import PeerShares
from herdpy.engine.stats import stats_of
from herdpy.engine.tablespace_rows import visible_states
from herdpy.errors import Error, OperationalError
from herdpy.exec.result import Result
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto import messages
from herdpy.proto.columns import read_columns
from herdpy.proto.messages import FRAME_BYTES_MAX
from herdpy.proto.typed_values import to_columns, to_decoded_rows, to_position, to_table
from herdpy.server.grpc.bulk import get_snapshot, ingest
from herdpy.server.grpc.call import Call
from herdpy.server.grpc.callers import (
    Caller,
    LoginStream,
    caller_of,
    logged_in,
    named_tablespace,
    peer_of,
)
from herdpy.server.grpc.message_costs import made
from herdpy.server.grpc.session import CallSession, SessionStream
from herdpy.server.login.login_tokens import Tokens
from herdpy.server.pace import CALL

if TYPE_CHECKING:
    from herdpy.server.connection import ServerConnection
    from herdpy.server.hub import Hub

FIRST_MESSAGES = "grpc_first_messages"
"""The name of the shares of calls whose first message has not come."""
_QUERY_ROWS = 1000
_EXECUTE_ROWS = 1001
"""One more than an answer holds: who fetches as many as there are does not learn the end."""
_ARROW_ROWS = 65_536
_ARROW_PIECE_BYTES = 1024 * 1024


class GrpcService:
    """The calls to one server. `new_connection` makes one that is not connected yet."""

    def __init__(self, hub: "Hub", new_connection: "Callable[[], ServerConnection]") -> None:
        self._hub = hub
        self._new_connection = new_connection
        self._unauthenticated: PeerShares[Call] = hub.new_peer_shares(FIRST_MESSAGES)
        self._tokens = Tokens(
            hub.login_in,
            hub.clock,
            hub.database.rng,
            hub.config.token_lifetime_s,
            lambda: hub.database.entry.id,
        )

    @property
    def asks_for_users(self) -> bool:
        """A call that names none is refused."""
        hub = self._hub
        try:
            hub.gate.begin("", None, None, hub.database)
        except Error:
            return True
        return False

    def has_given(self, token: str) -> bool:
        """Return whether a token is one of this server's."""
        return self._tokens.has_given(token)

    async def run(self, name: str, context: Any) -> None:
        """Carry out a call of a method; Error: as it says."""
        caller = self._caller(context, is_for_all=name in _FOR_ALL)
        await self._hub.common.pace.wait(caller.paced_as(context), CALL)
        call = Call(self._hub, context, self._new_connection, caller, self._unauthenticated)
        if name == "Login":
            await self._login(call)
        else:
            await _METHODS[name](call)

    def _caller(self, context: Any, *, is_for_all: bool) -> Caller:
        try:
            caller = caller_of(context, self._tokens, self._hub)
            if not is_for_all and not caller.user:
                hub = self._hub
                hub.gate.begin("", None, None, hub.database)  # raises where a login is needed
            return caller
        except Error as error:
            self._hub.gate.audit.record(
                "refused",
                tablespace=named_tablespace(context, ""),
                peer=peer_of(context),
                reason=error.message,
            )
            raise

    async def _login(self, call: Call) -> None:
        """Login: by a stream, or by the password in the call's metadata."""
        caller, tokens, context = call.caller, self._tokens, call.context
        if caller.has_token:
            raise OperationalError("login: a token gives no token", sqlstate="28000")
        if caller.user:
            await call.prove()
            reply = logged_in(tokens, call.caller.proven, context, "")
        else:
            tablespace = named_tablespace(context)
            stream = LoginStream(self._new_connection(), self._hub, context, tablespace)
            reply = await stream.run(tokens)
        await call.write(pb.LoginReply(logged_in=reply))


async def _session(call: Call) -> None:
    await SessionStream(call.new_connection(), call.hub, call.context, call.caller).run()


async def _execute(call: Call) -> None:
    opened, statement = await call.read_one(
        lambda data: call.statement(pb.ExecuteRequest.FromString(data))
    )
    async with call.session(opened) as session:
        done = await session.ask(_numbered, statement)
        rows = done.rows if done.result is None else await _whole(session, done.result)
    found = await made(call.hub, len(rows), partial(to_decoded_rows, rows))
    reply = pb.ExecuteReply(
        columns=to_columns(done.columns),
        rows=found,
        row_count=done.row_count,
        last_row_id=done.last_row_id,
        position=to_position(done.lsn),
    )
    await call.write(reply)


async def _query(call: Call) -> None:
    def convert(data: bytes) -> tuple[pb.Open, messages.Execute, bool, int]:
        request = pb.QueryRequest.FromString(data)
        default = _ARROW_ROWS if request.is_arrow else _QUERY_ROWS
        return *call.statement(request.statement), request.is_arrow, request.rows_max or default

    opened, statement, is_arrow, rows_max = await call.read_one(convert)
    async with call.session(opened) as session:
        done = await session.ask(_numbered, statement)
        columns = to_columns(done.columns) or pb.Columns()
        first = pb.QueryReply(columns=columns, position=to_position(done.lsn))
        if done.result is None and not is_arrow:
            rows = await made(call.hub, len(done.rows), partial(to_decoded_rows, done.rows))
            first.rows.extend(rows)
        await call.write(first)
        if done.result is not None:
            await _write_all(call, session, done.result, rows_max, is_arrow=is_arrow)
        elif is_arrow:
            # Of few rows: what came with the answer. The workers of statements are behind turns.
            data = await call.hub.workers.submit(partial(_small_arrow, done), is_urgent=True)
            for reply in _arrow_pieces(data):
                await call.write(reply)


def _numbered(request: int, statement: messages.Execute) -> messages.Execute:
    statement.request = request
    return statement


async def _list_tables(call: Call) -> None:
    request = await call.read_one(pb.ListTablesRequest.FromString)
    async with call.session(pb.Open(tablespace=request.tablespace, autocommit=True)) as session:
        answer = await session.ask(messages.ListTables)
        await call.write(pb.ListTablesReply(tables=map(to_table, answer.tables)))


async def _get_server(call: Call) -> None:
    await call.read_one(pb.GetServerRequest.FromString)
    async with call.session(pb.Open(read="nearest")) as session:
        shown = visible_states(session.database, call.caller.user or None)
        await call.write(
            pb.ServerInfo(
                server=call.hub.name,
                protocol_version=messages.VERSION,
                tablespaces=[session.name_of(state.entry.name) for state in shown],
            )
        )


async def _get_tablespace(call: Call) -> None:
    request = await call.read_one(pb.GetTablespaceRequest.FromString)
    async with call.session(pb.Open(tablespace=request.tablespace, autocommit=True)) as session:
        answer = await session.ask(messages.ListTables)
        database = session.database
        figures, listed = stats_of(database), database.replica.manifest.state
        info = pb.TablespaceInfo(
            name=session.name_of(database.name),
            source=listed.log_id.hex(),
            epoch=database.tablespace.applier.epoch,
            written=to_position(database.tablespace.state.lsn),
            durable=to_position(figures.durable_lsn),
            checkpoint=to_position(listed.checkpoint_lsn),
            table_count=len(answer.tables),
            failure=figures.failure or "",
        )
        await call.write(info)


async def _whole(session: CallSession, result: int) -> bytes | Raw:
    """Return the rows of a result that is open only because DuckDB made it, or of a little size."""
    fetch = await session.ask(messages.Fetch, result, _EXECUTE_ROWS, False)
    if not fetch.is_last:
        raise OperationalError(
            "the result has more rows than one answer holds (1,000 rows, or about 1 MiB)",
            sqlstate="54000",
            hint="call Query, which streams them",
        )
    return fetch.rows


async def _write_all(
    call: Call, session: CallSession, result: int, rows_max: int, *, is_arrow: bool
) -> None:
    is_last = False
    while not is_last:
        answer = await session.ask(messages.Fetch, result, rows_max, is_arrow)
        is_last = answer.is_last
        if isinstance(answer, messages.Arrow):
            for reply in _arrow_pieces(answer.data):
                await call.write(reply)
        else:
            rows = answer.rows
            found = await made(call.hub, len(rows), partial(to_decoded_rows, rows))
            await call.write(pb.QueryReply(rows=found))


def _arrow_pieces(data: memoryview) -> Iterator[pb.QueryReply]:
    for start in range(0, len(data), _ARROW_PIECE_BYTES):
        yield pb.QueryReply(arrow=bytes(data[start : start + _ARROW_PIECE_BYTES]))


def _small_arrow(done: messages.Done) -> memoryview:
    """Return rows that came with their answer as an Arrow stream. On a worker."""
    from herdpy.exec.vector.arrow_stream import LEAD_BYTES, next_stream

    columns, decode = read_columns(done.columns)
    result = Result(columns, iter(decode(done.rows)))
    reader = result.arrow_batches(_ARROW_ROWS)
    return next_stream(reader.schema, reader, FRAME_BYTES_MAX)[0][LEAD_BYTES:]


_METHODS: dict[str, Callable[[Call], Awaitable[None]]] = {
    "Execute": _execute,
    "Query": _query,
    "Session": _session,
    "Ingest": ingest,
    "ListTables": _list_tables,
    "GetServer": _get_server,
    "GetTablespace": _get_tablespace,
    "GetSnapshot": get_snapshot,
}
_FOR_ALL = ("Session", "Login")
"""They refuse a call without a login themselves."""
METHODS = (*_METHODS, "Login")
