"""The machines of reading, LAC queries and long polls, without anything around them."""

import random

import pytest

from bookie.errors import (
    BookieError,
    DigestMismatchError,
    LedgerRecoveryError,
    NoSuchEntryError,
    NoSuchLedgerError,
    ReadError,
)
from bookie.ledger.distribution import write_set
from bookie.ledger.entry_read import SPECULATION_TICKS
from bookie.ledger.lac import LacQuery
from bookie.ledger.reader import (
    Action,
    AskEntry,
    DeliverEntry,
    RangeRead,
    ReadEnded,
    ReportDamage,
    ReportSlow,
)
from bookie.ledger.tail import Poll, PollEnded, TailPoll
from bookie.ledger.types import BookieId, EntryId, Segment, Status
from tests.fixtures.recovery_world import DIGEST, LEDGER, metadata_of, packet_of, payload_of

DENIED = (Status.NO_ENTRY, b"")


def ticks(machine: RangeRead | TailPoll) -> list:
    """Let the time pass after which another replica is asked."""
    actions = []
    for _ in range(SPECULATION_TICKS):
        actions += machine.on_tick()
    return actions


# --- ranges ---------------------------------------------------------------------------------------


def test_neighbouring_entries_are_asked_of_different_bookies() -> None:
    reads = RangeRead(metadata_of(3, 2, 2), DIGEST, 0, 5).start()
    assert [action.bookie for action in reads] == ["b0", "b1", "b2", "b0", "b1", "b2"]


def test_each_segment_is_asked_of_its_own_ensemble() -> None:
    later = Segment(EntryId(2), tuple(BookieId(b) for b in ("b7", "b8", "b9")))
    reads = RangeRead(metadata_of(3, 3, 2, later), DIGEST, 0, 3).start()
    assert [action.bookie for action in reads] == ["b0", "b1", "b9", "b7"]


def test_entries_are_delivered_in_order_whatever_order_they_come_in() -> None:
    machine = RangeRead(metadata_of(3, 3, 2), DIGEST, 0, 2)
    asked = machine.start()
    for action in asked[1:]:
        assert machine.on_reply(*action, Status.OK, packet_of(action.entry_id)) == []
    delivered = machine.on_reply(*asked[0], Status.OK, packet_of(0))
    assert [type(action) for action in delivered] == [DeliverEntry] * 3 + [ReadEnded]
    assert [action.entry.entry_id for action in delivered[:3]] == [0, 1, 2]


def test_4_7_an_error_a_denial_and_damage_lead_to_the_next_replica() -> None:
    machine = RangeRead(metadata_of(4, 4, 2), DIGEST, 0, 0)
    (asked,) = machine.start()
    (asked,) = machine.on_reply(*asked, Status.IO_ERROR, b"")
    assert asked.bookie == "b1"
    (asked,) = machine.on_reply(*asked, *DENIED)
    damage, asked = machine.on_reply(*asked, Status.OK, packet_of(0)[:-1] + b"?")
    assert damage == ReportDamage(BookieId("b2"), 0)
    deliver, end = machine.on_reply(*asked, Status.OK, packet_of(0))
    assert deliver.entry.payload == payload_of(0)
    assert end == ReadEnded(None)


def last(machine: RangeRead, *answers: tuple[Status, bytes]) -> ReadEnded:
    (asked,) = machine.start()
    actions: list[Action] = []
    for answer in answers:
        actions = machine.on_reply(*asked, *answer)
        asked = actions[-1]
    assert isinstance(asked, ReadEnded)
    return asked


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([DENIED] * 3, NoSuchEntryError),
        ([(Status.NO_LEDGER, b"")] * 3, NoSuchLedgerError),
        ([(Status.NO_LEDGER, b""), DENIED, DENIED], NoSuchEntryError),
        ([DENIED, (Status.IO_ERROR, b""), DENIED], ReadError),
        ([(Status.OK, b"junk" * 20), (Status.IO_ERROR, b""), DENIED], DigestMismatchError),
    ],
)
def test_4_7_the_error_is_the_most_telling_one(answers, error) -> None:
    """NoSuchEntry only when all replicas said so; a real error is never hidden by it."""
    machine = RangeRead(metadata_of(3, 3, 2), DIGEST, 0, 0)
    assert type(last(machine, *answers).error) is error


