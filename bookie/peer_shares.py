"""PeerShares: which of the connections give way, so that no address keeps all others out.

Of connections that have not said who they are an address has a share; one more takes the place of
its oldest, and where all places are taken, of the oldest of the address that has most. Those that
have said nothing go before those that are logging in, while they are half of them or more. So who
only holds connections open, or opens new ones all the time, gives way to who logs in meanwhile,
from that address too. One thread.
"""

import ipaddress
from collections.abc import Hashable
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)
_IPV6_PREFIX = 64  # who has one address of such a network has all of them


class PeerShares(Generic[C]):
    """`origin` is what origin_of() makes of a peer's address."""

    __slots__ = (
        "_by_origin",
        "_logging_in",
        "_origins",
        "count_max",
        "gave_way_count",
        "of_origin_gave_way_count",
        "of_origin_max",
    )

    def __init__(self, count_max: int, of_origin_max: int) -> None:
        self.count_max = count_max
        self.of_origin_max = of_origin_max
        self.gave_way_count = 0
        """Since all places were taken."""
        self.of_origin_gave_way_count = 0
        """Since those of an address were."""
        self._by_origin: dict[str, dict[C, None]] = {}  # the oldest first
        self._origins: dict[C, str] = {}
        self._logging_in: set[C] = set()

    def __len__(self) -> int:
        return len(self._origins)

    @property
    def most_of_origin(self) -> int:
        """How many the address has that has most. Any thread."""
        return max(map(len, list(self._by_origin.values())), default=0)

    def add(self, connection: C, origin: str) -> C | None:
        """Take a new connection; return the one that has to go for it, if there is one."""
        found = self._by_origin.get(origin, {})
        oldest = None
        if len(found) >= self.of_origin_max:
            oldest = self._oldest(found)
            self.of_origin_gave_way_count += 1
        elif len(self._origins) >= self.count_max:
            oldest = self.give_way()
        self._by_origin.setdefault(origin, {})[connection] = None
        self._origins[connection] = origin
        return oldest

    def give_way(self) -> C | None:
        """Return the one that has to go for another; None: there is none."""
        if not self._by_origin:
            return None
        self.gave_way_count += 1
        return self._oldest(max(self._by_origin.values(), key=len))

    def logs_in(self, connection: C) -> None:
        """Note that one that is there has begun to say who it is."""
        if connection in self._origins:
            self._logging_in.add(connection)

    def remove(self, connection: C) -> None:
        """Forget a connection; repeatable."""
        self._logging_in.discard(connection)
        origin = self._origins.pop(connection, None)
        if origin is not None:
            found = self._by_origin[origin]
            del found[connection]
            if not found:
                del self._by_origin[origin]

    def _oldest(self, found: dict[C, None]) -> C:
        """Forget the oldest of an address, or of its silent ones if they are half; return it."""
        silent = [each for each in found if each not in self._logging_in]
        oldest = silent[0] if 2 * len(silent) >= len(found) else next(iter(found))
        self.remove(oldest)
        return oldest


def origin_of(host: str) -> str:
    """Return what an address counts as: itself, or the IPv6 network that one client has whole."""
    host = host.partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
    return str(address)
