"""The manifest: edits are whole or not there, damage is told from a torn tail, nothing is lost."""

import errno
from typing import Any

import msgspec
import pytest

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.errors import (
    CorruptionError,
    DiskFullError,
    Error,
    InvariantViolation,
    OperationalError,
)
from herdpy.storage.manifest import (
    BitmapRef,
    Checkpoint,
    Compaction,
    Identity,
    LogDurable,
    LogFileBegun,
    LogFilesDropped,
    Manifest,
    ManifestState,
    PageRef,
    Snapshot,
    TableEdit,
    TableState,
    apply_edit,
)
from tests.fixtures.interrupts import LineInterrupter
from tests.fixtures.metadata import SeededRng
from tests.sim.disk import SimulatedCrash, SimulatedDisk

EMPTY = Manifest.create(MemoryDisk(), "MANIFEST", SeededRng(1)).state
LOG_ID = EMPTY.log_id
DEFINITION = [1, "t", 1, [0], []]


def page(segment: int, offset: int, run: int = 0) -> PageRef:
    low, high = bytes([offset]), bytes([offset + 1])
    return PageRef(segment, offset, 64, 10, low, high, run)


def checkpoint(lsn: int, segment: int = 0, **change: Any) -> Checkpoint:
    tables = (TableEdit(1, **change),) if change else ()
    segments = ((segment, 1000 + segment),) if segment else ()
    return Checkpoint((-1, lsn, 0), lsn, b"engine", 2, segments, tables)


EDITS = [
    LogFileBegun(1, 1),
    checkpoint(5, 1, definition=DEFINITION, pages_added=(page(1, 64), page(1, 128))),
    LogFileBegun(2, 9),
    checkpoint(9, 2, bitmaps=((1, 128, BitmapRef(2, 64, 64, 3)),), pages_added=(page(2, 192, 1),)),
    LogFilesDropped((1,)),
    LogDurable(12),
    Compaction(((3, 1003),), (TableEdit(1, pages_added=(page(3, 64),), pages_removed=((1, 64),)),)),
]


def states() -> list[ManifestState]:
    found = [EMPTY]
    for edit in EDITS:
        found.append(apply_edit(found[-1], edit))
    return found


def test_edits_add_up() -> None:
    *_, last = states()
    assert last.log_files == ((2, 9),)
    assert last.checkpoint_lsn == (-1, 9, 0)
    assert last.position == 9
    assert last.durable_sequence == 12
    assert last.segments == {1: 1001, 2: 1002, 3: 1003}
    assert last.next_segment == 4
    assert last.next_table_id == 2
    assert last.engine == b"engine"
    assert last.tables == {
        1: TableState(
            DEFINITION,
            (
                page(3, 64),
                PageRef(1, 128, 64, 10, b"\x80", b"\x81", 0, BitmapRef(2, 64, 64, 3)),
                page(2, 192, 1),
            ),
        )
    }
    gone = apply_edit(last, checkpoint(10, is_dropped=True))
    assert gone.tables == {}
    assert gone.segments == {}
    assert gone.next_segment == 4


def test_segments_leave_with_their_last_part() -> None:
    *_, last = states()
    after = apply_edit(last, checkpoint(10, pages_removed=((1, 128),)))
    assert after.segments == {2: 1002, 3: 1003}


@pytest.mark.parametrize(
    "edit",
    [
        Snapshot(ManifestState(LOG_ID)),
        LogFileBegun(2, 10),
        LogFileBegun(3, 8),
        checkpoint(8),
        Checkpoint((-1, 10, 0), 10, b"", 1),
        checkpoint(10, 3, pages_added=(page(3, 64),)),
        checkpoint(10, 0, pages_added=(page(99, 64),)),
        checkpoint(10, 0, pages_removed=((1, 64),)),
        checkpoint(10, 0, bitmaps=((1, 64, BitmapRef(2, 64, 64, 3)),)),
        Checkpoint((-1, 10, 0), 10, b"", 2, (), (TableEdit(8),)),
    ],
)
def test_edits_that_do_not_fit(edit: Any) -> None:
    with pytest.raises(InvariantViolation):
        apply_edit(states()[-1], edit)


def test_repeated_log_file_has_no_effect() -> None:
    state = states()[3]
    assert apply_edit(state, EDITS[2]) == state


