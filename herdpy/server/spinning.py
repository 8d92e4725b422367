"""LoopSpinning: the server's loop looks for the next request for a moment before it sleeps.

After an answer, where that pays (bookie/runtime/short_waits.py), and only while no more connections
speak than there are processors besides the loop's: else it would take from clients on the same
machine what they need to ask. On the server's loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from bookie.runtime.os_process import yield_processor
from bookie.runtime.short_waits import Spinning

_SPEAKERS_MAX = 8
"""With more of them there is nearly always something to do."""


class LoopSpinning:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float],
        spin_s: float,
        processors: int,
    ) -> None:
        """spin_s: for how long, 0: not at all."""
        self._loop = loop
        self._now = monotonic
        self._spin_s = spin_s if processors > 1 else 0.0
        self.is_on = self._spin_s > 0
        self._spinning = Spinning()
        few = max(1, min(processors - 1, _SPEAKERS_MAX))
        self._speakers: deque[int] = deque(maxlen=few)  # the last ones
        self._are_few = False
        self._has_received = False  # since the last answer
        self._is_turning = False
        self._end_s = 0.0
        self._left_count = 0  # of turns, none of which takes less than a microsecond

    def on_receive(self, speaker: int) -> None:
        """Note that bytes came from the connection of this number."""
        self._has_received = True
        self._are_few = speaker in self._speakers
        if not self._are_few:
            self._speakers.append(speaker)

    def on_reply(self) -> None:
        """Look for what comes next."""
        if not self._are_few or not self._spin_s:
            return
        if not self._is_turning:
            if not self._spinning.begin():
                return
            self._is_turning = True
            self._loop.call_soon(self._turn)
        self._has_received = False
        self._end_s = self._now() + self._spin_s
        self._left_count = int(self._spin_s * 1e6)

    def _turn(self) -> None:
        """Keep the loop from sleeping, which looks at its sockets before each of these calls."""
        self._left_count -= 1
        if self._has_received:
            self._is_turning = False
        elif self._left_count > 0 and self._now() < self._end_s:
            yield_processor()
            self._loop.call_soon(self._turn)
        else:
            self._is_turning = False
            self._spinning.fail()
