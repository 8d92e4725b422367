"""A client that disappears in the midst of a statement ends it, whatever it is just doing."""

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop

import herdpy
from herdpy.proto.messages import MAGIC, VERSION, Execute, Fetch, Hello, encode_frame
from herdpy.proto.server_machine import WAITING_MAX
from herdpy.server.login.handshake import LINGER_S
from tests.fixtures.servers import RunningServer, running_server

HELLO = encode_frame(Hello(MAGIC, VERSION, VERSION, "gone", "default", autocommit=True))
ROWS = 4_000  # of which 4,000 to the third power are more than any machine joins
_PRODUCT = "t AS a, t AS b, t AS c"
PHASES = {
    "DuckDB computes": f"SELECT count(*) FROM {_PRODUCT} WHERE (a.id + b.id * c.id) % 7 = 8",
    "DuckDB sorts": f"SELECT a.id FROM {_PRODUCT} ORDER BY a.id * b.id - c.id",
    "rows of DuckDB are inserted": f"INSERT INTO u SELECT a.id FROM {_PRODUCT}",
    "a lock": "UPDATE u SET id = 2 WHERE id = 1",
    "a lock of a transaction": "BEGIN; DELETE FROM t WHERE id = 0; UPDATE u SET id = 2",
}


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running_server(new_loop=request.param, workers=2) as running:
        with herdpy.connect(running.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            connection.execute("CREATE TABLE u (id BIGINT PRIMARY KEY)")
            connection.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(ROWS)])
            connection.execute("INSERT INTO u VALUES (1)")
        yield running


def running_texts(connection: herdpy.Connection) -> list[str]:
    rows = connection.execute("SELECT text FROM sysstatements").fetchall()
    return [text for (text,) in rows if "sysstatements" not in text]


@pytest.mark.parametrize("waiting", [0, WAITING_MAX], ids=["read", "not read"])
@pytest.mark.parametrize("phase", PHASES)
def test_what_runs_for_a_closed_socket_ends(
    server: RunningServer, phase: str, waiting: int
) -> None:
    *before, text = PHASES[phase].split("; ")
    holder = herdpy.connect(server.url)
    holder.execute("UPDATE u SET id = 9" if "lock" in phase else "SELECT 1")
    peer = socket.create_connection(("127.0.0.1", server.port), 60)
    requests: list[Any] = [Execute(n, each, None) for n, each in enumerate([*before, text], 1)]
    # With so many behind it the server reads no further, and so no end of the connection.
    requests += [Fetch(len(requests) + n, 1, 1, is_arrow=False) for n in range(waiting + 1)]
    peer.sendall(HELLO)
    assert peer.recv(65536)  # it is welcome
    peer.sendall(b"".join(map(encode_frame, requests)))
    while running_texts(holder) != [text]:
        pass
    if waiting:
        (served,) = [each for each in server.server._hub.connections if each.client == "gone"]
        while not served._is_reading_paused:
            pass
    peer.close()
    while running_texts(holder):
        pass
    holder.rollback()
    holder.execute("UPDATE u SET id = 3")  # its locks have gone, too
    holder.execute("DELETE FROM t WHERE id = 0")
    holder.commit()
    assert holder.execute("SELECT id FROM u").fetchall() == [(3,)]
    assert holder.execute("SELECT count(*) FROM t").fetchone() == (ROWS - 1,)
    holder.close()


def test_who_takes_no_answers_is_killed_at_once(server: RunningServer) -> None:
    """It would not hear why; the last bytes of others have LINGER_S to go."""
    with (
        herdpy.connect(server.url, autocommit=True) as other,
        socket.create_connection(("127.0.0.1", server.port), 60) as peer,
    ):
        peer.sendall(HELLO)
        assert peer.recv(65536)
        text = "SELECT a.id, repeat('x', 1000) FROM t AS a, t AS b"
        requests: list[Any] = [Execute(1, text, None)]
        requests += [Fetch(n, 1, 10_000, is_arrow=False) for n in range(2, 40)]
        peer.sendall(b"".join(map(encode_frame, requests)))
        hub = server.server._hub
        while not hub.stalled.byte_count or running_texts(other):
            pass
        begun_s = time.monotonic()
        query = "SELECT id FROM sysclients WHERE client = 'gone'"
        other.execute(f"KILL CONNECTION {other.execute(query).fetchall()[0][0]}")
        while other.execute(query).fetchall() or hub.results.used:
            pass
        assert time.monotonic() - begun_s < LINGER_S / 2
