"""Salvage: a dump of what is whole in a damaged database, and a list of what is not.

The state is that of the manifest's last valid edit, with the log behind it as far as it can be
read. Pages that are damaged, or whose bitmap is, are left out: which of their rows live is not
known. Nor is it known of rows with keys between those of a damaged page of a stage, where the log
publishes it and it may change or delete them. So every row that is saved was committed, and no row
is saved that was deleted by then.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from bookie.runtime.interfaces import Disk
from herdpy.engine.maintenance.checkpoint import without_leases
from herdpy.engine.maintenance.directory import tablespace_folders
from herdpy.engine.maintenance.doctor import MALFORMED, Survey
from herdpy.engine.maintenance.dump import Dump
from herdpy.engine.maintenance.recovery import apply_records, state_at_checkpoint
from herdpy.engine.sequences.values import last_value
from herdpy.engine.state.applier import Applier
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.state.snapshots import Snapshot
from herdpy.engine.state.staged import Operation, Stage, Staged
from herdpy.engine.state.state import TableState
from herdpy.errors import CorruptionError, Error, OperationalError
from herdpy.log.record import Commit, CommitStaging, Record, decode
from herdpy.model.keys import decode_key
from herdpy.model.lsn import Lsn
from herdpy.model.schema import Table
from herdpy.model.types import Key
from herdpy.storage.backup_file import Progress
from herdpy.storage.manifest import Manifest, ManifestState, PageRef, without_pins
from herdpy.storage.segment import Segment
from herdpy.storage.table_pages import TablePages
from herdpy.storage.tablespace_list import DEFAULT, TablespaceEntry, TablespaceList, read_list

_FOLDERS_SHOWN = 10

Span = tuple[Key, Key]
"""The first and the last key of a page; () is open."""


class _Lost(NamedTuple):
    """Of a table's, or a stage's, pages that cannot be read."""

    row_count: int
    spans: list[Span]


class Salvage:
    """A dump on its way out. One thread at a time; made by begin()."""

    byte_count = 0
    """How long it will be is not known."""

    def __init__(self, survey: Survey, applier: Applier, lost: dict[str, int]) -> None:
        self._survey = survey
        snapshot = Snapshot(applier.registry, lambda: applier.state, None)
        self._dump = Dump(snapshot, partial(last_value, applier))
        self.lost = lost
        """Rows in pages that could not be read, by table; they may have been changed since.

        Among them those of stages that were published since, or given up, and the rows that such a
        page of a stage may have changed.
        """

    @classmethod
    def begin(
        cls,
        disk: Disk,
        where: str,
        progress: Progress | None = None,
        tablespace: str | None = None,
    ) -> "Salvage":
        """Read all of a tablespace; the caller sees to it that no process has the directory open.

        `tablespace` is its name, or its folder, which is told by no list. CorruptionError: not one
        edit of the manifest is valid, or the list of tablespaces is damaged that has its name.
        3D000: there is none. OSError: it cannot be read at all.
        """
        entry = None
        if tablespace is not None and tablespace != DEFAULT:
            entry = _entry_of(disk, tablespace)
        survey = Survey(disk, where, progress, entry)
        survey.check_format()
        listed, damage = Manifest.read_valid(survey.disk, f"{survey.folder}/MANIFEST")
        if damage is not None:
            survey.note(damage)
        listed = without_pins(listed)
        listed = msgspec.structs.replace(listed, engine=without_leases(listed.engine))
        segments = survey.segments(listed)
        survey.check_files(listed)
        lost_of: dict[int, _Lost] = {}
        tables = _tables(survey, listed, segments, lost_of)
        try:
            applier = state_at_checkpoint(listed, tables)
        except MALFORMED as error:  # of the engine's part: roles, and what was open
            survey.note(error)
            applier = state_at_checkpoint(msgspec.structs.replace(listed, engine=b""), tables)
        lost: dict[str, int] = {}
        try:
            records = survey.records(listed, may_be_cut=True)
            apply_records(applier, _leaving_out(applier, records, lost_of, lost))
        except MALFORMED as error:  # what was applied before it stays
            survey.note(error)
        for table_id, found in lost_of.items():
            name = tables[table_id].table.name
            lost[name] = lost.get(name, 0) + found.row_count
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


def _entry_of(disk: Disk, name: str) -> TablespaceEntry:
    """Return a tablespace by its name in the list, or by its folder."""
    folders = tablespace_folders(disk)
    listed: TablespaceList | None = None
    problem = OperationalError(f'tablespace "{name[:63]}" does not exist', sqlstate="3D000")
    try:
        listed = read_list(disk)
    except CorruptionError as error:
        problem = error
    found = None if listed is None else listed.find(name)
    if found is None and name in folders:
        return TablespaceEntry.of_folder(name)
    if found is None:
        if folders:
            more = ", …" if len(folders) > _FOLDERS_SHOWN else ""
            shown = ", ".join(folders[:_FOLDERS_SHOWN])
            problem.hint = f"Name it by its folder, --tablespace FOLDER; there are {shown}{more}"
        raise problem
    return found


def _tables(
    survey: Survey, listed: ManifestState, segments: dict[int, Segment], lost_of: dict[int, _Lost]
) -> dict[int, TableState]:
    """Return tables and stages of their whole pages; note in lost_of what the others have."""
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
        gone = [ref for ref in item.pages if (ref.segment, ref.offset) not in whole]
        if gone:
            dead_counts = (ref.bitmap.dead_count for ref in gone if ref.bitmap is not None)
            count = sum(ref.row_count for ref in gone) - sum(dead_counts)
            lost_of[table_id] = _Lost(count, [_span(table, ref) for ref in gone])
    return tables


def _span(table: Table, ref: PageRef) -> Span:
    try:
        return decode_key(ref.low_key, table.key_kinds), decode_key(ref.high_key, table.key_kinds)
    except ValueError:
        return (), ()


def _leaving_out(
    applier: Applier,
    records: Iterable[tuple[Lsn, bytes]],
    lost_of: Mapping[int, _Lost],
    lost: dict[str, int],
) -> Iterator[tuple[Lsn, bytes]]:
    """Yield records to be applied, each before the next one is asked for.

    Behind one that publishes a stage with lost pages, rows that those may have changed are left
    out, and counted in `lost` by table.
    """
    for lsn, data in records:
        staged = applier.state.staged
        yield lsn, data
        if lost_of and staged.stages:
            for number, stage in _published(staged, decode(data)):
                table = stage.table
                spans = _doubtful(stage, lost_of.get(number), lost_of.get(table.id))
                if spans and table.id in applier.state.tables:  # else it dropped the table, too
                    count = _leave_out(applier, table, spans)
                    lost[table.name] = lost.get(table.name, 0) + count


def _published(staged: Staged, record: Record) -> list[tuple[int, Stage]]:
    """Return the stages, by number, that a record publishes."""
    if isinstance(record, Commit):
        return [each for each in staged.stages.items() if each[1].tx == record.tx]
    if isinstance(record, CommitStaging) and staged.can_commit(record):
        return [(number, staged.stages[number]) for number in record.stages]
    return []


def _doubtful(stage: Stage, own: _Lost | None, of_table: _Lost | None) -> list[Span]:
    """Return between which keys a published stage leaves unknown what its table has."""
    found: list[Span] = []
    if own is not None and not stage.operation.refuses_repeats:
        found += own.spans
    if of_table is not None and stage.operation is Operation.IGNORE:
        found += of_table.spans  # a row of the stage counts only where the table had none
    return found


def _leave_out(applier: Applier, table: Table, spans: Sequence[Span]) -> int:
    """Take the rows between these keys out of a table; return how many there were."""
    state = applier.state
    snapshot = Snapshot(applier.registry, lambda: state, None)
    try:
        source, key_of = snapshot.source(table), table.key_of
        keys = dict.fromkeys(key_of(row) for low, high in spans for row in source.range(low, high))
    finally:
        snapshot.close()
    state.tables[table.id].memtable.put_all(
        keys.items(), state.position, 0, lambda: applier.registry.horizon(state.position)
    )
    return len(keys)
