"""UNIQUE: what a write changes of the keys of unique indexes, which it locks and looks up.

A key that a statement gives to a row must be free at the statement's end, in the newest committed
state and in what the transaction itself has written. Keys that it takes from rows are locked, too:
whoever wants one of them waits for the end of the transaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from herdpy.engine.state.snapshots import Snapshot, TableSnapshot
from herdpy.exec.row.row_check import check_absent
from herdpy.model.schema import IndexStore, Table
from herdpy.model.types import Key, Row


class UniqueKeys(NamedTuple):
    """What a statement changes of one unique index."""

    store: IndexStore
    added: Mapping[Key, None]
    removed: Mapping[Key, None]

    @property
    def all(self) -> list[Key]:
        """Each key once."""
        return list(dict.fromkeys((*self.removed, *self.added)))

    def first_taken(self, latest: Snapshot) -> Key | None:
        """Return a key that a row has, and keeps; None: all are free. The keys are locked."""
        source = latest.source(self.store.table)
        wanted = (key for key in self.added if key not in self.removed)
        return next((key for key in wanted if source.get(key) is not None), None)


Kept = list[tuple[Table, list[Key]]]
"""Keys of entries that a statement has seen, and leaves as they are, by what they stand in."""


def without_taken(
    table: Table, inserts: Iterable[Row], source: TableSnapshot, arbiters: Sequence[int]
) -> tuple[list[Row], Kept]:
    """Return the new rows but for those that have values of a row that is there in these indexes.

    Also of one before them. With them the entries, of the source, for which rows are left out.
    """
    rows: list[Row] = []
    found = [(table.stores[number], source.index(number)) for number in arbiters]
    taken: list[set[Key]] = [set() for _ in found]
    kept: list[dict[Key, None]] = [{} for _ in found]
    for row in inserts:
        keys = [store.unique_key_of(row) for store, _ in found]
        is_new = True
        for number, key in enumerate(keys):
            if key is None:
                continue
            if key in taken[number]:
                is_new = False
            elif found[number][1].get(key) is not None:
                kept[number][key] = None
                is_new = False
        if not is_new:
            continue
        for number, key in enumerate(keys):
            if key is not None:
                taken[number].add(key)
        rows.append(row)
    entries = zip(found, kept, strict=True)
    return rows, [(store.table, list(known)) for (store, _), known in entries if known]


def unique_keys(table: Table, changes: Iterable[tuple[Row | None, Row | None]]) -> list[UniqueKeys]:
    """Return what changes of a table's rows are in its unique indexes; 23505: a key comes twice."""
    found: list[tuple[IndexStore, dict[Key, None], dict[Key, None]]] = [
        (store, {}, {}) for store in table.unique_stores
    ]
    for old, new in changes:
        for store, added, removed in found:
            before = None if old is None else store.unique_key_of(old)
            after = None if new is None else store.unique_key_of(new)
            if before == after:
                continue
            if before is not None:
                removed[before] = None
            if after is not None:
                check_absent(store.table, after, after if after in added else None)
                added[after] = None
    return [UniqueKeys(*each) for each in found if each[1] or each[2]]
