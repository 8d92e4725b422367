"""LocalCluster: ZooKeeper, bookies and nodes as processes of this machine.

ZooKeeper and the bookies are those of `bookie local`, which runs as a child; each node is a child
of its own. In the directory: ledgers/ (that of `bookie local`), a folder and a log file for each
node, cluster.json with the ports of the nodes, running.json (running.py), and LOCK, which the
process has that runs it.
"""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bookie.runtime.interfaces import DirectoryLock, DiskLockedError
from bookie.runtime.os_child_process import ChildProcess, python_command
from bookie.runtime.os_process import describe_process
from herdpy.cli.cluster.options import herdpy_command
from herdpy.cli.cluster.running import forget_running, write_running
from herdpy.driver.local import disk_of_directory
from herdpy.errors import CorruptionError, OperationalError

HOST = "127.0.0.1"
ROOT = "/herd"
LEDGERS = "/ledgers"
_PLAN_FILE = "cluster.json"
_LOCK = "LOCK"
_NODE_PORT = 7000
_LOOK_S = 0.05
_START_LIMIT_S = 180.0
"""Of `bookie local`, which may fetch ZooKeeper's jars first."""
_NODE_GRACE_S = 30.0
_LOCAL_GRACE_S = 60.0
_TICKS_OF_SESSION = 10
"""ZooKeeper grants sessions from two of its ticks on, and ends them at the next tick: a tenth later
at most."""


class Program(NamedTuple):
    """One process of the cluster."""

    name: str
    kind: str
    """zookeeper, bookie or node."""
    pid: int
    address: str
    command: tuple[str, ...]
    """What starts it again."""
    log: Path


class LocalCluster:
    """See the module. close() ends all that was started, whatever became of it."""

    def __init__(
        self,
        directory: Path,
        *,
        node_count: int,
        bookie_count: int,
        session_timeout_s: float,
        assignments: Sequence[str],
    ) -> None:
        """OperationalError: the directory holds something else (58P01), or runs (55006).

        Nothing was written then.
        """
        self.directory = directory
        self._bookie_count = bookie_count
        self._session_timeout_s = session_timeout_s
        self._assignments = assignments
        self._lock = _locked(directory)
        try:
            self._ports = _ports(directory, node_count)
        except BaseException:
            self._lock.close()
            raise
        self._ledgers: ChildProcess | None = None
        self._nodes: dict[str, ChildProcess] = {}
        self.zookeeper = ""
        self.programs: dict[str, Program] = {}
        """By name: zookeeper, bookie-1, n1, ..."""
        self._ended: set[str] = set()

    @property
    def node_ids(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, len(self._ports) + 1))

    async def start_ledgers(self) -> None:
        """Start ZooKeeper and the bookies, and wait until they are there; OperationalError."""
        folder = self.directory / "ledgers"
        tick_ms = round(self._session_timeout_s * 1000 / _TICKS_OF_SESSION)
        command = python_command(
            "bookie.admin.commands", "local", str(self._bookie_count),
            "--data", str(folder), "--tick-ms", str(tick_ms), "--json",
        )  # fmt: skip
        child = self._ledgers = ChildProcess(
            command, self.directory / "ledgers.log", _environment()
        )
        end_s = asyncio.get_running_loop().time() + _START_LIMIT_S
        while (found := _record(child.printed(), "zookeeper")) is None:
            is_too_late = asyncio.get_running_loop().time() > end_s
            if is_too_late or child.exit_code() is not None:
                raise _not_started(child)
            await asyncio.sleep(_LOOK_S)
        self._take(folder, found)

    def _take(self, folder: Path, found: dict[str, Any]) -> None:
        self.zookeeper = found["zookeeper"]
        self.programs["zookeeper"] = Program(
            "zookeeper",
            "zookeeper",
            found["zookeeper_pid"],
            found["zookeeper"],
            tuple(found["zookeeper_command"]),
            folder / "zookeeper" / "zookeeper.log",
        )
        for number, bookie in enumerate(found["bookies"], 1):
            name = f"bookie-{number}"
            self.programs[name] = Program(
                name,
                "bookie",
                bookie["pid"],
                bookie["bookie_id"],
                tuple(bookie["command"]),
                folder / f"{name}.log",
            )

    def start_nodes(self) -> None:
        for node_id, port in zip(self.node_ids, self._ports, strict=True):
            command = herdpy_command(
                "node", "--zookeeper", self.zookeeper, "--root", ROOT,
                "--data", str(self.directory / node_id), "--id", node_id,
                "--host", HOST, "--port", str(port),
                "--session-timeout", f"{self._session_timeout_s:g}",
                *(part for text in self._assignments for part in ("--set", text)),
            )  # fmt: skip
            log = self.directory / f"{node_id}.log"
            child = self._nodes[node_id] = ChildProcess(command, log, _environment())
            self.programs[node_id] = Program(
                node_id, "node", child.pid, f"{HOST}:{port}", tuple(command), log
            )
        write_running(self.directory, [(each.name, each.pid) for each in self.programs.values()])

    def log_tail(self, node_id: str) -> str:
        return self._nodes[node_id].log_tail()

    def ended(self) -> list[Program]:
        """Return those that have ended by themselves since the last call."""
        found = [
            program
            for name, program in self.programs.items()
            if name not in self._ended and not self._is_running(program)
        ]
        self._ended.update(program.name for program in found)
        return found

    def _is_running(self, program: Program) -> bool:
        child = self._nodes.get(program.name)
        if child is not None:
            return child.exit_code() is None
        try:
            os.kill(program.pid, 0)  # a child's child, which its parent reaps
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Stop the nodes, all at once, then the bookies and ZooKeeper; repeatable."""
        forget_running(self.directory)
        nodes = list(self._nodes.values())
        for child in nodes:
            child.signal(signal.SIGTERM)
        for child in nodes:
            child.stop(_NODE_GRACE_S)
        if self._ledgers is not None:
            self._ledgers.stop(_LOCAL_GRACE_S)
        self._lock.close()


def _environment() -> dict[str, str]:
    """Return the variables for the children: what the shell is set up for is another cluster."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HERDPY_", "BOOKIE_"))
    }


