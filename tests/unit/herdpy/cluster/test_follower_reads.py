"""Programs that read on nodes that follow: servers on ports, over copies of one log."""

from collections.abc import Iterator

import pytest

import herdpy
from herdpy.cluster.part import State
from herdpy.cluster.registration import NodeRecord
from herdpy.cluster.served_part import ServedPart
from herdpy.cluster.tenure import Tenure
from herdpy.config import ServerConfig
from herdpy.errors import Error, Retry
from herdpy.server.server import Server
from tests.fixtures.ports import own_port
from tests.unit.herdpy.cluster.test_member import Cluster, Node, _call


class ServedNode(Node):
    """A node whose clients are let in."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        super().__init__(cluster, name)
        self.port = own_port()
        self.address = f"127.0.0.1:{self.port}"
        self.service = self  # type: ignore[assignment]
        self.server: Server | None = None
        self.part: ServedPart | None = None

    def new_record(self) -> NodeRecord:
        return NodeRecord(id=self.name, life="1", addresses={"herd": self.address})

    async def begin(self, part: ServedPart) -> None:
        self.part = part
        self.server = Server(self.database, name=self.name, config=ServerConfig(), part=part)
        await self.server.start("127.0.0.1", self.port)

    async def serve(self, tenure: Tenure) -> None:
        assert self.part is not None
        assert not self.part.follows

    async def stop(self) -> None:
        server, self.server = self.server, None
        if server is not None:
            await server.drain(0.0)
            await server.close()


class ServedCluster(Cluster):
    new_node = ServedNode

    def url(self, *nodes: Node, **options: str) -> str:
        places = ",".join(node.address for node in nodes if isinstance(node, ServedNode))
        options = {"tls": "off", "retry_timeout_s": "20"} | options
        return f"herd://{places}/?" + "&".join(f"{name}={value}" for name, value in options.items())


@pytest.fixture
def cluster() -> Iterator[ServedCluster]:
    made = ServedCluster()
    yield made
    made.close()


@pytest.fixture
def nodes(cluster: ServedCluster) -> list[Node]:
    """Give a leader, with a table, and a node that follows."""
    first = cluster.node("n1")
    cluster.until(first, State.LEADING)
    second = cluster.node("n2")
    with herdpy.connect(cluster.url(first), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        connection.execute("INSERT INTO t VALUES (1, 'a')")
    cluster.until(second, State.FOLLOWING)
    cluster.level(second, first)
    return [first, second]


def refusal(url: str) -> Error:
    with pytest.raises(Error) as caught:
        herdpy.connect(url)
    return caught.value


def test_a_node_that_follows_names_the_leader_to_who_does_not_ask_for_it(
    cluster: ServedCluster, nodes: list[Node]
) -> None:
    first, second = nodes
    assert isinstance(first, ServedNode)
    error = refusal(cluster.url(second, retry_timeout_s="0"))
    assert (error.sqlstate, error.retry, error.leader) == ("25006", Retry.SAFE, first.address)
    assert f"node n1 at {first.address} leads it; node n2 follows" in error.message
    with herdpy.connect(cluster.url(second, first)) as connection:  # the driver goes there
        assert connection.execute("SELECT v FROM t").fetchall() == [("a",)]
        connection.execute("INSERT INTO t VALUES (2, 'b')")


def test_reads_of_a_node_that_follows(cluster: ServedCluster, nodes: list[Node]) -> None:
    first, second = nodes
    assert isinstance(first, ServedNode)
    assert isinstance(second, ServedNode)
    url = cluster.url(first, second, read="follower")
    with (
        herdpy.connect(cluster.url(first), autocommit=True) as writer,
        herdpy.connect(url, autocommit=True) as reader,
    ):
        assert second.server is not None
        assert second.server.connection_count == 1
        for number in range(2, 20):
            writer.execute("INSERT INTO t VALUES (?, 'x')", (number,))
            reader.wait_for(writer.position)
            assert reader.execute("SELECT max(id) FROM t").fetchall() == [(number,)]
            assert reader.execute("SELECT v FROM t WHERE id = ?", (number,)).fetchall() == [("x",)]
        writer.execute("CREATE VIEW w AS SELECT * FROM t WHERE id > 18")
        writer.execute("CREATE OR REPLACE VIEW w AS SELECT id, v, id AS k FROM t WHERE id > 18")
        reader.wait_for(writer.position)
        assert reader.execute("SELECT * FROM w").fetchall() == [(19, "x", 19)]
        writer.execute("DROP VIEW w")
        reader.wait_for(writer.position)
        with pytest.raises(Error, match="42P01"):
            reader.execute("SELECT * FROM w")
        assert 0 < reader.lag < 10
        assert writer.lag == 0
        for text in ("INSERT INTO t VALUES (99, 'y')", "DELETE FROM t", "CREATE ROLE r"):
            with pytest.raises(Error) as caught:
                reader.execute(text)
            error = caught.value
            assert (error.sqlstate, error.retry, error.leader) == (
                "25006",
                Retry.NEVER,
                first.address,
            )
        with pytest.raises(Error, match="25006"):
            reader.lease(60).__enter__()
        reader.execute("BEGIN")
        with pytest.raises(Error, match="25006"):
            reader.execute("SET TRANSACTION SNAPSHOT '1'")
        reader.rollback()
        with pytest.raises(Error, match="25006"):
            reader.begin_staging("t", job="j")
        with pytest.raises(Error, match="25006"):
            reader.ingest("t", [{"id": 99, "v": "y"}])
        with pytest.raises(Error, match=r"position 1000\.0\.0 was not reached") as caught:
            reader.wait_for("1000.0.0", timeout=0.01)
        assert (caught.value.sqlstate, caught.value.retry) == ("57014", Retry.SAFE)
        assert reader.execute("SELECT count(*) FROM t").fetchall() == [(19,)]


def test_a_leader_is_no_node_that_follows(cluster: ServedCluster, nodes: list[Node]) -> None:
    first, second = nodes
    error = refusal(cluster.url(first, read="follower", retry_timeout_s="1"))
    assert error.sqlstate == "25006"
    assert "node n1 leads it, and a node that follows is asked for" in error.message
    with herdpy.connect(cluster.url(first, second, read="nearest")) as connection:
        assert connection.lag == 0


def test_sessions_stay_when_their_node_comes_to_lead(
    cluster: ServedCluster, nodes: list[Node]
) -> None:
    first, second = nodes
    assert isinstance(second, ServedNode)
    with herdpy.connect(cluster.url(second, read="follower"), autocommit=True) as reader:
        assert reader.execute("SELECT count(*) FROM t").fetchall() == [(1,)]
        cluster.thread.call(first.close())
        cluster.nodes.remove(first)
        cluster.until(second, State.LEADING)
        reader.execute("INSERT INTO t VALUES (2, 'b')")
        assert reader.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
        assert reader.lag == 0
        assert second.server is not None
        assert second.server.connection_count == 1
        assert second.part is not None
        tenure = second.part._tenure
        assert tenure is not None
        assert tenure.holds()


def test_leases_have_their_whole_time_again_at_another_leader(
    cluster: ServedCluster, nodes: list[Node]
) -> None:
    """Which of them were used lately only the one before knew."""
    first, second = nodes
    with herdpy.connect(cluster.url(first), autocommit=True) as writer:
        lease = writer.lease(60)
        cluster.level(second, first)
    held = second.database.tablespace.applier.leases.find(lease.id)
    assert held is not None
    held.used_s -= 1_000.0
    before_s = held.used_s
    cluster.thread.call(first.close())
    cluster.nodes.remove(first)
    cluster.until(second, State.LEADING)
    assert held.used_s > before_s + 900.0


def test_what_is_too_old_is_refused(cluster: ServedCluster, nodes: list[Node]) -> None:
    url = cluster.url(nodes[1], read="follower", max_staleness_s="0.000001", retry_timeout_s="0")
    error = refusal(url)
    assert (error.sqlstate, error.retry) == ("25006", Retry.SAFE)
    assert "at most 1e-06 s are asked for" in error.message


def test_a_part_is_read_at_a_lease_on_a_node_that_follows_which_tells_the_leader(
    cluster: ServedCluster, nodes: list[Node]
) -> None:
    leader, follower = nodes
    with (
        herdpy.connect(cluster.url(leader), autocommit=True) as writer,
        herdpy.connect(cluster.url(follower, read="follower"), autocommit=True) as reader,
    ):
        lease = writer.lease(60)
        writer.execute("INSERT INTO t VALUES (2, 'b')")
        cluster.level(follower, leader)
        parts = reader.partitions("t", 2, lease=lease.id)
        assert follower.copy.used_leases() == {lease.id: 60.0}
        assert follower.copy.used_leases() == {}
        found = [
            tuple(row.values())
            for part in parts
            for row in reader.read_partition(part, lease=lease.id).read_all().to_pylist()
        ]
        assert found == [(1, "a")]
        assert follower.copy.used_leases() == {lease.id: 60.0}

        held = leader.database.tablespace.applier.leases.find(lease.id)
        assert held is not None
        held.used_s = before_s = held.used_s - 50.0
        _call(cluster, lambda: follower.member.leases_used([lease.id]))
        assert held.used_s == before_s
        _call(cluster, lambda: leader.member.leases_used([lease.id, "0" * 32]))
        assert held.used_s > before_s + 40.0
        assert leader.copy.used_leases()  # as where it was taken; its node does not report it

        with pytest.raises(Error) as caught:
            reader.lease(60)
        assert caught.value.sqlstate == "25006"
        url = cluster.url(follower, read="follower", retry_timeout_s="0")
        with (
            herdpy.connect(url, autocommit=True) as impatient,
            pytest.raises(Error) as caught,
        ):
            impatient.partitions("t", 2, lease="f" * 32)
        assert (caught.value.sqlstate, caught.value.retry) == ("25006", Retry.SAFE)
