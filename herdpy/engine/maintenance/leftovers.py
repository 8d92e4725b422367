"""Leftovers: files in a tablespace's folders that its manifest does not list.

A crash leaves some, and they are removed or reused once the log has been replayed. Others cannot
come of a crash: they prove that the manifest is cut, or an older one than the files beside it, and
then removing them would destroy what the right manifest needs. What follows from the order of
effects (a log file is listed before its first frame; a segment is written, then listed):

    what lies there unlisted                        a crash explains it      otherwise
    log file or spare above the newest listed one   without a frame of its   damage: it was listed
                                                    own number               before it was written
    log file or spare below the newest listed one   dropped, not yet gone
    any log file that begins with a frame           a restore                damage, when the
                                                                             manifest lists no log
                                                                             and no page
    segment below next_segment                      dropped, not yet gone
    segment from next_segment on                    a checkpoint or          damage, when the
                                                    compaction that was      manifest lists no log
                                                    not listed; or a         and no page: nothing
                                                    restore                  was there to be written
    anything that is named otherwise                not ours: left alone

Of a log that is kept in ledgers nothing is listed, and a segment of the first checkpoint may lie
beside an empty manifest: a crash explains it, and the log, on other machines, has all that it has.

Every other loss of edits shows as a listed file that is missing (it was dropped behind them), or
loses nothing: the log has it all.
"""

from bookie.runtime.interfaces import Disk
from herdpy.errors import CorruptionError
from herdpy.log.frame import MAGIC
from herdpy.log.log_files import numbered_files
from herdpy.storage.manifest import FILE_LOG, ManifestState
from herdpy.storage.segment import segment_number

MISFIT_HINT = (
    "Put back the newest copy of the manifest that fits these files, or restore a backup into a "
    "new directory; `herdpy dump --salvage` saves what this manifest describes."
)


def check_leftovers(
    disk: Disk, directory: str, listed: ManifestState, *, is_restoring: bool = False
) -> None:
    """Raise CorruptionError for files that only a damaged or older manifest explains.

    Reads only; file_logs.py looks at the log's files beside others.
    `is_restoring`: restoring a backup over this database was interrupted and may have left
    segments, and not yet removed the log.
    """
    if listed.log_files or listed.segments or is_restoring:
        return
    if listed.identity.log_kind != FILE_LOG:
        return
    folder = f"{directory}/segments"
    paths = [
        f"{folder}/{name}"
        for name in segment_files(disk, folder)
        if segment_number(name) >= listed.next_segment
    ]
    logs = numbered_files(disk, f"{directory}/log")
    paths += [path for _, path in logs if _begins_with_frame(disk, path)]
    if paths:
        raise CorruptionError(
            f"{directory}/MANIFEST says that nothing was ever written, but {paths[0]} holds data: "
            "the manifest is cut, older, or of another database",
            hint=MISFIT_HINT,
        )


def _begins_with_frame(disk: Disk, path: str) -> bool:
    handle = disk.open(path)
    try:
        return handle.read_at(0, len(MAGIC)) == MAGIC
    finally:
        handle.close()


def segment_files(disk: Disk, directory: str) -> list[str]:
    """Return the names of the segments in a directory; other entries are not ours."""
    names = disk.list(directory) if disk.exists(directory) else []
    return [n for n in names if segment_number(n) and disk.is_file(f"{directory}/{n}")]
