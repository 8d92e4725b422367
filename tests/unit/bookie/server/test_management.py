"""The management API of a bookie: roles, steps, limits, and what hostile clients get."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from bookie.errors import BookieStartError
from bookie.ledger.types import BookieId
from bookie.lifecycle.states import LifecycleState, Step
from bookie.lifecycle.store import LifecycleStore
from bookie.metadata.memory import MemoryStore
from bookie.runtime import http
from bookie.runtime.http import JSON, Page, Request
from bookie.server.access import HttpAccess, Role
from bookie.server.node import BookieNode
from tests.fixtures.bookie_node import ID, READ_ONLY, TEST_CONFIG, WRITABLE, Cluster, simulate

READ_TOKEN, ADMIN_TOKEN = "read-0123456789abcdef", "admin-0123456789abcdef"
ACCESS = f"# who may\n\nread token {READ_TOKEN}\nadmin token {ADMIN_TOKEN}\nadmin certificate ops\n"


async def ask(
    method: str, path: str, token: str | None = None, body: object = None, *headers: str
) -> tuple[int, Any]:
    """Ask over the simulated network; return status and what JSON the body is."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(data)}", *headers]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    answer = await raw("\r\n".join([*lines, "", ""]).encode() + data)
    head, _, rest = answer.partition(b"\r\n\r\n")
    is_json = f"Content-Type: {JSON}".encode() in head
    return int(head.split()[1]), json.loads(rest) if is_json else rest


async def raw(*pieces: bytes, pause_s: float = 0.0) -> bytes:
    reader, writer = await connect()
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(pause_s)
    await reader.ended
    return bytes(reader.received)


class Reader(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)


async def connect() -> tuple[Reader, Any]:
    transport, reader = await asyncio.get_running_loop().create_connection(Reader, "world", 8080)
    return reader, transport


async def managed(cluster: Cluster, access: str = ACCESS) -> BookieNode:
    return await cluster.start(
        replace(TEST_CONFIG, http_port=8080), access=HttpAccess(access, "access")
    )


PATHS = [
    ("GET", "/api/v1/openapi.json"),
    ("GET", "/api/v1/config/server_config"),
    ("GET", "/api/v1/bookie/state"),
    ("GET", "/api/v1/bookie/state/readonly"),
    ("PUT", "/api/v1/bookie/state/readonly"),
    ("GET", "/api/v1/bookie/info"),
    ("GET", "/api/v1/bookie/list_bookies"),
    ("GET", "/api/v1/cookies"),
    ("GET", "/api/v1/lifecycle"),
    ("GET", f"/api/v1/lifecycle/{ID}"),
    ("PUT", f"/api/v1/lifecycle/{ID}"),
    ("DELETE", f"/api/v1/lifecycle/{ID}"),
    ("GET", f"/api/v1/at_risk?bookie={ID}"),
]


def test_no_action_without_a_role() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        before = cluster.metadata.tree.copy()
        for method, path in PATHS:
            body = {"step": "drain"} if method == "PUT" else None
            for token in (None, "", "wrong", READ_TOKEN[:-1], READ_TOKEN + "x", "é" * 16):
                status, answer = await ask(method, path, token, body)
                assert status == 401, (method, path, token)
                assert "TOKEN" not in str(answer)
            if method != "GET":
                status, answer = await ask(method, path, READ_TOKEN, body)
                assert (status, answer) == (403, {"error": "the role admin is needed"})
        for header in (f"Basic {READ_TOKEN}", READ_TOKEN, f"Bearer{READ_TOKEN}"):
            status, _ = await ask("GET", PATHS[2][1], None, None, f"Authorization: {header}")
            assert status == 401
        two = f"Authorization: Bearer {READ_TOKEN}"
        assert (await ask("GET", PATHS[2][1], None, None, two, two))[0] == 401
        assert cluster.metadata.tree.read(WRITABLE) == before.read(WRITABLE)
        assert not cluster.has(READ_ONLY)

    simulate(test)


def test_probes_and_metrics_are_open_and_the_api_is_not_there_without_roles() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster, "# nobody\n")
        for path in ("/heartbeat", "/health", "/ready", "/metrics", "/api/v1/bookie/is_ready"):
            assert (await ask("GET", path))[0] == 200
        assert (await ask("GET", "/api/v1/bookie/state"))[0] == 404
        assert (await ask("PUT", "/api/v1/bookie/state/readonly", None, {}))[0] == 405

    simulate(test)


