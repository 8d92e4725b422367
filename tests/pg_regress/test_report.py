"""The table, the ranking of refusals, kinds of refusals, and the closed list as scripts meet it."""

from collections import Counter

import pytest

from tests.pg_oracle.answers import Answer
from tests.pg_oracle.deviations import DEVIATIONS
from tests.pg_oracle.values import K
from tests.pg_regress import closed_list
from tests.pg_regress.causes import Cause
from tests.pg_regress.closed_list import FAILED_TRANSACTION, Compared, rule_of
from tests.pg_regress.comparison import Reply, Verdict
from tests.pg_regress.files import NAMED
from tests.pg_regress.outcome import SETUP, Finding, Outcome
from tests.pg_regress.reasons import reason_of
from tests.pg_regress.report import refusals, rows, section, with_section
from tests.pg_regress.words import Words


def finding(
    text: str, verdict: Verdict, reason: str, cause: str | None = None, *, is_answered: bool = True
) -> Finding:
    found = None if cause is None else Cause("a.sql:1", cause)
    return Finding("a.sql:2", verdict, "", text, "", "", reason, None, found, is_error=True,
                   is_answered=is_answered)  # fmt: skip


def test_refusals_are_ranked_with_their_consequences() -> None:
    found = refusals(
        [
            finding("select long", Verdict.REFUSED, "few"),
            finding("select", Verdict.REFUSED, "few"),
            finding("x", Verdict.REFUSED_ERROR, "few", is_answered=False),
            finding("create", Verdict.REFUSED, "one"),
            *[finding("select", Verdict.CONSEQUENCE, "missing", "one")] * 2,
            finding("select", Verdict.CONSEQUENCE, "missing", "one", is_answered=False),
        ]
    )
    assert [(each.reason, *each[1:4]) for each in found] == [("one", 1, 2, 0), ("few", 2, 0, 1)]
    assert [each.example.text for each in found] == ["create", "select"]


def outcome(name: str, answered: int, **verdicts: int) -> Outcome:
    counts = Counter({Verdict[verdict]: count for verdict, count in verdicts.items()})
    return Outcome(name, answered, counts)


def test_the_last_row_sums_up_all_files_but_the_setup() -> None:
    made = rows(
        [outcome(SETUP, 3, EQUAL=3), outcome("a", 4, EQUAL=3, REFUSED=1, EQUAL_ERROR=2),
         outcome("b", 2, EQUAL=1, INTERNAL=1)]
    )  # fmt: skip
    assert [row[:6] for row in made] == [
        (SETUP, "3", "3", "3", "100%", "0"),
        ("a", "6", "4", "3", "75%", "2"),
        ("b", "2", "2", "1", "50%", "0"),
        ("all", "8", "6", "4", "67%", "2"),
    ]
    assert made[-1][-1] == "1"
    made = rows([outcome("a", 4, EQUAL=3), *(outcome(name, 2, EQUAL=1) for name in NAMED)])
    assert [row[:5] for row in made[-2:]] == [
        ("named", "15", "30", "15", "50%"), ("all", "18", "34", "18", "53%"),
    ]  # fmt: skip


def test_a_section_takes_the_place_of_the_former_one() -> None:
    page = "# SQL\n\n## PostgreSQL's regression SQL\n\n| old |\n\n## Next\n\ntext\n"
    made = section([outcome("a", 4, EQUAL=3)], "PostgreSQL 15")
    found = with_section(page, made)
    assert found == f"# SQL\n\n{made}\n## Next\n\ntext\n"
    assert "| a | 3 | 4 | 3 | 75% |" in found
    assert with_section(found, made) == found
    with pytest.raises(ValueError, match="no section"):
        with_section("# SQL\n", made)


