"""Savepoints: what ROLLBACK TO undoes, wherever it is by then, and what it leaves."""

import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from herdpy.config import Config
from herdpy.engine.maintenance import checkpoint
from herdpy.engine.maintenance.checkpoint import OpenTransaction
from herdpy.engine.session.session import Session
from herdpy.engine.state import tablespace
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.writes import row_writes, spilled_writes
from herdpy.errors import Error, Retry
from herdpy.limits import savepoints_max
from herdpy.log.record import Noop, RollbackTo, Rows, decode
from herdpy.model.lsn import START_LSN
from tests.crash.checks import read_log
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Engine, attempt, engine, rows, run, table
from tests.sim.disk import SimulatedDisk

ALL = "SELECT id, v FROM t ORDER BY id"
POINT = "SELECT v FROM t WHERE id = ?"
INSERT = "INSERT INTO t VALUES (?, ?)"
UPDATE = "UPDATE t SET v = ? WHERE id = ?"
LITTLE = Config(transaction_memory_bytes=20_000, log_file_bytes_first=64 * 1024)


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine() as made:
        yield made


@pytest.fixture
def session(db: Engine) -> Session:
    made = db.session()
    table(made, (1, 10), (2, 20))
    return made


def refused(session: Session, text: str) -> str:
    with pytest.raises(Error) as caught:
        run(session, text)
    return caught.value.sqlstate


def crashed(db: Engine) -> None:
    """Lose what was not synced, and open again."""
    assert isinstance(db.disk, SimulatedDisk)
    db.disk = db.disk.crash()
    db.open()


def records(db: Engine, kind: type) -> list[object]:
    found = (decode(data) for _, data in read_log(db.database, START_LSN))
    return [record for record in found if isinstance(record, kind)]


# --- names ---------------------------------------------------------------------------------------


def test_the_newest_of_a_name_counts(session: Session) -> None:
    run(session, "SAVEPOINT a")
    run(session, INSERT, 3, 30)
    run(session, "SAVEPOINT a")
    run(session, INSERT, 4, 40)
    run(session, "ROLLBACK TO SAVEPOINT a")
    assert rows(session, ALL) == [(1, 10), (2, 20), (3, 30)]
    run(session, "RELEASE a")
    run(session, "ROLLBACK TO a")
    assert rows(session, ALL) == [(1, 10), (2, 20)]


def test_rollback_to_keeps_the_savepoint_and_ends_those_behind_it(session: Session) -> None:
    run(session, "SAVEPOINT a")
    run(session, "SAVEPOINT b")
    for number in range(3):
        run(session, INSERT, 3, number)
        run(session, "ROLLBACK TO a")
        assert rows(session, ALL) == [(1, 10), (2, 20)]
    assert refused(session, "ROLLBACK TO b") == "3B001"
    assert refused(session, "RELEASE SAVEPOINT b") == "3B001"


def test_release_ends_it_and_those_behind_it_and_keeps_their_rows(session: Session) -> None:
    run(session, "SAVEPOINT a")
    run(session, INSERT, 3, 30)
    run(session, "SAVEPOINT b")
    run(session, INSERT, 4, 40)
    run(session, "RELEASE SAVEPOINT a")
    for name in "ab":
        assert refused(session, f"ROLLBACK TO {name}") == "3B001"
    session.commit()
    assert rows(session, ALL) == [(1, 10), (2, 20), (3, 30), (4, 40)]


def test_names_are_as_other_names(session: Session) -> None:
    run(session, 'SAVEPOINT "A b"')
    run(session, "SAVEPOINT Ab")
    run(session, "ROLLBACK TO AB")
    assert refused(session, "ROLLBACK TO a") == "3B001"
    run(session, 'RELEASE "A b"')


