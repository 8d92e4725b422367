"""herdpy in Spark's SQL: views, and what a table of Spark's catalog cannot be."""

from collections.abc import Iterator

import pytest
from pyspark.sql import Row, SparkSession

import herdpy
from tests.fixtures.served import Served


@pytest.fixture
def options(server: Served, conn: herdpy.Connection) -> str:
    """Those of a table t with two rows."""
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
    conn.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    return f"(url '{server.url}', table 't')"


@pytest.fixture
def view(spark: SparkSession, options: str) -> Iterator[str]:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING herdpy OPTIONS {options}")
    yield "seen"
    spark.catalog.dropTempView("seen")


def test_a_view_is_read_and_written(
    spark: SparkSession, view: str, conn: herdpy.Connection
) -> None:
    assert spark.sql(f"SELECT s FROM {view} WHERE id = 2").collect() == [Row(s="b")]
    spark.sql(f"INSERT INTO {view} SELECT id + 10, s FROM {view}")
    spark.sql(f"INSERT INTO {view} (s, id) VALUES ('c', 20)")
    rows = conn.execute("SELECT id, s FROM t ORDER BY id").fetchall()
    assert rows == [(1, "a"), (2, "b"), (11, "a"), (12, "b"), (20, "c")]
    # A view is one DataFrame: one snapshot, that of its first use.
    assert spark.sql(f"SELECT count(*) FROM {view}").collect() == [(2,)]
    spark.sql(f"INSERT OVERWRITE {view} VALUES (5, 'e')")
    assert conn.execute("SELECT id, s FROM t").fetchall() == [(5, "e")]


@pytest.mark.parametrize("text", ["DELETE FROM seen", "UPDATE seen SET s = 'x'"])
def test_what_a_view_cannot(
    spark: SparkSession, view: str, conn: herdpy.Connection, text: str
) -> None:
    del view
    with pytest.raises(Exception, match=r"UNSUPPORTED|not support"):
        spark.sql(text)
    assert conn.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_a_table_of_sparks_catalog_is_refused(spark: SparkSession, options: str) -> None:
    """Spark would make it, give the options to schema() alone, and then read without them."""
    with pytest.raises(Exception, match="SQLSTATE 0A000") as caught:
        spark.sql(f"CREATE TABLE kept USING herdpy OPTIONS {options}")
    assert "CREATE TEMPORARY VIEW" in str(caught.value)
    assert spark.sql("SHOW TABLES").collect() == []
