"""Doctor: reads every byte of a database that counts, says what is wrong, and changes nothing.

Unlike opening, it goes on behind the first damage and names all of it; unlike a query, it reads
pages that no statement asks for. The caller sees to it that no process has the directory open.
"""

from collections.abc import Iterator, Mapping

import msgspec

from bookie.runtime.interfaces import Disk
from herdpy.config import Config
from herdpy.engine.maintenance.directory import (
    DIRECTORY,
    FORMAT,
    FORMAT_HINT,
    INTERRUPTED_RESTORE_HINT,
    RESERVE,
    RESTORE,
    check_format,
    check_listed,
    foreign_names,
    tablespace_folders,
)
from herdpy.engine.maintenance.file_logs import check_log_files, file_log_reader
from herdpy.engine.maintenance.index_check import check_indexes
from herdpy.engine.maintenance.leftovers import check_leftovers
from herdpy.engine.maintenance.recovery import apply_records, state_at_checkpoint
from herdpy.engine.state.applier import Applier
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.state.snapshots import Snapshot
from herdpy.engine.state.state import State, TableState
from herdpy.errors import CorruptionError, Error, damaged, misplaced
from herdpy.model.access import Grant, Role, right_names
from herdpy.model.lsn import Lsn
from herdpy.model.schema import Table
from herdpy.storage.backup_file import Progress
from herdpy.storage.manifest import FILE_LOG, LEDGER_LOG, Manifest, ManifestState, PageRef
from herdpy.storage.manifest import TableState as Listed
from herdpy.storage.read_only import ReadOnlyDisk
from herdpy.storage.segment import Segment, segment_name, segment_number
from herdpy.storage.table_pages import PageEntry, TablePages, open_entry
from herdpy.storage.tablespace_list import (
    TablespaceEntry,
    TablespaceLimits,
    TablespaceList,
    only_default,
    read_list,
)
from herdpy.storage.verify import check_definition, check_rows

_FINDINGS_MAX = 1000
_FREE_BYTES_MIN = 64 * 1024 * 1024
_LOG_BYTES_MANY = 4 * Config().checkpoint_log_bytes
_NOT_OURS = "no file of a database"
MALFORMED = (Error, ValueError, LookupError, OverflowError, OSError)
"""What readers of a database say of bytes that no herdpy has written."""


class ExaminedTablespace(msgspec.Struct, kw_only=True):
    """A tablespace, and what it has as of the end of its log; None: damage hides it."""

    name: str
    folder: str
    limits: TablespaceLimits
    table_count: int | None = None
    role_count: int | None = None
    right_count: int | None = None
    """Rights of roles on tables and the tablespace, those of owners not counted."""
    needs_log_from: Lsn | None = None
    """Of a node's copy: its checkpoint's position. What the log has behind it is in ledgers, which
    the cluster's bookies have; the ledger of this position is the first one that it needs."""


class Report(msgspec.Struct, kw_only=True):
    """What was found. Without damages the database opens, and every row of it can be read."""

    damages: list[str] = []
    """What is lost or wrong, with file and offset; at most 1,000."""
    advice: list[str] = []
    """What to do about them, each once."""
    notes: list[str] = []
    """What is unusual and harmless."""
    tablespaces: list[ExaminedTablespace] = []
    """Those that the list of tablespaces has; if it is damaged, those that have a folder."""
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
    log_byte_count: int = 0
    """Of those."""
    node: str | None = None
    """Whose directory it is, of a cluster's node; None: it is a database, or one copy."""


def examine(disk: Disk, where: str, progress: Progress | None = None) -> Report:
    """Verify the database of a directory; damage is in the report and not raised.

    OSError: something could not be read at all.
    """
    first = Survey(disk, where, progress)
    if first.check_format():
        _Doctor(first).run()
        for entry in first.others():
            _Doctor(Survey(disk, where, progress, entry, first.report)).run()
        first.note_disk()
    else:
        first.note_foreign(tablespace_folders(disk))
    return first.report


