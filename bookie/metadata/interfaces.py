"""VersionedStore: a tree of small versioned nodes with compare-and-set, sessions and watches.

ZooKeeper's model, behind our own interface. Coroutines run on one asyncio loop; callbacks are
called on that loop, in the order in which the store saw the events. A StoreConnectionError of a
write means that its answer was lost: applied or not, the caller finds out (ADR 0009). A read
may be stale until sync(), also when a write before it was refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from bookie.metadata.acl import Acl, StoreAccess

ANY_VERSION = -1


class SessionState(Enum):
    """SUSPENDED: the connection broke, the session may live. LOST: it expired, for good."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Stat:
    """What is known of a node beside its data."""

    version: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int
    """The session it lives with; 0 when persistent."""
    child_count: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """An operation of multi(); also what create() does."""

    path: str
    data: bytes = b""
    is_ephemeral: bool = False
    is_sequence: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Set the data at a version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node without children."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Insist on a version."""

    path: str
    version: int


Operation = Create | Write | Delete | Check


class Watch(Protocol):
    """A standing interest in a node; close() ends it."""

    def close(self) -> None: ...


class VersionedStore(Protocol):
    """See the module. Paths are absolute ("/ledgers/LAYOUT"). Used from its loop's thread only.

    Every node that it makes has the ACL that `access` says. What an ACL does not allow raises
    StoreAccessError, from every method but sync() and the watches, which try again; from exists()
    with newer versions of ZooKeeper.
    """

    @property
    def session_id(self) -> int:
        """The id of the present session; changes after LOST."""
        ...

    @property
    def session_timeout_s(self) -> float:
        """How long the present session lives, as the store granted it, when nothing is heard of it.

        inf: until it is closed.
        """
        ...

    @property
    def state(self) -> SessionState: ...

    @property
    def access(self) -> StoreAccess:
        """Who its sessions are, and what the nodes are that it makes."""
        ...

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        """Call back at each change of state. After LOST comes CONNECTED with a new session."""
        ...

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        is_ephemeral: bool = False,
        is_sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create and return the path (with the number, if a sequence).

        Errors: NodeExistsError, NoNodeError (no parent, without make_parents).
        """
        ...

    async def read(self, path: str) -> tuple[bytes, Stat]:
        """Return data and Stat; NoNodeError."""
        ...

    async def exists(self, path: str) -> Stat | None: ...

    async def write(self, path: str, data: bytes, version: int) -> Stat:
        """Compare-and-set; returns the new Stat. Errors: BadVersionError, NoNodeError."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Errors: NoNodeError, BadVersionError, NotEmptyError."""
        ...

    async def children(self, path: str) -> list[str]:
        """Return the names of the children, sorted; NoNodeError."""
        ...

    async def read_acl(self, path: str) -> tuple[Acl, Stat]:
        """Return who may do what with a node; NoNodeError."""
        ...

    async def write_acl(self, path: str, acl: Acl) -> Stat:
        """Let a node have this ACL; return its Stat since then. NoNodeError. May be repeated."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Do all or none; raises the error of the first that cannot be done."""
        ...

    async def sync(self, path: str) -> None:
        """Let reads that begin after it see every write that was answered before it."""
        ...

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back after each change of the node's data or existence; several may count as one.

        Standing (re-armed by the store, over reconnects and new sessions, where it calls back
        once to be safe). The caller reads.
        """
        ...

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back after each change of the set of children; otherwise as watch()."""
        ...

    async def close(self) -> None:
        """End the session (its ephemerals go at once) and every callback; idempotent."""
        ...
