"""RetryingSession: a session of a server that outlives its connections.

Outside transactions a lost connection is made anew and the statement runs again, after the server
has said by its commit token (docs/adr/0018) that it did not happen; what did happen is done, and
its row count is not known (-1). A transaction cannot be carried over: its next call raises, SAFE,
and after rollback() the session goes on. Only when no server answers in time, or the outcome is not
known any more, does 08007 (UNKNOWN) reach the program. What was cancelled as its connection ended
is asked for as well, for a shorter time, and does not run again. Any thread; one statement at a
time.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bookie.runtime.drivers import new_mutex
from herdpy.driver.interfaces import IngestTarget, Pauses, PointRows, as_result, features
from herdpy.driver.remote.leaders import is_away, is_led_no_more, is_not_led
from herdpy.driver.remote.statement_kinds import Kind, gives_rows, kind_of
from herdpy.errors import (
    ConnectionLostError,
    Error,
    InternalError,
    OperationalError,
    QueryCanceledError,
    Retry,
    SerializationError,
)
from herdpy.exec.result import Result
from herdpy.model.isolation import Isolation, isolation_of
from herdpy.model.lsn import START_LSN, Lsn
from herdpy.model.schema import Table
from herdpy.model.settings import truth_of
from herdpy.sql.plan import Parameters

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.driver.interfaces import Export
    from herdpy.driver.remote.leaders import LeaderConnector
    from herdpy.driver.remote.session import RemoteSession
    from herdpy.features import Feature

T = TypeVar("T")
_GAP = r"(?:\s|--[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)"  # with comments
_OPTION = re.compile(
    rf"{_GAP}*(SET|RESET){_GAP}+(?:SESSION{_GAP}+)?(?!(?:TRANSACTION(?:_ISOLATION|_READ_ONLY)?|SESSION)\b)"
    rf"(TIME(?={_GAP}+ZONE\b)|[A-Za-z_]+)",
    re.IGNORECASE,
)
"""What sets an option of the session; one of the transaction is over with it."""
_ISOLATION, _READ_ONLY = "default_transaction_isolation", "default_transaction_read_only"
_LEVEL_S = 3.0
"""How long another copy may take to have what was seen before it is another one's turn."""
_CANCELLED = "57014"
_CANCELLED_S = 5.0
"""How long the outcome is asked for, at most, of what was cancelled: its caller waits no more."""
COMMITTED, REFUSED = "committed", "refused"


class NewPauses(Protocol):
    """Makes pauses within the time for which a connection is made anew, and limit_s at most."""

    def __call__(self, limit_s: float = ..., /) -> Pauses: ...


