"""The leader's node: made by one session alone, gone with it, whatever answers are lost."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bookie.metadata.memory import Fate, MemoryStore, MemoryStoreServer, Plan
from herdpy.cluster.leader_node import LeaderNode
from tests.fixtures.chain_nodes import ScriptedLink
from tests.sim.clock import SimulatedClock
from tests.sim.loop import SimulatedLoop

PATH = "/herd/leaders/t"


class World:
    def __init__(self) -> None:
        self.server = MemoryStoreServer(SimulatedClock(), session_timeout_s=1.0)

    def session(self) -> MemoryStore:
        return MemoryStore(self.server, ScriptedLink())

    def node(self, name: str, store: MemoryStore) -> LeaderNode:
        return LeaderNode(store, PATH, name, patience_s=5.0)


def run(body: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        await world.session().create(PATH.rpartition("/")[0], make_parents=True)
        await body(world)

    loop = SimulatedLoop(1)
    try:
        loop.run_until_complete(main(), time_limit_s=100.0)
    finally:
        loop.close()


def test_one_node_leads_until_it_resigns() -> None:
    async def body(world: World) -> None:
        stores = world.session(), world.session()
        first, second = world.node("n1", stores[0]), world.node("n2", stores[1])
        assert await second.read() is None
        assert await first.make()
        assert await first.make()  # it is its own
        assert not await second.make()
        assert await second.read() == ("n1", stores[0].session_id)
        await second.resign()  # which is no other's
        assert await second.read() is not None
        await first.resign()
        await first.resign()
        assert await second.make()

    run(body)


def test_it_goes_with_its_session() -> None:
    async def body(world: World) -> None:
        store = world.session()
        first, second = world.node("n1", store), world.node("n2", world.session())
        assert await first.make()
        changes: list[None] = []
        watch = second.watch(lambda: changes.append(None))
        world.server.expire(store.session_id)
        await asyncio.sleep(0.01)
        assert changes
        assert await second.make()
        watch.close()

    run(body)


def test_what_a_former_session_left_goes_with_that_session_alone() -> None:
    async def body(world: World) -> None:
        store = world.session()
        former, again = world.node("n1", store), world.node("n1", world.session())
        assert await former.make()
        assert not await again.make()
        await again.resign()
        assert await again.read() == ("n1", store.session_id)
        world.server.expire(store.session_id)
        assert await again.make()

    run(body)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
@pytest.mark.parametrize("what", ["make", "resign"])
def test_a_lost_answer_is_decided_by_what_is_there(what: str, fate: Fate) -> None:
    async def body(world: World) -> None:
        store = world.session()
        node = world.node("n1", store)
        if what != "make":
            assert await node.make()
        link: ScriptedLink = store._link  # type: ignore[assignment]
        for step in range(4):
            link.plans = {link._number + step + 1: Plan(fate=fate, reconnect_s=0.05)}
            if what == "make":
                assert await node.make()
                await node.resign()
            else:
                await node.resign()
                link.plans = {}
                assert await node.read() is None
                assert await node.make()

    run(body)
