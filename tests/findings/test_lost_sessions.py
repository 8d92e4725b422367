"""Findings about connections: a lost one keeps nothing, a Cancel counts, no password is shown."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import herdpy

LENGTH_BYTES = 4


class LosingProxy:
    """Between driver and server: loses one answer, and the driver's connection with it.

    The server's side of it stays open, as behind a network that has failed in between.
    """

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("herd://").rstrip("/").rpartition(":")
        self._target = host.strip("[]"), int(port)
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"herd://127.0.0.1:{self._server.getsockname()[1]}"
        self.loses_behind: bytes | None = None
        """The next answer behind a request with these bytes is lost."""
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, function: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            lost = threading.Event()
            self._start(self._requests, client, server, lost)
            self._start(self._answers, client, server, lost)

    def _requests(
        self, client: socket.socket, server: socket.socket, lost: threading.Event
    ) -> None:
        while data := _received(client):
            if self.loses_behind is not None and self.loses_behind in data:
                self.loses_behind = None
                lost.set()
            with suppress(OSError):
                server.sendall(data)
        if not lost.is_set():
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)

    def _answers(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        while data := _received(server):
            if lost.is_set():
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                return
            with suppress(OSError):
                client.sendall(data)

    def close(self) -> None:
        for each in (self._server, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()


def _received(one: socket.socket) -> bytes:
    try:
        return one.recv(65536)
    except OSError:
        return b""


@pytest.fixture
def proxy(serve: Callable[..., Any]) -> Iterator[LosingProxy]:
    server = serve()
    with herdpy.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        connection.execute("INSERT INTO t VALUES (0, 0)")
    made = LosingProxy(server.url)
    yield made
    made.close()


@pytest.mark.finding("R1")
@pytest.mark.parametrize(
    "statement", ["INSERT INTO t VALUES (1, 1)", "UPDATE t SET v = 1 WHERE id = 0"]
)
def test_a_repeated_statement_does_not_wait_for_the_lost_session(
    proxy: LosingProxy, statement: str
) -> None:
    with herdpy.connect(proxy.url, lock_timeout_s=5) as connection:
        proxy.loses_behind = statement.encode()
        found: list[Any] = []
        try:
            found.append(connection.execute(statement).rowcount)
            connection.commit()
        except herdpy.Error as error:
            found.append(error.sqlstate)
        assert found == [1]


@pytest.mark.finding("R1")
def test_a_repeated_transaction_does_not_wait_for_the_lost_session(proxy: LosingProxy) -> None:
    with herdpy.connect(proxy.url, lock_timeout_s=5) as connection:
        connection.execute("UPDATE t SET v = 1 WHERE id = 0")
        proxy.loses_behind = b"INSERT INTO t"
        found: list[Any] = []
        try:
            connection.execute("INSERT INTO t VALUES (1, 1)")
        except herdpy.Error as error:
            found.append(error.retry.name)
        connection.rollback()
        try:
            found.append(connection.execute("UPDATE t SET v = 1 WHERE id = 0").rowcount)
            connection.commit()
        except herdpy.Error as error:
            found.append(error.sqlstate)
        assert found == ["SAFE", 1]


@pytest.mark.finding("R2")
@pytest.mark.parametrize(
    "target",
    [
        "herd:/ada:s3cret@host",
        "herd:ada:s3cret@host",
        " herd://ada:s3cret@host",
        "herd//ada:s3cret@host",
        "herd+grpc:/ada:s3cret@host/default",
        "ada:s3cret@host",
        "/missing/herd:/ada:s3cret@host",
        "ada:s3cret@host:7000/default",
        "//ada:s3cret@host/default",
        "herd://ada:s3cret",
    ],
)
def test_a_malformed_url_is_told_without_its_password(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = ""
    try:
        herdpy.connect(target)
    except herdpy.Error as error:
        said = f"{error} {error!r}"
    assert said, "it was taken as a directory"
    assert "s3cret" not in said


def _frame(*fields: Any) -> bytes:
    body = msgspec.msgpack.encode(fields)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class Wire:
    """A connection by docs/protocols/frames.md."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("herd://").rstrip("/").rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)))
        self._file = self._socket.makefile("rb")
        self.send(_frame(1, "herdpy", 1, 1, "a test", "default", True))
        self.answer()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> list[Any]:
        length = int.from_bytes(self._file.read(LENGTH_BYTES), "big")
        return msgspec.msgpack.decode(self._file.read(length))

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.mark.finding("R3")
def test_a_cancel_counts_for_a_request_that_waits(serve: Callable[..., Any]) -> None:
    server = serve()
    with herdpy.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        wire = Wire(server.url)
        text = "INSERT INTO t VALUES (?)"
        for number in (1, 2, 3):  # from now on it runs without a worker
            wire.send(_frame(2, number, text, [number]))
            assert wire.answer()[0] == 65
        wire.send(_frame(2, 4, text, [4]) + _frame(2, 5, text, [5]) + _frame(11, 5))
        first, second = wire.answer(), wire.answer()
        wire.close()
        assert (first[0], first[1]) == (65, 4)
        assert (second[0], second[1]) == (68, 5), "a Failed"
        assert second[5] == "57014"
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(4,)]
