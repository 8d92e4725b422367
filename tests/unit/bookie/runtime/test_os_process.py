"""process_generation tells a child from its parent; OsRng gives each of them its own chance."""

import os
import sys
import threading
from pathlib import Path

import pytest

from bookie.runtime.os_executors import new_executor
from bookie.runtime.os_process import describe_process, precise_timers, process_generation
from bookie.runtime.os_rng import OsRng


def in_child(report: object) -> bytes:
    """Fork, send what report() returns, and return it in the parent."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, report())  # type: ignore[operator]
        finally:
            os._exit(0)
    os.close(write_end)
    data = os.read(read_end, 100)
    os.close(read_end)
    assert os.waitpid(child, 0)[1] == 0
    return data


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the test runner's threads
def test_generation_changes_in_a_child_and_grandchild() -> None:
    here = process_generation()
    child = in_child(lambda: b"%d" % process_generation())
    grandchild = in_child(lambda: in_child(lambda: b"%d" % process_generation()))
    assert len({here, int(child), int(grandchild)}) == 3
    assert process_generation() == here


def test_describe_process_has_pid_and_script_and_no_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/me/demo.py", "--password=x"])
    text = describe_process()
    assert text.startswith(f"pid {os.getpid()}, python")
    assert text.endswith(" demo.py")
    monkeypatch.setattr(sys, "argv", [""])
    assert describe_process().startswith(f"pid {os.getpid()}, python")


def test_rng() -> None:
    rng = OsRng()
    draws = [rng.random() for _ in range(1000)]
    assert all(0 <= draw < 1 for draw in draws)
    assert len(set(draws)) > 990
    assert 0.4 < sum(draws) / len(draws) < 0.6
    assert len(rng.randbytes(33)) == 33
    assert rng.randbytes(16) != rng.randbytes(16)


def timer_slack_ns() -> int:
    return int(Path(f"/proc/{threading.get_native_id()}/timerslack_ns").read_text())


@pytest.mark.skipif(not Path("/proc/self/timerslack_ns").exists(), reason="Linux has it")
def test_precise_timers_are_those_of_the_thread_alone_and_not_of_the_executors_it_makes() -> None:
    usual_ns = timer_slack_ns()
    with new_executor("before") as before, new_executor("within") as within:
        assert before.submit(timer_slack_ns).result() == usual_ns
        with precise_timers():
            assert timer_slack_ns() == 1
            assert within.submit(timer_slack_ns).result() == usual_ns
        assert timer_slack_ns() == usual_ns
