"""Waiting out a broken connection to the metadata store, for as long as a caller allows."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bookie.errors import MetadataStoreError, SessionExpiredError, StoreConnectionError
from bookie.metadata.interfaces import SessionState, VersionedStore

T = TypeVar("T")
BROKEN = (StoreConnectionError, SessionExpiredError)
"""The answer is not known; a new try may be answered."""
PATIENCE_S = 30.0
"""How long a broken connection is waited out unless a caller says otherwise."""
_FIRST_PAUSE_S = 0.01
_PAUSE_MAX_S = 1.0


class Patience:
    """Counts from the first broken connection of one task; not reusable.

    again() returns when it is time for the next try, and raises MetadataStoreError when limit_s
    have passed. A try that answered does not reset it.
    """

    def __init__(self, store: VersionedStore, limit_s: float) -> None:
        self._store = store
        self._limit_s = limit_s
        self._deadline: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    async def again(self, error: Exception) -> None:
        """Wait after `error`: a moment, then until the store is connected (at most a second)."""
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            self._deadline = loop.time() + self._limit_s
        if loop.time() >= self._deadline:
            raise MetadataStoreError(
                f"the metadata store gave no answer for {self._limit_s:g} s ({error}); "
                "what was asked may have been done: look before asking again"
            ) from error
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
        await _connected(self._store, _PAUSE_MAX_S)


async def ask(store: VersionedStore, limit_s: float, question: Callable[[], Awaitable[T]]) -> T:
    """Return the answer to a question that may be asked twice (a read, a sync)."""
    patience = Patience(store, limit_s)
    while True:
        try:
            return await question()
        except BROKEN as error:
            await patience.again(error)


async def _connected(store: VersionedStore, limit_s: float) -> None:
    """Wait until the store is connected, at most limit_s."""
    if store.state is SessionState.CONNECTED:
        return
    connected = asyncio.get_running_loop().create_future()

    def note(state: SessionState) -> None:
        if state is SessionState.CONNECTED and not connected.done():
            connected.set_result(None)

    watch = store.on_session(note)
    try:
        async with asyncio.timeout(limit_s):
            await connected
    except TimeoutError:
        pass  # the next try tells
    finally:
        watch.close()
