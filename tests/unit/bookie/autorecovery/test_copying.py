"""The machine that copies, alone: what it asks, when it stops, and what it calls a loss."""

from dataclasses import replace
from typing import Any

import pytest

from bookie.autorecovery.copying import (
    Copy,
    CopyEnded,
    Damaged,
    ReadEntry,
    Throttle,
    WriteEntry,
)
from bookie.errors import DigestMismatchError, NoSuchEntryError, ReadOnlyBookieError
from bookie.ledger.entry_read import SPECULATION_TICKS
from bookie.ledger.types import BookieId, EntryId, Status
from tests.fixtures.recovery_world import DIGEST, metadata_of, packet_of

TARGET = BookieId("target")


def copy_of(
    *entry_ids: int,
    sizes: tuple[int, int, int] = (3, 3, 2),
    target: BookieId = TARGET,
    **settings: Any,
) -> Copy:
    settings.setdefault("throttle", Throttle(None))
    return Copy(metadata_of(*sizes), DIGEST, iter(entry_ids), target, **settings)


def read(machine: Copy, action: Any, status: Status = Status.OK) -> list[Any]:
    assert isinstance(action, ReadEntry)
    packet = packet_of(action.entry_id) if status is Status.OK else b""
    return machine.on_read(action.bookie, action.entry_id, status, packet, 0.0)


def test_every_entry_is_read_written_as_it_is_and_then_it_ends() -> None:
    machine = copy_of(0, 1, 2)
    asked = machine.start(0.0)
    assert [action.entry_id for action in asked if isinstance(action, ReadEntry)] == [0, 1, 2]
    for entry_id, action in enumerate(asked):
        assert read(machine, action) == [WriteEntry(entry_id, packet_of(entry_id))]
    assert machine.on_write(0, Status.OK, 0.0) == []
    assert machine.on_write(2, Status.OK, 0.0) == []
    assert machine.on_write(1, Status.OK, 0.0) == [CopyEnded(None)]
    sizes = [len(packet_of(entry_id)) for entry_id in range(3)]
    assert (machine.entry_count, machine.byte_count) == (3, sum(sizes))
    assert machine.on_write(1, Status.OK, 0.0) == [], "answered twice"


def test_nothing_to_copy_ends_at_once() -> None:
    assert copy_of().start(0.0) == [CopyEnded(None)]


def test_no_more_than_the_window_and_the_bytes_are_under_way() -> None:
    machine = copy_of(*range(10), window=2)
    asked = machine.start(0.0)
    assert len(asked) == 2
    (write,) = read(machine, asked[0])
    assert isinstance(write, WriteEntry)
    assert machine.on_write(write.entry_id, Status.OK, 0.0) == [ReadEntry(BookieId("b2"), 2)]
    machine = copy_of(*range(10), bytes_max=1)
    for action in machine.start(0.0)[:1]:
        assert len(read(machine, action)) == 1, "the bytes of one that is written are enough"


def test_what_is_being_read_counts_by_the_mean_of_the_ledger() -> None:
    metadata = replace(metadata_of(3, 3, 2), last_entry_id=EntryId(9), length=10_000)
    settings: dict[str, Any] = {"throttle": Throttle(None)}
    machine = Copy(metadata, DIGEST, iter(range(10)), TARGET, bytes_max=2500, **settings)
    assert len(machine.start(0.0)) == 3
    machine = Copy(metadata, DIGEST, iter(range(10)), TARGET, bytes_max=1, **settings)
    assert len(machine.start(0.0)) == 1, "one entry is always let in"


def test_the_next_replica_is_asked_and_the_target_is_not() -> None:
    machine = copy_of(0, target=BookieId("b1"))
    (first,) = machine.start(0.0)
    assert first == ReadEntry(BookieId("b0"), 0)
    (second,) = read(machine, first, Status.NO_ENTRY)
    assert second == ReadEntry(BookieId("b2"), 0)
    assert read(machine, second) == [WriteEntry(0, packet_of(0))]


def test_a_silent_replica_is_passed_over() -> None:
    machine = copy_of(0)
    machine.start(0.0)
    found = [action for _ in range(SPECULATION_TICKS) for action in machine.on_tick(0.0)]
    assert found == [ReadEntry(BookieId("b1"), 0)]


def test_replicas_are_asked_by_rank() -> None:
    machine = copy_of(0, rank=lambda bookie: 0 if bookie == "b2" else 3)
    assert machine.start(0.0) == [ReadEntry(BookieId("b2"), 0)]


