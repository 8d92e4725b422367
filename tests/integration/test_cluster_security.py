"""A cluster that is secured everywhere: logins, ACLs and TLS, among real processes.

ZooKeeper with TLS and certificates of its clients; bookies that ask for certificates; nodes that
clients reach by TLS alone. One cluster for the whole module: it is killed and moved, too.
"""

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

import herdpy
from bookie.errors import StoreAccessError, StoreUnreachableError
from bookie.metadata.acl import OPEN
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.zookeeper import ZooKeeperStore
from bookie.metadata.zookeeper_login import parse_logins
from bookie.runtime.os_child_process import ChildProcess
from bookie.runtime.os_tls.files import client_contexts
from herdpy.cluster.tablespace_nodes import TablespaceNodes
from tests.fixtures.authorities import Authority
from tests.fixtures.ports import own_port
from tests.fixtures.tls_zookeeper import TlsZooKeeper, tls_zookeeper

pytestmark = pytest.mark.integration
T = TypeVar("T")
HERDPY = (sys.executable, "-W", "error", "-m", "herdpy.cli")
BOOKIE = (sys.executable, "-W", "error", "-m", "bookie.admin.commands")
OURS, APPS = "digest herd:geheim-of-nodes", "digest app:geheim-of-apps"
ROOT, LEDGERS = "/herd", "/ledgers"
LIMIT_S = 60.0


def secret_file(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def until(find: Callable[[], T]) -> T:
    """Wait until it finds something."""
    end_s = time.monotonic() + LIMIT_S
    while not (found := find()):
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.05)
    return found


class Secured:
    """One bookie, two nodes, the tablespace `sales`; all files below a folder."""

    def __init__(self, folder: Path, zookeeper: TlsZooKeeper, authority: Authority) -> None:
        self.folder, self.zookeeper, self.authority = folder, zookeeper, authority
        self.of_nodes = secret_file(folder / "nodes-login", OURS)
        self.of_apps = secret_file(folder / "apps-login", APPS)
        self.machine = authority.issue("machine", "127.0.0.1")
        self.untrusted = Authority(folder, "untrusted")
        self.ports = {name: own_port() for name in ("n1", "n2")}
        self.processes: dict[str, ChildProcess] = {}
        by_tls = ("--zookeeper-tls-trust", authority.path, "--zookeeper-tls", *self.machine)
        login = ("--zookeeper-login", self.of_nodes, "--zk-enable-security")
        self.at_bookies = ("--zookeeper", zookeeper.hosts, "--root", LEDGERS, *by_tls, *login)
        self.here = (
            "--zookeeper", zookeeper.hosts, "--root", ROOT, *by_tls, *login,
            "--zookeeper-readers", self.of_apps,
            "--bookie-tls-trust", authority.path, "--bookie-tls", *self.machine,
        )  # fmt: skip

    def run(self, *command: str, code: int = 0, env: dict[str, str] | None = None) -> str:
        """Run a command; return what it has printed."""
        found = subprocess.run(
            command, env=os.environ | (env or {}), capture_output=True, text=True, timeout=LIMIT_S
        )
        assert found.returncode == code, found.stdout + found.stderr
        return found.stdout + found.stderr

    def spawn(self, name: str, *command: str) -> ChildProcess:
        child = self.processes[name] = ChildProcess(list(command), self.folder / f"{name}.log")
        return child

    def start(self) -> None:
        self.run(*BOOKIE, "format", *self.at_bookies)
        bookie = self.spawn(
            "bookie", *BOOKIE, "serve", *self.at_bookies, "--data", str(self.folder / "bookie"),
            "--port", str(own_port()), "--tls", *self.machine, "--tls-trust", self.authority.path,
        )  # fmt: skip
        self.wait(bookie, "serves")
        one = ("--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1")
        self.run(*HERDPY, "cluster", "init", *self.here, *one)
        # While it follows it lets in who reads; users come by the log, before it may say so.
        for name in self.ports:
            self.node(name)
        for name in self.ports:
            self.wait(self.processes[name], f"node {name} of")
        self.run(*HERDPY, "cluster", "create", *self.here, "sales", "--replicas", "n1,n2")

    def node(self, name: str) -> None:
        self.spawn(
            name, *HERDPY, "node", *self.here, "--data", str(self.folder / name), "--id", name,
            "--port", str(self.ports[name]), "--session-timeout", "2",
            "--tls-certificate", self.machine.certificate, "--tls-key", self.machine.key,
            "--tls-client-authority", self.authority.path, "--log-level", "debug",
        )  # fmt: skip

    def wait(self, child: ChildProcess, text: str) -> None:
        def has_said() -> bool:
            assert child.exit_code() is None, child.log_tail()
            return text in child.printed()

        until(has_said)

    def url(self, **options: str) -> str:
        """Return what a program connects to; options replace those that it has."""
        chosen = {
            "zookeeper_login": self.of_apps,
            "zookeeper_tls_authority": self.authority.path,
            "zookeeper_tls_certificate": self.machine.certificate,
            "zookeeper_tls_key": self.machine.key,
            "tls": "on",
            "tls_authority": self.authority.path,
            "tls_certificate": self.machine.certificate,
            "tls_key": self.machine.key,
        } | options
        pairs = "&".join(f"{name}={value}" for name, value in chosen.items() if value)
        return f"herd+zk://{self.zookeeper.hosts}/sales?{pairs}"

    @contextmanager
    def connect(self, **options: str) -> Generator[herdpy.Connection]:
        with herdpy.connect(self.url(**options), autocommit=True) as connection:
            yield connection

    def ask(self, body: Callable[[VersionedStore], Any], login: str | None) -> Any:
        """Run a coroutine over a session of its own, in clear, as any program could."""

        async def asked() -> Any:
            logins = parse_logins(login, "test") if login else ()
            store = await ZooKeeperStore.connect(self.zookeeper.server.hosts, 10, logins=logins)
            try:
                return await body(store)
            finally:
                await store.close()

        return asyncio.run(asked())

    def leader(self) -> str:
        async def read(store: VersionedStore) -> str:
            nodes = TablespaceNodes(store, ROOT)
            record = (await nodes.read("sales")).record
            found = await store.exists(nodes.leader_path(record.id))
            return record.leader if found is not None else ""

        return until(lambda: self.ask(read, OURS))

    def close(self) -> None:
        for name in ("n1", "n2", "bookie"):
            if name in self.processes:
                self.processes[name].signal(signal.SIGTERM)
        for child in self.processes.values():
            child.stop(LIMIT_S)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder, "ours")
    with tls_zookeeper(folder, authority) as zookeeper:
        made = Secured(folder, zookeeper, authority)
        try:
            made.start()
            yield made
        finally:
            made.close()


