"""Leases beside what goes on at the same time: commits of stages, ends, and Ctrl-C at any line."""

from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest

from herdpy.engine.state.page_adoption import FEW_ROWS
from herdpy.errors import SnapshotTooOldError
from herdpy.log.record import BeginLease
from herdpy.model.durability import Durability
from tests.fixtures.digest import lease_rows_of
from tests.fixtures.engines import Engine, engine, rows, run, table

MANY = FEW_ROWS + 1
"""Rows that a table adopts as pages."""


def kept(db: Engine, lease: str) -> list[Any]:
    space = db.database.tablespace
    found = space.applier.leases.find(lease)
    assert found is not None
    return [row for _, row in lease_rows_of(space, found)]


def stage_many(db: Engine) -> int:
    """Stage rows 100 to 100 + MANY for t, in job "job"; return the stage."""
    staging = db.session(autocommit=True).staging
    staging.begin("t", "append", "job")
    number, _ = staging.begin_stage("job", "0", "0")
    ids = pa.array(range(100, 100 + MANY), pa.int64())
    staging.add(number, 0, pa.record_batch({"id": ids, "v": ids}))
    staging.finish_stage(number)
    return number


def test_a_lease_behind_an_adoption_during_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    # As it comes about when the wait for a commit that the log has taken is interrupted.
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(10)))
        run(session, "CREATE TABLE u (id BIGINT PRIMARY KEY)")
        stage = stage_many(db)
        db.database.run_checkpoint()
        run(session, "INSERT INTO u VALUES (1)")
        append = db.database.replica.manifest.append
        leases: list[str] = []

        def between(edit: Any) -> Any:
            if not leases:
                session.staging.commit("job", [stage])
                leases.append(session.leasing.take(60).id)
                run(session, "DELETE FROM t WHERE id < 5")
            return append(edit)

        monkeypatch.setattr(db.database, "without_maintenance", lambda check: nullcontext())
        monkeypatch.setattr(db.database.replica.manifest, "append", between)
        db.database.run_checkpoint()
        assert rows(session, "SELECT count(*) FROM t") == [(5 + MANY,)]
        assert len(kept(db, leases[0])) == 11 + MANY
        db.database.run_checkpoint()
        assert len(kept(db, leases[0])) == 11 + MANY
        db.reopen()
        assert len(kept(db, leases[0])) == 11 + MANY


def test_a_reader_who_enters_when_the_lease_has_just_ended() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, (1, 1))
        space = db.database.tablespace
        older = space.snapshot(None)
        run(session, "UPDATE t SET v = 2")
        found = space.applier.leases.use(session.leasing.take(60).id)
        transaction = space.begin(Durability.SYNC, is_autocommit=True)
        transaction.reads_at = found
        run(session, "UPDATE t SET v = 3")
        # It has passed the check of the lease; now comes the end, and versions go.
        session.leasing.end(found.id)
        run(session, "UPDATE t SET v = 4")
        with pytest.raises(SnapshotTooOldError):
            list(space.snapshot(transaction).source(found.state.catalog.tables()[0]).rows())
        older.close()
        assert len(space.registry) == 0


@pytest.mark.parametrize("is_adopting", [False, True])
def test_ctrl_c_behind_the_publication_of_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch, *, is_adopting: bool
) -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(10)))
        stage = stage_many(db)
        staging, space = session.staging, db.database.tablespace
        staging.begin("t", "append", "later")
        later, _ = staging.begin_stage("later", "0", "0")
        staging.add(later, 0, pa.record_batch({"id": [50], "v": [50]}))

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(type(space), "retire", interrupted)
        with pytest.raises(KeyboardInterrupt):
            db.database.run_checkpoint()
        monkeypatch.undo()
        staging.add(later, 1, pa.record_batch({"id": [51], "v": [51]}))
        if is_adopting:
            monkeypatch.setattr(db.database, "without_maintenance", lambda check: nullcontext())
            staging.commit("job", [stage])
        lease = session.leasing.take(60).id
        db.database.run_checkpoint()
        count = 10 + MANY * is_adopting
        assert len(kept(db, lease)) == count
        staging.finish_stage(later)
        staging.commit("later", [later])
        assert rows(session, "SELECT count(*) FROM t") == [(count + 2,)]
        db.reopen()
        assert len(kept(db, lease)) == count
        assert rows(db.session(), "SELECT count(*) FROM t") == [(count + 2,)]


def test_leases_just_before_a_commit_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever they come: neither waits, and the rows stay in pages beside what leases keep."""
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(10)))
        stage = stage_many(db)
        run(session, "UPDATE t SET v = -1 WHERE id = 5")
        taker, leases = db.session(autocommit=True), list[str]()
        without_maintenance = db.database.without_maintenance

        def after_a_lease(check: Any = None) -> Any:
            leases.append(taker.leasing.take(60).id)
            return without_maintenance(check)

        monkeypatch.setattr(db.database, "without_maintenance", after_a_lease)
        session.staging.commit("job", [stage])
        monkeypatch.undo()
        leases.append(taker.leasing.take(60).id)
        expected = [10, 10 + MANY]
        for _ in range(2):
            (item,) = db.database.tablespace.state.tables.values()
            assert len(item.memtable) <= 10, "rows that were staged take memory each"
            assert [len(kept(db, lease)) for lease in leases] == expected
            db.reopen()  # which does the same again
        session = db.session(autocommit=True)
        run(session, "DELETE FROM t WHERE id < 200")
        for _ in range(2):
            assert [len(kept(db, lease)) for lease in leases] == expected
            assert rows(session, "SELECT count(*) FROM t") == [(MANY - 100,)]
            db.reopen()  # before, and behind, a checkpoint that makes pages of the leases
            session = db.session(autocommit=True)
            assert [len(kept(db, lease)) for lease in leases] == expected
            db.database.run_checkpoint()
            while db.database.run_compaction():
                pass


@pytest.mark.parametrize("count", [1, MANY])
def test_a_commit_beside_a_lease_that_waits_for_the_disk(count: int) -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(10)))
        session.staging.begin("t", "replace", "job")
        stage, _ = session.staging.begin_stage("job", "0", "0")
        ids = pa.array(range(count), pa.int64())
        session.staging.add(stage, 0, pa.record_batch({"id": ids, "v": ids}))
        session.staging.finish_stage(stage)
        db.database.tablespace.begin_lease(BeginLease("7", None, 60.0, 0), None)  # without a wait
        session.staging.commit("job", [stage])
        assert rows(session, "SELECT count(*) FROM t") == [(count,)]
        assert len(kept(db, "7")) == 10
