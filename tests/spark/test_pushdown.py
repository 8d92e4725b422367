"""Filters of queries: what Spark mixes up, and what herdpy.spark.with_pushdown() sends."""

import datetime
import functools
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as source
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

import herdpy
import herdpy.spark
from pyspark_herdpy.options import read_options
from pyspark_herdpy.pushing import MARKER, PushReader
from pyspark_herdpy.reading import HerdPartition
from tests.fixtures.engines import Background
from tests.fixtures.served import Served
from tests.spark.conftest import Load

SETTING = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, which pushes filters as long as the test runs."""
    spark.conf.set(SETTING, "true")
    yield spark
    spark.conf.unset(SETTING)


@pytest.fixture
def twenty(conn: herdpy.Connection) -> herdpy.Connection:
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
    conn.ingest("t", pa.table({"id": range(20), "s": [f"s{n % 3}" for n in range(20)]}))
    return conn


def leaky() -> type[source.DataSource]:
    """Return a source as Spark's documents show one, which does what its filters say."""

    class Reader(source.DataSourceReader):
        def __init__(self) -> None:
            self.least = 0

        def pushFilters(self, filters: list[source.Filter]) -> Iterator[source.Filter]:
            for item in filters:
                if isinstance(item, source.GreaterThan):
                    self.least = item.value + 1
                else:
                    yield item

        def read(self, partition: source.InputPartition) -> Iterator[tuple[int]]:
            del partition
            for number in range(self.least, 20):
                yield (number,)

    class Source(source.DataSource):
        @classmethod
        def name(cls) -> str:
            return "leaky"

        def schema(self) -> str:
            return "id BIGINT"

        def reader(self, schema: StructType) -> source.DataSourceReader:
            del schema
            return Reader()

    return Source


def test_spark_mixes_up_the_filters_of_a_data_frame(pushing: SparkSession) -> None:
    """When this fails Spark has mended it, and with_pushdown() may become simpler."""
    pushing.dataSource.register(leaky())
    frame = pushing.read.format("leaky").load()
    late = frame.filter("id > 15")
    assert late.count() == 4
    assert frame.count() == 4  # of 20
    assert late.union(frame).count() == 8  # of 24


def test_frames_that_push_nothing_do_not_leak(
    twenty: herdpy.Connection, load: Load, pushing: SparkSession
) -> None:
    frame = load(table="t")
    assert frame.filter("id > 15").count() == 4
    assert frame.count() == 20
    assert frame.filter("id > 15").union(frame).count() == 24


def test_all_plans_of_a_data_frame_read_one_state(
    twenty: herdpy.Connection, load: Load, pushing: SparkSession
) -> None:
    """Spark plans it anew for each filter that it pushes, and for subqueries in threads at once."""
    frame = load(table="t")
    assert frame.count() == 20
    twenty.execute("DELETE FROM t WHERE id >= 10")
    assert (frame.where("id >= 0").count(), frame.count()) == (20, 20)
    assert load(table="t").count() == 10
    with twenty.lease() as lease:
        twenty.execute("DELETE FROM t WHERE id >= 5")
        kept = load(table="t", snapshot=str(lease.position))
        assert kept.count() == 10
    with pytest.raises(Exception, match="SQLSTATE 72000"):
        kept.where("id >= 0").count()
    twenty.execute("CREATE TABLE other (id BIGINT PRIMARY KEY)")
    other = load(table="other")
    assert other.count() == 0
    twenty.execute("DROP TABLE other")
    assert other.where("id >= 0").count() == 0  # at its lease the table is there
    twenty.execute("INSERT INTO t SELECT id + 5, s FROM t")
    pushing.conf.unset(SETTING)
    is_over = threading.Event()

    def move() -> None:
        while not is_over.is_set():
            twenty.execute("UPDATE t SET id = 1000 - id WHERE id IN (0, 1000)")

    with Background() as background:
        background.start(move)
        try:
            for _ in range(4):
                load(table="t").createOrReplaceTempView("seen")
                parts = (f"(SELECT count(*) FROM seen WHERE id % 7 = {n})" for n in range(7))
                assert pushing.sql(f"SELECT {' + '.join(parts)}").collect()[0][0] == 10
        finally:
            is_over.set()


