"""The end of a program that closes nothing: its databases are closed, and it ends as it would."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import herdpy

_PROGRAM = """
import sys
import herdpy

def use(target):
    connection = herdpy.connect(target, autocommit=True)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v DOUBLE PRECISION)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, n / 2) for n in range(3000)])
    assert len(connection.execute("SELECT sum(v) FROM t GROUP BY id % 2").fetchall()) == 2
    return connection

mode, *targets = sys.argv[1:]
connections = [use(target) for target in targets]
for connection in connections:
    connection.execute("BEGIN")
    connection.execute("DELETE FROM t")
if mode == "collected":
    del connection, connections
if mode == "failed":
    sys.exit(3)
"""


@pytest.mark.parametrize(("mode", "code"), [("open", 0), ("collected", 0), ("failed", 3)])
def test_a_program_that_leaves_databases_open(mode: str, code: int, tmp_path: Path) -> None:
    targets = [str(tmp_path / "a"), str(tmp_path / "b"), ":memory:", ":memory:"]
    found = subprocess.run(
        [sys.executable, "-c", _PROGRAM, mode, *targets],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (code, "")
    for target in targets[:2]:
        with herdpy.connect(target) as connection:
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (3000,)


_FORKING = """
import os
import signal
import sys

from herdpy.driver.dsn import ZooKeeper
from herdpy.driver.local import open_zookeeper

directory = open_zookeeper(ZooKeeper("127.0.0.1:1"))
child = os.fork()
if child == 0:
    signal.alarm(60)  # what hangs is not to stay
    sys.exit(5)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
directory.end()
sys.exit(code)
"""


def test_a_forked_child_of_a_program_that_asks_a_zookeeper() -> None:
    found = subprocess.run([sys.executable, "-c", _FORKING], check=False)
    assert found.returncode == 5