def _record(printed: str, key: str) -> dict[str, Any] | None:
    """Return the line of JSON with that key: `bookie local` has "zookeeper" or "error" in one."""
    for line in printed.splitlines():
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue  # not all of it is there yet
            if key in found:
                return found
    return None


def _not_started(child: ChildProcess) -> OperationalError:
    failure = _record(child.printed(), "error")
    said = f"\n{child.log_tail()}".rstrip() if failure is None else f" {failure['message']}"
    return OperationalError(
        f"cluster up: ZooKeeper and bookies did not start (log: {child.log}):{said}",
        sqlstate="58000",
    )


def _locked(directory: Path) -> DirectoryLock:
    disk = disk_of_directory(str(directory))
    found = sorted(disk.list(""))
    if set(found) - {_LOCK} and _PLAN_FILE not in found:  # before the lock makes a file in it
        raise OperationalError(
            f"{directory}: expected an empty directory or that of an earlier run, found "
            f"{found[0]!r} in it",
            sqlstate="58P01",
            hint="name another one with --data; nothing was changed",
        )
    try:
        return disk.lock(_LOCK, describe_process())
    except DiskLockedError as error:
        raise OperationalError(
            f"{directory}: a cluster runs there already, of {error.owner or 'another process'}",
            sqlstate="55006",
            hint="stop that one, or name another directory with --data",
        ) from None


def _ports(directory: Path, count: int) -> list[int]:
    """Return the nodes' ports that the directory had before, and others for nodes that are new."""
    file = directory / _PLAN_FILE
    ports: list[int] = []
    if file.exists():
        try:
            ports = [int(port) for port in json.loads(file.read_text())["node_ports"]]
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptionError(
                f"{file}: expected the ports of an earlier run ({error})",
                hint="restore it, or name another directory with --data",
            ) from None
    while len(ports) < count:
        ports.append(_free(_NODE_PORT + len(ports), ports))
    file.write_text(json.dumps({"node_ports": ports}))
    return ports[:count]


def _free(wished: int, taken: list[int]) -> int:
    for port in (wished, 0, 0, 0):
        with socket.socket() as probe:
            # As a server would: what only waits for late packets is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            found = probe.getsockname()[1]
        if found not in taken:
            return found
    raise OperationalError("no port of loopback is free", sqlstate="58000")
