"""State: everything a snapshot needs, as immutable objects replaced by one assignment."""

from typing import NamedTuple

from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.state.staged import NOTHING, Staged
from herdpy.model.lsn import Lsn
from herdpy.model.schema import Table
from herdpy.storage.table_pages import TablePages


class TableState(NamedTuple):
    """One table: memtable, the frozen ones a checkpoint is writing (newest first), pages."""

    table: Table
    memtable: Memtable
    frozen: tuple[Memtable, ...]
    pages: TablePages
    is_unlisted: bool = False
    """The manifest does not say yet that the table has these pages; the next checkpoint does."""

    @property
    def memtables(self) -> tuple[Memtable, ...]:
        """All of them, the newest first."""
        return (self.memtable, *self.frozen)


def new_table(table: Table) -> TableState:
    """Return a table that has nothing yet."""
    return TableState(table, Memtable(), (), TablePages(table))


class State(NamedTuple):
    """What is committed and visible. `position` counts commits since open; `lsn` is the log's."""

    position: int
    lsn: Lsn
    catalog: Catalog
    tables: dict[int, TableState]
    """By table id; never changed in place."""
    staged: Staged = NOTHING
    """What no statement sees before its job commits."""
