"""Protocol v2 (docs/formats/wire_v2.md): every code, batch rules, what closes the connection."""

from struct import pack
from typing import Any

import pytest

from bookie.ledger.types import Status
from bookie.proto import v2
from bookie.server.wire import dispatch_v2
from tests.fixtures.bookies import KEY, Peer, RunningBookie, add, ask, packet, run

OTHER_KEY = bytes(range(20))


def v2_add(ledger_id: int, entry_id: int, key: bytes = KEY, **flags: Any) -> bytes:
    return v2.encode_add_request(key, packet(ledger_id, entry_id), **flags)


async def reply_to(peer: Peer, frame: bytes) -> Any:
    return v2.parse_response(await peer.ask(frame))


def test_add_and_read_in_golden_bytes() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        request = bytes.fromhex("02010000") + KEY + packet(7, 0)
        answer = await peer.ask(pack(">i", len(request)) + request)
        assert answer == bytes.fromhex("02010000") + pack(">iqq", 0, 7, 0)
        request = bytes.fromhex("02020000") + pack(">qq", 7, 0)
        answer = await peer.ask(pack(">i", len(request)) + request)
        assert answer == bytes.fromhex("02020000") + pack(">iqq", 0, 7, 0) + packet(7, 0)
        request = bytes.fromhex("02020001") + pack(">qq", 7, -1) + KEY
        answer = await peer.ask(pack(">i", len(request)) + request)
        assert answer == bytes.fromhex("02020000") + pack(">iqq", 0, 7, -1) + packet(7, 0)

    run(test)


CODES = {
    Status.NO_LEDGER: 1,
    Status.NO_ENTRY: 2,
    Status.BAD_REQUEST: 100,
    Status.IO_ERROR: 101,
    Status.UNAUTHORIZED: 102,
    Status.BAD_VERSION: 103,
    Status.FENCED: 104,
    Status.READ_ONLY: 105,
    Status.TOO_MANY_REQUESTS: 106,
    Status.UNKNOWN_LEDGER_STATE: 107,
}
REQUESTS = {
    "add": v2_add(7, 3),
    "read": v2.encode_read_request(7, 3),
    "fence": v2.encode_read_request(7, 3, fence_key=KEY),
}


@pytest.mark.parametrize("operation", REQUESTS)
def test_every_status_has_its_code(operation: str) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        for status, code in CODES.items():
            running.service.forced[operation] = status
            opcode = 1 if operation == "add" else 2
            expected = pack(">BBHiqq", 2, opcode, 0, code, 7, 3)
            assert await peer.ask(REQUESTS[operation]) == expected

    run(test)


@pytest.mark.parametrize("operation", REQUESTS)
def test_an_error_of_the_bookie_itself_is_answered(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        running.service.forced[operation] = RuntimeError("broken on purpose")
        assert (await reply_to(peer, REQUESTS[operation])).status is Status.BAD_REQUEST
        assert running.server.request_count == 0

    run(test)
    assert "broken on purpose" in caplog.text


def test_fences_keys_and_priorities_as_in_v3() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        assert (await reply_to(peer, v2_add(7, 0))).status is Status.OK
        assert (await reply_to(peer, v2_add(7, 1, OTHER_KEY))).status is Status.UNAUTHORIZED
        bad_fence = v2.encode_read_request(7, -1, fence_key=OTHER_KEY)
        assert (await reply_to(peer, bad_fence)).status is Status.UNAUTHORIZED
        fence = v2.encode_read_request(7, -1, fence_key=KEY)
        assert (await reply_to(peer, fence)).body == packet(7, 0)
        assert (await reply_to(peer, v2_add(7, 1))).status is Status.FENCED
        assert (await reply_to(peer, v2_add(7, 1, is_recovery=True))).status is Status.OK
        running.bookie.set_read_only(True)
        assert (await reply_to(peer, v2_add(8, 0))).status is Status.READ_ONLY
        assert (await reply_to(peer, v2_add(8, 0, is_high_priority=True))).status is Status.OK

    run(test)


def test_g6_a_v2_fence_is_durable_before_its_reply() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        held = running.service.hold("fence")
        peer.send(v2.encode_read_request(7, -1, fence_key=KEY))
        await running.service.wait_held("fence")
        assert await peer.is_quiet()
        held[0]()
        assert v2.parse_response(await peer.receive()).status is Status.NO_ENTRY

    run(test)


def test_auth_is_told_that_it_is_disabled() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        reply = await reply_to(peer, v2.encode_auth_request("TestAuthPlugin", b"x"))
        assert reply == v2.AuthResponse("AuthDisabledPlugin", b"")

    run(test)


def test_another_version_of_v2_is_refused() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await reply_to(peer, v2_add(7, 0))  # v2 from here on
        request = bytes.fromhex("01020000") + pack(">qq", 7, 0)
        answer = await peer.ask(pack(">i", len(request)) + request)
        assert answer[4:8] == pack(">i", 103)

    run(test)


def test_a_connection_of_v2_stays_one() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await reply_to(peer, v2_add(7, 0))
        peer.send(add(1, 7, 0))
        await peer.ended

    run(test)


def test_a_connection_of_v3_may_become_one_of_v2() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK
        assert (await reply_to(peer, v2_add(7, 1))).status is Status.OK

    run(test)


@pytest.mark.parametrize("opcode", [0, 4, 5, 6, 8, 255])
def test_an_opcode_that_no_server_takes_closes(opcode: int) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        request = pack(">BBH", 2, opcode, 0) + bytes(60)
        peer.send(pack(">i", len(request)) + request)
        await peer.ended

    run(test)


def test_too_many_requests() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        running.service.hold("add")
        peer.send(v2_add(7, 0))
        await running.service.wait_held("add")
        for frame in (*REQUESTS.values(), v2.encode_batch_read_request(7, 0, 5, 1, 100)):
            assert (await reply_to(peer, frame)).status is Status.TOO_MANY_REQUESTS

    run(test, requests_per_connection_max=1)


# --- batches --------------------------------------------------------------------------------------


async def fill(peer: Peer, *entry_ids: int) -> None:
    for entry_id in entry_ids:
        assert (await reply_to(peer, v2_add(7, entry_id))).status is Status.OK


def batch(entry_id: int = 0, max_count: int = 0, max_size: int = 1 << 20, **options: Any) -> bytes:
    return v2.encode_batch_read_request(7, entry_id, 99, max_count, max_size, **options)


def test_4_8_a_batch_is_the_consecutive_entries_that_are_there() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await fill(peer, 0, 1, 2, 4, 5)
        reply = await reply_to(peer, batch())
        assert (reply.status, reply.ledger_id, reply.entry_id) == (Status.OK, 7, 0)
        assert reply.request_id == 99
        assert reply.packets == (packet(7, 0), packet(7, 1), packet(7, 2))
        assert len((await reply_to(peer, batch(4))).packets) == 2
        assert len((await reply_to(peer, batch(0, 2))).packets) == 2
        assert len((await reply_to(peer, batch(0, -1))).packets) == 3

    run(test)


def test_the_first_entry_decides_the_status_of_a_batch() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        reply = await reply_to(peer, batch())
        assert (reply.status, reply.packets) == (Status.NO_LEDGER, ())
        await fill(peer, 0)
        reply = await reply_to(peer, batch(1))
        assert (reply.status, reply.entry_id, reply.packets) == (Status.NO_ENTRY, 1, ())

    run(test)


def test_the_size_of_a_batch_and_at_least_one_entry() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await fill(peer, 0, 1, 2)
        one = len(packet(7, 0)) + 4
        for max_size, count in ((0, 1), (36 + one, 1), (36 + 2 * one - 1, 1), (36 + 2 * one, 2)):
            assert len((await reply_to(peer, batch(0, 0, max_size))).packets) == count

    run(test)


def test_no_batch_holds_up_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_v2, "BATCH_COUNT_MAX", 3)

    async def test(running: RunningBookie, peer: Peer) -> None:
        await fill(peer, *range(10))
        for max_count in (0, 3, 7):
            running.service.calls.clear()
            assert len((await reply_to(peer, batch(0, max_count))).packets) == 3
            assert running.service.calls == ["read"] * 3

    run(test)


