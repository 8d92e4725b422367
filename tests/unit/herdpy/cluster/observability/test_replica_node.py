"""What a node says of its copy: seldom, with renewals while it leads, never against them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bookie.metadata.interfaces import Operation, Stat, Write
from bookie.metadata.memory import MemoryStore
from herdpy.cluster.observability.replica_node import CopyState, ReplicaNode, ReplicaRecord
from herdpy.limits import leases_max
from herdpy.model.lsn import Lsn
from tests.unit.herdpy.cluster.test_registration import ID, NAME, TIMEOUT_S, NodeOf, World, run

INFINITE = float("inf")


class Counted(MemoryStore):
    """Counts what is written to it by kind, and keeps the multis."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.counts: Counter[str] = Counter()
        self.multis: list[list[Operation]] = []

    async def write(self, path: str, data: bytes, version: int) -> Stat:
        self.counts["write"] += 1
        return await super().write(path, data, version)

    async def create(self, path: str, *arguments: Any, **options: Any) -> str:
        self.counts["create"] += "/replicas/" in path
        return await super().create(path, *arguments, **options)

    async def multi(self, operations: Sequence[Operation]) -> None:
        self.multis.append(list(operations))
        await super().multi(operations)


class CountedNode(NodeOf):
    new_store = Counted


class Copy:
    """A copy, and the node that says what it is."""

    def __init__(self, world: World, node: NodeOf) -> None:
        store = node.store
        assert isinstance(store, Counted)
        self.store = store
        self.state = CopyState("following", Lsn(3, 1, 0), 0.25)
        self.path = node.nodes.replica_path(ID, node.name)
        self.used: dict[str, float] = {}
        """Leases that readers use all the time."""
        self.node = ReplicaNode(
            self.store,
            self.path,
            node.name,
            lambda: self.state,
            world.loop.time,
            lambda: dict(self.used),
        )
        self.keeping = world.loop.create_task(self.node.keep())

    async def said(self) -> ReplicaRecord:
        data, stat = await self.store.read(self.path)
        assert stat.ephemeral_owner == 0
        return ReplicaRecord.of_bytes(data, self.path)


