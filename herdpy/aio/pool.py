"""Pool for asyncio: connections to one target, kept open and lent out; transactions run again.

As herdpy.Pool: a connection comes back rolled back and as it was made, and the longest waiter
gets it. Who is cancelled while it waits leaves nothing behind. One loop.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from bookie.runtime.os_backoff import Backoff
from herdpy.aio.connection import AsyncConnection, connect
from herdpy.driver.attributes import Strict
from herdpy.driver.pool import (
    CONNECTIONS_MAX,
    TIMEOUT_S,
    check_pool,
    is_repeatable,
    pool_closed,
    pool_used_up,
)
from herdpy.errors import Error

if TYPE_CHECKING:
    import os

T = TypeVar("T")


class Pool(Strict):
    """`options` are connect()'s. No connection is made before the first is asked for."""

    __slots__ = (
        "_connections_max",
        "_count",
        "_idle",
        "_is_closed",
        "_options",
        "_target",
        "_timeout_s",
        "_waiters",
    )

    def __init__(
        self,
        target: "str | os.PathLike[str]",
        *,
        connections_max: int = CONNECTIONS_MAX,
        timeout_s: float = TIMEOUT_S,
        **options: Any,
    ) -> None:
        check_pool(connections_max, timeout_s)
        # Constant after __init__.
        self._target = target
        self._options = options
        self._connections_max = connections_max
        self._timeout_s = timeout_s
        # Of the loop.
        self._idle: list[AsyncConnection] = []  # the one used last at the end
        self._count = 0  # lent out, idle, or being made
        self._waiters: deque[asyncio.Future[AsyncConnection | None]] = deque()
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[AsyncConnection]:
        """Lend a connection; its transaction commits at the end, or rolls back on an error.

        53300, SAFE: none came back in timeout_s.
        """
        connection = await self._take()
        try:
            try:
                yield connection
            except BaseException:
                await connection.rollback()
                raise
            await connection.commit()
        finally:
            await self._give_back(connection)

    async def run(
        self,
        work: Callable[[AsyncConnection], Awaitable[T]],
        *,
        retry_timeout_s: float = TIMEOUT_S,
    ) -> T:
        """Run a transaction, again as long as it failed with an error that is SAFE to repeat.

        `work` gets a connection, on which it must not commit itself, and is called once for each
        attempt. A commit whose fate is not known (UNKNOWN) is not repeated.
        """
        pauses = Backoff(retry_timeout_s)
        while True:
            try:
                async with self.connection() as connection:
                    if connection.autocommit:
                        async with connection.transaction():
                            return await work(connection)
                    return await work(connection)
            except Error as error:
                pause_s = pauses.next_pause_s() if is_repeatable(error) else None
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)

    @property
    def connection_count(self) -> int:
        """Connections that are open, lent out or idle."""
        return self._count

    @property
    def waiting_count(self) -> int:
        """Tasks that wait for a connection."""
        return len(self._waiters)

    async def close(self) -> None:
        """Close what is idle, and what is lent out when it comes back; repeatable."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        self._count -= len(idle)
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(pool_closed())
        for connection in idle:
            await connection.close()

    async def __aenter__(self) -> "Pool":
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.close()

    async def _take(self) -> AsyncConnection:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._timeout_s
        while True:
            if self._is_closed:
                raise pool_closed()
            if self._idle:
                return self._idle.pop()
            if self._count < self._connections_max:
                self._count += 1
                return await self._make()
            connection = await self._wait(end_s - loop.time())
            if connection is not None:
                return connection

    async def _make(self) -> AsyncConnection:
        try:
            return await connect(self._target, **self._options)
        except BaseException:
            self._drop()
            raise

    async def _wait(self, timeout_s: float) -> AsyncConnection | None:
        """Return what came back, None when there is room for a new one."""
        waiter: asyncio.Future[AsyncConnection | None]
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await asyncio.wait([waiter], timeout=max(0.0, timeout_s))
        except asyncio.CancelledError:
            await self._leave(waiter)
            raise
        if waiter.done():
            return waiter.result()
        await self._leave(waiter)
        raise pool_used_up(self._connections_max, self._timeout_s)

    async def _leave(self, waiter: "asyncio.Future[AsyncConnection | None]") -> None:
        """Wait no longer; what came in this moment goes on to the next."""
        if not waiter.done():
            self._waiters.remove(waiter)
            waiter.cancel()
        elif waiter.exception() is None:
            connection = waiter.result()
            if not self._call_next(connection) and connection is not None:
                await connection.close()

    async def _give_back(self, connection: AsyncConnection) -> None:
        try:
            await connection.reset()
        except BaseException as error:
            try:
                await connection.discard()
            finally:
                self._drop()
            if isinstance(error, Error):
                return
            raise
        if not self._call_next(connection):
            await connection.close()

    def _drop(self) -> None:
        """Count a connection less, and let a waiter make another."""
        self._count -= 1
        self._call_next(None)

    def _call_next(self, connection: AsyncConnection | None) -> bool:
        """Hand it to the longest waiter, or keep it; False: the pool is closed."""
        if self._is_closed:
            if connection is not None:
                self._count -= 1
            return False
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        if connection is not None:
            self._idle.append(connection)
        return True
