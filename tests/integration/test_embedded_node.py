"""herdpy.Node in programs: this process, and others that are interrupted, killed, or forget it."""

import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import msgspec
import pytest

import herdpy
from bookie.admin.zookeeper_process import ZooKeeperProcess, start_zookeeper
from bookie.metadata.cluster import initialize
from bookie.runtime.os_executors import run
from bookie.runtime.os_rng import OsRng
from herdpy.cli.cluster.making import make_cluster, make_tablespace
from herdpy.cluster.tablespace_nodes import TablespaceNodes
from herdpy.errors import Retry
from herdpy.node.addresses import dsn_of
from herdpy.node.place import ClusterPlace
from tests.fixtures.ports import own_port
from tests.fixtures.real_cluster import wait_for
from tests.fixtures.zookeeper import zookeeper, zookeeper_root
from tests.style.test_docs import Block, blocks, run_python
from tests.style.test_layers import ROOT

__all__ = ["zookeeper", "zookeeper_root"]

pytestmark = pytest.mark.integration
GUIDE = "docs/guides/embedded-node.md"
TIMEOUT_S = 1.0


class Cluster:
    """A cluster in ZooKeeper, and what its nodes are told."""

    def __init__(self, zookeeper: ZooKeeperProcess, root: str, folder: Path) -> None:
        self.zookeeper = zookeeper
        self.hosts = zookeeper.hosts
        self.root = root
        self.folder = folder
        self.ports = {number: own_port() for number in (1, 2, 3)}
        self.bookie_ports = {number: own_port() for number in (1, 2, 3)}
        self.session_timeout_s = TIMEOUT_S

    def make(self, ack: int = 2) -> None:
        async def make() -> None:
            async with self.place.session() as store:
                await initialize(store, f"{self.root}-ledgers", rng=OsRng())
            quorums = (1, 1, 1) if ack == 1 else (3, 3, 2)
            await make_cluster(self.place, f"{self.root}-ledgers", quorums, has_bookies=False)

        run(make())

    @property
    def place(self) -> ClusterPlace:
        return ClusterPlace(self.hosts, self.root)

    @property
    def dsn(self) -> str:
        return dsn_of(self.hosts, self.root, "default")

    def create(self, *replicas: str) -> None:
        run(make_tablespace(self.place, "default", replicas))

    def node(
        self,
        number: int,
        *,
        folder: str | None = None,
        node_id: str | None = None,
        has_bookie: bool = True,
        server: herdpy.ServerConfig | None = None,
    ) -> herdpy.Node:
        bookie = str(self.folder / f"b{number}") if has_bookie else ""
        return herdpy.Node(
            self.folder / (folder or f"n{number}"),
            zookeeper=self.hosts,
            root=self.root,
            id=node_id or f"n{number}",
            server=server or herdpy.ServerConfig(port=self.ports[number]),
            settings=herdpy.NodeConfig(
                session_timeout_s=self.session_timeout_s,
                bookie_directory=bookie,
                bookie_port=self.bookie_ports[number],
            ),
        )

    @contextmanager
    def program(self, body: str) -> Generator["subprocess.Popen[str]"]:
        """Run a program that has made node 1, which is `node`; it is killed at the end."""
        lines = f"""
            import sys
            import herdpy
            node = herdpy.Node(
                {str(self.folder / "n1")!r}, zookeeper={self.hosts!r}, root={self.root!r}, id="n1",
                server=herdpy.ServerConfig(port={self.ports[1]}),
                settings=herdpy.NodeConfig(
                    session_timeout_s={TIMEOUT_S}, bookie_directory={str(self.folder / "b1")!r},
                    bookie_port={self.bookie_ports[1]},
                ),
            )
        """
        text = textwrap.dedent(lines) + textwrap.dedent(body)
        pipe = subprocess.PIPE
        command = [sys.executable, "-W", "error", "-c", text]
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as program:
            try:
                yield program
            finally:
                program.kill()


@pytest.fixture
def cluster(zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path) -> Cluster:
    return Cluster(zookeeper, zookeeper_root, tmp_path)


