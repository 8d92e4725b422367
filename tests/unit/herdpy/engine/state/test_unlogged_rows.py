"""Rows that a transaction has changed and the log gets later: with its next entry, or COMMIT."""

from typing import Any

import pytest

from herdpy.engine.maintenance.recovery import open_segments, open_tables, state_at_checkpoint
from herdpy.engine.session.session import Session
from herdpy.engine.state import tablespace
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.stats import stats_of
from herdpy.errors import Error
from herdpy.log.record import Begin, Commit, CreateTable, EncodedRows, Record, Rows, decode, encode
from herdpy.model.durability import Durability
from herdpy.model.lsn import FILE_LEDGER_ID, START_LSN, Lsn
from herdpy.model.schema import Table
from herdpy.model.settings import Settings
from tests.crash.checks import check_open_transactions, read_log, replayed_behind
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Engine, engine, rows, run

INSERT = "INSERT INTO t VALUES (?, ?)"
UPDATE = "UPDATE t SET v = ? WHERE id = ?"
DELETE = "DELETE FROM t WHERE id = ?"
ALL = "SELECT id, v FROM t ORDER BY id"


@pytest.fixture
def db() -> Any:
    with engine() as made:
        session = made.session(autocommit=True)
        for name in ("t", "u"):
            run(session, f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v BIGINT)")
        for key in (1, 2, 3):
            run(session, INSERT, key, 0)
            run(session, UPDATE, 10 * key, key)
        for key in (1001, 1002):
            run(session, INSERT, key, 0)
            run(session, DELETE, key)
        for key in (1001, 1002):
            run(session, "INSERT INTO u VALUES (?, ?)", key, 0)
            run(session, "DELETE FROM u WHERE id = ?", key)
        yield made


def logged(db: Engine, since: int = 0) -> list[Record]:
    start = Lsn(*db.database.replica.manifest.state.checkpoint_lsn)
    return [decode(data) for _, data in read_log(db.database, start)][since:]


def table_of(db: Engine) -> Table:
    return next(each for each in db.database.tablespace.state.catalog.tables() if each.name == "t")


def begin(db: Engine) -> tuple[Session, Transaction]:
    session = db.session()
    session.begin()
    transaction = session.transaction
    assert transaction is not None
    return session, transaction


def replayed_digest(db: Engine) -> str:
    """Return the digest of what manifest and log say."""
    database = db.database
    listed = database.replica.manifest.state
    segments = open_segments(database.disk, "default/segments", listed)
    applier = state_at_checkpoint(listed, open_tables(listed.tables, segments))
    records = read_log(database, applier.state.lsn)
    return state_digest(replayed_behind(applier, records))


def test_the_log_gets_them_as_one_record_at_commit(db: Engine) -> None:
    before = len(logged(db))
    session, transaction = begin(db)
    for key in (4, 5):
        session.run(INSERT, (key, 0))
    session.run(UPDATE, (11, 1))
    session.run(DELETE, (2,))
    assert logged(db, before) == []
    assert db.database.tablespace.open_transactions() == [transaction]
    assert stats_of(db.database).transactions == 1
    session.commit()
    opening, inserts, changes, end = logged(db, before)
    assert isinstance(opening, Begin)
    assert isinstance(end, Commit)
    assert isinstance(inserts, Rows)
    assert isinstance(changes, Rows)
    assert (inserts.inserts, inserts.changes) == ([(4, 0), (5, 0)], [])
    assert (changes.inserts, changes.changes) == ([], [((1, 10), (1, 11)), ((2, 20), None)])
    assert {inserts.tx, changes.tx, end.tx} == {opening.tx}
    assert stats_of(db.database).transactions == 0
    expected = [(1, 11), (3, 30), (4, 0), (5, 0)]
    assert rows(session, ALL) == expected
    session.rollback()
    db.reopen()
    assert rows(db.session(), ALL) == expected


def test_a_rollback_leaves_nothing_in_the_log(db: Engine) -> None:
    before = len(logged(db))
    session, _ = begin(db)
    session.run(INSERT, (4, 0))
    session.rollback()
    assert logged(db, before) == []
    assert db.database.tablespace.open_transactions() == []
    assert db.locks == {}


def test_every_other_statement_sees_them_and_stands_behind_them(db: Engine) -> None:
    before = len(logged(db))
    session, _ = begin(db)
    session.run(INSERT, (4, 40))
    session.run("INSERT INTO u VALUES (?, ?)", (4, 0))
    assert run(session, "UPDATE t SET v = v + 1 WHERE id >= 3") == 2
    session.run(INSERT, (5, 50))
    run(session, "CREATE TABLE made (id BIGINT PRIMARY KEY)")
    with pytest.raises(Error, match="duplicate key"):
        session.run(INSERT, (5, 51))
    session.commit()
    kinds = [type(record) for record in logged(db, before)]
    assert kinds == [Begin, Rows, Rows, Rows, Rows, CreateTable, Commit]
    expected = [(1, 10), (2, 20), (3, 31), (4, 41), (5, 50)]
    assert rows(session, ALL) == expected
    session.rollback()
    digest = state_digest(db.database.tablespace)
    assert replayed_digest(db) == digest
    db.reopen()
    assert rows(db.session(), ALL) == expected


