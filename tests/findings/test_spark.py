"""Findings about the Spark connector: programs of a user, on one real local Spark for them all.

Each takes seconds, and Spark's start some more; `make spark` runs none of these, `make integration`
a third. Programs run in a process of their own where the process's end is what is looked at.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import herdpy
import herdpy.spark

pyspark = pytest.importorskip("pyspark")

pytestmark = [
    pytest.mark.integration,  # Java, and seconds each
    pytest.mark.exhaustive,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]
SETTINGS: dict[str, str] = {
    "spark_ui_enabled": "false",
    "spark_driver_bindAddress": "127.0.0.1",
    "spark_driver_host": "127.0.0.1",
    "spark_driver_extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark_sql_shuffle_partitions": "2",
    "spark_sql_session_timeZone": "America/New_York",
}
SECRET = "a password of words"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    made = herdpy.spark.session(master="local[2,1]", **SETTINGS)
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


class Shared:
    """A server for all tests of this module, with users, and what a test does with it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.conn = herdpy.connect(url.replace("//", "//root@"), password=SECRET, autocommit=True)

    def options(self, user: str = "root") -> dict[str, Any]:
        return {"url": self.url.replace("//", f"//{user}@"), "password": SECRET}

    def load(self, spark: Any, table: str = "t", **options: Any) -> Any:
        reader = spark.read.format("herdpy").options(**self.options(), table=table, **options)
        return reader.load()

    def save(self, frame: Any, table: str = "t", user: str = "root", **options: Any) -> None:
        writer = frame.write.format("herdpy").options(**self.options(user), table=table, **options)
        writer.mode("append").save()

    def rows(self, text: str = "SELECT * FROM t ORDER BY 1") -> list[tuple[Any, ...]]:
        return self.conn.execute(text).fetchall()

    def lease_count(self) -> int:
        return int(self.rows("SELECT count(*) FROM sysleases")[0][0])

    def table(self, columns: str) -> None:
        self.conn.execute("DROP TABLE IF EXISTS t")
        self.conn.execute(f"CREATE TABLE t ({columns})")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("served")
    with herdpy.connect(folder / "data", autocommit=True) as conn:
        conn.execute("CREATE USER root SUPERUSER PASSWORD ?", (SECRET,))
        for name in ("writer", "remover"):
            conn.execute(f"CREATE USER {name} PASSWORD ?", (SECRET,))
    process = subprocess.Popen(
        [sys.executable, "-m", "herdpy.cli", "serve", str(folder / "data"), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    line = next(line for line in process.stdout if "herd://" in line)
    made = Shared(line.split(" at ")[-1].split()[0])
    yield made
    made.conn.close()
    process.kill()
    process.communicate()


def refusal(act: Callable[[], object]) -> str:
    """Return what an error says, with its SQLSTATE; "": there was none."""
    try:
        act()
    except Exception as error:
        return str(error)
    return ""


def in_thread(act: Callable[[], object]) -> str:
    """Run a function in a new thread; return what its error says."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(refusal(act)))
    thread.start()
    thread.join()
    return found[0]


def active(spark: Any) -> Any:
    """Return the helper for threads; what an older program has instead does nothing."""
    helper = getattr(herdpy.spark, "active", None)
    return nullcontext() if helper is None else helper(spark)


@pytest.mark.finding("K1")
@pytest.mark.finding("K2")
@pytest.mark.long
def test_a_failing_duplicate_leaves_the_healthy_run_alone(spark: Any, shared: Shared) -> None:
    """The other program fails while this one, under the same jobId, is at its task."""
    shared.table("id BIGINT PRIMARY KEY, v TEXT")
    failing = spark.range(0, 2, 1, 1).selectExpr("id", "IF(id = 1, raise_error('boom'), 'x') AS v")

    with herdpy.connect(shared.options()["url"], password=SECRET, autocommit=True) as healthy:
        job = healthy.begin_staging("t", job="nightly")
        with healthy.stage(job, 0) as stage:
            stage.add([{"id": 100, "v": "healthy"}])
            token = stage.finish()
        assert "boom" in refusal(lambda: shared.save(failing, jobId="nightly"))
        assert refusal(lambda: healthy.commit_staging(job, [token])) == ""
    assert shared.rows() == [(100, "healthy")]


@pytest.mark.finding("K1")
def test_a_second_program_of_one_job_is_told(spark: Any, shared: Shared) -> None:
    """It begins before the other one commits, and commits behind it."""
    shared.table("id BIGINT PRIMARY KEY, v TEXT")
    with herdpy.connect(shared.options()["url"], password=SECRET, autocommit=True) as other:
        job = other.begin_staging("t", job="both")
        with other.stage(job, 0, "other") as stage:
            stage.add([{"id": 1, "v": "other"}])
            token = stage.finish()
        shared.save(spark.sql("SELECT 2L AS id, 'spark' AS v"), jobId="both")
        told = refusal(lambda: other.commit_staging(job, [token]))
    assert "42710" in told, f"its rows are in {shared.rows()}, and it was told {told!r}"
    assert shared.rows() == [(2, "spark")]


@pytest.mark.finding("K3")
def test_any_thread_may_write(spark: Any, shared: Shared) -> None:
    shared.table("id BIGINT PRIMARY KEY, v TEXT")

    def write() -> None:
        with active(spark):
            shared.save(spark.sql("SELECT 1L AS id, 'thread' AS v"))

    told = in_thread(write)
    assert told == "", told
    assert shared.rows() == [(1, "thread")]


@pytest.mark.finding("K4")
def test_loads_at_one_state_share_a_lease(spark: Any, shared: Shared) -> None:
    shared.table("id BIGINT PRIMARY KEY, v TEXT")
    shared.conn.execute("INSERT INTO t VALUES (1, 'a')")
    herdpy.spark.release(**shared.options())
    frames = [shared.load(spark) for _ in range(3)]
    counts = [frame.count() for frame in frames]
    assert counts == [1, 1, 1]
    shared_leases = shared.lease_count()
    shared.conn.execute("INSERT INTO t VALUES (2, 'b')")
    newer = shared.load(spark)
    assert (newer.count(), frames[0].count()) == (2, 1)
    distinct = shared.lease_count()
    herdpy.spark.release(**shared.options())
    assert (shared_leases, distinct) == (1, 2)
    assert shared.lease_count() == 0


PLAIN_PROGRAM = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
reader = spark.read.format("herdpy").options(url=sys.argv[1], password=sys.argv[2], table="t")
print("rows", reader.load().count(), flush=True)
sys.stdin.readline()
import herdpy.spark
print("released", herdpy.spark.release(sys.argv[1], password=sys.argv[2]), flush=True)
sys.stdin.readline()
print("rows", reader.load().count(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.finding("K4")
def test_a_plain_program_leaves_no_lease(shared: Shared, tmp_path: Path) -> None:
    """As with spark-submit: its reads hold none of herdpy's code, and its session is Spark's."""
    shared.table("id BIGINT PRIMARY KEY, v TEXT")
    for (lease,) in shared.rows("SELECT lease FROM sysleases"):
        shared.conn.release_lease(lease)
    root = Path(herdpy.__file__).parents[1]
    paths = [str(root), str(root / "spark_connector"), os.environ.get("PYTHONPATH", "")]
    (tmp_path / "program.py").write_text(PLAIN_PROGRAM)
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), *shared.options().values()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(paths),
        },
    )
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        for answer, lease_count in ((["rows", "0"], 1), (["released", "1"], 0), (["rows", "0"], 1)):
            assert program.stdout.readline().split() == answer
            assert shared.lease_count() == lease_count
            program.stdin.write("\n")
            program.stdin.flush()
    finally:
        program.communicate()
    wait_for_no_lease(shared)


def wait_for_no_lease(shared: Shared) -> None:
    """Wait until no lease is left; AssertionError: one will be there for most of its 600 s."""
    while rows := shared.rows("SELECT seconds, remaining_s FROM sysleases"):
        assert rows[0][1] > rows[0][0] - 30, "half a minute behind the program's end it is there"


@pytest.mark.finding("K8")
@pytest.mark.long
def test_a_lease_is_renewed_while_no_task_reads(spark: Any, shared: Shared) -> None:
    shared.table("id BIGINT PRIMARY KEY, v TEXT")
    frame = shared.load(spark, leaseSeconds=20)  # renewed within 7, however slow the machine is
    assert frame.rdd.getNumPartitions() == 1  # it is planned, and no task runs
    (lease, left) = shared.rows("SELECT lease, remaining_s FROM sysleases WHERE seconds = 20")[0]
    is_renewed = False
    while not is_renewed:
        found = shared.rows(f"SELECT remaining_s FROM sysleases WHERE lease = '{lease}'")
        assert found, "it ended while the application lived"
        is_renewed, left = found[0][0] > left, found[0][0]
    assert frame.count() == 0
    herdpy.spark.release(**shared.options())


@pytest.mark.finding("K5")
@pytest.mark.parametrize(
    ("column", "given"),
    [
        ("DATE", "TIMESTAMP '2024-01-01 23:00:00'"),
        ("TIMESTAMP", "TIMESTAMP '2024-01-01 23:00:00'"),
        ("TIMESTAMPTZ", "TIMESTAMP_NTZ '2024-01-01 23:00:00'"),
        ("TIMESTAMPTZ", "DATE '2024-01-01'"),
    ],
)
def test_time_zones_are_not_guessed(spark: Any, shared: Shared, column: str, given: str) -> None:
    shared.table(f"id BIGINT PRIMARY KEY, x {column}")
    told = refusal(lambda: shared.save(spark.sql(f"SELECT 1L AS id, {given} AS x")))
    assert "42804" in told, f"{given} became {shared.rows()}"
    assert "Cast it in Spark" in told
    assert shared.rows("SELECT count(*) FROM sysstagings") == [(0,)]


@pytest.mark.finding("K6")
@pytest.mark.parametrize(
    ("column", "given"),
    [
        ("INTEGER", "1.5D"),
        ("INTEGER", "2.5BD"),
        ("BIGINT", "CAST(0.5 AS FLOAT)"),
        ("DOUBLE PRECISION", "9007199254740993L"),
        ("DECIMAL(10,2)", "1.005D"),
        ("DECIMAL(10,2)", "1.005BD"),
    ],
)
def test_numbers_are_exact(spark: Any, shared: Shared, column: str, given: str) -> None:
    shared.table(f"id BIGINT PRIMARY KEY, x {column}")
    frame = spark.sql(f"SELECT 1L AS id, {given} AS x")
    told = refusal(lambda: shared.save(frame))
    assert "22003" in told, f"{given} became {shared.rows()}"
    assert "row 1 of the data" in told
    assert "in (id=1, x=" in told
    shared.save(frame, rounding="true")
    assert len(shared.rows()) == 1


@pytest.mark.finding("K7")
@pytest.mark.parametrize(
    ("user", "right", "operation", "expected"),
    [
        ("writer", "INSERT", "append", [(1,), (2,)]),
        ("remover", "DELETE", "delete", []),
    ],
)
def test_writing_takes_no_select(
    spark: Any,
    shared: Shared,
    user: str,
    right: str,
    operation: str,
    expected: list[tuple[int]],
) -> None:
    shared.table("id BIGINT PRIMARY KEY")
    shared.conn.execute("INSERT INTO t VALUES (1)")
    shared.conn.execute(f"GRANT {right} ON t TO {user}")
    given = spark.sql(f"SELECT {2 if operation == 'append' else 1}L AS id")
    told = refusal(lambda: shared.save(given, user=user, operation=operation))
    assert told == "", told
    assert shared.rows() == expected


@pytest.mark.finding("K9")
def test_the_guide_says_that_rows_have_no_order() -> None:
    guide = Path(herdpy.__file__).parents[1] / "docs/guides/spark.md"
    text = " ".join(guide.read_text().split())
    assert "The rows of a part come in no order, and in another one in the next action" in text
    assert "monotonically_increasing_id" in text


@pytest.mark.finding("K10")
def test_text_without_utf_8_is_shown_by_its_row(spark: Any, shared: Shared) -> None:
    shared.table("id BIGINT PRIMARY KEY, v TEXT")
    frame = spark.sql("SELECT 1L AS id, CAST(X'61FF62' AS STRING) AS v")
    told = refusal(lambda: shared.save(frame))
    assert "22021" in told, told
    assert "row 1 of the data: column v: " in told
    assert "in (id=1, v=" in told


@pytest.mark.finding("K10")
def test_an_insert_of_some_columns_leaves_the_others_their_defaults(
    spark: Any, shared: Shared
) -> None:
    shared.table(
        "id BIGINT PRIMARY KEY, v TEXT DEFAULT 'it''s \\n', n DECIMAL(5,2) DEFAULT 1.50,"
        " f DOUBLE DEFAULT -0.5, b BOOLEAN DEFAULT true, d DATE DEFAULT '2024-02-29',"
        " s TIMESTAMP DEFAULT '2024-02-29 01:02:03.5',"
        " z TIMESTAMPTZ DEFAULT '2024-02-29 01:02:03+00',"
        " y BYTEA DEFAULT '\\x00ff', at TIMESTAMPTZ DEFAULT CURRENT_TIMESTAMP,"
        " utc TIMESTAMP DEFAULT CURRENT_TIMESTAMP, none TEXT"
    )
    shared.conn.execute("INSERT INTO t (id) VALUES (1)")
    options = ", ".join(f"{name} '{value}'" for name, value in shared.options().items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING herdpy OPTIONS ({options}, table 't')")
    ((before,),) = shared.rows("SELECT min(at) FROM t")
    spark.sql("INSERT INTO v (id) VALUES (2)")
    shared.conn.execute("INSERT INTO t (id) VALUES (3)")
    spark.catalog.dropTempView("v")
    constant = "v, n, f, b, d, s, z, y, none"
    one, other, again = shared.rows(f"SELECT {constant} FROM t ORDER BY id")
    assert other == again == one
    # The time of the statement in either type; Spark reads the clock for each column.
    ((after,),) = shared.rows("SELECT max(at) FROM t")
    for at, utc in shared.rows("SELECT at, utc FROM t WHERE id = 2"):
        assert before <= at <= after
        assert before <= utc.replace(tzinfo=before.tzinfo) <= after


@pytest.mark.finding("K10")
def test_columns_are_found_as_spark_finds_them(spark: Any, shared: Shared) -> None:
    shared.table('id BIGINT PRIMARY KEY, "V" TEXT, "Ab" TEXT, ab TEXT')
    told = refusal(lambda: shared.save(spark.sql("SELECT 1L AS ID, 'x' AS v, 'low' AS AB")))
    assert told == "", told
    assert shared.rows('SELECT id, "V", "Ab", ab FROM t') == [(1, "x", None, "low")]
    found = shared.load(spark, columns="v, Ab").collect()
    assert [tuple(row) for row in found] == [("x", None)]


@pytest.mark.finding("K10")
def test_far_dates_stay_with_spark(spark: Any, shared: Shared) -> None:
    shared.table("id BIGINT PRIMARY KEY, d DATE, z TIMESTAMPTZ")
    shared.conn.execute("INSERT INTO t VALUES (1, '2024-01-01', '2024-01-01 00:00:00+00')")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for condition in (
            "d < make_date(20000, 1, 1)",
            "d > DATE '-0005-01-01'",
            "z < timestamp_micros(300000000000000000)",
            "d IN (DATE '2024-01-01', make_date(20000, 1, 1))",
        ):
            frame = herdpy.spark.with_pushdown(spark, **shared.options(), table="t")
            found: list[int] = []
            query = frame.where(condition)
            told = refusal(lambda q=query, f=found: f.append(q.count()))
            assert (told[:300], found) == ("", [1]), condition
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
        herdpy.spark.release(**shared.options())
