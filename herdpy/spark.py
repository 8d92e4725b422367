"""Spark beside herdpy: a session that knows format("herdpy"), leases, positions of jobs, and types.

The work is done by the package pyspark_herdpy, which Spark finds by itself; it and pyspark come
with herdpy-db[spark] and are loaded when they are first used, which is an InterfaceError without
them. docs/guides/spark.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

from herdpy.errors import check_extra

if TYPE_CHECKING:
    from pyspark_herdpy.mapping import create_table as create_table
    from pyspark_herdpy.mapping import spark_schema as spark_schema
    from pyspark_herdpy.mapping import sql_type as sql_type
    from pyspark_herdpy.session import active as active
    from pyspark_herdpy.session import commit_position as commit_position
    from pyspark_herdpy.session import release as release
    from pyspark_herdpy.session import session as session
    from pyspark_herdpy.session import with_pushdown as with_pushdown

_SESSION, _MAPPING = "pyspark_herdpy.session", "pyspark_herdpy.mapping"
_MODULES = {
    **dict.fromkeys(("active", "commit_position", "release", "session", "with_pushdown"), _SESSION),
    **dict.fromkeys(("create_table", "spark_schema", "sql_type"), _MAPPING),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'herdpy.spark' has no attribute {name!r}")
    check_extra("spark", "herdpy.spark")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
