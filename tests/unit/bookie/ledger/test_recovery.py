"""The recovery machine, rule by rule (docs/protocols/recovery.md) and gotcha by gotcha."""

import pytest

from bookie.errors import (
    LedgerFencedError,
    LedgerRecoveryError,
    NotEnoughBookiesError,
    UnauthorizedAccessError,
)
from bookie.ledger.recovery import (
    GRACE_TICKS,
    Action,
    CloseLedger,
    ReadEntry,
    Recovery,
    RecoveryFailed,
    closed_metadata,
    opening_metadata,
)
from bookie.ledger.types import BookieId, EntryId, LedgerState, Segment, Status
from tests.fixtures.recovery_world import (
    DIGEST,
    World,
    bookie_ids,
    metadata_of,
    packet_of,
    payload_of,
)

NONE = (Status.NO_ENTRY, b"")


def begin(machine: Recovery, *answers: tuple[Status, bytes]) -> list[Action]:
    """Start and answer the fencing reads by index; return what the last answer led to."""
    machine.start()
    for index, (status, packet) in enumerate(answers[:-1]):
        assert not machine.on_fence_reply(index, status, packet)
    return machine.on_fence_reply(len(answers) - 1, *answers[-1])


def length_up_to(entry_id: int) -> int:
    return sum(len(payload_of(e)) for e in range(entry_id + 1))


def closed_at(world: World) -> tuple[LedgerState, int, int]:
    found = world.metadata.value
    return found.state, found.last_entry_id, found.length


def test_4_6_a_ledger_without_entries_closes_at_minus_one() -> None:
    world = World(metadata_of(3, 3, 2), 3)
    world.recoverer().run()
    assert closed_at(world) == (LedgerState.CLOSED, -1, 0)


def test_4_6_the_metadata_is_in_recovery_before_a_bookie_is_asked() -> None:
    metadata = metadata_of(3, 3, 2)
    wanted = opening_metadata(metadata)
    assert wanted is not None
    assert wanted.state is LedgerState.IN_RECOVERY
    assert opening_metadata(wanted) is None
    assert opening_metadata(wanted.closed(EntryId(3), 30)) is None


def test_4_6_every_bookie_of_the_last_ensemble_is_fenced() -> None:
    world = World(metadata_of(5, 3, 2), 6)
    world.recoverer().run()
    assert [b.is_fenced for b in world.bookies.values()] == [True] * 5 + [False]


def test_4_6_entries_beyond_the_lac_are_found_and_re_added_to_the_write_set() -> None:
    world = World(metadata_of(3, 3, 2), 3)
    for entry_id in range(5):
        world.put(entry_id)
    # The last ones lie on one bookie only; the writer knew of entry 2 as confirmed.
    world.put(5, 1, lac=2)
    world.put(6, 1, lac=2)
    recoverer = world.recoverer().run()
    assert closed_at(world) == (LedgerState.CLOSED, 6, length_up_to(6))
    for bookie in world.bookies.values():
        assert {5, 6} <= bookie.entries.keys()
    assert recoverer.progress[-1] == (len(range(4, 7)), 6)


def test_entries_are_re_added_byte_by_byte() -> None:
    world = World(metadata_of(3, 3, 2), 3)
    world.put(0, 2, lac=-1)
    world.recoverer().run()
    assert [b.entries[0] for b in world.bookies.values()] == [packet_of(0)] * 3


def test_g1_every_read_of_recovery_fences() -> None:
    world = World(metadata_of(3, 3, 2), 3)
    for entry_id in range(10):
        world.put(entry_id, lac=-1)
    recoverer = world.recoverer().run()
    assert recoverer.reads
    assert all(read.is_fencing for read in recoverer.reads)


