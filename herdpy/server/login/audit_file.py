"""AuditFile: the file of the audit log, which a thread of its own writes.

Events come from the server's loop, which a disk that is slow, or a pipe of which nothing is read,
must not hold up. So lines wait, up to WAITING_BYTES_MAX; what is beyond it, or cannot be written,
is lost, and the server goes on: an audit log that no one reads would else shut all users out. No
line is lost in silence: the server's log says when that begins and ends, the next line that is
written is an event `lines_lost` with the number, and it is counted (syslimits, /metrics).
"""

import logging
import os

from bookie.runtime.interfaces import Clock
from bookie.runtime.os_log import LineWriter
from herdpy.errors import OperationalError
from herdpy.server.login.audit import line_of

_log = logging.getLogger(__name__)
WAITING_BYTES_MAX = 16 * 1024 * 1024
"""Some 60,000 events: more than the log may have, as a lost line of it is a greater loss."""


class AuditFile:
    """Only its owner may read it, and it grows. Any thread."""

    def __init__(self, path: str, clock: Clock, bytes_max: int = WAITING_BYTES_MAX) -> None:
        """OSError: it cannot be written."""
        self._path = path
        self._descriptor = _open(path)
        self._is_losing = False
        """It was full, and lines wait since."""
        self.lines = LineWriter(
            self._descriptor,
            name="audit",
            bytes_max=bytes_max,
            loss_line=lambda count: line_of(clock, "lines_lost", count=count),
            on_error=self._on_error,
        )

    def write(self, line: bytes) -> None:
        """Have a whole line written; never waits."""
        if self._is_losing and not self.lines.waiting_count:
            self._is_losing = False
            _log.warning("the audit log %s takes lines again, none waits", self._path)
        if not self.lines.put(line) and not self._is_losing:
            self._is_losing = True
            _log.error(
                "the audit log %s is full: %s bytes of lines wait, as what it goes to takes none; "
                "events are lost, and counted, until it does",
                self._path,
                f"{self.lines.waiting_bytes:,}",
            )

    def _on_error(self, error: OSError | None) -> None:
        if error is None:
            _log.warning("the audit log %s is written again", self._path)
        else:
            _log.error(
                "the audit log %s cannot be written, events are lost, and counted, until it can: "
                "%s",
                self._path,
                error,
            )

    def reopen(self) -> None:
        """Go on in a new file where the old one was renamed, behind the lines that wait."""
        self.lines.between(self._reopen)

    def _reopen(self) -> bool:
        try:
            opened = _open(self._path)
            os.dup2(opened, self._descriptor, inheritable=False)
            os.close(opened)
        except OSError as error:
            _log.error("reload: the audit log goes on in the file that it was: %s", error)
            return False
        return True

    def close(self) -> None:
        """Write what waits; what is not taken in time is lost, and said."""
        if self.lines.close():
            os.close(self._descriptor)
        else:  # the thread that writes still has the descriptor
            _log.error(
                "the audit log %s takes no lines, or too slowly: the last %d are lost",
                self._path,
                self.lines.waiting_count,
            )


def open_audit(path: str, clock: Clock) -> AuditFile:
    """Open an audit log; OperationalError 58030: it cannot be written."""
    try:
        return AuditFile(path, clock)
    except OSError as error:
        raise OperationalError(
            f"the audit log {path} cannot be written: {error.strerror}", sqlstate="58030"
        ) from error


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
