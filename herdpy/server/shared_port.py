"""SharedPort: one port, and the servers of a process behind it, each of tablespaces of its own.

A node of a cluster has a server for each tablespace that it carries, as long as its copy is open.
Which one a client wants it says in Hello: until then its connection is one of the server that was
let in first. The port is the node's as long as that lives: while none is let in, clients are told
to try again. On the loop of all of them.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from herdpy.errors import Error, OperationalError, Retry
from herdpy.server.closed_connection import ClosedConnection
from herdpy.storage.tablespace_list import DEFAULT

if TYPE_CHECKING:
    from herdpy.server.common import Common
    from herdpy.server.connection import ServerConnection
    from herdpy.server.grpc.server import GrpcServer
    from herdpy.server.hub import Hub
    from herdpy.server.login.audit import Audit


class SharedPort:
    """See the module. close() it behind the servers."""

    def __init__(self, common: "Common", audit: "Audit") -> None:
        """Take what its servers have together; the caller's, who closes it afterwards."""
        self.common = common
        self.audit = audit
        self._carried: dict[str, Hub | None] = {}
        """By the tablespace's name; None: its server is not let in now."""
        self._new: dict[Hub, Callable[[], ServerConnection]] = {}
        self._listening: Any = None
        self.closed_connections: dict[ClosedConnection, None] = {}
        """Those that came while no server was let in."""
        self._grpc: GrpcServer | None = None
        self.numbers = count(1)
        """Of connections: a number is one connection's, whichever server it comes to."""

    def carry(self, tablespace: str) -> None:
        """Note that a server of this tablespace comes and goes here. Before it comes."""
        self._carried.setdefault(tablespace, None)
        self._resize()

    def forget(self, tablespace: str) -> None:
        """Note that none comes any more; it has left."""
        self._carried.pop(tablespace, None)
        self._resize()

    def _resize(self) -> None:
        """Have those that are let in share what is the port's."""
        for hub in self._new:
            hub.resize()

    async def open(self, host: str, port: int) -> None:
        """Listen until close(). OSError: the address is taken."""
        self._listening = await asyncio.get_running_loop().create_server(
            self._connection, host, port
        )

    @property
    def sockets(self) -> list[Any]:
        """Those that listen, behind open()."""
        return list(self._listening.sockets)

    def let_in(
        self, tablespace: str, hub: "Hub", new_connection: "Callable[[], ServerConnection]"
    ) -> None:
        """Let clients of a tablespace in."""
        self._carried[tablespace], self._new[hub] = hub, new_connection
        hub.resize()  # what is carried may have changed since it was made

    def leave(self, tablespace: str, hub: "Hub") -> None:
        """Let no client of it in any more. Repeatable."""
        if self._carried.get(tablespace) is hub:
            self._carried[tablespace] = None
        self._new.pop(hub, None)

    async def open_grpc(self, host: str, port: int) -> None:
        """Listen for gRPC, too, until close(). OSError: the address is taken."""
        from herdpy.server.grpc.server import GrpcServer

        self._grpc = grpc = GrpcServer(self, self.common, self.audit)
        await grpc.start(host, port)

    async def close(self) -> None:
        """Listen no more; behind all servers. Repeatable."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
        for each in list(self.closed_connections):
            await each.end()
        grpc, self._grpc = self._grpc, None
        if grpc is not None:
            await grpc.drain()
            await grpc.close()

    def _connection(self) -> "ServerConnection | ClosedConnection":
        new = next(iter(self._new.values()), None)
        return ClosedConnection(self) if new is None else new()

    # --- for gRPC --------------------------------------------------------------------------------

    def let_in_now(self) -> "Sequence[Hub]":
        """Return the servers that clients are let in to, the first of them first."""
        return list(self._new)

    def grpc_connection(self, hub: "Hub") -> "ServerConnection":
        """Return a new connection of a server, without TLS of its own, which a call stands for."""
        from herdpy.server.connection import ServerConnection

        return ServerConnection(hub, next(self.numbers), may_move=True)

    # --- for hubs --------------------------------------------------------------------------------

    @property
    def is_of_one(self) -> bool:
        """One tablespace is carried here, which so is the default."""
        return len(self._carried) < 2

    def find(self, tablespace: str) -> "Hub | None":
        """Return the server of a tablespace; None: it is not let in, or none is of the name."""
        if tablespace == DEFAULT and tablespace not in self._carried and self.is_of_one:
            return next(iter(self._carried.values()), None)
        return self._carried.get(tablespace)

    def refusal(self) -> Error | None:
        """Return what a client is told whose tablespace find() has not found.

        None: all of them are let in, and there is none of the name. Else that is not told: an
        unauthenticated client does not learn which tablespaces there are.
        """
        if None not in self._carried.values():
            return None
        return self.closed_error()

    def closed_error(self) -> Error:
        """Return what a client is told while what it names is not let in."""
        return OperationalError(
            "no tablespace of that name is open on this node now",
            sqlstate="57P03",
            retry=Retry.SAFE,
            hint="try again in a moment, or another node",
        )
