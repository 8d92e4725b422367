"""Transactions whose changes do not fit in memory: read, undone, committed, over crashes."""

import random
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from herdpy.config import Config
from herdpy.engine.maintenance import page_commits
from herdpy.engine.maintenance.leftovers import segment_files
from herdpy.engine.session import spilled_commits
from herdpy.engine.session.session import Session
from herdpy.engine.state import page_adoption, snapshots, tablespace
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.state.state import TableState
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.writes import row_writes, spilled_writes
from herdpy.errors import (
    DeadlockError,
    Error,
    IntegrityError,
    InvariantViolation,
    LockTimeoutError,
    MemoryLimitError,
    Retry,
    SerializationError,
)
from herdpy.log.record import BeginSpill, Rollback, RollbackTo, decode
from herdpy.model.lsn import START_LSN
from tests.crash.checks import read_log, replayed
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Background, Engine, WatchedDriver, engine, rows, run
from tests.sim.disk import SimulatedDisk

LITTLE = Config(transaction_memory_bytes=20_000, log_file_bytes_first=64 * 1024)
ROWS = 400


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_writes, "_LOOK_ROWS", 5)
    monkeypatch.setattr(row_writes, "CHECK_ROWS", 20)
    monkeypatch.setattr(spilled_writes, "_PIECE_ROWS", 50)


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine(config=LITTLE) as made:
        yield made


def filled(db: Engine, *, count: int = ROWS, kind: str = "BIGINT") -> Session:
    """Return a session in a transaction of its own, with rows committed."""
    session = db.session()
    run(session, f"CREATE TABLE t (id {kind} PRIMARY KEY, v BIGINT, s TEXT)")
    session.execute_many(
        "INSERT INTO t VALUES (?, ?, ?)", [(number, number, "some text") for number in range(count)]
    )
    session.commit()
    return session


def transaction_of(session: Session) -> Transaction:
    found = session.transaction
    assert found is not None
    return found


def stages(db: Engine) -> int:
    return len(db.database.tablespace.state.staged.stages)


def totals(session: Session) -> tuple[int, int]:
    return rows(session, "SELECT count(*), coalesce(sum(v), 0) FROM t")[0]


@pytest.mark.parametrize("few_rows", [0, 10_000])
def test_what_is_changed_behind_a_spill_is_the_later(
    db: Engine, monkeypatch: pytest.MonkeyPatch, few_rows: int
) -> None:
    """E5: a COMMIT by parts puts what is in memory before it adopts what was spilled."""
    monkeypatch.setattr(page_adoption, "FEW_ROWS", few_rows)
    for module in (tablespace, row_writes):
        monkeypatch.setattr(module, "monitor_rows_max", 3)
    session, other = filled(db), db.session(autocommit=True)
    run(session, "UPDATE t SET v = v + 1")
    assert transaction_of(session).has_spilled
    run(session, "UPDATE t SET v = -v WHERE id < 5")
    run(session, "DELETE FROM t WHERE id BETWEEN 5 AND 9")
    assert len(transaction_of(session).writes) == 1
    session.commit()
    expected = [(number, -number - 1) for number in range(5)] + [(10, 11)]
    assert rows(other, "SELECT id, v FROM t WHERE id <= 10 ORDER BY id") == expected
    assert totals(other)[0] == ROWS - 5


def test_a_statement_over_its_share_spills_and_is_seen_by_the_next(db: Engine) -> None:
    session, other = filled(db), db.session(autocommit=True)
    before = totals(other)
    assert run(session, "UPDATE t SET v = v + 1") == ROWS
    assert transaction_of(session).has_spilled
    assert not transaction_of(session).writes
    assert totals(session) == (ROWS, before[1] + ROWS)
    assert rows(session, "SELECT v FROM t WHERE id = 7") == [(8,)]
    assert totals(other) == before
    assert run(session, "DELETE FROM t WHERE id >= 100") == ROWS - 100
    assert rows(session, "SELECT id FROM t ORDER BY id DESC LIMIT 2") == [(99,), (98,)]
    assert totals(other) == before
    session.commit()
    assert totals(other) == (100, sum(range(1, 101)))
    assert stages(db) == 0
    assert db.locks == {}


