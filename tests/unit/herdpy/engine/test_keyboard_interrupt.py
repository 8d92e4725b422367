"""Ctrl-C before any line of a call: it happened wholly or not at all, and everything goes on."""

import gc
import inspect
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

import herdpy
from bookie.runtime.memory_disk import MemoryDisk
from herdpy.driver import local
from herdpy.engine.database import Database
from herdpy.engine.state import tablespace
from herdpy.engine.state.tablespace import Tablespace
from herdpy.model.settings import Settings
from tests.fixtures.digest import lease_rows_of
from tests.fixtures.interrupts import LineInterrupter

pytestmark = pytest.mark.exhaustive

Rows = list[tuple[Any, ...]]
Call = Callable[["World"], object]

STRIDE = int(os.environ.get("HERDPY_LINE_STRIDE", "37"))
"""Every so many lines, beginning with one that the seed chooses; `make interrupts` takes all."""
FIRST_LINE = 1 + int(os.environ.get("HERDPY_SEED", "0")) % STRIDE

FIRST = [(1, 10), (2, 20), (3, 30)]


class World:
    """One database over a disk in memory, the connection under test, and another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, autocommit: bool) -> None:
        self.disk = MemoryDisk()
        monkeypatch.setattr(local, "MemoryDisk", lambda: self.disk)
        self.autocommit = autocommit
        self.connection = self._connect()
        self.connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        self.connection.executemany("INSERT INTO t VALUES (?, ?)", FIRST)
        self.connection.commit()

    def _connect(self) -> herdpy.Connection:
        connection = herdpy.connect(":memory:", autocommit=self.autocommit)
        database = connection._claim._shared.database
        assert database is not None
        self.database: Database = database
        self.other = database.session(Settings(lock_timeout_s=5.0), autocommit=True)
        return connection

    def committed(self) -> Rows | None:
        """What others see; None without the table."""
        try:
            return list(self.other.execute("SELECT id, v FROM t ORDER BY id").rows())
        except herdpy.ProgrammingError as error:
            if error.sqlstate != "42P01":
                raise
            return None

    def own(self) -> Rows | None:
        """What the connection sees."""
        try:
            return self.connection.execute("SELECT id, v FROM t ORDER BY id").fetchall()
        except herdpy.ProgrammingError as error:
            if error.sqlstate != "42P01":
                raise
            return None

    def check_nothing_held(self) -> None:
        """Anyone may lock everything at once, and no snapshot is left registered."""
        tablespace = self.database.tablespace
        if len(tablespace.registry):
            gc.collect()  # a traceback in a circle may hold a snapshot
        tablespace.run(lambda: None)
        assert tablespace.locks.held() == {}
        assert len(tablespace.registry) == 0
        if self.committed() is not None:
            self.other.execute("UPDATE t SET v = v")
        self.other.execute("CREATE TABLE others (id BIGINT PRIMARY KEY)")
        self.other.execute("DROP TABLE others")

    def goes_on(self) -> None:
        """The connection writes, commits, and finds it all again behind a reopen."""
        connection = self.connection
        connection.execute("CREATE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY, v BIGINT)")
        connection.execute("UPSERT INTO t VALUES (99, 99)")
        connection.commit()
        self.check_nothing_held()
        expected = self.committed()
        assert expected is not None
        assert (99, 99) in expected
        self.reopen()
        assert self.committed() == expected

    def reopen(self) -> None:
        if not self.connection._is_closed:
            self.connection.close()
        self.connection = self._connect()


def interrupted(
    monkeypatch: pytest.MonkeyPatch,
    *,
    call: Call,
    before: Call | None = None,
    autocommit: bool = True,
) -> Iterator[tuple[World, str]]:
    """Yield a fresh world after each interrupted call, and where; at last one without."""
    world = World(monkeypatch, autocommit=autocommit)
    _warm_up(world, before, call)
    where, n = "first", FIRST_LINE
    while where:
        world = World(monkeypatch, autocommit=autocommit)
        if before is not None:
            before(world)
        try:
            with LineInterrupter(n) as interrupter:
                call(world)
        except KeyboardInterrupt:
            pass
        where = interrupter.where
        print(f"interrupted {n}: {where}")  # the last one is what failed
        yield world, where
        if not world.connection._is_closed:
            world.connection.close()
        n += STRIDE
    assert n > 10, "the interrupter sees too few lines"


def _warm_up(world: World, before: Call | None, call: Call) -> None:
    # Modules are imported on first use, which is no part of what is tested.
    if before is not None:
        before(world)
    call(world)
    if not world.connection._is_closed:
        world.connection.close()


def sql(text: str, parameters: Any = None) -> Call:
    return lambda world: world.connection.execute(text, parameters)


def many(text: str, rows: list[Any]) -> Call:
    return lambda world: world.connection.executemany(text, rows)


WRITES: dict[str, tuple[Call, Rows | None]] = {
    "insert": (sql("INSERT INTO t VALUES (?, ?)", (4, 40)), [*FIRST, (4, 40)]),
    "insert of many": (
        sql("INSERT INTO t VALUES (4, 40), (5, 50)"),
        [*FIRST, (4, 40), (5, 50)],
    ),
    "insert select": (
        sql("INSERT INTO t SELECT id + 10, v FROM t WHERE id < 3"),
        [*FIRST, (11, 10), (12, 20)],
    ),
    "upsert": (sql("UPSERT INTO t VALUES (2, 0), (7, 70)"), [(1, 10), (2, 0), (3, 30), (7, 70)]),
    "update": (sql("UPDATE t SET v = v + 1 WHERE id = 2"), [(1, 10), (2, 21), (3, 30)]),
    "update of keys": (sql("UPDATE t SET id = id + 1"), [(2, 10), (3, 20), (4, 30)]),
    "delete": (sql("DELETE FROM t WHERE id >= 2"), [(1, 10)]),
    "executemany insert": (
        many("INSERT INTO t VALUES (?, ?)", [(4, 40), (5, 50)]),
        [*FIRST, (4, 40), (5, 50)],
    ),
    "executemany update": (
        many("UPDATE t SET v = v + ? WHERE id = ?", [(1, 1), (2, 2), (5, 1)]),
        [(1, 16), (2, 22), (3, 30)],
    ),
    "drop table": (sql("DROP TABLE t"), None),
}


@pytest.mark.parametrize("name", WRITES)
def test_autocommit_statement_happens_wholly_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    call, after = WRITES[name]
    outcomes: set[bool] = set()
    for world, where in interrupted(monkeypatch, call=call):
        found = world.committed()
        assert found in (FIRST, after), where
        outcomes.add(found == after)
        if not where:
            assert found == after
        assert not world.connection.in_transaction, where
        world.check_nothing_held()
        assert world.committed() == found, where
        world.goes_on()
    assert outcomes == {False, True}


@pytest.mark.parametrize("name", WRITES)
def test_statement_of_a_transaction_happens_wholly_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    call, after = WRITES[name]
    for world, where in interrupted(monkeypatch, call=call, autocommit=False):
        assert world.committed() == FIRST, where
        found = world.own()
        assert found in (FIRST, after), where
        world.connection.commit()
        assert world.committed() == found, where
        world.goes_on()


MAKES: dict[str, tuple[Call, str, Rows]] = {
    "create table as": (
        sql("CREATE TABLE made AS SELECT id, v FROM t WHERE id + v >= 0"),
        "SELECT id, v FROM made ORDER BY id",
        FIRST,
    ),
    "create view": (sql("CREATE VIEW made AS SELECT v FROM t"), "SELECT sum(v) FROM made", [(60,)]),
}


@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("name", MAKES)
def test_what_is_made_is_there_wholly_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, name: str, autocommit: bool
) -> None:
    call, text, after = MAKES[name]

    def found(world: World) -> Rows | None:
        try:
            return world.connection.execute(text).fetchall()
        except herdpy.ProgrammingError as error:
            if error.sqlstate != "42P01":
                raise
            return None

    outcomes: set[bool] = set()
    for world, where in interrupted(monkeypatch, call=call, autocommit=autocommit):
        made = found(world)
        assert made in (None, after), where
        outcomes.add(made is not None)
        world.connection.commit()
        assert found(world) == made, where
        world.connection.commit()
        world.check_nothing_held()
        world.reopen()
        assert found(world) == made, where
        world.connection.commit()
        world.goes_on()
    assert outcomes == {False, True}


def test_statement_of_a_transaction_that_the_log_has_not_taken_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines, first = inspect.getsourcelines(Tablespace._append)
    appending = first + next(n for n, line in enumerate(lines) if "self.log.append(" in line)
    n, where, seen = 0, "first", 0
    while where:
        n += 1
        world = World(monkeypatch, autocommit=False)
        world.connection.execute("UPDATE t SET v = 11 WHERE id = 1")
        interrupter = LineInterrupter(n, within="/engine/state/tablespace.py")
        try:
            with interrupter:
                world.connection.execute("UPDATE t SET v = v + 1 WHERE id = 2")
        except KeyboardInterrupt:
            pass
        where = interrupter.where
        if where and first <= int(where.rpartition(":")[2]) <= appending:
            seen += 1
            world.connection.execute("UPDATE t SET v = v + 1 WHERE id = 2")
            assert world.own() == [(1, 11), (2, 21), (3, 30)], where
        found = world.own()
        world.connection.commit()
        assert world.committed() == found, where
        world.goes_on()
        world.connection.close()
    assert seen >= 3


NOTED = "INSERT INTO t VALUES (?, ?)"


def _warm(world: World) -> None:
    for text, values in ((NOTED, (8, 8)), ("DELETE FROM t WHERE id = ?", (8,))):
        world.connection.execute(text, values)
        world.connection.commit()


@pytest.mark.parametrize("limit", [1, 12, 10_000])
def test_rows_that_the_log_gets_later(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Each statement of the transaction happens wholly or not at all, and so does the whole."""
    monkeypatch.setattr(tablespace, "unlogged_bytes_max", limit)
    steps = [[*FIRST, *((key, key) for key in range(4, last + 1))] for last in range(3, 7)]
    steps.append([row for row in steps[-1] if row != (1, 10)])

    def call(world: World) -> None:
        for key in (4, 5, 6):
            world.connection.execute(NOTED, (key, key))
        world.connection.execute("DELETE FROM t WHERE id = ?", (1,))

    for world, where in interrupted(monkeypatch, before=_warm, call=call, autocommit=False):
        assert world.committed() == FIRST, where
        found = world.own()
        assert found in steps, where
        world.database.run_checkpoint()
        world.connection.execute("UPSERT INTO t VALUES (?, ?)", (7, 7))
        world.connection.execute("DELETE FROM t WHERE id = 7")
        world.connection.commit()
        assert world.committed() == found, where
        world.check_nothing_held()
        world.goes_on()