def test_it_works_from_end_to_end(secured: Secured) -> None:
    """A program writes, reads on a follower, and goes on when the leader is killed."""
    with secured.connect() as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        for key in range(20):
            connection.execute("INSERT INTO t VALUES (?)", (key,))
        position = connection.position
        with secured.connect(read="follower") as follower:
            follower.wait_for(position)
            assert follower.execute("SELECT count(*) FROM t").fetchone() == (20,)
        first = secured.leader()
        secured.processes[first].kill()
        connection.execute("INSERT INTO t VALUES (20)")
        assert secured.leader() != first
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (21,)
    secured.node(first)
    secured.wait(secured.processes[first], f"node {first} of")


def test_all_nodes_of_zookeeper_are_secured(secured: Secured) -> None:
    assert "are secured" in secured.run(*HERDPY, "cluster", "acl", "show", *secured.here)
    assert "are secured" in secured.run(*BOOKIE, "acl", "show", *secured.at_bookies)
    status = secured.run(*HERDPY, "cluster", "status", "--json", *secured.here)
    assert '"has_tls": true' in status
    for command in (("tablespace", "show", "sales"), ("log", "chain", "sales")):
        secured.run(*HERDPY, *command, *secured.here)


@pytest.mark.parametrize("login", [None, APPS, "digest herd:wrong"])
def test_a_client_of_zookeeper_without_the_login(secured: Secured, login: str | None) -> None:
    """It can neither change which node leads nor read the ledgers' password; nor the ledgers."""

    async def find(store: VersionedStore) -> str:
        return (await TablespaceNodes(store, ROOT).read("sales")).record.id

    tablespace = secured.ask(find, OURS)

    async def attack(store: VersionedStore) -> None:
        nodes = TablespaceNodes(store, ROOT)
        leader = nodes.leader_path(tablespace)
        for case in (
            store.read(nodes.secret_path(tablespace)),
            store.children(f"{ROOT}/secrets"),
            store.write(leader, b"n9", -1),
            store.delete(leader),
            store.write(nodes.path("sales"), b"{}", -1),
            store.create(f"{ROOT}/nodes/n9", b"{}"),
            store.delete(nodes.node_path("n1")),
            store.write_acl(leader, OPEN),
            store.children(f"{LEDGERS}/available"),
        ):
            with pytest.raises(StoreAccessError):
                await case

    before = secured.leader()
    secured.ask(attack, login)
    assert secured.leader() == before


