"""A copy that follows: what it has, what it refuses, how it comes to lead."""

import itertools
import random
from collections.abc import Iterator

import pytest

from bookie.runtime.drivers import ThreadDriver
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_rng import OsRng
from herdpy.config import Config
from herdpy.engine.closing import run_all
from herdpy.engine.instance import Instance
from herdpy.engine.maintenance.file_logs import LogSource
from herdpy.engine.resources import Resources
from herdpy.errors import Error, InvariantViolation, OperationalError, Retry
from herdpy.log.followed_log import FollowedLog
from herdpy.log.interfaces import Append
from herdpy.model.lsn import Lsn
from herdpy.storage.manifest import LEDGER_LOG
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Engine, rows, run
from tests.fixtures.ledger_logs import LedgerHome

MIB = 1024 * 1024
FOLLOWED = LogSource(LEDGER_LOG, lambda _: FollowedLog(), leads=False)


@pytest.fixture
def home() -> Iterator[LedgerHome]:
    home = LedgerHome(ledger_bytes_max=8_192)
    yield home
    home.close()


@pytest.fixture
def leader(home: LedgerHome) -> Iterator[Engine]:
    db = Engine(driver=home.driver, logs=LogSource(LEDGER_LOG, lambda _: home.open()))
    yield db
    db.close()


@pytest.fixture
def copy(home: LedgerHome) -> Iterator[Engine]:
    db = Engine(driver=home.driver, logs=FOLLOWED)
    yield db
    db.close()


def catch_up(copy: Engine, home: LedgerHome, step: int = 7) -> None:
    """Have a copy take in what is durable, some records at once."""
    replica = copy.database.replica
    records = list(home.follow(replica.tablespace.state.lsn))
    for first in range(0, len(records), step):
        replica.follow(records[first : first + step])


def work(db: Engine, rng: random.Random, count: int) -> None:
    """Do what moves all kinds of state: rows, catalog, roles, leases, staged jobs, tokens."""
    session = db.session(autocommit=True)
    for _ in range(count):
        key = rng.randrange(50)
        kind = rng.randrange(9)
        if kind < 4:
            run(session, "UPSERT INTO t VALUES (?, ?)", key, "x" * rng.randrange(60))
        elif kind == 4:
            run(session, "DELETE FROM t WHERE id BETWEEN ? AND ?", key, key + 5)
        elif kind == 5:
            run(session, "INSERT INTO h VALUES (?)", key)
        elif kind == 6:
            run(session, f"CREATE TABLE IF NOT EXISTS x{key} (id BIGINT PRIMARY KEY)")
        elif kind == 7:
            session.leasing.take(1000)
        else:
            other = db.session()
            for each in range(3):
                run(other, "UPSERT INTO t VALUES (?, 'together')", key + each)
            (other.commit if rng.random() < 0.7 else other.rollback)()
            other.close()
    session.close()


def tables(db: Engine) -> None:
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    run(session, "CREATE TABLE h (v BIGINT)")
    session.close()


@pytest.mark.parametrize("number", range(4))
def test_a_copy_has_what_the_leader_has_whatever_either_checkpoints(
    home: LedgerHome, leader: Engine, copy: Engine, number: int
) -> None:
    rng = random.Random(number)
    tables(leader)
    holder = leader.session()
    run(holder, "INSERT INTO t VALUES (999, 'open')")
    for _ in range(5):
        work(leader, rng, 25)
        for db in (leader, copy):
            if rng.random() < 0.4:
                db.database.run_checkpoint()
        leader.database.tablespace.sync_log()
        catch_up(copy, home, rng.choice((1, 7, 100)))
        assert state_digest(copy.database.tablespace) == state_digest(leader.database.tablespace)
        if rng.random() < 0.4:
            copy.reopen()
            catch_up(copy, home)
            expected = state_digest(leader.database.tablespace)
            assert state_digest(copy.database.tablespace) == expected
    holder.close()


def test_a_copy_reads_and_refuses_to_write(home: LedgerHome, leader: Engine, copy: Engine) -> None:
    tables(leader)
    work(leader, random.Random(1), 40)
    catch_up(copy, home)
    expected = rows(leader.session(), "SELECT * FROM t ORDER BY id")
    session = copy.session()
    assert rows(session, "SELECT * FROM t ORDER BY id") == expected
    session.commit()
    for text in (
        "INSERT INTO t VALUES (1000, 'x')",
        "DELETE FROM t",
        "CREATE TABLE u (id BIGINT PRIMARY KEY)",
        "CREATE ROLE r",
    ):
        with pytest.raises(OperationalError) as caught:
            run(copy.session(autocommit=True), text)
        assert (caught.value.sqlstate, caught.value.retry) == ("25006", Retry.SAFE)
    with pytest.raises(Error) as caught:
        copy.session(autocommit=True).leasing.take(10)
    assert caught.value.sqlstate == "25006"
    copy.database.run_maintenance_once()  # which has no duties of a leader
    assert state_digest(copy.database.tablespace) == state_digest(leader.database.tablespace)
    with pytest.raises(InvariantViolation, match="I7"):
        FollowedLog().append(Append((b"x",)))


