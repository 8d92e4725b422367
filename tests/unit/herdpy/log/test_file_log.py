"""FileLog: torn tails and damage, files made and reused, failures, interrupts, crashes."""

import errno
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.runtime.os_disk import OsDisk
from herdpy.errors import CorruptionError, InvariantViolation, LogFailedError
from herdpy.log.file_log import FileLog
from herdpy.log.file_replay import find_unlisted_frame
from herdpy.log.frame import HEADER_BYTES, encode_frame, frame_bytes
from herdpy.log.interfaces import Append, LogSpaceError
from herdpy.model.lsn import START_LSN, Lsn
from tests.fixtures.interrupts import LineInterrupter
from tests.fixtures.logs import LOG_ID, LogHome, put
from tests.sim.disk import SimulatedCrash, SimulatedDisk

NOOP = b"\x91\x00"


def home_with(*batches: list[bytes], is_marked: bool = False, **options: int) -> LogHome:
    """A log of one frame per batch, each synced; the process dies without a mark."""
    home = LogHome(SimulatedDisk(7), **options)
    log = home.opened()
    for batch in batches:
        put(log, *batch)
        log.sync()
    if is_marked:
        log.mark()
    return home


def frame_of(*records: bytes) -> int:
    return frame_bytes(sum(4 + len(record) for record in records))


def overwrite(home: LogHome, offset: int, data: bytes, number: int | None = None) -> None:
    file = home.disk.open(home.path(number))
    file.write_at(offset, data)
    file.sync()
    file.close()


