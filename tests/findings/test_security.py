"""Findings about security: an ordinary login must not stop the server or outlive its rights."""

import base64
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import herdpy

WAITERS = 64  # as many as there are workers by default
_PATIENCE_S = 20.0
"""How long the old code is given to answer; nothing is measured by it."""


def connected(url: str, **options: Any) -> herdpy.Connection:
    separator = "&" if "?" in url else "?"
    return herdpy.connect(f"{url}{separator}retry_timeout_s=0", autocommit=True, **options)


def answered(question: Callable[[], Any]) -> Any:
    """Return the answer of a call in a thread; None: there is none."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(question()), daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    return found[0] if found else None


@pytest.mark.finding("S4")
def test_waits_for_one_row_lock_do_not_stop_the_server(serve: Callable[..., Any]) -> None:
    server = serve()
    root = connected(server.url)
    root.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    root.execute("INSERT INTO t VALUES (1, 0), (2, 0)")
    holder = herdpy.connect(server.url)
    holder.execute("UPDATE t SET v = 100 WHERE id = 1")
    waiters = [connected(server.url) for _ in range(WAITERS)]
    errors: list[Exception] = []

    def update(waiter: herdpy.Connection) -> None:
        try:
            waiter.execute("UPDATE t SET v = v + 1 WHERE id = 1")
        except herdpy.Error as error:
            errors.append(error)

    threads = [threading.Thread(target=update, args=(each,), daemon=True) for each in waiters]
    for thread in threads:
        thread.start()
    # Inside a transaction statements had workers of their own before, too.
    count = "SELECT count(*) FROM sysstatements WHERE text LIKE 'UPDATE t SET v = v%'"
    while holder.execute(count).fetchone() != (WAITERS,):
        pass

    query = "SELECT id FROM sysstatements WHERE text LIKE 'UPDATE t SET v = v%' ORDER BY id DESC"
    found = answered(lambda: root.execute(query).fetchall())
    assert found is not None, "sysstatements did not answer"
    assert len(found) == WAITERS
    read = connected(server.url)
    assert answered(lambda: read.execute("SELECT v FROM t WHERE id = 2").fetchall()) == [(0,)]

    def new_transaction() -> str:
        other = herdpy.connect(server.url)
        other.execute("UPDATE t SET v = 5 WHERE id = 2")
        other.commit()
        return "committed"

    assert answered(new_transaction) == "committed"
    number = found[0][0]
    assert answered(lambda: root.execute(f"KILL STATEMENT {number}").rowcount) is not None
    holder.rollback()
    for thread in threads:
        thread.join(_PATIENCE_S)
    assert [getattr(error, "sqlstate", None) for error in errors] == ["57014"]
    assert root.execute("SELECT v FROM t ORDER BY id").fetchall() == [(WAITERS - 1,), (5,)]


# --- S5 -------------------------------------------------------------------------------------------


def users_of(server: Any) -> tuple[herdpy.Connection, Callable[[str], herdpy.Connection]]:
    """Make table t and the superuser root; return its connection, and what logs a user in."""
    with connected(server.url) as first:
        first.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        first.execute("INSERT INTO t VALUES (1, 0)")
        first.execute("CREATE USER root PASSWORD 'password' SUPERUSER")
    at = server.url.removeprefix("herd://")

    def log_in(name: str) -> herdpy.Connection:
        return connected(f"herd://{name}@{at}", password="password")

    return log_in("root"), log_in


def sqlstate_of(function: Callable[[], Any]) -> str | None:
    """Return the SQLSTATE that a call fails with; None: it succeeded."""
    try:
        function()
    except herdpy.Error as error:
        return error.sqlstate
    return None


@pytest.mark.finding("S5")
def test_a_new_user_of_the_name_gives_an_old_session_nothing(serve: Callable[..., Any]) -> None:
    root, log_in = users_of(serve())
    root.execute("CREATE USER ann PASSWORD 'password'")
    ann = log_in("ann")
    assert sqlstate_of(lambda: ann.execute("SELECT v FROM t")) == "42501"
    root.execute("DROP USER ann")
    root.execute("CREATE USER ann PASSWORD 'other password'")
    root.execute("GRANT SELECT ON t TO ann")
    assert sqlstate_of(lambda: ann.execute("SELECT v FROM t")) in ("57P01", "28000", "08006")
    shown = root.execute("SELECT count(*) FROM sysclients WHERE user_name = 'ann'").fetchone()
    assert shown == (0,)


@pytest.mark.finding("S5")
def test_a_dropped_user_commits_nothing(serve: Callable[..., Any]) -> None:
    root, log_in = users_of(serve())
    root.execute("CREATE USER ann PASSWORD 'password'")
    root.execute("GRANT SELECT, UPDATE ON t TO ann")
    ann = log_in("ann")
    ann.execute("BEGIN")
    ann.execute("UPDATE t SET v = 13 WHERE id = 1")
    root.execute("REVOKE SELECT, UPDATE ON t FROM ann")
    root.execute("DROP USER ann")
    assert sqlstate_of(ann.commit) is not None
    assert root.execute("SELECT v FROM t").fetchall() == [(0,)]
    root.execute("SET lock_timeout = '10s'")
    assert sqlstate_of(lambda: root.execute("UPDATE t SET v = 1 WHERE id = 1")) is None


def in_another_anns_time(
    server: Any, serve: Callable[..., Any], root: herdpy.Connection, *, is_restarted: bool
) -> str:
    """Make a new user in the place of ann, and perhaps a new server; return where it is."""
    root.execute("REVOKE SELECT, INSERT ON t FROM ann")
    root.execute("DROP USER ann")
    root.execute("CREATE USER ann PASSWORD 'password'")
    if is_restarted:
        server.process.kill()
        server.process.wait()
        server = serve(directory=server.directory)
    return server.url.removeprefix("herd://")


@pytest.mark.finding("S5")
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_new_user_owns_no_lease_or_staging_of_the_old_one(
    serve: Callable[..., Any], *, is_restarted: bool
) -> None:
    server = serve()
    root, log_in = users_of(server)
    root.execute("CREATE USER ann PASSWORD 'password'")
    root.execute("GRANT SELECT, INSERT ON t TO ann")
    ann = log_in("ann")
    lease = ann.lease(3600)
    ann.begin_staging("t", job="job")
    owned = "SELECT count(*) FROM {} WHERE user_name = 'ann'"
    queries = [owned.format(table) for table in ("sysleases", "sysstagings")]
    assert [root.execute(query).fetchone() for query in queries] == [(1,), (1,)]
    assert lease.seconds == 3600
    at = in_another_anns_time(server, serve, root, is_restarted=is_restarted)
    if is_restarted:
        root = connected(f"herd://root@{at}", password="password")
    assert [root.execute(query).fetchone() for query in queries] == [(0,), (0,)]


@pytest.mark.finding("S5")
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_new_user_is_not_told_of_the_commits_of_the_old_one(
    serve: Callable[..., Any], *, is_restarted: bool
) -> None:
    server = serve()
    root, log_in = users_of(server)
    root.execute("CREATE USER ann PASSWORD 'password'")
    root.execute("GRANT SELECT, INSERT ON t TO ann")
    ann = log_in("ann")
    ann.commit_staging(ann.begin_staging("t", job="job"), [])
    assert ann.commit_position("job") is not None
    at = in_another_anns_time(server, serve, root, is_restarted=is_restarted)
    ann = connected(f"herd://ann@{at}", password="password")
    assert sqlstate_of(lambda: ann.commit_position("job")) == "42501"


@pytest.mark.finding("S14")
def test_a_name_of_a_program_is_shown_without_control_characters(
    serve: Callable[..., Any],
) -> None:
    server = serve()
    root = connected(server.url)
    client = connected(f"{server.url}/?application_name=evil%0A%1B%5B2Jname%C2%9B1m%E2%80%AE")
    query = "SELECT client FROM sysclients WHERE client LIKE 'evil%'"
    assert root.execute(query).fetchall() == [("evil??[2Jname?1m?",)]
    client.execute("SET application_name = 'evil too\n\x1b[31m'")
    assert root.execute(query).fetchall() == [("evil too??[31m",)]


# --- S6 -------------------------------------------------------------------------------------------


@pytest.mark.finding("S6")
def test_one_user_with_unread_results_blocks_no_one(serve: Callable[..., Any]) -> None:
    root, log_in = users_of(serve())
    rows = [(n, n) for n in range(10, 3_000)]
    root.executemany("INSERT INTO t VALUES (?, ?)", rows)
    for name in ("ann", "eve"):
        root.execute(f"CREATE USER {name} PASSWORD 'password'")
        root.execute(f"GRANT SELECT ON t TO {name}")
    query = "SELECT id, sum(v) OVER (ORDER BY id) FROM t"
    ann = log_in("ann")
    unread = [ann.cursor() for _ in range(40)]
    for cursor in unread:
        sqlstate_of(lambda cursor=cursor: cursor.execute(query))
    for connection in (log_in("eve"), root):
        assert sqlstate_of(lambda c=connection: c.execute(query).fetchall()) is None


# --- S7 -------------------------------------------------------------------------------------------


@pytest.mark.finding("S7")
def test_an_administrator_limits_what_a_user_has(serve: Callable[..., Any]) -> None:
    root, log_in = users_of(serve())
    root.execute("CREATE USER ann PASSWORD 'password'")
    for change in (
        "CONNECTION LIMIT 2",
        "SET MAXIMUM statement_timeout = '10s'",
        "SET lock_timeout = '1s'",
    ):
        assert sqlstate_of(lambda change=change: root.execute(f"ALTER ROLE ann {change}")) is None
    ann, other = log_in("ann"), log_in("ann")
    assert sqlstate_of(lambda: log_in("ann")) == "53300"
    assert other.execute("SHOW lock_timeout").fetchone() == ("1s",)
    assert sqlstate_of(lambda: ann.execute("SET statement_timeout = 0")) == "42501"
    assert root.execute("SHOW lock_timeout").fetchone() == ("30s",)
    assert root.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("600s",)


# --- S9, S13 --------------------------------------------------------------------------------------


@contextmanager
def idle_sockets(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Hold sockets open that say nothing."""
    with ExitStack() as opened:
        address = ("127.0.0.1", port)
        yield [opened.enter_context(socket.create_connection(address)) for _ in range(count)]


