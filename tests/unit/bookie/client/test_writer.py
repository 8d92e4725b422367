"""LedgerWriter, the runner: windows, callbacks, timers, metadata with lost answers, clean-up."""

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest

from bookie.client.writer import LedgerWriter
from bookie.config import ClientConfig
from bookie.errors import (
    AddEntryQuorumTimeoutError,
    AddInterruptedError,
    BookieError,
    ClientClosedError,
    IllegalOperationError,
    IncorrectParameterError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataStoreError,
    NoSuchLedgerMetadataError,
    TooManyRequestsError,
    WriteError,
)
from bookie.ledger.codec import header_of
from bookie.ledger.record_frame import split
from bookie.ledger.types import EntryId, LedgerMetadata, LedgerState, Status
from tests.fixtures.ledger_bookies import (
    FirstPlacement,
    LedgerShelf,
    MemoryBookies,
    digest_of,
    ledger,
)
from tests.sim.loop import SimulatedLoop


class World:
    """Bookies, metadata, and a writer on one ledger."""

    def __init__(
        self,
        bookies: int = 3,
        quorums: tuple[int, int, int] = (3, 3, 2),
        config: ClientConfig | None = None,
        **options: Any,
    ) -> None:
        self.bookies = MemoryBookies(bookies)
        self.shelf = LedgerShelf()
        self.first = ledger(*quorums)
        version = self.shelf.put(self.first)
        self.writer = LedgerWriter(
            self.bookies,
            self.shelf,
            self.bookies,
            FirstPlacement(),
            self.first,
            version,
            digest_of(self.first),
            config or ClientConfig(),
            **options,
        )

    def held(self, number: int) -> list[int]:
        return sorted(self.bookies[number].entries_of(7))

    def payload(self, number: int, entry_id: int) -> bytes:
        packet = self.bookies[number].entries_of(7)[entry_id]
        return digest_of(self.first).open(packet, 7, entry_id).payload


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run on virtual time; a task that is left over fails the test."""
    loop = SimulatedLoop(1)
    try:
        loop.run_until_complete(main, time_limit_s=3600)
        loop.check_tasks()
    finally:
        loop.close()


async def turns(count: int = 20) -> None:
    """Let what is on its way arrive."""
    for _ in range(count):
        await asyncio.sleep(0.001)


# --- adds -----------------------------------------------------------------------------------------


def test_entries_are_numbered_stored_and_acknowledged() -> None:
    async def main() -> None:
        world = World()
        ids = await asyncio.gather(*(world.writer.add(b"x" * 100) for _ in range(50)))
        assert list(ids) == list(range(50))
        assert (world.writer.lac, world.writer.length) == (49, 5000)
        for number in (1, 2, 3):
            assert world.held(number) == list(range(50))
        await world.writer.close()
        closed = world.shelf[7]
        assert closed.is_closed
        assert (closed.last_entry_id, closed.length) == (49, 5000)
        assert world.bookies.subscriber_count == 0

    run(main())


def test_a_packet_carries_the_lac_of_its_moment_and_the_running_length() -> None:
    async def main() -> None:
        world = World()
        await world.writer.add(b"12345")
        await world.writer.add(bytearray(b"123"))
        await world.writer.add(memoryview(b"1234"))
        second = header_of(world.bookies[1].entries_of(7)[1])
        assert (second.entry_id, second.lac, second.length) == (1, 0, 8)
        assert world.payload(1, 2) == b"1234"
        await world.writer.close()

    run(main())


def test_callbacks_come_in_order_and_never_from_within_the_call() -> None:
    async def main() -> None:
        world = World()
        seen: list[int] = []
        for _ in range(10):
            world.writer.add_nowait(b"x", lambda entry_id, _: seen.append(entry_id))
        assert seen == []
        await turns()
        assert seen == list(range(10))
        await world.writer.close()

    run(main())


def test_a_callback_may_add_and_one_that_raises_stops_no_other() -> None:
    async def main() -> None:
        world = World()
        seen: list[int] = []
        raised: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))

        def again(entry_id: int, error: BookieError | None) -> None:
            seen.append(entry_id)
            if entry_id < 5:
                world.writer.add_nowait(b"x", again)
            if entry_id == 2:
                raise ValueError("mine")

        world.writer.add_nowait(b"x", again)
        for _ in range(50):
            await asyncio.sleep(0)
        assert seen == [0, 1, 2, 3, 4, 5]
        assert [str(context["exception"]) for context in raised] == ["mine"]
        await world.writer.close()

    asyncio.run(main())  # the simulated loop takes no exception handler


# --- the window -----------------------------------------------------------------------------------


def test_add_waits_for_room_and_add_nowait_does_not() -> None:
    async def main() -> None:
        world = World(config=ClientConfig(pending_adds_max=2))
        for number in (1, 2, 3):
            world.bookies[number].hold()
        adds = [asyncio.ensure_future(world.writer.add(b"%d" % i)) for i in range(6)]
        await turns()
        assert world.writer.pending_count == 2
        with pytest.raises(TooManyRequestsError):
            world.writer.add_nowait(b"x", lambda *_: None)
        for number in (1, 2, 3):
            world.bookies[number].release()
        assert await asyncio.gather(*adds) == [0, 1, 2, 3, 4, 5]
        assert [world.payload(1, i) for i in range(6)] == [b"%d" % i for i in range(6)]
        await world.writer.close()

    run(main())


def test_a_waiter_that_is_cancelled_has_no_effect_and_lets_the_next_one_in() -> None:
    async def main() -> None:
        world = World(config=ClientConfig(pending_adds_max=1))
        for number in (1, 2, 3):
            world.bookies[number].hold()
        first, second, third = (
            asyncio.ensure_future(world.writer.add(payload)) for payload in (b"1", b"2", b"3")
        )
        await turns()
        second.cancel()
        for number in (1, 2, 3):
            world.bookies[number].release()
        assert await first == 0
        assert await third == 1
        assert world.payload(1, 1) == b"3"
        await world.writer.close()

    run(main())


def test_a_waiter_whose_add_is_refused_lets_the_next_one_in() -> None:
    async def main() -> None:
        world = World(config=ClientConfig(pending_adds_max=1, frame_bytes_max=2048))
        first, second, third = (
            asyncio.ensure_future(world.writer.add(payload))
            for payload in (b"1", b"x" * 3000, b"3")
        )
        assert await first == 0
        with pytest.raises(IncorrectParameterError):
            await second
        assert await third == 1
        await world.writer.close()

    run(main())


def test_a_call_does_not_overtake_the_waiter_whose_turn_it_is() -> None:
    async def main() -> None:
        world = World(config=ClientConfig(pending_adds_max=1))
        for number in (1, 2, 3):
            world.bookies[number].hold()
        later: list[asyncio.Future[int]] = []
        world.writer.add_nowait(
            b"first", lambda *_: later.append(asyncio.ensure_future(world.writer.add(b"later")))
        )
        waiter = asyncio.ensure_future(world.writer.add(b"waiter"))
        await asyncio.sleep(0)
        for number in (1, 2, 3):
            world.bookies[number].release()
        assert await waiter == 1
        assert await later[0] == 2
        await world.writer.close()

    asyncio.run(main())  # in the order of asyncio's own loop


def test_entries_are_numbered_in_the_order_of_the_calls_however_scarce_room_is() -> None:
    async def main(seed: int) -> None:
        chance = random.Random(seed)
        config = ClientConfig(pending_adds_max=2, explicit_lac_interval_s=0.001)
        world = World(config=config)
        for number in (1, 2, 3):
            world.bookies[number].delay_s = 0.002 * number
        adds: list[asyncio.Future[int]] = []
        hasty: list[bytes] = []
        for number in range(60):
            adds.append(asyncio.ensure_future(world.writer.add(b"%d" % number)))
            await asyncio.sleep(chance.choice((0, 0, 0.001, 0.003)))
            if chance.random() < 0.2:  # others take room when they find it
                with suppress(TooManyRequestsError):
                    world.writer.add_nowait(b"hasty", lambda *_: hasty.append(b""))
            if chance.random() < 0.1:
                adds.pop().cancel()
        ids = await asyncio.gather(*adds)
        assert ids == sorted(ids)
        await world.writer.close()

    for seed in range(30):
        run(main(seed))


def test_an_add_that_is_cancelled_under_way_is_written_all_the_same() -> None:
    async def main() -> None:
        world = World()
        add = asyncio.ensure_future(world.writer.add(b"a"))
        await asyncio.sleep(0)
        add.cancel()
        await turns()
        assert world.writer.lac == 0
        await world.writer.close()

    run(main())


def test_waiters_learn_that_the_handle_ended() -> None:
    async def main() -> None:
        world = World(config=ClientConfig(pending_adds_max=1))
        world.bookies[1].script = lambda *_: Status.FENCED
        adds = [asyncio.ensure_future(world.writer.add(b"x")) for _ in range(4)]
        world.bookies[2].hold()
        world.bookies[3].hold()
        results = await asyncio.gather(*adds, return_exceptions=True)
        assert [type(r) for r in results] == [LedgerFencedError] * 4
        await world.writer.abandon()

    run(main())


def test_an_entry_that_is_too_large_for_a_frame_is_refused() -> None:
    async def main() -> None:
        world = World(config=ClientConfig(frame_bytes_max=2048))
        with pytest.raises(IncorrectParameterError, match="at most 1792 bytes, found 2000"):
            await world.writer.add(b"x" * 2000)
        assert await world.writer.add(b"x" * 1792) == 0
        await world.writer.close()

    run(main())


# --- failures -------------------------------------------------------------------------------------


def test_a_failed_bookie_is_replaced_and_every_entry_still_has_its_quorum() -> None:
    async def main() -> None:
        world = World(bookies=4)
        await world.writer.add(b"a")
        world.bookies[2].is_down = True
        ids = await asyncio.gather(*(world.writer.add(b"b") for _ in range(10)))
        assert list(ids) == list(range(1, 11))
        await world.writer.close()
        assert world.shelf[7].last_segment.ensemble == ("b1", "b4", "b3")
        start = world.shelf[7].last_segment.first_entry_id
        assert world.held(4) == list(range(start, 11))

    run(main())


def test_a_hung_bookie_holds_no_add_up_and_is_replaced_when_its_adds_time_out() -> None:
    async def main() -> None:
        world = World(bookies=4)
        world.bookies[3].is_hung = True
        assert await world.writer.add(b"a") == 0
        assert await world.writer.add(b"b") == 1
        world.bookies[3].expire()
        await turns()
        assert await world.writer.add(b"c") == 2
        await turns()
        assert world.shelf[7].last_segment.ensemble == ("b1", "b2", "b4")
        await world.writer.close()

    run(main())


def test_a_lost_metadata_answer_is_decided_by_reading() -> None:
    async def main() -> None:
        world = World(bookies=5)
        await world.writer.add(b"a")
        lost = [MetadataStoreError("the answer was lost")]

        def lose(_: LedgerMetadata) -> None:
            if lost:
                raise lost.pop()

        async def add_two() -> None:
            for _ in range(2):  # an error that comes after the quorum counts at the next add
                await world.writer.add(b"b")
                await turns()

        world.shelf.after_write = lose  # applied
        world.bookies[1].is_down = True
        await add_two()
        assert not lost
        assert world.shelf[7].last_segment.ensemble == ("b4", "b2", "b3")
        lost.append(MetadataStoreError("the answer was lost"))
        world.shelf.after_write, world.shelf.before_write = None, lose  # not applied
        world.bookies[2].is_down = True
        await add_two()
        assert not lost
        assert world.shelf[7].last_segment.ensemble == ("b4", "b5", "b3")
        await world.writer.close()
        assert world.shelf[7].last_entry_id == 4

    run(main())


def test_a_stale_reading_after_a_conflict_is_read_again() -> None:
    async def main() -> None:
        world = World(bookies=4)
        await world.writer.add(b"a")
        newer = world.first.with_state(LedgerState.IN_RECOVERY)
        stale = world.shelf.ledgers[7]
        world.shelf.put(newer)
        fresh = world.shelf.ledgers[7]
        read = world.shelf.read
        answers = [stale, stale, fresh]

        async def behind(ledger_id: Any) -> tuple[LedgerMetadata, int]:
            await read(ledger_id)
            return answers.pop(0)

        world.shelf.read = behind  # type: ignore[method-assign]  # a follower that lags
        world.bookies[1].is_down = True
        world.bookies[2].is_down = True
        with pytest.raises(LedgerFencedError):
            await world.writer.add(b"b")
        assert answers == []
        await world.writer.abandon()

    run(main())


def test_a_reading_older_than_our_own_last_write_is_read_again() -> None:
    """A lost answer, and a store whose follower lags behind what this handle wrote before."""

    async def main() -> None:
        world = World(bookies=5)
        old = world.shelf.ledgers[7]
        world.bookies[1].is_down = True
        world.bookies[2].hold()
        add = asyncio.ensure_future(world.writer.add(b"a"))
        await turns()
        assert world.shelf[7].last_segment.ensemble == ("b4", "b2", "b3")
        read = world.shelf.read
        is_lost = True

        def lose(_: LedgerMetadata) -> None:
            nonlocal is_lost
            if is_lost:
                is_lost = False
                raise MetadataStoreError("the answer was lost")

        stale = [old, old]

        async def behind(ledger_id: Any) -> tuple[LedgerMetadata, int]:
            fresh = await read(ledger_id)
            return stale.pop() if stale else fresh

        world.shelf.before_write = lose
        world.shelf.read = behind  # type: ignore[method-assign]  # a follower that lags
        world.bookies[3].is_down = True
        world.bookies[2].release()
        await add
        await world.writer.add(b"b")
        await asyncio.sleep(1)
        assert stale == []
        await world.writer.add(b"c")
        assert world.shelf[7].last_segment.ensemble == ("b4", "b2", "b5")
        # One for b1, the lost one, and its repetition: nothing was planned on old news.
        assert world.shelf.write_count == 3
        await world.writer.close()

    run(main())


def test_a_ledger_deleted_under_the_writer_says_so() -> None:
    async def main() -> None:
        world = World(bookies=5)
        del world.shelf.ledgers[7]
        world.bookies[1].is_down = True
        world.bookies[2].is_down = True
        with pytest.raises(NoSuchLedgerMetadataError):
            await world.writer.add(b"a")
        with pytest.raises(NoSuchLedgerMetadataError):
            await world.writer.close()

    run(main())


def test_a_defect_in_the_store_ends_the_handle_and_is_reported() -> None:
    async def main() -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, c: reported.append(c))
        world = World(bookies=5)

        def defect(_: LedgerMetadata) -> None:
            raise ZeroDivisionError("a defect")

        world.shelf.before_write = defect
        world.bookies[1].is_down = world.bookies[2].is_down = True
        with pytest.raises(WriteError, match="a defect"):
            await world.writer.add(b"a")
        await world.writer.abandon()
        assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]

    asyncio.run(main())  # the simulated loop takes no exception handler


def test_cluster_3_a_gap_is_filled_when_bookies_return() -> None:
    async def main() -> None:
        world = World(bookies=4)
        world.bookies.register(1, 2, 3)
        world.bookies[3].is_down = True
        assert await world.writer.add(b"a") == 0
        await turns()
        assert await world.writer.add(b"b") == 1
        assert world.writer.missing_bookies == ("b3",)
        world.bookies.register(1, 2, 4)
        await turns()
        assert world.writer.missing_bookies == ()
        assert await world.writer.add(b"c") == 2
        await turns()
        assert world.held(4) == [2]
        await world.writer.close()

    run(main())


def test_cluster_3_a_bookie_that_stays_registered_is_tried_again_after_a_while() -> None:
    async def main() -> None:
        world = World(bookies=3, config=ClientConfig(bookie_retry_s=2.0))
        world.bookies[3].is_down = True
        await world.writer.add(b"a")
        world.bookies[3].is_down = False
        await world.writer.add(b"b")
        assert world.held(3) == []
        await asyncio.sleep(2.1)
        assert world.writer.missing_bookies == ()
        await world.writer.add(b"c")
        await turns()
        assert world.held(3) == [2]
        await world.writer.close()

    run(main())


def test_the_add_quorum_time_out_ends_the_handle() -> None:
    async def main() -> None:
        world = World(config=ClientConfig(add_quorum_timeout_s=4.0))
        for number in (1, 2):
            world.bookies[number].is_hung = True
        loop = asyncio.get_running_loop()
        begin = loop.time()
        with pytest.raises(AddEntryQuorumTimeoutError):
            await world.writer.add(b"a")
        assert 4.0 <= loop.time() - begin <= 6.0
        await world.writer.abandon()

    run(main())


# --- LAC ------------------------------------------------------------------------------------------


def test_the_lac_reaches_the_bookies_within_20_ms_of_a_lone_add() -> None:
    """As BookKeeper's ExplicitLacTest."""

    async def main() -> None:
        world = World(config=ClientConfig(explicit_lac_interval_s=0.015))
        await world.writer.add(b"a")
        assert world.bookies[1].ledgers[7].lac == -1
        await asyncio.sleep(0.020)
        for number in (1, 2, 3):
            assert world.bookies[number].ledgers[7].lac == 0
        await asyncio.sleep(1)
        assert sum(r[0] == "write_lac" for r in world.bookies[1].requests) == 1
        await world.writer.close()

    run(main())


