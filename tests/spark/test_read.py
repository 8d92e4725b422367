"""spark.read.format("herdpy"): types, parts, one snapshot, options, errors."""

import datetime
import re
import signal
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as kinds

import herdpy
import herdpy.spark
from tests.fixtures.engines import Background
from tests.fixtures.served import Served
from tests.spark.conftest import Load

UTC = datetime.UTC
LAST = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)
COLUMNS = {
    "id": "INTEGER PRIMARY KEY", "b": "BOOLEAN", "l": "BIGINT", "x": "DOUBLE PRECISION",
    "d": "DECIMAL(10,2)", "w": "DECIMAL(38,10)", "s": "TEXT", "v": "VARCHAR(5)", "y": "BYTEA",
    "day": "DATE", "t": "TIMESTAMP", "z": "TIMESTAMPTZ",
}  # fmt: skip
SPARK_TYPES = {
    "id": kinds.IntegerType(), "b": kinds.BooleanType(), "l": kinds.LongType(),
    "x": kinds.DoubleType(), "d": kinds.DecimalType(10, 2), "w": kinds.DecimalType(38, 10),
    "s": kinds.StringType(), "v": kinds.StringType(), "y": kinds.BinaryType(),
    "day": kinds.DateType(), "t": kinds.TimestampNTZType(), "z": kinds.TimestampType(),
}  # fmt: skip
ROWS = [
    (1, True, 2**63 - 1, 1e308, Decimal("99999999.99"), Decimal("9" * 28 + "." + "9" * 10),
     "ünï \U0001f600", "äöüxy", b"\0\xff", datetime.date(9999, 12, 31),
     LAST, datetime.datetime(9999, 12, 30, tzinfo=UTC)),
    (2, False, -(2**63), float("-inf"), Decimal("-99999999.99"), Decimal("-0.0000000001"), "", "",
     b"", datetime.date(1, 1, 1), datetime.datetime(1, 1, 1),
     datetime.datetime(1900, 1, 1, tzinfo=UTC)),
    (3, *[None] * 11),
    (4, True, 0, -0.0, Decimal("0.00"), Decimal("0E-10"), "x" * 5000, "a", b"a" * 5000,
     datetime.date(1969, 12, 31), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
     datetime.datetime(2024, 3, 31, 1, 30, 0, 5, tzinfo=UTC)),
]  # fmt: skip


def of_types(conn: herdpy.Connection) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    conn.execute(f"CREATE TABLE ty ({columns})")
    marks = ", ".join("?" * len(COLUMNS))
    conn.executemany(f"INSERT INTO ty VALUES ({marks})", ROWS)


def test_every_type(conn: herdpy.Connection, load: Load) -> None:
    of_types(conn)
    frame = load(table="ty")
    assert {field.name: field.dataType for field in frame.schema} == SPARK_TYPES
    # Arrow, as Row would show TIMESTAMPTZ in the time zone of this machine.
    found = frame.orderBy("id").toArrow()
    assert [tuple(row.values()) for row in found.to_pylist()] == ROWS
    assert repr(found.column("x").to_pylist()[3]) == "-0.0"


def test_nan_and_infinity(conn: herdpy.Connection, load: Load) -> None:
    conn.execute("CREATE TABLE f (id INTEGER PRIMARY KEY, x DOUBLE PRECISION)")
    conn.execute("INSERT INTO f VALUES (1, 'NaN'), (2, 'Infinity')")
    found = load(table="f").selectExpr("id", "isnan(x) AS n", "x > 1e308 AS big").orderBy("id")
    assert found.collect() == [Row(id=1, n=True, big=True), Row(id=2, n=False, big=True)]


@pytest.mark.parametrize("count", [None, 1, 7])
def test_every_row_is_in_one_part(conn: herdpy.Connection, load: Load, count: int | None) -> None:
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INTEGER)")
    ids = range(0, 30_000, 3)
    conn.ingest("t", pa.table({"id": ids, "g": [number % 5 for number in ids]}))
    conn.checkpoint()
    conn.execute("DELETE FROM t WHERE id % 30 = 0")
    conn.execute("INSERT INTO t VALUES (-5, 1), (1000000, 2)")
    options = {} if count is None else {"numPartitions": count}
    frame = load(table="t", **options)
    if count:
        assert frame.rdd.getNumPartitions() == count
    expected = conn.execute("SELECT count(*), sum(id), min(id), max(id) FROM t").fetchone()
    found = frame.selectExpr("count(*)", "sum(id)", "min(id)", "max(id)").collect()
    assert tuple(found[0]) == tuple(expected or ())
    by_group = {row["g"]: row["count"] for row in frame.groupBy("g").count().collect()}
    assert by_group == dict(conn.execute("SELECT g, count(*) FROM t GROUP BY g").fetchall())


