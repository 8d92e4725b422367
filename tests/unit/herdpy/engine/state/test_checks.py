"""CHECKs hold by every way that a row comes, whichever path computes them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import herdpy
from herdpy.driver.doctor import examine
from herdpy.engine.session.session import Session
from herdpy.engine.writes import row_writes
from herdpy.errors import Error, IntegrityError, NotSupportedError
from herdpy.limits import check_bytes_max, checks_max
from herdpy.model.schema import Table
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Engine, engine, rows, run
from tests.fixtures.small_sizes import small_sizes

BY_ROWS, BY_QUERY = "v < 100", "v % 1000 < 100"
"""The same of what the tests write: of the row path, and of the vector path."""


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine() as made:
        yield made


@pytest.fixture(params=[BY_ROWS, BY_QUERY], ids=["rows", "query"])
def condition(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def session(db: Engine, condition: str) -> Session:
    made = db.session(autocommit=True)
    run(made, f"CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, CHECK ({condition}))")
    return made


def fails(session: Session, sqlstate: str, text: str, *parameters: Any) -> Error:
    with pytest.raises(Error) as caught:
        session.run(text, parameters)
    assert caught.value.sqlstate == sqlstate
    return caught.value


def table_of(db: Engine) -> Table:
    (table,) = db.database.tablespace.state.catalog.tables()
    return table


def ingest(session: Session, mode: str, batch: pa.RecordBatch) -> int:
    begun = session.begin_ingest("t", mode)
    try:
        begun.add(batch)
        return begun.finish()
    finally:
        begun.abort()


def test_a_row_that_violates_is_refused_by_each_way(session: Session, condition: str) -> None:
    for number in range(3):  # from the second time on by the fast path
        run(session, "INSERT INTO t VALUES (?, ?)", number, number)
        error = fails(session, "23514", "INSERT INTO t VALUES (?, ?)", 9, 100)
        assert error.message == 'new row for relation "t" violates check constraint "t_v_check"'
        assert condition in (error.hint or "")
        run(session, "UPDATE t SET v = ? WHERE id = ?", 5, number)
        fails(session, "23514", "UPDATE t SET v = ? WHERE id = ?", 100, number)
        fails(session, "23514", "UPDATE t SET v = v + ? WHERE id = ?", 100, number)
    fails(session, "23514", "INSERT INTO t VALUES (8, 1), (9, 100)")
    fails(session, "23514", "INSERT INTO t SELECT id + 10, v + 98 FROM t WHERE id > 0")
    fails(session, "23514", "UPDATE t SET v = 100 + id")
    fails(session, "23514", "UPDATE t SET v = q.n FROM (SELECT 100 AS n) AS q")
    fails(session, "23514", "UPSERT INTO t VALUES (0, 100)")
    fails(session, "23514", "UPSERT INTO t SELECT 0, 100")
    fails(session, "23514", "INSERT INTO t VALUES (0, 1) ON CONFLICT (id) DO UPDATE SET v = 100")
    fails(session, "23514", "INSERT INTO t VALUES (0, 100) ON CONFLICT DO NOTHING")
    for text, items in (
        ("INSERT INTO t VALUES (?, ?)", [(8, 1), (9, 100)]),
        ("INSERT INTO t VALUES (?, ? + 1)", [(8, 1), (9, 99)]),
        ("UPDATE t SET v = ? WHERE id = ?", [(1, 0), (100, 1)]),
    ):
        with pytest.raises(IntegrityError, match="t_v_check"):
            session.execute_many(text, items)
    assert rows(session, "SELECT id, v FROM t ORDER BY id") == [(0, 5), (1, 5), (2, 5)]
    run(session, "INSERT INTO t VALUES (?, ?)", 9, None)
    run(session, "UPDATE t SET v = ? WHERE id = ?", None, 0)


def test_rows_of_an_ingest_are_checked(
    session: Session, db: Engine, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("herdpy.engine.session.ingest.FEW_ROWS", 3)
    for mode in ("append", "upsert", "replace"):
        for count in (2, 50):  # which are staged, where that can be
            for last, is_right in ((100, False), (99, True)):
                values = [*range(count - 1), last]
                batch = pa.record_batch({"id": list(range(count)), "v": values})
                if is_right:
                    assert ingest(session, mode, batch) == count
                    continue
                with pytest.raises(IntegrityError, match="t_v_check"):
                    ingest(session, mode, batch)
            if mode == "append":
                run(session, "DELETE FROM t")
    assert rows(session, "SELECT count(*), max(v) FROM t") == [(50, 99)]


def test_staged_rows_are_checked_or_refused(session: Session, db: Engine, condition: str) -> None:
    staging = session.staging
    if condition == BY_QUERY:
        with pytest.raises(NotSupportedError, match="only a query computes"):
            staging.begin("t", "append", "job")
        return
    run(session, "INSERT INTO t VALUES (1, 1), (2, 2)")
    staging.begin("t", "append", "job")
    number, _ = staging.begin_stage("job", "0", "0")
    with pytest.raises(IntegrityError, match="t_v_check"):
        staging.add(number, 0, pa.record_batch({"id": [7], "v": [100]}))
    staging.abort("job")
    staging.begin("t", "update", "job")
    number, _ = staging.begin_stage("job", "0", "0")
    staging.add(number, 0, pa.record_batch({"id": [1], "v": [100]}))
    staging.finish_stage(number)
    with pytest.raises(IntegrityError, match="t_v_check"):
        staging.commit("job", [number])
    staging.abort("job")
    staging.begin("t", "delete", "job")
    number, _ = staging.begin_stage("job", "0", "0")
    staging.add(number, 0, pa.record_batch({"id": [1]}))
    staging.finish_stage(number)
    staging.commit("job", [number])
    assert rows(session, "SELECT id, v FROM t") == [(2, 2)]


def test_rows_of_a_write_that_spills_are_checked(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writes, "memory_changes_max", 20)
    with small_sizes():
        run(session, "CREATE TABLE n (i BIGINT PRIMARY KEY)")
        session.execute_many("INSERT INTO n VALUES (?)", [(i,) for i in range(10)])
        fails(session, "23514", "INSERT INTO t SELECT a.i * 10 + b.i, a.i + b.i + 82 FROM n a, n b")
        run(session, "INSERT INTO t SELECT a.i * 10 + b.i, a.i + b.i + 81 FROM n a, n b")
        fails(session, "23514", "UPDATE t SET v = v + 1")
        run(session, "UPDATE t SET v = v - 1")
    assert rows(session, "SELECT count(*), max(v) FROM t") == [(100, 98)]


def test_a_check_is_as_before_behind_a_restart_with_and_without_checkpoint(
    db: Engine, session: Session
) -> None:
    run(session, "INSERT INTO t VALUES (1, 1)")
    table = table_of(db)
    for is_checkpoint in (False, True, False):
        if is_checkpoint:
            db.database.run_checkpoint()
        before = state_digest(db.database.tablespace, has_position=False)
        db.reopen()
        assert state_digest(db.database.tablespace, has_position=False) == before
        assert table_of(db) == table
        session = db.session(autocommit=True)
        fails(session, "23514", "INSERT INTO t VALUES (2, 100)")


def test_names_are_those_of_postgresql(db: Engine) -> None:
    session = db.session(autocommit=True)
    long = "n" * 63
    run(
        session,
        f"CREATE TABLE {long} (a INTEGER CHECK (a > 0) CHECK (a < 9) CONSTRAINT c CHECK (a <> 5), "
        f"b INTEGER CHECK (b > a), CHECK (true), {'a' * 40} INTEGER CHECK ({'a' * 40} > 0))",
    )
    assert [each.name for each in table_of(db).checks] == [
        f"{'n' * 55}_a_check",
        f"{'n' * 54}_a_check1",
        "c",
        f"{'n' * 57}_check",
        f"{'n' * 56}_check1",
        f"{'n' * 28}_{'a' * 28}_check",
    ]


def test_checks_have_limits(db: Engine) -> None:
    session = db.session(autocommit=True)
    many = ", ".join(["CHECK (a > 0)"] * (checks_max + 1))
    fails(session, "54000", f"CREATE TABLE t (a INTEGER, {many})")
    fails(session, "54000", f"CREATE TABLE t (a TEXT CHECK (a <> '{'x' * check_bytes_max}'))")
    fails(session, "0A000", "CREATE TABLE t (a TIMESTAMP CHECK (a < now()))")
    fails(session, "42P02", "CREATE TABLE t (a INTEGER CHECK (a < ?))", 1)


def test_many_operators_are_of_a_query(db: Engine) -> None:
    session = db.session(autocommit=True)
    tests = " OR ".join(f"a = {number}" for number in range(600))
    run(session, f"CREATE TABLE t (a INTEGER, CHECK ({tests}), CHECK ({tests} OR a = 601))")
    run(session, "INSERT INTO t VALUES (599)")
    fails(session, "23514", "INSERT INTO t VALUES (601)")


def test_backup_dump_and_doctor_know_checks(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    with herdpy.connect(path, autocommit=True) as conn:
        conn.execute('CREATE TABLE t (id INTEGER PRIMARY KEY, "A" TEXT CHECK ("A" <> \'\'))')
        conn.execute("INSERT INTO t VALUES (1, 'a')")
        conn.backup(tmp_path / "backup")
        conn.dump(tmp_path / "dump.sql")
    assert examine(path).damages == []
    herdpy.restore(tmp_path / "backup", str(tmp_path / "copy"))
    with herdpy.connect(str(tmp_path / "copy"), autocommit=True) as conn:
        conn.execute("INSERT INTO t VALUES (2, 'b')")
        with pytest.raises(IntegrityError):
            conn.execute("INSERT INTO t VALUES (3, '')")
    assert 'CONSTRAINT "t_A_check" CHECK ("A" <> \'\')' in (tmp_path / "dump.sql").read_text()