def test_write_lac_now() -> None:
    async def main() -> None:
        world = World()
        await world.writer.write_lac()
        await world.writer.add(b"a")
        await world.writer.write_lac()
        assert world.bookies[2].ledgers[7].lac == 0
        await world.writer.close()

    run(main())


def test_4_8_force_moves_a_deferred_lac_and_a_deaf_bookie_fails_it() -> None:
    async def main() -> None:
        world = World(is_deferred_sync=True)
        await world.writer.add(b"a")
        assert world.writer.lac == -1
        await world.writer.force()
        assert world.writer.lac == 0
        await world.writer.add(b"b")
        world.bookies[2].is_down = True
        with pytest.raises(WriteError):
            await world.writer.force()
        assert world.writer.lac == 0
        await world.writer.close()
        assert world.shelf[7].last_entry_id == 0

    run(main())


# --- given ids ------------------------------------------------------------------------------------


def test_given_ids_out_of_order_in_a_small_window() -> None:
    """BookWriteLedgerTest: many entries in random order; no add waits for ever."""

    async def main() -> None:
        world = World(config=ClientConfig(pending_adds_max=3), are_ids_given=True)
        order = [5, 3, 8, 1, 9, 2, 7, 0, 6, 4]
        adds = [asyncio.ensure_future(world.writer.add(b"%d" % i, i)) for i in order]
        assert await asyncio.gather(*adds) == order
        assert [world.payload(1, i) for i in range(10)] == [b"%d" % i for i in range(10)]
        await world.writer.close()
        assert world.shelf[7].last_entry_id == 9

    run(main())


