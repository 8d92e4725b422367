"""CREATE INDEX: the entries of the rows that are there, logged as an INSERT into the index.

The statement has the table EXCLUSIVE, and has logged the index's definition. So there is one way by
which entries come into pages, and a replica needs no other rows for it than those of the log.
"""

from collections.abc import Callable, Iterator

from herdpy.engine.state.snapshots import TableSnapshot
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.writes.row_writes import Change, Write, looking
from herdpy.model.schema import IndexStore, Table


class IndexBuild(Write):
    """The write of an index's first entries; 23505: two rows have what is to be unique."""

    __slots__ = ("_indexed", "_store")

    def __init__(
        self,
        tablespace: Tablespace,
        transaction: Transaction,
        indexed: Table,
        store: IndexStore,
        *,
        memory_bytes_max: int,
        check_interrupt: Callable[[], object],
    ) -> None:
        super().__init__(
            tablespace,
            transaction,
            store.table,
            is_insert=True,
            memory_bytes_max=memory_bytes_max,
            check_interrupt=check_interrupt,
            stream=self._entries,
        )
        self._indexed = indexed
        self._store = store
        self.is_part = True

    def is_current(self) -> bool:
        """Return True: the indexed table is locked, and no other knows the index."""
        return True

    def _entries(self, _source: TableSnapshot) -> Iterator[Change]:
        """Yield the entries of all rows, also of those that the transaction's snapshot lacks."""
        entry_of = self._store.entry_of
        latest = self._tablespace.latest(self._transaction)
        try:
            latest.check_interrupt = self._check_interrupt
            columns = frozenset(self._store.index.columns)
            for row in looking(latest.source(self._indexed).rows(columns), self._check_interrupt):
                yield None, entry_of(row)
        finally:
            latest.close()