def written(count: int) -> MemoryDisk:
    disk = MemoryDisk()
    manifest = Manifest.create(disk, "MANIFEST", SeededRng(1))
    for edit in EDITS[:count]:
        manifest.append(edit)
    manifest.close()
    return disk


def opened(disk: Any) -> ManifestState:
    manifest = Manifest.open(disk, "MANIFEST", SeededRng(1))
    manifest.close()
    return manifest.state


@pytest.mark.parametrize("count", range(len(EDITS) + 1))
def test_reopened(count: int) -> None:
    disk = written(count)
    assert opened(disk) == states()[count]
    manifest = Manifest.open(disk, "MANIFEST", SeededRng(1))
    for edit in EDITS[count:]:
        manifest.append(edit)
    assert manifest.state == states()[-1] == opened(disk)


def test_create_never_replaces() -> None:
    disk = written(1)
    with pytest.raises(InvariantViolation, match="exists already"):
        Manifest.create(disk, "MANIFEST", SeededRng(1))


def test_torn_at_every_byte_of_the_last_edit() -> None:
    whole = written(3).read("MANIFEST")[:-12]  # without its seal
    before = len(written(2).read("MANIFEST")) - 12
    for end in range(before, len(whole)):
        for tail in (b"", bytes(len(whole) - end), b"\xff" * 40):
            disk = MemoryDisk()
            disk.open("MANIFEST", create=True).write_at(0, whole[:end] + tail)
            if (whole[:end] + tail)[: len(whole)] == whole:
                continue  # the bytes it lost were zeros
            manifest = Manifest.open(disk, "MANIFEST", SeededRng(1))
            assert manifest.state == states()[2]
            assert disk.size("MANIFEST") == before + 12
            manifest.append(EDITS[2])
            manifest.close()
            assert opened(disk) == states()[3]
            assert disk.read("MANIFEST")[: len(whole)] == whole


def test_every_flipped_bit_is_seen() -> None:
    disk = written(len(EDITS))
    data = disk.read("MANIFEST")
    file = disk.open("MANIFEST")
    for position in range(len(data) - 12):
        file.write_at(position, bytes([data[position] ^ (1 << position % 8)]))
        with pytest.raises(CorruptionError, match=r"damaged manifest MANIFEST at offset \d+"):
            Manifest.open(disk, "MANIFEST", SeededRng(1))
        file.write_at(position, data[position : position + 1])
    for position in range(len(data) - 12, len(data)):  # the seal itself says nothing
        file.write_at(position, bytes([data[position] ^ 1]))
        assert opened(disk) == states()[-1]
        file.write_at(0, data)


def test_salvage_reads_what_stands_before_the_damage() -> None:
    sizes = [len(written(count).read("MANIFEST")) - 12 for count in range(len(EDITS) + 1)]
    disk = written(len(EDITS))
    data = disk.read("MANIFEST")
    file = disk.open("MANIFEST")
    assert Manifest.read_valid(disk, "MANIFEST") == (states()[-1], None)
    for position in range(sizes[-1]):
        file.write_at(position, bytes([data[position] ^ (1 << position % 8)]))
        if 16 <= position < sizes[0]:  # the file's id, or the first edit: nothing is left
            with pytest.raises(CorruptionError, match="MANIFEST at offset") as caught:
                Manifest.read_valid(disk, "MANIFEST")
            assert "nothing can be read" in str(caught.value)
        else:
            whole = sum(size <= position for size in sizes) if position >= 16 else len(sizes)
            state, damage = Manifest.read_valid(disk, "MANIFEST")
            assert state == states()[whole - 1]
            assert "MANIFEST at offset" in str(damage)
        file.write_at(position, data[position : position + 1])


@pytest.mark.parametrize("size", [0, 5, 16, 20, 40])
def test_without_whole_snapshot(size: int) -> None:
    disk = written(0)
    disk.open("MANIFEST").truncate(size)
    with pytest.raises(CorruptionError, match="MANIFEST at offset"):
        Manifest.open(disk, "MANIFEST", SeededRng(1))


def test_rewritten_when_long() -> None:
    disk = MemoryDisk()
    manifest = Manifest.create(disk, "MANIFEST", SeededRng(1))
    sizes = []
    for number in range(1, 20_000):
        manifest.append(LogFilesDropped(tuple(range(number % 100))))
        sizes.append(manifest.byte_count)
        if sizes[-1] < sizes[0]:
            break
    manifest.append(LogFileBegun(1, 1))
    assert 65_000 < max(sizes) <= 65_536
    assert min(sizes[-1:]) < 200
    assert manifest.state == opened(disk) == apply_edit(EMPTY, LogFileBegun(1, 1))
    assert disk.list("") == ["MANIFEST"]


