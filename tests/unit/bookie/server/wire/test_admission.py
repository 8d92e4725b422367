"""Which connections a bookie gives a place, and for how long they may say nothing."""

import asyncio

from bookie.ledger.types import Status
from bookie.proto import v3
from bookie.server.metrics import families
from tests.fixtures.bookies import Peer, RunningBookie, add, ask, run, simulate


async def idle_peers(running: RunningBookie, count: int) -> list[Peer]:
    """Return peers that have asked once, and are idle since."""
    peers = [await running.peer() for _ in range(count)]
    for peer in peers:
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK
    return peers


def test_a_silent_peer_has_a_deadline() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        begun, cut = await running.peer(), await running.peer()
        assert (await ask(begun, add(1, 7, 0))).status is Status.OK
        cut.send(add(1, 7, 0)[:-1])
        await asyncio.sleep(9)
        assert not peer.ended.done()
        await asyncio.sleep(2)
        assert (peer.ended.done(), cut.ended.done(), begun.ended.done()) == (True, False, False)
        await asyncio.sleep(60)  # what has begun has the time of any message
        assert (cut.ended.done(), begun.ended.done()) == (True, False)
        assert running.server.metrics.peers_too_slow == 2

    simulate(test)


def limit_of(running: RunningBookie, name: str) -> tuple[float, ...]:
    """Return share, used and refused, as /metrics shows them."""
    found = {
        sample.name: sample.value
        for family in families(running.server.metrics)
        for sample in family.samples
        if sample.labels.get("limit") == name
    }
    return tuple(found[f"bookie_limit_{each}"] for each in ("share", "used", "refused_total"))


def test_an_idle_peer_has_a_deadline_unless_it_waits_for_an_answer() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        (idle, asking, waiting) = await idle_peers(running, 3)
        held = running.service.hold("force")
        waiting.send(v3.encode_force_request(2, 7))
        await running.service.wait_held("force")
        for entry_id in range(1, 8):
            running.clock.advance(10)
            await asyncio.sleep(10)
            assert (await ask(asking, add(1, 7, entry_id))).status is Status.OK
        assert idle.ended.done()
        assert limit_of(running, "idle_timeout_s")[::2] == (30, 1)
        assert not any(each.ended.done() for each in (asking, waiting))
        for answer in held:
            answer()
        assert await waiting.receive()

    simulate(test, idle_timeout_s=30.0)


def test_silent_peers_give_way_within_the_share_of_their_address() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        (honest,) = await idle_peers(running, 1)
        silent = [await running.peer() for _ in range(20)]
        await asyncio.wait([each.ended for each in (peer, *silent[:16])])
        assert running.server.connection_count == 5
        assert not any(each.ended.done() for each in silent[16:])
        newcomer = await running.peer()
        for each in (newcomer, honest):
            assert (await ask(each, add(1, 7, 0))).status is Status.OK
        assert running.server.metrics.connections_refused == 18
        assert limit_of(running, "silent_of_address_max") == (4, 3, 18)

    run(test, silent_of_address_max=4)


def test_where_all_places_are_taken_the_silent_then_the_idle_give_way() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        idle, second = await idle_peers(running, 2)
        newcomers = await idle_peers(running, 1)
        await peer.ended  # it was silent
        # All have just asked: none is idle, and there is no place.
        refused = await running.peer()
        await refused.ended
        running.clock.advance(10)
        assert (await ask(second, add(1, 7, 0))).status is Status.OK
        assert (await ask(newcomers[0], add(1, 7, 0))).status is Status.OK
        assert (await ask(await running.peer(), add(1, 7, 0))).status is Status.OK
        await idle.ended
        assert (await ask(second, add(1, 7, 0))).status is Status.OK
        assert running.server.connection_count == 3
        assert limit_of(running, "connections_max") == (3, 3, 3)

    run(test, connections_max=3)


def test_many_idle_peers_keep_no_honest_one_out() -> None:
    """S10: 500 idle connections of 500 kept all others out for good."""

    async def test(running: RunningBookie, peer: Peer) -> None:
        await idle_peers(running, 8)
        running.clock.advance(10)
        for _ in range(20):
            (newcomer,) = await idle_peers(running, 1)
            assert running.server.connection_count <= 8
            newcomer.close()
            await newcomer.ended

    run(test, connections_max=8)