def test_g1_an_entry_acknowledged_while_recovery_runs_is_not_cut_off() -> None:
    """#2614: b2 was not fenced by the first round, and takes the entry when all seems over."""
    metadata = metadata_of(3, 2, 2).with_state(LedgerState.IN_RECOVERY)
    machine = Recovery(metadata, DIGEST, lambda *_: None, read_ahead=1)
    # Entry 0 lies on b0 and b1, of which b0 did not hear of the fence. Its denial alone would make
    # the entry absent, so it must be fenced by the read that it denies.
    (read,) = begin(machine, (Status.TIMED_OUT, b""), NONE, NONE)
    assert read == ReadEntry(BookieId("b1"), 0, True)


def test_g2_recovery_never_begins_before_the_last_segment() -> None:
    """#2615: the fresh last ensemble knows nothing and says LAC -1."""
    later = Segment(EntryId(10), tuple(BookieId(f"b{n}") for n in (3, 4, 5)))
    world = World(metadata_of(3, 3, 2, later), 6)
    for entry_id in range(10):
        world.put(entry_id, lac=-1)
    recoverer = world.recoverer().run()
    found = world.metadata.value
    assert closed_at(world) == (LedgerState.CLOSED, 9, length_up_to(9))
    assert [s.first_entry_id for s in found.segments] == [0, 10]
    assert min(read.entry_id for read in recoverer.reads if read.is_fencing) == 10


def test_g2_a_bookie_that_fails_at_the_start_replaces_the_last_segment_only() -> None:
    later = Segment(EntryId(10), tuple(BookieId(f"b{n}") for n in (3, 4, 5)))
    world = World(metadata_of(3, 3, 2, later), 7)
    for entry_id in range(10):
        world.put(entry_id)
    world.put(10, 4)
    world.bookies[BookieId("b5")].refuses_writes = Status.IO_ERROR
    world.recoverer().run()
    found = world.metadata.value
    assert [s.first_entry_id for s in found.segments] == [0, 10]
    assert found.segments[0].ensemble == bookie_ids(3)
    assert found.segments[1].ensemble == ("b3", "b4", "b0")
    assert found.last_entry_id == 10


def test_g3_coverage_goes_around_the_end_of_the_ensemble() -> None:
    """E 5, Qw 3, Qa 2: b4 and b0 are neighbours, so both may not be unknown."""
    machine = Recovery(metadata_of(5, 3, 2), DIGEST, lambda *_: None)
    machine.start()
    for index in (1, 2, 3):
        assert not machine.on_fence_reply(index, Status.NO_ENTRY, b"")
    for _ in range(GRACE_TICKS):
        assert not machine.on_tick()
    assert machine.on_fence_reply(4, Status.NO_ENTRY, b"") == []
    assert [machine.on_tick() != [] for _ in range(GRACE_TICKS)] == [False, True]


def test_g3_no_entry_and_no_ledger_are_answers_and_errors_are_not() -> None:
    machine = Recovery(metadata_of(3, 3, 2), DIGEST, lambda *_: None)
    machine.start()
    assert not machine.on_fence_reply(0, Status.NO_LEDGER, b"")
    assert not machine.on_fence_reply(1, Status.IO_ERROR, b"")
    assert machine.on_fence_reply(2, Status.NO_ENTRY, b"")


def test_slow_bookies_are_given_a_moment_once_enough_have_answered() -> None:
    machine = Recovery(metadata_of(3, 3, 2), DIGEST, lambda *_: None, read_ahead=1)
    machine.start()
    for _ in range(50):
        assert machine.on_tick() == []
    machine.on_fence_reply(0, *NONE)
    assert machine.on_fence_reply(1, *NONE) == []
    (read,) = machine.on_fence_reply(2, Status.OK, packet_of(0))
    assert read.bookie == "b2", "the bookie that has it is asked first"


def test_4_6_all_answered_without_coverage_fails() -> None:
    machine = Recovery(metadata_of(3, 3, 2), DIGEST, lambda *_: None)
    machine.start()
    machine.on_fence_reply(0, Status.NO_ENTRY, b"")
    machine.on_fence_reply(1, Status.TIMED_OUT, b"")
    (failed,) = machine.on_fence_reply(2, Status.UNAVAILABLE, b"")
    assert isinstance(failed, RecoveryFailed)
    assert isinstance(failed.error, LedgerRecoveryError)
    assert "b1 TIMED_OUT" in str(failed.error)


