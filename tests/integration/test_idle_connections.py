"""Two thousand connections that do nothing, to a real server that began with few open files."""

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from herdpy.cli.system import make_room
from herdpy.config import ServerConfig
from herdpy.proto.messages import (
    MAGIC,
    VERSION,
    Done,
    Execute,
    Failed,
    Hello,
    Welcome,
    decode_to_driver,
    encode_frame,
)
from tests.fixtures.ports import own_port

pytestmark = pytest.mark.integration

CONNECTIONS = 2_000
BYTES_EACH_MAX = 200_000
HELLO = encode_frame(Hello(MAGIC, VERSION, VERSION, "idle", "default", autocommit=True))


@pytest.fixture
def open_files() -> Iterator[None]:
    """Room for the client's ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CONNECTIONS + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"the system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def answer(peer: socket.socket) -> Any:
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        piece = peer.recv(65536)
        assert piece, "the server has closed the connection"
        data += piece
    return decode_to_driver(data[4 : 4 + int.from_bytes(data[:4], "big")])


def connected(port: int) -> tuple[socket.socket, Any]:
    peer = socket.create_connection(("127.0.0.1", port), timeout=60)
    peer.sendall(HELLO)
    return peer, answer(peer)


def resident_bytes(process_id: int) -> int:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.usefixtures("open_files")
def test_two_thousand(tmp_path: Path) -> None:
    port = own_port()
    command = (sys.executable, "-m", "herdpy.cli", "serve", str(tmp_path / "data"))
    settings = {
        "HERDPY_SERVER_PORT": str(port),
        "HERDPY_SERVER_CONNECTIONS_MAX": str(CONNECTIONS),
    }
    # 256 open files are too few: the server has to help itself to more.
    process = subprocess.Popen(
        ("/bin/sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh", *command),
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        text=True,
    )
    peers: list[socket.socket] = []
    try:
        assert process.stdout is not None
        while "serving" not in process.stdout.readline():
            assert process.poll() is None
        reader = threading.Thread(target=process.stdout.read)  # so that it never blocks
        reader.start()
        for _ in range(10):  # what the first ones need is not theirs
            peers.append(connected(port)[0])
        before = resident_bytes(process.pid)
        while len(peers) < CONNECTIONS:
            peer, found = connected(port)
            peers.append(peer)
            assert isinstance(found, Welcome)
        each = (resident_bytes(process.pid) - before) / (CONNECTIONS - 10)
        assert each <= BYTES_EACH_MAX
        peer, found = connected(port)
        peer.close()
        assert isinstance(found, Failed)
        assert (found.sqlstate, found.retry) == ("53300", "safe")
        for peer in (peers[0], peers[-1]):
            peer.sendall(encode_frame(Execute(1, "SELECT 1", None)))
            assert isinstance(answer(peer), Done)
        while peers:
            peers.pop().close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        reader.join()
    finally:
        for peer in peers:
            peer.close()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_room_that_there_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = [(256, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    make_room(ServerConfig(connections_max=2_000))
    assert limits[-1] == (3_264, 4096)
    assert not caplog.records
    make_room(ServerConfig(connections_max=9_000))
    assert limits[-1] == (4096, 4096)
    assert "the system allows 4096 open files, the settings need about 10264" in caplog.text