def test_4_7_a_silent_replica_is_passed_over_and_may_still_win() -> None:
    machine = RangeRead(metadata_of(3, 3, 2), DIGEST, 0, 0)
    (first,) = machine.start()
    slow, second = ticks(machine)
    assert slow == ReportSlow(BookieId("b0"))
    assert second == AskEntry(BookieId("b1"), 0)
    # b1 fails: b2 is asked, and b0 answers after all.
    assert machine.on_reply(*second, Status.IO_ERROR, b"") == [AskEntry(BookieId("b2"), 0)]
    deliver, _ = machine.on_reply(*first, Status.OK, packet_of(0))
    assert deliver.entry.entry_id == 0
    assert machine.on_reply(BookieId("b2"), 0, Status.OK, packet_of(0)) == []


def test_who_has_answered_is_not_called_slow() -> None:
    """b0 denied it in time; b1, asked after it, is the slow one."""
    machine = RangeRead(metadata_of(3, 3, 2), DIGEST, 0, 0)
    (first,) = machine.start()
    machine.on_reply(*first, *DENIED)
    assert ticks(machine) == [ReportSlow(BookieId("b1")), AskEntry(BookieId("b2"), 0)]
    (ended_or_not,) = [machine.on_reply(BookieId("b2"), 0, *DENIED)]
    assert ended_or_not == []
    assert ticks(machine) == []


def test_a_second_answer_for_an_entry_that_waits_counts_once() -> None:
    """Entry 1 arrives from two replicas while entry 0 is awaited: the window counts it once."""
    machine = RangeRead(metadata_of(3, 3, 2), DIGEST, 0, 99, entries_max=8, bytes_max=200)
    first, second, *_ = machine.start()
    ticks(machine)
    for bookie in (second.bookie, BookieId("b2"), BookieId("b0")):
        assert machine.on_reply(bookie, 1, Status.OK, packet_of(1)) == []
    delivered = machine.on_reply(*first, Status.OK, packet_of(0))
    taken = [machine.taken(action.entry) for action in delivered]
    assert [len(asked) for asked in taken] == [1, 1]


def test_it_does_not_fail_while_a_replica_may_still_answer() -> None:
    machine = RangeRead(metadata_of(2, 2, 1), DIGEST, 0, 0)
    (first,) = machine.start()
    _, second = ticks(machine)
    assert machine.on_reply(*second, Status.IO_ERROR, b"") == []
    (ended,) = machine.on_reply(*first, Status.TIMED_OUT, b"")
    assert ended.error is not None


def test_all_replicas_at_once_when_there_is_no_patience() -> None:
    asked = RangeRead(metadata_of(3, 3, 2), DIGEST, 0, 0, is_asking_all=True).start()
    assert [action.bookie for action in asked] == ["b0", "b1", "b2"]


def test_4_7_replicas_are_ordered_by_rank_and_else_by_write_set() -> None:
    ranks = {"b0": 1, "b1": 2, "b2": 0, "b3": 3, "b4": 0}
    machine = RangeRead(metadata_of(5, 5, 2), DIGEST, 3, 3, rank=lambda b: ranks[b])
    order = []
    actions = machine.start()
    while isinstance(actions[-1], AskEntry):
        order.append(actions[-1].bookie)
        actions = machine.on_reply(*actions[-1], Status.IO_ERROR, b"")
    assert order == ["b4", "b2", "b0", "b1", "b3"]


def test_the_window_opens_with_what_is_taken_and_stays_bounded() -> None:
    machine = RangeRead(metadata_of(3, 3, 2), DIGEST, 0, 9999, entries_max=32)
    asked = list(machine.start())
    assert len(asked) == 8
    held = 8
    most = 0
    for _ in range(500):
        action = asked.pop(0)
        for done in machine.on_reply(*action, Status.OK, packet_of(action.entry_id)):
            if isinstance(done, DeliverEntry):
                more = machine.taken(done.entry)
                asked += more
                held += len(more) - 1
                most = max(most, held)
    assert most == 32


def test_the_window_is_bounded_in_bytes_by_what_arrived() -> None:
    machine = RangeRead(metadata_of(1, 1, 1), DIGEST, 0, 99, entries_max=64, bytes_max=10_000)
    big = DIGEST.seal(LEDGER, 0, -1, 9_000, b"x" * 9_000)
    asked = machine.start()
    (deliver,) = machine.on_reply(*asked[0], Status.OK, big)
    assert machine.taken(deliver.entry) == [], "seven more of that size are on their way"


def test_4_7_the_lac_that_comes_along_is_noted() -> None:
    machine = RangeRead(metadata_of(3, 3, 2), DIGEST, 0, 1)
    first, second = machine.start()
    machine.on_reply(*first, Status.OK, packet_of(0), 41)
    machine.on_reply(*second, Status.OK, packet_of(1), 40)
    assert machine.max_lac == 41


