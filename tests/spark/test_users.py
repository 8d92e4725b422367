"""A server with users: what a job may do, and which snapshots it can name."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import herdpy
import herdpy.spark
from tests.fixtures.served import served

ADMIN = "the password of admin"
JOBS = "the password of jobs"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Of a server with a superuser and a user of jobs, without user and password."""
    with herdpy.connect(tmp_path / "data", autocommit=True) as conn:
        conn.execute("CREATE USER admin SUPERUSER PASSWORD ?", (ADMIN,))
        conn.execute("CREATE USER jobs PASSWORD ?", (JOBS,))
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        conn.execute("GRANT SELECT ON t TO jobs")
    with served(tmp_path / "data") as server:
        yield server.url


def test_rights_and_snapshots_of_users(url: str, spark: SparkSession) -> None:
    """All have every commit up to a position; just one state has who has the id of its lease."""
    of_jobs = url.replace("//", "//jobs@")

    def load(**options: str) -> DataFrame:
        options = {"url": of_jobs, "password": JOBS, "table": "t", **options}
        return spark.read.format("herdpy").options(**options).load()

    with (
        herdpy.connect(url.replace("//", "//admin@"), password=ADMIN, autocommit=True) as admin,
        herdpy.connect(of_jobs, password=JOBS) as jobs,
    ):
        admin.execute("INSERT INTO t VALUES (1)")
        position = admin.position
        admin.execute("INSERT INTO t VALUES (2)")
        with jobs.lease() as lease, admin.lease() as other:
            admin.execute("INSERT INTO t VALUES (3)")
            assert load(snapshot=position).count() == 3
            assert load(snapshot=lease.id).count() == 2
            assert load(snapshot=lease.position).count() == 3  # sysleases is for superusers
            with pytest.raises(Exception, match=r"SQLSTATE (42501|72000)"):
                load(snapshot=other.id).count()
        writer = load().selectExpr("id + 10 AS id").write.format("herdpy").mode("append")
        writer = writer.option("url", of_jobs).option("password", JOBS)
        with pytest.raises(Exception, match="SQLSTATE 42501"):
            writer.option("table", "t").save()
        with pytest.raises(Exception, match="SQLSTATE 42501"):
            writer.option("table", "u").option("createTable", "true").save()
        admin.execute("GRANT INSERT ON t TO jobs")
        writer.option("table", "t").option("createTable", "false").save()
        assert admin.execute("SELECT sum(id) FROM t").fetchone() == (1 + 2 + 3 + 11 + 12 + 13,)
        herdpy.spark.release(of_jobs, password=JOBS)
        assert admin.execute("SELECT count(*) FROM sysleases").fetchone() == (0,)
        of_admin = url.replace("//", "//admin@")
        assert load(url=of_admin, password=ADMIN).count() == 6
        assert load().count() == 6
        leases = "SELECT user_name FROM sysleases ORDER BY user_name"
        assert herdpy.spark.release(of_jobs, password=JOBS) == 1  # its own, and no error
        assert admin.execute(leases).fetchall() == [("admin",)]
        assert herdpy.spark.release(of_admin, password=ADMIN) == 1
        assert admin.execute(leases).fetchall() == []
    with pytest.raises(Exception, match="SQLSTATE 28P01") as caught:
        load(password="not this one")
    assert "not this one" not in str(caught.value)
    with pytest.raises(Exception, match="a password needs a server and a user"):
        load(url=url)
