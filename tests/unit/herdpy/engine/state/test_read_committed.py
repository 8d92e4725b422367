"""READ COMMITTED: what a statement sees, and which anomalies cannot happen."""

import threading
from collections.abc import Callable, Iterator

import pytest

from herdpy.engine.session.session import Session
from herdpy.engine.state.snapshots import TableSnapshot
from herdpy.engine.writes import row_writes
from herdpy.engine.writes.row_writes import Change, Write
from herdpy.errors import IntegrityError, LogFailedError, ProgrammingError, SerializationError
from tests.fixtures.engines import (
    Background,
    Engine,
    WatchedDriver,
    attempt,
    engine,
    rows,
    run,
    table,
)
from tests.sim.disk import SimulatedDisk

ALL = "SELECT id, v FROM t ORDER BY id"
POINT = "SELECT v FROM t WHERE id = ?"


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine() as made:
        yield made


def test_g0_writes_of_two_transactions_do_not_interleave(db: Engine) -> None:
    a, b = db.session(), db.session(lock_timeout_s=0.001)
    table(a, (1, 10), (2, 20))
    run(a, "UPDATE t SET v = 11 WHERE id = 1")
    with pytest.raises(Exception, match="55P03"):
        run(b, "UPDATE t SET v = 12 WHERE id = 1")
    run(a, "UPDATE t SET v = 21 WHERE id = 2")
    a.commit()
    run(b, "UPDATE t SET v = 12 WHERE id = 1")
    run(b, "UPDATE t SET v = 22 WHERE id = 2")
    b.commit()
    assert rows(a, ALL) == [(1, 12), (2, 22)]


def test_g1a_nobody_sees_what_is_rolled_back(db: Engine) -> None:
    a, b = db.session(), db.session()
    table(a, (1, 10))
    run(a, "UPDATE t SET v = 101 WHERE id = 1")
    assert rows(b, ALL) == [(1, 10)]
    assert rows(b, POINT, 1) == [(10,)]
    a.rollback()
    assert rows(b, ALL) == [(1, 10)]
    assert rows(a, ALL) == [(1, 10)]


def test_g1b_nobody_sees_an_intermediate_version(db: Engine) -> None:
    a, b = db.session(), db.session()
    table(a, (1, 10))
    run(a, "UPDATE t SET v = 101 WHERE id = 1")
    assert rows(b, ALL) == [(1, 10)]
    run(a, "UPDATE t SET v = 11 WHERE id = 1")
    a.commit()
    assert rows(b, ALL) == [(1, 11)]


def test_g1c_no_circle_of_information(db: Engine) -> None:
    a, b = db.session(), db.session()
    table(a, (1, 10), (2, 20))
    run(a, "UPDATE t SET v = 11 WHERE id = 1")
    run(b, "UPDATE t SET v = 22 WHERE id = 2")
    assert rows(a, POINT, 2) == [(20,)]
    assert rows(b, POINT, 1) == [(10,)]
    a.commit()
    b.commit()
    assert rows(a, ALL) == [(1, 11), (2, 22)]


def test_each_statement_sees_what_was_committed_before_it(db: Engine) -> None:
    a, b = db.session(), db.session()
    table(a, (1, 10))
    assert rows(a, ALL) == [(1, 10)]
    run(b, "UPDATE t SET v = 11 WHERE id = 1")
    b.commit()
    assert rows(a, ALL) == [(1, 11)]  # a non-repeatable read: allowed
    run(b, "INSERT INTO t VALUES (2, 20)")
    b.commit()
    assert rows(a, ALL) == [(1, 11), (2, 20)]  # a phantom: allowed


def test_own_writes_are_seen_by_later_statements_only(db: Engine) -> None:
    a = db.session()
    table(a, (1, 10), (2, 20))
    cursor = a.execute(ALL, ())
    run(a, "UPDATE t SET v = v + 1")
    run(a, "INSERT INTO t SELECT id + 2, v FROM t")  # does not feed on itself
    later = a.execute(ALL, ())
    run(a, "DELETE FROM t WHERE id = 1")
    assert list(cursor.rows()) == [(1, 10), (2, 20)]
    assert list(later.rows()) == [(1, 11), (2, 21), (3, 11), (4, 21)]
    assert rows(a, ALL) == [(2, 21), (3, 11), (4, 21)]