def _change(world: World) -> None:
    world.connection.execute("UPDATE t SET v = 0 WHERE id = 1")
    world.connection.execute("INSERT INTO t VALUES (4, 40)")
    world.connection.execute("CREATE TABLE made (id BIGINT PRIMARY KEY)")


CHANGED = [(1, 0), (2, 20), (3, 30), (4, 40)]


def test_commit_can_be_repeated_and_leaves_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    for world, where in interrupted(
        monkeypatch,
        before=_change,
        call=lambda world: world.connection.commit(),
        autocommit=False,
    ):
        found = world.committed()
        assert found in (FIRST, CHANGED), where
        if not world.connection.in_transaction:
            world.check_nothing_held()
        world.connection.commit()
        assert world.committed() == CHANGED, where
        world.check_nothing_held()
        world.goes_on()


def test_another_gets_the_row_at_once_when_commit_was_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for world, where in interrupted(
        monkeypatch,
        before=_change,
        call=lambda world: world.connection.commit(),
        autocommit=False,
    ):
        # Without a word from the connection: a COMMIT in the log ends by itself.
        if not any(t.id for t in world.database.tablespace.open_transactions()):
            world.other.execute("UPDATE t SET v = v WHERE id = 1")
            assert world.committed() == CHANGED, where
        world.connection.rollback()


