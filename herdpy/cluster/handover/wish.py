"""Wish: the ephemeral node by which a tablespace is given to another leader, in good order.

    <root>/wishes/<id>   {"format":1,"leader":"n2","epoch":7,"is_level":false}

Whoever wants another leader makes it, under the epoch of the leader of the moment. The node that is
wanted says in it that it has what the log has, by compare-and-set; the leader hands over then. It
lives with the session of its maker, and is of no account once the epoch is another: a wish that is
forgotten changes nothing. One asyncio loop.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from bookie.errors import BadVersionError, NodeExistsError, NoNodeError
from bookie.metadata.interfaces import VersionedStore, Watch
from bookie.metadata.patience import BROKEN, PATIENCE_S, Patience, ask
from herdpy.cluster.json_nodes import read_node
from herdpy.errors import OperationalError, Retry

FORMAT = 1
ANY_NODE = ""
"""As the node that is wanted: the first that is level."""


class WishRecord(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    format: int = FORMAT
    leader: str
    """The id of the node that is to lead, or ANY_NODE."""
    epoch: int
    """Under which the leader leads that is to hand over."""
    is_level: bool = False
    """The node that is to lead has what the log has, as it says."""

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


class VersionedWish(NamedTuple):
    record: WishRecord
    version: int


class Wish:
    """Of one tablespace."""

    def __init__(self, store: VersionedStore, path: str, *, patience_s: float = PATIENCE_S) -> None:
        self._store = store
        self._path = path
        self._patience_s = patience_s

    def watch(self, callback: Callable[[], None]) -> Watch:
        """Call back after each change of it."""
        return self._store.watch(self._path, callback)

    async def read(self) -> VersionedWish | None:
        """Return what is wanted now; None: nothing. MetadataStoreError: no answer."""

        async def question() -> VersionedWish | None:
            await self._store.sync(self._path)
            try:
                data, stat = await self._store.read(self._path)
            except NoNodeError:
                return None
            record = read_node(data, self._path, WishRecord, FORMAT, "a wish for a leader")
            return VersionedWish(record, stat.version)

        return await ask(self._store, self._patience_s, question)

    async def make(self, record: WishRecord) -> None:
        """Make it, for as long as this session lives; OperationalError 55006: there is one."""
        patience = Patience(self._store, self._patience_s)
        while True:
            try:
                await self._store.create(
                    self._path, record.to_bytes(), is_ephemeral=True, make_parents=True
                )
                return
            except NodeExistsError:
                stat = await ask(
                    self._store, self._patience_s, lambda: self._store.exists(self._path)
                )
                if stat is not None and stat.ephemeral_owner == self._store.session_id:
                    return  # by this very call, whose answer was lost
                raise OperationalError(
                    f"{self._path}: another leader is wanted already",
                    sqlstate="55006",
                    retry=Retry.SAFE,
                    hint="wait for the other one's end, some seconds; nothing was changed",
                ) from None
            except BROKEN as error:
                await patience.again(error)

    async def accept(self, found: VersionedWish, node_id: str) -> None:
        """Say that this node is level, unless what was found is not the newest any more."""
        record = msgspec.structs.replace(found.record, leader=node_id, is_level=True)
        patience = Patience(self._store, self._patience_s)
        while True:
            try:
                await self._store.write(self._path, record.to_bytes(), found.version)
                return
            except (BadVersionError, NoNodeError):
                return
            except BROKEN as error:
                await patience.again(error)

    async def end(self) -> None:
        """Let it be gone, if it is this session's; repeatable. MetadataStoreError as read()."""
        patience = Patience(self._store, self._patience_s)
        while True:
            try:
                stat = await self._store.exists(self._path)
                if stat is not None and stat.ephemeral_owner == self._store.session_id:
                    await self._store.delete(self._path)
                return
            except NoNodeError:
                return
            except BROKEN as error:
                await patience.again(error)
