"""What checkpoints keep of open transactions, and how little of it each of them writes."""

from typing import Any

import pytest

from herdpy.engine.maintenance import checkpoint
from herdpy.engine.maintenance.recovery import open_segments, open_tables, state_at_checkpoint
from herdpy.engine.session.session import Session
from herdpy.model.lsn import START_LSN
from tests.crash.checks import read_log, replayed_behind
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Engine, engine, run, table


def _added(db: Engine) -> list[int]:
    (blobs,) = db.database.replica.manifest.state.writes.values()
    return [len(blob) for blob in blobs]


def _restored(db: Engine) -> Any:
    """Return the tablespace that the newest checkpoint and the log behind it give."""
    listed = db.database.replica.manifest.state
    segments = open_segments(db.disk, "default/segments", listed)
    applier = state_at_checkpoint(listed, open_tables(listed.tables, segments))
    return replayed_behind(applier, read_log(db.database, START_LSN))


def _checkpoint(db: Engine) -> None:
    assert db.database.run_checkpoint()
    assert state_digest(_restored(db)) == state_digest(db.database.tablespace)


def _writer(db: Engine) -> tuple[Session, Session]:
    other = db.session(autocommit=True)
    table(other, *((number, number) for number in range(50)))
    run(other, "CREATE TABLE s (id BIGINT PRIMARY KEY)")
    session = db.session()
    run(session, "UPDATE t SET v = v + 1")
    return session, other


def test_each_checkpoint_adds_what_changed_since_the_last() -> None:
    with engine() as db:
        session, other = _writer(db)
        _checkpoint(db)
        (first,) = _added(db)
        run(other, "INSERT INTO s VALUES (1)")
        _checkpoint(db)
        assert _added(db) == [first]
        run(session, "UPDATE t SET v = 7 WHERE id = 3")
        run(session, "DELETE FROM t WHERE id = 4")
        _checkpoint(db)
        assert _added(db)[0] == first
        assert len(_added(db)) == 2
        assert _added(db)[1] * 10 < first
        session.commit()
        run(other, "INSERT INTO s VALUES (2)")
        _checkpoint(db)
        assert db.database.replica.manifest.state.writes == {}


def test_what_was_added_too_often_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_LISTED_BYTES_MIN", 100)
    with engine() as db:
        session, _ = _writer(db)
        transaction = session.transaction
        assert transaction is not None
        sizes: list[int] = []
        for number in range(60):
            run(session, "UPDATE t SET v = ?", number)
            _checkpoint(db)
            sizes.append(sum(_added(db)))
        assert max(sizes) < 3 * transaction.byte_count


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_checkpoint_that_failed_has_told_nothing(
    monkeypatch: pytest.MonkeyPatch, is_failing: bool
) -> None:
    with engine() as db:
        session, other = _writer(db)
        run(other, "INSERT INTO s VALUES (1)")
        if is_failing:
            with monkeypatch.context() as patch:
                patch.setattr(checkpoint, "write_delta", None)
                with pytest.raises(Exception, match="checkpoint"):
                    db.database.run_checkpoint()
        _checkpoint(db)
        run(session, "UPDATE t SET v = 7 WHERE id = 3")
        _checkpoint(db)


def test_changes_that_spill_are_no_more_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine() as db:
        session, other = _writer(db)
        _checkpoint(db)
        transaction = session.transaction
        assert transaction is not None
        transaction.byte_count = db.config.transaction_bytes_max
        run(session, "UPDATE t SET v = v + 1")
        assert transaction.has_spilled
        _checkpoint(db)
        run(session, "UPDATE t SET v = 1000 WHERE id = 3")
        run(other, "INSERT INTO s VALUES (1)")
        _checkpoint(db)
        session.commit()
        assert state_digest(_restored(db)) == state_digest(db.database.tablespace)
