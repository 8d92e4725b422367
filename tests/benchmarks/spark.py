"""Spark on herdpy against Parquet files and against JDBC from PostgreSQL 15: `make bench-spark`.

One local Spark reads and writes the same rows in all three: `herdpy serve` on a durable directory,
Parquet files, and a PostgreSQL with its default settings. Contenders go by turns, figures are
medians of the rounds after one that warms up. What is read goes to Spark's sink "noop", which
takes every column of every row; the plan is made within the time, too. --quick: a few rows,
without PostgreSQL.
"""

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import herdpy
import herdpy.spark
from tests.benchmarks.harness import Bench, fdatasync_us, replace_table
from tests.benchmarks.jdbc import COORDINATES, DRIVER, NoJdbcError, jdbc_jar, jdbc_url
from tests.benchmarks.ledger_plots import draw
from tests.benchmarks.network import herdpy_server
from tests.benchmarks.network_client import TYPES, Psycopg
from tests.benchmarks.spark_plots import draw_curves
from tests.fixtures.postgres import NoPostgresError, running_postgres, version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DOCUMENT = Path("docs/BENCHMARKS.md")
PEER = "Parquet or JDBC"
JDBC_PARTITIONS = 8
READ_TUNED = {"fetchsize": "10000"}
"""Of JDBC; its default has all rows of a partition in memory at once."""
PLAIN: dict[str, str] = {}
TUNED = {"batchsize": "10000", "reWriteBatchedInserts": "true"}
"""Of JDBC's append; the default is 1,000 rows at a time, each an INSERT of its own."""
PARTITION_COUNTS = (1, 2, 4, 8, 16, 32)
SHARES = (50, 10, 5, 2)
"""The curve over rows has tables of the big one's rows divided by these."""
OTHER_SHARE = 5
OTHER_TYPES = "id BIGINT PRIMARY KEY, w BIGINT"

Times = dict[str, dict[str, list[float]]]


class Parquet:
    """Files in a folder."""

    name = "Parquet"

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def path(self, table: str) -> str:
        return str(self._folder / table)

    def read(self, table: str) -> "DataFrame":
        return self._spark.read.parquet(self.path(table))

    def rows(self, table: str) -> pa.Table:
        return pq.read_table(self.path(table))


class Herdpy:
    """Tables of a herdpy server."""

    name = "herdpy"

    def __init__(self, spark: "SparkSession", url: str) -> None:
        self._spark = spark
        self.url = url
        self.main = herdpy.connect(url, autocommit=True)

    def load(self, table: str, types: str, rows: pa.Table) -> None:
        self.main.execute(f"CREATE TABLE {table} ({types})")
        self.main.ingest(table, rows)
        self.main.checkpoint()

    def read(self, table: str, **options: Any) -> "DataFrame":
        reader = self._spark.read.format("herdpy").option("url", self.url).options(**options)
        return reader.option("table", table).load()

    def append(self, frame: "DataFrame", table: str, options: dict[str, str]) -> None:
        writer = frame.write.format("herdpy").option("url", self.url).options(**options)
        writer.option("table", table).mode("append").save()


class Jdbc:
    """Tables of PostgreSQL, by Spark's own source."""

    name = "JDBC"

    def __init__(self, spark: "SparkSession", conninfo: str, rows: int) -> None:
        self._spark = spark
        self._options = {"url": jdbc_url(conninfo), "driver": DRIVER}
        self._rows = rows
        self._psycopg = Psycopg(conninfo)
        self.main = self._psycopg.main

    def load(self, table: str, types: str, rows: pa.Table) -> None:
        self.main.execute(f"CREATE TABLE {table} ({types})")
        self._psycopg.ingest(table, rows)
        self.main.execute("CHECKPOINT")
        self.main.execute(f"ANALYZE {table}")

    def read(self, table: str, options: dict[str, str] = READ_TUNED) -> "DataFrame":
        """Read by ranges of the key."""
        reader = self._spark.read.format("jdbc").options(**self._options).options(**options)
        return reader.options(
            dbtable=table,
            partitionColumn="id",
            lowerBound=0,
            upperBound=self._rows,
            numPartitions=JDBC_PARTITIONS,
        ).load()

    def append(self, frame: "DataFrame", table: str, options: dict[str, str]) -> None:
        writer = frame.write.format("jdbc").options(**self._options).options(**options)
        writer.option("dbtable", table).mode("append").save()


