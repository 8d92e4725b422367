"""ZooKeeper by TLS: a real server, its certificate and the client's, and what refusals tell."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bookie.errors import StoreTrustError, StoreUnreachableError
from bookie.metadata.acl import acl_for
from bookie.metadata.interfaces import SessionState
from bookie.metadata.zookeeper import ZooKeeperStore
from bookie.metadata.zookeeper_login import Login
from bookie.runtime.os_sockets import wait_ready as wait_sockets
from bookie.runtime.os_tls.files import client_contexts
from bookie.runtime.os_tls.polled import PolledTlsSocket, wait_ready
from tests.fixtures.authorities import Authority, Identity
from tests.fixtures.cutting_proxy import CuttingProxy
from tests.fixtures.tls_zookeeper import TlsZooKeeper, tls_zookeeper
from tests.fixtures.versioned_stores import SESSION_TIMEOUT_S, until

ADA = Login("digest", "ada", "geheim")


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder, "ours")
        self.client = self.authority.issue("client", "client")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(place: Place) -> Iterator[TlsZooKeeper]:
    with tls_zookeeper(place.folder, place.authority) as server:
        yield server


def contexts(authority: Authority, identity: Identity | None) -> Any:
    return client_contexts(authority.path, identity, "TLS to ZooKeeper")


def refusal(
    hosts: str,
    tls: Any,
    limit_s: float = 1.0,
    kind: type[StoreUnreachableError] = StoreUnreachableError,
) -> str:
    async def scenario() -> str:
        with pytest.raises(StoreUnreachableError) as found:
            await ZooKeeperStore.connect(
                hosts, SESSION_TIMEOUT_S, connect_timeout_s=limit_s, tls=tls
            )
        assert type(found.value) is kind
        return str(found.value)

    return asyncio.run(scenario())


def test_a_session_by_tls(place: Place, secured: TlsZooKeeper) -> None:
    """Many answers in one record of TLS, and long ones in several."""

    async def scenario() -> None:
        store = await ZooKeeperStore.connect(
            secured.hosts,
            SESSION_TIMEOUT_S,
            logins=[ADA],
            is_secured=True,
            tls=contexts(place.authority, place.client),
        )
        await store.create("/t")
        await asyncio.gather(*(store.create(f"/t/{n}", b"x" * n * 300) for n in range(200)))
        found = await asyncio.gather(*(store.read(f"/t/{n}") for n in range(200)))
        assert [len(data) for data, _ in found] == [n * 300 for n in range(200)]
        called = asyncio.Event()
        watch = store.watch("/t/1", called.set)
        await store.write("/t/1", b"", -1)
        await asyncio.wait_for(called.wait(), 20)
        watch.close()
        # Not those of its certificate, too, which ZooKeeper knows as an identity of x509.
        assert (await store.read_acl("/t/1"))[0] == acl_for([ADA.identity])
        await store.close()

    asyncio.run(scenario())


def test_a_server_that_is_not_trusted(place: Place, secured: TlsZooKeeper, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    said = refusal(secured.hosts, contexts(other, None), 60, StoreTrustError)  # at once
    assert f"no TLS with {secured.hosts}: unable to get local issuer" in said
    two = f"{secured.hosts},127.0.0.1:1"  # one that is tried in vain may be the right one
    said = refusal(two, contexts(other, None))
    assert "that speaks TLS" in said


def test_a_server_of_another_name(place: Place, tmp_path: Path) -> None:
    with tls_zookeeper(tmp_path, place.authority, "zk1.example") as server:
        said = refusal(server.hosts, contexts(place.authority, place.client), 60, StoreTrustError)
    assert "IP address mismatch, certificate is not valid for '127.0.0.1'" in said


def test_a_client_without_a_certificate(place: Place, secured: TlsZooKeeper) -> None:
    assert "the last try: 127.0.0.1" in refusal(secured.hosts, contexts(place.authority, None))


def test_tls_and_clear_do_not_meet(place: Place, secured: TlsZooKeeper) -> None:
    """Nothing goes on in clear: neither side falls back."""
    in_clear = refusal(secured.hosts, None)
    assert "whether this port is for TLS" in in_clear
    by_tls = refusal(secured.server.hosts, contexts(place.authority, place.client))
    assert "the last try: " in by_tls


def test_new_certificates_count_for_the_next_connection(
    place: Place, secured: TlsZooKeeper, tmp_path: Path
) -> None:
    """The old files stay in use as long as the new ones cannot be."""

    async def scenario() -> None:
        tls = contexts(place.authority, place.client)
        asked: list[ssl.SSLContext] = []

        def ask() -> ssl.SSLContext:
            asked.append(tls())
            return asked[-1]

        first = await ZooKeeperStore.connect(secured.hosts, SESSION_TIMEOUT_S, tls=ask)
        Path(place.client.certificate).write_text("none")  # noqa: ASYNC240 - short
        assert not tls.check()
        second = await ZooKeeperStore.connect(secured.hosts, SESSION_TIMEOUT_S, tls=ask)
        place.authority.issue("client", "client")
        assert tls.check()
        third = await ZooKeeperStore.connect(secured.hosts, SESSION_TIMEOUT_S, tls=ask)
        assert asked[0] is asked[1] is not asked[2]
        for store in (first, second, third):
            await store.read("/")
            await store.close()

    asyncio.run(scenario())


class Peer:
    """A server by TLS of one connection, in a thread; `serve` gets the connection."""

    def __init__(self, place: Place, serve: Callable[[ssl.SSLSocket], None]) -> None:
        identity = place.authority.issue("peer", "127.0.0.1")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*identity)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._serve = serve
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def connect(self, place: Place) -> PolledTlsSocket:
        context = ssl.create_default_context(cafile=place.authority.path)
        address: tuple[str, int] = self._listener.getsockname()
        return PolledTlsSocket(address, 20, context, "127.0.0.1")

    def _run(self) -> None:
        accepted, _ = self._listener.accept()
        with self._context.wrap_socket(accepted, server_side=True) as connection:
            self._serve(connection)

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


def test_what_comes_without_data_wakes_no_reader(place: Place) -> None:
    """A ticket for a later session makes the socket readable, and holds up no request."""
    go_on = threading.Event()

    def serve(connection: ssl.SSLSocket) -> None:
        go_on.wait(20)
        connection.sendall(b"ab")

    peer = Peer(place, serve)
    link = peer.connect(place)
    told, tell = socket.socketpair()
    tell.send(b"!")
    try:
        assert wait_sockets([link], [], 20) == ([link], [])  # the ticket
        ready, _ = wait_ready([link, told], [], 20)
        assert ready == [told]
        assert wait_ready([link], [], 0) == ([], [])
        with pytest.raises(ssl.SSLWantReadError):
            link.recv(1)
        go_on.set()
        assert wait_ready([link], [], 20) == ([link], [])
        assert link.recv(1) == b"a"
        # Nothing is left on the socket: only what was decrypted.
        assert wait_ready([link, told], [], 20) == ([link], [])
        assert link.recv(9) == b"b"
        assert wait_ready([link], [], 20) == ([link], [])
        assert link.recv(1) == b""
    finally:
        go_on.set()
        link.close()
        peer.close()
        told.close()
        tell.close()


def test_the_log_tells_of_tls_once(
    place: Place, secured: TlsZooKeeper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Authority(tmp_path, "other")
    refusal(f"{secured.hosts},127.0.0.1:1", contexts(other, None))
    said = [record for record in caplog.records if "no TLS with" in record.message]
    assert [record.levelname for record in said] == ["ERROR"]


def test_a_connection_that_breaks_is_made_again_by_tls(place: Place, secured: TlsZooKeeper) -> None:
    async def scenario() -> None:
        proxy = await CuttingProxy(int(secured.hosts.rpartition(":")[2])).start()
        store = await ZooKeeperStore.connect(
            f"127.0.0.1:{proxy.port}",
            SESSION_TIMEOUT_S,
            tls=contexts(place.authority, place.client),
        )
        states: list[SessionState] = []
        store.on_session(states.append)
        session = store.session_id
        proxy.cut()
        await until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
        assert store.session_id == session
        await store.read("/")
        await store.close()
        await proxy.close()

    asyncio.run(scenario())
