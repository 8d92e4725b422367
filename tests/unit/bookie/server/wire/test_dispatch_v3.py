"""Every status and flag of v3 (docs/formats/wire_v3.md), as messages over a real connection.

Re-expresses BookieProtoEncodingTest, WriteEntryProcessorV3Test, ReadEntryProcessorTest (async
fence), ForceLedgerProcessorV3Test, GetBookieInfoProcessorV3Test and
TestAuth.testClientWithAuthAndBookieWithDisabledAuth of Apache BookKeeper.
"""

from struct import pack
from typing import Any

import pytest

from bookie.ledger.types import Status
from bookie.proto import availability, v3
from bookie.proto import wire_v3_pb2 as wire
from bookie.proto.v3 import Operation
from bookie.runtime.metrics import exposition
from bookie.server.metrics import families
from bookie.server.wire import entry_lists
from tests.fixtures.bookies import (
    KEY,
    Peer,
    RunningBookie,
    add,
    answer_to,
    ask,
    packet,
    run,
    simulate,
)

OTHER_KEY = bytes(range(20))
GOLDEN_ADD = bytes.fromhex(
    "000000500a06080310021801aa0645080710001a14850bf1071c5e3d8c24235676f8816ae0cbe2f14f2229"
    "00000000000000070000000000000000ffffffffffffffff00000000000000059e3e717b68656c6c6f"
)
GOLDEN_ADD_REPLY = bytes.fromhex("0a060803100218011000aa0606080010071800")
GOLDEN_FENCE = bytes.fromhex(
    "000000310a06080310011802a20626080710ffffffffffffffffff011a14"
    "850bf1071c5e3d8c24235676f8816ae0cbe2f14fa00601"
)
GOLDEN_READ_LAC = bytes.fromhex("0000000d0a06080310071803c206020807")
GOLDEN_PACKET = GOLDEN_ADD[-41:]


# --- golden bytes ---------------------------------------------------------------------------------


def test_golden_add_and_its_reply() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        assert await peer.ask(GOLDEN_ADD) == GOLDEN_ADD_REPLY

    run(test)


def test_golden_fence_read_of_a_known_ledger() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await peer.ask(GOLDEN_ADD)
        reply = await ask(peer, GOLDEN_FENCE)
        assert (reply.status, reply.ledger_id, reply.entry_id) == (Status.OK, 7, -1)
        assert reply.body == GOLDEN_PACKET
        assert reply.max_lac is None  # fence replies carry the body but no LAC

    run(test)


def test_golden_negative_replies() -> None:
    """No empty body, no LAC: only what the reply has to have."""

    async def test(running: RunningBookie, peer: Peer) -> None:
        expected = bytes.fromhex("0a06080310011802109303a20610089303100718ffffffffffffffffff01")
        assert await peer.ask(GOLDEN_FENCE) == expected

    run(test)


def test_golden_read_lac() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        assert (await ask(peer, GOLDEN_READ_LAC)).status is Status.NO_ENTRY
        await peer.ask(GOLDEN_ADD)
        reply = await ask(peer, GOLDEN_READ_LAC)
        assert (reply.status, reply.ledger_id) == (Status.OK, 7)
        assert reply.last_entry_body == GOLDEN_PACKET
        assert reply.lac_body == b""

    run(test)


# --- every status ---------------------------------------------------------------------------------

REQUESTS = {
    "add": add(5, 7, 3),
    "read": v3.encode_read_request(5, 7, 3),
    "fence": v3.encode_read_request(5, 7, 3, fence_key=KEY),
    "write_lac": v3.encode_write_lac_request(5, 7, KEY, 3, pack(">qq", 7, 3) + b"dddd"),
    "read_lac": v3.encode_read_lac_request(5, 7),
    "force": v3.encode_force_request(5, 7),
    "list_entries": v3.encode_list_entries_request(5, 7),
}
BREAKING = {**REQUESTS, "space": v3.encode_info_request(5)}
STATUSES = [status for status in Status if status > 0]


@pytest.mark.parametrize("operation", REQUESTS)
def test_every_status_of_every_operation_reaches_the_peer_twice(operation: str) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        for status in STATUSES:
            running.service.forced[operation] = status
            reply = await ask(peer, REQUESTS[operation])
            assert reply.status is status
            assert reply.ledger_id == 7  # the operation's own message is there in errors, too
            if operation in ("add", "read", "fence"):
                assert reply.entry_id == 3
            if operation in ("read", "fence"):
                assert (reply.body, reply.max_lac) == (b"", None)

    run(test)


