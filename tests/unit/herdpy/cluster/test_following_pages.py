"""Commits that give pages to tables, on a copy that follows: whatever its maintenance does."""

import errno
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from herdpy.config import Config
from herdpy.engine.maintenance.file_logs import LogSource
from herdpy.engine.state import page_adoption
from herdpy.errors import Error, OperationalError, Retry
from herdpy.log.followed_log import FollowedLog
from herdpy.model.lsn import Lsn
from herdpy.storage.manifest import LEDGER_LOG
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Background, Engine, rows, run
from tests.fixtures.held_disk import HeldDisk
from tests.fixtures.ledger_logs import LedgerHome
from tests.fixtures.small_sizes import small_sizes
from tests.sim.disk import SimulatedCrash, SimulatedDisk

FOLLOWED = LogSource(LEDGER_LOG, lambda _: FollowedLog(), leads=False)
ROWS = 60
MANY = 200
ALL = "SELECT * FROM t ORDER BY id"
OPERATIONS = ("append", "upsert", "replace", "ignore", "delete", "update")
Records = list[tuple[Lsn, bytes]]


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


@pytest.fixture
def home() -> Iterator[LedgerHome]:
    home = LedgerHome(ledger_bytes_max=1 << 20)
    yield home
    home.close()


@pytest.fixture
def leader(home: LedgerHome) -> Iterator[Engine]:
    db = Engine(driver=home.driver, logs=LogSource(LEDGER_LOG, lambda _: home.open()))
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    session.execute_many("INSERT INTO t VALUES (?, ?)", [(2 * n, n) for n in range(ROWS)])
    yield db
    db.close()


class Copy:
    """A copy on a simulated disk, whose segments a test may hold."""

    def __init__(self, home: LedgerHome) -> None:
        self.home = home
        self.disk = SimulatedDisk(7)
        self.held = HeldDisk(self.disk, "/segments/")
        self.engine = Engine(disk=self.disk, driver=home.driver, logs=FOLLOWED)

    @property
    def database(self) -> Any:
        return self.engine.database

    @property
    def replica(self) -> Any:
        return self.database.replica

    @property
    def digest(self) -> str:
        return state_digest(self.database.tablespace)

    @property
    def kept_rows(self) -> int:
        """How many rows memtables keep."""
        tables = self.database.tablespace.state.tables.values()
        return sum(len(memtable) for table in tables for memtable in table.memtables)

    def new(self) -> Records:
        return list(self.home.follow(self.database.tablespace.state.lsn))

    def catch_up(self) -> None:
        if records := self.new():
            self.replica.follow(records)

    def restart(self) -> None:
        """Open what a power failure leaves."""
        self.disk = self.disk.restart(3)
        self.held = HeldDisk(self.disk, "/segments/")
        self.engine.disk = self.disk
        self.engine.open()


@pytest.fixture
def copy(home: LedgerHome) -> Iterator[Copy]:
    made = Copy(home)
    yield made
    made.held.release()
    made.disk.heal()
    made.engine.close()


class RingingMutex:
    """A mutex that calls `ring` before a thread waits for it."""

    def __init__(self, inner: Any, ring: Callable[[], object]) -> None:
        self._inner = inner
        self._ring = ring

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._inner.acquire(False):
            return True
        self._ring()
        return self._inner.acquire(blocking, timeout)

    def release(self) -> None:
        self._inner.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def stage(db: Engine, operation: str, job: str = "job") -> Callable[[], object]:
    """Stage many rows by two tasks, some of them of keys that are there; return the commit."""
    staging = db.session(autocommit=True).staging
    staging.begin("t", operation, job)
    first = 1 if operation == "append" else 0
    stages: list[int] = []
    for task in range(2):
        ids = pa.array(range(first + 2 * task * MANY, first + 2 * (task + 1) * MANY, 2), pa.int64())
        names = {"id": ids} if operation == "delete" else {"id": ids, "v": ids}
        number, _ = staging.begin_stage(job, str(task), "0")
        staging.add(number, 0, pa.record_batch(names))
        staging.finish_stage(number)
        stages.append(number)
    return lambda: staging.commit(job, stages)


def spill(db: Engine) -> Callable[[], object]:
    """Have a transaction spill its changes; return the commit."""
    session = db.session()
    session.execute_many("INSERT INTO t VALUES (?, ?)", [(10_000 + n, n) for n in range(5)])
    run(session, "UPDATE t SET v = v + 1")
    run(session, "DELETE FROM t WHERE id > 20 AND id < 40")
    run(session, "UPSERT INTO t VALUES (30, 30)")
    return session.commit