SAVED = [(1, 10), (2, 0), (3, 30), (4, 4)]
BEHIND = [(1, 0), (2, 0), (3, 30), (4, 4), (5, 5)]


def _save(world: World) -> None:
    _warm(world)
    world.connection.execute("UPDATE t SET v = 0 WHERE id = 2")
    world.connection.execute(NOTED, (4, 4))


def _change_behind(world: World) -> None:
    _save(world)
    world.connection.execute("SAVEPOINT a")
    world.connection.execute("UPDATE t SET v = 0 WHERE id = 1")
    world.connection.execute("CREATE TABLE made (id BIGINT PRIMARY KEY)")
    world.connection.execute(NOTED, (5, 5))


def test_savepoint_is_made_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for world, where in interrupted(
        monkeypatch, before=_save, call=sql("SAVEPOINT a"), autocommit=False
    ):
        assert world.own() == SAVED, where
        world.connection.execute("SAVEPOINT a")
        world.connection.execute(NOTED, (5, 5))
        world.connection.execute("ROLLBACK TO a")
        assert world.own() == SAVED, where
        world.connection.commit()
        assert world.committed() == SAVED, where
        world.goes_on()


def test_rollback_to_happens_wholly_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: set[bool] = set()
    for number, (world, where) in enumerate(
        interrupted(monkeypatch, before=_change_behind, call=sql("ROLLBACK TO a"), autocommit=False)
    ):
        found = world.own()
        assert found in (BEHIND, SAVED), where
        outcomes.add(found == SAVED)
        changes = world.connection._session.transaction.catalog_changes
        assert ("made" in changes) == (found == BEHIND), where
        if number % 2:  # else it is committed as it is
            world.connection.execute("ROLLBACK TO a")
            found = SAVED
        assert world.own() == found, where
        world.connection.commit()
        assert world.committed() == found, where
        world.goes_on()
    assert outcomes == {False, True}