@pytest.mark.parametrize(
    ("text", "sqlstate", "message", "reason"),
    [
        ("select f(1)", "42883", "function f(integer) does not exist",
         "42883 function f(…) does not exist"),
        ("select 1 from t", "42P01", 'table "t" does not exist', '42P01 table "…" does not exist'),
        ("select 1", "42P01", 'table "pg_x" does not exist', '42P01 table "pg_x" does not exist'),
        ("create temporary table t ()", "0A000", "CREATE TEMPORARY TABLE is not supported",
         "0A000 CREATE TEMP TABLE is not supported"),
        ("create table t partition of u", "42601", 'syntax error at or near "partition"',
         "42601 CREATE TABLE: syntax error at PARTITION"),
        ("create table t u", "42601", 'syntax error at or near "u", expected (',
         "42601 CREATE TABLE: syntax error at a name"),
        ("select", "42601", "syntax error at or near the end",
         "42601 SELECT: syntax error at the end"),
        ("select 'x'::int", "22P02", "bad 'x' of 17 in 4.5", "22P02 bad '…' of … in …"),
    ],
)  # fmt: skip
def test_refusals_of_one_feature_are_of_one_kind(
    text: str, sqlstate: str, message: str, reason: str
) -> None:
    assert reason_of(Words(text), Reply(Answer(sqlstate, message=message))) == reason


def test_every_rule_is_one_of_the_closed_list() -> None:
    for rule in (FAILED_TRANSACTION, *closed_list.RULES):
        assert sum(each.rule.startswith(rule) for each in DEVIATIONS) == 1, rule


def column(kind: str, *cells: str | None) -> Reply:
    return Reply(Answer(None, (K[kind],), tuple((cell,) for cell in cells), len(cells)), ("a",))


def error(sqlstate: str, message: str = "") -> Reply:
    return Reply(Answer(sqlstate, message=message))


OK = Reply(Answer(None, row_count=1))
_SPELLED = "invalid input syntax for type"


@pytest.mark.parametrize(
    ("text", "ours", "theirs", "rule"),
    [
        ("insert", error("22001"), OK, "Text too long"),
        ("insert", error("22001"), error("22003"), None),
        ("select date 'today'", error("22007", f'{_SPELLED} date: "today"'), OK, "Dates and"),
        ("select 1", error("22007", f'{_SPELLED} interval: "1 day 1"'), OK, None),
        ("select 1", error("22007", f'{_SPELLED} interval: "1-2"'), OK, "A text that is computed"),
        ("select 1", error("22P02", f'{_SPELLED} decimal(4,4): "-inf"'), OK, "DECIMAL has at most"),
        ("select 1", error("22P02", f'{_SPELLED} decimal(4,4): "x"'), OK, None),
        ("select ln(a)", column("DOUBLE", "0.69314718055994"), column("DECIMAL", "0.693147180560"),
         "sqrt, exp, ln"),
        ("select ln(a)", column("DOUBLE", "0.69"), column("DECIMAL", "0.72"), None),
        ("select a", column("DOUBLE", "0.69314718055994"), column("DECIMAL", "0.693147180560"),
         None),
        ("select a * b", column("DOUBLE", "Infinity"), error("22003"), "DOUBLE arithmetic"),
        ("select a * b", column("DOUBLE", "1"), error("22003"), None),
        ("select interval '1 mon'", column("INTERVAL", "30 days"), column("INTERVAL", "1 mon"),
         "An interval is no type"),
        ("select interval '1 mon'", column("INTERVAL", "31 days"), column("INTERVAL", "1 mon"),
         None),
        ("select case when true then 1 else 1 / 0 end", column("INTEGER", "1"), error("22012"),
         "Whether an error of a part"),
        ("select 1 / a", column("INTEGER", "1"), error("22012"), None),
        ("select 1.0 / 3", column("DECIMAL", "0.3333333333333333"),
         column("DECIMAL", "0.33333333333333333333"), "A quotient of DECIMALs"),
        ("select 1.0 / 3", column("DECIMAL", "0.3333333333333334"),
         column("DECIMAL", "0.33333333333333333333"), "A quotient of DECIMALs"),
        ("select 1.0 / 3", column("DECIMAL", "0.3433333333333333"),
         column("DECIMAL", "0.33333333333333333333"), None),
        ("select a", column("INTEGER", "1"), column("INTEGER", "2"), None),
        ("select extract(century from a)", error("22023", 'field "century" is not one of'),
         column("DECIMAL", "1"), None),
    ],
)  # fmt: skip
def test_a_difference_by_design_is_known(
    text: str, ours: Reply, theirs: Reply, rule: str | None
) -> None:
    found = rule_of(Compared(text, Words(text), ours, theirs))
    assert found is None if rule is None else (found or "").startswith(rule)
