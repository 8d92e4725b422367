"""TRUNCATE: transactional, not seen too early, with the owner and the grants as they were."""

from collections.abc import Iterator

import pytest

from herdpy.engine.session.session import Session
from herdpy.errors import ProgrammingError
from tests.fixtures.access import facts_of, refusal, session_of, small_engine
from tests.fixtures.engines import (
    Background,
    Engine,
    WatchedDriver,
    engine,
    rows,
    run,
    table,
)

ALL = "SELECT id, v FROM t ORDER BY id"


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine(driver=WatchedDriver(), is_threaded=True) as made:
        yield made


def wait_for_background(db: Engine) -> None:
    """Return when the thread in the background waits for a lock."""
    driver = db.driver
    assert isinstance(driver, WatchedDriver)
    while driver.waits.get() != "background":
        pass


def test_a_transaction_sees_it_at_once_and_others_at_its_commit(db: Engine) -> None:
    a, b = db.session(), db.session()
    table(a, (1, 10), (2, 20))
    run(a, "INSERT INTO t VALUES (3, 30)")
    run(a, "TRUNCATE t")
    assert rows(a, ALL) == []
    run(a, "INSERT INTO t VALUES (1, 11)")
    run(a, "UPDATE t SET v = v + 1")
    assert rows(a, ALL) == [(1, 12)]
    assert rows(b, ALL) == [(1, 10), (2, 20)]
    a.commit()
    assert rows(b, ALL) == [(1, 12)]
    db.reopen()
    assert rows(db.session(), ALL) == [(1, 12)]


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_a_rollback_brings_all_back(db: Engine, with_checkpoint: bool) -> None:
    a = db.session()
    table(a, (1, 10), (2, 20))
    run(a, "TRUNCATE t")
    run(a, "INSERT INTO t VALUES (7, 70)")
    if with_checkpoint:
        db.database.run_checkpoint()
    a.rollback()
    assert rows(a, ALL) == [(1, 10), (2, 20)]
    a.commit()
    db.reopen()
    assert rows(db.session(), ALL) == [(1, 10), (2, 20)]


def test_twice_in_one_transaction_and_of_a_table_made_in_it(db: Engine) -> None:
    a = db.session()
    table(a, (1, 10))
    run(a, "CREATE TABLE u (id BIGINT)")
    run(a, "INSERT INTO u VALUES (1)")
    for number in range(3):
        run(a, "TRUNCATE t, u")
        run(a, "INSERT INTO t VALUES (?, ?)", number, number)
        run(a, "INSERT INTO u VALUES (?)", number)
    a.commit()
    assert rows(a, ALL) == [(2, 2)]
    assert rows(a, "SELECT id FROM u") == [(2,)]
    a.commit()
    db.reopen()
    assert rows(db.session(), "SELECT id FROM u") == [(2,)]


def test_a_reader_goes_on_with_what_it_began(db: Engine) -> None:
    a, b = db.session(autocommit=True), db.session(autocommit=True)
    table(a, *((number, number) for number in range(50)))
    db.database.run_checkpoint()
    run(a, "INSERT INTO t VALUES (99, 99)")
    reading = b.execute(ALL, ()).rows()
    assert next(reading) == (0, 0)
    run(a, "TRUNCATE TABLE t")
    db.database.run_checkpoint()
    assert len(list(reading)) == 50
    assert rows(b, ALL) == []


@pytest.mark.parametrize(
    "text",
    ["INSERT INTO t VALUES (5, 50)", "INSERT INTO t SELECT 5, 50", "UPSERT INTO t VALUES (5, 50)"],
)
def test_a_writer_that_waited_writes_into_the_new_table(db: Engine, text: str) -> None:
    a, b = db.session(), db.session(autocommit=True)
    table(a, (1, 10))
    run(a, "TRUNCATE t")
    with Background() as background:
        background.start(lambda: run(b, text))
        wait_for_background(db)
        a.commit()
    assert rows(a, ALL) == [(5, 50)]


def test_it_waits_for_who_writes(db: Engine) -> None:
    a, b = db.session(), db.session(autocommit=True)
    table(a, (1, 10))
    run(a, "INSERT INTO t VALUES (2, 20)")
    with Background() as background:
        background.start(lambda: run(b, "TRUNCATE t"))
        wait_for_background(db)
        assert rows(a, ALL) == [(1, 10), (2, 20)]
        a.commit()
    assert rows(a, ALL) == []


@pytest.mark.parametrize("first", ["DROP TABLE t", "TRUNCATE t"])
def test_a_table_that_changed_meanwhile(db: Engine, first: str) -> None:
    a, b = db.session(), db.session(autocommit=True)
    table(a, (1, 10))
    run(a, first)
    refused: list[str] = []

    def truncate() -> None:
        try:
            run(b, "TRUNCATE t")
        except ProgrammingError as error:
            refused.append(error.sqlstate)

    with Background() as background:
        background.start(truncate)
        wait_for_background(db)
        a.commit()
    assert refused == (["42P01"] if first == "DROP TABLE t" else [])


def test_row_ids_of_a_table_without_key(db: Engine) -> None:
    a = db.session(autocommit=True)
    run(a, "CREATE TABLE h (v BIGINT)")
    for round_number in range(3):
        run(a, "INSERT INTO h VALUES (?), (?)", round_number, round_number)
        assert rows(a, "SELECT v FROM h") == [(round_number,)] * 2
        run(a, "TRUNCATE h")
        db.database.run_checkpoint()
    assert rows(a, "SELECT v FROM h") == []
    assert len(db.database.tablespace.applier.next_row_id) <= 1


def test_owner_and_grants_stay() -> None:
    made = small_engine()
    try:
        root = session_of(made)
        run(root, "CREATE USER bob")
        ann, bob = session_of(made, "ann"), session_of(made, "bob")
        run(root, "ALTER TABLE t OWNER TO ann")
        run(ann, "GRANT SELECT, DELETE ON t TO bob WITH GRANT OPTION")
        run(ann, "GRANT INSERT ON t TO PUBLIC")
        before = _of_tables(made)
        _in_turn([(bob, "TRUNCATE t"), (ann, "TRUNCATE t"), (root, "TRUNCATE t, u")])
        after = _of_tables(made)
        assert after == before
        assert rows(bob, "SELECT count(*) FROM t") == [(0,)]
        run(ann, "REVOKE DELETE ON t FROM bob")
        assert refusal(bob, "TRUNCATE t").sqlstate == "42501"
        assert refusal(bob, "TRUNCATE sysusers").sqlstate == "42501"
    finally:
        made.database.close()


def _of_tables(made: Engine) -> list[tuple[object, ...]]:
    """Return who owns and may do what, by the names of tables."""
    catalog = made.database.tablespace.state.catalog
    names = {table.id: table.name for table in catalog.tables()}
    return sorted(
        (type(fact).__name__, names[fact.table_id], *fact.key[2:], getattr(fact, "owner", ""))
        + ((fact.rights, fact.grantable) if hasattr(fact, "rights") else ())
        for fact in facts_of(made)
        if getattr(fact, "table_id", 0) in names
    )


def _in_turn(steps: list[tuple[Session, str]]) -> None:
    for session, text in steps:
        run(session, text)
