"""ReplicaNode: what a node says in the metadata store of its copy of a tablespace.

    <root>/replicas/<tablespace>/<node>   persistent; a ReplicaRecord

It is for those who look, and may be old; one decision rests on it: a leader does not end a snapshot
lease that a copy has said to be used since its last record. News are written two seconds
behind what was written before at the earliest, and the same again every ten; leases that are used
within a quarter of the shortest one's seconds, all in one record. While the node leads
they ride with the renewal of its tenures (registration.py), which fails where this node is not
there: so it is made by keep(), and never by a renewal. One asyncio loop.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import msgspec

from bookie.errors import BookieError, NodeExistsError, NoNodeError
from bookie.metadata.interfaces import ANY_VERSION, VersionedStore, Write
from bookie.metadata.patience import BROKEN
from herdpy.cluster.json_nodes import read_node
from herdpy.limits import leases_max
from herdpy.model.lsn import Lsn

FORMAT = 1
_NEWS_S = 2.0
_SAME_S = 10.0
_TOLD_S = 5.0
"""A lease's use stands in the records of so long at least: who reads them leaves out some."""
_LEASE_SHARE = 0.25
"""Of a lease's seconds: so often is its use written, as often as news at most; and so long does it
stand in records."""
_WRITTEN_S = 1.0
"""A record is written in this time, where the store answers."""
_log = logging.getLogger(__name__)


def reported_s(lease_s: float) -> float:
    """Return how long behind the use of a lease of so many seconds a record has it, at most."""
    return max(_NEWS_S, _LEASE_SHARE * lease_s) + _NEWS_S + _WRITTEN_S


class ReplicaRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has said of its copy last; docs/formats/tablespace_nodes.md."""

    format: int = FORMAT
    node: str
    part: str
    """The value of a State of herdpy/cluster/part.py."""
    position: str | None = None
    """Up to where the copy has the log, as text of an Lsn; None: it was not open."""
    lag_s: float | None = None
    """How old what it showed was at most; None: that was not known."""
    leases: tuple[str, ...] = ()
    """Snapshot leases that were used there in the last seconds."""

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def of_bytes(data: bytes, path: str) -> "ReplicaRecord":
        """Read a node; CorruptionError: it is malformed, OperationalError: of a newer herdpy."""
        return read_node(data, path, ReplicaRecord, FORMAT, "a replica")


class CopyState(NamedTuple):
    """What a copy is now."""

    part: str
    position: Lsn | None
    """None: it is not open."""
    lag_s: float
    """Infinite: not known."""
    byte_count: int = 0
    """Of records that it has taken in or written since it was opened: what is no news leaves it."""


class ReplicaNode:
    """See the module. `rides`: renewals take due() along, and keep() only makes the node."""

    def __init__(
        self,
        store: VersionedStore,
        path: str,
        node_id: str,
        look: Callable[[], CopyState],
        now_s: Callable[[], float],
        used_leases: Callable[[], dict[str, float]] = dict,
    ) -> None:
        """used_leases: returns those that were used since the last call, with their seconds."""
        self._store = store
        self._path = path
        self._node_id = node_id
        self._look = look
        self._now_s = now_s
        self._is_there = False
        """It was seen, by this life: a write finds it, unless a tool has deleted it since."""
        self._news: tuple[str, int] | None = None
        """Part and byte_count, as they were written last."""
        self._offered: tuple[bytes, tuple[str, int]] | None = None
        """What is to be written, and what of it is news."""
        self._written_s = -math.inf
        self._used_leases = used_leases
        self._leases: dict[str, float] = {}
        """That were used, and are to be written, with their seconds."""
        self._told_s: dict[str, float] = {}
        """When each of these was written first."""
        self.rides = False

    def due(self) -> Write | None:
        """Return what a renewal is to write, too; None: nothing, or the node is not there."""
        data = self._due() if self._is_there else None
        return None if data is None else Write(self._path, data)

    def _due(self) -> bytes | None:
        state, since_s = self._look(), self._now_s() - self._written_s
        position = None if state.position is None else str(state.position)
        news = (state.part, state.byte_count)
        is_news = news != self._news
        self._leases |= self._used_leases()
        wait_s = _NEWS_S if is_news else _SAME_S
        if self._leases:
            wait_s = min(wait_s, max(_NEWS_S, _LEASE_SHARE * min(self._leases.values())))
        if since_s < wait_s:
            return None
        lag_s = None if math.isinf(state.lag_s) else round(state.lag_s, 3)
        record = ReplicaRecord(
            node=self._node_id,
            part=state.part,
            position=position,
            lag_s=lag_s,
            leases=tuple(islice(self._leases, leases_max)),
        )
        data = record.to_bytes()
        self._offered = data, news
        return data

    def wrote(self, write: Write) -> None:
        """Take in that it was written."""
        record = ReplicaRecord.of_bytes(write.data, self._path)
        offered, self._written_s = self._offered, self._now_s()
        self._news = offered[1] if offered is not None and offered[0] == write.data else None
        for each in record.leases:
            told_s = max(_TOLD_S, _LEASE_SHARE * self._leases.get(each, 0.0))
            if self._told_s.setdefault(each, self._written_s) <= self._written_s - told_s:
                self._leases.pop(each, None)
                del self._told_s[each]

    def failed(self) -> None:
        """Take in that a renewal that took it along was refused: perhaps it is not there."""
        self._is_there = False

    async def keep(self) -> None:
        """Write what is due and does not ride, for ever."""
        told = ""
        while True:
            data = None if self.rides and self._is_there else self._due()
            if data is not None:
                try:
                    await self._write(data)
                except BROKEN:  # the store is away, which its session tells
                    pass
                except BookieError as error:  # it refuses, perhaps again and again
                    if told != str(error):
                        _log.warning("node %s: %s", self._node_id, error)
                    told = str(error)
            await asyncio.sleep(_NEWS_S)

    async def _write(self, data: bytes) -> None:
        try:
            if self._is_there:
                await self._store.write(self._path, data, ANY_VERSION)
            else:
                await self._store.create(self._path, data)
        except NodeExistsError:  # of a former life
            self._is_there = True
            await self._store.write(self._path, data, ANY_VERSION)
        except NoNodeError:  # deleted by a tool; or the tablespace was dropped
            self._is_there = False
            return
        self._is_there = True
        self.wrote(Write(self._path, data))