def test_decimals_of_all_their_digits(
    server: Served, conn: herdpy.Connection, pushing: SparkSession
) -> None:
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, d DECIMAL(38,10))")
    long = "12345678901234567890.1234567891"
    conn.execute(f"INSERT INTO t VALUES (1, {long}), (2, 1), (3, -{long})")
    for condition, ids in (
        (f"d = {long}BD", [1]),
        (f"d >= {long}BD", [1]),
        (f"d IN (1BD, -{long}BD)", [2, 3]),
        ("d < 9999999999999999999999999999.9999999999BD", [1, 2, 3]),
    ):
        found = herdpy.spark.with_pushdown(pushing, url=server.url, table="t").where(condition)
        assert sorted(row.id for row in found.collect()) == ids, condition


def test_what_would_leak_is_refused_and_nothing_else(
    server: Served, twenty: herdpy.Connection, pushing: SparkSession
) -> None:
    def made() -> DataFrame:
        return herdpy.spark.with_pushdown(pushing, url=server.url, table="t")

    frame = made()
    late = frame.filter("id > 15")
    assert frame.columns == ["id", "s"]
    assert late.count() == 4
    assert late.filter("id < 18").count() == 2  # asks for no row that was not sent
    assert [row.id for row in late.orderBy("id").collect()] == [16, 17, 18, 19]
    twenty.execute("DELETE FROM t WHERE id = 19")
    assert late.count() == 4  # one snapshot for each DataFrame
    for other in (frame, frame.filter("id > 14"), frame.filter("id < 3"), late.union(frame)):
        with pytest.raises(Exception, match="SQLSTATE 55000") as caught:
            other.count()
        assert '"id" > ?, which this query does not ask for' in str(caught.value)
    assert late.count() == 4
    frame = made()
    assert frame.count() == 19
    assert frame.filter("id > 15").count() == 3  # everything was sent, Spark takes of it
    assert frame.filter("id > 15").union(frame).count() == 22
    assert made().filter("id > 15").join(made(), "id").count() == 3


def test_in_spark_sql(server: Served, twenty: herdpy.Connection, pushing: SparkSession) -> None:
    frame = herdpy.spark.with_pushdown(pushing, url=server.url, table="t", where="id < 10 -- few")
    frame.createOrReplaceTempView("seen")
    assert pushing.sql("SELECT count(*) FROM seen WHERE s = 's1' AND id > 1").collect() == [(2,)]
    with pytest.raises(Exception, match="SQLSTATE 55000"):
        pushing.sql("SELECT count(*) FROM seen WHERE s = 's2'").collect()
    pushing.catalog.dropTempView("seen")


def test_what_is_sent(server: Served, twenty: herdpy.Connection, tmp_path: Path) -> None:
    """As Spark's planner and a task do it, without them: fewer rows come."""
    state = tmp_path / "plan"
    state.touch()
    given = {"url": server.url, "table": "T", "pushdown": str(state)}
    fields = [("S", StringType()), ("id", LongType()), (MARKER, BooleanType())]
    schema = StructType([StructField(name, kind) for name, kind in fields])
    first, second = (PushReader(read_options(given), schema, frame) for frame in "ab")
    marked = source.IsNull((MARKER,))
    wanted = [
        source.In(("id",), (1, 2, 3, 4)),
        source.Not(source.StringEndsWith(("S",), "1")),
        source.EqualTo(("S", "inner"), 1),  # of a struct: Spark's own
    ]
    assert list(first.pushFilters([marked, *wanted])) == [marked, *wanted]
    list(second.pushFilters([*wanted, source.GreaterThan(("id",), 2), marked]))
    for reader in (first, second):
        (part,) = reader.partitions()
        assert isinstance(part, HerdPartition)
        (batch,) = reader.read(part)
        rows = batch.to_pylist()
        assert sorted(row["id"] for row in rows) == [2, 3]
        assert list(rows[0]) == ["S", "id", MARKER]
    assert twenty.execute("SELECT count(*) FROM sysleases").fetchone() == (1,)
    twenty.execute("DELETE FROM t")
    twenty.release_lease(part.lease)  # that of both


DATA = [
    (1, True, 1.5, "a_b", datetime.date(2024, 2, 29), "2024-03-10 02:30", "2024-03-10 02:30-05"),
    (2, False, float("nan"), "a%b", datetime.date(1, 1, 1), "1969-12-31", "1969-12-31 23:59Z"),
    (3, None, -0.0, "axb!", datetime.date(9999, 12, 31), "9999-12-31", "9998-12-31 00:00Z"),
    (4, True, float("inf"), "", None, None, None),
    (5, None, None, None, None, None, None),
    (6, False, 0.0, "ünï'\\", datetime.date(2024, 3, 1), "2024-03-10", "2024-03-10 00:00Z"),
]


