"""A server's connection behind a gRPC call: of a client's own, or for one statement.

Both are a ServerConnection, whose socket the call stands for: there is one way to be admitted, to
have a session, and to carry out a request. On the server's loop.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from bookie.runtime.frames import FrameSplitter
from herdpy.errors import Error, OperationalError, ProtocolError, Retry
from herdpy.model.access import User
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto.errors import from_failed, to_failed
from herdpy.proto.messages import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    Failed,
    Message,
    Rollback,
    encode_frame,
)
from herdpy.proto.typed_session import from_request, hello, to_reply
from herdpy.server.grpc.callers import EOF, Caller, CallLogin, transport_of
from herdpy.server.grpc.message_costs import check_unauthenticated, converted, made
from herdpy.server.grpc.transport import StreamTransport

if TYPE_CHECKING:
    from herdpy.server.connection import ServerConnection
    from herdpy.server.hub import Hub

_LAST_REQUEST = (1 << 64) - 1
"""The number of the Rollback behind a client's last request; no client may have it."""
_FRAMES_BYTES_MAX = 1024 * 1024
"""An answer without a typed form is cut, so that it fits any client's gRPC."""


async def run_session(
    connection: "ServerConnection", hub: "Hub", context: Any, caller: Caller
) -> None:
    """Serve a session stream until either side ends it."""
    login = CallLogin(hub, caller)
    if caller.proven is not None:
        connection.believe(caller.proven)
    transport = transport_of(connection, context)
    await context.send_initial_metadata(())  # the client learns that it was reached
    connection.connection_made(transport)
    may_go_on = asyncio.Event()  # behind the first message, when the login is ours
    if not login.is_needed:
        may_go_on.set()
    reading = asyncio.ensure_future(
        _read(connection, hub, transport, context, login.user, may_go_on)
    )
    is_in = not caller.user or caller.is_proven
    # A call that cannot be read any more is over.
    reading.add_done_callback(
        lambda done: None if done.cancelled() or done.exception() is None else transport.close()
    )
    splitter = FrameSplitter(FRAME_BYTES_MAX)
    try:
        while (data := await transport.next()) is not None:
            if not is_in:
                answer = await login.receive(data)
                if login.machine.failure is not None:
                    failed = to_failed(0, login.machine.failure, in_transaction=False)
                    await context.write(to_reply(encode_frame(failed)[LENGTH_BYTES:]))
                    return
                connection.data_received(answer)
                is_in = login.machine.welcome is not None
                if is_in:
                    may_go_on.set()
            for body in splitter.feed(data):
                make = partial(to_reply, bytes(body), is_whole=transport.reads_frames)
                reply = await made(hub, len(body), make)
                if reading.done() and _is_the_end(reply):
                    return
                if reply.frames and not transport.reads_frames:
                    continue  # of the login
                for piece in _pieces(reply):
                    await context.write(piece)
    finally:
        connection.connection_lost(None)
        reading.cancel()
        await asyncio.wait([reading])


async def _read(
    connection: "ServerConnection",
    hub: "Hub",
    transport: StreamTransport,
    context: Any,
    user: str,
    may_go_on: asyncio.Event,
) -> None:
    """Hand on what comes; behind the last request the transaction is rolled back."""

    def convert(message: bytes) -> bytes:
        request = pb.SessionRequest.FromString(message)
        kind = request.WhichOneof("kind")
        if kind == "frames":
            transport.reads_frames = True
        elif kind == "open":
            return encode_frame(hello(request.open, user))
        return from_request(request)

    while not transport.is_closing():
        await transport.may_read.wait()
        message = await context.read()
        if message is EOF:
            if connection.is_inside_frame:  # it would swallow what is sent behind it
                connection.refuse(ProtocolError("the stream ended inside a frame"))
            else:
                connection.data_received(encode_frame(Rollback(_LAST_REQUEST)))
            return
        try:
            if not connection.is_in:
                check_unauthenticated(message)
            data = await converted(hub, message, convert)
        except Error as error:
            connection.refuse(error)
            return
        connection.data_received(data)
        await may_go_on.wait()


def _is_the_end(reply: pb.SessionReply) -> bool:
    """Tell whether this answers the Rollback behind the last request."""
    return reply.request == _LAST_REQUEST


def _pieces(reply: pb.SessionReply) -> list[pb.SessionReply]:
    frames = reply.frames
    if len(frames) <= _FRAMES_BYTES_MAX:
        return [reply]
    return [
        pb.SessionReply(frames=frames[start : start + _FRAMES_BYTES_MAX])
        for start in range(0, len(frames), _FRAMES_BYTES_MAX)
    ]


class InnerSession:
    """A session for one call: `async with` opens and ends it. Errors are raised."""

    def __init__(
        self, connection: "ServerConnection", hub: "Hub", context: Any, caller: Caller
    ) -> None:
        self._connection = connection
        if caller.proven is not None:
            connection.believe(caller.proven)
        self._transport = transport_of(connection, context)
        self._login = CallLogin(hub, caller)
        self._machine = self._login.machine

    async def open(self, opened: pb.Open) -> None:
        """Begin; the errors are those of a connection that is refused."""
        self._connection.connection_made(self._transport)
        self._connection.data_received(encode_frame(hello(opened, self._login.user)))
        while self._machine.welcome is None:
            await self._receive()

    @property
    def user(self) -> User | None:
        """Who has logged in; None: no login was asked for."""
        return self._connection.user

    async def ask(self, make: Callable[[int], Message]) -> Any:
        """Return the answer to a request."""
        request = self._machine.new_request()
        self._connection.data_received(encode_frame(make(request)))
        while (answer := self._machine.take(request)) is None:
            await self._receive()
        if isinstance(answer, Failed):
            raise from_failed(answer)
        return answer

    async def _receive(self) -> None:
        if self._machine.failure is not None:
            raise self._machine.failure
        data = await self._transport.next()
        if data is None:
            raise OperationalError("the session ended", sqlstate="57P01", retry=Retry.UNKNOWN)
        self._connection.data_received(await self._login.receive(data))

    async def __aenter__(self) -> "InnerSession":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self._connection.connection_lost(None)
