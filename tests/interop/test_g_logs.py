"""(g) DistributedLog and Pulsar's managed ledger at work while a bookie is lost and made up for.

Both write, and follow what they write, from before the loss until every ledger of theirs is whole
again; then each reads its log anew, from the first entry on.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import pytest

from bookie.ledger.types import Status
from tests.fixtures.bookie_processes import OurBookie
from tests.interop import apache
from tests.interop.apache import ApacheBookie, Program, Release
from tests.interop.conftest import World as Place
from tests.interop.test_f_autorecovery import (
    apaches,
    cluster_of,
    in_world,
    ours_alone,
    until_auditor,
)
from tests.kill_bookies.world import World

pytestmark = pytest.mark.timeout(400)

Victim = OurBookie | ApacheBookie
KINDS = {"distributedlog": "DistributedLog", "managedledger": "PulsarLog"}
"""The main class by kind of release."""
ADDS_BEFORE = 200
ADDS_SINCE = 200


@pytest.fixture
def logs(place: Place) -> Iterator["Logs"]:
    """Both systems, to be started once there are bookies."""
    with ExitStack() as stack:
        yield Logs(place, {kind: apache.require(kind) for kind in KINDS}, stack)


class Logs:
    """One log of each system; see the module."""

    def __init__(self, place: Place, releases: dict[str, Release], stack: ExitStack) -> None:
        self._place = place
        self._releases = releases
        self._stack = stack
        self._programs: list[Program] = []

    async def start(self) -> None:
        """Start both, and wait until each has written for a while."""
        cluster = self._place.cluster
        for kind, main in KINDS.items():
            program = Program(
                self._releases[kind], main,
                zookeeper=cluster.zookeeper, root=cluster.root, uri=cluster.uri,
                name=cluster.root.strip("/"),
            )  # fmt: skip
            self._programs.append(self._stack.enter_context(program))
        await self.go_on(ADDS_BEFORE)

    async def go_on(self, adds: int) -> None:
        """Wait for so many adds of each that are acknowledged from now on."""
        for program in self._programs:
            while program.has_more():
                program.next()
            before = await asyncio.to_thread(program.until, "acknowledged")
            while await asyncio.to_thread(program.until, "acknowledged") < before + adds:
                pass

    async def end(self) -> None:
        """End the writers; every acknowledged entry was followed, and is read again."""
        for program in self._programs:
            program.tell()
        for program in self._programs:
            lines = await asyncio.to_thread(program.finish)
            told = {name: value for line in lines for name, value in line.items()}
            count = told["written"]
            assert lines[-1] == {"written": count, "acknowledged": count, "failed": 0}
            assert told["followed"] == told["read_again"] == count > ADDS_BEFORE + ADDS_SINCE
            assert told.get("backlog", 0) == 0
            assert told["segments"] > 5, told


async def lose_one(world: World, logs: Logs, candidates: Iterable[Victim]) -> None:
    """Kill the bookie that most ledgers name, with both logs at work; all copies come back."""
    await logs.start()
    named: Counter[str] = Counter(
        bookie_id
        for metadata in await world.metadata()
        for segment in metadata.segments
        for bookie_id in segment.ensemble
    )
    victim = max(candidates, key=lambda bookie: named[bookie.bookie_id])
    assert named[victim.bookie_id], named
    victim.kill()
    await world.until_away(victim.bookie_id)
    await logs.go_on(ADDS_SINCE)
    await world.until_replicated([victim.bookie_id])
    await logs.go_on(ADDS_SINCE)
    await logs.end()
    closed = [metadata for metadata in await world.metadata() if metadata.is_closed]
    assert len(closed) > 10
    for metadata in closed:
        for number, bookie_id, reply in await world.replicas(metadata):
            assert reply.status is Status.OK, (metadata.ledger_id, number, bookie_id, reply.status)


def test_logs_over_our_bookies_and_one_of_apaches(
    place: Place, current: Release, logs: Logs
) -> None:
    """Our AutoRecovery makes up for the one Apache bookie."""
    with cluster_of(place, current, 4, 1) as (_, theirs), ours_alone(place):

        async def play(world: World) -> None:
            assert await until_auditor(world, place) == "alone"
            await lose_one(world, logs, theirs)

        in_world(place, play)


def test_logs_while_apaches_auditor_and_workers_heal_our_bookies(
    place: Place, current: Release, logs: Logs
) -> None:
    with cluster_of(place, current, 4, 1) as (ours, _), apaches(place, current, 3):

        async def play(world: World) -> None:
            await until_auditor(world, place)
            await lose_one(world, logs, ours)

        in_world(place, play)


def test_logs_while_we_heal_apaches_bookies(place: Place, current: Release, logs: Logs) -> None:
    with cluster_of(place, current, 0, 4) as (_, theirs), ours_alone(place):

        async def play(world: World) -> None:
            assert await until_auditor(world, place) == "alone"
            await lose_one(world, logs, theirs)

        in_world(place, play)
