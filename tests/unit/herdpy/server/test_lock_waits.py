"""Statements that wait for a lock: without a worker, in order, and ended at once."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import herdpy
from herdpy.errors import Error
from tests.fixtures.engines import Background
from tests.fixtures.servers import RunningServer, busy_workers, running_server

WORKERS = 2
WAITERS = 20  # of WORKERS workers


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(connections_max=200, workers=WORKERS, waiting_max=0) as running:
        with connected(running.url) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            connection.execute("CREATE TABLE log (n BIGINT PRIMARY KEY, v BIGINT)")
            connection.execute("INSERT INTO t VALUES (1, 0), (2, 0)")
        yield running


@pytest.fixture(params=["tcp", "grpc"])
def url(request: pytest.FixtureRequest, server: RunningServer) -> str:
    return server.url if request.param == "tcp" else server.grpc_url


def connected(url: str, **options: Any) -> herdpy.Connection:
    return herdpy.connect(f"{url}/?retry_timeout_s=0", autocommit=True, **options)


def parked(server: RunningServer) -> int:
    return server.server._workers.parked_count


def until_parked(server: RunningServer, count: int) -> None:
    while parked(server) != count:
        pass


class Failing(Background):
    """One call in a thread; `error` is what it raised."""

    error: Error | None = None

    def call(self, function: Callable[[], object]) -> None:
        def run() -> None:
            try:
                function()
            except Error as error:
                self.error = error

        self.start(run)


def test_others_go_on_while_many_wait_and_all_end_in_order(server: RunningServer, url: str) -> None:
    holder = herdpy.connect(server.url)
    holder.execute("UPDATE t SET v = 1 WHERE id = 1")
    waiters = [connected(url) for _ in range(WAITERS)]
    ended: list[int] = []
    with Background() as background:
        for number, waiter in enumerate(waiters):

            def update(number: int = number, waiter: herdpy.Connection = waiter) -> None:
                waiter.execute("UPDATE t SET v = v * 2 + ? WHERE id = 1", (number % 2,))
                ended.append(number)

            background.start(update)
            until_parked(server, number + 1)
        with connected(url) as other:
            shown = other.execute("SELECT text FROM sysstatements").fetchall()
            assert sum("v * 2" in text for (text,) in shown) == WAITERS
            assert other.execute("SELECT v FROM t WHERE id = ?", (2,)).fetchone() == (0,)
            other.execute("BEGIN")
            other.execute("UPDATE t SET v = 7 WHERE id = 2")
            other.execute("COMMIT")
        holder.rollback()
    bits = "".join(str(number % 2) for number in range(WAITERS))
    with connected(server.url) as other:
        assert other.execute("SELECT v FROM t ORDER BY id").fetchall() == [(int(bits, 2),), (7,)]
    assert sorted(ended) == list(range(WAITERS))
    assert parked(server) == 0
    assert server.server._hub.received.used == 0
    for each in (holder, *waiters):
        each.close()


def kill_statement(server: RunningServer, waiter: herdpy.Connection) -> None:
    with connected(server.url) as root:
        query = "SELECT id FROM sysstatements WHERE text LIKE 'UPDATE%'"
        (number,) = root.execute(query).fetchone() or (0,)
        root.execute(f"KILL STATEMENT {number}")


def kill_connection(server: RunningServer, waiter: herdpy.Connection) -> None:
    with connected(server.url) as root:
        query = "SELECT client_id FROM sysstatements WHERE text LIKE 'UPDATE%'"
        (number,) = root.execute(query).fetchone() or (0,)
        root.execute(f"KILL CONNECTION {number}")


def cancel(server: RunningServer, waiter: herdpy.Connection) -> None:
    waiter.cancel()


@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize(
    ("end", "sqlstate"),
    [(kill_statement, "57014"), (kill_connection, "57P01"), (cancel, "57014")],
)
def test_a_wait_is_ended_at_once_while_all_workers_compute(
    server: RunningServer,
    url: str,
    end: Callable[[RunningServer, herdpy.Connection], None],
    sqlstate: str,
    *,
    is_inside: bool,
) -> None:
    holder = herdpy.connect(server.url)
    holder.execute("UPDATE t SET v = 1 WHERE id = 1")
    waiter = connected(url)
    if is_inside:
        waiter.execute("BEGIN")
        waiter.execute("UPDATE t SET v = 3 WHERE id = 2")
    with Failing() as background:
        background.call(lambda: waiter.execute("UPDATE t SET v = 2 WHERE id = 1"))
        until_parked(server, 1)
        with busy_workers(server):
            end(server, waiter)
            background.join()
    assert background.error is not None
    assert background.error.sqlstate == sqlstate
    holder.commit()
    if sqlstate == "57014":
        if is_inside:
            waiter.execute("COMMIT")
        assert waiter.execute("SELECT v FROM t WHERE id = 1").fetchone() == (1,)
    waiter.close()
    holder.close()


@pytest.mark.parametrize(
    ("option", "sqlstate"), [("lock_timeout", "55P03"), ("statement_timeout", "57014")]
)
def test_a_wait_ends_by_its_time_out(
    server: RunningServer, url: str, option: str, sqlstate: str
) -> None:
    holder = herdpy.connect(server.url)
    holder.execute("UPDATE t SET v = 1 WHERE id = 1")
    with connected(url) as waiter:
        waiter.execute(f"SET {option} = '20ms'")
        with pytest.raises(Error) as caught:
            waiter.execute("UPDATE t SET v = 2 WHERE id = 1")
        assert caught.value.sqlstate == sqlstate
        assert waiter.execute("SELECT v FROM t WHERE id = 1").fetchone() == (0,)
    assert parked(server) == 0
    holder.close()


def test_a_connection_that_is_lost_waits_no_more(server: RunningServer, url: str) -> None:
    holder = herdpy.connect(server.url)
    holder.execute("UPDATE t SET v = 1 WHERE id = 1")
    waiter = connected(url)
    with Failing() as background:
        background.call(lambda: waiter.execute("UPDATE t SET v = 2 WHERE id = 1"))
        until_parked(server, 1)
        connections = list(server.server._hub.connections)

        async def lose() -> None:
            connections[-1].connection_lost(None)

        server.call(lose)
        until_parked(server, 0)
        holder.commit()
        waiter.close()
    assert holder.execute("SELECT v FROM t WHERE id = 1").fetchone() == (1,)
    holder.close()


def in_a_pipeline(connection: herdpy.Connection) -> None:
    with connection.pipeline() as pipeline:
        pipeline.execute("INSERT INTO log VALUES (1, 1)")
        pipeline.execute("UPDATE t SET v = v + 10 WHERE id = 1")
        pipeline.execute("UPDATE t SET v = v + 10 WHERE id = 1")
        pipeline.execute("INSERT INTO log VALUES (2, 2)")


def by_executemany(connection: herdpy.Connection) -> None:
    connection.executemany("UPDATE t SET v = v + ? WHERE id = 1", [(10,), (10,)])


def by_upserts(connection: herdpy.Connection) -> None:
    connection.executemany("UPSERT INTO t VALUES (?, ?)", [(3, 0), (1, 21)])


def inside_a_transaction(connection: herdpy.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("INSERT INTO log VALUES (1, 1)")
    connection.execute("UPDATE t SET v = v + 20 WHERE id = 1")
    connection.execute("COMMIT")


def by_ingest(connection: herdpy.Connection) -> None:
    connection.ingest("t", pa.table({"id": [1], "v": [21]}), mode="upsert")


def by_a_large_ingest(connection: herdpy.Connection) -> None:
    ids = range(1, 30_000)
    connection.ingest("t", pa.table({"id": ids, "v": [21] * len(ids)}), mode="upsert")


def by_explain(connection: herdpy.Connection) -> None:
    connection.execute("EXPLAIN ANALYZE UPDATE t SET v = v + 20 WHERE id = 1").fetchall()


@pytest.mark.parametrize(
    "write",
    [
        in_a_pipeline, by_executemany, by_upserts, inside_a_transaction, by_ingest,
        by_a_large_ingest, by_explain,
    ],
)  # fmt: skip
def test_every_way_to_write_waits_and_happens_once(
    server: RunningServer, url: str, write: Callable[[herdpy.Connection], None]
) -> None:
    holder = herdpy.connect(server.url)
    holder.execute("UPDATE t SET v = 1 WHERE id = 1")
    with connected(url) as waiter, Background() as background:
        background.start(lambda: write(waiter))
        until_parked(server, 1)
        holder.commit()
    assert holder.execute("SELECT v FROM t WHERE id = 1").fetchone() == (21,)
    log = holder.execute("SELECT n FROM log ORDER BY n").fetchall()
    expected = {in_a_pipeline: [(1,), (2,)], inside_a_transaction: [(1,)]}
    assert log == expected.get(write, [])
    assert server.server._hub.parameters.used == 0
    assert not server.engine.locks or holder.in_transaction
    holder.close()


@pytest.mark.parametrize(
    "text",
    ["DROP TABLE t", "TRUNCATE t", "ALTER TABLE t OWNER TO ann", "GRANT SELECT ON t TO ann"],
)
def test_definitions_wait_for_definitions(server: RunningServer, url: str, text: str) -> None:
    with connected(server.url) as root:
        root.execute("CREATE USER ann")
    holder = herdpy.connect(server.url)
    holder.execute("GRANT INSERT ON t TO ann")
    with connected(url) as waiter, Background() as background:
        background.start(lambda: waiter.execute(text))
        until_parked(server, 1)
        holder.commit()
    holder.close()
    assert not server.engine.locks


def test_a_staging_commit_waits_for_writers(server: RunningServer) -> None:
    holder = herdpy.connect(server.url)
    holder.execute("UPDATE t SET v = 1 WHERE id = 1")
    with connected(server.url) as waiter, Background() as background:
        job = waiter.begin_staging("t", operation="upsert")
        stage = waiter.stage(job, 0)
        stage.add(pa.table({"id": [1], "v": [5]}))
        staged = stage.finish()
        background.start(lambda: waiter.commit_staging(job, [staged]))
        until_parked(server, 1)
        holder.commit()
    assert holder.execute("SELECT v FROM t WHERE id = 1").fetchone() == (5,)
    holder.close()


def test_a_deadlock_among_waiters_is_found(server: RunningServer) -> None:
    one, two = herdpy.connect(server.url), herdpy.connect(server.url)
    one.execute("UPDATE t SET v = 1 WHERE id = 1")
    two.execute("UPDATE t SET v = 2 WHERE id = 2")
    with Background() as background:
        background.start(lambda: one.execute("UPDATE t SET v = 1 WHERE id = 2"))
        until_parked(server, 1)
        with pytest.raises(Error) as caught:
            two.execute("UPDATE t SET v = 2 WHERE id = 1")
        assert caught.value.sqlstate == "40P01"
    one.commit()
    two.rollback()
    assert one.execute("SELECT v FROM t").fetchall() == [(1,), (1,)]
    one.close()
    two.close()


def test_a_killed_transaction_that_waits_lets_its_locks_go(server: RunningServer) -> None:
    holder, waiter = herdpy.connect(server.url), herdpy.connect(server.url)
    holder.execute("UPDATE t SET v = 1 WHERE id = 1")
    waiter.execute("UPDATE t SET v = 2 WHERE id = 2")
    with Failing() as background:
        background.call(lambda: waiter.execute("UPDATE t SET v = 2 WHERE id = 1"))
        until_parked(server, 1)
        kill_connection(server, waiter)
        holder.execute("UPDATE t SET v = 1 WHERE id = 2")  # waits for no lock
        holder.commit()
    waiter.close()
    holder.close()


def test_received_memory_bounds_what_waits() -> None:
    mib = 1024 * 1024
    with running_server(workers=2, request_bytes_max=mib) as server:
        with connected(server.url) as root:
            root.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            root.execute("INSERT INTO t VALUES (1, '')")
        holder = herdpy.connect(server.url)
        holder.execute("UPDATE t SET v = 'x' WHERE id = 1")
        two = connected(server.url)
        with connected(server.url) as one, Failing() as background:
            big = "y" * (700 * 1024)
            background.call(lambda: one.execute("UPDATE t SET v = ? WHERE id = 1", (big,)))
            until_parked(server, 1)
            with pytest.raises(Error) as caught:
                two.execute("UPDATE t SET v = ? WHERE id = 1", (big,))
            assert caught.value.sqlstate == "53200"
            holder.rollback()
            background.join()
            assert background.error is None
        assert server.server._hub.received.used == 0
        two.close()
        holder.close()


# --- what is kept for superusers ------------------------------------------------------------------


def test_superusers_see_and_kill_while_all_workers_compute(server: RunningServer) -> None:
    with connected(server.url) as root:
        root.execute("CREATE USER root PASSWORD 'secret-1' SUPERUSER")
        root.execute("CREATE USER ann PASSWORD 'secret-2'")
        root.execute("GRANT SELECT ON t TO ann")
    at = server.url.removeprefix("herd://")
    root = connected(f"herd://root@{at}", password="secret-1")
    ann = connected(f"herd://ann@{at}", password="secret-2")
    point_read = "SELECT v FROM t WHERE id = ?"
    assert ann.execute(point_read, (1,)).fetchone() == (0,)
    with busy_workers(server):
        assert ann.execute(point_read, (1,)).fetchone() == (0,)
        for connection in (root, ann):
            with pytest.raises(Error) as caught:
                connection.execute("SELECT sum(v) FROM t")
            assert caught.value.sqlstate == "53000"
        with pytest.raises(Error) as caught:
            ann.execute("SELECT name FROM sysroles")
        assert caught.value.sqlstate == "53000"
        with connected(f"herd://root@{at}", password="secret-1") as another:
            query = "SELECT id FROM sysclients WHERE user_name = 'ann'"
            (number,) = another.execute(query).fetchone() or (0,)
            another.execute(f"KILL CONNECTION {number}")
            with pytest.raises(Error) as caught:
                another.execute("SELECT nothing FROM sysclients")
            assert caught.value.sqlstate == "42703"
        grpc_at = server.grpc_url.removeprefix("herd+grpc://")
        with connected(f"herd+grpc://root@{grpc_at}", password="secret-1") as another:
            assert another.execute("SELECT count(*) FROM sysstatements").fetchone() is not None
    root.close()
    ann.close()


def test_the_last_connections_are_superusers() -> None:
    with running_server(connections_max=3, superuser_reserved_connections=2) as server:
        with connected(server.url) as root:
            root.execute("CREATE USER root PASSWORD 'secret-1' SUPERUSER")
            root.execute("CREATE USER ann PASSWORD 'secret-2'")
        at = server.url.removeprefix("herd://")
        opened = [connected(f"herd://ann@{at}", password="secret-2")]
        with pytest.raises(Error) as caught:
            connected(f"herd://ann@{at}", password="secret-2")
        assert caught.value.sqlstate == "53300"
        assert "superusers" in caught.value.message
        opened += [connected(f"herd://root@{at}", password="secret-1") for _ in range(2)]
        with pytest.raises(Error) as caught:
            connected(f"herd://root@{at}", password="secret-1")
        assert caught.value.sqlstate == "53300"
        for each in opened:
            each.close()


def test_the_last_places_are_no_other_tablespace_s(server: RunningServer) -> None:
    """Its superusers may be as many as there are tenants."""
    with connected(server.url) as root:
        root.execute("CREATE USER root PASSWORD 'secret-1' SUPERUSER")
        root.execute("CREATE TABLESPACE sales OWNER root")
    at = server.url.removeprefix("herd://")

    def of_sales() -> herdpy.Connection:
        url = f"herd://root@{at}/sales?retry_timeout_s=0"
        return herdpy.connect(url, password="secret-1", autocommit=True)

    tenant, root = of_sales(), connected(f"herd://root@{at}", password="secret-1")
    with busy_workers(server):
        assert root.execute("SELECT count(*) FROM sysclients").fetchone() == (2,)
        with pytest.raises(Error) as caught:
            tenant.execute("SELECT count(*) FROM sysclients")
        assert caught.value.sqlstate == "53000"
    instance = server.engine.database.instance
    holders = {
        session.database.name: session.planner.holder().is_administrator
        for session in instance.tablespaces.sessions()
    }
    assert holders == {"default": True, "sales": False}
    opened = [tenant, root]
    config = server.server._hub.config
    usual_count = config.connections_max - config.superuser_reserved_connections
    opened += [of_sales() for _ in range(usual_count - 2)]
    with pytest.raises(Error) as caught:
        of_sales()
    assert caught.value.sqlstate == "53300"
    assert "superusers of default" in caught.value.message
    opened += [connected(f"herd://root@{at}", password="secret-1") for _ in range(3)]
    for each in opened:
        each.close()


def test_a_product_of_system_tables_keeps_no_reserved_worker(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("herdpy.server.connection.RESERVED_S", 0.1)
    with connected(server.url) as root:
        for number in range(20):
            root.execute(f"CREATE ROLE r{number}")
        many = ", ".join(f"sysroles r{number}" for number in range(9))
        with busy_workers(server):
            with pytest.raises(Error) as caught:
                root.execute(f"SELECT count(*) FROM {many} WHERE r0.role_name > r8.role_name")
            assert caught.value.sqlstate == "53000"  # as what asks for another table
            assert root.execute("SELECT count(*) FROM sysroles").fetchone() == (20,)


def test_a_server_whose_reserved_workers_are_held_is_not_ready(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, workers, is_over = server.server._hub, server.server._workers, threading.Event()
    now_s = hub.clock.monotonic()
    monkeypatch.setattr(workers.pool, "_clock", type("Fixed", (), {"monotonic": lambda _: now_s})())

    async def submit() -> None:
        workers.submit_reserved(is_over.wait)

    for _ in range(hub.config.superuser_reserved_connections):
        server.call(submit)
    now_s += 2
    assert hub.reason_not_ready() is None
    server.call(submit)
    now_s += 1.1
    assert "no reserved worker came free for 1 s" in (hub.reason_not_ready() or "")
    is_over.set()
    while hub.reason_not_ready() is not None:
        pass


def test_a_starved_pool_is_not_ready(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, workers, is_over = server.server._hub, server.server._workers, threading.Event()
    now_s = hub.clock.monotonic()
    monkeypatch.setattr(workers.pool, "_clock", type("Fixed", (), {"monotonic": lambda _: now_s})())
    with busy_workers(server):
        assert hub.reason_not_ready() is None

        async def submit() -> None:
            workers.submit(is_over.wait, is_urgent=False)

        server.call(submit)
        now_s += 0.9
        assert hub.reason_not_ready() is None
        now_s += 0.2
        reason = hub.reason_not_ready()
        assert reason is not None
        assert "no worker came free for 1 s: 2 statements run, 1 wait" in reason
        is_over.set()
    while hub.workers.waiting_count:
        pass
    assert hub.reason_not_ready() is None
