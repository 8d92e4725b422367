"""Several ledger directories: full, failing and lost ones; copies that are not needed any more."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from errno import EIO, EMFILE

import pytest

from bookie.config import BookieConfig, parse_ledger_directory
from bookie.errors import (
    BookieStartError,
    IncorrectParameterError,
    MetadataFormatError,
    NoSuchLedgerMetadataError,
)
from bookie.ledger.types import BookieId, Status
from bookie.metadata.cookies import CookieStore, check_cookies
from bookie.metadata.memory import MemoryStore, MemoryStoreServer
from bookie.server.bookie import Bookie
from bookie.server.disk_watch import DiskWatch
from bookie.server.identity import BookieDirectories, ledger_name
from bookie.server.storage.collector import Holding
from bookie.server.storage.directories import (
    LedgerDirectory,
    forget_lost,
    read_lost,
    space_of,
    write_lost,
)
from bookie.server.storage.memory_index import MemoryIndex
from bookie.server.storage.recovery import LostDirectories
from tests.fixtures.storages import (
    CONFIG,
    FixedRng,
    InlineExecutor,
    add,
    fence,
    lac_packet_of,
    list_entries,
    packet_of,
    read,
    read_lac,
    write_lac,
)
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk
from tests.sim.loop import SimulatedLoop

SMALL = replace(CONFIG, entry_log_bytes_max=1 << 16, returned_copy_wait_s=86400.0)
PAYLOAD = bytes(20_000)


class Metadata:
    """A LedgerList: ledgers by what metadata says of them."""

    def __init__(self) -> None:
        self.ledgers: dict[int, Holding | MetadataFormatError] = {}
        self.next_id = 1 << 20
        self.is_locked = False
        self.on_lock: Callable[[], object] = lambda: None

    async def ledger_ids(self) -> AsyncIterator[int]:
        for ledger_id in list(self.ledgers):
            yield ledger_id

    async def read(self, ledger_id: int) -> Holding:
        if ledger_id not in self.ledgers:
            raise NoSuchLedgerMetadataError(f"ledger {ledger_id}")
        found = self.ledgers[ledger_id]
        if isinstance(found, MetadataFormatError):
            raise found
        return found

    async def sync(self) -> None:
        pass

    async def fresh_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    @asynccontextmanager
    async def task_lock(self, ledger_id: int) -> AsyncGenerator[bool]:
        self.on_lock()
        yield not self.is_locked


class Machine:
    """A journal's disk, disks of entry logs, and an index, that outlive their bookies."""

    def __init__(self, count: int = 2) -> None:
        self.journal = SimulatedDisk(1)
        self.disks = [SimulatedDisk(2 + n) for n in range(count)]
        self.index = MemoryIndex()
        self.bookie: Bookie | None = None

    def directories(self) -> list[LedgerDirectory]:
        return [LedgerDirectory(disk, f"/disk{n}") for n, disk in enumerate(self.disks)]

    async def open(
        self, config: BookieConfig = SMALL, lost: LostDirectories | None = None
    ) -> Bookie:
        if self.bookie is not None:
            await self.bookie.close()
        self.bookie = await Bookie.open(
            self.journal,
            self.index,
            SimulatedClock(),
            FixedRng(),
            config,
            journal_executor=InlineExecutor(),
            storage_executor=InlineExecutor(),
            ledgers=self.directories(),
            lost=lost,
        )
        return self.bookie


def simulate(test: Callable[[Machine], Awaitable[None]]) -> None:
    async def main() -> None:
        machine = Machine()
        try:
            await test(machine)
        finally:
            if machine.bookie is not None:
                await machine.bookie.close()

    loop = SimulatedLoop(3)
    try:
        loop.run_until_complete(main(), time_limit_s=10_000_000)
    finally:
        loop.close()


async def fill(bookie: Bookie, ledger_id: int, first: int, count: int) -> None:
    """Add entries and flush each, so that they come to lie in several logs."""
    for entry_id in range(first, first + count):
        assert await add(bookie, packet_of(ledger_id, entry_id, PAYLOAD)) is Status.OK
        await bookie.checkpoint()


