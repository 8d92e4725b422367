"""A script of our own on both servers; where PostgreSQL is there."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fixtures.postgres import NoPostgresError, postgres_folder, running_postgres
from tests.pg_regress.comparison import Verdict
from tests.pg_regress.outcome import SETUP, Finding, Outcome

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def conninfo() -> Iterator[str]:
    pytest.importorskip("psycopg", reason="no psycopg: pip install herdpy-db[bench]")
    with postgres_folder("pg-regress-") as folder, ExitStack() as stack:
        try:
            found, _ = stack.enter_context(running_postgres(folder / "postgres"))
        except NoPostgresError as error:
            pytest.skip(f"no PostgreSQL to compare with: {error}")
        yield found


def run(conninfo: str, corpus: Path, text: str) -> Outcome:
    from tests.pg_regress.run_script import run_file  # which needs psycopg

    (corpus / "sql").mkdir()
    (corpus / "sql" / f"{SETUP}.sql").write_text("create table seven (a int);\n")
    (corpus / "sql" / "own.sql").write_text(text)
    setup, own = run_file(conninfo, corpus, "own", {"FOLDER": str(corpus)})
    assert setup.verdicts == Counter({Verdict.EQUAL: 1})
    return own


def verdicts(outcome: Outcome) -> dict[str, tuple[Verdict, str | None]]:
    """Return by line what is not equal, and where its cause is."""

    def told(each: Finding) -> tuple[Verdict, str | None]:
        cause = each.cause and each.cause.where.partition(":")[2]
        return each.verdict, cause or each.rule

    return {each.where.partition(":")[2]: told(each) for each in outcome.findings}


def test_rows_of_a_copy_are_on_both(conninfo: str, tmp_path: Path) -> None:
    outcome = run(
        conninfo, tmp_path,
        "create table t (a int, b text);\ncopy t from stdin;\n1\tx\\ty\n2\t\\N\n\\.\n"
        "select * from t;\nselect a as found from t where b is null \\gset\n"
        "select a + :found as a from seven right join t using (a) order by a;\n\\d t\n",
    )  # fmt: skip
    assert outcome.findings == []
    assert outcome.verdicts == Counter({Verdict.EQUAL: 4})
    assert outcome.skipped == Counter({"COPY FROM stdin, rows by INSERT": 1, "\\d": 1})


def test_consequences_have_a_cause(conninfo: str, tmp_path: Path) -> None:
    outcome = run(
        conninfo, tmp_path,
        "create table t (a box);\nselect * from t;\ninsert into seven select 7 from t;\n"
        "select count(*) from seven;\ndrop table t;\ncreate table t (a int);\nselect * from t;\n"
        "select box '(1,1),(0,0)';\n",
    )  # fmt: skip
    assert verdicts(outcome) == {
        "1": (Verdict.REFUSED, None), "2": (Verdict.CONSEQUENCE, "1"),
        "3": (Verdict.CONSEQUENCE, "1"), "5": (Verdict.CONSEQUENCE, "1"),
        "8": (Verdict.REFUSED, None),
    }  # fmt: skip


def test_both_are_in_the_same_transaction(conninfo: str, tmp_path: Path) -> None:
    outcome = run(
        conninfo, tmp_path,
        "begin isolation level serializable;\ninsert into seven values (1);\nselect 1 / 0;\n"
        "insert into seven values (2);\ncommit;\nselect * from seven;\n"
        "begin;\ninsert into seven values (3);\ncommit and chain;\n"
        "insert into seven values (4);\nrollback;\nselect * from seven;\n",
    )  # fmt: skip
    assert verdicts(outcome) == {
        "1": (Verdict.REFUSED, None),
        "4": (Verdict.DOCUMENTED, "A failed statement is undone alone"),
        "9": (Verdict.REFUSED, None),
    }
    assert outcome.verdicts[Verdict.EQUAL_ERROR] == 1


def test_a_setting_that_is_refused_is_put_back(conninfo: str, tmp_path: Path) -> None:
    outcome = run(
        conninfo, tmp_path,
        "set datestyle = 'SQL, DMY';\nselect date '2024-01-31';\nbegin;\n"
        "set local bytea_output = escape;\nselect bytea '\\x00ff';\ncommit;\n"
        "set standard_conforming_strings = off;\nselect 'a\\\\b';\nselect 'ab';\n",
    )  # fmt: skip
    assert verdicts(outcome) == {
        "1": (Verdict.REFUSED, None), "4": (Verdict.REFUSED, None), "7": (Verdict.REFUSED, None),
        "8": (Verdict.CONSEQUENCE, "7"),
    }  # fmt: skip
