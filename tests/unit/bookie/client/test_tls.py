"""START_TLS from the client: asked in clear, then every byte inside TLS; refused or not trusted."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from bookie.client.channels import AsyncioChannels
from bookie.client.client import LedgerClient
from bookie.client.interfaces import BookieInfo
from bookie.config import ClientConfig
from bookie.errors import IncorrectParameterError
from bookie.ledger.types import BookieId, Status
from bookie.metadata.memory import MemoryStore, MemoryStoreServer
from bookie.proto import v3
from bookie.server.tls import server_context
from tests.fixtures.bookies import running_bookie
from tests.fixtures.certificates import make_certificate
from tests.fixtures.metadata import SeededRng
from tests.sim.clock import SimulatedClock

B1 = BookieId("b1")


class Address:
    def __init__(self, port: int) -> None:
        self.port = port

    def address_of(self, bookie_id: BookieId) -> tuple[str, int]:
        return "127.0.0.1", self.port


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def trusting(certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate)


async def asked(port: int, tls: ssl.SSLContext, count: int = 1) -> list[BookieInfo]:
    channels = AsyncioChannels(Address(port), ClientConfig(connect_timeout_s=5), tls=tls)
    answers: list[BookieInfo] = []
    done = asyncio.Event()

    def on_done(info: BookieInfo) -> None:
        answers.append(info)
        if len(answers) == count:
            done.set()

    for _ in range(count):
        channels.info(B1, on_done)
    await done.wait()
    await channels.close()
    return answers


def test_requests_wait_for_the_handshake_and_are_answered(pem: tuple[str, str]) -> None:
    async def main() -> None:
        async with running_bookie(tls=server_context(*pem)) as running:
            answers = await asked(running.server.port, trusting(pem[0]), 3)
            assert [answer.status for answer in answers] == [Status.OK] * 3

    asyncio.run(main())


def test_a_bookie_without_tls_is_not_spoken_to_in_clear(pem: tuple[str, str]) -> None:
    async def main() -> None:
        async with running_bookie() as running:
            answers = await asked(running.server.port, trusting(pem[0]))
            assert answers == [BookieInfo(Status.UNAVAILABLE)]

    asyncio.run(main())


def test_why_there_is_no_tls_is_told_once(
    pem: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with running_bookie() as running:
            channels = AsyncioChannels(
                Address(running.server.port), ClientConfig(), tls=trusting(pem[0])
            )
            for _ in range(3):
                answer: asyncio.Future[BookieInfo] = asyncio.get_running_loop().create_future()
                channels.info(B1, answer.set_result)
                assert (await answer).status is Status.UNAVAILABLE
            await channels.close()

    asyncio.run(main())
    (told,) = caplog.messages
    assert "it refused START_TLS" in told
    assert "nothing is sent to it in clear" in told


class Between(asyncio.Protocol):
    """Answers in clear what it wants, as one who sits between client and bookie."""

    def __init__(self, say: Callable[[bytes], bytes | None], heard: bytearray) -> None:
        self._say = say
        self._heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        answer = self._say(data)
        if answer is not None:
            self._transport.write(answer)


AGREED = v3.encode_start_tls_response(0)
INJECTED = v3.encode_info_response(1, Status.OK, 10**12, 10**12)
SAID = {
    "behind the answer": AGREED + INJECTED,
    "instead of the answer": INJECTED,
    "before the answer": INJECTED + AGREED,
    "twice": AGREED + AGREED,
    "half a message behind the answer": AGREED + INJECTED[:5],
    "an answer of another operation": v3.encode_info_response(0, Status.OK, 1, 1),
}


@pytest.mark.parametrize("name", SAID)
def test_what_comes_in_clear_is_no_answer_to_what_waits_for_tls(
    pem: tuple[str, str], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Ids of requests count from 1: whoever is between could say that an add was done."""

    async def main() -> None:
        heard = bytearray()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Between(lambda _: SAID[name], heard), "127.0.0.1", 0
        )
        port = server.sockets[0].getsockname()[1]
        (answer,) = await asked(port, trusting(pem[0]))
        assert answer == BookieInfo(Status.UNAVAILABLE)
        assert bytes(heard) == v3.encode_start_tls_request(0)
        server.close()
        await server.wait_closed()

    asyncio.run(main())
    assert "in clear" in caplog.messages[0]


def test_bytes_in_clear_instead_of_a_handshake(pem: tuple[str, str]) -> None:
    """They come as an answer to the client's first words of the handshake."""

    async def main() -> None:
        heard = bytearray()

        def say(data: bytes) -> bytes:
            return INJECTED if len(heard) > len(data) else AGREED

        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Between(say, heard), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert await asked(port, trusting(pem[0])) == [BookieInfo(Status.UNAVAILABLE)]
        server.close()
        await server.wait_closed()

    asyncio.run(main())


def test_a_client_that_has_to_have_tls_is_not_made_without() -> None:
    async def main() -> None:
        store = MemoryStore(MemoryStoreServer(SimulatedClock()))
        config = ClientConfig(is_tls_required=True)
        with pytest.raises(IncorrectParameterError, match="is_tls_required: expected a TLS"):
            await LedgerClient.connect(
                store, rng=SeededRng(), clock=SimulatedClock(), config=config
            )

    asyncio.run(main())


def test_a_certificate_that_the_bookie_refuses_is_told(
    pem: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = make_certificate(tmp_path)

    async def main() -> None:
        async with running_bookie(tls=server_context(*pem, pem[0])) as running:
            context = trusting(pem[0])
            context.load_cert_chain(*other)
            answers = await asked(running.server.port, context)
            assert answers == [BookieInfo(Status.UNAVAILABLE)]

    asyncio.run(main())
    assert any("no TLS with bookie b1" in text for text in caplog.messages)


def test_a_context_that_changes_counts_from_the_next_connection_on(pem: tuple[str, str]) -> None:
    contexts = [ssl.create_default_context(), trusting(pem[0])]

    async def main() -> None:
        async with running_bookie(tls=server_context(*pem)) as running:
            channels = AsyncioChannels(
                Address(running.server.port), ClientConfig(), tls=lambda: contexts[0]
            )
            found: list[Status] = []
            while Status.OK not in found:
                answer: asyncio.Future[BookieInfo] = asyncio.get_running_loop().create_future()
                channels.info(B1, answer.set_result)
                found.append((await answer).status)
                del contexts[:-1]
            assert found[0] is Status.UNAVAILABLE
            await channels.close()

    asyncio.run(main())


def test_a_certificate_that_is_not_trusted(pem: tuple[str, str]) -> None:
    async def main() -> None:
        async with running_bookie(tls=server_context(*pem)) as running:
            answers = await asked(running.server.port, ssl.create_default_context())
            assert answers == [BookieInfo(Status.UNAVAILABLE)]

    asyncio.run(main())


def test_a_bookie_that_never_answers_start_tls_lets_reads_time_out() -> None:
    """Their time is not that of the handshake, which is longer."""

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        config = ClientConfig(connect_timeout_s=3600, read_timeout_s=0.05)
        address = Address(server.sockets[0].getsockname()[1])
        channels = AsyncioChannels(address, config, tls=ssl.create_default_context())
        for _ in range(3):
            answer: asyncio.Future[BookieInfo] = asyncio.get_running_loop().create_future()
            channels.info(B1, answer.set_result)
            assert (await answer).status is Status.TIMED_OUT
        await channels.close()
        server.close()
        await server.wait_closed()

    asyncio.run(main())
