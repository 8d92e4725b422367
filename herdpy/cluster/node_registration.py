"""NodeRegistration: the ephemeral node `nodes/<id>` that says that a node is there, and where.

It lives with the store's session, and is made anew with the next one. Another session's is waited
for: it is a former life's, which ends with that session; when it stays, another process runs under
the same id, and this one must end. One asyncio loop.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from bookie.errors import BookieError, NodeExistsError
from bookie.metadata.interfaces import VersionedStore, Watch
from bookie.metadata.patience import BROKEN, PATIENCE_S, Patience, ask
from herdpy.errors import Error, OperationalError

FORMAT = 1
SESSIONS = 3
"""For so many time-outs of a session another one may hold the id."""
_AGAIN_S = 1.0


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself; fields that are not known are left to those that know them."""

    format: int = FORMAT
    id: str
    addresses: dict[str, str]
    """By protocol: "herd" is that of frames, "host:port"."""


class NodeRegistration:
    """See the module. start() once, close() at the end."""

    def __init__(
        self,
        store: VersionedStore,
        root: str,
        record: NodeRecord,
        *,
        session_timeout_s: float,
        on_refused: Callable[[Error], object],
    ) -> None:
        """on_refused: called once, when another process has the id while this one runs."""
        self._store = store
        self._path = f"{root}/nodes/{record.id}"
        self._record = record
        self._owner_wait_s = SESSIONS * session_timeout_s
        self._on_refused = on_refused
        self._changed = asyncio.Event()
        self._watch: Watch | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register. OperationalError 55006: another process keeps the id; BookieError."""
        self._watch = self._store.watch(self._path, self._changed.set)  # new sessions call, too
        await self._own()
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._own()
            except Error as error:
                self._on_refused(error)
                return
            except BookieError:  # the store is away for long, and is asked again
                await asyncio.sleep(_AGAIN_S)
                self._changed.set()

    async def _own(self) -> None:
        """Make it, or find that it is there and this session's."""
        data = msgspec.json.encode(self._record)
        patience = Patience(self._store, PATIENCE_S)
        deadline_s = asyncio.get_running_loop().time() + self._owner_wait_s
        while True:
            self._changed.clear()
            try:
                await self._store.create(self._path, data, is_ephemeral=True)
                return
            except NodeExistsError:
                owner = await self._owner()
                if owner == self._store.session_id:
                    return
                if owner is not None:
                    await self._wait(owner, deadline_s)
            except BROKEN as error:
                await patience.again(error)

    async def _owner(self) -> int | None:
        async def question() -> int | None:
            await self._store.sync(self._path)
            stat = await self._store.exists(self._path)
            return None if stat is None else stat.ephemeral_owner

        return await ask(self._store, PATIENCE_S, question)

    async def _wait(self, owner: int, deadline_s: float) -> None:
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._changed.wait()
        except TimeoutError:
            raise OperationalError(
                f"{self._path}: session {owner:#x} has held it for {self._owner_wait_s:g} s: "
                f"another process runs as node {self._record.id}",
                sqlstate="55006",
                hint="end that one, or give this one an id and a directory of its own",
            ) from None

    async def close(self) -> None:
        """Take it away, if the store answers; else it goes with the session. Repeatable."""
        if self._watch is not None:
            self._watch.close()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with suppress(BookieError):
                stat = await self._store.exists(self._path)
                if stat is not None and stat.ephemeral_owner == self._store.session_id:
                    await self._store.delete(self._path)
