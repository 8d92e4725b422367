"""A server's rows of syslimits and syswaits, its metrics of them, and who has the workers."""

import os
import selectors
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import cast

import pytest

import herdpy
from bookie.runtime.os_log import LineWriter
from herdpy.engine.limit_rows import LimitRow, WaitRow
from herdpy.server.connection import ServerConnection
from herdpy.server.operations.limit_rows import worker_holders
from tests.fixtures.engines import Background
from tests.fixtures.servers import RunningServer, running_server

WORKERS = 2
SLOW = "SELECT count(*) FROM t AS a, t AS b, t AS c, t AS d WHERE a.v + b.v + c.v + d.v = -1"


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(workers=WORKERS) as running:
        with herdpy.connect(running.url, autocommit=True) as first:
            first.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            first.executemany("INSERT INTO t VALUES (?, ?)", [(n, n) for n in range(2_000)])
            first.execute("CREATE USER root PASSWORD 'password' SUPERUSER")
            first.execute("CREATE USER ann PASSWORD 'password'")
            first.execute("GRANT SELECT, UPDATE ON t TO ann")
        yield running


def log_in(server: RunningServer, user: str) -> herdpy.Connection:
    url = f"herd://{user}@127.0.0.1:{server.port}/?retry_timeout_s=0"
    return herdpy.connect(url, password="password", autocommit=True)


def limits_of(server: RunningServer) -> dict[tuple[str, str], LimitRow]:
    rows = server.engine.database.limits.limits()
    return {(row.name, row.user): row for row in rows}


def samples_of(server: RunningServer) -> dict[tuple[str, ...], float]:
    """Return the metrics, by name and labels' values."""
    from herdpy.server.operations.metrics import families

    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families(server.server._hub)
        for sample in family.samples
    }


def waits_of(server: RunningServer) -> list[WaitRow]:
    return server.engine.database.waits()


@contextmanager
def slow_statements(server: RunningServer, connections: list[herdpy.Connection]) -> Iterator[None]:
    """Have each of them run a statement that ends when it is cancelled."""
    ended: list[herdpy.Connection] = []

    def run(connection: herdpy.Connection) -> None:
        try:
            with pytest.raises(herdpy.Error):
                connection.execute(SLOW)
        finally:
            ended.append(connection)

    with Background() as background:
        try:
            for each in connections:
                background.start(lambda each=each: run(each))
            yield
        finally:
            while len(ended) < len(connections):
                for each in connections:  # one whose thread has not noted that it runs goes on
                    with suppress(herdpy.Error):  # it was killed
                        each.cancel()


def test_limits_of_server_and_roles_are_rows_and_metrics(server: RunningServer) -> None:
    with log_in(server, "root") as root:
        root.execute("ALTER ROLE ann CONNECTION LIMIT 2")
        kept = [log_in(server, "ann") for _ in range(2)]
        for _ in range(3):
            with pytest.raises(herdpy.OperationalError):
                log_in(server, "ann")
        query = "SELECT share, used, refused, waits FROM syslimits WHERE name = '{}'"
        assert root.execute(query.format("connections")).fetchall() == [(2, 2, 3, 0)]
        assert root.execute(query.format("connections_max")).fetchall() == [(50, 3, 0, 0)]
        assert root.execute(query.format("lock_timeout")).fetchall() == [(30_000, 0, 0, 0)]
        assert root.execute(query.format("workers")).fetchall() == [(WORKERS, 1, 0, 0)]
        samples = samples_of(server)
        assert samples["herdpy_limit_refused_total", "connections", "role"] == 3
        assert samples["herdpy_limit_used", "connections_max", "server"] == 3
        assert samples["herdpy_waiting", "worker"] == 0
        assert not any("ann" in names for names in samples)
    for each in kept:
        each.close()


def test_another_role_of_the_name_begins_at_0(server: RunningServer) -> None:
    maxima = ("CONNECTION LIMIT 0", "SET MAXIMUM running_statements = 1")
    refusals = server.engine.database.refusals
    with log_in(server, "root") as root:
        root.execute(f"ALTER ROLE ann {maxima[1]}")
        several = [log_in(server, "ann") for _ in range(2)]
        with slow_statements(server, several):
            while not waits_of(server):
                pass
        for each in several:
            each.close()
        root.execute(f"ALTER ROLE ann {maxima[0]}")
        with pytest.raises(herdpy.OperationalError):
            log_in(server, "ann")
        assert limits_of(server)["connections", "ann"].refused == 1
        assert limits_of(server)["running_statements", "ann"].waits == 1
        dropped = server.engine.database.login("ann").user
        root.execute("REVOKE SELECT, UPDATE ON t FROM ann")
        root.execute("DROP ROLE ann")
        root.execute("CREATE USER ann PASSWORD 'password'")
        for each in maxima:
            root.execute(f"ALTER ROLE ann {each}")
        assert limits_of(server)["connections", "ann"].refused == 0
        assert limits_of(server)["running_statements", "ann"].waits == 0
        assert refusals.count("connections", dropped) == 0
        assert refusals.wait_count("running_statements", dropped) == 0


def wait_for_ends(sockets: list[socket.socket], count: int) -> None:
    """Wait until the server has ended so many: which are oldest, only it can say."""
    with selectors.DefaultSelector() as selector:
        for each in sockets:
            selector.register(each, selectors.EVENT_READ)
        while count:
            for key, _ in selector.select():
                try:
                    is_open = bool(cast(socket.socket, key.fileobj).recv(4_096))
                except ConnectionError:
                    is_open = False
                if not is_open:
                    selector.unregister(key.fileobj)
                    count -= 1


