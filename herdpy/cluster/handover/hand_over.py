"""HandOver: what a leader does to give its part to a node that is level, step by step.

Until close nothing has changed: what waits goes on here when the hand-over is given up. The steps
are those of part.py. One asyncio loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from herdpy.cluster.leader_node import LeaderNode
from herdpy.cluster.registration import Registration
from herdpy.cluster.served_part import ServedPart
from herdpy.cluster.tablespace_nodes import HandedOver, TablespaceNodes
from herdpy.cluster.tenure import Tenure
from herdpy.errors import Error, OperationalError, Retry
from herdpy.model.lsn import Lsn

_TOLD_S = 3.0
"""For which a successor is waited for, whose address clients are told."""
_LOOK_S = 0.5
"""How often it is looked for, at least."""


class Draining(Protocol):
    """What lets clients in, on the loop."""

    async def drain(self, timeout_s: float, check: Callable[[], object]) -> None:
        """Wait until no transaction is open and nothing runs, as the part lets nothing begin.

        What is open after so many seconds is rolled back, and told 40001. check() is called
        meanwhile, and raises what ends the wait.
        """
        ...


class HandOver:
    """One of them: to `successor`."""

    def __init__(
        self,
        name: str,
        node_id: str,
        successor: str,
        *,
        part: ServedPart,
        service: Draining,
        tenure: Tenure,
        leader: LeaderNode,
        nodes: TablespaceNodes,
        registration: Registration,
        drain_s: float,
    ) -> None:
        self.name = name
        self.successor = successor
        self._node_id = node_id
        self._part = part
        self._service = service
        self._tenure = tenure
        self._leader = leader
        self._nodes = nodes
        self._registration = registration
        self._drain_s = drain_s
        self.position: Lsn | None = None
        """Where the log ends, once it is closed."""

    async def drain(self, why_not: Callable[[], Error | None]) -> None:
        """Let nothing begin, and what is open end; on an error all goes on as before.

        why_not() says why the hand-over must not go on.
        """

        def check() -> None:
            error = self._no_tenure() if self._tenure.is_over else why_not()
            if error is not None:
                raise error

        self._part.defer()
        try:
            await self._service.drain(self._drain_s, check)
            check()
            if not await self._registration.is_there(self.successor):
                raise self._given_up(f"node {self.successor} is not there any more")
        except Exception:  # not when it is cancelled: what waits is told what comes next
            self._part.go_on()
            raise

    async def leave(self, epoch: int) -> None:
        """Say where the log ends, and let the leader's node be gone; no answer leaves any more.

        An error: this node is to stop, whatever has become of it.
        """
        assert self.position is not None
        self._registration.end(self._tenure)
        found = await self._nodes.read(self.name)
        record = found.record
        if (record.leader, record.epoch) != (self._node_id, epoch):
            raise self._given_up(f"node {record.leader} is to lead under epoch {record.epoch}")
        handed_over = HandedOver(epoch=epoch, to=self.successor, position=str(self.position))
        if not await self._nodes.hand_over(self.name, found, handed_over):
            raise self._given_up("the record has changed, or the leader's node is gone")
        self._part.leave()

    async def tell(self, tell_leader: Callable[[str], Awaitable[None]]) -> None:
        """Wait until a node leads again, not for ever, and have this node's clients told."""
        changed = asyncio.Event()
        watch = self._leader.watch(changed.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_TOLD_S):
                    while True:
                        changed.clear()
                        found = await self._leader.read()
                        if found is not None:
                            await tell_leader(found[0])
                            return
                        with suppress(TimeoutError):
                            async with asyncio.timeout(_LOOK_S):
                                await changed.wait()
        finally:
            watch.close()

    def _no_tenure(self) -> Error:
        return self._given_up("this node may not answer any more")

    def _given_up(self, why: str) -> Error:
        return OperationalError(
            f'tablespace "{self.name}": the hand-over to node {self.successor} was given up: {why}',
            sqlstate="55000",
            retry=Retry.SAFE,
        )
