"""Pace: how soon the next request of a user of gRPC may be taken up beside the frame protocol.

What gRPC's library and its handlers do for a request is the loop's own time, much more of it than a
row takes that is read over a socket. So while sockets are answered, the requests of one user have
PER_S of them in a second, and BURST at once; what is more waits, and nothing is refused. A caller
without a login counts by the address. While no socket is answered there is no limit.
On the server's loop.
"""

import asyncio
from collections.abc import Callable

PER_S = 1_000
"""A seventh of the loop's time, at some 150 µs for each."""
BURST = 10
BESIDE_S = 0.05
"""So long behind an answer over a socket another one is expected."""
_CALLERS_MAX = 1_000
"""Beyond it those are forgotten that need not wait."""


class Pace:
    """`answers` returns how many answers have gone over sockets since the start."""

    def __init__(self, monotonic: Callable[[], float], answers: Callable[[], int]) -> None:
        self._now = monotonic
        self._answers = answers
        self._seen = 0
        self._beside_until_s = 0.0
        self._next_s: dict[str, float] = {}  # when the next one is due, by caller
        self.waits = 0
        """How many requests have had to wait."""

    async def wait(self, caller: str) -> None:
        """Wait until a request of a caller may be taken up."""
        delay_s = self.delay_s(caller)
        if delay_s > 0:
            await asyncio.sleep(delay_s)

    def delay_s(self, caller: str) -> float:
        """Count a request, and return the seconds that it has to wait."""
        now, answers = self._now(), self._answers()
        if answers != self._seen:
            self._seen = answers
            self._beside_until_s = now + BESIDE_S
        elif now >= self._beside_until_s:
            self._next_s.clear()
            return 0.0
        if len(self._next_s) >= _CALLERS_MAX:
            self._next_s = {each: due for each, due in self._next_s.items() if due > now}
        free_s = now - BURST / PER_S
        due_s = max(self._next_s.get(caller, free_s), free_s) + 1 / PER_S
        self._next_s[caller] = due_s
        delay_s = round(due_s - now, 6)
        if delay_s <= 0:
            return 0.0
        self.waits += 1
        return delay_s
