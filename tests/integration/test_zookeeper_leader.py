"""herd+zk:// URLs: programs find the leader that a real ZooKeeper names, and follow it."""

import os
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import msgspec
import pytest

import herdpy
from bookie.admin.zookeeper_process import ZooKeeperProcess, four_letter_word
from bookie.client.blocking import LoopThread
from bookie.metadata.zookeeper import ZooKeeperStore
from bookie.runtime.drivers import ThreadDriver
from herdpy.cluster.tablespace_nodes import TablespaceNodes, TablespaceRecord
from herdpy.driver.local import _ZOOKEEPER_S
from herdpy.errors import OperationalError, ProgrammingError, Retry
from tests.fixtures.cutting_proxy import CuttingProxy
from tests.fixtures.engines import Background
from tests.fixtures.faces import open_face
from tests.fixtures.moving_leader import MovingLeader, moving_leader
from tests.fixtures.zookeeper import zookeeper, zookeeper_root

__all__ = ["zookeeper", "zookeeper_root"]

pytestmark = pytest.mark.integration
T = TypeVar("T")
ID = "0123456789abcdef0123456789abcdef"


class Registered:
    """A cluster whose nodes stand in a ZooKeeper; its leader moves there, too."""

    def __init__(self, zookeeper: ZooKeeperProcess, root: str, leader: MovingLeader) -> None:
        self.zookeeper, self.root, self.leader = zookeeper, root, leader
        self.url = f"herd+zk://{zookeeper.hosts}/default?root={root}"
        self._thread = LoopThread(ThreadDriver())
        self.store = self.call(ZooKeeperStore.connect(zookeeper.hosts))
        self.nodes = TablespaceNodes(self.store, root)
        self.call(self.nodes.initialize())
        self.call(
            self.nodes.create("default", TablespaceRecord(id=ID, leader="n0", replicas=("n0",)))
        )
        for number, port in enumerate(leader.ports):
            record = {
                "format": 1,
                "id": f"n{number}",
                "addresses": {"herd": f"127.0.0.1:{port}", "http": "127.0.0.1:1"},
                "more": [number],
            }
            data = msgspec.json.encode(record)
            self.call(self.store.create(f"{root}/nodes/n{number}", data, is_ephemeral=True))

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(coroutine)

    def name(self, node: str | None) -> None:
        """Let a node lead, as ZooKeeper says; None: no node does."""
        path = self.nodes.leader_path(ID)
        if self.call(self.store.exists(path)) is not None:
            self.call(self.store.delete(path))
        if node is not None:
            self.call(self.store.create(path, node.encode(), is_ephemeral=True))

    def move(self) -> None:
        self.leader.stop()
        self.name(None)
        self.leader.start()
        self.name(f"n{self.leader.number}")

    def close(self) -> None:
        self.call(self.store.close())
        self._thread.close()


@pytest.fixture
def cluster(zookeeper: ZooKeeperProcess, zookeeper_root: str) -> Iterator[Registered]:
    with moving_leader() as leader:
        with herdpy.connect(leader.direct_url, autocommit=True) as conn:
            conn.execute("CREATE TABLE t (id BIGINT)")
        made = Registered(zookeeper, zookeeper_root, leader)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with open_face(request.param, monkeypatch):
        yield request.param


def rows(cluster: Registered) -> list[int]:
    with herdpy.connect(cluster.leader.direct_url) as conn:
        return [n for (n,) in conn.execute("SELECT id FROM t ORDER BY id").fetchall()]


def test_a_program_follows_the_leader(cluster: Registered, face: str) -> None:
    done: list[int] = []
    has_done = threading.Condition()
    is_over = threading.Event()

    def program() -> None:
        with herdpy.connect(cluster.url, autocommit=True) as conn:
            while not is_over.is_set():
                conn.execute("INSERT INTO t VALUES (?)", (len(done),))
                with has_done:
                    done.append(len(done))
                    has_done.notify_all()

    with Background() as background:
        background.start(program)
        try:
            for _ in range(3):
                wanted = len(done) + 5
                with has_done:
                    assert has_done.wait_for(lambda wanted=wanted: len(done) >= wanted, 60)
                cluster.move()
        finally:
            is_over.set()
    assert rows(cluster) == done


