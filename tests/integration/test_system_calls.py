"""The system calls of a small program under strace are the steps that the simulated disk counts."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bookie.runtime.drivers import ThreadDriver
from bookie.runtime.interfaces import Disk
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_disk import OsDisk
from herdpy.config import Config
from herdpy.engine.database import Database
from herdpy.engine.instance import Instance
from herdpy.model.settings import Settings
from tests.sim.disk import SimulatedDisk

pytestmark = pytest.mark.integration

CALLS = (
    "openat,pwrite64,fdatasync,fsync,ftruncate,fallocate,"
    "rename,renameat,renameat2,unlink,unlinkat,mkdir"
)


class EqualChance:
    """Rng whose bytes are the same in both runs, so that all lengths are."""

    def random(self) -> float:
        return 0.5

    def randbytes(self, count: int) -> bytes:
        return bytes(range(count))


def program(disk: Disk) -> None:
    """Create, write, commit in three ways, checkpoint twice, roll the log, close, open again."""
    config = Config(
        log_file_bytes_first=8192, log_file_bytes_max=8192, disk_reserve_bytes=2 * 1024 * 1024
    )

    def opened() -> Database:
        return Instance(
            disk=disk,
            clock=OsClock(),
            rng=EqualChance(),
            driver=ThreadDriver(),
            config=config,
            is_threaded=False,
        ).start()

    database = opened()
    session = database.session(Settings(), autocommit=True)
    session.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    for key in range(20):
        session.execute("INSERT INTO t VALUES (?, ?)", (key, "x" * 400))
    database.run_checkpoint()
    session.execute("BEGIN")
    session.execute("UPDATE t SET v = 'y' WHERE id < 3")
    session.execute("COMMIT")
    session.execute("SET synchronous_commit = os")
    session.execute("DELETE FROM t WHERE id = 5")
    for _ in range(4):
        session.execute("UPDATE t SET v = 'z' WHERE id = 7")
        database.run_checkpoint()
    database.close()
    opened().close()


def traced(text: str, root: str) -> list[tuple[Any, ...]]:
    """Return the steps in strace's lines, in SimulatedDisk's words."""
    steps: list[tuple[Any, ...]] = []
    made: set[str] = set()

    def short(path: str) -> str | None:
        if path == root:
            return ""
        return path[len(root) + 1 :] if path.startswith(f"{root}/") else None

    for line in text.splitlines():
        match = re.search(r"(\w+)\((.*)\)\s+= (-?\d+)", line)
        if match is None:
            continue
        call, arguments = match[1], match[2]
        if match[3].startswith("-") and not call.startswith("unlink"):  # those count as steps
            continue
        paths = [short(path) for path in re.findall(r'[<"](/[^>"]*)[>"]', arguments)]
        found = [path for path in paths if path is not None]
        if not found:
            continue
        path = found[0]
        if call == "openat":
            if "O_CREAT" in arguments and path not in made:
                made.add(path)
                steps.append(("open", path, 0))
        elif call == "pwrite64":
            count = int(arguments.rsplit(", ", 2)[1])
            steps.append(("write", path, count))
        elif call in ("fdatasync", "fsync"):
            is_directory = path in ("", "default") or path.startswith(("default/", ""))
            is_directory = is_directory and os.path.isdir(os.path.join(root, path))
            steps.append(("sync_directory" if is_directory else "sync", path, 0))
        elif call == "ftruncate":
            steps.append(("truncate", path, int(arguments.rsplit(", ", 1)[1])))
        elif call == "fallocate":
            start, count = arguments.rsplit(", ", 2)[1:]
            steps.append(("allocate", path, int(start) + int(count)))
        elif call.startswith("rename"):
            made.discard(found[0])
            made.add(found[1])
            steps.append(("rename", f"{found[0]} -> {found[1]}", 0))
        elif call.startswith("unlink"):
            made.discard(path)
            steps.append(("unlink", path, 0))
        elif call == "mkdir":
            steps.append(("make_directory", path, 0))
    return steps


def calling(steps: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the steps for which the real disk calls the system.

    It calls nothing to allocate what a file has allocated and no hole in.
    """
    found: list[tuple[Any, ...]] = []
    lengths: dict[str, int] = {}
    for step in steps:
        op, path, count = step
        if op == "allocate" and lengths.get(path, -1) >= count:
            continue
        if op in ("allocate", "truncate"):
            lengths[path] = count
        elif op == "unlink":
            lengths.pop(path, None)
        elif op == "rename":
            before, after = path.split(" -> ")
            lengths[after] = lengths.pop(before, -1)
        found.append(step)
    return found


def test_the_real_disk_does_what_the_simulated_one_counts(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("*** strace is missing: the calls of the real disk were not compared")
    root = tmp_path / "db"
    root.mkdir()
    log = tmp_path / "strace.txt"
    done = subprocess.run(
        [strace, "-f", "-y", "-s", "0", "-e", f"trace={CALLS}", "-o", str(log),
         sys.executable, "-m", "tests.integration.test_system_calls", str(root)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "Operation not permitted" in done.stderr:
        pytest.skip("*** strace may not trace here: the calls of the real disk were not compared")
    assert done.returncode == 0, done.stderr
    real = traced(log.read_text(), str(root.resolve()))
    disk = SimulatedDisk()
    disk.trace = []
    program(disk)
    # The text in LOCK names the process, so its length differs.
    counted = [(op, path, 0 if path == "LOCK" else count) for op, path, count in disk.trace]
    real = [(op, path, 0 if path == "LOCK" else count) for op, path, count in real]
    assert real == calling(counted)
    kinds = {op for op, _, _ in counted}
    assert kinds >= {"open", "write", "sync", "rename", "sync_directory", "make_directory"}


if __name__ == "__main__":
    program(OsDisk(sys.argv[1]))