def test_4_6_a_wrong_master_key_aborts_at_once() -> None:
    machine = Recovery(metadata_of(3, 3, 2), DIGEST, lambda *_: None)
    machine.start()
    (failed,) = machine.on_fence_reply(0, Status.UNAUTHORIZED, b"")
    assert isinstance(failed, RecoveryFailed)
    assert isinstance(failed.error, UnauthorizedAccessError)
    assert machine.on_fence_reply(1, Status.NO_ENTRY, b"") == []


def test_a_wrong_master_key_met_while_reading_or_writing_aborts_too() -> None:
    machine = Recovery(metadata_of(3, 3, 2), DIGEST, lambda *_: None, read_ahead=1)
    (read,) = begin(machine, NONE, NONE, NONE)
    (failed,) = machine.on_read_reply(read.bookie, 0, Status.UNAUTHORIZED, b"")
    assert isinstance(failed.error, UnauthorizedAccessError)
    machine = Recovery(metadata_of(3, 3, 2), DIGEST, lambda *_: None, read_ahead=1)
    (read,) = begin(machine, NONE, NONE, NONE)
    machine.on_read_reply(read.bookie, 0, Status.OK, packet_of(0))
    (failed,) = machine.on_write_reply(0, BookieId("b1"), Status.UNAUTHORIZED)
    assert isinstance(failed.error, UnauthorizedAccessError)


def test_4_6_metadata_closed_by_another_during_recovery_is_adopted() -> None:
    """LedgerRecovery2Test.testMetadataClosedDuringRecovery, and ParallelLedgerRecoveryTest."""
    world = World(metadata_of(3, 3, 2), 3)
    for entry_id in range(4):
        world.put(entry_id, lac=-1)
    slow = world.recoverer()
    slow.start()
    for _ in range(4):
        world.events.pop(0)()
    waiting, world.events = world.events, []
    quick = world.recoverer()
    quick.start()
    while quick.result is None:
        world.events.pop(0)()
    world.events = waiting + world.events
    world.run()
    assert slow.result == quick.result == world.metadata.value
    closes = [m for m in world.metadata.history if m.is_closed]
    assert len(closes) == 1


def test_a_writer_may_not_change_the_ensemble_once_recovery_has_begun() -> None:
    """LedgerRecovery2Test.testNewEnsembleAddedDuringRecovery: the writer's write finds IN_RECOVERY.

    If its change came first, recovery reads it with the metadata and starts at its segment.
    """
    world = World(metadata_of(3, 3, 2), 5)
    node = world.metadata
    version_of_writer = node.version
    recoverer = world.recoverer()
    recoverer.start()
    changed = node.history[0].with_ensemble(EntryId(2), bookie_ids(5)[2:])
    assert not node.write(changed, version_of_writer)
    world.run()
    assert closed_at(world) == (LedgerState.CLOSED, -1, 0)


def test_g4_absent_takes_qw_minus_qa_plus_one_denials() -> None:
    """Qw 3, Qa 2: one denial leaves two that could have acknowledged it; two denials decide."""
    machine = Recovery(metadata_of(3, 3, 2), DIGEST, lambda *_: None, read_ahead=1)
    (read,) = begin(machine, NONE, NONE, NONE)
    assert read.entry_id == 0
    (again,) = machine.on_read_reply(read.bookie, 0, Status.NO_ENTRY, b"")
    assert again.bookie != read.bookie
    assert machine.on_read_reply(again.bookie, 0, Status.NO_ENTRY, b"") == [CloseLedger(-1, 0, ())]


def test_g4_a_hung_bookie_is_not_waited_for() -> None:
    world = World(metadata_of(3, 3, 2), 3)
    for entry_id in range(8):
        world.put(entry_id, lac=-1)
    world.bookies[BookieId("b0")].is_hung = True
    recoverer = world.recoverer().run()
    assert closed_at(world) == (LedgerState.CLOSED, 7, length_up_to(7))
    # It was silent when it was asked to fence, so it is asked last from then on.
    assert BookieId("b0") not in [read.bookie for read in recoverer.reads]