def level(copy: Copy, leader: Engine) -> None:
    """Take in the rest, and compare the copy with the leader, over checkpoints and an opening."""
    expected = state_digest(leader.database.tablespace)
    copy.catch_up()
    assert copy.digest == expected
    for _ in range(2):
        copy.replica.run_checkpoint()
        while copy.replica.run_compaction():
            pass
        assert copy.digest == expected
        copy.engine.reopen()
        copy.catch_up()
        assert copy.digest == expected


def lease_with_versions(copy: Copy, leader: Engine) -> None:
    copy.replica.run_checkpoint()  # else there is a reason for one
    session = leader.session(autocommit=True)
    session.leasing.take(1000)
    if not leader.locks:
        run(session, "UPSERT INTO t VALUES (4, 444)")
        session.leasing.take(1000)
    copy.catch_up()
    assert copy.database.tablespace.applier.leases.has_versions


def failed_checkpoint(copy: Copy, leader: Engine) -> None:
    copy.disk.fail("open", errno.EIO, path="/segments/", times=1)
    with pytest.raises(OperationalError):
        copy.replica.run_checkpoint()
    (table,) = copy.database.tablespace.state.tables.values()
    assert table.frozen


def much_in_memory(copy: Copy, leader: Engine) -> None:
    assert copy.kept_rows > page_adoption.FEW_ROWS


def nothing(copy: Copy, leader: Engine) -> None:
    copy.replica.run_checkpoint()


SITUATIONS = [nothing, much_in_memory, lease_with_versions, failed_checkpoint]


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_staged_rows_stay_in_pages(
    leader: Engine, copy: Copy, operation: str, situation: Callable[[Copy, Engine], None]
) -> None:
    commit = stage(leader, operation)
    copy.catch_up()
    situation(copy, leader)
    commit()
    copy.catch_up()
    if operation != "update":  # whose rows are bounded by what a transaction may have
        assert copy.kept_rows <= page_adoption.FEW_ROWS, "staged rows take memory each"
    level(copy, leader)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_a_transaction_has_spilled_stays_in_pages(
    home: LedgerHome, copy: Copy, situation: Callable[[Copy, Engine], None]
) -> None:
    config = Config(log_file_bytes_first=64 * 1024, transaction_memory_bytes=1024)
    leader = Engine(
        driver=home.driver, logs=LogSource(LEDGER_LOG, lambda _: home.open()), config=config
    )
    session = leader.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    for number in range(ROWS):
        run(session, "INSERT INTO t VALUES (?, ?)", 2 * number, number)
    commit = spill(leader)
    assert any(each.has_spilled for each in leader.database.tablespace.open_transactions())
    copy.catch_up()
    situation(copy, leader)
    commit()
    copy.catch_up()
    assert copy.kept_rows <= page_adoption.FEW_ROWS
    level(copy, leader)
    leader.close()


def begin_checkpoint(copy: Copy) -> Callable[[], object]:
    return copy.replica.run_checkpoint


def begin_compaction(copy: Copy) -> Callable[[], object]:
    return copy.replica.run_compaction


def crowd(copy: Copy, leader: Engine) -> None:
    """Have the copy's table in several runs."""
    session = leader.session(autocommit=True)
    for number in range(12):
        run(session, "UPSERT INTO t VALUES (?, ?)", 4 * number, -number)
        copy.catch_up()
        copy.replica.run_checkpoint()
    run(session, "UPSERT INTO t VALUES (-1, 1)")
    copy.catch_up()


@pytest.mark.parametrize("begin", [begin_checkpoint, begin_compaction])
@pytest.mark.parametrize("operation", OPERATIONS[:-1])
def test_a_commit_waits_for_what_is_under_way(
    leader: Engine, copy: Copy, operation: str, begin: Callable[[Copy], Callable[[], object]]
) -> None:
    crowd(copy, leader)
    commit = stage(leader, operation)
    copy.catch_up()
    commit()
    before = rows(copy.engine.session(), ALL)
    seen: list[Any] = []

    def waits() -> None:
        seen.append(rows(copy.engine.session(), ALL))
        copy.held.release()

    copy.replica._maintenance = RingingMutex(copy.replica._maintenance, waits)
    copy.held.hold()
    with Background() as background:
        background.start(begin(copy))
        copy.held.until_reached()
        try:
            copy.catch_up()
        finally:
            copy.held.release()
    assert seen == [before], "none of the commit is seen before all of it is"
    assert rows(copy.engine.session(), ALL) == rows(leader.session(), ALL)
    assert copy.kept_rows <= page_adoption.FEW_ROWS
    level(copy, leader)


