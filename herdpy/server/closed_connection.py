"""ClosedConnection: a client of a port behind which no server lets clients in, and what it is told.

It has a place among those who have not said who they are, and their time. What it is told comes
with its first bytes, by TLS where the port speaks it. On the port's loop.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from herdpy.errors import Error
from herdpy.proto.errors import to_failed
from herdpy.proto.messages import encode_frame
from herdpy.server.connection import peer_address
from herdpy.server.login.gate import gave_way_unauthenticated
from herdpy.server.login.handshake import LINGER_S, Handshake
from herdpy.server.login.throttle import origin_of

if TYPE_CHECKING:
    from herdpy.server.shared_port import SharedPort

_log = logging.getLogger(__name__)


class ClosedConnection(asyncio.Protocol):
    def __init__(self, port: "SharedPort") -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._peer = ""
        self._transport: asyncio.Transport | None = None
        self._handshake: Handshake | None = None
        """While TLS begins."""
        self._securing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_told = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        common = self._port.common
        self._transport = cast(asyncio.Transport, transport)
        self._peer = peer_address(transport.get_extra_info("peername"))
        self._port.closed_connections[self] = None
        gone = common.unauthenticated.add(self, origin_of(self._peer))
        if gone is not None:
            gone.give_way(gave_way_unauthenticated(common.config))
        timeout_s = common.config.login_timeout_s
        self._timer = self._loop.call_later(timeout_s, self.abort)
        if common.tls is not None:
            self._transport.pause_reading()
            self._handshake = Handshake(self._transport, self, common.tls, timeout_s)
            self._securing = self._loop.create_task(self._secure(self._handshake))

    async def _secure(self, handshake: Handshake) -> None:
        """Begin TLS; a client that does not is gone."""
        try:
            secured = await handshake.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection ends
            _log.debug("a connection of %s: no TLS: %s", self._peer, error)
            secured = None
        self._handshake = None
        if secured is None:
            self.abort()
            return
        self._transport = secured
        if handshake.early:
            self.data_received(handshake.take_early())

    def data_received(self, data: bytes) -> None:
        if self._handshake is not None:
            self._handshake.early += data
        elif not self._is_told:
            self._is_told = True
            transport = self._transport
            assert transport is not None
            error = self._port.closed_error()
            self._port.audit.record("refused", peer=self._peer, reason=error.message)
            transport.write(encode_frame(to_failed(0, error, in_transaction=False)))
            transport.close()
            self._stop_timer()
            # A peer that takes nothing would keep it open.
            self._timer = self._loop.call_later(LINGER_S, self.abort)

    def give_way(self, error: Error) -> None:
        """End it for newer ones, without a word."""
        self._port.audit.record("refused", peer=self._peer, reason=error.message)
        self.abort()

    def abort(self) -> None:
        """End it at once; also when TLS does not begin. Repeatable."""
        if self._transport is not None:
            self._transport.abort()
        self.connection_lost(None)  # not every kind of loop tells that during a handshake

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._handshake is not None:
            self._handshake.give_up()
        self._port.common.unauthenticated.remove(self)
        self._port.closed_connections.pop(self, None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def end(self) -> None:
        """End it, and wait until its handshake has ended."""
        self.abort()
        if self._securing is not None:
            await asyncio.wait([self._securing])
