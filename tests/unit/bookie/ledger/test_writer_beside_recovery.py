"""One writer beside recoverers that come at any time, in worlds drawn at random.

Answers of bookies and of the store get lost, and what was asked may still take effect long after:
a metadata write adrift lands when the writer has gone on (G7). What was acknowledged is kept.
"""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from bookie.errors import MetadataStoreError
from bookie.ledger import actions
from bookie.ledger.actions import Actions, Timer, WriterOptions
from bookie.ledger.types import BookieId, LedgerMetadata, Status
from bookie.ledger.writer import WriterMachine
from tests.fixtures import recovery_world
from tests.fixtures.ledger_bookies import AnyPlacement
from tests.fixtures.recovery_world import World, WorldBookie, payload_of

ENTRIES_MAX = 120
RECOVERERS_MAX = 4


class Life:
    """A world, and one handle of the ledger in it."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        ensemble_size = chance.choice((2, 2, 3, 3, 3, 4, 5))
        write_quorum = chance.randint(2, ensemble_size)
        # Fewer than the write quorum, that the handle may live long.
        ack_quorum = chance.randint(1, max(1, write_quorum - 1))
        self.names = recovery_world.bookie_ids(ensemble_size + chance.randint(1, 3))
        metadata = recovery_world.metadata_of(ensemble_size, write_quorum, ack_quorum)
        self.world = World(metadata, len(self.names), seed)
        self.down_max = max(1, write_quorum - ack_quorum)
        self.loss = chance.choice((0, 0.02, 0.1))
        self.is_calm = False
        self.timers: list[Timer] = []
        self.adrift: list[Callable[[], None]] = []
        """Metadata writes that were given up and have not reached the store."""
        self.added_count = 0
        self.seen: Counter[str] = Counter()
        options = WriterOptions(
            is_change_delayed=chance.random() < 0.6, quorum_ticks_max=chance.choice((None, None, 4))
        )
        self.machine = WriterMachine(
            metadata, 0, recovery_world.DIGEST, AnyPlacement(chance), self.names, options
        )

    def later(self, event: Callable[[], Actions]) -> None:
        self.world.events.append(lambda: self.run(event()))

    def run(self, todo: Actions) -> None:
        for action in todo:
            match action:
                case actions.SendAdd():
                    for bookie in action.bookies:
                        self.send(bookie, action.entry_id, action.packet)
                case actions.Added():
                    assert action.entry_id == self.added_count, "completed out of order"
                    self.added_count += 1
                case actions.Done():
                    assert self.world.metadata.value.is_closed
                    assert self.world.metadata.value.last_entry_id == self.added_count - 1
                    self.seen["closed by the writer"] += 1
                case actions.WriteMetadata():
                    self.write(action.metadata, action.version)
                case actions.ReadMetadata():
                    self.find()
                case actions.StartTimer():
                    self.timers.append(action.timer)
                case _:
                    pass

    def send(self, bookie: BookieId, entry_id: int, packet: bytes) -> None:
        on_reply = self.machine.on_add_reply
        is_lost = not self.is_calm and self.chance.random() < self.loss

        def arrive(target: WorldBookie | None) -> None:
            status = Status.UNAVAILABLE
            if target is not None:
                status = target.add(entry_id, packet, is_recovery=False)
            if not is_lost:
                self.later(lambda: on_reply(entry_id, bookie, status))

        if is_lost:
            self.later(lambda: on_reply(entry_id, bookie, Status.TIMED_OUT))
        if not is_lost or self.chance.random() < 0.7:
            self.world.ask(bookie, arrive)

    def write(self, metadata: LedgerMetadata, version: int) -> None:
        """Mostly the writer learns nothing and reads what is there; the write lands later."""
        machine, node = self.machine, self.world.metadata

        def arrive() -> Actions:
            if node.write(metadata, version):
                return machine.on_metadata_written(version + 1)
            return machine.on_metadata_found(node.value, node.version)

        def land() -> None:
            self.seen["landed late"] += node.write(metadata, version)

        draw = 0.0 if self.is_calm else self.chance.random()
        if draw < 0.2:
            self.later(arrive)
        elif draw < 0.22:
            self.world.events.append(land)
            self.find()
        else:
            self.adrift.append(land)
            if draw < 0.995:
                self.find()
            else:
                self.later(lambda: machine.on_metadata_failed(MetadataStoreError("gone")))

    def find(self) -> None:
        node = self.world.metadata
        self.later(lambda: self.machine.on_metadata_found(node.value, node.version))

    def step(self) -> None:
        world, chance = self.world, self.chance
        if self.adrift and chance.random() < 0.02:
            self.adrift.pop(0)()
        draw = chance.random()
        if draw < 0.12:
            entry_id = self.machine.last_pushed + 1
            if self.machine.error is None and entry_id < ENTRIES_MAX:
                self.run(self.machine.add(payload_of(entry_id), None))
        elif draw < 0.15:
            bookie = world.bookies[chance.choice(self.names)]
            down_count = sum(b.is_down for b in world.bookies.values())
            bookie.is_down = not bookie.is_down and down_count < self.down_max
        elif draw < 0.16:
            writable = tuple(b for b in self.names if chance.random() < 0.8)
            self.run(self.machine.on_bookies(writable))
        elif draw < 0.18:
            self.fire()
        elif draw < 0.1805:
            if len(world.recoverers) < RECOVERERS_MAX:
                world.events.append(world.recoverer(read_ahead=chance.choice((1, 4))).start)
        elif draw < 0.182:
            if world.recoverers:
                chance.choice(world.recoverers).crashed = True
        elif draw < 0.18203:
            self.run(self.machine.close(None))
        elif draw < 0.22:
            for recoverer in world.recoverers:
                recoverer.tick()
        elif world.events:
            # Messages of different connections overtake each other.
            is_any = chance.random() < 0.6
            world.events.pop(chance.randrange(len(world.events)) if is_any else 0)()

    def fire(self) -> None:
        if self.timers:
            self.run(self.machine.on_timer(self.timers.pop(0)))

    def end(self) -> None:
        """Heal everything, let all arrive, recover what is left open, and look."""
        world, machine = self.world, self.machine
        self.is_calm = True
        world.events += self.adrift
        for bookie in world.bookies.values():
            bookie.is_down = False
        self.run(machine.on_bookies(self.names))
        for _ in range(20 * len(Timer)):
            world.run()
            self.fire()
        world.run()
        assert machine.error is not None or not machine.pending_count, "adds are stuck"
        if not world.metadata.value.is_closed:
            last = world.recoverer().run()
            assert last.result is not None, last.error
        recovery_world.check_closed(world, self.added_count - 1)
        assert not any(m.is_closed for m in world.metadata.history[:-1]), "wrote over CLOSED"
        self.seen["added"] += self.added_count
        self.seen["ensembles changed"] += len(world.metadata.value.segments) - 1
        self.seen["fenced"] += machine.error is not None


@pytest.mark.parametrize("block", range(4))
def test_g7_what_is_acknowledged_outlives_lost_answers_and_recoverers(block: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(block * 300, block * 300 + 300):
        try:
            life = Life(seed)
            for _ in range(life.chance.choice((800, 2000, 3000))):
                life.step()
            life.end()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        seen += life.seen
    assert len(seen) == 5, seen  # not vacuous
