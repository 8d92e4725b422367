"""Tenures: renewed while no other node has named itself, counted from the sending, held answers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bookie.metadata.interfaces import Create, Delete, Watch
from bookie.metadata.memory import Fate, MemoryStore, MemoryStoreServer, Plan
from herdpy.cluster.leader_node import LeaderNode
from herdpy.cluster.observability.figures import TenureFigures
from herdpy.cluster.registration import NodeRecord, Registration
from herdpy.cluster.tablespace_nodes import TablespaceNodes, TablespaceRecord, Versioned
from herdpy.cluster.tenure import SHARE, Tenure
from herdpy.errors import Error
from tests.fixtures.chain_nodes import ScriptedLink
from tests.sim.clock import SimulatedClock
from tests.sim.loop import SimulatedLoop

NAME, ID = "sales", "0123456789abcdef0123456789abcdef"
TIMEOUT_S = 2.0


class World:
    def __init__(self) -> None:
        self.server = MemoryStoreServer(SimulatedClock(), session_timeout_s=TIMEOUT_S)
        self.loop = asyncio.get_running_loop()

    async def make(self) -> None:
        self.nodes = TablespaceNodes(MemoryStore(self.server))
        await self.nodes.initialize()
        await self.nodes.create(NAME, TablespaceRecord(id=ID, leader="n0", replicas=("n1", "n2")))
        await MemoryStore(self.server).delete(self.nodes.leader_path(ID))

    def member(self, name: str) -> "NodeOf":
        return NodeOf(self, name)

    @property
    def now_s(self) -> float:
        return self.loop.time()


class NodeOf:
    """A node with a session of its own."""

    new_store = MemoryStore

    def __init__(self, world: World, name: str, life: str = "1") -> None:
        self.world = world
        self.name = name
        self.link = ScriptedLink()
        self.figures = TenureFigures()
        self.store = self.new_store(world.server, self.link)
        self.nodes = TablespaceNodes(self.store)
        self.registration = Registration(
            self.store,
            self.nodes,
            NodeRecord(id=name, life=life, addresses={"herd": f"{name}:7000"}),
            now_s=world.loop.time,
            figures=self.figures,
        )
        self.leader = LeaderNode(self.store, self.nodes.leader_path(ID), name)

    async def take_over(self) -> Versioned:
        named = await self.nodes.take_over(NAME, await self.nodes.read(NAME), self.name)
        assert named is not None
        return named

    async def lead(self) -> Tenure:
        named = await self.take_over()
        assert await self.leader.make()
        return await self.registration.lead(NAME, named)

    def lose(self, fate: Fate, reconnect_s: float) -> None:
        """Have the next request go wrong."""
        self.link.plans[self.link._number + 1] = Plan(fate=fate, reconnect_s=reconnect_s)


def run(body: Callable[[World], Awaitable[None]], *, time_limit_s: float = 100.0) -> None:
    async def main() -> None:
        world = World()
        await world.make()
        await body(world)

    loop = SimulatedLoop(1)
    try:
        loop.run_until_complete(main(), time_limit_s=time_limit_s)
    finally:
        loop.close()


def test_a_tenure_is_renewed_while_its_node_leads() -> None:
    async def body(world: World) -> None:
        node = world.member("n1")
        await node.registration.start()
        tenure = await node.lead()
        for _ in range(50):
            assert tenure.holds()
            assert tenure.until_s <= world.now_s + SHARE * TIMEOUT_S
            await asyncio.sleep(0.1 * TIMEOUT_S)
        await node.registration.close()
        assert not tenure.holds()

    run(body)


def test_a_renewal_is_one_request_and_who_has_led_sees_again_that_its_node_is_gone() -> None:
    fired: list[str] = []

    class Fired(MemoryStore):
        """Notes what its watches tell, each of which costs ZooKeeper's client a request."""

        def watch(self, path: str, callback: Callable[[], object]) -> Watch:
            def note() -> None:
                fired.append(path)
                callback()

            return super().watch(path, note)

    class Member(NodeOf):
        new_store = Fired

    async def body(world: World) -> None:
        node = Member(world, "n1")
        await node.registration.start()
        tenure = await node.lead()
        before = node.link._number
        fired.clear()
        await asyncio.sleep(2 * TIMEOUT_S)
        assert 9 <= node.link._number - before <= 11
        assert not fired  # by what it writes itself
        node.registration.end(tenure)
        for _ in range(2):
            await node.store.delete(node.registration._path)
            await asyncio.sleep(0.2 * TIMEOUT_S)
            assert await node.store.exists(node.registration._path) is not None
        await node.registration.close()

    run(body)


