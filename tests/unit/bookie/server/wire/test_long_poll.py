"""Long polls: every way to wake, time out and piggyback.

Re-expresses LongPollReadEntryProcessorV3Test of Apache BookKeeper.
"""

import asyncio
from struct import pack

import pytest

from bookie.ledger.types import Status
from bookie.proto import v3
from tests.fixtures.bookies import (
    KEY,
    Peer,
    RunningBookie,
    add,
    answer_to,
    ask,
    packet,
    simulate,
)


def poll(
    txn_id: int,
    previous_lac: int,
    wait_ms: int | None = 1000,
    *,
    entry_id: int = -1,
    is_piggyback: bool = True,
    ledger_id: int = 7,
) -> bytes:
    return v3.encode_read_request(
        txn_id,
        ledger_id,
        entry_id,
        previous_lac=previous_lac,
        wait_ms=wait_ms,
        is_piggyback=is_piggyback,
    )


async def is_waiting(peer: Peer) -> bool:
    """Let a while pass that is shorter than any wait here; say whether nothing came."""
    before = peer.frame_count
    await asyncio.sleep(0.3)
    return peer.frame_count == before


def test_an_unknown_ledger_is_answered_at_once() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        for frame in (poll(1, -1), poll(2, -1, None), poll(3, 5, is_piggyback=False)):
            assert (await ask(peer, frame)).status is Status.NO_LEDGER

    simulate(test)


@pytest.mark.parametrize("entry_id", [0, 5])
def test_piggyback_needs_entry_minus_one(entry_id: int) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        reply = await ask(peer, poll(2, -1, entry_id=entry_id))
        assert (reply.status, reply.entry_id) == (Status.BAD_REQUEST, entry_id)

    simulate(test)


def test_a_lac_that_has_moved_already_is_answered_at_once_with_the_next_entry() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        await ask(peer, add(2, 7, 1, lac=0))
        await ask(peer, add(3, 7, 2, lac=1))
        for wait_ms in (None, 0, 1000):
            reply = await ask(peer, poll(4, -1, wait_ms))
            assert (reply.status, reply.entry_id, reply.max_lac) == (Status.OK, 0, 1)
            assert reply.body == packet(7, 0)
            assert reply.lac_update_ms is None  # nothing was waited for

    simulate(test)


def test_a_striped_entry_that_lies_elsewhere_is_no_error() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 5, lac=4))
        reply = await ask(peer, poll(2, 2))
        assert (reply.status, reply.entry_id, reply.max_lac) == (Status.OK, -1, 4)
        assert reply.body == b""

    simulate(test)


def test_without_news_the_time_ends_the_wait() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        started = asyncio.get_running_loop().time()
        reply = await ask(peer, poll(2, 3, 700))
        assert 0.7 <= asyncio.get_running_loop().time() - started < 0.8
        assert (reply.status, reply.entry_id, reply.max_lac) == (Status.OK, -1, -1)
        assert (reply.body, reply.lac_update_ms) == (b"", None)
        assert running.server.request_count == 0

    simulate(test)


def test_a_wait_that_ended_leaves_nothing_behind() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        state = running.bookie._storage.state_in_memory(7)
        await ask(peer, poll(2, 3, 200))  # by time
        assert not state.watches
        peer.send(poll(3, -1, 1000))
        assert await is_waiting(peer)
        (connection,) = running.server._hub.connections
        (waiting,) = connection.polls
        other = await running.peer()
        await ask(other, add(4, 7, 1, lac=0))  # by news
        await peer.receive()
        assert waiting._timer.cancelled()
        assert (connection.polls, running.server.request_count) == ({}, 0)

    simulate(test)


def test_a_wait_longer_than_the_limit_is_answered_then() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        started = asyncio.get_running_loop().time()
        assert (await ask(peer, poll(2, 3, 2**62))).status is Status.OK
        assert 2.0 <= asyncio.get_running_loop().time() - started < 2.1

    simulate(test, long_poll_s_max=2.0)


@pytest.mark.parametrize("wait_ms", [None, 0, -5])
def test_without_a_time_nothing_is_waited_for(wait_ms: int | None) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        reply = await ask(peer, poll(2, 0, wait_ms))
        assert (reply.status, reply.entry_id, reply.max_lac) == (Status.OK, -1, -1)

    simulate(test)