def test_what_every_replica_denies_is_lost() -> None:
    """G23: of a settled entry; nothing is concluded from silence."""
    machine = copy_of(0)
    (action,) = machine.start(0.0)
    (action,) = read(machine, action, Status.NO_ENTRY)
    (action,) = read(machine, action, Status.NO_LEDGER)
    (end,) = read(machine, action, Status.NO_ENTRY)
    assert isinstance(end, CopyEnded)
    assert end.is_loss
    assert isinstance(end.error, NoSuchEntryError)


@pytest.mark.parametrize("silence", [Status.TIMED_OUT, Status.UNAVAILABLE, Status.IO_ERROR])
def test_one_that_is_silent_may_have_it(silence: Status) -> None:
    machine = copy_of(0)
    (action,) = machine.start(0.0)
    (action,) = read(machine, action, Status.NO_ENTRY)
    (action,) = read(machine, action, silence)
    (end,) = read(machine, action, Status.NO_ENTRY)
    assert isinstance(end, CopyEnded)
    assert (end.is_loss, end.error is not None) == (False, True)


def test_damaged_replicas_are_told_and_passed_over() -> None:
    machine = copy_of(0)
    machine.start(0.0)
    damaged = packet_of(0)[:-1] + b"?"
    told, second = machine.on_read(BookieId("b0"), 0, Status.OK, damaged, 0.0)
    assert told == Damaged(BookieId("b0"), 0)
    assert isinstance(second, ReadEntry)
    assert read(machine, second) == [WriteEntry(0, packet_of(0))]


def test_no_intact_replica_is_no_loss_of_all() -> None:
    machine = copy_of(0, sizes=(1, 1, 1))
    machine.start(0.0)
    told, end = machine.on_read(BookieId("b0"), 0, Status.OK, packet_of(0)[:-1] + b"?", 0.0)
    assert isinstance(told, Damaged)
    assert isinstance(end, CopyEnded)
    assert isinstance(end.error, DigestMismatchError)
    assert not end.is_loss


def test_a_target_that_is_the_only_replica_cannot_be_mended() -> None:
    (end,) = copy_of(0, sizes=(1, 1, 1), target=BookieId("b0")).start(0.0)
    assert isinstance(end, CopyEnded)
    assert end.is_loss


def test_a_target_that_refuses_ends_it() -> None:
    machine = copy_of(0, 1)
    asked = machine.start(0.0)
    read(machine, asked[0])
    (end,) = machine.on_write(0, Status.READ_ONLY, 0.0)
    assert isinstance(end, CopyEnded)
    assert isinstance(end.error, ReadOnlyBookieError)
    assert read(machine, asked[1]) == [], "over is over"
    assert machine.on_tick(0.0) == []


def test_the_throttle_bounds_bytes_a_second() -> None:
    size = len(packet_of(0))
    throttle = Throttle(size * 2, 0.0)
    machine = copy_of(*range(100), window=1, throttle=throttle)
    now_s, written = 0.0, 0
    actions = machine.start(now_s)
    while now_s < 10:
        following: list[Any] = []
        for action in actions:
            if isinstance(action, ReadEntry):
                following += read(machine, action)
            elif isinstance(action, WriteEntry):
                written += len(action.packet)
                following += machine.on_write(action.entry_id, Status.OK, now_s)
        now_s += 0.05
        actions = following + machine.on_tick(now_s)
    assert size * 2 * 8 <= written <= size * 2 * 12


def test_what_is_asked_for_is_paid_by_the_mean_and_settled_when_it_has_come() -> None:
    """Else a whole window of each ledger is asked for at once, whatever the bound."""
    metadata = replace(metadata_of(3, 3, 2), last_entry_id=EntryId(99), length=100_000)
    throttle = Throttle(100_000, 0.0)
    machine = Copy(metadata, DIGEST, iter(range(100)), TARGET, throttle=throttle)
    (first,) = machine.start(0.0)
    assert machine.on_budget(0.009) == []
    assert len(machine.on_budget(0.021)) == 2
    packet = packet_of(0)
    assert len(packet) < 100, "what was paid too much comes back, and pays for one more"
    write, more = machine.on_read(first.bookie, 0, Status.OK, packet, 0.021)
    assert (write, more.entry_id) == (WriteEntry(0, packet), 3)


def test_an_unused_budget_is_kept_for_a_tenth_of_a_second() -> None:
    throttle = Throttle(100, 0.0)
    assert throttle.is_open(1000.0)
    throttle.spend(10)
    assert throttle.is_open(1000.0)
    throttle.spend(1)
    assert not throttle.is_open(1000.0)
    assert throttle.is_open(1000.02)