def test_outside_of_a_transaction_there_is_none(db: Engine) -> None:
    alone = db.session(autocommit=True)
    for text in ("SAVEPOINT a", "ROLLBACK TO a", "RELEASE a"):
        assert refused(alone, text) == "25P01"
    run(alone, "BEGIN")
    run(alone, "SAVEPOINT a")
    run(alone, "COMMIT")
    assert refused(alone, "ROLLBACK TO a") == "25P01"


def test_a_savepoint_begins_a_transaction_where_statements_do(session: Session) -> None:
    run(session, "SAVEPOINT a")
    assert session.in_transaction
    assert refused(session, "BEGIN") == "25001"
    session.rollback()
    assert refused(session, "RELEASE a") == "25P01"


def test_there_are_so_many_and_no_more(session: Session) -> None:
    for _ in range(savepoints_max):
        run(session, "SAVEPOINT a")
    assert refused(session, "SAVEPOINT a") == "53400"
    run(session, "RELEASE a")
    run(session, "SAVEPOINT a")


def test_a_transaction_that_is_lost_goes_back_to_none(db: Engine, session: Session) -> None:
    run(session, "SAVEPOINT a")
    run(session, INSERT, 3, 30)
    transaction = session.transaction
    assert transaction is not None
    db.database.tablespace.rollback(transaction, Error("gone", sqlstate="25P03"))
    assert refused(session, "ROLLBACK TO a") == "25P03"
    assert refused(session, "ROLLBACK TO a") == "25P02"
    session.rollback()
    assert rows(session, ALL) == [(1, 10), (2, 20)]


# --- what is undone ------------------------------------------------------------------------------


def test_updates_deletes_and_inserts_of_several_statements(session: Session) -> None:
    run(session, "UPDATE t SET v = 11 WHERE id = 1")
    run(session, "SAVEPOINT a")
    run(session, "UPDATE t SET v = v + 1")
    run(session, "DELETE FROM t WHERE id = 1")
    run(session, INSERT, 1, 0)
    run(session, INSERT, 3, 30)
    run(session, "UPDATE t SET id = id + 10")
    run(session, "ROLLBACK TO a")
    assert rows(session, ALL) == [(1, 11), (2, 20)]
    assert rows(session, "SELECT sum(v) FROM t") == [(31,)]
    session.commit()
    assert rows(session, ALL) == [(1, 11), (2, 20)]


def test_rows_of_the_fast_path_are_undone_and_written_again(db: Engine, session: Session) -> None:
    session.latest_plans.clear()
    for text, parameters in ((INSERT, (3, 30)), (UPDATE, (12, 1)), (POINT, (1,))):
        session.execute(text, parameters)
        session.rollback()
    run(session, "SAVEPOINT a")
    for number in (3, 4):
        assert attempt(session, INSERT, (number, 1)) is not None
    assert attempt(session, UPDATE, (12, 1)) is not None
    run(session, "ROLLBACK TO a")
    assert attempt(session, POINT, (1,))[1] == [(10,)]
    assert attempt(session, POINT, (3,))[1] == []
    assert attempt(session, INSERT, (5, 50)) is not None
    run(session, INSERT, 3, 31)
    session.commit()
    db.reopen()
    assert rows(db.session(), ALL) == [(1, 10), (2, 20), (3, 31), (5, 50)]


def test_what_is_noted_before_a_savepoint_is_logged_before_it(db: Engine, session: Session) -> None:
    """Else one record has rows of both sides, under the number of the last one."""
    run(session, INSERT, 9, 9)
    session.rollback()
    for number in (3, 4):
        assert attempt(session, INSERT, (number, number)) is not None
    run(session, "SAVEPOINT a")
    for number in (5, 6):
        assert attempt(session, INSERT, (number, number)) is not None
    run(session, "ROLLBACK TO a")
    session.commit()
    db.reopen()
    assert [row[0] for row in rows(db.session(), ALL)] == [1, 2, 3, 4]


