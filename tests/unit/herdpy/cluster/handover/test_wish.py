"""The wish for another leader: one at a time, of its maker's session, answered once."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bookie.metadata.memory import Fate, MemoryStore, MemoryStoreServer, Plan
from herdpy.cluster.handover.wish import ANY_NODE, Wish, WishRecord
from herdpy.errors import CorruptionError, OperationalError
from tests.fixtures.chain_nodes import ScriptedLink
from tests.sim.clock import SimulatedClock
from tests.sim.loop import SimulatedLoop

PATH = "/herd/wishes/t"
WANTED = WishRecord(leader="n2", epoch=7)


class World:
    def __init__(self) -> None:
        self.server = MemoryStoreServer(SimulatedClock(), session_timeout_s=1.0)

    def session(self, link: ScriptedLink | None = None) -> MemoryStore:
        return MemoryStore(self.server, link or ScriptedLink())


def run(body: Callable[[World], Awaitable[None]]) -> None:
    loop = SimulatedLoop(1)
    try:
        loop.run_until_complete(body(World()), time_limit_s=100.0)
    finally:
        loop.close()


def test_a_wish_is_answered_by_the_node_that_is_wanted_and_ends_with_its_maker() -> None:
    async def body(world: World) -> None:
        maker, node = world.session(), Wish(world.session(), PATH)
        wish = Wish(maker, PATH)
        changed = asyncio.Event()
        watch = node.watch(changed.set)
        await wish.make(WANTED)  # in a folder that an older cluster does not have
        await changed.wait()
        found = await node.read()
        assert found is not None
        assert found.record == WANTED
        await node.accept(found, "n2")
        answered = await wish.read()
        assert answered is not None
        assert answered.record == WishRecord(leader="n2", epoch=7, is_level=True)
        await node.end()  # which is no other's
        assert await wish.read() is not None
        await maker.close()
        assert await node.read() is None
        watch.close()

    run(body)


def test_one_wish_at_a_time_and_the_first_answer_counts() -> None:
    async def body(world: World) -> None:
        one, other = Wish(world.session(), PATH), Wish(world.session(), PATH)
        await one.make(WishRecord(leader=ANY_NODE, epoch=7))
        with pytest.raises(OperationalError, match="another leader is wanted already") as caught:
            await other.make(WANTED)
        assert caught.value.sqlstate == "55006"
        found = await other.read()
        assert found is not None
        await one.accept(found, "n3")
        await other.accept(found, "n2")  # too late: nothing happens
        answered = await one.read()
        assert answered is not None
        assert (answered.record.leader, answered.record.is_level) == ("n3", True)
        await one.end()
        await one.end()
        await other.accept(answered, "n2")
        assert await other.read() is None

    run(body)


@pytest.mark.parametrize("step", [1, 2, 3, 4])
@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_lost_answers_leave_it_made_answered_and_ended(fate: Fate, step: int) -> None:
    async def body(world: World) -> None:
        link = ScriptedLink()
        wish = Wish(world.session(link), PATH, patience_s=5.0)

        def lose() -> None:
            link.plans = {link._number + step: Plan(fate=fate, reconnect_s=0.05)}

        lose()
        await wish.make(WANTED)
        found = await wish.read()
        assert found is not None
        lose()
        await wish.accept(found, "n2")
        answered = await wish.read()
        assert answered is not None
        assert answered.record.is_level
        lose()
        await wish.end()
        assert await wish.read() is None

    run(body)


def test_the_bytes_of_a_wish() -> None:
    async def body(world: World) -> None:
        store = world.session()
        await Wish(store, PATH).make(WANTED)
        data, stat = await store.read(PATH)
        assert data == b'{"format":1,"leader":"n2","epoch":7,"is_level":false}'
        assert stat.ephemeral_owner == store.session_id
        await store.write(PATH, b"{}", stat.version)
        with pytest.raises(CorruptionError, match="expected a wish for a leader"):
            await Wish(store, PATH).read()

    run(body)
