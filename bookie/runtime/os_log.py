"""LogLines: a handler of logging that never waits: its lines are written by a thread of its own.

What logs is often a loop, which everything else waits for, and what is written to may take nothing:
a pipe whose reader is held up, a terminal that is (Ctrl-S), a disk. So lines wait here, up to
WAITING_BYTES_MAX. Those beyond it are lost, and the next line that is written says how many.
"""

import logging
import os
import select
import threading
from collections import deque
from contextlib import suppress

from bookie.runtime.drivers import Bell

WAITING_BYTES_MAX = 1024 * 1024
"""Some hundreds of the longest lines, as a burst of slow statements has."""
_END_S = 1.0
"""How long the last lines may take to go when the process ends."""


class LogLines(logging.Handler):
    """Writes to a file descriptor, which stays its owner's. Any thread."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        # Constant after __init__.
        self._descriptor = descriptor
        self._has_lines = Bell()
        self._has_written = Bell()
        # Own lock; reentrant, as what the collector of garbage calls inside of it may log, too.
        self._lock = threading.RLock()
        self._waiting: deque[bytes] = deque()
        """The first one is being written."""
        self._waiting_bytes = 0
        self._lost_count = 0
        self._is_started = False
        self._is_closed = False
        self._worker: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n"
        except Exception as error:  # noqa: BLE001 - a bug of who logs, which goes on
            line = f"{record.levelname} {record.name}: this cannot be formatted: {error!r}\n"
        data = line.encode(errors="backslashreplace")
        with self._lock:
            if self._is_closed or self._waiting_bytes + len(data) > WAITING_BYTES_MAX:
                self._lost_count += 1
                return
            self._put(self._loss() + data)
            is_first, self._is_started = not self._is_started, True
        if is_first:
            self._worker = threading.Thread(target=self._run, name="log", daemon=True)
            self._worker.start()
        self._has_lines.ring()

    def _put(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)

    def _loss(self) -> bytes:
        """Return what tells of the lines that were lost since it was told last."""
        count, self._lost_count = self._lost_count, 0
        what = "what they go to took none"
        return f"({count} lines of the log are lost: {what})\n".encode() if count else b""

    def _run(self) -> None:
        while not self._is_closed:
            self._has_lines.wait()
            while self._waiting:
                data = self._waiting[0]
                with suppress(OSError):  # there is no other place to say it
                    self._write(data)
                with self._lock:
                    self._waiting.popleft()
                    self._waiting_bytes -= len(data)
                    if not self._waiting:
                        # Anew, as what logs inside of the lock may have been counted wrong.
                        self._waiting_bytes = 0
                        if self._lost_count:
                            self._put(self._loss())
                self._has_written.ring()

    def _write(self, data: bytes) -> None:
        while data:
            # It may be a terminal that another program has set not to block.
            select.select((), (self._descriptor,), ())
            data = data[os.write(self._descriptor, data) :]

    def flush(self) -> None:
        """Wait until all is written, as long as something is; one thread at a time."""
        while self._waiting and self._has_written.wait(_END_S):
            pass

    def close(self) -> None:
        """Write what waits and end; repeatable. A thread that cannot write is left behind."""
        self.flush()
        self._is_closed = True
        self._has_lines.ring()
        if self._worker is not None and not self._waiting:
            self._worker.join()
        super().close()


def takes_a_line(descriptor: int) -> bool:
    """Return whether a short line can be written now, without a wait."""
    try:
        return bool(select.select((), (descriptor,), (), 0)[1])
    except (OSError, ValueError):
        return False