class TestEnd:
    def test_the_last_frame_torn_at_every_byte_is_cut(self) -> None:
        start, length = 2 * frame_of(b"a"), frame_of(b"last one")
        for position in range(length):
            # Only the two zeros that round a frame up are the same when torn off.
            home = home_with([b"a"], [b"b"], [b"last one"])
            file = home.disk.open(home.path())
            torn = file.read_at(start, length)[:position]
            overwrite(home, start, torn + b"\xee" * (length - position))
            assert home.records() == [b"a", b"b"]
            log = home.opened()
            assert put(log, b"next") == Lsn(-1, 3, 0)
            log.close()
            assert len(home.listing.files) == 2
            assert home.records() == [b"a", b"b", b"next", NOOP]

    def test_a_flipped_bit_in_the_durable_prefix_is_damage(self) -> None:
        first, second = frame_of(b"first"), frame_of(b"second")
        for position in range(first + second):
            home = home_with([b"first"], [b"second"], [b"third"])
            file = home.disk.open(home.path())
            overwrite(home, position, bytes([file.read_at(position, 1)[0] ^ 4]))
            offset = 0 if position < first else first
            with pytest.raises(CorruptionError, match=rf"00000001\.log.* at offset {offset}, "):
                home.records()

    def test_an_unlisted_frame_proves_nothing_if_the_checkpoint_has_it(self) -> None:
        home = home_with([b"a"], [b"b"], [b"c"])
        spare = home.path().replace("00000001", "spare-00000001")
        home.disk.rename(home.path(), spare)

        def found(newest_listed: int, checkpoint_sequence: int) -> tuple[str, int, int] | None:
            return find_unlisted_frame(home.disk, "log", newest_listed, LOG_ID, checkpoint_sequence)

        assert found(0, 0) == (spare, 0, 1)
        assert found(0, 1) == (spare, frame_of(b"a"), 2)
        assert found(0, 2) == (spare, 2 * frame_of(b"a"), 3)
        assert found(0, 3) is None
        assert found(1, 0) is None

    def test_a_mark_proves_the_last_frame(self) -> None:
        home = home_with([b"first"], [b"second"], is_marked=True)
        overwrite(home, frame_of(b"first") + 80, b"\xff")
        with pytest.raises(CorruptionError, match=r"sequence 2 at offset 88, .*sequence 3"):
            home.records()

    def test_the_manifest_proves_a_frame(self) -> None:
        home = home_with([b"first"], [b"second"])
        assert home.records(known=2) == [b"first", b"second"]
        overwrite(home, frame_of(b"first") + 80, b"\xff")
        assert home.records(known=1) == [b"first"]
        for evidence in ({"known": 2}, {"after": Lsn(-1, 2, 0)}):
            with pytest.raises(CorruptionError, match="the manifest says that sequence 2"):
                home.records(**evidence)  # type: ignore[arg-type]

    def test_later_frames_of_the_same_batch_prove_nothing(self) -> None:
        home = LogHome(SimulatedDisk(7), first_file_bytes=1 << 24, max_file_bytes=1 << 24)
        log = home.opened()
        put(log, b"a")
        log.sync()
        put(log, *(bytes([number]) * 1_500_000 for number in range(6)))  # three frames
        log.write()
        overwrite(home, frame_of(b"a") + 100, b"\xff")
        assert home.records() == [b"a"]
        put(log, b"b")
        log.sync()
        put(log, b"c")
        log.sync()  # says that all before is durable, more than one maximal frame behind
        with pytest.raises(CorruptionError, match="sequence 2 at offset 80"):
            home.records()

    def test_a_copy_of_the_log_in_a_torn_record_proves_nothing(self) -> None:
        home = home_with([b"a"], [b"b"], [b"c"])
        file = home.disk.open(home.path())
        copy = file.read_at(0, 3 * frame_of(b"a"))
        log = home.opened()
        log.close()
        home = home_with([b"a"], [b"b"], [b"c"], [b"1234" + copy])
        overwrite(home, 3 * frame_of(b"a") + 72, b"\xff")
        assert home.records() == [b"a", b"b", b"c"]
        assert home.records(known=3) == [b"a", b"b", b"c"]

    def test_a_later_file_proves_the_one_before_it(self) -> None:
        home = home_with(*([bytes([n]) * 500] for n in range(20)))
        assert len(home.listing.files) > 2
        assert len(home.records()) == 20
        size = frame_of(b"x" * 500)
        overwrite(home, size + 80, b"\xff", number=2)
        with pytest.raises(
            CorruptionError, match=r"2\.log: expected .* sequence \d+ at offset 576"
        ):
            home.records()
        last = 6 * size  # of file 1; its sequence is 7
        overwrite(home, last + 80, b"\xff", number=1)
        with pytest.raises(CorruptionError, match=r"1\.log: expected .* sequence 7 at offset"):
            home.records()

    def test_a_damaged_first_frame_behind_dropped_files_is_damage(self) -> None:
        home = home_with(*([bytes([n]) * 500] for n in range(5)))
        log = home.opened()
        for record in (b"6", b"7", b"8"):  # in file 2
            put(log, record)
            log.sync()
        log.drop_before(Lsn(-1, 5, 0))
        assert home.listing.files == {2: 6}
        home.listing.files = {2: 1}  # as if listed early: then the list proves nothing
        assert home.records(Lsn(-1, 7, 0)) == [b"8"]
        overwrite(home, 75, b"\xff")
        with pytest.raises(CorruptionError, match="sequence 8 at offset 0, "):
            home.records(Lsn(-1, 7, 0))

    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_a_missing_file_is_damage(self, number: int) -> None:
        home = home_with(*([bytes([n]) * 500] for n in range(20)))
        home.disk.unlink(home.path(number))
        with pytest.raises(CorruptionError, match=rf"0000000{number}\.log.* is missing"):
            home.records()

    @pytest.mark.parametrize("is_later_file", [False, True])
    def test_a_file_of_another_log_is_damage(self, is_later_file: bool) -> None:
        home = home_with([b"a"], [b"b"])
        other = LogHome(SimulatedDisk(8))
        other.listing.new_ids = random.Random(2)
        batches = [bytes(900)] * 20 if is_later_file else [b"theirs", b"theirs, too"]
        log = other.opened()
        for record in batches:
            put(log, record)
            log.sync()
        overwrite(home, 0, other.disk.read(other.path()))
        with pytest.raises(
            CorruptionError, match=r"00000001\.log: .* offset 0, .* another database"
        ):
            home.records()

    @pytest.mark.parametrize("number", [1, 2])
    def test_one_frame_of_another_file_of_this_log_is_damage(self, number: int) -> None:
        """A copy of the directory went on: the log is the same one, and its files have other ids.

        The frame is the only one of the newest file, and its own checksum is all that there is.
        """
        home = home_with([b"a"])
        header = home.disk.read(home.path())[:HEADER_BYTES]
        frame = encode_frame(
            [b"theirs"],
            log_id=LOG_ID,
            file_id=bytes(16),
            file_number=number,
            file_bytes=4096,
            offset=0,
            sequence=1,
            durable_sequence=0,
        )
        overwrite(home, 0, frame)
        with pytest.raises(
            CorruptionError, match=r"00000001\.log: .* offset 0, .* copy of this one"
        ):
            home.records()
        for position in range(HEADER_BYTES):  # torn at power failure, from either side
            for torn in (
                header[:position] + frame[position:],
                frame[:position] + header[position:HEADER_BYTES] + frame[HEADER_BYTES:],
            ):
                overwrite(home, 0, torn)
                if torn != frame:
                    assert home.records() == []

    def test_a_file_missing_from_the_list_is_damage(self) -> None:
        home = home_with(*([bytes([n]) * 500] for n in range(20)))
        for number in (1, 2):
            listing = dict(home.listing.files)
            del home.listing.files[number]
            with pytest.raises(CorruptionError):
                home.records()
            home.listing.files = listing
        home.listing.files.clear()
        with pytest.raises(CorruptionError, match="no file is listed"):
            home.records(known=20)

    def test_a_cut_file_is_damage(self) -> None:
        home = home_with([b"a"], [b"b"])
        file = home.disk.open(home.path())
        file.truncate(2 * frame_of(b"a"))
        with pytest.raises(CorruptionError, match="expected 4096 bytes, found 160"):
            home.records()

    def test_the_accepted_tail_is_made_durable_before_anybody_sees_it(self) -> None:
        for seed in range(50):
            disk = SimulatedDisk(seed)
            home = LogHome(disk)
            log = home.opened()
            put(log, b"a")
            log.sync()
            put(log, b"b")
            disk.fail("sync", errno.EIO)
            with pytest.raises(LogFailedError):
                log.sync()
            found = home.records()  # another process, same operating system
            home.disk = disk.crash(seed)
            assert home.records() == found


