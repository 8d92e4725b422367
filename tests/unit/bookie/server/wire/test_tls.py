"""START_TLS at the bookie: answered in clear, then nothing but TLS; on both kinds of loop."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from bookie.errors import BookieStartError
from bookie.ledger.types import Status
from bookie.proto import v2, v3, wire_v3_pb2
from bookie.runtime.os_clock import OsClock
from bookie.server.metrics import ServerMetrics
from bookie.server.tls import server_context
from bookie.server.wire.connection import FIRST_PIECE_BYTES, PREAUTH_BYTES_MAX, Connection
from bookie.server.wire.dispatch_v2 import DispatcherV2
from bookie.server.wire.dispatch_v3 import DispatcherV3
from bookie.server.wire.hub import Hub
from tests.fixtures.bookies import (
    CONFIG,
    KEY,
    Peer,
    RunningBookie,
    add,
    ask,
    packet,
    running_bookie,
)
from tests.fixtures.certificates import make_certificate
from tests.fuzz.wire import Wire

Loops = Callable[[], asyncio.AbstractEventLoop]
START_TLS = bytes.fromhex("0000000b0a0608031009180a") + bytes.fromhex("d20600")
START_TLS = (len(START_TLS) - 4).to_bytes(4, "big") + START_TLS[4:]


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Loops:
    return request.param


def run(test: Callable[[RunningBookie, Peer], object], loops: Loops, **settings: object) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), running_bookie(**settings) as running:
            await test(running, await running.peer())  # type: ignore[misc]

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(main())


async def upgrade(peer: Peer, trusted: str, *, certificate: tuple[str, str] | None = None) -> None:
    """Shake hands as a client that trusts this certificate, and shows one of its own if given."""
    loop = asyncio.get_running_loop()
    trusting = ssl.create_default_context(cafile=trusted)
    if certificate is not None:
        trusting.load_cert_chain(*certificate)
    peer.transport = await loop.start_tls(
        peer.transport, peer, trusting, server_hostname="127.0.0.1"
    )


def test_the_answer_is_in_clear_and_all_else_is_not(pem: tuple[str, str], loops: Loops) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        answer = await peer.ask(START_TLS)
        assert answer.hex() == "0a0608031009180a1000d20600"  # EOK and an empty message of its own
        await upgrade(peer, pem[0])
        payload = bytes(300_000)
        assert (await ask(peer, add(1, 7, 0, payload=payload))).status is Status.OK
        reads = [v3.encode_read_request(n, 7, 0) for n in range(2, 22)]
        peer.send(*reads)
        for n in range(2, 22):
            reply = v3.parse_response(await peer.receive())
            assert (reply.txn_id, reply.body) == (n, packet(7, 0, payload=payload))  # type: ignore[union-attr]
        transport = next(iter(running.server._hub.connections))._transport
        assert transport.get_extra_info("cipher") is not None

    run(test, loops, tls=server_context(*pem))


def test_g19_a_v2_client_asks_for_tls_in_v3(pem: tuple[str, str], loops: Loops) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await peer.ask(START_TLS)
        await upgrade(peer, pem[0])
        reply = v2.parse_response(await peer.ask(v2.encode_add_request(KEY, packet(7, 0))))
        assert reply.status is Status.OK  # type: ignore[union-attr]
        reply = v2.parse_response(await peer.ask(v2.encode_read_request(7, 0)))
        assert reply.body == packet(7, 0)  # type: ignore[union-attr]

    run(test, loops, tls=server_context(*pem))


def test_bytes_in_clear_instead_of_a_handshake_end_it(pem: tuple[str, str], loops: Loops) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await peer.ask(START_TLS)
        peer.send(add(1, 7, 0))
        await peer.ended
        assert running.service.calls == []

    run(test, loops, tls=server_context(*pem))


@pytest.mark.parametrize("is_reset", [False, True])
def test_who_closes_before_the_handshake_leaves_nothing(
    pem: tuple[str, str],
    loops: Loops,
    is_reset: bool,
) -> None:
    """uvloop ends no handshake of a connection that was lost before it began."""

    async def test(running: RunningBookie, peer: Peer) -> None:
        before = asyncio.all_tasks()
        for _ in range(100):
            client = socket.create_connection(("127.0.0.1", running.server.port))
            client.sendall(START_TLS)
            if is_reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        while (await running.peer()).transport.is_closing():  # all of theirs has come
            pass
        hub = running.server._hub
        assert hub is not None
        async with asyncio.timeout(10):
            while len(hub.connections) > 2 or asyncio.all_tasks() != before:  # noqa: ASYNC110 - by themselves
                await asyncio.sleep(0)

    run(test, loops, tls=server_context(*pem))


def test_messages_behind_start_tls_end_it(pem: tuple[str, str], loops: Loops) -> None:
    """What came in clear must not be taken for what came through TLS."""

    async def test(running: RunningBookie, peer: Peer) -> None:
        peer.send(START_TLS, add(1, 7, 0))
        await peer.ended
        other = await running.peer()
        running.service.hold("add")
        other.send(add(1, 7, 0), START_TLS)
        await other.ended
        assert running.server.metrics.frames_malformed == 2

    run(test, loops, tls=server_context(*pem))


def test_tls_inside_tls_ends_it(pem: tuple[str, str], loops: Loops) -> None:
    """A peer could pile up layers, each with its buffers; Apache's bookie closes here, too."""

    async def test(running: RunningBookie, peer: Peer) -> None:
        await peer.ask(START_TLS)
        await upgrade(peer, pem[0])
        peer.send(START_TLS)
        await peer.ended
        assert running.server.metrics.frames_malformed == 1

    run(test, loops, tls=server_context(*pem))