def test_a_copy_comes_to_lead_behind_all_that_was_acknowledged(
    home: LedgerHome, leader: Engine, copy: Engine
) -> None:
    tables(leader)
    work(leader, random.Random(2), 30)
    catch_up(copy, home)
    holder = leader.session()
    run(holder, "INSERT INTO t VALUES (999, 'open')")
    work(leader, random.Random(3), 600)  # more than is taken in at once
    expected = rows(leader.session(), "SELECT * FROM t ORDER BY id")
    (lease, *_) = leader.database.tablespace.applier.leases
    copy.database.replica.take_over(home.open(), home.epoch)
    session = copy.session(autocommit=True)
    assert rows(session, "SELECT * FROM t ORDER BY id") == expected
    assert not copy.database.tablespace.open_transactions()
    run(session, "INSERT INTO t VALUES (999, 'free')")
    run(session, "INSERT INTO h VALUES (1)")
    assert copy.database.tablespace.applier.leases.find(lease.id) is not None
    with pytest.raises(Error):
        holder.commit()
    third = Engine(driver=home.driver, logs=FOLLOWED)
    catch_up(third, home)
    found = copy.database.tablespace
    assert state_digest(third.database.tablespace) == state_digest(found)
    third.close()


def test_a_copy_that_begins_at_its_checkpoint_gives_no_row_id_twice(
    home: LedgerHome, leader: Engine, copy: Engine
) -> None:
    tables(leader)
    session = leader.session(autocommit=True)
    for number in range(20):
        run(session, "INSERT INTO h VALUES (?)", number)
    catch_up(copy, home)
    copy.database.run_checkpoint()
    copy.reopen()
    copy.database.replica.take_over(home.open(), home.epoch)
    session = copy.session(autocommit=True)
    for number in range(20, 40):
        run(session, "INSERT INTO h VALUES (?)", number)
    assert rows(session, "SELECT v FROM h ORDER BY v") == [(number,) for number in range(40)]


def test_a_copy_leads_at_the_end_of_the_log_alone(
    home: LedgerHome, leader: Engine, copy: Engine
) -> None:
    """I1, I3: neither behind what it lacks, nor under an epoch that the log knows."""
    tables(leader)
    catch_up(copy, home)
    work(leader, random.Random(4), 30)
    log = home.opened(copy.database.tablespace.state.lsn)
    tablespace = copy.database.tablespace
    with pytest.raises(InvariantViolation, match="I1"):
        tablespace.lead(log, home.epoch)
    assert tablespace.is_held
    assert log.last_lsn > Lsn(*tablespace.state.lsn)
    other = Engine(driver=home.driver, logs=FOLLOWED)
    with pytest.raises(InvariantViolation, match="I3"):
        other.database.replica.take_over(home.open(), 0)
    other.close()


def test_what_a_copy_has_followed_since_its_checkpoint_counts_when_it_leads(
    home: LedgerHome, leader: Engine, copy: Engine
) -> None:
    tables(leader)
    work(leader, random.Random(5), 50)
    catch_up(copy, home)
    replica = copy.database.replica
    replica.run_checkpoint()
    pages_bytes = replica.disk_bytes()
    work(leader, random.Random(6), 100)
    catch_up(copy, home)
    followed_bytes = replica.disk_bytes() - pages_bytes
    assert followed_bytes > 1_000
    replica.take_over(home.open(), home.epoch)
    assert replica.disk_bytes() - pages_bytes >= followed_bytes
    before = replica.disk_bytes()
    run(copy.session(autocommit=True), "UPSERT INTO t VALUES (1, ?)", "x" * 5_000)
    assert replica.disk_bytes() >= before + 5_000


def test_a_copy_that_cannot_begin_a_ledger_does_not_lead(
    home: LedgerHome, leader: Engine, copy: Engine
) -> None:
    tables(leader)
    catch_up(copy, home)
    log = home.open()
    for bookie in list(home.cluster.bookies.values())[:2]:
        home.thread.call(bookie.kill())
    with pytest.raises(OperationalError, match="beginning a ledger"):
        copy.database.replica.take_over(log, home.epoch)
    assert copy.database.tablespace.follows


def test_a_copy_is_opened_anew_by_its_node_alone(copy: Engine) -> None:
    with pytest.raises(OperationalError) as caught:
        copy.database.reopen()
    assert caught.value.sqlstate == "55000"
    assert copy.database.tablespace.follows


def test_a_copy_writes_no_checkpoint_for_what_others_of_its_node_hold(
    home: LedgerHome, leader: Engine
) -> None:
    config = Config(memory_bytes_max=16 * MIB, memtable_share=0.05, disk_reserve_bytes=0)
    share, driver = config.memtable_bytes_max, ThreadDriver()
    node = Resources(clock=OsClock(), driver=driver, config=config, where="/data")
    own, other = node.carry("1" * 32, "own"), node.carry("2" * 32, "other")
    others = other.open_memory(config).memtables
    instance = Instance(
        disk=MemoryDisk(),
        clock=OsClock(),
        rng=OsRng(),
        driver=driver,
        config=config,
        logs=FOLLOWED,
        tenant=own,
    )
    replica = instance.start().replica
    try:
        tables(leader)
        session = leader.session(autocommit=True)

        def checkpoints_behind(row_count: int, others_bytes: int) -> int:
            """Follow so many rows of 1,000 bytes, one by one, beside what others hold."""
            others.set(others_bytes)
            before = replica.checkpoints.histogram.count
            for _ in range(row_count):
                run(session, "UPSERT INTO t VALUES (?, ?)", next(keys), "x" * 1_000)
            leader.database.tablespace.sync_log()
            for record in list(home.follow(replica.tablespace.state.lsn)):
                replica.follow([record])
            return replica.checkpoints.histogram.count - before

        keys = itertools.count()
        assert checkpoints_behind(100, int(1.4 * share)) == 0  # those of the other come first
        assert 0 < checkpoints_behind(200, 2 * share) <= 16  # but there is no room at all
        assert checkpoints_behind(200, 0) == 0
        assert 1 <= checkpoints_behind(500, share // 4) <= 3  # more than the two may have
        assert replica.tablespace.memtable_bytes() < share // 2
        session.close()
    finally:
        instance.close()
        run_all(node.closing_steps())