@pytest.mark.parametrize("text", [ALL, "SELECT id, sum(v) OVER (ORDER BY id) FROM t ORDER BY id"])
def test_an_open_cursor_outlives_commit_checkpoint_and_drop(db: Engine, text: str) -> None:
    a, b = db.session(), db.session()
    table(a, *((i, 1) for i in range(100)))
    run(a, "UPDATE t SET v = 2 WHERE id = 50")
    cursor = a.execute(text, ())
    found = cursor.fetch_many(10)
    run(a, "UPDATE t SET v = 3")
    a.commit()
    db.database.run_checkpoint()
    run(b, "DELETE FROM t WHERE id > 20")
    b.commit()
    db.database.run_checkpoint()
    run(b, "DROP TABLE t")
    b.commit()
    db.database.run_checkpoint()
    found += cursor.fetch_many(1000)
    values = [2 if i == 50 else 1 for i in range(100)]
    if text != ALL:
        values = [sum(values[: i + 1]) for i in range(100)]
    assert found == list(enumerate(values))


def test_lost_updates_are_impossible(db: Engine) -> None:
    threads, rounds = 8, 25
    table(db.session(), (1, 0))

    def work() -> None:
        session = db.session()
        for _ in range(rounds):
            run(session, "UPDATE t SET v = v + 1 WHERE id = 1")
            session.commit()

    with Background() as background:
        for _ in range(threads):
            background.start(work)
    assert rows(db.session(), ALL) == [(1, threads * rounds)]


def before_each_lock(
    monkeypatch: pytest.MonkeyPatch, other: Session, function: Callable[[], object]
) -> list[int]:
    """Run function between finding and locking in every statement but `other`'s; count them."""
    original = Write.find
    count = [0]

    def find(self: Write, source: TableSnapshot) -> tuple[list[Change], int]:
        result = original(self, source)
        if other.statement is None:
            count[0] += 1
            function()
        return result

    monkeypatch.setattr(Write, "find", find)
    return count


