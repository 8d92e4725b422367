"""Instance: one open directory (or memory): what its tablespaces share, and which there are.

One lock of the directory, one budget of memory, one DuckDB, one room of plans, one housekeeper and
a few threads that sync: so two hundred tablespaces are not two hundred of each. What each has of
its own (log, pages, users, sessions, checkpoints) is a Database.

`default` is open as long as the instance is; another tablespace is opened by the first session of
it, or by open_all(). CREATE and DROP are decided by one edit of the list of tablespaces
(storage/tablespace_list.py): the edit before it names the folder that is then made, the one behind
it forgets the folder that was removed, and opening removes what a crash has left of either.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import msgspec

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import (
    Clock,
    DirectoryLock,
    Disk,
    DiskLockedError,
    Driver,
    Rng,
    Worker,
)
from bookie.runtime.os_process import describe_process, process_generation
from herdpy.config import Config
from herdpy.engine.database import Database
from herdpy.engine.maintenance.directory import (
    LOCK,
    cannot_open_error,
    check_listed,
    check_ours,
    create_if_new,
    finish_tablespace,
    locked_error,
    make_tablespace,
    remove_tablespace,
)
from herdpy.engine.maintenance.file_logs import OpenLog, open_file_log
from herdpy.engine.maintenance.replica import TICK_S
from herdpy.engine.session.activity import dropped_tablespace_error
from herdpy.engine.session.session import Session
from herdpy.engine.state.disk_space import SharedReserve
from herdpy.engine.state.memory import memtables_of
from herdpy.engine.statements.aside import Aside
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.plan_cache import PlanCache, PlanRoom
from herdpy.engine.statements.result_places import ResultPlaces
from herdpy.engine.statements.stopper import Stopper
from herdpy.engine.vector_engines import VectorEngines
from herdpy.errors import (
    CorruptionError,
    Error,
    LogFailedError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Retry,
    closest,
)
from herdpy.limits import tablespaces_max
from herdpy.log.syncer import SyncThreads
from herdpy.model.access import Fact
from herdpy.model.governor import Governor
from herdpy.storage.tablespace_list import (
    DEFAULT,
    ID_BYTES,
    LEAVING,
    MAKING,
    PRESENT,
    TABLESPACES,
    TablespaceEntry,
    TablespaceLimits,
    TablespaceList,
    forget_staged,
    only_default,
    read_list,
    stage_list,
    take_list,
)

_log = logging.getLogger(__name__)
_AGAIN_S = 5.0
_HINT_NAMES_MAX = 50
"""To look among for one that was meant: each takes up to a tenth of a millisecond."""
_LOG_BYTES_FIRST = 64 * 1024
"""Of a tablespace's first log file: with 1 MiB, as in `default`, many would fill a disk."""


class TablespaceState(NamedTuple):
    """A tablespace for systablespaces."""

    entry: TablespaceEntry
    database: Database | None
    """None: it is not open."""
    error: Error | None
    """Why it could not be opened."""


