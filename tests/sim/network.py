"""Network: connections in memory for the simulated loop, with the ills of a real network.

The model is TCP: the bytes of one direction of one connection arrive in order, once, in pieces of
any size, or not at all from some byte on; different connections know nothing of each other. For
each ordered pair of hosts there is a Link: how long bytes take, whether they get through. A link
that is blocked holds what is sent (the sender notices nothing); when it is opened again the bytes
arrive late, as TCP's retransmission has it. cut() breaks a connection at any byte: some of what
was under way still arrives, then each side hears of it, at its own time, or never does (a peer
that went away behind a firewall).

A host is the name of a node, whatever its life. Flow control is asyncio's: the sender's protocol
gets pause_writing() above the high-water mark of bytes that have not arrived yet.
"""

import asyncio
import random
from collections.abc import Callable
from errno import EADDRINUSE, ETIMEDOUT
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.loop import Node, SimulatedLoop

_HIGH_WATER_BYTES = 65_536
_ACCEPTED_AGAIN_S = 0.000_1
_FIRST_FREE_PORT = 40_000


class Link:
    """One direction between two hosts."""

    __slots__ = ("delay_s", "is_blocked", "jitter_s", "refusal_count")

    def __init__(self, delay_s: float, jitter_s: float) -> None:
        self.delay_s = delay_s
        self.jitter_s = jitter_s
        self.is_blocked = False
        self.refusal_count = 0
        """So many new connections are refused."""


class _Socket:
    """What Server.sockets hands out."""

    __slots__ = ("address",)

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    def getsockname(self) -> tuple[str, int]:
        return self.address


class SimulatedServer(asyncio.AbstractServer):
    """A listening port of one life of a node."""

    def __init__(
        self,
        network: "Network",
        node: "Node",
        factory: Callable[[], asyncio.BaseProtocol],
        address: tuple[str, int],
        *,
        lets_in: bool,
    ) -> None:
        """lets_in: else it does so from start_serving() on."""
        self.network = network
        self.node = node
        self.lets_in = lets_in
        self.factory = factory
        self.address = address
        self.sockets: tuple[Any, ...] = (_Socket(address),)

    def close(self) -> None:
        self.die()

    def die(self) -> None:
        self.sockets = ()
        self.node.servers.pop(id(self), None)
        if self.network.servers.get(self.address) is self:
            del self.network.servers[self.address]

    def is_serving(self) -> bool:
        return self.lets_in and bool(self.sockets)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.network.loop

    async def start_serving(self) -> None:
        self.lets_in = True

    async def serve_forever(self) -> None:
        await self.network.loop.create_future()

    async def wait_closed(self) -> None:
        """Nothing to wait for: connections are independent of the port, as on Linux."""


