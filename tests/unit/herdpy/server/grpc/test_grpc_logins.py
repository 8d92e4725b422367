"""Login of the gRPC service, by a client that knows only herdpy.proto; and what a token opens."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from scramp import ScramClient, ScramException

from herdpy.proto import herdpy_pb2 as pb
from tests.fixtures.authorities import Authority, Identity
from tests.fixtures.grpc_clients import Client, Stream, error_of, grpc_client, plain
from tests.fixtures.servers import RunningServer, running_server

PASSWORD = "correct horse"
Metadata = tuple[tuple[str, str], ...]


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(connections_max=4, login_failure_delay_s=0) as running:
        add_users(running)
        yield running


def add_users(server: RunningServer) -> None:
    session = server.engine.session(autocommit=True)
    for text in (
        "CREATE TABLE t (id BIGINT PRIMARY KEY)",
        f"CREATE USER ada PASSWORD '{PASSWORD}'",
        f"CREATE ROLE bob PASSWORD '{PASSWORD}'",
    ):
        session.execute(text).close()
    session.close()


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with grpc_client(server.grpc_url) as found:
        yield found


class LoginStream:
    """Login, message by message."""

    def __init__(self, client: Client, **more: Any) -> None:
        self._requests: SimpleQueue[pb.LoginRequest | None] = SimpleQueue()
        self.call = client.Login(iter(self._requests.get, None), **more)
        client.streams.append(self)  # type: ignore[arg-type]  # it has an end(), too

    def send(self, **kind: Any) -> None:
        self._requests.put(pb.LoginRequest(**kind))

    def next(self) -> pb.LoginReply:
        return next(self.call)

    def end(self) -> None:
        self._requests.put(None)


def log_in(client: Client, user: str, password: str) -> str:
    """Return a token, as a client does that checks the server, too."""
    scram = ScramClient(["SCRAM-SHA-256"], user, password)
    login = LoginStream(client)
    login.send(start=pb.LoginStart(user=user, client_first=scram.get_client_first()))
    scram.set_server_first(login.next().challenge)
    login.send(proof=scram.get_client_final())
    done = login.next().logged_in
    scram.set_server_final(done.verified)
    assert list(login.call) == []
    login.end()
    assert done.valid_s == 3600
    return done.token


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


def basic(user: str, password: str) -> Metadata:
    return (("authorization", f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"),)


def status_of(call: Callable[[], Any]) -> tuple[str, str]:
    """Return the status and the SQLSTATE of a call that fails."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert PASSWORD not in str(caught.value)
    return caught.value.code().name, error_of(caught.value).sqlstate


def events(server: RunningServer, name: str) -> list[dict[str, Any]]:
    return [each for each in map(json.loads, server.audit) if each["event"] == name]


# --- logging in ----------------------------------------------------------------------------------


def test_a_proof_gives_a_token(server: RunningServer, client: Client) -> None:
    metadata = bearer(log_in(client, "ada", PASSWORD))
    found = client.Execute(pb.ExecuteRequest(text="SELECT 1"), metadata=metadata)
    assert plain(found.rows) == [[1]]
    refused = status_of(
        lambda: client.Execute(pb.ExecuteRequest(text="SELECT * FROM t"), metadata=metadata)
    )
    assert refused == ("PERMISSION_DENIED", "42501")
    session = Stream(client, pb.Open(autocommit=True), metadata=metadata)
    assert plain(session.execute("SELECT 2").done.rows) == [[2]]
    assert session.execute("SELECT * FROM t").failed.error.sqlstate == "42501"
    logins = events(server, "login")
    assert {each["user"] for each in logins} == {"ada"}
    assert {each["peer"].rpartition(":")[0] for each in logins} == {"127.0.0.1"}
    assert PASSWORD.encode() not in b"".join(server.audit)
    assert metadata[0][1].encode() not in b"".join(server.audit)


def test_a_password_gives_a_token(client: Client) -> None:
    login = LoginStream(client, metadata=basic("ada", PASSWORD))
    token = login.next().logged_in.token
    assert client.Execute(pb.ExecuteRequest(text="SELECT 1"), metadata=bearer(token)).rows
    again = LoginStream(client, metadata=bearer(token))
    assert status_of(again.next) == ("UNAUTHENTICATED", "28000")


@pytest.mark.parametrize(
    ("user", "password"), [("ada", "wrong"), ("nobody", PASSWORD), ("bob", PASSWORD)]
)
def test_all_others_are_told_the_same(
    server: RunningServer, client: Client, user: str, password: str
) -> None:
    told = ("UNAUTHENTICATED", "28P01")
    assert status_of(lambda: log_in(client, user, password)) == told
    by_password = LoginStream(client, metadata=basic(user, password))
    assert status_of(by_password.next) == told
    assert [each["user"] for each in events(server, "login_failed")] == [user, user]


