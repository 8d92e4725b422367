"""What the memory store does beyond the contract: faults that come from outside, when told."""

import asyncio
import math
import random

import pytest

from bookie.errors import BadVersionError, StoreConnectionError
from bookie.metadata.interfaces import SessionState
from bookie.metadata.memory import Fate, MemoryStore, Plan
from tests.fixtures.metadata import MetadataWorld, ScriptedLink, run, states_of


def test_a_frozen_session_reads_stale_until_sync() -> None:
    async def scenario(world: MetadataWorld) -> None:
        reader, writer = world.client(), world.client()
        await writer.create("/a", b"old")
        world.server.freeze(reader.session_id)
        rings: list[str] = []
        reader.watch("/a", lambda: rings.append("data"))
        reader.watch_children("/", lambda: rings.append("children"))
        await writer.write("/a", b"new", 0)
        await writer.create("/b")
        await asyncio.sleep(1)
        data, stat = await reader.read("/a")
        assert (data, stat.version) == (b"old", 0)
        assert await reader.children("/") == ["a"]
        assert await reader.exists("/b") is None
        assert rings == [], "a server that lags behind tells nothing, too"
        await reader.sync("/")
        assert rings == ["data", "children"]
        assert (await reader.read("/a"))[0] == b"new"
        assert await reader.children("/") == ["a", "b"]

    run(scenario)


def test_a_watch_of_a_frozen_session_hears_later_of_what_it_could_not_see() -> None:
    """Set after the change, on a server that has yet to see it."""

    async def scenario(world: MetadataWorld) -> None:
        reader, writer = world.client(), world.client()
        await writer.create("/a", b"old")
        await writer.create("/same")
        world.server.freeze(reader.session_id)
        await writer.write("/a", b"new", 0)
        await writer.create("/b")
        rings: list[str] = []
        reader.watch("/a", lambda: rings.append("data"))
        reader.watch("/same", lambda: rings.append("same"))
        reader.watch("/", lambda: rings.append("root"))
        reader.watch_children("/", lambda: rings.append("children"))
        await reader.sync("/")
        assert rings == ["data", "children"]

    run(scenario)


def test_a_frozen_session_sees_its_own_writes_and_all_before() -> None:
    async def scenario(world: MetadataWorld) -> None:
        reader, writer = world.client(), world.client()
        await writer.create("/a", b"old")
        world.server.freeze(reader.session_id)
        await writer.write("/a", b"new", 0)
        await reader.create("/mine")
        assert (await reader.read("/a"))[0] == b"new"

    run(scenario)


def test_compare_and_set_of_a_frozen_session_meets_the_truth() -> None:
    async def scenario(world: MetadataWorld) -> None:
        reader, writer = world.client(), world.client()
        await writer.create("/a")
        world.server.freeze(reader.session_id)
        version = (await reader.read("/a"))[1].version
        stat = await writer.write("/a", b"new", 0)
        assert version != stat.version
        with pytest.raises(Exception, match="expected version 0, found 1"):
            await reader.write("/a", b"lost update", version)

    run(scenario)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
def test_a_client_may_come_back_to_a_server_that_shows_what_was_before(fate: Fate) -> None:
    """Reads are stale, and stay so when a write is refused; sync() ends it."""

    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        store, other = world.client(link), world.client()
        await store.create("/a", b"old")
        rings: list[str] = []
        store.watch("/a", lambda: rings.append("data"))
        link.fates, link.lag_s = [fate], math.inf
        with pytest.raises(StoreConnectionError):
            await store.write("/a", b"new", 0)
        await asyncio.sleep(1)
        if fate is Fate.LOSE_REQUEST:
            await other.write("/a", b"new", 0)
        rings.clear()
        with pytest.raises(BadVersionError):
            await store.write("/a", b"newer", 0)
        assert (await store.read("/a"))[0] == b"old"
        assert rings == []
        await store.sync("/")
        assert (await store.read("/a"))[0] == b"new"
        await asyncio.sleep(1)
        assert rings == ["data"]

    run(scenario)


def test_a_server_that_lags_catches_up_by_itself() -> None:
    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        store = world.client(link)
        await store.create("/a", b"old")
        link.fates, link.lag_s = [Fate.LOSE_ANSWER], 5.0
        with pytest.raises(StoreConnectionError):
            await store.write("/a", b"new", 0)
        await asyncio.sleep(1)
        assert (await store.read("/a"))[0] == b"old"
        await asyncio.sleep(5)
        assert (await store.read("/a"))[0] == b"new"

    run(scenario)


