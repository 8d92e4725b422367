"""The little HTTP server: what it answers, and what it bears."""

import asyncio
from typing import Any

import pytest

from bookie.runtime import http
from bookie.server.health import HealthServer
from bookie.server.metrics import ServerMetrics, families
from tests.sim.loop import SimulatedLoop


class Asker(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.ended = asyncio.get_running_loop().create_future()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)


async def connect() -> Asker:
    _, asker = await asyncio.get_running_loop().create_connection(Asker, "world", 8080)
    return asker


async def ask(request: bytes) -> tuple[int, bytes]:
    asker = await connect()
    asker.transport.write(request)
    await asker.ended
    head, _, body = asker.received.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def simulate(test: Any, health_reason: Any = lambda: None) -> None:
    async def main() -> None:
        server = HealthServer(lambda: families(ServerMetrics()), health_reason, lambda: "not yet")
        await server.start("world", 8080)
        try:
            await test(server)
        finally:
            await server.close()
            await server.close()  # idempotent

    loop = SimulatedLoop(1)
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


REQUESTS = [
    (b"GET /heartbeat HTTP/1.1\r\nHost: x\r\n\r\n", 200, b"OK\n"),
    (b"GET /heartbeat HTTP/1.0\n\n", 200, b"OK\n"),
    (b"HEAD /heartbeat HTTP/1.1\r\n\r\n", 200, b""),
    (b"GET /health?verbose HTTP/1.1\r\n\r\n", 200, b"OK\n"),
    (b"GET /ready HTTP/1.1\r\n\r\n", 503, b"not yet\n"),
    (
        b"GET / HTTP/1.1\r\n\r\n",
        404,
        b"/heartbeat /health /ready /metrics; the management API needs --http-access\n",
    ),
    (b"POST /health HTTP/1.1\r\n\r\n", 405, b"only GET and HEAD\n"),
    (b"\r\n\r\n", 400, b"expected: GET /path HTTP/1.1\n"),
    (b"\xff\xfe\r\n\r\n", 400, b"expected: GET /path HTTP/1.1\n"),
    (b"GET /" + b"x" * 9000, 400, b"the request is too long\n"),
]


@pytest.mark.parametrize(("request_bytes", "status", "body"), REQUESTS)
def test_answers(request_bytes: bytes, status: int, body: bytes) -> None:
    async def test(server: HealthServer) -> None:
        assert await ask(request_bytes) == (status, body)

    simulate(test)


def test_a_page_that_breaks_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def test(server: HealthServer) -> None:
        status, body = await ask(b"GET /health HTTP/1.1\r\n\r\n")
        assert (status, body) == (500, b"see the server's log\n")

    def broken() -> str:
        raise RuntimeError("broken on purpose")

    simulate(test, broken)
    assert "broken on purpose" in caplog.text


def test_who_asks_nothing_is_cut_off() -> None:
    async def test(server: HealthServer) -> None:
        asker = await connect()
        asker.transport.write(b"GET /hea")
        started = asyncio.get_running_loop().time()
        await asker.ended
        assert 4 < asyncio.get_running_loop().time() - started < 6

    simulate(test)


def test_connections_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)

    async def test(server: HealthServer) -> None:
        first, second = await connect(), await connect()
        await asyncio.sleep(0.1)
        third = await connect()
        await first.ended  # the oldest that has not asked
        assert not second.ended.done()
        await server.close()  # ends those that wait
        await second.ended
        await third.ended

    simulate(test)
