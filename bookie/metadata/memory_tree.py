"""MemoryTree: the nodes of a memory store, and what an operation does to them.

ZooKeeper's rules: a node's version counts its writes, an ephemeral has no children, the number of
a sequence is the count of all children that its parent ever had. Plain data, no clock, no sessions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bookie.errors import (
    BadVersionError,
    IncorrectParameterError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    StoreAccessError,
    StoreError,
)
from bookie.metadata.acl import (
    OPEN,
    Acl,
    AclEntry,
    Permission,
    StoreAccess,
    acl_of,
    acl_text,
)
from bookie.metadata.interfaces import ANY_VERSION, Check, Create, Delete, Operation, Stat, Write
from bookie.metadata.paths import check_data, check_path, name_of, parent_of


class Change(NamedTuple):
    """What watches hear of: the node's data or existence, or the set of its children."""

    path: str
    is_children: bool


@dataclass(slots=True)
class _Node:
    data: bytes
    ctime_ms: int
    mtime_ms: int
    owner: int = 0
    acl: Acl = OPEN
    version: int = 0
    created_count: int = 0
    """Children that this node ever had: the next number of a sequence."""
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        return Stat(self.version, self.ctime_ms, self.mtime_ms, self.owner, len(self.children))

    def copy(self) -> "_Node":
        return _Node(
            self.data,
            self.ctime_ms,
            self.mtime_ms,
            self.owner,
            self.acl,
            self.version,
            self.created_count,
            dict(self.children),
        )


class Caller(NamedTuple):
    """Who does something."""

    session_id: int = 0
    access: StoreAccess = StoreAccess()
    is_server: bool = False
    """No ACL holds it: the store itself, at the end of a session."""


SERVER = Caller(is_server=True)

_Undo = dict[str, _Node | None]
"""Nodes as they were before a multi; None: there was none."""


