"""PartCheck: what a session's requests may be for the part that its node has. Any thread.

A copy that follows runs what reads, as long as what it shows is not too old, or at a lease, and
nothing that is the leader's: beginnings and ends of leases, stagings and ingests are facts of the
log, and so is what became of a commit.
"""

from typing import Any, Protocol

from herdpy.errors import Error
from herdpy.proto import messages

READ_MODES = ("", "leader", "follower", "nearest")
"""Of Hello."""
MAX_STALENESS_S = 10.0
"""Of who says nothing of it: more than the sessions of nodes last, so that a failover goes by."""
_AT_LEASES = messages.ListPartitions | messages.ReadPartition
"""Read at a lease, which is what it is on each copy that has it; or what is committed now."""
_READING = (
    messages.Execute | messages.ExecuteMany | messages.ExecuteAll | messages.Export
    | messages.ListTables
)  # fmt: skip
_OF_LEADERS = (
    messages.TakeLease | messages.EndLease
    | messages.BeginStaging | messages.BeginStage | messages.StageRows | messages.EndStage
    | messages.SettleStaging
    | messages.BeginIngest | messages.Resolve
)  # fmt: skip


class CheckedPart(Protocol):
    """What a node is for a tablespace; any thread."""

    @property
    def follows(self) -> bool:
        """It neither leads nor is about to."""
        ...

    def check_lag(self, max_staleness_s: float) -> None:
        """Raise 25006, SAFE, when it does not lead, and what it shows may be older."""
        ...

    def write_refusal(self) -> Error:
        """Return what a statement is told that only a leader runs."""
        ...


class PartCheck:
    """See the module."""

    __slots__ = ("_max_staleness_s", "_part")

    def __init__(self, part: CheckedPart, max_staleness_s: float) -> None:
        """max_staleness_s: of what a statement may see; 0: nothing was said of it."""
        self._part = part
        self._max_staleness_s = max_staleness_s or MAX_STALENESS_S

    def check(self, message: Any) -> None:
        """Raise 25006 when this node does not run a request, as it is now."""
        is_of_now = isinstance(message, _AT_LEASES) and message.lease is None
        if is_of_now or isinstance(message, _READING):
            self._part.check_lag(self._max_staleness_s)
        elif isinstance(message, _OF_LEADERS) and self._part.follows:
            raise self._part.write_refusal()