def refused(secured: Secured, **options: str) -> herdpy.Error:
    with pytest.raises(herdpy.Error) as caught, secured.connect(retry_timeout_s="0.1", **options):
        pass
    assert "geheim" not in f"{caught.value!r} {caught.value} {caught.value.hint}"
    return caught.value


def test_drivers_that_are_refused(secured: Secured, tmp_path: Path) -> None:
    """Nothing of them goes on in clear, and each is told why."""
    other = secured.untrusted
    without_authority = refused(secured, tls_authority=other.path)
    assert "certificate is not trusted" in str(without_authority)
    in_clear = refused(secured, tls="off", tls_authority="", tls_certificate="", tls_key="")
    assert "speaks TLS only, as its ZooKeeper says" in str(in_clear)
    not_the_host = refused(secured, tls_server_name="db.example")
    assert "Hostname mismatch" in str(not_the_host)
    without_certificate = refused(secured, tls_certificate="", tls_key="")
    assert without_certificate.sqlstate == "08001"
    other_zookeeper = refused(secured, zookeeper_tls_authority=other.path)
    assert "no TLS with the ZooKeeper at 127.0.0.1" in str(other_zookeeper)
    no_login = refused(secured, zookeeper_login="")
    assert no_login.sqlstate == "42501"
    wrong = secret_file(tmp_path / "wrong", "digest app:geheim-but-wrong")
    assert refused(secured, zookeeper_login=wrong).sqlstate == "42501"
    exposed = tmp_path / "exposed"
    exposed.write_text(APPS)
    exposed.chmod(0o644)
    told = refused(secured, zookeeper_login=str(exposed))
    assert "chmod 600" in str(told)


def test_a_program_in_clear_is_refused_by_the_node_itself(secured: Secured) -> None:
    """Also one that asks no ZooKeeper, and so is not told."""
    port = secured.ports[secured.leader()]
    with pytest.raises(herdpy.OperationalError, match="ended the connection") as caught:
        herdpy.connect(f"herd://127.0.0.1:{port}/sales?tls=off&retry_timeout_s=0")
    assert "?tls=on" in str(caught.value.hint)


def test_commands_that_are_refused(secured: Secured) -> None:
    hosts = ("--zookeeper", secured.zookeeper.server.hosts, "--root", ROOT)
    status = (*HERDPY, "cluster", "status")
    said = secured.run(*status, *hosts, code=1)
    assert "(42501)" in said
    assert "--zookeeper-login" in said
    wrong = {"HERDPY_ZOOKEEPER_LOGIN": "digest herd:geheim-but-wrong"}
    assert "(42501)" in secured.run(*status, *hosts, code=1, env=wrong)
    right = {"HERDPY_ZOOKEEPER_LOGIN": OURS}
    assert "sales" in secured.run(*status, *hosts, env=right)
    create = (*HERDPY, "cluster", "create", *hosts, "more", "--replicas", "n1")
    said = secured.run(*create, code=1, env=right)
    assert "(55000)" in said
    assert "--zk-enable-security" in said
    malformed = {"HERDPY_ZOOKEEPER_LOGIN": "digest geheim"}
    said = secured.run(*status, *hosts, code=1, env=malformed)
    assert "HERDPY_ZOOKEEPER_LOGIN, line 1" in said
    assert "geheim" not in said
    node = (*HERDPY, "node", *hosts, "--data", str(secured.folder / "n3"), "--id", "n3")
    assert "(42501)" in secured.run(*node, "--port", str(own_port()), code=1)


