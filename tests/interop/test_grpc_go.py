"""A client in Go, from herdpy.proto alone: examples/go with gRPC's own library."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import foreign_clients

GENERATORS = (
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.6",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1",
)
COMMAND = ["./client"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, generated and built."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    root = tmp_path_factory.mktemp("go")
    programs = root / "bin"
    environment = os.environ | {
        "GOBIN": str(programs),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PROTOC": f"{sys.executable} -m grpc_tools.protoc",
    }

    def run(*command: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=500
        )

    for generator in GENERATORS:
        ran = run("go", "install", generator, cwd=root)
        if ran.returncode:
            pytest.skip(f"go has no modules: {ran.stderr[-300:]}")
    copy = foreign_clients.copied("go", root)
    for command in (("./generate.sh",), ("go", "build", "-o", "client", ".")):
        ran = run(*command, cwd=copy)
        assert ran.returncode == 0, ran.stderr
    return copy


def test_the_example_prints_what_it_says(folder: Path) -> None:
    foreign_clients.check_example(COMMAND, folder, "main.go")


def test_it_logs_in_by_tls(folder: Path, tmp_path: Path) -> None:
    foreign_clients.check_login(COMMAND, folder, "main.go", tmp_path)
