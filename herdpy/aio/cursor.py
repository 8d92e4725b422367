"""AsyncCursor: a Cursor whose calls are awaited. One task at a time."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from herdpy.driver.cursor import ARROW_BATCH_ROWS, Cursor, Parameters

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from herdpy.aio.connection import AsyncConnection
    from herdpy.driver.types import Description

ITERATED_ROWS = 1000
"""Rows that `async for` fetches at a time."""


class AsyncCursor:
    """Cursor, awaited. `arraysize` is what fetchmany() takes by default."""

    def __init__(self, owner: "AsyncConnection", cursor: Cursor) -> None:
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

    async def record_batches(self, rows: int = ARROW_BATCH_ROWS) -> "AsyncIterator[pa.RecordBatch]":
        """Yield the whole result as Arrow batches of at most `rows` rows; takes the result."""
        reader = await self.connection.run(lambda: self._cursor.fetch_record_batch(rows))
        batches = iter(reader)
        while (batch := await self.connection.run(lambda: next(batches, None))) is not None:
            yield batch

    async def fetch_arrow_table(self) -> "pa.Table":
        """Return the whole result as a pyarrow.Table."""
        return await self.connection.run(self._cursor.fetch_arrow_table)

    async def to_df(self) -> "pd.DataFrame":
        """Return the whole result as a pandas.DataFrame; ImportError without pandas."""
        table = await self.fetch_arrow_table()
        return await asyncio.to_thread(table.to_pandas)

    async def to_polars(self) -> "pl.DataFrame":
        """Return the whole result as a polars.DataFrame; ImportError without polars."""
        return await self.connection.run(self._cursor.to_polars)

    async def __aiter__(self) -> AsyncIterator[tuple[Any, ...]]:
        while rows := await self.fetchmany(ITERATED_ROWS):
            for row in rows:
                yield row

    async def close(self) -> None:
        """Let the result go; repeatable."""
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