FILTERS = [
    "b = true", "NOT b", "b <=> null", "id IN (1, 3, 9)", "id NOT IN (1, 3)", "id <=> 4",
    "NOT (id <=> 4)", "id > 2 AND id <= 5", "id > 2147483648", "d = 3.00", "d > 2.5", "x = 0.0",
    "x > 1.0", "x < 1.0", "x = double('nan')", "x IN (0.0D, double('nan'))", "x != 1.5",
    "s = 'a_b'", "s LIKE 'a_%'", "s LIKE '%!'", "contains(s, '_')", "contains(s, '%')",
    "startswith(s, 'a%')", "endswith(s, '!')", "s > 'a'", "s != ''", "s = 'ünï\\'\\\\'",
    "s IN ('a%b', null)", "NOT startswith(s, 'a')", "day > DATE '2024-02-29'",
    "day IN (DATE '0001-01-01')", "t >= TIMESTAMP_NTZ '2024-03-10 00:00:00'",
    "t = TIMESTAMP_NTZ '1969-12-31 00:00:00'", "z > TIMESTAMP '1969-12-31 18:59:00'",
    "z = TIMESTAMP '1969-12-31 18:59:00'", "s IS NULL OR id = 1", "y = X'00ff'",
    "upper(s) = 'AXB!' AND id = 3", "s > concat('a', char(0))", "contains(s, char(0))",
    "s IN ('a_b', char(0))", "v < 'abcdef'", "v = 'abcdef'", "v IN ('v1', 'abcdef')",
]  # fmt: skip


def test_every_filter_means_what_it_means_to_spark(
    server: Served, filled: herdpy.Connection, pushing: SparkSession, load: Load
) -> None:
    frames = [
        herdpy.spark.with_pushdown(pushing, url=server.url, table="f", numPartitions=1)
        .where(text)
        .selectExpr(f"{number} AS filter", "id")
        for number, text in enumerate(FILTERS)
    ]
    found = functools.reduce(DataFrame.unionAll, frames).collect()
    (whole,) = (
        load(table="f")
        .selectExpr(
            *[
                f"collect_set(CASE WHEN {text} THEN id END) AS f{n}"
                for n, text in enumerate(FILTERS)
            ]
        )
        .collect()
    )
    for number, text in enumerate(FILTERS):
        assert sorted(row.id for row in found if row["filter"] == number) == sorted(
            whole[number]
        ), text


@pytest.fixture
def filled(conn: herdpy.Connection) -> herdpy.Connection:
    conn.execute(
        "CREATE TABLE f (id INTEGER PRIMARY KEY, b BOOLEAN, x DOUBLE PRECISION, s TEXT, day DATE,"
        " t TIMESTAMP, z TIMESTAMPTZ, d DECIMAL(5,2), y BYTEA, v VARCHAR(3))"
    )
    conn.executemany(
        "INSERT INTO f VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(*row, row[0], b"\0\xff" if row[0] == 2 else None, f"v{row[0]}") for row in DATA],
    )
    return conn


def test_what_cannot_be_pushed_says_why(
    server: Served, twenty: herdpy.Connection, spark: SparkSession, load: Load
) -> None:
    with pytest.raises(herdpy.InterfaceError, match=f"{SETTING} is not true"):
        herdpy.spark.with_pushdown(spark, url=server.url, table="t")
    with pytest.raises(Exception, match=r"with_pushdown.* sets by itself"):
        load(table="t", pushdown="true")
    spark.conf.set(SETTING, "true")
    try:
        with pytest.raises(Exception, match='"pushdown" goes with "table"'):
            herdpy.spark.with_pushdown(spark, url=server.url, query="SELECT 1")
        frame = herdpy.spark.with_pushdown(spark, url=server.url, table="t")
        spark.conf.unset(SETTING)
        with pytest.raises(Exception, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
            frame.count()
    finally:
        spark.conf.unset(SETTING)


def test_a_data_frame_taken_apart_is_refused(
    server: Served, twenty: herdpy.Connection, pushing: SparkSession, load: Load, tmp_path: Path
) -> None:
    state = tmp_path / "plan"
    state.touch()
    for text in ("id > 5", "id > 5 AND id < 7", "true"):
        with pytest.raises(Exception, match="was taken apart"):
            load(table="t", pushdown=str(state)).where(text).count()
