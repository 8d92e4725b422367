"""The addresses of a node: its own from its start, and what clients of them share. Real sockets."""

import random
import socket
import ssl
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

import herdpy
from herdpy.cluster.part import State
from herdpy.config import ServerConfig
from herdpy.node.services import NodeServices
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto.messages import (
    MAGIC,
    VERSION,
    Execute,
    Hello,
    ScramStart,
    encode_frame,
)
from herdpy.proto.scram import MECHANISM
from herdpy.server.hub import Hub
from tests.fixtures.authorities import Authority, Identity
from tests.fixtures.grpc_clients import error_of, grpc_client, plain
from tests.fixtures.node_cluster import NodeCluster
from tests.fixtures.ports import own_port

WAIT_S = 20.0


@pytest.fixture
def cluster() -> Iterator[NodeCluster]:
    made = NodeCluster()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def identity(authority: Authority) -> Identity:
    return authority.issue("server", "127.0.0.1")


def carry(cluster: NodeCluster, *names: str) -> list[Hub]:
    """Have n1 lead these tablespaces; return their servers, in this order."""
    for number, name in enumerate(names):
        cluster.create(name, "n1", tablespace_id=str(number) * 32)
        cluster.until(lambda each=name: cluster.nodes[0].parts.get(each) is State.LEADING)
    hubs = {server._hub.tablespace: server._hub for server in cluster.services[0].servers}
    return [hubs[name] for name in names]


def refusal_of(url: str, **options: Any) -> herdpy.Error:
    with pytest.raises(herdpy.Error) as caught:
        herdpy.connect(f"{url}{'&' if '?' in url else '?'}retry_timeout_s=0", **options)
    return caught.value


def by_tls(identity: Identity, **settings: Any) -> ServerConfig:
    return ServerConfig(
        tls_certificate=identity.certificate, tls_key=identity.key, connections_max=50, **settings
    )


# --- the addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize("same", ["port", "grpc_port"])
def test_two_nodes_that_carry_nothing_cannot_have_one_address(
    cluster: NodeCluster, same: str
) -> None:
    first = {"port": own_port(), "grpc_port": own_port()}
    cluster.serve("n1", ServerConfig(**first, connections_max=50))
    second = {"port": own_port(), "grpc_port": own_port(), same: first[same]}
    with pytest.raises(herdpy.OperationalError, match="cannot listen on 127") as caught:
        cluster.serve("n2", ServerConfig(**second, connections_max=50))
    assert caught.value.sqlstate == "58000"
    assert str(first[same]) in str(caught.value)


def test_a_node_that_others_reach_in_clear_is_refused_at_its_start(cluster: NodeCluster) -> None:
    port = own_port()
    with pytest.raises(herdpy.OperationalError, match=r"others reach 0\.0\.0\.0") as caught:
        cluster.serve("n1", ServerConfig(host="0.0.0.0", port=port, connections_max=50))
    assert caught.value.sqlstate == "F0000"
    with socket.socket() as probe, pytest.raises(OSError, match="refused"):
        probe.connect(("127.0.0.1", port))


