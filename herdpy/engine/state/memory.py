"""TablespaceMemory: the accounts of one tablespace: what each kind may have of its memory.

The shares are those of Config. Memtables are set by what they measure, and bounded by
MemtableRoom; what transactions and statements build, and what is kept in caches, asks before it
takes. So does a compaction that can be put off. What has to be done, a checkpoint, the commit of
pages, is held while it is at work, so that those who can be refused find less. DuckDB keeps within
a limit of its own.
"""

from collections.abc import Generator
from contextlib import contextmanager

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
        self._job_bytes_max = config.memory_bytes_max // 4
        self.jobs = account.child("jobs")
        """What checkpoints, compactions and commits of pages build."""

    @contextmanager
    def job(self, name: str, byte_count: int) -> Generator[None]:
        """Hold what a job takes that has to be done, while it runs; others give way to it.

        Not more than a quarter of all: one page may take more where memory is little, and others
        would find none.
        """
        held = self.jobs.reserve(name)
        try:
            held.hold(min(byte_count, self._job_bytes_max))
            yield
        finally:
            held.close()

    def has_room_for_job(self, byte_count: int) -> bool:
        """Return whether a job that can be put off may begin."""
        return self.jobs.has_room(min(byte_count, self._job_bytes_max))

    def rows(self) -> list[Row]:
        """Return what sysmemory shows."""
        return [tuple(figures) for figures in self.governor.figures(self.account)]

    def close(self) -> None:
        """Give everything back; repeatable."""
        self.account.close()
