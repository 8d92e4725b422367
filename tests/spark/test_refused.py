"""Rows and tables that do not fit: the row is shown, nothing is written, nothing is left."""

import pytest
from pyspark.sql import SparkSession

import herdpy
from tests.fixtures.served import Served
from tests.spark.conftest import Load, Save


@pytest.fixture
def table(conn: herdpy.Connection) -> herdpy.Connection:
    conn.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v VARCHAR(3), n INTEGER NOT NULL DEFAULT 1,"
        " d DECIMAL(5,2), l BIGINT, day DATE, ts TIMESTAMP, tz TIMESTAMPTZ, y BYTEA)"
    )
    conn.execute("INSERT INTO t (id) VALUES (1)")
    return conn


@pytest.mark.parametrize(
    ("given", "sqlstate", "words"),
    [
        ("2 AS id, 'abcd' AS v", "22001", "row 1 of the data: column v: value too long for type"),
        ("2 AS id, 3000000000 AS n", "22003", "3000000000 is out of range for type INTEGER, in ("),
        ("2 AS id, 1000.00 AS d", "22003", "DECIMAL(5,2), in (id=2, d=Decimal('1000.00'))"),
        ("2 AS id, double('nan') AS l", "22003", "value nan is out of range for type BIGINT"),
        ("2 AS id, 1e300D AS d", "22003", "DECIMAL(5,2)"),
        ("2 AS id, DATE '-0001-01-01' AS day", "22008", "row 1 of the data: column day: "),
        ("2 AS id, make_date(10000, 1, 1) AS day", "22008", "in (id=2, day=…)"),
        ("2 AS id, timestamp_micros(300000000000000000) AS tz", "22008", "column tz: "),
        ("2 AS id, CAST(timestamp_micros(300000000000000000) AS TIMESTAMP_NTZ) AS ts", "22008", ""),
        ("2 AS id, decode(X'610062', 'UTF-8') AS v", "22021", "text cannot hold the character NUL"),
        ("2 AS id, TIMESTAMP_NTZ '2024-01-01 00:00:01' AS day", "22008", "DATE, cannot hold 2024-"),
        ("'x' AS v", "23502", 'null value in column "id" of table "t" violates NOT NULL, in ('),
        ("2 AS id, 5 AS v", "42804", 'column "v" of the table is of type text, the DataFrame has'),
        ("2 AS id, 'x' AS y", "42804", "Cast it: df.withColumn"),
        ("2 AS id, true AS n", "42804", "the DataFrame has boolean"),
        ("2 AS id, INTERVAL '1' DAY AS n", "0A000", "interval day has no counterpart"),
        ("2 AS id, parse_json('1') AS v", "0A000", "variant has no counterpart"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit(
    spark: SparkSession,
    table: herdpy.Connection,
    save: Save,
    given: str,
    sqlstate: str,
    words: str,
) -> None:
    with pytest.raises(Exception, match=f"SQLSTATE {sqlstate}") as caught:
        save(spark.sql(f"SELECT {given}"), table="t")
    assert words in str(caught.value), caught.value
    assert table.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_the_row_is_found_among_many(
    spark: SparkSession, table: herdpy.Connection, save: Save
) -> None:
    """In the second task's second batch of Arrow."""
    given = spark.range(0, 60_000, 1, 2).selectExpr(
        "CAST(id AS INT) + 10 AS id", "CAST(nullif(id, 47777) AS INT) AS n"
    )
    with pytest.raises(Exception, match="SQLSTATE 23502") as caught:
        save(given, table="t")
    assert "task 1: row 17,778 of the data: null value" in str(caught.value)
    assert "in (id=47787, n=None)" in str(caught.value)
    assert table.execute("SELECT count(*) FROM t").fetchone() == (1,)
    assert table.execute("SELECT count(*) FROM sysstagings").fetchone() == (0,)


@pytest.mark.parametrize(
    ("given", "options", "sqlstate", "words"),
    [
        ("2 AS id", {"keyColumns": "v"}, "42P10", 'expected the primary key (id) of table "t", fo'),
        ("2 AS id", {"keyColumns": "id, v", "operation": "upsert"}, "42P10", "found (id, v)"),
        ("2 AS id", {"keyColumns": "v,"}, "22023", 'option "keyColumns": expected a name'),
        ("2 AS id, 'x' AS v", {"operation": "delete"}, "42703", "the columns of the key (id) an"),
        ("1 AS id", {"operation": "update"}, "42703", "the columns of the key (id) and what chang"),
        ("2 AS id, 3 AS ID", {}, "42701", 'the DataFrame has column "id" of table "t" twice'),
        ("2 AS id", {"createTable": "yes"}, "22023", "expected true or false, found 'yes'"),
        ("2 AS id", {"opertion": "upsert"}, "22023", "Did you mean operation?"),
        ("2 AS id", {"jobId": "j" * 300}, "22023", "j"),
        ("2 AS id", {"url": "/data"}, "22023", 'option "url": expected the URL of a server, herd'),
        ("2 AS id", {"url": "http://localhost"}, "0A000", "herd://localhost:7000"),
        ("2 AS id", {"url": "herd://127.0.0.1:1?retry_timeout_s=0"}, "08001", "cannot be reached"),
        ("1 AS a", {"table": "u", "createTable": "true", "keyColumns": "b"}, "42703", 'column "b"'),
        ("NULL AS a", {"table": "u", "createTable": "true"}, "0A000", "type void has no counterpa"),
    ],
)  # fmt: skip
def test_a_job_that_does_not_fit(
    spark: SparkSession,
    table: herdpy.Connection,
    save: Save,
    given: str,
    options: dict[str, str],
    sqlstate: str,
    words: str,
) -> None:
    with pytest.raises(Exception, match=f"SQLSTATE {sqlstate}") as caught:
        save(spark.sql(f"SELECT {given}"), **{"table": "t", **options})
    assert words in str(caught.value), caught.value
    assert table.execute("SELECT count(*) FROM t").fetchone() == (1,)
    assert table.execute("SHOW TABLES").fetchall() == [("t",)]


def test_a_database_that_is_not_there(server: Served, table: herdpy.Connection, load: Load) -> None:
    del table
    url = server.url.replace("?", "/other?")
    with pytest.raises(Exception, match=r"SQLSTATE 3D000\)\nHint: systablespaces lists them"):
        load(url=url, table="t")


def test_partition_by_is_no_word_of_herdpys(
    spark: SparkSession, server: Served, table: herdpy.Connection
) -> None:
    writer = spark.sql("SELECT 2 AS id, 1 AS n").write.format("herdpy").option("url", server.url)
    with pytest.raises(Exception, match="partitioning"):
        writer.option("table", "t").partitionBy("n").mode("append").save()
    assert table.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_a_result_that_spark_cannot_hold(table: herdpy.Connection, load: Load) -> None:
    del table
    with pytest.raises(Exception, match='column "i" is of type interval, which Spark'):
        load(query="SELECT id, INTERVAL '1 day' AS i FROM t")
    with pytest.raises(Exception, match="SQLSTATE 42701"):
        load(table="t", columns="id, v, ID")
    with pytest.raises(Exception, match="SQLSTATE 42702"):
        load(query="SELECT id, id FROM t")
