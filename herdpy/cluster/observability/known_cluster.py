"""KnownCluster: what a node knows of its cluster without asking, for its system tables.

    known = KnownCluster(store, nodes, member, ...)
    known.start()
    known.nodes(), known.replicas(), ...   # any thread, from memory
    await known.close()

Watches tell which nodes are registered, and which have a copy. What others have said of their
copies (replica_node.py) is read every two seconds while it is asked for, and behind that every
twenty: so all of it may be some seconds old, the first answer behind a pause twenty, and more while
the store is away. Of a tablespace that this node leads it is read within an eighth of the shortest
snapshot lease, too: which leases are used on other copies is the member's to know. One asyncio
loop.
"""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress

from bookie.errors import BookieError, NoNodeError
from bookie.metadata.interfaces import SessionState, VersionedStore, Watch
from herdpy.cluster.member import Member
from herdpy.cluster.observability.replica_node import ReplicaRecord
from herdpy.cluster.registration import NodeRecord
from herdpy.cluster.tablespace_nodes import TablespaceNodes
from herdpy.engine.cluster_view import Leadership, NodeInfo, ReplicaInfo
from herdpy.errors import Error

_PAUSE_S = 2.0
_IDLE_S = 20.0
_LEASE_SHARE = 0.125
_ASKED_LOOKS = 5
"""So many looks follow a question, two seconds apart."""
_US_PER_MS = 1_000


class KnownCluster:
    """Implements herdpy.engine.cluster_view.ClusterView, for one tablespace. See the module."""

    def __init__(
        self,
        store: VersionedStore,
        nodes: TablespaceNodes,
        member: Member,
        *,
        node_id: str,
        tablespace_id: str,
    ) -> None:
        self._store = store
        self._paths = nodes
        self._member = member
        self.node_id = node_id
        self._tablespace_id = tablespace_id
        self._changed = asyncio.Event()
        self._has_new_nodes = True
        self._has_new_replicas = True
        self._names: set[str] = set()
        """Nodes that have said something of their copies."""
        self._is_asked = False
        """A reader has asked since the last look; any thread."""
        self._watches: list[Watch] = []
        self._versions: dict[str, int] = {}
        """Of what was read of each node last."""
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        # Replaced by one assignment each, read by any thread.
        self._nodes: tuple[NodeInfo, ...] = ()
        self._replicas: dict[str, ReplicaInfo] = {}

    def start(self) -> None:
        """Begin to look; close() ends it."""
        self._watches = [
            self._store.watch_children(self._paths.nodes_path, self._on_nodes),
            self._store.watch_children(
                self._paths.replicas_path(self._tablespace_id), self._on_replicas
            ),
            self._store.on_session(self._on_session),
        ]
        self._changed.set()
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        """Look no more; repeatable."""
        for watch in self._watches:
            watch.close()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # --- what is known: any thread ---------------------------------------------------------------

    def part(self) -> str:
        return self._member.machine.state.value

    def leadership(self) -> Leadership:
        record, leader = self._member.record, self._member.leader_id
        if record is None:
            return Leadership(self._member.name, self._tablespace_id, leader, 0, (), 0)
        return Leadership(
            self._member.name, record.id, leader, record.epoch, record.replicas, record.expected
        )

    def nodes(self) -> Sequence[NodeInfo]:
        return self._nodes

    def replicas(self) -> Sequence[ReplicaInfo]:
        """Return what this node's copy is now, and what the others have said."""
        if not self._is_asked:
            self._is_asked = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._changed.set)
        known, own = self._replicas, self._member.copy_state()
        lag_s = None if math.isinf(own.lag_s) else own.lag_s
        position = None if own.position is None else str(own.position)
        found = {**known, self.node_id: ReplicaInfo(self.node_id, own.part, position, lag_s, None)}
        for node in self.leadership().replicas:
            found.setdefault(node, ReplicaInfo(node, None, None, None, None))
        return [found[node] for node in sorted(found)]

    # --- looking ---------------------------------------------------------------------------------

    def _on_nodes(self) -> None:
        self._has_new_nodes = True
        self._changed.set()

    def _on_replicas(self) -> None:
        self._has_new_replicas = True
        self._changed.set()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:  # what happened meanwhile is not told
            self._on_nodes()
            self._on_replicas()

    async def _run(self) -> None:
        looks = 0  # that are left of the last question's
        while True:
            if not looks:
                await self._wait()
            self._changed.clear()
            looks = _ASKED_LOOKS if self._is_asked else max(0, looks - 1)
            self._is_asked = False
            try:
                await self._look()
            except BookieError:  # the store is away
                self._changed.set()
            await asyncio.sleep(_PAUSE_S)

    async def _wait(self) -> None:
        """Wait until there is news, or it is time to look for some."""
        begun_s = self._loop.time()
        while True:
            lease_s = _LEASE_SHARE * self._member.shortest_lease_s()
            if self._loop.time() - begun_s >= min(_IDLE_S, max(_PAUSE_S, lease_s)):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_S):
                    await self._changed.wait()
                    return

    async def _look(self) -> None:
        begun_s = self._loop.time()
        if self._has_new_nodes:
            self._has_new_nodes = False
            try:
                await self._read_nodes()
            except BaseException:
                self._has_new_nodes = True
                raise
        if self._has_new_replicas:
            self._has_new_replicas = False
            try:
                await self._read_names()
            except BaseException:
                self._has_new_replicas = True
                raise
        for node in sorted(self._names):
            await self._read_replica(node)
        self._member.leases_heard(self._loop.time() - begun_s if self._names else None)

    async def _read_nodes(self) -> None:
        found: list[NodeInfo] = []
        for name in sorted(await self._store.children(self._paths.nodes_path)):
            path = self._paths.node_path(name)
            with suppress(NoNodeError, Error):  # its session has ended; or it is of a newer herdpy
                record = NodeRecord.of_bytes((await self._store.read(path))[0], path)
                address = record.addresses.get("herd")
                found.append(NodeInfo(record.id, address, record.has_tls, record.version))
        self._nodes = tuple(found)

    async def _read_names(self) -> None:
        path = self._paths.replicas_path(self._tablespace_id)
        try:
            names = set(await self._store.children(path)) - {self.node_id}
        except NoNodeError:  # the tablespace was dropped
            names = set[str]()
        self._names = names
        self._replicas = {node: each for node, each in self._replicas.items() if node in names}

    async def _read_replica(self, node: str) -> None:
        path = self._paths.replica_path(self._tablespace_id, node)
        with suppress(NoNodeError, Error):  # the watch tells its end; or it is of a newer herdpy
            data, stat = await self._store.read(path)
            found = ReplicaRecord.of_bytes(data, path)
            if found.leases and self._versions.get(node) != stat.version:
                self._member.leases_used(found.leases)  # once for each time that it is written
            self._versions[node] = stat.version
            info = ReplicaInfo(
                node, found.part, found.position, found.lag_s, stat.mtime_ms * _US_PER_MS
            )
            self._replicas = {**self._replicas, node: info}
