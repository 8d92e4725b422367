"""The wait for an answer that is held for a tenure: what ends it, and what its client is told."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

import herdpy
import herdpy.aio
from herdpy.errors import Retry
from herdpy.model.settings import Settings
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto.messages import MAGIC, VERSION, Execute, Fetch, Hello, encode_frame
from herdpy.proto.server_machine import WAITING_MAX
from tests.fixtures.grpc_clients import Stream, error_of, grpc_client
from tests.unit.herdpy.server.test_tenures import Asking, Leader, leading

TIMEOUT_S = 3600.0
NO_RETRY = {"retry_timeout_s": "0"}


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose time a test moves."""

    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s


@pytest.fixture
def leader() -> Iterator[Leader]:
    with leading(SkippingLoop) as found:
        yield found


def connect(leader: Leader, scheme: str = "herd", **more: str) -> herdpy.Connection:
    url = leader.server.url if scheme == "herd" else leader.server.grpc_url
    options = "&".join(f"{name}={value}" for name, value in more.items())
    return herdpy.connect(f"{url}?{options}", autocommit=True, statement_timeout_s=TIMEOUT_S)


def filled(conn: herdpy.Connection) -> None:
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    conn.execute("INSERT INTO t VALUES (1, 'a')")
    conn.execute("SELECT v FROM t WHERE id = 1").fetchall()


def run_beside(leader: Leader, text: str) -> None:
    """Run a statement of another session, whose answer needs no tenure."""
    session = leader.server.engine.default.session(Settings(), autocommit=True)
    try:
        session.execute(text)
    finally:
        session.close()


def cancel(leader: Leader, conn: herdpy.Connection) -> None:
    conn.cancel()


def let_time_pass(leader: Leader, conn: herdpy.Connection | None = None) -> None:
    def skip() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SkippingLoop)
        loop.skipped_s += TIMEOUT_S

    leader.on_loop(skip)


def kill_statement(leader: Leader, conn: herdpy.Connection) -> None:
    sessions = leader.server.engine.default.sessions()
    (number,) = [each.running.id for each in sessions if each.running is not None]
    run_beside(leader, f"KILL STATEMENT {number}")


ENDS = {"cancel": cancel, "time-out": let_time_pass, "KILL STATEMENT": kill_statement}
End = Callable[[Leader, herdpy.Connection], None]


def held(leader: Leader, ask: Callable[[], Any]) -> Asking:
    """Return what asks, and whose answer is held by now."""
    leader.lapse()
    asking = Asking(ask)
    leader.until_waiting()
    return asking


def told(asking: Asking) -> tuple[str, Retry]:
    found = asking.result()
    assert isinstance(found, herdpy.Error), found
    return found.sqlstate, found.retry


def waiting_count(leader: Leader) -> int:
    return leader.on_loop(lambda: leader.tenure.waiting_count)


@pytest.mark.parametrize("scheme", ["herd", "herd+grpc"])
@pytest.mark.parametrize("end", ENDS)
def test_a_query_is_cancelled_and_its_connection_goes_on(
    leader: Leader, end: str, scheme: str
) -> None:
    with connect(leader, scheme, **NO_RETRY) as conn:
        filled(conn)
        asking = held(leader, lambda: conn.execute("SELECT count(*) FROM t").fetchall())
        ENDS[end](leader, conn)
        assert told(asking) == ("57014", Retry.SAFE)
        assert waiting_count(leader) == 0
        leader.renew()
        assert conn.execute("SELECT count(*) FROM t").fetchall() == [(1,)]


@pytest.mark.parametrize("end", ["cancel", "time-out"])
def test_a_row_that_was_read_by_its_key_is_cancelled(leader: Leader, end: str) -> None:
    with connect(leader, **NO_RETRY) as conn:
        filled(conn)
        asking = held(leader, lambda: conn.execute("SELECT v FROM t WHERE id = 1").fetchall())
        ENDS[end](leader, conn)
        assert told(asking) == ("57014", Retry.SAFE)
        leader.renew()
        assert conn.execute("SELECT v FROM t WHERE id = 1").fetchall() == [("a",)]