def wait_for(port: int) -> None:
    """Wait until a port is open: that of gRPC is after the first one."""
    for _ in range(100_000):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            continue
        return
    raise AssertionError(f"nothing listens on port {port}")


@pytest.mark.finding("S9")
def test_idle_sockets_of_one_address_keep_no_one_out(serve: Callable[..., Any]) -> None:
    server = serve()
    port = int(server.url.rpartition(":")[2])
    with idle_sockets(port, 250):
        assert sqlstate_of(lambda: connected(server.url).close()) is None


@pytest.mark.finding("S9")
def test_idle_sockets_at_the_port_of_grpc_keep_no_one_out(serve: Callable[..., Any]) -> None:
    pytest.importorskip("grpc")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    few = ("server.connections_max=20", "server.logins_max=20", "server.login_timeout_s=60")
    serve(f"server.grpc_port={port}", *few)
    wait_for(port)
    url = f"herd+grpc://127.0.0.1:{port}"
    # Who was let in is older than all of them, and stays.
    with connected(url) as inside, idle_sockets(port, 60) as idle:
        assert answered(lambda: is_ended(idle[0])), "the oldest does not give way"
        assert answered(lambda: inside.execute("SELECT 1").fetchall()) == [(1,)]
        assert answered(lambda: connected(url).execute("SELECT 1").fetchall()) == [(1,)]