def test_a_take_over_takes_in_a_commit_that_waits(
    home: LedgerHome, leader: Engine, copy: Copy
) -> None:
    crowd(copy, leader)
    commit = stage(leader, "upsert")
    copy.catch_up()
    commit()
    expected = rows(leader.session(), ALL)
    copy.replica._maintenance = RingingMutex(copy.replica._maintenance, copy.held.release)
    copy.held.hold()
    with Background() as background:
        background.start(copy.replica.run_checkpoint)
        copy.held.until_reached()
        try:
            copy.replica.take_over(home.open(), home.epoch)
        finally:
            copy.held.release()
    session = copy.engine.session(autocommit=True)
    assert rows(session, ALL) == expected
    assert copy.kept_rows <= page_adoption.FEW_ROWS
    run(session, "UPSERT INTO t VALUES (1, 99)")
    third = Copy(home)
    third.catch_up()
    assert third.digest == copy.digest
    third.engine.close()


def test_a_copy_that_is_closed_takes_in_nothing_more(leader: Engine, copy: Copy) -> None:
    """While the checkpoint that it waits for does not end."""
    crowd(copy, leader)
    commit = stage(leader, "upsert")
    copy.catch_up()
    before = rows(copy.engine.session(), ALL)
    commit()
    waits = threading.Event()
    copy.replica._maintenance = RingingMutex(copy.replica._maintenance, waits.set)
    copy.held.hold()
    failed: list[Error] = []

    def follow() -> None:
        try:
            copy.catch_up()
        except Error as error:
            failed.append(error)
        finally:
            waits.set()

    following, other = Background(), Background()
    other.start(copy.replica.run_checkpoint)
    copy.held.until_reached()
    following.start(follow)
    waits.wait()
    copy.database.tablespace.end_hold()  # as the database does first
    following.join()
    assert [(each.sqlstate, each.retry) for each in failed] == [("57P03", Retry.SAFE)]
    assert rows(copy.engine.session(), ALL) == before
    copy.held.release()
    other.join()
    copy.engine.close()
    copy.engine.open()
    level(copy, leader)


def test_a_checkpoint_that_goes_on_failing_lets_nothing_in(leader: Engine, copy: Copy) -> None:
    """The commit is not applied by rows either: the copy is opened again, and has lost nothing."""
    commit = stage(leader, "upsert")
    copy.catch_up()
    before = rows(copy.engine.session(), ALL)
    commit()
    run(leader.session(autocommit=True), "UPSERT INTO t VALUES (1, 1)")
    copy.disk.fail("open", errno.EIO, path="/segments/", times=10**9)
    for _ in range(2):
        with pytest.raises(OperationalError) as caught:
            copy.catch_up()
        assert caught.value.sqlstate == "58030"
        assert rows(copy.engine.session(), ALL) == before
    copy.disk.heal()
    copy.engine.reopen()
    level(copy, leader)


@pytest.mark.parametrize("is_failed", [False, True])
def test_power_fails_at_any_step(leader: Engine, home: LedgerHome, *, is_failed: bool) -> None:
    """All of the commit is there or nothing, and the same state in the end."""
    commit = stage(leader, "upsert")
    first = Copy(home)
    first.catch_up()
    lease_with_versions(first, leader)
    first.engine.close()
    commit()
    expected = state_digest(leader.database.tablespace)
    step, found = 0, set[int]()
    is_over = False
    while not is_over:
        step += 1
        copy = Copy(home)
        *records, last = copy.new()
        copy.replica.follow(records)
        if is_failed:
            failed_checkpoint(copy, leader)
        copy.disk.crash_at = copy.disk.step_count + step
        try:
            copy.replica.follow([last])
            copy.replica.run_checkpoint()
            is_over = True
        except SimulatedCrash:
            pass
        copy.restart()
        if copy.database.tablespace.state.catalog.tables():
            query = "SELECT count(*) FROM t WHERE v = id AND id > 0"
            ((count,),) = rows(copy.engine.session(), query)
            found.add(count)
        copy.catch_up()
        assert copy.digest == expected
        copy.engine.close()
    assert found == {0, 2 * MANY - 1}
    assert step > 5
