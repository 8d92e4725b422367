"""Machines of the recovery world: bookies with two ledger directories, processes that heal.

Each runs the product's code on a node of its own; what it writes to the metadata store carries its
name (StoreLink.owner), so that the world can judge it.
"""

from typing import TYPE_CHECKING

from bookie.autorecovery.replicas import LedgerReplicas
from bookie.autorecovery.service import AutoRecovery
from bookie.client.client import LedgerClient
from bookie.errors import BookieError
from bookie.ledger.types import BookieId
from bookie.metadata.memory import MemoryStore
from bookie.server.identity import BookieDirectories
from bookie.server.node import BookieNode
from bookie.server.storage.directories import LedgerDirectory
from bookie.server.storage.memory_index import MemoryIndex
from tests.fixtures.metadata import SeededRng
from tests.sim.disk import SimulatedDisk
from tests.sim.ledger.checkers import CheckError
from tests.sim.ledger.world import ROOT, BookieHost, LoopClock, StoreLink
from tests.sim.loop import Node

if TYPE_CHECKING:
    from tests.sim.recovery.world import RecoveryWorld


class RecoveryBookieHost(BookieHost):
    """A bookie's machine: with a second ledger directory, which fills first; it can be lost."""

    world: "RecoveryWorld"

    def __init__(self, world: "RecoveryWorld", number: int) -> None:
        super().__init__(world, number)
        self.storage_delay_s = 0.0
        """How much longer a job on its entry logs takes than usual."""
        self.machine_number = 0
        """A bookie that is installed anew runs on another machine."""
        self._make_disks()

    def _make_disks(self) -> None:
        rng = self.world.rng
        self.disk = SimulatedDisk(rng.getrandbits(64))
        self.index = MemoryIndex()
        self.second_disk: SimulatedDisk | None = SimulatedDisk(rng.getrandbits(64))

    def directories(self) -> BookieDirectories:
        first, second = self.directory, f"{self.directory}.2"
        ledgers = [LedgerDirectory(self.disk, first)]
        if self.second_disk is not None:
            ledgers.insert(0, LedgerDirectory(self.second_disk, second))
        return BookieDirectories(
            data=self.disk,
            data_name=first,
            journal=self.disk,
            journal_name=first,
            ledgers=tuple(ledgers),
            lost=() if self.second_disk is not None else (second,),
        )

    def lose_directory(self) -> None:
        """Let the second disk fail for good; the bookie is started without it."""
        self.crash(power=True)
        self.second_disk = None

    def install(self) -> None:
        """Come back as a new bookie with empty disks, under the same id; the old one is down."""
        self.machine_number += 1
        self._make_disks()
        self.is_wiped = False
        self.is_wanted = True
        self.start()

    async def _serve(self, service: BookieNode) -> None:
        """Check the entries beside the service, as `bookie serve` does, where some may rot."""
        world = self.world
        if world.recovery_plan.rot is not None:
            client = await LedgerClient.connect(
                self.session_of_life,
                config=world.client_config,
                rng=SeededRng(world.rng.getrandbits(64)),
                clock=LoopClock(world.loop),
            )
            replicas = LedgerReplicas(client, service.bookie_id)
            rng = SeededRng(world.rng.getrandbits(64))
            service.start_scrubber(service.bookie.scrubber(replicas, self.disk, rng))
        await super()._serve(service)

    def _storage_duration_s(self) -> float:
        return super()._storage_duration_s() + self.storage_delay_s

    def _after_crash(self) -> None:
        power = getattr(self, "_loses_power", True)
        super()._after_crash()
        if self.second_disk is not None:
            seed = self.world.rng.getrandbits(64)
            self.second_disk = self.second_disk.crash(seed, is_power_lost=power)
        for healer in self.world.healers:  # of the same process
            if healer.bookie is self:
                healer.crash()


class HealerHost:
    """One process with AutoRecovery: alone, or beside a bookie of which it shares the fate."""

    def __init__(self, world: "RecoveryWorld", name: str, bookie: BookieHost | None) -> None:
        self.world = world
        self.name = name
        self.bookie = bookie
        self.node: Node | None = None
        self.service: AutoRecovery | None = None
        self.store: MemoryStore | None = None

    @property
    def is_wanted(self) -> bool:
        return self.bookie is None or self.bookie.is_up

    def start(self) -> None:
        if self.node is not None:
            return
        node = self.node = self.world.loop.add_node(self.name)
        node.on_crash.append(self._after_crash)
        node.create_task(self._live())

    async def _live(self) -> None:
        world = self.world
        store = self.store = MemoryStore(world.store_server, StoreLink(world, self.name))
        try:
            self.service = await AutoRecovery.start(
                store,
                ROOT,
                self.name,
                clock=LoopClock(world.loop, round(world.draw() * 1e6)),
                rng=SeededRng(world.rng.getrandbits(64)),
                config=world.healer_config,
                client_config=world.client_config,
                local=None if self.bookie is None else BookieId(self.bookie.bookie_id),
            )
        except BookieError as error:
            world.say(f"{self.name} does not start: {type(error).__name__}: {error}")
            self.crash()

    def crash(self) -> None:
        if self.node is not None:
            self.world.loop.crash(self.node)

    def _after_crash(self) -> None:
        world = self.world
        self.node = self.service = None
        if self.store is not None:
            world.store_server.disconnect(self.store.session_id)
        world.loop.call_later(0.05 + 0.3 * world.draw(), self.start_if_wanted)

    def start_if_wanted(self) -> None:
        if self.world.is_ending:
            return
        if self.is_wanted:
            self.start()
        else:
            self.world.loop.call_later(0.1, self.start_if_wanted)

    async def stop(self) -> None:
        node, service, store = self.node, self.service, self.store
        if node is None:
            return
        if service is None or store is None:
            self.world.loop.crash(node)  # it was just about to start
            return

        async def close() -> None:
            await service.close()
            await store.close()

        await self.world.act(node, close())
        tasks = [task.get_name() for task in self.world.loop.pending_tasks(node)]
        if tasks and node.is_alive:  # else it died while it closed
            raise CheckError("errors", f"{self.name} is closed and leaves tasks: {tasks}")
        self.world.loop.crash(node)
