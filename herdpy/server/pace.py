"""Pace: how soon the next request of a user of gRPC may be taken up beside the frame protocol.

What gRPC's library and its handlers do for a request is the loop's own time, much more of it than a
row takes that is read over a socket. So while sockets are answered, the requests of one user have
their number in a second, of which some may come at once; what is more waits, and nothing is
refused. A caller without a login counts by the address. While no socket is answered there is no
limit. On the server's loop.
"""

import asyncio
from collections.abc import Callable

CALL = 4
"""Requests as which a call counts, for which a connection and a session begin and end."""
_BURST_S = 0.02
"""The requests of so long may come at once."""
BESIDE_S = 0.05
"""So long behind an answer over a socket another one is expected."""
_CALLERS_MAX = 1_000
"""Beyond it those are forgotten that need not wait."""


class Pace:
    """`answers` returns how many answers have gone over sockets since the start."""

    def __init__(
        self, monotonic: Callable[[], float], answers: Callable[[], int], per_s: int
    ) -> None:
        """per_s: requests of one caller; 0: no limit."""
        self._now = monotonic
        self._answers = answers
        self.per_s = per_s
        self._seen = 0
        self._beside_until_s = 0.0
        self._due_s: dict[str, float] = {}  # of the last request, by caller
        self.waits = 0
        """How many requests have had to wait."""

    async def wait(self, caller: str, count: int = 1) -> None:
        """Wait until a request of a caller may be taken up, which counts as so many."""
        delay_s = self.delay_s(caller, count)
        if delay_s > 0:
            await asyncio.sleep(delay_s)

    def delay_s(self, caller: str, count: int = 1) -> float:
        """Count a request as so many, and return the seconds that it has to wait."""
        now, answers, per_s = self._now(), self._answers(), self.per_s
        if answers != self._seen:
            self._seen = answers
            self._beside_until_s = now + BESIDE_S
        if now >= self._beside_until_s or not per_s:
            self._due_s.clear()
            return 0.0
        if len(self._due_s) >= _CALLERS_MAX:
            self._due_s = {each: due_s for each, due_s in self._due_s.items() if due_s > now}
        free_s = now - _BURST_S
        due_s = max(self._due_s.get(caller, free_s), free_s) + count / per_s
        self._due_s[caller] = due_s
        delay_s = round(due_s - now, 6)
        if delay_s <= 0:
            return 0.0
        self.waits += 1
        return delay_s
