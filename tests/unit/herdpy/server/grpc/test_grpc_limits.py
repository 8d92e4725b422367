"""What the gRPC port bounds: messages, streams, connections, pings, and who takes nothing."""

import logging
import socket
import struct
from collections.abc import Iterator
from queue import SimpleQueue

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import herdpy
from herdpy.proto import herdpy_pb2 as pb
from herdpy.server.grpc import server as grpc_server
from herdpy.server.grpc import service as grpc_service
from tests.fixtures.grpc_clients import WAIT_S, Client, Stream, error_of, grpc_client, plain
from tests.fixtures.servers import RunningServer, running_server
from tests.sim.clock import SimulatedClock

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
ENHANCE_YOUR_CALM = 11


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(connections_max=4, login_failure_delay_s=0) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with grpc_client(server.grpc_url) as found:
        yield found


def frame(kind: int, body: bytes = b"", stream: int = 0) -> bytes:
    """Return a frame of HTTP/2 (RFC 9113)."""
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, 0, stream) + body


class Peer:
    """A client that speaks HTTP/2 by hand."""

    def __init__(self, server: RunningServer) -> None:
        host, _, port = server.grpc_url.removeprefix("herd+grpc://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=WAIT_S)

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield (kind, body) until the server closes."""
        data = b""
        while True:
            while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
                end = 9 + int.from_bytes(data[:3], "big")
                yield data[3], data[9:end]
                data = data[end:]
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                return
            if not more:
                return
            data += more


# --- messages ------------------------------------------------------------------------------------


def test_a_message_has_four_megabytes(client: Client) -> None:
    big = pb.Value(bytea=bytes(4 * 1024 * 1024))
    with pytest.raises(grpc.RpcError) as caught:
        client.rows("SELECT 1 WHERE ? IS NULL", big)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    client.rows("CREATE TABLE b (id BIGINT PRIMARY KEY, data BYTEA)")
    almost = pb.Value(bytea=bytes(1_000_000))
    client.rows("INSERT INTO b VALUES (1, ?)", almost)
    assert client.rows("SELECT length(data) FROM b") == [[1_000_000]]


def test_reading_messages_takes_bounded_memory(server: RunningServer, client: Client) -> None:
    """A message of empty values takes 25 times its bytes when it is read."""
    received = server.server._hub.received
    values = [pb.Value()] * 100_000
    request = pb.ExecuteRequest(
        text="SELECT 1", parameters=pb.Parameters(positional=pb.Row(values=values))
    )
    taken = received.maximum - 1_000_000
    assert received.take(taken)
    with pytest.raises(grpc.RpcError) as caught:
        client.Execute(request)
    assert (error_of(caught.value).sqlstate, error_of(caught.value).retry) == ("53200", "safe")
    session = Stream(client)
    session.send(open=pb.Open(autocommit=True))
    session.send(execute=pb.Execute(text="SELECT 1", parameters=request.parameters))
    assert [r.failed.error.sqlstate for r in session.call if r.HasField("failed")] == ["53200"]
    received.give(taken)
    with pytest.raises(grpc.RpcError) as caught:
        client.Execute(request)
    assert error_of(caught.value).sqlstate == "54023"  # it was read, and has too many of them
    assert received.used == 0


@pytest.mark.parametrize("name", ["Execute", "Query", "Ingest", "Session"])
def test_bytes_that_are_no_message(server: RunningServer, client: Client, name: str) -> None:
    for data in (b"\xff\xff\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0b" * 2000):
        call = client.channel.stream_stream(f"/herdpy.v1.Herdpy/{name}")
        replies = call(iter([data]))
        if name == "Session":
            (reply,) = map(pb.SessionReply.FromString, replies)
            found = reply.failed.error.sqlstate
        else:
            with pytest.raises(grpc.RpcError) as caught:
                list(replies)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            found = error_of(caught.value).sqlstate
        assert found == "08P01"
    server.call(server.server._hub.wait_idle)


def test_a_stream_that_ends_inside_a_frame(server: RunningServer, client: Client) -> None:
    """Found by fuzz-wire: what is sent for the client's end was taken for the frame's rest."""
    opened = pb.SessionRequest(open=pb.Open(autocommit=True))
    part = pb.SessionRequest(frames=b"\0\0\1\0" + b"\x92\x0c")
    call = client.channel.stream_stream("/herdpy.v1.Herdpy/Session")
    sent = iter([each.SerializeToString() for each in (opened, part)])
    replies = [pb.SessionReply.FromString(each) for each in call(sent, timeout=WAIT_S)]
    assert replies[-1].failed.error.sqlstate == "08P01" or b"ended inside" in replies[-1].frames
    server.call(server.server._hub.wait_idle)


# --- streams and connections ---------------------------------------------------------------------


def test_few_watch_for_nothing(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "_CALLS_BESIDE", 2)
    with grpc_client(server.grpc_url) as client:
        health = health_pb2_grpc.HealthStub(client.channel)
        watches = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
        assert [next(watch).status for watch in watches] == [1, 1]
        reflected = reflection_pb2_grpc.ServerReflectionStub(client.channel)
        more = reflected.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        with pytest.raises(grpc.RpcError) as caught:
            list(more)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S).status == 1
        assert client.rows("SELECT 1") == [[1]]
        watches[0].cancel()


def test_there_is_room_for_so_many_connections() -> None:
    with running_server(connections_max=2, logins_max=1) as server:
        peers = [Peer(server) for _ in range(3)]
        for peer in peers:
            peer.send(PREFACE, frame(SETTINGS))
            assert next(peer.frames())[0] == SETTINGS
        one_more = Peer(server)
        assert list(one_more.frames()) == []
        for peer in (*peers, one_more):
            peer.socket.close()


def test_who_says_nothing_has_to_go() -> None:
    with running_server(login_timeout_s=0.05) as server:
        peer = Peer(server)
        assert [kind for kind, _ in peer.frames() if kind == HEADERS] == []  # it ends
        peer.socket.close()


def test_a_call_without_its_message_has_to_go() -> None:
    """A password that was not checked yet gives no place to stay."""
    with (
        running_server(login_timeout_s=0.05) as server,
        grpc_client(server.grpc_url) as client,
    ):
        nothing: SimpleQueue[bytes | None] = SimpleQueue()
        call = client.channel.stream_stream("/herdpy.v1.Herdpy/Execute")
        credentials = (("authorization", "Basic YTpi"),)
        replies = call(iter(nothing.get, None), metadata=credentials)
        with pytest.raises(grpc.RpcError) as caught:
            next(replies)
        assert error_of(caught.value).sqlstate == "08004"
        nothing.put(None)


@pytest.mark.parametrize("limit", ["logins_max", "logins_of_address_max"])
def test_of_calls_without_their_message_the_oldest_gives_way(limit: str) -> None:
    with (
        running_server(**{limit: 2}) as server,
        grpc_client(server.grpc_url) as client,
    ):
        nothing: SimpleQueue[bytes | None] = SimpleQueue()
        call = client.channel.stream_stream("/herdpy.v1.Herdpy/Execute")
        waiting = [call(iter(nothing.get, None)) for _ in range(5)]
        while sum(each.is_active() for each in waiting) > 2:
            pass
        for _ in range(5):
            assert client.rows("SELECT 1") == [[1]]
        refused = [each for each in waiting if not each.is_active()]
        for each in refused:
            with pytest.raises(grpc.RpcError) as caught:
                next(each)
            assert error_of(caught.value).sqlstate == "53300"
        assert len(refused) >= 3
        rows = {row.name: row.refused for row in server.engine.database.limits.limits()}
        row = limit.replace("logins", "grpc_first_messages")
        assert rows[row] >= 3
        assert sum(rows.get(each, 0) for each in rows if "grpc_first" in each) == rows[row]
        for _ in waiting:
            nothing.put(None)


def test_a_bug_is_told_as_one(
    server: RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_service, "stats_of", None)
    # Its traceback would be kept by pytest, and with it the server.
    monkeypatch.setattr(logging.getLogger("herdpy.server.grpc.service"), "disabled", True)
    with pytest.raises(grpc.RpcError) as caught:
        client.GetTablespace(pb.GetTablespaceRequest())
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert error_of(caught.value).sqlstate == "XX000"


PINGS = [number.to_bytes(8, "big") for number in range(8)]


def test_who_pings_all_the_time_is_sent_away(server: RunningServer) -> None:
    peer = Peer(server)
    peer.send(PREFACE, frame(SETTINGS), *(frame(PING, body) for body in PINGS))
    bodies = [body for kind, body in peer.frames() if kind == GOAWAY]
    peer.socket.close()
    assert [int.from_bytes(body[4:8], "big") for body in bodies] == [ENHANCE_YOUR_CALM]


@pytest.mark.parametrize(
    ("name", "value"), [("_PING_INTERVAL_MS", 0), ("_PING_STRIKES_MAX", len(PINGS))]
)
def test_how_often_one_may_ping_is_the_servers_to_say(
    name: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With bounds of grpc's own, because it does not know ours, it would send these away."""
    monkeypatch.setattr(grpc_server, name, value)
    with running_server() as server:
        peer = Peer(server)
        with peer.socket:
            peer.send(PREFACE, frame(SETTINGS))
            answers = ((kind, body) for kind, body in peer.frames() if kind in (PING, GOAWAY))
            for body in PINGS:
                peer.send(frame(PING, body))
                assert next(answers) == (PING, body)


# --- who takes nothing ---------------------------------------------------------------------------


def test_nothing_piles_up_for_who_reads_nothing(server: RunningServer, client: Client) -> None:
    client.rows("CREATE TABLE big (id BIGINT PRIMARY KEY, data BYTEA)")
    with herdpy.connect(server.url, autocommit=True) as connection:
        rows = [(n, bytes(1_000_000)) for n in range(40)]
        connection.executemany("INSERT INTO big VALUES (?, ?)", rows)
    statement = pb.ExecuteRequest(text="SELECT * FROM big")
    replies = client.Query(pb.QueryRequest(statement=statement, rows_max=1))
    assert next(replies).columns.columns
    for _ in range(50):  # time for more
        assert client.rows("SELECT 1") == [[1]]
    fetched = server.server._hub.metrics.statements[("fetch", "ok")]
    assert fetched < 30
    assert sum(len(reply.rows) for reply in replies) == 40


def test_a_drain_does_not_wait_for_who_takes_nothing(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A watcher whose window is closed holds up health's news, and nothing else."""
    path = b"\x44" + hpack(b"/grpc.health.v1.Health/Watch")
    headers = b"\x83\x86" + path + b"\x41" + hpack(b"x") + b"\x5f" + hpack(b"application/grpc")
    headers += b"\x40" + hpack(b"te") + hpack(b"trailers")
    peer = Peer(server)
    window = struct.pack(">HI", 4, 0)  # SETTINGS_INITIAL_WINDOW_SIZE
    peer.send(PREFACE, frame(SETTINGS, window))
    end_headers = bytearray(frame(HEADERS, headers, 1))
    end_headers[4] = 4
    end_stream = bytearray(frame(DATA, b"\0\0\0\0\0", 1))
    end_stream[4] = 1
    peer.send(bytes(end_headers), bytes(end_stream))
    assert HEADERS in (kind for kind, _ in peer.frames())  # the answer has begun
    with grpc_client(server.grpc_url) as client:
        health = health_pb2_grpc.HealthStub(client.channel)
        server.call(lambda: server.server.drain(WAIT_S))
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    peer.socket.close()
    server.call(server.server.close)
    assert caplog.records == []  # who goes away does not fill the log


def hpack(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def test_health_knows_when_nothing_can_be_written(server: RunningServer, client: Client) -> None:
    health = health_pb2_grpc.HealthStub(client.channel)
    request = health_pb2.HealthCheckRequest(service="herdpy.v1.Herdpy")
    assert health.Check(request, timeout=WAIT_S).status == health_pb2.HealthCheckResponse.SERVING
    server.engine.database.tablespace.stop(herdpy.OperationalError("broken on purpose"))
    answer = health.Check(request, timeout=WAIT_S)
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    with pytest.raises(grpc.RpcError) as caught:
        health.Check(health_pb2.HealthCheckRequest(service="other"), timeout=WAIT_S)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_watcher_is_told_of_the_drain(server: RunningServer, client: Client) -> None:
    watch = health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest())
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    server.call(lambda: server.server.drain(WAIT_S))
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    watch.cancel()


# --- time ----------------------------------------------------------------------------------------


def test_a_deadline_ends_the_statement(server: RunningServer, client: Client) -> None:
    client.rows("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    with herdpy.connect(server.url, autocommit=True) as connection:
        connection.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(2000)])
    text = "SELECT count(*) FROM t a, t b, t c WHERE a.id + b.id + c.id < 0"
    call = client.channel.unary_unary(
        "/herdpy.v1.Herdpy/Execute",
        request_serializer=pb.ExecuteRequest.SerializeToString,
        response_deserializer=pb.ExecuteReply.FromString,
    )
    with pytest.raises(grpc.RpcError) as caught:
        call(pb.ExecuteRequest(text=text), timeout=0.2)
    assert caught.value.code().name in ("DEADLINE_EXCEEDED", "CANCELLED")
    server.call(server.server._hub.wait_idle)  # it runs no more
    with pytest.raises(grpc.RpcError) as caught:
        client.Execute(pb.ExecuteRequest(text=text, statement_timeout_s=0.05))
    assert error_of(caught.value).sqlstate == "57014"


def test_the_end_of_a_call_ends_its_statement(server: RunningServer, client: Client) -> None:
    client.rows("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    first = Stream(client, pb.Open())
    first.execute("INSERT INTO t VALUES (1)")
    waits = Stream(client, pb.Open())
    waits.send(execute=pb.Execute(text="INSERT INTO t VALUES (1)"))
    waits.call.cancel()
    first.ask(commit=pb.Commit())
    first.end()
    assert list(first.call) == []
    server.call(server.server._hub.wait_idle)
    assert client.rows("SELECT * FROM t") == [[1]]


def test_errors_have_details_that_libraries_read(client: Client) -> None:
    """google.rpc.Status with an ErrorInfo, which grpc-status and Go's status package take."""
    with pytest.raises(grpc.RpcError) as caught:
        client.rows("SELECT nope FROM nowhere")
    metadata = dict(caught.value.trailing_metadata())
    status = pb.Status.FromString(metadata["grpc-status-details-bin"])
    assert (status.code, status.message) == (caught.value.code().value[0], caught.value.details())
    (detail,) = status.details
    assert detail.type_url == "type.googleapis.com/google.rpc.ErrorInfo"
    info = pb.ErrorInfo.FromString(detail.value)
    assert (info.reason, info.domain) == ("42P01", "herdpy")
    assert info.metadata["kind"] == "ProgrammingError"
    assert info.metadata["retry"] == "never"
    assert info.metadata["position"] == "18"


def test_a_long_error_fits_into_a_status(client: Client) -> None:
    text = f"SELECT '{'é' * 50_000}'::integer"
    for _ in range(20):  # a library may refuse long ones now and then
        with pytest.raises(grpc.RpcError) as caught:
            client.rows(text)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        size = sum(len(key) + len(value) for key, value in caught.value.trailing_metadata())
        assert size < 6000
    assert plain(client.Execute(pb.ExecuteRequest(text="SELECT 1")).rows) == [[1]]


# --- beside the frame protocol -------------------------------------------------------------------


@pytest.fixture
def stopped() -> Iterator[RunningServer]:
    """A server whose clock stands still: all that it is asked comes at once."""
    with running_server(clock=SimulatedClock(), grpc_requests_per_s=500) as running:
        yield running


def test_calls_are_spaced_while_sockets_are_answered(stopped: RunningServer) -> None:
    pace = stopped.server._hub.common.pace
    with grpc_client(stopped.grpc_url) as client:
        for _ in range(20):
            client.rows("SELECT 1")
        assert pace.waits == 0
        with herdpy.connect(stopped.url, autocommit=True) as reader:
            reader.execute("SELECT 1").fetchall()
            for _ in range(3):
                client.rows("SELECT 1")
            assert pace.waits == 1
            query = "SELECT waits FROM syslimits WHERE name = 'grpc_requests_per_s'"
            assert reader.execute(query).fetchone() == (1,)


def test_requests_of_a_session_are_spaced_as_calls_are(stopped: RunningServer) -> None:
    pace, url = stopped.server._hub.common.pace, stopped.grpc_url
    with herdpy.connect(stopped.url) as reader, herdpy.connect(url, autocommit=True) as caller:
        reader.execute("SELECT 1").fetchall()
        for _ in range(13):
            caller.execute("SELECT 1").fetchall()
        assert pace.waits >= 3


def test_pieces_of_an_answer_are_spaced_as_calls_are(stopped: RunningServer) -> None:
    pace = stopped.server._hub.common.pace
    with grpc_client(stopped.grpc_url) as client, herdpy.connect(stopped.url) as reader:
        text = f"VALUES {', '.join('(1)' for _ in range(13))}"
        query = pb.QueryRequest(statement=pb.ExecuteRequest(text=text), rows_max=1)
        reader.execute("SELECT 1").fetchall()
        assert len(list(client.Query(query))) > 13
        assert pace.waits >= 3
