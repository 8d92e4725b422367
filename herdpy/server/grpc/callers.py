"""Who a gRPC call says it is, and how that is proved: by a password, a token, or a login's stream.

Whatever has to do with a password goes through a ServerConnection, as a login over a socket does:
limits, delays and the audit log are the same. On the server's loop.
"""

import asyncio
import ssl
from base64 import b64decode
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote

import grpc

from bookie.runtime.frames import FrameSplitter
from herdpy.errors import Error, OperationalError, ProtocolError, Retry
from herdpy.model.access import User
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto import messages
from herdpy.proto.driver_machine import DriverMachine, frames
from herdpy.proto.errors import from_failed
from herdpy.proto.messages import FRAME_BYTES_MAX, decode_to_driver, encode_frame
from herdpy.proto.scram import MECHANISM, ScramDriver
from herdpy.proto.typed_session import hello
from herdpy.server.grpc.message_costs import check_unauthenticated, converted
from herdpy.server.grpc.transport import StreamTransport
from herdpy.server.login.interfaces import Login
from herdpy.server.login.login_tokens import Tokens

if TYPE_CHECKING:
    from herdpy.server.connection import ServerConnection
    from herdpy.server.hub import Hub

EOF: Any = cast(Any, grpc.aio).EOF
"""What read() gives behind the last request."""


class Caller(NamedTuple):
    """The user that calls; without one, any client of the machine."""

    user: str = ""
    password: str | None = None
    proven: User | None = None
    """Whom a token, or a login before, has proved it to be."""

    @property
    def is_proven(self) -> bool:
        return self.proven is not None

    def __repr__(self) -> str:
        return f"Caller({self.user!r})"


def caller_of(context: Any, tokens: Tokens) -> Caller:
    """Return who a call's metadata say that it is; OperationalError 28000."""
    found = [value for key, value in context.invocation_metadata() if key == "authorization"]
    if not found:
        return Caller()
    scheme, _, shown = str(found[0]).partition(" ")
    if len(found) == 1 and scheme.lower() == "bearer":
        proven = tokens.user_of(shown, certificate_of(context))
        return Caller(proven.name, proven=proven)
    try:
        user, colon, password = b64decode(shown, validate=True).decode().partition(":")
    except ValueError:
        user = colon = password = ""
    if scheme.lower() != "basic" or len(found) > 1 or not colon or not user:
        raise OperationalError(
            "authorization: expected one, of 'Basic' and user:password in base64, or of 'Bearer' "
            "and a token",
            sqlstate="28000",
        )
    return Caller(user, password or None)


def certificate_of(context: Any) -> bytes:
    """Return the certificate (PEM) that a call's client showed, empty: none."""
    found = context.auth_context().get("x509_pem_cert")
    return bytes(found[0]) if found else b""


def transport_of(connection: "ServerConnection", context: Any) -> StreamTransport:
    """Return the transport that a call is for its connection."""
    pem = certificate_of(context)
    certificate = ssl.PEM_cert_to_DER_cert(pem.decode("ascii")) if pem else None
    return StreamTransport(connection, peer_of(context), certificate)


def peer_of(context: Any) -> str:
    """Return who calls as host:port, as of a socket."""
    return unquote(context.peer()).removeprefix("ipv4:").removeprefix("ipv6:")


class CallLogin:
    """A driver's part of a login, played for a call. The password's proof takes a worker."""

    def __init__(self, hub: "Hub", caller: Caller) -> None:
        self._hub = hub
        self.user = caller.user
        self.is_needed = caller.password is not None
        password = caller.password
        login = None if password is None else ScramDriver(caller.user, password, binding=None)
        self.machine = DriverMachine(login)

    async def receive(self, data: bytes) -> bytes:
        """Take what the server says; return what to answer."""
        if self.is_needed and self.machine.welcome is None:
            job, workers = partial(self._answer, data), self._hub.workers
            if workers.are_busy and self.user and self._hub.database.is_superuser(self.user):
                return await workers.submit_reserved(job)
            return await workers.submit(job, is_urgent=False)
        return self._answer(data)

    def _answer(self, data: bytes) -> bytes:
        return frames(self.machine.receive(data))


class LoginStream:
    """A login by a stream of typed messages: SCRAM-SHA-256, whose proof the client makes."""

    def __init__(self, connection: "ServerConnection", hub: "Hub", context: Any) -> None:
        self._connection = connection
        self._hub = hub
        self._context = context
        self._transport = transport_of(connection, context)
        self._start: pb.LoginStart | None = None
        self._before: Login | None = None

    async def run(self, tokens: Tokens) -> pb.LoggedIn:
        """Return what a proof was good for; Error."""
        self._connection.connection_made(self._transport)
        reading = asyncio.ensure_future(self._read())
        # A call that cannot be read any more is over.
        reading.add_done_callback(
            lambda done: (
                None if done.cancelled() or done.exception() is None else self._transport.close()
            )
        )
        try:
            return await self._talk(tokens)
        finally:
            self._connection.connection_lost(None)
            reading.cancel()
            await asyncio.wait([reading])

    async def _talk(self, tokens: Tokens) -> pb.LoggedIn:
        splitter = FrameSplitter(FRAME_BYTES_MAX)
        verified = ""
        while (data := await self._transport.next()) is not None:
            for body in splitter.feed(data):
                message = decode_to_driver(body)
                start = self._start
                if isinstance(message, messages.Failed):
                    raise from_failed(message)
                if isinstance(message, messages.LoginRequired) and start is not None:
                    self._receive(messages.ScramStart(MECHANISM, start.client_first))
                elif isinstance(message, messages.ScramChallenge):
                    await self._context.write(pb.LoginReply(challenge=message.data))
                elif isinstance(message, messages.ScramVerified):
                    verified = message.data
                elif isinstance(message, messages.Welcome) and verified and start is not None:
                    return logged_in(tokens, self._before, self._context, verified)
        raise OperationalError("the login ended", sqlstate="57P01", retry=Retry.SAFE)

    async def _read(self) -> None:
        """Hand on what comes."""
        while not self._transport.is_closing():
            data = await self._context.read()
            try:
                data = b"" if data is EOF else data
                check_unauthenticated(data)
                request = await converted(self._hub, data, _login_request)
                kind = request.WhichOneof("kind")
                if kind == "start" and self._start is None:
                    if not request.start.user:
                        raise OperationalError("login: expected a user", sqlstate="28000")
                    self._start = request.start
                    self._before = self._hub.database.login(request.start.user)
                    self._receive(hello(pb.Open(client="grpc login"), request.start.user))
                elif kind == "proof":
                    self._receive(messages.ScramProof(request.proof))
                    return
                else:
                    raise ProtocolError("login: expected start, then proof")
            except Error as error:
                self._connection.refuse(error)
                return

    def _receive(self, message: messages.Message) -> None:
        self._connection.data_received(encode_frame(message))


def _login_request(data: bytes) -> pb.LoginRequest:
    return pb.LoginRequest.FromString(data)


def logged_in(tokens: Tokens, before: Login | None, context: Any, verified: str) -> pb.LoggedIn:
    """Return a new token of a user who has logged in; `before` is from before that."""
    if before is None or before.verifier is None:  # the password is younger than the login
        raise OperationalError(
            "the password has changed", sqlstate="28000", retry=Retry.SAFE, hint="log in again"
        )
    token = tokens.give(before, certificate_of(context))
    return pb.LoggedIn(verified=verified, token=token, valid_s=int(tokens.lifetime_s))