@pytest.mark.parametrize("ends", ["commit", "crash", "rollback"])
@pytest.mark.parametrize("limit", [1, 20, 10_000])
def test_a_checkpoint_has_what_the_log_has_of_an_open_transaction(
    db: Engine, monkeypatch: pytest.MonkeyPatch, limit: int, ends: str
) -> None:
    monkeypatch.setattr(tablespace, "unlogged_bytes_max", limit)
    session, transaction = begin(db)
    for key in range(4, 14):
        session.run(INSERT, (key, key))
        session.run("INSERT INTO u VALUES (?, ?)", (key, 0))
        if key % 4 == 0:
            run(db.session(autocommit=True), "INSERT INTO u VALUES (?, 0)", -key)
            db.database.run_checkpoint()
            check_open_transactions(db.database)
            assert replayed_digest(db) == state_digest(db.database.tablespace)
    session.run(UPDATE, (11, 1))
    assert transaction.has_unlogged == (limit > 1)  # a row that is longer is logged at once
    expected = [(1, 10), (2, 20), (3, 30)]
    if ends == "commit":
        session.commit()
        expected = [(1, 11), (2, 20), (3, 30), *((key, key) for key in range(4, 14))]
    elif ends == "rollback":
        session.rollback()
    else:
        db.database.tablespace.log.sync()
        db.database.tablespace.stop(Error("the process is no more"))
    db.reopen()
    assert rows(db.session(), ALL) == expected


def test_more_than_a_log_file_holds(db: Engine) -> None:
    session, transaction = begin(db)
    before, number = db.database.tablespace.log.bytes_appended, table_of(db).id
    for key in range(2000, 22_000):
        session.run(INSERT, (key, key))
        kept = transaction.new_rows.get(number)
        assert kept is None or kept.end <= tablespace.unlogged_bytes_max
    assert db.database.tablespace.log.bytes_appended > before
    session.commit()
    db.reopen()
    assert rows(db.session(), "SELECT count(*), min(v) FROM t WHERE id >= 2000") == [(20_000, 2000)]


def test_marks_of_what_the_log_has() -> None:
    def at(entry: int) -> Lsn:
        return Lsn(FILE_LEDGER_ID, entry, 0)

    transaction = Transaction(Durability.SYNC, begun_us=0, is_autocommit=False)
    assert transaction.statement_at(at(9)) == 1
    for entry in (3, 5, 5, 7):
        transaction.write_row(1, (transaction.statement,), (entry,))
        transaction.statement += 1
        transaction.note_logged(at(entry), START_LSN)
    found = {entry: transaction.changes_until(at(entry)).get(1, []) for entry in (2, 3, 6, 7)}
    assert {entry: len(changes) for entry, changes in found.items()} == {2: 0, 3: 1, 6: 2, 7: 4}
    transaction.note_logged(at(7), at(6))
    assert transaction.logged[0][1] == at(5)
    transaction.note_logged(at(8), at(8))
    assert transaction.logged == [(5, at(8))]


def test_the_bytes_are_those_of_the_record(db: Engine) -> None:
    definition = table_of(db)
    inserts = EncodedRows(definition, is_inserts=True)
    for row in ((1, 2), (3, None)):
        inserts.put((0, "of a statement that was interrupted"))
        inserts.end, inserts.count = inserts.put(row), inserts.count + 1
    inserts.put((9, 9))
    places = (0, True, definition.id, definition.version)
    expected = Rows((1, 2), 7, *places, [(1, 2), (3, None)], [])
    assert decode(inserts.record((1, 2), 7)) == decode(encode(expected))


def test_a_transaction_that_was_undone_notes_nothing(db: Engine) -> None:
    session, transaction = begin(db)
    session.run(INSERT, (4, 0))
    db.database.tablespace.rollback(transaction, Error("by the housekeeper"))
    assert db.database.tablespace.open_transactions() == []
    for text, values in ((INSERT, (5, 0)), (UPDATE, (0, 1))):
        with pytest.raises(Error):
            session.run(text, values)
    session.rollback()
    assert rows(db.database.session(Settings(), autocommit=True), ALL) == [
        (1, 10),
        (2, 20),
        (3, 30),
    ]


def test_all_transactions_together_note_little(db: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their COMMITs may use up the disk's reserve, so it has to have room for all."""
    monkeypatch.setattr(tablespace, "unlogged_tables_max", 2)
    found = [begin(db) for _ in range(4)]
    for key, (session, _) in enumerate(found, 10):
        session.run(INSERT, (key, key))
    assert [transaction.has_unlogged for _, transaction in found] == [True, True, False, False]
    found[0][0].commit()
    found[3][0].run(INSERT, (20, 20))
    assert found[3][1].has_unlogged
    for session, _ in found[1:]:
        session.commit()
    db.reopen()
    assert rows(db.session(), "SELECT count(*) FROM t WHERE id >= 10") == [(5,)]


def test_no_row_is_noted_behind_a_statement_that_is_to_be_undone(db: Engine) -> None:
    """The log has parts of it, and gets their end before what comes behind them."""
    session = db.session()
    run(session, INSERT, 50, 0)
    transaction, space = session.transaction, db.database.tablespace
    assert transaction is not None
    found = space.state.catalog.table("t")
    assert found is not None
    transaction.cut = transaction.statement
    with space.monitor:
        space.enter()
        assert not space.log_change(transaction, found, (51,), None, (51, 0), 1 << 20)
    assert (51,) not in transaction.writes[found.id]
    transaction.cut = None
    with space.monitor:
        assert space.log_change(transaction, found, (51,), None, (51, 0), 1 << 20)
    assert (51,) in transaction.writes[found.id]
    session.rollback()
