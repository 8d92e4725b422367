"""Statements and COMMITs of many rows hold the monitor for some at a time; still all or nothing."""

from collections.abc import Callable, Iterator
from itertools import count
from threading import Event, Thread
from typing import Any

import pytest

from herdpy.config import Config
from herdpy.engine.maintenance.checkpoint import freeze
from herdpy.engine.session.session import Session
from herdpy.engine.state import applier, tablespace
from herdpy.engine.writes import row_writes
from herdpy.errors import DiskFullError, IntegrityError, InternalError
from herdpy.log.interfaces import LogSpaceError
from herdpy.storage.table_pages import TablePages
from tests.crash.checks import check_digest
from tests.fixtures.engines import Engine, attempt_and_wait, engine, rows, run
from tests.fixtures.interrupts import LineInterrupter
from tests.sim.disk import SimulatedDisk
from tests.unit.herdpy.engine.test_keyboard_interrupt import FIRST_LINE, STRIDE

PART = 10
ROWS = 95
STATEMENTS = {
    "INSERT": "INSERT INTO e SELECT id, v FROM t",
    "INSERT without key": "INSERT INTO h SELECT id, v FROM t",
    "INSERT of some": "INSERT INTO half SELECT id, v FROM t ON CONFLICT DO NOTHING",
    "INSERT of some, UPDATE of others": "INSERT INTO half SELECT id, v FROM t "
    "ON CONFLICT (id) DO UPDATE SET v = half.v + excluded.v WHERE half.id % 4 = 0",
    "UPDATE": "UPDATE t SET v = v + 1",
    "UPDATE by others": "UPDATE t SET v = half.v + 7 FROM half WHERE half.id = t.id",
    "UPDATE of keys": "UPDATE t SET id = id + 1",
    "UPDATE without key": "UPDATE h SET v = v + 1",
    "DELETE": "DELETE FROM t",
}
TABLES = ("t", "e", "h", "half", "small")

Between = Callable[[Callable[[], object]], None]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """Have something done between two visits to the monitor; parts are small."""
    for module in (tablespace, row_writes):
        monkeypatch.setattr(module, "monitor_rows_max", PART)
    monkeypatch.setattr(tablespace, "monitor_locks_max", PART)
    monkeypatch.setattr(tablespace, "let_others_in", lambda: None)

    def watch(act: Callable[[], object]) -> None:
        def act_once_at_a_time() -> None:
            monkeypatch.setattr(tablespace, "let_others_in", lambda: None)
            try:
                act()
            finally:
                watch(act)

        monkeypatch.setattr(tablespace, "let_others_in", act_once_at_a_time)

    return watch


@pytest.fixture
def db(between: Between) -> Iterator[Engine]:
    with engine() as made:
        beside_others(made)
        yield made


def beside_others(db: Engine) -> None:
    """As if other sessions ran statements all the time."""
    db.database.tablespace.has_others = db.database.tablespace.others_run = lambda: True


def filled(db: Engine, *, autocommit: bool = False) -> Session:
    session = db.session(autocommit=autocommit)
    for name in TABLES:
        key = "" if name == "h" else " PRIMARY KEY"
        run(session, f"CREATE TABLE {name} (id BIGINT{key}, v BIGINT)")
    pairs = [(number, number) for number in range(ROWS)]
    for name, step in (("t", 1), ("half", 2), ("h", 1)):
        session.execute_many(f"INSERT INTO {name} VALUES (?, ?)", pairs[::step])
    session.commit()
    return session


def contents(session: Session) -> list[list[tuple[Any, ...]]]:
    return [rows(session, f"SELECT id, v FROM {name} ORDER BY id, v") for name in TABLES]


