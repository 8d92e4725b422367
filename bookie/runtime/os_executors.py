"""What runs work, made at the edge and passed in: executors (threads for what blocks), loops."""

import signal
from collections.abc import Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from bookie.runtime.os_process import usual_timers

if TYPE_CHECKING:
    import asyncio

__all__ = ["Executor", "new_executor", "new_loop", "run", "run_until_stopped", "stop_event"]

T = TypeVar("T")

_ENDING = (signal.SIGTERM, signal.SIGINT)


def new_executor(name: str, thread_count: int = 1) -> Executor:
    """Return an executor whose threads are called name-0, name-1, …; its owner shuts it down."""
    return ThreadPoolExecutor(thread_count, name, initializer=usual_timers)


def new_loop() -> "asyncio.AbstractEventLoop":
    """Return an event loop: uvloop's when installed. Its owner closes it."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command to the end on a loop of its own. Ctrl-C cancels it.

    Call it in the main thread. Signals that the coroutine had handled are handled as before
    when it has ended.
    """
    import asyncio

    before = [(number, signal.getsignal(number)) for number in (*_ENDING, signal.SIGHUP)]
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(coroutine)
    finally:
        for number, handler in before:  # uvloop leaves its own behind, which does nothing
            signal.signal(number, handler)


def stop_event() -> "asyncio.Event":
    """Return what SIGTERM and SIGINT set from now on until run() ends, in place of their effect."""
    import asyncio

    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in _ENDING:
        loop.add_signal_handler(number, told.set)
    return told


async def run_until_stopped(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run to the end, or until SIGTERM or SIGINT, which cancels it. What it raises is raised."""
    import asyncio

    loop = asyncio.get_running_loop()
    told = stop_event()
    running, stopping = loop.create_task(coroutine), loop.create_task(told.wait())
    try:
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (running, stopping):
            task.cancel()
        failed, _ = await asyncio.gather(running, stopping, return_exceptions=True)
    if isinstance(failed, Exception):
        raise failed