def test_where_nothing_is_undone_nothing_is_logged(db: Engine, session: Session) -> None:
    before = len(records(db, RollbackTo)), len(records(db, Noop))
    run(session, "SAVEPOINT a")
    rows(session, ALL)
    run(session, "ROLLBACK TO a")
    run(session, "RELEASE a")
    session.commit()
    assert (len(records(db, RollbackTo)), len(records(db, Noop))) == before


def test_a_statement_that_fails_behind_a_savepoint(session: Session) -> None:
    run(session, "SAVEPOINT a")
    run(session, INSERT, 3, 30)
    assert refused(session, "INSERT INTO t VALUES (4, 40), (1, 1)") == "23505"
    assert rows(session, ALL) == [(1, 10), (2, 20), (3, 30)]
    run(session, "ROLLBACK TO a")
    assert rows(session, ALL) == [(1, 10), (2, 20)]


def test_statements_by_parts(db: Engine, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tablespace, row_writes):
        monkeypatch.setattr(module, "monitor_rows_max", 3)
    monkeypatch.setattr(tablespace, "monitor_rows_alone_max", 3)
    session.execute_many(INSERT, [(number, number) for number in range(10, 30)])
    run(session, "SAVEPOINT a")
    run(session, "UPDATE t SET v = v + 100")
    session.execute_many(INSERT, [(number, number) for number in range(30, 50)])
    run(session, "ROLLBACK TO a")
    assert rows(session, "SELECT count(*), max(v) FROM t") == [(22, 29)]
    run(session, "UPDATE t SET v = v + 1")
    session.commit()
    db.reopen()
    assert rows(db.session(), "SELECT count(*), max(v) FROM t") == [(22, 30)]


def test_memory_is_given_back(session: Session) -> None:
    transaction = None
    counts = set[int]()
    run(session, "UPDATE t SET v = 0 WHERE id = 1")
    run(session, "SAVEPOINT a")
    for _ in range(5):
        run(session, "UPDATE t SET v = 1")
        session.execute_many(INSERT, [(number, number) for number in range(10, 2000)])
        run(session, "ROLLBACK TO a")
        transaction = session.transaction
        assert transaction is not None
        counts.add(transaction.byte_count)
    assert len(counts) == 1
    assert transaction is not None
    assert transaction.change_count == 1


def test_locks_stay(db: Engine, session: Session) -> None:
    other = db.session(lock_timeout_s=0.001)
    run(session, "SAVEPOINT a")
    run(session, UPDATE, 11, 1)
    run(session, "ROLLBACK TO a")
    assert refused(other, "UPDATE t SET v = 0 WHERE id = 1") == "55P03"
    session.commit()
    run(other, UPDATE, 0, 1)


def test_row_ids_of_a_heap_do_not_come_again(db: Engine, session: Session) -> None:
    run(session, "CREATE TABLE h (v BIGINT)")
    run(session, "INSERT INTO h VALUES (1)")
    run(session, "SAVEPOINT a")
    run(session, "INSERT INTO h VALUES (2)")
    run(session, "ROLLBACK TO a")
    run(session, "INSERT INTO h VALUES (3)")
    session.commit()
    db.reopen()
    run(db.session(autocommit=True), "INSERT INTO h VALUES (4)")
    assert sorted(rows(db.session(), "SELECT v FROM h")) == [(1,), (3,), (4,)]


# --- cursors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [ALL, "SELECT id, sum(v) OVER (PARTITION BY id) FROM t ORDER BY 1"]
)
def test_a_cursor_from_before_goes_on_and_one_from_behind_ends(session: Session, text: str) -> None:
    run(session, UPDATE, 11, 1)
    before = session.execute(text, ())
    run(session, "SAVEPOINT a")
    at_once = session.execute(text, ())
    run(session, UPDATE, 12, 1)
    behind = session.execute(text, ())
    assert behind.fetch_many(1) == [(1, 12)]
    run(session, "SAVEPOINT b")
    run(session, "RELEASE b")
    run(session, "ROLLBACK TO a")
    run(session, UPDATE, 13, 1)
    assert list(before.rows()) == [(1, 11), (2, 20)]
    assert list(at_once.rows()) == [(1, 11), (2, 20)]
    with pytest.raises(Error) as caught:
        behind.fetch_many(1)
    assert caught.value.sqlstate == "24000"
    assert rows(session, ALL) == [(1, 13), (2, 20)]


