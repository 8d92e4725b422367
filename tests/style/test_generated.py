"""Generated code is what its source generates: `make proto` would change nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.style.test_layers import ROOT

_MADE_BY = re.compile(r"^# Protobuf Python Version: (?P<version>\S+)$", re.MULTILINE)


def protos() -> list[str]:
    found = [*ROOT.glob("bookie/**/*.proto"), *ROOT.glob("herdpy/**/*.proto")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def test_the_makefile_knows_every_proto() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    listed = re.search(r"^PROTOS := (.*)$", makefile, re.MULTILINE)
    assert listed is not None
    assert sorted(listed[1].split()) == protos()


def test_regenerating_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools generates it; pip install '.[dev]'")
    assert protos()
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "."]
    command += [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *protos()]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    for proto in protos():
        for suffix in ("_pb2.py", "_pb2.pyi"):
            path = proto.removesuffix(".proto") + suffix
            committed, made = (ROOT / path).read_text(), (tmp_path / path).read_text()
            versions = [
                m["version"] if (m := _MADE_BY.search(t)) else "" for t in (committed, made)
            ]
            if versions[0] != versions[1]:
                pytest.skip(f"{path} was made by protobuf {versions[0]}; here is {versions[1]}")
            assert made == committed, f"{path} is not what {proto} makes: run make proto"


def test_the_runtime_is_not_older_than_the_code() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    bounds = set(re.findall(r'"protobuf>=([\d.]+)"', project))
    for proto in protos():
        text = (ROOT / (proto.removesuffix(".proto") + "_pb2.py")).read_text()
        match = _MADE_BY.search(text)
        assert match is not None
        assert {match["version"]} == bounds, f"{proto}: change pyproject.toml, too"
