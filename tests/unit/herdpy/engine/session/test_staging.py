"""Stagings in the engine: crashes, restarts, time-outs, tokens, rights, limits, waits."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from herdpy.config import Config
from herdpy.engine.session import staging as staging_module
from herdpy.engine.session.session import Session
from herdpy.engine.state.commit_tokens import Outcome, UsedToken
from herdpy.engine.state.page_adoption import FEW_ROWS
from herdpy.errors import Error, MemoryLimitError, OperationalError, Retry, SerializationError
from herdpy.log.record import BeginStaging, DropStages, EndStaging
from tests.fixtures.access import refusal, run, session_of, small_engine
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Background, Engine, WatchedDriver, engine, rows, table
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk

MANY = FEW_ROWS + 1


def data(*ids: int, v: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(ids), "v": [v] * len(ids)})


def staged(session: Session, job: str, *ids: int, operation: str = "append") -> int:
    """Begin a job and stage rows in one finished stage; return its number."""
    session.staging.begin("t", operation, job)
    number, _ = session.staging.begin_stage(job, "0", "0")
    session.staging.add(number, 0, data(*ids))
    session.staging.finish_stage(number)
    return number


def crash(db: Engine) -> None:
    """Lose what was not synced, and open what is left."""
    assert isinstance(db.disk, SimulatedDisk)
    db.disk = db.disk.crash()
    db.open()


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("count", [3, MANY])
def test_what_is_finished_survives_a_crash(seed: int, count: int, has_checkpoint: bool) -> None:
    with engine(disk=SimulatedDisk(seed)) as db:
        session = db.session(autocommit=True)
        table(session)
        number = staged(session, "job", *range(count))
        if has_checkpoint:
            db.database.run_checkpoint()
        expected = state_digest(db.database.tablespace)
        crash(db)
        assert state_digest(db.database.tablespace) == expected
        session = db.session(autocommit=True)
        position = session.staging.commit("job", [number])
        crash(db)
        session = db.session(autocommit=True)
        assert session.staging.commit("job", [number]) == position
        assert rows(session, "SELECT count(*) FROM t") == [(count,)]


def test_rows_lost_in_a_crash_are_missed(seed: int) -> None:
    with engine(disk=SimulatedDisk(seed)) as db:
        session = db.session(autocommit=True)
        table(session)
        session.staging.begin("t", "append", "job")
        number, _ = session.staging.begin_stage("job", "0", "0")
        db.database.tablespace.log.sync()
        session.staging.add(number, 0, data(1))
        crash(db)
        session = db.session(autocommit=True)
        with pytest.raises(OperationalError) as caught:
            session.staging.add(number, 1, data(2))
        assert (caught.value.sqlstate, caught.value.retry) == ("40001", Retry.SAFE)
        number, _ = session.staging.begin_stage("job", "0", "0")
        session.staging.add(number, 0, data(1, 2))
        session.staging.finish_stage(number)
        session.staging.commit("job", [number])
        assert rows(session, "SELECT count(*) FROM t") == [(2,)]


def test_rows_that_come_twice_count_once() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session)
        session.staging.begin("t", "append", "job")
        number, _ = session.staging.begin_stage("job", "0", "0")
        assert session.staging.add(number, 0, data(1, 2)) == 2
        assert session.staging.add(number, 0, data(1, 2)) == 2
        assert session.staging.add(number, 1, data(2, 3)) == 3
        assert session.staging.finish_stage(number) == 3
        assert session.staging.add(number, 1, data(2, 3)) == 3
        with pytest.raises(Error, match="is finished"):
            session.staging.add(number, 3, data(4))
        session.staging.commit("job", [number])
        assert rows(session, "SELECT count(*) FROM t") == [(3,)]


def test_a_job_that_nobody_touches_is_given_up() -> None:
    clock = SimulatedClock()
    with engine(clock=clock, config=Config(staging_timeout_s=60)) as db:
        session = db.session(autocommit=True)
        table(session)
        staged(session, "old", 1)
        kept = staged(session, "used", 2)
        clock.advance(40)
        session.staging.finish_stage(kept)
        db.database.run_maintenance_once()
        clock.advance(30)
        db.database.run_maintenance_once()
        assert rows(session, "SELECT job, row_count FROM sysstagings") == [("used", 1)]
        with pytest.raises(Error) as caught:
            session.staging.begin_stage("old", "0", "1")
        assert caught.value.sqlstate == "42704"
        db.reopen()
        db.database.run_maintenance_once()  # begins to count anew
        session = db.session(autocommit=True)
        assert rows(session, "SELECT job FROM sysstagings") == [("used",)]


def test_a_commit_keeps_others_out_and_waits_for_them() -> None:
    driver = WatchedDriver()
    with engine(driver=driver, is_threaded=True) as db:
        session, other = db.session(autocommit=True), db.session()
        table(session, (1, 0))
        number = staged(session, "job", 2)
        other.execute("UPDATE t SET v = 5 WHERE id = 1")
        background = Background()
        background.start(lambda: session.staging.commit("job", [number]), "committer")
        while driver.waits.get(timeout=60) != "committer":
            pass
        other.commit()
        background.join()
        assert rows(session, "SELECT id, v FROM t ORDER BY id") == [(1, 5), (2, 0)]
        assert db.locks == {}


@pytest.mark.parametrize("count", [3, MANY])
def test_a_reader_goes_on_with_what_it_saw(count: int) -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, (1, 0), (2 * count, 0))
        db.database.run_checkpoint()
        snapshot = db.database.tablespace.snapshot(None)
        source = snapshot.source(db.database.tablespace.state.catalog.tables()[0])
        number = staged(session, "job", *range(count), operation="replace")
        session.staging.commit("job", [number])
        db.database.run_checkpoint()
        assert list(source.range(None, None)) == [(1, 0), (2 * count, 0)]
        snapshot.close()
        assert rows(session, "SELECT count(*), max(id) FROM t") == [(count, count - 1)]


@pytest.mark.parametrize("count", [3, MANY])
def test_an_ingest_is_settled_by_its_token(seed: int, count: int) -> None:
    with engine(disk=SimulatedDisk(seed)) as db:
        session, asker = db.session(autocommit=True), db.session(autocommit=True)
        table(session)
        name = session.token_session
        ingest = session.begin_ingest("t", "append")
        ingest.add(data(*range(count)))
        session.token = UsedToken((name, 1), 0)
        assert ingest.finish() == count
        assert asker.resolve(name, 1) is Outcome.COMMITTED
        late = session.begin_ingest("t", "append")
        late.add(data(*range(count, 2 * count)))
        assert asker.resolve(name, 2) is Outcome.REFUSED
        session.token = UsedToken((name, 2), 1)
        with pytest.raises(SerializationError):
            late.finish()
        crash(db)
        session = db.session(autocommit=True)
        assert session.resolve(name, 1) is Outcome.COMMITTED
        assert rows(session, "SELECT count(*) FROM t") == [(count,)]
        assert rows(session, "SELECT * FROM sysstagings") == []


def test_what_an_ingest_staged_does_not_outlive_it(seed: int) -> None:
    with engine(disk=SimulatedDisk(seed)) as db:
        session = db.session(autocommit=True)
        table(session)
        for end in ("abort", "crash"):
            ingest = session.begin_ingest("t", "append")
            ingest.add(data(*range(MANY)))
            assert rows(session, "SELECT row_count FROM sysstagings") == [(MANY,)]
            db.database.tablespace.log.sync()
            if end == "abort":
                ingest.abort()
            else:
                crash(db)
                session = db.session(autocommit=True)
            assert rows(session, "SELECT * FROM sysstagings") == []
            assert rows(session, "SELECT count(*) FROM t") == [(0,)]


def test_rights() -> None:
    db = small_engine()
    try:
        root, ann = session_of(db), session_of(db, "ann")
        run(root, "CREATE USER bob", "GRANT INSERT ON t TO ann", "GRANT INSERT ON t TO bob")
        for operation in ("upsert", "replace", "update", "delete"):
            with pytest.raises(Error) as caught:
                ann.staging.begin("t", operation, operation)
            assert caught.value.sqlstate == "42501"
        ann.staging.begin("t", "append", "job")
        number, _ = ann.staging.begin_stage("job", "0", "0")
        bob = session_of(db, "bob")
        for call in (
            lambda: bob.staging.begin_stage("job", "1", "0"),
            lambda: bob.staging.add(number, 0, data(1)),
            lambda: bob.staging.finish_stage(number),
            lambda: bob.staging.drop_stage(number),
            lambda: bob.staging.commit("job", []),
            lambda: bob.staging.abort("job"),
        ):
            with pytest.raises(Error, match="another user's"):
                call()
        ann.staging.finish_stage(number)
        run(root, "REVOKE INSERT ON t FROM ann")
        with pytest.raises(Error) as caught:
            ann.staging.commit("job", [number])
        assert caught.value.sqlstate == "42501"
        assert refusal(ann, "SELECT * FROM sysstagings").sqlstate == "42501"
        root.staging.commit("job", [number])
    finally:
        db.database.close()


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(staging_bytes_max=1024 * 1024, transaction_memory_bytes=64 * 1024)
    monkeypatch.setattr(staging_module, "stagings_max", 2)
    monkeypatch.setattr(staging_module, "stages_max", 2)
    with engine(config=config) as db:
        session = db.session(autocommit=True)
        table(session)
        one = staged(session, "one", *range(1_000), operation="update")
        two = staged(session, "two", 1)
        for call in (
            lambda: session.staging.begin("t", "append", "three"),
            lambda: session.staging.begin_stage("two", "1", "0"),
        ):
            with pytest.raises(OperationalError) as caught:
                call()
            assert (caught.value.sqlstate, caught.value.retry) == ("53400", Retry.SAFE)
        with pytest.raises(MemoryLimitError):  # parts of rows are put together in memory
            session.staging.commit("one", [one])
        session.staging.abort("one")
        session.staging.commit("two", [two])
        session.staging.begin("t", "append", "big")
        number, _ = session.staging.begin_stage("big", "0", "0")
        session.staging.add(number, 0, data(*range(50_000)))
        with pytest.raises(OperationalError, match="staging_bytes_max") as caught:
            session.staging.add(number, 50_000, data(*range(50_000, 100_000)))
        assert caught.value.sqlstate == "53400"


@pytest.mark.parametrize("operation", ["append", "upsert", "ignore", "replace", "delete"])
def test_few_rows_that_memory_has_no_room_for_stay_in_pages(operation: str) -> None:
    """Rows of documents, say: a thousand of them are more than a transaction may have."""
    with engine(config=Config(transaction_memory_bytes=64 * 1024)) as db:
        session = db.session(autocommit=True)
        table(session, (1, 1), (2, 2))
        is_delete = operation == "delete"
        ids = range(1 if is_delete or operation in ("upsert", "replace") else 3, 2_000)
        session.staging.begin("t", operation, "job")
        number, _ = session.staging.begin_stage("job", "0", "0")
        batch = data(*ids)
        session.staging.add(number, 0, batch.select(["id"]) if is_delete else batch)
        session.staging.finish_stage(number)
        session.staging.commit("job", [number])
        (item,) = db.database.tablespace.state.tables.values()
        assert len(item.memtable) <= 2
        left = [] if is_delete else sorted({*ids} | ({1, 2} - {*ids}))
        for _ in range(2):
            assert rows(session, "SELECT id FROM t ORDER BY id") == [(each,) for each in left]
            db.reopen()
            session = db.session(autocommit=True)


def test_few_large_rows_go_into_pages() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
        session.staging.begin("t", "append", "job")
        number, _ = session.staging.begin_stage("job", "0", "0")
        ids = pa.array(range(100), pa.int64())
        texts = pa.array([f"{each:09}" * 11_000 for each in range(100)])
        session.staging.add(number, 0, pa.record_batch({"id": ids, "s": texts}))
        session.staging.finish_stage(number)
        session.staging.commit("job", [number])
        (item,) = db.database.tablespace.state.tables.values()
        assert len(item.memtable) == 0
        assert rows(session, "SELECT count(DISTINCT s) FROM t") == [(100,)]


@pytest.mark.parametrize("count", [0, 3])
def test_a_replace_by_few_rows_deletes_no_row_in_memory(count: int) -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session)
        staged(session, "first", *range(MANY))
        session.staging.commit("first", list(db.database.tablespace.state.staged.stages))
        db.database.run_checkpoint()
        run(session, "INSERT INTO t VALUES (-1, -1)")
        number = staged(session, "then", *range(count), operation="replace")
        session.staging.commit("then", [number])
        (item,) = db.database.tablespace.state.tables.values()
        assert len(item.memtable) == 1  # what hides the row that only memory has
        for _ in range(2):
            assert rows(session, "SELECT id FROM t ORDER BY id") == [(n,) for n in range(count)]
            db.reopen()
            session = db.session(autocommit=True)


def test_no_user_takes_the_room_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("stagings", 3), ("stages", 4)):
        monkeypatch.setattr(staging_module, f"{name}_max", value)
        monkeypatch.setattr(staging_module, f"{name}_of_user_max", value - 1)
    with engine() as db:
        root = session_of(db)
        table(root)
        for name in ("ann", "bob"):
            run(root, f"CREATE USER {name}")
            run(root, f"GRANT INSERT ON t TO {name}")
        ann, bob = session_of(db, "ann"), session_of(db, "bob")
        for job in ("a", "b"):
            ann.staging.begin("t", "append", job)
        with pytest.raises(OperationalError, match="2 of them user 'ann'") as caught:
            ann.staging.begin("t", "append", "c")
        assert (caught.value.sqlstate, caught.value.retry) == ("53400", Retry.SAFE)
        bob.staging.begin("t", "append", "c")
        for task in ("1", "2", "3"):
            ann.staging.begin_stage("a", task, "0")
        with pytest.raises(OperationalError, match="3 stages are open, 3 of them user 'ann'"):
            ann.staging.begin_stage("b", "1", "0")
        bob.staging.begin_stage("c", "1", "0")
        ann.staging.abort("b")
        root.staging.begin("t", "append", "d")


def test_a_checkpoint_takes_what_would_need_too_much_memory() -> None:
    config = Config(memory_bytes_max=16 * 1024 * 1024)
    with engine(config=config) as db:
        session = db.session(autocommit=True)
        table(session)
        session.staging.begin("t", "append", "job")
        number, _ = session.staging.begin_stage("job", "0", "0")
        for first in range(0, 200_000, 50_000):
            session.staging.add(number, first, data(*range(first, first + 50_000)))
            piece_bytes = db.database.tablespace.state.staged.piece_bytes
            assert piece_bytes <= config.memtable_bytes_max // 4
        session.staging.finish_stage(number)
        session.staging.commit("job", [number])
        assert rows(session, "SELECT count(*), sum(id) FROM t") == [
            (200_000, sum(range(200_000))),
        ]


def sqlstate_of(act: Callable[[], object]) -> str | None:
    """Return the SQLSTATE of an error that must come."""
    with pytest.raises(Error) as caught:
        act()
    return caught.value.sqlstate


def begun(session: Session, run: str, *ids: int) -> int:
    """Begin a run of "job" and stage rows in one finished stage of it; return its number."""
    session.staging.begin("t", "append", "job", None, run)
    number, _ = session.staging.begin_stage("job", "0", "0", run)
    session.staging.add(number, 0, data(*ids))
    session.staging.finish_stage(number)
    return number


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_runs_survive_a_crash(seed: int, has_checkpoint: bool) -> None:
    with engine(disk=SimulatedDisk(seed)) as db:
        session = db.session(autocommit=True)
        table(session)
        first, second = begun(session, "r1", 1), begun(session, "r2", 2)
        assert first != second  # the same task and attempt, of two runs
        if has_checkpoint:
            db.database.run_checkpoint()
        expected = state_digest(db.database.tablespace)
        crash(db)
        assert state_digest(db.database.tablespace) == expected
        session = db.session(autocommit=True)
        session.staging.abort("job", "r2")
        session.staging.abort("job", "r2")
        session.staging.abort("job", "no such run")
        assert rows(session, "SELECT stages FROM sysstagings") == [(1,)]
        assert sqlstate_of(lambda: session.staging.begin_stage("job", "1", "0", "r2")) == "42704"
        position = session.staging.commit("job", [first])
        if has_checkpoint:
            db.database.run_checkpoint()
        crash(db)
        session = db.session(autocommit=True)
        assert session.staging.commit("job", [first]) == position
        assert sqlstate_of(lambda: session.staging.commit("job", [])) == "42710"
        assert sqlstate_of(lambda: session.staging.begin_stage("job", "1", "0", "r1")) == "42710"
        assert rows(session, "SELECT id FROM t") == [(1,)]


def test_a_job_ends_with_its_last_run() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session)
        begun(session, "r1", 1)
        session.staging.begin("t", "append", "job")  # by a driver that names no run
        session.staging.abort("job", "r1")
        assert rows(session, "SELECT stages FROM sysstagings") == [(0,)]
        begun(session, "r2", 2)
        session.staging.abort("job")
        assert rows(session, "SELECT * FROM sysstagings") == []
        begun(session, "r3", 3)
        session.staging.abort("job", "r3")
        assert rows(session, "SELECT * FROM sysstagings") == []


def test_a_run_that_begins_just_then_keeps_the_job() -> None:
    """Records in the order of the log: whether a run is the last one, the state says."""
    with engine() as db:
        session = db.session(autocommit=True)
        tablespace = db.database.tablespace
        table(session)
        begun(session, "r1", 1)
        job = tablespace.state.staged.jobs["job"]
        lsn = tablespace.state.lsn
        owner_of = tablespace.state.catalog.access.owner_of
        begins = BeginStaging("job", job.table.id, job.table.version, "append", 0, run="r2")
        both = tablespace.state.staged.apply(begins, job.table, lsn, owner_of)
        left = both.apply(EndStaging(["job"], "r1"), None, lsn, owner_of)
        assert left.jobs["job"].runs == ("r2",)
        assert left.stages == {}
        assert left.apply(EndStaging(["job"], "r2"), None, lsn, owner_of).jobs == {}
        assert left.apply(DropStages([], "job", "r2"), None, lsn, owner_of).jobs == {}


def test_there_are_not_more_runs_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_module, "staging_runs_max", 2)
    with engine() as db:
        session = db.session(autocommit=True)
        table(session)
        for run_id in ("r1", "r2", "r1"):
            session.staging.begin("t", "append", "job", None, run_id)
        assert (
            sqlstate_of(lambda: session.staging.begin("t", "append", "job", None, "r3")) == "53400"
        )
        session.staging.abort("job", "r1")
        session.staging.begin("t", "append", "job", None, "r3")


def test_a_checkpoint_of_an_older_program_has_no_runs() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session)
        number = begun(session, "r1", 1)
        done = session.staging
        done.begin("t", "append", "done")
        position = done.commit("done", [])
        staged_now = db.database.tablespace.state.staged
        tables = {job.table.id: job.table for job in staged_now.jobs.values()}
        owner_of = db.database.tablespace.state.catalog.access.owner_of
        old = staged_now.restored(
            staged_now.to_plain(), tables, [], owner_of, [], lambda _, table_id: tables[table_id]
        )
        assert old.jobs["job"].runs == (None,)
        assert old.stages[number].run is None
        assert str(old.commits["done"].lsn) == position
        assert not old.commits["done"].is_known
        runs = staged_now.runs_to_plain()
        new = staged_now.restored(
            staged_now.to_plain(), tables, runs, owner_of, [], lambda _, table_id: tables[table_id]
        )
        assert new.jobs == staged_now.jobs
        assert new.commits == staged_now.commits