def test_a_cursor_says_why_its_transaction_was_rolled_back(session: Session, db: Engine) -> None:
    """And not 24000, which says that the program did it, and that to run it again is of no use."""
    run(session, UPDATE, 12, 1)
    result = session.execute(ALL, ())
    assert result.fetch_many(1) == [(1, 12)]
    transaction = session.transaction
    assert transaction is not None
    reason = Error("idle for too long", sqlstate="25P03", retry=Retry.SAFE)
    db.database.tablespace.rollback(transaction, reason)
    with pytest.raises(Error, match="25P03"):
        result.fetch_many(1)
    assert refused(session, "ROLLBACK TO a") == "25P02"  # it has heard it by now


class Watched(Transaction):
    """A transaction that is looked at as soon as it says that it is undone, by any thread."""

    __slots__ = ()

    @property
    def is_undone(self) -> bool:
        return bool(_IS_UNDONE.__get__(self))

    @is_undone.setter
    def is_undone(self, value: bool) -> None:
        _IS_UNDONE.__set__(self, value)
        _look()


class Interrupted(Watched):
    """A transaction that an interrupt hits just before it is undone."""

    __slots__ = ()

    @Watched.is_undone.setter
    def is_undone(self, value: bool) -> None:
        raise KeyboardInterrupt


_IS_UNDONE: Any = vars(Transaction)["is_undone"]


def _look() -> None:
    """See test_a_cursor_says_why_while_its_transaction_is_being_rolled_back()."""


