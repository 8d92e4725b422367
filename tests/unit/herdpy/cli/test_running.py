"""`herdpy cluster kill` and `stop`: the very process that was written down gets the signal."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from herdpy.cli.app import app
from herdpy.cli.cluster.running import forget_running, start_of, write_running


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["cluster", *arguments])


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_program_is_killed_by_its_name(tmp_path: Path, child: "subprocess.Popen[bytes]") -> None:
    write_running(tmp_path, [("n1", child.pid), ("n2", os.getpid())])
    assert list(tmp_path.iterdir()) == [tmp_path / "running.json"]
    result = run("kill", "n1", "--data", str(tmp_path), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output) == {"killed": "n1", "pid": child.pid}
    assert child.wait() == -signal.SIGKILL
    again = run("kill", "n1", "--data", str(tmp_path))
    assert again.exit_code == 1
    assert f"n1 (pid {child.pid}) has ended; no process got a signal (55000)" in again.output


def test_a_pid_that_is_another_process_s_by_now_gets_no_signal(
    tmp_path: Path, child: "subprocess.Popen[bytes]"
) -> None:
    write_running(tmp_path, [("n1", child.pid)])
    file = tmp_path / "running.json"
    record = json.loads(file.read_text())
    record["programs"][0]["start"] += "0"
    record["up"] = record["programs"][0]
    file.write_text(json.dumps(record))
    for arguments in (("kill", "n1"), ("stop",)):
        result = run(*arguments, "--data", str(tmp_path))
        assert result.exit_code == 1
        assert "no process got a signal (55000)" in result.output
    assert child.poll() is None


def test_stop_ends_the_process_that_runs_the_cluster(
    tmp_path: Path, child: "subprocess.Popen[bytes]"
) -> None:
    write_running(tmp_path, [])
    file = tmp_path / "running.json"
    record = json.loads(file.read_text())
    record["up"] |= {"pid": child.pid, "start": start_of(child.pid)}
    file.write_text(json.dumps(record))
    result = run("stop", "--data", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert child.wait() == -signal.SIGTERM


def test_what_is_refused(tmp_path: Path) -> None:
    nothing = run("stop", "--data", str(tmp_path))
    assert nothing.exit_code == 1
    assert "expected the processes of a cluster that runs, found none (58P01)" in nothing.output
    write_running(tmp_path, [("n1", os.getpid())])
    other = run("kill", "n9", "--data", str(tmp_path))
    assert other.exit_code == 1
    assert "expected a process of the cluster (n1), found 'n9' (22023)" in other.output
    (tmp_path / "running.json").write_text("{}")
    broken = run("kill", "n1", "--data", str(tmp_path))
    assert broken.exit_code == 1
    assert "expected the processes of a cluster, found" in broken.output
    assert "(XX001)" in broken.output
    forget_running(tmp_path)
    forget_running(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_has_ended_has_no_start(child: "subprocess.Popen[bytes]") -> None:
    assert start_of(child.pid) == start_of(child.pid) != start_of(os.getpid())
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie still
    assert start_of(child.pid) is None
