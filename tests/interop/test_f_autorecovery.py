"""(f) AutoRecovery of both kinds over bookies of both kinds: auditors, workers, Apache's shell."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager

import pytest

from bookie.autorecovery.election import current_auditor
from bookie.ledger.types import BookieId
from tests.fixtures.bookie_processes import OurBookie, in_loop, registered
from tests.interop import apache
from tests.interop.apache import ApacheRecovery, Release, apache_bookies
from tests.interop.conftest import World as Place
from tests.kill_bookies.world import RECOVERY_SETTINGS, Recovery, World, opened

pytestmark = pytest.mark.timeout(400)

LEDGERS = 20
SHAPES = ((3, 3, 2), (3, 2, 2))
_FAST_SESSION = "zkTimeout=3000\n"
_FAST_RECOVERY = (
    "zkTimeout=3000\nopenLedgerRereplicationGracePeriod=1000\nrwRereplicateBackoffMs=500\n"
    "lockReleaseOfFailedLedgerGracePeriod=3000\n"
)


@contextmanager
def cluster_of(
    place: Place, release: Release, our_count: int, their_count: int, *options: str
) -> Generator[tuple[list[OurBookie], list[apache.ApacheBookie]]]:
    """Run bookies of both kinds; all are killed at the end."""
    cluster = place.cluster
    ours = [
        OurBookie(cluster, place.folder / f"our-{number}", options=options)
        for number in range(our_count)
    ]
    try:
        for bookie in ours:
            bookie.start()
        with apache_bookies(
            release, cluster.zookeeper, place.folder, their_count, root=cluster.root,
            more=_FAST_SESSION,
        ) as theirs:  # fmt: skip
            registered(cluster, [*ours, *theirs])
            yield ours, theirs
    finally:
        for bookie in ours:
            bookie.kill()


@contextmanager
def apaches(place: Place, release: Release, count: int) -> Generator[list[ApacheRecovery]]:
    """Run so many of Apache's AutoRecovery processes."""
    with ExitStack() as stack:
        made: list[ApacheRecovery] = []
        for number in range(count):
            cluster = place.cluster
            folder = place.folder / f"recovery-{number}"
            one = ApacheRecovery(release, cluster.zookeeper, folder, cluster.root, _FAST_RECOVERY)
            stack.callback(one.kill)
            made.append(one)
        yield made


@contextmanager
def ours_alone(place: Place, *settings: str) -> Generator[Recovery]:
    """Run `bookie autorecovery`."""
    recovery = Recovery(place.cluster, place.folder, *RECOVERY_SETTINGS, *settings)
    try:
        yield recovery
    finally:
        recovery.kill()


