"""make bench-herddb runs, on a few rows and without HerdDB; how fast is not asked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_every_case_runs(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.herddb", "--quick", "--ours"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = json.loads((tmp_path / "build/bench/herddb-quick.json").read_text())
    found = {figure["name"]: figure["ours"] for figure in document["results"]}
    for place in ("in process", "over TCP"):
        assert found[f"durable INSERTs, 32 threads, {place}"] > 0
        assert found[f"two columns of all rows, {place}"] > 0
        assert found[f"open after kill -9, 1,000 single rows in the log, {place}"] > 0
