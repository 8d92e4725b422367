"""TIMESTAMPTZ through every face of the driver: parameters, rows, Arrow, pandas, polars, ingest."""

import datetime
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import herdpy
from herdpy.config import Config

UTC = datetime.UTC
EAST = datetime.timezone(datetime.timedelta(hours=2))
WEST = datetime.timezone(-datetime.timedelta(hours=5, minutes=30))
AT = datetime.datetime(2024, 1, 31, 12, 0, 0, 5)


@pytest.fixture
def conn(target: str) -> Iterator[herdpy.Connection]:
    with herdpy.connect(target, autocommit=True) as opened:
        opened.execute("CREATE TABLE tz (id INTEGER PRIMARY KEY, a TIMESTAMPTZ, b TIMESTAMP)")
        yield opened
        opened.execute("DROP TABLE tz")


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (AT.replace(tzinfo=UTC), AT),
        (AT.replace(tzinfo=EAST), AT - datetime.timedelta(hours=2)),
        (AT.replace(tzinfo=WEST), AT + datetime.timedelta(hours=5, minutes=30)),
        (AT, AT),  # of the session's time zone, which is UTC
        (pd.Timestamp(AT, tz="Europe/Rome"), AT - datetime.timedelta(hours=1)),
        (AT.date(), datetime.datetime(2024, 1, 31)),
        ("2024-01-31 14:00:00.000005+02", AT),
        (datetime.datetime.min.replace(tzinfo=UTC), datetime.datetime.min),
        (datetime.datetime.max.replace(tzinfo=UTC), datetime.datetime.max),
        (None, None),
    ],
)
def test_what_stands_for_a_moment(conn: herdpy.Connection, given: Any, stored: Any) -> None:
    conn.execute("INSERT INTO tz VALUES (1, ?, ?)", (given, None))
    conn.executemany("INSERT INTO tz VALUES (?, ?, ?)", [(2, given, None), (3, AT, AT)])
    expected = stored if stored is None else stored.replace(tzinfo=UTC)
    for text in (
        "SELECT a FROM tz WHERE id = 1",
        "SELECT a FROM tz WHERE id = 1",  # as a shortcut
        "SELECT a FROM (SELECT a, id FROM tz) AS q WHERE id = 2",  # on the vector path
    ):
        ((found,),) = conn.execute(text).fetchall()
        assert found == expected
        assert found is None or found.tzinfo is UTC
    if given is not None and not isinstance(given, str):
        assert conn.execute("SELECT count(*) FROM tz WHERE a = ?", (given,)).fetchone() in (
            (2,),
            (3,),
        )


def test_one_statement_takes_moments_with_and_without_zone(conn: herdpy.Connection) -> None:
    text = "INSERT INTO tz VALUES (?, ?, ?)"
    aware = AT.replace(tzinfo=EAST)
    for number, pair in enumerate([(AT, AT), (aware, aware), (AT, aware), (aware, AT), (AT, AT)]):
        conn.execute(text, (number, *pair))
        conn.execute(text, (number + 10, *pair))
    rows = conn.execute("SELECT id % 10, a, b FROM tz ORDER BY id").fetchall()
    early = AT - datetime.timedelta(hours=2)
    expected = [
        (number, a.replace(tzinfo=UTC), b)
        for number, a, b in [
            (0, AT, AT), (1, early, early), (2, AT, early), (3, early, AT), (4, AT, AT),
        ]
    ]  # fmt: skip
    assert rows == expected * 2


def test_a_parameter_alone_keeps_its_class(conn: herdpy.Connection) -> None:
    """Also when a statement that is known by now gets one of the other class."""
    conn.execute("INSERT INTO tz VALUES (1, NULL, NULL)")
    text = "SELECT ? FROM tz WHERE b IS NULL AND id = ?"
    for given in (AT, AT, AT, AT.replace(tzinfo=EAST), AT.replace(tzinfo=EAST), AT):
        ((found,),) = conn.execute(text, (given, 1)).fetchall()
        assert (found, found.tzinfo) == (given, given.tzinfo and UTC)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_no_year_of_utc_has_is_refused(conn: herdpy.Connection, sign: int) -> None:
    zone = datetime.timezone(sign * datetime.timedelta(hours=1))
    edge = datetime.datetime.min if sign > 0 else datetime.datetime.max
    with pytest.raises(herdpy.DataError) as caught:
        conn.execute("INSERT INTO tz VALUES (1, ?, NULL)", (edge.replace(tzinfo=zone),))
    assert caught.value.sqlstate == "22008"


