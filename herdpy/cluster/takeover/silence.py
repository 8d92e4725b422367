"""Silence: how long the log has said nothing, as a copy that follows it can prove. No I/O.

A leader whose session lives may write nothing all the same: a thread of it hangs. It is to tick, a
third of the limit apart at the most, so a log in which nothing comes for the limit is that of such
a leader, if it is sure that nothing came: two looks at the log's end (tail.py) that found the same
end, one answered before and the other one sent behind it, prove the time between them. A look that
was not answered proves nothing, nor does time in which none was sent: beyond a part of the limit it
does not count, as when this machine slept, or its copy stood still, beside the leader.

Whether a leader would do better elsewhere silence does not say: bookies that are slow make every
leader silent. So each change of leaders that is not followed by a time with ticks doubles the
limit. One clock, this node's own. One thread, the loop's.
"""

import math
from collections.abc import Callable

from herdpy.cluster.staleness import End

_UNSEEN_PART = 0.5
"""Of the limit: so much of the time between two looks counts at most, and from there on the end of
the log is looked for often: a leader would have ticked."""
_CALM_LIMITS = 4.0
"""Of ticks, each within half of the limit: then a change of leaders has done good."""
_DOUBLED_MAX = 3


class Silence:
    """See the module."""

    def __init__(self, limit_s: float, now_s: Callable[[], float]) -> None:
        """limit_s: infinite where no silence is too long."""
        self._base_s = limit_s
        self._now_s = now_s
        self._leader: tuple[str | None, float] = (None, 0.0)
        """Which node leads, and its limit; 0: it does not tick, or that is not known."""
        self._doubled = 0
        self._end: End = (-1, -1)
        self._since_s = self._looked_s = self._calm_s = now_s()
        self._proven_s = 0.0

    @property
    def limit_s(self) -> float:
        """For which the log may be silent now; infinite: for ever."""
        return self._tick_limit_s * 2**self._doubled

    @property
    def _tick_limit_s(self) -> float:
        """By which the leader ticks, or this node watches: whichever is longer."""
        leader_s = self._leader[1]
        return max(self._base_s, leader_s) if leader_s else math.inf

    @property
    def proven_s(self) -> float:
        """For which it has been silent, surely."""
        return self._proven_s

    @property
    def is_too_long(self) -> bool:
        """Another copy may lead."""
        return self._proven_s >= self.limit_s

    @property
    def is_suspicious(self) -> bool:
        """The end of the log is to be looked for often: a tick is missing."""
        return self._now_s() - self._since_s >= _UNSEEN_PART * self.limit_s

    def led_by(self, node_id: str | None, limit_s: float) -> None:
        """Take in which node leads, and the limit by which it ticks; 0: it does not."""
        if (node_id, limit_s) != self._leader:
            self._leader = (node_id, limit_s)
            self._begin()

    def changed(self) -> None:
        """Take in that a node has named itself leader: it has its time, more of it each time."""
        self._doubled = min(self._doubled + 1, _DOUBLED_MAX)
        self._calm_s = self._now_s()
        self._begin()

    def excuse(self) -> None:
        """Take in that no other node could write the log either: it is to be silent anew."""
        self._begin()

    def saw(self, end: End) -> None:
        """Take in up to where the log has entries."""
        if end <= self._end:
            return
        self._end, now_s = end, self._now_s()
        if now_s - self._since_s > _UNSEEN_PART * self._tick_limit_s:
            self._calm_s = now_s
        elif now_s - self._calm_s >= _CALM_LIMITS * self._tick_limit_s:
            self._doubled = 0
        self._begin()

    def looked(self, sent_s: float, end: End) -> None:
        """Take in where the log ended, as a look says that was sent then."""
        if end > self._end:
            self.saw(end)
            return
        gap_s = sent_s - self._looked_s
        if gap_s > 0 and math.isfinite(self.limit_s):
            self._proven_s += min(gap_s, _UNSEEN_PART * self.limit_s)
            self._looked_s = sent_s

    def _begin(self) -> None:
        self._since_s = self._looked_s = self._now_s()
        self._proven_s = 0.0