def with_copy(body: Callable[[World, NodeOf, Copy], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        node = CountedNode(world, "n1")
        copy = Copy(world, node)
        await body(world, node, copy)
        copy.keeping.cancel()

    run(main)


def test_a_copy_that_does_nothing_says_so_every_ten_seconds() -> None:
    async def body(world: World, node: NodeOf, copy: Copy) -> None:
        await asyncio.sleep(0.1)
        assert await copy.said() == ReplicaRecord(
            node="n1", part="following", position="3.1.0", lag_s=0.25
        )
        await asyncio.sleep(60.0)
        assert copy.store.counts["create"] == 1
        assert 4 <= copy.store.counts["write"] <= 6

    with_copy(body)


def test_the_use_of_many_leases_is_one_record_within_a_quarter_of_the_shortest_ones_seconds() -> (
    None
):
    async def body(world: World, node: NodeOf, copy: Copy) -> None:
        async def writes_in(seconds: float) -> int:
            before = copy.store.counts["write"]
            await asyncio.sleep(seconds)
            return copy.store.counts["write"] - before

        await asyncio.sleep(0.1)
        copy.used = {f"{number:032x}": 600.0 for number in range(50)}
        assert await writes_in(20.0) <= 3  # as many as of a copy that does nothing
        assert (await copy.said()).leases == tuple(copy.used)
        copy.used["short"] = 20.0
        await asyncio.sleep(6.0)
        assert 3 <= await writes_in(20.0) <= 5
        copy.used = {"shorter": 1.0}
        await asyncio.sleep(12.0)
        assert 8 <= await writes_in(20.0) <= 11
        assert "shorter" in (await copy.said()).leases
        copy.used = {f"{number:032x}": 600.0 for number in range(2 * leases_max)}
        await asyncio.sleep(12.0)
        assert len((await copy.said()).leases) == leases_max

    with_copy(body)


def test_a_lease_that_is_used_no_more_is_not_told_any_more() -> None:
    async def body(world: World, node: NodeOf, copy: Copy) -> None:
        copy.used = {"a": 20.0}
        await asyncio.sleep(8.0)
        assert (await copy.said()).leases == ("a",)
        copy.used = {}
        await asyncio.sleep(30.0)
        assert (await copy.said()).leases == ()

    with_copy(body)


def test_a_use_that_could_not_be_written_is_written_later() -> None:
    async def body(world: World, node: NodeOf, copy: Copy) -> None:
        await asyncio.sleep(0.1)
        world.server.disconnect(copy.store.session_id, reconnect_s=0.5)
        copy.used = {"a": 20.0}
        await asyncio.sleep(0.2)
        copy.node._due()  # a look takes it in
        copy.used = {}
        await asyncio.sleep(20.0)
        before = copy.store.counts["write"]
        assert before >= 2
        assert "a" not in copy.node._leases  # it was told, once

    with_copy(body)


def test_a_position_that_ticks_have_moved_is_no_news() -> None:
    async def body(world: World, node: NodeOf, copy: Copy) -> None:
        for entry in range(1, 17):
            copy.state = CopyState("following", Lsn(3, entry, 0), 0.25, 100)
            await asyncio.sleep(3.75)
        assert 5 <= copy.store.counts["write"] <= 7
        assert (await copy.said()).position is not None

    with_copy(body)


def test_news_are_two_seconds_apart() -> None:
    async def body(world: World, node: NodeOf, copy: Copy) -> None:
        for entry in range(400):
            copy.state = CopyState("following", Lsn(3, entry, 0), INFINITE, entry)
            await asyncio.sleep(0.05)
        assert 8 <= copy.store.counts["write"] <= 11
        found = await copy.said()
        assert found.lag_s is None
        assert found.position is not None
        assert Lsn.of_text(found.position) >= Lsn(3, 350, 0)

    with_copy(body)


def test_a_new_life_writes_the_node_of_the_former_one() -> None:
    async def body(world: World, node: NodeOf, copy: Copy) -> None:
        await asyncio.sleep(0.1)
        copy.keeping.cancel()
        second = Copy(world, node)
        second.state = CopyState("booting", None, INFINITE)
        await asyncio.sleep(0.1)
        assert await second.said() == ReplicaRecord(node="n1", part="booting")
        second.keeping.cancel()

    with_copy(body)


def test_of_a_leader_it_rides_with_the_renewals() -> None:
    async def body(world: World, node: NodeOf, copy: Copy) -> None:
        await node.registration.start()
        await asyncio.sleep(0.1)
        named = await node.take_over()
        assert await node.leader.make()
        tenure = await node.registration.lead(NAME, named, copy.node)
        before = copy.store.counts.copy()
        for entry in range(100):
            copy.state = CopyState("leading", Lsn(4, entry, 0), 0.0, entry)
            await asyncio.sleep(0.1)
            assert tenure.holds()
        assert copy.store.counts["write"] == before["write"]
        assert (await copy.said()).part == "leading"
        riding = [
            each
            for operations in copy.store.multis
            for each in operations
            if isinstance(each, Write) and each.path == copy.path
        ]
        assert 4 <= len(riding) <= 6
        node.registration.end(tenure)
        copy.state = CopyState("resigning", Lsn(4, 99, 0), 0.0)
        await asyncio.sleep(4.0)
        assert (await copy.said()).part == "resigning"

    with_copy(body)


def test_a_node_that_is_deleted_costs_no_tenure() -> None:
    """A renewal that takes along what is not there would be refused again and again."""

    async def body(world: World, node: NodeOf, copy: Copy) -> None:
        await node.registration.start()
        await asyncio.sleep(0.1)
        named = await node.take_over()
        assert await node.leader.make()
        tenure = await node.registration.lead(NAME, named, copy.node)
        for entry in range(3):
            await MemoryStore(world.server).delete(copy.path)
            copy.state = CopyState("leading", Lsn(4, entry, 0), 0.0, entry)
            for _ in range(100):
                await asyncio.sleep(0.1)
                assert tenure.until_s - world.now_s > 0.3 * TIMEOUT_S
            assert (await copy.said()).position == f"4.{entry}.0"

    with_copy(body)


def test_a_tablespace_that_is_dropped_gets_no_node() -> None:
    async def body(world: World, node: NodeOf, copy: Copy) -> None:
        copy.keeping.cancel()
        await node.nodes.drop(NAME, await node.nodes.read(NAME))
        keeping = world.loop.create_task(copy.node.keep())
        await asyncio.sleep(10.0)
        assert not keeping.done()
        assert await copy.store.exists(node.nodes.replicas_path(ID)) is None
        keeping.cancel()

    with_copy(body)
