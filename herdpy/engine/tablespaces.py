"""Tablespaces: which there are in a directory, which of them are open, and what changes that.

`default` is open as long as the instance is; another one is opened by the first session of it, or
by open_all(). CREATE and DROP are decided by one edit of the list of tablespaces
(storage/tablespace_list.py): the edit before it names the folder that is then made, the one behind
it forgets the folder that was removed, and opening removes what a crash has left of either.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from bookie.runtime.drivers import new_mutex
from herdpy.engine.closing import run_all
from herdpy.engine.database import Database
from herdpy.engine.maintenance.directory import (
    cannot_open_error,
    finish_tablespace,
    make_tablespace,
    remove_tablespace,
)
from herdpy.engine.session.activity import dropped_tablespace_error
from herdpy.engine.session.session import Session
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
from herdpy.model.access import Fact
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
    only_default,
    stage_list,
    take_list,
)

if TYPE_CHECKING:
    from herdpy.engine.instance import Instance
    from herdpy.engine.maintenance.backup import Backup
    from herdpy.engine.maintenance.dump import Dump

T = TypeVar("T")
_log = logging.getLogger(__name__)
_AGAIN_S = 5.0
_HINT_NAMES_MAX = 50
"""To look among for one that was meant: each takes up to a tenth of a millisecond."""


class TablespaceState(NamedTuple):
    """A tablespace for systablespaces."""

    entry: TablespaceEntry
    database: Database | None
    """None: it is not open."""
    error: Error | None
    """Why it could not be opened."""


class Tablespaces:
    """Those of one instance. Any thread may call."""

    def __init__(self, instance: "Instance") -> None:
        self._instance = instance
        self._disk = instance.disk
        self._again_s = 0.0  # the housekeeper's
        # Changed under `changing` alone; each replaced by one assignment, read by any thread.
        self.changing = new_mutex()
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

    def start(self, default: Database, listed: TablespaceList | None) -> None:
        """Take what is listed, with `default`, not started yet; None: a directory has no list."""
        self._databases[default.entry.id] = default
        default.start()
        found = default.replica.manifest.state.identity.uuid
        if listed is None:
            self._databases = {found: default}
            default.entry = msgspec.structs.replace(default.entry, id=found)
            self.listed = only_default(found)
        else:
            self._check_identity(default)
            self.listed = listed
            self._remove_leftovers()

    def has(self, name: str) -> bool:
        """Return whether there is a tablespace of that name. Any thread."""
        return self.listed.find(name) is not None

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

    def unclosed(self) -> list[Database]:
        """Return those that are open, or were not closed to the end."""
        return list(self._databases.values())

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
        self._instance.default.check_usable()
        found = self._open_database(self._entry(name).id)
        if found is not None:
            return found
        with self.changing:
            self._instance.default.check_usable()
            return self._open_one(self._entry(name))

    def listing(self) -> TablespaceList:
        """Return the list of the tablespaces that are there, all with ids.

        55000: the directory is of FORMAT 1 until its next checkpoint. 58030: it is not known what
        the list on the disk says.
        """
        with self.changing:
            self._check_changeable()
            self._check_identified()
            return msgspec.structs.replace(self.listed, entries=tuple(self.listed.present))

    def backup_of(self, tablespace_id: bytes) -> "Backup":
        """Return a backup of the tablespace of an id, as of now; the caller closes it.

        3D000: there is none any more. Errors as those of database() and Database.backup().
        """
        return self._export_of(tablespace_id, Database.backup)

    def dump_of(self, tablespace_id: bytes) -> "Dump":
        """Return a dump as backup_of() returns a backup."""
        return self._export_of(tablespace_id, Database.dump)

    def _export_of(self, tablespace_id: bytes, begin: Callable[[Database], T]) -> T:
        self._instance.default.check_usable()
        with self.changing:
            self._instance.default.check_usable()
            database = self._open_one(self._entry_of(tablespace_id))
        try:
            return begin(database)
        except Error:
            self._entry_of(tablespace_id)  # it was dropped meanwhile
            raise

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

    def _entry_of(self, tablespace_id: bytes) -> TablespaceEntry:
        found = next((each for each in self.listed.present if each.id == tablespace_id), None)
        if found is None:
            raise OperationalError(
                f"tablespace {tablespace_id.hex()} does not exist",
                sqlstate="3D000",
                hint="It was dropped; systablespaces lists those that are there.",
            )
        return self._entry(found.name)

    def _open_one(self, entry: TablespaceEntry) -> Database:
        found = self._open_database(entry.id)
        if found is not None:
            return found
        self._let_go(entry)  # an interrupt has kept it from being closed to the end
        database = Database(self._instance, entry)
        try:
            try:
                database.start()
                self._check_identity(database)
            except OSError as error:
                raise cannot_open_error(self._instance.where_of(entry), error) from error
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
            finish_tablespace(self._disk, entry.folder)
        except OSError as error:
            _log.warning(
                "%s: that it was made cannot be said: %s", self._instance.where_of(entry), error
            )

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

    def create(
        self,
        name: str,
        limits: TablespaceLimits,
        access: Sequence[Fact],
        *,
        if_not_exists: bool = False,
    ) -> None:
        """Make an empty tablespace with these roles; durable, and open, on return.

        42710: there is one of the name, which if_not_exists leaves as it is. 0A000: the directory
        is a node's copy. On any error there is none: what is left of it is removed now, or when the
        directory is opened; but with 58030 and UNKNOWN there may be one then.
        """
        with self.changing:
            if if_not_exists and self.has(name):
                return
            self._check_changeable()
            if not self._instance.logs.leads:  # what is written there would be in no ledger
                raise NotSupportedError(
                    f'tablespace "{name}" cannot be made here: this is a node\'s copy of a '
                    "tablespace of a cluster",
                    hint="`herdpy cluster create` makes another one, on nodes of its own.",
                )
            if self.has(name):
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
            entry = TablespaceEntry(self._instance.rng.randbytes(ID_BYTES), name, MAKING, limits)
            self._write(self.listed.with_entry(entry))
            try:
                make_tablespace(
                    self._disk, entry.folder, entry.id, self._instance.rng, self._instance.logs.kind
                )
                database = self._open_one(entry)
                database.begin_access(access)
                made = msgspec.structs.replace(entry, state=PRESENT)
                self._write(self.listed.with_entry(made))  # this decides
                database.entry = made
                self._finish(made)
            except BaseException as error:
                with suppress(Exception):  # what failed first is told, and says what there is
                    self._let_go(entry)
                self._forget_error(entry)
                if isinstance(error, Exception):
                    self._remove_leftovers()
                # Of a log that nothing has come of it is known what became of its commits.
                failure = error.__cause__ if isinstance(error, LogFailedError) else error
                if isinstance(failure, OSError):
                    raise cannot_open_error(self._instance.where_of(entry), failure) from error
                raise

    def drop(self, name: str, *, is_forced: bool = False, if_exists: bool = False) -> None:
        """Remove a tablespace with all that is in it; is_forced: its sessions are ended (57P01).

        3D000: there is none, unless if_exists. 55006: sessions use it. On any other error it is as
        it was, and is opened by the next caller; but with 58030 and UNKNOWN it may be gone when the
        directory is opened again.
        """
        with self.changing:
            if if_exists and not self.has(name):
                return
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

    def alter(self, name: str, new_name: str | None, limits: Mapping[str, int | None]) -> None:
        """Change a tablespace's name, None: as it is, and some of its limits; both count at once.

        42710: there is one of the new name. 58030 and UNKNOWN: it may be changed when the
        directory is opened again.
        """
        with self.changing:
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
                limits=msgspec.structs.replace(entry.limits, **limits),
            )
            self._write(self.listed.with_entry(changed))
            database = self._databases.get(entry.id)
            if database is not None:
                database.take_entry(changed)

    def _check_changeable(self) -> None:
        self._instance.default.check_usable()
        if self._list_failure is not None:
            raise self._list_failure

    def _check_identified(self) -> None:
        """Give `default` an id: FORMAT 1 has none, and a checkpoint makes it FORMAT 2."""
        if self.listed.entries[0].id:
            return
        self._instance.default.run_checkpoint()
        found = self._instance.default.replica.manifest.state.identity.uuid
        if not found:
            raise OperationalError(
                "the directory is of FORMAT 1, which has one tablespace, until its next checkpoint",
                sqlstate="55000",
                hint="Write something, such as CREATE TABLE and DROP TABLE, and try again.",
            )
        self._databases = {found: self._instance.default}
        self.listed = only_default(found)
        self._instance.default.entry = self.listed.entries[0]

    def _write(self, listed: TablespaceList) -> None:
        """Replace the list, on the disk and here. Under `changing`."""
        stage_list(self._disk, listed)
        self._take(listed)

    def _take(self, listed: TablespaceList) -> None:
        """Have the staged list count, on the disk and here."""
        try:
            take_list(self._disk)
            self.listed = listed
        except BaseException as error:
            self._list_failure = OperationalError(
                f"the list of tablespaces of {self._instance.where} could not be replaced, and "
                f"which one the disk has is not known: {error}",
                sqlstate="58030",
                retry=Retry.UNKNOWN,
                hint="Open the directory again before tablespaces are made, changed or dropped.",
            )
            before = set(self.listed.entries)
            doubtful = {each.id for each in listed.entries if each not in before}
            self._doubtful |= doubtful  # what is written to these might be lost with them
            if not isinstance(error, Exception):
                raise  # an interrupt is its sender's, and who comes next is told
            raise self._list_failure from error

    def _remove_leftovers(self) -> None:
        """Remove folders of what is no tablespace, and forget them. Under `changing`, or opening.

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
            take_list(self._disk)
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
            remove_tablespace(self._disk, entry.folder)
        except (Error, OSError, RecursionError) as error:
            self._note_leftover(entry.folder, error)
            return False
        return True

    def _note_leftover(self, what: str, error: Exception) -> None:
        if what not in self._noted_leftovers:  # once, and not every few seconds
            self._noted_leftovers.add(what)
            _log.warning(
                "%s/%s: what is left of a tablespace cannot be removed, and is tried again: %s",
                self._instance.where,
                what,
                error,
            )

    def _stage_freeing(self, listed: TablespaceList) -> None:
        """Stage a list behind which less is on the disk, also where that is full."""
        self._instance.default.space.freeing(lambda: stage_list(self._disk, listed))

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

    # --- by the housekeeper ----------------------------------------------------------------------

    def look_again(self) -> None:
        """Open what could not be opened, and remove what could not be removed, every 5 s."""
        is_missing = self._errors or self.listed.leftovers
        if is_missing and self._instance.clock.monotonic() >= self._again_s:
            self._open_again()
            self._remove_again()
            self._again_s = self._instance.clock.monotonic() + _AGAIN_S

    def _remove_again(self) -> None:
        """Remove what is left of tablespaces, unless one is being made or removed."""
        if not self._instance.is_closed and self.changing.acquire(blocking=False):
            try:
                self._remove_leftovers()
            finally:
                self.changing.release()

    def _open_again(self) -> None:
        """Open what was not to be opened, unless it is damaged: a full disk may have room now.

        For servers, whose clients are told why, and open nothing. By the housekeeper alone.
        """
        for state in self.states():
            is_damaged = state.error is None or isinstance(state.error, CorruptionError)
            # close() has it, and waits for this thread; or a tablespace is being made.
            if is_damaged or self._instance.is_closed or not self.changing.acquire(blocking=False):
                continue
            try:
                self._open_one(self._entry(state.entry.name))
                _log.warning("tablespace %s is open now", state.entry.name)
            except Error:
                pass  # it is noted
            finally:
                self.changing.release()

    # --- closing ---------------------------------------------------------------------------------

    def close_one(self, database: Database) -> None:
        """Close a tablespace that is not `default`. Repeatable."""
        with self.changing:
            self._let_go(database.entry)
