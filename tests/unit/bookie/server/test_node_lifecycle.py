"""A running bookie and its lifecycle state: what it takes, how it registers, when it ends."""

import asyncio

import pytest

from bookie.errors import BookieError
from bookie.ledger.types import BookieId, Status
from bookie.lifecycle.states import LifecycleRecord, LifecycleState, Step
from bookie.lifecycle.store import LifecycleStore
from bookie.metadata.interfaces import Create, Delete
from bookie.metadata.memory import MemoryStore
from bookie.proto import v3
from bookie.server.bookie import Admission
from bookie.server.storage.memory_index import MemoryIndex
from tests.fixtures.bookie_node import COOKIE, ID, READ_ONLY, WRITABLE, Cluster, simulate
from tests.fixtures.bookies import Peer, add, ask
from tests.sim.disk import SimulatedDisk

STATE = f"{COOKIE}/state"


def same(record: LifecycleRecord) -> LifecycleRecord:
    return record


async def move(cluster: Cluster, *steps: Step) -> None:
    store = MemoryStore(cluster.metadata)
    for step in steps:
        await LifecycleStore(store, "/ledgers").move(BookieId(ID), step, same)
    await store.close()


async def answers(peer: Peer, ledger_id: int) -> list[Status]:
    """Return what an ordinary add, one of priority, and recovery adds without and with it get."""
    high = v3.PRIORITY_HIGH
    frames = [
        add(1, ledger_id, 0),
        add(2, ledger_id, 1, priority=high),
        add(3, ledger_id, 2, is_recovery=True),
        add(4, ledger_id, 3, is_recovery=True, priority=high),
    ]
    return [(await ask(peer, frame)).status for frame in frames]


OK, REFUSED = Status.OK, Status.READ_ONLY


def test_a_drain_is_noticed_and_its_end_too() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        peer = await cluster.peer()
        assert await answers(peer, 1) == [OK] * 4
        await move(cluster, Step.DRAIN)
        await cluster.until(lambda: cluster.has(READ_ONLY) and not cluster.has(WRITABLE))
        assert await answers(peer, 2) == [REFUSED, REFUSED, REFUSED, OK]
        await move(cluster, Step.FAIL)
        await cluster.until(lambda: node.serving.lifecycle_state is LifecycleState.DRAINING_FAILED)
        assert await answers(peer, 3) == [REFUSED, REFUSED, REFUSED, OK]
        await move(cluster, Step.MARK_DRAINED)
        await cluster.until(lambda: node.serving.lifecycle_state is LifecycleState.DRAINED)
        assert await answers(peer, 4) == [REFUSED] * 4
        read = await ask(peer, v3.encode_read_request(9, 1, 0))
        assert read.status is OK
        assert node.unready_reason() is None
        await move(cluster, Step.CANCEL)
        await cluster.until(lambda: cluster.has(WRITABLE) and not cluster.has(READ_ONLY))
        assert await answers(peer, 5) == [OK] * 4

    simulate(test)


def test_an_operators_read_only_takes_priority_and_outlives_a_drain() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start(is_read_only=True)
        peer = await cluster.peer()
        assert await answers(peer, 1) == [REFUSED, OK, REFUSED, OK]
        await move(cluster, Step.DRAIN)
        await cluster.until(lambda: node.bookie.admission is Admission.PRIORITY_RECOVERY)
        await move(cluster, Step.CANCEL)
        await cluster.until(lambda: node.bookie.admission is Admission.PRIORITY)
        assert cluster.has(READ_ONLY)
        assert not cluster.has(WRITABLE)

    simulate(test)


@pytest.mark.parametrize(
    ("steps", "taken"),
    [
        ((Step.DRAIN,), [REFUSED, REFUSED, REFUSED, OK]),
        ((Step.DRAIN, Step.FINISH), [REFUSED] * 4),
    ],
)
def test_a_state_that_was_set_while_it_was_down_counts_from_the_first_request(
    steps: tuple[Step, ...], taken: list[Status]
) -> None:
    async def test(cluster: Cluster) -> None:
        await (await cluster.start()).close()
        await move(cluster, *steps)
        seen: list[bool] = []
        store = MemoryStore(cluster.metadata)
        watch = store.watch(WRITABLE, lambda: seen.append(cluster.has(WRITABLE)))
        await cluster.start()
        peer = await cluster.peer()
        assert await answers(peer, 1) == taken
        assert cluster.has(READ_ONLY)
        assert not any(seen)  # not even for a moment
        watch.close()
        await store.close()

    simulate(test)


