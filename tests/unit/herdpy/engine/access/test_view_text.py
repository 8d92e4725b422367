"""The texts of views, in a process that has bound nothing yet."""

import subprocess
import sys
from pathlib import Path

import herdpy


def test_a_dump_is_the_first_call_of_a_process(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with herdpy.connect(directory, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        connection.execute("CREATE VIEW v AS SELECT upper(b) AS u FROM t")
        connection.execute("ALTER TABLE t ADD COLUMN z INTEGER")
    program = "import sys, herdpy; herdpy.connect(sys.argv[1]).dump(sys.argv[2])"
    dump = tmp_path / "dump.sql"
    subprocess.run([sys.executable, "-c", program, directory, dump], check=True, timeout=60)
    assert "upper(b)" in dump.read_text()


def test_a_connection_does_not_load_the_binder() -> None:
    program = (
        "import herdpy, sys; herdpy.connect(':memory:'); print('herdpy.sql.bind' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True
    )
    assert found.stdout == "False\n"