@pytest.mark.parametrize("rows", [0, 1])
def test_small_tables(conn: herdpy.Connection, load: Load, rows: int) -> None:
    conn.execute("CREATE TABLE e (id BIGINT PRIMARY KEY, s TEXT)")
    conn.execute("CREATE TABLE h (s TEXT)")
    for number in range(rows):
        conn.execute("INSERT INTO e VALUES (?, 'x')", (number,))
        conn.execute("INSERT INTO h VALUES ('x')")
    for table in ("e", "h"):
        frame = load(table=table, numPartitions=4)
        assert frame.count() == rows
        assert frame.columns == [name for name in ("id", "s") if name in frame.columns]
    assert load(query="SELECT id FROM e ;").count() == rows


def test_names_that_need_quotes_and_many_columns(conn: herdpy.Connection, load: Load) -> None:
    conn.execute(
        'CREATE TABLE "My ""Table"", x" ("a b" INTEGER PRIMARY KEY, "select" TEXT, "Ü,1" TEXT)'
    )
    conn.execute("""INSERT INTO "My ""Table"", x" VALUES (1, 's', 'u')""")
    frame = load(table='My "Table", x')
    assert frame.collect() == [Row(**{"a b": 1, "select": "s", "Ü,1": "u"})]
    some = load(table='My "Table", x', columns='"Ü,1", a b', where="\"select\" = 's'")
    assert some.collect() == [Row(**{"Ü,1": "u", "a b": 1})]
    assert load(query='SELECT "a b", "Ü,1" FROM "My ""Table"", x" -- all').collect() == [
        Row(**{"a b": 1, "Ü,1": "u"})
    ]
    wide = ", ".join(f"c{number} INTEGER" for number in range(200))
    conn.execute(f"CREATE TABLE wide (id INTEGER PRIMARY KEY, {wide})")
    conn.execute(f"INSERT INTO wide VALUES ({', '.join(map(str, range(201)))})")
    assert tuple(load(table="wide").collect()[0]) == tuple(range(201))


def test_columns_where_query_and_schema(conn: herdpy.Connection, load: Load) -> None:
    of_types(conn)
    assert load(table="TY", columns="S, id", where="id = 1 OR s = ''").orderBy("id").collect() == [
        Row(s=ROWS[0][6], id=1), Row(s="", id=2),
    ]  # fmt: skip
    frame = load("s STRING, id INT", table="ty")
    assert frame.columns == ["s", "id"]
    assert frame.where("id = 2").collect() == [Row(s="", id=2)]
    query = "SELECT b, count(*) AS n, sum(d) AS total FROM ty GROUP BY b"
    found = {row["b"]: (row["n"], row["total"]) for row in load(query=query).collect()}
    assert found == {
        True: (2, Decimal("99999999.99")), False: (1, Decimal("-99999999.99")), None: (1, None),
    }  # fmt: skip
    joined = load(table="ty", columns="id,b").join(load(query=query), "b").orderBy("id")
    assert [row["id"] for row in joined.collect()] == [1, 2, 4]


def test_sql_of_spark(spark: SparkSession, server: Served, conn: herdpy.Connection) -> None:
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
    conn.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    options = f"OPTIONS (url '{server.url}', table 't')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING herdpy {options}")
    assert spark.sql("SELECT s FROM seen WHERE id = 2").collect() == [Row(s="b")]
    spark.catalog.dropTempView("seen")


