"""`herdpy node` and `herdpy cluster`, run in this process: what they refuse, what they show."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from herdpy.cli.app import app
from herdpy.cli.cluster.log_view import chain_record, chain_table, record_line
from herdpy.cli.cluster.tablespace_view import Shown, shown_record, shown_tables
from herdpy.cli.cluster.view import as_record, as_tables, changes
from herdpy.cluster.observability.log_reading import LedgerFacts, Link
from herdpy.cluster.registration import NodeRecord
from herdpy.cluster.status import ClusterStatus, NodeStatus, ReplicaStatus, TablespaceStatus
from herdpy.driver.dsn import RemoteTarget, parse_target
from herdpy.driver.local import disk_of_directory
from herdpy.errors import CorruptionError
from herdpy.log.record import BeginLedger, encode
from herdpy.node.addresses import dsn_of


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("node", "--data", "x", "--port", "0"), "server.port: expected the port"),
        (("node", "--data", "x", "--host", "0.0.0.0"), "'0.0.0.0' is no address that clients"),
        (("node", "--data", "x", "--advertised-address", "foo"), "expected HOST:PORT, found 'foo'"),
        (("node", "--data", "x", "--advertised-address", "http://me:7"), "found 'http://me:7'"),
        (("node", "--data", "x", "--advertised-address", "me:70000"), "found 'me:70000'"),
        (("node", "--data", "x", "--id", "a b"), "node id: expected 1 to 63 letters"),
        (("cluster", "create", "t", "--replicas", ""), "node id: expected 1 to 63 letters"),
        (
            ("cluster", "create", "t", "--replicas", "n1,n1"),
            "each replica once; found 't' on n1, n1",
        ),
        (("cluster", "create", "", "--replicas", "n1"), "expected a name"),
        (("cluster", "create", "\udcff", "--replicas", "n1"), "expected a name"),
        (("cluster", "up", "--tablespace", ""), "expected a name"),
        (("cluster", "up", "--set", "foo=1"), "there is no setting 'foo'"),
        (("cluster", "init", "--ack-quorum", "4"), "expected ack <= write <= ensemble, found 4"),
    ],
)
def test_what_is_wrong_before_zookeeper_is_asked(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert said in result.output
    assert "(22023)" in result.output
    assert "starting" not in result.output


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--root", "herd", "a path such as /herd"),
        ("--root", "/", "a path such as /herd"),
        ("--zookeeper", "zk1", "host:port"),
        ("--zookeeper", "zk1:2181;zk2:2181", "host:port"),
        ("--zookeeper", "zk1:2181,", "host:port"),
        ("--zookeeper", "127.0.0.1:99999", "host:port"),
        ("--zookeeper", "127.0.0.1:0", "host:port"),
    ],
)
def test_what_is_no_cluster_s_address(option: str, value: str, expected: str) -> None:
    result = run("cluster", "status", option, value)
    assert result.exit_code == 2
    assert f"expected {expected}" in result.output


def test_a_directory_of_something_else_is_no_cluster_s(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    result = run("cluster", "up", "--data", str(tmp_path))
    assert result.exit_code == 1
    assert "found 'photo.jpg' in it (58P01)" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_directory_that_runs_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"node_ports": [1]}')
    (tmp_path / "ledgers.log").write_text("what the one that runs has printed")
    lock = disk_of_directory(str(tmp_path)).lock("LOCK", "pid 7")
    try:
        result = run("cluster", "up", "--data", str(tmp_path))
    finally:
        lock.close()
    assert result.exit_code == 1
    assert "a cluster runs there already, of pid 7 (55006)" in result.output
    assert "name another directory with --data" in result.output
    assert (tmp_path / "cluster.json").read_text() == '{"node_ports": [1]}'
    assert (tmp_path / "ledgers.log").read_text() == "what the one that runs has printed"


def test_what_bookie_local_refuses_is_told(tmp_path: Path) -> None:
    data = tmp_path / "c"
    (data / "ledgers").mkdir(parents=True)
    (data / "ledgers" / "local.json").write_text("{")
    (data / "cluster.json").write_text('{"node_ports": [1]}')
    result = run("cluster", "up", "--data", str(data))
    assert result.exit_code == 1
    said = "cluster up: ZooKeeper and bookies did not start (log: "
    assert f"{said}{data / 'ledgers.log'}): " in result.output
    assert "local.json: expected the ports of an earlier run" in result.output
    assert "(58000)" in result.output


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("cluster", "up", "--data", str(tmp_path / "file" / "below"))
    assert result.exit_code == 1
    assert "below cannot be made: Not a directory (58030)" in result.output


@pytest.mark.parametrize("name", ["sales", "a/b?x", "a#b", "100%", "é@:", ".."])
def test_the_url_that_is_shown_names_the_tablespace(name: str) -> None:
    target = parse_target(dsn_of("127.0.0.1:2181", "/herd", name))
    assert isinstance(target, RemoteTarget)
    assert (target.tablespace, target.root) == (name, "/herd")


@pytest.mark.parametrize("text", ["", "{", '{"node_ports": ["x"]}', "[]"])
def test_a_plan_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    result = run("cluster", "up", "--data", str(tmp_path))
    assert result.exit_code == 1
    assert "expected the ports of an earlier run" in result.output
    assert "(XX001)" in result.output


def status(leader: str | None = "n1", epoch: int = 2, *sessions: int) -> ClusterStatus:
    nodes = tuple(
        NodeStatus(
            f"n{number}",
            {"herd": f"127.0.0.1:700{number}"},
            session,
            NodeRecord(id=f"n{number}", life="1", has_tls=True),
        )
        for number, session in enumerate(sessions, 1)
        if session
    )
    tablespace = TablespaceStatus(
        name="sales",
        id="0" * 32,
        epoch=epoch,
        named="n1",
        leader=leader,
        address=None if leader is None else "127.0.0.1:7001",
        replicas=("n1", "n2"),
        expected=2,
        ledgers=(3, 4, 5, 6),
        first_ledger=0,
    )
    bookies = {"b1:3181": "writable", "b2:3181": "read-only"}
    return ClusterStatus("c", "/herd", "/ledgers", (3, 3, 2), nodes, (tablespace,), bookies)


def test_changes_are_told_once() -> None:
    first = status("n1", 2, 11, 12)
    assert changes(None, first) == [
        "node n1: there, at 127.0.0.1:7001",
        "node n2: there, at 127.0.0.1:7002",
        "bookie b1:3181: writable",
        "bookie b2:3181: read-only",
        "tablespace sales: n1 leads under epoch 2, at 127.0.0.1:7001",
    ]
    assert changes(first, first) == []
    gone = status(None, 2, 0, 12)._replace(bookies={"b1:3181": "writable"})
    assert changes(first, gone) == [
        "node n1: away",
        "bookie b2:3181: away",
        "tablespace sales: no leader (epoch 2)",
    ]
    back = status("n1", 3, 13, 12)
    assert changes(first, back) == [
        "node n1: there, at 127.0.0.1:7001",
        "tablespace sales: n1 leads under epoch 3, at 127.0.0.1:7001",
    ]


def test_tables_and_record() -> None:
    console = Console(width=100, record=True, file=None)
    with console.capture() as captured:
        console.print(as_tables(status(None, 2, 0, 12)))
    shown = captured.get()
    assert "none (n1 was named last)" in shown
    assert "1 more, 4, 5, 6" in shown
    assert "ledgers lie on 3 bookies, an entry on 3, and 2 acknowledge it" in shown
    record = as_record(status("n1", 2, 11))
    assert record["nodes"] == [
        {
            "id": "n1",
            "addresses": {"herd": "127.0.0.1:7001"},
            "has_tls": True,
            "session": "0xb",
        }
    ]
    assert record["tablespaces"][0]["ledgers"] == [3, 4, 5, 6]


def test_what_replicas_have_said() -> None:
    states = (
        ReplicaStatus("n1", True, "leading", "6.9.0", 0.0, 1_000),
        ReplicaStatus("n2", True, "following", "6.8.0", 0.42, 1_000),
        ReplicaStatus("n3", False, "following", "5.1.0", None, 900),
        ReplicaStatus("n4", True, None, None, None, None),
    )
    found = status("n1", 2, 11, 12, 0, 14)
    tablespace = found.tablespaces[0]._replace(
        replicas=("n1", "n2", "n3", "n4"), expected=4, states=states
    )
    ledger = LedgerFacts(
        6, 2, "open", 0, 9, 1234, ((0, ("b1:3181",)), (5, ("b2:3181",))), (1, 1, 1)
    )
    closed = ledger._replace(id=5, state="closed", byte_count=1000)
    shown = Shown(tablespace, (closed, ledger))
    console = Console(width=100)
    with console.capture() as captured:
        console.print(as_tables(found._replace(tablespaces=(tablespace,))), shown_tables(shown))
    text = captured.get()
    assert "n1, n2 (0.4 s), n3, n4 (-)" in text
    assert re.search(r"n2 +following +6\.8\.0 +0\.4 s", text)
    assert re.search(r"n3 +away +5\.1\.0 +-", text)
    assert re.search(r"n4 +- +- +-", text)
    assert re.search(r"bytes kept +2,234", text)
    assert "b1:3181; from 5: b2:3181" in text
    record = shown_record(shown)
    assert record["states"][1] == {
        "node": "n2", "is_there": True, "part": "following", "position": "6.8.0", "lag_s": 0.42,
        "said_ms": 1_000,
    }  # fmt: skip
    assert record["bytes"] == 2234
    unknown = Shown(tablespace, (closed, ledger._replace(byte_count=None, last_entry=None)))
    assert shown_record(unknown)["bytes"] is None


def test_a_chain_that_is_broken_says_where() -> None:
    links = [
        Link(4, BeginLedger(2, -1, -1), None),
        Link(5, None, CorruptionError("ledger 5 goes on behind entry 7 of ledger 3")),
        Link(6, BeginLedger(3, 5, 2), None),
    ]
    console = Console(width=100)
    with console.capture() as captured:
        console.print(chain_table(links))
    text = captured.get()
    assert "ledger 5 goes on behind entry 7 of ledger 3" in text
    assert "1 of 3 ledgers do not fit" in text
    assert re.search(r"6 +3 +5\.2 +whole", text)
    found = chain_record(links)
    assert not found["is_whole"]
    assert found["ledgers"][1]["problem"] == "ledger 5 goes on behind entry 7 of ledger 3"
    assert chain_record([links[0]])["is_whole"]


def test_bytes_that_are_no_record_are_told_as_such() -> None:
    assert record_line(encode(BeginLedger(3, -1, -1))) == "begin ledger of epoch 3, the first"
    assert record_line(b"\xc1\xc1").startswith("expected a record, found 2 bytes that are none: ")


@pytest.mark.parametrize("text", ["", "x", "1.x", "1.2.3.4", "-1", "1..2", "\u0661"])
def test_what_is_no_position(text: str) -> None:
    result = run("log", "tail", "sales", "--from", text)
    assert result.exit_code == 2
    assert "expected LEDGER, LEDGER.ENTRY or LEDGER.ENTRY.INDEX" in result.output


def test_a_cluster_without_anything_says_what_makes_it() -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(as_tables(status()._replace(nodes=(), tablespaces=())))
    assert "`herdpy node` starts one" in captured.get()
    assert "`herdpy cluster create` makes one" in captured.get()