def is_ended(connection: socket.socket) -> bool:
    """Wait until the peer has closed a connection, whatever it has said before."""
    try:
        while connection.recv(4_096):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.finding("S13")
def test_idle_sockets_reset_no_probe(serve: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve(f"server.http_port={port}")
    with idle_sockets(port, 80):
        answers = [get(port) for _ in range(5)]
    assert [answer[:12] for answer in answers] == [b"HTTP/1.0 200"] * 5


def get(port: int) -> bytes:
    """Return the answer of /readyz; empty: the connection was reset."""
    with socket.create_connection(("127.0.0.1", port)) as probe:
        try:
            probe.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
            return probe.recv(100)
        except ConnectionError:
            return b""


# --- S12 ------------------------------------------------------------------------------------------

CALLS = 100


def processor_ticks(server: Any) -> int:
    """Return how long the server's threads have computed so far, in the kernel's ticks."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.finding("S12")
def test_a_password_in_each_call_costs_hardly_more_than_a_token(serve: Callable[..., Any]) -> None:
    grpc = pytest.importorskip("grpc")
    from herdpy.proto import herdpy_pb2 as pb

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = serve(f"server.grpc_port={port}")
    users_of(server)
    wait_for(port)
    proof = base64.b64encode(b"root:password").decode()
    by_password = (("authorization", f"Basic {proof}"),)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        log_in = channel.stream_stream(
            "/herdpy.v1.Herdpy/Login",
            request_serializer=pb.LoginRequest.SerializeToString,
            response_deserializer=pb.LoginReply.FromString,
        )
        (reply,) = log_in(iter(()), metadata=by_password)
        by_token = (("authorization", f"Bearer {reply.logged_in.token}"),)
        execute = channel.unary_unary(
            "/herdpy.v1.Herdpy/Execute",
            request_serializer=pb.ExecuteRequest.SerializeToString,
            response_deserializer=pb.ExecuteReply.FromString,
        )

        def cost(metadata: Any) -> int:
            before = processor_ticks(server)
            for _ in range(CALLS):
                execute(pb.ExecuteRequest(text="SELECT 1"), metadata=metadata)
            return processor_ticks(server) - before

        cost(by_token)  # what is loaded on first use is no one's
        of_tokens, of_passwords = cost(by_token), cost(by_password)
    assert of_passwords < 2 * of_tokens + 10, (of_passwords, of_tokens)


# --- S11 ------------------------------------------------------------------------------------------


@pytest.mark.finding("S11")
def test_who_may_read_nothing_takes_no_lease_and_others_have_a_limit(
    serve: Callable[..., Any],
) -> None:
    root, log_in = users_of(serve())
    for name in ("ann", "eve"):
        root.execute(f"CREATE USER {name} PASSWORD 'password'")
    ann = log_in("ann")
    assert sqlstate_of(lambda: ann.lease(60)) == "42501"
    root.execute("GRANT SELECT ON t TO ann")
    root.execute("ALTER ROLE ann SET MAXIMUM leases = 2")
    kept = [ann.lease(60) for _ in range(2)]
    assert [sqlstate_of(lambda: ann.lease(60)) for _ in range(3)] == ["53400"] * 3
    assert len(kept) == 2
