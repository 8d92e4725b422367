"""What a connection gives beside cursors: leases, stages and blocks, their calls awaited.

One task at a time.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from herdpy.aio.awaiting import Awaited, Entered, awaited
from herdpy.aio.cursor import AsyncCursor
from herdpy.driver.cursor import Parameters
from herdpy.driver.leases import SnapshotLease
from herdpy.driver.pipeline import Pipeline
from herdpy.driver.staging import Stage
from herdpy.driver.transaction_block import TransactionBlock

if TYPE_CHECKING:
    from herdpy.aio.connection import AsyncConnection


class AsyncLease(Entered[SnapshotLease]):
    """SnapshotLease, awaited; `async with` releases it at the end of the block."""

    renew = awaited(SnapshotLease.renew)
    release = awaited(SnapshotLease.release)
    __aexit__ = awaited(SnapshotLease.__exit__)

    @property
    def id(self) -> str:
        return self.blocking.id

    @property
    def position(self) -> str:
        """Which state it is: the position of the log, as text."""
        return self.blocking.position

    @property
    def seconds(self) -> float:
        """So long it lives without a use."""
        return self.blocking.seconds

    def __repr__(self) -> str:
        return f"<herdpy.aio.AsyncLease {self.id} at {self.position}>"


class AsyncStage(Entered[Stage]):
    """Stage, awaited; an async context manager that gives up."""

    add = awaited(Stage.add)
    finish = awaited(Stage.finish)
    abort = awaited(Stage.abort)
    __aexit__ = awaited(Stage.__exit__)

    @property
    def job(self) -> str:
        return self.blocking.job

    @property
    def row_count(self) -> int:
        """Rows staged so far."""
        return self.blocking.row_count


class AsyncPipeline(Awaited[Pipeline]):
    """`async with conn.pipeline() as pipe:`."""

    sync = awaited(Pipeline.sync)

    async def execute(self, text: str, parameters: Parameters | None = None) -> AsyncCursor:
        """Take a statement; return a cursor that has its result behind the next sync()."""
        if self.blocking.is_full:
            await self.sync()
        owner = cast("AsyncConnection", self.owner)
        return AsyncCursor(owner, self.blocking.execute(text, parameters))

    async def __aenter__(self) -> "AsyncPipeline":
        self.blocking.__enter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self.run(lambda: self.blocking.__exit__(*error))
        except asyncio.CancelledError:
            # Nothing to do if it had begun.
            await _to_its_end(self.run(lambda: self.blocking.__exit__(asyncio.CancelledError)))
            raise


class AsyncTransaction(Awaited[TransactionBlock]):
    """`async with conn.transaction():`; in another block it is a savepoint of that."""

    @property
    def savepoint_name(self) -> str | None:
        """Of the savepoint that it is, or that the transaction begins with; None: of none."""
        return self.blocking.savepoint_name

    async def __aenter__(self) -> "AsyncConnection":
        try:
            await self.run(self.blocking.__enter__)
        except asyncio.CancelledError:
            await self._give_up()
            raise
        return cast("AsyncConnection", self.owner)

    async def __aexit__(self, *error: Any) -> bool:
        try:
            return await self.run(lambda: self.blocking.__exit__(*error))
        except asyncio.CancelledError:
            await self._give_up()
            raise

    async def _give_up(self) -> None:
        """Roll back if the block is open: a thread had opened it, or its end had not begun.

        Looked at behind what the connection's thread still does, for it may open it just now.
        """
        connection = cast("AsyncConnection", self.owner).blocking

        def give_up() -> None:
            if connection.block is self.blocking:
                self.blocking.__exit__(asyncio.CancelledError)

        await _to_its_end(self.run(give_up))


_under_way: set[asyncio.Task[None]] = set()
"""The loop alone would let go of a task that no other waits for."""


async def _to_its_end(call: Coroutine[Any, Any, object]) -> None:
    """Await a call that is made whatever becomes of the task, which may be cancelled once more.

    Then it is not waited for: the connection's next call comes behind it.
    """

    async def make() -> None:
        await call

    task = asyncio.get_running_loop().create_task(make())
    _under_way.add(task)
    task.add_done_callback(_ended)
    await asyncio.shield(task)


def _ended(task: asyncio.Task[None]) -> None:
    _under_way.discard(task)
    if not task.cancelled():
        task.exception()  # no caller asks for it, where the task was cancelled
