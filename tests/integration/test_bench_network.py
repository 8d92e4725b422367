"""make bench-network runs, on a few rows and without PostgreSQL; how fast is not asked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_every_case_runs(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.network", "--quick"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = json.loads((tmp_path / "build/bench/network-quick.json").read_text())
    found = {figure["name"]: figure["ours"] for figure in document["results"]}
    for case in (
        "point selects, 8 connections",
        "durable commits, 8 connections",
        "durable commits, 8 threads of one client",
        "rows to Arrow",
    ):
        assert found[case] > 0
    table = (tmp_path / "build/bench/network-quick.md").read_text().splitlines()
    assert len(table) == len(found) + 2
