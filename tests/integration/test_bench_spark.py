"""make bench-spark runs, on a few rows and without PostgreSQL; how fast is not asked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.harness import replace_table

pytestmark = pytest.mark.integration


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_case_runs(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(root / "spark_connector")])
    ran = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.spark", "--quick"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = json.loads((tmp_path / "build/bench/spark-quick.json").read_text())
    found = {figure["name"]: figure["ours"] for figure in document["results"]}
    for case in ("rows read, 2,000 : Parquet", "rows appended, 1,000", "read, 2 partitions"):
        assert found[case] > 0
    table = (tmp_path / "build/bench/spark-quick.md").read_text().splitlines()
    assert len(table) == len(found) + 2


def test_a_table_is_put_in_place_of_the_last_one(tmp_path: Path) -> None:
    document = tmp_path / "BENCHMARKS.md"
    text = "before\n\n<!-- bench-x -->\n\nold\n\n<!-- /bench-x -->\n\nbehind\n"
    document.write_text(text)
    for _ in range(2):
        replace_table(document, "x", "| new |\n")
    assert document.read_text() == text.replace("old", "| new |")
