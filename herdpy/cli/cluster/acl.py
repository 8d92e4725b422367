"""What `herdpy cluster acl` does: a walk over the cluster's nodes in ZooKeeper.

Before nodes are closed to whom they are not for, the registered nodes of the cluster are asked
whether they have the login: what they say stands in their records (registration.py).
"""

from collections.abc import Callable
from typing import NamedTuple

from bookie.errors import IllegalOperationError
from bookie.metadata.acl import ANYONE, acl_text
from bookie.metadata.acl_walk import (
    Deviation,
    Outcome,
    Wanted,
    all_open,
    find_deviations,
    set_acls,
)
from bookie.metadata.interfaces import VersionedStore
from herdpy.cluster.cluster_record import read_cluster
from herdpy.cluster.status import NodeStatus, read_nodes
from herdpy.cluster.tablespace_nodes import TablespaceNodes
from herdpy.errors import OperationalError, ProgrammingError
from herdpy.node.place import LOGIN_VARIABLE, ClusterPlace

_PATIENCE_S = 10.0


class Others(NamedTuple):
    """The nodes that have another ACL than expected."""

    total: int
    """How many nodes there are."""
    deviations: list[Deviation]


class Done(NamedTuple):
    outcome: Outcome
    text: str
    """Of the ACL that nodes get."""
    text_for_readers: str
    """Of those that readers may see, too; empty: there are no readers."""


async def find_others(place: ClusterPlace, state: str) -> Others:
    """Return which nodes are not "secured", or not "open".

    OperationalError 58P01: there is no cluster; 42501: what the session may not read.
    """
    wanted = _wanted(place, state)
    found: list[Deviation] = []
    async with place.session() as store:
        try:
            total = await find_deviations(store, place.root, wanted(store), found.append)
        except IllegalOperationError as error:
            raise OperationalError(str(error), sqlstate="58P01") from None
    return Others(total, found)


async def set_all(
    place: ClusterPlace,
    state: str,
    warn: Callable[[str], object],
    *,
    is_dry: bool,
    is_checked: bool,
) -> Done:
    """Let all nodes be "secured", or "open"; is_dry: only say what it would do.

    OperationalError 55000: a registered node would be locked out, or drivers that it lets read;
    nothing was changed. 58P01: there is no cluster.
    """
    wanted = _wanted(place, state)
    async with place.session() as store:
        await read_cluster(store, place.root, patience_s=_PATIENCE_S)
        nodes = await read_nodes(store, place.root, _PATIENCE_S)
        _judge(store, state, nodes, warn, is_checked=is_checked and not is_dry)
        acl_of = wanted(store)
        outcome = await set_acls(store, place.root, acl_of, is_dry=is_dry)
        for_readers = acl_text(acl_of(TablespaceNodes(store, place.root).nodes_path))
        own = acl_text(acl_of(place.root))
    return Done(outcome, own, "" if for_readers == own else for_readers)


def _wanted(place: ClusterPlace, state: str) -> Callable[[VersionedStore], Wanted]:
    if state == "open":
        return lambda _: all_open
    if not place.logins:
        raise ProgrammingError(
            "secured is for the identities of a login: expected one, found none",
            sqlstate="22023",
            hint=f"name it: --zookeeper-login FILE, or {LOGIN_VARIABLE}",
        )
    return lambda store: store.access.secured_acl


def _judge(
    store: VersionedStore,
    state: str,
    nodes: list[NodeStatus],
    warn: Callable[[str], object],
    *,
    is_checked: bool,
) -> None:
    """Refuse what locks a node or drivers out; warn of what is made otherwise from then on."""
    access = store.access
    ours = {each.label() for each in access.identities}
    readers = {each.label() for each in access.readable.readers}
    secured = [each.id for each in nodes if each.record.makes_secured_nodes]
    if state == "open":
        if secured:
            warn(
                f"these nodes go on making secured ones: {', '.join(secured)}; start them without "
                "--zk-enable-security (and with the login), then set again"
            )
        return
    locked_out = [each.id for each in nodes if not ours & set(each.record.zookeeper_logins)]
    if locked_out:
        text = (
            f"these registered nodes do not say that they have this login: {', '.join(locked_out)};"
            " secured nodes would lock them out"
        )
        if is_checked:
            raise OperationalError(
                text,
                sqlstate="55000",
                hint="start them with --zookeeper-login first; nothing was changed",
            )
        warn(text)
    letting = [each.id for each in nodes if set(each.record.zookeeper_readers) - readers]
    if letting and ANYONE not in access.readable.readers:
        text = (
            f"these registered nodes let drivers read whom this command does not name: "
            f"{', '.join(letting)}; they would find no leader any more"
        )
        if is_checked:
            raise OperationalError(
                text,
                sqlstate="55000",
                hint="give the command the nodes' --zookeeper-readers, or start the nodes with "
                "others first; nothing was changed",
            )
        warn(text)
    others = [each.id for each in nodes if each.id not in secured and each.id not in locked_out]
    if others:
        warn(
            f"these nodes go on making open ones: {', '.join(others)}; start them with "
            "--zk-enable-security, then set again"
        )
    differing = [
        each.id for each in nodes
        if each.id in secured and set(each.record.zookeeper_readers) != readers
    ]  # fmt: skip
    if differing:
        warn(
            f"these nodes let others read than this command does: {', '.join(differing)}; give all "
            "of them, and it, the same --zookeeper-readers, then set again"
        )
