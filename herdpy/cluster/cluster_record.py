"""What makes a root of the metadata store a cluster's: the node `<root>/cluster`.

It has what all nodes of the cluster share: its id, where its BookKeeper has its ledgers, and on how
many bookies these lie. It is made last, when the folders are there, and never changed. One asyncio
loop.
"""

import msgspec

from bookie.errors import IllegalOperationError, NodeExistsError, NoNodeError
from bookie.metadata.acl import OPEN
from bookie.metadata.bookies import read_modes
from bookie.metadata.cluster import read_layout
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.patience import BROKEN, PATIENCE_S, Patience, ask
from herdpy.cluster.chain import Quorums
from herdpy.cluster.json_nodes import read_node
from herdpy.cluster.tablespace_nodes import TablespaceNodes
from herdpy.errors import OperationalError, ProgrammingError

FORMAT = 1


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """See the module; docs/formats/tablespace_nodes.md."""

    format: int = FORMAT
    id: str
    """32 hexadecimal digits of chance, which no other cluster ever has."""
    ledgers: str = "/ledgers"
    """The root of its BookKeeper, in the same store."""
    ensemble: int = 3
    write: int = 3
    ack: int = 2

    @property
    def quorums(self) -> Quorums:
        return Quorums(self.ensemble, self.write, self.ack)


def cluster_path(root: str) -> str:
    return f"{root}/cluster"


async def read_cluster(
    store: VersionedStore, root: str, *, patience_s: float = PATIENCE_S
) -> ClusterRecord:
    """Return the cluster at a root; OperationalError 58P01: there is none."""
    path = cluster_path(root)

    async def question() -> bytes:
        await store.sync(path)
        return (await store.read(path))[0]

    try:
        data = await ask(store, patience_s, question)
    except NoNodeError:
        raise OperationalError(
            f"{path}: expected a herdpy cluster, found none",
            sqlstate="58P01",
            hint=f"look whether {root} is the cluster's root (--root), and this its ZooKeeper; a "
            "new cluster is made by `herdpy cluster init`. Nothing was changed.",
        ) from None
    return read_node(data, path, ClusterRecord, FORMAT, "a cluster")


async def create_cluster(
    store: VersionedStore,
    root: str,
    record: ClusterRecord,
    *,
    has_bookies: bool = True,
    patience_s: float = PATIENCE_S,
) -> None:
    """Make a cluster without tablespaces.

    has_bookies: they are to be there already; else they come with its nodes, in their processes.

    ProgrammingError 42710: there is one at the root; 22023: the roots of both lie in one another;
    OperationalError 58P01: there is no BookKeeper where its ledgers are to be; 53000: fewer bookies
    are there than have to acknowledge an entry. Nothing was changed then.
    """
    _check_roots(root, record.ledgers)
    await _check_ledgers(store, record)
    if has_bookies:
        await check_bookie_count(store, record)
    path = cluster_path(root)
    if await ask(store, patience_s, lambda: store.exists(path)) is not None:
        raise _is_there(path)
    await TablespaceNodes(store, root, patience_s=patience_s).initialize()
    patience = Patience(store, patience_s)
    while True:
        try:
            await store.create(path, msgspec.json.encode(record))
            return
        except NodeExistsError:
            # Also where a lost answer hides that this very call has made it.
            if await read_cluster(store, root, patience_s=patience_s) != record:
                raise _is_there(path) from None
            return
        except BROKEN as error:
            await patience.again(error)


async def check_access(
    store: VersionedStore, root: str, ledgers: str, *, patience_s: float = PATIENCE_S
) -> None:
    """Raise OperationalError 55000 where what this session makes would not be as the rest is.

    In a secured cluster, or BookKeeper, it would be open to all; in an open BookKeeper bookies
    without the login could not read what is secured, and would copy no ledger of it. Nodes that are
    secured in a cluster that is open still are on the way to a secured one.
    """

    async def is_open(path: str) -> bool:
        acl, _ = await ask(store, patience_s, lambda: store.read_acl(path))
        return acl == OPEN

    own, is_secured = TablespaceNodes(store, root).secrets_path, store.access.is_secured
    for path in (own, ledgers):
        if not is_secured and not await is_open(path):
            raise OperationalError(
                f"{path}: it is secured in the metadata store, and what this session makes there "
                "would be open to all",
                sqlstate="55000",
                hint="add --zk-enable-security (HERDPY_ZK_ENABLE_SECURITY=1) and the login; "
                "nothing was changed",
            )
    if is_secured and await is_open(ledgers):
        raise OperationalError(
            f"{ledgers}: it is open in the metadata store, and bookies could not read what this "
            "session makes there for its login",
            sqlstate="55000",
            hint="secure BookKeeper first: `bookie acl set secured`; nothing was changed",
        )


def _check_roots(root: str, ledgers: str) -> None:
    """Each has nodes and ACLs of its own: what is done below one must not meet the other's."""
    if f"{root}/".startswith(f"{ledgers}/") or f"{ledgers}/".startswith(f"{root}/"):
        raise ProgrammingError(
            f"{ledgers}: expected the root of a BookKeeper beside {root}, found one that lies in "
            "the other",
            sqlstate="22023",
            hint="name another root for the cluster (--root); nothing was changed",
        )


async def _check_ledgers(store: VersionedStore, record: ClusterRecord) -> None:
    try:
        await read_layout(store, record.ledgers)
    except IllegalOperationError:
        raise OperationalError(
            f"{record.ledgers}: expected a BookKeeper's ledgers, found none",
            sqlstate="58P01",
            hint="name its root (--ledgers), or make one: `bookie format`. Nothing was changed.",
        ) from None


async def check_bookie_count(store: VersionedStore, record: ClusterRecord) -> None:
    """Raise OperationalError 53000 when too few bookies are registered for a ledger."""
    count = len(await read_modes(store, record.ledgers))
    if count < record.ack:
        raise OperationalError(
            f"{record.ledgers}: expected {record.ack} bookies at least, which acknowledge each "
            f"entry, found {count} registered",
            sqlstate="53000",
            hint="start more of them: `bookie serve`, or nodes with bookies, for which there is "
            "`herdpy cluster init --without-bookies`. Nothing was changed.",
        )


def _is_there(path: str) -> ProgrammingError:
    return ProgrammingError(
        f"{path}: there is a cluster already; nothing was changed", sqlstate="42710"
    )
