"""Callbacks that outlive an error of one of them: session states and standing watches."""

import asyncio
from collections.abc import Callable

from bookie.metadata.interfaces import SessionState


def call_safely(callback: Callable[[], None]) -> None:
    """Call; what it raises goes to the loop's exception handler, the caller goes on."""
    try:
        callback()
    except Exception as error:  # noqa: BLE001 - a callback is foreign code; it is reported
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a callback of the metadata store failed", "exception": error}
        )


class _SessionWatch:
    def __init__(self, callbacks: "SessionCallbacks") -> None:
        self._callbacks = callbacks

    def close(self) -> None:
        self._callbacks.drop(self)


class SessionCallbacks:
    """Who wants to hear of session states, in order of registration."""

    def __init__(self) -> None:
        self._callbacks: dict[_SessionWatch, Callable[[SessionState], None]] = {}

    def add(self, callback: Callable[[SessionState], None]) -> _SessionWatch:
        watch = _SessionWatch(self)
        self._callbacks[watch] = callback
        return watch

    def drop(self, watch: _SessionWatch) -> None:
        self._callbacks.pop(watch, None)

    def clear(self) -> None:
        self._callbacks.clear()

    def call(self, state: SessionState) -> None:
        """Tell everybody who is still registered when their turn comes."""
        for watch, callback in list(self._callbacks.items()):
            if watch in self._callbacks:
                call_safely(lambda callback=callback: callback(state))
