"""Continuity: what proves that one ledger goes on where another one ends, and a copy with it.

The rules are those of docs/formats/ledgers_info.md, for each reader of the log: the node that has
claimed it (chain.py) and those that follow it (tail.py).
"""

from contextlib import suppress

from herdpy.cluster.ledgers_info import LedgersInfo
from herdpy.errors import CorruptionError
from herdpy.log.record import BeginLedger, decode
from herdpy.model.lsn import Lsn

End = tuple[int, int]
"""A ledger, and its last entry; (-1, -1) before the first ledger."""
NOTHING: End = (-1, -1)
_COPY_HINT = "a node without a checkpoint begins with a copy of another node's"


def check_beginning(info: LedgersInfo, path: str, after: Lsn) -> None:
    """Raise CorruptionError when a copy at this position cannot go on by the ledgers listed."""
    if not info.ledgers and info.first is not None:
        raise CorruptionError(
            f"{path}: it lists no ledger, though {info.first} was one: the log is not empty, and "
            "what is in it is not known"
        )
    if after.ledger_id >= 0:
        return
    if info.base:
        raise CorruptionError(
            f"{path}: the log begins behind snapshot {info.base}, of which this node has nothing",
            hint=_COPY_HINT,
        )
    if info.ledgers and info.ledgers[0] != info.first:
        raise CorruptionError(
            f"{path}: the log begins with ledger {info.ledgers[0]}, and what was in ledger "
            f"{info.first} and behind it is in no checkpoint of this node",
            hint=_COPY_HINT,
        )


def end_before_first(info: LedgersInfo, after: Lsn) -> End | None:
    """Return behind which end the first listed ledger has to go on; None: any."""
    if not info.ledgers or after.ledger_id >= info.ledgers[0]:
        return NOTHING if info.ledgers[:1] == (info.first,) else None
    # What was dropped in between is in no checkpoint of this node.
    return (after.ledger_id, after.entry_id) if after.ledger_id >= 0 else NOTHING


def check_header(ledger_id: int, records: list[bytes], before: End | None) -> BeginLedger:
    """Return a ledger's header; CorruptionError: entry 0 does not name the end before it."""
    with suppress(ValueError, IndexError):
        found = decode(records[0])
        if isinstance(found, BeginLedger) and len(records) == 1:
            if before is None or (found.previous_ledger, found.previous_entry) == before:
                return found
            raise CorruptionError(
                f"ledger {ledger_id} goes on behind entry {found.previous_entry} of ledger "
                f"{found.previous_ledger}, and the log ends with entry {before[1]} of ledger "
                f"{before[0]}: a part of it is missing, or another tablespace's"
            )
    raise CorruptionError(
        f"ledger {ledger_id}: expected the header of a tablespace's ledger in entry 0, found "
        f"{records[:1]!r:.60}"
    )


def beyond_end(path: str, after: Lsn, end: End) -> CorruptionError:
    """Return what is said of a copy that has more than the log."""
    return CorruptionError(
        f"{path}: this node is at {after}, and the log ends with entry {end[1]} of ledger {end[0]}",
        hint="it is another tablespace's, or of a log that was put back to an older state: a "
        "copy of another node takes its place",
    )


def missing(path: str, ledger_id: int) -> CorruptionError:
    """Return what is said of a ledger that is listed and is not there."""
    return CorruptionError(
        f"{path} lists ledger {ledger_id}, and BookKeeper has none of this id",
        hint="look whether it is the cluster's BookKeeper; a ledger that was deleted is in no "
        "copy but a node's checkpoint",
    )
