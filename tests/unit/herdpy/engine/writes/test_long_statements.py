"""Statements longer than one log record: what replay makes of the parts is what the leader made."""

from herdpy.config import Config
from herdpy.limits import record_bytes_max
from herdpy.log.record import many_rows
from tests.fixtures.engines import Engine, rows, run
from tests.sim.disk import SimulatedDisk

COUNT = 6_000
SUM = "SELECT count(*), min(id), max(id), sum(id) FROM t"


def test_a_long_update_of_keys_survives_a_crash_whole() -> None:
    disk = SimulatedDisk(1)
    engine = Engine(disk=disk, config=Config(log_file_bytes_first=1 << 20))
    session = engine.session()
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    session.execute_many("INSERT INTO t VALUES (?, ?)", [(n, "x" * 400) for n in range(COUNT)])
    session.commit()
    session.checkpoint()
    run(session, "UPDATE t SET id = id + 1")
    session.commit()
    assert 2 * record_bytes_max < 2 * COUNT * 400  # several parts
    expected = [(COUNT, 1, COUNT, COUNT * (COUNT + 1) // 2)]
    assert rows(session, SUM) == expected
    again = Engine(disk=disk.crash())
    assert rows(again.session(), SUM) == expected


def test_a_long_autocommit_insert_survives_a_crash_whole() -> None:
    disk = SimulatedDisk(1)
    engine = Engine(disk=disk, config=Config(log_file_bytes_first=1 << 20))
    session = engine.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    session.execute_many("INSERT INTO t VALUES (?, ?)", [(n, "x" * 400) for n in range(COUNT)])
    every = "SELECT * FROM t ORDER BY id"
    expected = rows(session, every)
    assert [row[0] for row in expected] == list(range(COUNT))
    assert rows(Engine(disk=disk.crash()).session(), every) == expected


def test_an_insert_of_many_short_rows_is_cut_once() -> None:
    engine = Engine(disk=SimulatedDisk(1), config=Config(log_file_bytes_first=1 << 16))
    session = engine.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    count = many_rows + 1
    items = [(n, "x" * (2_000 if n > count - 1_000 else 2)) for n in range(count)]
    session.execute_many("INSERT INTO t VALUES (?, ?)", items)  # a sample misleads about the end
    assert rows(session, SUM) == [(count, 0, count - 1, count * (count - 1) // 2)]
