"""What a ledger is: ids, digest types, states, metadata.

Metadata is immutable; a change makes a new value and is written by compare-and-set. Source of the
rules: Apache BookKeeper's LedgerMetadata (docs/formats/ledger_metadata.md).
"""

import re
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import NewType

from bookie.errors import IncorrectParameterError

LedgerId = NewType("LedgerId", int)
EntryId = NewType("EntryId", int)
BookieId = NewType("BookieId", str)
"""What a bookie is called in metadata: "host:port" by default."""

# BookKeeper's own rule; its range ":-_" holds ; < = > ? @, the capitals and [ \\ ] ^ too.
_BOOKIE_ID = re.compile(r"[a-zA-Z0-9:-_.\-]+", re.ASCII)


_NO_IDS = ("readonly", ".", "..")
"""A node beside the registrations, and no names of nodes at all."""


def parse_bookie_id(text: str) -> BookieId:
    """Take text for a bookie id; IncorrectParameterError when BookKeeper would refuse it."""
    if not _BOOKIE_ID.fullmatch(text) or text.lower() in _NO_IDS:
        raise IncorrectParameterError(
            f"bookie id {text[:100]!r}: expected letters, digits and : ; < = > ? @ [ \\ ] ^ _ . - "
            f"but none of {', '.join(map(repr, _NO_IDS))}"
        )
    return BookieId(text)


INVALID_ENTRY_ID = EntryId(-1)
"""Before the first entry; the LAC of an empty ledger."""


class DigestType(Enum):
    """How an entry's bytes are protected; the values are those of the metadata format."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


class LedgerState(Enum):
    """The values are those of the metadata format."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class Status(IntEnum):
    """What a bookie answered, in the numbers of the v3 protocol; or what happened instead.

    The last three never cross the wire: the client makes them of silence.
    """

    OK = 0
    NO_LEDGER = 402
    NO_ENTRY = 403
    BAD_REQUEST = 404
    IO_ERROR = 501
    UNAUTHORIZED = 502
    BAD_VERSION = 503
    FENCED = 504
    READ_ONLY = 505
    TOO_MANY_REQUESTS = 506
    UNKNOWN_LEDGER_STATE = 507
    TIMED_OUT = -23
    UNAVAILABLE = -8
    CLIENT_CLOSED = -19


@dataclass(frozen=True, slots=True)
class Segment:
    """Entries from first_entry_id up to the next segment's lie on this ensemble."""

    first_entry_id: EntryId
    ensemble: tuple[BookieId, ...]
    unknown_fields: bytes = b""
    """As in LedgerMetadata, those of this segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMetadata:
    """One ledger as the metadata store knows it. `segments` ascends; the first begins at 0."""

    ledger_id: LedgerId
    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    segments: tuple[Segment, ...]
    digest_type: DigestType | None = DigestType.CRC32C
    """None: the stored metadata is of a version that did not say."""
    password: bytes | None = b""
    state: LedgerState = LedgerState.OPEN
    last_entry_id: EntryId = INVALID_ENTRY_ID
    """Of a CLOSED ledger; -1 when it is empty or not closed."""
    length: int = 0
    """Bytes of payload of a CLOSED ledger."""
    format_version: int = 3
    """Of the bytes it was read from; kept when it is written again."""
    ctime_ms: int | None = None
    """When it was created, as the metadata says or, without that, the store."""
    is_ctime_stored: bool = False
    """The metadata says it itself, and goes on to when it is written again."""
    creator_token: int | None = None
    """Tells our own create from another's when the answer was lost.

    0 after the first update: the methods below see to it. Versions 1 and 2 do not store it.
    """
    custom: dict[str, bytes] = field(default_factory=dict)
    unknown_fields: bytes = b""
    """Fields of a newer BookKeeper in protobuf's encoding, written again as they came."""

    @property
    def is_closed(self) -> bool:
        return self.state is LedgerState.CLOSED

    @property
    def last_segment(self) -> Segment:
        return self.segments[-1]

    def segment_end(self, number: int) -> int | None:
        """Return the last entry id of a segment; None: it may still grow."""
        ends: list[int] = [self.last_entry_id] if self.is_closed else []
        if number + 1 < len(self.segments):
            ends.append(self.segments[number + 1].first_entry_id - 1)
        return min(ends, default=None)

    def segment_of(self, entry_id: int) -> Segment:
        """Return the segment that holds entry_id, which is 0 or more."""
        for segment in reversed(self.segments):
            if segment.first_entry_id <= entry_id:
                return segment
        raise ValueError(f"ledger {self.ledger_id}: no segment holds entry {entry_id}")

    def with_state(self, state: LedgerState) -> "LedgerMetadata":
        return replace(self, state=state, creator_token=0)

    def closed(self, last_entry_id: EntryId, length: int) -> "LedgerMetadata":
        return replace(
            self,
            state=LedgerState.CLOSED,
            last_entry_id=last_entry_id,
            length=length,
            creator_token=0,
        )

    def with_ensemble(
        self, first_entry_id: EntryId, ensemble: tuple[BookieId, ...]
    ) -> "LedgerMetadata":
        """Begin a segment, or replace the last one when it begins at the same entry."""
        last = self.segments[-1].first_entry_id
        if first_entry_id < last:
            raise ValueError(
                f"ledger {self.ledger_id}: a segment at {first_entry_id} before the last, {last}"
            )
        kept = self.segments[:-1] if first_entry_id == last else self.segments
        segments = (*kept, Segment(first_entry_id, ensemble))
        return replace(self, segments=segments, creator_token=0)
