"""Executors: threads for what blocks, made at the edge and passed in; the type for signatures."""

from concurrent.futures import Executor, ThreadPoolExecutor

__all__ = ["Executor", "new_executor"]


def new_executor(name: str, thread_count: int = 1) -> Executor:
    """Return an executor whose threads are called name-0, name-1, …; its owner shuts it down."""
    return ThreadPoolExecutor(thread_count, thread_name_prefix=name)
