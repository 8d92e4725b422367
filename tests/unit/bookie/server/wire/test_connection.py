"""What a connection bears: odd pieces, bad messages, slow peers, too many requests."""

import asyncio
import os
import socket
from struct import pack

import pytest
import uvloop

from bookie.ledger.types import Status
from bookie.proto import v3
from bookie.server.wire import connection as connections
from tests.fixtures.bookies import (
    KEY,
    Peer,
    RunningBookie,
    add,
    answer_to,
    ask,
    packet,
    run,
    running_bookie,
    simulate,
)


def frame_of(payload: bytes) -> bytes:
    return pack(">i", len(payload)) + payload


# --- pieces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece_bytes", [1, 3, 7, 84, 85, 1000])
def test_messages_in_any_pieces(piece_bytes: int) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        frames = [add(n + 1, 7, n) for n in range(20)]
        data = b"".join(frames)
        for start in range(0, len(data), piece_bytes):
            peer.send(data[start : start + piece_bytes])
            await asyncio.sleep(0.001)
        for frame in frames:
            assert (await answer_to(peer, frame)).status is Status.OK

    simulate(test)


def test_answers_of_one_turn_are_one_write() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        held = running.service.hold("add")
        peer.send(*(add(n + 1, 7, n) for n in range(50)))
        await running.service.wait_held("add", 50)
        (connection,) = running.server._hub.connections
        writes = []
        transport = connection._transport
        connection._transport = Spy(transport, writes)
        for answer in held:
            answer()
        while peer.frame_count < 50:
            await peer.receive()
        connection._transport = transport
        assert len(writes) == 1

    run(test)


class Spy:
    """A transport that also counts its writes."""

    def __init__(self, transport, writes) -> None:
        self._transport = transport
        self._writes = writes

    def __getattr__(self, name):
        return getattr(self._transport, name)

    def write(self, data) -> None:
        self._writes.append(len(data))
        self._transport.write(data)

    def writelines(self, parts) -> None:
        self.write(b"".join(parts))


# --- malformed ------------------------------------------------------------------------------------

LARGE_ADD_HEAD = add(1, 7, 0)[4:60]