def test_an_add_that_moves_the_lac_wakes() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        frame = poll(2, -1)
        peer.send(frame)
        assert await is_waiting(peer)
        other = await running.peer()
        await ask(other, add(3, 7, 1, lac=-1))  # no news
        assert await is_waiting(peer)
        await ask(other, add(4, 7, 2, lac=0))
        reply = await answer_to(peer, frame)
        assert (reply.status, reply.entry_id, reply.max_lac) == (Status.OK, 0, 0)
        assert reply.body == packet(7, 0)
        assert reply.lac_update_ms == 1_700_000_000_000
        metrics = running.server.metrics
        assert (metrics.long_poll_wait.success_count, metrics.long_poll.success_count) == (1, 1)

    simulate(test)


def test_an_explicit_lac_wakes() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        frame = poll(2, -1)
        peer.send(frame)
        assert await is_waiting(peer)
        other = await running.peer()
        body = pack(">qq", 7, 0) + b"dddd"
        await ask(other, v3.encode_write_lac_request(3, 7, KEY, 0, body))
        reply = await answer_to(peer, frame)
        assert (reply.status, reply.entry_id, reply.max_lac) == (Status.OK, 0, 0)
        assert reply.body == packet(7, 0)

    simulate(test)


def test_a_fence_wakes() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        frame = poll(2, -1)
        peer.send(frame)
        assert await is_waiting(peer)
        other = await running.peer()
        await ask(other, v3.encode_read_request(3, 7, -1, fence_key=KEY))
        reply = await answer_to(peer, frame)
        assert (reply.status, reply.entry_id, reply.max_lac) == (Status.OK, -1, -1)
        assert reply.lac_update_ms is None  # the LAC did not move

    simulate(test)


def test_without_piggyback_the_entry_asked_for_is_read() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        frame = poll(2, -1, entry_id=1, is_piggyback=False)
        peer.send(frame)
        assert await is_waiting(peer)
        other = await running.peer()
        await ask(other, add(3, 7, 1, lac=0))
        reply = await answer_to(peer, frame)
        assert (reply.status, reply.entry_id, reply.max_lac) == (Status.OK, 1, 0)
        assert reply.body == packet(7, 1, 0)
        absent = await ask(peer, poll(4, 0, 100, entry_id=9, is_piggyback=False))
        assert absent.status is Status.NO_ENTRY

    simulate(test)


def test_fence_beats_previous_lac() -> None:
    """A read that fences is no long poll, whatever else it carries."""

    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        frame = v3.encode_read_request(2, 7, -1, fence_key=KEY, previous_lac=5, wait_ms=50_000)
        started = asyncio.get_running_loop().time()
        reply = await ask(peer, frame)
        assert (reply.body, reply.max_lac) == (packet(7, 0), None)
        assert asyncio.get_running_loop().time() - started < 1

    simulate(test)


def test_a_peer_that_goes_takes_its_polls_along() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        peer.send(*(poll(txn_id, 5, 50_000) for txn_id in range(2, 12)))
        await asyncio.sleep(0.3)
        assert running.server.request_count == 10
        peer.close()
        await asyncio.sleep(0.3)
        assert (running.server.request_count, running.server.connection_count) == (0, 0)
        other = await running.peer()
        assert (await ask(other, add(20, 7, 9, lac=8))).status is Status.OK  # wakes no poll

    simulate(test)


def test_closing_the_server_ends_the_wait() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        peer.send(poll(2, 5, 50_000))
        assert await is_waiting(peer)
        started = asyncio.get_running_loop().time()
        await running.server.close()
        assert asyncio.get_running_loop().time() - started < 1

    simulate(test, close_timeout_s=5.0)


def test_a_closing_server_waits_for_no_new_poll() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        held = running.service.hold("add")
        peer.send(add(2, 7, 1))
        await running.service.wait_held("add")
        closing = asyncio.get_running_loop().create_task(running.server.close())
        await asyncio.sleep(0.1)
        reply = await ask(peer, poll(3, 5, 50_000))
        assert (reply.status, reply.body) == (Status.OK, b"")
        held[0]()
        assert v3.parse_response(await peer.receive()).status is Status.OK
        await closing

    simulate(test, close_timeout_s=5.0)


def test_a_read_that_breaks_after_the_wait_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        frame = poll(2, -1)
        peer.send(frame)
        assert await is_waiting(peer)
        running.service.forced["read"] = RuntimeError("broken on purpose")
        other = await running.peer()
        await ask(other, add(3, 7, 1, lac=0))
        assert (await answer_to(peer, frame)).status is Status.BAD_REQUEST
        assert running.server.request_count == 0

    simulate(test)
    assert "broken on purpose" in caplog.text
