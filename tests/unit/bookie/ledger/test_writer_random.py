"""The writer's machine alone under thousands of random schedules.

A schedule is one ledger with random sizes, bookies that fail, hang, come back or turn read-only,
messages that are lost or overtake each other, metadata writes that are refused, delayed, or whose
answer is lost, and now and then another client that recovers or closes the ledger. What must hold:
entries complete in order, each held by an ack quorum of the ensemble that the stored metadata names
for it, then and for ever; the LAC never goes back; every call is answered once; nothing gets stuck.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bookie.errors import BookieError, MetadataStoreError
from bookie.ledger.actions import (
    Actions,
    Added,
    Done,
    Failed,
    ReadMetadata,
    SendAdd,
    SendForce,
    SendLac,
    StartTimer,
    Timer,
    WriteMetadata,
    WriterOptions,
)
from bookie.ledger.codec import header_of
from bookie.ledger.distribution import write_set
from bookie.ledger.types import BookieId, EntryId, LedgerState, Segment, Status
from bookie.ledger.writer import WriterMachine
from tests.fixtures.ledger_bookies import AnyPlacement, digest_of, ledger, names

SCHEDULES = 3000
FAILURES = (Status.TIMED_OUT, Status.UNAVAILABLE, Status.IO_ERROR, Status.TOO_MANY_REQUESTS)


class Schedule:
    """One life of one handle, from one seed."""

    def __init__(self, seed: int, make: Callable[..., WriterMachine] = WriterMachine) -> None:
        self.random = random.Random(seed)
        chance = self.random
        ensemble_size = chance.randint(1, 5)
        write_quorum = chance.randint(1, ensemble_size)
        ack_quorum = chance.randint(1, write_quorum)
        self.metadata = ledger(ensemble_size, write_quorum, ack_quorum)
        self.version = 0
        self.names = names(ensemble_size + chance.randint(0, 3))
        self.held: dict[BookieId, dict[int, bytes]] = {name: {} for name in self.names}
        self.is_up = dict.fromkeys(self.names, True)
        self.is_fenced = False
        self.is_deferred = chance.random() < 0.1
        self.are_ids_given = chance.random() < 0.15
        self.has_other_client = chance.random() < 0.2
        self.machine = make(
            self.metadata,
            self.version,
            digest_of(self.metadata),
            AnyPlacement(chance),
            self.names,
            WriterOptions(
                pending_adds_max=chance.choice((3, 20)),
                is_change_delayed=chance.random() < 0.3,
                is_deferred_sync=self.is_deferred,
                are_ids_given=self.are_ids_given,
                quorum_ticks_max=chance.choice((None, None, 3)),
                is_lac_explicit=chance.random() < 0.5,
            ),
        )
        self.events: list[Callable[[], None]] = []  # messages on their way
        self.timers: list[Timer] = []
        self.is_healed = False
        self.lac = -1
        self.added: list[int] = []
        self.sizes: dict[int, int] = {}
        self.open_calls: set[int] = set()
        self.call_count = 0
        self.forced = -1
        self.ids_left = list(range(200))
        self.outcome = "open"
        self.statistics = {"changes": 0, "without": 0, "lost answers": 0, "acknowledged": 0}

    # --- the world --------------------------------------------------------------------------------

    def run(self, actions: Actions) -> None:
        for action in actions:
            match action:
                case SendAdd():
                    for bookie in action.bookies:
                        self.send_add(bookie, action.entry_id, action.packet)
                case Added():
                    self.answer(action.context)
                    self.on_added(action.entry_id)
                case Done() | Failed():
                    self.answer(action.context)
                    assert action.context is not None
                case WriteMetadata():
                    written, version = action.metadata, action.version
                    self.events.append(lambda w=written, v=version: self.write(w, v))
                case ReadMetadata():
                    self.read_back()
                case StartTimer():
                    assert action.timer not in self.timers, "started twice"
                    self.timers.append(action.timer)
                case SendForce():
                    for bookie in action.bookies:
                        self.ask(bookie, action.request, self.machine.on_force_reply)
                case SendLac():
                    for bookie in action.bookies:
                        self.ask(bookie, action.request, self.machine.on_lac_reply)
            assert self.machine.lac >= self.lac, "the LAC went back"
            self.lac = self.machine.lac

    def answer(self, context: int) -> None:
        assert context in self.open_calls, "a call was answered twice"
        self.open_calls.remove(context)

    def call(self, begin: Callable[[int], Actions]) -> None:
        self.call_count += 1
        context = self.call_count
        self.open_calls.add(context)
        try:
            actions = begin(context)
        except BookieError:
            self.open_calls.remove(context)
            return
        self.run(actions)

    def check_length(self) -> None:
        """The length counts what lies up to the LAC and nothing else (G12)."""
        expected = sum(self.sizes[entry_id] for entry_id in range(self.lac + 1))
        assert self.machine.length == expected
        if self.metadata.is_closed:
            assert self.metadata.length == expected

    def on_added(self, entry_id: int) -> None:
        assert entry_id == len(self.added), "completed out of order"
        assert self.machine.error is None
        self.added.append(entry_id)
        self.statistics["acknowledged"] += 1
        self.check_held(entry_id)

    def check_held(self, entry_id: int) -> None:
        ensemble = self.metadata.segment_of(entry_id).ensemble
        indexes = write_set(entry_id, self.metadata.ensemble_size, self.metadata.write_quorum_size)
        holders = [ensemble[i] for i in indexes if entry_id in self.held[ensemble[i]]]
        assert len(holders) >= self.metadata.ack_quorum_size, (
            f"entry {entry_id}: metadata names {ensemble}, only {holders} hold it"
        )

    def send_add(self, bookie: BookieId, entry_id: int, packet: bytes) -> None:
        header = header_of(packet)
        assert header.lac <= self.lac
        self.sizes[entry_id] = len(packet) - 36  # header and CRC-32C

        def arrive() -> None:
            if not self.is_up[bookie]:
                status = self.random.choice(FAILURES)
            elif self.is_fenced:
                status = Status.FENCED
            elif not self.is_healed and self.random.random() < 0.02:
                status = Status.READ_ONLY
            else:
                self.held[bookie][entry_id] = packet
                # The answer may be lost though the entry is there.
                is_lost = not self.is_healed and self.random.random() < 0.01
                status = Status.TIMED_OUT if is_lost else Status.OK
            self.events.append(
                lambda: self.run(self.machine.on_add_reply(entry_id, bookie, status))
            )

        self.events.append(arrive)

    def ask(self, bookie: BookieId, request: int, on_reply: Any) -> None:
        def arrive() -> None:
            status = Status.OK if self.is_up[bookie] else Status.TIMED_OUT
            self.run(on_reply(request, bookie, status))

        self.events.append(arrive)

    def write(self, metadata: Any, version: int) -> None:
        """The store gets a compare-and-set; its answer comes later, or is lost."""
        machine = self.machine
        chance = self.random.random()
        if chance < 0.1:
            self.statistics["lost answers"] += 1
            if chance < 0.05 and version == self.version:
                self.apply_own(metadata)
            else:
                # Neither applied nor lost: it still may arrive, long after we have read.
                self.events.append(lambda: self.apply_late(metadata, version))
            if chance < 0.01:
                error = MetadataStoreError("gone")
                self.events.append(lambda: self.run(machine.on_metadata_failed(error)))
                return
            self.read_back()
        elif version == self.version:
            self.apply_own(metadata)
            written = self.version
            self.events.append(lambda: self.run(machine.on_metadata_written(written)))
        else:
            self.read_back()

    def read_back(self) -> None:
        found, version = self.metadata, self.version
        machine = self.machine
        self.events.append(lambda: self.run(machine.on_metadata_found(found, version)))

    def apply_late(self, metadata: Any, version: int) -> None:
        if version == self.version:
            self.apply_own(metadata)

    def apply_own(self, metadata: Any) -> None:
        assert self.metadata.state is LedgerState.OPEN, "wrote over what another decided"
        self.apply(metadata)

    def apply(self, metadata: Any) -> None:
        if metadata.segments != self.metadata.segments:
            self.statistics["changes"] += 1
        self.metadata = metadata
        self.version += 1

    # --- what happens -----------------------------------------------------------------------------

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.25:
            self.add()
        elif chance < 0.85 and self.events:
            # Messages of different connections overtake each other, those of one hardly ever:
            # any order must do.
            self.events.pop(self.random.randrange(len(self.events)))()
        elif chance < 0.90:
            name = self.random.choice(self.names)
            # Mostly at most one is down, or most handles would not live long.
            self.is_up[name] = not self.is_up[name] or (
                not all(self.is_up.values()) and self.random.random() < 0.7
            )
        elif chance < 0.93:
            self.register(tuple(n for n in self.names if self.is_up[n]))
        elif chance < 0.95:
            self.call(self.machine.force)
        elif chance < 0.97:
            self.call(self.machine.write_lac)
        elif chance < 0.98 and self.timers:
            self.fire(self.random.randrange(len(self.timers)))
        elif self.has_other_client and chance < 0.99:
            self.other_client()

    def add(self) -> None:
        payload = b"x" * self.random.randint(0, 30)
        entry_id: int | None = None
        if self.are_ids_given:
            entry_id = self.ids_left.pop(self.random.randrange(min(3, len(self.ids_left))))
            if self.machine.is_full:
                self.ids_left.append(entry_id)
                self.ids_left.sort()
                return
        self.call(lambda context: self.machine.add(payload, context, entry_id))

    def register(self, writable: tuple[BookieId, ...]) -> None:
        others = [b for b in self.names if b not in writable]
        read_only = tuple(b for b in others if self.random.random() < 0.5)
        self.run(self.machine.on_bookies(writable, read_only))

    def other_client(self) -> None:
        """Re-replication of an older segment, or a recovery that fences, maybe to its end."""
        if self.metadata.is_closed:
            return
        if self.metadata.state is LedgerState.IN_RECOVERY:
            # At the LAC or beyond, as a recovery does.
            end = EntryId(self.lac + self.random.randint(0, 1))
            self.apply(self.metadata.closed(end, self.machine.length + end - self.lac))
            return
        if len(self.metadata.segments) > 1 and self.random.random() < 0.5:
            first = self.metadata.segments[0]
            segments = (Segment(first.first_entry_id, first.ensemble), *self.metadata.segments[1:])
            self.apply(replace(self.metadata, segments=segments))
        elif self.random.random() < 0.5:
            self.apply(self.metadata.with_state(LedgerState.IN_RECOVERY))
            self.is_fenced = True

    def finish(self) -> None:
        """Heal everything, let all messages arrive, close; nothing may be left over."""
        self.is_healed = True
        for name in self.names:
            self.is_up[name] = True
        self.register(self.names)
        self.drain()
        if self.are_ids_given:
            for entry_id in [i for i in self.ids_left if i < self.machine.last_pushed]:
                self.call(lambda c, e=entry_id: self.machine.add(b"", c, e))
                self.drain()
        if self.machine.error is None:
            assert not self.machine.pending_count, "entries are stuck"
        self.call(self.machine.close)
        for _ in range(20):
            self.drain()
            if not self.open_calls:
                break
        assert not self.open_calls, "a call was never answered"
        for entry_id in self.added:
            self.check_held(entry_id)
        if self.metadata.is_closed and not self.is_fenced:
            assert self.metadata.last_entry_id == self.lac
            self.check_length()
            if not self.is_deferred:
                assert self.lac == len(self.added) - 1
        firsts = [segment.first_entry_id for segment in self.metadata.segments]
        assert firsts == sorted(set(firsts))

    def fire(self, number: int) -> None:
        self.run(self.machine.on_timer(self.timers.pop(number)))

    def drain(self) -> None:
        """Deliver everything, with every timer that is started firing a few times."""
        for _ in range(8):
            for _ in range(3000):
                if not self.events:
                    break
                self.events.pop(0)()
            assert not self.events, "there is no end to it"
            for _ in range(len(self.timers)):
                self.fire(0)


def live(seed: int, make: Callable[..., WriterMachine] = WriterMachine) -> Schedule:
    schedule = Schedule(seed, make)
    for _ in range(schedule.random.randint(20, 150)):
        schedule.step()
    if schedule.machine.missing_bookies:
        schedule.statistics["without"] += 1
    schedule.finish()
    return schedule


@pytest.mark.parametrize("block", range(6))
def test_acknowledged_entries_are_where_the_metadata_says(block: int) -> None:
    seen = {"changes": 0, "without": 0, "lost answers": 0, "acknowledged": 0}
    size = SCHEDULES // 6
    for seed in range(block * size, (block + 1) * size):
        try:
            schedule = live(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        for name, count in schedule.statistics.items():
            seen[name] += count
    # Not vacuous.
    assert seen["acknowledged"] > 5 * size, seen
    assert seen["changes"] > size / 4, seen
    assert seen["lost answers"] > size / 20, seen
    assert seen["without"] > 0, seen


def test_the_same_seed_is_the_same_life() -> None:
    first, second = live(11), live(11)
    assert first.added == second.added
    assert first.metadata == second.metadata
