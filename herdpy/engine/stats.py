"""DatabaseStats: what the engine says of its work and its state, for metrics and status pages.

stats_of() reads the state at one moment, without the monitor, so the numbers may differ
by what happens meanwhile.
"""

from typing import TYPE_CHECKING, NamedTuple

from herdpy.model.lsn import Lsn

if TYPE_CHECKING:
    from herdpy.engine.database import Database


class DatabaseStats(NamedTuple):
    """A database at one moment."""

    last_lsn: Lsn
    durable_lsn: Lsn
    log_entries: int
    log_bytes: int
    """Appended since the database was opened."""
    tables: int
    pages: int
    memtable_rows: int
    memtable_bytes: int
    version_bytes: int
    """Of row versions that only old snapshots need."""
    sessions: int
    statements: int
    """That run or wait."""
    transactions: int
    """That have written and not ended."""
    leases: int
    """Snapshots that are kept."""
    maintenance_failing: int
    """Steps of background work that have failed, and not been done since."""
    checkpoint_error: str | None
    failure: str | None
    """Why nothing can be written any more, None while all is well."""
    is_disk_full: bool
    """What can be refused is refused, until there is room again."""
    disk_free_bytes: int
    disk_needed_bytes: int
    """For the pages of what is in memory, estimated."""
    disk_reserve_bytes: int
    """That the reserve has now."""
    disk_refused: int
    """Statements."""


def stats_of(database: "Database") -> DatabaseStats:
    """Return the figures now. Any thread."""
    tablespace = database.tablespace
    states = list(tablespace.state.tables.values())
    memtables = [table for state in states for table in (state.memtable, *state.frozen)]
    sessions = database.sessions()
    log = tablespace.log
    failure = tablespace.failure or log.failure
    disk = database.replica.space.figures()
    checkpoint_error = database.replica.checkpoint_error
    return DatabaseStats(
        last_lsn=log.last_lsn,
        durable_lsn=log.durable_lsn,
        log_entries=log.entry_count,
        log_bytes=log.bytes_appended,
        tables=len(tablespace.state.catalog.tables()),
        pages=sum(
            len(level) for state in states for level in (state.pages.base, *state.pages.runs)
        ),
        memtable_rows=sum(map(len, memtables)),
        memtable_bytes=sum(memtable.byte_count for memtable in memtables),
        version_bytes=tablespace.version_bytes(),
        sessions=len(sessions),
        statements=sum(session.running is not None for session in sessions),
        transactions=len(tablespace.open_transactions()),
        leases=len(tablespace.applier.leases),
        maintenance_failing=len(database.retries.failed),
        checkpoint_error=None if checkpoint_error is None else checkpoint_error.message,
        failure=None if failure is None else failure.message,
        is_disk_full=disk.is_full,
        disk_free_bytes=disk.free_bytes,
        disk_needed_bytes=disk.needed_bytes,
        disk_reserve_bytes=disk.reserve_held_bytes,
        disk_refused=disk.refused,
    )