class Survey:
    """One reading of a tablespace: pages, definitions and log, with a note of all that is wrong.

    What is wrong is left out of what the methods return.
    """

    def __init__(
        self,
        disk: Disk,
        where: str,
        progress: Progress | None,
        entry: TablespaceEntry | None = None,
        report: Report | None = None,
    ) -> None:
        """`entry` is the tablespace's in the list, None: `default`; `report` one to go on with."""
        self.report = report or Report()
        self.disk = ReadOnlyDisk(disk)
        self.folder = DIRECTORY if entry is None else entry.folder
        self._entry = entry
        self._segments = f"{self.folder}/segments"
        self._where = where
        self._progress = progress or (lambda *_: None)
        self._done = 0
        self._is_whole: dict[tuple[int, int], bool] = {}  # pages by segment and offset

    def note(self, error: Exception) -> None:
        """Note damage; what is none, because the system refuses something, is raised."""
        if isinstance(error, OSError):
            found = misplaced(f"{error.filename}", error)
            if found is None:
                raise error
            error = found
        report = self.report
        if len(report.damages) < _FINDINGS_MAX:
            report.damages.append(getattr(error, "message", str(error)))
        hint = getattr(error, "hint", None)
        if hint and hint not in report.advice:
            report.advice.append(hint)

    def others(self) -> list[TablespaceEntry]:
        """Return the tablespaces beside `default`; if the list is damaged, by their folders."""
        disk = self.disk
        listed: TablespaceList | None = None
        found: dict[str, TablespaceEntry] = {}
        try:
            listed = read_list(disk)
            check_listed(disk, listed or only_default(b""))
        except Error as error:
            self.note(error)
            found = {name: TablespaceEntry.of_folder(name) for name in tablespace_folders(disk)}
        if listed is not None:
            found |= {each.folder: each for each in listed.present[1:]}
        leftovers = [] if listed is None else [each.folder for each in listed.leftovers]
        self.note_foreign([*found, *leftovers])
        return list(found.values())

    def note_foreign(self, folders: list[str]) -> None:
        """Note what is no file of a database, whose tablespaces have these folders."""
        names = foreign_names(self.disk)
        self.report.notes += [f"{name} is {_NOT_OURS}" for name in names if name not in folders]

    def manifest(self) -> ManifestState:
        """Return what the manifest says; CorruptionError: damage, or it is another tablespace's."""
        path = f"{self.folder}/MANIFEST"
        listed, entry = Manifest.read(self.disk, path, None), self._entry
        if entry is not None and listed.identity.uuid != entry.id:
            raise damaged(
                f"{path}, offset 0: it is of tablespace {listed.identity.uuid.hex()}, and the "
                f"folder is that of {entry.id.hex()}"
            )
        return listed

    def begin_tablespace(self) -> ExaminedTablespace:
        """Have the tablespace in the report, and return what is to be filled in."""
        entry = self._entry or TablespaceEntry(b"", DIRECTORY)
        made = ExaminedTablespace(name=entry.name, folder=self.folder, limits=entry.limits)
        self.report.tablespaces.append(made)
        return made

    def check_format(self) -> bool:
        """Look for FORMAT; return whether it is as it must be."""
        disk, names = self.disk, self.disk.list("")
        try:
            if FORMAT in names:
                check_format(disk, self._where)
            elif RESTORE in names:
                raise CorruptionError(
                    "restoring a backup into it was interrupted", hint=INTERRUPTED_RESTORE_HINT
                )
            else:
                raise CorruptionError(
                    f"{FORMAT} is missing: this is no database, or half of one", hint=FORMAT_HINT
                )
        except Error as error:
            self.note(error)
            return False
        return True

    def segments(self, listed: ManifestState) -> dict[int, Segment]:
        """Return the segments that are whole from outside."""
        disk, report = self.disk, self.report
        found: dict[int, Segment] = {}
        for number, byte_count in listed.segments.items():
            try:
                path = f"{self._segments}/{segment_name(number)}"
                found[number] = Segment.open(
                    disk, path, number, byte_count, listed.segment_id(number)
                )
            except (Error, OSError) as error:
                self.note(error)
        report.segment_count += len(listed.segments)
        report.byte_count += sum(listed.segments.values())
        return found

    def note_leftovers(self, listed: ManifestState) -> None:
        """Note what lies among the segments and is not listed."""
        disk = self.disk
        known = {segment_name(number) for number in listed.segments}
        try:
            names = disk.list(self._segments) if disk.exists(self._segments) else []
        except OSError as error:
            self.note(error)
            return
        for name in names:
            if name not in known:
                is_ours = segment_number(name) and disk.is_file(f"{self._segments}/{name}")
                what = "left over; the next open removes it" if is_ours else _NOT_OURS
                self.report.notes.append(f"{self._segments}/{name} is {what}")

    def definition(self, table_id: int, item: Listed) -> Table | None:
        """Return a table as it is defined."""
        try:
            return check_definition(table_id, item.definition)
        except ValueError as error:
            self.note(damaged(f"{self.folder}/MANIFEST: table {table_id}: {error}"))
            return None

    def pages(self, table: Table, item: Listed, segments: dict[int, Segment]) -> list[PageEntry]:
        """Return the pages of a table that are whole; those met before are not read again."""
        entries = [self._page(table, ref, segments) for ref in item.pages]
        return [entry for entry in entries if entry is not None]

    def _page(self, table: Table, ref: PageRef, segments: dict[int, Segment]) -> PageEntry | None:
        place = (ref.segment, ref.offset)
        is_new = place not in self._is_whole
        if not self._is_whole.setdefault(place, False) and not is_new:
            return None
        self.report.page_count += is_new
        needed = {ref.segment} if ref.bitmap is None else {ref.segment, ref.bitmap.segment}
        if not needed <= segments.keys():
            return None  # the damage of the segment was told
        try:
            entry = open_entry(table, ref, segments)
            if is_new:
                entry.page.verify()  # its bitmap was verified when the entry was made
                check_rows(entry)
                entry = open_entry(table, ref, segments)  # without what was decoded of it
        except MALFORMED as error:
            self.note(error)
            return None
        self._is_whole[place] = True
        self._done += ref.length * is_new
        self._progress(self._done, self.report.byte_count)
        return entry

    def records(
        self, listed: ManifestState, *, may_be_cut: bool = False
    ) -> Iterator[tuple[Lsn, bytes]]:
        """Yield the records behind the checkpoint, as far as the log can be read.

        None of a log that is kept in ledgers.
        """
        if listed.identity.log_kind != FILE_LOG:
            return
        try:
            reader = file_log_reader(self.disk, self.folder, listed, may_be_cut=may_be_cut)
            for each in reader.records():
                self.report.log_record_count += 1
                self.report.log_byte_count += len(each[1])
                yield each
        except MALFORMED as error:
            self.note(error)

    def note_log(self) -> None:
        """Note a log that checkpoints would have cut long before."""
        byte_count = self.report.log_byte_count
        if byte_count >= _LOG_BYTES_MANY:
            self.report.notes.append(
                f"the log has {byte_count:,} bytes of records behind the last checkpoint, expected "
                f"less than {_LOG_BYTES_MANY:,}: checkpoints have failed; opening takes all of "
                "them in, and sysmaintenance says then whether checkpoints go on failing, and why"
            )

    def note_disk(self) -> None:
        """Note a disk that is, or was, full: the reserve was given up, or nothing is free."""
        total, free = self.disk.space()
        held = self.disk.size(RESERVE) if self.disk.is_file(RESERVE) else 0
        if free < total // 100 and free < _FREE_BYTES_MIN:
            self.report.notes.append(
                f"the disk is nearly full: {free:,} of {total:,} bytes are free, beside "
                f"{held:,} in {RESERVE}"
            )

    def check_indexes(self, applier: Applier) -> None:
        """Look whether indexes say what their tables have."""
        snapshot = Snapshot(applier.registry, lambda: applier.state, None)
        try:
            for table in applier.state.catalog.tables():
                try:
                    check_indexes(snapshot, table)
                except Error as error:
                    self.note(error)
        finally:
            snapshot.close()

    def check_files(self, listed: ManifestState) -> bool:
        """Look whether the files beside the manifest fit it."""
        disk = self.disk
        try:
            if listed.identity.log_kind == FILE_LOG:
                check_log_files(disk, self.folder, listed)
            check_leftovers(disk, self.folder, listed, is_restoring=disk.exists(RESTORE))
        except MALFORMED as error:
            self.note(error)
            return False
        return True


