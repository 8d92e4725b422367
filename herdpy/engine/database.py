"""Database: one open directory (or memory) with its tablespace, sessions and housekeeping.

Files: FORMAT (what this directory is), LOCK (who has it open), default/MANIFEST, default/log/,
default/segments/, default/temp/. FORMAT is written last, so that an interrupted creation is begun
again and a directory of someone else's is never written to.
"""

import errno
from collections.abc import Callable
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
from herdpy.engine.checkpoint import run_checkpoint
from herdpy.engine.faults import disk_error
from herdpy.engine.prepared import PlanCache
from herdpy.engine.recovery import recover_tablespace
from herdpy.engine.session import Session
from herdpy.engine.settings import Settings
from herdpy.engine.tablespace import Tablespace
from herdpy.errors import (
    CorruptionError,
    Error,
    InterfaceError,
    NotSupportedError,
    OperationalError,
)
from herdpy.log.syncer import GroupSyncer, InlineSyncer, Syncer
from herdpy.storage.manifest import Manifest

if TYPE_CHECKING:
    from herdpy.exec.vector.duck import VectorEngine

FORMAT_VERSION = 1
_FORMAT = "FORMAT"
_LOCK = "LOCK"
_DIRECTORY = "default"
_PARTS = ("log", "segments", "temp")
_TICK_S = 0.5


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
    ) -> None:
        # Constant after open().
        self.disk = disk
        self.clock = clock
        self.rng = rng
        self.driver = driver
        self.config = config
        self.where = where
        self.plans = PlanCache(config.plan_cache_entries_max, config.plan_cache_bytes_max)
        self._temp_directory = temp_directory
        self._generation = process_generation()
        self.tablespace: Tablespace
        self.manifest: Manifest
        self._syncer: Syncer
        # Own lock.
        self._mutex = new_mutex()
        self._vector: VectorEngine | None = None
        self._sessions: dict[Session, None] = {}
        self._is_closed = False
        # Held by whoever checkpoints or compacts.
        self._maintenance = new_mutex()
        self._checkpoint_bytes = 0  # of the log, at the last checkpoint
        self._bell = driver.new_bell()
        self._housekeeper: Worker | None = None
        self._lock: DirectoryLock | None = None
        self.housekeeping_error: Exception | None = None

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
    ) -> "Database":
        """Open or create the database on `disk`, recovered and ready.

        `where` is how messages name it; temp_directory is where DuckDB may spill. With
        is_threaded False there is no syncer and no housekeeper: commits sync in the caller, and
        run_checkpoint() is the caller's to call (simulation).
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
        )
        try:
            _check_ours(disk, where)
            lock = disk.lock(_LOCK, describe_process())
        except DiskLockedError as error:
            raise _locked(where, error.owner) from error
        except OSError as error:
            raise _cannot_open(where, error) from error
        self._lock = lock
        try:
            _create_if_new(disk, rng)
            self.manifest = Manifest.open(disk, f"{_DIRECTORY}/MANIFEST")
            self.tablespace = recover_tablespace(
                _DIRECTORY, disk, _DIRECTORY, self.manifest, config, clock
            )
        except OSError as error:
            lock.close()
            raise _cannot_open(where, error) from error
        except BaseException:
            lock.close()
            raise
        tablespace = self.tablespace

        def on_progress() -> None:
            try:
                tablespace.on_progress()
            except Exception as error:
                tablespace.stop(error)  # a syncer that dies must not leave anyone waiting
                raise

        def on_failure(_error: Error) -> None:
            on_progress()  # fails those who wait; the log keeps the error

        if is_threaded:
            self._syncer = GroupSyncer(tablespace.log, driver, on_progress, on_failure)
        else:
            self._syncer = InlineSyncer(tablespace.log, on_progress, on_failure)
        tablespace.start(self._syncer)
        if is_threaded:
            self._housekeeper = driver.spawn("herdpy-housekeeper", self._keep_house)
        return self

    # --- sessions --------------------------------------------------------------------------------

    def session(self, settings: Settings, *, autocommit: bool = False) -> Session:
        session = Session(self, settings, autocommit=autocommit)
        with self._mutex:
            self.check_usable()
            self._sessions[session] = None
        return session

    def forget_session(self, session: Session) -> None:
        with self._mutex:
            self._sessions.pop(session, None)

    def check_usable(self) -> None:
        """Raise when closed, or in a forked child, which must never touch files or locks."""
        if process_generation() != self._generation:
            raise InterfaceError(
                "this database was opened by the parent process; a forked child cannot use it",
                hint="Open it after the fork, in one process only.",
            )
        if self._is_closed:
            raise InterfaceError(f"the database {self.where} is closed")

    @property
    def vector(self) -> "VectorEngine":
        """Return the vector path, started on first use."""
        vector = self._vector
        if vector is None:
            from herdpy.exec.vector.duck import VectorEngine

            with self._mutex:
                if self._vector is None:
                    self._vector = VectorEngine(
                        self.config.vector_bytes_max,
                        self.config.vector_threads,
                        self._temp_directory,
                        results_max=self.config.vector_results_max,
                    )
                vector = self._vector
        return vector

    # --- housekeeping ----------------------------------------------------------------------------

    def after_write(self) -> None:
        """Wake the housekeeper when a checkpoint is due."""
        if self._is_checkpoint_due():
            self._bell.ring()

    def _is_checkpoint_due(self) -> bool:
        tablespace = self.tablespace
        if (
            tablespace.log.bytes_appended - self._checkpoint_bytes
            > self.config.checkpoint_log_bytes
        ):
            return True
        held = sum(item.memtable.byte_count for item in tablespace.state.tables.values())
        return held > self.config.memtable_bytes_max

    def run_checkpoint(self) -> bool:
        """Write a checkpoint now; False when nothing changed. Any thread; they take turns."""
        self.check_usable()
        try:
            with self._maintenance:
                appended = self.tablespace.log.bytes_appended
                done = run_checkpoint(
                    self.tablespace, self.manifest, self.disk, f"{_DIRECTORY}/segments"
                )
                self._checkpoint_bytes = appended
                return done
        except OSError as error:
            raise disk_error(error) from error

    def _keep_house(self) -> None:
        while not self._is_closed:
            self._bell.wait(_TICK_S)
            if self._is_closed:
                return
            try:
                self.keep_house_once()
                self.housekeeping_error = None
            except (Error, OSError) as error:
                # The next tick tries again; statements meet the cause themselves.
                self.housekeeping_error = error
            except BaseException as error:
                self.tablespace.stop(error)
                raise

    def keep_house_once(self) -> None:
        """Do what is due: idle transactions, version budget, checkpoint."""
        now_s = self.clock.monotonic()
        for session in list(self._sessions):
            session.rollback_if_idle(now_s)
        self._enforce_version_budget()
        if self._is_checkpoint_due():
            self.run_checkpoint()

    def _enforce_version_budget(self) -> None:
        kept = sum(
            memtable.superseded_bytes
            for item in self.tablespace.state.tables.values()
            for memtable in (item.memtable, *item.frozen)
        )
        if kept > self.config.version_memory_bytes:
            self.tablespace.registry.evict_oldest()

    def close(self) -> None:
        """Roll back open transactions, make everything durable, let go of the files; repeatable.

        In a forked child nothing is touched.
        """
        if process_generation() != self._generation:
            return
        for session in list(self._sessions):
            session.close()
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
        self._bell.ring()
        if self._housekeeper is not None:
            self._housekeeper.join()
        steps: list[Callable[[], object]] = [
            self._syncer.close,
            self.tablespace.log.close,
            self.manifest.close,
        ]
        if self._vector is not None:
            steps.append(self._vector.close)
        if self._lock is not None:
            steps.append(self._lock.close)
        _close_all(steps)


def _close_all(steps: list[Callable[[], object]]) -> None:
    """Run every step, also behind a failing one; raise the first error."""
    if not steps:
        return
    try:
        steps[0]()
    finally:
        _close_all(steps[1:])


def _check_ours(disk: Disk, where: str) -> None:
    """Refuse a directory with someone else's files, before anything is written to it."""
    names = disk.list("")
    if _FORMAT in names:
        _check_format(disk, where)
        return
    strangers = [name for name in names if name not in (_LOCK, _DIRECTORY, f"{_FORMAT}.new")]
    if strangers:
        raise OperationalError(
            f"{where} is no herdpy database: it has no file {_FORMAT} but holds {strangers[0]!r}",
            sqlstate="58P01",
            hint="Name an empty or a new directory.",
        )


