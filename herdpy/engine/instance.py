"""Instance: one open directory (or memory) with its lock.

What its tablespaces share are its Resources (resources.py), or those of the node that it is a copy
of. What each has of its own (log, pages, users, sessions, checkpoints) is a Database; which there
are, what opens and changes them, is Tablespaces (tablespaces.py).
"""

from collections.abc import Callable
from dataclasses import replace

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import (
    Clock,
    DirectoryLock,
    Disk,
    DiskLockedError,
    Driver,
    Rng,
)
from bookie.runtime.os_process import describe_process, process_generation
from herdpy.config import Config
from herdpy.engine.closing import run_all
from herdpy.engine.cluster_view import ClusterView
from herdpy.engine.database import Database
from herdpy.engine.maintenance.directory import (
    DIRECTORY,
    LOCK,
    cannot_open_error,
    check_listed,
    check_ours,
    create_if_new,
    locked_error,
)
from herdpy.engine.maintenance.file_logs import FILE_LOGS, LogSource
from herdpy.engine.resources import Resources, Tenant
from herdpy.engine.state.disk_space import SharedReserve
from herdpy.engine.state.memory import TablespaceMemory, memtables_of
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.plan_cache import PlanCache, PlanRoom
from herdpy.engine.tablespaces import Tablespaces
from herdpy.errors import OperationalError, Retry
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
        tenant: Tenant | None = None,
    ) -> None:
        """Take what it will be opened with.

        `where` is how messages name it; temp_directory is where DuckDB may spill. With
        is_threaded False there are no threads: commits sync in the caller, and run_checkpoint() is
        the caller's to call (simulation). logs: where a tablespace's log comes from. The governor
        is the process's; None: the directory is alone in it. new_plans makes the plans of a
        tablespace. cluster: what is known of the cluster whose node's it is; None: of none.
        tenant: it is a copy of a node, whose governor, threads and folder to spill to it has, and
        not those given here; None: it has its own.
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
        self._tenant = tenant
        self.resources = resources = (
            Resources(
                clock=clock,
                driver=driver,
                config=config,
                where=where,
                temp_directory=temp_directory,
                is_threaded=is_threaded,
                governor=governor,
            )
            if tenant is None
            else tenant.resources
        )
        self.memory = resources.memory
        self.results = resources.results
        self.session_ids, self.statement_ids = resources.session_ids, resources.statement_ids
        self.vectors = resources.vectors
        self.sync_threads = resources.sync_threads
        self.wake = resources.housekeeper.wake
        self.plan_room = resources.plan_room
        self.new_plans = new_plans
        self._generation = process_generation()
        self.default: Database
        self._looking = new_mutex()
        """Held for a round of look_after()."""
        # By the housekeeper.
        self.is_tight = False
        """All memtables together have more than their share."""
        self.tablespaces = Tablespaces(self)
        self.is_closed = False
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
        if self.sync_threads is not None:  # there are threads
            self.resources.housekeeper.add(self)

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

    def open_memory(self, entry: TablespaceEntry, config: Config) -> TablespaceMemory:
        """Return new accounts of a tablespace with these settings; its Database closes them."""
        if self._tenant is not None:
            return self._tenant.open_memory(config)
        name = None if entry.folder == DIRECTORY else entry.name
        return TablespaceMemory(self.memory, name, config)

    def vector_owner(self, entry: TablespaceEntry) -> str:
        """Return what DuckDB's instances know a tablespace by."""
        return entry.folder if self._tenant is None else self._tenant.id

    def watch(self, interrupt: StatementInterrupt) -> None:
        """Have a statement stopped where it cannot look; without threads, by cancel() alone."""
        if self.resources.watch is not None:
            interrupt.watch = self.resources.watch

    # --- maintenance -----------------------------------------------------------------------------

    def look_after(self) -> None:
        """Do what is due in every tablespace; by the housekeeper alone."""
        with self._looking:
            if self.is_closed:
                return
            memtables = sum(each.bytes_used for each in memtables_of(self.memory))
            self.is_tight = memtables > self.config.memtable_bytes_max
            for database in self.tablespaces.databases():
                database.look_after()
            self.tablespaces.look_again()

    def _leave(self) -> None:
        """Have the housekeeper look after it no more, and wait for a round that is under way."""
        self.resources.housekeeper.remove(self)
        with self._looking:
            pass

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
        """Return what has nothing look after it any more; all repeatable."""
        return self.resources.stopping_steps() if self._tenant is None else [self._leave]

    def _closing_steps(self) -> list[Callable[[], object]]:
        """Return what lets go of all that tablespaces share; all repeatable."""
        steps = self._stopping_steps()
        if self._tenant is None:
            steps += self.resources.closing_steps()
        elif "default" in vars(self):
            steps += self._tenant.closing_steps(self.default.refusals, self._ended_error())
        if self._lock is not None:
            steps.append(self._lock.close)
        return steps

    def _ended_error(self) -> OperationalError:
        """Return what they are told who read on what a copy has been asked for."""
        return OperationalError(
            "the result was ended: this node has closed its copy of the tablespace",
            sqlstate="57P01",
            retry=Retry.SAFE,
            hint="Run the query again; another node may lead now.",
        )