@pytest.mark.parametrize("name", ["insert", "insert select", "update", "delete"])
def test_a_repeatable_transaction_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    call, after = WRITES[name]
    before = sql("BEGIN ISOLATION LEVEL REPEATABLE READ")
    for world, where in interrupted(monkeypatch, before=before, call=call, autocommit=False):
        found = world.own()
        assert found in (FIRST, after), where
        world.connection.commit()
        assert world.committed() == found, where
        world.check_nothing_held()
        world.goes_on()


def test_rollback_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    for world, where in interrupted(
        monkeypatch,
        before=_change,
        call=lambda world: world.connection.rollback(),
        autocommit=False,
    ):
        assert world.committed() == FIRST, where
        world.connection.rollback()
        assert world.own() == FIRST, where
        world.connection.rollback()
        world.check_nothing_held()
        world.goes_on()


@pytest.mark.parametrize(
    "statement",
    [
        sql("UPDATE t SET v = 1 WHERE id = 2"),
        sql("UPDATE t SET v = v + 1"),
        sql("SELECT v FROM t WHERE id = 1"),
        sql("SELECT id, v FROM t ORDER BY id"),
        sql("CREATE TABLE others (id BIGINT PRIMARY KEY)"),
        lambda world: world.connection.commit(),
    ],
    ids=["fast write", "write", "fast read", "read", "definition", "commit"],
)
def test_a_statement_says_that_rollback_was_interrupted(
    monkeypatch: pytest.MonkeyPatch, statement: Call
) -> None:
    world = World(monkeypatch, autocommit=False)
    _warm_up(world, _change, lambda world: world.connection.rollback())
    told, where, n = 0, "first", 1
    while where:
        world = World(monkeypatch, autocommit=False)
        _change(world)
        try:
            with LineInterrupter(n, within="/herdpy/engine/state/tablespace") as interrupter:
                world.connection.rollback()
        except KeyboardInterrupt:
            pass
        where, n = interrupter.where, n + 1
        [*opened] = world.database.tablespace.open_transactions()
        if any(transaction.is_undone for transaction in opened):
            told += 1
            with pytest.raises(herdpy.Error) as caught:
                statement(world)
            assert caught.value.sqlstate == "25P02", where
            assert "by a ROLLBACK that was interrupted" in caught.value.message
            assert "ROLLBACK again" in (caught.value.hint or "")
            world.check_nothing_held()
            world.connection.rollback()
            assert world.own() == FIRST
        world.connection.close()
    assert told > 3


@pytest.mark.parametrize("autocommit", [False, True])
def test_block_commits_or_not(monkeypatch: pytest.MonkeyPatch, *, autocommit: bool) -> None:
    def block(world: World) -> None:
        with world.connection.transaction():
            _change(world)

    for world, where in interrupted(monkeypatch, call=block, autocommit=autocommit):
        found = world.committed()
        assert found in (FIRST, CHANGED), where
        world.connection.rollback()
        assert world.committed() == found, where
        world.check_nothing_held()
        world.goes_on()