def test_a_data_frame_is_one_snapshot(server: Served, conn: herdpy.Connection, load: Load) -> None:
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    conn.ingest("t", pa.table({"id": range(1000), "v": [1] * 1000}))
    frame, by_query = load(table="t", numPartitions=3), load(query="SELECT sum(v) AS v FROM t")
    assert (frame.count(), by_query.collect()) == (1000, [Row(v=1000)])
    conn.execute("UPDATE t SET v = 2")
    conn.execute("DELETE FROM t WHERE id < 500")
    conn.checkpoint()
    assert frame.selectExpr("count(*) AS c", "sum(v) AS v").collect() == [Row(c=1000, v=1000)]
    assert by_query.collect() == [Row(v=1000)]
    assert load(table="t").selectExpr("sum(v) AS v").collect() == [Row(v=1000)]
    assert load(table="t").count() == 500  # takes the newest lease, which the next one shares
    with pytest.raises(Exception, match="22023"):
        load(table="t", snapshot="-1.999999.0").count()
    assert load(table="t").count() == 500
    conn.execute("TRUNCATE t")
    assert frame.count() == 1000
    assert herdpy.spark.release(server.url) == 2  # the first two DataFrames have one state
    with pytest.raises(Exception, match="snapshot of this DataFrame is gone") as caught:
        frame.count()
    assert "load() it again" in str(caught.value)


def test_the_snapshot_of_a_lease(conn: herdpy.Connection, load: Load) -> None:
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    conn.execute("INSERT INTO t VALUES (1)")
    with conn.lease() as lease:
        conn.execute("INSERT INTO t VALUES (2)")
        for options in ({"table": "t"}, {"query": "SELECT id FROM t"}):
            assert load(**options, snapshot=lease.id).count() == 1
            assert load(**options, snapshot=lease.position).count() == 1
        # Nothing keeps the state of a commit; it is in the newest one.
        assert load(table="t", snapshot=conn.position).count() == 2
    with pytest.raises(Exception, match="SQLSTATE 72000"):
        load(table="t", snapshot=lease.id).count()
    assert load(table="t", snapshot=lease.position).count() == 2


def test_a_position_behind_the_last_commit(
    server: Served, conn: herdpy.Connection, load: Load
) -> None:
    """The log goes on without commits; the application's lease is from before that."""
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    conn.execute("INSERT INTO t VALUES (1)")
    frame = load(table="t")
    assert frame.count() == 1
    conn.execute("BEGIN")
    conn.execute("INSERT INTO t VALUES (2)")
    conn.rollback()
    assert conn.execute("SELECT count(*) FROM t").fetchone() == (1,)
    assert load(table="t", snapshot=conn.position).count() == 1
    assert load(table="t").count() == frame.count() == 1
    conn.execute("SELECT 1")
    ledger, entry, _ = map(int, conn.position.split("."))
    for _ in range(3):  # asking does not bring the log nearer
        with pytest.raises(Exception, match="22023"):
            load(table="t", snapshot=f"{ledger}.{entry + 2}.0").count()
    assert herdpy.spark.release(server.url) == 2


def test_a_data_frame_outlives_a_server(
    server: Served, conn: herdpy.Connection, load: Load
) -> None:
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    conn.ingest("t", pa.table({"id": range(1000), "v": [1] * 1000}))
    frame = load(table="t", numPartitions=3)
    assert frame.count() == 1000
    conn.execute("DELETE FROM t WHERE id < 10")
    server.stop(signal.SIGKILL)
    server.start()
    assert frame.selectExpr("sum(v) AS v").collect() == [Row(v=1000)]
    assert load(table="t").count() == 990


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_a_task_reads_again_when_the_server_dies_under_it(
    server: Served, spark: SparkSession, conn: herdpy.Connection, load: Load, tmp_path: Path
) -> None:
    """The first task to get its rows waits until the server it has them from is another."""
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    conn.ingest("t", pa.table({"id": range(600_000)}))
    frame = load(table="t", numPartitions=2, fetchBatchRows=2_000)
    begun, over = tmp_path / "begun", tmp_path / "over"
    slow = frame.mapInArrow(waiting(str(begun), str(over)), "id BIGINT")

    def restart() -> None:
        while not begun.exists():
            pass
        server.stop(signal.SIGKILL)
        server.start()
        over.touch()

    with Background() as background:
        background.start(restart)
        assert slow.selectExpr("count(*)", "sum(id)").collect() == [
            (600_000, sum(range(600_000))),
        ]


def waiting(begun: str, over: str) -> Callable[..., Any]:
    """Return what passes batches on; behind the first it waits for a file."""

    def passes(batches):  # without hints, which Spark would look at
        import os

        for batch in batches:
            open(begun, "w").close()
            while not os.path.exists(over):
                pass
            yield batch

    return passes