class RetryingSession:
    def __init__(
        self,
        connect: "Callable[[bool, Pauses | None], RemoteSession]",
        new_pauses: NewPauses | None,
        *,
        autocommit: bool,
        connector: "LeaderConnector | None" = None,
        reads_followers: bool = False,
    ) -> None:
        """connect(autocommit, pauses) makes a connection; new_pauses None: a lost one stays lost.

        `connector` is what it is the method of, when it leads to the leader of a cluster: then the
        first connection is tried again as well, and so is what a node has refused that does not
        lead. reads_followers: the next connection may be to a copy that is behind.
        """
        self._reads_followers = reads_followers
        self._connect = connect
        self._new_pauses = new_pauses
        self._connector = connector
        self._mutex = new_mutex()
        # Under the mutex.
        self._autocommit = autocommit
        self._options: dict[str, str] = {}  # what SET changed, by name
        self.isolation = Isolation.READ_COMMITTED
        self.is_read_only = False
        """Both of transactions that begin from now on."""
        self._lost: Error | None = None  # why the transaction is gone, until its end
        self._ended: RemoteSession | None = None
        """A lost one, whose transaction is over, although its server may not know."""
        self._is_closed = False
        self._lsn = START_LSN  # of lost connections
        # Read without it.
        self._session = self._connect_first()

    def _connect_first(self) -> "RemoteSession":
        """Connect; to a cluster again while no node leads."""
        pauses: Pauses | None = None
        if self._connector is not None and self._new_pauses is not None:
            pauses = self._new_pauses()
        while True:
            try:
                return self._connect(self._autocommit, pauses)
            except Error as error:
                if pauses is None or not is_away(error) or not pauses.wait():
                    raise

    # --- state -----------------------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        """True from BEGIN to its end; also while a lost transaction waits for its ROLLBACK."""
        return self._lost is not None or self._is_inside(self._session)

    @property
    def lsn(self) -> Lsn:
        """Of the log: what was seen or committed, on lost connections too, is at or before it."""
        return max(self._lsn, self._session.lsn)

    @property
    def autocommit(self) -> bool:
        return self._autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        def change(session: "RemoteSession") -> None:
            session.autocommit = value

        self._run(change, Kind.READ, lambda: None)
        self._autocommit = value

    @property
    def connection(self) -> "RemoteSession":
        return self._session

    # --- statements ------------------------------------------------------------------------------

    def execute(self, text: str, parameters: Parameters = None) -> Result:
        return as_result(self.run(text, parameters))

    def run(self, text: str, parameters: Parameters = None) -> Result | PointRows:
        """Run one statement; rows that came with its answer as they are."""
        found = self._run(methodcaller("run", text, parameters), text, partial(_uncounted, text))
        if isinstance(found, Result) and found.columns is None:
            option = _OPTION.match(text)
            if option is not None:
                self._note_option(option[1].upper(), option[2].lower(), text)
        return found

    def execute_many(self, text: str, rows: Iterable[Parameters]) -> Result:
        """Run one statement for every set of parameters, all or nothing."""
        items = list(rows)
        done = partial(_uncounted, text)
        return self._run(lambda session: session.execute_many(text, items), text, done)

    def execute_all(
        self, statements: Sequence[tuple[str, Parameters]]
    ) -> tuple[list[Result], Error | None]:
        """Run statements up to the first that fails; return the results, and its error."""

        def run_all(session: "RemoteSession") -> tuple[list[Result], Error | None]:
            results, error = session.execute_all(statements)
            if error is not None and self._connector is not None and is_led_no_more(error):
                raise error
            return results, error

        # In a transaction that is open, or begins here: nothing of it can have been committed.
        return self._run(run_all, Kind.WRITE, _impossible)

    def begin_ingest(self, table: str, mode: str) -> IngestTarget:
        session: list[RemoteSession] = []

        def begin(connection: "RemoteSession") -> IngestTarget:
            session[:] = [connection]
            return connection.begin_ingest(table, mode)

        target = self._run(begin, Kind.READ, _impossible)
        return _Ingest(self, session[0], target)

    def finish_ingest(self, session: "RemoteSession", target: IngestTarget, count: int) -> int:
        """Let the server write an ingest of so many rows; return how many."""
        with self._mutex:
            was_inside = self._is_inside(session)
            try:
                return target.finish()
            except Error as error:
                self._leave(session, error)
                if session.machine.failure is None or self._new_pauses is None or self._is_closed:
                    raise
                pauses = self._new_pauses()
                if self._is_done(session, error, Kind.WRITE, pauses, was_inside=was_inside):
                    return count
                raise ConnectionLostError(
                    f"{error.message}; the ingest did not happen",
                    retry=Retry.SAFE,
                    hint="run it again",
                ) from error

    def export(self, kind: str, tablespace: str = "") -> "Export":
        """Begin a backup, a dump or the list of tablespaces, on the connection of the moment."""
        return self._run(lambda session: session.export(kind, tablespace), Kind.READ, _impossible)

    def begin(self, durability: str | None = None) -> None:
        self._run(lambda session: session.begin(durability), Kind.READ, lambda: None)

    def commit(self) -> None:
        if self.in_transaction:
            self._run(lambda session: session.commit(), Kind.COMMIT, lambda: None)

    def rollback(self) -> None:
        if self.in_transaction:
            self._run(lambda session: session.rollback(), Kind.ROLLBACK, lambda: None)

    def reset(self) -> None:
        """Take back what SET changed; outside a transaction. The loss of what stays lost is raised.

        So a pool lends it to no caller any more.
        """
        lost = self._session.machine.failure
        if lost is not None and self._new_pauses is None:
            raise lost
        for name in list(self._options):
            self.execute(f"RESET {name}")
        self.rollback()

    def perform(self, feature: "Feature[T]", *arguments: Any) -> T:
        """Do what is no statement; again on another connection, if one is lost."""
        body: Callable[[RemoteSession], T] = methodcaller("perform", feature, *arguments)
        return self._run(body, Kind.READ, _impossible)

    def await_position(self, position: str, timeout_s: float) -> float:
        """Wait until the copy has a position, "" for none, and so each one that is read later."""
        lag_s = self.perform(features().WAIT_FOR, position, timeout_s)
        if position:
            with self._mutex:
                self._lsn = max(self._lsn, Lsn.of_text(position))
        return lag_s

    def cancel(self) -> None:
        """Stop the running statement, if any; any thread."""
        self._session.cancel()

    def close(self) -> None:
        """End the connection; the server rolls back. Repeatable."""
        self._is_closed = True
        self._session.close()

    def abandon(self) -> None:
        """End the connection at any line of any thread."""
        self._is_closed = True
        self._session.abandon()

    def close_descriptor(self) -> None:
        """Close what a forked child inherited, and leave the connection to its parent."""
        self._session.close_descriptor()

    def _note_option(self, verb: str, name: str, text: str) -> None:
        if name == "characteristics":
            for setting, value in _characteristics_of(text):
                self._note_setting(setting, value)
                self._options[setting] = f"SET {setting} = '{value}'"
            return
        name = "timezone" if name == "time" else name
        if name in (_ISOLATION, _READ_ONLY):
            self._note_setting(name, _value_set_by(text))
        if verb == "SET":
            self._options[name] = text
        else:
            self._options.pop(name, None)

    def _note_setting(self, name: str, value: str | None) -> None:
        """Note what transactions will be, by a SET which the server has run; None: the default."""
        if name == _ISOLATION:
            level = Isolation.READ_COMMITTED
            self.isolation = level if value is None else isolation_of(value, name)
        else:
            self.is_read_only = value is not None and truth_of(value, name)

    # --- losses ----------------------------------------------------------------------------------

    def _run(
        self, body: "Callable[[RemoteSession], T]", what: str | Kind, done: Callable[[], T]
    ) -> T:
        """Run body on the connection, and again on others; done() is for what had happened."""
        with self._mutex:
            pauses: Pauses | None = None
            while True:
                session = self._session
                if self._connector is not None:
                    self._leave_silent(session, self._connector)
                problem = self._lost or session.machine.failure
                if problem is not None and self._new_pauses is not None and not self._is_closed:
                    if self._lost is not None or self._is_inside(session):
                        self._end_lost(session, _kind(what))
                        return done()
                    pauses = pauses or self._new_pauses()
                    session = self._reconnect(pauses)
                was_inside = session.machine.in_transaction and session is not self._ended
                try:
                    return body(session)
                except Error as error:
                    if error.sqlstate == "57P05" and not was_inside:
                        session.close()  # it was idle for too long; nothing has run
                    is_refused = self._leave(session, error)
                    if is_refused and not was_inside and session.machine.in_transaction:
                        self._ended = session  # its first statement failed
                    if (
                        session.machine.failure is None
                        or self._new_pauses is None
                        or self._is_closed
                    ):
                        raise
                    cause = error
                pauses = pauses or self._new_pauses()
                if self._is_done(session, cause, _kind(what), pauses, was_inside=was_inside):
                    return done()
                if is_refused and not pauses.wait():
                    raise cause

    def _leave(self, session: "RemoteSession", error: Error) -> bool:
        """Leave a node of a cluster that has answered so because it leads no more; else False."""
        if self._connector is None or self._new_pauses is None:
            return False
        if session.is_silent:
            self._connector.note_silence(error)
        if not is_led_no_more(error):
            return False
        self._connector.note_refusal(error)
        session.close()
        return True

    def _leave_silent(self, session: "RemoteSession", connector: "LeaderConnector") -> None:
        """Leave a node that said nothing to another connection, while nothing is under way here."""
        is_possible = self._new_pauses is not None and connector.is_silent
        if is_possible and session.machine.failure is None and not self._is_inside(session):
            session.close()

    def _is_passing(self, error: Error) -> bool:
        """Return whether another connection may do better."""
        if error.retry is Retry.SAFE or isinstance(error, ConnectionLostError):
            return True
        return self._connector is not None and is_led_no_more(error)

    def _is_inside(self, session: "RemoteSession") -> bool:
        """Return whether a transaction is open, or was when the connection was lost."""
        return session.machine.in_transaction and session is not self._ended

    def _end_lost(self, session: "RemoteSession", kind: Kind) -> None:
        """Return for the ROLLBACK of a transaction that was lost; raise for everything else."""
        lost = self._lost
        is_told = lost is not None
        lost = lost or self._lost_transaction(None)
        self._ended = session
        if kind is Kind.ROLLBACK:
            self._lost = None
            return
        if kind is Kind.COMMIT:  # it ends it, too, but never as a success
            self._lost = None
            raise lost
        self._lost = lost
        if not is_told:
            raise lost
        raise InternalError(
            f"the transaction was lost before: {lost.message}",
            sqlstate="25P02",
            retry=Retry.SAFE,
            hint="ROLLBACK ends it; then run the whole transaction again.",
        )

    def _is_done(
        self,
        session: "RemoteSession",
        cause: Error,
        kind: Kind,
        pauses: Pauses,
        *,
        was_inside: bool,
    ) -> bool:
        """Return whether what ran on a lost connection has happened; False: it may run again."""
        if cause.sqlstate == _CANCELLED and self._new_pauses is not None:
            pauses = self._new_pauses(_CANCELLED_S)
        if was_inside or not (self._autocommit or kind is Kind.READ):
            self._ended = session
        if was_inside:
            if kind is Kind.ROLLBACK:
                return True
            if kind not in (Kind.COMMIT, Kind.UNKNOWN):
                self._lost = self._lost_transaction(cause)
                raise self._lost from cause
        if was_inside or (self._autocommit and kind is not Kind.READ):
            if self._resolve(session, cause, pauses) == COMMITTED:
                return True
            if was_inside:
                raise self._lost_transaction(cause) from cause
        if cause.sqlstate == _CANCELLED:  # it is not wanted any more
            if kind is Kind.READ:  # or what is no statement, and may have happened
                raise cause
            raise QueryCanceledError(cause.message) from cause  # it has not happened
        if cause.retry is Retry.NEVER and not (self._connector is not None and is_not_led(cause)):
            raise cause  # an administrator ended it: KILL
        return False

    def _lost_transaction(self, cause: Error | None) -> OperationalError:
        why = "the connection was lost" if cause is None else cause.message
        # Of a cluster as what any transaction is told that has to be run again: a leader is not
        # lost, it is followed by another.
        kind = ConnectionLostError if self._connector is None else SerializationError
        return kind(
            f"{why}; the transaction was rolled back",
            retry=Retry.SAFE,
            hint="roll back, and run the whole transaction again",
        )

    def _reconnect(self, pauses: Pauses) -> "RemoteSession":
        """Return a new connection, as the old one was set."""
        lost = self._session
        failure = lost.machine.failure
        if self._connector is not None and failure is not None:
            if lost.is_silent:
                self._connector.note_silence(failure)  # it would take a connection, too
            elif failure.leader is not None:
                self._connector.note_refusal(failure)
        self._session.close()  # the server ended it, which closes no socket of ours
        self._lsn = self.lsn
        while True:
            try:
                session = self._connect(self._autocommit, pauses)
                try:
                    if lost is self._ended and lost.token_session:
                        # The server may not have noticed the loss, and what runs next would wait
                        # for the locks of the lost session: the question ends it.
                        try:
                            session.resolve(lost.token_session, max(1, lost.last_token))
                        except OperationalError as error:  # the answer matters to none: reads go on
                            self._leave(session, error)
                            if session.machine.failure is not None:
                                raise
                    if self._reads_followers and self._lsn > START_LSN:
                        session.perform(features().WAIT_FOR, str(self._lsn), _LEVEL_S)
                    for text in self._options.values():
                        session.execute(text)
                    if self._options and session.in_transaction:
                        session.rollback()
                except BaseException:
                    session.close()
                    raise
                self._session = session
                if self._is_closed:  # meanwhile, by another thread
                    session.close()
                return session
            except OperationalError as error:
                if not self._is_passing(error) or self._is_closed or not pauses.wait():
                    raise

    def _resolve(self, lost: "RemoteSession", cause: Error, pauses: Pauses) -> str:
        """Ask what became of the request that was not answered; 08007 when it cannot be known."""
        counter = lost.undecided
        if counter is None:  # it was never sent
            return REFUSED
        while True:
            problem = "the server has forgotten it"
            session = self._session
            try:
                if session.machine.failure is not None:
                    session = self._reconnect(pauses)
                outcome = session.resolve(lost.token_session, counter)
                if outcome in (COMMITTED, REFUSED):
                    return outcome
            except OperationalError as error:
                self._leave(session, error)
                is_passing = error.retry is Retry.SAFE or session.machine.failure is not None
                if is_passing and pauses.wait():
                    continue
                problem = error.message
            raise ConnectionLostError(
                f"{cause.message}; whether the commit under way happened is not known: {problem}",
                sqlstate="08007",
                hint="look whether it has happened before repeating it",
            ) from cause


