"""Leases that are read on a node that follows alone: the leader ends none that is used in time."""

import asyncio
from collections.abc import Iterable

import pytest

from bookie.metadata.memory import MemoryStore
from herdpy.cluster.observability.known_cluster import KnownCluster
from herdpy.cluster.observability.replica_node import CopyState, ReplicaNode, reported_s
from herdpy.cluster.part import PartMachine
from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.snapshot_leases import Leases
from herdpy.engine.state.snapshots import SnapshotRegistry
from herdpy.engine.state.state import State
from herdpy.log.record import BeginLease
from herdpy.model.lsn import Lsn
from tests.unit.herdpy.cluster.test_registration import ID, NAME, NodeOf, World, run

_LIFE_S = 70.0
_END_S = 20.0
"""Beside its seconds: behind its last use a lease has ended."""


class Leader:
    """A member that leads, of whose copy only the leases are there."""

    name, record, leader_id = NAME, None, "n1"

    def __init__(self, leases: Leases, lease_s: float) -> None:
        self.machine = PartMachine(lambda: 0.5)
        self.leases = leases
        self.lease_s = lease_s

    def shortest_lease_s(self) -> float:
        return self.lease_s

    def leases_used(self, ids: Iterable[str]) -> None:
        self.leases.extend(ids)

    def leases_heard(self, age_s: float | None) -> None:
        self.leases.heard(age_s)


def leases_of(world: World, lease_s: float) -> Leases:
    found = Leases(SnapshotRegistry(), world.loop.time)
    found.apply(BeginLease("a", None, lease_s, 0), State(1, Lsn(1, 1, 0), Catalog(0, ()), {}))
    return found


@pytest.mark.parametrize("share", [0.4, 0.95])
@pytest.mark.parametrize("lease_s", [1.0, 3.0, 8.0, 20.0])
def test_a_lease_that_is_used_in_time_on_another_copy_does_not_end(
    lease_s: float, share: float
) -> None:
    async def main(world: World) -> None:
        leads, follows = leases_of(world, lease_s), leases_of(world, lease_s)
        leads.await_reports(reported_s)
        asked_s = 0.0

        def used() -> dict[str, float]:
            nonlocal asked_s
            since_s, asked_s = asked_s, world.loop.time()
            return follows.used(since_s)

        node = NodeOf(world, "n2")
        replica = ReplicaNode(
            node.store,
            node.nodes.replica_path(ID, "n2"),
            "n2",
            lambda: CopyState("following", None, 0.0),
            world.loop.time,
            used,
        )
        known = KnownCluster(
            MemoryStore(world.server),
            node.nodes,
            Leader(leads, lease_s),  # type: ignore[arg-type]
            node_id="n1",
            tablespace_id=ID,
        )
        known.start()
        keeping = world.loop.create_task(replica.keep())
        begun_s = used_s = world.loop.time()
        while world.loop.time() < begun_s + _LIFE_S:
            if world.loop.time() - used_s >= share * lease_s:
                follows.use("a")
                used_s = world.loop.time()
            assert leads.due(None) == [], f"{world.loop.time() - begun_s:.1f} s"
            await asyncio.sleep(0.05)
        while not leads.due(None):
            assert world.loop.time() - used_s < 1.5 * lease_s + _END_S
            await asyncio.sleep(0.05)
        keeping.cancel()
        await known.close()

    run(main, time_limit_s=200.0)


def test_a_lease_of_the_only_copy_ends_with_its_seconds() -> None:
    async def main(world: World) -> None:
        leads = leases_of(world, 1.0)
        leads.await_reports(reported_s)
        node = NodeOf(world, "n1")
        known = KnownCluster(
            node.store,
            node.nodes,
            Leader(leads, 1.0),  # type: ignore[arg-type]
            node_id="n1",
            tablespace_id=ID,
        )
        assert leads.due(None) == []
        known.start()
        await asyncio.sleep(0.9)
        assert leads.due(None) == []
        await asyncio.sleep(0.2)
        assert leads.due(None) == ["a"]
        await known.close()

    run(main)
