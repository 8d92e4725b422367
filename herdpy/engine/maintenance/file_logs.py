"""File logs of a tablespace: opened, read and checked by what the manifest keeps for them.

The only module of the engine that knows that a log may be files; the others have a CommitLog, made
by a source like FILE_LOGS.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from bookie.runtime.interfaces import Disk
from herdpy.config import Config
from herdpy.engine.maintenance.leftovers import MISFIT_HINT
from herdpy.errors import CorruptionError, DiskFullError, damaged, expecting_file
from herdpy.log.file_log import FileLog
from herdpy.log.file_replay import LogReader, Place, find_unlisted_frame
from herdpy.log.interfaces import CommitLog
from herdpy.log.log_files import LogFile, numbered_files
from herdpy.log.syncer import Measure, SyncThreads
from herdpy.model.lsn import Lsn
from herdpy.storage.manifest import (
    FILE_LOG,
    LogDurable,
    LogFileBegun,
    LogFilesDropped,
    Manifest,
    ManifestState,
)


class LogSite:
    """What the log of a tablespace is opened with, once or again; implements LogFileListing.

    Without threads commits sync in the caller.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        manifest: Manifest,
        config: Config,
        threads: SyncThreads | None,
        measure: Measure,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.manifest = manifest
        self.config = config
        self.threads = threads
        self.measure = measure
        self._stop_former: Callable[[], object] | None = None

    def take_over(self, stop: Callable[[], object]) -> None:
        former, self._stop_former = self._stop_former, stop
        if former is not None:
            former()

    def stop(self) -> None:
        """Have the log that was opened last begin no file any more; repeatable.

        Before the manifest is read again: what it lists while it is read would be in none.
        """
        if self._stop_former is not None:
            self._stop_former()

    def new_file_id(self) -> bytes:
        return self.manifest.new_file_id()

    def log_file_begun(
        self, number: int, first_sequence: int, byte_count: int, file_id: bytes
    ) -> None:
        self.manifest.append(LogFileBegun(number, first_sequence, byte_count, file_id))

    def log_files_dropped(self, numbers: Sequence[int]) -> None:
        self.manifest.append(LogFilesDropped(tuple(numbers)))

    def log_ended(self, sequence: int) -> None:
        manifest = self.manifest
        is_usable = manifest.failure is None and not manifest.is_closed
        if is_usable and sequence > _known_durable(manifest.state):
            with suppress(DiskFullError):  # a help for the next open, not a promise
                manifest.append(LogDurable(sequence))

    def harden(self) -> None:
        self.manifest.harden()


class LogSource(NamedTuple):
    """How the logs of tablespaces are kept, and where they come from."""

    kind: str
    """As a manifest names it."""
    open: Callable[[LogSite], CommitLog]
    """Opens a tablespace's log, to be replayed and then appended to; its former writer is stopped.

    CorruptionError: what the manifest says cannot be true; nothing was changed.
    """
    leads: bool = True
    """What is opened is written to; False: it follows, until take_over()."""


def open_file_log(site: LogSite) -> CommitLog:
    """Return the log that is kept in files below the tablespace's directory."""
    listed, config = site.manifest.state, site.config
    check_log_files(site.disk, site.directory, listed)
    return FileLog.open(
        site.disk,
        f"{site.directory}/log",
        log_id=listed.log_id,
        files=listed.listed_log_files,
        known_durable_sequence=_known_durable(listed),
        listing=site,
        first_file_bytes=config.log_file_bytes_first,
        max_file_bytes=config.log_file_bytes_max,
        hint=listed.replay_hint,
        threads=site.threads,
        measure=site.measure,
    )


FILE_LOGS = LogSource(FILE_LOG, open_file_log)


def file_log_reader(
    disk: Disk, directory: str, listed: ManifestState, *, may_be_cut: bool = False
) -> LogReader:
    """Return a reader of what lies behind the checkpoint; check_log_files() comes before it."""
    return LogReader(
        disk,
        [LogFile(f"{directory}/log", *each) for each in listed.listed_log_files],
        log_id=listed.log_id,
        after=Lsn(*listed.checkpoint_lsn),
        known_durable_sequence=_known_durable(listed),
        start=Place.of_hint(listed.replay_hint),
        may_be_cut=may_be_cut,
    )


def log_file_paths(disk: Disk, directory: str) -> list[str]:
    """Return the path of every log file in a tablespace's directory, listed or not."""
    return [path for _, path in numbered_files(disk, f"{directory}/log")]


def _known_durable(listed: ManifestState) -> int:
    return max(listed.durable_sequence, listed.checkpoint_lsn[1])


def check_log_files(disk: Disk, directory: str, listed: ManifestState) -> None:
    """Raise CorruptionError for what only damage, or an older manifest, explains; reads only.

    A file that was emptied holds no frame that could say so itself; a file is listed before its
    first frame is written (leftovers.py).
    """
    for number, expected in listed.log_bytes.items():
        path = f"{directory}/log/{number:08d}.log"
        with expecting_file(f"log file {path}, which the manifest lists,"):
            found = disk.size(path)
        if found < expected:
            raise damaged(
                f"log file {path} was begun with {expected} bytes and ends at offset {found}"
            )
    newest = max((number for number, _ in listed.log_files), default=0)
    unlisted = find_unlisted_frame(
        disk, f"{directory}/log", newest, listed.log_id, listed.checkpoint_lsn[1]
    )
    if unlisted is not None:
        path, offset, sequence = unlisted
        raise CorruptionError(
            f"{directory}/MANIFEST lists no log file above number {newest}, but {path} holds the "
            f"frame with sequence {sequence} at offset {offset}: the manifest is cut, or older "
            "than the log",
            hint=MISFIT_HINT,
        )
