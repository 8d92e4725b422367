"""The rules of one bookie, over memory, without threads."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from bookie.ledger.types import Status
from bookie.runtime.memory_disk import MemoryDisk
from bookie.server.bookie import Bookie
from bookie.server.storage.lmdb_index import LmdbIndex
from bookie.server.storage.memory_index import MemoryIndex
from tests.fixtures.storages import (
    KEY,
    OTHER_KEY,
    ZERO_KEY,
    HeldExecutor,
    add,
    fence,
    force,
    lac_packet_of,
    list_entries,
    open_bookie,
    packet_of,
    read,
    read_lac,
    turns,
    write_lac,
)


def run(test: Callable[[Bookie], Awaitable[None]]) -> None:
    async def main() -> None:
        bookie = await open_bookie(MemoryDisk(), MemoryIndex())
        await test(bookie)
        await bookie.close()

    asyncio.run(main())


def run_over_restart(
    before: Callable[[Bookie], Awaitable[None]],
    after: Callable[[Bookie], Awaitable[None]],
    *,
    is_closed: bool,
) -> None:
    """Run before, end the process (after close() or without it), run after."""

    async def main() -> None:
        disk, index = MemoryDisk(), MemoryIndex()
        bookie = await open_bookie(disk, index)
        await before(bookie)
        if is_closed:
            await bookie.close()
        else:
            index = index.crash(lambda count: 0)
        bookie = await open_bookie(disk, index)
        await after(bookie)
        await bookie.close()

    asyncio.run(main())


both_ends = pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])


class TestAddAndRead:
    def test_what_was_added_is_read(self) -> None:
        async def test(bookie: Bookie) -> None:
            for entry_id in range(5):
                assert await add(bookie, packet_of(7, entry_id, b"x%d" % entry_id)) is Status.OK
            for entry_id in range(5):
                expected = packet_of(7, entry_id, b"x%d" % entry_id)
                assert await read(bookie, 7, entry_id) == (Status.OK, expected)
            assert await read(bookie, 7, -1) == (Status.OK, packet_of(7, 4, b"x4"))
            assert await read(bookie, 7, 5) == (Status.NO_ENTRY, b"")
            assert await read(bookie, 8, 0) == (Status.NO_LEDGER, b"")
            assert await list_entries(bookie, 7) == (Status.OK, [0, 1, 2, 3, 4])
            assert await list_entries(bookie, 8) == (Status.NO_LEDGER, ())

        run(test)

    @both_ends
    def test_what_was_added_is_there_after_a_restart(self, *, is_closed: bool) -> None:
        async def before(bookie: Bookie) -> None:
            for entry_id in range(600):
                assert await add(bookie, packet_of(7, entry_id, bytes(900))) is Status.OK

        async def after(bookie: Bookie) -> None:
            for entry_id in range(600):
                assert await read(bookie, 7, entry_id) == (
                    Status.OK,
                    packet_of(7, entry_id, bytes(900)),
                )
            assert bookie.last_add_confirmed(7) == 598

        run_over_restart(before, after, is_closed=is_closed)

    def test_an_entry_is_readable_before_it_is_acknowledged(self) -> None:
        async def main() -> None:
            journal = HeldExecutor()
            bookie = await open_bookie(MemoryDisk(), MemoryIndex(), journal_executor=journal)
            journal.is_holding = True
            answers: list[Status] = []
            bookie.add(packet_of(7, 0), KEY, answers.append)
            await turns()
            assert await read(bookie, 7, 0) == (Status.OK, packet_of(7, 0))
            assert answers == []
            journal.let_go()
            await turns()
            assert answers == [Status.OK]
            await bookie.close()

        asyncio.run(main())

    def test_duplicates_and_any_order_are_accepted(self) -> None:
        async def test(bookie: Bookie) -> None:
            for entry_id in (5, 3, 9, 3, 0):
                assert await add(bookie, packet_of(7, entry_id)) is Status.OK
            assert await add(bookie, packet_of(7, 3, b"again")) is Status.OK
            assert await read(bookie, 7, 3) == (Status.OK, packet_of(7, 3, b"again"))
            assert await read(bookie, 7, -1) == (Status.OK, packet_of(7, 9))
            assert await list_entries(bookie, 7) == (Status.OK, [0, 3, 5, 9])

        run(test)

    @pytest.mark.parametrize("packet", [b"", bytes(31), packet_of(-7, 1), packet_of(7, -1)])
    def test_bad_packets(self, packet: bytes) -> None:
        async def test(bookie: Bookie) -> None:
            assert await add(bookie, packet) is Status.BAD_REQUEST

        run(test)

    def test_a_view_of_a_buffer_is_copied(self) -> None:
        async def test(bookie: Bookie) -> None:
            buffer = bytearray(packet_of(7, 0, b"payload"))
            assert await add(bookie, memoryview(buffer)) is Status.OK  # type: ignore[arg-type]
            buffer[-7:] = b"garbage"
            assert await read(bookie, 7, 0) == (Status.OK, packet_of(7, 0, b"payload"))

        run(test)

    def test_a_ledger_of_a_negative_id_is_unknown(self, tmp_path: Path) -> None:
        async def main() -> None:
            with closing(LmdbIndex(str(tmp_path / "index.lmdb"))) as index:
                bookie = await open_bookie(MemoryDisk(), index)
                assert await list_entries(bookie, -7) == (Status.NO_LEDGER, ())
                assert await read_lac(bookie, -7) == (Status.NO_ENTRY, b"", b"")
                assert bookie.last_add_confirmed(-7) is None
                await bookie.close()

        asyncio.run(main())


class TestMasterKey:
    @both_ends
    def test_the_first_key_binds(self, *, is_closed: bool) -> None:
        async def before(bookie: Bookie) -> None:
            assert await add(bookie, packet_of(7, 0)) is Status.OK

        async def after(bookie: Bookie) -> None:
            assert await add(bookie, packet_of(7, 1), OTHER_KEY) is Status.UNAUTHORIZED
            assert await fence(bookie, 7, OTHER_KEY) is Status.UNAUTHORIZED
            assert await write_lac(bookie, lac_packet_of(7, 3), OTHER_KEY) is Status.UNAUTHORIZED
            assert await add(bookie, packet_of(7, 1), b"") is Status.UNAUTHORIZED
            assert await add(bookie, packet_of(7, 1)) is Status.OK

        run_over_restart(before, after, is_closed=is_closed)

    @both_ends
    def test_an_all_zero_key_may_be_replaced_once(self, *, is_closed: bool) -> None:
        async def before(bookie: Bookie) -> None:
            assert await add(bookie, packet_of(7, 0), ZERO_KEY) is Status.OK
            assert await add(bookie, packet_of(7, 1), ZERO_KEY) is Status.OK
            assert await add(bookie, packet_of(7, 2), KEY) is Status.OK

        async def after(bookie: Bookie) -> None:
            assert await add(bookie, packet_of(7, 3), ZERO_KEY) is Status.UNAUTHORIZED
            assert await add(bookie, packet_of(7, 3), OTHER_KEY) is Status.UNAUTHORIZED
            assert await add(bookie, packet_of(7, 3), KEY) is Status.OK

        run_over_restart(before, after, is_closed=is_closed)


class TestFence:
    @both_ends
    def test_a_fence_stays(self, *, is_closed: bool) -> None:
        async def before(bookie: Bookie) -> None:
            assert await add(bookie, packet_of(7, 0)) is Status.OK
            assert await fence(bookie, 7) is Status.OK
            assert await add(bookie, packet_of(7, 1)) is Status.FENCED

        async def after(bookie: Bookie) -> None:
            assert await add(bookie, packet_of(7, 1)) is Status.FENCED
            assert await add(bookie, packet_of(7, 1), is_recovery=True) is Status.OK
            assert await add(bookie, packet_of(7, 2)) is Status.FENCED

        run_over_restart(before, after, is_closed=is_closed)

    @both_ends
    def test_g6_a_fence_without_entries_is_durable_with_its_key(self, *, is_closed: bool) -> None:
        async def before(bookie: Bookie) -> None:
            assert await fence(bookie, 7) is Status.OK

        async def after(bookie: Bookie) -> None:
            assert await add(bookie, packet_of(7, 0), OTHER_KEY) is Status.UNAUTHORIZED
            assert await add(bookie, packet_of(7, 0)) is Status.FENCED
            assert await read(bookie, 7, 0) == (Status.NO_ENTRY, b"")

        run_over_restart(before, after, is_closed=is_closed)

    def test_g6_no_fence_is_answered_before_it_is_durable(self) -> None:
        async def main() -> None:
            journal = HeldExecutor()
            bookie = await open_bookie(MemoryDisk(), MemoryIndex(), journal_executor=journal)
            journal.is_holding = True
            answers: list[str] = []
            bookie.fence(7, KEY, lambda status: answers.append(f"first {status.name}"))
            await turns()
            bookie.fence(7, KEY, lambda status: answers.append(f"second {status.name}"))
            await turns()
            assert answers == []
            assert await add(bookie, packet_of(7, 0)) is Status.FENCED  # in force at once
            journal.let_go()
            await turns()
            assert answers == ["first OK", "second OK"]
            assert await fence(bookie, 7) is Status.OK
            await bookie.close()

        asyncio.run(main())

    def test_g14_a_fence_creates_the_ledger(self) -> None:
        async def test(bookie: Bookie) -> None:
            assert await read(bookie, 7, -1) == (Status.NO_LEDGER, b"")
            assert await fence(bookie, 7) is Status.OK
            assert await read(bookie, 7, -1) == (Status.NO_ENTRY, b"")

        run(test)

    def test_g16_adds_and_fences_meet_at_one_descriptor(self) -> None:
        async def test(bookie: Bookie) -> None:
            answers: list[Status] = []
            bookie.add(packet_of(7, 0), KEY, answers.append)
            bookie.fence(7, KEY, answers.append)
            bookie.add(packet_of(7, 1), KEY, answers.append)
            await turns()
            assert sorted(answers) == [Status.OK, Status.OK, Status.FENCED]
            assert await read(bookie, 7, 1) == (Status.NO_ENTRY, b"")

        run(test)


class TestLastAddConfirmed:
    def test_from_entries_and_explicit_lacs(self) -> None:
        async def test(bookie: Bookie) -> None:
            assert bookie.last_add_confirmed(7) is None
            assert await add(bookie, packet_of(7, 3, lac=1)) is Status.OK
            assert bookie.last_add_confirmed(7) == 1
            assert await add(bookie, packet_of(7, 4, lac=-1)) is Status.OK
            assert bookie.last_add_confirmed(7) == 1
            assert await write_lac(bookie, lac_packet_of(7, 4)) is Status.OK
            assert bookie.last_add_confirmed(7) == 4

        run(test)

    @both_ends
    def test_explicit_lac_is_there_after_a_restart(self, *, is_closed: bool) -> None:
        packet = lac_packet_of(7, 3) + b"digest"

        async def before(bookie: Bookie) -> None:
            assert await add(bookie, packet_of(7, 3, lac=2)) is Status.OK
            assert await write_lac(bookie, packet) is Status.OK
            assert await write_lac(bookie, lac_packet_of(8, 5)) is Status.OK

        async def after(bookie: Bookie) -> None:
            assert bookie.last_add_confirmed(7) == 3
            assert await read_lac(bookie, 7) == (Status.OK, packet, packet_of(7, 3, lac=2))
            assert await read_lac(bookie, 8) == (Status.OK, lac_packet_of(8, 5), b"")
            assert await read_lac(bookie, 9) == (Status.NO_ENTRY, b"", b"")

        run_over_restart(before, after, is_closed=is_closed)

    def test_an_older_explicit_lac_does_not_replace_a_newer_one(self) -> None:
        async def test(bookie: Bookie) -> None:
            assert await write_lac(bookie, lac_packet_of(7, 5)) is Status.OK
            assert await write_lac(bookie, lac_packet_of(7, 4)) is Status.OK
            assert (await read_lac(bookie, 7))[1] == lac_packet_of(7, 5)
            assert bookie.last_add_confirmed(7) == 5

        run(test)

    @pytest.mark.parametrize("byte_count", [15, 257])
    def test_what_is_too_short_or_too_long_for_a_lac_is_refused(self, byte_count: int) -> None:
        async def test(bookie: Bookie) -> None:
            packet = lac_packet_of(7, 5) + bytes(300)
            assert await write_lac(bookie, packet[:byte_count]) is Status.BAD_REQUEST
            assert await read_lac(bookie, 7) == (Status.NO_ENTRY, b"", b"")
            assert await write_lac(bookie, packet[:256]) is Status.OK

        run(test)

    def test_explicit_lacs_pass_the_fence(self) -> None:
        async def test(bookie: Bookie) -> None:
            assert await fence(bookie, 7) is Status.OK
            assert await write_lac(bookie, lac_packet_of(7, 5)) is Status.OK

        run(test)

    def test_watches(self) -> None:
        async def test(bookie: Bookie) -> None:
            woken: list[str] = []
            assert await add(bookie, packet_of(7, 0, lac=-1)) is Status.OK
            bookie.watch_lac(7, -1, lambda: woken.append("a"))
            bookie.watch_lac(7, 1, lambda: woken.append("b"))
            forgotten = bookie.watch_lac(7, -1, lambda: woken.append("c"))
            bookie.forget_watch(forgotten)
            bookie.forget_watch(forgotten)
            assert await add(bookie, packet_of(7, 1, lac=0)) is Status.OK
            await turns()
            assert woken == ["a"]
            assert await write_lac(bookie, lac_packet_of(7, 2)) is Status.OK
            await turns()
            assert woken == ["a", "b"]
            bookie.watch_lac(7, 1, lambda: woken.append("at once"))
            assert woken[-1] == "at once"
            bookie.watch_lac(7, 10, lambda: woken.append("fenced"))
            assert await fence(bookie, 7) is Status.OK
            await turns()
            assert woken[-1] == "fenced"
            bookie.watch_lac(7, 10, lambda: woken.append("was fenced"))
            bookie.watch_lac(99, 10, lambda: woken.append("unknown"))
            assert woken[-2:] == ["was fenced", "unknown"]

        run(test)


class TestLimits:
    def test_read_only(self) -> None:
        async def test(bookie: Bookie) -> None:
            bookie.set_read_only(True)
            assert bookie.is_read_only
            assert await add(bookie, packet_of(7, 0)) is Status.READ_ONLY
            assert await write_lac(bookie, lac_packet_of(7, 0)) is Status.READ_ONLY
            assert await fence(bookie, 7) is Status.OK
            recovery = {"is_recovery": True, "is_high_priority": True}
            assert await add(bookie, packet_of(7, 0), **recovery) is Status.OK
            assert await read(bookie, 7, 0) == (Status.OK, packet_of(7, 0))
            bookie.set_read_only(False)
            assert await add(bookie, packet_of(8, 0)) is Status.OK

        run(test)

    def test_force(self) -> None:
        async def test(bookie: Bookie) -> None:
            assert await add(bookie, packet_of(7, 0), is_deferred_sync=True) is Status.OK
            assert await force(bookie, 7) is Status.OK
            assert await force(bookie, 99) is Status.OK

        run(test)
