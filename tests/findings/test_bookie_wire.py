"""Bookies by the wire itself: nothing in clear where certificates are asked for, idle sockets."""

import json
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trustme

COMMAND = (sys.executable, "-m", "bookie.admin.commands")
KEY = bytes(20)
# Operations of protocol v3, and statuses of both protocols.
READ_ENTRY, ADD_ENTRY, AUTH, WRITE_LAC, READ_LAC, INFO, START_TLS, FORCE, LIST_ENTRIES = (
    1, 2, 5, 6, 7, 8, 9, 10, 11,
)  # fmt: skip
OK, UNAUTHORIZED_V3, UNAUTHORIZED_V2 = 0, 502, 102


class Process:
    """One command that prints one line of JSON when it is ready."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, *arguments, "--json"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.told = json.loads(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(tmp_path: Path, *options: str) -> Iterator[int]:
    """Run `bookie serve` with options; its port."""
    (tmp_path / "local").mkdir()
    plan = {"zookeeper_port": free_port(), "bookie_ports": [free_port()]}
    (tmp_path / "local" / "local.json").write_text(json.dumps(plan))
    started = []
    try:
        started.append(Process("local", "1", "--data", str(tmp_path / "local")))
        bookie = Process(
            "serve", "--zookeeper", started[0].told["zookeeper"], "--data", str(tmp_path / "data"),
            "--port", str(free_port()), *options,
        )  # fmt: skip
        started.append(bookie)
        yield bookie.told["port"]
    finally:
        for process in reversed(started):
            process.stop()
        shutil.rmtree(tmp_path / "local", ignore_errors=True)


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value & 2**64 - 1)


def octets(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def packet(ledger_id: int) -> bytes:
    """Return entry 0 of a ledger, without a digest: no bookie looks at it."""
    return struct.pack(">qqqq", ledger_id, 0, -1, 7) + b"payload"


LEDGER = number(1, 7)
BODIES = {
    READ_ENTRY: octets(100, LEDGER + number(2, 0)),
    ADD_ENTRY: octets(101, LEDGER + number(2, 0) + octets(3, KEY) + octets(4, packet(7))),
    AUTH: octets(102, octets(1, b"plugin") + octets(2, b"token")),
    WRITE_LAC: octets(103, LEDGER + number(2, 0) + octets(3, KEY) + octets(4, b"lac")),
    READ_LAC: octets(104, LEDGER),
    INFO: octets(105, number(1, 3)),
    FORCE: octets(107, LEDGER),
    LIST_ENTRIES: octets(108, LEDGER),
    START_TLS: octets(106, b""),
}


def request_v3(operation: int) -> bytes:
    header = number(1, 3) + number(2, operation) + number(3, 1)
    return octets(1, header) + BODIES[operation]


REQUESTS_V2 = {
    "add": struct.pack(">BBH", 2, 1, 0) + KEY + packet(8),
    "read": struct.pack(">BBHqq", 2, 2, 0, 7, 0),
    "batch read": struct.pack(">BBHqqqiq", 2, 7, 0, 7, 0, 1, 10, 1 << 20),
}


def answer_to(port: int, *messages: bytes) -> bytes:
    """Send messages on one connection, one after the other; return the last answer.

    ConnectionError: the bookie has closed it.
    """
    with socket.create_connection(("127.0.0.1", port)) as connection:
        stream = connection.makefile("rb")
        answer = b""
        for message in messages:
            connection.sendall(struct.pack(">i", len(message)) + message)
            head = stream.read(4)
            if len(head) < 4:
                raise ConnectionAbortedError("closed without an answer")
            (length,) = struct.unpack(">i", head)
            answer = stream.read(length)
        return answer


def status_v3(answer: bytes) -> int:
    """Return the status of a Response: field 2, behind the header, which is field 1."""
    at = 2 + answer[1]
    assert answer[at] == 2 << 3
    low, high = answer[at + 1], answer[at + 2]
    return low & 0x7F | (high << 7 if low & 0x80 else 0)


@pytest.mark.finding("S8")
def test_s8_a_bookie_that_asks_for_certificates_serves_nothing_in_clear(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    certificate, key, trust = (tmp_path / f"{name}.pem" for name in ("certificate", "key", "trust"))
    certificate.write_bytes(server.cert_chain_pems[0].bytes())
    key.write_bytes(server.private_key_pem.bytes())
    trust.write_bytes(authority.cert_pem.bytes())
    with serving(tmp_path, "--tls", str(certificate), str(key), "--tls-trust", str(trust)) as port:
        check_refusals(port)


def check_refusals(port: int) -> None:
    found = {
        operation: status_v3(answer_to(port, request_v3(operation)))
        for operation in BODIES
        if operation != START_TLS
    }
    assert found == dict.fromkeys(found, UNAUTHORIZED_V3)
    for name, request in REQUESTS_V2.items():
        (code,) = struct.unpack_from(">i", answer_to(port, request), 4)
        assert code == UNAUTHORIZED_V2, name
    refused_first = answer_to(port, request_v3(READ_ENTRY), request_v3(START_TLS))
    assert status_v3(refused_first) == OK


@pytest.mark.finding("S10")
def test_s10_idle_sockets_keep_no_client_out_of_a_bookie(tmp_path: Path) -> None:
    count = 20
    with serving(tmp_path, "--set", f"connections_max={count}") as port, ExitStack() as opened:
        for _ in range(2 * count):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert is_answered(port)


def is_answered(port: int) -> bool:
    """Tell whether a bookie answers a request of a new connection."""
    try:
        return len(answer_to(port, request_v3(INFO))) > 0
    except ConnectionError:
        return False
