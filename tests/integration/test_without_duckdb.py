"""Work on single rows needs neither duckdb nor pyarrow; what needs them says so."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

PROGRAM = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("duckdb", "_duckdb", "pyarrow", "pandas", "numpy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
import herdpy

path = sys.argv[1]
for attempt in range(2):
    with herdpy.connect(path, autocommit=True) as c:
        c.execute("CREATE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY, v TEXT)")
        c.executemany("UPSERT INTO t VALUES (?, ?)", [(i, str(i)) for i in range(1000)])
        c.execute("UPDATE t SET v = 'x' WHERE id = ?", (7,))
        c.execute("DELETE FROM t WHERE id = ?", (8,))
        assert c.execute("SELECT v FROM t WHERE id = ?", (7,)).fetchone() == ("x",)
        assert c.execute("SELECT v FROM t WHERE id = ?", (8,)).fetchone() is None
        assert c.execute("SELECT v FROM t WHERE id = ?", (9,)).fetchall() == [("9",)]
        assert len(c.execute("SELECT * FROM t WHERE id >= 500 ORDER BY id").fetchall()) == 500
        c._claim._shared.database.run_checkpoint()  # and from pages
        assert c.execute("SELECT v FROM t WHERE id = ?", (7,)).fetchone() == ("x",)
        assert len(c.execute("SELECT * FROM t WHERE id >= 500 ORDER BY id").fetchall()) == 500
        try:
            c.execute("SELECT v, rank() OVER (ORDER BY v) FROM t").fetchall()
        except ImportError as error:
            assert "duckdb" in str(error) or "pyarrow" in str(error)
        else:
            raise SystemExit("a window function ran without DuckDB")
        assert c.execute("SELECT v FROM t WHERE id = 1").fetchone() == ("1",)
print("fine")
"""


def test_rows_without_duckdb_and_pyarrow(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path / "db")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout == "fine\n"