def test_nor_behind_a_first_piece_that_ends_with_start_tls(
    pem: tuple[str, str], loops: Loops
) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        count = FIRST_PIECE_BYTES - len(START_TLS)
        heads = (v3.encode_auth_request(1, "p", bytes(count - n)) for n in range(60))
        head = next(head for head in heads if len(head) == count)
        peer.send(head + START_TLS + add(1, 7, 0))
        await peer.ended
        assert running.service.calls == []
        assert running.server.metrics.frames_malformed == 1

    run(test, loops, tls=server_context(*pem))


def test_a_handshake_that_does_not_come_ends_it(pem: tuple[str, str], loops: Loops) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await peer.ask(START_TLS)
        await peer.ended

    run(test, loops, tls=server_context(*pem), start_tls_timeout_s=0.05)


def test_nothing_is_read_between_the_answer_and_the_handshake(pem: tuple[str, str]) -> None:
    """A handshake that comes at once must not be taken for messages."""

    class Paused(Wire):
        is_paused = False

        def pause_reading(self) -> None:
            self.is_paused = True

    async def main() -> None:
        async with running_bookie() as running:
            loop = asyncio.get_running_loop()
            hub = Hub(
                running.service, CONFIG, OsClock(), loop, ServerMetrics(), server_context(*pem)
            )
            connection = Connection(hub, DispatcherV3(hub), DispatcherV2(hub))
            wire = Paused(loop, connection)
            connection.connection_made(wire)
            connection.data_received(START_TLS)
            assert wire.is_paused
            connection.data_received(add(1, 7, 0))  # decrypted, before start_tls() returned
            assert running.service.calls == []
            await connection.wait_lost()  # no loop takes this transport to TLS
            assert not connection.is_open

    asyncio.run(main())


def test_closing_during_a_handshake(pem: tuple[str, str], loops: Loops) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await peer.ask(START_TLS)
        await running.server.close()
        await peer.ended

    run(test, loops, tls=server_context(*pem))


def test_clients_may_have_to_show_a_certificate(pem: tuple[str, str], loops: Loops) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await peer.ask(START_TLS)
        try:
            await upgrade(peer, pem[0])
            peer.send(add(1, 7, 0))
        except (OSError, AttributeError):
            pass  # with TLS 1.3 the refusal may come during or after the handshake
        await peer.ended
        assert running.service.calls == []

    run(test, loops, tls=server_context(*pem, pem[0]))


# --- TLS is required: a trust file, or the setting ------------------------------------------------


def bare_request(operation: int, version: int = 3) -> bytes:
    """Return the frame of a v3 request that has a header and nothing else."""
    message = wire_v3_pb2.Request()
    message.header.version = version
    message.header.operation = operation
    message.header.txnId = 7
    data = message.SerializeToString()
    return len(data).to_bytes(4, "big") + data


V3_REQUESTS = {
    v3.Operation.ADD_ENTRY: v3.encode_add_request(7, 1, 0, KEY, packet(1, 0)),
    v3.Operation.READ_ENTRY: v3.encode_read_request(7, 1, 0),
    v3.Operation.AUTH: v3.encode_auth_request(7, "plugin", b"token"),
    v3.Operation.WRITE_LAC: v3.encode_write_lac_request(7, 1, KEY, 0, b"lac"),
    v3.Operation.READ_LAC: v3.encode_read_lac_request(7, 1),
    v3.Operation.GET_BOOKIE_INFO: v3.encode_info_request(7),
    v3.Operation.FORCE_LEDGER: v3.encode_force_request(7, 1),
    v3.Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: v3.encode_list_entries_request(7, 1),
    v3.Operation.RANGE_READ_ENTRY: bare_request(v3.Operation.RANGE_READ_ENTRY),
    v3.Operation.RANGE_ADD_ENTRY: bare_request(v3.Operation.RANGE_ADD_ENTRY),
    v3.Operation.BATCH_READ_ENTRY: bare_request(v3.Operation.BATCH_READ_ENTRY),
}
OTHER_V3_REQUESTS = {
    "recovery add": v3.encode_add_request(7, 1, 0, KEY, packet(1, 0), is_recovery=True),
    "fencing read": v3.encode_read_request(7, 1, -1, fence_key=KEY),
    "long poll": v3.encode_read_request(7, 1, 0, previous_lac=-1, wait_ms=1000),
    "of another version": bare_request(v3.Operation.ADD_ENTRY, version=2),
    "without its message": bare_request(v3.Operation.READ_ENTRY),
}
V2_REQUESTS = {
    "add": v2.encode_add_request(KEY, packet(1, 0)),
    "read": v2.encode_read_request(1, 0),
    "fencing read": v2.encode_read_request(1, 0, fence_key=KEY),
    "batch read": v2.encode_batch_read_request(1, 0, 5, 10, 1 << 20),
}


