"""A statement that waits for a lock, with its caller to repeat the call: what else may come."""

import datetime
from collections.abc import Iterator

import pytest

from herdpy.engine.session.session import Session
from herdpy.engine.statements.lock_wait import MustWaitError
from tests.fixtures.engines import Engine, attempt, attempt_and_wait, engine, rows, run
from tests.sim.clock import SimulatedClock

INSERT = "INSERT INTO t VALUES (?, ?)"
UPDATE = "UPDATE t SET v = v + ? WHERE id = ?"
POINT = "SELECT v FROM t WHERE id = ?"


@pytest.fixture
def db(clock: SimulatedClock) -> Iterator[Engine]:
    with engine(clock=clock) as made:
        session = made.session(autocommit=True)
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        for key in (1, 2, 3):
            run(session, INSERT, key, 10 * key)
        run(session, UPDATE, 0, 1)
        session.execute(POINT, (1,)).close()
        yield made


def waiting(db: Engine, *, autocommit: bool) -> tuple[Session, Session]:
    """Return who holds row 1, and a session whose UPDATE of it waits."""
    holder, session = db.session(), db.session(autocommit=autocommit)
    session.leaves_waits = True
    run(holder, UPDATE, 1, 1)
    if not autocommit:
        run(session, UPDATE, 5, 2)
    with pytest.raises(MustWaitError):
        session.execute(UPDATE, (100, 1))
    return holder, session


@pytest.mark.parametrize("autocommit", [True, False])
def test_the_fast_path_leaves_a_statement_that_waits_alone(db: Engine, autocommit: bool) -> None:
    holder, session = waiting(db, autocommit=autocommit)
    running, wait = session.running, session.lock_wait
    assert running is not None
    assert wait is not None
    for text, parameters in ((UPDATE, (1, 3)), (INSERT, (4, 40)), (POINT, (1,))):
        assert attempt(session, text, parameters) is None
        assert attempt_and_wait(session, text, parameters) is None
        assert (session.running, session.lock_wait) == (running, wait)
    holder.commit()
    assert wait.ticket.is_done
    assert session.execute(UPDATE, (100, 1)).row_count == 1
    assert session.running is None
    session.commit()
    assert rows(db.session(), "SELECT v FROM t WHERE id = 1") == [(111,)]


def test_another_statement_than_the_one_that_waits_has_its_own_time(
    db: Engine, clock: SimulatedClock
) -> None:
    holder, session = waiting(db, autocommit=True)
    begun_us = clock.wall_us()
    clock.advance(60)
    ((now,),) = rows(session, "SELECT now()")
    assert session.lock_wait is None
    assert now - datetime.datetime.fromtimestamp(begun_us / 1e6, datetime.UTC) == (
        datetime.timedelta(seconds=60)
    )
    holder.rollback()
    assert db.locks == {}
