"""Members with real threads and sockets: nodes that find a leader, lose it, and have all it told.

Courses of events are what tests/sim/cluster lives; here it is shown that the same code runs where
threads are threads.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import msgspec
import pytest

from bookie.client.blocking import LoopThread
from bookie.client.client import LedgerClient
from bookie.config import ClientConfig
from bookie.metadata.memory import MemoryStore
from bookie.runtime.drivers import ThreadDriver
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_rng import OsRng
from herdpy.cluster.blocking_chain import BlockingChain
from herdpy.cluster.chain import LedgerChain
from herdpy.cluster.database_copy import DatabaseCopy
from herdpy.cluster.handover.wish import Wish, WishRecord
from herdpy.cluster.listing import LedgerListing
from herdpy.cluster.member import Member
from herdpy.cluster.part import State, Waits
from herdpy.cluster.registration import NodeRecord, Registration
from herdpy.cluster.served_part import ServedPart
from herdpy.cluster.tablespace_nodes import HandedOver, TablespaceNodes, TablespaceRecord
from herdpy.cluster.tenure import Tenure
from herdpy.config import Config
from herdpy.engine.database import Database
from herdpy.engine.instance import Instance
from herdpy.engine.maintenance.file_logs import LogSource
from herdpy.errors import Error, ProgrammingError
from herdpy.model.lsn import Lsn
from herdpy.model.settings import Settings
from tests.fixtures.engines import rows, run
from tests.fixtures.ledger_cluster import LedgerCluster, ledger_cluster

NAME, ID = "sales", "0123456789abcdef0123456789abcdef"
PASSWORD = b"secret"
WAITS = Waits(candidate_s=0.05, other_s=0.5, again_first_s=0.02, again_max_s=0.2)


class Served:
    """A service that is told, and lets no client in."""

    def __init__(self) -> None:
        self.is_serving = False

    async def begin(self, part: ServedPart) -> None:
        self.part = part

    async def serve(self, tenure: Tenure) -> None:
        assert tenure.holds()
        self.is_serving = True

    async def drain(self, timeout_s: float, check: Callable[[], object]) -> None:
        check()

    async def stop(self) -> None:
        self.is_serving = False


class Node:
    """A node of the cluster: its disk, its threads, and a life on the loop that all share."""

    def __init__(self, cluster: "Cluster", name: str, disk: MemoryDisk | None = None) -> None:
        self.cluster = cluster
        self.name = name
        self.disk = disk or MemoryDisk()
        self.threads = ThreadPoolExecutor(1)
        self.service = Served()
        self.states: list[State] = []
        self.has_changed = asyncio.Event()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.store = MemoryStore(self.cluster.bookies.store_server)
        config = ClientConfig(explicit_lac_interval_s=0.005)
        self.client = await LedgerClient.connect(
            self.store, rng=OsRng(), clock=OsClock(), config=config
        )
        self.copy = DatabaseCopy(
            self._new_instance, self._new_chain, self.cluster.driver, ledger_bytes_max=4096
        )
        nodes = TablespaceNodes(self.store)
        record = self.new_record()
        self.registration = Registration(self.store, nodes, record, now_s=OsClock().elapsed)
        await self.registration.start()
        self.member = Member(
            NAME,
            self.name,
            self.copy,
            self.service,
            client=self.client,
            store=self.store,
            nodes=nodes,
            registration=self.registration,
            in_thread=lambda function: loop.run_in_executor(self.threads, function),
            draw=Random(self.name).random,
            waits=WAITS,
            on_state=self._on_state,
        )
        await self.member.start()

    def new_record(self) -> NodeRecord:
        """Return what the node registers."""
        return NodeRecord(id=self.name, life="1")

    def _on_state(self, state: State) -> None:
        self.states.append(state)
        self.has_changed.set()

    def _new_instance(self, logs: LogSource) -> Instance:
        return Instance(
            disk=self.disk,
            clock=OsClock(),
            rng=OsRng(),
            driver=self.cluster.driver,
            config=Config(checkpoint_log_bytes=64 * 1024),
            logs=logs,
        )

    def _new_chain(self) -> BlockingChain:
        listing = LedgerListing(self.store, TablespaceNodes(self.store).ledgers_path(ID))
        chain = LedgerChain(self.client, listing, tablespace=ID.encode(), password=PASSWORD)
        return BlockingChain(self.cluster.thread, chain)

    async def until(self, state: State) -> None:
        """Wait until it is in this state."""
        async with asyncio.timeout(20):
            while self.member.machine.state is not state:
                self.has_changed.clear()
                if self.member.machine.state is not state:
                    await self.has_changed.wait()

    @property
    def database(self) -> Database:
        assert self.copy.database is not None
        return self.copy.database

    async def close(self) -> None:
        await self.member.close()
        await self.registration.close()
        await self.client.close()
        await self.store.close()
        self.threads.shutdown()


class Cluster:
    """A loop in a thread, with bookies and a metadata store."""

    new_node: "Callable[[Cluster, str], Node]" = Node

    def __init__(self) -> None:
        self.driver = ThreadDriver()
        self.thread = LoopThread(self.driver)
        self._manager = ledger_cluster(3)
        self.bookies: LedgerCluster = self.thread.call(self._manager.__aenter__())
        self.nodes: list[Node] = []
        self.thread.call(self._make())

    async def _make(self) -> None:
        nodes = TablespaceNodes(self.bookies.store)
        await nodes.initialize()
        record = TablespaceRecord(id=ID, leader="n1", replicas=("n1",))
        await nodes.create(NAME, record, PASSWORD)
        await self.bookies.store.delete(nodes.leader_path(ID))  # of this session, which leads none

    def node(self, name: str, disk: MemoryDisk | None = None) -> Node:
        async def start() -> Node:
            node = self.new_node(self, name) if disk is None else Node(self, name, disk)
            await node.start()
            return node

        found = self.thread.call(start())
        self.nodes.append(found)
        return found

    def until(self, node: Node, state: State) -> None:
        self.thread.call(node.until(state))

    def level(self, node: Node, leader: Node) -> None:
        """Wait until a node has what the leader has told."""

        async def wait() -> None:
            async with asyncio.timeout(20):
                wanted = leader.database.tablespace.durable_lsn
                while (  # noqa: ASYNC110 - by a thread
                    node.copy.database is None or node.copy.database.tablespace.state.lsn < wanted
                ):
                    await asyncio.sleep(0.005)

        self.thread.call(wait())

    def close(self) -> None:
        for node in self.nodes:
            self.thread.call(node.close())
        self.thread.call(self._end())
        self.thread.close()

    async def _end(self) -> None:
        await self._manager.__aexit__(None, None, None)
        await asyncio.sleep(0.01)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


def write(node: Node, keys: range) -> None:
    session = node.database.session(Settings(), autocommit=True)
    for key in keys:
        run(session, "INSERT INTO t VALUES (?, ?)", key, "x" * 30)
    session.close()


def table(node: Node) -> None:
    session = node.database.session(Settings(), autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    session.close()


def keys(node: Node) -> list[int]:
    session = node.database.session(Settings())
    found = [key for (key,) in rows(session, "SELECT id FROM t ORDER BY id")]
    session.close()
    return found


def test_one_node_leads_and_the_others_have_what_it_has(cluster: Cluster) -> None:
    first = cluster.node("n1")
    cluster.until(first, State.LEADING)
    second = cluster.node("n2")
    assert first.service.is_serving
    table(first)
    write(first, range(300))
    cluster.level(second, first)
    assert second.member.machine.state is State.FOLLOWING
    assert keys(second) == keys(first) == list(range(300))
    assert not second.service.is_serving
    with pytest.raises(Error, match="this node follows"):
        write(second, range(1))


def test_another_node_leads_when_the_leader_s_session_is_over(cluster: Cluster) -> None:
    first = cluster.node("n1")
    cluster.until(first, State.LEADING)
    table(first)
    write(first, range(100))
    second, third = cluster.node("n2"), cluster.node("n3")
    cluster.level(second, first)

    async def expire() -> None:
        cluster.bookies.store_server.expire(first.store.session_id)

    cluster.thread.call(expire())
    cluster.until(first, State.RESIGNING)
    leader = _leader(cluster, [second, third, first])
    assert keys(leader) == list(range(100))
    write(leader, range(100, 150))
    for node in (first, second, third):
        if node is not leader:
            cluster.until(node, State.FOLLOWING)
            cluster.level(node, leader)
            assert keys(node) == list(range(150))


def test_an_operator_moves_the_leader_and_a_disk_that_is_lost_is_filled_from_the_log(
    cluster: Cluster,
) -> None:
    first = cluster.node("n1")
    cluster.until(first, State.LEADING)
    second = cluster.node("n2")
    table(first)
    write(first, range(60))
    first.database.run_checkpoint()
    _call(cluster, second.member.want)
    cluster.until(second, State.LEADING)
    cluster.until(first, State.FOLLOWING)
    write(second, range(60, 90))
    cluster.level(first, second)
    assert keys(first) == list(range(90))
    cluster.thread.call(first.close())
    cluster.nodes.remove(first)
    again = cluster.node("n1", MemoryDisk())
    cluster.until(again, State.FOLLOWING)
    cluster.level(again, second)
    assert keys(again) == list(range(90))


def test_a_node_goes_on_from_its_own_checkpoint(cluster: Cluster) -> None:
    first = cluster.node("n1")
    cluster.until(first, State.LEADING)
    second = cluster.node("n2")
    table(first)
    write(first, range(40))
    cluster.level(second, first)
    second.database.run_checkpoint()
    cluster.thread.call(second.close())
    cluster.nodes.remove(second)
    write(first, range(40, 80))
    again = cluster.node("n2", second.disk)
    cluster.until(again, State.FOLLOWING)
    assert again.database.replica.manifest.state.checkpoint_lsn[0] >= 0
    cluster.level(again, first)
    assert keys(again) == list(range(80))


def test_a_node_that_is_wanted_is_handed_the_part_and_the_position(cluster: Cluster) -> None:
    first = cluster.node("n1")
    cluster.until(first, State.LEADING)
    second = cluster.node("n2")
    table(first)
    write(first, range(60))
    end = first.database.tablespace.state.lsn
    nodes = TablespaceNodes(cluster.bookies.store)
    wish = Wish(cluster.bookies.store, nodes.wish_path(ID))

    async def want() -> None:
        record = (await nodes.read(NAME)).record
        await wish.make(WishRecord(leader="n2", epoch=record.epoch))

    cluster.thread.call(want())
    cluster.until(second, State.LEADING)
    cluster.until(first, State.FOLLOWING)
    record = cluster.thread.call(nodes.read(NAME)).record
    assert (record.leader, record.log_end) == ("n2", end)
    assert State.HANDING_OVER in first.states
    assert State.FAILED not in first.states
    write(second, range(60, 90))
    cluster.level(first, second)
    assert keys(first) == list(range(90))
    cluster.thread.call(wish.end())
    cluster.thread.call(second.member.give_away(1.0))  # to any node, as before its end
    cluster.until(first, State.LEADING)
    handed_over = cluster.thread.call(nodes.read(NAME)).record.handed_over
    assert handed_over is not msgspec.UNSET
    assert handed_over.to == "n1"


def test_no_node_leads_whose_log_ends_before_a_hand_over_s_position(cluster: Cluster) -> None:
    first = cluster.node("n1")
    cluster.until(first, State.LEADING)
    table(first)
    end = first.database.tablespace.state.lsn
    nodes = TablespaceNodes(cluster.bookies.store)

    async def name_end(position: Lsn) -> None:
        found = await nodes.read(NAME)
        handed_over = HandedOver(epoch=0, to="n1", position=str(position))
        record = msgspec.structs.replace(found.record, handed_over=handed_over)
        path = nodes.path(NAME)
        await cluster.bookies.store.write(path, record.to_bytes(), found.version)

    cluster.thread.call(name_end(end._replace(index=end.index + 1)))
    cluster.thread.call(first.close())
    cluster.nodes.remove(first)
    again = cluster.node("n1", first.disk)
    cluster.until(again, State.FAILED)
    reason = again.member.machine.reason
    assert reason is not None
    assert f"the log ends at {end}, and a leader has handed it over" in reason.message
    cluster.thread.call(name_end(end))
    cluster.until(again, State.LEADING)


def test_a_tablespace_that_is_not_there_has_no_member(cluster: Cluster) -> None:
    async def drop() -> None:
        nodes = TablespaceNodes(cluster.bookies.store)
        assert await nodes.drop(NAME, await nodes.read(NAME)) == ()

    cluster.thread.call(drop())
    with pytest.raises(ProgrammingError) as caught:
        cluster.node("n1")
    assert caught.value.sqlstate == "3D000"


def _call(cluster: Cluster, function: Callable[[], object]) -> None:
    async def call() -> None:
        function()

    cluster.thread.call(call())


def _leader(cluster: Cluster, nodes: list[Node]) -> Node:
    """Return the first node that comes to lead."""

    async def wait() -> Node:
        async with asyncio.timeout(20):
            waiting = {asyncio.ensure_future(node.until(State.LEADING)): node for node in nodes}
            done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in left:
                each.cancel()
            return waiting[done.pop()]

    return cluster.thread.call(wait())
