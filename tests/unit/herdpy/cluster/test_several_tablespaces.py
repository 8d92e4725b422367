"""Several tablespaces on one node: one port, and a leader for each. Real threads and sockets."""

import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import grpc
import pytest
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

import herdpy
from herdpy.cluster.node import Node
from herdpy.cluster.part import State
from herdpy.cluster.tablespace_nodes import TablespaceNodes
from herdpy.config import ServerConfig
from herdpy.engine.database import Database
from herdpy.errors import InternalError
from herdpy.proto import herdpy_pb2 as pb
from herdpy.server.hub import Hub
from herdpy.server.login.gate import TABLESPACE_KEY
from herdpy.server.operations.metrics import families_of
from tests.fixtures.grpc_clients import error_of, grpc_client, plain
from tests.fixtures.node_cluster import ROOT, NodeCluster
from tests.fixtures.ports import own_port


class Nodes:
    """Two nodes as `herdpy node` has them, which carry sales and more."""

    def __init__(self, cluster: NodeCluster) -> None:
        self.cluster = cluster
        self.ports = [own_port(), own_port()]
        self.nodes = [self._serving(f"n{n}", port) for n, port in enumerate(self.ports, 1)]
        for name in ("sales", "more"):
            cluster.create(name, "n1", "n2", tablespace_id=name.encode().hex().ljust(32, "0"))
        cluster.until(lambda: all(map(self.is_level, ("sales", "more"))))
        # Until then clients are told 57P03: each server is let in by a task of its own.
        cluster.until(lambda: all(len(each.port.let_in_now()) == 2 for each in cluster.services))

    def is_level(self, name: str) -> bool:
        """One leads the tablespace, and the other follows."""
        states = [node.parts.get(name) for node in self.nodes]
        return set(states) == {State.LEADING, State.FOLLOWING}

    def leader_of(self, name: str) -> int:
        """Return 1 or 2."""
        return 1 + [node.parts[name] for node in self.nodes].index(State.LEADING)

    def _serving(self, name: str, port: int) -> Node:
        return self.cluster.serve(name, ServerConfig(port=port, connections_max=50))

    def url(self, tablespace: str, *, at: int | None = None) -> str:
        ports = self.ports if at is None else [self.ports[at - 1]]
        return f"herd://{','.join(f'127.0.0.1:{port}' for port in ports)}/{tablespace}"

    def hubs(self, number: int) -> list[Hub]:
        return [server._hub for server in self.cluster.services[number - 1].servers]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    cluster = NodeCluster()
    try:
        yield Nodes(cluster)
    finally:
        cluster.close()


def test_each_tablespace_has_its_own_leader_and_rows(nodes: Nodes) -> None:
    for name in ("sales", "more"):
        with herdpy.connect(nodes.url(name), autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, of TEXT)")
            connection.execute("INSERT INTO t VALUES (1, ?)", (name,))
            position = connection.position
        with herdpy.connect(nodes.url(name, at=nodes.leader_of(name))) as connection:
            assert connection.execute("SELECT of FROM t").fetchall() == [(name,)]
        follower = f"{nodes.url(name, at=3 - nodes.leader_of(name))}?read=follower"
        with herdpy.connect(follower, autocommit=True) as connection:
            connection.wait_for(position, timeout=10.0)
            assert connection.execute("SELECT of FROM t").fetchall() == [(name,)]


@pytest.mark.parametrize("number", [1, 2])
def test_a_program_goes_on_while_the_other_node_takes_over(nodes: Nodes, number: int) -> None:
    with (
        herdpy.connect(nodes.url("sales"), autocommit=True) as sales,
        herdpy.connect(nodes.url("more"), autocommit=True) as more,
    ):
        for each in (sales, more):
            each.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            each.execute("INSERT INTO t VALUES (1)")
        nodes.cluster.thread.call(nodes.nodes[number - 1].close())
        other = nodes.nodes[2 - number]
        nodes.cluster.until(lambda: set(other.parts.values()) == {State.LEADING})
        for each in (sales, more):
            each.execute("INSERT INTO t VALUES (2)")
            assert each.execute("SELECT count(*) FROM t").fetchall() == [(2,)]


