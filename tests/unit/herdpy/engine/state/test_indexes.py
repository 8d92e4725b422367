"""Indexes: entries follow the rows, by every way that a row changes, and UNIQUE holds."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import herdpy
from herdpy.driver.doctor import examine
from herdpy.engine.maintenance.index_check import check_indexes
from herdpy.engine.session.session import Session
from herdpy.engine.writes import row_writes
from herdpy.errors import CorruptionError, Error, IntegrityError, NotSupportedError
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Background, Engine, WatchedDriver, engine, rows, run
from tests.fixtures.small_sizes import small_sizes

ALL = "SELECT id, u, n FROM t ORDER BY id"


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine() as made:
        yield made


@pytest.fixture
def session(db: Engine) -> Session:
    made = db.session(autocommit=True)
    run(made, "CREATE TABLE t (id BIGINT PRIMARY KEY, u TEXT UNIQUE, n INTEGER, d DOUBLE)")
    run(made, "CREATE INDEX by_n ON t (n, d)")
    return made


def check(db: Engine) -> None:
    tablespace = db.database.tablespace
    snapshot = tablespace.snapshot(None)
    try:
        for table in snapshot.state.catalog.tables():
            check_indexes(snapshot, table)
    finally:
        snapshot.close()


def await_wait(driver: WatchedDriver, name: str) -> None:
    """Return when a thread waits for a lock; queue.Empty: it does not."""
    while driver.waits.get(timeout=60) != name:
        pass


def fails(session: Session, sqlstate: str, text: str, *parameters: Any) -> Error:
    with pytest.raises(Error) as caught:
        session.run(text, parameters)
    assert caught.value.sqlstate == sqlstate
    return caught.value


def test_a_second_row_with_a_unique_value_is_refused_by_each_way(
    db: Engine, session: Session
) -> None:
    run(session, "INSERT INTO t VALUES (1, 'a', 1, 1), (2, 'b', 1, 2), (3, NULL, 1, 3)")
    for _ in range(2):  # the second time by the fast path
        error = fails(session, "23505", "INSERT INTO t VALUES (?, ?, 1, 1)", 9, "a")
        assert '(u)=(a), which are unique by "t_u_key"' in error.message
        fails(session, "23505", "UPDATE t SET u = ? WHERE id = ?", "b", 1)
    fails(session, "23505", "UPSERT INTO t VALUES (1, 'b', 1, 1)")
    fails(session, "23505", "INSERT INTO t SELECT id + 10, u, n, d FROM t")
    fails(session, "23505", "INSERT INTO t VALUES (9, 'x', 1, 1), (10, 'x', 1, 1)")
    with pytest.raises(IntegrityError):
        session.execute_many("INSERT INTO t VALUES (?, ?, 1, 1)", [(9, "x"), (10, "a")])
    run(session, "INSERT INTO t VALUES (4, NULL, 1, 3)")
    assert rows(session, "SELECT count(*), count(u) FROM t") == [(4, 2)]
    check(db)


def test_a_value_counts_at_the_end_of_the_statement(db: Engine, session: Session) -> None:
    run(session, "INSERT INTO t VALUES (1, 'a', 1, 1), (2, 'b', 1, 2)")
    swapped = "UPDATE t SET u = CASE u WHEN 'a' THEN 'b' ELSE 'a' END"
    assert run(session, swapped) == 2
    assert rows(session, "SELECT id FROM t WHERE u = 'a'") == [(2,)]
    run(session, "DELETE FROM t WHERE id = 2")
    run(session, "INSERT INTO t VALUES (?, ?, 1, 1)", 5, "a")
    run(session, "UPDATE t SET id = 7 WHERE u = 'a'")
    assert rows(session, ALL) == [(1, "b", 1), (7, "a", 1)]
    check(db)


def test_a_transaction_sees_its_own_entries_and_undoes_them(db: Engine, session: Session) -> None:
    run(session, "INSERT INTO t VALUES (1, 'a', 1, 1)")
    other = db.session()
    run(other, "INSERT INTO t VALUES (?, ?, ?, 1)", 2, "b", 5)
    run(other, "UPDATE t SET n = ? WHERE id = ?", 5, 1)
    assert rows(other, "SELECT id FROM t WHERE n = 5 ORDER BY d, id") == [(1,), (2,)]
    assert rows(session, "SELECT id FROM t WHERE n = 5") == []
    run(other, "SAVEPOINT s")
    run(other, "DELETE FROM t WHERE u = 'b'")
    assert rows(other, "SELECT id FROM t WHERE n = 5") == [(1,)]
    fails(other, "23505", "INSERT INTO t VALUES (3, 'a', 1, 1)")
    run(other, "ROLLBACK TO s")
    assert rows(other, "SELECT id FROM t WHERE u = 'b'") == [(2,)]
    other.rollback()
    assert rows(session, ALL) == [(1, "a", 1)]
    assert rows(session, "SELECT id FROM t WHERE n = 1") == [(1,)]
    check(db)


def test_items_of_a_batch_find_what_those_before_them_have_changed(
    db: Engine, session: Session
) -> None:
    run(session, "INSERT INTO t VALUES (1, 'a', 1, 1)")
    moves = [("b", "a"), ("c", "b"), ("d", "x")]
    assert session.execute_many("UPDATE t SET u = ? WHERE u = ?", moves).row_count == 2
    assert rows(session, ALL) == [(1, "c", 1)]
    check(db)


def test_what_came_while_an_insert_waited_is_left_out_by_do_nothing() -> None:
    driver = WatchedDriver()
    with engine(is_threaded=True, driver=driver) as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, u TEXT UNIQUE)")
        first = db.session()
        run(first, "INSERT INTO t VALUES (1, 'a')")
        text = "INSERT INTO t VALUES (2, 'a'), (3, 'b') ON CONFLICT DO NOTHING"
        with Background() as background:
            background.start(lambda: run(session, text), "second")
            await_wait(driver, "second")
            first.commit()
        assert rows(first, "SELECT id, u FROM t ORDER BY id") == [(1, "a"), (3, "b")]
        check(db)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_write_waits_for_one_that_has_the_value(ends: str) -> None:
    driver = WatchedDriver()
    with engine(is_threaded=True, driver=driver) as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, u TEXT UNIQUE)")
        run(session, "INSERT INTO t VALUES (1, 'a')")
        first = db.session()
        run(first, "DELETE FROM t WHERE id = 1")
        outcomes: list[object] = []

        def insert() -> None:
            try:
                outcomes.append(run(session, "INSERT INTO t VALUES (2, 'a')"))
            except IntegrityError as error:
                outcomes.append(error.sqlstate)

        with Background() as background:
            background.start(insert, "second")
            await_wait(driver, "second")
            getattr(first, ends)()
        assert outcomes == [1 if ends == "commit" else "23505"]
        check(db)


def test_an_index_is_as_before_behind_a_restart_with_and_without_checkpoint(
    db: Engine, session: Session
) -> None:
    run(session, "INSERT INTO t VALUES (1, 'a', NULL, 1), (2, NULL, 4, NULL)")
    for is_checkpoint in (False, True, False):
        if is_checkpoint:
            db.database.run_checkpoint()
        before = state_digest(db.database.tablespace, has_position=False)
        db.reopen()
        assert state_digest(db.database.tablespace, has_position=False) == before
        check(db)
        session = db.session(autocommit=True)
        fails(session, "23505", "INSERT INTO t VALUES (3, 'a', 1, 1)")
        assert rows(session, "SELECT id FROM t WHERE n IS NULL") == [(1,)]


def test_create_index_is_undone_with_its_transaction_or_statement(
    db: Engine, session: Session
) -> None:
    run(session, "INSERT INTO t VALUES (1, 'a', 5, 1), (2, 'b', 5, 2)")
    other = db.session()
    run(other, "INSERT INTO t VALUES (3, 'c', 6, 1)")
    fails(other, "23505", "CREATE UNIQUE INDEX of_n ON t (n)")
    assert len(rows(other, "SELECT id FROM t")) == 3
    run(other, "UPDATE t SET n = id")
    run(other, "CREATE UNIQUE INDEX of_n ON t (n)")
    fails(other, "23505", "INSERT INTO t VALUES (4, 'd', 3, 1)")
    assert rows(other, "SELECT id FROM t WHERE n = 3") == [(3,)]
    other.rollback()
    run(session, "INSERT INTO t VALUES (4, 'd', 5, 1)")
    fails(session, "42704", "DROP INDEX of_n")
    check(db)
    db.reopen()
    check(db)


def test_indexes_go_with_drop_and_are_empty_behind_truncate(db: Engine, session: Session) -> None:
    run(session, "INSERT INTO t VALUES (1, 'a', 5, 1)")
    run(session, "TRUNCATE t")
    run(session, "INSERT INTO t VALUES (2, 'a', 5, 1)")
    check(db)
    run(session, "DROP INDEX by_n")
    fails(session, "2BP01", "DROP INDEX t_u_key")
    tables = db.database.tablespace.state.tables
    assert len(tables) == 2
    run(session, "DROP TABLE t")
    assert db.database.tablespace.state.tables == {}
    db.database.run_checkpoint()
    db.reopen()
    assert db.database.tablespace.state.tables == {}


def test_names_of_indexes_are_those_of_postgresql(db: Engine, session: Session) -> None:
    for _ in range(2):
        run(session, "CREATE INDEX ON t (n, u)")
    (table,) = db.database.tablespace.state.catalog.tables()
    assert [each.name for each in table.indexes] == [
        "t_u_key",
        "by_n",
        "t_n_u_idx",
        "t_n_u_idx1",
    ]
    fails(session, "42P07", "CREATE INDEX by_n ON t (u)")
    fails(session, "42P07", "CREATE TABLE by_n (a INTEGER)")
    fails(session, "42P07", "CREATE INDEX t ON t (u)")
    run(session, "CREATE INDEX IF NOT EXISTS by_n ON t (u)")
    fails(session, "42703", "CREATE INDEX ON t (zzz)")
    fails(session, "42701", "CREATE INDEX ON t (n, n)")


def test_a_statement_that_spills_keeps_indexes_and_unique(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writes, "memory_changes_max", 20)
    session = db.session(autocommit=True)
    with small_sizes():
        run(session, "CREATE TABLE n (i BIGINT PRIMARY KEY)")
        session.execute_many("INSERT INTO n VALUES (?)", [(i,) for i in range(10)])
        run(session, "CREATE TABLE h (u BIGINT UNIQUE, v BIGINT)")
        numbers = "SELECT a.i * 10 + b.i, b.i FROM n a, n b WHERE a.i < 8"
        run(session, f"INSERT INTO h {numbers}")
        check(db)
        fails(session, "23505", f"INSERT INTO h {numbers}")
        run(session, "UPDATE h SET u = u + 1, v = v + 1")
        run(session, "CREATE INDEX hv ON h (v)")
        fails(session, "23505", "CREATE UNIQUE INDEX ON h (v)")
        check(db)
        run(session, "CREATE TABLE k (i BIGINT PRIMARY KEY, v BIGINT)")
        run(session, "CREATE INDEX kv ON k (v)")
        fails(session, "53200", f"UPSERT INTO k {numbers}")
        other = db.session()
        run(other, "UPDATE h SET v = 70 WHERE u < 10")
        run(other, "DELETE FROM h WHERE u > 10")
        assert len(rows(other, "SELECT u FROM h WHERE v = 70")) == 9
        run(other, "SAVEPOINT s")
        run(other, "UPDATE h SET v = u, u = u + 100")
        assert rows(other, "SELECT u FROM h WHERE v = 3") == [(103,)]
        run(other, "ROLLBACK TO s")
        assert len(rows(other, "SELECT u FROM h WHERE v = 70")) == 9
        other.commit()
        check(db)
        db.reopen()
        check(db)


def test_rows_of_stages_are_refused_for_a_table_with_indexes(db: Engine, session: Session) -> None:
    with pytest.raises(NotSupportedError):
        session.staging.begin("t", "append", "job")


def test_a_random_life_keeps_indexes_equal_to_their_tables(db: Engine, session: Session) -> None:
    chance = random.Random(7)
    sessions = [session, db.session()]
    for number in range(400):
        each = sessions[number % 2]
        key, u = chance.randrange(20), chance.choice([None, "a", "b", "c", "d", "e"])
        n, d = chance.choice([None, 1, 2]), chance.choice([None, 0.0, -0.0, float("nan"), 1.5])
        text, parameters = chance.choice(
            [
                ("INSERT INTO t VALUES (?, ?, ?, ?)", (key, u, n, d)),
                ("UPSERT INTO t VALUES (?, ?, ?, ?)", (key, u, n, d)),
                ("INSERT INTO t VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
                 " id = t.id + 1, u = excluded.u", (key, u, n, d)),
                ("INSERT INTO t VALUES (?, ?, ?, ?) ON CONFLICT (u) DO UPDATE SET"
                 " id = excluded.id, n = excluded.n", (key, u, n, d)),
                ("INSERT INTO t VALUES (?, ?, ?, ?) ON CONFLICT (u) DO NOTHING", (key, u, n, d)),
                ("INSERT INTO t SELECT id + 1, u, n, d FROM t WHERE n = ? ON CONFLICT (u) DO"
                 " UPDATE SET id = excluded.id + 20", (n,)),
                ("UPDATE t SET u = ? WHERE id = ?", (u, key)),
                ("UPDATE t SET n = ?, d = ? WHERE id = ?", (n, d, key)),
                ("UPDATE t SET id = ? WHERE n = ? AND id < 3", (key, n)),
                ("DELETE FROM t WHERE id = ?", (key,)),
                ("DELETE FROM t WHERE n = ? AND d > 0", (n,)),
            ]
        )  # fmt: skip
        try:
            each.run(text, parameters)
        except IntegrityError:
            pass
        if number % 2:
            (each.commit if chance.random() < 0.5 else each.rollback)()
        if number % 40 == 0:
            db.database.run_checkpoint()
        check(db)
    db.reopen()
    check(db)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_row_that_moves_keeps_its_unique_value(
    db: Engine, session: Session, is_committed: bool
) -> None:
    """Its entry has the same key before and behind, and is removed before it comes."""
    run(session, "INSERT INTO t VALUES (2, 'b', 1, 1)")
    by_value = "SELECT id FROM t WHERE u = 'b'"
    if not is_committed:
        run(session, "BEGIN")
    moved = "INSERT INTO t VALUES (?, ?, 1, 1) ON CONFLICT ({}) DO UPDATE SET id = t.id + 10"
    run(session, moved.format("u"), 9, "b")
    assert rows(session, by_value) == [(12,)]
    run(session, moved.format("id"), 12, "c")
    assert rows(session, by_value) == [(22,)]
    if not is_committed:
        run(session, "COMMIT")
    check(db)
    db.reopen()
    check(db)
    assert rows(db.session(), by_value) == [(22,)]


def test_an_upsert_by_a_unique_value_waits_for_who_inserts_it() -> None:
    """Two programs that count by a value make one row of it, whose count is two."""
    driver = WatchedDriver()
    with engine(is_threaded=True, driver=driver) as db:
        first, second = db.session(), db.session(autocommit=True)
        run(second, "CREATE TABLE t (id BIGINT PRIMARY KEY, u TEXT UNIQUE, n INTEGER)")
        text = "INSERT INTO t VALUES (?, 'a', 1) ON CONFLICT (u) DO UPDATE SET n = t.n + 1"
        run(first, text, 1)
        with Background() as background:
            background.start(lambda: run(second, text, 2), "second")
            await_wait(driver, "second")
            first.commit()
        assert rows(second, "SELECT id, u, n FROM t") == [(1, "a", 2)]
        check(db)


_TAKES_B = (
    "INSERT INTO t VALUES (9, 'b', 1, 1)",
    "INSERT INTO t SELECT 9, 'b', 1, 1 FROM t WHERE id = 1",
    "INSERT INTO t VALUES (9, 'b', 1, 1) ON CONFLICT (u) DO NOTHING",
    "INSERT INTO t VALUES (9, 'b', 1, 1) ON CONFLICT (u) DO UPDATE SET n = 7",
    "INSERT INTO t VALUES (1, 'a', 1, 1) ON CONFLICT (u) DO UPDATE SET u = 'b'",
    "UPDATE t SET u = 'b' WHERE id = 1",
    "UPSERT INTO t VALUES (9, 'b', 1, 1)",
)
_BETWEEN = (
    "DELETE FROM t WHERE u = 'b'",
    "UPDATE t SET u = 'c' WHERE u = 'b'",
    "UPDATE t SET id = 20 WHERE u = 'b'",
    "INSERT INTO t VALUES (3, 'b', 1, 1)",
)


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("between", _BETWEEN)
@pytest.mark.parametrize("takes", _TAKES_B)
def test_a_value_that_changed_hands_since_the_snapshot_is_not_taken(
    db: Engine, session: Session, takes: str, between: str, has_checkpoint: bool
) -> None:
    """REPEATABLE READ: else a transaction would see two rows with one value."""
    run(session, "INSERT INTO t VALUES (1, 'a', 1, 1)")
    if not between.startswith("INSERT"):
        run(session, "INSERT INTO t VALUES (2, 'b', 1, 1)")
    reader = db.session()
    run(reader, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    rows(reader, ALL)
    run(session, between)
    if has_checkpoint:
        db.database.run_checkpoint()
    fails(reader, "40001", takes)
    reader.rollback()
    check(db)


@pytest.mark.parametrize("between", _BETWEEN)
@pytest.mark.parametrize(
    "text",
    [
        "CREATE INDEX i ON t (n)",
        "CREATE UNIQUE INDEX i ON t (id, n)",
        "ALTER TABLE t ADD UNIQUE (u, n)",
    ],
)
def test_an_index_is_not_made_of_rows_that_the_snapshot_lacks(
    db: Engine, session: Session, text: str, between: str
) -> None:
    """Its entries are of the newest rows: a search by them would miss rows that are read."""
    run(session, "INSERT INTO t VALUES (1, 'a', 1, 1)")
    if not between.startswith("INSERT"):
        run(session, "INSERT INTO t VALUES (2, 'b', 1, 1)")
    reader = db.session()
    run(reader, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    assert rows(reader, ALL)
    run(session, between)
    fails(reader, "40001", text)
    fails(reader, "25P02", text)
    reader.rollback()
    run(reader, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    before = rows(reader, ALL)
    run(reader, "UPDATE t SET n = 7 WHERE id = 1")
    run(reader, text)
    assert rows(reader, "SELECT id FROM t WHERE n = 7") == [(1,)]
    reader.commit()
    assert len(rows(session, ALL)) == len(before)
    check(db)


def test_a_table_that_was_defined_anew_since_the_snapshot_is_for_another_transaction(
    db: Engine, session: Session
) -> None:
    reader = db.session()
    run(reader, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    rows(reader, ALL)
    run(session, "ALTER TABLE t ALTER n SET DEFAULT 4")
    fails(reader, "40001", "CREATE INDEX i ON t (n)")
    fails(reader, "25P02", "CREATE INDEX i ON t (n)")


def test_what_the_transaction_itself_gives_up_it_may_take(db: Engine, session: Session) -> None:
    run(session, "INSERT INTO t VALUES (1, 'a', 1, 1), (2, 'b', 1, 1)")
    own = db.session()
    run(own, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    assert len(rows(own, ALL)) == 2
    run(session, "INSERT INTO t VALUES (3, 'c', 1, 1)")
    run(own, "UPDATE t SET u = CASE u WHEN 'a' THEN 'b' ELSE 'a' END WHERE id < 3")
    run(own, "DELETE FROM t WHERE id = 1")
    run(own, "INSERT INTO t VALUES (5, 'b', 1, 1)")
    run(own, "INSERT INTO t VALUES (6, 'b', 1, 1) ON CONFLICT (u) DO NOTHING")
    own.commit()
    assert rows(session, "SELECT id, u FROM t ORDER BY id") == [(2, "a"), (3, "c"), (5, "b")]
    check(db)


@pytest.mark.parametrize("is_many", [True, False])
@pytest.mark.parametrize("is_committed", [True, False])
def test_do_nothing_waits_for_who_gives_the_value_up(is_committed: bool, is_many: bool) -> None:
    driver = WatchedDriver()
    with engine(is_threaded=True, driver=driver) as db:
        first, second = db.session(), db.session(autocommit=True)
        run(second, "CREATE TABLE t (id BIGINT PRIMARY KEY, u TEXT UNIQUE, n INTEGER)")
        run(second, "INSERT INTO t VALUES (1, 'a', 1)")
        run(first, "DELETE FROM t WHERE u = 'a'")
        text = "INSERT INTO t VALUES (?, ?, 2) ON CONFLICT (u) DO NOTHING"

        def insert() -> None:
            if is_many:
                second.execute_many(text, [(2, "a"), (3, "a"), (4, "b")])
            else:
                run(second, text, 2, "a")

        with Background() as background:
            background.start(insert, "second")
            await_wait(driver, "second")
            (first.commit if is_committed else first.rollback)()
        expected = [(2 if is_committed else 1, "a"), *([(4, "b")] if is_many else [])]
        assert rows(second, "SELECT id, u FROM t ORDER BY id") == expected
        check(db)


def test_a_lost_entry_is_found(db: Engine, session: Session) -> None:
    run(session, "INSERT INTO t VALUES (1, 'a', 5, 1)")
    (table,) = db.database.tablespace.state.catalog.tables()
    memtable = db.database.tablespace.state.tables[table.stores[0].table.id].memtable
    memtable.chains.clear()
    with pytest.raises(CorruptionError, match="1 of 1 rows have no entry"):
        check(db)


def test_backup_dump_and_doctor_know_indexes(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    name = "n" * 63
    with herdpy.connect(path, autocommit=True) as conn:
        conn.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, {name} TEXT UNIQUE, w INTEGER)")
        conn.execute(f"CREATE UNIQUE INDEX ON t (w, {name})")
        conn.execute("INSERT INTO t VALUES (1, 'a', 2), (2, NULL, 2)")
        conn.execute("CREATE VIEW v AS SELECT w FROM t")
        conn.backup(tmp_path / "backup")
    assert examine(path).damages == []
    copy = str(tmp_path / "copy")
    herdpy.restore(tmp_path / "backup", copy)
    assert examine(copy).damages == []
    with herdpy.connect(copy, autocommit=True) as conn:
        with pytest.raises(IntegrityError):
            conn.execute("INSERT INTO t VALUES (3, 'a', 9)")
        assert conn.execute("SELECT id FROM t WHERE w = 2 ORDER BY id").fetchall() == [(1,), (2,)]
        assert conn.execute("SELECT * FROM v").fetchall() == [(2,), (2,)]
