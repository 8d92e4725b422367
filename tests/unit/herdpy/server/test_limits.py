"""What all connections of a server share: queue, memory and results have bounds, told by 53xxx."""

import asyncio
import socket
from functools import partial
from typing import Any

import pytest

import herdpy
from herdpy.proto.messages import (
    MAGIC,
    VERSION,
    Execute,
    Fetch,
    Hello,
    decode_to_driver,
    encode_frame,
)
from herdpy.server.connection import ServerConnection
from herdpy.server.limits import Budget, Stalled
from tests.fixtures.held_transport import HeldTransport
from tests.fixtures.servers import RunningServer, busy_workers, running_server

MIB = 1024 * 1024
HELLO = encode_frame(Hello(MAGIC, VERSION, VERSION, "test", "default", autocommit=True))
BIG = "SELECT a.id FROM t a"


def hub_of(server: RunningServer) -> Any:
    return server.server._hub


def fill(server: RunningServer, row_count: int, text: str = "") -> None:
    with herdpy.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, text) for n in range(row_count)])


def test_budget() -> None:
    budget = Budget(10)
    assert budget.take(7)
    assert not budget.take(4)
    assert budget.take(3)
    budget.give(5)
    assert budget.used == 5
    assert budget.take(5)


def test_the_longest_stalled_goes_first() -> None:
    stalled = Stalled(100)
    one, two, three = (object.__new__(ServerConnection) for _ in range(3))
    assert stalled.add(one, 40) == []
    assert stalled.add(two, 40) == []
    assert stalled.add(one, 10) == []  # again: it is the newest now
    assert stalled.add(three, 60) == [two]
    assert (len(stalled), stalled.byte_count) == (2, 70)
    stalled.remove(one)
    stalled.remove(one)
    assert stalled.byte_count == 60
    assert stalled.add(one, 101) == [three, one]
    assert (len(stalled), stalled.byte_count) == (0, 0)


def test_a_full_queue_refuses_statements_but_no_transaction() -> None:
    with running_server(workers=1, waiting_max=0) as server:
        fill(server, 1)
        holder = herdpy.connect(server.url)
        holder.execute("UPDATE t SET v = 'held'")
        with herdpy.connect(server.url, autocommit=True) as refused:
            with busy_workers(server):
                holder.execute("UPDATE t SET v = 'again'")
                with pytest.raises(herdpy.OperationalError) as caught:
                    refused.execute("SELECT count(*) FROM t")
            assert caught.value.sqlstate == "53000"
            assert caught.value.retry is herdpy.errors.Retry.SAFE
            assert hub_of(server).metrics.refused["waiting_max"] >= 1
            holder.commit()
            assert refused.execute("SELECT v FROM t").fetchall() == [("again",)]
        holder.close()


def test_results_of_all_connections_are_bounded() -> None:
    with running_server(results_max=1) as server:
        fill(server, 3000)
        first = herdpy.connect(server.url, autocommit=True)
        second = herdpy.connect(server.url, autocommit=True)
        opened = first.execute(BIG)
        with pytest.raises(herdpy.OperationalError) as caught:
            second.execute(BIG)
        assert caught.value.sqlstate == "53400"
        assert len(opened.fetchall()) == 3000
        assert len(second.execute(BIG).fetchall()) == 3000
        second.execute(BIG)
        second.close()  # what was open is given back
        while hub_of(server).results.used:
            server.call(lambda: asyncio.sleep(0))
        assert len(first.execute(BIG).fetchall()) == 3000
        first.close()
        server.call(lambda: asyncio.sleep(0))
        assert hub_of(server).results.used == 0


def read_failure(peer: socket.socket) -> Any:
    received = b""
    while data := peer.recv(65536):
        received += data
    while received:
        length = int.from_bytes(received[:4], "big")
        message = decode_to_driver(received[4 : 4 + length])
        received = received[4 + length :]
    return message


