"""awake_processors: no processor sleeps, and none of the contenders waits for what keeps it awake.

One process for each processor runs when nothing else does. The lowest priority alone is not
enough: where the kernel shares processors between sessions first (autogroups), it counts within a
session only, and PostgreSQL's backends, sessions of their own, waited 4 ms for one process of the
priority 19. So these processes are a group of their own that is idle as a whole (cpu.idle).
"""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_PARENTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
"""Of version 1, and of version 2."""
_SPIN = """
import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while True: pass
"""


class NoIdleGroupError(Exception):
    """The kernel or our rights do not allow it; the text says what is missing."""


@contextmanager
def awake_processors() -> Generator[None]:
    """Keep all processors of this process awake."""
    with _idle_group() as members:
        spinners: list[subprocess.Popen[bytes]] = []
        try:
            for processor in sorted(os.sched_getaffinity(0)):
                spinners.append(subprocess.Popen([sys.executable, "-c", _SPIN]))
                members.write_text(str(spinners[-1].pid))
                os.sched_setaffinity(spinners[-1].pid, {processor})
            yield
        finally:
            for spinner in spinners:
                spinner.kill()
                spinner.wait()


@contextmanager
def _idle_group() -> Generator[Path]:
    """Give the file that takes the members of a group which runs when nothing else does."""
    parent = next(each for each in _PARENTS if each.is_dir() or each is _PARENTS[-1])
    group = parent / f"bench-awake-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise NoIdleGroupError(f"no group for processes in {parent}: {error}") from error
    try:
        idle = group / "cpu.idle"
        if not idle.exists():
            raise NoIdleGroupError(
                f"{idle} is missing: expected Linux 5.15, and its cpu controller"
            )
        idle.write_text("1")
        yield group / "cgroup.procs"
    finally:
        group.rmdir()
