"""The judgement of `make findings`: what shows nothing about a finding is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.findings.judgement import (
    EXPECTED,
    FOLDER,
    MarkedTest,
    Outcome,
    Run,
    expected_ids,
    judge,
    marked_tests,
)

_HERE = Outcome("test_a.py::test_one", ("S1",), "call", "passed", "", False, "")
_THERE = Outcome("test_a.py::test_one", ("S1",), "call", "failed", "AssertionError", True, "1 == 2")


def problems(there: Outcome, here: Outcome = _HERE) -> list[str]:
    return judge(["S1"], Run((here,)), Run((there,)))[1]


def test_a_test_that_fails_there_by_its_assertion_and_passes_here_is_accepted() -> None:
    rows, said = judge(["S1"], Run((_HERE,)), Run((_THERE,)))
    assert not said
    assert [(row.old, row.new) for row in rows] == [("AssertionError", "passed")]


@pytest.mark.parametrize(
    "there",
    [
        _HERE,
        _THERE._replace(raised="ImportError"),
        _THERE._replace(raised="AttributeError"),
        _THERE._replace(is_in_test=False),
        _THERE._replace(phase="setup"),
        _THERE._replace(phase="teardown"),
        _THERE._replace(raised="Failed"),
        _THERE._replace(outcome="skipped"),
        _THERE._replace(outcome="xfailed"),
    ],
)
def test_what_shows_nothing_on_the_old_commit_is_refused(there: Outcome) -> None:
    (problem,) = problems(there)
    assert problem.startswith("test_a.py::test_one: has to fail on the old commit")


@pytest.mark.parametrize("outcome", ["failed", "skipped", "xfailed"])
def test_what_does_not_pass_here_is_refused(outcome: str) -> None:
    (problem,) = problems(_THERE, _THERE._replace(outcome=outcome))
    assert "does not pass here" in problem
    assert judge(["S1"], Run((_THERE._replace(outcome=outcome),)), None)[1]


def test_an_id_without_a_test_is_refused_and_so_is_one_that_is_not_listed() -> None:
    assert judge(["S1", "S2"], Run((_HERE,)), Run((_THERE,)))[1] == [
        "S2: no test is marked with it"
    ]
    assert len(judge([], Run((_HERE,)), Run((_THERE,)))[1]) == 1


def test_a_test_that_ran_on_one_side_only_is_refused() -> None:
    assert len(judge(["S1"], Run((_HERE,)), Run(()))[1]) == 1
    other = _THERE._replace(test="test_a.py::test_two")
    assert len(judge(["S1"], Run((_HERE,)), Run((_THERE, other)))[1]) == 1
    broken = Run((_THERE,), ("test_b.py: ModuleNotFoundError",))
    assert len(judge(["S1"], Run((_HERE,)), broken)[1]) == 1


_TESTS = """\
import time

import pytest


@pytest.fixture
def broken():
    assert False


def own_check():
    assert False, "one is not two"


@pytest.mark.finding("S1")
def test_asserts():
    own_check()


@pytest.mark.finding("S2")
def test_passes():
    pass


@pytest.mark.finding("S3")
def test_imports():
    from json import no_such_name


@pytest.mark.finding("S4")
def test_fixture(broken):
    pass


@pytest.mark.finding("S5")
@pytest.mark.timeout(0.01, method="signal")
def test_times_out():
    while True:
        pass


@pytest.mark.finding("S6")
def test_elsewhere():
    import helper

    helper.check()


@pytest.mark.finding("S7")
def test_skips():
    pytest.skip("not here")


@pytest.mark.finding("S8", "S9")
@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.finding("S10"))])
def test_many(number):
    assert number == 0


def test_without_a_finding():
    assert False
"""


def test_how_tests_end_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(_TESTS)
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    (tmp_path / "helper.py").write_text("def check():\n    assert False\n")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    finding(id): x\naddopts = -p no:cacheprovider\n"
    )
    path = os.pathsep.join([str(FOLDER), str(tmp_path)])
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1", "-m", "finding",
         "--import-mode=importlib", "-p", "finding_outcomes", "--outcomes",
         str(tmp_path / "out.json"), str(tmp_path)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (tmp_path / "out.json").exists(), ran.stdout + ran.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    there = Run(tuple(map(Outcome.of, document["tests"])), tuple(document["broken"]))
    here = Run(
        tuple(each._replace(phase="call", outcome="passed", raised="") for each in there.outcomes)
    )
    rows, said = judge([f"S{number}" for number in range(1, 11)], here, there)
    accepted = [(row.test, row.ids) for row in rows if row.problem is None]
    assert accepted == [
        ("test_all.py::test_asserts", ("S1",)),
        ("test_all.py::test_many[1]", ("S8", "S9")),
        ("test_all.py::test_many[2]", ("S8", "S9", "S10")),
    ]
    assert [row.old for row in rows if row.problem] == [
        "passed",
        "ImportError",
        "AssertionError in its setup",
        "Failed",
        "AssertionError, not in the test",
        "skipped",
    ]
    assert len(said) == 7, said
    assert "test_broken.py: ModuleNotFoundError" in said[-1]


def test_marks_are_found_in_the_text(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(
        'import pytest\n\npytestmark = pytest.mark.finding("Q1")\n\n\n'
        '@pytest.mark.finding("D2")\nclass TestIt:\n    def test_a(self):\n'
        '        """It works.\n\n        More.\n        """\n' + _TESTS.partition("\n")[2]
    )
    found = marked_tests(tmp_path)
    assert MarkedTest("D2", "test_all.py::TestIt::test_a", "It works.") in found
    assert {each.id for each in found if each.test.endswith("::test_many")} == {
        "Q1", "S8", "S9", "S10"
    }  # fmt: skip
    assert [each.id for each in found] == sorted(
        (each.id for each in found), key=lambda name: (name[0], int(name[1:]))
    )


def test_every_expected_id_is_named_once() -> None:
    ids = expected_ids(EXPECTED.read_text())
    assert len(ids) == len(set(ids)) > 60