def test_a_write_that_is_done_ends_the_lag() -> None:
    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        store = world.client(link)
        await store.create("/a", b"old")
        link.fates, link.lag_s = [Fate.LOSE_ANSWER], math.inf
        with pytest.raises(StoreConnectionError):
            await store.write("/a", b"new", 0)
        await asyncio.sleep(1)
        await store.create("/mine")
        assert (await store.read("/a"))[0] == b"new"

    run(scenario)


def test_a_session_suspended_for_long_lives_until_it_is_expired() -> None:
    async def scenario(world: MetadataWorld) -> None:
        store = world.client()
        states = states_of(store)
        await store.create("/here", is_ephemeral=True)
        session_id = store.session_id
        world.server.disconnect(session_id)
        await asyncio.sleep(1000)
        assert states == [SessionState.SUSPENDED]
        world.node("/here")
        world.server.reconnect(session_id)
        await asyncio.sleep(0.1)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert store.session_id == session_id

    run(scenario)


def test_a_session_expires_on_the_servers_side_only_and_late() -> None:
    async def scenario(world: MetadataWorld) -> None:
        store, other = world.client(), world.client()
        states = states_of(store)
        await store.create("/here", is_ephemeral=True)
        old = store.session_id
        world.server.disconnect(old, reconnect_s=30.0)
        await asyncio.sleep(9)
        assert await other.exists("/here") is not None
        await asyncio.sleep(2)
        assert await other.exists("/here") is None
        assert states == [SessionState.SUSPENDED]
        await asyncio.sleep(20)
        assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
        assert store.session_id != old

    run(scenario, session_timeout_s=10.0)


def test_a_session_that_comes_back_in_time_does_not_expire() -> None:
    async def scenario(world: MetadataWorld) -> None:
        store = world.client()
        await store.create("/here", is_ephemeral=True)
        world.server.disconnect(store.session_id, reconnect_s=9.0)
        await asyncio.sleep(100)
        world.node("/here")

    run(scenario, session_timeout_s=10.0)


def test_expiry_of_a_connected_session_is_told_at_once() -> None:
    async def scenario(world: MetadataWorld) -> None:
        store = world.client()
        states = states_of(store)
        await store.create("/here", is_ephemeral=True)
        old = store.session_id
        under_way = asyncio.ensure_future(store.read("/here"))
        await asyncio.sleep(0)
        world.server.expire(old)
        assert world.paths() == []
        with pytest.raises(StoreConnectionError):
            await under_way
        await asyncio.sleep(0.1)
        assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
        assert world.server.session_ids == [store.session_id]

    run(scenario)


def test_closing_while_suspended_leaves_the_session_to_expire() -> None:
    async def scenario(world: MetadataWorld) -> None:
        store = world.client()
        await store.create("/here", is_ephemeral=True)
        world.server.disconnect(store.session_id)
        await store.close()
        world.node("/here")
        await asyncio.sleep(11)
        assert world.paths() == []

    run(scenario, session_timeout_s=10.0)


def test_a_lost_answer_breaks_the_connection_for_all_requests() -> None:
    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        store = world.client(link)
        await store.create("/a", b"0")
        link.fates = [Fate.ANSWERED, Fate.LOSE_ANSWER, Fate.ANSWERED]
        writes = [asyncio.ensure_future(store.write("/a", b"%d" % n, n - 1)) for n in (1, 2, 3)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [isinstance(result, StoreConnectionError) for result in results] == [
            False,
            True,
            True,
        ]
        data, stat = world.node("/a")
        assert (data, stat.version) in [(b"2", 2), (b"3", 3)], "the lost one was done"

    run(scenario)


def test_delays_keep_the_order_of_requests_and_answers() -> None:
    class Random:
        def __init__(self) -> None:
            self.rng = random.Random(5)

        def plan(self, session_id: int, path: str, *, is_write: bool) -> Plan:
            return Plan(self.rng.random(), self.rng.random())

        def event_s(self, session_id: int, path: str) -> float:
            return self.rng.random()

    async def scenario(world: MetadataWorld) -> None:
        store = MemoryStore(world.server, Random())
        log: list[object] = []
        await store.create("/a")
        store.watch("/a", lambda: log.append("event"))

        async def write(number: int) -> None:
            log.append((await store.write("/a", b"", number)).version)

        await asyncio.gather(*(write(number) for number in range(5)))
        assert log[0] == "event", "the news of a change comes before its answer"
        assert [entry for entry in log if entry != "event"] == [1, 2, 3, 4, 5]
        await store.close()

    run(scenario)


def test_ephemerals_of_one_session_stay_when_another_expires() -> None:
    async def scenario(world: MetadataWorld) -> None:
        one, two = world.client(), world.client()
        await one.create("/one", is_ephemeral=True)
        await two.create("/two", is_ephemeral=True)
        world.server.expire(one.session_id)
        assert world.paths() == ["/two"]

    run(scenario)
