"""Call: one gRPC call of herdpy.proto: who calls, its messages in and out, its time.

Messages come as bytes and are read only when the caller has logged in, or begun to, so
that those of unauthenticated callers cost nothing. On the server's loop.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from herdpy.errors import ProtocolError
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto import messages
from herdpy.proto.messages import HELLO_BYTES_MAX
from herdpy.proto.typed_session import execute
from herdpy.server.grpc.callers import EOF, Caller, peer_of
from herdpy.server.grpc.message_costs import converted
from herdpy.server.grpc.session import CallSession
from herdpy.server.limits import Account
from herdpy.server.login.gate import too_slow
from herdpy.server.login.throttle import origin_of

if TYPE_CHECKING:
    from bookie.peer_shares import PeerShares
    from herdpy.server.connection import ServerConnection
    from herdpy.server.hub import Hub

T = TypeVar("T")


class Call:
    def __init__(
        self,
        hub: "Hub",
        context: Any,
        new_connection: "Callable[[], ServerConnection]",
        caller: Caller,
        unauthenticated: "PeerShares[Call]",
    ) -> None:
        """`unauthenticated` has the calls whose first message has not come."""
        self.hub = hub
        self.context = context
        self.caller = caller
        self.new_connection = new_connection
        self._unauthenticated = unauthenticated
        self._received: Account | None = None
        self._deadline = asyncio.timeout(None)  # of the first message
        self._has_given_way = False

    async def read(self, convert: Callable[[bytes], T], *, is_heavy: bool = False) -> T | None:
        """Return the next message, converted; None: no more come."""
        data = await self.context.read()
        if data is EOF:
            return None
        return await converted(self.hub, data, convert, self._account, is_heavy=is_heavy)

    async def read_one(self, convert: Callable[[bytes], T]) -> T:
        """Return the first message, converted, which has to come soon."""
        config = self.hub.config
        gone = self._unauthenticated.add(self, origin_of(peer_of(self.context)))
        if gone is not None:
            gone.give_way()
        try:
            async with self._deadline:
                loop = asyncio.get_running_loop()
                self._deadline.reschedule(loop.time() + config.login_timeout_s)
                data = await self.context.read()
                if data is EOF:
                    raise ProtocolError("a call without its message")
                # No large message is read before the login.
                if self.caller.user and not self.caller.is_proven and len(data) > HELLO_BYTES_MAX:
                    await self.prove()
                return await converted(self.hub, data, convert, self._account)
        except TimeoutError:
            if self._has_given_way:
                raise self.hub.gave_way() from None
            raise too_slow(config.login_timeout_s) from None
        finally:
            self._unauthenticated.remove(self)

    def _account(self) -> Account:
        """Return what counts the call's messages: the share of its user, once it is proved."""
        if self._received is None:
            self._received = self.hub.received_of(self.caller.proven)
        return self._received

    def give_way(self) -> None:
        """End the wait for the first message, for a newer call."""
        self._has_given_way = True
        self._deadline.reschedule(asyncio.get_running_loop().time())

    async def prove(self) -> None:
        """Log in a caller that has only said who it is."""
        async with self.session(pb.Open(client="grpc login", read="nearest")) as session:
            proven = session.proven
        self.caller = self.caller._replace(password=None, proven=proven)

    async def write(self, reply: Any) -> None:
        """Send a message; waits while the client takes none."""
        await self.context.write(reply)

    @asynccontextmanager
    async def session(self, opened: pb.Open) -> AsyncGenerator[CallSession, None]:
        """Give a session of the caller, which ends with the block."""
        session = CallSession(self.new_connection(), self.hub, self.context, self.caller)
        try:
            await session.open(opened)
            self._received = session.received
            yield session
        finally:
            session.close()

    def timeout_s(self, wanted_s: float) -> float:
        """Return a statement's timeout, which ends no later than the call; 0: none."""
        left_s: float | None = self.context.time_remaining()
        if left_s is None:
            return wanted_s
        left_s = max(left_s, 0.001)
        # A call with more time than the user's statements may have asks for no more than that.
        served = self.hub.find_served(self.caller.tablespace) or self.hub.default
        access = served.database.tablespace.state.catalog.access
        maximum_us = access.maxima_of(self.caller.user).get("statement_timeout")
        if maximum_us is not None:
            left_s = min(left_s, maximum_us / 1e6)
        return min(wanted_s, left_s) if wanted_s > 0 else left_s

    def opened(self, request: pb.ExecuteRequest | pb.IngestStart) -> pb.Open:
        """Return how the session of a statement by itself begins."""
        return pb.Open(
            tablespace=request.tablespace,
            autocommit=True,
            durability=request.durability,
            statement_timeout_s=self.timeout_s(request.statement_timeout_s),
            lock_timeout_s=request.lock_timeout_s,
        )

    def statement(self, request: pb.ExecuteRequest) -> tuple[pb.Open, messages.Execute]:
        """Return a session's begin, and what to run in it under a number to be given."""
        return self.opened(request), execute(0, request)
