"""Replica: one tablespace on one disk, with the work that keeps its log, memory and pages small.

A copy of a tablespace is manifest, log and State. Every copy checkpoints, compacts and gives up old
versions; the one that leads also writes what the database decides by itself: ends of leases,
stagings and outcomes, rollbacks that found no room (tasks()). reopen() gives the tablespace its log
anew, while sessions go on.
"""

import gc
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING
from weakref import ref

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Clock, Disk, Rng
from herdpy.config import Config
from herdpy.engine.maintenance.checkpoint import (
    finish_listing,
    memory_to_write,
    run_checkpoint,
)
from herdpy.engine.maintenance.compaction import (
    Planned,
    Planner,
    crowded_tables,
    plan_to_free,
    run_job,
)
from herdpy.engine.maintenance.directory import make_folders
from herdpy.engine.maintenance.file_logs import LogSite, LogSource
from herdpy.engine.maintenance.recovery import (
    follow,
    lead,
    restore,
    resume,
    runs_of,
    take_over,
)
from herdpy.engine.maintenance.tasks import MaintenanceTask
from herdpy.engine.maintenance.timed import Timed
from herdpy.engine.state.disk_space import DiskSpace, SharedReserve
from herdpy.engine.state.error_messages import background_error, no_memory_error
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.memory import TablespaceMemory
from herdpy.engine.state.page_estimate import checkpoint_bytes
from herdpy.engine.state.snapshots import SnapshotRegistry
from herdpy.engine.state.staged import NOTHING
from herdpy.engine.state.tablespace import Tablespace
from herdpy.errors import CorruptionError, DiskFullError, Error, OperationalError, loading
from herdpy.log.interfaces import CommitLog
from herdpy.log.record import EndStaging, Expire
from herdpy.log.syncer import SyncThreads
from herdpy.model.durability import Durability
from herdpy.model.lsn import Lsn
from herdpy.storage.manifest import LEDGER_LOG, Manifest

if TYPE_CHECKING:
    from herdpy.engine.maintenance.backup import Backup

TICK_S = 0.5
"""How long background work may wait for its next turn."""
_CHECKPOINT_WAIT_S_MAX = 16.0
_COLLECT_S = 5.0
_UNWRITTEN_BYTES = 1024 * 1024
"""Of records that came in a tick."""
_LOOK_BYTES = 256 * 1024
_FOLLOWER_PART = 16  # of the memtables' share is a large part for one of several that follow
_LOOK_PART = 1 / 64  # of the memtables' share, at the most


_LOOK_S = 0.05
"""How often who waits for a turn looks whether it is cancelled."""
_LOG_SHARE = 64
"""Of checkpoint_log_bytes: what the log grows by at least for a checkpoint that time makes due."""
_ENTRIES_MAX = 16_384
"""Of a ledger that a copy reads when it is opened, be they ticks alone: hours of them."""