def test_a_cursor_says_why_while_its_transaction_is_being_rolled_back(
    session: Session, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks without the monitor: sim-server, seed 9001476."""
    run(session, UPDATE, 12, 1)
    result = session.execute(ALL, ())
    assert result.fetch_many(1) == [(1, 12)]
    transaction = session.transaction
    assert transaction is not None
    transaction.__class__ = Watched
    told: list[str | None] = []

    def look() -> None:
        with pytest.raises(Error) as caught:
            result.fetch_many(1)
        told.append(caught.value.sqlstate)

    monkeypatch.setattr(sys.modules[__name__], "_look", look)
    reason = Error("idle for too long", sqlstate="25P03", retry=Retry.SAFE)
    db.database.tablespace.rollback(transaction, reason)
    assert told == ["25P03"]


def test_a_rollback_that_is_interrupted_before_it_undoes_is_ended_by_the_next_statement(
    session: Session, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is there before it is undone: nothing else would end it, and its locks stay."""
    run(session, UPDATE, 12, 1)
    transaction = session.transaction
    assert transaction is not None
    transaction.__class__ = Interrupted
    reason = Error("idle for too long", sqlstate="25P03", retry=Retry.SAFE)
    with pytest.raises(KeyboardInterrupt):
        db.database.tablespace.rollback(transaction, reason)
    transaction.__class__ = Transaction
    assert not transaction.is_undone
    with pytest.raises(Error) as caught:
        run(session, UPDATE, 13, 2)
    assert caught.value is reason
    assert db.locks == {}
    session.rollback()
    assert rows(session, ALL) == [(1, 10), (2, 20)]


def test_a_cursor_of_an_inner_savepoint_ends_with_the_outer_one(session: Session) -> None:
    run(session, "SAVEPOINT a")
    run(session, UPDATE, 11, 1)
    run(session, "SAVEPOINT b")
    run(session, UPDATE, 12, 1)
    result = session.execute(ALL, ())
    run(session, "RELEASE b")
    run(session, "ROLLBACK TO a")
    with pytest.raises(Error, match="24000"):
        result.fetch_many(1)


# --- definitions ---------------------------------------------------------------------------------


def test_definitions_are_undone(db: Engine, session: Session) -> None:
    run(session, "CREATE TABLE kept (id BIGINT PRIMARY KEY)")
    run(session, "INSERT INTO kept VALUES (1)")
    run(session, "SAVEPOINT a")
    run(session, "CREATE TABLE made (id BIGINT PRIMARY KEY)")
    run(session, "INSERT INTO made VALUES (1)")
    run(session, "DROP TABLE t")
    run(session, "TRUNCATE kept")
    run(session, "CREATE ROLE r")
    run(session, "CREATE TABLE t (other TEXT)")
    assert rows(session, "SELECT * FROM kept") == []
    run(session, "ROLLBACK TO a")
    assert refused(session, "SELECT * FROM made") == "42P01"
    assert rows(session, ALL) == [(1, 10), (2, 20)]
    assert rows(session, "SELECT * FROM kept") == [(1,)]
    assert rows(session, "SELECT count(*) FROM sysroles WHERE role_name = 'r'") == [(0,)]
    run(session, "CREATE ROLE r")
    run(session, "INSERT INTO t VALUES (3, 30)")
    session.commit()
    db.reopen()
    after = db.session()
    assert rows(after, ALL) == [(1, 10), (2, 20), (3, 30)]
    assert rows(after, "SELECT * FROM kept") == [(1,)]
    assert refused(after, "SELECT * FROM made") == "42P01"
    assert rows(after, "SELECT count(*) FROM sysroles WHERE role_name = 'r'") == [(1,)]


def test_row_ids_of_a_table_that_comes_back(db: Engine, session: Session) -> None:
    """What another transaction defines meanwhile makes counters of tables that are no more go."""
    run(session, "CREATE TABLE h (v BIGINT)")
    run(session, "INSERT INTO h VALUES (1)")
    run(session, "SAVEPOINT a")
    run(session, "DROP TABLE h")
    other = db.session(autocommit=True)
    run(other, "CREATE TABLE other (v BIGINT)")
    run(other, "DROP TABLE other")
    run(session, "ROLLBACK TO a")
    run(session, "INSERT INTO h VALUES (2)")
    session.commit()
    assert sorted(rows(session, "SELECT v FROM h")) == [(1,), (2,)]


# --- spilled, checkpoints, crashes ---------------------------------------------------------------


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_writes, "_LOOK_ROWS", 5)
    monkeypatch.setattr(row_writes, "CHECK_ROWS", 20)
    monkeypatch.setattr(spilled_writes, "_PIECE_ROWS", 50)


def big(db: Engine) -> Session:
    session = db.session()
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    session.execute_many(INSERT, [(number, 0) for number in range(400)])
    session.commit()
    return session


TOTAL = "SELECT count(*), sum(v) FROM t"


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_what_was_spilled_is_undone(seed: int, has_checkpoint: bool) -> None:
    with engine(disk=SimulatedDisk(seed), config=LITTLE) as db:
        session = big(db)
        run(session, "UPDATE t SET v = 5 WHERE id = 7")
        run(session, "SAVEPOINT a")
        run(session, "UPDATE t SET v = 6 WHERE id = 8")
        run(session, "SAVEPOINT b")
        run(session, "DELETE FROM t WHERE id = 9")
        run(session, "UPDATE t SET v = v + 1")
        transaction = session.transaction
        assert transaction is not None
        assert transaction.has_spilled
        assert rows(session, TOTAL) == [(399, 410)]
        result = session.execute(ALL, ())
        result.fetch_many(1)
        if has_checkpoint:
            db.database.run_checkpoint()
        run(session, "ROLLBACK TO b")
        with pytest.raises(Error, match="24000"):
            result.fetch_many(1)
        assert rows(session, TOTAL) == [(400, 11)]
        run(session, "UPDATE t SET v = 1 WHERE id = 1")
        assert rows(session, TOTAL) == [(400, 12)]
        if has_checkpoint:
            db.database.run_checkpoint()
        run(session, "ROLLBACK TO a")
        assert rows(session, TOTAL) == [(400, 5)]
        run(session, "UPDATE t SET v = v + 1 WHERE id < 300")
        assert rows(session, TOTAL) == [(400, 305)]
        session.commit()
        digest = state_digest(db.database.tablespace)
        assert rows(session, TOTAL) == [(400, 305)]
        crashed(db)
        assert state_digest(db.database.tablespace) == digest
        assert rows(db.session(), TOTAL) == [(400, 305)]