@pytest.mark.parametrize("seed", range(100))
def test_random_answers_in_random_order(seed: int) -> None:
    """Whatever fails: each entry that has an intact replica is delivered once, in order."""
    read_with_random_answers(seed)


def test_random_answers_end_in_both_ways() -> None:
    errors = [read_with_random_answers(seed) for seed in range(100)]
    assert 10 < errors.count(None) < 90


def read_with_random_answers(seed: int) -> BookieError | None:
    """Read a range to its end; return what it ended with."""
    rng = random.Random(seed)
    e = rng.randint(1, 5)
    qw = rng.randint(1, e)
    qa = rng.randint(1, qw)
    count = rng.randint(1, 40)
    good_share = rng.choice((3, 12, 40))
    metadata = metadata_of(e, qw, qa)
    answers = {}
    for entry_id in range(count):
        for index in write_set(entry_id, e, qw):
            good = (Status.OK, packet_of(entry_id))
            bad = (Status.OK, packet_of(entry_id)[:-1] + b"?")
            answers[f"b{index}", entry_id] = rng.choice(
                [*[good] * good_share, bad, DENIED, (Status.IO_ERROR, b""), None]
            )
    machine = RangeRead(metadata, DIGEST, 0, count - 1, entries_max=rng.choice((1, 4, 16)))
    pending = list(machine.start())
    delivered: list[int] = []
    ended: ReadEnded | None = None
    late: list[AskEntry] = []
    while ended is None:
        if pending:
            action = pending.pop(rng.randrange(len(pending)))
        elif (more := ticks(machine)) and any(isinstance(a, AskEntry) for a in more):
            pending += [a for a in more if isinstance(a, AskEntry)]
            continue
        else:
            action = late.pop()
            answers[action] = (Status.TIMED_OUT, b"")
        answer = answers[action]
        if answer is None:
            late.append(action)
            continue
        done = machine.on_reply(*action, *answer)
        while done:
            step = done.pop(0)
            if isinstance(step, DeliverEntry):
                delivered.append(step.entry.entry_id)
                done += machine.taken(step.entry)
            elif isinstance(step, AskEntry):
                pending.append(step)
            elif isinstance(step, ReadEnded):
                ended = step
    assert delivered == list(range(len(delivered)))
    if ended.error is None:
        assert len(delivered) == count
    else:
        lost = len(delivered)
        replicas = [answers[f"b{i}", lost] for i in write_set(lost, e, qw)]
        assert (Status.OK, packet_of(lost)) not in replicas
    return ended.error


# --- LAC queries ----------------------------------------------------------------------------------


def query(*sizes: int) -> LacQuery:
    return LacQuery(metadata_of(*sizes), DIGEST, is_fencing=False)


def test_4_7_the_greatest_lac_of_packets_and_entries_wins() -> None:
    machine = query(3, 3, 2)
    assert not machine.on_reply(0, Status.OK, packet_of(5, lac=3), DIGEST.seal_lac(LEDGER, 4))
    assert machine.on_reply(1, Status.OK, packet_of(4))
    assert (machine.lac, machine.is_done) == (4, True)
    # A late answer may know more.
    assert not machine.on_reply(2, Status.OK, b"", DIGEST.seal_lac(LEDGER, 5))
    assert machine.lac == 5


def test_damage_is_unknown_to_a_plain_query_and_reported() -> None:
    machine = query(3, 3, 2)
    machine.on_reply(0, Status.OK, packet_of(5)[:-1] + b"?")
    assert not machine.on_reply(1, Status.NO_ENTRY)
    assert machine.on_reply(2, Status.OK, b"", DIGEST.seal_lac(LEDGER, 1))
    assert (machine.is_done, machine.lac, machine.damaged) == (True, 1, ["b0"])


def test_coverage_by_damaged_packets_alone_is_no_answer() -> None:
    """All are fenced, and none has said anything that can be believed."""
    machine = LacQuery(metadata_of(3, 3, 2), DIGEST, is_fencing=True)
    for index in range(2):
        assert not machine.on_reply(index, Status.OK, b"junk" * 20)
    assert machine.on_reply(2, Status.OK, b"junk" * 20)
    assert isinstance(machine.error, LedgerRecoveryError)


def test_damage_everywhere_is_the_error() -> None:
    machine = query(2, 2, 1)
    for index in range(2):
        machine.on_reply(index, Status.OK, b"junk" * 20)
    assert isinstance(machine.error, DigestMismatchError)


