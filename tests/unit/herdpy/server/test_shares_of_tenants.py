"""Who may log in cannot take a server from the others: shares of tablespaces and of users."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

import herdpy
from herdpy.engine.limit_rows import WaitRow
from herdpy.errors import Error, Retry
from herdpy.model.access import User
from herdpy.model.settings import Settings
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto.messages import MAGIC, VERSION, Hello, encode_frame
from herdpy.server.connection import _STOP_AGAIN_S
from herdpy.server.limits import (
    REQUEST_BYTES,
    RESULTS,
    Account,
    Budget,
    Full,
    Share,
    tablespace_share,
)
from tests.fixtures.engines import Background, Engine, engine, run, tablespace_of
from tests.fixtures.grpc_clients import error_of, grpc_client
from tests.fixtures.servers import RunningServer, running_server
from tests.unit.herdpy.server.grpc.test_grpc_logins import basic

MIB = 1024 * 1024
WORKERS = 4
SHARE = 3  # of them, a tablespace other than default has
SLOW = "SELECT count(*) FROM t AS a, t AS b, t AS c, t AS d WHERE a.v + b.v + c.v + d.v = -1"
ADA, ANN, EVE = User("ada", 1), User("ann", 2), User("eve", 3)


# --- shares ---------------------------------------------------------------------------------------


@pytest.fixture
def made() -> Iterator[Engine]:
    with engine() as found:
        session = found.default.session(Settings(), autocommit=True)
        run(session, "CREATE USER ada SUPERUSER")
        run(session, "CREATE USER ann")
        session.close()
        yield found


def limit_of(full: Full | None) -> str | None:
    return None if full is None else full.limit


def test_a_tablespace_may_have_three_quarters_and_administrators_the_last_tenth(
    made: Engine,
) -> None:
    budget = Budget(100)
    sales = Share(budget, REQUEST_BYTES, tablespace_of(made.default, "sales"), is_halved=True)
    stock = Share(budget, REQUEST_BYTES, tablespace_of(made.default, "stock"), is_halved=True)
    default = Share(budget, REQUEST_BYTES, made.default, is_halved=True)
    assert (sales.maximum, default.maximum, tablespace_share(1)) == (75, 100, 1)
    assert sales.take(ADA, 50) is None
    refused = sales.take(ADA, 1)  # a superuser of its tablespace is no administrator
    assert refused == (
        "request_bytes_of_user_max", 'user "ada"', 50, 50,
        "a user other than a superuser of default has half of request_bytes_max",
    )  # fmt: skip
    assert sales.take(ANN, 25) is None
    refused = sales.take(ANN, 1)
    assert refused == (
        "request_bytes_of_tablespace_max", 'tablespace "sales"', 75, 75,
        "a tablespace other than default has three quarters of request_bytes_max",
    )  # fmt: skip
    assert stock.take(ADA, 15) is None
    assert limit_of(stock.take(ADA, 1)) == "request_bytes_max"
    refused = default.take(ANN, 1)
    assert refused is not None
    assert (refused.limit, refused.whose) == ("request_bytes_max", "all connections")
    assert "the last tenth is kept for superusers of default" in refused.hint
    assert default.take(ADA, 10) is None
    refused = default.take(ADA, 1)
    assert refused is not None
    assert "kept" not in refused.hint
    sales.give(ADA, 50)
    assert (sales.used, sales.by_user, budget.used) == (25, {ANN: 25}, 50)
    assert default.take(ADA, 50) is None  # more than half, with the 10 it has
    for share, user, count in ((sales, ANN, 25), (stock, ADA, 15), (default, ADA, 60)):
        share.give(user, count)
        assert (share.used, share.by_user) == (0, {})
    assert budget.used == 0
    counted = tablespace_of(made.default, "sales").refusals
    assert counted.count("request_bytes_of_tablespace_max") == 1
    assert counted.count("request_bytes_of_user_max", ADA) == 1
    assert made.default.refusals.count("request_bytes_of_tablespace_max") == 0


def test_results_have_the_maximum_of_the_role_and_no_other_of_a_user(made: Engine) -> None:
    budget = Budget(100)
    default = Share(budget, RESULTS, made.default)
    assert default.take(ANN, 90) is None
    assert limit_of(default.take(ANN)) == "results_max"
    default.give(ANN, 88)
    refused = default.take(ANN, user_max=2)
    assert refused is not None
    assert (refused.limit, refused.hint) == (
        "open_results", "the limit is open_results of the role",
    )  # fmt: skip


def test_an_account_gives_back_to_what_it_took_of(made: Engine) -> None:
    budget = Budget(100)
    share = Share(budget, REQUEST_BYTES, tablespace_of(made.default, "sales"), is_halved=True)
    account, other = Account(budget, REQUEST_BYTES), Account(budget, REQUEST_BYTES)
    assert account.take(30) is None
    assert other.take(5) is None
    assert (budget.used, share.used) == (35, 0)
    account.enter(share, EVE)
    assert (budget.used, share.used, share.by_user) == (35, 30, {EVE: 30})
    assert account.take(20) is None
    assert limit_of(account.take(1)) == "request_bytes_of_user_max"
    assert account.used == 50
    account.give(50)
    assert (budget.used, share.used, share.by_user) == (5, 0, {})
    other.give(5)
    assert limit_of(other.take(101)) == "request_bytes_max"
    assert (budget.used, share.used, other.used) == (0, 0, 0)


# --- workers --------------------------------------------------------------------------------------


@contextmanager
def served(**settings: Any) -> Iterator[RunningServer]:
    """Give a server of tablespaces that have users: root is a superuser of each, ann is none."""
    with running_server(login_failure_delay_s=0, **settings) as server:
        for name in ("sales", "stock", "default"):
            session = tablespace_of(server.engine.default, name).session(
                Settings(), autocommit=True
            )
            run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            session.execute_many("INSERT INTO t VALUES (?, ?)", [(n, n) for n in range(2_000)])
            run(session, "CREATE USER root PASSWORD 'password' SUPERUSER")
            run(session, "CREATE USER ann PASSWORD 'password'")
            run(session, "GRANT SELECT, INSERT, UPDATE ON t TO ann")
            session.close()
        yield server


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with served(workers=WORKERS, waiting_max=0) as running:
        yield running


@pytest.fixture(params=["tcp", "grpc"])
def protocol(request: pytest.FixtureRequest) -> str:
    return request.param


def log_in(
    server: RunningServer, user: str, tablespace: str, protocol: str = "tcp"
) -> herdpy.Connection:
    if protocol == "grpc":
        at = server.grpc_url.replace("://", f"://{user}@").rstrip("/")
    else:
        at = f"herd://{user}@127.0.0.1:{server.port}"
    at = f"{at}/{tablespace}?retry_timeout_s=0"
    return herdpy.connect(at, password="password", autocommit=True)


def shares_of(server: RunningServer, tablespace: str) -> Any:
    return server.server._hub.served(tablespace).shares


def refusal_of(call: Callable[[], Any]) -> Error:
    with pytest.raises(Error) as caught:
        call()
    return caught.value


class Slow:
    """Statements that run, or wait for their turns, until they are cancelled."""

    def __init__(self, server: RunningServer, connections: list[herdpy.Connection]) -> None:
        self._shares = shares_of(server, "sales")
        self._workers = server.server._workers
        self._connections = connections
        self._ended: list[herdpy.Connection] = []
        self._background = Background()

    def __enter__(self) -> "Slow":
        for each in self._connections:
            self._background.start(lambda each=each: self._run(each))
        while self._seen < len(self._connections):
            pass
        return self

    @property
    def _seen(self) -> int:
        """How many run, wait or were refused."""
        return self._workers.usual_count + self._shares.waiting_count + len(self._ended)

    def _run(self, connection: herdpy.Connection) -> None:
        try:
            refusal_of(lambda: connection.execute(SLOW))
        finally:
            self._ended.append(connection)

    def cancel(self, count: int) -> None:
        """End so many of them; the server has seen them all."""
        for each in self._connections[:count]:
            each.cancel()
        while len(self._ended) < count:
            pass

    def __exit__(self, *_: object) -> None:
        self.cancel(len(self._connections))
        self._background.join()


def opened(stack: ExitStack, count: int, *where: Any) -> list[herdpy.Connection]:
    return [stack.enter_context(log_in(*where)) for _ in range(count)]


def test_a_tenant_leaves_workers_to_others(server: RunningServer, protocol: str) -> None:
    with ExitStack() as stack:
        tenants = opened(stack, 12, server, "root", "sales", protocol)
        [other] = opened(stack, 1, server, "ann", "default")
        [stock] = opened(stack, 1, server, "ann", "stock")
        shares, workers = shares_of(server, "sales"), server.server._workers
        count = "SELECT count(*) FROM t"
        with Slow(server, tenants) as slow:
            assert (workers.usual_count, shares.usual_count) == (SHARE, SHARE)
            for each in (other, stock):
                assert each.execute(count).fetchone() == (2_000,)
            assert (shares.usual_count, shares.waiting_count) == (SHARE, 12 - SHARE)
            slow.cancel(6)  # their places are taken by those that wait
            while shares.waiting_count > 6 - SHARE:
                pass
            assert (shares.usual_count, workers.usual_count) == (SHARE, SHARE)
            assert other.execute(count).fetchone() == (2_000,)
        while shares.usual_count:  # the answer comes a moment before the end is counted
            server.call(lambda: asyncio.sleep(0))
        assert (shares.running, shares.waiting_count) == ({}, 0)
        assert tenants[0].execute(count).fetchone() == (2_000,)


def test_default_and_who_needs_no_login_have_no_share(server: RunningServer) -> None:
    assert shares_of(server, "default").usual_max is None
    assert shares_of(server, "sales").usual_max == SHARE
    with running_server(workers=1) as without_users:
        tablespace_of(without_users.engine.default, "sales")
        url = f"herd://127.0.0.1:{without_users.port}/sales"
        with herdpy.connect(url, autocommit=True) as connection:
            shares = shares_of(without_users, "sales")
            shares.usual_count = shares.usual_max  # as if all were taken
            assert connection.execute("SELECT count(*) FROM sysroles").fetchone() is not None


def test_what_holds_locks_takes_no_turn_of_a_tenant(server: RunningServer, protocol: str) -> None:
    with ExitStack() as stack:
        holder, waiter = opened(stack, 2, server, "ann", "sales", protocol)
        tenants = opened(stack, SHARE + 2, server, "root", "sales")
        holder.execute("BEGIN")
        holder.execute("UPDATE t SET v = 1 WHERE id = 1")
        with Background() as background:
            update = "UPDATE t SET v = v + 10 WHERE id IN (1, 2)"
            background.start(lambda: waiter.execute(update))
            while server.server._workers.parked_count != 1:
                pass
            with Slow(server, tenants):
                holder.execute("UPDATE t SET v = 2 WHERE id IN (1, 3)")
                holder.execute("COMMIT")
                background.join()  # it went on behind its lock
                assert shares_of(server, "sales").waiting_count == 2
        found = holder.execute("SELECT id, v FROM t WHERE id IN (1, 2, 3) ORDER BY id").fetchall()
        assert found == [(1, 12), (2, 12), (3, 2)]


def test_a_fetch_waits_for_a_turn_and_is_cancelled(server: RunningServer) -> None:
    with ExitStack() as stack:
        reader, gone = opened(stack, 2, server, "ann", "sales")
        tenants = opened(stack, SHARE, server, "root", "sales")
        # The driver asks ahead: what it has not fetched is behind more than one piece.
        cursor, lost = (each.execute("SELECT a.id FROM t a, t b") for each in (reader, gone))
        lost.fetchone()
        shares, errors = shares_of(server, "sales"), []
        for _ in range(2):  # what was asked ahead is in the server, and has ended: none of it runs
            server.call(lambda: asyncio.sleep(0))
        until(server, lambda: not server.server._workers.usual_count)
        with Slow(server, tenants), Background() as background:
            assert sum(shares.running.values()) == SHARE
            background.start(lambda: errors.append(refusal_of(cursor.fetchall).sqlstate))
            until(server, lambda: shares.waiting_count)
            while not errors:
                reader.cancel()
            assert errors == ["57014"]
            waiting = shares.waiting_count
            background.start(lambda: refusal_of(lost.fetchall))
            while shares.waiting_count == waiting:
                pass
            gone.close()
            while shares.waiting_count:
                pass
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (2_000,)
        assert server.server._hub.results.used == 0


def waits_of(server: RunningServer, tablespace: str) -> list[WaitRow]:
    return tablespace_of(server.engine.default, tablespace).waits()


def test_turns_of_a_tenant_are_shown_to_it_and_to_default(server: RunningServer) -> None:
    with ExitStack() as stack:
        tenants = opened(stack, SHARE + 2, server, "ann", "sales")
        root, sales, stock = (
            opened(stack, 1, server, "root", name)[0] for name in ("default", "sales", "stock")
        )
        sales.execute("BEGIN")  # inside a transaction it needs no turn
        query = "SELECT name, share, used, refused FROM syslimits WHERE name LIKE '%of_tablespace%'"
        with Slow(server, tenants):
            while len(found := waits_of(server, "sales")) != 2 or len(found[0].held_by) != SHARE:
                pass
            ids = {
                number
                for (number,) in root.execute(
                    "SELECT id FROM sysclients WHERE user_name = 'ann' AND tablespace = 'sales'"
                ).fetchall()
            }
            assert {row.waits_for for row in found} == {"tablespace_turn"}
            assert {row.session for row in found} | set(found[0].held_by) == ids
            text = "SELECT client_id FROM syswaits WHERE waits_for = 'tablespace_turn'"
            for each, count in ((root, 2), (sales, 2), (stock, 0)):
                assert len(each.execute(text).fetchall()) == count
            row = ("workers_of_tablespace", SHARE, SHARE, 0)
            assert row in sales.execute(query).fetchall()
            waits = "SELECT waits FROM syslimits WHERE name = 'workers_of_tablespace'"
            assert sales.execute(waits).fetchall() == [(2,)]
            assert ("workers_of_tablespace", SHARE, 1, 0) in stock.execute(query).fetchall()
            names = {name for name, *_ in root.execute(query).fetchall()}
            assert names == {
                f"{of}_of_tablespace_max" for of in ("request_bytes", "parameter_bytes", "results")
            }
            assert sample(server, "herdpy_tablespace_limit_used", "workers_of_tablespace") == SHARE
            assert (
                sample(server, "herdpy_tablespace_limit_waits_total", "workers_of_tablespace") == 2
            )
        sales.execute("ROLLBACK")


def sample(server: RunningServer, name: str, limit: str) -> float:
    """Return a metric of sales."""
    from herdpy.server.operations.metrics import families

    label = tablespace_of(server.engine.default, "sales").entry.id.hex()
    (found,) = (
        each.value
        for family in families(server.server._hub)
        for each in family.samples
        if each.name == name and each.labels == {"tablespace": label, "limit": limit}
    )
    return found


# --- bytes ----------------------------------------------------------------------------------------


def hello(tablespace: str) -> bytes:
    return encode_frame(Hello(MAGIC, VERSION, VERSION, "test", tablespace, autocommit=True))


def until(server: RunningServer, is_true: Callable[[], bool]) -> None:
    while not is_true():
        server.call(lambda: asyncio.sleep(0))


def connected(server: RunningServer, tablespace: str) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", server.port), 60)
    peer.sendall(hello(tablespace))
    peer.recv(65536)
    return peer


def piece(byte_count: int, of_bytes: int = 8 * MIB) -> bytes:
    """Return the beginning of a message that does not end."""
    return of_bytes.to_bytes(4, "big") + bytes(byte_count - 4)


def test_requests_of_a_tenant_leave_memory_to_others() -> None:
    with running_server(request_bytes_max=MIB) as server, ExitStack() as stack:
        tablespace_of(server.engine.default, "sales")
        hub = server.server._hub
        first, second = (stack.enter_context(connected(server, "sales")) for _ in range(2))
        other = stack.enter_context(connected(server, "default"))
        share = hub.served("sales").received
        first.sendall(piece(700 * 1024))
        until(server, lambda: hub.received.used == 700 * 1024)
        assert share.used == 700 * 1024
        second.sendall(piece(100 * 1024))
        with suppress(ConnectionError):  # it was ended before it had sent all
            while second.recv(65536):
                pass
        until(server, lambda: hub.metrics.refused == {"request_bytes_of_tablespace_max": 1})
        other.sendall(piece(200 * 1024))
        until(server, lambda: hub.received.used == 900 * 1024)
        assert (share.used, hub.default.received.used) == (700 * 1024, 200 * 1024)
        first.close()
        other.close()
        until(server, lambda: not hub.received.used)
        assert (share.used, hub.default.received.used) == (0, 0)


def test_what_came_before_the_welcome_is_counted_where_it_belongs() -> None:
    with running_server() as server:
        tablespace_of(server.engine.default, "sales")
        hub, first = server.server._hub, hello("sales")
        share = hub.served("sales").received
        with socket.create_connection(("127.0.0.1", server.port), 60) as peer:
            peer.sendall(first[:10])
            until(server, lambda: hub.received.used == 10)
            assert (share.used, hub.default.received.used) == (0, 0)
            peer.sendall(first[10:] + piece(1_000, 2_000))
            until(server, lambda: hub.received.used == 1_000)
            assert share.used == 1_000
        until(server, lambda: not hub.received.used)
        assert share.used == 0


def test_requests_of_a_user_leave_memory_to_others() -> None:
    """A message of 900 KiB comes in pieces of 256 KiB at the most."""
    insert, text = "UPDATE t SET v = 1 WHERE id = ? AND length(?) > 0", "x" * 900 * 1024
    with served(request_bytes_max=MIB) as server, ExitStack() as stack:
        for tablespace in ("default", "sales"):
            ann, second = opened(stack, 2, server, "ann", tablespace)
            refused = refusal_of(lambda each=ann: each.execute(insert, (1, text)))
            assert refused.sqlstate in ("53200", "08006", "08007")
            second.execute(insert, (1, "x"))
        [root] = opened(stack, 1, server, "root", "default")
        root.execute(insert, (1, text))
        [tenant] = opened(stack, 1, server, "root", "sales")
        refusal_of(lambda: tenant.execute(insert, (1, text)))
        hub = server.server._hub
        assert hub.metrics.refused == {"request_bytes_of_user_max": 3}
        until(server, lambda: not hub.received.used)
        query = "SELECT user_name, share, used, refused FROM syslimits WHERE name = '{}'"
        text = query.format("request_bytes_of_user_max")
        assert root.execute(text).fetchall() == [("ann", MIB // 2, 0, 1)]
        [sales] = opened(stack, 1, server, "root", "sales")
        found = [("ann", MIB // 2, 0, 1), ("root", MIB // 2, 0, 1)]
        assert sales.execute(text).fetchall() == found
        [stock] = opened(stack, 1, server, "root", "stock")
        assert stock.execute(text).fetchall() == []


def test_parameters_of_users_and_tenants_leave_memory_to_others() -> None:
    insert, rows = "INSERT INTO t VALUES (?, ?)", [(n, 0) for n in range(10_000, 20_000)]
    with served(parameter_bytes_max=4 * MIB) as server, ExitStack() as stack:
        hub = server.server._hub
        for user, tablespace in (("ann", "default"), ("root", "sales")):
            [connection] = opened(stack, 1, server, user, tablespace)
            refused = refusal_of(lambda each=connection: each.executemany(insert, rows))
            assert (refused.sqlstate, refused.retry) == ("53200", Retry.SAFE)
            assert f'2,097,152 of user "{user}" are in use' in refused.message
            connection.executemany(insert, rows[:5_000])
        [root, tenant] = [
            opened(stack, 1, server, "root", name)[0] for name in ("default", "sales")
        ]
        root.executemany(insert, rows[5_000:] + [(n + 10_000, 0) for n, _ in rows[:5_000]])
        share = hub.served("sales").parameters
        assert share.take(None, 2 * MIB + MIB // 2) is None
        refused = refusal_of(lambda: tenant.executemany(insert, rows[5_000:]))
        assert 'of tablespace "sales" are in use' in refused.message
        assert "three quarters of parameter_bytes_max" in (refused.hint or "")
        assert (hub.parameters.used, share.used) == (share.used, 2 * MIB + MIB // 2)
        share.give(None, share.used)
        tenant.executemany(insert, rows[5_000:])
        assert (hub.parameters.used, share.used, share.by_user) == (0, 0, {})


def test_messages_of_grpc_are_counted_as_their_users() -> None:
    values = [pb.Value()] * 100_000
    parameters = pb.Parameters(positional=pb.Row(values=values))
    request = pb.ExecuteRequest(text="SELECT 1", parameters=parameters)
    with served() as server, grpc_client(server.grpc_url) as client:
        hub = server.server._hub
        share = hub.served("sales").received
        taken = share.maximum - 1_000_000
        server.call(lambda: on_loop(lambda: share.take(None, taken)))

        def execute(tablespace: str) -> Any:
            metadata = (*basic("ann", "password"), ("herdpy-tablespace", tablespace))
            with pytest.raises(grpc.RpcError) as caught:
                client.Execute(request, metadata=metadata)
            return error_of(caught.value)

        for _ in range(2):  # by the password, then by what is remembered of it
            refused = execute("sales")
            assert (refused.sqlstate, refused.retry) == ("53200", "safe")
            assert 'of tablespace "sales" wait' in refused.message
            assert execute("default").sqlstate == "54023"  # it was read, and has too many
        assert hub.metrics.refused == {"request_bytes_of_tablespace_max": 2}
        server.call(lambda: on_loop(lambda: share.give(None, taken)))
        assert execute("sales").sqlstate == "54023"
        assert (hub.received.used, share.used, share.by_user) == (0, 0, {})


async def on_loop(call: Callable[[], Any]) -> Any:
    return call()


def test_what_waits_for_its_turn_counts_as_received(server: RunningServer) -> None:
    text = "x" * 100_000
    with ExitStack() as stack:
        waiter, reader = opened(stack, 2, server, "ann", "sales")
        tenants = opened(stack, SHARE, server, "root", "sales")
        cursor = reader.execute("SELECT a.id FROM t a, t b")
        share, found = server.server._hub.served("sales").received, []
        query = "SELECT count(*) FROM t WHERE length(?) > 0"
        with Slow(server, tenants) as slow, Background() as background:
            background.start(lambda: found.append(waiter.execute(query, (text,)).fetchone()))
            while not shares_of(server, "sales").waiting_count:
                pass
            assert server.call(lambda: on_loop(lambda: share.used)) > len(text)
            cursor.close()  # what frees something takes no turn
            until(server, lambda: not server.server._hub.results.used)
            slow.cancel(1)
            background.join()
            assert found == [(2_000,)]
            assert server.call(lambda: on_loop(lambda: share.used)) == 0
        assert share.by_user == {}


def test_a_cancel_ends_one_statement_and_not_the_next_that_waits_for_its_turn() -> None:
    """The loop looks at a cancel until its statement has ended, and once more behind that."""
    with served(workers=8, waiting_max=0) as server, ExitStack() as stack, Background() as threads:
        session = tablespace_of(server.engine.default, "default").session(
            Settings(), autocommit=True
        )
        run(session, "ALTER USER ann SET MAXIMUM running_statements = 1")
        session.close()
        cancelled, other = opened(stack, 2, server, "ann", "default")
        shares = shares_of(server, "default")
        told: SimpleQueue[Any] = SimpleQueue()

        def ask(connection: herdpy.Connection, *texts: str) -> None:
            for text in texts:
                try:
                    told.put(connection.execute(text).fetchall())
                except Error as error:
                    told.put(error.sqlstate)

        for _ in range(4):
            threads.start(partial(ask, cancelled, SLOW, "SELECT 7"))
            server.call(lambda: settled(lambda: bool(shares.running)))
            threads.start(partial(ask, other, SLOW))
            server.call(lambda: settled(lambda: bool(shares.waiting_count)))
            cancelled.cancel()
            assert told.get(timeout=60) == "57014"
            server.call(lambda: settled(lambda: bool(shares.waiting_count)))
            server.call(lambda: asyncio.sleep(5 * _STOP_AGAIN_S))
            other.cancel()
            found = [told.get(timeout=60), told.get(timeout=60)]
            assert sorted(map(str, found)) == ["57014", "[(7,)]"]
            server.call(lambda: settled(lambda: not shares.running))


async def settled(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - each comes by itself
            await asyncio.sleep(0)