def test_g4_unknown_is_never_absent() -> None:
    """Two of three replicas cannot be asked: entry 0 may be on them, acknowledged."""
    for status in (Status.TIMED_OUT, Status.UNAVAILABLE, Status.IO_ERROR,
                   Status.UNKNOWN_LEDGER_STATE):  # fmt: skip
        machine = Recovery(metadata_of(3, 3, 2), DIGEST, lambda *_: None, read_ahead=1)
        (read,) = begin(machine, NONE, NONE, NONE)
        (read,) = machine.on_read_reply(read.bookie, 0, status, b"")
        (read,) = machine.on_read_reply(read.bookie, 0, Status.NO_ENTRY, b"")
        (failed,) = machine.on_read_reply(read.bookie, 0, status, b"")
        assert isinstance(failed, RecoveryFailed)
        assert isinstance(failed.error, LedgerRecoveryError)


def test_an_unknown_entry_after_an_absent_one_does_not_matter() -> None:
    """A gap stops recovery: entry 1 is absent, entry 2 is not even looked at (on one replica)."""
    world = World(metadata_of(3, 3, 2), 3)
    world.put(0, lac=-1)
    world.put(2, 2, lac=-1)
    world.recoverer().run()
    assert closed_at(world) == (LedgerState.CLOSED, 0, length_up_to(0))


def test_g12_the_length_is_that_of_the_last_entry_recovered() -> None:
    world = World(metadata_of(3, 3, 2), 3)
    for entry_id in range(4):
        world.put(entry_id)
    world.recoverer().run()
    assert world.metadata.value.length == length_up_to(3)


def test_g12_without_a_recovered_entry_the_length_is_that_of_the_lac() -> None:
    """The packet that tells LAC 2 is entry 4, whose length counts 3 and 4, which are absent."""
    metadata = metadata_of(3, 3, 2).with_state(LedgerState.IN_RECOVERY)
    machine = Recovery(metadata, DIGEST, lambda *_: None, read_ahead=1)
    (read,) = begin(machine, NONE, NONE, (Status.OK, packet_of(4, lac=2)))
    assert read.entry_id == 3
    (read,) = machine.on_read_reply(read.bookie, 3, Status.NO_ENTRY, b"")
    (read,) = machine.on_read_reply(read.bookie, 3, Status.NO_ENTRY, b"")
    assert read.entry_id == 2
    assert machine.on_read_reply(read.bookie, 2, Status.OK, packet_of(2)) == [
        CloseLedger(2, length_up_to(2), ())
    ]


def test_g12_a_lac_entry_that_no_bookie_has_leaves_a_bound() -> None:
    metadata = metadata_of(3, 3, 2).with_state(LedgerState.IN_RECOVERY)
    machine = Recovery(metadata, DIGEST, lambda *_: None, read_ahead=1)
    (read,) = begin(machine, NONE, NONE, (Status.OK, packet_of(4, lac=2)))
    actions = []
    for _ in range(2):
        actions = machine.on_read_reply(read.bookie, 3, Status.NO_ENTRY, b"")
        read = actions[0]
    for _ in range(2):
        actions = machine.on_read_reply(read.bookie, 2, Status.NO_ENTRY, b"")
        read = actions[0]
    assert actions == [CloseLedger(2, length_up_to(4), ())]


