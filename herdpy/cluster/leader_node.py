"""LeaderNode: the ephemeral node that says which node of the cluster serves as a leader.

It lives with the session that made it. What a former session of the node has left is not deleted,
but goes with that session: by its path it cannot be told from what another node makes meanwhile.
One asyncio loop.
"""

from collections.abc import Callable

from bookie.errors import NodeExistsError, NoNodeError
from bookie.metadata.interfaces import VersionedStore, Watch
from bookie.metadata.patience import BROKEN, PATIENCE_S, Patience, ask


class LeaderNode:
    """Of one tablespace, as one node of the cluster has it."""

    def __init__(
        self, store: VersionedStore, path: str, node_id: str, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._store = store
        self._path = path
        self._data = node_id.encode()
        self._patience_s = patience_s

    def watch(self, callback: Callable[[], None]) -> Watch:
        """Call back after each change of which node it is."""
        return self._store.watch(self._path, callback)

    async def read(self) -> tuple[str, int] | None:
        """Return the id of the node that leads, and the session that it leads with; None: none.

        MetadataStoreError: the store gives no answer.
        """

        async def question() -> tuple[str, int] | None:
            await self._store.sync(self._path)
            try:
                data, stat = await self._store.read(self._path)
            except NoNodeError:
                return None
            return data.decode(), stat.ephemeral_owner

        return await ask(self._store, self._patience_s, question)

    async def make(self) -> bool:
        """Make it this node's; False: another one's is there, or this one's of another session.

        MetadataStoreError: the store gives no answer.
        """
        patience = Patience(self._store, self._patience_s)
        while True:
            try:
                await self._store.create(self._path, self._data, is_ephemeral=True)
                return True
            except NodeExistsError:
                # Also where a lost answer hides that this very call has made it.
                return await self.read() == (self._data.decode(), self._store.session_id)
            except BROKEN as error:
                await patience.again(error)

    async def resign(self) -> None:
        """Let it be gone, if it is this session's; repeatable. MetadataStoreError as make()."""
        patience = Patience(self._store, self._patience_s)
        while True:
            found = await self.read()
            if found is None or found[1] != self._store.session_id:
                return
            try:
                await self._store.delete(self._path)
                return
            except NoNodeError:
                return
            except BROKEN as error:
                await patience.again(error)