def test_what_was_in_memory_before_is_kept(db: Engine) -> None:
    session = filled(db)
    run(session, "DELETE FROM t WHERE id = 3")
    run(session, "UPDATE t SET v = 1000 WHERE id = 4")
    run(session, "INSERT INTO t VALUES (1000, 5, NULL)")
    assert not transaction_of(session).has_spilled
    assert run(session, "UPDATE t SET v = v + 1 WHERE id <> 5") == ROWS - 1
    assert transaction_of(session).has_spilled
    run(session, "INSERT INTO t VALUES (3, 33, 'again')")
    found = dict(rows(session, "SELECT id, v FROM t"))
    expected = {number: number + 1 for number in range(ROWS)} | {3: 33, 4: 1001, 5: 5, 1000: 6}
    assert found == expected
    session.commit()
    assert dict(rows(session, "SELECT id, v FROM t")) == expected
    db.reopen()
    assert dict(rows(db.session(), "SELECT id, v FROM t")) == expected


@pytest.mark.parametrize(
    ("text", "count", "total", "marked"),
    [
        ("INSERT INTO t SELECT id + 100, -1, s FROM t ON CONFLICT DO NOTHING", 100, 500, 100),
        ("INSERT INTO t SELECT id / 2 + 390, -1, s FROM t ON CONFLICT DO NOTHING", 190, 590, 190),
        ("UPSERT INTO t SELECT id + 100, -1, s FROM t", ROWS, 500, ROWS),
        ("UPSERT INTO t SELECT id / 2, -1, s FROM t", ROWS, ROWS, 200),
    ],
)  # fmt: skip
def test_rows_of_a_query_may_meet_others_that_are_there(
    db: Engine, text: str, count: int, total: int, marked: int
) -> None:
    session = filled(db)
    run(session, "UPDATE t SET s = 'changed' WHERE id = 0")
    assert run(session, text) == count
    assert transaction_of(session).has_spilled
    assert not transaction_of(session).writes
    found = "SELECT count(*), sum(CASE WHEN v = -1 THEN 1 ELSE 0 END) FROM t"
    assert rows(session, found) == [(total, marked)]
    session.commit()
    db.reopen()
    assert rows(db.session(), found) == [(total, marked)]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("INSERT INTO t SELECT id + 399, v, s FROM t", "23505"),
        ("UPDATE t SET id = id / 2", "23505"),
        ("UPDATE t SET v = v + 9223372036854775450", "22003"),
        ("UPDATE t SET v = v + 9223372036854775450, id = id + 1000", "22003"),
    ],
)  # fmt: skip
def test_a_statement_that_fails_half_way_is_undone_alone(db: Engine, text: str, state: str) -> None:
    session = filled(db)
    assert run(session, "UPDATE t SET v = v + 1") == ROWS
    before = rows(session, "SELECT * FROM t ORDER BY id")
    count = stages(db)
    with pytest.raises(Error) as caught:
        run(session, text)
    assert caught.value.sqlstate == state
    assert stages(db) == count
    assert rows(session, "SELECT * FROM t ORDER BY id") == before
    assert run(session, "DELETE FROM t WHERE id < 300") == 300
    session.commit()
    assert rows(session, "SELECT * FROM t ORDER BY id") == before[300:]
    records = [decode(data) for _, data in read_log(db.database, START_LSN)]
    cuts = [record for record in records if isinstance(record, RollbackTo)]
    assert [record.statement for record in cuts] == [2]


