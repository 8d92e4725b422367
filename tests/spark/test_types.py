"""Spark's types in tables that createTable makes: NULLs, extremes, keys, many columns."""

import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as kinds

import herdpy
import herdpy.spark
from tests.spark.conftest import Load, Save

NINES = "9" * 38
FIRST, LAST = datetime.datetime.min, datetime.datetime.max


class Case(NamedTuple):
    name: str
    least: str
    """In Spark's SQL."""
    most: str
    expected: tuple[Any, Any]
    read_as: str


CASES = [
    Case("tinyint", "-128Y", "127Y", (-128, 127), "smallint"),
    Case("smallint", "-32768S", "32767S", (-32768, 32767), "smallint"),
    Case("int", "-2147483648", "2147483647", (-(2**31), 2**31 - 1), "int"),
    Case(
        "bigint", "-9223372036854775808L", "9223372036854775807L", (-(2**63), 2**63 - 1), "bigint"
    ),
    Case("float", "float('-inf')", "0.5F", (float("-inf"), 0.5), "float"),
    Case(
        "double",
        "-1.7976931348623157E308D",
        "4.9E-324D",
        (-1.7976931348623157e308, 5e-324),
        "double",
    ),
    Case(
        "decimal(38,0)",
        f"-{NINES}BD",
        f"{NINES}BD",
        (Decimal(f"-{NINES}"), Decimal(NINES)),
        "decimal(38,0)",
    ),
    Case(
        "decimal(38,38)",
        f"-0.{NINES}BD",
        f"0.{NINES}BD",
        (Decimal(f"-0.{NINES}"), Decimal(f"0.{NINES}")),
        "decimal(38,38)",
    ),
    Case(
        "decimal(18,4)",
        "-0.0001BD",
        "99999999999999.9999BD",
        (Decimal("-0.0001"), Decimal("99999999999999.9999")),
        "decimal(18,4)",
    ),
    Case("string", "''", "concat('ü', repeat('x', 9000))", ("", "ü" + "x" * 9000), "string"),
    Case("binary", "X''", "X'00FF'", (b"", b"\0\xff"), "binary"),
    Case("boolean", "false", "true", (False, True), "boolean"),
    Case("date", "DATE '0001-01-01'", "DATE '9999-12-31'", (FIRST.date(), LAST.date()), "date"),
    Case(
        "timestamp_ntz",
        "TIMESTAMP_NTZ '0001-01-01 00:00:00'",
        "TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'",
        (FIRST, LAST),
        "timestamp_ntz",
    ),
    Case(
        "timestamp",
        "TIMESTAMP '0001-01-01 00:00:00Z'",
        "TIMESTAMP '9999-12-31 23:59:59.999999Z'",
        (FIRST.replace(tzinfo=datetime.UTC), LAST.replace(tzinfo=datetime.UTC)),
        "timestamp",
    ),
]


def test_every_type_into_a_new_table_and_back(
    spark: SparkSession, conn: herdpy.Connection, load: Load, save: Save
) -> None:
    rows = [
        "SELECT 1 AS id, "
        + ", ".join(f"CAST({case.least} AS {case.name}) AS c{n}" for n, case in enumerate(CASES)),
        "SELECT 2, " + ", ".join(f"CAST({case.most} AS {case.name})" for case in CASES),
        "SELECT 3, " + ", ".join("NULL" for _ in CASES),
    ]
    save(spark.sql(" UNION ALL ".join(rows)), table="made", createTable="true", keyColumns="id")
    expected = [
        (1, *[case.expected[0] for case in CASES]),
        (2, *[case.expected[1] for case in CASES]),
        (3, *[None] * len(CASES)),
    ]
    assert conn.execute("SELECT * FROM made ORDER BY id").fetchall() == expected
    frame = load(table="made")
    found = [field.dataType.simpleString() for field in frame.schema.fields[1:]]
    assert found == [case.read_as for case in CASES]
    rows_back = frame.orderBy("id").toArrow().to_pylist()
    assert [tuple(row.values()) for row in rows_back] == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (kinds.CharType(3), "VARCHAR(3)"),
        (kinds.VarcharType(7), "VARCHAR(7)"),
        (kinds.StringType("UTF8_LCASE"), "TEXT"),
        (kinds.DecimalType(5, 2), "NUMERIC(5,2)"),
        (kinds.FloatType(), "REAL"),
        (kinds.ByteType(), "SMALLINT"),
        (kinds.ShortType(), "SMALLINT"),
    ],
)
def test_types_of_sql(kind: kinds.DataType, text: str) -> None:
    assert herdpy.spark.sql_type(kind) == text