def in_world(place: Place, play: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(place.cluster, {}, random.Random(7)) as world:
            await play(world)

    in_loop(main)


async def until_auditor(world: World, place: Place) -> str:
    """Wait until some auditor is elected; return its name."""
    found: list[str] = []

    async def is_elected() -> bool:
        async with place.cluster.session() as store:
            name = await current_auditor(store, world.tasks)
        found[:] = [] if name is None else [name]
        return bool(found)

    async def state() -> str:
        return "no auditor was elected"

    await world.until(is_elected, state)
    return found[0]


async def lose_one(world: World, victim: OurBookie | apache.ApacheBookie) -> None:
    """Kill a bookie while a ledger is written; everything has to be whole again, and be read."""
    await world.write_ledgers(LEDGERS, SHAPES)
    load = await world.start_load((3, 3, 2), 50)
    assert await world.naming([victim.bookie_id])
    victim.kill()
    await world.until_away(victim.bookie_id)
    await world.until_replicated([victim.bookie_id])
    await load.end()
    checked = await world.check_whole()
    assert checked.ledgers == LEDGERS + 1


def test_apaches_auditor_and_workers_heal_our_bookies(place: Place, current: Release) -> None:
    with cluster_of(place, current, 4, 1) as (ours, _), apaches(place, current, 3):

        async def play(world: World) -> None:
            await until_auditor(world, place)
            await lose_one(world, ours[0])

        in_world(place, play)


def test_we_heal_apaches_bookies(place: Place, current: Release) -> None:
    with cluster_of(place, current, 0, 4) as (_, theirs), ours_alone(place):

        async def play(world: World) -> None:
            assert await until_auditor(world, place) == "alone"
            await lose_one(world, theirs[0])

        in_world(place, play)


def test_our_auditor_and_apaches_workers(place: Place, current: Release) -> None:
    with cluster_of(place, current, 4, 1) as (ours, _), ours_alone(place, "is_worker=false"):

        async def play(world: World) -> None:
            assert await until_auditor(world, place) == "alone"
            with apaches(place, current, 2):
                await lose_one(world, ours[0])
                assert await until_auditor(world, place) == "alone"

        in_world(place, play)


def test_apaches_auditor_and_our_worker(place: Place, current: Release) -> None:
    """Apache's worker takes tasks as well: a lock of either keeps away the other."""
    with cluster_of(place, current, 4, 1) as (ours, _), apaches(place, current, 1):

        async def play(world: World) -> None:
            auditor = await until_auditor(world, place)
            with ours_alone(place, "is_auditor=false"):
                await lose_one(world, ours[0])
                assert await until_auditor(world, place) == auditor

        in_world(place, play)
        assert "its task is done" in (place.folder / "autorecovery.log").read_text()


def test_apaches_shell_on_our_autorecovery(place: Place, current: Release) -> None:
    settings = [part for one in RECOVERY_SETTINGS for part in ("--set-autorecovery", one)]
    with cluster_of(place, current, 5, 0, "--autorecovery", *settings) as (ours, _):

        def shell(*arguments: str) -> str:
            return apache.shell(current, place.conf, *arguments)

        async def play(world: World) -> None:
            auditor = await until_auditor(world, place)
            assert auditor in await asyncio.to_thread(shell, "whoisauditor")
            await world.write_ledgers(LEDGERS, SHAPES)
            await world.recover_abandoned()
            victims = [one for one in ours if one.bookie_id != auditor]
            await _listed(world, shell, victims[0])
            await _decommissioned(world, shell, victims[0])
            await _recovered(world, shell, victims[1])
            await world.check_whole()

        in_world(place, play)


Shell = Callable[..., str]


async def _listed(world: World, shell: Shell, victim: OurBookie) -> None:
    """The tasks that our auditor publishes are those that the shell lists."""
    named = await world.naming([victim.bookie_id])
    assert named
    # No lock is to be had: the workers leave the tasks where they are.
    for ledger_id in named:
        assert await world.tasks.lock(ledger_id, "test")
    victim.kill()

    async def are_published() -> bool:
        return {one async for one in world.tasks.ledger_ids()} >= set(named)

    async def state() -> str:
        return f"tasks for {named} are missing"

    await world.until(are_published, state)
    printed = await asyncio.to_thread(shell, "listunderreplicated", "-printmissingreplica")
    words = set(printed.split())
    assert {str(one) for one in named} <= words, printed
    assert any(victim.bookie_id in word for word in words), printed
    for ledger_id in named:
        await world.tasks.unlock(ledger_id, "test")


async def _decommissioned(world: World, shell: Shell, victim: OurBookie) -> None:
    """Apache's command triggers our auditor, waits for our workers, and deletes the cookie."""
    await asyncio.to_thread(shell, "decommissionbookie", "-bookieid", victim.bookie_id)
    assert not await world.naming([victim.bookie_id])
    assert BookieId(victim.bookie_id) not in await world.client.bookies.all_known()


async def _recovered(world: World, shell: Shell, victim: OurBookie) -> None:
    """Apache's command copies itself; our AutoRecovery is off."""
    await asyncio.to_thread(shell, "autorecovery", "-disable")
    assert not await world.tasks.is_enabled()
    victim.kill()
    await world.until_away(victim.bookie_id)
    assert await world.naming([victim.bookie_id])
    await asyncio.to_thread(shell, "recover", "-force", victim.bookie_id)
    assert not await world.naming([victim.bookie_id])
    await asyncio.to_thread(shell, "autorecovery", "-enable")
    assert await world.tasks.is_enabled()