def long_edit(number: int) -> Checkpoint:
    return Checkpoint((-1, number, 0), number, b"x" * 200, 1)


def long_manifest(disk: Any) -> Manifest:
    """One edit before the rewrite."""
    manifest = Manifest.create(disk, "MANIFEST", SeededRng(1))
    number, growth = 0, 0
    while manifest.byte_count + growth <= 64 * 1024:
        number += 1
        before = manifest.byte_count
        manifest.append(long_edit(number))
        growth = manifest.byte_count - before
    return manifest


def test_rewrite_that_fails_leaves_the_old_file() -> None:
    disk = SimulatedDisk(3)
    manifest = long_manifest(disk)
    disk.fail("open", errno.ENOSPC, times=1)
    for number in range(1000, 1003):
        manifest.append(long_edit(number))
    assert manifest.rewrite_error is not None
    assert manifest.failure is None
    number = 1003
    while manifest.rewrite_error is not None:
        manifest.append(long_edit(number))
        number += 1
    assert manifest.byte_count < 1000
    assert opened(disk).position == number - 1


@pytest.mark.parametrize("is_power_lost", [True, False])
def test_crash_at_every_step(is_power_lost: bool) -> None:
    """I10: after any crash the state is the one before or after the edit that was running."""
    step = 0
    while True:
        step += 1
        done: list[int] = []
        disk = SimulatedDisk(step)
        disk.crash_at = step
        try:
            manifest = Manifest.create(disk, "MANIFEST", SeededRng(1))
            done.append(0)
            for index, edit in enumerate(EDITS):
                manifest.append(edit)
                done.append(index + 1)
        except SimulatedCrash:
            pass
        else:
            break
        for _ in range(2):  # what the first open saw must survive the next crash, too
            disk = disk.restart(is_power_lost=is_power_lost)
            if not disk.exists("MANIFEST"):
                assert not done
                break
            state = opened(disk)
            reached = states().index(state)
            assert max([0, *done]) <= reached <= max([0, *done]) + 1
            done.append(reached)
            is_power_lost = True
    assert step > 20


def test_crash_in_every_step_of_a_rewrite() -> None:
    crashes = 0
    for seed in range(12):
        probe = SimulatedDisk(seed)
        manifest = long_manifest(probe)
        first = probe.step_count
        for number in range(1000, 1003):
            manifest.append(long_edit(number))
        assert manifest.byte_count < 2000
        for step in range(first + 1, probe.step_count + 1):
            disk = SimulatedDisk(seed)
            disk.crash_at = step
            manifest = long_manifest(disk)
            acknowledged = manifest.state.position
            try:
                for number in range(1000, 1003):
                    manifest.append(long_edit(number))
                    acknowledged = number
            except SimulatedCrash:
                crashes += 1
            disk = disk.restart()
            position = opened(disk).position
            assert position in (acknowledged, max(acknowledged + 1, 1000))
            assert opened(disk.restart()).position == position
    assert crashes > 100


def test_failed_sync_ends_it() -> None:
    disk = SimulatedDisk(1)
    manifest = Manifest.create(disk, "MANIFEST", SeededRng(1))
    disk.fail("sync", errno.EIO, times=1)
    for _ in range(2):
        with pytest.raises(OperationalError, match="MANIFEST") as error:
            manifest.append(EDITS[0])
        assert error.value is manifest.failure
    assert manifest.state == EMPTY


def test_full_disk_has_no_effect() -> None:
    disk = SimulatedDisk(1)
    manifest = Manifest.create(disk, "MANIFEST", SeededRng(1))
    manifest.append(EDITS[0])
    disk.fail("write", errno.ENOSPC, times=1)
    with pytest.raises(DiskFullError):
        manifest.append(EDITS[1])
    assert manifest.state == states()[1]
    manifest.append(EDITS[1])
    assert manifest.failure is None
    assert opened(disk.crash()) == states()[2]


