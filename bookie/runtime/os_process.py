"""The identity of this process: a number that changes in a fork()ed child, and a text for locks."""

import os
import sys
from pathlib import Path

forks: list[None] = []
"""One item for each fork() between the first process and this one; only ever grows."""


def process_generation() -> int:
    """Return a number that differs between a process and the children it fork()ed: len(forks).

    The owner of open files compares it with the number seen at open and refuses to go on in a
    child.
    """
    return len(forks)


def processor_count() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def yield_processor() -> None:
    """Let another process run that waits for this processor; returns at once if none does."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()


def describe_process() -> str:
    """Return "pid 123, python demo.py": the script's name, without folder and arguments."""
    # Arguments may hold secrets; sys.argv is missing in some embedded interpreters.
    script = (getattr(sys, "argv", None) or [""])[0]
    program = Path(sys.executable or "python").name
    return f"pid {os.getpid()}, {program} {Path(script).name}".rstrip()


def _count_fork() -> None:
    forks.append(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)
