"""Memtables stay below twice their share: writers are slowed, and held where there is no room."""

import errno
from collections.abc import Iterator
from itertools import pairwise

import pytest

from herdpy.config import Config
from herdpy.engine.state.memtable_room import (
    PAUSE_S_MAX,
    SMALL_BYTES,
    SMALL_PAUSE_S_MAX,
    MemtableRoom,
)
from herdpy.errors import MemoryLimitError
from tests.fixtures.engines import Engine, engine, rows, run
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk

MIB = 1024 * 1024
SHARE = 8 * MIB


def room(fill: float, *, rate: int = SHARE) -> MemtableRoom:
    made = MemtableRoom(SHARE)
    for _ in range(40):
        made.checkpointed(rate, 1.0)
    made.measured(int(fill * SHARE))
    return made


def pause_s(fill: float, byte_count: int) -> float:
    return room(fill).until(byte_count, 100.0) - 100.0


def test_a_write_waits_the_longer_the_fuller_memtables_are() -> None:
    pauses = [pause_s(fill / 10, 100_000) for fill in range(21)]
    assert pauses[:11] == [0.0] * 11  # up to their share
    assert all(0 < less < more for less, more in pairwise(pauses[11:]))
    # Half over their share writers add as fast as checkpoints take away.
    assert pause_s(1.5, 100_000) == pytest.approx(100_000 / SHARE, rel=0.01)


def test_every_wait_is_bounded_and_small_writes_get_through() -> None:
    for fill in (1.1, 1.9, 2.0, 5.0):
        made = room(fill)
        for _ in range(100):  # each behind all that came before
            assert made.until(10 * MIB, 100.0) <= 100.0 + PAUSE_S_MAX
            assert made.until(SMALL_BYTES, 100.0) <= 100.0 + SMALL_PAUSE_S_MAX


def test_one_of_several_is_full_at_its_part_and_beside_others_at_what_they_leave() -> None:
    made = MemtableRoom(SHARE)
    for own, others, part, is_slow, left in (
        (4, 0, 1.0, False, 12),
        (6, 0, 0.75, False, 6),
        (7, 0, 0.75, True, 5),  # beyond its part
        (1, 7, 0.75, False, 8),
        (1, 8, 0.75, True, 7),  # as all have more than the share
        (12, 0, 0.75, True, 0),
        (1, 12, 0.75, True, 3),  # another one that abuses it leaves room
    ):
        made.measured(own * MIB, others * MIB, part)
        assert (made.is_slow, made.left) == (is_slow, left * MIB), (own, others, part)
    made.measured(11 * MIB, 0, 0.75)
    assert made.is_full
    made.measured(1 * MIB, 11 * MIB, 0.75)
    assert not made.is_full


def test_writers_share_the_rate() -> None:
    made = room(1.5)
    moments = [made.until(100_000, 100.0) for _ in range(5)]
    steps = [after - before for before, after in pairwise(moments)]
    assert steps == pytest.approx([100_000 / SHARE] * 4, rel=0.01)


def test_no_more_comes_in_than_there_is_room() -> None:
    made = room(1.0)
    assert made.lets_in(SHARE)
    assert not made.lets_in(SHARE + 1)
    made.left -= SHARE
    assert not made.lets_in(1)
    made.measured(SHARE // 4)
    assert made.lets_in(100 * SHARE)  # else it would never come
    full = made.full()
    assert made.is_wanted
    assert not full.ticket.is_done
    made.opened()
    assert full.ticket.is_done
    assert not made.full().ticket.is_done


def test_a_rate_is_measured_at_memtables_of_some_size() -> None:
    made = MemtableRoom(SHARE)
    before = made.rate
    made.checkpointed(1, 5.0)
    assert made.rate == before
    made.checkpointed(SHARE, 0.0)
    assert made.rate > before


# --- in an engine --------------------------------------------------------------------------------


@pytest.fixture
def small() -> Iterator[tuple[Engine, SimulatedDisk, SimulatedClock]]:
    disk, clock = SimulatedDisk(1), SimulatedClock()
    config = Config(memory_bytes_max=16 * MIB, memtable_share=0.05, log_file_bytes_first=MIB)
    with engine(disk=disk, clock=clock, config=config) as db:
        run(db.session(autocommit=True), "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        yield db, disk, clock


def insert(session: object, start: int, count: int, table: str = "t") -> None:
    pairs = [(number, f"{number:01000}") for number in range(start, start + count)]
    session.execute_many(f"INSERT INTO {table} VALUES (?, ?)", pairs)  # type: ignore[attr-defined]


def test_memtables_never_have_more_than_twice_their_share(
    small: tuple[Engine, SimulatedDisk, SimulatedClock],
) -> None:
    db, _, _ = small
    session, other = db.session(autocommit=True), db.session()
    space, share = db.database.tablespace, db.config.memtable_bytes_max
    peak = 0
    for step in range(60):
        insert(session if step % 3 else other, 100 * step, 100)
        if step % 6 == 5:
            other.commit()
        run(session, "UPDATE t SET v = 'y' WHERE id = ?", 100 * step + 1)
        peak = max(peak, space.memtable_bytes())
    other.commit()
    assert share < peak <= 2 * share
    assert rows(session, "SELECT count(*) FROM t") == [(6000,)]
    figures = {row[0].rpartition("/")[2]: row for row in rows(session, "SELECT * FROM sysmemory")}
    assert 0 < figures["memtables"][1] <= 2 * share
    assert figures["transactions"][1] == 0 < figures["transactions"][3]


def test_a_commit_without_room_waits_and_the_transaction_goes_on(
    small: tuple[Engine, SimulatedDisk, SimulatedClock],
) -> None:
    db, disk, clock = small
    session, other = db.session(autocommit=True), db.session()
    insert(other, 10_000, 700)
    insert(session, 0, 700)
    disk.fail("open", errno.EIO, path="/segments/", times=10**9)
    with pytest.raises(MemoryLimitError) as caught:
        other.commit()
    assert "disk failed" in caught.value.message
    assert other.in_transaction
    disk.heal()
    clock.advance(60.0)
    other.commit()
    assert rows(session, "SELECT count(*) FROM t") == [(1400,)]
    assert db.database.tablespace.memtable_bytes() <= 2 * db.config.memtable_bytes_max


def test_transactions_share_what_there_is(
    small: tuple[Engine, SimulatedDisk, SimulatedClock],
) -> None:
    db, _, _ = small
    run(db.session(autocommit=True), "CREATE TABLE u (id BIGINT PRIMARY KEY, v TEXT)")
    one, other = db.session(), db.session()
    insert(one, 0, 3800)  # about 5 of the 8 MiB that all transactions have
    insert(other, 0, 3800, "u")
    transaction, other_one = one.transaction, other.transaction
    assert transaction is not None
    assert other_one is not None
    assert not transaction.has_spilled
    assert other_one.has_spilled  # for which there was no room
    assert db.database.memory.transactions.refused == 1
    assert db.database.memory.transactions.bytes_used <= 8 * MIB
    one.rollback()
    other.commit()
    assert rows(one, "SELECT count(*) FROM u") == [(3800,)]
    assert db.database.memory.transactions.bytes_used == 0