def test_interrupt_at_every_line_of_append() -> None:
    line = 0
    is_interrupted = True
    while is_interrupted:
        line += 1
        disk = SimulatedDisk(line)
        manifest = long_manifest(disk)
        before = manifest.state.position
        is_interrupted = run_interrupted(line, lambda m=manifest: m.append(long_edit(1000)))
        assert manifest.state.position in (before, 1000)
        disk.fail("open", errno.ENOSPC, times=9)  # no other rewrite comes to the rescue
        for number in (1001, 1002):
            manifest.append(long_edit(number))
        assert manifest.failure is None
        assert opened(disk.crash()).position == 1002
    assert line > 20


def test_what_a_reader_saw_survives_a_power_loss() -> None:
    """A process dies at any line; the next one reads its manifest; then the power fails."""
    line = 0
    is_interrupted = True
    while is_interrupted:
        line += 1
        disk = SimulatedDisk(line)
        is_interrupted = run_interrupted(
            line, lambda d=disk: Manifest.create(d, "MANIFEST", SeededRng(1))
        )
        if disk.exists("MANIFEST"):
            state = opened(disk)
            for seed in range(20):
                assert opened(disk.crash(seed)) == state
    line = 0
    is_interrupted = True
    while is_interrupted:
        line += 1
        disk = SimulatedDisk(line)
        manifest = long_manifest(disk)
        is_interrupted = run_interrupted(line, lambda m=manifest: m.append(long_edit(1000)))
        position = opened(disk).position
        for seed in range(20):
            assert opened(disk.crash(seed)).position == position


def run_interrupted(line: int, call: Any) -> bool:
    """Run call with KeyboardInterrupt at the line-th line of manifest.py; False when it ended."""
    interrupter = LineInterrupter(line, within="/storage/manifest.py")
    try:
        with interrupter:
            call()
    except KeyboardInterrupt:
        return True
    return interrupter.where != ""


def test_golden_bytes() -> None:
    disk = MemoryDisk()
    Manifest.create(disk, "MANIFEST", SeededRng(1)).append(
        LogFileBegun(1, 2, 4096, bytes(range(16, 32)))
    )
    assert disk.read("MANIFEST").hex() == GOLDEN


def test_a_manifest_from_before_leases_is_read() -> None:
    disk = MemoryDisk()
    disk.open("MANIFEST", create=True).write_at(0, bytes.fromhex(GOLDEN_BEFORE_LEASES))
    state = Manifest.read(disk, "MANIFEST")
    assert (state.log_id, state.log_files, state.pins) == (bytes(range(16)), ((1, 2),), {})


def of_format_1(disk: Any) -> Manifest:
    """Return the manifest of an older herdpy, with one log file in it."""
    file = disk.open("MANIFEST", create=True)
    file.write_at(0, bytes.fromhex(FORMAT_1))
    file.sync()
    disk.sync_directory("")
    return Manifest.open(disk, "MANIFEST", SeededRng(1))


def test_format_1_stays_format_1_until_the_upgrade() -> None:
    disk = MemoryDisk()
    manifest = of_format_1(disk)
    assert not manifest.is_current
    assert manifest.new_file_id() == b""
    assert manifest.state == ManifestState(bytes(range(16)), ((1, 2),), log_bytes={1: 4096})
    manifest.append(LogFileBegun(2, 9, 4096))
    assert disk.read("MANIFEST").hex().startswith(FORMAT_1[:-24])
    before = manifest.state
    assert opened(disk) == before
    manifest.upgrade()
    assert manifest.is_current
    file_id = manifest.new_file_id()
    assert len(file_id) == 16
    manifest.append(LogFileBegun(3, 12, 4096, file_id))
    assert manifest.state.listed_log_files == [(1, 2, b""), (2, 9, b""), (3, 12, file_id)]
    identity = manifest.state.identity
    assert len(identity.uuid) == 16
    upgraded = msgspec.structs.replace(before, identity=identity)
    assert opened(disk) == apply_edit(upgraded, LogFileBegun(3, 12, 4096, file_id))
    manifest.upgrade()
    assert manifest.state.identity == identity


@pytest.mark.parametrize("is_power_lost", [True, False])
def test_a_crash_at_every_step_of_the_upgrade(is_power_lost: bool) -> None:
    step, found = 0, set()
    while True:
        step += 1
        disk = SimulatedDisk(step)
        manifest = of_format_1(disk)
        disk.crash_at = disk.step_count + step
        try:
            manifest.upgrade()
            manifest.append(LogFileBegun(2, 9, 4096, bytes(16)))
        except SimulatedCrash:
            pass
        else:
            break
        for _ in range(2):
            disk = disk.restart(is_power_lost=is_power_lost)
            again = Manifest.open(disk, "MANIFEST", SeededRng(2))
            assert again.state.log_files[:1] == ((1, 2),)
            found.add((again.is_current, len(again.state.log_files)))
            again.close()
        again = Manifest.open(disk, "MANIFEST", SeededRng(2))
        again.upgrade()
        again.append(LogFileBegun(3, 9, 4096, bytes(16)))
        assert opened(disk.crash()).log_files[-1] == (3, 9)
    assert found >= {(False, 1), (True, 1)}


