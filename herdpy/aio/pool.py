"""Pool for asyncio: connections to one target, kept open and lent out; transactions run again.

As herdpy.Pool: a connection comes back rolled back and as it was made, and the longest waiter
gets it. A call that is cancelled while it waits leaves nothing behind. One loop.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from bookie.runtime.ticket import Ticket
from herdpy.aio.connection import AsyncConnection, connect
from herdpy.driver.pool import TIMEOUT_S, Lending, is_repeatable
from herdpy.errors import Error

T = TypeVar("T")


class Pool(Lending[AsyncConnection]):
    __slots__ = ()

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
        pauses = self._waiting.new_pauses(retry_timeout_s)
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

    async def close(self) -> None:
        """Close what is idle, and what is lent out when it comes back; repeatable."""
        for connection in self._end():
            await connection.close()

    async def __aenter__(self) -> "Pool":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _take(self) -> AsyncConnection:
        end_s = self._waiting.monotonic() + self._timeout_s
        while True:
            found = self._find()
            if isinstance(found, AsyncConnection):
                return found
            if found is None:
                return await self._make()
            try:
                if not await _is_done(found, end_s - self._waiting.monotonic()):
                    raise self._used_up()
                connection = found.result()
            except BaseException:
                if (left := self._leave(found)) is not None:
                    await left.close()
                raise
            if connection is not None:
                return connection

    async def _make(self) -> AsyncConnection:
        try:
            return await connect(self._target, **self._options)
        except BaseException:
            self._drop()
            raise

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


async def _is_done(waiter: Ticket[AsyncConnection | None], timeout_s: float) -> bool:
    """Wait for what the loop's own thread completes; False: not in so long."""
    told = asyncio.Event()
    waiter.on_done(told.set)
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            await told.wait()
    except TimeoutError:
        pass
    return waiter.is_done
