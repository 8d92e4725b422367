"""WriterMachine: how one handle writes a ledger, as events in and actions out.

Contract: entries complete strictly in order, each with acks of an ack quorum of the ensemble that
the metadata names for it; the LAC never goes back; after an error nothing completes any more. One
thread; no clock (Timer tokens), no I/O, no chance of its own. Source of the rules: BookKeeper's
LedgerHandle and PendingAddOp, with the defects G7 to G12 kept out, and writing on without a
replacement (docs/protocols/writer.md); ADR 0012 for closing under a recovery.
"""

from typing import Any, Protocol

from bookie.errors import (
    AddEntryQuorumTimeoutError,
    AddInterruptedError,
    BookieError,
    ClientClosedError,
    IllegalOperationError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataVersionError,
    NotEnoughBookiesError,
    Retry,
    WriteError,
)
from bookie.ledger.actions import (
    NOTHING,
    Action,
    Actions,
    Done,
    Failed,
    ReadMetadata,
    SendAdd,
    StartTimer,
    Timer,
    WriteMetadata,
    WriterOptions,
)
from bookie.ledger.add_queue import AddQueue, PendingAdd
from bookie.ledger.distribution import failures_max
from bookie.ledger.ensemble_change import Candidates, EnsembleChange, Replacer, plan
from bookie.ledger.members import Members, mask_of
from bookie.ledger.types import BookieId, EntryId, LedgerMetadata, LedgerState, Status
from bookie.ledger.writer_lac import LacSealer, WriterLac, fatal_error

BytesLike = bytes | bytearray | memoryview
QUORUM_TICKS = 4
"""Ticks of Timer.QUORUM in one add quorum time-out."""


