"""The code of docs/guides/spark.md, on a real Spark and a real server."""

from pathlib import Path

from pyspark.sql import SparkSession

import herdpy
from tests.fixtures.served import Served
from tests.style.test_docs import Block, blocks, run_python

ROOT = Path(__file__).parent.parent.parent
GUIDE = "docs/guides/spark.md"


def test_the_guide(server: Served, spark: SparkSession, conn: herdpy.Connection) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    found = [block for block in blocks((ROOT / GUIDE).read_text()) if block.language == "python"]
    assert len(found) > 6
    for block in found:
        text = block.text.replace("herd://localhost:7000/default", server.url)
        text = text.replace("spark.stop()\n", "")  # the session is that of all tests
        run_python(Block(block.language, block.line, text), names, GUIDE)
