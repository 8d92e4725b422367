"""The scrub: what counts as damage, what is mended and how, what is lost, and at which speed."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from errno import EIO, EMFILE, ENFILE, ENOMEM
from typing import Any

import pytest

from bookie.config import BookieConfig
from bookie.errors import (
    CorruptFileError,
    MetadataFormatError,
    MetadataStoreError,
    NoSuchLedgerMetadataError,
)
from bookie.ledger.codec import EntryDigest
from bookie.ledger.types import DigestType, Status
from bookie.server.bookie import Admission, Bookie
from bookie.server.storage.bad_entries import Fate
from bookie.server.storage.compaction import Compaction, Switch
from bookie.server.storage.entry_log import (
    EntryLogReader,
    RecordKind,
    path_of,
    split_location,
)
from bookie.server.storage.entry_reads import EntryCheck
from bookie.server.storage.memory_index import MemoryIndex
from bookie.server.storage.scrubber import STATE_FILE, Duty, Fetched
from tests.fixtures.storages import (
    CONFIG,
    KEY,
    FixedRng,
    InlineExecutor,
    add,
    fence,
    read,
)
from tests.sim.disk import SimulatedDisk
from tests.sim.ledger.world import LoopClock
from tests.sim.loop import SimulatedExecutor, SimulatedLoop

DIGEST = EntryDigest.of(DigestType.CRC32C, b"")
SETTINGS = replace(CONFIG, entry_log_bytes_max=1 << 16, scrub_interval_s=86400.0)
LEDGER = 7


def sealed(ledger_id: int, entry_id: int, payload: bytes = b"payload") -> bytes:
    return DIGEST.seal(ledger_id, entry_id, entry_id - 1, len(payload) * (entry_id + 1), payload)


class Others:
    """Duties: CLOSED ledgers of which this bookie and others are to have every entry."""

    def __init__(self) -> None:
        self.copies: dict[tuple[int, int], bytes] = {}
        self.last: dict[int, int] = {}
        self.open: set[int] = set()
        self.unreadable: set[tuple[int, int]] = set()
        self.left: set[int] = set()
        """Ledgers that other bookies have now."""
        self.asked: list[tuple[int, int]] = []
        self.failure: Exception | None = None
        self.broken: dict[int, Exception] = {}
        """What reading the metadata of a ledger raises."""
        self.reads = 0
        self.silent = False
        self.on_fetch: Callable[[], Awaitable[object]] | None = None

    async def ledger_ids(self) -> AsyncIterator[int]:
        for ledger_id in list(self.last):
            yield ledger_id

    async def read(self, ledger_id: int) -> Duty:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        if ledger_id in self.broken:
            raise self.broken[ledger_id]
        if ledger_id not in self.last:
            raise NoSuchLedgerMetadataError(f"ledger {ledger_id}")
        last = self.last[ledger_id]
        is_mine = ledger_id not in self.left
        settled = -1 if ledger_id in self.open else last

        def required() -> Iterator[int]:
            return iter(range(settled + 1 if is_mine else 0))

        async def fetch(entry_id: int) -> Fetched:
            self.asked.append((ledger_id, entry_id))
            if self.on_fetch is not None:
                await self.on_fetch()
            if self.silent:
                return Fetched(None, reason="silence")
            packet = self.copies.get((ledger_id, entry_id))
            if (ledger_id, entry_id) in self.unreadable:
                return Fetched(None, Fate.UNREADABLE, "damaged there, too")
            return Fetched(packet, Fate.LOST, "" if packet else "all deny it")

        return Duty(
            ledger_id=ledger_id,
            master_key=KEY,
            digest=DIGEST,
            required=required,
            is_mine=lambda entry_id: is_mine and entry_id <= last,
            is_settled=lambda entry_id: entry_id <= settled,
            fetch=fetch,
        )


class World:
    """A bookie, its disk and index, and a scrubber."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.loop = loop
        self.disk = SimulatedDisk(1)
        self.index = MemoryIndex()
        self.others = Others()
        self.executor: Callable[[], Any] = InlineExecutor
        self.bookie: Any = None
        self.scrubber: Any = None

    async def open(self, config: BookieConfig = SETTINGS, *, is_scrubbing: bool = True) -> Bookie:
        self.bookie = await Bookie.open(
            self.disk,
            self.index,
            LoopClock(self.loop),
            FixedRng(),
            config,
            journal_executor=self.executor(),
            storage_executor=self.executor(),
        )
        self.scrubber = self.bookie.scrubber(self.others, self.disk, FixedRng())
        if is_scrubbing:
            self.scrubber.start()
        return self.bookie

    async def close(self) -> None:
        if self.scrubber is not None:
            await self.scrubber.close()
            await self.bookie.close()

    async def fill(self, count: int, ledger_id: int = LEDGER, payload: bytes = b"payload") -> None:
        """Let this bookie and others have entries 0 to count - 1 of a CLOSED ledger."""
        for entry_id in range(count):
            packet = sealed(ledger_id, entry_id, payload)
            assert await add(self.bookie, packet) is Status.OK
            self.others.copies[ledger_id, entry_id] = packet
        self.others.last[ledger_id] = count - 1
        await self.bookie.checkpoint()

    async def scrub(self) -> dict[str, Any]:
        passes = self.scrubber.status()["passes"]
        self.scrubber.begin()
        while self.scrubber.status()["passes"] == passes:
            await asyncio.sleep(0.1)
            for task in self.scrubber._tasks:
                if task.done():
                    task.result()
        return self.scrubber.status()

    def place(self, entry_id: int, ledger_id: int = LEDGER) -> tuple[str, int]:
        location = self.index.get(ledger_id, entry_id)
        assert location is not None
        number, offset = split_location(location)
        return f"entries/{number:08d}.log", offset

    def write(self, path: str, offset: int, data: bytes) -> None:
        file = self.disk.open(path)
        file.write_at(offset, data)
        file.sync()
        file.close()

    def flip(self, entry_id: int, at: int = 40) -> None:
        """Change one byte of an entry's record, counted from the front of its packet."""
        path, offset = self.place(entry_id)
        file = self.disk.open(path)
        (byte,) = file.read_at(offset + at, 1)
        file.close()
        self.write(path, offset + at, bytes([byte ^ 0x40]))

    async def statuses(self, count: int) -> list[Status]:
        return [(await read(self.bookie, LEDGER, n))[0] for n in range(count)]


