"""Session: one user's statements, one at a time, with its transaction and settings.

Any thread may call; statements of one session run one after the other. An exception of any kind,
KeyboardInterrupt included, at any line leaves the session usable: an autocommit statement has
happened wholly or not at all and holds no lock; a transaction goes on without the statement, but
for one that an interrupt (KeyboardInterrupt) hit after the log had taken it: that one has happened.
So a program that catches the interrupt and repeats what is not idempotent rolls back first.

Its layers, each above the one before: session_transaction.py, session_guard.py,
session_plans.py, session_short.py, session_statements.py, and here what is no statement: ingest,
staging, leases, tokens, exports.
"""

from typing import TYPE_CHECKING

from herdpy.engine.access.rights import check_superuser
from herdpy.engine.session.dispatch import SessionStatements
from herdpy.engine.session.leasing import Leasing, LeasingPart
from herdpy.engine.state.commit_tokens import Outcome, expired_error
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.statements.ingest import Ingest, IngestMode, ingest_mode
from herdpy.engine.statements.staging import SessionPart, Staging
from herdpy.errors import ProgrammingError
from herdpy.model.access import DELETE, INSERT, UPDATE
from herdpy.model.schema import Table

if TYPE_CHECKING:
    from herdpy.engine.maintenance.backup import Backup
    from herdpy.engine.maintenance.dump import Dump

_INGEST_RIGHTS = {
    IngestMode.APPEND: INSERT,
    IngestMode.UPSERT: INSERT | UPDATE,
    IngestMode.REPLACE: INSERT | DELETE,
}


class Session(SessionStatements):
    """See the module. `settings` are the session's own; Database.session() makes one."""

    @property
    def leasing(self) -> Leasing:
        """What the session does with snapshot leases and parts of tables."""
        return Leasing(
            self._database,
            LeasingPart(
                self._guarded,
                self._reading,
                self._catalog_of,
                self._prepare,
                self._now_us,
                self._execution,
                self._rights,
                self.identity,
            ),
        )

    @property
    def staging(self) -> Staging:
        """Return the session's part in what several sessions stage for one commit."""
        return Staging(
            self._database,
            SessionPart(
                self._guarded,
                self._table_for,
                self._execution,
                self._begin_alone,
                self._finish_alone,
                self.identity,
                lambda: (rights := self._rights()) is None or rights.is_superuser,
            ),
        )

    def begin_ingest(self, table: str, mode: str) -> Ingest:
        """Return what takes Arrow batches for one table, to write them as one statement."""
        return self._guarded(
            lambda: self._begin_ingest(table, ingest_mode(mode)), f"INGEST {table}"
        )

    def resolve(self, token_session: str, counter: int) -> Outcome:
        """Return what became of a commit of any session; see resolving.py.

        A caller that knows a session's name may ask: it cannot be guessed.
        """
        self._check_open()
        return self._database.resolve(token_session, counter)

    def end_lost(self, token_session: str) -> None:
        """End the session of these tokens, if it holds locks: its client has lost it, and asks."""
        self._database.end_lost(self.id, token_session)

    def check_token(self) -> None:
        """Raise 57P05 when nothing can commit by this session's tokens any more."""
        if self._tablespace.applier.tokens.is_expired(self.token_session):
            raise expired_error()

    def checkpoint(self) -> None:
        """Write what changed since the last checkpoint to pages; superusers only."""

        def run() -> None:
            check_superuser(self._rights(), "checkpoint")
            self._database.run_checkpoint()

        self._guarded(run, "CHECKPOINT")

    def check_may_export(self) -> None:
        """Raise 42501 for who may not read everything: superusers only."""
        self._guarded(lambda: check_superuser(self._rights(), "export"), "EXPORT")

    def export(self, kind: str) -> "Backup | Dump":
        """Begin a "backup" or a "dump"; the caller closes it. Not part of a transaction.

        Who may not checkpoint may not have either.
        """
        self.checkpoint()
        if kind not in ("backup", "dump"):
            raise ProgrammingError(f"export: expected 'backup' or 'dump', found {kind!r}")
        if kind == "backup":
            return self._guarded(self._database.backup, "BACKUP")
        return self._guarded(self._database.dump, "DUMP")

    def _begin_ingest(self, name: str, mode: IngestMode) -> Ingest:
        self._tablespace.check_running()
        self._check_not_lost()
        table = self._ingest_table(name, mode)

        def check_table() -> None:
            if self._ingest_table(table.name, mode) != table:
                raise ProgrammingError(
                    f'table "{table.name}" was made anew during the ingest', sqlstate="42P01"
                )

        def write(ingest: Ingest) -> int:
            self._check_not_lost()
            if not ingest.rows and mode is not IngestMode.REPLACE:
                return 0
            self._database.check_room()
            self._now_us()
            transaction = self._own_or_statement()
            count = self._execution(transaction).ingest(transaction, ingest, check_table)
            self._written(transaction, count)
            return count

        is_alone = self._autocommit and not self.in_transaction
        return Ingest(
            table,
            mode,
            staging=self.staging if is_alone else None,
            now_us=self._now_us(),
            memory_bytes_max=self._database.config.memory_bytes_max // 2,
            write=lambda ingest: self._guarded(lambda: write(ingest), f"INGEST {table.name}"),
        )

    def _ingest_table(self, name: str, mode: IngestMode) -> Table:
        table = self._table_for(name, _INGEST_RIGHTS[mode])
        if table.is_heap and mode is IngestMode.UPSERT:
            raise ProgrammingError(
                f'ingest: mode "upsert" needs a primary key, and table "{table.name}" has none',
                sqlstate="42P10",
            )
        return table

    def _begin_alone(self) -> Transaction:
        """Begin the transaction of a statement that cannot be a part of another one."""
        self._check_not_lost()
        if self.in_transaction:
            raise ProgrammingError(
                "staging: a commit of staged rows is a transaction of its own",
                sqlstate="25001",
                hint="commit() or rollback() the open one first",
            )
        return self._own_or_statement()

    def _finish_alone(self, transaction: Transaction) -> None:
        self._finish_autocommit(transaction)
        self._database.after_write()
