"""Switching: the blocking driver as a coroutine of a loop, without a thread.

A function of the driver runs in a greenlet of its own; where it would wait, it hands an awaitable
to the coroutine that runs it, and goes on with what came of it. So the rules about lost
connections, cancelled statements and commit tokens are the blocking driver's (docs/adr/0030). What
the coroutine is cancelled with is raised where the function waits. One loop's thread.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from bookie.runtime.ticket import Ticket

T = TypeVar("T")


class _Switched(greenlet):
    """Runs one function."""

    is_given_up = False
    """Its coroutine was closed, and awaits nothing any more."""


async def switched(body: Callable[[], T]) -> T:
    """Run a function that waits by wait_for()."""
    own = getcurrent()
    running = _Switched(body, own)
    running.gr_context = own.gr_context
    result: Any = running.switch()
    while not running.dead:
        try:
            value = await result
        except BaseException as error:  # noqa: BLE001 - whatever it is, the function gets it
            running.is_given_up = isinstance(error, GeneratorExit)
            result = running.throw(type(error), error, error.__traceback__)
        else:
            result = running.switch(value)
    return result


def wait_for(awaitable: Awaitable[T]) -> T:
    """Wait inside a function that switched() runs; OSError elsewhere: nothing could wait."""
    running = getcurrent()
    if not isinstance(running, _Switched) or running.is_given_up or running.parent is None:
        raise ConnectionError("the task that used the connection has ended")
    return running.parent.switch(awaitable)


def can_wait() -> bool:
    """Return whether the caller runs in switched()."""
    running = getcurrent()
    return isinstance(running, _Switched) and not running.is_given_up


def wait_for_ticket(
    ticket: Ticket[Any], deadline: float | None = None, stop: Ticket[Any] | None = None
) -> bool:
    """Wait for a ticket that any thread completes, as Driver.wait() does."""
    loop = asyncio.get_running_loop()
    while not ticket.is_done:
        if stop is not None and stop.is_done:
            return False
        if deadline is not None and loop.time() >= deadline:
            return False
        future = loop.create_future()
        ring = partial(_ring, future)
        ticket.on_done(ring)
        if stop is not None:
            stop.on_done(ring)
        timer = None if deadline is None else loop.call_at(deadline, ring)
        try:
            wait_for(future)
        finally:
            if timer is not None:
                timer.cancel()
            ticket.forget(ring)
            if stop is not None:
                stop.forget(ring)
    return True


def _ring(future: "asyncio.Future[None]") -> None:
    """Wake the loop that waits for the future, from any thread."""
    loop = future.get_loop()
    try:
        if asyncio.get_running_loop() is loop:
            _set(future)
            return
    except RuntimeError:  # none runs in this thread
        pass
    with suppress(RuntimeError):  # the loop was closed
        loop.call_soon_threadsafe(_set, future)


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