def test_it_is_not_renewed_once_another_node_has_named_itself() -> None:
    async def body(world: World) -> None:
        node, other = world.member("n1"), world.member("n2")
        await node.registration.start()
        tenure = await node.lead()
        await other.take_over()
        named_s = world.now_s
        await asyncio.sleep(TIMEOUT_S)
        assert tenure.is_over
        assert not tenure.holds()
        assert world.now_s < named_s + 2 * TIMEOUT_S
        assert await other.leader.read() is not None  # the session lives, and that is not enough

    run(body)


def test_a_leader_s_node_that_was_made_anew_renews_nothing() -> None:
    """Its version is 0 again: what counts is the record."""

    async def body(world: World) -> None:
        node, other = world.member("n1"), world.member("n2")
        await node.registration.start()
        await other.registration.start()
        tenure = await node.lead()
        named = await other.take_over()
        assert await other.nodes.depose(NAME, named)
        assert not await node.nodes.depose(NAME, Versioned(named.record, named.version - 1))
        assert await other.leader.make()
        await asyncio.sleep(SHARE * TIMEOUT_S)
        assert not tenure.holds()
        assert (await other.registration.lead(NAME, named)).holds()

    run(body)


def test_it_goes_on_when_the_record_changes_under_the_same_leader() -> None:
    async def body(world: World) -> None:
        node = world.member("n1")
        await node.registration.start()
        tenure = await node.lead()
        found = await node.nodes.read(NAME)
        data = found.record.to_bytes()
        await node.store.write(node.nodes.path(NAME), data, found.version)
        await asyncio.sleep(3 * TIMEOUT_S)
        assert tenure.holds()

    run(body)


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_it_lapses_where_the_store_does_not_confirm_it_and_comes_back(fate: Fate) -> None:
    async def body(world: World) -> None:
        node = world.member("n1")
        await node.registration.start()
        tenure = await node.lead()
        begun_s = world.now_s
        node.lose(fate, 0.9 * TIMEOUT_S)
        released: list[float] = []
        await asyncio.sleep(SHARE * TIMEOUT_S + 0.01)
        assert not tenure.holds()
        tenure.wait(lambda: released.append(world.now_s))
        await asyncio.sleep(TIMEOUT_S)
        assert tenure.holds()
        assert len(released) == 1
        assert begun_s + SHARE * TIMEOUT_S < released[0] <= begun_s + 1.5 * TIMEOUT_S

    run(body)


def test_it_is_over_with_its_session_whatever_the_next_one_is_told() -> None:
    async def body(world: World) -> None:
        node = world.member("n1")
        await node.registration.start()
        tenure = await node.lead()
        world.server.disconnect(node.store.session_id, reconnect_s=1.1 * TIMEOUT_S)
        await asyncio.sleep(3 * TIMEOUT_S)
        assert tenure.is_over
        assert not tenure.holds()
        _, stat = await world.nodes._store.read(node.nodes.node_path("n1"))
        assert stat.ephemeral_owner == node.store.session_id  # which was made anew

    run(body)


def test_a_leadership_that_was_taken_meanwhile_has_no_tenure() -> None:
    async def body(world: World) -> None:
        node, other = world.member("n1"), world.member("n2")
        await node.registration.start()
        named = await node.take_over()
        await other.take_over()
        with pytest.raises(Error, match="another one is about to lead") as caught:
            await node.registration.lead(NAME, named)
        assert caught.value.sqlstate == "40001"

    run(body)


