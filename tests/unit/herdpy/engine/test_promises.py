"""The promises of tests/big, on a table that a hurried test run can build."""

from pathlib import Path

import pytest

from herdpy.config import MIB, Config
from herdpy.errors import CorruptionError
from herdpy.model.durability import Durability
from tests.fixtures import big
from tests.fixtures.engines import engine, rows, run
from tests.sim.disk import SimulatedDisk

ROWS = 200_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("big")
    big.build(made, ROWS)
    return made


def test_fetchone_costs_little_memory(path: Path) -> None:
    print(big.check_fetchone(path, ROWS))


def test_a_hundred_changed_rows_are_few_bytes(path: Path, seed: int) -> None:
    print(big.check_small_checkpoint(path, ROWS, seed))


def test_opening_reads_no_page(path: Path) -> None:
    big.check_open_reads_no_page(path)


def test_reopening_does_not_read_the_log_before_the_checkpoint(tmp_path: Path) -> None:
    disk = big.CountingDisk(str(tmp_path))
    config = Config(log_file_bytes_first=32 * MIB)
    with engine(disk=disk, config=config) as db:
        a = db.session(autocommit=True, durability=Durability.OS)
        run(a, "CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
        for start in range(0, 5000, 500):
            values = [(n, "x" * 4000) for n in range(start, start + 500)]
            a.execute_many("INSERT INTO t VALUES (?, ?)", values)
        db.database.run_checkpoint()
        run(a, "INSERT INTO t VALUES (-1, 'behind the checkpoint')")
        assert db.database.tablespace.log.bytes_appended > 16 * MIB
        disk.log_read = 0
        db.reopen()
        assert disk.log_read < 8 * MIB
        b = db.session()
        assert rows(b, "SELECT s FROM t WHERE id = -1") == [("behind the checkpoint",)]
        assert rows(b, "SELECT count(*) FROM t") == [(5001,)]
        print(f"{disk.log_read} bytes of the log read")


def test_damage_where_the_log_is_read_from_is_noticed() -> None:
    disk = SimulatedDisk(1)
    with engine(disk=disk) as db:
        a = db.session(autocommit=True)
        run(a, "CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
        for n in range(5):
            run(a, "INSERT INTO t VALUES (?, 'one')", n)
        db.database.run_checkpoint()
        run(a, "INSERT INTO t VALUES (9, 'two')")
        run(a, "INSERT INTO t VALUES (10, 'three')")
        start = db.database.replica.manifest.state.log_start
        assert start is not None
        assert start[1] > 0
        db.database.close()
        disk.flip(f"default/log/{start[0]:08d}.log", start[1] + 40)
        with pytest.raises(CorruptionError, match=rf"{start[0]:08d}.log.*offset {start[1]}"):
            db.open()
        disk.flip(f"default/log/{start[0]:08d}.log", start[1] + 40)
        db.open()