def test_everything_can_be_read_with_the_role_read() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        answers: dict[str, Any] = {}
        for method, path in PATHS:
            if method == "GET":
                status, answers[path] = await ask("GET", path, READ_TOKEN)
                assert status == 200, path
                text = json.dumps(answers[path])
                assert READ_TOKEN not in text
                assert ADMIN_TOKEN not in text
        assert answers["/api/v1/bookie/state"] == {
            "running": True,
            "readOnly": False,
            "shuttingDown": False,
            "availableForHighPriorityWrites": True,
            "lifecycle": "Active",
        }
        assert answers["/api/v1/bookie/list_bookies"] == {ID: None}
        assert answers["/api/v1/cookies"] == [ID]
        assert answers[f"/api/v1/at_risk?bookie={ID}"]["is_safe"] is True
        assert answers["/api/v1/bookie/info"]["totalSpace"] > 0
        document = answers["/api/v1/openapi.json"]
        known = {
            (method.upper(), path.replace("{bookie_id}", ID))
            for path, methods in document["paths"].items()
            for method in methods
        }
        assert known == {(method, path.partition("?")[0]) for method, path in PATHS}

    simulate(test)


def test_a_drain_over_http() -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        path = f"/api/v1/lifecycle/{ID}"
        status, answer = await ask("PUT", path, ADMIN_TOKEN, {"step": "drain", "may_fence": False})
        assert (status, answer["lifecycle"], answer["may_fence"]) == (200, "Draining", False)
        await cluster.until(lambda: cluster.has(READ_ONLY) and not cluster.has(WRITABLE))
        status, answer = await ask("PUT", path, ADMIN_TOKEN, {"step": "drain"})
        assert status == 409
        assert "Draining: drain is not possible" in answer["error"]
        store = MemoryStore(cluster.metadata)
        await LifecycleStore(store, "/ledgers").move(BookieId(ID), Step.FAIL, lambda one: one)
        status, answer = await ask(
            "PUT", path, ADMIN_TOKEN, {"step": "mark-drained", "accept_loss": [5]}
        )
        assert status == 409
        assert "ledger 5: expected one that names bookie" in answer["error"]
        status, answer = await ask("PUT", path, ADMIN_TOKEN, {"step": "mark-drained"})
        assert (status, answer["lifecycle"], answer["accepted_loss"]) == (200, "Drained", [])
        status, answer = await ask("DELETE", path, ADMIN_TOKEN)
        assert status == 409
        assert "registered" in answer["error"]
        assert (await ask("PUT", path, ADMIN_TOKEN, {"step": "cancel"}))[0] == 200
        await cluster.until(lambda: node.lifecycle_state is LifecycleState.ACTIVE)
        status, answer = await ask("GET", "/api/v1/lifecycle/unknown:1", READ_TOKEN)
        assert status == 404
        await store.close()

    simulate(test)


def test_read_only_over_http_as_apaches_tools_set_it() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        path = "/api/v1/bookie/state/readonly"
        assert await ask("PUT", path, ADMIN_TOKEN, {"readOnly": True}) == (200, {"readOnly": True})
        await cluster.until(lambda: cluster.has(READ_ONLY))
        assert await ask("GET", path, READ_TOKEN) == (200, {"readOnly": True})
        listed = await ask("GET", "/api/v1/bookie/list_bookies?type=ro", READ_TOKEN)
        assert listed == (200, {ID: None})
        assert await ask("PUT", path, ADMIN_TOKEN, {"readOnly": False}) == (
            200,
            {"readOnly": False},
        )

    simulate(test)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"5", b"\xff", b"[" * 100_000, b'{"step":"drain","x":1}', b'{"step":7}',
        b'{"step":"fly"}', b"{}", b'{"step":"drain","may_fence":"no"}',
        b'{"step":"mark-drained","accept_loss":[true]}',
        b'{"step":"mark-drained","accept_loss":[-1]}', b'{"step":"mark-drained","accept_loss":5}',
    ],
)  # fmt: skip
def test_a_body_that_says_something_else_changes_nothing(body: bytes) -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        status, answer = await ask("PUT", f"/api/v1/lifecycle/{ID}", ADMIN_TOKEN, body)
        assert status == 400
        assert "expected" in answer["error"]
        assert node.lifecycle_state is LifecycleState.ACTIVE

    simulate(test)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/lifecycle/", 404),
        ("/api/v1/lifecycle/a/b", 404),
        ("/api/v1/lifecycle/..%2f..%2fLAYOUT", 404),
        ("/api/v1/lifecycle/%2e%2e", 400),
        ("/api/v1/lifecycle/%00", 400),
        ("/api/v1/lifecycle/.", 400),
        ("/api/v1/lifecycle/%2E%2E", 400),
        ("/api/v1/lifecycle/unknown", 404),
        ("/api/v1/lifecycle/readonly", 400),
        ("/api/v1/../../etc/passwd", 404),
        ("/api/v1/at_risk", 400),
        ("/api/v1/at_risk?" + "bookie=b&" * 101, 400),
        ("/api/v1/bookie/list_bookies?type=x", 400),
        ("/api/v1/bookie/state/", 404),
        ("//api/v1/bookie/state", 404),
        ("/API/v1/bookie/state", 404),
    ],
)
def test_paths_and_arguments(path: str, status: int) -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        assert (await ask("GET", path, ADMIN_TOKEN))[0] == status

    simulate(test)