@pytest.mark.parametrize("operation", BREAKING)
def test_an_error_of_the_bookie_itself_is_answered_and_the_next_request_served(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        running.service.forced[operation] = RuntimeError("broken on purpose")
        assert (await ask(peer, BREAKING[operation])).status is Status.BAD_REQUEST
        running.service.forced.clear()
        assert (await ask(peer, add(6, 8, 0))).status is Status.OK
        assert running.server.request_count == 0

    run(test)
    assert "broken on purpose" in caplog.text


def test_an_error_after_the_answer_is_not_answered_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        real_force = running.service.force

        def force(ledger_id: int, on_done: Any) -> None:
            on_done(Status.OK)
            raise RuntimeError("broken on purpose")

        running.service.force = force
        assert (await ask(peer, v3.encode_force_request(1, 7))).status is Status.OK
        running.service.force = real_force
        assert (await ask(peer, v3.encode_force_request(2, 7))).status is Status.OK
        assert running.server.request_count == 0

    run(test)
    assert "broken on purpose" in caplog.text


def test_a_fence_whose_read_breaks_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        running.service.forced["read"] = RuntimeError("broken on purpose")
        fence = v3.encode_read_request(1, 7, -1, fence_key=KEY)
        assert (await ask(peer, fence)).status is Status.BAD_REQUEST
        assert running.server.request_count == 0

    run(test)
    assert "broken on purpose" in caplog.text


@pytest.mark.parametrize("operation", [*Operation, 77])
def test_another_version_is_refused(operation: int) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        request = wire.Request()
        request.header.version = 2
        request.header.operation = operation
        request.header.txnId = 9
        payload = request.SerializeToString()
        answer = wire.Response.FromString(await peer.ask(pack(">i", len(payload)) + payload))
        assert (answer.status, answer.header.version) == (Status.BAD_VERSION, 3)
        assert (answer.header.operation, answer.header.txnId) == (operation, 9)

    run(test)


@pytest.mark.parametrize("operation", [3, 4, 12, 77])
def test_an_unknown_operation_is_refused_without_a_message_of_its_own(operation: int) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        request = wire.Request()
        request.header.version = 3
        request.header.operation = operation
        request.header.txnId = 9
        payload = request.SerializeToString()
        answer = wire.Response.FromString(await peer.ask(pack(">i", len(payload)) + payload))
        assert answer.status == Status.BAD_REQUEST
        assert [field.name for field, _ in answer.ListFields()] == ["header", "status"]

    run(test)


# --- ADD_ENTRY ------------------------------------------------------------------------------------


def test_the_ids_of_an_entry_are_those_inside_its_packet() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        frame = v3.encode_add_request(1, 100, 200, KEY, packet(7, 3))
        reply = await ask(peer, frame)
        assert (reply.status, reply.ledger_id, reply.entry_id) == (Status.OK, 100, 200)
        assert (await ask(peer, v3.encode_read_request(2, 7, 3))).body == packet(7, 3)
        assert (await ask(peer, v3.encode_read_request(3, 100, 200))).status is Status.NO_LEDGER

    run(test)


def test_entries_may_come_twice_and_in_any_order() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        for entry_id in (5, 0, 5, 2):
            assert (await ask(peer, add(entry_id + 1, 7, entry_id))).status is Status.OK

    run(test)


@pytest.mark.parametrize("body", [b"", b"short", packet(-1, 0), packet(7, -0x2000)])
def test_a_packet_that_is_no_entry_is_a_bad_request(body: bytes) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        frame = v3.encode_add_request(1, 7, 0, KEY, body)
        assert (await ask(peer, frame)).status is Status.BAD_REQUEST

    run(test)


def test_a_wrong_master_key_is_unauthorized() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK
        assert (await ask(peer, add(2, 7, 1, key=OTHER_KEY))).status is Status.UNAUTHORIZED
        fence = v3.encode_read_request(3, 7, 0, fence_key=OTHER_KEY)
        assert (await ask(peer, fence)).status is Status.UNAUTHORIZED
        lac = v3.encode_write_lac_request(4, 7, OTHER_KEY, 0, pack(">qq", 7, 0) + b"dddd")
        assert (await ask(peer, lac)).status is Status.UNAUTHORIZED
        assert (await ask(peer, add(5, 7, 1))).status is Status.OK  # none of them fenced

    run(test)


def test_a_fenced_ledger_takes_recovery_adds_only() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        await ask(peer, v3.encode_read_request(2, 7, -1, fence_key=KEY))
        assert (await ask(peer, add(3, 7, 1))).status is Status.FENCED
        assert (await ask(peer, add(4, 7, 1, is_recovery=True))).status is Status.OK
        # A LAC is not stopped by a fence.
        lac = v3.encode_write_lac_request(5, 7, KEY, 1, pack(">qq", 7, 1) + b"dddd")
        assert (await ask(peer, lac)).status is Status.OK

    run(test)


def test_a_read_only_bookie_takes_high_priority_adds_only() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        running.bookie.set_read_only(True)
        assert (await ask(peer, add(1, 7, 0))).status is Status.READ_ONLY
        recovery = add(2, 7, 0, is_recovery=True)
        assert (await ask(peer, recovery)).status is Status.READ_ONLY
        urgent = add(3, 7, 0, is_recovery=True, priority=v3.PRIORITY_HIGH)
        assert (await ask(peer, urgent)).status is Status.OK
        lac = v3.encode_write_lac_request(4, 7, KEY, 0, pack(">qq", 7, 0) + b"dddd")
        assert (await ask(peer, lac)).status is Status.READ_ONLY
        assert (await ask(peer, v3.encode_read_request(5, 7, 0))).status is Status.OK
        running.bookie.set_read_only(False)
        assert (await ask(peer, add(6, 7, 1))).status is Status.OK

    run(test)


def test_an_add_is_answered_when_the_journal_says_so() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        held = running.service.hold("add")
        peer.send(add(1, 7, 0), add(2, 7, 1, is_deferred_sync=True))
        await running.service.wait_held("add", 2)
        assert await peer.is_quiet()
        for answer in reversed(held):  # in any order
            answer()
        assert v3.parse_response(await peer.receive()).txn_id == 2
        assert v3.parse_response(await peer.receive()).txn_id == 1

    run(test)


# --- READ_ENTRY -----------------------------------------------------------------------------------


def test_a_read_carries_the_lac_and_entry_minus_one_is_the_last() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        await ask(peer, add(2, 7, 4, lac=3))
        reply = await ask(peer, v3.encode_read_request(3, 7, 0))
        assert (reply.entry_id, reply.body, reply.max_lac) == (0, packet(7, 0), 3)
        reply = await ask(peer, v3.encode_read_request(4, 7, -1))
        assert (reply.entry_id, reply.body, reply.max_lac) == (-1, packet(7, 4, 3), 3)
        assert (await ask(peer, v3.encode_read_request(5, 7, 1))).status is Status.NO_ENTRY
        assert (await ask(peer, v3.encode_read_request(6, 8, 0))).status is Status.NO_LEDGER

    run(test)


def test_a_fence_needs_a_master_key() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        request = wire.Request()
        request.header.version, request.header.operation, request.header.txnId = 3, 1, 1
        request.readRequest.ledgerId, request.readRequest.entryId = 7, -1
        request.readRequest.flag = 1
        payload = request.SerializeToString()
        reply = await ask(peer, pack(">i", len(payload)) + payload)
        assert (reply.status, reply.ledger_id, reply.entry_id) == (Status.UNAUTHORIZED, 7, -1)
        assert running.service.calls == []

    run(test)


@pytest.mark.parametrize("is_known", [True, False])
def test_g6_fence_is_durable_before_a_positive_or_negative_reply(is_known: bool) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        if is_known:
            await ask(peer, add(1, 7, 0))
        held = running.service.hold("fence")
        peer.send(v3.encode_read_request(2, 7, -1, fence_key=KEY))
        await running.service.wait_held("fence")
        assert await peer.is_quiet()  # the fence is not known to be durable
        assert "read" not in running.service.calls
        held[0]()
        reply = v3.parse_response(await peer.receive())
        assert reply.status is (Status.OK if is_known else Status.NO_ENTRY)

    run(test)


def test_g14_a_fence_makes_the_ledger_known() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        fence = v3.encode_read_request(1, 7, -1, fence_key=KEY)
        assert (await ask(peer, fence)).status is Status.NO_ENTRY  # and not NO_LEDGER
        assert (await ask(peer, add(2, 7, 0))).status is Status.FENCED

    run(test)


def test_g1_a_recovery_read_fences_too() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        read = v3.encode_read_request(1, 7, 5, fence_key=KEY, priority=v3.PRIORITY_HIGH)
        assert (await ask(peer, read)).status is Status.NO_ENTRY
        assert (await ask(peer, add(2, 7, 5))).status is Status.FENCED

    run(test)


def test_a_large_body_arrives_as_it_was() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        payload = bytes(range(256)) * 12_000
        assert (await ask(peer, add(1, 7, 0, payload=payload))).status is Status.OK
        for txn_id in range(2, 5):
            reply = await ask(peer, v3.encode_read_request(txn_id, 7, 0))
            assert (reply.body, reply.max_lac) == (packet(7, 0, payload=payload), -1)

    run(test)


# --- the others -----------------------------------------------------------------------------------


def test_an_explicit_lac_is_kept_as_it_came_and_moves_the_lac() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        body = pack(">qq", 7, 12) + b"unverified"
        reply = await ask(peer, v3.encode_write_lac_request(1, 7, KEY, 12, body))
        assert (reply.status, reply.ledger_id) == (Status.OK, 7)
        reply = await ask(peer, v3.encode_read_lac_request(2, 7))
        assert (reply.status, reply.lac_body, reply.last_entry_body) == (Status.OK, body, b"")
        await ask(peer, add(3, 7, 0))
        assert (await ask(peer, v3.encode_read_request(4, 7, 0))).max_lac == 12
        reply = await ask(peer, v3.encode_read_lac_request(5, 7))
        assert (reply.lac_body, reply.last_entry_body) == (body, packet(7, 0))

    run(test)


def test_a_failed_second_read_leaves_its_status_in_read_lac() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        running.service.forced["read_lac"] = Status.IO_ERROR
        assert (await ask(peer, v3.encode_read_lac_request(1, 7))).status is Status.IO_ERROR

    run(test)


def test_force_of_any_ledger_is_answered_after_the_journal() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        reply = await ask(peer, v3.encode_force_request(1, 999))  # unknown: no error
        assert (reply.status, reply.ledger_id) == (Status.OK, 999)
        held = running.service.hold("force")
        peer.send(v3.encode_force_request(2, 7))
        await running.service.wait_held("force")
        assert await peer.is_quiet()
        held[0]()
        assert v3.parse_response(await peer.receive()).status is Status.OK

    run(test)


@pytest.mark.parametrize("requested", [0, 1, 2, 3])
def test_bookie_info_says_what_was_asked(requested: int) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        total, free = running.bookie.space()
        reply = await ask(peer, v3.encode_info_request(1, requested))
        assert reply.status is Status.OK
        assert reply.total_bytes == (total if requested & 1 else None)
        assert reply.free_bytes == (free if requested & 2 else None)

    run(test)


def test_bookie_info_of_a_broken_disk_is_an_io_error() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        running.service.forced["space"] = OSError(5, "Input/output error")
        reply = await ask(peer, v3.encode_info_request(1))
        assert (reply.status, reply.total_bytes) == (Status.IO_ERROR, None)

    run(test)


def test_the_list_of_entries() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        for entry_id in (0, 1, 2, 5, 9):
            await ask(peer, add(entry_id + 1, 7, entry_id))
        reply = await ask(peer, v3.encode_list_entries_request(20, 7))
        assert (reply.status, reply.ledger_id) == (Status.OK, 7)
        assert reply.availability == availability.encode([0, 1, 2, 5, 9])
        reply = await ask(peer, v3.encode_list_entries_request(21, 8))
        assert (reply.status, reply.availability) == (Status.NO_LEDGER, b"")

    run(test)


def test_a_long_list_of_entries_is_encoded_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entry_lists, "ENTRY_IDS_ON_LOOP_MAX", 3)

    async def test(running: RunningBookie, peer: Peer) -> None:
        for entry_id in range(5):
            await ask(peer, add(entry_id + 1, 7, entry_id))
        reply = await ask(peer, v3.encode_list_entries_request(20, 7))
        assert reply.availability == availability.encode(range(5))

    simulate(test)


