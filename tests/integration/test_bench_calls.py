"""make bench-calls: counts are the same in all runs, and a change of thread is told from chance."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.calls import PYTHON_MIN
from tests.benchmarks.calls_child import Event, changes

pytestmark = pytest.mark.integration


@pytest.mark.skipif(sys.version_info < PYTHON_MIN, reason="threads are profiled since 3.12")
def test_counts_are_equal_in_all_runs(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.benchmarks.calls", "--runs", "3"]
    ran = subprocess.run(
        [*command, "--only", "local select", "--only", "network insert"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = json.loads((tmp_path / "build/bench/calls.json").read_text())
    found = {figure["name"]: figure for figure in document["results"]}
    assert found["SELECT by key in process, calls"]["bar"] == 12
    assert found["SELECT by key in process, calls"]["ours"] > 2
    assert found["INSERT over the network, changes of thread"]["ours"] >= 2
    assert all(figure["peer"] is None for figure in found.values())


def events(text: str) -> list[Event]:
    """Return events: a1 is a call in thread 1, w1 its wait, r1 its recv and k1 the end of them."""
    kinds = {"a": "call", "w": "wait", "k": "woken", "r": "wait"}
    return [
        Event(int(word[1]), kinds[word[0]], "", "recv" if word[0] == "r" else "poll")
        for word in text.split()
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a1 a1", 0),
        ("a1 r1 k2 a2 k1 a1", 2),
        # The answer was there before the client looked for it.
        ("a1 k2 a2 r1 k1 a1", 2),
        # Calls of two threads fall among one another.
        ("a1 k2 a2 a1 a2 r1 a2 k1 a1", 2),
        # A lock that is free is no wait, whatever others did before.
        ("a1 a2 a1 w1 k1 a1", 1),
        ("a1 r1 k2 a2 w2 k3 a3 k2 a2 w2 a3 k1 a1", 4),
    ],
)
def test_changes_of_thread(text: str, count: int) -> None:
    assert changes(events(text)) == count
