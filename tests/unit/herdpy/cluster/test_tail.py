"""The tail of a log: all of it, once, in order, from any position on; and what is no log."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bookie.ledger.record_frame import join
from herdpy.cluster.ledgers_info import LedgersInfo
from herdpy.cluster.staleness import End, Staleness
from herdpy.cluster.tail import LedgerTail
from herdpy.cluster.takeover.silence import Silence
from herdpy.errors import CorruptionError, OperationalError
from herdpy.model.lsn import START_LSN, Lsn
from tests.fixtures.chain_nodes import PASSWORD, Node, node
from tests.fixtures.ledger_cluster import LedgerCluster
from tests.unit.herdpy.cluster.test_chain import rewrite, simulate

ENTRIES = 5


async def leads(cluster: LedgerCluster, epoch: int) -> Node:
    """Return a node that has claimed the log, and begun a ledger."""
    found = await node(cluster)
    await found.chain.claim(epoch)
    await found.chain.begin()
    return found


async def write(leader: Node, numbers: range) -> None:
    for number in numbers:
        await leader.add(b"%d" % number)


@asynccontextmanager
async def tail(cluster: LedgerCluster) -> AsyncGenerator[LedgerTail]:
    found = await node(cluster)
    made = LedgerTail(found.client, found.listing._store, found.listing, password=PASSWORD)
    yield made
    await made.close()


async def take(
    cluster: LedgerCluster, count: int, after: Lsn = START_LSN
) -> list[tuple[Lsn, bytes]]:
    """Return the first records behind a position."""
    found: list[tuple[Lsn, bytes]] = []
    async with tail(cluster) as followed:
        runs = followed.runs(after)
        async for run in runs:
            found += run
            if len(found) >= count:
                break
        await runs.aclose()  # type: ignore[attr-defined]
    return found


def test_herddb_d5_a_tail_has_every_record_once_from_any_position_on() -> None:
    async def body(cluster: LedgerCluster) -> None:
        written = 0
        for epoch in range(1, 4):
            leader = await leads(cluster, epoch)
            for _ in range(2):
                await write(leader, range(written, written + ENTRIES))
                written += ENTRIES
                if epoch < 3:
                    await leader.chain.end()
                    await leader.chain.begin()
        expected = [b"%d" % number for number in range(written)]
        found = await take(cluster, written)
        assert [record for _, record in found] == expected
        assert [lsn for lsn, _ in found] == sorted({lsn for lsn, _ in found})
        for index, (lsn, _) in enumerate(found[:-1]):
            behind = await take(cluster, written - index - 1, lsn)
            assert behind == found[index + 1 :]

    simulate(body)


def test_records_of_one_entry_are_split_by_a_position() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await leads(cluster, 1)
        added = asyncio.get_running_loop().create_future()
        leader.chain.send(join([b"a", b"b", b"c"]), lambda *told: added.set_result(told))
        await added
        (ledger_id,) = leader.chain.ledgers
        found = await take(cluster, 1, Lsn(ledger_id, 1, 1))
        assert found == [(Lsn(ledger_id, 1, 2), b"c")]

    simulate(body)


def test_a_tail_waits_for_what_comes_and_goes_on_with_the_next_leader() -> None:
    async def body(cluster: LedgerCluster) -> None:
        first = await leads(cluster, 1)
        taking = asyncio.ensure_future(take(cluster, 4 * ENTRIES))
        await write(first, range(ENTRIES))
        await write(first, range(ENTRIES, 2 * ENTRIES))
        second = await leads(cluster, 2)  # fences the first, which knows nothing of it
        await write(second, range(2 * ENTRIES, 3 * ENTRIES))
        await second.chain.end()
        await second.chain.begin()
        await write(second, range(3 * ENTRIES, 4 * ENTRIES))
        found = await taking
        assert [record for _, record in found] == [b"%d" % n for n in range(4 * ENTRIES)]

    simulate(body)


def test_a_tail_is_level_when_it_has_handed_out_what_is_there() -> None:
    async def body(cluster: LedgerCluster) -> None:
        for epoch in (1, 2):
            leader = await leads(cluster, epoch)
            await write(leader, range(ENTRIES))
        async with tail(cluster) as followed:
            assert not followed.is_level
            seen: list[bool] = []
            found: list[tuple[Lsn, bytes]] = []
            runs = followed.runs(START_LSN)
            async for run in runs:
                seen.append(followed.is_level)
                found += run
                if len(found) == 2 * ENTRIES:
                    break
            assert (seen[0], seen[-1]) == (False, True)  # of the first ledger, and of the last
            await runs.aclose()  # type: ignore[attr-defined]

        async with tail(cluster) as followed:  # there is nothing behind it
            runs = followed.runs(found[-1][0])
            waiting = asyncio.ensure_future(anext(runs))
            async with asyncio.timeout(10):
                while not followed.is_level:  # noqa: ASYNC110 - of what the tail reads
                    await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    simulate(body)


def test_a_tail_outlasts_a_bookie_that_is_away() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await leads(cluster, 1)
        taking = asyncio.ensure_future(take(cluster, 2 * ENTRIES))
        await write(leader, range(ENTRIES))
        await next(iter(cluster.bookies.values())).kill()
        await write(leader, range(ENTRIES, 2 * ENTRIES))
        found = await taking
        assert [record for _, record in found] == [b"%d" % n for n in range(2 * ENTRIES)]

    simulate(body)


def test_what_is_no_log_is_refused() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await leads(cluster, 1)
        for _ in range(2):
            await leader.add(b"x")
            await leader.chain.end()
            await leader.chain.begin()
        await leader.add(b"x")
        first, middle, last = leader.chain.ledgers
        await leader.chain.end()
        foreign = await leader.client.create_ledger(password=PASSWORD)
        await foreign.add(join([b"no header"]))
        await foreign.close()

        async def refused(ledgers: tuple[int, ...], said: str, after: Lsn = START_LSN) -> None:
            def change(info: LedgersInfo) -> LedgersInfo:
                return LedgersInfo(epoch=info.epoch, ledgers=ledgers, first=first)

            await rewrite(cluster, change)
            with pytest.raises(CorruptionError, match=said):
                await take(cluster, 1000, after)

        await refused((first, last), "a part of it is missing")
        await refused((middle, last), "begins with ledger")
        await refused((first, middle, last, foreign.ledger_id), "expected the header")
        await refused((first, middle, last), "this node is at", Lsn(last, 2, 0))
        await refused((first, middle, last), "this node is at", Lsn(last + 1, 1, 0))
        await refused((first, last), "this node is at", Lsn(middle, 1, 0))
        await refused((), "it lists no ledger")
        await refused((last,), "a part of it is missing", Lsn(first, 1, 0))
        await leader.client.delete(middle)
        await refused((first, middle, last), f"lists ledger {middle}, and BookKeeper has none")

    simulate(body)


def test_a_tablespace_that_is_not_there_has_no_tail() -> None:
    async def body(cluster: LedgerCluster) -> None:
        await cluster.store.delete("/herd/ledgers/t")
        with pytest.raises(OperationalError) as caught:
            await take(cluster, 1)
        assert caught.value.sqlstate == "58P01"

    simulate(body)


class Looks(Staleness):
    """Notes when each look was sent, and when it was answered."""

    __slots__ = ("noted",)

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop().time)
        self.noted: list[tuple[float, float]] = []

    def saw_end(self, sent_s: float, end: End) -> None:
        super().saw_end(sent_s, end)
        self.noted.append((sent_s, self.now_s()))


def test_how_old_a_copy_is_counts_from_where_the_look_for_the_end_was_sent() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await leads(cluster, 1)
        await write(leader, range(ENTRIES))
        found, looks = await node(cluster), Looks()
        store = found.listing._store
        followed = LedgerTail(
            found.client, store, found.listing, password=PASSWORD, staleness=looks
        )
        right = store.sync

        async def late(path: str) -> None:
            await right(path)
            await asyncio.sleep(0.2)  # in the virtual time of the loop

        store.sync = late  # type: ignore[method-assign]
        looking = asyncio.ensure_future(followed.look_for_end())
        runs = followed.runs(START_LSN)
        taken = 0
        async for run in runs:
            taken += len(run)
            if taken >= ENTRIES - 2:  # the last may not be known to be confirmed
                break
        async with asyncio.timeout(20):
            while len(looks.noted) < 3:  # noqa: ASYNC110 - in virtual time
                await asyncio.sleep(0.1)
        assert min(told_s - sent_s for sent_s, told_s in looks.noted) >= 0.2
        looking.cancel()
        await asyncio.wait([looking])
        await runs.aclose()  # type: ignore[attr-defined]
        await followed.close()

    simulate(body)


def test_the_end_is_looked_for_seldom_while_no_reader_asks() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await leads(cluster, 1)
        await write(leader, range(ENTRIES))
        found, looks = await node(cluster), Looks()
        followed = LedgerTail(
            found.client, found.listing._store, found.listing, password=PASSWORD, staleness=looks
        )
        looking = asyncio.ensure_future(followed.look_for_end())
        following = asyncio.ensure_future(_taken(followed))

        async def count_in(seconds: float) -> int:
            before = len(looks.noted)
            await asyncio.sleep(seconds)  # in virtual time
            return len(looks.noted) - before

        await count_in(10)
        assert 8 <= await count_in(60) <= 12
        assert looks.lag_s() < 8
        looks.ask()
        assert await count_in(8) >= 14
        assert looks.lag_s() < 1
        await count_in(10)
        assert await count_in(60) <= 12
        for task in (looking, following):
            task.cancel()
        await asyncio.wait([looking, following])
        await followed.close()

    simulate(body)


def test_the_end_is_looked_for_often_once_a_leader_does_not_tick_as_it_should() -> None:
    async def body(cluster: LedgerCluster) -> None:
        limit_s = 60.0
        leader = await leads(cluster, 1)
        await write(leader, range(ENTRIES))
        found, looks = await node(cluster), Looks()
        silence = Silence(limit_s, looks.now_s)
        silence.led_by("n1", limit_s)
        followed = LedgerTail(
            found.client,
            found.listing._store,
            found.listing,
            password=PASSWORD,
            staleness=looks,
            silence=silence,
        )
        tasks = [
            asyncio.ensure_future(each) for each in (followed.look_for_end(), _taken(followed))
        ]
        await asyncio.sleep(limit_s / 2 - 1)  # in virtual time
        assert len(looks.noted) < 12
        before = len(looks.noted)
        await asyncio.sleep(limit_s / 2 - 5)
        assert len(looks.noted) - before > 30
        assert not silence.is_too_long
        await leader.add(b"a tick")
        await asyncio.sleep(limit_s / 2)
        assert 0.0 < silence.proven_s < limit_s  # what the last add says is told by the next one
        await leader.add(b"a tick")
        await asyncio.sleep(1)
        assert silence.proven_s < 2.0
        await asyncio.sleep(2 * limit_s)
        assert silence.is_too_long
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await followed.close()

    simulate(body)


async def _taken(followed: LedgerTail) -> None:
    async for _ in followed.runs(START_LSN):
        pass
