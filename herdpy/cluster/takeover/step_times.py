"""StepTimes: how long a node has taken for each step of its take-over, for the log. No I/O.

What is told when a node comes to lead, in seconds: `waited_s` from where the former leader was seen
to be gone, then one for each step of part.py. A step that was begun again counts as a whole.
"""

from herdpy.cluster.part import TAKE_OVER, Do

_NAMES = {
    Do.NAME: "named_s",
    Do.CLAIM: "claimed_s",
    Do.LEAD: "replayed_s",
    Do.ALONE: "alone_s",
    Do.SERVE: "served_s",
}
WAITED = "waited_s"
NAMES = (WAITED, *(_NAMES[step] for step in TAKE_OVER))
"""Of all, in the order in which they come."""


class StepTimes:
    """See the module. now_s: of one and the same clock."""

    def __init__(self) -> None:
        self._free_s: float | None = None
        """When the former leader was seen to be gone; None: there is one."""
        self._found: dict[str, float] = {}

    def note_leader(self, now_s: float, *, has_leader: bool) -> None:
        """Take in what is known of the leader's node, as often as it is looked for."""
        if has_leader:
            self._free_s = None
        elif self._free_s is None:
            self._free_s = now_s

    def done(self, step: Do, begun_s: float, now_s: float) -> None:
        """Take in that a step came to its end."""
        if step is Do.NAME:
            self._found.clear()
            if self._free_s is not None:
                # A successor is told before it sees that the former leader's node is gone.
                self._found[WAITED] = max(0.0, begun_s - self._free_s)
        if step in _NAMES:
            self._found[_NAMES[step]] = now_s - begun_s

    def fields(self) -> dict[str, float]:
        """Return the seconds of the last take-over, by name, rounded to milliseconds."""
        return {name: round(self._found[name], 3) for name in NAMES if name in self._found}
