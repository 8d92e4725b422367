"""The management API by TLS and certificates, and webhooks, between real processes."""

import hashlib
import hmac
import http.client
import json
import queue
import ssl
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bookie.admin.zookeeper_process import ZooKeeperProcess
from tests.fixtures.authorities import Authority, Identity
from tests.fixtures.commanded_cluster import LIMIT_S, CommandedCluster, commanded, metric
from tests.fixtures.ports import own_port
from tests.fixtures.zookeeper import zookeeper, zookeeper_root

pytestmark = pytest.mark.integration

__all__ = ["zookeeper", "zookeeper_root"]

READ_TOKEN, ADMIN_TOKEN, OTHER_TOKEN = (f"{name}-token-of-the-test" for name in "rao")
READ_ONLY = "/api/v1/bookie/state/readonly"
REFUSED = (ssl.SSLError, ConnectionError, http.client.BadStatusLine)
"""What a client sees of a handshake that the server refuses: with TLS 1.3 after its own end."""


@pytest.fixture
def cluster(zookeeper: ZooKeeperProcess, zookeeper_root: str) -> Iterator[CommandedCluster]:
    with commanded(zookeeper.hosts, zookeeper_root) as made:
        yield made


class Client:
    """Asks one port by TLS, with or without a certificate."""

    def __init__(self, port: int, trust: str, identity: Identity | None = None) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=trust)
        if identity is not None:
            self._context.load_cert_chain(*identity)

    def ask(self, method: str, path: str, body: object = None, token: str | None = None) -> int:
        return self.answer(method, path, body, token)[0]

    def answer(
        self, method: str, path: str, body: object = None, token: str | None = None
    ) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._context, timeout=LIMIT_S
        )
        try:
            connection.request(method, path, data, headers)
            found = connection.getresponse()
            return found.status, found.read()
        finally:
            connection.close()


def test_roles_by_certificates_and_tokens(cluster: CommandedCluster, tmp_path: Path) -> None:
    servers, clients, others = (Authority(tmp_path, name) for name in ("s", "clients", "other"))
    access = tmp_path / "access"
    access.write_text(
        f"read token {READ_TOKEN}\nadmin token {ADMIN_TOKEN}\n"
        "read certificate monitoring\nadmin certificate operations\n"
    )
    access.chmod(0o600)
    started = cluster.serve(
        "--data", str(tmp_path / "data"), "--port", str(own_port()), "--http-port", "0",
        "--http-access", str(access), "--http-tls", *servers.issue("server", "127.0.0.1"),
        "--http-tls-trust", clients.path,
    )  # fmt: skip
    bookie_id, port = started["bookie_id"], started["http_port"]

    def client(identity: Identity | None = None) -> Client:
        return Client(port, servers.path, identity)

    reader = client(clients.issue("monitoring", "m.example"))
    operator = client(clients.issue("operations", "o.example"))
    unnamed = client(clients.issue("unnamed", "u.example"))
    expired = client(
        clients.issue("operations-of-old", "o.example", until=datetime(2020, 1, 1, tzinfo=UTC))
    )
    foreign = client(others.issue("operations-elsewhere", "o.example"))
    alone = client()

    # Probes need no role; what TLS refuses is refused for them as well.
    for one in (alone, reader, operator, unnamed):
        assert one.ask("GET", "/ready") == 200
        assert one.ask("GET", "/metrics") == 200
    for one in (expired, foreign):
        for path in ("/ready", "/api/v1/lifecycle"):
            with pytest.raises(REFUSED):
                one.ask("GET", path)
    plain = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    plain.request("GET", "/ready")
    with pytest.raises(REFUSED):
        plain.getresponse()
    plain.close()

    # by one certificate or none, and one token or none: what GET and PUT answer
    expected = (
        (alone, None, 401, 401),
        (alone, READ_TOKEN, 200, 403),
        (alone, ADMIN_TOKEN, 200, 200),
        (alone, OTHER_TOKEN, 401, 401),
        (reader, None, 200, 403),
        (reader, READ_TOKEN, 200, 403),
        (reader, ADMIN_TOKEN, 200, 200),
        (reader, OTHER_TOKEN, 401, 401),
        (operator, None, 200, 200),
        (operator, READ_TOKEN, 200, 200),
        (operator, OTHER_TOKEN, 401, 401),
        (unnamed, None, 401, 401),
        (unnamed, READ_TOKEN, 200, 403),
        (unnamed, ADMIN_TOKEN, 200, 200),
    )
    for number, (one, token, read, admin) in enumerate(expected):
        is_read_only = bool(number % 2)
        found = (
            one.ask("GET", "/api/v1/lifecycle", token=token),
            one.ask("PUT", READ_ONLY, {"readOnly": is_read_only}, token),
        )
        assert found == (read, admin), (number, token)
        if admin == 200:
            _, answer = reader.answer("GET", READ_ONLY)
            assert json.loads(answer) == {"readOnly": is_read_only}

    # The state node and the log name the certificate; no token is in the log, in no answer.
    path = f"/api/v1/lifecycle/{bookie_id}"
    status, answer = operator.answer("PUT", path, {"step": "drain"})
    assert (status, json.loads(answer)["by"]) == (200, "operations")
    settings = operator.answer("GET", "/api/v1/config/server_config")[1]
    process = cluster.bookies[bookie_id]
    cluster.wait_until(lambda: "by 'operations': 200" in "\n".join(process.errors))
    log = "\n".join(process.errors)
    for token in (READ_TOKEN, ADMIN_TOKEN, OTHER_TOKEN):
        assert token not in log
        assert token.encode() not in settings


