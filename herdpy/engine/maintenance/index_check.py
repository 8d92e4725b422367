"""Whether indexes say what their tables have: for doctor, and for tests of everything else."""

from herdpy.engine.state.snapshots import Snapshot
from herdpy.errors import CorruptionError
from herdpy.model.schema import Table


def check_indexes(snapshot: Snapshot, table: Table) -> None:
    """Raise CorruptionError unless each index of a table has just one entry for each of its rows.

    Two passes for each index, in memory for a row at a time.
    """
    source = snapshot.source(table)
    for number, store in enumerate(table.stores):
        entries = source.index(number)
        row_count = missing_count = 0
        for row in source.rows():
            row_count += 1
            entry = entries.get(store.table.key_of(store.entry_of(row)))
            missing_count += entry is None or store.key_of(entry) != table.key_of(row)
        entry_count = sum(1 for _ in entries.rows())
        if missing_count or entry_count != row_count:
            raise CorruptionError(
                f'index "{store.index.name}" of table "{table.name}": {missing_count:,} of '
                f"{row_count:,} rows have no entry that leads to them, and it has {entry_count:,} "
                "entries",
                hint="DROP INDEX, and CREATE it anew.",
            )
