"""Each checker of a ledger's history finds what it is named for, and nothing in a sound history."""

import pytest

from bookie.ledger import metadata_codec
from bookie.ledger.types import BookieId, EntryId, LedgerId, LedgerMetadata, LedgerState, Segment
from tests.sim.ledger.checkers import CheckError, History

BOOKIES = tuple(BookieId(name) for name in ("a:1", "b:1", "c:1"))
OTHERS = tuple(BookieId(name) for name in ("d:1", "b:1", "c:1"))
OPEN = LedgerMetadata(
    ledger_id=LedgerId(7),
    ensemble_size=3,
    write_quorum_size=3,
    ack_quorum_size=2,
    segments=(Segment(EntryId(0), BOOKIES),),
)


def history(*payloads: bytes) -> History:
    """Return the history of a ledger to which these were written, each on two bookies."""
    found = History(lambda _: None, lambda: 0.0, lambda _: None)
    found.ledger_id = 7
    store(found, OPEN)
    for payload in payloads:
        number = found.submitted(payload)
        found.taken("a:1", 7, number)
        found.taken("b:1", 7, number)
    return found


def store(found: History, metadata: LedgerMetadata) -> None:
    found.stored(metadata_codec.encode(metadata))


def finds(checker: str) -> "pytest.RaisesContext[CheckError]":
    return pytest.raises(CheckError, match=rf"^\[{checker}\]")


def test_a_sound_history_is_left_alone() -> None:
    found = history(b"one", b"two")
    found.acked(0, 0)
    found.lac_seen("w", 0)
    found.acked(1, 1)
    store(found, OPEN.with_state(LedgerState.IN_RECOVERY))
    store(found, OPEN.closed(EntryId(1), 6))
    found.closed("r", 1, 6)
    found.lac_seen("r", 1)
    found.read_all("r", [(0, b"one"), (1, b"two")], 1)


def test_durability_is_an_acknowledged_entry_beyond_the_end_or_changed() -> None:
    found = history(b"one", b"two")
    found.acked(0, 0)
    found.acked(1, 1)
    with finds("durability"):
        found.read("r", 1, b"2wo")
    with finds("durability"):
        found.closed("r", 0, 3)


def test_agreement_is_one_end_with_the_length_of_its_entries() -> None:
    found = history(b"one", b"two")
    with finds("agreement"):
        found.closed("r", 0, 4)
    found = history(b"one", b"two")
    found.closed("r", 0, 3)
    with finds("agreement"):
        found.closed("s", 1, 6)


def test_fence_is_no_acknowledgement_beyond_the_end() -> None:
    found = history(b"one", b"two")
    found.closed("r", 0, 3)
    found.acked(0, 0)
    with finds("fence"):
        found.acked(1, 1)


def test_lac_does_not_go_back_nor_beyond_what_is_held() -> None:
    found = history(b"one", b"two")
    found.lac_seen("t", 1)
    found.lac_seen("u", 0)
    with finds("lac"):
        found.lac_seen("t", 0)
    found = history(b"one")
    found.submitted(b"two")
    found.taken("c:1", 7, 1)
    with finds("lac"):
        found.lac_seen("t", 1)


def test_quorum_counts_only_bookies_of_the_segment() -> None:
    found = history(b"one")
    store(found, OPEN.with_ensemble(EntryId(0), OTHERS))
    with finds("quorum"):
        found.acked(0, 0)
    found.taken("c:1", 7, 0)
    found.acked(0, 0)


def test_reading_is_what_was_written_and_in_order() -> None:
    found = history(b"one", b"two")
    with finds("reading"):
        found.read("r", 2, b"three")
    with finds("reading"):
        found.read("r", 0, b"two")
    with finds("reading"):
        found.read_all("r", [(1, b"two")], 1)
    with finds("reading"):
        found.read_all("r", [(0, b"one")], 1)
    with finds("reading"):
        found.acked(0, 1)


@pytest.mark.parametrize(
    "after",
    [
        OPEN.with_state(LedgerState.OPEN),
        OPEN.closed(EntryId(1), 6),
        OPEN.closed(EntryId(0), 3).with_ensemble(EntryId(1), OTHERS),
    ],
)
def test_metadata_that_is_closed_never_changes(after: LedgerMetadata) -> None:
    found = history(b"one", b"two")
    store(found, OPEN.closed(EntryId(0), 3))
    with finds("metadata"):
        store(found, after)


def test_metadata_keeps_older_segments_and_whole_ensembles() -> None:
    found = history(b"one", b"two")
    store(found, OPEN.with_ensemble(EntryId(1), OTHERS))
    with finds("metadata"):
        store(found, OPEN.with_ensemble(EntryId(0), OTHERS))
    with finds("metadata"):
        twice = (BOOKIES[0], BOOKIES[0], BOOKIES[1])
        store(history(), OPEN.with_ensemble(EntryId(0), twice))