@pytest.mark.parametrize("content", [b"", b'{"format":2}', b"\xff" * 40])
def test_a_state_that_it_cannot_read_keeps_it_read_only_until_it_can(content: bytes) -> None:
    async def test(cluster: Cluster) -> None:
        await (await cluster.start()).close()
        store = MemoryStore(cluster.metadata)
        await store.create(STATE, content)
        node = await cluster.start()
        peer = await cluster.peer()
        assert await answers(peer, 1) == [REFUSED] * 4
        assert cluster.has(READ_ONLY)
        assert node.serving.lifecycle_state is None
        await store.delete(STATE)
        await cluster.until(lambda: cluster.has(WRITABLE))
        assert await answers(peer, 2) == [OK] * 4
        # And one that becomes so while it runs.
        await store.create(STATE, content)
        await cluster.until(lambda: cluster.has(READ_ONLY))
        assert await answers(peer, 3) == [REFUSED] * 4
        await store.close()

    simulate(test)


def test_a_cookie_that_vanishes_fences_the_bookie_off() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        peer = await cluster.peer()
        held = node.bookie
        store = MemoryStore(cluster.metadata)
        await store.delete(COOKIE)
        with pytest.raises(BookieError, match="its cookie is gone"):
            await node.wait()
        assert held.admission is Admission.NONE
        await peer.ended
        assert not cluster.has(WRITABLE)
        assert not cluster.has(READ_ONLY)
        await store.close()

    simulate(test)


def test_a_cookie_that_vanished_while_the_store_was_away_counts_as_well() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        cluster.metadata.disconnect(cluster.store.session_id, reconnect_s=None)
        await asyncio.sleep(1)
        store = MemoryStore(cluster.metadata)
        await store.delete(COOKIE)
        await asyncio.sleep(1)
        assert node.bookie.admission is Admission.ALL  # it cannot know
        cluster.metadata.reconnect(cluster.store.session_id)
        with pytest.raises(BookieError, match="its cookie is gone"):
            await node.wait()
        await store.close()

    simulate(test)


def test_after_a_removal_the_id_returns_as_a_new_bookie() -> None:
    async def test(cluster: Cluster) -> None:
        await (await cluster.start()).close()
        await move(cluster, Step.DRAIN, Step.FINISH)
        store = MemoryStore(cluster.metadata)
        states = LifecycleStore(store, "/ledgers")
        await states.remove(await states.expect(BookieId(ID)))
        with pytest.raises(BookieError, match="removed from this cluster"):
            await cluster.start()  # the old directories
        cluster.index = MemoryIndex()
        node = await cluster.start(disk=SimulatedDisk(8))
        assert node.serving.lifecycle_state is LifecycleState.ACTIVE
        peer = await cluster.peer()
        assert await answers(peer, 1) == [OK] * 4
        await store.close()

    simulate(test)


def test_a_cookie_that_was_made_anew_is_another_bookies() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        store = MemoryStore(cluster.metadata)
        cookie, _ = await store.read(COOKIE)
        await asyncio.sleep(1)
        # Both within one reading of the watch, and with the same bytes.
        await store.multi([Delete(COOKIE), Create(COOKIE, cookie)])
        with pytest.raises(BookieError, match="its cookie is gone"):
            async with asyncio.timeout(60):
                await node.wait()
        assert not cluster.has(WRITABLE)
        await store.close()

    simulate(test)


def test_a_lost_state_while_the_store_is_away_changes_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        await move(cluster, Step.DRAIN)
        await cluster.until(lambda: cluster.has(READ_ONLY))
        cluster.metadata.disconnect(cluster.store.session_id, reconnect_s=60)
        await move(cluster, Step.CANCEL)
        await asyncio.sleep(50)
        assert node.bookie.admission is Admission.PRIORITY_RECOVERY
        await cluster.until(lambda: node.bookie.admission is Admission.ALL)

    simulate(test)
