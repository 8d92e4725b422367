"""The ACLs of all nodes below a root in ZooKeeper: which deviate, and setting all of them.

Both walk the tree below the cluster's root, with a window of questions under way, and remember of
it the names of one directory per level. Nodes that go meanwhile are passed over. What is set is set
from the top down: what is made below a node that was set is made by those whom it lets, and so
seen. Setting a node that is right already is not done, so an interrupted run can be repeated.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bookie.errors import IllegalOperationError, NoNodeError, StoreAccessError
from bookie.metadata.acl import OPEN, Acl, AclEntry, acl_text
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.paths import join
from bookie.metadata.patience import PATIENCE_S, ask

WINDOW = 64
"""Nodes asked for together: what a session takes (metadata/zookeeper.py)."""
_KINDS_MAX = 100
"""Different ACLs that one directory is told of together; more are told one by one."""
_REFUSED_MAX = 20
"""Paths that are named of nodes that could not be set."""
UNREADABLE: Acl = (AclEntry("?", "?", 0),)
"""Stands for what this session may not read."""


class Deviation(NamedTuple):
    """Nodes that have another ACL than expected."""

    path: str
    """With `/…` at the end: of the nodes below, else of this one."""
    nodes: int
    acl: Acl

    @property
    def text(self) -> str:
        if self.acl == UNREADABLE:
            return "not readable for this session, nor is what is below"
        return acl_text(self.acl)


OnProgress = Callable[[int], None]
"""Told how many nodes were looked at."""
Wanted = Callable[[str], Acl]
"""Says which ACL a node should have, by its path."""


def all_open(_: str) -> Acl:
    """Return what every node has in a cluster that is open."""
    return OPEN


class _Node(NamedTuple):
    path: str
    acl: Acl
    child_count: int


class _Found(NamedTuple):
    """What some nodes have."""

    acl: Acl
    is_right: bool


class _Walk:
    """What both walks ask of the store."""

    def __init__(self, store: VersionedStore, on_progress: OnProgress) -> None:
        self.store = store
        self._on_progress = on_progress
        self.count = 0

    async def look(self, path: str) -> _Node | None:
        """Return a node; None: it is gone."""
        self.count += 1
        self._on_progress(self.count)
        try:
            acl, stat = await ask(self.store, PATIENCE_S, lambda: self.store.read_acl(path))
        except NoNodeError:
            return None
        except StoreAccessError:
            return _Node(path, UNREADABLE, 0)  # nor may it list what is below
        return _Node(path, acl, stat.child_count)

    async def children(self, path: str) -> list[str] | None:
        """Return the paths of the children; None: this session may not list them."""
        try:
            names = await ask(self.store, PATIENCE_S, lambda: self.store.children(path))
        except NoNodeError:
            return []
        except StoreAccessError:
            return None
        return [join(path, name) for name in names]

    async def each(
        self, paths: Sequence[str], do: Callable[[str], Awaitable[_Node | None]]
    ) -> "list[_Node]":
        """Do it for some paths together; return the nodes that are there."""
        found = await asyncio.gather(*map(do, paths))
        return [node for node in found if node is not None]


class _Scan(_Walk):
    def __init__(
        self,
        store: VersionedStore,
        expected: Wanted,
        tell: Callable[[Deviation], None],
        on_progress: OnProgress,
    ) -> None:
        super().__init__(store, on_progress)
        self._expected = expected
        self._tell = tell

    def tell(self, path: str, count: int, found: "_Found") -> None:
        if count and not found.is_right:
            self._tell(Deviation(path, count, found.acl))

    def judge(self, node: _Node) -> "_Found":
        return _Found(node.acl, node.acl == self._expected(node.path))

    async def scan(self, node: _Node) -> "tuple[_Found | None, int]":
        """Return what a node and all below have, and their number; None: told, they differ."""
        own = self.judge(node)
        if not node.child_count:
            return own, 1
        paths = await self.children(node.path)
        if paths is None:
            self.tell(f"{node.path}/…", node.child_count, _Found(UNREADABLE, is_right=False))
            self.tell(node.path, 1, own)
            return None, 0
        groups: dict[_Found, int] = {}
        is_uniform = True
        for start in range(0, len(paths), WINDOW):
            for child in await self.each(paths[start : start + WINDOW], self.look):
                found, count = await self.scan(child)
                if found is None:
                    is_uniform = False
                elif found in groups or len(groups) < _KINDS_MAX:
                    groups[found] = groups.get(found, 0) + count
                else:
                    is_uniform = False
                    self.tell(child.path if count == 1 else f"{child.path}/…", count, found)
        if is_uniform and set(groups) <= {own}:
            return own, 1 + sum(groups.values())
        self.tell(node.path, 1, own)
        for found, count in groups.items():
            self.tell(f"{node.path}/…", count, found)
        return None, 0


async def find_deviations(
    store: VersionedStore,
    root: str,
    expected: Wanted,
    tell: Callable[[Deviation], None],
    on_progress: OnProgress = lambda _: None,
) -> int:
    """Tell of all nodes at and below root with another ACL than expected; return the number of all.

    Nodes below one node with the same ACL are told together. Errors: IllegalOperationError when
    there is no root; MetadataStoreError.
    """
    walk = _Scan(store, expected, tell, on_progress)
    top = await walk.look(root)
    if top is None:
        raise _no_root(root)
    found, count = await walk.scan(top)
    if found is not None:
        walk.tell(root if count == 1 else f"{root}/…", count, found)
    return walk.count


@dataclass(slots=True)
class Outcome:
    """What setting ACLs did, or would do."""

    nodes: int = 0
    changed: int = 0
    refused: int = 0
    """Nodes that this session may not set, or not look below."""
    refused_paths: list[str] = field(default_factory=list[str])
    """The first of them."""


class _Setting(_Walk):
    def __init__(
        self, store: VersionedStore, wanted: Wanted, on_progress: OnProgress, *, is_dry: bool
    ) -> None:
        super().__init__(store, on_progress)
        self._wanted = wanted
        self._is_dry = is_dry
        self.outcome = Outcome()

    async def set(self, path: str) -> _Node | None:
        node, wanted = await self.look(path), self._wanted(path)
        if node is None or node.acl == wanted:
            return node
        if not self._is_dry:
            try:
                stat = await ask(self.store, PATIENCE_S, lambda: self.store.write_acl(path, wanted))
            except NoNodeError:
                return None
            except StoreAccessError:
                self._refused(path)
                return node
            node = node._replace(child_count=stat.child_count)  # some may have come meanwhile
        elif node.acl == UNREADABLE:
            self._refused(path)
            return node
        self.outcome.changed += 1
        return node

    async def below(self, path: str) -> None:
        paths = await self.children(path)
        if paths is None:
            self._refused(f"{path}/…")
            return
        for start in range(0, len(paths), WINDOW):
            for child in await self.each(paths[start : start + WINDOW], self.set):
                if child.child_count:
                    await self.below(child.path)

    def _refused(self, path: str) -> None:
        self.outcome.refused += 1
        if len(self.outcome.refused_paths) < _REFUSED_MAX:
            self.outcome.refused_paths.append(path)


async def set_acls(
    store: VersionedStore,
    root: str,
    wanted: Wanted,
    on_progress: OnProgress = lambda _: None,
    *,
    is_dry: bool = False,
) -> Outcome:
    """Let all nodes at and below root have the ACL that is wanted; is_dry: only say what it would.

    May be repeated, and goes on where it was interrupted. Errors: IllegalOperationError when there
    is no root; MetadataStoreError.
    """
    walk = _Setting(store, wanted, on_progress, is_dry=is_dry)
    if await walk.set(root) is None:
        raise _no_root(root)
    await walk.below(root)
    walk.outcome.nodes = walk.count
    return walk.outcome


def _no_root(root: str) -> IllegalOperationError:
    return IllegalOperationError(f"{root}: expected a cluster's node, found none")