@pytest.mark.parametrize("end", ["cancel", "time-out"])
def test_a_query_in_a_transaction_leaves_it_open(leader: Leader, end: str) -> None:
    with connect(leader) as conn:
        filled(conn)
        conn.execute("BEGIN")
        conn.execute("INSERT INTO t VALUES (2, 'b')")
        asking = held(leader, lambda: conn.execute("SELECT count(*) FROM t").fetchall())
        ENDS[end](leader, conn)
        assert told(asking) == ("57014", Retry.SAFE)
        leader.renew()
        assert conn.in_transaction
        conn.execute("COMMIT")
        assert conn.execute("SELECT count(*) FROM t").fetchall() == [(2,)]


@pytest.mark.parametrize("scheme", ["herd", "herd+grpc"])
@pytest.mark.parametrize("end", ["cancel", "time-out"])
@pytest.mark.parametrize("text", ["INSERT INTO t VALUES (2, 'b')", "DELETE FROM t WHERE v < 'b'"])
def test_what_became_of_a_write_is_not_known(
    leader: Leader, text: str, end: str, scheme: str
) -> None:
    with connect(leader, scheme, **NO_RETRY) as conn:
        filled(conn)
        asking = held(leader, lambda: conn.execute(text))
        ENDS[end](leader, conn)
        assert told(asking) == ("57014", Retry.UNKNOWN)
    leader.renew()
    with connect(leader) as conn:
        (count,) = conn.execute("SELECT count(*) FROM t").fetchone() or (None,)
        assert count == (2 if text.startswith("INSERT") else 0)


def test_a_write_can_be_killed_by_its_number(leader: Leader) -> None:
    with connect(leader, **NO_RETRY) as conn:
        filled(conn)
        asking = held(leader, lambda: conn.execute("DELETE FROM t WHERE v < 'b'"))
        kill_statement(leader, conn)
        assert told(asking) == ("57014", Retry.UNKNOWN)


@pytest.mark.parametrize("end", ["cancel", "time-out"])
def test_the_driver_finds_by_the_token_that_a_write_has_happened(leader: Leader, end: str) -> None:
    with connect(leader) as conn:
        filled(conn)
        asking = held(leader, lambda: conn.execute("INSERT INTO t VALUES (2, 'b')").rowcount)
        ENDS[end](leader, conn)
        leader.until_waiting()  # its next login does
        leader.renew()
        assert asking.result() == -1


@pytest.mark.parametrize("end", ["cancel", "time-out"])
def test_what_the_token_says_has_not_happened_does_not_run_again(leader: Leader, end: str) -> None:
    with connect(leader) as conn:
        filled(conn)
        # Its answer, a duplicate key, is held as well.
        asking = held(leader, lambda: conn.execute("INSERT INTO t VALUES (1, 'b')").rowcount)
        ENDS[end](leader, conn)
        leader.until_waiting()
        run_beside(leader, "DELETE FROM t")
        leader.renew()
        assert told(asking) == ("57014", Retry.SAFE)
        assert conn.execute("SELECT count(*) FROM t").fetchall() == [(0,)]


@pytest.mark.parametrize("end", ["cancel", "time-out"])
def test_a_commit_that_is_in_the_log_has_happened(leader: Leader, end: str) -> None:
    with connect(leader) as conn:
        filled(conn)
        conn.execute("BEGIN")
        conn.execute("INSERT INTO t VALUES (2, 'b')")
        asking = held(leader, conn.commit)
        ENDS[end](leader, conn)
        leader.until_waiting()
        leader.renew()
        assert asking.result() is None
        assert conn.execute("SELECT count(*) FROM t").fetchall() == [(2,)]


