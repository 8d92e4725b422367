"""The Disk contract, over the operating system, memory, and the simulation."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bookie.runtime.interfaces import Disk, DiskLockedError, File
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_disk import OsDisk
from tests.sim.disk import SimulatedDisk

MAKERS: dict[str, Callable[[Path], Disk]] = {
    "os": OsDisk,
    "memory": lambda _: MemoryDisk(),
    "simulated": lambda _: SimulatedDisk(7),
}


@pytest.fixture(params=MAKERS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return MAKERS[request.param](tmp_path)


def _name(descriptor: int) -> str:
    return Path(f"/proc/self/fd/{descriptor}").resolve().name


def write_file(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write_at(0, data)
    file.close()


@pytest.fixture
def file(disk: Disk):
    file = disk.open("f", create=True)
    yield file
    file.close()


class TestFile:
    def test_reads_what_was_written(self, file: File) -> None:
        file.write_at(0, b"hello world")
        file.write_at(6, memoryview(bytearray(b"there")))
        assert file.read_at(0, 100) == b"hello there"
        assert file.read_at(6, 3) == b"the"
        assert file.size() == 11
        assert file.path == "f"

    def test_read_at_the_end_is_short_and_behind_it_empty(self, file: File) -> None:
        file.write_at(0, b"abc")
        assert file.read_at(2, 10) == b"c"
        assert file.read_at(3, 10) == b""
        assert file.read_at(30, 10) == b""
        assert file.read_at(0, 0) == b""

    def test_a_gap_reads_as_zeros(self, file: File) -> None:
        file.write_at(5, b"x")
        assert file.read_at(0, 10) == b"\0\0\0\0\0x"

    def test_an_empty_write_changes_nothing(self, file: File) -> None:
        file.write_at(9, b"")
        assert file.size() == 0

    def test_zeros_over_bytes_and_bytes_over_zeros(self, file: File) -> None:
        file.write_at(0, b"x" * 3000)
        file.write_at(1000, bytes(4000))
        file.write_at(4000, b"end")
        expected = b"x" * 1000 + bytes(3000) + b"end" + bytes(997)
        assert file.read_at(0, 9000) == expected
        assert file.size() == 5000

    def test_truncate_cuts_and_extends_with_zeros(self, file: File) -> None:
        file.write_at(0, b"abcdef")
        file.truncate(2)
        file.truncate(5)
        assert file.read_at(0, 10) == b"ab\0\0\0"
        file.truncate(0)
        assert file.size() == 0

    def test_allocate_extends_with_zeros_and_never_cuts(self, file: File) -> None:
        file.write_at(0, b"abc")
        file.allocate(3_000_000)
        assert file.size() == 3_000_000
        assert file.read_at(0, 5) == b"abc\0\0"
        assert file.read_at(2_999_990, 20) == bytes(10)
        file.write_at(3, b"d")
        file.allocate(2)
        file.allocate(3_000_000)
        assert file.size() == 3_000_000
        assert file.read_at(0, 5) == b"abcd\0"

    def test_release_cache_changes_nothing(self, file: File) -> None:
        file.write_at(0, b"x" * 10_000)
        file.sync()
        file.release_cache(0, 10_000)
        file.release_cache(20_000, 1)
        assert file.read_at(0, 20_000) == b"x" * 10_000

    def test_a_write_of_items_is_a_write_of_their_bytes(self, file: File) -> None:
        file.write_at(0, memoryview(b"\1\0\0\0\2\0\0\0").cast("I"))
        assert file.size() == 8

    def test_sync_keeps_the_content(self, file: File) -> None:
        file.write_at(0, b"abc")
        file.sync()
        file.sync()
        assert file.read_at(0, 10) == b"abc"

    def test_use_after_close_is_ebadf(self, file: File) -> None:
        file.close()
        file.close()
        for use in (
            lambda: file.read_at(0, 1),
            lambda: file.write_at(0, b"x"),
            file.size,
            file.sync,
            lambda: file.truncate(0),
            lambda: file.allocate(1),
            lambda: file.release_cache(0, 1),
        ):
            with pytest.raises(OSError) as caught:
                use()
            assert caught.value.errno == errno.EBADF

    @pytest.mark.parametrize("use", ["read_at", "write_at", "truncate", "allocate"])
    def test_negative_positions_are_einval(self, file: File, use: str) -> None:
        arguments = {"read_at": (-1, 1), "write_at": (-1, b"x"), "truncate": (-1,)}.get(use, (-1,))
        with pytest.raises(OSError) as caught:
            getattr(file, use)(*arguments)
        assert caught.value.errno == errno.EINVAL

    def test_two_handles_see_one_file(self, disk: Disk, file: File) -> None:
        other = disk.open("f")
        file.write_at(0, b"abc")
        assert other.read_at(0, 3) == b"abc"
        other.close()


class TestNames:
    def test_open_of_a_missing_file(self, disk: Disk) -> None:
        with pytest.raises(FileNotFoundError):
            disk.open("missing")
        with pytest.raises(FileNotFoundError):
            disk.open("missing/f", create=True)
        assert not disk.exists("missing")

    def test_open_exclusive(self, disk: Disk) -> None:
        disk.open("f", create=True, exclusive=True).close()
        with pytest.raises(FileExistsError):
            disk.open("f", create=True, exclusive=True)
        disk.open("f", create=True).close()

    def test_directories(self, disk: Disk) -> None:
        disk.make_directory("d")
        disk.make_directory("d/e")
        write_file(disk, "d/b", b"1")
        write_file(disk, "d/a", b"22")
        assert disk.list("") == ["d"]
        assert disk.list("d") == ["a", "b", "e"]
        assert disk.list("d/e") == []
        assert disk.exists("d")
        assert disk.exists("d/a")
        assert not disk.exists("d/a/x")
        assert disk.is_file("d/a")
        assert not disk.is_file("d")
        assert not disk.is_file("d/a/x")
        assert not disk.is_file("missing")
        assert disk.size("d/a") == 2
        disk.sync_directory("d")
        disk.sync_directory("")

    def test_directory_errors(self, disk: Disk) -> None:
        disk.make_directory("d")
        write_file(disk, "f", b"")
        for path in ("d", "f", ""):
            with pytest.raises(FileExistsError):
                disk.make_directory(path)
        with pytest.raises(FileNotFoundError):
            disk.make_directory("x/y")
        for use in (disk.list, disk.sync_directory):
            with pytest.raises(FileNotFoundError):
                use("x")
            with pytest.raises(NotADirectoryError):
                use("f")
        for use in (disk.open, disk.read):
            with pytest.raises(IsADirectoryError):
                use("d")
        with pytest.raises(NotADirectoryError):
            disk.open("f/x", create=True)
        with pytest.raises(IsADirectoryError):
            disk.rename("f", "d")

    def test_remove_directory(self, disk: Disk) -> None:
        disk.make_directory("d")
        disk.make_directory("d/e")
        write_file(disk, "d/f", b"")
        with pytest.raises(OSError) as full:
            disk.remove_directory("d")
        assert full.value.errno == errno.ENOTEMPTY
        disk.remove_directory("d/e")
        disk.unlink("d/f")
        disk.remove_directory("d")
        assert disk.list("") == []
        with pytest.raises(FileNotFoundError):
            disk.remove_directory("d")
        write_file(disk, "f", b"")
        with pytest.raises(NotADirectoryError):
            disk.remove_directory("f")
        disk.make_directory("d")

    def test_rename_replaces(self, disk: Disk) -> None:
        disk.make_directory("d")
        write_file(disk, "old", b"old")
        write_file(disk, "d/new", b"new")
        disk.rename("d/new", "old")
        assert disk.read("old") == b"new"
        assert disk.list("d") == []
        disk.rename("old", "old")
        assert disk.read("old") == b"new"
        with pytest.raises(FileNotFoundError):
            disk.rename("missing", "old")
        with pytest.raises(FileNotFoundError):
            disk.rename("old", "missing/f")

    def test_an_open_handle_survives_unlink_and_rename(self, disk: Disk, file: File) -> None:
        file.write_at(0, b"abc")
        disk.rename("f", "g")
        assert file.path == "f"
        disk.unlink("g")
        assert not disk.exists("g")
        file.write_at(3, b"d")
        file.sync()
        assert file.read_at(0, 10) == b"abcd"
        with pytest.raises(FileNotFoundError):
            disk.unlink("g")

    def test_read_and_size(self, disk: Disk) -> None:
        write_file(disk, "f", b"abc" * 1000)
        assert disk.read("f") == b"abc" * 1000
        assert disk.size("f") == 3000
        for use in (disk.read, disk.size, disk.unlink):
            with pytest.raises(FileNotFoundError):
                use("missing")

    @pytest.mark.parametrize("path", ["/etc", "..", "a/../b", "a//b", "./a", "a/", "a\0", "a\\b"])
    def test_paths_that_leave_the_root(self, disk: Disk, path: str) -> None:
        for use in (
            lambda: disk.open(path, create=True),
            lambda: disk.map(path, 0),
            lambda: disk.read(path),
            lambda: disk.exists(path),
            lambda: disk.size(path),
            lambda: disk.list(path),
            lambda: disk.make_directory(path),
            lambda: disk.rename(path, "x"),
            lambda: disk.rename("x", path),
            lambda: disk.unlink(path),
            lambda: disk.remove_directory(path),
            lambda: disk.sync_directory(path),
            lambda: disk.lock(path, ""),
        ):
            with pytest.raises(ValueError, match="path"):
                use()


class TestMapping:
    def test_view(self, disk: Disk) -> None:
        write_file(disk, "f", b"0123456789")
        mapping = disk.map("f", 8)
        assert mapping.view.readonly
        assert mapping.view.format == "B"
        assert bytes(mapping.view) == b"01234567"
        with pytest.raises(ValueError, match="10"):
            disk.map("f", 11)
        with pytest.raises(FileNotFoundError):
            disk.map("missing", 1)

    def test_close_with_exported_views(self, disk: Disk) -> None:
        write_file(disk, "f", bytes(range(64)))
        mapping = disk.map("f", 64)
        numbers = mapping.view.cast("Q")
        mapping.close()
        mapping.close()
        with pytest.raises(ValueError, match="closed"):
            _ = mapping.view
        assert numbers[7] == int.from_bytes(bytes(range(56, 64)), "little")

    def test_valid_after_unlink(self, disk: Disk) -> None:
        write_file(disk, "f", b"abc")
        mapping = disk.map("f", 3)
        disk.unlink("f")
        assert bytes(mapping.view) == b"abc"

    def test_a_mapped_file_can_still_be_written(self, disk: Disk) -> None:
        write_file(disk, "f", b"abc")
        mapping = disk.map("f", 3)
        file = disk.open("f")
        file.write_at(3, b"def")
        assert file.read_at(0, 9) == b"abcdef"
        assert bytes(mapping.view) == b"abc"
        file.close()

    def test_nothing(self, disk: Disk) -> None:
        write_file(disk, "f", b"")
        assert bytes(disk.map("f", 0).view) == b""


class TestLock:
    def test_excludes_and_names_the_owner(self, disk: Disk) -> None:
        lock = disk.lock("LOCK", "pid 1, python a much longer owner")
        with pytest.raises(DiskLockedError) as caught:
            disk.lock("LOCK", "second")
        assert (caught.value.path, caught.value.owner) == (
            "LOCK",
            "pid 1, python a much longer owner",
        )
        lock.close()
        lock.close()
        second = disk.lock("LOCK", "second")
        with pytest.raises(DiskLockedError) as caught:
            disk.lock("LOCK", "third")
        assert caught.value.owner == "second"
        second.close()

    def test_close_of_an_old_lock_leaves_the_new_one(self, disk: Disk) -> None:
        old = disk.lock("LOCK", "old")
        old.close()
        new = disk.lock("LOCK", "new")
        old.close()
        with pytest.raises(DiskLockedError):
            disk.lock("LOCK", "third")
        new.close()

    def test_other_directories_are_free(self, disk: Disk) -> None:
        disk.make_directory("a")
        first, second = disk.lock("LOCK", ""), disk.lock("a/LOCK", "")
        first.close()
        second.close()

    def test_the_file_may_be_removed(self, disk: Disk) -> None:
        first = disk.lock("LOCK", "first")
        disk.unlink("LOCK")
        with pytest.raises(DiskLockedError):
            disk.lock("LOCK", "second")
        first.close()
        disk.lock("LOCK", "third").close()


class TestSpace:
    def test_free_is_part_of_total_and_files_take_of_it(self, disk: Disk) -> None:
        write_file(disk, "f", bytes(100))
        total, free = disk.space()
        assert 0 <= free <= total

    def test_the_simulated_one_knows_its_capacity(self) -> None:
        disk = SimulatedDisk(7, capacity_bytes=1000)
        assert disk.space() == (1000, 1000)
        write_file(disk, "f", bytes(400))
        assert disk.space() == (1000, 600)
        disk.unlink("f")
        assert disk.space() == (1000, 1000)

    def test_memory_counts_what_is_there(self) -> None:
        disk = MemoryDisk()
        _, before = disk.space()
        write_file(disk, "f", bytes(400))
        assert disk.space()[1] == before - 400


class TestOsDisk:
    def test_makes_its_own_root(self, tmp_path: Path) -> None:
        disk = OsDisk(tmp_path / "db")
        assert not disk.exists("")
        disk.make_directory("")
        assert disk.list("") == []

    def test_does_not_follow_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        disk = OsDisk(".")
        monkeypatch.chdir("/")
        write_file(disk, "f", b"x")
        assert (tmp_path / "f").read_bytes() == b"x"

    def test_a_forgotten_file_is_reported_and_closed(self, tmp_path: Path) -> None:
        file = OsDisk(tmp_path).open("f", create=True)
        with pytest.warns(ResourceWarning, match="'f'"):
            del file

    def test_short_writes_and_reads_are_completed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pwrite, pread = os.pwrite, os.pread
        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:7], at))
        monkeypatch.setattr(os, "pread", lambda fd, count, at: pread(fd, min(count, 7), at))
        file = OsDisk(tmp_path).open("f", create=True)
        file.write_at(1, bytes(range(100)))
        assert file.read_at(1, 200) == bytes(range(100))
        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
        with pytest.raises(OSError) as caught:
            file.write_at(0, b"x")
        assert caught.value.errno == errno.EIO
        file.close()

    @pytest.mark.skipif(sys.platform != "linux", reason="the calls of Linux")
    def test_allocate_fills_the_holes_that_a_copy_may_have(self, tmp_path: Path) -> None:
        """A sparse copy of a file is as long, and has no blocks."""
        file = OsDisk(tmp_path).open("f", create=True)
        file.write_at(0, b"abc")
        file.truncate(1 << 20)
        assert (tmp_path / "f").stat().st_blocks * 512 < 1 << 20
        file.allocate(1 << 20)
        assert (tmp_path / "f").stat().st_blocks * 512 >= 1 << 20
        assert file.read_at(0, 5) == b"abc\0\0"
        assert file.size() == 1 << 20
        file.close()

    @pytest.mark.skipif(sys.platform != "linux", reason="the calls of Linux")
    def test_a_file_of_a_read_only_file_system_can_be_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = OsDisk(tmp_path)
        write_file(disk, "f", b"hello")
        system_open = os.open

        def read_only(path: Path, flags: int, *mode: int) -> int:
            if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return system_open(path, flags, *mode)

        monkeypatch.setattr(os, "open", read_only)
        file = disk.open("f")
        assert (file.read_at(0, 10), file.size()) == (b"hello", 5)
        for change in (
            lambda: file.write_at(0, b"x"),
            lambda: file.truncate(0),
            lambda: file.allocate(10),
            lambda: disk.open("f", create=True),
            lambda: disk.open("g", exclusive=True),
        ):
            with pytest.raises(OSError) as caught:
                change()
            assert caught.value.errno == errno.EROFS
        file.close()

    def test_sync_asks_the_system(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        synced: list[str] = []
        for name in ("fdatasync", "fsync"):
            monkeypatch.setattr(os, name, lambda fd, n=name: synced.append(f"{n} {_name(fd)}"))
        disk = OsDisk(tmp_path / "db")
        disk.make_directory("")
        file = disk.open("f", create=True)
        file.sync()
        file.close()
        disk.sync_directory("")
        assert synced == [f"fsync {tmp_path.name}", "fdatasync f", "fsync db"]

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the test runner's threads
    def test_a_child_lets_go_of_the_lock_and_not_of_the_parents(self, tmp_path: Path) -> None:
        disk = OsDisk(tmp_path)
        lock = disk.lock("LOCK", "parent")
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(from_parent)
            try:
                os.write(from_child, b".")  # its copy is closed, and the parent's lock still there
                os.read(to_child, 1)  # until the parent has looked
            finally:
                os._exit(0)
        try:
            assert os.read(to_parent, 1) == b"."
            with pytest.raises(DiskLockedError):
                disk.lock("LOCK", "second")
            lock.close()
            disk.lock("LOCK", "third").close()  # though the child lives
        finally:
            os.close(from_parent)
            os.waitpid(child, 0)
            for descriptor in (to_child, to_parent, from_child):
                os.close(descriptor)