def test_a_list_of_entries_beyond_a_frame_is_an_error_not_a_lost_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entry_ids = [n * n for n in range(120)]  # no two gaps alike
    byte_count = len(availability.encode(entry_ids))

    async def replies(running: RunningBookie, peer: Peer) -> None:
        for n, entry_id in enumerate(entry_ids, 1):
            await ask(peer, add(n, 7, entry_id))
        reply = await ask(peer, v3.encode_list_entries_request(30, 7))
        statuses.append((reply.status, len(reply.availability)))
        assert (await ask(peer, v3.encode_read_request(31, 7, 0))).status is Status.OK

    statuses: list[tuple[Status, int]] = []
    for frame_bytes_max in (byte_count + 80, byte_count + 79):
        run(replies, frame_bytes_max=frame_bytes_max)
    assert statuses == [(Status.OK, byte_count), (Status.IO_ERROR, 0)]
    assert "so many gaps" in caplog.text


def test_lists_of_entries_are_made_few_at_a_time() -> None:
    """Else one packet full of such requests would make the bookie hold thousands of lists."""

    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        service = running.service
        other = await running.peer()
        held = service.hold("list_entries")
        peer.send(*(v3.encode_list_entries_request(n, 7) for n in range(10, 15)))
        await service.wait_held("list_entries", 2)
        other.send(v3.encode_list_entries_request(15, 7))
        await ask(other, v3.encode_force_request(16, 7))  # the list was asked for before
        assert service.calls.count("list_entries") == 2
        _, gone = running.server._hub.connections
        other.transport.abort()  # its request is forgotten with it
        await gone.wait_lost()
        answered: list[int] = []
        for count in range(5):  # two are under way together: either may be the first
            await service.wait_held("list_entries", count + 1)
            held[count]()
            reply = v3.parse_response(await peer.receive())
            assert reply.status is Status.OK
            answered.append(reply.txn_id)
        assert sorted(answered) == [10, 11, 12, 13, 14]
        assert service.calls.count("list_entries") == 5
        assert running.server.request_count == 0

    run(test)


