"""A scripted session of one driver with one server: what each step gave, as JSON.

Usage: session.py URL, with the user's password in HERDPY_COMPAT_PASSWORD. Run by the drivers of two
commits against the servers of both: all have to say the same. The public API only. Of errors the
class, the SQLSTATE and the retry class are said, and not the message, which may become better.
"""

import asyncio
import datetime as dt
import json
import os
import sys
import tempfile
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import herdpy
from herdpy import aio

sys.path.insert(0, str(Path(__file__).parent))  # -P left it out, with the checkout around it
from directory import EVERYTHING, MARKS, TYPES, rows_of, shown

MANY = 20_000
STATEMENTS_THAT_FAIL = (
    "INSERT INTO everything (k) VALUES (1)",
    "INSERT INTO everything (k) VALUES (NULL)",
    "INSERT INTO everything (k, i) VALUES (99, 3000000000)",
    "INSERT INTO everything (k, v) VALUES (99, 'longer than ten')",
    "INSERT INTO everything (k, n) VALUES (99, 123456789.5)",
    "SELECT CAST('no number' AS BIGINT)",
    "SELECT 1 / 0",
    "SELECT nothing FROM everything",
    "SELECT * FROM nowhere",
    "SELEC 1",
    "CREATE TABLE everything (id BIGINT PRIMARY KEY)",
    "SET TRANSACTION SNAPSHOT 'no such lease'",
    "CREATE USER admin",
    "SELECT ?",
)


