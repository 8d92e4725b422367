"""Locks: order, time-outs, deadlocks, cancel, table locks; the table alone and with threads."""

import queue
import threading
from collections.abc import Iterator

import pytest

from herdpy.engine.state.locks import LockTable, Mode, Resource, Waiter
from herdpy.errors import (
    DeadlockError,
    IdleInTransactionError,
    InternalError,
    LockTimeoutError,
    QueryCanceledError,
)
from herdpy.exec.vector.duck import VectorResult
from tests.fixtures.engines import (
    Background,
    Engine,
    WatchedDriver,
    engine,
    race_of_inserts,
    rows,
    run,
    table,
)
from tests.sim.clock import SimulatedClock
from tests.sim.driver import SimulatedDriver

ALL = "SELECT id, v FROM t ORDER BY id"
ROW: Resource = (1, (7,))
TABLE: Resource = (1,)


class Owner:
    """An owner of locks."""

    def __init__(self) -> None:
        self.locks: list[Resource] = []
        self.waits_for: Waiter | None = None
        self.is_undone = False
        self.abort_error: Exception | None = None


# --- the table of locks alone ------------------------------------------------------------------


@pytest.mark.parametrize("others", [0, 1, 2])
def test_many_locks_are_given_up_at_once(others: int) -> None:
    table, owner, other, waiter = LockTable(), Owner(), Owner(), Owner()
    for sharer in (owner, other):
        assert table.acquire(sharer, TABLE, Mode.SHARED) is None
    keys = [(number,) for number in range(3000)]
    assert table.acquire_rows(owner, 1, keys) is None
    assert table.acquire_rows(owner, 1, keys) is None  # as a statement that is run again does
    assert table.acquire_rows(other, 2, keys[:others]) is None
    for row in keys:
        assert table.is_taken(other, (1, row))
    table.release_all(owner)
    table.release_all(owner)
    assert owner.locks == []
    assert table.acquire_rows(waiter, 1, keys) is None
    assert list(table.held()[TABLE]) == [other]
    for number in range(3):
        assert table.is_taken(waiter, (2, (number,))) is (number < others)
    assert table.acquire(waiter, TABLE, Mode.EXCLUSIVE) is not None
    table.release_all(other)
    assert list(table.held()[TABLE]) == [waiter]


def test_many_locks_that_are_waited_for_are_handed_over() -> None:
    table, owner, waiter = LockTable(), Owner(), Owner()
    keys = [(number,) for number in range(3000)]
    assert table.acquire_rows(owner, 1, keys) is None
    ticket = table.acquire(waiter, ROW, Mode.EXCLUSIVE)
    assert ticket is not None
    table.release_all(owner)
    assert ticket.is_done
    assert table.is_taken(owner, ROW)
    assert not table.is_taken(owner, (1, (8,)))


def test_a_thousand_waiters_wake_in_the_order_of_their_requests() -> None:
    table, holder = LockTable(), Owner()
    assert table.acquire(holder, ROW, Mode.EXCLUSIVE) is None
    waiters = [Owner() for _ in range(1000)]
    woken: list[int] = []
    for number, waiter in enumerate(waiters):
        ticket = table.acquire(waiter, ROW, Mode.EXCLUSIVE)
        assert ticket is not None
        ticket.on_done(lambda number=number: woken.append(number))
    table.release_all(holder)
    for number, waiter in enumerate(waiters):
        assert woken == list(range(number + 1))  # one at a time
        assert table.acquire(waiter, ROW, Mode.EXCLUSIVE) is None  # asked again, as a session does
        table.release_all(waiter)
    assert table.held() == {}


def test_nobody_barges_in_before_a_waiter() -> None:
    table, reader, writer, late = LockTable(), Owner(), Owner(), Owner()
    assert table.acquire(reader, TABLE, Mode.SHARED) is None
    first = table.acquire(writer, TABLE, Mode.EXCLUSIVE)
    second = table.acquire(late, TABLE, Mode.SHARED)
    assert first is not None
    assert second is not None
    table.release_all(reader)
    assert first.is_done
    assert not second.is_done
    table.release_all(writer)
    assert second.is_done


def test_an_upgrade_goes_before_those_who_wait_for_its_share() -> None:
    table, owner, writer = LockTable(), Owner(), Owner()
    assert table.acquire(owner, TABLE, Mode.SHARED) is None
    ticket = table.acquire(writer, TABLE, Mode.EXCLUSIVE)
    assert ticket is not None
    assert table.acquire(owner, TABLE, Mode.EXCLUSIVE) is None
    assert not ticket.is_done
    table.release_all(owner)
    assert ticket.is_done


