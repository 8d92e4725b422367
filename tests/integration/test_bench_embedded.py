"""make bench-embedded runs on a few rows, and others take their turns; how fast is not asked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.harness import Bench, Follower
from tests.fixtures.old_commit import ROOT, environment_of

pytestmark = pytest.mark.integration

_FOLLOWING = """
from tests.benchmarks.harness import FollowingBench
turns = []
bench = FollowingBench("test", 1)
bench.compare("first", lambda: turns.append(1), None, setup=(lambda: turns.append(0), None))
with bench.busy():
    bench.compare("second", lambda: turns.append(2), lambda: turns.append(9), count=7)
assert turns == [0, 1, 0, 1, 0, 1, 2, 2], turns
print('{"end": 1}')
"""


@pytest.mark.timeout(300)  # it waits for the disk some thousand times
@pytest.mark.long
def test_every_case_runs(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.embedded", "--rows", "1000", "--rounds", "1"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = json.loads((tmp_path / "build/bench/embedded.json").read_text())
    found = {figure["name"]: figure["ours"] for figure in document["results"]}
    for case in (
        "executemany, per row",
        "durable commit, 32 threads, per commit",
        "checkpoint of 10,000 updates",
        "a process that creates, inserts and selects",
    ):
        assert found[case] > 0


def test_followers_take_their_turns_and_are_compared_by_what_they_differ() -> None:
    command = [sys.executable, "-c", _FOLLOWING]
    env = environment_of(ROOT)
    with Follower(command, env) as one, Follower(command, env) as other:
        bench = Bench("test", 1, followers=(one, other), followers_name="old")
        bench.compare("first", lambda: None, None, rounds=3, bar=1e9)
        bench.compare("second", lambda: None, lambda: None, rounds=2, old_bar=0.5)
        assert one.until("end") == other.until("end") == 1
    names = ["first", "first : old", "second", "second : old"]
    assert [figure.name for figure in bench.figures] == names
    absolute, spread, peer, given = bench.figures
    assert (absolute.peer, absolute.bar) == (None, 1e9)
    assert spread.bar is not None
    assert spread.bar >= 1
    assert (peer.peer_name, given.peer_name, given.bar) == ("sqlite3", "old", 0.5)
