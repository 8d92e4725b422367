"""CREATE TABLE … AS: table and rows together or not at all, also of more rows than memory takes."""

from collections.abc import Iterator

import pytest

import herdpy
from herdpy.engine.session.session import Session
from herdpy.engine.writes import row_writes, spilled_writes
from herdpy.log.record import BeginSpill
from tests.fixtures.access import refusal, session_of, small_engine
from tests.fixtures.engines import (
    Background,
    Engine,
    WatchedDriver,
    engine,
    rows,
    run,
    table,
)
from tests.unit.herdpy.engine.session.test_spilled_transactions import LITTLE, ROWS
from tests.unit.herdpy.engine.statements.test_truncate import wait_for_background

MAKE = "CREATE TABLE made AS SELECT id, v, id AS again FROM t"
TOTAL = "SELECT count(*), sum(id) FROM made"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_writes, "CHECK_ROWS", 20)
    monkeypatch.setattr(spilled_writes, "_PIECE_ROWS", 50)


@pytest.fixture(params=["memory", "stages"])
def db(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Give a database whose transactions have room for all rows, or spill."""
    config = LITTLE if request.param == "stages" else None
    with engine(config=config, driver=WatchedDriver(), is_threaded=True) as made:
        session = made.session()
        table(session, *((number, number % 7) for number in range(ROWS)))
        session.close()
        yield made


ALL = [(ROWS, sum(range(ROWS)))]


@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_it_is_there_again(db: Engine, autocommit: bool, has_checkpoint: bool) -> None:
    session, other = db.session(autocommit=autocommit), db.session(autocommit=True)
    assert run(session, MAKE) == ROWS
    assert rows(session, TOTAL) == ALL
    if not autocommit:
        assert refusal(other, TOTAL).sqlstate == "42P01"
        session.commit()
    assert rows(other, TOTAL) == ALL
    assert not db.locks
    if has_checkpoint:
        db.database.run_checkpoint()
    db.reopen()
    assert rows(db.session(), TOTAL) == ALL


def test_more_rows_than_memory_takes_are_staged() -> None:
    with engine(config=LITTLE) as db:
        session = db.session(autocommit=True)
        table(session, *((number, number) for number in range(ROWS)))
        seen: list[object] = []
        log = db.database.tablespace.log
        append = log.append

        def noted(entry: object, *, is_urgent: bool = False) -> object:
            seen.extend(getattr(entry, "changes", ()))
            return append(entry, is_urgent=is_urgent)  # type: ignore[arg-type]

        log.append = noted  # type: ignore[method-assign,assignment]
        run(session, MAKE)
        assert any(isinstance(record, BeginSpill) for record in seen)


@pytest.mark.parametrize("tail", ["WHERE id < 0", "WITH NO DATA"])
def test_a_table_without_rows(db: Engine, tail: str) -> None:
    session = db.session(autocommit=True)
    run(session, f"{MAKE} {tail}")
    assert rows(session, TOTAL) == [(0, None)]
    assert not db.locks
    db.reopen()
    assert rows(db.session(), TOTAL) == [(0, None)]


@pytest.mark.parametrize("way", ["log", "checkpoint"])
def test_an_open_transaction_leaves_nothing(db: Engine, way: str) -> None:
    session = db.session()
    run(session, MAKE)
    if way == "checkpoint":
        db.database.run_checkpoint()
    db.reopen()
    assert [each.name for each in db.database.tablespace.state.catalog.tables()] == ["t"]
    assert refusal(db.session(), TOTAL).sqlstate == "42P01"


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_row_that_fails_takes_the_table_with_it(db: Engine, autocommit: bool) -> None:
    session = db.session(autocommit=autocommit)
    run(session, "UPSERT INTO t VALUES (1, 77)")
    failing = f"CREATE TABLE made AS SELECT id, 1 / (id - {ROWS - 1}) AS v FROM t ORDER BY id"
    for _ in range(2):
        assert refusal(session, failing).sqlstate == "22012"
        assert refusal(session, TOTAL).sqlstate == "42P01"
        assert rows(session, "SELECT v FROM t WHERE id = 1") == [(77,)]
    run(session, MAKE)
    assert rows(session, f"{TOTAL} WHERE v < 77") == [(ROWS - 1, ALL[0][1] - 1)]
    session.commit()
    db.database.run_checkpoint()
    db.reopen()
    assert rows(db.session(), TOTAL) == ALL
    assert rows(db.session(), "SELECT v FROM t WHERE id = 1") == [(77,)]


def test_savepoints(db: Engine) -> None:
    session = db.session()
    run(session, "SAVEPOINT a")
    run(session, MAKE)
    run(session, "DELETE FROM made WHERE id > 0")
    run(session, "ROLLBACK TO a")
    assert refusal(session, TOTAL).sqlstate == "42P01"
    run(session, MAKE)
    session.commit()
    assert rows(session, TOTAL) == ALL


def test_it_waits_for_who_makes_a_table_of_the_name(db: Engine) -> None:
    a, b = db.session(), db.session(autocommit=True)
    run(a, "CREATE TABLE made (id BIGINT)")
    with Background() as background:
        background.start(lambda: run(b, MAKE))
        wait_for_background(db)
        a.rollback()
    assert rows(a, TOTAL) == ALL
    a.rollback()
    run(a, "DROP TABLE made")
    refused: list[str] = []
    with Background() as background:
        background.start(lambda: refused.append(refusal(b, MAKE).sqlstate))
        wait_for_background(db)
        a.rollback()
    assert refused == ["42P07"]


def test_it_reads_at_the_snapshot_of_its_transaction(db: Engine) -> None:
    a, b = db.session(), db.session(autocommit=True)
    run(a, "BEGIN ISOLATION LEVEL REPEATABLE READ")
    rows(a, "SELECT 1 FROM t WHERE id = 0")
    run(b, "DELETE FROM t WHERE id > 3")
    assert run(a, MAKE) == ROWS
    assert rows(a, TOTAL) == ALL
    a.commit()
    assert rows(b, TOTAL) == ALL


def test_what_it_takes_and_gives() -> None:
    made = small_engine()
    try:
        root, ann = session_of(made), session_of(made, "ann")
        run(root, "GRANT CREATE ON TABLESPACE default TO ann")
        assert refusal(ann, "CREATE TABLE c AS SELECT id FROM t").sqlstate == "42501"
        assert refusal(ann, "CREATE TABLE c AS SELECT id FROM t WITH NO DATA").sqlstate == "42501"
        run(root, "GRANT SELECT ON t TO ann")
        run(ann, "CREATE TABLE c AS SELECT id FROM t")
        assert rows(ann, "SELECT * FROM c") == [(1,)]
        run(ann, "DROP TABLE c")  # it owns it
    finally:
        made.database.close()


def test_parameters_and_the_time_of_the_statement() -> None:
    with herdpy.connect(":memory:", autocommit=True) as connection:
        cursor = connection.execute(
            "CREATE TABLE made (a, b, at) AS SELECT ?, :b || 'y', now()".replace(":b", "?"),
            (7, "x"),
        )
        assert cursor.rowcount == 1
        found = connection.execute("SELECT a, b, at <= now() FROM made").fetchall()
        assert found == [(7, "xy", True)]
        with pytest.raises(herdpy.ProgrammingError, match="07001"):
            connection.execute("CREATE TABLE other AS SELECT ?")


def test_a_read_only_transaction_makes_none(db: Engine) -> None:
    session: Session = db.session()
    run(session, "BEGIN READ ONLY")
    said = refusal(session, MAKE)
    assert (said.sqlstate, "CREATE TABLE AS" in said.message) == ("25006", True)