# --- webhooks -------------------------------------------------------------------------------------

SECRET = b"a secret of the test, signed with"


class Told(NamedTuple):
    """One call of a webhook, of which the signature is right."""

    event_id: str
    bookie_id: str
    was: str | None
    lifecycle: str


class Receiver(ThreadingHTTPServer):
    """Takes calls, but for the first `refusals`, which get 503."""

    def __init__(self, port: int, refusals: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Call)
        self.refusals = refusals
        self.refused: list[Told] = []
        self.taken: queue.SimpleQueue[Told] = queue.SimpleQueue()

    def next(self) -> Told:
        return self.taken.get(timeout=LIMIT_S)


class _Call(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = self.server
        assert isinstance(receiver, Receiver)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        stamp = self.headers["X-Bookie-Timestamp"]
        expected = hmac.new(SECRET, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        is_signed = self.headers["X-Bookie-Signature"] == f"v1={expected}"
        record = json.loads(body)
        row = record["bookie"]
        told = Told(record["id"], row["bookie_id"], record["from"], row["lifecycle"])
        if not is_signed or self.headers["X-Bookie-Event"] != told.event_id:
            status = 400
        elif len(receiver.refused) < receiver.refusals:
            receiver.refused.append(told)
            status = 503
        else:
            status = 204
        self.send_response(status)
        self.end_headers()
        if status == 204:
            receiver.taken.put(told)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's
        pass


@contextmanager
def receiving(port: int, refusals: int = 0) -> Generator[Receiver]:
    with Receiver(port, refusals) as receiver:
        thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()


@pytest.mark.timeout(300)  # seven processes, ten commands
@pytest.mark.long
def test_a_drain_is_told_in_order_though_receiver_and_auditor_are_away_for_a_while(
    cluster: CommandedCluster, tmp_path: Path
) -> None:
    port = own_port()
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET + b"\n")
    secret.chmod(0o600)
    for number in range(4):
        cluster.serve(
            "--session-timeout", "1", "--data", str(tmp_path / f"b{number}"),
            "--port", str(own_port()), "--http-port", "0",
        )  # fmt: skip
    sizes = ("--ensemble", "2", "--write-quorum", "2", "--ack-quorum", "2")
    ledgers = [
        cluster.lines("ledger", "create", *sizes, stdin=b"one\ntwo\n")[-1]["ledger_id"]
        for _ in range(3)
    ]
    victim = min(cluster.named(ledgers[0]))
    other = next(one for one in cluster.bookies if one != victim)

    def auditor() -> tuple[Any, int]:
        process = cluster.spawn(
            "autorecovery", "--session-timeout", "1", "--set", "poll_interval_s=0.2",
            "--set", "open_ledger_grace_s=0.5", "--http-port", "0",
            "--webhook", f"http://127.0.0.1:{port}/hook?key=hidden-in-logs",
            "--webhook-secret", str(secret),
        )  # fmt: skip
        started = process.next()
        assert started is not None, "\n".join(process.errors)
        http_port = started["http_port"]
        cluster.wait_until(lambda: metric(http_port, "bookie_autorecovery_is_auditor") == 1)
        return process, http_port

    def is_settled(http_port: int, delivered: int) -> bool:
        names = ("delivered", "waiting", "dropped")
        found = [metric(http_port, f"bookie_webhooks_{name}") for name in names]
        return found == [delivered, 0, 0]

    first, http_port = auditor()
    cluster.wait_until(lambda: metric(http_port, "bookie_autorecovery_workers") == 1)
    with receiving(port) as receiver:
        cluster.lines("bookies", "drain", victim)
        told = [receiver.next(), receiver.next()]
        cluster.wait_until(lambda: is_settled(http_port, 2))
        assert receiver.taken.empty()
    assert [one[1:] for one in told] == [
        (victim, "Active", "Draining"),
        (victim, "Draining", "Drained"),
    ]

    # Nothing listens, then it refuses: told again later, by the same id.
    cluster.end(victim)
    cluster.lines("bookies", "remove", "--yes", victim)
    cluster.wait_until(lambda: metric(http_port, "bookie_webhooks_failed") >= 1)
    with receiving(port, refusals=1) as receiver:
        removed = receiver.next()
        cluster.wait_until(lambda: is_settled(http_port, 3))
        assert receiver.taken.empty()
    assert removed[1:] == (victim, "Drained", "Removed")
    assert receiver.refused == [removed]

    # The auditor dies; a bookie goes without a drain; the next auditor tells that, and no more.
    first.kill()
    cluster.processes.remove(first)
    cluster.end(other)
    left = [str(one) for one in ledgers if other in cluster.named(one)]
    accepted = [part for one in left for part in ("--accept-loss", one)]
    cluster.lines("cookie", "delete", "--yes", *accepted, other)
    with receiving(port) as receiver:
        second, http_port = auditor()
        last = receiver.next()
        cluster.wait_until(lambda: is_settled(http_port, 1))
        assert receiver.taken.empty()
    assert last[1:] == (other, "Active", "Removed")
    assert len({one.event_id for one in (*told, removed, last)}) == 4
    for process in (first, second):
        text = "\n".join(process.errors)
        assert "hidden-in-logs" not in text
        assert SECRET.decode() not in text