def logs_on(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.list("entries") if name.endswith(".log")]


# --- today's directory ----------------------------------------------------------------------------


def test_a_directory_of_before_opens_unchanged() -> None:
    """The bytes are those of the format pages, written before there were several directories."""
    journal = bytes.fromhex("626f6f6b69654a310000000100000000000000059a650954").ljust(
        512, b"\0"
    ) + bytes.fromhex(
        "42415443e2c3d1e90000000000000005000000000000020000000000000002000000000200000030"
        "000000020000000b9311d825"
        "0000000100000025e9857074"
        "00000000000000076b6579"
        "000000000000000700000000000000030000000000000002000000000000001468656c6c6f"
    ).ljust(512, b"\0")

    async def test(machine: Machine) -> None:
        disk = machine.journal
        machine.disks = [disk]
        for path in ("journal", "entries"):
            disk.make_directory(path)
        file = disk.open("journal/00000005.journal", create=True)
        file.write_at(0, journal)
        file.sync()
        file.close()
        bookie = await machine.open()
        status, packet = await read(bookie, 7, 3)
        assert (status, packet[32:]) == (Status.OK, b"hello")
        assert await read(bookie, 7, 4) == (Status.NO_ENTRY, b"")
        assert await add(bookie, packet_of(7, 4), b"key") is Status.OK
        assert logs_on(disk)

    simulate(test)


# --- full and failing -----------------------------------------------------------------------------


def test_logs_are_spread_by_weight() -> None:
    async def test(machine: Machine) -> None:
        directories = machine.directories()
        directories[1].weight = 3.0
        machine.directories = lambda: directories  # type: ignore[method-assign]
        bookie = await machine.open()
        await fill(bookie, 1, 0, 48)
        light, heavy = [len(logs_on(disk)) for disk in machine.disks]
        assert light >= 2
        assert 2 * light < heavy <= 4 * light

    simulate(test)


@pytest.mark.parametrize("kind", ["write", "sync", "sync_directory"])
def test_a_failing_directory_does_not_stop_the_others(kind: str) -> None:
    async def test(machine: Machine) -> None:
        bookie = await machine.open()
        await fill(bookie, 1, 0, 6)
        for disk in machine.disks[:1]:
            disk.fail(kind, EIO, times=1 << 30)
        await fill(bookie, 1, 6, 12)
        assert not bookie.is_read_only
        assert bookie.failure is None
        for entry_id in range(18):
            assert (await read(bookie, 1, entry_id))[0] is Status.OK
        assert bookie.figures()["bookie_failed_ledger_directories"] == 1
        await machine.open()  # closed and opened with the fault still there, or not
        assert machine.bookie is not None
        for entry_id in range(18):
            assert (await read(machine.bookie, 1, entry_id))[0] is Status.OK

    simulate(test)


def test_a_directory_does_not_fail_because_the_process_lacks_descriptors() -> None:
    async def test(machine: Machine) -> None:
        bookie = await machine.open()
        for entry_id in range(4):
            assert await add(bookie, packet_of(1, entry_id, PAYLOAD)) is Status.OK
        for disk in machine.disks:
            disk.fail("open", EMFILE, path="entries/")
        with pytest.raises(OSError, match="Too many open files"):
            await bookie.checkpoint()
        assert bookie.figures()["bookie_failed_ledger_directories"] == 0
        await bookie.checkpoint()
        for entry_id in range(4):
            assert (await read(bookie, 1, entry_id))[0] is Status.OK

    simulate(test)


def test_a_full_directory_does_not_stop_the_others_and_takes_logs_again() -> None:
    async def test(machine: Machine) -> None:
        bookie = await machine.open()
        await fill(bookie, 1, 0, 4)
        full = machine.disks[0]
        total, free = full.space()
        full.capacity_bytes = total - free + 1000
        await fill(bookie, 1, 4, 12)
        before = len(logs_on(full))
        assert not bookie.is_read_only
        full.capacity_bytes = None
        changes: list[bool] = []
        watch = DiskWatch(bookie.space, SMALL, changes.append, bookie.ledger_directories)
        watch.look()
        await fill(bookie, 1, 16, 12)
        assert len(logs_on(full)) > before
        for entry_id in range(28):
            assert (await read(bookie, 1, entry_id))[0] is Status.OK
        assert changes == []

    simulate(test)


