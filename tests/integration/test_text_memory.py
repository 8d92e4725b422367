"""What DuckDB makes of long texts stays within the memory of a small database, or is refused.

In a process of its own, whose memory without files is sampled while each query runs.
"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

_MEMORY_BYTES = 64 << 20
_BESIDE_BYTES = 100 << 20
"""Texts of one vector, and what Arrow and Python have of a result."""

_LIFE = """
import sys, threading, time
import herdpy
from tests.fixtures.anonymous_memory import anonymous_bytes

c = herdpy.connect(":memory:", autocommit=True, memory_bytes_max=64 << 20)
c.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
c.ingest("t", ({"id": n, "v": "v"} for n in range(20_000)))
c.execute("CREATE TABLE o (id BIGINT PRIMARY KEY, v TEXT)")
c.execute("INSERT INTO o VALUES (1, ?)", ("w" * 500_000,))
if " w" in sys.argv[1]:
    c.execute("CREATE TABLE w (id BIGINT PRIMARY KEY, v TEXT)")
    for n in range(0, 1_200, 20):
        c.executemany("INSERT INTO w VALUES (?, ?)", [(k, "y" * 400_000) for k in range(n, n + 20)])
    c.execute("DELETE FROM w WHERE id % 9 = 0")
c.execute("SELECT count(*), max(v) FROM t GROUP BY id % 3").fetchall()
before = peak = anonymous_bytes()

def sample():
    global peak
    while True:
        peak = max(peak, anonymous_bytes())
        time.sleep(0.005)

threading.Thread(target=sample, daemon=True).start()
text = sys.argv[1]
try:
    found = c.execute(text, ("p" * 500_000,) * text.count("?")).fetchmany(1)
except herdpy.Error as error:
    found = error.sqlstate
print(max(peak, anonymous_bytes()) - before, found)
"""

_QUERIES = {
    "SELECT max(length(upper(?) || cast(id as text))) FROM t": "[(500005,)]",
    "SELECT max(length(repeat('x', 300000) || cast(id as text))) FROM t": "[(300005,)]",
    "SELECT max(length(coalesce(nullif(upper(?), 'q'), cast(id as text)))) FROM t": "[(500000,)]",
    "SELECT max(length(concat(upper(?), id, ' ', v))) FROM t": "[(500007,)]",
    "SELECT length(upper(?) || max(id)::text) FROM t GROUP BY id % 1000": "53200",
    "SELECT max(length(w)) FROM (SELECT DISTINCT upper(?) || id w FROM t) s": "53200",
    "SELECT max(length(substr(o.v, cast(t.id as integer)))) FROM t, o WHERE t.id < 2000":
        "[(500000,)]",
    "SELECT max(length(left(o.v, 400000 + cast(t.id as integer)))) FROM t, o WHERE t.id < 2000":
        "[(401999,)]",
    "SELECT max(length(encode(decode(repeat('ab', 200000), 'hex'), 'hex'))) FROM t":
        "[(400000,)]",
    "SELECT max(v) > min(v) FROM w GROUP BY id % 2": "[(False,)]",
    "SELECT max(length(v)) FROM w WHERE id % 8 <> 1": "[(400000,)]",
    f"SELECT {', '.join(f'max(length(v || {n}))' for n in range(40))} FROM w": None,
    "SELECT max(length(split_part(v, 'y', 3))) FROM w": None,
    "SELECT max(length(o.v) + t.id) FROM t JOIN o ON o.id = t.id % 40": "[(519961,)]",
}  # fmt: skip


@pytest.mark.parametrize("text", _QUERIES)
def test_long_texts_stay_within_the_memory(text: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _LIFE, text], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    byte_count, _, found = ended.stdout.strip().partition(" ")
    if _QUERIES[text] is not None:  # else it may be refused, too
        assert found == _QUERIES[text]
    assert int(byte_count) <= _MEMORY_BYTES + _BESIDE_BYTES
