"""Handshake: TLS begins on a connection that was accepted in clear, on any kind of loop."""

import asyncio
from typing import Any

from herdpy.server.login.tls import ServerTls

LINGER_S = 5.0
"""How long the last bytes may take to go."""


class Handshake:
    """One connection's; run() it once. On its loop."""

    def __init__(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.BaseProtocol,
        tls: ServerTls,
        timeout_s: float,
    ) -> None:
        """protocol: of the connection, which gives `early` what it receives meanwhile."""
        self._transport = transport
        self._protocol = protocol
        self._tls = tls
        self._timeout_s = timeout_s
        self._task: asyncio.Task[asyncio.Transport | None] | None = None
        self.early = bytearray()
        """What came before it began, or with its end."""

    async def run(self) -> asyncio.Transport | None:
        """Return the transport by TLS; None, any error: there is none.

        The handshake need not end by itself: uvloop's does not, nor does its time-out count, when
        the connection was lost before it began. So who takes note of that calls give_up().
        """
        loop = asyncio.get_running_loop()
        self._task = task = loop.create_task(self._start())
        try:
            await asyncio.sleep(0)  # from here on the handshake gets what arrives
            if self.early and not task.done():  # uvloop reads before it can be told not to
                loop.call_soon(_feed, self._transport.get_protocol(), self.take_early())
            await asyncio.wait([task])
            return None if task.cancelled() else task.result()
        finally:
            self._task = None
            task.cancel()

    async def _start(self) -> asyncio.Transport | None:
        if self._transport.is_closing():
            raise ConnectionResetError("the connection was lost before TLS began")
        return await asyncio.get_running_loop().start_tls(
            self._transport,
            self._protocol,
            self._tls.context,
            server_side=True,
            ssl_handshake_timeout=self._timeout_s,
            ssl_shutdown_timeout=LINGER_S,
        )

    def take_early(self) -> bytes:
        early, self.early = bytes(self.early), bytearray()
        return early

    def give_up(self) -> None:
        """End it where it is under way; one that has failed keeps its reason."""
        if self._task is not None:
            self._task.cancel()


def _feed(protocol: Any, data: bytes) -> None:
    """Give a protocol with buffers of its own what arrived before it was there."""
    while data:
        buffer = protocol.get_buffer(len(data))
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        protocol.buffer_updated(count)
        data = data[count:]
