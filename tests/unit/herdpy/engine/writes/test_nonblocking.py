"""Writes without a wait: as far as COMMIT in the log, or not at all."""

import threading

import pytest

from herdpy.engine.session.activity import killed_error
from herdpy.engine.writes.nonblocking import PendingWrite
from herdpy.errors import Error, IntegrityError, OperationalError
from herdpy.model.durability import Durability
from tests.fixtures.engines import Engine, attempt, begin_write, engine, rows, run, table
from tests.fixtures.held_disk import HeldDisk
from tests.sim.disk import SimulatedDisk

INSERT = "INSERT INTO t VALUES (?, ?)"
UPDATE = "UPDATE t SET v = v + ? WHERE id = ?"
DELETE = "DELETE FROM t WHERE id = ?"
ALL = "SELECT id, v FROM t ORDER BY id"


def known(db: Engine) -> None:
    """Have the statements of this file planned; the table has the rows 1 and 2."""
    session = db.session(autocommit=True)
    table(session, (1, 10), (2, 20))
    for text, parameters in ((INSERT, (90, 1)), (UPDATE, (0, 90)), (DELETE, (90,))):
        session.execute(text, parameters)


def test_as_execute_does_it() -> None:
    with engine() as db:
        known(db)
        session = db.session(autocommit=True)
        for text, parameters, count in (
            (INSERT, (3, 30), 1),
            (UPDATE, (5, 3), 1),
            (UPDATE, (5, 77), 0),
            (DELETE, (1,), 1),
            (DELETE, (1,), 0),
        ):
            begun = begin_write(db.database, session, text, parameters)
            assert begun is not None, text
            assert begun.row_count == count
            assert (begun.outcome is None) == (count == 0)
            assert begun.outcome is None or begun.outcome.is_done
            session.end_write(begun)
        assert rows(session, ALL) == [(2, 20), (3, 35)]
        assert db.locks == {}
        db.reopen()
        assert rows(db.session(), ALL) == [(2, 20), (3, 35)]


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        (INSERT, (5, 1)),
        (INSERT, (5, None)),
        ("INSERT INTO t (id) VALUES (?)", (5,)),
        ("INSERT INTO t VALUES (?, 7)", (5,)),
        ("INSERT INTO t VALUES (?, ?) ON CONFLICT DO NOTHING", (5, 1)),
        ("INSERT INTO t VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET v = excluded.v", (2, 1)),
        ("UPSERT INTO t VALUES (?, ?)", (2, 1)),
        (UPDATE, (1, 2)),
        ("UPDATE t SET v = 3 * v WHERE id = ?", (2,)),
        ("UPDATE t SET v = ? WHERE id = ?", (1, 2)),
        (DELETE, (2,)),
    ],
)
def test_what_is_short(text: str, parameters: tuple[int, ...]) -> None:
    with engine() as db:
        known(db)
        session = db.session()
        session.execute(text, parameters)
        session.rollback()
        assert isinstance(attempt(session, text, parameters), PendingWrite)


def test_it_returns_before_the_disk_and_shows_nothing_before_its_outcome() -> None:
    disk = SimulatedDisk(1)
    with engine(disk=disk, is_threaded=True) as db:
        known(db)
        held = HeldDisk(disk)
        writer, reader = db.session(autocommit=True), db.session(autocommit=True)
        held.hold()
        try:
            begun = begin_write(db.database, writer, INSERT, (3, 30))
            assert begun is not None
            assert begun.outcome is not None
            held.until_reached()  # by another thread
            assert not begun.outcome.is_done
            assert rows(reader, ALL) == [(1, 10), (2, 20)]
            assert attempt(writer, INSERT, (4, 40)) is None  # one at a time
            assert attempt(writer, "SELECT v FROM t WHERE id = ?", (1,)) is None
            done = threading.Event()
            begun.outcome.on_done(done.set)
        finally:
            held.release()
        done.wait()
        writer.end_write(begun)
        assert rows(reader, ALL) == [(1, 10), (2, 20), (3, 30)]
        assert isinstance(attempt(writer, INSERT, (4, 40)), PendingWrite)


def test_what_would_wait_has_no_effect() -> None:
    with engine() as db:
        known(db)
        holder, session = db.session(), db.session(autocommit=True)
        run(holder, UPDATE, 1, 2)
        before = db.locks
        for text, parameters in ((UPDATE, (5, 2)), (DELETE, (2,)), (INSERT, (2, 5))):
            assert attempt(session, text, parameters) is None, text
            assert db.locks == before
        holder.commit()
        assert db.locks == {}
        assert run(session, UPDATE, 5, 2) == 1
        assert rows(session, ALL) == [(1, 10), (2, 26)]