def test_two_upgrades_of_one_lock_are_a_deadlock() -> None:
    table, a, b = LockTable(), Owner(), Owner()
    assert table.acquire(a, TABLE, Mode.SHARED) is None
    assert table.acquire(b, TABLE, Mode.SHARED) is None
    ticket = table.acquire(a, TABLE, Mode.EXCLUSIVE)
    assert ticket is not None
    with pytest.raises(DeadlockError):
        table.acquire(b, TABLE, Mode.EXCLUSIVE)
    table.release_all(b)
    assert ticket.is_done


def test_a_circle_of_many_is_found_by_the_one_who_closes_it() -> None:
    table, owners = LockTable(), [Owner() for _ in range(100)]
    for number, owner in enumerate(owners):
        assert table.acquire(owner, (1, (number,)), Mode.EXCLUSIVE) is None
    for number, owner in enumerate(owners[:-1]):
        assert table.acquire(owner, (1, (number + 1,)), Mode.EXCLUSIVE) is not None
    with pytest.raises(DeadlockError):
        table.acquire(owners[-1], (1, (0,)), Mode.EXCLUSIVE)
    for owner in reversed(owners):
        assert owner.waits_for is None or not owner.waits_for.ticket.is_done
        table.release_all(owner)
    assert table.held() == {}


def test_who_leaves_the_queue_does_not_hold_up_those_behind() -> None:
    table, reader, writer, late = LockTable(), Owner(), Owner(), Owner()
    table.acquire(reader, TABLE, Mode.SHARED)
    table.acquire(writer, TABLE, Mode.EXCLUSIVE)
    ticket = table.acquire(late, TABLE, Mode.SHARED)
    assert ticket is not None
    table.abandon(writer)
    assert ticket.is_done
    assert table.held() == {TABLE: [reader, late]}


# --- sessions ----------------------------------------------------------------------------------


def test_a_lock_whose_grant_was_interrupted_is_not_granted_twice() -> None:
    """Its owner gives up before it is told, and the releaser comes back afterwards."""
    table = LockTable()
    first, second, third = Owner(), Told(), Owner()
    table.acquire(first, (7,), Mode.EXCLUSIVE)
    assert table.acquire(second, (7,), Mode.EXCLUSIVE) is not None
    with pytest.raises(KeyboardInterrupt):
        table.release_all(first)
    table.release_all(second)
    table.release_all(first)
    assert table.held() == {}
    assert table.acquire(third, (7,), Mode.SHARED) is None


class Told(Owner):
    """The releaser that ends its wait is interrupted then, once."""

    def __setattr__(self, name: str, value: object) -> None:
        waited = vars(self).get("waits_for")
        super().__setattr__(name, value)
        if waited is not None and name == "waits_for" and not vars(self).get("is_told"):
            self.is_told = True
            raise KeyboardInterrupt


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine(driver=WatchedDriver(), is_threaded=True) as made:
        yield made


def next_wait(db: Engine, name: str) -> None:
    """Wait until the thread of that name waits."""
    driver = db.driver
    assert isinstance(driver, WatchedDriver)
    while driver.waits.get() != name:
        pass


@pytest.fixture
def still() -> Iterator[Engine]:
    """A database whose time passes only by waiting."""
    clock = SimulatedClock()
    with engine(clock=clock, driver=SimulatedDriver(clock, lambda ticket: False)) as made:
        yield made


def test_lock_timeout_is_55p03_and_leaves_the_transaction(still: Engine) -> None:
    a, b = still.session(), still.session(lock_timeout_s=2.0)
    table(a, (1, 10), (2, 20))
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    run(b, "UPDATE t SET v = 21 WHERE id = 2")
    with pytest.raises(LockTimeoutError) as caught:
        run(b, "UPDATE t SET v = 11 WHERE id = 1")
    assert caught.value.sqlstate == "55P03"
    assert still.clock.monotonic() == 2.0
    b.commit()
    a.rollback()
    assert rows(a, ALL) == [(1, 10), (2, 21)]


def test_statement_timeout_ends_a_wait_with_57014(still: Engine) -> None:
    a, b = still.session(), still.session(statement_timeout_s=3.0, lock_timeout_s=10.0)
    table(a, (1, 10))
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    with pytest.raises(QueryCanceledError, match="statement_timeout") as caught:
        run(b, "DELETE FROM t")
    assert caught.value.sqlstate == "57014"
    assert still.clock.monotonic() == 3.0


