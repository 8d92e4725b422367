"""Throttle: who guesses passwords waits, by the address that the guesses come from.

An address is free to fail FAILURES_FREE times; then each login from it waits before anything is
asked of it, right ones and wrong ones alike, twice as long after every further failure, up to
DELAY_FACTOR_MAX times the delay of a failure, and AT_ONCE_MAX of them at a time. FORGET_S after its
last failure the address begins anew. No user is locked out, and no other address waits. Nothing is
counted by user: any client could make a user wait by failing in her name. On the server's loop.
"""

from bookie import peer_shares
from bookie.runtime.interfaces import Clock
from herdpy.config import ServerConfig
from herdpy.errors import OperationalError, Retry

FAILURES_FREE = 5
FORGET_S = 60.0
DELAY_FACTOR_MAX = 8
AT_ONCE_MAX = 10
ADDRESSES_MAX = 10_000
"""Beyond it the address that failed longest ago is forgotten."""


class _Failed:
    __slots__ = ("count", "last_s", "waiting")

    def __init__(self) -> None:
        self.count = 0
        self.last_s = 0.0
        self.waiting = 0


class Throttle:
    """`origin` is what origin_of() made of a peer."""

    def __init__(self, clock: Clock, config: ServerConfig) -> None:
        self._clock = clock
        self._failed: dict[str, _Failed] = {}  # who failed longest ago first
        self.reload(config)

    def reload(self, config: ServerConfig) -> None:
        """Take up the delays of a configuration."""
        self._delay_s = config.login_failure_delay_s
        self._delay_max_s = min(DELAY_FACTOR_MAX * self._delay_s, config.login_timeout_s / 2)

    def failed(self, origin: str) -> None:
        found = self._recent(origin) or _Failed()
        self._failed.pop(origin, None)
        self._failed[origin] = found
        found.count += 1
        found.last_s = self._clock.monotonic()
        while len(self._failed) > ADDRESSES_MAX:
            del self._failed[next(iter(self._failed))]

    def begin(self, origin: str) -> float:
        """Return the seconds that a login has to wait, after which end() is due; 0: none, no end().

        OperationalError 53300: too many from there wait already.
        """
        found = self._recent(origin)
        if found is None or found.count < FAILURES_FREE or not self._delay_s:
            return 0.0
        if found.waiting >= AT_ONCE_MAX:
            raise OperationalError(
                f"logins from {origin} have failed {found.count} times, and {found.waiting} wait",
                sqlstate="53300",
                retry=Retry.SAFE,
                hint="try again in a moment",
            )
        found.waiting += 1
        doublings = min(found.count - FAILURES_FREE, 32)
        return min(self._delay_s * 2**doublings, self._delay_max_s)

    def end(self, origin: str) -> None:
        """Count a login as one that waits no more: its time is over, or it went away."""
        found = self._failed.get(origin)
        if found is not None and found.waiting:
            found.waiting -= 1

    def _recent(self, origin: str) -> _Failed | None:
        found = self._failed.get(origin)
        if found is not None and self._clock.monotonic() - found.last_s >= FORGET_S:
            del self._failed[origin]
            return None
        return found


def origin_of(peer: str) -> str:
    """Return a peer's address without its port; of IPv6 the network that one client has whole."""
    host = peer.removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")[0]
    return peer_shares.origin_of(host.replace("%5B", "").replace("%5D", "").strip("[]"))
