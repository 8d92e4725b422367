"""What is too deep or too long is refused where it is, and nothing behind it is read."""

import pytest

from herdpy.errors import OperationalError, ProgrammingError
from herdpy.limits import statement_chain_max, statement_conditions_max, statement_depth_max
from herdpy.sql.reading.tokens import scan

MILLION = 1_000_000
DEEP = {
    "parentheses": "SELECT " + "(" * MILLION + "1" + ")" * MILLION,
    "open parentheses": "SELECT " + "(" * MILLION,
    "brackets": "SELECT " + "ARRAY[" * MILLION,
    "functions": "SELECT " + "abs(" * MILLION,
    "subqueries": "SELECT " + "(SELECT " * MILLION,
    "tables": "SELECT * FROM " + "(SELECT * FROM " * MILLION,
    "case": "SELECT " + "case when " * MILLION,
    "not": "SELECT " + "NOT " * MILLION + "true",
    "minus": "SELECT " + "- " * MILLION + "1",
    "tilde": "SELECT " + "~" * MILLION + "1",
    "plus": "SELECT 1" + "+1" * MILLION,
    "text": "SELECT 'a'" + "||'a'" * MILLION,
    "compared": "SELECT 1" + "=1" * MILLION,
    "cast": "SELECT 1" + "::int" * MILLION,
    "null": "SELECT 1" + " IS NULL" * MILLION,
    "and": "SELECT true" + " AND true" * MILLION,
    "or": "SELECT a=1" + " OR a=1" * MILLION,
    "union": "SELECT 1" + " UNION SELECT 1" * MILLION,
    "mixed": "SELECT " + "- NOT ( " * MILLION,
    "behind strings": "SELECT 'it''s (', \"(\", E'\\'(', $a$ ( $a$, " + "(" * MILLION,
    "behind comments": "SELECT /* ( /* ( */ */ -- (\n" + "(" * MILLION,
    "behind a chain": "SELECT 1" + "+1" * 900 + "+(1" + "+1" * 900 + ")" + "+1" * 900,
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_a_million_of_anything(text: str) -> None:
    with pytest.raises(OperationalError) as caught:
        scan(text[: 10 * MILLION] + " '")  # a quote without end, which would be 42601
    assert caught.value.sqlstate == "54001"
    assert caught.value.position is not None
    assert caught.value.position < 600_000


_ROWS = ", ".join("(1 + 1, -2, 'it''s ((((', NULL)" for _ in range(5_000))
FINE = {
    "rows": f"INSERT INTO t VALUES {_ROWS}",
    "deep": "SELECT " + "(" * statement_depth_max + "1" + ")" * statement_depth_max + " " * 5_000,
    "list": "SELECT a IN (" + ", ".join(["-1"] * 60_000) + ")",
    "columns": "SELECT " + ", ".join(["a + b"] * 1_600),
    "conditions": "SELECT " + " OR ".join(["a = 1 AND NOT b = 2"] * 5_000),
    "cases": "SELECT " + ", ".join(["CASE WHEN a THEN 1 END"] * 1_000),
    "in a string": "SELECT '" + "(" * 5_000 + "'",
    "in an E string": "SELECT E'\\'" + "(" * 5_000 + "'",
    "in a name": 'SELECT "' + "(" * 5_000 + '"',
    "in a dollar string": "SELECT $x$'" + "(" * 5_000 + "$x$",
    "in a line comment": "SELECT 1 -- " + "(" * 5_000,
    "in a comment": "SELECT 1 /*" + "(" * 5_000 + "*/",
    "in a comment in a comment": "SELECT 1 /* /* */" + "(" * 5_000 + "*/",
    "closed too often": "SELECT 1" + ")" * 5_000 + "(" * statement_depth_max,
    "chain": "SELECT 1" + "+1" * statement_chain_max,
    "branches": "SELECT CASE" + " WHEN a = 1 THEN b + 1" * 5_000 + " ELSE 1 END",
    "long words": "SELECT " + ", ".join(["a_long_name_of_a_column"] * 1_000),
}


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_what_is_long_but_neither(text: str) -> None:
    scan(text)


def test_the_limits_to_the_letter() -> None:
    for operator, maximum in (("+", statement_chain_max), (" AND ", statement_conditions_max),
                              (" UNION SELECT ", statement_chain_max)):  # fmt: skip
        fine = "SELECT " + operator.join(["a"] * (maximum + 1))
        scan(fine)
        with pytest.raises(OperationalError, match=f"more than {maximum:,}"):
            scan(fine + operator + "a")


@pytest.mark.parametrize(
    ("text", "position"), [("'", 8), ("E'\\'", 8), ("/* /* */", 8), ("$x$ $", 8)]
)
def test_what_has_no_end(text: str, position: int) -> None:
    with pytest.raises(ProgrammingError, match="has no end") as caught:
        scan("SELECT " + text + "(" * 5_000)
    assert caught.value.position == position
