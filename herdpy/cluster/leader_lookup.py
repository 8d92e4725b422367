"""LeaderLookup: which node leads a tablespace, and where it is, for programs that connect to it.

By the nodes of docs/formats/tablespace_nodes.md, which a program only reads; fields that it does
not know are the cluster's. The session with the store is opened by the first question. One asyncio
loop; questions may be asked beside each other.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from bookie.errors import BookieError, NoNodeError, StoreAccessError, StoreTrustError
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.patience import ask
from herdpy.cluster.json_nodes import read_node
from herdpy.cluster.registration import FORMAT as NODE_FORMAT
from herdpy.cluster.tablespace_nodes import FORMAT, TablespaceNodes, no_tablespace
from herdpy.errors import Error, OperationalError, Retry

_PATIENCE_S = 5.0
"""How long a broken connection to the store is waited out; who asks tries again."""


class _Tablespace(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    id: str
    replicas: tuple[str, ...] = ()


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    addresses: dict[str, str]
    has_tls: bool | None = None


class NodePlace(NamedTuple):
    """Where a node is for frames, as it says."""

    address: str
    """host:port, or [host]:port."""
    has_tls: bool | None
    """By TLS alone, or in clear alone; None: it does not say."""


Told = list[NodePlace] | Error


class LeaderLookup:
    """See the module."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[VersionedStore]],
        where: str,
        *,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """`where` is the store, for messages."""
        self._open_store = open_store
        self._where = where
        self._patience_s = patience_s
        self._opening = asyncio.Lock()
        self._store: VersionedStore | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, root: str, tablespace: str, read: str, done: Callable[[Told], object]) -> None:
        """Begin to look; done() gets what find_nodes() returns, or raises."""
        task = asyncio.get_running_loop().create_task(self._tell(root, tablespace, read, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def find(self, root: str, tablespace: str) -> str:
        """Return the leader's "host:port" for frames; errors as find_nodes()."""
        return (await self.find_nodes(root, tablespace, "leader"))[0].address

    async def find_nodes(self, root: str, tablespace: str, read: str) -> list[NodePlace]:
        """Return where nodes to connect to are, of one at least.

        read: "leader", "follower", or "nearest" for all, the leader last.
        ProgrammingError 3D000: there is no such tablespace. OperationalError 58P01: no cluster is
        there; 57P03, SAFE: no such node is there now; 08001, SAFE: the store gives no answer, and
        not SAFE where its certificate is not trusted; 42501: it does not let this program read.
        """
        try:
            store = await self._opened()
            return await ask(
                store, self._patience_s, lambda: self._read(store, root, tablespace, read)
            )
        except StoreAccessError as error:
            raise OperationalError(
                f"connect: {self._where} does not let this program read below {root}: {error}",
                sqlstate="42501",
                hint="log in as a user that may read there (zookeeper_login=FILE), or name nodes "
                "of the cluster: herd://host:port,host:port/tablespace",
            ) from error
        except StoreTrustError as error:
            raise OperationalError(
                f"connect: no TLS with {self._where}: {error}",
                sqlstate="08001",
                hint="name the authority: zookeeper_tls_authority=ca.pem",
            ) from error
        except BookieError as error:
            raise OperationalError(
                f"connect: {self._where} does not tell which node leads {tablespace!r}: {error}",
                sqlstate="08001",
                retry=Retry.SAFE,
                hint="is ZooKeeper running there?",
            ) from error

    async def close(self) -> None:
        """End the session, and the questions under way; repeatable."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    async def _tell(
        self, root: str, tablespace: str, read: str, done: Callable[[Told], object]
    ) -> None:
        try:
            found: Told = await self.find_nodes(root, tablespace, read)
        except Error as error:
            found = error
        except asyncio.CancelledError:
            done(OperationalError("connect: the connection was closed", sqlstate="08003"))
            raise
        done(found)

    async def _opened(self) -> VersionedStore:
        async with self._opening:
            if self._store is None:
                self._store = await self._open_store()
            return self._store

    async def _read(
        self, store: VersionedStore, root: str, tablespace: str, read: str
    ) -> list[NodePlace]:
        nodes = TablespaceNodes(store, root)
        path = nodes.path(tablespace)
        await store.sync(path)
        try:
            data = (await store.read(path))[0]
        except NoNodeError:
            await nodes.names()  # 58P01 where there is no cluster
            raise no_tablespace(tablespace) from None
        record = read_node(data, path, _Tablespace, FORMAT, "a tablespace", oldest=FORMAT)
        leader = ""
        with suppress(NoNodeError):
            leader = (await store.read(nodes.leader_path(record.id)))[0].decode()
        if read != "leader":
            wanted = [each for each in record.replicas if each != leader]
            if leader and read == "nearest":
                wanted.append(leader)
            found = [await _place(store, f"{root}/nodes/{node}") for node in wanted]
            places = [each for each in found if each is not None]
            if not places:
                raise _not_there(tablespace, "no node that follows is registered")
            return places
        if not leader:
            raise _not_there(tablespace, "no node leads it now")
        path = f"{root}/nodes/{leader}"
        place = await _place(store, path)
        if place is None:
            raise _not_there(
                tablespace,
                f"node {leader} leads it, and {path} is gone, or names no address for herd://",
            )
        return [place]


async def _place(store: VersionedStore, path: str) -> NodePlace | None:
    """Return where a node is for frames; None: it is not registered, or does not say."""
    try:
        data = (await store.read(path))[0]
    except NoNodeError:
        return None
    node = read_node(data, path, _Node, NODE_FORMAT, "a node")
    address = node.addresses.get("herd")
    return None if address is None else NodePlace(address, node.has_tls)


def _not_there(tablespace: str, why: str) -> Error:
    return OperationalError(
        f'connect: tablespace "{tablespace}": {why}',
        sqlstate="57P03",
        retry=Retry.SAFE,
        hint="another node takes over soon, if enough of them run; try again",
    )
