"""Runners: where the blocking driver runs for a connection of herdpy.aio.

Over herd:// in tasks of the loop itself, if greenlet is installed; everything else (a database in
process, gRPC) waits in ways that only a thread can, and has a thread of its own, because a
statement may wait for what another connection does. The calls of one connection run one after
the other; a call whose task is cancelled has ended when CancelledError is raised. One loop.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, TypeVar

from bookie.runtime.os_executors import Executor, new_executor
from herdpy.errors import Error, InterfaceError

if TYPE_CHECKING:
    from herdpy.driver.connection import Connection
    from herdpy.driver.interfaces import Waits

T = TypeVar("T")
_CANCEL_AGAIN_S = 0.01


class Runner(Protocol):
    """Runs the calls of one connection."""

    async def connect(self, connect: "Callable[..., Connection]") -> "Connection":
        """Return the connection, made by a call that is told how to wait."""
        ...

    async def run(self, body: Callable[[], T]) -> T:
        """Run a call when those before it have ended."""
        ...

    def end(self) -> None:
        """Let go what it has; calls that come later fail by themselves. Repeatable."""
        ...


def new_runner(*, is_on_loop: bool, waits: "Waits | None" = None) -> Runner:
    """Return a runner, on the loop where that is asked for and can be; waits: None: the loop's."""
    if is_on_loop and find_spec("greenlet") is not None:
        return LoopRunner(waits)
    return ThreadRunner()


class LoopRunner:
    def __init__(self, waits: "Waits | None") -> None:
        """Run in the loop that runs now; waits: None: LoopWaits of it."""
        self._waits = waits
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()

    async def connect(self, connect: "Callable[..., Connection]") -> "Connection":
        from herdpy.aio.stream import LoopWaits

        return await self.run(partial(connect, waits=self._waits or LoopWaits()))

    async def run(self, body: Callable[[], T]) -> T:
        from herdpy.aio.switching import switched

        if asyncio.get_running_loop() is not self._loop:
            raise InterfaceError(
                "the connection belongs to another loop", hint="connect in the loop that uses it"
            )
        async with self._turn:
            return await switched(body)

    def end(self) -> None:
        pass


class ThreadRunner:
    """Runs calls in a thread of its own."""

    def __init__(self) -> None:
        self._executor: Executor = new_executor("herdpy-aio")
        self._connection: Connection | None = None
        self._is_over = False

    async def connect(self, connect: "Callable[..., Connection]") -> "Connection":
        self._connection = await self.run(connect)
        return self._connection

    async def run(self, body: Callable[[], T]) -> T:
        if self._is_over:
            return body()  # the connection is closed: nothing waits any more
        # What has run is let go before its answer is known, and not by the thread, some time later.
        # Its answer is no future's result: futures that are chained refer to each other, and
        # would keep it until the collector comes.
        answers: list[T] = []
        job = self._executor.submit(_call, [body], answers)
        future = asyncio.wrap_future(job)
        try:
            await asyncio.shield(future)
            return answers.pop()
        except asyncio.CancelledError:
            while not job.done():
                if not job.cancel() and self._connection is not None:
                    with suppress(Error):
                        self._connection.cancel()
                # Again, if the statement had not begun when it was cancelled. No other cancel
                # ends this: what runs on would hold up the loop when the connection is closed.
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([future], timeout=_CANCEL_AGAIN_S)
            if not job.cancelled():
                job.exception()  # no caller asks for it any more
            raise

    def end(self) -> None:
        self._is_over = True
        self._executor.shutdown(wait=True)  # at once: every call has ended


def _call(held: list[Callable[[], T]], answers: list[T]) -> None:
    answers.append(held.pop()())