@pytest.mark.usefixtures("small_pieces")
def test_stages_that_the_log_has_undone_and_state_still_has_are_not_seen(db: Engine) -> None:
    """ROLLBACK TO may wait behind another transaction's COMMIT, which waits for the disk."""
    db.config = LITTLE
    db.reopen()
    session = big(db)
    run(session, "SAVEPOINT a")
    run(session, "UPDATE t SET v = 1")
    space = db.database.tablespace
    drain, space.drain = space.drain, lambda: None  # type: ignore[method-assign]
    try:
        run(session, "ROLLBACK TO a")
        assert space.state.staged.stages
        assert rows(session, TOTAL) == [(400, 0)]
        run(session, "UPDATE t SET v = 3 WHERE id = 1")
        assert rows(session, TOTAL) == [(400, 3)]
    finally:
        space.drain = drain  # type: ignore[method-assign]
    session.commit()
    assert rows(session, TOTAL) == [(400, 3)]


@pytest.mark.parametrize("is_definition", [False, True])
def test_a_checkpoint_between_knows_what_was_there_before(seed: int, is_definition: bool) -> None:
    """The log behind it has the ROLLBACK TO and the COMMIT, and not what they are about."""
    with engine(disk=SimulatedDisk(seed)) as db:
        session = db.session()
        table(session, (1, 10), (2, 20))
        run(session, "UPDATE t SET v = 11 WHERE id = 1")
        if is_definition:
            run(session, "CREATE TABLE u (id BIGINT PRIMARY KEY)")
            run(session, "INSERT INTO u VALUES (1)")
            run(session, "CREATE ROLE r")
        run(session, "SAVEPOINT a")
        run(session, "UPDATE t SET v = 12 WHERE id = 1")
        run(session, "DELETE FROM t WHERE id = 2")
        if is_definition:
            run(session, "DROP TABLE u")
            run(session, "DROP ROLE r")
            run(session, "CREATE TABLE w (id BIGINT PRIMARY KEY)")
            run(session, "INSERT INTO w VALUES (1)")
        run(session, "SAVEPOINT b")
        run(session, "UPDATE t SET v = 13 WHERE id = 1")
        db.database.run_checkpoint()
        run(session, "UPDATE t SET v = 14 WHERE id = 1")
        run(session, "ROLLBACK TO b")
        assert rows(session, ALL) == [(1, 12)]
        run(session, "ROLLBACK TO a")
        assert rows(session, ALL) == [(1, 11), (2, 20)]
        session.commit()
        digest = state_digest(db.database.tablespace)
        crashed(db)
        assert state_digest(db.database.tablespace) == digest
        after = db.session()
        assert rows(after, ALL) == [(1, 11), (2, 20)]
        if is_definition:
            assert rows(after, "SELECT * FROM u") == [(1,)]
            assert refused(after, "SELECT * FROM w") == "42P01"
            assert rows(after, "SELECT count(*) FROM sysroles WHERE role_name = 'r'") == [(1,)]