@pytest.mark.parametrize("seed", range(200))
def test_g3_no_acknowledged_entry_hides_from_a_covered_query(seed: int) -> None:
    """For all of E, Qw, Qa: if covered, every ack quorum of every entry has a known member."""
    rng = random.Random(seed)
    e = rng.randint(1, 6)
    qw = rng.randint(1, e)
    qa = rng.randint(1, qw)
    machine = query(e, qw, qa)
    known = set()
    order = list(range(e))
    rng.shuffle(order)
    for index in order:
        if rng.random() < 0.7:
            known.add(index)
            machine.on_reply(index, rng.choice((Status.NO_ENTRY, Status.NO_LEDGER)))
        else:
            machine.on_reply(index, rng.choice((Status.TIMED_OUT, Status.IO_ERROR)))
        is_sure = all(
            sum(i not in known for i in write_set(entry_id, e, qw)) < qa for entry_id in range(e)
        )
        assert machine.is_done == is_sure
        if machine.is_decided:
            break
    assert machine.is_decided


# --- long polls -----------------------------------------------------------------------------------


def poll(entry_id: int = 4, *sizes: int, is_parallel: bool = False) -> TailPoll:
    return TailPoll(metadata_of(*(sizes or (3, 3, 2))), DIGEST, entry_id, is_parallel=is_parallel)


def test_the_first_asked_is_where_the_next_entry_goes() -> None:
    """The LAC reaches the bookies with the entry after it."""
    assert poll(4).start() == [Poll(2, BookieId("b2"), 3)]


def test_an_entry_ends_the_poll() -> None:
    machine = poll(4)
    machine.start()
    (ended,) = machine.on_reply(2, Status.OK, 4, packet_of(4), 4)
    assert (ended.lac, ended.entry.entry_id, ended.error) == (4, 4, None)
    assert machine.on_reply(2, Status.OK, 4, packet_of(4), 4) == []


def test_a_lac_without_the_entry_ends_the_poll() -> None:
    """The bookie knows of the LAC and is not in the write set of the entry."""
    machine = poll(4)
    machine.start()
    assert machine.on_reply(2, Status.OK, -1, b"", 9) == [PollEnded(9, None, None)]


def test_4_1_4_7_no_news_takes_e_minus_qa_plus_one_empty_answers() -> None:
    machine = poll(4, 5, 3, 3)
    machine.start()
    assert machine.on_reply(0, Status.OK, -1, b"", 3) == [Poll(1, BookieId("b1"), 3)]
    assert machine.on_reply(1, Status.NO_LEDGER, -1, b"", None) == [Poll(2, BookieId("b2"), 3)]
    assert machine.on_reply(2, Status.OK, -1, b"", 3) == [PollEnded(3, None, None)]


def test_failures_lead_on_and_all_of_them_to_an_error() -> None:
    machine = poll(4)
    machine.start()
    assert machine.on_reply(2, Status.TIMED_OUT, -1, b"", None) == [Poll(0, BookieId("b0"), 3)]
    assert machine.on_reply(0, Status.OK, -1, b"", 3) == [Poll(1, BookieId("b1"), 3)]
    (ended,) = machine.on_reply(1, Status.IO_ERROR, -1, b"", None)
    assert (ended.lac, ended.entry) == (3, None)
    assert isinstance(ended.error, ReadError)


def test_an_entry_beyond_what_is_confirmed_is_not_delivered() -> None:
    """A bookie that sends entry 4 and knows of LAC 3 only is wrong; no reader may see it yet."""
    machine = poll(4)
    machine.start()
    assert machine.on_reply(2, Status.OK, 4, packet_of(4), 3) == [Poll(0, BookieId("b0"), 3)]
    assert machine.on_reply(0, Status.OK, -1, b"", 3) == [PollEnded(3, None, None)]


def test_damage_is_reported_and_not_delivered() -> None:
    machine = poll(4)
    machine.start()
    damage, ended = machine.on_reply(2, Status.OK, 4, packet_of(4)[:-1] + b"?", 4)
    assert damage == ReportDamage(BookieId("b2"), 4)
    # The LAC says that the entry is there: read it elsewhere.
    assert ended == PollEnded(4, None, None)


def test_a_quiet_bookie_is_not_the_only_one_asked_for_long() -> None:
    machine = poll(4)
    machine.start()
    assert ticks(machine) == [Poll(0, BookieId("b0"), 3)]
    assert ticks(machine) == [Poll(1, BookieId("b1"), 3)]
    assert ticks(machine) == []


def test_parallel_asks_all_at_once() -> None:
    machine = poll(4, is_parallel=True)
    assert [action.bookie for action in machine.start()] == ["b2", "b0", "b1"]
    assert machine.on_reply(0, Status.OK, -1, b"", 3) == []
    assert machine.on_reply(1, Status.OK, -1, b"", 3) == [PollEnded(3, None, None)]