class _Ingest:
    """An ingest on one connection, which it does not outlive. One thread at a time."""

    def __init__(
        self, owner: RetryingSession, session: "RemoteSession", target: IngestTarget
    ) -> None:
        self._owner = owner
        self._session = session
        self._target = target
        self._count = 0

    @property
    def table(self) -> Table:
        return self._target.table

    def add(self, batch: "pa.RecordBatch") -> None:
        """Send a batch; an error may be that of an earlier one."""
        self._target.add(batch)
        self._count += batch.num_rows

    def finish(self) -> int:
        """Let the server write everything; return the number of rows."""
        return self._owner.finish_ingest(self._session, self._target, self._count)

    def abort(self) -> None:
        """Give up what was sent; nothing to do behind finish(). Repeatable."""
        self._target.abort()


def _impossible() -> Any:
    raise InternalError("what commits nothing was committed")


def _kind(what: str | Kind) -> Kind:
    return what if isinstance(what, Kind) else kind_of(what)


def _value_set_by(text: str) -> str | None:
    """Return the value of a SET, None: of a RESET, or the default."""
    from herdpy.sql import tree
    from herdpy.sql.reading.tokens import scan
    from herdpy.sql.statements import read_statement

    found = read_statement(scan(text))
    return found.value if isinstance(found, tree.SetOption) else None


def _characteristics_of(text: str) -> list[tuple[str, str]]:
    """Return the (setting, value) of a SET SESSION CHARACTERISTICS."""
    from herdpy.sql import tree
    from herdpy.sql.characteristics import characteristics
    from herdpy.sql.reading.tokens import scan
    from herdpy.sql.statements import read_statement

    found = read_statement(scan(text))
    modes = found.modes if isinstance(found, tree.SetCharacteristics) else tree.TransactionModes()
    return list(characteristics(modes))


def _uncounted(text: str) -> Result:
    """Return the result of a statement whose answer was lost, and which has happened."""
    if gives_rows(text):
        raise ConnectionLostError(
            "the statement has happened and is committed; the rows of its RETURNING were lost with "
            "the connection",
            retry=Retry.NEVER,
            hint="SELECT the rows; to repeat the statement would change them again",
        )
    return Result(row_count=-1)
