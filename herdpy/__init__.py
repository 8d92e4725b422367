"""herdpy: an embeddable SQL database over a write-ahead log.

    import herdpy
    with herdpy.connect("./data") as conn:
        conn.execute("SELECT 1").fetchone()

The names of PEP 249 are loaded when they are first used, so that importing herdpy costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from herdpy.config import Config as Config
    from herdpy.config import NodeConfig as NodeConfig
    from herdpy.config import ServerConfig as ServerConfig
    from herdpy.driver.connection import Connection as Connection
    from herdpy.driver.connection import connect as connect
    from herdpy.driver.cursor import Cursor as Cursor
    from herdpy.driver.pool import Pool as Pool
    from herdpy.driver.restoring import restore as restore
    from herdpy.driver.transaction_block import Rollback as Rollback
    from herdpy.driver.types import BINARY as BINARY
    from herdpy.driver.types import DATETIME as DATETIME
    from herdpy.driver.types import NUMBER as NUMBER
    from herdpy.driver.types import ROWID as ROWID
    from herdpy.driver.types import STRING as STRING
    from herdpy.driver.types import Binary as Binary
    from herdpy.driver.types import Date as Date
    from herdpy.driver.types import DateFromTicks as DateFromTicks
    from herdpy.driver.types import Time as Time
    from herdpy.driver.types import TimeFromTicks as TimeFromTicks
    from herdpy.driver.types import Timestamp as Timestamp
    from herdpy.driver.types import TimestampFromTicks as TimestampFromTicks
    from herdpy.errors import DatabaseError as DatabaseError
    from herdpy.errors import DataError as DataError
    from herdpy.errors import Error as Error
    from herdpy.errors import IntegrityError as IntegrityError
    from herdpy.errors import InterfaceError as InterfaceError
    from herdpy.errors import InternalError as InternalError
    from herdpy.errors import NotSupportedError as NotSupportedError
    from herdpy.errors import OperationalError as OperationalError
    from herdpy.errors import ProgrammingError as ProgrammingError
    from herdpy.errors import Retry as Retry
    from herdpy.errors import Warning as Warning  # noqa: A004 - the name PEP 249 prescribes
    from herdpy.node.node import Node as Node
    from herdpy.node.node import RunningNode as RunningNode
    from herdpy.node.place import ClusterPlace as ClusterPlace

apilevel = "2.0"
threadsafety = 2  # threads may share the module and connections
paramstyle = "qmark"  # :name works too; a statement uses one of the two

_ERRORS = (
    "DataError DatabaseError Error IntegrityError InterfaceError InternalError "
    "NotSupportedError OperationalError ProgrammingError Retry Warning"
)
_TYPES = (
    "BINARY Binary DATETIME Date DateFromTicks NUMBER ROWID STRING Time TimeFromTicks "
    "Timestamp TimestampFromTicks"
)
_HOMES = {
    "Connection": "herdpy.driver.connection",
    "Cursor": "herdpy.driver.cursor",
    "Pool": "herdpy.driver.pool",
    "connect": "herdpy.driver.connection",
    "Rollback": "herdpy.driver.transaction_block",
    "restore": "herdpy.driver.restoring",
    "Node": "herdpy.node.node",
    "RunningNode": "herdpy.node.node",
    "ClusterPlace": "herdpy.node.place",
    **dict.fromkeys(("Config", "NodeConfig", "ServerConfig"), "herdpy.config"),
    **dict.fromkeys(_ERRORS.split(), "herdpy.errors"),
    **dict.fromkeys(_TYPES.split(), "herdpy.driver.types"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("herdpy-db")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'herdpy' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "__version__"})
