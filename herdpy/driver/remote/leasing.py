"""RemoteLeasing: leases and parts of tables, of a server, on one connection. Any thread."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from herdpy.driver.interfaces import HeldLease
from herdpy.errors import ProtocolError
from herdpy.exec.result import Result
from herdpy.proto import messages
from herdpy.proto.messages import Message
from herdpy.proto.values import check_statement, to_wire
from herdpy.sql.plan import Parameters


class _Held(NamedTuple):
    """Implements interfaces.HeldLease."""

    id: str
    position: str
    seconds: float


class RemoteLeasing:
    """Implements interfaces.Leasing."""

    def __init__(
        self,
        ask: Callable[[Callable[[int], Message]], Any],
        as_result: Callable[[messages.Done], Result],
    ) -> None:
        """ask() sends a request and returns its answer, as_result() makes a Result of one."""
        self._ask = ask
        self._as_result = as_result

    def take(self, seconds: float, reuse: str | None = None) -> HeldLease:
        """Keep what is committed now, until it was not used for so long."""
        return _held(self._ask(lambda request: messages.TakeLease(request, seconds, reuse)))

    def use(self, number: str) -> HeldLease:
        """Begin the time of a lease anew; SnapshotTooOldError: it is gone."""
        return _held(self._ask(lambda request: messages.UseLease(request, number)))

    def end(self, number: str) -> bool:
        """Let a lease go; False: it was gone."""
        return self._ask(lambda request: messages.EndLease(request, number)).row_count == 1

    def partitions(
        self, name: str, count: int, lease: str | None = None
    ) -> list[tuple[bytes | None, bytes | None, int, int]]:
        """Cut a table into ranges of its key."""
        answer = self._ask(lambda request: messages.ListPartitions(request, name, count, lease))
        if not isinstance(answer, messages.Partitions):
            raise ProtocolError(f"expected partitions, found {type(answer).__name__}")
        return answer.parts

    def read_partition(
        self,
        name: str,
        lower: bytes | None,
        upper: bytes | None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        parameters: Parameters = None,
        lease: str | None = None,
    ) -> Result:
        """Return the rows of a part of a table."""
        names, wire = None if columns is None else list(columns), to_wire(parameters)
        text = None if where is None else check_statement(where)
        done = self._ask(
            lambda request: messages.ReadPartition(
                request, name, lower, upper, names, text, wire, lease
            )
        )
        return self._as_result(done)


def _held(answer: Any) -> HeldLease:
    if not isinstance(answer, messages.Leased):
        raise ProtocolError(f"expected a lease, found {type(answer).__name__}")
    if not answer.lease.isascii() or not answer.lease.isalnum():
        # Programs put ids into statements, and the connector into names of files.
        raise ProtocolError(f"expected the id of a lease, found {answer.lease!r:.100}")
    return _Held(answer.lease, answer.position, answer.seconds)
