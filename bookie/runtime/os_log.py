"""LineWriter: lines that are written by a thread of their own, so that who has one never waits.

What logs is often a loop, which everything else waits for, and what is written to may take nothing:
a pipe whose reader is held up, a terminal that is (Ctrl-S), a disk. So lines wait here, up to a
number of bytes. Those beyond it are lost, as those are that cannot be written; both are counted,
and the next line that is written has one before it that says how many. LogLines is a handler of
logging over one.
"""

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bookie.runtime.drivers import Bell

WAITING_BYTES_MAX = 1024 * 1024
"""Some hundreds of the longest lines, as a burst of slow statements has."""
_END_S = 1.0
"""How long one of the last lines may take to go when the process ends."""
_END_MAX_S = 5.0
"""How long all of them may: a reader may be slow, and the process has to end."""


class _Line(NamedTuple):
    data: bytes
    told_count: int = 0
    """How many lost lines this one tells of; 0: it is one that was given."""
    step: Callable[[], bool] | None = None
    """What is done in its place; it returns whether what follows goes elsewhere."""


class LineWriter:
    """Writes to a file descriptor, which stays its owner's. Any thread.

    `loss_line` makes the line that tells of so many lost ones. `on_error` is called by the thread
    that writes when that begins to fail, and with None when it goes again.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        name: str,
        bytes_max: int,
        loss_line: Callable[[int], bytes],
        on_error: Callable[[OSError | None], None] = lambda _error: None,
        end_max_s: float = _END_MAX_S,
    ) -> None:
        # Constant after __init__.
        self.name = name
        self.bytes_max = bytes_max
        self._descriptor = descriptor
        self._loss_line = loss_line
        self._on_error = on_error
        self._end_max_s = end_max_s
        self._has_lines = Bell()
        self._has_written = Bell()
        # Own lock; reentrant, as what the collector of garbage calls inside of it may log, too.
        self._lock = threading.RLock()
        self._waiting: deque[_Line] = deque()
        """The first one is being written."""
        self.waiting_bytes = 0
        self.lost_count = 0
        """Since it was made."""
        self._untold_count = 0
        """Those that no line tells of."""
        self._is_started = False
        self._is_closed = False
        self._worker: threading.Thread | None = None
        # The worker's.
        self._is_failing = False
        self._is_torn = False
        """The last line was written in part."""

    def put(self, data: bytes) -> bool:
        """Have a line written, with its end; False: it is lost."""
        with self._lock:
            if self._is_closed or self.waiting_bytes + len(data) > self.bytes_max:
                self._lose(1)
                return False
            self._tell_of_loss()
            self._add(_Line(data))
        self._wake()
        return True

    def between(self, step: Callable[[], bool]) -> None:
        """Have the thread that writes do something behind the lines that wait now.

        It returns whether the descriptor is that of something else from now on.
        """
        with self._lock:
            # The first one may be under way, and have looked at the world before now.
            if self._is_closed or (len(self._waiting) > 1 and self._waiting[-1].step is not None):
                return
            self._add(_Line(b"", step=step))
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            is_first, self._is_started = not self._is_started, True
        if is_first:
            self._worker = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._worker.start()
        self._has_lines.ring()

    @property
    def waiting_count(self) -> int:
        """Lines that are not written yet."""
        return len(self._waiting)

    def _add(self, line: _Line) -> None:
        self._waiting.append(line)
        self.waiting_bytes += len(line.data)

    def _lose(self, count: int) -> None:
        self.lost_count += count
        self._untold_count += count

    def _tell_of_loss(self) -> None:
        """Add what tells of the lines that were lost since it was told last."""
        count, self._untold_count = self._untold_count, 0
        if count:
            self._add(_Line(self._loss_line(count), count))

    def _run(self) -> None:
        while not self._is_closed:
            self._has_lines.wait()
            while self._waiting:
                line = self._waiting[0]
                is_written = self._is_done(line)
                with self._lock:
                    self._waiting.popleft()
                    self.waiting_bytes -= len(line.data)
                    if not is_written and line.told_count:
                        self._untold_count += line.told_count
                    elif not is_written:
                        self._lose(1)
                    if not self._waiting:
                        # Anew, as what logs inside of the lock may have been counted wrong.
                        self.waiting_bytes = 0
                        if is_written:  # else it would be tried without end
                            self._tell_of_loss()
                self._has_written.ring()

    def _is_done(self, line: _Line) -> bool:
        if line.step is not None:
            if line.step():
                self._is_torn = False
            return True
        try:
            self._write(b"\n" + line.data if self._is_torn else line.data)
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                self._on_error(error)
            return False
        if self._is_failing:
            self._is_failing = False
            self._on_error(None)
        return True

    def _write(self, data: bytes) -> None:
        while data:
            # It may be a terminal that another program has set not to block.
            _writable(self._descriptor)
            count = os.write(self._descriptor, data)
            self._is_torn = count < len(data)  # should the rest fail
            data = data[count:]

    def flush(self) -> None:
        """Wait until all is written, as long as something is, up to end_max_s.

        One thread at a time.
        """
        until_s = time.monotonic() + self._end_max_s
        while self._waiting and (left_s := until_s - time.monotonic()) > 0:
            if not self._has_written.wait(min(left_s, _END_S)):
                return

    def close(self) -> bool:
        """Write what waits and end; repeatable. False: what it goes to takes none, or too slowly.

        Then the thread that writes is left behind, which still uses the descriptor.
        """
        self.flush()
        with self._lock:
            self._is_closed = True
            is_over = not self._waiting
        self._has_lines.ring()
        if self._worker is not None and is_over:
            self._worker.join()
        return is_over


class LogLines(logging.Handler):
    """Writes to a file descriptor, which stays its owner's. Any thread."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.lines = LineWriter(
            descriptor, name="log", bytes_max=WAITING_BYTES_MAX, loss_line=_loss_line
        )

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n"
        except Exception as error:  # noqa: BLE001 - a bug of who logs, which goes on
            line = f"{record.levelname} {record.name}: this cannot be formatted: {error!r}\n"
        self.lines.put(line.encode(errors="backslashreplace"))

    def flush(self) -> None:
        """Wait until all is written, as LineWriter does; one thread at a time."""
        self.lines.flush()

    def close(self) -> None:
        """Write what waits and end; repeatable. A thread that cannot write is left behind."""
        self.lines.close()
        super().close()


def _loss_line(count: int) -> bytes:
    return f"({count} lines of the log are lost: what they go to took none)\n".encode()


def takes_a_line(descriptor: int) -> bool:
    """Return whether a short line can be written now, without a wait."""
    try:
        return _writable(descriptor, wait_ms=0)
    except (OSError, ValueError):
        return False


def _writable(descriptor: int, wait_ms: int | None = None) -> bool:
    """Wait until a write needs no wait, or would fail; None: without an end.

    Not by select(), which fails for descriptors from 1,024 on.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(not found & select.POLLNVAL for _, found in poll.poll(wait_ms))
