"""The thread that calls, for what a library runs in threads of its own: close() can join it."""

import threading


class ThisThread:
    """The thread that made this object."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread = threading.current_thread()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; False when timeout_s passed first, or it is the thread that calls."""
        if self._thread is threading.current_thread():
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()
