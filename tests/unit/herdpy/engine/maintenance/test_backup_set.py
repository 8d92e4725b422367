"""Backup sets: every tablespace with its name, limits and rights; nothing half, and what is named.

The writer is the driver's, on simulated disks, with a session of the engine.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec
import pytest

from bookie.runtime.drivers import ThreadDriver
from bookie.runtime.interfaces import Disk
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_rng import OsRng
from herdpy.config import Config
from herdpy.driver.all_dumps import AllDumps
from herdpy.driver.backup_sets import write_backup_set
from herdpy.driver.restoring import verify_set
from herdpy.engine.instance import Instance
from herdpy.engine.maintenance.directory import RESTORE, UNFINISHED
from herdpy.engine.maintenance.doctor import examine
from herdpy.engine.maintenance.restore import restore, restore_all, verify_backup
from herdpy.engine.session.session import Session
from herdpy.errors import (
    CorruptionError,
    Error,
    InvariantViolation,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from herdpy.model.settings import Settings
from herdpy.storage.backup_file import BackupContent, read_backup
from herdpy.storage.backup_set import (
    BACKUP,
    BackupPart,
    BackupSet,
    backup_name,
    read_set,
    write_set,
)
from herdpy.storage.tablespace_list import (
    DEFAULT,
    TABLESPACES,
    TablespaceEntry,
    TablespaceLimits,
    decode_list,
)
from tests.fixtures.backups import backed_up
from tests.fixtures.engines import rows, run
from tests.sim.disk import SimulatedCrash, SimulatedDisk

CONFIG = Config(log_file_bytes_first=8192, disk_reserve_bytes=0)
NAMES = ("default", "sales", "a/b c")


def opened(disk: Disk) -> Instance:
    made = Instance(
        disk=disk,
        clock=OsClock(),
        rng=OsRng(),
        driver=ThreadDriver(),
        config=CONFIG,
        is_threaded=False,
    )
    made.start()
    return made


@contextmanager
def instance(disk: Disk) -> Iterator[Instance]:
    found = opened(disk)
    try:
        yield found
    finally:
        found.close()


def session(found: Instance, name: str = DEFAULT, user: str | None = None) -> Session:
    return found.tablespaces.database(name).session(Settings(), autocommit=True, user=user)


def fill(disk: Disk) -> None:
    with instance(disk) as found:
        one = session(found)
        run(one, "CREATE USER boss PASSWORD 'a password of boss' SUPERUSER")
        run(one, "CREATE TABLESPACE sales WITH (connections_max = 7, memory_bytes_max = 67108864)")
        run(one, 'CREATE TABLESPACE "a/b c" WITH (disk_bytes_max = 2097152)')
        for name in NAMES:
            one = session(found, name)
            run(one, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            one.execute_many("INSERT INTO t VALUES (?, ?)", [(i, name) for i in range(9)])
            run(one, "CREATE USER bob PASSWORD 'a password of bob'")
            run(one, "GRANT SELECT ON t TO bob")


def written(source: Disk, folder: Disk, *, overwrite: bool = False, user: str | None = None) -> int:
    with instance(source) as found:
        one = session(found, user=user)
        return write_backup_set(one, folder, "/set", overwrite=overwrite, progress=None)


@pytest.fixture(scope="module")
def source() -> MemoryDisk:
    """A directory of three tablespaces, which tests only read."""
    disk = MemoryDisk()
    fill(disk)
    return disk


@pytest.fixture
def folder(source: MemoryDisk) -> SimulatedDisk:
    """A set of it."""
    disk = SimulatedDisk(1)
    written(source, disk)
    return disk


def check_all_there(disk: Disk) -> None:
    """Raise unless a directory has all of the source: names, limits, rows, rights."""
    assert examine(disk, "there").damages == []
    with instance(disk) as found:
        limits = {state.entry.name: state.entry.limits for state in found.tablespaces.states()}
        assert limits == {
            "default": TablespaceLimits(),
            "sales": TablespaceLimits(67108864, 7, None),
            "a/b c": TablespaceLimits(None, None, 2097152),
        }
        assert found.tablespaces.open_all() == []
        for name in NAMES:
            bob = session(found, name, "bob")
            assert rows(bob, "SELECT count(*), min(v), max(v) FROM t") == [(9, name, name)]
            with pytest.raises(ProgrammingError):
                run(bob, "DELETE FROM t")
            run(session(found, name), "INSERT INTO t VALUES (100, 'later')")
    with instance(disk) as found:
        for name in NAMES:
            one = session(found, name)
            assert rows(one, "SELECT v FROM t WHERE id = 100") == [("later",)]
            run(one, "DELETE FROM t WHERE id = 100")
    assert RESTORE not in disk.list("")


def restored(folder: Disk, disk: Disk) -> None:
    restore_all(verify_set(folder, "/set", None), disk, OsRng(), "there")


# --- what is in it -------------------------------------------------------------------------------


def test_all_tablespaces_with_names_limits_and_rights(
    source: MemoryDisk, folder: SimulatedDisk
) -> None:
    disk = SimulatedDisk(7)
    restored(folder, disk)
    assert not [path for path in disk.contents() if path.endswith(UNFINISHED)]
    check_all_there(disk)
    with instance(source) as old, instance(disk) as new:  # other tablespaces, with other logs
        ids = {each.id for each in old.tablespaces.listed.entries}
        assert not ids & {each.id for each in new.tablespaces.listed.entries}


def test_one_of_them_becomes_default(folder: SimulatedDisk) -> None:
    ((entry, content),) = verify_set(folder, "/set", "a/b c")
    assert entry.name == "a/b c"
    disk = MemoryDisk()
    restore(content, disk, OsRng(), "there", is_replacing=False)
    with instance(disk) as found:
        assert rows(session(found, user="bob"), "SELECT max(v) FROM t") == [("a/b c",)]
        assert [state.entry.name for state in found.tablespaces.states()] == [DEFAULT]
    with pytest.raises(OperationalError, match="no backup of tablespace") as missing:
        verify_set(folder, "/set", "sale")
    assert (missing.value.sqlstate, missing.value.hint) == ("3D000", 'Did you mean "sales"?')


def test_a_directory_of_one_has_no_list() -> None:
    source, folder, disk = MemoryDisk(), MemoryDisk(), MemoryDisk()
    with instance(source) as found:
        run(session(found), "CREATE TABLE t (id BIGINT PRIMARY KEY)")
        write_backup_set(session(found), folder, "/set", overwrite=False, progress=None)
    restored(folder, disk)
    assert TABLESPACES not in disk.list("")
    with instance(disk) as found:
        assert rows(session(found), "SELECT * FROM t") == []


def test_each_part_is_a_backup_that_can_be_restored_alone(folder: SimulatedDisk) -> None:
    for part in read_set(folder, "/set").parts:
        data = folder.read(part.file)
        assert len(data) == part.byte_count
        content = verify_backup(memoryview(data), part.file)
        disk = MemoryDisk()
        restore(content, disk, OsRng(), "there", is_replacing=False)
        with instance(disk) as found:
            assert rows(session(found), "SELECT max(v) FROM t") == [(part.entry.name,)]


def test_bytes_of_the_manifest() -> None:
    disk = MemoryDisk()
    limits = TablespaceLimits(connections_max=5)
    parts = (
        BackupPart(TablespaceEntry(b"d" * 16, DEFAULT), b"\x01" * 16, 300, b"\x02" * 32),
        BackupPart(TablespaceEntry(b"s" * 16, "sales", 2, limits), b"\x03" * 16, 7, b"\x04" * 32),
    )
    write_set(disk, BackupSet(parts))
    body = (
        "9192"
        "94" + "94c410" + "64" * 16 + "a7" + b"default".hex() + "0293c0c0c0"
        "c410" + "01" * 16 + "cd012c" + "c420" + "02" * 32 +
        "94" + "94c410" + "73" * 16 + "a5" + b"sales".hex() + "0293c005c0"
        "c410" + "03" * 16 + "07" + "c420" + "04" * 32
    )  # fmt: skip
    data = disk.read(BACKUP)
    assert data[20:].hex() == body
    assert (
        data[:16].hex()
        == b"HERDPBKS".hex() + "01000000" + len(data[20:]).to_bytes(4, "little").hex()
    )
    assert data[16:20].hex() == "e1b5cd8a"
    assert read_set(disk, "/set") == BackupSet(parts)
    assert disk.list("") == [BACKUP]


# --- who may, and where it is written ------------------------------------------------------------


def test_superusers_of_default_may_alone(source: MemoryDisk) -> None:
    with instance(source) as found:
        ids = {state.entry.name: state.entry.id.hex() for state in found.tablespaces.states()}
        refused: list[Callable[[], object]] = []
        for name, user in ((DEFAULT, "bob"), ("sales", None), ("sales", "bob")):
            one = session(found, name, user)
            refused += [
                lambda one=one: write_backup_set(
                    one, MemoryDisk(), "/set", overwrite=False, progress=None
                ),
                lambda one=one: one.export("tablespaces"),
                lambda one=one: one.export("backup", ids["a/b c"]),
            ]
        for each in refused:
            with pytest.raises(ProgrammingError) as caught:
                each()
            assert caught.value.sqlstate == "42501"
        boss = session(found, user="boss")
        assert write_backup_set(boss, MemoryDisk(), "/set", overwrite=False, progress=None) > 1000
        for kind, of in (
            ("dump", "../x"),
            ("backup", "sales"),
            ("backup", "../x"),
            ("x", ""),
        ):
            with pytest.raises(ProgrammingError, match="export: expected") as unknown:
                boss.export(kind, of)
            assert unknown.value.sqlstate == "22023"
        with pytest.raises(OperationalError, match="does not exist") as gone:
            boss.export("backup", "0" * 32)
        assert gone.value.sqlstate == "3D000"


def test_a_folder_that_holds_something_is_left_alone(source: MemoryDisk) -> None:
    letter = MemoryDisk()
    letter.open("letter.txt", create=True).close()
    for overwrite in (False, True):
        with pytest.raises(ProgrammingError, match=r"'letter\.txt', which is no part") as caught:
            written(source, letter, overwrite=overwrite)
        assert caught.value.sqlstate == "58P02"
        assert letter.list("") == ["letter.txt"]
    folder = MemoryDisk()
    written(source, folder)
    before = sorted(folder.list(""))
    with pytest.raises(ProgrammingError, match="not overwritten"):
        written(source, folder)
    assert sorted(folder.list("")) == before
    written(source, folder, overwrite=True)
    after = sorted(folder.list(""))
    assert len(after) == len(before) == len(NAMES) + 1
    assert set(after) & set(before) == {BACKUP}


def test_one_that_is_dropped_meanwhile_is_left_out_and_a_new_one_is_not_in_it() -> None:
    disk, folder, new = MemoryDisk(), MemoryDisk(), MemoryDisk()
    fill(disk)
    with instance(disk) as found:
        one = session(found)
        steps = 0

        class Dropping:
            """The session, beside which another one changes tablespaces."""

            def export(self, kind: str, tablespace: str = "") -> object:
                nonlocal steps
                steps += 1
                if steps == 2:
                    run(session(found), "DROP TABLESPACE sales")
                    run(session(found), 'ALTER TABLESPACE "a/b c" RENAME TO other')
                    run(session(found), "CREATE TABLESPACE late")
                return one.export(kind, tablespace)

        write_backup_set(Dropping(), folder, "/set", overwrite=False, progress=None)  # type: ignore[arg-type]
    restored(folder, new)
    with instance(new) as found:
        assert [state.entry.name for state in found.tablespaces.states()] == ["default", "a/b c"]


def test_one_that_is_damaged_makes_no_set(source: MemoryDisk) -> None:
    disk, folder = SimulatedDisk(1), MemoryDisk()
    fill(disk)
    with instance(disk) as found:
        found.tablespaces.open_all()
        for database in found.tablespaces.databases():
            database.run_checkpoint()
        sales = found.tablespaces.listed.find("sales")
    assert sales is not None
    (segment,) = disk.list(f"{sales.folder}/segments")
    disk.flip(f"{sales.folder}/segments/{segment}", 200)
    with pytest.raises(CorruptionError, match=sales.folder):
        written(disk, folder)
    assert folder.list("") == []


def test_a_restore_makes_new_directories_only(folder: SimulatedDisk) -> None:
    disk = MemoryDisk()
    restored(folder, disk)
    with pytest.raises(NotSupportedError, match="several tablespaces"):
        restored(folder, disk)
    check_all_there(disk)
    single = MemoryDisk()
    with instance(single) as found:
        run(session(found), "CREATE TABLE kept (id BIGINT PRIMARY KEY)")
    with pytest.raises(ProgrammingError) as caught:
        restored(folder, single)
    assert caught.value.sqlstate == "42P04"
    with instance(single) as found:
        assert rows(session(found), "SELECT * FROM kept") == []
    letter = MemoryDisk()
    letter.open("letter.txt", create=True).close()
    with pytest.raises(OperationalError, match="no herdpy database"):
        restored(folder, letter)
    assert letter.list("") == ["letter.txt"]


# --- damage --------------------------------------------------------------------------------------


def part_named(folder: Disk, name: str) -> BackupPart:
    part = read_set(folder, "/set").find(name)
    assert part is not None
    return part


def put(folder: Disk, name: str, data: bytes) -> None:
    file = folder.open(name, create=True)
    file.truncate(0)
    file.write_at(0, data)
    file.close()


def refused(folder: Disk) -> CorruptionError:
    """Return why a set is not restored, nor a byte of it."""
    disk = SimulatedDisk(3)
    with pytest.raises(CorruptionError) as caught:
        restored(folder, disk)
    assert disk.list("") == []
    assert caught.value.hint
    return caught.value


def test_a_damaged_part_is_named_and_the_others_can_be_restored(folder: SimulatedDisk) -> None:
    part = part_named(folder, "sales")
    for offset in (*range(0, part.byte_count, 61), part.byte_count - 1):
        folder.flip(part.file, offset)
        error = refused(folder)
        assert f'/set/{part.file} of tablespace "sales" at offset ' in error.message
        for name in ("default", "a/b c"):
            assert verify_set(folder, "/set", name)
        with pytest.raises(CorruptionError):
            verify_set(folder, "/set", "sales")
        folder.flip(part.file, offset)
    assert verify_set(folder, "/set", "sales")


def test_a_cut_part_is_named(folder: SimulatedDisk) -> None:
    part = part_named(folder, "a/b c")
    data = folder.read(part.file)
    for length in (0, 20, len(data) // 2, len(data) - 1):
        put(folder, part.file, data[:length])
        assert f'/set/{part.file} of tablespace "a/b c"' in refused(folder).message


def test_a_missing_part_is_named(folder: SimulatedDisk) -> None:
    part = part_named(folder, "sales")
    folder.unlink(part.file)
    message = refused(folder).message
    assert 'the backup of tablespace "sales" is missing' in message
    assert f"expected the file {part.file} of {part.byte_count:,} bytes, found none" in message


def test_parts_that_are_swapped_are_named(folder: SimulatedDisk) -> None:
    sales, other = part_named(folder, "sales"), part_named(folder, "a/b c")
    of_sales, of_other = folder.read(sales.file), folder.read(other.file)
    put(folder, sales.file, of_other)
    put(folder, other.file, of_sales)
    message = refused(folder).message
    assert f'/set/{sales.file} is not the backup of tablespace "sales"' in message
    assert (
        f"expected backup {sales.backup_id.hex()} of tablespace {sales.entry.id.hex()}" in message
    )
    assert f"found {other.backup_id.hex()} of {other.entry.id.hex()}" in message


def test_a_part_of_another_set_is_named(source: MemoryDisk, folder: SimulatedDisk) -> None:
    """Also one of the same tablespace, of another day."""
    other = MemoryDisk()
    written(source, other)
    sales, of_other = part_named(folder, "sales"), part_named(other, "sales")
    put(folder, sales.file, other.read(of_other.file))
    message = refused(folder).message
    assert f"found {of_other.backup_id.hex()} of {sales.entry.id.hex()}" in message


def test_a_part_of_the_same_id_and_other_content_is_named(folder: SimulatedDisk) -> None:
    """Whose checksums are right: it was made by hand."""
    sales = part_named(folder, "sales")
    content = verify_backup(memoryview(folder.read(sales.file)), "b")
    put(folder, sales.file, rewritten(content))
    assert "of other content" in refused(folder).message


def rewritten(content: BackupContent) -> bytes:
    from herdpy.storage.backup_file import write_blocks

    head = msgspec.structs.replace(content.head, made_us=content.head.made_us + 1)
    views = [(number, lambda view=each.view: view) for number, each in content.segments.items()]
    return b"".join(write_blocks(head, views))


def test_every_changed_byte_of_the_manifest_is_found(folder: SimulatedDisk) -> None:
    length = folder.size(BACKUP)
    for offset in range(length):
        folder.flip(BACKUP, offset, 0x01)
        with pytest.raises((CorruptionError, NotSupportedError), match="/set/BACKUP"):
            restored(folder, SimulatedDisk(2))
        folder.flip(BACKUP, offset, 0x01)
    data = folder.read(BACKUP)
    for cut in (data[:0], data[:19], data[:-1], data + b"x"):
        put(folder, BACKUP, cut)
        assert "damaged manifest of a backup set /set/BACKUP at offset" in refused(folder).message
    folder.unlink(BACKUP)
    with pytest.raises(OperationalError, match="has no file BACKUP") as caught:
        restored(folder, SimulatedDisk(2))
    assert caught.value.sqlstate == "58P01"


def test_what_cannot_be_a_set_is_not_written_nor_believed() -> None:
    default = BackupPart(TablespaceEntry(b"d" * 16, DEFAULT), b"1" * 16, 9, b"2" * 32)
    sales = BackupPart(TablespaceEntry(b"s" * 16, "sales"), b"3" * 16, 9, b"4" * 32)
    replace = msgspec.structs.replace
    for parts in (
        (),
        (sales,),
        (default, default),
        (default, replace(sales, backup_id=default.backup_id)),
        (default, replace(sales, backup_id=b"")),
        (default, replace(sales, sha256=b"")),
        (default, replace(sales, byte_count=0)),
        (default, replace(sales, entry=replace(sales.entry, state=1))),
        (default, replace(sales, entry=replace(sales.entry, name=""))),
    ):
        with pytest.raises(InvariantViolation):
            write_set(MemoryDisk(), BackupSet(parts))


def test_the_doctor_shows_names_limits_and_rights(folder: SimulatedDisk) -> None:
    disk = SimulatedDisk(1)
    restored(folder, disk)
    found = {each.name: each for each in examine(disk, "there").tablespaces}
    assert list(found) == list(NAMES)
    assert found["sales"].limits == TablespaceLimits(67108864, 7, None)
    for name, roles in (("default", 2), ("sales", 1), ("a/b c", 1)):
        each = found[name]
        assert (each.table_count, each.role_count, each.right_count) == (1, roles, 1)
        assert disk.exists(f"{each.folder}/MANIFEST")
    disk.flip(f"{found['sales'].folder}/MANIFEST", 12)
    found = {each.name: each for each in examine(disk, "there").tablespaces}
    assert found["sales"].table_count is None
    assert found["a/b c"].table_count == 1


def test_a_name_that_no_script_can_have(source: MemoryDisk) -> None:
    disk = MemoryDisk()
    with instance(disk) as found:
        run(session(found), 'CREATE TABLESPACE "two\nlines"')
        with pytest.raises(NotSupportedError, match="cannot be named in a script"):
            AllDumps(session(found))
    with instance(source) as found:
        refused = session(found, "sales")
        with pytest.raises(ProgrammingError) as caught:
            AllDumps(refused)
        assert caught.value.sqlstate == "42501"


# --- a crash, and a failing disk -----------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("has_old", [False, True])
def test_a_crash_at_every_step_of_the_writing(source: MemoryDisk, *, has_old: bool) -> None:
    """It leaves no set, the old one, or the new one; and once more makes a new one."""
    step, is_crashed, found = 0, True, set[str]()
    with instance(source) as database:
        one = session(database)

        def write(disk: Disk, *, overwrite: bool) -> None:
            write_backup_set(one, disk, "/set", overwrite=overwrite, progress=None)

        while is_crashed:
            step += 1
            disk, before = SimulatedDisk(step), b""
            if has_old:
                write(disk, overwrite=False)
                before = disk.read(BACKUP)
            disk.crash_at = disk.step_count + step
            try:
                write(disk, overwrite=has_old)
                is_crashed = False
            except SimulatedCrash:
                pass
            disk.crash_at = None
            for seed in range(6):
                left = disk.restart(seed) if is_crashed else disk
                if not left.exists(BACKUP):
                    found.add("none")
                else:
                    assert len(verify_set(left, "/set", None)) == len(NAMES)
                    found.add("old" if left.read(BACKUP) == before else "new")
                write(left, overwrite=True)
                assert len(left.list("")) == len(NAMES) + 1
                verify_set(left, "/set", None)
    assert found == {"old" if has_old else "none", "new"}
    assert step > 15


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("open", errno.ENOSPC),
        ("write", errno.ENOSPC),
        ("sync", errno.EIO),
        ("sync_directory", errno.EIO),
        ("rename", errno.EIO),
        ("map", errno.EIO),
    ],
)
def test_a_failing_disk_of_the_folder(source: MemoryDisk, kind: str, code: int) -> None:
    """An error leaves the old set whole, or the new one, and no file of neither."""
    after = 0
    while True:
        disk = SimulatedDisk(after)
        written(source, disk)
        disk.fail(kind, code, after=after)
        with suppress(OSError, Error):
            written(source, disk, overwrite=True)
        if disk.pending_faults:
            break
        disk.heal()
        assert len(verify_set(disk, "/set", None)) == len(NAMES)
        after += 1
    assert after >= 1


def state_of(disk: SimulatedDisk) -> str:
    """Return what a restore into a new directory has left; opening it makes a database of none."""
    names = disk.list("")
    if "FORMAT" in names:
        check_all_there(disk)
        return "new"
    if RESTORE in names:
        with pytest.raises(OperationalError, match="restoring a backup into it was interrupted"):
            opened(disk)
        return "half"
    assert set(names) <= {"LOCK"}
    return "nothing"


@pytest.mark.exhaustive
def test_a_crash_at_every_step_of_the_restore(folder: SimulatedDisk) -> None:
    """It leaves nothing, half a database that says so, or all; and once more makes it whole."""
    single = SimulatedDisk(5)
    with instance(single) as found:
        run(session(found), "CREATE TABLE alone (id BIGINT PRIMARY KEY)")
        alone = verify_backup(memoryview(backed_up(found.default)), "b")
    contents = verify_set(folder, "/set", None)
    step, is_crashed, outcomes = 0, True, set[str]()
    while is_crashed:
        step += 1
        disk = SimulatedDisk(step)
        disk.crash_at = step
        try:
            restore_all(contents, disk, OsRng(), "there")
            is_crashed = False
        except SimulatedCrash:
            disk = disk.restart()
        disk.crash_at = None
        outcome = state_of(disk)
        outcomes.add(outcome)
        if outcome == "new":
            continue
        if step % 2:
            restore_all(contents, disk, OsRng(), "there")
            check_all_there(disk)
        else:  # another backup takes its place
            restore(alone, disk, OsRng(), "there", is_replacing=False)
            assert set(disk.list("")) == {"FORMAT", "LOCK", "default"}
            with instance(disk) as found:
                assert rows(session(found), "SELECT * FROM alone") == []
    assert outcomes == {"nothing", "half", "new"}
    assert step > 40


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("open", errno.ENOSPC),
        ("write", errno.ENOSPC),
        ("make_directory", errno.ENOSPC),
        ("sync", errno.EIO),
        ("sync_directory", errno.EIO),
        ("rename", errno.EIO),
        ("unlink", errno.EIO),
    ],
)
def test_a_failing_disk_of_the_directory(folder: SimulatedDisk, kind: str, code: int) -> None:
    contents = verify_set(folder, "/set", None)
    after = 0
    while True:
        disk = SimulatedDisk(after)
        disk.fail(kind, code, after=after)
        with suppress(OSError, Error):
            restore_all(contents, disk, OsRng(), "there")
        if disk.pending_faults:
            break
        disk.heal()
        if state_of(disk) != "new":
            restore_all(contents, disk, OsRng(), "there")
        check_all_there(disk)
        after += 1
    assert after >= 1


def test_tablespaces_are_not_taken_for_leftovers_when_format_is_lost(folder: SimulatedDisk) -> None:
    """Without FORMAT, and with a RESTORE that should not be there, finished ones stay."""
    disk = SimulatedDisk(1)
    restored(folder, disk)
    disk.unlink("FORMAT")
    disk.open(RESTORE, create=True).close()
    before = disk.contents()
    with pytest.raises(NotSupportedError, match="several tablespaces"):
        restored(folder, disk)
    assert disk.contents() == before


def test_the_list_that_goes_out_is_the_one_of_the_directory(source: MemoryDisk) -> None:
    with instance(source) as found:
        export = session(found).export("tablespaces")
        data = b"".join(export.pieces())
        export.close()
        assert export.byte_count == len(data)
        assert decode_list(data).entries == tuple(found.tablespaces.listed.present)


def test_a_server_that_gives_another_tablespace_makes_no_set(source: MemoryDisk) -> None:
    """One that is older ignores which one is asked for."""
    folder = MemoryDisk()
    with instance(source) as found:
        one = session(found)

        class Older:
            def export(self, kind: str, tablespace: str = "") -> object:
                return one.export(kind, "" if kind == "backup" else tablespace)

        with pytest.raises(CorruptionError, match='the backup of tablespace "sales": expected'):
            write_backup_set(Older(), folder, "/set", overwrite=False, progress=None)  # type: ignore[arg-type]
    assert folder.list("") == []


def test_names_of_files_are_the_ids_of_backups(folder: SimulatedDisk) -> None:
    parts = read_set(folder, "/set").parts
    files = {backup_name(part.backup_id) for part in parts}
    assert set(folder.list("")) == {BACKUP, *files}
    for part in parts:
        content = read_backup(memoryview(folder.read(part.file)), "b")
        assert content.head.state.identity.uuid == part.entry.id
