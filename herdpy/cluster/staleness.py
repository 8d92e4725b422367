"""Staleness: how old at most what a copy shows is, while it follows. No I/O.

A look at the log (tail.py) tells where it ends: the last ledger that is listed, and how far that is
confirmed. Once the copy has what lies before that end, it shows all that was confirmed when the
look was *sent*: what came between the sending and the answer it may lack, however late the answer
is taken. Of a ledger that is not the last one the end says nothing. One clock, this node's own,
that counts the seconds in which the machine sleeps.

What is not confirmed is not seen: a leader tells bookies how far the log is some milliseconds
behind an acknowledgement, and one that dies before that leaves it to the next leader. One thread,
the loop's; lag_s() and ask() any thread.
"""

import math
from collections import deque
from collections.abc import Callable

End = tuple[int, int]
"""A ledger, and an entry of it: (-1, -1) is before all of them."""
_LOOKS_MAX = 64
"""Looks whose end the copy has not come to; while there are so many no other is noted."""
_ASKED_S = 10.0
"""So long is the end of the log looked for often behind a question of a reader."""


class Staleness:
    """See the module."""

    __slots__ = ("_asked_s", "_fresh_s", "_looks", "_now_s", "_taken")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._fresh_s = self._asked_s = -math.inf
        self._taken: End = (-1, -1)
        self._looks: deque[tuple[float, End]] = deque()

    def now_s(self) -> float:
        """Return the time that looks are sent at."""
        return self._now_s()

    def lag_s(self) -> float:
        """Return how old what the copy shows is at most; infinite: that is not known."""
        return max(0.0, self._now_s() - self._fresh_s)

    def ask(self) -> None:
        """Take in that a reader wants to know; any thread."""
        self._asked_s = self._now_s()

    @property
    def is_asked(self) -> bool:
        """Whether readers have wanted to know lately."""
        return self._now_s() - self._asked_s < _ASKED_S

    def saw_end(self, sent_s: float, end: End) -> None:
        """Take in where the log ended, as a look says that was sent then."""
        if end <= self._taken:
            self._fresh_s = max(self._fresh_s, sent_s)
        elif len(self._looks) < _LOOKS_MAX:
            self._looks.append((sent_s, end))

    def took(self, end: End) -> None:
        """Take in that the copy has all entries up to this one."""
        self._taken = max(self._taken, end)
        while self._looks and self._looks[0][1] <= self._taken:
            sent_s, _ = self._looks.popleft()
            self._fresh_s = max(self._fresh_s, sent_s)