def test_g12_a_lac_entry_whose_replicas_are_silent_fails_the_recovery() -> None:
    """Closed with a length of 0 otherwise, when the last segment is new and empty."""
    metadata = (
        metadata_of(3, 3, 2)
        .with_ensemble(EntryId(3), tuple(BookieId(name) for name in ("b3", "b4", "b5")))
        .with_state(LedgerState.IN_RECOVERY)
    )
    machine = Recovery(metadata, DIGEST, lambda *_: None, read_ahead=1)
    (read,) = begin(machine, NONE, NONE, NONE)
    actions = []
    for _ in range(2):
        assert read.entry_id == 3
        actions = machine.on_read_reply(read.bookie, 3, Status.NO_ENTRY, b"")
        read = actions[0]
    for _ in range(3):
        assert read.entry_id == 2
        actions = machine.on_read_reply(read.bookie, 2, Status.UNAVAILABLE, b"")
        read = actions[0]
    assert isinstance(read, RecoveryFailed)
    assert isinstance(read.error, LedgerRecoveryError)


def test_g13_an_entry_that_the_writer_saw_fenced_may_still_be_recovered() -> None:
    """It reached one bookie before the fence; the writer was told FENCED by the others."""
    world = World(metadata_of(3, 3, 2), 3)
    world.put(0)
    for name in ("b0", "b1"):
        world.bookies[BookieId(name)].is_fenced = True
        answer = world.bookies[BookieId(name)].add(1, packet_of(1), is_recovery=False)
        assert answer is Status.FENCED
    world.put(1, 2)
    world.recoverer().run()
    assert closed_at(world) == (LedgerState.CLOSED, 1, length_up_to(1))


def test_g14_a_fenced_ledger_answers_no_entry_and_that_counts() -> None:
    """The fence made the ledger on a bookie that never saw it; the second recoverer meets that."""
    world = World(metadata_of(3, 3, 2), 3)
    first = world.recoverer()
    first.start()
    while world.events:
        world.events.pop(0)()
        if all(b.is_fenced for b in world.bookies.values()):
            break
    first.crashed = True
    world.events.clear()
    world.recoverer().run()
    assert closed_at(world) == (LedgerState.CLOSED, -1, 0)


def test_a_damaged_replica_is_passed_over_and_reported() -> None:
    world = World(metadata_of(3, 3, 2), 3)
    world.put(0)
    for name in ("b0", "b1"):
        packet = bytearray(world.bookies[BookieId(name)].entries[0])
        packet[-1] ^= 1
        world.bookies[BookieId(name)].entries[0] = bytes(packet)
    recoverer = world.recoverer().run()
    assert closed_at(world) == (LedgerState.CLOSED, 0, length_up_to(0))
    assert {damaged.bookie for damaged in recoverer.damaged} == {"b0", "b1"}
    assert [b.entries[0] for b in world.bookies.values()] == [packet_of(0)] * 3


def test_damage_everywhere_is_unknown_and_fails() -> None:
    world = World(metadata_of(3, 3, 2), 3)
    world.put(0)
    for bookie in world.bookies.values():
        bookie.entries[0] = bookie.entries[0][:-1] + b"?"
    recoverer = world.recoverer().run()
    assert isinstance(recoverer.error, LedgerRecoveryError)
    assert world.metadata.value.state is LedgerState.IN_RECOVERY


def test_4_6_a_failed_bookie_is_replaced_in_memory_and_written_with_the_end() -> None:
    world = World(metadata_of(3, 3, 2), 4)
    for entry_id in range(3):
        world.put(entry_id, lac=-1)
    world.bookies[BookieId("b1")].refuses_writes = Status.READ_ONLY
    recoverer = world.recoverer().run()
    # OPEN, IN_RECOVERY, CLOSED and nothing in between.
    assert [m.state for m in world.metadata.history] == [
        LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED
    ]  # fmt: skip
    found = world.metadata.value
    assert found.last_segment.ensemble == ("b0", "b3", "b2")
    first = found.last_segment.first_entry_id
    assert set(range(first, 3)) <= world.bookies[BookieId("b3")].entries.keys()
    assert recoverer.failed == ["b1"]


def test_two_bookies_that_fail_on_one_entry_are_both_replaced() -> None:
    world = World(metadata_of(3, 3, 2), 5)
    world.put(0, lac=-1)
    for name in ("b1", "b2"):
        world.bookies[BookieId(name)].refuses_writes = Status.IO_ERROR
    world.recoverer().run()
    found = world.metadata.value
    assert found.last_entry_id == 0
    holders = [b for b in found.last_segment.ensemble if 0 in world.bookies[b].entries]
    assert len(holders) >= 2