class WatchedMonitor:
    """The monitor of a tablespace; `most`: how many rows and locks one visit has changed."""

    def __init__(self, db: Engine) -> None:
        self._tablespace = db.database.tablespace
        self._monitor = self._tablespace.monitor
        self._before: list[int] = []
        self.most = 0
        self._tablespace.monitor = self  # type: ignore[assignment]

    def _counts(self) -> list[int]:
        transactions = self._tablespace.applier.transactions.values()
        state = self._tablespace.applier.state
        made = [table for each in transactions if each.ahead for table in each.ahead.made.values()]
        memtables = [table.memtable for table in state.tables.values()]
        return [
            sum(each.change_count for each in transactions),
            sum(len(memtable.touched) for memtable in (*memtables, *made)),
            len(self._tablespace.locks.held()),
        ]

    def __enter__(self) -> bool:
        self._monitor.acquire()
        self._before = self._counts()
        return True

    def __exit__(self, *_: object) -> None:
        now = self._counts()
        # At the end of a transaction its write set goes, at once.
        changed = [now[0] - self._before[0], now[1] - self._before[1]]
        changed.append(abs(now[2] - self._before[2]))
        self.most = max(self.most, *changed)
        self._monitor.release()

    def acquire(self, *arguments: Any) -> bool:
        return self._monitor.acquire(*arguments)

    def release(self) -> None:
        self._monitor.release()


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize("end", ["autocommit", "commit", "rollback"])
def test_a_statement_that_is_alone_lets_none_in(between: Between, name: str, end: str) -> None:
    came: list[int] = []
    with engine() as db:
        session = filled(db, autocommit=end == "autocommit")
        before = contents(session)
        session.rollback()
        between(lambda: came.append(1))
        run(session, STATEMENTS[name])
        if end == "commit":
            session.commit()
        elif end == "rollback":
            session.rollback()
        assert not came
        assert (contents(session) == before) == (end == "rollback")
        session.rollback()
        assert db.locks == {}
        check_digest(db.database)
        other = db.session()
        run(session, "UPDATE half SET v = v + 1")
        assert not came  # it runs no statement
        with other.making_rows(session.latest):
            run(session, "UPDATE half SET v = v + 1")
        assert came
        other.close()


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize("end", ["autocommit", "commit", "rollback"])
def test_one_visit_changes_few_rows(db: Engine, name: str, end: str) -> None:
    session = filled(db, autocommit=end == "autocommit")
    before = contents(session)
    session.rollback()
    monitor = WatchedMonitor(db)
    run(session, STATEMENTS[name])
    if end == "commit":
        session.commit()
    elif end == "rollback":
        session.rollback()
    assert 0 < monitor.most <= 2 * PART + 1  # a changed key is two changes; and the table's lock
    assert (contents(session) == before) == (end == "rollback")
    session.rollback()
    assert db.locks == {}
    kept = contents(db.session())
    check_digest(db.database)
    db.reopen()
    assert contents(db.session()) == kept


def test_a_table_that_the_transaction_makes(db: Engine) -> None:
    session = db.session()
    run(session, "CREATE TABLE made (id BIGINT PRIMARY KEY, v BIGINT)")
    pairs = [(number, number) for number in range(ROWS)]
    session.execute_many("INSERT INTO made VALUES (?, ?)", pairs)
    monitor = WatchedMonitor(db)
    session.commit()
    assert 0 < monitor.most <= PART
    assert rows(db.session(), "SELECT id, v FROM made ORDER BY id") == pairs
    db.reopen()
    assert rows(db.session(), "SELECT id, v FROM made ORDER BY id") == pairs


