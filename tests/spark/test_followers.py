"""Tasks that read on nodes that follow: leases and writes are the leader's all the same."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import herdpy
import herdpy.spark
from pyspark_herdpy.options import of_leader
from tests.fixtures.node_cluster import served_tablespace


@pytest.fixture
def url() -> Iterator[str]:
    with served_tablespace(2) as found:
        yield found


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("herd://h:1/t", "herd://h:1/t"),
        ("herd://h:1/t?read=follower", "herd://h:1/t"),
        ("herd://a:1,b:2/?tls=off&read=nearest&max_staleness_s=3", "herd://a:1,b:2/?tls=off"),
        ("herd://h/?application_name=read%3Dx&root=/a", None),
        ("no url", None),
    ],
)
def test_the_url_of_the_leader(url: str, expected: str | None) -> None:
    assert of_leader(url) == (expected or url)


def test_tasks_read_on_a_node_that_follows_at_the_leader_s_lease(
    url: str, spark: SparkSession
) -> None:
    reading = f"{url}/?read=follower"
    with herdpy.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, 'a')", [(key,) for key in range(1000)])
        frame = (
            spark.read.format("herdpy").options(url=reading, table="t", numPartitions="3").load()
        )
        assert frame.count() == 1000
        connection.execute("DELETE FROM t WHERE id < 500")
        assert frame.count() == 1000  # at one lease
        assert connection.execute("SELECT count(*) FROM sysleases").fetchone() == (1,)
        added = spark.range(1000, 1010).selectExpr("id", "'b' AS v")
        added.write.format("herdpy").options(url=reading, table="t").mode("append").save()
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (510,)
        assert herdpy.spark.release(reading) == 1