def test_without_a_replacement_it_goes_on_while_qa_can_be_reached() -> None:
    world = World(metadata_of(3, 3, 2), 3)
    for entry_id in range(5):
        world.put(entry_id, lac=-1)
    world.bookies[BookieId("b2")].is_down = True
    world.recoverer(can_replace=False).run()
    assert closed_at(world) == (LedgerState.CLOSED, 4, length_up_to(4))
    assert world.metadata.value.last_segment.ensemble == bookie_ids(3)


def test_without_a_replacement_and_without_qa_it_says_how_many_there_are() -> None:
    world = World(metadata_of(3, 3, 2), 3)
    world.put(0, lac=-1)
    for name in ("b1", "b2"):
        world.bookies[BookieId(name)].refuses_writes = Status.READ_ONLY
    recoverer = world.recoverer(can_replace=False).run()
    assert isinstance(recoverer.error, NotEnoughBookiesError)
    assert "to 2 bookies, 1 of its write set" in str(recoverer.error)
    assert world.metadata.value.state is LedgerState.IN_RECOVERY


def test_g17_a_bookie_that_holds_the_ledger_for_deleted_ends_recovery() -> None:
    """Also the first of three to answer: no other bookie is asked in its place."""
    machine = Recovery(
        metadata_of(3, 3, 2).with_state(LedgerState.IN_RECOVERY),
        DIGEST,
        lambda failed, ensemble: (*ensemble[:1], BookieId("b9"), *ensemble[2:]),
        read_ahead=1,
    )
    (read,) = begin(machine, NONE, NONE, (Status.OK, packet_of(0, lac=-1)))
    machine.on_read_reply(read.bookie, 0, Status.OK, packet_of(0))
    (ended,) = machine.on_write_reply(0, BookieId("b1"), Status.FENCED)
    assert isinstance(ended, RecoveryFailed)
    assert isinstance(ended.error, LedgerFencedError)
    assert "b1 refuses entry 0" in str(ended.error)


def test_g17_a_ledger_that_all_its_bookies_hold_for_deleted_stays_as_it_is() -> None:
    world = World(metadata_of(3, 3, 2), 4)
    world.put(0, lac=-1)
    for bookie in bookie_ids(3):
        world.bookies[bookie].refuses_writes = Status.FENCED
    recoverer = world.recoverer().run()
    assert isinstance(recoverer.error, LedgerFencedError)
    assert world.metadata.value.state is LedgerState.IN_RECOVERY


def test_g8_replacing_takes_back_acknowledgements_before_anything_is_counted() -> None:
    """Entry 0 has one of two; b1, which gave it, fails on entry 1: entry 0 has none again."""
    metadata = metadata_of(3, 3, 2).with_state(LedgerState.IN_RECOVERY)

    def replace_bookies(failed, ensemble):
        return tuple(BookieId("b9") if i in failed else b for i, b in enumerate(ensemble))

    machine = Recovery(metadata, DIGEST, replace_bookies, read_ahead=2)
    reads = begin(machine, NONE, NONE, (Status.OK, packet_of(1, lac=-1)))
    for read in reads:
        machine.on_read_reply(read.bookie, read.entry_id, Status.OK, packet_of(read.entry_id))
    assert machine.on_write_reply(0, BookieId("b1"), Status.OK) == []
    resent = machine.on_write_reply(1, BookieId("b1"), Status.IO_ERROR)
    assert [(w.bookies, w.entry_id) for w in resent] == [(("b9",), 0), (("b9",), 1)]
    assert machine.on_write_reply(0, BookieId("b2"), Status.OK) == []
    assert machine.on_write_reply(0, BookieId("b1"), Status.OK) == [], "no longer of the ensemble"
    assert machine.on_write_reply(0, BookieId("b9"), Status.OK)[0] == (1, 0)


