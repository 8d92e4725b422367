"""Who a gRPC call says it is, and how that is proved: by a password, a token, or a login's stream.

Whatever has to do with a password goes through a ServerConnection, as a login over a socket does:
limits, delays and the audit log are the same. On the server's loop.
"""

import asyncio
import ssl
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote

import grpc

from herdpy.errors import Error, OperationalError, ProtocolError, Retry
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto import messages
from herdpy.proto.driver_machine import DriverMachine
from herdpy.proto.errors import from_failed
from herdpy.proto.scram import MECHANISM, ScramDriver
from herdpy.proto.typed_session import hello
from herdpy.server.grpc.answers import Answers
from herdpy.server.grpc.message_costs import check_unauthenticated, converted
from herdpy.server.login.gate import TABLESPACE_KEY
from herdpy.server.login.login_tokens import Proven, Tokens
from herdpy.server.login.throttle import origin_of

if TYPE_CHECKING:
    from herdpy.server.connection import ServerConnection
    from herdpy.server.hub import Hub

DEFAULT_TABLESPACE = "default"
EOF: Any = cast(Any, grpc.aio).EOF
"""What read() gives behind the last request."""


class Caller(NamedTuple):
    """The user that calls; without one, any client of the machine."""

    user: str = ""
    password: str | None = None
    proven: Proven | None = None
    """What a token, or a login before, has proved."""
    tablespace: str = DEFAULT_TABLESPACE
    """Whose user that is, by the name that it had when the call began."""
    has_token: bool = False
    remember: Callable[[Proven], object] | None = None
    """Notes that the password was proved."""

    @property
    def is_proven(self) -> bool:
        return self.proven is not None

    def paced_as(self, context: Any) -> str:
        """Return by what its requests are counted: the user, once proved, or the address."""
        if self.proven is None:
            return origin_of(peer_of(context))
        return f"{self.proven.user.name}@{self.tablespace}"

    def __repr__(self) -> str:
        return f"Caller({self.user!r})"


def caller_of(context: Any, tokens: Tokens, hub: "Hub") -> Caller:
    """Return who a call's metadata say that it is; OperationalError 28000."""
    metadata = [(key, str(value)) for key, value in context.invocation_metadata()]
    found = [value for key, value in metadata if key == "authorization"]
    named = [value for key, value in metadata if key == TABLESPACE_KEY]
    if not found:
        return Caller(tablespace=named_tablespace(context))
    token = bearer_of(context)
    if token is not None:
        proven = tokens.proven_by(token, certificate_of(context))
        tablespace = hub.name_of(proven.tablespace_id)
        return Caller(proven.user.name, proven=proven, tablespace=tablespace, has_token=True)
    scheme, _, shown = found[0].partition(" ")
    try:
        user, colon, password = b64decode(shown, validate=True).decode().partition(":")
    except ValueError:
        user = colon = password = ""
    if scheme.lower() != "basic" or len(found) > 1 or len(named) > 1 or not colon or not user:
        raise OperationalError(
            "authorization: expected one, of 'Basic' and user:password in base64, or of 'Bearer' "
            "and a token",
            sqlstate="28000",
        )
    tablespace = named[0] if named else DEFAULT_TABLESPACE
    if not password:
        return Caller(user, tablespace=tablespace)
    certificate, now = certificate_of(context), hub.login_of(tablespace, user)
    if now is not None:
        proven = tokens.remembered(now.tablespace_id, user, password, certificate)
        if proven is not None:
            return Caller(user, proven=proven, tablespace=tablespace)

    def remember(proven: Proven) -> None:
        tokens.remember(proven, password, certificate)

    return Caller(user, password, tablespace=tablespace, remember=remember)


def bearer_of(context: Any) -> str | None:
    """Return the token that a call shows; None: it shows none, or something else, too."""
    found = [str(value) for key, value in context.invocation_metadata() if key == "authorization"]
    scheme, _, shown = found[0].partition(" ") if len(found) == 1 else ("", "", "")
    return shown if scheme.lower() == "bearer" else None


def certificate_of(context: Any) -> bytes:
    """Return the certificate (PEM) that a call's client showed, empty: none."""
    found = context.auth_context().get("x509_pem_cert")
    return bytes(found[0]) if found else b""


def answers_of(
    connection: "ServerConnection",
    context: Any,
    caller: Caller,
    encode: Callable[[messages.Message], Any] = lambda message: message,
) -> Answers:
    """Return the transport that a call is for its connection, which believes a proven caller.

    By default nothing is encoded: the call makes its reply of the message itself.
    """
    connection.encode = encode
    if caller.user:
        connection.believe(caller.proven, caller.tablespace)
    pem = certificate_of(context)
    certificate = ssl.PEM_cert_to_DER_cert(pem.decode("ascii")) if pem else None
    return Answers(connection, peer_of(context), certificate)


