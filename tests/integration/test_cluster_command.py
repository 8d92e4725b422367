"""`herdpy node` and `herdpy cluster` as processes: a killed leader, and what is refused."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import herdpy
from bookie.admin.zookeeper_process import ZooKeeperProcess
from herdpy.cli.app import app
from tests.fixtures.commanded_cluster import commanded
from tests.fixtures.line_process import LineProcess
from tests.fixtures.ports import own_port
from tests.fixtures.real_cluster import (
    HERDPY,
    LIMIT_S,
    RealCluster,
    is_alive,
    log_tail,
    wait_for,
)
from tests.fixtures.zookeeper import skip_without_zookeeper, zookeeper, zookeeper_root

__all__ = ["zookeeper", "zookeeper_root"]

pytestmark = pytest.mark.integration


def status(cluster: RealCluster) -> dict[str, Any]:
    """Return what the command says."""
    found = cluster.command("cluster", "status", "--json")
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def test_a_leader_is_moved_and_a_program_sees_no_error(tmp_path: Path) -> None:
    skip_without_zookeeper()
    with RealCluster(tmp_path / "cluster", "--tablespace", "sales") as cluster:
        first = cluster.leader()
        told: list[int] = []
        with herdpy.connect(cluster.dsn, autocommit=True) as writer:
            writer.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            begun_key = 0

            def write() -> None:
                nonlocal begun_key
                writer.execute("INSERT INTO t VALUES (?)", (begun_key,))
                told.append(begun_key)
                begun_key += 1

            second = next(name for name in ("n1", "n2", "n3") if name != first.node)
            command = [*HERDPY, "tablespace", "set-leader", "sales", second]
            options = ["--zookeeper", cluster.zookeeper, "--root", cluster.root]
            with subprocess.Popen(
                [*command, *options], stdout=subprocess.PIPE, text=True
            ) as moving:
                while moving.poll() is None:
                    write()
                assert moving.stdout is not None
                said = moving.stdout.read()
            assert moving.returncode == 0
            assert said.startswith(f"{second} leads sales under epoch {first.epoch + 1}, after ")
            write()
            found = [key for (key,) in writer.execute("SELECT id FROM t ORDER BY id")]
        assert found == told == list(range(begun_key))
        assert cluster.leader().node == second

        again = cluster.command("tablespace", "set-leader", "sales", second)
        assert "leads sales already" in again.stdout
        for name, node, sqlstate in (
            ("other", second, "3D000"),
            ("sales", "n9", "22023"),
            ("sales", "a b", "22023"),
        ):
            refused = cluster.command("tablespace", "set-leader", name, node)
            assert refused.returncode == 1
            assert sqlstate in refused.stderr
        cluster.kill(first.node)
        cluster.hang(next(n for n in ("n1", "n2", "n3") if n not in (first.node, second)))
        away = cluster.command("tablespace", "set-leader", "sales", first.node, "--timeout", "10")
        assert away.returncode == 1
        assert f"{first.node}: expected a node that is registered" in away.stderr
        assert cluster.leader().node == second


@pytest.mark.timeout(400)  # two clusters, and some twenty commands as processes
def test_what_a_killed_leader_has_told_is_there(tmp_path: Path) -> None:
    skip_without_zookeeper()
    data = tmp_path / "cluster"
    with RealCluster(data, "--tablespace", "sales") as cluster:
        assert cluster.dsn == f"herd+zk://{cluster.zookeeper}/sales"
        settings = (data / "ledgers" / "zookeeper" / "zoo.cfg").read_text()
        assert "tickTime=200\n" in settings  # a session of 2 s is granted, and ends by 2.2 s
        first = cluster.leader()
        told: list[int] = []
        with cluster.connect(autocommit=True) as writer:
            writer.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            for key in range(200):
                writer.execute("INSERT INTO t VALUES (?, ?)", (key, "x" * 20))
                told.append(key)
            killed = cluster.command("cluster", "kill", first.node, "--data", str(data))
            assert f"killed {first.node} (pid " in killed.stdout, killed.stderr
            assert not cluster.programs[first.node].is_running
            with pytest.raises(herdpy.OperationalError):
                writer.execute("INSERT INTO t VALUES (200, 'told of by no answer')")

        second = cluster.leader(not_under=first.epoch)
        assert second.node != first.node
        (found,) = status(cluster)["tablespaces"]
        assert (found["leader"], found["epoch"]) == (second.node, second.epoch)
        with cluster.connect(not_under=first.epoch) as reader:
            rows = [key for (key,) in reader.execute("SELECT id FROM t ORDER BY id")]
        assert rows == told
        warned = "\n".join(cluster.warnings)
        assert f"{first.node} ended" in warned
        assert f"--data {data / first.node}" in warned

        cluster.start(first.node)
        cluster.wait_ready(first.node)
        cluster.terminate(second.node)  # which gives its part away
        third = cluster.leader(not_under=second.epoch)
        with cluster.connect(not_under=second.epoch) as reader:
            assert reader.execute("SELECT count(*) FROM t").fetchone() == (len(rows),)
        assert third.node != second.node
        pids = [program.pid for program in cluster.programs.values()]
    assert not [pid for pid in pids if is_alive(pid)]

    ports = {name: program.address for name, program in cluster.programs.items()}
    with RealCluster(data, "--tablespace", "sales") as again:
        assert {name: program.address for name, program in again.programs.items()} == ports
        with again.connect() as reader:
            assert reader.execute("SELECT count(*) FROM t").fetchone() == (len(rows),)

        # What is refused, on a cluster that runs.
        node = again.programs[again.leader().node]
        options = ["--port", str(own_port()), "--session-timeout", "1"]
        for arguments, code, said in (
            (["node", *options, "--data", str(data / node.name)], "55006", "is in use by"),
            (
                ["node", *options, "--data", str(tmp_path / "x"), "--root", "/other"],
                "58P01",
                "none",
            ),
            (
                ["node", *options, "--data", str(tmp_path / "x"), "--id", "n1"],
                "55006",
                "another process runs as node n1",
            ),
            (
                ["node", "--port", node.address.split(":")[1], "--data", str(tmp_path / "x")],
                "58000",
                "choose another port (--port, server.port)",
            ),
            (["cluster", "init"], "42710", "there is a cluster already"),
            (["cluster", "create", "sales", "--replicas", "n1,n2"], "42P04", "already exists"),
            (["cluster", "create", "more", "--replicas", "n1,n9"], "22023", "found n1, n2, n3"),
        ):
            ran = again.command(*arguments)
            assert ran.returncode == 1, ran.stdout
            assert f"({code})" in ran.stderr, ran.stderr
            assert said in ran.stderr, ran.stderr
        assert not (tmp_path / "x" / "node.json").exists()
        assert node.is_running, log_tail(node)
        (found,) = status(again)["tablespaces"]
        assert found["name"] == "sales"
        operator_sees(again, len(rows))


def operator_sees(cluster: RealCluster, row_count: int) -> None:
    """Look at the cluster's tablespace and its log by commands, in this process: in milliseconds.

    row_count: in table t, each inserted by itself.
    """

    def said(*arguments: str, code: int = 0) -> str:
        options = ["--zookeeper", cluster.zookeeper]
        found = CliRunner().invoke(app, [*arguments, *options])
        assert found.exit_code == code, found.output
        return found.output

    leader = cluster.leader()
    (listed,) = json.loads(said("tablespace", "list", "--json"))["tablespaces"]
    assert (listed["name"], listed["leader"]) == ("sales", leader.node)
    shown = json.loads(said("tablespace", "show", "sales", "--json"))
    assert (shown["leader"], shown["epoch"]) == (leader.node, leader.epoch)
    assert [each["state"] for each in shown["ledgers"][:-1]] == ["closed"] * (
        len(listed["ledgers"]) - 1
    )
    assert shown["ledgers"][-1]["state"] == "open"
    assert shown["bytes"] == sum(each["bytes"] for each in shown["ledgers"])
    ledgers = json.loads(said("log", "ledgers", "sales", "--json"))["ledgers"]
    assert [each["id"] for each in ledgers] == listed["ledgers"]
    chain = json.loads(said("log", "chain", "sales", "--json"))
    assert chain["is_whole"]
    ends = [(each["id"], each["last_entry"]) for each in ledgers]
    headers = [(each["previous_ledger"], each["previous_entry"]) for each in chain["ledgers"]]
    assert headers == [(-1, -1), *ends[:-1]]
    assert "the chain is whole" in said("log", "chain", "sales")
    start = str(listed["ledgers"][0])
    lines = said("log", "tail", "sales", "--json", "--from", start).splitlines()
    records = [json.loads(line)["record"] for line in lines]
    assert sum(": 1 inserted" in each for each in records) == row_count
    # What looked has fenced nothing: the same leader commits to the same ledger.
    command = [*HERDPY, "log", "tail", "sales", "--follow", "--json"]
    with (
        LineProcess([*command, "--zookeeper", cluster.zookeeper]) as follower,
        cluster.connect(autocommit=True) as writer,
    ):
        for statement, told in (
            ("INSERT INTO t VALUES (1000, 'x')", ": 1 inserted"),
            ("DELETE FROM t WHERE id = 1000", ": 1 deleted"),
        ):
            writer.execute(statement)
            while told not in follower.until("record", LIMIT_S):
                pass
        os.kill(follower.pid, signal.SIGINT)
        assert follower.finish()[-1]["position"] > follower.lines[0]["position"]
    assert cluster.leader() == leader
    (again,) = json.loads(said("tablespace", "list", "--json"))["tablespaces"]
    del again["states"], listed["states"]  # which copies say as they go on
    assert again == listed
    copies_are_told(cluster, leader.node)
    for arguments, expected in (
        (("tablespace", "show", "none"), '"none" does not exist (3D000)'),
        (("log", "ledgers", "none"), "(3D000)"),
        (("log", "tail", "sales", "--root", "/other"), "expected a herdpy cluster, found none"),
        (("log", "tail", "sales", "--from", "999"), "position 999.0.0: expected one in the log"),
    ):
        assert expected in said(*arguments, code=1)


def copies_are_told(cluster: RealCluster, leader: str) -> None:
    """Wait until every node has said that its copy has all of the log, also by SQL."""

    def told() -> bool:
        (found,) = cluster.status()["tablespaces"]
        parts = {each["node"]: each["part"] for each in found["states"]}
        wanted = dict.fromkeys(("n1", "n2", "n3"), "following") | {leader: "leading"}
        return parts == wanted and len({each["position"] for each in found["states"]}) == 1

    wait_for(told, "replicas do not say that they are level")
    (found,) = cluster.status()["tablespaces"]
    assert all(each["is_there"] and each["lag_s"] < 60 for each in found["states"])
    parts = [(each["node"], each["part"]) for each in found["states"]]
    with cluster.connect(autocommit=True) as connection:

        def shown() -> bool:  # where a tick has moved the log on by now
            text = "SELECT node_id, part, position FROM systablespacereplicastate ORDER BY node_id"
            rows = connection.execute(text).fetchall()
            return [row[:2] for row in rows] == parts and len({row[2] for row in rows}) == 1

        wait_for(shown, "the leader does not know of its replicas")
        rows = connection.execute("SELECT node_id, is_this FROM sysnodes ORDER BY 1").fetchall()
        assert rows == [(node, node == leader) for node in ("n1", "n2", "n3")]
        text = "SELECT leader, replicas, expected_replicas FROM systablespaces"
        assert connection.execute(text).fetchall() == [(leader, "n1, n2, n3", 3)]
        text = "SELECT tablespace, node_id, part FROM syslog"
        assert connection.execute(text).fetchall() == [("sales", leader, "leading")]

        def is_logged() -> bool:  # a tick may come between the two
            (last,) = connection.execute("SELECT last_position FROM syslog").fetchall()
            text = "SELECT position FROM systablespacereplicastate WHERE node_id = ?"
            return connection.execute(text, (leader,)).fetchall() == [last]

        wait_for(is_logged, "the log ends elsewhere than the leader's copy")


@pytest.mark.long  # of `make test` the short kill-cluster has one of its kinds
def test_a_leader_that_hangs_is_deposed_and_follows_when_it_wakes(tmp_path: Path) -> None:
    skip_without_zookeeper()
    with RealCluster(tmp_path / "cluster", nodes=2) as cluster:
        first = cluster.leader()
        with cluster.connect(autocommit=True) as writer:
            writer.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            writer.execute("INSERT INTO t VALUES (1)")
            cluster.hang(first.node)
            with cluster.connect(autocommit=True, not_under=first.epoch) as other:
                other.execute("INSERT INTO t VALUES (2)")
            cluster.go_on(first.node)
            with pytest.raises(herdpy.OperationalError):
                writer.execute("INSERT INTO t VALUES (3)")
        log = cluster.programs[first.node].log
        wait_for(lambda: log.read_text().count("following") == 2, "it does not follow again")
        cluster.kill("bookie-1")  # two of three acknowledge
        with cluster.connect(autocommit=True) as writer:
            writer.execute("INSERT INTO t VALUES (4)")
            rows = writer.execute("SELECT id FROM t ORDER BY id").fetchall()
        assert rows == [(1,), (2,), (4,)]
        cluster.kill("zookeeper")  # the end is in good order without it, too
    for name in ("n1", "n2"):
        printed = cluster.programs[name].log.read_text()
        assert printed.endswith(f"node {name}: ended\n")  # not killed
        assert "error:" not in printed


def test_a_cluster_s_begin_and_its_refusals(
    zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path
) -> None:
    def ran(*arguments: str) -> str:
        command = [*HERDPY, *arguments, "--zookeeper", zookeeper.hosts, "--root", f"{root}/herd"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert found.returncode == 1, found.stdout
        return found.stderr

    root = zookeeper_root
    init = ("cluster", "init", "--ledgers", f"{root}/ledgers")
    assert "expected a BookKeeper's ledgers, found none (58P01)" in ran(*init)
    with commanded(zookeeper.hosts, f"{root}/ledgers"):
        assert "expected 2 bookies at least" in (said := ran(*init))
        assert "(53000)" in said
    assert "expected a herdpy cluster, found none (58P01)" in ran("cluster", "status")
    node = ("node", "--data", str(tmp_path / "n1"), "--port", str(own_port()))
    assert "expected a herdpy cluster, found none (58P01)" in ran(*node)
    assert "(58P01)" in ran("cluster", "create", "t", "--replicas", "n1")
    assert list(tmp_path.iterdir()) == []


def test_a_zookeeper_that_is_away(tmp_path: Path) -> None:
    hosts = f"127.0.0.1:{own_port()}"
    data = tmp_path / "n1"
    command = [*HERDPY, "node", "--zookeeper", hosts, "--data", str(data)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert found.returncode == 1
    assert f"expected a ZooKeeper at {hosts}, found none" in found.stderr
    assert "(08001)" in found.stderr
    assert not data.exists()


def test_bad_input_to_a_cluster_that_runs_is_told_and_writes_nothing(tmp_path: Path) -> None:
    skip_without_zookeeper()
    up, new = tmp_path / "cluster", tmp_path / "new"

    def refused(cluster: RealCluster, *arguments: str) -> str:
        found = cluster.command(*arguments)
        assert found.returncode == 1, found.stdout
        return found.stderr

    with RealCluster(up, "--tablespace", "sales", nodes=2) as cluster:
        leader = cluster.leader()
        nodes = {name: str(up / name) for name in ("n1", "n2")}
        fresh = ("node", "--data", str(new), "--port", str(own_port()))

        said = refused(cluster, *fresh, "--root", "/other")
        assert "/other/cluster: expected a herdpy cluster, found none (58P01)" in said
        assert "(--root)" in said  # what to do
        said = refused(cluster, *fresh, "--id", "n1")
        assert "another process runs as node n1" in said
        assert "(55006)" in said
        assert not (new / "node.json").exists()
        said = refused(cluster, "node", "--data", nodes["n1"], *fresh[3:])
        assert "is in use by" in said
        assert "(55006)" in said

        said = refused(cluster, "doctor", nodes["n1"])
        assert "is open in another process" in said
        assert "(55006)" in said
        said = refused(cluster, "serve", nodes["n1"], "--port", "0")
        assert "herdpy node" in said
        assert "(58P01)" in said

        for url in (f"herd+zk://{cluster.zookeeper}/nothing", f"herd://{leader.address}/nothing"):
            with pytest.raises(herdpy.Error) as caught:
                herdpy.connect(url)
            assert caught.value.sqlstate == "3D000"
        assert "(42P04)" in refused(cluster, "cluster", "create", "sales", "--replicas", "n1")
        said = refused(cluster, "cluster", "create", "more", "--replicas", "n7")
        assert "expected a node that is registered, found n1, n2" in said

        second = ("--root", "/second")
        assert cluster.command("cluster", "init", *second).returncode == 0
        cluster.terminate("n2")
        said = refused(cluster, "node", "--data", nodes["n2"], *fresh[3:], *second)
        assert "of another cluster" in said
        assert "(55000)" in said
        found = cluster.command("doctor", nodes["n2"])
        assert found.returncode == 0, found.stdout
        assert "of node n2 of cluster" in found.stdout
        assert "no damage" in found.stdout

        cluster.kill("bookie-1")
        cluster.kill("bookie-2")
        wait_for(lambda: len(cluster.status()["bookies"]) == 1, "a bookie that is dead is there")
        said = refused(cluster, "cluster", "create", "more", "--replicas", "n1")
        assert "expected 2 bookies at least" in said
        assert "(53000)" in said
        names = [each["name"] for each in cluster.status()["tablespaces"]]
        assert names == ["sales"]
