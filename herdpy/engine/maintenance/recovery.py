"""Recovery: manifest, then the log behind its checkpoint, then ROLLBACK of what was left open."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from bookie.runtime.interfaces import Clock, Disk
from herdpy.config import Config
from herdpy.engine.maintenance.checkpoint import remove_unlisted, restore_engine
from herdpy.engine.maintenance.leftovers import check_leftovers
from herdpy.engine.state.applier import Applier
from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.disk_reserve import DiskReserve
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.state.staged import Staged
from herdpy.engine.state.state import State, TableState
from herdpy.engine.state.tablespace import Tablespace
from herdpy.errors import CorruptionError, DiskFullError
from herdpy.log.file_log import FileLog
from herdpy.log.interfaces import LogSpaceError
from herdpy.log.record import EndStaging, decode
from herdpy.model.lsn import Lsn
from herdpy.model.schema import table_from_plain
from herdpy.storage.manifest import LogFileBegun, LogFilesDropped, Manifest, ManifestState
from herdpy.storage.manifest import TableState as Listed
from herdpy.storage.segment import Segment, segment_name
from herdpy.storage.table_pages import TablePages


class ManifestListing:
    """Lists log files in the manifest; implements log.file_log.LogFileListing."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def log_file_begun(self, number: int, first_sequence: int, byte_count: int) -> None:
        self._manifest.append(LogFileBegun(number, first_sequence, byte_count))

    def log_files_dropped(self, numbers: Sequence[int]) -> None:
        self._manifest.append(LogFilesDropped(tuple(numbers)))

    def harden(self) -> None:
        self._manifest.harden()


def recover_tablespace(
    name: str,
    disk: Disk,
    directory: str,
    manifest: Manifest,
    config: Config,
    clock: Clock,
    *,
    is_restoring: bool = False,
) -> Tablespace:
    """Return the tablespace as its last acknowledged commit left it.

    CorruptionError names file and offset; nothing is skipped or guessed, and nothing on the disk
    has been changed: `manifest` was loaded and not hardened, and everything is read before the
    first write. `is_restoring`: leftovers.py.
    """
    listed = manifest.state
    segments = open_segments(disk, f"{directory}/segments", listed)
    state = state_of(listed, open_tables(listed.tables, segments))
    pinned = open_pins(listed, segments)
    check_log_files(disk, f"{directory}/log", listed)
    check_leftovers(disk, directory, listed, is_restoring=is_restoring)
    log = FileLog.open(
        disk,
        f"{directory}/log",
        log_id=listed.log_id,
        files=listed.log_files,
        known_durable_sequence=max(listed.durable_sequence, listed.checkpoint_lsn[1]),
        listing=ManifestListing(manifest),
        first_file_bytes=config.log_file_bytes_first,
        max_file_bytes=config.log_file_bytes_max,
        start=listed.log_start,
    )
    reserve = DiskReserve(disk, f"{directory}/reserve", config.disk_reserve_bytes, log)
    tablespace = Tablespace(name, log, clock, state, reserve)
    applier = tablespace.applier
    applier.next_table_id = listed.next_table_id
    restore_engine(applier, listed.engine, pinned)
    replay_log(tablespace, state.lsn)  # behind its end the manifest is durable
    remove_unlisted(disk, f"{directory}/segments", manifest)
    applier.next_row_id = dict(applier.reserved)
    applier.epoch += 1
    applier.counter = 0
    reserve.hold()
    _roll_back_open(tablespace)
    _end_statements(tablespace)
    return tablespace


def check_log_files(disk: Disk, directory: str, listed: ManifestState) -> None:
    """Raise CorruptionError for a log file that is missing or shorter than when it was begun.

    A file that was emptied holds no frame that could say so itself.
    """
    for number, expected in listed.log_bytes.items():
        path = f"{directory}/{number:08d}.log"
        found = disk.size(path) if disk.exists(path) else 0
        if found < expected:
            raise CorruptionError(
                f"log file {path} was begun with {expected} bytes and ends at offset {found}",
                hint="Restore the database from a copy; commits in the missing part are lost.",
            )


def state_of(listed: ManifestState, found: dict[int, TableState]) -> State:
    """Return the State of these tables and stages; restore_engine() fills in the rest."""
    tables = {number: item for number, item in found.items() if item.table.id == number}
    stages = {number: item.pages for number, item in found.items() if number not in tables}
    catalog = Catalog(1, (item.table for item in tables.values()))
    lsn = Lsn(*listed.checkpoint_lsn)
    staged = Staged.of_pages(stages)
    return State(max(listed.position, 1), lsn, catalog, tables, staged)


def open_segments(disk: Disk, directory: str, listed: ManifestState) -> dict[int, Segment]:
    """Map every segment that a manifest lists, by number."""
    return {
        number: Segment.open(disk, f"{directory}/{segment_name(number)}", number, byte_count)
        for number, byte_count in listed.segments.items()
    }


def open_tables(
    listed: Mapping[int, Listed], segments: Mapping[int, Segment]
) -> dict[int, TableState]:
    """Return tables that a manifest lists, by number, with no changes behind its checkpoint.

    Tables have their ids; what has another number than its table's id is a stage of that table.
    """
    tables: dict[int, TableState] = {}
    for table_id, item in listed.items():
        table = table_from_plain(item.definition)
        tables[table_id] = TableState(
            table, Memtable(), (), TablePages.open(table, item.pages, segments)
        )
    return tables


def open_pins(
    listed: ManifestState, segments: Mapping[int, Segment]
) -> dict[str, dict[int, TableState]]:
    """Return the tables of each lease."""
    return {name: open_tables(pin.tables, segments) for name, pin in listed.pins.items()}


def state_at_checkpoint(
    listed: ManifestState,
    tables: dict[int, TableState],
    pinned: Mapping[str, dict[int, TableState]] | None = None,
) -> Applier:
    """Return everything that a manifest says; ValueError when the engine's part is malformed."""
    applier = Applier(state_of(listed, tables), lambda: None)
    applier.next_table_id = listed.next_table_id
    restore_engine(applier, listed.engine, pinned)
    return applier


def replay_log(tablespace: Tablespace, after: Lsn) -> None:
    """Apply every record behind `after`."""
    apply_records(tablespace.applier, tablespace.log.replay(after))


def apply_records(applier: Applier, records: Iterable[tuple[Lsn, bytes]]) -> None:
    """Apply records of a log in their order; CorruptionError for a malformed one."""
    for lsn, data in records:
        try:
            record = decode(data)
            applier.fill(record, lsn, None)
            applier.apply(record, lsn, len(data))
            applier.finish(record)
        except ValueError as error:
            raise CorruptionError(
                f"log record {lsn} of {len(data)} bytes cannot be read: {error}",
                hint="The frame's checksum is right, so a newer or a broken herdpy wrote it.",
            ) from error


def _end_statements(tablespace: Tablespace) -> None:
    """Give up what statements had staged and cannot commit any more, through the log."""
    jobs = [job.name for job in tablespace.state.staged.jobs.values() if job.is_statement]
    if jobs:
        with suppress(DiskFullError, LogSpaceError):  # then it ends by its time-out
            with_log_space(tablespace, lambda: tablespace.log_alone(EndStaging(jobs)))


def _roll_back_open(tablespace: Tablespace) -> None:
    """Roll back every transaction that no one can commit any more, through the log.

    On a full disk the database opens all the same; the records follow when there is room.
    """
    with tablespace.monitor:
        for transaction in list(tablespace.applier.transactions.values()):
            tablespace.log_rollback(transaction)
            tablespace.end(transaction)
    tablespace.retry_rollbacks()
