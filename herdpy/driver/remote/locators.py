"""Locators: what finds the leaders, shared by all connections of a process.

Nodes that a URL names are remembered by it. A ZooKeeper has one session for all connections whose
URLs name it, with the same login and TLS, from the first that asks on until the last is closed; a
forked child has its own. Any thread.
"""

from collections.abc import Callable
from typing import Any, Protocol

from bookie.runtime.drivers import new_mutex
from bookie.runtime.os_process import process_generation
from bookie.runtime.ticket import Ticket
from herdpy.driver.dsn import Address, RemoteTarget, ZooKeeper
from herdpy.driver.interfaces import Locator
from herdpy.driver.remote.leaders import LookedUp, SeedNodes, Told
from herdpy.errors import check_extra

_REMEMBERED_MAX = 256
"""Tablespaces whose nodes are remembered; of more, the longest known are forgotten."""


class Directory(Protocol):
    """A session with what knows the leaders."""

    def find(self, root: str, tablespace: str, read: str, done: Callable[[Told], object]) -> None:
        """Begin to look for the nodes to read from; done() is called once, in any thread."""
        ...

    def close(self) -> Ticket[None]:
        """Begin to end the session; the Ticket is done when nothing of it is left."""
        ...


class _Shared:
    """A session, who uses it, and what it has found."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.holders: set[Any] = set()
        self.locators: dict[tuple[str, str, str], LookedUp] = {}


class SharedLocators:
    """See the module. `open_directory` makes a session; herdpy.Error."""

    def __init__(self, open_directory: Callable[[ZooKeeper], Directory]) -> None:
        self._open_directory = open_directory
        self._mutex = new_mutex()
        # Under the mutex.
        self._seeds: dict[tuple[tuple[Address, ...], str, str], SeedNodes] = {}
        self._shared: dict[ZooKeeper, _Shared] = {}

    def hold(self, target: RemoteTarget, holder: object) -> Locator:
        """Return what finds the leader of a cluster's target, for one that release()s it."""
        if target.root is None:
            return self._seed_nodes(target)
        zookeeper = target.zookeeper
        name = (target.root, target.tablespace, target.read)
        with self._mutex:
            shared = self._shared.get(zookeeper)
            if shared is None:
                shared = self._shared[zookeeper] = _Shared(self._open_directory(zookeeper))
            shared.holders.add(holder)
            if name not in shared.locators:
                directory = shared.directory
                shared.locators[name] = LookedUp(
                    lambda done: directory.find(*name, done),
                    str(zookeeper),
                    target.read,
                )
            return shared.locators[name]

    def release(self, holder: object) -> Ticket[None] | None:
        """Hold nothing for it any more; repeatable. A Ticket: of the session that ends by it."""
        with self._mutex:
            for zookeeper, shared in list(self._shared.items()):
                if holder in shared.holders:
                    shared.holders.discard(holder)
                    if not shared.holders:
                        del self._shared[zookeeper]
                        return shared.directory.close()
        return None

    def _seed_nodes(self, target: RemoteTarget) -> SeedNodes:
        key = (target.places, target.tablespace, target.read)
        with self._mutex:
            found = self._seeds.pop(key, None) or SeedNodes(target.places, target.read)
            self._seeds[key] = found  # at the end: used last
            if len(self._seeds) > _REMEMBERED_MAX:
                del self._seeds[next(iter(self._seeds))]
        return found


def _open_zookeeper(zookeeper: ZooKeeper) -> Directory:
    check_extra("bookie", "a herd+zk:// URL", "google.protobuf", "kazoo", "lmdb")
    from herdpy.driver.local import open_zookeeper

    return open_zookeeper(zookeeper)


_of_process = (process_generation(), SharedLocators(_open_zookeeper))


def locators_of_process() -> SharedLocators:
    """Return those that this process has; a forked child's are not its parent's."""
    global _of_process
    generation, found = _of_process
    if generation != process_generation():
        _of_process = (process_generation(), found := SharedLocators(_open_zookeeper))
    return found
