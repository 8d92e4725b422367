"""Background steps of maintenance, which may fail, are put off then, and never stop the database.

One thread runs the steps, each for itself: what one of them meets keeps no other from being done.
A step that has failed is tried again after a pause that doubles, up to a bound.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from bookie.runtime.interfaces import Clock
from herdpy.errors import Error, InternalError
from herdpy.model.types import Row

_log = logging.getLogger(__name__)
_PAUSE_S_MIN = 0.5
_PAUSE_S_MAX = 16.0
_ERROR_LENGTH_MAX = 500


class MaintenanceTask(NamedTuple):
    """A step by its name, and what is done first when it fails with a programming error."""

    name: str
    run: Callable[[], object]
    on_bug: Callable[[Exception], object] | None = None


class Failed(NamedTuple):
    """A step that has failed, and not been done since."""

    task: str
    failures: int
    error: str
    failed_us: int
    pause_s: float
    again_s: float
    """When it is tried again, of Clock.monotonic()."""


class Retries:
    """Which steps have failed, and when they are tried again. One thread runs; any reads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, Failed] = {}

    @property
    def failed(self) -> list[Failed]:
        """The steps that have failed, and not been done since; any thread."""
        return list(self._failed.copy().values())

    def rows(self) -> list[Row]:
        """Return what sysmaintenance shows; any thread."""
        now_s = self._clock.monotonic()
        return [
            (each.task, each.failures, each.error, each.failed_us, max(0.0, each.again_s - now_s))
            for each in self.failed
        ]

    def run(self, tasks: Sequence[MaintenanceTask]) -> None:
        """Run each step that is not put off; raise nothing but what ends a thread."""
        now_s = self._clock.monotonic()
        names = {task.name for task in tasks}
        for name in self._failed.keys() - names:
            del self._failed[name]
        for task in tasks:
            before = self._failed.get(task.name)
            if before is not None and now_s < before.again_s:
                continue
            try:
                task.run()
            except Exception as error:  # noqa: BLE001 - of any kind: this is their end
                with suppress(MemoryError):  # there may be none even for words
                    self._note(task, error, before, now_s)
            else:
                self._failed.pop(task.name, None)

    def note(self, error: Exception) -> None:
        """Take note of what came between the steps; the next round is the next try."""
        with suppress(MemoryError):
            self._note(MaintenanceTask("a round", lambda: None), error, None, 0.0)

    def _note(
        self, task: MaintenanceTask, error: Exception, before: Failed | None, now_s: float
    ) -> None:
        pause_s = _PAUSE_S_MIN if before is None else min(2 * before.pause_s, _PAUSE_S_MAX)
        count = 1 if before is None else before.failures + 1
        text = f"{type(error).__name__}: {error}"[:_ERROR_LENGTH_MAX]
        self._failed[task.name] = Failed(
            task.name, count, text, self._clock.wall_us(), pause_s, now_s + pause_s
        )
        is_bug = not isinstance(error, Error | OSError) or isinstance(error, InternalError)
        if is_bug:
            _log.error("maintenance: %s failed: %r", task.name, error, exc_info=error)
            if task.on_bug is not None:
                try:
                    task.on_bug(error)
                except Exception:  # noqa: BLE001 - this is its end, too
                    _log.exception("maintenance: %s: what follows a failure failed", task.name)
        elif before is None:  # statements meet the cause themselves, and say it each time
            _log.warning("maintenance: %s failed, and is tried again: %s", task.name, error)