MALFORMED = {
    "no bytes": frame_of(b""),
    "negative length": pack(">i", -1),
    "longest length": pack(">I", 0xFFFFFFFF),
    "an http request": b"GET / HTTP/1.1\r\nHost: bookie\r\n\r\n",
    "random": frame_of(bytes(range(100, 200))),
    "one byte": frame_of(b"\x0a"),
    "header only, cut": frame_of(add(1, 7, 0)[4:10]),
    "cut in the body": frame_of(add(1, 7, 0)[4:-3]),
    "a header without txn id": frame_of(bytes.fromhex("0a0408031002")),
    "v2 of no operation": frame_of(bytes.fromhex("02630000") + bytes(40)),
    "another version than 2": frame_of(bytes.fromhex("05020000") + pack(">qq", 7, 0)),
    "v2 cut": frame_of(bytes.fromhex("0201")),
    "oversized add": pack(">i", 5 * 1024 * 1024 - 3) + LARGE_ADD_HEAD,
    "large, but no add": pack(">i", 2 << 20) + v3.encode_read_request(1, 7, 0)[4:] + bytes(64),
    "large and random": pack(">i", 2 << 20) + bytes(range(100)),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_message_closes_the_connection_and_only_it(name: str) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        other = await running.peer()
        peer.send(MALFORMED[name])
        await peer.ended
        assert running.server.metrics.frames_malformed == 1
        assert (await ask(other, add(1, 7, 0))).status is Status.OK
        other.send(MALFORMED[name])  # also after a good request, but for the check of the header
        if not name.startswith("large"):
            await other.ended
            assert running.server.connection_count == 0

    run(test)


def test_garbage_after_v3_is_not_taken_for_v2() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        peer.send(frame_of(b"\x0b" + bytes(50)))
        await peer.ended

    run(test)


def test_the_largest_add_passes_and_its_length_counts() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        overhead = len(add(1, 7, 0, payload=bytes(60_000))) - 60_000
        exact = add(1, 7, 0, payload=bytes(65_536 - overhead))
        assert len(exact) == 65_536
        assert (await ask(peer, exact)).status is Status.OK
        peer.send(add(1, 7, 0, payload=bytes(65_537 - overhead)))
        await peer.ended

    run(test, frame_bytes_max=65_536)


def test_a_first_message_may_be_a_large_add() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        frame = add(1, 7, 0, payload=bytes(3 << 20))
        peer.send(frame[:20])
        await asyncio.sleep(0.01)
        peer.send(frame[20:])
        assert (await answer_to(peer, frame)).status is Status.OK

    simulate(test)


# --- memory and time ------------------------------------------------------------------------------


def test_what_is_held_is_what_came() -> None:
    """A peer that announces 4 MiB and sends little costs little."""

    async def test(running: RunningBookie, peer: Peer) -> None:
        peer.send(pack(">i", 4 << 20) + LARGE_ADD_HEAD)
        await asyncio.sleep(1)
        assert running.server._hub.receive_bytes == 4 + len(LARGE_ADD_HEAD)
        peer.close()
        await asyncio.sleep(1)
        assert running.server._hub.receive_bytes == 0

    simulate(test)


def test_a_message_that_does_not_end_is_given_up() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        started = asyncio.get_running_loop().time()
        frame = add(1, 7, 0)
        for byte in frame[:-1]:
            if peer.ended.done():
                break
            peer.send(bytes([byte]))
            await asyncio.sleep(1)
        await peer.ended
        assert asyncio.get_running_loop().time() - started < 12
        assert running.server.metrics.peers_too_slow == 1

    simulate(test, frame_timeout_s=10.0)


@pytest.mark.parametrize("first_bytes", [1, 3, 5])
def test_also_one_that_hardly_began(first_bytes: int) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        peer.send((pack(">i", 4 << 20) + LARGE_ADD_HEAD)[:first_bytes])
        await peer.ended
        assert running.server.metrics.peers_too_slow == 1

    simulate(test, frame_timeout_s=10.0)


def test_an_idle_peer_is_left_alone() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        await asyncio.sleep(1000)
        assert (await ask(peer, add(2, 7, 1))).status is Status.OK

    simulate(test, frame_timeout_s=10.0)


def test_a_slow_sender_that_gets_on_is_left_alone() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        frames = [add(n + 1, 7, n) for n in range(20)]
        data = b"".join(frames)
        for start in range(0, len(data), 20):
            peer.send(data[start : start + 20])
            await asyncio.sleep(1)
        for frame in frames:
            assert (await answer_to(peer, frame)).status is Status.OK

    simulate(test, frame_timeout_s=10.0)


def test_messages_that_have_not_come_whole_have_a_limit_over_all() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        frame = add(1, 7, 0, payload=bytes(3 << 20))
        peers = [peer, await running.peer(), await running.peer()]
        for one in peers:
            one.send(frame[: 1 << 20])
            await asyncio.sleep(1)
        assert [one.ended.done() for one in peers] == [False, False, True]
        peer.send(frame[1 << 20 :])
        assert (await answer_to(peer, frame)).status is Status.OK

    simulate(test, receive_bytes_total_max=(5 << 20) // 2)


# --- limits ---------------------------------------------------------------------------------------


def test_more_requests_than_a_connection_may_have_are_refused() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        held = running.service.hold("add")
        running.service.hold("read")
        peer.send(*(add(n + 1, 7, n) for n in range(3)), v3.encode_read_request(4, 7, 0))
        await running.service.wait_held("add", 3)
        refused = [
            add(5, 7, 4),
            v3.encode_read_request(6, 7, 4),
            v3.encode_read_request(7, 7, 4, fence_key=KEY),
            v3.encode_read_request(8, 7, -1, previous_lac=0, wait_ms=1000),
            v3.encode_read_lac_request(9, 7),
            v3.encode_write_lac_request(10, 7, KEY, 0, pack(">qq", 7, 0) + b"dddd"),
            v3.encode_force_request(11, 7),
            v3.encode_list_entries_request(12, 7),
        ]
        for frame in refused:
            reply = await ask(peer, frame)
            assert reply.status is Status.TOO_MANY_REQUESTS
            assert reply.ledger_id == 7  # the operation's own message is there
        assert running.server.metrics.requests_refused == len(refused)
        held[0]()
        await peer.receive()
        assert (await ask(peer, v3.encode_force_request(13, 7))).status is Status.OK
        other = await running.peer()  # has limits of its own
        assert (await ask(other, v3.encode_force_request(1, 7))).status is Status.OK

    run(test, requests_per_connection_max=4)


def test_the_limit_over_all_connections() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        running.service.hold("add")
        peer.send(*(add(n + 1, 7, n) for n in range(3)))
        await running.service.wait_held("add", 3)
        other = await running.peer()
        reply = await ask(other, v3.encode_force_request(1, 7))
        assert reply.status is Status.TOO_MANY_REQUESTS
        peer.close()
        for answer in list(running.service.held["add"]):
            answer()  # to a peer that is gone
        assert (await ask(other, v3.encode_force_request(2, 7))).status is Status.OK
        assert running.server.request_count == 0

    run(test, requests_max=3)


def test_a_connection_too_many_is_closed_at_once() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        second = await running.peer()
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK
        assert (await ask(second, add(1, 7, 0))).status is Status.OK
        third = await running.peer()
        await third.ended
        assert running.server.metrics.connections_refused == 1
        _, gone = running.server._hub.connections
        second.close()
        await gone.wait_lost()
        assert (await ask(peer, add(2, 7, 1))).status is Status.OK
        fourth = await running.peer()
        assert (await ask(fourth, add(1, 7, 0))).status is Status.OK

    run(test, connections_max=2)


# --- peers that do not take their answers ---------------------------------------------------------


def test_requests_wait_while_answers_do() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        payload = bytes(100_000)
        await ask(peer, add(1, 7, 0, payload=payload))
        peer.transport.pause_reading()
        reads = [v3.encode_read_request(n + 2, 7, 0) for n in range(400)]
        peer.send(*reads)
        await asyncio.sleep(5)
        hub = running.server._hub
        # A mark, a turn, and what was under way: not 40 MB.
        limit = connections.WRITE_HIGH_WATER + 3 * connections.TURN_BYTES_MAX
        assert 0 < hub.response_bytes < limit
        assert running.service.calls.count("read") < 20
        peer.transport.resume_reading()
        for frame in reads:
            reply = await answer_to(peer, frame)
            assert (reply.status, len(reply.body)) == (Status.OK, 100_032)
        await asyncio.sleep(1)
        assert (hub.response_bytes, running.server.request_count) == (0, 0)

    simulate(test)


def test_messages_that_wait_count_as_received() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0, payload=bytes(100_000)))
        peer.transport.pause_reading()
        peer.send(*(v3.encode_read_request(n + 2, 7, 0) for n in range(400)))
        await asyncio.sleep(5)
        hub = running.server._hub
        assert hub.receive_bytes > 300 * 200
        peer.transport.resume_reading()
        while peer.frame_count < 401:
            await peer.receive()
        assert hub.receive_bytes == 0

    simulate(test)


