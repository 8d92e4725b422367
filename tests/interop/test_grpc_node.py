"""A client in another language, from herdpy.proto alone: examples/node with gRPC's own library."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.authorities import Authority
from tests.fixtures.servers import RunningServer, running_server

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "node"
PROTO = EXAMPLE.parent.parent / "herdpy" / "proto" / "herdpy.proto"
PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with the packages that it needs."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    root = tmp_path_factory.mktemp("node")
    copy = root / "examples" / "node"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("node_modules"))
    proto = root / "herdpy" / "proto"
    proto.mkdir(parents=True)
    shutil.copy(PROTO, proto)
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    ran = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=300)
    if ran.returncode:
        pytest.skip(f"npm has no packages: {ran.stderr[-300:]}")
    return copy


def run(folder: Path, server: RunningServer, *arguments: str) -> "subprocess.CompletedProcess[str]":
    address = server.grpc_url.removeprefix("herd+grpc://")
    command = ["node", "client.js", address, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def expected(folder: Path) -> list[str]:
    """Return what the example says in comments that it prints."""
    source = (folder / "client.js").read_text()
    found = re.findall(r"^// (\[.*\]|[0-9]+|[A-Z_]+ .*)$", source, re.MULTILINE)
    assert len(found) == 5
    return found


def test_the_example_prints_what_it_says(folder: Path) -> None:
    with running_server() as server:
        ran = run(folder, server)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == expected(folder)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[RunningServer, str]]:
    """A server with TLS and a user, and who has to be trusted."""
    authority = Authority(tmp_path, "ours")
    own = authority.issue("server", "127.0.0.1")
    with running_server(
        tls_certificate=own.certificate, tls_key=own.key, login_failure_delay_s=0
    ) as server:
        session = server.engine.session(autocommit=True)
        session.execute(f"CREATE USER ada SUPERUSER PASSWORD '{PASSWORD}'").close()
        session.close()
        yield server, authority.path


def test_it_logs_in_by_tls(folder: Path, secured: tuple[RunningServer, str]) -> None:
    server, authority = secured
    ran = run(folder, server, "ada", PASSWORD, authority)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == expected(folder)


def test_it_gets_in_by_nothing_else(folder: Path, secured: tuple[RunningServer, str]) -> None:
    server, authority = secured
    for arguments, reason in (
        (("ada", "wrong", authority), "password authentication failed"),
        (("nobody", PASSWORD, authority), "password authentication failed"),
        (("ada", PASSWORD), "UNAVAILABLE"),
    ):
        ran = run(folder, server, *arguments)
        assert ran.returncode != 0
        assert reason in ran.stderr
        assert PASSWORD not in ran.stderr
    session = server.engine.session(autocommit=True)
    assert session.tables() == []
    session.close()