def test_a_proof_counts_once(client: Client) -> None:
    """A client that has seen a whole login cannot play it again: the nonce is new."""
    scram = ScramClient(["SCRAM-SHA-256"], "ada", PASSWORD)
    first = scram.get_client_first()
    login = LoginStream(client)
    login.send(start=pb.LoginStart(user="ada", client_first=first))
    scram.set_server_first(login.next().challenge)
    proof = scram.get_client_final()
    login.send(proof=proof)
    assert login.next().logged_in.token
    again = LoginStream(client)
    again.send(start=pb.LoginStart(user="ada", client_first=first))
    again.next()
    again.send(proof=proof)
    assert status_of(again.next)[0] in ("UNAUTHENTICATED", "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    "requests",
    [
        [],
        [pb.LoginRequest()],
        [pb.LoginRequest(proof="c=biws,r=x,p=eA==")],
        [pb.LoginRequest(start=pb.LoginStart(client_first="n,,n=*,r=abc"))],
        [pb.LoginRequest(start=pb.LoginStart(user="ada", client_first="nonsense"))],
        [pb.LoginRequest(start=pb.LoginStart(user="ada", client_first="p=x,,n=*,r=abc"))],
        [pb.LoginRequest(start=pb.LoginStart(user="ada", client_first="x" * 100_000))],
        [pb.LoginRequest(start=pb.LoginStart(user="ada", client_first="n,,n=*,r=abc"))] * 2,
        [
            pb.LoginRequest(start=pb.LoginStart(user="ada", client_first="n,,n=*,r=abc")),
            pb.LoginRequest(proof="nonsense"),
        ],
    ],
)
def test_what_is_no_login(
    server: RunningServer, client: Client, requests: list[pb.LoginRequest]
) -> None:
    call = client.Login(iter(requests))
    status, sqlstate = status_of(lambda: list(call))
    assert (status, sqlstate) in [
        ("INVALID_ARGUMENT", "08P01"), ("UNAUTHENTICATED", "28000"), ("UNAUTHENTICATED", "28P01"),
    ]  # fmt: skip
    server.call(server.server._hub.wait_idle)


def test_the_server_proves_itself(client: Client) -> None:
    scram = ScramClient(["SCRAM-SHA-256"], "ada", PASSWORD)
    login = LoginStream(client)
    login.send(start=pb.LoginStart(user="ada", client_first=scram.get_client_first()))
    scram.set_server_first(login.next().challenge)
    login.send(proof=scram.get_client_final())
    with pytest.raises(ScramException):
        scram.set_server_final("v=" + b64encode(bytes(32)).decode())
    assert login.next().logged_in.verified


def test_who_is_slow_has_to_go() -> None:
    with running_server(login_timeout_s=0.05) as server:
        add_users(server)
        with grpc_client(server.grpc_url) as client:
            login = LoginStream(client)
            assert status_of(login.next) == ("FAILED_PRECONDITION", "08004")
            server.call(server.server._hub.wait_idle)


# --- without a login nothing ---------------------------------------------------------------------

STATEMENT = pb.ExecuteRequest(text="CREATE TABLE never (id BIGINT PRIMARY KEY)")
CALLS: dict[str, Any] = {
    "Execute": STATEMENT,
    "Query": pb.QueryRequest(statement=STATEMENT),
    "ListTables": pb.ListTablesRequest(),
    "GetServer": pb.GetServerRequest(),
    "GetTablespace": pb.GetTablespaceRequest(),
    "GetSnapshot": pb.SnapshotRequest(),
    "Ingest": [pb.IngestRequest(start=pb.IngestStart(table="t"))],
}


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        basic("ada", "wrong"),
        basic("nobody", PASSWORD),
        basic("", PASSWORD),
        bearer(""),
        bearer("abc"),
        bearer("x" * 4000),
        (("authorization", "Basic %%%"),),
        (("authorization", "Digest abc"),),
        (*basic("ada", PASSWORD), *basic("ada", PASSWORD)),
        (*bearer("abc"), *basic("ada", PASSWORD)),
    ],
)
def test_every_call_asks_for_a_login(
    server: RunningServer, client: Client, metadata: Metadata
) -> None:
    for name, request in CALLS.items():
        sent = iter(request) if isinstance(request, list) else request
        call = getattr(client, name)
        with pytest.raises(grpc.RpcError) as caught:
            list(call(sent, metadata=metadata))  # a list of those that stream
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, name
        assert error_of(caught.value).sqlstate[:2] == "28"
        assert PASSWORD not in str(caught.value)
    tables = server.engine.database.tablespace.applier.state.catalog.tables()
    assert [table.name for table in tables] == ["t"]