def test_answers_beyond_the_limit_of_a_connection_are_refused() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0, payload=bytes(400_000)))
        held = running.service.hold("read")
        reads = [v3.encode_read_request(n + 2, 7, 0) for n in range(10)]
        peer.send(*reads)
        await running.service.wait_held("read", 10)
        peer.transport.pause_reading()
        for answer in held:  # all at once: more than may wait
            answer()
        peer.transport.resume_reading()
        statuses = [(await answer_to(peer, frame)).status for frame in reads]
        assert statuses == [Status.OK] * 2 + [Status.TOO_MANY_REQUESTS] * 8

    simulate(test, response_bytes_max=1_000_000)


def test_answers_beyond_the_limit_over_all_connections_are_refused() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0, payload=bytes(400_000)))
        other = await running.peer()
        peer.transport.pause_reading()
        peer.send(*(v3.encode_read_request(n + 2, 7, 0) for n in range(10)))
        await asyncio.sleep(2)
        assert running.server._hub.response_bytes > 256_000
        refused = await ask(other, v3.encode_read_request(1, 7, 0))
        assert refused.status is Status.TOO_MANY_REQUESTS
        assert (await ask(other, v3.encode_read_request(2, 7, 1))).status is Status.NO_ENTRY
        peer.transport.resume_reading()
        await asyncio.sleep(2)
        assert (await ask(other, v3.encode_read_request(3, 7, 0))).status is Status.OK

    simulate(test, response_bytes_total_max=700_000)