class MemoryTree:
    """One tree. Operations that raise have changed nothing."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {"/": _Node(b"", 0, 0)}

    def copy(self) -> "MemoryTree":
        """Return the tree as it is now; later changes of either are not seen by the other."""
        twin = MemoryTree()
        twin._nodes = {path: node.copy() for path, node in self._nodes.items()}
        return twin

    def read(self, path: str, caller: Caller = SERVER) -> tuple[bytes, Stat]:
        node = self._node(path)
        self._allow(path, caller, Permission.READ)
        return node.data, node.stat()

    def read_acl(self, path: str, caller: Caller = SERVER) -> tuple[Acl, Stat]:
        node = self._node(path)
        self._allow(path, caller, Permission.READ | Permission.ADMIN)
        if not self._may(node, caller, Permission.ADMIN):  # as ZooKeeper: no hash for others
            return acl_of(_masked(entry) for entry in node.acl), node.stat()
        return node.acl, node.stat()

    def write_acl(self, path: str, acl: Acl, caller: Caller = SERVER) -> Stat:
        node = self._node(path)
        self._allow(path, caller, Permission.ADMIN)
        node.acl = acl_of(acl)
        return node.stat()

    def exists(self, path: str, caller: Caller = SERVER) -> Stat | None:
        node = self._nodes.get(check_path(path))
        if node is None:
            return None
        self._allow(path, caller, Permission.READ)
        return node.stat()

    def children(self, path: str, caller: Caller = SERVER) -> list[str]:
        node = self._node(path)
        self._allow(path, caller, Permission.READ)
        return sorted(node.children)

    def ephemerals_of(self, owner: int) -> list[str]:
        """Return the paths of an owner's ephemerals, sorted."""
        return sorted(path for path, node in self._nodes.items() if node.owner == owner)

    def apply(
        self, operations: Sequence[Operation], caller: Caller, now_ms: int
    ) -> tuple[list[str], list[Change]]:
        """Do all or none; return the path that each made or named, and what changed, in order."""
        # One operation checks everything before it changes anything.
        undo: _Undo | None = {} if len(operations) > 1 else None
        paths: list[str] = []
        changes: list[Change] = []
        try:
            for operation in operations:
                paths.append(self._apply(operation, caller, now_ms, undo, changes))
        except BaseException:
            for path, before in (undo or {}).items():
                if before is None:
                    self._nodes.pop(path, None)
                else:
                    self._nodes[path] = before
            raise
        return paths, changes

    def make_parents(self, path: str, caller: Caller, now_ms: int) -> list[Change]:
        """Create what is missing above path, empty and persistent."""
        parent = parent_of(check_path(path))
        if parent in self._nodes:
            return []
        changes = self.make_parents(parent, caller, now_ms)
        return changes + self.apply([Create(parent)], caller, now_ms)[1]

    def _may(self, node: _Node, caller: Caller, wanted: Permission) -> bool:
        """Tell whether one of the wanted permissions is given."""
        if caller.is_server:
            return True
        known = {("world", "anyone"), *caller.access.identities}
        return any((e.scheme, e.id) in known and e.permissions & wanted for e in node.acl)

    def _allow(self, path: str, caller: Caller, wanted: Permission) -> None:
        node = self._nodes[path]
        if not self._may(node, caller, wanted):
            raise StoreAccessError(
                f"{path}: its ACL ({acl_text(node.acl)}) does not let this session do it "
                f"({wanted.name})",
                path,
            )

    def _node(self, path: str) -> _Node:
        node = self._nodes.get(check_path(path))
        if node is None:
            raise NoNodeError(f"{path}: expected a node, found none", path)
        return node

    def _versioned(self, path: str, version: int) -> _Node:
        node = self._node(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"{path}: expected version {version}, found {node.version}", path)
        return node

    def _keep(self, path: str, undo: _Undo | None) -> None:
        if undo is not None and path not in undo:
            node = self._nodes.get(path)
            undo[path] = None if node is None else node.copy()

    def _apply(
        self,
        operation: Operation,
        caller: Caller,
        now_ms: int,
        undo: _Undo | None,
        changes: list[Change],
    ) -> str:
        path = check_path(operation.path)
        match operation:
            case Create():
                return self._create(operation, caller, now_ms, undo, changes)
            case Write():
                check_data(path, operation.data)
                self._node(path)
                self._allow(path, caller, Permission.WRITE)
                self._versioned(path, operation.version)
                self._keep(path, undo)
                node = self._nodes[path]
                node.data, node.mtime_ms = bytes(operation.data), now_ms
                node.version += 1
                changes.append(Change(path, is_children=False))
            case Delete():
                if path == "/":
                    raise IncorrectParameterError("/: the root cannot be deleted")
                self._node(path)
                self._allow(parent_of(path), caller, Permission.DELETE)
                if self._versioned(path, operation.version).children:
                    raise NotEmptyError(f"{path}: expected no children, found some", path)
                parent = parent_of(path)
                self._keep(path, undo)
                self._keep(parent, undo)
                del self._nodes[path]
                del self._nodes[parent].children[name_of(path)]
                changes += [Change(path, is_children=False), Change(path, is_children=True)]
                changes.append(Change(parent, is_children=True))
            case Check():
                self._node(path)
                self._allow(path, caller, Permission.READ)
                self._versioned(path, operation.version)
        return path

    def _create(
        self,
        operation: Create,
        caller: Caller,
        now_ms: int,
        undo: _Undo | None,
        changes: list[Change],
    ) -> str:
        path = operation.path
        check_data(path, operation.data)
        parent = parent_of(path)
        if path == "/":
            raise NodeExistsError("/: the root exists", path)
        if parent not in self._nodes:
            raise NoNodeError(f"{path}: expected its parent, found none", path)
        self._allow(parent, caller, Permission.CREATE)
        acl = caller.access.acl_of_new(path)
        if operation.is_sequence:
            # A 32-bit counter, as ZooKeeper's: after 2**31 - 1 come the negative numbers.
            number = (self._nodes[parent].created_count + 2**31) % 2**32 - 2**31
            path += f"{number:010d}"
        if path in self._nodes:
            raise NodeExistsError(f"{path}: expected no node, found one", path)
        if self._nodes[parent].owner:
            raise StoreError(f"{path}: its parent is ephemeral and has no children", path)
        self._keep(path, undo)
        self._keep(parent, undo)
        above = self._nodes[parent]
        above.children[name_of(path)] = None
        above.created_count += 1
        node_owner = caller.session_id if operation.is_ephemeral else 0
        self._nodes[path] = _Node(bytes(operation.data), now_ms, now_ms, node_owner, acl)
        changes += [Change(path, is_children=False), Change(path, is_children=True)]
        changes.append(Change(parent, is_children=True))
        return path


def _masked(entry: AclEntry) -> AclEntry:
    if entry.scheme != "digest":
        return entry
    return entry._replace(id=f"{entry.id.partition(':')[0]}:x")
