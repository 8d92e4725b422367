"""What the writer's machine asks its runner to do, and the limits it works under.

A machine takes an event and returns actions; the runner (bookie/client/writer.py) carries them out
in their order. `context` is whatever the caller handed in with add(), close(), force() or
write_lac(), given back once. Actions are made on the hot path: plain slotted values, never changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bookie.errors import BookieError, IncorrectParameterError
from bookie.ledger.types import BookieId, LedgerMetadata


class Timer(Enum):
    """What a machine may ask to be woken for; one of each at a time. The runner knows how long."""

    QUORUM = "quorum"
    """A quarter of the add quorum time-out."""
    RETRY = "retry"
    """Time to look again for bookies in the place of those that failed."""
    EXPLICIT_LAC = "explicit lac"
    """The LAC moved and no entry carries it."""


@dataclass(slots=True)
class SendAdd:
    """Send the packet to each of the bookies; answer by on_add_reply(entry_id, bookie, status)."""

    entry_id: int
    packet: bytes
    bookies: tuple[BookieId, ...]


@dataclass(slots=True)
class Added:
    """The entry and all before it are acknowledged by an ack quorum."""

    context: Any
    entry_id: int


@dataclass(slots=True)
class Done:
    """close(), force() or write_lac() succeeded."""

    context: Any


@dataclass(slots=True)
class Failed:
    """The call that brought this context failed. The error is shared by calls that fail at once."""

    context: Any
    error: BookieError


@dataclass(slots=True)
class WriteMetadata:
    """Compare-and-set; answer by on_metadata_written(), _found() or _failed()."""

    metadata: LedgerMetadata
    version: int


@dataclass(slots=True)
class ReadMetadata:
    """Read what is there now; answer by on_metadata_found() or _failed()."""


@dataclass(slots=True)
class SendForce:
    """Force the ledger on each of the bookies; answer by on_force_reply(request, …)."""

    request: int
    bookies: tuple[BookieId, ...]


@dataclass(slots=True)
class SendLac:
    """Write the LAC packet to each of the bookies; answer by on_lac_reply(request, …)."""

    request: int
    lac: int
    packet: bytes
    bookies: tuple[BookieId, ...]


@dataclass(slots=True)
class StartTimer:
    """Call on_timer(timer) after the time that the runner's settings give it."""

    timer: Timer


Action = (
    SendAdd
    | Added
    | Done
    | Failed
    | WriteMetadata
    | ReadMetadata
    | SendForce
    | SendLac
    | StartTimer
)
Actions = Sequence[Action]
NOTHING: Actions = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """How one ledger is written. Checked against each other by the machine."""

    pending_adds_max: int = 10_000
    pending_bytes_max: int = 256 * 1024 * 1024
    """Payload under way; one entry is always let in."""
    payload_bytes_max: int = 5 * 1024 * 1024 - 256
    ensemble_changes_max: int = 2**31 - 1
    is_change_delayed: bool = False
    """Replace a bookie only when it is read-only or an entry can no longer reach the quorum."""
    is_deferred_sync: bool = False
    """Acknowledged before fsync: the LAC moves by force() only, and any failure ends the handle."""
    are_ids_given: bool = False
    """The caller chooses entry ids, in any order."""
    quorum_ticks_max: int | None = None
    """Ticks of Timer.QUORUM after which an add without its quorum fails; None: never."""
    is_lac_explicit: bool = False

    def __post_init__(self) -> None:
        for name in ("pending_adds_max", "pending_bytes_max", "payload_bytes_max"):
            if getattr(self, name) < 1:
                raise IncorrectParameterError(f"{name}: expected 1 or more")