def test_answers_that_are_never_taken_end_the_connection() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0, payload=bytes(400_000)))
        peer.transport.pause_reading()
        peer.send(*(v3.encode_read_request(n + 2, 7, 0) for n in range(10)))
        await asyncio.sleep(5)
        assert running.server.connection_count == 1
        await asyncio.sleep(30)
        assert running.server.connection_count == 0
        assert running.server.metrics.peers_too_slow == 1
        assert running.server._hub.response_bytes == 0

    simulate(test, frame_timeout_s=10.0)


# --- closing --------------------------------------------------------------------------------------


def test_close_lets_answers_under_way_go_out() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        held = running.service.hold("add")
        frame = add(1, 7, 0)
        peer.send(frame)
        await running.service.wait_held("add")
        closing = asyncio.ensure_future(running.server.close())
        await asyncio.sleep(1)
        assert not closing.done()
        held[0]()
        assert (await answer_to(peer, frame)).status is Status.OK
        answered = asyncio.get_running_loop().time()
        await closing
        assert asyncio.get_running_loop().time() - answered < 0.5
        await peer.ended

    simulate(test, close_timeout_s=5.0)


def test_close_does_not_wait_for_ever() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        held = running.service.hold("add")
        peer.send(add(1, 7, 0))
        await running.service.wait_held("add")
        started = asyncio.get_running_loop().time()
        await running.server.close()
        assert asyncio.get_running_loop().time() - started < 6
        held[0]()  # the peer is gone
        await running.server.close()  # idempotent

    simulate(test, close_timeout_s=5.0)


def test_close_cuts_off_a_peer_that_does_not_take_the_answers() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0, payload=bytes(400_000)))
        peer.transport.pause_reading()
        peer.send(*(v3.encode_read_request(n + 2, 7, 0) for n in range(10)))
        await asyncio.sleep(1)
        started = asyncio.get_running_loop().time()
        await running.server.close()
        assert asyncio.get_running_loop().time() - started < 6
        assert running.server.connection_count == 0

    simulate(test, close_timeout_s=5.0)


def test_two_versions_of_peers_at_once() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        other = await running.peer()
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK
        v2_read = frame_of(bytes.fromhex("02020000") + pack(">qq", 7, 0))
        reply = await other.ask(v2_read)
        assert reply == bytes.fromhex("02020000") + pack(">iqq", 0, 7, 0) + packet(7, 0)

    run(test)


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_sockets_notice_dead_machines_and_delay_nothing(loops) -> None:
    async def main() -> None:
        async with running_bookie() as running:
            await ask(await running.peer(), add(1, 7, 0))
            (connection,) = running.server._hub.connections
            descriptor = connection._transport.get_extra_info("socket").fileno()
            with socket.socket(fileno=os.dup(descriptor)) as same:
                assert same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(main())
