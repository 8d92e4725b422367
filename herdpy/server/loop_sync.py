"""LoopSync: the server's loop syncs the log itself while all that comes to it are commits.

A thread of its own for the sync costs two changes of thread in each commit, more than the commit
itself. The loop may do it where nothing else would have run meanwhile: while everything that came
for a while were writes of one row, no worker runs a statement, and the disk is fast. On the loop.
"""

import asyncio
from collections.abc import Callable

from bookie.runtime.interfaces import Clock

_ONLY_COMMITS_S = 0.1
_SYNC_S_MAX = 0.001
_WEIGHT = 1 / 8


class LoopSync:
    """See the module."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        is_working: Callable[[], bool],
        sync: Callable[[], object],
    ) -> None:
        """is_working: a worker runs or is waited for; sync: does a pass in the caller."""
        self._loop = loop
        self._clock = clock
        self._is_working = is_working
        self._sync = sync
        self.other_s = clock.monotonic()
        """When something else than a commit was begun."""
        self._sync_s = 0.0  # on average
        self._is_due = False

    def ask(self) -> bool:
        """Have the loop sync when it has taken what came with this; False: it must not."""
        if self._is_due:
            return True
        if (
            self._sync_s > _SYNC_S_MAX
            or self._clock.monotonic() - self.other_s < _ONLY_COMMITS_S
            or self._is_working()
        ):
            self._sync_s -= self._sync_s * _WEIGHT * 0.01
            return False
        self._is_due = True
        self._loop.call_soon(self._run)
        return True

    def _run(self) -> None:
        self._is_due = False
        begun_s = self._clock.monotonic()
        self._sync()
        self._sync_s += (self._clock.monotonic() - begun_s - self._sync_s) * _WEIGHT