@pytest.mark.parametrize("name", ["default", "absent"])
def test_a_client_that_names_none_of_several(nodes: Nodes, name: str) -> None:
    with pytest.raises(herdpy.OperationalError) as caught:
        herdpy.connect(f"{nodes.url(name, at=1)}?retry_timeout_s=0")
    assert caught.value.sqlstate == "3D000"


def test_a_tablespace_whose_copy_is_closed_is_asked_for_again(nodes: Nodes) -> None:
    port, hub = nodes.cluster.services[0].port, nodes.hubs(1)[0]

    async def leave() -> None:
        port.leave(hub.tablespace, hub)

    nodes.cluster.thread.call(leave())
    with pytest.raises(herdpy.OperationalError) as caught:
        herdpy.connect(f"{nodes.url(hub.tablespace, at=1)}?retry_timeout_s=0")
    assert (caught.value.sqlstate, caught.value.retry) == ("57P03", herdpy.Retry.SAFE)
    assert hub.tablespace not in str(caught.value)  # which there are is not for all


def test_one_that_is_dropped_is_not_there_any_more(nodes: Nodes) -> None:
    async def drop() -> None:
        there = TablespaceNodes(nodes.cluster.bookies.store, ROOT)
        assert await there.drop("sales", await there.read("sales")) is not None

    nodes.cluster.thread.call(drop())
    nodes.cluster.until(lambda: all(list(node.parts) == ["more"] for node in nodes.nodes))
    with pytest.raises(herdpy.OperationalError) as caught:
        herdpy.connect(f"{nodes.url('sales', at=1)}?retry_timeout_s=0")
    assert caught.value.sqlstate == "3D000"
    with herdpy.connect(nodes.url("default")) as connection:  # of a node that carries one
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_metrics_of_several_say_which_tablespace_they_are_of(nodes: Nodes) -> None:
    class Pages(Collector):
        def collect(self) -> Iterator[object]:  # type: ignore[override]
            return families_of(nodes.hubs(1))

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Pages())
    text = generate_latest(registry).decode()
    assert 'herdpy_ready{tablespace="more"} 1.0' in text
    assert 'herdpy_ready{tablespace="sales"} 1.0' in text
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines)), "two figures of one name"


def test_limits_are_those_of_the_node() -> None:
    cluster = NodeCluster()
    try:
        port = own_port()
        config = ServerConfig(port=port, connections_max=4, superuser_reserved_connections=0)
        node = cluster.serve("n1", config)
        (services,) = cluster.services
        urls: dict[str, str] = {}
        for number, name in enumerate(("sales", "more")):
            urls[name] = f"herd://127.0.0.1:{port}/{name}?retry_timeout_s=0"
            cluster.create(name, "n1", tablespace_id=str(number) * 32)
            cluster.until(lambda each=name: node.parts.get(each) is State.LEADING)
        sales, more = [server._hub for server in services.servers]
        assert sales.workers.pool is more.workers.pool
        with ExitStack() as stack:
            opened = [
                stack.enter_context(herdpy.connect(urls[name]))
                for name in ("sales", "more", "sales", "more")
            ]
            for url in urls.values():
                with pytest.raises(herdpy.OperationalError) as caught:
                    herdpy.connect(url)
                assert caught.value.sqlstate == "53300"
                assert "4 of 4 connections are open" in str(caught.value)
            opened[1].close()
            stack.enter_context(herdpy.connect(urls["sales"]))
        cluster.until(lambda: sales.entered_count == 0)

        for hub in (sales, more):  # what one may have of what both share
            assert hub.default.results.maximum == int(0.75 * config.results_max)
            assert hub.default.shares.usual_max == int(0.75 * config.workers)
        assert sales.default.received.take(None, int(0.75 * config.request_bytes_max)) is None
        assert more.default.received.take(None, int(0.75 * config.request_bytes_max)) is not None
        sales.default.received.give(None, int(0.75 * config.request_bytes_max))

        async def drop() -> None:
            there = TablespaceNodes(cluster.bookies.store, ROOT)
            assert await there.drop("sales", await there.read("sales")) is not None

        cluster.thread.call(drop())
        cluster.until(lambda: list(node.parts) == ["more"])
        assert more.default.results.maximum == config.results_max
        assert more.default.shares.usual_max is None
    finally:
        cluster.close()


