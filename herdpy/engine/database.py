"""Database: one open directory (or memory) with its tablespace, sessions and maintenance.

Its files: directory.py.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

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
from herdpy.engine.access.passwords import Login
from herdpy.engine.access.rows import (
    grant_rows,
    member_rows,
    role_rows,
    role_setting_rows,
    user_rows,
)
from herdpy.engine.limit_rows import LimitRows, engine_limits, engine_waits
from herdpy.engine.maintenance.directory import (
    DIRECTORY,
    LOCK,
    LOGS,
    RESTORE,
    SEGMENTS,
    cannot_open_error,
    check_ours,
    create_if_new,
    locked_error,
)
from herdpy.engine.maintenance.file_logs import OpenLog, open_file_log
from herdpy.engine.maintenance.replica import TICK_S, Replica
from herdpy.engine.maintenance.tasks import MaintenanceTask, Retries
from herdpy.engine.session.activity import (
    Client,
    client_rows,
    end_lost_session,
    kill_session,
    kill_statement,
    statement_rows,
)
from herdpy.engine.session.session import Session
from herdpy.engine.state.commit_tokens import new_session_name, stamp_of
from herdpy.engine.state.error_messages import forked_error
from herdpy.engine.state.memory import TablespaceMemory
from herdpy.engine.state.snapshot_leases import lease_rows
from herdpy.engine.state.staged import staging_rows
from herdpy.engine.state.system_tables import SYSTEM_TABLES, SystemRows
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.statements.aside import Aside
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.plan_cache import PlanCache
from herdpy.engine.statements.refusals import Refusals
from herdpy.engine.statements.result_places import ResultPlaces
from herdpy.engine.statements.stopper import Stopper
from herdpy.engine.vector_engines import VectorEngines
from herdpy.engine.writes.staging_uses import StagingUses
from herdpy.errors import InterfaceError, OperationalError, loading
from herdpy.model.access import Access, User
from herdpy.model.governor import Governor
from herdpy.model.role_settings import NO_MAXIMA, Maxima
from herdpy.model.settings import Settings

if TYPE_CHECKING:
    from herdpy.engine.maintenance.backup import Backup
    from herdpy.engine.maintenance.dump import Dump
    from herdpy.exec.vector.duck import VectorEngine


class Database:
    """Made by Database.open(); close() ends it. Any thread may call."""

    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        driver: Driver,
        config: Config,
        where: str,
        temp_directory: str | None,
        governor: Governor,
        plans: PlanCache | None,
    ) -> None:
        # Constant after open().
        self.disk = disk
        self.clock = clock
        self.rng = rng
        self.driver = driver
        self.config = config
        self.where = where
        self.memory = TablespaceMemory(governor, where, config)
        self.plans = plans or PlanCache(config.plan_cache_entries_max, config.plan_cache_bytes_max)
        self.refusals = Refusals()
        self.results = ResultPlaces(clock, config.vector_results_max, self.refusals)
        self.limits = LimitRows()
        self.limits.add(partial(engine_limits, self), partial(engine_waits, self))
        self.statement_ids = count(1)
        self._session_ids = count(1)
        self._aside = Aside(driver, clock)
        self.vectors = VectorEngines(
            config,
            clock,
            temp_directory,
            self._aside,
            self.refusals.add_query,
        )
        self._generation = process_generation()
        self.replica: Replica
        self.tablespace: Tablespace
        """The replica's."""
        self.stagings = StagingUses(clock, config.staging_timeout_s)
        # Own lock.
        self._mutex = new_mutex()
        self._sessions: dict[int, Session] = {}
        """By their ids."""
        self._is_closing = False
        self._is_closed = False
        self._looked_access: Access | None = None  # when dropped users were last looked for
        self._bell = driver.new_bell()
        self._maintainer: Worker | None = None
        self._lock: DirectoryLock | None = None
        self.retries = Retries(clock)
        """Of the maintenance thread."""
        self._stopper = Stopper(driver, clock)

    @classmethod
    def open(
        cls,
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
        plans: PlanCache | None = None,
    ) -> "Database":
        """Open or create the database on `disk`, recovered and ready.

        `where` is how messages name it; temp_directory is where DuckDB may spill. With
        is_threaded False there is no syncer and no maintenance thread: commits sync in the caller,
        and run_checkpoint() is the caller's to call (simulation). open_log makes its log. The
        governor is the process's, `plans` keeps plans; None: the database has its own.
        OperationalError 55006: another process has it open. CorruptionError: damage, named.
        """
        self = cls(
            disk=disk,
            clock=clock,
            rng=rng,
            driver=driver,
            config=config,
            where=where,
            temp_directory=temp_directory,
            governor=governor or Governor(),
            plans=plans,
        )
        try:
            self._open(open_log, is_threaded=is_threaded)
            return self  # in the try: an interrupt at this line would leave it open and lost
        except BaseException as error:
            self._is_closed = True
            _close_all(self._closing_steps())
            if isinstance(error, DiskLockedError):
                raise locked_error(where, error.owner) from error
            if isinstance(error, OSError):
                raise cannot_open_error(where, error) from error
            raise

    def _open(self, open_log: OpenLog, *, is_threaded: bool) -> None:
        disk, driver = self.disk, self.driver
        check_ours(disk, self.where)
        self._lock = disk.lock(LOCK, describe_process())
        create_if_new(disk, self.rng)
        self.replica = replica = Replica(
            DIRECTORY,
            disk,
            self.clock,
            self.rng,
            self.config,
            driver if is_threaded else None,
            self._bell.ring,
            open_log,
            self.where,
            self.memory,
        )
        if replica.manifest.state.is_empty:
            # Its maker may have been killed between FORMAT's rename and the sync of its name:
            # data must not be there before FORMAT surely is.
            disk.sync_directory("")
        is_restoring = disk.exists(RESTORE)
        replica.open(is_restoring=is_restoring)
        if is_restoring:
            # What it left, log files of the former database as well, is gone before its mark is.
            replica.tablespace.log.free_spares()
            disk.sync_directory(LOGS)
            disk.sync_directory(SEGMENTS)
            disk.unlink(RESTORE)
        self.tablespace = tablespace = replica.tablespace
        sessions = self._sessions
        tablespace.has_others = lambda: len(sessions) > 1
        tablespace.others_run = self._others_run
        # Bound, a call less on the way of each write.
        self.after_write = replica.after_write
        self.next_write_s = replica.next_write_s
        self.make_room = replica.make_room
        self.after_staging = replica.after_staging
        self.check_room = replica.check_room
        self.without_maintenance = replica.without_maintenance
        rows: dict[str, SystemRows] = {
            "sysclients": lambda _: client_rows(self.sessions()),
            "sysstatements": lambda _: statement_rows(self.sessions(), self.clock),
            "sysusers": user_rows,
            "sysroles": role_rows,
            "sysmembers": member_rows,
            "sysrolesettings": role_setting_rows,
            "sysgrants": lambda catalog: grant_rows(catalog, DIRECTORY),
            "syslimits": lambda _: self.limits.limit_rows(),
            "syswaits": lambda _: self.limits.wait_rows(),
            "sysstagings": lambda _: staging_rows(tablespace.state.staged),
            "sysdisks": lambda _: [(DIRECTORY, *replica.space.figures())],
            "sysleases": lambda _: lease_rows(tablespace.applier.leases, self.clock.monotonic()),
            "sysmemory": lambda _: self.memory.rows(),
            "sysmaintenance": lambda _: self.retries.rows(),
        }
        tablespace.registry.system |= {SYSTEM_TABLES[name].id: rows[name] for name in rows}

        tablespace.start()
        if is_threaded:
            self._maintainer = driver.spawn("herdpy-maintenance", self._run_maintenance)

    # --- sessions --------------------------------------------------------------------------------

    def session(
        self,
        settings: Settings,
        *,
        autocommit: bool = False,
        client: Client = Client(),  # noqa: B008 - immutable
        user: str | User | None = None,
    ) -> Session:
        """Return a new session, with the rights of the user, or with all of them for None.

        OperationalError 28000: there is no such user (any more).
        """
        access = self.tablespace.state.catalog.access
        if isinstance(user, str):
            user = access.user(user) or User(user, 0)
        if user is not None and not access.has(user):
            raise OperationalError(f'there is no user "{user.name}"', sqlstate="28000")
        number = next(self._session_ids)
        session = Session(
            self, settings, autocommit=autocommit, id=number, client=client, user=user
        )
        with self._mutex:
            self.check_usable()
            if self._is_closing:
                raise self._closed_error()
            self._sessions[number] = session
        session.end_if_dropped()  # meanwhile, by a statement that did not see the session
        return session

    def sessions(self) -> list[Session]:
        """Return the sessions that are open now, the oldest first."""
        return list(self._sessions.values())

    def _others_run(self) -> bool:
        """Return whether a statement runs beside the one that asks."""
        sessions = self._sessions
        if len(sessions) <= 1:
            return False
        return sum(session.running is not None for session in list(sessions.values())) > 1

    def kill(self, killer: int, number: int, *, is_connection: bool) -> None:
        """Stop a statement, or end a session, by its number; 42704 when there is none."""
        if is_connection:
            kill_session(self.sessions(), number, killer)
        else:
            kill_statement(self.sessions(), number)

    def end_lost(self, asker: int, user: User | None, token_session: str) -> None:
        """End the user's session of these tokens, lost by its client, if it holds locks."""
        end_lost_session(self.sessions(), token_session, asker, user)

    def end_dropped_users(self) -> None:
        """End the sessions whose users were dropped, and forget these. Any thread; never waits."""
        access = self.tablespace.state.catalog.access
        if access is not self._looked_access:
            self._looked_access = access
            for session in self.sessions():
                session.end_if_dropped()
            self.refusals.forget_dropped(access)

    def new_token_session(self) -> str:
        """Return a name for commit tokens that is unique and cannot be guessed."""
        horizon = self.tablespace.applier.tokens.horizon
        random = self.rng.randbytes(16)
        return new_session_name(self.clock.wall_us(), horizon, random, self.login_secret)

    def forget_session(self, number: int) -> None:
        with self._mutex:
            self._sessions.pop(number, None)

    def login(self, user: str) -> Login | None:
        """Return how a user may log in now, None when there is no such user. Any thread."""
        role = self.tablespace.state.catalog.access.role(user)
        if role is None:
            return None
        until_us = role.valid_until_us
        is_valid = until_us is None or self.clock.wall_us() < until_us
        verifier = role.verifier if is_valid else None
        return Login(verifier, role.can_login, User(user, role.id))

    def is_superuser(self, user: str | None) -> bool:
        """Tell whether a user may do everything, as a session without one may. Any thread."""
        role = None if user is None else self.tablespace.state.catalog.access.role(user)
        return user is None or (role is not None and role.is_superuser)

    def maxima_of(self, user: User) -> Maxima:
        """Return what a user may have at most now. Any thread."""
        return self.tablespace.state.catalog.access.maxima_of(user.name)

    @property
    def has_logins(self) -> bool:
        """True when some user can log in with a password."""
        return self.tablespace.state.catalog.access.has_logins

    @property
    def login_secret(self) -> bytes | None:
        """What makes the salts of users who do not exist; None: no password was ever set."""
        return self.tablespace.state.catalog.access.login_secret

    def check_usable(self) -> None:
        """Raise when closed, or in a forked child, which must never touch files or locks."""
        if process_generation() != self._generation:
            raise forked_error()
        if self._is_closed:
            raise self._closed_error()

    def _closed_error(self) -> InterfaceError:
        return InterfaceError(f"the database {self.where} is closed")

    def vector_of(self, user: User | None) -> "VectorEngine":
        """Return the vector path for a user's queries, started on first use. Any thread."""
        maxima = NO_MAXIMA if user is None else self.maxima_of(user)
        return self.vectors.of(user, maxima)

    # --- maintenance -----------------------------------------------------------------------------

    def run_checkpoint(self, check: Callable[[], object] | None = None) -> bool:
        """Write a checkpoint now; False when nothing changed. Any thread; they take turns.

        check() raises when the caller is cancelled that waits for its turn.
        """
        self.check_usable()
        return self.replica.run_checkpoint(check)

    def run_compaction(self) -> bool:
        """Do the piece of compaction most worth it now; False when none is. Any thread."""
        self.check_usable()
        return self.replica.run_compaction()

    def backup(self) -> "Backup":
        """Return a backup as of now, see Replica.backup(). Any thread; the caller closes it."""
        self.check_usable()
        return self.replica.backup(self.rng.randbytes(16))

    def reopen(self) -> None:
        """Open the log anew, with all sessions, see Replica.reopen(). Any thread."""
        self.check_usable()
        try:
            self.replica.reopen()
        except OSError as error:
            raise cannot_open_error(self.where, error) from error
        self.end_dropped_users()

    def dump(self) -> "Dump":
        """Begin a dump of what is committed now. Any thread; the caller closes it."""
        self.check_usable()
        with loading():
            from herdpy.engine.maintenance.dump import Dump

        return Dump(self.tablespace.snapshot(None))

    def _run_maintenance(self) -> None:
        while not self._is_closed:
            self._bell.wait(TICK_S)
            if self._is_closed:
                return
            try:
                self.retries.run(self._tasks())
            except Exception as error:  # noqa: BLE001 - noted; no step was begun, or it is noted
                self.retries.note(error)
            except BaseException as error:
                self.tablespace.stop(error)
                raise

    def run_maintenance_once(self) -> None:
        """Do what is due, all of it and now; the first error is raised."""
        for task in self._tasks():
            task.run()

    def _tasks(self) -> list[MaintenanceTask]:
        """Return what the maintenance thread looks after: sessions, and Replica.tasks()."""
        now_s = self.clock.monotonic()
        sessions = list(self._sessions.values())
        return [
            *(
                MaintenanceTask(
                    f"session {session.id}", partial(session.look_after, now_s), session.fail
                )
                for session in sessions
            ),
            MaintenanceTask("dropped users", self.end_dropped_users),
            MaintenanceTask("unread results", self.results.look_after),
            *self.replica.tasks(
                self._expired_sessions, lambda: self.stagings.to_end(self.tablespace.state.staged)
            ),
        ]

    def _expired_sessions(self) -> list[str]:
        """Return sessions that are gone, the oldest first, when outcomes of many are kept."""
        sessions = self.sessions()
        live = {session.token_session for session in sessions}
        busy = [stamp_of(each.token_session) for each in sessions if each.in_transaction]
        return self.tablespace.applier.tokens.to_expire(live, min(busy, default=None))

    def watch(self, interrupt: StatementInterrupt) -> None:
        """Have a statement stopped where it cannot look; without threads, by cancel() alone."""
        if self._maintainer is not None:
            interrupt.watch = self._stopper.watch

    def close(self) -> None:
        """Roll back open transactions, make everything durable, let go of the files; repeatable.

        Statements of other threads are cancelled. In a forked child nothing is touched.
        """
        if process_generation() != self._generation:
            return
        with self._mutex:
            self._is_closing = True
            sessions = list(self._sessions.values())
        for session in sessions:
            session.cancel()  # all at once: one may wait for what another is doing
        self.tablespace.end_hold()
        for session in sessions:
            session.close()
        with self._mutex:
            self._is_closed = True
        _close_all(self._closing_steps())

    def _closing_steps(self) -> list[Callable[[], object]]:
        """Return what lets go of threads and files, as far as there is any; all repeatable."""
        steps: list[Callable[[], object]] = [self._bell.ring, self._stopper.close]
        if self._maintainer is not None:
            steps.append(self._maintainer.join)
        made = vars(self)  # open() may not have come to these
        if "replica" in made:
            steps += self.replica.closing_steps()
        steps += [*self.vectors.closing_steps(), self._aside.close]
        if self._lock is not None:
            steps.append(self._lock.close)
        return [*steps, self.memory.close]


def _close_all(steps: list[Callable[[], object]]) -> None:
    """Run every step, also behind a failing one; raise the first error."""
    if not steps:
        return
    try:
        steps[0]()
    finally:
        _close_all(steps[1:])
