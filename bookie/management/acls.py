"""The ACLs of a cluster's nodes in ZooKeeper: which deviate, and setting all of them.

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
from bookie.ledger.types import BookieId
from bookie.metadata.acl import Acl, AclEntry, acl_for, acl_text
from bookie.metadata.bookies import BookieDirectory
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


class _Node(NamedTuple):
    path: str
    acl: Acl
    child_count: int


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
        expected: Acl,
        tell: Callable[[Deviation], None],
        on_progress: OnProgress,
    ) -> None:
        super().__init__(store, on_progress)
        self._expected = expected
        self._tell = tell

    def tell(self, path: str, count: int, acl: Acl) -> None:
        if count and acl != self._expected:
            self._tell(Deviation(path, count, acl))

    async def scan(self, node: _Node) -> tuple[Acl | None, int]:
        """Return the ACL of a node and all below, and their number; None: told, they differ."""
        if not node.child_count:
            return node.acl, 1
        paths = await self.children(node.path)
        if paths is None:
            self.tell(f"{node.path}/…", node.child_count, UNREADABLE)
            self.tell(node.path, 1, node.acl)
            return None, 0
        groups: dict[Acl, int] = {}
        is_uniform = True
        for start in range(0, len(paths), WINDOW):
            for child in await self.each(paths[start : start + WINDOW], self.look):
                acl, count = await self.scan(child)
                if acl is None:
                    is_uniform = False
                elif acl in groups or len(groups) < _KINDS_MAX:
                    groups[acl] = groups.get(acl, 0) + count
                else:
                    is_uniform = False
                    self.tell(child.path if count == 1 else f"{child.path}/…", count, acl)
        if is_uniform and set(groups) <= {node.acl}:
            return node.acl, 1 + sum(groups.values())
        self.tell(node.path, 1, node.acl)
        for acl, count in groups.items():
            self.tell(f"{node.path}/…", count, acl)
        return None, 0


async def find_deviations(
    store: VersionedStore,
    root: str,
    expected: Acl,
    tell: Callable[[Deviation], None],
    on_progress: OnProgress = lambda _: None,
) -> int:
    """Tell of all nodes at and below root with another ACL; return the number of all nodes.

    Nodes below one node with the same ACL are told together. Errors: IllegalOperationError when
    there is no root; MetadataStoreError.
    """
    walk = _Scan(store, expected, tell, on_progress)
    top = await walk.look(root)
    if top is None:
        raise _no_root(root)
    acl, count = await walk.scan(top)
    if acl is not None:
        walk.tell(root if count == 1 else f"{root}/…", count, acl)
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
        self, store: VersionedStore, wanted: Acl, on_progress: OnProgress, *, is_dry: bool
    ) -> None:
        super().__init__(store, on_progress)
        self._wanted = wanted
        self._is_dry = is_dry
        self.outcome = Outcome()

    async def set(self, path: str) -> _Node | None:
        node = await self.look(path)
        if node is None or node.acl == self._wanted:
            return node
        if not self._is_dry:
            try:
                stat = await ask(
                    self.store, PATIENCE_S, lambda: self.store.write_acl(path, self._wanted)
                )
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
    wanted: Acl,
    on_progress: OnProgress = lambda _: None,
    *,
    is_dry: bool = False,
) -> Outcome:
    """Let all nodes at and below root have this ACL; is_dry: only say what would be done.

    May be repeated, and goes on where it was interrupted. Errors: IllegalOperationError when there
    is no root; MetadataStoreError.
    """
    walk = _Setting(store, wanted, on_progress, is_dry=is_dry)
    if await walk.set(root) is None:
        raise _no_root(root)
    await walk.below(root)
    walk.outcome.nodes = walk.count
    return walk.outcome


class Readiness(NamedTuple):
    """What registered bookies say of their logins."""

    locked_out: list[BookieId]
    """They say of none of the store's logins: with secured nodes they may lose access."""
    open_makers: list[BookieId]
    """They log in, and make open nodes."""
    secured_makers: list[BookieId]


async def ask_readiness(store: VersionedStore, root: str) -> Readiness:
    """Return what the registered bookies publish; Apache's say nothing of logins."""
    ours = {identity.label() for identity in store.access.identities}
    directory = BookieDirectory(store, root)
    await directory.start()
    try:
        found = Readiness([], [], [])
        for bookie_id in sorted(directory.registered):
            info = directory.info_of(bookie_id)
            is_known = info is not None and bool(info.logins & ours)
            if not is_known:
                found.locked_out.append(bookie_id)
            if info is not None and info.makes_secured_nodes:
                found.secured_makers.append(bookie_id)
            elif is_known:
                found.open_makers.append(bookie_id)
        return found
    finally:
        await directory.close()


def secured_acl(store: VersionedStore) -> Acl:
    """Return what every node has in a cluster that is secured for the store's logins."""
    return acl_for(store.access.identities)


def _no_root(root: str) -> IllegalOperationError:
    return IllegalOperationError(f"{root}: expected a cluster's node, found none")
