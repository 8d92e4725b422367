"""A server's pages, counters and slow-statement log."""

import http.client
import json
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

import herdpy
from herdpy.engine.maintenance.tasks import MaintenanceTask, Retries
from herdpy.proto import messages
from herdpy.server.operations import watch
from herdpy.server.operations.metrics import kind_of
from tests.fixtures.servers import RunningServer, running_server
from tests.sim.clock import SimulatedClock

DatabaseStats = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server() as running:
        yield running


class Pages:
    """The HTTP side of a server."""

    def __init__(self, server: RunningServer) -> None:
        self._port = server.call(lambda: server.server.start_http("127.0.0.1", 0))

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def figures(self) -> DatabaseStats:
        status, text = self.get("/metrics")
        assert status == 200
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def named(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_probes(server: RunningServer) -> None:
    pages = Pages(server)
    assert pages.get("/livez") == (200, "OK\n")
    assert pages.get("/readyz?max_lag=5") == (200, "OK\n")
    assert pages.get("/") == (404, "/livez /readyz /status /metrics\n")
    server.call(lambda: server.server.drain(0))
    assert pages.get("/livez") == (200, "OK\n")
    assert pages.get("/readyz") == (503, "the server is shutting down\n")
    assert json.loads(pages.get("/status")[1])["is_draining"] is True


def test_not_ready_once_nothing_can_be_written(server: RunningServer) -> None:
    pages = Pages(server)
    server.engine.database.tablespace.stop(herdpy.OperationalError("broken on purpose"))
    status, text = pages.get("/readyz")
    assert status == 503
    assert "OperationalError (SQLSTATE 58000)" in text
    assert "broken on purpose" not in text + pages.get("/status")[1], "these pages are open to all"
    assert pages.figures()[named("herdpy_ready")] == 0


def test_ready_while_background_work_fails_and_says_so(server: RunningServer) -> None:
    pages, database = Pages(server), server.engine.database
    clock = SimulatedClock()
    database.retries = Retries(clock)  # of no thread but this one

    def fail() -> None:
        raise herdpy.OperationalError("no room for t, key 5")

    database.retries.run([MaintenanceTask("a checkpoint", fail)])
    told = "OK, but background work fails and is tried again: a checkpoint (see sysmaintenance)\n"
    assert pages.get("/readyz") == (200, told)
    names = [f"session {number}" for number in range(7)]
    database.retries.run([MaintenanceTask(name, fail) for name in names])
    assert pages.get("/readyz")[1].endswith("session 4 and 2 more (see sysmaintenance)\n")
    clock.advance(60)
    database.retries.run([MaintenanceTask("a checkpoint", lambda: None)])
    assert pages.get("/readyz") == (200, "OK\n")


def test_the_log_knows_of_what_nobody_was_told(caplog: pytest.LogCaptureFixture) -> None:
    """No statement runs, and no page is looked at."""
    caplog.set_level(logging.INFO, logger="herdpy.server.operations.watch")
    with running_server() as server:
        database, look = server.engine.database, server.server._watch._look

        async def look_twice() -> None:
            look()
            look()

        database.replica.checkpoint_error = herdpy.OperationalError("no room for t, key 5")
        server.call(look_twice)
        database.replica.checkpoint_error = None
        server.call(look_twice)
        database.tablespace.stop(herdpy.OperationalError("broken on purpose"))
        server.call(look_twice)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "checkpoints fail: no room for t, key 5"),
        ("INFO", "checkpoints succeed again"),
        ("ERROR", "the database stopped: broken on purpose"),
    ]


def test_the_log_is_told_without_being_asked(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "STEP_S", 0.001)
    told = threading.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    logger, handler = logging.getLogger("herdpy.server.operations.watch"), Told()
    logger.addHandler(handler)
    try:
        with running_server() as server:
            server.engine.database.tablespace.stop(herdpy.OperationalError("broken on purpose"))
            assert told.wait(60)
    finally:
        logger.removeHandler(handler)


