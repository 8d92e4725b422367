"""send() over real sockets, on both loops: verified TLS, statuses, time that is limited."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from bookie.errors import IncorrectParameterError
from bookie.management.http_client import INTERIM_ANSWERS_MAX, Url, send
from bookie.runtime.http import JSON, HttpServer, Page, Request
from bookie.server.tls import server_context
from tests.fixtures.certificates import make_certificate


class Echo:
    """Answers 200, and keeps the last request."""

    last: Request | None = None

    def owns(self, path: str) -> bool:
        return path == "/hook"

    def refusal(self, request: Request) -> Page | None:
        return None

    async def call(self, request: Request) -> Page:
        self.last = request
        return Page(200, JSON, b"{}")

    async def close(self) -> None:
        pass


def run(test: Callable[[int, Echo], Awaitable[None]], tls: ssl.SSLContext | None = None) -> None:
    async def main() -> None:
        echo = Echo()
        server = HttpServer(lambda path: None, "none", echo)
        port = await server.start("127.0.0.1", 0, tls)
        try:
            await test(port, echo)
        finally:
            await server.close()

    for loops in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=loops) as runner:
            runner.run(main())


def test_a_body_and_its_headers_arrive() -> None:
    async def test(port: int, echo: Echo) -> None:
        url = Url.of(f"http://127.0.0.1:{port}/hook?a=1")
        assert await send("POST", url, {"X-Mark": "7"}, b"body", None, 5.0) == 200
        assert echo.last is not None
        assert (echo.last.body, echo.last.query) == (b"body", (("a", "1"),))
        assert echo.last.headers["x-mark"] == "7"
        other = Url.of(f"http://127.0.0.1:{port}/other")
        assert await send("POST", other, {}, b"", None, 5.0) == 405

    run(test)


def test_tls_is_verified(tmp_path: Path) -> None:
    pem = make_certificate(tmp_path)

    async def test(port: int, echo: Echo) -> None:
        url = Url.of(f"https://127.0.0.1:{port}/hook")
        with pytest.raises(OSError, match="certificate verify failed"):
            await send("POST", url, {}, b"body", ssl.create_default_context(), 5.0)
        assert echo.last is None
        trusting = ssl.create_default_context(cafile=pem[0])
        assert await send("POST", url, {}, b"body", trusting, 5.0) == 200

    run(test, server_context(*pem))


def test_a_receiver_that_is_silent_or_away_is_an_error() -> None:
    async def test(port: int, echo: Echo) -> None:
        silent = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        address = silent.sockets[0].getsockname()
        with pytest.raises(TimeoutError):
            await send("POST", Url.of(f"http://127.0.0.1:{address[1]}/hook"), {}, b"", None, 0.01)
        silent.close()
        with pytest.raises(ConnectionError):
            await send("POST", Url.of(f"http://127.0.0.1:{address[1]}/hook"), {}, b"", None, 5.0)

    run(test)


def test_interim_answers_are_skipped() -> None:
    class Interim(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.WriteTransport)
            transport.write(
                b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"
            )
            transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Interim, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert await send("POST", Url.of(f"http://127.0.0.1:{port}/"), {}, b"", None, 5.0) == 204
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize("more", [0, 1, 10_000])
def test_interim_answers_are_few(more: int) -> None:
    class Interim(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.WriteTransport)
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n" * (INTERIM_ANSWERS_MAX + more))
            transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Interim, "127.0.0.1", 0)
        url = Url.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        try:
            found = str(await send("POST", url, {}, b"", None, 60.0))
        except ConnectionError as error:
            found = str(error)
        assert found == ("too many interim answers" if more else "204")
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "host", ["a..b", "x" * 64 + ".example", "bücher", "127.0.0.1\0", "127.0.0.1\r\nX-Evil: 1"]
)
def test_a_host_that_no_name_can_be_is_an_error_like_others(host: str) -> None:
    with pytest.raises(IncorrectParameterError):
        Url.of(f"http://{host}/hook")
    with pytest.raises(OSError):  # a registration may name any host
        asyncio.run(send("POST", Url("http", host, 80, "/"), {}, b"", None, 5.0))


@pytest.mark.parametrize("url", ["htps://ops.example:443/hook", "ftp://ops.example:21/",
                                 "//ops.example:80/", "http://ops.example:0/"])  # fmt: skip
def test_urls_of_other_schemes_and_no_port_are_refused(url: str) -> None:
    with pytest.raises(IncorrectParameterError):
        Url.of(url)


def test_urls() -> None:
    assert Url.of("https://ops.example/hook?x=1") == ("https", "ops.example", 443, "/hook?x=1")
    assert Url.of("http://[::1]:8080") == ("http", "::1", 8080, "/")
    assert Url.of("https://ops.example/secret").origin == "https://ops.example:443"
