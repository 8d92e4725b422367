"""Who gets into a server, over which connection, and what the audit log says of it."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from struct import pack
from typing import Any
from urllib.parse import urlencode

import pytest

import herdpy
from bookie.runtime.os_executors import new_loop
from herdpy.config import ServerConfig
from herdpy.errors import OperationalError
from herdpy.proto.messages import (
    MAGIC,
    VERSION,
    Execute,
    Failed,
    Hello,
    LoginRequired,
    decode_to_driver,
    encode_frame,
)
from herdpy.server.login.tls import server_tls
from herdpy.server.operations.metrics import families
from tests.fixtures import faces
from tests.fixtures.authorities import Authority, Identity
from tests.fixtures.engines import rows
from tests.fixtures.servers import RunningServer, running_server

PASSWORD = "correct horse"
HELLO = Hello(MAGIC, VERSION, VERSION, "test", "default", autocommit=True)


@pytest.fixture
def server() -> Iterator[RunningServer]:
    """A server with the users ada and, who may not log in, bob."""
    with running_server(login_failure_delay_s=0) as found:
        add_users(found)
        yield found


def add_users(server: RunningServer) -> None:
    with herdpy.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        connection.execute(f"CREATE USER ada PASSWORD '{PASSWORD}'")
        connection.execute(f"CREATE ROLE bob PASSWORD '{PASSWORD}'")


def url(server: RunningServer, user: str = "", **options: str) -> str:
    at = f"{user}@" if user else ""
    query = urlencode({"retry_timeout_s": "0", **options})
    return f"herd://{at}127.0.0.1:{server.port}/?{query}"


def events(server: RunningServer, *names: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in server.audit]
    return [each for each in found if each["event"] in names]


@pytest.fixture(params=faces.FACES)
def _face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with faces.open_face(request.param, monkeypatch):
        yield


class TestExports:
    def test_only_superusers_read_the_whole_database(
        self, server: RunningServer, tmp_path: Path
    ) -> None:
        with herdpy.connect(url(server, "ada"), password=PASSWORD) as connection:
            for export in (connection.backup, connection.dump):
                with pytest.raises(herdpy.Error) as caught:
                    export(tmp_path / "a")
                assert caught.value.sqlstate == "42501"
        assert len(events(server, "denied")) == 2
        assert list(tmp_path.iterdir()) == events(server, "exported") == []
        session = server.engine.session(autocommit=True)
        session.execute(f"CREATE USER boss SUPERUSER PASSWORD '{PASSWORD}'").close()
        session.close()
        with herdpy.connect(url(server, "boss"), password=PASSWORD) as connection:
            connection.backup(tmp_path / "a")
        assert [each["kind"] for each in events(server, "exported")] == ["backup"]


@pytest.mark.usefixtures("_face")
class TestLogins:
    def test_a_user_logs_in_and_has_her_rights(self, server: RunningServer) -> None:
        with herdpy.connect(url(server, "ada"), password=PASSWORD, autocommit=True) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            with pytest.raises(herdpy.Error) as caught:
                connection.execute("SELECT * FROM t")
            assert caught.value.sqlstate == "42501"
        assert [each["user"] for each in events(server, "login")] == ["", "ada"]
        [denied] = events(server, "denied")
        assert (denied["user"], denied["statement"]) == ("ada", "SELECT * FROM t")

    @pytest.mark.parametrize(
        ("user", "password", "reason"),
        [
            ("ada", "wrong", "wrong password"),
            ("nobody", PASSWORD, "there is no such user"),
            ("bob", PASSWORD, "the user may not log in"),
        ],
    )
    def test_all_others_are_told_the_same(
        self, server: RunningServer, user: str, password: str, reason: str
    ) -> None:
        with pytest.raises(OperationalError) as caught:
            herdpy.connect(url(server, user), password=password)
        assert caught.value.sqlstate == "28P01"
        assert caught.value.message == f'password authentication failed for user "{user}"'
        [failed] = events(server, "login_failed")
        assert (failed["user"], failed["reason"]) == (user, reason)

    @pytest.mark.parametrize("user", ["", "ada"])
    def test_nobody_without_a_password(self, server: RunningServer, user: str) -> None:
        with pytest.raises(OperationalError) as caught:
            herdpy.connect(url(server, user))
        assert caught.value.sqlstate == "28000"

    def test_a_new_password_counts_at_once(self, server: RunningServer) -> None:
        with herdpy.connect(url(server, "ada"), password=PASSWORD, autocommit=True) as connection:
            connection.execute("ALTER USER ada PASSWORD 'another one'")
            with pytest.raises(OperationalError):
                herdpy.connect(url(server, "ada"), password=PASSWORD)
            herdpy.connect(url(server, "ada"), password="another one").close()

    def test_a_server_without_users_is_not_believed(self) -> None:
        with running_server(login_failure_delay_s=0) as server:
            with pytest.raises(OperationalError) as caught:
                herdpy.connect(url(server, "ada"), password=PASSWORD)
            assert caught.value.sqlstate == "28P01"

    def test_the_audit_log_has_no_secrets(self, server: RunningServer) -> None:
        with pytest.raises(OperationalError):
            herdpy.connect(url(server, "ada"), password="a wrong secret")
        changed = [each["statement"] for each in events(server, "changed")]
        assert changed[1:] == ["CREATE USER ada PASSWORD …", "CREATE ROLE bob PASSWORD …"]
        written = b"".join(server.audit)
        assert b"horse" not in written
        assert b"secret" not in written
        assert b"SCRAM" not in written


class TestUnauthenticatedConnections:
    def test_nothing_runs_before_welcome(self, server: RunningServer) -> None:
        drop = Execute(1, "DROP TABLE t", None)
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            hello = Hello(MAGIC, VERSION, VERSION, "t", "default", autocommit=True, user="ada")
            peer.sendall(encode_frame(hello))
            assert isinstance(decode_to_driver(peer.recv(65536)[4:]), LoginRequired)
            peer.sendall(encode_frame(drop))
            [failed] = messages_of(peer)
        assert isinstance(failed, Failed)
        assert failed.sqlstate == "08P01"
        session = server.engine.session()
        assert rows(session, "SELECT * FROM t") == []
        session.close()
        assert events(server, "changed")[-1]["statement"].startswith("CREATE")

    @pytest.mark.parametrize("sent", [b"", b"\0\0", encode_frame(HELLO)[:-1]])
    def test_who_is_slow_has_to_go(self, sent: bytes) -> None:
        with (
            running_server(login_timeout_s=0.05) as server,
            socket.create_connection(("127.0.0.1", server.port)) as peer,
        ):
            peer.sendall(sent)
            [failed] = messages_of(peer)
            assert failed.sqlstate == "08004"
            assert "no login within" in events(server, "refused")[0]["reason"]

    @pytest.mark.parametrize("limit", ["logins_max", "logins_of_address_max"])
    def test_there_is_room_for_few_and_the_oldest_gives_way(self, limit: str) -> None:
        with running_server(**{limit: 2}) as server, ExitStack() as opened:
            address = ("127.0.0.1", server.port)
            inside = opened.enter_context(herdpy.connect(server.url))
            idle = [opened.enter_context(socket.create_connection(address)) for _ in range(5)]
            for first in idle[:3]:
                [failed] = messages_of(first)
                assert (failed.sqlstate, failed.retry) == ("53300", "safe")
            hub = server.server._hub
            assert (len(hub.unauthenticated), len(hub.connections)) == (2, 3)
            # Who says who it is gets in, however many stay silent.
            for _ in range(10):
                herdpy.connect(f"{server.url}/?retry_timeout_s=0").close()
            refused = {
                sample.labels["limit"]: sample.value
                for family in families(hub)
                for sample in family.samples
                if sample.name == "herdpy_refused_total"
            }
            assert refused == {limit: 4}
            assert inside.execute("SELECT 1").fetchone() == (1,)

    def test_a_login_that_has_begun_outlives_those_that_say_nothing(self) -> None:
        with running_server(logins_of_address_max=2) as server, ExitStack() as opened:
            with herdpy.connect(server.url, autocommit=True) as first:
                first.execute("CREATE USER ada PASSWORD 'a password'")
            address = ("127.0.0.1", server.port)
            peer = opened.enter_context(socket.create_connection(address))
            hello = Hello(MAGIC, VERSION, VERSION, "t", "default", autocommit=True, user="ada")
            peer.sendall(encode_frame(hello))
            assert isinstance(decode_to_driver(peer.recv(65536)[4:]), LoginRequired)
            idle = [opened.enter_context(socket.create_connection(address)) for _ in range(5)]
            for first_idle in idle[:4]:
                [failed] = messages_of(first_idle)
                assert failed.sqlstate == "53300"
            peer.sendall(encode_frame(Execute(1, "SELECT 1", None)))
            [failed] = messages_of(peer)
            assert failed.sqlstate == "08P01"  # it was heard: it has not given way

    def test_strangers_take_no_place_of_those_who_are_in(self) -> None:
        with running_server(connections_max=1) as server:
            with (
                socket.create_connection(("127.0.0.1", server.port)),
                herdpy.connect(server.url),
                pytest.raises(OperationalError) as caught,
            ):
                herdpy.connect(url(server))
            assert caught.value.sqlstate == "53300"


def messages_of(peer: socket.socket) -> list[Any]:
    """Return what the server says until it closes."""
    data = b""
    try:
        while piece := peer.recv(65536):
            data += piece
    except ConnectionResetError:
        pass  # it closed while bytes of ours were on their way
    found: list[Any] = []
    while data:
        length = int.from_bytes(data[:4], "big")
        found.append(decode_to_driver(data[4 : 4 + length]))
        data = data[4 + length :]
    return found


async def no_connections(server: RunningServer) -> None:
    hub = server.server._hub
    async with asyncio.timeout(10):
        while hub.connections or hub._handshakes:  # noqa: ASYNC110 - each ends by itself
            await asyncio.sleep(0)


@pytest.mark.usefixtures("_face")
class TestTls:
    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        return Authority(tmp_path, "ours")

    @pytest.fixture
    def foreign(self, tmp_path: Path) -> Authority:
        return Authority(tmp_path, "foreign")

    @pytest.fixture
    def identity(self, authority: Authority) -> Identity:
        return authority.issue("server", "127.0.0.1", "db.test")

    @pytest.fixture
    def secured(self, identity: Identity) -> Iterator[RunningServer]:
        with running_server(
            tls_certificate=identity.certificate, tls_key=identity.key, login_failure_delay_s=0
        ) as found:
            yield found

    def test_all_goes_on_over_tls(self, secured: RunningServer, authority: Authority) -> None:
        target = url(secured, tls="on", tls_authority=authority.path)
        with herdpy.connect(target, autocommit=True) as connection:
            connection.execute("CREATE TABLE big (id BIGINT PRIMARY KEY, data TEXT)")
            sent = [(n, "x" * 1000) for n in range(3000)]
            connection.executemany("INSERT INTO big VALUES (?, ?)", sent)
            assert connection.execute("SELECT * FROM big ORDER BY id").fetchall() == sent
            connection.execute(f"CREATE USER ada PASSWORD '{PASSWORD}'")
        named = url(
            secured, "ada", tls="on", tls_authority=authority.path, tls_server_name="db.test"
        )
        with herdpy.connect(named, password=PASSWORD) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(OperationalError) as caught:
            herdpy.connect(named, password="wrong")
        assert caught.value.sqlstate == "28P01"

    def test_no_handshake_waits_for_what_has_come(
        self, identity: Identity, authority: Authority
    ) -> None:
        """uvloop may read the client's first bytes before TLS is there to take them."""
        with running_server(
            new_loop=new_loop, tls_certificate=identity.certificate, tls_key=identity.key
        ) as server:
            for _ in range(50):
                herdpy.connect(url(server, tls="on", tls_authority=authority.path)).close()
            assert events(server, "tls_failed", "refused") == []

    @pytest.mark.parametrize("loops", [asyncio.new_event_loop, new_loop])
    @pytest.mark.parametrize("is_reset", [False, True])
    def test_who_closes_before_the_handshake_leaves_nothing(
        self,
        identity: Identity,
        authority: Authority,
        loops: Callable[[], asyncio.AbstractEventLoop],
        is_reset: bool,
    ) -> None:
        """uvloop ends no handshake of a connection that was lost before it began."""
        with running_server(
            new_loop=loops,
            tls_certificate=identity.certificate,
            tls_key=identity.key,
            login_timeout_s=60,
        ) as server:
            for _ in range(100):
                client = socket.create_connection(("127.0.0.1", server.port))
                if is_reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
                client.close()
            # A client behind them is served; then all of theirs has come.
            herdpy.connect(url(server, tls="on", tls_authority=authority.path)).close()
            server.call(lambda: no_connections(server))

    @pytest.mark.parametrize("loops", [asyncio.new_event_loop, new_loop])
    def test_a_server_ends_with_handshakes_under_way(
        self, identity: Identity, loops: Callable[[], asyncio.AbstractEventLoop]
    ) -> None:
        with (
            ExitStack() as stack,
            running_server(
                new_loop=loops,
                tls_certificate=identity.certificate,
                tls_key=identity.key,
                login_timeout_s=3600,
            ) as server,
        ):
            for _ in range(5):  # without a word
                client = socket.create_connection(("127.0.0.1", server.port))
                stack.enter_context(client)
            for _ in range(20):
                socket.create_connection(("127.0.0.1", server.port)).close()

            async def arrived() -> None:
                while repr(server.server._numbers) != "count(26)":  # noqa: ASYNC110 - of the socket
                    await asyncio.sleep(0)

            server.call(lambda: asyncio.wait_for(arrived(), 10))
            server.call(lambda: asyncio.wait_for(server.server.close(), 10))

    def test_a_foreign_authority_is_not_trusted(
        self, secured: RunningServer, foreign: Authority
    ) -> None:
        for options in ({}, {"tls_authority": foreign.path}):
            with pytest.raises(OperationalError, match="not trusted") as caught:
                herdpy.connect(url(secured, tls="on", **options))
            assert caught.value.sqlstate == "08001"

    def test_another_name_is_not_trusted(
        self, secured: RunningServer, authority: Authority
    ) -> None:
        options = {"tls_authority": authority.path, "tls_server_name": "other.test"}
        with pytest.raises(OperationalError, match="not trusted"):
            herdpy.connect(url(secured, tls="on", **options))

    @pytest.mark.parametrize("loops", [asyncio.new_event_loop, new_loop])
    def test_the_audit_log_says_why_a_handshake_failed(
        self,
        identity: Identity,
        foreign: Authority,
        loops: Callable[[], asyncio.AbstractEventLoop],
    ) -> None:
        with running_server(
            new_loop=loops, tls_certificate=identity.certificate, tls_key=identity.key
        ) as server:
            with pytest.raises(OperationalError, match="not trusted"):
                herdpy.connect(url(server, tls="on", tls_authority=foreign.path))
            server.call(lambda: no_connections(server))
            [failed] = events(server, "tls_failed")
            assert failed["reason"]

    def test_an_expired_certificate_is_not_trusted(self, authority: Authority) -> None:
        old = authority.issue("old", "127.0.0.1", until=datetime(2020, 1, 1, tzinfo=UTC))
        with (
            running_server(tls_certificate=old.certificate, tls_key=old.key) as server,
            pytest.raises(OperationalError, match="expired"),
        ):
            herdpy.connect(url(server, tls="on", tls_authority=authority.path))

    def test_no_downgrade(self, secured: RunningServer, authority: Authority) -> None:
        with pytest.raises(OperationalError) as caught:
            herdpy.connect(url(secured))
        assert caught.value.sqlstate == "08001"
        assert "tls=on" in str(caught.value.hint)
        with running_server() as plain, pytest.raises(OperationalError) as caught:
            herdpy.connect(url(plain, tls="on", tls_authority=authority.path))
        assert caught.value.sqlstate == "08001"

    def test_clients_show_certificates(
        self, authority: Authority, foreign: Authority, identity: Identity
    ) -> None:
        ours, theirs = authority.issue("client", "c.test"), foreign.issue("thief", "c.test")
        expired = authority.issue("late", "c.test", until=datetime(2020, 1, 1, tzinfo=UTC))
        with running_server(
            tls_certificate=identity.certificate,
            tls_key=identity.key,
            tls_client_authority=authority.path,
        ) as server:

            def target(shown: Identity | None) -> str:
                options = {"tls": "on", "tls_authority": authority.path}
                if shown is not None:
                    options |= {"tls_certificate": shown.certificate, "tls_key": shown.key}
                return url(server, **options)

            with herdpy.connect(target(ours)) as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
            for shown in (None, theirs, expired):
                with pytest.raises(OperationalError) as caught:
                    herdpy.connect(target(shown))
                assert caught.value.sqlstate == "08001"
            assert len(events(server, "login")) == 1

    def test_new_certificates_without_a_restart(
        self, secured: RunningServer, authority: Authority, foreign: Authority
    ) -> None:
        ours = url(secured, tls="on", tls_authority=authority.path)
        theirs = url(secured, tls="on", tls_authority=foreign.path)
        with herdpy.connect(ours) as before:
            foreign.issue("server", "127.0.0.1")  # in place of the old files
            secured.server.reload(secured.server._hub.config)
            assert before.execute("SELECT 1").fetchone() == (1,)
            herdpy.connect(theirs).close()
            with pytest.raises(OperationalError, match="not trusted"):
                herdpy.connect(ours)
        assert len(events(secured, "certificates_reloaded")) == 1

    def test_files_that_cannot_be_used_change_nothing(
        self, secured: RunningServer, authority: Authority, identity: Identity
    ) -> None:
        Path(identity.key).write_text("none")
        with pytest.raises(OperationalError, match=r"server\.pem") as caught:
            secured.server.reload(secured.server._hub.config)
        assert caught.value.sqlstate == "F0000"
        herdpy.connect(url(secured, tls="on", tls_authority=authority.path)).close()

    def test_who_is_slow_with_tls_has_to_go(self, identity: Identity) -> None:
        with (
            running_server(
                tls_certificate=identity.certificate, tls_key=identity.key, login_timeout_s=0.05
            ) as server,
            socket.create_connection(("127.0.0.1", server.port)) as peer,
        ):
            peer.sendall(b"\x16\x03\x01")
            assert messages_of(peer) == []

    @pytest.mark.parametrize(
        "settings",
        [
            {"tls_certificate": "c.pem"},
            {"tls_key": "k.pem"},
            {"tls_client_authority": "a.pem"},
            {"tls_certificate": "missing.pem", "tls_key": "missing.pem"},
        ],
    )
    def test_settings_that_make_no_sense(self, settings: dict[str, str]) -> None:
        config = ServerConfig(**settings)  # type: ignore[arg-type]
        with pytest.raises(OperationalError) as caught:
            server_tls(config)
        assert caught.value.sqlstate == "F0000"


