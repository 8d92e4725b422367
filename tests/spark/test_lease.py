"""How long a DataFrame's snapshot is kept, and what a task holds of a table."""

from contextlib import closing

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

import herdpy
import herdpy.spark
from pyspark_herdpy.options import read_options
from pyspark_herdpy.reading import HerdReader
from tests.fixtures.served import Served
from tests.spark.conftest import Load

LEASES = "SELECT count(*) FROM sysleases"


@pytest.fixture
def wide(conn: herdpy.Connection) -> herdpy.Connection:
    """A table t of about 80 MB, as Spark gets it."""
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
    for first in range(0, 400_000, 50_000):
        ids = range(first, first + 50_000)
        conn.ingest("t", pa.table({"id": ids, "s": [f"{n:0200}" for n in ids]}), mode="append")
    return conn


def made(server: Served, **options: str) -> HerdReader:
    schema = StructType([StructField("id", LongType()), StructField("s", StringType())])
    return HerdReader(read_options({"url": server.url, "table": "t", **options}), schema, "frame")


def until_gone(conn: herdpy.Connection, lease: str) -> None:
    text = "SELECT count(*) FROM sysleases WHERE lease = ?"
    while conn.execute(text, (lease,)).fetchone() != (0,):
        pass


def test_it_ends_when_no_task_uses_it(server: Served, conn: herdpy.Connection) -> None:
    """Of a program without a keeper, or behind a keeper's end."""
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
    reader = made(server, leaseSeconds="1")
    (part,) = reader.partitions()
    ((lease, seconds),) = conn.execute("SELECT lease, seconds FROM sysleases").fetchall()
    assert seconds == 1.0
    until_gone(conn, lease)
    with pytest.raises(herdpy.Error, match="SQLSTATE 72000") as caught:
        list(reader.read(part))
    assert "the snapshot of this DataFrame is gone" in str(caught.value)
    assert "a greater leaseSeconds keeps it longer between actions" in str(caught.value)


def test_a_dataframe_whose_lease_was_released_says_so(
    server: Served, conn: herdpy.Connection, load: Load
) -> None:
    conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    frame = load(table="t")
    assert frame.count() == 0
    assert herdpy.spark.release(server.url) == 1
    assert herdpy.spark.release(server.url) == 0
    with pytest.raises(Exception, match="SQLSTATE 72000"):
        frame.count()


def test_a_task_keeps_it_however_slow_it_is(server: Served, wide: herdpy.Connection) -> None:
    reader = made(server, leaseSeconds="3", numPartitions="1", fetchBatchRows="10000")
    (part,) = reader.partitions()
    batches = reader.read(part)
    count = next(batches).num_rows
    wide.execute("DELETE FROM t WHERE id % 2 = 0")
    wide.checkpoint()
    until_gone(wide, wide.lease(3).id)  # what is unused for so long is gone
    assert wide.execute(LEASES).fetchone() == (1,)
    assert count + sum(batch.num_rows for batch in batches) == 400_000
    assert sum(batch.num_rows for batch in reader.read(part)) == 400_000
    wide.execute("SELECT lease FROM sysleases")
    wide.release_lease(lease_of(part))


def lease_of(part: InputPartition) -> str:
    return str(vars(part)["lease"])


def test_a_task_holds_a_few_batches(server: Served, wide: herdpy.Connection) -> None:
    reader = made(server, numPartitions="1")
    (part,) = reader.partitions()
    before = pa.total_allocated_bytes()
    most = rows = 0
    for batch in reader.read(part):
        rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == 400_000
    assert most < 24 * 1024 * 1024  # of 80
    wide.release_lease(lease_of(part))


def test_a_limit_leaves_nothing_open(server: Served, wide: herdpy.Connection, load: Load) -> None:
    """What a task does not read to its end is let go by the server."""
    assert len(load(table="t", numPartitions=2).limit(3).collect()) == 3
    reader = made(server)
    part = reader.partitions()[0]
    with closing(reader.read(part)) as batches:  # type: ignore[type-var]
        next(batches)
    assert wide.release_lease(lease_of(part))
    with herdpy.connect(server.url, autocommit=True) as other:
        other.execute("DROP TABLE t")
