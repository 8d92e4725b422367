"""What a cluster is now, as its metadata store says: nodes, tablespaces, leaders, ledgers, bookies.

Each part is read by itself, so two of them may be of two moments. One asyncio loop.
"""

from collections.abc import Mapping
from typing import NamedTuple

from bookie.errors import NoNodeError
from bookie.metadata.bookies import read_modes
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.patience import ask
from herdpy.cluster.cluster_record import read_cluster
from herdpy.cluster.leader_node import LeaderNode
from herdpy.cluster.listing import LedgerListing
from herdpy.cluster.observability.replica_node import ReplicaRecord
from herdpy.cluster.registration import NodeRecord
from herdpy.cluster.tablespace_nodes import TablespaceNodes
from herdpy.errors import ProgrammingError

HERD = "herd"
"""The protocol of frames, in a node's addresses."""


class NodeStatus(NamedTuple):
    id: str
    addresses: dict[str, str]
    session: int
    """Of the store, that its registration lives with: another one for each life of the process."""
    record: NodeRecord
    """All that it says of itself."""


class ReplicaStatus(NamedTuple):
    """What a node with a copy has said of it last, which may be old."""

    node: str
    is_there: bool
    """The node is registered now."""
    part: str | None
    """State of herdpy/cluster/part.py; None, as the next ones: it has said nothing yet."""
    position: str | None
    """Up to where its copy has the log; None: it was not open."""
    lag_s: float | None
    """How old what it shows was at most, in seconds; None: that was not known."""
    said_ms: int | None
    """When it said that, in milliseconds since 1970 of the store's clock."""


class TablespaceStatus(NamedTuple):
    name: str
    id: str
    epoch: int
    named: str
    """The node that leads or is about to, as the record says."""
    leader: str | None
    """The node that leads, as its ephemeral node says; None: none does."""
    address: str | None
    """Where the leader lets clients in; None: there is none, or it is not registered."""
    replicas: tuple[str, ...]
    expected: int
    ledgers: tuple[int, ...]
    first_ledger: int | None
    states: tuple[ReplicaStatus, ...] = ()
    """One for each of `replicas`."""


class ClusterStatus(NamedTuple):
    id: str
    root: str
    ledgers: str
    quorums: tuple[int, int, int]
    """Ensemble, write, ack."""
    nodes: tuple[NodeStatus, ...]
    """Those that are registered, by id."""
    tablespaces: tuple[TablespaceStatus, ...]
    """By name."""
    bookies: dict[str, str]
    """Those that are registered: their mode, by id."""


async def read_status(store: VersionedStore, root: str, *, patience_s: float) -> ClusterStatus:
    """Return what the store says now.

    OperationalError 58P01: there is no cluster at the root; CorruptionError; BookieError.
    """
    cluster = await read_cluster(store, root, patience_s=patience_s)
    nodes = {each.id: each for each in await read_nodes(store, root, patience_s)}
    names = TablespaceNodes(store, root, patience_s=patience_s)
    tablespaces: list[TablespaceStatus] = []
    for name in await names.names():
        try:
            record = (await names.read(name)).record
        except ProgrammingError:  # dropped meanwhile
            continue
        path = names.leader_path(record.id)
        found = await LeaderNode(store, path, "", patience_s=patience_s).read()
        listing = LedgerListing(store, names.ledgers_path(record.id), patience_s=patience_s)
        info = await listing.read()
        leader = None if found is None else found[0]
        node = nodes.get(leader or "")
        tablespaces.append(
            TablespaceStatus(
                name=name,
                id=record.id,
                epoch=record.epoch,
                named=record.leader,
                leader=leader,
                address=None if node is None else node.addresses.get(HERD),
                replicas=record.replicas,
                expected=record.expected,
                ledgers=info.ledgers,
                first_ledger=info.first,
                states=tuple(
                    [
                        await _replica(
                            store, names.replica_path(record.id, each), each, nodes, patience_s
                        )
                        for each in record.replicas
                    ]
                ),
            )
        )
    modes = await read_modes(store, cluster.ledgers)
    return ClusterStatus(
        id=cluster.id,
        root=root,
        ledgers=cluster.ledgers,
        quorums=(cluster.ensemble, cluster.write, cluster.ack),
        nodes=tuple(nodes[each] for each in sorted(nodes)),
        tablespaces=tuple(tablespaces),
        bookies={str(bookie): mode.value for bookie, mode in modes.items()},
    )


async def _replica(
    store: VersionedStore, path: str, node: str, nodes: Mapping[str, object], patience_s: float
) -> ReplicaStatus:
    try:
        data, stat = await ask(store, patience_s, lambda: store.read(path))
    except NoNodeError:
        return ReplicaStatus(node, node in nodes, None, None, None, None)
    found = ReplicaRecord.of_bytes(data, path)
    return ReplicaStatus(
        node, node in nodes, found.part, found.position, found.lag_s, stat.mtime_ms
    )


async def read_nodes(store: VersionedStore, root: str, patience_s: float) -> list[NodeStatus]:
    """Return the nodes that are registered now, in the order of their ids."""
    folder = f"{root}/nodes"

    async def question() -> list[NodeStatus]:
        await store.sync(folder)
        found: list[NodeStatus] = []
        for name in await store.children(folder):
            path = f"{folder}/{name}"
            try:
                data, stat = await store.read(path)
            except NoNodeError:  # its session has ended meanwhile
                continue
            record = NodeRecord.of_bytes(data, path)
            found.append(NodeStatus(record.id, record.addresses, stat.ephemeral_owner, record))
        return found

    return await ask(store, patience_s, question)