def test_only_when_all_are_full_the_bookie_is() -> None:
    async def test(machine: Machine) -> None:
        bookie = await machine.open()
        await fill(bookie, 1, 0, 4)
        changes: list[bool] = []
        watch = DiskWatch(bookie.space, SMALL, changes.append, bookie.ledger_directories)
        for disk, found in zip(machine.disks, ([], [True]), strict=True):
            total, free = disk.space()
            disk.capacity_bytes = max(1, int((total - free) / 0.96))
            watch.look()
            assert changes == found
        for disk in machine.disks:
            disk.capacity_bytes = None
        watch.look()
        assert changes == [True, False]

    simulate(test)


def test_space_counts_each_device_once() -> None:
    disk = SimulatedDisk(capacity_bytes=1000)
    other = SimulatedDisk(capacity_bytes=500)
    one, two = LedgerDirectory(disk, "a", device=1), LedgerDirectory(disk, "b", device=1)
    three = LedgerDirectory(other, "c", device=2)
    assert space_of([one, two, three]) == (1500, 1500)
    three.failure = OSError(EIO, "broken")
    assert space_of([one, two, three]) == (1500, 1000)


# --- lost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_what_was_on_a_lost_directory_is_never_denied(*, is_index_lost: bool) -> None:
    async def test(machine: Machine) -> None:
        bookie = await machine.open()
        await fill(bookie, 1, 0, 12)
        assert await fence(bookie, 1) is Status.OK
        await bookie.close()
        machine.bookie = None
        machine.disks[0] = SimulatedDisk(9)
        if is_index_lost:
            machine.index = MemoryIndex()
        bookie = await machine.open(lost=LostDirectories(frozenset({1, 5})))
        for _ in range(2):
            statuses = [(await read(bookie, 1, entry_id))[0] for entry_id in range(14)]
            assert set(statuses[:12]) == {Status.OK, Status.IO_ERROR}
            assert statuses[12:] == [Status.IO_ERROR] * 2
            assert (await read(bookie, 1, -1))[0] is Status.IO_ERROR
            assert (await read_lac(bookie, 1))[0] is Status.IO_ERROR
            assert (await list_entries(bookie, 1))[0] is Status.IO_ERROR
            assert await add(bookie, packet_of(1, 20)) in (Status.IO_ERROR, Status.FENCED)
            assert await write_lac(bookie, lac_packet_of(1, 5)) is Status.IO_ERROR
            unknown = Status.IO_ERROR if is_index_lost else Status.NO_LEDGER
            assert (await read(bookie, 5, 0))[0] is unknown
            assert await add(bookie, packet_of(9, 0)) is Status.OK  # it serves new ledgers
            bookie = await machine.open()  # the same after a restart
        lost = statuses.index(Status.IO_ERROR)
        assert await add(bookie, packet_of(1, lost, b"again"), is_recovery=True) is Status.OK
        assert (await read(bookie, 1, lost))[1][32:] == b"again"

    simulate(test)


def test_limbo_ends_when_metadata_gives_no_part_and_the_fence_stays() -> None:
    async def test(machine: Machine) -> None:
        bookie = await machine.open()
        await fill(bookie, 1, 0, 12)
        await bookie.close()
        machine.bookie = None
        machine.disks[1] = SimulatedDisk(9)
        bookie = await machine.open(lost=LostDirectories(frozenset({1})))
        metadata = Metadata()
        for is_closed, is_member in ((True, True), (False, False), (False, True)):
            metadata.ledgers[1] = Holding(is_closed, is_member)
            assert await bookie.collect(metadata) == []
            assert (await read(bookie, 1, 50))[0] is Status.IO_ERROR
        metadata.ledgers[1] = Holding(is_closed=True, is_member=False)
        assert await bookie.collect(metadata) == []
        assert (await read(bookie, 1, 50))[0] is Status.NO_ENTRY
        assert await add(bookie, packet_of(1, 50)) is Status.FENCED
        bookie = await machine.open()
        assert (await read(bookie, 1, 50))[0] is Status.NO_ENTRY
        assert await add(bookie, packet_of(1, 50)) is Status.FENCED

    simulate(test)