class TestAddresses:
    """An address that others reach needs TLS and a user with a password."""

    @pytest.mark.parametrize("host", ["0.0.0.0", "::"])
    def test_neither(self, host: str) -> None:
        with running_server() as server, pytest.raises(OperationalError) as caught:
            server.server.gate.open_to(["127.0.0.1", host], has_tls=False)
        assert "needs TLS" in caught.value.message
        assert "and a user with a password" in caught.value.message

    def test_only_a_user(self, server: RunningServer) -> None:
        with pytest.raises(OperationalError) as caught:
            server.server.gate.open_to(["10.1.2.3"], has_tls=False)
        assert caught.value.message.endswith("needs TLS (--tls-certificate, --tls-key)")

    def test_both(self, server: RunningServer) -> None:
        server.server.gate.open_to(["10.1.2.3"], has_tls=True)
        with pytest.raises(OperationalError) as caught:
            server.server.gate.begin("", None, None, server.engine.database)
        assert caught.value.sqlstate == "28000"

    def test_who_drops_the_last_user_does_not_open_the_door(self, server: RunningServer) -> None:
        server.server.gate.open_to(["10.1.2.3"], has_tls=True)
        session = server.engine.session(autocommit=True)
        session.execute("DROP USER ada")
        session.execute("DROP ROLE bob")
        session.close()
        with pytest.raises(OperationalError):
            server.server.gate.begin("", None, None, server.engine.database)


def test_defaults_are_strict() -> None:
    config = ServerConfig()
    assert config.host == "127.0.0.1"
    assert 0 < config.login_timeout_s <= 30
    assert config.login_failure_delay_s > 0
