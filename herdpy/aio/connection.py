"""AsyncConnection: a Connection whose calls are awaited. One task at a time."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from herdpy import errors
from herdpy.aio.cursor import AsyncBatches, AsyncCursor
from herdpy.aio.leases import AsyncLease
from herdpy.aio.pipeline import AsyncPipeline
from herdpy.aio.runners import Runner, ThreadRunner, new_runner
from herdpy.aio.staging import AsyncStage
from herdpy.driver import connection as driver
from herdpy.driver.attributes import Strict
from herdpy.driver.cursor import ARROW_BATCH_ROWS, Parameters
from herdpy.driver.dsn import MEMORY, RemoteTarget, parse_target
from herdpy.errors import InterfaceError

if TYPE_CHECKING:
    import os

    from herdpy.driver.defaults import ColumnDefault
    from herdpy.driver.exports import Progress as ExportProgress
    from herdpy.driver.ingest import Progress
    from herdpy.driver.leases import Partition
    from herdpy.driver.staging import StageToken, StagingJob

T = TypeVar("T")


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
        parsed = parse_target(target)
        is_on_loop = isinstance(parsed, RemoteTarget) and not parsed.is_grpc
        return await _make(new_runner(is_on_loop=is_on_loop), target, options)

    return Connecting(make)


async def _make(
    runner: Runner, target: "str | os.PathLike[str]", options: dict[str, Any]
) -> "AsyncConnection":
    try:
        made = await runner.connect(partial(driver.connect, target, **options))
    except BaseException:
        runner.end()
        raise
    return AsyncConnection(runner, made, partial(_make, target=target, options=options))


class AsyncConnection(Strict):
    """Connection, awaited. `blocking` is the connection that its runner uses."""

    __slots__ = ("__weakref__", "_make_another", "_runner", "blocking")

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError

    def __init__(
        self,
        runner: Runner,
        made: driver.Connection,
        make_another: "Callable[[Runner], Coroutine[Any, Any, AsyncConnection]]",
    ) -> None:
        """`make_another` opens the same target again."""
        self._runner = runner
        self.blocking = made
        self._make_another = make_another

    async def cursor(self) -> "AsyncCursor":
        return AsyncCursor(self, await self.run(self.blocking.cursor))

    async def execute(self, text: str, parameters: Parameters | None = None) -> "AsyncCursor":
        """Run one statement on a new cursor and return it."""
        return AsyncCursor(self, await self.run(lambda: self.blocking.execute(text, parameters)))

    async def executemany(self, text: str, rows: Iterable[Parameters]) -> "AsyncCursor":
        """Run one statement for each row of parameters on a new cursor and return it."""
        return AsyncCursor(self, await self.run(lambda: self.blocking.executemany(text, rows)))

    async def ingest(
        self, table: str, data: Any, *, mode: str = "append", progress: "Progress | None" = None
    ) -> int:
        """Write many rows into a table, as one statement; return how many."""
        return await self.run(
            lambda: self.blocking.ingest(table, data, mode=mode, progress=progress)
        )

    async def begin_staging(
        self,
        table: str,
        *,
        operation: str = "append",
        job: str | None = None,
        key_columns: Sequence[str] | None = None,
    ) -> "StagingJob":
        """Begin a job whose rows many processes stage and one commits; return its name."""
        return await self.run(
            lambda: self.blocking.begin_staging(
                table, operation=operation, job=job, key_columns=key_columns
            )
        )

    async def stage(self, job: str, task: int | str, attempt: int | str = 0) -> AsyncStage:
        """Return what takes the rows of one attempt of a task of a job."""
        return AsyncStage(self, await self.run(lambda: self.blocking.stage(job, task, attempt)))

    async def commit_staging(self, job: str, tokens: "Iterable[StageToken]") -> str:
        """Commit a job, once; return the position of the commit."""
        return await self.run(lambda: self.blocking.commit_staging(job, tokens))

    async def abort_staging(self, job: str) -> None:
        """Give up the run that begin_staging() returned; by a plain name the whole job."""
        await self.run(lambda: self.blocking.abort_staging(job))

    async def commit_position(self, job: str) -> str | None:
        """Return the position of a job's commit; None: it has not committed."""
        return await self.run(lambda: self.blocking.commit_position(job))

    async def column_defaults(self, table: str) -> "dict[str, ColumnDefault]":
        """Return the defaults of a table's columns by name; those without are left out."""
        return await self.run(lambda: self.blocking.column_defaults(table))

    async def lease(self, seconds: float = 600, *, reuse: str | None = None) -> AsyncLease:
        """Keep what is committed now until release(), or until it was not used for so long."""
        return AsyncLease(self, await self.run(lambda: self.blocking.lease(seconds, reuse=reuse)))

    async def release_lease(self, lease: str) -> bool:
        """Let a lease go, by its id; False: it was gone."""
        return await self.run(lambda: self.blocking.release_lease(lease))

    async def renew_lease(self, lease: str) -> None:
        """Begin the time of a lease anew, by its id; SnapshotTooOldError: it is gone."""
        await self.run(lambda: self.blocking.renew_lease(lease))

    async def partitions(
        self, table: str, count: int, *, lease: "AsyncLease | str | None" = None
    ) -> "list[Partition]":
        """Cut a table into at most `count` parts with about as many rows, for read_partition()."""
        held: Any = getattr(lease, "id", lease)
        return await self.run(lambda: self.blocking.partitions(table, count, lease=held))

    async def read_partition(
        self,
        partition: "Partition",
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        parameters: Parameters | None = None,
        lease: "AsyncLease | str | None" = None,
        rows: int = ARROW_BATCH_ROWS,
    ) -> AsyncBatches:
        """Return the Arrow batches of a part's rows, of at most `rows` each, in any order."""
        held: Any = getattr(lease, "id", lease)
        reader = await self.run(
            lambda: self.blocking.read_partition(
                partition,
                columns=columns,
                where=where,
                parameters=parameters,
                lease=held,
                rows=rows,
            )
        )
        return AsyncBatches(self, reader)

    async def commit(self) -> None:
        """Commit; nothing to do without a transaction."""
        await self.run(self.blocking.commit)

    async def rollback(self) -> None:
        """Roll back; nothing to do without a transaction."""
        await self.run(self.blocking.rollback)

    def transaction(self, durability: str | None = None) -> "AsyncTransaction":
        """Return an async context manager: begin, then commit, or roll back if it raises."""
        return AsyncTransaction(self, self.blocking.transaction(durability))

    def pipeline(self) -> AsyncPipeline:
        """Return an async context manager whose statements go to the server together."""
        return AsyncPipeline(self, self.blocking.pipeline())

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
    def position(self) -> str:
        """Where the log of the database is, as far as this connection has heard."""
        return self.blocking.position

    @property
    def in_transaction(self) -> bool:
        return self.blocking.in_transaction

    async def checkpoint(self) -> None:
        """Write what changed to pages now."""
        await self.run(self.blocking.checkpoint)

    async def backup(
        self,
        path: "str | os.PathLike[str]",
        *,
        overwrite: bool = False,
        progress: "ExportProgress | None" = None,
    ) -> int:
        """Write a backup of the whole database to a file here; return its length in bytes."""
        return await self._aside(
            lambda conn: conn.backup(path, overwrite=overwrite, progress=progress)
        )

    async def dump(
        self,
        path: "str | os.PathLike[str]",
        *,
        overwrite: bool = False,
        progress: "ExportProgress | None" = None,
    ) -> int:
        """Write all tables as SQL to a file here; return its length in bytes."""
        return await self._aside(
            lambda conn: conn.dump(path, overwrite=overwrite, progress=progress)
        )

    async def _aside(self, body: Callable[[driver.Connection], T]) -> T:
        """Run what writes files, which would hold up the loop: in a thread, if need be another."""
        if isinstance(self._runner, ThreadRunner):
            return await self.run(lambda: body(self.blocking))
        self.blocking.live_session()
        # It has nothing to do with this connection's transaction, so another does as well.
        async with await self._make_another(ThreadRunner()) as other:
            return await other.run(lambda: body(other.blocking))

    async def reset(self) -> None:
        """Roll back, and take back what SET and `autocommit` changed: as connect() gave it."""
        await self.run(self.blocking.reset)

    @property
    def is_closed(self) -> bool:
        return self.blocking.is_closed

    async def discard(self) -> None:
        """Close, whatever state it is in; repeatable."""
        try:
            await self.run(self.blocking.discard)
        finally:
            self._end_if_closed()

    def cancel(self) -> None:
        """Stop the statement that runs now: it fails with 57014, harmlessly."""
        self.blocking.cancel()

    async def close(self) -> None:
        """Roll back what is open and close; repeatable."""
        if self.is_closed:
            return
        try:
            await self.run(self.blocking.close)
        finally:
            self._end_if_closed()

    async def run(self, body: Callable[[], T]) -> T:
        """Run a function of the blocking connection where it may wait."""
        return await self._runner.run(body)

    def __repr__(self) -> str:
        return repr(self.blocking).replace("Connection", "AsyncConnection", 1)

    async def __aenter__(self) -> "AsyncConnection":
        self.blocking.live_session()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.run(lambda: self.blocking.__exit__(kind, error, trace))
        except asyncio.CancelledError:
            await self.discard()  # if it had not begun, or did not get to its end
            raise
        finally:
            self._end_if_closed()

    def _end_if_closed(self) -> None:
        """Let the runner go, unless the call was cancelled before its turn and others run on."""
        try:
            self.blocking.live_session()
        except InterfaceError:
            self._runner.end()


class AsyncTransaction:
    """`async with conn.transaction():`; blocks do not nest."""

    def __init__(self, owner: AsyncConnection, block: driver.TransactionBlock) -> None:
        self._owner = owner
        self._block = block

    async def __aenter__(self) -> AsyncConnection:
        try:
            await self._owner.run(self._block.__enter__)
        except asyncio.CancelledError as cancelled:
            await self._give_up(cancelled)
            raise
        return self._owner

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._owner.run(lambda: self._block.__exit__(kind, error, trace))
        except asyncio.CancelledError as cancelled:
            await self._give_up(cancelled)
            raise

    async def _give_up(self, cancelled: asyncio.CancelledError) -> None:
        """Roll back if the block is open: a thread had opened it, or its end had not begun."""
        if self._owner.blocking.block is self._block:
            await self._owner.run(
                partial(self._block.__exit__, type(cancelled), cancelled, cancelled.__traceback__)
            )
