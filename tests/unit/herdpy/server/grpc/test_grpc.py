"""The gRPC port, by a client that knows only herdpy.proto: docs/protocols/grpc.md."""

from base64 import b64encode
from collections.abc import Iterator

import grpc
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import herdpy
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto.messages import Ping, encode_frame
from tests.fixtures.grpc_clients import WAIT_S, Client, Stream, error_of, grpc_client, plain
from tests.fixtures.servers import RunningServer

ROWS = 20_000


def fill(server: RunningServer, row_count: int) -> None:
    with herdpy.connect(server.url, autocommit=True) as connection:
        rows = ((n, f"name {n}", n) for n in range(row_count))
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)


# --- one statement -------------------------------------------------------------------------------


def test_a_statement_by_itself(client: Client) -> None:
    done = client.Execute(
        pb.ExecuteRequest(text="INSERT INTO t VALUES (1, 'ant', 1.5), (2, '', 2)")
    )
    assert done.row_count == 2
    assert not done.HasField("columns")
    assert client.rows("SELECT * FROM t WHERE id = ?", pb.Value(integer=1)) == [[1, "ant", "1.50"]]
    named = pb.Parameters(named=pb.NamedValues(values={"p": pb.Value(decimal="2.00")}))
    found = client.Execute(
        pb.ExecuteRequest(text="SELECT id, NULL AS none FROM t WHERE price = :p", parameters=named)
    )
    assert plain(found.rows) == [[2, None]]
    assert found.columns.columns[0] == pb.Column(name="id", kind=pb.BIGINT)


def test_values_say_their_class(client: Client) -> None:
    client.rows("CREATE TABLE v (id INTEGER PRIMARY KEY, d DATE, at TIMESTAMP, b BYTEA, y BOOLEAN)")
    values = [
        pb.Value(integer=1), pb.Value(date="2020-01-31"), pb.Value(timestamp="2020-01-31T12:00:00"),
        pb.Value(bytea=b"\0"), pb.Value(boolean=True),
    ]  # fmt: skip
    client.rows("INSERT INTO v VALUES (?, ?, ?, ?, ?)", *values)
    assert client.rows("SELECT * FROM v") == [[1, "2020-01-31", "2020-01-31T12:00:00", b"\0", True]]
    assert client.rows("SELECT id FROM v WHERE d = ?", pb.Value(date="2020-01-30")) == []
    client.rows("CREATE TABLE m (id INTEGER PRIMARY KEY, at TIMESTAMPTZ)")
    client.rows("INSERT INTO m VALUES (1, ?)", pb.Value(timestamp="2020-01-31T12:00:00+02:00"))
    found = client.Execute(pb.ExecuteRequest(text="SELECT at FROM m"))
    assert plain(found.rows) == [["2020-01-31T10:00:00+00:00"]]
    assert found.columns.columns[0].kind == pb.TIMESTAMPTZ
    with pytest.raises(grpc.RpcError) as caught:
        client.rows("SELECT id FROM v WHERE d = ?", pb.Value(date="yesterday"))
    assert error_of(caught.value).sqlstate == "08P01"


