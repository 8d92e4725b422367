"""Asks an ensemble for its LAC, fencing it or not, until no acknowledged entry can hide.

Source: BookKeeper's ReadLastConfirmedOp; docs/protocols/recovery.md. All E bookies of the last
segment are asked. The answer stands once of every Qw neighbours fewer than Qa are unknown (G3), and
at least one bookie gave a valid answer; NoEntry and NoLedger are answers. UNAUTHORIZED ends it at
once. A bookie that never answers is not waited for (G4). A machine: replies in, an outcome out.
"""

from bookie.errors import BookieError, DigestMismatchError, LedgerRecoveryError, ReadError
from bookie.ledger.codec import BytesLike, Entry, EntryDigest
from bookie.ledger.distribution import KNOWN_ANSWERS, Coverage
from bookie.ledger.statuses import unauthorized
from bookie.ledger.types import BookieId, LedgerMetadata, Status


class LacQuery:
    """One question to the last ensemble; `lac` and the rest are meant when is_done.

    is_fencing: the packets are answers to fencing reads of the last entry. A bookie whose packet
    is damaged has fenced all the same, so there its answer counts for the coverage; for a plain
    question it is unknown, since its LAC might have been the greatest.
    """

    def __init__(self, metadata: LedgerMetadata, digest: EntryDigest, *, is_fencing: bool) -> None:
        self.metadata = metadata
        self.digest = digest
        self.is_fencing = is_fencing
        self._coverage = Coverage(
            metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size
        )
        self.lac: int = -1
        """The greatest of the valid answers."""
        self.last_entry: Entry | None = None
        """The packet that said so; None when only LAC packets or negatives came."""
        self.is_done = False
        self.error: BookieError | None = None
        self.damaged: list[BookieId] = []
        self.last_entry_ids: dict[BookieId, int] = {}
        """Of those that gave an intact last entry."""
        self._has_valid_answer = False

    @property
    def bookies(self) -> tuple[BookieId, ...]:
        """The bookies to ask, by index."""
        return self.metadata.last_segment.ensemble

    @property
    def silent(self) -> tuple[BookieId, ...]:
        """The bookies that have not answered yet."""
        statuses = self._coverage.statuses
        return tuple(b for b, status in zip(self.bookies, statuses, strict=True) if status is None)

    @property
    def is_decided(self) -> bool:
        return self.is_done or self.error is not None

    def on_reply(
        self, index: int, status: Status, last_entry: BytesLike = b"", lac_packet: BytesLike = b""
    ) -> bool:
        """Take the answer of the bookie at index; True when it decides.

        One that comes after a good decision may still raise `lac`, and changes nothing else.
        """
        if self.error is not None:
            return False
        if status is Status.UNAUTHORIZED and not self.is_done:
            where = f"ledger {self.metadata.ledger_id}, bookie {self.bookies[index]}"
            self.error = unauthorized(where)
            return True
        is_valid = status in KNOWN_ANSWERS
        is_intact = self._take(index, last_entry, lac_packet) if status is Status.OK else True
        self._has_valid_answer |= is_valid and is_intact
        if not is_intact and not self.is_fencing:
            status = Status.IO_ERROR
        self._coverage.record(index, status)
        if self.is_done:
            return False
        if self._has_valid_answer and self._coverage.is_covered:
            self.is_done = True
        elif self._coverage.is_complete:
            self.error = self._failure()
        return self.is_decided

    def _take(self, index: int, last_entry: BytesLike, lac_packet: BytesLike) -> bool:
        """Note the LACs of valid packets; False when one is damaged."""
        ledger_id = self.metadata.ledger_id
        is_intact = True
        try:
            if last_entry:
                entry = self.digest.open(last_entry, ledger_id, None)
                self.last_entry_ids[self.bookies[index]] = entry.entry_id
                if entry.lac > self.lac or self.last_entry is None:
                    self.last_entry = entry
                self.lac = max(self.lac, entry.lac)
        except DigestMismatchError:
            is_intact = False
        try:
            if lac_packet:
                self.lac = max(self.lac, self.digest.open_lac(lac_packet, ledger_id))
        except DigestMismatchError:
            is_intact = False
        if not is_intact:
            self.damaged.append(self.bookies[index])
        return is_intact

    def _failure(self) -> BookieError:
        answers = ", ".join(
            f"{bookie} {status.name if status is not None else 'silent'}"
            for bookie, status in zip(self.bookies, self._coverage.statuses, strict=True)
        )
        text = (
            f"ledger {self.metadata.ledger_id}: too few bookies of the last ensemble told their"
            f" LAC ({answers}); of every {self.metadata.write_quorum_size} neighbours fewer than"
            f" {self.metadata.ack_quorum_size} may be unknown; try again when they are back"
        )
        if self.damaged and not self.is_fencing:
            return DigestMismatchError(text)
        return LedgerRecoveryError(text) if self.is_fencing else ReadError(text)
