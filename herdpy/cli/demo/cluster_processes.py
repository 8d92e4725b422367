"""ClusterProcesses: `herdpy cluster up` as a child, each of whose processes is to be killed."""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bookie.runtime.os_child_process import ChildProcess
from bookie.runtime.os_executors import run
from herdpy.cli.cluster.options import herdpy_command
from herdpy.cluster.status import ClusterStatus, TablespaceStatus, read_status
from herdpy.errors import OperationalError
from herdpy.node.place import ClusterPlace, as_herdpy_errors

_LIMIT_S = 180.0
_LOOK_S = 0.02
_ANSWER_S = 5.0
_GRACE_S = 30.0
_READY = {"node": "stop with Ctrl-C", "bookie": " serves zk+"}
"""What a process prints when it is registered."""


class Leader(NamedTuple):
    node: str
    epoch: int


class ClusterProcesses:
    """See the module. close() in any case. One thread."""

    def __init__(self, directory: Path) -> None:
        """Begin to start a cluster whose data and logs are in directory."""
        self._directory = directory
        command = herdpy_command("cluster", "up", "--json", "--data", str(directory / "data"))
        self._up = ChildProcess(command, directory / "up.log")
        self._programs: dict[str, dict[str, Any]] = {}
        self._again: dict[str, ChildProcess] = {}
        """Those that were started again, by name."""
        self.dsn = ""
        self._zookeeper = self._root = self._tablespace = ""

    def wait_started(self) -> None:
        """Wait until a leader serves; OperationalError with what was said instead."""

        def find() -> dict[str, Any] | None:
            if self._up.exit_code() is not None:
                raise OperationalError(
                    f"the cluster did not start:\n{self._up.log_tail()}", sqlstate="58000"
                )
            lines = self._up.printed().splitlines(keepends=True)
            return next((json.loads(x) for x in lines if x[:1] == "{" and x[-1] == "\n"), None)

        record = wait_for(find, "a cluster")
        self.dsn = record["dsn"]
        self._zookeeper, self._root = record["zookeeper"], record["root"]
        self._tablespace = record["tablespace"]
        self._programs = {each["name"]: each for each in record["processes"]}

    @property
    def programs(self) -> list[dict[str, Any]]:
        """What `herdpy cluster up --json` says of each process."""
        return list(self._programs.values())

    def leader(self, not_under: int = 0) -> Leader:
        """Wait for a leader whose epoch is above not_under."""

        def find() -> Leader | None:
            with suppress(OperationalError):
                for each in self._tablespaces():
                    is_it = each.name == self._tablespace and each.epoch > not_under
                    if is_it and each.leader is not None and each.leader == each.named:
                        return Leader(each.leader, each.epoch)
            return None

        return wait_for(find, "a leader")

    def _tablespaces(self) -> tuple[TablespaceStatus, ...]:
        async def look() -> ClusterStatus:
            place = ClusterPlace(self._zookeeper, self._root)
            async with place.session(connect_timeout_s=_ANSWER_S) as store:
                return await read_status(store, self._root, patience_s=_ANSWER_S)

        with as_herdpy_errors("the cluster's status"):
            return tuple(run(look()).tablespaces)

    def names(self, kind: str) -> list[str]:
        return [name for name, program in self._programs.items() if program["kind"] == kind]

    def pid(self, name: str) -> int:
        return self._programs[name]["pid"]

    def kill(self, *names: str) -> None:
        """End processes by SIGKILL."""
        for name in names:
            self._signal(name, signal.SIGKILL)

    def terminate(self, name: str) -> None:
        """End a node in good order, and wait for that."""
        self._signal(name, signal.SIGTERM)
        wait_for(lambda: not self._is_running(name), f"the end of {name}")

    def start(self, *names: str) -> None:
        """Start again what has ended, by its command, and wait until it is registered.

        OperationalError: one has ended at once.
        """
        for name in names:
            wait_for(lambda name=name: not self._is_running(name), f"the end of {name}")
            program = self._programs[name]
            child = ChildProcess(program["command"], Path(program["log"]))
            self._again[name] = child
            program["pid"] = child.pid
        for name in names:
            wait_for(lambda name=name: self._is_ready(name), f"{name} to be registered")

    def _is_ready(self, name: str) -> bool:
        child = self._again[name]
        if child.exit_code() is not None:
            raise OperationalError(f"{name} ended:\n{child.log_tail()}", sqlstate="58000")
        return _READY[self._programs[name]["kind"]] in child.printed()

    def _signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.pid(name), number)

    def _is_running(self, name: str) -> bool:
        child = self._again.get(name)
        if child is not None:
            return child.exit_code() is None
        try:
            # Of a child's child, which its parent reaps within a moment.
            os.kill(self.pid(name), 0)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """End everything; repeatable."""
        for kind in ("node", "bookie"):
            for name in self.names(kind):
                if name in self._again:
                    self._again[name].stop(_GRACE_S)
        self._up.stop(_GRACE_S)


def wait_for(find: Callable[[], Any], what: str) -> Any:
    """Return what find() finds, as soon as that is something; OperationalError after minutes."""
    end_s = time.monotonic() + _LIMIT_S
    while not (found := find()):
        if time.monotonic() > end_s:
            raise OperationalError(
                f"expected {what}, found none in {_LIMIT_S:g} s", sqlstate="57P03"
            )
        time.sleep(_LOOK_S)
    return found
