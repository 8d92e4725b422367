"""Spark beside herdpy: a session that knows format("herdpy"), leases, and positions of jobs.

The work is done by the package pyspark_herdpy, which Spark finds by itself; it and pyspark come
with herdpy-db[spark] and are loaded when they are first used. docs/guides/spark.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_herdpy.session import commit_position as commit_position
    from pyspark_herdpy.session import release as release
    from pyspark_herdpy.session import session as session
    from pyspark_herdpy.session import with_pushdown as with_pushdown

_NAMES = ("commit_position", "release", "session", "with_pushdown")


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'herdpy.spark' has no attribute {name!r}")
    return getattr(importlib.import_module("pyspark_herdpy.session"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