class TestFiles:
    def test_files_are_zeroed_synced_and_listed_before_they_are_written_to(self) -> None:
        disk = SimulatedDisk(7)
        home = LogHome(disk)
        log = home.open()
        with pytest.raises(InvariantViolation, match="not replayed"):
            log.append(Append((b"x",)))
        assert list(log.replay(START_LSN)) == []
        with pytest.raises(LogSpaceError):
            log.append(Append((b"x",)))
        assert home.listing.files == {}
        log.prepare(1)
        assert home.listing.files == {1: 1}
        steps = disk.step_count
        log.append(Append((b"x",)))
        assert disk.step_count == steps
        log.sync()
        assert disk.step_count == steps + 2  # one write, one sync
        assert disk.crash().size(home.path(1)) == 4096

    def test_sizes_double_to_the_maximum_and_grow_for_a_large_append(self) -> None:
        home = home_with(*([b"x" * 1000] for _ in range(60)), [b"y" * 100_000])
        sizes = [home.disk.size(home.path(number)) for number in home.listing.begun]
        assert sizes[:4] == [4096, 8192, 16384, 16384]
        assert sizes[-1] > 100_000
        assert len(home.records()) == 61

    def test_prepare_makes_room_once(self) -> None:
        home = home_with([b"x"])
        log = home.opened()
        log.prepare(100)
        log.prepare(100)
        assert home.listing.begun == [1, 2]
        put(log, b"y")
        log.prepare(100)
        assert home.listing.begun == [1, 2]
        log.close()

    def test_some_room_is_kept_for_urgent_appends(self) -> None:
        log = home_with().opened()
        log.prepare(1)
        with suppress(LogSpaceError):
            for _ in range(4096):
                log.append(Append((b"x" * 10,)))
        before = log.last_lsn
        with pytest.raises(LogSpaceError):
            log.append(Append((b"x" * 10,)))
        urgent = Append((b"x" * 10,))
        log.append(urgent, is_urgent=True)
        assert urgent.lsn is not None
        assert urgent.lsn > before
        log.close()

    def test_a_full_file_has_room_for_the_mark(self) -> None:
        for length in range(1, 90):
            home = LogHome(SimulatedDisk(7))
            log = home.opened()
            put(log, b"first")
            with suppress(LogSpaceError):
                while True:
                    log.append(Append((b"x" * length,)), is_urgent=True)
            log.close()
            assert home.listing.begun == [1]
            assert home.records()[-1] == NOOP

    def test_dropped_files_are_reused_and_their_frames_do_not_count(self) -> None:
        home = LogHome(SimulatedDisk(7), max_file_bytes=4096)
        log = home.opened()
        positions: list[Lsn] = []
        for number in range(60):
            positions.append(put(log, bytes([number]) * 500))
            log.sync()
            if number > 20:
                log.drop_before(positions[number - 8])
            assert len(home.disk.list("log")) <= 7
        assert home.listing.begun == list(range(1, 10))
        assert any(name.startswith("spare-") for name in home.disk.list("log"))
        found = home.records(positions[51])
        assert found == [bytes([number]) * 500 for number in range(52, 60)]
        # A reused file that was begun and not written to holds whole old frames.
        again = home.opened(positions[51])
        again.prepare(3000)
        assert home.listing.begun == list(range(1, 11))
        assert not any(name.startswith("spare-") for name in home.disk.list("log"))
        assert home.records(positions[51]) == found

    def test_the_newest_file_stays_listed(self) -> None:
        home = home_with([b"a"])
        log = home.opened()
        log.drop_before(Lsn(-1, 99, 0))
        assert home.listing.files == {1: 1}
        log.close()

    def test_a_file_stays_while_a_record_in_it_is_behind_the_position(self) -> None:
        home = home_with(*([bytes([n]) * 250, b"2" * 250] for n in range(20)))
        log = home.opened()
        log.drop_before(Lsn(-1, 7, 0))  # file 1 ends with 7.1
        assert 1 in home.listing.files
        log.drop_before(Lsn(-1, 7, 1))
        assert 1 not in home.listing.files
        assert 2 in home.listing.files
        log.close()
        assert len(home.records(Lsn(-1, 7, 1))) == 26

    def test_leftovers_become_spares_or_go(self) -> None:
        home = home_with([b"a"])
        for number in (5, 6, 7):
            home.disk.open(home.path(number), create=True).write_at(4095, b"x")
        home.opened().close()
        names = home.disk.list("log")
        assert names == ["00000001.log", "spare-00000005.log", "spare-00000006.log"]
        log = home.opened()
        put(log, b"b")
        assert max(home.listing.files) == 7  # above every number seen
        log.close()
        assert home.records() == [b"a", b"b", NOOP]

    @pytest.mark.skipif(sys.platform != "linux", reason="the calls of Linux")
    def test_a_sparse_copy_of_a_spare_gets_its_blocks(self, tmp_path: Path) -> None:
        """What copied a directory may leave holes, and a write into one may find no room."""
        home = LogHome(OsDisk(tmp_path))
        home.opened().close()
        with (tmp_path / home.path(5)).open("wb") as file:
            file.truncate(16 * 1024)
        log = home.opened()
        put(log, b"a")
        log.close()
        found = (tmp_path / home.path(6)).stat()
        assert home.listing.begun == [6]
        assert found.st_size == 16 * 1024
        assert found.st_blocks * 512 >= found.st_size

    @pytest.mark.parametrize("step", ["open", "write", "sync", "sync_directory"])
    def test_no_space_in_prepare_changes_nothing(self, step: Any) -> None:
        disk = SimulatedDisk(7)
        home = LogHome(disk)
        log = home.opened()
        disk.fail(step, errno.ENOSPC)
        with pytest.raises(OSError, match="space"):
            log.prepare(10)
        assert home.disk.list("log") == []
        assert home.listing.files == {}
        assert log.failure is None
        put(log, b"x")
        log.sync()
        assert home.records() == [b"x"]
        log.close()

    def test_a_file_that_could_not_be_listed_is_kept_for_the_next_try(self) -> None:
        home = LogHome(SimulatedDisk(7))
        log = home.opened()
        begun = home.listing.log_file_begun

        def fail(number: int, first_sequence: int, byte_count: int, file_id: bytes) -> None:
            begun(number, first_sequence, byte_count, file_id)  # it came through, unknown to us
            raise OSError(errno.ENOSPC, "no space")

        home.listing.log_file_begun = fail  # type: ignore[method-assign]
        for _ in range(3):
            with pytest.raises(OSError, match="no space"):
                log.prepare(10)
        assert home.disk.list("log") == ["00000001.log"]
        home.listing.log_file_begun = begun  # type: ignore[method-assign]
        put(log, b"x")
        log.close()
        assert home.records() == [b"x", NOOP]


