"""REPEATABLE READ in the engine: what was changed since, over checkpoints, spills and evictions."""

import weakref
from collections.abc import Iterator

import pyarrow as pa
import pytest

from herdpy.config import Config
from herdpy.engine.session.session import Session
from herdpy.engine.state.transaction_snapshot import TransactionSnapshot
from herdpy.engine.writes import row_writes, spilled_writes
from herdpy.errors import Error
from tests.fixtures.engines import Background, Engine, WatchedDriver, engine, rows, run, table

ALL = "SELECT id, v FROM t ORDER BY id"
TOTAL = "SELECT count(*), sum(v) FROM t"
LITTLE = Config(transaction_memory_bytes=20_000, log_file_bytes_first=64 * 1024)


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine() as made:
        yield made


def repeatable(db: Engine) -> Session:
    """Return a session in a transaction whose snapshot is taken."""
    session = db.session()
    run(session, "BEGIN ISOLATION LEVEL REPEATABLE READ")
    rows(session, "SELECT 1")
    return session


def committed(db: Engine, text: str) -> None:
    run(db.session(autocommit=True), text)


def refused(session: Session, text: str) -> str:
    with pytest.raises(Error) as caught:
        run(session, text)
    return caught.value.sqlstate


def registered(db: Engine) -> int:
    return len(db.database.tablespace.registry)


# --- the life of a snapshot ----------------------------------------------------------------------


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "lost", "closed"])
@pytest.mark.parametrize("has_written", [False, True])
def test_it_is_let_go_at_the_end(db: Engine, end: str, has_written: bool) -> None:
    table(db.session(), (1, 10), (2, 20))
    session = repeatable(db)
    assert registered(db) == 1
    if has_written:
        run(session, "UPDATE t SET v = 11 WHERE id = 1")
    if end == "lost":
        transaction = session.transaction
        assert transaction is not None
        db.database.tablespace.rollback(transaction, Error("gone", sqlstate="25P03"))
    elif end == "closed":
        session.close()
    else:
        run(session, end)
    assert registered(db) == 0


