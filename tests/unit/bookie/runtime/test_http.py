"""HttpServer over TLS: connections count and are timed from their first byte, on both loops."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from bookie.admin.http import http_context
from bookie.runtime import http
from bookie.runtime.http import (
    CONNECTIONS_MAX,
    CONNECTIONS_OF_ADDRESS_MAX,
    JSON,
    TEXT,
    HttpServer,
    Page,
    Request,
)
from tests.fixtures.certificates import make_certificate

Loops = Callable[[], asyncio.AbstractEventLoop]
_MORE = 10


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Loops:
    return request.param


class NameApi:
    """Answers with the name in the client's certificate and the body."""

    def owns(self, path: str) -> bool:
        return path == "/api"

    def refusal(self, request: Request) -> Page | None:
        return None

    async def close(self) -> None:
        pass

    async def call(self, request: Request) -> Page:
        return Page(200, JSON, f"{request.certificate_name} {request.body.decode()}".encode())


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)


def run(test: Callable[[int, HttpServer], Coroutine[Any, Any, None]], loops: Loops,
        pem: tuple[str, str]) -> None:  # fmt: skip
    async def main() -> None:
        server = HttpServer(lambda path: Page(200, TEXT, path.encode()), "none", NameApi())
        port = await server.start("127.0.0.1", 0, http_context(pem, pem[0]))
        try:
            async with asyncio.timeout(60):
                await test(port, server)
        finally:
            await server.close()

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(main())


async def connect(
    port: int, tls: ssl.SSLContext | None = None, source: str = "127.0.0.1"
) -> tuple[Any, Client]:
    loop = asyncio.get_running_loop()
    return await loop.create_connection(Client, "127.0.0.1", port, ssl=tls, local_addr=(source, 0))


async def ask(
    port: int, pem: tuple[str, str], request: bytes, *, has_certificate: bool = True
) -> bytes:
    context = ssl.create_default_context(cafile=pem[0])
    if has_certificate:
        context.load_cert_chain(*pem)
    transport, client = await connect(port, context)
    transport.write(request)
    await client.ended
    return bytes(client.received)


def test_pages_and_the_api_are_answered_over_tls(loops: Loops, pem: tuple[str, str]) -> None:
    async def test(port: int, server: HttpServer) -> None:
        answer = await ask(port, pem, b"GET /page HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\n/page")
        probe = b"GET /page HTTP/1.1\r\n\r\n"
        assert (await ask(port, pem, probe, has_certificate=False)).endswith(b"/page")
        nameless = await ask(port, pem, b"GET /api HTTP/1.1\r\n\r\n", has_certificate=False)
        assert nameless.endswith(b"\r\n\r\nNone ")
        assert b"\r\nAllow: GET, HEAD\r\n" in await ask(port, pem, b"PUT / HTTP/1.1\r\n\r\n")
        body = b"x" * 100_000
        head = b"PUT /api HTTP/1.1\r\nContent-Length: 100000\r\n\r\n"
        assert (await ask(port, pem, head + body)).endswith(b"\r\n\r\nbookie " + body)

    run(test, loops, pem)


def test_silent_connections_before_the_handshake_are_counted(
    loops: Loops, pem: tuple[str, str]
) -> None:
    async def test(port: int, server: HttpServer) -> None:
        clients = [(await connect(port))[1] for _ in range(CONNECTIONS_OF_ADDRESS_MAX + _MORE)]
        oldest = clients[:_MORE]
        ended, _ = await asyncio.wait([one.ended for one in oldest], timeout=20)
        assert len(ended) == _MORE
        assert not any(one.ended.done() for one in clients[_MORE:])
        assert (await ask(port, pem, b"GET /page HTTP/1.1\r\n\r\n")).endswith(b"/page")
        await server.close()
        ended, _ = await asyncio.wait([one.ended for one in clients], timeout=20)
        assert len(ended) == len(clients)

    run(test, loops, pem)


def test_addresses_with_many_silent_connections_give_way_first(
    loops: Loops, pem: tuple[str, str]
) -> None:
    async def test(port: int, server: HttpServer) -> None:
        _, probe = await connect(port)
        crowds = [
            (await connect(port, source=f"127.0.0.{address}"))[1]
            for _ in range(CONNECTIONS_OF_ADDRESS_MAX)
            for address in (2, 3, 4)
        ]
        assert (await ask(port, pem, b"GET /page HTTP/1.1\r\n\r\n")).endswith(b"/page")
        assert not probe.ended.done()
        gave_way = len(crowds) + 2 - CONNECTIONS_MAX
        ended = [each.ended for each in crowds]
        for each in asyncio.as_completed(ended, timeout=20):
            await each
            if sum(one.done() for one in ended) >= gave_way:
                break
        assert len(server.unanswered) <= CONNECTIONS_MAX

    run(test, loops, pem)


def test_a_handshake_has_a_time_limit_and_its_failure_frees_the_place(
    loops: Loops, pem: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_TIMEOUT_S", 0.5)

    async def test(port: int, server: HttpServer) -> None:
        for first in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"):
            clients: list[Client] = []
            for _ in range(CONNECTIONS_OF_ADDRESS_MAX):
                transport, client = await connect(port)
                transport.write(first)
                clients.append(client)
            ended, _ = await asyncio.wait([one.ended for one in clients], timeout=20)
            assert len(ended) == CONNECTIONS_OF_ADDRESS_MAX
            assert not any(client.received.startswith(b"HTTP") for client in clients)
        assert (await ask(port, pem, b"GET /page HTTP/1.1\r\n\r\n")).endswith(b"/page")

    run(test, loops, pem)
