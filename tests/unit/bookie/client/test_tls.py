"""START_TLS from the client: asked in clear, then every byte inside TLS; refused or not trusted."""

import asyncio
import ssl

import pytest

from bookie.client.channels import AsyncioChannels
from bookie.client.interfaces import BookieInfo
from bookie.config import ClientConfig
from bookie.ledger.types import BookieId, Status
from bookie.server.tls import server_context
from tests.fixtures.bookies import running_bookie
from tests.fixtures.certificates import make_certificate

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
