"""GrpcRouter: which server a gRPC call goes to: of a port's servers each has its own tablespaces.

A call says so in its metadata (`herdpy-tablespace`), or by the token that it shows. One that does
neither begins at the server that was let in first; its connection goes to another with Hello, as
those of sockets do. What is not let in now is told 57P03, and UNAVAILABLE. On the servers' loop.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import grpc

from herdpy.engine.state.error_messages import system_error
from herdpy.errors import Error, InternalError
from herdpy.server.grpc.callers import bearer_of, named_tablespace, peer_of
from herdpy.server.grpc.errors import abort
from herdpy.server.grpc.service import METHODS, GrpcService
from herdpy.server.grpc.standard import GONE

if TYPE_CHECKING:
    from herdpy.server.connection import ServerConnection
    from herdpy.server.hub import Hub

_log = logging.getLogger(__name__)
SERVICE = "herdpy.v1.Herdpy"


class Hubs(Protocol):
    """The servers behind a port."""

    def let_in_now(self) -> "Sequence[Hub]":
        """Return those that clients are let in to, the first of them first."""
        ...

    def find(self, tablespace: str) -> "Hub | None":
        """Return that of a tablespace; None: it is not let in, or none is of the name."""
        ...

    def refusal(self) -> Error | None:
        """Return what a client is told whose tablespace find() has not found, if it is told."""
        ...

    def closed_error(self) -> Error:
        """Return what a client is told while none is let in."""
        ...

    def grpc_connection(self, hub: "Hub") -> "ServerConnection":
        """Return a new connection of a server, which a call stands for."""
        ...


class GrpcRouter:
    def __init__(self, hubs: Hubs) -> None:
        self._hubs = hubs
        self._services: dict[Hub, GrpcService] = {}

    def handlers(self) -> Any:
        """Return what a grpc.aio server is given."""
        methods = {name: self._handler(name) for name in METHODS}
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _handler(self, name: str) -> Any:
        """Return the handler of a method; on the wire any kind of call is two streams."""

        async def run(_: object, context: Any) -> None:
            try:
                await self._service_of(context).run(name, context)
            except GONE:
                raise asyncio.CancelledError from None
            except Error as error:
                await abort(context, error)
            except Exception as error:  # noqa: BLE001 - a bug of ours, told as one
                refused = system_error(error)
                if refused is not None:
                    await abort(context, refused)
                _log.exception("a call of %s: a bug", peer_of(context))
                await abort(context, InternalError(f"the server failed: {error!r}"))

        return grpc.stream_stream_rpc_method_handler(run, response_serializer=_bytes_of)

    def _service_of(self, context: Any) -> GrpcService:
        """Return the calls of the server that a call is for; OperationalError 57P03."""
        services = self._services_now()
        if not services:
            raise self._hubs.closed_error()
        first = next(iter(services.values()))
        if len(services) == 1:
            return self._named(context, first)
        token = bearer_of(context)
        if token is not None:
            return next((each for each in services.values() if each.has_given(token)), first)
        if named_tablespace(context, ""):
            return self._named(context, first)
        # It names its tablespace in a message, which comes later.
        return next((each for each in services.values() if not each.asks_for_users), first)

    def _named(self, context: Any, otherwise: GrpcService) -> GrpcService:
        name = named_tablespace(context, "")
        hub = self._hubs.find(name) if name else None
        refusal = self._hubs.refusal() if name and hub is None else None
        if refusal is not None:
            raise refusal
        return otherwise if hub is None else self._services[hub]

    def _services_now(self) -> "dict[Hub, GrpcService]":
        hubs, services = self._hubs.let_in_now(), self._services
        if list(services) != list(hubs):
            self._services = {hub: services.get(hub) or self._new(hub) for hub in hubs}
        return self._services

    def _new(self, hub: "Hub") -> GrpcService:
        return GrpcService(hub, lambda: self._hubs.grpc_connection(hub))


def _bytes_of(reply: Any) -> bytes:
    return reply.SerializeToString()
