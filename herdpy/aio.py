"""herdpy.aio: the driver for asyncio, the same calls and errors, each awaited.

A thin face: each connection has a thread of its own, which runs the blocking driver, so that every
transport and every rule about lost connections is the same. One task at a time uses a connection
or its cursors; the calls of others wait. A call whose task is cancelled is cancelled in the
database, too, and has ended when CancelledError is raised. One loop.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from bookie.runtime.os_executors import Executor, new_executor
from herdpy.driver import connection as blocking
from herdpy.driver.cursor import Cursor, Parameters
from herdpy.driver.dsn import MEMORY
from herdpy.errors import Error

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from herdpy.driver.types import Description

T = TypeVar("T")
ITERATED_ROWS = 1000
"""Rows that `async for` fetches at a time."""

_CANCEL_AGAIN_S = 0.01


class _Thread:
    """Runs a connection's calls, one after the other."""

    def __init__(self) -> None:
        self._executor: Executor = new_executor("herdpy-aio")
        self.cancel: Callable[[], None] | None = None

    async def run(self, body: Callable[[], T]) -> T:
        job = self._executor.submit(body)
        future = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not job.done():
                if not job.cancel() and self.cancel is not None:
                    self.cancel()
                # Again, if the statement had not begun when it was cancelled.
                await asyncio.wait([future], timeout=_CANCEL_AGAIN_S)
            if not job.cancelled():
                job.exception()  # nobody asks for it any more
            raise

    def end(self) -> None:
        self._executor.shutdown(wait=False)


