"""AsyncPipeline: a Pipeline whose calls are awaited. One task at a time."""

import asyncio
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from herdpy.aio.cursor import AsyncCursor
from herdpy.driver.cursor import Parameters
from herdpy.driver.pipeline import Pipeline

if TYPE_CHECKING:
    from herdpy.aio.connection import AsyncConnection


class AsyncPipeline:
    """`async with conn.pipeline() as pipe:`."""

    def __init__(self, owner: "AsyncConnection", pipeline: Pipeline) -> None:
        self._owner = owner
        self._pipeline = pipeline

    async def execute(self, text: str, parameters: Parameters | None = None) -> AsyncCursor:
        """Take a statement; return a cursor that has its result behind the next sync()."""
        if self._pipeline.is_full:
            await self.sync()
        return AsyncCursor(self._owner, self._pipeline.execute(text, parameters))

    async def sync(self) -> None:
        """Run what waits and hand out the results; raise the error of the first that failed."""
        await self._owner.run(self._pipeline.sync)

    async def __aenter__(self) -> "AsyncPipeline":
        self._pipeline.__enter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._owner.run(lambda: self._pipeline.__exit__(kind, error, trace))
        except asyncio.CancelledError as cancelled:
            # Nothing to do if it had begun.
            given_up = partial(self._pipeline.__exit__, type(cancelled), cancelled, None)
            await self._owner.run(given_up)
            raise
