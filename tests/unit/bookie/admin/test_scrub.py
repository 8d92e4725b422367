"""`bookie scrub`: the check of a stopped bookie's files, and what it asks of a running one."""

import json
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bookie.admin.app import app
from bookie.hosting import INDEX_FILE
from bookie.runtime.os_disk import OsDisk
from bookie.server.bookie import Bookie
from bookie.server.storage.directories import LedgerDirectory
from bookie.server.storage.entry_log import split_location
from bookie.server.storage.lmdb_index import LmdbIndex
from tests.fixtures.storages import CONFIG, FixedRng, InlineExecutor, add, packet_of
from tests.sim.clock import SimulatedClock
from tests.sim.loop import SimulatedLoop


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": None}).invoke(app, ["scrub", *map(str, arguments)])


def records(found: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in found.stdout.splitlines()]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped bookie: 30 entries of ledger 7 below DATA, logs in DATA/disk."""
    data, disk = tmp_path / "data", tmp_path / "disk"
    data.mkdir()
    disk.mkdir()
    index = LmdbIndex(str(data / INDEX_FILE))

    async def fill() -> None:
        bookie = await Bookie.open(
            OsDisk(data),
            index,
            SimulatedClock(),
            FixedRng(),
            CONFIG,
            journal_executor=InlineExecutor(),
            storage_executor=InlineExecutor(),
            ledgers=[LedgerDirectory(OsDisk(disk), str(disk))],
        )
        for entry_id in range(30):
            await add(bookie, packet_of(7, entry_id, b"payload"))
        await bookie.close()

    loop = SimulatedLoop(1)
    try:
        loop.run_until_complete(fill(), time_limit_s=100)
    finally:
        loop.close()
        index.close()
    return data


def flip(data: Path, entry_id: int) -> None:
    index = LmdbIndex(str(data / INDEX_FILE))
    location = index.get(7, entry_id)
    index.close()
    assert location is not None
    number, offset = split_location(location)
    path = data.parent / "disk" / "entries" / f"{number:08d}.log"
    content = bytearray(path.read_bytes())
    content[offset + 33] ^= 1
    path.write_bytes(content)


def test_a_new_index_beside_logs_is_no_sound_bookie(data: Path) -> None:
    (data / INDEX_FILE).write_bytes(b"")
    found = run("check", data, "--ledgers", data.parent / "disk")
    assert found.exit_code == 1
    assert "expected the index of a bookie that has served, found a new one" in found.output


def test_a_sound_bookie(data: Path) -> None:
    found = run("check", data, "--ledgers", data.parent / "disk", "--json")
    assert found.exit_code == 0, found.output
    (summary,) = records(found)
    assert summary["ledgers"] == 1
    assert summary["entries"] == 30
    assert summary["bytes"] >= 30 * (24 + 39)
    assert summary["damaged"] == 0


def test_damage_is_named_and_changes_the_exit_code(data: Path) -> None:
    flip(data, 3)
    flip(data, 29)
    found = run("check", data, "--ledgers", f"{data.parent / 'disk'}=2", "--json")
    assert found.exit_code == 1
    *damage, summary = records(found)
    assert [(one["ledger_id"], one["entry_id"]) for one in damage] == [(7, 3), (7, 29)]
    assert "is damaged" in damage[0]["problem"]
    assert (summary["entries"], summary["damaged"]) == (30, 2)
    text = run("check", data, "--ledgers", data.parent / "disk")
    assert "ledger 7 entry 3: " in text.stdout
    assert text.stdout.splitlines()[-1].endswith("2 entries are damaged")


def test_a_running_bookie_is_not_checked_from_outside(data: Path) -> None:
    lock = OsDisk(data).lock("LOCK", "bookie me")
    try:
        found = run("check", data, "--ledgers", data.parent / "disk")
    finally:
        lock.close()
    assert found.exit_code == 1
    assert "bookie me" in found.stderr
    assert "bookie scrub start" in found.stderr


def test_directories_that_are_no_bookies(data: Path, tmp_path: Path) -> None:
    found = run("check", tmp_path)
    assert found.exit_code == 1
    assert "expected index.lmdb, found none" in found.stderr
    assert list(tmp_path.glob("*.lmdb")) == []
    found = run("check", data)
    assert found.exit_code == 1
    assert "give all --ledgers" in found.stderr


# --- over HTTP ------------------------------------------------------------------------------------

STATUS = {
    "is_checking": False,
    "passes": 1,
    "entries": 30,
    "damaged_logs": [],
    "bad_ledger_count": 0,
    "bad_ledgers": [],
}
BAD = {
    "ledger_id": 7,
    "lost_count": 1,
    "lost": [3],
    "unreadable_count": 0,
    "unreadable": [],
    "unmended_count": 0,
    "unmended": [],
    "reason": "all deny it",
}


class Answering:
    """An HTTP server that answers every request in the same way, and keeps them."""

    def __init__(self) -> None:
        self.status = 200
        self.body = json.dumps(STATUS).encode()
        self.location = ""
        self.requests: list[tuple[str, str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                asked = (self.command, self.path, self.headers.get("Authorization"))
                outer.requests.append(asked)
                self.send_response(outer.status)
                if outer.location:
                    self.send_header("Location", outer.location)
                self.end_headers()
                self.wfile.write(outer.body)

            do_GET = do_PUT = answer  # noqa: N815 - the names that the class calls

            def log_message(self, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def bookie() -> Iterator[Answering]:
    answering = Answering()
    yield answering
    answering.close()


def test_status_and_start(bookie: Answering) -> None:
    found = run("status", bookie.url, "--token", "secret", "--json")
    assert found.exit_code == 0, found.output
    assert records(found) == [STATUS]
    bookie.body = json.dumps(STATUS | {"is_begun": True}).encode()
    begun = run("start", f"{bookie.url}/")
    assert begun.exit_code == 0, begun.output
    assert "it checks all entries" in begun.stdout
    path = "/api/v1/bookie/scrub"
    assert bookie.requests == [("GET", path, "Bearer secret"), ("PUT", path, None)]


def test_a_check_that_is_under_way_is_told(bookie: Answering) -> None:
    answer = STATUS | {"is_begun": False, "ledgers_done": 3, "ledgers_total": 12}
    bookie.body = json.dumps(answer).encode()
    begun = run("start", bookie.url)
    assert begun.exit_code == 0, begun.output
    assert "goes on, 3 of 12 ledgers are done" in begun.stdout
    assert records(run("start", bookie.url, "--json")) == [{"is_begun": False}]


def test_bad_ledgers_change_the_exit_code(bookie: Answering) -> None:
    status = STATUS | {"bad_ledger_count": 1, "bad_ledgers": [BAD]}
    bookie.body = json.dumps(status).encode()
    found = run("status", bookie.url)
    assert found.exit_code == 1
    assert "all deny it" in found.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: vars(b).update(status=403, body=b'{"message": "the role admin"}'), "role admin"),
        (lambda b: vars(b).update(status=404, body=b"no"), "--http-access"),
        (lambda b: vars(b).update(body=b"no JSON"), "expected the HTTP port"),
        (lambda b: vars(b).update(body=b"{}"), "expected the HTTP port"),
        (lambda b: vars(b).update(body=b"[]"), "expected the HTTP port"),
        (lambda b: vars(b).update(status=404, body=b"[1]"), "--http-access"),
    ],
)
def test_what_the_bookie_refuses(
    bookie: Answering, change: Callable[[Answering], None], said: str
) -> None:
    change(bookie)
    found = run("start", bookie.url)
    assert found.exit_code == 1
    assert said in found.stderr


@pytest.mark.parametrize("said", [b"\x15\x03\x01\x00\x02\x02\x46", b""])
def test_what_speaks_no_http_is_told_in_one_sentence(said: bytes) -> None:
    """TLS says the first to a client in clear."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(said)

        answering = Thread(target=answer)
        answering.start()
        found = run("status", f"http://127.0.0.1:{server.getsockname()[1]}", "--token", "secret")
        answering.join()
    assert found.exit_code == 1
    assert isinstance(found.exception, SystemExit)
    assert "expected the HTTP port of a running bookie" in found.stderr
    assert "https://" in found.stderr


def test_a_token_goes_to_no_other(bookie: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Answering()
    try:
        bookie.status, bookie.location = 302, other.url
        monkeypatch.setenv("http_proxy", other.url)
        found = run("status", bookie.url, "--token", "secret")
        assert found.exit_code == 1
        assert "302" in found.stderr
        assert (len(bookie.requests), other.requests) == (1, [])
    finally:
        other.close()


@pytest.mark.parametrize("token", ["a secret", "a-secret\n", "a-secrét", ""])
def test_a_token_that_is_none_is_not_shown(bookie: Answering, token: str) -> None:
    found = run("status", bookie.url, "--token", token)
    assert found.exit_code == 2
    assert "expected ASCII characters without blanks" in found.stderr
    assert "secr" not in found.output
    assert bookie.requests == []


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:80", "http://127.0.0.1:abc", "http://[::1", "http://", "http://a b", "ftp://a"],
)
def test_a_url_that_is_none(url: str) -> None:
    found = run("status", url)
    assert found.exit_code == 2
    assert "expected http://host:port" in found.stderr


def test_no_bookie_at_the_url() -> None:
    found = run("status", "http://127.0.0.1:1")
    assert found.exit_code == 1
    assert "--http-port" in found.stderr
