"""LedgerLog: a CommitLog in ledgers, of any BookKeeper.

Records gather in the open frame, which is an entry to be. It is sealed when it is full, or when its
durability is asked for and few entries are under way: so those that come while entries travel share
the next one. Positions are predicted, since entries of the only writer are numbered in its order,
and compared when they are acknowledged.

A ledger is ended when it has had enough bytes, and when an entry of it failed. Where it ends only
its CLOSED metadata say (`Chain.end`): until they are read nothing is decided, and what they leave
out is surely not in the log. If that is anything, the log has failed behind that position: states
and positions that were built on it are worth nothing, and the tablespace opens the log again.

Threads: as CommitLog says. Acknowledgements come by the chain's thread; the log's worker tells
the tablespace of them, and ends ledgers that failed.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from bookie.client.record_frames import LENGTH_BYTES, join
from bookie.errors import BookieError
from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Driver
from bookie.runtime.ticket import Ticket
from herdpy.errors import Error, InvariantViolation, LogFailedError, Retry
from herdpy.limits import record_bytes_max
from herdpy.log.interfaces import (
    Append,
    LogSpaceError,
    OnDurable,
    OnFailure,
    ReplayHint,
    Syncer,
)
from herdpy.log.record import NOOP
from herdpy.model.durability import Durability
from herdpy.model.lsn import START_LSN, Lsn

_IN_FLIGHT_MAX = 2
"""Entries under way while the open frame waits for more: 2 gave 6 records each at 8 sessions."""
_FRAME_BYTES = 1024 * 1024
_FRAME_RECORDS = 16_384
"""A frame with so many bytes of records is full, or with so many of them, which take 4 bytes more.

With one record of record_bytes_max it is within the largest entry of a bookie."""
_UNSENT_BYTES_MAX = 16 * 1024 * 1024
"""In memory, of frames that are not acknowledged; more waits in prepare(), but for an append that
is larger alone."""
_IN_FLIGHT_BYTES_MAX = 16 * 1024 * 1024
"""Of entries under way; the others of a larger append leave as those are acknowledged. Less than
what a client has under way (pending_add_bytes_max), so that it refuses none: that would break the
ledger, and end the leader."""
_AGAIN_S = 0.25
"""Behind a step of the worker that found no memory."""
_TICK = (NOOP,)
"""An append that says nothing but that the log is written."""
_URGENT_BYTES = 4 * 1024 * 1024
"""Beyond both bounds, for rollbacks and marks."""


OnAdded = Callable[[int, BookieError | None], None]
"""Called with the entry's id, or -1 and the error."""


class Chain(Protocol):
    """The ledgers of a tablespace as their one writer has them. Calls wait, but for send()."""

    def replay(self, after: Lsn) -> Iterator[tuple[int, int, list[bytes]]]:
        """Yield (ledger, entry, records) of what is in the log at or behind a position."""
        ...

    def begin(self) -> int:
        """Make and list the next ledger, with entry 0 for its header, and return its id.

        Error: nothing has changed (SAFE), or this node may write no more.
        """
        ...

    def send(self, payload: bytes, on_added: OnAdded) -> None:
        """Add an entry; never waits. on_added comes once, in order, by the chain's thread."""
        ...

    def end(self) -> int:
        """End the ledger, and return its last entry once CLOSED metadata say it; Error: unknown."""
        ...

    def close(self) -> None:
        """Let go of it all; repeatable."""
        ...


class _Frame(NamedTuple):
    """An entry that is on its way."""

    entry_id: int
    last: Lsn
    byte_count: int


class _Before(NamedTuple):
    """What there was before an append, to go back to if an interrupt has cut it short."""

    append: Append
    next_entry: int
    open_records: list[bytes]
    open_count: int
    open_bytes: int
    ready_count: int
    last: Lsn
    unsent_bytes: int
    ledger_bytes: int
    bytes_appended: int