@pytest.fixture
def by_grpc() -> Iterator[tuple[NodeCluster, str]]:
    """One node that leads sales and more, and where it serves gRPC."""
    cluster = NodeCluster()
    try:
        ports = [own_port(), own_port()]
        config = ServerConfig(port=ports[0], grpc_port=ports[1], connections_max=50)
        node = cluster.serve("n1", config)
        for number, name in enumerate(("sales", "more")):
            cluster.create(name, "n1", tablespace_id=str(number) * 32)
            cluster.until(lambda each=name: node.parts.get(each) is State.LEADING)
        yield cluster, f"herd+grpc://127.0.0.1:{ports[1]}"
    finally:
        cluster.close()


def in_metadata(name: str, authorization: str = "") -> dict[str, tuple[tuple[str, str], ...]]:
    shown = (("authorization", authorization),) if authorization else ()
    return {"metadata": ((TABLESPACE_KEY, name), *shown)}


def test_each_tablespace_is_reached_by_grpc(by_grpc: tuple[NodeCluster, str]) -> None:
    _, url = by_grpc
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(herdpy.connect(f"{url}/{name}", autocommit=True))
            for name in ("sales", "more")
        }
        for name, connection in opened.items():
            connection.execute("CREATE TABLE t (of TEXT PRIMARY KEY)")
            connection.execute("INSERT INTO t VALUES (?)", (name,))
        client = stack.enter_context(grpc_client(url))
        for name, connection in opened.items():
            assert connection.execute("SELECT of FROM t").fetchall() == [(name,)]
            request = pb.ExecuteRequest(text="SELECT of FROM t", tablespace=name)
            for more in ({}, in_metadata(name)):
                assert plain(client.Execute(request, **more).rows) == [[name]]
            unnamed = pb.ExecuteRequest(text="SELECT of FROM t")
            assert plain(client.Execute(unnamed, **in_metadata(name)).rows) == [[name]]
            shown = client.GetServer(pb.GetServerRequest(), **in_metadata(name))
            assert list(shown.tablespaces) == [name]
            found = client.GetTablespace(pb.GetTablespaceRequest(tablespace=name))
            assert (found.name, found.table_count) == (name, 1)
    for name in ("default", "absent"):
        with pytest.raises(herdpy.OperationalError) as caught:
            herdpy.connect(f"{url}/{name}?retry_timeout_s=0")
        assert caught.value.sqlstate == "3D000"