class Instance:
    """A directory; start() opens it, close() ends it. Any thread may call."""

    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        driver: Driver,
        config: Config,
        where: str = ":memory:",
        temp_directory: str | None = None,
        is_threaded: bool = True,
        open_log: OpenLog = open_file_log,
        governor: Governor | None = None,
        new_plans: Callable[[PlanRoom], PlanCache] = PlanCache,
    ) -> None:
        """Take what it will be opened with.

        `where` is how messages name it; temp_directory is where DuckDB may spill. With
        is_threaded False there are no threads: commits sync in the caller, and run_checkpoint() is
        the caller's to call (simulation). open_log makes a tablespace's log. The governor is the
        process's; None: the directory is alone in it. new_plans makes the plans of a tablespace.
        """
        # Constant after start().
        self.disk = disk
        self.clock = clock
        self.rng = rng
        self.driver = driver
        self.config = config
        self.where = where
        self.open_log = open_log
        self.memory = (governor or Governor()).open(where, config.memory_bytes_max)
        self.plan_room = PlanRoom(config.plan_cache_entries_max, config.plan_cache_bytes_max)
        self.new_plans = new_plans
        self.results = ResultPlaces(clock, config.vector_results_max)
        self.session_ids = count(1)
        self.statement_ids = count(1)
        self._aside = Aside(driver, clock)
        self.vectors = VectorEngines(
            config, clock, temp_directory, self._aside, self._count_refused_query
        )
        self.sync_threads = SyncThreads(driver) if is_threaded else None
        self._is_threaded = is_threaded
        self._generation = process_generation()
        self._stopper = Stopper(driver, clock)
        self._bell = driver.new_bell()
        self.wake = self._bell.ring
        self.default: Database
        # By the housekeeper.
        self.is_tight = False
        """All memtables together have more than their share."""
        self._again_s = 0.0
        # Changed under _changing alone; each replaced by one assignment, read by any thread.
        self._changing = new_mutex()
        """Held while a tablespace is made, opened, changed or removed."""
        self.listed: TablespaceList = only_default(b"")
        self._databases: dict[bytes, Database] = {}
        """Those that are open, by their ids."""
        self._errors: dict[bytes, Error] = {}
        self._list_failure: Error | None = None
        """Why it is not known what the list on the disk says."""
        self._doubtful: set[bytes] = set()
        """Of which tablespaces, by their ids: they are not served any more."""
        self._noted_leftovers: set[str] = set()
        """Of which folders and files it was logged that they cannot be removed."""
        self._is_closed = False
        self._maintainer: Worker | None = None
        self._lock: DirectoryLock | None = None

    def start(self) -> Database:
        """Open or create the directory; return its tablespace `default`, recovered and ready.

        OperationalError 55006: another process has it open. CorruptionError: damage, named.
        """
        try:
            self._open()
            # Here, and in one line: an interrupt behind the try would leave it open and lost.
            return self.default
        except BaseException as error:
            self._is_closed = True
            steps: list[Callable[[], object]] = []
            for database in self._databases.values():
                database.mark_closed()
                steps += database.closing_steps()
            run_all([*steps, *self._closing_steps()])
            if isinstance(error, DiskLockedError):
                raise locked_error(self.where, error.owner) from error
            if isinstance(error, OSError):
                raise cannot_open_error(self.where, error) from error
            raise

    def _open(self) -> None:
        disk = self.disk
        check_ours(disk, self.where)
        self._lock = disk.lock(LOCK, describe_process())
        create_if_new(disk, self.rng)
        listed = read_list(disk)
        check_listed(disk, listed or only_default(b""))
        if listed is not None:
            # Its writer may have been killed between the rename and the sync of the name: nothing
            # is done by a list, or shown of it, that a power failure could take back.
            disk.sync_directory("")
        forget_staged(disk)
        first = (listed or self.listed).entries[0]
        self.default = database = Database(self, first)
        self._databases[first.id] = database
        database.start()
        found = database.replica.manifest.state.identity.uuid
        if listed is None:
            self._databases = {found: database}
            database.entry = msgspec.structs.replace(first, id=found)
            self.listed = only_default(found)
        else:
            self._check_identity(database)
            self.listed = listed
            self._remove_leftovers()
        if self._is_threaded:
            self._maintainer = self.driver.spawn("herdpy-maintenance", self._run_maintenance)

    # --- tablespaces -----------------------------------------------------------------------------

    @property
    def reserve(self) -> SharedReserve | None:
        """What the directory keeps of its disk; None: `default` is not open yet."""
        default = vars(self).get("default")
        return None if default is None or "replica" not in vars(default) else default.space.shared

    def where_of(self, entry: TablespaceEntry) -> str:
        """Return how messages name a tablespace."""
        return self.where if entry.name == DEFAULT else f"{self.where}, tablespace {entry.name}"

    def config_of(self, entry: TablespaceEntry) -> Config:
        """Return the settings of one tablespace: those of the directory within its limits."""
        config = self.config
        if entry.name == DEFAULT:
            return config
        memory = entry.limits.memory_bytes_max or config.memory_bytes_max
        return replace(
            config,
            memory_bytes_max=min(memory, config.memory_bytes_max),
            log_file_bytes_first=min(config.log_file_bytes_first, _LOG_BYTES_FIRST),
        )

    def has(self, name: str) -> bool:
        """Return whether there is a tablespace of that name. Any thread."""
        return self.listed.find(name) is not None

    def limits_of(self, name: str) -> TablespaceLimits:
        """Return a tablespace's limits; 3D000: there is none."""
        return self._entry(name).limits

    def states(self) -> list[TablespaceState]:
        """Return all tablespaces in the order of their making, `default` first."""
        errors = self._errors
        return [
            TablespaceState(each, self._open_database(each.id), errors.get(each.id))
            for each in self.listed.present
        ]

    def databases(self) -> list[Database]:
        """Return the tablespaces that are open."""
        return [each for each in self._databases.values() if not each.is_closed]

    def _open_database(self, tablespace_id: bytes) -> Database | None:
        found = self._databases.get(tablespace_id)
        return None if found is None or found.is_closed else found

    def find(self, name: str) -> Database | None:
        """Return an open tablespace, and never wait; None: opened() would raise. Any thread."""
        entry = self.listed.find(name)
        return None if entry is None else self.open_of(entry.id)

    def open_of(self, tablespace_id: bytes) -> Database | None:
        """Return the tablespace of an id, whatever its name is now; None: it is not served."""
        return None if tablespace_id in self._doubtful else self._open_database(tablespace_id)

    def sessions(self) -> list[Session]:
        """Return the sessions that are open now, in the order of their making."""
        found = [session for database in self.databases() for session in database.sessions()]
        return sorted(found, key=lambda session: session.id)

    def opened(self, name: str) -> Database:
        """Return an open tablespace, and never wait. 3D000: there is none; else why not."""
        entry = self._entry(name)
        database = self._open_database(entry.id)
        if database is None:
            raise self._errors.get(entry.id) or OperationalError(
                f'tablespace "{name}" is not open yet', sqlstate="57P03", retry=Retry.SAFE
            )
        return database

    def database(self, name: str) -> Database:
        """Return a tablespace, opened and recovered by the first caller.

        3D000: there is none. CorruptionError, OperationalError: it cannot be opened; the others are
        as they were, and the next call tries again.
        """
        self.default.check_usable()
        found = self._open_database(self._entry(name).id)
        if found is not None:
            return found
        with self._changing:
            self.default.check_usable()
            return self._open_one(self._entry(name))

    def open_all(self) -> list[TablespaceState]:
        """Open every tablespace; return those that cannot be opened."""
        for entry in self.listed.present:
            with suppress(Error):
                self.database(entry.name)
        return [state for state in self.states() if state.error is not None]

    def _entry(self, name: str) -> TablespaceEntry:
        entry = self.listed.find(name)
        if entry is None:
            some = self.listed.entries[:_HINT_NAMES_MAX]
            close = closest(name[:63], [each.name for each in some if each.state == PRESENT])
            raise OperationalError(
                f'tablespace "{name[:63]}" does not exist',
                sqlstate="3D000",
                hint=f'Did you mean "{close}"?' if close else "systablespaces lists them.",
            )
        if self._list_failure is not None and entry.id in self._doubtful:
            raise self._list_failure
        return entry

    def _open_one(self, entry: TablespaceEntry) -> Database:
        found = self._open_database(entry.id)
        if found is not None:
            return found
        self._let_go(entry)  # an interrupt has kept it from being closed to the end
        database = Database(self, entry)
        try:
            try:
                database.start()
                self._check_identity(database)
            except OSError as error:
                raise cannot_open_error(self.where_of(entry), error) from error
        except BaseException as error:
            database.mark_closed()
            run_all(database.closing_steps())
            if isinstance(error, Error):
                self._note_error(entry, error)
            raise
        self._forget_error(entry)
        self._databases = {**self._databases, entry.id: database}
        if entry.state == PRESENT:
            self._finish(entry)
        return database

    def _finish(self, entry: TablespaceEntry) -> None:
        """Have a tablespace not be taken for half made by a list that is older."""
        try:
            finish_tablespace(self.disk, entry.folder)
        except OSError as error:
            _log.warning("%s: that it was made cannot be said: %s", self.where_of(entry), error)

    def _note_error(self, entry: TablespaceEntry, error: Error) -> None:
        """Have opened() raise it as long as the tablespace is not open; it is opened again."""
        self._errors = {**self._errors, entry.id: error}

    def _forget_error(self, entry: TablespaceEntry) -> None:
        self._errors = {key: each for key, each in self._errors.items() if key != entry.id}

    def _check_identity(self, database: Database) -> None:
        entry = database.entry
        found = database.replica.manifest.state.identity.uuid
        if found != entry.id:
            raise CorruptionError(
                f"{entry.folder}/MANIFEST, offset 0: it is of tablespace {found.hex()}, and "
                f"{TABLESPACES} lists {entry.id.hex()} there",
                hint="Put back the folder, or the list, that belongs to the other.",
            )

    # --- changes of the list ---------------------------------------------------------------------

    def create(self, name: str, limits: TablespaceLimits, access: Sequence[Fact]) -> None:
        """Make an empty tablespace with these roles; durable, and open, on return.

        42710: there is one of the name. On any error there is none: what is left of it is removed
        now, or when the directory is opened; but with 58030 and UNKNOWN there may be one then.
        """
        with self._changing:
            self._check_changeable()
            if self.listed.find(name) is not None:
                raise ProgrammingError(
                    f'tablespace "{name}" exists already',
                    sqlstate="42710",
                    hint="CREATE TABLESPACE IF NOT EXISTS leaves it as it is.",
                )
            self._check_identified()
            self._remove_leftovers()
            if len(self.listed.entries) >= tablespaces_max:
                raise OperationalError(
                    f"{tablespaces_max:,} tablespaces are there, more are not allowed",
                    sqlstate="54000",
                    hint="DROP TABLESPACE removes one with all its tables.",
                )
            entry = TablespaceEntry(self.rng.randbytes(ID_BYTES), name, MAKING, limits)
            self._write(self.listed.with_entry(entry))
            try:
                make_tablespace(self.disk, entry.folder, entry.id, self.rng)
                database = self._open_one(entry)
                database.begin_access(access)
                made = msgspec.structs.replace(entry, state=PRESENT)
                self._write(self.listed.with_entry(made))  # this decides
                database.entry = made
                self._finish(made)
            except BaseException as error:
                self._let_go(entry)
                self._forget_error(entry)
                if isinstance(error, Exception):
                    self._remove_leftovers()
                # Of a log that nothing has come of it is known what became of its commits.
                failure = error.__cause__ if isinstance(error, LogFailedError) else error
                if isinstance(failure, OSError):
                    raise cannot_open_error(self.where_of(entry), failure) from error
                raise

    def drop(self, name: str, *, is_forced: bool = False) -> None:
        """Remove a tablespace with all that is in it; is_forced: its sessions are ended (57P01).

        55006: sessions use it. On any other error it is as it was, and is opened by the next
        caller; but with 58030 and UNKNOWN it may be gone when the directory is opened again.
        """
        with self._changing:
            self._check_changeable()
            entry = self._entry(name)
            if name == DEFAULT:
                raise NotSupportedError(
                    f'tablespace "{name}" cannot be dropped: it is there as long as the directory',
                    hint="DROP TABLE removes what is in it.",
                )
            database = self._databases.get(entry.id)
            gone = self.listed.with_entry(msgspec.structs.replace(entry, state=LEAVING))
            try:
                if database is not None:
                    database.refuse_sessions(f'dropping tablespace "{name}"', is_forced=is_forced)
                self._stage_freeing(gone)
                if database is not None:
                    database.kill_sessions(dropped_tablespace_error(name))
                self._let_go(entry)
            except BaseException as error:
                if database is not None and not database.is_closed:  # nothing has changed
                    database.let_sessions_in()
                elif isinstance(error, Error):
                    self._note_error(entry, error)
                raise
            self._forget_error(entry)
            self._take(gone)  # this decides
            self._remove_leftovers()

    def alter(self, name: str, new_name: str | None, limits: TablespaceLimits | None) -> None:
        """Change a tablespace's name or limits, which count at once; None: as it is.

        42710: there is one of the new name. 58030 and UNKNOWN: it may be changed when the
        directory is opened again.
        """
        with self._changing:
            self._check_changeable()
            entry = self._entry(name)
            if name == DEFAULT:
                raise NotSupportedError(
                    f'tablespace "{name}" cannot be altered: its limits are the settings of the '
                    "directory, and it keeps its name",
                    hint="Make another tablespace: CREATE TABLESPACE.",
                )
            if new_name is not None and self.listed.find(new_name) is not None:
                raise ProgrammingError(f'tablespace "{new_name}" exists already', sqlstate="42710")
            changed = msgspec.structs.replace(
                entry,
                name=entry.name if new_name is None else new_name,
                limits=entry.limits if limits is None else limits,
            )
            self._write(self.listed.with_entry(changed))
            database = self._databases.get(entry.id)
            if database is not None:
                database.take_entry(changed)

    def _check_changeable(self) -> None:
        self.default.check_usable()
        if self._list_failure is not None:
            raise self._list_failure

    def _check_identified(self) -> None:
        """Give `default` an id: FORMAT 1 has none, and a checkpoint makes it FORMAT 2."""
        if self.listed.entries[0].id:
            return
        self.default.run_checkpoint()
        found = self.default.replica.manifest.state.identity.uuid
        if not found:
            raise OperationalError(
                "the directory is of FORMAT 1, which has one tablespace, until its next checkpoint",
                sqlstate="55000",
                hint="Write something, such as CREATE TABLE and DROP TABLE, and try again.",
            )
        self._databases = {found: self.default}
        self.listed = only_default(found)
        self.default.entry = self.listed.entries[0]

    def _write(self, listed: TablespaceList) -> None:
        """Replace the list, on the disk and here. Under _changing."""
        stage_list(self.disk, listed)
        self._take(listed)

    def _take(self, listed: TablespaceList) -> None:
        """Have the staged list count, on the disk and here."""
        try:
            take_list(self.disk)
            self.listed = listed
        except BaseException as error:
            self._list_failure = OperationalError(
                f"the list of tablespaces of {self.where} could not be replaced, and which one "
                f"the disk has is not known: {error}",
                sqlstate="58030",
                retry=Retry.UNKNOWN,
                hint="Open the directory again before tablespaces are made, changed or dropped.",
            )
            before = set(self.listed.entries)
            doubtful = {each.id for each in listed.entries if each not in before}
            self._doubtful |= doubtful  # what is written to these might be lost with them
            raise self._list_failure from error

    def _remove_leftovers(self) -> None:
        """Remove folders of what is no tablespace, and forget them. Under _changing, or opening.

        What cannot be removed stays in the list, does no harm, and is tried again.
        """
        if self._list_failure is not None:
            return
        gone = [each.id for each in self.listed.leftovers if self._removes(each)]
        if not gone:
            return
        listed = self.listed.without(gone)
        try:
            self._stage_freeing(listed)
            take_list(self.disk)
        except (Error, OSError) as error:
            # Whichever of the two the disk has: they tell of the same tablespaces.
            self._note_leftover(TABLESPACES, error)
        else:
            self.listed = listed
            self._noted_leftovers -= {TABLESPACES, *map(bytes.hex, gone)}

    def _removes(self, entry: TablespaceEntry) -> bool:
        """Remove the folder of what is no tablespace; False: it cannot be."""
        try:
            self._let_go(entry)  # an interrupt may have kept CREATE from it
            remove_tablespace(self.disk, entry.folder)
        except (Error, OSError, RecursionError) as error:
            self._note_leftover(entry.folder, error)
            return False
        return True

    def _note_leftover(self, what: str, error: Exception) -> None:
        if what not in self._noted_leftovers:  # once, and not every few seconds
            self._noted_leftovers.add(what)
            _log.warning(
                "%s/%s: what is left of a tablespace cannot be removed, and is tried again: %s",
                self.where,
                what,
                error,
            )

    def _stage_freeing(self, listed: TablespaceList) -> None:
        """Stage a list behind which less is on the disk, also where that is full."""
        self.default.space.freeing(lambda: stage_list(self.disk, listed))

    def _let_go(self, entry: TablespaceEntry) -> None:
        """Close a tablespace that has no session, if it is open; repeatable after an interrupt.

        It is forgotten last: two logs that are open over the same files would be damage.
        """
        database = self._databases.get(entry.id)
        if database is None:
            return
        steps = database.end()
        try:
            with database.at_rest():
                run_all(steps)
        except Exception:  # every step was run
            self._forget(entry)
            raise
        self._forget(entry)

    def _forget(self, entry: TablespaceEntry) -> None:
        self._databases = {key: each for key, each in self._databases.items() if key != entry.id}

    # --- for databases ---------------------------------------------------------------------------

    def watch(self, interrupt: StatementInterrupt) -> None:
        """Have a statement stopped where it cannot look; without threads, by cancel() alone."""
        if self._maintainer is not None:
            interrupt.watch = self._stopper.watch

    def _count_refused_query(self, limit: str) -> None:
        self.default.refusals.add_query(None, limit)

    # --- maintenance -----------------------------------------------------------------------------

    def _run_maintenance(self) -> None:
        while not self._is_closed:
            self._bell.wait(TICK_S)
            if not self._is_closed:
                self.look_after()

    def look_after(self) -> None:
        """Do what is due in every tablespace; by the housekeeper alone."""
        memtables = sum(each.bytes_used for each in memtables_of(self.memory))
        self.is_tight = memtables > self.config.memtable_bytes_max
        for database in self.databases():
            database.look_after()
        is_missing = self._errors or self.listed.leftovers
        if is_missing and self.clock.monotonic() >= self._again_s:
            self._open_again()
            self._remove_again()
            self._again_s = self.clock.monotonic() + _AGAIN_S

    def _remove_again(self) -> None:
        """Remove what is left of tablespaces, unless one is being made or removed."""
        if not self._is_closed and self._changing.acquire(blocking=False):
            try:
                self._remove_leftovers()
            finally:
                self._changing.release()

    def _open_again(self) -> None:
        """Open what was not to be opened, unless it is damaged: a full disk may have room now.

        For servers, whose clients are told why, and open nothing. By the housekeeper alone.
        """
        for state in self.states():
            is_damaged = state.error is None or isinstance(state.error, CorruptionError)
            # close() has it, and waits for this thread; or a tablespace is being made.
            if is_damaged or self._is_closed or not self._changing.acquire(blocking=False):
                continue
            try:
                self._open_one(self._entry(state.entry.name))
                _log.warning("tablespace %s is open now", state.entry.name)
            except Error:
                pass  # it is noted
            finally:
                self._changing.release()

    # --- closing ---------------------------------------------------------------------------------

    def close_database(self, database: Database) -> None:
        """Close a tablespace; with `default` all of them, and the directory. Repeatable."""
        if process_generation() != self._generation:
            return
        if database is self.default:
            self.close()
            return
        with self._changing:
            self._let_go(database.entry)

    def close(self) -> None:
        """Roll back open transactions, make everything durable, let go of the files; repeatable.

        Statements of other threads are cancelled. In a forked child nothing is touched.
        """
        if process_generation() != self._generation:
            return
        # Sessions first, and not under _changing, which one that makes a tablespace may want.
        steps = self.default.end()
        for database in list(self._databases.values()):
            if database is not self.default:
                steps = [*database.end(), *steps]
        with self._changing:
            self._is_closed = True
            for database in self._databases.values():  # one that was opened meanwhile, too
                if database is not self.default:
                    steps = [*database.end(), *steps]
            run_all([*self._stopping_steps(), *steps, *self._closing_steps()])

    def _stopping_steps(self) -> list[Callable[[], object]]:
        steps: list[Callable[[], object]] = [self.wake, self._stopper.close]
        if self._maintainer is not None:
            steps.append(self._maintainer.join)
        return steps

    def _closing_steps(self) -> list[Callable[[], object]]:
        """Return what lets go of threads and files that tablespaces share; all repeatable."""
        steps: list[Callable[[], object]] = [*self._stopping_steps()]
        if self.sync_threads is not None:
            steps.append(self.sync_threads.close)
        steps += [*self.vectors.closing_steps(), self._aside.close]
        if self._lock is not None:
            steps.append(self._lock.close)
        return [*steps, self.memory.close]


def run_all(steps: Sequence[Callable[[], object]]) -> None:
    """Run every step in order, also behind a failing one or an interrupt; raise the newest error.

    By halves: of hundreds of tablespaces there are more steps than Python allows calls in calls.
    """
    if len(steps) <= 1:
        for step in steps:
            step()
        return
    middle = len(steps) // 2
    try:
        run_all(steps[:middle])
    finally:
        run_all(steps[middle:])