def test_connections_have_one_session(cluster: Registered, face: str) -> None:
    count = _session_count(cluster)
    with (
        herdpy.connect(cluster.url) as first,
        herdpy.Pool(cluster.url) as pool,
        herdpy.connect(cluster.url) as second,
        pool.connection() as third,
    ):
        for conn in (first, second, third):
            assert conn.execute("SELECT 1").fetchall() == [(1,)]
        assert _session_count(cluster) == count + 1
    assert _session_count(cluster) == count


def _session_count(cluster: Registered) -> int:
    lines = four_letter_word(cluster.zookeeper.port, "srvr").splitlines()
    return int(next(line for line in lines if line.startswith("Connections:")).split()[1])


def test_a_server_that_does_not_answer_is_given_up_before_the_program_is(
    cluster: Registered,
) -> None:
    """A ZooKeeper that starts may take a connection, and never answer what it was asked on it."""
    proxy = cluster.call(CuttingProxy(cluster.zookeeper.port).start())
    url = cluster.url.replace(cluster.zookeeper.hosts, f"127.0.0.1:{proxy.port}")
    proxy.is_losing_requests = True
    with Background() as background:
        background.start(lambda: herdpy.connect(url).close())
        while not proxy.lost:
            pass
        # Length, version of the protocol, the newest change that was seen; then milliseconds.
        session_s = int.from_bytes(proxy.lost[0][16:20]) / 1000
        cluster.call(_cut(proxy))  # answers again
    cluster.call(proxy.close())
    assert session_s < _ZOOKEEPER_S


async def _cut(proxy: CuttingProxy) -> None:
    proxy.cut()


def test_what_zookeeper_has_not_is_told(cluster: Registered, face: str) -> None:
    with pytest.raises(ProgrammingError, match='"sales" does not exist') as caught:
        herdpy.connect(cluster.url.replace("/default", "/sales"))
    assert caught.value.sqlstate == "3D000"
    with pytest.raises(OperationalError, match="expected a folder of a herdpy cluster") as none:
        herdpy.connect(cluster.url + "x")
    assert none.value.sqlstate == "58P01"
    cluster.name(None)
    with pytest.raises(OperationalError, match="no node leads it now") as nobody:
        herdpy.connect(cluster.url + "&retry_timeout_s=0.1")
    assert (nobody.value.sqlstate, nobody.value.retry) == ("57P03", Retry.SAFE)
    cluster.name("n9")
    with pytest.raises(OperationalError, match=r"node n9 leads it, and .*n9 is gone") as gone:
        herdpy.connect(cluster.url + "&retry_timeout_s=0.1")
    assert gone.value.retry is Retry.SAFE


def test_a_forked_child_has_a_session_of_its_own(cluster: Registered) -> None:
    conn = herdpy.connect(cluster.url, autocommit=True)
    pid = os.fork()
    if pid == 0:
        try:
            conn.close()
        except herdpy.InterfaceError:
            pass
        try:
            with herdpy.connect(cluster.url, autocommit=True) as own:
                own.execute("INSERT INTO t VALUES (1)")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    conn.execute("INSERT INTO t VALUES (2)")
    conn.close()
    assert rows(cluster) == [1, 2]


def test_a_program_that_leaves_its_connection_open_ends(cluster: Registered) -> None:
    program = (
        "import herdpy, sys; conn = herdpy.connect(sys.argv[1], autocommit=True);"
        "print(conn.execute('SELECT 1').fetchall())"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, cluster.url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[(1,)]\n", "")


def test_a_forked_child_that_closes_nothing_ends(cluster: Registered) -> None:
    program = (
        "import herdpy, os, signal, sys; conn = herdpy.connect(sys.argv[1], autocommit=True);"
        "child = os.fork();"
        "child or (signal.alarm(60), sys.exit(5));"
        "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]);"
        "print(code, conn.execute('SELECT 1').fetchall())"
    )
    no_word_of_threads = ("-W", "ignore::DeprecationWarning:__main__")
    ran = subprocess.run(
        [sys.executable, "-W", "error", *no_word_of_threads, "-c", program, cluster.url],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "5 [(1,)]\n", "")


def test_connections_that_are_collected_let_the_session_go(cluster: Registered) -> None:
    count = _session_count(cluster)
    conn = herdpy.connect(cluster.url)
    assert _session_count(cluster) == count + 1
    del conn
    while _session_count(cluster) != count:  # a thread of its own ends it
        pass
