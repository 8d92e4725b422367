"""Lane: functions run on the loop in the order in which they were posted, each when it is due.

After each function its waiters go on before the next one runs: a caller that awaits an answer has
it before the event that came after it. Turns: whether that loop runs what it is given.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable


class Lane:
    """One ordered queue into the loop; a function with a short delay waits for earlier ones.

    All functions run in one context. Used from the loop's thread.
    """

    def __init__(self, context: contextvars.Context) -> None:
        self._context = context
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()
        self._timer: asyncio.Handle | None = None
        self._is_running = False

    def post(self, delay_s: float, function: Callable[[], None]) -> None:
        """Run function after delay_s, and after everything posted before."""
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        if self._waiting:
            due = max(due, self._waiting[-1][0])
        self._waiting.append((due, function))
        self._arm(loop)

    def clear(self) -> None:
        """Forget what has not run."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None or self._is_running or not self._waiting:
            return
        due = self._waiting[0][0]
        if due <= loop.time():
            self._timer = loop.call_soon(self._run_head, context=self._context)
        else:
            self._timer = loop.call_at(due, self._run_head, context=self._context)

    def _run_head(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        due, function = self._waiting[0]
        # A timer may ring a clock tick early.
        if due <= loop.time():
            self._waiting.popleft()
            self._is_running = True
            try:
                function()  # what it raises goes to the loop's exception handler
            finally:
                self._is_running = False
                self._arm(loop)
        else:
            self._arm(loop)


class Turns:
    """Whether a loop turns, as one other thread asks that would keep its session alive.

    A process whose loop hangs answers to no client; its session must not hide that.
    """

    def __init__(
        self, post: Callable[[Callable[[], None]], object], now_s: Callable[[], float]
    ) -> None:
        """post: has a function called by the loop soon. now_s: of any clock that goes on."""
        self._post = post
        self._now_s = now_s
        self._asked_s: float | None = None
        """When the loop was given what it has not run yet; None: nothing."""

    def are_within(self, limit_s: float) -> bool:
        """Return whether the loop has run what it was given last, or had no limit_s for it."""
        asked_s, now_s = self._asked_s, self._now_s()
        if asked_s is None:
            self._asked_s = now_s
            self._post(self._turned)
            return True
        return now_s - asked_s < limit_s

    def _turned(self) -> None:
        self._asked_s = None
