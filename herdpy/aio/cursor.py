"""AsyncCursor: a Cursor whose calls are awaited. One task at a time."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from herdpy.driver.attributes import Strict
from herdpy.driver.cursor import ARROW_BATCH_ROWS, Cursor, Parameters
from herdpy.errors import ProgrammingError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from herdpy.aio.connection import AsyncConnection
    from herdpy.driver.types import Description

T = TypeVar("T")
ITERATED_ROWS = 1000
"""Rows that `async for` fetches at a time."""


class _Result(Strict):
    """A result that is read on a connection, until a read is cancelled."""

    __slots__ = ("_is_given_up", "connection")

    def __init__(self, connection: "AsyncConnection") -> None:
        self.connection = connection
        self._is_given_up = False

    async def _read(self, body: Callable[[], T]) -> T:
        if self._is_given_up:
            raise ProgrammingError(
                "there is no result to fetch from: an earlier fetch was cancelled",
                sqlstate="24000",
                hint="execute the statement again",
            )
        try:
            return await self.connection.run(body)
        except asyncio.CancelledError:
            self._is_given_up = True  # what was read is gone; the rest is not to be taken for all
            raise


class AsyncBatches(_Result):
    """pyarrow.RecordBatchReader, awaited."""

    __slots__ = ("_reader",)

    def __init__(self, owner: "AsyncConnection", reader: "pa.RecordBatchReader") -> None:
        super().__init__(owner)
        self._reader = reader

    @property
    def schema(self) -> "pa.Schema":
        return self._reader.schema

    async def read_all(self) -> "pa.Table":
        return await self._read(self._reader.read_all)

    async def read_next_batch(self) -> "pa.RecordBatch":
        """Return the next batch; StopAsyncIteration behind the last."""
        return await anext(self)

    def __aiter__(self) -> "AsyncBatches":
        return self

    async def __anext__(self) -> "pa.RecordBatch":
        batches = iter(self._reader)
        batch = await self._read(lambda: next(batches, None))
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def close(self) -> None:
        """Let the rest of the result go."""
        await self.connection.run(self._reader.close)


class AsyncCursor(_Result):
    """Cursor, awaited. `arraysize` is what fetchmany() takes by default."""

    __slots__ = ("_ahead", "_cursor")

    def __init__(self, owner: "AsyncConnection", cursor: Cursor) -> None:
        super().__init__(owner)
        self._cursor = cursor
        self._ahead: deque[tuple[Any, ...]] = deque()  # rows that `async for` has fetched

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
        """Run one statement and return this cursor. A result not yet fetched is dropped first."""
        return await self._begin(lambda: self._cursor.execute(text, parameters))

    async def executemany(self, text: str, rows: Iterable[Parameters]) -> "AsyncCursor":
        """Run one statement for each row of parameters and return this cursor."""
        return await self._begin(lambda: self._cursor.executemany(text, rows))

    async def executescript(self, text: str) -> "AsyncCursor":
        """Run the statements of a script, each as execute() does, and return this cursor."""
        return await self._begin(lambda: self._cursor.executescript(text))

    async def _begin(self, body: Callable[[], object]) -> "AsyncCursor":
        self._ahead.clear()
        await self.connection.run(body)
        self._is_given_up = False
        return self

    async def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None behind the last."""
        if self._ahead:
            self.connection.blocking.live_session()
            return self._ahead.popleft()
        return await self._read(self._cursor.fetchone)

    async def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return up to size (arraysize) rows; an empty list behind the last."""
        count = self._cursor.arraysize if size is None else size
        self.connection.blocking.live_session()
        rows = [self._ahead.popleft() for _ in range(min(count, len(self._ahead)))]
        if rows and len(rows) == count:
            return rows
        return rows + await self._read(lambda: self._cursor.fetchmany(count - len(rows)))

    async def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that are left, at once, in memory."""
        self.connection.blocking.live_session()
        rows = list(self._ahead)
        self._ahead.clear()
        return rows + await self._read(self._cursor.fetchall)

    async def fetch_record_batch(self, rows: int = ARROW_BATCH_ROWS) -> "AsyncBatches":
        """Return a reader that streams Arrow batches of at most `rows` rows; takes the result."""
        reader = await self._read(lambda: self._cursor.fetch_record_batch(rows))
        return AsyncBatches(self.connection, reader)

    async def fetch_arrow_table(self) -> "pa.Table":
        """Return the whole result as a pyarrow.Table."""
        return await self._read(self._cursor.fetch_arrow_table)

    async def to_df(self) -> "pd.DataFrame":
        """Return the whole result as a pandas.DataFrame; ImportError without pandas."""
        table = await self.fetch_arrow_table()
        return await asyncio.to_thread(table.to_pandas)

    async def to_polars(self) -> "pl.DataFrame":
        """Return the whole result as a polars.DataFrame; ImportError without polars."""
        return await self._read(self._cursor.to_polars)

    def __aiter__(self) -> "AsyncCursor":
        return self

    async def __anext__(self) -> tuple[Any, ...]:
        if not self._ahead:
            self._ahead += await self._read(lambda: self._cursor.fetchmany(ITERATED_ROWS))
        if not self._ahead:
            raise StopAsyncIteration
        self.connection.blocking.live_session()
        return self._ahead.popleft()

    async def close(self) -> None:
        """Let the result go; repeatable."""
        self._ahead.clear()
        await self.connection.run(self._cursor.close)

    def setinputsizes(self, sizes: object) -> None:
        """Do nothing, as PEP 249 allows."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Do nothing, as PEP 249 allows."""

    async def nextset(self) -> None:
        """Refuse: a statement has one result."""
        self._cursor.nextset()

    async def __aenter__(self) -> "AsyncCursor":
        await self.connection.run(self._cursor.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
