"""The leases of load()s: one for all at one state, in the hands of the application's keeper.

Runs in processes of the planner, which come and go; what outlives them is keeper.py, one process
for an application, found by a socket named for the application's JVM. Without one, as in a program
that makes readers by itself, a lease is taken for each load() and ends by its seconds.
"""

import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import herdpy
from pyspark_herdpy.options import Options, of_leader, wrong

if TYPE_CHECKING:
    from herdpy.driver.leases import SnapshotLease

_KEEPER = Path(__file__).with_name("keeper.py")
_CALL_S = 10.0
_PAIR = 2
FRAMES_MAX = 10_000
"""How many DataFrames are known; the plans of one that is forgotten take leases of their own."""
_PATH_BYTES_MAX = 100
"""Of a Unix socket's path, on every system."""
_DAEMON = "pyspark.daemon"


class _Application(NamedTuple):
    """A Spark application on this machine, as one of its planners sees it."""

    jvm: int
    watched: int
    """A process that ends with the application: the JVM may serve another one behind it."""


def take(
    connection: herdpy.Connection, options: Options, position: str | None
) -> "tuple[SnapshotLease, bool]":
    """Return the application's lease of what is committed now, or a new one, and whether it is one.

    `position`: up to which it has everything; None: none. 53400: there are too many; 22023: the
    database is not there yet.
    """
    application = _application()
    if application is None:
        return _taken(connection, options, position, None), True
    said: dict[str, Any] = {"url": of_leader(options.url), "password": options.password}
    found = _ask(application, {**said, "do": "share", "seconds": options.lease_s}).get("lease")
    lease = _taken(connection, options, position, found)
    _ask(application, {**said, "do": "note", "lease": lease.id, "seconds": lease.seconds})
    return lease, lease.id != found


def _taken(
    connection: herdpy.Connection, options: Options, position: str | None, shared: str | None
) -> "SnapshotLease":
    """Return the shared lease, or a new one; 22023: the database is not at the position yet."""
    if position is not None:
        connection.execute("SELECT 1")  # its answer tells where the log is; a lease would move it
        if not _reaches(connection.position, position):
            raise wrong(
                f'option "snapshot": the database is at {connection.position}, and not at'
                f" {position} yet",
                "That is the position of another server, or of one that was restored since: ask it"
                " for herdpy.spark.commit_position().",
            )
    lease = connection.lease(options.lease_s, reuse=shared)
    if position is not None and lease.id == shared and not _reaches(lease.position, position):
        # Nothing was committed since it was taken, but the log has gone on.
        lease = connection.lease(options.lease_s)
    return lease


def _reaches(position: str, wanted: str) -> bool:
    """Tell whether a state has everything up to a position."""
    found, asked = ([int(part) for part in text.split(".")] for text in (position, wanted))
    return found >= asked


def agreed(frame: str, lease: str | None) -> str | None:
    """Return the lease at which all plans of a DataFrame read: the first that one of them named.

    lease None: one that only asks. Without an application it is this plan's own.
    """
    application = _application()
    if application is not None:
        with suppress(OSError):  # there is no folder, which is no reason for a read to fail
            return first_named(_own_folder(), application.jvm, frame, lease)
    return lease


def first_named(folder: Path, jvm: int, frame: str, lease: str | None) -> str | None:
    """Return a DataFrame's lease as a file of the application has it; note this one if none is.

    A file, because a DataFrame whose keeper has died must not read at a newer lease. Any process of
    the application may call, at the same time as others: the file is locked. OSError.
    """
    for path in folder.glob("*.frames"):
        with suppress(PermissionError):
            try:
                os.kill(int(path.stem), 0)
            except ProcessLookupError:  # the application has ended
                path.unlink(missing_ok=True)
    with Path(folder, f"{jvm}.frames").open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        file.seek(0)
        # A planner that was killed while it wrote, or a full disk, leaves a line that is no pair.
        pairs = (line.split() for line in file if line.endswith("\n"))
        known = {pair[0]: pair[1] for pair in pairs if len(pair) == _PAIR}
        if lease is not None and frame not in known:
            if len(known) >= FRAMES_MAX:
                file.truncate(0)
                file.writelines(f"{key} {value}\n" for key, value in list(known.items())[1:])
            file.write(f"\n{frame} {lease}\n")  # on a line of its own, behind such a one
        return known.get(frame, lease)


