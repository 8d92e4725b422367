"""The code of the guides of Spark, on a real Spark and a real server."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import herdpy
from tests.fixtures.served import Served
from tests.style.test_docs import Block, blocks, run_python

ROOT = Path(__file__).parent.parent.parent
GUIDES = ("docs/guides/spark.md", "docs/guides/spark-pipeline.md")


@pytest.mark.parametrize("guide", GUIDES)
def test_the_guide(
    server: Served, spark: SparkSession, conn: herdpy.Connection, guide: str
) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    found = [block for block in blocks((ROOT / guide).read_text()) if block.language == "python"]
    assert len(found) > 6
    for block in found:
        text = block.text.replace("herd://localhost:7000/default", server.url)
        text = text.replace("spark.stop()\n", "")  # the session is that of all tests
        run_python(Block(block.language, block.line, text), names, guide)