def test_shares_of_addresses_are_rows_and_metrics_on_every_port() -> None:
    pytest.importorskip("grpc")
    few = {"logins_max": 4, "logins_of_address_max": 3}
    with running_server(login_timeout_s=60, **few) as server, ExitStack() as opened:
        grpc_port = int(server.grpc_url.rpartition(":")[2])
        http_port = server.call(lambda: server.server.start_http("127.0.0.1", 0))

        def connect_silently(port: int, count: int) -> list[socket.socket]:
            address = ("127.0.0.1", port)
            return [opened.enter_context(socket.create_connection(address)) for _ in range(count)]

        for name, port, share, shares in (
            ("logins", server.port, 3, 4),
            ("grpc_unauthenticated", grpc_port, 3, 4),
            ("http_requests", http_port, 32, 64),
        ):
            wait_for_ends(connect_silently(port, share + 2), 2)
            found = limits_of(server)
            of_address = f"{name}_of_address_max"
            assert found[of_address, ""] == LimitRow(of_address, "", share, share, refused=2)
            assert found[f"{name}_max", ""] == LimitRow(f"{name}_max", "", shares, share)
            refused = samples_of(server)["herdpy_limit_refused_total", of_address, "server"]
            assert refused == 2
        of_address = "grpc_first_messages_of_address_max"
        assert limits_of(server)[of_address, ""] == LimitRow(of_address, "", 3, 0)
        hub = server.server._hub
        hub.reload(replace(hub.config, logins_max=9, logins_of_address_max=8))
        for name in ("logins", "grpc_unauthenticated", "grpc_first_messages"):
            assert limits_of(server)[f"{name}_max", ""].share == 9
            assert limits_of(server)[f"{name}_of_address_max", ""].share == 8
        assert limits_of(server)["http_requests_of_address_max", ""].share == 32


def test_lines_of_logs_that_are_lost_are_counted(server: RunningServer) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    log, audit = (
        LineWriter(descriptor, name=name, bytes_max=100, loss_line=lambda _: b"lost\n")
        for name in ("log", "audit")
    )
    server.server._hub.lines = (log, audit)
    assert audit.put(b"cannot be written\n")
    assert not audit.put(b"x" * 200)
    audit.flush()
    assert limits_of(server)["audit_waiting_bytes", ""] == ("audit_waiting_bytes", "", 100, 0, 2, 0)
    assert limits_of(server)["log_waiting_bytes", ""].refused == 0
    found = samples_of(server)
    assert found["herdpy_lines_lost_total", "audit"] == 2
    assert found["herdpy_lines_lost_total", "log"] == 0
    assert found["herdpy_limit_refused_total", "audit_waiting_bytes", "server"] == 2
    audit.close()
    os.close(descriptor)


def test_who_waits_for_a_worker_is_shown_with_who_has_them(server: RunningServer) -> None:
    busy = [log_in(server, "ann") for _ in range(WORKERS)]
    root, waiter = log_in(server, "root"), log_in(server, "ann")
    query = "SELECT id FROM sysclients WHERE user_name = 'ann' ORDER BY id"
    numbers = [number for (number,) in root.execute(query).fetchall()]
    hub = server.server._hub
    with slow_statements(server, [*busy, waiter]):
        found = waits_of(server)
        while not found or len(found[0].held_by) < WORKERS:
            found = waits_of(server)
        while limits_of(server)["workers", ""].used != WORKERS:
            pass
        (waiting,) = found
        assert (waiting.waits_for, waiting.statement) == ("worker", None)
        assert sorted((waiting.session, *waiting.held_by)) == numbers
        [(client, held_by)] = root.execute("SELECT client_id, held_by FROM syswaits").fetchall()
        assert (client, held_by) == (waiting.session, ", ".join(map(str, waiting.held_by)))
        while (reason := hub.reason_not_ready()) is None:
            pass
        assert f"the longest running are of sessions {held_by} " in reason
        assert "ann" not in reason
        for number in waiting.held_by:
            root.execute(f"KILL CONNECTION {number}")
        while hub.reason_not_ready() is not None:
            pass
    for each in (*busy, root, waiter):
        each.close()


def test_statements_that_end_while_they_are_looked_at_are_in_nobodys_way(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = [log_in(server, "ann") for _ in range(WORKERS)]
    with slow_statements(server, busy):
        while len(worker_holders(server.server._hub)) < WORKERS:
            pass
        looks: Counter[ServerConnection] = Counter()
        right = ServerConnection.begun_s

        def once(connection: ServerConnection) -> float | None:
            looks[connection] += 1
            has_ended = looks[connection] > 1 and connection is next(iter(looks))
            return None if has_ended else right.__get__(connection)

        monkeypatch.setattr(ServerConnection, "begun_s", property(once))
        assert len(worker_holders(server.server._hub)) == WORKERS
    for each in busy:
        each.close()


def test_who_waits_for_its_turn_is_shown_with_who_has_it(server: RunningServer) -> None:
    with log_in(server, "root") as root:
        root.execute("ALTER ROLE ann SET MAXIMUM running_statements = 1")
        several = [log_in(server, "ann") for _ in range(3)]
        with slow_statements(server, several):
            while len(found := waits_of(server)) != 2:
                pass
            assert {row.waits_for for row in found} == {"turn"}
            while not found[0].held_by:
                found = waits_of(server)
            (holder,) = set(found[0].held_by)
            assert holder not in {row.session for row in found}
            row = limits_of(server)["running_statements", "ann"]
            assert (row.share, row.used) == (1, 1)
            assert row.waits >= 2
    for each in several:
        each.close()