class Connecting:
    """What connect() returns: `await` it, or use it in `async with`."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, "AsyncConnection"]]) -> None:
        self._make = make
        self._made: AsyncConnection | None = None

    def __await__(self) -> Generator[Any, None, "AsyncConnection"]:
        return self._make().__await__()

    async def __aenter__(self) -> "AsyncConnection":
        self._made = await self._make()
        return self._made

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._made is not None:
            await self._made.__aexit__(kind, error, trace)


def connect(target: "str | os.PathLike[str]" = MEMORY, **options: Any) -> Connecting:
    """Open what herdpy.connect() opens, with its options.

    conn = await aio.connect(…), or: async with aio.connect(…) as conn.
    """

    async def make() -> AsyncConnection:
        thread = _Thread()
        try:
            made = await thread.run(partial(blocking.connect, target, **options))
        except BaseException:
            thread.end()
            raise
        return AsyncConnection(thread, made)

    return Connecting(make)


class AsyncConnection:
    """Connection, awaited. `blocking` is the connection that its thread uses."""

    def __init__(self, thread: _Thread, made: blocking.Connection) -> None:
        self._thread = thread
        self.blocking = made
        thread.cancel = self.cancel

    async def cursor(self) -> "AsyncCursor":
        return AsyncCursor(self, await self.run(self.blocking.cursor))

    async def execute(self, text: str, parameters: Parameters | None = None) -> "AsyncCursor":
        """Run one statement on a new cursor and return it."""
        return AsyncCursor(self, await self.run(lambda: self.blocking.execute(text, parameters)))

    async def executemany(self, text: str, rows: Iterable[Parameters]) -> "AsyncCursor":
        """Run one statement for each row of parameters on a new cursor and return it."""
        return AsyncCursor(self, await self.run(lambda: self.blocking.executemany(text, rows)))

    async def ingest(self, table: str, data: Any, *, mode: str = "append") -> int:
        """Write many rows into a table, as one statement; return how many."""
        return await self.run(lambda: self.blocking.ingest(table, data, mode=mode))

    async def commit(self) -> None:
        """Commit; nothing to do without a transaction."""
        await self.run(self.blocking.commit)

    async def rollback(self) -> None:
        """Roll back; nothing to do without a transaction."""
        await self.run(self.blocking.rollback)

    def transaction(self, durability: str | None = None) -> "AsyncTransaction":
        """Return an async context manager: begin, then commit, or roll back if it raises."""
        return AsyncTransaction(self, self.blocking.transaction(durability))

    @property
    def autocommit(self) -> bool:
        """True: each statement commits by itself. False: the first one begins a transaction."""
        return self.blocking.autocommit

    async def set_autocommit(self, value: bool) -> None:
        """Change `autocommit`; outside a transaction."""

        def change() -> None:
            self.blocking.autocommit = value

        await self.run(change)

    @property
    def in_transaction(self) -> bool:
        return self.blocking.in_transaction

    async def checkpoint(self) -> None:
        """Write what changed to pages now."""
        await self.run(self.blocking.checkpoint)

    def cancel(self) -> None:
        """Stop the statement that runs now: it fails with 57014, harmlessly."""
        self.blocking.cancel()

    async def close(self) -> None:
        """Roll back what is open and close; a second call raises InterfaceError."""
        try:
            await self.run(self.blocking.close)
        finally:
            self._thread.end()

    async def run(self, body: Callable[[], T]) -> T:
        """Run a function of the blocking connection in its thread."""
        return await self._thread.run(body)

    async def __aenter__(self) -> "AsyncConnection":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.run(lambda: self.blocking.__exit__(kind, error, trace))
        finally:
            self._thread.end()


class AsyncTransaction:
    """`async with conn.transaction():`; blocks do not nest."""

    def __init__(self, owner: AsyncConnection, block: blocking.TransactionBlock) -> None:
        self._owner = owner
        self._block = block

    async def __aenter__(self) -> AsyncConnection:
        await self._owner.run(self._block.__enter__)
        return self._owner

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._owner.run(lambda: self._block.__exit__(kind, error, trace))


class AsyncCursor:
    """Cursor, awaited. `arraysize` is what fetchmany() takes by default."""

    def __init__(self, owner: AsyncConnection, cursor: Cursor) -> None:
        self.connection = owner
        self._cursor = cursor

    @property
    def description(self) -> "tuple[Description, ...] | None":
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid

    @property
    def arraysize(self) -> int:
        return self._cursor.arraysize

    @arraysize.setter
    def arraysize(self, value: int) -> None:
        self._cursor.arraysize = value

    async def execute(self, text: str, parameters: Parameters | None = None) -> "AsyncCursor":
        """Run one statement and return this cursor."""
        await self.connection.run(lambda: self._cursor.execute(text, parameters))
        return self

    async def executemany(self, text: str, rows: Iterable[Parameters]) -> "AsyncCursor":
        """Run one statement for each row of parameters and return this cursor."""
        await self.connection.run(lambda: self._cursor.executemany(text, rows))
        return self

    async def fetchone(self) -> tuple[Any, ...] | None:
        return await self.connection.run(self._cursor.fetchone)

    async def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        return await self.connection.run(lambda: self._cursor.fetchmany(size))

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return await self.connection.run(self._cursor.fetchall)

    async def fetch_arrow_table(self) -> "pa.Table":
        """Return the rest of the result as a pyarrow.Table."""
        return await self.connection.run(self._cursor.fetch_arrow_table)

    async def to_df(self) -> "pd.DataFrame":
        """Return the rest of the result as a pandas.DataFrame."""
        return await self.connection.run(self._cursor.to_df)

    async def to_polars(self) -> "pl.DataFrame":
        """Return the rest of the result as a polars.DataFrame."""
        return await self.connection.run(self._cursor.to_polars)

    async def __aiter__(self) -> AsyncIterator[tuple[Any, ...]]:
        while rows := await self.fetchmany(ITERATED_ROWS):
            for row in rows:
                yield row

    async def close(self) -> None:
        """Let the result go; repeatable."""
        await self.connection.run(self._cursor.close)

    async def __aenter__(self) -> "AsyncCursor":
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Error:
            pass  # the connection was closed before