def test_the_node_of_a_former_life_is_waited_for() -> None:
    async def body(world: World) -> None:
        first = world.member("n1")
        await first.registration.start()
        world.server.disconnect(first.store.session_id)  # it was killed
        second = NodeOf(world, "n1", life="2")
        await second.registration.start()
        data, stat = await second.store.read(second.nodes.node_path("n1"))
        assert NodeRecord.of_bytes(data, "").life == "2"
        assert NodeRecord.of_bytes(data, "").session_timeout_s == TIMEOUT_S
        assert stat.ephemeral_owner == second.store.session_id

    run(body)


def test_a_second_process_of_the_same_node_is_refused() -> None:
    async def body(world: World) -> None:
        first = world.member("n1")
        await first.registration.start()
        second = NodeOf(world, "n1", life="2")
        with pytest.raises(Error, match="runs as node n1, one at n1:7000") as caught:
            await second.registration.start()
        assert caught.value.sqlstate == "55006"
        await second.registration.close()
        assert await first.store.exists(first.nodes.node_path("n1")) is not None

    run(body)


def test_it_registers_again_with_the_next_session_or_gives_way_to_the_other() -> None:
    async def body(world: World) -> None:
        node, told = world.member("n1"), asyncio.Queue[Error]()
        path = node.nodes.node_path("n1")
        node.registration._on_refused = told.put_nowait
        await node.registration.start()
        before = node.store.session_id
        world.server.expire(before)
        await asyncio.sleep(TIMEOUT_S)
        _, stat = await node.store.read(path)
        assert stat.ephemeral_owner == node.store.session_id != before
        other = MemoryStore(world.server)
        await other.multi(
            [Delete(path), Create(path, NodeRecord(id="n1", life="2").to_bytes(), True)]
        )
        error = await told.get()
        assert error.sqlstate == "55006"
        await node.registration.close()
        _, stat = await other.read(path)
        assert stat.ephemeral_owner == other.session_id

    run(body)


def test_a_node_s_node_that_is_of_no_session_is_refused_at_once() -> None:
    """It would stay for ever: a tool that copies trees may have made it."""

    async def body(world: World) -> None:
        node = world.member("n1")
        path = node.nodes.node_path("n1")
        await MemoryStore(world.server).create(path, NodeRecord(id="n1", life="0").to_bytes())
        begun_s = world.now_s
        with pytest.raises(Error, match="runs as node n1") as caught:
            await node.registration.start()
        assert caught.value.sqlstate == "55006"
        assert world.now_s < begun_s + TIMEOUT_S

    run(body)


def test_what_is_released_asks_again_and_what_is_over_is_not_released() -> None:
    now = [0.0]
    tenure = Tenure(lambda: now[0], lambda call: call())
    calls: list[str] = []
    assert not tenure.holds()
    tenure.wait(lambda: calls.append("a"))
    tenure.renew(-10.0, 5.0)  # confirmed too late to be of use
    assert (tenure.holds(), calls) == (False, [])
    tenure.renew(0.0, 5.0)
    assert (tenure.holds(), calls) == (True, ["a"])
    now[0] = SHARE * 5.0
    assert not tenure.holds()
    tenure.wait(lambda: calls.append("b"))
    tenure.end()
    tenure.renew(now[0], 5.0)
    assert (tenure.holds(), calls) == (False, ["a"])
    assert (tenure.waiting_count, tenure.held_count) == (0, 2)


def test_renewals_and_held_answers_are_counted() -> None:
    async def body(world: World) -> None:
        node, other = world.member("n1"), world.member("n2")
        figures = node.figures
        await node.registration.start()
        tenure = await node.lead()
        assert (figures.confirmed, figures.refused, figures.unanswered) == (1, 0, 0)
        await asyncio.sleep(2 * TIMEOUT_S)
        confirmed = figures.confirmed
        assert confirmed >= 10
        node.lose(Fate.LOSE_ANSWER, 0.1 * TIMEOUT_S)
        await asyncio.sleep(TIMEOUT_S)
        assert figures.unanswered >= 1
        assert (figures.refused, figures.confirmed > confirmed) == (0, True)
        tenure.wait(lambda: None)
        assert (figures.held, figures.count_held()) == (0, 1)
        await other.take_over()
        await asyncio.sleep(TIMEOUT_S)
        assert figures.refused == 1
        assert (figures.held, figures.count_held()) == (1, 0)

    run(body)