def test_a_checkpoint_before_the_log_has_come_so_far(seed: int) -> None:
    """What it lists goes by its position: at that the ROLLBACK TO has not happened yet."""
    with engine(disk=SimulatedDisk(seed)) as db:
        session = db.session()
        table(session, (1, 10))
        run(session, "SAVEPOINT a")
        run(session, "CREATE TABLE u (id BIGINT PRIMARY KEY)")
        space = db.database.tablespace
        drain, space.drain = space.drain, lambda: None  # type: ignore[method-assign]
        run(session, "INSERT INTO u SELECT 1 UNION ALL SELECT 2")
        run(session, "ROLLBACK TO a")
        run(session, "UPDATE t SET v = 11")
        transaction = session.transaction
        assert transaction is not None
        assert list(transaction.catalog_until(space.state.lsn)) == ["u"]
        assert transaction.catalog_changes == {}
        db.database.run_checkpoint()
        space.drain = drain  # type: ignore[method-assign]
        session.commit()
        crashed(db)
        assert rows(db.session(), ALL) == [(1, 11)]


def test_a_crash_behind_rollback_to_leaves_nothing_of_an_open_transaction(seed: int) -> None:
    with engine(disk=SimulatedDisk(seed)) as db:
        session = db.session()
        table(session, (1, 10))
        run(session, "UPDATE t SET v = 11")
        run(session, "SAVEPOINT a")
        run(session, "UPDATE t SET v = 12")
        run(session, "ROLLBACK TO a")
        db.database.tablespace.log.sync()
        crashed(db)
        assert rows(db.session(), ALL) == [(1, 10)]
        assert db.database.tablespace.open_transactions() == []


def test_random_histories_equal_a_stack_of_copies(db: Engine, seed: int) -> None:
    rng = random.Random(seed)
    session = db.session()
    table(session)
    for _ in range(20):
        content = dict(rows(session, ALL))
        stack: list[tuple[str, dict[int, int]]] = []
        for _ in range(40):
            chance, name = rng.random(), rng.choice("abc")
            found = [place for place, each in enumerate(stack) if each[0] == name]
            if chance < 0.2:
                run(session, f"SAVEPOINT {name}")
                stack.append((name, content.copy()))
            elif chance < 0.35 and found:
                run(session, f"ROLLBACK TO {name}")
                del stack[found[-1] + 1 :]
                content = stack[-1][1].copy()
            elif chance < 0.4 and found:
                run(session, f"RELEASE {name}")
                del stack[found[-1] :]
            elif chance < 0.45:
                db.database.run_checkpoint()
            elif chance < 0.6:
                number = rng.randrange(20)
                run(session, "DELETE FROM t WHERE id = ?", number)
                content.pop(number, None)
            else:
                number, value = rng.randrange(20), rng.randrange(1000)
                run(session, "UPSERT INTO t VALUES (?, ?)", number, value)
                content[number] = value
            assert dict(rows(session, ALL)) == content
        session.commit()
        if rng.random() < 0.3:
            db.reopen()
            session = db.session()
        assert dict(rows(session, ALL)) == content


def test_records_of_rows_on_both_sides_have_their_own_numbers(db: Engine, session: Session) -> None:
    run(session, "SAVEPOINT a")
    run(session, INSERT, 3, 30)
    run(session, "ROLLBACK TO a")
    run(session, INSERT, 4, 40)
    session.commit()
    found = [each for each in records(db, Rows) if isinstance(each, Rows) and each.tx is not None]
    undone = [each for each in records(db, RollbackTo) if isinstance(each, RollbackTo)]
    assert len(undone) == 1
    assert found[-2].statement >= undone[0].statement
    assert found[-1].statement > found[-2].statement


def test_a_manifest_of_an_older_program_has_definitions_without_statements() -> None:
    plain = OpenTransaction((1, 1), 0, 5, 0, [], [("t", None)])
    assert checkpoint._defined_of(plain) == [(0, [("t", None)], [])]
    assert checkpoint._defined_of(OpenTransaction((1, 1), 0, 5, 0, [], [])) == []
