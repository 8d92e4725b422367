"""AsyncConnection: a Connection whose calls are awaited. One task at a time."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from herdpy.aio.awaiting import awaited, giving
from herdpy.aio.cursor import AsyncBatches, AsyncCursor
from herdpy.aio.handles import AsyncLease, AsyncPipeline, AsyncStage, AsyncTransaction
from herdpy.aio.runners import Runner, ThreadRunner, new_runner
from herdpy.driver import connection as driver
from herdpy.driver.attributes import PublicErrors, Strict
from herdpy.driver.dsn import MEMORY, RemoteTarget, parse_target
from herdpy.errors import InterfaceError

if TYPE_CHECKING:
    import os

    from herdpy.driver.interfaces import Waits

T = TypeVar("T")
P = ParamSpec("P")


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

    async def __aexit__(self, *error: Any) -> None:
        if self._made is not None:
            await self._made.__aexit__(*error)


def connect(
    target: "str | os.PathLike[str]" = MEMORY, *, waits: "Waits | None" = None, **options: Any
) -> Connecting:
    """Open what herdpy.connect() opens, with its options.

    conn = await aio.connect(…), or: async with aio.connect(…) as conn. `waits` is for simulations.
    """

    async def make() -> AsyncConnection:
        parsed = parse_target(target)
        is_on_loop = isinstance(parsed, RemoteTarget) and not parsed.is_grpc
        return await _make(new_runner(is_on_loop=is_on_loop, waits=waits), target, options)

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


def _aside(
    method: Callable[Concatenate[driver.Connection, P], T],
) -> "Callable[Concatenate[AsyncConnection, P], Coroutine[Any, Any, T]]":
    """Return a blocking method, awaited, that writes files."""

    @wraps(method)
    async def call(self: "AsyncConnection", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run_aside(lambda conn: method(conn, *args, **kwargs))

    return call


class AsyncConnection(Strict, PublicErrors):
    """Connection, awaited. `blocking` is the connection that its runner uses."""

    __slots__ = ("__weakref__", "_make_another", "_runner", "blocking")

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

    cursor = giving(AsyncCursor, driver.Connection.cursor)
    execute = giving(AsyncCursor, driver.Connection.execute)
    executemany = giving(AsyncCursor, driver.Connection.executemany)
    executescript = giving(AsyncCursor, driver.Connection.executescript)
    ingest = awaited(driver.Connection.ingest)
    begin_staging = awaited(driver.Connection.begin_staging)
    stage = giving(AsyncStage, driver.Connection.stage)
    commit_staging = awaited(driver.Connection.commit_staging)
    abort_staging = awaited(driver.Connection.abort_staging)
    wait_for = awaited(driver.Connection.wait_for)
    commit_position = awaited(driver.Connection.commit_position)
    column_defaults = awaited(driver.Connection.column_defaults)
    lease = giving(AsyncLease, driver.Connection.lease)
    release_lease = awaited(driver.Connection.release_lease)
    renew_lease = awaited(driver.Connection.renew_lease)
    partitions = awaited(driver.Connection.partitions)
    read_partition = giving(AsyncBatches, driver.Connection.read_partition)
    commit = awaited(driver.Connection.commit)
    rollback = awaited(driver.Connection.rollback)
    checkpoint = awaited(driver.Connection.checkpoint)
    reset = awaited(driver.Connection.reset)
    backup = _aside(driver.Connection.backup)
    backup_all = _aside(driver.Connection.backup_all)
    dump = _aside(driver.Connection.dump)
    dump_all = _aside(driver.Connection.dump_all)

    def transaction(
        self,
        durability: str | None = None,
        *,
        savepoint_name: str | None = None,
        force_rollback: bool = False,
    ) -> AsyncTransaction:
        """Return an async context manager: begin, then commit, or roll back if it raises.

        In another block it is a savepoint; arguments and herdpy.Rollback as those of herdpy.
        """
        made = self.blocking.transaction(
            durability, savepoint_name=savepoint_name, force_rollback=force_rollback
        )
        return AsyncTransaction(self, made)

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
    def isolation_level(self) -> str:
        """Of transactions that begin from now on: "READ COMMITTED" or "REPEATABLE READ"."""
        return self.blocking.isolation_level

    async def set_isolation_level(self, value: str) -> None:
        """Change `isolation_level`; outside a transaction."""

        def change() -> None:
            self.blocking.isolation_level = value

        await self.run(change)

    @property
    def read_only(self) -> bool:
        """Transactions that begin from now on write nothing: what does is refused (25006)."""
        return self.blocking.read_only

    async def set_read_only(self, value: bool) -> None:
        """Change `read_only`; outside a transaction."""

        def change() -> None:
            self.blocking.read_only = value

        await self.run(change)

    @property
    def position(self) -> str:
        """Where the log of the database is, as far as this connection has heard."""
        return self.blocking.position

    async def lag(self) -> float:
        """Return how many seconds old what this connection sees is at most; 0 at a leader."""
        return await self.run(lambda: self.blocking.lag)

    @property
    def in_transaction(self) -> bool:
        return self.blocking.in_transaction

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

    def run(self, body: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """Run a function of the blocking connection where it may wait."""
        return self._runner.run(body)

    async def run_aside(self, body: Callable[[driver.Connection], T]) -> T:
        """Run what writes files, which would hold up the loop: in a thread, if need be another."""
        if isinstance(self._runner, ThreadRunner):
            return await self.run(partial(body, self.blocking))
        self.blocking.live_session()
        # It has nothing to do with this connection's transaction, so another does as well.
        async with await self._make_another(ThreadRunner()) as other:
            return await other.run(partial(body, other.blocking))

    def __repr__(self) -> str:
        return repr(self.blocking).replace("Connection", "AsyncConnection", 1)

    async def __aenter__(self) -> "AsyncConnection":
        self.blocking.live_session()
        return self

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self.run(lambda: self.blocking.__exit__(*error))
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
