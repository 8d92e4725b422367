"""LifecycleWatch: a running bookie follows its own lifecycle state and the cookie above it.

What changes is told by watches and read after a sync(). While the store cannot be asked the last
state stands, as a bookie whose session is suspended serves on; one that was never read, or that is
not understood, is told as None: such a bookie may be Drained and takes no add. A cookie that is
gone, or was made anew since this bookie checked it, is told once, for good. Used
on one asyncio loop.
"""

import asyncio
import logging
from collections.abc import Callable

from bookie.errors import BookieError, ClientClosedError, MetadataStoreError
from bookie.ledger.types import BookieId
from bookie.lifecycle.states import LifecycleRecord
from bookie.lifecycle.store import LifecycleStore
from bookie.metadata.interfaces import VersionedStore, Watch

_log = logging.getLogger(__name__)
_AGAIN_S = 10.0
"""Until a state that was not understood, or an answer that did not come, is asked for again."""


class LifecycleWatch:
    """See the module. start() before the bookie serves, close() at the end."""

    def __init__(
        self,
        store: VersionedStore,
        root: str,
        bookie_id: BookieId,
        cookie_ctime_ms: int | None,
        on_state: Callable[[LifecycleRecord | None], None],
        on_gone: Callable[[], None],
    ) -> None:
        """cookie_ctime_ms: when the cookie that this bookie checked was made; None: any."""
        self._store = store
        self._states = LifecycleStore(store, root)
        self._bookie_id = bookie_id
        self._cookie_ctime_ms = cookie_ctime_ms
        self._on_state = on_state
        self._on_gone = on_gone
        self._changed = asyncio.Event()
        self._watches: list[Watch] = []
        self._task: asyncio.Task[None] | None = None
        self._is_known = False
        self._is_gone = False

    async def start(self) -> None:
        """Tell the state, as it is known, before this returns; then follow it."""
        states = self._states
        # Watches first: what changes after the reading is told.
        self._watches = [
            self._store.watch(states.cookie_path(self._bookie_id), self._changed.set),
            self._store.watch(states.state_path(self._bookie_id), self._changed.set),
        ]
        is_read = await self._read()
        self._task = asyncio.get_running_loop().create_task(self._follow(is_read=is_read))

    async def close(self) -> None:
        """Stop following; idempotent."""
        for watch in self._watches:
            watch.close()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, *, is_read: bool) -> None:
        while not self._is_gone:
            try:
                async with asyncio.timeout(None if is_read else _AGAIN_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            is_read = await self._read()

    async def _read(self) -> bool:
        """Tell what is there; False: ask again in a while."""
        try:
            found = await self._states.find(self._bookie_id)
        except (MetadataStoreError, ClientClosedError) as error:
            if not self._is_known:
                self._unknown(error)
            return False
        except BookieError as error:
            self._is_known = False
            self._unknown(error)
            return False
        # One made anew is that of another bookie, which took the id after this one's removal.
        if found is None or found.cookie_ctime_ms != (
            self._cookie_ctime_ms or found.cookie_ctime_ms
        ):
            self._is_gone = True
            self._on_gone()
            return True
        self._is_known = True
        self._on_state(found.record)
        return True

    def _unknown(self, error: BookieError) -> None:
        _log.error(
            "bookie %s: its lifecycle state cannot be read (%s): it takes no adds until it can; "
            "`bookie bookies status` shows it",
            self._bookie_id,
            error,
        )
        self._on_state(None)