def test_no_room_for_the_upgrade() -> None:
    disk = SimulatedDisk(1)
    manifest = of_format_1(disk)
    disk.fail("write", errno.ENOSPC, times=1)
    with pytest.raises(DiskFullError, match="MANIFEST: no space"):
        manifest.upgrade()
    manifest.append(LogFileBegun(2, 9, 4096))
    assert not manifest.is_current
    manifest.upgrade()
    assert opened(disk.crash()) == manifest.state


def test_an_interrupt_at_every_line_of_the_upgrade() -> None:
    line, is_interrupted = 0, True
    while is_interrupted:
        line += 1
        disk = SimulatedDisk(line)
        manifest = of_format_1(disk)
        is_interrupted = run_interrupted(line, manifest.upgrade)
        manifest.upgrade()
        manifest.append(LogFileBegun(2, 9, 4096, manifest.new_file_id()))
        assert opened(disk.crash()) == manifest.state
        assert manifest.is_current


def test_edits_of_another_manifest_are_not_believed() -> None:
    first, second = written(3).read("MANIFEST"), MemoryDisk()
    other = Manifest.create(second, "MANIFEST", SeededRng(2))
    other.append(EDITS[0])
    other.close()
    at = other.byte_count - (len(first) - 12)
    assert at < 0
    length = Manifest.create(MemoryDisk(), "MANIFEST", SeededRng(1)).byte_count
    second.open("MANIFEST").write_at(length, first[length:])
    manifest = Manifest.open(second, "MANIFEST", SeededRng(3))
    assert manifest.state.log_files == ()  # nothing of the first, which all CRCs are right for


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        (Identity(bytes(16), "ledgers"), "found one that is kept as 'ledgers'"),
        (Identity(bytes(3)), "expected ids of 16 bytes, found 000000"),
    ],
)
def test_another_kind_of_log_or_a_wrong_id_is_refused(identity: Identity, message: str) -> None:
    disk = MemoryDisk()
    Manifest.put(disk, "MANIFEST", ManifestState(LOG_ID, identity=identity), SeededRng(1))
    with pytest.raises(Error, match=message):
        Manifest.read(disk, "MANIFEST")


GOLDEN = (
    "48455244504d414e"
    "0200"
    "0000"
    "b6910279"
    "7bd5d47e446fcec2a3d811736110e578"  # header
    "484d4501"
    "44000000"
    "a3c6faab"  # a snapshot
    "9201dc0011c410f5b165224a58b791df6af1d8303e61cd9093ff00000080800101c40000c0808093c410c4bb86"
    "c3d1c427103c344c4189eb2f1ea466696c65c400808080"
    "484d4501"
    "19000000"
    "75c3050a"  # a log file begun
    "95030102cd1000c410101112131415161718191a1b1c1d1e1f"
    "484d4501"
    "00000000"
    "9808a091"  # a seal
)
FORMAT_1 = (
    "48455244504d414e"
    "0100"
    "0000"
    "b216bd66"  # header
    "484d4501"
    "25000000"
    "14a30f4e"  # a snapshot
    "92019dc410000102030405060708090a0b0c0d0e0f9093ff00000080800101c40000c08080"
    "484d4501"
    "07000000"
    "cd91ba4c"
    "94030102cd1000"  # a log file begun
    "484d4501"
    "00000000"
    "b3085800"  # a seal
)
GOLDEN_BEFORE_LEASES = (
    "48455244504d414e"
    "0100"
    "0000"
    "b216bd66"  # header
    "484d4501"
    "24000000"
    "26d8d1b7"  # a snapshot
    "92019cc410000102030405060708090a0b0c0d0e0f9093ff00000080800101c40000c080"
    "484d4501"
    "07000000"
    "f5616939"
    "94030102cd1000"  # a log file begun
    "484d4501"
    "00000000"
    "abc4a4d5"  # a seal
)