def test_the_record_of_a_loss() -> None:
    disk = SimulatedDisk()
    disk.make_directory("journal")
    assert read_lost(disk) == ()
    write_lost(disk, ["/b/entries"])
    write_lost(disk, ["/a/entries", "/b/entries"])
    assert read_lost(disk) == ("/b/entries", "/a/entries")
    forget_lost(disk)
    assert read_lost(disk) == ()


class Cookies:
    """check_cookies() over a store and three disks."""

    def __init__(self, store: MemoryStore) -> None:
        self.cookies = CookieStore(store, "/ledgers")
        self.disks = [SimulatedDisk(n) for n in range(4)]
        self.losses: list[tuple[str, ...]] = []

    async def start(
        self, *ledgers: int, lost: tuple[str, ...] = (), is_expansion_allowed: bool = False
    ) -> bool:
        made = [LedgerDirectory(self.disks[n], f"/l{n}") for n in ledgers]
        journal = self.disks[0]
        places = BookieDirectories(
            data=journal,
            data_name="/j",
            journal=journal,
            journal_name="/j",
            ledgers=tuple(made),
        )
        return await check_cookies(
            self.cookies,
            journal,
            places.cookie(BookieId("b:1"), None),
            places.cookie_directories,
            allow_expansion=is_expansion_allowed,
            lost=[ledger_name(name) for name in lost],
            on_loss=self.losses.append,
        )


def test_a_start_without_a_listed_directory_needs_the_flag() -> None:
    async def main() -> None:
        server = MemoryStoreServer(SimulatedClock(), session_timeout_s=10.0)
        store = MemoryStore(server)
        cookies = Cookies(store)
        assert await cookies.start(1, 2)
        assert not await cookies.start(1, 2)
        with pytest.raises(BookieStartError, match="ledger directories"):
            await cookies.start(1)
        with pytest.raises(BookieStartError, match="ledger directories"):
            await cookies.start(1, 2, 3)
        with pytest.raises(BookieStartError, match="expected a lost directory to be gone"):
            await cookies.start(1, 2, lost=("/l2",))  # it is there
        assert cookies.losses == []
        assert not await cookies.start(1, lost=("/l2",))
        assert not await cookies.start(1)  # from now on without
        assert not await cookies.start(1, lost=("/l2",))  # the flag again does no harm
        assert cookies.losses == [("/l2/entries",)]
        assert not await cookies.start(1, 3, is_expansion_allowed=True)
        cookies.disks[3] = SimulatedDisk(8)
        with pytest.raises(BookieStartError, match="wiped, or is not mounted"):
            await cookies.start(1, 3)
        assert not await cookies.start(1, 3, lost=("/l3",))  # a new disk in its place
        assert not await cookies.start(1, 3)
        assert cookies.losses == [("/l2/entries",), ("/l3/entries",)]
        await store.close()

    loop = SimulatedLoop(3)
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_weights_in_the_configuration() -> None:
    assert parse_ledger_directory("/a") == ("/a", 1.0)
    assert parse_ledger_directory("/a=2.5") == ("/a", 2.5)
    assert parse_ledger_directory("/a=b") == ("/a=b", 1.0)
    with pytest.raises(IncorrectParameterError, match="weight of /a"):
        parse_ledger_directory("/a=0")
    with pytest.raises(IncorrectParameterError, match="each path once"):
        BookieConfig(ledger_directories=("/a", "/a=2"))


# --- copies that are not needed any more ----------------------------------------------------------


