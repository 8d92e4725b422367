"""Common: what all servers behind one port have together: their workers, limits, and TLS.

A server that has a port for itself has one for itself, too. A node of a cluster has a server for
each tablespace that it carries, and what the settings name is then the node's: so many connections,
workers and bytes in all. On the loop of all of them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from bookie.peer_shares import PeerShares
from bookie.runtime.interfaces import Clock
from bookie.runtime.os_executors import new_executor
from herdpy.config import ServerConfig
from herdpy.errors import Error
from herdpy.server.limits import Budget, Stalled
from herdpy.server.login.throttle import Throttle
from herdpy.server.login.tls import ServerTls, server_tls
from herdpy.server.pace import Pace
from herdpy.server.workers import NewExecutor, WorkerPool

if TYPE_CHECKING:
    from herdpy.server.connection import ServerConnection

HTTP_SHARES = "http_requests"
"""The name of those of connections whose request has not come whole."""


class Unauthenticated(Protocol):
    """A connection that has not said who it is."""

    def give_way(self, error: Error) -> None:
        """End it for others, which `error` says."""
        ...


class Common:
    """See the module. close() it behind the servers."""

    def __init__(
        self, config: ServerConfig, clock: Clock, executor: NewExecutor = new_executor
    ) -> None:
        """`executor` makes the workers. OperationalError F0000: a file of TLS cannot be used."""
        self.tls = server_tls(config)
        """What the port serves TLS with, to connections that come now; None: nothing."""
        self.config = config
        self.clock = clock
        self.pool = WorkerPool(clock, config, executor)
        self.throttle = Throttle(clock, config)
        self.received = Budget(config.request_bytes_max)
        """Bytes of requests that wait, or have not come whole; see Served for shares of it."""
        self.results = Budget(config.results_max)
        """Results with rows to fetch."""
        self.parameters = Budget(config.parameter_bytes_max)
        """Bytes of memory of large parameters whose statements run."""
        self.stalled: Stalled[ServerConnection] = Stalled(config.response_bytes_max)
        self.unauthenticated: PeerShares[Unauthenticated] = PeerShares(
            config.logins_max, config.logins_of_address_max
        )
        self.peer_shares: dict[str, PeerShares[Any]] = {"logins": self.unauthenticated}
        """Of those who have not said who they are, on every port: by the names in syslimits."""
        self.entered_count = 0
        """Connections that were told Welcome, of all servers."""
        self.answers = 0
        """Frames that were sent over sockets, of all servers."""
        self.pace = Pace(clock.monotonic, lambda: self.answers, config.grpc_requests_per_s)
        """Of requests over gRPC, of all servers."""
        self.on_enter: Callable[[ServerConnection], object] | None = None
        """Called with each connection that enters."""

    def shares_of(self, name: str) -> PeerShares[Any]:
        """Return the shares of another kind of places, as many as those of logins."""
        found = self.peer_shares.get(name)
        if found is None:
            config = self.config
            found = PeerShares(config.logins_max, config.logins_of_address_max)
            self.peer_shares[name] = found
        return found

    def reload_tls(self) -> bool:
        """Read the files of TLS again, for connections to come; False: there is none.

        OperationalError F0000: as before. TLS goes on with the paths that it began with.
        """
        if self.tls is None:
            return False
        self.tls = ServerTls(self.tls.files)
        return True

    def reload(self, config: ServerConfig) -> None:
        """Take up settings that count at once; repeatable."""
        self.config = config
        self.throttle.reload(config)
        self.pace.per_s = config.grpc_requests_per_s
        for name, shares in self.peer_shares.items():
            if name != HTTP_SHARES:  # which are not a setting
                shares.count_max = config.logins_max
                shares.of_origin_max = config.logins_of_address_max

    def close(self) -> None:
        """End the workers' threads; all jobs are done. Repeatable."""
        self.pool.shutdown()