class TestFailure:
    @pytest.mark.parametrize("kind", ["write", "sync"])
    def test_an_io_error_stops_the_log_for_good(self, kind: Any) -> None:
        disk = SimulatedDisk(7)
        home = LogHome(disk)
        log = home.opened()
        put(log, b"a")
        log.sync()
        put(log, b"b")
        disk.fail(kind, errno.EIO)
        with pytest.raises(LogFailedError, match=r"00000001\.log.*next open") as caught:
            log.sync()
        assert log.failure is caught.value
        assert log.durable_lsn == Lsn(-1, 1, 0)
        steps = disk.step_count
        for action in (log.sync, log.write, lambda: put(log, b"c"), lambda: log.prepare(10**6)):
            with pytest.raises(LogFailedError):
                action()
        log.close()
        assert disk.step_count == steps  # an fsync is never tried again
        assert home.records() in ([b"a"], [b"a", b"b"])

    def test_close_tells_of_a_failure_and_releases(self) -> None:
        disk = SimulatedDisk(7)
        log = LogHome(disk).opened()
        put(log, b"a")
        disk.fail("sync", errno.EIO)
        with pytest.raises(LogFailedError):
            log.close()
        assert disk.open_paths == []
        log.close()


class TestInterrupt:
    def run(self, function: Callable[[], object], line: int) -> bool:
        """Run with an interrupt at the line-th line of herdpy.log; False when it has fewer."""
        interrupter = LineInterrupter(line, within="/herdpy/log/")
        try:
            with interrupter:
                function()
        except KeyboardInterrupt:
            return True
        return interrupter.where != ""

    def every_line(self, test: Callable[[Callable[[Callable[[], object]], bool]], None]) -> int:
        line, is_cut = 0, True
        while is_cut:
            line += 1
            cuts: list[bool] = []

            def run(function: Callable[[], object], at: int = line, to: list[bool] = cuts) -> bool:
                to.append(self.run(function, at))
                return to[-1]

            test(run)
            is_cut = any(cuts)
        return line

    @pytest.mark.exhaustive
    def test_sync_at_every_line_can_be_repeated(self) -> None:
        def test(run: Callable[[Callable[[], object]], bool]) -> None:
            home = LogHome(SimulatedDisk(7), max_file_bytes=4096)
            log = home.opened()
            expected = [b"0" * 100]
            put(log, *expected)
            log.sync()
            for number in range(10):
                expected.append(bytes([number]) * 700)
                put(log, expected[-1])
            run(log.sync)
            assert log.failure is None
            assert log.durable_lsn <= log.written_lsn <= log.last_lsn
            log.sync()
            assert log.durable_lsn == log.last_lsn
            expected.append(b"after")
            put(log, b"after")
            log.sync()
            assert log.durable_lsn == log.last_lsn
            home.disk = home.disk.crash(3)  # type: ignore[attr-defined]
            assert home.records() == expected

        assert self.every_line(test) > 100

    @pytest.mark.exhaustive
    def test_append_prepare_mark_drop_and_close_at_every_line_can_be_repeated(self) -> None:
        def test(run: Callable[[Callable[[], object]], bool]) -> None:
            home = LogHome(SimulatedDisk(7), max_file_bytes=4096)
            log = home.opened()
            append = Append((b"a", b"b" * 1000))
            appends = [append, *(Append((bytes([n]) * 900,)) for n in range(12))]

            def work() -> None:
                # Every step may be done again, as the engine would do it.
                while appends:
                    try:
                        log.append(appends[0])
                    except LogSpaceError:
                        log.prepare(2000)
                        continue
                    last.append(appends[0])
                    del appends[0]
                log.sync()
                log.mark()
                log.drop_before(Lsn(-1, 1, 1))
                log.close()

            last: list[Append] = []
            if run(work):
                work()
            found = home.records(after=Lsn(-1, 1, 1))
            wanted = [a for a in dict.fromkeys(last) if a.lsn and a.lsn > Lsn(-1, 1, 1)]
            expected = [record for append in wanted for record in append.records]
            assert len(dict.fromkeys(last)) == 13
            assert [record for record in found if record != NOOP] == expected

        assert self.every_line(test) > 300

    def test_an_interrupt_cannot_hide_a_failed_sync(self) -> None:
        def test(run: Callable[[Callable[[], object]], bool]) -> None:
            disk = SimulatedDisk(7)
            log = LogHome(disk).opened()
            put(log, b"a")
            disk.fail("sync", errno.EIO)

            def sync() -> None:
                with suppress(LogFailedError):
                    log.sync()

            run(sync)
            with pytest.raises(LogFailedError):
                log.sync()

        assert self.every_line(test) > 50


