"""Jobs in another tablespace than default: by the URL, or by the option tablespace."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import herdpy
import herdpy.spark
from pyspark_herdpy.options import read_options, write_options
from tests.fixtures.served import served

ADMIN = "the password of admin"
JOBS = "the password of jobs"
ALL = "SELECT id, v FROM t ORDER BY id"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Of a server with two tablespaces: without a user it names, and a path it has, none."""
    data = tmp_path / "data"
    with herdpy.connect(data, autocommit=True) as conn:
        conn.execute("CREATE USER admin SUPERUSER PASSWORD ?", (ADMIN,))
        conn.execute("CREATE USER jobs PASSWORD ?", (JOBS,))
        conn.execute("CREATE TABLESPACE sales OWNER admin")
        conn.execute('CREATE TABLESPACE "a/b c" OWNER admin')
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        conn.execute("INSERT INTO t VALUES (1, 'of default')")
    for tablespace in ("sales", "a/b c"):
        with herdpy.connect(data, tablespace=tablespace, autocommit=True) as conn:
            conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            conn.execute("INSERT INTO t VALUES (1, 'old'), (2, 'old')")
            conn.execute("CREATE USER jobs PASSWORD ?", (JOBS,))
            conn.execute("GRANT SELECT ON t TO jobs")
    with served(data) as server:
        yield server.url


def of(url: str, user: str, path: str = "") -> str:
    return url.replace("//", f"//{user}@").replace("?", f"{path}?")


def frame(spark: SparkSession, first: int, last: int) -> DataFrame:
    return spark.range(first, last, 1, 2).withColumn("v", f.lit("new"))


def test_reads_writes_and_what_is_refused(url: str, spark: SparkSession) -> None:
    def load(**options: str) -> DataFrame:
        return spark.read.format("herdpy").options(table="t", **options).load()

    def save(given: DataFrame, **options: str) -> None:
        given.write.format("herdpy").options(table="t", **options).mode("append").save()

    default = herdpy.connect(of(url, "admin"), password=ADMIN, autocommit=True)
    with (
        default,
        herdpy.connect(
            of(url, "admin"), tablespace="sales", password=ADMIN, autocommit=True
        ) as sales,
    ):
        by_url: dict[str, Any] = {"url": of(url, "admin", "/sales"), "password": ADMIN}
        by_option = {"url": of(url, "admin"), "password": ADMIN, "tablespace": "sales"}
        for options in (by_url, by_option):
            assert sorted(map(tuple, load(**options).collect())) == [(1, "old"), (2, "old")]
        read = load(**by_option)
        assert read.count() == 2
        save(frame(spark, 10, 12), **by_option)
        save(frame(spark, 2, 4), operation="upsert", jobId="one", **by_option)
        expected = [(1, "old"), (2, "new"), (3, "new"), (10, "new"), (11, "new")]
        assert sales.execute(ALL).fetchall() == expected
        assert default.execute(ALL).fetchall() == [(1, "of default")]
        assert read.count() == 2  # its snapshot is a lease of sales
        assert sales.execute("SELECT count(*) FROM sysleases").fetchone() != (0,)
        assert default.execute("SELECT count(*) FROM sysleases").fetchone() == (0,)
        position = herdpy.spark.commit_position(by_url["url"], "one", password=ADMIN)
        assert load(snapshot=position, **by_option).count() == 5
        assert herdpy.spark.commit_position(of(url, "admin"), "one", password=ADMIN) is None

        with pytest.raises(Exception, match="SQLSTATE 23505"):
            save(frame(spark, 1, 2), **by_option)
        of_jobs = {**by_option, "url": of(url, "jobs"), "password": JOBS}
        assert load(**of_jobs).count() == 5
        with pytest.raises(Exception, match="SQLSTATE 42501"):
            save(frame(spark, 20, 21), **of_jobs)
        with pytest.raises(Exception, match="SQLSTATE 42P01"):  # of default it sees no table
            load(url=of(url, "jobs"), password=JOBS).count()
        assert sales.execute(ALL).fetchall() == expected
        herdpy.spark.release(by_url["url"], password=ADMIN)
        herdpy.spark.release(of(url, "jobs", "/sales"), password=JOBS)
        assert sales.execute("SELECT count(*) FROM sysleases").fetchone() == (0,)

    odd = {**by_option, "tablespace": "a/b c"}
    save(frame(spark, 10, 12), **odd)
    assert load(**odd).count() == 4
    herdpy.spark.release(of(url, "admin", "/a%2Fb%20c"), password=ADMIN)


def test_a_tablespace_that_is_not_there(url: str, spark: SparkSession, tmp_path: Path) -> None:
    with served(tmp_path / "open") as server:  # without users: it says what there is
        herdpy.connect(server.url, autocommit=True).close()
        reader = spark.read.format("herdpy").options(url=server.url, table="t")
        with pytest.raises(Exception, match="SQLSTATE 3D000"):
            reader.option("tablespace", "sale").load()
        writer = frame(spark, 1, 2).write.format("herdpy").options(url=server.url, table="t")
        with pytest.raises(Exception, match="SQLSTATE 3D000"):
            writer.option("tablespace", "sale").mode("append").save()
    options = {"url": of(url, "admin"), "password": ADMIN, "table": "t", "tablespace": "sale"}
    with pytest.raises(Exception, match=r"SQLSTATE (28P01|3D000)"):
        spark.read.format("herdpy").options(**options).load()


@pytest.mark.parametrize(
    ("url", "tablespace", "expected"),
    [
        ("herd://h", "sales", "herd://h/sales"),
        ("herd://h/", "sales", "herd://h/sales"),
        ("herd://h/default", "sales", "herd://h/sales"),
        ("herd://u:p%40@[::1]:7?tls=off", "a/b ü", "herd://u:p%40@[::1]:7/a%2Fb%20%C3%BC?tls=off"),
        ("herd+grpc://h:1/sales?x=1", "sales", "herd+grpc://h:1/sales?x=1"),
    ],
)
def test_where_the_option_goes(url: str, tablespace: str, expected: str) -> None:
    given = {"url": url, "table": "t", "tablespace": tablespace}
    assert read_options(given).url == write_options(given).url == expected


def test_two_names_and_none() -> None:
    given = {"url": "herd://u:secret@h/stock", "table": "t", "tablespace": "sales"}
    with pytest.raises(herdpy.ProgrammingError, match="names 'stock' already") as caught:
        read_options(given)
    assert caught.value.sqlstate == "22023"
    assert "secret" not in str(caught.value)
    with pytest.raises(herdpy.ProgrammingError, match='option "tablespace": expected text'):
        write_options({**given, "tablespace": " "})
