"""ClusterView: what the engine asks of the cluster that its directory belongs to.

It answers from memory: a statement waits for no metadata store. A directory that is no node of a
cluster is one node, `local`, which leads what it has. Any thread.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from herdpy.model.types import Row

LOCAL = "local"
"""The node that a directory without a cluster is."""
LEADING = "leading"
"""What such a node is, in the words of herdpy/cluster/part.py."""


class NodeInfo(NamedTuple):
    """A node that is registered, as far as this one knows."""

    id: str
    address: str | None
    has_tls: bool
    version: str


class ReplicaInfo(NamedTuple):
    """What a node has said last of its copy; None: it has said nothing of that yet."""

    node: str
    part: str | None
    position: str | None
    lag_s: float | None
    said_us: int | None
    """When, in microseconds since 1970 of the metadata store's clock."""


class Leadership(NamedTuple):
    """Who has copies of the tablespace, and who leads it."""

    tablespace: str
    """What the cluster calls it."""
    id: str
    leader: str | None
    """None: no node leads, as far as is known."""
    epoch: int
    replicas: tuple[str, ...]
    expected: int


class ClusterView(Protocol):
    """What a node of a cluster knows, from memory; any thread."""

    @property
    def node_id(self) -> str: ...

    def part(self) -> str:
        """Return what this node is for the tablespace now."""
        ...

    def leadership(self) -> Leadership: ...

    def nodes(self) -> Sequence[NodeInfo]:
        """Return those that are registered, by id."""
        ...

    def replicas(self) -> Sequence[ReplicaInfo]:
        """Return one for each copy, by node."""
        ...


def leadership_columns(view: ClusterView | None) -> Row:
    """Return leader, epoch, replicas and expected copies, as systablespaces has them."""
    if view is None:
        return LOCAL, None, LOCAL, 1
    found = view.leadership()
    return found.leader, found.epoch, ", ".join(found.replicas), found.expected