def test_a_batch_that_finds_no_room_for_its_answer_is_refused() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        body = packet(7, 0, payload=bytes(400_000))
        assert (await reply_to(peer, v2.encode_add_request(KEY, body))).status is Status.OK
        for frame in (batch(), v2.encode_read_request(7, 0)):
            assert (await reply_to(peer, frame)).status is Status.TOO_MANY_REQUESTS

    run(test, response_bytes_max=300_000)


def test_batches_that_grow_side_by_side_share_the_room_for_answers() -> None:
    """Else ten thousand batches of 5 MiB could be under way for one connection."""

    async def test(running: RunningBookie, peer: Peer) -> None:
        for entry_id in range(4):
            body = packet(7, entry_id, payload=bytes(100_000))
            assert (await reply_to(peer, v2.encode_add_request(KEY, body))).status is Status.OK
        hub = running.server._hub
        held = running.service.hold("read")
        peer.send(*[batch()] * 5)
        await running.service.wait_held("read", 5)
        most = 0
        while held:  # an entry of each batch in turn
            answers, held[:] = list(held), []
            for answer in answers:
                answer()
                most = max(most, hub.response_bytes)
        assert 400_000 < most <= 500_000
        counts = [len(v2.parse_response(await peer.receive()).packets) for _ in range(5)]
        assert sorted(counts) == [0, 1, 1, 1, 1], "what there was room for"
        assert (running.server.request_count, hub.response_bytes) == (0, 0)

    run(test, response_bytes_max=500_000)


def test_a_batch_of_a_peer_that_went_ends() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await fill(peer, *range(10))
        held = running.service.hold("read")
        peer.send(batch())
        await running.service.wait_held("read", 1)
        peer.transport.abort()
        await next(iter(running.server._hub.connections)).wait_lost()
        held.pop()()
        assert held == []
        assert (running.server.request_count, running.server._hub.response_bytes) == (0, 0)

    run(test)


def test_a_fencing_batch() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await fill(peer, 0, 1)
        held = running.service.hold("fence")
        peer.send(batch(fence_key=KEY))
        await running.service.wait_held("fence")
        assert await peer.is_quiet()
        held[0]()
        running.service.held.clear()
        assert len(v2.parse_response(await peer.receive()).packets) == 2
        assert (await reply_to(peer, v2_add(7, 2))).status is Status.FENCED
        reply = await reply_to(peer, batch(fence_key=OTHER_KEY))
        assert reply.status is Status.UNAUTHORIZED

    run(test)


def test_a_batch_whose_entries_come_late() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await fill(peer, 0, 1, 2)
        held = running.service.hold("read")
        peer.send(batch())
        for count in range(1, 5):
            await running.service.wait_held("read", count)
            held[-1]()
        assert len(v2.parse_response(await peer.receive()).packets) == 3

    run(test)
