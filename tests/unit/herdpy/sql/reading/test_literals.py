"""Literals: what is split from a text is what the tokens of the text say."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdpy.errors import Error
from herdpy.limits import shared_text_max
from herdpy.sql.reading.literals import split_literals
from herdpy.sql.reading.tokens import tokenize

PIECES = (
    "SELECT ", "a", "t1", "E", "x", "U&", "n", '"a\'1"', "'", "''", "'it''s'", "'a'", '"', "1",
    "23", "4.50", ".", "e5", "-", "--", "/*", "*/", "$", "$$", "$1", "?", ":a", "::", ",", "(", ")",
    "=", "<", ">", ";", " ", "\n", "\u00e9", "'\u00e9'", "\\", "*", "+", "0", "0.0", "_",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "template", "values"),
    [
        ("SELECT a FROM t WHERE id = 5", "SELECT a FROM t WHERE id = ?", (5,)),
        ("insert into t values (-1,'it''s', 2.50)", "insert into t values (?,?, ?)",
         (-1, "it's", Decimal("2.50"))),
        ("DELETE FROM t1 WHERE t1.a='';", "DELETE FROM t1 WHERE t1.a=?;", ("",)),
        ('UPDATE "a\'1" SET b = -0.0', 'UPDATE "a\'1" SET b = ?', (Decimal("0.0"),)),
        ("INSERT INTO t VALUES (NULL, 1)", "INSERT INTO t VALUES (NULL, ?)", (1,)),
    ],
)  # fmt: skip
def test_literals_are_split(text: str, template: str, values: tuple[object, ...]) -> None:
    split = split_literals(text)
    assert split is not None
    assert (split.text, split.values) == (template, values)
    assert [str(value) for value in split.values] == [str(value) for value in values]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM t", "SELECT E'a'", "SELECT x'41'", "SELECT 1e5", "SELECT '5'::integer",
        "SELECT ?, 1", "SELECT :a, 1", "SELECT 1 -- 'a'", "SELECT /* 1 */ 2", "SELECT $$a$$, 1",
        "SELECT 'a\0b'", 'SELECT "a\0b", 1',
        "SELECT '\"a'1\"", 'SELECT 1, "a', "SELECT 1., 2",
        "SELECT 12345678901234567890", "SELECT 1 + 1", "SELECT 'a", "EXPLAIN SELECT 1", "",
        "CREATE TABLE t (a VARCHAR(5))", "SELECT 1_000", "SELECT 5\u00e9",
        "SELECT a FROM t WHERE id = 5" + " " * shared_text_max,
    ],
)  # fmt: skip
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert split_literals(text) is None


@settings(max_examples=2_000, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_what_is_split_is_what_the_tokens_say(pieces: list[str]) -> None:
    text = "SELECT " + "".join(pieces)
    split = split_literals(text)
    if split is None:
        return
    values = iter(split.values)
    meant: list[tuple[str, str]] = []
    for token in tokenize(split.text):
        if token.kind != "placeholder":
            meant.append((token.kind, token.text))
            continue
        value = next(values)
        if isinstance(value, str):
            meant.append(("string", value))
        else:
            meant.append(("number", str(value).lstrip("-")))
    assert next(values, None) is None
    found: list[tuple[str, str]] = []
    try:
        tokens = list(tokenize(text))
    except Error as error:
        raise AssertionError(f"{text!r} is no text of tokens, but {split}") from error
    for place, token in enumerate(tokens):
        before = tokens[place + 1] if place + 1 < len(tokens) else None
        is_sign = token.text == "-" and before is not None and before.start == token.end
        if not (is_sign and before is not None and before.kind == "number"):
            text_ = token.text
            if token.kind == "number":
                text_ = str(Decimal(text_) if "." in text_ else int(text_))
            found.append((token.kind, text_))
    assert found == meant