def test_a_list_of_entries_that_breaks_does_not_hold_up_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        running.service.forced["list_entries"] = RuntimeError("broken on purpose")
        for n in range(1, 6):
            reply = await ask(peer, v3.encode_list_entries_request(n, 7))
            assert reply.status is Status.BAD_REQUEST
        del running.service.forced["list_entries"]
        frames = [v3.encode_list_entries_request(n, 8) for n in range(6, 106)]
        peer.send(*frames)  # all answered at once, one after the other, not by recursion
        for n in range(6, 106):
            reply = v3.parse_response(await peer.receive())
            assert (reply.txn_id, reply.status) == (n, Status.NO_LEDGER)
        assert running.server.request_count == 0

    run(test)
    assert "broken on purpose" in caplog.text


def test_a_client_with_auth_is_told_that_it_is_disabled() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        reply = await ask(peer, v3.encode_auth_request(1, "TestAuthPlugin", b"let me in"))
        assert (reply.status, reply.plugin_name) == (Status.OK, "AuthDisabledPlugin")
        assert reply.payload == b""
        assert (await ask(peer, add(2, 7, 0))).status is Status.OK

    run(test)


def test_start_tls_without_a_certificate_is_a_bad_request() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        reply = await ask(peer, v3.encode_start_tls_request(1))
        assert reply.status is Status.BAD_REQUEST
        assert (await ask(peer, add(2, 7, 0))).status is Status.OK  # in clear, as before

    run(test)


