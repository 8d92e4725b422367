"""The doctor: finds every damage, names where it is, and changes nothing."""

import random
from functools import cache

import pytest

from bookie.runtime.interfaces import Disk
from bookie.runtime.memory_disk import MemoryDisk
from herdpy.engine.maintenance import doctor
from herdpy.engine.maintenance.doctor import ExaminedTablespace, Report, examine
from herdpy.errors import CorruptionError, Error
from herdpy.storage.tablespace_list import TablespaceLimits
from tests.fixtures.engines import Engine, engine, rows, run
from tests.sim.disk import SimulatedDisk

PARTS = ("log", "segments", "temp")


def contents(disk: Disk) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for directory in ("", "default/", "default/log/", "default/segments/"):
        for name in disk.list(directory.rstrip("/")):
            if name != "default" and name not in PARTS:
                found[directory + name] = disk.read(directory + name)
    return found


def copied(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    for directory in ("default", *(f"default/{part}" for part in PARTS)):
        disk.make_directory(directory)
    for path, data in files.items():
        file = disk.open(path, create=True)
        file.write_at(0, data)
        file.close()
    return disk


@cache
def files() -> dict[str, bytes]:
    """Return a database with runs, bitmaps, a dictionary, NULLs, and records in the log."""
    disk = SimulatedDisk(1)
    db = Engine(disk=disk)
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id TEXT PRIMARY KEY, v DECIMAL(30,2), d DOUBLE PRECISION)")
    run(session, "CREATE TABLE n (id BIGINT PRIMARY KEY, s TEXT, b BOOLEAN)")
    for turn in range(3):
        data = [(f"{turn}-{i}", turn * 10**20, float("nan") if i % 9 else -0.0) for i in range(60)]
        session.execute_many("INSERT INTO t VALUES (?, ?, ?)", data)
        rows = [(100 * turn + i, "x" * 50 if i % 2 else None, bool(i % 3)) for i in range(60)]
        session.execute_many("INSERT INTO n VALUES (?, ?, ?)", rows)
        run(session, "UPDATE n SET b = NOT b WHERE id % 7 = ?", turn)
        db.database.run_checkpoint()
    run(session, "DELETE FROM t WHERE id LIKE '1-%'")
    run(session, "UPDATE n SET s = 'later'")
    db.database.close()
    return contents(disk)


def made() -> MemoryDisk:
    return copied(files())


def test_a_sound_database() -> None:
    disk = made()
    report = examine(disk, "here")
    assert report.damages == report.notes == []
    assert (report.table_count, report.row_count, report.log_record_count) == (2, 360, 3)
    assert report.page_count >= 6
    assert contents(disk) == files()


def test_a_log_that_no_checkpoint_has_cut_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("checkpoints have failed" in note for note in examine(made(), "here").notes)
    found = examine(made(), "here").log_byte_count
    assert found > 0
    monkeypatch.setattr(doctor, "_LOG_BYTES_MANY", found)
    (note,) = [each for each in examine(made(), "here").notes if "checkpoints have failed" in each]
    assert note.startswith(f"the log has {found:,} bytes of records behind the last checkpoint")


def test_what_leases_keep_is_no_table_more() -> None:
    disk = SimulatedDisk(1)
    db = Engine(disk=disk)
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    session.execute_many("INSERT INTO t VALUES (?, 0)", [(i,) for i in range(100)])
    db.database.run_checkpoint()
    for turn in range(2):
        session.leasing.take(3600)
        run(session, "UPDATE t SET v = v + 1 WHERE id < 50")
        run(session, "DELETE FROM t WHERE id = ?", turn)
        db.database.run_checkpoint()
    assert rows(session, "SELECT count(*) FROM sysleases WHERE is_in_pages") == [(2,)]
    db.database.close()
    report = examine(disk, "here")
    assert (report.damages, report.table_count, report.row_count) == ([], 1, 98)


def test_open_transactions_and_an_empty_database() -> None:
    disk = SimulatedDisk(1)
    Engine(disk=disk).database.close()
    empty = ExaminedTablespace(
        name="default",
        folder="default",
        limits=TablespaceLimits(),
        table_count=0,
        role_count=0,
        right_count=0,
    )
    assert examine(disk, "here") == Report(tablespaces=[empty])
    with engine(disk=disk) as db:
        session = db.session()
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        session.commit()
        run(session, "INSERT INTO t VALUES (1, 1)")
        db.database.run_checkpoint()
        run(session, "INSERT INTO t VALUES (2, 1)")
        db.database.tablespace.log.sync()
        copy = copied(contents(disk))
    assert examine(copy, "here").damages == []


def flip(disk: Disk, path: str, place: int) -> None:
    file = disk.open(path)
    byte = file.read_at(place, 1)[0]
    file.write_at(place, bytes([byte ^ 0x20]))
    file.close()


def test_every_page_and_bitmap_is_read() -> None:
    """A changed byte anywhere in a segment that is under a checksum is damage, and named."""
    rng = random.Random(1)
    listed = [path for path in files() if path.endswith(".segment")]
    missed = 0
    for path in listed:
        size = len(files()[path])
        for place in [0, 16, *(rng.randrange(64, size) for _ in range(60))]:
            disk = made()
            flip(disk, path, place)
            report = examine(disk, "here")
            # The end of a part is padded, and some parts are not listed any more.
            missed += not report.damages
            assert all(path.rpartition("/")[2] in text for text in report.damages), report.damages
    assert missed <= 62 * len(listed) // 3


def test_all_damages_are_named_and_not_the_first_alone() -> None:
    disk = made()
    segments = [path for path in files() if path.endswith(".segment")]
    for path in segments[-2:]:
        flip(disk, path, 16)
    log = next(path for path in files() if path.endswith(".log"))
    disk.unlink(log)
    damages = "\n".join(examine(disk, "here").damages)
    for path in (*segments[-2:], log):
        assert path in damages
    assert "offset" in damages


@pytest.mark.parametrize("name", ["FORMAT", "default/MANIFEST"])
def test_files_without_which_nothing_is_known(name: str) -> None:
    for harm in ("unlink", "cut", "flip"):
        disk = made()
        if harm == "unlink":
            disk.unlink(name)
        elif harm == "cut":
            file = disk.open(name)
            file.truncate(5)
            file.close()
        else:
            flip(disk, name, 3)
        damages = examine(disk, "here").damages
        assert len(damages) == 1
        assert name.rpartition("/")[2] in damages[0]


def test_leftovers_are_no_damage() -> None:
    disk = made()
    disk.open("default/segments/00000099.segment", create=True).close()
    disk.open("notes.txt", create=True).close()
    report = examine(disk, "here")
    assert report.damages == []
    assert len(report.notes) == 2


def test_what_it_passes_opens_and_what_it_refuses_does_not() -> None:
    """Damage of the log and of the lists is what opening finds, too."""
    rng = random.Random(2)
    paths = [path for path in files() if path.endswith((".log", "MANIFEST"))]
    for turn in range(200):
        disk = made()
        path = rng.choice(paths)
        used = len(disk.read(path).rstrip(b"\0"))
        flip(disk, path, rng.randrange(used))
        damages = examine(disk, "here").damages
        try:
            with engine(disk=disk):
                opens = True
        except CorruptionError:
            opens = False
        except Error as error:
            pytest.fail(f"turn {turn}: {error}")
        assert opens == (not damages), f"turn {turn}, {path}: {damages}"