def test_close_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    for world, where in interrupted(
        monkeypatch,
        before=_change,
        call=lambda world: world.connection.close(),
        autocommit=False,
    ):
        try:
            world.connection.close()
        except herdpy.InterfaceError:
            assert world.connection._is_closed, where
        world.reopen()
        assert world.committed() == FIRST, where
        world.goes_on()


READS = {
    "point": "SELECT v FROM t WHERE id = 2",
    "range": "SELECT id, v FROM t WHERE id >= 1 ORDER BY id",
    "vector": "SELECT a.v, sum(b.v) OVER (ORDER BY b.id) FROM t a JOIN t b ON a.id = b.id",
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("autocommit", [False, True])
def test_select_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, *, autocommit: bool
) -> None:
    def read(world: World) -> None:
        world.connection.execute(READS[name], ()).fetchall()

    for world, _ in interrupted(monkeypatch, call=read, autocommit=autocommit):
        world.connection.rollback()
        world.check_nothing_held()
        if name == "vector":
            assert len(world.database.vector_of(None)._results) == 0
        world.goes_on()


def test_a_lease_is_there_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(world: World) -> None:
        with world.connection.lease(60):
            pass

    for world, where in interrupted(monkeypatch, call=take):
        leasing = world.other.leasing
        leasing.end(leasing.take(60).id)  # what the interrupt left in the log is done by then
        for lease in list(world.database.tablespace.applier.leases):
            (part,) = leasing.partitions("t", 1, lease.id)
            result = leasing.read_partition("t", *part[:2], lease=lease.id)
            assert sorted(result.rows()) == FIRST, where
            result.close()
            assert leasing.end(lease.id), where
        world.check_nothing_held()
        world.reopen()
        assert len(world.database.tablespace.applier.leases) == 0
        world.goes_on()


def test_checkpoint_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def before(world: World) -> None:
        world.database.run_checkpoint()
        world.connection.execute("UPDATE t SET v = 0 WHERE id = 1")
        world.connection.lease(60)
        world.connection.execute("INSERT INTO t VALUES (4, 40)")

    def leased(world: World) -> Rows:
        space = world.database.tablespace
        (lease,) = space.applier.leases
        return [row[:2] for _, row in lease_rows_of(space, lease)]

    for world, where in interrupted(
        monkeypatch, before=before, call=lambda world: world.database.run_checkpoint()
    ):
        assert world.committed() == CHANGED, where
        assert leased(world) == CHANGED[:-1], where
        world.connection.execute("UPDATE t SET v = 41 WHERE id = 4")
        world.database.run_checkpoint()
        expected = [*CHANGED[:-1], (4, 41)]
        assert world.committed() == expected, where
        world.reopen()
        assert world.committed() == expected, where
        assert leased(world) == CHANGED[:-1], where
        world.goes_on()


def test_in_a_directory(tmp_path: Any) -> None:
    path = str(tmp_path / "db")
    with herdpy.connect(path) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", FIRST)
    n, where, total = FIRST_LINE, "first", 60
    other = herdpy.connect(path, autocommit=True, lock_timeout_s=5.0)
    while where:
        connection = herdpy.connect(path)
        try:
            with LineInterrupter(n) as interrupter, connection:
                connection.execute("UPDATE t SET v = v + 1 WHERE id = 2")
                connection.execute("UPDATE t SET v = v - 1 WHERE id = 1")
        except KeyboardInterrupt:
            pass
        where = interrupter.where
        print(f"interrupted {n}: {where}")
        n += STRIDE
        try:
            connection.close()
        except herdpy.InterfaceError:
            pass
        other.execute("UPDATE t SET v = v")
        found = [row[0] for row in other.execute("SELECT v FROM t ORDER BY id")]
        assert sum(found) == total, where
        assert 0 <= found[1] - 20 <= n, where
    other.close()
    with herdpy.connect(path) as connection:
        assert [row[0] for row in connection.execute("SELECT v FROM t ORDER BY id")] == found


def test_compaction_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def before(world: World) -> None:
        for key in range(10, 13):
            world.connection.execute("INSERT INTO t VALUES (?, 0)", (key,))
            world.connection.execute("UPDATE t SET v = v + 1 WHERE id = 1")
            world.database.run_checkpoint()

    expected = [(1, 13), *FIRST[1:], (10, 0), (11, 0), (12, 0)]
    for world, where in interrupted(
        monkeypatch, before=before, call=lambda world: world.database.run_compaction()
    ):
        assert world.committed() == expected, where
        while world.database.run_compaction():
            pass
        world.database.run_checkpoint()
        assert world.committed() == expected, where
        world.reopen()
        assert world.committed() == expected, where


