"""This process: its identity, its processors, how late its threads' waits end, the calling thread.

The identity is a number that changes in a fork()ed child, and a text for locks. Any thread.
"""

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Generator
from pathlib import Path

forks: list[None] = []
"""One item for each fork() between the first process and this one; only ever grows."""


_ending: list[None] = []


def watch_end() -> None:
    """Have is_ending() tell when the process's exit handlers have come to this one; any thread."""
    atexit.register(_ending.append, None)


def is_ending() -> bool:
    """Return whether the process ends: handlers registered before watch_end() may still run."""
    return bool(_ending)


def process_generation() -> int:
    """Return a number that differs between a process and the children it fork()ed: len(forks).

    The owner of open files compares it with the number seen at open and refuses to go on in a
    child.
    """
    return len(forks)


def processor_count() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def yield_processor() -> None:
    """Let another process run that waits for this processor; returns at once if none does."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()


_USUAL_SLACK_NS = 50_000  # Linux's own
_precise: list[None] = []
"""One item for each thread that has precise_timers()."""


@contextlib.contextmanager
def precise_timers() -> Generator[None]:
    """Have this thread woken when its timed waits end, not up to 50 µs later as Linux has it.

    For the thread that runs the block, as long as it runs. Threads that it starts inherit that, but
    for those of executors (os_executors.py). Elsewhere than on Linux, or without /proc, nothing
    happens; it raises nothing. Source: PR_SET_TIMERSLACK in prctl(2).
    """
    _precise.append(None)
    _set_timer_slack(1)
    try:
        yield
    finally:
        _precise.pop()
        _set_timer_slack(_USUAL_SLACK_NS)


def usual_timers() -> None:
    """Let Linux wake this thread as usual, though one with precise_timers() started it."""
    if _precise:
        _set_timer_slack(_USUAL_SLACK_NS)


def _set_timer_slack(slack_ns: int) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/{threading.get_native_id()}/timerslack_ns").write_text(f"{slack_ns}")


def describe_process() -> str:
    """Return "pid 123, python demo.py": the script's name, without folder and arguments."""
    # Arguments may hold secrets; sys.argv is missing in some embedded interpreters.
    script = (getattr(sys, "argv", None) or [""])[0]
    program = Path(sys.executable or "python").name
    return f"pid {os.getpid()}, {program} {Path(script).name}".rstrip()


def _count_fork() -> None:
    forks.append(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class ThisThread:
    """The thread that made this object, for what a library runs in threads of its own."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread = threading.current_thread()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; False when timeout_s passed first, or it is the thread that calls."""
        if self._thread is threading.current_thread():
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()
