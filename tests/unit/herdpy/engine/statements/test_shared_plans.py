"""Texts that differ in literals share a plan, and mean what they mean each on its own."""

import itertools
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import herdpy
from herdpy.driver.connection import Connection
from herdpy.engine.statements.shared_plans import SharedPlans
from herdpy.sql.reading.literals import Split

TYPES = (
    "SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE PRECISION", "DECIMAL(8, 2)", "DECIMAL(30, 10)",
    "TEXT", "VARCHAR(4)", "BOOLEAN", "BYTEA", "DATE", "TIMESTAMP", "TIMESTAMPTZ",
)  # fmt: skip
LITERALS = (
    "0", "1", "-7", "32767", "32768", "2147483648", "16777217", "9007199254740993",
    "123456789012345678", "0.1", "-0.0", "1.005", "123456.785", "0.123456789012345678",
    "16777217.0",
    "''", "'a'", "'abcde'", "'it''s'", "'1'", "' 12 '", "'1.5'", "'x'", "'true'", "'t'",
    "'\\x4142'", "'2024-02-29'", "'2023-02-29'", "'2024-02-29 12:30:00.5'",
    "'2024-02-29 12:30+02'", "'1 day 02:00'", "'NaN'", "'infinity'", "'1e400'", "'é'", "NULL",
    "TRUE",
)  # fmt: skip
APART = "/**/"
"""Behind it a text shares no plan: it has a comment."""
FORMS = (
    "INSERT INTO t VALUES (1, {})",
    "INSERT INTO t (v, id) VALUES ({}, 1), ({}, 2)",
    "UPSERT INTO t VALUES (0, {})",
    "INSERT INTO t VALUES (0, {}) ON CONFLICT DO NOTHING",
    "INSERT INTO t VALUES (0, NULL) ON CONFLICT (id) DO UPDATE SET v = {}",
    "INSERT INTO t VALUES (5, {}) RETURNING v, id",
    "UPDATE t SET v = {}",
    "UPDATE t SET v = {} WHERE id = 0",
    "UPDATE t SET id = 9 WHERE v = {}",
    "DELETE FROM t WHERE v = {}",
    "DELETE FROM t WHERE v >= {} AND id = 0",
    "SELECT id, v FROM t WHERE v = {}",
    "SELECT id FROM t WHERE {} < v",
    "SELECT v FROM t WHERE id = {}",
    "SELECT id, {} FROM t",
    "SELECT id FROM t ORDER BY {}",
    "SELECT id FROM t LIMIT {}",
    "SELECT id FROM t WHERE id IN ({}, 0)",
    "SELECT pg_typeof(v) FROM t WHERE v = {} GROUP BY v",
)


@pytest.fixture
def connection() -> Iterator[Connection]:
    with closing(herdpy.connect(":memory:", autocommit=True)) as made:
        yield made


def outcome(connection: Connection, text: str) -> Any:
    """Run a statement; return its rows and the table's, or its error, and undo it."""
    connection.execute("BEGIN")
    try:
        cursor = connection.execute(text)
        rows = None if cursor.description is None else cursor.fetchall()
        names = None if cursor.description is None else [item[:2] for item in cursor.description]
        there = connection.execute("SELECT id, v FROM t ORDER BY id").fetchall()
        return repr((names, rows, cursor.rowcount, there))
    except herdpy.Error as error:
        return (error.sqlstate, str(error).replace(APART, ""), error.hint)
    finally:
        connection.rollback()


@pytest.mark.parametrize("sql_type", TYPES)
def test_literals_mean_what_they_mean_alone(connection: Connection, sql_type: str) -> None:
    connection.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {sql_type})")
    connection.execute("INSERT INTO t VALUES (0, NULL)")
    shared = 0
    plans = connection.live_session().database.shared_plans
    for form, literal in itertools.product(FORMS, LITERALS):
        text = form.replace("{}", literal)
        alone = outcome(connection, text.replace(" ", f" {APART}", 1))
        for _ in range(2):  # the first is planned as it stands
            assert outcome(connection, text) == alone, text
        shared += plans.find(text) is not None
    assert shared > len(LITERALS)


@pytest.mark.parametrize(
    "form", ["INSERT INTO t VALUES ({}, 'a{}')", "SELECT v FROM t WHERE id = {}"]
)
def test_plans_are_shared(connection: Connection, form: str) -> None:
    """One plan serves them all, also in a transaction that has made the table itself."""
    for is_inside in (False, True):
        if is_inside:
            connection.execute("DROP TABLE t")
            connection.execute("BEGIN")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        plans = connection.live_session().database.plans
        for number in range(3):
            connection.execute(form.replace("{}", str(number)))
        before = len(plans)
        for number in range(3, 20):
            connection.execute(form.replace("{}", str(number)))
        assert len(plans) == before
    connection.rollback()


def test_a_table_made_anew_has_another_plan(connection: Connection) -> None:
    for sql_type, expected in (("INTEGER", 7), ("TEXT", "7")):
        connection.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {sql_type})")
        for number in range(4):
            connection.execute(f"INSERT INTO t VALUES ({number}, '7')")
        assert connection.execute("SELECT v FROM t WHERE id = 3").fetchall() == [(expected,)]
        connection.execute("DROP TABLE t")


def test_a_definition_that_is_taken_back_has_its_plans_taken_back(connection: Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)")
    connection.execute("SAVEPOINT s")
    connection.execute("DROP TABLE t")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    for number in range(3):
        connection.execute(f"INSERT INTO t VALUES ({number}, '7')")
    connection.execute("ROLLBACK TO s")
    for number in range(3):
        connection.execute(f"INSERT INTO t VALUES ({number}, '7')")
    assert connection.execute("SELECT v FROM t WHERE id = 2").fetchall() == [(7,)]
    connection.rollback()


def test_an_error_is_about_the_text(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)")
    for number in range(3):
        connection.execute(f"INSERT INTO t VALUES ({number}, '7')")
    with pytest.raises(herdpy.DataError) as found:
        connection.execute("INSERT INTO t VALUES (3, 'seven')")
    with pytest.raises(herdpy.DataError) as alone:
        connection.execute("INSERT /**/ INTO t VALUES (3, 'seven')")
    assert (found.value.sqlstate, found.value.position) == ("22P02", 26)
    assert str(found.value).replace("/**/ ", "") == str(alone.value).replace("/**/ ", "")


def test_what_is_remembered_is_limited() -> None:
    plans = SharedPlans(2)
    for name in "abc":
        assert plans.find(f"SELECT {name} FROM t WHERE id = 1") is None
    assert plans.find("SELECT c FROM t WHERE id = 2") == Split("SELECT c FROM t WHERE id = ?", (2,))
    assert plans.find("SELECT a FROM t WHERE id = 2") is None  # gone with the first two
    assert SharedPlans(0).find("SELECT 1") is SharedPlans(0).find("SELECT 1") is None