def test_none_is_taken_before_a_statement_needs_it(db: Engine) -> None:
    session = db.session()
    run(session, "BEGIN ISOLATION LEVEL REPEATABLE READ")
    run(session, "SET lock_timeout = '1s'")
    rows(session, "SHOW ALL")
    run(session, "SAVEPOINT a")
    assert registered(db) == 0
    session.rollback()
    for _ in range(2):  # by a plan that was there before, too
        run(session, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        rows(session, "SELECT 1")
        assert registered(db) == 1
        session.rollback()


def test_an_evicted_snapshot_keeps_nothing(db: Engine) -> None:
    """Memory, and files, were kept until its transaction ended, though it could read nothing."""
    table(db.session(), (1, 10), (2, 20))
    session, root = repeatable(db), db.session(autocommit=True)
    shown = f"SELECT snapshot_at IS NOT NULL FROM sysclients WHERE id = {session.id}"
    assert rows(root, shown) == [(True,)]
    transaction = session.transaction
    assert transaction is not None
    kept = transaction.reads_at
    assert isinstance(kept, TransactionSnapshot)
    memtable = weakref.ref(kept.state.tables[min(kept.state.tables)].memtable)
    committed(db, "DELETE FROM t")
    db.database.run_checkpoint()
    run(db.session(autocommit=True), "INSERT INTO t VALUES (3, 30)")
    db.database.run_checkpoint()
    assert memtable() is not None
    assert db.database.tablespace.registry.evict_oldest(db.database.tablespace.state.position) == 1
    assert memtable() is None
    assert rows(root, shown) == [(False,)]
    assert refused(session, TOTAL) == "72000"
    assert transaction.is_used
    run(session, "ROLLBACK")


def test_an_evicted_snapshot_is_72000_and_nothing_else(db: Engine) -> None:
    table(db.session(), (1, 10), (2, 20))
    session = repeatable(db)
    run(session, "UPDATE t SET v = 21 WHERE id = 2")
    for number in range(50):
        committed(db, f"UPDATE t SET v = {number} WHERE id = 1")
    space = db.database.tablespace
    space.limit_versions(0)
    for text in (ALL, "SELECT v FROM t WHERE id = 1", "SELECT sum(v) FROM t"):
        for _ in range(2):
            assert refused(session, text) == "72000"
    assert refused(session, "UPDATE t SET v = 0 WHERE id = 1") == "72000"
    session.rollback()
    assert rows(session, ALL) == [(1, 49), (2, 20)]


def test_an_open_cursor_outlives_its_transaction(db: Engine) -> None:
    table(db.session(), *((number, 0) for number in range(100)))
    session = repeatable(db)
    result = session.execute(ALL, ())
    first = result.fetch_many(10)
    session.commit()
    committed(db, "UPDATE t SET v = 1")
    db.database.run_checkpoint()
    db.database.tablespace.limit_versions(10**9)
    assert [*first, *result.rows()] == [(number, 0) for number in range(100)]


def test_a_wait_keeps_the_snapshot(db: Engine) -> None:
    """Behind it the row is read anew only to see that it has changed."""
    driver = WatchedDriver()
    with engine(driver=driver) as db:
        table(db.session(), (1, 10), (2, 20), (3, 30))
        holder, session = db.session(), repeatable(db)
        run(holder, "UPDATE t SET v = 31 WHERE id = 3")
        found: list[object] = []

        def wait() -> None:
            found.append(run(session, "UPDATE t SET v = (SELECT sum(v) FROM t) WHERE id = 3"))

        with Background() as background:
            background.start(wait)
            driver.waits.get()
            committed(db, "UPDATE t SET v = 11 WHERE id = 1")
            holder.rollback()
        assert found == [1]
        assert rows(session, ALL) == [(1, 10), (2, 20), (3, 60)]
        session.commit()


# --- what was changed since ----------------------------------------------------------------------


def put(db: Engine, number: int, value: int) -> None:
    committed(db, f"UPDATE t SET v = {value} WHERE id = {number}")


@pytest.mark.parametrize("checkpoints", ["", "b", "m", "e", "bm", "me", "bme", "mmm", "bmmme"])
@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_over_checkpoints(db: Engine, checkpoints: str, is_back: bool, is_compacted: bool) -> None:
    """Before the snapshot, amid the changes, and behind them; b, m, e."""
    table(db.session(), *((number, 0) for number in range(10)))
    if "b" in checkpoints:
        db.database.run_checkpoint()
    committed(db, "UPDATE t SET v = v WHERE id = 9")
    session = repeatable(db)
    put(db, 1, 5)
    for _ in range(checkpoints.count("m")):
        db.database.run_checkpoint()
        put(db, 2, 5)
    if is_back:
        put(db, 1, 0)
    if "e" in checkpoints:
        db.database.run_checkpoint()
        put(db, 3, 1)
    if is_compacted:
        db.database.run_compaction()
    assert rows(session, TOTAL) == [(10, 0)]
    run(session, "INSERT INTO t VALUES (100, 1)")
    if checkpoints in ("", "b", "m", "bm"):  # no row that was not changed is refused
        run(session, "UPDATE t SET v = 7 WHERE id = 4")
    assert refused(session, "UPDATE t SET v = 7 WHERE id = 1") == "40001"


@pytest.mark.parametrize("checkpoints", [0, 1, 2, 3])
@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "UPDATE t SET v = 7 WHERE id = 1",
        "UPDATE t SET v = 7",
        "DELETE FROM t WHERE id = 1",
        "UPSERT INTO t VALUES (1, 7)",
        "INSERT INTO t VALUES (1, 7) ON CONFLICT DO NOTHING",
        "INSERT INTO t VALUES (1, 7) ON CONFLICT (id) DO UPDATE SET v = 7",
        "INSERT INTO t VALUES (1, 7) ON CONFLICT (id) DO UPDATE SET v = 7 WHERE t.v > 0",
        "INSERT INTO t VALUES (1, 7)",
    ],
)
def test_a_row_that_was_only_in_memory_and_is_deleted(
    db: Engine, text: str, is_compacted: bool, checkpoints: int
) -> None:
    table(db.session(), (1, 0), (2, 0))
    session = repeatable(db)
    if checkpoints > 1:
        db.database.run_checkpoint()
    committed(db, "DELETE FROM t WHERE id = 1")
    for number in range(checkpoints):
        db.database.run_checkpoint()
        put(db, 3 + number, 1)
    if is_compacted:
        db.database.run_compaction()
    assert rows(session, TOTAL) == [(2, 0)]
    assert refused(session, text) == "40001"


def test_rows_that_lie_where_they_lay_are_unchanged_behind_any_number_of_checkpoints(
    db: Engine,
) -> None:
    table(db.session(), *((number, 0) for number in range(10)))
    db.database.run_checkpoint()
    session = repeatable(db)
    for number in range(4):
        put(db, number, 5)
        db.database.run_checkpoint()
    put(db, 0, 6)
    for number in range(4, 10):
        assert run(session, f"UPDATE t SET v = 7 WHERE id = {number}") == 1
    run(session, "INSERT INTO t VALUES (100, 1)")
    session.commit()
    assert rows(session, "SELECT count(*) FROM t WHERE v = 7") == [(6,)]


def stage(db: Engine, kind: str, ids: list[int]) -> None:
    """Commit staged rows; their number is such that pages are adopted."""
    session = db.session(autocommit=True)
    staging = session.staging
    job = "job"
    staging.begin("t", kind, job)
    number, _ = staging.begin_stage(job, "0", "0")
    columns = [pa.array(ids, pa.int64()), pa.array([1] * len(ids), pa.int64())]
    staging.add(number, 0, pa.RecordBatch.from_arrays(columns, names=["id", "v"]))
    staging.finish_stage(number)
    staging.commit(job, [number])