def test_the_guide(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cluster.make()
    found = [block for block in blocks((ROOT / GUIDE).read_text()) if block.language == "python"]
    assert len(found) == 2
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(found):
        text = block.text
        for written, here in (
            ('"127.0.0.1:2181"', repr(cluster.hosts)),
            ('"/herd"', repr(cluster.root)),
            ("port=7000 + number", f"port={cluster.ports}[number]"),
            ("bookie_port=3180 + number", f"bookie_port={cluster.bookie_ports}[number]"),
        ):
            assert number or written in text
            text = text.replace(written, here)
        run_python(Block(block.language, block.line, text), names, GUIDE)
        if number == 0:
            cluster.create("n1", "n2", "n3")


def host_facts() -> list[object]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)
    root = logging.getLogger()
    handlers = [len(each.handlers) for each in (root, logging.getLogger("herdpy"))]
    return [
        *map(signal.getsignal, numbers), root.level, *handlers, gc.get_threshold(), gc.isenabled(),
        gc.get_freeze_count(), sys.getswitchinterval(), sys.excepthook, threading.excepthook,
    ]  # fmt: skip


def test_what_is_of_the_process_stays_as_it_is(cluster: Cluster) -> None:
    cluster.make(ack=1)
    before = host_facts()
    with cluster.node(1).start() as running:
        cluster.create("n1")
        with running.connect() as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
        assert host_facts() == before
        assert repr(running) == f"<herdpy.RunningNode n1: 127.0.0.1:{cluster.ports[1]}>"
    assert host_facts() == before
    assert running.wait()
    assert running.failure is None


