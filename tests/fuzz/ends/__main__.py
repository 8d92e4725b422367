"""`python -m tests.fuzz.ends --rounds 5 --seed 1`: how soon does a statement end that must?

Statements that are long in one phase each are ended at moments that a seed chooses, by a cancel, a
KILL, a time-out, a closed socket, of a served process, and by Ctrl-C, embedded. Measured is the
time until they have ended: that of a machine with nothing else to do. Exit code 1 where one took
longer than 200 ms. Statements that wait for the disk, or for who reads, are those of waits.py.
"""

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

import herdpy
from herdpy.limits import (
    statement_chain_max,
    vector_correlated_max,
    vector_nodes_max,
    vector_subqueries_max,
)
from tests.fixtures.seed_runner import table
from tests.fixtures.served import served
from tests.fuzz.ends import waits
from tests.fuzz.ends.ways import WAYS, Ended

_BAR_MS = 200.0
_LENGTH_MAX_S = 1.5  # of a statement, before it is ended
_ROWS = 60_000
_AGAIN_S = 0.02
_LOOK_S = 0.005  # looks without a pause would take the interpreter from what they look at
_PATIENCE_S = 3.0  # for what the bar is missed by far
_SETTINGS = ("server.workers=2", "server.slow_statement_s=0")
"""Two workers, as processors; and no line for each slow statement."""
_STATE = "SELECT (SELECT sum(id + length(s)) FROM t), (SELECT count(*) FROM u)"
_Sql = str | list[Any]


def _many(head: str, item: str, separator: str, tail: str, count: int) -> str:
    return head + separator.join(item.replace("{n}", str(n)) for n in range(count)) + tail