def test_status(server: RunningServer) -> None:
    pages = Pages(server)
    with herdpy.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE secret_name (id BIGINT PRIMARY KEY)")
        connection.execute("INSERT INTO secret_name VALUES (?)", (1,))
        status, text = pages.get("/status")
    assert status == 200
    assert "secret_name" not in text
    assert "127.0.0.1" not in text
    found = json.loads(text)
    assert found["is_ready"] is True
    assert found["reason"] is None
    assert found["connections"] == {"tcp": 1, "grpc": 0}
    assert found["database"]["tables"] == 1
    assert found["database"]["memtable_rows"] == 1
    assert found["limits"]["connections_max"] == 50


def test_statements_are_counted(server: RunningServer) -> None:
    pages = Pages(server)
    with herdpy.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        for number in range(3):
            connection.execute("INSERT INTO t VALUES (?)", (number,))
        for _ in range(5):
            connection.execute("SELECT id FROM t WHERE id = ?", (1,)).fetchall()
        for text in ("SELECT nothing FROM t", "INSERT INTO t VALUES (1)"):
            with pytest.raises(herdpy.Error):
                connection.execute(text)
        connection.execute("BEGIN")
        connection.execute("DELETE FROM t")
        connection.commit()
        server.engine.database.run_checkpoint()
        found = pages.figures()
    count = "herdpy_statements_total"
    assert found[named(count, kind="ddl", outcome="ok")] == 1
    assert found[named(count, kind="insert", outcome="ok")] == 3
    assert found[named(count, kind="insert", outcome="23")] == 1
    assert found[named(count, kind="select", outcome="ok")] == 5
    assert found[named(count, kind="select", outcome="42")] == 1
    assert found[named(count, kind="delete", outcome="ok")] == 1
    assert found[named(count, kind="commit", outcome="ok")] == 1
    assert found[named("herdpy_statement_duration_seconds_count", kind="insert")] == 4
    assert found[named("herdpy_commit_duration_seconds_count")] == 5
    assert found[named("herdpy_log_append_duration_seconds_count")] >= 5
    assert found[named("herdpy_checkpoint_duration_seconds_count")] == 1
    assert found[named("herdpy_checkpoint_last_success_timestamp_seconds")] > 1e9
    assert found[named("herdpy_log_entries_total")] >= 5
    assert found[named("herdpy_connections", protocol="tcp")] == 1
    assert found[named("herdpy_ready")] == 1


def test_names_are_as_prometheus_wants_them(server: RunningServer) -> None:
    units = ("_total", "_seconds", "_bytes", "_bucket", "_count", "_sum", "_info")
    gauges = {
        "herdpy_connections", "herdpy_transactions_active", "herdpy_statements_active",
        "herdpy_statements_waiting", "herdpy_statements_waiting_for_locks", "herdpy_results_open",
        "herdpy_tables", "herdpy_pages",
        "herdpy_memtable_rows", "herdpy_checkpoint_failing", "herdpy_ready", "herdpy_leases",
        "herdpy_disk_full",
        "herdpy_limit_share", "herdpy_limit_used", "herdpy_waiting", "herdpy_maintenance_failing",
            "herdpy_tablespace_ready", "herdpy_tablespace_sessions",
            "herdpy_tablespace_maintenance_failing",
            "herdpy_tablespace_limit_share", "herdpy_tablespace_limit_used",
    }  # fmt: skip
    for name, _ in Pages(server).figures():
        assert name.startswith("herdpy_")
        assert name.endswith(units) or name in gauges, name