def test_close_hands_over(cluster: Cluster) -> None:
    cluster.make(ack=1)
    with cluster.node(3).start():  # whose bookie stays
        nodes = {f"n{n}": cluster.node(n, has_bookie=False).start() for n in (1, 2)}
        cluster.create("n1", "n2")
        with herdpy.connect(cluster.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            leader = next(each for each in nodes.values() if each.parts["default"] == "leading")
            leader.close()
            connection.execute("INSERT INTO t VALUES (1)")

        async def handed_to() -> str:
            async with cluster.place.session() as store:
                record = (await TablespaceNodes(store, cluster.root).read("default")).record
            return (
                "" if isinstance(record.handed_over, msgspec.UnsetType) else record.handed_over.to
            )

        (other,) = (each for each in nodes.values() if each is not leader)
        assert run(handed_to()) == other.id
        other.close()


def test_a_start_that_is_refused_leaves_nothing(cluster: Cluster) -> None:
    def refusal(node: herdpy.Node) -> herdpy.Error:
        with pytest.raises(herdpy.Error) as caught:
            node.start()
        return caught.value

    assert refusal(cluster.node(1)).sqlstate == "58P01"  # there is no cluster
    assert not list(cluster.folder.iterdir())
    cluster.make(ack=1)
    other = Cluster(cluster.zookeeper, f"{cluster.root}-other", cluster.folder)
    other.make(ack=1)
    with cluster.node(1).start():
        for node, sqlstate, said in (
            (cluster.node(1), "58000", "cannot listen on 127.0.0.1:"),
            (
                cluster.node(2, server=herdpy.ServerConfig(port=cluster.ports[1])),
                "58000",
                f"cannot listen on 127.0.0.1:{cluster.ports[1]}",  # which carries nothing yet
            ),
            (cluster.node(2, folder="n1", node_id="n1"), "55006", "is in use by pid"),
            (cluster.node(3, node_id="n1"), "55006", "another process runs as node n1"),
            (cluster.node(2, folder="b1"), "58P01", "is no node's directory"),
            (cluster.node(2, folder="no/such"), "58P01", "No such file or directory"),
            (
                cluster.node(2, server=herdpy.ServerConfig(port=own_port(), tls_key="k.pem")),
                "F0000",
                "tls_certificate",
            ),
            (
                cluster.node(2, server=herdpy.ServerConfig(port=own_port(), audit_log="/no/such")),
                "58030",
                "audit log",
            ),
        ):
            error = refusal(node)
            assert (error.sqlstate, said in str(error)) == (sqlstate, True), str(error)
    assert refusal(cluster.node(2, folder="n1")).sqlstate == "55000"
    assert refusal(other.node(1, has_bookie=False)).sqlstate == "55000"


def test_a_bookie_that_cannot_be_is_refused(cluster: Cluster) -> None:
    cluster.make(ack=1)
    (cluster.folder / "b1").write_text("a file")
    with pytest.raises(herdpy.OperationalError, match="is no directory") as caught:
        cluster.node(1).start()
    assert caught.value.sqlstate == "58030"
    assert not (cluster.folder / "n1").exists()
    settings = herdpy.NodeConfig(
        bookie_directory=str(cluster.folder / "b2"), advertised_address="localhost:7000"
    )
    open_to_all = herdpy.Node(
        cluster.folder / "n1", server=herdpy.ServerConfig(host="0.0.0.0"), settings=settings
    )
    with pytest.raises(herdpy.OperationalError, match="other machines reach") as caught:
        open_to_all.start()
    assert not (cluster.folder / "b2").exists()
    for inside in ("n1/bookie", "."):
        with pytest.raises(herdpy.ProgrammingError, match="beside the node's"):
            herdpy.Node(
                cluster.folder / "n1",
                settings=herdpy.NodeConfig(bookie_directory=str(cluster.folder / inside)),
            )


def test_a_node_that_must_not_go_on_ends_and_says_why(cluster: Cluster) -> None:
    cluster.make(ack=1)
    running = cluster.node(1).start()
    assert not running.wait(0)

    async def remove_its_bookie() -> None:
        async with cluster.place.session() as store:
            bookie_id = f"127.0.0.1:{cluster.bookie_ports[1]}"
            await store.delete(f"{cluster.root}-ledgers/cookies/{bookie_id}")

    run(remove_its_bookie())
    with pytest.raises(herdpy.OperationalError, match=r"its bookie: .*its cookie is gone"):
        running.wait(60)
    assert running.failure is not None
    running.close()
    running.close()
    with pytest.raises(herdpy.OperationalError, match="cannot be used any more"):
        running.reload(herdpy.ServerConfig())


def test_a_node_ends_while_zookeeper_is_away(tmp_path: Path, zookeeper_root: str) -> None:
    with start_zookeeper(tmp_path / "zookeeper", tick_ms=200, is_durable=False) as server:
        cluster = Cluster(server, zookeeper_root, tmp_path)
        cluster.make(ack=1)
        running = cluster.node(1).start()
        cluster.create("n1")
        with running.connect(autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        server.kill()
        running.close()
    with pytest.raises(herdpy.OperationalError) as caught:
        herdpy.connect(running.dsn() + "&retry_timeout_s=0")
    assert caught.value.sqlstate == "08001"


def test_time_outs_end_statements_while_zookeeper_does_not_answer(
    tmp_path: Path, zookeeper_root: str
) -> None:
    """What only reads is told 57014; what is written that it is not known; it is there later."""
    with start_zookeeper(tmp_path / "zookeeper", tick_ms=500, is_durable=False) as server:
        cluster = Cluster(server, zookeeper_root, tmp_path)
        cluster.session_timeout_s = 4.0  # answers are held for a fifth of it
        cluster.make(ack=1)
        with cluster.node(1).start() as running:
            cluster.create("n1")
            url = f"herd://127.0.0.1:{cluster.ports[1]}?retry_timeout_s=0"
            with (
                running.connect(autocommit=True) as own,
                herdpy.connect(url, autocommit=True, statement_timeout_s=0.1) as reader,
                herdpy.connect(url, autocommit=True, statement_timeout_s=0.1) as writer,
            ):
                own.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    _until_cancelled(Retry.SAFE, lambda: reader.execute("SELECT count(*) FROM t"))
                    numbers = count(1)
                    _until_cancelled(
                        Retry.UNKNOWN,
                        lambda: writer.execute("INSERT INTO t VALUES (?)", (next(numbers),)),
                    )
                finally:
                    os.kill(server.pid, signal.SIGCONT)
            with herdpy.connect(cluster.dsn, autocommit=True) as connection:
                last = connection.execute("SELECT max(id) FROM t").fetchone()
                assert last == (next(numbers) - 1,)


def _until_cancelled(retry: Retry, act: Callable[[], object]) -> None:
    """Act until that is told as cancelled, with such an outcome."""
    while True:
        try:
            act()
        except herdpy.Error as error:
            if error.sqlstate != "57014":
                raise
            if error.retry is retry:
                return


def test_a_program_that_is_killed_and_starts_again_with_another_address(cluster: Cluster) -> None:
    cluster.make(ack=1)
    body = """
        with node.start() as running:
            print(running.id, flush=True)
            running.wait()
    """
    with cluster.program(body) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "n1\n"
        cluster.create("n1")
        with herdpy.connect(cluster.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            connection.execute("INSERT INTO t VALUES (1)")
        program.kill()
    identity = (cluster.folder / "n1" / "node.json").read_bytes()
    cluster.ports[1] = own_port()
    again = herdpy.Node(
        cluster.folder / "n1",  # whose id it is
        zookeeper=cluster.hosts,
        root=cluster.root,
        server=herdpy.ServerConfig(port=cluster.ports[1]),
        settings=herdpy.NodeConfig(
            session_timeout_s=TIMEOUT_S,
            bookie_directory=str(cluster.folder / "b1"),
            bookie_port=cluster.bookie_ports[1],
        ),
    )
    with again.start() as running:
        assert (running.id, running.address) == ("n1", f"127.0.0.1:{cluster.ports[1]}")
        with running.connect() as connection:
            assert connection.execute("SELECT id FROM t").fetchall() == [(1,)]
        assert running.parts == {"default": "leading"}
    assert (cluster.folder / "n1" / "node.json").read_bytes() == identity


@pytest.mark.parametrize("is_started", [True, False])
def test_ctrl_c(cluster: Cluster, *, is_started: bool) -> None:
    if is_started:
        cluster.make(ack=1)
        body = """
            with node.start() as running:
                print("up", flush=True)
                running.wait()
        """
    else:
        cluster.hosts = f"127.0.0.1:{own_port()}"
        body = """
            print("up", flush=True)
            node.start()
        """
    with cluster.program(body) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == "up\n"
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == -signal.SIGINT
        assert program.stderr.read().rstrip().endswith("KeyboardInterrupt")
    if is_started:  # it has deregistered: the next need not wait for a session to end
        with cluster.node(1).start() as running:
            assert running.id == "n1"


def test_a_program_that_forgets_it_ends_all_the_same(cluster: Cluster) -> None:
    cluster.make(ack=1)
    with cluster.program("running = node.start()\nprint('done')") as program:
        said, errors = program.communicate(timeout=60)
    assert (program.returncode, said) == (0, "done\n")
    assert "node n1: the program ends and has not closed it" in errors


class Handler(logging.Handler):
    """Calls what it is given, in the thread of what the node logs at its end."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self.call = call
        self.errors: list[herdpy.Error] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "stopping" in record.getMessage():
            try:
                self.call()
            except herdpy.Error as error:
                self.errors.append(error)


def test_the_nodes_own_thread_cannot_wait_for_it(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.make(ack=1)
    running = cluster.node(1).start()
    logger = logging.getLogger("herdpy.node.hosted")
    calls = (running.close, running.wait, lambda: running.reload(herdpy.ServerConfig()))
    handlers = list(map(Handler, calls))
    with caplog.at_level(logging.INFO, logger.name):
        for handler in handlers:
            logger.addHandler(handler)
        try:
            running.close()
        finally:
            for handler in handlers:
                logger.removeHandler(handler)
    for handler in handlers:
        (error,) = handler.errors
        assert (error.sqlstate, "own thread" in str(error)) == ("55000", True)
    with cluster.node(1).start() as again:  # it was closed whole
        assert again.id == "n1"


def test_close_waits_for_the_end_that_another_thread_has_begun(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.make(ack=1)
    running = cluster.node(1).start()
    has_begun, may_go_on = threading.Event(), threading.Event()

    def stop() -> None:
        has_begun.set()
        assert may_go_on.wait(60)

    handler = Handler(stop)
    logger = logging.getLogger("herdpy.node.hosted")
    ended: list[str] = []

    def close() -> None:
        running.close()
        ended.append("close")

    def wait() -> None:
        assert running.wait()
        ended.append("wait")

    with caplog.at_level(logging.INFO, logger.name):
        logger.addHandler(handler)
        try:
            threads = [threading.Thread(target=each) for each in (close, close, wait)]
            threads[0].start()
            assert has_begun.wait(60)
            for thread in threads[1:]:
                thread.start()
            previous = signal.signal(signal.SIGALRM, lambda *_: running.close())
            try:  # also in the thread that waits itself
                assert not ended
                may_go_on.set()
                signal.raise_signal(signal.SIGALRM)
            finally:
                signal.signal(signal.SIGALRM, previous)
            for thread in threads:
                thread.join(60)
        finally:
            logger.removeHandler(handler)
    assert sorted(ended) == ["close", "close", "wait"]
    assert running.wait()
    with cluster.node(1).start() as again:
        assert again.id == "n1"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_leaves_it_alone(cluster: Cluster) -> None:
    cluster.make(ack=1)
    with cluster.node(1).start() as running:
        child = os.fork()
        if child == 0:
            running.close()
            calls = (running.wait, lambda: running.reload(herdpy.ServerConfig()))
            told = [told_in_child(call) for call in calls]
            os._exit(0 if told == ["55000", "55000"] else 1)
        assert os.waitpid(child, 0)[1] == 0
        cluster.create("n1")
        wait_for(lambda: running.parts == {"default": "leading"}, "it does not lead")


def told_in_child(call: Callable[[], object]) -> str:
    try:
        call()
    except herdpy.Error as error:
        return error.sqlstate or ""
    return ""


@pytest.fixture(autouse=True)
def quiet_kazoo() -> Iterator[None]:
    logger = logging.getLogger("bookie.kazoo")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)
