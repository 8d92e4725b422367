"""What every type of an expression can do, by walking the kinds: no statement is our own error."""

from collections.abc import Iterator

import pytest

import herdpy
from herdpy.driver.connection import Connection
from herdpy.model.types import Kind

# A value of each kind, and a greater one.
SAMPLES = {
    Kind.BOOLEAN: ("false", "true"),
    Kind.SMALLINT: ("'-7'::smallint", "7::smallint"),
    Kind.INTEGER: ("-7", "7"),
    Kind.BIGINT: ("-70000000000", "70000000000"),
    Kind.REAL: ("0.1::real", "0.2::real"),
    Kind.DOUBLE: ("1.5::float8", "2.5::float8"),
    Kind.DECIMAL: ("1.50", "2.50"),
    Kind.TEXT: ("'a'::text", "'b'::text"),
    Kind.BYTEA: (r"'\x00'::bytea", r"'\x01'::bytea"),
    Kind.DATE: ("date '2020-02-28'", "date '2020-02-29'"),
    Kind.TIMESTAMP: ("timestamp '2020-02-29'", "timestamp '2020-02-29 00:00:01'"),
    Kind.TIMESTAMPTZ: ("timestamptz '2020-02-29 00:00Z'", "timestamptz '2020-02-29 00:01Z'"),
    Kind.INTERVAL: ("interval '29 days'", "interval '1 mon'"),
}
COLUMN = "(SELECT x FROM (VALUES ({0}), ({1}), (NULL)) AS v (x)) AS q"
# Of the smaller {0} and the greater {1}: a statement, and its rows.
WALKS = [
    (
        "SELECT {0} = {0}, {0} < {1}, {0} >= {1}, {0} <> NULL, {0} IS NULL",
        (True, True, False, None, False),
    ),
    ("SELECT {0} IN ({0}, {1}), {0} IN ({1}, NULL), {0} BETWEEN {0} AND {1}", (True, None, True)),
    ("SELECT {0} IS DISTINCT FROM {1}, {0} IS NOT DISTINCT FROM NULL", (True, False)),
    (
        "SELECT coalesce(NULL, {0}) = {0}, nullif({0}, {0}) IS NULL, nullif({0}, {1}) = {0}",
        (True, True, True),
    ),
    ("SELECT greatest({0}, {1}, NULL) = {1}, least({0}, {1}) = {0}", (True, True)),
    (
        "SELECT CASE WHEN true THEN {0} ELSE NULL END = {0}, CASE {0} WHEN {1} THEN 1 ELSE 2 END",
        (True, 2),
    ),
    (
        "SELECT length(({0})::text) > 0, concat({0}, 'z') LIKE '%z', ({0} || 'z') LIKE '%z'",
        (True, True, True),
    ),
    ("SELECT count(*), count(x), count(DISTINCT x) FROM " + COLUMN, (3, 2, 2)),
    ("SELECT min(x) = {0}, max(x) = {1} FROM " + COLUMN, (True, True)),
    ("SELECT x = {1} FROM " + COLUMN + " ORDER BY x DESC NULLS LAST LIMIT 1", (True,)),
    (
        "SELECT count(*) FROM (SELECT x FROM " + COLUMN + " GROUP BY x HAVING x IS NOT NULL) AS g",
        (2,),
    ),
    ("SELECT count(*) FROM (SELECT DISTINCT x FROM " + COLUMN + ") AS g", (3,)),
    ("SELECT count(*) FROM (SELECT {0} UNION SELECT {0} UNION ALL SELECT {1}) AS u", (2,)),
    ("SELECT count(*) FROM " + COLUMN + " WHERE x IN (SELECT {1})", (1,)),
    (
        "SELECT {0} = (SELECT {0}), {0} < ALL (SELECT {1}), {0} = ANY (ARRAY[{1}])",
        (True, True, False),
    ),
    (
        "SELECT max(a) = {1} FROM (SELECT lead(x) OVER (ORDER BY x) AS a FROM " + COLUMN + ") AS w",
        (True,),
    ),
    ("WITH w AS (SELECT {0} AS a) SELECT count(*) FROM w AS b JOIN w AS c ON b.a = c.a", (1,)),
]


@pytest.fixture
def connection(target: str) -> Iterator[Connection]:
    with herdpy.connect(target, autocommit=True) as opened:
        yield opened


@pytest.mark.parametrize("kind", sorted(SAMPLES, key=str))
def test_every_kind_does_what_all_do(connection: Connection, kind: Kind) -> None:
    small, great = SAMPLES[kind]
    failed: list[object] = []
    for text, expected in WALKS:
        statement = text.replace("{0}", small).replace("{1}", great)
        try:
            found = connection.execute(statement).fetchall()
        except herdpy.Error as error:
            is_extreme = kind is Kind.BOOLEAN and ("max(" in text or "min(" in text)
            refused = is_extreme or (kind is Kind.BYTEA and "||" in text)  # as in PostgreSQL
            if error.sqlstate != "42883" or not refused:
                failed.append((statement, str(error)))
            continue
        if found != [expected]:
            failed.append((statement, found))
    assert not failed


@pytest.mark.parametrize("kind", sorted(SAMPLES, key=str))
def test_every_kind_is_a_result_and_a_parameter(connection: Connection, kind: Kind) -> None:
    for sample in (*SAMPLES[kind], f"nullif({SAMPLES[kind][0]}, {SAMPLES[kind][0]})"):
        cursor = connection.execute(f"SELECT {sample} AS x")
        ((value,),) = cursor.fetchall()
        assert cursor.description is not None
        assert cursor.description[0][1] == kind.name
        assert connection.execute("SELECT ? AS x", (value,)).fetchall() == [(value,)]


def test_the_samples_are_all_kinds() -> None:
    assert set(SAMPLES) == set(Kind) - {Kind.UNKNOWN}