def test_statement_timeout_ends_a_scan(still: Engine) -> None:
    a = still.session(statement_timeout_s=5.0)
    table(a, *((i, i) for i in range(5000)))
    cursor = a.execute(ALL, ())
    assert cursor.fetch_many(1) == [(0, 0)]
    assert isinstance(still.clock, SimulatedClock)
    still.clock.advance(5.0)
    with pytest.raises(QueryCanceledError, match="statement_timeout"):
        cursor.fetch_many(5000)


def test_a_deadlock_has_one_victim_and_the_other_goes_on(db: Engine) -> None:
    a, b = db.session(), db.session()
    table(a, (1, 10), (2, 20))
    run(a, "UPDATE t SET v = 11 WHERE id = 1")
    run(b, "UPDATE t SET v = 22 WHERE id = 2")
    with Background() as background:
        background.start(lambda: run(a, "UPDATE t SET v = 21 WHERE id = 2"), "a")
        next_wait(db, "a")
        with pytest.raises(DeadlockError) as caught:
            run(b, "UPDATE t SET v = 12 WHERE id = 1")
        assert caught.value.sqlstate == "40P01"
    a.commit()
    # Going on as if nothing had happened would commit the rest without the beginning.
    for goes_on in (lambda: rows(b, ALL), lambda: run(b, "DELETE FROM t"), b.begin, b.commit):
        assert b.in_transaction
        with pytest.raises(InternalError, match="rolled back before") as lost:
            goes_on()
        assert lost.value.sqlstate == "25P02"
    assert not b.in_transaction  # COMMIT ended it, though not as a success
    assert rows(b, ALL) == [(1, 11), (2, 21)]
    b.commit()
    assert db.locks == {}


def test_cancel_while_waiting_for_a_lock(db: Engine) -> None:
    a, b = db.session(), db.session()
    table(a, (1, 10))
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    found: list[QueryCanceledError] = []

    def wait() -> None:
        with pytest.raises(QueryCanceledError) as caught:
            run(b, "UPDATE t SET v = 1 WHERE id = 1")
        found.append(caught.value)

    with Background() as background:
        background.start(wait, "b")
        next_wait(db, "b")
        b.cancel()
    assert [error.sqlstate for error in found] == ["57014"]
    a.commit()
    run(b, "UPDATE t SET v = v + 1 WHERE id = 1")
    b.commit()
    assert rows(a, ALL) == [(1, 1)]


def test_cancel_while_scanning_rows(db: Engine) -> None:
    a = db.session()
    table(a, *((i, i) for i in range(5000)))
    cursor = a.execute(ALL, ())
    assert cursor.fetch_many(1) == [(0, 0)]
    with Background() as background:
        background.start(a.cancel)
    with pytest.raises(QueryCanceledError):
        cursor.fetch_many(5000)
    assert rows(a, "SELECT v FROM t WHERE id = 3") == [(3,)]


HEAVY = "SELECT count(*) FROM t a CROSS JOIN t b CROSS JOIN t c WHERE a.v + b.v + c.v = -1"


