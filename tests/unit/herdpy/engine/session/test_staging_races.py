"""Commits of staged rows beside others: asked twice, given up on the way, over deletes, crashes."""

from errno import EIO

import pyarrow as pa
import pytest

from herdpy.engine.session.session import Session
from herdpy.engine.session.staging import Staging
from herdpy.engine.state.page_adoption import FEW_ROWS
from herdpy.errors import Error, IntegrityError, LogFailedError, ProgrammingError, Retry
from herdpy.log.record import EndStaging
from tests.fixtures.engines import Background, WatchedDriver, engine, rows, table
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk

MANY = FEW_ROWS + 1


def batch(**columns: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def staged(session: Session, task: str, data: pa.RecordBatch) -> int:
    """Stage rows for the job "job" in one finished stage; return its number."""
    number, _ = session.staging.begin_stage("job", task, "0")
    session.staging.add(number, 0, data)
    session.staging.finish_stage(number)
    return number


def test_tasks_may_update_other_columns() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        session.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT NOT NULL, b BIGINT)")
        session.execute("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)")
        session.staging.begin("t", "update", "job")
        numbers = [
            staged(session, "a", batch(id=[1, 3], a=[10, 30])),
            staged(session, "b", batch(id=[2, 3], b=[20, 30])),
        ]
        session.staging.commit("job", numbers)
        assert rows(session, "SELECT * FROM t ORDER BY id") == [(1, 10, 1), (2, 2, 20), (3, 30, 30)]


@pytest.mark.parametrize("count", [3, MANY])
def test_a_commit_asked_again_while_it_waits_has_the_same_answer(count: int) -> None:
    driver = WatchedDriver()
    with engine(driver=driver, is_threaded=True) as db:
        askers = [db.session(autocommit=True), db.session(autocommit=True)]
        other = db.session()
        table(askers[0], (-1, 0))
        askers[0].staging.begin("t", "append", "job")
        number = staged(askers[0], "0", batch(id=list(range(count)), v=[0] * count))
        other.execute("UPDATE t SET v = 5 WHERE id = -1")
        positions: list[str] = []
        waiting = [Background(), Background()]
        for asker, background in zip(askers, waiting, strict=True):
            background.start(
                lambda asker=asker: positions.append(asker.staging.commit("job", [number])), "asker"
            )
            while driver.waits.get(timeout=60) != "asker":
                pass
        other.commit()
        for background in waiting:
            background.join()
        assert len(positions) == 2
        assert positions[0] == positions[1]
        assert rows(askers[1], "SELECT count(*) FROM t") == [(count + 1,)]
        assert db.locks == {}


def test_an_ingest_that_was_given_up_on_its_way_has_not_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session)
        ingest = session.begin_ingest("t", "append")
        ingest.add(batch(id=list(range(MANY)), v=[0] * MANY))
        tablespace = db.database.tablespace
        jobs = list(tablespace.state.staged.jobs)
        submit = Staging._submit
        # It ends between the last look at it and its commit, as by a time-out.
        monkeypatch.setattr(
            Staging,
            "_submit",
            lambda *args: (tablespace.log_alone(EndStaging(jobs)), submit(*args))[1],
        )
        with pytest.raises(Error) as caught:
            ingest.finish()
        assert caught.value.sqlstate == "42704"
        assert rows(session, "SELECT count(*) FROM t") == [(0,)]
        assert db.locks == {}


def test_a_stage_that_is_given_up_during_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session)
        session.staging.begin("t", "append", "job")
        number = staged(session, "0", batch(id=[1], v=[1]))
        submit, staging = Staging._submit, session.staging
        other = db.session(autocommit=True).staging
        monkeypatch.setattr(
            Staging,
            "_submit",
            lambda *args: (other.drop_stage(number), submit(*args))[1],
        )
        with pytest.raises(ProgrammingError) as caught:
            staging.commit("job", [number])
        assert caught.value.sqlstate == "55000"
        assert rows(session, "SELECT count(*) FROM t") == [(0,)]
        assert staging.position("job") is None


@pytest.mark.parametrize("operation", ["append", "ignore", "upsert"])
def test_a_key_that_was_just_deleted_is_free(operation: str) -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session)
        old, new = list(range(0, 3 * MANY, 3)), list(range(1, 3 * MANY, 3))
        ingest = session.begin_ingest("t", "append")
        ingest.add(batch(id=old, v=[0] * MANY))
        ingest.finish()
        db.database.run_checkpoint()
        session.execute("DELETE FROM t WHERE id = 300")
        session.staging.begin("t", operation, "job")
        number = staged(session, "0", batch(id=[300, *new], v=[1] * (MANY + 1)))
        session.staging.commit("job", [number])
        for _ in range(2):
            assert rows(session, "SELECT v FROM t WHERE id = 300") == [(1,)]
            assert rows(session, "SELECT count(*) FROM t") == [(2 * MANY,)]
            db.database.run_checkpoint()


def test_a_key_beside_one_that_was_just_deleted_is_not() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session)
        data = batch(id=list(range(MANY)), v=[0] * MANY)
        ingest = session.begin_ingest("t", "append")
        ingest.add(data)
        ingest.finish()
        session.execute("DELETE FROM t WHERE id = 0")
        ingest = session.begin_ingest("t", "append")
        ingest.add(data)
        with pytest.raises(IntegrityError, match=r"\(id\)=\(1\)"):
            ingest.finish()
        assert rows(session, "SELECT count(*) FROM t") == [(MANY - 1,)]


def test_a_crash_gives_no_number_to_another_stage_that_somebody_has(seed: int) -> None:
    with engine(disk=SimulatedDisk(seed)) as db:
        session = db.session(autocommit=True)
        table(session)
        session.staging.begin("t", "append", "job")
        number, _ = session.staging.begin_stage("job", "0", "0")
        assert isinstance(db.disk, SimulatedDisk)
        db.disk = db.disk.crash()
        db.open()
        session = db.session(autocommit=True)
        assert session.staging.begin_stage("job", "1", "0")[0] > number


def test_an_ingest_has_one_now() -> None:
    clock = SimulatedClock()
    with engine(clock=clock) as db:
        session = db.session(autocommit=True)
        session.execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"
        )
        ingest = session.begin_ingest("t", "append")
        for ids in ([0], list(range(1, MANY)), [MANY]):
            ingest.add(batch(id=ids))
            clock.advance(5)
        ingest.finish()
        assert rows(session, "SELECT count(DISTINCT at) FROM t") == [(1,)]


def test_of_a_commit_that_is_not_decided_no_position_is_told() -> None:
    """sim-server 400011: None was told, the log had the commit, and the job could not be redone."""
    disk = SimulatedDisk(1)
    with engine(disk=disk) as db:
        session = db.session(autocommit=True)
        table(session, (-1, 0))
        session.staging.begin("t", "append", "job")
        number = staged(session, "0", batch(id=[1], v=[1]))
        disk.fail("sync", EIO, path="/log")
        with pytest.raises(Error) as lost:
            session.staging.commit("job", [number])
        assert lost.value.retry is Retry.UNKNOWN
        with pytest.raises(LogFailedError):
            session.staging.position("job")
