"""The processes of a cluster that `herdpy cluster up` runs here, for the commands that end them.

`up` writes running.json into its data directory once all processes run, and removes it at its end.
Each process stands there with its pid and its start: a pid may be another process's by now, which
gets no signal.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from herdpy.cluster.json_nodes import read_node
from herdpy.errors import OperationalError, ProgrammingError

FORMAT = 1
_FILE = "running.json"
_LOOK_S = 0.02
_END_LIMIT_S = 180.0
"""For all of a cluster to end in good order."""
_KILL_LIMIT_S = 30.0
_START_FIELD = 19
"""In /proc/<pid>/stat, counted from behind the program's name."""


class RunningProgram(msgspec.Struct, frozen=True, kw_only=True):
    """One process."""

    name: str
    pid: int
    start: str
    """What start_of() said of it."""


class RunningCluster(msgspec.Struct, frozen=True, kw_only=True):
    """What running.json has."""

    format: int = FORMAT
    up: RunningProgram
    """`herdpy cluster up` itself, which ends the others in their order."""
    programs: tuple[RunningProgram, ...]


def start_of(pid: int) -> str | None:
    """Return when a process began, in any text that tells it from others; None: it has ended."""
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        state, *fields = stat.rpartition(")")[2].split()
        return None if state == "Z" else fields[_START_FIELD - 1]
    command = ["/bin/ps", "-o", "lstart=,state=", "-p", str(pid)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603 - numbers
    return None if not said or said.split()[-1].startswith("Z") else said.rpartition(" ")[0]


def write_running(directory: Path, programs: Iterable[tuple[str, int]]) -> None:
    """Write down that this process runs these (name, pid); not those that have ended."""
    found = RunningCluster(
        up=RunningProgram(name="up", pid=os.getpid(), start=start_of(os.getpid()) or ""),
        programs=tuple(
            RunningProgram(name=name, pid=pid, start=start)
            for name, pid in programs
            if (start := start_of(pid)) is not None
        ),
    )
    new = directory / f"{_FILE}.new"
    new.write_bytes(msgspec.json.encode(found))
    new.replace(directory / _FILE)


def forget_running(directory: Path) -> None:
    """Remove what write_running() has written; repeatable."""
    (directory / _FILE).unlink(missing_ok=True)


def read_running(directory: Path) -> RunningCluster:
    """Return which cluster runs in a directory; OperationalError 58P01: none does."""
    path = directory / _FILE
    try:
        data = path.read_bytes()
    except OSError:
        raise OperationalError(
            f"{path}: expected the processes of a cluster that runs, found none",
            sqlstate="58P01",
            hint="name the --data of `herdpy cluster up`, which prints it when all processes run",
        ) from None
    return read_node(data, str(path), RunningCluster, FORMAT, "the processes of a cluster")


def kill_program(directory: Path, name: str) -> RunningProgram:
    """End one process by SIGKILL, and wait until it is gone.

    ProgrammingError 22023: the cluster has none of the name; OperationalError 55000: it has ended.
    """
    running = read_running(directory)
    names = [each.name for each in running.programs]
    if name not in names:
        raise ProgrammingError(
            f"expected a process of the cluster ({', '.join(names)}), found {name[:80]!r}",
            sqlstate="22023",
        )
    program = running.programs[names.index(name)]
    _signal(program, signal.SIGKILL)
    _wait_end(program, _KILL_LIMIT_S)
    return program


def stop_cluster(directory: Path) -> None:
    """End all processes in good order, and wait for that; OperationalError 55000: it has ended."""
    running = read_running(directory)
    _signal(running.up, signal.SIGTERM)
    _wait_end(running.up, _END_LIMIT_S)


def _signal(program: RunningProgram, number: signal.Signals) -> None:
    """Send a signal to the very process that was written down."""
    try:
        if not hasattr(os, "pidfd_open"):
            _check(program)
            os.kill(program.pid, number)
            return
        # It stays that process's, whatever becomes of the pid.
        handle = os.pidfd_open(program.pid)
        try:
            _check(program)
            signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)
    except ProcessLookupError:
        raise _ended(program) from None


def _check(program: RunningProgram) -> None:
    if start_of(program.pid) != program.start:
        raise _ended(program)


def _ended(program: RunningProgram) -> OperationalError:
    return OperationalError(
        f"{program.name} (pid {program.pid}) has ended; no process got a signal",
        sqlstate="55000",
        hint="a process that was started again by hand is ended by hand",
    )


def _wait_end(program: RunningProgram, limit_s: float) -> None:
    end_s = time.monotonic() + limit_s
    while start_of(program.pid) == program.start:
        if time.monotonic() > end_s:
            raise OperationalError(
                f"{program.name} (pid {program.pid}) has the signal, and has not ended in "
                f"{limit_s:g} s",
                sqlstate="57P03",
            )
        time.sleep(_LOOK_S)