def test_an_unneeded_copy_goes_after_a_day_and_only_of_a_closed_ledger() -> None:
    async def test(machine: Machine) -> None:
        bookie = await machine.open()
        metadata = Metadata()
        for ledger_id in (1, 2, 3):
            await fill(bookie, ledger_id, 0, 1)
        metadata.ledgers = {
            1: Holding(is_closed=True, is_member=False),
            2: Holding(is_closed=False, is_member=False),
            3: Holding(is_closed=True, is_member=True),
        }
        collector = bookie.collector(metadata)
        gone: list[int] = []
        for hour in range(30):
            gone += await collector.collect()
            assert gone == ([] if hour < 24 else [1])
            await asyncio.sleep(3600)
        assert (await read(bookie, 1, 0))[0] is Status.NO_LEDGER
        for ledger_id in (2, 3):
            assert (await read(bookie, ledger_id, 0))[0] is Status.OK

    simulate(test)


def test_a_ledger_of_which_metadata_cannot_be_read_keeps_no_other_copy() -> None:
    async def test(machine: Machine) -> None:
        bookie = await machine.open()
        metadata = Metadata()
        for ledger_id in (1, 2, 3):
            await fill(bookie, ledger_id, 0, 1)
        metadata.ledgers = {n: Holding(is_closed=True, is_member=False) for n in (1, 3)}
        metadata.ledgers[2] = MetadataFormatError("ledger 2: damaged")
        collector = bookie.collector(metadata)
        gone: list[int] = []
        for _ in range(30):
            gone += await collector.collect()
            await asyncio.sleep(3600)
        assert gone == [1, 3]
        assert (await read(bookie, 2, 0))[0] is Status.OK

    simulate(test)


@pytest.mark.parametrize("what", ["given back before", "locked", "given back under the lock"])
def test_metadata_is_asked_again_before_a_copy_goes(what: str) -> None:
    async def test(machine: Machine) -> None:
        bookie = await machine.open()
        metadata = Metadata()
        await fill(bookie, 1, 0, 1)
        metadata.ledgers[1] = Holding(is_closed=True, is_member=False)
        collector = bookie.collector(metadata)

        def give_back() -> None:
            metadata.ledgers[1] = Holding(is_closed=True, is_member=True)

        metadata.is_locked = what == "locked"
        if what == "given back under the lock":
            metadata.on_lock = give_back
        for hour in range(60):
            if hour == 20 and what == "given back before":
                give_back()
            assert await collector.collect() == []
            await asyncio.sleep(3600)
        assert (await read(bookie, 1, 0))[0] is Status.OK

    simulate(test)


def test_an_older_metadata_store_stops_collection() -> None:
    async def test(machine: Machine) -> None:
        bookie = await machine.open()
        metadata = Metadata()
        for ledger_id in (4, 9):
            await fill(bookie, ledger_id, 0, 1)
        metadata.ledgers = {4: Holding(is_closed=False, is_member=True)}
        metadata.next_id = 10  # the generator has come that far: ledger 9 was deleted
        collector = bookie.collector(metadata)
        assert await collector.collect() == [9]
        assert not collector.is_stopped
        await fill(bookie, 9, 0, 1)
        metadata.next_id = 5
        assert await collector.collect() == []
        assert collector.is_stopped
        # Ledgers that are made now, and questions, take the generator past what was forgotten.
        metadata.next_id = 10
        metadata.ledgers[10] = Holding(is_closed=False, is_member=False)
        assert await collector.collect() == []
        bookie = await machine.open()
        collector = bookie.collector(metadata)
        assert await collector.collect() == []
        assert collector.is_stopped
        assert (await read(bookie, 9, 0))[0] is Status.OK
        accepting = replace(SMALL, is_older_metadata_accepted=True)
        bookie = await machine.open(accepting)
        assert await bookie.collect(metadata) == [9]
        bookie = await machine.open()  # it was for one start
        del metadata.ledgers[4]
        assert await bookie.collect(metadata) == [4]

    simulate(test)


def test_questions_alone_never_make_an_older_metadata_store_a_recent_one() -> None:
    async def test(machine: Machine) -> None:
        bookie = await machine.open()
        metadata = Metadata()
        for ledger_id in (4, 9):
            await fill(bookie, ledger_id, 0, 1)
        metadata.ledgers = {4: Holding(is_closed=False, is_member=True)}
        metadata.next_id = 5
        collector = bookie.collector(metadata)
        for _ in range(20):
            assert await collector.collect() == []
        assert (await read(bookie, 9, 0))[0] is Status.OK

    simulate(test)