class Session:
    def __init__(self, url: str, password: str) -> None:
        self._url = url
        self._password = password
        self.said: dict[str, Any] = {}
        self.connection = self.connect()

    def connect(self, **options: Any) -> Any:
        return herdpy.connect(self._url, password=self._password, autocommit=True, **options)

    def say(self, name: str, run: Callable[[], Any]) -> None:
        """Record what a step returned, or the error that it raised."""
        try:
            found = run()
        except herdpy.Error as error:
            found = [type(error).__name__, error.sqlstate, error.retry.name]
        self.said[name] = found

    def rows(self, text: str, parameters: Any = None) -> list[list[str]]:
        return rows_of(self.connection, text, parameters)

    def all_types(self) -> None:
        run = self.connection.execute
        run(f"CREATE TABLE everything ({TYPES})")
        for row in EVERYTHING[:2]:
            self.say(f"insert {row[0]}", lambda row=row: run(
                f"INSERT INTO everything VALUES ({MARKS})", row).rowcount)  # fmt: skip
        self.say("executemany", lambda: self.connection.executemany(
            f"INSERT INTO everything VALUES ({MARKS})", EVERYTHING[2:]).rowcount)  # fmt: skip
        self.say("rows", lambda: self.rows("SELECT * FROM everything ORDER BY k"))
        self.say("columns", lambda: [
            [column[0], str(column[1]), *map(str, column[2:])]
            for column in run("SELECT * FROM everything").description
        ])  # fmt: skip
        columns = ("b", "i", "l", "d", "n", "t", "v", "y", "da", "ts", "tz")
        for column, value in zip(columns, EVERYTHING[0][1:], strict=True):
            text = f"SELECT k FROM everything WHERE {column} = ? ORDER BY k"
            self.say(f"by {column}", partial(self.rows, text, (value,)))
        self.say("expressions", lambda: self.rows(
            "SELECT sum(l), avg(n), min(t), max(tz), count(*), bool_and(b), NULL, "
            "DATE '2026-01-31' + INTERVAL '1 month', 7 / 2, 7.0 / 2 FROM everything"
        ))  # fmt: skip
        self.say("vector", lambda: self.rows(
            "SELECT b, count(*), sum(i) FROM everything GROUP BY b ORDER BY b NULLS FIRST"
        ))  # fmt: skip
        text = "UPDATE everything SET n = n + 1, t = upper(t) WHERE k IN (1, 3)"
        self.say("update", lambda: run(text).rowcount)
        self.say("updated", lambda: self.rows("SELECT k, n, t FROM everything WHERE k < 4"))
        self.say("upsert", lambda: run(
            "UPSERT INTO everything (k, t) VALUES (1, 'again'), (50, 'new')").rowcount)  # fmt: skip
        self.say("delete", lambda: run("DELETE FROM everything WHERE k = 50").rowcount)

    def errors(self) -> None:
        for text in STATEMENTS_THAT_FAIL:
            self.say(text, lambda text=text: self.rows(text))
        self.say("parameter that does not fit", lambda: self.rows(
            "INSERT INTO everything (k, i) VALUES (?, ?)", (98, 2**40)))  # fmt: skip
        self.say("lone surrogate", lambda: self.rows("SELECT ?", ("\ud800",)))
        self.say("after errors", lambda: self.rows("SELECT count(*) FROM everything"))
        self.say("wrong password", lambda: herdpy.connect(self._url, password="not the password"))

    def many_rows(self) -> None:
        ids = list(range(MANY))
        names = [f"name {n}" if n % 3 else None for n in ids]
        table = pa.table({"id": ids, "x": [n * 0.5 for n in ids], "name": names})
        run = self.connection.execute
        run("CREATE TABLE many (id BIGINT PRIMARY KEY, x DOUBLE, name TEXT)")
        self.say("ingest", lambda: self.connection.ingest("many", table))
        self.say("ingest again", lambda: self.connection.ingest("many", table))
        self.say("ingest upsert", lambda: self.connection.ingest(
            "many", pa.table({"id": [1, MANY], "x": [-1.0, -2.0]}), mode="upsert"))  # fmt: skip
        self.say("all of them", lambda: len(run("SELECT * FROM many").fetchall()))

        def fetch(text: str) -> Any:
            found = run(text).fetch_arrow_table()
            cells = [[shown(value) for value in row.values()] for row in found.to_pylist()[:50]]
            return [str(found.schema), found.num_rows, cells]

        self.say("arrow", lambda: fetch("SELECT * FROM many ORDER BY id"))
        self.say("arrow of all types", lambda: fetch("SELECT * FROM everything ORDER BY k"))

        def some() -> Any:
            cursor = run("SELECT id FROM many ORDER BY id")
            return [cursor.fetchone(), cursor.fetchmany(3), len(cursor.fetchall())]

        self.say("in pieces", some)
        self.say("a large value", lambda: [
            len(value) for (value,) in run("SELECT CAST(? AS TEXT)", ("x" * 300_000,))
        ])  # fmt: skip

    def transactions(self) -> None:
        connection, other = self.connection, self.connect()
        run = connection.execute
        count = "SELECT count(*) FROM many"
        run("BEGIN")
        self.say("inside", lambda: [connection.in_transaction, run(
            "INSERT INTO many (id) VALUES (-1)").rowcount])  # fmt: skip
        self.say("seen inside", lambda: self.rows(count))
        self.say("seen outside", lambda: rows_of(other, count))
        self.say("error inside", lambda: self.rows("INSERT INTO many (id) VALUES (-1)"))
        self.say("goes on", lambda: self.rows(count))
        connection.rollback()
        self.say("rolled back", lambda: [connection.in_transaction, self.rows(count)])
        before = connection.position
        with connection.transaction():
            run("UPDATE many SET x = 7 WHERE id = 5")
            other.execute("SET lock_timeout = '100ms'")
            self.say("locked", lambda: rows_of(other, "UPDATE many SET x = 8 WHERE id = 5"))
        self.say("committed", lambda: rows_of(other, "SELECT x FROM many WHERE id = 5"))
        self.say("position moved", lambda: connection.position != before)
        other.close()

    def pipelines(self) -> None:
        def good() -> Any:
            with self.connection.pipeline() as pipe:
                counts = [
                    pipe.execute("INSERT INTO many (id, name) VALUES (?, ?)", (n, f"piped {n}"))
                    for n in range(MANY + 1, MANY + 101)
                ]
                found = pipe.execute("SELECT count(*) FROM many WHERE name LIKE 'piped%'")
            return [sum(cursor.rowcount for cursor in counts), found.fetchall()]

        def bad() -> Any:
            with self.connection.pipeline() as pipe:
                pipe.execute("INSERT INTO many (id) VALUES (-2)")
                pipe.execute("INSERT INTO many (id) VALUES (1)")
                pipe.execute("INSERT INTO many (id) VALUES (-3)")

        self.say("pipeline", good)
        self.say("pipeline that fails", bad)
        self.say("nothing of it", lambda: self.rows("SELECT id FROM many WHERE id < 0"))

    def leases(self) -> None:
        connection = self.connection
        total = self.rows("SELECT sum(x) FROM many")
        lease = connection.lease(seconds=600)
        connection.execute("UPDATE many SET x = 0")
        connection.execute("BEGIN")
        connection.execute(f"SET TRANSACTION SNAPSHOT '{lease.id}'")
        self.say("at the lease", lambda: self.rows("SELECT sum(x) FROM many") == total)
        self.say("read only", lambda: self.rows("DELETE FROM many"))
        connection.execute("ROLLBACK")
        parts = connection.partitions("many", 4, lease=lease)
        read = [
            connection.read_partition(part, columns=["id", "x"], where="x >= ?", parameters=(1.0,))
            for part in parts
        ]
        tables = pa.concat_tables([each.read_all() for each in read])
        self.say("parts", lambda: [tables.num_rows, sum(tables["id"].to_pylist())])
        lease.renew()
        self.say("released", lambda: [connection.release_lease(lease.id), connection.release_lease(
            lease.id)])  # fmt: skip
        self.say("gone", lambda: connection.read_partition(parts[0]).read_all().num_rows)

    def staging(self) -> None:
        connection = self.connection
        connection.execute("CREATE TABLE staged (id BIGINT PRIMARY KEY, x DOUBLE)")
        operations = ("append", "upsert", "update", "delete", "ignore", "replace")
        for number, operation in enumerate(operations, 1):
            job = connection.begin_staging("staged", operation=operation, job=f"job {operation}")
            worker = self.connect()
            tokens = []
            for task in (1, 2):
                data: dict[str, Any] = {"id": [task, task + 2]}
                if operation != "delete":
                    data["x"] = [10.0 * number, 10.0 * number + task]
                with worker.stage(job, task) as stage:
                    stage.add(pa.table(data))
                    tokens.append(stage.finish())
            unfinished = worker.stage(job, 3)
            unfinished.add(pa.table({name: values[:1] for name, values in data.items()}))
            stages = "SELECT operation, stages, finished_stages, row_count FROM sysstagings"
            self.say(f"open {operation}", partial(self.rows, stages))
            self.say(f"commit {operation}", partial(self._commit_twice, job, tokens))
            self.say(f"after {operation}", lambda: self.rows("SELECT * FROM staged ORDER BY id"))
            worker.close()
        job = connection.begin_staging("staged")
        with connection.stage(job, 0) as stage:
            stage.add(pa.table({"id": [1], "x": [0.0]}))
            again = stage.finish()
        self.say("a key twice", lambda: connection.commit_staging(job, [again]))
        connection.abort_staging(job)
        self.say("given up", lambda: [connection.commit_position(job), self.rows(
            "SELECT count(*) FROM sysstagings")])  # fmt: skip

    def _commit_twice(self, job: str, tokens: list[Any]) -> bool:
        """Tell whether the position of the commit is always the same."""
        found = {self.connection.commit_staging(job, tokens) for _ in range(2)}
        return found == {self.connection.commit_position(job)}

    def users(self) -> None:
        run = self.connection.execute
        run("CREATE USER bob PASSWORD ?", ("another secret",))
        run("GRANT SELECT ON many TO bob")
        self.say("who", lambda: self.rows("SHOW session_authorization"))
        url = self._url.replace("admin@", "bob@")
        with herdpy.connect(url, password="another secret", autocommit=True) as bob:
            self.say("may", lambda: rows_of(bob, "SELECT count(*) FROM many"))
            self.say("may not", lambda: rows_of(bob, "SELECT * FROM staged"))
            self.say("may not write", lambda: rows_of(bob, "DELETE FROM many"))
        self.say("grants", lambda: self.rows(
            "SELECT grantee, object_name, privilege, is_owner FROM sysgrants ORDER BY 1, 2, 3"
        ))  # fmt: skip

    def more(self) -> None:
        def back_up() -> Any:
            with tempfile.TemporaryDirectory(prefix="compat-") as folder:
                path = Path(folder) / "backup"
                self.connection.backup(path)
                return path.stat().st_size > 100_000

        self.say("backup", back_up)
        self.say("settings", lambda: [self.connection.execute("SET lock_timeout = '3s'").rowcount,
                                      self.rows("SHOW lock_timeout")])  # fmt: skip

        def transfer(connection: Any) -> Any:
            connection.execute("UPDATE staged SET x = x + 1 WHERE id = 1")
            return rows_of(connection, "SELECT x FROM staged WHERE id = 1")

        def pooled() -> Any:
            pool = herdpy.Pool(self._url, password=self._password, connections_max=2)
            try:
                return pool.run(transfer)
            finally:
                pool.close()

        self.say("pool", pooled)

        async def awaited() -> Any:
            async with aio.connect(self._url, password=self._password) as connection:
                cursor = await connection.execute("SELECT id, name FROM many ORDER BY id LIMIT 5")
                rows = [[shown(value) for value in row] async for row in cursor]
                async with connection.pipeline() as pipe:
                    last = await pipe.execute("SELECT ?", (Decimal("1.50"),))
                return [rows, [shown(value) for value in await last.fetchone()]]

        self.say("asyncio", lambda: asyncio.run(awaited()))
        stamp = dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC)
        self.say("a time", lambda: self.rows("SELECT CAST(? AS TIMESTAMPTZ)", (stamp,)))


def main(url: str) -> None:
    session = Session(url, os.environ["HERDPY_COMPAT_PASSWORD"])
    session.all_types()
    session.errors()
    session.many_rows()
    session.transactions()
    session.pipelines()
    session.leases()
    session.staging()
    session.users()
    session.more()
    session.connection.close()
    print(json.dumps(session.said))


if __name__ == "__main__":
    main(sys.argv[1])