def test_a_login_by_grpc_is_of_one_of_the_tablespaces(by_grpc: tuple[NodeCluster, str]) -> None:
    cluster, url = by_grpc
    databases = [server._hub.database for server in cluster.services[0].servers]
    assert len({each.entry.id for each in databases}) == 2
    for name in ("sales", "more"):
        with herdpy.connect(f"{url}/{name}", autocommit=True) as connection:
            connection.execute("CREATE TABLE t (of TEXT PRIMARY KEY)")
            connection.execute("INSERT INTO t VALUES (?)", (name,))
            connection.execute(f"CREATE USER ada PASSWORD 'a secret of {name}' SUPERUSER")
            connection.execute("CREATE USER bob PASSWORD 'of both' SUPERUSER")
    with grpc_client(url) as client:

        def basic(name: str) -> str:
            return f"Basic {b64encode(f'ada:a secret of {name}'.encode()).decode()}"

        def ask(name: str, **more: Any) -> list[list[Any]]:
            request = pb.ExecuteRequest(text="SELECT of FROM t", tablespace=name)
            return plain(client.Execute(request, **more).rows)

        def login(name: str) -> str:
            (reply,) = client.Login(iter(()), **in_metadata(name, basic(name)))
            return f"Bearer {reply.logged_in.token}"

        bob = f"Basic {b64encode(b'bob:of both').decode()}"
        with pytest.raises(grpc.RpcError) as unproved:  # a user of the same name is another one
            ask("sales", **in_metadata("more", bob))
        assert error_of(unproved.value).sqlstate == "28000"
        assert ask("sales", **in_metadata("sales", bob)) == [["sales"]]
        tokens = {name: login(name) for name in ("sales", "more")}
        for name, other in (("sales", "more"), ("more", "sales")):
            assert ask(name, **in_metadata(name, basic(name))) == [[name]]
            assert ask(name, metadata=(("authorization", tokens[name]),)) == [[name]]
            assert ask("", metadata=(("authorization", tokens[name]),)) == [[name]]
            for refused, sqlstate in (
                ({}, "28000"),
                (in_metadata(name), "28000"),
                (in_metadata(name, basic(other)), "28P01"),
                (in_metadata(other, basic(other)), "28000"),  # not tried there as a password
                ({"metadata": (("authorization", tokens[other]),)}, "28000"),
                ({"metadata": (("authorization", "Bearer none"),)}, "28000"),
            ):
                with pytest.raises(grpc.RpcError) as caught:
                    ask(name, **refused)
                assert error_of(caught.value).sqlstate == sqlstate


def test_a_tablespace_without_an_open_copy_is_unavailable_by_grpc(
    by_grpc: tuple[NodeCluster, str],
) -> None:
    cluster, url = by_grpc
    (services,) = cluster.services
    hubs = {server._hub.tablespace: server._hub for server in services.servers}

    async def leave(name: str) -> None:
        services.port.leave(name, hubs[name])

    with grpc_client(url) as client:
        for gone in ("sales", "more"):
            cluster.thread.call(leave(gone))
            request = pb.ExecuteRequest(text="SELECT 1", tablespace=gone)
            for more in ({}, in_metadata(gone)):
                with pytest.raises(grpc.RpcError) as caught:
                    client.Execute(request, **more)
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
                assert error_of(caught.value).sqlstate == "57P03"
            with pytest.raises(herdpy.OperationalError) as refused:
                herdpy.connect(f"{url}/{gone}?retry_timeout_s=0")
            # With none left a stream does not begin, as where no socket listens.
            sqlstate = "57P03" if gone == "sales" else "08001"
            assert (refused.value.sqlstate, refused.value.retry) == (sqlstate, herdpy.Retry.SAFE)
            if gone == "sales":
                request = pb.ExecuteRequest(text="SELECT 1", tablespace="more")
                assert plain(client.Execute(request).rows) == [[1]]


def test_grpc_goes_on_when_a_tablespace_is_dropped() -> None:
    cluster = NodeCluster()
    try:
        ports = [own_port(), own_port()]
        config = ServerConfig(port=ports[0], http_port=-1, grpc_port=ports[1], connections_max=50)
        node = cluster.serve("n1", config)
        for number, name in enumerate(("sales", "more")):
            cluster.create(name, "n1", tablespace_id=str(number) * 32)
            cluster.until(lambda each=name: node.parts.get(each) is State.LEADING)

        async def drop() -> None:
            there = TablespaceNodes(cluster.bookies.store, ROOT)
            assert await there.drop("sales", await there.read("sales")) is not None

        for name, lacks in (("sales", False), ("more", True)):
            if lacks:
                cluster.thread.call(drop())
                cluster.until(lambda: list(node.parts) == ["more"])
            with herdpy.connect(f"herd+grpc://127.0.0.1:{ports[1]}/{name}") as connection:
                assert connection.execute("SELECT 1").fetchall() == [(1,)]
    finally:
        cluster.close()