def test_schemas_there_and_back() -> None:
    """Without Spark and without a server."""
    schema = kinds.StructType(
        [
            kinds.StructField("a b", kinds.LongType()),
            kinds.StructField('c"', kinds.DecimalType(38, 3)),
            kinds.StructField("d", kinds.TimestampType()),
        ]
    )
    text = herdpy.spark.create_table('t "1"', schema, ["d", "a b"])
    assert text == (
        'CREATE TABLE IF NOT EXISTS "t ""1""" ("a b" BIGINT, "c""" NUMERIC(38,3), "d" TIMESTAMPTZ,'
        ' PRIMARY KEY ("d", "a b"))'
    )
    with herdpy.connect(":memory:", autocommit=True) as conn:
        conn.execute(text)
        description = conn.execute('SELECT * FROM "t ""1"""').description
    assert herdpy.spark.spark_schema(description or ()) == schema
    with pytest.raises(herdpy.ProgrammingError, match='no column "e"'):
        herdpy.spark.create_table("t", schema, ["e"])


@pytest.mark.parametrize(
    "kind",
    [
        kinds.ArrayType(kinds.LongType()),
        kinds.MapType(kinds.StringType(), kinds.LongType()),
        kinds.StructType([kinds.StructField("a", kinds.LongType())]),
        kinds.DayTimeIntervalType(),
        kinds.YearMonthIntervalType(),
        kinds.CalendarIntervalType(),
        kinds.VariantType(),
        kinds.NullType(),
    ],
    ids=str,
)
def test_types_that_herdpy_has_not(kind: kinds.DataType) -> None:
    with pytest.raises(herdpy.ProgrammingError) as caught:
        herdpy.spark.create_table("t", kinds.StructType([kinds.StructField("c", kind)]))
    assert caught.value.sqlstate == "0A000"
    assert kind.simpleString() in str(caught.value)
    with pytest.raises(herdpy.ProgrammingError, match=r"^Spark's type"):
        herdpy.spark.sql_type(kind)


def test_200_columns_and_names_that_need_quotes(
    spark: SparkSession, conn: herdpy.Connection, load: Load, save: Save
) -> None:
    names = ['a "b"', "Ünï,c", "select", "UPPER", *[f"c{n}" for n in range(196)]]
    texts = [f"id + {n} AS `{name}`" for n, name in enumerate(names)]
    given = spark.range(0, 50, 1, 2).selectExpr(*texts)
    options = {"table": 'My "wide", one', "createTable": "true", "keyColumns": '"a ""b""", UPPER'}
    save(given, **options)
    save(given, operation="ignore", **options)
    assert load(table='My "wide", one').columns == names
    found = conn.execute(
        'SELECT count(*), sum("Ünï,c"), max("UPPER"), max(c195) FROM "My ""wide"", one"'
    ).fetchone()
    assert found == (50, sum(range(1, 51)), 52, 49 + 199)
    save(given.select("UPPER", 'a "b"').where("UPPER < 40"), operation="delete", **options)
    assert load(table=options["table"], columns='"a ""b"""').count() == 13


@pytest.mark.parametrize("rows", [0, 1])
def test_small_frames(
    spark: SparkSession, conn: herdpy.Connection, load: Load, save: Save, rows: int
) -> None:
    """A job without rows is a job: it commits, and has made its table."""
    given = spark.range(rows).selectExpr("id", "CAST(NULL AS STRING) AS s")
    save(given, table="small", createTable="true")
    save(given, table="small", mode="overwrite")
    assert load(table="small").collect() == [(0, None)] * rows
    assert conn.execute("SELECT count(*) FROM sysstagings").fetchone() == (0,)
