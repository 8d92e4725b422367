"""Sequences: no value comes twice, whatever comes between, and few are lost."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import herdpy
from bookie.runtime.memory_disk import MemoryDisk
from herdpy.driver.doctor import examine
from herdpy.engine.session.ingest import FEW_ROWS
from herdpy.engine.session.numbers import SessionNumbers
from herdpy.engine.session.session import Session
from herdpy.engine.state.tablespace import Entry
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.writes.nonblocking import PendingWrite
from herdpy.errors import Error, InternalError, ProgrammingError, SerializationError
from herdpy.log.record import Reserve, RollbackTo, Rows, SetSequence, decode
from herdpy.model.durability import Durability
from herdpy.model.lsn import START_LSN
from tests.crash.checks import read_log, replayed_behind
from tests.fixtures.backups import backed_up, restored
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import (
    Background,
    Engine,
    WatchedDriver,
    attempt,
    attempt_and_wait,
    engine,
    rows,
    run,
)

INSERT = "INSERT INTO t (v) VALUES (?)"
IDS = "SELECT id FROM t ORDER BY id"
_RESERVED = 32


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine() as made:
        run(made.session(autocommit=True), "CREATE SEQUENCE s")
        text = "CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v BIGINT)"
        run(made.session(autocommit=True), text)
        yield made


def value(session: Session, text: str = "SELECT nextval('s')") -> int:
    ((found,),) = rows(session, text)
    return found


def crash(db: Engine) -> None:
    """End the database as a process that is killed ends it: nothing more comes to its files."""
    db.database.tablespace.stop(Error("the process is no more"))
    db.reopen()


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_crash_loses_a_block_at_the_most_and_gives_no_value_twice(
    db: Engine, has_checkpoint: bool
) -> None:
    seen: list[int] = []
    for _ in range(5):
        session = db.session(autocommit=True)
        given = [value(session) for _ in range(_RESERVED // 2 + 1)]
        for number in given:
            run(session, INSERT, number)
        if has_checkpoint:
            db.database.run_checkpoint()
            run(session, INSERT, value(session))
        assert not seen or seen[-1] < given[0] <= seen[-1] + 2 * _RESERVED
        seen += given
        crash(db)
    ids = [number for (number,) in rows(db.session(), IDS)]
    assert len(ids) == len(set(ids)) == 5 * (_RESERVED // 2 + 1 + has_checkpoint)


def test_a_database_that_is_closed_goes_on_without_a_gap(db: Engine) -> None:
    for expected in range(1, 4):
        session = db.session(autocommit=True)
        run(session, INSERT, expected)
        assert value(session) == expected
        db.reopen()
    assert rows(db.session(), IDS) == [(1,), (2,), (3,)]
    assert value(db.session(autocommit=True), "SELECT last_value FROM syssequences LIMIT 1") == 3


def test_a_rollback_gives_nothing_back(db: Engine) -> None:
    session = db.session()
    run(session, INSERT, 0)
    assert (value(session), value(session, "SELECT setval('s', 9)")) == (1, 9)
    session.rollback()
    run(session, INSERT, 0)
    session.commit()
    assert rows(session, IDS) == [(2,)]
    assert value(session) == 10


def test_a_reservation_stands_before_the_rows_that_use_it(db: Engine) -> None:
    session = db.session(autocommit=True)
    for number in range(_RESERVED + 1):
        run(session, INSERT, number)
    records = [decode(data) for _, data in read_log(db.database, START_LSN)]
    upto = 0
    for record in records:
        if isinstance(record, Reserve):
            upto = record.upto
        elif isinstance(record, Rows) and record.inserts:
            assert record.inserts[0][0] <= upto
    assert upto == 2 * _RESERVED


def test_values_of_a_select_are_durable_when_it_ends(db: Engine) -> None:
    session = db.session(autocommit=True)
    tablespace = db.database.tablespace
    for text in ("SELECT nextval('s')", "SELECT setval('s', 50)"):
        value(session, text)
        assert tablespace.applier.sequence_lsn <= tablespace.durable_lsn
    crash(db)
    assert value(db.session(autocommit=True)) == 51


def test_the_log_alone_makes_the_same_state(db: Engine) -> None:
    session = db.session(autocommit=True)
    for text in (
        "SELECT nextval('s')",
        "SELECT setval('s', 70, false)",
        "ALTER SEQUENCE s INCREMENT 5",
        "SELECT nextval('s')",
        "INSERT INTO t (v) VALUES (1), (2)",
        "TRUNCATE t RESTART IDENTITY",
        "INSERT INTO t (v) VALUES (1)",
        "DROP SEQUENCE s",
    ):
        session.execute(text).close()
        db.database.run_checkpoint()
        before = state_digest(db.database.tablespace)
        with db.database.tablespace.monitor:
            applier = db.database.tablespace.applier
        assert applier.reserved.keys() <= applier.state.tables.keys()
        records = read_log(db.database, START_LSN)
        with engine() as other:
            copy = replayed_behind(other.database.tablespace.applier, records)
            assert state_digest(copy) == before


def test_another_definition_goes_on_from_the_last_value(db: Engine) -> None:
    session = db.session(autocommit=True)
    assert [value(session) for _ in range(3)] == [1, 2, 3]
    run(session, "ALTER SEQUENCE s INCREMENT 10 CACHE 5")
    assert value(session) == 13
    crash(db)
    session = db.session(autocommit=True)
    assert value(session) == 13 + _RESERVED * 10
    run(session, "ALTER SEQUENCE s RESTART WITH 7")
    crash(db)
    assert value(db.session(autocommit=True)) == 7


@pytest.mark.parametrize(("ends", "expected"), [("commit", 100), ("rollback", 2)])
def test_a_value_waits_for_the_transaction_that_changes_the_sequence(
    ends: str, expected: int
) -> None:
    driver = WatchedDriver()
    with engine(is_threaded=True, driver=driver) as db:
        session = db.session(autocommit=True)
        run(session, "CREATE SEQUENCE s")
        assert value(session) == 1
        other = db.session()
        run(other, "ALTER SEQUENCE s RESTART WITH 100")
        found: list[int] = []
        with Background() as background:
            background.start(lambda: found.append(value(session)), "second")
            while driver.waits.get() != "second":
                pass
            getattr(other, ends)()
        assert found == [expected]


def test_a_restart_that_is_rolled_back_leaves_values_as_they_were(db: Engine) -> None:
    session = db.session()
    run(session, INSERT, 0)
    session.commit()
    run(session, "TRUNCATE t RESTART IDENTITY")
    run(session, INSERT, 0)
    assert rows(session, IDS) == [(1,)]
    run(session, "CREATE SEQUENCE own")
    assert value(session, "SELECT nextval('own')") == 1
    session.rollback()
    run(session, INSERT, 0)
    session.commit()
    assert rows(session, IDS) == [(1,), (2,)]
    applier = db.database.tablespace.applier
    assert applier.reserved.keys() <= applier.state.tables.keys()


def test_an_identity_column_is_filled_on_the_fast_path(db: Engine) -> None:
    session = db.session(autocommit=True)
    for expected in (1, 2):
        assert session.run(INSERT, (0,)).last_row_id == expected  # type: ignore[union-attr]
    found = attempt_and_wait(session, INSERT, (0,))
    assert isinstance(found, PendingWrite)
    assert found.last_row_id == 3
    assert session.execute("UPDATE t SET v = 1").last_row_id is None
    result = session.execute("INSERT INTO t (v) VALUES (1), (2) RETURNING v")
    assert (result.last_row_id, list(result.rows())) == (5, [(1,), (2,)])
    assert session.execute_many(INSERT, [(3,), (4,)]).last_row_id is None
    assert rows(session, IDS)[-1] == (7,)
    assert session.execute("INSERT INTO t (v) SELECT v FROM t WHERE id < 3").last_row_id == 9


def test_a_table_without_key_is_filled_where_nothing_waits(db: Engine) -> None:
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE heap (v BIGINT, id BIGINT GENERATED ALWAYS AS IDENTITY)")
    text = "INSERT INTO heap VALUES (?)"
    for expected in (1, 2):
        assert session.run(text, (0,)).last_row_id == expected  # type: ignore[union-attr]
    found = attempt(session, text, (0,))
    assert isinstance(found, PendingWrite)
    assert found.outcome is not None
    db.database.tablespace.log.sync()
    db.database.tablespace.on_durable(db.database.tablespace.log.durable_lsn)
    session.end_write(found)
    assert found.last_row_id == 3


def test_a_backup_has_where_sequences_are(db: Engine, tmp_path: Path) -> None:
    session = db.session(autocommit=True)
    value(session, "SELECT setval('s', 500)")
    run(session, INSERT, 1)
    db.database.run_checkpoint()
    disk = MemoryDisk()
    restored(backed_up(db.database), disk)
    with engine(disk=disk) as other:
        again = other.session(autocommit=True)
        run(again, INSERT, 1)
        assert value(again) > 500
        ids = rows(again, IDS)
        assert ids[0] == (1,)
        assert ids[1] > (1,)


def test_the_doctor_and_a_dump_know_them(tmp_path: Path) -> None:
    with herdpy.connect(tmp_path / "a", autocommit=True) as conn:
        for text in (
            "CREATE TABLE a (id INT GENERATED ALWAYS AS IDENTITY (MINVALUE 5 MAXVALUE 9 CYCLE))",
            "CREATE SEQUENCE s AS SMALLINT INCREMENT -2 CACHE 7",
            "CREATE TABLE b (id SERIAL PRIMARY KEY, n INT DEFAULT nextval('s'))",
            "INSERT INTO a VALUES (DEFAULT), (DEFAULT)",
            "INSERT INTO a OVERRIDING SYSTEM VALUE VALUES (70)",
            "INSERT INTO b VALUES (DEFAULT, DEFAULT)",
        ):
            conn.execute(text)
        conn.checkpoint()
        conn.dump(tmp_path / "dump.sql")
    assert examine(tmp_path / "a").damages == []
    text = (tmp_path / "dump.sql").read_text()
    with herdpy.connect(tmp_path / "b", autocommit=True) as conn:
        for statement in text.split(";\n"):
            if statement.strip():
                conn.execute(statement)
        conn.dump(tmp_path / "again.sql")
        assert conn.execute("INSERT INTO a VALUES (DEFAULT) RETURNING id").fetchall() == [(7,)]
        given = conn.execute("INSERT INTO b VALUES (DEFAULT, DEFAULT) RETURNING id, n")
        assert given.fetchall() == [(2, -3)]
    assert (tmp_path / "again.sql").read_text().split("\n")[1:] == text.split("\n")[1:]


def test_rows_of_arrow_are_filled_as_those_of_insert(tmp_path: Path) -> None:
    text = "CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v BIGINT)"
    with herdpy.connect(tmp_path / "a", autocommit=True) as conn:
        conn.execute(text)
        for count in (3, 30_000):
            conn.ingest("t", pa.table({"v": list(range(count))}))
        found = conn.execute("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM t")
        assert found.fetchall() == [(30_003, 30_003, 1, 30_003)]
        conn.ingest("t", [{"v": 1}, {"v": 2}])
        assert conn.execute("SELECT max(id) FROM t").fetchall() == [(30_005,)]


def test_who_only_reads_takes_no_value(db: Engine) -> None:
    session = db.session()
    value(session)
    session.rollback()
    run(session, "SET TRANSACTION READ ONLY")
    with pytest.raises(InternalError) as caught:
        value(session)
    assert caught.value.sqlstate == "25006"
    assert value(session, "SELECT currval('s')") == 1


def test_a_sequence_that_is_made_anew_has_given_the_session_nothing(db: Engine) -> None:
    session = db.session()
    run(session, "CREATE SEQUENCE other")
    assert value(session) == 1
    assert value(session, "SELECT nextval('other')") == 1
    run(session, "DROP SEQUENCE other")
    run(session, "CREATE SEQUENCE other")
    for text in ("SELECT currval('other')", "SELECT lastval()"):
        with pytest.raises(ProgrammingError) as caught:
            value(session, text)
        assert caught.value.sqlstate == "55000"
    assert value(session, "SELECT currval('s')") == 1


def test_values_of_before_are_not_used_when_the_log_was_opened_anew(db: Engine) -> None:
    """What was reserved for them may not be in the log that goes on, and is given away again."""
    tablespace = db.database.tablespace
    transaction = Transaction(Durability.SYNC, begun_us=0, is_autocommit=False)
    numbers = SessionNumbers(tablespace, lambda: transaction, lambda: 1.0)
    assert numbers.next_value("s") == 1
    db.database.reopen()
    with pytest.raises(SerializationError):
        numbers.next_value("s")
    with pytest.raises(SerializationError):
        tablespace.settle_numbers(transaction)
    entry = Entry([RollbackTo(tx=1, statement=1)], [b""], transaction, ends=False)
    with pytest.raises(SerializationError):
        tablespace.run(lambda: tablespace.submit(entry))
    assert value(db.session(autocommit=True)) == 1  # its reservation was not durable


def test_rows_of_an_ingest_from_before_are_not_written_either(db: Engine) -> None:
    session = db.session(autocommit=True)
    ingest = session.begin_ingest("t", "append")
    ingest.add(pa.RecordBatch.from_pylist([{"v": 1}, {"v": 2}]))
    db.database.reopen()
    with pytest.raises(SerializationError):
        ingest.finish()
    ingest = session.begin_ingest("t", "append")
    ingest.add(pa.RecordBatch.from_pylist([{"v": 3}]))
    assert ingest.finish() == 1


def test_nor_in_a_transaction_that_has_values_of_the_log_that_goes_on(db: Engine) -> None:
    session = db.session(autocommit=True)
    ingest = session.begin_ingest("t", "append")
    ingest.add(pa.RecordBatch.from_pylist([{"v": 1}, {"v": 2}]))
    db.database.reopen()
    session.begin()
    run(session, "INSERT INTO t (v) VALUES (3)")
    with pytest.raises(SerializationError):
        ingest.finish()
    session.rollback()


def test_nor_are_they_staged(db: Engine) -> None:
    run(
        db.session(autocommit=True),
        "CREATE TABLE h (v BIGINT, id BIGINT GENERATED ALWAYS AS IDENTITY)",
    )
    session = db.session(autocommit=True)
    ingest = session.begin_ingest("h", "append")
    ingest.add(pa.RecordBatch.from_pylist([{"v": 1}, {"v": 2}]))
    db.database.reopen()
    many = pa.RecordBatch.from_pylist([{"v": i} for i in range(FEW_ROWS + 1)])
    with pytest.raises(SerializationError):
        ingest.add(many)
    ingest = session.begin_ingest("h", "append")
    ingest.add(many)
    assert ingest.finish() == many.num_rows
    counts = rows(session, "SELECT count(*), count(DISTINCT id) FROM h")
    assert counts == [(many.num_rows, many.num_rows)]


def test_a_session_forgets_the_values_of_sequences_that_are_gone(db: Engine) -> None:
    session = db.session(autocommit=True)
    numbers = SessionNumbers(db.database.tablespace, lambda: None, lambda: 1.0)
    assert numbers.next_value("s") == 1
    for _ in range(200):
        run(session, "CREATE SEQUENCE other")
        assert numbers.next_value("other") == 1
        run(session, "DROP SEQUENCE other")
    assert numbers.current_value("s") == 1
    assert len(numbers._values) <= 65


def test_what_is_exhausted_may_go_on_when_it_is_set(db: Engine) -> None:
    session = db.session(autocommit=True)
    run(session, "ALTER SEQUENCE s MAXVALUE 2")
    assert [value(session), value(session)] == [1, 2]
    for _ in range(2):
        with pytest.raises(Error) as caught:
            value(session)
        assert caught.value.sqlstate == "2200H"
    crash(db)
    session = db.session(autocommit=True)
    with pytest.raises(Error):
        value(session)
    assert value(session, "SELECT setval('s', 1)") == 1
    assert value(session) == 2


def test_setting_a_sequence_is_two_records(db: Engine) -> None:
    value(db.session(autocommit=True), "SELECT setval('s', 5)")
    found = [decode(data) for _, data in read_log(db.database, START_LSN)]
    number = db.database.tablespace.state.catalog.table("s")
    assert number is not None
    assert found[-3:-1] == [SetSequence(number.id, 0, 5), Reserve(number.id, 1)]
