"""Full disks, failing disks, damage at rest, and what is collected: one bookie, no threads."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import replace
from errno import EIO, ENOSPC
from typing import Any

import pytest
from google_crc32c import value

from bookie.errors import CorruptFileError, MetadataStoreError, NoSuchLedgerMetadataError
from bookie.ledger.types import Status
from bookie.runtime.files import replace_file
from bookie.runtime.interfaces import File
from bookie.runtime.memory_disk import MemoryDisk
from bookie.server.bookie import Bookie
from bookie.server.interfaces import LedgerRecord
from bookie.server.storage import journal as journals
from bookie.server.storage import ledger_storage as storages
from bookie.server.storage import recovery
from bookie.server.storage.collector import Holding
from bookie.server.storage.compaction import Compaction, Switch
from bookie.server.storage.directories import LedgerDirectory
from bookie.server.storage.entry_log import (
    LOG_NUMBER_MAX,
    EntryLogWriter,
    RecordKind,
    read_records,
)
from bookie.server.storage.journal import MARK_PATH
from bookie.server.storage.journal_format import Position
from bookie.server.storage.memory_index import MemoryIndex
from bookie.server.storage.read_cache import ReadCache
from bookie.server.storage.recovery import rebuild_index
from tests.fixtures.storages import (
    CONFIG,
    KEY,
    OTHER_KEY,
    HeldExecutor,
    add,
    fence,
    force,
    lac_packet_of,
    list_entries,
    open_bookie,
    packet_of,
    read,
    turns,
    write_lac,
)
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk
from tests.sim.loop import SimulatedLoop

BIG = bytes(20_000)


def run(test: Callable[[SimulatedDisk, MemoryIndex], Awaitable[None]]) -> None:
    disk = SimulatedDisk(7)
    asyncio.run(test(disk, MemoryIndex()))  # type: ignore[arg-type]
    assert disk.open_paths == []


def run_in_simulated_time(test: Callable[[SimulatedDisk, MemoryIndex], Awaitable[None]]) -> None:
    disk, loop = SimulatedDisk(7), SimulatedLoop(7)
    try:
        loop.run_until_complete(test(disk, MemoryIndex()))  # type: ignore[arg-type]
    finally:
        loop.close()
    assert disk.open_paths == []


class Metadata:
    """A LedgerList in memory."""

    def __init__(self, *ledger_ids: int) -> None:
        self.known = list(ledger_ids)
        self.before_listing: Callable[[], Awaitable[None]] | None = None
        self.is_listing_broken = False
        self.is_unsure = False

    async def ledger_ids(self) -> AsyncIterator[int]:
        for ledger_id in list(self.known):
            yield ledger_id
        if self.is_listing_broken:
            raise MetadataStoreError("the connection broke")
        if self.before_listing is not None:
            await self.before_listing()

    async def read(self, ledger_id: int) -> Holding:
        if self.is_unsure:
            raise MetadataStoreError("the connection broke")
        if ledger_id not in self.known:
            raise NoSuchLedgerMetadataError(f"ledger {ledger_id}")
        return Holding(is_closed=False, is_member=True)

    async def sync(self) -> None:
        pass

    async def fresh_id(self) -> int:
        return 1 << 40

    @asynccontextmanager
    async def task_lock(self, ledger_id: int) -> AsyncGenerator[bool]:
        yield True


@contextmanager
def reports() -> Iterator[list[str]]:
    """Yield what the loop's exception handler hears from now on."""
    loop = asyncio.get_running_loop()
    heard: list[str] = []
    loop.set_exception_handler(lambda _, context: heard.append(str(context.get("exception"))))
    try:
        yield heard
    finally:
        loop.set_exception_handler(None)


def raising(answers: list[Status]) -> Callable[..., None]:
    """Return an on_done that keeps its status and raises."""

    def on_done(status: Status, *_: object) -> None:
        answers.append(status)
        raise RuntimeError("broken on purpose")

    return on_done


