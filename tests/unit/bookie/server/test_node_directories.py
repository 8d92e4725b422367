"""A whole bookie over several disks: one is lost, and its index with it."""

import asyncio
from dataclasses import replace

import pytest

from bookie.errors import BookieStartError
from bookie.ledger.types import BookieId, EntryId, LedgerId, LedgerMetadata, Segment, Status
from bookie.metadata.cluster import initialize, read_instance_id
from bookie.metadata.ledger_paths import Layout, ledger_path, task_lock_path
from bookie.metadata.ledgers import LedgerManager
from bookie.metadata.memory import MemoryStore, MemoryStoreServer
from bookie.server.cluster_ledgers import ClusterLedgers
from bookie.server.identity import BookieDirectories
from bookie.server.node import BookieNode
from bookie.server.storage.collector import Holding
from bookie.server.storage.directories import LedgerDirectory, read_lost
from bookie.server.storage.memory_index import MemoryIndex
from tests.fixtures.bookies import CONFIG
from tests.fixtures.storages import add, packet_of, read
from tests.sim.disk import SimulatedDisk
from tests.sim.ledger.world import LoopClock, SeededRng
from tests.sim.loop import SimulatedExecutor, SimulatedLoop

ID = BookieId("world:3181")
OTHER = BookieId("other:3181")
SETTINGS = replace(
    CONFIG, host="world", port=3181, registration_timeout_s=10.0, entry_log_bytes_max=1 << 16
)


class World:
    """The metadata store, disks and index, that outlive their bookies."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.clock = LoopClock(loop)
        self.server = MemoryStoreServer(self.clock, session_timeout_s=4.0)
        self.store = MemoryStore(self.server)
        self.data = SimulatedDisk(1)
        self.disks = {name: SimulatedDisk(n) for n, name in enumerate(("/a", "/b"), 2)}
        self.index = MemoryIndex()
        self.manager = LedgerManager(self.store, "/ledgers", SeededRng(6), self.clock)

    async def start(self, *, lost: tuple[str, ...] = ()) -> BookieNode:
        ledgers = [LedgerDirectory(disk, name) for name, disk in self.disks.items()]
        places = BookieDirectories(
            data=self.data,
            data_name="/data",
            journal=self.data,
            journal_name="/data",
            ledgers=tuple(ledgers),
            lost=lost,
        )
        return await BookieNode.start(
            self.store,
            self.data,
            self.index,
            self.clock,
            SeededRng(5),
            SETTINGS,
            journal_executor=SimulatedExecutor(),  # type: ignore[arg-type]
            storage_executor=SimulatedExecutor(),  # type: ignore[arg-type]
            directories=places,
        )

    async def create(self, *members: BookieId) -> LedgerId:
        made, _ = await self.manager.create(
            LedgerMetadata(
                ledger_id=LedgerId(0),
                ensemble_size=len(members),
                write_quorum_size=len(members),
                ack_quorum_size=1,
                segments=(Segment(EntryId(0), members),),
            )
        )
        return made.ledger_id


def simulate(test: object) -> None:
    async def main() -> None:
        world = World()
        await initialize(world.store, rng=SeededRng(4))
        try:
            await test(world)  # type: ignore[operator]
        finally:
            await world.store.close()

    loop = SimulatedLoop(3)
    try:
        loop.run_until_complete(main(), time_limit_s=10_000)
    finally:
        loop.close()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_lost_disk_with_the_index(*, is_replaced: bool) -> None:
    async def test(world: World) -> None:
        node = await world.start()
        mine, unwritten = await world.create(ID), await world.create(ID)
        others = await world.create(OTHER)
        for entry_id in range(12):
            packet = packet_of(mine, entry_id, bytes(20_000))
            assert await add(node.bookie, packet) is Status.OK
            await node.bookie.checkpoint()
        await node.close()
        lost = world.disks["/b"]
        world.disks["/b"] = SimulatedDisk(7)
        world.index = MemoryIndex()
        with pytest.raises(BookieStartError, match="wiped, or is not mounted"):
            await world.start()
        if not is_replaced:
            del world.disks["/b"]
            with pytest.raises(BookieStartError, match="ledger directories"):
                await world.start()
        assert read_lost(world.data) == ()
        node = await world.start(lost=("/b",))
        for _ in range(2):
            found = {(await read(node.bookie, mine, n))[0] for n in range(12)}
            assert found == {Status.OK, Status.IO_ERROR}
            assert (await read(node.bookie, unwritten, 0))[0] is Status.IO_ERROR
            assert (await read(node.bookie, others, 0))[0] is Status.NO_LEDGER
            assert read_lost(world.data) == ()
            await node.close()
            node = await world.start()  # without the option from now on
        await node.close()
        if not is_replaced:
            world.disks["/b"] = lost  # it comes back
            with pytest.raises(BookieStartError, match="/b/entries"):
                await world.start()

    simulate(test)


def test_all_disks_are_locked() -> None:
    async def test(world: World) -> None:
        lock = world.disks["/b"].lock("LOCK", "another")
        with pytest.raises(BookieStartError, match="/b/LOCK is held by another"):
            await world.start()
        lock.close()
        await (await world.start()).close()

    simulate(test)


def test_what_metadata_says_of_a_bookie() -> None:
    async def test(world: World) -> None:
        instance_id = await read_instance_id(world.store, "/ledgers")
        ledgers = ClusterLedgers(world.store, "/ledgers", world.manager, ID, instance_id)
        mine, others = await world.create(OTHER, ID), await world.create(OTHER)
        assert await ledgers.read(mine) == Holding(is_closed=False, is_member=True)
        metadata, version = await world.manager.read(others)
        await world.manager.write(metadata.closed(EntryId(-1), 0), version)
        assert await ledgers.read(others) == Holding(is_closed=True, is_member=False)
        assert await ledgers.fresh_id() > others
        await world.store.write(ledger_path("/ledgers", Layout.HIERARCHICAL, others), b"?", -1)
        assert await ledgers.named_ledger_ids() == {mine, others}, "it may name this bookie"

    simulate(test)


def test_a_lock_keeps_workers_away_and_is_theirs_otherwise() -> None:
    async def test(world: World) -> None:
        ledgers = ClusterLedgers(world.store, "/ledgers", world.manager, ID, None)
        path = task_lock_path("/ledgers", 7)
        assert path == "/ledgers/underreplication/locks/urL0000000007"
        async with ledgers.task_lock(7) as is_ours:
            assert is_ours
            async with ledgers.task_lock(7) as is_ours_again:
                assert not is_ours_again
            assert await world.store.exists(path) is not None
        assert await world.store.exists(path) is None
        worker = MemoryStore(world.server)
        await worker.create(path, b"", is_ephemeral=True, make_parents=True)
        async with ledgers.task_lock(7) as is_ours:
            assert not is_ours
        assert await world.store.exists(path) is not None
        await worker.close()

    simulate(test)
