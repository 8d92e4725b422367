"""START_TLS at the bookie: answered in clear, then nothing but TLS; on both kinds of loop."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from bookie.errors import BookieStartError
from bookie.ledger.types import Status
from bookie.proto import v2, v3
from bookie.runtime.os_clock import OsClock
from bookie.server.metrics import ServerMetrics
from bookie.server.tls import server_context
from bookie.server.wire.connection import STRANGER_PIECE_BYTES, Connection
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


async def upgrade(peer: Peer, certificate: str) -> None:
    """Shake hands as a client that trusts this certificate."""
    loop = asyncio.get_running_loop()
    trusting = ssl.create_default_context(cafile=certificate)
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
        count = STRANGER_PIECE_BYTES - len(START_TLS)
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
