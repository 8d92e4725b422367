"""One real Spark and one real server process for all tests of this folder."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import herdpy
import herdpy.spark
from tests.fixtures.served import Served, served


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served") / "data") as made:
        yield made


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = herdpy.spark.session(
        master="local[2,3]",  # a task that fails is tried again, as on a cluster
        spark_ui_enabled="false",
        spark_driver_bindAddress="127.0.0.1",
        spark_driver_host="127.0.0.1",
        spark_driver_extraJavaOptions="-XX:TieredStopAtLevel=1",
        spark_sql_shuffle_partitions="2",
        spark_sql_session_timeZone="America/New_York",
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture
def conn(server: Served) -> Iterator[herdpy.Connection]:
    """A connection to a server without tables, as it was before and will be behind."""
    with herdpy.connect(server.url, autocommit=True) as connection:
        yield connection
        herdpy.spark.release(server.url)
        for (name,) in connection.execute("SHOW TABLES").fetchall():
            quoted = name.replace('"', '""')
            connection.execute(f'DROP TABLE "{quoted}"')
        assert connection.execute("SELECT count(*) FROM sysleases").fetchone() == (0,)


Load = Callable[..., DataFrame]


@pytest.fixture
def load(spark: SparkSession, server: Served) -> Load:
    """load(table="t", columns="a,b", …) → DataFrame."""

    def made(schema: str | None = None, **options: Any) -> DataFrame:
        reader = spark.read.format("herdpy").option("url", server.url).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    return made


Save = Callable[..., None]


@pytest.fixture
def save(server: Served) -> Save:
    """save(frame, table="t", operation="upsert", …); mode="append" unless another is given."""

    def made(frame: DataFrame, mode: str = "append", **options: Any) -> None:
        writer = frame.write.format("herdpy").option("url", server.url).options(**options)
        writer.mode(mode).save()

    return made
