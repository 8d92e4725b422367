"""A bookie's node: made, kept over lost sessions, refused when another holds the id."""

import asyncio
import random

import pytest

from bookie.errors import BookieStartError, IncorrectParameterError, MetadataStoreError
from bookie.ledger.types import BookieId
from bookie.metadata.memory import Fate, MemoryStore
from bookie.metadata.registration import Registration, RegistrationState
from bookie.metadata.service_info import Address, ServiceInfo
from tests.fixtures.metadata import ROOT, MetadataWorld, ScriptedLink, run

BOOKIE = BookieId("127.0.0.1:3181")
INFO = ServiceInfo.of_bookie(Address("127.0.0.1", 3181))
WRITABLE = f"{ROOT}/available/{BOOKIE}"
READ_ONLY = f"{ROOT}/available/readonly/{BOOKIE}"
REGISTERED, REGISTERING = RegistrationState.REGISTERED, RegistrationState.REGISTERING
UNSURE, REFUSED = RegistrationState.UNSURE, RegistrationState.REFUSED
CLOSED = RegistrationState.CLOSED


def registration(store: MemoryStore) -> tuple[Registration, list[RegistrationState]]:
    made = Registration(store, ROOT, BOOKIE, INFO)
    states: list[RegistrationState] = []
    made.on_state(states.append)
    return made, states


def nodes(world: MetadataWorld) -> list[str]:
    return [path for path in world.paths(f"{ROOT}/available") if path.endswith(BOOKIE)]


async def settle() -> None:
    await asyncio.sleep(0.5)


def test_it_registers_and_leaves() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        made, states = registration(store)
        await made.start()
        data, stat = world.node(WRITABLE)
        assert data == INFO.to_bytes()
        assert stat.ephemeral_owner == store.session_id
        assert nodes(world) == [WRITABLE]
        await made.close()
        await made.close()
        assert nodes(world) == []
        assert states == [REGISTERED, CLOSED]

    run(scenario)


def test_read_only_and_back_is_never_in_neither_list() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store, other = world.client(), world.client()
        made, states = registration(store)
        await made.start()
        log: list[list[str]] = []
        other.watch_children(f"{ROOT}/available", lambda: log.append(nodes(world)))
        other.watch_children(f"{ROOT}/available/readonly", lambda: log.append(nodes(world)))
        await made.set_read_only(True)
        assert nodes(world) == [READ_ONLY]
        assert world.node(READ_ONLY)[0] == INFO.to_bytes()
        await made.set_read_only(False)
        assert nodes(world) == [WRITABLE]
        await settle()
        assert [] not in log
        assert states == [REGISTERED], "registered all the time"
        await made.close()

    run(scenario)


def test_it_starts_read_only_and_makes_the_place_for_it() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        await store.delete(f"{ROOT}/available/readonly")
        made, _ = registration(store)
        await made.start(is_read_only=True)
        assert nodes(world) == [READ_ONLY]
        assert world.node(f"{ROOT}/available/readonly")[1].ephemeral_owner == 0
        await made.close()

    run(scenario)


def test_no_cluster_no_registration() -> None:
    async def scenario(world: MetadataWorld) -> None:
        made, states = registration(world.client())
        with pytest.raises(BookieStartError, match="bookie format"):
            await made.start()
        assert states == [REFUSED, CLOSED]

    run(scenario)


def test_a_silent_store_ends_the_start() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        world.server.disconnect(store.session_id)
        made, _ = registration(store)
        with pytest.raises(MetadataStoreError, match="does not answer"):
            await made.start()

    run(scenario)


def test_the_id_is_checked() -> None:
    async def scenario(world: MetadataWorld) -> None:
        with pytest.raises(IncorrectParameterError):
            Registration(world.client(), ROOT, BookieId("readonly"), INFO)

    run(scenario)


def test_the_node_of_a_session_that_dies_is_waited_for() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        before = world.client()
        first, _ = registration(before)
        await first.start()
        world.server.disconnect(before.session_id)  # killed; its session lives on for 10 s
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        store = world.client()
        made, states = registration(store)
        await made.start()
        assert 9 <= loop.time() - begin_s <= 11
        assert states == [REGISTERED]
        assert world.node(WRITABLE)[1].ephemeral_owner == store.session_id
        await made.close()
        await first.close()

    run(scenario, session_timeout_s=10.0)


def test_a_node_that_is_gone_is_not_waited_for_because_a_server_lags() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        before = world.client()
        first, _ = registration(before)
        await first.start()
        store = world.client()
        world.server.freeze(store.session_id)
        await first.close()
        made, states = registration(store)
        await made.start()
        assert states == [REGISTERED]
        await made.close()

    run(scenario)


@pytest.mark.parametrize("is_read_only", [False, True])
@pytest.mark.parametrize("is_other_read_only", [False, True])
def test_another_owner_of_the_id_is_not_pushed_aside(
    is_read_only: bool, is_other_read_only: bool
) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        other, _ = registration(store)
        await other.start(is_read_only=is_other_read_only)
        made, states = registration(world.client())
        with pytest.raises(BookieStartError, match="another bookie runs under this id"):
            await made.start(is_read_only=is_read_only)
        assert states == [REFUSED, CLOSED]
        path = READ_ONLY if is_other_read_only else WRITABLE
        assert nodes(world) == [path]
        assert world.node(path)[1].ephemeral_owner == store.session_id
        await other.close()

    run(scenario)


