"""Admission: which connections a bookie has room for.

The protocol has no login: a peer has said who it is when its first message has come, and where TLS
is required the first one inside it. Until then its address has a share. Where all places are taken,
one more takes that of the oldest such connection, or else of the one that has been idle longest
among those of the address with most. On the server's loop.
"""

from collections import Counter
from typing import TYPE_CHECKING

from bookie.peer_shares import PeerShares

if TYPE_CHECKING:
    from bookie.config import BookieConfig
    from bookie.server.wire.connection import Connection


class Admission:
    """`connections` are all that are open, in the order in which they came.

    `refused` counts by limit what was refused or gave way.
    """

    __slots__ = ("_config", "_connections", "_refused", "silent")

    def __init__(
        self,
        config: "BookieConfig",
        connections: "dict[Connection, None]",
        refused: "Counter[str]",
    ) -> None:
        self._config = config
        self._connections = connections
        self._refused = refused
        self.silent: PeerShares[Connection] = PeerShares(
            config.connections_max, config.silent_of_address_max
        )
        """Those whose first message has not come."""

    def admit(self, connection: "Connection", now: float) -> bool:
        """Give a new connection a place, perhaps another one's; False: there is none."""
        gone = None
        if len(self._connections) >= self._config.connections_max:
            self._refused["connections_max"] += 1
            gone = self.silent.give_way() or self._longest_idle(now)
            if gone is None:
                return False
        self._connections[connection] = None
        before = self.silent.add(connection, connection.origin)
        if before is not None:
            self._refused["silent_of_address_max"] += 1
        for each in (gone, before):
            if each is not None:
                each.give_way()
        return True

    def heard(self, connection: "Connection") -> None:
        """Note that the first message of a connection has come."""
        self.silent.remove(connection)

    def leave(self, connection: "Connection") -> None:
        """Forget a connection; repeatable."""
        self._connections.pop(connection, None)
        self.silent.remove(connection)

    def _longest_idle(self, now: float) -> "Connection | None":
        """Return who has been idle longest, of the address that has most; None: no one is.

        Who has just been served is not idle: clients that are too many would take turns otherwise.
        """
        counts = Counter(each.origin for each in self._connections)
        idle_s_min = self._config.first_message_timeout_s
        idle = [each for each in self._connections if each.idle_s(now) >= idle_s_min]
        return max(idle, key=lambda each: (counts[each.origin], each.idle_s(now)), default=None)
