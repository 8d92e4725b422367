"""The session of a gRPC call: of a client's own stream, or for one statement.

Both are a ServerConnection that takes messages and gives answers without frames, unless the client
sends frames itself: there is one way to be admitted, to have a session, and to carry out a request.
On the server's loop.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from herdpy.engine.database import Database
from herdpy.errors import Error, OperationalError, ProtocolError, Retry
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto import messages
from herdpy.proto.errors import from_failed, to_failed
from herdpy.proto.messages import Message, encode_frame
from herdpy.proto.typed_session import from_request, hello, to_reply
from herdpy.server.grpc.callers import EOF, Caller, CallLogin, answers_of, serving
from herdpy.server.grpc.message_costs import check_unauthenticated, converted
from herdpy.server.limits import Account
from herdpy.server.login.login_tokens import Proven

if TYPE_CHECKING:
    from herdpy.server.connection import ServerConnection
    from herdpy.server.hub import Hub

_LAST_REQUEST = (1 << 64) - 1
"""The number of the Rollback behind a client's last request; no client may have it."""
_END = pb.SessionReply()
"""Stands for its answer."""
_FRAMES_BYTES_MAX = 1024 * 1024
"""An answer in frames is cut, so that it fits any client's gRPC."""
_OF_LOGIN = (
    messages.LoginRequired, messages.ScramChallenge, messages.ScramVerified, messages.Welcome
)  # fmt: skip


class SessionStream:
    """A client's own session; run() serves it until either side ends it."""

    def __init__(
        self, connection: "ServerConnection", hub: "Hub", context: Any, caller: Caller
    ) -> None:
        self._connection = connection
        self._hub = hub
        self._context, self._caller = context, caller
        self._answers = answers_of(connection, context, caller, self._encode)
        is_login_ours = bool(caller.user) and not caller.is_proven
        self._login = CallLogin(hub, connection, caller) if is_login_ours else None
        self._may_go_on = asyncio.Event()  # behind the first message, when the login is ours
        if self._login is None:
            self._may_go_on.set()
        self._has_frames = False
        """The client has sent a frame, so it understands answers in frames."""
        self._is_over = False  # the client has sent its last request

    async def run(self) -> None:
        await self._context.send_initial_metadata(())  # the client learns that it was reached
        async with serving(self._connection, self._answers, self._read()):
            while (answer := await self._answers.next()) is not None and answer is not _END:
                if isinstance(answer, Message):
                    answer = await self._log_in(answer)
                for piece in _pieces(answer):
                    await self._context.write(piece)

    async def _log_in(self, message: Message) -> Any:
        """Return what the client is told of a message of its login, if anything."""
        assert self._login is not None
        try:
            if not await self._login.take(message):
                return b""
        except Error as error:
            self._answers.close()
            return self._form(to_failed(0, error, in_transaction=False))
        self._login = None
        self._caller = self._caller._replace(proven=self._connection.proven)
        self._may_go_on.set()
        return self._form(message)

    def _encode(self, message: Message) -> Any:
        """Return what an answer is to the client; any thread."""
        if self._is_over and getattr(message, "request", 0) == _LAST_REQUEST:
            return _END
        if self._login is not None and isinstance(message, _OF_LOGIN):
            return message
        return self._form(message)

    def _form(self, message: Message) -> Any:
        is_typed = not self._has_frames or isinstance(message, messages.Failed)
        return to_reply(message) if is_typed else encode_frame(message)

    async def _read(self) -> None:
        """Hand on what comes; behind the last request the transaction is rolled back."""
        connection = self._connection
        while not self._answers.is_closing():
            await self._answers.may_read.wait()
            data = await self._context.read()
            if data is EOF:
                if connection.is_inside_frame:  # it would swallow what is sent behind it
                    connection.refuse(ProtocolError("the stream ended inside a frame"))
                else:
                    self._is_over = True
                    connection.take(messages.Rollback(_LAST_REQUEST), 0)
                return
            if connection.is_in:  # before that it has waited as the call
                await self._hub.common.pace.wait(self._caller.paced_as(self._context))
            try:
                if not connection.is_in:
                    check_unauthenticated(data)
                found = await converted(self._hub, data, self._convert, lambda: connection.received)
            except Error as error:
                connection.refuse(error)
                return
            if isinstance(found, Message):
                connection.take(found, len(data))
            else:
                connection.data_received(found)
            await self._may_go_on.wait()

    def _convert(self, data: bytes) -> Message | bytes:
        request = pb.SessionRequest.FromString(data)
        kind = request.WhichOneof("kind")
        if kind == "frames":
            self._has_frames = True
            return request.frames
        return hello(request.open, self._caller.user) if kind == "open" else from_request(request)


def _pieces(answer: Any) -> Iterator[pb.SessionReply]:
    if isinstance(answer, pb.SessionReply):
        yield answer
        return
    for start in range(0, len(answer), _FRAMES_BYTES_MAX):
        yield pb.SessionReply(frames=answer[start : start + _FRAMES_BYTES_MAX])


class CallSession:
    """A session for one call, from open() to close(). Errors are raised."""

    def __init__(
        self, connection: "ServerConnection", hub: "Hub", context: Any, caller: Caller
    ) -> None:
        self._hub, self._context, self._caller = hub, context, caller
        self._connection = connection
        self._answers = answers_of(connection, context, caller)
        self._login = CallLogin(hub, connection, caller)
        self._last_request = 0

    async def open(self, opened: pb.Open) -> None:
        """Begin; the errors are those of a connection that is refused."""
        opened.tablespace = opened.tablespace or self._caller.tablespace
        self._connection.connection_made(self._answers)
        self._connection.take(hello(opened, self._caller.user), 0)
        while not await self._login.take(await self._next()):
            pass

    @property
    def proven(self) -> Proven | None:
        """What the login has proved; None: none was asked for."""
        return self._connection.proven

    @property
    def database(self) -> Database:
        """The tablespace of the session."""
        return self._connection.database

    def name_of(self, database_name: str) -> str:
        """Return the name by which clients know a tablespace of its server."""
        return self._connection.shown_name(database_name)

    @property
    def received(self) -> Account:
        """What counts the requests of its user, also behind its end."""
        return self._connection.received

    async def ask(self, make: Callable[..., Message], *fields: Any) -> Any:
        """Return the answer to a request, make(its number, *fields)."""
        if self._last_request:  # its first one has waited as the call
            await self._hub.common.pace.wait(self._caller.paced_as(self._context))
        self._last_request += 1
        self._connection.take(make(self._last_request, *fields), 0)
        return await self._next()

    async def _next(self) -> Message:
        answer = await self._answers.next()
        if answer is None:
            raise OperationalError("the session ended", sqlstate="57P01", retry=Retry.UNKNOWN)
        if isinstance(answer, messages.Failed):
            raise from_failed(answer)
        return answer

    def close(self) -> None:
        """End it; the connection rolls back."""
        self._connection.connection_lost(None)