def test_while_suspended_it_is_unsure_and_then_sure_again() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        made, states = registration(store)
        await made.start()
        world.server.disconnect(store.session_id)
        await asyncio.sleep(5)
        assert states == [REGISTERED, UNSURE]
        assert nodes(world) == [WRITABLE]
        world.server.reconnect(store.session_id)
        await settle()
        assert states == [REGISTERED, UNSURE, REGISTERED]
        await made.close()

    run(scenario)


@pytest.mark.parametrize("is_read_only", [False, True])
def test_after_its_session_expired_it_registers_again(is_read_only: bool) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        made, states = registration(store)
        await made.start(is_read_only=is_read_only)
        old = store.session_id
        world.server.expire(old)
        assert nodes(world) == []
        await settle()
        assert states == [REGISTERED, UNSURE, REGISTERING, REGISTERED]
        assert nodes(world) == [READ_ONLY if is_read_only else WRITABLE]
        assert world.node(nodes(world)[0])[1].ephemeral_owner == store.session_id != old
        await made.close()

    run(scenario)


def test_after_its_session_expired_another_owner_makes_it_stop() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        made, states = registration(store)
        await made.start()
        world.server.disconnect(store.session_id)
        world.server.expire(store.session_id)
        usurper = world.client()
        other, _ = registration(usurper)
        await other.start()
        store.on_reconnected()
        await asyncio.sleep(20)
        assert states == [REGISTERED, UNSURE, REGISTERING, REFUSED]
        assert isinstance(made.error, BookieStartError)
        assert f"{usurper.session_id:#x}" in str(made.error)
        await made.close()
        assert world.node(WRITABLE)[1].ephemeral_owner == usurper.session_id
        await other.close()

    run(scenario)


def test_a_node_that_an_operator_removed_is_made_again() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        made, states = registration(world.client())
        await made.start()
        await world.client().delete(WRITABLE)
        await settle()
        assert nodes(world) == [WRITABLE]
        assert states == [REGISTERED, REGISTERING, REGISTERED]
        await made.close()

    run(scenario)


@pytest.mark.parametrize("found", [None, b"another one"])
def test_it_does_not_register_in_another_cluster(found: bytes | None) -> None:
    """Entries of old ledgers would be served as those of new ones with the same ids."""

    async def scenario(world: MetadataWorld) -> None:
        instance_id = await world.format()
        store, operator = world.client(), world.client()
        made = Registration(store, ROOT, BOOKIE, INFO, instance_id=instance_id)
        await made.start()
        await operator.delete(f"{ROOT}/INSTANCEID")
        if found is not None:
            await operator.create(f"{ROOT}/INSTANCEID", found)
        await operator.delete(WRITABLE)
        await settle()
        assert nodes(world) == []
        assert made.state is REFUSED
        assert f"expected the cluster {instance_id}" in str(made.error)
        await made.close()

    run(scenario)


def test_the_mode_may_change_while_the_store_is_away() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        made, _ = registration(store)
        await made.start()
        world.server.disconnect(store.session_id)
        await settle()
        await made.set_read_only(True)
        assert nodes(world) == [WRITABLE]
        world.server.reconnect(store.session_id)
        await settle()
        assert nodes(world) == [READ_ONLY]
        await made.close()

    run(scenario)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
def test_lost_answers_of_its_creates_and_deletes(fate: Fate) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        store = world.client(link)
        made, _ = registration(store)
        link.fates = [fate]
        await made.start()
        assert nodes(world) == [WRITABLE]
        link.fates = [fate, fate, fate]
        await made.set_read_only(True)
        await settle()
        assert nodes(world) == [READ_ONLY]
        await made.close()

    run(scenario)


def test_the_session_is_replaced_while_it_creates() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        store = world.client(link)
        made, _ = registration(store)
        seen: list[str] = []

        def expire_at_create(path: str, is_write: bool) -> Fate:
            if is_write and path == WRITABLE and not seen:
                seen.append(path)
                asyncio.get_running_loop().call_soon(world.server.expire, store.session_id)
            return Fate.ANSWERED

        link.fate_of = expire_at_create
        await made.start()
        await settle()
        assert seen
        assert world.node(WRITABLE)[1].ephemeral_owner == store.session_id
        assert made.state is REGISTERED
        await made.close()

    run(scenario)


def test_close_while_it_registers_leaves_nothing(seed: int) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        chance = random.Random(seed)
        for _ in range(50):
            made, _states = registration(world.client())
            starting = asyncio.ensure_future(made.start())
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait([starting])
            await made.close()
            assert nodes(world) == []

    run(scenario, seed=seed)


def test_it_settles_whatever_happens(seed: int) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        chance = random.Random(seed)
        link = ScriptedLink()
        store = world.client(link)
        made, _ = registration(store)
        await made.start()
        link.fate_of = lambda path, is_write: chance.choices(list(Fate), [12, 1, 1])[0]
        for _ in range(60):
            match chance.randrange(5):
                case 0:
                    world.server.expire(store.session_id)
                case 1:
                    world.server.disconnect(store.session_id, reconnect_s=chance.random())
                case 2:
                    world.server.freeze(store.session_id)
                case _:
                    asking = asyncio.ensure_future(made.set_read_only(chance.random() < 0.5))
                    await asyncio.sleep(chance.random())
                    asking.cancel()
            await asyncio.sleep(chance.random() / 10)
        link.fate_of = lambda path, is_write: Fate.ANSWERED
        world.server.reconnect(store.session_id)
        await asyncio.sleep(5)
        await made.set_read_only(made.is_read_only)
        assert made.state is REGISTERED
        assert nodes(world) == [READ_ONLY if made.is_read_only else WRITABLE]
        assert world.node(nodes(world)[0])[1].ephemeral_owner == store.session_id
        await made.close()
        assert nodes(world) == []

    run(scenario, seed=seed)
