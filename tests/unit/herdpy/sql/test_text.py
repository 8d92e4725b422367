"""Text of trees reads back as the same tree."""

import pytest

from herdpy.model.schema import Table
from herdpy.sql import tree
from herdpy.sql.compile import compile_sql
from herdpy.sql.text import ExpressionPrinter, create_table_text, name_text
from tests.fixtures.sql_catalog import FixedCatalog

CATALOG = FixedCatalog()


def where(text: str) -> tree.Expression:
    statement = compile_sql(f"SELECT 1 FROM t WHERE {text}", CATALOG, None).statement
    assert isinstance(statement, tree.SelectStatement)
    body = statement.query.body
    assert isinstance(body, tree.Select)
    assert body.where is not None
    return body.where


def printed(expression: tree.Expression) -> str:
    return ExpressionPrinter({}, ["?1"]).text(expression)


@pytest.mark.parametrize("name", ["a", "a1", "_x", "year", "date"])
def test_plain_names(name: str) -> None:
    assert name_text(name) == name


@pytest.mark.parametrize("name", ["A", "select", "a b", 'a"b', "1a", "", "über"])
def test_quoted_names(name: str) -> None:
    escaped = name.replace('"', '""')
    assert name_text(name) == f'"{escaped}"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = 1 OR id = 2 AND n = 3", "id = 1 OR id = 2 AND n = 3"),
        ("(id = 1 OR id = 2) AND n = 3", "(id = 1 OR id = 2) AND n = 3"),
        ("NOT (id = 1 AND n = 3)", "NOT (id = 1 AND n = 3)"),
        ("id - (n - 1) = 2", "id - (n - 1)::BIGINT = 2"),
        ("n * (n + 1) < n - 1 - n", "n * (n + 1) < n - 1 - n"),
        ("-n > 1", "-n > 1"),
        ("name = 'it''s'", "name = 'it''s'"),
        ("name IS NULL AND x IS NOT NULL", "name IS NULL AND x IS NOT NULL"),
        ("id IN (1, 2) AND n NOT IN (3)", "id IN (1, 2) AND n NOT IN (3)"),
        ("day >= DATE '2020-02-29'", "day >= DATE '2020-02-29'"),
        ("at < TIMESTAMP '2020-01-01 10:00:00.5'", "at < TIMESTAMP '2020-01-01 10:00:00.500000'"),
        ("price = 1.50", "price = 1.50"),
        ("x > 1.5", "x > 1.5"),
        ("flag", "flag"),
        ("name LIKE 'a%'", "name LIKE 'a%'"),
        ("name ILIKE 'a!%' ESCAPE '!'", "name ILIKE 'a!%' ESCAPE '!'"),
        ("x IS NOT DISTINCT FROM 1.5", "NOT x IS DISTINCT FROM 1.5"),
        ("CASE WHEN flag THEN 1 ELSE 2 END = 1", "CASE WHEN flag THEN 1 ELSE 2 END = 1"),
    ],
)
def test_expressions(text: str, expected: str) -> None:
    expression = where(text)
    assert printed(expression) == expected
    assert where(printed(expression)) == expression


def test_parameters_and_aliases() -> None:
    statement = compile_sql("SELECT 1 FROM t WHERE id = ?", CATALOG, (5,)).statement
    assert isinstance(statement, tree.SelectStatement)
    body = statement.query.body
    assert isinstance(body, tree.Select)
    assert isinstance(body.source, tree.TableRef)
    assert body.where is not None
    assert ExpressionPrinter({body.source.id: "T x"}, ["?1"]).text(body.where) == '"T x".id = ?1'


def test_subqueries_are_collected() -> None:
    printer = ExpressionPrinter({}, [])
    text = printer.text(where("id IN (SELECT a FROM heap) AND EXISTS (SELECT 1 FROM leg)"))
    assert text == "id IN (subquery 1) AND EXISTS (subquery 2)"
    assert len(printer.subqueries) == 2


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE a (x BIGINT PRIMARY KEY)",
        "CREATE TABLE a (x BIGINT, y TEXT NOT NULL)",
        'CREATE TABLE "A b" ("select" INTEGER, "ü" VARCHAR(3), PRIMARY KEY ("ü", "select"))',
        "CREATE TABLE a (x DOUBLE PRECISION DEFAULT -1.5, y BOOLEAN DEFAULT true, z BYTEA)",
        "CREATE TABLE a (x TEXT DEFAULT 'it''s; so' NOT NULL, y DECIMAL(10,2) DEFAULT -0.05)",
        "CREATE TABLE a (x DATE DEFAULT DATE '2020-02-29', y INTEGER DEFAULT 0)",
        "CREATE TABLE a (x TIMESTAMP DEFAULT CURRENT_TIMESTAMP,"
        " y TIMESTAMP DEFAULT TIMESTAMP '2020-01-01 00:00:00.5')",
    ],
)
def test_a_table_reads_back_as_itself(text: str) -> None:
    made = compile_sql(text, CATALOG, None).statement
    assert isinstance(made, tree.CreateTable)
    again = compile_sql(_text_of(made), CATALOG, None).statement
    assert again == made


def _text_of(made: tree.CreateTable) -> str:
    return create_table_text(Table(1, made.name, made.columns, made.key))