def test_a_transaction_goes_on_behind_what_would_wait() -> None:
    with engine() as db:
        known(db)
        holder, session = db.session(), db.session()
        run(holder, UPDATE, 1, 2)
        begun = attempt(session, INSERT, (3, 30))  # begins the transaction
        assert begun is not None
        assert begun.outcome is None
        session.end_write(begun)
        assert attempt(session, UPDATE, (5, 2)) is None
        assert session.in_transaction
        assert attempt(session, UPDATE, (5, 1)) is not None
        holder.rollback()
        assert attempt(session, UPDATE, (5, 2)) is not None
        assert rows(db.session(), ALL) == [(1, 10), (2, 20)]
        session.commit()
        assert rows(db.session(), ALL) == [(1, 15), (2, 25), (3, 30)]
        assert db.locks == {}


@pytest.mark.parametrize("autocommit", [True, False])
def test_errors_are_those_of_execute(autocommit: bool) -> None:
    with engine() as db:
        known(db)
        texts = []
        for run_it in (run, lambda session, text, *values: attempt(session, text, values)):
            session = db.session(autocommit=autocommit)
            with pytest.raises(IntegrityError) as caught:
                run_it(session, INSERT, 1, 1)
            texts.append(str(caught.value))
            session.rollback()
        assert texts[0] == texts[1]
        assert db.locks == {}


def test_only_short_writes_that_came_before() -> None:
    with engine() as db:
        known(db)
        session = db.session(autocommit=True)
        for text, parameters in (
            ("UPDATE t SET v = ?", (5,)),
            ("DELETE FROM t WHERE v = ?", (5,)),
            ("INSERT INTO t VALUES (?, ?), (100, 1)", (101, 5)),
            ("UPDATE t SET v = length(repeat('x', v)) WHERE id = ?", (5,)),  # may take long
            ("UPDATE t SET v = v WHERE id = ? AND v IN (SELECT v FROM t)", (5,)),
            ("DELETE FROM t WHERE id = ? AND v % 2 = 5", (5,)),
            ("INSERT INTO t VALUES (?, length(repeat('x', ?)))", (102, 3)),
        ):
            session.execute(text, parameters).close()
            assert attempt(session, text, parameters) is None, text
        assert attempt(session, "DELETE FROM t WHERE id =  ?", (1,)) is None  # never seen
        assert attempt(session, INSERT, ("a", "b")) is None  # of other classes
        run(session, "DROP TABLE t")
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        assert attempt(session, INSERT, (1, 1)) is None  # planned for another table


def test_what_others_hold_is_left_alone() -> None:
    with engine() as db:
        known(db)
        session = db.session(autocommit=True)
        with db.database.tablespace.monitor:
            assert attempt(session, INSERT, (3, 1)) is None
        with session.mutex:
            assert attempt(session, INSERT, (3, 1)) is None
        session = db.session(autocommit=True, durability=Durability.OS)
        assert attempt(session, INSERT, (3, 1)) is None


def test_a_log_that_fails_is_told_by_the_outcome() -> None:
    disk = SimulatedDisk(1)
    db = Engine(disk=disk, is_threaded=True)
    known(db)
    session = db.session(autocommit=True)

    def fail(op: str, path: str) -> None:
        if op == "sync":
            raise OSError(5, "Input/output error")

    disk.latency = fail
    begun = begin_write(db.database, session, INSERT, (3, 30))
    assert begun is not None
    assert begun.outcome is not None
    done = threading.Event()
    begun.outcome.on_done(done.set)
    done.wait()
    with pytest.raises(Error):
        session.end_write(begun)
    assert attempt(session, INSERT, (4, 40)) is None
    with pytest.raises(Error):
        session.run(INSERT, (4, 40))
    disk.latency = None
    db.database.close()


def test_a_killed_session_writes_nothing() -> None:
    with engine() as db:
        known(db)
        session = db.session(autocommit=True)
        session.kill(killed_error())
        assert attempt(session, INSERT, (3, 30)) is None
        with pytest.raises(OperationalError) as caught:
            session.run(INSERT, (3, 30))
        assert caught.value.sqlstate == "57P01"


def test_what_does_not_wait_for_the_disk_is_written_all_the_same() -> None:
    disk = SimulatedDisk(1)
    with engine(disk=disk, is_threaded=True) as db:
        run(db.session(autocommit=True), "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        session = db.session(autocommit=True, durability=Durability.NONE)
        run(session, INSERT, 0, "a")
        log = db.database.tablespace.log
        written = threading.Event()

        def note(op: str, path: str) -> None:
            if op == "sync" and threading.current_thread().name == "herdpy-syncer":
                written.set()

        disk.latency = note
        number = 0
        while log.bytes_appended < 3_000_000:
            number += 1
            begun = begin_write(db.database, session, INSERT, (number, "x" * 1000))
            if begun is None:  # the log is being made longer
                run(session, INSERT, number, "x" * 1000)
                continue
            assert begun.outcome is not None
            assert begun.outcome.is_done
            session.end_write(begun)
        written.wait()
