"""The bookie command as a process: a local cluster, ledgers, cookies, errors, offline files."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.certificates import make_certificate
from tests.fixtures.line_process import LineProcess
from tests.fixtures.ports import own_port
from tests.fixtures.zookeeper import skip_without_zookeeper

pytestmark = pytest.mark.integration

COMMAND = (sys.executable, "-W", "error", "-m", "bookie.admin.commands")


def run(
    *arguments: str, zookeeper: str = "127.0.0.1:1", stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    environment = {**os.environ, "COLUMNS": "100", "BOOKIE_ZOOKEEPER": zookeeper}
    return subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, env=environment, check=False
    )


def lines_of(found: "subprocess.CompletedProcess[bytes]") -> list[Any]:
    assert found.returncode == 0, found.stderr.decode()
    return [json.loads(line) for line in found.stdout.splitlines()]


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """`bookie local 3`, as it tells of itself; ended by SIGTERM, and nothing left."""
    skip_without_zookeeper()
    data = tmp_path_factory.mktemp("local")
    # Ports of its own, as of an earlier run: a test beside this one may want the usual ones.
    plan = {"zookeeper_port": own_port(), "bookie_ports": [own_port() for _ in range(3)]}
    (data / "local.json").write_text(json.dumps(plan))
    process = LineProcess([*COMMAND, "local", "3", "--data", str(data), "--json"])
    try:
        started = process.next()
        assert started is not None, "\n".join(process.errors)
        yield started
        os.kill(process.pid, signal.SIGTERM)
        process.finish()
    finally:
        process.close()
    pids = [started["zookeeper_pid"], *(bookie["pid"] for bookie in started["bookies"])]
    assert not [pid for pid in pids if is_alive(pid)]


def test_simpletest(local: dict[str, Any]) -> None:
    zookeeper = local["zookeeper"]
    (found,) = lines_of(run("simpletest", "--json", "--entries", "300", zookeeper=zookeeper))
    assert (found["entries"], found["is_kept"]) == (300, False)
    printed = run("simpletest", "--entries", "20", zookeeper=zookeeper).stdout.decode()
    assert "on 3 bookies: 20 entries of 100 B written in" in printed
    assert "read back equal" in printed


def test_bookies(local: dict[str, Any]) -> None:
    zookeeper = local["zookeeper"]
    ids = [bookie["bookie_id"] for bookie in local["bookies"]]
    for options in ((), ("--all",)):
        found = lines_of(run("bookies", "list", "--json", *options, zookeeper=zookeeper))
        assert [line["bookie_id"] for line in found] == sorted(ids)
        assert {line["state"] for line in found} == {"writable"}
    for line in lines_of(run("bookies", "info", "--json", zookeeper=zookeeper)):
        assert line["answer"] == "OK"
        assert 0 < line["free_bytes"] <= line["total_bytes"]


@pytest.mark.long
def test_bookies_that_ask_for_certificates(local: dict[str, Any], tmp_path: Path) -> None:
    """Commands with a certificate go on; without one they are told what is missing."""
    pem = make_certificate(tmp_path)
    cluster = ("--zookeeper", local["zookeeper"], "--root", "/tls")
    assert run("format", *cluster).returncode == 0
    bookie = LineProcess(
        [*COMMAND, "serve", *cluster, "--data", str(tmp_path / "data"), "--port", str(own_port()),
         "--tls", *pem, "--tls-trust", pem[0], "--json"]
    )  # fmt: skip
    try:
        assert bookie.next() is not None, "\n".join(bookie.errors)
        one = ("--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1")
        secured = ("--tls-trust", pem[0], "--tls", *pem)
        (found,) = lines_of(run("simpletest", "--json", *one, *cluster, *secured))
        assert found["entries"] == 1000
        (info,) = lines_of(run("bookies", "info", "--json", *cluster, *secured))
        assert info["answer"] == "OK"
        (info,) = lines_of(run("bookies", "info", "--json", *cluster))
        assert info["answer"] == "UNAUTHORIZED"
        refused = run("simpletest", *one, *cluster)
        assert refused.returncode == 1
        assert b"it requires TLS and was asked in clear" in refused.stderr
        os.kill(bookie.pid, signal.SIGTERM)
        bookie.finish()
    finally:
        bookie.close()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("serve", "--tls-trust"), b"--tls-trust: expected --tls CERTIFICATE KEY with it"),
        (("simpletest", "--tls-trust"), b"--tls-trust: cannot use"),
        (("simpletest", "--tls"), b"--tls: expected --tls-trust FILE with it"),
    ],
)
def test_options_of_tls_that_do_not_fit(
    tmp_path: Path, arguments: tuple[str, ...], text: bytes
) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    files = [str(bad)] * (2 if arguments[-1] == "--tls" else 1)
    found = run(*arguments, *files)
    assert found.returncode == 2
    assert text in b" ".join(found.stderr.split())


def test_the_life_of_a_ledger(local: dict[str, Any]) -> None:
    zookeeper = local["zookeeper"]
    entries = b"one\ntwo\n\xff\xfe\n"
    made = run(
        "ledger", "create", "--json", "--digest", "hmac", "--password", "secret",
        zookeeper=zookeeper, stdin=entries,
    )  # fmt: skip
    (record,) = lines_of(made)
    ledger = str(record["ledger_id"])
    assert record["last_entry_id"] == 2

    (metadata,) = lines_of(run("ledger", "metadata", ledger, "--json", zookeeper=zookeeper))
    assert (metadata["state"], metadata["digest"], metadata["length"]) == ("CLOSED", "HMAC", 8)
    listed = lines_of(run("ledger", "list", "--long", "--json", zookeeper=zookeeper))
    assert metadata["ledger_id"] in [line["ledger_id"] for line in listed]

    read = ("ledger", "read", ledger, "--password", "secret")
    found = run(*read, zookeeper=zookeeper)
    assert found.stdout.decode() == "0: one\n1: two\n2: 0xfffe\n"
    assert run(*read, "--raw", zookeeper=zookeeper).stdout == b"onetwo\xff\xfe"
    found = lines_of(run(*read, "--first", "1", "--last", "1", "--json", zookeeper=zookeeper))
    assert [(line["entry_id"], line["payload"]) for line in found] == [(1, "dHdv")]

    (recovered,) = lines_of(
        run("ledger", "recover", ledger, "--password", "secret", "--json", zookeeper=zookeeper)
    )
    assert recovered["last_entry_id"] == 2

    for first, last, code in (("9", "9", 1), ("1", "0", 2)):
        read = run(
            "ledger", "read", ledger, "--password", "secret", "--first", first, "--last", last,
            zookeeper=zookeeper,
        )  # fmt: skip
        assert read.returncode == code, read.stderr
    assert run("ledger", "delete", ledger, zookeeper=zookeeper).returncode == 2, (
        "no terminal to ask at"
    )
    assert run("ledger", "delete", ledger, "--yes", zookeeper=zookeeper).returncode == 0
    gone = run("ledger", "read", ledger, zookeeper=zookeeper)
    assert gone.returncode == 1
    assert b"(NoSuchLedgerMetadataError, -25)" in gone.stderr


def test_errors_are_one_sentence_and_an_exit_code(local: dict[str, Any]) -> None:
    zookeeper = local["zookeeper"]
    found = run("simpletest", "--ensemble", "5", "--json", zookeeper=zookeeper)
    assert (found.returncode, found.stdout) == (1, b"")
    error = json.loads(found.stderr)
    assert (error["error"], error["code"], error["retry"]) == ("NotEnoughBookiesError", -6, "safe")
    assert "5" in error["message"]
    assert "3" in error["message"]

    found = run("format", zookeeper=zookeeper)
    assert found.returncode == 1
    assert b"there is a cluster already" in found.stderr
    assert run("ledger", "read", "x", zookeeper=zookeeper).returncode == 2

    for command in (("bookies", "info"), ("simpletest",), ("cookie", "generate", "b1")):
        found = run(*command, "--root", "/nowhere", zookeeper=zookeeper)
        assert found.returncode == 1
        assert b"expected a cluster's layout, found none" in found.stderr
    assert run("ledger", "list", zookeeper="127.0.0.1:port").returncode == 2


def test_what_fails_leaves_no_ledger_unsaid(local: dict[str, Any]) -> None:
    zookeeper = local["zookeeper"]
    before = lines_of(run("ledger", "list", "--json", zookeeper=zookeeper))
    found = run("simpletest", "--entries", "1", "--bytes", "6000000", zookeeper=zookeeper)
    assert found.returncode == 1
    assert lines_of(run("ledger", "list", "--json", zookeeper=zookeeper)) == before
    found = run("ledger", "create", zookeeper=zookeeper, stdin=b"a" * 6_000_000)
    assert found.returncode == 1
    assert b"was begun and is not closed" in found.stderr


def test_format_makes_and_destroys(local: dict[str, Any]) -> None:
    zookeeper, root = local["zookeeper"], ("--root", "/another/cluster", "--json")
    (made,) = lines_of(run("format", *root, zookeeper=zookeeper))
    wrong = run("format", *root, "--destroy", "not-this-one", zookeeper=zookeeper)
    assert wrong.returncode == 1
    (again,) = lines_of(run("format", *root, "--destroy", made["instance_id"], zookeeper=zookeeper))
    assert again["instance_id"] != made["instance_id"]


@pytest.mark.long
def test_cookies(local: dict[str, Any], tmp_path: Path) -> None:
    zookeeper, bookie_id = local["zookeeper"], local["bookies"][0]["bookie_id"]
    (stored,) = lines_of(run("cookie", "get", bookie_id, "--json", zookeeper=zookeeper))
    data = Path(local["data"]) / "bookie-1"
    (made,) = lines_of(
        run("cookie", "generate", bookie_id, "--data", str(data), "--json", zookeeper=zookeeper)
    )
    assert {**stored, "version": None} == made, "what `bookie serve` wrote"

    file = tmp_path / "cookie"
    other = "127.0.0.1:9"
    generate = ("cookie", "generate", other, "--data", str(tmp_path), "--out", str(file))
    assert run(*generate, zookeeper=zookeeper).returncode == 0
    for command, code in (("update", 1), ("create", 0), ("create", 1), ("update", 0)):
        found = run("cookie", command, other, str(file), zookeeper=zookeeper)
        assert found.returncode == code, (command, found.stderr)
    assert run("cookie", "create", bookie_id, str(file), zookeeper=zookeeper).returncode == 1
    running = run("cookie", "delete", bookie_id, "--yes", zookeeper=zookeeper)
    assert (running.returncode, b"found it registered" in running.stderr) == (1, True)
    assert run("cookie", "delete", other, zookeeper=zookeeper).returncode == 2, (
        "no terminal to ask at"
    )
    assert run("cookie", "delete", other, "--yes", zookeeper=zookeeper).returncode == 0
    found = run("cookie", "get", other, zookeeper=zookeeper)
    assert found.returncode == 1
    assert bookie_id.encode() in found.stderr, "those that there are"


def test_files_are_read_offline(local: dict[str, Any]) -> None:
    zookeeper, data = local["zookeeper"], str(Path(local["data"]) / "bookie-1")
    everywhere = ("ledger", "create", "--ack-quorum", "3", "--json")
    (record,) = lines_of(run(*everywhere, zookeeper=zookeeper, stdin=b"a\nb\n"))
    ledger = str(record["ledger_id"])
    found = lines_of(run("inspect", "journal", data, "--ledger", ledger, "--json"))
    kinds = [(line["kind"], line.get("entry_id")) for line in found]
    assert kinds == [("master_key", None), ("entry", 0), ("entry", 1)]
    assert run("inspect", "entry-log", data, "--summary", "--json").returncode == 0
    assert run("inspect", "index", data, "--json").returncode == 0
    assert run("inspect", "journal", data, "--file", "77").returncode == 2


@pytest.mark.long
def test_no_zookeeper_is_said() -> None:
    skip_without_zookeeper()  # the sentence comes after a wait of 15 s, which is no unit test's
    found = run("ledger", "list")
    assert found.returncode == 1
    assert b"expected a ZooKeeper at 127.0.0.1:1" in found.stderr