def test_filters_do_not_leak(conn: herdpy.Connection, load: Load, spark: SparkSession) -> None:
    """Spark keeps filters it has pushed to a reader for later uses: we take none."""
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    conn.ingest("t", pa.table({"id": range(20)}))
    frame = load(table="t")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert frame.filter("id > 15").count() == 4
        assert frame.count() == 20
        assert frame.filter("id > 15").union(frame).count() == 24
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_lease_keeps_a_table_that_was_dropped_and_made_anew(
    conn: herdpy.Connection, load: Load
) -> None:
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    conn.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    with conn.lease() as lease:
        conn.execute("DROP TABLE t")
        for _ in range(2):
            for snapshot in (lease.id, lease.position):
                frame = load(table="t", snapshot=snapshot, columns="v, id")
                assert frame.schema.simpleString() == "struct<v:string,id:bigint>"
                assert sorted(map(tuple, frame.collect())) == [("a", 1), ("b", 2)]
            assert load(query="SELECT max(v) AS v FROM t", snapshot=lease.id).collect() == [("b",)]
            conn.execute("CREATE TABLE IF NOT EXISTS t (v INTEGER)")
        assert load(table="t").schema.simpleString() == "struct<v:int>"


@pytest.mark.parametrize(
    ("options", "sqlstate", "words"),
    [
        ({}, "22023", 'one of the options "table" and "query"'),
        ({"table": "t", "query": "SELECT 1"}, "22023", 'one of the options "table" and "query"'),
        ({"tabel": "t"}, "22023", 'unknown option "tabel".*Did you mean table?'),
        ({"table": "t", "nmPartitions": 4}, "22023", "Did you mean numPartitions?"),
        ({"table": "t", "operation": "upsert"}, "22023", '"operation" is one of writing'),
        ({"query": "SELECT 1", "where": "x"}, "22023", '"where" goes with "table"'),
        ({"table": "t", "numPartitions": "many"}, "22023", "a whole number from 1 to 10,000"),
        ({"table": "t", "fetchBatchRows": 0}, "22023", "a whole number from 1 to 1,000,000"),
        ({"table": "t", "leaseSeconds": "0"}, "22023", "1 to 604,800 seconds"),
        ({"table": "t", "columns": "id,,s"}, "22023", "expected a name"),
        ({"table": "t", "columns": 'id,"s'}, "22023", 'expected a closing "'),
        ({"table": "tt"}, "42P01", 'table "tt" does not exist.*Did you mean t?'),
        ({"table": "t", "columns": "id, ss"}, "42703", 'no column "ss".*Did you mean s?'),
        ({"query": "SELECT nothing FROM t"}, "42703", "nothing"),
        ({"query": "DELETE FROM t"}, "42601", ""),
        ({"table": "t", "schema": "id BIGINT, s INT"}, "42804", "schema says int"),
        ({"table": "t", "schema": "id BIGINT, u STRING"}, "42703", 'no column "u"'),
        ({"table": "t", "where": "id = 'x'"}, "22P02", "invalid input syntax"),
        ({"table": "t", "snapshot": "9999999999.1.1"}, "22023", "not at 9999999999.1.1 yet"),
        ({"table": "t", "snapshot": "nonsense"}, "22023", "expected a position or the id of a"),
        ({"table": "t", "snapshot": "7"}, "22023", "expected a position or the id of a lease"),
        ({"path": "/t", "table": "t"}, "22023", r'option\("table", …\)'),
    ],
)  # fmt: skip
def test_what_cannot_be_says_why(
    conn: herdpy.Connection, load: Load, options: dict[str, object], sqlstate: str, words: str
) -> None:
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
    conn.execute("INSERT INTO t VALUES (1, 'a')")
    with pytest.raises(Exception, match=f"SQLSTATE {sqlstate}") as caught:
        load(**options).collect()
    assert re.search(words, str(caught.value), re.DOTALL), caught.value


def test_no_server_and_a_password_are_told_apart(spark: SparkSession) -> None:
    reader = spark.read.format("herdpy").option("table", "t").option("password", "geheim")
    with pytest.raises(Exception, match="SQLSTATE 08") as caught:
        reader.option("url", "herd://ann@127.0.0.1:1/default?retry_timeout_s=0").load()
    assert "geheim" not in str(caught.value)
    with pytest.raises(Exception, match='expected the option "url"'):
        spark.read.format("herdpy").option("table", "t").load()
