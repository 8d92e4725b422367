"""Several tablespaces behind one port: whose user gets into which, by every way in."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from scramp import ScramClient

import herdpy
from bookie.runtime.memory_disk import MemoryDisk
from herdpy.errors import Retry
from herdpy.model.settings import Settings
from herdpy.proto import herdpy_pb2 as pb
from tests.fixtures.engines import Background, Engine
from tests.fixtures.grpc_clients import Stream, error_of, grpc_client, plain
from tests.fixtures.servers import RunningServer, busy_workers, running_server
from tests.unit.herdpy.server.grpc.test_grpc_logins import LoginStream, basic, bearer

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
    database = engine.database.instance.tablespaces.database(tablespace)
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
    sales = url_of(server, "ada", "sales") + "?retry_timeout_s=0.1"
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
        for each in connections.values():  # each has come behind the closes that it sent
            each.execute("SELECT 1")
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


def test_waits_for_workers_are_shown_to_default_and_to_their_own(server: RunningServer) -> None:
    with (
        herdpy.connect(url_of(server, "ada", "sales"), password="of sales") as sales,
        herdpy.connect(url_of(server, "ada", "default"), password="of default") as default,
        herdpy.connect(url_of(server, "bob", "default"), password="of default") as bob,
    ):
        text = "SELECT waits_for, held_by FROM syswaits WHERE waits_for = 'worker'"
        for each in (sales, default):
            each.execute(text).fetchall()  # inside a transaction it has a worker of its own
        with Background() as background, busy_workers(server):
            background.start(lambda: bob.execute("SHOW TABLES").fetchall())
            while not (shown := default.execute(text).fetchall()):
                pass
            assert shown == [("worker", None)]
            assert sales.execute(text).fetchall() == []


def test_a_restarted_server_has_them_all() -> None:
    disk = MemoryDisk()
    with running_server(disk) as server:
        do(server.engine, "CREATE TABLESPACE sales")
    with running_server(disk) as server, herdpy.connect(url_of(server, "", "sales")) as connection:
        connection.execute("CREATE TABLE t (id BIGINT)")


# --- names that become another one's --------------------------------------------------------------


@pytest.fixture
def named(server: RunningServer) -> RunningServer:
    """A server with `sales` and `other`, each with a user app of its own, and its own secret."""
    do(server.engine, "CREATE TABLESPACE other OWNER ada")
    # So that app has the same number in both.
    do(server.engine, "CREATE USER bob PASSWORD 'of other'", tablespace="other")
    for tablespace in ("sales", "other"):
        do(
            server.engine,
            f"CREATE USER app SUPERUSER PASSWORD 'app of {tablespace}'",
            "CREATE TABLE secrets (v TEXT)",
            f"INSERT INTO secrets VALUES ('{tablespace}')",
            tablespace=tablespace,
        )
    return server


def of_app(tablespace: str) -> Any:
    return (*basic("app", f"app of {tablespace}"), ("herdpy-tablespace", tablespace))


def swap(server: RunningServer) -> None:
    do(
        server.engine,
        "ALTER TABLESPACE sales RENAME TO was_sales",
        "ALTER TABLESPACE other RENAME TO sales",
    )


def replace(server: RunningServer) -> None:
    do(
        server.engine,
        "DROP TABLESPACE sales WITH (FORCE)",
        "ALTER TABLESPACE other RENAME TO sales",
    )


def remake(server: RunningServer) -> None:
    """Make the tablespace again, with a user of the same name, number and verifier."""
    role = server.engine.database.instance.tablespaces.database("sales").login("app")
    assert role is not None
    do(server.engine, "DROP TABLESPACE sales WITH (FORCE)", "CREATE TABLESPACE sales OWNER ada")
    do(
        server.engine,
        "CREATE USER bob PASSWORD 'of sales'",
        f"CREATE USER app SUPERUSER PASSWORD '{role.verifier}'",
        "CREATE TABLE secrets (v TEXT)",
        tablespace="sales",
    )
    again = server.engine.database.instance.tablespaces.database("sales").login("app")
    assert again == role


def change_password(server: RunningServer) -> None:
    do(server.engine, "ALTER USER app PASSWORD 'another'", tablespace="sales")


def lock_out(server: RunningServer) -> None:
    do(server.engine, "ALTER USER app NOLOGIN", tablespace="sales")


CHANGES = [swap, replace, remake, change_password, lock_out]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("by", ["token", "remembered password"])
def test_a_call_that_waits_is_of_whom_it_was_proved_to_be(
    named: RunningServer, change: Callable[[RunningServer], None], by: str
) -> None:
    with grpc_client(named.grpc_url) as client:
        metadata = of_app("sales")
        (reply,) = client.Login(iter(()), metadata=metadata)
        assert client.GetServer(pb.GetServerRequest(), metadata=metadata)
        if by == "token":
            metadata = bearer(reply.logged_in.token)
        held = Stream(client, metadata=metadata)
        for _ in held.call.initial_metadata():  # the server knows who calls
            pass
        change(named)
        held.send(open=pb.Open(tablespace="sales", autocommit=True))
        refused = held.next()
        assert refused.failed.error.sqlstate == "28000"
        assert "app of" not in str(refused)
        request = pb.ExecuteRequest(text="SELECT v FROM secrets", tablespace="sales")
        if (change, by) != (remake, "remembered password"):  # which is the new user's, too
            sqlstate = sqlstate_of(lambda: client.Execute(request, metadata=metadata))
            assert sqlstate in ("28000", "28P01")


def test_a_token_is_of_its_tablespace_by_any_name(named: RunningServer) -> None:
    with grpc_client(named.grpc_url) as client:
        (reply,) = client.Login(iter(()), metadata=of_app("sales"))
        swap(named)
        request = pb.ExecuteRequest(text="SELECT v FROM secrets")
        metadata = bearer(reply.logged_in.token)
        assert plain(client.Execute(request, metadata=metadata).rows) == [["sales"]]
        request.tablespace = "was_sales"
        assert plain(client.Execute(request, metadata=metadata).rows) == [["sales"]]


def test_what_is_remembered_of_a_password_is_whose_it_was(named: RunningServer) -> None:
    """The call begins when the name is `sales`'s, and proves the password of `other`."""
    with grpc_client(named.grpc_url) as client:
        held = Stream(
            client,
            metadata=(*basic("app", "app of other"), ("herdpy-tablespace", "sales")),
        )
        for _ in held.call.initial_metadata():
            pass
        swap(named)
        held.send(open=pb.Open(tablespace="sales", autocommit=True))
        assert held.next().WhichOneof("kind") == "welcome"
        assert plain(held.execute("SELECT v FROM secrets").done.rows) == [["other"]]
        held.end()
        assert list(held.call) == []
        do(
            named.engine,
            "ALTER TABLESPACE sales RENAME TO other",
            "ALTER TABLESPACE was_sales RENAME TO sales",
        )
        request = pb.ExecuteRequest(text="SELECT v FROM secrets", tablespace="sales")
        metadata = (*basic("app", "app of other"), ("herdpy-tablespace", "sales"))
        assert sqlstate_of(lambda: client.Execute(request, metadata=metadata)) == "28P01"


