"""BookieServer: listens, and gives every connection its place among the others.

`await server.start()` returns the port; `await server.close()` stops listening, lets answers that
are under way go out for at most close_timeout_s, and returns when every connection has ended. The
service is not closed: its owner does that. Everything happens on one asyncio loop.
"""

import asyncio
from collections.abc import Callable

from bookie.config import BookieConfig
from bookie.runtime.interfaces import Clock, Tls
from bookie.runtime.os_executors import Executor
from bookie.server.interfaces import BookieService
from bookie.server.metrics import ServerMetrics
from bookie.server.wire.client_access import ClientAccess
from bookie.server.wire.connection import Connection
from bookie.server.wire.dispatch_v2 import DispatcherV2
from bookie.server.wire.dispatch_v3 import DispatcherV3
from bookie.server.wire.hub import Hub

_GOODBYE_S = 0.1
"""For the last bytes of a connection, however long requests took."""


class BookieServer:
    """See the module. tls: what START_TLS turns on; None: it is answered with EBADREQ.

    executor: for the few answers that take long to encode; None: the loop's own. access: what
    clients may do by their certificates, which `tls` then asks for; None: everything.
    """

    def __init__(
        self,
        service: BookieService,
        config: BookieConfig,
        clock: Clock,
        *,
        tls: Tls | None = None,
        metrics: ServerMetrics | None = None,
        executor: Executor | None = None,
        access: Callable[[], ClientAccess] | None = None,
    ) -> None:
        self._service = service
        self._config = config
        self._clock = clock
        self._tls = tls
        self._executor = executor
        self._access = access
        self.metrics = metrics if metrics is not None else ServerMetrics()
        self._hub: Hub | None = None
        self._server: asyncio.AbstractServer | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The port it listens on; 0 before start()."""
        return self._port

    @property
    def connection_count(self) -> int:
        return len(self._hub.connections) if self._hub is not None else 0

    @property
    def request_count(self) -> int:
        """Requests under way, long polls included."""
        return self._hub.requests if self._hub is not None else 0

    async def start(self) -> int:
        """Listen; return the port. OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        config = self._config
        hub = Hub(
            self._service,
            config,
            self._clock,
            loop,
            self.metrics,
            self._tls,
            self._executor,
            self._access,
        )
        self._hub = hub
        v3, v2 = DispatcherV3(hub), DispatcherV2(hub)
        server = await loop.create_server(lambda: Connection(hub, v3, v2), config.host, config.port)
        self._server = server
        self._port = int(server.sockets[0].getsockname()[1])
        gauge = self.metrics.gauge
        gauge("bookkeeper_server_CONNECTIONS", "open connections", lambda: len(hub.connections))
        gauge("bookkeeper_server_REQUESTS", "requests under way", lambda: hub.requests)
        gauge("bookkeeper_server_RECEIVE_BYTES", "in messages that have not come whole",
              lambda: hub.receive_bytes)  # fmt: skip
        gauge("bookkeeper_server_RESPONSE_BYTES", "in answers that peers do not take",
              lambda: hub.response_bytes)  # fmt: skip
        return self._port

    def access_changed(self) -> None:
        """Let the connections that are there have the rights that the rules give now."""
        if self._hub is not None:
            for connection in list(self._hub.connections):
                connection.take_grant()

    async def close(self) -> None:
        """See the module; idempotent."""
        server, hub = self._server, self._hub
        if server is None or hub is None:
            return
        self._server = None
        hub.is_closing = True
        server.close()
        for connection in list(hub.connections):
            connection.forget_polls()
        deadline = hub.loop.time() + self._config.close_timeout_s
        if hub.requests:
            try:
                async with asyncio.timeout_at(deadline):
                    await hub.idle.wait()
            except TimeoutError:
                pass  # what is left is cut off below
        connections = list(hub.connections)
        for connection in connections:
            connection.close()
        ending = [hub.loop.create_task(connection.wait_lost()) for connection in connections]
        if ending:
            left_s = max(_GOODBYE_S, deadline - hub.loop.time())
            _, pending = await asyncio.wait(ending, timeout=left_s)
            if pending:
                for connection in list(hub.connections):
                    connection.abort()
            await asyncio.gather(*ending)
        await server.wait_closed()
