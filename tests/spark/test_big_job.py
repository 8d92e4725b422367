"""Five million rows in one job, by a server with little memory. `make spark-big`."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import herdpy
from tests.fixtures.anonymous_memory import Sampler
from tests.fixtures.served import served

ROWS = 5_000_000
BUDGET = 128 * 1024 * 1024
ANONYMOUS_MAX = 328_000_000
"""What the server may have of memory that is no file's."""

pytestmark = [pytest.mark.big, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("operation", ["append", "upsert"])
def test_a_job_is_larger_than_the_memory(
    spark: SparkSession, tmp_path: Path, operation: str
) -> None:
    """About 340 MB in Arrow. Upsert: half of the rows replace others, tasks have mixed keys."""
    rows = spark.range(0, ROWS, 1, 8).selectExpr(
        "id", "id % 1000 AS k", "id / 7.0D AS price", "concat('name of ', id % 50000) AS name",
        "timestamp_ntz '2024-01-01 00:00:00' + make_dt_interval(0, 0, 0, id % 1000000) AS ts",
        "CAST(id % 100 AS INT) AS qty",
    )  # fmt: skip
    with served(tmp_path / "data", [f"database.memory_bytes_max={BUDGET}"]) as server:
        sampler = Sampler(server.pid)
        with herdpy.connect(server.url, autocommit=True) as conn:
            conn.execute(
                "CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, price DOUBLE PRECISION,"
                " name TEXT, ts TIMESTAMP, qty INTEGER)"
            )
            writer = rows.write.format("herdpy").option("url", server.url).option("table", "t")
            if operation == "upsert":
                halves = rows.where("id % 2 = 0").selectExpr("id", "0L AS k").write
                halves = halves.format("herdpy").option("url", server.url).option("table", "t")
                halves.mode("append").save()
            writer.option("operation", operation).mode("append").save()
            peak = sampler.take()
            text = "SELECT count(*), sum(id), sum(k), sum(qty), count(DISTINCT name) FROM t"
            assert conn.execute(text).fetchone() == (
                ROWS, ROWS * (ROWS - 1) // 2, ROWS // 1000 * 499_500, ROWS // 100 * 4950, 50_000,
            )  # fmt: skip
            assert conn.execute("SELECT count(*) FROM sysstagings").fetchone() == (0,)
        later = sampler.take()
    print(
        f"{operation}: {ROWS:,} rows, budget {BUDGET >> 20} MiB, server at most"
        f" {peak / 1e6:.0f} MB, and {later / 1e6:.0f} MB for the query behind it"
    )
    assert max(peak, later) < ANONYMOUS_MAX
