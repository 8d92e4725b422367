"""What a member makes of steps that fail in any way, and of a close() at any moment."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import pytest

from bookie.client.client import LedgerClient
from bookie.metadata.memory import MemoryStore
from bookie.runtime.os_rng import OsRng
from herdpy.cluster.leader_node import LeaderNode
from herdpy.cluster.member import Member
from herdpy.cluster.part import State, Waits
from herdpy.cluster.registration import NodeRecord, Registration
from herdpy.cluster.served_part import ServedPart
from herdpy.cluster.tablespace_nodes import TablespaceNodes, TablespaceRecord
from herdpy.cluster.tenure import Tenure
from herdpy.cluster.upkeep import Ledger, Limits
from herdpy.errors import Error, OperationalError
from herdpy.model.lsn import START_LSN, Lsn
from tests.fixtures.ledger_cluster import LedgerCluster, simulate_cluster
from tests.sim.clock import SimulatedClock

T = TypeVar("T")
NAME, ID = "sales", "0123456789abcdef0123456789abcdef"
CALL_S = 0.05
TIMEOUT_S = 4.0
"""Of sessions, where another node leads; else they last for ever."""
WAITS = Waits(candidate_s=0.02, other_s=0.2, again_first_s=0.02, again_max_s=0.1)
LEDGERS = Limits(look_s=0.2, without_s=2.0)
ERRORS = [
    OSError(98, "address in use"),
    MemoryError(),
    AssertionError("a bug"),
    OperationalError("away", sqlstate="58030"),
]


class ScriptedCopy:
    """A copy without rows; `fails` has what its calls, and the service's, raise once."""

    def __init__(self) -> None:
        self.failure: Error | None = None
        self.position: Lsn = START_LSN
        self.durable_position: Lsn | None = None
        self.byte_count = 0
        self.fails: dict[str, BaseException] = {}
        self.calls: list[str] = []
        self.on_probe: Callable[[], object] = lambda: None
        self.is_open = False
        self.without_ledger: BaseException | None = None
        """Why no ledger can be begun."""
        self.tenure: Tenure | None = None
        self.running = 0
        self.is_serving = False
        self.has_overlapped = False

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run a call as a thread would: for a while, and to its end, whoever waits for it."""
        return await asyncio.shield(self._run(function))

    async def _run(self, function: Callable[[], T]) -> T:
        self.running += 1
        self.has_overlapped |= self.running > 1
        try:
            await asyncio.sleep(CALL_S)
            return function()
        finally:
            self.running -= 1

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if (error := self.fails.pop(name, None)) is not None:
            raise error

    def open(self) -> None:
        self._call("open")
        self.is_open = True

    def follow(self, run: Any) -> None:
        self._call("follow")

    def claim(self, epoch: int) -> None:
        self._call("claim")

    def lead(self, end: Lsn | None) -> None:
        self._call("lead")

    def probe(self, epoch: int, timeout_s: float) -> None:
        self._call("probe")
        self.on_probe()

    def tick(self) -> None:
        self._call("tick")

    def used_leases(self) -> dict[str, float]:
        return {}

    def shortest_lease_s(self) -> float:
        return 60.0

    def extend_leases(self, ids: Iterable[str]) -> None:
        self._call(f"extend {', '.join(ids)}")

    def leases_heard(self, age_s: float | None) -> None:
        self._call(f"heard {age_s}")

    def end_log(self) -> Lsn:
        self._call("end_log")
        return self.position

    async def drain(self, timeout_s: float, check: Callable[[], object]) -> None:
        self._call("drain")

    @property
    def ledger(self) -> Ledger | None:
        if self.without_ledger is not None:
            return None
        return Ledger(1, 0, is_narrow=False, is_missing=False)

    def roll(self) -> None:
        self._call("roll")
        if self.without_ledger is not None:
            raise self.without_ledger

    def close(self) -> None:
        self.is_open = False
        self._call("close")

    async def begin(self, part: ServedPart) -> None:
        self._call("begin")

    async def serve(self, tenure: Tenure) -> None:
        self._call("serve")
        self.tenure = tenure
        self.is_serving = True

    async def stop(self) -> None:
        await asyncio.sleep(CALL_S / 10)
        self.is_serving = False
        self._call("stop")


class World:
    def __init__(self, cluster: LedgerCluster) -> None:
        self.cluster = cluster
        self.copy = ScriptedCopy()
        self.states: list[State] = []
        self.inactivity_limit_s = 0.0
        self.other: TablespaceNodes | None = None
        """Of another node, n0, that leads, and whose session lives."""

    async def lead_elsewhere(self, inactivity_limit_s: float) -> None:
        """Have another node lead from the beginning, by a session of its own."""
        self.cluster.store_server.session_timeout_s = TIMEOUT_S
        store = MemoryStore(self.cluster.store_server)
        self.other = TablespaceNodes(store)
        record = NodeRecord(
            id="n0",
            life="1",
            session_timeout_s=store.session_timeout_s,
            inactivity_limit_s=inactivity_limit_s,
        )
        await self.other.initialize()
        await store.create(self.other.node_path("n0"), record.to_bytes(), is_ephemeral=True)

    async def start(self) -> Member:
        store = self.store = MemoryStore(self.cluster.store_server)
        nodes = TablespaceNodes(store)
        await nodes.initialize()
        record = TablespaceRecord(id=ID, leader="n0", replicas=("n0", "n1"))
        await (self.other or nodes).create(NAME, record)
        if self.other is None:
            await store.delete(nodes.leader_path(ID))
        self.leader = LeaderNode(store, nodes.leader_path(ID), "n1")
        client = await LedgerClient.connect(store, rng=OsRng(), clock=SimulatedClock())
        self.cluster._clients.append((client, store))
        loop = asyncio.get_running_loop()
        registration = Registration(store, nodes, NodeRecord(id="n1", life="1"), now_s=loop.time)
        await registration.start()
        member = Member(
            NAME,
            "n1",
            self.copy,
            self.copy,
            client=client,
            store=store,
            nodes=nodes,
            registration=registration,
            in_thread=self.copy.in_thread,
            draw=lambda: 0.5,
            waits=WAITS,
            ledger_limits=LEDGERS,
            inactivity_limit_s=self.inactivity_limit_s,
            on_state=self.states.append,
        )
        await member.start()
        return member

    async def until(self, member: Member, state: State) -> None:
        async with asyncio.timeout(30):
            while member.machine.state is not state:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.005)


def simulate(body: Callable[[World], Awaitable[None]]) -> None:
    async def main(cluster: LedgerCluster) -> None:
        world = World(cluster)
        await body(world)
        assert not world.copy.has_overlapped, "two calls at once"

    simulate_cluster(main)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", ["open", "claim", "lead", "serve"])
def test_a_step_that_fails_in_any_way_is_told_and_tried_again(
    call: str, error: BaseException
) -> None:
    async def body(world: World) -> None:
        world.copy.fails[call] = error
        member = await world.start()
        await world.until(member, State.LEADING)
        assert not world.copy.fails
        assert world.copy.is_serving
        assert world.copy.calls.count(call) == 2
        assert (State.RESIGNING in world.states) == (call != "claim")
        await member.close()

    simulate(body)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_leader_that_can_begin_no_ledger_gives_its_part_away(error: BaseException) -> None:
    async def body(world: World) -> None:
        member = await world.start()
        await world.until(member, State.LEADING)
        begun_s = asyncio.get_running_loop().time()
        world.copy.without_ledger = error
        await world.until(member, State.RESIGNING)
        waited_s = asyncio.get_running_loop().time() - begun_s
        assert LEDGERS.without_s <= waited_s <= LEDGERS.without_s + 3 * LEDGERS.look_s
        world.copy.without_ledger = None
        await world.until(member, State.LEADING)
        rolls = world.copy.calls.count("roll")
        await asyncio.sleep(10 * LEDGERS.look_s)
        assert world.copy.calls.count("roll") == rolls
        await member.close()

    simulate(body)


@pytest.mark.parametrize("error", [None, *ERRORS], ids=lambda error: type(error).__name__)
def test_a_leader_ticks_a_log_that_says_nothing_whatever_becomes_of_a_tick(
    error: BaseException | None,
) -> None:
    limit_s = 6.0

    async def body(world: World) -> None:
        loop, copy = asyncio.get_running_loop(), world.copy
        world.inactivity_limit_s = limit_s
        member = await world.start()
        await world.until(member, State.LEADING)
        if error is not None:
            copy.fails["tick"] = error
        begun_s = loop.time()
        while copy.calls.count("tick") < 10:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
        assert 10 * limit_s / 4 <= loop.time() - begun_s + limit_s / 4 <= 11 * limit_s / 3
        for number in range(100):  # it says something by itself
            copy.durable_position = Lsn(1, number, 0)
            await asyncio.sleep(limit_s / 10)
        assert copy.calls.count("tick") == 10
        await member.close()
        await asyncio.sleep(limit_s)
        assert copy.calls.count("tick") == 10

    simulate(body)


def test_leases_that_another_node_uses_are_the_leader_s_to_extend_and_no_one_else_s() -> None:
    async def body(world: World) -> None:
        member = await world.start()
        await world.until(member, State.FOLLOWING)
        member.leases_used(["a", "b"])
        member.leases_heard(None)
        assert member.shortest_lease_s() == math.inf
        await world.until(member, State.LEADING)
        assert member.shortest_lease_s() == 60.0
        assert not any(call.startswith(("extend", "heard")) for call in world.copy.calls)
        member.leases_used(["a", "b"])
        assert world.copy.calls[-1] == "extend a, b"
        member.leases_heard(0.5)
        assert world.copy.calls[-1] == "heard 0.5"
        await member.close()

    simulate(body)


def test_a_leader_without_a_limit_does_not_tick() -> None:
    async def body(world: World) -> None:
        member = await world.start()
        await world.until(member, State.LEADING)
        await asyncio.sleep(3600.0)
        assert "tick" not in world.copy.calls
        await member.close()

    simulate(body)


def test_a_leader_whose_tenure_is_over_gives_its_part_away() -> None:
    async def body(world: World) -> None:
        member = await world.start()
        await world.until(member, State.LEADING)
        assert world.copy.tenure is not None
        world.copy.tenure.end()
        await world.until(member, State.RESIGNING)
        await world.until(member, State.LEADING)
        assert world.copy.tenure.holds()
        await member.close()

    simulate(body)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", ["stop", "close"])
def test_a_leader_resigns_whatever_does_not_end_well(call: str, error: BaseException) -> None:
    async def body(world: World) -> None:
        member = await world.start()
        await world.until(member, State.LEADING)
        world.copy.fails[call] = error
        world.copy.failure = OperationalError("fenced", sqlstate="58030")
        await world.until(member, State.FAILED)
        assert await world.leader.read() is None
        assert "close" in world.copy.calls
        world.copy.failure = None
        await world.until(member, State.LEADING)
        world.copy.fails[call] = error
        await member.close()
        assert not world.copy.is_open
        assert await world.leader.read() is None

    simulate(body)


@pytest.mark.parametrize("after_ms", [*range(0, 100, 7), *range(100, 400, 40)])
def test_a_close_at_any_moment_ends_all_and_comes_behind_every_call(after_ms: int) -> None:
    async def body(world: World) -> None:
        member = await world.start()
        await asyncio.sleep(after_ms / 1000)
        closing = [asyncio.ensure_future(member.close()) for _ in range(2)]
        await asyncio.sleep(0)
        closing[0].cancel()
        await asyncio.wait(closing)
        assert closing[0].cancelled()
        await member.close()
        assert (world.copy.running, world.copy.is_open, world.copy.is_serving) == (0, False, False)
        assert await world.leader.read() is None
        calls = len(world.copy.calls)
        await asyncio.sleep(2.0)
        assert len(world.copy.calls) == calls

    simulate(body)


@pytest.mark.parametrize("after_ms", range(0, 130, 13))
def test_a_close_beside_a_stop_waits_for_it(after_ms: int) -> None:
    async def body(world: World) -> None:
        member = await world.start()
        await world.until(member, State.LEADING)
        world.copy.failure = OperationalError("fenced", sqlstate="58030")
        await world.until(member, State.RESIGNING)
        await asyncio.sleep(after_ms / 1000)
        await member.close()
        assert (world.copy.running, world.copy.is_open) == (0, False)
        assert await world.leader.read() is None

    simulate(body)


def test_what_is_wanted_in_the_same_turn_as_a_close_is_not_begun() -> None:
    async def body(world: World) -> None:
        member = await world.start()
        await world.until(member, State.TAKING_OVER)
        await asyncio.sleep(CALL_S / 2)  # within a call
        member._act(member.machine.on_named(10, asyncio.get_running_loop().time()))
        await member.close()
        assert (world.copy.running, world.copy.is_open) == (0, False)

    simulate(body)


def test_a_member_that_did_not_start_is_closed() -> None:
    async def body(world: World) -> None:
        member = await world.start()
        await member.close()
        nodes = TablespaceNodes(world.store)
        await nodes.drop(NAME, await nodes.read(NAME))
        with pytest.raises(Error):
            await member.start()
        await member.close()

    simulate(body)
