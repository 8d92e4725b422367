"""The management API of a bookie: roles, steps, limits, and what hostile clients get."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from bookie.autorecovery.tasks import Status, TaskStore
from bookie.client.client import LedgerClient
from bookie.config import AutoRecoveryConfig
from bookie.errors import BookieStartError, NoSuchLedgerMetadataError
from bookie.ledger.types import BookieId
from bookie.lifecycle.states import LifecycleState, Step
from bookie.lifecycle.store import LifecycleStore
from bookie.management import cluster as cluster_module
from bookie.management.access import HttpAccess, Role
from bookie.management.cluster import ClusterOperations
from bookie.management.make import make_api
from bookie.management.routing import Endpoint
from bookie.metadata.ledger_paths import Layout, ledger_path
from bookie.metadata.memory import MemoryStore
from bookie.runtime import http
from bookie.runtime.http import JSON, Page, Request
from bookie.server.health import PAGES
from bookie.server.node import BookieNode
from bookie.server.storage.scrubber import Duty
from tests.fixtures.bookie_node import ID, READ_ONLY, TEST_CONFIG, WRITABLE, Cluster, simulate
from tests.fixtures.metadata import SeededRng

PASSWORD = b"the ledger's password"
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


async def make_ledger(cluster: Cluster) -> None:
    """Write three entries to a ledger of one bookie, and close it."""
    client = await LedgerClient.connect(cluster.store, rng=SeededRng(8), clock=cluster.clock)
    writer = await client.create_ledger(1, 1, 1, password=PASSWORD)
    for number in range(3):
        await writer.add(b"entry %d" % number)
    await writer.close()
    await client.close()


async def managed(cluster: Cluster, access: str = ACCESS) -> BookieNode:
    node = await cluster.start(
        replace(TEST_CONFIG, http_port=8080), access=HttpAccess(access, "access")
    )
    node.start_scrubber(node.bookie.scrubber(NothingOwed(), cluster.disk, SeededRng(1)))
    return node


class NothingOwed:
    """Duties of a bookie without ledgers."""

    async def ledger_ids(self) -> AsyncIterator[int]:
        for ledger_id in ():
            yield ledger_id

    async def read(self, ledger_id: int) -> Duty:
        raise NoSuchLedgerMetadataError(f"ledger {ledger_id}")


NO_BOOKIE = HttpAccess(ACCESS, "access")


def every_endpoint(cluster: Cluster, node: BookieNode) -> list[tuple[Endpoint, str]]:
    """Return all endpoints there are, each with a path that asks for something that is there."""
    endpoints = cluster.api(TEST_CONFIG, NO_BOOKIE, node).endpoints
    queries = {"bookie": ID, "ledger_id": "0", "enabled": "true"}
    found: list[tuple[Endpoint, str]] = []
    for one in endpoints:
        needed = [f"{a.name}={queries[a.name]}" for a in one.query if a.is_required]
        path = one.path.replace("{bookie_id}", ID) + ("?" + "&".join(needed) if needed else "")
        found.append((one, path))
    return found


def test_no_action_without_a_role() -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        before = cluster.metadata.tree.copy()
        endpoints = every_endpoint(cluster, node)
        assert len(endpoints) > 45
        for one, path in endpoints:
            body = {} if one.method == "PUT" else None
            for token in (None, "", "wrong", READ_TOKEN[:-1], READ_TOKEN + "x", "é" * 16):
                status, answer = await ask(one.method, path, token, body)
                assert status == 401, (one.path, token)
                assert "TOKEN" not in str(answer)
            if one.role is Role.ADMIN:
                status, answer = await ask(one.method, path, READ_TOKEN, body)
                assert (status, answer["error"]) == (403, "Forbidden"), one.path
                assert "expected the role admin, found read" in answer["message"]
            if one.method != "GET":
                assert one.role is Role.ADMIN, one.path
        path = "/api/v1/bookie/state"
        for header in (f"Basic {READ_TOKEN}", READ_TOKEN, f"Bearer{READ_TOKEN}"):
            status, _ = await ask("GET", path, None, None, f"Authorization: {header}")
            assert status == 401
        two = f"Authorization: Bearer {READ_TOKEN}"
        assert (await ask("GET", path, None, None, two, two))[0] == 401
        assert cluster.metadata.tree.read(WRITABLE) == before.read(WRITABLE)
        assert not cluster.has(READ_ONLY)
        assert not cluster.has("/ledgers/underreplication")

    simulate(test)


@pytest.mark.parametrize("path", ["/api/v1/bookie/sanity", "/api/v1/ledger/read?ledger_id=0"])
def test_a_get_that_writes_or_shows_data_needs_the_role_admin(path: str) -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        assert (await ask("GET", path, READ_TOKEN))[0] == 403

    simulate(test)


def test_probes_and_metrics_are_open_and_the_api_is_not_there_without_roles() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster, "# no line\n")
        for path in ("/heartbeat", "/health", "/ready", "/metrics", "/api/v1/bookie/is_ready"):
            assert (await ask("GET", path))[0] == 200
        assert (await ask("GET", "/api/v1/bookie/state"))[0] == 404
        assert (await ask("PUT", "/api/v1/bookie/state/readonly", None, {}))[0] == 405

    simulate(test)


def test_everything_can_be_read_with_the_role_read() -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        await make_ledger(cluster)
        answers: dict[str, Any] = {}
        for one, path in every_endpoint(cluster, node):
            if one.method == "GET":
                token = READ_TOKEN if one.role is Role.READ else ADMIN_TOKEN
                status, answers[one.path] = await ask("GET", path, token)
                is_refused = one.replacement or one.path.endswith("who_is_auditor")
                assert status == 200 or is_refused, (path, answers[one.path])
                text = json.dumps(answers[one.path])
                for secret in (READ_TOKEN, ADMIN_TOKEN, PASSWORD.decode(), PASSWORD.hex()):
                    assert secret not in text, path
                assert b64encode(PASSWORD).decode() not in text, path
        assert answers["/api/v1/bookie/state"] == {
            "running": True,
            "readOnly": False,
            "shuttingDown": False,
            "availableForHighPriorityWrites": True,
            "lifecycle": "Active",
        }
        assert answers["/api/v1/bookie/list_bookies"] == {ID: None}
        assert answers["/api/v1/cookies"] == [ID]
        assert answers["/api/v1/at_risk"]["going"] == [ID]
        assert answers["/api/v1/at_risk"]["after"]["last_copy"]["ledgers"] == 1
        assert answers["/api/v1/bookie/info"]["totalSpace"] > 0
        assert answers["/api/v1/ledger/list"] == {"0": None}
        assert answers["/api/v1/ledger/metadata"]["0"]["state"] == "CLOSED"
        assert answers["/api/v1/ledger/read"] == {"0": "entry 0", "1": "entry 1", "2": "entry 2"}
        assert answers["/api/v1/bookie/cluster_info"] == {
            "auditorElected": False,
            "auditorId": "",
            "clusterUnderReplicated": False,
            "ledgerReplicationEnabled": True,
            "totalBookiesCount": 1,
            "writableBookiesCount": 1,
            "readonlyBookiesCount": 0,
            "unavailableBookiesCount": 0,
        }
        assert answers["/api/v1/bookie/list_bookie_info"][0]["answer"] == "OK"
        assert answers["/api/v1/bookie/sanity"] == {"passed": True, "readOnly": False}
        assert answers["/api/v1/bookie/gc_details"][0]["majorCompactionCounter"] == 0
        assert answers["/api/v1/bookie/list_disk_file"]["journal"]
        assert answers["/api/v1/autorecovery/status"]["enabled"] is True
        assert answers["/api/v1/autorecovery/losses"] == []

    simulate(test)


def test_the_document_has_every_endpoint_and_no_other() -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        _, document = await ask("GET", "/openapi.json", READ_TOKEN)
        assert document["openapi"] == "3.1.0"
        known = {
            (method.upper(), path, operation.get("x-role"))
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        }
        endpoints = [one for one, _ in every_endpoint(cluster, node)]
        expected = {(one.method, one.path, one.role.name.lower()) for one in endpoints}
        assert known == expected | {("GET", path, None) for path in PAGES}
        assert len(endpoints) == len(expected)

    simulate(test)


def test_what_bookkeeper_has_and_this_has_not_says_what_takes_its_place() -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        refused = [each for each in every_endpoint(cluster, node) if each[0].replacement]
        assert len(refused) == 4
        for one, path in refused:
            status, answer = await ask(one.method, path, ADMIN_TOKEN)
            assert (status, answer["error"]) == (501, "UnsupportedOperationError")
            assert one.replacement in answer["message"]

    simulate(test)


def test_a_process_without_a_bookie_has_the_same_api() -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        operations = ClusterOperations(cluster.store, "/ledgers", SeededRng(7), cluster.clock)
        access = HttpAccess(ACCESS, "access")
        api = make_api(access, operations, AutoRecoveryConfig(), "recoverer")
        of_bookie = cluster.api(TEST_CONFIG, access, node)
        assert [e[:4] for e in api.endpoints] == [e[:4] for e in of_bookie.endpoints]
        for one in api.endpoints:
            if one.method != "GET" or "{" in one.path or any(a.is_required for a in one.query):
                continue
            page = await api.call(Request("GET", one.path))
            is_its_own = one.path.startswith("/api/v1/bookie/") and "list_bookie" not in one.path
            if is_its_own and not one.path.endswith("cluster_info"):
                assert page.status == 501, one.path
                assert b"HTTP port" in page.body or one.replacement
        page = await api.call(Request("GET", "/api/v1/config/server_config"))
        assert json.loads(page.body)["poll_interval_s"] == 5.0
        await api.close()

    simulate(test)


def test_ledgers_over_http() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        await make_ledger(cluster)
        await make_ledger(cluster)
        front = "/api/v1/ledger"
        status, rows = await ask("GET", f"{front}/list?print_metadata=true&page=1", READ_TOKEN)
        assert (status, list(rows)) == (200, ["0", "1"])
        assert rows["1"]["last_entry_id"] == 2
        assert await ask("GET", f"{front}/list?page=2", READ_TOKEN) == (200, {})
        assert (await ask("GET", f"{front}/list?page=0", READ_TOKEN))[0] == 400
        part = f"{front}/read?ledger_id=0&start_entry_id=1&end_entry_id=9&encoding=base64"
        assert await ask("GET", part, ADMIN_TOKEN) == (
            200,
            {str(n): b64encode(b"entry %d" % n).decode() for n in (1, 2)},
        )
        assert (await ask("GET", f"{front}/read?ledger_id=0", READ_TOKEN))[0] == 403
        status, answer = await ask("DELETE", f"{front}/delete/?ledger_id=0", ADMIN_TOKEN)
        assert (status, answer) == (200, {"deleted": 0})
        status, answer = await ask("DELETE", f"{front}/delete?ledger_id=0", ADMIN_TOKEN)
        assert (status, answer["error"], answer["code"]) == (404, "NoSuchLedgerMetadataError", -25)
        assert (await ask("GET", f"{front}/metadata?ledger_id=0", READ_TOKEN))[0] == 404

    simulate(test)


def test_answers_are_complete_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "READ_ENTRIES_MAX", 2)
    monkeypatch.setattr(cluster_module, "PAGE_METADATA", 1)

    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        await make_ledger(cluster)
        await make_ledger(cluster)
        status, answer = await ask("GET", "/api/v1/ledger/read?ledger_id=0", ADMIN_TOKEN)
        assert status == 400
        assert "ask for end_entry_id=1" in answer["message"]
        status, answer = await ask("GET", "/api/v1/ledger/list?print_metadata=true", READ_TOKEN)
        assert status == 400
        assert "page=1, 2" in answer["message"]
        monkeypatch.setattr(cluster_module, "READ_BYTES_MAX", 7)
        status, answer = await ask(
            "GET", "/api/v1/ledger/read?ledger_id=0&end_entry_id=1", ADMIN_TOKEN
        )
        assert status == 400
        assert "from entry 1 on" in answer["message"]

    simulate(test)


def test_collection_over_http() -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        await make_ledger(cluster)
        await ask("DELETE", "/api/v1/ledger/delete?ledger_id=0", ADMIN_TOKEN)
        path = "/api/v1/bookie/gc"
        status, begun = await ask("PUT", path, ADMIN_TOKEN, {"forceMajor": True})
        assert (status, begun["state"]) == (200, "running")
        await cluster.until(lambda: node.collector.compactions["major"].count == 1)
        status, found = await ask("GET", path, READ_TOKEN)
        assert found["is_in_force_gc"] is False
        assert (found["last"]["state"], found["last"]["removed_ledgers"]) == ("done", 1)
        status, details = await ask("GET", f"{path}_details", READ_TOKEN)
        assert details[0]["majorCompactionCounter"] == 1
        assert details[0]["lastMajorCompactionTime"] <= cluster.clock.wall_us() // 1000
        suspend = f"{path}/suspend_compaction"
        for name, body in (("suspend", {}), ("suspend", {"suspendMajor": False}), ("resume", {})):
            assert (await ask("PUT", f"{path}/{name}_compaction", ADMIN_TOKEN, body))[0] == 400
        assert await ask("PUT", suspend, ADMIN_TOKEN, {"suspendMajor": "true"}) == (
            200,
            {"isMajorGcSuspended": True, "isMinorGcSuspended": False},
        )
        resume = {"resumeMajor": True, "resumeMinor": True}
        await ask("PUT", f"{path}/resume_compaction", ADMIN_TOKEN, resume)
        assert (await ask("GET", suspend, READ_TOKEN))[1]["isMajorGcSuspended"] is False

    simulate(test)


@pytest.mark.parametrize(
    ("body", "suspended", "compacted"),
    [
        (None, (), "major"),
        (b" \r\n", (), "major"),
        ({}, (), "major"),
        (None, ("suspendMajor",), "minor"),
        (None, ("suspendMajor", "suspendMinor"), None),
        ({"forceMajor": True, "forceMinor": True}, (), "major"),
        ({"forceMajor": True}, ("suspendMajor",), "major"),
        ({"forceMinor": True}, (), "minor"),
        ({"forceMinor": True}, ("suspendMinor",), "minor"),
        ({"forceMajor": False}, (), "minor"),
        ({"forceMajor": False, "forceMinor": False}, (), None),
    ],
)
def test_a_collection_compacts_as_bookkeepers(
    body: object, suspended: tuple[str, ...], compacted: str | None
) -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        path = "/api/v1/bookie/gc"
        if suspended:
            await ask(
                "PUT", f"{path}/suspend_compaction", ADMIN_TOKEN, dict.fromkeys(suspended, True)
            )
        await ask("PUT", path, ADMIN_TOKEN, body)
        found: dict[str, Any] = {}

        async def is_done() -> bool:
            found.update((await ask("GET", path, READ_TOKEN))[1])
            return not found["is_in_force_gc"]

        while not await is_done():
            pass
        assert (found["last"]["state"], found["last"]["compaction"]) == ("done", compacted)
        counts = {kind: one.count for kind, one in node.collector.compactions.items()}
        assert counts == {"major": compacted == "major", "minor": compacted == "minor"}

    simulate(test)


def test_autorecovery_over_http() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        front = "/api/v1/autorecovery"
        await ask("PUT", f"{front}/status?enabled=false", ADMIN_TOKEN)
        assert cluster.has("/ledgers/underreplication/disable")
        await ask("PUT", f"{front}/status?enabled=true", ADMIN_TOKEN)
        assert not cluster.has("/ledgers/underreplication/disable")
        delay = f"{front}/lost_bookie_recovery_delay"
        assert await ask("PUT", delay, ADMIN_TOKEN, {"delay_seconds": 7}) == (
            200,
            {"delay_seconds": 7},
        )
        assert (await ask("PUT", delay, ADMIN_TOKEN, {"delay_seconds": 1 << 40}))[0] == 400
        assert (await ask("PUT", f"{front}/trigger_audit", ADMIN_TOKEN))[0] == 409
        status, answer = await ask("GET", f"{front}/who_is_auditor", READ_TOKEN)
        assert status == 404
        assert "bookie autorecovery" in answer["message"]
        tasks = TaskStore(cluster.store, "/ledgers")
        for ledger_id in (3, 5, 8):
            await tasks.publish(ledger_id, [BookieId("b:1")], 0)
        status = Status(5, "w", "entry 1 is nowhere", is_loss=True, failure_count=2, time_ms=9)
        await tasks.report(status)
        ids = f"{front}/list_under_replicated_ledger"
        assert await ask("GET", ids, READ_TOKEN) == (200, [3, 5, 8])
        assert await ask("GET", f"{ids}?limit=1&after=3", READ_TOKEN) == (200, [5])
        assert await ask("GET", f"{ids}?excludingmissingreplica=b:1", READ_TOKEN) == (200, [])
        assert (await ask("GET", f"{ids}?missingreplica=c:1", READ_TOKEN))[0] == 404
        _, losses = await ask("GET", f"{front}/losses", READ_TOKEN)
        assert [one["ledger_id"] for one in losses] == [5]
        assert losses[0]["reason"] == "entry 1 is nowhere"
        _, rows = await ask("GET", f"{front}/under_replicated", READ_TOKEN)
        assert [one["is_loss"] for one in rows] == [False, True, False]

    simulate(test)


def test_recovery_and_decommission_go_on_in_the_background() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        await make_ledger(cluster)
        path = "/api/v1/autorecovery/bookie"
        assert (await ask("GET", path, READ_TOKEN))[1]["state"] == "none"
        status, begun = await ask("PUT", path, ADMIN_TOKEN, {"bookie_src": [ID]})
        assert (status, begun["state"]) == (200, "running")
        last: dict[str, Any] = begun
        while last["state"] == "running":
            await asyncio.sleep(1)
            last = (await ask("GET", path, READ_TOKEN))[1]
        assert last["state"] == "failed"  # there is no other bookie to copy to
        assert last["bad_ledgers"][0]["ledger_id"] == 0
        assert last["error"]["error"] == "LedgersLeftError"
        for body in ({"bookie_src": []}, {"bookie_src": [ID], "bookie_dest": [ID]}, {}):
            assert (await ask("PUT", path, ADMIN_TOKEN, body))[0] == 400
        body = {"bookie_src": [ID], "delete_cookie": True}
        status, answer = await ask("PUT", path, ADMIN_TOKEN, body)
        assert status == 409
        assert "found it registered" in answer["message"]
        path = "/api/v1/autorecovery/decommission"
        assert (await ask("PUT", path, ADMIN_TOKEN, {"bookie_src": ID}))[0] == 409
        assert (await ask("PUT", path, ADMIN_TOKEN, {"bookie_src": "x:1"}))[0] == 404

    simulate(test)


def test_a_damaged_ledger_keeps_no_other_from_recovery() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        await make_ledger(cluster)
        path = ledger_path("/ledgers", Layout.HIERARCHICAL, 7)
        await MemoryStore(cluster.metadata).create(path, b"damaged", make_parents=True)
        recovery = "/api/v1/autorecovery/bookie"
        last = (await ask("PUT", recovery, ADMIN_TOKEN, {"bookie_src": [ID]}))[1]
        assert last["about"] == [ID]
        while last["state"] == "running":
            await asyncio.sleep(1)
            last = (await ask("GET", recovery, READ_TOKEN))[1]
        assert last["ledgers_done"] == 1
        assert [one["ledger_id"] for one in last["bad_ledgers"]] == [7, 0]
        assert "metadata of ledger 7" in last["bad_ledgers"][0]["reason"]
        assert await TaskStore(MemoryStore(cluster.metadata), "/ledgers").lock(0, "another")
        begun = (await ask("PUT", recovery, ADMIN_TOKEN, {"bookie_src": [ID]}))[1]
        assert begun["state"] == "running"
        assert (await ask("PUT", recovery, ADMIN_TOKEN, {"bookie_src": [ID]}))[1]["retry"] == "safe"
        assert (await ask("DELETE", recovery, READ_TOKEN))[0] == 403
        assert (await ask("DELETE", recovery, ADMIN_TOKEN))[1]["state"] == "cancelled"

    simulate(test)


def test_changes_are_logged_with_their_arguments_and_refusals_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        caplog.clear()
        state = "/api/v1/bookie/state/readonly"
        await ask("PUT", state, ADMIN_TOKEN, {"readOnly": True})
        await ask("PUT", f"/api/v1/lifecycle/{ID}", ADMIN_TOKEN, {"step": "x" * 2000})
        await ask("PUT", state, ADMIN_TOKEN, {"readOnly": "secret"})
        first, second, third = [one.getMessage() for one in caplog.records
                                if one.name == "bookie.management.api"]  # fmt: skip
        assert f"PUT '{state}' ({{}}, {{'readOnly': True}}) by a token: 200" == first
        assert len(second) < 700
        assert second.endswith("by a token: 400")
        assert third.endswith("with arguments that are refused by a token: 400")
        api = cluster.api(TEST_CONFIG, NO_BOOKIE, node)
        for token, name in ((None, state), ("wrong", state), (READ_TOKEN, state)):
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            assert api.refusal(Request("PUT", name, headers=headers)) is not None
        headers = {"authorization": f"Bearer {READ_TOKEN}"}
        assert api.refusal(Request("GET", "/api/none", headers=headers)) is not None
        (figure,) = api.figures()
        assert (figure.name, figure.value) == ("bookie_http_refused", 3)

    with caplog.at_level("INFO", logger="bookie.management.api"):
        simulate(test)


def test_a_bookie_started_read_only_stays_so() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start(
            replace(TEST_CONFIG, http_port=8080),
            access=HttpAccess(ACCESS, "access"),
            is_read_only=True,
        )
        path = "/api/v1/bookie/state/readonly"
        assert (await ask("PUT", path, ADMIN_TOKEN, {"readOnly": True}))[0] == 200
        status, answer = await ask("PUT", path, ADMIN_TOKEN, {"readOnly": False})
        assert (status, "--read-only" in answer["message"]) == (409, True)
        assert (await ask("GET", path, READ_TOKEN))[1] == {"readOnly": True}

    simulate(test)


def test_what_a_body_and_other_methods_are_told() -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        api = cluster.api(TEST_CONFIG, NO_BOOKIE, node)
        headers = {"authorization": f"Bearer {READ_TOKEN}"}
        page = api.refusal(Request("POST", "/api/v1/bookie/gc", headers=headers))
        assert page is not None
        assert (page.status, page.allow) == (405, "PUT, GET")
        paths = (await ask("GET", "/openapi.json", READ_TOKEN))[1]["paths"]
        assert paths["/api/v1/bookie/state/readonly"]["put"]["requestBody"]["required"] is True
        assert paths["/api/v1/bookie/gc"]["put"]["requestBody"]["required"] is False

    simulate(test)


def test_a_drain_over_http() -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        path = f"/api/v1/lifecycle/{ID}"
        status, answer = await ask("PUT", path, ADMIN_TOKEN, {"step": "drain", "may_fence": False})
        assert (status, answer["lifecycle"], answer["may_fence"]) == (200, "Draining", False)
        assert "open_ledgers" not in answer  # it would read all metadata first
        assert "no AutoRecovery runs" in answer["warning"]
        await cluster.until(lambda: cluster.has(READ_ONLY) and not cluster.has(WRITABLE))
        status, answer = await ask("PUT", path, ADMIN_TOKEN, {"step": "drain"})
        assert status == 409
        assert "Draining: drain is not possible" in answer["message"]
        store = MemoryStore(cluster.metadata)
        await LifecycleStore(store, "/ledgers").move(BookieId(ID), Step.FAIL, lambda one: one)
        status, answer = await ask(
            "PUT", path, ADMIN_TOKEN, {"step": "mark-drained", "accept_loss": [5]}
        )
        assert status == 409
        assert "ledger 5: expected one that names bookie" in answer["message"]
        status, answer = await ask("PUT", path, ADMIN_TOKEN, {"step": "mark-drained"})
        assert (status, answer["lifecycle"], answer["accepted_loss"]) == (200, "Drained", [])
        status, answer = await ask("DELETE", path, ADMIN_TOKEN)
        assert status == 409
        assert "registered" in answer["message"]
        assert (await ask("PUT", path, ADMIN_TOKEN, {"step": "cancel"}))[0] == 200
        await cluster.until(lambda: node.serving.lifecycle_state is LifecycleState.ACTIVE)
        status, answer = await ask("GET", "/api/v1/lifecycle/unknown:1", READ_TOKEN)
        assert status == 404
        await store.close()

    simulate(test)


def test_a_drain_says_all_that_is_against_it() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        store = MemoryStore(cluster.metadata)
        for parent in ("cookies", "available"):
            await store.create(f"/ledgers/{parent}/apache:1", b"")
        path = "/api/v1/lifecycle/apache:1"
        status, answer = await ask("PUT", path, ADMIN_TOKEN, {"step": "drain"})
        assert status == 200
        assert "no AutoRecovery runs" in answer["warning"]
        assert "it is still writable" in answer["warning"]
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
        b"", b"{", b"[]", b"5", b"\xff", b"[" * 100_000, b'{"step":"drain","x":1}',
        b'{"step":"cancel","step":"drain"}', b'{"step":7}',
        b'{"step":"fly"}', b"{}", b'{"step":"drain","may_fence":"no"}',
        b'{"step":"mark-drained","accept_loss":[true]}',
        b'{"step":"mark-drained","accept_loss":[-1]}',
        b'{"step":"mark-drained","accept_loss":[' + b"9" * 30 + b"]}",
        b'{"step":"mark-drained","accept_loss":5}',
    ],
)  # fmt: skip
def test_a_body_that_says_something_else_changes_nothing(body: bytes) -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        status, answer = await ask("PUT", f"/api/v1/lifecycle/{ID}", ADMIN_TOKEN, body)
        assert status == 400
        assert "expected" in answer["message"]
        assert node.serving.lifecycle_state is LifecycleState.ACTIVE

    simulate(test)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/lifecycle/", 200),
        (f"/api/v1/lifecycle/{ID}/", 200),
        (f"/api/v1/lifecycle/{ID}//", 404),
        ("/openapi.json/", 200),
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
        ("/api/v1/bookie/list_bookies?type=rw&type=ro", 400),
        ("/api/v1/bookie/list_bookies?kind=rw", 400),
        ("/api/v1/ledger/metadata", 400),
        ("/api/v1/ledger/metadata?ledger_id=-1", 400),
        ("/api/v1/ledger/metadata?ledger_id=٣", 400),
        ("/api/v1/ledger/metadata?ledger_id=1e3", 400),
        ("/api/v1/ledger/metadata?ledger_id=9999999999999999999", 400),
        ("/api/v1/ledger/metadata?ledger_id=9223372036854775807", 404),
        ("/api/v1/ledger/list?page=" + "9" * 18, 200),
        ("/api/v1/ledger/read?ledger_id=999&encoding=ebcdic", 400),
        ("/api/v1/autorecovery/under_replicated?limit=1001", 400),
        ("/api/v1/autorecovery/under_replicated?missingreplica=..", 400),
        ("/api/v1/bookie/state//", 404),
        ("//api/v1/bookie/state", 404),
        ("/API/v1/bookie/state", 404),
    ],
)
def test_paths_and_arguments(path: str, status: int) -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        assert (await ask("GET", path, ADMIN_TOKEN))[0] == status

    simulate(test)


BODY = b'{"readOnly":true}'


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
        (_request("Transfer-Encoding: chunked", "Content-Length: 17", body=BODY), 400),
        (_request("Transfer-Encoding: identity", "Content-Length: 17", body=BODY), 400),
        (_request("Content-Length: 17", "Content-Length: 17", body=BODY), 400),
        (_request("Content-Length: 17,17", body=BODY), 400),
        (_request("Content-Length: 1_7", body=BODY), 400),
        (_request("Content-Length: 17\x0b", body=BODY), 400),
        (_request("X: a\nAuthorization: x", "Content-Length: 17", body=BODY), 401),
        (_request(f"Authorization: Bearer {ADMIN_TOKEN}", "Content-Length: 17", body=BODY), 401),
        (_request().replace(b" HTTP/1.1", b""), 400),
        (_request().replace(b"HTTP/1.1", b"HTTP/2.0"), 400),
        (_request().replace(b" HTTP/1.1", b" x HTTP/1.1"), 400),
        (_request().replace(b"PUT /", b"PUT\t/"), 400),
        (_request().replace(b"PUT /", b"PUT http://x/"), 405),
        (_request().replace(b"PUT /", b"PUT //"), 405),
        (_request().replace(b"PUT ", b"put "), 405),
        (_request().replace(b"PUT ", b"POST "), 405),
        (_request().replace(b"PUT /api", b"PUT /x/../api"), 405),
        (_request().replace(b"PUT /api", b"PUT /./api"), 405),
        (_request().replace(b"/readonly", b"/readonly%00"), 404),
        (_request().replace(b"/readonly", b"/readonly%2f..%2freadonly"), 404),
        (_request().replace(b"/readonly", b"/readonly;x=1"), 404),
        (_request().replace(b"/readonly", b"/%72eadonly%252f"), 404),
    ],
)
def test_heads_that_two_readers_could_read_differently_are_refused(
    data: bytes, status: int
) -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        answer = await raw(data)
        assert int(answer.split()[1]) == status
        assert not node.serving.is_read_only

    simulate(test)


@pytest.mark.parametrize(
    "path",
    [
        "/%61pi/v1/bookie/state/readonly",
        "/api/v1/bookie%2fstate/readonly",
        "/api/v1/bookie/state/readonly/",
        "/api/v1/bookie/state/readonly?readOnly=true",
        "/%6fpenapi.json",
        "/api/v1/bookie/is_ready/",
        "/api/v1/bookie/is_ready%00",
    ],
)
def test_no_spelling_of_a_path_is_a_way_around_roles(path: str) -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        for method in ("GET", "PUT", "DELETE"):
            assert (await ask(method, path, None, BODY))[0] == 401
            assert (await ask(method, path, READ_TOKEN, BODY))[0] in (200, 400, 403, 404, 405)
        assert not node.serving.is_read_only

    simulate(test)


def test_what_follows_a_request_is_not_read_as_another() -> None:
    async def test(cluster: Cluster) -> None:
        node = await managed(cluster)
        second = _request("Content-Length: 17", body=BODY)
        for first in (
            b"GET /heartbeat HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
            b"GET /heartbeat HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"GET /api/v1/bookie/state HTTP/1.1\r\nAuthorization: Bearer "
            + READ_TOKEN.encode()
            + b"\r\n\r\n",
        ):
            reader, writer = await connect()
            writer.write(first + second)
            await asyncio.sleep(20)
            assert reader.received.count(b"HTTP/1.0 200 ") == 1
            assert reader.received.count(b"HTTP/1.0 ") == 1
            assert not node.serving.is_read_only

    simulate(test)


def test_answers_do_not_repeat_what_was_asked_in_their_heads() -> None:
    async def test(cluster: Cluster) -> None:
        await managed(cluster)
        for path in ("/x%0d%0aSet-Cookie:%20a", "/api/v1/lifecycle/x%0d%0aSet-Cookie:%20a"):
            head = f"GET {path} HTTP/1.1\r\nAuthorization: Bearer {READ_TOKEN}\r\n\r\n".encode()
            answer, _, body = (await raw(head)).partition(b"\r\n\r\n")
            assert b"Set-Cookie" not in answer
            assert b"\r\n" not in body

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
        self.cancelled = 0

    def owns(self, path: str) -> bool:
        return path == "/api"

    def refusal(self, request: Request) -> Page | None:
        return None

    async def call(self, request: Request) -> Page:
        self.began += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Page(200, JSON, b"{}")

    async def close(self) -> None:
        pass


def test_calls_are_bounded_in_number_and_time_and_end_with_the_server() -> None:
    async def test(cluster: Cluster) -> None:
        api = HeldApi()
        server = http.HttpServer(lambda path: None, "none", api)
        await server.start("world", 8080)
        loop = asyncio.get_running_loop()
        asked = [loop.create_task(ask("GET", "/api")) for _ in range(http.API_GETS_MAX)]
        await asyncio.sleep(1)
        assert (await ask("GET", "/api"))[0] == 503  # the last place is for changes
        asked.append(loop.create_task(ask("PUT", "/api")))
        await asyncio.sleep(1)
        assert api.began == http.API_CALLS_MAX
        assert (await ask("PUT", "/api"))[0] == 503
        assert {status for status, _ in await asyncio.gather(*asked)} == {504}
        last = loop.create_task(raw(b"GET /api HTTP/1.1\r\n\r\n"))
        await asyncio.sleep(1)
        await server.close()
        assert await last == b""

    simulate(test)


def test_a_client_that_goes_away_ends_what_it_looks_at_and_no_change() -> None:
    async def test(cluster: Cluster) -> None:
        api = HeldApi()
        server = http.HttpServer(lambda path: None, "none", api)
        await server.start("world", 8080)
        for number, method in enumerate((b"GET", b"PUT"), 1):
            _, transport = await connect()
            transport.write(method + b" /api HTTP/1.1\r\n\r\n")
            await asyncio.sleep(1)
            assert api.began == number
            transport.abort()
            await asyncio.sleep(1)
            assert api.cancelled == 1
        await server.close()

    simulate(test)


def test_connections_that_are_answered_give_no_place_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 1)

    async def test(cluster: Cluster) -> None:
        api = HeldApi()
        server = http.HttpServer(lambda path: None, "none", api)
        await server.start("world", 8080)
        asked = asyncio.get_running_loop().create_task(ask("PUT", "/api"))
        await asyncio.sleep(1)
        assert await raw() == b""
        api.gate.set()
        assert (await asked)[0] == 200
        await server.close()

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
    for lines in (
        "admin certificate a\nread certificate a",
        "read certificate a\nadmin certificate a",
    ):
        assert HttpAccess(lines).role_of(None, "a") is Role.ADMIN


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
