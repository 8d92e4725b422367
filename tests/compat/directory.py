"""A database directory with something of everything, made by one commit and looked at by another.

Usage: directory.py make DIRECTORY BACKUP killed|clean: makes it, says as JSON what is in it, and
ends as it says. directory.py look DIRECTORY: opens it, says the same as JSON and what its jobs and
leases still do. The public API only, which both commits have; nothing of tests/ is imported.
"""

import base64
import datetime as dt
import json
import os
import pickle
import signal
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa

import herdpy

MANY = 3_000
TABLES = {
    "everything": "k",
    "words": "word",
    "pairs": "a, b",
    "heap": "n, note",
    "many": "id",
    "staged": "id",
}
"""Tables, and by what their rows are ordered."""
_NEW_YORK = dt.timezone(dt.timedelta(hours=-5))
EVERYTHING = [
    (1, True, -(2**31), -(2**63), 1.5, Decimal("12345678.1234"), "täxt 𝄞", "abc", b"\x00\xff\x00",
     dt.date(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
     dt.datetime(2026, 11, 1, 1, 30, tzinfo=_NEW_YORK)),
    (2, False, 2**31 - 1, 2**63 - 1, -0.0, Decimal("-99999999.9999"), "", "", b"",
     dt.date(9999, 12, 31), dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
     dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
    (3, None, None, None, None, None, None, None, None, None, None, None),
    (4, True, 0, 0, float("nan"), Decimal("0.0001"), "line\nend\ttab 'quote'", "äöüäöüäöüä",
     b"x" * 5000, dt.date(2026, 2, 28), dt.datetime(2026, 2, 28, 12),
     dt.datetime(2026, 2, 28, 12, tzinfo=_NEW_YORK)),
    (5, False, 1, 1, float("inf"), Decimal("1"), "t" * 20_000, "x", None,
     None, None, None),
]  # fmt: skip
TYPES = (
    "k BIGINT PRIMARY KEY, b BOOLEAN, i INTEGER, l BIGINT, d DOUBLE, n NUMERIC(12,4), t TEXT, "
    "v VARCHAR(10), y BYTEA, da DATE, ts TIMESTAMP, tz TIMESTAMPTZ"
)
MARKS = ", ".join("?" * 12)


def shown(value: object) -> str:
    """Return a value as text that says its type, too."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC)
    return f"{type(value).__name__} {value!r}"


def rows_of(connection: Any, text: str, parameters: Any = None) -> list[list[str]]:
    return [[shown(value) for value in row] for row in connection.execute(text, parameters)]


def contents(connection: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: rows_of(connection, f"SELECT * FROM {name} ORDER BY {order}")
        for name, order in TABLES.items()
    }
    for name, order in (
        ("sysusers", "user_name"),
        ("sysroles", "role_name"),
        ("sysmembers", "role_name, member_name"),
        ("sysgrants", "grantee, object_type, object_name, privilege"),
    ):
        found[name] = rows_of(connection, f"SELECT * FROM {name} ORDER BY {order}")
    return found


def fill(connection: Any) -> None:
    run = connection.execute
    run(f"CREATE TABLE everything ({TYPES})")
    run("CREATE TABLE words (word TEXT PRIMARY KEY, n BIGINT NOT NULL DEFAULT 7)")
    run("CREATE TABLE pairs (a INTEGER, b VARCHAR(20), x DOUBLE, PRIMARY KEY (a, b))")
    run("CREATE TABLE heap (n BIGINT, note TEXT)")
    run("CREATE TABLE many (id BIGINT PRIMARY KEY, x DOUBLE, name TEXT)")
    run("CREATE TABLE staged (id BIGINT PRIMARY KEY, x DOUBLE)")
    run("CREATE TABLE dropped (id BIGINT PRIMARY KEY)")
    for user in ("admin SUPERUSER PASSWORD ?", "ann PASSWORD ?"):
        run(f"CREATE USER {user}", ("a long secret",))
    run("CREATE USER late PASSWORD ? VALID UNTIL '2030-12-31'", ("a long secret",))
    run("CREATE ROLE clerks")
    run("GRANT SELECT, INSERT, UPDATE ON words TO clerks WITH GRANT OPTION")
    run("GRANT clerks TO ann WITH ADMIN OPTION")
    run("GRANT SELECT ON TABLESPACE default TO late")
    connection.executemany(f"INSERT INTO everything VALUES ({MARKS})", EVERYTHING)
    connection.executemany(
        "INSERT INTO words VALUES (?, ?)", [(f"word {n}", n) for n in range(200)]
    )
    connection.executemany(
        "INSERT INTO pairs VALUES (?, ?, ?)",
        [(n % 7 - 3, f"b {n}", n / 3) for n in range(100)],
    )
    connection.executemany("INSERT INTO heap VALUES (?, ?)", [(n // 2, "same") for n in range(20)])
    ids = list(range(MANY))
    names = [f"name {n}" if n % 5 else None for n in ids]
    connection.ingest("many", pa.table({"id": ids, "x": [n * 0.25 for n in ids], "name": names}))
    connection.ingest("staged", pa.table({"id": [1, 2, 3], "x": [0.5, 1.5, 2.5]}))
    run("INSERT INTO dropped VALUES (1)")
    connection.checkpoint()
    # From here on it is in the log only, or changes what is in pages.
    run("DROP TABLE dropped")
    run("INSERT INTO words (word) VALUES ('by default')")
    run("UPDATE many SET x = -x, name = 'changed' WHERE id % 10 = 3")
    run("DELETE FROM many WHERE id % 100 = 50")
    run("UPDATE words SET word = 'moved' WHERE word = 'word 7'")
    run("UPSERT INTO pairs VALUES (-3, 'b 0', 99.5)")
    run("DELETE FROM heap WHERE n = 4")


def make(directory: str, backup: str, ending: str) -> None:
    connection = herdpy.connect(directory, autocommit=True)
    fill(connection)
    connection.backup(backup)
    at_backup = contents(connection)
    lease = connection.lease(seconds=86_400)
    at_lease = rows_of(connection, "SELECT count(*), sum(n) FROM words")
    connection.execute("UPDATE words SET n = n + 1000")
    job = connection.begin_staging("staged", operation="upsert", job="a job of the old commit")
    stage = connection.stage(job, 0)
    stage.add(pa.table({"id": [3, 4, 5], "x": [30.0, 40.0, 50.0]}))
    token = stage.finish()
    unfinished = connection.stage(job, 1)
    unfinished.add(pa.table({"id": [6], "x": [60.0]}))
    done = connection.begin_staging("staged", job="a job that has committed")
    with connection.stage(done, 0) as other:
        other.add(pa.table({"id": [100], "x": [100.0]}))
        done_at = connection.commit_staging(done, [other.finish()])
    if ending == "killed":
        writer = herdpy.connect(directory)
        writer.execute("INSERT INTO heap VALUES (-1, 'never committed')")
        writer.execute("UPDATE many SET x = 0 WHERE id < 50")
        writer.execute("DELETE FROM words WHERE word = 'word 1'")
        connection.execute("INSERT INTO pairs VALUES (50, 'behind', 0.5)")  # syncs all before it
    said = {
        "contents": contents(connection),
        "at_backup": at_backup,
        "lease": lease.id,
        "at_lease": at_lease,
        "job": job,
        "token": base64.b64encode(pickle.dumps(token)).decode(),
        "done": done,
        "done_at": done_at,
    }
    print(json.dumps(said), flush=True)
    if ending == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    unfinished.abort()
    connection.close()


def look(directory: str) -> None:
    """Say what is in it; then, if standard input names lease and job, what these still do."""
    asked = json.loads(sys.stdin.read() or "{}")
    with herdpy.connect(directory, autocommit=True) as connection:
        said: dict[str, Any] = {"contents": contents(connection)}
        if asked:
            connection.execute("BEGIN")
            connection.execute(f"SET TRANSACTION SNAPSHOT '{asked['lease']}'")
            said["at_lease"] = rows_of(connection, "SELECT count(*), sum(n) FROM words")
            connection.execute("COMMIT")
            said["released"] = connection.release_lease(asked["lease"])
            token = pickle.loads(base64.b64decode(asked["token"]))
            position = connection.commit_staging(asked["job"], [token])
            said["again"] = connection.commit_staging(asked["job"], [token]) == position
            said["done_at"] = connection.commit_position(asked["done"])
            said["staged"] = rows_of(connection, "SELECT * FROM staged ORDER BY id")
            connection.execute("INSERT INTO heap VALUES (77, 'by the other one')")
            connection.checkpoint()
            connection.execute("INSERT INTO heap VALUES (78, 'behind its checkpoint')")
        said["after"] = contents(connection)
    print(json.dumps(said))


def restore(backup: str, directory: str) -> None:
    herdpy.restore(backup, directory)
    look(directory)


if __name__ == "__main__":
    {"make": make, "look": look, "restore": restore}[sys.argv[1]](*sys.argv[2:])