class Replica:
    """Any thread may call; closing_steps() end it. `wake` rings for the tasks, and never waits."""

    def __init__(
        self,
        folder: str,
        name: str,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        config: Config,
        threads: SyncThreads | None,
        wake: Callable[[], object],
        logs: LogSource,
        where: str,
        memory: TablespaceMemory,
        reserve: SharedReserve | None = None,
    ) -> None:
        """Load the manifest of the folder; errors as Manifest.load().

        Without threads commits sync in the caller. `name` is the tablespace's, `where` is how
        messages name it. reserve: the directory's; None: it is the first.
        """
        # Constant after open().
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._config = config
        self._wake = wake
        self._logs = logs
        self._where = where
        self._memory = memory
        self._is_threaded = threads is not None
        self._name = name
        self._reserve = reserve
        self._path = f"{folder}/MANIFEST"
        self._segments = f"{folder}/segments"
        self.log_appends = Timed(clock)
        self.checkpoints = Timed(clock)
        self._site: LogSite
        self.tablespace: Tablespace
        self.space: DiskSpace
        """The tablespace's, whose disk is looked at here."""
        # Held by the thread that checkpoints, compacts or reopens.
        self._maintenance = new_mutex()
        self._retired: dict[int, int] = {}
        """Segments that no checkpoint lists any more and a reader may keep, with their lengths."""
        self._backups: list[ref[Backup]] = []  # those that may be open
        self._checkpoint_bytes = 0  # of the log, at the last checkpoint
        self._opened_s = clock.monotonic()
        self._planner = Planner()
        self._compaction_debt = 0.0  # bytes written beyond the budget so far
        self._budget_s = clock.monotonic()  # when the debt was last reduced
        self._idle_bytes = 0  # of the log, at the last tick
        self._idle_since_s = clock.monotonic()  # when the log had grown to that
        self._collect_again_s = clock.monotonic()  # not before, on a full disk
        self._looked_bytes = 0  # of the log, when the memtables were last added up
        self._look_bytes = min(
            _LOOK_BYTES,
            config.checkpoint_log_bytes // 4,
            int(config.memtable_bytes_max * _LOOK_PART),
        )
        self.checkpoint_error: Error | None = None
        """Why the last checkpoint failed."""
        self._checkpoint_wait_s = 0.0
        self._checkpoint_again_s = clock.monotonic()  # not before, after a failure
        self.is_full = False
        """Nothing leaves the memory, because checkpoints fail; check_room() says so."""
        self.spilled_bytes: Callable[[], int] = int
        """Returns what the tablespace's queries have spilled; set by its owner."""
        self.disk_bytes_max: int | None = None
        """What disk_bytes() may be, as the tablespace's limit says: limit_disk()."""
        self.is_over_limit = False
        """It has more than these, or would have: a statement was refused; check_room() looks."""
        self._limit_looked_bytes = 0  # of the log: up to there no write needs to look at the limit
        self._has_compaction = False  # more than the budget had room for, when it was looked at
        # Last: what comes behind it could be interrupted, and no caller has the replica to close.
        manifest = Manifest.load(disk, self._path, rng, logs.kind)
        try:
            self._site = LogSite(disk, folder, manifest, config, threads, self.log_appends.measure)
        except BaseException:
            manifest.close()
            raise

    @property
    def manifest(self) -> Manifest:
        return self._site.manifest

    @property
    def is_busy(self) -> bool:
        """There is work that waits for time, for room, or for another try."""
        space = self.space
        return bool(self._has_compaction or space.is_full or space.is_low or self.checkpoint_error)

    def open(self, *, is_restoring: bool = False) -> None:
        """Recover the tablespace, and lead it if its source says so; start() comes next.

        Errors as recovery.restore().
        """
        site, config = self._site, self._config
        log, applier = restore(
            site, self._logs, SnapshotRegistry(), self._clock, is_restoring=is_restoring
        )
        if make_folders(self._disk, site.directory):  # nothing was changed before all had been read
            self._disk.sync_directory(site.directory)
        memory = self._memory
        self.space = space = DiskSpace(
            self._disk,
            site.directory,
            self._where,
            self._clock,
            log,
            lambda enough: checkpoint_bytes(self.tablespace.applier, enough),
            reserve_bytes=config.disk_reserve_bytes,
            shared=self._reserve,
        )
        self.tablespace = Tablespace(self._name, log, self._clock, applier, space, memory)
        self.tablespace.registry.caches = memory.caches
        memory.memtables.measure = self.tablespace.memtable_bytes
        memory.versions.measure = self.tablespace.version_bytes
        space.open()
        if self._logs.leads:
            lead(self.tablespace)
        else:
            self.tablespace.follow()

    def follow(self, records: Sequence[tuple[Lsn, bytes]]) -> None:
        """Take in what the log has next, and write a checkpoint when memory has too much.

        A commit of staged rows waits for a checkpoint or compaction that is under way. One thread
        follows, and takes over. Errors as recovery.follow(), and of the checkpoint where memory
        would have twice too much without it; 57P03: it is being closed. The copy is opened again.
        """
        tablespace = self.tablespace
        failure = tablespace.failure or self.manifest.failure
        if failure is not None:
            raise failure
        follow(tablespace, self, self._memory, records, tablespace.check_open)
        working_bytes = tablespace.state.staged.working_bytes
        is_staged = working_bytes > self._config.memtable_bytes_max // 4
        self.after_write()
        if self._must_make_room() or is_staged:
            try:
                self.run_checkpoint()
            except DiskFullError:
                if tablespace.room.is_full or is_staged:
                    raise

    def take_over(self, log: CommitLog, epoch: int, end: Lsn | None = None) -> None:
        """Lead behind a log that was claimed under this epoch; what is new in it is taken in first.

        end: up to where the log has to go at least; None: that is not known.
        On any error the copy is opened again.
        """
        tablespace = self.tablespace
        for run in runs_of(log.replay(tablespace.state.lsn)):
            self.follow(run)
        if end is not None and tablespace.state.lsn < end:
            raise CorruptionError(
                f"{self._where}: the log ends at {tablespace.state.lsn}, and a leader has handed "
                f"it over with its end at {end}",
                hint="look whether the ledgers are the tablespace's, and all of them are there",
            )
        followed_bytes = tablespace.log.bytes_appended
        self.space.spares = log
        take_over(tablespace, log, epoch)
        # What was followed since the last checkpoint is behind it still.
        self._checkpoint_bytes -= followed_bytes
        self._looked_bytes = self._idle_bytes = self._limit_looked_bytes = 0

    def reopen(self) -> None:
        """Open manifest and log again and go on behind the log's end, with all sessions.

        After a failure of the disk; what becomes of commits and transactions: Tablespace.resume().
        On any error the tablespace stays held, and reopen() may be called again.
        """
        tablespace, site = self.tablespace, self._site
        if not self._logs.leads:
            raise OperationalError(
                f"{self._where}: a copy of a cluster's tablespace is opened anew by its node",
                sqlstate="55000",
            )
        with self._maintenance:
            tablespace.hold()
            former_log, former_manifest = tablespace.log, site.manifest
            site.stop()
            site.manifest = Manifest.load(self._disk, self._path, self._rng, self._logs.kind)
            former_manifest.close()
            found = restore(site, self._logs, tablespace.registry, self._clock)
            try:
                resume(tablespace, found)
            finally:
                if tablespace.log is not found.log:
                    found.applier.leases.let_go()
                    found.log.close()
            former_log.close()  # it was stopped: lets go of threads and files
            self._checkpoint_bytes = self._looked_bytes = self._idle_bytes = 0
            self._limit_looked_bytes = 0
            self.checkpoint_error = None
            self.is_full = False

    def resize(self, config: Config) -> None:
        """Have other limits from now on; any thread."""
        self._config = config
        self.tablespace.room.share_bytes = config.memtable_bytes_max
        self._look()

    def limit_disk(self, bytes_max: int | None) -> None:
        """Have another limit of disk_bytes() from now on; None: none. Any thread."""
        self.disk_bytes_max = bytes_max
        self._limit_looked_bytes = 0
        self.tablespace.check_limit = None if bytes_max is None else self._check_write

    def closing_steps(self) -> list[Callable[[], object]]:
        """Return the steps that make all durable and let go of threads and files; repeatable."""
        log = [self.tablespace.log.close] if "tablespace" in vars(self) else []
        space = [self.space.close] if "space" in vars(self) else []
        return [*log, self.manifest.close, *space]

    def let_go_of_pages(self) -> None:
        """Forget the rows, behind closing_steps(); results that are being read keep theirs."""
        applier = self.tablespace.applier
        tables = applier.state.tables
        applier.state = applier.state._replace(tables={}, staged=NOTHING)
        for table_state in tables.values():
            for memtable in table_state.memtables:
                memtable.overlay = None  # has the pages and the memtable, which would keep it
        self._planner = Planner()

    # --- writers ---------------------------------------------------------------------------------

    def after_write(self) -> bool:
        """Wake the maintenance thread: a checkpoint is due, old versions take much memory.

        True: memtables have more than their share, and next_write_s() says when to go on.
        """
        appended = self.tablespace.log.bytes_appended
        if appended - self._looked_bytes >= self._look_bytes or appended < self._looked_bytes:
            self._looked_bytes = appended  # adding up the memtables costs something per table
            self._look()
            self.space.look()
            old_bytes = self.tablespace.version_bytes()
            if old_bytes > self._config.version_bytes_max or self._is_checkpoint_due():
                self._wake()
        elif self.space.is_full:
            self._wake()  # what it has freed is wanted
        return self.tablespace.room.is_slow and self._is_threaded

    def next_write_s(self, byte_count: int) -> float:
        """Return when a session that has written so much may write again, of Clock.monotonic()."""
        return self.tablespace.room.until(byte_count, self._clock.monotonic())

    def make_room(self) -> None:
        """Have a checkpoint make room for a write that waits for it; without threads, write it.

        53200: checkpoints fail.
        """
        if self._is_threaded:
            self._wake()
        else:
            with suppress(Error):
                self.run_checkpoint()
        error = self.checkpoint_error  # once: the next checkpoint may be well meanwhile
        if error is not None:
            raise no_memory_error(error)

    def _look(self) -> None:
        """See how much memory the memtables take."""
        tablespace = self.tablespace
        with tablespace.monitor:
            tablespace.measure_memtables()
        limit = self.disk_bytes_max
        self.is_over_limit = limit is not None and self.disk_bytes() > limit
        self._limit_looked_bytes = 0
        self.is_full = self.checkpoint_error is not None and tablespace.room.is_full

    def check_room(self, *, frees_space: bool = False) -> None:
        """Raise 53200 when checkpoints fail and what waits for one is twice too much.

        53100 when the disk is full, but for a write that frees space.
        """
        if not frees_space:
            self.space.check_room()
            if self.is_over_limit:
                self._check_limit()
        error = self.checkpoint_error
        if self.is_full and error is not None:
            raise no_memory_error(error)

    def disk_bytes(self) -> int:
        """Return the bytes of pages, and of the log since the last checkpoint. Any thread.

        With pages that were deleted, whose files REPEATABLE READ transactions and backups keep, and
        what queries have spilled, where the tablespace has a limit. Not the length of log files,
        which are made before there is something in them, and kept for what comes.
        """
        appended = self.tablespace.log.bytes_appended
        log_bytes = max(appended - self._checkpoint_bytes, 0)
        pages_bytes = sum(self.manifest.state.segments.values()) + self._retired_bytes()
        return pages_bytes + log_bytes + self.spilled_bytes()

    def _retired_bytes(self) -> int:
        retired = self._retired
        if not retired:
            return 0
        kept = self._kept_segments()
        return sum(byte_count for number, byte_count in retired.items() if number in kept)

    def _kept_segments(self) -> set[int]:
        """Return the segments that are kept by readers that last longer than a statement."""
        backups = [backup for each in self._backups if (backup := each()) is not None]
        return set().union(
            *(holder.segments() for holder in self.tablespace.registry.holders()),
            *(backup.segments() for backup in backups),
        )

    def _note_retired(self, before: Mapping[int, int]) -> None:
        """Note which of the segments that were listed before are listed no more."""
        listed = self.manifest.state.segments
        gone = {number: size for number, size in before.items() if number not in listed}
        if not gone and not self._retired:
            return
        kept = self._kept_segments()
        self._backups = [each for each in self._backups if each() is not None]
        retired = {**self._retired, **gone}
        self._retired = {number: size for number, size in retired.items() if number in kept}

    def _check_write(self, byte_count: int) -> None:
        """As _check_limit(), for a write of so many bytes that the log gets next.

        Adding up costs something per segment: it is done again when a quarter of what was left is
        in the log.
        """
        if self.tablespace.log.bytes_appended + byte_count > self._limit_looked_bytes:
            self._check_limit(byte_count)

    def _check_limit(self, byte_count: int = 0) -> None:
        """Raise 53100 if the tablespace has more on the disk than it may, with so many bytes."""
        limit, used = self.disk_bytes_max, self.disk_bytes()
        left = 0 if limit is None else limit - used - byte_count
        self.is_over_limit = left < 0
        self._limit_looked_bytes = self.tablespace.log.bytes_appended + max(left, 0) // 4
        if self.is_over_limit:
            self._wake()  # a checkpoint lets go of the log, a compaction of what was deleted
            more = f" and {byte_count:,} more to write" if byte_count else ""
            raise DiskFullError(
                f"tablespace {self._name} has {used:,} bytes on the disk{more}, more than the "
                f"{limit:,} that it may; the statement had no effect",
                hint="DELETE, TRUNCATE or DROP what is not needed: these still work; or raise the "
                "limit: ALTER TABLESPACE … SET (disk_bytes_max = …).",
            )

    @contextmanager
    def at_rest(self) -> Generator[None, None, None]:
        """Have files be let go of in the block: no checkpoint or compaction has them meanwhile."""
        with self._maintenance:
            yield

    @contextmanager
    def without_maintenance(
        self, check: Callable[[], object] | None = None
    ) -> Generator[None, None, None]:
        """Keep checkpoints and compactions away for as long as the block runs.

        check() raises when the caller is not to wait any longer for one that is under way.
        """
        self._wait_for_maintenance(check)
        with self._maintenance:
            finish_listing(self.tablespace, self.manifest)
            yield

    def _wait_for_maintenance(self, check: Callable[[], object] | None) -> None:
        """Wait for a turn as long as check() lets it; whoever comes first then has it."""
        if check is None:
            return
        check()
        while not self._maintenance.acquire(timeout=_LOOK_S):
            check()
        self._maintenance.release()

    def after_staging(self) -> None:
        """Have what is staged become pages when it takes too much memory.

        Seldom: this checkpoint is a part of the statement, and writes the other tables' rows, too.
        """
        if self.tablespace.state.staged.working_bytes > self._config.memtable_bytes_max // 4:
            self.run_checkpoint()
        else:
            self.after_write()

    def _is_checkpoint_due(self) -> bool:
        tablespace, config = self.tablespace, self._config
        grown_bytes = tablespace.log.bytes_appended - self._checkpoint_bytes
        if grown_bytes > config.checkpoint_log_bytes:
            return True
        ended_s = self.checkpoints.ended_s
        age_s = self._clock.monotonic() - (self._opened_s if ended_s is None else ended_s)
        is_grown = grown_bytes * _LOG_SHARE > config.checkpoint_log_bytes
        if (is_grown or self._has_many_entries()) and age_s >= config.checkpoint_interval_s:
            return True
        space = self.space
        if (
            space.is_full or space.is_low or self.is_over_limit
        ):  # it makes the log's files free, and what was deleted
            return tuple(tablespace.state.lsn) != tuple(self.manifest.state.checkpoint_lsn)
        if any(table.is_unlisted for table in tablespace.state.tables.values()):
            return True
        if tablespace.room.is_wanted:
            return True
        if self._has_most_memory():
            return True
        leases = tablespace.applier.leases
        if leases.has_versions and tablespace.version_bytes() * 2 > self._config.version_bytes_max:
            return True  # they are held in memory no longer than to there
        return any(leases.find(number) is None for number in self.manifest.state.pins)

    def _has_many_entries(self) -> bool:
        """Return whether a ledger has had many entries since the last checkpoint, however short."""
        if self._logs.kind != LEDGER_LOG:
            return False
        now, listed = self.tablespace.state.lsn, Lsn(*self.manifest.state.checkpoint_lsn)
        before = listed.entry_id if listed.ledger_id == now.ledger_id else 0
        return now.entry_id - before > _ENTRIES_MAX

    def _has_most_memory(self) -> bool:
        """Return whether memtables have more than their share, and none has more than these.

        Or these alone have more than they may of it.
        """
        own, others = self.tablespace.memtable_bytes(), self._memory.memtables_of_others()
        share = self._config.memtable_bytes_max
        if own > share * self._memory.share:
            return True
        return own + sum(others) > share and own >= max(others, default=0)

    def _must_make_room(self) -> bool:
        """Return whether a copy that follows has to write a checkpoint itself: it refuses nothing.

        Where others have too much of the memory, it lets theirs come first, as long as there is
        room: else it would write one for a few rows, again and again.
        """
        room = self.tablespace.room
        if not (room.is_slow and self._is_threaded):
            return False
        is_large = self.tablespace.memtable_bytes() >= room.share_bytes // _FOLLOWER_PART
        return self._has_most_memory() or (room.is_full and is_large)

    # --- checkpoints and compaction --------------------------------------------------------------

    def run_checkpoint(self, check: Callable[[], object] | None = None) -> bool:
        """Write a checkpoint now; False when nothing changed. They take turns.

        check() raises when the caller is cancelled that waits for its turn.
        """
        self._wait_for_maintenance(check)
        space = self.space
        try:
            with self._maintenance:
                try:
                    space.make_room()
                    done = space.freeing(self._write_checkpoint)  # it lets go of the log
                finally:
                    space.given_back()
        except Exception as error:
            if isinstance(error, Error):  # is told as it is, and gets no name here
                self._note_failed_checkpoint(error)
                raise
            found = self._note_failed_checkpoint(error)
            try:
                raise found from error
            finally:
                del found  # as below
        finally:
            self._look()
            self.tablespace.room.opened()
        if space.is_full:
            space.look()
        return done

    def _write_checkpoint(self) -> bool:
        """Write a checkpoint, and before it the merges that it needs. _maintenance is held."""
        finish_listing(self.tablespace, self.manifest)
        for planned in crowded_tables(self.tablespace):
            if self.space.lend(planned.byte_count):  # else there are more runs for a while
                self._run_job(planned)
        appended = self.tablespace.log.bytes_appended
        byte_count = self.tablespace.memtable_bytes()
        listed = dict(self.manifest.state.segments)
        with self._memory.job("a checkpoint", memory_to_write(self.tablespace.state)):
            done = self.checkpoints.measure(
                lambda: run_checkpoint(self.tablespace, self.manifest, self._disk, self._segments)
            )
        self._note_retired(listed)
        self.tablespace.room.checkpointed(byte_count, self.checkpoints.last_s)
        self._checkpoint_bytes = appended
        self._checkpoint_wait_s = 0.0
        self.checkpoint_error = None
        return done

    def _run_job(self, planned: Planned) -> None:
        """Do a job of compaction. _maintenance is held."""
        listed = dict(self.manifest.state.segments)
        with self._memory.job("a compaction", planned.memory_bytes):
            self._compaction_debt += run_job(
                self.tablespace, self.manifest, self._disk, self._segments, planned
            )
        self._note_retired(listed)

    def backup(self, backup_id: bytes) -> "Backup":
        """Write a checkpoint and pin it, to be read while others write.

        The caller closes it. OSError or an Error: the checkpoint failed, or a file is damaged.
        """
        with loading():
            from herdpy.engine.maintenance.backup import Backup

        self.run_checkpoint()
        with self._maintenance:
            finish_listing(self.tablespace, self.manifest)
            made = Backup.pin(
                self._disk,
                self._segments,
                self.manifest.state,
                backup_id=backup_id,
                made_us=self._clock.wall_us(),
            )
            self._backups = [*self._backups, ref(made)]
            return made

    def _note_failed_checkpoint(self, error: Exception) -> Error:
        """Put the next one off, and return what is told: nothing of it has happened."""
        wait_s = min(max(TICK_S, 2 * self._checkpoint_wait_s), _CHECKPOINT_WAIT_S_MAX)
        if isinstance(error, DiskFullError):  # which costs nothing: no page was written
            wait_s = 0.0
        self._checkpoint_wait_s = wait_s
        self._checkpoint_again_s = self._clock.monotonic() + wait_s
        found = background_error("a checkpoint", error)
        self.checkpoint_error = copy(found)  # whose frames would keep old pages, and their files
        return found

    def run_compaction(self) -> bool:
        """Do the piece of compaction most worth it now; False when none is."""
        return self._compact(is_within_budget=False)

    def _compact(self, *, is_within_budget: bool) -> bool:
        """Do one job; within the budget only if an earlier one is paid off and there is memory.

        An urgent one is done in any case.
        """
        try:
            with self._maintenance:
                finish_listing(self.tablespace, self.manifest)
                planned = self._planner.choose(self.tablespace, self.manifest)
                is_fitting = planned is not None and self.space.lend(planned.byte_count)
                if not is_fitting and (planned is not None or self.space.is_full):
                    planned = self._plan_to_free()
                self._has_compaction = planned is not None
                if planned is None:
                    return False
                if is_within_budget and not planned.job.is_urgent:
                    has_room = self._memory.has_room_for_job(planned.memory_bytes)
                    if self._is_in_debt() or not has_room:
                        return False
                if not is_fitting:  # not before it is sure to begin: the disk is full meanwhile
                    self.space.make_room(planned.byte_count)
                self._run_job(planned)
                self.space.given_back()
                if self.space.is_full:
                    self.space.look()
                return True
        except Exception as error:
            if isinstance(error, Error):  # is told as it is, and gets no name here
                raise
            found = background_error("a compaction", error)
            try:
                raise found from error
            finally:
                del found  # else it and its frames keep each other, and with them mapped files
        finally:
            self.space.given_back()

    def _plan_to_free(self) -> Planned | None:
        """Return a job that leaves more free than before, and for which there is room."""
        room = self.space.room_to_free()
        planned = plan_to_free(self.tablespace, self.manifest, room)
        return None if planned is None or planned.byte_count > room else planned

    def _is_in_debt(self) -> bool:
        now_s = self._clock.monotonic()
        paid = (now_s - self._budget_s) * self._config.compaction_bytes_per_s
        self._compaction_debt = max(0.0, self._compaction_debt - paid)
        self._budget_s = now_s
        return self._compaction_debt > 0

    # --- tasks -----------------------------------------------------------------------------------

    def tasks(
        self, expired: Callable[[], list[str]], unused: Callable[[], list[str]]
    ) -> list[MaintenanceTask]:
        """Return what the copy that writes looks after, and behind it what every copy does.

        `expired` gives the sessions whose outcomes may be forgotten, `unused` the staging jobs to
        give up. An error of one leaves the state as it was, or as the next to enter the monitor
        finishes it: what could not be finished stops the tablespace where it is met.
        """
        leading = (
            []
            if self.tablespace.follows
            else [  # each may append to the log
                MaintenanceTask("rollbacks", self.tablespace.retry_rollbacks),
                MaintenanceTask("commit tokens", lambda: self._log_names(Expire, expired())),
                MaintenanceTask("snapshot leases", self._end_leases),
                MaintenanceTask("stagings", lambda: self._log_names(EndStaging, unused())),
                MaintenanceTask("the log's mark", self._mark_if_idle),
            ]
        )
        return [
            *leading,
            MaintenanceTask("applying the log", self.tablespace.finish),
            MaintenanceTask("the disk's room", self._look_at_disk),
            MaintenanceTask("old versions", self._limit_versions),
            MaintenanceTask("a checkpoint", self._checkpoint_if_due),
            MaintenanceTask("a compaction", self._compact_if_due),
        ]

    def _look_at_disk(self) -> None:
        """Look, and while the disk is full let go now and then of what garbage keeps mapped."""
        now_s = self._clock.monotonic()
        if self.space.look() and now_s >= self._collect_again_s:
            self._collect_again_s = now_s + _COLLECT_S
            gc.collect()  # a file that is removed takes room until no reader has it mapped
            self.space.look()

    def _checkpoint_if_due(self) -> None:
        if self._is_checkpoint_due() and self._clock.monotonic() >= self._checkpoint_again_s:
            with suppress(DiskFullError):  # the disk's state says so, and the next tick tries again
                self.run_checkpoint()

    def _compact_if_due(self) -> None:
        if self._compact(is_within_budget=True):
            self._wake()  # look again at once: there may be more, within the budget

    def _limit_versions(self) -> None:
        self.tablespace.limit_versions(self._config.version_bytes_max)

    def _log_names(
        self, record: Callable[[list[str]], Expire | EndStaging], names: list[str]
    ) -> None:
        if names:
            with suppress(DiskFullError):  # the next tick tries again
                step = partial(self.tablespace.log_alone, record(names))
                with_log_space(self.tablespace, step, frees_space=True)

    def _end_leases(self) -> None:
        """End the leases that were not used for their seconds."""
        with suppress(DiskFullError):  # the next tick tries again
            ended = with_log_space(
                self.tablespace, lambda: self.tablespace.end_leases(None), frees_space=True
            )
            if ended is not None:
                # No caller waits for it, and perhaps none writes: it is applied when durable.
                self.tablespace.request(Durability.SYNC)

    def _mark_if_idle(self) -> None:
        """Once nothing was appended for a tick, hand over what has no waiter, or mark the log.

        A commit of durability none is with the operating system about a second later. Much that no
        commit asks for, of a long transaction, is handed over at once: it would wait in memory.
        """
        log, now_s = self.tablespace.log, self._clock.monotonic()
        appended = log.bytes_appended
        if appended != self._idle_bytes:
            if appended - self._idle_bytes >= _UNWRITTEN_BYTES and log.written_lsn < log.last_lsn:
                self.tablespace.request(Durability.OS)
            self._idle_bytes, self._idle_since_s = appended, now_s
        elif now_s - self._idle_since_s >= TICK_S:
            if log.written_lsn < log.last_lsn:
                self.tablespace.request(Durability.OS)
            log.mark()