def database_of(nodes: Nodes, number: int, name: str) -> Database:
    (found,) = [each.database for each in nodes.hubs(number) if each.tablespace == name]
    return found


def test_memory_is_the_node_s(nodes: Nodes) -> None:
    sales, more = (database_of(nodes, 1, name) for name in ("sales", "more"))
    resources = sales.instance.resources
    assert more.instance.resources is resources
    assert sales.vector_of(None) is more.vector_of(None)
    assert sales.memory.account.bytes_max == int(0.75 * sales.config.memory_bytes_max)
    held = more.memory.transactions.reserve("a transaction")
    assert held.grow_to(5_000_000)
    with herdpy.connect(f"{nodes.url('sales', at=1)}?read=nearest") as connection:
        used = "SELECT share, used >= 5000000 FROM syslimits WHERE name = 'memory'"
        assert connection.execute(used).fetchall() == [(sales.config.memory_bytes_max, True)]
        node = "SELECT bytes_max FROM sysmemory WHERE account = 'node'"
        assert connection.execute(node).fetchall() == [(sales.config.memory_bytes_max,)]
        others = "SELECT count(*) FROM sysmemory WHERE account LIKE 'more%'"
        assert connection.execute(others).fetchall() == [(0,)]
    held.close()


def test_a_copy_that_fails_takes_nothing_from_the_others(nodes: Nodes) -> None:
    number = nodes.leader_of("sales")
    with herdpy.connect(nodes.url("sales"), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1)")
    failed, kept = database_of(nodes, number, "sales"), database_of(nodes, number, "more")
    resources, engine = kept.instance.resources, kept.vector_of(None)
    held = failed.memory.transactions.reserve("a transaction")
    assert held.grow_to(5_000_000)
    failed.tablespace.stop(InternalError("planted"))
    nodes.cluster.until(lambda: failed.is_closed and nodes.is_level("sales"))
    again = database_of(nodes, number, "sales")
    assert again is not failed
    assert again.instance.resources is resources
    assert failed.memory.account.parent is None
    resources.memory.governor.settle()
    assert resources.memory.bytes_used < 5_000_000
    assert database_of(nodes, number, "more") is kept
    assert kept.vector_of(None) is again.vector_of(None) is engine
    with herdpy.connect(nodes.url("sales")) as connection:
        query = "SELECT id, sum(id) OVER (ORDER BY id) FROM t"
        assert connection.execute(query).fetchall() == [(1, 1)]


def test_a_tablespace_more_is_two_threads_more() -> None:
    """Of its copy's calls that wait, and of the log that this node writes."""

    def names() -> list[str]:
        threads = [each.name for each in threading.enumerate()]
        return sorted(each for each in threads if each.startswith("herdpy"))

    cluster = NodeCluster()
    try:
        port = own_port()
        node = cluster.serve("n1", ServerConfig(port=port, workers=1, connections_max=50))
        found: list[list[str]] = []
        for number in range(5):
            cluster.create(f"t{number}", "n1", tablespace_id=str(number) * 32)
            cluster.until(lambda each=f"t{number}": node.parts.get(each) is State.LEADING)
            with herdpy.connect(f"herd://127.0.0.1:{port}/t{number}", autocommit=True) as one:
                one.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
                one.execute("INSERT INTO t VALUES (1)")
                query = "SELECT id, sum(id) OVER (ORDER BY id) FROM t"
                assert one.execute(query).fetchall() == [(1, 1)]
            found.append(names())
        for number, (before, behind) in enumerate(pairwise(found), 1):
            more = Counter(behind) - Counter(before)
            assert more == Counter([f"herdpy-copy-t{number}_0", "herdpy-ledger-log"])
    finally:
        cluster.close()
