"""df.write.format("herdpy"): modes, operations, types, one commit, tasks that die."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

import herdpy
import herdpy.spark
from pyspark_herdpy.options import write_options
from pyspark_herdpy.writing import HerdWriter
from tests.fixtures.served import Served
from tests.spark.conftest import Load, Save
from tests.spark.test_read import COLUMNS, ROWS, of_types

ALL = "SELECT id, v FROM t ORDER BY id"


@pytest.fixture
def table(conn: herdpy.Connection) -> herdpy.Connection:
    """A table t with the rows (0, 'a'), (1, 'a'), (2, 'a')."""
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT DEFAULT 'd', n INTEGER)")
    conn.execute("INSERT INTO t VALUES (0, 'a', 0), (1, 'a', 1), (2, 'a', 2)")
    return conn


def frame(spark: SparkSession, first: int, last: int, v: str = "b", parts: int = 3) -> DataFrame:
    return spark.range(first, last, 1, parts).withColumn("v", f.lit(v))


def rows(conn: herdpy.Connection, text: str = ALL) -> list[tuple[Any, ...]]:
    return conn.execute(text).fetchall()


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("append", {0: "a", 1: "a", 2: "a", 3: "b", 4: "b"}),
        ("upsert", {0: "a", 1: "a", 2: "b", 3: "b", 4: "b"}),
        ("ignore", {0: "a", 1: "a", 2: "a", 3: "b", 4: "b"}),
        ("update", {0: "a", 1: "a", 2: "b"}),
    ],
)
def test_operations(
    spark: SparkSession,
    table: herdpy.Connection,
    save: Save,
    operation: str,
    expected: dict[int, str],
) -> None:
    first = 3 if operation == "append" else 2
    given = frame(spark, first, 3 if operation == "update" else 5)
    save(given, table="t", operation=operation, keyColumns="id")
    assert dict(rows(table)) == expected
    assert rows(table, "SELECT n FROM t WHERE id < 3 ORDER BY id")[:2] == [(0,), (1,)]


def test_delete_and_overwrite(spark: SparkSession, table: herdpy.Connection, save: Save) -> None:
    save(spark.range(1, 10), table="t", operation="delete")
    assert rows(table) == [(0, "a")]
    save(frame(spark, 5, 7), mode="overwrite", table="t")
    assert rows(table) == [(5, "b"), (6, "b")]
    save(frame(spark, 0, 0), mode="overwrite", table="t")
    assert rows(table) == []
    save(frame(spark, 0, 0), table="t")
    assert rows(table) == []


def test_every_type_there_and_back(conn: herdpy.Connection, load: Load, save: Save) -> None:
    of_types(conn)
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    conn.execute(f"CREATE TABLE copy ({columns})")
    save(load(table="ty", numPartitions=2), table="copy")
    assert rows(conn, "SELECT * FROM copy ORDER BY id") == ROWS
    save(load(table="ty"), table="made", createTable="true", keyColumns="id")
    assert rows(conn, "SELECT * FROM made ORDER BY id") == ROWS
    made = conn.execute("SELECT * FROM made WHERE id = 1").description
    assert [item[1] for item in made or ()] == [
        item[1] for item in conn.execute("SELECT * FROM ty WHERE id = 1").description or ()
    ]


def test_narrow_types_and_defaults(
    spark: SparkSession, conn: herdpy.Connection, save: Save
) -> None:
    columns = "a INTEGER, b BIGINT, c DOUBLE PRECISION, d DECIMAL(8,3), e TEXT DEFAULT 'e'"
    conn.execute(f"CREATE TABLE n ({columns})")
    given = spark.sql(
        "SELECT CAST(1 AS TINYINT) AS a, CAST(2 AS SMALLINT) AS B, CAST(0.5 AS FLOAT) AS c, 3 AS d"
    )
    save(given, table="N")
    assert rows(conn, "SELECT * FROM n") == [(1, 2, 0.5, Decimal("3.000"), "e")]
    save(spark.sql("SELECT NULL AS a, 5L AS b, NULL AS e"), table="n")
    assert rows(conn, "SELECT a, b, e FROM n WHERE b = 5") == [(None, 5, None)]
    given = spark.sql("SELECT TIMESTAMP '2024-03-10 02:30:00' AS z, DATE '2024-01-01' AS t")
    save(given, table="moments", createTable="true")
    assert rows(conn, "SELECT z, t FROM moments") == [
        # 02:30 is in the hour that the session's time zone leaves out.
        (datetime.datetime(2024, 3, 10, 7, 30, tzinfo=datetime.UTC), datetime.date(2024, 1, 1))
    ]


def test_a_job_has_a_position_that_the_next_reads(
    server: Served, spark: SparkSession, table: herdpy.Connection, load: Load, save: Save
) -> None:
    assert herdpy.spark.commit_position(server.url, "nightly-1") is None
    save(frame(spark, 10, 2010), table="t", jobId="nightly-1")
    position = herdpy.spark.commit_position(server.url, "nightly-1")
    assert position is not None
    assert load(table="t", snapshot=position).count() == 2003
    with pytest.raises(Exception, match="job 'nightly-1' has committed at"):
        save(frame(spark, 10, 2010), table="t", jobId="nightly-1")
    assert load(table="t").count() == 2003


def dying(folder: Path, times: int) -> Callable[..., int]:
    """Return the function of a column that fails its task in the first `times` attempts."""
    name = str(folder)

    def die(number):  # without hints, of which udf() would make something of its own
        import os

        if number == 777 and len(os.listdir(name)) < times:
            open(f"{name}/{len(os.listdir(name))}", "w").close()
            raise RuntimeError("this task dies")
        return number

    return die


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")  # of its udf()
@pytest.mark.parametrize("times", [1, 9])
def test_a_task_that_dies(
    spark: SparkSession, table: herdpy.Connection, save: Save, tmp_path: Path, times: int
) -> None:
    """Once: its rows come once, by the second attempt. Always: none come, of no task."""
    given = spark.range(100, 1100, 1, 2).select(
        f.udf(dying(tmp_path, times), "bigint")("id").alias("id")
    )
    if times == 1:
        save(given, table="t")
        assert rows(table, "SELECT count(*), sum(id) FROM t") == [(1003, sum(range(100, 1100)) + 3)]
    else:
        with pytest.raises(Exception, match="this task dies"):
            save(given, table="t")
        assert rows(table, "SELECT count(*) FROM t") == [(3,)]


def test_a_key_that_is_there_fails_the_whole_job(
    spark: SparkSession, table: herdpy.Connection, save: Save
) -> None:
    with pytest.raises(Exception, match=r"SQLSTATE 23505") as caught:
        save(frame(spark, 2, 500), table="t")
    assert "(id)=(2)" in str(caught.value)
    assert len(rows(table)) == 3
    with pytest.raises(Exception, match="SQLSTATE 23505"):
        save(frame(spark, 5, 7).union(frame(spark, 6, 8)), table="t")
    assert len(rows(table)) == 3


@pytest.mark.parametrize(
    ("given", "options", "sqlstate", "words"),
    [
        ("SELECT 1 AS id", {"table": "u"}, "42P01", 'table "u" does not exist'),
        ("SELECT 1 AS id", {}, "22023", 'expected the option "table"'),
        ("SELECT 1 AS id, 'x' AS vv", {"table": "t"}, "42703", "Did you mean v?"),
        ("SELECT 'x' AS id", {"table": "t"}, "42804", "the DataFrame has string"),
        ("SELECT 1 AS id, array(1) AS v", {"table": "t"}, "0A000", "array<int>"),
        ("SELECT 1 AS id", {"table": "t", "operation": "merge"}, "22023", "upsert"),
        ("SELECT 1 AS id", {"table": "t", "columns": "id"}, "22023", "one of reading"),
        ("SELECT 1 AS id", {"table": "t", "keyColumns": "v", "operation": "upsert"}, "", "key"),
        ("SELECT CAST(NULL AS BIGINT) AS id", {"table": "t"}, "23502", "row 1"),
        ("SELECT 1 AS id, 3000000000 AS n", {"table": "t"}, "22003", "row 1"),
        (
            "SELECT 1 AS id, struct(1) AS s",
            {"table": "m", "createTable": "true"},
            "0A000",
            "struct",
        ),
    ],
)
def test_what_cannot_be_written_says_why(
    spark: SparkSession,
    table: herdpy.Connection,
    save: Save,
    given: str,
    options: dict[str, str],
    sqlstate: str,
    words: str,
) -> None:
    with pytest.raises(Exception, match=f"SQLSTATE {sqlstate}") as caught:
        save(spark.sql(given), **options)
    assert words in str(caught.value), caught.value
    assert len(rows(table)) == 3


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_data_frame_without_columns_is_refused(
    server: Served, table: herdpy.Connection, *, overwrite: bool
) -> None:
    """Its tasks see no rows, however many it has: nothing would be written, or nothing left."""
    options = write_options({"url": server.url, "table": "t"})
    with pytest.raises(herdpy.ProgrammingError, match="the DataFrame has no columns") as caught:
        HerdWriter(options, StructType([]), overwrite=overwrite)
    assert caught.value.sqlstate == "22023"
    assert table.execute("SELECT count(*) FROM sysstagings").fetchone() == (0,)


def test_key_columns_are_found_in_any_case(
    spark: SparkSession, conn: herdpy.Connection, save: Save
) -> None:
    for number in (1, 2):  # the table is made, and is there
        given = spark.sql(f"SELECT {number} AS Id, 'x' AS v")
        save(given, table="made", createTable="true", keyColumns="ID")
    assert rows(conn, 'SELECT "Id" FROM made ORDER BY "Id"') == [(1,), (2,)]


def test_modes_that_there_are_not(
    spark: SparkSession, table: herdpy.Connection, save: Save
) -> None:
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            save(spark.range(1), mode=mode, table="t")
    with pytest.raises(Exception, match=r'Use mode\("append"\) with operation "upsert"'):
        save(frame(spark, 0, 1), mode="overwrite", table="t", operation="upsert")


def test_insert_into_a_view(spark: SparkSession, server: Served, table: herdpy.Connection) -> None:
    options = f"OPTIONS (url '{server.url}', table 't')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW target USING herdpy {options}")
    spark.sql("INSERT INTO target SELECT 7, 'sql', 1")
    spark.catalog.dropTempView("target")
    assert rows(table)[-1] == (7, "sql")


def test_a_pipeline(conn: herdpy.Connection, load: Load, save: Save) -> None:
    """Read, join, write, and read what was written: sums agree."""
    conn.execute("CREATE TABLE flights (id BIGINT PRIMARY KEY, carrier TEXT, delay INTEGER)")
    conn.execute("CREATE TABLE carriers (carrier TEXT PRIMARY KEY, name TEXT)")
    count = 20_000
    ids = range(count)
    conn.ingest(
        "flights",
        pa.table(
            {"id": ids, "carrier": [f"c{n % 11}" for n in ids], "delay": [n % 97 for n in ids]}
        ),
    )
    conn.ingest("carriers", [{"carrier": f"c{n}", "name": f"Carrier {n}"} for n in range(11)])
    by_carrier = (
        load(table="flights", numPartitions=4)
        .join(load(table="carriers"), "carrier")
        .groupBy("name")
        .agg(f.sum("delay").alias("delay"), f.count("*").alias("flights"))
    )
    save(by_carrier, table="by_carrier", createTable="true", keyColumns="name")
    found = rows(conn, "SELECT sum(delay), sum(flights), count(*) FROM by_carrier")
    assert found == [(sum(n % 97 for n in ids), count, 11)]