def test_every_operation_of_v3_is_among_the_requests() -> None:
    assert {*V3_REQUESTS, v3.Operation.START_TLS} == set(v3.Operation)


def requiring(pem: tuple[str, str], *, is_by_trust: bool) -> dict[str, object]:
    """Return what makes a bookie require TLS: a trust file, or the setting."""
    context = server_context(*pem, pem[0] if is_by_trust else None)
    return {"tls": context, "is_tls_required": not is_by_trust}


@pytest.mark.parametrize("is_by_trust", [True, False])
@pytest.mark.parametrize("name", [*V3_REQUESTS, *OTHER_V3_REQUESTS])
def test_g24_a_v3_request_in_clear_is_unauthorized_where_tls_is_required(
    pem: tuple[str, str], name: v3.Operation | str, is_by_trust: bool
) -> None:
    """Refused by EUA, which says it twice; TLS may still be asked for behind it."""

    async def test(running: RunningBookie, peer: Peer) -> None:
        request = (V3_REQUESTS | OTHER_V3_REQUESTS)[name]
        response = wire_v3_pb2.Response.FromString(await peer.ask(request))
        assert (response.header.txnId, response.status) == (7, Status.UNAUTHORIZED)
        for field, message in response.ListFields():
            if field.name not in ("header", "status", "authResponse"):
                assert message.status == Status.UNAUTHORIZED
        assert response.readResponse.body == b""
        assert running.service.calls == []
        assert (await peer.ask(START_TLS)).hex() == "0a0608031009180a1000d20600"

    run(test, asyncio.new_event_loop, **requiring(pem, is_by_trust=is_by_trust))


@pytest.mark.parametrize("name", V2_REQUESTS)
def test_g24_a_v2_request_in_clear_is_unauthorized_where_tls_is_required(
    pem: tuple[str, str], name: str
) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        for _ in range(2):
            reply = v2.parse_response(await peer.ask(V2_REQUESTS[name]))
            assert reply.status is Status.UNAUTHORIZED  # type: ignore[union-attr]
        assert running.service.calls == []
        assert running.server.metrics.requests_unauthorized == 2

    run(test, asyncio.new_event_loop, **requiring(pem, is_by_trust=True))


def test_v2_auth_in_clear_closes_where_tls_is_required(pem: tuple[str, str]) -> None:
    """It has no error answer."""

    async def test(running: RunningBookie, peer: Peer) -> None:
        peer.send(v2.encode_auth_request("plugin", b"token"))
        await peer.ended
        assert peer.frame_count == 0

    run(test, asyncio.new_event_loop, **requiring(pem, is_by_trust=True))


def test_large_messages_wait_for_tls_where_it_is_required(
    pem: tuple[str, str], loops: Loops
) -> None:
    large = add(1, 7, 0, payload=bytes(PREAUTH_BYTES_MAX))

    async def test(running: RunningBookie, peer: Peer) -> None:
        reply = v3.parse_response(await peer.ask(add(1, 7, 0)))
        assert reply.status is Status.UNAUTHORIZED
        peer.send(large)
        await peer.ended
        other = await running.peer()
        await other.ask(START_TLS)
        await upgrade(other, pem[0])
        assert (await ask(other, large)).status is Status.OK

    run(test, loops, **requiring(pem, is_by_trust=False))


def test_a_client_that_shows_its_certificate_is_served(pem: tuple[str, str], loops: Loops) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        await peer.ask(START_TLS)
        await upgrade(peer, pem[0], certificate=pem)
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK
        reply = v3.parse_response(await peer.ask(v3.encode_read_request(2, 7, 0)))
        assert reply.body == packet(7, 0)  # type: ignore[union-attr]

    run(test, loops, **requiring(pem, is_by_trust=True))


def test_a_bookie_with_tls_that_is_not_required_serves_in_clear(pem: tuple[str, str]) -> None:
    async def test(running: RunningBookie, peer: Peer) -> None:
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK

    run(test, asyncio.new_event_loop, tls=server_context(*pem))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_files_that_cannot_be_used_are_named(
    pem: tuple[str, str], tmp_path: Path, part: int
) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    paths = [pem[0], pem[1], pem[0]]
    paths[part] = str(bad)
    with pytest.raises(BookieStartError, match=r"bad\.pem"):
        server_context(*paths)
    paths[part] = str(tmp_path / "missing.pem")
    with pytest.raises(BookieStartError, match=r"missing\.pem"):
        server_context(*paths)
