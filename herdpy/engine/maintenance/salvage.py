"""Salvage: a dump of what is whole in a damaged database, and a list of what is not.

The state is that of the manifest's last valid edit, with the log behind it as far as it can be
read. Pages that are damaged, or whose bitmap is, are left out: which of their rows live is not
known. So every row that is saved was committed, and no row is saved that was deleted by then.
"""

from collections.abc import Iterator

import msgspec

from bookie.runtime.interfaces import Disk
from herdpy.engine.maintenance.checkpoint import without_leases
from herdpy.engine.maintenance.directory import MANIFEST
from herdpy.engine.maintenance.doctor import MALFORMED, Survey
from herdpy.engine.maintenance.dump import Dump
from herdpy.engine.maintenance.recovery import apply_records, state_at_checkpoint
from herdpy.engine.state.applier import Applier
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.state.snapshots import Snapshot
from herdpy.engine.state.state import TableState
from herdpy.errors import Error
from herdpy.storage.backup_file import Progress
from herdpy.storage.manifest import Manifest, ManifestState, without_pins
from herdpy.storage.segment import Segment
from herdpy.storage.table_pages import TablePages


class Salvage:
    """A dump on its way out. One thread at a time; made by begin()."""

    byte_count = 0
    """How long it will be is not known."""

    def __init__(self, survey: Survey, applier: Applier, lost: dict[str, int]) -> None:
        self._survey = survey
        self._dump = Dump(Snapshot(applier.registry, lambda: applier.state, None))
        self.lost = lost
        """Rows in pages that could not be read, by table; they may have been changed since.

        Among them those of stages that were published since, or given up.
        """

    @classmethod
    def begin(cls, disk: Disk, where: str, progress: Progress | None = None) -> "Salvage":
        """Read all of a directory; the caller sees to it that no process has it open.

        CorruptionError: not one edit of the manifest is valid. OSError: it cannot be read at all.
        """
        survey = Survey(disk, where, progress)
        survey.check_format()
        listed, damage = Manifest.read_valid(survey.disk, MANIFEST)
        if damage is not None:
            survey.note(damage)
        listed = without_pins(listed)
        listed = msgspec.structs.replace(listed, engine=without_leases(listed.engine))
        segments = survey.segments(listed)
        survey.check_files(listed)
        lost_of: dict[int, int] = {}
        tables = _tables(survey, listed, segments, lost_of)
        try:
            applier = state_at_checkpoint(listed, tables)
        except MALFORMED as error:  # of the engine's part: roles, and what was open
            survey.note(error)
            applier = state_at_checkpoint(msgspec.structs.replace(listed, engine=b""), tables)
        try:
            apply_records(applier, survey.records(listed, may_be_cut=True))
        except MALFORMED as error:  # what was applied before it stays
            survey.note(error)
        lost: dict[str, int] = {}
        for table_id, count in lost_of.items():
            table = tables[table_id].table
            is_stage = table.id != table_id
            if not (is_stage and table_id in applier.state.tables):
                lost[table.name] = lost.get(table.name, 0) + count
        return cls(survey, applier, lost)

    @property
    def damages(self) -> list[str]:
        return self._survey.report.damages

    @property
    def row_counts(self) -> dict[str, int]:
        """Rows saved by table, once pieces() is exhausted."""
        return self._dump.row_counts

    def pieces(self) -> Iterator[bytes]:
        """Yield UTF-8 text, a statement at a time, behind a comment that names what is missing."""
        for text in self.damages:
            shown = " ".join(text.splitlines())
            yield f"-- not whole: {shown}\n".encode()
        yield from self._dump.pieces()

    def close(self) -> None:
        self._dump.close()


def _tables(
    survey: Survey, listed: ManifestState, segments: dict[int, Segment], lost_of: dict[int, int]
) -> dict[int, TableState]:
    """Return tables and stages of their whole pages; count in lost_of the rows of the others."""
    tables: dict[int, TableState] = {}
    for table_id, item in listed.tables.items():
        table = survey.definition(table_id, item)
        if table is None:
            continue
        entries = survey.pages(table, item, segments)
        try:
            pages = TablePages.of_entries(table, entries)
        except Error as error:
            survey.note(error)
            entries, pages = [], TablePages(table)
        tables[table_id] = TableState(table, Memtable(), (), pages)
        whole = {entry.place for entry in entries}
        count = sum(
            ref.row_count - (0 if ref.bitmap is None else ref.bitmap.dead_count)
            for ref in item.pages
            if (ref.segment, ref.offset) not in whole
        )
        if count:
            lost_of[table_id] = count
    return tables