class SimulatedTransport(asyncio.Transport):
    """One end of a connection. `peer` is the other end."""

    def __init__(
        self,
        network: "Network",
        node: "Node",
        protocol: asyncio.BaseProtocol,
        local: tuple[str, int],
        remote: tuple[str, int],
        *,
        is_accepted: bool = False,
    ) -> None:
        super().__init__()
        self.is_accepted = is_accepted
        self.network = network
        self.node = node
        self.local = local
        self.remote = remote
        self.peer: SimulatedTransport | None = None
        self.number = network.next_number()
        self.link = network.link(local[0], remote[0])
        self.bytes_sent = 0
        self.set_protocol(protocol)
        self._under_way = bytearray()  # written here, not yet given to the peer
        self._arrives_s = 0.0  # not before what was sent before
        self._is_delivery_planned = False
        self._is_end_sent = False  # close() or write_eof(): the end follows the last byte
        self._is_closing = False
        self._is_lost = False  # connection_lost() was, or will be, called
        self._is_dead = False  # the peer is gone
        self._is_reading = True
        self._is_writing_paused = False
        self._high = _HIGH_WATER_BYTES
        self._low = _HIGH_WATER_BYTES // 4
        node.transports[self.number] = self

    def __repr__(self) -> str:
        return f"<{self.local[0]}:{self.local[1]} → {self.remote[0]}:{self.remote[1]}>"

    # asyncio.Transport.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self.remote
        if name == "sockname":
            return self.local
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol: Any = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            if self.peer is not None:
                self.peer._plan()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return len(self._under_way)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._is_end_sent = True
        self._plan()

    def write(self, data: Any) -> None:
        if self._is_closing or self._is_dead or not data:
            return
        self._under_way += data
        self.bytes_sent += len(data)
        if self.network.on_write is not None:
            self.network.on_write(self, bytes(data))
            if self._is_dead:
                return  # the listener cut the world here
        if not self._is_delivery_planned:
            self._plan()
        if len(self._under_way) > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self._is_closing or self._is_dead:
            return
        self._is_closing = self._is_end_sent = True
        self._plan()
        if not self._under_way:
            self._lose(None)

    def abort(self) -> None:
        if self._is_dead or self._is_lost:
            return
        self._is_closing = True
        self._under_way.clear()
        self._lose(None)
        self._tell_peer(ConnectionResetError("Connection reset by peer"))

    # The way of the bytes.

    def _plan(self) -> None:
        """Let what is under way arrive after the link's delay, behind what was sent before."""
        peer = self.peer
        if self._is_delivery_planned or peer is None or not peer._is_reading:
            return
        link = self.link
        if link.is_blocked:
            return  # Network.open() comes back to it
        loop = self.network.loop
        if peer._is_dead:
            if self.network.is_up(self.remote[0]) and not self._is_lost:  # it knows nothing of us
                error = ConnectionResetError("Connection reset by peer")
                loop.call_later(2 * link.delay_s, self._lose, error, context=self.node.context)
            return
        arrives_s = loop.time() + link.delay_s + self.network.draw() * link.jitter_s
        self._arrives_s = max(arrives_s, self._arrives_s)
        self._is_delivery_planned = True
        loop.call_at(self._arrives_s, self._deliver, context=peer.node.context)

    def _deliver(self) -> None:
        """Give bytes to the peer; runs as code of the peer's node."""
        self._is_delivery_planned = False
        peer = self.peer
        assert peer is not None
        if peer._is_lost or peer._is_dead or not peer._is_reading or self.link.is_blocked:
            return
        if self._under_way:
            count = len(self._under_way)
            if count > 1 and self.network.draw() < self.network.split_chance:
                count = 1 + int(self.network.draw() * (count - 1))
            piece = bytes(self._under_way[:count])
            del self._under_way[:count]
            self.network.loop.note(1, peer.number, piece)
            if self._is_writing_paused and len(self._under_way) <= self._low:
                self._is_writing_paused = False
                if self.node.is_alive and not self._is_lost:
                    self.node.run(self.network.loop.call_soon, self._resume_writing)
            if peer._is_buffered:
                peer._fill_buffers(piece)
            else:
                peer.protocol.data_received(piece)
        if self._under_way:
            self._plan()
        elif self._is_end_sent:
            if self._is_closing and not self._is_lost and self.node.is_alive:
                self.node.run(self._lose, None)
            peer._end_received()

    def _resume_writing(self) -> None:
        if not self._is_lost:
            self.protocol.resume_writing()

    def _fill_buffers(self, piece: bytes) -> None:
        while piece and not self._is_closing:
            buffer = memoryview(self.protocol.get_buffer(len(piece))).cast("B")
            count = min(len(buffer), len(piece))
            buffer[:count] = piece[:count]
            buffer.release()
            self.protocol.buffer_updated(count)
            piece = piece[count:]

    def _end_received(self) -> None:
        if self._is_lost or self._is_dead:
            return
        if not self._is_closing:
            keep_open = self.protocol.eof_received()
            if not keep_open:
                self.close()

    def _lose(self, error: Exception | None) -> None:
        """End this side: connection_lost() follows soon, once."""
        if self._is_lost or self._is_dead:
            return
        self._is_lost = self._is_closing = True
        loop = self.network.loop
        self.network.forget(self)
        self.node.transports.pop(self.number, None)
        loop.call_soon(self._call_lost, error, context=self.node.context)

    def _call_lost(self, error: Exception | None) -> None:
        self.protocol.connection_lost(error)

    def _tell_peer(self, error: Exception | None) -> None:
        """Let the other side hear that this one is gone, when the news has come through."""
        peer = self.peer
        if peer is None or peer._is_lost or peer._is_dead:
            return
        link = self.link
        loop = self.network.loop
        if link.is_blocked:
            self.network.hold_news(peer, error)
            return
        delay_s = link.delay_s + self.network.draw() * link.jitter_s
        when_s = max(loop.time() + delay_s, self._arrives_s)
        loop.call_at(when_s, peer._lose, error, context=peer.node.context)

    def die(self) -> None:
        """Be the end of a process that is no more: the peer gets a reset, late, or silence."""
        if self._is_dead:
            return
        self._is_dead = self._is_closing = True
        self.node.transports.pop(self.number, None)
        self.network.forget(self)
        keep = int(self.network.draw() * (len(self._under_way) + 1))
        del self._under_way[keep:]
        if self.network.draw() >= self.network.silent_death_chance and not self._is_lost:
            self._tell_peer(ConnectionResetError("Connection reset by peer"))


