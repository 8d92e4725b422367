"""make compat: its programs run, here with this commit on both sides, and it sees what differs."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.compat.__main__ import Commit, Report, check_directory, check_sessions, differences
from tests.fixtures.old_commit import ROOT, environment_of

pytestmark = pytest.mark.integration


@pytest.mark.long
@pytest.mark.timeout(600)  # a dozen processes, one after the other
def test_a_directory_and_sessions_of_the_same_commit(tmp_path: Path) -> None:
    here = Commit("here", sys.executable, environment_of(ROOT))
    report = Report(Console(quiet=True))
    (tmp_path / "killed").mkdir()
    check_directory(report, here, here, "killed", tmp_path / "killed")
    check_sessions(report, [(here, here)], tmp_path)
    assert report.failures == 0, report.said
    # One for each thing that is looked at in the directory, one for each transport.
    assert len(report.said) == 10


def test_what_differs_is_named() -> None:
    wanted = {"a": [1, {"b": "x"}], "c": None}
    assert not differences(wanted, wanted)
    assert differences(wanted, {"a": [1, {"b": "y"}], "c": None}) == ["/a/1/b: expected x, found y"]
    assert len(differences(wanted, {"a": [1], "d": 2})) == 2
    assert differences([], None)


def test_a_program_that_fails_is_a_difference() -> None:
    report = Report(Console(quiet=True))
    with report.part("what fails"):
        Commit("here", sys.executable, environment_of(ROOT)).run("-c", "raise SystemExit(3)")
    assert report.failures == 1
