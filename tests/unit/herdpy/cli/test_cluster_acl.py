"""`herdpy cluster acl` and the options of logins and TLS, against a real ZooKeeper."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from bookie.admin.zookeeper_process import ZooKeeperProcess
from bookie.client.blocking import LoopThread
from bookie.metadata.acl import StoreAccess
from bookie.metadata.zookeeper import ZooKeeperStore
from bookie.metadata.zookeeper_login import Login
from bookie.runtime.drivers import ThreadDriver
from herdpy.cli.app import app
from herdpy.cluster.cluster_record import ClusterRecord
from herdpy.cluster.registration import NodeRecord
from herdpy.cluster.tablespace_nodes import TablespaceNodes, TablespaceRecord, readable
from tests.fixtures.authorities import Authority
from tests.fixtures.zookeeper import zookeeper, zookeeper_root

__all__ = ["zookeeper", "zookeeper_root"]

LINE = "digest herd:geheim"
HERD, APP = Login("digest", "herd", "geheim").identity, Login("digest", "app", "x").identity
ID = "a" * 32


class Cluster:
    """`herdpy cluster` on a root with a tablespace; nodes are records that the test writes."""

    def __init__(self, hosts: str, root: str, folder: Path) -> None:
        self.hosts, self.root, self.folder = hosts, root, folder
        self.login = self.file("login", LINE)
        self.readers = self.file("readers", "digest app:x")
        self.thread = LoopThread(ThreadDriver())
        self.store = self.call(ZooKeeperStore.connect(hosts))
        self.nodes = TablespaceNodes(self.store, root)
        self.call(self.nodes.initialize())
        record = TablespaceRecord(id=ID, leader="n1", replicas=("n1",))
        self.call(self.nodes.create("sales", record, b"secret"))
        data = msgspec.json.encode(ClusterRecord(id="c" * 32))
        self.call(self.store.create(f"{root}/cluster", data))

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    def call(self, coroutine: Any) -> Any:
        return self.thread.call(coroutine)

    def register(self, name: str, access: StoreAccess) -> None:
        record = NodeRecord(id=name, life="1").with_access(access)
        self.call(self.store.create(self.nodes.node_path(name), record.to_bytes()))

    def run(
        self, *words: str, login: str | None = None, readers: str | None = None, code: int = 0
    ) -> Result:
        options = ["--zookeeper", self.hosts, "--root", self.root]
        options += [] if login is None else ["--zookeeper-login", login]
        options += [] if readers is None else ["--zookeeper-readers", readers]
        names = ("HERDPY_ZOOKEEPER_LOGIN", "HERDPY_ZOOKEEPER_LOGIN_FILE")
        result = CliRunner().invoke(app, ["cluster", *words, *options], env=dict.fromkeys(names))
        assert result.exit_code == code, (result.output, result.exception)
        assert "geheim" not in result.output
        return result

    def record(self, *words: str, **more: Any) -> dict[str, Any]:
        return json.loads(self.run(*words, "--json", **more).stdout.splitlines()[0])

    def close(self) -> None:
        self.call(self.store.close())
        self.thread.close()


@pytest.fixture
def cluster(zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(zookeeper.hosts, zookeeper_root, tmp_path)
    try:
        yield made
    finally:
        made.close()


def secured(*readers: Any) -> StoreAccess:
    return StoreAccess((HERD,), is_secured=True, readable=readable("", readers))


def test_secured_and_back(cluster: Cluster) -> None:
    cluster.register("n1", secured(APP))
    shown = cluster.record("acl", "show")
    assert (shown["nodes"], shown["deviating"], shown["expected"]) == (15, 0, "open")
    ours = {"login": cluster.login, "readers": cluster.readers}
    assert cluster.record("acl", "show", code=1, **ours)["deviating"] == 15
    dry = cluster.record("acl", "set", "secured", "--dry-run", **ours)
    assert (dry["changed"], dry["acl"], dry["is_dry"]) == (15, "digest:herd:…:cdrwa", True)
    assert dry["acl_for_readers"] == "digest:app:…:r, digest:herd:…:cdrwa"
    assert cluster.record("acl", "show")["deviating"] == 0
    assert cluster.record("acl", "set", "secured", **ours)["changed"] == 15
    assert "all 15 nodes are secured" in cluster.run("acl", "show", **ours).output
    assert cluster.record("acl", "set", "secured", **ours)["changed"] == 0
    refused = cluster.run("status", code=1)
    assert "42501" in refused.output
    assert "--zookeeper-login" in refused.output
    others = cluster.run("acl", "show", code=1).output
    assert "not readable for this session" in others
    wrong = cluster.file("wrong", "digest herd:geheim2")
    assert "42501" in cluster.run("acl", "set", "open", login=wrong, code=1).output
    assert cluster.record("acl", "set", "open", **ours)["changed"] == 15
    assert cluster.record("acl", "show")["deviating"] == 0


def test_another_choice_of_readers(cluster: Cluster) -> None:
    cluster.record("acl", "set", "secured", login=cluster.login)
    said = cluster.record("acl", "set", "secured", login=cluster.login, readers="anyone")
    # The folders of leaders, nodes, tablespaces, and what is in them.
    assert said["changed"] == 5
    assert said["acl_for_readers"] == "digest:herd:…:cdrwa, world:anyone:r"
    shown = cluster.run("acl", "show", login=cluster.login, code=1).output
    assert f"{cluster.root}/…  5 × digest:herd:…:cdrwa, world:anyone:r" in shown
    assert "5 of 14 nodes are not secured" in shown


def test_no_node_is_locked_out(cluster: Cluster) -> None:
    cluster.register("n1", secured())
    cluster.register("n2", StoreAccess())
    cluster.register("n3", StoreAccess((Login("digest", "herd", "other").identity,), True))
    said = cluster.run("acl", "set", "secured", login=cluster.login, code=1).output
    assert "do not say that they have this login: n2, n3" in said
    assert "55000" in said
    assert cluster.record("acl", "show")["deviating"] == 0
    cluster.run("acl", "set", "secured", "--dry-run", login=cluster.login)
    assert cluster.record("acl", "show")["deviating"] == 0
    done = cluster.run("acl", "set", "secured", "--unchecked", login=cluster.login)
    assert "would lock them out" in done.stderr
    assert "17 of 17 nodes were changed" in done.stdout


def test_what_will_not_be_as_the_others_is_told(cluster: Cluster) -> None:
    cluster.register("n1", StoreAccess((HERD,)))
    cluster.register("n2", secured(APP))
    said = cluster.run("acl", "set", "secured", "--unchecked", login=cluster.login).stderr
    assert "go on making open ones: n1" in said
    assert "let others read than this command does: n2" in said
    said = cluster.run("acl", "set", "open", login=cluster.login).stderr
    assert "go on making secured ones: n2" in said


def test_no_driver_is_locked_out(cluster: Cluster) -> None:
    cluster.register("n1", secured(APP))
    refused = cluster.run("acl", "set", "secured", login=cluster.login, code=1).output
    assert "let drivers read whom this command does not name: n1" in refused
    assert "55000" in refused
    assert cluster.record("acl", "show")["deviating"] == 0
    said = cluster.run("acl", "set", "secured", login=cluster.login, readers="anyone").stderr
    assert "would find no leader" not in said
    cluster.record("acl", "set", "secured", login=cluster.login, readers=cluster.readers)


def test_options_that_make_no_sense(cluster: Cluster, tmp_path: Path) -> None:
    assert "expected one, found none" in cluster.run("acl", "set", "secured", code=1).output
    for options, expected in (
        (("--zk-enable-security",), "expected a login for which nodes are made"),
        (("--zookeeper-tls", cluster.login, cluster.login), "expected --zookeeper-tls-trust FILE"),
        (("--zookeeper-tls-trust", cluster.login), "--zookeeper-tls-trust: cannot use"),
        (("--bookie-tls-trust", cluster.login), "--bookie-tls-trust: cannot use"),
        (("--zookeeper-readers", "none"), "--zookeeper-readers none: cannot be read"),
    ):
        assert expected in cluster.run("status", *options, code=1).output
    authority = Authority(tmp_path, "ours")
    one, two = authority.issue("one", "one"), authority.issue("two", "two")
    options = ("--bookie-tls-trust", authority.path, "--bookie-tls", one.certificate, two.key)
    assert "--bookie-tls: " in cluster.run("status", *options, code=1).output
    malformed = cluster.file("malformed", "geheim")
    assert "line 1: expected `digest" in cluster.run("status", login=malformed, code=1).output
    (tmp_path / "login").chmod(0o644)
    assert "chmod 600" in cluster.run("status", login=cluster.login, code=1).output


def test_there_is_no_cluster(cluster: Cluster) -> None:
    cluster.root += "x"
    for words in (("acl", "show"), ("acl", "set", "open")):
        assert "58P01" in cluster.run(*words, code=1).output
