"""What `herdpy tablespace set-leader` does: it makes a wish, and tells what becomes of it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from bookie.errors import BookieError
from bookie.metadata.interfaces import VersionedStore
from herdpy.cluster.cluster_record import check_access, read_cluster
from herdpy.cluster.handover.wish import Wish, WishRecord
from herdpy.cluster.leader_node import LeaderNode
from herdpy.cluster.node_identity import check_id
from herdpy.cluster.status import read_nodes
from herdpy.cluster.tablespace_nodes import TablespaceNodes, TablespaceRecord
from herdpy.errors import OperationalError, ProgrammingError, Retry
from herdpy.node.place import ClusterPlace

_PATIENCE_S = 10.0
_LOOK_S = 0.5
"""How often the store is read again, at least."""


async def move_leader(
    place: ClusterPlace,
    name: str,
    node: str,
    timeout_s: float,
    tell: Callable[[str], object],
) -> str:
    """Have a node lead a tablespace, and return what to say of it.

    ProgrammingError 3D000: there is no such tablespace; 22023: the node has no copy of it.
    OperationalError 57P03: the node is not there, or does not lead after timeout_s; 55006: another
    one is wanted just now. The leader goes on where the node has not come to lead.
    """
    check_id(node)
    async with place.session() as store:
        return await _Move(store, place.root, name, node, tell).run(timeout_s)


class _Move:
    def __init__(
        self,
        store: VersionedStore,
        root: str,
        name: str,
        node: str,
        tell: Callable[[str], object],
    ) -> None:
        self._store = store
        self._root = root
        self._name = name
        self._node = node
        self._tell = tell
        self._nodes = TablespaceNodes(store, root, patience_s=_PATIENCE_S)
        self._changed = asyncio.Event()

    async def run(self, timeout_s: float) -> str:
        loop = asyncio.get_running_loop()
        record = (await self._nodes.read(self._name)).record
        cluster = await read_cluster(self._store, self._root)
        await check_access(self._store, self._root, cluster.ledgers)
        await self._check(record)
        leader = LeaderNode(
            self._store, self._nodes.leader_path(record.id), "", patience_s=_PATIENCE_S
        )
        found = await leader.read()
        if found is not None and found[0] == self._node:
            return f"{self._node} leads {self._name} already, under epoch {record.epoch}"
        if found is None:
            raise OperationalError(
                f'tablespace "{self._name}": no node leads it, so that none can hand over',
                sqlstate="57P03",
                retry=Retry.SAFE,
                hint="one of its replicas takes over by itself; try again then",
            )
        wish = Wish(self._store, self._nodes.wish_path(record.id), patience_s=_PATIENCE_S)
        watches = [
            wish.watch(self._changed.set),
            leader.watch(self._changed.set),
            self._store.watch(self._nodes.path(self._name), self._changed.set),
        ]
        begun_s = loop.time()
        try:
            await wish.make(WishRecord(leader=self._node, epoch=record.epoch))
            while True:
                self._changed.clear()
                now = (await self._nodes.read(self._name)).record
                led = await leader.read()
                if led is not None and led[0] == self._node:
                    took_s = loop.time() - begun_s
                    return (
                        f"{self._node} leads {self._name} under epoch {now.epoch}, "
                        f"after {took_s:.2f} s; before it was {found[0]}"
                    )
                wanted = await wish.read()
                is_level = wanted is not None and wanted.record.is_level
                step = await self._step(record, now, is_level=is_level)
                self._tell(step)
                if loop.time() - begun_s >= timeout_s:
                    raise self._gave_up(f"after {timeout_s:g} s {step}")
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._changed.wait()
        finally:
            for watch in watches:
                watch.close()
            with suppress(BookieError):  # it goes with the session
                await wish.end()

    async def _check(self, record: TablespaceRecord) -> None:
        """Raise why the node cannot lead."""
        if self._node not in record.replicas:
            raise ProgrammingError(
                f"node {self._node!r}: expected a replica of {self._name}, which are "
                f"{', '.join(record.replicas)}",
                sqlstate="22023",
                hint="nothing was changed",
            )
        await self._check_alive()

    async def _check_alive(self) -> None:
        there = {each.id for each in await read_nodes(self._store, self._root, _PATIENCE_S)}
        if self._node not in there:
            known = ", ".join(sorted(there)) or "none"
            raise OperationalError(
                f"node {self._node}: expected a node that is registered, found {known}",
                sqlstate="57P03",
                retry=Retry.SAFE,
                hint="start it: `herdpy node`; the leader is as it was",
            )

    async def _step(
        self, before: TablespaceRecord, now: TablespaceRecord, *, is_level: bool
    ) -> str:
        """Return what is waited for; or raise that it will not come."""
        if now.id != before.id or (now.epoch != before.epoch and now.leader != self._node):
            raise self._gave_up(f"{now.leader} leads meanwhile, or is about to")
        if now.leader == self._node:
            return f"{self._node} takes over"
        if now.successor is not None:
            return f"{now.leader} has handed over, and {self._node} has not come to lead yet"
        await self._check_alive()
        if not is_level:
            return f"{self._node} does not have all of the log yet, or does not answer"
        return f"{now.leader} hands over, as soon as open transactions have ended"

    def _gave_up(self, why: str) -> OperationalError:
        return OperationalError(
            f'tablespace "{self._name}": {self._node} does not lead it: {why}',
            sqlstate="57P03",
            retry=Retry.SAFE,
            hint="the wish was taken back; `herdpy cluster status` shows which node leads",
        )
