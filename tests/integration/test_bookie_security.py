"""A secured bookie as a process: TLS with rights, files that change, a login to ZooKeeper."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trustme

from bookie.admin.zookeeper_process import ZooKeeperProcess
from tests.fixtures.line_process import LineProcess
from tests.fixtures.ports import own_port
from tests.fixtures.zookeeper import zookeeper, zookeeper_root

__all__ = ["zookeeper", "zookeeper_root"]

pytestmark = [pytest.mark.integration, pytest.mark.exhaustive]

COMMAND = (sys.executable, "-W", "error", "-m", "bookie.admin.commands")
LOGIN = "digest herd:geheim"
LIMIT_S = 30.0


class Place:
    """A cluster's names, and certificates of one authority."""

    def __init__(self, hosts: str, root: str, folder: Path) -> None:
        self.cluster = ("--zookeeper", hosts, "--root", root)
        self.folder = folder
        self.authority = trustme.CA()
        self.trust = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.trust)

    def issue(self, name: str, unit: str) -> tuple[str, str]:
        """Write a certificate with this OU; return its paths."""
        made = self.authority.issue_cert("127.0.0.1", organization_unit_name=unit)
        paths = self.folder / f"{name}.pem", self.folder / f"{name}-key.pem"
        paths[0].write_bytes(made.cert_chain_pems[0].bytes())
        paths[1].write_bytes(made.private_key_pem.bytes())
        return str(paths[0]), str(paths[1])

    def run(
        self, *words: str, login: str | None = LOGIN, code: int = 0
    ) -> "subprocess.CompletedProcess[str]":
        environment = dict(os.environ)
        if login is not None:
            environment["BOOKIE_ZOOKEEPER_LOGIN"] = login
        found = subprocess.run(
            [*COMMAND, *words, *self.cluster],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert found.returncode == code, found.stderr
        return found

    def simpletest(self, certificate: tuple[str, str], code: int = 0) -> str:
        one = ("--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1", "--entries", "10")
        tls = ("--tls-trust", self.trust, "--tls", *certificate)
        return self.run("simpletest", *one, *tls, "--zk-enable-security", code=code).stderr


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def metric(port: int, name: str) -> float:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{name}(?:_total)? (\S+)$", text, re.MULTILINE)
    assert found, f"no {name} in {text[:2000]}"
    return float(found[1])


def test_a_secured_bookie(zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path) -> None:
    place = Place(zookeeper.hosts, zookeeper_root, tmp_path)
    bookie, writer, other = (place.issue(n, f"0:{n}") for n in ("bookie", "writer", "other"))
    access = tmp_path / "access"
    access.write_text("write role writer\nwrite role bookie\n")
    login = tmp_path / "login"
    login.write_text(LOGIN)
    login.chmod(0o600)
    place.run("format", "--zk-enable-security")
    process = LineProcess(
        [*COMMAND, "serve", *place.cluster, "--data", str(tmp_path / "data"), "--http-port", "0",
         "--port", str(own_port()), "--tls", *bookie, "--tls-trust", place.trust, "--tls-access",
         str(access), "--zookeeper-login", str(login), "--zk-enable-security", "--autorecovery",
         "--set", "tls_cert_files_refresh_duration_s=0.1", "--json"]
    )  # fmt: skip
    try:
        line = process.next()
        assert line is not None, "\n".join(process.errors)
        told: dict[str, Any] = line
        port = told["http_port"]
        place.simpletest(writer)
        assert "certificate does not give the right" in place.simpletest(other, 1)
        assert metric(port, "bookkeeper_server_REQUESTS_UNAUTHORIZED") > 0
        assert metric(port, "bookie_log_lines_lost") == 0
        shown = json.loads(place.run("acl", "show", "--json").stdout)
        assert shown["deviating"] == 0
        for words in (
            ("ledger", "list"),
            ("serve", "--data", str(tmp_path / "b")),
            ("autorecovery",),
        ):
            assert "--zookeeper-login" in place.run(*words, login=None, code=1).stderr

        access.write_text("write role other\nwrite role bookie\n")
        until(lambda: any("--tls-access: read again" in text for text in process.errors))
        place.simpletest(other)
        place.simpletest(writer, 1)

        left_s = metric(port, "bookkeeper_server_TLS_CERTIFICATE_SECONDS_LEFT")
        assert left_s > 0
        Path(bookie[0]).write_text("no certificate")
        until(lambda: metric(port, "bookkeeper_server_TLS_FILES_REFUSED") == 1)
        place.simpletest(other)
        place.issue("bookie", "0:bookie")
        until(lambda: metric(port, "bookkeeper_server_TLS_FILES_REFUSED") == 0)
        place.simpletest(other)
        assert not [text for text in process.errors if "geheim" in text]
        os.kill(process.pid, signal.SIGTERM)
        process.finish()
    finally:
        process.close()


def test_what_cannot_be_secured_is_said(zookeeper_root: str, tmp_path: Path) -> None:
    place = Place("127.0.0.1:1", zookeeper_root, tmp_path)
    data = ("--data", str(tmp_path / "data"))
    found = place.run("serve", *data, "--host", "0.0.0.0", code=1)
    assert "--allow-clear" in found.stderr
    found = place.run("serve", *data, "--zk-enable-security", login=None, code=1)
    assert "expected a login" in found.stderr
    found = place.run("acl", "show", login="digest herd", code=1)
    assert "BOOKIE_ZOOKEEPER_LOGIN, line 1" in found.stderr
