"""Doctor: reads every byte of a database that counts, says what is wrong, and changes nothing.

Unlike opening, it goes on behind the first damage and names all of it; unlike a query, it reads
pages that no statement asks for. The caller sees to it that no process has the directory open.
"""

from collections.abc import Mapping

import msgspec

from bookie.runtime.interfaces import Disk
from herdpy.engine.maintenance.directory import (
    DIRECTORY,
    FORMAT,
    MANIFEST,
    OURS,
    RESTORE,
    SEGMENTS,
    check_format,
)
from herdpy.engine.maintenance.file_logs import file_log_reader
from herdpy.engine.maintenance.leftovers import check_leftovers
from herdpy.engine.maintenance.recovery import apply_records, state_at_checkpoint
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.state.state import TableState
from herdpy.errors import CorruptionError, Error, InvariantViolation
from herdpy.model.schema import Table
from herdpy.storage.backup_file import Progress
from herdpy.storage.manifest import Manifest, ManifestState, PageRef
from herdpy.storage.manifest import TableState as Listed
from herdpy.storage.read_only import ReadOnlyDisk
from herdpy.storage.segment import Segment, segment_name, segment_number
from herdpy.storage.table_pages import PageEntry, TablePages, open_entry
from herdpy.storage.verify import check_definition, check_rows

_FINDINGS_MAX = 1000
_NOT_OURS = "no file of a database"


class Report(msgspec.Struct, kw_only=True):
    """What was found. Without damages the database opens, and every row of it can be read."""

    damages: list[str] = []
    """What is lost or wrong, with file and offset; at most 1,000."""
    notes: list[str] = []
    """What is unusual and harmless."""
    segment_count: int = 0
    byte_count: int = 0
    """Of the segments."""
    table_count: int = 0
    page_count: int = 0
    """Of tables, of what is staged, and of what only leases keep."""
    row_count: int = 0
    """Of the tables, in pages; what lies in the log since is not among them."""
    log_record_count: int = 0
    """Behind the checkpoint."""


def examine(disk: Disk, where: str, progress: Progress | None = None) -> Report:
    """Verify the database of a directory; damage is in the report and not raised.

    OSError: something could not be read at all.
    """
    doctor = _Doctor(ReadOnlyDisk(disk), where, progress or (lambda *_: None))
    doctor.run()
    return doctor.report


class _Doctor:
    def __init__(self, disk: ReadOnlyDisk, where: str, progress: Progress) -> None:
        self.report = Report()
        self._disk = disk
        self._where = where
        self._progress = progress
        self._done = 0
        self._is_segment_damaged = False
        self._read: set[tuple[int, int]] = set()  # pages by segment and offset

    def run(self) -> None:
        listed = self._manifest()
        if listed is None:
            return
        segments = self._segments(listed)
        tables = self._tables(listed.tables, segments, is_now=True)
        pinned = {name: self._tables(pin.tables, segments) for name, pin in listed.pins.items()}
        self._log(listed, tables, pinned)

    def _damage(self, error: Exception) -> None:
        if len(self.report.damages) < _FINDINGS_MAX:
            self.report.damages.append(getattr(error, "message", str(error)))

    def _manifest(self) -> ManifestState | None:
        disk, notes = self._disk, self.report.notes
        names = disk.list("")
        notes += [f"{name} is {_NOT_OURS}" for name in names if name not in OURS]
        try:
            if FORMAT in names:
                check_format(disk, self._where)
            elif RESTORE in names:
                raise CorruptionError("restoring a backup into it was interrupted: restore again")
            else:
                raise CorruptionError(f"{FORMAT} is missing: this is no database, or half of one")
            if not disk.exists(MANIFEST):
                raise CorruptionError(f"{MANIFEST} is missing")
            return Manifest.read(disk, MANIFEST)
        except Error as error:
            self._damage(error)
            return None

    def _segments(self, listed: ManifestState) -> dict[int, Segment]:
        disk, report = self._disk, self.report
        found: dict[int, Segment] = {}
        for number, byte_count in listed.segments.items():
            try:
                path = f"{SEGMENTS}/{segment_name(number)}"
                found[number] = Segment.open(
                    disk, path, number, byte_count, listed.segment_id(number)
                )
            except Error as error:
                self._is_segment_damaged = True
                self._damage(error)
        report.segment_count = len(listed.segments)
        report.byte_count = sum(listed.segments.values())
        known = {segment_name(number) for number in listed.segments}
        for name in disk.list(SEGMENTS) if disk.exists(SEGMENTS) else []:
            if name not in known:
                is_ours = segment_number(name) and disk.is_file(f"{SEGMENTS}/{name}")
                what = "left over; the next open removes it" if is_ours else _NOT_OURS
                report.notes.append(f"{SEGMENTS}/{name} is {what}")
        return found

    def _tables(
        self, listed: Mapping[int, Listed], segments: dict[int, Segment], *, is_now: bool = False
    ) -> dict[int, TableState] | None:
        """Return tables, None when one of them is damaged; pages met before are not read again.

        is_now: they are not what a lease keeps.
        """
        tables: dict[int, TableState] = {}
        before = len(self.report.damages)
        for table_id, item in listed.items():
            try:
                table = check_definition(table_id, item.definition)
            except ValueError as error:
                self._damage(CorruptionError(f"{MANIFEST}: table {table_id}: {error}"))
                continue
            is_counted = is_now and table.id == table_id  # else it is a stage
            entries = [
                entry
                for ref in item.pages
                if (entry := self._page(table, ref, segments, is_counted=is_counted)) is not None
            ]
            self.report.table_count += is_counted
            try:
                pages = TablePages.of_entries(table, entries)
            except Error as error:
                self._damage(error)
                continue
            tables[table_id] = TableState(table, Memtable(), (), pages)
        is_whole = not self._is_segment_damaged
        return tables if is_whole and len(self.report.damages) == before else None

    def _page(
        self, table: Table, ref: PageRef, segments: dict[int, Segment], *, is_counted: bool
    ) -> PageEntry | None:
        is_new = (ref.segment, ref.offset) not in self._read
        self._read.add((ref.segment, ref.offset))
        self.report.page_count += is_new
        needed = {ref.segment} if ref.bitmap is None else {ref.segment, ref.bitmap.segment}
        if not needed <= segments.keys():
            return None  # the damage of the segment was told
        try:
            entry = open_entry(table, ref, segments)
            if not is_new:
                return entry
            entry.page.verify()  # its bitmap was verified when the entry was made
            live_count = check_rows(entry)
            self.report.row_count += live_count if is_counted else 0
        except (Error, ValueError, IndexError, OverflowError) as error:
            self._damage(error)
            return None
        self._done += ref.length
        self._progress(self._done, self.report.byte_count)
        return entry

    def _log(
        self,
        listed: ManifestState,
        tables: dict[int, TableState] | None,
        leased: dict[str, dict[int, TableState] | None],
    ) -> None:
        """Read the log; apply it when the pages that it changes are whole."""
        disk = self._disk
        try:
            reader = file_log_reader(disk, DIRECTORY, listed)
            check_leftovers(disk, DIRECTORY, listed, is_restoring=disk.exists(RESTORE))
            records = list(reader.records())
            self.report.log_record_count = len(records)
            pinned = {name: found for name, found in leased.items() if found is not None}
            if tables is not None and len(pinned) == len(leased):
                apply_records(state_at_checkpoint(listed, tables, pinned), records)
        except (Error, InvariantViolation, ValueError) as error:
            self._damage(error)
