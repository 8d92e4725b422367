"""LedgerLog over ledgers in memory, entry by entry: what shares one, what a broken ledger means."""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from bookie.config import ClientConfig
from bookie.errors import BookieError, WriteError
from bookie.ledger.record_frame import split
from bookie.runtime.drivers import ThreadDriver, new_mutex
from herdpy.errors import Error, InvariantViolation, LogFailedError, OperationalError, Retry
from herdpy.limits import record_bytes_max
from herdpy.log.interfaces import Append, LogSpaceError
from herdpy.log.ledger_log import LedgerLog, OnAdded
from herdpy.log.record import NOOP
from herdpy.model.durability import Durability
from herdpy.model.lsn import START_LSN, Lsn
from tests.fixtures.interrupts import LineInterrupter
from tests.fixtures.logs import put

MIB = 1024 * 1024


class HeldChain:
    """Ledgers whose entries are acknowledged when the test says so, or at once."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.is_held = is_held
        self.sent: deque[tuple[int, list[bytes], OnAdded]] = deque()
        self.ledgers: list[list[list[bytes]]] = []
        """The entries of each ledger that are in it for good, behind its header."""
        self.fails_to_begin: Error | None = None
        self.fails_to_end: Error | None = None
        self.kept_at_end = 0
        """Of the entries that were sent and not acknowledged, so many are found by the end."""
        self.ends = 0
        self.is_closed = False
        self._next_entry = 0

    def replay(self, after: Lsn) -> Iterator[tuple[int, int, list[bytes]]]:
        for ledger_id, entries in enumerate(self.ledgers):
            for entry_id, records in enumerate(entries, 1):
                if (ledger_id, entry_id) >= after[:2]:
                    yield ledger_id, entry_id, records

    def begin(self) -> int:
        if self.fails_to_begin is not None:
            raise self.fails_to_begin
        self.ledgers.append([])
        self._next_entry = 1
        return len(self.ledgers) - 1

    def send(self, payload: bytes, on_added: OnAdded) -> None:
        self.sent.append((self._next_entry, split(payload), on_added))
        self._next_entry += 1

    def end(self) -> int:
        if self.fails_to_end is not None:
            raise self.fails_to_end
        self.ends += 1
        for _ in range(min(self.kept_at_end, len(self.sent))):
            self.ledgers[-1].append(self.sent.popleft()[1])
        self.sent.clear()
        return len(self.ledgers[-1])

    def close(self) -> None:
        self.is_closed = True

    # --- the test's ------------------------------------------------------------------------------

    def acknowledge(self, count: int = 1) -> None:
        for _ in range(count):
            entry_id, records, on_added = self.sent.popleft()
            self.ledgers[-1].append(records)
            on_added(entry_id, None)

    def fail(self, error: BookieError) -> None:
        self.sent[0][2](-1, error)

    @property
    def frames(self) -> list[list[bytes]]:
        return [records for _, records, _ in self.sent]


class PromptChain(HeldChain):
    """Acknowledges by a thread of its own, in order, as the loop of a client does."""

    def __init__(self, driver: ThreadDriver) -> None:
        super().__init__()
        self._calls: SimpleQueue[Any] = SimpleQueue()
        self._ending = new_mutex()
        self._worker = driver.spawn("acknowledger", self._work)

    def send(self, payload: bytes, on_added: OnAdded) -> None:
        super().send(payload, on_added)
        self._calls.put(self.sent[-1])

    def _work(self) -> None:
        while (sent := self._calls.get()) is not None:
            with self._ending:
                if self.sent and self.sent[0] is sent:  # else the ledger has ended
                    self.acknowledge()

    def end(self) -> int:
        with self._ending:
            return super().end()

    def close(self) -> None:
        super().close()
        self._calls.put(None)
        self._worker.join()


def log_of(chain: HeldChain, *, ledger_bytes_max: int = MIB) -> LedgerLog:
    return LedgerLog(chain, ThreadDriver(), ledger_bytes_max=ledger_bytes_max)


def put_all(log: LedgerLog, *records: bytes) -> list[Lsn]:
    return [put(log, record) for record in records]


def test_what_comes_while_two_entries_travel_shares_the_next_one() -> None:
    chain = HeldChain()
    log = log_of(chain)
    for record in (b"a", b"b", b"c", b"d", b"e"):
        put(log, record)
        log.request(Durability.SYNC)
    assert chain.frames == [[b"a"], [b"b"]]
    chain.acknowledge()
    assert chain.frames == [[b"b"], [b"c", b"d", b"e"]]
    assert log.durable_lsn == Lsn(0, 1, 0)
    put(log, b"f")  # its durability was not asked for
    chain.acknowledge(2)
    assert chain.frames == []
    assert log.durable_lsn == Lsn(0, 3, 2) < log.last_lsn == Lsn(0, 4, 0)


def test_positions_are_those_that_entries_get() -> None:
    chain = HeldChain()
    log = log_of(chain)
    found = put_all(log, b"a", b"b")
    log.request(Durability.SYNC)
    found += put_all(log, b"c")
    log.request(Durability.SYNC)
    found += put_all(log, b"d")
    chain.acknowledge(2)
    log.request(Durability.SYNC)
    chain.acknowledge()
    replayed = [(lsn, record) for lsn, record in log_of(chain).replay(START_LSN)]
    assert replayed == list(zip(found, [b"a", b"b", b"c", b"d"], strict=True))


def test_a_full_frame_leaves_without_being_asked_for() -> None:
    chain = HeldChain()
    log = log_of(chain, ledger_bytes_max=64 * MIB)
    last = put(log, *[b"x" * 600_000] * 5)
    assert last == Lsn(0, 5, 0)
    log.request(Durability.NONE)
    assert [len(frame) for frame in chain.frames] == [1] * 4  # the last one is open
    log.request(Durability.SYNC)
    assert len(chain.frames) == 4  # two and more are under way
    chain.acknowledge(3)
    assert len(chain.frames) == 2


def test_what_is_larger_than_a_client_takes_at_once_leaves_by_and_by() -> None:
    """A client refuses what is too much, and an entry that is refused ends the leader."""
    taken_bytes = ClientConfig().pending_add_bytes_max
    chain = HeldChain()
    log = log_of(chain, ledger_bytes_max=MIB)
    last = put(log, *[b"x" * 1_000_000] * (2 * taken_bytes // 1_000_000))
    log.request(Durability.SYNC)
    while log.durable_lsn < last:
        under_way = len(chain.sent)
        assert 0 < under_way * MIB <= taken_bytes / 2
        assert [entry for entry, _, _ in chain.sent] == list(
            range(log.durable_lsn.entry_id + 1, log.durable_lsn.entry_id + 1 + under_way)
        )
        chain.acknowledge()
    assert not chain.sent


def test_a_frame_of_tiny_records_is_an_entry_that_a_bookie_takes() -> None:
    chain = HeldChain()
    log = log_of(chain, ledger_bytes_max=64 * MIB)
    put(log, *[b"x"] * 20_000)
    log.request(Durability.SYNC)
    assert [len(frame) for frame in chain.frames] == [16_384, 3_616]


def test_a_ledger_has_its_bytes_and_everything_before_the_next_is_settled() -> None:
    driver = ThreadDriver()
    chain = PromptChain(driver)
    log = LedgerLog(chain, driver, ledger_bytes_max=1_000)
    positions = put_all(log, *(b"%03d" % n * 30 for n in range(40)))
    log.close()
    assert positions == sorted(set(positions))
    assert len(chain.ledgers) == 4
    assert chain.ends == 4
    found = [record for _, record in log_of(chain).replay(START_LSN)]
    assert found == [b"%03d" % n * 30 for n in range(40)]


def test_a_tick_is_an_entry_and_no_growth_of_the_log() -> None:
    log = log_of(chain := HeldChain(), ledger_bytes_max=64)
    put(log, b"a")
    log.request(Durability.SYNC)
    chain.acknowledge()
    for number in range(2, 100):
        assert put(log, NOOP) == Lsn(0, number, 0)
        log.request(Durability.SYNC)
        chain.acknowledge()
    assert (log.bytes_appended, log.ledger_bytes, log.durable_lsn) == (1, 1, Lsn(0, 99, 0))
    assert chain.ends == 0


def test_a_ledger_is_ended_at_will() -> None:
    driver = ThreadDriver()
    chain = PromptChain(driver)
    log = LedgerLog(chain, driver, ledger_bytes_max=MIB)
    log.roll()
    assert chain.ledgers == []
    assert [put(log, b"a"), put(log, b"b")] == [Lsn(0, 1, 0), Lsn(0, 1, 1)]
    log.roll()
    log.roll()
    assert put(log, b"c") == Lsn(2, 1, 0)
    log.close()
    assert chain.ledgers == [[[b"a", b"b"]], [], [[b"c"]]]


def test_what_others_append_while_a_ledger_is_ended_is_in_the_next() -> None:
    driver = ThreadDriver()
    chain = PromptChain(driver)
    log = LedgerLog(chain, driver, ledger_bytes_max=400)
    told = Told(log)
    monitor, expected = new_mutex(), list[bytes]()

    def write(number: int) -> None:
        for count in range(100):
            record = b"%d.%03d" % (number, count) + b"x" * (count * (number + 7) % 97)
            append = Append((record,))
            while append.lsn is None:
                try:
                    with monitor:
                        log.append(append)
                        expected.append(record)
                except LogSpaceError:
                    log.prepare(len(record))
            log.request(Durability.SYNC)

    writers = [driver.spawn(f"writer {number}", partial(write, number)) for number in range(4)]
    for each in writers:
        each.join()
    log.close()
    assert told.failures.empty()
    assert [record for _, record in log_of(chain).replay(START_LSN)] == expected
    assert len(chain.ledgers) > 10


def test_more_than_may_be_kept_waits_for_what_is_under_way() -> None:
    chain = HeldChain()
    log = log_of(chain, ledger_bytes_max=2**40)
    put(log, b"first")
    put(log, *[b"x" * MIB] * 15)
    with pytest.raises(LogSpaceError):
        log.append(Append((b"x" * MIB,)))
    log.append(Append((b"rollback",)), is_urgent=True)
    driver = ThreadDriver()
    preparing = driver.spawn("prepare", lambda: log.prepare(MIB))
    while preparing.is_alive:
        if chain.sent:
            chain.acknowledge()
    log.append(Append((b"x" * MIB,)))


class Told:
    def __init__(self, log: LedgerLog) -> None:
        self.durable: SimpleQueue[Lsn] = SimpleQueue()
        self.failures: SimpleQueue[Error] = SimpleQueue()
        log.start(self.durable.put, self.failures.put)


def test_a_broken_ledger_that_has_everything_is_followed_by_another() -> None:
    """The acknowledgements were lost, the entries were not."""
    chain = HeldChain()
    log = log_of(chain)
    told = Told(log)
    put_all(log, b"a")
    log.request(Durability.SYNC)
    put_all(log, b"b")
    log.request(Durability.SYNC)
    chain.kept_at_end = 2
    chain.fail(WriteError("no quorum"))
    assert told.durable.get(timeout=10) == Lsn(0, 2, 0)
    assert log.failure is None
    assert put(log, b"c") == Lsn(1, 1, 0)
    log.request(Durability.SYNC)
    chain.acknowledge()
    log.close()
    assert told.failures.empty()
    assert [record for _, record in log_of(chain).replay(START_LSN)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_what_the_end_of_a_broken_ledger_leaves_out_is_surely_not_there(kept: int) -> None:
    chain = HeldChain()
    log = log_of(chain)
    told = Told(log)
    positions = put_all(log, b"durable")
    log.request(Durability.SYNC)
    chain.acknowledge()
    for record in (b"1", b"2"):
        positions += put_all(log, record)
        log.request(Durability.SYNC)
    positions += put_all(log, b"open")
    chain.kept_at_end = kept
    chain.fail(WriteError("no quorum"))
    assert told.failures.get(timeout=10) is log.failure
    assert log.failed_after == log.durable_lsn == positions[kept]
    assert "no quorum" in str(log.failure)
    for act in (log.sync, log.write, lambda: put(log, b"late"), lambda: log.prepare(1)):
        with pytest.raises(LogFailedError) as caught:
            act()
        assert caught.value is log.failure
    log.close()
    assert chain.is_closed
    found = [record for _, record in log_of(chain).replay(START_LSN)]
    assert found == [b"durable", b"1", b"2"][: kept + 1]


def test_a_wait_for_durability_ends_with_the_ledger() -> None:
    chain = HeldChain()
    log = log_of(chain)
    Told(log)
    put(log, b"a")
    outcomes: SimpleQueue[object] = SimpleQueue()

    def sync() -> None:
        try:
            outcomes.put(log.sync())
        except LogFailedError as error:
            outcomes.put(error)

    driver = ThreadDriver()
    waiting = driver.spawn("sync", sync)
    while not chain.sent:
        pass
    chain.fail(WriteError("no quorum"))
    assert outcomes.get(timeout=10) is log.failure
    waiting.join()
    log.close()


def test_while_the_end_is_unknown_nothing_sent_is_decided() -> None:
    chain = HeldChain()
    log = log_of(chain)
    told = Told(log)
    durable = put(log, b"durable")
    log.request(Durability.SYNC)
    chain.acknowledge()
    put(log, b"1")
    log.request(Durability.SYNC)
    sent = put(log, b"2")
    log.request(Durability.SYNC)
    put(log, b"never sent")
    chain.fails_to_end = LogFailedError("no answer of the store")
    chain.fail(WriteError("no quorum"))
    assert told.failures.get(timeout=10) is chain.fails_to_end
    assert log.failure is chain.fails_to_end
    assert (log.durable_lsn, log.failed_after) == (durable, sent)
    log.close()


def test_a_ledger_that_cannot_be_made_now_is_made_later() -> None:
    chain = HeldChain()
    log = log_of(chain)
    chain.fails_to_begin = OperationalError("2 of 3 bookies", sqlstate="58030", retry=Retry.SAFE)
    with pytest.raises(OperationalError):
        put(log, b"a")
    assert log.failure is None
    chain.fails_to_begin = None
    put(log, b"a")
    chain.fails_to_begin = LogFailedError("another node has claimed the list")
    chain.kept_at_end = 1
    log.request(Durability.SYNC)
    chain.fail(WriteError("fenced"))
    with pytest.raises(LogFailedError) as caught:
        log.prepare(1)
    assert caught.value is log.failure is chain.fails_to_begin
    assert log.failed_after == log.durable_lsn == Lsn(0, 1, 0)
    log.close()


def test_an_entry_that_gets_another_number_breaks_the_ledger() -> None:
    chain = HeldChain()
    log = log_of(chain)
    put(log, b"a")
    log.request(Durability.SYNC)
    chain.sent[0][2](7, None)
    with pytest.raises(LogFailedError, match="expected entry 1, was told that 7"):
        log.sync()
    log.close()


def test_a_refusal_that_comes_before_earlier_acknowledgements_breaks_the_ledger() -> None:
    chain = HeldChain()
    log = log_of(chain)
    told = Told(log)
    positions = []
    for record in (b"a", b"b"):
        positions += put_all(log, record)
        log.request(Durability.SYNC)
    _, _, on_added = chain.sent[1]
    chain.kept_at_end = 1
    on_added(-1, WriteError("too many are under way"))
    assert told.failures.get(timeout=10) is log.failure
    assert log.failed_after == log.durable_lsn == positions[0]
    log.close()


def test_an_entry_of_another_number_decides_nothing() -> None:
    chain = HeldChain()
    log = log_of(chain)
    for record in (b"a", b"b"):
        put(log, record)
        log.request(Durability.SYNC)
    chain.kept_at_end = 2
    chain.sent[0][2](2, None)
    with pytest.raises(LogFailedError, match="which entries are there is not known"):
        log.sync()
    assert log.durable_lsn == START_LSN
    assert log.failed_after == Lsn(0, 2, 0)
    log.close()


def test_what_fails_while_the_end_is_unknown_is_told_as_unknown() -> None:
    chain = HeldChain()
    log = log_of(chain)
    put(log, b"a")
    log.request(Durability.SYNC)
    chain.fails_to_end = OperationalError("2 bookies", sqlstate="58030", retry=Retry.SAFE)
    chain.fail(WriteError("no quorum"))
    with pytest.raises(LogFailedError) as caught:
        log.sync()
    assert caught.value.retry is Retry.UNKNOWN
    log.close()


def test_the_worker_goes_on_when_it_has_found_no_memory() -> None:
    chain = HeldChain()
    log = log_of(chain)
    durable: SimpleQueue[Lsn] = SimpleQueue()
    failures: SimpleQueue[Error] = SimpleQueue()
    errors = [MemoryError()]

    def on_durable(lsn: Lsn) -> None:
        if errors:
            raise errors.pop()
        durable.put(lsn)

    log.start(on_durable, failures.put)
    last = put(log, b"a")
    log.request(Durability.SYNC)
    chain.acknowledge()
    assert durable.get(timeout=10) == last
    log.close()
    assert failures.empty()


def test_what_the_system_is_to_have_is_in_a_quorum() -> None:
    driver = ThreadDriver()
    log = LedgerLog(PromptChain(driver), driver, ledger_bytes_max=MIB)
    last = put(log, b"a")
    log.request(Durability.OS)
    assert log.written_lsn == last
    log.close()


def test_a_record_that_is_too_long_is_refused() -> None:
    log = log_of(HeldChain())
    log.prepare(1)
    with pytest.raises(InvariantViolation):
        log.append(Append((b"x" * (record_bytes_max + 1),)))
    assert log.last_lsn == START_LSN


@pytest.mark.exhaustive
def test_an_append_that_is_cut_short_at_any_line_counts_wholly_or_not() -> None:
    number, where = 0, "first"
    while where:
        number += 1
        chain = HeldChain()
        log = log_of(chain, ledger_bytes_max=64 * MIB)
        positions = [put(log, b"before")]
        append = Append((b"a" * 600_000, b"b" * 600_000, b"c"))
        interrupter = LineInterrupter(number, within="/herdpy/log/ledger_log.py")
        try:
            with interrupter:
                log.append(append)
        except KeyboardInterrupt:
            pass
        where = interrupter.where
        is_taken = log.has_taken(append)
        if number % 2 or is_taken:
            log.append(append)  # again: with no further effect if it was taken
            is_taken = True
        positions.append(put(log, b"after"))
        log.request(Durability.SYNC)
        while chain.sent:
            chain.acknowledge()
        found = list(log_of(chain).replay(START_LSN))
        expected = [b"before", *(append.records if is_taken else ()), b"after"]
        assert [record for _, record in found] == expected, where
        assert [lsn for lsn, record in found if record in (b"before", b"after")] == positions
        assert log.bytes_appended == sum(map(len, expected))
        assert log.durable_lsn == log.last_lsn == positions[-1]
    assert number > 20


@pytest.mark.exhaustive
def test_sending_and_rolling_cut_short_at_any_line_lose_nothing_acknowledged() -> None:
    number, where = 0, "first"
    while where:
        number += 1
        driver = ThreadDriver()
        chain = PromptChain(driver)
        log = LedgerLog(chain, driver, ledger_bytes_max=400)
        acknowledged: list[bytes] = []
        put(log, b"first")
        interrupter = LineInterrupter(number, within="/herdpy/log/ledger_log.py")
        try:
            with interrupter:
                for count in range(12):
                    put(log, b"%d" % count * 50)
                    log.sync()
                    acknowledged.append(b"%d" % count * 50)
        except KeyboardInterrupt:
            pass
        where = interrupter.where
        with suppress(LogFailedError):
            put(log, b"last")
            log.sync()
            acknowledged.append(b"last")
        log.close()
        found = [record for _, record in log_of(chain).replay(START_LSN)]
        assert [each for each in found if each in acknowledged] == acknowledged, where
        assert found[:1] in ([], [b"first"])
        assert len(found) <= len(acknowledged) + 2
    assert number > 100