@pytest.mark.parametrize("change", [change_password, lock_out])
def test_a_login_under_way_ends_with_its_password(
    named: RunningServer, change: Callable[[RunningServer], None]
) -> None:
    scram = ScramClient(["SCRAM-SHA-256"], "app", "app of sales")
    with grpc_client(named.grpc_url) as client:
        login = LoginStream(client, metadata=(("herdpy-tablespace", "sales"),))
        login.send(start=pb.LoginStart(user="app", client_first=scram.get_client_first()))
        scram.set_server_first(login.next().challenge)
        change(named)
        login.send(proof=scram.get_client_final())
        assert sqlstate_of(login.next) == "28P01"
    failed = [each for each in map(json.loads, named.audit) if each["event"] == "login_failed"]
    assert "has changed since" in failed[0]["reason"]


# --- what unauthenticated clients learn ----------------------------------------------------------


def salt_of(client: Any, tablespace: str, user: str) -> str:
    """Return the salt that anyone is told."""
    scram = ScramClient(["SCRAM-SHA-256"], user, "a guess")
    login = LoginStream(client, metadata=(("herdpy-tablespace", tablespace),))
    login.send(start=pb.LoginStart(user=user, client_first=scram.get_client_first()))
    challenge = login.next().challenge
    login.call.cancel()
    return challenge.partition(",s=")[2].partition(",")[0]


def test_salts_do_not_tell_who_is_a_user_of_what(server: RunningServer) -> None:
    do(server.engine, "CREATE USER nologin", tablespace="sales")
    with grpc_client(server.grpc_url) as client:
        names = ("default", "sales", "without_users", "missing", "missing too")
        users = ("ada", "eve", "nologin")
        salts = {(name, user): salt_of(client, name, user) for name in names for user in users}
        assert len(set(salts.values())) == len(salts)
        do(server.engine, "ALTER TABLESPACE sales RENAME TO sold")
        for user in users:  # of all users the same: those who exist keep theirs, too
            assert salt_of(client, "sold", user) == salts["sales", user]
            assert salt_of(client, "sales", user) != salts["sales", user]
            assert salt_of(client, "missing", user) == salts["missing", user]


