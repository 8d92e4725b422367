"""Which entries of a ledger are settled, on which bookies they must lie, and what a copy changes.

Pure functions over metadata. Settled are all entries of a CLOSED ledger and those below the last
segment of another one: a segment begins after acknowledged entries (G2). The last segment of a
ledger that is not CLOSED is its writer's, or its recoverer's, alone.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from bookie.ledger.distribution import count_of, entries_of, holds, runs_of
from bookie.ledger.types import BookieId, LedgerMetadata, Segment


class Span(NamedTuple):
    """The settled entries of one segment; last < first: it has none."""

    first: int
    last: int
    ensemble: tuple[BookieId, ...]


def spans_of(metadata: LedgerMetadata) -> list[Span]:
    """Return the settled spans, ascending."""
    found: list[Span] = []
    for number, segment in enumerate(metadata.segments):
        last = metadata.segment_end(number)
        if last is None:
            break
        found.append(Span(segment.first_entry_id, last, segment.ensemble))
    return found


def open_segment(metadata: LedgerMetadata) -> Segment | None:
    """Return the segment that may still grow; None: the ledger is CLOSED."""
    return None if metadata.is_closed else metadata.last_segment


def members_of(metadata: LedgerMetadata) -> tuple[BookieId, ...]:
    """Return every bookie that some segment names, each once."""
    return tuple(dict.fromkeys(b for segment in metadata.segments for b in segment.ensemble))


def entries_at(metadata: LedgerMetadata, span: Span, index: int) -> Iterator[int]:
    """Yield the entries that the bookie at index of a span must have, ascending."""
    return entries_of(
        index, span.first, span.last, metadata.ensemble_size, metadata.write_quorum_size
    )


def runs_at(metadata: LedgerMetadata, span: Span, index: int) -> Iterator[range]:
    """Yield these entries as runs of consecutive ids."""
    sizes = metadata.ensemble_size, metadata.write_quorum_size
    return runs_of(index, span.first, span.last, *sizes)


def count_at(metadata: LedgerMetadata, span: Span, index: int) -> int:
    """Return how many these entries are."""
    sizes = metadata.ensemble_size, metadata.write_quorum_size
    return count_of(index, span.first, span.last, *sizes)


def ends_at(metadata: LedgerMetadata, span: Span, index: int) -> tuple[int, ...]:
    """Return the first and the last of these entries: two, one, or none."""
    sizes = metadata.ensemble_size, metadata.write_quorum_size
    near = range(span.first, min(span.last, span.first + metadata.ensemble_size - 1) + 1)
    first = next((e for e in near if holds(index, e, *sizes)), None)
    if first is None:
        return ()
    far = range(span.last, max(span.first, span.last - metadata.ensemble_size + 1) - 1, -1)
    last = next(e for e in far if holds(index, e, *sizes))
    return (first,) if first == last else (first, last)


def replaced(
    found: LedgerMetadata, span: Span, old: BookieId, new: BookieId
) -> LedgerMetadata | None:
    """Return metadata in which `new` has the place of `old` in a span that was copied.

    None: nothing is to be written, because the span is not settled there, another worker replaced
    `old`, or `new` is a member already.
    """
    for number, segment in enumerate(found.segments):
        if segment.first_entry_id != span.first:
            continue
        if segment is found.last_segment and not found.is_closed:
            return None
        if old not in segment.ensemble or new in segment.ensemble:
            return None
        ensemble = tuple(new if bookie == old else bookie for bookie in segment.ensemble)
        segments = list(found.segments)
        segments[number] = replace(segment, ensemble=ensemble)
        return replace(found, segments=tuple(segments), creator_token=0)
    return None


def missing_members(
    metadata: LedgerMetadata,
    registered: Collection[BookieId],
    leaving: Collection[BookieId],
    spared: Collection[BookieId] = (),
) -> tuple[BookieId, ...]:
    """Return the members that are not registered, or must be left.

    spared: bookies that an open last segment may keep while they are registered.
    """
    settled = {b for span in spans_of(metadata) for b in span.ensemble}
    return tuple(
        b
        for b in members_of(metadata)
        if b not in registered or (b in leaving and (b in settled or b not in spared))
    )
