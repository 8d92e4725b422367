"""A node: what it refuses before it writes anything, and the tablespaces that it has a part in.

Refusals run in virtual time; the tablespaces with real threads and sockets, as test_member.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import pytest

from bookie.metadata.cluster import initialize
from bookie.metadata.memory import MemoryStore, MemoryStoreServer
from bookie.runtime.files import replace_file
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_rng import OsRng
from herdpy.cluster.cluster_record import ClusterRecord, cluster_path, create_cluster, read_cluster
from herdpy.cluster.node import Node
from herdpy.cluster.node_identity import FILE, LOCK, NodeIdentity
from herdpy.cluster.part import State
from herdpy.cluster.registration import NodeRecord
from herdpy.cluster.status import read_status
from herdpy.cluster.tablespace_nodes import TablespaceNodes
from herdpy.config import Config, NodeConfig
from herdpy.errors import Error, NotSupportedError, OperationalError, ProgrammingError
from herdpy.model.settings import Settings
from tests.fixtures.cluster_nodes import Disks, Served
from tests.fixtures.engines import rows, run
from tests.fixtures.node_cluster import NodeCluster
from tests.sim.clock import SimulatedClock
from tests.sim.loop import SimulatedLoop

ROOT = "/herd"
CLUSTER = "c" * 32
TIMEOUT_S = 2.0


class World:
    """A metadata store in virtual time, with a cluster in it that has no bookies."""

    def __init__(self) -> None:
        self.server = MemoryStoreServer(SimulatedClock(), session_timeout_s=TIMEOUT_S)
        self.store = MemoryStore(self.server)

    async def make(self, cluster_id: str = CLUSTER) -> None:
        await initialize(self.store, rng=OsRng())
        await TablespaceNodes(self.store, ROOT).initialize()
        record = msgspec.json.encode(ClusterRecord(id=cluster_id))
        await self.store.create(cluster_path(ROOT), record)

    def node(
        self, disks: Disks, node_id: str | None = "n1", store: MemoryStore | None = None
    ) -> Node:
        return Node(
            store or MemoryStore(self.server),
            disks.world(SimulatedClock()),
            root=ROOT,
            node_id=node_id,
            address="127.0.0.1:7000",
            config=NodeConfig(session_timeout_s=TIMEOUT_S),
            database=Config(),
            new_service=Served,
        )


def simulate(body: Callable[[World], Awaitable[None]]) -> None:
    loop = SimulatedLoop(1)

    async def main() -> None:
        world = World()
        await body(world)
        await world.store.close()

    try:
        loop.run_until_complete(main(), time_limit_s=1_000.0)
    finally:
        loop.close()


async def refused(node: Node) -> Error:
    with pytest.raises(Error) as caught:
        await node.start()
    await node.close()
    return caught.value


def test_no_cluster_at_the_root() -> None:
    async def body(world: World) -> None:
        disks = Disks()
        error = await refused(world.node(disks))
        assert error.sqlstate == "58P01"
        assert "/herd/cluster: expected a herdpy cluster, found none" in str(error)
        assert disks.folders == {}

    simulate(body)


def test_a_directory_is_one_node_s_of_one_cluster() -> None:
    async def body(world: World) -> None:
        await world.make()
        disks = Disks()
        first = world.node(disks)
        await first.start()
        data, _ = await world.store.read(f"{ROOT}/nodes/n1")
        said = NodeRecord.of_bytes(data, "the node")  # else no node would see that it is silent
        assert said.inactivity_limit_s == NodeConfig().inactivity_limit_s > 0
        await first.close()
        found = msgspec.json.decode(disks.folders[""].read(FILE), type=NodeIdentity)
        assert found == NodeIdentity(id="n1", cluster=CLUSTER)

        error = await refused(world.node(disks, "n2"))
        assert error.sqlstate == "55000"
        assert "/data belongs to node n1: expected node n2" in str(error)

        again = world.node(disks, None)  # it is the directory's
        await again.start()
        assert again.id == "n1"
        await again.close()

        await world.store.delete(cluster_path(ROOT))
        other = msgspec.json.encode(ClusterRecord(id="d" * 32))
        await world.store.create(cluster_path(ROOT), other)
        error = await refused(world.node(disks))
        assert error.sqlstate == "55000"
        assert f"expected cluster {'d' * 32}, found {CLUSTER}" in str(error)
        assert msgspec.json.decode(disks.folders[""].read(FILE), type=NodeIdentity) == found

    simulate(body)


@pytest.mark.parametrize("format_", [0, 2])
def test_a_cluster_or_a_directory_of_another_format(format_: int) -> None:
    async def body(world: World) -> None:
        await world.make()
        disks = Disks()
        first = world.node(disks)
        await first.start()
        await first.close()
        identity = disks.folders[""].read(FILE)
        path, record = cluster_path(ROOT), ClusterRecord(id=CLUSTER, format=format_)
        await world.store.write(path, msgspec.json.encode(record), 0)
        for directory in (disks, empty := Disks()):
            error = await refused(world.node(directory))
            assert error.sqlstate == "0A000"
            assert f"{path}: it has format {format_}, and this herdpy reads 1" in str(error)
        assert empty.folders == {}
        assert disks.folders[""].read(FILE) == identity

        await world.store.write(path, msgspec.json.encode(ClusterRecord(id=CLUSTER)), 1)
        other = msgspec.json.encode(NodeIdentity(id="n1", cluster=CLUSTER, format=format_))
        replace_file(disks.folders[""], FILE, other)
        error = await refused(world.node(disks))
        assert error.sqlstate == "0A000"
        assert f"/data/{FILE}: it has format {format_}, and this herdpy reads 1" in str(error)
        assert disks.folders[""].read(FILE) == other
        assert await world.store.children(f"{ROOT}/nodes") == []

    simulate(body)


def test_a_directory_with_something_else_is_left_as_it_is() -> None:
    async def body(world: World) -> None:
        await world.make()
        disks = Disks()
        disks.folders[""] = disk = MemoryDisk()
        disk.open("photo.jpg", create=True).close()
        error = await refused(world.node(disks))
        assert error.sqlstate == "58P01"
        assert "holds 'photo.jpg'" in str(error)
        assert disk.list("") == ["photo.jpg"]

    simulate(body)


def test_a_directory_of_a_process_that_runs() -> None:
    async def body(world: World) -> None:
        await world.make()
        disks = Disks()
        lock = disks.open("").lock(LOCK, "process 4711")
        error = await refused(world.node(disks))
        assert error.sqlstate == "55006"
        assert "/data is in use by process 4711" in str(error)
        assert not disks.folders[""].exists(FILE)
        lock.close()

    simulate(body)


def test_a_node_without_a_name_has_one_of_chance_and_keeps_it() -> None:
    async def body(world: World) -> None:
        await world.make()
        disks = Disks()
        node = world.node(disks, None)
        await node.start()
        name = node.id
        await node.close()
        assert name.startswith("node-")
        again = world.node(disks, None)
        await again.start()
        assert again.id == name
        await again.close()

    simulate(body)


@pytest.mark.parametrize("name", ["", "a/b", "-x", "ä", "x" * 64])
def test_what_is_no_node_id(name: str) -> None:
    async def body(world: World) -> None:
        with pytest.raises(ProgrammingError) as caught:
            world.node(Disks(), name)
        assert caught.value.sqlstate == "22023"

    simulate(body)


def test_two_processes_with_one_id() -> None:
    async def body(world: World) -> None:
        await world.make()
        first = world.node(Disks())
        await first.start()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        disks = Disks()
        error = await refused(world.node(disks))
        assert not disks.folders[""].exists(FILE)
        assert loop.time() - began_s >= 3 * TIMEOUT_S
        assert error.sqlstate == "55006"
        assert "another process runs as node n1" in str(error)
        await first.close()

    simulate(body)


# --- the cluster -------------------------------------------------------------------------------


def test_a_cluster_is_made_once_and_beside_a_bookkeeper_with_bookies() -> None:
    async def body(world: World) -> None:
        record = ClusterRecord(id=CLUSTER)
        with pytest.raises(OperationalError, match="expected a BookKeeper's ledgers") as caught:
            await create_cluster(world.store, ROOT, record)
        assert caught.value.sqlstate == "58P01"
        await initialize(world.store, rng=OsRng())
        await world.store.create("/ledgers/available/b1:3181", is_ephemeral=True)
        with pytest.raises(OperationalError, match="expected 2 bookies at least") as caught:
            await create_cluster(world.store, ROOT, record)
        assert caught.value.sqlstate == "53000"
        assert await world.store.exists(ROOT) is None
        await world.store.create("/ledgers/available/b2:3181", is_ephemeral=True)
        for ledgers in (f"{ROOT}/ledgers", ROOT):
            nested = ClusterRecord(id=CLUSTER, ledgers=ledgers)
            with pytest.raises(ProgrammingError, match="lies in the other") as refused:
                await create_cluster(world.store, ROOT, nested)
            assert refused.value.sqlstate == "22023"
        with pytest.raises(ProgrammingError, match="lies in the other"):
            await create_cluster(world.store, f"/ledgers{ROOT}", record)
        await create_cluster(world.store, ROOT, record)
        assert await read_cluster(world.store, ROOT) == record
        with pytest.raises(ProgrammingError, match="there is a cluster already") as found:
            await create_cluster(world.store, ROOT, ClusterRecord(id="d" * 32))
        assert found.value.sqlstate == "42710"
        assert await read_cluster(world.store, ROOT) == record

    simulate(body)


# --- its tablespaces ---------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[NodeCluster]:
    made = NodeCluster()
    yield made
    made.close()


def test_nodes_lead_and_follow_what_names_them(cluster: NodeCluster) -> None:
    disks = Disks()
    first, second, third = cluster.node("n1", disks), cluster.node("n2"), cluster.node("n3")
    cluster.create("sales", "n1", "n2", tablespace_id="1" * 32)
    cluster.until(lambda: sorted(_states(first, second)) == ["following", "leading"])
    assert third.parts == {}
    leader, follower = (first, second) if _states(first) == ["leading"] else (second, first)
    (serving,), (other,) = cluster.served[leader.id], cluster.served[follower.id]
    assert (serving.is_serving, other.is_serving) == (True, False)
    assert list(disks.folders) == ["", "temp", "1" * 32]

    database = serving.copy.database
    assert database is not None
    session = database.session(Settings(), autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY)")
    run(session, "INSERT INTO t VALUES (1), (2)")
    with pytest.raises(NotSupportedError, match="this is a node's copy"):
        run(session, "CREATE TABLESPACE more")  # whose log would be in no ledger
    session.close()

    status = cluster.thread.call(read_status(cluster.bookies.store, ROOT, patience_s=5.0))
    (found,) = status.tablespaces
    assert (found.leader, found.address) == (leader.id, f"{leader.id}:7000")
    assert found.replicas == ("n1", "n2")
    assert [node.id for node in status.nodes] == ["n1", "n2", "n3"]
    assert list(status.bookies.values()) == ["writable"] * 3

    cluster.create("more", "n3", tablespace_id="2" * 32)
    cluster.until(lambda: third.parts == {"more": State.LEADING})
    assert list(second.parts) == ["sales"]

    cluster.thread.call(leader.close())  # it resigns, and deregisters
    assert not serving.is_serving
    assert serving.could_answer  # what its clients still do, until they have ended
    cluster.until(lambda: follower.parts == {"sales": State.LEADING})
    database = other.copy.database
    assert database is not None
    session = database.session(Settings())
    assert rows(session, "SELECT id FROM t ORDER BY id") == [(1,), (2,)]
    session.close()
    status = cluster.thread.call(read_status(cluster.bookies.store, ROOT, patience_s=5.0))
    assert leader.id not in [node.id for node in status.nodes]
    assert status.tablespaces[1].leader == follower.id


def test_a_tablespace_that_is_dropped_is_let_go_of(cluster: NodeCluster) -> None:
    node = cluster.node("n1")
    cluster.create("sales", "n1", tablespace_id="1" * 32)
    cluster.until(lambda: node.parts == {"sales": State.LEADING})

    async def drop() -> None:
        nodes = TablespaceNodes(cluster.bookies.store, ROOT)
        assert await nodes.drop("sales", await nodes.read("sales")) is not None

    cluster.thread.call(drop())
    cluster.until(lambda: node.parts == {})
    assert not cluster.served["n1"][0].is_serving


def _states(*nodes: Node) -> list[str]:
    return [state.value for node in nodes for state in node.parts.values()]
