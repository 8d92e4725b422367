"""The vector path: DuckDB over a snapshot's pages."""

import sys
from importlib import import_module

from bookie.runtime.os_executors import new_executor
from bookie.runtime.os_process import watch_end


def load_duckdb() -> None:
    """Import duckdb in a thread of its own, and wait for it; called before duck.py is imported.

    Handlers of signals run in the main thread, between any two of its lines. An error that one
    raises within duckdb's own C++ initialisation, as Ctrl-C does, aborts the process. Any thread,
    repeatable. ImportError, OSError.
    """
    if "duckdb" in sys.modules:
        return
    thread = new_executor("herdpy-load")
    try:
        imported = thread.submit(import_module, "duckdb")
    except RuntimeError:  # the interpreter ends: no thread begins any more
        return
    finally:
        thread.shutdown(wait=False)
    imported.result()
    watch_end()  # runs before duckdb's own exit handler, behind which it calls no thread's Python
