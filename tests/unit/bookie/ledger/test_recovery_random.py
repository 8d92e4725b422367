"""Recoverers against a live writer, in worlds drawn at random; what was acknowledged is kept."""

import random
from collections.abc import Callable

import pytest

from bookie.errors import LedgerRecoveryError, NotEnoughBookiesError
from bookie.ledger.distribution import write_set
from bookie.ledger.types import BookieId, Status
from tests.fixtures.recovery_world import (
    World,
    WorldBookie,
    check_closed,
    metadata_of,
    packet_of,
)


class Writer:
    """Adds entries to the first ensemble as long as it is let; knows what is acknowledged."""

    def __init__(self, world: World, count: int) -> None:
        self.world = world
        self.left = count
        self.next = 0
        self.acks: dict[int, set[BookieId]] = {}
        self.lac = -1

    def step(self) -> None:
        if not self.left:
            return
        self.left -= 1
        metadata = self.world.metadata.history[0]
        entry_id, self.next = self.next, self.next + 1
        self.acks[entry_id] = set()
        # What the bookies were told lags behind what is acknowledged.
        packet = packet_of(entry_id, max(self.lac - 3, -1))
        sizes = metadata.ensemble_size, metadata.write_quorum_size
        for index in write_set(entry_id, *sizes):
            self._send(metadata.segments[0].ensemble[index], entry_id, packet)

    def _send(self, bookie: BookieId, entry_id: int, packet: bytes) -> None:
        def arrive(target: WorldBookie | None) -> None:
            if target is not None and target.add(entry_id, packet, is_recovery=False) is Status.OK:
                self.world.events.append(lambda: self._acked(bookie, entry_id))

        self.world.ask(bookie, arrive)

    def _acked(self, bookie: BookieId, entry_id: int) -> None:
        self.acks[entry_id].add(bookie)
        needed = self.world.metadata.history[0].ack_quorum_size
        while len(self.acks.get(self.lac + 1, ())) >= needed:
            self.lac += 1


def live(seed: int, on_end: Callable[[World, Writer], None]) -> None:
    rng = random.Random(seed)
    ensemble_size = rng.randint(1, 5)
    write_quorum = rng.randint(1, ensemble_size)
    ack_quorum = rng.randint(1, write_quorum)
    spare = rng.randint(0, 3)
    metadata = metadata_of(ensemble_size, write_quorum, ack_quorum)
    world = World(metadata, ensemble_size + spare, seed)
    writer = Writer(world, rng.randint(0, 20))
    # Qa - 1 bookies may be gone or silent with nothing lost and recovery still sure.
    unlucky = rng.sample(list(world.bookies), ack_quorum - 1)
    starts = sorted(rng.randint(0, 60) for _ in range(rng.randint(1, 3)))
    crashes = {rng.randint(5, 120) for _ in range(rng.randint(0, 2))}
    for step in range(200):
        if starts and starts[0] <= step:
            starts.pop(0)
            world.recoverer(
                read_ahead=rng.choice((1, 2, 4)), can_replace=rng.random() < 0.8
            ).start()
        if step in crashes and len(world.recoverers) > 1:
            rng.choice(world.recoverers[:-1]).crashed = True
        if rng.random() < 0.3:
            writer.step()
        if unlucky and rng.random() < 0.1:
            target = world.bookies[unlucky.pop()]
            kind = rng.choice((0, 1, 2, 2, 2, 2, 2, 3))
            target.is_hung = kind == 0
            target.is_down = kind == 1
            target.refuses_writes = Status.READ_ONLY if kind == 2 else None
            target.forced_read = Status.IO_ERROR if kind == 3 else None
        if world.events:
            world.events.pop(rng.randrange(len(world.events)))()
        if rng.random() < 0.05:
            for recoverer in world.recoverers:
                if not recoverer.is_over:
                    recoverer.tick()
    world.run()
    on_end(world, writer)


def check(world: World, writer: Writer) -> None:
    for recoverer in world.recoverers:
        assert recoverer.crashed or recoverer.is_over, "it hangs"
        if recoverer.error is not None:
            assert isinstance(recoverer.error, LedgerRecoveryError | NotEnoughBookiesError)
    results = [r.result for r in world.recoverers if r.result is not None]
    if not results:
        return
    found = world.metadata.value
    assert all(result == found for result in results), "recoverers disagree"
    check_closed(world, writer.lac)


@pytest.mark.parametrize("block", range(10))
def test_random_lives(block: int) -> None:
    for seed in range(block * 200, block * 200 + 200):
        try:
            live(seed, check)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_the_lives_are_not_vacuous() -> None:
    seen = dict.fromkeys(
        ("closed", "failed", "replaced", "beyond the lac", "two agree", "fenced writer"), 0
    )

    def count(world: World, writer: Writer) -> None:
        found = world.metadata.value
        seen["closed"] += found.is_closed
        seen["failed"] += any(r.error is not None for r in world.recoverers)
        seen["replaced"] += len(found.segments) > 1
        seen["beyond the lac"] += found.last_entry_id > writer.lac
        seen["two agree"] += sum(r.result is not None for r in world.recoverers) > 1
        seen["fenced writer"] += found.is_closed and writer.next - 1 > found.last_entry_id

    for seed in range(800):
        live(seed, count)
    assert seen["closed"] > 600
    assert all(number >= 20 for number in seen.values()), seen