def peer_of(context: Any) -> str:
    """Return who calls as host:port, as of a socket."""
    return unquote(context.peer()).removeprefix("ipv4:").removeprefix("ipv6:")


class CallLogin:
    """A driver's part of a login, played for a call. The password's proof takes a worker."""

    def __init__(self, hub: "Hub", connection: "ServerConnection", caller: Caller) -> None:
        self._hub = hub
        self._connection = connection
        self._tablespace = caller.tablespace
        self._user, password = caller.user, caller.password
        login = None if password is None else ScramDriver(self._user, password, binding=None)
        self._machine = DriverMachine(login)
        self._remember = caller.remember

    async def take(self, message: messages.Message) -> bool:
        """Take what the server says, and answer it; True: it was Welcome. OperationalError."""
        replies: list[messages.Message] = []
        job = partial(self._machine.take_message, message, replies)
        if isinstance(message, messages.ScramChallenge):
            workers = self._hub.workers
            served = self._hub.find_served(self._tablespace)
            if (
                workers.are_busy
                and served is not None
                and served.database.is_administrator(self._user)
            ):
                await workers.submit_reserved(job)
            else:
                await workers.submit_proof(job)
        else:
            job()
            if isinstance(message, messages.ScramVerified) and self._remember is not None:
                proven = self._connection.proven
                assert proven is not None
                self._remember(proven)
        for reply in replies:
            self._connection.take(reply, 0)
        return isinstance(message, messages.Welcome)


@asynccontextmanager
async def serving(
    connection: "ServerConnection", answers: Answers, reading: Coroutine[Any, Any, None]
) -> AsyncGenerator[None, None]:
    """Let a stream's messages be read; when it cannot be read any more the call is over."""
    connection.connection_made(answers)
    task = asyncio.ensure_future(reading)
    task.add_done_callback(
        lambda done: None if done.cancelled() or done.exception() is None else answers.close()
    )
    try:
        yield
    finally:
        connection.connection_lost(None)
        task.cancel()
        await asyncio.wait([task])


class LoginStream:
    """A login by a stream of typed messages: SCRAM-SHA-256, whose proof the client makes."""

    def __init__(
        self, connection: "ServerConnection", hub: "Hub", context: Any, tablespace: str
    ) -> None:
        """`tablespace`: whose user logs in."""
        self._tablespace = tablespace
        self._connection = connection
        self._hub = hub
        self._context = context
        self._answers = answers_of(connection, context, Caller())
        self._start = pb.LoginStart()

    async def run(self, tokens: Tokens) -> pb.LoggedIn:
        """Return what a proof was good for; Error."""
        verified = ""
        async with serving(self._connection, self._answers, self._read()):
            while (message := await self._answers.next()) is not None:
                match message:
                    case messages.Failed():
                        raise from_failed(message)
                    case messages.LoginRequired():
                        start = messages.ScramStart(MECHANISM, self._start.client_first)
                        self._connection.take(start, 0)
                    case messages.ScramChallenge():
                        await self._context.write(pb.LoginReply(challenge=message.data))
                    case messages.ScramVerified():
                        verified = message.data
                    case _:
                        return logged_in(tokens, self._connection.proven, self._context, verified)
        raise OperationalError("the login ended", sqlstate="57P01", retry=Retry.SAFE)

    async def _read(self) -> None:
        """Hand on what comes: start, then proof."""
        for expected in ("start", "proof"):
            data = await self._context.read()
            try:
                data = b"" if data is EOF else data
                check_unauthenticated(data)
                request = await converted(
                    self._hub, data, pb.LoginRequest.FromString, lambda: self._connection.received
                )
                if request.WhichOneof("kind") != expected:
                    raise ProtocolError("login: expected start, then proof")
                if expected == "proof":
                    self._connection.take(messages.ScramProof(request.proof), len(data))
                    return
                self._start = request.start
                if not self._start.user:
                    raise OperationalError("login: expected a user", sqlstate="28000")
                opened = hello(
                    pb.Open(client="grpc login", tablespace=self._tablespace), self._start.user
                )
                self._connection.take(opened, len(data))
            except Error as error:
                self._connection.refuse(error)
                return


def logged_in(tokens: Tokens, proven: Proven | None, context: Any, verified: str) -> pb.LoggedIn:
    """Return a new token for what a login has proved."""
    if proven is None or proven.login.verifier is None:  # by a certificate alone
        raise OperationalError(
            "the login has proved no password, and so there is no token for it", sqlstate="28000"
        )
    token = tokens.give(proven, certificate_of(context))
    return pb.LoggedIn(verified=verified, token=token, valid_s=int(tokens.lifetime_s))


def named_tablespace(context: Any, otherwise: str = DEFAULT_TABLESPACE) -> str:
    """Return which tablespace a call's metadata name, as Login takes it; or what is if none is."""
    named = [str(value) for key, value in context.invocation_metadata() if key == TABLESPACE_KEY]
    return named[0] if named else otherwise
