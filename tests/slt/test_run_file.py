"""A file of right answers passes, and each thing that is wrong in it is reported as what it is."""

from collections import Counter
from pathlib import Path

import pytest

import herdpy
from herdpy.engine.statements import plan_cache
from tests.fixtures.plants import Plant, planted
from tests.slt.averages import with_whole_averages
from tests.slt.results import digest_of
from tests.slt.run_file import Part, Target, run_part
from tests.slt.tally import Refusal, Tally

RIGHT = f"""\
statement ok
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)

statement ok
INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, NULL)

statement error
INSERT INTO t VALUES (4, 'one', 1)

query IT nosort
SELECT a, b FROM t ORDER BY a DESC
----
3
NULL
2
two
1
one

query I rowsort first
SELECT a + 9 FROM t
----
10
11
12

query R rowsort
SELECT count(*) FROM t
----
3.000

skipif herdpy
query I rowsort second
SELECT a FROM t
----
1
2
3

query I valuesort second
SELECT a FROM t
----
3 values hashing to {digest_of("123")}
"""


def run(folder: Path, text: str, engine: str = "herdpy", *, is_directory: bool = False) -> Tally:
    (folder / "own.test").write_text(text)
    target = Target(engine, is_strict=True, is_directory=is_directory)
    return run_part(folder, Part("own.test", 0, 1_000), target)


@pytest.mark.parametrize("is_directory", [False, True])
def test_right_answers_pass(tmp_path: Path, is_directory: bool) -> None:
    tally = run(tmp_path, RIGHT, is_directory=is_directory)
    assert not tally.findings
    assert (tally.run, tally.passed, tally.coerced, tally.skipped) == (7, 7, 1, 1)
    assert tally.seconds > 0


@pytest.mark.parametrize(
    ("right", "wrong", "kind", "line"),
    [
        ("two\n1", "tow\n1", "values", 10),
        ("10\n11\n12", "10\n11", "number of rows", 20),
        ("10\n11\n12", "11\n10\n12", "order", 20),
        ("DESC\n", "\n", "order", 10),
        ("query IT", "query I", "number of columns", 10),
        ("query IT", "query ITT", "number of columns", 10),
        (digest_of("123"), digest_of("321"), "values (digest)", 40),
        ("3 values", "4 values", "number of rows", 40),
        ("'one', 1)", "'one')", "no error", 7),
        ("rowsort first", "rowsort second", "label (of a skipped record)", 32),
        ("rowsort\nSELECT count", "rowsort first\nSELECT count", "label", 27),
    ],
)
def test_what_is_wrong_is_reported(
    tmp_path: Path, right: str, wrong: str, kind: str, line: int
) -> None:
    assert right in RIGHT
    tally = run(tmp_path, RIGHT.replace(right, wrong, 1))
    found = tally.findings[0]
    assert (found.kind, found.where) == (kind, f"own.test:{line}")
    assert tally.wrong == tally.different.total() >= 1
    assert tally.passed < tally.run == 7 + (kind == "label (of a skipped record)")


def test_a_finding_says_what_was_expected_and_what_was_found(tmp_path: Path) -> None:
    tally = run(tmp_path, RIGHT.replace("10\n11\n12", "10\n12\n11"))
    assert list(map(str, tally.findings)) == [
        "own.test:20: order\n  SELECT a + 9 FROM t\n  expected: 10 12 11\n  found:    10 11 12"
    ]


@pytest.mark.parametrize("error", [KeyError("planted"), herdpy.InternalError("planted")])
def test_an_internal_error_is_reported(tmp_path: Path, error: Exception) -> None:
    def failing(*_: object) -> None:
        raise error

    with planted({"fault": Plant(plan_cache, "plan_statement", lambda _: failing)}, "fault"):
        tally = run(tmp_path, "query I\nSELECT 1\n----\n1\n\nstatement error\nSELECT 2\n")
    assert tally.internal.total() == tally.wrong == tally.run == 2
    assert "planted" in tally.findings[0].found


def test_refusals_are_counted_by_class_and_the_first_is_kept(tmp_path: Path) -> None:
    queries = "".join(f"query I\nSELECT {name} FROM t\n----\n1\n\n" for name in "cd")
    tally = run(tmp_path, f"statement ok\nCREATE TABLE t(a INTEGER)\n\n{queries}")
    ((refusal, count),) = tally.refused.items()
    assert (refusal.sqlstate, count, tally.run, tally.passed) == ("42703", 2, 3, 1)
    assert "…" in refusal.message
    assert tally.examples == {refusal: "own.test:4: SELECT c FROM t"}


def test_a_table_that_was_refused_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    query = "query I\nSELECT a FROM u\n----\n1\n\n"
    tally = run(tmp_path, f"{query}statement ok\nCREATE TABLE u(a WORD)\n\n{query}")
    messages = [refusal.message for refusal in tally.refused if refusal.sqlstate == "42P01"]
    assert messages[1] == f"{messages[0]} (behind a refused statement)"


