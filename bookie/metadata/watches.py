"""Callbacks that outlive an error of one of them: session states, lists, standing watches."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, ParamSpec

P = ParamSpec("P")


def call_safely(callback: Callable[[], None]) -> None:
    """Call; what it raises goes to the loop's exception handler, the caller goes on."""
    try:
        callback()
    except Exception as error:  # noqa: BLE001 - a callback is foreign code; it is reported
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a callback of the metadata store failed", "exception": error}
        )


class _Callback:
    """Watch: what add() returns."""

    def __init__(self, callbacks: "Callbacks[...]") -> None:
        self._callbacks = callbacks

    def close(self) -> None:
        self._callbacks.drop(self)


class Callbacks(Generic[P]):
    """The callbacks of one kind of event, in order of registration. Used from its loop's thread."""

    def __init__(self) -> None:
        self._callbacks: dict[_Callback, Callable[P, None]] = {}

    def add(self, callback: Callable[P, None]) -> _Callback:
        watch = _Callback(self)
        self._callbacks[watch] = callback
        return watch

    def drop(self, watch: _Callback) -> None:
        self._callbacks.pop(watch, None)

    def clear(self) -> None:
        self._callbacks.clear()

    def call(self, *news: P.args, **named: P.kwargs) -> None:
        """Call each callback that is still registered when its turn comes."""
        for watch, callback in list(self._callbacks.items()):
            if watch in self._callbacks:
                call_safely(partial(callback, *news, **named))
