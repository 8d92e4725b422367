"""Instance: one open directory (or memory), and what its tablespaces share.

One lock of the directory, one budget of memory, one DuckDB, one room of plans, one housekeeper and
a few threads that sync: so two hundred tablespaces are not two hundred of each. What each has of
its own (log, pages, users, sessions, checkpoints) is a Database; which there are, what opens and
changes them, is Tablespaces (tablespaces.py).
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

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
from herdpy.engine.closing import run_all
from herdpy.engine.cluster_view import ClusterView
from herdpy.engine.database import Database
from herdpy.engine.maintenance.directory import (
    LOCK,
    cannot_open_error,
    check_listed,
    check_ours,
    create_if_new,
    locked_error,
)
from herdpy.engine.maintenance.file_logs import FILE_LOGS, LogSource
from herdpy.engine.maintenance.replica import TICK_S
from herdpy.engine.state.disk_space import SharedReserve
from herdpy.engine.state.memory import memtables_of
from herdpy.engine.statements.aside import Aside
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.plan_cache import PlanCache, PlanRoom
from herdpy.engine.statements.result_places import ResultPlaces
from herdpy.engine.statements.stopper import Stopper
from herdpy.engine.tablespaces import Tablespaces
from herdpy.engine.vector_engines import VectorEngines
from herdpy.log.syncer import SyncThreads
from herdpy.model.governor import Governor
from herdpy.storage.tablespace_list import (
    DEFAULT,
    TablespaceEntry,
    forget_staged,
    only_default,
    read_list,
)

_LOG_BYTES_FIRST = 64 * 1024
"""Of a tablespace's first log file: with 1 MiB, as in `default`, many would fill a disk."""


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
        logs: LogSource = FILE_LOGS,
        governor: Governor | None = None,
        new_plans: Callable[[PlanRoom], PlanCache] = PlanCache,
        cluster: ClusterView | None = None,
    ) -> None:
        """Take what it will be opened with.

        `where` is how messages name it; temp_directory is where DuckDB may spill. With
        is_threaded False there are no threads: commits sync in the caller, and run_checkpoint() is
        the caller's to call (simulation). logs: where a tablespace's log comes from. The governor
        is the process's; None: the directory is alone in it. new_plans makes the plans of a
        tablespace. cluster: what is known of the cluster whose node's it is; None: of none.
        """
        # Constant after start().
        self.disk = disk
        self.clock = clock
        self.rng = rng
        self.driver = driver
        self.config = config
        self.where = where
        self.logs = logs
        self.cluster = cluster
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
        self.tablespaces = Tablespaces(self)
        self.is_closed = False
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
            self.is_closed = True
            steps: list[Callable[[], object]] = []
            for database in self.tablespaces.unclosed():
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
        create_if_new(disk, self.rng, self.logs.kind)
        listed = read_list(disk)
        check_listed(disk, listed or only_default(b""))
        if listed is not None:
            # Its writer may have been killed between the rename and the sync of the name: nothing
            # is done by a list, or shown of it, that a power failure could take back.
            disk.sync_directory("")
        forget_staged(disk)
        self.default = Database(self, (listed or only_default(b"")).entries[0])
        self.tablespaces.start(self.default, listed)
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

    # --- for databases ---------------------------------------------------------------------------

    def watch(self, interrupt: StatementInterrupt) -> None:
        """Have a statement stopped where it cannot look; without threads, by cancel() alone."""
        if self._maintainer is not None:
            interrupt.watch = self._stopper.watch

    def _count_refused_query(self, limit: str) -> None:
        self.default.refusals.add_query(None, limit)

    # --- maintenance -----------------------------------------------------------------------------

    def _run_maintenance(self) -> None:
        while not self.is_closed:
            self._bell.wait(TICK_S)
            if not self.is_closed:
                self.look_after()

    def look_after(self) -> None:
        """Do what is due in every tablespace; by the housekeeper alone."""
        memtables = sum(each.bytes_used for each in memtables_of(self.memory))
        self.is_tight = memtables > self.config.memtable_bytes_max
        for database in self.tablespaces.databases():
            database.look_after()
        self.tablespaces.look_again()

    # --- closing ---------------------------------------------------------------------------------

    def close_database(self, database: Database) -> None:
        """Close a tablespace; with `default` all of them, and the directory. Repeatable."""
        if process_generation() != self._generation:
            return
        if database is self.default:
            self.close()
            return
        self.tablespaces.close_one(database)

    def close(self) -> None:
        """Roll back open transactions, make everything durable, let go of the files; repeatable.

        Statements of other threads are cancelled. In a forked child nothing is touched.
        """
        if process_generation() != self._generation:
            return
        tablespaces = self.tablespaces
        # Sessions first, and not under `changing`, which one that makes a tablespace may want.
        steps = self.default.end()
        for database in tablespaces.unclosed():
            if database is not self.default:
                steps = [*database.end(), *steps]
        with tablespaces.changing:
            self.is_closed = True
            for database in tablespaces.unclosed():  # one that was opened meanwhile, too
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
