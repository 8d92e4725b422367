"""Shares of gRPC's connections: which give way that have not said who they are (ADR 60).

grpc's library accepts connections by itself, and has no rule of who gives way. So the sockets that
it holds are looked at now and then: those on which no call has been let in have a share per
address, and one too many ends the oldest, which is shut down under the library.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from bookie.peer_shares import PeerShares, origin_of
from bookie.runtime.os_executors import new_executor
from bookie.runtime.os_sockets import accepted_from, open_sockets, shut_down
from herdpy.server.login.gate import gave_way_unauthenticated

if TYPE_CHECKING:
    from herdpy.server.common import Common
    from herdpy.server.connection import ServerConnection
    from herdpy.server.login.audit import Audit

_log = logging.getLogger(__name__)
LOOK_S = 0.25
"""What opens connections faster than this takes places that newcomers wait for so long."""
_KEPT_LOOKS = 2
"""A look may have begun before a connection whose call was let in during it."""


class Peer(NamedTuple):
    """Who a connection comes from; IPv4 as such also where it was accepted as IPv6."""

    host: str
    port: int


def peer_at(host: str, port: int) -> Peer:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return Peer(host, port)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return Peer(str(mapped or address), port)


class ConnectionShares:
    """Which connections go; without I/O. Sockets are named by their numbers (inodes)."""

    def __init__(self, places: PeerShares[int]) -> None:
        self._places = places
        self._peers: dict[int, Peer] = {}
        self._sockets: dict[Peer, int] = {}
        self._looks = 0
        self._let_in: dict[Peer, int] = {}  # in which look, or the last that has seen it open

    def let_in(self, peer: Peer) -> None:
        """Note that a call of a connection was let in: it needs no place from now on."""
        self._let_in[peer] = self._looks
        self._places.remove(self._sockets.get(peer, -1))

    def look(self, opened: Mapping[int, Peer]) -> list[int]:
        """Take all that are open, the oldest first; return those that have to go."""
        self._looks += 1
        for socket in [each for each in self._peers if each not in opened]:
            del self._sockets[self._peers.pop(socket)]
            self._places.remove(socket)
        gone: list[int] = []
        for socket, peer in opened.items():
            if socket in self._peers or peer in self._sockets:
                continue
            self._peers[socket], self._sockets[peer] = peer, socket
            if peer not in self._let_in:
                oldest = self._places.add(socket, origin_of(peer.host))
                gone += [] if oldest is None else [oldest]
        for peer, seen in list(self._let_in.items()):
            if peer in self._sockets:
                self._let_in[peer] = self._looks
            elif self._looks - seen >= _KEPT_LOOKS:
                del self._let_in[peer]
        return gone


class ConnectionWatch:
    """Looks until close(). On the server's loop."""

    def __init__(self, common: "Common", audit: "Audit", port: int) -> None:
        self._common = common
        self._audit = audit
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._shares = ConnectionShares(common.shares_of("grpc_unauthenticated"))
        self._peers: dict[int, Peer | None] = {}  # of all sockets; None: not one of the port
        self._executor = new_executor("grpc-connections")
        self._task = self._loop.create_task(self._watch())
        common.on_enter = self._let_in

    def _let_in(self, connection: "ServerConnection") -> None:
        if connection.protocol == "grpc":
            host, _, port = connection.peer.rpartition(":")
            self._shares.let_in(peer_at(host.strip("[]"), int(port)))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._end_some(await self._loop.run_in_executor(self._executor, self._look))
            except Exception:  # noqa: BLE001 - a bug, which leaves the connections to the library
                _log.exception("the connections of gRPC: a bug")

    def _end_some(self, descriptors: dict[int, int]) -> None:
        opened = {each: peer for each, peer in self._peers.items() if peer is not None}
        for socket in self._shares.look(opened):
            host, port = opened[socket]
            reason = gave_way_unauthenticated(self._common.config).message
            self._audit.record("refused", peer=f"{host}:{port}", reason=reason)
            shut_down(descriptors[socket], socket)

    def _look(self) -> dict[int, int]:
        """Find the sockets that are open; in a thread, while the loop does not look."""
        descriptors = open_sockets()
        for socket in [each for each in self._peers if each not in descriptors]:
            del self._peers[socket]
        for socket in sorted(descriptors.keys() - self._peers.keys()):
            found = accepted_from(descriptors[socket], socket, self._port)
            self._peers[socket] = None if found is None else peer_at(*found)
        return descriptors

    async def close(self) -> None:
        self._common.on_enter = None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._executor.shutdown()
