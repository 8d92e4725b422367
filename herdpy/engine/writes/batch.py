"""Batch: one write statement with many sets of parameters, as a single change of the table.

Each item runs on the statement's snapshot with the effects of the items before laid over it, as the
transaction's own writes would be. What is left at the end is one net change per key, which is then
locked, compared, checked and logged like that of any other statement: all items or none.
"""

from herdpy.engine.state.applier import store_effects
from herdpy.engine.state.snapshots import Snapshot, TableSnapshot
from herdpy.engine.state.transactions import OwnVersion
from herdpy.engine.writes.row_writes import Change, effects_of
from herdpy.exec.row.row_check import check_absent, rows_by_key
from herdpy.model.types import Key, Row


class BatchLayers:
    """The snapshot as the next item sees it, and what the items so far change. One thread."""

    def __init__(self, source: TableSnapshot) -> None:
        self.source = source
        self._base = source
        self._snapshot: Snapshot | None = None
        self._own: dict[int, dict[Key, OwnVersion]] = {}
        self._before: dict[Key, Row | None] = {}
        self._new_heap_rows: list[Row] = []

    def add(self, changes: list[Change], *, is_insert: bool) -> None:
        """Lay the effects of one item over the rest. IntegrityError: the key is there already.

        Rows that an item inserts into a table without key get theirs later; no item sees them.
        """
        table = self._base.table
        if not changes:
            return
        if table.is_heap:
            self._new_heap_rows += [new for old, new in changes if old is None and new is not None]
        source = self.source
        effects = effects_of(table, changes)
        if is_insert and len(effects) < len(changes) and not table.is_heap:
            rows_by_key(table, (new for _, new in changes if new is not None))
        for key, (old, new) in effects.items():
            if old is None and new is not None:
                check_absent(table, key, source.get(key))
        if self._snapshot is None:
            self._snapshot, self._own = self._base.snapshot.layered(table)
            self.source = self._snapshot.source(table)
        statement = self._base.snapshot.statement - 1
        own = self._own[table.id]
        for key, (old, new) in effects.items():
            self._before.setdefault(key, old)
            own[key] = (statement, new, None)
        for store in table.stores:
            entries = self._own[store.table.id]
            for key, entry in store_effects(store, (), list(effects.values())):
                entries[key] = (statement, entry, None)

    def has_changed(self, key: Key) -> bool:
        """Return whether an item has written the row of a key."""
        return key in self._before

    def net_changes(self) -> list[Change]:
        """Return one change per key whose row is not what it was, and the new rows of a heap."""
        changes: list[Change] = [(None, row) for row in self._new_heap_rows]
        own = self._own.get(self._base.table.id, {})
        for key, old in self._before.items():
            new = own[key][1]
            if old is not None or new is not None:
                changes.append((old, new))
        return changes
