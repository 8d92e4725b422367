"""LongTasks: work that takes longer than a request, begun by one and looked at by others.

One of a name at a time, and names are few; the last of each is remembered until the process ends.
What such work does can be begun again (each part is a compare-and-set), so nothing is kept beyond
that. Used on one asyncio loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bookie.errors import BookieError, TaskRunningError, error_record
from bookie.runtime.interfaces import Clock

_log = logging.getLogger(__name__)
Json = dict[str, Any]
Work = Callable[[Json], Awaitable[None]]
"""Gets a record that it may put its progress and its result into, at any time."""


class LongTasks:
    """See the module. close() cancels what runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, asyncio.Task[None]] = {}
        self._records: dict[str, Json] = {}

    def begin(self, name: str, work: Work, about: Sequence[str] = ()) -> Json:
        """Begin and return the record; TaskRunningError while one of the name is under way.

        about: the bookies that it is about.
        """
        if name in self._running:
            raise TaskRunningError(
                f"{name}: expected none under way, found one about "
                f"{', '.join(self._records[name]['about']) or 'this bookie'}; wait for its end"
            )
        record: Json = {
            "task": name, "state": "running", "about": list(about), "since_ms": self._now_ms()
        }  # fmt: skip
        self._records[name] = record
        task = asyncio.get_running_loop().create_task(self._run(name, work, record))
        self._running[name] = task
        task.add_done_callback(lambda _: self._end(name, record))
        return record

    async def _run(self, name: str, work: Work, record: Json) -> None:
        try:
            await work(record)
            record["state"] = "done"
        except (BookieError, OSError) as error:
            record["state"] = "failed"
            record["error"] = (
                error_record(error) if isinstance(error, BookieError) else {"message": str(error)}
            )
            _log.warning("%s failed: %s", name, error)
        except Exception:  # noqa: BLE001 - a defect ends the task, and is told
            record["state"] = "failed"
            record["error"] = {"message": "see the process's log"}
            _log.exception("%s failed", name)

    def _end(self, name: str, record: Json) -> None:
        """Take note of an end, also of one before the work began."""
        if record["state"] == "running":
            record["state"] = "cancelled"
        record["until_ms"] = self._now_ms()
        self._running.pop(name)

    def last(self, name: str) -> Json:
        """Return the record of the last one of a name; its state is "none" when there was none."""
        return self._records.get(name, {"task": name, "state": "none"})

    async def cancel(self, name: str) -> Json:
        """End what runs of a name, if anything does; return the last record."""
        task = self._running.get(name)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        return self.last(name)

    def is_running(self, name: str) -> bool:
        return name in self._running

    async def close(self) -> None:
        """Cancel what runs and wait for its end; idempotent."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _now_ms(self) -> int:
        return self._clock.wall_us() // 1000