class LedgerLog:
    """See the module. Made open, replayed, then started; close() ends its ledger."""

    def __init__(self, chain: Chain, driver: Driver, *, ledger_bytes_max: int) -> None:
        self._chain = chain
        self._driver = driver
        self._ledger_bytes_max = ledger_bytes_max
        self._rolling = new_mutex()  # one thread begins and ends ledgers
        self._bell = driver.new_bell()
        self._on_durable: OnDurable = _nothing
        self._on_failure: OnFailure = _nothing
        self._worker_is_ending = False
        self._worker: Ticket[None] | None = None
        # Own mutex.
        self._mutex = new_mutex()
        self._ledger_id: int | None = None
        """None: the next append waits for prepare(), which begins one."""
        self._next_entry = 0  # the id of the open frame
        self._open: list[bytes] = []
        self._open_bytes = 0
        self._ready: deque[tuple[_Frame, list[bytes]]] = deque()  # sealed, and not sent
        self._in_flight: deque[_Frame] = deque()
        self._in_flight_bytes = 0
        self._unsent_bytes = 0  # open, sealed or under way
        self._ledger_bytes = 0
        self._wanted = START_LSN  # up to where durability was asked for
        self._broken: BookieError | None = None  # of the ledger; end() says what it means
        self._is_misnumbered = False
        self._is_rolling = False  # nothing may be appended: it would not be in the ledger's end
        self._newest: Append | None = None
        self._before: _Before | None = None  # that of the newest append, which ended if it is it
        self._waiting: list[tuple[Lsn, Ticket[None]]] = []
        # Written under the mutex, read by any thread.
        self.last_lsn = self.durable_lsn = START_LSN
        self.bytes_appended = 0
        self.entry_count = 0
        self.failure: Error | None = None
        self.failed_after: Lsn | None = None

    @property
    def written_lsn(self) -> Lsn:
        """No record is on another machine before a quorum has it, and then it is durable."""
        return self.durable_lsn

    @property
    def ledger_id(self) -> int | None:
        """The ledger that is written; None: the next append has to begin one."""
        return self._ledger_id

    @property
    def ledger_bytes(self) -> int:
        """Bytes of records in that ledger."""
        return self._ledger_bytes

    @property
    def replay_hint(self) -> ReplayHint | None:
        return None

    def replay(self, after: Lsn) -> Iterator[tuple[Lsn, bytes]]:
        for ledger_id, entry_id, records in self._chain.replay(after):
            for index, record in enumerate(records):
                lsn = Lsn(ledger_id, entry_id, index)
                self.last_lsn = self.durable_lsn = lsn
                if lsn > after:
                    yield lsn, record
        self.last_lsn = self.durable_lsn = max(self.last_lsn, after)

    def start(self, on_durable: OnDurable, on_failure: OnFailure) -> Syncer:
        """Begin to tell; the log is its own Syncer."""
        self._on_durable, self._on_failure = on_durable, on_failure
        ended = Ticket[None]()

        def work() -> None:
            try:
                self._work()
            finally:
                ended.complete(None)

        self._driver.spawn("herdpy-ledger-log", work)
        self._worker = ended
        return self

    # --- appending: never waits ------------------------------------------------------------------

    def append(self, append: Append, *, is_urgent: bool = False) -> None:
        records = append.records
        if not records:
            raise InvariantViolation("ledger log: an append without records")
        with self._mutex:
            self._undo()
            if self._newest is append:
                append.lsn = self.last_lsn
                return
            if self.failure is not None:
                raise self.failure
            byte_count = sum(map(len, records))  # as prepare() gets it
            if max(map(len, records)) > record_bytes_max:
                raise InvariantViolation(
                    f"ledger log: expected records of at most {record_bytes_max} bytes, found "
                    f"{max(map(len, records))}"
                )
            if not self._has_room(byte_count, _URGENT_BYTES if is_urgent else 0):
                raise LogSpaceError
            self._before = _Before(
                append,
                self._next_entry,
                self._open,
                len(self._open),
                self._open_bytes,
                len(self._ready),
                self.last_lsn,
                self._unsent_bytes,
                self._ledger_bytes,
                self.bytes_appended,
            )
            for record in records:
                self._put(record)
            self._unsent_bytes += byte_count + LENGTH_BYTES * len(records)
            if records != _TICK:  # of which no checkpoint comes, and no next ledger
                self._ledger_bytes += byte_count
                self.bytes_appended += byte_count
            self._newest = append  # from here on it counts
            append.lsn = self.last_lsn

    def has_taken(self, append: Append) -> bool:
        return self._newest is append

    def _undo(self) -> None:
        """Take back an append that an interrupt has cut short; repeatable. Mutex held."""
        before = self._before
        if before is None or before.append is self._newest:
            return
        while len(self._ready) > before.ready_count:
            self._ready.pop()
        self._open = before.open_records
        del self._open[before.open_count :]
        self._open_bytes, self._next_entry = before.open_bytes, before.next_entry
        self._unsent_bytes, self._ledger_bytes = before.unsent_bytes, before.ledger_bytes
        self.last_lsn, self.bytes_appended = before.last, before.bytes_appended
        self._before = None

    def _has_room(self, byte_count: int, more: int) -> bool:
        if self._ledger_id is None or self._broken is not None or self._is_rolling:
            return False
        # What is larger than a bound has one to itself.
        unsent, written = self._unsent_bytes, self._ledger_bytes
        return (not unsent or unsent + byte_count <= _UNSENT_BYTES_MAX + more) and (
            not written or written + byte_count <= self._ledger_bytes_max + more
        )

    def _put(self, record: bytes) -> None:
        count = len(self._open)
        if count and (count == _FRAME_RECORDS or self._open_bytes + len(record) > _FRAME_BYTES):
            self._seal()
        self._open.append(record)
        self._open_bytes += len(record)
        assert self._ledger_id is not None
        self.last_lsn = Lsn(self._ledger_id, self._next_entry, len(self._open) - 1)

    def _seal(self) -> None:
        """Make an entry of the open frame. Mutex held."""
        assert self._ledger_id is not None
        last = Lsn(self._ledger_id, self._next_entry, len(self._open) - 1)
        byte_count = self._open_bytes + LENGTH_BYTES * len(self._open)
        self._ready.append((_Frame(self._next_entry, last, byte_count), self._open))
        self._open, self._open_bytes = [], 0
        self._next_entry += 1

    # --- sending ---------------------------------------------------------------------------------

    def request(self, durability: Durability) -> None:
        """Send what was appended; NONE: what is a whole frame, which bounds what is kept.

        OS waits as sync() does: what is in no quorum is in this process alone.
        """
        if durability is Durability.OS:
            with suppress(Error):  # of which on_failure tells
                self.sync()
            return
        with self._mutex:
            self._undo()
            if durability is not Durability.NONE:
                self._wanted = self.last_lsn
            self._send()

    def ask(self, durability: Durability) -> None:
        self.request(Durability.SYNC if durability is Durability.OS else durability)

    def _send(self) -> None:
        """Send what may go, no append being cut short; entries leave in order. Mutex held."""
        if self._broken is not None:
            return
        try:
            self._send_all()
        except BaseException as error:
            # Whether an entry has left is not known: its ledger's end says so.
            if self._ledger_id is not None:
                cause = BookieError(f"sending an entry was cut short: {error!r}")
                self._broken = self._broken or cause
                self._bell.ring()
            raise

    def _send_all(self) -> None:
        in_flight = self._in_flight
        while True:
            if not self._ready:
                sent = in_flight[-1].last if in_flight else self.durable_lsn
                is_wanted = bool(self._open) and self._wanted > sent
                if not is_wanted or len(in_flight) >= _IN_FLIGHT_MAX:
                    return
                self._seal()
            frame, records = self._ready[0]
            if in_flight and self._in_flight_bytes + frame.byte_count > _IN_FLIGHT_BYTES_MAX:
                return  # the next acknowledgement goes on
            payload = join(records)
            in_flight.append(frame)
            self._in_flight_bytes += frame.byte_count
            self._ready.popleft()
            self.entry_count += 1
            self._chain.send(payload, partial(self._on_added, frame))

    def _on_added(self, frame: _Frame, entry_id: int, error: BookieError | None) -> None:
        with self._mutex:
            self._undo()
            if not any(each is frame for each in self._in_flight):
                return  # end() has decided of it
            if error is not None:
                self._broken = self._broken or error
            elif entry_id != frame.entry_id or self._in_flight[0] is not frame:
                self._is_misnumbered = True  # so that the ledger's end decides nothing
                self._broken = BookieError(
                    f"ledger {self._ledger_id}: expected entry {self._in_flight[0].entry_id}, was "
                    f"told that {entry_id} is there"
                )
            else:
                self._acknowledge(self._in_flight.popleft())
                self._send()
            waiting = self._take_waiting()
        for ticket in waiting:
            ticket.complete(None)
        self._bell.ring()

    def _acknowledge(self, frame: _Frame) -> None:
        self._unsent_bytes -= frame.byte_count
        self._in_flight_bytes -= frame.byte_count
        self.durable_lsn = frame.last

    def _take_waiting(self) -> list[Ticket[None]]:
        """Return those whose wait is over, and all when the ledger is. Mutex held."""
        is_over = self.failure is not None or self._broken is not None
        done = [ticket for lsn, ticket in self._waiting if is_over or lsn <= self.durable_lsn]
        if done:
            self._waiting = [
                each for each in self._waiting if not (is_over or each[0] <= self.durable_lsn)
            ]
        return done

    # --- waiting ---------------------------------------------------------------------------------

    def sync(self) -> None:
        with self._mutex:
            if self.failure is not None:
                raise self.failure
            self._undo()
            target = self._wanted = self.last_lsn
            self._send()
        while not self._settle(target):
            self._end_if_broken()
            if self.failure is not None and target > self.durable_lsn:
                raise self.failure

    def _settle(self, target: Lsn) -> bool:
        """Wait until all up to there is durable; False: the ledger broke, or the log failed."""
        with self._mutex:
            if target <= self.durable_lsn:
                return True
            if self.failure is not None or self._broken is not None:
                return False
            ticket = Ticket[None]()
            self._waiting.append((target, ticket))
        self._driver.wait(ticket)
        return target <= self.durable_lsn

    def write(self) -> None:
        self.sync()

    def mark(self) -> None:
        """Sync: that it is durable stands in the ledger's metadata, or in a later entry."""
        self.sync()

    def prepare(self, byte_count: int, file_bytes_max: int | None = None) -> None:
        """Begin a ledger where there is none, or the next one; wait for what is under way."""
        self._go_on(byte_count)

    def roll(self) -> None:
        """End the ledger, whatever it has, and begin the next one; as prepare().

        It is too old, or lies on other bookies than it should. Where none was begun none is.
        """
        if self._ledger_id is not None:
            self._go_on(self._ledger_bytes_max + 1)

    def _go_on(self, byte_count: int) -> None:
        with self._rolling:
            if self.failure is not None:
                raise self.failure
            with self._mutex:
                self._undo()
                target = self._wanted = self.last_lsn
                self._send()
                is_full = self._ledger_bytes + byte_count > self._ledger_bytes_max
                self._is_rolling = is_full
            try:
                # What is under way is settled first; a ledger that breaks meanwhile is ended, too.
                is_there = self._ledger_id is not None and self._settle(target)
                if is_there and self._broken is None and not is_full:
                    return
                self._begin_next()
            finally:
                self._is_rolling = False

    def _begin_next(self) -> None:
        """End the ledger, if there is one, and begin the next. Rolling held."""
        if self._ledger_id is not None and not self._end():
            assert self.failure is not None
            raise self.failure
        try:
            ledger_id = self._chain.begin()
        except Error as error:
            if error.retry is not Retry.SAFE:
                self._fail(error)
            raise
        with self._mutex:
            self._ledger_id, self._next_entry, self._ledger_bytes = ledger_id, 1, 0
            self._broken = None

    # --- the end of a ledger ---------------------------------------------------------------------

    def _end(self) -> bool:
        """End the ledger; False: something of it is not in the log, which has failed. Rolling."""
        with self._mutex:
            self._undo()
            # From here on nothing is appended or sent: what is open would be lost.
            cause = self._broken = self._broken or BookieError("the ledger is ended")
        last = self._chain.end()
        if self._is_misnumbered:
            self._fail(LogFailedError(f"{cause}: which entries are there is not known"))
            return False
        with self._mutex:
            self._undo()
            while self._in_flight and self._in_flight[0].entry_id <= last:
                self._acknowledge(self._in_flight.popleft())
            if self._in_flight or self._ready or self._open:
                self.failed_after = self.durable_lsn
                self.failure = LogFailedError(
                    f"ledger {self._ledger_id} ends with entry {last}, before what was appended: "
                    f"{cause}",
                    hint="open the log again: what was not acknowledged is not in it",
                )
            else:
                self._ledger_id, self._broken = None, None
            waiting = self._take_waiting()
        for ticket in waiting:
            ticket.complete(None)
        return self.failure is None

    def _end_if_broken(self) -> None:
        """Find out what is in a ledger of which an entry has failed."""
        if self._broken is None:
            return  # and no ledger that is being begun is waited for
        with self._rolling:
            if self._broken is None or self.failure is not None or self._ledger_id is None:
                return
            try:
                self._end()
            except Error as error:
                self._fail(error)

    def _fail(self, error: Error) -> None:
        """Stop: nothing is known of what was sent and not acknowledged, until the next opening."""
        if not isinstance(error, LogFailedError):  # whose fate is unknown must not be told as SAFE
            error = LogFailedError(error.message, hint=error.hint)
        with self._mutex:
            self.failed_after = self._in_flight[-1].last if self._in_flight else self.durable_lsn
            self.failure = error
            waiting = self._take_waiting()
        for ticket in waiting:
            ticket.complete(None)

    def _work(self) -> None:
        told, pause_s = START_LSN, None
        while not self._worker_is_ending:
            self._bell.wait(pause_s)
            pause_s = None
            try:
                told = self._tell(told)
                self._end_if_broken()
                told = self._tell(told)
                if self.failure is not None:
                    self._on_failure(self.failure)
                    return
            except MemoryError:
                pause_s = _AGAIN_S  # as an interrupt: what was begun is gone on with
            except Exception as error:
                failure = InvariantViolation(f"the log's worker died: {error!r}")
                self._fail(failure)
                self._on_failure(failure)
                raise

    def _tell(self, told: Lsn) -> Lsn:
        """Tell what has become durable since, and return up to where."""
        durable = self.durable_lsn
        if durable > told:
            self._on_durable(durable)
        return max(durable, told)

    # --- the rest of its life --------------------------------------------------------------------

    def free_spares(self) -> bool:
        return False

    def drop_before(self, lsn: Lsn) -> None:
        """Keep all: ledgers are dropped when every replica has a checkpoint behind them."""

    def finish(self) -> Lsn:
        """End the ledger, with all that was appended in it, and return where the log ends.

        Nothing is appended meanwhile, nor from then on. Error: where it ends is not known.
        """
        self.sync()
        with self._rolling:
            if self.failure is None and self._ledger_id is not None:
                self._end()
        if self.failure is not None:
            raise self.failure
        return self.durable_lsn

    def close(self) -> None:
        if self._worker is not None:
            self._worker_is_ending = True
            self._bell.ring()
            self._driver.wait(self._worker)
            self._worker = None
        try:
            if self.failure is None:
                self.sync()
            with self._rolling:
                if self.failure is None and self._ledger_id is not None:
                    self._end()
        finally:
            self._chain.close()


def _nothing(_: object) -> None:
    """Tell nothing: what there is before start()."""