def live(log: FileLog, rng: random.Random, appended: list[bytes], home: LogHome) -> None:
    """Random work; the last bytes of every record are its number."""
    for _ in range(rng.randrange(60)):
        choice = rng.random()
        if choice < 0.5:
            records = [
                rng.randbytes(rng.choice([0, 5, 60, 1500])) + b"%06d" % (len(appended) + n)
                for n in range(rng.choice([1, 1, 2, 9]))
            ]
            appended += records
            put(log, *records, is_urgent=rng.random() < 0.1)
        elif choice < 0.8:
            log.sync()
        elif choice < 0.9:
            log.write()
        elif choice < 0.95:
            log.mark()
        else:
            log.prepare(rng.choice([1, 5000]))


@given(st.integers(0, 2**32))
def test_a_crash_at_any_step_loses_nothing_durable_and_invents_nothing(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk(seed)
    home = LogHome(disk, max_file_bytes=rng.choice([4096, 8192]))
    kept: list[bytes] = []  # what every further life must find
    after, checkpointed = START_LSN, 0
    for life in range(6):
        appended = list(kept)
        durable = len(kept)
        disk = home.disk  # type: ignore[assignment]
        disk.crash_at = disk.step_count + rng.randrange(1, 80)
        try:
            log = home.open()
            found = [record for _, record in log.replay(after)]
            found = [record for record in found if record != NOOP]
            assert kept[checkpointed:] == found
            for _ in range(5):
                live(log, rng, appended, home)
                log.sync()
                durable = len(appended)
                if rng.random() < 0.3:
                    after, checkpointed = log.durable_lsn, durable
                    log.drop_before(after)
            log.close()
        except SimulatedCrash:
            pass
        home.disk = disk.restart(rng.randrange(2**32), is_power_lost=rng.random() < 0.8)
        with_tail = [record for record in home.records(after) if record != NOOP]
        assert len(with_tail) >= durable - checkpointed, f"life {life}: a durable record is lost"
        assert appended[checkpointed : checkpointed + len(with_tail)] == with_tail
        kept = appended[: checkpointed + len(with_tail)]


@given(st.integers(0, 2**32))
def test_damage_never_shortens_a_marked_log(seed: int) -> None:
    rng = random.Random(seed)
    home = LogHome(SimulatedDisk(seed), max_file_bytes=8192)
    log = home.opened()
    appended: list[bytes] = []
    live(log, rng, appended, home)
    log.close()
    expected = [record for record in home.records() if record != NOOP]
    assert expected == appended
    if not home.listing.files:
        return
    number = rng.choice(list(home.listing.files))
    home.disk.flip(  # type: ignore[attr-defined]
        home.path(number), rng.randrange(home.disk.size(home.path(number))), 1 << rng.randrange(8)
    )
    try:
        found = [record for record in home.records() if record != NOOP]
    except CorruptionError as error:
        assert ".log" in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert found == appended
