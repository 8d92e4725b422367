"""RetryingLeasing: leases and parts of tables over connections that may be lost; all may run again.

A lease whose answer was lost ends by itself. A result's connection may be lost while it is read:
then its reader fails, SAFE. Any thread.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from herdpy.driver.interfaces import HeldLease
from herdpy.exec.result import Result
from herdpy.sql.plan import Parameters

if TYPE_CHECKING:
    from herdpy.driver.remote.retrying import RemoteConnection


class RetryingLeasing:
    """Implements interfaces.Leasing."""

    def __init__(self, run: "Callable[[Callable[[RemoteConnection], Any]], Any]") -> None:
        """run(body) calls body with a connection, again with another one if that was lost."""
        self._run = run

    def take(self, seconds: float, reuse: str | None = None) -> HeldLease:
        """Keep what is committed now, until it was not used for so long."""
        return self._run(lambda session: session.leasing.take(seconds, reuse))

    def use(self, number: str) -> HeldLease:
        """Begin the time of a lease anew; SnapshotTooOldError: it is gone."""
        return self._run(lambda session: session.leasing.use(number))

    def end(self, number: str) -> bool:
        """Let a lease go; False: it was gone, perhaps by a call whose answer was lost."""
        return self._run(lambda session: session.leasing.end(number))

    def partitions(
        self, name: str, count: int, lease: str | None = None
    ) -> list[tuple[bytes | None, bytes | None, int, int]]:
        """Cut a table into ranges of its key."""
        return self._run(lambda session: session.leasing.partitions(name, count, lease))

    def read_partition(
        self,
        name: str,
        lower: bytes | None,
        upper: bytes | None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        parameters: Parameters = None,
        lease: str | None = None,
    ) -> Result:
        """Return the rows of a part of a table."""
        return self._run(
            lambda session: session.leasing.read_partition(
                name, lower, upper, columns, where, parameters, lease
            )
        )
