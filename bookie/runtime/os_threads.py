"""Threads that no driver makes: the one that calls, and one that the garbage collector starts."""

import _thread
import threading
from collections.abc import Callable


class ThisThread:
    """The thread that made this object, of a library's own: close() can join it."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread = threading.current_thread()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; False when timeout_s passed first, or it is the thread that calls."""
        if self._thread is threading.current_thread():
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


def run_detached(function: Callable[[], object]) -> None:
    """Run function soon, in a short thread that is not joined; its errors go to sys.unraisablehook.

    For weakref callbacks, which may come while their own thread holds any lock, those of the
    threading module included: none is taken here. RuntimeError when no thread can start (end of
    the interpreter).
    """
    _thread.start_new_thread(function, ())
