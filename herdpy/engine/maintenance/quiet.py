"""QuietWatch: when a tablespace need not be looked after, because nothing happens in it.

A process may have hundreds of tablespaces open, most of them without work: a whole round for each
twice a second would take more of a processor than their statements do.
"""

from bookie.runtime.interfaces import Clock
from herdpy.engine.state.state import State

_SETTLED_S = 2.5
"""Nothing has happened for so long: several rounds have found nothing to do, too."""
_AGAIN_S = 30.0
"""A tablespace is looked after as often in any case."""


class QuietWatch:
    """One thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._state: State | None = None
        self._bytes_appended = -1
        self._since_s = clock.monotonic()
        self._again_s = 0.0

    def is_quiet(self, state: State, bytes_appended: int, *, is_busy: bool) -> bool:
        """Return whether this round may be left out: state and log are as they were.

        A position that a leader's tick has moved is not news. is_busy: something is to be done
        though they are.
        """
        now_s = self._clock.monotonic()
        if is_busy or bytes_appended != self._bytes_appended or not self._is_as_it_was(state):
            self._state, self._bytes_appended, self._since_s = state, bytes_appended, now_s
            self._again_s = 0.0
            return False
        if now_s - self._since_s < _SETTLED_S:
            return False
        if now_s >= self._again_s:
            self._again_s = now_s + _AGAIN_S
            return False
        return True

    def _is_as_it_was(self, state: State) -> bool:
        before = self._state
        return before is not None and (
            state.position == before.position
            and state.catalog is before.catalog
            and state.tables is before.tables
            and state.staged is before.staged
        )
