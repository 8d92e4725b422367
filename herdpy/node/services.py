"""NodeServices: the servers of a node, one for each copy that is open, behind one port.

On the node's loop.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from importlib.metadata import version

from bookie.runtime.interfaces import Clock
from bookie.runtime.os_log import LineWriter
from herdpy.cluster.database_copy import DatabaseCopy
from herdpy.cluster.observability.figures import NodeFigures
from herdpy.cluster.served_part import ServedPart
from herdpy.cluster.tenure import Tenure
from herdpy.config import ServerConfig
from herdpy.errors import Error, OperationalError
from herdpy.server.common import Common
from herdpy.server.listening import listening
from herdpy.server.login.audit import Audit
from herdpy.server.login.gate import check_addresses
from herdpy.server.operations.health import HealthServer
from herdpy.server.server import Server
from herdpy.server.shared_port import SharedPort

_log = logging.getLogger(__name__)
_LISTEN_AGAIN_S = 0.5


class NodeServices:
    """What the servers of a node share: settings, logs, the port; new() makes one's service."""

    def __init__(
        self,
        config: ServerConfig,
        clock: Clock,
        *,
        lines: Sequence[LineWriter] = (),
        write_audit: Callable[[bytes], None] | None = None,
    ) -> None:
        """lines: what writes the process's logs; write_audit: see server/login/audit.py.

        OperationalError F0000: a file of TLS cannot be used.
        """
        self.config = config
        self.write_audit = write_audit
        self.lines = lines
        self.figures = NodeFigures()
        self.health = HealthServer(self.figures)
        """As long as the node, whichever server there is."""
        self.drain_s = 0.0
        """What open transactions get when a server stops: none where the copy has to be closed."""
        self.servers: dict[Server, None] = {}
        self._common = Common(config, clock)
        self._audit = Audit(clock, write_audit)
        self.port = SharedPort(self._common, self._audit)

    def new(self, tablespace: str, copy: DatabaseCopy) -> "NodeService":
        self.port.carry(tablespace)
        return NodeService(self, tablespace, copy)

    async def listen(self) -> None:
        """Listen where clients are to come, until close(): the addresses are this node's alone.

        OperationalError: one is taken, or F0000: others would reach it in clear.
        """
        config, loop = self.config, asyncio.get_running_loop()
        with listening("node", config.host, config.port, "--port, server.port"):
            found = await loop.getaddrinfo(config.host, config.port)
            # Whether there is a user is each server's own question, and may change.
            has_tls, addresses = self._common.tls is not None, [str(each[4][0]) for each in found]
            check_addresses(addresses, config, has_tls=has_tls, has_user=True)
            await self.port.open(config.host, config.port)
        if config.grpc_port >= 0:
            option = "--grpc-port, server.grpc_port"
            with listening("node", config.host, config.grpc_port, option):
                await self.port.open_grpc(config.host, config.grpc_port)

    async def start_health(self) -> None:
        """Serve the pages of health.py, where the settings say so; OperationalError."""
        host, port = self.config.http_host, self.config.http_port
        if port >= 0:
            with listening("node", host, port, "--http-port"):
                await self.health.start(host, port)

    async def close(self) -> None:
        """End the ports and the workers, behind the servers."""
        await self.port.close()
        self._common.close()

    def reload(self, config: ServerConfig) -> list[str]:
        """Take up certificates that were read again, and settings; return those it cannot.

        OperationalError: a file of TLS cannot be used, and all is as before.
        """
        if self._common.reload_tls():
            self._audit.record("certificates_reloaded")
        self.config, left = self.config.reloaded(config)
        self._common.reload(self.config)
        for server in self.servers:
            server.take_up(self.config)
        return left


class NodeService:
    """The server of a node, while its copy is open (herdpy.cluster.member.Service)."""

    def __init__(self, shared: NodeServices, tablespace: str, copy: DatabaseCopy) -> None:
        self._shared = shared
        self._tablespace = tablespace
        self._copy = copy
        self._server: Server | None = None
        self._listening: asyncio.Task[None] | None = None
        self._trying = asyncio.Lock()

    async def begin(self, part: ServedPart) -> None:
        shared, database = self._shared, self._copy.database
        if database is None:
            raise OperationalError("the copy was closed meanwhile", sqlstate="57P01")
        server = self._server = Server(
            database,
            name=f"herdpy {version('herdpy-db')}",
            config=shared.config,
            write_audit=shared.write_audit,
            lines=shared.lines,
            part=part,
            tablespace=self._tablespace,
            port=shared.port,
        )
        shared.servers[server] = None
        server.show_at(shared.health)
        self._listening = asyncio.get_running_loop().create_task(self._try_to_listen(server))

    async def serve(self, tenure: Tenure) -> None:
        server = self._server
        assert server is not None
        await self._listen(server)

    async def drain(self, timeout_s: float, check: Callable[[], object]) -> None:
        server = self._server
        assert server is not None
        await server.drain_transactions(timeout_s, check)

    async def _try_to_listen(self, server: Server) -> None:
        """Let clients in as soon as it may: users, without whom it may not, come by the log."""
        is_told = False
        while True:
            try:
                await self._listen(server)
                return
            except Error as error:
                if not is_told:
                    _log.warning("node: no client is let in yet: %s", error)
                is_told = True
            await asyncio.sleep(_LISTEN_AGAIN_S)

    async def _listen(self, server: Server) -> None:
        """Let clients in; nothing to do where they are."""
        config = self._shared.config
        async with self._trying:
            if not server.is_listening:
                await server.start(config.host, config.port)

    def close(self) -> None:
        self._shared.port.forget(self._tablespace)

    async def stop(self) -> None:
        server, self._server = self._server, None
        trying, self._listening = self._listening, None
        if trying is not None:
            trying.cancel()
            await asyncio.wait([trying])
        if server is not None:
            del self._shared.servers[server]
            await server.drain(self._shared.drain_s)
            server.hide_at(self._shared.health)
            await server.close()
