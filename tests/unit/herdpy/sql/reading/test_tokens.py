"""Scanning: placeholders, limits, one statement; and the statements that we read ourselves."""

import pytest

from herdpy.errors import Error, NotSupportedError, OperationalError, ProgrammingError
from herdpy.model.isolation import Isolation
from herdpy.sql import tree
from herdpy.sql.reading.tokens import scan
from herdpy.sql.statements import Prefix, read_statement

COMMITTED, REPEATABLE = Isolation.READ_COMMITTED, Isolation.REPEATABLE_READ


@pytest.mark.parametrize(
    ("text", "sources", "starts"),
    [
        ("select ?, ?", (0, 1), (7, 10)),
        ("select :a, :b, :a", ("a", "b", "a"), (7, 11, 15)),
        ("select ?::text || '?' -- ?", (0,), (7,)),
        ("select ?||?", (0, 1), (7, 10)),
        ("select x::int, 'a:b', \"c:d\"", (), ()),
        ("select :select", ("select",), (7,)),
        ("select '😀', ?", (0,), (12,)),
    ],
)
def test_placeholders(text: str, sources: tuple[object, ...], starts: tuple[int, ...]) -> None:
    scanned = scan(text)
    assert scanned.placeholders == sources
    assert scanned.placeholder_starts == starts


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("select ?, :a", 11),
        ("select $1", 8),
        ("select $1,$2", 8),
        ("select 1; select 2", 9),
        ("", None),
        (" ; ; ", None),
        ("select 'abc", 8),
        ("select /* abc", 8),
    ],
)
def test_syntax_errors(text: str, position: int | None) -> None:
    with pytest.raises(ProgrammingError) as caught:
        scan(text)
    assert (caught.value.sqlstate, caught.value.position) == ("42601", position)


@pytest.mark.parametrize(
    "text",
    [
        "select " + "(" * 201 + "1" + ")" * 201,
        "select " + "case when true then " * 201 + "1" + " end" * 201,
        "select " + "not " * 201 + "true",
        "select " + "- " * 201 + "1",
        "select '" + "x" * (16 * 1024 * 1024) + "'",
    ],
    ids=["parentheses", "case", "not", "minus", "length"],
)
def test_limits(text: str) -> None:
    with pytest.raises(OperationalError) as caught:
        scan(text)
    assert caught.value.sqlstate == "54001"


Modes = tree.TransactionModes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("begin", tree.Begin()),
        (
            "BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;",
            tree.Begin(Modes(COMMITTED, False)),
        ),
        ("begin isolation level read uncommitted", tree.Begin(Modes(COMMITTED))),
        ("start transaction isolation level repeatable read", tree.Begin(Modes(REPEATABLE))),
        (
            "begin read write isolation level repeatable read",
            tree.Begin(Modes(REPEATABLE, False)),
        ),
        ("begin read only", tree.Begin(Modes(None, True))),
        ("start transaction read write, read only", tree.Begin(Modes(None, True))),
        ("set transaction read only", tree.SetTransaction(Modes(None, True))),
        (
            "set session characteristics as transaction read only",
            tree.SetCharacteristics(Modes(None, True)),
        ),
        ("start transaction", tree.Begin()),
        ("set transaction isolation level repeatable read", tree.SetTransaction(Modes(REPEATABLE))),
        ("set session transaction read write", tree.SetTransaction(Modes(None, False))),
        (
            "set session characteristics as transaction isolation level repeatable read",
            tree.SetCharacteristics(Modes(REPEATABLE)),
        ),
        ("savepoint A", tree.MakeSavepoint("a")),
        ('savepoint "A"', tree.MakeSavepoint("A")),
        ("rollback to a", tree.RollbackTo("a")),
        ("rollback work to savepoint a", tree.RollbackTo("a")),
        ("rollback to savepoint", tree.RollbackTo("savepoint")),
        ('rollback to savepoint "x y"', tree.RollbackTo("x y")),
        ("release a;", tree.Release("a")),
        ("release savepoint a", tree.Release("a")),
        ("commit work", tree.Commit()),
        ("end", tree.Commit()),
        ("rollback", tree.Rollback()),
        ("abort transaction", tree.Rollback()),
        ("set lock_timeout = '5s'", tree.SetOption("lock_timeout", "5s")),
        ("SET Session lock_timeout TO 500", tree.SetOption("lock_timeout", "500")),
        ("set lock_timeout to default", tree.SetOption("lock_timeout", None)),
        ("reset lock_timeout", tree.SetOption("lock_timeout", None)),
        ("show tables", tree.ShowOption("tables")),
        ("/* c */ show transaction isolation level", tree.ShowOption("transaction_isolation")),
    ],
)
def test_own_statements(text: str, expected: tree.Statement) -> None:
    assert read_statement(scan(text)) == expected


def test_explain_and_upsert_are_taken_off_the_front() -> None:
    found = read_statement(scan("explain analyze upsert into t values (1)"))
    assert isinstance(found, Prefix)
    assert (found.is_explain, found.is_analyze, found.rest.word(0)) == (True, True, "UPSERT")
    assert found.rest.word(0) == "UPSERT"
    assert found.rest.position(0) == 17


@pytest.mark.parametrize(
    ("text", "kind", "position"),
    [
        ("begin isolation level serializable", NotSupportedError, 23),
        ("rollback to", ProgrammingError, 12),
        ("commit to x", NotSupportedError, 8),
        ("savepoint", ProgrammingError, 10),
        ("savepoint x y", ProgrammingError, 13),
        ("begin isolation level repeatable", ProgrammingError, 33),
        ("begin isolation level chaos", ProgrammingError, 23),
        ("alter domain t add x", NotSupportedError, 7),
        ("create temp sequence i", NotSupportedError, 8),
        ("copy t from stdin", NotSupportedError, 1),
        ("selct 1", ProgrammingError, 1),
        ("commit now", ProgrammingError, 8),
        ("set x", ProgrammingError, 6),
        ("explain begin", ProgrammingError, 9),
        ("explain", ProgrammingError, 8),
    ],
)
def test_refused_statements(text: str, kind: type[Error], position: int) -> None:
    with pytest.raises(kind) as caught:
        read_statement(scan(text))
    assert caught.value.position == position
    assert caught.value.sqlstate == ("0A000" if kind is NotSupportedError else "42601")


@pytest.mark.parametrize("text", ["EXPLAIN SELECT 'a'", "EXPLAIN ANALYZE SELECT /* ; */ 'a'"])
def test_explain_of_what_ends_with_a_string(text: str) -> None:
    tokens = scan(text).tokens
    assert tokens[0].text.upper() == "EXPLAIN"
    assert [token.text for token in tokens[-2:]] == ["SELECT", "a"]


@pytest.mark.parametrize("rest", ["e", "E", "e+", "else", "e-x"])
def test_an_exponent_has_digits(rest: str) -> None:
    """Also on Pythons before 3.11.5, whose groups that give nothing back end where they failed."""
    number, word = scan(f"SELECT 1{rest}").tokens[1:3]
    assert (number.text, word.text) == ("1", rest.rstrip("+-x"))
