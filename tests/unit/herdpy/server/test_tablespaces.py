"""Several tablespaces behind one port: whose user gets into which, by every way in."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

import herdpy
from bookie.runtime.memory_disk import MemoryDisk
from herdpy.model.settings import Settings
from herdpy.proto import herdpy_pb2 as pb
from tests.fixtures.engines import Engine
from tests.fixtures.grpc_clients import error_of, grpc_client
from tests.fixtures.servers import RunningServer, running_server
from tests.unit.herdpy.server.grpc.test_grpc_logins import basic, bearer

SETUP = (
    "CREATE USER ada PASSWORD 'of default' SUPERUSER",
    "CREATE USER bob PASSWORD 'of default'",
    "CREATE TABLESPACE sales OWNER ada",
    "CREATE TABLESPACE without_users",
)


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(login_failure_delay_s=0) as running:
        do(running.engine, *SETUP)
        do(
            running.engine,
            "ALTER USER ada PASSWORD 'of sales'",
            "CREATE USER bob PASSWORD 'of sales'",
            "CREATE TABLE t (v TEXT)",
            "INSERT INTO t VALUES ('sales')",
            "GRANT SELECT ON t TO bob",
            tablespace="sales",
        )
        yield running


def do(engine: Engine, *texts: str, tablespace: str = "default") -> None:
    database = engine.database.instance.database(tablespace)
    session = database.session(Settings(), autocommit=True)
    for text in texts:
        session.execute(text).close()
    session.close()


def url_of(server: RunningServer, user: str, tablespace: str) -> str:
    at = f"{user}@" if user else ""
    return f"herd://{at}127.0.0.1:{server.port}/{tablespace}"


def test_a_user_is_one_of_a_tablespace(server: RunningServer) -> None:
    for tablespace in ("default", "sales"):
        url = url_of(server, "bob", tablespace)
        with herdpy.connect(url, password=f"of {tablespace}", autocommit=True) as connection:
            tables = [row[0] for row in connection.execute("SHOW TABLES").fetchall()]
            assert tables == (["t"] if tablespace == "sales" else [])
        wrong = "of default" if tablespace == "sales" else "of sales"
        with pytest.raises(herdpy.OperationalError) as refused:
            herdpy.connect(url, password=wrong)
        assert refused.value.sqlstate == "28P01"


def test_beside_the_url(server: RunningServer) -> None:
    url = f"herd://bob@127.0.0.1:{server.port}"
    with herdpy.connect(url, password="of sales", tablespace="sales") as connection:
        assert connection.execute("SELECT v FROM t").fetchall() == [("sales",)]
    with pytest.raises(herdpy.InterfaceError, match="Name it once"):
        herdpy.connect(f"{url}/default2", password="of sales", tablespace="sales")


@pytest.mark.parametrize("tablespace", ["missing", "without_users"])
def test_what_has_no_users_takes_no_login_and_does_not_say_why(
    server: RunningServer, tablespace: str
) -> None:
    with pytest.raises(herdpy.OperationalError) as refused:
        herdpy.connect(url_of(server, "ada", tablespace), password="of default")
    assert refused.value.sqlstate == "28P01"
    with pytest.raises(herdpy.OperationalError) as refused:
        herdpy.connect(url_of(server, "", tablespace))
    assert refused.value.sqlstate == "28000"


def test_a_server_without_users_says_which_there_are() -> None:
    with running_server() as server:
        do(server.engine, "CREATE TABLESPACE sales")
        with herdpy.connect(url_of(server, "", "sales")) as connection:
            connection.execute("CREATE TABLE t (id BIGINT)")
        with pytest.raises(herdpy.OperationalError, match="does not exist") as refused:
            herdpy.connect(url_of(server, "", "sale"))
        assert refused.value.sqlstate == "3D000"
        assert "sales" in (refused.value.hint or "")


def test_statements_by_the_network(server: RunningServer) -> None:
    url = url_of(server, "ada", "default")
    with herdpy.connect(url, password="of default", autocommit=True) as connection:
        connection.execute("CREATE TABLESPACE third WITH (connections_max = 1)")
        third = url_of(server, "ada", "third")
        with herdpy.connect(third, password="of default", autocommit=True) as one:
            one.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            one.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(100)])
            with pytest.raises(herdpy.OperationalError) as full:
                herdpy.connect(third, password="of default")
            assert full.value.sqlstate == "53300"
            with pytest.raises(herdpy.OperationalError) as used:
                connection.execute("DROP TABLESPACE third")
            assert used.value.sqlstate == "55006"
        connection.execute("ALTER TABLESPACE third RENAME TO fourth")
        with herdpy.connect(
            url_of(server, "ada", "fourth"), password="of default", autocommit=True
        ) as one:
            assert one.execute("SELECT count(*) FROM t").fetchone() == (100,)
    with herdpy.connect(
        url_of(server, "ada", "sales"), password="of sales", autocommit=True
    ) as other:
        with pytest.raises(herdpy.ProgrammingError) as refused:
            other.execute("DROP TABLESPACE fourth")
        assert refused.value.sqlstate == "42501"


def test_a_tablespace_is_dropped_with_its_connections(server: RunningServer) -> None:
    """While one computes, one has a transaction open, and one fetches a result."""
    sales = url_of(server, "ada", "sales")
    others = [herdpy.connect(sales, password="of sales", autocommit=True) for _ in range(3)]
    computing, writing, fetching = others
    writing.execute("CREATE TABLE n (i BIGINT PRIMARY KEY)")
    writing.executemany("INSERT INTO n VALUES (?)", [(n,) for n in range(2_000)])
    writing.execute("BEGIN")
    writing.execute("INSERT INTO t VALUES ('more')")
    numbers = "SELECT a.i + b.i FROM n a, n b, n c"
    cursor = fetching.execute(numbers)
    cursor.fetchone()
    ended: list[str] = []
    thread = threading.Thread(
        target=lambda: ended.append(refusal_of(lambda: computing.execute(f"{numbers} ORDER BY 1")))
    )
    thread.start()
    url = url_of(server, "ada", "default")
    with herdpy.connect(url, password="of default", autocommit=True) as root:
        running = "SELECT count(*) FROM sysstatements WHERE text LIKE '%ORDER BY 1'"
        while root.execute(running).fetchone() == (0,):
            pass
        root.execute("DROP TABLESPACE sales WITH (FORCE)")
        thread.join()
        assert ended in (["57014"], ["57P01"])  # by the statement, or by the end of its connection
        for call in (cursor.fetchall, lambda: writing.execute("COMMIT")):
            assert refusal_of(call) in ("57P01", "08006", "08007")
        clients = root.execute("SELECT tablespace FROM sysclients").fetchall()
        assert clients == [("default",)]
        root.execute("CREATE TABLESPACE sales OWNER ada")
    with herdpy.connect(sales, password="of default", autocommit=True) as new:
        assert new.execute("SHOW TABLES").fetchall() == []
    for each in others:
        each.close()


def refusal_of(call: Callable[[], Any]) -> str:
    with pytest.raises(herdpy.Error) as caught:
        call()
    return caught.value.sqlstate


def sqlstate_of(call: Callable[[], Any]) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return error_of(caught.value).sqlstate


def execute(client: Any, tablespace: str, metadata: Any) -> Any:
    request = pb.ExecuteRequest(text="SELECT v FROM t", tablespace=tablespace)
    return client.Execute(request, metadata=metadata)


def test_grpc_calls_are_of_the_tablespace_of_their_login(server: RunningServer) -> None:
    of_sales = (*basic("bob", "of sales"), ("herdpy-tablespace", "sales"))
    with grpc_client(server.grpc_url) as client:
        for _ in range(2):  # by the password, then by what is remembered of it
            for tablespace in ("", "sales"):
                assert execute(client, tablespace, of_sales).rows
            assert sqlstate_of(lambda: execute(client, "default", of_sales)) == "28000"
        # bob of `default` is another one: neither his password nor his token counts in sales.
        of_default = basic("bob", "of default")
        assert sqlstate_of(lambda: execute(client, "sales", of_default)) == "28000"
        request = pb.ExecuteRequest(text="SELECT 1")
        assert client.Execute(request, metadata=of_default).rows
        assert sqlstate_of(lambda: execute(client, "sales", of_default)) == "28000"
        (reply,) = client.Login(iter(()), metadata=of_default)
        token = bearer(reply.logged_in.token)
        assert client.Execute(request, metadata=token).rows
        assert sqlstate_of(lambda: execute(client, "sales", token)) == "28000"
        (reply,) = client.Login(iter(()), metadata=of_sales)
        assert execute(client, "", bearer(reply.logged_in.token)).rows
        info = client.GetTablespace(pb.GetTablespaceRequest(tablespace="sales"), metadata=of_sales)
        assert (info.name, info.table_count) == ("sales", 1)
        assert list(client.GetServer(pb.GetServerRequest(), metadata=of_sales).tablespaces) == [
            "sales"
        ]


def test_open_results_of_a_tablespace_leave_some_to_others() -> None:
    with running_server(results_max=20) as server:
        do(server.engine, "CREATE TABLESPACE sales", "CREATE TABLESPACE stock")
        connections = {
            name: herdpy.connect(url_of(server, "", name), autocommit=True)
            for name in ("default", "sales", "stock")
        }
        rows = [(number,) for number in range(1_200)]
        for each in connections.values():
            each.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            each.executemany("INSERT INTO t VALUES (?)", rows)
        opened: list[herdpy.Cursor] = []

        def open_result(name: str) -> None:
            opened.append(connections[name].execute("SELECT id FROM t"))

        for _ in range(15):
            open_result("sales")
        assert refusal_of(lambda: open_result("sales")) == "53400"
        for _ in range(3):
            open_result("stock")
        assert refusal_of(lambda: open_result("stock")) == "53400"
        for _ in range(2):
            open_result("default")
        assert refusal_of(lambda: open_result("default")) == "53400"
        shown = {name: results_of(each) for name, each in connections.items()}
        of_all = ("results_max", 20, 20, 2)
        own = "results_of_tablespace_max"
        assert shown == {
            "default": [of_all, (own, 20, 2, 0)],
            "sales": [of_all, (own, 15, 15, 1)],
            "stock": [of_all, (own, 15, 3, 0)],
        }
        for each in opened:
            each.close()
        assert [used for _, _, used, _ in results_of(connections["sales"])] == [0, 0]
        for each in connections.values():
            each.close()


def results_of(connection: herdpy.Connection) -> list[tuple[Any, ...]]:
    rows = connection.execute("SELECT name, share, used, refused FROM syslimits").fetchall()
    return sorted(row for row in rows if row[0].startswith("results_"))


def test_who_is_told_of_other_tablespaces(server: RunningServer) -> None:
    do(server.engine, "CREATE USER eve PASSWORD 'of default'")
    with grpc_client(server.grpc_url) as client:
        for user, shown in (("ada", ["default", "sales", "without_users"]), ("eve", ["default"])):
            metadata = basic(user, "of default")
            info = client.GetServer(pb.GetServerRequest(), metadata=metadata)
            assert list(info.tablespaces) == shown


def test_a_restarted_server_has_them_all() -> None:
    disk = MemoryDisk()
    with running_server(disk) as server:
        do(server.engine, "CREATE TABLESPACE sales")
    with running_server(disk) as server, herdpy.connect(url_of(server, "", "sales")) as connection:
        connection.execute("CREATE TABLE t (id BIGINT)")
