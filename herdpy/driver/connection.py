"""Connection: one session of a database, with PEP 249's API and a few conveniences.

Threads may share a connection (threadsafety 2): the session runs one statement at a time. After
close() every method but close() raises InterfaceError, and in a fork()ed child every one. A
connection that is collected while open is closed by a finalizer, its transaction rolled back.
"""

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bookie.runtime.os_process import forks, process_generation
from herdpy.driver.abandoned_claims import abandoned_claims
from herdpy.driver.arguments import checked_count, checked_seconds, checked_text, checked_texts
from herdpy.driver.attributes import PublicErrors, Strict
from herdpy.driver.cursor import ARROW_BATCH_ROWS, Cursor, Parameters, checked_parameters
from herdpy.driver.dsn import (
    MEMORY,
    RemoteTarget,
    parse_target,
    with_password,
    with_tablespace,
)
from herdpy.driver.interfaces import Claim, DriverSession, Waits, features
from herdpy.driver.leases import Partition, SnapshotLease, id_of, parts_of
from herdpy.driver.pipeline import Pipeline
from herdpy.driver.staging import Stage, StageToken, StagingJob, run_of, settle
from herdpy.driver.transaction_block import TransactionBlock
from herdpy.driver.types import describe
from herdpy.errors import InterfaceError, ProgrammingError, ProtocolError, loading
from herdpy.model.durability import Durability
from herdpy.model.isolation import isolation_of
from herdpy.model.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.driver.box import Box
    from herdpy.driver.defaults import ColumnDefault
    from herdpy.driver.exports import Progress as ExportProgress
    from herdpy.driver.interfaces import Export
    from herdpy.features import HeldLease


_DURABILITIES = {choice.value: choice for choice in Durability}


def connect(
    target: "str | os.PathLike[str]" = MEMORY,
    *,
    autocommit: bool = False,
    durability: str = "sync",
    memory_bytes_max: int | None = None,
    lock_timeout_s: float | None = None,
    statement_timeout_s: float | None = None,
    idle_in_transaction_timeout_s: float | None = None,
    password: str | None = None,
    tablespace: str | None = None,
    waits: Waits | None = None,
) -> "Connection":
    """Open a directory (made if missing) as a database, a private one in memory, or a server's.

    A server is named by a URL: "herd://localhost:7000/default" (docs/reference/url.md).

    `durability` is what a commit waits for: "sync" the disk, "os" the operating system, "none"
    nothing. It and `memory_bytes_max` belong to the database: while this process has it open,
    connecting with other values is a ProgrammingError. Time-outs are in seconds and belong to the
    connection; 0 means no limit, None what the server has for the user, and none in a directory.
    `password` is that of the URL's user. `tablespace` is which one of the database; in a URL it is
    the path: "herd://host/sales". Without either it is "default"; 3D000: there is none of the name.
    `waits` is herdpy.aio's own.
    """
    waited_for = _DURABILITIES.get(durability) if isinstance(durability, str) else None
    if waited_for is None:
        raise ProgrammingError(
            f"connect: durability: expected 'sync', 'os' or 'none', found {durability!r}",
            sqlstate="22023",
        )
    if not isinstance(autocommit, bool):
        raise ProgrammingError(
            f"connect: autocommit: expected True or False, found {autocommit!r}", sqlstate="22023"
        )
    timeouts = {
        "lock_timeout_s": lock_timeout_s,
        "statement_timeout_s": statement_timeout_s,
        "idle_in_transaction_timeout_s": idle_in_transaction_timeout_s,
    }
    given = {name: limit_s for name, limit_s in timeouts.items() if limit_s is not None}
    settings = replace(Settings(durability=waited_for), **given)
    parsed = with_tablespace(with_password(parse_target(target), password), tablespace)
    claim: Claim
    if isinstance(parsed, RemoteTarget):
        if memory_bytes_max is not None:
            raise ProgrammingError(
                "connect: memory_bytes_max belongs to the server, which was started with its own",
                sqlstate="22023",
            )
        with loading():
            from herdpy.driver.remote.session import RemoteClaim

        claim = remote = RemoteClaim(parsed, waits)
        begin = partial(remote.open, settings, given, autocommit=autocommit)
    else:
        local = _local()
        claim = database = local.DatabaseClaim(parsed)
        options = local.Options(
            memory_bytes_max=memory_bytes_max, settings=settings, autocommit=autocommit
        )
        begin = partial(database.open, options)
    try:
        return Connection(claim, begin())
    except BaseException:
        claim.close()
        raise


