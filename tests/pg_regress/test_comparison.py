"""Answers are compared as the command says, and what is a consequence is told from what is not."""

import pytest

from tests.pg_oracle.answers import Answer
from tests.pg_oracle.values import K
from tests.pg_regress.causes import Cause, Causes
from tests.pg_regress.comparison import Reply, Verdict, compare
from tests.pg_regress.words import Words

_KINDS = {int: K.INTEGER, str: K.TEXT, float: K.DOUBLE}
OK = Reply(Answer(None, row_count=0))


def rows(*found: tuple[object, ...], names: str = "a b", kinds: str = "") -> Reply:
    """Return the reply of a query: numbers are INTEGER, texts TEXT."""
    width = len(found[0])
    made = tuple(K[kind] for kind in kinds.split()) or tuple(_KINDS[type(x)] for x in found[0])
    cells = tuple(tuple(None if x is None else str(x) for x in row) for row in found)
    return Reply(Answer(None, made, cells, len(cells)), tuple(names.split()[:width]))


def failed(sqlstate: str, message: str = "it failed") -> Reply:
    return Reply(Answer(sqlstate, message=message))


def verdict(text: str, ours: Reply, theirs: Reply) -> Verdict:
    return compare(Words(text), ours, theirs)


@pytest.mark.parametrize(
    ("text", "ours", "theirs", "expected"),
    [
        ("select a from t", rows((1,), (2,)), rows((1,), (2,)), Verdict.EQUAL),
        ("select a from t", rows((2,), (1,)), rows((1,), (2,)), Verdict.EQUAL),
        ("select a from t order by a", rows((2,), (1,)), rows((1,), (2,)), Verdict.DIFFERENT),
        ("select a from t order by 1", rows((2,), (1,)), rows((1,), (2,)), Verdict.DIFFERENT),
        ("select a, b from t order by a", rows((1, 3), (1, 2)), rows((1, 2), (1, 3)),
         Verdict.EQUAL),
        ("select a, b from t order by a, b", rows((1, 3), (1, 2)), rows((1, 2), (1, 3)),
         Verdict.DIFFERENT),
        ("select a, b from t order by c", rows((1, 3), (1, 2)), rows((1, 2), (1, 3)),
         Verdict.DIFFERENT),
        ("select f(a), b from t order by f(a)", rows((1, 3), (1, 2)), rows((1, 2), (1, 3)),
         Verdict.EQUAL),
        ("select f(a) as a, b from t order by f(a)", rows((2, 3), (1, 2)), rows((1, 2), (2, 3)),
         Verdict.DIFFERENT),
        ("select t.*, f(a) from t order by f(a)", rows((1, 3, 1), (1, 2, 1), names="a b c"),
         rows((1, 2, 1), (1, 3, 1), names="a b c"), Verdict.DIFFERENT),
        ("select a from t", rows((1,), (1,)), rows((1,), (2,)), Verdict.DIFFERENT),
        ("select a from t", rows((1,)), rows((1,), (1,)), Verdict.DIFFERENT),
        ("select a from t", rows((1,)), rows((1,), names="b"), Verdict.NAMES),
        ("select a from t", rows((2,)), rows((1,), names="b"), Verdict.DIFFERENT),
        ("select a from t", rows((1,)), rows((1, 2)), Verdict.DIFFERENT),
        ("select a from t", rows(("1.50",), kinds="DECIMAL"), rows(("1.5",), kinds="DECIMAL"),
         Verdict.EQUAL),
        ("select a from t", rows(("9.50",), ("9.5000",), kinds="DECIMAL"),
         rows(("9.500",), ("9.5",), kinds="DECIMAL"), Verdict.EQUAL),
        ("select a, b from t", rows(("9.5000", 1), ("9.50", 2), kinds="DECIMAL INTEGER"),
         rows(("9.500", 2), ("9.5", 1), kinds="DECIMAL INTEGER"), Verdict.EQUAL),
        ("select a from t", rows(("-1 days +16:00:00",), kinds="INTERVAL"),
         rows(("-08:00:00",), kinds="INTERVAL"), Verdict.EQUAL),
        ("select a from t", rows(("30 days",), kinds="INTERVAL"),
         rows(("1 mon",), kinds="INTERVAL"), Verdict.DIFFERENT),
        ("select a from t", rows(("1.50",)), rows(("1.5",)), Verdict.DIFFERENT),
        ("select a from t", rows((0.1 + 0.2,), (1.0,)), rows((1.0,), (0.3,)), Verdict.EQUAL),
        ("select a from t", rows((0.1,)), rows((0.2,)), Verdict.DIFFERENT),
        ("select a from t", rows((None,), kinds="TEXT"), rows(("",)), Verdict.DIFFERENT),
        ("insert into t", Reply(Answer(None, row_count=2)), Reply(Answer(None, row_count=2)),
         Verdict.EQUAL),
        ("insert into t", Reply(Answer(None, row_count=2)), Reply(Answer(None, row_count=1)),
         Verdict.DIFFERENT),
        ("create table t", Reply(Answer(None, row_count=-1)), OK, Verdict.EQUAL),
        ("select", failed("22012"), failed("22012"), Verdict.EQUAL_ERROR),
        ("select", failed("22012"), failed("22003"), Verdict.DIFFERENT),
        ("select", failed("22012"), OK, Verdict.DIFFERENT),
        ("select", OK, failed("22012"), Verdict.DIFFERENT),
        ("select", failed("0A000"), OK, Verdict.REFUSED),
        ("select", failed("42883"), OK, Verdict.REFUSED),
        ("select", failed("0A000"), failed("0A000"), Verdict.EQUAL_ERROR),
        ("select", failed("42601"), failed("22012"), Verdict.REFUSED_ERROR),
        ("select", failed("42883"), failed("22012"), Verdict.REFUSED_ERROR),
        ("select", failed("42703"), failed("42725"), Verdict.DIFFERENT),
        ("select", failed("42P01", 'table "pg_x" does not'), failed("42703"),
         Verdict.REFUSED_ERROR),
        ("select", failed("XX000"), OK, Verdict.INTERNAL),
        ("select", failed("XX000"), failed("XX000"), Verdict.INTERNAL),
    ],
)  # fmt: skip
def test_answers_are_compared(text: str, ours: Reply, theirs: Reply, expected: Verdict) -> None:
    assert verdict(text, ours, theirs) is expected


