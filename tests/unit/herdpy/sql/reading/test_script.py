"""Scripts are cut at semicolons that end statements, and at no others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdpy.errors import Error, ProgrammingError
from herdpy.sql.reading.script import Piece, complete_statements, split_statements
from herdpy.sql.reading.tokens import tokenize


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
    assert complete_statements(text) is not None


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT 1; SELECT", "SELECT ';", "SELECT 1; /* ;"])
def test_incomplete(text: str) -> None:
    assert complete_statements(text) is None


def test_no_end() -> None:
    with pytest.raises(ProgrammingError, match="no end") as caught:
        split_statements("SELECT 'a;")
    assert caught.value.sqlstate == "42601"


PIECES = (
    "a", "e", "E", " ", "\n", ";", "'", "''", "'a'", '"', '"b"', "$", "$$", "$t$", "-", "--", "/",
    "/*", "*/", "\\", "\\'", "1", "\u00e9", "U&", "+",
)  # fmt: skip


@settings(max_examples=3_000, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14))
def test_the_cut_is_where_the_tokens_have_it(parts: list[str]) -> None:
    text = "".join(parts)
    try:
        tokens = list(tokenize(text))
    except Error as error:
        with pytest.raises(type(error)):
            split_statements(text)
        return
    expected: list[Piece] = []
    first: int | None = None
    for token in tokens:
        if token.word != ";":
            first = token.start if first is None else first
        elif first is not None:
            expected.append(Piece(text[first : token.start].rstrip(), first, True))
            first = None
    if first is not None:
        expected.append(Piece(text[first:].rstrip(), first, False))
    assert split_statements(text) == expected