def test_each_tablespace_has_a_secret_of_its_own(server: RunningServer) -> None:
    """Its superusers find it in a backup."""
    instance = server.engine.database.instance
    with herdpy.connect(
        url_of(server, "ada", "default"), password="of default", autocommit=True
    ) as connection:
        connection.execute("CREATE TABLESPACE mine")
    names = ("default", "sales", "mine")
    secrets = {instance.tablespaces.database(name).login_secret for name in names}
    assert len(secrets) == 3
    assert {len(secret or b"") for secret in secrets} == {32}


def test_a_name_that_is_absent_costs_no_error(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hint compares the name with those of all tablespaces."""

    def closest(*_: object) -> None:
        raise AssertionError("a hint was looked for")

    monkeypatch.setattr("herdpy.engine.tablespaces.closest", closest)
    with pytest.raises(herdpy.OperationalError) as refused:
        herdpy.connect(url_of(server, "ada", "missing"), password="of default")
    assert refused.value.sqlstate == "28P01"
    with grpc_client(server.grpc_url) as client:
        metadata = (*basic("ada", "of default"), ("herdpy-tablespace", "missing"))
        assert sqlstate_of(lambda: execute(client, "missing", metadata)) == "28P01"


def events(server: RunningServer, name: str) -> list[dict[str, Any]]:
    return [each for each in map(json.loads, server.audit) if each["event"] == name]


def test_the_audit_log_says_of_which_tablespace(server: RunningServer) -> None:
    owner = url_of(server, "ada", "sales")
    with herdpy.connect(owner, password="of sales", autocommit=True) as connection:
        connection.execute("CREATE TABLE made (id BIGINT)")
        do(server.engine, "ALTER TABLESPACE sales RENAME TO sold")
        connection.execute("DROP TABLE made")
    server.call(server.server._hub.wait_idle)
    assert [each["tablespace"] for each in events(server, "changed")] == ["sales", "sold"]
    for name in ("login", "logout"):
        assert [each["tablespace"] for each in events(server, name)][-1:] == (
            ["sales"] if name == "login" else ["sold"]
        )
    for name in ("sold", "missing"):
        with pytest.raises(herdpy.OperationalError):
            herdpy.connect(url_of(server, "ada", name), password="wrong")
        assert events(server, "login_failed")[-1]["tablespace"] == name
    with grpc_client(server.grpc_url) as client:
        metadata = (*bearer("none"), ("herdpy-tablespace", "sold"))
        assert sqlstate_of(lambda: execute(client, "sold", metadata)) == "28000"
        assert events(server, "refused")[-1]["tablespace"] == "sold"
    assert all("tablespace" in json.loads(line) for line in server.audit)


def test_the_audit_log_says_that_a_tablespace_cannot_be_opened() -> None:
    """Who tries is told the same as of one that is absent."""
    disk = MemoryDisk()
    with running_server(disk) as server:
        do(server.engine, *SETUP)
        folder = server.engine.database.instance.tablespaces.database("sales").entry.folder
    disk.unlink(f"{folder}/MANIFEST")
    with running_server(disk, login_failure_delay_s=0) as server:
        for name, reason in (("sales", "cannot be opened"), ("missing", "no such tablespace")):
            with pytest.raises(herdpy.OperationalError) as refused:
                herdpy.connect(url_of(server, "ada", name), password="of default")
            assert refused.value.sqlstate == "28P01"
            assert reason in events(server, "login_failed")[-1]["reason"]


def test_a_login_that_a_drop_overtakes(server: RunningServer) -> None:
    database = server.engine.database.instance.tablespaces.database("sales")
    database.refuse_sessions("a test", is_forced=False)
    with pytest.raises(herdpy.OperationalError) as refused:
        herdpy.connect(f"{url_of(server, 'ada', 'sales')}?retry_timeout_s=0", password="of sales")
    assert (refused.value.sqlstate, refused.value.retry) == ("57P03", Retry.SAFE)
    database.let_sessions_in()
    do(server.engine, "DROP TABLESPACE sales")
    with pytest.raises(herdpy.OperationalError) as gone:
        database.session(Settings())
    assert gone.value.sqlstate == "57P03"


def test_sysmemory_does_not_say_where_a_tablespace_is(server: RunningServer) -> None:
    def accounts(tablespace: str) -> list[str]:
        at = url_of(server, "ada", tablespace)
        with herdpy.connect(at, password=f"of {tablespace}") as connection:
            found = connection.execute("SELECT account FROM sysmemory").fetchall()
            return [name for (name,) in found]

    assert {name.partition("/")[0] for name in accounts("sales")} == {"sales"}
    assert {name.partition("/")[0] for name in accounts("default")} == {"process"}


# --- backups that are kept for a while ------------------------------------------------------------


@pytest.fixture
def backed_up(server: RunningServer) -> RunningServer:
    for tablespace in ("default", "sales"):
        do(server.engine, "CREATE TABLE big (v TEXT)", tablespace=tablespace)
    return server


def of_owner(tablespace: str) -> Any:
    return (*basic("ada", f"of {tablespace}"), ("herdpy-tablespace", tablespace))


def snapshot_of(client: Any, tablespace: str, snapshot: str = "") -> str:
    """Read a backup to its end, or one that is kept once more; return its name."""
    request = pb.SnapshotRequest(tablespace=tablespace, snapshot=snapshot)
    replies = list(client.GetSnapshot(request, metadata=of_owner(tablespace)))
    return replies[0].info.snapshot


def test_a_kept_backup_is_of_its_tablespace(backed_up: RunningServer) -> None:
    with grpc_client(backed_up.grpc_url) as client:
        name = snapshot_of(client, "default")
        backed_up.call(backed_up.server._hub.wait_idle)  # it is kept behind the end of its call
        assert sqlstate_of(lambda: snapshot_of(client, "sales", name)) == "55000"
        assert snapshot_of(client, "default", name) == name


def test_backups_of_another_tablespace_take_no_place(backed_up: RunningServer) -> None:
    with grpc_client(backed_up.grpc_url) as client:
        name = snapshot_of(client, "default")
        backed_up.call(backed_up.server._hub.wait_idle)  # it is kept behind the end of its call
        for _ in range(3):
            snapshot_of(client, "sales")
        backed_up.call(backed_up.server._hub.wait_idle)
        assert snapshot_of(client, "default", name) == name


def test_a_kept_backup_goes_with_its_tablespace(backed_up: RunningServer) -> None:
    with grpc_client(backed_up.grpc_url) as client:
        name = snapshot_of(client, "sales")
        backed_up.call(backed_up.server._hub.wait_idle)
        kept = backed_up.server._hub.served("sales").kept_exports
        do(backed_up.engine, "DROP TABLESPACE sales", "CREATE TABLESPACE sales OWNER ada")
        assert kept._kept == {}
        metadata = (*basic("ada", "of default"), ("herdpy-tablespace", "sales"))
        request = pb.SnapshotRequest(tablespace="sales", snapshot=name)
        call = client.GetSnapshot(request, metadata=metadata)
        assert sqlstate_of(lambda: list(call)) == "55000"


def test_a_backup_of_all_is_for_superusers_of_default(
    server: RunningServer, tmp_path: Path
) -> None:
    for user, tablespace in (("bob", "default"), ("bob", "sales"), ("ada", "sales")):
        url = url_of(server, user, tablespace)
        with herdpy.connect(url, password=f"of {tablespace}") as connection:
            with pytest.raises(herdpy.ProgrammingError) as refused:
                connection.backup_all(tmp_path / "set")
            assert refused.value.sqlstate == "42501"
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
    assert list(tmp_path.iterdir()) == []
    with herdpy.connect(url_of(server, "ada", "default"), password="of default") as connection:
        connection.backup_all(tmp_path / "set")
    events = [json.loads(line) for line in server.audit]
    shown = [(each["user"], each["kind"]) for each in events if each["event"] == "exported"]
    assert shown == [("ada", "tablespaces"), *[("ada", "backup")] * 3]
    of = {each["of"] for each in events if each["event"] == "exported" and "of" in each}
    instance = server.engine.database.instance
    assert of == {state.entry.id.hex() for state in instance.tablespaces.states()}
    herdpy.restore(tmp_path / "set", tmp_path / "new")
    with herdpy.connect(tmp_path / "new", tablespace="sales") as connection:
        assert connection.execute("SELECT v FROM t").fetchall() == [("sales",)]
        asked = "SELECT grantee FROM sysgrants WHERE object_name = 't' AND privilege = 'SELECT'"
        assert ("bob",) in connection.execute(asked).fetchall()


def test_a_tablespace_that_goes_during_its_backup_is_whole_in_it(
    server: RunningServer, tmp_path: Path
) -> None:
    """Its files are read on, though they are removed."""
    with herdpy.connect(url_of(server, "ada", "default"), password="of default") as connection:
        session = connection.live_session()
        sales = server.engine.database.instance.tablespaces.listed.find("sales")
        assert sales is not None
        export = session.export("backup", sales.id.hex())
        do(server.engine, "DROP TABLESPACE sales")
        (tmp_path / "sales.backup").write_bytes(b"".join(export.pieces()))
        export.close()
        with pytest.raises(herdpy.OperationalError) as gone:
            session.export("backup", sales.id.hex())
        assert gone.value.sqlstate == "3D000"
    herdpy.restore(tmp_path / "sales.backup", tmp_path / "new")
    with herdpy.connect(tmp_path / "new") as connection:
        assert connection.execute("SELECT v FROM t").fetchall() == [("sales",)]
