"""Server: a port over a database: start, drain, close. On one asyncio loop."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from bookie.runtime.os_executors import new_executor
from bookie.runtime.os_log import LineWriter
from herdpy.config import ServerConfig
from herdpy.engine.database import Database
from herdpy.errors import Error, OperationalError, check_extra
from herdpy.server.common import Common
from herdpy.server.connection import ServerConnection
from herdpy.server.hub import TABLESPACE, Hub
from herdpy.server.login.audit import Audit
from herdpy.server.login.gate import Gate
from herdpy.server.operations.health import HealthServer
from herdpy.server.operations.watch import Watch
from herdpy.server.served import Part
from herdpy.server.shared_port import SharedPort
from herdpy.server.workers import NewExecutor, Workers

if TYPE_CHECKING:
    from herdpy.server.grpc.server import GrpcServer

_log = logging.getLogger(__name__)
_DRAIN_STEP_S = 0.05
_QUIET_STEP_S = 0.004
"""What waits at a hand-over waits for that, too."""
_CANCELLED_S = 5.0
"""For which a statement may run on that is cancelled, before its part is kept."""


class Server:
    """Serves until close(). The database is the caller's, who closes it afterwards."""

    def __init__(
        self,
        database: Database,
        *,
        name: str,
        config: ServerConfig,
        write_audit: Callable[[bytes], None] | None = None,
        lines: Sequence[LineWriter] = (),
        executor: NewExecutor = new_executor,
        part: Part | None = None,
        tablespace: str = TABLESPACE,
        port: SharedPort | None = None,
    ) -> None:
        """OperationalError: a file of TLS cannot be used. write_audit: see audit.py.

        lines: what writes the process's logs, whose losses are shown. executor makes the workers,
        unless the port has them.
        part: what the database is one copy of several as; None: there is no other copy.
        tablespace: another name by which clients may ask for the database itself.
        port: shared with servers of other tablespaces; None: start() opens one of its own.
        """
        audit, clock = Audit(database.clock, write_audit), database.clock
        self._common = Common(config, clock, executor) if port is None else port.common
        secret = database.rng.randbytes(32)
        self.gate = Gate(database, audit, secret, config, self._common.throttle)
        self._workers = Workers(asyncio.get_running_loop(), clock, self._common.pool)
        self._hub = Hub(
            database,
            self._workers,
            name=name,
            config=config,
            gate=self.gate,
            common=self._common,
            neighbours=port,
            part=part,
            tablespace=tablespace,
        )
        self._hub.lines = lines
        self._watch = Watch(self._hub.loop, database)
        self._server: Any = None
        self._health: HealthServer | None = None
        self._grpc: GrpcServer | None = None
        self._tablespace = tablespace
        self._is_listening = False
        self._port = port
        self._numbers = count(1) if port is None else port.numbers

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Open all tablespaces, and listen; return the address. OSError when it is taken.

        A port that it shares listens already, wherever: clients are let in to it.

        A tablespace that cannot be opened is told to the log, and to the clients that name it.
        OperationalError: others reach it, and there is no TLS or no user with a password.
        """
        loop = asyncio.get_running_loop()
        instance = self._hub.database.instance
        for state in await self._workers.submit(instance.tablespaces.open_all, is_urgent=True):
            _log.error("tablespace %s cannot be opened: %s", state.entry.name, state.error)
        if self._port is None:
            self._server = await loop.create_server(
                self._tcp_connection, host, port, start_serving=False
            )
            sockets = self._server.sockets
        else:
            sockets = self._port.sockets
        has_tls = self._common.tls is not None
        try:
            self.gate.open_to([each.getsockname()[0] for each in sockets], has_tls=has_tls)
        except Error:
            self._leave_port()  # it may be let in to later, with a user
            raise
        address: tuple[str, int] = sockets[0].getsockname()[:2]
        if self._port is None:
            await self._server.start_serving()
        else:
            self._port.let_in(self._tablespace, self._hub, self._shared_connection)
        self._is_listening = True
        self._watch.start()
        return address

    async def start_grpc(self, host: str, port: int) -> int:
        """Listen for gRPC, too; return the port. OSError when it is taken.

        Of one that shares a port that is SharedPort.open_grpc()'s.

        OperationalError: as of start(). InterfaceError: gRPC's packages are not installed.
        """
        check_extra("server", "a gRPC port")
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port)
        has_tls = self._common.tls is not None
        self.gate.open_to([str(each[4][0]) for each in addresses], has_tls=has_tls)
        from herdpy.server.grpc.server import GrpcServer

        self._grpc = GrpcServer(_OneHub(self._hub, self._connection), self._common, self.gate.audit)
        return await self._grpc.start(host, port)

    async def start_http(self, host: str, port: int) -> int:
        """Serve health.py's pages, until close(); return the port. OSError when it is taken."""
        self._health = HealthServer()
        self._health.show(self._hub)
        return await self._health.start(host, port)

    def show_at(self, health: HealthServer) -> None:
        """Have pages that outlive this server show it, with others, until hide_at()."""
        health.show(self._hub)

    def hide_at(self, health: HealthServer) -> None:
        """Have them show it no more."""
        health.hide(self._hub)

    @property
    def is_listening(self) -> bool:
        """start() has let clients in."""
        return self._is_listening

    def reload(self, config: ServerConfig) -> list[str]:
        """Take up certificates that were read again, and settings; return those it cannot.

        OperationalError: a file of TLS cannot be used, and all is as before.
        """
        if self._common.reload_tls():
            self.gate.audit.record("certificates_reloaded")
        now, left = self._hub.config.reloaded(config)
        self.take_up(now)
        return left

    def take_up(self, config: ServerConfig) -> None:
        """Take up settings, of which those differ that count at once."""
        self._hub.reload(config)

    def _connection(self) -> ServerConnection:
        return ServerConnection(self._hub, next(self._numbers))

    def _tcp_connection(self) -> ServerConnection:
        return ServerConnection(self._hub, next(self._numbers), self._common.tls)

    def _shared_connection(self) -> ServerConnection:
        return ServerConnection(self._hub, next(self._numbers), self._common.tls, may_move=True)

    def _leave_port(self) -> None:
        """Take no connection any more."""
        if self._port is not None:
            self._port.leave(self._tablespace, self._hub)
        elif self._server is not None:
            self._server.close()

    @property
    def connection_count(self) -> int:
        return len(self._hub.connections)

    async def drain(self, timeout_s: float) -> None:
        """Take no connection any more, and close those that are idle until all are.

        Transactions go on until they end, or timeout_s is over.
        """
        self._hub.is_draining = True
        self._leave_port()
        if self._grpc is not None:
            await self._grpc.drain()
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        part = self._hub.default.part
        while self._hub.connections and loop.time() < end:
            if part is not None and part.is_over:
                return  # what could end could not be answered
            for connection in list(self._hub.connections):
                connection.drain()
            await asyncio.sleep(_DRAIN_STEP_S)

    async def drain_transactions(self, timeout_s: float, check: Callable[[], object]) -> None:
        """Wait until nothing runs and no transaction is open, as the part lets nothing begin.

        Connections stay, but for those whose transaction, or statement, is not over after
        timeout_s: they are told 40001, and rolled back. check() is called meanwhile, and raises
        what ends the wait. OperationalError 57014: what runs does not end, though it is cancelled.
        """
        part, workers = self._hub.default.part, self._hub.workers
        assert part is not None
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while busy := [each for each in self._hub.connections if not each.is_quiet]:
            check()
            if loop.time() >= end:
                for connection in busy:
                    connection.refuse(part.transaction_error())
                break
            await asyncio.sleep(_QUIET_STEP_S)
        end = loop.time() + _CANCELLED_S
        while (
            workers.jobs
            or workers.is_waiting
            or not all(each.is_quiet for each in self._hub.connections)
        ):
            check()
            if loop.time() >= end:
                raise OperationalError(
                    f"statements do not end {_CANCELLED_S:g} s after they were cancelled",
                    sqlstate="57014",
                )
            await asyncio.sleep(_QUIET_STEP_S)

    async def close(self) -> None:
        """Close all connections, whatever they do, and end the workers."""
        self._hub.is_draining = True
        self._leave_port()
        for connection in list(self._hub.connections):
            connection.refuse(self._hub.shutting_down())
        if self._grpc is not None:
            await self._grpc.close()
        await self._hub.wait_idle()
        self._hub.close_exports()
        self._watch.close()
        if self._health is not None:
            await self._health.close()
        if self._port is None:
            self._common.close()


class _OneHub:
    """The servers behind the port of one; see herdpy/server/grpc/routing.py."""

    def __init__(self, hub: Hub, new_connection: Callable[[], ServerConnection]) -> None:
        self._hub = hub
        self._new_connection = new_connection

    def let_in_now(self) -> Sequence[Hub]:
        return (self._hub,)

    def find(self, tablespace: str) -> Hub | None:
        return self._hub

    def refusal(self) -> Error | None:
        return None

    def closed_error(self) -> Error:
        return self._hub.shutting_down()

    def grpc_connection(self, hub: Hub) -> ServerConnection:
        return self._new_connection()