def _check_format(disk: Disk, where: str) -> None:
    text = disk.read(_FORMAT)
    words = text.split()
    if len(words) != 2 or words[0] != b"herdpy" or not words[1].isdigit():
        raise CorruptionError(
            f"{where}/{_FORMAT}: expected 'herdpy {FORMAT_VERSION}', found {text[:40]!r}",
            hint="If this is a herdpy database, restore the file; else name another directory.",
        )
    if int(words[1]) > FORMAT_VERSION:
        raise NotSupportedError(
            f"{where} has format {int(words[1])}; this herdpy reads up to {FORMAT_VERSION}",
            hint="Open it with the newer herdpy that wrote it.",
        )


def _create_if_new(disk: Disk, rng: Rng) -> None:
    if disk.exists(_FORMAT):
        if not disk.exists(f"{_DIRECTORY}/MANIFEST"):
            raise CorruptionError(
                f"{_DIRECTORY}/MANIFEST is missing, though {_FORMAT} is there",
                hint="Restore the directory from a copy; without its manifest nothing can be read.",
            )
        for part in _PARTS:
            _ensure_directory(disk, f"{_DIRECTORY}/{part}")
        return
    _ensure_directory(disk, _DIRECTORY)
    for part in _PARTS:
        _ensure_directory(disk, f"{_DIRECTORY}/{part}")
    disk.sync_directory(_DIRECTORY)
    if not disk.exists(f"{_DIRECTORY}/MANIFEST"):
        Manifest.create(disk, f"{_DIRECTORY}/MANIFEST", rng.randbytes(16)).close()
    disk.sync_directory("")
    file = disk.open(f"{_FORMAT}.new", create=True)
    try:
        text = f"herdpy {FORMAT_VERSION}\n".encode()
        file.truncate(0)
        file.write_at(0, text)
        file.sync()
    finally:
        file.close()
    disk.rename(f"{_FORMAT}.new", _FORMAT)
    disk.sync_directory("")


def _ensure_directory(disk: Disk, path: str) -> None:
    if not disk.exists(path):
        disk.make_directory(path)


def _locked(where: str, owner: str) -> OperationalError:
    return OperationalError(
        f"{where} is open in another process ({owner.strip() or 'unknown'})",
        sqlstate="55006",
        hint="Close it there first; within one process, connect() as often as you like.",
    )


def _cannot_open(where: str, error: OSError) -> Error:
    if error.errno == errno.ENOENT:
        return OperationalError(
            f"{where} cannot be opened: {error.strerror} ({error.filename})", sqlstate="58P01"
        )
    return disk_error(error)
