"""RecordBatch: the frames of one append_many that are under way.

Owned by the call that made it; its future is done with the last frame or with the first error.
"""

import asyncio

from bookie.errors import BookieError


class RecordBatch:
    """Entry ids come in the order in which the frames began, since entries complete in order."""

    __slots__ = ("_is_whole", "_left", "done", "entry_ids", "starts")

    def __init__(self, done: "asyncio.Future[None]") -> None:
        self.done = done
        self.entry_ids: list[int] = []
        self.starts: list[int] = []
        """The number of the first record of each frame."""
        self._left = 0
        self._is_whole = False

    def began(self, start: int) -> None:
        self.starts.append(start)
        self._left += 1

    def on_added(self, entry_id: int, error: BookieError | None) -> None:
        self._left -= 1
        if error is None:
            self.entry_ids.append(entry_id)
        self._settle(error)

    def end(self) -> None:
        """Take note that no more frames come."""
        self._is_whole = True
        self._settle(None)

    def _settle(self, error: BookieError | None) -> None:
        if self.done.done():
            return
        if error is not None:
            self.done.set_exception(type(error)(*error.args))
        elif self._is_whole and not self._left:
            self.done.set_result(None)

    def forget(self) -> None:
        """Let the call end: what still comes is dropped, an error has been seen."""
        if not self.done.cancel() and not self.done.cancelled():
            self.done.exception()
