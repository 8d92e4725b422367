"""The CommitLog contract, over memory and over files on each kind of disk."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

import pytest

from bookie.runtime.interfaces import Disk
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_disk import OsDisk
from herdpy.errors import Error, InvariantViolation, LogFailedError
from herdpy.log.interfaces import Append, CommitLog
from herdpy.log.record import Noop, decode
from herdpy.model.durability import Durability
from herdpy.model.lsn import START_LSN, Lsn
from tests.fixtures.ledger_logs import LedgerHome
from tests.fixtures.logs import LogHome, put
from tests.fixtures.memory_log import MemoryLog, MemoryStore
from tests.sim.disk import SimulatedDisk

NOOP = b"\x91\x00"


class Home(Protocol):
    def opened(self, after: Lsn = START_LSN) -> CommitLog:
        """Open as the next process does, when the former one is no more."""
        ...

    def taken_over(self, after: Lsn = START_LSN) -> CommitLog:
        """Open where another handle has it open."""
        ...

    def follow(self, after: Lsn) -> Iterator[tuple[Lsn, bytes]]:
        """Read what is there, while a handle appends."""
        ...

    def fail_at(self, step: int) -> None:
        """Have the step-th change from now on fail."""
        ...

    @property
    def steps_done(self) -> int:
        """Changes since fail_at()."""
        ...


class MemoryHome:
    def __init__(self) -> None:
        self.store = MemoryStore()

    def opened(self, after: Lsn = START_LSN) -> CommitLog:
        self.store.owner = None
        return MemoryLog(self.store)

    def taken_over(self, after: Lsn = START_LSN) -> CommitLog:
        return MemoryLog(self.store)

    def follow(self, after: Lsn) -> Iterator[tuple[Lsn, bytes]]:
        return self.store.read(after)

    def fail_at(self, step: int) -> None:
        self.store.fail_at = step

    @property
    def steps_done(self) -> int:
        return self.store.steps_done


DISKS: dict[str, Callable[[Path], Disk]] = {
    "os": OsDisk,
    "memory disk": lambda _: MemoryDisk(),
    "simulated": lambda _: SimulatedDisk(7),
}


@pytest.fixture(params=["memory", *DISKS, "ledgers"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    if request.param == "memory":
        yield MemoryHome()
    elif request.param == "ledgers":
        ledgers = LedgerHome()
        yield ledgers
        ledgers.close()
    else:
        yield LogHome(DISKS[request.param](tmp_path))


@pytest.fixture
def log(home: Home) -> Iterator[CommitLog]:
    log = home.opened()
    yield log
    log.close()


def replayed(home: Home, after: Lsn = START_LSN) -> list[tuple[Lsn, bytes]]:
    """Records of a log opened again; the marks of ours are no records."""
    if isinstance(home, LogHome):
        log = home.open()
        pairs = list(log.replay(after))
        log.close()
    else:
        pairs = list(home.opened().replay(after))
    return [(lsn, record) for lsn, record in pairs if record != NOOP]


def test_the_mark_that_replayed_leaves_out_is_a_noop() -> None:
    assert decode(NOOP) == Noop()


def test_a_new_log_is_empty_and_durable(log: CommitLog) -> None:
    assert log.last_lsn == log.durable_lsn == log.written_lsn == START_LSN
    assert log.failure is None
    assert log.bytes_appended == 0
    log.sync()
    assert log.durable_lsn == START_LSN


def test_replay_equals_what_was_appended(home: Home, log: CommitLog) -> None:
    expected: list[tuple[Lsn, bytes]] = []
    for number in range(300):
        records = tuple(b"%d/%d" % (number, part) * 5 for part in range(number % 4 + 1))
        last = put(log, *records)
        expected += [
            (None, record) if record is not records[-1] else (last, record)  # type: ignore[misc]
            for record in records
        ]
        if number % 7 == 0:
            log.sync()
            assert log.durable_lsn == log.last_lsn == last
        elif number % 5 == 0:
            log.write()
            assert log.written_lsn == last
    log.close()
    found = replayed(home)
    assert [record for _, record in found] == [record for _, record in expected]
    assert [lsn for lsn, _ in found] == sorted({lsn for lsn, _ in found})
    for (lsn, _), (wanted, _) in zip(found, expected, strict=True):
        assert wanted is None or wanted == lsn


def test_positions_grow_and_the_last_is_the_logs(log: CommitLog) -> None:
    positions = [put(log, b"a"), put(log, b"b", b"c"), put(log, b"d")]
    assert positions == sorted(set(positions))
    assert positions[0] > START_LSN
    assert log.last_lsn == positions[-1]
    assert log.bytes_appended == 4
    log.sync()
    assert log.durable_lsn == positions[-1]


def test_an_append_repeated_has_one_effect(home: Home, log: CommitLog) -> None:
    first = put(log, b"first")
    append = Append((b"x", b"y"))
    assert not log.has_taken(append)
    log.append(append)
    assert log.has_taken(append)
    lsn = append.lsn
    append.lsn = None
    log.append(append)
    assert append.lsn == lsn
    log.sync()
    log.mark()
    assert log.has_taken(append)
    log.append(append)
    assert append.lsn == lsn
    assert lsn is not None
    assert first < lsn
    log.close()
    assert [record for _, record in replayed(home)] == [b"first", b"x", b"y"]


def test_replay_begins_behind_a_position(home: Home, log: CommitLog) -> None:
    first = put(log, b"1", b"2")
    log.sync()
    second = put(log, b"3")
    log.close()
    assert [record for _, record in replayed(home, Lsn(*first[:2], 0))] == [b"2", b"3"]
    assert [record for _, record in replayed(home, first)] == [b"3"]
    assert replayed(home, second) == []


def test_what_is_behind_the_position_survives_a_drop(home: Home, log: CommitLog) -> None:
    positions: list[Lsn] = []
    for number in range(200):
        positions.append(put(log, b"%03d" % number * 40))
        log.sync()
    log.drop_before(positions[149])
    put(log, b"end")
    log.close()
    found = [record for _, record in replayed(home, positions[149])]
    assert found == [b"%03d" % number * 40 for number in range(150, 200)] + [b"end"]


def test_a_large_append_spans_frames_and_files(home: Home, log: CommitLog) -> None:
    records = tuple(bytes([number]) * 1_500_000 for number in range(6))
    put(log, b"before")
    last = put(log, *records)
    log.sync()
    assert log.durable_lsn == last
    log.close()
    assert [record for _, record in replayed(home)] == [b"before", *records]


def following(home: Home, after: Lsn) -> Iterator[tuple[Lsn, bytes]]:
    """Follow without the marks."""
    return (item for item in home.follow(after) if item[1] != NOOP)


def test_a_follower_reads_while_another_appends(home: Home, log: CommitLog) -> None:
    expected: list[tuple[Lsn, bytes]] = []
    found: list[tuple[Lsn, bytes]] = []
    for round_ in range(40):
        for number in range(5):
            record = b"%d/%d" % (round_, number) * 40
            expected.append((put(log, record), record))
        log.sync()
        durable = len(expected)
        after = found[-1][0] if found else START_LSN
        for item in following(home, after):
            found.append(item)
            if len(found) % 3 == 0:
                record = b"meanwhile %d" % len(found) * 100
                expected.append((put(log, record), record))
                if len(found) % 2:
                    log.write()
                else:
                    log.sync()
        assert found == expected[: len(found)]
        assert len(found) >= durable
    log.sync()
    assert found + list(following(home, found[-1][0])) == expected


def test_a_handle_that_was_taken_over_reaches_the_log_no_more(home: Home) -> None:
    former = home.opened()
    positions = [put(former, b"durable")]
    former.sync()
    positions.append(put(former, b"written"))
    former.write()
    lost = put(former, b"lost")
    assert former.failed_after is None
    new = home.taken_over()
    for call in (former.sync, former.write, lambda: put(former, b"late")):
        with pytest.raises(LogFailedError):
            call()
    assert former.failed_after == positions[-1] < lost
    assert former.durable_lsn <= former.written_lsn == new.last_lsn == positions[-1]
    positions.append(put(new, b"new"))
    assert positions == sorted(set(positions))
    new.sync()
    former.close()
    put(new, b"newer")
    new.close()
    assert [record for _, record in replayed(home)] == [b"durable", b"written", b"new", b"newer"]


def live(log: CommitLog, expected: list[tuple[Lsn, bytes]]) -> None:
    """Append, noting what; write, sync and drop now and then; close."""
    for number in range(60):
        record = b"%d" % number * 100
        expected.append((put(log, record), record))
        if number % 4 == 3:
            log.sync()
        elif number % 4 == 1:
            log.write()
        if number % 16 == 15:
            log.drop_before(START_LSN)
    log.close()


@contextmanager
def failing_home(kind: str, tmp_path: Path) -> Generator[Home]:
    if kind == "ledgers":
        home = LedgerHome()
        try:
            yield home
        finally:
            home.close()
    else:
        yield MemoryHome() if kind == "memory" else LogHome(DISKS[kind](tmp_path))


def check_stopped(log: CommitLog) -> None:
    for call in (log.sync, log.write, lambda: put(log, b"late")):
        with pytest.raises(LogFailedError) as caught:
            call()
        assert caught.value is log.failure


@pytest.mark.parametrize("kind", ["memory", "simulated", "ledgers"])
def test_a_failure_at_any_step_loses_nothing_durable(kind: str, tmp_path: Path) -> None:
    failures = undecided = 0
    for step in count():
        with failing_home(kind, tmp_path) as home:
            log = home.opened()
            home.fail_at(step)
            expected: list[tuple[Lsn, bytes]] = []
            try:
                live(log, expected)
            except OSError:  # of prepare(): nothing happened, and the log goes on
                assert log.failure is None
                live(log, expected)
            except LogFailedError:
                failures += 1
                check_stopped(log)
                log.close()
            if home.steps_done <= step:
                break
            found = replayed(home)
            assert found == expected[: len(found)]
            last = found[-1][0] if found else START_LSN
            assert len(found) >= sum(lsn <= log.durable_lsn for lsn, _ in expected)
            end = log.failed_after
            assert (end is None) == (log.failure is None)
            if end is None:
                assert len(found) == len(expected)
            else:
                assert last <= end
                undecided += end > log.durable_lsn
    assert failures > 10
    assert undecided or kind != "simulated"


def test_durability_is_pushed(home: Home, log: CommitLog) -> None:
    told: SimpleQueue[Lsn] = SimpleQueue()
    failures: SimpleQueue[Error] = SimpleQueue()
    syncer = log.start(told.put, failures.put)
    last = put(log, b"a")
    syncer.request(Durability.SYNC)
    positions = [told.get(timeout=10)]
    while positions[-1] < last:
        positions.append(told.get(timeout=10))
    assert positions[-1] == last
    assert positions == sorted(positions)
    home.taken_over()
    put_unless_stopped(log, b"b")  # or there is nothing by which a log elsewhere would know
    syncer.request(Durability.SYNC)
    assert failures.get(timeout=10) is log.failure
    assert failures.empty()
    while not told.empty():
        assert told.get() <= last


def put_unless_stopped(log: CommitLog, record: bytes) -> None:
    with suppress(LogFailedError):
        put(log, record)


def test_an_append_without_records_is_refused(log: CommitLog) -> None:
    with pytest.raises(InvariantViolation):
        log.append(Append(()))


def test_close_is_idempotent_and_makes_durable(home: Home, log: CommitLog) -> None:
    put(log, b"x")
    log.close()
    log.close()
    assert [record for _, record in replayed(home)] == [b"x"]
