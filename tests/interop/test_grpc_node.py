"""A client in another language, from herdpy.proto alone: examples/node with gRPC's own library."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures import foreign_clients

COMMAND = ["node", "client.js"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with the packages that it needs."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    copy = foreign_clients.copied("node", tmp_path_factory.mktemp("node"))
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    ran = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=300)
    if ran.returncode:
        pytest.skip(f"npm has no packages: {ran.stderr[-300:]}")
    return copy


def test_the_example_prints_what_it_says(folder: Path) -> None:
    foreign_clients.check_example(COMMAND, folder, "client.js")


def test_it_logs_in_by_scram_and_tls(folder: Path, tmp_path: Path) -> None:
    foreign_clients.check_login(COMMAND, folder, "client.js", tmp_path)