def test_4_6_closing_adopts_what_another_recoverer_closed() -> None:
    found = metadata_of(3, 3, 2).closed(EntryId(4), 40)
    assert closed_metadata(found, CloseLedger(3, 30, ())) is None


def test_4_6_closing_keeps_earlier_segments_as_they_are_now() -> None:
    """Re-replication put b7 into the first segment while recovery ran."""
    moved = Segment(EntryId(0), tuple(BookieId(b) for b in ("b7", "b1", "b2")))
    last = Segment(EntryId(5), bookie_ids(3))
    found = metadata_of(3, 3, 2, last)
    found = type(found)(**{**_fields(found), "segments": (moved, last)})
    new = Segment(EntryId(8), tuple(BookieId(b) for b in ("b0", "b1", "b3")))
    wanted = closed_metadata(found, CloseLedger(9, 90, (new,)))
    assert wanted is not None
    assert wanted.segments == (moved, last, new)


def _fields(metadata):
    return {name: getattr(metadata, name) for name in metadata.__dataclass_fields__}


def test_no_segment_begins_after_the_last_entry() -> None:
    """A bookie fails when all that will be found is confirmed already."""
    metadata = metadata_of(3, 3, 2).with_state(LedgerState.IN_RECOVERY)
    machine = Recovery(
        metadata, DIGEST, lambda _, e: (*e[:2], BookieId("b9")), read_ahead=1
    )  # fmt: skip
    (read,) = begin(machine, NONE, NONE, (Status.OK, packet_of(0)))
    machine.on_read_reply(read.bookie, 0, Status.OK, packet_of(0))
    machine.on_write_reply(0, BookieId("b0"), Status.OK)
    machine.on_write_reply(0, BookieId("b1"), Status.OK)
    assert machine.on_write_reply(0, BookieId("b2"), Status.IO_ERROR) == []
    (second,) = machine.on_read_reply(BookieId("b1"), 1, Status.NO_ENTRY, b"")
    assert machine.on_read_reply(second.bookie, 1, Status.NO_ENTRY, b"") == [
        CloseLedger(0, length_up_to(0), ())
    ]


def test_reads_run_ahead_of_writes_within_the_window() -> None:
    metadata = metadata_of(3, 3, 2)
    machine = Recovery(metadata, DIGEST, lambda *_: None, read_ahead=5)
    reads = begin(machine, NONE, NONE, NONE)
    assert [read.entry_id for read in reads] == [0, 1, 2, 3, 4]
    actions = machine.on_read_reply(reads[0].bookie, 0, Status.OK, packet_of(0))
    assert [type(action).__name__ for action in actions] == ["WriteEntry", "ReadEntry"]


def test_the_window_is_bounded_in_bytes_too() -> None:
    machine = Recovery(metadata_of(3, 3, 2), DIGEST, lambda *_: None, read_ahead=2, bytes_max=1)
    reads = begin(machine, NONE, NONE, NONE)
    assert len(reads) == 2
    machine.on_read_reply(reads[1].bookie, 1, Status.OK, packet_of(1))
    (write,) = machine.on_read_reply(reads[0].bookie, 0, Status.OK, packet_of(0))[:1]
    assert write.entry_id == 0


@pytest.mark.parametrize("crash_after", range(0, 60, 3))
def test_a_recovery_that_crashed_anywhere_is_done_by_the_next(crash_after: int) -> None:
    world = World(metadata_of(3, 3, 2), 4, seed=crash_after)
    for entry_id in range(6):
        world.put(entry_id, lac=1 if entry_id > 2 else None)
    world.put(6, 0, lac=1)
    world.bookies[BookieId("b2")].refuses_writes = Status.IO_ERROR
    first = world.recoverer()
    first.start()
    for _ in range(crash_after):
        if world.events:
            world.events.pop(world.rng.randrange(len(world.events)))()
    first.crashed = True
    world.recoverer().run()
    found = world.metadata.value
    assert found.is_closed
    assert found.last_entry_id in (5, 6)
    assert found.length == length_up_to(found.last_entry_id)
