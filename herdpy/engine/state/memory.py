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
from herdpy.model.governor import Account, AccountFigures
from herdpy.model.types import Row

TABLESPACES = "tablespaces"
"""The account of all but `default`, below that of their directory; of a node's copies all."""
NODE = "node"
"""What sysmemory calls the account of a node."""


class TablespaceMemory:
    """Any thread may call; close() gives everything back."""

    def __init__(
        self, database: Account, name: str | None, config: Config, share: float | None = None
    ) -> None:
        """`database` is the account of the directory, name None: of its tablespace `default`.

        That one has its kinds right below it; another one its own account among TABLESPACES.
        share: it is a copy of a node, whose account is `database`, and may have this part of it.
        """
        self.governor = database.governor
        self._database = database
        self.account = account = database
        if name is not None:
            account = database.child(TABLESPACES).child(name, config.memory_bytes_max)
            self.account = account
        self.is_of_node = share is not None
        self.share = 1.0 if share is None else share
        """What part of all it may have, of the memtables' share, too."""
        self._bytes_max = config.memory_bytes_max
        self.memtable_share_bytes = config.memtable_bytes_max
        self.memtables = account.child("memtables")
        self.versions = account.child("versions")
        self.caches = account.child("caches")
        self.transactions = account.child("transactions")
        """What open transactions have changed, and the changes that statements work out."""
        self.statements = account.child("statements")
        """What is made of their texts until they run."""
        self._job_bytes_max = config.memory_bytes_max // 4
        self.jobs = account.child("jobs")
        """What checkpoints, compactions and commits of pages build."""
        self.resize(config)

    def rename(self, name: str) -> None:
        """Have the tablespace's new name. Any thread."""
        self.account.rename(name)

    def resize(self, config: Config) -> None:
        """Have other bounds from now on; who holds more keeps it. Any thread."""
        self._bytes_max = config.memory_bytes_max
        self.take_share(self.share)
        self.memtable_share_bytes = config.memtable_bytes_max
        self.memtables.bytes_max = MEMTABLES_MAX * config.memtable_bytes_max
        self.versions.bytes_max = config.version_bytes_max
        self.caches.bytes_max = config.cache_bytes_max
        self.transactions.bytes_max = config.memory_bytes_max // 2
        self._job_bytes_max = config.memory_bytes_max // 4

    def take_share(self, share: float) -> None:
        """Have another part of all from now on; who holds more keeps it. Any thread."""
        self.share = share
        self.account.bytes_max = int(self._bytes_max * share)

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
        """Return what sysmemory shows; of `default` with all other tablespaces.

        Of another one the accounts are named from its own on: where the directory is, and what else
        is in it, is not for its users. Of a node's copy there is the node's account above them.
        """
        account = self.account
        figures = self.governor.figures(account)
        if account is self._database or account.parent is None:
            return [tuple(each) for each in figures]
        above = f"{account.parent.path}/"
        node = [self.node_figures()._replace(path=NODE)] if self.is_of_node else []
        own = [each._replace(path=each.path.removeprefix(above)) for each in figures]
        return [tuple(each) for each in (*node, *own)]

    def node_figures(self) -> AccountFigures:
        """Return those of its directory or node, as of the governor's last settle()."""
        return self._database.figures()

    def kinds(self) -> list[AccountFigures]:
        """Return the figures of its account, and behind it those of what it is divided into."""
        return self.governor.figures(self.account, without=TABLESPACES)

    def bytes_held(self) -> int:
        """Return what its kinds hold together, as of the governor's last settle(). Any thread."""
        kinds = self.account.children_now()
        return sum(each.bytes_used for each in kinds if each.name != TABLESPACES)

    def memtables_of_others(self) -> list[int]:
        """Return what the memtables of the other tablespaces hold. Any thread."""
        return [
            each.bytes_used for each in memtables_of(self._database) if each is not self.memtables
        ]

    def close(self) -> None:
        """Give everything back; repeatable."""
        self.account.close()


def memtables_of(database: Account) -> list[Account]:
    """Return the accounts of the memtables of all its tablespaces. Any thread."""
    others = database.children.get(TABLESPACES)
    accounts = [database] if others is None else [database, *others.children_now()]
    found = (account.children.get("memtables") for account in accounts)
    return [account for account in found if account is not None]
