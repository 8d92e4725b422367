"""TablespaceMemory: the accounts of one tablespace: what each kind may have of its memory.

The shares are those of Config. Memtables are set by what they measure, and bounded by
MemtableRoom; what transactions and statements build, and what is kept in caches, asks before it
takes. DuckDB keeps within a limit of its own.
"""

from herdpy.config import Config
from herdpy.engine.state.memtable_room import MEMTABLES_MAX
from herdpy.model.governor import Governor
from herdpy.model.types import Row


class TablespaceMemory:
    """Any thread may call; close() gives everything back."""

    def __init__(self, governor: Governor, name: str, config: Config) -> None:
        self.governor = governor
        self.account = account = governor.open(name, config.memory_bytes_max)
        half = config.memory_bytes_max // 2
        self.memtable_share_bytes = config.memtable_bytes_max
        self.memtables = account.child("memtables", MEMTABLES_MAX * config.memtable_bytes_max)
        self.versions = account.child("versions", config.version_bytes_max)
        self.caches = account.child("caches", config.cache_bytes_max)
        self.transactions = account.child("transactions", half)
        """What open transactions have changed, and the changes that statements work out."""
        self.statements = account.child("statements")
        """What is made of their texts until they run."""

    def rows(self) -> list[Row]:
        """Return what sysmemory shows."""
        return [tuple(figures) for figures in self.governor.figures(self.account)]

    def close(self) -> None:
        """Give everything back; repeatable."""
        self.account.close()