@pytest.mark.parametrize("end", ["cancel", "time-out"])
def test_a_write_in_a_transaction_takes_that_with_it(leader: Leader, end: str) -> None:
    with connect(leader) as conn:
        filled(conn)
        conn.execute("BEGIN")
        asking = held(leader, lambda: conn.execute("INSERT INTO t VALUES (2, 'b')"))
        ENDS[end](leader, conn)
        assert told(asking) == ("08006", Retry.SAFE)
        leader.renew()
        conn.rollback()
        assert conn.execute("SELECT count(*) FROM t").fetchall() == [(1,)]


MANY = "SELECT a.id FROM t AS a CROSS JOIN t AS b ORDER BY a.id, b.id"


def with_many(conn: herdpy.Connection) -> int:
    """Return how many rows MANY has: more than are asked for ahead."""
    filled(conn)
    conn.executemany("INSERT INTO t VALUES (?, 'x')", [(n,) for n in range(2, 251)])
    return 250 * 250


def has_results(leader: Leader) -> bool:
    (client,) = leader.server.server._hub.connections
    return client._requests.has_results


def test_a_wait_that_ends_leaves_no_result_open(leader: Leader) -> None:
    with connect(leader, **NO_RETRY) as conn:
        count = with_many(conn)
        other = conn.execute(MANY)
        # An answer that has its rows in it, and opens nothing.
        asking = held(leader, lambda: conn.execute("SELECT count(*) FROM t").fetchall())
        conn.cancel()
        assert told(asking) == ("57014", Retry.SAFE)
        asking = held(leader, lambda: conn.execute(MANY))
        conn.cancel()
        assert told(asking) == ("57014", Retry.SAFE)
        leader.renew()
        assert len(other.fetchall()) == count
        assert not has_results(leader)


def test_a_piece_of_a_result_that_is_cancelled_ends_the_result(leader: Leader) -> None:
    with connect(leader, **NO_RETRY) as conn:
        with_many(conn)
        cursor = conn.execute(MANY)
        assert has_results(leader)
        asking = held(leader, cursor.fetchone)
        conn.cancel()
        assert told(asking) == ("57014", Retry.SAFE)
        leader.renew()
        assert conn.execute("SELECT count(*) FROM t").fetchone() == (250,)
        assert not has_results(leader)


def test_kill_connection_is_what_its_client_is_told(leader: Leader) -> None:
    with connect(leader, **NO_RETRY) as conn:
        filled(conn)
        asking = held(leader, lambda: conn.execute("DELETE FROM t WHERE v < 'b'"))
        sessions = leader.server.engine.default.sessions()
        (number,) = [each.id for each in sessions if each.running is not None]
        run_beside(leader, f"KILL CONNECTION {number}")
        assert told(asking) == ("57P01", Retry.NEVER)
        assert waiting_count(leader) == 0