@cache
def _local() -> ModuleType:
    """Return herdpy.driver.local; not for a server's: the engine takes its time to load."""
    with loading():
        from herdpy.driver import local

    return local


class Connection(Strict, PublicErrors):
    """Made by connect()."""

    __slots__ = (
        "__weakref__",
        "_autocommit",
        "_claim",
        "_finalizer",
        "_generation",
        "_is_closed",
        "_session",
        "block",
    )

    def __init__(self, claim: Claim, session: DriverSession) -> None:
        self._claim = claim
        self._session = session
        self._autocommit = session.autocommit
        self._generation = process_generation()
        self._is_closed = False
        self.block: TransactionBlock | None = None
        self._finalizer = weakref.finalize(self, claim.abandon)

    # Statements.

    def cursor(self) -> Cursor:
        """Return a new cursor, which has one result at a time; execute() makes one by itself."""
        self.live_session()
        return Cursor(self)

    def execute(self, text: str, parameters: Parameters | None = None) -> Cursor:
        """Run one statement on a new cursor and return it."""
        return Cursor(self).execute(text, parameters)

    def executemany(self, text: str, rows: Iterable[Parameters]) -> Cursor:
        """Run one statement for each row of parameters on a new cursor and return it."""
        return Cursor(self).executemany(text, rows)

    def executescript(self, text: str) -> Cursor:
        """Run the statements of a script, one by one, on a new cursor and return it."""
        return Cursor(self).executescript(text)

    def ingest(
        self,
        table: str,
        data: Any,
        *,
        mode: str = "append",
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Write many rows into a table, as one statement: all of them, or none. Return how many.

        `data` is an Arrow table, batch or reader, a DataFrame of pandas or polars, or an iterable
        of dicts. Columns go by name; those that the data has not take their default. `mode` says
        what becomes of rows that are there: "append" (a key that is there is an error), "upsert"
        (a row replaces the one with its key), "replace" (the table has these rows and no others).
        `progress` is called with the number of rows taken so far, after each batch.
        """
        checked_text("ingest: table", table)
        checked_text("ingest: mode", mode)
        session = self.live_session()
        with loading():
            from herdpy.exec.vector.arrow_input import check_input, input_batches

        check_input(data)
        target = session.begin_ingest(table, mode)
        try:
            taken = 0
            for batch in input_batches(data, target.table):
                target.add(batch)
                taken += batch.num_rows
                if progress is not None:
                    progress(taken)
            return target.finish()
        finally:
            target.abort()  # nothing to do behind finish()

    # Staging.

    def begin_staging(
        self,
        table: str,
        *,
        operation: str = "append",
        job: str | None = None,
        key_columns: Sequence[str] | None = None,
    ) -> "StagingJob":
        """Begin a job whose rows many processes stage and one commits; return its name.

        `operation` says what becomes of rows with the same keys: "append" (an error), "upsert",
        "replace" (the table has the staged rows and no others), "ignore" (those that are there
        stay), "update" (the given columns change), "delete". `job` is a name of the program's
        choice; the same name again joins the open job, as another run of it. The returned name
        knows its run and the table's columns (`.description`). `key_columns`, if given, must be the
        primary key. A job that no call uses for staging_timeout_s is given up.
        """
        with loading():
            from herdpy.driver.local import new_rng

        rng = self._claim.rng or new_rng()
        run = rng.randbytes(16).hex()
        job = job or rng.randbytes(16).hex()
        for what, text in (("table", table), ("operation", operation), ("job", job)):
            checked_text(f"begin_staging: {what}", text)
        if key_columns is not None:
            key_columns = checked_texts("begin_staging: key_columns", key_columns)
        begin, names = features().BEGIN_STAGING, (table, operation, str(job))
        found = self.live_session().perform(begin, *names, key_columns, run)
        columns = tuple(describe(column.name, column.type) for column in found.visible_columns)
        return StagingJob(str(job), run, columns)

    def stage(self, job: str, task: int | str, attempt: int | str = 0) -> Stage:
        """Return what takes the rows of one attempt of a task of a job.

        Attempts are apart from each other: only those count that the commit names. The same
        attempt again begins anew. It belongs to the run that begin_staging() returned as `job`;
        by a plain name, to the job.
        """
        names = ("job", job), ("task", str(task)), ("attempt", str(attempt))
        checked = [checked_text(f"stage: {what}", text) for what, text in names]
        return Stage(self.live_session(), str(checked[0]), checked[1], checked[2], run_of(job))

    def commit_staging(self, job: str, tokens: Iterable[StageToken]) -> str:
        """Commit a job: the rows of these stages, and no others, as one transaction.

        Return the position of the commit, by which a snapshot can be named. A job commits once:
        asked again for the same stages, also after a lost answer or a restart, this returns the
        same position; ProgrammingError 42710: it has committed others, and these are not written.
        """
        job = str(checked_text("commit_staging: job", job))
        stages = [_stage_of(token, job) for token in tokens]
        position = settle(self.live_session(), job, "commit", stages)
        if position is None:
            raise ProtocolError("a commit without position")
        return position

    def abort_staging(self, job: str) -> None:
        """Give up the run that begin_staging() returned, and the job with its last run.

        By a plain name: the job, with all that any run has staged. Nothing to do when it is over.
        """
        checked_text("abort_staging: job", job)
        settle(self.live_session(), job, "abort")

    def commit_position(self, job: str) -> str | None:
        """Return the position of a job's commit; None: it has not committed.

        ProgrammingError 42501: it is another user's.
        """
        checked_text("commit_position: job", job)
        return settle(self.live_session(), job, "position")

    def column_defaults(self, table: str) -> "dict[str, ColumnDefault]":
        """Return the defaults of a table's columns by name; for users with any right on it.

        The table's name is as the catalog has it. Columns without a default are left out.
        """
        from herdpy.driver.defaults import column_defaults

        return column_defaults(self.live_session(), checked_text("column_defaults", table))

    # Snapshots that are kept, and tables in parts.

    def lease(self, seconds: float = 600, *, reuse: str | None = None) -> SnapshotLease:
        """Keep what is committed now, to be read later and by others, as it is now.

        It stays over restarts of the server, until release(), or until it was not used for
        `seconds`. `SET TRANSACTION SNAPSHOT '<its id>'` reads at it, and so does read_partition().
        `reuse` is the id of a lease of the same user, which this returns, renewed, if it has as
        many seconds and nothing was committed since: one counts, and release() ends it for all.
        """
        seconds = checked_seconds("lease", seconds)
        if reuse is not None:
            checked_text("lease: reuse", reuse)
        session = self.live_session()
        return SnapshotLease(self, session.perform(features().TAKE_LEASE, seconds, reuse))

    def release_lease(self, lease: str) -> bool:
        """Let a lease go, by its id, of any session of the user; False: it was gone."""
        checked_text("release_lease", lease)
        return self.live_session().perform(features().END_LEASE, lease)

    def renew_lease(self, lease: str) -> None:
        """Begin the time of a lease anew, by its id; SnapshotTooOldError: it is gone."""
        self.live_session().perform(features().USE_LEASE, checked_text("renew_lease", lease))

    def partitions(
        self, table: str, count: int, *, lease: "HeldLease | str | None" = None
    ) -> list[Partition]:
        """Cut a table into at most `count` parts with about as many rows, for read_partition().

        Every row is in exactly one of them. Partitions are plain values: other processes may read
        them, too, all at one lease or each as the table is then.
        """
        held = id_of("partitions", lease)
        checked_text("partitions: table", table)
        checked_count("partitions", count)
        parts = self.live_session().perform(features().PARTITIONS, table, count, held)
        return [Partition(table, *part, held) for part in parts]

    def read_partition(
        self,
        partition: Partition,
        *,
        columns: "Sequence[str] | None" = None,
        where: str | None = None,
        parameters: Parameters | None = None,
        lease: "HeldLease | str | None" = None,
        rows: int = ARROW_BATCH_ROWS,
    ) -> "pa.RecordBatchReader":
        """Return a reader of a part's rows, in batches of at most `rows`, in any order.

        `columns` are names as the catalog has them, `where` is a condition in SQL on the table's
        own columns, `lease` another one than the partition's. Nothing is read ahead.
        """
        checked_count("read_partition: rows of a batch", rows)
        if columns is not None:
            columns = checked_texts("read_partition: columns", columns)
        if where is not None:
            checked_text("read_partition: where", where)
        table, lower, upper, held = parts_of(partition)
        given = None if parameters is None else checked_parameters(parameters)
        held = held if lease is None else id_of("read_partition", lease)
        read = features().READ_PARTITION
        result = self.live_session().perform(read, table, lower, upper, columns, where, given, held)
        return result.arrow_batches(rows)

    def pipeline(self) -> Pipeline:
        """Return a context manager whose statements go to the server together.

        Its execute() returns at once a cursor that has its result behind sync(), or the block.
        They are in one transaction: the open one, or, in autocommit, one of their own, which
        commits at the end of the block. Behind one that fails none runs; sync(), or the end of
        the block, raises its error.
        """
        self.live_session()
        return Pipeline(self)

    def sql(self, text: str, parameters: Parameters | None = None) -> "Box":
        """Run one statement and return what prints as a table; it can be iterated, too."""
        with loading():
            from herdpy.driver.box import Box

        return Box(self.execute(text, parameters))

    def cancel(self) -> None:
        """Stop the statement that runs now, from any thread: it fails with 57014, harmlessly.

        One that commits, and whose change the log has, goes on, and succeeds. On a cluster whose
        leader may not answer now its outcome is looked for, for some seconds; 08007, UNKNOWN: it
        cannot be known.
        """
        self.live_session().cancel()

    # Transactions.

    def commit(self) -> None:
        """Commit; nothing to do without a transaction."""
        self.live_session().commit()

    def rollback(self) -> None:
        """Roll back; nothing to do without a transaction."""
        self.live_session().rollback()

    def transaction(
        self,
        durability: str | None = None,
        *,
        savepoint_name: str | None = None,
        force_rollback: bool = False,
    ) -> "TransactionBlock":
        """Return a context manager: begin, then commit, or roll back if the block raises.

        In another block it is a savepoint: what it raises takes back its own part alone, and goes
        on to the outer one. `raise herdpy.Rollback()` rolls back and goes on behind the block;
        `herdpy.Rollback(block)` behind an outer one. force_rollback: it is always rolled back.
        `durability` replaces the database's for this transaction, and is the outermost block's.
        25001: a transaction is open that no block has begun.
        """
        self.live_session()
        if durability is not None:
            checked_text("transaction: durability", durability)
        if savepoint_name is not None:
            checked_text("transaction: savepoint_name", savepoint_name)
        return TransactionBlock(
            self, durability, savepoint_name, is_rolled_back=bool(force_rollback)
        )

    @property
    def autocommit(self) -> bool:
        """True: each statement commits by itself. False: the first one begins a transaction."""
        return self.live_session().autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        session = self.live_session()
        if not isinstance(value, bool):
            raise ProgrammingError(f"autocommit: expected True or False, found {value!r}")
        if value == session.autocommit:
            return
        if session.in_transaction:
            raise ProgrammingError(
                "autocommit cannot change inside a transaction",
                sqlstate="25001",
                hint="commit() or rollback() first",
            )
        session.autocommit = value

    @property
    def isolation_level(self) -> str:
        """Of transactions that begin from now on: "READ COMMITTED" or "REPEATABLE READ".

        It is the setting default_transaction_isolation, and can be set outside of a transaction, to
        words of any case; "READ UNCOMMITTED" is taken as READ COMMITTED. 0A000 for "SERIALIZABLE".
        """
        return self.live_session().isolation.value.upper()

    @isolation_level.setter
    def isolation_level(self, value: str) -> None:
        session = self.live_session()
        if not isinstance(value, str):
            raise ProgrammingError(
                "isolation_level: expected 'READ COMMITTED' or 'REPEATABLE READ', found "
                f"{value!r:.60}",
                sqlstate="22023",
                hint="autocommit says whether a statement begins a transaction",
            )
        level = isolation_of(value, "isolation_level")
        if level is session.isolation:
            return
        if session.in_transaction:
            raise ProgrammingError(
                "isolation_level cannot change inside a transaction",
                sqlstate="25001",
                hint="commit() or rollback() first; SET TRANSACTION is about the open one",
            )
        session.execute(f"SET default_transaction_isolation = '{level.value}'")

    @property
    def read_only(self) -> bool:
        """Transactions that begin from now on write nothing: what does is refused (25006).

        It is the setting default_transaction_read_only, and can be set outside of a transaction.
        """
        return self.live_session().is_read_only

    @read_only.setter
    def read_only(self, value: bool) -> None:
        session = self.live_session()
        if not isinstance(value, bool):
            raise ProgrammingError(
                f"read_only: expected True or False, found {value!r:.60}", sqlstate="22023"
            )
        if value is session.is_read_only:
            return
        if session.in_transaction:
            raise ProgrammingError(
                "read_only cannot change inside a transaction",
                sqlstate="25001",
                hint="commit() or rollback() first; SET TRANSACTION is about the open one",
            )
        session.execute(f"SET default_transaction_read_only = {'on' if value else 'off'}")

    @property
    def position(self) -> str:
        """How far the database's log is durable, as this connection has heard: an Lsn, as text.

        What it has seen or committed is at or before it, and no crash takes it back; every answer
        of a server tells it. A commit with a durability of os or none is covered by it once the log
        has made it durable.
        """
        return str(self.live_session().lsn)

    def wait_for(self, position: str, timeout: float = 30.0) -> None:
        """Wait until this connection sees what is at a position that another one has told.

        For connections that read from followers (read=follower, read=nearest): pass the `position`
        of the one that wrote, and what that has committed is there, also for what this one reads
        later. timeout: seconds, up to 3,600. QueryCanceledError 57014, SAFE: the copy is behind
        still; ProgrammingError 22023: it is no position.
        """
        if not isinstance(position, str) or not position:
            raise ProgrammingError(
                f"wait_for: expected a position, such as conn.position gives, found "
                f"{position!r:.100}",
                sqlstate="22023",
            )
        self.live_session().await_position(position, checked_seconds("wait_for: timeout", timeout))

    @property
    def lag(self) -> float:
        """So many seconds old is what this connection sees at most; 0 at a leader.

        As the node knows by its own clock, which is asked: infinite while it does not know.
        """
        return self.live_session().await_position("", 0.0)

    @property
    def in_transaction(self) -> bool:
        """True from the first statement of a transaction to its end, after an error, too."""
        return self.live_session().in_transaction

    # Life.

    @property
    def is_closed(self) -> bool:
        """True behind close(); all but that and discard() raises InterfaceError then."""
        return self._is_closed

    def reset(self) -> None:
        """Roll back, and take back what SET and the attributes of transactions changed."""
        session = self.live_session()
        session.rollback()
        if session.autocommit != self._autocommit:
            session.autocommit = self._autocommit
        session.reset()
        self.block = None

    def discard(self) -> None:
        """Close, whatever state it is in; repeatable."""
        if not self._is_closed:
            self._claim.close()
            self._finalizer.detach()
            self._is_closed = True

    def checkpoint(self) -> None:
        """Write what changed to pages now, so that the next open has little log to replay.

        The database does so by itself from time to time; nothing that was committed needs it.
        """
        self.live_session().perform(features().CHECKPOINT)

    def backup(
        self,
        path: "str | os.PathLike[str]",
        *,
        overwrite: bool = False,
        progress: "ExportProgress | None" = None,
    ) -> int:
        """Write a backup of the whole database to a file here, and return its length in bytes.

        It is the database at one moment, while others go on writing: every commit before the call
        is in it, no transaction by half; of this connection's open transaction nothing.
        herdpy.restore() makes a database of it. The file is there when it is complete, durable and
        read back; one that exists is kept (58P02) unless overwrite=True. `progress` is called with
        (bytes done, bytes in all).
        """
        return self._export("backup", path, overwrite=overwrite, progress=progress)

    def backup_all(
        self,
        path: "str | os.PathLike[str]",
        *,
        overwrite: bool = False,
        progress: "ExportProgress | None" = None,
    ) -> int:
        """Write a backup of each tablespace to a folder here, and return their length in bytes.

        For superusers of `default`, on a connection to it (42501). Each is as backup() makes it, at
        its own moment, one after the other: there is no moment of all. The folder is made if
        missing, must be empty unless overwrite=True (58P02), and is a backup when the last file in
        it, BACKUP, is there; until then a former one is whole. herdpy.restore() makes a directory
        with all tablespaces of it, or of one. `progress` is called with (bytes done, 0): how much
        there is in all is not known.
        """
        with loading():
            from herdpy.driver.backup_sets import backup_to_folder

        return backup_to_folder(
            self.live_session(),
            path,
            outside=self._own_directory(),
            overwrite=overwrite,
            progress=progress,
        )

    def dump(
        self,
        path: "str | os.PathLike[str]",
        *,
        overwrite: bool = False,
        progress: "ExportProgress | None" = None,
    ) -> int:
        """Write all tables as SQL to a file here, as they are at one moment; return its length.

        As backup() otherwise; how much there is in all is not known (0).
        """
        return self._export("dump", path, overwrite=overwrite, progress=progress)

    def dump_all(
        self,
        path: "str | os.PathLike[str]",
        *,
        overwrite: bool = False,
        progress: "ExportProgress | None" = None,
    ) -> int:
        """Write all tablespaces as one script to a file here; return its length.

        For superusers of `default`, on a connection to it (42501). Each is as dump() shows it, at
        its own moment, one after the other; what makes them, with their limits, comes first. The
        shell runs it: `herdpy shell ./new -f FILE`.
        """
        with loading():
            from herdpy.driver.all_dumps import AllDumps

        session = self.live_session()
        return self._write_export(
            lambda: AllDumps(session), "dump", path, overwrite=overwrite, progress=progress
        )

    def _export(
        self,
        kind: str,
        path: "str | os.PathLike[str]",
        *,
        overwrite: bool,
        progress: "ExportProgress | None",
    ) -> int:
        session = self.live_session()
        return self._write_export(
            lambda: session.export(kind), kind, path, overwrite=overwrite, progress=progress
        )

    def _write_export(
        self,
        begin: "Callable[[], Export]",
        kind: str,
        path: "str | os.PathLike[str]",
        *,
        overwrite: bool,
        progress: "ExportProgress | None",
    ) -> int:
        with loading():
            from herdpy.driver.exports import export_to_file

        return export_to_file(
            begin,
            kind,
            path,
            outside=self._own_directory(),
            overwrite=overwrite,
            progress=progress,
        )

    def _own_directory(self) -> str | None:
        """Return the database's directory on this machine; None: of a server, or in memory."""
        with loading():
            from herdpy.driver.local import DatabaseClaim

        claim = self._claim
        return claim.target.path if isinstance(claim, DatabaseClaim) else None

    def close(self) -> None:
        """Roll back what is open and close; repeatable.

        The last connection to a database closes the database. After an interrupt, call it again.
        In a forked child, whose parent's it is: InterfaceError.
        """
        if self._is_closed:
            return
        self.live_session()
        self._claim.close()
        self._finalizer.detach()
        self._is_closed = True

    def __enter__(self) -> "Connection":
        self.live_session()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_closed:
            return
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<herdpy.Connection {self._claim.where!r}{' closed' if self._is_closed else ''}>"

    def live_session(self) -> DriverSession:
        """Return the session; InterfaceError when closed or inherited by a fork."""
        if self._is_closed:
            raise InterfaceError("the connection is closed", hint="call herdpy.connect() again")
        if len(forks) != self._generation:
            raise InterfaceError(
                "the connection was opened by the parent of this forked process",
                hint="connect after the fork, or start children by 'spawn'",
            )
        if abandoned_claims:
            from herdpy.driver.local import close_abandoned

            close_abandoned()
        return self._session


def _stage_of(token: object, job: str) -> int:
    """Return the number of a stage of the job; 22023 for another's, and for what is no token."""
    if not isinstance(token, StageToken) or token.job != job:
        found = f"one of {token.job!r}" if isinstance(token, StageToken) else repr(token)
        raise ProgrammingError(
            f"commit_staging: expected stages of job {job!r}, found {found:.200}", sqlstate="22023"
        )
    return token.stage
