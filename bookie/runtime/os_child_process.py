"""Processes that live no longer than the program that started them.

A child gets a session of its own, so that Ctrl-C at the terminal reaches only the starter, which
stops its children in the order that suits it. Beside it stands a guard, a shell that waits on a
pipe: when the starter dies in any way, SIGKILL included, the pipe closes and the guard kills the
child. Used from one thread.
"""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_GUARD = 'read _; kill -KILL "$0" 2>/dev/null'
_LOG_TAIL_BYTES = 4000


class ChildProcess:
    """One child, its log file and its guard."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start command; what it prints is appended to `log`."""
        self.command = tuple(command)
        """Of this child: it starts another one like it."""
        self.log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the caller's command, no shell
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        try:
            self._guard = subprocess.Popen(  # noqa: S603 - a constant script, $0 is a number
                ["/bin/sh", "-c", _GUARD, str(self._process.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return None while it runs; minus the signal's number when a signal ended it."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing when it has ended."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; False when timeout_s passed first."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, grace_s: float) -> None:
        """Ask it to end, kill it after grace_s (also when it hangs in SIGSTOP); idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
            if not self.wait(grace_s):
                self._process.kill()
        self._process.wait()
        self._end_guard()

    def kill(self) -> None:
        """End it at once, as a crash would; idempotent."""
        self._process.kill()
        self._process.wait()
        self._end_guard()

    def _end_guard(self) -> None:
        # Killed before its pipe closes: it must not signal a pid that may be another's by now.
        self._guard.kill()
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()

    def printed(self) -> str:
        """Return all that it printed since it started."""
        return self._read(self._log_start)

    def log_tail(self) -> str:
        """Return the end of what it printed since it started."""
        return self._read(max(self._log_start, self.log.stat().st_size - _LOG_TAIL_BYTES)).strip()

    def _read(self, start: int) -> str:
        with self.log.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of ours with this interpreter."""
    return [sys.executable, "-m", module, *arguments]
