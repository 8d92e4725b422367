"""Compaction of a tablespace: do one job of storage/compaction.py and publish it.

As a checkpoint it blocks none: it reads immutable pages, writes and syncs one segment and its
directory, appends one manifest record, and then replaces pointers under the monitor. Commits only
touch memtables meanwhile. Snapshots go on reading the old pages, whose files may be unlinked.
"""

from typing import NamedTuple

from bookie.runtime.interfaces import Disk
from herdpy.engine.maintenance.checkpoint import append_edit, finish_listing, remove_unlisted
from herdpy.engine.state.state import TableState
from herdpy.engine.state.tablespace import Tablespace, Unpublished
from herdpy.storage.compaction import (
    Job,
    bytes_out_of,
    job_bytes,
    job_memory_bytes,
    job_out_of,
    plan_job,
    plan_runs,
    sparse_segments,
    write_job,
)
from herdpy.storage.manifest import Compaction, Manifest, in_edit, segments_of
from herdpy.storage.segment import SegmentFolder
from herdpy.storage.table_pages import TablePages

_FREEING_SHARE_MAX = 0.9
"""Of a segment's bytes: if more are written to move out of it, that frees too little."""

_BESIDE_PAGES_BYTES = 16 * 1024
"""At most, of a segment: moving out of it has to free more, and writing one takes that, too.

Its header, what the edit says beside its pages, and the last blocks of both files.
"""


class Planned(NamedTuple):
    """A job on the pages that it was planned for."""

    table_id: int
    pages: TablePages
    job: Job

    @property
    def byte_count(self) -> int:
        """Of the disk that it is going to take, at most: its segment, and its manifest edit."""
        return job_bytes(self.pages, self.job) + _BESIDE_PAGES_BYTES

    @property
    def memory_bytes(self) -> int:
        """Of memory that it takes while it is at work, about."""
        return job_memory_bytes(self.pages, self.job)


class Planner:
    """Chooses the job most worth doing. One thread at a time."""

    def __init__(self) -> None:
        self._idle: dict[int, tuple[TablePages, frozenset[int]]] = {}
        """By table id: pages and sparse segments for which there was nothing to do."""

    def choose(self, tablespace: Tablespace, manifest: Manifest) -> Planned | None:
        """Return the best job over all tables, None when nothing is worth it."""
        best: Planned | None = None
        tables = tablespace.state.tables
        sparse = sparse_segments(manifest.state)
        for table_id in self._idle.keys() - tables.keys():
            del self._idle[table_id]
        for table_id, state in tables.items():
            if state.is_unlisted:
                continue  # its pages are compacted when a checkpoint has listed them
            idle = self._idle.get(table_id)
            if idle is not None and idle[0] is state.pages and idle[1] == sparse:
                continue
            self._idle.pop(table_id, None)  # pages of before, which keep their files on the disk
            job = plan_job(state.pages, sparse)
            if job is None:
                self._idle[table_id] = (state.pages, sparse)
            elif best is None or job.score > best.job.score:
                best = Planned(table_id, state.pages, job)
        return best


def crowded_tables(tablespace: Tablespace) -> list[Planned]:
    """Return the merges without which a checkpoint would add a run too many."""
    found: list[Planned] = []
    for table_id, state in tablespace.state.tables.items():
        if (len(state.memtable) or state.frozen) and not state.is_unlisted:
            job = plan_runs(state.pages)
            if job is not None:
                found.append(Planned(table_id, state.pages, job))
    return found


def plan_to_free(tablespace: Tablespace, manifest: Manifest, room: int) -> Planned | None:
    """Return a job after which, or after some like it, a segment goes that is mostly garbage.

    What is alive of that segment takes no more than `room` bytes elsewhere, and clearly less than
    the segment itself. None: there is no such segment.
    """
    listed, tables = manifest.state, tablespace.state.tables
    kept = {segment for pin in listed.pins.values() for segment in pin.segments}
    costs: dict[int, int] = {}
    owners: dict[int, int] = {}  # of each segment one of the tables with pages in it
    for table_id, item in listed.tables.items():
        state = tables.get(table_id)
        if state is None or state.is_unlisted:  # a stage, or to be listed anew
            kept |= segments_of({table_id: item})
            continue
        for number, byte_count in bytes_out_of(state.pages).items():
            costs[number] = costs.get(number, 0) + byte_count
            owners.setdefault(number, table_id)
    ranks = [
        (cost / listed.segments[number], number)
        for number, cost in costs.items()
        if number in listed.segments
        and number not in kept
        and cost <= room
        and listed.segments[number] - cost >= _BESIDE_PAGES_BYTES
    ]
    share, number = min(ranks, default=(1.0, 0))
    if share > _FREEING_SHARE_MAX:
        return None
    pages = tables[owners[number]].pages
    job = job_out_of(pages, number)
    return None if job is None else Planned(owners[number], pages, job)


def run_job(
    tablespace: Tablespace, manifest: Manifest, disk: Disk, directory: str, planned: Planned
) -> int:
    """Do a job and return the bytes written. No checkpoint and no other job may run meanwhile.

    OSError or an Error: it did not happen, or not visibly; pages stay as they are. Planned after
    finish_listing().
    """
    if manifest.failure is not None:
        raise manifest.failure
    with tablespace.monitor:
        tablespace.enter()
        current = tablespace.state.tables.get(planned.table_id)
        if current is None or current.is_unlisted or current.pages is not planned.pages:
            return 0
        tablespace.applier.rewriting.add(planned.table_id)
    number = manifest.state.next_segment
    folder = SegmentFolder(disk, directory, manifest.new_file_id)
    written = write_job(folder, number, planned.pages, planned.job)
    if written.segments:
        disk.sync_directory(directory)

    def publish() -> None:
        with tablespace.monitor:
            tablespace.enter()
            applier = tablespace.applier
            applier.leases.moved(planned.table_id, planned.pages, written.pages)
            state = applier.state
            current = state.tables.get(planned.table_id)
            if current is not None:  # else dropped meanwhile
                tables = dict(state.tables)
                tables[planned.table_id] = TableState(
                    current.table, current.memtable, current.frozen, written.pages
                )
                applier.state = state._replace(tables=tables)

    before = manifest.state.tables.get(planned.table_id)
    tablespace.unpublished = Unpublished(
        # Only checkpoints and compactions change the pages of a table in the manifest.
        lambda: manifest.state.tables.get(planned.table_id) != before,
        publish,
    )
    segments, ids = in_edit(written.segments)
    append_edit(disk, directory, manifest, Compaction(segments, (written.edit,), ids))
    finish_listing(tablespace, manifest)
    remove_unlisted(disk, directory, manifest.state)
    return written.byte_count
