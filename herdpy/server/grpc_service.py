"""GrpcService: the calls of herdpy.proto on a server's connections: docs/protocols/grpc.md.

Every call has a connection of its own (grpc_session.py), which counts among the server's. On the
server's loop.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from msgspec import Raw

from herdpy.engine.result import Result
from herdpy.errors import Error, OperationalError
from herdpy.model.schema import Table, table_from_plain
from herdpy.model.types import Kind, SqlType
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto import messages
from herdpy.proto.grpc_codes import status_name
from herdpy.proto.messages import FRAME_BYTES_MAX
from herdpy.proto.typed_session import error_of, execute
from herdpy.proto.typed_values import to_columns, to_decoded_rows
from herdpy.proto.values import rows_decoder
from herdpy.server.grpc_callers import LoginStream, caller_of, logged_in, verifier_of
from herdpy.server.grpc_session import InnerSession, run_session
from herdpy.server.hub import TABLESPACE
from herdpy.server.tokens import Tokens

if TYPE_CHECKING:
    from herdpy.server.connection import ServerConnection
    from herdpy.server.hub import Hub

SERVICE = "herdpy.v1.Herdpy"
ERROR_METADATA = "herdpy-error-bin"
_QUERY_ROWS = 1000
_EXECUTE_ROWS = 1001
"""One more than an answer holds: who fetches as many as there are does not learn the end."""
_ARROW_ROWS = 65_536
_ARROW_PIECE_BYTES = 1024 * 1024
_DETAIL_CHARACTERS_MAX = 1000
"""Of a message in a status: clients take 8 KiB of metadata in all."""


class GrpcService:
    """See the module. `new_connection` makes one that is not connected yet."""

    def __init__(self, hub: "Hub", new_connection: "Callable[[], ServerConnection]") -> None:
        self._hub = hub
        self._new_connection = new_connection
        self._tokens = Tokens(
            hub.database, hub.clock, hub.database.rng, hub.config.token_lifetime_s
        )

    def handlers(self) -> Any:
        """Return what a grpc.aio server is given."""
        unary, streaming = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods = {
            "Execute": _handler(unary, self.execute, pb.ExecuteRequest),
            "Query": _handler(streaming, self.query, pb.QueryRequest),
            "Session": _handler(
                grpc.stream_stream_rpc_method_handler, self.session, pb.SessionRequest
            ),
            "ListTables": _handler(unary, self.list_tables, pb.ListTablesRequest),
            "GetServer": _handler(unary, self.get_server, pb.GetServerRequest),
            "Login": _handler(grpc.stream_stream_rpc_method_handler, self.login, pb.LoginRequest),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def session(self, requests: object, context: Any) -> None:
        """Session: see run_session()."""
        try:
            caller = caller_of(context, self._tokens)
            await run_session(self._new_connection(), self._hub, context, caller)
        except Error as error:
            await _abort(context, error)

    def _inner(self, context: Any) -> InnerSession:
        """Return a session of who calls; OperationalError 28000."""
        caller = caller_of(context, self._tokens)
        return InnerSession(self._new_connection(), self._hub, context, caller)

    async def login(self, requests: object, context: Any) -> None:
        """Login: by a stream, or by the password in the call's metadata."""
        try:
            caller = caller_of(context, self._tokens)
            if caller.is_proven:
                raise OperationalError("login: a token gives no token", sqlstate="28000")
            if caller.user:
                verifier = verifier_of(self._hub, caller.user)
                async with self._inner(context) as session:
                    await session.open(pb.Open(client="grpc login"))
                reply = logged_in(self._tokens, caller.user, verifier, context, "")
            else:
                reply = await LoginStream(self._new_connection(), self._hub, context).run(
                    self._tokens
                )
            await context.write(pb.LoginReply(logged_in=reply))
        except Error as error:
            await _abort(context, error)

    async def execute(self, request: pb.ExecuteRequest, context: Any) -> pb.ExecuteReply:
        try:
            async with self._inner(context) as session:
                await session.open(_opened(request))
                done = await session.ask(lambda number: execute(number, request))
                rows = done.rows
                if done.result is not None:
                    rows = await _whole(session, done.result)
                return pb.ExecuteReply(
                    columns=to_columns(done.columns),
                    rows=to_decoded_rows(rows),
                    row_count=done.row_count,
                    last_row_id=done.last_row_id,
                )
        except Error as error:
            await _abort(context, error)
            raise  # abort() has raised

    async def query(self, request: pb.QueryRequest, context: Any) -> AsyncIterator[pb.QueryReply]:
        try:
            async with self._inner(context) as session:
                await session.open(_opened(request.statement))
                done = await session.ask(lambda number: execute(number, request.statement))
                first = pb.QueryReply(columns=to_columns(done.columns or ()))
                if done.result is None and not request.is_arrow:
                    first.rows.extend(to_decoded_rows(done.rows))
                yield first
                if done.result is not None:
                    async for reply in _fetched(session, done.result, request):
                        yield reply
                elif request.is_arrow:
                    data = await self._hub.submit(partial(_small_arrow, done), is_urgent=False)
                    for reply in _arrow_pieces(data):
                        yield reply
        except Error as error:
            await _abort(context, error)

    async def list_tables(self, request: pb.ListTablesRequest, context: Any) -> pb.ListTablesReply:
        try:
            async with self._inner(context) as session:
                await session.open(pb.Open(tablespace=request.tablespace, autocommit=True))
                answer = await session.ask(messages.ListTables)
            return pb.ListTablesReply(tables=map(_table, answer.tables))
        except Error as error:
            await _abort(context, error)
            raise

    async def get_server(self, request: pb.GetServerRequest, context: Any) -> pb.ServerInfo:
        try:
            async with self._inner(context) as session:
                await session.open(pb.Open())
        except Error as error:
            await _abort(context, error)
        return pb.ServerInfo(
            server=self._hub.name, protocol_version=messages.VERSION, tablespaces=[TABLESPACE]
        )