async def reopen(world: World) -> None:
    """Let nothing be in a cache."""
    await world.scrubber.close()
    await world.bookie.close()
    await world.open()


def figure(world: World, name: str) -> float:
    values: dict[str, float] = {found.name: found.value for found in world.scrubber.figures()}
    return values[name]


def simulate(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        try:
            await test(world)
        finally:
            await world.close()

    loop = SimulatedLoop(3)
    try:
        loop.run_until_complete(main(), time_limit_s=10_000_000)
    finally:
        loop.close()


# --- damage ---------------------------------------------------------------------------------------


def flipped_body(world: World) -> None:
    world.flip(3)


def flipped_length(world: World) -> None:
    world.flip(3, at=-20)


def cut_off(world: World) -> None:
    """Let the log end in the middle of entry 3; what is behind is gone as well."""
    path, offset = world.place(3)
    file = world.disk.open(path)
    file.truncate(offset + 10)
    file.sync()
    file.close()


def swapped(world: World) -> None:
    """Let the index point to the whole and sound record of another entry."""
    location = world.index.get(LEDGER, 4)
    assert location is not None
    world.index.put([(LEDGER, 3, location)])


def removed(world: World) -> None:
    world.disk.unlink(world.place(3)[0])


def unreadable(world: World) -> None:
    world.disk.fail("read", EIO, times=1 << 30)


def not_indexed(world: World) -> None:
    entries = world.index._locations[LEDGER]
    del entries[3]


@pytest.mark.parametrize(
    "damage", [flipped_body, flipped_length, cut_off, swapped, removed, unreadable, not_indexed]
)
def test_what_is_damaged_is_put_in_place_again(damage: Callable[[World], None]) -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(8)
        await reopen(world)
        damage(world)
        status = await world.scrub()
        world.disk.heal()
        assert status["damaged"] + status["missing"] == status["mended"] > 0
        assert status["missing"] == (damage is not_indexed)
        assert status["bad_ledgers"] == []
        for entry_id in range(8):
            assert await read(world.bookie, LEDGER, entry_id) == (
                Status.OK,
                sealed(LEDGER, entry_id),
            )
        await world.bookie.checkpoint()
        again = await world.scrub()
        assert again["damaged"] == again["missing"] == 0
        assert again["entries"] == 8

    simulate(test)


def test_a_packet_that_its_writer_did_not_seal_is_damage() -> None:
    """The record's CRC is right: the bytes were wrong before the bookie wrote them."""

    async def test(world: World) -> None:
        await world.open()
        wrong = bytearray(sealed(LEDGER, 0))
        wrong[40] ^= 1
        assert await add(world.bookie, bytes(wrong)) is Status.OK
        await world.bookie.checkpoint()
        world.others.last[LEDGER] = 0
        world.others.copies[LEDGER, 0] = sealed(LEDGER, 0)
        assert (await world.scrub())["mended"] == 1
        assert await read(world.bookie, LEDGER, 0) == (Status.OK, sealed(LEDGER, 0))

    simulate(test)


def test_sound_entries_are_no_damage() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(2000)
        await world.fill(5, ledger_id=9, payload=bytes(60_000))
        assert await add(world.bookie, sealed(LEDGER, 2000)) is Status.OK  # not flushed
        world.others.last[LEDGER] = 2000
        status = await world.scrub()
        assert (status["entries"], status["damaged"], status["missing"]) == (2005, 0, 0)
        assert world.others.asked == []

    simulate(test)


def test_a_ledger_of_which_nothing_is_here() -> None:
    async def test(world: World) -> None:
        await world.open()
        world.others.last[LEDGER] = 2
        world.others.copies |= {(LEDGER, n): sealed(LEDGER, n) for n in range(3)}
        assert (await world.scrub())["mended"] == 3
        assert await world.statuses(3) == [Status.OK] * 3

    simulate(test)


def test_what_metadata_does_not_give_this_bookie_is_left() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(4)
        await reopen(world)
        world.flip(3)
        world.others.last[LEDGER] = 2  # behind the end of the ledger
        status = await world.scrub()
        assert (status["damaged"], status["unneeded"], status["mended"]) == (1, 1, 0)
        assert world.others.asked == []
        assert status["bad_ledgers"] == []

    simulate(test)


# --- loss -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [flipped_body, not_indexed])
def test_an_entry_that_nobody_has_is_lost_and_never_denied(
    damage: Callable[[World], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(5)
        await reopen(world)
        damage(world)
        del world.others.copies[LEDGER, 3]
        status = await world.scrub()
        (bad,) = status["bad_ledgers"]
        assert (bad["ledger_id"], bad["lost"], bad["lost_count"]) == (LEDGER, [3], 1)
        assert "all deny it" in bad["reason"]
        assert figure(world, "bookie_scrub_lost_entries") == 1
        assert json.loads(json.dumps(status)) == status
        assert [r.levelname for r in caplog.records if "are lost" in r.message] == ["CRITICAL"]
        expected = [Status.OK] * 3 + [Status.IO_ERROR, Status.OK]
        assert await world.statuses(5) == expected
        await world.bookie.checkpoint()
        for _ in range(2):  # after a restart, and after a new pass, too
            await reopen(world)
            assert await world.statuses(5) == expected
            assert (await world.scrub())["bad_ledgers"][0]["lost"] == [3]
        world.others.copies[LEDGER, 3] = sealed(LEDGER, 3)  # a bookie came back
        assert (await world.scrub())["bad_ledgers"] == []
        assert await world.statuses(5) == [Status.OK] * 5

    simulate(test)


def test_an_entry_of_an_open_end_is_never_called_lost() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(4)
        world.others.open.add(LEDGER)
        await reopen(world)
        world.flip(3)
        del world.others.copies[LEDGER, 3]
        status = await world.scrub()
        assert status["bad_ledgers"][0]["unmended"] == [3]
        assert status["bad_ledgers"][0]["lost"] == []
        assert (await world.statuses(4))[3] is Status.IO_ERROR

    simulate(test)


def test_a_ledger_that_moved_meanwhile_is_not_lost() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(4)
        await reopen(world)
        world.flip(3)
        del world.others.copies[LEDGER, 3]

        async def move() -> None:
            world.others.left.add(LEDGER)

        world.others.on_fetch = move
        assert (await world.scrub())["bad_ledgers"] == []

        async def delete() -> None:
            world.others.last.pop(LEDGER, None)

        world.others.left.clear()
        world.others.on_fetch = delete
        assert (await world.scrub())["bad_ledgers"] == []

    simulate(test)


def test_what_cannot_be_copied_now_is_tried_again() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(4)
        await reopen(world)
        world.flip(3)
        world.others.silent = True
        (bad,) = (await world.scrub())["bad_ledgers"]
        assert (bad["unmended"], bad["lost"]) == ([3], [])
        world.others.silent = False
        await asyncio.sleep(3700.0)  # long before the next pass
        assert world.scrubber.status()["bad_ledgers"] == []
        assert world.scrubber.status()["passes"] == 1
        assert await world.statuses(4) == [Status.OK] * 4
        await asyncio.sleep(1.5 * SETTINGS.scrub_interval_s)
        assert world.scrubber.status()["passes"] == 2  # what was tried between passes ends none

    simulate(test)


@pytest.mark.parametrize(
    "error",
    [MetadataFormatError("ledger 5: damaged"), CorruptFileError("index"), OSError(EIO, "index")],
)
def test_a_ledger_that_cannot_be_checked_holds_up_no_other(error: Exception) -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(2, ledger_id=5)
        await world.fill(4)
        await reopen(world)
        world.flip(3)
        world.others.broken[5] = error
        status = await world.scrub()
        assert (status["mended"], status["passes"]) == (1, 1)
        (bad,) = status["bad_ledgers"]
        assert (bad["ledger_id"], bad["unmended_count"], bad["reason"]) == (5, 1, str(error))
        del world.others.broken[5]
        await asyncio.sleep(3700.0)
        assert world.scrubber.status()["bad_ledgers"] == []

    simulate(test)


@pytest.mark.parametrize("number", [EMFILE, ENFILE, ENOMEM])
def test_what_the_process_lacks_is_no_damage(number: int) -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(6)
        await reopen(world)
        world.others.copies.clear()
        world.disk.fail("open", number, times=1 << 30)
        (bad,) = (await world.scrub())["bad_ledgers"]
        assert (bad["lost"], bad["unmended"]) == ([], [])
        world.disk.heal()
        assert await world.statuses(6) == [Status.OK] * 6
        assert (await world.scrub())["bad_ledgers"] == []

    simulate(test)


@pytest.mark.parametrize("fate", Fate)
def test_a_missing_entry_is_denied_no_more_once_a_check_found_it(fate: Fate) -> None:
    """Whatever the others say of it, and after a crash, too; only its own reads are errors."""

    async def test(world: World) -> None:
        await world.open(replace(SETTINGS, flush_interval_s=1e6))
        await world.fill(5)
        await reopen(world)
        not_indexed(world)
        world.index._durable, world.index._unsynced = [world.index._content()], []
        del world.others.copies[LEDGER, 3]
        world.others.silent = fate is Fate.UNMENDED
        if fate is Fate.UNREADABLE:
            world.others.unreadable.add((LEDGER, 3))
        (bad,) = (await world.scrub())["bad_ledgers"]
        assert [bad[one.value] for one in Fate] == [[3] if one is fate else [] for one in Fate]
        expected = [Status.OK] * 3 + [Status.IO_ERROR, Status.OK, Status.NO_ENTRY]
        assert await world.statuses(6) == expected
        world.disk, world.index = world.disk.crash(5), world.index.crash(lambda _: 0)
        world.scrubber = None
        await world.open()
        assert await world.statuses(6) == expected
        assert world.scrubber.status()["bad_ledgers"] == [bad]
        assert await add(world.bookie, sealed(LEDGER, 9)) is Status.OK
        world.others.silent = False
        world.others.unreadable.clear()
        world.others.copies[LEDGER, 3] = sealed(LEDGER, 3)
        assert (await world.scrub())["bad_ledgers"] == []
        assert await world.statuses(5) == [Status.OK] * 5

    simulate(test)


def test_the_last_entries_of_a_ledger_are_missing() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(3)
        world.others.last[LEDGER] = 5
        (bad,) = (await world.scrub())["bad_ledgers"]
        assert bad["lost"] == [3, 4, 5]
        for _ in range(2):
            assert await world.statuses(7) == [Status.OK] * 3 + [Status.IO_ERROR] * 3 + [
                Status.NO_ENTRY
            ]
            assert (await read(world.bookie, LEDGER, -1))[0] is Status.IO_ERROR
            await reopen(world)

    simulate(test)


def test_what_no_bookie_can_read_is_told_and_not_asked_for_each_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(5)
        await reopen(world)
        world.flip(3)
        world.others.unreadable.add((LEDGER, 3))
        (bad,) = (await world.scrub())["bad_ledgers"]
        assert (bad["unreadable"], bad["lost"], bad["unmended"]) == ([3], [], [])
        assert figure(world, "bookie_scrub_unreadable_entries") == 1
        said = [r.levelname for r in caplog.records if "on no bookie that can read" in r.message]
        assert said == ["CRITICAL"]
        asked = len(world.others.asked)
        await asyncio.sleep(10_000.0)
        assert len(world.others.asked) == asked
        world.others.unreadable.clear()
        assert (await world.scrub())["mended"] == 1

    simulate(test)


# --- what is remembered ---------------------------------------------------------------------------


def test_what_is_bad_is_known_after_a_crash_in_the_next_pass() -> None:
    """The list is written with the place up to which it says everything."""

    async def test(world: World) -> None:
        settings = replace(SETTINGS, scrub_bytes_per_s=1024)
        await world.open(settings)
        await world.fill(4, ledger_id=5)
        await world.fill(4)
        await world.fill(4, ledger_id=9)
        await reopen(world)
        world.flip(3)
        del world.others.copies[LEDGER, 3]
        before = await world.scrub()
        assert [bad["ledger_id"] for bad in before["bad_ledgers"]] == [LEDGER]
        for _ in range(2):
            await reopen(world)
            assert world.scrubber.status()["bad_ledgers"] == before["bad_ledgers"]
            assert figure(world, "bookie_scrub_lost_entries") == 1
        del world.others.last[LEDGER]
        assert (await world.scrub())["bad_ledgers"] == []
        await reopen(world)
        assert world.scrubber.status()["bad_ledgers"] == []

    simulate(test)


def test_what_a_read_found_is_known_after_a_crash() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(6)
        await reopen(world)
        world.flip(3)
        del world.others.copies[LEDGER, 3]
        assert (await read(world.bookie, LEDGER, 3))[0] is Status.IO_ERROR
        await asyncio.sleep(1.0)
        world.disk, world.index = world.disk.crash(5), world.index.crash(lambda _: 0)
        world.scrubber = None
        await world.open()
        assert world.scrubber.status()["bad_ledgers"][0]["lost"] == [3]

    simulate(test)


def test_what_waits_for_others_is_tried_within_an_hour_of_a_start() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(4)
        await reopen(world)
        world.flip(3)
        world.others.silent = True
        await world.scrub()
        await reopen(world)
        world.others.silent = False
        await asyncio.sleep(3700.0)
        assert world.scrubber.status()["bad_ledgers"] == []
        assert world.scrubber.status()["passes"] == 0

    simulate(test)


def test_more_bad_entries_than_are_remembered_by_their_ids() -> None:
    async def test(world: World) -> None:
        await world.open()
        world.others.last[LEDGER] = 249
        (bad,) = (await world.scrub())["bad_ledgers"]
        assert (bad["lost_count"], len(bad["lost"])) == (250, 100)
        await reopen(world)
        assert world.scrubber.status()["bad_ledgers"] == [bad]
        assert await world.statuses(251) == [Status.IO_ERROR] * 250 + [Status.NO_ENTRY]

    simulate(test)


def test_a_check_that_is_under_way_goes_on() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(4, ledger_id=5)
        await world.fill(4)
        await reopen(world)
        world.others.failure = MetadataStoreError("away")
        assert world.scrubber.begin() is True
        await asyncio.sleep(1.0)
        world.others.failure = None
        assert world.scrubber.begin() is False
        await asyncio.sleep(1.0)  # it does not wait for the minute after the error
        assert world.scrubber.status()["passes"] == 1
        assert world.scrubber.begin() is True

    simulate(test)


# --- the rules of adds ----------------------------------------------------------------------------


def test_fence_and_modes_hold_while_entries_are_mended() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(4)
        assert await fence(world.bookie, LEDGER) is Status.OK
        await reopen(world)
        world.flip(3)
        world.bookie.set_admission(Admission.NONE)
        (bad,) = (await world.scrub())["bad_ledgers"]
        assert "READ_ONLY" in bad["reason"]
        world.bookie.set_admission(Admission.PRIORITY_RECOVERY)  # it drains
        assert (await world.scrub())["mended"] == 1
        world.bookie.set_admission(Admission.ALL)
        assert await add(world.bookie, sealed(LEDGER, 4)) is Status.FENCED

    simulate(test)


def test_limbo_stays_when_its_entries_are_back() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(4)
        storage = world.bookie._storage
        storage.state(LEDGER).is_in_limbo = True
        storage.mark_dirty(storage.state(LEDGER))
        world.others.last[LEDGER] = 5
        world.others.copies[LEDGER, 4] = sealed(LEDGER, 4)
        status = await world.scrub()
        assert status["mended"] == 1
        assert await world.statuses(6) == [Status.OK] * 5 + [Status.IO_ERROR]
        assert await add(world.bookie, sealed(LEDGER, 9)) is Status.IO_ERROR

    simulate(test)


# --- beside other work ----------------------------------------------------------------------------


def test_a_log_that_compaction_removes_is_no_damage() -> None:
    async def test(world: World) -> None:
        await world.open(is_scrubbing=False)
        await world.fill(40, payload=bytes(4000))
        storage = world.bookie._storage
        check = EntryCheck(world.index, storage.logs, LEDGER, digest=DIGEST)
        step = check.step(1)  # the locations of all are known to it now
        assert step.entry_count > 0
        assert not step.is_last
        before = storage.logs.numbers()
        assert await world.bookie.collector(_Known()).compact(1.01) > 0
        assert not set(before[:-1]) & set(storage.logs.numbers())
        count = step.entry_count
        while not step.is_last:
            step = check.step(1 << 20)
            count += step.entry_count
            assert step.damaged == step.missing == ()
        assert count == 40

    simulate(test)


def test_a_damaged_log_is_compacted_once_its_entries_are_mended() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(40, payload=bytes(4000))
        await reopen(world)
        path, _ = world.place(3)
        world.flip(3)
        collector = world.bookie.collector(_Known())
        await collector.compact(1.01)
        assert list(collector.kept_logs) == [1]
        assert (await world.scrub())["mended"] == 1
        await world.bookie.checkpoint()
        assert list(world.bookie._storage.damaged_logs) == [1]
        assert await collector.compact_damaged() == 1
        assert collector.kept_logs == {}
        assert not world.disk.exists(path)
        logs = world.bookie._storage.logs
        for entry_id in range(40):
            location = world.index.get(LEDGER, entry_id)
            assert location is not None
            assert logs.read((location,))[0].body == sealed(LEDGER, entry_id, bytes(4000))

    simulate(test)


def flipped_ledger_record(world: World) -> None:
    """Damage the record that says of the ledger that it is fenced."""
    reader = EntryLogReader(world.disk, 1)
    records = list(reader.records())
    reader.close()
    for record in records:
        if record.kind == RecordKind.LEDGER and record.ledger_id == LEDGER:
            world.disk.flip("entries/00000001.log", split_location(record.location)[1] + 9)


def flipped_log_header(world: World) -> None:
    world.disk.flip(world.place(3)[0], 3)


def flipped_trailer(world: World) -> None:
    path, _ = world.place(3)
    world.disk.flip(path, world.disk.size(path) - 9)


def flipped_map(world: World) -> None:
    path, _ = world.place(3)
    world.disk.flip(path, world.disk.size(path) - 40)


def bad_sector(world: World) -> None:
    """Let no part of the log be read but entry by entry."""
    world.flip(3)
    path, _ = world.place(3)
    file = world.disk.open(path)
    size = file.size()
    file.close()
    world.write(path, size - 32, bytes(32))


@pytest.mark.parametrize(
    "damage",
    [
        flipped_body,
        flipped_length,
        flipped_ledger_record,
        flipped_log_header,
        flipped_trailer,
        flipped_map,
        bad_sector,
    ],
)
def test_a_damaged_log_is_replaced_once_all_in_it_can_be_read(
    damage: Callable[[World], None],
) -> None:
    """And then the index can be made anew of the logs, with its entries and fences."""

    async def test(world: World) -> None:
        await world.open()
        await world.fill(8)
        assert await fence(world.bookie, LEDGER) is Status.OK
        await reopen(world)
        path, _ = world.place(4)
        damage(world)
        status = await world.scrub()
        assert [log["log_number"] for log in status["damaged_logs"]] == [1]
        assert figure(world, "bookie_scrub_damaged_logs") == 1
        assert status["bad_ledgers"] == []
        await world.bookie.checkpoint()
        await reopen(world)  # it is remembered
        assert len(world.scrubber.status()["damaged_logs"]) == 1
        assert await world.bookie.collector(_Known()).compact_damaged() == 1
        assert not world.disk.exists(path)
        assert world.scrubber.status()["damaged_logs"] == []
        assert (await world.scrub())["damaged_logs"] == []
        await world.close()
        world.index = MemoryIndex()
        world.scrubber = None
        await world.open()
        assert await world.statuses(8) == [Status.OK] * 8
        for entry_id in range(8):
            assert (await read(world.bookie, LEDGER, entry_id))[1] == sealed(LEDGER, entry_id)
        assert await add(world.bookie, sealed(LEDGER, 9)) is Status.FENCED

    simulate(test)


@pytest.mark.parametrize("damage", [flipped_body, flipped_length])
def test_a_log_with_a_lost_entry_is_kept(damage: Callable[[World], None]) -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(8)
        await reopen(world)
        path, _ = world.place(4)
        damage(world)
        del world.others.copies[LEDGER, 3]
        await world.scrub()
        world.bookie._storage.damaged_logs[1] = "as a check of the logs finds it"
        collector = world.bookie.collector(_Known())
        assert await collector.compact_damaged() == 0
        assert world.disk.exists(path)
        expected = [Status.OK] * 8
        expected[3] = Status.IO_ERROR
        await reopen(world)
        assert await world.statuses(8) == expected
        world.others.copies[LEDGER, 3] = sealed(LEDGER, 3)
        assert (await world.scrub())["mended"] == 1
        await world.bookie.checkpoint()
        assert await collector.compact_damaged() == 0  # not before the next major compaction
        world.bookie._storage.damaged_logs[1] = "as a check of the logs finds it"
        assert await world.bookie.collector(_Known()).compact_damaged() == 1
        await reopen(world)
        assert await world.statuses(8) == [Status.OK] * 8

    simulate(test)


@pytest.mark.parametrize("at", [3, 30, -4])
def test_a_damaged_log_of_an_interrupted_compaction_keeps_its_sources(at: int) -> None:
    """The start goes on, nothing is lost, and the logs are compacted later on."""

    async def test(world: World) -> None:
        await world.open()
        await world.fill(40, payload=bytes(4000))
        await reopen(world)
        places = dict(world.index.locations(LEDGER, 0, 40))
        storage = world.bookie._storage
        compaction = Compaction(storage.logs, world.index, storage.logs.numbers())
        while not compaction.step(1 << 20):
            pass
        compaction.seal()
        number = compaction.log_number
        path = path_of(number, "compacted")
        switch = Switch(storage.logs, world.index, number)
        switch.step()  # the index points there now
        switch.close()
        location = world.index.get(LEDGER, 20)
        assert location is not None
        assert split_location(location)[0] == number
        if at == 30:  # before the index was changed, as far as the next start knows
            for entry_id, before in places.items():
                world.index.put([(LEDGER, entry_id, before)])
        offset = {3: 3, 30: split_location(location)[1] + 30, -4: world.disk.size(path) - 4}[at]
        await world.close()
        world.disk.flip(path, offset)
        await world.open()
        assert world.disk.exists(path)
        assert await world.statuses(40) == [Status.OK] * 40
        assert len(await _damaged_logs(world)) == 1
        assert await world.bookie.collector(_Known()).compact_damaged() == 1
        assert not world.disk.exists(path)
        await reopen(world)
        assert await world.statuses(40) == [Status.OK] * 40
        await world.close()
        world.index = MemoryIndex()
        world.scrubber = None
        await world.open()
        assert await world.statuses(40) == [Status.OK] * 40

    simulate(test)


async def _damaged_logs(world: World) -> list[dict[str, Any]]:
    return (await world.scrub())["damaged_logs"]


class _Known:
    """A LedgerList that is not asked for more."""


def test_a_ledger_that_is_deleted_meanwhile_is_no_damage() -> None:
    async def test(world: World) -> None:
        await world.open(is_scrubbing=False)
        await world.fill(40, payload=bytes(4000))
        storage = world.bookie._storage
        check = EntryCheck(world.index, storage.logs, LEDGER, digest=DIGEST)
        step = check.step(1)
        await storage.delete_ledger(LEDGER)
        storage.logs.remove_all(storage.logs.numbers())
        while not step.is_last:
            step = check.step(1 << 20)
            assert step.damaged == ()

    simulate(test)


def test_a_crash_between_the_steps_of_mending_loses_nothing() -> None:
    step = 1
    while _is_cut_off(step):
        step += 1
    assert step > 4


def _is_cut_off(step: int) -> bool:
    """Crash in this step of the disk while an entry is mended; whether there was that step."""

    async def first_life(world: World) -> None:
        await world.open(is_scrubbing=False)
        await world.fill(4)
        await world.close()
        world.flip(3)
        await world.open()
        world.disk.crash_at = world.disk.step_count + step
        await world.scrub()
        await world.bookie.checkpoint()
        await world.close()

    async def main() -> bool:
        world = World()
        world.executor = SimulatedExecutor
        ended = loop.create_future()
        node.on_crash.append(lambda: ended.done() or ended.set_result(None))
        life = node.create_task(first_life(world))
        life.add_done_callback(lambda _: ended.done() or ended.set_result(None))
        await ended
        if node.is_alive:
            life.result()
            world.disk.crash_at = None
        else:
            world.disk = world.disk.restart()
            world.index = world.index.crash(lambda count: count // 2)
        await world.open()
        found = await read(world.bookie, LEDGER, 3)
        assert found in ((Status.IO_ERROR, b""), (Status.OK, sealed(LEDGER, 3)))
        await world.scrub()
        assert await world.statuses(4) == [Status.OK] * 4
        await world.close()
        return not node.is_alive

    loop = SimulatedLoop(step)
    node = loop.add_node("bookie")
    try:
        return loop.run_until_complete(main(), time_limit_s=100_000)
    finally:
        loop.close()


# --- reads ----------------------------------------------------------------------------------------


def test_a_read_that_meets_damage_has_its_entry_mended() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(6)
        await reopen(world)
        world.flip(3)
        assert (await read(world.bookie, LEDGER, 3))[0] is Status.IO_ERROR
        await asyncio.sleep(1.0)
        assert await read(world.bookie, LEDGER, 3) == (Status.OK, sealed(LEDGER, 3))
        assert world.scrubber.status()["passes"] == 0
        assert world.scrubber.total.mended == 1

    simulate(test)


def test_a_read_whose_entry_cannot_be_copied_yet_has_it_tried_again() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(6)
        await reopen(world)
        world.flip(3)
        world.others.silent = True
        assert (await read(world.bookie, LEDGER, 3))[0] is Status.IO_ERROR
        await asyncio.sleep(1.0)
        assert world.scrubber.status()["bad_ledgers"][0]["unmended"] == [3]
        world.others.silent = False
        await asyncio.sleep(3700.0)
        assert world.scrubber.status()["bad_ledgers"] == []
        assert world.scrubber.status()["passes"] == 0
        assert (await read(world.bookie, LEDGER, 3))[0] is Status.OK
        await asyncio.sleep(1.5 * SETTINGS.scrub_interval_s)
        assert world.scrubber.status()["passes"] == 1

    simulate(test)


def test_reads_of_a_lost_entry_ask_others_now_and_then_only() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(6)
        await reopen(world)
        world.flip(3)
        del world.others.copies[LEDGER, 3]
        for _ in range(50):
            assert (await read(world.bookie, LEDGER, 3))[0] is Status.IO_ERROR
            await asyncio.sleep(1.0)
        assert len(world.others.asked) == 2  # once, and once more before it is called lost
        assert world.scrubber.status()["bad_ledgers"][0]["lost"] == [3]
        await asyncio.sleep(600.0)
        world.others.copies[LEDGER, 3] = sealed(LEDGER, 3)
        assert (await read(world.bookie, LEDGER, 3))[0] is Status.IO_ERROR
        await asyncio.sleep(1.0)
        assert (await read(world.bookie, LEDGER, 3))[0] is Status.OK
        assert world.scrubber.status()["bad_ledgers"] == []

    simulate(test)


def test_a_read_whose_entry_a_pass_mends_first() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(6)
        await reopen(world)
        world.flip(3)
        world.others.silent = True
        assert (await world.scrub())["bad_ledgers"][0]["unmended"] == [3]
        world.others.silent = False
        is_over = asyncio.Event()
        first = True

        async def slow() -> None:
            nonlocal first
            if first:
                first = False
                await is_over.wait()

        world.others.on_fetch = slow
        assert (await read(world.bookie, LEDGER, 3))[0] is Status.IO_ERROR
        await asyncio.sleep(1.0)
        assert (await world.scrub())["bad_ledgers"] == []
        is_over.set()
        await asyncio.sleep(1.0)
        assert not any(task.done() for task in world.scrubber._tasks)

    simulate(test)


# --- budget and plan ------------------------------------------------------------------------------


def test_the_budget_is_kept() -> None:
    async def test(world: World) -> None:
        await world.open(replace(SETTINGS, scrub_bytes_per_s=100_000), is_scrubbing=False)
        await world.fill(300, payload=bytes(10_000))
        read_bytes: list[tuple[float, int]] = []
        opened = world.disk.open

        class Counting:
            def __init__(self, path: str) -> None:
                self.file = opened(path)

            def __getattr__(self, name: str) -> Any:
                return getattr(self.file, name)

            def read_at(self, offset: int, byte_count: int) -> bytes:
                data = self.file.read_at(offset, byte_count)
                read_bytes.append((world.loop.time(), len(data)))
                return data

        def open_counting(path: str, **flags: Any) -> Any:
            return Counting(path) if path.startswith("entries/") else opened(path, **flags)

        world.disk.open = open_counting  # type: ignore[method-assign]
        world.bookie._storage.logs.close()
        world.scrubber.start()
        began = world.loop.time()
        status = await world.scrub()
        world.disk.open = opened  # type: ignore[method-assign]
        assert status["entries"] == 300
        took_s = world.loop.time() - began
        total = sum(count for _, count in read_bytes)
        assert total > 3_000_000
        assert took_s > total / 100_000 * 0.8
        done = 0
        for at, count in read_bytes:  # at every moment, but for a step's burst
            assert done <= (at - began) * 100_000 + 2 * 256 * 1024
            done += count

    simulate(test)


def test_what_others_are_asked_for_is_paid() -> None:
    async def test(world: World) -> None:
        await world.open(replace(SETTINGS, scrub_bytes_per_s=1 << 20))
        world.others.last[LEDGER] = 9_999  # nobody has any of them
        began = world.loop.time()
        status = await world.scrub()
        assert status["missing"] == 10_000
        questions = len(world.others.asked) + world.others.reads
        assert world.loop.time() - began > questions * 4096 / (1 << 20) * 0.8

    simulate(test)


def test_a_pass_begins_by_itself_and_goes_on_after_a_restart() -> None:
    async def test(world: World) -> None:
        await world.open(replace(SETTINGS, scrub_bytes_per_s=10_000))
        for ledger_id in range(20):
            await world.fill(2, ledger_id=ledger_id, payload=bytes(20_000))
        await asyncio.sleep(86000.0)
        assert not world.scrubber.status()["is_checking"]
        await asyncio.sleep(430.0)
        status = world.scrubber.status()
        assert status["is_checking"]
        assert 0 < status["ledgers_done"] < 20
        await world.close()
        await world.open(replace(SETTINGS, scrub_bytes_per_s=1_000_000))
        await asyncio.sleep(100.0)
        after = world.scrubber.status()
        assert after["passes"] == 1
        assert after["entries"] <= 2 * (20 - status["ledgers_done"])
        assert after["began_us"] == status["began_us"]
        assert json.loads(world.disk.read(STATE_FILE))["next_ledger_id"] is None

    simulate(test)


def test_a_scrub_that_is_switched_off_goes_when_asked_only() -> None:
    async def test(world: World) -> None:
        await world.open(replace(SETTINGS, scrub_interval_s=0))
        await world.fill(2)
        await asyncio.sleep(1_000_000.0)
        assert world.scrubber.status()["passes"] == 0
        assert (await world.scrub())["entries"] == 2

    simulate(test)


def test_a_silent_metadata_store_stops_a_pass_for_a_while() -> None:
    async def test(world: World) -> None:
        await world.open()
        await world.fill(2)
        world.others.failure = MetadataStoreError("silence")
        world.scrubber.begin()
        await asyncio.sleep(1.0)
        assert figure(world, "scrubber_detectedFatalScrubErrors") == 1
        assert world.scrubber.status()["is_checking"]
        world.others.failure = None
        await asyncio.sleep(61.0)
        assert world.scrubber.status()["passes"] == 1

    simulate(test)


def test_index_and_logs_stay_open_while_a_step_of_the_check_runs() -> None:
    async def test(world: World) -> None:
        job_s = 0.0
        world.executor = lambda: SimulatedExecutor(lambda: job_s, 4)
        await world.open()
        await world.fill(2)
        job_s = 50.0
        began = world.loop.time()
        world.scrubber.begin()
        await asyncio.sleep(110.0)  # behind the lists of ledgers and the look-up: in the step
        job_s = 0.0
        await world.close()
        assert world.loop.time() - began == pytest.approx(150.0)

    simulate(test)


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b'{"began_us": null, "next_ledger_id": null}',
        b'{"began_us": 1, "next_ledger_id": "7"}',
    ],
)
def test_a_state_file_that_makes_no_sense_is_no_obstacle(content: bytes) -> None:
    async def test(world: World) -> None:
        file = world.disk.open(STATE_FILE, create=True)
        file.write_at(0, content)
        file.close()
        await world.open()
        await world.fill(1)
        assert (await world.scrub())["entries"] == 1

    simulate(test)
