"""The example of Spark, as its users run it: a real Spark beside a real server, once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import herdpy
from herdpy.cli.demo.tables import TABLES, read_text, row_batches
from tests.fixtures.served import served

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parent.parent.parent
ROWS = 6_000
QUICK = "-XX:TieredStopAtLevel=1"  # of the JVM: begin soon, not run fast
LATE = (
    "SELECT a.name, count(*), sum(f.arr_delay) AS minutes FROM flights AS f"
    " JOIN airlines AS a ON a.carrier = f.carrier WHERE f.arr_delay IS NOT NULL"
    " GROUP BY a.name ORDER BY minutes DESC, a.name"
)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_example_of_spark(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        with herdpy.connect(server.url, autocommit=True) as conn:
            for table in TABLES:
                if table.name not in ("airlines", "flights"):
                    continue
                conn.execute(table.create_text)
                for batch in row_batches(table, read_text(table), ROWS):
                    conn.executemany(table.insert_text, batch)
            expected = conn.execute(LATE).fetchall()
            assert len(expected) > 5
        paths = [str(ROOT), str(ROOT / "spark_connector")]
        ran = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "spark" / "pipeline.py"), server.url],
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "JDK_JAVA_OPTIONS": QUICK},
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-4000:]
        shown = [line for line in ran.stdout.splitlines() if " | " in line]
        assert shown == [" | ".join(map(str, row)) for row in expected[:3]], ran.stdout
        with herdpy.connect(server.url, autocommit=True) as conn:
            text = "SELECT name, flights, minutes FROM late_airlines ORDER BY minutes DESC, name"
            assert conn.execute(text).fetchall() == expected
            assert conn.execute("SELECT * FROM sysleases").fetchall() == []
