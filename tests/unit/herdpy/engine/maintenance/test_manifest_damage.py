"""A manifest that is cut, or files that are older than the rest: all rows, or damage untouched."""

import random
from functools import cache
from struct import unpack_from

import pytest

from bookie.runtime.interfaces import Disk
from bookie.runtime.memory_disk import MemoryDisk
from herdpy.config import Config
from herdpy.engine.maintenance.doctor import examine
from herdpy.engine.maintenance.restore import restore, verify_backup
from herdpy.errors import CorruptionError
from herdpy.storage.manifest import Manifest
from tests.fixtures.engines import Engine, rows, run
from tests.fixtures.metadata import SeededRng
from tests.sim.disk import SimulatedCrash, SimulatedDisk

CONFIG = Config(log_file_bytes_first=4096, log_file_bytes_max=8192, disk_reserve_bytes=4096)
FOLDERS = ("default", "default/log", "default/segments", "default/temp")
MANIFEST = "default/MANIFEST"
Files = dict[str, bytes]
ALL = "SELECT id, v FROM t ORDER BY id"


def contents(disk: Disk) -> Files:
    """Return every file but LOCK, which says who has it open."""
    found: Files = {}
    for folder in ("", *FOLDERS):
        for name in disk.list(folder):
            path = f"{folder}/{name}" if folder else name
            if path not in FOLDERS and name != "LOCK":
                found[path] = disk.read(path)
    return found


def disk_of(files: Files) -> MemoryDisk:
    disk = MemoryDisk()
    for folder in FOLDERS:
        disk.make_directory(folder)
    for path, data in files.items():
        file = disk.open(path, create=True)
        file.write_at(0, data)
        file.close()
    return disk


@cache
def history() -> tuple[list[Files], list[tuple[object, ...]]]:
    """Return a database at many moments of its life, the last one closed, and its rows then.

    It has rolled its log many times, and written checkpoints, deletions and compactions.
    """
    made = Engine(config=CONFIG)
    moments = [contents(made.disk)]
    session = made.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    for batch in range(9):
        for number in range(batch * 20, batch * 20 + 20):
            run(session, "INSERT INTO t VALUES (?, ?)", number, f"row {number} " * 30)
        moments.append(contents(made.disk))
        if batch % 2:
            run(session, "DELETE FROM t WHERE id % 7 = ?", batch % 7)
        if batch in (1, 2, 4, 5, 6, 7):
            made.database.run_checkpoint()
            moments.append(contents(made.disk))
            made.database.run_compaction()
        if batch == 5:
            made.reopen()
            session = made.session(autocommit=True)
        moments.append(contents(made.disk))
    expected = rows(session, ALL)
    made.database.close()
    moments.append(contents(made.disk))
    return moments, expected


def check(files: Files, expected: list[tuple[object, ...]], what: str) -> bool:
    """Open these files; return False when they are called damaged, and then untouched."""
    disk = disk_of(files)
    report = examine(disk, "the test's disk")
    told = ""
    before = contents(disk)
    try:
        opened = Engine(disk=disk, config=CONFIG)
    except CorruptionError as error:
        opened, told = None, str(error)
    if opened is None:
        assert contents(disk) == before, f"{what}: {told}"
        assert report.damages, f"{what}: the doctor sees nothing of: {told}"
        return False
    try:
        assert rows(opened.session(), ALL) == expected, f"{what}: rows are missing, without a word"
        assert not report.damages, f"{what}: opened in spite of {report.damages}"
    finally:
        opened.database.close()
    return True


def frame_ends(manifest: bytes) -> list[int]:
    ends, offset = [32], 32
    while offset + 12 <= len(manifest):
        offset += 12 + unpack_from("<I", manifest, offset + 4)[0]
        ends.append(offset)
    return ends


def test_a_manifest_cut_anywhere(seed: int) -> None:
    moments, expected = history()
    rng = random.Random(seed)
    opened = refused = 0
    for files in (moments[-1], moments[-2]):  # closed, and as a kill leaves it
        manifest = files[MANIFEST]
        ends = frame_ends(manifest)
        assert len(ends) > 10
        for cut in {*ends, *(rng.randrange(len(manifest)) for _ in range(40))}:
            is_open = check({**files, MANIFEST: manifest[:cut]}, expected, f"cut at {cut}")
            opened, refused = opened + is_open, refused + (not is_open)
    assert opened
    assert refused > 20


def test_each_file_missing_in_turn() -> None:
    moments, expected = history()
    files = moments[-1]
    opened = [
        path
        for path in files
        if check({p: data for p, data in files.items() if p != path}, expected, f"no {path}")
    ]
    assert all("spare" in path or "reserve" in path for path in opened), opened
    assert len(opened) < len(files)


