"""Database: one tablespace that is open, with its sessions and what is to be done for it.

What all tablespaces of a directory share is their instance's (instance.py): lock, memory, plans,
DuckDB, threads. Its files: directory.py.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from bookie.runtime.drivers import new_mutex
from bookie.runtime.os_process import process_generation
from herdpy.engine.access.passwords import Login
from herdpy.engine.access.rows import (
    grant_rows,
    member_rows,
    role_rows,
    role_setting_rows,
    sequence_rows,
    user_rows,
    view_rows,
)
from herdpy.engine.cluster_rows import log_rows, node_rows, replica_rows
from herdpy.engine.limit_rows import (
    CONNECTIONS_MAX,
    LimitRows,
    WaitRow,
    engine_limits,
    engine_waits,
    shown_waits,
    wait_rows,
)
from herdpy.engine.maintenance.directory import (
    DIRECTORY,
    LOGS,
    RESTORE,
    SEGMENTS,
    cannot_open_error,
)
from herdpy.engine.maintenance.quiet import QuietWatch
from herdpy.engine.maintenance.replica import Replica
from herdpy.engine.maintenance.tasks import MaintenanceTask, Retries
from herdpy.engine.sequences.values import give_back, last_value
from herdpy.engine.session.activity import (
    Client,
    client_rows,
    end_lost_session,
    kill_session,
    kill_statement,
    statement_rows,
)
from herdpy.engine.session.session import Session
from herdpy.engine.state.commit_tokens import new_session_name
from herdpy.engine.state.error_messages import forked_error
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.snapshot_leases import lease_rows
from herdpy.engine.state.staged import staging_rows
from herdpy.engine.state.system_tables import SYSTEM_TABLES, SystemRows
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.refusals import Refusals
from herdpy.engine.statements.shared_plans import SharedPlans
from herdpy.engine.tablespace_rows import tablespace_rows
from herdpy.engine.vector_engines import Bounds, TablespaceVectors
from herdpy.engine.writes.staging_uses import StagingUses
from herdpy.errors import Error, InterfaceError, OperationalError, Retry, loading
from herdpy.log.interfaces import LogSpaceError
from herdpy.model.access import Access, Fact, User
from herdpy.model.durability import Durability
from herdpy.model.role_settings import NO_MAXIMA, Maxima
from herdpy.model.settings import Settings
from herdpy.storage.tablespace_list import DEFAULT, TablespaceEntry

if TYPE_CHECKING:
    from herdpy.engine.instance import Instance
    from herdpy.engine.maintenance.backup import Backup
    from herdpy.engine.maintenance.dump import Dump
    from herdpy.engine.state.disk_space import DiskSpace
    from herdpy.engine.tablespaces import Tablespaces
    from herdpy.exec.vector.duck import VectorEngine


class Database:
    """One tablespace of an instance, open: what its sessions work in. Any thread may call.

    Made by its instance: start() gives `default`, database() any of them.
    """

    def __init__(self, instance: "Instance", entry: TablespaceEntry) -> None:
        # Constant after open().
        self.instance = instance
        self.disk = instance.disk
        self.clock = clock = instance.clock
        self.rng = instance.rng
        self.driver = instance.driver
        self.config = config = instance.config_of(entry)
        self.where = instance.where_of(entry)
        self.results = instance.results
        self.statement_ids = instance.statement_ids
        self.plans = instance.new_plans(instance.plan_room)
        self.shared_plans = SharedPlans(self.config.plan_cache_entries_max)
        self.refusals = Refusals()
        self.limits = LimitRows()
        self.limits.add(partial(engine_limits, self), partial(engine_waits, self))
        self.vectors = TablespaceVectors(
            instance.vectors, instance.vector_owner(entry), self.refusals.add_query
        )
        self.vectors.bounds = self._query_bounds(entry)
        self._generation = process_generation()
        self.replica: Replica
        self.tablespace: Tablespace
        """The replica's."""
        self.stagings = StagingUses(clock, config.staging_timeout_s)
        # Set by the instance.
        self.entry = entry
        self.memory = instance.open_memory(entry, config)
        self.holders: list[Callable[[], object]] = []
        """Called before its files are closed: what holds some without a session lets go of them."""
        self._looking = new_mutex()
        """Held for a round of look_after(), and while files are let go of."""
        # Own lock.
        self._mutex = new_mutex()
        self._sessions: dict[int, Session] = {}
        """By their ids."""
        self._is_closing = False
        self._is_closed = False
        self._looked_access: Access | None = None  # when dropped users were last looked for
        self.retries = Retries(clock)
        """Of the maintenance thread."""
        self._quiet = QuietWatch(clock)

    @property
    def name(self) -> str:
        """The tablespace's, which ALTER TABLESPACE may change."""
        return self.entry.name

    def start(self) -> None:
        """Recover the tablespace and begin to serve it; the instance holds the directory's lock.

        CorruptionError: damage, named. On any error close_files() lets go of what was opened.
        """
        disk, instance, entry = self.disk, self.instance, self.entry
        self.replica = replica = Replica(
            entry.folder,
            entry.name,
            disk,
            self.clock,
            self.rng,
            self.config,
            instance.sync_threads,
            instance.wake,
            instance.logs,
            self.where,
            self.memory,
            instance.reserve,
        )
        if replica.manifest.state.is_empty:
            # Its maker may have been killed between FORMAT's rename and the sync of its name:
            # data must not be there before FORMAT surely is.
            disk.sync_directory("")
        is_restoring = entry.folder == DIRECTORY and disk.exists(RESTORE)
        replica.open(is_restoring=is_restoring)
        if is_restoring:
            # What it left, log files of the former database as well, is gone before its mark is.
            replica.tablespace.log.free_spares()
            disk.sync_directory(LOGS)
            disk.sync_directory(SEGMENTS)
            disk.unlink(RESTORE)
        replica.spilled_bytes = self.vectors.spilled
        replica.limit_disk(entry.limits.disk_bytes_max)
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
            "sysclients": lambda _: client_rows(self._shown_sessions()),
            "sysstatements": lambda _: statement_rows(self._shown_sessions(), self.clock),
            "sysusers": user_rows,
            "sysroles": role_rows,
            "sysmembers": member_rows,
            "sysrolesettings": role_setting_rows,
            "sysgrants": lambda catalog: grant_rows(catalog, self.name),
            "syslimits": lambda _: self.limits.limit_rows(),
            "syswaits": lambda _: wait_rows(self.waits()),
            "sysstagings": lambda _: staging_rows(tablespace.state.staged),
            "sysdisks": lambda _: [(self.name, *replica.space.figures())],
            "sysleases": lambda _: lease_rows(tablespace.applier.leases, self.clock.monotonic()),
            "sysmemory": lambda _: self.memory.rows(),
            "sysmaintenance": lambda _: self.retries.rows(),
            "systablespaces": lambda _: tablespace_rows(self),
            "sysnodes": lambda _: node_rows(self),
            "systablespacereplicastate": lambda _: replica_rows(self),
            "syslog": lambda _: log_rows(self),
            "sysviews": view_rows,
            "syssequences": lambda catalog: sequence_rows(
                catalog, partial(last_value, tablespace.applier)
            ),
        }
        tablespace.registry.system |= {SYSTEM_TABLES[name].id: rows[name] for name in rows}
        tablespace.start()

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
        number = next(self.instance.session_ids)
        session = Session(
            self, settings, autocommit=autocommit, id=number, client=client, user=user
        )
        with self._mutex:
            if self._is_closing and self.entry.folder != DIRECTORY:
                raise OperationalError(
                    f'tablespace "{self.name}" is being closed, or dropped',
                    sqlstate="57P03",
                    retry=Retry.SAFE,
                )
            self.check_usable()
            if self._is_closing:
                raise self._closed_error()
            self._check_room_for_session()
            self._sessions[number] = session
        session.end_if_dropped()  # meanwhile, by a statement that did not see the session
        return session

    def _check_room_for_session(self) -> None:
        maximum, count = self.entry.limits.connections_max, len(self._sessions)
        if maximum is not None and count >= maximum:
            self.refusals.add(CONNECTIONS_MAX)
            raise OperationalError(
                f'{count} sessions of tablespace "{self.name}" are open, more are not allowed',
                sqlstate="53300",
                retry=Retry.SAFE,
                hint="Close some, or share them by a pool; the limit is the tablespace's: "
                "ALTER TABLESPACE … SET (connections_max = …).",
            )

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
            kill_session(self._shown_sessions(), number, killer)
        else:
            kill_statement(self._shown_sessions(), number)

    def _shown_sessions(self) -> list[Session]:
        """Return the sessions that its superusers see and may end: in `default` those of all."""
        return self.tablespaces.sessions() if self.name == DEFAULT else self.sessions()

    @property
    def tablespaces(self) -> "Tablespaces":
        """Those of the directory that it is of."""
        return self.instance.tablespaces

    def waits(self) -> list[WaitRow]:
        """Return which sessions wait, the longest wait first; of `default` those of all."""
        return shown_waits(self.tablespaces.databases() if self.name == DEFAULT else [self])

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

    @property
    def space(self) -> "DiskSpace":
        return self.replica.space

    @property
    def failure(self) -> Error | None:
        """Why nothing can be written any more, until it is opened anew; None: all is well."""
        tablespace = self.tablespace
        return tablespace.failure or tablespace.log.failure or self.replica.manifest.failure

    def refuse_sessions(self, what: str, *, is_forced: bool) -> None:
        """Let no session in any more, to be closed next; 55006, unless forced: some are open."""
        with self._mutex:
            count = len(self._sessions)
            if count and not is_forced:
                raise OperationalError(
                    f"{what}: {count} sessions use it",
                    sqlstate="55006",
                    retry=Retry.SAFE,
                    hint="Close their connections, or end them: KILL CONNECTION (sysclients lists "
                    "them), DROP TABLESPACE … WITH (FORCE).",
                )
            self._is_closing = True

    def let_sessions_in(self) -> None:
        """Go on as before refuse_sessions()."""
        with self._mutex:
            self._is_closing = False

    def kill_sessions(self, error: Error) -> None:
        """End all sessions, behind refuse_sessions(); what runs is cancelled. Never waits."""
        for session in self.sessions():
            session.kill(error)

    def begin_access(self, facts: Sequence[Fact]) -> None:
        """Log the first roles of a new tablespace; durable on return."""
        if not facts:
            return
        tablespace = self.tablespace
        outcome = with_log_space(tablespace, partial(tablespace.log_access, facts))
        tablespace.request(Durability.SYNC)
        tablespace.apply_rest()
        self.driver.wait(outcome)
        outcome.result()

    def take_entry(self, entry: TablespaceEntry) -> None:
        """Have another name, or other limits, from now on."""
        self.entry = entry
        self.tablespace.name = entry.name
        self.memory.rename(entry.name)
        self.where = self.instance.where_of(entry)
        self.config = config = self.instance.config_of(entry)
        self.memory.resize(config)
        self.vectors.bounds = self._query_bounds(entry)
        self.replica.limit_disk(entry.limits.disk_bytes_max)
        self.replica.resize(config)

    def _query_bounds(self, entry: TablespaceEntry) -> Bounds:
        """Return what its queries may have: DuckDB's share of its memory, and of the disk all."""
        has_limit = entry.limits.memory_bytes_max is not None
        memory_bytes = self.config.vector_bytes_max if has_limit else None
        return Bounds(memory_bytes, entry.limits.disk_bytes_max)

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

    def is_administrator(self, user: str | None) -> bool:
        """Tell whether a user is a superuser of `default`, for whom the last places are kept.

        Superusers of another tablespace may do everything in it, and are many: they have none of
        these, or they would keep out the administrator, who has to end them. Any thread.
        """
        return self.name == DEFAULT and self.is_superuser(user)

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

        tablespace = self.tablespace
        return Dump(tablespace.snapshot(None), partial(last_value, tablespace.applier), self.name)

    @contextmanager
    def at_rest(self) -> Generator[None, None, None]:
        """Keep look_after(), checkpoints and compactions away for as long as the block runs."""
        with self._looking, self.replica.at_rest():
            yield

    def look_after(self) -> None:
        """Do what is due, step by step; by the instance's housekeeper alone."""
        with self._looking:
            if not self._is_closed:  # by DROP TABLESPACE
                self._look_after()

    def _look_after(self) -> None:
        try:
            tasks = self._session_tasks()
            tablespace = self.tablespace
            if not self._quiet.is_quiet(
                tablespace.state, tablespace.log.bytes_appended, is_busy=self._is_busy
            ):
                tasks += self._tablespace_tasks()
            if tasks:
                self.retries.run(tasks)
        except Exception as error:  # noqa: BLE001 - noted; no step was begun, or it is noted
            self.retries.note(error)
        except BaseException as error:
            self.tablespace.stop(error)
            raise

    @property
    def _is_busy(self) -> bool:
        """Something is to be done, or ends by itself, though nothing is written."""
        tablespace, replica = self.tablespace, self.replica
        return bool(
            self.instance.is_tight
            or len(tablespace.applier.leases)
            or tablespace.state.staged.jobs
            or tablespace.room.is_wanted
            or replica.is_busy
            or self.retries.failed
        )

    def run_maintenance_once(self) -> None:
        """Do what is due, all of it and now; the first error is raised."""
        for task in self._tasks():
            task.run()

    def _tasks(self) -> list[MaintenanceTask]:
        """Return what the housekeeper looks after: sessions, and Replica.tasks()."""
        return [*self._session_tasks(), *self._tablespace_tasks()]

    def _session_tasks(self) -> list[MaintenanceTask]:
        now_s = self.clock.monotonic()
        tasks = [
            MaintenanceTask(
                f"session {session.id}", partial(session.look_after, now_s), session.fail
            )
            for session in list(self._sessions.values())
        ]
        if self.entry.folder == DIRECTORY:  # of all tablespaces
            tasks.append(MaintenanceTask("unread results", self.results.look_after))
        return tasks

    def _tablespace_tasks(self) -> list[MaintenanceTask]:
        return [
            MaintenanceTask("dropped users", self.end_dropped_users),
            *self.replica.tasks(
                self._expired_sessions, lambda: self.stagings.to_end(self.tablespace.state.staged)
            ),
        ]

    def _expired_sessions(self) -> list[str]:
        """Return sessions that are gone, the oldest first, when outcomes of many are kept."""
        sessions = self.sessions()
        live = {session.token_session for session in sessions}
        busy = [session.token_session for session in sessions if session.in_transaction]
        return self.tablespace.applier.tokens.to_expire(live, busy)

    def watch(self, interrupt: StatementInterrupt) -> None:
        """Have a statement stopped where it cannot look; without threads, by cancel() alone."""
        self.instance.watch(interrupt)

    def close(self) -> None:
        """Close the tablespace, see end(); that of `default` closes its instance, with all others.

        Repeatable. In a forked child nothing is touched.
        """
        self.instance.close_database(self)

    def end(self) -> list[Callable[[], object]]:
        """Roll back open transactions, and return the steps that let go of files; repeatable.

        Statements of other threads are cancelled. By the instance.
        """
        with self._mutex:
            self._is_closing = True
            sessions = list(self._sessions.values())
        for session in sessions:
            session.cancel()  # all at once: one may wait for what another is doing
        if "tablespace" in vars(self):
            self.tablespace.end_hold()
        for session in sessions:
            session.close()
        if "tablespace" in vars(self) and not self.tablespace.follows:
            with suppress(Error, LogSpaceError):  # it costs numbers that nothing has used
                self.tablespace.run_writing(partial(give_back, self.tablespace))
        with self._mutex:
            self._is_closed = True
        return self.closing_steps()

    def closing_steps(self) -> list[Callable[[], object]]:
        """Return what lets go of files, as far as there is any; all repeatable."""
        made = vars(self)  # start() may not have come to these
        steps = self.replica.closing_steps() if "replica" in made else []
        pages = [self._let_go_of_pages] if "tablespace" in made else []
        own = [self.vectors.close, self.plans.clear, self.memory.close]
        return [*self.holders, *steps, *pages, *own]

    def _let_go_of_pages(self) -> None:
        """Forget the rows: the files that DROP removes take room for as long as they are mapped."""
        self.replica.let_go_of_pages()
        self._quiet = QuietWatch(self.clock)  # which has the state, too

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def mark_closed(self) -> None:
        """Have every later call fail: it could not be opened."""
        self._is_closed = True
