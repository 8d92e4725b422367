"""NodeFigures: what a node of a cluster counts of its parts, for its metrics and its readiness.

Plain numbers, added to on the loop; they live as long as the process, whatever becomes of copies
and servers meanwhile. Any thread may read them.
"""

from collections.abc import Callable

from bookie.runtime.metrics import Histogram
from herdpy.cluster.part import State


class LogFigures:
    """Of the log of one tablespace, as far as this node has written it."""

    def __init__(self) -> None:
        self.recovered = 0
        """Ledgers that it found not CLOSED, and fenced and closed."""
        self.rolls = 0
        """Ledgers that it has begun behind one of its own."""


class PartFigures:
    """Of one tablespace."""

    def __init__(self) -> None:
        self.state: State | None = None
        """None: it has not begun."""
        self.claims = 0
        """Of the list of ledgers, that succeeded."""
        self.silences = 0
        """Leaders whose session lived, and which wrote nothing for longer than they may."""
        self.takeovers = Histogram()
        """From the step before its own name stands in the record until it leads."""
        self.log = LogFigures()
        self._since_s = 0.0
        """When it began to take over last."""

    def enter(self, state: State, now_s: float) -> None:
        """Take in what it is now."""
        if state is State.TAKING_OVER:
            self._since_s = now_s
        elif state is State.LEADING:
            self.takeovers.observe(now_s - self._since_s)
        self.state = state


class TenureFigures:
    """Of all tenures of a node."""

    def __init__(self) -> None:
        self.confirmed = 0
        """Renewals that the store has confirmed."""
        self.refused = 0
        """For a record or the node's own node was another one."""
        self.unanswered = 0
        self.held = 0
        """Answers that had to wait for one, of tenures that are over."""
        self.count_held: Callable[[], int] = lambda: 0
        """Return the same of those that are not; their owner's to set."""


class NodeFigures:
    """See the module."""

    def __init__(self) -> None:
        self.tenures = TenureFigures()
        self.parts: dict[str, PartFigures] = {}
        """By the tablespace's id."""

    def reason_not_open(self) -> str:
        """Return why no copy serves, when none does."""
        states = [each.state for each in self.parts.values() if each.state is not None]
        if not states:
            return "this node has no copy of a tablespace yet"
        return f"the copy is not open: this node is {states[0].value}"