_FROM = " FROM (SELECT * FROM t ORDER BY upper(s)) AS t"
_PRODUCT = " FROM t AS a, t AS b, t AS c"
PHASES: dict[str, str] = {
    "words of a text": _many("SELECT id FROM t WHERE id IN (", "{n}", ", ", ")", 300_000),
    "rows of a text": _many("INSERT INTO u VALUES ", "({n}, concat('a', {n}))", ", ", "", 60_000),
    "conditions": _many("SELECT id FROM t WHERE ", "id = {n}", " OR ", "",
                        vector_nodes_max // 4 - 20),
    "columns for DuckDB": _many("SELECT ", "id + {n}", ", ", _FROM, 1_600),
    "averages for DuckDB": _many("SELECT ", "avg(id + {n})", ", ", _FROM, 220),
    "deviations for DuckDB": _many("SELECT ", "stddev(id + {n})", ", ", _FROM, 45),
    "intervals for DuckDB": _many("SELECT ", "avg(('{n} days' || s)::interval)", ", ", _FROM, 12),
    "subqueries for DuckDB": _many("SELECT ", "(SELECT max(id) + {n} FROM u)", ", ", _FROM,
                                   vector_subqueries_max),
    "correlated subqueries": _many("SELECT ", "(SELECT max(id) FROM u WHERE u.id < t.id + {n})",
                                   ", ", _FROM, vector_correlated_max),
    "a chain for DuckDB": _many("SELECT id", " + id", "", _FROM, statement_chain_max - 20),
    "DuckDB computes": f"SELECT count(*){_PRODUCT} WHERE (a.id + b.id * c.id) % 7 = 8",
    "DuckDB sorts": f"SELECT a.id{_PRODUCT} ORDER BY a.id * b.id - c.id",
    "DuckDB compares texts": "SELECT count(*) FROM t AS a, t AS b WHERE repeat(a.s, 900) LIKE"
                             " '%a_%b_%c' || b.s",
    "rows of DuckDB are inserted": f"INSERT INTO u SELECT a.id{_PRODUCT}",
    "rows are changed": "UPDATE t SET s = s || 'x' WHERE id >= 0",
    "keys are changed": "UPDATE t SET id = id + 1000000",
    # Some at a time: while the client is at work on a piece there is no statement to be ended.
    "rows are sent": f"SELECT a.id, b.s, c.s{_PRODUCT} WHERE (a.id + b.id * c.id) % 9973 = 8",
    "a lock": "UPDATE held SET id = 2",
}  # fmt: skip


@contextmanager
def _filled(url: str) -> Iterator[herdpy.Connection]:
    with herdpy.connect(url, autocommit=True) as connection:
        for name in ("t", "u", "held"):
            connection.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, s TEXT)")
        rows = [(n, f"abc{n % 100}") for n in range(_ROWS)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        connection.execute("INSERT INTO held VALUES (1, 'a')")
        connection.execute("SELECT power(id, 2) FROM t ORDER BY upper(s)").fetchone()
        yield connection


def _run(connection: herdpy.Connection, text: str) -> str:
    """Run a statement to its last row; return how it ended."""
    try:
        cursor = connection.execute(text)
        while cursor.description is not None and cursor.fetchmany(10_000):
            pass
    except herdpy.Error as error:
        return error.sqlstate
    except KeyboardInterrupt:
        return "Ctrl-C"
    return "rows"


def _by_another(url: str, phase: str, way: str, after_s: float) -> Ended:
    """End a statement over the network."""
    with (
        closing(herdpy.connect(f"{url}/?retry_timeout_s=0", autocommit=True)) as connection,
        closing(herdpy.connect(url, autocommit=True)) as other,
    ):
        ended: list[str] = []
        before = other.execute(_STATE).fetchone()
        blank = " " * random.randrange(1, 1_000)
        text = PHASES[phase] + blank  # another text: no plan of it is kept
        thread = threading.Thread(target=lambda: ended.append(_run(connection, text)))
        if way == "time-out":
            connection.execute(f"SET statement_timeout = '{max(int(after_s * 1e3), 1)}ms'")
        begun_s = time.monotonic()
        thread.start()
        time.sleep(after_s)
        if way != "time-out":
            begun_s, after_s = WAYS[way](url, connection), 0.0
            # Between two pieces of a result nothing runs that they end: who wants it asks again.
            while way != "closed socket" and thread.is_alive():
                thread.join(_AGAIN_S)
                if time.monotonic() - begun_s < _PATIENCE_S:
                    WAYS[way](url, connection)
                else:
                    WAYS["closed socket"](url, connection)
                    break
        thread.join()
        seen = "SELECT text FROM sysstatements"
        while way == "closed socket" and other.execute(seen).fetchall() != [(seen,)]:
            time.sleep(_LOOK_S)
        took_ms = (time.monotonic() - begun_s - after_s) * 1e3
        # A COMMIT that the log has is carried out: only the client that is gone knows no better.
        is_done = way == "closed socket" and other.execute(_STATE).fetchone() != before
    return Ended(phase, way, took_ms, "rows" if is_done else ended[0])


def _by_signal(connection: herdpy.Connection, phase: str, after_s: float) -> Ended:
    """End a statement of this thread by a signal whose handler raises KeyboardInterrupt."""
    raised_s = 0.0

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal raised_s
        raised_s = raised_s or time.monotonic()
        raise KeyboardInterrupt

    kept = signal.signal(signal.SIGALRM, interrupt)
    due_s = time.monotonic() + after_s
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        how = _run(connection, PHASES[phase] + " " * random.randrange(1, 1_000))
        ended_s = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:  # behind its end
        how, ended_s = "rows", due_s
    finally:
        signal.signal(signal.SIGALRM, kept)
    # Python calls the handler when DuckDB gives it the word: what counts is when the signal came.
    return Ended(phase, "Ctrl-C", max(ended_s - due_s, 0.0) * 1e3, how)


def _length_s(connection: herdpy.Connection, phase: str) -> float:
    """Return how long a statement takes, at most _LENGTH_MAX_S."""
    connection.execute(f"SET statement_timeout = '{int(_LENGTH_MAX_S * 1e3)}ms'")
    begun_s = time.monotonic()
    _run(connection, f"{PHASES[phase]} ")
    connection.execute("SET statement_timeout = 0")
    return min(time.monotonic() - begun_s, _LENGTH_MAX_S)


def measure(rounds: int, chance: random.Random, phases: list[str]) -> Iterator[Ended]:
    if not phases:
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder) / "data", _SETTINGS) as server,
        _filled(url := server.url.partition("?")[0]) as connection,
        herdpy.connect(url) as holder,
    ):
        holder.execute("UPDATE held SET s = 'b'")
        for phase in phases:
            length_s = _length_s(connection, phase)
            for way in (*WAYS, "time-out"):
                for _ in range(rounds):
                    yield _by_another(url, phase, way, chance.random() * length_s)
            connection.execute("DELETE FROM u")
    with _filled(":memory:") as connection:
        for phase in phases:
            if phase == "a lock":  # of another connection, of which there is none
                continue
            length_s = _length_s(connection, phase)
            for _ in range(rounds):
                yield _by_signal(connection, phase, 0.001 + chance.random() * length_s)
            connection.execute("DELETE FROM u")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.ends", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phase", action="append", choices=(*PHASES, *waits.PHASES))
    found = parser.parse_args()
    phases = found.phase or [*PHASES, *waits.PHASES]
    chance = random.Random(found.seed)
    ends = list(measure(found.rounds, chance, [each for each in phases if each in PHASES]))
    for phase in phases:
        if phase in waits.PHASES:
            ends += waits.PHASES[phase](phase, found.rounds, chance)
    ways = (*WAYS, "time-out", "Ctrl-C")
    rows: list[tuple[str, ...]] = []
    for phase in phases:
        cells: list[str] = []
        for way in ways:
            # Of one that had ended before, nothing is known.
            took = [e.took_ms for e in ends if (e.phase, e.way) == (phase, way) and e.how != "rows"]
            cells.append(f"{max(took):.0f}" if took else "-")
        rows.append((phase, *cells))
    Console(width=110).print(
        table("milliseconds to the end, the longest", ("phase", *(f" {w}" for w in ways)), rows)
    )
    late = [end for end in ends if end.took_ms > _BAR_MS and end.how != "rows"]
    print(f"{len(ends)} ends, {len(late)} later than {_BAR_MS:.0f} ms")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
