"""AsyncLease: a SnapshotLease whose calls are awaited. One task at a time."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from herdpy.driver.leases import SnapshotLease

T = TypeVar("T")


class _Owner(Protocol):
    def run(self, body: Callable[[], T]) -> Coroutine[Any, Any, T]: ...


class AsyncLease:
    """What AsyncConnection.lease() gives; `async with` releases it at the end of the block."""

    def __init__(self, owner: _Owner, lease: SnapshotLease) -> None:
        self._owner = owner
        self.blocking = lease
        self.id = lease.id
        self.position = lease.position
        """Which state it is: the position of the log, as text."""
        self.seconds = lease.seconds
        """So long it lives without a use."""

    async def renew(self) -> None:
        """Begin its time anew, as every use does; SnapshotTooOldError: it is gone."""
        await self._owner.run(self.blocking.renew)

    async def release(self) -> None:
        """Let it go; repeatable."""
        await self._owner.run(self.blocking.release)

    async def __aenter__(self) -> "AsyncLease":
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._owner.run(lambda: self.blocking.__exit__(*error))

    def __repr__(self) -> str:
        return f"<herdpy.aio.AsyncLease {self.id} at {self.position}>"