def test_a_row_changed_meanwhile_restarts_the_statement(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = db.session(), db.session(autocommit=True)
    table(a, (1, 10))
    values = iter([11])

    def change() -> None:
        for value in values:
            run(b, "UPDATE t SET v = ? WHERE id = 1", value)

    count = before_each_lock(monkeypatch, b, change)
    run(a, "UPDATE t SET v = v * 100 WHERE id = 1")
    monkeypatch.undo()
    a.commit()
    assert rows(a, ALL) == [(1, 1100)]
    assert count == [2]


@pytest.mark.parametrize("output", ["v", "v + 0 * length('x')"])
def test_rows_are_given_of_the_run_that_is_logged(
    db: Engine, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    a, b = db.session(), db.session(autocommit=True)
    table(a, (1, 10), (2, 20))
    values = iter([11])

    def change() -> None:
        for value in values:
            run(b, "UPDATE t SET v = ? WHERE id = 1", value)
            run(b, "DELETE FROM t WHERE id = 2")

    count = before_each_lock(monkeypatch, b, change)
    found = a.execute(f"UPDATE t SET v = v * 100 WHERE id < 3 RETURNING id, {output}")
    monkeypatch.undo()
    assert (list(found.rows()), found.row_count, count) == ([(1, 1100)], 1, [2])


ADDING = "INSERT INTO t VALUES (1, 5), (3, 5) ON CONFLICT (id) DO UPDATE SET v = t.v + excluded.v"


@pytest.mark.parametrize(
    ("change", "where", "expected"),
    [
        ("UPDATE t SET v = 11 WHERE id = 1", "", [(1, 16), (3, 5)]),
        ("DELETE FROM t WHERE id = 1", "", [(1, 5), (3, 5)]),
        ("INSERT INTO t VALUES (3, 30)", "", [(1, 15), (3, 35)]),
        ("UPDATE t SET v = 11 WHERE id = 1", " WHERE t.v = 11", [(1, 16), (3, 5)]),
        ("UPDATE t SET v = 11 WHERE id = 1", " WHERE t.v = 10", [(3, 5)]),
        ("UPDATE t SET v = 11 WHERE id = 1", " WHERE length('' || t.v) > 9", [(3, 5)]),
    ],
)
@pytest.mark.parametrize("has_many", [False, True])
def test_what_is_in_conflict_is_looked_at_again_under_its_lock(
    db: Engine,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    where: str,
    expected: list[tuple[int, int]],
    has_many: bool,
) -> None:
    a, b = db.session(), db.session(autocommit=True)
    table(a, (1, 10), (2, 20))
    if has_many:
        monkeypatch.setattr(row_writes, "monitor_rows_max", 1)
    changes = iter([change])
    count = before_each_lock(monkeypatch, b, lambda: [run(b, text) for text in changes])
    found = a.execute(f"{ADDING}{where} RETURNING id, v")
    monkeypatch.undo()
    assert (list(found.rows()), found.row_count, count) == (expected, len(expected), [2])
    a.commit()
    left = dict(rows(b, ALL))
    assert {key: left[key] for key, _ in expected} == dict(expected)
    assert left[1] == dict(expected).get(1, 11)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_do_update_waits_for_a_row_that_is_just_being_written(end: str) -> None:
    driver = WatchedDriver()
    with engine(driver=driver) as db:
        a, b = db.session(), db.session(autocommit=True)
        table(a, (1, 10))
        run(a, "INSERT INTO t VALUES (3, 30)")
        found: list[object] = []
        with Background() as background:
            background.start(lambda: found.append(rows(b, f"{ADDING} RETURNING v")))
            driver.waits.get()
            run(a, end)
        assert found == [[(15,), (35 if end == "COMMIT" else 5,)]]


def test_a_row_that_do_update_leaves_is_locked(db: Engine) -> None:
    a, b = db.session(), db.session(lock_timeout_s=0.001)
    table(a, (1, 10))
    assert run(a, f"{ADDING} WHERE t.v > 99") == 1
    with pytest.raises(Exception, match="55P03"):
        run(b, "UPDATE t SET v = 0 WHERE id = 1")
    a.commit()
    run(b, "UPDATE t SET v = 0 WHERE id = 1")


def test_a_joined_row_may_change_and_the_found_one_is_found_again(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = db.session(), db.session(autocommit=True)
    table(a, (1, 10), (2, 20))
    run(b, "CREATE TABLE o (id BIGINT, w BIGINT)")
    run(b, "INSERT INTO o VALUES (1, 100), (2, 200)")
    changes = iter(["UPDATE o SET w = 111 WHERE id = 1", "UPDATE t SET v = 11 WHERE id = 1"])
    count = before_each_lock(monkeypatch, b, lambda: [run(b, text) for text in changes])
    text = "UPDATE t SET v = t.v + o.w FROM o WHERE o.id = t.id RETURNING t.id, t.v, o.w"
    found = rows(a, text)
    monkeypatch.undo()
    assert (sorted(found), count) == ([(1, 122, 111), (2, 220, 200)], [2])


def test_a_statement_restarts_a_hundred_times_and_no_more(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = db.session(), db.session(autocommit=True)
    table(a, *((i, 1) for i in range(1, 150)))
    others = iter(range(1, 150))

    def change() -> None:  # what the last attempt locked is given up, as nothing in life does
        locks = db.database.tablespace.locks
        with db.database.tablespace.monitor:
            assert a.transaction is not None
            locks.release_all(a.transaction)
        run(b, "UPDATE t SET v = 2 WHERE id = ?", next(others))

    count = before_each_lock(monkeypatch, b, change)
    with pytest.raises(SerializationError) as caught:
        run(a, "UPDATE t SET v = v + 1 WHERE id > 0")
    monkeypatch.undo()
    assert caught.value.sqlstate == "40001"
    assert count == [101]
    a.rollback()
    assert db.locks == {}
    assert rows(a, "SELECT sum(v) FROM t") == [(149 + 101,)]


def test_a_row_deleted_meanwhile_is_not_updated(db: Engine) -> None:
    a, b = db.session(), db.session()
    table(a, (1, 10), (2, 20))
    run(a, "DELETE FROM t WHERE id = 1")
    started = threading.Event()

    def update() -> None:
        started.set()
        assert run(b, "UPDATE t SET v = v + 1") == 1
        b.commit()

    with Background() as background:
        background.start(update)
        started.wait()
        a.commit()
    assert rows(a, ALL) == [(2, 21)]


def test_a_failed_statement_is_undone_alone(db: Engine) -> None:
    a = db.session()
    table(a, (1, 10))
    run(a, "INSERT INTO t VALUES (2, 20)")
    with pytest.raises(IntegrityError):
        a.execute_many("INSERT INTO t VALUES (?, ?)", [(3, 30), (1, 0)])
    with pytest.raises(IntegrityError):
        a.execute_many("UPDATE t SET id = ? WHERE id = ?", [(7, 1), (7, 2)])
    a.commit()
    assert rows(a, ALL) == [(1, 10), (2, 20)]


def test_later_items_of_a_batch_see_the_earlier_ones(db: Engine) -> None:
    a = db.session(autocommit=True)
    table(a, (1, 10), (2, 20))
    changes = [(5, 1), (6, 1), (7, 2), (8, 3)]
    assert a.execute_many("UPDATE t SET v = v + ? WHERE id = ?", changes).row_count == 3
    assert rows(a, ALL) == [(1, 21), (2, 27)]
    assert a.execute_many("UPDATE t SET id = ? WHERE id = ?", [(3, 1), (1, 2)]).row_count == 2
    assert rows(a, ALL) == [(1, 27), (3, 21)]
    assert a.execute_many("DELETE FROM t WHERE id = ?", [(1,), (1,), (3,)]).row_count == 2
    assert rows(a, ALL) == []


def test_ddl_is_invisible_until_commit_and_undone_by_rollback(db: Engine) -> None:
    a, b = db.session(), db.session()
    run(a, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    run(a, "INSERT INTO t VALUES (1, 10)")
    assert rows(a, ALL) == [(1, 10)]
    with pytest.raises(ProgrammingError, match="42P01"):
        rows(b, ALL)
    a.rollback()
    with pytest.raises(ProgrammingError, match="42P01"):
        rows(a, ALL)
    table(a, (1, 11))
    assert rows(b, ALL) == [(1, 11)]
    run(a, "DROP TABLE t")
    with pytest.raises(ProgrammingError, match="42P01"):
        rows(a, ALL)
    assert rows(b, ALL) == [(1, 11)]
    a.rollback()
    assert rows(a, ALL) == [(1, 11)]


@pytest.mark.parametrize("is_committed", [False, True])
def test_ddl_over_a_checkpoint_and_a_reopen(db: Engine, *, is_committed: bool) -> None:
    a = db.session()
    table(a, (1, 10))
    run(a, "DROP TABLE t")
    run(a, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    run(a, "INSERT INTO t VALUES (1, 11)")
    db.database.run_checkpoint()
    run(a, "INSERT INTO t VALUES (2, 22)")
    if is_committed:
        a.commit()
    db.reopen()
    assert rows(db.session(), ALL) == ([(1, 11), (2, 22)] if is_committed else [(1, 10)])


def test_a_reader_never_sees_half_a_transfer(db: Engine) -> None:
    accounts, transfers = 10, 100
    table(db.session(), *((i, 100) for i in range(accounts)))
    is_over = threading.Event()

    def transfer(first: int) -> None:
        session = db.session()
        for n in range(transfers):
            low, high = sorted(((first + n) % accounts, (first * 3 + 7 * n + 1) % accounts))
            if low == high:
                continue
            run(session, "UPDATE t SET v = v - 1 WHERE id = ?", low)
            run(session, "UPDATE t SET v = v + 1 WHERE id = ?", high)
            session.commit()

    def checkpoint() -> None:
        while not is_over.is_set():
            db.database.run_checkpoint()

    def read() -> None:
        session = db.session(autocommit=True)
        while not is_over.is_set():
            assert sum(v for _, v in rows(session, ALL)) == 100 * accounts
            ((total,),) = rows(session, "SELECT sum(v) FROM t")
            assert total == 100 * accounts

    with Background() as others, Background() as writers:
        others.start(checkpoint)
        others.start(read)
        for first in range(3):
            writers.start(lambda first=first: transfer(first))
        writers.join()
        is_over.set()
    db.reopen()
    assert sum(v for _, v in rows(db.session(), ALL)) == 100 * accounts


def test_ddl_behind_a_checkpoint_is_not_in_it() -> None:
    """A checkpoint stands at the last applied record; DDL logged behind it comes by replay."""
    disk = SimulatedDisk(1)
    db = Engine(disk=disk)
    a, b = db.session(), db.session()
    table(b, (1, 10))
    run(a, "CREATE TABLE made (id BIGINT PRIMARY KEY)")
    run(b, "UPDATE t SET v = 11 WHERE id = 1")
    tablespace = db.database.tablespace
    assert b.transaction is not None
    tablespace.commit(b.transaction)  # logged, not yet synced: nothing behind is applied
    run(a, "INSERT INTO made VALUES (1)")
    run(a, "DROP TABLE made")
    run(a, "CREATE TABLE made (id BIGINT PRIMARY KEY, v BIGINT)")
    run(a, "INSERT INTO made VALUES (2, 2)")
    db.database.run_checkpoint()
    a.commit()
    after = Engine(disk=disk.crash(0))
    session = after.session()
    assert rows(session, ALL) == [(1, 11)]
    assert rows(session, "SELECT * FROM made") == [(2, 2)]
    after.database.close()
    with pytest.raises(LogFailedError):  # its disk is gone
        db.database.close()


def test_a_short_point_read_is_not_taken_from_the_middle_of_a_chain(db: Engine) -> None:
    """No snapshot is registered, so a version between two snapshots may go while it reads."""
    a, b = db.session(autocommit=True), db.session(autocommit=True)
    table(a, (1, 10))
    run(b, "UPDATE t SET v = 20 WHERE id = 1")
    keeper = b.execute(ALL, ())  # registers a position for good
    run(b, "UPDATE t SET v = 30 WHERE id = 1")
    assert rows(a, POINT, 1) == [(30,)]  # from now on the short way
    assert attempt(a, POINT, (1,)) is not None
    prepared = db.database.plans.latest[POINT]
    read = prepared.read_row
    assert read is not None
    values = iter([40, 50])

    def late(*arguments: object) -> object:
        for value in values:  # commits between taking the State and looking the row up
            run(b, "UPDATE t SET v = ? WHERE id = 1", value)
        return read(*arguments)

    prepared.read_row = late  # type: ignore[assignment]
    found = attempt(a, POINT, (1,))
    assert found is None or found[1] == [(50,)]
    assert list(keeper.rows()) == [(1, 20)]
