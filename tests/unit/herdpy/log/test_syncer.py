"""Syncers: inline when alone, one fsync for several, failures told, nothing left behind."""

import errno
import threading

import pytest

from bookie.runtime.drivers import ThreadDriver
from herdpy.errors import Error, InvariantViolation, LogFailedError
from herdpy.log.syncer import GroupSyncer, InlineSyncer, SyncThreads
from herdpy.model.durability import Durability
from herdpy.model.lsn import START_LSN, Lsn
from tests.fixtures.logs import LogHome, put
from tests.fixtures.memory_log import MemoryLog
from tests.sim.disk import SimulatedDisk


def ignore(_: Lsn) -> None:
    """Not of interest."""


def fail(told: object) -> None:
    raise AssertionError(told)


def test_inline_does_what_is_asked() -> None:
    log = LogHome(SimulatedDisk(7)).opened()
    calls: list[Lsn] = []
    syncer = InlineSyncer(log, calls.append, fail)
    put(log, b"a")
    syncer.request(Durability.NONE)
    assert log.written_lsn < log.last_lsn
    assert calls == []
    syncer.request(Durability.OS)
    assert log.durable_lsn < log.written_lsn == log.last_lsn
    syncer.request(Durability.SYNC)
    assert log.durable_lsn == log.last_lsn
    assert calls == [START_LSN, log.last_lsn]
    log.close()


def test_none_bounds_what_is_in_memory() -> None:
    log = LogHome(SimulatedDisk(7), max_file_bytes=1 << 20).opened()
    syncer = InlineSyncer(log, ignore, fail)
    for _ in range(40):
        put(log, b"x" * 50_000)
        syncer.request(Durability.NONE)
    assert log.written_lsn > put(log, b"y")._replace(entry_id=0)
    assert log.written_lsn.entry_id > 0
    log.close()


def test_inline_tells_a_failure() -> None:
    disk = SimulatedDisk(7)
    log = LogHome(disk).opened()
    put(log, b"a")
    disk.fail("sync", errno.EIO)
    told: list[Error] = []
    InlineSyncer(log, fail, told.append).request(Durability.SYNC)
    assert told == [log.failure]
    log.close()


def test_a_lone_committer_syncs_in_its_own_thread() -> None:
    sync_threads = SyncThreads(ThreadDriver())
    log = LogHome(SimulatedDisk(7)).opened()
    threads: list[str] = []
    syncer = GroupSyncer(
        log,
        sync_threads,
        lambda _: threads.append(threading.current_thread().name),
        fail,
    )
    for _ in range(3):
        put(log, b"a")
        syncer.request(Durability.SYNC)
        assert log.durable_lsn == log.last_lsn
    assert threads == [threading.current_thread().name] * 3
    syncer.close()
    sync_threads.close()
    syncer.close()
    with pytest.raises(InvariantViolation):
        syncer.request(Durability.SYNC)
    log.close()


def test_committers_that_come_during_a_sync_share_the_next() -> None:
    sync_threads = SyncThreads(ThreadDriver())
    disk = SimulatedDisk(7)
    log = LogHome(disk, first_file_bytes=1 << 16).opened()
    put(log, b"first")
    entered, may_go_on = threading.Semaphore(0), threading.Semaphore(0)
    is_done = threading.Event()
    syncs: list[str] = []

    def hold(op: str, path: str) -> None:
        if op == "sync":
            syncs.append(threading.current_thread().name)
            entered.release()
            assert may_go_on.acquire(timeout=30)

    def progress(lsn: Lsn) -> None:
        if lsn >= wanted:
            is_done.set()

    wanted = log.last_lsn._replace(entry_id=999)
    syncer = GroupSyncer(log, sync_threads, progress, fail)
    disk.latency = hold
    first = threading.Thread(target=syncer.request, args=(Durability.SYNC,), name="first")
    first.start()
    for _ in range(2):  # during the first's own sync, then during the thread's
        assert entered.acquire(timeout=30)
        for number in range(10):
            put(log, b"%d" % number)
            syncer.request(Durability.SYNC)  # returns at once
        may_go_on.release()
    assert entered.acquire(timeout=30)
    wanted = log.last_lsn
    may_go_on.release()
    assert is_done.wait(30)
    first.join()
    syncer.close()
    sync_threads.close()
    assert syncs == ["first", "herdpy-syncer", "herdpy-syncer"]
    disk.latency = None
    log.close()


def test_many_threads_all_become_durable() -> None:
    sync_threads = SyncThreads(ThreadDriver())
    log = LogHome(SimulatedDisk(7)).opened()
    monitor = threading.Condition()

    def progress(_: Lsn) -> None:
        with monitor:
            monitor.notify_all()

    syncer = GroupSyncer(log, sync_threads, progress, fail)

    def commit(number: int) -> None:
        for count in range(50):
            with monitor:
                lsn = put(log, b"%d/%d" % (number, count))
            syncer.request(Durability.SYNC if count % 3 else Durability.OS)
            with monitor:
                assert monitor.wait_for(lambda at=lsn: log.written_lsn >= at, 30)

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    syncer.close()
    sync_threads.close()
    log.sync()
    assert log.durable_lsn == log.last_lsn
    log.close()


def test_a_failure_is_told_to_the_listener() -> None:
    sync_threads = SyncThreads(ThreadDriver())
    disk = SimulatedDisk(7)
    log = LogHome(disk).opened()
    put(log, b"a")
    told: list[Error] = []
    syncer = GroupSyncer(log, sync_threads, fail, told.append)
    disk.fail("sync", errno.EIO)
    syncer.request(Durability.SYNC)
    assert told == [log.failure]
    assert isinstance(told[0], LogFailedError)
    syncer.close()
    sync_threads.close()
    log.close()


def test_a_memory_log_is_synced_at_once() -> None:
    log = MemoryLog()
    syncer = InlineSyncer(log, ignore, fail)
    put(log, b"a")
    syncer.request(Durability.SYNC)
    assert log.durable_lsn == log.last_lsn