@pytest.mark.parametrize(
    ("text", "status", "sqlstate", "kind"),
    [
        ("SELECT nope FROM t", "NOT_FOUND", "42703", "ProgrammingError"),
        ("SELEC", "INVALID_ARGUMENT", "42601", "ProgrammingError"),
        ("INSERT INTO t VALUES (1, 'a', 0), (1, 'b', 0)", "ALREADY_EXISTS", "23505",
         "IntegrityError"),
        ("SELECT 1 / 0 FROM (VALUES (1)) AS v (x)", "INVALID_ARGUMENT", "22012", "DataError"),
    ],
)  # fmt: skip
def test_errors_have_a_status_and_are_told_whole(
    client: Client, text: str, status: str, sqlstate: str, kind: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.Execute(pb.ExecuteRequest(text=text))
    error = error_of(caught.value)
    assert (caught.value.code().name, error.sqlstate, error.kind) == (status, sqlstate, kind)
    assert error.message == caught.value.details()
    assert error.retry == "never"


def test_an_error_points_into_the_statement(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.rows("SELECT id, nope FROM t")
    assert error_of(caught.value).position == 12


def test_a_long_error_fits_a_status(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.rows(f"SELECT '{'é' * 50_000}'::integer")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_tablespace_that_is_not_there(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.Execute(pb.ExecuteRequest(text="SELECT 1", tablespace="other"))
    assert (caught.value.code().name, error_of(caught.value).sqlstate) == ("NOT_FOUND", "3D000")


# --- queries -------------------------------------------------------------------------------------


def test_a_query_streams_rows(server: RunningServer, client: Client) -> None:
    fill(server, ROWS)
    statement = pb.ExecuteRequest(text="SELECT id, name FROM t ORDER BY id")
    replies = list(client.Query(pb.QueryRequest(statement=statement, rows_max=700)))
    assert [column.name for column in replies[0].columns.columns] == ["id", "name"]
    assert all(len(reply.rows) <= 700 for reply in replies)
    with pytest.raises(grpc.RpcError, match=r"RESOURCE_EXHAUSTED") as caught:
        client.Execute(statement)
    assert (error_of(caught.value).sqlstate, error_of(caught.value).hint[:4]) == ("54000", "call")
    rows = [row for reply in replies for row in plain(reply.rows)]
    assert rows == [[n, f"name {n}"] for n in range(ROWS)]
    statement.text = "SELECT id FROM t WHERE id < 3 ORDER BY id"
    (reply,) = client.Query(pb.QueryRequest(statement=statement))
    assert plain(reply.rows) == [[0], [1], [2]]
    statement.text = "SELECT id FROM t WHERE id < 1000"
    assert len(client.Execute(statement).rows) == 1000
    statement.text = "SELECT id FROM t WHERE id < 1001"
    with pytest.raises(grpc.RpcError):
        client.Execute(statement)


@pytest.mark.parametrize("row_count", [ROWS, 5, 0])
def test_a_query_streams_arrow(server: RunningServer, client: Client, row_count: int) -> None:
    fill(server, ROWS)
    statement = pb.ExecuteRequest(text=f"SELECT * FROM t WHERE id < {row_count} ORDER BY id")
    replies = list(client.Query(pb.QueryRequest(statement=statement, is_arrow=True)))
    assert not any(reply.rows for reply in replies)
    source = pa.BufferReader(b"".join(reply.arrow for reply in replies))
    tables = []
    while source.tell() < source.size():
        tables.append(pa.ipc.open_stream(source).read_all())
    table = pa.concat_tables(tables)
    assert table["id"].to_pylist() == list(range(row_count))
    assert table.schema.field("price").type == pa.decimal128(9, 2)


def test_a_query_that_its_client_gives_up_lets_go(server: RunningServer, client: Client) -> None:
    fill(server, ROWS)
    statement = pb.ExecuteRequest(text="SELECT * FROM t")
    for _ in range(10):  # of 4 connections
        replies = client.Query(pb.QueryRequest(statement=statement))
        assert next(replies).columns.columns
        replies.cancel()
        server.call(server.server._hub.wait_idle)
    assert len(server.engine.database.tablespace.registry) == 0


def test_tables_and_server(client: Client) -> None:
    client.rows("CREATE TABLE bare (x DOUBLE PRECISION)")
    bare, table = client.ListTables(pb.ListTablesRequest()).tables
    assert (bare.name, [c.column.name for c in bare.columns], bare.primary_key) == (
        "bare",
        ["x"],
        [],
    )
    assert (table.name, table.primary_key) == ("t", ["id"])
    assert [(c.column.name, c.column.kind, c.is_not_null) for c in table.columns] == [
        ("id", pb.BIGINT, True), ("name", pb.TEXT, True), ("price", pb.DECIMAL, False),
    ]  # fmt: skip
    assert (table.columns[2].column.precision, table.columns[2].column.scale) == (9, 2)
    info = client.GetServer(pb.GetServerRequest())
    assert (info.server, list(info.tablespaces)) == ("test", ["default"])


# --- sessions ------------------------------------------------------------------------------------


def test_a_transaction(client: Client) -> None:
    session = Stream(client, pb.Open())
    assert session.execute("INSERT INTO t VALUES (1, 'a', 0)").done.in_transaction
    assert client.rows("SELECT count(*) FROM t") == [[0]]
    assert not session.ask(commit=pb.Commit()).done.in_transaction
    assert client.rows("SELECT count(*) FROM t") == [[1]]
    session.execute("DELETE FROM t")
    session.ask(rollback=pb.Empty())
    failed = session.execute("SELECT nope FROM t").failed
    assert failed.error.sqlstate == "42703"
    assert plain(session.execute("SELECT id FROM t").done.rows) == [[1]]


def test_requests_may_be_under_way_together(client: Client) -> None:
    session = Stream(client, pb.Open(autocommit=True))
    numbers = [session.send(execute=pb.Execute(text=f"SELECT {n}")) for n in range(200)]
    session.end()  # what was asked is answered
    replies = list(session.call)
    assert [reply.request for reply in replies] == numbers
    assert [plain(reply.done.rows) for reply in replies] == [[[n]] for n in range(200)]


@pytest.mark.parametrize("is_closed", [True, False])
def test_the_end_of_a_session_rolls_back(
    server: RunningServer, client: Client, is_closed: bool
) -> None:
    session = Stream(client, pb.Open())
    session.execute("INSERT INTO t VALUES (1, 'a', 0)")
    if is_closed:
        session.end()
        assert list(session.call) == []
    else:
        session.call.cancel()
    server.call(server.server._hub.wait_idle)
    assert client.rows("INSERT INTO t VALUES (1, 'a', 0)") == []  # waits for the lock, if any
    assert client.rows("SELECT count(*) FROM t") == [[1]]


def test_open_results(server: RunningServer, client: Client) -> None:
    fill(server, 3000)
    session = Stream(client, pb.Open(autocommit=True))
    done = session.execute("SELECT id FROM t ORDER BY id").done
    assert not done.rows
    assert done.HasField("result")
    fetch = pb.Fetch(result=done.result, rows_max=1000)
    found = [session.ask(fetch=fetch).rows for _ in range(3)]
    assert [len(rows.rows) for rows in found] == [1000, 1000, 1000]
    last = session.ask(fetch=fetch)
    assert last.rows.is_last
    assert not last.rows.rows
    behind = session.ask(fetch=fetch).rows  # as a driver that asks ahead
    assert behind.is_last
    assert not behind.rows
    fetch.result += 1
    assert session.ask(fetch=fetch).failed.error.sqlstate == "24000"


def test_cancel_passes_what_runs(server: RunningServer, client: Client) -> None:
    fill(server, 2000)
    session = Stream(client, pb.Open(autocommit=True))
    text = "SELECT count(*) FROM t a, t b, t c WHERE a.id + b.id + c.id < 0"
    number = session.send(execute=pb.Execute(text=text))
    session.put(pb.SessionRequest(request=number, cancel=pb.Empty()))
    reply = session.next()
    assert (reply.request, reply.failed.error.sqlstate) == (number, "57014")
    assert session.ask(ping=pb.Empty()).WhichOneof("kind") == "pong"


@pytest.mark.parametrize(
    "request_",
    [
        pb.SessionRequest(request=1, execute=pb.Execute(text="CREATE TABLE never (x INTEGER)")),
        pb.SessionRequest(request=1),
        pb.SessionRequest(frames=b"\xff\xff\xff\xff"),
        pb.SessionRequest(frames=b"\x00\x00\xff\xff" + bytes(0xFFFF)),
        pb.SessionRequest(frames=encode_frame(Ping(1))),
        pb.SessionRequest(open=pb.Open(client="x" * 20_000)),
    ],
)
def test_nothing_runs_before_a_welcome(
    server: RunningServer, client: Client, request_: pb.SessionRequest
) -> None:
    session = Stream(client)
    session.put(request_)
    (reply,) = session.call
    assert (reply.request, reply.failed.error.sqlstate) == (0, "08P01")
    assert [table.name for table in client.ListTables(pb.ListTablesRequest()).tables] == ["t"]


def test_calls_count_among_the_connections(server: RunningServer, client: Client) -> None:
    sessions = [Stream(client, pb.Open()) for _ in range(4)]
    with pytest.raises(grpc.RpcError) as caught:
        client.rows("SELECT 1")
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error_of(caught.value).sqlstate == "53300"
    assert error_of(caught.value).retry == "safe"
    sessions[0].end()
    assert list(sessions[0].call) == []
    assert client.rows("SELECT 1") == [[1]]


# --- the standard services -----------------------------------------------------------------------


def test_health_and_a_drain(server: RunningServer, client: Client) -> None:
    health = health_pb2_grpc.HealthStub(client.channel)
    for name in ("", "herdpy.v1.Herdpy"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=WAIT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    session = Stream(client, pb.Open(autocommit=True))
    server.call(lambda: server.server.drain(WAIT_S))
    answer = health.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    (reply,) = session.call
    assert reply.failed.error.sqlstate == "57P01"
    with pytest.raises(grpc.RpcError) as caught:
        client.rows("SELECT 1")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_reflection_describes_the_service(client: Client) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="herdpy.v1.Herdpy"),
    ]
    listed, described = stub.ServerReflectionInfo(iter(asked), timeout=WAIT_S)
    names = {service.name for service in listed.list_services_response.service}
    assert {"herdpy.v1.Herdpy", "grpc.health.v1.Health"} <= names
    (data,) = described.file_descriptor_response.file_descriptor_proto
    (service,) = FileDescriptorProto.FromString(data).service
    assert {"Execute", "Query", "Session"} <= {method.name for method in service.method}


# --- Python's driver -----------------------------------------------------------------------------


def test_the_driver_says_what_it_did_not_reach(server: RunningServer) -> None:
    with pytest.raises(herdpy.OperationalError, match="cannot be reached") as caught:
        herdpy.connect("herd+grpc://127.0.0.1:1")
    assert caught.value.sqlstate == "08001"
    with pytest.raises(herdpy.OperationalError) as caught:
        herdpy.connect(f"herd+grpc://127.0.0.1:{server.port}?connect_timeout_s=20")
    assert caught.value.sqlstate in ("08001", "08006")


def test_the_driver_logs_in(server: RunningServer, users: Client) -> None:
    url = server.grpc_url.replace("://", "://ada@")
    with herdpy.connect(url, password=PASSWORD, autocommit=True) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(herdpy.Error) as caught:
            connection.execute("SELECT * FROM t")
        assert caught.value.sqlstate == "42501"
    with pytest.raises(herdpy.OperationalError) as caught:
        herdpy.connect(url, password="wrong")
    assert caught.value.sqlstate == "28P01"


def test_large_statements_are_cut(server: RunningServer) -> None:
    with herdpy.connect(server.grpc_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE big (id BIGINT PRIMARY KEY, data BYTEA)")
        data = bytes(range(256)) * 2000
        rows = [(n, data) for n in range(20)]  # 10 MB, and 4 MiB is what a message may have
        connection.executemany("INSERT INTO big VALUES (?, ?)", rows)
        assert connection.execute("SELECT * FROM big ORDER BY id").fetchall() == rows


def test_a_lost_connection_is_made_anew(server: RunningServer) -> None:
    with herdpy.connect(server.grpc_url, autocommit=True) as connection:
        server.call(lambda: end_all(server))
        assert connection.execute("SELECT 1").fetchone() == (1,)


async def end_all(server: RunningServer) -> None:
    for connection in list(server.server._hub.connections):
        connection.refuse(connection._hub.shutting_down())


# --- logins --------------------------------------------------------------------------------------

PASSWORD = "correct horse"


@pytest.fixture
def users(server: RunningServer) -> Iterator[Client]:
    """A client of a server that has users from now on; `t` is not theirs to read."""
    with grpc_client(server.grpc_url) as client:
        client.rows("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        client.rows(f"CREATE USER ada PASSWORD '{PASSWORD}'")
        yield client


def basic(user: str, password: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"),)


def test_a_call_logs_in(users: Client) -> None:
    metadata = basic("ada", PASSWORD)
    found = users.Execute(pb.ExecuteRequest(text="SELECT 1"), metadata=metadata)
    assert plain(found.rows) == [[1]]
    with pytest.raises(grpc.RpcError) as caught:
        users.Execute(pb.ExecuteRequest(text="SELECT * FROM t"), metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    session = Stream(users, pb.Open(autocommit=True), metadata=metadata)
    assert plain(session.execute("SELECT 2").done.rows) == [[2]]
    assert session.execute("SELECT * FROM t").failed.error.sqlstate == "42501"


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        basic("ada", "wrong"),
        basic("nobody", PASSWORD),
        basic("", PASSWORD),
        (("authorization", "Bearer abc"),),
        (("authorization", "Basic %%%"),),
        (*basic("ada", PASSWORD), *basic("ada", PASSWORD)),
    ],
)
def test_no_session_without_the_password(
    server: RunningServer, users: Client, metadata: tuple[tuple[str, str], ...]
) -> None:
    text = "CREATE TABLE never (id BIGINT PRIMARY KEY)"
    session = Stream(users, metadata=metadata)
    session.send(open=pb.Open(autocommit=True))
    session.send(execute=pb.Execute(text=text))
    # 08: the statement did not wait for Welcome.
    assert said_no(session) in ("28", "08", "UNAUTHENTICATED")
    tables = server.engine.database.tablespace.applier.state.catalog.tables()
    assert [table.name for table in tables] == ["t"]


def said_no(session: Stream) -> str:
    """Return the class of the SQLSTATE, or the status when the credentials were not understood."""
    try:
        return next(reply.failed.error.sqlstate[:2] for reply in session.call)
    except grpc.RpcError as error:
        return error.code().name