def test_received_memory_is_bounded_over_all_connections() -> None:
    with running_server(request_bytes_max=MIB) as server:
        piece = (8 * MIB).to_bytes(4, "big") + bytes(700 * 1024)  # of a message that has not ended
        peers = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(2)]
        for peer in peers:
            peer.sendall(HELLO)
            peer.recv(65536)
        peers[0].sendall(piece)
        while hub_of(server).received.used < 600 * 1024:
            server.call(lambda: asyncio.sleep(0))
        try:
            peers[1].sendall(piece)
            failed = read_failure(peers[1])
            assert (failed.request, failed.sqlstate) == (0, "53200")
        except ConnectionError:
            pass  # it was ended before it had sent all
        while hub_of(server).metrics.refused.get("request_bytes_max") != 1:
            server.call(lambda: asyncio.sleep(0))
        for peer in peers:
            peer.close()
        while hub_of(server).received.used:
            server.call(lambda: asyncio.sleep(0))


def test_answers_that_nobody_takes_are_bounded() -> None:
    with running_server(response_bytes_max=MIB) as server:
        fill(server, 3000, "x" * 1000)

        async def stall() -> tuple[HeldTransport, ServerConnection]:
            connection = server.server._connection()
            transport = HeldTransport(connection, "test")
            connection.connection_made(transport)
            fetches = [Fetch(n, 1, 1000, is_arrow=False) for n in (2, 3)]
            requests = [Execute(1, "SELECT id, v FROM t", None), *fetches]
            connection.data_received(HELLO)
            connection.data_received(b"".join(map(encode_frame, requests)))
            return transport, connection

        async def is_settled(transport: HeldTransport) -> bool:
            """On the loop: the connection that is to be cut off because of it has been."""
            return transport.get_write_buffer_size() > 500 * 1024 or transport.is_closing()

        transports = []
        for _ in range(2):
            transport, connection = server.call(stall)
            transports.append((transport, connection))
            while not server.call(partial(is_settled, transport)):
                pass
        hub = hub_of(server)
        assert [transport.is_closing() for transport, _ in transports] == [True, False]
        assert hub.metrics.refused == {"response_bytes_max": 1}
        assert 0 < hub.stalled.byte_count <= MIB

        async def end() -> None:
            for transport, connection in transports:
                transport.abort()
                connection.connection_lost(None)

        server.call(end)
        assert hub.stalled.byte_count == 0


def test_large_parameters_are_charged_for_until_they_are_answered() -> None:
    with running_server(parameter_bytes_max=4 * MIB) as server:
        fill(server, 1)
        url = f"{server.url}/?retry_timeout_s=0"
        with herdpy.connect(url, autocommit=True) as connection:
            insert, rows = "INSERT INTO t VALUES (?, ?)", [(n, "") for n in range(1, 30_000)]
            with pytest.raises(herdpy.OperationalError) as caught:
                connection.executemany(insert, rows)
            assert caught.value.sqlstate == "53200"
            assert caught.value.retry is herdpy.errors.Retry.SAFE
            for start in range(0, len(rows), 10_000):
                connection.executemany(insert, rows[start : start + 10_000])
            with pytest.raises(herdpy.IntegrityError):
                connection.executemany(insert, rows[:10_000])
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (30_000,)
        assert hub_of(server).parameters.used == 0


def test_a_row_that_fits_into_no_message() -> None:
    with (
        running_server() as server,
        herdpy.connect(server.url, autocommit=True) as connection,
    ):
        for fetch in ("fetchall", "fetch_arrow_table"):
            text = "SELECT repeat('x', 40000000) AS a, repeat('y', 40000000) AS b"
            cursor = connection.execute(text)
            with pytest.raises(herdpy.OperationalError) as caught:
                getattr(cursor, fetch)()
            assert caught.value.sqlstate == "54000"
            cursor.close()
            assert connection.execute("SELECT 1").fetchone() == (1,)
