"""What `herdpy cluster init`, `create` and `status` do, and what `up` does of them."""

from bookie.metadata.interfaces import VersionedStore
from herdpy.cluster.chain import Quorums
from herdpy.cluster.cluster_record import (
    ClusterRecord,
    check_access,
    check_bookie_count,
    create_cluster,
    read_cluster,
)
from herdpy.cluster.node_identity import check_id
from herdpy.cluster.status import ClusterStatus, read_status
from herdpy.cluster.tablespace_nodes import TablespaceNodes, TablespaceRecord
from herdpy.driver.local import new_rng
from herdpy.errors import ProgrammingError
from herdpy.node.place import ClusterPlace

_ID_BYTES = 16
_PASSWORD_BYTES = 16
_PATIENCE_S = 10.0


async def status_of(place: ClusterPlace) -> ClusterStatus:
    """Return what a cluster is now, by a session of its own; see read_status()."""
    async with place.session() as store:
        return await read_status(store, place.root, patience_s=_PATIENCE_S)


async def make_cluster(
    place: ClusterPlace, ledgers: str, quorums: tuple[int, int, int], *, has_bookies: bool
) -> ClusterRecord:
    """Make a new cluster; see create_cluster()."""
    record = new_record(ledgers, Quorums(*quorums))
    async with place.session() as store:
        await create_cluster(store, place.root, record, has_bookies=has_bookies)
    return record


def new_record(ledgers: str, quorums: Quorums) -> ClusterRecord:
    """ProgrammingError 22023: these are no quorums."""
    if not quorums.ack <= quorums.write <= quorums.ensemble:
        raise ProgrammingError(
            "quorums: expected ack <= write <= ensemble, found "
            f"{quorums.ack}, {quorums.write}, {quorums.ensemble}",
            sqlstate="22023",
        )
    return ClusterRecord(
        id=new_rng().randbytes(_ID_BYTES).hex(),
        ledgers=ledgers,
        ensemble=quorums.ensemble,
        write=quorums.write,
        ack=quorums.ack,
    )


def check_tablespace(name: str, replicas: tuple[str, ...]) -> None:
    """ProgrammingError 22023: no tablespace can have this name, or these replicas."""
    is_text = name.encode(errors="ignore").decode() == name  # an argument may have other bytes
    if not name or not is_text or len(set(replicas)) != len(replicas):
        raise ProgrammingError(
            f"expected a name, and each replica once; found {name!r:.80} on {', '.join(replicas)}",
            sqlstate="22023",
        )
    for replica in replicas:
        check_id(replica)


async def make_tablespace(place: ClusterPlace, name: str, replicas: tuple[str, ...]) -> None:
    """Make a tablespace with a session of its own: that ends, and one of the replicas leads."""
    check_tablespace(name, replicas)
    async with place.session() as store:
        await create_tablespace(store, place.root, name, replicas)


async def create_tablespace(
    store: VersionedStore, root: str, name: str, replicas: tuple[str, ...]
) -> None:
    """Make a tablespace; the session is to end soon, for it stands for the leader's until then.

    It has passed check_tablespace(). ProgrammingError 42P04: there is one of the name; 22023: a
    replica is no node that is there. OperationalError 53000: too few bookies; 55000: see
    check_access(). Nothing was made then.
    """
    cluster = await read_cluster(store, root)
    await check_access(store, root, cluster.ledgers)
    await check_bookie_count(store, cluster)
    status = await read_status(store, root, patience_s=_PATIENCE_S)
    there = {node.id for node in status.nodes}
    for replica in replicas:
        if replica not in there:
            known = ", ".join(sorted(there)) or "none"
            raise ProgrammingError(
                f"replica {replica!r:.80}: expected a node that is registered, found {known}",
                sqlstate="22023",
                hint="start it: `herdpy node`; nothing was made",
            )
    rng = new_rng()
    record = TablespaceRecord(
        id=rng.randbytes(_ID_BYTES).hex(),
        leader=replicas[0],
        replicas=replicas,
        expected=len(replicas),
    )
    await TablespaceNodes(store, root).create(name, record, rng.randbytes(_PASSWORD_BYTES))
