"""WriterMachine: how one handle writes a ledger, as events in and actions out.

Contract: entries complete strictly in order, each with acks of an ack quorum of the ensemble that
the metadata names for it; the LAC never goes back; after an error nothing completes any more. One
thread; no clock (Timer tokens), no I/O, no chance of its own. Source of the rules: BookKeeper's
LedgerHandle and PendingAddOp, with the defects G7 to G12 kept out (docs/protocols/writer.md);
CLUSTER.md §3 for writing on without a replacement; ADR 0012 for closing under a recovery.
"""

from typing import Any, Protocol

from bookie.errors import (
    AddEntryQuorumTimeoutError,
    AddInterruptedError,
    BookieError,
    ClientClosedError,
    DuplicateEntryIdError,
    IllegalOperationError,
    IncorrectParameterError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataVersionError,
    Retry,
    TooManyRequestsError,
    UnauthorizedAccessError,
    WriteError,
)
from bookie.ledger.actions import (
    NOTHING,
    Action,
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
from bookie.ledger.ensemble_change import EnsembleChange, Replacer, plan
from bookie.ledger.explicit_lac import ExplicitLac
from bookie.ledger.fan_out import FanOut
from bookie.ledger.types import BookieId, EntryId, LedgerMetadata, LedgerState, Status

BytesLike = bytes | bytearray | memoryview
QUORUM_TICKS = 4
"""Ticks of Timer.QUORUM in one add quorum time-out."""


class Sealer(Protocol):
    """What is needed of an EntryDigest."""

    def seal(
        self, ledger_id: int, entry_id: int, lac: int, length: int, payload: BytesLike
    ) -> bytes: ...

    def seal_lac(self, ledger_id: int, lac: int) -> bytes: ...


class PendingAdd:
    """An entry that is not yet acknowledged. Masks have a bit for each index of the ensemble."""

    __slots__ = ("acks", "born", "context", "failed", "packet", "payload_bytes", "write_set")

    def __init__(
        self, packet: bytes, payload_bytes: int, context: Any, write_set: int, born: int
    ) -> None:
        self.packet = packet
        self.payload_bytes = payload_bytes
        self.context = context
        self.write_set = write_set
        self.born = born
        self.acks = 0
        self.failed = 0


class WriterMachine:
    """See the module. Every method returns what is to be done, in order.

    A call that cannot begin raises instead and changes nothing.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: int,
        sealer: Sealer,
        replacer: Replacer,
        writable: tuple[BookieId, ...],
        options: WriterOptions,
    ) -> None:
        if metadata.state is not LedgerState.OPEN:
            raise IllegalOperationError(
                f"ledger {metadata.ledger_id}: expected OPEN to write, found {metadata.state.name}"
            )
        self._ledger_id = metadata.ledger_id
        self._sealer = sealer
        self._replacer = replacer
        self._options = options
        self._ensemble_size = metadata.ensemble_size
        self._write_quorum_size = metadata.write_quorum_size
        self._ack_quorum_size = metadata.ack_quorum_size

        # What the store holds as far as we know; its last ensemble is ours once it is applied.
        self._metadata = metadata
        self._version = version
        self._ensemble = metadata.last_segment.ensemble
        self._missing = 0
        self._bits: dict[BookieId, int] = {}
        self._targets: list[tuple[BookieId, ...]] = []
        self._write_sets = [
            sum(1 << (slot + i) % self._ensemble_size for i in range(self._write_quorum_size))
            for slot in range(self._ensemble_size)
        ]

        self._pending: dict[int, PendingAdd] = {}
        self._pending_bytes = 0
        self._next = 0  # the entry that completes next
        self._last_pushed = -1
        self._length = 0
        self._completed_length = 0
        self._lac = -1
        self._lac_length = 0
        self._error: BookieError | None = None  # no more adds

        self._writable = writable
        self._suspects: dict[BookieId, None] = {}  # failed lately, in that order
        self._late_failures: dict[int, BookieId] = {}
        self._change: EnsembleChange | None = None
        self._change_count = 0
        self._is_store_asked = False  # one question at a time
        self._writing: LedgerMetadata | None = None
        self._closers: list[Any] = []
        self._is_closed = False

        self._questions: dict[int, FanOut] = {}
        self._question_count = 0
        self._explicit_lac = ExplicitLac(is_enabled=options.is_lac_explicit)
        self._ticks = 0
        self._is_quorum_timer_armed = False
        self._is_retry_timer_armed = False
        self._index_ensemble()

    # --- what is known ----------------------------------------------------------------------------

    @property
    def lac(self) -> int:
        return self._lac

    @property
    def length(self) -> int:
        """Payload bytes up to the LAC."""
        return self._lac_length

    @property
    def last_pushed(self) -> int:
        """The greatest entry id given out so far."""
        return self._last_pushed

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    @property
    def is_full(self) -> bool:
        """Whether there is as much under way as there may be."""
        return (
            len(self._pending) >= self._options.pending_adds_max
            or self._pending_bytes >= self._options.pending_bytes_max
        )

    def has_room_for(self, entry_id: int | None) -> bool:
        """Whether add() takes an entry: of given ids also the one that all the others wait for."""
        return not self.is_full or (entry_id == self._next and entry_id not in self._pending)

    @property
    def metadata(self) -> LedgerMetadata:
        """As last read or written by this handle."""
        return self._metadata

    @property
    def ensemble(self) -> tuple[BookieId, ...]:
        """What entries are sent to, but for `missing_bookies`."""
        return self._ensemble

    @property
    def missing_bookies(self) -> tuple[BookieId, ...]:
        """Members of the ensemble that failed and that nobody could replace so far."""
        return tuple(b for i, b in enumerate(self._ensemble) if self._missing >> i & 1)

    @property
    def is_changing(self) -> bool:
        return self._change is not None

    @property
    def error(self) -> BookieError | None:
        """Why nothing can be added any more."""
        return self._error

    # --- adding -----------------------------------------------------------------------------------

    def add(self, payload: BytesLike, context: Any, entry_id: int | None = None) -> Actions:
        """Begin one entry. entry_id is given exactly when the options say that ids are.

        Raises what ended the handle, TooManyRequestsError (SAFE) when full, DuplicateEntryIdError,
        IncorrectParameterError.
        """
        options = self._options
        if self._error is not None:
            raise self.fresh_error()
        size = payload.nbytes if type(payload) is memoryview else len(payload)
        if size > options.payload_bytes_max:
            raise IncorrectParameterError(
                f"ledger {self._ledger_id}: expected an entry of at most "
                f"{options.payload_bytes_max} bytes, found {size}: split it"
            )
        if not self.has_room_for(entry_id):
            raise TooManyRequestsError(
                f"ledger {self._ledger_id}: {len(self._pending)} adds of {self._pending_bytes} "
                "bytes are under way: wait for some of them, or raise the limits"
            )
        if entry_id is None:
            entry_id = self._last_pushed + 1
            self._last_pushed = entry_id
        else:
            self._take_given_id(entry_id)
        self._length += size
        self._pending_bytes += size
        lac = self._lac
        packet = self._sealer.seal(self._ledger_id, entry_id, lac, self._length, payload)
        self._explicit_lac.carried(lac)
        slot = entry_id % self._ensemble_size
        self._pending[entry_id] = PendingAdd(
            packet, size, context, self._write_sets[slot], self._ticks
        )
        actions: list[Action] = []
        if self._late_failures and self._change is None:
            # Before the entry is sent: a bookie that missed an older entry gets no newer one.
            actions += self._begin_change({})
            if self._error is not None:
                return actions
        actions.append(SendAdd(entry_id, packet, self._targets[slot]))
        if options.quorum_ticks_max is not None and not self._is_quorum_timer_armed:
            self._is_quorum_timer_armed = True
            actions.append(StartTimer(Timer.QUORUM))
        return actions

    def _take_given_id(self, entry_id: int) -> None:
        if not self._options.are_ids_given:
            raise IllegalOperationError(
                f"ledger {self._ledger_id}: this handle numbers its entries itself"
            )
        if entry_id < 0:
            raise IncorrectParameterError(
                f"ledger {self._ledger_id}: expected an entry id of 0 or more, found {entry_id}"
            )
        if entry_id < self._next or entry_id in self._pending:
            raise DuplicateEntryIdError(
                f"ledger {self._ledger_id}: entry {entry_id} was added before; "
                f"the next that is missing is {self._next}"
            )
        self._last_pushed = max(self._last_pushed, entry_id)

    def on_add_reply(self, entry_id: int, bookie: BookieId, status: Status) -> Actions:
        """Count one answer. That of a bookie which is no longer in the ensemble means nothing."""
        bit = self._bits.get(bookie)
        if bit is None or self._is_closed:
            return NOTHING
        op = self._pending.get(entry_id)
        if status is not Status.OK:
            return self._on_failure(op, entry_id, bit, bookie, status)
        if op is None:
            return NOTHING
        # Recorded even when the quorum is complete: a change may take other acks away (G11).
        op.acks |= bit & op.write_set
        if (
            entry_id != self._next
            or self._change is not None
            or op.acks.bit_count() < self._ack_quorum_size
        ):
            return NOTHING
        return self._complete()

    def _complete(self) -> list[Action]:
        """Acknowledge from the front of the queue what can be; not while a change is under way."""
        actions: list[Action] = []
        pending = self._pending
        entry_id = self._next
        while (op := pending.get(entry_id)) is not None:
            if op.acks.bit_count() < self._ack_quorum_size:
                break
            del pending[entry_id]
            self._pending_bytes -= op.payload_bytes
            self._completed_length += op.payload_bytes
            actions.append(Added(op.context, entry_id))
            entry_id += 1
        self._next = entry_id
        if not self._options.is_deferred_sync:
            self._lac = entry_id - 1
            self._lac_length = self._completed_length
            if self._explicit_lac.should_arm(self._lac, is_idle=not pending):
                actions.append(StartTimer(Timer.EXPLICIT_LAC))
        return actions

    # --- failures ---------------------------------------------------------------------------------

    def _on_failure(
        self, op: PendingAdd | None, entry_id: int, bit: int, bookie: BookieId, status: Status
    ) -> Actions:
        if self._error is not None:
            return NOTHING
        where = f"ledger {self._ledger_id}, entry {entry_id} on {bookie}"
        fatal = _fatal_error(where, status)
        if fatal is not None:
            return self._fail_all(fatal)
        if bit & self._missing:
            return NOTHING
        if self._options.is_deferred_sync:
            # Acknowledged entries may lie beyond the LAC: no segment could begin at LAC + 1.
            return self._fail_all(
                WriteError(f"{where}: {status.name}; a deferred-sync ledger takes no new bookies")
            )
        index = bit.bit_length() - 1
        if op is not None:
            op.failed |= bit & op.write_set
        if self._change is not None:
            self._change.arrived[index] = bookie
            self._suspects[bookie] = None
            return NOTHING
        is_delayed = self._options.is_change_delayed and status is not Status.READ_ONLY
        if op is None or op.acks.bit_count() >= self._ack_quorum_size:
            if not is_delayed:
                self._late_failures[index] = bookie
            return NOTHING
        if is_delayed and self._can_complete(op):
            return NOTHING
        return self._begin_change({index: bookie})

    def _can_complete(self, op: PendingAdd) -> bool:
        lost = op.write_set & (op.failed | self._missing) & ~op.acks
        return lost.bit_count() <= self._write_quorum_size - self._ack_quorum_size

    def _fail_all(self, error: BookieError, pending_error: BookieError | None = None) -> Actions:
        """Fail everything pending in order and let nothing more in."""
        if self._error is not None:
            return NOTHING
        self._error = error
        shared = pending_error if pending_error is not None else error
        actions: list[Action] = [
            Failed(self._pending[entry_id].context, shared) for entry_id in sorted(self._pending)
        ]
        self._pending.clear()
        self._pending_bytes = 0
        self._change = None
        self._late_failures.clear()
        for question in self._questions.values():
            if question.context is not None:
                actions.append(Failed(question.context, shared))
        self._questions.clear()
        return actions

    def fresh_error(self) -> BookieError:
        """Return a new exception like the one that ended the handle."""
        if self._error is None:
            raise LedgerClosedError(f"ledger {self._ledger_id} is closed")
        return type(self._error)(*self._error.args)

    # --- ensemble change --------------------------------------------------------------------------

    def _begin_change(self, failed: dict[int, BookieId]) -> Actions:
        """Freeze completion and replace what failed, now or, of completed entries, before."""
        failed = {**self._late_failures, **failed}
        self._late_failures.clear()
        if self._options.is_change_delayed:
            # What was borne so far is replaced as well, now that a change has to be made.
            borne = 0
            for op in self._pending.values():
                borne |= op.failed
            failed |= {i: b for i, b in enumerate(self._ensemble) if borne >> i & 1}
        failed = {
            i: b for i, b in failed.items() if self._ensemble[i] == b and not self._missing >> i & 1
        }
        self._change = EnsembleChange(failed)
        self._suspects.update(dict.fromkeys(failed.values()))
        return self._next_round()

    def _next_round(self) -> Actions:
        """Look for bookies and write the metadata, or finish when there is nothing to write."""
        change = self._change
        if change is None:
            raise AssertionError("no ensemble change is under way")
        change.failed.update(change.arrived)
        change.arrived.clear()
        stored = self._metadata.last_segment.ensemble
        failed = sum(1 << i for i, b in change.failed.items() if stored[i] == b)
        missing = sum(
            1 << i
            for i, b in enumerate(self._ensemble)
            if (self._missing | change.missing) >> i & 1 and stored[i] == b
        )
        found = plan(
            stored,
            failed,
            missing & ~failed,
            self._suspects,
            self._writable,
            self._replacer,
            reachable=self._write_sets,
            ack_quorum_size=self._ack_quorum_size,
        )
        if found is None:
            return self._fail_all(self._too_few(stored, failed | missing))
        change.missing = found.missing
        change.rejoining = found.rejoining
        self._send_nothing_to(change)
        if found.ensemble == stored:
            if change.is_write_adrift:
                # It would name bookies that nobody sends to. A newer version keeps it out.
                change.wanted = self._metadata
                return [self._write(self._metadata)]
            return self._finish_change()
        if change.wanted is None:
            self._change_count += 1
            if self._change_count > self._options.ensemble_changes_max:
                return self._fail_all(
                    WriteError(
                        f"ledger {self._ledger_id}: more than "
                        f"{self._options.ensemble_changes_max} ensemble changes; close the "
                        "ledger and begin another"
                    )
                )
        start = EntryId(self._lac + 1)
        if start < self._metadata.last_segment.first_entry_id:
            return self._fail_all(
                MetadataVersionError(
                    f"ledger {self._ledger_id}: expected the last segment to begin at {start} or "
                    f"before, found {self._metadata.last_segment.first_entry_id}: another writes"
                )
            )
        change.wanted = self._metadata.with_ensemble(start, found.ensemble)
        return [self._write(change.wanted)]

    def _too_few(self, stored: tuple[BookieId, ...], lost: int) -> WriteError:
        alive = self._ensemble_size - lost.bit_count()
        others = [b for b in self._writable if b not in stored]
        names = ", ".join(b for i, b in enumerate(stored) if lost >> i & 1)
        return WriteError(
            f"ledger {self._ledger_id}: {alive} of the {self._ensemble_size} bookies of the "
            f"ensemble answer ({names} failed) and {len(others)} other writable ones are "
            f"registered; each write set needs {self._ack_quorum_size} that answer: start "
            "bookies, then close this ledger and begin another"
        )

    def _finish_change(self) -> Actions:
        """Apply what the store holds, take back the acks of replaced indexes, send again.

        All acks are taken back before anything completes (G8). Also run when the ensemble is the
        one we had (G10): then entries are sent to those who rejoin, and completion goes on.
        """
        change = self._change
        if change is None:
            raise AssertionError("no ensemble change is under way")
        stored = self._metadata.last_segment.ensemble
        replaced = sum(1 << i for i, b in enumerate(stored) if self._ensemble[i] != b)
        again = replaced | change.rejoining
        self._change = None
        self._ensemble = stored
        self._missing = change.missing
        self._index_ensemble()
        for op in self._pending.values():
            op.acks &= ~replaced
            op.failed &= ~again
        actions: list[Action] = []
        for entry_id, op in self._pending.items():
            targets = op.write_set & again & ~op.acks
            if targets:
                bookies = tuple(b for i, b in enumerate(stored) if targets >> i & 1)
                actions.append(SendAdd(entry_id, op.packet, bookies))
        actions += self._complete()
        actions += self._arm_retry()
        return actions

    def _index_ensemble(self) -> None:
        """Work out, once for each ensemble, who answers for which bit and who is sent what."""
        self._bits = {bookie: 1 << i for i, bookie in enumerate(self._ensemble)}
        self._set_targets(self._missing)

    def _set_targets(self, left_out: int) -> None:
        size = self._ensemble_size
        self._targets = [
            tuple(
                self._ensemble[(slot + i) % size]
                for i in range(self._write_quorum_size)
                if not left_out >> (slot + i) % size & 1
            )
            for slot in range(size)
        ]

    def _send_nothing_to(self, change: EnsembleChange) -> None:
        """Spare entries that begin now the way to bookies that are being replaced."""
        failed = sum(1 << i for i, b in change.failed.items() if self._ensemble[i] == b)
        self._set_targets(self._missing | failed | change.missing)

    def on_bookies(self, writable: tuple[BookieId, ...]) -> Actions:
        """Take note of which bookies are writable now, sorted; fill gaps in the ensemble."""
        self._writable = writable
        # Who went and comes back has a new chance.
        self._suspects = {b: None for b in self._suspects if b in writable}
        return self._fill_gaps()

    def _fill_gaps(self) -> Actions:
        if not self._missing or self._change is not None or self._error is not None:
            return NOTHING
        return self._begin_change({})

    def _arm_retry(self) -> Actions:
        if self._is_retry_timer_armed or not (self._suspects or self._missing):
            return NOTHING
        self._is_retry_timer_armed = True
        return [StartTimer(Timer.RETRY)]

    # --- metadata answers -------------------------------------------------------------------------

    def _write(self, metadata: LedgerMetadata) -> WriteMetadata:
        self._is_store_asked = True
        self._writing = metadata
        return WriteMetadata(metadata, self._version)

    def on_metadata_written(self, version: int) -> Actions:
        """Go on: the metadata of the last WriteMetadata is in the store, at this version."""
        if self._writing is None:
            raise AssertionError("no metadata was being written")
        self._is_store_asked = False
        self._metadata, self._writing = self._writing, None
        self._version = version
        if self._closers:
            if self._metadata.is_closed:
                return self._end_close(None)
            return self._write_closed()
        if self._change is not None:
            self._change.is_write_adrift = False
            return self._on_ensemble_stored(self._change)
        return NOTHING

    def on_metadata_found(self, metadata: LedgerMetadata, version: int) -> Actions:
        """Decide by content: the write was refused or its answer lost, and this is what is there.

        What was wanted and is still needed is written again, so that a lost answer ends alike
        whether it was applied or not.
        """
        self._is_store_asked = False
        wanted, self._writing = self._writing, None
        if self._change is not None:
            self._change.is_write_adrift = wanted is not None and version == self._version
        self._metadata = metadata
        self._version = version
        if self._closers:
            return self._decide_close()
        if self._change is None:
            return NOTHING
        if metadata.state is LedgerState.CLOSED:
            where = (
                f"ledger {self._ledger_id}: another client closed it at entry "
                f"{metadata.last_entry_id}"
            )
            return self._fail_all(LedgerClosedError(where), AddInterruptedError(where))
        if metadata.state is LedgerState.IN_RECOVERY:
            return self._fail_all(
                LedgerFencedError(
                    f"ledger {self._ledger_id}: expected OPEN, found IN_RECOVERY: another client "
                    "recovers it"
                )
            )
        if wanted is not None and metadata.last_segment == wanted.last_segment:
            return self._on_ensemble_stored(self._change)
        return self._next_round()

    def _on_ensemble_stored(self, change: EnsembleChange) -> Actions:
        stored = self._metadata.last_segment.ensemble
        if any(stored[i] == b for i, b in change.arrived.items()):
            return self._next_round()
        return self._finish_change()

    def on_metadata_failed(self, error: BookieError) -> Actions:
        """Give up: whether the write was applied could not be found out, or the ledger is gone."""
        self._is_store_asked = False
        self._writing = None
        if self._closers:
            return self._end_close(error)
        if self._change is None:
            return NOTHING
        if error.retry is not Retry.NEVER:
            error = WriteError(
                f"ledger {self._ledger_id}: the ensemble could not be changed: {error}"
            )
        return self._fail_all(error)

    # --- closing ----------------------------------------------------------------------------------

    def close(self, context: Any) -> Actions:
        """Fail what is pending and set the end of the ledger; Done once it is CLOSED at our LAC.

        Errors: MetadataVersionError when another closed it elsewhere, LedgerFencedError when
        another recovers it (ADR 0012), or what the store said; then close() may be called again.
        """
        if self._is_closed:
            return [Done(context)]
        actions: list[Action] = []
        if self._error is None:
            where = f"ledger {self._ledger_id} was closed"
            actions += self._fail_all(
                LedgerClosedError(where), AddInterruptedError(f"{where} by its own handle")
            )
        self._closers.append(context)
        if not self._is_store_asked:
            actions += self._begin_close()
        return actions

    def abandon(self) -> Actions:
        """End the handle without closing the ledger: the client goes, others may recover it."""
        actions = list(
            self._fail_all(ClientClosedError(f"ledger {self._ledger_id}: the client was closed"))
        )
        error = self.fresh_error()
        actions += [Failed(context, error) for context in self._closers]
        self._closers.clear()
        self._is_closed = True
        return actions

    def _begin_close(self) -> Actions:
        if self._metadata.state is LedgerState.IN_RECOVERY:
            # The recoverer decides; it may have done so since this was read.
            self._is_store_asked = True
            return [ReadMetadata()]
        return self._decide_close()

    def _write_closed(self) -> Actions:
        # The length is that of the entries up to the LAC: what was pending does not count (G12).
        return [self._write(self._metadata.closed(EntryId(self._lac), self._lac_length))]

    def _decide_close(self) -> Actions:
        """Close what is open; what another decided is never written over."""
        found = self._metadata
        if found.state is LedgerState.OPEN:
            return self._write_closed()
        if found.state is LedgerState.IN_RECOVERY:
            return self._end_close(
                LedgerFencedError(
                    f"ledger {self._ledger_id}: expected OPEN to close it, found IN_RECOVERY: "
                    "another client recovers it and decides its end; open it with recovery to "
                    "learn that"
                )
            )
        if found.last_entry_id == self._lac and found.length == self._lac_length:
            return self._end_close(None)
        return self._end_close(
            MetadataVersionError(
                f"ledger {self._ledger_id}: expected to close it at entry {self._lac} with "
                f"{self._lac_length} bytes, found it closed at {found.last_entry_id} with "
                f"{found.length}: another client recovered it"
            )
        )

    def _end_close(self, error: BookieError | None) -> Actions:
        closers, self._closers = self._closers, []
        if error is None:
            self._is_closed = True
            return [Done(context) for context in closers]
        return [Failed(context, error) for context in closers]

    # --- force and LAC ----------------------------------------------------------------------------

    def force(self, context: Any) -> Actions:
        """Make durable on the whole ensemble what is acknowledged so far; Done, or WriteError.

        With deferred sync the LAC then moves up to the last entry acknowledged before the call.
        """
        if self._error is not None:
            raise self.fresh_error()
        last = self._next - 1
        if last < 0:
            return [Done(context)]
        question = FanOut(
            self._ensemble, self._ensemble_size, context, last, self._completed_length
        )
        return [SendForce(self._ask(question), self._ensemble)]

    def on_force_reply(self, request: int, bookie: BookieId, status: Status) -> Actions:
        question = self._questions.get(request)
        if question is None:
            return NOTHING
        decision = question.on_reply(status)
        if decision is None:
            return NOTHING
        del self._questions[request]
        if not decision:
            where = f"ledger {self._ledger_id}: {bookie} answered {status.name} to a force"
            return [Failed(question.context, _fatal_error(where, status) or WriteError(where))]
        actions: list[Action] = []
        if self._options.is_deferred_sync and question.entry_id > self._lac:
            self._lac = question.entry_id
            self._lac_length = question.length
            if self._explicit_lac.should_arm(self._lac, is_idle=not self._pending):
                actions.append(StartTimer(Timer.EXPLICIT_LAC))
        actions.append(Done(question.context))
        return actions

    def write_lac(self, context: Any) -> Actions:
        """Write the LAC by itself to the write set of its entry; Done at an ack quorum."""
        if self._error is not None:
            raise self.fresh_error()
        if self._lac < 0:
            return [Done(context)]
        return [self._send_lac(context)]

    def _send_lac(self, context: Any) -> SendLac:
        lac = self._lac
        slot = lac % self._ensemble_size
        bookies = tuple(
            self._ensemble[(slot + i) % self._ensemble_size] for i in range(self._write_quorum_size)
        )
        request = self._ask(FanOut(bookies, self._ack_quorum_size, context, lac))
        return SendLac(request, lac, self._sealer.seal_lac(self._ledger_id, lac), bookies)

    def on_lac_reply(self, request: int, bookie: BookieId, status: Status) -> Actions:
        question = self._questions.get(request)
        if question is None:
            return NOTHING
        decision = question.on_reply(status)
        if decision is None:
            return NOTHING
        del self._questions[request]
        if decision:
            self._explicit_lac.carried(question.entry_id)
        if question.context is None:
            return NOTHING
        if decision:
            return [Done(question.context)]
        where = f"ledger {self._ledger_id}: {bookie} answered {status.name} to a LAC write"
        return [Failed(question.context, _fatal_error(where, status) or WriteError(where))]

    def _ask(self, question: FanOut) -> int:
        self._question_count += 1
        self._questions[self._question_count] = question
        return self._question_count

    # --- time -------------------------------------------------------------------------------------

    def on_timer(self, timer: Timer) -> Actions:
        """Do what the timer was started for; it may be started again."""
        if timer is Timer.QUORUM:
            return self._on_quorum_timer()
        if timer is Timer.RETRY:
            self._is_retry_timer_armed = False
            self._suspects.clear()
            if self._error is not None:
                return NOTHING
            return [*self._fill_gaps(), *self._arm_retry()]
        is_due = self._explicit_lac.on_timer(self._lac, is_idle=not self._pending)
        if self._error is not None or not is_due:
            return NOTHING
        return [self._send_lac(None)]

    def _on_quorum_timer(self) -> Actions:
        self._ticks += 1
        self._is_quorum_timer_armed = False
        limit = self._options.quorum_ticks_max
        if limit is None or self._error is not None:
            return NOTHING
        for entry_id, op in self._pending.items():
            if self._ticks - op.born <= limit:
                break
            if op.acks.bit_count() < self._ack_quorum_size:
                return self._fail_all(
                    AddEntryQuorumTimeoutError(
                        f"ledger {self._ledger_id}, entry {entry_id}: {op.acks.bit_count()} of "
                        f"{self._ack_quorum_size} bookies acknowledged it in time"
                    )
                )
        if not self._pending:
            return NOTHING
        self._is_quorum_timer_armed = True
        return [StartTimer(Timer.QUORUM)]


def _fatal_error(where: str, status: Status) -> BookieError | None:
    """Return what ends the handle at once, None for what a change of bookies may mend."""
    if status is Status.FENCED:
        return LedgerFencedError(f"{where}: fenced: another client recovers the ledger")
    if status is Status.UNAUTHORIZED:
        return UnauthorizedAccessError(f"{where}: the bookie knows the ledger by another password")
    if status is Status.CLIENT_CLOSED:
        return ClientClosedError(f"{where}: the client was closed")
    return None
