"""What runs work, made at the edge and passed in: executors (threads for what blocks), loops."""

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING

from bookie.runtime.os_process import usual_timers

if TYPE_CHECKING:
    import asyncio

__all__ = ["Executor", "new_executor", "new_loop"]


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
