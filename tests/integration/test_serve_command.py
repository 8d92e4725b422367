"""`herdpy serve` as a process of a service manager: ready, served, stopped."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import herdpy
from tests.fixtures.ports import own_port

pytestmark = pytest.mark.integration

FILE = """
[server]
http_port = {http_port}
grpc_port = {grpc_port}
log_format = "json"
slow_statement_s = 1e-9
drain_timeout_s = 1
"""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "n"))
        listener.settimeout(60)
        yield listener


def test_a_life(tmp_path: Path, manager: socket.socket) -> None:
    port, http_port, grpc_port = own_port(), own_port(), own_port()
    (tmp_path / "h.toml").write_text(FILE.format(http_port=http_port, grpc_port=grpc_port))
    environment = os.environ | {
        "NOTIFY_SOCKET": str(tmp_path / "n"),
        "HERDPY_CONFIG": str(tmp_path / "h.toml"),
        "HERDPY_SERVER_PORT": str(port),
    }
    command = [sys.executable, "-m", "herdpy.cli", "serve", str(tmp_path / "data")]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        ready = manager.recv(4096).decode().splitlines()
        assert ready == ["READY=1", f"STATUS=serving {tmp_path / 'data'}"]
        for url in (f"herd://127.0.0.1:{port}", f"herd+grpc://127.0.0.1:{grpc_port}"):
            with herdpy.connect(url, autocommit=True) as connection:
                assert connection.execute("SELECT 1").fetchall() == [(1,)]
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/readyz", timeout=60) as answer:
            assert answer.read() == b"OK\n"
        process.send_signal(signal.SIGTERM)
        assert manager.recv(4096).startswith(b"STOPPING=1\n")
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, errors
    assert output.startswith(f"serving {tmp_path / 'data'} at herd://127.0.0.1:{port}\n")
    records = [json.loads(line) for line in errors.splitlines()]
    slow = [record for record in records if record["message"] == "slow statement"]
    # The end of a gRPC session rolls back, which the client does not wait for.
    texts = [record["statement"] for record in slow if record["kind"] != "rollback"]
    assert texts == ["SELECT 1", "SELECT 1"], slow


def test_what_cannot_begin_says_why(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "herdpy.cli", "serve", str(tmp_path / "data")]
        for option in ("--port", "--http-port"):
            arguments = [option, port] if option == "--port" else ["--port", "0", option, port]
            ran = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)
            assert ran.returncode == 1
            assert f"cannot listen on 127.0.0.1:{port}" in ran.stderr
            assert f"choose another port ({option})" in ran.stderr
    elsewhere = ["--host", "not-a-host.invalid", "--port", "0"]
    ran = subprocess.run([*command, *elsewhere], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert "cannot listen on not-a-host.invalid:0: " in ran.stderr
    assert "choose an address of this machine" in ran.stderr


def test_a_log_of_which_nothing_is_read_holds_up_nothing(tmp_path: Path) -> None:
    """Log and output go to one pipe, which is full after some thirty statements."""
    port = own_port()
    command = [
        *(sys.executable, "-m", "herdpy.cli", "serve", str(tmp_path / "data")),
        *("--port", str(port), "--set", "server.slow_statement_s=1e-9"),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0, pipesize=65_536
    )
    assert process.stdout is not None
    try:
        while b"herd://" not in process.stdout.readline():
            pass
        text = f"SELECT '{'x' * 2_000}'"
        counts: list[int] = []

        def ask() -> None:
            with herdpy.connect(f"herd://127.0.0.1:{port}", autocommit=True) as connection:
                for _ in range(1_000):
                    counts.append(len(connection.execute(text).fetchall()))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(60)
        assert len(counts) == 1_000
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout.read().count(b"slow statement") >= 1
    finally:
        process.kill()
        process.communicate()
