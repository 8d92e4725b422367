"""GrpcServer: the port for clients of any language: the service, health and reflection.

Health says SERVING until the server drains, or can write nothing any more. TLS is that of the frame
protocol's port; certificates that are read again count from the next handshake on. On the server's
loop.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import grpc
from grpc_health.v1 import health_pb2

from herdpy.config import ServerConfig
from herdpy.server.grpc.connections import ConnectionWatch
from herdpy.server.grpc.routing import SERVICE, GrpcRouter, Hubs
from herdpy.server.grpc.service import FIRST_MESSAGES
from herdpy.server.grpc.standard import add_standard_services

if TYPE_CHECKING:
    from herdpy.server.common import Common
    from herdpy.server.login.audit import Audit
    from herdpy.server.login.tls import ServerTls

_CALLS_BESIDE = 100
"""Calls that have no connection of the server's: of health and reflection."""
_GRACE_S = 1.0
"""How long the last answers may take to go."""
_PING_INTERVAL_MS = 10_000
"""Between the pings of a client; grpc's own would be five minutes."""
_PING_STRIKES_MAX = 2
"""Pings before that; 0: no end of them."""


class GrpcServer:
    def __init__(self, hubs: Hubs, common: "Common", audit: "Audit") -> None:
        common.shares_of(FIRST_MESSAGES)  # which are shown from the start
        self._hubs = hubs
        self._common = common
        self._audit = audit
        self._watch: ConnectionWatch | None = None
        config = common.config
        # Unauthenticated are those that log in, and those whose first message has not come.
        calls_max = config.connections_max + 2 * config.logins_max + _CALLS_BESIDE
        self._server: Any = grpc.aio.server(
            options=_options(config), maximum_concurrent_rpcs=calls_max
        )
        self._server.add_generic_rpc_handlers((GrpcRouter(hubs).handlers(),))
        self._health = add_standard_services(
            self._server, (SERVICE,), _CALLS_BESIDE, lambda: _are_ready(hubs)
        )

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port. OSError when it is taken."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound: int = self._add_port(address)
        except RuntimeError as error:
            raise OSError(str(error)) from error
        await self._server.start()
        self._watch = ConnectionWatch(self._common, self._audit, bound)
        await self._health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
        return bound

    def _add_port(self, address: str) -> int:
        first = self._common.tls
        if first is None:
            return self._server.add_insecure_port(address)
        credentials = cast(Any, grpc).dynamic_ssl_server_credentials(
            _certificates(first),
            self._certificates,
            require_client_authentication=first.client_authority is not None,
        )
        return self._server.add_secure_port(address, credentials)

    def _certificates(self) -> Any:
        """Return what counts now, at the begin of each handshake; in a thread of grpc's."""
        tls = self._common.tls
        assert tls is not None
        return _certificates(tls)

    async def drain(self) -> None:
        """Tell those who ask for health; calls go on."""
        with suppress(TimeoutError):  # a watcher that takes nothing holds it up
            async with asyncio.timeout(_GRACE_S):
                await self._health.enter_graceful_shutdown()

    async def close(self) -> None:
        """End the port and all calls, which have been told to end."""
        server, self._server = self._server, None
        if self._watch is not None:
            await self._watch.close()
            self._watch = None
        if server is not None:
            await server.stop(_GRACE_S)


def _are_ready(hubs: Hubs) -> bool:
    """Tell whether there are servers, and each can serve statements, as /readyz does."""
    found = hubs.let_in_now()
    return bool(found) and all(hub.reason_not_ready() is None for hub in found)


def _certificates(tls: "ServerTls") -> Any:
    return cast(Any, grpc).ssl_server_certificate_configuration(
        [tls.key_and_chain], root_certificates=tls.client_authority
    )


def _options(config: ServerConfig) -> tuple[tuple[str, int], ...]:
    """Return what grpc is told; its names are those of grpc_types.h."""
    return (
        ("grpc.so_reuseport", 0),  # a port that is taken is an error
        ("grpc.max_receive_message_length", 4 * 1024 * 1024),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", 1000),
        ("grpc.max_allowed_incoming_connections", config.connections_max + config.logins_max),
        # From the first byte to the end of TLS and of HTTP/2's preface.
        ("grpc.server_handshake_timeout_ms", max(1, round(1000 * config.login_timeout_s))),
        # Without a call; clients connect again by themselves.
        ("grpc.max_connection_idle_ms", 60_000),
        # A client that is gone without a word is found so; one that pings more often is sent away.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _PING_INTERVAL_MS),
        ("grpc.http2.max_ping_strikes", _PING_STRIKES_MAX),
    )