def test_a_cancelled_statement_is_undone_alone(db: Engine) -> None:
    session = filled(db)
    staged = db.database.after_staging
    pieces = 0

    def after_staging() -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 1:
            session.cancel()
        staged()

    db.database.after_staging = after_staging
    session.commit()
    with pytest.raises(Error) as caught:
        run(session, "INSERT INTO t SELECT a.id + 1000 + 400 * b.id, 0, '' FROM t a, t b "
                     "WHERE b.id < 40")  # fmt: skip
    assert caught.value.sqlstate == "57014"
    assert stages(db) == 0
    session.commit()
    assert totals(session)[0] == ROWS


def test_rollback_takes_everything_away_and_its_files(db: Engine) -> None:
    session = filled(db)
    before = rows(session, "SELECT * FROM t ORDER BY id")
    run(session, "UPDATE t SET v = v + 1")
    db.database.run_checkpoint()
    kept = db.database.replica.manifest.state.segments
    run(session, "UPDATE t SET id = id + 10000")
    session.rollback()
    assert stages(db) == 0
    assert rows(session, "SELECT * FROM t ORDER BY id") == before
    db.database.run_checkpoint()
    assert stages(db) == 0
    assert len(db.database.replica.manifest.state.segments) < len(kept)
    assert db.locks == {}


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_what_is_open_in_a_crash_is_rolled_back(seed: int, has_checkpoint: bool) -> None:
    with engine(disk=SimulatedDisk(seed), config=LITTLE) as db:
        session = filled(db)
        before = totals(session)
        run(session, "UPDATE t SET v = v + 1")
        run(session, "DELETE FROM t WHERE id > 10")
        db.database.tablespace.log.sync()
        if has_checkpoint:
            db.database.run_checkpoint()
            run(session, "INSERT INTO t SELECT id + 5000, v, s FROM t")
        assert isinstance(db.disk, SimulatedDisk)
        db.disk = db.disk.crash()
        db.open()
        assert totals(db.session()) == before
        assert stages(db) == 0
        db.database.run_checkpoint()
        listed = db.database.replica.manifest.state
        tables = db.database.tablespace.state.catalog.tables()
        assert list(listed.tables) == [table.id for table in tables]
        assert len(segment_files(db.disk, "default/segments")) == len(listed.segments)


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_commit_is_replayed(seed: int, has_checkpoint: bool) -> None:
    with engine(disk=SimulatedDisk(seed), config=LITTLE) as db:
        session = filled(db)
        run(session, "INSERT INTO t VALUES (9999, 1, NULL)")
        run(session, "UPDATE t SET v = v + 1, id = id + 1")
        if has_checkpoint:
            db.database.run_checkpoint()
        run(session, "DELETE FROM t WHERE id = 2")
        with pytest.raises(IntegrityError):
            run(session, "UPDATE t SET id = 5")
        session.commit()
        expected = rows(session, "SELECT * FROM t ORDER BY id")
        session.commit()
        digest = state_digest(db.database.tablespace)
        assert state_digest(replayed(read_log(db.database, START_LSN))) == digest
        assert isinstance(db.disk, SimulatedDisk)
        db.disk = db.disk.crash()
        db.open()
        assert state_digest(db.database.tablespace) == digest
        assert rows(db.session(), "SELECT * FROM t ORDER BY id") == expected


def test_autocommit_statements_spill_too(db: Engine) -> None:
    filled(db)
    session = db.session(autocommit=True)
    assert run(session, "UPDATE t SET v = 0") == ROWS
    with pytest.raises(IntegrityError):
        run(session, "INSERT INTO t SELECT id + 1, v, s FROM t")
    assert totals(session) == (ROWS, 0)
    assert run(session, "INSERT INTO t SELECT id + 1000, 1, s FROM t") == ROWS
    many = [(number, 1, "") for number in range(5000, 5400)]
    assert session.execute_many("INSERT INTO t VALUES (?, ?, ?)", many).row_count == len(many)
    assert totals(session) == (2 * ROWS + len(many), ROWS + len(many))
    assert stages(db) == 0
    assert db.locks == {}
    records = [decode(data) for _, data in read_log(db.database, START_LSN)]
    assert sum(isinstance(record, Rollback) for record in records) == 1
    assert sum(isinstance(record, BeginSpill) for record in records) > 3