class Sealer(LacSealer, Protocol):
    """What is needed of an EntryDigest."""

    def seal(
        self, ledger_id: int, entry_id: int, lac: int, length: int, payload: BytesLike
    ) -> bytes: ...


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
        self._write_quorum_size = metadata.write_quorum_size
        self._ack_quorum_size = metadata.ack_quorum_size

        # What the store holds as far as we know; its last ensemble is ours once it is applied.
        self._metadata = metadata
        self._version = version
        self._members = Members(metadata)

        self._queue = AddQueue(metadata.ledger_id, metadata.ack_quorum_size, options)
        self._lac = WriterLac(metadata.ledger_id, metadata.ack_quorum_size, sealer, options)
        self._error: BookieError | None = None  # no more adds

        self._writable = writable
        self._read_only: frozenset[BookieId] = frozenset()
        self._suspects: dict[BookieId, None] = {}  # failed lately, in that order
        self._spent: dict[BookieId, None] = {}  # had their last chance since
        self._late_failures: dict[int, BookieId] = {}
        self._change: EnsembleChange | None = None
        self._change_count = 0
        self._is_store_asked = False  # one question at a time
        self._writing: LedgerMetadata | None = None
        self._closers: list[Any] = []
        self._is_closed = False
        self._is_abandoned = False

        self._ticks = 0
        self._is_quorum_timer_armed = False
        self._is_retry_timer_armed = False

    # --- what is known ----------------------------------------------------------------------------

    @property
    def lac(self) -> int:
        return self._lac.entry_id

    @property
    def length(self) -> int:
        """Payload bytes up to the LAC."""
        return self._lac.length

    @property
    def last_pushed(self) -> int:
        """The greatest entry id given out so far."""
        return self._queue.last_pushed

    @property
    def pending_count(self) -> int:
        return len(self._queue.pending)

    @property
    def is_full(self) -> bool:
        """Whether there is as much under way as there may be."""
        return self._queue.is_full

    def has_room_for(self, entry_id: int | None) -> bool:
        """Whether add() takes an entry: of given ids also the one that all the others wait for."""
        return self._queue.has_room_for(entry_id)

    @property
    def metadata(self) -> LedgerMetadata:
        """As last read or written by this handle."""
        return self._metadata

    @property
    def ensemble(self) -> tuple[BookieId, ...]:
        """What entries are sent to, but for `missing_bookies`."""
        return self._members.bookies

    @property
    def missing_bookies(self) -> tuple[BookieId, ...]:
        """Members of the ensemble that failed and found no replacement so far."""
        return tuple(self._members.at(self._members.missing).values())

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
        if self._error is not None:
            raise self.fresh_error()
        size = payload.nbytes if type(payload) is memoryview else len(payload)
        queue = self._queue
        members = self._members
        entry_id = queue.check(size, entry_id)
        actions: list[Action] = []
        if self._late_failures and self._change is None:
            # Before the entry is sent: a bookie that missed an older entry gets no newer one.
            actions += self._begin_change({})
            if self._error is not None:
                return [*actions, Failed(context, self._error)]
        queue.length += size
        lac = self._lac.entry_id
        packet = self._sealer.seal(self._ledger_id, entry_id, lac, queue.length, payload)
        self._lac.carried()
        slot = entry_id % members.size
        queue.push(
            entry_id, PendingAdd(packet, size, context, members.write_sets[slot], self._ticks)
        )
        actions.append(SendAdd(entry_id, packet, members.targets[slot]))
        if self._options.quorum_ticks_max is not None and not self._is_quorum_timer_armed:
            self._is_quorum_timer_armed = True
            actions.append(StartTimer(Timer.QUORUM))
        return actions

    def on_add_reply(self, entry_id: int, bookie: BookieId, status: Status) -> Actions:
        """Count one answer. That of a bookie which is no longer in the ensemble means nothing."""
        bit = self._members.bits.get(bookie)
        if bit is None:
            return NOTHING
        add = self._queue.pending.get(entry_id)
        if status is not Status.OK:
            return self._on_failure(add, entry_id, bit, bookie, status)
        if add is None:
            return NOTHING
        # Recorded even when the quorum is complete: a change may take other acks away (G11).
        add.acks |= bit & add.write_set
        if (
            entry_id != self._queue.next
            or self._change is not None
            or add.acks.bit_count() < self._ack_quorum_size
        ):
            return NOTHING
        return self._complete()

    def _complete(self) -> list[Action]:
        """Acknowledge from the front of the queue what can be; not while a change is under way."""
        queue = self._queue
        actions: list[Action] = [*queue.complete()]
        actions += self._lac.acknowledged(
            queue.next - 1, queue.completed_length, is_idle=not queue.pending
        )
        return actions

    # --- failures ---------------------------------------------------------------------------------

    def _on_failure(
        self, add: PendingAdd | None, entry_id: int, bit: int, bookie: BookieId, status: Status
    ) -> Actions:
        if self._error is not None:
            return NOTHING
        where = f"ledger {self._ledger_id}, entry {entry_id} on {bookie}"
        fatal = fatal_error(where, status)
        if fatal is not None:
            return self._fail_all(fatal)
        if bit & self._members.missing:
            return NOTHING  # known; the others of many entries under way need no look each
        if self._options.is_deferred_sync:
            # Acknowledged entries may lie beyond the LAC: no segment could begin at LAC + 1.
            return self._fail_all(
                WriteError(f"{where}: {status.name}; a deferred-sync ledger takes no new bookies")
            )
        index = bit.bit_length() - 1
        if add is not None:
            add.failed |= bit & add.write_set
        if self._change is not None:
            self._change.arrived[index] = bookie
            self._suspects[bookie] = None
            return NOTHING
        is_delayed = self._options.is_change_delayed and status is not Status.READ_ONLY
        if add is None or self._queue.is_complete(add):
            if is_delayed:
                return NOTHING
            self._late_failures[index] = bookie
            self._suspects[bookie] = None
            return self._arm_retry()
        if is_delayed and self._can_complete(add):
            return NOTHING
        return self._begin_change({index: bookie})

    def _can_complete(self, add: PendingAdd) -> bool:
        lost = add.write_set & (add.failed | self._members.missing) & ~add.acks
        return lost.bit_count() <= failures_max(self._write_quorum_size, self._ack_quorum_size)

    def _fail_all(self, error: BookieError, pending_error: BookieError | None = None) -> Actions:
        """Fail everything pending in order and let nothing more in."""
        if self._error is not None:
            return NOTHING
        self._error = error
        shared = pending_error if pending_error is not None else error
        actions: list[Action] = [Failed(context, shared) for context in self._queue.clear()]
        self._change = None
        self._late_failures.clear()
        actions += self._lac.fail_all(shared)
        return actions

    def fresh_error(self) -> BookieError:
        """Return a new exception like the one that ended the handle."""
        if self._error is None:
            raise LedgerClosedError(f"ledger {self._ledger_id} is closed")
        return type(self._error)(*self._error.args)

    # --- ensemble change --------------------------------------------------------------------------

    def _begin_change(self, failed: dict[int, BookieId]) -> Actions:
        """Freeze completion and replace what failed, now or, of completed entries, before."""
        members = self._members
        if self._options.is_change_delayed:
            # What was borne so far is replaced as well, now that a change has to be made.
            borne = 0
            for add in self._queue.pending.values():
                borne |= add.failed
            failed |= members.at(borne)
        self._suspects.update(dict.fromkeys(failed.values()))
        failed |= self._late_failures
        self._late_failures.clear()
        self._change = EnsembleChange(members.at(members.where(failed) & ~members.missing))
        return self._next_round()

    def _next_round(self) -> Actions:
        """Look for bookies and write the metadata, or finish when there is nothing to write."""
        change = self._change
        if change is None:
            raise AssertionError("no ensemble change is under way")
        change.failed.update(change.arrived)
        change.arrived.clear()
        stored = self._metadata.last_segment.ensemble
        members = self._members
        failed = mask_of(i for i, b in change.failed.items() if stored[i] == b)
        gone = members.at(members.missing | change.missing)
        missing = mask_of(i for i, b in gone.items() if stored[i] == b)
        found = plan(
            stored,
            failed,
            missing & ~failed,
            Candidates(self._writable, self._suspects, self._spent),
            self._replacer,
            reachable=members.write_sets,
            ack_quorum_size=self._ack_quorum_size,
        )
        if found is None:
            return self._fail_all(self._too_few(stored, failed | missing))
        change.missing = found.missing
        change.rejoining = found.rejoining
        self._spent.update(dict.fromkeys(found.last_chances))
        # Spare entries that begin now the way to bookies that are being replaced.
        members.leave_out(members.where(change.failed) | change.missing)
        if found.ensemble == stored:
            if change.is_write_adrift:
                # It would name bookies that get no entries. A newer version keeps it out.
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
        start = EntryId(self._lac.entry_id + 1)
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
        alive = self._members.size - lost.bit_count()
        others = [b for b in self._writable if b not in stored]
        names = ", ".join(b for i, b in enumerate(stored) if lost >> i & 1)
        return WriteError(
            f"ledger {self._ledger_id}: {alive} of the {self._members.size} bookies of the "
            f"ensemble answer ({names} failed) and {len(others)} other writable ones are "
            f"registered; each write set needs {self._ack_quorum_size} that answer: start "
            "bookies, then close this ledger and begin another"
        )

    def _finish_change(self) -> Actions:
        """Apply what the store holds, take back the acks of replaced indexes, send again.

        All acks are taken back before anything completes (G8). Also run when the ensemble is the
        one we had (G10): then entries are sent to those that rejoin, and completion goes on.
        """
        change = self._change
        if change is None:
            raise AssertionError("no ensemble change is under way")
        stored = self._metadata.last_segment.ensemble
        members = self._members
        replaced = mask_of(i for i, b in enumerate(stored) if members.bookies[i] != b)
        again = replaced | change.rejoining
        self._change = None
        members.become(stored, change.missing)
        pending = self._queue.pending
        for add in pending.values():
            add.acks &= ~replaced
            add.failed &= ~again
        actions: list[Action] = []
        for entry_id, add in pending.items():
            targets = add.write_set & again & ~add.acks
            if targets:
                bookies = tuple(members.at(targets).values())
                actions.append(SendAdd(entry_id, add.packet, bookies))
        actions += self._complete()
        actions += self._arm_retry()
        leaving = self._leaving()  # what turned read-only meanwhile
        if leaving:
            actions += self._begin_change(leaving)
        return actions

    def on_bookies(
        self, writable: tuple[BookieId, ...], read_only: tuple[BookieId, ...] = ()
    ) -> Actions:
        """Take note of which bookies are writable or read-only now, sorted.

        Fills gaps in the ensemble, and replaces members that turned read-only (a drain makes them
        so) without waiting for an add to fail, where others can take their place.
        """
        self._read_only = frozenset(read_only)
        before, self._writable = self._writable, writable
        # A bookie that went and comes back has a new chance.
        for bookie in [b for b in self._suspects if b not in before or b not in writable]:
            del self._suspects[bookie]
            self._spent.pop(bookie, None)
        return self._fill_gaps()

    def _fill_gaps(self) -> Actions:
        if self._change is not None or self._error is not None:
            return NOTHING
        leaving = self._leaving()
        if not (leaving or self._members.missing):
            return NOTHING
        return self._begin_change(leaving)

    def _leaving(self) -> dict[int, BookieId]:
        """Return the members that are read-only and for whom there are others, by index.

        Without others they stay: the entries that they have can be read, and an add that one
        refuses replaces it as any failure does.
        """
        members = self._members
        leaving = {
            i: bookie
            for i, bookie in enumerate(members.bookies)
            if bookie in self._read_only and not members.missing >> i & 1
        }
        if (
            not leaving
            or self._options.is_deferred_sync  # it takes no new bookies
            or self._change_count >= self._options.ensemble_changes_max
            # Failures begin a change of their own, which needs the same others; then it is asked
            # again.
            or self._late_failures
            or any(add.failed for add in self._queue.pending.values())
        ):
            return {}
        gaps = tuple(members.at(members.missing))
        others = tuple(b for b in self._writable if b not in self._suspects)
        for count in range(len(leaving), 0, -1):
            indexes = (*gaps, *tuple(leaving)[:count])
            try:
                self._replacer.replace(indexes, members.bookies, others)
            except NotEnoughBookiesError:
                continue
            return dict(list(leaving.items())[:count])
        return {}

    def _arm_retry(self) -> Actions:
        if self._is_retry_timer_armed or not (self._suspects or self._members.missing):
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
        is_stored = wanted is not None and metadata.last_segment == wanted.last_segment
        if is_stored and not self._change.is_write_adrift:
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
        Raises ClientClosedError after abandon().
        """
        if self._is_abandoned:
            raise ClientClosedError(f"ledger {self._ledger_id}: this handle was abandoned")
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
        """End the handle without closing the ledger: the client goes, others may recover it.

        A close under way fails, too; it may have happened.
        """
        ended = ClientClosedError(f"ledger {self._ledger_id}: the handle was abandoned")
        actions = [*self._fail_all(ended), *(Failed(context, ended) for context in self._closers)]
        self._closers.clear()
        self._is_abandoned = not self._is_closed
        return actions

    def _begin_close(self) -> Actions:
        if self._metadata.state is LedgerState.IN_RECOVERY:
            # The recoverer decides; it may have done so since this was read.
            self._is_store_asked = True
            return [ReadMetadata()]
        return self._decide_close()

    def _write_closed(self) -> Actions:
        # The length is that of the entries up to the LAC: what was pending does not count (G12).
        return [self._write(self._metadata.closed(EntryId(self._lac.entry_id), self._lac.length))]

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
        lac = self._lac
        if found.last_entry_id == lac.entry_id and found.length == lac.length:
            return self._end_close(None)
        return self._end_close(
            MetadataVersionError(
                f"ledger {self._ledger_id}: expected to close it at entry {lac.entry_id} with "
                f"{lac.length} bytes, found it closed at {found.last_entry_id} with "
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
        queue = self._queue
        return self._lac.force(context, self._members, queue.next - 1, queue.completed_length)

    def on_force_reply(self, request: int, bookie: BookieId, status: Status) -> Actions:
        is_idle = not self._queue.pending
        return self._lac.on_force_reply(request, bookie, status, is_idle=is_idle)

    def write_lac(self, context: Any) -> Actions:
        """Write the LAC by itself to the write set of its entry; Done at an ack quorum."""
        if self._error is not None:
            raise self.fresh_error()
        return self._lac.write(context, self._members)

    def on_lac_reply(self, request: int, bookie: BookieId, status: Status) -> Actions:
        is_idle = not self._queue.pending
        return self._lac.on_lac_reply(request, bookie, status, is_idle=is_idle)

    # --- time -------------------------------------------------------------------------------------

    def on_timer(self, timer: Timer) -> Actions:
        """Do what the timer was started for; it may be started again."""
        if timer is Timer.QUORUM:
            return self._on_quorum_timer()
        if timer is Timer.RETRY:
            self._is_retry_timer_armed = False
            self._suspects.clear()
            self._spent.clear()
            if self._error is not None:
                return NOTHING
            # No add may come for long, and the segment should not go on naming a bookie that is
            # lost.
            is_due = bool(self._late_failures) and self._change is None
            actions = self._begin_change({}) if is_due else self._fill_gaps()
            return [*actions, *self._arm_retry()]
        if self._error is not None:
            return NOTHING
        return self._lac.on_timer(self._members, is_idle=not self._queue.pending)

    def _on_quorum_timer(self) -> Actions:
        self._ticks += 1
        self._is_quorum_timer_armed = False
        limit = self._options.quorum_ticks_max
        if limit is None or self._error is not None:
            return NOTHING
        for entry_id, add in self._queue.pending.items():
            if self._ticks - add.born <= limit:
                break
            if not self._queue.is_complete(add):
                return self._fail_all(
                    AddEntryQuorumTimeoutError(
                        f"ledger {self._ledger_id}, entry {entry_id}: {add.acks.bit_count()} of "
                        f"{self._ack_quorum_size} bookies acknowledged it in time"
                    )
                )
        if not self._queue.pending:
            return NOTHING
        self._is_quorum_timer_armed = True
        return [StartTimer(Timer.QUORUM)]
