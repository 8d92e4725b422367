"""Scripts are cut at semicolons that end statements, and at no others."""

import pytest

from herdpy.errors import ProgrammingError
from herdpy.sql.reading.script import Piece, is_complete, split_statements


def test_pieces() -> None:
    text = "SELECT 1;\n\n ; SHOW tables;EXPLAIN SELECT ';' ;\nselect 2 -- end; here\n"
    assert split_statements(text) == [
        Piece("SELECT 1", 0, True),
        Piece("SHOW tables", 14, True),
        Piece("EXPLAIN SELECT ';'", 26, True),
        Piece("select 2 -- end; here", 47, False),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'a;b'",
        "SELECT 'it''s; so'",
        'SELECT ";" FROM "a;b"',
        "SELECT 1 /* ; */",
        "SELECT $$ ; $$",
        "SELECT E'\\'; '",
        "SELECT 1 -- ;",
    ],
)
def test_semicolons_that_end_nothing(text: str) -> None:
    assert split_statements(text) == [Piece(text, 0, False)]


@pytest.mark.parametrize("text", ["", " \n", "-- only a comment; so", "SELECT 1;", "SELECT 1; ;  "])
def test_complete(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT 1; SELECT", "SELECT ';", "SELECT 1; /* ;"])
def test_incomplete(text: str) -> None:
    assert not is_complete(text)


def test_no_end() -> None:
    with pytest.raises(ProgrammingError, match="no end") as caught:
        split_statements("SELECT 'a;")
    assert caught.value.sqlstate == "42601"