def test_a_table_without_key_and_one_made_in_the_transaction(db: Engine) -> None:
    session = filled(db)
    run(session, "CREATE TABLE h (v BIGINT, s TEXT)")
    assert run(session, "INSERT INTO h SELECT v, s FROM t") == ROWS
    assert run(session, "UPDATE h SET v = v + 1") == ROWS
    assert run(session, "DELETE FROM h WHERE v > 300") == 100
    run(session, "INSERT INTO h VALUES (-1, 'small')")
    assert run(session, "INSERT INTO h SELECT v, s FROM h") == 301
    assert rows(session, "SELECT count(*), sum(v) FROM h") == [(602, 2 * (300 * 301 // 2 - 1))]
    session.commit()
    assert rows(session, "SELECT count(*), sum(v) FROM h") == [(602, 2 * (300 * 301 // 2 - 1))]
    run(session, "INSERT INTO h VALUES (7, 'next')")
    session.commit()
    db.reopen()
    assert rows(db.session(), "SELECT count(*) FROM h") == [(603,)]


@pytest.mark.parametrize("text", ["DROP TABLE made", "TRUNCATE made"])
@pytest.mark.parametrize("is_committed", [False, True])
def test_what_was_spilled_into_a_table_that_is_made_and_dropped_stays_until_the_end(
    seed: int, text: str, is_committed: bool
) -> None:
    """A ROLLBACK TO may bring the table back; a checkpoint lists its definition as long."""
    with engine(disk=SimulatedDisk(seed), config=LITTLE) as db:
        session = filled(db)
        run(session, "CREATE TABLE made (id BIGINT PRIMARY KEY, v BIGINT, s TEXT)")
        run(session, "INSERT INTO made SELECT id, v, s FROM t")
        assert stages(db) == 1
        result = session.execute("SELECT id FROM made ORDER BY id")
        first = result.fetch_many(1)
        run(session, text)
        assert stages(db) == 1
        db.database.run_checkpoint()
        assert [*first, *result.rows()] == [(number,) for number in range(ROWS)]
        result.close()
        if is_committed:
            session.commit()
            assert stages(db) == 0
            digest = state_digest(db.database.tablespace)
        assert isinstance(db.disk, SimulatedDisk)
        db.disk = db.disk.crash()
        db.open()
        if is_committed:
            assert state_digest(db.database.tablespace) == digest
        assert stages(db) == 0
        assert totals(db.session())[0] == ROWS
        names = [table.name for table in db.database.tablespace.state.catalog.tables()]
        assert ("made" in names) == (is_committed and text.startswith("TRUNCATE"))


def test_others_wait_for_the_whole_table(db: Engine) -> None:
    session = filled(db)
    other = db.session(lock_timeout_s=0.01)
    run(other, "UPDATE t SET v = 0 WHERE id = 1")
    late = db.session(lock_timeout_s=0.01)
    with pytest.raises(LockTimeoutError):
        run(late, "UPDATE t SET v = v + 1")
    late.rollback()
    other.commit()
    run(session, "UPDATE t SET v = v + 1")
    with pytest.raises(LockTimeoutError):
        run(other, "UPDATE t SET v = 0 WHERE id = 1")
    session.rollback()
    assert run(other, "UPDATE t SET v = 0 WHERE id = 1") == 1


def test_a_cursor_goes_on_with_what_it_saw(db: Engine) -> None:
    session = filled(db)
    run(session, "UPDATE t SET v = 5 WHERE id = 1")
    early = session.execute("SELECT id, v FROM t WHERE id < 350")
    first = early.fetch_many(1)
    run(session, "UPDATE t SET v = 6")
    late = session.execute("SELECT id, v FROM t WHERE id < 350")
    run(session, "DELETE FROM t")
    expected = [(number, 5 if number == 1 else number) for number in range(350)]
    assert sorted([*first, *early.rows()]) == expected
    assert sorted(late.rows()) == [(number, 6) for number in range(350)]
    assert totals(session) == (0, 0)


def _statement(chance: random.Random) -> str:
    low = chance.randrange(80)
    between = f"id BETWEEN {low} AND {low + chance.choice((0, 2, 20, 80))}"
    statements = (
        f"UPDATE t SET v = v + {low} WHERE {between}",
        f"UPDATE t SET id = id + {chance.choice((1, -1, 30, 200))} WHERE {between}",
        f"DELETE FROM t WHERE {between}",
        f"INSERT INTO t SELECT id + {chance.choice((1, 100))}, v, s FROM t WHERE {between}",
        f"INSERT INTO t SELECT id + {low}, 7, s FROM t WHERE {between} ON CONFLICT DO NOTHING",
        f"UPSERT INTO t SELECT CAST(id / 3 AS INTEGER), v, 'up' FROM t WHERE {between} ORDER BY id",
        f"INSERT INTO t VALUES ({low}, 1, 'new')",
        f"INSERT INTO t VALUES ({low}, 1, ''), ({low + 3}, 1, '') ON CONFLICT DO NOTHING",
        f"INSERT INTO t VALUES ({low + 1}, 1, 'new'), ({low + 2}, 2, NULL), ({low + 3}, 3, '')",
        f"UPSERT INTO t VALUES ({low}, 9, ''), ({low + 2}, 9, ''), ({low + 4}, 9, NULL)",
        f"INSERT INTO t VALUES ({low}, 1, 'n'), ({low + 1}, 2, NULL), ({low + 9}, 3, '') "
        "ON CONFLICT (id) DO UPDATE SET v = t.v + excluded.v, s = excluded.s WHERE t.v < 90 "
        "RETURNING id, v",
        f"INSERT INTO t VALUES ({low}, 1, 'n'), ({low + 1}, 2, '') "
        f"ON CONFLICT (id) DO UPDATE SET id = t.id + 200, s = upper(excluded.s)",
        f"UPDATE t SET v = o.v + {low} FROM t AS o WHERE o.id = t.id AND t.{between}",
        f"DELETE FROM t USING t AS o WHERE o.id = t.id + 1 AND t.{between}",
        f"UPDATE t SET v = v + 1 WHERE id = {low} RETURNING v, s",
        f"DELETE FROM t WHERE id = {low} RETURNING upper(s)",
        f"INSERT INTO t VALUES ({low}, 1, ''), ({low}, 2, '') ON CONFLICT DO NOTHING RETURNING v",
    )
    return chance.choice(statements)


@pytest.mark.parametrize("kind", ["BIGINT", "DOUBLE PRECISION", "DECIMAL(25, 3)"])
@pytest.mark.parametrize("part", range(6))
def test_spilled_or_not_all_is_the_same(
    seed: int, part: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writes, "_LOOK_ROWS", 2)
    monkeypatch.setattr(spilled_writes, "_PIECE_ROWS", 7)
    chance = random.Random(seed * 1000 + part)
    little = Config(transaction_memory_bytes=3000, log_file_bytes_first=64 * 1024)
    with engine(config=little) as one, engine() as other:
        sessions = [db.session() for db in (one, other)]
        for session in sessions:
            run(session, f"CREATE TABLE t (id {kind} PRIMARY KEY, v BIGINT, s TEXT)")
            run(session, "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, NULL)")
            session.commit()
        spilled = 0
        for _ in range(60):
            text = _statement(chance)
            found = [_outcome(session, text) for session in sessions]
            assert found[0] == found[1], text
            if chance.random() < 0.2:
                one.database.run_checkpoint()
            if chance.random() < 0.1:
                one.database.run_compaction()
            contents = [rows(session, "SELECT * FROM t ORDER BY id") for session in sessions]
            assert contents[0] == contents[1]
            spilled += transaction_of(sessions[0]).has_spilled
            if chance.random() < 0.15:
                end: Callable[[Session], object] = chance.choice([Session.commit, Session.rollback])
                for session in sessions:
                    end(session)
        assert spilled
        for session in sessions:
            session.commit()
        contents = [rows(session, "SELECT * FROM t ORDER BY id") for session in sessions]
        assert contents[0] == contents[1]


def _outcome(session: Session, text: str) -> object:
    try:
        found = session.execute(text)
    except Error as error:
        return error.sqlstate
    return found.row_count, None if found.columns is None else list(found.rows())


def test_rows_of_a_change_that_does_not_fit_in_memory_are_not_given(db: Engine) -> None:
    session = filled(db)
    with pytest.raises(MemoryLimitError, match="needs all of them at once"):
        session.execute("UPDATE t SET v = v + 1 RETURNING id")
    session.commit()
    assert rows(session, "SELECT sum(v) FROM t") == [(ROWS * (ROWS - 1) // 2,)]
    run(session, "UPDATE t SET v = v + 1")
    assert transaction_of(session).has_spilled
    assert rows(session, "UPDATE t SET v = 0 WHERE id = 3 RETURNING id, v") == [(3, 0)]


def test_memtables_stay_small(db: Engine) -> None:
    session = filled(db)
    run(session, "UPDATE t SET v = v + 1")
    session.commit()
    found = [each.memtable for each in db.database.tablespace.state.tables.values()]
    assert all(isinstance(each, Memtable) and not len(each) for each in found)


def test_two_that_both_need_the_table_do_not_wait_for_ever() -> None:
    driver = WatchedDriver()
    with engine(config=LITTLE, driver=driver, is_threaded=True) as db:
        session, other = filled(db), db.session()
        run(session, "UPDATE t SET v = 1 WHERE id = 1")
        run(other, "UPDATE t SET v = 2 WHERE id = 2")
        with Background() as background:
            background.start(lambda: run(session, "UPDATE t SET v = v + 1 WHERE id <> 2"), "first")
            while driver.waits.get(timeout=60) != "first":
                pass
            with pytest.raises(DeadlockError):
                run(other, "UPDATE t SET v = v + 1 WHERE id <> 1")
        session.commit()
        assert totals(session) == (ROWS, sum(range(ROWS)) + ROWS - 1)


@pytest.mark.parametrize("step", ["COMMIT", "UPDATE t SET v = v + 1"])
def test_a_log_opened_anew_under_a_spilled_transaction_is_no_bug(
    db: Engine, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """sim-server 300908: its locks are gone, others write, and its own step goes on with that."""
    session, other = filled(db), db.session(autocommit=True)
    run(session, "UPDATE t SET v = v + 1")
    assert transaction_of(session).has_spilled
    # Of a COMMIT before it keeps maintenance, and with it reopen(), away.
    module, name = (page_commits, "_tables") if step == "COMMIT" else (snapshots, "spilled_view")
    right, calls = getattr(module, name), count()

    def overtaken(*arguments: object) -> object:
        if next(calls) == 0:
            db.database.replica.reopen()
            run(other, "INSERT INTO t VALUES (-1, 0, '')")
        return right(*arguments)

    monkeypatch.setattr(module, name, overtaken)
    with pytest.raises(SerializationError) as lost:
        run(session, step)
    assert lost.value.retry is Retry.SAFE
    session.rollback()
    assert totals(session) == (ROWS + 1, sum(range(ROWS)))


def test_a_table_written_under_its_lock_is_a_bug(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = filled(db)
    run(session, "UPDATE t SET v = v + 1")
    right = spilled_commits.spilled_view

    def broken(table: TableState, *arguments: object) -> object:
        table.memtable.put_all([((-1,), (-1, 0, ""))], 1 << 40, 100, lambda: None)
        return right(table, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(spilled_commits, "spilled_view", broken)
    with pytest.raises(InvariantViolation, match="written while its lock was held"):
        session.commit()
    session.rollback()
