"""A thread for work that the garbage collector finds: started without taking a lock."""

import _thread
from collections.abc import Callable


def run_detached(function: Callable[[], object]) -> None:
    """Run function soon, in a short thread that is not joined; its errors go to sys.unraisablehook.

    For weakref callbacks, which may come while their own thread holds any lock, those of the
    threading module included. RuntimeError when no thread can start (end of the interpreter).
    """
    _thread.start_new_thread(function, ())
