"""The chain of ledgers: what a claim finds, what a roll leaves, and what is no chain."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import pytest

from bookie.errors import BookieError, NotEnoughBookiesError
from bookie.ledger.record_frame import join
from bookie.metadata.memory import Fate, Plan
from herdpy.cluster.chain import LedgerChain
from herdpy.cluster.ledgers_info import LedgersInfo
from herdpy.cluster.listing import ClaimLostError, LedgerListing
from herdpy.cluster.observability.figures import LogFigures
from herdpy.errors import CorruptionError
from herdpy.log.record import BeginLedger, decode
from herdpy.model.lsn import START_LSN, Lsn
from tests.fixtures.chain_nodes import PASSWORD, PATH, Node, ScriptedLink, ledgers_of, node
from tests.fixtures.ledger_cluster import LedgerCluster, simulate_cluster


def simulate(body: Callable[[LedgerCluster], Awaitable[None]]) -> None:
    async def main(cluster: LedgerCluster) -> None:
        await LedgerListing(cluster.store, PATH).create()
        await body(cluster)

    simulate_cluster(main)


def test_a_log_goes_on_from_ledger_to_ledger_and_from_node_to_node() -> None:
    async def body(cluster: LedgerCluster) -> None:
        expected: list[bytes] = []
        for epoch in range(1, 4):
            leader = await node(cluster)
            await leader.chain.claim(epoch)
            assert await leader.content() == expected
            for part in range(2):
                ledger_id = await leader.chain.begin()
                for number in range(3):
                    expected.append(b"%d.%d.%d" % (epoch, part, number))
                    assert await leader.add(expected[-1]) == number + 1
                if part == 0:
                    assert await leader.chain.end() == 3
            assert leader.chain.ledgers[-1] == ledger_id
        last = await node(cluster)
        await last.chain.claim(9)
        assert await last.content() == expected
        assert list(last.chain.ledgers) == await ledgers_of(cluster)
        middle = Lsn(last.chain.ledgers[2], 2, 0)
        assert await last.content(middle) == expected[7:]

    simulate(body)


def test_the_header_says_behind_what_a_ledger_goes_on() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await node(cluster)
        await leader.chain.claim(5)
        headers = []
        for _ in range(2):
            ledger_id = await leader.chain.begin()
            await leader.add(b"x")
            await leader.chain.end()
            reader = await leader.client.open(ledger_id, PASSWORD)
            (entry,) = await reader.read(0, 0)
            headers.append(decode(bytes(entry.payload)[9:]))
            metadata = await leader.client.metadata(ledger_id)
            assert dict(metadata.custom) == {"tablespace": b"t", "epoch": b"5"}
            assert metadata.password == PASSWORD
        first = leader.chain.ledgers[0]
        assert headers == [BeginLedger(5, -1, -1), BeginLedger(5, first, 1)]

    simulate(body)


def test_a_claim_fences_the_writer_before_it() -> None:
    async def body(cluster: LedgerCluster) -> None:
        old, new = await node(cluster), await node(cluster)
        await old.chain.claim(1)
        await old.chain.begin()
        await old.add(b"kept")
        await new.chain.claim(2)
        assert await new.content() == [b"kept"]
        with pytest.raises(BookieError):
            await old.add(b"late")
        assert await old.chain.end() == 1
        with pytest.raises(ClaimLostError):
            await old.chain.begin()
        assert await ledgers_of(cluster) == list(new.chain.ledgers)  # what it made is deleted
        await new.chain.begin()
        await new.add(b"new")
        await new.chain.end()
        again = await node(cluster)
        await again.chain.claim(3)
        assert await again.content() == [b"kept", b"new"]

    simulate(body)


def test_with_fewer_bookies_a_ledger_is_narrow_until_there_are_more() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await node(cluster)
        await leader.chain.claim(1)
        await cluster.bookies["b0"].kill()
        await asyncio.sleep(0.1)  # so that the client knows of it
        narrow = await leader.chain.begin()
        assert await leader.add(b"a") == 1
        assert not leader.chain.is_narrow  # it has what there is
        await cluster.bookies["b0"].start()
        await asyncio.sleep(0.1)
        assert leader.chain.is_narrow
        await leader.chain.end()
        wide = await leader.chain.begin()
        await leader.add(b"b")
        assert not leader.chain.is_narrow
        found = [await leader.client.metadata(each) for each in (narrow, wide)]
        assert [(m.ensemble_size, m.write_quorum_size, m.ack_quorum_size) for m in found] == [
            (2, 2, 2),
            (3, 3, 2),
        ]
        other = await node(cluster)
        await other.chain.claim(2)
        assert await other.content() == [b"a", b"b"]

    simulate(body)


def test_too_few_bookies_change_nothing() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await node(cluster)
        await leader.chain.claim(1)
        await cluster.bookies["b0"].kill()
        await cluster.bookies["b1"].kill()
        with pytest.raises(NotEnoughBookiesError):
            await leader.chain.begin()
        assert (await leader.listing.read()).ledgers == ()
        assert await ledgers_of(cluster) == []
        await cluster.bookies["b0"].start()
        await leader.chain.begin()
        assert await leader.add(b"x") == 1

    simulate(body)


def test_no_ledger_is_listed_before_its_header_is_durable() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await node(cluster)
        await leader.chain.claim(1)
        for each in cluster.bookies.values():
            await each.kill(is_registered=True)
        with pytest.raises(BookieError):
            await leader.chain.begin()
        assert (await leader.listing.read()).ledgers == ()

    simulate(body)


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
@pytest.mark.parametrize("number", range(1, 12))
def test_a_lost_request_or_answer_of_the_store_leaves_one_chain(fate: Fate, number: int) -> None:
    async def body(cluster: LedgerCluster) -> None:
        link = ScriptedLink()
        leader = await node(cluster, link)
        link.plans[link._number + number] = Plan(fate=fate, reconnect_s=0.2)
        await leader.chain.claim(1)
        for part in (b"a", b"b"):
            await leader.chain.begin()
            await leader.add(part)
            await leader.chain.end()
        other = await node(cluster)
        await other.chain.claim(2)
        assert await other.content() == [b"a", b"b"]
        assert len(other.chain.ledgers) == 2

    simulate(body)


def test_behind_a_checkpoint_the_first_ledgers_may_be_gone() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await node(cluster)
        await leader.chain.claim(1)
        for part in (b"a", b"b", b"c"):
            await leader.chain.begin()
            await leader.add(part)
            await leader.chain.end()
        first, middle, last = leader.chain.ledgers

        def drop(info: LedgersInfo) -> LedgersInfo:
            return LedgersInfo(epoch=info.epoch, ledgers=(middle, last), first=first)

        await rewrite(cluster, drop)
        await leader.client.delete(first)
        other = await node(cluster)
        await other.chain.claim(2)
        assert await other.content(Lsn(first, 1, 0)) == [b"b", b"c"]
        assert await other.content(Lsn(middle, 1, 0)) == [b"b", b"c"]  # the entry it is in, too
        assert await other.content(Lsn(last, 1, 0)) == [b"c"]

    simulate(body)


class CutShort:
    """Awaits a coroutine up to its number-th wait, from 1, where it is cancelled."""

    def __init__(self, coroutine: Coroutine[Any, Any, object], number: int) -> None:
        self._coroutine = coroutine
        self._left = number
        self.is_over = False

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._coroutine.__await__()
        error: BaseException | None = None
        while True:
            try:
                waited = next(steps) if error is None else steps.throw(error)
            except StopIteration:
                self.is_over = True
                return
            except asyncio.CancelledError:
                return
            self._left -= 1
            error = None
            if self._left == 0:
                waited.cancel()
                error = asyncio.CancelledError()
            else:
                try:
                    yield waited
                except BaseException as caught:
                    error = caught


@pytest.mark.parametrize("number", range(1, 30))
def test_a_begin_that_was_cut_short_leaves_a_chain(number: int) -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await node(cluster)
        await leader.chain.claim(1)
        await leader.chain.begin()
        await leader.add(b"a")
        await leader.chain.end()
        beginning = CutShort(leader.chain.begin(), number)
        await beginning
        assert not beginning.is_over or number > 3
        if not beginning.is_over:
            await leader.chain.begin()
        await leader.add(b"b")
        await leader.chain.end()
        other = await node(cluster)
        await other.chain.claim(2)
        assert await other.content() == [b"a", b"b"]
        # One that was being created has no handle yet: it is left to who cleans up behind a claim.
        orphans = set(await ledgers_of(cluster)) - set(other.chain.ledgers)
        assert len(orphans) <= (number < 5)

    simulate(body)


async def rewrite(cluster: LedgerCluster, change: Callable[[LedgersInfo], LedgersInfo]) -> None:
    data, stat = await cluster.store.read(PATH)
    info = change(LedgersInfo.of_bytes(data, PATH))
    await cluster.store.write(PATH, info.to_bytes(), stat.version)


async def claimed_content(found: Node, epoch: int, after: Lsn) -> list[bytes]:
    await found.chain.claim(epoch)
    return await found.content(after)


def test_what_is_no_chain_is_refused() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await node(cluster)
        await leader.chain.claim(1)
        for part in (b"a", b"b", b"c"):
            await leader.chain.begin()
            await leader.add(part)
            await leader.chain.end()
        first, middle, last = leader.chain.ledgers
        foreign = await leader.client.create_ledger(password=PASSWORD)
        await foreign.add(join([b"no header"]))
        await foreign.close()

        async def refused(ledgers: tuple[int, ...], said: str, after: Lsn = START_LSN) -> None:
            def change(info: LedgersInfo) -> LedgersInfo:
                return LedgersInfo(epoch=info.epoch, ledgers=ledgers, first=first)

            await rewrite(cluster, change)
            found = await node(cluster)
            epoch = (await found.listing.read()).epoch + 1
            with pytest.raises(CorruptionError, match=said):
                await claimed_content(found, epoch, after)

        await refused((first, last), "a part of it is missing")
        await refused((middle, last), "begins with ledger")
        await refused((first, middle, last, foreign.ledger_id), "expected the header")
        ahead = "this node is at"
        await refused((first, middle, last), ahead, Lsn(last, 2, 0))
        await refused((first, middle, last), ahead, Lsn(last + 1, 1, 0))
        await refused((first, last), ahead, Lsn(middle, 1, 0))
        await refused((), "it lists no ledger", Lsn(first, 1, 0))
        await refused((last,), "a part of it is missing", Lsn(first, 1, 0))
        await leader.client.delete(middle)
        await refused((first, middle, last), f"lists ledger {middle}, and BookKeeper has none")

    simulate(body)


def test_what_is_counted_of_a_log() -> None:
    async def body(cluster: LedgerCluster) -> None:
        counts: list[tuple[int, int]] = []
        for epoch in range(1, 4):
            leader = await node(cluster)
            figures = LogFigures()
            chain = LedgerChain(
                leader.client, leader.listing, tablespace=b"t", password=PASSWORD, figures=figures
            )
            await chain.claim(epoch)
            await chain.begin()
            for _ in range(epoch - 1):
                await chain.end()
                await chain.begin()
            counts.append((figures.recovered, figures.rolls))
        assert counts == [(0, 0), (1, 1), (1, 2)]  # only the last ledger was not closed

    simulate(body)


class FarLink(ScriptedLink):
    """A store whose every answer takes a second."""

    def plan(self, session_id: int, path: str, *, is_write: bool) -> Plan:
        return Plan(answer_s=1.0)


def test_a_claim_of_many_ledgers_asks_for_their_ends_together() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await node(cluster)
        await leader.chain.claim(1)
        for _ in range(100):
            await leader.chain.begin()
            await leader.add(b"x")
        loop = asyncio.get_running_loop()
        other = await node(cluster, FarLink())
        begun_s = loop.time()
        await other.chain.claim(2)
        assert loop.time() - begun_s < 20
        assert len(await other.content()) == 100

    simulate(body)


def test_a_probe_writes_to_bookies_claims_nothing_and_leaves_no_ledger() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader, other = await node(cluster), await node(cluster)
        await leader.chain.claim(1)
        await leader.chain.begin()
        before = [each async for each in other.client.ledger_ids()]
        await other.chain.probe(1, 5.0)
        assert [each async for each in other.client.ledger_ids()] == before
        await leader.add(b"a")  # it leads on
        assert await leader.chain.end() == 1
        for bookie in cluster.bookies.values():
            await bookie.kill(is_registered=True)
        with pytest.raises((BookieError, TimeoutError)):  # the store alone answers
            await other.chain.probe(1, 5.0)

    simulate(body)