def release(options: Options) -> int:
    """End the application's leases on a server; return how many there were."""
    application = _application()
    if application is None:
        return 0
    count = 0
    leases: list[str] = _ask(application, {"do": "leases", "url": of_leader(options.url)}).get(
        "leases", []
    )
    with closing(options.connect()) as connection:
        for lease in leases:
            count += connection.release_lease(lease)
    _ask(application, {"do": "forget", "leases": leases})
    return count


def _application() -> _Application | None:
    """Return the application whose planner this process is; None: it is none."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    module = getattr(spec, "name", "")
    parent = os.getppid()
    if module == _DAEMON:
        jvm, command = _process(parent)
        # A planner whose daemon has died is another process's child by now, and no application's.
        return _Application(jvm, parent) if _DAEMON in command else None
    return _Application(parent, parent) if module.startswith("pyspark.") else None


def _process(pid: int) -> tuple[int, str]:
    """Return the parent of a process and its command line; (0, ""): it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        args = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[1]), args
    except OSError:  # it has ended, or this is no Linux
        command = ["ps", "-o", "ppid=,args=", "-p", str(pid)]
    try:
        found = subprocess.run(  # noqa: S603 - a number of our own
            command, capture_output=True, check=False, text=True
        )
    except OSError:  # some systems' images have no ps
        return 0, ""
    parent, _, args = found.stdout.strip().partition(" ")
    return (int(parent), args) if parent.isdigit() else (0, "")


def _ask(application: _Application, request: dict[str, Any]) -> dict[str, Any]:
    """Return the keeper's answer; {}: there is no keeper, which is no reason for a read to fail."""
    try:
        with closing(_call(application)) as call:
            call.sendall(json.dumps(request).encode() + b"\n")
            with call.makefile("rb") as lines:
                found = json.loads(lines.readline())
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return found if isinstance(found, dict) else {}


def _call(application: _Application) -> socket.socket:
    """Return a connection to the keeper, which is started if there is none."""
    folder = _own_folder()
    path = folder / f"{application.jvm}.socket"
    with suppress(OSError):
        return _connected(path)
    with Path(folder, f"{application.jvm}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        with suppress(OSError):
            return _connected(path)  # another planner was first
        _start(path, application.watched)
        return _connected(path)


def _connected(path: Path) -> socket.socket:
    call = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    call.settimeout(_CALL_S)
    try:
        call.connect(str(path))
    except BaseException:
        call.close()
        raise
    return call


def _start(path: Path, watched: int) -> None:
    """Start the keeper, a process that no planner and no terminal takes with it."""
    paths = os.pathsep.join(filter(None, sys.path))
    keeper = subprocess.Popen(  # noqa: S603 - a file of this package
        [sys.executable, "-P", str(_KEEPER), str(path), str(watched)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": paths},
        cwd="/",
    )
    assert keeper.stdout is not None
    with keeper.stdout:
        keeper.stdout.readline()  # that it is ready, or nothing when it failed


def _own_folder() -> Path:
    """Return a folder of this user's that no other one can look into; OSError: there is none."""
    name = f"herdpy-spark-{os.getuid()}"
    folder = Path(tempfile.gettempdir(), name)
    if len(str(folder).encode()) + 32 > _PATH_BYTES_MAX:
        folder = Path("/tmp", name)  # noqa: S108 - made for this user alone, below
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not this user's alone")
    return folder