def test_given_ids_in_random_order_survive_the_failure_of_a_bookie() -> None:
    """BookWriteLedgerTest: ensemble changes in the middle, with gaps that are filled later."""

    async def main() -> None:
        world = World(bookies=5, are_ids_given=True)
        order = [(i * 37) % 100 for i in range(100)]
        adds: list[asyncio.Future[int]] = []
        for number, i in enumerate(order):
            adds.append(asyncio.ensure_future(world.writer.add(b"%d" % i, i)))
            if number in (30, 60):
                world.bookies[number // 30].is_down = True
            await asyncio.sleep(0.001)
        assert await asyncio.gather(*adds) == order
        await world.writer.close()
        metadata = world.shelf[7]
        assert len(metadata.segments) > 1
        for i in range(100):
            ensemble = metadata.segment_of(i).ensemble
            assert sum(i in world.bookies.all[b].entries_of(7) for b in ensemble) >= 2

    run(main())


# --- append_many ----------------------------------------------------------------------------------


def test_append_many_packs_records_and_says_where_they_are() -> None:
    async def main() -> None:
        world = World(config=ClientConfig(record_frame_bytes_max=1024))
        records = [b"%03d" % i * 10 for i in range(100)]
        await world.writer.add(b"before")
        positions = await world.writer.append_many(records)
        assert len(positions) == 100
        assert world.writer.lac == positions[-1].entry_id < 10
        for record, position in zip(records, positions, strict=True):
            frame = split(world.payload(1, position.entry_id))
            assert frame[position.number] == record
        await world.writer.close()

    run(main())


def test_append_many_of_nothing_is_nothing() -> None:
    async def main() -> None:
        world = World()
        assert list(await world.writer.append_many([])) == []
        assert world.writer.last_pushed == -1
        await world.writer.close()

    run(main())


def test_append_many_waits_for_room_and_lets_others_in_between() -> None:
    async def main() -> None:
        config = ClientConfig(record_frame_bytes_max=64, pending_adds_max=2)
        world = World(config=config)
        many = asyncio.ensure_future(world.writer.append_many([b"x" * 50] * 20))
        one = asyncio.ensure_future(world.writer.add(b"one"))
        positions = await many
        lone = await one
        assert sorted([*positions.entry_ids, lone]) == list(range(21))
        await world.writer.close()

    run(main())


def test_append_many_refuses_a_record_that_fits_nowhere_before_writing_any() -> None:
    async def main() -> None:
        world = World(config=ClientConfig(frame_bytes_max=2048))
        with pytest.raises(IncorrectParameterError, match="found 2000"):
            await world.writer.append_many([b"a", b"x" * 2000])
        assert world.writer.last_pushed == -1
        await world.writer.close()

    run(main())


def test_append_many_reports_the_first_error() -> None:
    async def main() -> None:
        world = World(config=ClientConfig(record_frame_bytes_max=64, pending_adds_max=2))
        world.bookies[1].script = lambda _, __, entry: Status.FENCED if entry == 5 else None
        with pytest.raises(LedgerFencedError):
            await world.writer.append_many([b"x" * 50] * 20)
        await world.writer.abandon()

    run(main())


def test_append_many_needs_a_handle_that_numbers_its_entries() -> None:
    async def main() -> None:
        world = World(are_ids_given=True)
        with pytest.raises(IllegalOperationError):
            await world.writer.append_many([b"a"])
        await world.writer.close()

    run(main())


# --- the end --------------------------------------------------------------------------------------


def test_close_fails_what_is_under_way_and_is_idempotent() -> None:
    async def main() -> None:
        world = World()
        for number in (1, 2):
            world.bookies[number].hold()
        add = asyncio.ensure_future(world.writer.add(b"a"))
        await turns()
        await world.writer.close()
        with pytest.raises(AddInterruptedError):
            await add
        await world.writer.close()
        with pytest.raises(LedgerClosedError):
            await world.writer.add(b"b")
        for number in (1, 2):
            world.bookies[number].release()
        await turns()
        assert world.shelf[7].last_entry_id == -1

    run(main())


def test_close_may_be_tried_again_after_an_error_of_the_store() -> None:
    async def main() -> None:
        world = World()
        await world.writer.add(b"a")
        world.shelf.read_error = MetadataStoreError("gone")

        def fail(_: LedgerMetadata) -> None:
            raise MetadataStoreError("gone")

        world.shelf.before_write = fail
        with pytest.raises(MetadataStoreError):
            await world.writer.close()
        world.shelf.before_write = world.shelf.read_error = None
        await world.writer.close()
        assert world.shelf[7].last_entry_id == 0

    run(main())


def test_adr_0012_close_waits_for_the_recoverer_to_decide() -> None:
    async def main() -> None:
        world = World()
        await world.writer.add(b"a")
        world.shelf.put(world.first.with_state(LedgerState.IN_RECOVERY))
        with pytest.raises(LedgerFencedError):
            await world.writer.close()
        assert world.shelf[7].state is LedgerState.IN_RECOVERY
        world.shelf.put(world.first.closed(EntryId(0), 1))
        await world.writer.close()

    run(main())


def test_abandon_leaves_the_ledger_to_others_and_nothing_behind() -> None:
    async def main() -> None:
        world = World(bookies=4, config=ClientConfig(explicit_lac_interval_s=0.02))
        await world.writer.add(b"a")
        gate = world.shelf.gate = asyncio.get_running_loop().create_future()
        world.bookies[1].is_down = True
        world.bookies[2].is_down = True
        add = asyncio.ensure_future(world.writer.add(b"b"))
        await turns()
        await world.writer.abandon()
        with pytest.raises(ClientClosedError):
            await add
        assert world.shelf[7].state is LedgerState.OPEN
        assert world.bookies.subscriber_count == 0
        await world.writer.abandon()
        gate.cancel()
        with suppress(ClientClosedError):
            await world.writer.add(b"c")

    run(main())