def _note_content(examined: ExaminedTablespace, state: State) -> None:
    facts = state.catalog.access.facts
    examined.table_count = sum(table.id in state.tables for table in state.catalog.tables())
    examined.role_count = sum(isinstance(fact, Role) for fact in facts)
    examined.right_count = sum(
        len(right_names(fact.rights)) for fact in facts if isinstance(fact, Grant)
    )


class _Doctor:
    def __init__(self, survey: Survey) -> None:
        self.survey = survey

    def run(self) -> None:
        survey = self.survey
        damages = len(survey.report.damages)
        examined = survey.begin_tablespace()
        try:
            listed = survey.manifest()
        except Error as error:
            survey.note(error)
            return
        if listed.identity.log_kind == LEDGER_LOG:
            examined.needs_log_from = Lsn(*listed.checkpoint_lsn)
        segments = survey.segments(listed)
        survey.note_leftovers(listed)
        tables = self._tables(listed.tables, segments, is_now=True)
        pinned = {name: self._tables(pin.tables, segments) for name, pin in listed.pins.items()}
        is_whole = len(survey.report.damages) == damages
        if not survey.check_files(listed):
            return
        records = survey.records(listed)
        try:
            if is_whole:
                applier = state_at_checkpoint(listed, tables, pinned)
                apply_records(applier, records)
                _note_content(examined, applier.state)
                survey.check_indexes(applier)
            for _ in records:
                pass  # what was not applied is read all the same
        except MALFORMED as error:
            survey.note(error)
        survey.note_log()

    def _tables(
        self, listed: Mapping[int, Listed], segments: dict[int, Segment], *, is_now: bool = False
    ) -> dict[int, TableState]:
        """Return tables, as far as they are whole. is_now: they are not what a lease keeps."""
        tables: dict[int, TableState] = {}
        report = self.survey.report
        found = [
            (number, item, self.survey.definition(number, item)) for number, item in listed.items()
        ]
        known = [table for _, _, table in found if table is not None]
        indexes = {index.id for table in known for index in table.indexes}
        for table_id, item, table in found:
            if table is None:
                continue
            entries = self.survey.pages(table, item, segments)
            # Else it is a stage, or what an index is kept in.
            if is_now and table.id == table_id and table_id not in indexes:
                report.table_count += 1
                report.row_count += sum(each.row_count - each.dead_count for each in entries)
            try:
                pages = TablePages.of_entries(table, entries)
            except Error as error:
                self.survey.note(error)
                continue
            tables[table_id] = TableState(table, Memtable(), (), pages)
        return tables