class TestFailingJournal:
    @pytest.mark.parametrize("kind", ["write", "sync"])
    def test_a_failed_write_or_fsync_is_final(self, kind: str) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            assert await add(bookie, packet_of(7, 0)) is Status.OK
            told: list[bool] = []
            bookie.on_read_only_change(lambda: told.append(bookie.failure is not None))
            disk.fail(kind, EIO, path="journal/")
            assert await add(bookie, packet_of(7, 1)) is Status.IO_ERROR
            syncs = [s for s in disk.trace or [] if s[0] == "sync"]
            disk.trace = []
            assert await add(bookie, packet_of(7, 2)) is Status.IO_ERROR
            assert await fence(bookie, 7) is Status.IO_ERROR
            assert await write_lac(bookie, lac_packet_of(7, 0)) is Status.IO_ERROR
            assert await force(bookie) is Status.IO_ERROR
            assert not [s for s in disk.trace if s[1].endswith(".journal")], "never tried again"
            assert syncs == []
            assert told == [True]
            assert await read(bookie, 7, 0) == (Status.OK, packet_of(7, 0))
            await bookie.close()
            bookie = await open_bookie(disk.restart(is_power_lost=False), index)
            assert await read(bookie, 7, 0) == (Status.OK, packet_of(7, 0))
            await bookie.close()

        run(test)

    def test_everything_that_waits_is_answered(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            journal = HeldExecutor()
            bookie = await open_bookie(disk, index, journal_executor=journal)
            journal.is_holding = True
            answers: list[Status] = []
            bookie.add(packet_of(7, 0), KEY, answers.append)
            await turns()
            bookie.add(packet_of(7, 1), KEY, answers.append)
            bookie.force(7, answers.append)
            disk.fail("sync", EIO, path="journal/")
            journal.let_go()
            await turns()
            assert answers == [Status.IO_ERROR] * 3
            await bookie.close()

        run(test)


class TestFullDisk:
    def test_read_only_and_back(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            disk.capacity_bytes = sum(map(len, disk.contents().values())) + 30_000
            statuses = [await add(bookie, packet_of(7, n, BIG)) for n in range(8)]
            acknowledged = statuses.count(Status.OK)
            assert Status.READ_ONLY in statuses
            assert bookie.is_read_only
            assert bookie.failure is None
            assert await write_lac(bookie, lac_packet_of(7, 0)) is Status.READ_ONLY
            disk.capacity_bytes = None
            await bookie.checkpoint()
            assert not bookie.is_read_only
            assert await add(bookie, packet_of(7, 100)) is Status.OK
            for entry_id in range(acknowledged):
                assert await read(bookie, 7, entry_id) == (
                    Status.OK,
                    packet_of(7, entry_id, BIG),
                )
            await bookie.close()
            bookie = await open_bookie(disk.restart(), index.crash(lambda n: 0))
            assert await add(bookie, packet_of(7, 101), OTHER_KEY) is Status.UNAUTHORIZED
            assert (await read(bookie, 7, 100))[0] is Status.OK
            await bookie.close()

        run(test)

    def test_a_flush_that_finds_no_room_is_done_later(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            assert await add(bookie, packet_of(7, 0, BIG)) is Status.OK
            await bookie.checkpoint()
            assert await add(bookie, packet_of(7, 1, BIG)) is Status.OK
            disk.fail("write", ENOSPC, path="entries/")
            with pytest.raises(OSError):
                await bookie.checkpoint()
            assert bookie.is_read_only
            assert await read(bookie, 7, 1) == (Status.OK, packet_of(7, 1, BIG))
            await bookie.checkpoint()
            assert not bookie.is_read_only
            await bookie.close()
            bookie = await open_bookie(disk.restart(), index.crash(lambda n: 0))
            for entry_id in (0, 1):
                assert (await read(bookie, 7, entry_id))[1] == packet_of(7, entry_id, BIG)
            report = rebuild_index([LedgerDirectory(disk.restart())], MemoryIndex())
            assert report.damage == ()
            await bookie.close()

        run(test)

    def test_a_mark_that_finds_no_room_does_not_write_the_entries_again(self) -> None:
        """A disk without free inodes would else be filled with copies, one every few seconds."""

        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            assert await add(bookie, packet_of(7, 0, BIG)) is Status.OK
            sizes: list[int] = []
            for _ in range(3):
                disk.fail("write", ENOSPC, path="journal/MARK")
                with pytest.raises(OSError):
                    await bookie.checkpoint()
                sizes.append(disk.size("entries/00000001.log"))
            assert sizes == sizes[:1] * 3
            await bookie.checkpoint()
            assert disk.list("entries") == ["00000001.log"]
            assert disk.size("entries/00000001.log") == sizes[0]
            assert not bookie.is_read_only
            assert await add(bookie, packet_of(7, 1, BIG)) is Status.OK
            bookie = await open_bookie(disk.restart(), index.crash(lambda n: 0))
            for entry_id in range(2):
                assert (await read(bookie, 7, entry_id))[1] == packet_of(7, entry_id, BIG)
            await bookie.close()

        asyncio.run(test(SimulatedDisk(7), MemoryIndex()))

    @pytest.mark.parametrize("kind", ["write", "sync"])
    def test_a_flush_that_fails_goes_to_another_log(self, kind: str) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            assert await add(bookie, packet_of(7, 0, BIG)) is Status.OK
            await bookie.checkpoint()
            assert await add(bookie, packet_of(7, 1, BIG)) is Status.OK
            disk.fail(kind, EIO, path="entries/")
            with pytest.raises(OSError):
                await bookie.checkpoint()
            await bookie.checkpoint()
            await bookie.close()
            bookie = await open_bookie(disk.restart(), index.crash(lambda n: 0))
            for entry_id in (0, 1):
                assert (await read(bookie, 7, entry_id))[1] == packet_of(7, entry_id, BIG)
            await bookie.close()

        run(test)


def test_a_last_flush_that_fails_leaves_no_file_open(caplog: pytest.LogCaptureFixture) -> None:
    async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
        bookie = await open_bookie(disk, index)
        assert await add(bookie, packet_of(7, 0)) is Status.OK
        bookie._storage.logs._next_number = LOG_NUMBER_MAX + 1
        await bookie.close()
        assert "the last flush failed" in caplog.text

    run(test)


class TestFullQueues:
    def test_adds_wait_for_the_flush_and_are_refused_beyond_the_limit(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            storage = HeldExecutor()
            config = replace(CONFIG, journal_queue_bytes_max=100_000)
            bookie = await open_bookie(disk, index, config, storage_executor=storage)
            storage.is_holding = True
            answers: dict[int, Status] = {}
            for entry_id in range(60):
                bookie.add(
                    packet_of(7, entry_id, BIG),
                    KEY,
                    lambda status, n=entry_id: answers.update({n: status}),
                )
                await turns(4)
            refused = [n for n, status in answers.items() if status is Status.TOO_MANY_REQUESTS]
            waiting = [n for n in range(60) if n not in answers]
            assert refused
            assert len(waiting) == 4  # 100,000 bytes
            storage.let_go()
            await turns(200)
            assert len(answers) == 60
            assert [n for n, s in answers.items() if s is Status.TOO_MANY_REQUESTS] == refused
            for entry_id, status in answers.items():
                if status is Status.OK:
                    assert (await read(bookie, 7, entry_id))[0] is Status.OK
            await bookie.close()

        run(test)

    def test_adds_that_fill_a_cache_when_its_flush_ends_wait_for_no_timer(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            storage = HeldExecutor()
            bookie = await open_bookie(disk, index, storage_executor=storage)
            storage.is_holding = True
            asked = 0
            answers: list[Status] = []

            async def add_until_they_wait() -> None:
                nonlocal asked
                while len(answers) == asked:
                    bookie.add(packet_of(7, asked, BIG), KEY, answers.append)
                    asked += 1
                    await turns(4)

            async def end_flush() -> None:
                ((future, job),) = storage.held
                storage.held = []
                future.set_result(job())
                await turns()

            await add_until_they_wait()
            await end_flush()  # the cache that was full; those that waited fill another
            await end_flush()
            await add_until_they_wait()  # the last flush of the checkpoint is under way
            await end_flush()
            await add_until_they_wait()
            storage.let_go()
            await turns(100)
            assert answers == [Status.OK] * asked
            await bookie.close()

        run(test)

    def test_fences_and_lacs_wait_for_a_flush_in_a_limited_number(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(storages, "_STATES_MAX", 8)
        monkeypatch.setattr(storages, "_DIRTY_MAX", 16)

        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            storage = HeldExecutor()
            bookie = await open_bookie(disk, index, storage_executor=storage)
            storage.is_holding = True
            statuses: list[Status] = []
            for ledger_id in range(30):
                statuses.append(await fence(bookie, ledger_id))
                await turns()
            held = 8 + 16  # in the flush that the ninth began, and behind it
            assert statuses == [Status.OK] * held + [Status.TOO_MANY_REQUESTS] * 6
            assert await write_lac(bookie, lac_packet_of(99, 0)) is Status.TOO_MANY_REQUESTS
            assert await write_lac(bookie, lac_packet_of(held - 1, 0)) is Status.OK
            storage.let_go()
            await turns(100)
            assert await fence(bookie, 30) is Status.OK
            bookie = await open_bookie(disk.restart(), index.crash(lambda n: 0))
            for ledger_id in range(held):
                assert await add(bookie, packet_of(ledger_id, 0)) is Status.FENCED
            await bookie.close()

        asyncio.run(test(SimulatedDisk(7), MemoryIndex()))

    def test_a_full_journal_queue_refuses(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            journal = HeldExecutor()
            config = replace(CONFIG, journal_queue_bytes_max=50_000)
            bookie = await open_bookie(disk, index, config, journal_executor=journal)
            journal.is_holding = True
            answers: list[Status] = []
            for entry_id in range(5):
                bookie.add(packet_of(7, entry_id, BIG), KEY, answers.append)
                await turns(4)
            assert answers == [Status.TOO_MANY_REQUESTS] * 3
            journal.let_go()
            await turns()
            assert answers == [Status.TOO_MANY_REQUESTS] * 3 + [Status.OK] * 2
            await bookie.close()

        run(test)


class TestAnswersThatRaise:
    """A callback that raises is reported; the requests behind it are answered all the same."""

    def test_after_the_journal(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            with reports() as reported:
                answers: list[Status] = []
                bookie.add(packet_of(7, 0), KEY, raising(answers))
                bookie.add(packet_of(7, 1), KEY, answers.append)
                bookie.force(7, answers.append)
                await turns()
            assert answers == [Status.OK] * 3
            assert reported == ["broken on purpose"]
            await bookie.close()

        run(test)

    def test_after_a_read_of_a_log(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            for entry_id in range(3):
                assert await add(bookie, packet_of(7, entry_id)) is Status.OK
            await bookie.checkpoint()
            with reports() as reported:
                answers: list[Status] = []
                bookie.read(7, 2, raising(answers))
                bookie.read(7, 2, raising(answers))
                bookie.read(7, 1, lambda status, _: answers.append(status))
                await turns()
            assert answers == [Status.OK] * 3
            assert reported == ["broken on purpose"] * 2
            await bookie.close()

        run(test)

    @pytest.mark.parametrize("is_flush_good", [True, False])
    def test_after_a_flush(self, *, is_flush_good: bool) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            storage = HeldExecutor()
            bookie = await open_bookie(disk, index, storage_executor=storage)
            storage.is_holding = True
            stored: list[Status] = []
            for entry_id in range(19):  # both caches
                bookie.add(packet_of(7, entry_id, BIG), KEY, stored.append)
                await turns(4)
            assert stored == [Status.OK] * 19
            if not is_flush_good:
                disk.fail("write", EIO, path="entries/")
            with reports() as reported:
                answers: list[Status] = []
                bookie.add(packet_of(7, 19, BIG), b"", raising(answers))
                bookie.add(packet_of(7, 20, BIG), b"", answers.append)
                assert answers == []
                storage.let_go()
                await turns(100)
            status = Status.UNAUTHORIZED if is_flush_good else Status.TOO_MANY_REQUESTS
            assert answers == [status] * 2
            assert reported == ["broken on purpose"]
            await bookie.close()

        run(test)

    def test_an_index_that_cannot_be_read_is_an_io_error(self) -> None:
        class BrokenIndex(MemoryIndex):
            is_broken = False

            def ledger(self, ledger_id: int) -> LedgerRecord | None:
                if self.is_broken:
                    raise OSError(EIO, "the index cannot be read")
                return super().ledger(ledger_id)

        async def main() -> None:
            index, storage = BrokenIndex(), HeldExecutor()
            bookie = await open_bookie(MemoryDisk(), index, storage_executor=storage)
            storage.is_holding = True
            for entry_id in range(19):
                bookie.add(packet_of(7, entry_id, BIG), KEY, lambda status: None)
                await turns(4)
            answers: list[Status] = []
            bookie.add(packet_of(8, 0, BIG), KEY, answers.append)
            bookie.add(packet_of(9, 0, BIG), KEY, answers.append)
            index.is_broken = True
            assert (await read(bookie, 8, 0))[0] is Status.IO_ERROR
            storage.let_go()
            await turns(100)
            assert answers == [Status.IO_ERROR] * 2
            index.is_broken = False
            await bookie.close()

        asyncio.run(main())


class TestDamage:
    def test_a_torn_tail_is_cut(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            for entry_id in range(3):
                assert await add(bookie, packet_of(7, entry_id, b"x" * 2000)) is Status.OK
            disk = disk.restart(is_power_lost=False)
            path = "journal/00000001.journal"
            last = disk.contents()[path].rindex(b"x" * 100)
            disk.flip(path, last)
            bookie = await open_bookie(disk, index)
            statuses = [(await read(bookie, 7, n))[0] for n in range(3)]
            assert statuses == [Status.OK, Status.OK, Status.NO_ENTRY]
            await bookie.close()

        asyncio.run(test(SimulatedDisk(7), MemoryIndex()))

    def test_damage_in_the_middle_of_the_journal_is_named(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            await open_bookie(disk, index)
            bookie = await open_bookie(disk := disk.restart(is_power_lost=False), index)
            for entry_id in range(3):
                assert await add(bookie, packet_of(7, entry_id, b"x" * 2000)) is Status.OK
            disk = disk.restart(is_power_lost=False)
            path = "journal/00000002.journal"
            first = disk.contents()[path].index(b"x" * 100)
            disk.flip(path, first)
            with pytest.raises(CorruptFileError, match=r"00000002\.journal at offset \d+"):
                await open_bookie(disk, index)

        asyncio.run(test(SimulatedDisk(7), MemoryIndex()))

    def test_a_missing_journal_file_is_named(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            await open_bookie(disk, index)
            disk = disk.restart(is_power_lost=False)
            disk.unlink("journal/00000001.journal")
            with pytest.raises(CorruptFileError, match=r"00000001\.journal: the journal's mark"):
                await open_bookie(disk, index)

        asyncio.run(test(SimulatedDisk(7), MemoryIndex()))

    def test_a_damaged_entry_is_an_io_error_and_its_neighbours_are_read(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            for entry_id in range(3):
                packet = packet_of(7, entry_id, b"%d" % entry_id * 2000)
                assert await add(bookie, packet) is Status.OK
            await bookie.close()
            disk.flip("entries/00000001.log", disk.contents()["entries/00000001.log"].index(b"111"))
            bookie = await open_bookie(disk, index)
            assert [(await read(bookie, 7, n))[0] for n in range(3)] == [
                Status.OK,
                Status.IO_ERROR,
                Status.OK,
            ]
            assert (await list_entries(bookie, 7))[1] == [0, 1, 2]
            report = rebuild_index([LedgerDirectory(disk)], MemoryIndex())
            assert len(report.damage) == 1
            assert "00000001.log at offset" in report.damage[0]
            await bookie.close()

        run(test)

    def test_g5_a_lost_index_is_made_anew_before_anything_is_denied(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            assert await add(bookie, packet_of(7, 0, b"a")) is Status.OK
            assert await fence(bookie, 8) is Status.OK
            await bookie.checkpoint()
            assert await add(bookie, packet_of(7, 1, b"b")) is Status.OK
            disk = disk.restart()
            found = MemoryIndex()
            bookie = await open_bookie(disk, found)
            assert found.is_whole
            assert await read(bookie, 7, 0) == (Status.OK, packet_of(7, 0, b"a"))
            assert await read(bookie, 7, 1) == (Status.OK, packet_of(7, 1, b"b"))
            assert await add(bookie, packet_of(8, 0)) is Status.FENCED
            assert await add(bookie, packet_of(7, 2), OTHER_KEY) is Status.UNAUTHORIZED
            await bookie.close()

        asyncio.run(test(SimulatedDisk(7), MemoryIndex()))

    def test_an_index_is_made_anew_in_batches_and_the_newest_record_counts(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recovery, "_REBUILD_BATCH", 2)

        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            for payload in (b"old", b"new"):
                for entry_id in range(7):
                    assert await add(bookie, packet_of(7, entry_id, payload)) is Status.OK
                await bookie.checkpoint()
            await bookie.close()
            found = MemoryIndex()
            for _ in range(2):  # again over what is there, as after a crash
                report = recovery.rebuild_index([LedgerDirectory(disk)], found)
                assert (report.entries, report.damage) == (14, ())
            bookie = await open_bookie(disk, found)
            for entry_id in range(7):
                assert (await read(bookie, 7, entry_id))[1] == packet_of(7, entry_id, b"new")
            await bookie.close()

        run(test)

    def test_g5_a_lost_index_beside_a_damaged_log_refuses_every_start(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            for entry_id in range(3):
                packet = packet_of(7, entry_id, b"%d" % entry_id * 2000)
                assert await add(bookie, packet) is Status.OK
            await bookie.close()
            disk.flip("entries/00000001.log", disk.contents()["entries/00000001.log"].index(b"111"))
            found = MemoryIndex()
            for _ in range(2):
                with pytest.raises(CorruptFileError, match=r"index was lost.*00000001\.log at off"):
                    await open_bookie(disk, found)
            bookie = await open_bookie(disk, index)  # the right one serves on
            assert (await read(bookie, 7, 2))[0] is Status.OK
            await bookie.close()

        run(test)

    @pytest.mark.parametrize("is_log_damaged", [False, True])
    @pytest.mark.parametrize("is_index_lost", [False, True])
    def test_g5_a_lost_journal_is_named(self, *, is_log_damaged: bool, is_index_lost: bool) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            assert await add(bookie, packet_of(7, 0)) is Status.OK
            await bookie.close()
            for name in disk.list("journal"):
                disk.unlink(f"journal/{name}")
            if is_log_damaged:  # nor is a log removed that only the mark could tell from a new one
                disk.flip("entries/00000001.log", 3)
            with pytest.raises(CorruptFileError, match="journal was lost"):
                await open_bookie(disk, MemoryIndex() if is_index_lost else index)
            assert disk.list("entries") == ["00000001.log"]

        run(test)

    def test_an_index_that_is_rightly_empty_is_taken_as_it_is(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            assert await add(bookie, packet_of(7, 0)) is Status.OK
            await bookie.close()
            index.delete_ledger(7)
            index.sync()
            bookie = await open_bookie(disk, index)
            assert (await read(bookie, 7, 0))[0] is Status.NO_LEDGER
            await bookie.close()

        run(test)

    def test_g18_a_mark_never_goes_back(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            marks: list[Position] = []
            for entry_id in range(30):
                assert await add(bookie, packet_of(7, entry_id, BIG)) is Status.OK
                if entry_id % 3 == 0:
                    await bookie.checkpoint()
                    mark = journals.read_mark(disk)
                    assert mark is not None
                    marks.append(mark.position)
            assert marks == sorted(marks)
            flusher = bookie._storage.flusher
            with pytest.raises(Exception, match="not before"):
                flusher.mark(marks[0])
            await bookie.close()

        run(test)


class TestCollection:
    def test_deleted_ledgers_and_their_logs_go(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            for entry_id in range(40):
                for ledger_id in (7, 8):
                    assert await add(bookie, packet_of(ledger_id, entry_id, BIG)) is Status.OK
            await bookie.checkpoint()
            before = len(disk.list("entries"))
            assert await bookie.collect(Metadata(8)) == [7]
            assert await read(bookie, 7, 0) == (Status.NO_LEDGER, b"")
            assert await read(bookie, 8, 0) == (Status.OK, packet_of(8, 0, BIG))
            collector = bookie.collector(Metadata(8))
            assert await collector.compact(0.8) > 0
            assert len(disk.list("entries")) < before
            assert collector.kept_logs == {}
            for entry_id in range(40):
                assert (await read(bookie, 8, entry_id))[1] == packet_of(8, entry_id, BIG)
            assert await bookie.collect(Metadata()) == [8]
            await bookie.close()
            bookie = await open_bookie(disk.restart(), index.crash(lambda n: 0))
            assert await read(bookie, 8, 0) == (Status.NO_LEDGER, b"")
            await bookie.close()

        run(test)

    def test_g17_writes_to_a_fenced_and_deleted_ledger_fail(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            assert await add(bookie, packet_of(7, 0)) is Status.OK
            assert await fence(bookie, 7) is Status.OK
            assert await bookie.collect(Metadata()) == [7]
            assert await add(bookie, packet_of(7, 1)) is Status.FENCED
            assert await write_lac(bookie, lac_packet_of(7, 1)) is Status.NO_LEDGER
            assert await read(bookie, 7, -1) == (Status.NO_LEDGER, b"")
            assert await add(bookie, packet_of(7, 1), is_recovery=True) is Status.OK
            assert await add(bookie, packet_of(7, 2)) is Status.FENCED
            bookie = await open_bookie(disk.restart(is_power_lost=False), index)
            assert await add(bookie, packet_of(7, 2)) is Status.FENCED
            await bookie.close()

        asyncio.run(test(SimulatedDisk(7), MemoryIndex()))

    def test_g18_local_ledgers_are_listed_before_those_of_the_metadata(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            metadata = Metadata()

            async def make_ledger() -> None:
                metadata.known.append(9)
                assert await add(bookie, packet_of(9, 0)) is Status.OK

            metadata.before_listing = make_ledger
            assert await bookie.collect(metadata) == []
            assert (await read(bookie, 9, 0))[0] is Status.OK
            await bookie.close()

        run(test)

    def test_nothing_goes_when_metadata_cannot_be_asked(self) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            assert await add(bookie, packet_of(7, 0)) is Status.OK
            for flag in ("is_listing_broken", "is_unsure"):
                metadata = Metadata()
                setattr(metadata, flag, True)
                with pytest.raises(MetadataStoreError):
                    await bookie.collect(metadata)
                assert (await read(bookie, 7, 0))[0] is Status.OK
            await bookie.close()

        run(test)

    @pytest.mark.parametrize("where", ["map", "record of 7", "record of 8", "header"])
    def test_g18_a_damaged_log_deletes_nothing_that_lives(self, where: str) -> None:
        async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
            bookie = await open_bookie(disk, index)
            for ledger_id in (7, 8):
                assert await add(bookie, packet_of(ledger_id, 0, BIG)) is Status.OK
            await bookie.close()
            path = "entries/00000001.log"
            size = disk.size(path)
            middles = {"record of 7": size // 4, "record of 8": size * 3 // 4}
            at = ({"map": size - 60, "header": 3} | middles)[where]
            disk.flip(path, at)
            bookie = await open_bookie(disk, index)
            await bookie.collect(Metadata(8))
            collector = bookie.collector(Metadata(8))
            await collector.compact(1.01)
            # What is damaged of a ledger that is deleted holds nothing up.
            assert disk.exists(path) == (where in ("record of 8", "header"))
            if where == "record of 8":
                assert (await read(bookie, 8, 0))[0] is Status.IO_ERROR
            else:
                assert await read(bookie, 8, 0) == (Status.OK, packet_of(8, 0, BIG))
            await bookie.close()

        run(test)


def test_reads_go_on_while_a_log_is_compacted() -> None:
    async def test(disk: MemoryDisk, index: MemoryIndex) -> None:
        storage = HeldExecutor()
        config = replace(CONFIG, read_cache_bytes_max=0)
        bookie = await open_bookie(disk, index, config, storage_executor=storage)
        for entry_id in range(30):
            assert await add(bookie, packet_of(7, entry_id, BIG)) is Status.OK
            assert await add(bookie, packet_of(8, entry_id, BIG)) is Status.OK
        await bookie.checkpoint()
        await bookie.collect(Metadata(7))
        storage.is_holding = True
        answers: list[tuple[Status, bytes]] = []
        bookie.read(7, 3, lambda status, data: answers.append((status, bytes(data))))
        held, storage.held = storage.held, []
        storage.is_holding = False
        assert await bookie.collector(Metadata(7)).compact(1.01) > 0
        storage.held = held
        storage.let_go()
        await turns()
        assert answers == [(Status.OK, packet_of(7, 3, BIG))]
        await bookie.close()

    asyncio.run(test(MemoryDisk(), MemoryIndex()))


def test_an_entry_added_again_is_not_read_from_the_cache() -> None:
    async def main() -> None:
        bookie = await open_bookie(MemoryDisk(), MemoryIndex())
        for entry_id in range(3):
            assert await add(bookie, packet_of(7, entry_id, b"old")) is Status.OK
        await bookie.checkpoint()
        assert (await read(bookie, 7, 0))[1] == packet_of(7, 0, b"old")  # reads 1 and 2 ahead
        assert await add(bookie, packet_of(7, 1, b"new")) is Status.OK
        assert (await read(bookie, 7, 1))[1] == packet_of(7, 1, b"new")
        await bookie.checkpoint()
        assert (await read(bookie, 7, 1))[1] == packet_of(7, 1, b"new")
        await bookie.close()

    asyncio.run(main())


def test_reads_that_wait_for_one_another_are_looked_up_once_a_turn() -> None:
    """A thousand reads of a cold ledger would else be tried half a million times."""

    class CountingCache(ReadCache):
        look_ups = 0

        def get(self, ledger_id: int, entry_id: int) -> bytes | None:
            self.look_ups += 1
            return super().get(ledger_id, entry_id)

    async def main() -> None:
        bookie = await open_bookie(MemoryDisk(), MemoryIndex())
        for entry_id in range(100):
            assert await add(bookie, packet_of(7, entry_id)) is Status.OK
        await bookie.checkpoint()
        cache = bookie._storage._read_cache = CountingCache(1 << 20)
        answers: list[tuple[Status, bytes]] = []
        for entry_id in reversed(range(100)):  # in no order that is read ahead
            bookie.read(7, entry_id, lambda status, data: answers.append((status, bytes(data))))
        await turns(400)
        assert answers == [(Status.OK, packet_of(7, n)) for n in reversed(range(100))]
        assert cache.look_ups < 300
        await bookie.close()

    asyncio.run(main())


def test_a_bookie_that_is_closed_answers(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> Bookie:
        bookie = await open_bookie(MemoryDisk(), MemoryIndex())
        assert await add(bookie, packet_of(7, 0)) is Status.OK
        await bookie.close()
        await bookie.close()
        assert await add(bookie, packet_of(7, 1)) is Status.IO_ERROR
        assert await fence(bookie, 7) is Status.IO_ERROR
        assert (await read(bookie, 7, 0))[0] is Status.IO_ERROR
        return bookie

    asyncio.run(main())
    assert not caplog.records


def test_an_entry_that_is_added_again_during_a_compaction_stays_where_it_is() -> None:
    async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
        bookie = await open_bookie(disk, index)
        assert await add(bookie, packet_of(7, 0, BIG)) is Status.OK
        assert await add(bookie, packet_of(7, 1, BIG)) is Status.OK
        await bookie.checkpoint()
        bookie._storage.flusher.seal()
        logs = bookie._storage.logs
        compaction = Compaction(logs, index, [1])
        while not compaction.step(1 << 20):
            pass
        compaction.seal()
        assert await add(bookie, packet_of(7, 0, b"again")) is Status.OK
        await bookie.checkpoint()
        with closing(Switch(logs, index, compaction.log_number)) as switch:
            while not switch.step():
                pass
            switch.finish()
        numbers = [location >> 32 for _, location in index.locations(7, 0, 2)]
        assert numbers == [bookie._storage.flusher.open_log_number, compaction.log_number]
        assert await read(bookie, 7, 0) == (Status.OK, packet_of(7, 0, b"again"))
        await bookie.close()

    run(test)


async def _compacted_behind_the_open_log(disk: SimulatedDisk, index: MemoryIndex) -> None:
    """Kill a bookie whose open log, the mark's, is older than log 3: ledger 8 was moved there."""
    bookie = await open_bookie(disk, index)
    for ledger_id in (7, 8):
        assert await add(bookie, packet_of(ledger_id, 0, BIG)) is Status.OK
    await bookie.checkpoint()
    bookie._storage.flusher.seal()
    assert await add(bookie, packet_of(9, 0)) is Status.OK
    await bookie.checkpoint()
    collector = bookie.collector(Metadata(8, 9))
    assert await collector.collect() == [7]
    assert await collector.compact(0.9) == 1
    await bookie.checkpoint()
    assert bookie._storage.logs.numbers() == [2, 3]


def test_a_compacted_log_that_lost_its_header_or_map_is_kept_by_the_start() -> None:
    for offset in (3, -1):

        async def test(disk: SimulatedDisk, index: MemoryIndex, offset: int = offset) -> None:
            await _compacted_behind_the_open_log(disk, index)
            disk = disk.restart(is_power_lost=False)
            path = "entries/00000003.log"
            before = disk.contents()[path]
            disk.flip(path, offset % len(before))
            damaged = disk.contents()[path]
            again = await open_bookie(disk, index.crash(lambda count: count))
            assert disk.contents()[path] == damaged
            packet = packet_of(8, 0, BIG)
            assert await read(again, 8, 0) == (Status.OK, packet)
            assert 3 in again._storage.damaged_logs
            await again.close()

        asyncio.run(test(SimulatedDisk(7), MemoryIndex()))


def test_a_log_without_header_is_damage_when_the_index_was_lost() -> None:
    async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
        await _compacted_behind_the_open_log(disk, index)
        disk = disk.restart(is_power_lost=False)
        disk.flip("entries/00000003.log", 3)
        before = disk.contents()["entries/00000003.log"]
        with pytest.raises(CorruptFileError, match="the index was lost"):
            await open_bookie(disk, MemoryIndex())
        assert disk.contents()["entries/00000003.log"] == before

    asyncio.run(test(SimulatedDisk(7), MemoryIndex()))


def test_what_a_log_of_another_bookie_calls_its_sources_stays() -> None:
    async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
        await _compacted_behind_the_open_log(disk, index)
        foreign = disk.contents()["entries/00000003.log"]
        other, other_index = SimulatedDisk(8), MemoryIndex()
        bookie = await open_bookie(other, other_index)
        for ledger_id in range(3):
            assert await add(bookie, packet_of(ledger_id, 0, BIG)) is Status.OK
            await bookie.checkpoint()
            bookie._storage.flusher.seal()
        await bookie.close()
        file = other.open("entries/00000003.log")
        file.truncate(0)
        file.write_at(0, foreign)
        file.close()
        again = await open_bookie(other, other_index)
        assert await read(again, 0, 0) == (Status.OK, packet_of(0, 0, BIG))
        assert (await read(again, 2, 0))[0] is Status.IO_ERROR
        await again.close()

    asyncio.run(test(SimulatedDisk(7), MemoryIndex()))


def test_an_older_copy_of_the_index_denies_nothing() -> None:
    async def test() -> None:
        disk, index = SimulatedDisk(7), MemoryIndex()
        bookie = await open_bookie(disk, index)
        assert await add(bookie, packet_of(7, 0, BIG)) is Status.OK
        assert await add(bookie, packet_of(8, 0, BIG)) is Status.OK
        await bookie.checkpoint()
        bookie._storage.flusher.seal()
        older = index.crash(lambda count: count)
        assert await add(bookie, packet_of(7, 1, BIG)) is Status.OK
        assert await add(bookie, packet_of(7, 0, b"again")) is Status.OK
        assert await fence(bookie, 9) is Status.OK
        await bookie.checkpoint()
        assert await bookie.collect(Metadata(7, 9)) == [8]
        assert await bookie.collector(Metadata(7, 9)).compact(0.9) == 1
        await bookie.close()
        for _ in range(2):  # made anew once, and for good
            again = await open_bookie(disk, older)
            assert await read(again, 7, 0) == (Status.OK, packet_of(7, 0, b"again"))
            assert await read(again, 7, 1) == (Status.OK, packet_of(7, 1, BIG))
            assert await add(again, packet_of(9, 0)) is Status.FENCED
            await again.close()

    asyncio.run(test())


def test_an_older_copy_of_the_index_beside_damaged_logs_is_refused() -> None:
    async def test() -> None:
        disk, index = SimulatedDisk(7), MemoryIndex()
        bookie = await open_bookie(disk, index)
        assert await add(bookie, packet_of(7, 0)) is Status.OK
        await bookie.checkpoint()
        older = index.crash(lambda count: count)
        assert await add(bookie, packet_of(7, 1)) is Status.OK
        await bookie.close()
        disk.flip("entries/00000001.log", 560)
        before = disk.contents()
        with pytest.raises(CorruptFileError, match="is an older copy"):
            await open_bookie(disk, older)
        assert disk.contents() == before

    asyncio.run(test())


def test_the_index_of_another_bookie_is_refused() -> None:
    index = MemoryIndex()
    recovery.recover(MemoryDisk(), index, SimulatedClock(), CONFIG, owner="bookie a").writer.close()
    disk = MemoryDisk()
    recovery.recover(disk, MemoryIndex(), SimulatedClock(), CONFIG, owner="bookie b").writer.close()
    with pytest.raises(CorruptFileError, match="expected that of bookie b, found that of bookie a"):
        recovery.recover(disk, index, SimulatedClock(), CONFIG, owner="bookie b")


async def _put_back(
    put_back: Sequence[str],
    *,
    is_index_older: bool = False,
    is_index_lost: bool = False,
    is_of_this_process: bool = False,
) -> tuple[str, bool]:
    """Start on older copies of these files; return the refusal and whether it changed a file.

    is_of_this_process: the copy is one of the running bookie, whose entry log was open before it.
    """
    disk, index = SimulatedDisk(7), MemoryIndex()
    bookie = await open_bookie(disk, index)
    assert await add(bookie, packet_of(7, 0)) is Status.OK
    if is_of_this_process:
        await bookie.checkpoint()
    else:
        await bookie.close()
    copy, older = disk.contents(), index.crash(lambda count: count)
    if not is_of_this_process:
        bookie = await open_bookie(disk, index)
    assert await add(bookie, packet_of(7, 1)) is Status.OK
    await bookie.checkpoint()
    assert await add(bookie, packet_of(7, 2)) is Status.OK
    disk = disk.restart(is_power_lost=False)
    found = older if is_index_older else index.crash(lambda count: count)
    for path in [name for name in disk.contents() if name.startswith(tuple(put_back))]:
        disk.unlink(path)
    for path, data in copy.items():
        if path.startswith(tuple(put_back)):
            file = disk.open(path, create=True)
            file.write_at(0, data)
            file.close()
    before = disk.contents()
    with pytest.raises(CorruptFileError) as refusal:
        await open_bookie(disk, MemoryIndex() if is_index_lost else found)
    return str(refusal.value), disk.contents() != before


def test_an_older_copy_of_the_journal_is_refused() -> None:
    for is_index_older, is_index_lost in ((False, False), (True, False), (False, True)):
        message, is_changed = asyncio.run(
            _put_back(["journal/"], is_index_older=is_index_older, is_index_lost=is_index_lost)
        )
        assert "the journal is an older copy" in message
        assert not is_changed


def test_an_older_copy_of_the_journal_within_one_entry_log_is_refused() -> None:
    for is_index_older, is_index_lost in ((False, False), (True, False), (False, True)):
        message, _ = asyncio.run(
            _put_back(
                ["journal/"],
                is_index_older=is_index_older,
                is_index_lost=is_index_lost,
                is_of_this_process=True,
            )
        )
        assert "index or logs have all before" in message


def test_the_index_of_a_bookie_that_was_here_before_is_refused() -> None:
    async def test() -> None:
        disk, index = SimulatedDisk(7), MemoryIndex()
        bookie = await open_bookie(disk, index)
        assert await add(bookie, packet_of(7, 0)) is Status.OK
        await bookie.close()
        again = await open_bookie(disk, index)
        await again.close()
        with pytest.raises(CorruptFileError, match="left of a bookie that was here before"):
            await open_bookie(SimulatedDisk(8), index)

    asyncio.run(test())


def test_a_journal_that_ends_before_what_the_index_has_is_damage() -> None:
    async def test() -> None:
        disk, index = SimulatedDisk(7), MemoryIndex()
        bookie = await open_bookie(disk, index)
        assert await add(bookie, packet_of(7, 0)) is Status.OK
        mark = disk.contents()[MARK_PATH]
        await bookie.checkpoint()
        path = sorted(name for name in disk.contents() if name.endswith(".journal"))[-1]
        disk = disk.restart(is_power_lost=False)
        index = index.crash(lambda count: count)
        replace_file(disk, MARK_PATH, mark)  # as if the bookie was killed before the mark moved
        disk.flip(path, 520)  # of the only batch
        with pytest.raises(CorruptFileError, match="index or logs have all before"):
            await open_bookie(disk, index)

    asyncio.run(test())


def test_a_journal_file_that_ends_before_the_mark_is_damage() -> None:
    async def test() -> None:
        disk, index = SimulatedDisk(7), MemoryIndex()
        bookie = await open_bookie(disk, index)
        assert await add(bookie, packet_of(7, 0)) is Status.OK
        await bookie.checkpoint()
        path = sorted(name for name in disk.contents() if name.endswith(".journal"))[-1]
        assert await add(bookie, packet_of(7, 1)) is Status.OK  # behind the mark
        disk = disk.restart(is_power_lost=False)
        index = index.crash(lambda count: count)
        file = disk.open(path)
        file.truncate(600)
        file.sync()
        file.close()
        with pytest.raises(CorruptFileError, match="the mark has all before"):
            await open_bookie(disk, index)

    asyncio.run(test())


@pytest.mark.parametrize("is_map_known", [False, True])
def test_a_log_that_cannot_be_read_keeps_no_other_from_removal_and_compaction(
    *, is_map_known: bool
) -> None:
    """Its end, where the map is, or a sector under an entry that the index points to."""

    async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
        config = replace(CONFIG, entry_log_bytes_max=1 << 16, compaction_bytes_per_s=1 << 40)
        bookie = await open_bookie(disk, index, config)
        for entry_id in range(30):
            for ledger_id in (7, 8):
                assert await add(bookie, packet_of(ledger_id, entry_id, BIG)) is Status.OK
            await bookie.checkpoint()
        collector = bookie.collector(Metadata(8))
        if is_map_known:
            assert await collector.collect() == [7]
        bad = bookie._storage.logs.numbers()[0]
        disk.fail("read", EIO, path=f"entries/{bad:08d}.log", times=1 << 30)
        await collector.collect()
        before = len(disk.list("entries"))
        assert await collector.compact(0.9) > 0
        assert list(collector.kept_logs) == [bad]
        assert len(disk.list("entries")) < before
        disk.heal()
        for entry_id in range(30):
            assert (await read(bookie, 8, entry_id))[0] is Status.OK
        await bookie.close()

    run(test)


class FileWithBadSector:
    """A File of which one sector cannot be read."""

    def __init__(self, file: File, sector_at: int) -> None:
        self._file = file
        self._sector_at = sector_at

    @property
    def path(self) -> str:
        return self._file.path

    def read_at(self, offset: int, byte_count: int) -> bytes:
        if offset < self._sector_at + 512 and self._sector_at < offset + byte_count:
            raise OSError(EIO, "Input/output error", self.path)
        return self._file.read_at(offset, byte_count)


def test_an_entry_in_front_of_a_sector_that_cannot_be_read_is_read() -> None:
    disk = MemoryDisk()
    disk.make_directory("entries")
    writer = EntryLogWriter(disk, 1)
    packets = [packet_of(7, entry_id, bytes(700)) for entry_id in range(4)]
    locations = [writer.append(RecordKind.ENTRY, 7, packet, value(packet)) for packet in packets]
    writer.sync()
    file: Any = FileWithBadSector(disk.open(writer.path), locations[2] & 0xFFFFFFFF)
    for location, packet in zip(locations[:2], packets[:2], strict=True):
        assert read_records(file, [location])[0].body == packet
    with pytest.raises(OSError, match="Input/output error"):
        read_records(file, [locations[2]])
    assert read_records(file, [locations[3]])[0].body == packets[3]


def test_a_bookie_that_can_keep_no_more_in_memory_while_flushes_fail_is_read_only() -> None:
    async def test(disk: SimulatedDisk, index: MemoryIndex) -> None:
        bookie = await open_bookie(disk, index)
        disk.fail("write", EIO, path="entries/", times=1 << 30)
        assert await add(bookie, packet_of(7, 0, BIG)) is Status.OK
        with pytest.raises(OSError, match="Input/output error"):
            await bookie.checkpoint()
        assert not bookie.is_read_only
        count = 1
        while await add(bookie, packet_of(7, count, BIG)) is Status.OK:
            count += 1
        with pytest.raises(OSError, match="Input/output error"):
            await bookie.checkpoint()
        assert bookie.is_read_only
        disk.heal()
        await bookie.checkpoint()
        assert not bookie.is_read_only
        for entry_id in range(count):
            assert (await read(bookie, 7, entry_id))[0] is Status.OK
        await bookie.close()

    run_in_simulated_time(test)
