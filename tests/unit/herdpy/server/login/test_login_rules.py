"""Who has to log in, by a certificate or a password, what absent users show, and who waits."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

import herdpy
from bookie.runtime.interfaces import Clock
from herdpy.config import ServerConfig
from herdpy.errors import OperationalError
from herdpy.proto.messages import ScramStart
from herdpy.server.login.audit import Audit, without_literals
from herdpy.server.login.certificates import names_of
from herdpy.server.login.gate import Gate
from herdpy.server.login.throttle import (
    ADDRESSES_MAX,
    AT_ONCE_MAX,
    FAILURES_FREE,
    FORGET_S,
    Throttle,
    origin_of,
)
from herdpy.server.login.tls import server_tls
from tests.fixtures.authorities import Authority, Identity
from tests.fixtures.engines import Engine, run
from tests.fixtures.servers import RunningServer, running_server
from tests.sim.disk import SimulatedDisk
from tests.unit.herdpy.server.login.test_security import PASSWORD, add_users, events

PROTOCOLS = ("tcp", "grpc")


def url(server: RunningServer, protocol: str, user: str = "", **options: str) -> str:
    address = server.url if protocol == "tcp" else server.grpc_url
    query = urlencode({"retry_timeout_s": "0", **options})
    return f"{address.replace('://', f'://{user}@' if user else '://')}/?{query}"


@pytest.mark.parametrize(
    ("named", "tablespace", "of_one", "of_several"),
    [
        ("ada", "sales", True, False),
        ("ada@sales", "sales", True, True),
        ("ada@sales", "default", True, False),
        ("ada@more", "sales", False, False),
        ("bob@sales", "sales", False, False),
    ],
)
def test_whom_a_certificate_names_at_a_node(
    named: str, tablespace: str, *, of_one: bool, of_several: bool
) -> None:
    """A cluster calls the database itself as it likes; of several each has users of its own."""
    with closing(Engine()) as engine:
        gate = gate_of(engine)
        gate.tablespace = "sales"
        assert gate._is_name_of(named, "ada", tablespace) == of_several
        gate.are_same = lambda one, other: {one, other} <= {"sales", "default"}
        assert gate._is_name_of(named, "ada", tablespace) == of_one


class TestClientCertificates:
    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        return Authority(tmp_path, "ours")

    @pytest.fixture(params=["verify-full", "cert"])
    def check(self, request: pytest.FixtureRequest) -> str:
        return request.param

    @pytest.fixture
    def server(self, authority: Authority, check: str) -> Iterator[RunningServer]:
        identity = authority.issue("server", "127.0.0.1")
        with running_server(
            tls_certificate=identity.certificate,
            tls_key=identity.key,
            tls_client_authority=authority.path,
            tls_client_check=check,
            login_failure_delay_s=0,
        ) as found:
            session = found.engine.session(autocommit=True)
            for user in ("ada", "bob", "ann@test"):
                run(session, f"CREATE USER \"{user}\" PASSWORD '{PASSWORD}'")
            run(session, "CREATE ROLE clerk")
            session.close()
            yield found

    def target(
        self,
        server: RunningServer,
        protocol: str,
        user: str,
        authority: Authority,
        shown: Identity | None,
    ) -> str:
        options = {"tls": "on", "tls_authority": authority.path}
        if shown is not None:
            options |= {"tls_certificate": shown.certificate, "tls_key": shown.key}
        return url(server, protocol, user, **options)

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_the_certificate_names_the_user(
        self, server: RunningServer, authority: Authority, check: str, protocol: str
    ) -> None:
        password = PASSWORD if check == "verify-full" else None
        for user, shown in [
            ("ada", authority.issue("ada", "host.test")),
            ("ann@test", authority.issue("other", "ann@test")),
        ]:
            target = self.target(server, protocol, user, authority, shown)
            with herdpy.connect(target, password=password) as connection:
                found = connection.execute("SHOW session_authorization").fetchall()
                assert found == [(user,)]
            refused = self.target(server, protocol, "bob", authority, shown)
            with pytest.raises(OperationalError, match="does not name the user") as caught:
                herdpy.connect(refused, password=password)
            assert caught.value.sqlstate == "28000"

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_a_certificate_names_a_user_of_one_tablespace(
        self, server: RunningServer, authority: Authority, check: str, protocol: str
    ) -> None:
        session = server.engine.session(autocommit=True)
        run(session, "CREATE TABLESPACE sales OWNER ada")
        run(session, "CREATE TABLESPACE stock OWNER ada")
        run(session, f"CREATE USER \"ada@sales\" PASSWORD '{PASSWORD}'")
        session.close()
        password = PASSWORD if check == "verify-full" else None
        ways = [("ada", "default"), ("ada", "sales"), ("ada", "stock"), ("ada@sales", "default")]
        for named, let_in in (
            ("ada", ("ada", "default")),
            ("ada@default", ("ada", "default")),
            ("ada@sales", ("ada", "sales")),
            ("ada@missing", None),
        ):
            shown = authority.issue(named, "host.test")
            for user, tablespace in ways:
                target = self.target(server, protocol, quote(user, safe=""), authority, shown)
                options: dict[str, Any] = {"password": password, "tablespace": tablespace}
                if (user, tablespace) == let_in:
                    herdpy.connect(target, **options).close()
                    continue
                with pytest.raises(OperationalError, match="does not name the user") as caught:
                    herdpy.connect(target, **options)
                assert caught.value.sqlstate == "28000"

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_nobody_without_a_name(
        self, server: RunningServer, authority: Authority, protocol: str
    ) -> None:
        shown = authority.issue("ada", "host.test")
        with pytest.raises(OperationalError) as caught:
            herdpy.connect(self.target(server, protocol, "", authority, shown))
        assert caught.value.sqlstate == "28000"
        assert events(server, "login") == []

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_nobody_by_another_authority_or_too_late(
        self,
        server: RunningServer,
        authority: Authority,
        tmp_path: Path,
        protocol: str,
    ) -> None:
        foreign = Authority(tmp_path, "foreign").issue("ada-foreign", "ada")
        late = authority.issue("late", "ada", until=datetime(2020, 1, 1, tzinfo=UTC))
        for shown in (foreign, late, None):
            with pytest.raises(OperationalError) as caught:
                herdpy.connect(
                    self.target(server, protocol, "ada", authority, shown), password=PASSWORD
                )
            assert caught.value.sqlstate == "08001"
        assert events(server, "login") == []

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    @pytest.mark.parametrize("name", ["gone", "clerk", "ada"])
    def test_a_certificate_outlives_no_user(
        self, server: RunningServer, authority: Authority, protocol: str, name: str
    ) -> None:
        session = server.engine.session(autocommit=True)
        run(session, "ALTER USER ada NOLOGIN")
        session.close()
        shown = authority.issue(name, "host.test")
        with pytest.raises(OperationalError, match="may not log in") as caught:
            herdpy.connect(self.target(server, protocol, name, authority, shown))
        assert caught.value.sqlstate == "28000"

    def test_the_password_is_asked_for_unless_the_setting_says_cert(
        self, server: RunningServer, authority: Authority, check: str
    ) -> None:
        shown = authority.issue("ada", "host.test")
        target = self.target(server, "tcp", "ada", authority, shown)
        if check == "cert":
            herdpy.connect(target).close()
            with pytest.raises(OperationalError, match="has not shown") as caught:
                herdpy.connect(target, password=PASSWORD)  # the driver wants a proof
            assert caught.value.sqlstate == "28000"
            return
        for password, sqlstate in ((None, "28000"), ("wrong", "28P01")):
            with pytest.raises(OperationalError) as caught:
                herdpy.connect(target, password=password)
            assert caught.value.sqlstate == sqlstate

    def test_the_setting_needs_an_authority(self, check: str) -> None:
        config = ServerConfig(tls_client_check=check)
        with pytest.raises(OperationalError, match="tls_client_authority"):
            server_tls(config)


def test_names_of_what_is_no_certificate() -> None:
    for data in (b"", b"0", b"\x30\x03\x02\x01\x01", bytes(100)):
        assert names_of(data) == frozenset()


def gate_of(engine: Engine, config: ServerConfig | None = None, secret: bytes = b"run") -> Gate:
    clock, settings = engine.database.clock, config or ServerConfig()
    return Gate(engine.database, Audit(clock), secret, settings, Throttle(clock, settings))


def salt(gate: Gate, user: str) -> str:
    login = gate.begin(user, None, None, gate._database, gate._database.login(user))
    assert login is not None
    challenge = login.challenge(ScramStart("SCRAM-SHA-256", "n,,n=*,r=fyko+d2lbbFgONRv9qkxdawL"))
    return challenge.data.split(",s=")[1].split(",")[0]


class TestAbsentUsers:
    def test_their_salts_stay_as_those_of_others_do(self) -> None:
        engine = Engine(disk=SimulatedDisk(1))
        run(engine.session(autocommit=True), "CREATE USER ada PASSWORD 'x'")
        names = ("ada", "nobody", "nobody2")
        before = [salt(gate_of(engine, secret=b"one run"), name) for name in names]
        assert len(set(before)) == 3
        for has_checkpoint in (False, True):
            if has_checkpoint:
                engine.database.run_checkpoint()
            engine.database.close()
            engine.open()
            assert [salt(gate_of(engine, secret=b"other"), name) for name in names] == before
        engine.database.close()

    def test_two_databases_differ(self) -> None:
        salts: set[str] = set()
        for _ in range(2):
            engine = Engine()
            run(engine.session(autocommit=True), "CREATE USER ada PASSWORD 'x'")
            salts.add(salt(gate_of(engine), "nobody"))
            engine.database.close()
        assert len(salts) == 2

    def test_the_secret_is_shown_nowhere(self) -> None:
        engine = Engine()
        session = engine.session(autocommit=True)
        run(session, "CREATE USER ada PASSWORD 'x'")
        access = engine.database.tablespace.state.catalog.access
        secret = access.login_secret
        assert secret is not None
        shown = repr(access.facts) + "".join(
            str(run(session, f"SELECT * FROM {table}"))
            for table in ("sysusers", "sysroles", "sysmembers", "sysgrants")
        )
        assert secret.hex() not in shown
        assert secret.hex().encode() not in b"".join(session.export("dump").pieces())
        engine.database.close()


class TestTheLastPassword:
    """What ends trust is the first password; nothing but a setting brings it back."""

    def drop_users(self, server: RunningServer) -> None:
        session = server.engine.session(autocommit=True)
        run(session, "DROP USER ada")
        run(session, "DROP ROLE bob")
        session.close()

    def test_trust_does_not_come_back(self) -> None:
        disk = SimulatedDisk(1)
        with running_server(disk) as server:
            add_users(server)
            self.drop_users(server)
            with pytest.raises(OperationalError) as caught:
                herdpy.connect(url(server, "tcp"))
            assert caught.value.sqlstate == "28000"
        with running_server(disk) as server, pytest.raises(OperationalError):
            herdpy.connect(url(server, "tcp"))
        with running_server(disk, authentication="trust") as server:
            herdpy.connect(url(server, "tcp")).close()

    def test_a_user_who_never_had_one_ends_nothing(self) -> None:
        with running_server() as server:
            session = server.engine.session(autocommit=True)
            run(session, "CREATE USER ada")
            run(session, "CREATE USER bob PASSWORD NULL")
            session.close()
            herdpy.connect(url(server, "tcp")).close()

    def test_required_asks_from_the_start(self) -> None:
        with running_server(authentication="required") as server:
            for protocol in PROTOCOLS:
                with pytest.raises(OperationalError) as caught:
                    herdpy.connect(url(server, protocol))
                assert caught.value.sqlstate == "28000"

    def test_trust_is_for_this_machine(self) -> None:
        with running_server(authentication="trust") as server:
            add_users(server)
            herdpy.connect(url(server, "tcp")).close()
            with pytest.raises(OperationalError, match="'trust'") as caught:
                server.server.gate.open_to(["10.1.2.3"], has_tls=True)
            assert caught.value.sqlstate == "F0000"


class ManualClock:
    """A Clock that moves when told."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_us(self) -> int:
        return int(self.now_s * 1e6)