@pytest.mark.parametrize("how", ["cancel", "statement_timeout"])
def test_a_query_inside_duckdb_is_stopped(
    db: Engine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    a = db.session(statement_timeout_s=0.0 if how == "cancel" else 0.2)
    table(a, *((i, i) for i in range(10_000)))
    is_running = threading.Event()
    start = VectorResult.start

    def start_and_tell(self: VectorResult, *arguments: object) -> None:
        is_running.set()
        start(self, *arguments)

    monkeypatch.setattr(VectorResult, "start", start_and_tell)
    is_over = threading.Event()

    def cancel() -> None:
        is_running.wait()
        while not is_over.is_set():  # again: a cancel may come before DuckDB listens
            a.cancel()

    with Background() as background:
        if how == "cancel":
            background.start(cancel)
        try:
            with pytest.raises(QueryCanceledError) as caught:
                rows(a, HEAVY)
        finally:
            is_over.set()
    assert caught.value.sqlstate == "57014"
    assert ("statement_timeout" in str(caught.value)) == (how != "cancel")
    a.rollback()
    assert len(db.database.vector_of(None)._results) == 0


def test_drop_table_waits_for_those_who_wrote_to_it(db: Engine) -> None:
    a, b, c = db.session(), db.session(autocommit=True), db.session(lock_timeout_s=0.01)
    table(a, (1, 10))
    run(a, "UPDATE t SET v = 11 WHERE id = 1")
    with Background() as background:
        background.start(lambda: run(b, "DROP TABLE t"), "b")
        next_wait(db, "b")
        with pytest.raises(LockTimeoutError):  # behind the DROP, in order
            run(c, "INSERT INTO t VALUES (2, 20)")
        assert rows(c, ALL) == [(1, 10)]  # readers never wait
        a.commit()
    with pytest.raises(Exception, match="42P01"):
        rows(a, ALL)


def test_a_writer_waits_for_ddl_and_sees_its_outcome(db: Engine) -> None:
    a, b = db.session(), db.session(autocommit=True)
    table(a, (1, 10))
    run(a, "DROP TABLE t")
    run(a, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, w BIGINT)")
    with Background() as background:
        background.start(lambda: run(b, "INSERT INTO t (id, v) VALUES (1, 11)"), "b")
        next_wait(db, "b")
        a.commit()
    assert rows(a, "SELECT id, v, w FROM t") == [(1, 11, None)]


def test_a_transaction_without_effect_leaves_no_lock_behind_begin(db: Engine) -> None:
    a, b = db.session(autocommit=True), db.session(autocommit=True, lock_timeout_s=5.0)
    table(a, (1, 10))
    run(a, "BEGIN")
    assert run(a, "UPDATE t SET v = 0 WHERE id = 99") == 0
    run(a, "BEGIN")
    run(a, "COMMIT")
    run(b, "DROP TABLE t")


def test_threads_that_wait_for_one_row_get_it_in_order(db: Engine) -> None:
    a = db.session()
    table(a, (1, 0))
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    order: queue.SimpleQueue[int] = queue.SimpleQueue()

    def work(number: int) -> None:
        session = db.session()
        run(session, "UPDATE t SET v = v + 1 WHERE id = 1")
        order.put(number)
        session.commit()

    with Background() as background:
        for number in range(50):
            background.start(lambda number=number: work(number), f"t{number}")
            next_wait(db, f"t{number}")
        a.commit()
    assert [order.get() for _ in range(50)] == list(range(50))
    assert rows(a, ALL) == [(1, 50)]


def test_of_32_threads_that_insert_one_key_one_wins(db: Engine) -> None:
    table(db.session())
    found = race_of_inserts(lambda: db.session(autocommit=True), rounds=100)
    assert rows(db.session(), ALL) == found


def test_idle_in_transaction_is_rolled_back_and_said_once(still: Engine) -> None:
    a, b = still.session(idle_in_transaction_timeout_s=10.0), still.session(lock_timeout_s=1.0)
    table(a, (1, 10))
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    assert isinstance(still.clock, SimulatedClock)
    still.clock.advance(9.0)
    still.database.run_maintenance_once()
    assert a.in_transaction
    run(a, "UPDATE t SET v = 1 WHERE id = 1")
    still.clock.advance(9.0)
    still.database.run_maintenance_once()
    assert a.in_transaction
    still.clock.advance(1.0)
    still.database.run_maintenance_once()
    assert run(b, "UPDATE t SET v = 11 WHERE id = 1") == 1
    b.commit()
    with pytest.raises(IdleInTransactionError) as caught:
        rows(a, ALL)
    assert caught.value.sqlstate == "25P03"
    with pytest.raises(InternalError) as again:
        rows(a, ALL)
    assert again.value.sqlstate == "25P02"
    run(a, "ROLLBACK")
    assert not a.in_transaction
    assert rows(a, ALL) == [(1, 11)]
    a.rollback()
    still.reopen()
    assert rows(still.session(), ALL) == [(1, 11)]


@pytest.mark.parametrize("ending", ["commit", "rollback", "close"])
def test_the_end_of_a_transaction_lost_to_idleness(still: Engine, ending: str) -> None:
    a = still.session(idle_in_transaction_timeout_s=10.0)
    table(a, (1, 10))
    run(a, "UPDATE t SET v = 0 WHERE id = 1")
    assert isinstance(still.clock, SimulatedClock)
    still.clock.advance(10.0)
    still.database.run_maintenance_once()
    if ending == "commit":
        with pytest.raises(IdleInTransactionError):
            a.commit()
    elif ending == "rollback":
        a.rollback()
    else:
        a.close()
    assert rows(still.session(), ALL) == [(1, 10)]