def test_behind_a_refused_statement_a_difference_is_doubtful(tmp_path: Path) -> None:
    refused = "statement ok\nINSERT INTO t VALUES ('x', 1)\n\n"
    text = RIGHT.replace("statement error", f"{refused}statement error").replace("11", "110")
    tally = run(tmp_path, text)
    assert (tally.doubtful, tally.refused.total(), tally.wrong) == (1, 1, 0)
    assert [finding.kind for finding in tally.asides] == ["values, doubtful"]
    assert tally.run == tally.passed + 2


def test_behind_a_refused_index_a_difference_is_none_less(tmp_path: Path) -> None:
    refused = "statement ok\nDROP INDEX i ON nothing\n\n"
    text = RIGHT.replace("statement error", f"{refused}statement error").replace("11", "110")
    tally = run(tmp_path, text)
    assert (tally.doubtful, tally.refused.total(), tally.wrong) == (0, 1, 1)


_TYPED = """\
query I rowsort label
SELECT 63 / COALESCE(2, avg(7) + (1)) - 40
----
-9

skipif herdpy
query I rowsort label
SELECT -9
----
-9
"""


def test_an_average_that_is_a_decimal_is_no_wrong_answer(tmp_path: Path) -> None:
    tally = run(tmp_path, _TYPED)
    assert (tally.typed, tally.run, tally.passed, tally.wrong) == (1, 1, 0, 0)
    assert [finding.kind for finding in tally.asides] == ["values, by type"]


@pytest.mark.parametrize(("right", "wrong"), [("-9", "-10"), ("avg(7)", "7.0"), ("- 40", "- 41")])
def test_what_no_whole_average_explains_is_wrong(tmp_path: Path, right: str, wrong: str) -> None:
    tally = run(tmp_path, _TYPED.replace(right, wrong))
    assert (tally.typed, tally.run) == (0, 1)


def test_averages_are_put_into_casts() -> None:
    text = "SELECT Avg ( DISTINCT (a) + avg(b) ), 1 + AVG(c)"
    assert with_whole_averages(text) == (
        "SELECT CAST(Avg ( DISTINCT (a) + CAST(avg(b) AS INTEGER) ) AS INTEGER),"
        " 1 + CAST(AVG(c) AS INTEGER)"
    )
    assert with_whole_averages("SELECT average(a)") is None


def test_another_engine_runs_other_records(tmp_path: Path) -> None:
    tally = run(tmp_path, RIGHT, engine="mysql")
    assert (tally.run, tally.passed, tally.skipped) == (8, 8, 0)


@pytest.mark.parametrize(
    ("first", "count", "passed", "skipped"),
    [(0, 3, 3, 0), (3, 2, 2, 0), (5, 2, 2, 1), (8, 5, 1, 0)],
)
def test_a_part_counts_its_own_records_behind_all_statements_before_it(
    tmp_path: Path, first: int, count: int, passed: int, skipped: int
) -> None:
    run(tmp_path, f"{RIGHT}\nstatement ok\nDELETE FROM t\n\nquery I\nSELECT a FROM t\n----\n")
    target = Target("herdpy", is_strict=True, is_directory=False)
    tally = run_part(tmp_path, Part("own.test", first, count), target)
    assert (tally.run, tally.passed, tally.skipped) == (passed, passed, skipped)


def test_a_wrong_statement_before_a_part_counts_all_the_same(tmp_path: Path) -> None:
    run(tmp_path, RIGHT.replace("'one', 1)", "'one')"))
    target = Target("herdpy", is_strict=True, is_directory=False)
    tally = run_part(tmp_path, Part("own.test", 5, 1), target)
    assert (tally.run, tally.doubtful, tally.different) == (2, 1, {"no error": 1})


def test_tallies_are_added(tmp_path: Path) -> None:
    good, bad = run(tmp_path, RIGHT), run(tmp_path, RIGHT.replace("two\n1", "tow\n1"))
    refusal = Refusal("42703", "…")
    bad.refuse(refusal, "own.test:1: SELECT x")
    bad.typed = 1
    total = Tally()
    total.add(good)
    total.add(bad)
    assert (total.files, total.run, total.passed, total.wrong) == (2, 16, 13, 1)
    assert total.different == Counter({"values": 1})
    assert (total.refused[refusal], total.examples[refusal]) == (1, "own.test:1: SELECT x")
    assert total.findings == bad.findings
    assert total.share_passed == 13 / 16


def test_a_file_that_is_none_is_told_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^own\.test:4: no-record begins no record"):
        run(tmp_path, "statement ok\nSELECT 1\n\nno-record\n")
