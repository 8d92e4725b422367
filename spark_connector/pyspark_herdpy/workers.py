"""What makes further tasks cheap in Spark's Python workers, which live on from task to task.

A worker runs a full garbage collection behind every task, and what the modules of a task have made
takes it some forty milliseconds, more than reading a partition does.
"""

import gc

from pyspark import TaskContext

_settled: list[bool] = []


def settle() -> None:
    """Let the collector pass over what is there now; once for a worker, nothing elsewhere.

    To be called behind a task's work, when all modules that it needs are loaded.
    """
    if not _settled and TaskContext.get() is not None:
        _settled.append(True)
        gc.collect()
        gc.freeze()