@pytest.mark.parametrize("kind", ["upsert", "append", "replace"])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_pages_that_were_adopted_since(db: Engine, kind: str, has_checkpoint: bool) -> None:
    table(db.session(), (1, 10), (2, 20))
    db.database.run_checkpoint()
    session = repeatable(db)
    run(session, "UPDATE t SET v = 21 WHERE id = 2")
    session.rollback()
    session = repeatable(db)
    first = 3 if kind == "append" else 2
    stage(db, kind, list(range(first, 20_000)))
    if has_checkpoint:
        db.database.run_checkpoint()
    assert rows(session, ALL) == [(1, 10), (2, 20)]
    assert rows(session, TOTAL) == [(2, 30)]
    changed = {"upsert": 2, "append": 3, "replace": 1}[kind]
    text = f"UPSERT INTO t VALUES ({changed}, 0)"
    if kind != "replace":
        run(session, "UPDATE t SET v = 11 WHERE id = 1")
    assert refused(session, text) == "40001"


def test_another_log_given_to_the_tablespace(db: Engine) -> None:
    table(db.session(), (1, 10), (2, 20))
    reader, writer = repeatable(db), repeatable(db)
    run(writer, "UPDATE t SET v = 21 WHERE id = 2")
    put(db, 1, 11)
    db.database.reopen()
    assert rows(reader, ALL) == [(1, 10), (2, 20)]
    assert refused(writer, "UPDATE t SET v = 22 WHERE id = 2") == "40001"
    assert refused(reader, "UPDATE t SET v = 12 WHERE id = 1") == "40001"
    assert registered(db) == 0


def test_positions_of_another_log_tell_nothing(db: Engine) -> None:
    table(db.session(), (1, 10))
    space = db.database.tablespace
    transaction = repeatable(db).transaction
    assert transaction is not None
    snapshot = transaction.reads_at
    assert isinstance(snapshot, TransactionSnapshot)
    (number,) = space.state.tables
    assert not snapshot.has_changed(number, space.state, [(1,)])
    assert snapshot.is_unchanged(number, space.state)
    db.database.reopen()
    assert snapshot.has_changed(number, space.state, [(1,)])
    assert not snapshot.is_unchanged(number, space.state)


# --- spilled -------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(row_writes, "_LOOK_ROWS", 5)
    monkeypatch.setattr(row_writes, "CHECK_ROWS", 20)
    monkeypatch.setattr(spilled_writes, "_PIECE_ROWS", 50)
    with engine(config=LITTLE) as made:
        session = made.session()
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        run(session, "CREATE TABLE u (id BIGINT PRIMARY KEY, v BIGINT)")
        session.execute_many("INSERT INTO t VALUES (?, ?)", [(each, 0) for each in range(400)])
        session.commit()
        yield made


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_transaction_spills_on_its_snapshot(small: Engine, has_checkpoint: bool) -> None:
    session = repeatable(small)
    committed(small, "INSERT INTO u VALUES (1, 1)")
    if has_checkpoint:
        small.database.run_checkpoint()
        committed(small, "INSERT INTO u VALUES (2, 1)")
        small.database.run_checkpoint()
    run(session, "UPDATE t SET v = 5 WHERE id = 1")
    assert run(session, "UPDATE t SET v = v + 1") == 400
    transaction = session.transaction
    assert transaction is not None
    assert transaction.has_spilled
    committed(small, "INSERT INTO u VALUES (3, 1)")
    assert rows(session, TOTAL) == [(400, 405)]
    assert rows(session, "SELECT v FROM t WHERE id = 1") == [(6,)]
    assert rows(session, "SELECT count(*) FROM u") == [(0,)]
    run(session, "DELETE FROM t WHERE id >= 100")
    run(session, "UPDATE t SET v = 9 WHERE id = 2")
    small.database.run_checkpoint()
    small.database.run_compaction()
    assert rows(session, TOTAL) == [(100, 113)]
    run(session, "SAVEPOINT a")
    run(session, "UPDATE t SET v = 0")
    run(session, "ROLLBACK TO a")
    assert rows(session, TOTAL) == [(100, 113)]
    session.commit()
    assert rows(session, TOTAL) == [(100, 113)]


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_table_that_was_changed_since_does_not_spill(small: Engine, has_checkpoint: bool) -> None:
    session = repeatable(small)
    committed(small, "INSERT INTO t VALUES (1000, 1)")
    if has_checkpoint:
        small.database.run_checkpoint()
    assert rows(session, TOTAL) == [(400, 0)]
    assert refused(session, "UPDATE t SET v = v + 1") == "40001"
    session.rollback()
    assert rows(session, TOTAL) == [(401, 1)]


def test_a_table_of_its_own_spills(small: Engine) -> None:
    session = repeatable(small)
    run(session, "CREATE TABLE made (id BIGINT PRIMARY KEY, v BIGINT)")
    assert run(session, "INSERT INTO made SELECT id, v FROM t") == 400
    assert run(session, "UPDATE made SET v = v + 1") == 400
    assert rows(session, "SELECT sum(v) FROM made") == [(400,)]
    session.commit()
    assert rows(session, "SELECT sum(v) FROM made") == [(400,)]