class Cases:
    """The cases, each run once a round by every contender."""

    def __init__(self, files: Parquet, ours: Herdpy, peer: Jdbc | None, written: int) -> None:
        self.times: Times = {}
        self._files = files
        self._ours = ours
        self._peer = peer
        self._written = written
        self.partition_counts: tuple[int, ...] = PARTITION_COUNTS
        self._joined: list[Any] = []

    def round(self, number: int) -> None:
        """Do everything once; round 0 warms up, and does not count."""
        # First, as Spark ends Python's workers that were idle for a minute, and keeps its own.
        for count in self.partition_counts:
            frame = lambda n=count: self._ours.read("big", numPartitions=n)  # noqa: E731
            self._time("partitions", str(count), number, lambda f=frame: _take(f()))
        for share in SHARES:
            self._time(
                "rows", str(share), number, lambda s=share: _take(self._ours.read(f"big_{s}"))
            )
        sources = [self._ours, self._files, *([] if self._peer is None else [self._peer])]
        turn = number % len(sources)
        for source in [*sources[turn:], *sources[:turn]]:
            name = "JDBC tuned" if isinstance(source, Jdbc) else source.name
            self._time("read", name, number, lambda s=source: _take(s.read("big")))
            if isinstance(source, Jdbc):
                plain = lambda s=source: s.read("big", PLAIN)  # noqa: E731
                self._time("read", "JDBC", number, lambda f=plain: _take(f()))
            self._time("join", source.name, number, lambda s=source: self._join(s))
        sinks: list[tuple[str, Herdpy | Jdbc, dict[str, str]]] = [("herdpy", self._ours, PLAIN)]
        if self._peer is not None:
            sinks += [("JDBC", self._peer, PLAIN), ("JDBC tuned", self._peer, TUNED)]
        for name, sink, options in sinks if number % 2 else reversed(sinks):
            self._append(name, sink, options, number)
        herdpy.spark.release(self._ours.url)

    def _append(self, name: str, sink: Herdpy | Jdbc, options: dict[str, str], number: int) -> None:
        frame = self._files.read("source")
        if not number:
            frame = frame.limit(self._written // 10)  # enough to warm up
        rows = frame.count()
        sink.main.execute(f"CREATE TABLE written ({TYPES})")
        self._time("append", name, number, lambda: sink.append(frame, "written", options))
        ((found,),) = sink.main.execute("SELECT count(*) FROM written").fetchall()
        if found != rows:
            raise AssertionError(f"{name}: expected {rows} rows, found {found}")
        sink.main.execute("DROP TABLE written")

    def _join(self, source: Parquet | Herdpy | Jdbc) -> None:
        """Join two tables by their keys; all contenders have to find the same."""
        joined = source.read("big").join(source.read("other"), "id")
        found = joined.groupBy("a").sum("w").sort("a").collect()
        self._joined = self._joined or found
        if found != self._joined:
            raise AssertionError(f"{source.name}: the join found other rows")

    def _time(self, case: str, name: str, number: int, run: Callable[[], None]) -> None:
        start = perf_counter()
        run()
        taken = perf_counter() - start
        print(f"  {case:10} {name:10} {taken:8.3f} s", flush=True)
        if number:
            self.times.setdefault(case, {}).setdefault(name, []).append(taken)


def _take(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def measure(folder: Path, options: argparse.Namespace, jar: Path | None) -> tuple[Bench, Cases]:
    bench = Bench("spark-quick" if options.quick else "spark", options.rounds)
    calibrations = [fdatasync_us(folder)]
    with ExitStack() as stack:
        spark = _session(jar)
        stack.callback(spark.stop)
        url, _ = stack.enter_context(herdpy_server(folder / "herdpy"))
        files, ours, peer = Parquet(spark, folder / "files"), Herdpy(spark, url), None
        if jar is not None:
            conninfo, _ = stack.enter_context(running_postgres(folder / "postgres"))
            peer = Jdbc(spark, conninfo, options.rows)
        _load(spark, files, ours, peer, options)
        cases = Cases(files, ours, peer, options.written)
        if options.quick:
            cases.partition_counts = PARTITION_COUNTS[:2]
        for number in range(1 if options.quick else 0, options.rounds + 1):
            print(f"round {number} of {options.rounds}{'' if number else ' (warm-up)'}", flush=True)
            cases.round(number)
        calibrations.append(fdatasync_us(folder))
    bench.fdatasync_us = round(statistics.median(calibrations), 1)
    return bench, cases


def _session(jar: Path | None) -> "SparkSession":
    settings = {} if jar is None else {"spark_driver_extraClassPath": str(jar)}
    spark = herdpy.spark.session(
        "bench-spark",
        spark_ui_enabled="false",
        spark_ui_showConsoleProgress="false",
        spark_driver_bindAddress="127.0.0.1",
        spark_driver_host="127.0.0.1",
        spark_driver_memory="2g",
        spark_sql_shuffle_partitions="4",
        **settings,
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _load(
    spark: "SparkSession",
    files: Parquet,
    ours: Herdpy,
    peer: Jdbc | None,
    options: argparse.Namespace,
) -> None:
    """Make rows 0 to n - 1, as network_client.make_row() has them, and a table to join."""

    def frame(count: int) -> "DataFrame":
        return spark.range(0, count, 1, 4).selectExpr(
            "id",
            "id % 100 AS a",
            "id * 7 % 1000003 AS b",
            "id * 0.25D AS x",
            "concat('name of ', id) AS name",
            "concat('city ', id % 100) AS city",
        )

    rows: int = options.rows
    other = spark.range(0, rows // OTHER_SHARE, 1, 2)
    frame(rows).write.parquet(files.path("big"))
    frame(options.written).write.parquet(files.path("source"))
    other.selectExpr(f"id * {OTHER_SHARE} AS id", "id AS w").write.parquet(files.path("other"))
    for sink in [ours] if peer is None else [ours, peer]:
        sink.load("big", TYPES, files.rows("big"))
        sink.load("other", OTHER_TYPES, files.rows("other"))
    for share in SHARES:
        ours.load(f"big_{share}", TYPES, files.rows("big").slice(0, rows // share))


def report(bench: Bench, times: Times, rows: int, written: int) -> None:
    def add(title: str, case: str, peer: str, count: int, bar: float | None) -> None:
        taken = times[case]
        theirs = count / statistics.median(taken[peer]) if peer in taken else None
        mine = count / statistics.median(taken["herdpy"])
        name = f"{title} : {peer}" if theirs else title
        bench.add(name, "1/s", mine, theirs, PEER, bar if theirs else None, better="higher")

    add(f"rows read, {rows:,}", "read", "Parquet", rows, 0.5)
    add(f"rows appended, {written:,}", "append", "JDBC", written, 1.5)
    if "JDBC" in times["read"]:
        add(f"rows appended, {written:,}", "append", "JDBC tuned", written, 1.5)
        for peer in ("JDBC", "JDBC tuned"):
            add(f"rows read, {rows:,}", "read", peer, rows, 3.0)
    for peer in ("Parquet", "JDBC"):
        if peer in times["join"]:
            taken = times["join"]
            mine, theirs = (statistics.median(taken[each]) for each in ("herdpy", peer))
            bench.add(f"two tables joined : {peer}", "s", mine, theirs, peer)
    for (count, taken), title in [
        *((item, "partitions") for item in curve(times, "partitions")),
        *((item, "rows") for item in curve(times, "rows", rows)),
    ]:
        bench.add(f"read, {count:,} {title}", "s", taken, None, None)


def curve(times: Times, case: str, rows: int = 0) -> list[tuple[int, float]]:
    """Return a number and its time, by the number; with `rows`, names are what divides them."""
    found = [
        (rows // int(name) if rows else int(name), statistics.median(taken))
        for name, taken in times[case].items()
    ]
    if rows:
        found.append((rows, statistics.median(times["read"]["herdpy"])))
    return sorted(found)


def _jar(*, quick: bool) -> Path | None:
    """Return the jar of the peer that can be run; None, aloud: there is none."""
    if quick:
        return None
    try:
        import psycopg

        jar = jdbc_jar()
        print(f"peer: {version()}, {COORDINATES}, loaded by psycopg {psycopg.__version__}")
    except (ImportError, NoPostgresError, NoJdbcError) as error:
        print(f"*** SKIPPED, all of JDBC: {error}")
        return None
    return jar


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=5_000_000, help="to read")
    parser.add_argument("--written", type=int, default=2_000_000, help="rows to append")
    parser.add_argument("--quick", action="store_true", help="a few rows, without PostgreSQL")
    parser.add_argument("--plot", type=Path, help="the plot, and the table of docs/BENCHMARKS.md")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.rows, options.written = 1, 2_000, 1_000
    jar = _jar(quick=options.quick)
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as folder:
        bench, cases = measure(Path(folder), options, jar)
    report(bench, cases.times, options.rows, options.written)
    document, table = bench.write(), bench.write_markdown()
    print(f"\nwrote {document}, {table}", end="\n" if options.quick else "")
    if options.quick:
        return
    curves = {
        "partitions": curve(cases.times, "partitions"),
        "rows": curve(cases.times, "rows", options.rows),
    }
    pictures = [*draw(document, "Parquet's or JDBC's"), *draw_curves(document, curves)]
    print("".join(f", {picture}" for picture in pictures))
    if options.plot is not None:
        for picture in pictures:
            # build/bench/spark-x.png as <plot>-x.png
            name = options.plot.stem + picture.stem.removeprefix(document.stem)
            shutil.copyfile(picture, options.plot.with_stem(name))
        replace_table(DOCUMENT, bench.name, table.read_text())
        print(f"renewed {options.plot} and {DOCUMENT}")
    missed = [figure.name for figure in bench.figures if figure.ok is False]
    if missed:
        print(f"*** bars missed: {', '.join(missed)}")
    print(f"{os.cpu_count()} cores")


if __name__ == "__main__":
    main()