@pytest.mark.parametrize("is_new", [True, False])
def test_connect_can_be_repeated(monkeypatch: pytest.MonkeyPatch, *, is_new: bool) -> None:
    monkeypatch.setattr(local, "MemoryDisk", lambda: disk)

    def use() -> None:
        with herdpy.connect(":memory:") as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY)")
            connection.execute("UPSERT INTO t VALUES (1)")

    n, where = FIRST_LINE, "first"
    while where:
        disk = MemoryDisk()
        if not is_new:
            use()
        connection = None
        try:
            with LineInterrupter(n) as interrupter:
                connection = herdpy.connect(":memory:")
        except KeyboardInterrupt:
            pass
        where = interrupter.where
        print(f"interrupted {n}: {where}")
        n += STRIDE
        if connection is not None:
            connection.close()
        use()
    assert n > 10


# What hits a __del__ Python reports, and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_while_duckdb_asks_for_rows() -> None:
    """DuckDB forgets, or tells by errors of its own, what a signal's handler raises in it."""
    queries = (
        "SELECT count(*) FROM t WHERE v % 3 = 1 AND id < 1500",
        "SELECT v, sum(id) FROM t WHERE s LIKE 'x1%' GROUP BY v ORDER BY v",
        "SELECT a.v, count(*) FROM t a JOIN t b ON a.id = b.id WHERE a.v = 3 GROUP BY a.v",
    )
    rng = random.Random(FIRST_LINE)
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    try:
        with herdpy.connect(":memory:", autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, s TEXT)")
            rows = [(n, n % 7, f"x{n % 100}") for n in range(2000)]
            connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
            answers = [connection.execute(query).fetchall() for query in queries]
            count = 0
            while count < 30:
                which = rng.randrange(len(queries))
                signal.setitimer(signal.ITIMER_VIRTUAL, rng.uniform(1e-5, 5e-3))  # of our CPU time
                try:
                    try:
                        assert connection.execute(queries[which]).fetchall() == answers[which]
                    finally:
                        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                except KeyboardInterrupt:
                    count += 1
            assert [connection.execute(query).fetchall() for query in queries] == answers
    finally:
        signal.signal(signal.SIGVTALRM, before)


_FIRST_VECTOR_QUERY = """
import os, signal, sys
import herdpy

connection = herdpy.connect(":memory:", autocommit=True)
connection.execute("CREATE TABLE t (k BIGINT PRIMARY KEY)")
connection.execute("INSERT INTO t VALUES (1)")
signal.signal(signal.SIGINT, signal.default_int_handler)

def profile(frame, event, argument):
    code = frame.f_code
    if code.co_filename.endswith("enum.py") and "duckdb" in sys.modules:
        sys.setprofile(None)
        threading.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

import threading

threading.setprofile(profile)
sys.setprofile(profile)
try:
    connection.execute("SELECT k, sum(k) OVER (ORDER BY k) FROM t").fetchall()
except KeyboardInterrupt:
    print("interrupted")
sys.setprofile(None)
threading.setprofile(None)
print(connection.execute("SELECT k, sum(k) OVER (ORDER BY k) FROM t").fetchall())
"""


def test_the_first_vector_query_is_interrupted_within_the_initialisation_of_duckdb() -> None:
    found = subprocess.run(
        [sys.executable, "-c", _FIRST_VECTOR_QUERY],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == "interrupted\n[(1, 1)]\n"


def test_a_signal_while_duckdb_is_prepared_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB forgets what a handler raises while it works, and tells this instead."""
    text = "SELECT k, sum(k) OVER (ORDER BY k) FROM t"
    with herdpy.connect(":memory:", autocommit=True) as conn:
        conn.execute("CREATE TABLE t (k BIGINT PRIMARY KEY)")
        conn.execute("INSERT INTO t VALUES (1)")

        def interrupted(*_: object) -> object:
            raise RuntimeError("Query interrupted")

        monkeypatch.setattr(duckdb, "connect", interrupted)
        with pytest.raises(KeyboardInterrupt):
            conn.execute(text)
        monkeypatch.undo()
        assert conn.execute(text).fetchall() == [(1, 1)]