def test_answers_are_counted_with_bookkeepers_meaning() -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await ask(peer, add(1, 7, 0))
        await ask(peer, add(2, 7, 1, key=OTHER_KEY))
        await ask(peer, v3.encode_read_request(3, 7, 0))
        await ask(peer, v3.encode_read_request(4, 7, 5))
        metrics = running.server.metrics
        assert (metrics.add.success_count, metrics.add.failure_count) == (1, 1)
        assert (metrics.read.success_count, metrics.read.failure_count) == (1, 1)
        assert (metrics.write_bytes, metrics.read_bytes) == (37, 37)

    run(test)


def test_latencies_are_those_of_the_clock() -> None:
    """uvloop's own time stands still within a millisecond and more."""

    async def test(running: RunningBookie, peer: Peer) -> None:
        held = running.service.hold("add")
        frame = add(1, 7, 0)
        peer.send(frame)
        await running.service.wait_held("add")
        running.clock.advance(0.0003)
        held[0]()
        assert (await answer_to(peer, frame)).status is Status.OK
        stats = running.server.metrics.add
        assert stats.succeeded.total_s == pytest.approx(0.0003)
        text = exposition(lambda: families(running.server.metrics)).decode().splitlines()
        name = "bookkeeper_server_ADD_ENTRY_bucket"
        assert f'{name}{{le="0.2",success="true"}} 0.0' in text
        assert f'{name}{{le="0.5",success="true"}} 1.0' in text

    simulate(test)
