"""Served: a tablespace as a server serves it: its database, and what its users have of the server.

Users are each tablespace's own, so a name's share in one has nothing to do with that in another. On
the server's loop.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from herdpy.engine.database import Database
from herdpy.errors import Error
from herdpy.server.limits import (
    PARAMETER_BYTES,
    REQUEST_BYTES,
    RESULTS,
    Share,
    tablespace_share,
)
from herdpy.server.loop_sync import LoopSync
from herdpy.server.requests.exports import KeptExports
from herdpy.server.requests.part_check import CheckedPart
from herdpy.server.user_shares import UserShares
from herdpy.storage.tablespace_list import DEFAULT

if TYPE_CHECKING:
    from herdpy.server.hub import Hub


class Tenure(Protocol):
    """Says whether an answer may leave that no quorum vouches for; see herdpy/cluster/tenure.py."""

    @property
    def is_over(self) -> bool:
        """No answer leaves any more."""
        ...

    def holds(self) -> bool:
        """Return whether an answer that is made now may leave."""
        ...

    def forget(self, callback: Callable[[], None]) -> None:
        """Let something wait no more; repeatable."""
        ...

    def wait(self, callback: Callable[[], None]) -> None:
        """Call back on the server's loop when that is to be asked again; perhaps never."""
        ...


class Part(Tenure, CheckedPart, Protocol):
    """What the server's node is for a tablespace; see herdpy/cluster/served_part.py."""

    def lag_s(self) -> float:
        """Return how old what it shows is at most, 0 while it leads; any thread."""
        ...

    def known_lag_s(self) -> float:
        """Return the same, for who looks by the way: the node does nothing more for it."""
        ...

    def reason_not_ready(self, max_staleness_s: float) -> str | None:
        """Return why nothing can be served now, None: it can; any thread.

        max_staleness_s: how old at most may be what it shows.
        """
        ...

    @property
    def is_deferring(self) -> bool:
        """What clients begin now has to wait: this node hands its part over."""
        ...

    def wait_to_begin(self, callback: Callable[[], None]) -> None:
        """Call back on the server's loop when that is to be asked again; perhaps never."""
        ...

    def end_error(self) -> Error | None:
        """Return what clients are told as the server ends; None: what any server says."""
        ...

    def transaction_error(self) -> Error:
        """Return what an open transaction is told, 40001, as the part is given away."""
        ...

    def check_hello(self, read: str, max_staleness_s: float) -> None:
        """Raise 25006, SAFE, for a connection that wants another part, or what is not so old."""
        ...


class Served:
    """Made when the first connection asks for it."""

    def __init__(self, hub: "Hub", database: Database, part: Part | None = None) -> None:
        """part: under which its answers leave; None: of a database that has no other copy."""
        self.database = database
        self.part = part
        if part is not None:
            database.tablespace.why_follows = part.write_refusal
        self._share_of_workers = tablespace_share(hub.config.workers)
        self._share_of_connections = tablespace_share(hub.config.connections_max)
        self.connections_max: int | None = None
        """How many connections it may have beside others on a node; None: all there may be."""
        self.connection_count = 0
        self.shares = UserShares(database.maxima_of, database.refusals)
        self.results = Share(hub.results, RESULTS, database)
        self.received = Share(hub.received, REQUEST_BYTES, database, is_halved=True)
        self.parameters = Share(hub.parameters, PARAMETER_BYTES, database, is_halved=True)
        self.resize(is_alone=hub.is_alone)
        self.kept_exports = KeptExports(hub.loop, lambda: hub.config.unread_export_timeout_s)
        database.holders.append(self.kept_exports.close)  # they need its files
        self.loop_sync = LoopSync(
            hub.loop,
            database.clock,
            database.tablespace,
            database.replica.log_appends,
            hub.workers,
            hub.config.loop_sync_us / 1e6,
        )

    def resize(self, *, is_alone: bool) -> None:
        """Have what a tablespace has that is alone behind its port, or that is not."""
        has_all = self.database.name == DEFAULT and is_alone
        self.shares.resize(None if has_all else self._share_of_workers)
        self.connections_max = None if is_alone else self._share_of_connections
        for share in (self.results, self.received, self.parameters):
            share.resize(is_alone=is_alone)
