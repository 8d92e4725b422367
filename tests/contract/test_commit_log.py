"""The CommitLog contract, over memory and over files on each kind of disk."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from bookie.runtime.interfaces import Disk
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_disk import OsDisk
from herdpy.errors import InvariantViolation
from herdpy.log.interfaces import Append, CommitLog
from herdpy.log.record import Noop, decode
from herdpy.model.lsn import START_LSN, Lsn
from tests.fixtures.logs import LogHome, put
from tests.fixtures.memory_log import MemoryLog, MemoryStore
from tests.sim.disk import SimulatedDisk


class Home(Protocol):
    def opened(self, after: Lsn = START_LSN) -> CommitLog: ...


class MemoryHome:
    def __init__(self) -> None:
        self.store = MemoryStore()

    def opened(self, after: Lsn = START_LSN) -> CommitLog:
        return MemoryLog(self.store)


DISKS: dict[str, Callable[[Path], Disk]] = {
    "os": OsDisk,
    "memory disk": lambda _: MemoryDisk(),
    "simulated": lambda _: SimulatedDisk(7),
}


@pytest.fixture(params=["memory", *DISKS])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "memory":
        return MemoryHome()
    return LogHome(DISKS[request.param](tmp_path))


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
    return [(lsn, record) for lsn, record in pairs if record != b"\x91\x00"]


def test_the_mark_that_replayed_leaves_out_is_a_noop() -> None:
    assert decode(b"\x91\x00") == Noop()


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


def test_an_append_without_records_is_refused(log: CommitLog) -> None:
    with pytest.raises(InvariantViolation):
        log.append(Append(()))


def test_close_is_idempotent_and_makes_durable(home: Home, log: CommitLog) -> None:
    put(log, b"x")
    log.close()
    log.close()
    assert [record for _, record in replayed(home)] == [b"x"]
