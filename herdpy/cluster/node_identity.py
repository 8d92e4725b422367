"""The file `node.json` in a node's data directory: which node of which cluster it is the home of.

A node that starts with another cluster's directory would fill its log with copies of that one's
tablespaces: it is refused before anything is written. The owner holds the directory's lock.
"""

import re

import msgspec

from bookie.runtime.files import replace_file
from bookie.runtime.interfaces import Disk, Rng
from herdpy.cluster.json_nodes import read_node
from herdpy.engine.maintenance.directory import NODE
from herdpy.errors import OperationalError, ProgrammingError

FORMAT = 1
FILE = NODE
LOCK = "LOCK"
TEMP = "temp"
"""The folder to which the queries of all copies spill."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int = FORMAT
    id: str
    """Of the node, in its cluster."""
    cluster: str
    """The id of the cluster."""


def check_id(node_id: str) -> None:
    """ProgrammingError 22023: it cannot be a node's id."""
    if not _ID.fullmatch(node_id):
        raise ProgrammingError(
            f"node id: expected 1 to 63 letters, digits, '-', '_' or '.', a letter or digit first; "
            f"found {node_id!r:.80}",
            sqlstate="22023",
        )


def read_identity(disk: Disk, where: str, cluster: str, node_id: str | None) -> NodeIdentity | None:
    """Return whose directory it is; None: it is empty, and any node's.

    node_id: None takes whichever it is. OperationalError 55000: it is another node's or another
    cluster's; 58P01: it holds something else. Nothing is written.
    """
    names = set(disk.list(""))
    if FILE not in names:
        foreign = sorted(names - {LOCK, f"{FILE}.new"})
        if foreign:
            raise OperationalError(
                f"{where} is no node's directory: it has no {FILE}, but holds {foreign[0]!r}",
                sqlstate="58P01",
                hint="name an empty or a new directory; nothing was changed",
            )
        return None
    found = stored_identity(disk, where)
    if found.cluster != cluster:
        raise OperationalError(
            f"{where} belongs to node {found.id} of another cluster: expected cluster {cluster}, "
            f"found {found.cluster}",
            sqlstate="55000",
            hint="name that cluster's ZooKeeper and root, or another directory; nothing was "
            "changed",
        )
    if node_id not in (None, found.id):
        raise OperationalError(
            f"{where} belongs to node {found.id}: expected node {node_id}",
            sqlstate="55000",
            hint=f"start it as {found.id}, or name another directory; nothing was changed",
        )
    return found


def stored_identity(disk: Disk, where: str) -> NodeIdentity:
    """Return what node.json says; CorruptionError: it is malformed, 0A000: of a newer herdpy."""
    return read_node(disk.read(FILE), f"{where}/{FILE}", NodeIdentity, FORMAT, "a node's identity")


def new_identity(cluster: str, node_id: str | None, rng: Rng) -> NodeIdentity:
    """Return that of a new node; without an id it gets one of chance."""
    return NodeIdentity(id=node_id or f"node-{rng.randbytes(4).hex()}", cluster=cluster)


def write_identity(disk: Disk, identity: NodeIdentity) -> None:
    """Make a directory a node's, durably, unless it is."""
    if not disk.exists(FILE):
        replace_file(disk, FILE, msgspec.json.encode(identity))
