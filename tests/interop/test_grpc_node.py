"""A client in another language, from herdpy.proto alone: examples/node with gRPC's own library."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.servers import running_server

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "node"
PROTO = EXAMPLE.parent.parent / "herdpy" / "proto" / "herdpy.proto"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example with the packages that it needs."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    copy = tmp_path / "examples" / "node"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("node_modules"))
    proto = tmp_path / "herdpy" / "proto"
    proto.mkdir(parents=True)
    shutil.copy(PROTO, proto)
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    ran = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=300)
    if ran.returncode:
        pytest.skip(f"npm has no packages: {ran.stderr[-300:]}")
    return copy


def test_the_example_prints_what_it_says(folder: Path) -> None:
    with running_server() as server:
        address = server.grpc_url.removeprefix("herd+grpc://")
        ran = subprocess.run(
            ["node", "client.js", address], cwd=folder, capture_output=True, text=True, timeout=60
        )
    assert ran.returncode == 0, ran.stderr
    source = (folder / "client.js").read_text()
    expected = re.findall(r"^// (\[.*\]|[A-Z_]+ .*)$", source, re.MULTILINE)
    assert len(expected) == 3
    assert ran.stdout.splitlines() == expected
