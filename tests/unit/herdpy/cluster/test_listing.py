"""The list of ledgers: claims, additions, lost answers, and what another node does in between."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bookie.metadata.memory import Fate, MemoryStore, MemoryStoreServer, Plan
from herdpy.cluster.ledgers_info import FORMAT, LedgersInfo
from herdpy.cluster.listing import ClaimLostError, LedgerListing
from herdpy.errors import CorruptionError, OperationalError
from tests.fixtures.chain_nodes import PATH, ScriptedLink
from tests.sim.clock import SimulatedClock
from tests.sim.loop import SimulatedLoop


class World:
    def __init__(self) -> None:
        self.server = MemoryStoreServer(SimulatedClock())

    def listing(self, link: ScriptedLink | None = None) -> LedgerListing:
        store = MemoryStore(self.server, link or ScriptedLink())
        return LedgerListing(store, PATH, patience_s=5.0)


def simulate(body: Callable[[World], Awaitable[None]]) -> None:
    loop = SimulatedLoop(1)

    async def main() -> None:
        await body(World())

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_a_claim_lets_its_epoch_add_and_no_older_one() -> None:
    async def body(world: World) -> None:
        old, new = world.listing(), world.listing()
        await old.create()
        assert await old.claim(1) == LedgersInfo(epoch=1)
        await old.add(4)
        assert (await new.claim(2)).ledgers == (4,)
        with pytest.raises(ClaimLostError, match="epoch 2 has claimed it"):
            await old.add(5)
        await new.add(6)
        found = await world.listing().read()
        assert found == LedgersInfo(epoch=2, ledgers=(4, 6), first=4)
        for epoch in (1, 2):
            with pytest.raises(ClaimLostError):
                await old.claim(epoch)

    simulate(body)


def test_herddb_d1_an_addition_between_a_claims_reading_and_its_write_is_not_lost() -> None:
    """The leader rolls while another node takes over."""

    async def body(world: World) -> None:
        slow = ScriptedLink()
        leader, candidate = world.listing(), world.listing(slow)
        await leader.create()
        await leader.claim(1)
        slow.write_s = 1.0
        claiming = asyncio.create_task(candidate.claim(2))
        await asyncio.sleep(0.5)  # it has read, and its write is on its way
        await leader.add(1)
        assert (await claiming).ledgers == (1,)
        with pytest.raises(ClaimLostError):
            await leader.add(2)

    simulate(body)


def test_a_node_that_wakes_behind_a_newer_claim_adds_nothing() -> None:
    async def body(world: World) -> None:
        first, second = world.listing(), world.listing()
        await first.create()
        await first.claim(7)  # and pauses
        await second.claim(8)
        await second.add(1)
        with pytest.raises(ClaimLostError):
            await first.add(2)
        assert (await second.read()).ledgers == (1,)

    simulate(body)


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
@pytest.mark.parametrize("number", range(1, 9))
def test_a_lost_request_or_answer_changes_nothing_of_the_outcome(fate: Fate, number: int) -> None:
    async def body(world: World) -> None:
        link = ScriptedLink()
        link.plans[number] = Plan(fate=fate, reconnect_s=0.2)
        listing = world.listing(link)
        await listing.create()
        await listing.claim(3)
        await listing.add(10)
        await listing.add(11)
        found = await world.listing().read()
        assert found == listing.info == LedgersInfo(epoch=3, ledgers=(10, 11), first=10)

    simulate(body)


def test_a_lost_answer_is_no_success_when_another_node_has_claimed() -> None:
    """The request was lost, and the other's claim came before it is tried again."""

    async def body(world: World) -> None:
        link = ScriptedLink()
        listing, other = world.listing(link), world.listing()
        await other.create()
        await listing.claim(1)
        link.plans = {link._number + 1: Plan(fate=Fate.LOSE_REQUEST, reconnect_s=1.0)}
        adding = asyncio.create_task(listing.add(5))
        await asyncio.sleep(0.5)
        await other.claim(2)
        with pytest.raises(ClaimLostError):
            await adding
        assert (await other.read()).ledgers == ()
        assert not await listing.may_be_listed(5, 1)

    simulate(body)


def test_what_may_still_get_listed_is_said_so() -> None:
    async def body(world: World) -> None:
        listing, other = world.listing(), world.listing()
        await listing.create()
        await listing.claim(1)
        assert await listing.may_be_listed(5, 1)  # nothing has changed the list since
        await listing.add(5)
        assert await listing.may_be_listed(5, 1)
        await other.claim(2)
        assert await listing.may_be_listed(5, 1)
        assert not await listing.may_be_listed(6, 1)

    simulate(body)


def test_ids_that_do_not_rise_are_refused() -> None:
    async def body(world: World) -> None:
        listing = world.listing()
        await listing.create()
        await listing.claim(1)
        await listing.add(9)
        for ledger_id in (9, 4):
            with pytest.raises(OperationalError, match="expected an id above 9") as caught:
                await listing.add(ledger_id)
            assert caught.value.sqlstate == "55000"
        assert (await world.listing().read()).ledgers == (9,)

    simulate(body)


def test_a_missing_node_is_an_error_and_never_an_empty_log() -> None:
    async def body(world: World) -> None:
        listing = world.listing()
        for act in (listing.read, lambda: listing.claim(1)):
            with pytest.raises(OperationalError, match="found none") as caught:
                await act()
            assert caught.value.sqlstate == "58P01"
        await listing.create()
        with pytest.raises(OperationalError, match="found one") as caught:
            await world.listing().create()
        assert caught.value.sqlstate == "42710"

    simulate(body)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "expected a list of ledgers"),
        (b'{"format": 1, "epoch": 1, "ledger": []}', "expected a list of ledgers"),
        (b'{"format": 1, "epoch": 1, "ledgers": [3, 2], "first": 2}', "expected ascending ids"),
        (b'{"format": 1, "epoch": 1, "ledgers": [3, 3], "first": 3}', "expected ascending ids"),
        (b'{"format": 1, "epoch": 1, "ledgers": [3]}', "expected ascending ids"),
    ],
)
def test_a_malformed_node_is_named(data: bytes, said: str) -> None:
    with pytest.raises(CorruptionError, match=said) as caught:
        LedgersInfo.of_bytes(data, PATH)
    assert PATH in caught.value.message


def test_a_newer_format_is_refused() -> None:
    data = LedgersInfo(format=FORMAT + 1, epoch=1).to_bytes()[:-1] + b', "colour": 1}'
    with pytest.raises(OperationalError) as caught:
        LedgersInfo.of_bytes(data, PATH)
    assert caught.value.sqlstate == "0A000"


def test_the_bytes_are_those_of_the_page() -> None:
    info = LedgersInfo(epoch=7, ledgers=(3, 5), first=2, base="s1")
    data = b'{"format":1,"epoch":7,"ledgers":[3,5],"first":2,"base":"s1"}'
    assert info.to_bytes() == data
    assert LedgersInfo.of_bytes(data, PATH) == info