@pytest.mark.parametrize("has_tls", [False, True])
def test_while_no_copy_is_open_clients_are_to_try_again(
    cluster: NodeCluster, authority: Authority, identity: Identity, *, has_tls: bool
) -> None:
    ports = {"port": own_port(), "grpc_port": own_port()}
    options = f"?tls=on&tls_authority={authority.path}" if has_tls else ""
    cluster.serve("n1", by_tls(identity, **ports) if has_tls else ServerConfig(**ports))
    url = f"herd://127.0.0.1:{ports['port']}/sales{options}"
    by_grpc = f"herd+grpc://127.0.0.1:{ports['grpc_port']}"

    def is_told() -> None:
        error = refusal_of(url)
        assert (error.sqlstate, error.retry) == ("57P03", herdpy.Retry.SAFE)
        trusted = authority.path if has_tls else None
        with (
            grpc_client(by_grpc, authority=trusted) as client,
            pytest.raises(grpc.RpcError) as caught,
        ):
            client.Execute(pb.ExecuteRequest(text="SELECT 1", tablespace="sales"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
        assert error_of(caught.value).sqlstate == "57P03"

    is_told()
    (hub,) = carry(cluster, "sales")
    (services,) = cluster.services
    with herdpy.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]

        async def leave() -> None:
            services.port.leave("sales", hub)

        cluster.thread.call(leave())
        is_told()
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def ended(peer: socket.socket) -> bool:
    """Return whether the node closes it, without a word."""
    peer.settimeout(WAIT_S)
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("has_tls", [False, True])
def test_who_says_nothing_to_a_node_without_copies_has_a_share_and_a_time(
    cluster: NodeCluster, identity: Identity, *, has_tls: bool
) -> None:
    port = own_port()
    limits: dict[str, Any] = {"port": port, "logins_of_address_max": 2}
    cluster.serve("n1", by_tls(identity, **limits) if has_tls else ServerConfig(**limits))
    (services,) = cluster.services
    shares = services.port.common.unauthenticated
    with ExitStack() as stack:
        peers: list[socket.socket] = []
        for count in (1, 2, 2):
            peers.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
            cluster.until(lambda wanted=count: len(shares) == wanted)
            if has_tls:
                peers[-1].sendall(b"\x16\x03\x01")
        assert ended(peers[0])
        services.reload(ServerConfig(port=port, logins_of_address_max=2, login_timeout_s=0.05))
        late = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert ended(peers[1])
        assert ended(late)
        cluster.until(lambda: len(shares) == 1)
        cluster.thread.call(services.close())
        assert ended(peers[2])
        assert not services.port.closed_connections
        assert len(shares) == 0


def test_what_counts_from_a_restart_on_does_not_count_for_a_copy_that_is_opened_later(
    cluster: NodeCluster,
) -> None:
    port = own_port()
    config = ServerConfig(port=port, workers=4, connections_max=20)
    cluster.serve("n1", config)
    (services,) = cluster.services
    now = {"login_timeout_s": 3.0, "logins_max": 9, "logins_of_address_max": 7}
    new = ServerConfig(port=own_port(), workers=40, connections_max=400, **now)  # type: ignore[arg-type]
    assert services.reload(new) == ["port", "connections_max", "workers"]
    common = services.port.common
    assert common.config.login_timeout_s == 3.0
    assert (common.unauthenticated.count_max, common.unauthenticated.of_origin_max) == (9, 7)
    sales, more = carry(cluster, "sales", "more")
    for hub in (sales, more):
        assert (hub.config.workers, hub.config.connections_max) == (4, 20)
        assert hub.config.login_timeout_s == 3.0
        assert hub.default.shares.usual_max == 3
    with herdpy.connect(f"herd://127.0.0.1:{port}/more") as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


# --- gRPC by TLS ----------------------------------------------------------------------------------


def test_grpc_of_a_node_asks_for_certificates_and_takes_up_new_ones(
    cluster: NodeCluster, tmp_path: Path, authority: Authority, identity: Identity
) -> None:
    theirs = Authority(tmp_path, "theirs")
    ports = {"port": own_port(), "grpc_port": own_port()}
    config = by_tls(identity, tls_client_authority=authority.path, **ports)
    cluster.serve("n1", config)
    shown = authority.issue("client", "client.example")
    carry(cluster, "sales", "more")
    (services,) = cluster.services
    url = f"herd+grpc://127.0.0.1:{ports['grpc_port']}"

    def target(name: str, trusted: Authority, own: Identity | None) -> str:
        options = f"?tls=on&tls_authority={trusted.path}"
        if own is not None:
            options += f"&tls_certificate={own.certificate}&tls_key={own.key}"
        return f"{url}/{name}{options}"

    def asks(trusted: Authority) -> None:
        for name in ("sales", "more"):
            with herdpy.connect(target(name, trusted, shown)) as connection:
                assert connection.execute("SELECT 1").fetchall() == [(1,)]
            with grpc_client(url, authority=trusted.path, shown=shown) as client:
                request = pb.ExecuteRequest(text="SELECT 1", tablespace=name)
                assert plain(client.Execute(request).rows) == [[1]]
        for own in (None, theirs.issue("foreign", "client.example")):
            assert refusal_of(target("sales", trusted, own)).sqlstate == "08001"

    asks(authority)
    assert refusal_of(f"{url}/sales").sqlstate == "08001"  # in clear
    theirs.issue("server", "127.0.0.1")  # in place of the old files
    services.reload(config)
    asks(theirs)
    assert refusal_of(target("more", authority, shown)).sqlstate == "08001"
    Path(identity.key).write_text("none")
    with pytest.raises(herdpy.OperationalError, match=r"server\.pem"):
        services.reload(ServerConfig(port=1, login_timeout_s=1.0))
    assert services.port.common.config.login_timeout_s == 10.0
    asks(theirs)


# --- what tablespaces share -----------------------------------------------------------------------


def test_a_tablespace_has_three_quarters_of_the_connections_beside_others(
    cluster: NodeCluster,
) -> None:
    port = own_port()
    cluster.serve(
        "n1", ServerConfig(port=port, connections_max=8, superuser_reserved_connections=0)
    )
    sales, _ = carry(cluster, "sales", "more")
    url = f"herd://127.0.0.1:{port}"
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(herdpy.connect(f"{url}/sales"))
        error = refusal_of(f"{url}/sales")
        assert (error.sqlstate, error.retry) == ("53300", herdpy.Retry.SAFE)
        assert "6 of 6 connections of the tablespace" in str(error)
        other = stack.enter_context(herdpy.connect(f"{url}/more", autocommit=True))
        last = stack.enter_context(herdpy.connect(f"{url}/more"))
        assert "8 of 8 connections are open" in str(refusal_of(f"{url}/more"))
        text = "SELECT share, used, refused FROM syslimits WHERE name = ?"
        name = ("connections_of_tablespace_max",)
        assert other.execute(text, name).fetchall() == [(6, 2, 0)]
        last.close()
        cluster.until(lambda: sales.entered_count == 7)
        assert "6 of 6" in str(refusal_of(f"{url}/sales"))
    cluster.until(lambda: sales.entered_count == 0)
    assert sales.default.connection_count == 0


def hello(name: str, user: str = "") -> bytes:
    return encode_frame(Hello(MAGIC, VERSION, VERSION, "t", name, autocommit=True, user=user))


@contextmanager
def opened(port: int, *messages: bytes) -> Generator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.settimeout(WAIT_S)
        for each in messages:
            peer.sendall(each)
        yield peer


_STATEMENT = encode_frame(Execute(1, "SELECT * FROM t WHERE id = ?", b"\x91\x01"))
_PHASES: tuple[Callable[[str], tuple[bytes, ...]], ...] = (
    lambda _: (),
    lambda name: (hello(name)[:7],),
    lambda name: (hello(name),),
    lambda name: (hello(name) + _STATEMENT,),
    lambda name: (
        hello(name),
        encode_frame(Execute(1, "SELECT " + "1" * 90_000, b"\xc0"))[:60_000],
    ),
    lambda name: (hello(name, "ada"),),
    lambda name: (
        hello(name, "ada"),
        encode_frame(ScramStart(MECHANISM, "n,,n=,r=fyko+d2lbbFgONRv9qkxdawL")),
    ),
    lambda name: (hello(name), b"\0\0\0\1\xff"),
    lambda _: (b"GET / HTTP/1.1\r\n\r\n",),
)


@pytest.mark.parametrize("seed", range(4))
def test_connections_that_break_off_anywhere_leave_the_limits_as_they_were(
    cluster: NodeCluster, seed: int
) -> None:
    chance = random.Random(seed)
    port = own_port()
    node = cluster.serve("n1", ServerConfig(port=port, connections_max=40, login_timeout_s=5.0))
    (services,) = cluster.services
    carry(cluster, "sales", "more")
    url = f"herd://127.0.0.1:{port}"
    with herdpy.connect(f"{url}/more", autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        connection.execute("CREATE USER ada PASSWORD 'a long secret' SUPERUSER")

    def reopen() -> None:
        """Have the copy of a tablespace closed, and opened again."""
        name = chance.choice(("sales", "more"))
        host = next(each for each in node._hosts.values() if each.name == name)
        shown = next(s for s in services.servers if s._hub.tablespace == name)

        async def end() -> None:
            await node._end(host.member.record.id)  # type: ignore[union-attr]
            node._changed.set()

        cluster.thread.call(end())
        assert shown.connection_count == 0
        cluster.until(lambda: node.parts.get(name) is State.LEADING)
        cluster.until(lambda: len(services.port.let_in_now()) == 2)

    with ExitStack() as stack:
        for step in range(60):
            name = chance.choice(("sales", "more", "absent", "default"))
            kept = opened(port, *chance.choice(_PHASES)(name))
            if chance.random() < 0.5:
                stack.enter_context(kept)
            else:
                with kept as peer:
                    if chance.random() < 0.3:  # no FIN, but RST
                        off = b"\1\0\0\0\0\0\0\0"
                        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, off)
            if chance.random() < 0.1:
                stack.close()
            if step in (20, 40):
                reopen()
    assert_nothing_is_held(cluster, services)


def test_a_hello_in_parts_is_counted_where_it_goes(cluster: NodeCluster) -> None:
    port = own_port()
    cluster.serve("n1", ServerConfig(port=port, connections_max=40))
    (services,) = cluster.services
    carry(cluster, "sales", "more")
    received, said = services.port.common.received, hello("more")
    with opened(port, said[:20]) as peer:
        cluster.until(lambda: received.used == 20)
        peer.sendall(said[20:] + b"\0\0\0\x20")  # and the begin of the next
        assert peer.recv(1)
        cluster.until(lambda: received.used == 4)
    assert_nothing_is_held(cluster, services)


def test_who_begins_a_login_and_does_not_end_it_has_a_time_wherever_it_goes(
    cluster: NodeCluster,
) -> None:
    port = own_port()
    config = ServerConfig(port=port, connections_max=40)
    cluster.serve("n1", config)
    (services,) = cluster.services
    carry(cluster, "sales", "more")
    for name in ("sales", "more"):
        with herdpy.connect(f"herd://127.0.0.1:{port}/{name}", autocommit=True) as connection:
            connection.execute("CREATE USER ada PASSWORD 'a long secret' SUPERUSER")
    services.reload(ServerConfig(port=port, connections_max=40, login_timeout_s=0.1))
    for name in ("sales", "more", "absent"):
        with opened(port, hello(name, "ada")) as peer:
            said = b""
            while data := peer.recv(4096):
                said += data
            assert b"no login within 0.1 s" in said
    assert_nothing_is_held(cluster, services)


def assert_nothing_is_held(cluster: NodeCluster, services: NodeServices) -> None:
    """Wait until all that connections had of the limits is given back."""
    common = services.port.common

    def held() -> dict[str, int]:
        found = {
            "entered": common.entered_count,
            "received": common.received.used,
            "results": common.results.used,
            "parameters": common.parameters.used,
            "stalled": len(common.stalled),
            "usual": common.pool.usual_count,
            **{name: len(shares) for name, shares in common.peer_shares.items()},
        }
        for server in services.servers:
            hub = server._hub
            served, name = hub.default, hub.tablespace
            found |= {
                f"{name} connections": len(hub.connections) + served.connection_count,
                f"{name} shares": len(served.shares.connections) + served.shares.usual_count,
                f"{name} bytes": served.received.used + served.parameters.used,
                f"{name} results": served.results.used,
            }
        return {name: count for name, count in found.items() if count}

    try:
        cluster.until(lambda: not held())
    except TimeoutError:
        raise AssertionError(f"held for ever: {held()}") from None


def test_who_stops_in_the_handshake_of_tls_leaves_the_limits_as_they_were(
    cluster: NodeCluster, authority: Authority, identity: Identity
) -> None:
    port = own_port()
    cluster.serve("n1", by_tls(identity, port=port))
    (services,) = cluster.services
    context = ssl.create_default_context(cafile=authority.path)
    for names in ((), ("sales", "more")):
        carry(cluster, *names)
        for begin in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", hello("sales")):
            with opened(port, begin):
                pass
        for count in (0, 7, 1000):
            with context.wrap_socket(
                socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1"
            ) as secured:
                secured.sendall(hello("more")[:count])
        assert_nothing_is_held(cluster, services)
        assert not services.port.closed_connections
