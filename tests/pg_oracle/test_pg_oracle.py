"""The list of deviations on both servers, and some generated cases; where PostgreSQL is there."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

pytest.importorskip("psycopg", reason="no psycopg: pip install herdpy-db[bench]")

from tests.fixtures.postgres import NoPostgresError, postgres_folder, running_postgres
from tests.pg_oracle.answers import Answer, Difference
from tests.pg_oracle.cases import create_tables, make_case, make_world
from tests.pg_oracle.comparison import Comparison
from tests.pg_oracle.deviations import DEVIATIONS, Deviation, Result, reason_of
from tests.pg_oracle.expressions import Node
from tests.pg_oracle.rules import GROUPS
from tests.pg_oracle.run_seed import judge
from tests.pg_oracle.servers import Herdpy, Postgres
from tests.pg_oracle.values import K

_CLEAN = (
    "DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "DROP ROLE IF EXISTS ann",
    "DROP ROLE IF EXISTS staff",
)  # fmt: skip


@pytest.fixture(scope="module")
def conninfo() -> Iterator[str]:
    with postgres_folder("pg-oracle-") as folder, ExitStack() as stack:
        try:
            found, _ = stack.enter_context(running_postgres(folder / "postgres"))
        except NoPostgresError as error:
            pytest.skip(f"no PostgreSQL to compare with: {error}")
        yield found


def _result(answer: Answer) -> Result:
    if answer.sqlstate is not None:
        return answer.sqlstate
    if not answer.kinds:
        return None
    return [" | ".join("NULL" if cell is None else cell for cell in row) for row in answer.rows]


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=lambda each: each.rule[:40])
def test_both_servers_answer_as_the_list_says(conninfo: str, deviation: Deviation) -> None:
    with closing(Postgres(conninfo)) as theirs, closing(Herdpy()) as ours:
        for text in _CLEAN:
            assert theirs.run(text).sqlstate is None, text
        found = [
            (text, _result(ours.run(text)), _result(theirs.run(text)))
            for text, _, _ in deviation.examples
        ]
    assert found == list(deviation.examples)


def test_cases_differ_by_design_or_not_at_all(conninfo: str, seed: int) -> None:
    first = seed % 1_000_000
    with closing(Comparison(conninfo)) as comparison:
        done = judge(comparison, first, 400)
    assert not done.findings, "\n".join(
        f"python -m tests.pg_oracle --seed {number} --trace\n{text}"
        for number, text in done.findings.items()
    )
    assert sum(done.kinds.values()) > 800


_ENDED = """
import sys, time
from pathlib import Path
from tests.fixtures.postgres import running_postgres
with running_postgres(Path(sys.argv[1])) as (conninfo, _):
    print(conninfo.partition("port=")[2].split()[0], flush=True)
    sys.stdin.read()
"""


def test_a_runner_that_is_terminated_leaves_no_server(conninfo: str) -> None:
    with postgres_folder("pg-oracle-") as folder:
        command = [sys.executable, "-c", _ENDED, str(folder / "postgres")]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with process:
            assert process.stdout is not None
            address = ("127.0.0.1", int(process.stdout.readline()))
            socket.create_connection(address, 60).close()
            process.terminate()
            assert process.wait(60) == 128 + signal.SIGTERM
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 60)


def _difference(label: str, ours: str | None, theirs: str | None, *parts: str | None) -> Difference:
    def answer(code: str | None) -> Answer:
        return Answer(code) if code else Answer(None, (K.INTEGER,), (("1",),))

    kind = K.UNKNOWN if label == "UPDATE" else K.INTEGER
    found = answer(ours)._replace(row_count=0)
    node = Node(label, kind, "")
    return Difference(label, node, "SELECT 1", found, answer(theirs), tuple(map(answer, parts)))


@pytest.mark.parametrize(
    ("difference", "is_documented"),
    [
        (_difference("AND", "22012", None, None, "22012"), True),
        (_difference("AND", "22012", None, None, "22003"), False),  # no part raises it
        (_difference("AND", "22012", None, None, None), False),
        (_difference("i + j", "22012", None, None, "22012"), False),  # both are needed
        (_difference("sum(i)", None, "22012", "22012"), False),
        (_difference("i + j", "22012", "22003", "22012", "22003"), True),  # which of them
        (_difference("i + j", "22012", "22023", "22012", None), False),
        (_difference("i + j", "42846", "22P02", "42846", "22P02"), True),
        (_difference("i + j", "42846", "22P02", "42846", None), False),
        (_difference("i + j", "XX000", "22P02", "XX000", "22P02"), False),
        (_difference("i + j", "22012", "42883", "22012", None), True),
        (_difference("i + j", "XX000", None, "XX000", None), False),
        (_difference("UPDATE", None, "22003", None), True),  # of a constant, and of no row
        (_difference("UPDATE", None, "XX000", None), False),
        (_difference("UPDATE", "22003", None, None), False),
        (_difference("UPDATE", "22012", "23505", "22012"), True),
        (_difference("UPDATE", "23502", "22003", None), True),  # of another row
        (_difference("UPDATE", "22012", "42804", "22012"), True),  # of a constant, before types
        (_difference("UPDATE", "22012", "42883", "22012"), False),
        (_difference("(query of bigint)", None, "22P02", "22P02"), True),
        (_difference("(query of bigint)", None, "22P02", None), False),
        (_difference("UPDATE", "22003", "42846", "42846"), True),  # of a constant, before types
        (_difference("UPDATE", "22003", "42846", None), False),
        (_difference("UPDATE", "22012", "42846", "42846"), False),
    ],
    ids=lambda found: str(found)[:30] if isinstance(found, bool) else found.label,
)
def test_an_error_that_nothing_needs_is_one_of_a_part(
    difference: Difference, *, is_documented: bool
) -> None:
    assert (reason_of(difference) is not None) == is_documented


def test_a_case_is_made_of_its_seed_alone() -> None:
    def texts() -> list[str]:
        made = (make_case(number, make_world(number // 25)) for number in range(0, 1_900, 7))
        return [case.node.text(case.tail) if case.node else str(case.change) for case in made]

    assert texts() == texts()


def test_expressions_meet_both_paths() -> None:
    with closing(Herdpy()) as ours:
        for text in create_tables("TABLE"):
            assert ours.run(text).sqlstate is None
        for name in ("value", "predicate"):
            frame = make_world(1).frames[name]
            plans = [
                str(ours.run(f"EXPLAIN {frame.statement(['(q.i < 3)'], by_rows=by_rows)}"))
                for by_rows in (True, False)
            ]
            found = [("Row path" in plan, "Vector path" in plan) for plan in plans]
            assert found == [(True, False), (False, True)], plans


def test_kinds_have_names_of_their_own() -> None:
    labels = [rule.label for rules in GROUPS.values() for rule in rules]
    assert len(labels) == len(set(labels))
