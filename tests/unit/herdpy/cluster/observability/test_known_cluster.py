"""What a node knows of its cluster without asking: news within seconds, for few requests."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from bookie.metadata.interfaces import Stat
from bookie.metadata.memory import MemoryStore
from herdpy.cluster.observability.known_cluster import KnownCluster
from herdpy.cluster.observability.replica_node import CopyState, ReplicaRecord
from herdpy.cluster.part import PartMachine
from herdpy.engine.cluster_view import Leadership, NodeInfo, ReplicaInfo
from herdpy.model.lsn import Lsn
from tests.unit.herdpy.cluster.test_registration import ID, NAME, NodeOf, World, run

NEWS_S = 5.0
INFINITE = float("inf")


class Counted(MemoryStore):
    """Counts what is read."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.counts: Counter[str] = Counter()

    async def read(self, path: str) -> tuple[bytes, Stat]:
        self.counts[path] += 1
        return await super().read(path)


class Own:
    """What the node itself is for the tablespace."""

    name = NAME
    record = None
    leader_id: str | None = "n2"

    def __init__(self) -> None:
        self.machine = PartMachine(lambda: 0.5)
        self.state = CopyState("following", Lsn(4, 1, 0), 0.25)

        self.lease_s = INFINITE
        self.used: list[tuple[str, ...]] = []
        """Leases that others have said to be used, each time."""
        self.heard: list[float | None] = []

    def copy_state(self) -> CopyState:
        return self.state

    def shortest_lease_s(self) -> float:
        return self.lease_s

    def leases_used(self, ids: tuple[str, ...]) -> None:
        self.used.append(ids)

    def leases_heard(self, age_s: float | None) -> None:
        self.heard.append(age_s)


class Known:
    """A node that looks, and another that is there and says things."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = Counted(world.server)
        self.own = Own()
        self.other = NodeOf(world, "n2")
        self.cluster = KnownCluster(
            self.store,
            self.other.nodes,
            self.own,  # type: ignore[arg-type]
            node_id="n1",
            tablespace_id=ID,
        )

    async def say(self, node: str, entry: int, *leases: str) -> None:
        """Have a node say something of its copy."""
        record = ReplicaRecord(
            node=node, part="following", position=f"4.{entry}.0", lag_s=0.5, leases=leases
        )
        path, store = self.other.nodes.replica_path(ID, node), self.other.store
        if await store.exists(path) is None:
            await store.create(path, record.to_bytes())
        else:
            await store.write(path, record.to_bytes(), -1)

    def of(self, node: str) -> ReplicaInfo | None:
        found = {each.node: each for each in self.cluster.replicas()}.get(node)
        return None if found is None else found._replace(said_us=None)


def with_known(body: Callable[[Known], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        known = Known(world)
        known.cluster.start()
        await body(known)
        await known.cluster.close()
        await known.cluster.close()

    run(main)


def test_nodes_come_and_go() -> None:
    async def body(known: Known) -> None:
        await asyncio.sleep(NEWS_S)
        assert known.cluster.nodes() == ()
        await known.other.registration.start()
        await asyncio.sleep(NEWS_S)
        assert known.cluster.nodes() == (NodeInfo("n2", "n2:7000", False, ""),)
        await known.other.registration.close()
        await asyncio.sleep(NEWS_S)
        assert known.cluster.nodes() == ()

    with_known(body)


def test_what_others_say_is_known_and_one_s_own_is_what_is_now() -> None:
    async def body(known: Known) -> None:
        await known.say("n1", 0)  # of a moment ago: what is now counts
        await known.say("n2", 7)
        await asyncio.sleep(NEWS_S)
        assert known.of("n2") == ReplicaInfo("n2", "following", "4.7.0", 0.5, None)
        assert known.of("n1") == ReplicaInfo("n1", "following", "4.1.0", 0.25, None)
        known.own.state = CopyState("booting", None, float("inf"))
        assert known.of("n1") == ReplicaInfo("n1", "booting", None, None, None)
        await known.say("n2", 8)
        await known.say("n3", 9)
        await asyncio.sleep(NEWS_S)
        assert known.of("n2") == ReplicaInfo("n2", "following", "4.8.0", 0.5, None)
        assert known.of("n3") == ReplicaInfo("n3", "following", "4.9.0", 0.5, None)
        await known.other.store.delete(known.other.nodes.replica_path(ID, "n3"))
        await asyncio.sleep(NEWS_S)
        assert known.of("n3") is None
        assert known.cluster.leadership() == Leadership(NAME, ID, "n2", 0, (), 0)

    with_known(body)


def test_leases_that_are_used_elsewhere_are_told_once_for_each_time_that_it_is_said() -> None:
    async def body(known: Known) -> None:
        known.own.lease_s = 20.0
        await known.say("n2", 1, "a", "b")
        await asyncio.sleep(NEWS_S)
        assert known.own.used == [("a", "b")]
        # A session that comes back reads what is there again: a node that is dead says nothing new.
        for _ in range(3):
            known.world.server.disconnect(known.store.session_id, reconnect_s=0.1)
            await asyncio.sleep(NEWS_S)
        assert known.own.used == [("a", "b")]
        await known.say("n2", 1, "b")
        await known.say("n3", 1)
        await asyncio.sleep(NEWS_S)
        assert known.own.used == [("a", "b"), ("b",)]
        path = known.other.nodes.replica_path(ID, "n2")
        for lease_s, least, most in ((1.0, 3, 8), (80.0, 1, 2), (600.0, 0, 1), (INFINITE, 0, 1)):
            known.own.lease_s = lease_s
            known.store.counts.clear()
            await asyncio.sleep(15.0)
            assert least <= known.store.counts[path] <= most

    with_known(body)


def test_others_are_read_often_while_that_is_asked_for_and_seldom_else() -> None:
    async def body(known: Known) -> None:
        await known.other.registration.start()
        for entry in range(60):
            await known.say("n2", entry)
            await asyncio.sleep(1.0)
        assert 2 <= known.store.counts[known.other.nodes.replica_path(ID, "n2")] <= 4
        assert known.of("n2") is not None
        known.store.counts.clear()
        for entry in range(100, 200):
            await known.say("n2", entry)
            await asyncio.sleep(0.2)
            known.cluster.replicas()
        assert 9 <= known.store.counts.total() <= 11
        await asyncio.sleep(NEWS_S)
        assert known.of("n2") == ReplicaInfo("n2", "following", "4.199.0", 0.5, None)

    with_known(body)


def test_news_of_while_the_store_was_away_are_known_behind_it() -> None:
    async def body(known: Known) -> None:
        await known.say("n2", 1)
        await asyncio.sleep(NEWS_S)
        known.world.server.expire(known.store.session_id)
        await known.say("n2", 2)
        await known.other.registration.start()
        known.cluster.replicas()
        await asyncio.sleep(2 * NEWS_S)
        assert known.of("n2") == ReplicaInfo("n2", "following", "4.2.0", 0.5, None)
        assert [node.id for node in known.cluster.nodes()] == ["n2"]

    with_known(body)
