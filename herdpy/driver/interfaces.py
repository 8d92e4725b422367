"""What the driver's API needs of a session, local or remote, and of the claim under it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from bookie.runtime.interfaces import Rng
from bookie.runtime.ticket import Ticket
from herdpy.errors import Error, loading
from herdpy.exec.result import Columns, LogicalRow, Result
from herdpy.model.isolation import Isolation
from herdpy.model.lsn import Lsn
from herdpy.model.schema import Table
from herdpy.sql.plan import Parameters

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.driver.dsn import Address, RemoteTarget
    from herdpy.features import Feature

T = TypeVar("T")
PointRows = tuple[Columns, list[LogicalRow]]


def as_result(found: Result | PointRows) -> Result:
    """Return what DriverSession.run() gave as a Result."""
    if isinstance(found, Result):
        return found
    return Result(found[0], iter(found[1]))


def features():
    """Return herdpy.features, which takes time to load and most programs do without; 53000."""
    with loading():
        from herdpy import features as module

    return module


class DriverSession(Protocol):
    """One session; its contract: engine/session/session.py. Any thread; one statement at a time."""

    @property
    def autocommit(self) -> bool: ...

    @autocommit.setter
    def autocommit(self, value: bool) -> None: ...

    @property
    def in_transaction(self) -> bool: ...

    @property
    def isolation(self) -> Isolation:
        """Of transactions that begin from now on: default_transaction_isolation."""
        ...

    @property
    def is_read_only(self) -> bool:
        """Of transactions that begin from now on: default_transaction_read_only."""
        ...

    @property
    def lsn(self) -> Lsn:
        """Of the log: what the session has seen or committed is at or before it."""
        ...

    def run(self, text: str, parameters: Parameters) -> Result | PointRows:
        """Run one statement; a row found by its key comes as it is."""
        ...

    def execute(self, text: str, parameters: Parameters = None) -> Result:
        """Run one statement."""
        ...

    def execute_many(self, text: str, rows: Iterable[Parameters]) -> Result: ...

    def execute_all(
        self, statements: Sequence[tuple[str, Parameters]]
    ) -> tuple[list[Result], Error | None]:
        """Run statements up to the first that fails; return the results, and its error.

        Inside a transaction, which a failure does not end, or in one that this begins.
        """
        ...

    def begin_ingest(self, table: str, mode: str) -> "IngestTarget": ...

    def begin(self, durability: str | None = None) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def reset(self) -> None:
        """Take back what SET changed; outside a transaction."""
        ...

    def cancel(self) -> None: ...

    def export(self, kind: str, tablespace: str = "") -> "Export":
        """Begin a "backup", a "dump" or the list of "tablespaces"; the caller closes it.

        `tablespace` is the id of the one that it is of; "": the session's.
        """
        ...

    def await_position(self, position: str, timeout_s: float) -> float:
        """Wait until the copy has a position, "" for none; return how old what it shows may be."""
        ...

    def perform(self, feature: "Feature[T]", *arguments: Any) -> T:
        """Do what is no statement; the arguments are those of feature.run behind the session."""
        ...


class Export(Protocol):
    """A backup, a dump or a list of tablespaces on its way out."""

    @property
    def byte_count(self) -> int:
        """About how many bytes there are in all; 0: not known."""
        ...

    def pieces(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class IngestTarget(Protocol):
    """One open ingest: engine/session/ingest.py has the contract. One thread at a time."""

    @property
    def table(self) -> Table: ...

    def add(self, batch: "pa.RecordBatch") -> None: ...

    def finish(self) -> int: ...

    def abort(self) -> None: ...


class Stream(Protocol):
    """Bytes to and from a server. One thread receives at a time, and one sends."""

    def set_timeout(self, timeout_s: float | None) -> None:
        """Let receive() raise TimeoutError after so long; None: never. It may be called again."""
        ...

    def send(self, data: bytes) -> None:
        """Send all of it; OSError."""
        ...

    def receive(self) -> bytes:
        """Wait for bytes and return them; b"" at the end; OSError."""
        ...

    def close(self) -> None:
        """Leave the connection to the parent of a forked process; repeatable."""
        ...

    def end(self) -> None:
        """End the connection, also for the thread that waits in receive(); repeatable."""
        ...

    def abandon(self) -> None:
        """End the connection, at any line of any thread."""
        ...


class Pauses(Protocol):
    """Pauses between attempts, within a budget."""

    @property
    def left_s(self) -> float:
        """How much of the budget is left; 0: nothing."""
        ...

    def next_pause_s(self) -> float | None:
        """Return how long the caller is to pause itself; None: the budget is used up."""
        ...

    def wait(self) -> bool:
        """Pause; False, at once: the budget is used up."""
        ...


class Waiting(Protocol):
    """How a caller waits: as a thread, or as a task of a loop."""

    def new_pauses(self, budget_s: float) -> Pauses: ...

    def monotonic(self) -> float:
        """Return the seconds that deadlines are of."""
        ...

    def wait(self, ticket: Ticket[Any], deadline: float) -> bool:
        """Wait until the ticket is done, by any thread; False: the deadline came first."""
        ...


class Waits(Waiting, Protocol):
    """How the caller of a connection, or of a pool, waits; and what it shares with others."""

    @property
    def rng(self) -> Rng | None:
        """What spreads pauses, and names are drawn from; None: the system's."""
        ...

    @property
    def locators(self) -> "Locators":
        """What connections to clusters have in common."""
        ...

    def open_stream(self, target: "RemoteTarget") -> Stream:
        """Connect; OSError, or an Error that says more."""
        ...


class Found(NamedTuple):
    """Where a Locator says that a node is to be found, such as the one that leads."""

    address: "Address"
    number: int
    """One more with each thing that the Locator learns: failures of what is old teach it none."""


class Locator(Protocol):
    """Where the node is that leads a tablespace; of all connections that mean it. Any thread."""

    @property
    def tries(self) -> int:
        """How many nodes are worth trying before a pause."""
        ...

    def locate(self, waits: Waits, limit_s: float) -> Found:
        """Return the node to try next; an Error, SAFE: none leads now, or is told of in limit_s."""
        ...

    def failed(self, found: Found, error: Error) -> None:
        """Take in that a node was not reached, or does not lead; the error may say which does."""
        ...

    @property
    def silences(self) -> "Silences":
        """Of the nodes that it has told."""
        ...


class Silences(Protocol):
    """Which nodes have said nothing to connections that waited for them. Any thread."""

    def note(self, found: Found) -> None:
        """Take in that a connection to a node was given up, because it said nothing."""
        ...

    def has(self, found: Found) -> bool:
        """Return whether that happened to a connection as new as one that was found so."""
        ...


class Locators(Protocol):
    """The Locators of a process, and what they need. Any thread."""

    def hold(self, target: "RemoteTarget", holder: object) -> Locator:
        """Return what finds the leader of a cluster's target, for one that lets it go."""
        ...

    def release(self, holder: object) -> Ticket[None] | None:
        """Hold nothing for it any more; repeatable. A Ticket: of a session that ends by it."""
        ...


class Claim(Protocol):
    """What a connection holds while it is open."""

    @property
    def rng(self) -> Rng | None:
        """What names of runs are drawn from; None: the system's."""
        ...

    @property
    def where(self) -> str:
        """The target, for messages."""
        ...

    def close(self) -> None:
        """End the session and what it needs; repeatable. Nothing in a forked child."""
        ...

    def abandon(self) -> None:
        """Close for a connection that was collected while open, at any line of any thread."""
        ...