def _handler(kind: Any, method: Any, request: Any) -> Any:
    return kind(
        method,
        request_deserializer=request.FromString,
        response_serializer=lambda reply: reply.SerializeToString(),
    )


def _opened(request: pb.ExecuteRequest) -> pb.Open:
    return pb.Open(
        tablespace=request.tablespace,
        autocommit=True,
        durability=request.durability,
        statement_timeout_s=request.statement_timeout_s,
        lock_timeout_s=request.lock_timeout_s,
    )


async def _whole(session: InnerSession, result: int) -> bytes | Raw:
    """Return the rows of a result that is open only because DuckDB made it, or of a little size."""
    fetch = await session.ask(lambda number: messages.Fetch(number, result, _EXECUTE_ROWS, False))
    if not fetch.is_last:
        raise OperationalError(
            "the result has more rows than one answer holds (1,000 rows, or about 1 MiB)",
            sqlstate="54000",
            hint="call Query, which streams them",
        )
    return fetch.rows


async def _fetched(
    session: InnerSession, result: int, request: pb.QueryRequest
) -> AsyncIterator[pb.QueryReply]:
    rows_max = request.rows_max or (_ARROW_ROWS if request.is_arrow else _QUERY_ROWS)
    is_last = False
    while not is_last:
        answer = await session.ask(
            lambda number: messages.Fetch(number, result, rows_max, request.is_arrow)
        )
        is_last = answer.is_last
        if isinstance(answer, messages.Arrow):
            for reply in _arrow_pieces(answer.data):
                yield reply
        else:
            yield pb.QueryReply(rows=to_decoded_rows(answer.rows))


def _arrow_pieces(data: bytes) -> Iterator[pb.QueryReply]:
    for start in range(0, len(data), _ARROW_PIECE_BYTES):
        yield pb.QueryReply(arrow=data[start : start + _ARROW_PIECE_BYTES])


def _small_arrow(done: messages.Done) -> bytes:
    """Return rows that came with their answer as an Arrow stream. On a worker."""
    from herdpy.exec.vector.arrow_stream import next_stream

    columns = tuple((name, SqlType(Kind(kind), *rest)) for name, kind, *rest in done.columns or ())
    rows = rows_decoder(tuple(sql_type.kind for _, sql_type in columns))(done.rows)
    result = Result(columns, iter(rows))
    return next_stream(result.arrow_batches(_ARROW_ROWS), FRAME_BYTES_MAX)[0]


def _table(plain: Any) -> pb.Table:
    table: Table = table_from_plain(plain)
    columns = [
        pb.TableColumn(
            column=pb.Column(
                name=column.name,
                kind=pb.Kind.Name(column.type.kind.value),
                precision=column.type.precision,
                scale=column.type.scale,
                length=column.type.length,
            ),
            is_not_null=column.not_null,
        )
        for column in table.visible_columns
    ]
    key = [table.columns[ordinal] for ordinal in table.key]
    return pb.Table(
        name=table.name,
        columns=columns,
        primary_key=[column.name for column in key if not column.hidden],
    )


async def _abort(context: Any, error: Error) -> None:
    """End the call with a status, and the Error beside it; raises."""
    told = error_of(error)
    told.message = told.message[:_DETAIL_CHARACTERS_MAX]
    if told.HasField("hint"):
        told.hint = told.hint[:_DETAIL_CHARACTERS_MAX]
    context.set_trailing_metadata(((ERROR_METADATA, told.SerializeToString()),))
    await context.abort(grpc.StatusCode[status_name(error)], told.message)