def test_a_cancel_that_comes_as_the_answer_may_leave_changes_nothing(leader: Leader) -> None:
    with connect(leader, **NO_RETRY) as conn:
        filled(conn)
        asking = held(leader, lambda: conn.execute("INSERT INTO t VALUES (2, 'b')").rowcount)
        (client,) = leader.server.server._hub.connections
        waiting = client._held_answer

        def end_late() -> None:
            leader.tenure.renew(0.0, 1000.0)  # which lets it go on soon
            client._release(waiting)
            client._cancel_held(waiting)

        leader.on_loop(end_late)
        assert asking.result() == 1
        assert conn.execute("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_an_answer_whose_wait_was_ended_never_leaves(leader: Leader) -> None:
    with connect(leader, **NO_RETRY) as conn:
        filled(conn)
        asking = held(leader, lambda: conn.execute("SELECT count(*) FROM t").fetchall())
        (client,) = leader.server.server._hub.connections
        waiting = client._held_answer

        def end_first() -> None:
            leader.tenure.renew(0.0, 1000.0)
            client._cancel_held(waiting)

        leader.on_loop(end_first)
        assert told(asking) == ("57014", Retry.SAFE)
        assert conn.execute("SELECT 1").fetchall() == [(1,)]


def test_an_interrupt_ends_the_wait(leader: Leader) -> None:
    with connect(leader) as conn:
        filled(conn)
        leader.lapse()
        here = threading.get_ident()
        interrupting = Asking(
            lambda: (leader.until_waiting(), signal.pthread_kill(here, signal.SIGINT))
        )
        with pytest.raises(KeyboardInterrupt):
            conn.execute("INSERT INTO t VALUES (2, 'b')")
        interrupting.result()
        leader.renew()
        assert conn.execute("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_a_task_that_is_cancelled_ends_the_wait(leader: Leader) -> None:
    async def ask() -> int:
        async with await herdpy.aio.connect(leader.server.url, autocommit=True) as conn:
            await conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            leader.lapse()
            task = asyncio.create_task(conn.execute("INSERT INTO t VALUES (2, 'b')"))
            await asyncio.to_thread(leader.until_waiting)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            leader.renew()
            cursor = await conn.execute("SELECT count(*) FROM t")
            (count,) = await cursor.fetchone() or (None,)
            assert isinstance(count, int)
            return count

    assert asyncio.run(ask()) == 1


@pytest.mark.parametrize("waiting", [0, WAITING_MAX], ids=["read", "not read"])
def test_what_is_held_goes_with_a_socket_that_is_closed(leader: Leader, waiting: int) -> None:
    requests: list[Any] = [Execute(1, "SELECT 1", None)]
    # With so many behind it the server reads no further, and so no end of the connection.
    requests += [Fetch(2 + n, 1, 1, is_arrow=False) for n in range(waiting + 1)]
    with socket.create_connection(("127.0.0.1", leader.server.port), 60) as peer:
        peer.sendall(
            encode_frame(Hello(MAGIC, VERSION, VERSION, "gone", "default", autocommit=True))
        )
        assert peer.recv(65536)  # it is welcome
        leader.lapse()
        peer.sendall(b"".join(map(encode_frame, requests)))
        leader.until_waiting()
        (client,) = leader.server.server._hub.connections
        while waiting and not client._is_reading_paused:
            pass
    leader.tenure.forgotten.get(timeout=30)
    assert waiting_count(leader) == 0


def _fail(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except grpc.RpcError as error:
        return error_of(error)


@pytest.mark.parametrize(
    ("text", "retry"), [("INSERT INTO t VALUES (1)", "unknown"), ("SELECT count(*) FROM t", "safe")]
)
def test_a_call_of_grpc_ends_with_its_time(leader: Leader, text: str, retry: str) -> None:
    with grpc_client(leader.server.grpc_url) as client:
        client.rows("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        leader.tenure.covers_count = 1  # its login
        asking = Asking(lambda: _fail(lambda: client.Execute(pb.ExecuteRequest(text=text))))
        leader.until_waiting()
        let_time_pass(leader)
        found = asking.result()
        assert (found.sqlstate, found.retry) == ("57014", retry)


def test_a_request_of_grpc_can_be_cancelled(leader: Leader) -> None:
    with grpc_client(leader.server.grpc_url) as client:
        client.rows("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        stream = Stream(client, pb.Open(client="a test", autocommit=True))
        leader.lapse()
        number = stream.send(execute=pb.Execute(text="SELECT count(*) FROM t"))
        leader.until_waiting()
        stream.put(pb.SessionRequest(request=number, cancel=pb.Empty()))
        failed = stream.next().failed
        assert (failed.error.sqlstate, failed.error.retry) == ("57014", "safe")


def test_what_is_held_for_a_call_goes_with_it(leader: Leader) -> None:
    with grpc_client(leader.server.grpc_url) as client:
        client.rows("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        leader.tenure.covers_count = 1
        replies = client.Query(pb.QueryRequest(statement=pb.ExecuteRequest(text="SELECT 1")))
        leader.until_waiting()
        replies.cancel()
        leader.tenure.forgotten.get(timeout=30)
        assert waiting_count(leader) == 0
