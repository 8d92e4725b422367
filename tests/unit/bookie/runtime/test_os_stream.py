"""BlockingStream: what arrives before it sleeps, while it sleeps, and never."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from bookie.runtime import os_stream
from bookie.runtime.os_stream import BlockingStream


@pytest.fixture(params=[0.0, 1e-6, 10.0], ids=["sleeps", "looks once", "looks long"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[BlockingStream, socket.socket]]:
    """Give a stream and its peer; one looks so long before it sleeps."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = BlockingStream("127.0.0.1", listener.getsockname()[1], 10)
        peer, _ = listener.accept()
    stream.set_timeout(None)
    stream.set_spin(request.param)
    with closing(stream), peer:
        yield stream, peer


def test_what_is_there_and_what_comes(ends: tuple[BlockingStream, socket.socket]) -> None:
    stream, peer = ends
    for number in range(100):
        peer.sendall(b"%d" % number)
        assert stream.receive() == b"%d" % number

    def echo() -> None:
        while data := peer.recv(100):
            peer.sendall(data)

    thread = threading.Thread(target=echo)
    thread.start()
    for number in range(100):
        stream.send(b"%d" % number)
        assert stream.receive() == b"%d" % number
    stream.end()
    thread.join()


def test_the_end(ends: tuple[BlockingStream, socket.socket]) -> None:
    stream, peer = ends
    peer.shutdown(socket.SHUT_WR)
    assert stream.receive() == b""


def test_a_timeout_counts(ends: tuple[BlockingStream, socket.socket]) -> None:
    stream, _ = ends
    stream.set_timeout(0.01)
    with pytest.raises(TimeoutError):
        stream.receive()


def test_another_thread_ends_it(ends: tuple[BlockingStream, socket.socket]) -> None:
    stream, _ = ends
    got: list[bytes | OSError] = []

    def receive() -> None:
        try:
            got.append(stream.receive())
        except OSError as error:  # its descriptor is gone
            got.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    stream.end()
    thread.join()
    assert got == [b""] or isinstance(got[0], OSError)


def test_more_is_asked_for_behind_what_filled_the_room(
    ends: tuple[BlockingStream, socket.socket],
) -> None:
    stream, peer = ends
    sent = bytes(range(256)) * 4096
    thread = threading.Thread(target=peer.sendall, args=(sent,))
    thread.start()
    pieces = [stream.receive()]
    while sum(map(len, pieces)) < len(sent):
        pieces.append(stream.receive())
    thread.join()
    assert b"".join(pieces) == sent
    assert len(pieces[0]) <= os_stream._FEW_BYTES
    assert max(map(len, pieces)) > os_stream._FEW_BYTES


@pytest.mark.parametrize(("away_s", "pays"), [(60e-6, False), (40e-6, True)])
def test_looking_does_not_pay_where_others_want_the_processor(
    monkeypatch: pytest.MonkeyPatch, away_s: float, pays: bool
) -> None:
    now_s = 0.0

    def give_away() -> None:
        nonlocal now_s
        now_s += away_s
        peer.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = BlockingStream("127.0.0.1", listener.getsockname()[1], 10)
        peer, _ = listener.accept()
    monkeypatch.setattr(os_stream, "monotonic", lambda: now_s)
    monkeypatch.setattr(os_stream, "yield_processor", give_away)
    stream.set_timeout(None)
    stream.set_spin(300e-6)
    with closing(stream), peer:
        assert stream.receive() == b"x"
        assert stream._spinning.begin() is pays