def test_each_file_replaced_by_its_older_copies() -> None:
    moments, expected = history()
    files = moments[-1]
    tried = refused = 0
    for path, data in files.items():
        for older in {moment[path] for moment in moments if path in moment} - {data}:
            tried += 1
            what = f"{path} of {len(older)} bytes for {len(data)}"
            refused += not check({**files, path: older}, expected, what)
    assert tried > 10
    assert refused > 5


def test_every_moment_of_a_life_opens() -> None:
    """The other side: what no crash and no damage has touched is never called damaged."""
    moments, _ = history()
    for files in moments:
        disk = disk_of(files)
        assert not examine(disk, "the test's disk").damages
        Engine(disk=disk, config=CONFIG).database.close()


def test_segments_beside_a_manifest_that_never_listed_any() -> None:
    moments, expected = history()
    files = {path: data for path, data in moments[-1].items() if "/log/" not in path}
    manifest = files[MANIFEST]
    first = Manifest.create(MemoryDisk(), "MANIFEST", SeededRng(1)).byte_count
    assert first < len(manifest)
    empty = MemoryDisk()
    Manifest.create(empty, "MANIFEST", SeededRng(1)).close()
    assert not check({**files, MANIFEST: empty.read("MANIFEST")}, expected, "an empty manifest")


def test_files_of_a_database_without_format_and_manifest_are_no_new_one() -> None:
    moments, _ = history()
    files = {p: data for p, data in moments[-1].items() if p not in (MANIFEST, "FORMAT")}
    disk = disk_of(files)
    with pytest.raises(CorruptionError, match="FORMAT is missing"):
        Engine(disk=disk, config=CONFIG)
    assert contents(disk) == files


@pytest.mark.parametrize("seed", range(3))
def test_a_restore_over_an_empty_database_may_be_killed_at_any_step(seed: int) -> None:
    """Its segments lie beside a manifest that never listed any, and are no damage."""
    source = Engine(config=CONFIG)
    session = source.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    run(session, "INSERT INTO t VALUES (1, 'a')")
    backup = source.database.backup()
    content = verify_backup(memoryview(b"".join(backup.pieces())), "the backup")
    backup.close()
    source.database.close()
    step = 0
    while True:
        disk = SimulatedDisk(seed)
        Engine(disk=disk, config=CONFIG).database.close()
        step += 1
        disk.crash_at = disk.step_count + step
        try:
            restore(content, disk, random.Random(seed), "the disk", is_replacing=True)
            break
        except SimulatedCrash:
            pass
        again = Engine(disk=disk.restart(), config=CONFIG)
        tables = [row[0] for row in rows(again.session(), "SHOW TABLES")]
        assert tables in ([], ["t"])
        assert "RESTORE" not in again.disk.list("")
        again.database.close()
    assert step > 10


@pytest.mark.parametrize("seed", range(2))
def test_a_restore_of_an_empty_database_may_be_killed_at_any_step(seed: int) -> None:
    """The former database's log lies beside a manifest that lists nothing, and is no damage."""
    source = Engine(config=CONFIG)
    backup = source.database.backup()
    content = verify_backup(memoryview(b"".join(backup.pieces())), "the backup")
    backup.close()
    source.database.close()
    moments, expected = history()
    step = 0
    while True:
        disk = simulated(moments[-1], seed)
        step += 1
        disk.crash_at = disk.step_count + step
        try:
            restore(content, disk, random.Random(seed), "the disk", is_replacing=True)
            break
        except SimulatedCrash:
            pass
        disk = disk.restart()
        for _ in range(2):
            again = Engine(disk=disk, config=CONFIG)
            tables = [row[0] for row in rows(again.session(), "SHOW TABLES")]
            assert tables in ([], ["t"])
            assert not tables or rows(again.session(), ALL) == expected
            again.database.close()
    assert step > 15


def simulated(files: Files, seed: int) -> SimulatedDisk:
    """Return a disk with these files, all durable."""
    disk = SimulatedDisk(seed)
    for folder in FOLDERS:
        disk.make_directory(folder)
    for path, data in files.items():
        file = disk.open(path, create=True)
        file.write_at(0, data)
        file.sync()
        file.close()
    for folder in ("", *FOLDERS):
        disk.sync_directory(folder)
    return disk


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("name", ["00000007.segment", "00000009.log", "spare-00000001.log", "mine"])
def test_a_directory_of_the_user_in_our_folders_is_left_alone(folder: str, name: str) -> None:
    moments, expected = history()
    disk = disk_of(moments[-1])
    disk.make_directory(f"{folder}/{name}")
    file = disk.open(f"{folder}/{name}/note", create=True)
    file.write_at(0, b"keep")
    file.close()
    opened = Engine(disk=disk, config=CONFIG)
    session = opened.session(autocommit=True)
    for number in range(1000, 1100):
        run(session, "INSERT INTO t VALUES (?, ?)", number, "x" * 300)
    opened.database.run_checkpoint()
    opened.reopen()
    assert len(rows(opened.session(), ALL)) == len(expected) + 100
    assert disk.read(f"{folder}/{name}/note") == b"keep"
    opened.database.close()