CAUSE = Cause("a.sql:1", "no such thing")


def of(causes: Causes, text: str, ours: Reply) -> Cause | None:
    return causes.of(Words(text), ours)


def test_what_names_a_table_that_was_refused_is_a_consequence() -> None:
    causes = Causes()
    causes.note(Words("create table t (a box)"), failed("0A000"), OK, CAUSE)
    missing = failed("42P01", 'table "t" does not exist')
    assert of(causes, "select * from t", missing) == CAUSE
    assert of(causes, "select setval('t', 1)", rows((1,))) == CAUSE
    assert of(causes, "select t from u", rows((1,))) is None
    assert of(causes, "select * from t, pg_x", failed("42P01", 'table "pg_x" does')) is None
    assert of(causes, "select * from t", failed("0A000")) is None  # refused by itself


def test_what_reads_changed_rows_is_a_consequence() -> None:
    causes = Causes()
    causes.note(Words("update t set a = 1 returning a"), failed("0A000"), OK, CAUSE)
    assert of(causes, "select * from u join t on true", rows((1,))) == CAUSE


def test_an_error_of_both_leaves_nothing_different() -> None:
    causes = Causes()
    causes.note(Words("insert into t values (1)"), failed("0A000"), failed("23505"), CAUSE)
    assert of(causes, "select * from t", rows((1,))) is None


@pytest.mark.parametrize("is_missing", [False, True])
def test_what_is_dropped_and_made_anew_is_the_same_again(*, is_missing: bool) -> None:
    causes = Causes()
    causes.note(Words("create table t (a box)"), failed("0A000"), OK, CAUSE)
    drop = Words("drop table t")
    if is_missing:
        causes.note(drop, failed("42P01"), OK, CAUSE)
    else:
        causes.forget(drop)
    assert of(causes, "select * from t", rows((1,))) is None


def test_functions_and_types_have_consequences() -> None:
    causes = Causes()
    causes.note(Words("create function f(int) returns int"), failed("0A000"), OK, CAUSE)
    causes.note(Words("create domain d as int"), failed("0A000"), OK, CAUSE)
    assert of(causes, "select f(1)", failed("42883", "function f(integer) does")) == CAUSE
    assert of(causes, "select g(f(1))", failed("42883", "function g(…) does")) is None
    assert of(causes, "select f from t", failed("42703")) is None
    assert of(causes, "select 1::d", failed("42704", 'type "d" does')) == CAUSE


def test_views_and_children_lead_to_the_rows_below() -> None:
    causes = Causes()
    for text in ("create view v as select * from t", "create table c () inherits (u)"):
        causes.note(Words(text), failed("0A000"), OK, CAUSE)
    assert of(causes, "select * from t, u", rows((1,))) is None
    for text in ("update v set a = 1", "insert into c values (1)"):
        causes.note(Words(text), failed("42P01"), OK, CAUSE)
    assert of(causes, "select * from t", rows((1,))) == CAUSE
    assert of(causes, "select * from u", rows((1,))) == CAUSE


def test_the_end_of_a_transaction_is_a_consequence_of_what_was_in_it() -> None:
    causes = Causes()
    causes.note(Words("insert into t values (1)"), failed("0A000"), OK, CAUSE)
    assert of(causes, "commit", Reply(Answer(None, row_count=-1))) == CAUSE
    assert of(causes, "set constraints all immediate", failed("23505")) == CAUSE
    assert of(causes, "set a = 1", failed("22023")) is None
    causes.leave_transaction()
    assert of(causes, "commit", Reply(Answer(None, row_count=-1))) is None


def test_a_table_behind_a_dropped_temporary_one_is_still_missing() -> None:
    causes = Causes()
    other = Cause("b.sql:2", "no temporary tables")
    causes.note(Words("create table t (a box)"), failed("0A000"), OK, CAUSE)
    causes.note(Words("create temp table t (a int)"), failed("0A000"), OK, other)
    assert of(causes, "select * from t", rows((1,))) == other
    causes.note(Words("drop table t"), failed("42P01"), OK, CAUSE)
    assert of(causes, "select * from t", rows((1,))) == CAUSE


def test_how_strings_are_read_is_a_setting() -> None:
    causes = Causes()
    causes.note_setting("standard_conforming_strings", CAUSE)
    assert of(causes, r"select 'a\b'", rows(("x",))) == CAUSE
    assert of(causes, "show standard_conforming_strings", rows(("on",))) == CAUSE
    assert of(causes, r"select 'ab', E'a\b'", rows(("x",))) is None
    causes.forget_setting("standard_conforming_strings")
    assert of(causes, r"select 'a\b'", rows(("x",))) is None


def test_what_a_transaction_may_do_follows_from_its_modes() -> None:
    causes = Causes()
    causes.note_setting("transaction_read_only", CAUSE)
    assert of(causes, "set transaction read write", rows((1,))) == CAUSE
    assert of(causes, "insert into t values (1)", failed("25006")) == CAUSE
    assert of(causes, "show transaction_read_only", rows(("on",))) == CAUSE
    assert of(causes, "insert into t values (1)", failed("23505")) is None