def test_a_program_starts_a_node_and_connects_by_it(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With login and TLS everywhere, by the files that `herdpy node` is told."""
    monkeypatch.chdir(secured.folder)  # a connection may be made elsewhere than the node was
    here = {
        "zookeeper": secured.zookeeper.hosts,
        "root": ROOT,
        "is_secured": True,
        "zookeeper_readers": secured.of_apps,
        "zookeeper_tls_trust": secured.authority.path,
        "zookeeper_tls": secured.machine,
        "bookie_tls_trust": secured.authority.path,
        "bookie_tls": secured.machine,
        "node_tls_trust": Path(secured.authority.path).name,
    }
    server = herdpy.ServerConfig(
        port=own_port(),
        tls_certificate=secured.machine.certificate,
        tls_key=secured.machine.key,
        tls_client_authority=secured.authority.path,
    )

    def node(place: herdpy.ClusterPlace, name: str) -> herdpy.Node:
        settings = herdpy.NodeConfig(session_timeout_s=2.0)
        return herdpy.Node(
            secured.folder / name, place=place, id=name, server=server, settings=settings
        )

    with pytest.raises(herdpy.ProgrammingError, match="expected a login"):
        herdpy.ClusterPlace.of_files(**here)  # type: ignore[arg-type]
    place = herdpy.ClusterPlace.of_files(
        zookeeper_login=Path("nodes-login"),
        **here,  # type: ignore[arg-type]
    )
    with node(place, "n3").start() as running:
        more = ("more", "--replicas", "n3")
        secured.run(*HERDPY, "cluster", "create", *secured.here, *more)
        monkeypatch.chdir("/")
        with running.connect("more", autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            connection.execute("CREATE USER ada PASSWORD 'geheim-of-ada' SUPERUSER")
        with running.connect("more", user="ada", password="geheim-of-ada") as connection:
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
        with running.connect("sales") as connection:  # which other nodes lead, in other processes
            assert connection.execute("SELECT 1").fetchone() == (1,)
        told = running.dsn("more", user="ada")
        assert "geheim" not in told
        assert "zookeeper_login=" in told
        with pytest.raises(herdpy.OperationalError) as caught:
            herdpy.connect(told, password="wrong")
        assert caught.value.sqlstate == "28P01"

    monkeypatch.chdir(secured.folder)
    monkeypatch.setenv("HERDPY_ZOOKEEPER_LOGIN", OURS)
    place = herdpy.ClusterPlace.of_files(**here)  # type: ignore[arg-type]
    with node(place, "n3").start() as running:  # it may, but a URL has no place for its login
        with pytest.raises(herdpy.ProgrammingError, match="the login for ZooKeeper") as refused:
            running.connect("more")
        assert refused.value.sqlstate == "22023"
        assert running.wait(0) is False


def test_certificates_that_are_replaced_count(secured: Secured) -> None:
    """At SIGHUP: the node's own, for its clients, and those for ZooKeeper and bookies."""
    name = secured.leader()
    before = _serial(secured, name)
    secured.authority.issue("machine", "127.0.0.1")
    os.kill(secured.processes[name].pid, signal.SIGHUP)
    secured.wait(secured.processes[name], "TLS to ZooKeeper: read again")
    secured.wait(secured.processes[name], "TLS to bookies: read again")
    until(lambda: _serial(secured, name) != before)
    with secured.connect() as connection:
        connection.execute("INSERT INTO t VALUES (100)")


def _serial(secured: Secured, name: str) -> Any:
    import socket

    context = ssl.create_default_context(cafile=secured.authority.path)
    context.load_cert_chain(*secured.machine)
    with (
        socket.create_connection(("127.0.0.1", secured.ports[name])) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        found = secure.getpeercert()
        assert found is not None
        return found["serialNumber"]


def test_the_secrets_are_in_no_log_and_on_no_command_line(secured: Secured) -> None:
    """Also with log_level = "debug"."""

    async def password(store: VersionedStore) -> bytes:
        nodes = TablespaceNodes(store, ROOT)
        return await nodes.password((await nodes.read("sales")).record.id)

    of_ledgers = secured.ask(password, OURS).hex()
    assert len(of_ledgers) == 32
    for name, child in secured.processes.items():
        log = (secured.folder / f"{name}.log").read_text()
        assert "geheim" not in log
        assert of_ledgers not in log
        assert ("Sending request" in log) is (name != "bookie")
        assert not [word for word in child.command if "geheim" in word]


def test_a_zookeeper_that_asks_for_tls_gets_it(secured: Secured) -> None:
    async def connect(tls: Any) -> None:
        with pytest.raises(StoreUnreachableError):
            await ZooKeeperStore.connect(secured.zookeeper.hosts, connect_timeout_s=1, tls=tls)

    asyncio.run(connect(None))
    asyncio.run(connect(client_contexts(secured.authority.path, None, "TLS")))  # shows none