def test_metrics_of_many_tablespaces_are_made_beside_the_loop(server: RunningServer) -> None:
    with herdpy.connect(server.url, autocommit=True) as connection:
        for number in range(5):
            connection.execute(f"CREATE TABLESPACE tenant_{number}")
        others = "SELECT id FROM systablespaces WHERE tablespace <> 'default'"
        ids = {label for (label,) in connection.execute(others).fetchall()}
    measured: list[tuple[str, int]] = []

    def measure(name: str) -> int:
        measured.append((name, threading.get_ident()))
        return 0

    databases = server.engine.database.instance.tablespaces.databases()
    for database in databases:
        database.memory.memtables.measure = partial(measure, database.name)

    async def thread() -> int:
        return threading.get_ident()

    pages = Pages(server)
    found = pages.figures()
    assert server.call(thread) not in {where for _, where in measured}
    times = Counter(name for name, _ in measured)
    assert set(times.values()) == {3}  # by the limits, the accounts and the tablespaces
    labels = {dict(labels).get("tablespace") for _, labels in found}
    assert labels == ids | {"default", None}
    assert "tenant" not in pages.get("/metrics")[1]


def test_metrics_by_other_methods(server: RunningServer) -> None:
    port = server.call(lambda: server.server.start_http("127.0.0.1", 0))
    for method, status in (("HEAD", 200), ("POST", 405)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(method, "/metrics")
        assert connection.getresponse().status == status
        connection.close()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT 1", "select"),
        ("  select 1", "select"),
        ("with a as (select 1) select * from a", "select"),
        ("(SELECT 1)", "select"),
        ("VALUES(1)", "select"),
        ("insert into t values (1)", "insert"),
        ("Upsert into t values (1)", "upsert"),
        ("DROP TABLE t", "ddl"),
        ("ALTER USER a", "ddl"),
        ("GRANT SELECT ON t TO a", "ddl"),
        ("BEGIN", "begin"),
        ("begin;", "begin"),
        ("COMMIT", "commit"),
        ("END", "commit"),
        ("rollback", "rollback"),
        ("KILL 5", "kill"),
        ("SET a = 1", "set"),
        ("-- a comment\nSELECT 1", "other"),
        ("nonsense", "other"),
        ("", "other"),
        ("\u00e9" * 100, "other"),
    ],
)
def test_kinds(text: str, kind: str) -> None:
    assert kind_of(messages.Execute(1, text, None)) == kind


def test_kinds_of_other_requests() -> None:
    assert kind_of(messages.Commit(1)) == "commit"
    assert kind_of(messages.Fetch(1, 1, 1, is_arrow=False)) == "fetch"
    assert kind_of(messages.ListTables(1)) == "other"


def test_slow_statements_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with running_server(slow_statement_s=1e-9) as server:
        pages = Pages(server)
        with caplog.at_level(logging.WARNING), herdpy.connect(server.url) as connection:
            with pytest.raises(herdpy.Error):
                connection.execute("SELECT nothing WHERE 'x' = ?", ("a parameter",))
            with pytest.raises(herdpy.Error):
                connection.execute("CREATE NOBODY x PASSWORD 'geheim'")
            (address,) = connection.execute("SELECT address FROM sysclients").fetchone()
        assert pages.figures()[named("herdpy_slow_statements_total")] >= 3
    found = [record.fields for record in caplog.records if record.message == "slow statement"]
    first = found[0]
    assert first["statement"] == "SELECT nothing WHERE 'x' = ?"
    assert (first["kind"], first["sqlstate"]) == ("select", "42703")
    assert first["duration_s"] >= first["waited_s"] >= 0
    assert first["peer"] == address
    assert found[1]["statement"] == "CREATE NOBODY x PASSWORD ***"
    assert "geheim" not in caplog.text
    assert "a parameter" not in caplog.text


def test_fast_statements_are_not(caplog: pytest.LogCaptureFixture) -> None:
    for slow_s in (0, 86_400):
        with (
            running_server(slow_statement_s=slow_s) as server,
            herdpy.connect(server.url) as connection,
        ):
            connection.execute("SELECT 1").fetchall()
    assert "slow" not in caplog.text
