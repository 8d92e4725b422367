"""A drain of a bookie that does not follow its state: what is asked of it, and what is said."""

import http.server
import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bookie.admin.world import client_context
from bookie.ledger.types import BookieId
from bookie.management.turn_read_only import put_read_only, turn_read_only
from bookie.metadata.bookies import BookieDirectory
from bookie.metadata.service_info import Address, Endpoint, ServiceInfo
from bookie.runtime.os_executors import run as run_now
from tests.fixtures.authorities import Authority
from tests.fixtures.metadata import ROOT, MetadataWorld, run

BOOKIE = BookieId("b1:3181")
WRITABLE, READ_ONLY = f"{ROOT}/available/{BOOKIE}", f"{ROOT}/available/readonly/{BOOKIE}"
PATH = "/api/v1/bookie/state/readonly"


async def turned(
    world: MetadataWorld, http_port: int | None, put: Callable[[Address], None] | None
) -> tuple[str, list[Address]]:
    """Return what is left to do, and the endpoints asked; put None: nothing may be asked."""
    store = world.client()
    http_address = None if http_port is None else Address("10.0.0.1", http_port)
    info = ServiceInfo.of_bookie(Address("10.0.0.1", 3181), http_address)
    await store.create(WRITABLE, info.to_bytes(), is_ephemeral=True)
    asked: list[Address] = []

    async def ask(address: Address) -> None:
        asked.append(address)
        assert put is not None
        put(address)
        await store.create(READ_ONLY, info.to_bytes(), is_ephemeral=True, make_parents=True)
        await store.delete(WRITABLE)

    directory = BookieDirectory(world.client(), ROOT)
    await directory.start()
    try:
        return await turn_read_only(directory, BOOKIE, ask), asked
    finally:
        await directory.close()


def test_its_endpoint_makes_it_read_only() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        assert await turned(world, 8080, lambda address: None) == ("", [Address("10.0.0.1", 8080)])

    run(scenario)


def test_without_an_endpoint_the_operator_has_to() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        left, asked = await turned(world, None, None)
        assert asked == []
        assert left.startswith("it is still writable and does not follow its state, as Apache's")
        assert left.endswith("names no HTTP endpoint; make it read-only, or stop it")

    run(scenario)


def test_an_endpoint_that_refuses_is_told() -> None:
    def refuse(address: Address) -> None:
        raise OSError("HTTP status 401")

    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        left, asked = await turned(world, 8080, refuse)
        assert asked == [Address("10.0.0.1", 8080)]
        assert (
            f"PUT {PATH} at 10.0.0.1:8080 failed (HTTP status 401); make it read-only, or stop it"
            in left
        )

    run(scenario)


def test_one_that_is_not_writable_is_asked_for_nothing() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        directory = BookieDirectory(world.client(), ROOT)
        await directory.start()

        async def ask(address: Address) -> None:
            raise AssertionError(address)

        assert await turn_read_only(directory, BOOKIE, ask) == ""
        await directory.close()

    run(scenario)


@pytest.mark.parametrize("is_by_tls", [False, True])
@pytest.mark.parametrize("status", [200, 403])
def test_the_request_is_bookkeepers(status: int, is_by_tls: bool, tmp_path: Path) -> None:
    seen: list[tuple[str, object]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, json.loads(body)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        trust = None
        if is_by_tls:
            authority = Authority(tmp_path, "ours")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*authority.issue("server", "127.0.0.1"))
            server.socket = context.wrap_socket(server.socket, server_side=True)
            trust = client_context(authority.path, None)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        address = Address("127.0.0.1", server.server_port)
        if status == 200:
            run_now(put_read_only(address, trust))
        else:
            with pytest.raises(OSError, match="HTTP status 403"):
                run_now(put_read_only(address, trust))
        thread.join()
    assert seen == [(PATH, {"readOnly": True})]


def test_an_http_address_is_one_that_can_be_asked() -> None:
    endpoint = Endpoint("httpserver", "10.0.0.1", 0, "http")
    assert ServiceInfo((endpoint,)).http_address is None
    assert ServiceInfo(()).http_address is None
    info = ServiceInfo.of_bookie(Address("h", 1), Address("h", 2))
    assert (info.address, info.http_address) == (Address("h", 1), Address("h", 2))