class TestThrottle:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    def throttle(self, clock: ManualClock, **settings: Any) -> Throttle:
        as_clock: Clock = clock  # type: ignore[assignment]
        return Throttle(as_clock, ServerConfig(**settings))

    def test_who_fails_often_waits_longer_and_longer_up_to_an_end(self, clock: ManualClock) -> None:
        throttle = self.throttle(clock)
        waits: list[float] = []
        for _ in range(FAILURES_FREE + 6):
            waits.append(throttle.begin("a"))
            if waits[-1]:
                throttle.end("a")
            throttle.failed("a")
        assert waits == [0.0] * FAILURES_FREE + [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
        assert throttle.begin("b") == 0.0

    def test_a_wait_leaves_time_for_the_login(self, clock: ManualClock) -> None:
        throttle = self.throttle(clock, login_timeout_s=2.0)
        for _ in range(1_000):
            throttle.failed("a")
        assert throttle.begin("a") == 1.0

    def test_few_wait_at_once(self, clock: ManualClock) -> None:
        throttle = self.throttle(clock)
        for _ in range(FAILURES_FREE):
            throttle.failed("a")
        for _ in range(AT_ONCE_MAX):
            assert throttle.begin("a") == 0.5
        with pytest.raises(OperationalError) as caught:
            throttle.begin("a")
        assert caught.value.sqlstate == "53300"
        throttle.end("a")
        assert throttle.begin("a") == 0.5
        assert throttle.begin("b") == 0.0

    def test_it_is_forgotten(self, clock: ManualClock) -> None:
        throttle = self.throttle(clock)
        for _ in range(FAILURES_FREE):
            throttle.failed("a")
        clock.now_s += FORGET_S - 1
        assert throttle.begin("a") == 0.5
        throttle.end("a")
        clock.now_s += 1
        assert throttle.begin("a") == 0.0

    def test_its_memory_is_bounded(self, clock: ManualClock) -> None:
        throttle = self.throttle(clock)
        for number in range(ADDRESSES_MAX + 5):
            throttle.failed(str(number))
        assert len(throttle._failed) == ADDRESSES_MAX

    @pytest.mark.parametrize(
        ("peer", "origin"),
        [
            ("10.1.2.3:70", "10.1.2.3"),
            ("ipv4:10.1.2.3:70", "10.1.2.3"),
            ("[2001:db8:1:2:3::4]:70", "2001:db8:1:2::/64"),
            ("ipv6:%5B2001:db8:1:2:3::4%5D:70", "2001:db8:1:2::/64"),
            ("[fe80::1%eth0]:70", "fe80::/64"),
            ("[::ffff:10.1.2.3]:70", "10.1.2.3"),
            ("unix:", "unix"),
        ],
    )
    def test_origins(self, peer: str, origin: str) -> None:
        assert origin_of(peer) == origin

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_logins_wait_and_nobody_is_locked_out(self, protocol: str) -> None:
        with running_server(login_failure_delay_s=0.001) as server:
            add_users(server)
            for _ in range(FAILURES_FREE + 1):
                with pytest.raises(OperationalError) as caught:
                    herdpy.connect(url(server, protocol, "ada"), password="wrong")
                assert caught.value.sqlstate == "28P01"
            [[failed]] = [server.server.gate.throttle._failed.values()]
            assert (failed.count, failed.waiting) == (FAILURES_FREE + 1, 0)
            herdpy.connect(url(server, protocol, "ada"), password=PASSWORD).close()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("CREATE TABLE t (id BIGINT)", "CREATE TABLE t (id BIGINT)"),
        ("/* ' */ DROP TABLE t", "DROP TABLE t"),
        ("/* -- */ DROP TABLE t", "DROP TABLE t"),
        ("-- ' */\nDROP TABLE t", "DROP TABLE t"),
        ("DROP/*'/* */ ' */TABLE \"a'b\", u -- it's", 'DROP TABLE "a\'b", u'),
        ("{# ' #}CREATE USER a PASSWORD'x'", "CREATE USER a PASSWORD …"),
        ("ALTER USER a PASSWORD $$x$$ LOGIN", "ALTER USER a PASSWORD …"),
        ("DROP TABLE t /* ' ", "DROP TABLE t"),
    ],
)
def test_what_the_audit_log_shows_of_a_statement(text: str, shown: str) -> None:
    assert without_literals(text) == shown
