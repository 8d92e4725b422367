"""make bench-neighbours runs, for a moment of each abuse; how fast is not asked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.neighbours_client import ABUSES

pytestmark = pytest.mark.integration


@pytest.mark.long
def test_every_abuse_runs(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.neighbours", "--quick"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = json.loads((tmp_path / "build/bench/neighbours-quick.json").read_text())
    found = {figure["name"]: figure["ours"] for figure in document["results"]}
    for name in ABUSES:
        for what in ("p50", "p99", "administrator", "memory"):
            assert found[f"{name}: {what}"] > 0
    assert found["/readyz is 503 behind full workers"] > 0
