"""Tenure: until when a leader may answer, whatever has become of it meanwhile. No I/O.

Another node can lead while this one does not know it: its process stood still, or it does not reach
the metadata store. What it tells then may be old. So an answer leaves under a tenure, or waits for
one: asked when the answer is made, the tenure says that no other node had answered until then.

It is of one leadership, and lasts for a share of the session's time-out from the sending of a
renewal that the store has confirmed (registration.py): the session lives as long as its time-out,
and no other node answers while the leader's node of that session is there. Only the rates of two
clocks are compared, and the share is what they may differ by. Its clock counts the seconds in which
the machine sleeps. One thread, the loop's; holds() any thread.
"""

import math
from collections.abc import Callable

SHARE = 0.8
"""Of the session's time-out: clocks differ by less than a fifth."""


class Tenure:
    """See the module."""

    __slots__ = ("_call_soon", "_now_s", "_waiting", "held_count", "is_over", "until_s")

    def __init__(
        self, now_s: Callable[[], float], call_soon: Callable[[Callable[[], None]], object]
    ) -> None:
        """call_soon: has what waits called by itself, whose errors are not the renewal's."""
        self._now_s = now_s
        self._call_soon = call_soon
        self.until_s = -math.inf
        self.is_over = False
        """It does not come back: this node leads no more."""
        self.held_count = 0
        """Answers that had to wait, ever."""
        self._waiting: dict[Callable[[], None], None] = {}

    def holds(self) -> bool:
        """Return whether an answer that is made now may leave."""
        return self._now_s() < self.until_s

    def wait(self, callback: Callable[[], None]) -> None:
        """Call back, on the loop, when it is renewed: to ask again. Never, when it is over.

        One callback waits once, however often it is given.
        """
        self.held_count += 1
        if not self.is_over:
            self._waiting[callback] = None

    def release(self, callback: Callable[[], None]) -> None:
        """Have something asked again that waited for this tenure to begin."""
        self._call_soon(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Let something wait no more: its client is gone; repeatable."""
        self._waiting.pop(callback, None)

    @property
    def waiting_count(self) -> int:
        """Answers that wait now."""
        return len(self._waiting)

    def renew(self, sent_s: float, session_timeout_s: float) -> None:
        """Take in that the store has confirmed what was sent then, on a session of so many seconds.

        What was sent before another one that was confirmed changes nothing: answers may cross.
        """
        until_s = sent_s + SHARE * session_timeout_s
        if self.is_over or until_s <= self.until_s:
            return
        self.until_s = until_s
        if self._waiting and self.holds():
            waiting, self._waiting = self._waiting, {}
            for each in waiting:
                self._call_soon(each)

    def end(self) -> None:
        """Let no answer leave any more; repeatable. What waits is the caller's to refuse."""
        self.is_over, self.until_s = True, -math.inf
        self._waiting.clear()