def _request(*headers: str, body: bytes = b"") -> bytes:
    front = ["PUT /api/v1/bookie/state/readonly HTTP/1.1", f"Authorization: Bearer {ADMIN_TOKEN}"]
    return "\r\n".join([*front, *headers, "", ""]).encode("latin-1") + body


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (_request("Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400),
        (_request("Content-Length: 5", "Content-Length: 6", body=b"12345"), 400),
        (_request("Content-Length: -1"), 400),
        (_request("Content-Length: 0x5", body=b"12345"), 400),
        (_request("Content-Length: +5", body=b"12345"), 400),
        (_request("Content-Length: 999999999"), 413),
        (_request("Content-Length : 17", body=b'{"readOnly":true}'), 400),
        (_request("X: a", " folded: b"), 400),
        (_request("no header"), 400),
        (_request("X: a\rContent-Length: 17"), 400),
        (_request("X: " + "y" * 9000), 400),
    ],
)
def test_heads_that_two_readers_could_read_differently_are_refused(
    data: bytes, status: int
) -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        answer = await raw(data)
        assert int(answer.split()[1]) == status
        assert not node.is_read_only

    simulate(test)


def test_a_body_is_not_waited_for_without_a_role() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        answer = await raw(b"PUT /api/v1/x HTTP/1.1\r\nContent-Length: 100000\r\n\r\n")
        assert int(answer.split()[1]) == 401
        assert b"WWW-Authenticate: Bearer" in answer

    simulate(test)


def test_slow_clients_are_cut_off() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        loop = asyncio.get_running_loop()
        for data in (_request("Content-Length: 17")[:-4], _request("Content-Length: 17")):
            begin_s = loop.time()
            assert await raw(data, *[b"x" for _ in range(8)], pause_s=1.0) == b""
            assert loop.time() - begin_s < 10

    simulate(test)


class HeldApi:
    """An Api of which the calls end when the test says so."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.began = 0

    def owns(self, path: str) -> bool:
        return path == "/api"

    def refusal(self, request: Request) -> Page | None:
        return None

    async def call(self, request: Request) -> Page:
        self.began += 1
        await self.gate.wait()
        return Page(200, JSON, b"{}")


def test_calls_are_bounded_in_number_and_time_and_end_with_the_server() -> None:
    async def test(cluster: Cluster) -> None:
        api = HeldApi()
        server = http.HttpServer(lambda path: None, "none", api)
        await server.start("world", 8080)
        loop = asyncio.get_running_loop()
        asked = [loop.create_task(ask("GET", "/api")) for _ in range(http.API_CALLS_MAX)]
        await asyncio.sleep(1)
        assert api.began == http.API_CALLS_MAX
        assert (await ask("GET", "/api"))[0] == 503
        assert {status for status, _ in await asyncio.gather(*asked)} == {504}
        last = loop.create_task(raw(b"GET /api HTTP/1.1\r\n\r\n"))
        await asyncio.sleep(1)
        await server.close()
        assert await last == b""

    simulate(test)


def test_roles_by_token_and_certificate() -> None:
    access = HttpAccess(ACCESS, "f")
    assert access.role_of(f"Bearer {READ_TOKEN}", None) is Role.READ
    assert access.role_of(f"bearer {ADMIN_TOKEN}", None) is Role.ADMIN
    assert access.role_of(None, "ops") is Role.ADMIN
    assert access.role_of(None, "other") is Role.NONE
    assert access.role_of(f"Bearer {READ_TOKEN}", "ops") is Role.ADMIN
    assert access.role_of("Bearer wrong", "ops") is Role.NONE
    assert access.role_of(None, None) is Role.NONE
    assert HttpAccess().role_of("Bearer ", "") is Role.NONE


@pytest.mark.parametrize(
    "line",
    ["root token 0123456789abcdef", "read token short", "read", "read token",
     "read password 0123456789abcdef", "admin token 0123456789 abcdef", "admin token " + "é" * 16],
)  # fmt: skip
def test_an_access_file_that_is_wrong_is_refused_without_its_secret(line: str) -> None:
    with pytest.raises(BookieStartError) as caught:
        HttpAccess(f"# first\n{line}\n", "/etc/access")
    assert "/etc/access, line 2" in str(caught.value)
    secret = line.split()[-1]
    assert len(secret) < 6 or secret not in str(caught.value)
