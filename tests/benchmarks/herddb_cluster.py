"""HerdDB's own cluster as a peer: ZooKeeper, three of Apache's bookies, three nodes, a client.

Each is a process of its own, but the connections of the client, which are threads of one. The nodes
have HerdDB's defaults, but for quorums, time-outs, replicas and the heap. Its failover is off by
default: allow_failover() gives the tablespace a limit of its leader's silence as long as the
session's time-out. Before that no slow moment of the machine is a failover.
"""

import contextlib
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bookie.admin.zookeeper_process import start_zookeeper
from tests.benchmarks.herddb_process import VERSION, HerdDb
from tests.fixtures.bookie_processes import new_cluster, registered
from tests.fixtures.line_process import LineProcess
from tests.fixtures.ports import own_port
from tests.interop.apache import BENCH_JVM, Release, apache_bookies

NAME = f"HerdDB {VERSION}"
_JVM = ("-Xms512m", "-Xmx1g")
_LEDGERS = "/ledgers"
"""Where HerdDB looks for them."""
_STORAGE = "SortedLedgerStorage"
"""Apache's default."""
_ANSWER_S_MAX = 600.0
_TICKS_OF_SESSION = 4
"""As `herdpy cluster up` has it."""


class HerdDbCluster:
    """A running cluster; `client` does what HerdDbCluster.java says."""

    def __init__(
        self, program: HerdDb, zookeeper: str, folder: Path, copies: int, session_timeout_s: float
    ) -> None:
        self._program, self._zookeeper, self._folder = program, zookeeper, folder
        self._copies, self._timeout_ms = copies, round(session_timeout_s * 1000)
        self._stack = ExitStack()
        self._nodes: dict[str, LineProcess] = {}
        try:
            for number in range(1, copies + 1):  # the first one makes the tablespace, and leads
                self._start(f"n{number}")
            self.client = self._stack.enter_context(
                program.start("client", zookeeper, self._timeout_ms)
            )
            self.client.until("ready", _ANSWER_S_MAX)
            self._replicate(0)
        except BaseException:
            self.close()
            raise

    def _start(self, name: str) -> None:
        words = ("node", self._folder / name, own_port(), self._zookeeper, self._timeout_ms, name)
        self._nodes[name] = node = self._stack.enter_context(self._program.start(*words))
        node.until("ready", _ANSWER_S_MAX)

    def wait_for_copies(self) -> None:
        """Let nodes that were killed run again, and wait until all but the leader follow."""
        for number in range(1, self._copies + 1):
            if f"n{number}" not in self._nodes:
                self._start(f"n{number}")
        self.allow_failover()

    def allow_failover(self) -> None:
        self._replicate(self._timeout_ms)

    def _replicate(self, inactivity_ms: int) -> None:
        self.ask(f"replicate {self._copies} {inactivity_ms}")

    def ask(self, words: str) -> object:
        self.client.tell(words)
        return self.client.until("answer", _ANSWER_S_MAX)

    def kill_leader(self) -> None:
        """End the node that leads by SIGKILL."""
        self._nodes.pop(str(self.ask("leader"))).kill()

    def close(self) -> None:
        self._stack.close()


@contextmanager
def herddb_cluster(
    program: HerdDb, java: Release, folder: Path, copies: int, session_timeout_s: float
) -> Generator[HerdDbCluster]:
    """Start one in a folder, with as many bookies as copies, and wait until all copies follow."""
    tick_ms = round(session_timeout_s * 1000 / _TICKS_OF_SESSION)
    with ExitStack() as stack:
        zookeeper = stack.enter_context(start_zookeeper(folder / "zookeeper", tick_ms=tick_ms))
        cluster = new_cluster(zookeeper, _LEDGERS)
        bookies = stack.enter_context(
            apache_bookies(
                java, zookeeper.hosts, folder, copies,
                jvm=BENCH_JVM, root=_LEDGERS, storage=_STORAGE,
            )
        )  # fmt: skip
        registered(cluster, bookies)
        made = HerdDbCluster(program, zookeeper.hosts, folder, copies, session_timeout_s)
        with contextlib.closing(made):
            yield made


def new_program() -> HerdDb:
    """Return the command of HerdDbCluster.java; NoHerdDbError."""
    return HerdDb("HerdDbCluster", _JVM)
