"""A leader that is told to end gives its part to a node that is level, which leads at once."""

import asyncio
import random

import pytest

from bookie.client.client import LedgerClient
from bookie.metadata.memory import MemoryStore
from bookie.runtime.os_rng import OsRng
from herdpy.cluster.member import Member
from herdpy.cluster.part import State
from herdpy.cluster.registration import NodeRecord, Registration
from herdpy.cluster.tablespace_nodes import HandedOver, TablespaceNodes, TablespaceRecord
from tests.fixtures.ledger_cluster import LedgerCluster, simulate_cluster
from tests.sim.clock import SimulatedClock
from tests.unit.herdpy.cluster.test_member_faults import ID, NAME, ScriptedCopy

NAMES = ("n1", "n2", "n3")
_TIMEOUT_S = 4.0
_ACCEPTED_S = 0.7
"""A node that follows may have looked at the log's end half a second ago; then it says so."""
_LED_S = 1.0
"""Less than the others wait for the successor: it is the one that leads."""


class Process:
    """One life of a node."""

    def __init__(self, cluster: LedgerCluster, name: str, rng: random.Random, life: int) -> None:
        self.name = name
        self._cluster = cluster
        self._life = str(life)
        self._rng = rng
        self.store = MemoryStore(cluster.store_server)
        self.copy = ScriptedCopy()

    async def start(self) -> None:
        loop, nodes = asyncio.get_running_loop(), TablespaceNodes(self.store)
        record = NodeRecord(id=self.name, life=self._life)
        self.client = await LedgerClient.connect(self.store, rng=OsRng(), clock=SimulatedClock())
        self.registration = Registration(self.store, nodes, record, now_s=loop.time)
        await self.registration.start()
        self.member = Member(
            NAME,
            self.name,
            self.copy,
            self.copy,
            client=self.client,
            store=self.store,
            nodes=nodes,
            registration=self.registration,
            in_thread=self.copy.in_thread,
            draw=self._rng.random,
        )
        await self.member.start()

    async def end(self) -> None:
        """End as a node does that is told to."""
        await self.member.give_away(1.0)
        await self.member.close()
        await self.registration.close()
        await self.client.close()
        await self.store.close()


async def leader_of(processes: dict[str, Process]) -> Process:
    while True:
        for each in processes.values():
            if each.member.machine.state is State.LEADING:
                return each
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", range(3))
def test_one_node_after_the_other_ends_and_its_successor_leads(number: int, seed: int) -> None:
    rng = random.Random(f"{seed} {number}")

    async def main(cluster: LedgerCluster) -> None:
        loop = asyncio.get_running_loop()
        cluster.store_server.session_timeout_s = _TIMEOUT_S
        maker = MemoryStore(cluster.store_server)
        nodes = TablespaceNodes(maker)
        await nodes.initialize()
        await nodes.create(NAME, TablespaceRecord(id=ID, leader="n1", replicas=NAMES))
        await maker.delete(nodes.leader_path(ID))
        processes = {name: Process(cluster, name, rng, 0) for name in NAMES}
        for each in processes.values():
            await each.start()
        for life in range(1, 9):
            former = await leader_of(processes)
            await asyncio.sleep(rng.choice((0.0, 0.05, 3.0)))  # the one before may be opening still
            del processes[former.name]
            begun_s = loop.time()
            ending = loop.create_task(former.end())
            leader = await leader_of(processes)
            assert loop.time() - begun_s <= _ACCEPTED_S + _LED_S
            handed_over = (await nodes.read(NAME)).record.handed_over
            assert isinstance(handed_over, HandedOver)
            assert (handed_over.epoch, handed_over.to) == (leader.member.epoch - 1, leader.name)
            assert leader.member.times.fields().get("waited_s", 0.0) < 0.1
            await ending
            again = processes[former.name] = Process(cluster, former.name, rng, life)
            await again.start()
        for each in processes.values():
            await each.member.close()
            await each.registration.close()
            await each.client.close()

    simulate_cluster(main)
