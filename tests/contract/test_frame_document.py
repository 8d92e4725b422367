"""A second client, written from docs/protocols/frames.md alone: nothing of herdpy.proto is used.

It also does what no driver does: talks before Welcome, announces much, never reads, nests deeply.
"""

import socket
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import herdpy
from tests.fixtures.servers import RunningServer, running_server

# The document's numbers.
HELLO, EXECUTE, FETCH, CLOSE_RESULT, BEGIN, COMMIT, CANCEL, PING = 1, 2, 4, 5, 6, 7, 11, 12
WELCOME, DONE, ROWS, FAILED, PONG = 64, 65, 66, 68, 69


class TinyClient:
    """A socket and MessagePack."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)

    def __enter__(self) -> "TinyClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *message: Any) -> None:
        self.send_body(msgspec.msgpack.encode(message))

    def send_body(self, body: bytes) -> None:
        self.socket.sendall(struct.pack(">I", len(body)) + body)

    def receive(self) -> Any:
        """Return the next message, None at the end."""
        head = self._exactly(4)
        if head is None:
            return None
        body = self._exactly(struct.unpack(">I", head)[0])
        assert body is not None
        return msgspec.msgpack.decode(body)

    def _exactly(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except ConnectionResetError:
                piece = b""
            if not piece:
                return None
            data += piece
        return data

    def greet(self) -> None:
        self.send(HELLO, "herdpy", 1, 1, "tiny", "default", True)
        welcome = self.receive()
        assert (welcome[0], welcome[1]) == (WELCOME, 1)

    def run(self, request: int, text: str, parameters: Any = None) -> Any:
        self.send(EXECUTE, request, text, parameters)
        answer = self.receive()
        assert answer[1] == request
        return answer


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(login_timeout_s=5) as found:
        yield found


@pytest.fixture
def client(server: RunningServer) -> Iterator[TinyClient]:
    with TinyClient(server.port) as found:
        found.greet()
        yield found


def test_statements_and_transactions(server: RunningServer, client: TinyClient) -> None:
    assert client.run(1, "CREATE TABLE t (id BIGINT PRIMARY KEY, d DATE)")[0] == DONE
    date = msgspec.msgpack.Ext(2, b"2020-01-31")
    assert client.run(2, "INSERT INTO t VALUES (?, ?)", [7, date])[:4] == [DONE, 2, False, 1]
    done = client.run(3, "SELECT id, d FROM t WHERE id = :id", {"id": 7})
    assert [column[:2] for column in done[5]] == [["id", 3], ["d", 8]]
    assert (done[6], done[7]) == ([[7, "2020-01-31"]], None)
    client.send(BEGIN, 4, None)
    client.send(EXECUTE, 5, "DELETE FROM t", None)
    client.send(COMMIT, 6)  # without waiting
    answers = [client.receive() for _ in range(3)]
    assert [answer[:3] for answer in answers] == [
        [DONE, 4, True], [DONE, 5, True], [DONE, 6, False],
    ]  # fmt: skip
    assert client.run(7, "SELECT id FROM t")[6] == []
    failed = client.run(8, "SELECT nothing FROM nowhere")
    assert (failed[0], failed[3], failed[5]) == (FAILED, "ProgrammingError", "42P01")


def test_a_long_result_is_fetched_and_another_given_up(client: TinyClient) -> None:
    client.run(1, "CREATE TABLE t (id BIGINT PRIMARY KEY)")
    client.send(3, 2, "INSERT INTO t VALUES (?)", [[n] for n in range(3000)])
    assert client.receive()[:4] == [DONE, 2, False, 3000]
    for number in (3, 4):
        done = client.run(number, "SELECT id FROM t ORDER BY id")
        assert (done[6], done[7]) == ([], number - 2)
    found: list[int] = []
    request, is_last = 4, False
    while not is_last:
        request += 1
        client.send(FETCH, request, 1, 700, False)
        kind, answered, is_last, rows = client.receive()
        assert (kind, answered) == (ROWS, request)
        found += [row[0] for row in rows]
    assert found == list(range(3000))
    client.send(CLOSE_RESULT, 2)
    client.send(FETCH, 99, 2, 10, False)
    failed = client.receive()
    assert (failed[0], failed[1], failed[5]) == (FAILED, 99, "24000")


def test_ping_and_cancel(client: TinyClient) -> None:
    client.send(CANCEL, 77)  # of what is not there
    client.send(PING, 5)
    assert client.receive() == [PONG, 5]


@pytest.mark.parametrize(
    "message",
    [
        (EXECUTE, 1, "CREATE TABLE intruder (id BIGINT PRIMARY KEY)", None),
        (3, 1, "CREATE TABLE intruder (id BIGINT PRIMARY KEY)", [[]]),
        (PING, 1),
        (HELLO, "other", 1, 1, "t", "default", True),
        (HELLO, "herdpy", 1, 1, "t", "default", "yes"),
        (HELLO, "herdpy", 2, 9, "t", "default", True),
        (HELLO, "herdpy", 1, 1, "t", "elsewhere", True),
        (99, 1),
    ],
)
def test_nothing_happens_before_welcome(server: RunningServer, message: Any) -> None:
    with TinyClient(server.port) as client:
        client.send(*message)
        client.send(EXECUTE, 2, "CREATE TABLE intruder (id BIGINT PRIMARY KEY)", None)
        failed = client.receive()
        assert (failed[0], failed[1]) == (FAILED, 0)
        assert client.receive() is None
    with herdpy.connect(server.url) as connection, pytest.raises(herdpy.ProgrammingError):
        connection.execute("SELECT * FROM intruder")


def test_a_stranger_may_not_announce_much(server: RunningServer) -> None:
    with TinyClient(server.port) as client:
        client.socket.sendall(struct.pack(">I", 16 * 1024))
        failed = client.receive()
        assert (failed[0], failed[1], failed[5]) == (FAILED, 0, "08P01")


def test_who_dribbles_is_sent_away() -> None:
    """Slow loris: a byte now and then keeps no connection in."""
    with running_server(login_timeout_s=0.2) as server, TinyClient(server.port) as client:
        client.socket.sendall(b"\0")
        failed = client.receive()
        assert (failed[0], failed[1]) == (FAILED, 0)
        assert client.receive() is None


def test_values_nested_a_million_deep_end_the_connection_only(server: RunningServer) -> None:
    with TinyClient(server.port) as client:
        client.greet()
        client.send_body(b"\x94\x02\x01\xa8SELECT ?" + b"\x91" * 1_000_000 + b"\xc0")
        failed = client.receive()
        assert (failed[0], failed[1], failed[5]) == (FAILED, 0, "08P01")
    with herdpy.connect(server.url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_statement_nested_deeply_fails_alone(client: TinyClient) -> None:
    deep = "SELECT " + "(" * 1_000_000 + "1" + ")" * 1_000_000
    failed = client.run(1, deep)
    assert (failed[0], failed[5]) == (FAILED, "54001")
    assert client.run(2, "SELECT 1")[6] == [[1]]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM '/etc/passwd'",
        'SELECT * FROM "/etc/passwd"',
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "COPY t TO '/tmp/x'",
        "SELECT * FROM rows",  # a variable's name where DuckDB is called
        "SELECT * FROM glob('/*')",
        "INSTALL httpfs",
        "ATTACH '/tmp/x.db'",
    ],
)
def test_no_statement_reaches_files_or_variables(client: TinyClient, text: str) -> None:
    failed = client.run(1, text)
    assert failed[0] == FAILED
    assert "root:" not in repr(failed)


def send_until_refused(client: TinyClient, body: bytes, bytes_max: int) -> int:
    """Send a message again and again until the server reads no further; return how much."""
    sent = 0
    try:
        while sent < bytes_max:
            client.send_body(body)
            sent += len(body)
    except TimeoutError:
        pass
    return sent


def test_a_client_that_never_reads_is_held_at_little_memory(server: RunningServer) -> None:
    with TinyClient(server.port) as client, herdpy.connect(server.url) as other:
        client.greet()
        client.socket.settimeout(1)
        text = "SELECT '" + "x" * 50_000 + "'"
        body = msgspec.msgpack.encode((EXECUTE, 1, text, None))
        sent = send_until_refused(client, body, 200_000_000)
        assert sent < 200_000_000
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_a_server_ends_under_a_client_that_never_reads() -> None:
    with running_server() as server, TinyClient(server.port) as client:
        client.greet()
        client.run(1, "SELECT 1")
        for number in range(2, 200):
            client.send(EXECUTE, number, "SELECT '" + "x" * 50_000 + "'", None)
        # Leaving the block has to end.