class Network:
    """All hosts and what lies between them; see the module."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self.loop = loop
        self.draw = random.Random(loop.rng.getrandbits(64)).random
        self.delay_s = 0.000_2
        self.jitter_s = 0.000_3
        self.split_chance = 0.05
        """How often what arrives comes in two pieces or more."""
        self.silent_death_chance = 0.1
        """How often a crash is not noticed by the peer (the machine went away, not the process)."""
        self.on_write: Callable[[SimulatedTransport, bytes], object] | None = None
        """Hears of everything that is written, before anything of it arrives."""
        self.servers: dict[tuple[str, int], SimulatedServer] = {}
        self.names: dict[str, str] = {}
        """Other names of hosts; a connection goes where its name leads when it is begun."""
        self._links: dict[tuple[str, str], Link] = {}
        self._held_news: list[tuple[SimulatedTransport, Exception | None]] = []
        self._number = 0
        self._port = _FIRST_FREE_PORT
        self.transports: dict[int, SimulatedTransport] = {}

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def link(self, source: str, target: str) -> Link:
        """Return the way from one host to another."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(self.delay_s, self.jitter_s)
        return link

    def block(self, source: str, target: str) -> None:
        """Let nothing through in this direction."""
        self.link(source, target).is_blocked = True

    def open(self, source: str, target: str) -> None:
        """Let bytes through again; what was held arrives now."""
        link = self.link(source, target)
        if not link.is_blocked:
            return
        link.is_blocked = False
        for transport in list(self.transports.values()):
            if transport.link is link and (transport._under_way or transport._is_end_sent):
                transport._plan()
        held, self._held_news = self._held_news, []
        for peer, error in held:
            if peer.peer is not None:
                peer.peer._tell_peer(error)

    def open_all(self) -> None:
        """Take back every block, refusal and slowness."""
        for (source, target), link in list(self._links.items()):
            self.open(source, target)
            link.refusal_count = 0
            link.delay_s, link.jitter_s = self.delay_s, self.jitter_s

    def hold_news(self, peer: SimulatedTransport, error: Exception | None) -> None:
        """Keep the news of an end until the link is open."""
        self._held_news.append((peer, error))

    def connections(self, source: str, target: str) -> list[SimulatedTransport]:
        """Return the ends at `source` of the open connections with target."""
        return [
            transport
            for transport in self.transports.values()
            if transport.local[0] == source and transport.remote[0] == target
        ]

    def cut(self, transport: SimulatedTransport, *, is_silent: bool = False) -> None:
        """Break a connection, both directions at any byte; silent: it hangs, untold."""
        peer = transport.peer
        for end in (transport, peer):
            if end is None:
                continue
            keep = int(self.draw() * (len(end._under_way) + 1))
            del end._under_way[keep:]
            if end._under_way and not end._is_delivery_planned:
                end._plan()
        for end in (transport, peer):
            if end is None or end._is_lost or end._is_dead:
                continue
            if is_silent:
                end.link = _DEAD_LINK
                continue
            last_s = end._arrives_s if end.peer is None else end.peer._arrives_s
            delay_s = max(last_s - self.loop.time(), 0.0) + self.draw() * 2 * self.jitter_s
            error = ConnectionResetError("Connection reset by peer")
            self.loop.call_later(delay_s, end._lose, error, context=end.node.context)

    def probe(self) -> None:
        """Be TCP's keep-alive: who has a peer that is no more, or is cut off for good, hears so."""
        for end in list(self.transports.values()):
            peer = end.peer
            is_cut = end.link is _DEAD_LINK
            if end._is_lost or end._is_dead or (end.link.is_blocked and not is_cut):
                continue
            if is_cut or (peer is not None and peer._is_dead):
                end.node.run(end._lose, TimeoutError(ETIMEDOUT, "Connection timed out"))

    def is_up(self, host: str) -> bool:
        """Whether something listens there."""
        return any(address[0] == host for address in self.servers)

    def repeat(self, transport: SimulatedTransport, data: bytes) -> None:
        """Send something again, as a client that tries again would."""
        if transport.is_closing() or transport.number not in self.transports:
            return
        transport._under_way += data
        transport._plan()

    def forget(self, transport: SimulatedTransport) -> None:
        self.transports.pop(transport.number, None)

    def close(self) -> None:
        """Forget everything; the loop is closed."""
        self.servers.clear()
        self.transports.clear()
        self._held_news.clear()

    # What the loop hands on.

    def listen(
        self,
        node: "Node",
        factory: Callable[[], asyncio.BaseProtocol],
        port: int,
        *,
        lets_in: bool = True,
    ) -> SimulatedServer:
        if port == 0:
            self._port += 1
            port = self._port
        address = (node.name, port)
        if address in self.servers:
            raise OSError(EADDRINUSE, f"address in use: {address}")
        server = SimulatedServer(self, node, factory, address, lets_in=lets_in)
        self.servers[address] = server
        node.servers[id(server)] = server
        return server

    async def connect(
        self, node: "Node", factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[SimulatedTransport, asyncio.BaseProtocol]:
        """Connect as TCP does: there and back, or refused; behind a block it hangs until open."""
        host = self.names.get(host, host)
        there, back = self.link(node.name, host), self.link(host, node.name)
        await asyncio.sleep(there.delay_s + self.draw() * there.jitter_s)
        while there.is_blocked or back.is_blocked:  # noqa: ASYNC110 - as TCP does
            await asyncio.sleep(0.050)  # SYN again
        server = self.servers.get((host, port))
        if server is None or not server.lets_in or there.refusal_count > 0:
            there.refusal_count = max(0, there.refusal_count - 1)
            await asyncio.sleep(back.delay_s)
            raise ConnectionRefusedError(f"connection refused: {host}:{port}")
        while server.node.stopped is not None:  # noqa: ASYNC110 - its loop is to accept
            await asyncio.sleep(_ACCEPTED_AGAIN_S)
        self._port += 1
        local, remote = (node.name, self._port), (host, port)
        accepted = server.node.run(self._accept, server, remote, local)
        try:
            await asyncio.sleep(back.delay_s + self.draw() * back.jitter_s)
        except asyncio.CancelledError:
            accepted.abort()
            raise
        protocol = factory()
        transport = SimulatedTransport(self, node, protocol, local, remote)
        self.transports[transport.number] = transport
        transport.peer = accepted
        accepted.peer = transport
        if accepted._is_lost or accepted._is_dead:
            accepted._tell_peer(ConnectionResetError("Connection reset by peer"))
        protocol.connection_made(transport)
        if accepted._under_way or accepted._is_end_sent:
            accepted._plan()
        return transport, protocol

    def _accept(
        self, server: SimulatedServer, local: tuple[str, int], remote: tuple[str, int]
    ) -> SimulatedTransport:
        protocol = server.factory()
        transport = SimulatedTransport(self, server.node, protocol, local, remote, is_accepted=True)
        self.transports[transport.number] = transport
        protocol.connection_made(transport)
        return transport


_DEAD_LINK = Link(0.0, 0.0)
_DEAD_LINK.is_blocked = True
