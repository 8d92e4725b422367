"""Anonymous memory of a copy that follows, while it takes in a COMMIT STAGING of many rows.

A part of tests/benchmarks/memory.py: a process leads, and spools its log to a file; another one,
whose memory_bytes_max is 128 MiB, follows that: alone, and while leases keep versions, checkpoints
and compactions come one behind the other, and a session reads rows by their keys.
"""

import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from bookie.runtime.drivers import ThreadDriver
from bookie.runtime.os_disk import OsDisk
from herdpy.config import Config
from herdpy.engine.maintenance.file_logs import LogSource
from herdpy.engine.session.session import Session
from herdpy.errors import Error
from herdpy.log.followed_log import FollowedLog
from herdpy.log.record import CommitStaging, decode
from herdpy.model.lsn import FILE_LEDGER_ID, Lsn
from herdpy.storage.manifest import LEDGER_LOG
from tests.fixtures.anonymous_memory import Sampler
from tests.fixtures.engines import Engine, rows, run
from tests.fixtures.memory_log import MemoryLog

_HEAD = struct.Struct("<III")
"""Of a spooled record: entry, index, bytes."""
_RUN_BYTES = 1024 * 1024
_BATCH_ROWS = 100_000
_TASKS = 4
_ANONYMOUS_MB = 328.0
_HOLD_MS = 5.0
_READ_MS = 50.0
_TOTALS = "SELECT count(*), sum(v) FROM t"
Tell = Callable[[str, str, float, float | None], None]


class SpooledLog(MemoryLog):
    """Keeps what is written in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("wb")

    def write(self) -> None:
        with self._mutex:
            for last, records in self._queue:
                for index, record in enumerate(records):
                    self._file.write(_HEAD.pack(last.entry_id, index, len(record)) + record)
        super().write()

    def close(self) -> None:
        super().close()
        self._file.close()


def _spooled(path: Path) -> Iterator[tuple[Lsn, bytes]]:
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            entry_id, index, size = _HEAD.unpack(head)
            yield Lsn(FILE_LEDGER_ID, entry_id, index), file.read(size)


def lead(folder: Path, rows_count: int, config: Config) -> None:
    """Run in a process of its own: fill, stage and commit; every other staged key is there."""
    (folder / "leader").mkdir(parents=True)
    log = LogSource(LEDGER_LOG, lambda _: SpooledLog(folder / "spool"))
    disk = OsDisk(str(folder / "leader"))
    db = Engine(disk=disk, config=config, logs=log, is_threaded=True)
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, name TEXT)")
    _stage(session, "before", "append", range(0, 2 * rows_count, 4))
    run(session, "UPDATE t SET v = 0 WHERE id < 4000")
    session.leasing.take(3600)
    run(session, "UPDATE t SET v = 1 WHERE id < 4000")
    _stage(session, "job", "upsert", range(0, 2 * rows_count, 2))
    db.close()


def _stage(session: Session, job: str, operation: str, keys: range) -> None:
    """Stage rows by tasks of which each has keys from all over, and commit them behind a lease."""
    staging = session.staging
    staging.begin("t", operation, job)
    stages: list[int] = []
    for task in range(_TASKS):
        number, _ = staging.begin_stage(job, str(task), "0")
        own, count = keys[task::_TASKS], 0
        for low in range(0, len(own), _BATCH_ROWS):
            ids = own[low : low + _BATCH_ROWS]
            columns = {
                "id": pa.array(ids, pa.int64()),
                "v": pa.array([2] * len(ids), pa.int64()),
                "name": [f"name {each % 1000}" for each in ids],
            }
            count = staging.add(number, count, pa.record_batch(columns))
        staging.finish_stage(number)
        stages.append(number)
    session.leasing.take(3600)
    staging.commit(job, stages)


class Reading:
    """Reads of a row by its key, while the copy follows; how long each took but the first."""

    def __init__(self, db: Engine, key_count: int) -> None:
        self._session = db.session(autocommit=True)
        self._key_count = key_count
        self._over = threading.Event()
        self.taken_s: list[float] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number, is_planned = 0, False
        while not self._over.wait(0.005):
            number = (number + 7919 * 4) % self._key_count
            begun_s = time.perf_counter()
            try:
                rows(self._session, "SELECT v FROM t WHERE id = ?", number)
            except Error:
                continue  # the table is not there yet
            if is_planned:
                self.taken_s.append(time.perf_counter() - begun_s)
            is_planned = True

    def __enter__(self) -> "Reading":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def follow(
    folder: Path,
    rows_count: int,
    config: Config,
    watch: Callable[[Any], tuple[Any, Any]],
    tell: Tell,
    *,
    beside: bool,
) -> None:
    """Run in a process of its own: take in what was spooled, and measure that.

    watch(database) replaces the monitor by one that is timed; it returns that and the collector's.
    """
    path = folder / f"copy{beside:d}"
    path.mkdir()
    disk = OsDisk(str(path))
    log = LogSource(LEDGER_LOG, lambda _: FollowedLog(), leads=False)
    db = Engine(disk=disk, driver=ThreadDriver(), config=config, logs=log, is_threaded=True)
    monitor, collector = watch(db.database)
    sampler = Sampler()
    replica = db.database.replica
    name = "COMMIT STAGING on a copy that follows"
    name += ", beside leases, checkpoints and compactions" if beside else ""
    stop = threading.Event()
    worker = threading.Thread(target=_disturb, args=(db, stop))
    if beside:
        worker.start()
    begun_s, adopted_s = time.perf_counter(), 0.0
    try:
        with Reading(db, 2 * rows_count) as reading:
            for records in _runs(folder / "spool"):
                is_commit = isinstance(decode(records[-1][1]), CommitStaging)
                run_begun_s = time.perf_counter()
                replica.follow(records)
                if is_commit:
                    adopted_s = time.perf_counter() - run_begun_s
        seconds = time.perf_counter() - begun_s
    finally:
        stop.set()
        if beside:
            worker.join()
    tell(name, "MB", sampler.take() / 1e6, _ANONYMOUS_MB)
    tell(f"{name}: longest hold", "ms", monitor.longest_s * 1e3, _HOLD_MS)
    tell(f"{name}: longest run of the collector", "ms", collector.longest_s * 1e3, None)
    cuts = statistics.quantiles(reading.taken_s, n=100)
    tell(f"{name}: p99 of a read beside", "ms", cuts[98] * 1e3, _READ_MS)
    tell(f"{name}: the commit", "s", adopted_s, None)
    tell(f"{name}: time", "s", seconds, None)
    found = rows(db.session(), _TOTALS)
    if found != [(rows_count, 2 * rows_count)]:
        raise AssertionError(f"expected {rows_count:,} rows, found {found}")
    db.close()


def _runs(path: Path) -> Iterator[list[tuple[Lsn, bytes]]]:
    """Yield the log in runs as a node has it; a COMMIT STAGING ends its run."""
    records: list[tuple[Lsn, bytes]] = []
    size = 0
    for lsn, data in _spooled(path):
        records.append((lsn, data))
        size += len(data)
        if size >= _RUN_BYTES or isinstance(decode(data), CommitStaging):
            yield records
            records, size = [], 0
    if records:
        yield records


def _disturb(db: Engine, stop: threading.Event) -> None:
    """Checkpoint and compact without a pause."""
    while not stop.is_set():
        db.database.run_checkpoint()
        db.database.run_compaction()