def test_a_table_that_the_transaction_makes_and_spills_into(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few spilled rows go into the new memtable, beside those that came there by parts."""
    monkeypatch.setattr(row_writes, "memory_changes_max", ROWS + 1)
    session = filled(db)
    run(session, STATEMENTS["UPDATE"])
    run(session, "CREATE TABLE made (id BIGINT PRIMARY KEY, v BIGINT)")
    run(session, "INSERT INTO made SELECT id, 1 FROM t WHERE id < 20")
    assert db.database.tablespace.state.staged.stages
    run(session, "INSERT INTO made VALUES (100, 2)")
    session.commit()
    expected = [*((number, 1) for number in range(20)), (100, 2)]
    assert rows(db.session(), "SELECT id, v FROM made ORDER BY id") == expected
    check_digest(db.database)
    db.database.run_checkpoint()
    db.reopen()
    assert rows(db.session(), "SELECT id, v FROM made ORDER BY id") == expected


def test_what_came_by_parts_is_not_looked_up_in_spilled_pages(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writes, "memory_changes_max", ROWS - 1)
    session = filled(db)
    run(session, STATEMENTS["UPDATE"])
    run(session, "UPDATE t SET v = v + 1 WHERE id < 50")
    looked_up: list[object] = []
    get = TablePages.get

    def counted(self: TablePages, key: Any) -> Any:
        looked_up.append(key)
        return get(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(TablePages, "get", counted)
        session.commit()
    assert not looked_up
    expected = [(number, number + 1 + (number < 50)) for number in range(ROWS)]
    assert rows(db.session(), "SELECT id, v FROM t ORDER BY id") == expected


@pytest.mark.parametrize("durability", ["sync", "none"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_no_reader_sees_a_part(db: Engine, between: Between, name: str, durability: str) -> None:
    session = filled(db)
    session.rollback()
    before = contents(session)
    session.rollback()
    session.begin(durability)
    reader, seen = db.session(autocommit=True), []
    between(lambda: seen.append(contents(reader)))
    run(session, STATEMENTS[name])
    assert seen
    assert all(each == before for each in seen)
    own = contents(session)
    seen.clear()
    between(lambda: seen.append(contents(reader)))
    session.commit()
    assert len(seen) > ROWS // PART // 2
    assert all(each in (before, own) for each in seen)
    assert before in seen
    assert contents(reader) == own


@pytest.mark.parametrize("is_vector", [False, True])
def test_what_other_sessions_do_meanwhile(db: Engine, between: Between, is_vector: bool) -> None:
    """Commits on another table, vector reads that keep an overlay, and checkpoints."""
    session, other = filled(db), db.session(autocommit=True, durability="none")
    numbers, done = count(), []

    def act() -> None:
        number = next(numbers)
        done.append(number)
        if number % 3 == 0:
            db.database.run_checkpoint()
        elif is_vector:
            rows(other, "SELECT count(*), sum(v) FROM t GROUP BY v % 2")
        else:
            run(other, "INSERT INTO small VALUES (?, ?)", number, number)

    between(act)
    run(session, STATEMENTS["UPDATE"])
    run(session, STATEMENTS["INSERT"])
    session.commit()
    assert len(done) > ROWS // PART
    expected = [(number, number + 1) for number in range(ROWS)]
    assert rows(session, "SELECT id, v FROM t ORDER BY id") == expected
    assert rows(session, "SELECT id, v FROM e ORDER BY id") == expected
    assert rows(other, "SELECT sum(v) FROM t") == [(sum(range(ROWS + 1)),)]
    small = [] if is_vector else [(number, number) for number in done if number % 3]
    assert rows(other, "SELECT id, v FROM small ORDER BY id") == small
    session.rollback()
    kept = contents(db.session())
    db.reopen()
    assert contents(db.session()) == kept


def test_a_checkpoint_begins_with_whole_commits_only(db: Engine, between: Between) -> None:
    """Its pages have what was visible: later versions would go with the memtable."""
    session = filled(db)
    session.rollback()
    run(session, STATEMENTS["UPDATE"])
    space, is_begun = db.database.tablespace, []

    def act() -> None:
        if space.is_applying and not is_begun:
            is_begun.append(True)
            state = freeze(space).state
            memtables = [frozen for table in state.tables.values() for frozen in table.frozen]
            assert memtables
            newest = [version[0] for each in memtables for version in each.chains.values()]
            assert max(newest) <= state.position

    between(act)
    session.commit()
    assert is_begun
    between(lambda: None)
    db.database.run_checkpoint()
    db.reopen()
    expected = [(number, number + 1) for number in range(ROWS)]
    assert rows(db.session(), "SELECT id, v FROM t ORDER BY id") == expected


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_log_without_room_undoes_the_statement(
    db: Engine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    session = filled(db)
    run(session, "INSERT INTO small VALUES (1, 1)")
    before, left = contents(session), count(4, -1)
    space = db.database.tablespace
    append = space.log.append

    def full(entry: Any, *, is_urgent: bool = False) -> None:
        if not is_urgent and next(left) <= 0:
            raise LogSpaceError
        append(entry, is_urgent=is_urgent)

    def refuse(*_: object, **__: object) -> None:
        raise DiskFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(space.log, "append", full)
        patch.setattr(row_writes, "with_log_space", _refusing(refuse))
        with pytest.raises(DiskFullError):
            run(session, STATEMENTS[name])
    assert contents(session) == before
    run(session, "INSERT INTO small VALUES (2, 2)")
    session.commit()
    after = contents(db.session())
    assert after[:4] == before[:4]
    assert after[4] == [(1, 1), (2, 2)]
    db.reopen()
    assert contents(db.session()) == after


@pytest.mark.parametrize("name", ["UPDATE", "DELETE"])
def test_a_statement_that_the_log_has_no_room_to_undo_yet(
    db: Engine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nothing shows it, and nothing else of the transaction brings it back."""
    session = filled(db)
    point = "SELECT v FROM t WHERE id = ?"
    for number in range(2):  # the second one by the fast path
        assert rows(session, point, number) == [(number,)]
    run(session, "INSERT INTO small VALUES (1, 1)")
    before, left = contents(session), count(4, -1)
    log = db.database.tablespace.log
    append = log.append

    def full(entry: Any, *, is_urgent: bool = False) -> None:
        if next(left) <= 0:
            raise LogSpaceError
        append(entry, is_urgent=is_urgent)

    def refuse(*_: object, **__: object) -> None:
        raise DiskFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(log, "append", full)
        patch.setattr(row_writes, "with_log_space", _refusing(refuse))
        with pytest.raises(DiskFullError):
            run(session, STATEMENTS[name])
        (transaction,) = db.database.tablespace.applier.transactions.values()
        assert transaction.cut is not None
        fast = attempt_and_wait(session, point, [1])
        assert fast is None or fast[1] == [(1,)]
        assert [rows(session, point, number) for number in (0, 1)] == [[(0,)], [(1,)]]
        assert contents(session) == before
        assert run(session, "INSERT INTO t SELECT id, 0 FROM t ON CONFLICT DO NOTHING") == 0
        assert contents(session) == before
    with pytest.raises(IntegrityError):
        run(session, "INSERT INTO t VALUES (1, -1)")
    session.commit()
    assert contents(db.session()) == before
    db.reopen()
    assert contents(db.session()) == before


def _refusing(refuse: Callable[..., None]) -> Callable[..., Any]:
    def with_log_space(_space: Any, step: Callable[[], Any], **_: object) -> Any:
        try:
            return step()
        except LogSpaceError:
            refuse()

    return with_log_space


def test_who_goes_on_with_a_commit_sees_that_it_is_not_over(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while another thread is just doing a part: else nobody would do the next one."""
    session = filled(db)
    run(session, STATEMENTS["UPDATE"])
    space, seen = db.database.tablespace, []
    put_ahead = applier.Applier.put_ahead

    def watched(self: applier.Applier, *given: Any) -> bool:
        seen.append(space.is_applying)
        return put_ahead(self, *given)

    monkeypatch.setattr(applier.Applier, "put_ahead", watched)
    session.commit()
    assert len(seen) >= ROWS // PART
    assert all(seen[1:])
    assert not space.is_applying


class SharedMonitor:
    """The monitor of a tablespace, to which another thread comes as soon as a visitor has left it.

    `other` goes on until it stops, holding the monitor, and says so by `is_amid`. It goes on when
    another one has to wait for the monitor.
    """

    def __init__(self, monitor: Any, other: Thread) -> None:
        self._monitor = monitor
        self._other = other
        self.is_amid, self.may_go_on = Event(), Event()

    def stop(self) -> None:
        self.is_amid.set()
        self.may_go_on.wait()

    def __enter__(self) -> None:
        if not self._monitor.acquire(False):
            self.may_go_on.set()
            self._monitor.acquire()

    def __exit__(self, *_: object) -> None:
        self._monitor.release()
        if self._other.ident is None:
            self._other.start()
            self.is_amid.wait()


def test_all_is_applied_where_another_thread_is_amid_it(db: Engine) -> None:
    """What is behind a large COMMIT is not applied as soon as that is: sim-server, seed 107."""
    sessions = filled(db), db.session()
    run(sessions[0], STATEMENTS["UPDATE"])
    run(sessions[1], "INSERT INTO small VALUES (1, 1)")
    space = db.database.tablespace
    large, small = (each.transaction for each in sessions)
    assert large is not None
    assert small is not None
    with space.monitor:
        space.log_commit(large)
        space.log_commit(small)
    other = Thread(target=space.finish)
    monitor, shared = space.monitor, SharedMonitor(space.monitor, other)
    large.outcome.on_done(shared.stop)
    space.monitor = shared  # type: ignore[assignment]
    try:
        space.apply_log()
        assert shared.is_amid.is_set()
        assert space.state.lsn == space.log.last_lsn
    finally:
        shared.may_go_on.set()
        other.join()
        space.monitor = monitor
    assert rows(db.session(), "SELECT id FROM small") == [(1,)]


def test_a_part_of_a_commit_that_breaks_stops_the_tablespace(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = filled(db)
    run(session, STATEMENTS["UPDATE"])
    put_ahead, calls = applier.Applier.put_ahead, count(1)

    def breaking(self: applier.Applier, *given: Any) -> bool:
        if next(calls) > 3:
            raise ValueError("broken")
        return put_ahead(self, *given)

    monkeypatch.setattr(applier.Applier, "put_ahead", breaking)
    with pytest.raises(ValueError, match="broken"):
        session.commit()
    assert not db.database.tablespace.is_applying
    monkeypatch.undo()
    db.reopen()
    assert rows(db.session(), "SELECT sum(v) FROM t") == [(sum(range(ROWS + 1)),)]


def test_a_failed_statement_leaves_the_transaction_going_on(db: Engine, between: Between) -> None:
    session = filled(db)
    run(session, "INSERT INTO e VALUES (90, 0)")
    own = contents(session)
    with pytest.raises(IntegrityError):
        run(session, STATEMENTS["INSERT"])
    assert contents(session) == own
    calls = count(1)

    def stop() -> None:
        if next(calls) == 15:  # behind the locks, among the parts
            raise KeyboardInterrupt

    between(stop)
    with pytest.raises(KeyboardInterrupt):
        run(session, STATEMENTS["UPDATE"])
    between(lambda: None)
    assert contents(session) == own
    run(session, "INSERT INTO small VALUES (3, 3)")
    run(session, STATEMENTS["UPDATE"])
    session.commit()
    assert rows(session, "SELECT sum(v) FROM t") == [(sum(range(ROWS + 1)),)]
    assert rows(session, "SELECT id FROM small") == [(3,)]


def test_a_crash_behind_a_checkpoint_in_the_middle_of_a_statement_that_fails(
    between: Between,
) -> None:
    """What the transaction had made of a row before counts, so it is listed."""
    disk = SimulatedDisk(1)
    db = Engine(disk=disk)
    beside_others(db)
    session = filled(db)
    run(session, "UPDATE t SET v = 1000 WHERE id = 1")
    run(session, "DELETE FROM t WHERE id = 2")
    calls = count(1)

    def act() -> None:
        number = next(calls)
        if number == 13:  # behind the locks, among the parts
            db.database.run_checkpoint()
        elif number == 15:
            raise KeyboardInterrupt

    between(act)
    with pytest.raises(KeyboardInterrupt):
        run(session, "UPDATE t SET v = v + 1")
    between(lambda: None)
    session.commit()
    kept = contents(db.session())
    assert kept[0][:3] == [(0, 0), (1, 1000), (3, 3)]
    with engine(disk=disk.crash()) as crashed:
        assert contents(crashed.session()) == kept


def test_a_commit_behind_an_interrupted_rollback_is_none(db: Engine, between: Between) -> None:
    session = filled(db)
    session.rollback()
    before = contents(db.session())
    run(session, STATEMENTS["UPDATE"])
    calls = count(1)

    def stop() -> None:
        if next(calls) == 3:
            raise KeyboardInterrupt

    between(stop)
    with pytest.raises(KeyboardInterrupt):
        session.rollback()
    between(lambda: None)
    with pytest.raises(InternalError, match="ROLLBACK that was interrupted"):
        session.commit()
    assert contents(session) == before
    session.commit()
    assert db.locks == {}


def test_more_rows_than_are_kept_in_memory_spill(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writes, "memory_changes_max", 2 * ROWS - 1)
    session = filled(db)
    run(session, STATEMENTS["UPDATE"])
    assert not db.database.tablespace.state.staged.stages
    run(session, STATEMENTS["UPDATE"])
    run(session, STATEMENTS["INSERT"])
    assert db.database.tablespace.state.staged.stages
    session.commit()
    expected = [(number, number + 2) for number in range(ROWS)]
    assert rows(session, "SELECT id, v FROM t ORDER BY id") == expected
    assert rows(session, "SELECT id, v FROM e ORDER BY id") == expected


def test_small_statements_behind_many_rows_do_not_spill(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writes, "memory_changes_max", ROWS)
    session, other = filled(db), db.session(autocommit=True)
    run(session, STATEMENTS["UPDATE"])
    for number in range(0, 20, 2):
        run(session, "UPDATE half SET v = -1 WHERE id + 0 = ?", number)
    assert not db.database.tablespace.state.staged.stages
    run(other, "UPDATE half SET v = -2 WHERE id = 30")
    session.commit()
    expected = [(number, -1) for number in range(0, 20, 2)] + [(30, -2)]
    assert rows(other, "SELECT id, v FROM half WHERE v < 0 ORDER BY id") == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("act", ["statement", "autocommit", "commit", "rollback"])
def test_an_interrupt_at_any_line(between: Between, act: str) -> None:
    text = "UPDATE t SET id = id + 1, v = v + 1"
    old = [(number, number) for number in range(25)]
    new = [(number + 1, number + 1) for number in range(25)]
    for number in count(FIRST_LINE, STRIDE):
        with engine(config=Config(log_file_bytes_first=64 * 1024)) as db:
            session = db.session(autocommit=act == "autocommit", durability="none")
            run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            session.execute_many("INSERT INTO t VALUES (?, ?)", old)
            session.commit()
            if act in ("commit", "rollback"):
                run(session, text)
            interrupter = LineInterrupter(number)
            try:
                with interrupter:
                    if act == "commit":
                        session.commit()
                    elif act == "rollback":
                        session.rollback()
                    else:
                        run(session, text)
            except KeyboardInterrupt:
                pass
            try:
                _check(db, session, act, old, new)
            except BaseException as error:
                error.add_note(f"interrupted at line {number}: {interrupter.where}")
                raise
        if not interrupter.where:
            break


def _check(
    db: Engine, session: Session, act: str, old: list[tuple[int, int]], new: list[tuple[int, int]]
) -> None:
    text = "SELECT id, v FROM t ORDER BY id"
    if act == "rollback":  # the program does it again
        session.rollback()
    own, other = rows(session, text), db.session(autocommit=True)
    assert own in {"rollback": (old,), "commit": (new,)}.get(act, (old, new))
    if act == "statement":
        assert rows(other, text) == old
    run(session, "INSERT INTO t VALUES (100, 1)")
    run(session, "UPDATE t SET v = v + 0 WHERE id < 50")
    session.commit()
    assert rows(other, text) == [*own, (100, 1)]
    assert db.locks == {}
    assert not db.database.tablespace.is_applying
    db.database.run_checkpoint()
    db.reopen()
    assert rows(db.session(), text) == [*own, (100, 1)]
