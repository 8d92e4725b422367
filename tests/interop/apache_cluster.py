"""ApacheCluster: our nodes over bookies of Apache BookKeeper; else as tests/fixtures/real_cluster.

Everything is begun by its own command: ZooKeeper, three of Apache's bookies, `herdpy cluster init`,
three of `herdpy node`, `herdpy cluster create`.
"""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from kazoo.client import KazooClient

from bookie.admin.zookeeper_process import HOST, start_zookeeper
from tests.fixtures.bookie_processes import new_cluster
from tests.fixtures.ports import own_port
from tests.fixtures.real_cluster import HERDPY, RealProgram, RunningCluster, wait_for
from tests.interop.apache import ApacheBookie, Release, wait_for_bookies

_LEDGERS = "/ledgers"
_ROOT = "/herd"
_TABLESPACE = "default"
_COUNT = 3
_SESSION_S = 2
_TICK_MS = 200
_ANSWER_S = 5.0


class ApacheCluster(RunningCluster):
    """See the module. Blocking; one thread."""

    def __init__(self, data: Path, release: Release) -> None:
        """Start it, and wait until a leader serves."""
        self._zookeeper = start_zookeeper(data / "zookeeper", own_port(), tick_ms=_TICK_MS)
        hosts = self._zookeeper.hosts
        super().__init__(hosts, _ROOT, _TABLESPACE, f"herd+zk://{hosts}/{_TABLESPACE}")
        self._before: dict[str, int] = {}
        """By bookie: the transaction that made its registration when its life began; 0: none."""
        try:
            self._begin(data, release)
        except BaseException:
            self.abandon()
            raise

    def _begin(self, data: Path, release: Release) -> None:
        self.add(self._of_zookeeper())
        new_cluster(self._zookeeper, _LEDGERS)
        for number in range(1, _COUNT + 1):
            bookie = ApacheBookie(
                release, self.zookeeper, data / f"bookie-{number}",
                root=_LEDGERS, more=f"zkTimeout={_SESSION_S * 1000}\n",
            )  # fmt: skip
            name = f"bookie-{number}"
            self._add(name, "bookie", bookie.bookie_id, bookie.command, bookie.log)
        wait_for_bookies(self.zookeeper, _COUNT, _LEDGERS)
        self._do("cluster", "init", "--ledgers", _LEDGERS)
        ids = [f"n{number}" for number in range(1, _COUNT + 1)]
        for name in ids:
            port = own_port()
            command = [
                *HERDPY, "node", "--zookeeper", self.zookeeper, "--root", _ROOT,
                "--data", str(data / name), "--id", name, "--host", HOST, "--port", str(port),
                "--session-timeout", str(_SESSION_S),
            ]  # fmt: skip
            self._add(name, "node", f"{HOST}:{port}", command, data / f"{name}.log")
        for name in ids:
            self.wait_ready(name)
        self._do("cluster", "create", _TABLESPACE, "--replicas", ",".join(ids))
        self.leader()

    def _of_zookeeper(self) -> dict[str, Any]:
        process = self._zookeeper
        return {
            "name": "zookeeper", "kind": "zookeeper", "address": process.hosts, "pid": process.pid,
            "command": list(process.command), "log": str(process.directory / "zookeeper.log"),
        }  # fmt: skip

    def _add(self, name: str, kind: str, address: str, command: list[str], log: Path) -> None:
        record = {"name": name, "kind": kind, "address": address, "command": command, "log": log}
        self.programs[name] = RealProgram({**record, "pid": 0})
        self.start(name)

    def _do(self, *arguments: str) -> None:
        found = self.command(*arguments)
        assert found.returncode == 0, found.stderr

    def start(self, name: str) -> None:
        program = self.programs[name]
        if program.kind == "bookie":
            self._before[name] = self._registration(program)
        super().start(name)

    def is_registered(self, program: RealProgram) -> bool:
        """See RunningCluster: a bookie's registration outlives it, until its session ends."""
        if program.kind != "bookie":
            return super().is_registered(program)
        return self._registration(program) > self._before[program.name]

    def _registration(self, bookie: RealProgram) -> int:
        with _session(self.zookeeper) as client:
            found = client.exists(f"{_LEDGERS}/available/{bookie.address}")
        return 0 if found is None else found.czxid

    def close(self) -> None:
        """End all; AssertionError when a node had to be killed, or something is left."""
        try:
            for program in self.programs.values():
                if program.child is not None:
                    program.child.signal(signal.SIGCONT)
            for program in self.of_kind("node"):
                assert program.child is not None
                program.child.signal(signal.SIGTERM)
            for program in self.of_kind("node"):
                wait_for(lambda program=program: not program.is_running, f"{program.name} goes on")
        finally:
            self.abandon()
        self.check_none_left()

    def abandon(self) -> None:
        """End what is left, in any way; repeatable."""
        for program in self.programs.values():
            if program.child is not None:
                program.child.kill()
        self._zookeeper.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


@contextmanager
def _session(hosts: str) -> Generator[KazooClient]:
    client = KazooClient(hosts)
    client.start(_ANSWER_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()