@pytest.mark.parametrize("name", CALLS)
def test_strangers_are_not_even_listened_to(client: Client, name: str) -> None:
    nothing: SimpleQueue[bytes | None] = SimpleQueue()
    call = client.channel.stream_stream(f"/herdpy.v1.Herdpy/{name}")
    replies = call(iter(nothing.get, None))
    with pytest.raises(grpc.RpcError) as caught:
        next(replies)  # though no message was sent
    nothing.put(None)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("proof", ["Basic", "Bearer"])
def test_nobody_has_to_wait_for_the_welcome(client: Client, proof: str) -> None:
    """What came behind Open was taken for a part of the login by a password."""
    metadata = basic("ada", PASSWORD)
    if proof == "Bearer":
        metadata = bearer(log_in(client, "ada", PASSWORD))
    requests = [
        pb.SessionRequest(open=pb.Open(autocommit=True)),
        *(pb.SessionRequest(request=n, execute=pb.Execute(text="SELECT 1")) for n in (1, 2)),
    ]
    call = client.channel.stream_stream("/herdpy.v1.Herdpy/Session")
    sent = iter([each.SerializeToString() for each in requests])
    replies = [pb.SessionReply.FromString(each) for each in call(sent, metadata=metadata)]
    assert [each.WhichOneof("kind") for each in replies] == ["welcome", "done", "done"]


def test_large_messages_of_strangers_are_not_read(
    server: RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of empty values takes 25 times its bytes, while a password is only claimed."""
    values = [pb.Value()] * 100_000
    request = pb.ExecuteRequest(
        text="SELECT 1", parameters=pb.Parameters(positional=pb.Row(values=values))
    )
    hub = server.server._hub
    read: list[str] = []
    submit = hub.workers.submit

    def submitted(job: Any, *, is_urgent: bool) -> Any:
        read.append(str(hub.received.used > 100_000))
        return submit(job, is_urgent=is_urgent)

    monkeypatch.setattr(hub.workers, "submit", submitted)

    def execute(password: str) -> tuple[str, str]:
        read.clear()
        return status_of(lambda: client.Execute(request, metadata=basic("ada", password)))

    assert execute("wrong") == ("UNAUTHENTICATED", "28P01")
    assert "True" not in read
    assert execute(PASSWORD)[1] == "54023"  # it was read, and has too many values
    assert "True" in read
    stream = client.channel.stream_stream("/herdpy.v1.Herdpy/Login")
    large = pb.LoginRequest(start=pb.LoginStart(user="a" * 20_000)).SerializeToString()
    assert status_of(lambda: list(stream(iter([large])))) == ("INVALID_ARGUMENT", "08P01")
    large = pb.SessionRequest(open=pb.Open(client="a" * 20_000)).SerializeToString()
    session = client.channel.stream_stream("/herdpy.v1.Herdpy/Session")
    [reply] = map(pb.SessionReply.FromString, session(iter([large])))
    assert reply.failed.error.sqlstate == "08P01"


def test_all_calls_are_asked_for() -> None:
    """A new call has to be in the table above."""
    described = pb.DESCRIPTOR.services_by_name["Herdpy"].methods_by_name
    assert {*CALLS, "Session", "Login"} == set(described)


# --- tokens --------------------------------------------------------------------------------------


def test_a_token_ends_with_its_password(server: RunningServer, client: Client) -> None:
    metadata = bearer(log_in(client, "ada", PASSWORD))
    open_session = Stream(client, pb.Open(autocommit=True), metadata=metadata)
    session = server.engine.session(autocommit=True)
    session.execute("ALTER USER ada PASSWORD 'another one'").close()
    session.close()
    told = status_of(lambda: client.Execute(STATEMENT, metadata=metadata))
    assert told == ("UNAUTHENTICATED", "28000")
    assert plain(open_session.execute("SELECT 1").done.rows) == [[1]]  # as over a socket


def test_a_token_is_of_the_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    own = authority.issue("server", "127.0.0.1")
    first, second = authority.issue("first", "c.test"), authority.issue("second", "c.test")
    with running_server(
        tls_certificate=own.certificate, tls_key=own.key, tls_client_authority=authority.path
    ) as server:
        add_users(server)

        def as_(shown: Identity) -> Any:
            return grpc_client(server.grpc_url, authority=authority.path, shown=shown)

        with as_(first) as one, as_(second) as other:
            metadata = bearer(log_in(one, "ada", PASSWORD))
            request = pb.ExecuteRequest(text="SELECT 1")
            assert status_of(lambda: other.Execute(request, metadata=metadata)) == (
                "UNAUTHENTICATED",
                "28000",
            )
            assert plain(one.Execute(request, metadata=metadata).rows) == [[1]]
