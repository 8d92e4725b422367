"""AddQueue: the entries under way on one handle, their window, their ids, and their order.

Entries leave from the front only, each with acks of an ack quorum. Ids are given out one after the
other or, where the caller gives them, taken in any order; then a gap holds back what is behind it.
"""

from typing import Any

from bookie.errors import (
    DuplicateEntryIdError,
    IllegalOperationError,
    IncorrectParameterError,
    TooManyRequestsError,
)
from bookie.ledger.actions import Added, WriterOptions


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
        """The tick at which it began."""
        self.acks = 0
        self.failed = 0


class AddQueue:
    """See the module."""

    __slots__ = (
        "_ack_quorum_size",
        "_ledger_id",
        "_options",
        "byte_count",
        "completed_length",
        "last_pushed",
        "length",
        "next",
        "pending",
    )

    def __init__(self, ledger_id: int, ack_quorum_size: int, options: WriterOptions) -> None:
        self._ledger_id = ledger_id
        self._ack_quorum_size = ack_quorum_size
        self._options = options
        self.pending: dict[int, PendingAdd] = {}
        """By entry id, in the order in which they began."""
        self.byte_count = 0
        """Payload of what is pending."""
        self.next = 0
        """The entry that completes next."""
        self.last_pushed = -1
        """The greatest id so far."""
        self.length = 0
        """Payload of all entries that began, in the order in which they did."""
        self.completed_length = 0

    @property
    def is_full(self) -> bool:
        return (
            len(self.pending) >= self._options.pending_adds_max
            or self.byte_count >= self._options.pending_bytes_max
        )

    def has_room_for(self, entry_id: int | None) -> bool:
        """Whether an entry is let in: of given ids also the one that all the others wait for."""
        return not self.is_full or (entry_id == self.next and entry_id not in self.pending)

    def check(self, size: int, entry_id: int | None) -> int:
        """Return the id that the entry gets, or raise why it cannot begin; nothing is changed."""
        options = self._options
        if size > options.payload_bytes_max:
            raise IncorrectParameterError(
                f"ledger {self._ledger_id}: expected an entry of at most "
                f"{options.payload_bytes_max} bytes, found {size}: split it"
            )
        if entry_id is not None:
            self._check_given(entry_id)
        if not self.has_room_for(entry_id):
            raise TooManyRequestsError(
                f"ledger {self._ledger_id}: {len(self.pending)} adds of {self.byte_count} bytes "
                "are under way: wait for some of them, or raise the limits"
            )
        if entry_id is None:
            if options.are_ids_given:
                raise IllegalOperationError(
                    f"ledger {self._ledger_id}: this handle is given the ids of its entries"
                )
            return self.last_pushed + 1
        return entry_id

    def _check_given(self, entry_id: int) -> None:
        if not self._options.are_ids_given:
            raise IllegalOperationError(
                f"ledger {self._ledger_id}: this handle numbers its entries itself"
            )
        if entry_id < 0:
            raise IncorrectParameterError(
                f"ledger {self._ledger_id}: expected an entry id of 0 or more, found {entry_id}"
            )
        if entry_id < self.next or entry_id in self.pending:
            raise DuplicateEntryIdError(
                f"ledger {self._ledger_id}: entry {entry_id} was added before; "
                f"the next that is missing is {self.next}"
            )

    def push(self, entry_id: int, add: PendingAdd) -> None:
        """Let an entry in; `length` has counted it already, because its packet says so."""
        self.pending[entry_id] = add
        self.byte_count += add.payload_bytes
        if entry_id > self.last_pushed:
            self.last_pushed = entry_id

    def is_complete(self, add: PendingAdd) -> bool:
        return add.acks.bit_count() >= self._ack_quorum_size

    def complete(self) -> list[Added]:
        """Take from the front what is complete, in order."""
        done: list[Added] = []
        pending = self.pending
        entry_id = self.next
        while (add := pending.get(entry_id)) is not None:
            if add.acks.bit_count() < self._ack_quorum_size:
                break
            del pending[entry_id]
            self.byte_count -= add.payload_bytes
            self.completed_length += add.payload_bytes
            done.append(Added(add.context, entry_id))
            entry_id += 1
        self.next = entry_id
        return done

    def clear(self) -> list[Any]:
        """Drop what is pending; return the contexts in the order of the ids."""
        contexts = [self.pending[entry_id].context for entry_id in sorted(self.pending)]
        self.pending.clear()
        self.byte_count = 0
        return contexts
