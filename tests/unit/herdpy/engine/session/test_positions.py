"""The position that a session tells: durable, whatever the state has already."""

from collections.abc import Iterator

import pytest

from tests.fixtures.engines import Engine, engine, run


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine() as made:
        run(made.session(autocommit=True), "CREATE TABLE t (id BIGINT PRIMARY KEY)")
        yield made


@pytest.mark.parametrize("durability", ["on", "os", "off"])
def test_no_position_is_told_that_a_crash_may_give_to_another_record(
    db: Engine, durability: str
) -> None:
    tablespace = db.database.tablespace
    holder, session = db.session(), db.session(autocommit=True)
    run(session, f"SET synchronous_commit = {durability}")
    for key in range(3):
        run(holder, "INSERT INTO t VALUES (?)", key)
        run(session, "INSERT INTO t VALUES (?)", key + 10)
        assert session.lsn <= tablespace.log.durable_lsn
    tablespace.sync_log()
    assert session.lsn == tablespace.log.durable_lsn == tablespace.state.lsn


def test_a_commit_is_at_or_before_the_position_told_with_it(db: Engine) -> None:
    tablespace = db.database.tablespace
    session = db.session(autocommit=True)
    for key in range(3):
        before = session.lsn
        run(session, "INSERT INTO t VALUES (?)", key)
        assert before < session.lsn == tablespace.log.last_lsn