def test_description_and_arrow(conn: herdpy.Connection) -> None:
    conn.execute("INSERT INTO tz VALUES (1, ?, ?), (2, NULL, NULL)", (AT, AT))
    cursor = conn.execute("SELECT a, b, now() FROM tz ORDER BY id")
    assert [column[1] for column in cursor.description or ()] == [
        "TIMESTAMPTZ", "TIMESTAMP", "TIMESTAMPTZ",
    ]  # fmt: skip
    found = conn.execute("SELECT a, b FROM tz ORDER BY id").fetch_arrow_table()
    assert found.schema.types == [pa.timestamp("us", "UTC"), pa.timestamp("us")]
    assert found.column("a").cast(pa.int64()) == found.column("b").cast(pa.int64())
    empty = conn.execute("SELECT a FROM tz WHERE id < 0").fetch_arrow_table()
    assert empty.schema.types == [pa.timestamp("us", "UTC")]
    by_vectors = conn.execute("SELECT max(a) AS a FROM tz").fetch_arrow_table()
    assert by_vectors.schema.types == [pa.timestamp("us", "UTC")]
    frame = conn.execute("SELECT a FROM tz ORDER BY id").to_df()
    assert frame["a"][0] == pd.Timestamp(AT, tz="UTC")
    assert str(frame["a"].dt.tz) == "UTC"


def test_polars(conn: herdpy.Connection) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"id": [1, 2], "a": [AT.replace(tzinfo=UTC), None]})
    assert conn.ingest("tz", frame) == 2
    found = conn.execute("SELECT id, a FROM tz ORDER BY id").to_polars()
    assert found["a"].dtype == pl.Datetime("us", "UTC")
    assert found["a"].to_list() == [AT.replace(tzinfo=UTC), None]


@pytest.mark.parametrize("column", ["a", "b"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Rome", "+02:00"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_ingest(conn: herdpy.Connection, column: str, zone: str | None, unit: str) -> None:
    """Arrow's numbers are of UTC whatever the zone; a naive one is taken for UTC."""
    at = AT.replace(microsecond=0)
    values = pa.array([at.replace(tzinfo=UTC), None]).cast(pa.timestamp("us", "UTC"))
    array = values.cast(pa.timestamp(unit, zone))
    assert conn.ingest("tz", pa.table({"id": [1, 2], column: array})) == 2
    rows = conn.execute(f"SELECT {column} FROM tz ORDER BY id").fetchall()
    assert rows == [(at.replace(tzinfo=UTC if column == "a" else None),), (None,)]


def test_ingest_of_dicts_and_pandas(conn: herdpy.Connection) -> None:
    conn.ingest("tz", [{"id": 1, "a": AT.replace(tzinfo=EAST)}, {"id": 2, "a": None}])
    frame = pd.DataFrame(
        {"id": [3, 4], "a": pd.to_datetime([AT, None]).tz_localize("America/New_York")}
    )
    conn.ingest("tz", frame)
    rows = conn.execute("SELECT a FROM tz ORDER BY id").fetchall()
    expected = [AT - datetime.timedelta(hours=2), None, AT + datetime.timedelta(hours=5), None]
    assert rows == [(None if at is None else at.replace(tzinfo=UTC),) for at in expected]


def test_a_text_column_shows_a_moment_in_utc(conn: herdpy.Connection) -> None:
    conn.execute("CREATE TABLE words (w TEXT)")
    try:
        conn.execute("INSERT INTO words VALUES (?)", (AT.replace(tzinfo=EAST),))
        conn.executemany("INSERT INTO words VALUES (?)", [(AT.replace(tzinfo=EAST),), (AT,)])
        rows = conn.execute("SELECT w FROM words").fetchall()
    finally:
        conn.execute("DROP TABLE words")
    shown = "2024-01-31 10:00:00.000005+00"
    assert rows == [(shown,), (shown,), ("2024-01-31 12:00:00.000005",)]


def test_big_tables_and_pages(conn: herdpy.Connection) -> None:
    count = Config().vector_rows_min + 200
    start = datetime.datetime(2024, 1, 1, tzinfo=UTC)
    moments = [start + datetime.timedelta(minutes=number) for number in range(count)]
    conn.ingest("tz", pa.table({"id": range(count), "a": moments}))
    conn.checkpoint()
    later = moments[-3].astimezone(EAST)
    conn.execute("UPDATE tz SET a = NULL WHERE id = ?", (count - 1,))
    rows = conn.execute("SELECT id, a FROM tz WHERE a >= ? ORDER BY a", (later,)).fetchall()
    assert rows == [(count - 3, moments[-3]), (count - 2, moments[-2])]
    table = conn.execute("SELECT a FROM tz").fetch_arrow_table()
    assert table.schema.types == [pa.timestamp("us", "UTC")]
    assert sorted(table.column("a").drop_null().to_pylist()) == moments[:-1]
